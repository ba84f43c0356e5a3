// SPDX-License-Identifier: Apache-2.0
// What goes wrong with an NVIDIA card, over a driver with nothing behind it: every driver call of a whole engine's life fails
// in turn, alone (with an error or with no memory) or for good, as after a kernel's fault. Each time the error names the card
// and the call, everything can be freed, and nothing stays open; a session whose step failed goes on where it was.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // setenv
#endif
#include "support/card_rig.h"

#include <stdlib.h>

#include "backend/backend.h"
#include "engine/engine.h"
#include "ops/ctx.h"
#include "ops/first_use.h"
#include "radiance_run.h"
#include "run_cli.h"
#include "support/fake_cuda.h"
#include "support/files.h"

static fake_cuda fake;
static rd_model *model;
enum { PROMPT = 5, STEPS = 3, CONTEXT = 64, OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };
static const int32_t prompt[PROMPT] = {3, 1, 4, 1, 5};

// ---- one life: open, load, prefill, steps alone (run, recorded, replayed) and together, free --------------------------------
typedef struct life {
    rd_ctx *ctx;
    rd_engine *engine;
    rd_session *session[2];
} life;

static rd_engine_options engine_options(rd_dtype kv) {
    return (rd_engine_options){.struct_size = sizeof(rd_engine_options),
                               .context_tokens = CONTEXT,
                               .max_sessions = 2,
                               .max_batch_rows = 32,
                               .kv_dtype = kv,
                               .activation = RD_ACT_W8A8};
}

static rd_status start(life *l, rd_dtype kv) {
    const rd_ctx_options ctx = {.struct_size = sizeof ctx, .device = "gpu:0", .threads = 1};
    const rd_engine_options engine = engine_options(kv);
    RDI_TRY(rd_ctx_create(&ctx, &l->ctx));
    RDI_TRY(rd_engine_create(l->ctx, model, &engine, &l->engine));
    for (int i = 0; i < 2; i++) RDI_TRY(rd_session_create(l->engine, &l->session[i]));
    return RD_OK;
}

static rd_status use(life *l) {
    int32_t ids[4];
    const rd_generate_options options = {.struct_size = sizeof options, .max_tokens = 4, .ignore_end = 1};
    rd_generate_result result = {.struct_size = sizeof result};
    RDI_TRY(rd_generate(l->session[0], prompt, PROMPT, &options, ids, &result));
    RDI_TRY(rd_session_sync(l->session[1], prompt, PROMPT, NULL, NULL));
    for (int i = 0; i < STEPS; i++) {
        const rd_step_item items[] = {{.session = l->session[0], .ids = prompt, .count = 1},
                                      {.session = l->session[1], .ids = prompt, .count = 1}};
        RDI_TRY(rd_engine_step(l->engine, items, 2));
    }
    return rd_session_logits(l->session[1]) ? RD_OK : RD_E_DEVICE;
}

static void end(life *l) {
    for (int i = 0; i < 2; i++) rd_session_free(l->session[i]);
    rd_engine_free(l->engine);
    rd_ctx_free(l->ctx);
}

static rd_status live(rd_dtype kv) {
    life l = {0};
    rd_status status = start(&l, kv);
    if (status == RD_OK) status = use(&l);
    char text[512];
    snprintf(text, sizeof text, "%s", rd_error_text()); // freeing may fail too, and says so to nobody
    end(&l);
    if (status != RD_OK) rdi_fail(status, "%s", text);
    return status;
}

// How many driver calls a good life has; 0: this build lacks a row that it needs.
static int calls_of_a_life(rd_dtype kv) {
    fake.reset(9, 13000, 1);
    rd_status status = live(kv);
    if (status == RD_E_UNSUPPORTED) {
        print_message("%s\n", rd_error_text());
        return 0;
    }
    must(status);
    assert_int_equal(fake.open(), 0);
    assert_true(fake.launches() > 50);
    return fake.calls();
}

// Every call with RADIANCE_TEST_FULL=1, else every `stride`-th (a prime: calls come in groups of a few alike).
static int next_call(int nth, int stride) {
    const char *full = getenv("RADIANCE_TEST_FULL");
    return nth < 20 || (full && *full == '1') ? nth + 1 : nth + stride;
}

