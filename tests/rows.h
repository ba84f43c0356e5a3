// SPDX-License-Identifier: Apache-2.0
// What the row tests share: the rows of an op that this machine runs, seeded numbers, guarded buffers, error in ulps.
#ifndef RD_TEST_ROWS_H
#define RD_TEST_ROWS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/convert.h"
#include "registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint32_t host_isa(void) {
    uint32_t isa = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        isa |= RDI_ISA_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        isa |= RDI_ISA_AVX512;
    if (__builtin_cpu_supports("avx512vbmi")) isa |= RDI_ISA_AVX512VBMI;
#endif
    return isa;
}

// The index-th row of `op` that this machine runs, the reference last; NULL past the end.
static inline const rdi_row *row_at(const char *op, int index) {
    uint32_t isa = host_isa();
    for (int32_t i = 0; i < rdi_row_count; i++) {
        const rdi_row *row = &rdi_rows[i];
        if (strcmp(row->info.op, op) != 0 || row->backend != RDI_BACKEND_CPU || (row->isa & ~isa)) continue;
        if (index-- == 0) return row;
    }
    return NULL;
}
static inline const rdi_row *reference_of(const char *op) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rdi_rows[i].info.op, op) && rdi_rows[i].info.is_reference) return &rdi_rows[i];
    return NULL;
}

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static inline double random_unit(uint64_t *state) {
    return (double)(random_next(state) >> 11) * 0x1p-53;
}
static inline float random_normal(uint64_t *state) {
    double u = random_unit(state) + 0x1p-60, v = random_unit(state);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}
// RADIANCE_TEST_SEED cannot be read here (one getenv in the tree); a fresh seed each run, printed.
static inline uint64_t fresh_seed(const char *test) {
    uint64_t state = (uint64_t)time(NULL) ^ (uint64_t)clock() << 20, seed = random_next(&state);
    printf("%s: seed %llu\n", test, (unsigned long long)seed);
    return seed;
}

// A buffer of `elems` elements between two guards; everything starts as poison (a NaN in every type here).
typedef struct guarded {
    uint8_t *block;
    void *data;
    size_t bytes;
} guarded;
enum { GUARD_BYTES = 256, POISON = 0xff };
static inline guarded guarded_new(int64_t elems, rd_dtype dtype) {
    guarded g = {.bytes = (size_t)elems * rd_dtype_bytes(dtype)};
    g.block = malloc(g.bytes + 2 * GUARD_BYTES);
    assert_non_null(g.block);
    memset(g.block, POISON, g.bytes + 2 * GUARD_BYTES);
    g.data = g.block + GUARD_BYTES;
    return g;
}
static inline void guarded_check(const guarded *g) {
    for (int i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(g->block[i], POISON);
        assert_int_equal(g->block[GUARD_BYTES + g->bytes + (size_t)i], POISON);
    }
}
static inline void guarded_free(guarded *g) {
    guarded_check(g);
    free(g->block);
}

static inline double ulp_of(rd_dtype dtype, double value) { // spacing of the type at |value|
    int mantissa = dtype == RD_DTYPE_BF16 ? 7 : dtype == RD_DTYPE_F16 ? 10 : 23;
    int least = dtype == RD_DTYPE_F16 ? -14 : -126, exponent;
    frexp(value, &exponent);
    return ldexp(1.0, (exponent - 1 < least ? least : exponent - 1) - mantissa);
}

// Same bits, or both NaN (the sign and payload of a NaN are the hardware's business).
static inline bool same_bits(rd_dtype dtype, const void *a, const void *b, int64_t at) {
    size_t bytes = rd_dtype_bytes(dtype);
    if (!memcmp((const char *)a + (size_t)at * bytes, (const char *)b + (size_t)at * bytes, bytes))
        return true;
    return isnan(rdi_load_f32(a, dtype, at)) && isnan(rdi_load_f32(b, dtype, at));
}

#endif // RD_TEST_ROWS_H
