// SPDX-License-Identifier: Apache-2.0
// Operands of rope_kv_write for the tests of its rows: random heads, slots in order and scattered, one skipped, poisoned caches.
#ifndef RADIANCE_TESTS_ROPE_KV_WRITE_H
#define RADIANCE_TESTS_ROPE_KV_WRITE_H

#include "elementwise.h"

enum { TOKENS = 21, Q_HEADS = 4, HEADS = 3, BLOCKS = 2, BLOCK_TOKENS = 32, MOST_DIM = 512 };

typedef struct both_case {
    int64_t head_dim, rotary_dim;
    rd_dtype x, kv, norm; // norm NONE: no qk-norm
    int token_order, interleaved;
} both_case;
typedef struct both_data {
    guarded q, k, v, k_cache, v_cache;
    rdi_rope_kv_write_args args;
} both_data;

static int32_t positions[TOKENS];
static int64_t slots[TOKENS];
static float inv_freq[MOST_DIM / 2], norms[2][MOST_DIM], scales[2][HEADS];

static inline void fill_tables(const both_case *c, uint64_t *state) {
    for (int t = 0; t < TOKENS; t++) positions[t] = (int32_t)(random_next(state) % 4000);
    // A whole group of sixteen in order, then a skipped slot, a few scattered ones, one named twice.
    for (int t = 0; t < TOKENS; t++)
        slots[t] = t < 16 ? 16 + t : t == 16 ? -1 : t == 20 ? 47 : 33 + 7 * (t - 17);
    for (int64_t i = 0; i < c->rotary_dim / 2; i++)
        inv_freq[i] = (float)pow(10000, -2.0 * (double)i / (double)c->rotary_dim);
    for (int i = 0; i < 2; i++) {
        fill(norms[i], c->norm ? c->norm : RD_DTYPE_F32, c->head_dim, state, 1);
        for (int h = 0; h < HEADS; h++) scales[i][h] = 0.01f * (float)(1 + h + i);
    }
}

static inline rdi_kv_write_args kv_args(const both_case *c, const both_data *d) {
    const int64_t elems = BLOCK_TOKENS * c->head_dim, row = HEADS * c->head_dim;
    const bool order = c->token_order, scaled = c->kv == RD_DTYPE_E4M3;
    return (rdi_kv_write_args){.tokens = TOKENS,
                               .kv_heads = HEADS,
                               .head_dim = c->head_dim,
                               .block_tokens = BLOCK_TOKENS,
                               .blocks = BLOCKS,
                               .k = d->k.data,
                               .v = d->v.data,
                               .k_stride_token = row,
                               .k_stride_head = c->head_dim,
                               .v_stride_token = row,
                               .v_stride_head = c->head_dim,
                               .k_cache = d->k_cache.data,
                               .v_cache = d->v_cache.data,
                               .kc_stride_block = HEADS * elems,
                               .kc_stride_token = order ? 1 : row,
                               .kc_stride_head = order ? elems : c->head_dim,
                               .kc_stride_dim = order ? 16 : 1,
                               .vc_stride_block = HEADS * elems,
                               .vc_stride_token = row,
                               .vc_stride_head = c->head_dim,
                               .vc_stride_dim = 1,
                               .k_scale = scaled ? scales[0] : NULL,
                               .v_scale = scaled ? scales[1] : NULL,
                               .slots = slots,
                               .x_dtype = c->x,
                               .kv_dtype = c->kv};
}

static inline both_data both_new(const both_case *c, uint64_t seed) {
    uint64_t state = seed;
    const int64_t q_elems = TOKENS * Q_HEADS * c->head_dim, k_elems = TOKENS * HEADS * c->head_dim,
                  cache = BLOCKS * BLOCK_TOKENS * HEADS * c->head_dim;
    both_data d = {guarded_new(q_elems, c->x), guarded_new(k_elems, c->x), guarded_new(k_elems, c->x),
                   guarded_new(cache, c->kv),  guarded_new(cache, c->kv),  {.rope = {0}}};
    fill(d.q.data, c->x, q_elems, &state, 1), fill(d.k.data, c->x, k_elems, &state, 1);
    fill(d.v.data, c->x, k_elems, &state, 1);
    d.args.kv = kv_args(c, &d);
    d.args.rope = (rdi_rope_args){.tokens = TOKENS,
                                  .q_heads = Q_HEADS,
                                  .k_heads = HEADS,
                                  .head_dim = c->head_dim,
                                  .rotary_dim = c->rotary_dim,
                                  .q = d.q.data,
                                  .k = d.k.data,
                                  .q_stride_token = Q_HEADS * c->head_dim,
                                  .q_stride_head = c->head_dim,
                                  .k_stride_token = HEADS * c->head_dim,
                                  .k_stride_head = c->head_dim,
                                  .positions = positions,
                                  .inv_freq = inv_freq,
                                  .q_norm = c->norm ? norms[0] : NULL,
                                  .k_norm = c->norm ? norms[1] : NULL,
                                  .q_dtype = c->x,
                                  .k_dtype = c->x,
                                  .norm_dtype = c->norm,
                                  .eps = 1e-6f,
                                  .interleaved = c->interleaved};
    return d;
}
static inline void both_free(both_data *d) {
    guarded_free(&d->q), guarded_free(&d->k), guarded_free(&d->v), guarded_free(&d->k_cache),
        guarded_free(&d->v_cache);
}

#endif
