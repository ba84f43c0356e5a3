// SPDX-License-Identifier: Apache-2.0
// Benches of attention: decode, verify and prefill shapes over fp8 and bf16 caches, in the engine's cache layout. Decode reads
// copies of the cache in turn that together exceed every CPU cache ("cold").
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_TOKENS = 64, COLD_BYTES = 256 << 20 };

typedef struct attn_shape {
    int64_t seqs, q_len, kv_len, q_heads, kv_heads, head_dim;
    bool fp8, cold;
} attn_shape;
static const attn_shape decode_shapes[] = {
    {1, 1, 8192, 9, 3, 64, true, true},   {1, 1, 32768, 9, 3, 64, true, true},
    {1, 1, 2048, 9, 3, 64, true, false},  {1, 1, 64, 9, 3, 64, true, false},
    {1, 1, 8192, 9, 3, 64, false, true},  {1, 1, 8192, 8, 8, 128, true, true},
    {1, 1, 8192, 16, 4, 128, true, true}, {1, 1, 8192, 24, 4, 256, true, true},
    {8, 1, 2048, 9, 3, 64, true, true},   {1, 8, 2048, 9, 3, 64, true, false},
};
static const attn_shape prefill_shapes[] = {{1, 512, 512, 9, 3, 64, true, false},
                                            {1, 512, 2048, 9, 3, 64, true, false},
                                            {1, 512, 512, 16, 4, 128, false, false}};

typedef struct attn_bench {
    rd_attn_args args;
    int32_t *tables;
    int64_t copies, table_entries;
    bool on_card; // keys by head_dim; copies are made there
} attn_bench;

static void next_copy(void *state, int64_t turn) {
    attn_bench *b = state;
    b->args.block_table.data = b->tables + turn % b->copies * b->table_entries;
}

// K in groups of 16 tokens (on a card by token too), V by token, heads outside tokens: as src/engine lays its cache out.
static rd_tensor cache(void *data, const attn_shape *s, int64_t blocks, bool grouped) {
    rd_dtype dtype = s->fp8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
    rd_tensor t = rd_tensor_4d(data, dtype, blocks, BLOCK_TOKENS, s->kv_heads, s->head_dim);
    t.stride[0] = s->kv_heads * BLOCK_TOKENS * s->head_dim;
    t.stride[1] = grouped ? 1 : s->head_dim;
    t.stride[2] = BLOCK_TOKENS * s->head_dim;
    t.stride[3] = grouped ? 16 : 1;
    return t;
}

static void make(attn_bench *b, const attn_shape *s, bench_buffers *buffers) {
    rd_dtype dtype = s->fp8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
    int64_t per_seq = (s->kv_len + BLOCK_TOKENS - 1) / BLOCK_TOKENS, tokens = s->seqs * s->q_len;
    int64_t block_elems = s->kv_heads * BLOCK_TOKENS * s->head_dim, elem = s->fp8 ? 1 : 2;
    b->table_entries = s->seqs * per_seq;
    b->copies = s->cold && !b->on_card ? COLD_BYTES / (2 * b->table_entries * block_elems * elem) + 1 : 1;
    int64_t blocks = b->copies * b->table_entries, elems = blocks * block_elems;
    void *k = bench_room(buffers, elems * elem), *v = bench_room(buffers, elems * elem);
    bench_fill(k, dtype, elems, 1), bench_fill(v, dtype, elems, 1);
    void *q = bench_room(buffers, tokens * s->q_heads * s->head_dim * 2);
    bench_fill(q, RD_DTYPE_BF16, tokens * s->q_heads * s->head_dim, 2);
    float *scales = bench_room(buffers, s->kv_heads * 4);
    int32_t *lens = bench_room(buffers, s->seqs * 4), *starts = bench_room(buffers, (s->seqs + 1) * 4);
    b->tables = bench_room(buffers, blocks * 4);
    void *out = bench_room(buffers, tokens * s->q_heads * s->head_dim * 4);
    if (buffers->failed) return;
    for (int64_t i = 0; i < blocks; i++) b->tables[i] = (int32_t)i;
    for (int64_t i = 0; i < s->seqs; i++) lens[i] = (int32_t)s->kv_len;
    for (int64_t i = 0; i <= s->seqs; i++) starts[i] = (int32_t)(i * s->q_len);
    for (int64_t i = 0; i < s->kv_heads; i++) scales[i] = 0.75f + 0.125f * (float)i;
    b->args = (rd_attn_args){.struct_size = sizeof b->args,
                             .q = rd_tensor_3d(q, RD_DTYPE_BF16, tokens, s->q_heads, s->head_dim),
                             .k_cache = cache(k, s, blocks, !b->on_card),
                             .v_cache = cache(v, s, blocks, false),
                             .k_scale = rd_tensor_1d(s->fp8 ? scales : NULL, RD_DTYPE_F32, s->kv_heads),
                             .v_scale = rd_tensor_1d(s->fp8 ? scales : NULL, RD_DTYPE_F32, s->kv_heads),
                             .block_table = rd_tensor_2d(b->tables, RD_DTYPE_I32, s->seqs, per_seq),
                             .kv_lens = rd_tensor_1d(lens, RD_DTYPE_I32, s->seqs),
                             .q_starts = rd_tensor_1d(starts, RD_DTYPE_I32, s->seqs + 1),
                             .out = rd_tensor_3d(out, RD_DTYPE_F32, tokens, s->q_heads, s->head_dim),
                             .scale = 1 / sqrtf((float)s->head_dim),
                             .max_q_len = b->on_card ? (int32_t)s->q_len : 0,
                             .max_kv_len = b->on_card ? (int32_t)s->kv_len : 0};
}

