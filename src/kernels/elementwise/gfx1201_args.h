// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the elementwise kernels on gfx1201, one struct a kernel. Strides in elements.
#ifndef RDK_ELEMENTWISE_GFX1201_ARGS_H
#define RDK_ELEMENTWISE_GFX1201_ARGS_H

#include "base/gpu_args.h"

// Codes of element types; the host's rd_dtype is not visible in OpenCL C.
enum { RDK_F32 = 0, RDK_BF16, RDK_F16 };

enum { RDK_ACT_MUL_BLOCK = 256, RDK_ACT_MUL_LANE_ELEMS = 8 };

typedef struct rdk_act_mul_gfx1201_args {
    RDK_PTR(const void) gate;
    RDK_PTR(const void) up;
    RDK_PTR(void) y;
    int64_t gate_stride, up_stride, y_stride;
    int32_t k;    // elements of a row
    int32_t gelu; // 1: gelu_tanh, 0: silu
    int32_t x_type, y_type;
    int32_t aligned; // 1: every row of gate, up and y starts on 16 bytes
    int32_t reserved;
} rdk_act_mul_gfx1201_args;

#endif // RDK_ELEMENTWISE_GFX1201_ARGS_H
