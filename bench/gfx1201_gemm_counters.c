// SPDX-License-Identifier: Apache-2.0
// Counters of the gfx1201 GEMM rows, executed in the simulator with its checks on: one CSV line a case. Each result is compared
// with the formula in double first; a wrong one ends the run.
//
//   gfx1201_gemm_counters LIBRARY > results.csv                                    the rows of the registry, decode and prefill
//   gfx1201_gemm_counters LIBRARY OBJECT SYMBOL ROWTILES WEIGHTTILES SLICES N K M  one kernel of class step from a file
//
// LIBRARY is libamdhip64_gfx12sim.so. The second form is for experiments: kernels made of gfx1201_step.inc with other tiles.
#include "gfx12sim_hip.h"

#include "backend/code_objects.h"
#include "base/convert.h"
#include "kernels/gemm_fp8block/gfx1201_geometry.h"
#include "kernels/gemm_fp8block/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 64, SAMPLES = 24 };

// ---- data -----------------------------------------------------------------------------------------------------------------
static uint64_t random_state = 0x9e3779b97f4a7c15u;
static uint64_t random_next(void) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

typedef struct operand {
    uint8_t *host;
    void *card;
    size_t bytes;
} operand;

// mask: bits that no byte of every eight may have, so that the codes stay finite.
static operand operand_new(size_t bytes, uint64_t mask) {
    operand o = {.host = malloc(bytes + 8), .bytes = bytes};
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = random_next() & ~mask;
        memcpy(o.host + i, &word, 8);
    }
    need(hip.malloc_(&o.card, bytes), "hipMalloc");
    return o;
}
static operand scales_new(size_t count, float by) {
    operand o = operand_new(count * 4, 0);
    for (size_t i = 0; i < count; i++) ((float *)o.host)[i] = by * (1 + (float)(random_next() % 100) / 100);
    return o;
}
static void operand_free(operand *o) {
    need(hip.free_(o->card), "hipFree");
    free(o->host);
}

typedef struct problem {
    operand a, w, a_scale, w_scale, c;
    rdi_gemm_args host, card;
} problem;

static const uint64_t FINITE_E4M3 = 0x4040404040404040u, FINITE_16 = 0x4000400040004000u;

static problem problem_new(int64_t m, int64_t n, int64_t k, rd_dtype a, rd_dtype w,
                           rdi_weight_layout layout) {
    int64_t kb = rdi_ceil_div(k, 128), nb = rdi_ceil_div(n, 128);
    size_t a_bytes = rd_dtype_bytes(a), w_bytes = rd_dtype_bytes(w);
    problem p = {.a = operand_new((size_t)(m * k) * a_bytes, a_bytes == 1 ? FINITE_E4M3 : FINITE_16),
                 .w = operand_new((size_t)(n * k) * w_bytes, w_bytes == 1 ? FINITE_E4M3 : FINITE_16),
                 .a_scale = scales_new((size_t)(m * kb), 0.01f),
                 .w_scale = scales_new((size_t)(nb * kb), 0.01f),
                 .c = operand_new((size_t)(m * n) * 2, 0)};
    p.host = (rdi_gemm_args){.m = m,
                             .n = n,
                             .k = k,
                             .a_stride = k,
                             .w_stride = k,
                             .c_stride = n,
                             .a_scale_stride_m = kb,
                             .a_scale_stride_k = 1,
                             .w_scale_stride_n = kb,
                             .w_scale_stride_k = 1,
                             .a_dtype = a,
                             .w_dtype = w,
                             .w_scale_dtype = RD_DTYPE_F32,
                             .c_dtype = RD_DTYPE_BF16,
                             .layout = layout};
    p.card = p.host;
    p.host.a = p.a.host, p.host.w = p.w.host, p.host.c = p.c.host;
    p.host.a_scale = (float *)p.a_scale.host, p.host.w_scale = p.w_scale.host;
    p.card.a = p.a.card, p.card.w = p.w.card, p.card.c = p.c.card;
    p.card.a_scale = p.a_scale.card, p.card.w_scale = p.w_scale.card;
    const operand *all[] = {&p.a, &p.w, &p.a_scale, &p.w_scale, &p.c};
    for (size_t i = 0; i < RDI_COUNT(all); i++)
        need(hip.copy(all[i]->card, all[i]->host, all[i]->bytes, TO_CARD), "hipMemcpy");
    return p;
}
static void problem_free(problem *p) {
    operand *all[] = {&p->a, &p->w, &p->a_scale, &p->w_scale, &p->c};
    for (size_t i = 0; i < RDI_COUNT(all); i++) operand_free(all[i]);
}

