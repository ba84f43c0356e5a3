// SPDX-License-Identifier: Apache-2.0
// Launches of gemm_fp8block_w8a16 on sm_90a: the tiles of gemm_bf16 over k blocks of 128.
#include "kernels/gemm_fp8block/sm90a_skinny_geometry.h"
#include "kernels/rows.h"

enum {
    BOXES = 2,            // of 64 elements of A in a k block of 128
    STEP_COLUMNS_MAX = 32 // more would ask shared memory for columns faster than it gives them
};

// bf16 and f16 are operands of the tensor core; f32 is the sum of three bf16 numbers (and one zero).
static int32_t parts_of(rd_dtype dtype) {
    return dtype == RD_DTYPE_F32 ? 4 : 1;
}

static rdi_skinny_plan step_plan(const rdi_gemm_args *a, int32_t units) {
    return rdi_gemm_skinny_plan(a, units, 128, parts_of(a->a_dtype), BOXES, STEP_COLUMNS_MAX);
}

size_t rdi_gemm_w8a16_step_sm90a_ws(const void *args, int32_t units) {
    const rdi_gemm_args *a = args;
    rdi_skinny_plan plan = step_plan(a, units);
    return rdi_gemm_skinny_ws(a, &plan);
}

int32_t rdi_gemm_w8a16_step_sm90a(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    static const char *const names[2][3] = {
        {"rdk_gemm_fp8block_w8a16_step_sm90a_bf16_c8", "rdk_gemm_fp8block_w8a16_step_sm90a_bf16_c16",
         "rdk_gemm_fp8block_w8a16_step_sm90a_bf16_c32"},
        {"rdk_gemm_fp8block_w8a16_step_sm90a_f16_c8", "rdk_gemm_fp8block_w8a16_step_sm90a_f16_c16",
         "rdk_gemm_fp8block_w8a16_step_sm90a_f16_c32"},
    };
    const rdi_gemm_args *a = args;
    rdi_skinny_plan plan = step_plan(a, device->compute_units);
    int32_t index = plan.columns == 8 ? 0 : plan.columns == 16 ? 1 : 2;
    return rdi_gemm_skinny_launches(a, ws, &plan, names[a->a_dtype == RD_DTYPE_F16][index],
                                    "rdk_gemm_fp8block_w8a16_step_sm90a_split", out);
}

size_t rdi_gemm_w8a16_chunk_sm90a_ws(const void *args, int32_t units) {
    (void)units;
    const rdi_gemm_args *a = args;
    rdi_skinny_plan plan = rdi_gemm_skinny_dense_plan(a, 128, parts_of(a->a_dtype), BOXES);
    return rdi_gemm_skinny_ws(a, &plan);
}

int32_t rdi_gemm_w8a16_chunk_sm90a(const void *args, void *ws, const rd_device_info *device,
                                   rdi_launch *out) {
    (void)device;
    const rdi_gemm_args *a = args;
    rdi_skinny_plan plan = rdi_gemm_skinny_dense_plan(a, 128, parts_of(a->a_dtype), BOXES);
    const char *kernel = a->a_dtype == RD_DTYPE_F16 ? "rdk_gemm_fp8block_w8a16_chunk_sm90a_f16_c128_r128"
                                                    : "rdk_gemm_fp8block_w8a16_chunk_sm90a_bf16_c128_r128";
    return rdi_gemm_skinny_launches(a, ws, &plan, kernel, "rdk_gemm_fp8block_w8a16_chunk_sm90a_split", out);
}
