// SPDX-License-Identifier: Apache-2.0
// Benches of the small ops of a decode step (M = 1) and of a prefill chunk (M = 512), at the widths of a small model. Operands
// stay in cache, as between the GEMMs of a step; the ceiling reads as many bytes from the caches.
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 1536,
    ROWS = 512,
    HEADS = 9,
    HEAD_DIM = 64,
    BLOCK_TOKENS = 64,
    VOCAB = 49152,
    MOST_VOCAB = 262144
};

static rd_status run_quant(const rd_plan *plan, const void *args, void *ws, size_t *ws_bytes) {
    return rd_quant_run(plan, args, ws, ws_bytes, NULL);
}
static rd_status run_sample(const rd_plan *plan, const void *args, void *ws, size_t *ws_bytes) {
    return rd_sample_run(plan, args, ws, ws_bytes, NULL);
}
// These need no workspace; a size query does nothing.
#define DEFINE_RUN(op_)                                                                                      \
    static rd_status run_##op_(const rd_plan *plan, const void *args, void *ws, size_t *ws_bytes) {          \
        bool query = !ws && ws_bytes;                                                                        \
        if (query) *ws_bytes = 0;                                                                            \
        return query ? RD_OK : rd_##op_##_run(plan, args, NULL);                                             \
    }
DEFINE_RUN(rmsnorm)
DEFINE_RUN(act_mul)
DEFINE_RUN(embed)
DEFINE_RUN(rope)
DEFINE_RUN(kv_write)

static rd_tensor rows_of(bench_buffers *b, rd_dtype dtype, int64_t rows, int64_t cols, float size) {
    void *data = bench_room(b, rows * cols * (int64_t)rd_dtype_bytes(dtype));
    bench_fill(data, dtype, rows * cols, size);
    return rd_tensor_2d(data, dtype, rows, cols);
}
static rd_tensor heads_of(bench_buffers *b, int64_t tokens, int64_t heads, int64_t dim) {
    rd_tensor t = rows_of(b, RD_DTYPE_BF16, tokens, heads * dim, 1);
    return rd_tensor_3d(t.data, RD_DTYPE_BF16, tokens, heads, dim);
}

// Fills in what every call has, runs it and frees its operands.
static rd_status finish(bench_run *run, bench_call *call, bench_buffers *b, const char *shape) {
    int64_t bytes = call->bytes > 4096 ? (int64_t)call->bytes : 4096;
    call->shape = shape;
    call->memory = bench_room(b, bytes), call->memory_bytes = bytes;
    rd_status status = b->failed ? cli_error(RD_E_NOMEM, "no memory for the operands of %s", shape)
                                 : bench_call_rows(run, call);
    bench_buffers_free(b);
    return status;
}

// Every shape of an op that has rows: M = 1 and 512, or what --shape says.
static rd_status each_size(bench_run *run, rd_status (*one)(bench_run *run, int64_t m, int64_t k)) {
    int64_t m = 1, k = WIDTH;
    bench_shape_value(run->options, "K", &k);
    if (bench_shape_value(run->options, "M", &m) || run->options->shape) return one(run, m, k);
    rd_status status = one(run, 1, k);
    return status == RD_OK ? one(run, ROWS, k) : status;
}

static rd_status rmsnorm_size(bench_run *run, int64_t m, int64_t k) {
    bench_buffers b = {0};
    rd_rmsnorm_args args = {.struct_size = sizeof args,
                            .x = rows_of(&b, RD_DTYPE_BF16, m, k, 2),
                            .weight = rows_of(&b, RD_DTYPE_BF16, 1, k, 1),
                            .y = rows_of(&b, RD_DTYPE_BF16, m, k, 0),
                            .eps = 1e-6f};
    args.weight = rd_tensor_1d(args.weight.data, RD_DTYPE_BF16, k);
    const rd_param params[] = {RD_INT("k", k), RD_WORD("x_dtype", "bf16"), RD_WORD("y_dtype", "bf16"),
                               RD_WORD("weight_dtype", "bf16"), RD_INT("residual", 0)};
    char shape[64];
    snprintf(shape, sizeof shape, "m=%lld,k=%lld", (long long)m, (long long)k);
    bench_call call = {.params = params,
                       .param_count = CLI_COUNT(params),
                       .at = m,
                       .run = run_rmsnorm,
                       .args = &args,
                       .out = &args.y,
                       .limit = 1e-3,
                       .bytes = 4.0 * (double)(m * k)};
    return finish(run, &call, &b, shape);
}
rd_status bench_rmsnorm(bench_run *run) {
    return each_size(run, rmsnorm_size);
}

