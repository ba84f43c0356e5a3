// SPDX-License-Identifier: Apache-2.0
// radiance check: paged attention over the field's unified-attention grid (vLLM's test_triton_unified_attention: heads
// (4,4) (8,2) (5,1), head 128 and 256, windows, softcap, its three sequences; 1.5e-2 absolute, 1e-2 relative), in both cache
// types and both K orders. Without --full every seventh combination (small shapes on a card: few of them), with shorter
// sequences. Then a list of head sizes.
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_TOKENS = 16, SEQS = 3 };

typedef struct attn_data {
    rd_attn_args args;
    int64_t elems; // of out
} attn_data;

static rd_status execute(check_case *c, const rd_plan *plan, const rd_kernel_info *kernel) {
    const attn_data *d = c->data;
    (void)kernel;
    const bool codes = d->args.out.dtype == RD_DTYPE_E4M3;
    size_t bytes = (size_t)d->elems * rd_dtype_bytes(d->args.out.dtype);
    void *out = malloc(bytes);
    if (!out) return RD_E_NOMEM;
    memset(out, 0xff, bytes);
    rd_attn_args args = d->args;
    args.out.data = out;
    if (codes) args.out_scale.data = c->outputs[1].got;
    rd_status status = check_call(c->ctx, &check_op_attn, plan, &args);
    for (int64_t i = 0; i < d->elems && status == RD_OK; i++)
        c->outputs[0].got[i] = check_read(out, args.out.dtype, i) * (codes ? c->outputs[1].got[i / 128] : 1);
    free(out);
    return status;
}

typedef struct attn_shape {
    int64_t q_heads, kv_heads, head_dim;
    rd_dtype q_dtype, kv_dtype;
    int32_t window, token_order, sinks;
    bool codes; // of the output, in e4m3
    float softcap;
    const int32_t (*lens)[2]; // q_len, kv_len of each sequence
} attn_shape;

// Sequences' blocks lie scattered over the cache: a permutation by an odd stride of a power-of-two count.
static void fill_tables(const attn_shape *s, int64_t blocks, int64_t max_blocks, int32_t *table,
                        int32_t *kv_lens, int32_t *q_starts) {
    int64_t next = 0;
    q_starts[0] = 0;
    for (int seq = 0; seq < SEQS; seq++) {
        kv_lens[seq] = s->lens[seq][1];
        q_starts[seq + 1] = q_starts[seq] + s->lens[seq][0];
        for (int64_t i = 0; i < max_blocks; i++)
            table[seq * max_blocks + i] = (int32_t)(next++ * 37 % blocks);
    }
}

// Positions that no row sees hold NaN: what an engine's cache has there is anything.
static void spoil(const rd_tensor *cache, const rd_attn_args *args) {
    const int32_t *table = args->block_table.data, *lens = args->kv_lens.data;
    const int64_t max_blocks = args->block_table.shape[1];
    for (int64_t seq = 0; seq < SEQS; seq++)
        for (int64_t at = lens[seq]; at < max_blocks * BLOCK_TOKENS; at++)
            for (int64_t i = 0; i < cache->shape[2] * cache->shape[3]; i++) {
                const int64_t elem = table[seq * max_blocks + at / BLOCK_TOKENS] * cache->stride[0] +
                                     at % BLOCK_TOKENS * cache->stride[1] +
                                     i / cache->shape[3] * cache->stride[2] +
                                     i % cache->shape[3] * cache->stride[3];
                if (cache->dtype == RD_DTYPE_E4M3)
                    ((uint8_t *)cache->data)[elem] = 0x7f;
                else
                    ((uint16_t *)cache->data)[elem] = 0x7fc0;
            }
}

