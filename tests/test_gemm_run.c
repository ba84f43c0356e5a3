// SPDX-License-Identifier: Apache-2.0
// labels: threads
// rd_gemm_run and rd_weight_pack through the public header: a right call, and every wrong argument refused by its name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "radiance.h"

#include <stdlib.h>
#include <string.h>

enum { M = 2, N = 32, K = 160, BLOCKS = 2 };
static uint8_t a[M * K], w[N * (K + 8)], packed_room[1 << 16] __attribute__((aligned(64)));
static uint16_t a16[M * K], w16[N * K];
static float a_scale[M * BLOCKS], w_scale[BLOCKS], bias[N], c[M * (N + 4)];
static uint8_t ws[1 << 16] __attribute__((aligned(64)));
static rd_ctx *ctx;

static rd_plan *plan_of(const char *op, const char *layout) {
    rd_param params[] = {RD_INT("n", N),
                         RD_INT("k", K),
                         RD_WORD("a_dtype", strcmp(op, "gemm_fp8block") ? "bf16" : "fp8_e4m3"),
                         RD_WORD("c_dtype", "fp32"),
                         RD_WORD("layout", layout),
                         RD_WORD("w_scale_dtype", "fp32")};
    rd_plan *plan = NULL;
    int count = strcmp(op, "gemm_bf16") ? 6 : 5;
    assert_int_equal(rd_plan_create(ctx, op, params, count, 1, 8, &plan), RD_OK);
    return plan;
}

static rd_gemm_args good_args(void) {
    rd_gemm_args args = {.struct_size = sizeof args,
                         .a = rd_tensor_2d(a, RD_DTYPE_E4M3, M, K),
                         .a_scale = rd_tensor_2d(a_scale, RD_DTYPE_F32, M, BLOCKS),
                         .w = rd_tensor_2d(w, RD_DTYPE_E4M3, N, K),
                         .w_scale = rd_tensor_2d(w_scale, RD_DTYPE_F32, 1, BLOCKS),
                         .c = rd_tensor_2d(c, RD_DTYPE_F32, M, N)};
    return args;
}

static rd_status run(const rd_plan *plan, const rd_gemm_args *args) {
    size_t bytes = 0;
    rd_status status = rd_gemm_run(plan, args, NULL, &bytes, NULL);
    if (status != RD_OK) return status;
    assert_true(bytes <= sizeof ws);
    bytes = sizeof ws;
    return rd_gemm_run(plan, args, ws, &bytes, NULL);
}

// 0x38 is 1.0: every output is K * 0.5 * 2 = 160, with and without a layout, padded rows and bias.
static void test_gemm_run_gives_the_sum(void **state) {
    (void)state;
    for (int layout = 0; layout < 4; layout++) {
        const char *words[] = {"row", "shuffle16", "panel16", "tile64"};
        rd_plan *plan = plan_of("gemm_fp8block", words[layout]);
        rd_gemm_args args = good_args();
        args.w.stride[0] = K + 8;
        if (layout) {
            rd_tensor packed = {0};
            assert_int_equal(rd_weight_pack(ctx, &args.w, words[layout], &packed), RD_OK);
            assert_true((size_t)(packed.shape[0] * packed.shape[1]) <= sizeof packed_room);
            packed.data = packed_room;
            assert_int_equal(rd_weight_pack(ctx, &args.w, words[layout], &packed), RD_OK);
            args.w = packed;
        }
        args.c.stride[0] = N + 4;
        args.bias = rd_tensor_1d(bias, RD_DTYPE_F32, N);
        memset(c, 0x7f, sizeof c);
        assert_int_equal(run(plan, &args), RD_OK);
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) assert_true(c[m * (N + 4) + n] == 160.0f + (float)n);
        rd_plan_free(plan);
    }
}

typedef struct wrong_case {
    void (*spoil)(rd_gemm_args *args);
    const char *text; // what the error must hold
} wrong_case;
#define SPOIL(name_, statement_)                                                                             \
    static void name_(rd_gemm_args *args) {                                                                  \
        statement_;                                                                                          \
    }
