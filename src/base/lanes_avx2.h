// SPDX-License-Identifier: Apache-2.0
// Sixteen f32 lanes in two ymm (AVX2, FMA, F16C). See lanes.h.
#ifndef RDI_LANES_AVX2_H
#define RDI_LANES_AVX2_H

#include <immintrin.h>

typedef struct v16 {
    __m256 lo, hi;
} v16;
typedef struct i16 {
    __m256i lo, hi;
} i16;
typedef struct m16 { // all bits of a lane set or clear
    __m256 lo, hi;
} m16;
typedef struct d16 { // sixteen f64 lanes
    __m256d q[4];
} d16;

static inline v16 v16_set(float x) {
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline v16 v16_load(const float *p) {
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void v16_store(float *p, v16 a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
static inline v16 v16_add(v16 a, v16 b) {
    return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline v16 v16_sub(v16 a, v16 b) {
    return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline v16 v16_mul(v16 a, v16 b) {
    return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline v16 v16_div(v16 a, v16 b) {
    return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline v16 v16_fma(v16 a, v16 b, v16 c) {
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline v16 v16_max(v16 a, v16 b) {
    return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline v16 v16_min(v16 a, v16 b) {
    return (v16){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

static inline i16 i16_set(int32_t x) {
    return (i16){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
static inline i16 i16_bits(v16 a) {
    return (i16){_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
static inline v16 v16_bits(i16 a) {
    return (v16){_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
static inline i16 i16_add(i16 a, i16 b) {
    return (i16){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
static inline i16 i16_sub(i16 a, i16 b) {
    return (i16){_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
static inline i16 i16_and(i16 a, i16 b) {
    return (i16){_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
static inline i16 i16_or(i16 a, i16 b) {
    return (i16){_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
static inline i16 i16_xor(i16 a, i16 b) {
    return (i16){_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
#define i16_shl(a_, n_) ((i16){_mm256_slli_epi32((a_).lo, (n_)), _mm256_slli_epi32((a_).hi, (n_))})
#define i16_shr(a_, n_) ((i16){_mm256_srli_epi32((a_).lo, (n_)), _mm256_srli_epi32((a_).hi, (n_))})
#define i16_sra(a_, n_) ((i16){_mm256_srai_epi32((a_).lo, (n_)), _mm256_srai_epi32((a_).hi, (n_))})

static inline m16 v16_ge(v16 a, v16 b) {
    return (m16){_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ)};
}
static inline m16 v16_eq(v16 a, v16 b) {
    return (m16){_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
static inline m16 i16_gt(i16 a, i16 b) {
    return (m16){_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.lo, b.lo)),
                 _mm256_castsi256_ps(_mm256_cmpgt_epi32(a.hi, b.hi))};
}
static inline v16 v16_select(m16 m, v16 a, v16 b) {
    return (v16){_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}
static inline i16 i16_select(m16 m, i16 a, i16 b) {
    return i16_bits(v16_select(m, v16_bits(a), v16_bits(b)));
}
static inline uint32_t m16_bits(m16 m) {
    return (uint32_t)_mm256_movemask_ps(m.lo) | (uint32_t)_mm256_movemask_ps(m.hi) << 8;
}

static inline __m256 v16_low(v16 a) {
    return a.lo;
}
static inline __m256 v16_high(v16 a) {
    return a.hi;
}

static inline __m256 widen8_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline v16 v16_from_bf16(const uint16_t *p) {
    return (v16){widen8_bf16(p), widen8_bf16(p + 8)};
}
static inline v16 v16_from_f16(const uint16_t *p) {
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline void v16_to_f16(uint16_t *p, v16 a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(p + 8),
                     _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// The 32-bit lanes, which must be below 2^16, as sixteen 16-bit ones in order: packus works per 128-bit half.
static inline __m256i narrow16(i16 a) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a.lo, a.hi), 0xd8);
}
static inline void i16_store_u16(uint16_t *p, i16 a) {
    _mm256_storeu_si256((__m256i *)p, narrow16(a));
}
static inline void i16_store_u8(uint8_t *p, i16 a) {
    __m256i words = narrow16(a);
    __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(low, high));
}

static inline d16 d16_zero(void) {
    __m256d zero = _mm256_setzero_pd();
    return (d16){{zero, zero, zero, zero}};
}
static inline d16 d16_add(d16 a, d16 b) {
    return (d16){{_mm256_add_pd(a.q[0], b.q[0]), _mm256_add_pd(a.q[1], b.q[1]), _mm256_add_pd(a.q[2], b.q[2]),
                  _mm256_add_pd(a.q[3], b.q[3])}};
}
static inline d16 d16_add1(d16 a, double b) {
    __m256d all = _mm256_set1_pd(b);
    return d16_add(a, (d16){{all, all, all, all}});
}
static inline d16 d16_from_v16(v16 a) {
    return (d16){
        {_mm256_cvtps_pd(_mm256_castps256_ps128(a.lo)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.lo, 1)),
         _mm256_cvtps_pd(_mm256_castps256_ps128(a.hi)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.hi, 1))}};
}
static inline void d16_store(double *p, d16 a) {
    for (int i = 0; i < 4; i++) _mm256_storeu_pd(p + 4 * i, a.q[i]);
}

#endif // RDI_LANES_AVX2_H
