// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the sm_90a quantisation kernels. Strides in elements.
#ifndef RDI_QUANT_SM90A_ARGS_H
#define RDI_QUANT_SM90A_ARGS_H

#include "kernels/common/sm90a_types.h"

enum { RDK_QUANT_THREADS = 128, RDK_QUANT_GROUP = 128, RDK_QUANT_ROWS = 2 };

typedef struct rdk_quant_sm90a_args {
    RDK_PTR(const void) x;
    RDK_PTR(const void) up; // NULL, or x becomes silu(x) * up, or gelu(x) * up
    RDK_PTR(void) residual; // NULL, or read and written
    RDK_PTR(const void) norm_weight;
    RDK_PTR(unsigned char) q;
    RDK_PTR(float) q_scale;
    int64_t x_stride, up_stride, residual_stride, q_stride, q_scale_stride_m, q_scale_stride_k;
    int32_t m, k, x_type, up_type, residual_type, norm_type, gelu;
    float eps, weight_offset;
} rdk_quant_sm90a_args;

#endif // RDI_QUANT_SM90A_ARGS_H
