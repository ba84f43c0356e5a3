// SPDX-License-Identifier: Apache-2.0
// Counters of the gfx1201 attention kernels, executed in the simulator: one CSV line a case, both launches of decode summed.
// The first query row of each case is compared with the formula in double first; a wrong one ends the run.
//
//   gfx1201_attn_counters LIBRARY rows             the rows of the registry, decode of widths 1, 4 and 9, and prefill
//   gfx1201_attn_counters LIBRARY heights          head 256 at widths 1..9 and head 512, tiles of 16, 32 and 64 rows
//   gfx1201_attn_counters LIBRARY splits [OBJECT]  16 points of (keys, programs) under the partition of this build
//
// LIBRARY is libamdhip64_gfx12sim.so. For other partitions replace kernels/attn/partition.h, build this and the object anew.
#include "gfx12sim_hip.h"

#include "backend/code_objects.h"
#include "base/convert.h"
#include "kernels/attn/args.h"
#include "kernels/attn/gfx1201_args.h"
#include "kernels/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 };

static const unsigned char *object_override;
static void *card_alloc(size_t bytes) {
    void *data = NULL;
    need(hip.malloc_(&data, bytes), "hipMalloc");
    return data;
}
static void *card_put(const void *host, size_t bytes) {
    void *data = card_alloc(bytes);
    need(hip.copy(data, host, bytes, TO_CARD), "hipMemcpy");
    return data;
}

static uint64_t random_state = 0x9e3779b97f4a7c15u;
static float random_normal(void) { // sum of four bytes
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    uint64_t r = random_state;
    return (float)((int)(r & 255) + (int)(r >> 8 & 255) + (int)(r >> 16 & 255) + (int)(r >> 24 & 255) - 510) /
           148;
}

// Some sequences that read the same keys; one KV head.
typedef struct shape {
    int seqs, width, gqa, head, keys;
    rd_dtype kv;
} shape;
typedef struct problem {
    shape of;
    uint16_t *q;
    void *k, *v, *card[8]; // q, k, v, table, lens, starts, out, ws
    rdi_attn_args args;
} problem;

static void problem_new(problem *p, const shape *of) {
    size_t elems = (size_t)of->keys * (size_t)of->head, kv_bytes = rd_dtype_bytes(of->kv);
    size_t tokens = (size_t)(of->seqs * of->width), q_elems = tokens * (size_t)(of->gqa * of->head);
    int blocks = (of->keys + BLOCK - 1) / BLOCK;
    *p = (problem){
        .of = *of, .q = malloc(q_elems * 2), .k = malloc(elems * kv_bytes), .v = malloc(elems * kv_bytes)};
    int32_t *table = malloc((size_t)(of->seqs * blocks) * 4), *lens = malloc((size_t)of->seqs * 4),
            *starts = malloc((size_t)(of->seqs + 1) * 4);
    for (size_t i = 0; i < q_elems; i++)
        rdi_store_f32(p->q, RD_DTYPE_BF16, (int64_t)i, 1.5f * random_normal());
    for (size_t i = 0; i < elems; i++) {
        rdi_store_f32(p->k, of->kv, (int64_t)i, random_normal());
        rdi_store_f32(p->v, of->kv, (int64_t)i, random_normal());
    }
    for (int i = 0; i < of->seqs * blocks; i++) table[i] = i % blocks;
    for (int i = 0; i <= of->seqs; i++) starts[i] = i * of->width;
    for (int i = 0; i < of->seqs; i++) lens[i] = of->keys;
    size_t padded = (size_t)blocks * BLOCK * (size_t)of->head * kv_bytes;
    p->k = realloc(p->k, padded), p->v = realloc(p->v, padded);
    p->card[0] = card_put(p->q, q_elems * 2), p->card[1] = card_put(p->k, padded),
    p->card[2] = card_put(p->v, padded);
    p->card[3] = card_put(table, (size_t)(of->seqs * blocks) * 4),
    p->card[4] = card_put(lens, (size_t)of->seqs * 4);
    p->card[5] = card_put(starts, (size_t)(of->seqs + 1) * 4), p->card[6] = card_alloc(q_elems * 4);
    free(table), free(lens), free(starts);
    p->args = (rdi_attn_args){.seqs = of->seqs,
                              .tokens = (int64_t)tokens,
                              .q_heads = of->gqa,
                              .kv_heads = 1,
                              .head_dim = of->head,
                              .block_tokens = BLOCK,
                              .max_blocks = blocks,
                              .blocks = blocks,
                              .q = p->card[0],
                              .q_stride_token = of->gqa * of->head,
                              .q_stride_head = of->head,
                              .k_cache = p->card[1],
                              .v_cache = p->card[2],
                              .k_interleave = 1,
                              .k_stride_block = BLOCK * of->head,
                              .k_stride_token = of->head,
                              .k_stride_head = of->head,
                              .k_stride_dim = 1,
                              .v_stride_block = BLOCK * of->head,
                              .v_stride_token = of->head,
                              .v_stride_head = of->head,
                              .v_stride_dim = 1,
                              .block_table = p->card[3],
                              .block_table_stride = blocks,
                              .kv_lens = p->card[4],
                              .q_starts = p->card[5],
                              .out = p->card[6],
                              .out_stride_token = of->gqa * of->head,
                              .out_stride_head = of->head,
                              .q_dtype = RD_DTYPE_BF16,
                              .kv_dtype = of->kv,
                              .out_dtype = RD_DTYPE_F32,
                              .scale = (float)(1 / sqrt((double)of->head)),
                              .max_q_len = of->width,
                              .max_kv_len = of->keys};
}
static void problem_free(problem *p) {
    for (int i = 0; i < 8; i++)
        if (p->card[i]) need(hip.free_(p->card[i]), "hipFree");
    free(p->q), free(p->k), free(p->v);
}

