// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Plans over a table of known rows; two threads on one context; every allocation failing once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <cmocka.h>

#include "registry_table.h"

static void test_plan_cuts_at_constraints(void **state) {
    (void)state;
    rd_ctx *ctx = open_ctx("x86-avx512");
    const rd_param params[] = {GEMM_KEYS};
    rd_plan *plan = NULL;
    assert_int_equal(rd_plan_create(ctx, "gemm_fp8block", params, 3, 1, 4096, &plan), RD_OK);
    assert_string_equal(rd_plan_kernel(plan, 1)->name, "gemm_fp8block_m8_cpu_avx512");
    assert_string_equal(rd_plan_kernel(plan, 8)->name, "gemm_fp8block_m8_cpu_avx512");
    assert_string_equal(rd_plan_kernel(plan, 9)->name, "gemm_fp8block_any_cpu_avx2");
    assert_string_equal(rd_plan_kernel(plan, 4096)->name, "gemm_fp8block_any_cpu_avx2");
    assert_null(rd_plan_kernel(plan, 4097));
    assert_string_equal(rd_error_text(), "gemm_fp8block: m=4097: the plan covers 1..4096");
    char text[512];
    size_t bytes = sizeof text;
    assert_int_equal(rd_plan_text(plan, text, &bytes), RD_OK);
    assert_string_equal(
        text, "gemm_fp8block m=1..8 n=7168 k=2048 a_dtype=fp8_e4m3\n-> gemm_fp8block_m8_cpu_avx512\n"
              "gemm_fp8block m=9..4096 n=7168 k=2048 a_dtype=fp8_e4m3\n-> gemm_fp8block_any_cpu_avx2\n");
    assert_int_equal(rdi_plan_dtype(plan, "a_dtype"), RD_DTYPE_E4M3);
    assert_int_equal(rdi_plan_int(plan, "n"), 7168);
    rd_plan_free(plan);
    rd_ctx_free(ctx);
}

static void test_row_launch_refuses_fixture(void **state) {
    (void)state;
    const rd_param params[] = {GEMM_KEYS};
    rd_ctx *fixture = open_ctx("x86-avx2"), *host = open_ctx("cpu:ref");
    rd_plan *on_fixture = NULL, *on_host = NULL;
    assert_int_equal(rd_plan_create(fixture, "gemm_fp8block", params, 3, 1, 8, &on_fixture), RD_OK);
    assert_int_equal(rd_plan_create(host, "gemm_fp8block", params, 3, 1, 8, &on_host), RD_OK);
    launches = 0;
    assert_int_equal(rdi_row_launch(on_fixture, rdi_plan_row(on_fixture, 1), NULL, NULL, NULL),
                     RD_E_NO_DEVICE);
    assert_int_equal(launches, 0);
    assert_int_equal(rdi_row_launch(on_host, rdi_plan_row(on_host, 1), NULL, NULL, NULL), RD_OK);
    assert_int_equal(launches, 1);
    rd_plan_free(on_fixture);
    rd_plan_free(on_host);
    rd_ctx_free(fixture);
    rd_ctx_free(host);
}

static void test_plan_cuts_at_policy(void **state) {
    (void)state;
    rd_ctx *ctx = open_ctx("r9700-gfx1201");
    const rd_param params[] = {RD_INT("k", 8704), RD_WORD("a_dtype", "fp8"), RD_WORD("layout", "row")};
    rd_plan *plan = NULL;
    assert_int_equal(rd_plan_create(ctx, "gemm_fp8block", params, 3, 1, 4096, &plan), RD_OK);
    assert_string_equal(rd_plan_kernel(plan, 8)->name, "gemm_fp8block_m8_splitk_amd_gfx1201");
    assert_string_equal(rd_plan_kernel(plan, 9)->name, "gemm_fp8block_m64_amd_gfx1201");
    assert_null(rd_plan_kernel(plan, 0));
    rd_plan_free(plan);
    rd_ctx_free(ctx);
}