static void run_case(check_run *run, const attn_shape *s, const char *lens_name, uint64_t *state) {
    int64_t most = 0, longest = 1;
    for (int i = 0; i < SEQS; i++) {
        most = s->lens[i][1] > most ? s->lens[i][1] : most;
        longest = s->lens[i][0] > longest ? s->lens[i][0] : longest;
    }
    int64_t max_blocks = (most + BLOCK_TOKENS - 1) / BLOCK_TOKENS, blocks = 1, tokens = 0;
    while (blocks < SEQS * max_blocks) blocks *= 2;
    for (int i = 0; i < SEQS; i++) tokens += s->lens[i][0];
    int64_t cache = blocks * BLOCK_TOKENS * s->kv_heads * s->head_dim;
    bool fp8 = s->kv_dtype == RD_DTYPE_E4M3;
    void *q = check_values(state, s->q_dtype, tokens * s->q_heads * s->head_dim, 1);
    void *k = fp8 ? (void *)check_codes(state, cache) : check_values(state, RD_DTYPE_BF16, cache, 1);
    void *v = fp8 ? (void *)check_codes(state, cache) : check_values(state, RD_DTYPE_BF16, cache, 1);
    float *scales = check_values(state, RD_DTYPE_F32, 2 * s->kv_heads, 0),
          *sinks = check_values(state, RD_DTYPE_F32, s->q_heads, 1);
    int32_t *table = malloc((size_t)(SEQS * max_blocks) * sizeof *table), kv_lens[SEQS], q_starts[SEQS + 1];
    attn_data d = {.elems = tokens * s->q_heads * s->head_dim};
    const bool codes = s->codes;
    const rd_dtype out_dtype = codes ? RD_DTYPE_E4M3 : s->q_dtype;
    check_case c = {.at = longest, .execute = execute, .data = &d, .output_count = 1 + codes};
    // A value within the kernel's error of the middle of two codes may go either way: a step of e4m3 is up to 1/8 of it.
    if (!q || !k || !v || !scales || !sinks || !table ||
        check_output_new(&c.outputs[0], CHECK_CLOSE, codes ? 0.135 : 1e-2, 1.5e-2, d.elems) != RD_OK ||
        (codes && check_output_new(&c.outputs[1], CHECK_CLOSE, 1e-2, 1.5e-2 / 448, d.elems / 128) != RD_OK)) {
        run->status = cli_error(RD_E_NOMEM, "out of memory");
    } else {
        for (int64_t i = 0; i < 2 * s->kv_heads; i++)
            scales[i] = 0x1p-9f * (float)(3 + i); // codes up to 448: values of order 1
        fill_tables(s, blocks, max_blocks, table, kv_lens, q_starts);
        d.args = (rd_attn_args){
            .struct_size = sizeof d.args,
            .q = rd_tensor_3d(q, s->q_dtype, tokens, s->q_heads, s->head_dim),
            .k_cache = rd_tensor_4d(k, s->kv_dtype, blocks, BLOCK_TOKENS, s->kv_heads, s->head_dim),
            .v_cache = rd_tensor_4d(v, s->kv_dtype, blocks, BLOCK_TOKENS, s->kv_heads, s->head_dim),
            .block_table = rd_tensor_2d(table, RD_DTYPE_I32, SEQS, max_blocks),
            .kv_lens = rd_tensor_1d(kv_lens, RD_DTYPE_I32, SEQS),
            .q_starts = rd_tensor_1d(q_starts, RD_DTYPE_I32, SEQS + 1),
            .out = rd_tensor_3d(NULL, out_dtype, tokens, s->q_heads, s->head_dim),
            .scale = 1 / sqrtf((float)s->head_dim),
            .softcap = s->softcap,
            .window = s->window,
            .max_q_len = (int32_t)longest};
        if (codes)
            d.args.out_scale = rd_tensor_2d(NULL, RD_DTYPE_F32, tokens, s->q_heads * s->head_dim / 128);
        if (fp8)
            d.args.k_scale = rd_tensor_1d(scales, RD_DTYPE_F32, s->kv_heads),
            d.args.v_scale = rd_tensor_1d(scales + s->kv_heads, RD_DTYPE_F32, s->kv_heads);
        if (s->sinks) d.args.sinks = rd_tensor_1d(sinks, RD_DTYPE_F32, s->q_heads);
        if (s->token_order) {
            d.args.k_cache.stride[1] = 1, d.args.k_cache.stride[3] = 16;
            d.args.k_cache.stride[2] = BLOCK_TOKENS * s->head_dim;
        }
        spoil(&d.args.k_cache, &d.args);
        spoil(&d.args.v_cache, &d.args);
        const rd_param params[] = {RD_INT("head_dim", s->head_dim),
                                   RD_INT("gqa", s->q_heads / s->kv_heads),
                                   RD_INT("block_tokens", BLOCK_TOKENS),
                                   RD_WORD("q_dtype", rd_dtype_name(s->q_dtype)),
                                   RD_WORD("kv_dtype", rd_dtype_name(s->kv_dtype)),
                                   RD_WORD("out_dtype", rd_dtype_name(out_dtype)),
                                   RD_WORD("k_order", s->token_order ? "token" : "dim"),
                                   RD_INT("window", s->window > 0),
                                   RD_INT("softcap", s->softcap > 0),
                                   RD_INT("sinks", s->sinks),
                                   RD_INT("causal", 1)};
        c.params = params, c.param_count = CLI_COUNT(params);
        snprintf(c.name, sizeof c.name, "heads %d/%d of %d, %s%s, K by %s, window %d, softcap %g%s, %s",
                 (int)s->q_heads, (int)s->kv_heads, (int)s->head_dim, rd_dtype_name(s->kv_dtype),
                 codes ? " to codes" : "", s->token_order ? "token" : "dim", s->window, (double)s->softcap,
                 s->sinks ? ", sinks" : "", lens_name);
        check_case_run(run, &c);
    }
    check_output_free(&c.outputs[0]), check_output_free(&c.outputs[1]);
    free(q), free(k), free(v), free(scales), free(sinks), free(table);
}

