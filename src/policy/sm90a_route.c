// SPDX-License-Identifier: Apache-2.0
// Two estimates, of the same kind: what a call costs whatever its size, its longest run of (tile, 128 k) units at the slower of memory
// and multiprocessor, and the adding up of tiles that several multiprocessors share.
#include "policy/sm90a_route.h"

#include <math.h>
#include <string.h>

// Of what memory promises a kernel that only reads gets so much: one H200, 4376 of 4917 GB/s (bench/results/h200/).
static const double read_share = 0.89;

// Class "step" cuts (64 weight rows, 128 k) units into equal runs: microseconds of a call, cycles of a unit where memory is not the
// limit, microseconds for each run that meets in a tile. Class "chunk" has whole tiles, one a multiprocessor, in rounds: microseconds
// of a call, cycles of 128 k for each 64 rows, the share of the read rate that its copies reach, and the heights of tile it has.
// Fitted by bench/fit_sm90a_route.py to bench/results/h200/2026-11-30-sweep-fp8.csv and -w8a16.csv (one H200, tree eb9dfd6; cycles of the
// promised clock, 1980 MHz): there the rule loses 0.3 percent on average at most, where class "step" alone loses 0.3 and 0.7 (fp8, 96 and
// 128 rows) and 22 and 47 (w8a16). The step row of W8A16 reads the weights once for each 32 columns. Up to 64 rows, and for gemm_bf16
// altogether, class "step" is ahead wherever it was measured, but for 2 percent on one shape.
typedef struct model {
    const char *op;
    int32_t first, last; // row counts
    double step_us, step_cycles, part_us, chunk_us, chunk_cycles, chunk_share;
    int32_t least_tile, most_tile; // weight rows, in steps of 32
} model;
static const model models[] = {
    {"gemm_fp8block", 65, 96, 3.951, 562.6, 0.462, 5.5, 500, 0.90, 64, 192},
    {"gemm_fp8block", 97, 128, 3.847, 588.3, 0.478, 4.5, 520, 1.00, 64, 192},
    {"gemm_fp8block_w8a16", 65, 96, 10.019, 1840.8, 1.691, 3.0, 1080, 0.60, 128, 128},
    {"gemm_fp8block_w8a16", 97, 128, 12.589, 2449.4, 1.545, 3.0, 1100, 0.60, 128, 128},
};
enum { UNIT_ROWS = 64, UNIT_K = 128, TILE_STEP = 32, WORTH_PERCENT = 3 }; // chunk must be so much ahead

static const model *model_of(const char *op, int64_t m) {
    for (size_t i = 0; i < RDI_COUNT(models); i++)
        if (!strcmp(models[i].op, op) && m >= models[i].first && m <= models[i].last) return &models[i];
    return NULL;
}

// Bytes of `rows` weight rows by 128 k (one byte each), by so many multiprocessors at once, at a share of the read rate.
static double memory_us(const rdi_sm90a_question *q, double rows, double multiprocessors, double share) {
    return rows * UNIT_K * multiprocessors / (share * read_share * q->rates.memory_gbs * 1e3);
}

static double step_us(const model *at, const rdi_sm90a_question *q) {
    const double k_blocks = (double)rdi_ceil_div(q->k, UNIT_K),
                 run = (double)rdi_ceil_div(q->n, UNIT_ROWS) * k_blocks / q->multiprocessors;
    const double unit =
        fmax(memory_us(q, UNIT_ROWS, q->multiprocessors, 1), at->step_cycles / q->rates.clock_mhz);
    return at->step_us + run * unit + k_blocks / run * at->part_us;
}

static double chunk_us(const model *at, const rdi_sm90a_question *q) {
    const double k_blocks = (double)rdi_ceil_div(q->k, UNIT_K);
    double best = INFINITY;
    for (int64_t rows = at->least_tile; rows <= at->most_tile; rows += TILE_STEP) {
        const int64_t tiles = rdi_ceil_div(q->n, rows), rounds = rdi_ceil_div(tiles, q->multiprocessors);
        const double busy = (double)rdi_min(tiles, q->multiprocessors),
                     block = fmax(memory_us(q, (double)rows, busy, at->chunk_share),
                                  at->chunk_cycles * (double)rows / UNIT_ROWS / q->rates.clock_mhz);
        best = fmin(best, at->chunk_us + (double)rounds * k_blocks * block);
    }
    return best;
}

rdi_sm90a_route rdi_sm90a_route_decide(const rdi_sm90a_question *q) {
    if (q->m > RDI_SM90A_STEP_ROWS)
        return (rdi_sm90a_route){.chunk = true, .rule = "sm90a_route rule 1: more than 128 rows"};
    const model *at = model_of(q->op, q->m);
    if (!at || q->multiprocessors < 1 || q->n < 1 || q->k < 1 || q->rates.clock_mhz < 1 ||
        !(q->rates.memory_gbs > 0))
        return (rdi_sm90a_route){.rule = "sm90a_route rule 2: no estimate, a step's rows"};
    rdi_sm90a_route route = {.step_us = step_us(at, q), .chunk_us = chunk_us(at, q)};
    route.chunk = route.chunk_us * (100 + WORTH_PERCENT) < route.step_us * 100;
    route.rule = route.chunk ? "sm90a_route rule 3: whole tiles fill their rounds and save the merges"
                             : "sm90a_route rule 4: equal runs of all multiprocessors are as fast";
    return route;
}
