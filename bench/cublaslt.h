// SPDX-License-Identifier: Apache-2.0
// cuBLASLt as a rival of the block-FP8 and bf16 GEMMs on Hopper: loaded at run time, its types and numbers declared anew from NVIDIA's cuBLASLt
// reference (CUDA 12.9 and later, which brought scales of 1x128 and 128x128 blocks). No part of the library.
#ifndef BENCH_CUBLASLT_H
#define BENCH_CUBLASLT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUBLASLT_CHOICES = 3 }; // of its heuristics that are timed
typedef struct cublaslt cublaslt;
typedef struct
    cublaslt_gemm { // C[m,n] bf16 = (A As) (W Ws)^T; As [k/128, m] (m contiguous), Ws [n/128, k/128]
    int64_t m, n, k;
    const void *a_scale, *w_scale;
    void *ws;
    size_t ws_bytes;
    bool bf16; // A and W are bf16, without scales
} cublaslt_gemm;

// NULL with the reason in why: no library, or an older one. path: NULL = where the system keeps it.
cublaslt *cublaslt_open(const char *path, char *why, size_t why_bytes);
// Prepares the problem; how many of the library's choices there are, 0 with the reason in why.
int cublaslt_plan(cublaslt *lt, const cublaslt_gemm *gemm, char *why, size_t why_bytes);
int cublaslt_run(cublaslt *lt, int choice, const void *a, const void *w, void *c,
                 void *stream); // 0 = started

#endif // BENCH_CUBLASLT_H
