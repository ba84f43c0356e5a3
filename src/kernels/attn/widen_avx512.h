// SPDX-License-Identifier: Apache-2.0
// fp8 codes to sixteen lanes of one AVX-512 register, as value * 2^-8: with VBMI through two 128-entry byte tables (exact
// for subnormals and NaN, no branch), else through half precision. And the shapes of the kernels that fit 32 registers.
#ifndef RDI_ATTN_WIDEN_AVX512_H
#define RDI_ATTN_WIDEN_AVX512_H

#include "base/lanes.h"

// Items of up to DIRECT_ROWS rows widen anew for each group of rows, in registers; larger ones share a widened tile. NOTE:
// byte tables are so cheap that 24 rows (8 tokens of 3 heads, 2048 keys) take 197 us against 215 through a tile; through
// half precision 245 against 216. AMD EPYC Zen 5, 2026-11-30, bench_attn --shape verify8.
#ifdef __AVX512VBMI__
enum { DIRECT_ROWS = 24 };
#else
enum { DIRECT_ROWS = 6 };
#endif
enum { WIDEN_VECS = 4, GROUP_ROWS = 6, TILE_VECS = 4 };
#define DIRECT_VECS(rows_) 4 // accumulators: rows * 4 of 32 registers

// acc + w * *x, the broadcast folded into the multiply. NOTE: written as an instruction because gcc 12 otherwise hoists
// twelve broadcasts out of the score loop and spills accumulators (see docs/decisions on attention).
#define FMA_BROADCAST(acc_, w_, x_)                                                                          \
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc_) : "v"(w_), "m"(*(x_)))

