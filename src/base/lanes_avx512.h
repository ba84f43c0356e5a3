// SPDX-License-Identifier: Apache-2.0
// Sixteen f32 lanes in one zmm (AVX-512 F, BW, VL, DQ). See lanes.h.
#ifndef RDI_LANES_AVX512_H
#define RDI_LANES_AVX512_H

#include <immintrin.h>

typedef __m512 v16;
typedef __m512i i16;
typedef __mmask16 m16;
typedef struct d16 { // sixteen f64 lanes
    __m512d lo, hi;
} d16;

static inline v16 v16_set(float x) {
    return _mm512_set1_ps(x);
}
static inline v16 v16_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void v16_store(float *p, v16 a) {
    _mm512_storeu_ps(p, a);
}
static inline v16 v16_add(v16 a, v16 b) {
    return _mm512_add_ps(a, b);
}
static inline v16 v16_sub(v16 a, v16 b) {
    return _mm512_sub_ps(a, b);
}
static inline v16 v16_mul(v16 a, v16 b) {
    return _mm512_mul_ps(a, b);
}
static inline v16 v16_div(v16 a, v16 b) {
    return _mm512_div_ps(a, b);
}
static inline v16 v16_fma(v16 a, v16 b, v16 c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline v16 v16_max(v16 a, v16 b) {
    return _mm512_max_ps(a, b);
}
static inline v16 v16_min(v16 a, v16 b) {
    return _mm512_min_ps(a, b);
}

static inline i16 i16_set(int32_t x) {
    return _mm512_set1_epi32(x);
}
static inline i16 i16_bits(v16 a) {
    return _mm512_castps_si512(a);
}
static inline v16 v16_bits(i16 a) {
    return _mm512_castsi512_ps(a);
}
static inline i16 i16_add(i16 a, i16 b) {
    return _mm512_add_epi32(a, b);
}
static inline i16 i16_sub(i16 a, i16 b) {
    return _mm512_sub_epi32(a, b);
}
static inline i16 i16_and(i16 a, i16 b) {
    return _mm512_and_si512(a, b);
}
static inline i16 i16_or(i16 a, i16 b) {
    return _mm512_or_si512(a, b);
}
static inline i16 i16_xor(i16 a, i16 b) {
    return _mm512_xor_si512(a, b);
}
#define i16_shl(a_, n_) _mm512_slli_epi32((a_), (n_))
#define i16_shr(a_, n_) _mm512_srli_epi32((a_), (n_))
#define i16_sra(a_, n_) _mm512_srai_epi32((a_), (n_))

static inline m16 v16_ge(v16 a, v16 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
static inline m16 v16_eq(v16 a, v16 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static inline m16 i16_gt(i16 a, i16 b) {
    return _mm512_cmpgt_epi32_mask(a, b);
}
static inline v16 v16_select(m16 m, v16 a, v16 b) {
    return _mm512_mask_blend_ps(m, b, a);
}
static inline i16 i16_select(m16 m, i16 a, i16 b) {
    return _mm512_mask_blend_epi32(m, b, a);
}
static inline uint32_t m16_bits(m16 m) {
    return m;
}

static inline __m256 v16_low(v16 a) {
    return _mm512_castps512_ps256(a);
}
static inline __m256 v16_high(v16 a) {
    return _mm512_extractf32x8_ps(a, 1);
}

static inline v16 v16_from_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline v16 v16_from_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void v16_to_f16(uint16_t *p, v16 a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Low 16 or 8 bits of each lane.
static inline void i16_store_u16(uint16_t *p, i16 a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(a));
}
static inline void i16_store_u8(uint8_t *p, i16 a) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a));
}

static inline d16 d16_zero(void) {
    return (d16){_mm512_setzero_pd(), _mm512_setzero_pd()};
}
static inline d16 d16_add(d16 a, d16 b) {
    return (d16){_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)};
}
static inline d16 d16_add1(d16 a, double b) {
    return (d16){_mm512_add_pd(a.lo, _mm512_set1_pd(b)), _mm512_add_pd(a.hi, _mm512_set1_pd(b))};
}
static inline d16 d16_from_v16(v16 a) {
    return (d16){_mm512_cvtps_pd(v16_low(a)), _mm512_cvtps_pd(v16_high(a))};
}
static inline void d16_store(double *p, d16 a) {
    _mm512_storeu_pd(p, a.lo);
    _mm512_storeu_pd(p + 8, a.hi);
}

#endif // RDI_LANES_AVX512_H
