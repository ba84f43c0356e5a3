// SPDX-License-Identifier: Apache-2.0
// For the handlers, which are compiled once for x86-64-v3 (GS_ISA v3) and once for v4: loops over the 32
// lanes, and half-precision conversion of 32 lanes.
#ifndef GFX12SIM_ISA_H
#define GFX12SIM_ISA_H

#include <immintrin.h>
#include <math.h>
#include "simd.h"

#define LANE_FN(name)                                                                                          \
    static u32 name(u32 *d, const u32 *a, const u32 *b, const u32 *c, gs_wave *w, const gs_op *op)
#define EACH _Pragma("GCC ivdep") for (int i = 0; i < GS_LANES; i++)

// Whole handlers from one expression: x, y, z are the sources of the lane; the value becomes the result.
#define U_FN(name, expr)                                                                                       \
    LANE_FN(name) {                                                                                            \
        (void)a, (void)b, (void)c, (void)w, (void)op;                                                          \
        EACH {                                                                                                 \
            u32 x = a[i], y = b[i], z = c[i];                                                                  \
            (void)x, (void)y, (void)z;                                                                         \
            d[i] = (u32)(expr);                                                                                \
        }                                                                                                      \
        return 0;                                                                                              \
    }
#define F_FN(name, expr)                                                                                       \
    LANE_FN(name) {                                                                                            \
        const f32a *fa = (const f32a *)a, *fb = (const f32a *)b, *fc = (const f32a *)c;                        \
        f32a *fd = (f32a *)d;                                                                                  \
        (void)w, (void)op;                                                                                     \
        EACH {                                                                                                 \
            float x = fa[i], y = fb[i], z = fc[i];                                                             \
            (void)x, (void)y, (void)z;                                                                         \
            fd[i] = (expr);                                                                                    \
        }                                                                                                      \
        return 0;                                                                                              \
    }

static inline u64 lane64(const u32 *a, int i) { return a[i] | (u64)a[GS_LANES + i] << 32; }
static inline void set64(u32 *d, int i, u64 v) {
    d[i] = (u32)v;
    d[GS_LANES + i] = (u32)(v >> 32);
}

// 16-bit lanes sit zero-extended in 32-bit slots.
static inline void halves_to_f32(const u32 *h, float *f) {
#ifdef __AVX512F__
    for (int i = 0; i < 2; i++)
        _mm512_storeu_ps(f + 16 * i, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_loadu_si512(h + 16 * i))));
#else
    for (int i = 0; i < 4; i++) {
        __m256i x = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(h + 8 * i)), _mm256_set1_epi32(0xffff));
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0x88);
        _mm256_storeu_ps(f + 8 * i, _mm256_cvtph_ps(_mm256_castsi256_si128(packed)));
    }
#endif
}
static inline void f32_to_halves(const float *f, u32 *h) { // in the host's current rounding mode
#ifdef __AVX512F__
    for (int i = 0; i < 2; i++)
        _mm512_storeu_si512(h + 16 * i, _mm512_cvtepu16_epi32(_mm512_cvtps_ph(_mm512_loadu_ps(f + 16 * i), 4)));
#else
    for (int i = 0; i < 4; i++)
        _mm256_storeu_si256((__m256i *)(h + 8 * i), _mm256_cvtepu16_epi32(_mm256_cvtps_ph(_mm256_loadu_ps(f + 8 * i), 4)));
#endif
}

// IEEE-754 2019 minimumNumber/maximumNumber and minimum/maximum, -0 below +0.
static inline float min_num(float x, float y) {
    float r = x < y ? x : y < x ? y : gs_f32(gs_bits(x) | gs_bits(y));
    r = x != x ? y : r;
    return y != y ? (x != x ? x + y : x) : r;
}
static inline float max_num(float x, float y) {
    float r = x > y ? x : y > x ? y : gs_f32(gs_bits(x) & gs_bits(y));
    r = x != x ? y : r;
    return y != y ? (x != x ? x + y : x) : r;
}
static inline float minimum(float x, float y) { return x != x || y != y ? x + y : min_num(x, y); }
static inline float maximum(float x, float y) { return x != x || y != y ? x + y : max_num(x, y); }

#endif
