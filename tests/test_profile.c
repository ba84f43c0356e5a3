// SPDX-License-Identifier: Apache-2.0
// rd_engine_profile and models of random weights: which parts a pass has and how often, bytes and products against the shape's own
// arithmetic, refusals by field, sessions that work as before; on the CPU and on the simulated card. No time is judged.
#include "support/card_rig.h"
#include "support/files.h"

#include "radiance_run.h"

#include <math.h>
#include <stdlib.h>

static const char tiny[] = RD_TEST_DIR "/../bench/shapes/tiny.json";
// Of that file.
enum { LAYERS = 2, HIDDEN = 256, WIDE = 384, Q_DIM = 4 * 64, KV_DIM = 2 * 64, VOCAB = 320, CONTEXT = 128 };

typedef struct fixture {
    rd_ctx *ctx;
    rd_model *model;
    rd_engine *engine;
} fixture;

static bool open_fixture(fixture *f, const char *device, rd_dtype kv) {
    rd_ctx *probe = strncmp(device, "cpu", 3) ? card_ctx() : NULL;
    if (strcmp(device, "cpu") && strcmp(device, "cpu:ref") && !probe) return false;
    rd_ctx_free(probe);
    const rd_ctx_options ctx = {.struct_size = sizeof ctx, .device = device, .threads = 1};
    const rd_engine_options engine = {.struct_size = sizeof engine,
                                      .context_tokens = CONTEXT,
                                      .max_sessions = 3,
                                      .max_batch_rows = 32,
                                      .kv_dtype = kv,
                                      .activation = RD_ACT_W8A8};
    must(rd_ctx_create(&ctx, &f->ctx));
    must(rd_model_open_random(tiny, 5, &f->model));
    must(rd_engine_create(f->ctx, f->model, &engine, &f->engine));
    return true;
}

static void close_fixture(fixture *f) {
    rd_engine_free(f->engine);
    rd_model_close(f->model);
    rd_ctx_free(f->ctx);
}

static const rd_profile_part *part_named(const rd_profile *p, const char *name) {
    for (int32_t i = 0; i < p->part_count; i++)
        if (!strcmp(p->part[i].name, name)) return &p->part[i];
    fail_msg("no part %s", name);
    return NULL;
}

// Bytes and multiply-adds of n x k block-FP8 weights with f32 scales of 128x128 blocks.
static double fp8_bytes(int n, int k) {
    return (double)n * k + 4.0 * ((n + 127) / 128) * ((k + 127) / 128);
}
static double linear_elems(void) { // of a layer
    return (double)(Q_DIM + 2 * KV_DIM) * HIDDEN + (double)HIDDEN * Q_DIM + 3.0 * HIDDEN * WIDE;
}

static void check_calls(const rd_profile *p, int layers, bool upload) {
    static const struct {
        const char *name;
        int per_layer, more;
    } parts[] = {{"embed", 0, 1},
                 {"norm", 2, 1},
                 {"qkv", 1, 0},
                 {"rope", 1, 0},
                 {"kv_write", 1, 0},
                 {"attention", 1, 0},
                 {"quant_attention", 1, 0},
                 {"o", 1, 0},
                 {"gate_up", 1, 0},
                 {"act", 1, 0},
                 {"down", 1, 0},
                 {"head", 0, 1}};
    const bool fused = !strncmp(part_named(p, "rope")->kernel, "rope_kv_write", 13);
    int32_t calls = 0;
    double sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (fused && !strcmp(parts[i].name, "kv_write")) continue;
        const rd_profile_part *part = part_named(p, parts[i].name);
        assert_int_equal(part->calls, parts[i].per_layer * layers + parts[i].more);
        assert_non_null(rd_kernel_find(part->kernel));
        calls += part->calls;
    }
    for (int32_t i = 0; i < p->part_count; i++) {
        assert_true(p->part[i].us > 0);
        sum += p->part[i].us;
    }
    assert_int_equal(p->part_count, 12 - fused + upload);
    assert_int_equal(p->kernel_calls, calls);
    assert_true(fabs(sum - p->parts_us) <= 1e-9 * sum);
    assert_true(p->us_best > 0 && p->us_median >= p->us_best);
}

static void check_step(const char *device, rd_dtype kv, double kv_bytes) {
    fixture f;
    if (!open_fixture(&f, device, kv)) skip();
    const bool on_card = rd_ctx_device_number(f.ctx) != 0;
    const rd_profile_options o = {.struct_size = sizeof o, .sessions = 3, .context_tokens = 70, .repeats = 2};
    rd_profile p = {.struct_size = sizeof p};
    must(rd_engine_profile(f.engine, &o, &p));
    assert_int_equal(p.is_graph, on_card);
    check_calls(&p, LAYERS, on_card);
    const double keys = 3 * 71.0 * LAYERS;
    assert_true(part_named(&p, "gate_up")->bytes == LAYERS * fp8_bytes(2 * WIDE, HIDDEN));
    assert_true(part_named(&p, "down")->bytes == LAYERS * fp8_bytes(HIDDEN, WIDE));
    assert_true(part_named(&p, "head")->bytes == 2.0 * VOCAB * HIDDEN);
    assert_true(part_named(&p, "attention")->bytes == keys * 2 * KV_DIM * kv_bytes);
    assert_true(part_named(&p, "attention")->flops == 4 * keys * Q_DIM);
    assert_true(p.flops == 2 * 3 * (LAYERS * linear_elems() + (double)VOCAB * HIDDEN) + 4 * keys * Q_DIM);
    close_fixture(&f);
}

