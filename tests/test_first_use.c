// SPDX-License-Identifier: Apache-2.0
// The check of a card's rows at first use: all rows pass; a row that computes something else is found, told, left out and remembered
// for this build, card and driver alone. On the simulated card, or on the one that RADIANCE_TEST_CARD names.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkdtemp, setenv
#endif
#include "support/card_rig.h"

#include <ctype.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "backend/backend.h"
#include "kernels/attn/args.h"
#include "kernels/elementwise/args.h"
#include "kernels/gemm_fp8block/args.h"
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

// The name of a row on the card at hand.
static const char *named(const char *stem) {
    static char name[64];
    snprintf(name, sizeof name, "%s_%s", stem, card_is_simulated() ? "gfx1201" : "sm90a");
    return name;
}
// Where this card's verdicts are kept, behind the folder: "rows-AMD-Radeon-AI-PRO-R9700".
static const char *model_of(const rd_ctx *ctx) {
    rd_device_info info = {.struct_size = sizeof info};
    must(rd_device_get_info(rd_ctx_device(ctx), &info));
    return info.model;
}

// A real card's rows are checked when its context is made: here the tests ask for the check.
static rd_ctx *unchecked_ctx(void) {
    rd_ctx *ctx = NULL;
    if (card_is_simulated()) return card_ctx();
    const rd_ctx_options options = {
        .struct_size = sizeof options, .device = card_device(), .threads = 1, .trust_card = 1};
    const rd_status status = rd_ctx_create(&options, &ctx);
    if (status == RD_E_NO_DEVICE) print_message("%s\n", rd_error_text());
    if (status != RD_OK && status != RD_E_NO_DEVICE) fail_msg("%s", rd_error_text());
    return ctx;
}

static int calls;
static rdi_geometry_fn right; // of the row that is made wrong
static int32_t wrong_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    rdi_act_mul_args other = *(const rdi_act_mul_args *)args;
    other.act = RDI_ACT_GELU_TANH; // the case asks for silu
    calls++;
    return right(&other, ws, device, out);
}

// The built rows, act_mul's geometry replaced.
static rdi_row *broken_rows(void) {
    rdi_row *rows = malloc((size_t)rdi_row_count * sizeof *rows);
    assert_non_null(rows);
    memcpy(rows, rdi_rows, (size_t)rdi_row_count * sizeof *rows);
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rows[i].info.name, named("act_mul")))
            right = rows[i].geometry, rows[i].geometry = wrong_geometry;
    return rows;
}

static bool has_row(const rd_ctx *ctx, const char *name) {
    for (int32_t i = 0; i < ctx->table.count; i++)
        if (!strcmp(ctx->table.rows[i].info.name, name)) return true;
    return false;
}

static void test_every_row_passes(void **state) {
    (void)state;
    rd_ctx *ctx = unchecked_ctx();
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
    rd_ctx *ctx = unchecked_ctx();
    if (!ctx) skip();
    rdi_row *rows = broken_rows();
    ctx->log = (rdi_log){keep_log, NULL};
    ctx->table = (rdi_table){rows, rdi_row_count, false};
    logged[0] = 0, calls = 0;
    must(rdi_first_use_apply(ctx));
    assert_true(calls > 0);
    char text[256];
    snprintf(text, sizeof text, "%s is left out: its results are not those of the reference",
             named("act_mul"));
    assert_non_null(strstr(logged, text));
    snprintf(text, sizeof text, "1 kernels failed their check on %s", model_of(ctx));
    assert_non_null(strstr(logged, text));
    assert_int_equal(ctx->table.count, rdi_row_count - 1);
    assert_false(has_row(ctx, named("act_mul")));
    const rd_param params[] = {RD_INT("k", 512), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"),
                               RD_WORD("y_dtype", "fp32")};
    rd_plan *plan = NULL;
    assert_int_equal(rd_plan_create(ctx, "act_mul", params, 4, 1, 8, &plan), RD_E_UNSUPPORTED);
    rd_ctx_free(ctx);
    // Remembered: nothing runs, the row is out.
    ctx = unchecked_ctx();
    ctx->table = (rdi_table){rows, rdi_row_count, false};
    calls = 0;
    must(rdi_first_use_apply(ctx));
    assert_int_equal(calls, 0);
    assert_false(has_row(ctx, named("act_mul")));
    rd_ctx_free(ctx);
    // Another build, card or driver: the file says nothing.
    char command[8192];
    snprintf(command, sizeof command, "sed -i '1s/^/x/' '%s'/radiance/rows-*", cache);
    assert_int_equal(system(command), 0);
    ctx = unchecked_ctx();
    ctx->table = (rdi_table){rows, rdi_row_count, false};
    must(rdi_first_use_apply(ctx));
    assert_true(calls > 0);
    rd_ctx_free(ctx);
    free(rows);
}

