// SPDX-License-Identifier: Apache-2.0
// labels: threads
// What is built on sessions: speculation by verify and truncate, generation that stops and continues, two threads at once.
#include "support/files.h"
#include "support/speculation.h"

#include <pthread.h>

// ---- speculation: verify and truncate ------------------------------------------------------------------------------------------
static void test_session_speculative_greedy_is_plain_greedy(void **state) {
    (void)state;
    check_speculation(&tiny_llama, (rig_options){.kv = RD_DTYPE_E4M3});
    check_speculation(&tiny_gemma, (rig_options){.kv = RD_DTYPE_E4M3});
}

// ---- generate ---------------------------------------------------------------------------------------------------------------------
static int stop_third(void *state, int32_t id, const char *bytes, size_t count) {
    (void)id;
    (void)bytes;
    (void)count;
    return ++*(int *)state == 3;
}

static void test_generate_stops_and_continues(void **state) {
    (void)state;
    small_rig s;
    small_open(&s, (rig_options){.context = 40});
    int32_t whole[64], part[64], prompt[64];
    rd_generate_options options = {.struct_size = sizeof options,
                                   .max_tokens = 60,
                                   .ignore_end = 1,
                                   .sampling = {.temperature = 1, .top_p = 1, .top_k = 20, .seed = 7}};
    rd_generate_result result = {.struct_size = sizeof result};
    ok(rd_generate(s.r.session, s.ids, 10, &options, whole, &result));
    assert_true(result.hit_limit);
    assert_int_equal(result.generated, 31); // 30 in the context, and the one that their logits give
    assert_int_equal(result.prefilled_tokens, 10);
    int calls = 0;
    options.on_token = stop_third;
    options.on_token_state = &calls;
    assert_int_equal(rd_generate(s.r.session, s.ids, 10, &options, part, &result), RD_E_CANCELLED);
    assert_int_equal(result.generated, 3);
    assert_memory_equal(part, whole, 3 * sizeof *part);
    // Continued from there it draws what it would have drawn: a draw depends on seed and position alone.
    memcpy(prompt, s.ids, 10 * sizeof *prompt);
    memcpy(prompt + 10, part, 3 * sizeof *part);
    options.on_token = NULL;
    options.max_tokens = 5;
    ok(rd_generate(s.r.session, prompt, 13, &options, part, &result));
    assert_memory_equal(part, whole + 3, 5 * sizeof *part);
    assert_int_equal(result.prefilled_tokens, 1); // the third token had been handed out, not run
    options.sampling.seed = 8;
    ok(rd_generate(s.r.session, prompt, 13, &options, part, &result));
    assert_memory_not_equal(part, whole + 3, 5 * sizeof *part);
    small_close(&s);
}

// ---- threads ------------------------------------------------------------------------------------------------------------------------
typedef struct talker {
    rd_session *session;
    const int32_t *ids;
    int32_t out[8];
    rd_status status;
} talker;

static void *talk(void *state) {
    talker *t = state;
    const rd_generate_options options = {.struct_size = sizeof options, .max_tokens = 8, .ignore_end = 1};
    rd_generate_result result = {.struct_size = sizeof result};
    t->status = rd_generate(t->session, t->ids, 12, &options, t->out, &result);
    return NULL;
}

static void test_session_two_threads_do_not_meet(void **state) {
    (void)state;
    small_rig s;
    small_open(&s, (rig_options){.sessions = 2, .threads = 2, .rows = 5});
    talker t[2] = {{.session = s.r.session, .ids = s.ids}, {.ids = s.ids + 40}};
    ok(rd_session_create(s.r.engine, &t[1].session));
    int32_t alone[2][8];
    for (int i = 0; i < 2; i++) {
        talk(&t[i]);
        ok(t[i].status);
        memcpy(alone[i], t[i].out, sizeof alone[i]);
        ok(rd_session_truncate(t[i].session, 0));
    }
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, talk, &t[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t[i].status, RD_OK);
        assert_memory_equal(t[i].out, alone[i], sizeof alone[i]);
    }
    rd_session_free(t[1].session);
    small_close(&s);
}

// Converted and read again: norms as they are stored, minus one, and a configuration that means the same.
static void test_gemma_converts(void **state) {
    (void)state;
    tiny_model m;
    tiny_spec spec = tiny_gemma;
    spec.fp8 = 0;
    tiny_make(&m, &spec, ++seed);
    scratch s = scratch_make();
    char out[300];
    snprintf(out, sizeof out, "%s/out", s.folder);
    ok(rd_convert(m.folder, out, NULL));
    rd_model *before, *after;
    ok(rd_model_open(m.folder, &before));
    ok(rd_model_open(out, &after));
    const rdi_model_config *a = rdi_model_get_config(before), *b = rdi_model_get_config(after);
    assert_string_equal(a->architecture, b->architecture);
    assert_true(a->window == b->window && a->window_period == b->window_period &&
                a->tied_head == b->tied_head);
    assert_true(a->attn_scale == b->attn_scale && a->embed_scale == b->embed_scale &&
                a->local_rope_theta == b->local_rope_theta && a->rope_theta == b->rope_theta);
    static const rdi_layer_slot norms[] = {RDI_ATTN_NORM,      RDI_MLP_NORM,      RDI_ATTN_Q_NORM,
                                           RDI_ATTN_POST_NORM, RDI_MLP_POST_NORM, RDI_ATTN_K_NORM};
    for (size_t i = 0; i < RDI_COUNT(norms); i++) {
        float was[128], is[128];
        const rdi_weight *w = rdi_model_layer_weight(before, 1, norms[i]);
        rdi_weight_rows_f32(w, 0, 1, was);
        rdi_weight_rows_f32(rdi_model_layer_weight(after, 1, norms[i]), 0, 1, is);
        assert_true(w->cols <= 128 && fabsf(was[3] - 1) < 0.9f);
        assert_memory_equal(was, is, sizeof(float) * (size_t)w->cols);
    }
    assert_int_equal(rdi_model_layer_weight(after, 0, RDI_MLP_UP)->type, RDI_W_E4M3);
    rd_model_close(before);
    rd_model_close(after);
    scratch_remove(&s);
    tiny_free(&m);
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu (give it as the argument to repeat this run)\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemma_converts),
                                       cmocka_unit_test(test_session_speculative_greedy_is_plain_greedy),
                                       cmocka_unit_test(test_generate_stops_and_continues),
                                       cmocka_unit_test(test_session_two_threads_do_not_meet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
