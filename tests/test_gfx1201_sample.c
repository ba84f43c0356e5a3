// SPDX-License-Identifier: Apache-2.0
// The sampler of gfx1201 in the simulator: the same token as the CPU's rows for every row, whose own test holds them to the
// formula. Both round weights to multiples of 2^-34 and sum exactly, so agreement is to the bit, not in distribution.
#include "rows.h"

#include "gfx1201_sim.h"
#include "kernels/elementwise/args.h"

static void run_card(const float *logits, int64_t rows, int64_t vocab, const rd_sample_row *params,
                     int32_t *ids) {
    rdi_sample_args a = {rows, vocab, logits, vocab, params, ids};
    SIM_RUN(gpu_row("sample_gfx1201"), a, SIM_BUFFER(a, logits, (size_t)(rows * vocab) * sizeof *logits),
            SIM_BUFFER(a, params, (size_t)rows * sizeof *params),
            SIM_BUFFER(a, ids, (size_t)rows * sizeof *ids));
}
static void run_cpu(const float *logits, int64_t rows, int64_t vocab, const rd_sample_row *params,
                    int32_t *ids) {
    const rdi_row *row = row_at("sample", 0);
    rdi_sample_args a = {rows, vocab, logits, vocab, params, ids};
    void *ws = malloc(row->ws_bytes(&a, 1));
    assert_non_null(ws);
    row->run(&a, ws, NULL);
    free(ws);
}

static void compare(const float *logits, int64_t rows, int64_t vocab, const rd_sample_row *params,
                    const char *what) {
    int32_t got[64], want[64];
    assert_true(rows <= 64);
    memset(got, 0x55, sizeof got);
    run_card(logits, rows, vocab, params, got);
    run_cpu(logits, rows, vocab, params, want);
    for (int64_t r = 0; r < rows; r++)
        if (got[r] != want[r])
            fail_msg("%s, vocab %lld row %lld (T=%g top_k=%d top_p=%a min_p=%a): token %d, needs %d", what,
                     (long long)vocab, (long long)r, (double)params[r].temperature, params[r].top_k,
                     (double)params[r].top_p, (double)params[r].min_p, got[r], want[r]);
}

static void random_params(rd_sample_row *p, int64_t vocab, uint64_t *state) {
    static const float temperatures[] = {0, 0.01f, 0.7f, 1, 1.5f, 30};
    *p = (rd_sample_row){.temperature = temperatures[random_next(state) % 6],
                         .top_p = 1,
                         .seed = random_next(state),
                         .counter = random_next(state)};
    uint64_t choice = random_next(state);
    if (choice & 1) p->top_k = (int32_t)(random_next(state) % (uint64_t)(vocab + 2));
    if (choice & 2) p->top_p = choice & 8 ? (float)random_unit(state) : 0;
    if (choice & 4) p->min_p = (float)random_unit(state) * 0.2f;
}

static void test_random_rows(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t state = fresh_seed("sample_gfx1201");
    static const int64_t vocabs[] = {1, 3, 17, 33, 100, 1023, 1024, 1025, 5000};
    for (size_t v = 0; v < RDI_COUNT(vocabs); v++)
        for (int round = 0; round < 4; round++) {
            enum { ROWS = 8 };
            int64_t vocab = vocabs[v];
            float *logits = malloc((size_t)(ROWS * vocab) * sizeof *logits);
            rd_sample_row params[ROWS];
            for (int64_t i = 0; i < ROWS * vocab; i++) {
                logits[i] = 3 * random_normal(&state);
                if (round & 1) logits[i] = roundf(logits[i]); // many ties, -0 among them
                if (round == 3 && random_next(&state) % 4 == 0)
                    logits[i] = random_next(&state) & 1 ? NAN : -INFINITY;
            }
            for (int r = 0; r < ROWS; r++) random_params(&params[r], vocab, &state);
            compare(logits, ROWS, vocab, params, "random");
            free(logits);
        }
}

static void test_edges(void **unused) {
    (void)unused;
    NEED_SIM();
    enum { VOCAB = 300, ROWS = 10 };
    static float logits[ROWS][VOCAB];
    rd_sample_row params[ROWS];
    for (int r = 0; r < ROWS; r++) {
        params[r] = (rd_sample_row){.temperature = 1, .top_p = 1, .seed = 5, .counter = (uint64_t)r};
        for (int i = 0; i < VOCAB; i++)
            logits[r][i] = r == 0 ? NAN : r == 1 ? -INFINITY : r == 2 ? 7.0f : (float)(i % 5);
    }
    logits[3][250] = logits[3][17] = INFINITY;                           // the rest has weight 0
    for (int i = 0; i < VOCAB; i++) logits[4][i] = i & 1 ? 0.0f : -0.0f; // equal: ids decide
    params[4].temperature = 0;
    params[5].top_k = 2, params[5].seed = 9; // the k-th of 60 equals: all stay
    params[6].top_p = 0;                     // the first of the ties alone
    params[7].top_k = VOCAB, params[7].temperature = 0, params[7].top_p = 0,
    params[7].min_p = 1; // greedy all the same
    logits[8][3] = 3.4e38f, logits[8][4] = -3.4e38f, params[8].temperature = 1e-30f;
    params[9].min_p = 1, params[9].top_p = 0.5f;
    compare(logits[0], ROWS, VOCAB, params, "edges");
    int32_t ids[ROWS];
    run_card(logits[0], ROWS, VOCAB, params, ids);
    assert_int_equal(ids[0], -1);
    assert_int_equal(ids[1], -1);
    assert_true(ids[3] == 17 || ids[3] == 250);
    assert_int_equal(ids[4], 0);
    assert_int_equal(ids[5] % 5, 4);
    assert_int_equal(ids[6], 4);
    assert_int_equal(ids[7], 4);
}

// A flat row needs every candidate, a peaked one few; a real vocabulary.
static void test_large_vocabulary(void **unused) {
    (void)unused;
    NEED_SIM();
    enum { VOCAB = 49152, ROWS = 4 };
    uint64_t state = fresh_seed("sample_gfx1201 large");
    float *logits = malloc((size_t)ROWS * VOCAB * sizeof *logits);
    rd_sample_row params[ROWS];
    for (int64_t i = 0; i < (int64_t)ROWS * VOCAB; i++)
        logits[i] = (i / VOCAB & 1 ? 0.01f : 2.5f) * random_normal(&state);
    for (int r = 0; r < ROWS; r++)
        params[r] = (rd_sample_row){.temperature = 1,
                                    .top_p = r & 1 ? 0.9f : 0.5f,
                                    .top_k = r & 2 ? 40 : 0,
                                    .seed = random_next(&state)};
    compare(logits, ROWS, VOCAB, params, "large");
    free(logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_rows), cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_large_vocabulary)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
