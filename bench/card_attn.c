// SPDX-License-Identifier: Apache-2.0
// Times attention on a card over a paged cache (64-token blocks in random order, NHD), one CSV line a cell:
//
//   card_attn decode|prefill [--device gpu:0] [--heads 24/4x256,32/8x128] [--kv e4m3,bf16] [--batch 1,8] [--keys 32768,131072]
//             [--widths 1,4,9] [--edges dependent|plain|both] [--kernel attn_prefill_sm90a] > results.csv
//
// decode: every sequence asks with `width` rows at its end. prefill: one sequence, all of its keys are new; or, with --widths, the last
// `width` of them. A graph's calls take turns over copies of the cache that lie beyond the second-level cache; each has its own output.
// Before timing, calls run alone: sampled rows are compared with the formula in double; after the replays every output must equal, bit
// for bit, what it was alone. Decode is judged by the bytes of the cache at this run's read ceiling, prefill by its products; long
// prefill cells are timed cold and warm (card.h).
#include "card.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_TOKENS = 64, SAMPLES = 4, LEAST_CALLS = 12, LONG_CALLS = 4 };
static const double ROTATED_BYTES = 300e6; // five times the 60 MB second-level cache of an H200
static const double LONG_BYTES = 1e9, LONG_FLOPS = 5e11, WORST_ERROR = 4e-3;
// The cache repeats a pattern whose length is no multiple of a head, so that no two keys of a pattern's distance are alike.
static const size_t PATTERN_BYTES = (48 << 20) + 1004;

typedef struct options {
    const char *device, *kernel;
    bool prefill, dependent, plain, fp8[2];
    int kinds, shapes, batches, lengths, widths;
    int64_t q_heads[CARD_LIST], kv_heads[CARD_LIST], head_dim[CARD_LIST], batch[CARD_LIST], keys[CARD_LIST],
        width[CARD_LIST];
} options;

typedef struct cell {
    int64_t q_heads, kv_heads, head_dim, batch, keys, width;
    bool fp8;
    int64_t copies, calls, blocks, tokens; // blocks of one copy
    unsigned char *pattern;                // host
    uint16_t *q;
    int32_t *table;
    float *scale;
    unsigned char *k, *v, *out, *card_q, *card_scale, *card_table, *card_lens, *card_starts, *ws;
    size_t copy_bytes, out_bytes, ws_bytes; // a copy's K or V; one call's output
    rd_plan *plan;
} cell;

static options o;

static rd_attn_args args_of(const cell *c, int64_t call) {
    const int64_t copy = call % c->copies;
    const rd_dtype kv = c->fp8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
    const size_t at = (size_t)copy * c->copy_bytes;
    rd_attn_args a = {
        .struct_size = sizeof a,
        .q = rd_tensor_3d(c->card_q, RD_DTYPE_BF16, c->tokens, c->q_heads, c->head_dim),
        .k_cache = rd_tensor_4d(c->k + at, kv, c->blocks, BLOCK_TOKENS, c->kv_heads, c->head_dim),
        .v_cache = rd_tensor_4d(c->v + at, kv, c->blocks, BLOCK_TOKENS, c->kv_heads, c->head_dim),
        .block_table = rd_tensor_2d(c->card_table, RD_DTYPE_I32, c->batch, c->blocks / c->batch),
        .kv_lens = rd_tensor_1d(c->card_lens, RD_DTYPE_I32, c->batch),
        .q_starts = rd_tensor_1d(c->card_starts, RD_DTYPE_I32, c->batch + 1),
        .out = rd_tensor_3d(c->out + (size_t)call * c->out_bytes, RD_DTYPE_BF16, c->tokens, c->q_heads,
                            c->head_dim),
        .scale = 1 / sqrtf((float)c->head_dim),
        .max_q_len = (int32_t)c->width,
        .max_kv_len = (int32_t)c->keys};
    if (c->fp8) a.k_scale = a.v_scale = rd_tensor_1d(c->card_scale, RD_DTYPE_F32, c->kv_heads);
    a.q.device = a.k_cache.device = a.v_cache.device = a.block_table.device = a.kv_lens.device =
        a.q_starts.device = a.out.device = a.k_scale.device = a.v_scale.device =
            rd_ctx_device_number(card_ctx);
    return a;
}