static void test_plan_agrees_with_select_at_every_size(void **state) {
    (void)state;
    const char *const devices[] = {"x86-avx512", "x86-avx2", "r9700-gfx1201"};
    for (size_t d = 0; d < RDI_COUNT(devices); d++) {
        rd_ctx *ctx = open_ctx(devices[d]);
        const rd_param params[] = {RD_INT("k", 1024), RD_WORD("a_dtype", "fp8")};
        rd_plan *plan = NULL;
        assert_int_equal(rd_plan_create(ctx, "gemm_fp8block", params, 2, 3, 70, &plan), RD_OK);
        for (int m = 3; m <= 70; m++) {
            const rd_param one[] = {RD_INT("m", m), RD_INT("k", 1024), RD_WORD("a_dtype", "fp8")};
            const rd_kernel_info *kernel = NULL;
            assert_int_equal(rd_kernel_select(ctx, "gemm_fp8block", one, 3, &kernel), RD_OK);
            assert_ptr_equal(rd_plan_kernel(plan, m), kernel);
        }
        rd_plan_free(plan);
        rd_ctx_free(ctx);
    }
}

static void test_plan_refuses_bad_intervals(void **state) {
    (void)state;
    rd_ctx *ctx = open_ctx("x86-avx512");
    rd_plan *plan = NULL;
    const rd_param with_m[] = {RD_INT("m", 1)};
    assert_int_equal(rd_plan_create(ctx, "gemm_fp8block", with_m, 1, 1, 8, &plan), RD_E_INVALID);
    assert_string_equal(rd_error_text(),
                        "gemm_fp8block: m is given, needs to be left out: the plan covers an interval of it");
    const int64_t bad[][2] = {{0, 8}, {9, 8}, {-1, -1}, {1, (int64_t)1 << 40}};
    for (size_t i = 0; i < RDI_COUNT(bad); i++) {
        assert_int_equal(rd_plan_create(ctx, "gemm_fp8block", NULL, 0, bad[i][0], bad[i][1], &plan),
                         RD_E_INVALID);
        assert_non_null(strstr(rd_error_text(), "needs 1 <= lo <= hi <= 2147483647"));
    }
    assert_int_equal(rd_plan_create(ctx, "rope", NULL, 0, 1, 8, &plan), RD_E_INVALID);
    assert_string_equal(rd_error_text(), "rope: interval=1..8, needs 0..0: the op has no interval key");
    assert_int_equal(rd_plan_create(NULL, "rope", NULL, 0, 0, 0, &plan), RD_E_INVALID);
    rd_ctx_free(ctx);
}

typedef struct log_lines {
    int warnings, infos;
    char last[512];
} log_lines;
static void keep_line(void *state, rd_log_level level, const char *text) {
    log_lines *lines = state;
    lines->warnings += level == RD_LOG_WARN;
    lines->infos += level == RD_LOG_INFO;
    snprintf(lines->last, sizeof lines->last, "%s", text);
}

static void test_plan_logs_a_slow_answer(void **state) {
    (void)state;
    log_lines lines = {0, 0, ""};
    rd_ctx_options options = {
        .struct_size = sizeof options, .device = "x86-avx2", .log = keep_line, .log_state = &lines};
    rd_ctx *ctx = NULL;
    assert_int_equal(rd_ctx_create(&options, &ctx), RD_OK);
    ctx->table = table;
    const rd_param params[] = {RD_INT("k", 100), RD_WORD("a_dtype", "fp8")};
    rd_plan *plan = NULL;
    assert_int_equal(rd_plan_create(ctx, "gemm_fp8block", params, 2, 1, 8, &plan), RD_OK);
    assert_int_equal(lines.warnings, 1);
    assert_string_equal(lines.last,
                        "gemm_fp8block m=1..8 k=100 a_dtype=fp8_e4m3 -> gemm_fp8block_any_cpu_ref (slow: "
                        "isa=avx2, needs avx512)");
    rd_plan_free(plan);
    rd_ctx_free(ctx);
}

