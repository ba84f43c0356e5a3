// SPDX-License-Identifier: Apache-2.0
// Launches of gemm_bf16 on sm_90a: arguments of the op in, launches out, no driver call.
#include "kernels/gemm_fp8block/sm90a_skinny_geometry.h"
#include "kernels/rows.h"

// Weight rows of a tile. Small weights take 64, so that a tile spans two or three blocks instead of four or five.
static int32_t tile_rows(int64_t n, int32_t units) {
    return rdi_ceil_div(n, 128) < units * 2 / 3 ? 64 : 128;
}

// Beside bf16 weights the tensor core takes bf16: f16 is the sum of two bf16 numbers, f32 of three (and one zero).
static int32_t parts_of(rd_dtype dtype) {
    return dtype == RD_DTYPE_BF16 ? 1 : dtype == RD_DTYPE_F16 ? 2 : 4;
}

// With few k blocks and whole tiles a block keeps its columns: 64 of them spare more of the second-level cache's bytes than they take
// from the ring. No sum changes.
static bool holds_columns(const rdi_gemm_args *a, const rdi_skinny_plan *plan) {
    return plan->whole && plan->rows == RDK_SKINNY_HELD_ROWS && plan->columns == 64 &&
           a->k <= RDK_SKINNY_HELD_BLOCKS * RDK_SKINNY_BOX_K;
}

static rdi_skinny_plan step_plan(const rdi_gemm_args *a, int32_t units) {
    return rdi_gemm_skinny_plan(a, units, tile_rows(a->n, units), parts_of(a->a_dtype), 1,
                                RDK_SKINNY_COLUMNS_MAX);
}

size_t rdi_gemm_bf16_step_sm90a_ws(const void *args, int32_t units) {
    const rdi_gemm_args *a = args;
    rdi_skinny_plan plan = step_plan(a, units);
    return rdi_gemm_skinny_ws(a, &plan);
}

int32_t rdi_gemm_bf16_step_sm90a(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    static const char *const names[2][5] = {
        {"rdk_gemm_bf16_step_sm90a_c8_r64", "rdk_gemm_bf16_step_sm90a_c16_r64",
         "rdk_gemm_bf16_step_sm90a_c32_r64", "rdk_gemm_bf16_step_sm90a_c64_r64",
         "rdk_gemm_bf16_step_sm90a_c128_r64"},
        {"rdk_gemm_bf16_step_sm90a_c8_r128", "rdk_gemm_bf16_step_sm90a_c16_r128",
         "rdk_gemm_bf16_step_sm90a_c32_r128", "rdk_gemm_bf16_step_sm90a_c64_r128",
         "rdk_gemm_bf16_step_sm90a_c128_r128"},
    };
    const rdi_gemm_args *a = args;
    rdi_skinny_plan plan = step_plan(a, device->compute_units);
    int32_t index = 0;
    while (8 << index < plan.columns) index++;
    int32_t count = rdi_gemm_skinny_launches(a, ws, &plan, names[plan.rows == 128][index],
                                             "rdk_gemm_bf16_step_sm90a_split", out);
    if (!count) return 0;
    rdi_launch *gemm = &out[count - 1];
    if (holds_columns(a, &plan) && gemm->map_count == 2) {
        gemm->kernel = "rdk_gemm_bf16_step_sm90a_c64_held";
        gemm->shared_bytes = (uint32_t)rdk_skinny_held_shared_bytes(plan.columns);
    }
    return count;
}

size_t rdi_gemm_bf16_chunk_sm90a_ws(const void *args, int32_t units) {
    (void)units;
    const rdi_gemm_args *a = args;
    rdi_skinny_plan plan = rdi_gemm_skinny_dense_plan(a, 256, parts_of(a->a_dtype), 1);
    return rdi_gemm_skinny_ws(a, &plan);
}

int32_t rdi_gemm_bf16_chunk_sm90a(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    (void)device;
    const rdi_gemm_args *a = args;
    rdi_skinny_plan plan = rdi_gemm_skinny_dense_plan(a, 256, parts_of(a->a_dtype), 1);
    return rdi_gemm_skinny_launches(a, ws, &plan, "rdk_gemm_bf16_chunk_sm90a_c128_r256",
                                    "rdk_gemm_bf16_chunk_sm90a_split", out);
}
