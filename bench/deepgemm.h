// SPDX-License-Identifier: Apache-2.0
// DeepGEMM as a rival of the block-FP8 GEMM: kernels that its own host code chose and nvcc built beforehand (bench/rivals/deepgemm.sh),
// started as its runtime starts them. No part of the library.
#ifndef BENCH_DEEPGEMM_H
#define BENCH_DEEPGEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct deepgemm deepgemm;
typedef struct deepgemm_gemm { // a_scale: [k/128][m up to a multiple of 4]; w_scale: [n/128, k/128]
    int64_t m, n, k;
    void *a, *a_scale, *w_scale;
} deepgemm_gemm;

// NULL with the reason in why: no such folder, or no driver.
deepgemm *deepgemm_open(const char *folder, char *why, size_t why_bytes);
void deepgemm_close(deepgemm *dg); // NULL is nothing
// Prepares the problem; false with the reason in why when the folder has no kernel for it.
bool deepgemm_plan(deepgemm *dg, const deepgemm_gemm *gemm, char *why, size_t why_bytes);
// 0 = started. dependent: programmatic dependent launch (its set_pdl).
int deepgemm_run(deepgemm *dg, void *w, void *c, void *stream, bool dependent);

#endif // BENCH_DEEPGEMM_H
