// SPDX-License-Identifier: Apache-2.0
// The engine on a card (the simulated one, or RADIANCE_TEST_CARD's): as near to the CPU's exact activations as the CPU's own W8A8
// path is, the same bits alone and in a batch, by verify and by replayed graphs, and every byte of the card given back.
#include "support/card_rig.h"
#include "support/speculation.h"

#include "backend/backend.h"
#include "ops/ctx.h"
#include "ops/plan.h"

static rd_ctx *probe(void) { // NULL: no simulator or no kernels, and skipped with the reason
    rd_ctx *ctx = card_ctx();
    rd_ctx_free(ctx);
    return ctx;
}

enum { PROMPT = 23 };
static void logits_of(tiny_model *m, rig_options o, const int32_t *ids, float *out) {
    rig r;
    rig_open(&r, m, o);
    ok(rd_session_sync(r.session, ids, PROMPT, NULL, NULL));
    memcpy(out, rd_session_logits(r.session), sizeof *out * (size_t)m->spec.vocab);
    rig_close(&r);
}

static double rms(const float *a, const float *b, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += ((double)a[i] - (double)(b ? b[i] : 0)) * ((double)a[i] - (double)(b ? b[i] : 0));
    return sqrt(sum / count);
}

// e4m3 activations are noise of one size whatever computes them: a card's must not be more than a few times the CPU's. A
// bf16 model has none; there each of some fifteen bf16 stores between input and logits may add 2^-9: 3e-2.
static void check_near(const tiny_spec *spec, rd_dtype kv) {
    tiny_model m;
    int32_t ids[PROMPT];
    float exact[256], host[256], card[256];
    tiny_make(&m, spec, ++seed);
    random_ids(&m, ids, PROMPT);
    logits_of(&m, (rig_options){.kv = kv, .context = 128}, ids, exact);
    logits_of(&m, (rig_options){.kv = kv, .context = 128, .w8a8 = 1}, ids, host);
    logits_of(&m, (rig_options){.kv = kv, .context = 128, .w8a8 = 1, .device = card_device()}, ids, card);
    double size = rms(exact, NULL, spec->vocab), noise = rms(host, exact, spec->vocab),
           error = rms(card, exact, spec->vocab);
    print_message("%s hidden %d fp8 %d kv %s: logits %.3g, W8A8 on the CPU %.3g off, on the card %.3g\n",
                  spec->architecture, spec->hidden, spec->fp8, rd_dtype_name(kv), size, noise, error);
    assert_true(error <= 3 * noise + 3e-2 * size);
    tiny_free(&m);
}

static void test_logits_near_the_host(void **state) {
    (void)state;
    if (!probe()) skip();
    check_near(&tiny_bf16, RD_DTYPE_BF16);
    check_near(&tiny_llama, RD_DTYPE_BF16);
    check_near(&tiny_llama, RD_DTYPE_E4M3);
    check_near(&tiny_even, RD_DTYPE_BF16); // widths of 128: preshuffled weights
    check_near(&tiny_qwen3, RD_DTYPE_E4M3);
    check_near(&tiny_gemma, RD_DTYPE_BF16);
}

static void test_speculation_and_graphs(void **state) {
    (void)state;
    if (!probe()) skip();
    check_speculation(&tiny_even,
                      (rig_options){.kv = RD_DTYPE_E4M3, .context = 128, .w8a8 = 1, .device = card_device()});
    check_speculation(&tiny_gemma,
                      (rig_options){.kv = RD_DTYPE_BF16, .context = 128, .w8a8 = 1, .device = card_device()});
}