// Sampled elements against the formula; the bound is that of tests/test_gfx1201_gemm.c.
static void verify(problem *p, const char *what) {
    const rdi_gemm_args *g = &p->host;
    need(hip.copy(p->c.host, p->c.card, p->c.bytes, TO_HOST), "hipMemcpy");
    for (int sample = 0; sample < SAMPLES; sample++) {
        int64_t m = (int64_t)(random_next() % (uint64_t)g->m), n = (int64_t)(random_next() % (uint64_t)g->n);
        double sum = 0, magnitude = 0, got = (double)rdi_load_f32(p->c.host, g->c_dtype, m * g->n + n);
        for (int64_t k = 0; k < g->k; k++) {
            double term = (double)rdi_load_f32(g->a, g->a_dtype, m * g->k + k) *
                          (double)rdi_load_f32(g->w, g->w_dtype, rdi_weight_offset(g, n, k));
            if (g->w_dtype == RD_DTYPE_E4M3)
                term *= (double)((const float *)g->w_scale)[n / 128 * g->w_scale_stride_n + k / 128];
            if (g->a_dtype == RD_DTYPE_E4M3) term *= (double)g->a_scale[m * g->a_scale_stride_m + k / 128];
            sum += term, magnitude += fabs(term);
        }
        double terms = g->w_dtype == RD_DTYPE_E4M3 ? 140 + (double)g->k / 128 : (double)g->k + 10;
        if (!(fabs(got - sum) <= terms * 0x1p-24 * magnitude + 0x1p-8 * fabs(sum) * 1.01))
            fprintf(stderr, "%s: C[%d][%d] = %g, needs %g\n", what, (int)m, (int)n, got, sum), exit(1);
    }
}

// ---- one case ---------------------------------------------------------------------------------------------------------------
static void start(const rdi_launch *l, const void *image) {
    void *module, *function;
    size_t bytes = l->args_bytes;
    void *extra[] = {(void *)(uintptr_t)1, (void *)(uintptr_t)l->args, (void *)(uintptr_t)2, &bytes,
                     (void *)(uintptr_t)3}; // HIP_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END
    need(hip.load(&module, image), "hipModuleLoadData");
    need(hip.function(&function, module, l->kernel), l->kernel);
    hip.reset(0);
    need(hip.launch(function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                    l->shared_bytes, NULL, NULL, extra),
         l->kernel);
    need(hip.sync(), l->kernel);
}

static const char *const counters[] = {"groups",
                                       "waves",
                                       "instructions",
                                       "wmma",
                                       "valu",
                                       "salu",
                                       "smem",
                                       "vmem_load",
                                       "vmem_store",
                                       "lds",
                                       "wait",
                                       "hint",
                                       "load_bytes",
                                       "load_lines",
                                       "store_bytes",
                                       "lds_cycles",
                                       "lds_conflict_cycles",
                                       "barriers",
                                       "wait_loadcnt",
                                       "blocking_loadcnt"};

static void print_titles(void) {
    printf("row,kernel,m,n,k,instructions_per_kib");
    for (size_t i = 0; i < RDI_COUNT(counters); i++) printf(",%s", counters[i]);
    printf(",weight_reads,dram_bytes,dram_of_minimum,in_flight_bytes_per_cu\n");
}

