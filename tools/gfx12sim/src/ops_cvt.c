// SPDX-License-Identifier: Apache-2.0
// Vector conversions between number formats. To integers: truncated, saturated, NaN gives 0. To smaller floats:
// rounded in the mode of the format unless the name says otherwise.
#include "isa.h"
#include "fp8.h"

static inline u32 to_i32(double x) {
    return (u32)(x != x ? 0 : x <= -2147483648.0 ? INT32_MIN : x >= 2147483647.0 ? INT32_MAX : (i32)x);
}
static inline u32 to_u32(double x) {
    return !(x > 0) ? 0 : x >= 4294967295.0 ? UINT32_MAX : (u32)x;
}
static inline u32 to_s16(float x) {
    return (u32)(x != x ? 0 : x <= -32768.0f ? -32768 : x >= 32767.0f ? 32767 : (i32)x) & 0xffff;
}
static inline u32 to_u16(float x) {
    return !(x > 0) ? 0 : x >= 65535.0f ? 65535 : (u32)x;
}
static inline float nearest_even(float x) {
    float t = truncf(x), f = fabsf(x - t);
    return f > 0.5f || (f == 0.5f && fmodf(t, 2.0f) != 0) ? t + copysignf(1.0f, x) : t;
}
static inline u32 snorm16(float x) {
    float bounded = x != x ? 0.0f : x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
    return (u32)(i32)nearest_even(bounded * 32767.0f) & 0xffff;
}
static inline u32 unorm16(float x) {
    float bounded = !(x > 0) ? 0.0f : x > 1.0f ? 1.0f : x;
    return (u32)nearest_even(bounded * 65535.0f);
}
// Toward zero: the nearest half, one step back when it lies beyond x. A finite value never becomes infinite.
static inline u32 half_rtz(float x) {
    u32 bits = gs_bits(x), h = gs_f32_to_f16_scalar(x);
    if ((bits & 0x7fffffff) >= 0x7f800000) return h;
    if ((h & 0x7fff) == 0x7c00) return (h & 0x8000) | 0x7bff;
    return fabsf(gs_f16_to_f32_scalar(h)) > fabsf(x) ? h - 1 : h;
}

// Float lanes in, integer lanes out.
#define FU_FN(name, expr)                                                                                    \
    LANE_FN(name) {                                                                                          \
        const f32a *fa = (const f32a *)a, *fb = (const f32a *)b;                                             \
        (void)fb, (void)c, (void)w, (void)op;                                                                \
        EACH {                                                                                               \
            float x = fa[i], y = fb[i];                                                                      \
            (void)x, (void)y;                                                                                \
            d[i] = (u32)(expr);                                                                              \
        }                                                                                                    \
        return 0;                                                                                            \
    }
#define UF_FN(name, expr)                                                                                    \
    LANE_FN(name) {                                                                                          \
        f32a *fd = (f32a *)d;                                                                                \
        (void)b, (void)c, (void)w, (void)op;                                                                 \
        EACH {                                                                                               \
            u32 x = a[i];                                                                                    \
            fd[i] = (float)(expr);                                                                           \
        }                                                                                                    \
        return 0;                                                                                            \
    }
UF_FN(f32_i32, (i32)x)
UF_FN(f32_u32, x)
UF_FN(ubyte0, x & 0xff)
UF_FN(ubyte1, x >> 8 & 0xff)
UF_FN(ubyte2, x >> 16 & 0xff)
UF_FN(ubyte3, x >> 24)
UF_FN(off_i4, (float)((i32)(x << 28) >> 28) * 0.0625f)
FU_FN(i32_f32, to_i32((double)x))
FU_FN(u32_f32, to_u32((double)x))
FU_FN(floor_i32, to_i32(floor((double)x)))
FU_FN(nearest_i32, to_i32(floor((double)x + 0.5)))
FU_FN(pk_i16_f32, to_s16(x) | to_s16(y) << 16)
FU_FN(pk_u16_f32, to_u16(x) | to_u16(y) << 16)
FU_FN(pk_norm_i16_f32, snorm16(x) | snorm16(y) << 16)
FU_FN(pk_norm_u16_f32, unorm16(x) | unorm16(y) << 16)
FU_FN(pk_rtz_f16, half_rtz(x) | half_rtz(y) << 16)