static inline float largest_lane(v16 x) {
    return _mm512_reduce_max_ps(x);
} // no NaN among them
static inline float sum_lanes(v16 x) { // lanes 8 apart, then 4, 2, 1
    __m256 eight = _mm256_add_ps(v16_low(x), v16_high(x));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

#define LANE_FN static inline __attribute__((always_inline))

#ifdef __AVX512VBMI__
// Bytes 3 and 2 of the float of each magnitude code (exponent e, mantissa m): (e + 112) << 7 | m << 4 as bf16, m * 2^-17
// for e = 0, NaN for the last. spread[b]: which of 64 codes must stand at byte b before the interleaving below.
#define LO7(e_)                                                                                              \
    ((e_)&1) * 128, ((e_)&1) * 128 + 16, ((e_)&1) * 128 + 32, ((e_)&1) * 128 + 48, ((e_)&1) * 128 + 64,      \
        ((e_)&1) * 128 + 80, ((e_)&1) * 128 + 96
#define LO8_LAST(e_) ((e_)&1) * 128 + 112
#define HI7(e_)                                                                                              \
    0x38 + (e_) / 2, 0x38 + (e_) / 2, 0x38 + (e_) / 2, 0x38 + (e_) / 2, 0x38 + (e_) / 2, 0x38 + (e_) / 2,    \
        0x38 + (e_) / 2
#define HI8(e_)     HI7(e_), 0x38 + (e_) / 2
#define LO_FULL(e_) LO7(e_), LO8_LAST(e_)
#define SPREAD8(r_, i_)                                                                                      \
    (r_) * 16 + (i_), (r_)*16 + 16 + (i_), (r_)*16 + (i_) + 1, (r_)*16 + 17 + (i_), (r_)*16 + (i_) + 2,      \
        (r_)*16 + 18 + (i_), (r_)*16 + (i_) + 3, (r_)*16 + 19 + (i_)
static const struct {
    _Alignas(64) uint8_t lo[128];
    uint8_t hi[128], spread[64];
} fp8_tables = {
    {0,          0x00,        0x80,        0xc0,        0x00,        0x20,        0x40,       0x60,
     LO_FULL(1), LO_FULL(2),  LO_FULL(3),  LO_FULL(4),  LO_FULL(5),  LO_FULL(6),  LO_FULL(7), LO_FULL(8),
     LO_FULL(9), LO_FULL(10), LO_FULL(11), LO_FULL(12), LO_FULL(13), LO_FULL(14), LO7(15),    0xc0},
    {0,      0x37,   0x37,   0x37,   0x38,   0x38,    0x38,    0x38,    HI8(1),  HI8(2),  HI8(3),  HI8(4),
     HI8(5), HI8(6), HI8(7), HI8(8), HI8(9), HI8(10), HI8(11), HI8(12), HI8(13), HI8(14), HI7(15), 0x7f},
    {SPREAD8(0, 0), SPREAD8(2, 0), SPREAD8(0, 4), SPREAD8(2, 4), SPREAD8(0, 8), SPREAD8(2, 8), SPREAD8(0, 12),
     SPREAD8(2, 12)}};
typedef struct fp8_widener {
    __m512i lo0, lo1, hi0, hi1, spread, sign;
} fp8_widener;
LANE_FN fp8_widener fp8_widener_init(void) {
    return (fp8_widener){_mm512_load_si512(fp8_tables.lo),     _mm512_load_si512(fp8_tables.lo + 64),
                         _mm512_load_si512(fp8_tables.hi),     _mm512_load_si512(fp8_tables.hi + 64),
                         _mm512_load_si512(fp8_tables.spread), _mm512_set1_epi8((char)0x80)};
}
// 64 codes: the upper two bytes of each float by table, interleaved to bf16 pairs, then split into four registers. spread
// orders the codes so that each register comes out as 16 neighbours.
LANE_FN void widen_codes(const fp8_widener *t, __m512i codes, v16 out[4]) {
    codes = _mm512_permutexvar_epi8(t->spread, codes);
    __m512i lo = _mm512_permutex2var_epi8(t->lo0, codes, t->lo1);
    __m512i hi = _mm512_permutex2var_epi8(t->hi0, codes, t->hi1);
    hi = _mm512_ternarylogic_epi32(hi, codes, t->sign, 0xf8); // hi | (codes & sign)
    __m512i a = _mm512_unpacklo_epi8(lo, hi), b = _mm512_unpackhi_epi8(lo, hi),
            top = _mm512_set1_epi32((int)0xffff0000);
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(a, 16));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(a, top));
    out[2] = _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
    out[3] = _mm512_castsi512_ps(_mm512_and_si512(b, top));
}
LANE_FN void widen_fp8_vecs(const fp8_widener *t, const uint8_t *p, v16 out[WIDEN_VECS]) {
    widen_codes(t, _mm512_loadu_si512(p), out);
}
LANE_FN v16 widen_fp8(const fp8_widener *t, const uint8_t *p) {
    v16 out[4];
    widen_codes(t, _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p)), out);
    return out[0];
}
#else
typedef struct fp8_widener {
    int unused;
} fp8_widener;
LANE_FN fp8_widener fp8_widener_init(void) {
    return (fp8_widener){0};
}
// Sign-extended code << 7 is the half of value * 2^-8 once the copied sign in bit 14 is cleared; code 0x7f must become NaN.
LANE_FN v16 widen_fp8(const fp8_widener *t, const uint8_t *p) {
    (void)t;
    __m256i wide =
        _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p)), 7);
    __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x3fff));
    __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));
    wide = _mm256_mask_blend_epi16(nan, _mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff)),
                                   _mm256_set1_epi16(0x7e00));
    return _mm512_cvtph_ps(wide);
}
LANE_FN void widen_fp8_vecs(const fp8_widener *t, const uint8_t *p, v16 out[WIDEN_VECS]) {
#pragma GCC unroll 4
    for (int i = 0; i < WIDEN_VECS; i++) out[i] = widen_fp8(t, p + 16 * i);
}
#endif

#endif // RDI_ATTN_WIDEN_AVX512_H
