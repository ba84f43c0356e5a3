// SPDX-License-Identifier: Apache-2.0
// The check of a card's rows at first use, on the simulator: all rows pass; a row that computes something else is found, told,
// left out and remembered for this build, card and driver alone.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkdtemp, setenv
#endif
#include "support/card_rig.h"

#include <stdlib.h>
#include <unistd.h>

#include "kernels/elementwise/args.h"
#include "kernels/rows.h"
#include "ops/first_use.h"
#include "run_cli.h"

static char folder[] = "test_first_use_XXXXXX", cache[4096];
static char logged[2048];
static void keep_log(void *state, rd_log_level level, const char *text) {
    (void)state, (void)level;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", text);
}

static int calls;
static int32_t wrong_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    rdi_act_mul_args other = *(const rdi_act_mul_args *)args;
    other.act = RDI_ACT_GELU_TANH; // the case asks for silu
    calls++;
    return rdi_act_mul_gfx1201_geometry(&other, ws, device, out);
}

// The built rows, act_mul's geometry replaced.
static rdi_row *broken_rows(void) {
    rdi_row *rows = malloc((size_t)rdi_row_count * sizeof *rows);
    assert_non_null(rows);
    memcpy(rows, rdi_rows, (size_t)rdi_row_count * sizeof *rows);
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rows[i].info.name, "act_mul_gfx1201")) rows[i].geometry = wrong_geometry;
    return rows;
}

static bool has_row(const rd_ctx *ctx, const char *name) {
    for (int32_t i = 0; i < ctx->table.count; i++)
        if (!strcmp(ctx->table.rows[i].info.name, name)) return true;
    return false;
}

static void test_every_row_passes(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    bool *bad = calloc((size_t)rdi_row_count, sizeof *bad);
    ctx->log = (rdi_log){keep_log, NULL};
    logged[0] = 0;
    must(rdi_first_use_run(ctx, bad));
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (bad[i]) fail_msg("%s", logged);
    free(bad);
    rd_ctx_free(ctx);
}

static void test_a_wrong_row_is_left_out_and_remembered(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    rdi_row *rows = broken_rows();
    ctx->log = (rdi_log){keep_log, NULL};
    ctx->table = (rdi_table){rows, rdi_row_count};
    logged[0] = 0, calls = 0;
    must(rdi_first_use_apply(ctx));
    assert_true(calls > 0);
    assert_non_null(
        strstr(logged, "act_mul_gfx1201 is left out: its results are not those of the reference"));
    assert_non_null(strstr(logged, "1 kernels failed their check on AMD Radeon AI PRO R9700"));
    assert_int_equal(ctx->table.count, rdi_row_count - 1);
    assert_false(has_row(ctx, "act_mul_gfx1201"));
    const rd_param params[] = {RD_INT("k", 512), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"),
                               RD_WORD("y_dtype", "fp32")};
    rd_plan *plan = NULL;
    assert_int_equal(rd_plan_create(ctx, "act_mul", params, 4, 1, 8, &plan), RD_E_UNSUPPORTED);
    rd_ctx_free(ctx);
    // Remembered: nothing runs, the row is out.
    ctx = card_ctx();
    ctx->table = (rdi_table){rows, rdi_row_count};
    calls = 0;
    must(rdi_first_use_apply(ctx));
    assert_int_equal(calls, 0);
    assert_false(has_row(ctx, "act_mul_gfx1201"));
    rd_ctx_free(ctx);
    // Another build, card or driver: the file says nothing.
    char command[8192];
    snprintf(command, sizeof command, "sed -i '1s/^/x/' '%s'/radiance/rows-*", cache);
    assert_int_equal(system(command), 0);
    ctx = card_ctx();
    ctx->table = (rdi_table){rows, rdi_row_count};
    must(rdi_first_use_apply(ctx));
    assert_true(calls > 0);
    rd_ctx_free(ctx);
    free(rows);
}

// The command on a "card": the simulator under the name that a real one has.
static void test_trust_skips(void **state) {
    (void)state;
    static cli_result result;
    char environment[8192], command[8192];
    snprintf(command, sizeof command, "rm -f '%s'/radiance/rows-*", cache);
    const char *question = "select act_mul m=1 k=512 act=silu x_dtype=bf16 y_dtype=bf16 --device gpu:0";
    for (int trust = 1; trust >= 0; trust--) {
        assert_int_equal(system(command), 0);
        snprintf(environment, sizeof environment,
                 "RADIANCE_LOG=info RADIANCE_TRUST=%d RADIANCE_HIP_LIBRARY='%s'", trust, RD_SIM_LIBRARY);
        cli_run(environment, question, &result);
        if (result.code == RD_E_NO_DEVICE || strstr(result.err, "built without")) skip();
        if (result.code) fail_msg("%s", result.err);
        assert_string_equal(result.out, "act_mul_gfx1201\n");
        bool told = strstr(result.err, "first use of this build") != NULL;
        assert_int_equal(told, !trust);
    }
}

int main(void) {
    // Before the environment is read: the cache of this test alone.
    if (!mkdtemp(folder) || !getcwd(cache, sizeof cache - 64)) return 1;
    strcat(strcat(cache, "/"), folder);
    setenv("XDG_CACHE_HOME", cache, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_passes),
        cmocka_unit_test(test_a_wrong_row_is_left_out_and_remembered),
        cmocka_unit_test(test_trust_skips),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[8192];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    return system(command) ? 1 : failed;
}
