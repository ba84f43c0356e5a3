// SPDX-License-Identifier: Apache-2.0
// Times the small ops of a step on a card, in graphs of 200 calls (20 from 1024 rows on), one CSV line a case:
//
//   card_small [--device gpu:0] [--ops floor,rows,heads,sample] [--rows 1,16,8192] [--width 5120] [--edges dependent|plain|both]
//
// rows: quantiser, norms and their fusions at bf16. Up to 1023 rows a call reads what the last one wrote: add_rmsnorm its y as x, the
// quantiser its codes as the first half of x (taken as bf16), add_rmsnorm_quant the residual; the others take turns over inputs. From
// 1024 rows on x takes turns over three buffers beyond the second-level cache. heads: rope_kv_write. sample: 151936 logits.
// floor: act_mul of 132 x 128, each reading the last one's y: little more than an edge.
//
// Before timing, calls run alone; rows of the first call of `rows` are compared with the formula in double, greedy ids with the
// largest logit (`radiance check` judges the rest); a replay from the same start must leave the same bits everywhere, before the timed
// replays and after them.
#include "card.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALLS = 200,
    LARGE_CALLS = 20,
    LARGE_ROWS = 1024,
    INPUTS = 3,
    MOST_LIST = 16,
    SAMPLES = 4,
    VOCAB = 151936
};
enum { FLOOR_ROWS = 132, FLOOR_WIDTH = 128, BLOCK_TOKENS = 64, MOST_PARTS = 6 };

typedef struct part { // memory that calls write
    unsigned char *there, *saved;
    size_t bytes;
    bool state; // read as well: put back before a replay
} part;
typedef struct job {
    const char *name;
    int64_t m, k, calls, at; // at: of the op's interval key
    double bytes;            // that one call must move
    card_call run;
    void *state;
    rd_plan *plan;
    part parts[MOST_PARTS];
    int part_count;
    double (*error)(void *state); // of the first call, as a share of its bound; or NULL
} job;

static struct {
    const char *device, *ops;
    bool dependent, plain;
    int64_t rows[MOST_LIST], width;
    int row_counts;
} o;

static void add_part(job *j, void *there, size_t bytes, bool state) {
    part *p = &j->parts[j->part_count++];
    *p = (part){.there = there, .bytes = bytes, .state = state};
    if (!state) return;
    p->saved = card_alloc(bytes);
    card_need(rd_memory_copy(card_ctx, p->saved, there, bytes, RD_COPY_ON_DEVICE, card_stream));
}

static void put_back(const job *j) {
    for (int i = 0; i < j->part_count; i++)
        if (j->parts[i].state)
            card_need(rd_memory_copy(card_ctx, j->parts[i].there, j->parts[i].saved, j->parts[i].bytes,
                                     RD_COPY_ON_DEVICE, card_stream));
}

static unsigned char *read_parts(const job *j, unsigned char *to) {
    size_t bytes = 0, at = 0;
    for (int i = 0; i < j->part_count; i++) bytes += j->parts[i].bytes;
    if (!to) to = card_host(bytes);
    for (int i = 0; i < j->part_count; at += j->parts[i++].bytes)
        card_get(to + at, j->parts[i].there, j->parts[i].bytes);
    return to;
}

static bool same_parts(const job *j, const unsigned char *want) {
    unsigned char *got = read_parts(j, NULL);
    bool same = true;
    size_t at = 0;
    for (int i = 0; i < j->part_count; at += j->parts[i++].bytes)
        same = same && !memcmp(got + at, want + at, j->parts[i].bytes);
    free(got);
    return same;
}

