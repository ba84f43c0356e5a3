// SPDX-License-Identifier: Apache-2.0
// Times the small ops of a step on a card, in graphs of 200 calls (20 from 1024 rows on), one CSV line a case:
//
//   card_small [--device gpu:0] [--rows 1,16,8192] [--width 5120] [--edges dependent|plain|both] [--ops floor,rows,heads,sample]
//              [--flashinfer FOLDER]
//
// rows: quantiser, norms and their fusions at bf16, or some of quant, rmsnorm_quant, add_rmsnorm_quant, silu_mul_quant,
// add_rmsnorm. Up to 1023 rows a call reads what the last one wrote: add_rmsnorm its y as x, the quantiser its codes as the first
// half of x (taken as bf16), add_rmsnorm_quant the residual; the others take turns over inputs. From 1024 rows on x takes turns
// over three buffers beyond the second-level cache. heads: rope_kv_write. sample: 151936 logits. floor: empty kernels
// of 132 x 128 threads (card_floor.c).
//
// Before timing, calls run alone; rows of the first call are compared with the formula in double, greedy ids with the largest logit
// (`radiance check` judges the rest); a replay from the same start must leave the same bits everywhere, before the timed replays
// and after them.
#include "card_small.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 200, LARGE_CALLS = 20, INPUTS = 3, SAMPLES = 4 };

static struct {
    const char *device, *ops, *flashinfer;
    bool dependent, plain;
    int64_t rows[CARD_LIST], width;
    int row_counts;
} o;

void small_part(job *j, void *there, size_t bytes, bool state) {
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
           rd_plan_kernel(*j->plan, j->at)->name, (long long)j->m, (long long)j->k,
           dependent ? "dependent" : "plain", (long long)j->calls, time.us, time.best_us, floor_us,
           100 * floor_us / time.us);
    if (j->error) printf("%.2f", error);
    printf(",%s\n", same ? "same" : "DIFFERENT");
    fflush(stdout);
    if (!same || error > 1) card_fail("card_small: %s is wrong here", j->name);
}

void small_measure(job *j, const char *kernel, const rd_param *question, int32_t count) {
    if (!kernel) card_fail("card_small: no row takes %s: %s", j->name, rd_error_text());
    for (int plain = 0; plain < 2; plain++) {
        if (plain ? !o.plain : !o.dependent) continue;
        *j->plan = card_plan(kernel, question, count, j->at, plain);
        measure(j, !plain);
        rd_plan_free(*j->plan);
    }
    for (int i = 0; i < j->part_count; i++) card_free(j->parts[i].saved);
}

int64_t small_calls(int64_t rows) {
    return card_simulated ? 2 : rows >= LARGE_ROWS ? LARGE_CALLS : CALLS;
}

rd_tensor small_on_card(rd_tensor t) {
    t.device = rd_ctx_device_number(card_ctx);
    return t;
}
rd_tensor small_matrix(void *data, rd_dtype dtype, int64_t m, int64_t k) {
    return small_on_card(rd_tensor_2d(data, dtype, m, k));
}

uint16_t *small_random(int64_t count, void **there) {
    uint16_t *host = card_host((size_t)count * 2);
    card_fill_bf16(host, count);
    *there = card_put(host, (size_t)count * 2);
    return host;
}

// ---- rows: the quantiser, norms and fusions -------------------------------------------------------------------------
typedef enum fuse { QUANT = 0, NORM_QUANT, ADD_NORM_QUANT, SILU_QUANT, ADD_NORM } fuse;
static const char *const row_names[] = {"quant", "rmsnorm_quant", "add_rmsnorm_quant", "silu_mul_quant",
                                        "add_rmsnorm"};