typedef struct attn_batch {
    const char *name;
    int32_t lens[SEQS][2];
} attn_batch;

enum { COMBINATIONS = 3 * 3 * 4 * 2 * 2 * 2 * 2 };
// After the grid, in both cache types: every head size that a card's kernels are compiled for, and 80. `batches`: of decode, 1 the first
// (few rows), 2 the second (many).
static const struct {
    int q_heads, kv_heads, head_dim, batches;
} other_heads[] = {{4, 4, 64, 2},  {4, 4, 128, 3}, {8, 2, 128, 2}, {4, 4, 256, 3},
                   {8, 2, 256, 2}, {6, 2, 512, 2}, {6, 2, 80, 1}};
enum { OTHER_SHAPES = 2 * CLI_COUNT(other_heads) };
static attn_shape other_shape(int index) {
    return (attn_shape){.q_heads = other_heads[index / 2].q_heads,
                        .kv_heads = other_heads[index / 2].kv_heads,
                        .head_dim = other_heads[index / 2].head_dim,
                        .q_dtype = RD_DTYPE_BF16,
                        .kv_dtype = index % 2 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16,
                        .window = index % 3 ? 0 : 100,
                        .softcap = index % 5 ? 0 : 50,
                        .sinks = index % 4 == 1};
}

// Combination `index` of the grid; false past the end.
static bool shape_at(int index, attn_shape *s) {
    static const int heads[][2] = {{4, 4}, {8, 2}, {5, 1}}, dims[] = {128, 256, 64},
                     windows[] = {0, 64, 128, 256};
    if (index >= COMBINATIONS) return false;
    const int *head = heads[index % 3];
    *s = (attn_shape){.q_heads = head[0],
                      .kv_heads = head[1],
                      .head_dim = dims[index / 3 % 3],
                      .window = windows[index / 9 % 4],
                      .softcap = index / 36 % 2 ? 50 : 0,
                      .kv_dtype = index / 72 % 2 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16,
                      .token_order = index / 144 % 2,
                      .q_dtype = index / 288 % 2 ? RD_DTYPE_F32 : RD_DTYPE_BF16,
                      .sinks = index % 5 == 0};
    return true;
}

void check_attn(check_run *run) {
    static const attn_batch prefill_full = {"q/kv 1/1328 5/18 129/463", {{1, 1328}, {5, 18}, {129, 463}}};
    static const attn_batch prefill_quick = {"q/kv 1/528 5/18 37/163", {{1, 528}, {5, 18}, {37, 163}}};
    static const attn_batch decode[] = {{"q/kv 1/523 1/37 1/2011", {{1, 523}, {1, 37}, {1, 2011}}},
                                        {"q/kv 1/1 8/300 17/463", {{1, 1}, {8, 300}, {17, 463}}}};
    bool is_prefill = !strcmp(run->op, "attn_prefill");
    // Short, because a checker of a card's memory follows every access.
    static const attn_batch decode_small[] = {{"q/kv 1/300 1/37 1/700", {{1, 300}, {1, 37}, {1, 700}}},
                                              {"q/kv 1/1 8/100 17/263", {{1, 1}, {8, 100}, {17, 263}}}};
    const bool small = run->small && !run->simulated;
    const attn_batch *prefill = run->full ? &prefill_full : &prefill_quick,
                     *decode_of = small ? decode_small : decode;
    const int step = run->full ? 1 : small ? 53 : 7;
    uint64_t state = run->seed;
    attn_shape s;
    for (int i = 0, batches = 0; shape_at(i, &s) && run->status == RD_OK; i += step, batches++) {
        const attn_batch *batch = is_prefill ? prefill : &decode_of[batches % 2];
        s.lens = batch->lens;
        run_case(run, &s, batch->name, &state);
        if (is_prefill || s.kv_dtype != RD_DTYPE_E4M3 || s.head_dim % 128 || s.token_order) continue;
        s.codes = true;
        run_case(run, &s, batch->name, &state);
    }
    for (int i = 0; i < OTHER_SHAPES && run->status == RD_OK; i++)
        for (int at = 0; at < (is_prefill ? 1 : 2); at++) {
            const attn_batch *batch = is_prefill ? prefill : &decode_of[at];
            if (!is_prefill && !(other_heads[i / 2].batches >> at & 1)) continue;
            s = other_shape(i);
            s.lens = batch->lens;
            run_case(run, &s, batch->name, &state);
        }
}