// The plan is j->plan; the caller made it with these edges.
static void measure(job *j, bool dependent) {
    double error = 0;
    put_back(j);
    for (int64_t i = 0; i < j->calls; i++) {
        j->run(j->state, i);
        card_need(rd_stream_sync(card_ctx, card_stream));
        if (i == 0 && j->error) error = j->error(j->state);
    }
    unsigned char *want = read_parts(j, NULL);
    rd_graph *graph = card_record(j->run, j->state, j->calls);
    put_back(j);
    card_need(rd_graph_launch(graph, card_stream));
    bool same = same_parts(j, want);
    const card_time time = card_replay(graph, j->calls, CARD_READY);
    put_back(j);
    card_need(rd_graph_launch(graph, card_stream));
    same = same_parts(j, want) && same;
    rd_graph_free(graph);
    free(want);
    const double floor_us = j->bytes / card_read_gbs * 1e-3;
    printf("%s,%s,%s,%lld,%lld,%s,%lld,%.3f,%.3f,%.3f,%.1f,", card_run, j->name,
           rd_plan_kernel(j->plan, j->at)->name, (long long)j->m, (long long)j->k,
           dependent ? "dependent" : "plain", (long long)j->calls, time.us, time.best_us, floor_us,
           100 * floor_us / time.us);
    if (j->error) printf("%.2f", error);
    printf(",%s\n", same ? "same" : "DIFFERENT");
    fflush(stdout);
    if (!same || error > 1) card_fail("card_small: %s is wrong here", j->name);
}

static void close_job(job *j) {
    for (int i = 0; i < j->part_count; i++) card_free(j->parts[i].saved);
}

static int64_t calls_of(int64_t rows) {
    return card_simulated ? 2 : rows >= LARGE_ROWS ? LARGE_CALLS : CALLS;
}

static rd_tensor on_card(rd_tensor t) {
    t.device = rd_ctx_device_number(card_ctx);
    return t;
}
static rd_tensor matrix(void *data, rd_dtype dtype, int64_t m, int64_t k) {
    return on_card(rd_tensor_2d(data, dtype, m, k));
}

static void fill_bf16(uint16_t *to, int64_t count) { // 1/8 to 2, either sign
    for (int64_t i = 0; i < count; i++) {
        const uint32_t r = card_random();
        to[i] = (uint16_t)((r & 0x807f) | (124 + (r >> 16 & 3)) << 7);
    }
}
static uint16_t *random_bf16(int64_t count, void **there) {
    uint16_t *host = card_host((size_t)count * 2);
    fill_bf16(host, count);
    *there = card_put(host, (size_t)count * 2);
    return host;
}

// ---- rows: the quantiser, norms and fusions -------------------------------------------------------------------------
typedef enum fuse { QUANT = 0, NORM_QUANT, ADD_NORM_QUANT, SILU_QUANT, ADD_NORM } fuse;
typedef struct row_bench {
    fuse fuse;
    int64_t m, k;
    bool large;
    rd_plan *plan;
    uint16_t *x, *up, *residual, *weight; // host; x and up: INPUTS of them
    void *card_x, *card_up, *card_residual, *card_weight;
    unsigned char *out, *scale; // of calls: y (bf16) or codes; a large job has one of each
    size_t x_bytes, out_bytes, out_step, scale_bytes;
} row_bench;

static bool quantises(const row_bench *b) {
    return b->fuse != ADD_NORM;
}
static unsigned char *out_of(const row_bench *b, int64_t call) {
    return b->out + (b->large ? 0 : (size_t)call * b->out_step);
}

static void *x_of(const row_bench *b, int64_t call) {
    const bool chained = !b->large && (b->fuse == QUANT || b->fuse == ADD_NORM) && call > 0;
    return chained ? out_of(b, call - 1) : (unsigned char *)b->card_x + (size_t)(call % INPUTS) * b->x_bytes;
}