static void fail_each(rd_dtype kv, int error, rd_status wanted) {
    const int calls = calls_of_a_life(kv);
    if (!calls) skip();
    int failed = 0;
    for (int nth = 1; nth <= calls; nth = next_call(nth, 11)) {
        fake.reset(9, 13000, 1);
        fake.fail_at(nth, error);
        const rd_status status = live(kv);
        const bool push = !strcmp(fake.call(nth - 1), "cuCtxPushCurrent_v2");
        // A context that cannot be entered keeps what it was entered to release.
        if (fake.open() > push) fail_msg("call %d, %s: %d open", nth, fake.call(nth - 1), fake.open());
        if (status == RD_OK) continue; // a release, or a look at the current context
        failed++;
        if (nth < 4) continue; // the library's own first calls are made once
        if (status != wanted && status != RD_E_DEVICE) fail_msg("call %d: status %d", nth, status);
        if (!strstr(rd_error_text(), "gpu:0: ") && !strstr(rd_error_text(), "card 0: "))
            fail_msg("call %d, %s: \"%s\"", nth, fake.call(nth - 1), rd_error_text());
    }
    print_message("%d of %d calls made to fail ended a life\n", failed, calls);
    assert_true(failed > 20);
}

static void test_every_call_fails_in_turn(void **state) {
    (void)state;
    fail_each(RD_DTYPE_E4M3, ILLEGAL_ADDRESS, RD_E_DEVICE);
}
// During weights, the cache, graphs: whatever is asked for more.
static void test_no_memory_at_any_call(void **state) {
    (void)state;
    fail_each(RD_DTYPE_BF16, OUT_OF_MEMORY, RD_E_NOMEM);
}

// A kernel's fault is told by the next call that waits, and then by every call: all can be freed, nothing hangs.
static void test_a_fault_at_any_call(void **state) {
    (void)state;
    const int calls = calls_of_a_life(RD_DTYPE_BF16);
    if (!calls) skip();
    for (int nth = 1; nth <= calls; nth = next_call(nth, 23)) {
        fake.reset(9, 13000, 1);
        fake.break_from(nth, LAUNCH_FAILED);
        const rd_status status = live(RD_DTYPE_BF16);
        if (fake.open()) fail_msg("call %d, %s: %d open", nth, fake.call(nth - 1), fake.open());
        if (status != RD_OK && nth >= 4 && !strstr(rd_error_text(), "CUDA_ERROR_LAUNCH_FAILED"))
            fail_msg("call %d, %s: \"%s\"", nth, fake.call(nth - 1), rd_error_text());
    }
}

// A step that fails (launch, recording, replay) leaves its sessions where they were; the next one works.
static void test_a_failed_step_can_be_repeated(void **state) {
    (void)state;
    life l = {0};
    fake.reset(9, 13000, 1);
    rd_status status = start(&l, RD_DTYPE_BF16);
    if (status == RD_E_UNSUPPORTED) {
        end(&l);
        skip();
    }
    must(status);
    must(rd_session_sync(l.session[0], prompt, PROMPT, NULL, NULL));
    const rd_step_item item = {.session = l.session[0], .ids = prompt, .count = 1};
    int failed = 0;
    // The first step runs kernel by kernel, the second is recorded, later ones replayed: each is failed at every call.
    for (int step = 0; step < 3; step++)
        for (int nth = 1;; nth++) {
            fake.fail_at(nth, ILLEGAL_ADDRESS);
            const int64_t before = rd_session_tokens(l.session[0]);
            status = rd_engine_step(l.engine, &item, 1);
            fake.fail_at(0, 0);
            if (status == RD_OK) break;
            failed++;
            assert_int_equal(status, RD_E_DEVICE);
            assert_int_equal(rd_session_tokens(l.session[0]), before);
            assert_true(nth < 2000);
            if (before > CONTEXT - 8) break; // steps that run are steps on the way
        }
    assert_true(failed > 20);
    must(rd_engine_step(l.engine, &item, 1));
    end(&l);
    assert_int_equal(fake.open(), 0);
}

