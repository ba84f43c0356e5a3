// SPDX-License-Identifier: Apache-2.0
// Launches of quant_fp8 on gfx1201: a work-group a row with a norm, else 2048 elements of one.
#include "kernels/elementwise/gfx1201_args.h"
#include "kernels/quant_fp8/args.h"
#include "kernels/quant_fp8/gfx1201_args.h"
#include "kernels/rows.h"

static int32_t type_code(rd_dtype dtype) {
    return dtype == RD_DTYPE_BF16 ? RDK_BF16 : dtype == RD_DTYPE_F16 ? RDK_F16 : RDK_F32;
}

// Does every eighth element of every row lie on `bytes` bytes?
static bool on_bytes(const void *data, int64_t stride, rd_dtype dtype, int64_t rows, size_t bytes) {
    return (uintptr_t)data % bytes == 0 && (rows == 1 || (size_t)stride * rd_dtype_bytes(dtype) % bytes == 0);
}

int32_t rdi_quant_fp8_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                       rdi_launch *out) {
    const rdi_quant_args *a = args;
    bool act = rdi_fuse_takes_up(a->fuse), add = a->fuse == RDI_FUSE_ADD_RMSNORM;
    bool norm = add || a->fuse == RDI_FUSE_RMSNORM;
    (void)ws, (void)device;
    if ((act && !rdi_launch_takes_type("quant_fp8", "up", a->up_dtype)) ||
        (add && !rdi_launch_takes_type("quant_fp8", "residual", a->residual_dtype)) ||
        (norm && !rdi_launch_takes_type("quant_fp8", "norm_weight", a->norm_dtype)))
        return 0;
    const rdk_quant_fp8_gfx1201_args kernel = {
        .x = RDK_ADDR(a->x),
        .up = act ? RDK_ADDR(a->up) : 0,
        .residual = add ? RDK_ADDR(a->residual) : 0,
        .weight = norm ? RDK_ADDR(a->norm_weight) : 0,
        .q = RDK_ADDR(a->q),
        .q_scale = RDK_ADDR(a->q_scale),
        .x_stride = a->x_stride,
        .up_stride = a->up_stride,
        .residual_stride = a->residual_stride,
        .q_stride = a->q_stride,
        .q_scale_stride_m = a->q_scale_stride_m,
        .q_scale_stride_k = a->q_scale_stride_k,
        .k = (int32_t)a->k,
        .x_dtype = type_code(a->x_dtype),
        .up_dtype = type_code(a->up_dtype),
        .residual_dtype = type_code(a->residual_dtype),
        .weight_dtype = type_code(a->norm_dtype),
        .unit_offset = a->unit_offset,
        .gelu = a->fuse == RDI_FUSE_GELU_MUL,
        .wide = on_bytes(a->x, a->x_stride, a->x_dtype, a->m, 16) &&
                on_bytes(a->q, a->q_stride, RD_DTYPE_E4M3, a->m, 8) &&
                (!act || on_bytes(a->up, a->up_stride, a->up_dtype, a->m, 16)) &&
                (!add || on_bytes(a->residual, a->residual_stride, a->residual_dtype, a->m, 16)) &&
                (!norm || on_bytes(a->norm_weight, 0, a->norm_dtype, 1, 16)),
        .eps = a->eps,
    };
    const uint32_t grid[3] = {(uint32_t)a->m,
                              norm ? 1 : (uint32_t)rdi_ceil_div(a->k, RDK_QUANT_THREADS * RDK_GROUP), 1};
    rdi_launch_fill(out, norm ? "rdk_quant_fp8_gfx1201_norm" : "rdk_quant_fp8_gfx1201_groups", grid,
                    RDK_QUANT_THREADS, &kernel, sizeof kernel);
    return 1;
}
