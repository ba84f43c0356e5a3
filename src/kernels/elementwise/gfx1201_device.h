// SPDX-License-Identifier: Apache-2.0
// What the gfx1201 kernels of this folder share: typed loads and stores of eight elements, sums over a wave and a
// work-group in a fixed order, division rounded correctly, exp, sine and cosine by the operations of base/lanes_math.h (the
// hardware's own approximations would tie the bits to a chip).
#ifndef RDK_ELEMENTWISE_GFX1201_DEVICE_H
#define RDK_ELEMENTWISE_GFX1201_DEVICE_H

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#include "kernels/elementwise/gfx1201_args.h"

#define THREADS(count_)   __attribute__((reqd_work_group_size(count_, 1, 1)))
#define thread_in_group() ((int)__builtin_amdgcn_workitem_id_x())
#define lane_of_wave()    (thread_in_group() & 31)
#define wave_of_group()   (__builtin_amdgcn_readfirstlane(thread_in_group() >> 5))
#define group_x()         ((int)__builtin_amdgcn_workgroup_id_x())
#define group_y()         ((int)__builtin_amdgcn_workgroup_id_y())
#define group_z()         ((int)__builtin_amdgcn_workgroup_id_z())

// LDS written before is visible after; loads from memory stay in flight.
static inline void group_barrier(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// ---- types ------------------------------------------------------------------------------------------------------------
static inline float fma32(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}

static inline float load_one(global const void *base, int dtype, long at) {
    if (dtype == RDK_F32) return ((global const float *)base)[at];
    ushort code = ((global const ushort *)base)[at];
    return dtype == RDK_BF16 ? as_float((uint)code << 16) : (float)as_half(code);
}
static inline ushort bf16_code(float x) { // to nearest even; a NaN stays one
    uint bits = as_uint(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (ushort)(x != x ? bits >> 16 | 0x40 : rounded);
}
static inline ushort code16(int dtype, float x) {
    return dtype == RDK_BF16 ? bf16_code(x) : as_ushort((half)x);
}
// What a store of x followed by a load gives.
static inline float rounded_to(int dtype, float x) {
    if (dtype == RDK_F32) return x;
    return dtype == RDK_BF16 ? as_float((uint)bf16_code(x) << 16) : (float)(half)x;
}
static inline void store_one(global void *base, int dtype, long at, float x) {
    if (dtype == RDK_F32)
        ((global float *)base)[at] = x;
    else
        ((global ushort *)base)[at] = code16(dtype, x);
}

// Eight elements from `at` on, of which `left` exist; the others are 0 and their memory is not touched.
static inline float8 load_group(global const void *base, int dtype, long at, int left, int wide) {
    float8 x = 0;
    if (wide && left >= RDK_GROUP) {
        if (dtype == RDK_F32) {
            x.lo = *(global const float4 *)((global const float *)base + at);
            x.hi = *(global const float4 *)((global const float *)base + at + 4);
            return x;
        }
        ushort8 code = *(global const ushort8 *)((global const ushort *)base + at);
        if (dtype == RDK_BF16) return as_float8(__builtin_convertvector(code, uint8) << 16);
        return __builtin_convertvector(as_half8(code), float8);
    }
    for (int i = 0; i < RDK_GROUP; i++)
        if (i < left) x[i] = load_one(base, dtype, at + i);
    return x;
}
static inline void store_group(global void *base, int dtype, long at, int left, int wide, float8 x) {
    if (wide && left >= RDK_GROUP) {
        if (dtype == RDK_F32) {
            *(global float4 *)((global float *)base + at) = x.lo;
            *(global float4 *)((global float *)base + at + 4) = x.hi;
            return;
        }
        ushort8 code;
        for (int i = 0; i < RDK_GROUP; i++) code[i] = code16(dtype, x[i]);
        *(global ushort8 *)((global ushort *)base + at) = code;
        return;
    }
    for (int i = 0; i < RDK_GROUP; i++)
        if (i < left) store_one(base, dtype, at + i, x[i]);
}

// ---- across lanes -----------------------------------------------------------------------------------------------------
#define ROW_XMASK(x_, mask_) __builtin_amdgcn_update_dpp(0, (x_), 0x160 + (mask_), 0xf, 0xf, true)
static inline int other_half(int x) { // of the lane 16 away
    return __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, false, false);
}
static inline float wave_sum(float x) { // lanes 1, 2, 4, 8, 16 apart
    x += as_float(ROW_XMASK(as_int(x), 1));
    x += as_float(ROW_XMASK(as_int(x), 2));
    x += as_float(ROW_XMASK(as_int(x), 4));
    x += as_float(ROW_XMASK(as_int(x), 8));
    return x + as_float(other_half(as_int(x)));
}

// ---- arithmetic -------------------------------------------------------------------------------------------------------
// a / b rounded to nearest: the scaled Newton step and fix-up that the ISA has for it (v_div_scale, v_div_fmas, v_div_fixup).
static inline float divide(float a, float b) {
    bool scaled, unused;
    float d = __builtin_amdgcn_div_scalef(a, b, false, &unused),
          n = __builtin_amdgcn_div_scalef(a, b, true, &scaled);
    float r = __builtin_amdgcn_rcpf(d);
    r = fma32(fma32(-d, r, 1.0f), r, r);
    float q = n * r;
    q = fma32(fma32(-d, q, n), r, q);
    return __builtin_amdgcn_div_fixupf(__builtin_amdgcn_div_fmasf(fma32(-d, q, n), r, q, scaled), b, a);
}

#define ROUND_MAGIC 0x1.8p23f // x + 1.5*2^23 has an ulp of 1: its low bits are the nearest integer
static inline float exp32(float x) {
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = fma32(x, 0x1.715476p0f, ROUND_MAGIC), minus_n = ROUND_MAGIC - shifted;
    int n = as_int(shifted) - as_int(ROUND_MAGIC);
    float r = fma32(minus_n, 0x1.62e43p-1f, x);
    r = fma32(minus_n, -0x1.05c61p-29f, r);
    float p = 1.0f / 5040;
    p = fma32(p, r, 1.0f / 720);
    p = fma32(p, r, 1.0f / 120);
    p = fma32(p, r, 1.0f / 24);
    p = fma32(p, r, 1.0f / 6);
    p = fma32(p, r, 0.5f);
    p = fma32(p, r, 1.0f);
    p = fma32(p, r, 1.0f);
    int first = n >> 1, rest = n - first;
    return p * as_float((first + 127) << 23) * as_float((rest + 127) << 23);
}
// silu(x) = x / (1 + e^-x); gelu_tanh(x) = x/2 (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3).
static inline float activate(float x, int gelu) {
    float z = gelu ? 1.59576912f * (x + 0.044715f * x * x * x) : x;
    return z <= -200.0f ? -0.0f : divide(x, 1.0f + exp32(-z)); // -Inf / Inf would be NaN
}
// Sine and cosine of position * frequency, the product kept as two floats; exact reduction up to 2^22.
static inline void sincos32(float position, float frequency, float *sine, float *cosine) {
    float hi = position * frequency, lo = fma32(position, frequency, -hi);
    float shifted = fma32(hi, 0x1.45f306p-1f, ROUND_MAGIC), minus_n = ROUND_MAGIC - shifted; // 2/pi
    int n = as_int(shifted) - as_int(ROUND_MAGIC);
    float r = fma32(minus_n, 0x1.921fb6p0f, hi);
    r = fma32(minus_n, -0x1.777a5cp-25f, r);
    r = fma32(minus_n, -0x1.ee59dap-50f, r) + lo;
    float r2 = r * r, s = -1.0f / 39916800, c = 1.0f / 479001600;
    s = fma32(s, r2, 1.0f / 362880);
    s = fma32(s, r2, -1.0f / 5040);
    s = fma32(s, r2, 1.0f / 120);
    s = fma32(s, r2, -1.0f / 6);
    s = fma32(s * r2, r, r);
    c = fma32(c, r2, -1.0f / 3628800);
    c = fma32(c, r2, 1.0f / 40320);
    c = fma32(c, r2, -1.0f / 720);
    c = fma32(c, r2, 1.0f / 24);
    c = fma32(c, r2, -0.5f);
    c = fma32(c, r2, 1.0f);
    *sine = as_float(as_uint(n & 1 ? c : s) ^ (uint)(n & 2) << 30);
    *cosine = as_float(as_uint(n & 1 ? s : c) ^ (uint)((n + 1) & 2) << 30);
}

#endif // RDK_ELEMENTWISE_GFX1201_DEVICE_H
