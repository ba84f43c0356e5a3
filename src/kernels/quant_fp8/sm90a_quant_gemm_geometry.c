// SPDX-License-Identifier: Apache-2.0
// Launch of the sm_90a step GEMM that quantises its own tokens: arguments of the op in, one launch out, no driver call.
#include "kernels/gemm_fp8block/sm90a_geometry.h"
#include "kernels/quant_fp8/quant_gemm.h"
#include "kernels/quant_fp8/sm90a_quant_gemm.h"
#include "kernels/rows.h"

#include <stddef.h>

static const char op[] = "quant_gemm_fp8block";
// Units asked for beyond the ring, before the tokens are there.
enum { MOST_STAGES = 14, AHEAD_BYTES = 64 * 1024, BLOCK_BYTES = 113 * 1024 };

static int32_t tokens_of(int64_t m) {
    return m == 1 ? 1 : m == 2 ? 2 : 4;
}

size_t rdi_quant_gemm_sm90a_ws(const void *args, int32_t multiprocessors) {
    const rdi_quant_gemm_args *a = args;
    const rdi_sm90a_step_cut cut = rdi_sm90a_cut_step(&a->gemm, multiprocessors);
    return (size_t)cut.pairs * 2 * (size_t)cut.rows * 8 * 2 * sizeof(float);
}

static const char *kernel_name(const rdi_quant_gemm_args *a, int32_t rows) {
#define NAMES(fuse_)                                                                                         \
    {                                                                                                        \
        {"rdk_quant_gemm_fp8block_" fuse_ "_t1_r64",                                              \
         "rdk_quant_gemm_fp8block_" fuse_ "_t2_r64",                                              \
         "rdk_quant_gemm_fp8block_" fuse_ "_t4_r64"},                                             \
            {"rdk_quant_gemm_fp8block_" fuse_ "_t1_r128",                                         \
             "rdk_quant_gemm_fp8block_" fuse_ "_t2_r128",                                         \
             "rdk_quant_gemm_fp8block_" fuse_ "_t4_r128"},                                        \
    }
    static const char *const names[3][2][3] = {NAMES("step_sm90a_none"), NAMES("norm_step_sm90a"), NAMES("step_sm90a_silu")};
#undef NAMES
    int fuse = a->quant.fuse == RDI_FUSE_RMSNORM ? 1 : a->quant.fuse == RDI_FUSE_SILU_MUL ? 2 : 0;
    return names[fuse][rows == 128][tokens_of(a->gemm.m) / 2];
}

// Operands that no key of the question names.
static bool operands_fit(const rdi_quant_gemm_args *a) {
    const rdi_quant_args *q = &a->quant;
    if (q->fuse == RDI_FUSE_SILU_MUL && !rdi_launch_takes_type(op, "up", q->up_dtype)) return false;
    if (q->fuse == RDI_FUSE_RMSNORM && !rdi_launch_takes_type(op, "norm_weight", q->norm_dtype)) return false;
    if (rdi_sm90a_engine_can(a->gemm.w, a->gemm.n, a->gemm.w_stride)) return true;
    rdi_fail(RD_E_INVALID, "%s: w: data=%p, row stride %lld, needs multiples of 16", op, a->gemm.w,
             (long long)a->gemm.w_stride);
    return false;
}

static rdk_quant_gemm_sm90a_args kernel_args(const rdi_quant_gemm_args *a, const rdi_sm90a_step_cut *cut, void *ws) {
    const rdi_quant_args *q = &a->quant;
    const rdi_gemm_args *g = &a->gemm;
    rdk_quant_gemm_sm90a_args kernel = {
        .x = RDK_ADDR(q->x),
        .up = RDK_ADDR(q->up),
        .norm_weight = RDK_ADDR(q->norm_weight),
        .w_scale = RDK_ADDR(g->w_scale),
        .bias = RDK_ADDR(g->bias),
        .c = RDK_ADDR(g->c),
        .partials = RDK_ADDR(ws),
        .soon = RDK_ADDR(g->soon),
        .x_stride = q->x_stride,
        .up_stride = q->up_stride,
        .w_scale_stride_n = g->w_scale_stride_n,
        .w_scale_stride_k = g->w_scale_stride_k,
        .c_stride = g->c_stride,
        .soon_bytes = g->soon_bytes,
        .m = (int32_t)g->m,
        .n = (int32_t)g->n,
        .k = (int32_t)g->k,
        .k_blocks = (int32_t)cut->k_blocks,
        .ranges = cut->pairs,
        .range_units = (int32_t)(cut->units / cut->pairs),
        .range_rest = (int32_t)(cut->units % cut->pairs),
        .x_type = rdk_type_code(q->x_dtype),
        .up_type = rdk_type_code(q->up_dtype),
        .norm_type = rdk_type_code(q->norm_dtype),
        .w_scale_e8m0 = g->w_scale_dtype == RD_DTYPE_E8M0,
        .bias_type = rdk_type_code(g->bias_dtype),
        .c_type = rdk_type_code(g->c_dtype),
        .accumulate = a->accumulate,
        .eps = q->eps,
        .weight_offset = q->unit_offset ? 1.0f : 0.0f,
    };
    const int32_t run = kernel.range_units + (kernel.range_rest > 0);
    kernel.slots = q->fuse == RDI_FUSE_RMSNORM ? kernel.k_blocks : (int32_t)rdi_min(run, kernel.k_blocks);
    return kernel;
}

int32_t rdi_quant_gemm_sm90a_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    const rdi_quant_gemm_args *a = args;
    if (!operands_fit(a)) return 0;
    const rdi_sm90a_step_cut cut = rdi_sm90a_cut_step(&a->gemm, device->compute_units);
    rdk_quant_gemm_sm90a_args kernel = kernel_args(a, &cut, ws);
    const int32_t fixed = rdk_quant_gemm_fixed_bytes(tokens_of(a->gemm.m), cut.rows, kernel.slots, kernel.range_units + 1),
                  stage = rdk_quant_gemm_stage_bytes(cut.rows);
    kernel.stages = (int32_t)rdi_min((BLOCK_BYTES - fixed) / stage, MOST_STAGES);
    kernel.ahead = AHEAD_BYTES / (cut.rows * RDK_K_BLOCK);
    kernel.trigger = 1;
    if (kernel.stages < 2) {
        rdi_fail(RD_E_INVALID, "%s: k=%lld, needs fewer than %d bytes of codes a block", op, (long long)a->gemm.k,
                 BLOCK_BYTES - 2 * stage);
        return 0;
    }
    rdi_launch_fill(out, kernel_name(a, cut.rows), (const uint32_t[3]){(uint32_t)(2 * cut.pairs), 1, 1},
                    (uint32_t)(cut.rows / 64 * 128 + 32), &kernel, sizeof kernel);
    out->shared_bytes = (uint32_t)(fixed + kernel.stages * stage);
    out->dependent = true;
    out->map_count = 1;
    out->map[0] = rdi_sm90a_byte_map(offsetof(rdk_quant_gemm_sm90a_args, w_map), a->gemm.w, a->gemm.n, a->gemm.k,
                                     a->gemm.w_stride, cut.rows);
    return 1;
}
