// SPDX-License-Identifier: Apache-2.0
// The small ops of a decode step (m = 1) and of a prefill chunk (m = 512), every row of the table, at the shapes of a small
// model: us a call (best and median), GB/s of the bytes that the op must move, and memcpy over as many bytes in the same
// run. Operands stay in cache, as between the GEMMs of a step. A row is compared with its reference before it is timed.
//
//   bench_elementwise [threads] [csv file]
#include "base/convert.h"
#include "kernels/elementwise/args.h"
#include "kernels/quant_fp8/args.h"
#include "kernels/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 1536, ROWS = 512, HEADS = 9, HEAD_DIM = 64, VOCAB = 262144, BATCHES = 15 };

typedef struct bench_case {
    const char *op, *shape;
    const void *args;
    int64_t bytes;        // moved by one call
    void *out;            // compared with the reference
    int64_t out_elems;
    rd_dtype out_dtype;
} bench_case;

static rdi_par *par;
static void *ws;
static FILE *csv;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static bool runs_here(const rdi_row *row) {
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    uint32_t have = (avx2 ? RDI_ISA_AVX2 : 0u) | (avx512 ? RDI_ISA_AVX512 : 0u);
    return row->backend == RDI_BACKEND_CPU && !(row->isa & ~have);
}

static int by_value(const void *left, const void *right) {
    double l = *(const double *)left, r = *(const double *)right;
    return (l > r) - (l < r);
}

// Best and median over BATCHES batches of about a millisecond each.
static void time_calls(rdi_kernel_fn run, const void *args, double *best, double *median) {
    double start = now_us(), us[BATCHES];
    run(args, ws, par);
    int calls = (int)(1000 / (now_us() - start + 0.1)) + 1;
    for (int batch = 0; batch < BATCHES; batch++) {
        start = now_us();
        for (int i = 0; i < calls; i++) run(args, ws, par);
        us[batch] = (now_us() - start) / calls;
    }
    qsort(us, BATCHES, sizeof us[0], by_value);
    *best = us[0], *median = us[BATCHES / 2];
}

typedef struct copy_args {
    char *to;
    const char *from;
    size_t bytes;
} copy_args;
static void copy(const void *args, void *unused, rdi_par *pool) {
    const copy_args *c = args;
    (void)unused, (void)pool;
    memcpy(c->to, c->from, c->bytes);
}

static float *wanted;
static bool agrees(const bench_case *c) { // within a step of the output type: the tests hold the tight bounds
    double difference = 0, size = 0;
    for (int64_t i = 0; i < c->out_elems; i++) {
        double got = c->out_dtype == RD_DTYPE_I32 ? ((int32_t *)c->out)[i] : rdi_load_f32(c->out, c->out_dtype, i);
        difference += fabs(got - (double)wanted[i]), size += fabs((double)wanted[i]);
    }
    return difference <= size * 1e-3;
}

static void bench(const bench_case *c, const copy_args *buffers) {
    copy_args half = {buffers->to, buffers->from, (size_t)c->bytes / 2}; // memcpy reads and writes each byte
    double best, median, copy_best, copy_median;
    for (int32_t i = 0; i < rdi_row_count; i++) {
        if (strcmp(rdi_rows[i].info.op, c->op) != 0 || !rdi_rows[i].info.is_reference) continue;
        rdi_rows[i].run(c->args, ws, NULL);
        for (int64_t k = 0; k < c->out_elems; k++)
            wanted[k] = c->out_dtype == RD_DTYPE_I32 ? (float)((int32_t *)c->out)[k] : rdi_load_f32(c->out, c->out_dtype, k);
    }
    for (int32_t i = 0; i < rdi_row_count; i++) {
        const rdi_row *row = &rdi_rows[i];
        if (strcmp(row->info.op, c->op) != 0 || row->info.is_reference || !runs_here(row)) continue;
        row->run(c->args, ws, par);
        if (!agrees(c)) {
            printf("%-26s %-22s WRONG: not timed\n", row->info.name, c->shape);
            continue;
        }
        time_calls(row->run, c->args, &best, &median);
        time_calls(copy, &half, &copy_best, &copy_median);
        double gbs = (double)c->bytes / best * 1e-3, copy_gbs = (double)c->bytes / copy_best * 1e-3;
        printf("%-26s %-22s %9.2f us (median %9.2f) %7.1f GB/s, memcpy %7.1f\n", row->info.name, c->shape, best, median, gbs, copy_gbs);
        if (csv)
            fprintf(csv, "%s,%s,%d,%.3f,%.3f,%.2f,%.2f\n", row->info.name, c->shape, rdi_par_threads(par), best, median, gbs, copy_gbs);
    }
}

