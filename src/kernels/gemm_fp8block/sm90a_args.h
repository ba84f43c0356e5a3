// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the sm_90a GEMM kernels, and the tile arithmetic that host and device share. Strides in elements.
#ifndef RDI_GEMM_SM90A_ARGS_H
#define RDI_GEMM_SM90A_ARGS_H

#include "kernels/common/device_args.h"

enum { RDK_OUT_BF16 = 0, RDK_OUT_F16 = 1, RDK_OUT_F32 = 2 }; // element types of outputs, biases and activations

typedef struct rdk_gemm_step_args {
    RDK_ALIGN64 unsigned char w_map[128]; // box: 128 bytes of K x 64 or 128 weight rows
    unsigned char a_map[128];             // box: 128 bytes of K x the kernel's tokens
    RDK_PTR(const unsigned char) a;       // these two serve rows that the copy engine cannot address
    RDK_PTR(const unsigned char) w;
    RDK_PTR(const float) a_scale;
    RDK_PTR(const void) w_scale;
    RDK_PTR(const void) bias;
    RDK_PTR(void) c;
    RDK_PTR(void) partials; // one tile of 32-bit words a block, zero before and after
    int64_t a_stride, w_stride, a_scale_stride_m, a_scale_stride_k, w_scale_stride_n, w_scale_stride_k, c_stride;
    int32_t m, n, k, k_blocks;
    int32_t ranges, range_units, range_rest; // block r takes range_units (+1 while r < range_rest) units of (tile, k block)
    int32_t use_maps, w_scale_e8m0, bias_type, c_type;
} rdk_gemm_step_args;

#endif // RDI_GEMM_SM90A_ARGS_H