// ---- a row that is wrong at its second case alone ------------------------------------------------------------------------
static int32_t wrong_at_128_rows(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    rdi_gemm_args other = *(const rdi_gemm_args *)args;
    if (other.m == 128) other.m = 112; // the eighth tile of 16 rows is left out
    return right(&other, ws, device, out);
}
static int32_t wrong_at_head_256(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    rdi_attn_args other = *(const rdi_attn_args *)args;
    if (other.head_dim == 256) other.scale *= 2;
    return right(&other, ws, device, out);
}
static rdi_row built_row(const char *name) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rdi_rows[i].info.name, name)) return rdi_rows[i];
    fail_msg("%s is not built", name);
    return (rdi_row){.isa = 0};
}

static void test_a_row_that_is_wrong_at_its_second_case(void **state) {
    (void)state;
    typedef struct wrong_case {
        const char *row, *where;
        rdi_geometry_fn wrong;
    } wrong_case;
    static const wrong_case gfx1201[] = {
        {"gemm_fp8block_step_gfx1201", "128 rows", wrong_at_128_rows},
        {"gemm_fp8block_step_preshuffle_gfx1201", "128 rows", wrong_at_128_rows},
        {"gemm_fp8block_w8a16_step_gfx1201", "128 rows", wrong_at_128_rows},
        {"attn_prefill_fp8kv_gfx1201", "head 256", wrong_at_head_256},
        {"attn_prefill_bf16kv_gfx1201", "head 256", wrong_at_head_256},
        {"attn_decode_fp8kv_gfx1201", "head 256", wrong_at_head_256},
        {"attn_decode_bf16kv_gfx1201", "head 256", wrong_at_head_256},
    };
    static const wrong_case sm90a[] = {
        {"gemm_fp8block_step_sm90a", "128 rows", wrong_at_128_rows},
        {"gemm_fp8block_w8a16_step_sm90a", "128 rows", wrong_at_128_rows},
        {"attn_prefill_sm90a", "head 256", wrong_at_head_256},
        {"attn_decode_sm90a", "head 256", wrong_at_head_256},
    };
    const wrong_case *cases = card_is_simulated() ? gfx1201 : sm90a;
    const size_t count = card_is_simulated() ? RDI_COUNT(gfx1201) : RDI_COUNT(sm90a);
    rd_ctx *ctx = unchecked_ctx();
    if (!ctx) skip();
    ctx->log = (rdi_log){keep_log, NULL};
    for (size_t i = 0; i < count; i++) {
        rdi_row row = built_row(cases[i].row);
        char expected[256];
        bool bad = false;
        right = row.geometry, row.geometry = cases[i].wrong;
        ctx->table = (rdi_table){&row, 1, false};
        logged[0] = 0;
        must(rdi_first_use_run(ctx, &bad));
        snprintf(expected, sizeof expected,
                 "%s is left out: its results are not those of the reference at %s\n", cases[i].row,
                 cases[i].where);
        assert_string_equal(logged, expected);
        assert_true(bad);
    }
    ctx->table = rdi_table_built();
    rd_ctx_free(ctx);
}