// Weights, cache and all else against the card's free memory, to the byte, before anything is asked of it.
static void test_what_cannot_fit_is_refused_at_once(void **state) {
    (void)state;
    life l = {0};
    fake.reset(9, 13000, 1);
    fake.set_memory(4321, (size_t)8 << 30);
    rd_status status = start(&l, RD_DTYPE_BF16);
    if (status == RD_E_UNSUPPORTED) {
        end(&l);
        skip();
    }
    const rd_engine_options options = engine_options(RD_DTYPE_BF16);
    rd_memory_report report = {.struct_size = sizeof report};
    char text[512], part[128];
    size_t needed = 0;
    assert_int_equal(status, RD_E_NOMEM);
    snprintf(text, sizeof text, "%s", rd_error_text());
    for (int i = 0; i < fake.calls(); i++) assert_string_not_equal(fake.call(i), "cuMemAlloc_v2");
    must(rd_engine_memory(l.ctx, model, &options, &report));
    end(&l);
    assert_int_equal(fake.open(), 0);
    if (sscanf(text, "engine: context_tokens=64, max_sessions=2: needs %zu bytes", &needed) != 1 ||
        !strstr(text, ", gpu:0 has 4321 free"))
        fail_msg("%s", text);
    snprintf(part, sizeof part, "(weights %lld, KV cache %lld, ", (long long)report.weights_packed,
             (long long)report.kv_cache);
    if (!strstr(text, part)) fail_msg("%s: no \"%s\"", text, part);
    const int64_t least = report.weights_packed + report.kv_cache + report.workspace;
    assert_true((int64_t)needed > least && (int64_t)needed <= least + report.activations);
    for (int short_of = 0; short_of < 2; short_of++) {
        l = (life){0};
        fake.reset(9, 13000, 1);
        fake.set_memory(needed - (size_t)short_of, (size_t)8 << 30);
        assert_int_equal(start(&l, RD_DTYPE_BF16), short_of ? RD_E_NOMEM : RD_OK);
        end(&l);
        assert_int_equal(fake.open(), 0);
    }
}

// The check at first use, over kernels that do nothing: every row is left out; and whatever call fails, nothing stays open.
static void test_first_use(void **state) {
    (void)state;
    bool *bad = calloc((size_t)rdi_row_count, sizeof *bad);
    int rows = 0, calls = 0;
    assert_non_null(bad);
    for (int nth = 0; nth <= calls; nth += 31) { // a prime: every kind of call of some row
        rd_ctx *ctx = NULL;
        const rd_ctx_options options = {.struct_size = sizeof options, .device = "gpu:0", .threads = 1};
        fake.reset(9, 13000, 1);
        must(rd_ctx_create(&options, &ctx));
        const int before = fake.calls();
        if (nth) fake.fail_at(nth, ILLEGAL_ADDRESS);
        const rd_status status = rdi_first_use_run(ctx, bad);
        fake.fail_at(0, 0);
        if (!nth) {
            must(status);
            calls = fake.calls() - before;
            for (int32_t i = 0; i < rdi_row_count; i++) {
                if (rdi_rows[i].backend != RDI_BACKEND_NVIDIA) continue;
                rows++;
                if (!bad[i]) fail_msg("%s passes with kernels that do nothing", rdi_rows[i].info.name);
            }
        }
        rd_ctx_free(ctx);
        const bool push = nth && !strcmp(fake.call(before + nth - 1), "cuCtxPushCurrent_v2");
        if (fake.open() > push)
            fail_msg("call %d, %s: %d open", nth, fake.call(before + nth - 1), fake.open());
    }
    free(bad);
    if (!rows) skip(); // built without nvcc
}

