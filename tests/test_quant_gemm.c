// SPDX-License-Identifier: Apache-2.0
// quant_gemm_fp8block: the reference row is its two halves in sequence, through the public header values follow the formula and
// what does not fit is refused; and the sm_90a row's launches without a card: which kernel, and that a block's shared memory holds
// its ring and the codes of every k block that its run meets.
#include "rows.h"

#include "kernels/quant_fp8/quant_gemm.h"
#include "kernels/quant_fp8/sm90a_quant_gemm.h"
#include "kernels/rows.h"
#include "radiance.h"
#include "support/gemm_args.h"

#include <math.h>

enum { M = 3, N = 40, K = 300, GROUPS = 3 };
typedef struct operands {
    float x[M * K], up[M * K], norm[K], w_scale[GROUPS], c[M * N];
    uint8_t w[N * K];
} operands;

static void fill(operands *o, uint64_t *state) {
    for (int i = 0; i < M * K; i++) o->x[i] = (float)random_unit(state) * 4, o->up[i] = (float)random_unit(state);
    for (int i = 0; i < K; i++) o->norm[i] = (float)random_unit(state);
    for (int i = 0; i < GROUPS; i++) o->w_scale[i] = (float)(i + 1) * 0.01f;
    for (int i = 0; i < N * K; i++) o->w[i] = (uint8_t)(random_next(state) % 0x7f | random_next(state) % 2 << 7);
    for (int i = 0; i < M * N; i++) o->c[i] = (float)random_unit(state);
}

static rdi_quant_gemm_args kernel_args(operands *o, rdi_quant_fuse fuse, bool accumulate) {
    return (rdi_quant_gemm_args){.quant = {.m = M, .k = K, .x = o->x, .up = o->up, .norm_weight = o->norm, .x_stride = K, .up_stride = K,
                                           .x_dtype = RD_DTYPE_F32, .up_dtype = RD_DTYPE_F32, .norm_dtype = RD_DTYPE_F32,
                                           .eps = 1e-5f, .fuse = fuse},
                                 .gemm = {.m = M, .n = N, .k = K, .w = o->w, .w_stride = K, .w_scale = o->w_scale,
                                          .w_scale_stride_n = GROUPS, .w_scale_stride_k = 1, .c = o->c, .c_stride = N,
                                          .w_dtype = RD_DTYPE_E4M3, .w_scale_dtype = RD_DTYPE_F32, .c_dtype = RD_DTYPE_F32},
                                 .accumulate = accumulate};
}

static void reference_case(rdi_quant_fuse fuse, bool accumulate, uint64_t *state) {
    static operands got, want;
    fill(&got, state);
    want = got;
    uint8_t codes[M * K];
    float scales[M * GROUPS], product[M * N];
    rdi_quant_gemm_args a = kernel_args(&want, fuse, false);
    a.quant.q = codes, a.quant.q_stride = K;
    a.quant.q_scale = scales, a.quant.q_scale_stride_m = GROUPS, a.quant.q_scale_stride_k = 1;
    rdk_quant_fp8_cpu_ref(&a.quant, NULL, NULL);
    a.gemm.a = codes, a.gemm.a_dtype = RD_DTYPE_E4M3, a.gemm.a_stride = K;
    a.gemm.a_scale = scales, a.gemm.a_scale_stride_m = GROUPS, a.gemm.a_scale_stride_k = 1;
    a.gemm.c = product;
    rdk_gemm_fp8block_any_cpu_ref(&a.gemm, NULL, NULL);
    for (int i = 0; i < M * N; i++) want.c[i] = accumulate ? want.c[i] + product[i] : product[i];
    const rdi_quant_gemm_args both = kernel_args(&got, fuse, accumulate);
    void *ws = malloc(rdi_quant_gemm_ref_ws(&both, 1));
    assert_non_null(ws);
    rdk_quant_gemm_fp8block_cpu_ref(&both, ws, NULL);
    free(ws);
    assert_memory_equal(got.c, want.c, sizeof want.c);
}

static void test_reference_is_the_two_halves(void **unused) {
    (void)unused;
    uint64_t state = fresh_seed("quant_gemm_fp8block");
    for (int i = 0; i < 8; i++)
        reference_case((const rdi_quant_fuse[]){RDI_FUSE_NONE, RDI_FUSE_RMSNORM, RDI_FUSE_SILU_MUL, RDI_FUSE_GELU_MUL}[i / 2],
                       i % 2, &state);
}

