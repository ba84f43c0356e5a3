// SPDX-License-Identifier: Apache-2.0
// On Hopper engines bring DeepGEMM, CUTLASS or FlashInfer: a layer keeps both kernels, and the number of rows of a call picks.
#include "policy/engine_share.h"

#include <string.h>

// One H200, us (docs/sm90a.md; bench/results/h200/2026-11-30-gemm-step.csv), ours at M = 32, 64 and 128 against DeepGEMM 2.6.1
// at M = 1 and 128, which bounds its M = 32 and 64 from both sides:
//     14336 x 5120    20.9  23.5  37.9     23.5  24.6
//      5120 x 6144    11.7  15.5  25.5     14.8  14.9
//     34816 x 5120    45.6  48.7  80.7     51.1  56.4
//      5120 x 17408   25.2  29.5  45.7     31.6  36.7
// Ahead on each shape up to 32 rows; up to 64 on the two large ones alone; behind on each at 128.
enum { SM90A_ROWS = 32, SM90A_LARGE_ROWS = 64 };
static const int64_t sm90a_large_elems = INT64_C(5120) * 17408;

rdi_engine_share rdi_engine_share_decide(const char *arch, int64_t n, int64_t k) {
    if (strcmp(arch, "sm_90a") != 0)
        return (rdi_engine_share){0, "engine_share rule 1: no faster kernel of an engine is known here"};
    if (n * k >= sm90a_large_elems)
        return (rdi_engine_share){SM90A_LARGE_ROWS, "engine_share rule 2: sm_90a, N * K >= 5120 * 17408"};
    return (rdi_engine_share){SM90A_ROWS, "engine_share rule 3: sm_90a, N * K < 5120 * 17408"};
}