typedef struct row_bench {
    fuse fuse;
    int64_t m, k;
    bool large;
    rd_plan *plan;
    uint16_t *x, *up, *residual, *weight; // host
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
    const rd_tensor x = small_matrix(x_of(b, call), RD_DTYPE_BF16, b->m, b->k),
                    residual = small_matrix(b->card_residual, RD_DTYPE_BF16, b->m, b->k),
                    weight = small_on_card(rd_tensor_1d(b->card_weight, RD_DTYPE_BF16, b->k));
    if (!quantises(b)) {
        const rd_rmsnorm_args args = {.struct_size = sizeof args,
                                      .x = x,
                                      .residual = residual,
                                      .weight = weight,
                                      .y = small_matrix(out_of(b, call), RD_DTYPE_BF16, b->m, b->k),
                                      .eps = 1e-6f};
        card_need(rd_rmsnorm_run(b->plan, &args, card_stream));
        return;
    }
    unsigned char *scale = b->scale + (b->large ? 0 : (size_t)call * b->scale_bytes);
    rd_quant_args args = {.struct_size = sizeof args,
                          .x = x,
                          .q = small_matrix(out_of(b, call), RD_DTYPE_E4M3, b->m, b->k),
                          .q_scale = small_matrix(scale, RD_DTYPE_F32, b->m, b->k / 128),
                          .eps = 1e-6f};
    if (b->fuse == ADD_NORM_QUANT) args.residual = residual;
    if (b->fuse == ADD_NORM_QUANT || b->fuse == NORM_QUANT) args.norm_weight = weight;
    if (b->fuse == SILU_QUANT)
        args.up = small_matrix((unsigned char *)b->card_up + (size_t)(call % INPUTS) * b->x_bytes,
                               RD_DTYPE_BF16, b->m, b->k);
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

// INPUTS buffers of the same numbers: where they lie is what counts.
static uint16_t *inputs_of(int64_t elems, void **there) {
    uint16_t *host = small_random(elems, there);
    card_free(*there);
    *there = card_alloc((size_t)elems * 2 * INPUTS);
    card_tile(*there, (size_t)elems * 2 * INPUTS, host, (size_t)elems * 2);
    return host;
}

static void measure_with_plan(row_bench *b, job *j) {
    static const char *const words[] = {"none", "rmsnorm", "add_rmsnorm", "silu_mul"};
    const rd_param norm[] = {RD_INT("k", b->k),          RD_WORD("x_dtype", "bf16"),
                             RD_WORD("y_dtype", "bf16"), RD_WORD("weight_dtype", "bf16"),
                             RD_INT("residual", 1),      RD_INT("m", b->m)};
    if (quantises(b)) {
        const rd_param quant[] = {RD_INT("k", b->k), RD_WORD("x_dtype", "bf16"),
                                  RD_WORD("fuse", words[b->fuse]), RD_INT("m", b->m)};
        small_measure(j, card_kernel("quant_fp8", quant, 4), quant, 3);
    } else {
        small_measure(j, card_kernel("rmsnorm", norm, 6), norm, 5);
    }
}

static void measure_rows(int64_t m, int64_t k, fuse what) {
    // Bytes a row and column: x, codes (and 4/128 of scales); residual read and written, y.
    static const double moved[] = {3 + 4 / 128.0, 3 + 4 / 128.0, 7 + 4 / 128.0, 5 + 4 / 128.0, 8};
    row_bench b = {.fuse = what, .m = m, .k = k, .large = m >= LARGE_ROWS};
    const int64_t elems = m * k, calls = small_calls(m);
    b.x_bytes = (size_t)elems * 2, b.out_bytes = (size_t)elems * (quantises(&b) ? 1 : 2);
    b.scale_bytes = quantises(&b) ? (size_t)(m * (k / 128)) * 4 : 0;
    b.out_step = b.x_bytes; // codes are the first half of what the next call takes for bf16
    b.x = inputs_of(elems, &b.card_x);
    if (what == SILU_QUANT) b.up = inputs_of(elems, &b.card_up);
    b.residual = small_random(elems, &b.card_residual), b.weight = small_random(k, &b.card_weight);
    const size_t outs = b.large ? b.x_bytes : (size_t)calls * b.out_step;
    b.out = card_alloc(outs);
    card_tile(b.out, outs, b.x, b.x_bytes);
    b.scale = card_alloc(b.scale_bytes * (size_t)(b.large ? 1 : calls) + 64);
    job j = {.name = row_names[what],
             .m = m,
             .k = k,
             .at = m,
             .calls = calls,
             .bytes = moved[what] * (double)elems,
             .run = run_rows,
             .state = &b,
             .plan = &b.plan,
             .error = rows_error};
    small_part(&j, b.out, outs, false);
    small_part(&j, b.scale, b.scale_bytes * (size_t)(b.large ? 1 : calls), false);
    small_part(&j, b.card_residual, b.x_bytes, true);
    measure_with_plan(&b, &j);
    void *const there[] = {b.card_x, b.card_up, b.card_residual, b.card_weight, b.out, b.scale};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) card_free(there[i]);
    free(b.x), free(b.up), free(b.residual), free(b.weight);
}

// ---- options -----------------------------------------------------------------------------------------------------------
static void read_options(int argc, char **argv) {
    o.ops = "floor,rows,heads,sample", o.dependent = o.plain = true, o.width = 5120;
    int64_t width[CARD_LIST];
    o.row_counts = card_numbers("1,16,8192", o.rows);
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *text = card_value(argc, argv, i);
        if (!strcmp(name, "--device"))
            o.device = text;
        else if (!strcmp(name, "--ops"))
            o.ops = card_words(
                name, text,
                "floor rows heads sample quant rmsnorm_quant add_rmsnorm_quant silu_mul_quant add_rmsnorm");
        else if (!strcmp(name, "--rows"))
            o.row_counts = card_numbers(text, o.rows);
        else if (!strcmp(name, "--flashinfer"))
            o.flashinfer = text;
        else if (!strcmp(name, "--width"))
            o.width = card_numbers(text, width) == 1 ? width[0] : 0;
        else if (!strcmp(name, "--edges"))
            card_word(name, text, "dependent plain both"), o.plain = strcmp(text, "dependent") != 0,
                                                           o.dependent = strcmp(text, "plain") != 0;
        else
            card_fail("card_small: %s is no option, see the top of bench/card_small.c", name);
    }
    if (o.width < 128 || o.width % 128) card_fail("card_small: --width, needs one multiple of 128");
}

static bool asked(const char *name) { // one of --ops
    const size_t length = strlen(name);
    for (const char *at = o.ops; (at = strstr(at, name)) != NULL; at += length)
        if ((at == o.ops || at[-1] == ',') && (!at[length] || at[length] == ',')) return true;
    return false;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    card_open(o.device);
    printf("run,op,kernel,m,k,edges,calls,us,best_us,floor_us,ceiling_percent,error,replays\n");
    if (asked("floor")) small_floor(o.dependent, o.plain);
    for (int i = 0; i < o.row_counts; i++)
        for (fuse what = QUANT; what <= ADD_NORM; what++)
            if (asked("rows") || asked(row_names[what])) measure_rows(o.rows[i], o.width, what);
    for (int i = 0; i < o.row_counts && o.flashinfer; i++)
        small_flashinfer(o.flashinfer, o.rows[i], o.width, o.dependent, o.plain);
    for (int i = 0; i < o.row_counts && asked("heads"); i++) {
        small_heads(o.rows[i], 40, 8, 128, 128);
        small_heads(o.rows[i], 24, 4, 256, 64);
    }
    for (int64_t rows = 1; rows <= 128 && asked("sample"); rows *= rows == 1 ? 16 : 8) small_samples(rows);
    card_close();
    return 0;
}
