// SPDX-License-Identifier: Apache-2.0
// Attention cases for tests and benches: random paged caches in several layouts, NaN in every slot that no row sees, block
// ids that fault when a hidden entry is read, and an oracle in double that shares no code with the kernels: two passes
// over the logical keys, never over the cache.
#ifndef RD_ATTN_CASE_H
#define RD_ATTN_CASE_H

#include "kernels/attn/args.h"
#include "rows.h"

enum { CASE_SEQS_MAX = 8 };
typedef struct attn_shape {
    int seqs, q_len[CASE_SEQS_MAX], kv_len[CASE_SEQS_MAX];
    int q_heads, kv_heads, head_dim, block_tokens, window;
    float softcap;
    bool sinks, scales, token_order, v_transposed;
    rd_dtype q_dtype, kv_dtype, out_dtype;
} attn_shape;

typedef struct attn_case {
    attn_shape shape;
    rdi_attn_args args;
    guarded q, k, v, out;
    uint16_t *k_codes[CASE_SEQS_MAX], *v_codes[CASE_SEQS_MAX]; // logical [position][kv_head][dim]
    float *k_scale, *v_scale, *sinks;
    int32_t *table, kv_lens[CASE_SEQS_MAX], q_starts[CASE_SEQS_MAX + 1];
    int64_t blocks_per_seq;
} attn_case;

static inline uint16_t case_code(rd_dtype dtype, float value) {
    return dtype == RD_DTYPE_E4M3 ? rdi_e4m3_from_f32(value) : rdi_bf16_from_f32(value);
}
static inline float case_value(rd_dtype dtype, uint16_t code) {
    return dtype == RD_DTYPE_E4M3 ? rdi_f32_from_e4m3((uint8_t)code) : rdi_f32_from_bf16(code);
}
static inline void case_put(void *cache, rd_dtype dtype, int64_t at, uint16_t code) {
    if (dtype == RD_DTYPE_E4M3)
        ((uint8_t *)cache)[at] = (uint8_t)code;
    else
        ((uint16_t *)cache)[at] = code;
}
static inline int64_t case_key_at(const rdi_attn_args *a, int64_t block, int64_t token, int64_t head,
                                  int64_t dim) {
    int64_t at = block * a->k_stride_block + head * a->k_stride_head;
    if (a->k_interleave == 16) return at + token / 16 * 16 * a->head_dim + token % 16 + dim * 16;
    return at + token * a->k_stride_token + dim * a->k_stride_dim;
}
static inline int64_t case_value_at(const rdi_attn_args *a, int64_t block, int64_t token, int64_t head,
                                    int64_t dim) {
    return block * a->v_stride_block + head * a->v_stride_head + token * a->v_stride_token +
           dim * a->v_stride_dim;
}

// Strides of the layouts: heads outside tokens with a pad (the engine's), or heads inside tokens (vLLM's NHD).
static inline void case_strides(attn_case *c) {
    rdi_attn_args *a = &c->args;
    int64_t dims = a->head_dim, tokens = a->block_tokens, pad = 16;
    a->k_interleave = c->shape.token_order ? 16 : 1;
    a->k_stride_head = c->shape.token_order ? tokens * dims : dims;
    a->k_stride_token = c->shape.token_order ? 1 : a->kv_heads * dims;
    a->k_stride_dim = c->shape.token_order ? 16 : 1;
    a->k_stride_block = a->kv_heads * tokens * dims + pad;
    a->v_stride_head = tokens * dims;
    a->v_stride_token = c->shape.v_transposed ? 1 : dims;
    a->v_stride_dim = c->shape.v_transposed ? tokens : 1;
    a->v_stride_block = a->kv_heads * tokens * dims + 2 * pad;
}

