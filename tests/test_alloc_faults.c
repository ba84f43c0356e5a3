// SPDX-License-Identifier: Apache-2.0
// Whole paths of the runner with every allocation failing in turn (builds with RADIANCE_FAULTS: the asan preset): "out of
// memory" or a success, no crash, no leak, nothing half made. Elsewhere each loop ends after its first, good, round.
#include "support/tiny_gguf.h"
#include "support/tiny_model.h"

#include "base/base.h"
#include "radiance_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

// Runs the path until no allocation is left to fail: the last round must succeed.
static void fail_every_allocation(rd_status (*path)(void *state),
                                  void (*after)(void *state, rd_status status), void *state) {
    for (int64_t n = 1;; n++) {
        rdi_alloc_fail_at(n);
        rd_status status = path(state);
        int64_t used = rdi_alloc_count();
        rdi_alloc_fail_at(0);
        if (after) after(state, status);
        if (status != RD_OK && status != RD_E_NOMEM)
            fail_msg("allocation %lld of %lld: %s, \"%s\"", (long long)n, (long long)used,
                     rd_status_name(status), rd_error_text());
        if (used >= n) continue;
        assert_int_equal(status, RD_OK);
        return;
    }
}

typedef struct convert_path {
    scratch s;
    char in[128], out[128];
} convert_path;
static rd_status convert(void *state) {
    const convert_path *p = state;
    return rd_convert(p->in, p->out, NULL);
}
static void expect_all_or_nothing(void *state, rd_status status) {
    const convert_path *p = state;
    assert_int_equal(scratch_entries(p->out), status == RD_OK ? 5 : -1);
    assert_int_equal(scratch_entries(p->s.folder), status == RD_OK ? 2 : 1); // no partial folder
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", p->out);
    assert_int_equal(system(command), 0);
}
static void test_alloc_faults_convert_gguf(void **state) {
    (void)state;
    convert_path p = {.s = scratch_make()};
    snprintf(p.in, sizeof p.in, "%s/tiny.gguf", p.s.folder),
        snprintf(p.out, sizeof p.out, "%s/out", p.s.folder);
    tiny_gguf_write(p.in);
    fail_every_allocation(convert, expect_all_or_nothing, &p);
    scratch_remove(&p.s);
}

static rd_status speak(const rd_tokenizer *t) {
    static const rd_chat_message messages[] = {{"user", "hi e\xcc\x81"}};
    char text[256], back[256];
    int32_t ids[128];
    size_t bytes = sizeof text, back_bytes = sizeof back;
    int64_t count = 128;
    rd_status status = rd_chat_render(t, messages, 1, 1, text, &bytes);
    if (status == RD_OK) status = rd_tokenize(t, text, bytes - 1, RD_TOKENIZE_SPECIAL, ids, &count);
    return status == RD_OK ? rd_detokenize(t, ids, count, 1, back, &back_bytes) : status;
}
static rd_status tokenizer(void *state) {
    rd_tokenizer *t;
    rd_status status = rd_tokenizer_open(state, &t);
    if (status == RD_OK) status = speak(t);
    rd_tokenizer_close(t);
    return status;
}
static void test_alloc_faults_tokenizers(void **state) {
    (void)state;
    scratch s = scratch_make();
    char folder[128], file[128];
    snprintf(folder, sizeof folder, "%s/m", s.folder), snprintf(file, sizeof file, "%s/m.gguf", s.folder);
    assert_int_equal(tiny_model_write(folder, &(tiny_model_options){.layers = 1}), 0);
    tiny_gguf_write(file);
    fail_every_allocation(tokenizer, NULL, folder);
    fail_every_allocation(tokenizer, NULL, file);
    scratch_remove(&s);
}