// ---- through the public header -----------------------------------------------------------------------------------------
static void refused(rd_status status, const char *text) {
    if (status != RD_E_INVALID || !strstr(rd_error_text(), text))
        fail_msg("status %d: \"%s\", wanted \"%s\"", status, rd_error_text(), text);
}

static void test_run(void **unused) {
    (void)unused;
    rd_ctx *ctx = NULL;
    rd_plan *plan = NULL;
    const rd_param params[] = {RD_INT("n", 2),           RD_INT("k", 4),
                               RD_WORD("x_dtype", "fp32"), RD_WORD("fuse", "silu_mul"),
                               RD_WORD("w_scale_dtype", "fp32"), RD_WORD("c_dtype", "fp32"),
                               RD_WORD("layout", "row"), RD_INT("accumulate", 1)};
    assert_int_equal(rd_ctx_create(NULL, &ctx), RD_OK);
    assert_int_equal(rd_plan_create(ctx, "quant_gemm_fp8block", params, RDI_COUNT(params), 1, 4, &plan), RD_OK);
    // silu(0) = 0 and the other two products of one group are equal: both become the code of 448.
    float x[4] = {2, 0, 2, 0}, up[4] = {3, 5, 3, 7}, scale[1] = {0.5f}, c[2] = {10, 20};
    _Alignas(16) uint8_t w[8] = {0x38, 0x38, 0x38, 0x38, 0xb8, 0x40, 0x40, 0x38}; // 1 1 1 1, -1 2 2 1
    rd_quant_args quant = {.struct_size = sizeof quant,
                           .x = rd_tensor_2d(x, RD_DTYPE_F32, 1, 4),
                           .up = rd_tensor_2d(up, RD_DTYPE_F32, 1, 4)};
    rd_gemm_args gemm = {.struct_size = sizeof gemm,
                         .w = rd_tensor_2d(w, RD_DTYPE_E4M3, 2, 4),
                         .w_scale = rd_tensor_2d(scale, RD_DTYPE_F32, 1, 1),
                         .c = rd_tensor_2d(c, RD_DTYPE_F32, 1, 2)};
    size_t bytes = 0;
    assert_int_equal(rd_quant_gemm_run(plan, &quant, &gemm, NULL, &bytes, NULL), RD_OK);
    void *ws = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(ws);
    gemm.a = quant.x;
    refused(rd_quant_gemm_run(plan, &quant, &gemm, ws, &bytes, NULL), "quant_gemm_fp8block: a is given");
    gemm.a.data = NULL;
    quant.q = gemm.w;
    refused(rd_quant_gemm_run(plan, &quant, &gemm, ws, &bytes, NULL), "quant_gemm_fp8block: q is given");
    quant.q.data = NULL;
    gemm.c.dtype = RD_DTYPE_BF16;
    refused(rd_quant_gemm_run(plan, &quant, &gemm, ws, &bytes, NULL), "quant_gemm_fp8block: c: dtype=bf16");
    gemm.c.dtype = RD_DTYPE_F32;
    gemm.soon = rd_tensor_1d(w + 1, RD_DTYPE_E4M3, 4);
    refused(rd_quant_gemm_run(plan, &quant, &gemm, ws, &bytes, NULL), "quant_gemm_fp8block: soon: data=");
    gemm.soon.data = NULL;
    refused(rd_quant_gemm_run(plan, NULL, &gemm, ws, &bytes, NULL), "quant_gemm_fp8block: args=NULL");
    refused(rd_quant_gemm_run(plan, &quant, NULL, ws, &bytes, NULL), "quant_gemm_fp8block: args=NULL");
    assert_true(c[0] == 10 && c[1] == 20); // nothing was written
    assert_int_equal(rd_quant_gemm_run(plan, &quant, &gemm, ws, &bytes, NULL), RD_OK);
    const double y = 2 / (1 + exp(-2.0)) * 3;
    assert_true(fabs((double)c[0] - (10 + 0.5 * 2 * y)) < 1e-5);
    assert_true(fabs((double)c[1] - (20 + 0.5 * y)) < 1e-5);
    free(ws);
    rd_plan_free(plan);
    rd_ctx_free(ctx);
}

// ---- the launches on sm_90a ----------------------------------------------------------------------------------------------
static const rd_device_info h200 = {.compute_units = 132};