static void run_rows(void *state, int64_t call) {
    row_bench *b = state;
    const rd_tensor x = matrix(x_of(b, call), RD_DTYPE_BF16, b->m, b->k),
                    residual = matrix(b->card_residual, RD_DTYPE_BF16, b->m, b->k),
                    weight = on_card(rd_tensor_1d(b->card_weight, RD_DTYPE_BF16, b->k));
    if (!quantises(b)) {
        const rd_rmsnorm_args args = {.struct_size = sizeof args,
                                      .x = x,
                                      .residual = residual,
                                      .weight = weight,
                                      .y = matrix(out_of(b, call), RD_DTYPE_BF16, b->m, b->k),
                                      .eps = 1e-6f};
        card_need(rd_rmsnorm_run(b->plan, &args, card_stream));
        return;
    }
    unsigned char *scale = b->scale + (b->large ? 0 : (size_t)call * b->scale_bytes);
    rd_quant_args args = {.struct_size = sizeof args,
                          .x = x,
                          .q = matrix(out_of(b, call), RD_DTYPE_E4M3, b->m, b->k),
                          .q_scale = matrix(scale, RD_DTYPE_F32, b->m, b->k / 128),
                          .eps = 1e-6f};
    if (b->fuse == ADD_NORM_QUANT) args.residual = residual;
    if (b->fuse == ADD_NORM_QUANT || b->fuse == NORM_QUANT) args.norm_weight = weight;
    if (b->fuse == SILU_QUANT)
        args.up = matrix((unsigned char *)b->card_up + (size_t)(call % INPUTS) * b->x_bytes, RD_DTYPE_BF16,
                         b->m, b->k);
    card_need(rd_quant_run(b->plan, &args, NULL, NULL, card_stream));
}

// What one row of the first call must be, before it is stored.
static void want_row(const row_bench *b, int64_t row, double *y) {
    const int64_t at = row * b->k;
    double squares = 0;
    for (int64_t i = 0; i < b->k; i++) {
        y[i] = card_bf16(b->x[at + i]);
        if (b->fuse == ADD_NORM || b->fuse == ADD_NORM_QUANT)
            y[i] = card_bf16(card_to_bf16(y[i] + card_bf16(b->residual[at + i])));
        if (b->fuse == SILU_QUANT) y[i] = y[i] / (1 + exp(-y[i])) * card_bf16(b->up[at + i]);
        squares += y[i] * y[i];
    }
    if (b->fuse == QUANT || b->fuse == SILU_QUANT) return;
    for (int64_t i = 0; i < b->k; i++) y[i] *= card_bf16(b->weight[i]) / sqrt(squares / (double)b->k + 1e-6);
}

// A code is off by half a step of e4m3 (2^-4 of its value, or 2^-10 of the scale below the normal numbers), y by half of bf16's; a
// sixteenth is left for f32 sums.
static double rows_error(void *state) {
    const row_bench *b = state;
    unsigned char *out = card_host(b->out_bytes);
    float *scale = card_host(b->scale_bytes + 1);
    double *y = card_host((size_t)b->k * sizeof *y), worst = 0;
    card_get(out, b->out, b->out_bytes);
    if (quantises(b)) card_get(scale, b->scale, b->scale_bytes);
    for (int sample = 0; sample < SAMPLES; sample++) {
        const int64_t row = card_random() % b->m;
        want_row(b, row, y);
        for (int64_t i = 0; i < b->k; i++) {
            uint16_t word;
            memcpy(&word, out + (row * b->k + i) * 2 % (int64_t)b->out_bytes, 2);
            const double s = quantises(b) ? (double)scale[row * (b->k / 128) + i / 128] : 1,
                         got = quantises(b) ? s * card_e4m3(out[row * b->k + i]) : card_bf16(word),
                         bound = quantises(b) ? fmax(fabs(y[i]) * 0x1p-4, s * 0x1p-10)
                                              : fabs(y[i]) * 0x1p-8 + 1e-30,
                         error = fabs(got - y[i]) / (bound * 1.0625);
            worst = error > worst || !(error == error) ? error : worst;
        }
    }
    free(out), free(scale), free(y);
    return worst;
}

static rd_plan *plan_rows(const row_bench *b, bool dependent) {
    static const char *const words[] = {"none", "rmsnorm", "add_rmsnorm", "silu_mul"};
    const rd_param quant[] = {RD_INT("k", b->k), RD_WORD("x_dtype", "bf16"),
                              RD_WORD("fuse", quantises(b) ? words[b->fuse] : ""), RD_INT("m", b->m)},
                   norm[] = {RD_INT("k", b->k),          RD_WORD("x_dtype", "bf16"),
                             RD_WORD("y_dtype", "bf16"), RD_WORD("weight_dtype", "bf16"),
                             RD_INT("residual", 1),      RD_INT("m", b->m)};
    const char *kernel = quantises(b) ? card_kernel("quant_fp8", quant, 4) : card_kernel("rmsnorm", norm, 6);
    if (!kernel) card_fail("card_small: no row: %s", rd_error_text());
    return card_plan(kernel, quantises(b) ? quant : norm, quantises(b) ? 3 : 5, b->m, !dependent);
}