static rd_status generate(rd_engine *engine) {
    static const int32_t prompt[] = {1, 2, 3, 4, 5};
    rd_session *session = NULL;
    int32_t ids[3];
    const rd_generate_options options = {.struct_size = sizeof options,
                                         .max_tokens = 3,
                                         .ignore_end = 1,
                                         .sampling = {.temperature = 1, .top_p = 0.9f}};
    rd_generate_result result = {.struct_size = sizeof result};
    RDI_TRY(rd_session_create(engine, &session));
    rd_status status = rd_generate(session, prompt, 5, &options, ids, &result);
    rd_session_free(session);
    return status;
}
static rd_status run_model(void *state) {
    rd_model *model = NULL;
    rd_ctx *ctx = NULL;
    rd_engine *engine = NULL;
    rd_memory_report memory = {.struct_size = sizeof memory};
    const rd_ctx_options options = {.struct_size = sizeof options, .threads = 2};
    const rd_engine_options engine_options = {.struct_size = sizeof engine_options,
                                              .kv_dtype = RD_DTYPE_E4M3,
                                              .activation = RD_ACT_W8A8,
                                              .max_sessions = 2};
    char report[8192];
    size_t bytes = sizeof report;
    rd_status status = rd_model_open(state, &model);
    if (status == RD_OK) status = rd_ctx_create(&options, &ctx);
    if (status == RD_OK) status = rd_engine_memory(ctx, model, &engine_options, &memory);
    if (status == RD_OK) status = rd_engine_create(ctx, model, &engine_options, &engine);
    if (status == RD_OK) status = generate(engine);
    if (status == RD_OK) status = rd_report_text(ctx, report, &bytes);
    rd_engine_free(engine);
    rd_ctx_free(ctx);
    rd_model_close(model);
    return status;
}
static void test_alloc_faults_from_open_to_report(void **state) {
    (void)state;
    convert_path p = {.s = scratch_make()};
    snprintf(p.in, sizeof p.in, "%s/tiny.gguf", p.s.folder),
        snprintf(p.out, sizeof p.out, "%s/out", p.s.folder);
    tiny_gguf_write(p.in);
    assert_int_equal(rd_convert(p.in, p.out, NULL), RD_OK);
    fail_every_allocation(run_model, NULL, p.in);
    fail_every_allocation(run_model, NULL, p.out);
    scratch_remove(&p.s);
}

static rd_status profile(void *state) {
    rd_model *model = NULL;
    rd_engine *engine = NULL;
    rd_ctx *ctx = NULL;
    const rd_ctx_options options = {.struct_size = sizeof options, .threads = 1};
    const rd_engine_options engine_options = {.struct_size = sizeof engine_options, .context_tokens = 64};
    const rd_profile_options o = {.struct_size = sizeof o, .context_tokens = 20, .repeats = 1};
    rd_profile p = {.struct_size = sizeof p};
    double gbs;
    rd_status status = rd_model_open_random(state, 3, &model);
    if (status == RD_OK) status = rd_ctx_create(&options, &ctx);
    if (status == RD_OK) status = rd_ctx_measure_read(ctx, 1 << 16, &gbs);
    if (status == RD_OK) status = rd_engine_create(ctx, model, &engine_options, &engine);
    if (status == RD_OK) status = rd_engine_profile(engine, &o, &p);
    rd_engine_free(engine);
    rd_ctx_free(ctx);
    rd_model_close(model);
    return status;
}
static void test_alloc_faults_random_model_and_profile(void **state) {
    (void)state;
    fail_every_allocation(profile, NULL, (void *)(uintptr_t)(RD_TEST_DIR "/../bench/shapes/tiny.json"));
}

static rd_status ask(void *state) {
    static const rd_param params[] = {RD_INT("vocab", 100)};
    rd_ctx *ctx = state;
    const rd_kernel_info *kernel;
    rd_plan *plan;
    char report[2048];
    size_t bytes = sizeof report;
    RDI_TRY(rd_kernel_select(ctx, "sample", params, 1, &kernel));
    RDI_TRY(rd_plan_create(ctx, "sample", params, 1, 0, 0, &plan));
    rd_plan_free(plan);
    return rd_report_text(ctx, report, &bytes);
}
// One context lives through all of it: a failed question leaves the record whole.
static void test_alloc_faults_select_and_report(void **state) {
    (void)state;
    rd_ctx *ctx;
    const rd_ctx_options options = {.struct_size = sizeof options, .device = "x86-avx512"};
    assert_int_equal(rd_ctx_create(&options, &ctx), RD_OK);
    fail_every_allocation(ask, NULL, ctx);
    rd_selection selection;
    assert_int_equal(rd_selection_at(ctx, 0, &selection), RD_OK);
    assert_int_equal(rd_selection_at(ctx, 1, &selection), RD_E_LIMIT);
    rd_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_faults_convert_gguf),
        cmocka_unit_test(test_alloc_faults_tokenizers),
        cmocka_unit_test(test_alloc_faults_from_open_to_report),
        cmocka_unit_test(test_alloc_faults_random_model_and_profile),
        cmocka_unit_test(test_alloc_faults_select_and_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