static void run_call(void *state, int64_t call) {
    cell *c = state;
    const rd_attn_args args = args_of(c, call);
    card_need(rd_attn_run(c->plan, &args, c->ws, &c->ws_bytes, card_stream));
}

// ---- the formula in double -----------------------------------------------------------------------------------------
// One key or value of a head as numbers.
static void cached(const cell *c, bool value, int64_t seq, int64_t token, int64_t head, double *to) {
    static double of_code[256];
    if (of_code[1] == 0)
        for (int i = 0; i < 256; i++) of_code[i] = card_e4m3((uint8_t)i);
    const int64_t block = c->table[seq * (c->blocks / c->batch) + token / BLOCK_TOKENS];
    const size_t elem = c->fp8 ? 1 : 2, half = PATTERN_BYTES / 2, bytes = (size_t)c->head_dim * elem,
                 first = (size_t)(((block * BLOCK_TOKENS + token % BLOCK_TOKENS) * c->kv_heads + head) *
                                  c->head_dim) *
                         elem % half;
    const unsigned char *from = c->pattern + (value ? half : 0); // values stand half a pattern behind keys
    unsigned char row[1024];
    const size_t before = first + bytes < half ? bytes : half - first;
    memcpy(row, from + first, before), memcpy(row + before, from, bytes - before);
    for (int64_t d = 0; d < c->head_dim && c->fp8; d++) to[d] = of_code[row[d]];
    for (int64_t d = 0; d < c->head_dim && !c->fp8; d++) {
        uint16_t word;
        memcpy(&word, row + d * 2, 2);
        to[d] = card_bf16(word);
    }
}

// ||out - want|| / ||want|| of one row of one head; weight: room for a number a key.
static double row_error(const cell *c, const uint16_t *out, int64_t seq, int64_t row, int64_t head,
                        double *weight) {
    const int64_t kv_head = head / (c->q_heads / c->kv_heads), token = seq * c->width + row,
                  seen = c->keys - c->width + row + 1, at = (token * c->q_heads + head) * c->head_dim;
    const double scale = c->fp8 ? (double)c->scale[kv_head] : 1;
    double top = -INFINITY, mass = 0, off = 0, size = 0, q[512], of_token[512], want[512] = {0};
    for (int64_t d = 0; d < c->head_dim; d++)
        q[d] = card_bf16(c->q[at + d]) * scale / sqrt((double)c->head_dim);
    for (int64_t t = 0; t < seen; t++) {
        cached(c, false, seq, t, kv_head, of_token);
        weight[t] = 0;
        for (int64_t d = 0; d < c->head_dim; d++) weight[t] += q[d] * of_token[d];
        top = fmax(top, weight[t]);
    }
    for (int64_t t = 0; t < seen; t++) {
        cached(c, true, seq, t, kv_head, of_token);
        mass += weight[t] = exp(weight[t] - top);
        for (int64_t d = 0; d < c->head_dim; d++) want[d] += weight[t] * of_token[d];
    }
    for (int64_t d = 0; d < c->head_dim; d++) {
        const double exact = want[d] * scale / mass;
        off += pow(card_bf16(out[at + d]) - exact, 2), size += exact * exact;
    }
    return sqrt(off / size);
}

// Worst of sampled rows of the first call; the last row of the last sequence is one of them.
static double worst_error(const cell *c, const uint16_t *out) {
    double *weight = card_host((size_t)c->keys * sizeof *weight), worst = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t seq = i ? card_random() % c->batch : c->batch - 1,
                      row = i ? card_random() % c->width : c->width - 1, head = card_random() % c->q_heads;
        const double error = row_error(c, out, seq, row, head, weight);
        worst = error > worst || !(error == error) ? error : worst;
    }
    free(weight);
    return worst;
}