// Three sessions stepped together, then each alone: the same logits, replayed or run.
static void test_batch_is_alone(void **state) {
    (void)state;
    if (!probe()) skip();
    enum { SESSIONS = 3, STEPS = 5, LENGTH = 11 };
    tiny_model m;
    rig r;
    int32_t ids[SESSIONS][LENGTH + STEPS];
    static float together[SESSIONS][STEPS][256], alone[256];
    tiny_make(&m, &tiny_llama, ++seed);
    rig_open(&r, &m, (rig_options){.sessions = SESSIONS, .context = 128, .w8a8 = 1, .device = card_device()});
    rd_session *session[SESSIONS] = {r.session};
    for (int i = 0; i < SESSIONS; i++) {
        random_ids(&m, ids[i], LENGTH + STEPS);
        if (i) ok(rd_session_create(r.engine, &session[i]));
        ok(rd_session_sync(session[i], ids[i], LENGTH - 3 * i, NULL, NULL)); // of different lengths
    }
    const size_t bytes = sizeof(float) * (size_t)m.spec.vocab;
    for (int t = 0; t < STEPS; t++) {
        rd_step_item items[SESSIONS];
        for (int i = 0; i < SESSIONS; i++)
            items[i] =
                (rd_step_item){session[i], &ids[i][LENGTH - 3 * i + t], 1, t % 2 ? together[i][t] : NULL};
        ok(rd_engine_step(r.engine, items, SESSIONS));
        for (int i = 0; i < SESSIONS; i++)
            if (t % 2 == 0) memcpy(together[i][t], rd_session_logits(session[i]), bytes);
    }
    assert_true(r.engine->replayed >= STEPS - 1);
    for (int i = 0; i < SESSIONS; i++) {
        ok(rd_session_truncate(session[i], LENGTH - 3 * i));
        for (int t = 0; t < STEPS; t++) {
            const rd_step_item item = {session[i], &ids[i][LENGTH - 3 * i + t], 1, alone};
            ok(rd_engine_step(r.engine, &item, 1));
            if (memcmp(alone, together[i][t], bytes)) fail_msg("session %d, step %d", i, t);
        }
    }
    rig_close(&r);
    tiny_free(&m);
}

// ---- what a step asks of the driver ---------------------------------------------------------------------------------
static rdi_driver counting;        // the card's own, with counters in front
static const rdi_driver *the_real; // behind it
static struct { int waits, launches, replays, to_host; } calls;
static rd_status count_sync(rdi_card *card, void *stream) {
    calls.waits++;
    return the_real->stream_sync(card, stream);
}
static rd_status count_event(rdi_card *card, void *event) {
    calls.waits++;
    return the_real->event_sync(card, event);
}
static rd_status count_launch(rdi_card *card, void *kernel, const rdi_launch *launch, void *stream) {
    calls.launches++;
    return the_real->launch(card, kernel, launch, stream);
}
static rd_status count_replay(rdi_card *card, void *graph, void *stream) {
    calls.replays++;
    return the_real->graph_launch(card, graph, stream);
}
static rd_status count_copy(rdi_card *card, void *to, const void *from, size_t bytes, rdi_copy direction,
                            void *stream) {
    calls.to_host += direction == RDI_COPY_TO_HOST;
    return the_real->copy(card, to, from, bytes, direction, stream);
}
static void count_calls(rd_ctx *ctx) {
    the_real = ctx->device->card->driver;
    counting = *the_real;
    counting.stream_sync = count_sync;
    counting.event_sync = count_event;
    counting.launch = count_launch;
    counting.graph_launch = count_replay;
    counting.copy = count_copy;
    ctx->device->card->driver = &counting;
}

typedef struct token_log {
    int count;
    int at[32][4]; // waits, launches, replays, copies to the host, so far
} token_log;
static int log_token(void *state, int32_t id, const char *bytes, size_t count) {
    token_log *log = state;
    const int now[4] = {calls.waits, calls.launches, calls.replays, calls.to_host};
    (void)id, (void)bytes, (void)count;
    memcpy(log->at[log->count++], now, sizeof now);
    return 0;
}

