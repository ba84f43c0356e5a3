// SPDX-License-Identifier: Apache-2.0
// Arguments of every quant_fp8 kernel. Strides in elements; rows of x, up, residual, q are contiguous along k.
#ifndef RDI_QUANT_ARGS_H
#define RDI_QUANT_ARGS_H

#include "radiance.h"

typedef enum rdi_quant_fuse {
    RDI_FUSE_NONE = 0,
    RDI_FUSE_RMSNORM,
    RDI_FUSE_ADD_RMSNORM,
    RDI_FUSE_SILU_MUL
} rdi_quant_fuse;

typedef struct rdi_quant_args {
    int64_t m, k;
    const void *x;           // [m, k]
    const void *up;          // SILU_MUL
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

#endif // RDI_QUANT_ARGS_H
