// SPDX-License-Identifier: Apache-2.0
// labels: threads
// The sampler: Philox against its published vectors, kept sets against a sort written here, distributions against their
// exact probabilities (chi-square at fixed seeds), the bits of every row of the class against each other.
#include "rows.h"

#include "kernels/elementwise/args.h"
#include "kernels/elementwise/philox.h"

static rdi_par *pool(void) {
    static rdi_par *par;
    if (!par) assert_int_equal(rdi_par_create(4, NULL, NULL, &par), RD_OK);
    return par;
}

static void run_rows(const rdi_row *row, const float *logits, int64_t rows, int64_t vocab,
                     const rd_sample_row *params, int32_t *ids, rdi_par *par) {
    rdi_sample_args a = {rows, vocab, logits, vocab, params, ids};
    size_t bytes = row->ws_bytes(&a, rdi_par_threads(par));
    guarded ws = guarded_new((int64_t)bytes, RD_DTYPE_U8);
    row->run(&a, ws.data, par);
    guarded_free(&ws);
}
static int32_t run_one(const rdi_row *row, const float *logits, int64_t vocab, rd_sample_row params) {
    int32_t id = -7;
    run_rows(row, logits, 1, vocab, &params, &id, NULL);
    return id;
}

// Known answers of the generator's authors (Random123, kat_vectors).
static void test_sample_philox_published_vectors(void **unused) {
    (void)unused;
    static const uint32_t vectors[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e,
         0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
         0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        rdi_philox4x32(vectors[i], vectors[i] + 4, out);
        assert_memory_equal(out, vectors[i] + 6, sizeof out);
    }
    assert_true(rdi_uniform53(0, 0) == (double)(0xe169c58d6627e8d5u >> 11) / 9007199254740992.0);
}

static void test_sample_greedy_ties_and_bad_rows(void **unused) {
    (void)unused;
    static const int64_t vocabs[] = {1, 2, 15, 16, 17, 63, 64, 65, 1000, 49152};
    const rdi_row *row;
    for (int i = 0; (row = row_at("sample", i)); i++)
        for (size_t v = 0; v < RDI_COUNT(vocabs); v++) {
            int64_t vocab = vocabs[v];
            float *logits = malloc((size_t)vocab * sizeof *logits);
            rd_sample_row greedy = {.temperature = 0};
            for (int64_t k = 0; k < vocab; k++) logits[k] = -1;
            assert_int_equal(run_one(row, logits, vocab, greedy), 0); // all tie: the lowest id
            logits[vocab - 1] = 3, logits[vocab / 2] = 3;
            assert_int_equal(run_one(row, logits, vocab, greedy), vocab / 2);
            if (vocab > 2) {
                logits[0] = NAN;
                assert_int_equal(run_one(row, logits, vocab, greedy), vocab / 2);
                logits[vocab - 1] = INFINITY;
                assert_int_equal(run_one(row, logits, vocab, greedy), vocab - 1);
                assert_int_equal(
                    run_one(row, logits, vocab, (rd_sample_row){.temperature = 1, .top_p = 1, .seed = 5}),
                    vocab - 1);
            }
            for (int64_t k = 0; k < vocab; k++) logits[k] = k & 1 ? -INFINITY : NAN;
            assert_int_equal(run_one(row, logits, vocab, greedy), -1); // nothing to choose from
            assert_int_equal(
                run_one(row, logits, vocab, (rd_sample_row){.temperature = 1, .top_p = 0.5f, .top_k = 3}),
                -1);
            free(logits);
        }
}

// ---- the kept set, by a sort in double, and its probabilities -----------------------------------------------------------
static const float *sort_logits;
static int by_canonical_order(const void *left, const void *right) {
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    if (sort_logits[a] != sort_logits[b]) return sort_logits[a] > sort_logits[b] ? -1 : 1;
    return a < b ? -1 : 1;
}