// Between one token and the next: one graph, the sampler's launches, one copy to the host, one wait for it.
static void test_one_wait_a_step(void **state) {
    (void)state;
    if (!probe()) skip();
    enum { TOKENS = 12 };
    tiny_model m;
    rig r;
    token_log log = {0};
    int32_t ids[PROMPT], out[TOKENS];
    tiny_make(&m, &tiny_even, ++seed);
    rig_open(&r, &m, (rig_options){.context = 128, .w8a8 = 1, .device = card_device()});
    count_calls(r.ctx);
    random_ids(&m, ids, PROMPT);
    const rd_generate_options options = {.struct_size = sizeof options,
                                         .max_tokens = TOKENS,
                                         .ignore_end = 1,
                                         .on_token = log_token,
                                         .on_token_state = &log};
    rd_generate_result result = {.struct_size = sizeof result};
    ok(rd_generate(r.session, ids, PROMPT, &options, out, &result));
    assert_int_equal(log.count, TOKENS);
    for (int i = 3; i < TOKENS; i++) { // the first step runs, the second is recorded
        assert_int_equal(log.at[i][0] - log.at[i - 1][0], 1);
        const int launches =
            log.at[i][1] - log.at[i - 1][1]; // of the sampler: parts of a row, then their best
        assert_true(launches == 1 || (launches == 2 && !card_is_simulated()));
        assert_int_equal(log.at[i][2] - log.at[i - 1][2], 1);
        assert_int_equal(log.at[i][3] - log.at[i - 1][3], 1);
    }
    r.ctx->device->card->driver = the_real;
    rig_close(&r);
    tiny_free(&m);
}

// Of an engine's plans those of GEMMs, rope and decode attention may start before what is ahead of them has ended.
static void test_what_starts_early(void **state) {
    (void)state;
    if (!probe()) skip();
    tiny_model m;
    rig r;
    tiny_make(&m, &tiny_even, ++seed);
    rig_open(&r, &m, (rig_options){.context = 128, .w8a8 = 1, .device = card_device()});
    int others = 0;
    for (int slot = 0; slot < RDI_PLAN_SLOTS; slot++) {
        const rd_plan *plan = r.engine->plan[slot];
        const bool early = slot == RDI_PLAN_ROPE_KV_WRITE || slot == RDI_PLAN_ROPE || slot == RDI_PLAN_DECODE;
        if (plan) assert_int_equal(rdi_plan_starts_in_turn(plan), !early);
        others += plan != NULL;
    }
    assert_true(others > 5 && r.engine->linear_plan_count > 2);
    for (int i = 0; i < r.engine->linear_plan_count; i++)
        for (int pass = 0; pass < RDI_PASS_CLASSES; pass++)
            assert_false(rdi_plan_starts_in_turn(r.engine->linear_plan[i].plan[pass]));
    rig_close(&r);
    tiny_free(&m);
}

// Verify steps of several sessions, of the same and of different widths: replayed by bucket and widest, one wait a step, and
// each row as if its session had stepped alone, call by call.
static void test_verify_is_replayed(void **state) {
    (void)state;
    if (!probe()) skip();
    enum { SESSIONS = 3, ROUNDS = 4, WIDEST = 7 };
    static const int widths[ROUNDS][SESSIONS] = {{5, 5, 5}, {2, 7, 4}, {7, 1, 3}, {5, 5, 2}};
    tiny_model m;
    rig r;
    int32_t ids[SESSIONS][64];
    static float together[ROUNDS][SESSIONS][WIDEST * 256], alone[WIDEST * 256];
    tiny_make(&m, &tiny_even, ++seed);
    rig_open(&r, &m, (rig_options){.sessions = 4, .context = 128, .w8a8 = 1, .device = card_device()});
    const size_t row = sizeof(float) * (size_t)m.spec.vocab;
    rd_session *session[SESSIONS] = {r.session};
    int known[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        random_ids(&m, ids[i], 64);
        if (i) ok(rd_session_create(r.engine, &session[i]));
        ok(rd_session_sync(session[i], ids[i], known[i] = 9 + 4 * i, NULL, NULL));
    }
    count_calls(r.ctx);
    for (int t = 0; t < ROUNDS; t++) {
        rd_step_item items[SESSIONS];
        for (int i = 0; i < SESSIONS; i++) {
            items[i] = (rd_step_item){session[i], ids[i] + known[i], widths[t][i], together[t][i]};
            known[i] += widths[t][i];
        }
        calls.waits = 0;
        ok(rd_engine_step(r.engine, items, SESSIONS));
        assert_int_equal(calls.waits, 1);
    }
    r.ctx->device->card->driver = the_real;
    assert_int_equal(r.engine->graph_count, 2); // four sequences of five rows, and of seven
    assert_int_equal(r.engine->replayed, 2);
    rdi_step_graphs_free(r.engine);
    for (int i = 0; i < SESSIONS; i++) {
        ok(rd_session_truncate(session[i], known[i] = 9 + 4 * i));
        for (int t = 0; t < ROUNDS; t++) {
            const rd_step_item item = {session[i], ids[i] + known[i], widths[t][i], alone};
            ok(rd_engine_step(r.engine, &item, 1));
            if (memcmp(alone, together[t][i], row * (size_t)widths[t][i]))
                fail_msg("session %d, round %d", i, t);
            known[i] += widths[t][i];
        }
    }
    rig_close(&r);
    tiny_free(&m);
}