// ---- operands ------------------------------------------------------------------------------------------------------
// Sizes from 1/8 to 2 of either sign, so that logits of a scaled product differ by about one. `bytes` are even.
static void fill(void *to, size_t bytes, bool fp8) {
    uint16_t *word = to;
    if (!fp8) card_fill_bf16(word, (int64_t)(bytes / 2));
    for (size_t i = 0; i < bytes / 2 && fp8; i++) { // two codes at once
        const uint32_t r = card_random();
        word[i] = (uint16_t)((r & 0x8787) | (4 + (r >> 16 & 3)) << 3 | (4 + (r >> 18 & 3)) << 11);
    }
}

static void fill_table(cell *c) {
    const int64_t each = c->blocks / c->batch;
    c->table = card_host((size_t)c->blocks * sizeof *c->table);
    for (int64_t i = 0; i < c->blocks; i++) { // a random order of all blocks
        const int64_t at = card_random() % (i + 1);
        c->table[i] = c->table[at], c->table[at] = (int32_t)i;
    }
    int32_t *lens = card_host((size_t)(c->batch + 1) * 4), *starts = card_host((size_t)(c->batch + 1) * 4);
    for (int64_t i = 0; i <= c->batch; i++) lens[i] = (int32_t)c->keys, starts[i] = (int32_t)(i * c->width);
    c->card_table = card_put(c->table, (size_t)(c->batch * each) * 4);
    c->card_lens = card_put(lens, (size_t)c->batch * 4),
    c->card_starts = card_put(starts, (size_t)(c->batch + 1) * 4);
    free(lens), free(starts);
}

static double cache_bytes(const cell *c) {
    return 2.0 * (double)(c->batch * c->keys * c->kv_heads * c->head_dim) * (c->fp8 ? 1 : 2);
}
static double flops(const cell *c) { // two products of a head for each visible pair
    const double pairs =
        (double)c->width * (double)(c->keys - c->width) + (double)c->width * (double)(c->width + 1) / 2;
    return 4 * pairs * (double)(c->batch * c->q_heads * c->head_dim);
}