static rdi_quant_gemm_args card_args(int64_t m, int64_t n, int64_t k, rdi_quant_fuse fuse) {
    rdi_quant_gemm_args a = {.gemm = gemm_args(m, n, k, RD_DTYPE_NONE, RD_DTYPE_E4M3), .accumulate = true};
    a.gemm.a = NULL;
    a.quant = (rdi_quant_args){.m = m, .k = k, .x = (void *)4096, .up = (void *)4096, .norm_weight = (void *)4096, .x_stride = k,
                               .up_stride = k, .x_dtype = RD_DTYPE_BF16, .up_dtype = RD_DTYPE_BF16, .norm_dtype = RD_DTYPE_F32,
                               .fuse = fuse};
    return a;
}

static void test_launches(void **unused) {
    (void)unused;
    static const struct {
        int64_t m, n, k;
        rdi_quant_fuse fuse;
        const char *kernel;
        int32_t slots, threads;
    } cases[] = {
        // 56 pairs of tiles by 40 k blocks over 66 pairs of blocks are 34 units at most, all 40 k blocks for the norm
        {1, 7168, 5120, RDI_FUSE_RMSNORM, "rdk_quant_gemm_fp8block_norm_step_sm90a_t1_r64", 40, 160},
        {2, 51200, 5120, RDI_FUSE_RMSNORM, "rdk_quant_gemm_fp8block_norm_step_sm90a_t2_r128", 40, 288},
        {1, 5120, 5120, RDI_FUSE_NONE, "rdk_quant_gemm_fp8block_step_sm90a_none_t1_r64", 25, 160},
        {1, 5120, 25600, RDI_FUSE_SILU_MUL, "rdk_quant_gemm_fp8block_step_sm90a_silu_t1_r64", 122, 160},
        {2, 51200, 256, RDI_FUSE_NONE, "rdk_quant_gemm_fp8block_step_sm90a_none_t2_r128", 2, 288},
        {1, 32, 16, RDI_FUSE_NONE, "rdk_quant_gemm_fp8block_step_sm90a_none_t1_r64", 1, 160},
        {2, 512, 28672, RDI_FUSE_SILU_MUL, "rdk_quant_gemm_fp8block_step_sm90a_silu_t2_r64", 14, 160},
        {2, 131072, 28672, RDI_FUSE_SILU_MUL, "rdk_quant_gemm_fp8block_step_sm90a_silu_t2_r128", 224, 288}};
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        const rdi_quant_gemm_args a = card_args(cases[i].m, cases[i].n, cases[i].k, cases[i].fuse);
        rdi_launch out[RDI_MAX_LAUNCHES];
        rdk_quant_gemm_sm90a_args args;
        assert_int_equal(rdi_quant_gemm_sm90a_geometry(&a, (void *)64, &h200, out), 1);
        assert_string_equal(out[0].kernel, cases[i].kernel);
        assert_int_equal(out[0].args_bytes, sizeof args);
        memcpy(&args, out[0].args, sizeof args);
        assert_int_equal(args.slots, cases[i].slots);
        assert_int_equal(out[0].block[0], cases[i].threads);
        assert_int_equal(out[0].grid[0], 132);
        const int rows = cases[i].threads == 288 ? 128 : 64;
        assert_true(args.slots >= args.k_blocks || args.slots >= args.range_units + (args.range_rest > 0));
        assert_true(args.stages >= 2 && out[0].shared_bytes <= 113 * 1024); // two blocks a multiprocessor
        assert_int_equal(out[0].shared_bytes, rdk_quant_gemm_fixed_bytes((int)cases[i].m, rows, args.slots, args.range_units + 1) +
                                                  args.stages * rdk_quant_gemm_stage_bytes(rows));
        assert_int_equal(out[0].map[0].box[1], rows);
        // Partial sums as the plain step GEMM of eight tokens leaves them.
        assert_int_equal(rdi_quant_gemm_sm90a_ws(&a, 132), rdi_gemm_step_sm90a_ws(&a.gemm, 132));
    }
}

static void test_refused_operands(void **unused) {
    (void)unused;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_quant_gemm_args a = card_args(1, 512, 512, RDI_FUSE_SILU_MUL);
    a.gemm.w_stride = 520;
    assert_int_equal(rdi_quant_gemm_sm90a_geometry(&a, NULL, &h200, out), 0);
    assert_non_null(strstr(rd_error_text(), "quant_gemm_fp8block: w: data="));
    a = card_args(1, 512, 512, RDI_FUSE_SILU_MUL);
    a.quant.up_dtype = RD_DTYPE_E4M3;
    assert_int_equal(rdi_quant_gemm_sm90a_geometry(&a, NULL, &h200, out), 0);
    assert_non_null(strstr(rd_error_text(), "quant_gemm_fp8block: up: dtype=fp8_e4m3"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_is_the_two_halves),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_refused_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