static void measure_rows(int64_t m, int64_t k, fuse what) {
    static const char *const names[] = {"quant", "rmsnorm_quant", "add_rmsnorm_quant", "silu_mul_quant",
                                        "add_rmsnorm"};
    // Bytes a row and column: x, codes (and 4/128 of scales); residual read and written, y.
    static const double moved[] = {3 + 4 / 128.0, 3 + 4 / 128.0, 7 + 4 / 128.0, 5 + 4 / 128.0, 8};
    row_bench b = {.fuse = what, .m = m, .k = k, .large = m >= LARGE_ROWS};
    const int64_t elems = m * k, calls = calls_of(m);
    b.x_bytes = (size_t)elems * 2, b.out_bytes = (size_t)elems * (quantises(&b) ? 1 : 2);
    b.scale_bytes = quantises(&b) ? (size_t)(m * (k / 128)) * 4 : 0;
    b.out_step = b.x_bytes; // codes are the first half of what the next call takes for bf16
    b.x = random_bf16(elems * INPUTS, &b.card_x), b.up = random_bf16(elems * INPUTS, &b.card_up);
    b.residual = random_bf16(elems, &b.card_residual), b.weight = random_bf16(k, &b.card_weight);
    const size_t outs = b.large ? b.x_bytes : (size_t)calls * b.out_step;
    b.out = card_alloc(outs);
    card_tile(b.out, outs, b.x, b.x_bytes);
    b.scale = card_alloc(b.scale_bytes * (size_t)(b.large ? 1 : calls) + 64);
    job j = {.name = names[what],
             .m = m,
             .k = k,
             .at = m,
             .calls = calls,
             .bytes = moved[what] * (double)elems,
             .run = run_rows,
             .state = &b,
             .error = rows_error};
    add_part(&j, b.out, outs, false);
    add_part(&j, b.scale, b.scale_bytes * (size_t)(b.large ? 1 : calls), false);
    add_part(&j, b.card_residual, b.x_bytes, true);
    for (int plain = 0; plain < 2; plain++) {
        if (plain ? !o.plain : !o.dependent) continue;
        b.plan = j.plan = plan_rows(&b, !plain);
        measure(&j, !plain);
        rd_plan_free(b.plan);
    }
    close_job(&j);
    void *const there[] = {b.card_x, b.card_up, b.card_residual, b.card_weight, b.out, b.scale};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) card_free(there[i]);
    free(b.x), free(b.up), free(b.residual), free(b.weight);
}

// ---- floor: what an edge costs ---------------------------------------------------------------------------------------
typedef struct floor_bench {
    rd_plan *plan;
    unsigned char *rows; // of calls: [132, 128] bf16
    void *up;
} floor_bench;

static void run_floor(void *state, int64_t call) {
    floor_bench *b = state;
    const size_t step = FLOOR_ROWS * FLOOR_WIDTH * 2;
    const rd_act_mul_args args = {
        .struct_size = sizeof args,
        .gate = matrix(b->rows + (size_t)call * step, RD_DTYPE_BF16, FLOOR_ROWS, FLOOR_WIDTH),
        .up = matrix(b->up, RD_DTYPE_BF16, FLOOR_ROWS, FLOOR_WIDTH),
        .y = matrix(b->rows + (size_t)(call + 1) * step, RD_DTYPE_BF16, FLOOR_ROWS, FLOOR_WIDTH)};
    card_need(rd_act_mul_run(b->plan, &args, card_stream));
}