static inline void case_fill_sequence(attn_case *c, int seq, uint64_t *rng) {
    const rdi_attn_args *a = &c->args;
    int64_t per_key = a->kv_heads * a->head_dim, keys = c->kv_lens[seq];
    c->k_codes[seq] = malloc((size_t)(keys * per_key + 1) * sizeof(uint16_t));
    c->v_codes[seq] = malloc((size_t)(keys * per_key + 1) * sizeof(uint16_t));
    for (int64_t i = 0; i < keys * per_key; i++) {
        uint64_t bits = random_next(rng); // sums of four bytes are near enough to normal, and fast
        float x = (float)((int)(bits & 255) + (int)(bits >> 8 & 255) + (int)(bits >> 16 & 255) +
                          (int)(bits >> 24 & 255) - 510);
        float y = (float)((int)(bits >> 32 & 255) + (int)(bits >> 40 & 255) + (int)(bits >> 48 & 255) +
                          (int)(bits >> 56) - 510);
        c->k_codes[seq][i] = case_code(a->kv_dtype, x * (1.0f / 148));
        c->v_codes[seq][i] = case_code(a->kv_dtype, y * (1.0f / 148));
    }
    // First key that any row of the sequence sees: earlier ones keep their NaN, their blocks an id that would fault.
    int64_t first = a->window > 0 ? rdi_max(0, keys - c->shape.q_len[seq] - a->window + 1) : 0;
    for (int64_t position = first; position < keys; position++) {
        int64_t block = c->table[seq * c->blocks_per_seq + position / a->block_tokens],
                token = position % a->block_tokens;
        for (int64_t h = 0; h < a->kv_heads; h++)
            for (int64_t d = 0; d < a->head_dim; d++) {
                int64_t i = position * per_key + h * a->head_dim + d;
                case_put(c->k.data, a->kv_dtype, case_key_at(a, block, token, h, d), c->k_codes[seq][i]);
                case_put(c->v.data, a->kv_dtype, case_value_at(a, block, token, h, d), c->v_codes[seq][i]);
            }
    }
    for (int64_t i = 0; i < c->blocks_per_seq; i++)
        if ((i + 1) * a->block_tokens <= first || i * a->block_tokens >= keys)
            c->table[seq * c->blocks_per_seq + i] = INT32_MIN / 2;
}