// Exact probabilities of each id; `ids` receives canonical order. Returns the number kept.
static int64_t distribution(const float *logits, int64_t vocab, const rd_sample_row *p, int32_t *ids,
                            double *probability) {
    for (int64_t i = 0; i < vocab; i++) ids[i] = (int32_t)i, probability[i] = 0;
    sort_logits = logits;
    qsort(ids, (size_t)vocab, sizeof *ids, by_canonical_order);
    int64_t kept = 0;
    double total = 0, sum = 0;
    for (; kept < vocab; kept++) {
        double w = exp(((double)logits[ids[kept]] - (double)logits[ids[0]]) / (double)p->temperature);
        if (w < (double)p->min_p) break;
        if (p->top_k > 0 && p->top_k < vocab && logits[ids[kept]] < logits[ids[p->top_k - 1]]) break;
        probability[ids[kept]] = w, total += w;
    }
    int64_t nucleus = 0;
    while (nucleus < kept && (nucleus == 0 || sum < (double)p->top_p * total))
        sum += probability[ids[nucleus++]];
    for (int64_t i = 0; i < vocab; i++) probability[ids[i]] = i < nucleus ? probability[ids[i]] / sum : 0;
    return nucleus;
}

// Inversion in canonical order with the row's own draw; accepts a neighbour when the draw lies within `slack` of the edge.
static void check_draw(const float *logits, int64_t vocab, const rd_sample_row *p, int32_t got,
                       double slack) {
    int32_t *ids = malloc((size_t)vocab * sizeof *ids);
    double *probability = malloc((size_t)vocab * sizeof *probability), below = 0,
           u = rdi_uniform53(p->seed, p->counter);
    distribution(logits, vocab, p, ids, probability);
    for (int64_t i = 0; i < vocab && ids[i] != got; i++) below += probability[ids[i]];
    assert_true(got >= 0 && got < vocab);
    assert_true(u >= below - slack && u <= below + probability[got] + slack);
    free(ids), free(probability);
}

static void random_params(rd_sample_row *p, int64_t vocab, uint64_t *state) {
    static const float temperatures[] = {0.01f, 0.7f, 1, 1.5f, 30};
    *p = (rd_sample_row){.temperature = temperatures[random_next(state) % 5],
                         .top_p = 1,
                         .seed = random_next(state),
                         .counter = random_next(state)};
    uint64_t choice = random_next(state);
    if (choice & 1) p->top_k = (int32_t)(random_next(state) % (uint64_t)(vocab + 2));
    if (choice & 2) p->top_p = (float)random_unit(state);
    if (choice & 4) p->min_p = (float)random_unit(state) * 0.2f;
}

static void test_sample_rows_agree_and_match_the_sort(void **unused) {
    (void)unused;
    static const int64_t vocabs[] = {1, 3, 17, 100, 333, 5000};
    uint64_t state = fresh_seed("sample");
    for (size_t v = 0; v < RDI_COUNT(vocabs); v++)
        for (int round = 0; round < 12; round++) {
            enum { ROWS = 8 };
            int64_t vocab = vocabs[v];
            float *logits = malloc((size_t)(ROWS * vocab) * sizeof *logits);
            rd_sample_row params[ROWS];
            int32_t first[ROWS] = {0}, ids[ROWS];
            for (int64_t i = 0; i < ROWS * vocab; i++) {
                logits[i] = 3 * random_normal(&state);
                if (round & 1) logits[i] = roundf(logits[i]); // many ties
            }
            for (int r = 0; r < ROWS; r++) random_params(&params[r], vocab, &state);
            const rdi_row *row;
            for (int i = 0; (row = row_at("sample", i)); i++) {
                run_rows(row, logits, ROWS, vocab, params, ids, i ? NULL : pool());
                for (int r = 0; r < ROWS; r++) {
                    // f32 weights: 2^-21 relative and l/T rounded (|l|/T up to 2400 at T = 0.01, where all else has no mass).
                    check_draw(logits + r * vocab, vocab, &params[r], ids[r],
                               row->info.is_reference ? 1e-12 : 1e-4);
                    if (!row->info.is_reference && i) assert_int_equal(ids[r], first[r]);
                }
                if (!i) memcpy(first, ids, sizeof first);
            }
            free(logits);
        }
}