enum { ASKS = 200 };
static void *ask_and_report(void *arg) {
    rd_ctx *ctx = arg;
    for (int i = 0; i < ASKS; i++) {
        const rd_param params[] = {RD_INT("m", i % 20 + 1), RD_INT("k", 128), RD_WORD("a_dtype", "fp8")};
        const rd_kernel_info *kernel;
        if (rd_kernel_select(ctx, "gemm_fp8block", params, 3, &kernel) != RD_OK) return "select failed";
        char text[8192];
        size_t bytes = sizeof text;
        if (i % 10 == 0 && rd_report_text(ctx, text, &bytes) != RD_OK) return "report failed";
        rd_selection selection;
        if (rd_selection_at(ctx, 0, &selection) != RD_OK || !*selection.query) return "selection failed";
        rd_plan *plan;
        if (rd_plan_create(ctx, "gemm_fp8block", params + 1, 2, 1, 64, &plan) != RD_OK) return "plan failed";
        if (!rd_plan_kernel(plan, 64)) return "plan is empty";
        rd_plan_free(plan);
    }
    return NULL;
}

static void test_two_threads_share_a_context(void **state) {
    (void)state;
    rd_ctx *ctx = open_ctx("x86-avx512");
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask_and_report, ctx), 0);
    for (int i = 0; i < 2; i++) {
        void *problem = NULL;
        pthread_join(threads[i], &problem);
        assert_null(problem);
    }
    int64_t asked = 0;
    rd_selection selection;
    int32_t count = 0;
    while (rd_selection_at(ctx, count, &selection) == RD_OK) {
        asked += selection.asked;
        count++;
    }
    assert_int_equal(count, 20 + 2); // 20 sizes, two ranges of the plan
    assert_int_equal(asked, 2 * ASKS + 2 * 2 * ASKS);
    rd_ctx_free(ctx);
}

// Every allocation of the path fails once; without the fault build the first round already passes.
static void test_context_survives_every_failed_allocation(void **state) {
    (void)state;
    for (int64_t nth = 1; nth < 1000; nth++) {
        rdi_alloc_fail_at(nth);
        rd_ctx *ctx = NULL;
        rd_plan *plan = NULL;
        rd_ctx_options options = {.struct_size = sizeof options, .device = "x86-avx512"};
        const rd_param params[] = {RD_INT("k", 128), RD_WORD("a_dtype", "fp8")};
        const rd_kernel_info *kernel = NULL;
        rd_status status = rd_ctx_create(&options, &ctx);
        if (status == RD_OK) ctx->table = table;
        if (status == RD_OK) status = rd_kernel_select(ctx, "gemm_fp8block", params, 2, &kernel);
        if (status == RD_OK) status = rd_plan_create(ctx, "gemm_fp8block", params, 2, 1, 64, &plan);
        rdi_alloc_fail_at(0);
        if (status != RD_OK) {
            assert_int_equal(status, RD_E_NOMEM);
            assert_non_null(strstr(rd_error_text(), "allocation"));
            assert_null(plan);
        }
        rd_plan_free(plan);
        rd_ctx_free(ctx);
        if (status == RD_OK) return;
    }
    fail_msg("the path never got through");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_cuts_at_constraints),
        cmocka_unit_test(test_row_launch_refuses_fixture),
        cmocka_unit_test(test_plan_cuts_at_policy),
        cmocka_unit_test(test_plan_agrees_with_select_at_every_size),
        cmocka_unit_test(test_plan_refuses_bad_intervals),
        cmocka_unit_test(test_plan_logs_a_slow_answer),
        cmocka_unit_test(test_two_threads_share_a_context),
        cmocka_unit_test(test_context_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