static rd_status act_mul_size(bench_run *run, int64_t m, int64_t k) {
    bench_buffers b = {0};
    rd_act_mul_args args = {.struct_size = sizeof args,
                            .gate = rows_of(&b, RD_DTYPE_BF16, m, k, 2),
                            .up = rows_of(&b, RD_DTYPE_BF16, m, k, 1),
                            .y = rows_of(&b, RD_DTYPE_BF16, m, k, 0)};
    const rd_param params[] = {RD_INT("k", k), RD_WORD("act", "silu"), RD_WORD("x_dtype", "bf16"),
                               RD_WORD("y_dtype", "bf16")};
    char shape[64];
    snprintf(shape, sizeof shape, "m=%lld,k=%lld", (long long)m, (long long)k);
    bench_call call = {.params = params,
                       .param_count = CLI_COUNT(params),
                       .at = m,
                       .run = run_act_mul,
                       .args = &args,
                       .out = &args.y,
                       .limit = 1e-3,
                       .bytes = 6.0 * (double)(m * k)};
    return finish(run, &call, &b, shape);
}
rd_status bench_act_mul(bench_run *run) {
    return each_size(run, act_mul_size);
}

static rd_status embed_size(bench_run *run, int64_t m, int64_t k) {
    bench_buffers b = {0};
    rd_embed_args args = {.struct_size = sizeof args,
                          .table = rows_of(&b, RD_DTYPE_BF16, ROWS, k, 1),
                          .ids = rd_tensor_1d(bench_room(&b, m * 4), RD_DTYPE_I32, m),
                          .y = rows_of(&b, RD_DTYPE_F32, m, k, 0),
                          .scale = 1};
    for (int64_t i = 0; !b.failed && i < m; i++) ((int32_t *)args.ids.data)[i] = (int32_t)(i * 7 % ROWS);
    const rd_param params[] = {RD_INT("k", k), RD_WORD("table_dtype", "bf16"), RD_WORD("y_dtype", "fp32")};
    char shape[64];
    snprintf(shape, sizeof shape, "m=%lld,k=%lld", (long long)m, (long long)k);
    bench_call call = {.params = params,
                       .param_count = CLI_COUNT(params),
                       .run = run_embed,
                       .args = &args,
                       .out = &args.y,
                       .limit = 1e-6,
                       .bytes = 6.0 * (double)(m * k)};
    return finish(run, &call, &b, shape);
}
rd_status bench_embed(bench_run *run) {
    return each_size(run, embed_size);
}

static rd_status quant_fuse(bench_run *run, int64_t m, int64_t k, const char *fuse, double bytes) {
    bench_buffers b = {0};
    int64_t groups = (k + 127) / 128;
    rd_quant_args args = {
        .struct_size = sizeof args,
        .x = rows_of(&b, RD_DTYPE_BF16, m, k, 2),
        .up = rows_of(&b, RD_DTYPE_BF16, m, k, 1),
        .residual = rows_of(&b, RD_DTYPE_F32, m, k, 1), // grows by x a call: f32 never overflows here
        .norm_weight = rows_of(&b, RD_DTYPE_BF16, 1, k, 1),
        .q = rd_tensor_2d(bench_room(&b, m * k), RD_DTYPE_E4M3, m, k),
        .q_scale = rd_tensor_2d(bench_room(&b, m * groups * 4), RD_DTYPE_F32, m, groups),
        .eps = 1e-6f};
    args.norm_weight = rd_tensor_1d(args.norm_weight.data, RD_DTYPE_BF16, k);
    const rd_param params[] = {RD_INT("k", k), RD_WORD("x_dtype", "bf16"), RD_WORD("fuse", fuse)};
    char shape[64];
    snprintf(shape, sizeof shape, "m=%lld,k=%lld,%s", (long long)m, (long long)k, fuse);
    bench_call call = {.params = params,
                       .param_count = CLI_COUNT(params),
                       .at = m,
                       .run = run_quant,
                       .args = &args,
                       .out = &args.q,
                       .limit = 1e-3,
                       .bytes = bytes * (double)(m * k)};
    return finish(run, &call, &b, shape);
}
static rd_status quant_size(bench_run *run, int64_t m, int64_t k) {
    // Bytes an element: x 2, q 1; up 2. add_rmsnorm is left out here: its residual changes with every call, so that a second
    // run cannot be judged by the first; `radiance check` judges it.
    static const struct {
        const char *fuse;
        double bytes;
    } fuses[] = {{"none", 3}, {"rmsnorm", 3}, {"silu_mul", 5}};
    rd_status status = RD_OK;
    for (int i = 0; status == RD_OK && i < CLI_COUNT(fuses); i++)
        status = quant_fuse(run, m, k, fuses[i].fuse, fuses[i].bytes);
    return status;
}
rd_status bench_quant(bench_run *run) {
    return each_size(run, quant_size);
}