// A step of three widths that no graph has room for at the widest: one pass, attention by widths, each row as if its session had
// stepped alone.
static void test_widths_share_a_pass(void **state) {
    (void)state;
    if (!probe()) skip();
    enum { SESSIONS = 5, WIDEST = 8, KNOWN = 9 };
    static const int widths[SESSIONS] = {2, 8, 1, 2, 3}; // 16 rows of 17; at the widest 40
    tiny_model m;
    rig r;
    int32_t ids[SESSIONS][32];
    static float together[SESSIONS][WIDEST * 256], alone[WIDEST * 256];
    rd_session *session[SESSIONS];
    rd_step_item items[SESSIONS];
    tiny_make(&m, &tiny_even, ++seed);
    rig_open(
        &r, &m,
        (rig_options){.sessions = SESSIONS, .rows = 17, .context = 128, .w8a8 = 1, .device = card_device()});
    assert_int_equal(r.engine->geometry.step_rows, 17);
    session[0] = r.session;
    for (int i = 0; i < SESSIONS; i++) {
        random_ids(&m, ids[i], 32);
        if (i) ok(rd_session_create(r.engine, &session[i]));
        ok(rd_session_sync(session[i], ids[i], KNOWN + i, NULL, NULL));
        items[i] = (rd_step_item){session[i], ids[i] + KNOWN + i, widths[i], together[i]};
    }
    const int64_t before = r.engine->passes[RDI_PASS_STEP];
    ok(rd_engine_step(r.engine, items, SESSIONS));
    assert_int_equal(r.engine->passes[RDI_PASS_STEP] - before, 1);
    for (int i = 0; i < SESSIONS; i++) {
        ok(rd_session_truncate(session[i], KNOWN + i));
        items[i].logits = alone;
        ok(rd_engine_step(r.engine, &items[i], 1));
        if (memcmp(alone, together[i], sizeof(float) * (size_t)(m.spec.vocab * widths[i])))
            fail_msg("session %d", i);
    }
    rig_close(&r);
    tiny_free(&m);
}

// Two widths whose rows fill a pass that no one width fills: attention's workspace is enough for all of its rows.
static void test_widths_fill_a_pass(void **state) {
    (void)state;
    if (!probe()) skip();
    enum { KNOWN = 100, ROWS = 19 };
    static const int widths[2] = {10, 9}; // of one width, two sessions have 18 rows
    tiny_model m;
    rig r;
    int32_t ids[2][KNOWN + 10];
    static float together[2][10 * 256], alone[10 * 256];
    rd_step_item items[2];
    tiny_make(&m, &tiny_even, ++seed);
    rig_open(&r, &m,
             (rig_options){.sessions = 2, .rows = ROWS, .context = 128, .w8a8 = 1, .device = card_device()});
    for (int i = 0; i < 2; i++) {
        rd_session *session = r.session;
        random_ids(&m, ids[i], KNOWN + 10);
        if (i) ok(rd_session_create(r.engine, &session));
        ok(rd_session_sync(session, ids[i], KNOWN, NULL, NULL));
        items[i] = (rd_step_item){session, ids[i] + KNOWN, widths[i], together[i]};
    }
    ok(rd_engine_step(r.engine, items, 2));
    for (int i = 0; i < 2; i++) {
        ok(rd_session_truncate(items[i].session, KNOWN));
        items[i].logits = alone;
        ok(rd_engine_step(r.engine, &items[i], 1));
        assert_memory_equal(alone, together[i], sizeof(float) * (size_t)(m.spec.vocab * widths[i]));
    }
    rig_close(&r);
    tiny_free(&m);
}