static void open_cell(cell *c) {
    const size_t elem = c->fp8 ? 1 : 2;
    c->tokens = c->batch * c->width;
    c->blocks = c->batch * ((c->keys + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
    c->copy_bytes = (size_t)(c->blocks * BLOCK_TOKENS * c->kv_heads * c->head_dim) * elem;
    c->out_bytes = (size_t)(c->tokens * c->q_heads * c->head_dim) * 2;
    c->copies = flops(c) > LONG_FLOPS ? 1 : (int64_t)ceil(ROTATED_BYTES / cache_bytes(c));
    c->calls = flops(c) > LONG_FLOPS ? 1 : cache_bytes(c) > LONG_BYTES ? LONG_CALLS : LEAST_CALLS;
    if (card_simulated) c->copies = c->calls = 2;
    c->calls = (c->calls + c->copies - 1) / c->copies * c->copies;
    c->q = card_host(c->out_bytes), c->scale = card_host((size_t)c->kv_heads * 4);
    fill(c->q, c->out_bytes, false);
    for (int64_t i = 0; i < c->kv_heads; i++) c->scale[i] = 0.75f + 0.03125f * (float)(i % 8);
    const size_t half = PATTERN_BYTES / 2;
    c->pattern = card_host(PATTERN_BYTES);
    fill(c->pattern, PATTERN_BYTES, c->fp8);
    c->k = card_alloc((size_t)c->copies * c->copy_bytes),
    c->v = card_alloc((size_t)c->copies * c->copy_bytes);
    for (int64_t i = 0; i < c->copies; i++) {
        card_tile(c->k + (size_t)i * c->copy_bytes, c->copy_bytes, c->pattern, half);
        card_tile(c->v + (size_t)i * c->copy_bytes, c->copy_bytes, c->pattern + half, half);
    }
    c->card_q = card_put(c->q, c->out_bytes), c->card_scale = card_put(c->scale, (size_t)c->kv_heads * 4);
    c->out = card_alloc((size_t)c->calls * c->out_bytes);
    fill_table(c);
}

static void close_cell(cell *c) {
    void *const there[] = {c->k,          c->v,         c->out,         c->card_q, c->card_scale,
                           c->card_table, c->card_lens, c->card_starts, c->ws};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) card_free(there[i]);
    free(c->pattern), free(c->q), free(c->table), free(c->scale);
}

// ---- a cell --------------------------------------------------------------------------------------------------------
static void open_plan(cell *c, bool dependent) {
    const rd_param question[] = {RD_INT("head_dim", c->head_dim),
                                 RD_INT("gqa", c->q_heads / c->kv_heads),
                                 RD_INT("block_tokens", BLOCK_TOKENS),
                                 RD_WORD("q_dtype", "bf16"),
                                 RD_WORD("kv_dtype", c->fp8 ? "fp8_e4m3" : "bf16"),
                                 RD_WORD("out_dtype", "bf16"),
                                 RD_WORD("k_order", "dim"),
                                 RD_INT("window", 0),
                                 RD_INT("softcap", 0),
                                 RD_INT("sinks", 0),
                                 RD_INT("causal", 1),
                                 RD_INT("q_len", c->width)};
    const char *op = o.prefill ? "attn_prefill" : "attn_decode",
               *kernel = o.kernel ? o.kernel : card_kernel(op, question, 12);
    if (!kernel)
        card_fail("card_attn: no row of %s takes width %lld, head %lld", op, (long long)c->width,
                  (long long)c->head_dim);
    c->plan = card_plan(kernel, question, 11, c->width, !dependent);
    const rd_attn_args args = args_of(c, 0);
    size_t bytes = 0;
    card_need(rd_attn_run(c->plan, &args, NULL, &bytes, card_stream));
    card_free(c->ws);
    c->ws = card_alloc(c->ws_bytes = bytes + 64);
    card_set(c->ws, 0, c->ws_bytes);
}

static void print_line(const cell *c, bool dependent, card_state state, card_time time, double error,
                       bool same) {
    const double floor_us = cache_bytes(c) / card_read_gbs * 1e-3;
    printf("%s,%s,%lld,%lld,%lld,%s,%lld,%lld,%lld,%s,%s,%lld,%.2f,%.2f,%.2f,%.1f,%.1f,%.1e,%s\n", card_run,
           rd_plan_kernel(c->plan, c->width)->name, (long long)c->q_heads, (long long)c->kv_heads,
           (long long)c->head_dim, c->fp8 ? "e4m3" : "bf16", (long long)c->batch, (long long)c->keys,
           (long long)c->width, dependent ? "dependent" : "plain", card_state_name(state),
           (long long)c->calls, time.us, time.best_us, floor_us, 100 * floor_us / time.us,
           flops(c) / time.us * 1e-6, error, same ? "same" : "DIFFERENT");
    fflush(stdout);
}

static void measure(cell *c, bool dependent, double *error) {
    const size_t bytes = (size_t)c->calls * c->out_bytes;
    const bool hot = flops(c) > LONG_FLOPS;
    uint16_t *alone = card_host(bytes), *replayed = card_host(bytes);
    open_plan(c, dependent);
    card_set(c->out, 0xff, bytes);
    for (int64_t call = 0; call < c->calls; call++) {
        run_call(c, call);
        card_need(rd_stream_sync(card_ctx, card_stream));
    }
    card_get(alone, c->out, bytes);
    if (*error < 0) *error = worst_error(c, alone); // the formula takes its time: once a cell
    bool good = *error <= WORST_ERROR;
    card_set(c->out, 0xff, bytes);
    rd_graph *graph = card_record(run_call, c, c->calls);
    for (card_state state = hot ? CARD_COLD : CARD_READY; state <= (hot ? CARD_WARM : CARD_READY); state++) {
        const card_time time = card_replay(graph, c->calls, state);
        card_get(replayed, c->out, bytes);
        const bool same = !memcmp(alone, replayed, bytes);
        good = good && same;
        print_line(c, dependent, state, time, *error, same);
    }
    rd_graph_free(graph);
    rd_plan_free(c->plan);
    free(alone), free(replayed);
    if (!good) card_fail("card_attn: wrong here");
}

// ---- options -------------------------------------------------------------------------------------------------------
static void read_heads(const char *text) {
    for (o.shapes = 0; *text; o.shapes++) {
        long long q, kv, dim;
        int used = 0;
        if (sscanf(text, "%lld/%lldx%lld%n", &q, &kv, &dim, &used) != 3 || kv < 1 || q < kv || q % kv ||
            q > 1 << 20 || dim < 1 || dim > 1 << 20 || (text[used] && text[used] != ',') ||
            o.shapes == CARD_LIST)
            card_fail("card_attn: cannot read %s, needs 24/4x256", text);
        o.q_heads[o.shapes] = q, o.kv_heads[o.shapes] = kv, o.head_dim[o.shapes] = dim;
        text += used + (text[used] == ',');
    }
}

static void read_options(int argc, char **argv) {
    if (argc < 2 || (strcmp(argv[1], "decode") != 0 && strcmp(argv[1], "prefill") != 0))
        card_fail("card_attn: needs decode or prefill, see the top of bench/card_attn.c");
    o = (options){
        .prefill = !strcmp(argv[1], "prefill"), .dependent = true, .kinds = 2, .fp8 = {true, false}};
    read_heads("24/4x256,32/8x128");
    o.batches = card_numbers(o.prefill ? "1" : "1,8", o.batch);
    o.lengths = card_numbers(o.prefill ? "8192,32768" : "32768,131072", o.keys);
    o.widths = o.prefill ? 0 : card_numbers("1,4,9", o.width);
    for (int i = 2; i < argc; i += 2) {
        const char *name = argv[i], *text = card_value(argc, argv, i);
        if (!strcmp(name, "--device"))
            o.device = text;
        else if (!strcmp(name, "--kernel"))
            o.kernel = text;
        else if (!strcmp(name, "--heads"))
            read_heads(text);
        else if (!strcmp(name, "--batch"))
            o.batches = card_numbers(text, o.batch);
        else if (!strcmp(name, "--keys"))
            o.lengths = card_numbers(text, o.keys);
        else if (!strcmp(name, "--widths"))
            o.widths = card_numbers(text, o.width);
        else if (!strcmp(name, "--kv"))
            card_word(name, text, "e4m3 bf16 e4m3,bf16 bf16,e4m3"),
                o.kinds = strchr(text, ',') ? 2 : 1, o.fp8[0] = text[0] == 'e', o.fp8[1] = text[0] != 'e';
        else if (!strcmp(name, "--edges"))
            card_word(name, text, "dependent plain both"), o.plain = strcmp(text, "dependent") != 0,
                                                           o.dependent = strcmp(text, "plain") != 0;
        else
            card_fail("card_attn: %s is no option, see the top of bench/card_attn.c", name);
    }
}

static void measure_cell(int shape, int kind, int batch, int length) {
    for (int w = 0; w < (o.widths ? o.widths : 1); w++) {
        cell c = {.q_heads = o.q_heads[shape],
                  .kv_heads = o.kv_heads[shape],
                  .head_dim = o.head_dim[shape],
                  .batch = o.batch[batch],
                  .keys = o.keys[length],
                  .fp8 = o.fp8[kind]};
        c.width = o.widths ? o.width[w] : c.keys;
        if (c.width > c.keys) continue;
        double error = -1;
        open_cell(&c);
        if (o.dependent) measure(&c, true, &error);
        if (o.plain) measure(&c, false, &error);
        close_cell(&c);
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    card_open(o.device);
    printf("run,kernel,q_heads,kv_heads,head_dim,kv,batch,keys,width,edges,state,calls,us,best_us,floor_us,"
           "ceiling_percent,tflops,error,replays\n");
    for (int kind = 0; kind < o.kinds; kind++)
        for (int length = 0; length < o.lengths; length++)
            for (int batch = 0; batch < o.batches; batch++)
                for (int shape = 0; shape < o.shapes; shape++) measure_cell(shape, kind, batch, length);
    card_close();
    return 0;
}