LANE_FN(pk_u8_f32) {
    for (int i = 0; i < GS_LANES; i++) {
        float x = gs_f32(a[i]);
        u32 byte = !(x > 0) ? 0 : x >= 255 ? 255 : (u32)x, at = 8 * (b[i] & 3);
        d[i] = (c[i] & ~(0xffu << at)) | byte << at;
    }
    (void)w, (void)op;
    return 0;
}
LANE_FN(f16_f32) {
    f32_to_halves((const float *)a, d);
    (void)b, (void)c, (void)w, (void)op;
    return 0;
}
LANE_FN(f32_f16) {
    halves_to_f32(a, (float *)d);
    (void)b, (void)c, (void)w, (void)op;
    return 0;
}

// Halves and 16-bit integers, through float.
#define HU_FN(name, expr)                                                                                    \
    LANE_FN(name) {                                                                                          \
        float fa[GS_LANES], fb[GS_LANES];                                                                    \
        halves_to_f32(a, fa);                                                                                \
        if (op->nsrc > 1)                                                                                    \
            halves_to_f32(b, fb);                                                                            \
        else                                                                                                 \
            memset(fb, 0, sizeof fb);                                                                        \
        (void)c, (void)w;                                                                                    \
        EACH {                                                                                               \
            float x = fa[i], y = fb[i];                                                                      \
            (void)x, (void)y;                                                                                \
            d[i] = (u32)(expr);                                                                              \
        }                                                                                                    \
        return 0;                                                                                            \
    }
HU_FN(i16_f16, to_s16(x))
HU_FN(u16_f16, to_u16(x))
HU_FN(norm_i16_f16, snorm16(x))
HU_FN(norm_u16_f16, unorm16(x))
HU_FN(pk_norm_i16_f16, snorm16(x) | snorm16(y) << 16)
HU_FN(pk_norm_u16_f16, unorm16(x) | unorm16(y) << 16)
LANE_FN(f16_i16) {
    float f[GS_LANES];
    EACH
        f[i] = (float)(int16_t)a[i];
    f32_to_halves(f, d);
    (void)b, (void)c, (void)w, (void)op;
    return 0;
}
LANE_FN(f16_u16) {
    float f[GS_LANES];
    EACH
        f[i] = (float)(a[i] & 0xffff);
    f32_to_halves(f, d);
    (void)b, (void)c, (void)w, (void)op;
    return 0;
}

#define LOOP_FN(name, body)                                                                                  \
    LANE_FN(name) {                                                                                          \
        (void)b, (void)c, (void)w, (void)op;                                                                 \
        for (int i = 0; i < GS_LANES; i++) {                                                                 \
            body;                                                                                            \
        }                                                                                                    \
        return 0;                                                                                            \
    }
LOOP_FN(f64_f32, set64(d, i, gs_bits64((double)gs_f32(a[i]))))
LOOP_FN(f32_f64, d[i] = gs_bits((float)gs_f64(lane64(a, i))))
LOOP_FN(f64_i32, set64(d, i, gs_bits64((double)(i32)a[i])))
LOOP_FN(f64_u32, set64(d, i, gs_bits64((double)a[i])))
LOOP_FN(i32_f64, d[i] = to_i32(gs_f64(lane64(a, i))))
LOOP_FN(u32_f64, d[i] = to_u32(gs_f64(lane64(a, i))))

// 8-bit floats. byte_sel names the byte of the register; packed forms take or give a 16-bit half.
LOOP_FN(f32_fp8, d[i] = gs_bits(gs_fp8_to_f32(a[i] >> 8 * op->byte_sel & 0xff)))
LOOP_FN(f32_bf8, d[i] = gs_bits(gs_bf8_to_f32(a[i] >> 8 * op->byte_sel & 0xff)))
LOOP_FN(pk_f32_fp8, u32 h = a[i]; d[i] = gs_bits(gs_fp8_to_f32(h & 0xff));
        d[GS_LANES + i] = gs_bits(gs_fp8_to_f32(h >> 8 & 0xff)))
LOOP_FN(pk_f32_bf8, u32 h = a[i]; d[i] = gs_bits(gs_bf8_to_f32(h & 0xff));
        d[GS_LANES + i] = gs_bits(gs_bf8_to_f32(h >> 8 & 0xff)))
LOOP_FN(pk_fp8_f32,
        d[i] = gs_f32_to_fp8(gs_f32(a[i]), w->mode, NULL) | gs_f32_to_fp8(gs_f32(b[i]), w->mode, NULL) << 8)