// One line for each matrix that keeps its order, with the contract's reason; none where all are shuffled.
static int left_alone, with_reason;
static void count_left_alone(void *state, rd_log_level level, const char *text) {
    (void)state, (void)level;
    left_alone += strstr(text, " stays row-major: ") != NULL;
    with_reason += strstr(text, ".weight stays row-major: ") && strstr(text, "is not a multiple of 128");
}
static void check_left_alone(const tiny_spec *spec, bool shuffled) {
    tiny_model m;
    rig r = {0};
    tiny_make(&m, spec, ++seed);
    ok(rd_ctx_create(&(rd_ctx_options){.struct_size = sizeof(rd_ctx_options),
                                       .device = "sim:gfx1201",
                                       .threads = 1,
                                       .log = count_left_alone},
                     &r.ctx));
    const rd_engine_options options = {
        .struct_size = sizeof options, .context_tokens = 64, .activation = RD_ACT_W8A8};
    left_alone = with_reason = 0;
    ok(rd_model_open(m.folder, &r.model));
    ok(rd_engine_create(r.ctx, r.model, &options, &r.engine));
    for (int32_t i = 0; i < r.engine->geometry.layers; i++)
        assert_string_equal(r.engine->layer[i].down.part[0].layout, shuffled ? "shuffle16" : "row");
    assert_int_equal(left_alone, shuffled ? 0 : 7 * r.engine->geometry.layers); // q k v o gate up down
    assert_int_equal(with_reason, left_alone);
    rig_close(&r);
    tiny_free(&m);
}
static void test_layers_left_alone_are_told(void **state) {
    (void)state;
    if (!card_is_simulated()) skip(); // its environment, or its layouts
    if (!probe()) skip();
    check_left_alone(&tiny_even, true);
    check_left_alone(&tiny_llama, false);
}

// The class of a pass comes from what is asked for: a prompt of any length, one token included, takes rows of class chunk.
static void test_prefill_is_chunk(void **state) {
    (void)state;
    if (!probe()) skip();
    tiny_model m;
    rig r;
    tiny_make(&m, &tiny_even, ++seed);
    rig_open(&r, &m, (rig_options){.context = 64, .w8a8 = 1, .device = card_device()});
    for (int32_t i = 0; i < r.engine->geometry.layers; i++) {
        const rdi_layer *layer = &r.engine->layer[i];
        const rdi_projection *all[] = {&layer->qkv, &layer->o, &layer->gate_up, &layer->down};
        for (int p = 0; p < 4; p++) {
            const rd_plan *const *plan = all[p]->part[0].plan;
            assert_string_equal(rd_plan_kernel(plan[RDI_PASS_PREFILL], 1)->order, "chunk");
            assert_string_equal(rd_plan_kernel(plan[RDI_PASS_PREFILL], 128)->order, "chunk");
            assert_string_equal(rd_plan_kernel(plan[RDI_PASS_STEP], 1)->order, "step");
            assert_string_equal(rd_plan_kernel(plan[RDI_PASS_STEP], 128)->order, "step");
        }
    }
    // The same rows as the chunk before or after another chunk boundary: one token at a time, and all at once.
    enum { LENGTH = 20 };
    int32_t ids[LENGTH];
    static float whole[256];
    random_ids(&m, ids, LENGTH);
    ok(rd_session_sync(r.session, ids, LENGTH, NULL, NULL));
    memcpy(whole, rd_session_logits(r.session), sizeof(float) * (size_t)m.spec.vocab);
    ok(rd_session_truncate(r.session, 0));
    for (int i = 1; i <= LENGTH; i++) ok(rd_session_sync(r.session, ids, i, NULL, NULL));
    assert_memory_equal(whole, rd_session_logits(r.session), sizeof(float) * (size_t)m.spec.vocab);
    rig_close(&r);
    tiny_free(&m);
}

