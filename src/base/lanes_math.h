// SPDX-License-Identifier: Apache-2.0
// What is written once over v16 for every instruction set: typed loads and stores with tails, the reduction tree, exp,
// sine and cosine, activations, the e4m3 encoder. Included by lanes.h.
#ifndef RDI_LANES_MATH_H
#define RDI_LANES_MATH_H

static inline v16 v16_abs(v16 a) { return v16_bits(i16_and(i16_bits(a), i16_set(0x7fffffff))); }
static inline v16 v16_neg(v16 a) { return v16_bits(i16_xor(i16_bits(a), i16_set(INT32_MIN))); }

// ((l0+l8)+(l4+l12)) ...: 8+8, 4, 2, 1. The order is part of the order class.
static inline float v16_sum(v16 a) {
    float lane[16];
    v16_store(lane, a);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}
static inline float v16_top(v16 a) { // largest lane; no NaN among them
    float lane[16], top;
    v16_store(lane, a);
    top = lane[0];
    for (int i = 1; i < 16; i++) top = lane[i] > top ? lane[i] : top;
    return top;
}

// ---- storage types: inlined for good, so that a caller that knows its dtype gets that one load; tails stay out of line ----
#define RDI_LANES_INLINE static inline __attribute__((always_inline))
#define RDI_LANES_TAIL   static __attribute__((noinline, unused))

RDI_LANES_INLINE v16 v16_load_full(const void *base, rd_dtype dtype, int64_t at) {
    if (dtype == RD_DTYPE_BF16) return v16_from_bf16((const uint16_t *)base + at);
    if (dtype == RD_DTYPE_F32) return v16_load((const float *)base + at);
    if (dtype == RD_DTYPE_F16) return v16_from_f16((const uint16_t *)base + at);
    float lane[16];
    for (int i = 0; i < 16; i++) lane[i] = rdi_load_f32(base, dtype, at + i);
    return v16_load(lane);
}
RDI_LANES_TAIL v16 v16_load_tail(const void *base, rd_dtype dtype, int64_t at, int64_t end) {
    float lane[16] = {0};
    for (int64_t i = 0; i < end - at; i++) lane[i] = rdi_load_f32(base, dtype, at + i);
    return v16_load(lane);
}
// Elements at..at+15 as far as they lie below `end`; the other lanes are 0 and their memory is not touched.
RDI_LANES_INLINE v16 v16_load_until(const void *base, rd_dtype dtype, int64_t at, int64_t end) {
    return end - at >= 16 ? v16_load_full(base, dtype, at) : v16_load_tail(base, dtype, at, end);
}
static inline i16 i16_bf16_codes(v16 a) { // rdi_bf16_from_f32 in every lane
    i16 bits = i16_bits(a), odd = i16_and(i16_shr(bits, 16), i16_set(1));
    i16 rounded = i16_shr(i16_add(bits, i16_add(odd, i16_set(0x7fff))), 16);
    m16 nan = i16_gt(i16_and(bits, i16_set(0x7fffffff)), i16_set(0x7f800000));
    return i16_select(nan, i16_or(i16_shr(bits, 16), i16_set(0x40)), rounded);
}
RDI_LANES_INLINE void v16_store_full(void *base, rd_dtype dtype, int64_t at, v16 a) {
    if (dtype == RD_DTYPE_BF16) {
        i16_store_u16((uint16_t *)base + at, i16_bf16_codes(a));
    } else if (dtype == RD_DTYPE_F32) {
        v16_store((float *)base + at, a);
    } else if (dtype == RD_DTYPE_F16) {
        v16_to_f16((uint16_t *)base + at, a);
    } else {
        float lane[16];
        v16_store(lane, a);
        for (int i = 0; i < 16; i++) rdi_store_f32(base, dtype, at + i, lane[i]);
    }
}
RDI_LANES_TAIL void v16_store_tail(void *base, rd_dtype dtype, int64_t at, int64_t end, v16 a) {
    float lane[16];
    v16_store(lane, a);
    for (int64_t i = 0; i < end - at; i++) rdi_store_f32(base, dtype, at + i, lane[i]);
}
RDI_LANES_INLINE void v16_store_until(void *base, rd_dtype dtype, int64_t at, int64_t end, v16 a) {
    if (end - at >= 16) v16_store_full(base, dtype, at, a);
    else v16_store_tail(base, dtype, at, end, a);
}

// rdi_e4m3_from_f32 in every lane. Normal codes: drop 20 mantissa bits to nearest even and move the exponent bias from
// 127 to 7, which is 960 in units of a code. Below 2^-6: adding 2^14 rounds to a multiple of its ulp, 2^-9.
static inline i16 i16_e4m3_codes(v16 a) {
    i16 bits = i16_bits(a), magnitude = i16_and(bits, i16_set(0x7fffffff));
    i16 capped = i16_select(i16_gt(magnitude, i16_set(0x43e00000)), i16_set(0x43e00000), magnitude); // 448
    i16 odd = i16_and(i16_shr(capped, 20), i16_set(1));
    i16 normal = i16_sub(i16_shr(i16_add(capped, i16_add(odd, i16_set(0x7ffff))), 20), i16_set(960));
    i16 small = i16_sub(i16_bits(v16_add(v16_bits(capped), v16_set(0x1p14f))), i16_set(0x46800000));
    i16 code = i16_select(i16_gt(i16_set(0x3c800000), capped), small, normal); // 2^-6
    code = i16_select(i16_gt(magnitude, i16_set(0x7f800000)), i16_set(0x7f), code);
    return i16_or(code, i16_and(i16_shr(bits, 24), i16_set(0x80)));
}