// Largest error of query row 0, over the magnitude of its sums.
static double error_of(const problem *p) {
    int keys = p->of.keys - p->of.width + 1, head = p->of.head;
    double *x = malloc((size_t)keys * sizeof *x), top = -INFINITY, total = 0, worst = 0;
    float out[512];
    need(hip.copy(out, p->card[6], (size_t)head * 4, TO_HOST), "hipMemcpy");
    for (int j = 0; j < keys; j++) {
        x[j] = 0;
        for (int d = 0; d < head; d++)
            x[j] += (double)rdi_load_f32(p->q, RD_DTYPE_BF16, d) *
                    (double)rdi_load_f32(p->k, p->of.kv, (int64_t)j * head + d);
        x[j] *= (double)p->args.scale;
        top = fmax(top, x[j]);
    }
    for (int j = 0; j < keys; j++) total += x[j] = exp(x[j] - top);
    for (int d = 0; d < head; d++) {
        double sum = 0, size = 0;
        for (int j = 0; j < keys; j++) {
            double v = (double)rdi_load_f32(p->v, p->of.kv, (int64_t)j * head + d);
            sum += x[j] * v, size += x[j] * fabs(v);
        }
        worst = fmax(worst, fabs((double)out[d] - sum / total) / (size / total));
    }
    free(x);
    return worst;
}

static const char *const counted[] = {
    "instructions", "wmma",   "valu",       "salu",       "vmem_load",           "lds",
    "hint",         "wait",   "load_bytes", "load_lines", "lds_conflict_cycles", "store_bytes",
    "barriers",     "groups", "waves"};

static void launch(const char *image, const rdi_launch *l) {
    static void *module;
    static const char *loaded;
    void *function = NULL;
    size_t bytes = l->args_bytes;
    if (loaded != image)
        need(hip.load(&module, object_override ? object_override : rdi_code_object_find(image)->begin),
             image);
    loaded = image;
    need(hip.function(&function, module, l->kernel), l->kernel);
    void *extra[] = {(void *)1, (void *)(uintptr_t)l->args, (void *)2, &bytes, (void *)3};
    need(hip.launch(function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], 0,
                    NULL, NULL, extra),
         l->kernel);
}

static const rdi_row *row_named(const char *name) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rdi_rows[i].info.name, name)) return &rdi_rows[i];
    fprintf(stderr, "no row %s\n", name);
    exit(1);
}

// Runs the row, with tiles of 16 << height rows when height >= 0, and prints its line; returns its instructions.
static double run(const char *name, const shape *of, int height, const char *note) {
    const rdi_row *row = row_named(name);
    problem p;
    problem_new(&p, of);
    if (row->ws_bytes) p.card[7] = card_alloc(row->ws_bytes(&p.args, 64));
    rdi_launch out[RDI_MAX_LAUNCHES];
    char kernel[80];
    const rd_device_info device = {.compute_units = 64};
    int32_t count = row->geometry(&p.args, p.card[7], &device, out);
    if (count < 1) fprintf(stderr, "%s\n", rd_error_text()), exit(1);
    if (height >= 0) { // another kernel of the row: suffix _r16, _r32, _r64, and the tiles that it needs
        snprintf(kernel, sizeof kernel, "%s", out[0].kernel);
        snprintf(strrchr(kernel, '_'), 5, "_r%d", 16 << height);
        out[0].kernel = kernel;
        const int split[] = {1, RDK_SPLIT_256_R32, RDK_SPLIT_256_R64};
        out[0].block[0] = 32 * (of->head == 256 ? RDK_WAVES_256 * split[height] : RDK_WAVES_512);
        out[0].grid[0] = (uint32_t)((of->seqs * of->width * of->gqa >> (4 + height)) + of->seqs);
    }
    hip.reset(0);
    for (int32_t i = 0; i < count; i++) launch(row->image, &out[i]);
    need(hip.sync(), name);
    double error = error_of(&p), instructions = hip.counter(0, "instructions");
    if (!(error < 4e-3)) fprintf(stderr, "%s: error %g of the magnitude\n", name, error), exit(1);
    double tiles = (double)of->seqs * of->keys / 16;
    printf("%s,%s,%s,%d,%d,%d,%d,%d,%.2e,%.1f", note, name, out[0].kernel, of->head, of->gqa, of->width,
           of->keys, of->seqs, error, instructions / tiles);
    for (size_t i = 0; i < RDI_COUNT(counted); i++) printf(",%.0f", hip.counter(0, counted[i]));
    printf("\n");
    fflush(stdout);
    problem_free(&p);
    return instructions;
}