// Waves that a compute unit, of two SIMDs, holds at once; all that the launch has where the kernel is not in the build.
static double waves_resident(const rdi_launch *l) {
    double waves = hip.counter(0, "waves") / UNITS;
    for (int32_t i = 0; i < rdi_code_object_count; i++)
        for (int32_t j = 0; j < rdi_code_objects[i].kernel_count; j++)
            if (!strcmp(rdi_code_objects[i].kernels[j].symbol, l->kernel))
                waves = fmin(waves, 2 * rdi_code_objects[i].kernels[j].waves_per_simd);
    return waves;
}

// tiles: of class step, else NULL. What a wave of class step asks for of the activations in one k step is known, so the rest of
// load_bytes is weights: weight_reads = 1 says that each byte of W is asked for once. A, its scales and C fit the second-level
// cache many times over, so they come from memory once. in_flight: weights that a compute unit's waves ask for before any waits.
static void print_case(const char *row, const rdi_launch *l, const problem *p, const rdi_step_tiles *tiles) {
    const rdi_gemm_args *g = &p->host;
    bool scaled = g->w_dtype == RD_DTYPE_E4M3, scaled_a = g->a_dtype == RD_DTYPE_E4M3;
    printf("%s,%s,%lld,%lld,%lld,%.2f", row, l->kernel + 4, (long long)g->m, (long long)g->n, (long long)g->k,
           hip.counter(0, "instructions") / ((double)p->w.bytes / 1024));
    for (size_t i = 0; i < RDI_COUNT(counters); i++) printf(",%.0f", hip.counter(0, counters[i]));
    if (!tiles) {
        printf(",,,,\n");
        return;
    }
    double steps = (double)p->w.bytes / ((double)g->n * 128) * hip.counter(0, "groups");
    double a_asked = steps * tiles->m_tiles * (scaled_a ? 2048 + 128 : scaled ? 4096 : 2048);
    double once = (double)p->a.bytes + (scaled_a ? (double)p->a_scale.bytes : 0) +
                  (scaled ? (double)p->w_scale.bytes : 0) + (double)p->c.bytes;
    double reads = (hip.counter(0, "load_bytes") - a_asked) / (double)p->w.bytes, w = (double)p->w.bytes;
    printf(",%.4f,%.0f,%.4f,%.0f\n", reads, reads * w + once, (reads * w + once) / (w + once),
           waves_resident(l) * tiles->n_tiles * 2048);
}

static void run_row(const char *name, int64_t m, int64_t n, int64_t k, rd_dtype a, rd_dtype w,
                    rdi_weight_layout layout) {
    const rd_device_info device = {.compute_units = UNITS};
    for (int32_t i = 0; i < rdi_row_count; i++) {
        if (strcmp(rdi_rows[i].info.name, name)) continue;
        problem p = problem_new(m, n, k, a, w, layout);
        rdi_launch launch;
        rdi_step_tiles tiles = rdi_gemm_step_tiles(m, n, UNITS, a != w);
        rdi_rows[i].geometry(&p.card, NULL, &device, &launch);
        start(&launch, rdi_code_object_find(rdi_rows[i].image)->begin);
        print_case(name, &launch, &p, strcmp(rdi_rows[i].info.order, "step") ? NULL : &tiles);
        verify(&p, name);
        problem_free(&p);
        fflush(stdout);
    }
}