static void measure_floor(void) {
    const size_t step = FLOOR_ROWS * FLOOR_WIDTH * 2;
    const rd_param question[] = {RD_INT("k", FLOOR_WIDTH), RD_WORD("act", "silu"), RD_WORD("x_dtype", "bf16"),
                                 RD_WORD("y_dtype", "bf16"), RD_INT("m", FLOOR_ROWS)};
    floor_bench b = {.rows = card_alloc((size_t)(calls_of(1) + 1) * step)};
    uint16_t *up = random_bf16(FLOOR_ROWS * FLOOR_WIDTH, &b.up);
    card_tile(b.rows, (size_t)(calls_of(1) + 1) * step, up, step);
    job j = {.name = "floor",
             .m = FLOOR_ROWS,
             .at = FLOOR_ROWS,
             .k = FLOOR_WIDTH,
             .calls = calls_of(1),
             .bytes = 3.0 * (double)step,
             .run = run_floor,
             .state = &b};
    add_part(&j, b.rows + step, (size_t)calls_of(1) * step, false);
    for (int plain = 0; plain < 2; plain++) {
        if (plain ? !o.plain : !o.dependent) continue;
        b.plan = j.plan = card_plan(card_kernel("act_mul", question, 5), question, 4, FLOOR_ROWS, plain);
        measure(&j, !plain);
        rd_plan_free(b.plan);
    }
    close_job(&j);
    card_free(b.rows), card_free(b.up);
    free(up);
}

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
    free(random_bf16(m * heads * dim, &there));
    return on_card(rd_tensor_3d(there, RD_DTYPE_BF16, m, heads, dim));
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
    free(random_bf16(dim, &norm));
    *b = (head_bench){.rope = {.struct_size = sizeof b->rope, .eps = 1e-6f},
                      .kv = {.struct_size = sizeof b->kv}};
    b->rope.q = tokens(m, q_heads, dim), b->rope.k = b->kv.k = tokens(m, kv_heads, dim);
    b->kv.v = tokens(m, kv_heads, dim);
    b->rope.positions = on_card(rd_tensor_1d(card_put(positions, (size_t)m * 4), RD_DTYPE_I32, m));
    b->rope.inv_freq = on_card(rd_tensor_1d(card_put(freq, (size_t)rotary * 2), RD_DTYPE_F32, rotary / 2));
    b->rope.q_norm = b->rope.k_norm = on_card(rd_tensor_1d(norm, RD_DTYPE_BF16, dim));
    b->kv.k_cache =
        on_card(rd_tensor_4d(card_alloc(cache_bytes), RD_DTYPE_E4M3, blocks, BLOCK_TOKENS, kv_heads, dim));
    b->kv.v_cache =
        on_card(rd_tensor_4d(card_alloc(cache_bytes), RD_DTYPE_E4M3, blocks, BLOCK_TOKENS, kv_heads, dim));
    b->kv.k_scale = b->kv.v_scale =
        on_card(rd_tensor_1d(card_put(ones, (size_t)kv_heads * 4), RD_DTYPE_F32, kv_heads));
    b->kv.slots = on_card(rd_tensor_1d(card_put(slots, (size_t)m * 8), RD_DTYPE_I64, m));
    card_set(b->kv.k_cache.data, 0, cache_bytes), card_set(b->kv.v_cache.data, 0, cache_bytes);
    free(slots), free(positions), free(freq), free(ones);
}

