// SPDX-License-Identifier: Apache-2.0
// fp8 codes to sixteen lanes of two AVX2 registers, as value * 2^-8, and the shapes of the kernels that fit 16 registers.
#ifndef RDI_ATTN_WIDEN_AVX2_H
#define RDI_ATTN_WIDEN_AVX2_H

#include "base/lanes.h"

enum { DIRECT_ROWS = 6, WIDEN_VECS = 1, GROUP_ROWS = 6, TILE_VECS = 1 };
#define DIRECT_VECS(rows_)                                                                                   \
    ((rows_) == 1 ? 4 : (rows_) <= 3 ? 2 : 1) // accumulators: at most 6 pairs of 16 registers
#define FMA_BROADCAST(acc_, w_, x_) ((acc_) = v16_fma(v16_set(*(x_)), (w_), (acc_)))
#define LANE_FN                     static inline __attribute__((always_inline))

LANE_FN float largest_lane(v16 x) { // no NaN among them
    __m256 eight = _mm256_max_ps(x.lo, x.hi);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
LANE_FN float sum_lanes(v16 x) { // lanes 8 apart, then 4, 2, 1
    __m256 eight = _mm256_add_ps(x.lo, x.hi);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

typedef struct fp8_widener {
    int unused;
} fp8_widener;
LANE_FN fp8_widener fp8_widener_init(void) {
    return (fp8_widener){0};
}
// Sign-extended code << 7 is the half of value * 2^-8 once the copied sign in bit 14 is cleared; code 0x7f must become
// NaN, so its exponent bits are set.
LANE_FN v16 widen_fp8(const fp8_widener *t, const uint8_t *p) {
    (void)t;
    __m256i wide =
        _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p)), 7);
    __m256i largest = _mm256_set1_epi16(0x3f80);
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(wide, largest), largest);
    __m256i half = _mm256_or_si256(_mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff)),
                                   _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00)));
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
                 _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}
LANE_FN void widen_fp8_vecs(const fp8_widener *t, const uint8_t *p, v16 out[WIDEN_VECS]) {
    out[0] = widen_fp8(t, p);
}

#endif // RDI_ATTN_WIDEN_AVX2_H
