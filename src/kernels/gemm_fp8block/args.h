// SPDX-License-Identifier: Apache-2.0
// Arguments of every gemm_* kernel, host and device alike. Strides in elements. Checked by src/ops/gemm.c.
#ifndef RDI_GEMM_ARGS_H
#define RDI_GEMM_ARGS_H

#include "radiance.h"

typedef enum rdi_weight_layout {
    RDI_LAYOUT_ROW = 0,
    RDI_LAYOUT_SHUFFLE16,
    RDI_LAYOUT_PANEL16,
    RDI_LAYOUT_TILE64,
    RDI_LAYOUTS
} rdi_weight_layout;

typedef struct rdi_gemm_args {
    int64_t m, n, k;
    const void *a;        // [m, k]: e4m3 (W8A8), bf16, f16 or f32
    int64_t a_stride;     // row stride
    const float *a_scale; // [m, ceil(k/128)]; NULL unless a is e4m3
    int64_t a_scale_stride_m, a_scale_stride_k;
    const void *w;       // [n, k] in `layout`
    int64_t w_stride;    // row stride (RDI_LAYOUT_ROW), else the layout's own
    const void *w_scale; // [ceil(n/128), ceil(k/128)] f32 or e8m0; NULL for bf16 weights
    int64_t w_scale_stride_n, w_scale_stride_k;
    const void *bias; // [n] or NULL
    void *c;          // [m, n]
    int64_t c_stride;
    rd_dtype a_dtype, w_dtype, w_scale_dtype, bias_dtype, c_dtype;
    rdi_weight_layout layout;
} rdi_gemm_args;

#endif // RDI_GEMM_ARGS_H
