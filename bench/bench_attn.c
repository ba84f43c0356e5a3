// SPDX-License-Identifier: Apache-2.0
// Attention rows of this machine: decode, verify and prefill shapes over fp8 and bf16 caches. Each row is checked against
// the double reference before it is timed; a wrong row prints no time. Decode reads caches in turn until they exceed every
// CPU cache ("cold"), and each timing alternates with a plain read of the same memory by the same threads: the ceiling.
//
//   bench_attn [--threads T] [--row PART] [--shape PART] [--reps N] [--csv FILE]
#include "base/convert.h"
#include "base/par.h"
#include "kernels/attn/args.h"
#include "registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench_shape {
    const char *name;
    int seqs, q_len, kv_len, q_heads, kv_heads, head_dim;
    rd_dtype kv_dtype;
    bool cold;
} bench_shape;

static const bench_shape shapes[] = {
    {"decode_h9_3_d64_fp8_kv8192", 1, 1, 8192, 9, 3, 64, RD_DTYPE_E4M3, true},
    {"decode_h9_3_d64_fp8_kv32768", 1, 1, 32768, 9, 3, 64, RD_DTYPE_E4M3, true},
    {"decode_h9_3_d64_fp8_kv2048", 1, 1, 2048, 9, 3, 64, RD_DTYPE_E4M3, false},
    {"decode_h9_3_d64_fp8_kv64", 1, 1, 64, 9, 3, 64, RD_DTYPE_E4M3, false},
    {"decode_h9_3_d64_bf16_kv8192", 1, 1, 8192, 9, 3, 64, RD_DTYPE_BF16, true},
    {"decode_h8_8_d128_fp8_kv8192", 1, 1, 8192, 8, 8, 128, RD_DTYPE_E4M3, true},
    {"decode_h16_4_d128_fp8_kv8192", 1, 1, 8192, 16, 4, 128, RD_DTYPE_E4M3, true},
    {"decode_h24_4_d256_fp8_kv8192", 1, 1, 8192, 24, 4, 256, RD_DTYPE_E4M3, true},
    {"decode_b8_h9_3_d64_fp8_kv2048", 8, 1, 2048, 9, 3, 64, RD_DTYPE_E4M3, true},
    {"verify8_h9_3_d64_fp8_kv2048", 1, 8, 2048, 9, 3, 64, RD_DTYPE_E4M3, false},
    {"prefill512_h9_3_d64_fp8", 1, 512, 512, 9, 3, 64, RD_DTYPE_E4M3, false},
    {"prefill512_h9_3_d64_fp8_at2048", 1, 512, 2048, 9, 3, 64, RD_DTYPE_E4M3, false},
    {"prefill512_h16_4_d128_bf16", 1, 512, 512, 16, 4, 128, RD_DTYPE_BF16, false},
};

enum { BLOCK_TOKENS = 64, COLD_BYTES = 256 << 20 };

