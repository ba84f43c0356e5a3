// SPDX-License-Identifier: Apache-2.0
// Questions, explain, select, selections and the report over a table of known rows.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "registry_table.h"

// ---- questions -------------------------------------------------------------------------------------------------------------
static void refuse(const char *op, const rd_param *params, int32_t count, const char *text) {
    rd_device *device = NULL;
    assert_int_equal(rd_device_open("r9700-gfx1201", &device), RD_OK);
    int32_t rows_out = 0;
    assert_int_equal(rdi_ctx_explain(table, device, op, params, count, NULL, &rows_out), RD_E_INVALID);
    assert_string_equal(rd_error_text(), text);
    rd_device_close(device);
}

// Bug case 30: the known registries take each of these for an answerable question.
static void test_query_bug_30_refuses_bad_questions_by_name(void **state) {
    (void)state;
#define KEYS "m n k a_dtype w_scale_dtype c_dtype layout bias order"
    const struct {
        rd_param param;
        const char *text;
    } cases[] = {
        {RD_INT("kk", 1), "gemm_fp8block: unknown key kk, the op has: " KEYS},
        {RD_INT("k_blocks", 1), "gemm_fp8block: k_blocks is computed (ceil(k / 128)), give one of: " KEYS},
        {RD_INT("m", 0), "gemm_fp8block: m=0, needs 1 to 2147483647"},
        {RD_INT("k", -128), "gemm_fp8block: k=-128, needs 1 to 2147483647"},
        {RD_INT("n", INT64_MAX), "gemm_fp8block: n=9223372036854775807, needs 1 to 2147483647"},
        {RD_INT("bias", 2), "gemm_fp8block: bias=2, needs 0 to 1"},
        {RD_WORD("k", "128"), "gemm_fp8block: k=\"128\" is text, needs a whole number"},
        {RD_WORD("k", NULL), "gemm_fp8block: k=\"\" is text, needs a whole number"},
        {RD_INT("layout", 3),
         "gemm_fp8block: layout=3 is a number, needs one of: row shuffle16 panel16 tile64"},
        {RD_WORD("layout", "col"), "gemm_fp8block: layout=col, needs one of: row shuffle16 panel16 tile64"},
        {RD_WORD("layout", ""), "gemm_fp8block: layout=, needs one of: row shuffle16 panel16 tile64"},
        {RD_WORD("a_dtype", "i32"),
         "gemm_fp8block: a_dtype=i32, needs one of: fp32 bf16 fp16 fp8_e4m3 fp8_e5m2 e8m0"},
        {RD_WORD("a_dtype", "torch.float8_e4m3fnuz"),
         "gemm_fp8block: a_dtype=torch.float8_e4m3fnuz is a different type (exponent bias 8, not 7), needs "
         "one of: fp32 "
         "bf16 fp16 fp8_e4m3 fp8_e5m2 e8m0 i32 i64 u8"},
        {{NULL, RD_PARAM_INT, 1, NULL}, "gemm_fp8block: params[0] has no key"},
    };
    for (size_t i = 0; i < RDI_COUNT(cases); i++) refuse("gemm_fp8block", &cases[i].param, 1, cases[i].text);
    const rd_param twice[] = {RD_INT("m", 1), RD_INT("M", 1)};
    refuse("gemm_fp8block", twice, 2, "gemm_fp8block: m is given twice");
    refuse("gemm_fp8block", NULL, 1, "gemm_fp8block: params=NULL with count=1, needs a list");
    // A ratio of heads that is no whole number reaches C as text; 13/2 must not become 6.
    const rd_param ratio[] = {RD_WORD("gqa", "6.5")};
    refuse("attn_decode", ratio, 1, "attn_decode: gqa=\"6.5\" is text, needs a whole number");
    rd_ctx *ctx = open_ctx("x86-avx512");
    const rd_kernel_info *kernel;
    assert_int_equal(rd_kernel_select(ctx, "gemm", NULL, 0, &kernel), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "unknown op gemm, known: gemm_fp8block gemm_fp8block_w8a16"));
    assert_int_equal(rd_kernel_select(ctx, NULL, NULL, 0, &kernel), RD_E_INVALID);
    rd_selection selection; // a refused question is no question
    assert_int_equal(rd_selection_at(ctx, 0, &selection), RD_E_LIMIT);
    rd_ctx_free(ctx);
}