static void test_step_on_the_cpu(void **state) {
    (void)state;
    check_step("cpu", RD_DTYPE_BF16, 2);
    check_step("cpu:ref", RD_DTYPE_E4M3, 1);
}
static void test_step_on_a_card(void **state) {
    (void)state;
    check_step(card_device(), RD_DTYPE_E4M3, 1);
}

// A chunk of 20 after 30: the last layer's attention and all that follows it are of the last row alone.
static void test_prefill(void **state) {
    (void)state;
    fixture f;
    assert_true(open_fixture(&f, "cpu", RD_DTYPE_BF16));
    const rd_profile_options o = {
        .struct_size = sizeof o, .context_tokens = 30, .prefill_tokens = 20, .repeats = 1};
    rd_profile p = {.struct_size = sizeof p};
    must(rd_engine_profile(f.engine, &o, &p));
    check_calls(&p, LAYERS, false);
    assert_int_equal(p.is_graph, 0);
    const double pairs = 20 * 30 + 20 * 21 / 2 + 50; // keys seen by the chunk's rows; by the last one again
    assert_true(part_named(&p, "attention")->flops == 4 * pairs * Q_DIM);
    assert_true(part_named(&p, "qkv")->flops == 2.0 * LAYERS * 20 * HIDDEN * (Q_DIM + 2 * KV_DIM));
    assert_true(part_named(&p, "down")->flops == 2.0 * (20 + 1) * HIDDEN * WIDE);
    close_fixture(&f);
}

static void test_refusals(void **state) {
    (void)state;
    fixture f;
    rd_session *session = NULL;
    assert_true(open_fixture(&f, "cpu", RD_DTYPE_BF16));
    rd_profile_options o = {.struct_size = sizeof o, .sessions = 4, .context_tokens = 20};
    rd_profile p = {.struct_size = sizeof p};
    refused(rd_engine_profile(f.engine, &o, &p), RD_E_INVALID, "profile: sessions=4, needs 1 to 3");
    o.sessions = 1, o.context_tokens = CONTEXT;
    refused(rd_engine_profile(f.engine, &o, &p), RD_E_INVALID, "profile: context_tokens=128, needs 1 to 127");
    o.context_tokens = 0, o.prefill_tokens = 33;
    refused(rd_engine_profile(f.engine, &o, &p), RD_E_INVALID, "profile: prefill_tokens=33, needs 0 to 32");
    o.prefill_tokens = 0, o.context_tokens = 9, o.repeats = -1;
    refused(rd_engine_profile(f.engine, &o, &p), RD_E_INVALID, "profile: repeats=-1");
    o.repeats = 1;
    refused(rd_engine_profile(f.engine, &o, NULL), RD_E_INVALID, "profile: out is NULL");
    p.struct_size = 4;
    refused(rd_engine_profile(f.engine, &o, &p), RD_E_INVALID, "struct_size=");
    p.struct_size = sizeof p;
    must(rd_session_create(f.engine, &session));
    refused(rd_engine_profile(f.engine, &o, &p), RD_E_STATE, "a session is open");
    rd_session_free(session);
    must(rd_engine_profile(f.engine, &o, &p));
    close_fixture(&f);
}

static int stop_at(void *state, const char *what, int64_t done, int64_t total) {
    assert_string_equal(what, "profile");
    assert_true(done >= 0 && done < total);
    return --*(int *)state == 0;
}

// Stopped at its first sample, within the whole pass and within a part: the engine serves the next call.
static void test_stopping(void **state) {
    (void)state;
    fixture f;
    assert_true(open_fixture(&f, "cpu", RD_DTYPE_BF16));
    for (int calls = 1; calls < 40; calls += 7) {
        int left = calls;
        rd_profile_options o = {.struct_size = sizeof o,
                                .sessions = 3,
                                .context_tokens = 127,
                                .repeats = 2,
                                .progress = stop_at,
                                .progress_state = &left};
        rd_profile p = {.struct_size = sizeof p};
        refused(rd_engine_profile(f.engine, &o, &p), RD_E_CANCELLED, "profile: stopped");
        assert_int_equal(left, 0);
        o.progress = NULL, o.repeats = 1;
        must(rd_engine_profile(f.engine, &o, &p));
        check_calls(&p, LAYERS, false);
    }
    close_fixture(&f);
}

