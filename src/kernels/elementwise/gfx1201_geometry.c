// SPDX-License-Identifier: Apache-2.0
// Launches of the elementwise kernels on gfx1201: arguments of the op in, launches out, no driver call.
#include "kernels/elementwise/gfx1201_args.h"
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

static int32_t type_code(rd_dtype dtype) {
    return dtype == RD_DTYPE_BF16 ? RDK_BF16 : dtype == RD_DTYPE_F16 ? RDK_F16 : RDK_F32;
}

// May a lane move its eight elements of any row in 16-byte pieces?
static bool rows_aligned(const void *data, int64_t stride, rd_dtype dtype) {
    size_t bytes = rd_dtype_bytes(dtype);
    return (uintptr_t)data % 16 == 0 && (size_t)stride * bytes % 16 == 0;
}

int32_t rdi_act_mul_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                     rdi_launch *out) {
    const rdi_act_mul_args *a = args;
    (void)ws, (void)device;
    const rdk_act_mul_gfx1201_args kernel = {
        .gate = RDK_ADDR(a->gate),
        .up = RDK_ADDR(a->up),
        .y = RDK_ADDR(a->y),
        .gate_stride = a->gate_stride,
        .up_stride = a->up_stride,
        .y_stride = a->y_stride,
        .k = (int32_t)a->k,
        .gelu = a->act == RDI_ACT_GELU_TANH,
        .x_type = type_code(a->x_dtype),
        .y_type = type_code(a->y_dtype),
        .aligned = rows_aligned(a->gate, a->gate_stride, a->x_dtype) &&
                   rows_aligned(a->up, a->up_stride, a->x_dtype) &&
                   rows_aligned(a->y, a->y_stride, a->y_dtype),
    };
    uint32_t columns = (uint32_t)rdi_ceil_div(a->k, RDK_ACT_MUL_BLOCK * RDK_ACT_MUL_LANE_ELEMS);
    rdi_launch_fill(&out[0], "rdk_act_mul_gfx1201", (const uint32_t[3]){columns, (uint32_t)a->m, 1},
                    RDK_ACT_MUL_BLOCK, &kernel, sizeof kernel);
    return 1;
}