// With its step row gone, a step is refused by name; chunk rows give other bits.
static void test_a_class_that_failed_is_refused(void **state) {
    (void)state;
    rd_ctx *ctx = unchecked_ctx();
    if (!ctx) skip();
    char command[8192];
    snprintf(command, sizeof command, "rm -f '%s'/radiance/rows-*", cache);
    assert_int_equal(system(command), 0);
    rdi_row rows[] = {built_row(named("gemm_fp8block_step")), built_row(named("gemm_fp8block_chunk"))};
    right = rows[0].geometry, rows[0].geometry = wrong_at_128_rows;
    ctx->table = (rdi_table){rows, 2, false};
    ctx->log = (rdi_log){keep_log, NULL};
    logged[0] = 0;
    must(rdi_first_use_apply(ctx));
    rd_param params[] = {RD_INT("n", 256),           RD_INT("k", 512),
                         RD_WORD("a_dtype", "fp8"),  RD_WORD("w_scale_dtype", "fp32"),
                         RD_WORD("c_dtype", "bf16"), RD_WORD("layout", "row"),
                         RD_INT("bias", 0),          RD_WORD("order", "step")};
    rd_plan *plan = NULL;
    refused(rd_plan_create(ctx, "gemm_fp8block", params, 8, 1, 16, &plan), RD_E_UNSUPPORTED,
            "order=step, its class is chunk; gemm_fp8block_step_");
    params[7].word = "chunk";
    must(rd_plan_create(ctx, "gemm_fp8block", params, 8, 1, 16, &plan));
    rd_plan_free(plan);
    rd_ctx_free(ctx);
}