// Chi-square of 40000 draws against the exact probabilities; seeds are fixed, so the test cannot fail by luck.
static void chi_square(const float *logits, int64_t vocab, rd_sample_row p) {
    enum { DRAWS = 40000 };
    int32_t *order = malloc((size_t)vocab * sizeof *order);
    double *probability = malloc((size_t)vocab * sizeof *probability);
    int64_t kept = distribution(logits, vocab, &p, order, probability);
    const rdi_row *row;
    for (int i = 0; (row = row_at("sample", i)); i++) {
        int64_t *seen = calloc((size_t)vocab, sizeof *seen);
        rd_sample_row params[100];
        float *copies = malloc((size_t)(100 * vocab) * sizeof *copies);
        int32_t ids[100];
        for (int r = 0; r < 100; r++) memcpy(copies + r * vocab, logits, (size_t)vocab * sizeof *logits);
        for (int draw = 0; draw < DRAWS; draw += 100) {
            for (int r = 0; r < 100; r++) params[r] = p, params[r].counter = (uint64_t)(draw + r);
            run_rows(row, copies, 100, vocab, params, ids, NULL);
            for (int r = 0; r < 100; r++) seen[ids[r]]++;
        }
        double statistic = 0;
        for (int64_t id = 0; id < vocab; id++) {
            double wanted = DRAWS * probability[id], off = (double)seen[id] - wanted;
            if (probability[id] == 0)
                assert_int_equal(seen[id], 0);
            else
                statistic += off * off / wanted;
        }
        // Mean kept - 1, variance 2 (kept - 1): five deviations.
        assert_true(statistic <= (double)(kept - 1) + 5 * sqrt(2.0 * (double)kept) + 5);
        free(seen), free(copies);
    }
    free(order), free(probability);
}

static void test_sample_distribution(void **unused) {
    (void)unused;
    float logits[40];
    for (int i = 0; i < 40; i++) logits[i] = (float)((i * 17) % 40) * 0.1f; // a permutation: no ties
    chi_square(logits, 40, (rd_sample_row){.temperature = 1, .top_p = 1, .seed = 1});
    chi_square(logits, 40, (rd_sample_row){.temperature = 0.6f, .top_p = 0.9f, .seed = 2});
    chi_square(logits, 40, (rd_sample_row){.temperature = 2, .top_p = 1, .top_k = 7, .seed = 3});
    chi_square(logits, 40, (rd_sample_row){.temperature = 1, .top_p = 1, .min_p = 0.2f, .seed = 4});
    chi_square(logits, 40,
               (rd_sample_row){.temperature = 1.3f, .top_p = 0.8f, .top_k = 20, .min_p = 0.05f, .seed = 5});
}