SPOIL(no_a, args->a.data = NULL)
SPOIL(a_type, args->a.dtype = RD_DTYPE_BF16)
SPOIL(a_rank, args->a.rank = 3)
SPOIL(a_column_stride, args->a.stride[1] = 2)
SPOIL(a_device, args->a.device = 3)
SPOIL(k_differs, args->a.shape[1] = 128)
SPOIL(m_outside, args->a.shape[0] = args->c.shape[0] = 9; args->a_scale.shape[0] = 9)
SPOIL(m_zero, args->a.shape[0] = 0)
SPOIL(no_a_scale, args->a_scale.data = NULL)
SPOIL(a_scale_rows, args->a_scale.shape[0] = 1)
SPOIL(a_scale_blocks, args->a_scale.shape[1] = 1)
SPOIL(w_rows, args->w.shape[0] = 16)
SPOIL(w_stride, args->w.stride[0] = K - 1)
SPOIL(w_type, args->w.dtype = RD_DTYPE_E5M2)
SPOIL(w_scale_blocks, args->w_scale.shape[1] = 3)
SPOIL(w_scale_type, args->w_scale.dtype = RD_DTYPE_BF16)
SPOIL(c_rows, args->c.shape[0] = 1)
SPOIL(c_stride, args->c.stride[0] = N - 1)
SPOIL(c_type, args->c.dtype = RD_DTYPE_E4M3)
SPOIL(c_unaligned, args->c.data = (uint8_t *)c + 1)
SPOIL(bias_length, args->bias = rd_tensor_1d(bias, RD_DTYPE_F32, N - 1))
SPOIL(bias_type, args->bias = rd_tensor_1d(bias, RD_DTYPE_F16, N))
SPOIL(struct_size, args->struct_size = 8)

static void test_gemm_run_names_wrong_arguments(void **state) {
    (void)state;
    static const wrong_case cases[] = {
        {no_a, "gemm_fp8block: a: "},
        {a_type, "a: dtype=bf16"},
        {a_rank, "a: rank=3, needs 2"},
        {a_column_stride, "a: stride[1]=2, needs 1"},
        {a_device, "a: device=3, needs 0"},
        {k_differs, "k=128, the plan was made for 160"},
        {m_outside, "m=9"},
        {m_zero, "a: shape[0]=0, needs >= 1"},
        {no_a_scale, "a_scale: "},
        {a_scale_rows, "a_scale: shape[0]=1, needs 2"},
        {a_scale_blocks, "a_scale: shape[1]=1, needs 2"},
        {w_rows, "w: shape[0]=16, needs 32"},
        {w_stride, "w: stride[0]=159, needs >= 160"},
        {w_type, "w: dtype=fp8_e5m2"},
        {w_scale_blocks, "w_scale: shape[1]=3, needs 2"},
        {w_scale_type, "w_scale: dtype=bf16"},
        {c_rows, "c: shape[0]=1, needs 2"},
        {c_stride, "c: stride[0]=31, needs >= 32"},
        {c_type, "c: dtype=fp8_e4m3"},
        {c_unaligned, "needs 4-byte alignment"},
        {bias_length, "bias: shape[0]=31, needs 32"},
        {bias_type, "bias: dtype=fp16, needs one of: fp32 bf16"},
        {struct_size, "struct_size=8"},
    };
    rd_plan *plan = plan_of("gemm_fp8block", "row");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rd_gemm_args args = good_args();
        cases[i].spoil(&args);
        assert_int_equal(run(plan, &args), RD_E_INVALID);
        if (!strstr(rd_error_text(), cases[i].text))
            fail_msg("error \"%s\" lacks \"%s\"", rd_error_text(), cases[i].text);
    }
    rd_gemm_args args = good_args();
    size_t bytes = 1;
    assert_int_equal(rd_gemm_run(plan, &args, ws, &bytes, NULL), RD_E_INVALID); // workspace too small
    assert_int_equal(rd_gemm_run(NULL, &args, ws, &bytes, NULL), RD_E_INVALID);
    rd_plan_free(plan);
}