// A file where the folder should be: what the check found holds for this context, and the next start is told that it checks again.
static void test_a_folder_that_cannot_be_written(void **state) {
    (void)state;
    rd_ctx *ctx = unchecked_ctx();
    if (!ctx) skip();
    char command[8192];
    snprintf(command, sizeof command, "cd '%s' && rm -rf radiance && touch radiance", cache);
    assert_int_equal(system(command), 0);
    ctx->log = (rdi_log){keep_log, NULL};
    logged[0] = 0;
    must(rdi_first_use_apply(ctx));
    char file[256];
    snprintf(file, sizeof file, "/radiance/rows-%s", model_of(ctx));
    for (char *c = file + strlen("/radiance/"); *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '-';
    assert_non_null(strstr(logged, file));
    assert_non_null(strstr(logged, "cannot be written: Not a directory"));
    assert_int_equal(ctx->table.count, rdi_row_count);
    rd_ctx_free(ctx);
    snprintf(command, sizeof command, "rm '%s'/radiance", cache);
    assert_int_equal(system(command), 0);
}

// ---- a row that stops the card -------------------------------------------------------------------------------------------
static rdi_driver stopping; // the card's own, which act_mul's launch stops
static const rdi_driver *the_real;
static bool stopped, hangs;
static int waits_after;
static rd_status watch_launch(rdi_card *card, void *kernel, const rdi_launch *launch, void *stream) {
    stopped |= strstr(launch->kernel, "rdk_act_mul_") != NULL;
    return the_real->launch(card, kernel, launch, stream);
}
static rd_status watch_ready(rdi_card *card, void *stream, bool *ready) {
    if (!stopped || !hangs) return the_real->stream_ready(card, stream, ready);
    *ready = false;
    return RD_OK;
}
static rd_status watch_sync(rdi_card *card, void *stream) {
    waits_after += stopped && hangs;
    return stopped ? rdi_fail(RD_E_DEVICE, "%s: lost", card->name) : the_real->stream_sync(card, stream);
}
static rd_status watch_free(rdi_card *card, void *pointer) { // a vendor's waits for the kernel
    waits_after += stopped && hangs;
    return the_real->free(card, pointer);
}

static void open_stopping(rd_ctx **ctx) {
    *ctx = unchecked_ctx();
    the_real = (*ctx)->device->card->driver;
    stopping = *the_real;
    stopping.launch = watch_launch;
    stopping.stream_ready = watch_ready;
    stopping.stream_sync = watch_sync;
    stopping.free = watch_free;
    (*ctx)->device->card->driver = &stopping;
    (*ctx)->log = (rdi_log){keep_log, NULL};
    logged[0] = 0, stopped = false, waits_after = 0;
}

// It hangs, or it loses the card: the context is refused with the row's name, nothing waits for the kernel, and from the next
// start on everything else is there.
static void check_stopping_row(const char *why) {
    rd_ctx *ctx;
    char command[8192];
    snprintf(command, sizeof command, "rm -f '%s'/radiance/rows-*", cache);
    assert_int_equal(system(command), 0);
    open_stopping(&ctx);
    char text[256];
    snprintf(text, sizeof text, "first use: %s stopped the card and is left out from now on: start again",
             named("act_mul"));
    refused(rdi_first_use_apply(ctx), RD_E_DEVICE, text);
    if (!strstr(rd_error_text(), why)) fail_msg("%s", rd_error_text());
    assert_int_equal(waits_after, 0);
    rd_ctx_free(ctx);
    assert_int_equal(waits_after, 0);
    open_stopping(&ctx);
    must(rdi_first_use_apply(ctx));
    assert_false(has_row(ctx, named("act_mul")));
    assert_true(has_row(ctx, named("rmsnorm")));
    assert_non_null(strstr(logged, "1 kernels failed their check"));
    ctx->device->card->driver = the_real;
    rd_ctx_free(ctx);
}
static void test_a_row_that_stops_the_card(void **state) {
    (void)state;
    rd_ctx *ctx = unchecked_ctx();
    if (!ctx) skip();
    rd_ctx_free(ctx);
    hangs = false;
    check_stopping_row("lost");
    hangs = true; // two seconds
    char text[256];
    snprintf(text, sizeof text, "%s did not end in 2 seconds", named("act_mul"));
    check_stopping_row(text);
}

// Two seconds are a row's, not a case's: 1.2 for each of two are too many.
static struct timespec launched;
static rd_status slow_launch(rdi_card *card, void *kernel, const rdi_launch *launch, void *stream) {
    clock_gettime(CLOCK_MONOTONIC, &launched);
    return the_real->launch(card, kernel, launch, stream);
}
static rd_status slow_ready(rdi_card *card, void *stream, bool *ready) {
    (void)card, (void)stream;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *ready = (double)(now.tv_sec - launched.tv_sec) + 1e-9 * (double)(now.tv_nsec - launched.tv_nsec) > 1.2;
    return RD_OK;
}
static void test_two_seconds_are_a_rows(void **state) {
    (void)state;
    rd_ctx *ctx = unchecked_ctx();
    if (!ctx) skip();
    rdi_row row = built_row(named("gemm_fp8block_step"));
    bool bad = false;
    the_real = ctx->device->card->driver;
    stopping = *the_real;
    stopping.launch = slow_launch;
    stopping.stream_ready = slow_ready;
    ctx->device->card->driver = &stopping;
    ctx->log = (rdi_log){keep_log, NULL};
    ctx->table = (rdi_table){&row, 1, false};
    logged[0] = 0;
    char text[256];
    snprintf(text, sizeof text, "%s did not end in 2 seconds", named("gemm_fp8block_step"));
    refused(rdi_first_use_run(ctx, &bad), RD_E_DEVICE, text);
    assert_true(bad);
    rd_ctx_free(ctx);
}

// The command on a card, or on a "card": the simulator under the name that a real one has.
static void test_trust_skips(void **state) {
    (void)state;
    static cli_result result;
    char environment[8192], command[8192], answer[80];
    snprintf(command, sizeof command, "rm -f '%s'/radiance/rows-*", cache);
    snprintf(answer, sizeof answer, "%s\n", named("act_mul"));
    const char *question = "select act_mul m=1 k=512 act=silu x_dtype=bf16 y_dtype=bf16 --device gpu:0";
    for (int trust = 1; trust >= 0; trust--) {
        assert_int_equal(system(command), 0);
        snprintf(environment, sizeof environment, "RADIANCE_LOG=info RADIANCE_TRUST=%d %s='%s'", trust,
                 card_is_simulated() ? "RADIANCE_HIP_LIBRARY" : "RADIANCE_TEST_CARD",
                 card_is_simulated() ? RD_SIM_LIBRARY : card_device());
        cli_run(environment, question, &result);
        if (result.code == RD_E_NO_DEVICE || strstr(result.err, "built without")) skip();
        if (result.code) fail_msg("%s", result.err);
        assert_string_equal(result.out, answer);
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
        cmocka_unit_test(test_a_row_that_is_wrong_at_its_second_case),
        cmocka_unit_test(test_a_class_that_failed_is_refused),
        cmocka_unit_test(test_a_folder_that_cannot_be_written),
        cmocka_unit_test(test_a_row_that_stops_the_card),
        cmocka_unit_test(test_two_seconds_are_a_rows),
        cmocka_unit_test(test_trust_skips),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[8192];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    return system(command) ? 1 : failed;
}
