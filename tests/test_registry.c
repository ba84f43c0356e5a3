// SPDX-License-Identifier: Apache-2.0
// The registry over a table of its own (so that every answer is known) and, where it says so, over the built one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "ops/ctx.h"
#include "ops/plan.h"

static int launches;
static void run_nothing(const void *args, void *ws, rdi_par *par) {
    (void)args, (void)ws, (void)par;
    launches++;
}

static const rd_constraint m8[] = {RD_C_LE("m", 8, "one tile of 8 rows"), RD_C_MULTIPLE("k", 128, "scale block")};
static const rd_constraint any_m[] = {RD_C_ONE_OF("a_dtype", "fp8_e4m3", "codes"), RD_C_MULTIPLE("k", 128, "scale block")};
static const rd_constraint all[] = {RD_C_ONE_OF("a_dtype", "fp8_e4m3", "codes")};
static const rd_constraint rows64[] = {RD_C_EQ("gqa", 6, "six heads a wave"), RD_C_LE("rows", 64, "four waves of 16")};
static const rd_constraint attn_all[] = {RD_C_GE("head_dim", 1, "any")};

#define ROW(name_, op_, backend_, word_, isa_, ref_, list_)                                                            \
    {{name_, op_, word_, RDI_ISA_TEXT(isa_), "test", "test", ref_, (int32_t)RDI_COUNT(list_), list_},                  \
     RDI_BACKEND_##backend_, isa_, run_nothing, NULL}
static const rdi_row rows[] = {
    ROW("gemm_fp8block_m8_cpu_avx512", "gemm_fp8block", CPU, "cpu", RDI_ISA_AVX512, 0, m8),
    ROW("gemm_fp8block_any_cpu_avx2", "gemm_fp8block", CPU, "cpu", RDI_ISA_AVX2, 0, any_m),
    ROW("gemm_fp8block_any_cpu_ref", "gemm_fp8block", CPU, "cpu", 0, 1, all),
    ROW("gemm_fp8block_m64_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, any_m),
    ROW("gemm_fp8block_m8_splitk_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, m8),
    ROW("gemm_fp8block_preshuffle_amd_gfx1201", "gemm_fp8block", AMD, "amd", RDI_ISA_GFX1201, 0, all),
    ROW("attn_decode_amd_gfx1201", "attn_decode", AMD, "amd", RDI_ISA_GFX1201, 0, rows64),
    ROW("attn_decode_any_cpu_ref", "attn_decode", CPU, "cpu", 0, 1, attn_all),
};
static const rdi_table table = {rows, (int32_t)RDI_COUNT(rows)};

static rd_ctx *open_ctx(const char *device) {
    rd_ctx *ctx = NULL;
    rd_ctx_options options = {.struct_size = sizeof options, .device = device};
    assert_int_equal(rd_ctx_create(&options, &ctx), RD_OK);
    ctx->table = table;
    return ctx;
}

#define GEMM_KEYS RD_INT("n", 7168), RD_INT("k", 2048), RD_WORD("a_dtype", "fp8")

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
    assert_string_equal(text, "gemm_fp8block m=1..8 n=7168 k=2048 a_dtype=fp8_e4m3\n-> gemm_fp8block_m8_cpu_avx512\n"
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
    assert_int_equal(rdi_row_launch(on_fixture, rdi_plan_row(on_fixture, 1), NULL, NULL), RD_E_NO_DEVICE);
    assert_int_equal(launches, 0);
    assert_int_equal(rdi_row_launch(on_host, rdi_plan_row(on_host, 1), NULL, NULL), RD_OK);
    assert_int_equal(launches, 1);
    rd_plan_free(on_fixture);
    rd_plan_free(on_host);
    rd_ctx_free(fixture);
    rd_ctx_free(host);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_cuts_at_constraints),
        cmocka_unit_test(test_row_launch_refuses_fixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