static void rows(void) {
    static const int heads[] = {64, 128, 256, 512}, widths[] = {1, 4, 9}; // 6, 24 and 54 rows
    for (int kv = 0; kv < 2; kv++) {
        rd_dtype dtype = kv ? RD_DTYPE_BF16 : RD_DTYPE_E4M3;
        const char *decode = kv ? "attn_decode_bf16kv_gfx1201" : "attn_decode_fp8kv_gfx1201";
        for (int h = 0; h < 4; h++)
            for (int w = 0; w < 3; w++) {
                run(decode, &(shape){1, widths[w], 6, heads[h], 4096, dtype}, -1, "4096 keys");
                run(decode, &(shape){1, widths[w], 6, heads[h], 131072, dtype}, -1, "131072 keys");
                // Two lengths within one chunk: their difference is the loop alone, 16-key tile by tile.
                double less =
                    run(decode, &(shape){1, widths[w], 6, heads[h], 33792, dtype}, -1, "33792 keys");
                double more =
                    run(decode, &(shape){1, widths[w], 6, heads[h], 34816, dtype}, -1, "34816 keys");
                printf("loop,%s,,%d,6,%d,1024,1,,%.1f\n", decode, heads[h], widths[w], (more - less) / 64);
            }
        for (int h = 0; h < 4; h++)
            run(kv ? "attn_prefill_bf16kv_gfx1201" : "attn_prefill_fp8kv_gfx1201",
                &(shape){1, 256, 6, heads[h], 1024, dtype}, -1, "prefill");
    }
}

static void heights(void) {
    for (int width = 1; width <= 9; width++)
        for (int height = 0; height < 3; height++)
            run("attn_decode_fp8kv_gfx1201", &(shape){1, width, 6, 256, 4096, RD_DTYPE_E4M3}, height,
                "width");
    for (int rows = 32; rows <= 64; rows *= 2)
        for (int height = 0; height < 2; height++)
            run("attn_decode_fp8kv_gfx1201", &(shape){1, rows / 8, 8, 512, 4096, RD_DTYPE_E4M3}, height,
                "head 512");
    for (int rows = 32; rows <= 64; rows *= 2)
        for (int height = 0; height < 3; height++)
            run("attn_decode_fp8kv_gfx1201", &(shape){1, rows / 8, 8, 256, 4096, RD_DTYPE_E4M3}, height,
                "head 256");
}

static void splits(void) {
    static const int keys[] = {1024, 4096, 16384, 65536}, programs[] = {1, 2, 4, 8};
    for (int k = 0; k < 4; k++)
        for (int p = 0; p < 4; p++) {
            char note[40];
            snprintf(note, sizeof note, "%lld chunks", (long long)rdi_attn_chunk_count(keys[k]));
            run("attn_decode_fp8kv_gfx1201", &(shape){programs[p], 1, 6, 256, keys[k], RD_DTYPE_E4M3}, -1,
                note);
        }
}

static const unsigned char *read_object(const char *path) {
    FILE *file = fopen(path, "rb");
    unsigned char *data = malloc(1 << 23);
    if (!file || !data || !fread(data, 1, 1 << 23, file))
        fprintf(stderr, "%s: cannot be read\n", path), exit(1);
    fclose(file);
    return data;
}

int main(int count, char **words) {
    if (count < 3)
        return fprintf(stderr, "usage: %s LIBRARY rows | heights | splits [OBJECT]\n", words[0]), 2;
    open_library(words[1]);
    if (count > 3) object_override = read_object(words[3]);
    printf("case,row,kernel,head_dim,gqa,width,keys,seqs,error_of_magnitude,instructions_per_16_keys");
    for (size_t i = 0; i < RDI_COUNT(counted); i++) printf(",%s", counted[i]);
    printf("\n");
    if (!strcmp(words[2], "rows")) rows();
    if (!strcmp(words[2], "heights")) heights();
    if (!strcmp(words[2], "splits")) splits();
    return 0;
}
