// SPDX-License-Identifier: Apache-2.0
// One GEMM problem with guarded buffers, and the rows of the registry run on it. For tests alone.
#ifndef RD_TEST_GEMM_CASE_H
#define RD_TEST_GEMM_CASE_H

#include "base/convert.h"
#include "kernels/gemm_fp8block/layout.h"
#include "registry/query.h"
#include "registry/registry.h"

#include <stdlib.h>

enum { GUARD_BYTES = 128, GUARD = 0xa5, POISON = 0x7f }; // poison reads as NaN in every output type

typedef struct gemm_rng {
    uint64_t state;
} gemm_rng;
static inline uint64_t rng_next(gemm_rng *rng) { // splitmix64
    uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline int64_t rng_below(gemm_rng *rng, int64_t n) {
    return (int64_t)(rng_next(rng) >> 11) % n;
}
static inline float rng_normal(gemm_rng *rng) { // sum of 12 uniforms
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(rng_next(rng) >> 11) * 0x1p-53;
    return (float)sum;
}

typedef struct guarded {
    uint8_t *base, *data;
    size_t bytes;
} guarded;
static inline guarded guarded_new(size_t bytes, int fill) {
    guarded buffer = {.bytes = bytes};
    size_t rounded = (bytes + 2 * GUARD_BYTES + 63) / 64 * 64;
    buffer.base = aligned_alloc(64, rounded);
    if (!buffer.base) abort();
    memset(buffer.base, GUARD, rounded);
    buffer.data = buffer.base + GUARD_BYTES;
    memset(buffer.data, fill, bytes);
    return buffer;
}
static inline bool guarded_ok(const guarded *buffer) {
    for (int i = 0; i < GUARD_BYTES; i++)
        if (buffer->base[i] != GUARD || buffer->data[buffer->bytes + (size_t)i] != GUARD) return false;
    return true;
}
static inline void guarded_free(guarded *buffer) {
    free(buffer->base);
}

typedef struct gemm_spec {
    const char *op;
    int64_t m, n, k;
    rd_dtype a_dtype, w_scale_dtype, c_dtype, bias_dtype; // bias NONE = without
    int64_t a_pad, w_pad, c_pad;                          // elements between rows
    bool scales_transposed;                               // a_scale and w_scale column-major
    bool specials;                                        // NaN, Inf, subnormals, 448, -0 among the values
    float a_scale_by;                                     // magnitude of 16-bit activations; 0 = 1
} gemm_spec;

typedef struct gemm_case {
    gemm_spec spec;
    guarded a, a_scale, w[RDI_LAYOUTS], w_scale, bias; // w by layout; data NULL where a layout does not apply
    rdi_gemm_args args;                                // of layout row; c left open
} gemm_case;

void gemm_case_make(gemm_case *c, const gemm_spec *spec, gemm_rng *rng);
void gemm_case_free(gemm_case *c);
bool gemm_case_guards_ok(const gemm_case *c);
bool gemm_case_has_layout(const gemm_case *c, rdi_weight_layout layout);

bool gemm_row_takes(const rdi_row *row, const gemm_case *c); // op, isa of this machine, m
// Runs a row with poisoned output and workspace; the result has c_stride m x (n + c_pad). Fails the test on a touched guard.
guarded gemm_row_run(const rdi_row *row, const gemm_case *c, rdi_weight_layout layout, rdi_par *par);
// The same on other arguments (a slice of the case).
guarded gemm_row_run_args(const rdi_row *row, rdi_gemm_args args, rdi_par *par);

#endif // RD_TEST_GEMM_CASE_H
