// SPDX-License-Identifier: Apache-2.0
// Arguments of every quant_fp8 kernel. Strides in elements; rows of x, up, residual, q are contiguous along k.
#ifndef RDI_QUANT_ARGS_H
#define RDI_QUANT_ARGS_H

#include "radiance.h"

typedef enum rdi_quant_fuse {
    RDI_FUSE_NONE = 0,
    RDI_FUSE_RMSNORM,
    RDI_FUSE_ADD_RMSNORM,
    RDI_FUSE_SILU_MUL,
    RDI_FUSE_GELU_MUL // tanh form
} rdi_quant_fuse;

typedef struct rdi_quant_args {
    int64_t m, k;
    const void *x;           // [m, k]
    const void *up;          // SILU_MUL, GELU_MUL
    void *residual;          // ADD_RMSNORM, read and written
    const void *norm_weight; // [k]
    uint8_t *q;              // [m, k] e4m3
    float *q_scale;          // [m, ceil(k/128)]
    int64_t x_stride, up_stride, residual_stride, q_stride, q_scale_stride_m, q_scale_stride_k;
    rd_dtype x_dtype, up_dtype, residual_dtype, norm_dtype;
    float eps;
    int32_t unit_offset;
    rdi_quant_fuse fuse;
} rdi_quant_args;

// An activation of x times up, before the quantiser.
static inline int rdi_fuse_takes_up(rdi_quant_fuse fuse) {
    return fuse == RDI_FUSE_SILU_MUL || fuse == RDI_FUSE_GELU_MUL;
}

#endif // RDI_QUANT_ARGS_H