static inline void case_table(attn_case *c, uint64_t *rng) { // scattered: a random permutation of all blocks
    int64_t count = c->shape.seqs * c->blocks_per_seq;
    c->table = malloc((size_t)(count + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) {
        int64_t j = (int64_t)(random_next(rng) % (uint64_t)(i + 1));
        c->table[i] = c->table[j];
        c->table[j] = (int32_t)i;
    }
}

static inline attn_case *case_new(const attn_shape *shape, uint64_t *rng) {
    attn_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->shape = *shape;
    int64_t tokens = 0, longest = 1;
    for (int s = 0; s < shape->seqs; s++) {
        c->q_starts[s] = (int32_t)tokens;
        tokens += shape->q_len[s];
        c->kv_lens[s] = shape->kv_len[s];
        longest = rdi_max(longest, shape->kv_len[s]);
    }
    c->q_starts[shape->seqs] = (int32_t)tokens;
    c->blocks_per_seq = rdi_ceil_div(longest, shape->block_tokens) + 1;
    int64_t heads = shape->q_heads, dims = shape->head_dim;
    c->args = (rdi_attn_args){.seqs = shape->seqs,
                              .tokens = tokens,
                              .q_heads = heads,
                              .kv_heads = shape->kv_heads,
                              .head_dim = dims,
                              .block_tokens = shape->block_tokens,
                              .max_blocks = c->blocks_per_seq,
                              .blocks = shape->seqs * c->blocks_per_seq,
                              .q_stride_token = heads * dims + 8,
                              .q_stride_head = dims,
                              .block_table_stride = c->blocks_per_seq,
                              .kv_lens = c->kv_lens,
                              .q_starts = c->q_starts,
                              .out_stride_token = heads * dims + 24,
                              .out_stride_head = dims,
                              .q_dtype = shape->q_dtype,
                              .kv_dtype = shape->kv_dtype,
                              .out_dtype = shape->out_dtype,
                              .scale = (float)(1 / sqrt((double)dims)),
                              .softcap = shape->softcap,
                              .window = shape->window};
    rdi_attn_args *a = &c->args;
    case_strides(c);
    c->q = guarded_new(tokens * a->q_stride_token, a->q_dtype);
    c->out = guarded_new(tokens * a->out_stride_token, a->out_dtype);
    c->k = guarded_new(a->blocks * a->k_stride_block, a->kv_dtype); // all poison: every code is NaN
    c->v = guarded_new(a->blocks * a->v_stride_block, a->kv_dtype);
    for (int64_t i = 0; i < tokens * a->q_stride_token; i++)
        if (i % a->q_stride_token < heads * dims)
            rdi_store_f32(c->q.data, a->q_dtype, i, 1.5f * random_normal(rng));
    case_table(c, rng);
    for (int s = 0; s < shape->seqs; s++) case_fill_sequence(c, s, rng);
    c->k_scale = malloc((size_t)shape->kv_heads * sizeof(float));
    c->v_scale = malloc((size_t)shape->kv_heads * sizeof(float));
    c->sinks = malloc((size_t)heads * sizeof(float));
    for (int h = 0; h < shape->kv_heads; h++) {
        c->k_scale[h] = (float)(0.5 + random_unit(rng));
        c->v_scale[h] = (float)(0.25 + 3 * random_unit(rng));
    }
    for (int h = 0; h < heads; h++) c->sinks[h] = 2 * random_normal(rng);
    a->q = c->q.data, a->k_cache = c->k.data, a->v_cache = c->v.data, a->out = c->out.data,
    a->block_table = c->table;
    if (shape->scales && shape->kv_dtype == RD_DTYPE_E4M3) a->k_scale = c->k_scale, a->v_scale = c->v_scale;
    if (shape->sinks) a->sinks = c->sinks;
    return c;
}

static inline void case_free(attn_case *c) {
    guarded_free(&c->q), guarded_free(&c->k), guarded_free(&c->v), guarded_free(&c->out);
    for (int s = 0; s < c->shape.seqs; s++) free(c->k_codes[s]), free(c->v_codes[s]);
    free(c->k_scale), free(c->v_scale), free(c->sinks), free(c->table), free(c);
}

// Runs a row on `threads` threads into a poisoned output, which it returns (caller frees); pads must stay poison.
static inline void *case_run(attn_case *c, const rdi_row *row, int threads) {
    rdi_par *par = NULL;
    assert_int_equal(rdi_par_create(threads, NULL, NULL, &par), RD_OK);
    size_t bytes = row->ws_bytes ? row->ws_bytes(&c->args, threads) : 0, guard = 64;
    uint8_t *ws = aligned_alloc(64, (bytes + 63) / 64 * 64 + guard);
    assert_non_null(ws);
    memset(ws, POISON, (bytes + 63) / 64 * 64 + guard);
    memset(c->out.data, POISON, c->out.bytes);
    row->run(&c->args, ws, par);
    for (size_t i = bytes; i < (bytes + 63) / 64 * 64 + guard; i++) assert_int_equal(ws[i], POISON);
    free(ws);
    rdi_par_free(par);
    guarded_check(&c->out);
    int64_t row_elems = c->args.q_heads * c->args.head_dim, elem = (int64_t)rd_dtype_bytes(c->args.out_dtype);
    for (int64_t i = 0; i < c->args.tokens * c->args.out_stride_token; i++)
        if (i % c->args.out_stride_token >= row_elems)
            for (int64_t byte = 0; byte < elem; byte++)
                assert_int_equal(((uint8_t *)c->out.data)[i * elem + byte], POISON);
    void *copy = malloc(c->out.bytes + 1);
    assert_non_null(copy);
    return memcpy(copy, c->out.data, c->out.bytes);
}

static inline int64_t case_out_at(const attn_case *c, int64_t token, int64_t head, int64_t dim) {
    return token * c->args.out_stride_token + head * c->args.out_stride_head + dim;
}

// ---- the oracle -------------------------------------------------------------------------------------------------------
typedef struct oracle_row {
    double out[512], magnitude[512]; // magnitude: sum of w |v| / sum of w
    double logits;                   // largest sum of |q k| scale over the visible keys, in log2 units
    int64_t keys;
} oracle_row;

static inline void oracle_attend(const attn_case *c, int seq, int64_t token_in_seq, int64_t head,
                                 oracle_row *o) {
    const rdi_attn_args *a = &c->args;
    int64_t q_len = c->shape.q_len[seq], position = c->kv_lens[seq] - q_len + token_in_seq,
            dims = a->head_dim;
    int64_t kv_head = head / (a->q_heads / a->kv_heads), per_key = a->kv_heads * dims;
    int64_t first = a->window > 0 ? rdi_max(0, position - a->window + 1) : 0, q_at;
    double *x = malloc((size_t)(rdi_max(position, 0) + 2) * sizeof(double)),
           top = a->sinks ? (double)a->sinks[head] : -INFINITY;
    q_at = (a->q_starts[seq] + token_in_seq) * a->q_stride_token + head * a->q_stride_head;
    memset(o, 0, sizeof *o);
    o->keys = position >= first ? position - first + 1 : 0;
    for (int64_t j = first; j <= position; j++) {
        double sum = 0, size = 0;
        for (int64_t d = 0; d < dims; d++) {
            double term = (double)rdi_load_f32(a->q, a->q_dtype, q_at + d) *
                          (double)case_value(a->kv_dtype, c->k_codes[seq][j * per_key + kv_head * dims + d]);
            sum += term, size += fabs(term);
        }
        double scale = (double)a->scale * (a->k_scale ? (double)a->k_scale[kv_head] : 1.0);
        x[j] = a->softcap > 0 ? (double)a->softcap * tanh(sum * scale / (double)a->softcap) : sum * scale;
        o->logits = fmax(o->logits, size * scale * 1.4426950408889634);
        if (!(x[j] <= top)) top = x[j];
    }
    double total = a->sinks ? exp((double)a->sinks[head] - top) : 0;
    for (int64_t j = first; j <= position; j++) {
        double w = exp(x[j] - top);
        total += w;
        for (int64_t d = 0; d < dims; d++) {
            double v = (double)case_value(a->kv_dtype, c->v_codes[seq][j * per_key + kv_head * dims + d]);
            o->out[d] += w * v, o->magnitude[d] += w * fabs(v);
        }
    }
    double scale = a->v_scale ? (double)a->v_scale[kv_head] : 1.0;
    for (int64_t d = 0; d < dims; d++) {
        o->out[d] = o->keys ? o->out[d] * scale / total : 0;
        o->magnitude[d] = o->keys ? o->magnitude[d] * scale / total : 0;
    }
    free(x);
}

// Error that the f32 rows may make, u = 2^-24. A chain of n rounded steps errs by about sqrt(n) u of its magnitude; lambda =
// 8 makes an excess a matter of e^-32 a sum (Higham and Mary, SIAM J. Sci. Comput. 41, 2019). A score errs by that over
// head_dim + 2 steps, then 2^x turns it into a relative error of the weight (times ln 2), to which come 2^x itself (4 u), a
// rescaling a block of 128 keys and two for a merge (6 u each); numerator and denominator both carry it; their own chains
// have as many steps as keys. The double reference errs by its final rounding alone.
static inline double oracle_bound(const attn_case *c, const oracle_row *o, int64_t dim, bool reference) {
    double u = 0x1p-24, keys = (double)o->keys + 2, size = o->magnitude[dim];
    double cap = c->args.softcap > 0 ? 8 * (double)c->args.softcap * 1.4427 * u : 0;
    double weight =
        0.6932 * (8 * sqrt((double)c->args.head_dim + 2) * u * o->logits + 2 * u * o->logits + cap) + 4 * u +
        8 * sqrt(keys / 128 + 2) * 6 * u;
    double bound = reference ? 1e-12 * size : size * (2 * weight + 2 * 8 * sqrt(keys) * u + 4 * u);
    return bound + fabs(o->out[dim]) * (c->args.out_dtype == RD_DTYPE_BF16 ? 0x1p-8 : 0x1p-23) + 1e-30;
}

#endif // RD_ATTN_CASE_H
