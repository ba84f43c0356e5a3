// SPDX-License-Identifier: Apache-2.0
// Small ops of a step that are no rows of a width: heads on their way to the cache, and the sampler.
#include "card_small.h"

#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 151936 };

// ---- heads: rope, qk-norm and the cache's write in one launch --------------------------------------------------------
typedef struct head_bench {
    rd_plan *plan;
    rd_rope_args rope;
    rd_kv_write_args kv;
} head_bench;

static void run_heads(void *state, int64_t call) {
    const head_bench *b = state;
    (void)call;
    card_need(rd_rope_kv_write_run(b->plan, &b->rope, &b->kv, card_stream));
}

static rd_tensor tokens(int64_t m, int64_t heads, int64_t dim) {
    void *there = NULL;
    free(small_random(m * heads * dim, &there));
    return small_on_card(rd_tensor_3d(there, RD_DTYPE_BF16, m, heads, dim));
}

static void open_heads(head_bench *b, int64_t m, int64_t q_heads, int64_t kv_heads, int64_t dim,
                       int64_t rotary) {
    const int64_t blocks = (m + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    const size_t cache_bytes = (size_t)(blocks * BLOCK_TOKENS * kv_heads * dim);
    const rd_rope_scaling scaling = {.type = "none", .theta = 1e6};
    int64_t *slots = card_host((size_t)m * 8);
    int32_t *positions = card_host((size_t)m * 4);
    float *freq = card_host((size_t)rotary * 2), *ones = card_host((size_t)kv_heads * 4);
    for (int64_t i = 0; i < m; i++) slots[i] = i, positions[i] = (int32_t)i;
    for (int64_t i = 0; i < kv_heads; i++) ones[i] = 0.01f;
    card_need(rd_rope_frequencies(&scaling, (int32_t)rotary, freq));
    void *norm = NULL;
    free(small_random(dim, &norm));
    *b = (head_bench){.rope = {.struct_size = sizeof b->rope, .eps = 1e-6f},
                      .kv = {.struct_size = sizeof b->kv}};
    b->rope.q = tokens(m, q_heads, dim), b->rope.k = b->kv.k = tokens(m, kv_heads, dim);
    b->kv.v = tokens(m, kv_heads, dim);
    b->rope.positions = small_on_card(rd_tensor_1d(card_put(positions, (size_t)m * 4), RD_DTYPE_I32, m));
    b->rope.inv_freq =
        small_on_card(rd_tensor_1d(card_put(freq, (size_t)rotary * 2), RD_DTYPE_F32, rotary / 2));
    b->rope.q_norm = b->rope.k_norm = small_on_card(rd_tensor_1d(norm, RD_DTYPE_BF16, dim));
    b->kv.k_cache = small_on_card(
        rd_tensor_4d(card_alloc(cache_bytes), RD_DTYPE_E4M3, blocks, BLOCK_TOKENS, kv_heads, dim));
    b->kv.v_cache = small_on_card(
        rd_tensor_4d(card_alloc(cache_bytes), RD_DTYPE_E4M3, blocks, BLOCK_TOKENS, kv_heads, dim));
    b->kv.k_scale = b->kv.v_scale =
        small_on_card(rd_tensor_1d(card_put(ones, (size_t)kv_heads * 4), RD_DTYPE_F32, kv_heads));
    b->kv.slots = small_on_card(rd_tensor_1d(card_put(slots, (size_t)m * 8), RD_DTYPE_I64, m));
    card_set(b->kv.k_cache.data, 0, cache_bytes), card_set(b->kv.v_cache.data, 0, cache_bytes);
    free(slots), free(positions), free(freq), free(ones);
}

void small_heads(int64_t m, int64_t q_heads, int64_t kv_heads, int64_t dim, int64_t rotary) {
    const rd_param question[] = {
        RD_INT("head_dim", dim),         RD_INT("rotary_dim", rotary), RD_WORD("style", "neox"),
        RD_WORD("x_dtype", "bf16"),      RD_INT("qk_norm", 1),         RD_INT("block_tokens", BLOCK_TOKENS),
        RD_WORD("kv_dtype", "fp8_e4m3"), RD_WORD("k_order", "dim")};
    char name[64];
    head_bench b;
    open_heads(&b, m, q_heads, kv_heads, dim, rotary);
    snprintf(name, sizeof name, "rope_kv_write %lld/%lldx%lld rotary %lld", (long long)q_heads,
             (long long)kv_heads, (long long)dim, (long long)rotary);
    // q read and written, k and v read, codes of both written.
    job j = {.name = name,
             .m = m,
             .k = dim,
             .calls = small_calls(m),
             .bytes = (double)(m * dim) * (4.0 * (double)q_heads + 6.0 * (double)kv_heads),
             .run = run_heads,
             .state = &b,
             .plan = &b.plan};
    small_part(&j, b.rope.q.data, (size_t)(m * q_heads * dim) * 2, true);
    small_part(&j, b.rope.k.data, (size_t)(m * kv_heads * dim) * 2, true);
    small_part(&j, b.kv.k_cache.data, (size_t)(b.kv.k_cache.shape[0] * BLOCK_TOKENS * kv_heads * dim), false);
    small_part(&j, b.kv.v_cache.data, (size_t)(b.kv.k_cache.shape[0] * BLOCK_TOKENS * kv_heads * dim), false);
    small_measure(&j, card_kernel("rope_kv_write", question, 8), question, 8);
    void *const there[] = {b.rope.q.data,        b.rope.k.data,      b.kv.v.data,       b.rope.positions.data,
                           b.rope.inv_freq.data, b.rope.q_norm.data, b.kv.k_cache.data, b.kv.v_cache.data,
                           b.kv.k_scale.data,    b.kv.slots.data};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) card_free(there[i]);
}