typedef struct bench_case {
    rdi_attn_args args;
    int32_t *tables, *kv_lens, *q_starts; // one table a copy of the cache
    float *scales, *out, *expected;
    uint16_t *q;
    uint8_t *k, *v, *other;                  // other: for the ceiling
    int64_t copies, table_entries, kv_bytes; // kv_bytes: read by one call
    size_t cache_bytes;                      // of K, of V
} bench_case;

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint64_t random_bits(uint64_t *state) { // xorshift64
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void fill_cache(uint8_t *cache, size_t bytes, rd_dtype dtype, uint64_t *rng) {
    enum { NUMBERS = 4096 };
    uint16_t codes[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) { // sums of three uniform numbers: bell-shaped, deviation 1
        float x = 0;
        for (int j = 0; j < 3; j++) x += (float)(random_bits(rng) >> 40) * 0x1p-23f - 1.0f;
        codes[i] = dtype == RD_DTYPE_E4M3 ? rdi_e4m3_from_f32(x) : rdi_bf16_from_f32(x);
    }
    if (dtype == RD_DTYPE_E4M3)
        for (size_t i = 0; i < bytes; i++) cache[i] = (uint8_t)codes[random_bits(rng) % NUMBERS];
    else
        for (size_t i = 0; i < bytes / 2; i++)
            ((uint16_t *)(void *)cache)[i] = codes[random_bits(rng) % NUMBERS];
}

static void case_make(bench_case *c, const bench_shape *s) {
    uint64_t rng = 88172645463325252u;
    int64_t elem = s->kv_dtype == RD_DTYPE_E4M3 ? 1 : 2,
            blocks_per_seq = rdi_ceil_div(s->kv_len, BLOCK_TOKENS);
    int64_t block_elems = (int64_t)s->kv_heads * BLOCK_TOKENS * s->head_dim,
            tokens = (int64_t)s->seqs * s->q_len;
    int64_t copy_bytes = s->seqs * blocks_per_seq * block_elems * elem, blocks;
    memset(c, 0, sizeof *c);
    c->copies = s->cold ? rdi_ceil_div(COLD_BYTES, 2 * copy_bytes) : 1;
    c->table_entries = s->seqs * blocks_per_seq, blocks = c->copies * c->table_entries;
    c->kv_bytes = (int64_t)s->seqs * s->kv_len * s->kv_heads * s->head_dim * 2 * elem;
    c->cache_bytes = (size_t)(blocks * block_elems * elem);
    c->k = rdi_alloc(c->cache_bytes), c->v = rdi_alloc(c->cache_bytes),
    c->other = rdi_alloc(s->cold ? COLD_BYTES : 64);
    c->tables = rdi_alloc((size_t)blocks * 4), c->kv_lens = rdi_alloc((size_t)s->seqs * 4);
    c->q_starts = rdi_alloc((size_t)(s->seqs + 1) * 4), c->scales = rdi_alloc((size_t)s->kv_heads * 4);
    c->q = rdi_alloc((size_t)(tokens * s->q_heads * s->head_dim) * 2);
    c->out = rdi_alloc((size_t)(tokens * s->q_heads * s->head_dim) * 4);
    c->expected = rdi_alloc((size_t)(tokens * s->q_heads * s->head_dim) * 4);
    fill_cache(c->k, c->cache_bytes, s->kv_dtype, &rng), fill_cache(c->v, c->cache_bytes, s->kv_dtype, &rng);
    memset(c->other, 1,
           s->cold ? COLD_BYTES : 64); // after the fill: it drives the last copies out of the CPU's caches
    for (int64_t i = 0; i < blocks; i++) c->tables[i] = (int32_t)i;
    for (int i = 0; i < s->seqs; i++) c->kv_lens[i] = s->kv_len;
    for (int i = 0; i <= s->seqs; i++) c->q_starts[i] = i * s->q_len;
    for (int i = 0; i < s->kv_heads; i++) c->scales[i] = 0.75f + 0.125f * (float)i;
    for (int64_t i = 0; i < tokens * s->q_heads * s->head_dim; i++)
        c->q[i] = rdi_bf16_from_f32((float)(random_bits(&rng) >> 40) * 0x1p-22f - 2.0f);
    c->args = (rdi_attn_args){.seqs = s->seqs,
                              .tokens = tokens,
                              .q_heads = s->q_heads,
                              .kv_heads = s->kv_heads,
                              .head_dim = s->head_dim,
                              .block_tokens = BLOCK_TOKENS,
                              .max_blocks = blocks_per_seq,
                              .blocks = blocks,
                              .q = c->q,
                              .q_stride_token = (int64_t)s->q_heads * s->head_dim,
                              .q_stride_head = s->head_dim,
                              .k_cache = c->k,
                              .v_cache = c->v,
                              .k_interleave = 16,
                              .k_stride_block = block_elems,
                              .k_stride_token = 1,
                              .k_stride_head = (int64_t)BLOCK_TOKENS * s->head_dim,
                              .k_stride_dim = 16,
                              .v_stride_block = block_elems,
                              .v_stride_token = s->head_dim,
                              .v_stride_head = (int64_t)BLOCK_TOKENS * s->head_dim,
                              .v_stride_dim = 1,
                              .k_scale = elem == 1 ? c->scales : NULL,
                              .v_scale = elem == 1 ? c->scales : NULL,
                              .block_table = c->tables,
                              .block_table_stride = blocks_per_seq,
                              .kv_lens = c->kv_lens,
                              .q_starts = c->q_starts,
                              .out = c->out,
                              .out_stride_token = (int64_t)s->q_heads * s->head_dim,
                              .out_stride_head = s->head_dim,
                              .q_dtype = RD_DTYPE_BF16,
                              .kv_dtype = s->kv_dtype,
                              .out_dtype = RD_DTYPE_F32,
                              .scale = 1 / sqrtf((float)s->head_dim)};
}

static void case_free(bench_case *c) {
    void *all[] = {c->k,        c->v,      c->other, c->tables, c->kv_lens,
                   c->q_starts, c->scales, c->q,     c->out,    c->expected};
    for (size_t i = 0; i < RDI_COUNT(all); i++) rdi_free(all[i]);
}

static const rdi_row *reference_row(const char *op) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rdi_rows[i].info.op, op) && rdi_rows[i].info.is_reference) return &rdi_rows[i];
    return NULL;
}