// ---- heads -----------------------------------------------------------------------------------------------------------
typedef struct head_sizes {
    int64_t tokens, heads, dim;
} head_sizes;
static rd_status each_head_size(bench_run *run, rd_status (*one)(bench_run *run, head_sizes s)) {
    head_sizes s = {1, HEADS, HEAD_DIM};
    bench_shape_value(run->options, "HEADS", &s.heads);
    bench_shape_value(run->options, "HEAD_DIM", &s.dim);
    if (bench_shape_value(run->options, "M", &s.tokens) || run->options->shape) return one(run, s);
    rd_status status = one(run, s);
    s.tokens = ROWS;
    return status == RD_OK ? one(run, s) : status;
}

// A rotation keeps the size of what it turns: turning in place again and again is safe; a checked call starts afresh.
static void fresh_heads(void *state) {
    rd_rope_args *args = state;
    bench_fill(args->q.data, RD_DTYPE_BF16, args->q.shape[0] * args->q.shape[1] * args->q.shape[2], 1);
}
static rd_status rope_operands(bench_buffers *b, head_sizes s, rd_rope_args *args) {
    const rd_rope_scaling scaling = {.theta = 10000};
    float *frequency = bench_room(b, s.dim * 4);
    *args = (rd_rope_args){.struct_size = sizeof *args,
                           .q = heads_of(b, s.tokens, s.heads, s.dim),
                           .positions = rd_tensor_1d(bench_room(b, s.tokens * 4), RD_DTYPE_I32, s.tokens),
                           .inv_freq = rd_tensor_1d(frequency, RD_DTYPE_F32, s.dim / 2)};
    for (int64_t i = 0; !b->failed && i < s.tokens; i++)
        ((int32_t *)args->positions.data)[i] = (int32_t)i + 100;
    if (b->failed || rd_rope_frequencies(&scaling, (int32_t)s.dim, frequency) == RD_OK) return RD_OK;
    bench_buffers_free(b);
    return cli_fail(RD_E_INVALID);
}
static rd_status rope_size(bench_run *run, head_sizes s) {
    bench_buffers b = {0};
    rd_rope_args args;
    rd_status status = rope_operands(&b, s, &args);
    if (status != RD_OK) return status;
    const rd_param params[] = {RD_INT("head_dim", s.dim), RD_INT("rotary_dim", s.dim),
                               RD_WORD("style", "neox"), RD_WORD("x_dtype", "bf16"), RD_INT("qk_norm", 0)};
    char shape[64];
    snprintf(shape, sizeof shape, "m=%lld,heads=%lld,dim=%lld", (long long)s.tokens, (long long)s.heads,
             (long long)s.dim);
    bench_call call = {.params = params,
                       .param_count = CLI_COUNT(params),
                       .run = run_rope,
                       .args = &args,
                       .out = &args.q,
                       .in_place = true,
                       .limit = 1e-3,
                       .prepare = fresh_heads,
                       .state = &args,
                       .bytes = 4.0 * (double)(s.tokens * s.heads * s.dim)};
    return finish(run, &call, &b, shape);
}
rd_status bench_rope(bench_run *run) {
    return each_head_size(run, rope_size);
}