// ---- sample ----------------------------------------------------------------------------------------------------------
typedef struct sample_bench {
    rd_plan *plan;
    int64_t rows;
    float *logits; // host
    void *card_logits, *params, *ws;
    unsigned char *ids; // of calls: [rows]
    size_t ws_bytes;
    bool greedy;
} sample_bench;

static void run_sample(void *state, int64_t call) {
    sample_bench *b = state;
    const rd_sample_args args = {
        .struct_size = sizeof args,
        .logits = small_matrix(b->card_logits, RD_DTYPE_F32, b->rows, VOCAB),
        .rows = b->params,
        .ids = small_on_card(rd_tensor_1d(b->ids + (size_t)(call * b->rows) * 4, RD_DTYPE_I32, b->rows))};
    if (!b->ws) { // at the first call alone, before any graph
        card_need(rd_sample_run(b->plan, &args, NULL, &b->ws_bytes, card_stream));
        b->ws = card_alloc(b->ws_bytes += 64);
    }
    card_need(rd_sample_run(b->plan, &args, b->ws, &b->ws_bytes, card_stream));
}

// Greedy: the largest logit; else any token of the vocabulary (the check command judges the draw).
static double sample_error(void *state) {
    const sample_bench *b = state;
    int32_t *ids = card_host((size_t)b->rows * 4);
    double error = 0;
    card_get(ids, b->ids, (size_t)b->rows * 4);
    for (int64_t row = 0; row < b->rows; row++) {
        const float *logits = b->logits + row * VOCAB;
        int64_t best = 0;
        for (int64_t i = 1; i < VOCAB; i++) best = logits[i] > logits[best] ? i : best;
        if (b->greedy ? ids[row] != best : ids[row] < 0 || ids[row] >= VOCAB) error = 9;
    }
    free(ids);
    return error;
}

static void measure_sample(sample_bench *b, const char *name, rd_sample_row row) {
    const rd_param question[] = {RD_INT("vocab", VOCAB)};
    rd_sample_row *rows = card_host((size_t)b->rows * sizeof *rows);
    for (int64_t i = 0; i < b->rows; i++) rows[i] = row, rows[i].seed = (uint64_t)i, rows[i].counter = 2;
    b->greedy = row.temperature <= 0, b->params = card_put(rows, (size_t)b->rows * sizeof *rows);
    b->ids = card_alloc((size_t)(small_calls(LARGE_ROWS) * b->rows) * 4);
    job j = {.name = name,
             .m = b->rows,
             .k = VOCAB,
             .calls = small_calls(LARGE_ROWS),
             .bytes = 4.0 * (double)(b->rows * VOCAB),
             .run = run_sample,
             .state = b,
             .plan = &b->plan,
             .error = sample_error};
    small_part(&j, b->ids, (size_t)(small_calls(LARGE_ROWS) * b->rows) * 4, false);
    small_measure(&j, card_kernel("sample", question, 1), question, 1);
    card_free(b->ws);
    b->ws = NULL, b->ws_bytes = 0;
    card_free(b->params), card_free(b->ids);
    free(rows);
}

// Logits as of a model: normal of deviation 3, a sum of uniforms.
void small_samples(int64_t rows) {
    static const struct {
        const char *name;
        rd_sample_row row;
    } cases[] = {{"sample greedy", {.temperature = 0, .top_p = 1}},
                 {"sample T=0.8 k=40 p=0.95", {.temperature = 0.8f, .top_p = 0.95f, .top_k = 40}},
                 {"sample T=0.8 p=0.95", {.temperature = 0.8f, .top_p = 0.95f}},
                 {"sample T=1", {.temperature = 1, .top_p = 1}}};
    sample_bench b = {.rows = rows, .logits = card_host((size_t)(rows * VOCAB) * 4)};
    for (int64_t i = 0; i < rows * VOCAB; i++) {
        double sum = 0;
        for (int half = 0; half < 6; half++) { // six words, two uniforms each: deviation 1
            const uint32_t r = card_random();
            sum += (double)(r & 0xffff) / 65536 + (double)(r >> 16) / 65536 - 1;
        }
        b.logits[i] = (float)(3 * sum);
    }
    b.card_logits = card_put(b.logits, (size_t)(rows * VOCAB) * 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) measure_sample(&b, cases[i].name, cases[i].row);
    card_free(b.card_logits);
    free(b.logits);
}