static void *bf16_values(int64_t count, float size) {
    uint16_t *values = malloc((size_t)count * sizeof *values);
    uint64_t state = 1;
    for (int64_t i = 0; values && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX constants
        values[i] = rdi_bf16_from_f32(size * ((float)(state >> 40) * 0x1p-23f - 1));
    }
    return values;
}

static void bench_rows(int64_t m, const copy_args *buffers) {
    int64_t elems = m * WIDTH;
    void *x = bf16_values(elems, 2), *up = bf16_values(elems, 1), *weight = bf16_values(WIDTH, 1), *y = bf16_values(elems, 1);
    void *rest = bf16_values(elems, 0);
    float *scale = malloc((size_t)(m * WIDTH / 128) * sizeof *scale);
    char shape[64];
    if (x && up && weight && y && scale && rest) {
        rdi_rmsnorm_args norm = {.m = m, .k = WIDTH, .x = x, .weight = weight, .y = y, .x_stride = WIDTH, .y_stride = WIDTH,
                                 .x_dtype = RD_DTYPE_BF16, .weight_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16, .eps = 1e-6f};
        rdi_act_mul_args act = {.m = m, .k = WIDTH, .gate = x, .up = up, .y = y, .gate_stride = WIDTH, .up_stride = WIDTH,
                                .y_stride = WIDTH, .x_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16};
        snprintf(shape, sizeof shape, "m=%lld k=%d", (long long)m, WIDTH);
        bench(&(bench_case){"rmsnorm", shape, &norm, 4 * elems, y, elems, RD_DTYPE_BF16}, buffers);
        bench(&(bench_case){"act_mul", shape, &act, 6 * elems, y, elems, RD_DTYPE_BF16}, buffers);
        static const char *const fuses[] = {"none", "rmsnorm", "add_rmsnorm", "silu_mul"};
        for (int fuse = 0; fuse < 4; fuse++) {
            rdi_quant_args quant = {.m = m, .k = WIDTH, .x = fuse == RDI_FUSE_ADD_RMSNORM ? rest : x, .up = up, .residual = x,
                                    .norm_weight = weight, .q = y, .q_scale = scale, .x_stride = WIDTH, .up_stride = WIDTH,
                                    .residual_stride = WIDTH, .q_stride = WIDTH, .q_scale_stride_m = WIDTH / 128, .q_scale_stride_k = 1,
                                    .x_dtype = RD_DTYPE_BF16, .up_dtype = RD_DTYPE_BF16, .residual_dtype = RD_DTYPE_BF16,
                                    .norm_dtype = RD_DTYPE_BF16, .eps = 1e-6f, .fuse = (rdi_quant_fuse)fuse};
            static const int bytes[] = {3, 3, 7, 5}; // an element: x 2, q 1; residual read and written 4; up 2
            snprintf(shape, sizeof shape, "m=%lld k=%d %s", (long long)m, WIDTH, fuses[fuse]);
            bench(&(bench_case){"quant_fp8", shape, &quant, bytes[fuse] * elems, y, elems, RD_DTYPE_E4M3}, buffers);
        }
    }
    free(x), free(up), free(weight), free(y), free(scale), free(rest);
}

