// SPDX-License-Identifier: Apache-2.0
// The transcendental model: values in double, rounded once to float. Subnormals are flushed on both sides.
// Exact hardware bits are unpublished; every result here is within 0.5 ulp plus the double's own error.
#ifndef GFX12SIM_TRANS_H
#define GFX12SIM_TRANS_H

#include <math.h>
#include "simd.h"

static inline float gs_flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static inline float gs_rcp(float x) { return gs_flush((float)(1.0 / (double)gs_flush(x))); }
static inline float gs_sqrt(float x) { return sqrtf(gs_flush(x)); }
static inline float gs_rsq(float x) { return (float)(1.0 / sqrt((double)gs_flush(x))); }
static inline float gs_log2(float x) { return (float)log2((double)gs_flush(x)); }

// 2^x = 2^n * 2^r, |r| <= 1/2. Taylor series of e^(r ln 2) to r^13: remainder below 2^-58 of the result. No call
// and no branch, so the loop over lanes vectorises, and every host computes the same bits.
static inline float gs_exp2(float x) {
    float bounded = x > 129.0f ? 129.0f : x < -151.0f ? -151.0f : x;
    bounded = x != x ? 0.0f : bounded;
    double v = (double)bounded;
    double n = (v + 0x1.8p52) - 0x1.8p52; // nearest integer
    double t = (v - n) * 0.69314718055994530942;
    double p = 1.0 / 6227020800.0;
    p = p * t + 1.0 / 479001600.0;
    p = p * t + 1.0 / 39916800.0;
    p = p * t + 1.0 / 3628800.0;
    p = p * t + 1.0 / 362880.0;
    p = p * t + 1.0 / 40320.0;
    p = p * t + 1.0 / 5040.0;
    p = p * t + 1.0 / 720.0;
    p = p * t + 1.0 / 120.0;
    p = p * t + 1.0 / 24.0;
    p = p * t + 1.0 / 6.0;
    p = p * t + 0.5;
    p = p * t + 1.0;
    p = p * t + 1.0;
    double scale = gs_f64((u64)((i64)n + 1023) << 52);
    float r = gs_flush((float)(p * scale));
    return x != x ? gs_f32(gs_bits(x) | 0x400000) : r;
}

// Input in turns. The fraction is exact, so large arguments lose nothing; beyond 2^24 every float is an integer.
static inline float gs_sin(float x) {
    double turns = (double)x - floor((double)x);
    return isinf(x) ? NAN : (float)sin(turns * 6.283185307179586476925);
}
static inline float gs_cos(float x) {
    double turns = (double)x - floor((double)x);
    return isinf(x) ? NAN : (float)cos(turns * 6.283185307179586476925);
}

#endif