static void measure_heads(int64_t m, int64_t q_heads, int64_t kv_heads, int64_t dim, int64_t rotary) {
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
             .calls = calls_of(m),
             .bytes = (double)(m * dim) * (4.0 * (double)q_heads + 6.0 * (double)kv_heads),
             .run = run_heads,
             .state = &b};
    add_part(&j, b.rope.q.data, (size_t)(m * q_heads * dim) * 2, true);
    add_part(&j, b.rope.k.data, (size_t)(m * kv_heads * dim) * 2, true);
    add_part(&j, b.kv.k_cache.data, (size_t)(b.kv.k_cache.shape[0] * BLOCK_TOKENS * kv_heads * dim), false);
    add_part(&j, b.kv.v_cache.data, (size_t)(b.kv.k_cache.shape[0] * BLOCK_TOKENS * kv_heads * dim), false);
    for (int plain = 0; plain < 2; plain++) {
        if (plain ? !o.plain : !o.dependent) continue;
        b.plan = j.plan = card_plan(card_kernel("rope_kv_write", question, 8), question, 8, 0, plain);
        measure(&j, !plain);
        rd_plan_free(b.plan);
    }
    close_job(&j);
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
        .logits = matrix(b->card_logits, RD_DTYPE_F32, b->rows, VOCAB),
        .rows = b->params,
        .ids = on_card(rd_tensor_1d(b->ids + (size_t)(call * b->rows) * 4, RD_DTYPE_I32, b->rows))};
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
    b->ids = card_alloc((size_t)(calls_of(LARGE_ROWS) * b->rows) * 4);
    job j = {.name = name,
             .m = b->rows,
             .k = VOCAB,
             .calls = calls_of(LARGE_ROWS),
             .bytes = 4.0 * (double)(b->rows * VOCAB),
             .run = run_sample,
             .state = b,
             .error = sample_error};
    add_part(&j, b->ids, (size_t)(calls_of(LARGE_ROWS) * b->rows) * 4, false);
    for (int plain = 0; plain < 2; plain++) {
        if (plain ? !o.plain : !o.dependent) continue;
        b->plan = j.plan = card_plan(card_kernel("sample", question, 1), question, 1, 0, plain);
        b->ws_bytes = 0;
        const rd_sample_args args = {.struct_size = sizeof args,
                                     .logits = matrix(b->card_logits, RD_DTYPE_F32, b->rows, VOCAB),
                                     .rows = b->params,
                                     .ids = on_card(rd_tensor_1d(b->ids, RD_DTYPE_I32, b->rows))};
        card_need(rd_sample_run(b->plan, &args, NULL, &b->ws_bytes, card_stream));
        b->ws = card_alloc(b->ws_bytes += 64);
        measure(&j, !plain);
        rd_plan_free(b->plan);
        card_free(b->ws);
    }
    close_job(&j);
    card_free(b->params), card_free(b->ids);
    free(rows);
}

// Logits as of a model: normal of deviation 3, a sum of uniforms.
static void measure_samples(int64_t rows) {
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

// ---- options -----------------------------------------------------------------------------------------------------------
static int read_numbers(const char *text, int64_t *to) {
    int count = 0;
    for (const char *at = text; *at && count < MOST_LIST; count++) {
        char *end;
        to[count] = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || to[count] < 1)
            card_fail("card_small: cannot read %s", text);
        at = *end ? end + 1 : end;
    }
    return count;
}

static void read_options(int argc, char **argv) {
    o.ops = "floor,rows,heads,sample", o.dependent = o.plain = true, o.width = 5120;
    o.row_counts = read_numbers("1,16,8192", o.rows);
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *text = argv[i + 1];
        if (!strcmp(name, "--device"))
            o.device = text;
        else if (!strcmp(name, "--ops"))
            o.ops = text;
        else if (!strcmp(name, "--rows"))
            o.row_counts = read_numbers(text, o.rows);
        else if (!strcmp(name, "--width"))
            o.width = strtoll(text, NULL, 10);
        else if (!strcmp(name, "--edges"))
            o.plain = strcmp(text, "dependent") != 0, o.dependent = strcmp(text, "plain") != 0;
        else
            card_fail("card_small: %s is no option, see the top of bench/card_small.c", name);
    }
    if (o.width < 128 || o.width % 128) card_fail("card_small: --width, needs a multiple of 128");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    card_open(o.device);
    printf("run,op,kernel,m,k,edges,calls,us,best_us,floor_us,ceiling_percent,error,replays\n");
    if (strstr(o.ops, "floor")) measure_floor();
    for (int i = 0; i < o.row_counts && strstr(o.ops, "rows"); i++)
        for (fuse what = QUANT; what <= ADD_NORM; what++) measure_rows(o.rows[i], o.width, what);
    for (int i = 0; i < o.row_counts && strstr(o.ops, "heads"); i++) {
        measure_heads(o.rows[i], 40, 8, 128, 128);
        measure_heads(o.rows[i], 24, 4, 256, 64);
    }
    for (int64_t rows = 1; rows <= 128 && strstr(o.ops, "sample"); rows *= rows == 1 ? 16 : 8)
        measure_samples(rows);
    card_close();
    return 0;
}