// ---- explain ---------------------------------------------------------------------------------------------------------------
static void check_verdicts(const char *device_name, const char *op, const rd_param *params, int32_t count,
                           const char *expected) {
    rd_device *device = NULL;
    assert_int_equal(rd_device_open(device_name, &device), RD_OK);
    rd_verdict verdicts[16];
    int32_t rows_out = 16;
    assert_int_equal(rdi_ctx_explain(table, device, op, params, count, verdicts, &rows_out), RD_OK);
    char text[2048] = "";
    for (int32_t i = 0; i < rows_out; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s: %s\n", verdicts[i].chosen ? "> " : "",
                 verdicts[i].kernel->name, verdicts[i].reason);
        assert_int_equal(verdicts[i].ok, !strncmp(verdicts[i].reason, "ok", 2));
    }
    assert_string_equal(text, expected);
    rd_device_close(device);
}

static void test_explain_gives_first_failing_constraint(void **state) {
    (void)state;
    const rd_param ragged[] = {RD_INT("m", 9), RD_INT("k", 100), RD_WORD("a_dtype", "fp8")};
    check_verdicts("x86-avx512", "gemm_fp8block", ragged, 3,
                   "gemm_fp8block_m8_cpu_avx512: m=9, needs <= 8\n"
                   "gemm_fp8block_any_cpu_avx2: k=100, needs a multiple of 128\n"
                   "> gemm_fp8block_any_cpu_ref: ok\n");
    const rd_param half[] = {RD_INT("m", 1), RD_WORD("a_dtype", "bf16")};
    check_verdicts("x86-avx2", "gemm_fp8block", half, 2,
                   "gemm_fp8block_m8_cpu_avx512: isa=avx2, needs avx512\n"
                   "gemm_fp8block_any_cpu_avx2: a_dtype=bf16, needs one of: fp8_e4m3\n"
                   "gemm_fp8block_any_cpu_ref: a_dtype=bf16, needs one of: fp8_e4m3\n");
    const rd_param some[] = {RD_INT("m", 1), RD_INT("k", 128), RD_WORD("a_dtype", "fp8")};
    check_verdicts("x86-avx512", "gemm_fp8block", some, 3,
                   "> gemm_fp8block_m8_cpu_avx512: ok\n"
                   "gemm_fp8block_any_cpu_avx2: ok, not chosen: row order\n"
                   "gemm_fp8block_any_cpu_ref: ok, not chosen: row order\n");
    check_verdicts("h200-sm90a", "gemm_fp8block", some, 3, "");
    const rd_param eight[] = {RD_INT("gqa", 8), RD_INT("q_len", 1)};
    check_verdicts("r9700-gfx1201", "attn_decode", eight, 2, "attn_decode_amd_gfx1201: gqa=8, needs == 6\n");
    check_verdicts("x86-avx2", "attn_decode", eight, 2, "attn_decode_any_cpu_ref: head_dim not given\n");
    const rd_param six[] = {RD_INT("gqa", 6)};
    check_verdicts("r9700-gfx1201", "attn_decode", six, 1, "attn_decode_amd_gfx1201: rows not given\n");
}

// The device whose answers judge all others runs nothing else.
static void test_explain_reference_rows_alone(void **state) {
    (void)state;
    const rd_param some[] = {RD_INT("m", 1), RD_INT("k", 128), RD_WORD("a_dtype", "fp8")};
    check_verdicts("cpu:double", "gemm_fp8block", some, 3,
                   "gemm_fp8block_m8_cpu_avx512: device=cpu:double runs reference rows alone\n"
                   "gemm_fp8block_any_cpu_avx2: device=cpu:double runs reference rows alone\n"
                   "> gemm_fp8block_any_cpu_ref: ok\n");
}

