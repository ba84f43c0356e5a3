// SPDX-License-Identifier: Apache-2.0
// Dot products of packed small numbers within a lane. Float forms: one fused multiply-add per pair, low element
// first, starting from the addend; the silicon's order and width are unpublished. Integer forms are exact.
#include "isa.h"
#include "fp8.h"

static inline float bf16(u32 h) { return gs_f32(h << 16); }
static inline u32 to_bf16(float x) { // nearest even
    u32 bits = gs_bits(x);
    if (x != x) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
// Packed bf16 sources have no driver support for neg_lo/neg_hi.
static inline u32 signs(const gs_op *op, u32 k) { return (op->neg_lo >> k & 1 ? 0x8000u : 0) | (op->neg_hi >> k & 1 ? 0x80000000u : 0); }
static inline float addend(const gs_op *op, float z) {
    if (op->neg_hi >> 2 & 1) z = fabsf(z);
    return op->neg_lo >> 2 & 1 ? -z : z;
}

#define LOOP_FN(name, body)                                                                                    \
    LANE_FN(name) {                                                                                            \
        (void)w;                                                                                               \
        for (int i = 0; i < GS_LANES; i++) {                                                                   \
            u32 x = a[i], y = b[i], z = c[i];                                                                  \
            body;                                                                                              \
        }                                                                                                      \
        (void)op;                                                                                              \
        return 0;                                                                                              \
    }
LOOP_FN(dot2_f32_f16, float s = fmaf(gs_f16_to_f32_scalar(x & 0xffff), gs_f16_to_f32_scalar(y & 0xffff), addend(op, gs_f32(z)));
        d[i] = gs_bits(fmaf(gs_f16_to_f32_scalar(x >> 16), gs_f16_to_f32_scalar(y >> 16), s)))
LOOP_FN(dot2_f32_bf16, x ^= signs(op, 0); y ^= signs(op, 1); float s = fmaf(bf16(x & 0xffff), bf16(y & 0xffff), addend(op, gs_f32(z)));
        d[i] = gs_bits(fmaf(bf16(x >> 16), bf16(y >> 16), s)))
LOOP_FN(dot2_f16_f16, float s = fmaf(gs_f16_to_f32_scalar(x & 0xffff), gs_f16_to_f32_scalar(y & 0xffff), gs_f16_to_f32_scalar(z));
        d[i] = gs_f32_to_f16_scalar(fmaf(gs_f16_to_f32_scalar(x >> 16), gs_f16_to_f32_scalar(y >> 16), s)))
LOOP_FN(dot2_bf16_bf16, float s = fmaf(bf16(x & 0xffff), bf16(y & 0xffff), bf16(z)); d[i] = to_bf16(fmaf(bf16(x >> 16), bf16(y >> 16), s)))

static inline u32 saturate(i64 v, bool clamp) { return (u32)(clamp && v > INT32_MAX ? INT32_MAX : clamp && v < INT32_MIN ? INT32_MIN : v); }
static inline u32 saturate_u(u64 v, bool clamp) { return (u32)(clamp && v > UINT32_MAX ? UINT32_MAX : v); }
static inline i64 int_dot(u32 x, u32 y, u32 bits, bool signed_x, bool signed_y) {
    i64 sum = 0;
    for (u32 k = 0; k < 32; k += bits) {
        u32 p = x << (32 - bits - k), q = y << (32 - bits - k);
        i64 u = signed_x ? (i32)p >> (32 - bits) : (i64)(p >> (32 - bits));
        i64 v = signed_y ? (i32)q >> (32 - bits) : (i64)(q >> (32 - bits));
        sum += u * v;
    }
    return sum;
}
LOOP_FN(dot4_iu8, d[i] = saturate(int_dot(x, y, 8, op->neg_lo & 1, op->neg_lo & 2) + (i32)z, op->clamp))
LOOP_FN(dot8_iu4, d[i] = saturate(int_dot(x, y, 4, op->neg_lo & 1, op->neg_lo & 2) + (i32)z, op->clamp))
LOOP_FN(dot4_u8, d[i] = saturate_u((u64)int_dot(x, y, 8, false, false) + z, op->clamp))
LOOP_FN(dot8_u4, d[i] = saturate_u((u64)int_dot(x, y, 4, false, false) + z, op->clamp))

typedef float decode8(u32 code);
static inline u32 dot4_f8(u32 x, u32 y, float z, decode8 *dx, decode8 *dy) {
    for (u32 k = 0; k < 32; k += 8) z = fmaf(dx(x >> k & 0xff), dy(y >> k & 0xff), z);
    return gs_bits(z);
}
static float fp8(u32 code) { return gs_fp8_to_f32(code); }
static float bf8(u32 code) { return gs_bf8_to_f32(code); }
LOOP_FN(dot4_fp8_fp8, d[i] = dot4_f8(x, y, addend(op, gs_f32(z)), fp8, fp8))
LOOP_FN(dot4_fp8_bf8, d[i] = dot4_f8(x, y, addend(op, gs_f32(z)), fp8, bf8))
LOOP_FN(dot4_bf8_fp8, d[i] = dot4_f8(x, y, addend(op, gs_f32(z)), bf8, fp8))
LOOP_FN(dot4_bf8_bf8, d[i] = dot4_f8(x, y, addend(op, gs_f32(z)), bf8, bf8))

#define V(name, sig, fn) {name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0}
#define D(name, sig, fn) {name, sig, gs_valu_vopd, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0}
const gs_row GS_SYM(gs_rows_dot)[] = {
    V("v_dot2_f32_f16", "f=ppf", dot2_f32_f16), D("v_dual_dot2acc_f32_f16", "f=pp+", dot2_f32_f16),
    V("v_dot2_f32_bf16", "f=qqf", dot2_f32_bf16), D("v_dual_dot2acc_f32_bf16", "f=qq+", dot2_f32_bf16),
    V("v_dot2_f16_f16", "h=pph", dot2_f16_f16), V("v_dot2_bf16_bf16", "b=qqb", dot2_bf16_bf16),
    V("v_dot4_i32_iu8", "u=uuu", dot4_iu8), V("v_dot8_i32_iu4", "u=uuu", dot8_iu4), V("v_dot4_u32_u8", "u=uuu", dot4_u8), V("v_dot8_u32_u4", "u=uuu", dot8_u4),
    V("v_dot4_f32_fp8_fp8", "f=uuf", dot4_fp8_fp8), V("v_dot4_f32_fp8_bf8", "f=uuf", dot4_fp8_bf8), V("v_dot4_f32_bf8_fp8", "f=uuf", dot4_bf8_fp8), V("v_dot4_f32_bf8_bf8", "f=uuf", dot4_bf8_bf8),
    {0}};