static void test_gemm_run_refuses_a_packed_weight_of_other_size(void **state) {
    (void)state;
    rd_plan *plan = plan_of("gemm_fp8block", "panel16");
    rd_gemm_args args = good_args(); // row-major weight where panels are due
    assert_int_equal(run(plan, &args), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "w: shape[0]=32, needs 2"));
    rd_plan_free(plan);
}

static void test_weight_pack_names_wrong_arguments(void **state) {
    (void)state;
    rd_tensor good = rd_tensor_2d(w, RD_DTYPE_E4M3, N, K), packed = {0}, bad;
    assert_int_equal(rd_weight_pack(ctx, &good, "panel8", &packed), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "layout=panel8, needs one of: shuffle16 panel16 tile64"));
    bad = rd_tensor_2d(w, RD_DTYPE_E4M3, 24, K);
    assert_int_equal(rd_weight_pack(ctx, &bad, "shuffle16", &packed), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "n=24, shuffle16 needs a multiple of 16"));
    bad = rd_tensor_2d(w, RD_DTYPE_E4M3, N, 40);
    assert_int_equal(rd_weight_pack(ctx, &bad, "shuffle16", &packed), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "k=40, shuffle16 needs a multiple of 32"));
    bad = rd_tensor_2d(w16, RD_DTYPE_BF16, N, K);
    assert_int_equal(rd_weight_pack(ctx, &bad, "shuffle16", &packed), RD_E_INVALID);
    bad = good, bad.dtype = RD_DTYPE_F16;
    assert_int_equal(rd_weight_pack(ctx, &bad, "panel16", &packed), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "w: dtype=fp16"));
    bad = good, bad.stride[0] = K - 1;
    assert_int_equal(rd_weight_pack(ctx, &bad, "panel16", &packed), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "w: stride[0]=159, needs >= 160"));
    packed = rd_tensor_2d(packed_room, RD_DTYPE_E4M3, 2, 100);
    assert_int_equal(rd_weight_pack(ctx, &good, "panel16", &packed), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "packed: shape[1]=100, needs "));
    assert_int_equal(rd_weight_pack(ctx, NULL, "panel16", &packed), RD_E_INVALID);
}

static void test_gemm_run_takes_the_other_two_ops(void **state) {
    (void)state;
    const char *ops[] = {"gemm_fp8block_w8a16", "gemm_bf16"};
    for (int op = 0; op < 2; op++) {
        rd_plan *plan = plan_of(ops[op], "row");
        rd_gemm_args args = good_args();
        args.a = rd_tensor_2d(a16, RD_DTYPE_BF16, M, K);
        if (op)
            args.w = rd_tensor_2d(w16, RD_DTYPE_BF16, N, K);
        else
            args.w.stride[0] = K + 8;
        assert_int_equal(run(plan, &args), RD_OK);
        for (int i = 0; i < M * N; i++)
            assert_true(c[i] == (op ? 160.0f : 80.0f)); // w_scale 0.5, none for bf16
        rd_plan_free(plan);
    }
}

int main(void) {
    memset(a, 0x38, sizeof a);
    memset(w, 0x38, sizeof w);
    for (int i = 0; i < M * K; i++) a16[i] = 0x3f80;
    for (int i = 0; i < N * K; i++) w16[i] = 0x3f80;
    for (int i = 0; i < M * BLOCKS; i++) a_scale[i] = 2.0f;
    for (int i = 0; i < BLOCKS; i++) w_scale[i] = 0.5f;
    for (int i = 0; i < N; i++) bias[i] = (float)i;
    rd_ctx_options options = {.struct_size = sizeof options, .threads = 2};
    if (rd_ctx_create(&options, &ctx)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_run_gives_the_sum),
        cmocka_unit_test(test_gemm_run_names_wrong_arguments),
        cmocka_unit_test(test_gemm_run_refuses_a_packed_weight_of_other_size),
        cmocka_unit_test(test_weight_pack_names_wrong_arguments),
        cmocka_unit_test(test_gemm_run_takes_the_other_two_ops),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rd_ctx_free(ctx);
    return failed;
}
