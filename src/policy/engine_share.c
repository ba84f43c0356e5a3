// SPDX-License-Identifier: Apache-2.0
// On Hopper engines bring DeepGEMM, CUTLASS or FlashInfer: a layer keeps both kernels, and the number of rows of a call picks.
#include "policy/engine_share.h"

#include <string.h>

// One H200, us: ours at M = 32, 64 and 128 (bench/results/h200/2026-11-30-card-gemm-pairs.csv) against DeepGEMM 2.6.1 at 64 and
// 128 on the same kind of card, not in the same run (docs/sm90a.md):
//     14336 x 5120    22.1  22.2  28.6     23.9  24.6
//      5120 x 6144    11.9  12.3  16.5     12.5  14.9
//     34816 x 5120    48.7  48.8  59.6     50.5  56.4
//      5120 x 17408   25.5  25.4  34.4     27.8  36.7
// Ahead on each shape up to 64 rows, behind on three of the four at 128. Below the smallest of them nothing was measured beside an
// engine: half as many.
enum { SM90A_ROWS = 64, SM90A_UNMEASURED_ROWS = 32 };
static const int64_t sm90a_measured_elems = INT64_C(5120) * 6144;

rdi_engine_share rdi_engine_share_decide(const char *arch, int64_t n, int64_t k) {
    if (strcmp(arch, "sm_90a") != 0)
        return (rdi_engine_share){0, "engine_share rule 1: no faster kernel of an engine is known here"};
    if (n * k >= sm90a_measured_elems)
        return (rdi_engine_share){SM90A_ROWS, "engine_share rule 2: sm_90a, N * K >= 5120 * 6144"};
    return (rdi_engine_share){SM90A_UNMEASURED_ROWS, "engine_share rule 3: sm_90a, N * K < 5120 * 6144"};
}