// 2^26 blocks of 64 tokens: what an engine asks for is what its report says, beyond 32 bits of tokens too.
static void test_huge_caches(void **state) {
    (void)state;
    const int64_t context = (int64_t)1 << 25, sessions = 128;
    rd_ctx *ctx = NULL;
    rd_model *model = NULL;
    scratch s = scratch_make();
    size_t bytes = 0;
    uint8_t *config = file_read(tiny, &bytes);
    assert_non_null(config);
    file_write(scratch_path(&s, "config.json"), config, bytes);
    file_edit(s.path, "\"max_position_embeddings\": 512", "\"max_position_embeddings\": 33554432");
    must(rd_model_open_random(s.path, 1, &model));
    must(rd_ctx_create(&(rd_ctx_options){.struct_size = sizeof(rd_ctx_options), .threads = 1}, &ctx));
    const rd_engine_options o = {.struct_size = sizeof o,
                                 .context_tokens = (int32_t)context,
                                 .max_sessions = (int32_t)sessions,
                                 .max_batch_rows = 17,
                                 .kv_dtype = RD_DTYPE_BF16};
    rd_memory_report report = {.struct_size = sizeof report};
    must(rd_engine_memory(ctx, model, &o, &report));
    assert_int_equal(report.kv_per_token, LAYERS * 2 * KV_DIM * 2);
    assert_int_equal(report.kv_cache, context * sessions * LAYERS * 2 * KV_DIM * 2); // 8 TiB
    rd_ctx_free(ctx);
    rd_model_close(model);
    free(config);
    scratch_remove(&s);
}

// The pool, the plans and the weights are as they were: sessions give what they gave before a profile.
static void test_sessions_after_a_profile(void **state) {
    (void)state;
    const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
    static float before[VOCAB], after[VOCAB];
    float *const logits[] = {before, after};
    fixture f;
    assert_true(open_fixture(&f, "cpu", RD_DTYPE_BF16));
    const rd_profile_options o = {
        .struct_size = sizeof o, .sessions = 3, .context_tokens = 127, .repeats = 1};
    for (int i = 0; i < 2; i++) {
        rd_session *session[3];
        rd_profile p = {.struct_size = sizeof p};
        for (int s = 0; s < 3; s++) { // every block of the pool can be had again
            must(rd_session_create(f.engine, &session[s]));
            must(rd_session_sync(session[s], ids, 8, NULL, NULL));
        }
        memcpy(logits[i], rd_session_logits(session[2]), sizeof before);
        for (int s = 0; s < 3; s++) rd_session_free(session[s]);
        if (i == 0) must(rd_engine_profile(f.engine, &o, &p));
    }
    assert_memory_equal(before, after, sizeof before);
    for (int i = 0; i < VOCAB; i++) assert_true(isfinite(before[i]));
    close_fixture(&f);
}

static void test_random_models(void **state) {
    (void)state;
    rd_model *model = NULL;
    rd_model_info info = {.struct_size = sizeof info};
    must(rd_model_open_random(tiny, 1, &model));
    must(rd_model_get_info(model, &info));
    assert_string_equal(info.format, "random");
    assert_string_equal(info.quantization, "fp8_block128");
    assert_int_equal(info.layers, LAYERS);
    const double norms = LAYERS * (2.0 * HIDDEN + 2 * 64) + HIDDEN, tables = 2.0 * VOCAB * HIDDEN;
    assert_true((double)info.parameters == LAYERS * linear_elems() + norms + tables);
    assert_null(rd_model_tokenizer(model));
    rd_model_close(model);
    refused(rd_model_open_random("", 1, &model), RD_E_INVALID, "rd_model_open_random: path is empty");
    assert_null(model);
    refused(rd_model_open_random(RD_TEST_DIR "/data/alice.txt", 1, &model), RD_E_FORMAT, "alice.txt");
    refused(rd_model_open_random(tiny, 1, NULL), RD_E_INVALID, "out is NULL");
}

static void test_read_ceiling(void **state) {
    (void)state;
    rd_ctx *ctx = NULL;
    double gbs = 0;
    const rd_ctx_options host = {.struct_size = sizeof host, .threads = 1},
                         fixture_options = {.struct_size = sizeof fixture_options, .device = "h200-sm90a"};
    must(rd_ctx_create(&host, &ctx));
    must(rd_ctx_measure_read(ctx, 1 << 20, &gbs));
    assert_true(gbs > 0);
    refused(rd_ctx_measure_read(ctx, 100, &gbs), RD_E_INVALID, "bytes=100, needs at least 65536");
    rd_ctx_free(ctx);
    must(rd_ctx_create(&fixture_options, &ctx));
    refused(rd_ctx_measure_read(ctx, 1 << 20, &gbs), RD_E_NO_DEVICE, "fixture");
    rd_ctx_free(ctx);
    ctx = card_ctx();
    if (!ctx) skip();
    must(rd_ctx_measure_read(ctx, (1 << 18) + 48, &gbs));
    assert_true(gbs > 0);
    rd_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_on_the_cpu),
        cmocka_unit_test(test_step_on_a_card),
        cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_huge_caches),
        cmocka_unit_test(test_sessions_after_a_profile),
        cmocka_unit_test(test_random_models),
        cmocka_unit_test(test_read_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