// ---- exp and its users ----------------------------------------------------------------------------------------------
// The float nearest n for |n| < 2^22 and, in the low bits of the sum, n itself: x + 1.5*2^23 has an ulp of 1.
#define RDI_ROUND_MAGIC 0x1.8p23f

// exp(x) within 2 ulp: n = round(x / ln 2), r = x - n ln 2 in two steps (Cody and Waite), Taylor's polynomial of degree 7
// on |r| <= 0.347 (remainder 5.2e-9), times 2^n in two exact halves so that results reach down to subnormals and up to Inf.
static inline v16 v16_exp(v16 x) {
    x = v16_min(v16_set(89.0f), v16_max(v16_set(-104.0f), x)); // operand order keeps NaN
    v16 shifted = v16_fma(x, v16_set(0x1.715476p0f), v16_set(RDI_ROUND_MAGIC));
    i16 n = i16_sub(i16_bits(shifted), i16_bits(v16_set(RDI_ROUND_MAGIC)));
    v16 minus_n = v16_sub(v16_set(RDI_ROUND_MAGIC), shifted);
    v16 r = v16_fma(minus_n, v16_set(0x1.62e43p-1f), x);
    r = v16_fma(minus_n, v16_set(-0x1.05c61p-29f), r);
    v16 p = v16_set(1.0f / 5040);
    p = v16_fma(p, r, v16_set(1.0f / 720));
    p = v16_fma(p, r, v16_set(1.0f / 120));
    p = v16_fma(p, r, v16_set(1.0f / 24));
    p = v16_fma(p, r, v16_set(1.0f / 6));
    p = v16_fma(p, r, v16_set(0.5f));
    p = v16_fma(p, r, v16_set(1.0f));
    p = v16_fma(p, r, v16_set(1.0f));
    i16 half = i16_sra(n, 1), rest = i16_sub(n, half);
    v16 scale_half = v16_bits(i16_shl(i16_add(half, i16_set(127)), 23));
    v16 scale_rest = v16_bits(i16_shl(i16_add(rest, i16_set(127)), 23));
    return v16_mul(v16_mul(p, scale_half), scale_rest);
}
// g / (1 + exp(-z)): silu for z = g; gelu_tanh for z = 2 sqrt(2/pi) (g + 0.044715 g^3), as (1 + tanh(z/2))/2 is that quotient.
static inline v16 v16_gated(v16 g, v16 z) { return v16_div(g, v16_add(v16_set(1.0f), v16_exp(v16_neg(z)))); }
static inline v16 v16_silu(v16 g) { return v16_gated(g, g); }
static inline v16 v16_gelu_tanh(v16 g) {
    v16 inner = v16_fma(v16_mul(v16_mul(g, g), v16_set(0.044715f)), g, g);
    return v16_gated(g, v16_mul(inner, v16_set(1.5957691216f)));
}

// ---- sine and cosine of position * frequency --------------------------------------------------------------------------
// The product is kept as hi + lo (fma), reduced by multiples of pi/2 in three steps; every step but the last is exact while
// |hi| <= 2^22. Taylor's polynomials to r^11 and r^12: the reduced angle stays below 1.05, remainder 3e-8 relative.
static inline void v16_sincos(v16 position, v16 frequency, v16 *sine, v16 *cosine) {
    v16 hi = v16_mul(position, frequency), lo = v16_fma(position, frequency, v16_neg(hi));
    v16 shifted = v16_fma(hi, v16_set(0x1.45f306p-1f), v16_set(RDI_ROUND_MAGIC)); // 2/pi
    i16 n = i16_sub(i16_bits(shifted), i16_bits(v16_set(RDI_ROUND_MAGIC)));
    v16 minus_n = v16_sub(v16_set(RDI_ROUND_MAGIC), shifted);
    v16 r = v16_fma(minus_n, v16_set(0x1.921fb6p0f), hi);
    r = v16_fma(minus_n, v16_set(-0x1.777a5cp-25f), r);
    r = v16_add(v16_fma(minus_n, v16_set(-0x1.ee59dap-50f), r), lo);
    v16 r2 = v16_mul(r, r);
    v16 s = v16_set(-1.0f / 39916800), c = v16_set(1.0f / 479001600);
    s = v16_fma(s, r2, v16_set(1.0f / 362880));
    s = v16_fma(s, r2, v16_set(-1.0f / 5040));
    s = v16_fma(s, r2, v16_set(1.0f / 120));
    s = v16_fma(s, r2, v16_set(-1.0f / 6));
    s = v16_fma(v16_mul(s, r2), r, r);
    c = v16_fma(c, r2, v16_set(-1.0f / 3628800));
    c = v16_fma(c, r2, v16_set(1.0f / 40320));
    c = v16_fma(c, r2, v16_set(-1.0f / 720));
    c = v16_fma(c, r2, v16_set(1.0f / 24));
    c = v16_fma(c, r2, v16_set(-0.5f));
    c = v16_fma(c, r2, v16_set(1.0f));
    m16 odd = i16_gt(i16_and(n, i16_set(1)), i16_set(0)); // odd quadrants swap the two
    i16 sine_sign = i16_shl(i16_and(n, i16_set(2)), 30);
    i16 cosine_sign = i16_shl(i16_and(i16_add(n, i16_set(1)), i16_set(2)), 30);
    *sine = v16_bits(i16_xor(i16_bits(v16_select(odd, c, s)), sine_sign));
    *cosine = v16_bits(i16_xor(i16_bits(v16_select(odd, s, c)), cosine_sign));
}

#endif // RDI_LANES_MATH_H