// The reference judges the last tokens of the last sequence alone: these see every key, and it is slow.
static void make_expected(bench_case *c, const bench_shape *s, const char *op) {
    rdi_attn_args a = c->args;
    int32_t tokens = s->q_len < 2 ? s->q_len : 2, starts[2] = {(int32_t)a.tokens - tokens, (int32_t)a.tokens};
    a.seqs = 1, a.q_starts = starts, a.kv_lens = c->kv_lens + s->seqs - 1;
    a.block_table += (s->seqs - 1) * a.block_table_stride;
    a.out = c->expected;
    reference_row(op)->run(&a, NULL, NULL);
}

// Mean |difference| over mean |reference| of the judged rows; f32 rows stay near 1e-6.
static double case_error(const bench_case *c, const bench_shape *s) {
    int64_t width = (int64_t)s->q_heads * s->head_dim,
            from = (c->args.tokens - (s->q_len < 2 ? s->q_len : 2)) * width;
    double off = 0, size = 0;
    for (int64_t i = from; i < c->args.tokens * width; i++) {
        off += fabs((double)c->out[i] - (double)c->expected[i]);
        size += fabs((double)c->expected[i]);
    }
    return off / size;
}

typedef struct read_job {
    const uint8_t *data;
    int64_t bytes;
    uint64_t sum[256];
} read_job;
typedef uint64_t line_words __attribute__((vector_size(64)));
static void read_share(void *arg, int32_t worker, int32_t workers) {
    read_job *job = arg;
    int64_t share = job->bytes / workers / 256 * 256;
    const uint8_t *data = job->data + worker * share;
    line_words sum[4] = {{0}};
    for (int64_t at = 0; at < share / 4; at += 64)
        for (int stream = 0; stream < 4; stream++) {
            const uint8_t *line = data + stream * (share / 4) + at;
            __builtin_prefetch(line + 2048);
            sum[stream] ^= *(const line_words *)(const void *)line;
        }
    job->sum[worker & 255] = sum[0][0] ^ sum[1][1] ^ sum[2][2] ^ sum[3][3];
}
static double read_gbs(const uint8_t *data, int64_t bytes, rdi_par *par) {
    static read_job job;
    job.data = data, job.bytes = bytes;
    double start = now_seconds();
    rdi_par_run(par, rdi_par_threads(par), read_share, &job);
    return (double)bytes / (now_seconds() - start) / 1e9;
}
// Reads as many bytes as one call does from a buffer of its own (reading the caches would warm them for later calls).
static double ceiling_gbs(const bench_case *c, rdi_par *par, int64_t turn) {
    int64_t bytes = rdi_min(c->kv_bytes, COLD_BYTES);
    return read_gbs(c->other + turn % (COLD_BYTES / bytes) * bytes, bytes, par);
}

