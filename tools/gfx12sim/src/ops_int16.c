// SPDX-License-Identifier: Apache-2.0
// Vector integer instructions on 16-bit halves and on packed pairs of them. A half arrives zero-extended in a
// 32-bit lane; the driver merges the low 16 bits of the result into the destination half.
#include "isa.h"

#define S(v) ((i32)(int16_t)(v))
static inline u32 sat_u16(i32 v, bool clamp) {
    return clamp ? (u32)(v < 0 ? 0 : v > 65535 ? 65535 : v) : (u32)v & 0xffff;
}
static inline u32 sat_s16(i32 v, bool clamp) {
    return (u32)(clamp ? (v < -32768 ? -32768 : v > 32767 ? 32767 : v) : v) & 0xffff;
}
static inline u32 umin(u32 x, u32 y) {
    return x < y ? x : y;
}
static inline u32 umax(u32 x, u32 y) {
    return x > y ? x : y;
}
static inline i32 smin(i32 x, i32 y) {
    return x < y ? x : y;
}
static inline i32 smax(i32 x, i32 y) {
    return x > y ? x : y;
}
static inline u32 umed(u32 x, u32 y, u32 z) {
    return umax(umin(x, y), umin(umax(x, y), z));
}
static inline i32 smed(i32 x, i32 y, i32 z) {
    return smax(smin(x, y), smin(smax(x, y), z));
}
static inline u32 mad_sat_u(u32 x, u32 y, u32 z, bool clamp) {
    u64 v = (u64)x * y + z;
    return clamp && v > 65535 ? 65535 : (u32)v & 0xffff;
}
static inline u32 sat_pk(u32 x) {
    i32 lo = S(x), hi = (i32)x >> 16;
    return (u32)smin(smax(lo, 0), 255) | (u32)smin(smax(hi, 0), 255) << 8;
}

U_FN(mov16, x)
U_FN(not16, ~x)
U_FN(add_u16, sat_u16((i32)x + (i32)y, op->clamp))
U_FN(sub_u16, sat_u16((i32)x - (i32)y, op->clamp))
U_FN(add_i16, sat_s16(S(x) + S(y), op->clamp))
U_FN(sub_i16, sat_s16(S(x) - S(y), op->clamp))
U_FN(mul_lo_u16, x *y)
U_FN(and16, x &y)
U_FN(or16, x | y)
U_FN(xor16, x ^ y)
U_FN(lshl16, y << (x & 15))
U_FN(lshr16, y >> (x & 15))
U_FN(ashr16, S(y) >> (x & 15))
U_FN(min_u16, umin(x, y))
U_FN(max_u16, umax(x, y))
U_FN(min_i16, smin(S(x), S(y)))
U_FN(max_i16, smax(S(x), S(y)))
U_FN(min3_u16, umin(umin(x, y), z))
U_FN(max3_u16, umax(umax(x, y), z))
U_FN(med3_u16, umed(x, y, z))
U_FN(min3_i16, smin(smin(S(x), S(y)), S(z)))
U_FN(max3_i16, smax(smax(S(x), S(y)), S(z)))
U_FN(med3_i16, smed(S(x), S(y), S(z)))
U_FN(mad_u16, mad_sat_u(x, y, z, op->clamp))
U_FN(mad_i16, sat_s16(S(x) * S(y) + S(z), op->clamp))
U_FN(mad_u32_u16, (u32)(op->clamp && (u64)x * y + z > UINT32_MAX ? UINT32_MAX : x * y + z))
LANE_FN(mad_i32_i16) {
    EACH {
        i64 v = (i64)(S(a[i]) * S(b[i])) + (i32)c[i];
        if (op->clamp) v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
        d[i] = (u32)v;
    }
    (void)w;
    return 0;
}
U_FN(sat_pk_u8_i16, sat_pk(x))
U_FN(cvt_i32_i16, S(x))
U_FN(cvt_u32_u16, x)
U_FN(cvt_pk_u16_u32, umin(x, 65535) | umin(y, 65535) << 16)
U_FN(cvt_pk_i16_i32,
     ((u32)smin(smax((i32)x, -32768), 32767) & 0xffff) | (u32)smin(smax((i32)y, -32768), 32767) << 16)

LANE_FN(cndmask16) {
    u32 m = (u32)gs_scalar_get(w, &op->src[2]);
    EACH
        d[i] = m >> i & 1 ? b[i] : a[i];
    (void)c;
    return 0;
}
static gs_stop swap16(gs_wave *w, const gs_op *op) {
    u32 *x = gs_vgpr(w, op->dst.reg), *y = gs_vgpr(w, op->src[0].reg), exec = gs_exec(w);
    u32 sx = op->dst.hi ? 16 : 0, sy = op->src[0].hi ? 16 : 0;
    for (int i = 0; i < GS_LANES; i++) {
        if (!(exec >> i & 1)) continue;
        u32 vx = x[i] >> sx & 0xffff, vy = y[i] >> sy & 0xffff;
        x[i] = (x[i] & ~(0xffffu << sx)) | vy << sx;
        y[i] = (y[i] & ~(0xffffu << sy)) | vx << sy;
    }
    return GS_RUN;
}

