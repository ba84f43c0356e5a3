// SPDX-License-Identifier: Apache-2.0
// On Hopper engines bring DeepGEMM, CUTLASS or FlashInfer: a layer keeps both kernels, and the number of rows of a call picks.
#include "policy/engine_share.h"

#include <string.h>

// One H200, us, in one run (bench/results/h200/2026-11-30-card-gemm.csv, tree 4028177): ours at M = 16, 32, 64 and 128, then DeepGEMM 2.6.1:
//     14336 x 5120    19.5  22.2  21.7  25.1     21.7  21.7  21.6  23.4
//      5120 x 6144     9.9  12.0  11.8  15.0     12.1  12.4  11.6  13.5
//     34816 x 5120    44.3  48.2  46.5  55.3     47.7  48.1  48.5  55.3
//      5120 x 17408   22.8  25.5  25.1  32.9     30.4  29.3  27.1  34.3
// Ahead up to 16 rows on each; at 32 and 64 from 3 percent behind to 15 ahead, their sums 3 percent ahead; at 128 behind on two.
// Below the smallest of them nothing was measured beside an engine: half as many.
enum { SM90A_ROWS = 64, SM90A_UNMEASURED_ROWS = 32 };
static const int64_t sm90a_measured_elems = INT64_C(5120) * 6144;

rdi_engine_share rdi_engine_share_decide(const char *arch, int64_t n, int64_t k) {
    if (strcmp(arch, "sm_90a") != 0)
        return (rdi_engine_share){0, "engine_share rule 1: no faster kernel of an engine is known here"};
    if (n * k >= sm90a_measured_elems)
        return (rdi_engine_share){SM90A_ROWS, "engine_share rule 2: sm_90a, N * K >= 5120 * 6144"};
    return (rdi_engine_share){SM90A_UNMEASURED_ROWS, "engine_share rule 3: sm_90a, N * K < 5120 * 6144"};
}