// More rows than class "step" takes in a call: two passes, and each row as if its session had stepped alone.
static void test_large_steps_keep_their_class(void **state) {
    (void)state;
    if (!probe()) skip();
    enum { SESSIONS = 9, WIDTH = 15 };
    tiny_model m;
    rig r;
    int32_t ids[1 + WIDTH];
    static float together[SESSIONS][WIDTH * 256], alone[WIDTH * 256];
    tiny_make(&m, &tiny_llama, ++seed);
    rig_open(&r, &m, (rig_options){.sessions = SESSIONS, .context = 64, .w8a8 = 1, .device = card_device()});
    assert_true(m.spec.vocab <= 256); // the arrays above
    random_ids(&m, ids, 1 + WIDTH);
    rd_session *session[SESSIONS] = {r.session};
    rd_step_item items[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        if (i) ok(rd_session_create(r.engine, &session[i]));
        ok(rd_session_sync(session[i], ids, 1, NULL, NULL));
        items[i] = (rd_step_item){session[i], ids + 1, WIDTH, together[i]};
    }
    ok(rd_engine_step(r.engine, items, SESSIONS));
    assert_int_equal(r.engine->passes[RDI_PASS_STEP], 2);
    ok(rd_session_truncate(session[0], 1));
    items[0].logits = alone;
    ok(rd_engine_step(r.engine, items, 1));
    for (int i = 0; i < SESSIONS; i++)
        if (memcmp(together[i], alone, sizeof(float) * (size_t)(WIDTH * m.spec.vocab)))
            fail_msg("session %d", i);
    rig_close(&r);
    tiny_free(&m);
}

// A real driver takes memory of its own for the first module, the first graph: what a first life leaves is where counting starts.
static void test_memory_comes_back(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    size_t before = 0, after = 0, total = 0;
    tiny_model m;
    int32_t ids[PROMPT], next[4];
    tiny_make(&m, &tiny_even, ++seed);
    random_ids(&m, ids, PROMPT);
    const rd_generate_options options = {.struct_size = sizeof options, .max_tokens = 4, .ignore_end = 1};
    for (int lives = card_is_simulated() ? 1 : 4, life = card_is_simulated(); life <= lives; life++) {
        rig r;
        rd_generate_result result = {.struct_size = sizeof result};
        if (life <= 1) must(rd_memory_info(ctx, &before, &total));
        rig_open(&r, &m, (rig_options){.context = 128, .w8a8 = 1, .device = card_device()});
        ok(rd_generate(r.session, ids, PROMPT, &options, next, &result));
        must(rd_memory_info(ctx, &after, &total));
        assert_true(after < before);
        rig_close(&r);
    }
    must(rd_memory_info(ctx, &after, &total));
    assert_int_equal(after, before);
    tiny_free(&m);
    rd_ctx_free(ctx);
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_near_the_host),
        cmocka_unit_test(test_speculation_and_graphs),
        cmocka_unit_test(test_batch_is_alone),
        cmocka_unit_test(test_what_starts_early),
        cmocka_unit_test(test_one_wait_a_step),
        cmocka_unit_test(test_verify_is_replayed),
        cmocka_unit_test(test_widths_share_a_pass),
        cmocka_unit_test(test_widths_fill_a_pass),
        cmocka_unit_test(test_prefill_is_chunk),
        cmocka_unit_test(test_layers_left_alone_are_told),
        cmocka_unit_test(test_large_steps_keep_their_class),
        cmocka_unit_test(test_memory_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