static rd_kv_write_args kv_write_operands(bench_buffers *b, head_sizes s, bool by_token) {
    int64_t blocks = (s.tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS,
            elems = blocks * BLOCK_TOKENS * s.heads * s.dim;
    rd_tensor cache = rd_tensor_4d(bench_room(b, elems), RD_DTYPE_E4M3, blocks, BLOCK_TOKENS, s.heads, s.dim);
    cache.stride[1] = s.dim, cache.stride[2] = BLOCK_TOKENS * s.dim; // heads outside tokens, as the engine's
    rd_kv_write_args args = {.struct_size = sizeof args,
                             .k = heads_of(b, s.tokens, s.heads, s.dim),
                             .v = heads_of(b, s.tokens, s.heads, s.dim),
                             .k_cache = cache,
                             .v_cache = cache,
                             .k_scale = rd_tensor_1d(bench_room(b, s.heads * 4), RD_DTYPE_F32, s.heads),
                             .v_scale = rd_tensor_1d(bench_room(b, s.heads * 4), RD_DTYPE_F32, s.heads),
                             .slots = rd_tensor_1d(bench_room(b, s.tokens * 8), RD_DTYPE_I64, s.tokens)};
    args.v_cache.data = bench_room(b, elems);
    if (by_token) args.k_cache.stride[1] = 1, args.k_cache.stride[3] = 16;
    for (int64_t i = 0; !b->failed && i < s.heads; i++)
        ((float *)args.k_scale.data)[i] = ((float *)args.v_scale.data)[i] = 0.01f;
    for (int64_t i = 0; !b->failed && i < s.tokens; i++) ((int64_t *)args.slots.data)[i] = i;
    return args;
}
static void clear_caches(void *state) { // what a row leaves unwritten differs from the reference's
    const rd_kv_write_args *args = state;
    const int64_t elems =
        args->k_cache.shape[0] * args->k_cache.shape[1] * args->k_cache.shape[2] * args->k_cache.shape[3];
    memset(args->k_cache.data, 0, (size_t)elems), memset(args->v_cache.data, 0, (size_t)elems);
}
static rd_status kv_write_order(bench_run *run, head_sizes s, bool by_token) {
    bench_buffers b = {0};
    rd_kv_write_args args = kv_write_operands(&b, s, by_token);
    const rd_param params[] = {RD_INT("head_dim", s.dim), RD_INT("block_tokens", BLOCK_TOKENS),
                               RD_WORD("x_dtype", "bf16"), RD_WORD("kv_dtype", "fp8_e4m3"),
                               RD_WORD("k_order", by_token ? "token" : "dim")};
    char shape[80];
    snprintf(shape, sizeof shape, "m=%lld,heads=%lld,dim=%lld,k by %s", (long long)s.tokens,
             (long long)s.heads, (long long)s.dim, by_token ? "token" : "dim");
    // In place: slots that no token has keep what they hold.
    bench_call call = {.params = params,
                       .param_count = CLI_COUNT(params),
                       .run = run_kv_write,
                       .args = &args,
                       .out = &args.k_cache,
                       .in_place = true,
                       .prepare = clear_caches,
                       .state = &args,
                       .limit = 1e-3,
                       .bytes = 6.0 * (double)(s.tokens * s.heads * s.dim)};
    return finish(run, &call, &b, shape);
}
static rd_status kv_write_size(bench_run *run, head_sizes s) {
    rd_status status = kv_write_order(run, s, false);
    return status == RD_OK ? kv_write_order(run, s, true) : status;
}
rd_status bench_kv_write(bench_run *run) {
    return each_head_size(run, kv_write_size);
}

// k is rotated in place again and again by the CPU rows, as q is: both start afresh for a checked call.
typedef struct both_args {
    rd_rope_args rope;
    rd_kv_write_args kv;
} both_args;
static rd_status run_rope_kv_write(const rd_plan *plan, const void *args, void *ws, size_t *ws_bytes) {
    const both_args *a = args;
    bool query = !ws && ws_bytes;
    if (query) *ws_bytes = 0;
    return query ? RD_OK : rd_rope_kv_write_run(plan, &a->rope, &a->kv, NULL);
}
static void fresh_both(void *state) {
    both_args *args = state;
    const rd_tensor *k = &args->rope.k;
    fresh_heads(&args->rope);
    bench_fill(k->data, RD_DTYPE_BF16, k->shape[0] * k->shape[1] * k->shape[2], 1);
}
static rd_status rope_kv_write_size(bench_run *run, head_sizes s) {
    bench_buffers b = {0};
    both_args args;
    rd_status status = rope_operands(&b, s, &args.rope);
    if (status != RD_OK) return status;
    const bool by_token = !bench_on_card(run);
    args.kv = kv_write_operands(&b, s, by_token);
    args.rope.k = args.kv.k;
    const rd_param params[] = {RD_INT("head_dim", s.dim),
                               RD_INT("rotary_dim", s.dim),
                               RD_WORD("style", "neox"),
                               RD_WORD("x_dtype", "bf16"),
                               RD_INT("qk_norm", 0),
                               RD_INT("block_tokens", BLOCK_TOKENS),
                               RD_WORD("kv_dtype", "fp8_e4m3"),
                               RD_WORD("k_order", by_token ? "token" : "dim")};
    char shape[80];
    snprintf(shape, sizeof shape, "m=%lld,heads=%lld,dim=%lld,k by %s", (long long)s.tokens,
             (long long)s.heads, (long long)s.dim, by_token ? "token" : "dim");
    bench_call call = {.params = params,
                       .param_count = CLI_COUNT(params),
                       .run = run_rope_kv_write,
                       .args = &args,
                       .out = &args.rope.q,
                       .in_place = true,
                       .limit = 1e-3,
                       .prepare = fresh_both,
                       .state = &args,
                       .bytes = 10.0 * (double)(s.tokens * s.heads * s.dim)};
    return finish(run, &call, &b, shape);
}
rd_status bench_rope_kv_write(bench_run *run) {
    return each_head_size(run, rope_kv_write_size);
}

// ---- sample ----------------------------------------------------------------------------------------------------------
static rd_status sample_row(bench_run *run, int64_t vocab, float size, const char *name,
                            const rd_sample_row *row) {
    bench_buffers b = {0};
    rd_sample_args args = {.struct_size = sizeof args,
                           .logits = rows_of(&b, RD_DTYPE_F32, 1, vocab, 1),
                           .rows = row,
                           .ids = rd_tensor_1d(bench_room(&b, 4), RD_DTYPE_I32, 1)};
    float *logits = args.logits.data;
    for (int64_t i = 0; logits && i < vocab; i++)
        logits[i] =
            size * logits[i] * logits[i] * logits[i]; // few tokens near the top, as a model's logits have
    const rd_param params[] = {RD_INT("vocab", vocab)};
    char shape[64];
    snprintf(shape, sizeof shape, "vocab=%lld,%s", (long long)vocab, name);
    bench_call call = {.params = params,
                       .param_count = CLI_COUNT(params),
                       .run = run_sample,
                       .args = &args,
                       .out = &args.ids,
                       .limit = 1e-6,
                       .bytes = 4.0 * (double)vocab};
    return finish(run, &call, &b, shape);
}

rd_status bench_sampler(bench_run *run) {
    static const struct {
        const char *name;
        int64_t vocab;
        float size;
        rd_sample_row row;
    } cases[] = {{"greedy", VOCAB, 12, {.temperature = 0}},
                 {"T=1", VOCAB, 12, {.temperature = 1, .top_p = 1}},
                 {"T=0.7 k=50 p=0.9", VOCAB, 12, {.temperature = 0.7f, .top_p = 0.9f, .top_k = 50}},
                 {"T=0.7 k=50 p=0.9", MOST_VOCAB, 12, {.temperature = 0.7f, .top_p = 0.9f, .top_k = 50}},
                 {"T=1 p=0.9 flat", MOST_VOCAB, 0.01f, {.temperature = 1, .top_p = 0.9f}}};
    rd_status status = RD_OK;
    int64_t vocab = 0;
    bool given = bench_shape_value(run->options, "VOCAB", &vocab);
    for (int i = 0; status == RD_OK && i < CLI_COUNT(cases); i++)
        if (!given || cases[i].vocab == VOCAB)
            status =
                sample_row(run, given ? vocab : cases[i].vocab, cases[i].size, cases[i].name, &cases[i].row);
    return status;
}