#define OTHER "ok, not chosen: row order"
// A one-token prefill (bug case 16) asks for class chunk and gets it; a question without the word gets either; a device
// without rows of the class answers with the one that it has.
static void test_explain_order_class(void **state) {
    (void)state;
    static rdi_row classes[] = {
        ROW("gemm_fp8block_step_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, m8),
        ROW("gemm_fp8block_chunk_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, all),
        ROW("gemm_fp8block_both_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, all),
        ROW("gemm_fp8block_any_cpu_ref", "gemm_fp8block", CPU, "cpu", 0, 1, all)};
    classes[0].info.order = "step", classes[1].info.order = "chunk", classes[2].info.order = "any";
    static const struct {
        const char *device, *order;
        int64_t m;
        const char *expected[3]; // reasons; NULL: the row of another backend is not asked
    } cases[] = {
        {"r9700-gfx1201", "chunk", 1, {"order=chunk, its class is step", "ok", OTHER}},
        {"r9700-gfx1201", "step", 1, {"ok", "order=step, its class is chunk", OTHER}},
        {"r9700-gfx1201", "step", 9, {"m=9, needs <= 8", "order=step, its class is chunk", "ok"}},
        {"r9700-gfx1201", "any", 1, {"ok", OTHER, OTHER}},
        {"r9700-gfx1201", "class", 9, {"m=9, needs <= 8", "ok", OTHER}},
        {"x86-avx2", "chunk", 1, {"ok"}},
        {"x86-avx2", "step", 900, {"ok"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rd_device *device = NULL;
        rd_verdict verdicts[4];
        int32_t count = 4;
        const rd_param params[] = {RD_INT("m", cases[i].m), RD_INT("k", 128), RD_WORD("a_dtype", "fp8"),
                                   RD_WORD("order", cases[i].order)};
        assert_int_equal(rd_device_open(cases[i].device, &device), RD_OK);
        assert_int_equal(rdi_ctx_explain((rdi_table){classes, 4, false}, device, "gemm_fp8block", params, 4,
                                         verdicts, &count),
                         RD_OK);
        assert_int_equal(count, cases[i].expected[1] ? 3 : 1);
        for (int32_t at = 0; at < count; at++)
            assert_string_equal(verdicts[at].reason, cases[i].expected[at]);
        rd_device_close(device);
    }
}

// A check at first use takes rows out of a card's table. With all rows of a class gone, a question that insists on the class is
// refused, by the name of one of them; a table that never had the class answers with what it has.
static const char *plan_on(rd_ctx *ctx, const char *layout, const char *order) {
    const rd_param params[] = {RD_INT("n", 256),           RD_INT("k", 512),
                               RD_WORD("a_dtype", "fp8"),  RD_WORD("w_scale_dtype", "fp32"),
                               RD_WORD("c_dtype", "bf16"), RD_WORD("layout", layout),
                               RD_INT("bias", 0),          RD_WORD("order", order)};
    rd_plan *plan = NULL;
    if (rd_plan_create(ctx, "gemm_fp8block", params, 8, 1, 8, &plan)) {
        assert_null(plan);
        return rd_error_text();
    }
    const char *name = rd_plan_kernel(plan, 1)->name;
    rd_plan_free(plan);
    return name;
}
static int32_t rows_without(const char *op, const char *order, const char *kept, rdi_row *left) {
    int32_t count = 0;
    for (int32_t i = 0; i < rdi_row_count; i++) {
        const rd_kernel_info *info = &rdi_rows[i].info;
        if (strcmp(info->op, op) != 0 || (order && strcmp(info->order, order) != 0) ||
            (kept && !strcmp(info->name, kept)))
            left[count++] = rdi_rows[i];
    }
    assert_true(count < rdi_row_count);
    return count;
}
static void test_rows_taken_out_are_no_other_class(void **state) {
    (void)state;
    if (rdi_rows_absent(RDI_BACKEND_AMD)) skip();
    rd_ctx *ctx = open_ctx("r9700-gfx1201");
    rdi_row *left = malloc((size_t)rdi_row_count * sizeof *left);
    assert_non_null(left);
    ctx->table = (rdi_table){left, rows_without("gemm_fp8block", "step", NULL, left), true};
    const char *refusal = plan_on(ctx, "row", "step");
    assert_non_null(strstr(refusal, "order=step, its class is chunk; gemm_fp8block_step_preshuffle_gfx1201 "
                                    "failed its check at first use"));
    assert_string_equal(plan_on(ctx, "row", "chunk"), "gemm_fp8block_chunk_gfx1201");
    assert_string_equal(plan_on(ctx, "row", "any"), "gemm_fp8block_chunk_gfx1201");
    ctx->table.rows_out = false; // never built
    assert_string_equal(plan_on(ctx, "row", "step"), "gemm_fp8block_chunk_gfx1201");
    // One row of the class is left: it answers what it takes, and the rest is refused as ever.
    ctx->table =
        (rdi_table){left, rows_without("gemm_fp8block", "step", "gemm_fp8block_step_gfx1201", left), true};
    assert_string_equal(plan_on(ctx, "row", "step"), "gemm_fp8block_step_gfx1201");
    assert_non_null(strstr(plan_on(ctx, "shuffle16", "step"), "order=step, its class is chunk"));
    ctx->table = (rdi_table){left, rows_without("gemm_fp8block", "chunk", NULL, left), true};
    assert_non_null(strstr(plan_on(ctx, "row", "chunk"), "gemm_fp8block_chunk_preshuffle_gfx1201 failed"));
    // No row of the op: the build has one all the same.
    ctx->table = (rdi_table){left, rows_without("gemm_fp8block", NULL, NULL, left), true};
    assert_non_null(strstr(plan_on(ctx, "row", "any"), "gemm_fp8block_step_preshuffle_gfx1201 failed"));
    ctx->table.rows_out = false;
    assert_non_null(strstr(plan_on(ctx, "row", "any"), "no gemm_fp8block kernel for"));
    free(left);
    rd_ctx_free(ctx);
}

// Bug case 19: 66 rows do not fit 64; the row says so instead of computing wrong rows.
static void test_explain_bug_19_refuses_q_len_11_at_gqa_6(void **state) {
    (void)state;
    for (int q_len = 9; q_len <= 11; q_len++) {
        const rd_param params[] = {RD_INT("q_len", q_len), RD_INT("gqa", 6)};
        check_verdicts("r9700-gfx1201", "attn_decode", params, 2,
                       q_len < 11 ? "> attn_decode_amd_gfx1201: ok\n"
                                  : "attn_decode_amd_gfx1201: rows=66, needs <= 64\n");
    }
    rd_ctx *ctx = open_ctx("r9700-gfx1201");
    const rd_param params[] = {RD_INT("gqa", 6)};
    rd_plan *plan = NULL;
    assert_int_equal(rd_plan_create(ctx, "attn_decode", params, 1, 1, 10, &plan), RD_OK);
    rd_plan_free(plan);
    assert_int_equal(rd_plan_create(ctx, "attn_decode", params, 1, 1, 17, &plan), RD_E_UNSUPPORTED);
    assert_string_equal(rd_error_text(),
                        "attn_decode: no kernel takes q_len=11..17 gqa=6: rows=66, needs <= 64");
    assert_null(plan);
    rd_ctx_free(ctx);
}

static void test_explain_names_the_rule_that_orders(void **state) {
    (void)state;
    const rd_param m8_params[] = {RD_INT("m", 8), RD_INT("k", 8704), RD_WORD("a_dtype", "fp8"),
                                  RD_WORD("layout", "row")};
    check_verdicts("r9700-gfx1201", "gemm_fp8block", m8_params, 4,
                   "> gemm_fp8block_m8_splitk_amd_gfx1201: ok\n"
                   "gemm_fp8block_m64_amd_gfx1201: ok, not chosen: gemm_route rule 2\n"
                   "gemm_fp8block_preshuffle_amd_gfx1201: ok, not chosen: gemm_route rule 2\n");
    const rd_param m9[] = {RD_INT("m", 9), RD_INT("k", 8704), RD_WORD("a_dtype", "fp8"),
                           RD_WORD("layout", "row")};
    check_verdicts("r9700-gfx1201", "gemm_fp8block", m9, 4,
                   "> gemm_fp8block_m64_amd_gfx1201: ok\n"
                   "gemm_fp8block_m8_splitk_amd_gfx1201: m=9, needs <= 8\n"
                   "gemm_fp8block_preshuffle_amd_gfx1201: ok, not chosen: row order\n");
    const rd_param packed[] = {RD_INT("m", 1), RD_INT("k", 128), RD_WORD("a_dtype", "fp8"),
                               RD_WORD("layout", "shuffle16")};
    check_verdicts("r9700-gfx1201", "gemm_fp8block", packed, 4,
                   "> gemm_fp8block_preshuffle_amd_gfx1201: ok\n"
                   "gemm_fp8block_m64_amd_gfx1201: gemm_route rule 1: needs a preshuffle kernel\n"
                   "gemm_fp8block_m8_splitk_amd_gfx1201: gemm_route rule 1: needs a preshuffle kernel\n");
}

// ---- selections and report -----------------------------------------------------------------------------------------------------
static void test_selections_fold_order_and_aliases(void **state) {
    (void)state;
    rd_ctx *ctx = open_ctx("x86-avx512");
    const rd_kernel_info *kernel;
    const rd_param first[] = {RD_INT("m", 1), RD_INT("k", 128), RD_WORD("a_dtype", "torch.float8_e4m3fn")};
    const rd_param again[] = {RD_WORD("a_dtype", "fp8"), RD_INT("K", 128), RD_INT("m", 1)};
    const rd_param other[] = {RD_INT("m", 2), RD_INT("k", 128), RD_WORD("a_dtype", "fp8")};
    assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", first, 3, &kernel), RD_OK);
    assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", again, 3, &kernel), RD_OK);
    assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", other, 3, &kernel), RD_OK);
    rd_selection selection;
    assert_int_equal(rd_selection_at(ctx, 0, &selection), RD_OK);
    assert_string_equal(selection.op, "gemm_fp8block");
    assert_string_equal(selection.query, "m=1 k=128 a_dtype=fp8_e4m3"); // in the order of the first asking
    assert_string_equal(selection.kernel, "gemm_fp8block_m8_cpu_avx512");
    assert_string_equal(selection.reason, "ok");
    assert_int_equal(selection.asked, 2);
    assert_int_equal(rd_selection_at(ctx, 1, &selection), RD_OK);
    assert_int_equal(selection.asked, 1);
    assert_int_equal(rd_selection_at(ctx, 2, &selection), RD_E_LIMIT);
    assert_int_equal(rd_selection_at(ctx, -1, &selection), RD_E_LIMIT);
    rd_ctx_free(ctx);
}

static void check_report(rd_ctx *ctx, const char *expected) {
    size_t needed = 0;
    assert_int_equal(rd_report_text(ctx, NULL, &needed), RD_OK);
    assert_int_equal(needed, strlen(expected) + 1);
    char *text = malloc(needed);
    size_t bytes = needed;
    assert_int_equal(rd_report_text(ctx, text, &bytes), RD_OK);
    assert_string_equal(text, expected);
    bytes = needed - 1;
    assert_int_equal(rd_report_text(ctx, text, &bytes), RD_E_LIMIT);
    assert_int_equal(bytes, needed);
    free(text);
}

static void test_report_text(void **state) {
    (void)state;
    rd_ctx *ctx = open_ctx("x86-avx512");
    check_report(ctx, ""); // nothing asked, nothing printed
    const rd_kernel_info *kernel;
    const rd_param good[] = {RD_INT("m", 1), RD_INT("k", 128), RD_WORD("a_dtype", "fp8")};
    const rd_param slow[] = {RD_INT("m", 9), RD_INT("k", 100), RD_WORD("a_dtype", "fp8")};
    const rd_param none[] = {RD_INT("m", 9), RD_INT("k", 128), RD_WORD("a_dtype", "fp16")};
    const rd_param attn[] = {RD_INT("head_dim", 64)};
    assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", good, 3, &kernel), RD_OK);
    assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", good, 3, &kernel), RD_OK);
    assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", slow, 3, &kernel), RD_OK);
    assert_string_equal(kernel->name, "gemm_fp8block_any_cpu_ref");
    assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", none, 3, &kernel), RD_OK);
    assert_null(kernel);
    assert_string_equal(rd_error_text(),
                        "gemm_fp8block: m=9, needs <= 8; a_dtype=fp16, needs one of: fp8_e4m3");
    assert_int_equal(rd_kernel_select(ctx, "attn_decode", attn, 1, &kernel), RD_OK);
    rd_plan *plan = NULL;
    const rd_param rest[] = {RD_INT("k", 256), RD_WORD("a_dtype", "fp8")};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rd_plan_create(ctx, "gemm_fp8block", rest, 2, 5, 16, &plan), RD_OK);
        rd_plan_free(plan);
    }
    char expected[2048];
    snprintf(expected, sizeof expected,
             "Radiance kernel selection: libradiance %s (%s), %d kernels built, 5 of 6 queries resolved\n"
             "gemm_fp8block m=1 k=128 a_dtype=fp8_e4m3\n"
             "-> gemm_fp8block_m8_cpu_avx512 (asked 2x)\n"
             "gemm_fp8block m=9 k=100 a_dtype=fp8_e4m3\n"
             "-> gemm_fp8block_any_cpu_ref (slow): m=9, needs <= 8\n"
             "gemm_fp8block m=9 k=128 a_dtype=fp16\n"
             "-> no kernel, fallback runs: m=9, needs <= 8; a_dtype=fp16, needs one of: fp8_e4m3\n"
             "attn_decode   head_dim=64\n"
             "-> attn_decode_any_cpu_ref (slow): no faster kernel in this build\n"
             "gemm_fp8block m=5..8 k=256 a_dtype=fp8_e4m3\n"
             "-> gemm_fp8block_m8_cpu_avx512 (asked 3x)\n"
             "gemm_fp8block m=9..16 k=256 a_dtype=fp8_e4m3\n"
             "-> gemm_fp8block_any_cpu_avx2 (asked 3x)\n",
             rd_version(), rd_build_id(), (int)RDI_COUNT(rows));
    check_report(ctx, expected);
    rd_ctx_free(ctx);
}

static void test_selection_pointers_stay(void **state) {
    (void)state;
    rd_ctx *ctx = open_ctx("x86-avx512");
    const rd_kernel_info *kernel;
    rd_selection first = {.op = NULL};
    for (int m = 1; m <= 500; m++) {
        const rd_param params[] = {RD_INT("m", m), RD_INT("k", 128), RD_WORD("a_dtype", "fp8")};
        assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", params, 3, &kernel), RD_OK);
        if (m == 1) assert_int_equal(rd_selection_at(ctx, 0, &first), RD_OK);
    }
    assert_string_equal(first.query, "m=1 k=128 a_dtype=fp8_e4m3");
    rd_selection now;
    assert_int_equal(rd_selection_at(ctx, 0, &now), RD_OK);
    assert_ptr_equal(now.query, first.query);
    rd_ctx_free(ctx);
}

static void test_ctx_refuses_bad_options(void **state) {
    (void)state;
    rd_ctx *ctx = NULL;
    rd_ctx_options options = {.struct_size = 8};
    assert_int_equal(rd_ctx_create(&options, &ctx), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "struct_size=8, needs "));
    options = (rd_ctx_options){.struct_size = sizeof options, .threads = -1};
    assert_int_equal(rd_ctx_create(&options, &ctx), RD_E_INVALID);
    assert_string_equal(rd_error_text(), "threads=-1, needs 1 to 4096, or 0 for the default");
    options = (rd_ctx_options){.struct_size = sizeof options, .device = "r9700"};
    assert_int_equal(rd_ctx_create(&options, &ctx), RD_E_NO_DEVICE);
    assert_string_equal(rd_error_text(),
                        "device=r9700 is not known, needs one of: cpu cpu:double cpu:ref cpu:avx2 "
                        "cpu:avx512 gpu:0 sim:gfx1201 r9700-gfx1201 "
                        "h200-sm90a h100-pcie-sm90a x86-avx512 x86-avx2");
    assert_null(ctx);
    rd_ctx_free(NULL);
    rd_plan_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query_bug_30_refuses_bad_questions_by_name),
        cmocka_unit_test(test_explain_gives_first_failing_constraint),
        cmocka_unit_test(test_explain_order_class),
        cmocka_unit_test(test_rows_taken_out_are_no_other_class),
        cmocka_unit_test(test_explain_reference_rows_alone),
        cmocka_unit_test(test_explain_bug_19_refuses_q_len_11_at_gqa_6),
        cmocka_unit_test(test_explain_names_the_rule_that_orders),
        cmocka_unit_test(test_selections_fold_order_and_aliases),
        cmocka_unit_test(test_report_text),
        cmocka_unit_test(test_selection_pointers_stay),
        cmocka_unit_test(test_ctx_refuses_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
