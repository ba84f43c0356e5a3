// SPDX-License-Identifier: Apache-2.0
// Scalar conversions, written from the formats' definitions (OCP 8-bit floating point specification 1.0; IEEE 754 half).
#include "base/convert.h"

#include "base/base.h"

float rdi_f32_from_f16(uint16_t code) {
    uint32_t sign = (uint32_t)(code & 0x8000u) << 16, exponent = (code >> 10) & 31u, mantissa = code & 0x3ffu;
    if (exponent == 31)
        return rdi_f32_from_bits(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0));
    if (exponent == 0) { // subnormal: mantissa * 2^-24
        float value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    return rdi_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Rounds |value| to a float with `mantissa_bits` and smallest normal exponent `min_exponent`; the caller packs the result.
static float round_to(float magnitude, int mantissa_bits, int min_exponent) {
    int exponent = (int)(rdi_f32_bits(magnitude) >> 23) - 127;
    if (exponent < min_exponent) exponent = min_exponent;
    float ulp = ldexpf(1.0f, exponent - mantissa_bits);
    return rintf(magnitude / ulp) * ulp; // both steps exact but for the rint: ulp is a power of two
}

uint16_t rdi_f16_from_f32(float value) {
    uint16_t sign = (uint16_t)((rdi_f32_bits(value) >> 16) & 0x8000u);
    if (isnan(value)) return (uint16_t)(sign | 0x7e00u | ((rdi_f32_bits(value) >> 13) & 0x3ffu));
    float rounded = isinf(value) ? value : round_to(fabsf(value), 10, -14);
    if (isinf(value) || rounded > 65504.0f) return (uint16_t)(sign | 0x7c00u);
    if (rounded < 0x1p-14f) return (uint16_t)(sign | (uint16_t)(rounded * 0x1p24f));
    uint32_t bits = rdi_f32_bits(rounded);
    return (uint16_t)(sign | ((bits >> 23) - 112) << 10 | ((bits >> 13) & 0x3ffu));
}

// 8-bit float with E exponent and M mantissa bits and the given bias, from a magnitude already rounded to it.
static uint8_t pack8(float rounded, int mantissa_bits, int bias) {
    if (rounded < ldexpf(1.0f, 1 - bias)) return (uint8_t)(rounded * ldexpf(1.0f, bias - 1 + mantissa_bits));
    uint32_t bits = rdi_f32_bits(rounded);
    int exponent = (int)(bits >> 23) - 127 + bias;
    return (uint8_t)(exponent << mantissa_bits |
                     (int)((bits >> (23 - mantissa_bits)) & ((1u << mantissa_bits) - 1)));
}

float rdi_f32_from_e4m3(uint8_t code) {
    return rdi_e4m3_table[code];
}

uint8_t rdi_e4m3_from_f32(float value) {
    uint8_t sign = (uint8_t)((rdi_f32_bits(value) >> 24) & 0x80u);
    if (isnan(value)) return sign | 0x7f;
    if (fabsf(value) >= 448.0f) return sign | 0x7e; // saturate, infinities too
    return sign | pack8(round_to(fabsf(value), 3, -6), 3, 7);
}

float rdi_f32_from_e5m2(uint8_t code) {
    return rdi_f32_from_f16((uint16_t)(code << 8));
}

uint8_t rdi_e5m2_from_f32(float value) {
    uint8_t sign = (uint8_t)((rdi_f32_bits(value) >> 24) & 0x80u);
    if (isnan(value)) return sign | 0x7e;
    float rounded = isinf(value) ? value : round_to(fabsf(value), 2, -14);
    if (isinf(value) || rounded > 57344.0f) return sign | 0x7c;
    return sign | pack8(rounded, 2, 15);
}

float rdi_f32_from_e8m0(uint8_t code) {
    if (code == 0xff) return rdi_f32_from_bits(0x7fc00000u);
    return code ? rdi_f32_from_bits((uint32_t)code << 23) : 0x1p-127f;
}

uint8_t rdi_e8m0_from_f32(float value) {
    if (!(value > 0.0f) || isinf(value)) return 0xff;
    int exponent;
    float fraction = frexpf(value, &exponent); // value = fraction * 2^exponent, fraction in [0.5, 1)
    int code = exponent - 1 + (fraction > 0.5f ? 1 : 0) + 127;
    return (uint8_t)(code < 0 ? 0 : code > 254 ? 254 : code);
}

float rdi_load_f32(const void *base, rd_dtype dtype, int64_t index) {
    switch (dtype) {
    case RD_DTYPE_F32:
        return ((const float *)base)[index];
    case RD_DTYPE_BF16:
        return rdi_f32_from_bf16(((const uint16_t *)base)[index]);
    case RD_DTYPE_F16:
        return rdi_f32_from_f16(((const uint16_t *)base)[index]);
    case RD_DTYPE_E4M3:
        return rdi_f32_from_e4m3(((const uint8_t *)base)[index]);
    case RD_DTYPE_E5M2:
        return rdi_f32_from_e5m2(((const uint8_t *)base)[index]);
    case RD_DTYPE_E8M0:
        return rdi_f32_from_e8m0(((const uint8_t *)base)[index]);
    default:
        return rdi_f32_from_bits(0x7fc00000u);
    }
}

void rdi_store_f32(void *base, rd_dtype dtype, int64_t index, float value) {
    switch (dtype) {
    case RD_DTYPE_F32:
        ((float *)base)[index] = value;
        break;
    case RD_DTYPE_BF16:
        ((uint16_t *)base)[index] = rdi_bf16_from_f32(value);
        break;
    case RD_DTYPE_F16:
        ((uint16_t *)base)[index] = rdi_f16_from_f32(value);
        break;
    case RD_DTYPE_E4M3:
        ((uint8_t *)base)[index] = rdi_e4m3_from_f32(value);
        break;
    case RD_DTYPE_E5M2:
        ((uint8_t *)base)[index] = rdi_e5m2_from_f32(value);
        break;
    case RD_DTYPE_E8M0:
        ((uint8_t *)base)[index] = rdi_e8m0_from_f32(value);
        break;
    default:
        break;
    }
}

// Row e of the positive half: exponent field e, mantissas 0..7; (8 + m) * 2^(e-10) for e > 0, m * 2^-9 for e = 0.
#define E4M3_ROW(sign_, unit_)                                                                               \
    sign_ 8 * unit_, sign_ 9 * unit_, sign_ 10 * unit_, sign_ 11 * unit_, sign_ 12 * unit_,                  \
        sign_ 13 * unit_, sign_ 14 * unit_
#define E4M3_HALF(sign_)                                                                                     \
    sign_ 0.0f, sign_ 0x1p-9f, sign_ 0x2p-9f, sign_ 0x3p-9f, sign_ 0x4p-9f, sign_ 0x5p-9f, sign_ 0x6p-9f,    \
        sign_ 0x7p-9f, E4M3_ROW(sign_, 0x1p-9f), sign_ 15 * 0x1p-9f, E4M3_ROW(sign_, 0x1p-8f),               \
        sign_ 15 * 0x1p-8f, E4M3_ROW(sign_, 0x1p-7f), sign_ 15 * 0x1p-7f, E4M3_ROW(sign_, 0x1p-6f),          \
        sign_ 15 * 0x1p-6f, E4M3_ROW(sign_, 0x1p-5f), sign_ 15 * 0x1p-5f, E4M3_ROW(sign_, 0x1p-4f),          \
        sign_ 15 * 0x1p-4f, E4M3_ROW(sign_, 0x1p-3f), sign_ 15 * 0x1p-3f, E4M3_ROW(sign_, 0x1p-2f),          \
        sign_ 15 * 0x1p-2f, E4M3_ROW(sign_, 0x1p-1f), sign_ 15 * 0x1p-1f, E4M3_ROW(sign_, 0x1p0f),           \
        sign_ 15 * 0x1p0f, E4M3_ROW(sign_, 0x1p1f), sign_ 15 * 0x1p1f, E4M3_ROW(sign_, 0x1p2f),              \
        sign_ 15 * 0x1p2f, E4M3_ROW(sign_, 0x1p3f), sign_ 15 * 0x1p3f, E4M3_ROW(sign_, 0x1p4f),              \
        sign_ 15 * 0x1p4f, E4M3_ROW(sign_, 0x1p5f), sign_ NAN
const float rdi_e4m3_table[256] = {E4M3_HALF(+), E4M3_HALF(-)};