// One wide item among many: no graph has that shape. All of a step's rows are one pass, wherever the wide item stands: attention
// is called for each width, and so takes no more of the workspace than a step of one width does.
static void test_mixed_widths_fit_the_workspace(void **state) {
    (void)state;
    enum { SESSIONS = 40, DEEP = 60000 };
    static int32_t deep_prompt[DEEP]; // zeros will do
    static const int32_t ids[RD_MAX_VERIFY_WIDTH] = {3, 1, 4, 1, 5};
    const rd_ctx_options ctx = {.struct_size = sizeof ctx, .device = "gpu:0", .threads = 1};
    const rd_engine_options options = {.struct_size = sizeof options,
                                       .max_sessions = SESSIONS,
                                       .max_batch_rows = 64,
                                       .activation = RD_ACT_W8A8};
    static const char config[] = // long: partial results of attention need more room than any GEMM's
        "{\"model_type\":\"qwen3\",\"num_hidden_layers\":1,\"hidden_size\":128,\"intermediate_size\":128,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":64,\"vocab_size\":320,"
        "\"max_position_embeddings\":65536}";
    scratch folder = scratch_make();
    rd_model *deep = NULL;
    life l = {0};
    rd_session *session[SESSIONS];
    file_write(scratch_path(&folder, "config.json"), config, sizeof config - 1);
    must(rd_model_open_random(scratch_path(&folder, "config.json"), 7, &deep));
    scratch_remove(&folder);
    rd_step_item items[SESSIONS];
    fake.reset(9, 13000, 1);
    must(rd_ctx_create(&ctx, &l.ctx));
    const rd_status created = rd_engine_create(l.ctx, deep, &options, &l.engine);
    if (created == RD_E_UNSUPPORTED) { // built without nvcc
        rd_ctx_free(l.ctx);
        rd_model_close(deep);
        skip();
    }
    must(created);
    for (int i = 0; i < SESSIONS; i++) {
        must(rd_session_create(l.engine, &session[i]));
        must(rd_session_sync(session[i], deep_prompt, i ? PROMPT : DEEP, NULL, NULL));
        items[i] = (rd_step_item){.session = session[i], .ids = ids, .count = 1};
    }
    for (int wide = 0; wide < SESSIONS; wide += SESSIONS - 1) { // the first, the last
        items[wide].count = RD_MAX_VERIFY_WIDTH;
        const int64_t before = l.engine->passes[RDI_PASS_STEP];
        must(rd_engine_step(l.engine, items, SESSIONS));
        assert_int_equal(l.engine->passes[RDI_PASS_STEP] - before, 1); // 56 rows of 64
        items[wide].count = 1;
    }
    for (int i = 0; i < SESSIONS; i++) items[i].count = 1 + i % 2; // 60 rows, no two neighbours of one width
    const int64_t before = l.engine->passes[RDI_PASS_STEP];
    must(rd_engine_step(l.engine, items, SESSIONS));
    assert_int_equal(l.engine->passes[RDI_PASS_STEP] - before, 1);
    for (int i = 0; i < SESSIONS; i++) items[i].count = 3; // 120 rows
    must(rd_engine_step(l.engine, items, SESSIONS));
    assert_int_equal(l.engine->passes[RDI_PASS_STEP] - before, 3);
    for (int i = 0; i < SESSIONS; i++) rd_session_free(session[i]);
    rd_engine_free(l.engine);
    rd_model_close(deep);
    rd_ctx_free(l.ctx);
}

// Kernels count keys in 32 bits: a block table of more is refused before a size is reckoned from it.
static void test_a_block_table_of_too_many_keys(void **state) {
    (void)state;
    static const char *const ops[] = {"attn_decode", "attn_prefill"};
    static uint64_t memory[8]; // nothing is read
    const rd_ctx_options options = {.struct_size = sizeof options, .device = "gpu:0", .threads = 1};
    const rd_param params[] = {RD_INT("head_dim", 128),     RD_INT("gqa", 4),
                               RD_INT("block_tokens", 64),  RD_WORD("q_dtype", "bf16"),
                               RD_WORD("kv_dtype", "bf16"), RD_WORD("out_dtype", "bf16"),
                               RD_WORD("k_order", "dim"),   RD_INT("causal", 1)};
    rd_ctx *ctx = NULL;
    fake.reset(9, 13000, 1);
    must(rd_ctx_create(&options, &ctx));
    for (int i = 0; i < 2; i++) {
        rd_plan *plan = NULL;
        const rd_status made = rd_plan_create(ctx, ops[i], params, (int32_t)RDI_COUNT(params), 1, 8, &plan);
        if (made == RD_E_UNSUPPORTED) break; // built without nvcc
        must(made);
        rd_attn_args args = {.struct_size = sizeof args,
                             .q = rd_tensor_3d(memory, RD_DTYPE_BF16, 8, 8, 128),
                             .k_cache = rd_tensor_4d(memory, RD_DTYPE_BF16, 4, 64, 2, 128),
                             .kv_lens = rd_tensor_1d(memory, RD_DTYPE_I32, 1),
                             .q_starts = rd_tensor_1d(memory, RD_DTYPE_I32, 2),
                             .scale = 1,
                             .max_q_len = 8};
        args.out = args.q, args.v_cache = args.k_cache;
        for (int wide = 0; wide < 2; wide++) { // the last that fits, the first that does not
            args.block_table = rd_tensor_2d(memory, RD_DTYPE_I32, 1, (INT32_MAX - 4095) / 64 + wide);
            rd_tensor *const all[] = {&args.q,       &args.out,      &args.k_cache,    &args.v_cache,
                                      &args.kv_lens, &args.q_starts, &args.block_table};
            for (size_t t = 0; t < RDI_COUNT(all); t++) all[t]->device = rd_ctx_device_number(ctx);
            size_t bytes = 0;
            const rd_status status = rd_attn_run(plan, &args, NULL, &bytes, NULL);
            if (wide)
                refused(status, RD_E_INVALID, "shape[1]=33554369 blocks of 64 tokens, a card takes up to");
            else
                must(status);
        }
        rd_plan_free(plan);
    }
    rd_ctx_free(ctx);
}

