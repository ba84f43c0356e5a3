// SPDX-License-Identifier: Apache-2.0
// OCP 8-bit floats (OCP 8-bit Floating Point Specification 1.0): e4m3 has bias 7, no infinity, NaN 0x7f, largest
// 448; e5m2 (AMD's name: bf8) is the top byte of a half.
#ifndef GFX12SIM_FP8_H
#define GFX12SIM_FP8_H

#include <math.h>
#include "simd.h"

static inline float gs_fp8_to_f32(u32 code) {
    u32 sign = (code & 0x80) << 24, e = code >> 3 & 15, m = code & 7;
    if ((code & 0x7f) == 0x7f) return gs_f32(sign | 0x7fc00000);
    if (e == 0) return gs_f32(sign | gs_bits((float)m * 0x1p-9f));
    return gs_f32(sign | (e + 120) << 23 | m << 20);
}
static inline float gs_bf8_to_f32(u32 code) { return gs_f16_to_f32_scalar((code & 0xff) << 8); }

// Rounds |x| to mantissa_bits of significand with subnormals of unit 2^min_unit; addend is what is added below
// the kept bits before they are cut: nearest-even picks it from the value, stochastic rounding from a seed.
static inline u32 gs_f32_to_f8(float x, u32 mantissa_bits, i32 bias, u32 max_code, u32 over_code, const u32 *seed) {
    u32 bits = gs_bits(x), sign = bits >> 24 & 0x80, mag = bits & 0x7fffffff;
    if (mag > 0x7f800000) return sign | 0x7f;
    if (mag == 0x7f800000) return sign | over_code;
    i32 exponent = (i32)(mag >> 23) - 127;
    u32 significand = mag >> 23 ? (mag & 0x7fffff) | 0x800000 : mag & 0x7fffff;
    if (!(mag >> 23)) exponent = -126;
    u32 drop = 23 - mantissa_bits;
    bool subnormal = exponent < 1 - bias;
    u32 shift = drop + (subnormal ? (u32)(1 - bias - exponent) : 0);
    if (shift > 31) shift = 31;
    u64 wide = significand, half = 1ull << (shift - 1);
    u64 addend = seed ? (u64)(*seed >> (32 - drop)) << (shift - drop) : half - 1 + (wide >> shift & 1);
    u64 kept = (wide + addend) >> shift;
    u64 code = subnormal ? kept : kept + ((u64)(exponent + bias - 1) << mantissa_bits);
    return sign | (code > max_code ? over_code : (u32)code);
}
// Overflow gives NaN (e4m3) or infinity (bf8); with MODE.FP16_OVFL (bit 23) the largest finite value.
static inline u32 gs_f32_to_fp8(float x, u32 mode, const u32 *seed) {
    bool saturate = mode >> 23 & 1;
    return gs_f32_to_f8(x, 3, 7, 0x7e, saturate ? 0x7e : 0x7f, seed);
}
static inline u32 gs_f32_to_bf8(float x, u32 mode, const u32 *seed) {
    bool saturate = mode >> 23 & 1;
    return gs_f32_to_f8(x, 2, 15, 0x7b, saturate ? 0x7b : 0x7c, seed);
}

#endif