static rd_status run_attn(const rd_plan *plan, const void *args, void *ws, size_t *ws_bytes) {
    return rd_attn_run(plan, args, ws, ws_bytes, NULL);
}

static rd_status bench_one(bench_run *run, const attn_shape *s) {
    bench_buffers buffers = {0};
    attn_bench b = {.on_card = bench_on_card(run)};
    make(&b, s, &buffers);
    char shape[128];
    snprintf(shape, sizeof shape, "seqs=%lld,q_len=%lld,kv=%lld,heads=%lld/%lld,dim=%lld,%s",
             (long long)s->seqs, (long long)s->q_len, (long long)s->kv_len, (long long)s->q_heads,
             (long long)s->kv_heads, (long long)s->head_dim, s->fp8 ? "fp8" : "bf16");
    const rd_param params[] = {RD_INT("head_dim", s->head_dim),
                               RD_INT("gqa", s->q_heads / s->kv_heads),
                               RD_INT("block_tokens", BLOCK_TOKENS),
                               RD_WORD("q_dtype", "bf16"),
                               RD_WORD("kv_dtype", s->fp8 ? "fp8_e4m3" : "bf16"),
                               RD_WORD("out_dtype", "fp32"),
                               RD_WORD("k_order", b.on_card ? "dim" : "token"),
                               RD_INT("window", 0),
                               RD_INT("softcap", 0),
                               RD_INT("sinks", 0),
                               RD_INT("causal", 1)};
    double pairs = 0; // visible (query, key) pairs of a head; two products of head_dim each
    for (int64_t i = 0; i < s->q_len; i++) pairs += (double)(s->kv_len - s->q_len + i + 1);
    double per_call = (double)(s->seqs * s->kv_len * s->kv_heads * s->head_dim * 2 * (s->fp8 ? 1 : 2));
    int64_t cached = b.copies * b.table_entries * BLOCK_TOKENS * s->kv_heads * s->head_dim * (s->fp8 ? 1 : 2);
    const bench_call call = {.params = params,
                             .param_count = CLI_COUNT(params),
                             .at = s->q_len,
                             .run = run_attn,
                             .args = &b.args,
                             .out = &b.args.out,
                             .limit = b.on_card ? 1e-2
                                                : 1e-4, // f32 rows stay near 1e-6, 16-bit operands near 2e-3
                             .bytes = per_call,
                             .flops = 4 * pairs * (double)(s->seqs * s->q_heads * s->head_dim),
                             .shape = shape,
                             .memory = b.args.k_cache.data,
                             .memory_bytes = cached,
                             .rotate = s->cold ? next_copy : NULL,
                             .state = &b};
    rd_status status = buffers.failed ? cli_error(RD_E_NOMEM, "no memory for the operands of %s", shape)
                                      : bench_call_rows(run, &call);
    bench_buffers_free(&buffers);
    return status;
}

rd_status bench_attn(bench_run *run) {
    bool prefill = !strcmp(run->op, "attn_prefill");
    const attn_shape *shapes = prefill ? prefill_shapes : decode_shapes;
    static const attn_shape small[] = {
        {2, 1, 600, 4, 2, 64, true, false}}; // executed instruction by instruction
    if (run->simulated) shapes = small;
    int count = run->options->shape || run->simulated ? 1
                : prefill                             ? CLI_COUNT(prefill_shapes)
                                                      : CLI_COUNT(decode_shapes);
    rd_status status = RD_OK;
    for (int i = 0; status == RD_OK && i < count; i++) {
        attn_shape s = shapes[i];
        bench_shape_value(run->options, "SEQS", &s.seqs);
        bench_shape_value(run->options, "Q_LEN", &s.q_len);
        bench_shape_value(run->options, "KV", &s.kv_len);
        bench_shape_value(run->options, "Q_HEADS", &s.q_heads);
        bench_shape_value(run->options, "KV_HEADS", &s.kv_heads);
        bench_shape_value(run->options, "HEAD_DIM", &s.head_dim);
        if (s.q_heads % s.kv_heads || s.kv_len < s.q_len)
            return cli_error(RD_E_INVALID,
                             "shape: Q_HEADS=%lld KV_HEADS=%lld KV=%lld Q_LEN=%lld, needs a whole ratio of "
                             "heads and KV >= Q_LEN",
                             (long long)s.q_heads, (long long)s.kv_heads, (long long)s.kv_len,
                             (long long)s.q_len);
        status = bench_one(run, &s);
    }
    return status;
}