static void test_words_for_a_missing_card(void **state) {
    (void)state;
    static cli_result result;
    static const struct {
        const char *mode, *text;
    } cases[] = {{"none", "shows no device (an NVIDIA card and its kernel driver are needed)"},
                 {"old", "is a driver for CUDA 11.8, needs 12.0 or later"},
                 {"broken", "cuInit: what the driver says"},
                 {"sm80", "sm_80, 132 units"}};
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        char environment[4200];
        snprintf(environment, sizeof environment, "FAKE_CUDA=%s RADIANCE_CUDA_LIBRARY='%s'", cases[i].mode,
                 RD_FAKE_CUDA);
        cli_run(environment, "devices", &result);
        assert_int_equal(result.code, 0);
        if (!strstr(result.out, cases[i].text)) fail_msg("%s: %s%s", cases[i].mode, result.out, result.err);
        cli_run(environment, "check --device gpu:0 --op embed", &result);
        if (!result.code) fail_msg("%s: a check without a card that runs kernels passed", cases[i].mode);
    }
    // A card whose driver names no multiprocessor: geometries would share work among none.
    cli_run("FAKE_CUDA=idle RADIANCE_CUDA_LIBRARY='" RD_FAKE_CUDA "'", "devices", &result);
    assert_int_equal(result.code, RD_E_DEVICE);
    assert_non_null(strstr(result.err, "device=gpu:0: compute_units=0, needs at least 1"));
    cli_run("RADIANCE_CUDA_LIBRARY=no_such_library.so", "devices", &result);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "nvidia: no_such_library.so: "));
}

static int make_model(void **state) {
    (void)state;
    must(rd_model_open_random(RD_TEST_DIR "/../bench/shapes/tiny.json", 7, &model));
    return fake_cuda_load(RD_FAKE_CUDA, &fake);
}
static int close_model(void **state) {
    (void)state;
    rd_model_close(model);
    return 0;
}

int main(void) {
    setenv("RADIANCE_CUDA_LIBRARY", RD_FAKE_CUDA, 1); // before the environment is read
    setenv("RADIANCE_HIP_LIBRARY", "no_such_library.so", 1);
    setenv("RADIANCE_TRUST", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_fails_in_turn),
        cmocka_unit_test(test_no_memory_at_any_call),
        cmocka_unit_test(test_a_fault_at_any_call),
        cmocka_unit_test(test_a_failed_step_can_be_repeated),
        cmocka_unit_test(test_what_cannot_fit_is_refused_at_once),
        cmocka_unit_test(test_first_use),
        cmocka_unit_test(test_mixed_widths_fit_the_workspace),
        cmocka_unit_test(test_a_block_table_of_too_many_keys),
        cmocka_unit_test(test_words_for_a_missing_card),
    };
    return cmocka_run_group_tests(tests, make_model, close_model);
}