static void run_registry(void) {
    static const int64_t shapes[][2] = {{14336, 5120}, {5120, 6144}, {34816, 5120}, {5120, 17408}},
                         rows[] = {1, 8, 16, 32, 128};
    print_titles();
    for (size_t s = 0; s < RDI_COUNT(shapes); s++)
        for (size_t m = 0; m < RDI_COUNT(rows); m++) {
            int64_t n = shapes[s][0], k = shapes[s][1];
            run_row("gemm_fp8block_step_preshuffle_gfx1201", rows[m], n, k, RD_DTYPE_E4M3, RD_DTYPE_E4M3,
                    RDI_LAYOUT_SHUFFLE16);
            run_row("gemm_fp8block_step_gfx1201", rows[m], n, k, RD_DTYPE_E4M3, RD_DTYPE_E4M3,
                    RDI_LAYOUT_ROW);
            if (m < 3)
                run_row("gemm_fp8block_w8a16_step_gfx1201", rows[m], n, k, RD_DTYPE_BF16, RD_DTYPE_E4M3,
                        RDI_LAYOUT_SHUFFLE16);
        }
    // The rivals' shape (bench/rivals/triton_cases.py), a router, a chunk of a prefill.
    for (int64_t m = 1; m <= 16; m = m == 1 ? 8 : m + 8) {
        run_row("gemm_fp8block_step_preshuffle_gfx1201", m, 1024, 4096, RD_DTYPE_E4M3, RD_DTYPE_E4M3,
                RDI_LAYOUT_SHUFFLE16);
        run_row("gemm_bf16_step_gfx1201", m, 256, 2048, RD_DTYPE_BF16, RD_DTYPE_BF16, RDI_LAYOUT_ROW);
        run_row("gemm_bf16_step_gfx1201", m, 32768, 2048, RD_DTYPE_BF16, RD_DTYPE_BF16, RDI_LAYOUT_ROW);
    }
    run_row("gemm_fp8block_chunk_preshuffle_gfx1201", 512, 14336, 5120, RD_DTYPE_E4M3, RD_DTYPE_E4M3,
            RDI_LAYOUT_SHUFFLE16);
    run_row("gemm_fp8block_chunk_gfx1201", 512, 14336, 5120, RD_DTYPE_E4M3, RD_DTYPE_E4M3, RDI_LAYOUT_ROW);
    run_row("gemm_fp8block_chunk_preshuffle_gfx1201", 4096, 256, 512, RD_DTYPE_E4M3, RD_DTYPE_E4M3,
            RDI_LAYOUT_SHUFFLE16);
    run_row("gemm_bf16_chunk_gfx1201", 512, 5120, 2048, RD_DTYPE_BF16, RD_DTYPE_BF16, RDI_LAYOUT_ROW);
}

static void run_experiment(char **argv) {
    static char image[1 << 22];
    FILE *file = fopen(argv[0], "rb");
    if (!file || !fread(image, 1, sizeof image, file))
        fprintf(stderr, "%s: cannot be read\n", argv[0]), exit(1);
    fclose(file);
    rdi_step_tiles tiles = {atoi(argv[2]), atoi(argv[3]), atoi(argv[4])};
    int64_t n = atoll(argv[5]), k = atoll(argv[6]), m = atoll(argv[7]);
    problem p = problem_new(m, n, k, RD_DTYPE_E4M3, RD_DTYPE_E4M3, RDI_LAYOUT_SHUFFLE16);
    const rdk_gemm_gfx1201_args args = rdi_gemm_gfx1201_args(&p.card);
    const uint32_t grid[3] = {(uint32_t)rdi_ceil_div(m, 16 * tiles.m_tiles),
                              (uint32_t)rdi_ceil_div(n, 16 * tiles.n_tiles), 1};
    rdi_launch launch;
    rdi_launch_fill(&launch, argv[1], grid, 32 * (uint32_t)tiles.slices, &args, sizeof args);
    start(&launch, image);
    print_case("experiment", &launch, &p, &tiles);
    verify(&p, argv[1]);
    problem_free(&p);
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 10) {
        fprintf(stderr, "usage: %s LIBRARY [OBJECT SYMBOL ROWTILES WEIGHTTILES SLICES N K M]\n", argv[0]);
        return 2;
    }
    open_library(argv[1]);
    if (argc == 2)
        run_registry();
    else
        run_experiment(argv + 2);
    return 0;
}