static int compare_doubles(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

typedef struct bench_options {
    int threads, reps;
    const char *row, *shape;
    FILE *csv;
} bench_options;

// Seconds of one call on copy `copy`; hot shapes repeat it so that the clock's grain vanishes.
static double time_calls(bench_case *c, const rdi_row *row, void *ws, rdi_par *par, int64_t copy,
                         int64_t calls) {
    c->args.block_table = c->tables + copy * c->table_entries;
    double start = now_seconds();
    for (int64_t i = 0; i < calls; i++) row->run(&c->args, ws, par);
    double seconds = (now_seconds() - start) / (double)calls;
    c->args.block_table = c->tables;
    return seconds;
}

static void print_row(const bench_case *c, const bench_shape *s, const rdi_row *row,
                      const bench_options *options, const double *seconds, int64_t count, double ceiling,
                      double error) {
    double best = seconds[0], median = seconds[count / 2], gbs = (double)c->kv_bytes / best / 1e9;
    double pairs = 0; // visible (query, key) pairs of a head; two products of head_dim each
    for (int i = 0; i < s->q_len; i++) pairs += s->kv_len - s->q_len + i + 1;
    double gflops = 4 * pairs * s->seqs * s->q_heads * s->head_dim / best / 1e9;
    printf("%-30s %-32s %d thr %9.1f us %9.1f med %6.1f GB/s %6.1f GF/s", row->info.name, s->name,
           options->threads, best * 1e6, median * 1e6, gbs, gflops);
    if (s->cold) printf("  %4.1f%% of %.1f GB/s", 100 * gbs / ceiling, ceiling);
    printf("  err %.1e\n", error);
    if (options->csv)
        fprintf(options->csv, "%s,%s,%s,%s,%d,%.2f,%.2f,%.2f,%.1f,%.1f,%.1f,%.2e\n", rd_build_id(),
                row->info.name, s->name, s->cold ? "cold" : "hot", options->threads, best * 1e6, median * 1e6,
                gbs, gflops, s->cold ? ceiling : 0.0, s->cold ? 100 * gbs / ceiling : 0.0, error);
}

// The best of many single calls, each on memory that no cache holds, against the best of as many reads of as many bytes:
// on a machine that others use too, only short pieces run undisturbed.
static void bench_row(bench_case *c, const bench_shape *s, const rdi_row *row, const bench_options *options,
                      rdi_par *par) {
    void *ws = rdi_alloc(row->ws_bytes ? row->ws_bytes(&c->args, options->threads) : 64);
    int64_t count = s->cold ? rdi_max(c->copies, 16) * options->reps : 16 * options->reps, calls = 1;
    double *seconds = rdi_alloc((size_t)count * sizeof *seconds), ceiling = 0;
    if (!ws || !seconds) goto done;
    row->run(&c->args, ws, par);
    double error = case_error(c, s);
    if (!(error < 1e-4)) {
        printf("%-30s %-32s WRONG: mean error %.3g of the reference\n", row->info.name, s->name, error);
        goto done;
    }
    if (!s->cold) calls = rdi_max(1, (int64_t)(50e-6 / time_calls(c, row, ws, par, 0, 1)));
    for (int pass = 0; s->cold && pass < 3; pass++) { // long reads too: the better of both is the ceiling
        ceiling = fmax(ceiling, read_gbs(c->k, (int64_t)c->cache_bytes, par));
        ceiling = fmax(ceiling, read_gbs(c->other, COLD_BYTES, par));
    }
    for (int64_t i = 0; i < count; i++) {
        seconds[i] = time_calls(c, row, ws, par, i % c->copies, calls);
        if (s->cold) ceiling = fmax(ceiling, ceiling_gbs(c, par, i));
    }
    qsort(seconds, (size_t)count, sizeof *seconds, compare_doubles);
    print_row(c, s, row, options, seconds, count, ceiling, error);
done:
    rdi_free(seconds);
    rdi_free(ws);
}

static bool row_runs_here(const rdi_row *row) {
    uint32_t isa = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isa |= RDI_ISA_AVX2;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        isa |= RDI_ISA_AVX512;
    if (__builtin_cpu_supports("avx512vbmi")) isa |= RDI_ISA_AVX512VBMI;
#endif
    return row->backend == RDI_BACKEND_CPU && !(row->isa & ~isa);
}

static void bench_shape_rows(const bench_shape *s, const bench_options *options, rdi_par *par) {
    const char *op = s->q_len <= 17 ? "attn_decode" : "attn_prefill";
    bench_case c;
    case_make(&c, s);
    make_expected(&c, s, op);
    for (int32_t i = 0; i < rdi_row_count; i++) {
        const rdi_row *row = &rdi_rows[i];
        if (strcmp(row->info.op, op) || row->info.is_reference || !row_runs_here(row)) continue;
        if (options->row ? !strstr(row->info.name, options->row) : row->isa == RDI_ISA_NONE) continue;
        bench_row(&c, s, row, options, par);
    }
    case_free(&c);
}

int main(int argc, char **argv) {
    bench_options options = {.threads = 1, .reps = 4};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads"))
            options.threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--row"))
            options.row = argv[i + 1];
        else if (!strcmp(argv[i], "--shape"))
            options.shape = argv[i + 1];
        else if (!strcmp(argv[i], "--reps"))
            options.reps = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--csv"))
            options.csv = fopen(argv[i + 1], "w");
    }
    if (options.reps < 1 || options.reps > 64 || options.threads < 1) {
        fprintf(stderr, "bench_attn: --reps needs 1..64, --threads >= 1\n");
        return 1;
    }
    rdi_par *par = NULL;
    if (rdi_par_create(options.threads, NULL, NULL, &par) != RD_OK) return 1;
    if (options.csv)
        fprintf(
            options.csv,
            "commit,kernel,shape,state,threads,us_min,us_median,gbs,gflops,ceiling_gbs,roofline_pct,error\n");
    for (size_t i = 0; i < RDI_COUNT(shapes); i++)
        if (!options.shape || strstr(shapes[i].name, options.shape))
            bench_shape_rows(&shapes[i], &options, par);
    rdi_par_free(par);
    if (options.csv) fclose(options.csv);
    return 0;
}