static void bench_heads(int64_t tokens, const copy_args *buffers) {
    int64_t elems = tokens * HEADS * HEAD_DIM, cache = 2 * rdi_round_up(tokens, 16) * HEADS * HEAD_DIM;
    void *k = bf16_values(elems, 1), *v = bf16_values(elems, 1);
    uint8_t *k_cache = calloc((size_t)cache, 1), *v_cache = calloc((size_t)cache, 1);
    int64_t *slots = malloc((size_t)tokens * sizeof *slots);
    int32_t *positions = calloc((size_t)tokens, sizeof *positions); // position 0: turning in place changes nothing
    float inv_freq[HEAD_DIM / 2], scale[HEADS];
    char shape[64];
    for (int d = 0; d < HEAD_DIM / 2; d++) inv_freq[d] = powf(10000, -2.0f * (float)d / HEAD_DIM);
    for (int h = 0; h < HEADS; h++) scale[h] = 0.01f;
    if (k && v && k_cache && v_cache && slots && positions) {
        for (int64_t t = 0; t < tokens; t++) slots[t] = t;
        rdi_rope_args rope = {.tokens = tokens, .q_heads = HEADS, .head_dim = HEAD_DIM, .rotary_dim = HEAD_DIM, .q = k,
                              .q_stride_token = HEADS * HEAD_DIM, .q_stride_head = HEAD_DIM, .positions = positions,
                              .inv_freq = inv_freq, .q_dtype = RD_DTYPE_BF16};
        snprintf(shape, sizeof shape, "tokens=%lld heads=%d", (long long)tokens, HEADS);
        bench(&(bench_case){"rope", shape, &rope, 4 * elems, k, elems, RD_DTYPE_BF16}, buffers);
        for (int token_order = 0; token_order < 2; token_order++) {
            rdi_kv_write_args kv = {.tokens = tokens, .kv_heads = HEADS, .head_dim = HEAD_DIM, .block_tokens = 16,
                .blocks = rdi_ceil_div(tokens, 16), .k = k, .v = v, .k_stride_token = HEADS * HEAD_DIM, .k_stride_head = HEAD_DIM,
                .v_stride_token = HEADS * HEAD_DIM, .v_stride_head = HEAD_DIM, .k_cache = k_cache, .v_cache = v_cache,
                .kc_stride_block = 16 * HEADS * HEAD_DIM, .kc_stride_token = token_order ? 1 : HEADS * HEAD_DIM,
                .kc_stride_head = token_order ? 16 * HEAD_DIM : HEAD_DIM, .kc_stride_dim = token_order ? 16 : 1,
                .vc_stride_block = 16 * HEADS * HEAD_DIM, .vc_stride_token = HEADS * HEAD_DIM, .vc_stride_head = HEAD_DIM,
                .vc_stride_dim = 1, .k_scale = scale, .v_scale = scale, .slots = slots, .x_dtype = RD_DTYPE_BF16, .kv_dtype = RD_DTYPE_E4M3};
            snprintf(shape, sizeof shape, "tokens=%lld K by %s", (long long)tokens, token_order ? "token" : "dim");
            bench(&(bench_case){"kv_write", shape, &kv, 6 * elems, k_cache, elems, RD_DTYPE_E4M3}, buffers);
        }
    }
    free(k), free(v), free(k_cache), free(v_cache), free(slots), free(positions);
}

static void bench_sample(const copy_args *buffers) {
    static const struct {
        const char *name;
        int64_t vocab;
        float size;
        rd_sample_row row;
    } cases[] = {{"greedy", 49152, 12, {.temperature = 0}},
                 {"T=1", 49152, 12, {.temperature = 1, .top_p = 1}},
                 {"T=0.7 k=50 p=0.9", 49152, 12, {.temperature = 0.7f, .top_p = 0.9f, .top_k = 50}},
                 {"T=0.7 k=50 p=0.9", VOCAB, 12, {.temperature = 0.7f, .top_p = 0.9f, .top_k = 50}},
                 {"T=1 p=0.9 flat", VOCAB, 0.01f, {.temperature = 1, .top_p = 0.9f}}};
    uint16_t *half = bf16_values(VOCAB, 1);
    float *logits = malloc(VOCAB * sizeof *logits);
    for (size_t i = 0; half && logits && i < RDI_COUNT(cases); i++) {
        // A cubed uniform: few tokens near the top, as a model's logits have.
        for (int64_t k = 0; k < cases[i].vocab; k++) {
            float u = rdi_f32_from_bf16(half[k]);
            logits[k] = cases[i].size * u * u * u;
        }
        int32_t id;
        rdi_sample_args args = {1, cases[i].vocab, logits, cases[i].vocab, &cases[i].row, &id};
        char shape[64];
        snprintf(shape, sizeof shape, "%lldK %s", (long long)cases[i].vocab / 1024, cases[i].name);
        bench(&(bench_case){"sample", shape, &args, 4 * cases[i].vocab, &id, 1, RD_DTYPE_I32}, buffers);
    }
    free(half), free(logits);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    size_t bytes = (size_t)ROWS * WIDTH * 8;
    copy_args buffers = {calloc(bytes, 1), calloc(bytes, 1), bytes};
    ws = aligned_alloc(64, (size_t)VOCAB * 16 * 64);
    wanted = malloc((size_t)ROWS * WIDTH * sizeof *wanted);
    csv = argc > 2 ? fopen(argv[2], "w") : NULL;
    if (threads < 1 || threads > 64 || !buffers.to || !buffers.from || !ws || !wanted || (argc > 2 && !csv) ||
        rdi_par_create(threads, NULL, NULL, &par) != RD_OK) {
        fprintf(stderr, "usage: bench_elementwise [threads 1..64] [csv file]\n");
        return 1;
    }
    if (csv) fprintf(csv, "kernel,shape,threads,us_min,us_median,gbs,memcpy_gbs\n");
    for (int64_t m = 1; m <= ROWS; m *= ROWS) bench_rows(m, &buffers), bench_heads(m, &buffers);
    bench_sample(&buffers);
    if (csv && fclose(csv)) fprintf(stderr, "%s could not be written\n", argv[2]);
    rdi_par_free(par);
    free(buffers.to), free((void *)buffers.from), free(ws), free(wanted);
    return 0;
}
