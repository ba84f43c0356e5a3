// SPDX-License-Identifier: Apache-2.0
// Exact conversions between f32 and the storage types: round to nearest, ties to even.
//   e4m3fn: saturating (|x| > 448, Inf -> 448), NaN -> 0x7f with the sign kept; e5m2: overflow -> Inf as IEEE;
//   e8m0: 2^(code-127), 0xff = NaN.
#ifndef RDI_CONVERT_H
#define RDI_CONVERT_H

#include "radiance.h"

#include <math.h>
#include <string.h>

#pragma GCC visibility push(default) // for libradiance_run alone: tagged RADIANCE_PRIVATE by radiance.map

static inline float rdi_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t rdi_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float rdi_f32_from_bf16(uint16_t code) {
    return rdi_f32_from_bits((uint32_t)code << 16);
}
static inline uint16_t rdi_bf16_from_f32(float value) {
    uint32_t bits = rdi_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u); // keep NaN quiet
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
float rdi_f32_from_f16(uint16_t code);
uint16_t rdi_f16_from_f32(float value);
float rdi_f32_from_e4m3(uint8_t code);
uint8_t rdi_e4m3_from_f32(float value);
float rdi_f32_from_e5m2(uint8_t code);
uint8_t rdi_e5m2_from_f32(float value);
float rdi_f32_from_e8m0(uint8_t code);
uint8_t rdi_e8m0_from_f32(
    float value); // nearest power of two in log space is NOT used: value must be one; else rounds up

extern const float rdi_e4m3_table[256]; // value of each code

// One element of any floating dtype. Slow: for references, checks and edges.
float rdi_load_f32(const void *base, rd_dtype dtype, int64_t index);
void rdi_store_f32(void *base, rd_dtype dtype, int64_t index, float value);

#pragma GCC visibility pop
#endif // RDI_CONVERT_H
