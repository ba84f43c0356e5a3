// SPDX-License-Identifier: Apache-2.0
// By-value arguments and tile numbers of the gemm_* kernels on gfx1201: one struct for all of them. Strides of a and w in
// bytes, of the others in elements.
#ifndef RDK_GEMM_GFX1201_ARGS_H
#define RDK_GEMM_GFX1201_ARGS_H

#include "base/gpu_args.h"

// Codes of element types; the host's rd_dtype is not visible in OpenCL C. RDK_NONE: no bias.
enum { RDK_GEMM_NONE = -1, RDK_GEMM_F32 = 0, RDK_GEMM_BF16, RDK_GEMM_F16 };

// Class `chunk`: a work-group of eight waves makes a tile of C from 128-byte wide slices of A and W in LDS.
enum { RDK_CHUNK_BLOCK = 256, RDK_CHUNK_TILE_N = 128, RDK_CHUNK_M_GROUP = 8 };

typedef struct rdk_gemm_gfx1201_args {
    RDK_PTR(const char) a;
    RDK_PTR(const char) w;
    RDK_PTR(const char) a_scale;
    RDK_PTR(const char) w_scale;
    RDK_PTR(const char) bias;
    RDK_PTR(char) c;
    int64_t a_stride_bytes, w_stride_bytes, c_stride;
    int64_t a_scale_stride_m, a_scale_stride_k, w_scale_stride_n, w_scale_stride_k;
    int32_t m, n, k;
    int32_t e8m0;      // type of w_scale: 1 e8m0, 0 f32
    int32_t bias_type; // RDK_GEMM_NONE, _F32, _BF16
    int32_t c_type;
    int32_t
        aligned; // 1: rows of a and w start on dwords and lie within 4 GiB: whole k steps take 16-byte loads
    int32_t
        c_aligned; // 1: every row of c starts on four elements, a group of rows within 4 GiB: four go at once
} rdk_gemm_gfx1201_args;

#endif // RDK_GEMM_GFX1201_ARGS_H
