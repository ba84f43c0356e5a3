// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a GEMM kernels: arguments of the op in, launches out, no driver call.
#include "kernels/gemm_fp8block/args.h"
#include "kernels/gemm_fp8block/sm90a_args.h"
#include "kernels/gemm_fp8block/sm90a_geometry.h"
#include "kernels/rows.h"

#include <stddef.h>

// Weight rows of a tile. Small weights take 64, so that a tile spans two or three blocks instead of
// four or five; a function of N and the device alone, as all of this row's split of K.
static int32_t step_tile_rows(int64_t n, int32_t units) {
    return rdi_ceil_div(n, 128) < units * 2 / 3 ? 64 : 128;
}

static int32_t step_tokens(int64_t m) {
    return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : m <= 64 ? 64 : 128;
}

size_t rdi_gemm_step_sm90a_ws(const void *args, int32_t units) {
    const rdi_gemm_args *a = args;
    return (size_t)units * (size_t)step_tile_rows(a->n, units) * (size_t)step_tokens(a->m) * 2 *
           sizeof(float);
}

bool rdi_sm90a_engine_can(const void *data, int64_t rows, int64_t stride_bytes) {
    return (uintptr_t)data % 16 == 0 && (rows == 1 || stride_bytes % 16 == 0);
}

rdi_tensor_map rdi_sm90a_byte_map(uint32_t arg_offset, const void *base, int64_t rows, int64_t k, int64_t stride,
                                  int32_t box_rows) {
    return (rdi_tensor_map){
        .arg_offset = arg_offset,
        .base = base,
        .elem_bytes = 1,
        .rank = 2,
        .dim = {(uint64_t)k, (uint64_t)rows},
        .stride_bytes = {1, (uint64_t)(rows == 1 ? rdi_round_up(k, 16) : stride)},
        .box = {RDK_K_BLOCK, (uint32_t)box_rows},
        .swizzle_bytes = 128,
    };
}

static const char *step_kernel(int32_t tokens, int32_t rows) {
    static const char *const names[2][5] = {
        {"rdk_gemm_fp8block_step_sm90a_t8_r64", "rdk_gemm_fp8block_step_sm90a_t16_r64",
         "rdk_gemm_fp8block_step_sm90a_t32_r64", "rdk_gemm_fp8block_step_sm90a_t64_r64",
         "rdk_gemm_fp8block_step_sm90a_t128_r64"},
        {"rdk_gemm_fp8block_step_sm90a_t8_r128", "rdk_gemm_fp8block_step_sm90a_t16_r128",
         "rdk_gemm_fp8block_step_sm90a_t32_r128", "rdk_gemm_fp8block_step_sm90a_t64_r128",
         "rdk_gemm_fp8block_step_sm90a_t128_r128"},
    };
    int32_t index = 0;
    while (8 << index < tokens) index++;
    return names[rows == 128][index];
}

static void step_launch(const rdi_gemm_args *a, void *ws, const rd_device_info *device, rdi_launch *out) {
    int32_t rows = step_tile_rows(a->n, device->compute_units), tokens = step_tokens(a->m);
    int64_t k_blocks = rdi_ceil_div(a->k, RDK_K_BLOCK), units = rdi_ceil_div(a->n, rows) * k_blocks;
    int32_t ranges = device->compute_units;
    rdk_gemm_step_args kernel = {
        .a = RDK_ADDR(a->a),
        .w = RDK_ADDR(a->w),
        .a_scale = RDK_ADDR(a->a_scale),
        .w_scale = RDK_ADDR(a->w_scale),
        .bias = RDK_ADDR(a->bias),
        .c = RDK_ADDR(a->c),
        .partials = RDK_ADDR(ws),
        .a_stride = a->a_stride,
        .w_stride = a->w_stride,
        .a_scale_stride_m = a->a_scale_stride_m,
        .a_scale_stride_k = a->a_scale_stride_k,
        .w_scale_stride_n = a->w_scale_stride_n,
        .w_scale_stride_k = a->w_scale_stride_k,
        .c_stride = a->c_stride,
        .m = (int32_t)a->m,
        .n = (int32_t)a->n,
        .k = (int32_t)a->k,
        .k_blocks = (int32_t)k_blocks,
        .ranges = ranges,
        .range_units = (int32_t)(units / ranges),
        .range_rest = (int32_t)(units % ranges),
        .use_maps = rdi_sm90a_engine_can(a->a, a->m, a->a_stride) && rdi_sm90a_engine_can(a->w, a->n, a->w_stride),
        .w_scale_e8m0 = a->w_scale_dtype == RD_DTYPE_E8M0,
        .bias_type = rdk_type_code(a->bias_dtype),
        .c_type = rdk_type_code(a->c_dtype),
    };
    rdi_launch_fill(out, step_kernel(tokens, rows), (const uint32_t[3]){(uint32_t)ranges, 1, 1},
                    (uint32_t)(rows / 64 * 128 + 96), &kernel, sizeof kernel);
    out->shared_bytes = (uint32_t)rdk_step_shared_bytes(tokens, rows);
    out->dependent = true;
    if (kernel.use_maps) {
        out->map_count = 2;
        out->map[0] = rdi_sm90a_byte_map(offsetof(rdk_gemm_step_args, w_map), a->w, a->n, a->k, a->w_stride, rows);
        out->map[1] = rdi_sm90a_byte_map(offsetof(rdk_gemm_step_args, a_map), a->a, a->m, a->k, a->a_stride, tokens);
    }
}

// Up to four launches of 128 tokens each, one after the other over the same words of the workspace.
int32_t rdi_gemm_step_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                     rdi_launch *out) {
    const rdi_gemm_args *a = args;
    int32_t count = 0;
    for (int64_t first = 0; first < a->m; first += RDK_STEP_TOKENS_MAX, count++) {
        rdi_gemm_args part = *a;
        part.m = rdi_min(a->m - first, RDK_STEP_TOKENS_MAX);
        part.a = (const uint8_t *)a->a + first * a->a_stride;
        part.a_scale = a->a_scale + first * a->a_scale_stride_m;
        part.c = (uint8_t *)a->c + first * a->c_stride * (int64_t)rd_dtype_bytes(a->c_dtype);
        step_launch(&part, ws, device, &out[count]);
    }
    return count;
}
