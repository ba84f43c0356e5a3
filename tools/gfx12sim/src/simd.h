// SPDX-License-Identifier: Apache-2.0
// Half-precision conversions and bit casts that the handlers share. Only F16C and AVX-512 forms: the handlers
// are compiled once for x86-64-v3 and once for x86-64-v4, and table.c picks a set at start.
#ifndef GFX12SIM_SIMD_H
#define GFX12SIM_SIMD_H

#include <string.h>
#include "sim.h"

static inline float gs_f32(u32 bits) { float f; memcpy(&f, &bits, 4); return f; }
static inline u32 gs_bits(float f) { u32 u; memcpy(&u, &f, 4); return u; }
static inline double gs_f64(u64 bits) { double d; memcpy(&d, &bits, 8); return d; }
static inline u64 gs_bits64(double d) { u64 u; memcpy(&u, &d, 8); return u; }

// Exact conversions by integer arithmetic; independent of the host's rounding state. odd: sticky rounding for
// callers that pass a value already rounded to odd gets the right answer too, because this rounds once.
static inline u32 gs_f32_to_f16_scalar(float f) {
    u32 u = gs_bits(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000) return sign | 0x7e00 | (mag >> 13 & 0x3ff);
    if (mag >= 0x47800000) return sign | 0x7c00; // >= 65536
    if (mag < 0x33000000) return sign;           // < 2^-25
    i32 exponent = (i32)(mag >> 23) - 127;
    u32 significand = (mag & 0x7fffff) | 0x800000;
    u32 shift = exponent < -14 ? (u32)(-1 - exponent) : 13; // subnormal: units of 2^-24
    u32 kept = significand >> shift, rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
    kept += rest > half || (rest == half && kept & 1);
    return sign | (exponent < -14 ? kept : kept + ((u32)(exponent + 14) << 10));
}

static inline float gs_f16_to_f32_scalar(u32 h) {
    u32 sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31) return gs_f32(sign | 0x7f800000 | m << 13);
    if (e) return gs_f32(sign | (e + 112) << 23 | m << 13);
    float f = (float)m * 0x1p-24f;
    return sign ? -f : f;
}

#endif