// Packed: the same on each half.
#define PK_FN(name, expr)                                                                                    \
    LANE_FN(name) {                                                                                          \
        (void)w, (void)op, (void)c;                                                                          \
        EACH {                                                                                               \
            u32 r = 0;                                                                                       \
            for (int h = 0; h < 32; h += 16) {                                                               \
                u32 x = a[i] >> h & 0xffff, y = b[i] >> h & 0xffff, z = c[i] >> h & 0xffff;                  \
                (void)z;                                                                                     \
                r |= ((u32)(expr)&0xffff) << h;                                                              \
            }                                                                                                \
            d[i] = r;                                                                                        \
        }                                                                                                    \
        return 0;                                                                                            \
    }
PK_FN(pk_add_u, sat_u16((i32)x + (i32)y, op->clamp))
PK_FN(pk_sub_u, sat_u16((i32)x - (i32)y, op->clamp))
PK_FN(pk_add_i, sat_s16(S(x) + S(y), op->clamp))
PK_FN(pk_sub_i, sat_s16(S(x) - S(y), op->clamp))
PK_FN(pk_mul, x *y)
PK_FN(pk_mad_u, mad_sat_u(x, y, z, op->clamp))
PK_FN(pk_mad_i, sat_s16(S(x) * S(y) + S(z), op->clamp))
PK_FN(pk_lshl, y << (x & 15))
PK_FN(pk_lshr, y >> (x & 15))
PK_FN(pk_ashr, S(y) >> (x & 15))
PK_FN(pk_min_u, umin(x, y))
PK_FN(pk_max_u, umax(x, y))
PK_FN(pk_min_i, smin(S(x), S(y)))
PK_FN(pk_max_i, smax(S(x), S(y)))

#define V(name, sig, fn, ...)                                                                                \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU | (0 __VA_ARGS__), 0 }
const gs_row GS_SYM(gs_rows_int16)[] = {
    V("v_mov_b16", "w=w", mov16, | ROW_PROPAGATE),
    V("v_not_b16", "w=w", not16),
    V("v_cndmask_b16", "w=wwm", cndmask16, | ROW_PROPAGATE),
    {"v_swap_b16", "w=w", swap16, NULL, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_MODIFIES_VGPR_SRC, 0},
    V("v_add_nc_u16", "w=ww", add_u16),
    V("v_sub_nc_u16", "w=ww", sub_u16),
    V("v_add_nc_i16", "w=ww", add_i16),
    V("v_sub_nc_i16", "w=ww", sub_i16),
    V("v_mul_lo_u16", "w=ww", mul_lo_u16),
    V("v_and_b16", "w=ww", and16),
    V("v_or_b16", "w=ww", or16),
    V("v_xor_b16", "w=ww", xor16),
    V("v_lshlrev_b16", "w=ww", lshl16),
    V("v_lshrrev_b16", "w=ww", lshr16),
    V("v_ashrrev_i16", "w=ww", ashr16),
    V("v_min_u16", "w=ww", min_u16),
    V("v_max_u16", "w=ww", max_u16),
    V("v_min_i16", "w=ww", min_i16),
    V("v_max_i16", "w=ww", max_i16),
    V("v_min3_u16", "w=www", min3_u16),
    V("v_max3_u16", "w=www", max3_u16),
    V("v_med3_u16", "w=www", med3_u16),
    V("v_min3_i16", "w=www", min3_i16),
    V("v_max3_i16", "w=www", max3_i16),
    V("v_med3_i16", "w=www", med3_i16),
    V("v_mad_u16", "w=www", mad_u16),
    V("v_mad_i16", "w=www", mad_i16),
    V("v_mad_u32_u16", "u=wwu", mad_u32_u16),
    V("v_mad_i32_i16", "u=wwu", mad_i32_i16),
    V("v_sat_pk_u8_i16", "w=u", sat_pk_u8_i16),
    V("v_cvt_i32_i16", "u=w", cvt_i32_i16),
    V("v_cvt_u32_u16", "u=w", cvt_u32_u16),
    V("v_cvt_pk_u16_u32", "u=uu", cvt_pk_u16_u32),
    V("v_cvt_pk_i16_i32", "u=uu", cvt_pk_i16_i32),
    V("v_pk_add_u16", "q=qq", pk_add_u),
    V("v_pk_sub_u16", "q=qq", pk_sub_u),
    V("v_pk_add_i16", "q=qq", pk_add_i),
    V("v_pk_sub_i16", "q=qq", pk_sub_i),
    V("v_pk_mul_lo_u16", "q=qq", pk_mul),
    V("v_pk_mad_u16", "q=qqq", pk_mad_u),
    V("v_pk_mad_i16", "q=qqq", pk_mad_i),
    V("v_pk_lshlrev_b16", "q=qq", pk_lshl),
    V("v_pk_lshrrev_b16", "q=qq", pk_lshr),
    V("v_pk_ashrrev_i16", "q=qq", pk_ashr),
    V("v_pk_min_u16", "q=qq", pk_min_u),
    V("v_pk_max_u16", "q=qq", pk_max_u),
    V("v_pk_min_i16", "q=qq", pk_min_i),
    V("v_pk_max_i16", "q=qq", pk_max_i),
    {0}};
