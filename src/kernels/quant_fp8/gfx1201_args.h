// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the quant_fp8 kernels on gfx1201. Strides in elements; types as in elementwise/gfx1201_args.h.
#ifndef RDK_QUANT_GFX1201_ARGS_H
#define RDK_QUANT_GFX1201_ARGS_H

#include "base/gpu_args.h"

enum { RDK_QUANT_THREADS = 256, RDK_QUANT_SCALE_GROUP = 128 };

typedef struct rdk_quant_fp8_gfx1201_args {
    RDK_PTR(const void) x;
    RDK_PTR(const void) up;     // silu_mul and gelu_mul, else null
    RDK_PTR(void) residual;     // add_rmsnorm, else null
    RDK_PTR(const void) weight; // of the norm, else null
    RDK_PTR(uint8_t) q;
    RDK_PTR(float) q_scale;
    int64_t x_stride, up_stride, residual_stride, q_stride, q_scale_stride_m, q_scale_stride_k;
    int32_t k, x_dtype, up_dtype, residual_dtype, weight_dtype, unit_offset;
    int32_t gelu; // of x, else silu
    int32_t
        wide; // 1: every eight elements of a row that start at a multiple of eight lie on 16 bytes (of q on 8)
    float eps;
} rdk_quant_fp8_gfx1201_args;

#endif // RDK_QUANT_GFX1201_ARGS_H
