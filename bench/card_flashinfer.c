// SPDX-License-Identifier: Apache-2.0
// FlashInfer's fused add + rmsnorm beside ours: kernels that nvcc built beforehand (bench/rivals/flashinfer.sh), started as its norm.cuh starts
// them. Its quantising form has one scale for the whole tensor, given beforehand, where ours finds one for each 128 columns.
#include "card_small.h"
#include "cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_DYNAMIC_SHARED = 8, ELEMS = 8, WARP = 32, COPIES = 3 }; // elements of a thread and round

typedef struct rival {
    cuda_driver cuda;
    void *function;
    bool quantises, dependent, large;
    int64_t m, k;
    unsigned char *x, *residual, *weight, *q, *scale;
} rival;

// x and residual change places with their sum and its norm, so a chain of calls reads what the last one wrote; large: x takes turns.
static void run_rival(void *state, int64_t call) {
    rival *r = state;
    const size_t bytes = (size_t)(r->m * r->k) * 2;
    void *x = r->x + (r->large ? (size_t)(call % COPIES) * bytes : 0), *residual = r->residual,
         *weight = r->weight, *q = r->q, *scale = r->scale;
    uint32_t d = (uint32_t)r->k, stride = d;
    float bias = 0, eps = 1e-6f;
    void *plain[] = {&x, &residual, &weight, &d, &stride, &stride, &bias, &eps},
         *with_codes[] = {&x, &residual, &weight, &q, &d, &stride, &stride, &stride, &bias, &scale, &eps};
    const unsigned threads = (unsigned)(r->k / ELEMS < 1024 ? r->k / ELEMS : 1024),
                   warps = (threads + WARP - 1) / WARP;
    const unsigned shared = ((warps + 3) / 4 * 4 + d) * (unsigned)sizeof(float);
    int error = r->cuda.cuFuncSetAttribute(r->function, MOST_DYNAMIC_SHARED, (int)shared);
    if (!error)
        error = cuda_start(&r->cuda, r->function, (unsigned)r->m, (const unsigned[2]){WARP, warps}, shared, 1,
                           r->dependent, r->quantises ? with_codes : plain, card_stream);
    if (error) card_fail("card_small: FlashInfer's kernel: error %d", error);
}

// The first row of the first call against the formula in double, as a share of half a step of its output type.
static double first_row_error(const rival *r, const uint16_t *x, const uint16_t *residual,
                              const uint16_t *weight) {
    uint16_t *y = card_host((size_t)r->k * 2);
    uint8_t *q = card_host((size_t)r->k);
    double squares = 0, worst = 0;
    card_get(y, r->x, (size_t)r->k * 2);
    if (r->quantises) card_get(q, r->q, (size_t)r->k);
    for (int64_t i = 0; i < r->k; i++) squares += pow(card_bf16(x[i]) + card_bf16(residual[i]), 2);
    for (int64_t i = 0; i < r->k; i++) {
        const double want = (card_bf16(x[i]) + card_bf16(residual[i])) * card_bf16(weight[i]) /
                            sqrt(squares / (double)r->k + 1e-6),
                     got = r->quantises ? card_e4m3(q[i]) : card_bf16(y[i]),
                     bound = r->quantises ? fmax(fabs(want) * 0x1p-4, 0x1p-10) : fabs(want) * 0x1p-8 + 1e-30;
        const double error = fabs(got - want) / (bound * 1.0625);
        worst = error > worst || !(error == error) ? error : worst;
    }
    free(y), free(q);
    return worst;
}

static void load(rival *r, const char *folder, const char *name) {
    char path[512];
    void *library = NULL, *kernel = NULL;
    snprintf(path, sizeof path, "%s/%s.cubin", folder, name);
    int error = r->cuda.cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0);
    if (!error) error = r->cuda.cuLibraryEnumerateKernels(&kernel, 1, library);
    if (!error) error = r->cuda.cuKernelGetFunction(&r->function, kernel);
    if (error) card_fail("card_small: %s: error %d", path, error);
}

static void measure(rival *r, const char *name, const uint16_t *host[3]) {
    const int64_t calls = small_calls(r->m);
    const size_t bytes = (size_t)(r->m * r->k) * 2;
    card_tile(r->x, bytes * COPIES, host[0], bytes), card_tile(r->residual, bytes, host[1], bytes);
    run_rival(r, 0);
    const double error = first_row_error(r, host[0], host[1], host[2]);
    rd_graph *graph = card_record(run_rival, r, calls);
    const card_time time = card_replay(graph, calls, CARD_READY);
    rd_graph_free(graph);
    const double floor_us = (double)(r->m * r->k) * (r->quantises ? 7 : 8) / card_read_gbs * 1e-3;
    printf("%s,%s,flashinfer,%lld,%lld,%s,%lld,%.3f,%.3f,%.3f,%.1f,%.2f,\n", card_run, name, (long long)r->m,
           (long long)r->k, r->dependent ? "dependent" : "plain", (long long)calls, time.us, time.best_us,
           floor_us, 100 * floor_us / time.us, error);
    if (!(error <= 1)) card_fail("card_small: FlashInfer's %s is wrong here", name);
}

void small_flashinfer(const char *folder, int64_t m, int64_t k, bool dependent, bool plain) {
    static const char *const names[] = {"add_rmsnorm", "add_rmsnorm_quant"};
    char why[256];
    void *there[3];
    rival r = {.m = m, .k = k, .large = m >= LARGE_ROWS};
    if (!cuda_open(&r.cuda, why, sizeof why)) card_fail("card_small: %s", why);
    const uint16_t *host[] = {small_random(m * k, &there[0]), small_random(m * k, &there[1]),
                              small_random(k, &there[2])};
    const float one = 1;
    r.x = card_alloc((size_t)(m * k) * 2 * COPIES), r.residual = there[1], r.weight = there[2];
    r.q = card_alloc((size_t)(m * k)), r.scale = card_put(&one, sizeof one);
    for (int i = 0; i < 2; i++) {
        r.quantises = i == 1;
        load(&r, folder, names[i]);
        for (int kind = 0; kind < 2; kind++) {
            r.dependent = kind == 0;
            if (kind ? plain : dependent) measure(&r, names[i], host);
        }
    }
    void *const all[] = {there[0], r.x, r.residual, r.weight, r.q, r.scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) card_free(all[i]);
    for (int i = 0; i < 3; i++) free((void *)(uintptr_t)host[i]);
}