LOOP_FN(pk_bf8_f32,
        d[i] = gs_f32_to_bf8(gs_f32(a[i]), w->mode, NULL) | gs_f32_to_bf8(gs_f32(b[i]), w->mode, NULL) << 8)
// Stochastic rounding replaces one byte of the destination, which is therefore a source too.
LOOP_FN(sr_fp8_f32, u32 s = 8 * op->byte_sel;
        d[i] = (c[i] & ~(0xffu << s)) | gs_f32_to_fp8(gs_f32(a[i]), w->mode, &b[i]) << s)
LOOP_FN(sr_bf8_f32, u32 s = 8 * op->byte_sel;
        d[i] = (c[i] & ~(0xffu << s)) | gs_f32_to_bf8(gs_f32(a[i]), w->mode, &b[i]) << s)

#define V(name, sig, fn)                                                                                     \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0 }
#define H(name, sig, fn)                                                                                     \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_F16_DENORM, 0 }
#define M(name, sig, fn)                                                                                     \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_MERGE_DST, 0 }
const gs_row GS_SYM(gs_rows_cvt)[] = {V("v_cvt_f32_i32", "f=u", f32_i32),
                                      V("v_cvt_f32_u32", "f=u", f32_u32),
                                      V("v_cvt_i32_f32", "u=f", i32_f32),
                                      V("v_cvt_u32_f32", "u=f", u32_f32),
                                      V("v_cvt_floor_i32_f32", "u=f", floor_i32),
                                      V("v_cvt_nearest_i32_f32", "u=f", nearest_i32),
                                      V("v_cvt_off_f32_i4", "f=u", off_i4),
                                      V("v_cvt_f32_ubyte0", "f=u", ubyte0),
                                      V("v_cvt_f32_ubyte1", "f=u", ubyte1),
                                      V("v_cvt_f32_ubyte2", "f=u", ubyte2),
                                      V("v_cvt_f32_ubyte3", "f=u", ubyte3),
                                      V("v_cvt_pk_i16_f32", "u=ff", pk_i16_f32),
                                      V("v_cvt_pk_u16_f32", "u=ff", pk_u16_f32),
                                      V("v_cvt_pk_norm_i16_f32", "u=ff", pk_norm_i16_f32),
                                      V("v_cvt_pk_norm_u16_f32", "u=ff", pk_norm_u16_f32),
                                      V("v_cvt_pk_rtz_f16_f32", "u=ff", pk_rtz_f16),
                                      V("v_cvt_pk_u8_f32", "u=fuu", pk_u8_f32),
                                      H("v_cvt_f16_f32", "h=f", f16_f32),
                                      H("v_cvt_f32_f16", "f=h", f32_f16),
                                      H("v_cvt_i16_f16", "w=h", i16_f16),
                                      H("v_cvt_u16_f16", "w=h", u16_f16),
                                      H("v_cvt_f16_i16", "h=w", f16_i16),
                                      H("v_cvt_f16_u16", "h=w", f16_u16),
                                      H("v_cvt_norm_i16_f16", "w=h", norm_i16_f16),
                                      H("v_cvt_norm_u16_f16", "w=h", norm_u16_f16),
                                      H("v_cvt_pk_norm_i16_f16", "u=hh", pk_norm_i16_f16),
                                      H("v_cvt_pk_norm_u16_f16", "u=hh", pk_norm_u16_f16),
                                      H("v_cvt_f64_f32", "F=f", f64_f32),
                                      V("v_cvt_f32_f64", "f=F", f32_f64),
                                      H("v_cvt_f64_i32", "F=u", f64_i32),
                                      H("v_cvt_f64_u32", "F=u", f64_u32),
                                      H("v_cvt_i32_f64", "u=F", i32_f64),
                                      H("v_cvt_u32_f64", "u=F", u32_f64),
                                      V("v_cvt_f32_fp8", "f=u", f32_fp8),
                                      V("v_cvt_f32_bf8", "f=u", f32_bf8),
                                      V("v_cvt_pk_f32_fp8", "U=w", pk_f32_fp8),
                                      V("v_cvt_pk_f32_bf8", "U=w", pk_f32_bf8),
                                      V("v_cvt_pk_fp8_f32", "w=ff", pk_fp8_f32),
                                      V("v_cvt_pk_bf8_f32", "w=ff", pk_bf8_f32),
                                      M("v_cvt_sr_fp8_f32", "u=fu+", sr_fp8_f32),
                                      M("v_cvt_sr_bf8_f32", "u=fu+", sr_bf8_f32),
                                      {0}};