// Ties at the top-k boundary are all kept and all drawn alike; rows without top-k in the same batch are not touched by it.
static void test_sample_bug_20_boundary_ties_and_top_k_off(void **unused) {
    (void)unused;
    float logits[32];
    for (int i = 0; i < 32; i++) logits[i] = -20;
    logits[3] = 2, logits[9] = logits[11] = logits[20] = logits[31] = 1; // top_k 2 lies on a tie of four
    const rdi_row *row;
    for (int i = 0; (row = row_at("sample", i)); i++) {
        int seen[32] = {0}, off_seen[32] = {0};
        float copies[3][32];
        for (int r = 0; r < 3; r++) memcpy(copies[r], logits, sizeof logits);
        for (int r = 0; r < 32; r++) copies[1][r] = copies[2][r] = 0; // flat: off must reach every token
        for (uint64_t draw = 0; draw < 4000; draw++) {
            rd_sample_row p[3] = {{.temperature = 1, .top_p = 1, .top_k = 2, .seed = 9, .counter = draw},
                                  {.temperature = 1, .top_p = 1, .top_k = 0, .seed = 9, .counter = draw},
                                  {.temperature = 1, .top_p = 1, .top_k = 32, .seed = 9, .counter = draw}};
            int32_t ids[3];
            run_rows(row, copies[0], 3, 32, p, ids, NULL);
            seen[ids[0]]++, off_seen[ids[1]]++;
            assert_int_equal(ids[1], ids[2]); // 0 and >= vocab are both off
        }
        double tie = 4000 / (4 + 2.718281828);
        for (int id = 0; id < 32; id++) {
            bool tied = id == 9 || id == 11 || id == 20 || id == 31;
            assert_true(tied      ? fabs(seen[id] - tie) < 6 * sqrt(tie)
                        : id == 3 ? seen[id] > 1000
                                  : seen[id] == 0);
            assert_true(fabs(off_seen[id] - 125.0) < 6 * sqrt(125.0));
        }
    }
}

// A greedy row may report top_k = vocab, top_p = 0 and anything else: temperature 0 is looked at first, and draws nothing.
static void test_sample_bug_21_greedy_row_with_top_k_vocab(void **unused) {
    (void)unused;
    float logits[2][50];
    for (int k = 0; k < 50; k++) logits[0][k] = logits[1][k] = (float)((k * 7) % 50);
    const rdi_row *row;
    for (int i = 0; (row = row_at("sample", i)); i++)
        for (uint64_t counter = 0; counter < 50; counter++) {
            rd_sample_row p[2] = {
                {.temperature = 0, .top_k = 50, .top_p = 0, .min_p = 1, .seed = counter, .counter = counter},
                {.temperature = 1, .top_k = 50, .top_p = 1, .seed = counter, .counter = counter}};
            int32_t ids[2];
            run_rows(row, logits[0], 2, 50, p, ids, NULL);
            assert_int_equal(ids[0], 7); // 49 = 7*7
            check_draw(logits[1], 50, &p[1], ids[1], 1e-5);
        }
}

// A flat row of a large vocabulary needs every candidate; a peaked one a few. Both against the sort.
static void test_sample_large_vocabularies(void **unused) {
    (void)unused;
    static const int64_t vocabs[] = {49152, 262144};
    uint64_t state = fresh_seed("sample large");
    for (int v = 0; v < 2; v++)
        for (int flat = 0; flat < 2; flat++) {
            int64_t vocab = vocabs[v];
            float *logits = malloc((size_t)vocab * sizeof *logits);
            for (int64_t k = 0; k < vocab; k++) logits[k] = (flat ? 0.01f : 2.5f) * random_normal(&state);
            for (int c = 0; c < 4; c++) {
                rd_sample_row p = {.temperature = 1,
                                   .top_p = c & 1 ? 0.9f : 1,
                                   .top_k = c & 2 ? 40 : 0,
                                   .seed = random_next(&state)};
                const rdi_row *row;
                int32_t first = -1;
                for (int i = 0; (row = row_at("sample", i)) && !row->info.is_reference; i++) {
                    int32_t id = run_one(row, logits, vocab, p);
                    if (!i)
                        check_draw(logits, vocab, &p, id, 1e-4);
                    else
                        assert_int_equal(id, first);
                    first = id;
                }
            }
            free(logits);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample_philox_published_vectors),
        cmocka_unit_test(test_sample_greedy_ties_and_bad_rows),
        cmocka_unit_test(test_sample_rows_agree_and_match_the_sort),
        cmocka_unit_test(test_sample_distribution),
        cmocka_unit_test(test_sample_bug_20_boundary_ties_and_top_k_off),
        cmocka_unit_test(test_sample_bug_21_greedy_row_with_top_k_vocab),
        cmocka_unit_test(test_sample_large_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
