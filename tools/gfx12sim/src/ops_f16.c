// SPDX-License-Identifier: Apache-2.0
// Half-precision arithmetic, single and packed. Sums, products, quotients and roots of halves computed in float
// and rounded again are correctly rounded (24 >= 2 * 11 + 2 significand bits); a fused multiply-add is not, so
// its float sum is rounded to odd first.
#include "isa.h"
#include "trans.h"

static inline float med3(float x, float y, float z) {
    if (x != x || y != y || z != z) return min_num(min_num(x, y), z);
    float most = max_num(max_num(x, y), z);
    return most == x ? max_num(y, z) : most == y ? max_num(x, z) : max_num(x, y);
}
// The product of two halves is exact in float. The sum's error term tells whether it was inexact and to which
// side; an inexact even sum moves one unit towards it, which keeps the final rounding to half correct. Directed
// modes need no help: rounding twice in one direction is rounding once.
static inline float fma_odd(float x, float y, float z, bool nearest) {
    float p = x * y, s = p + z, back = s - p, e = (p - (s - back)) + (z - back);
    u32 bits = gs_bits(s);
    bool fix = nearest && e != 0 && e == e && isfinite(s) && !(bits & 1);
    return gs_f32(fix ? bits + ((e > 0) == (s > 0) ? 1u : ~0u) : bits);
}
static inline float fract(float x) {
    float r = x - floorf(x);
    return r > 0x1.ffcp-1f ? 0x1.ffcp-1f : r;
}
static inline float rndne(float x) {
    float t = truncf(x), f = fabsf(x - t);
    bool up = f > 0.5f || (f == 0.5f && fmodf(t, 2.0f) != 0);
    return copysignf(up ? t + copysignf(1.0f, x) : t, x);
}
static inline float frexp_mant(float x) {
    int e;
    return x != 0 && isfinite(x) ? frexpf(x, &e) : x;
}
static inline float half_exp2(float x) {
    return (float)exp2((double)x);
}
static inline float half_rcp(float x) {
    return 1.0f / x;
}
static inline float half_rsq(float x) {
    return (float)(1.0 / sqrt((double)x));
}
static inline float half_log2(float x) {
    return (float)log2((double)x);
}
static inline bool nearest_mode(const gs_wave *w) {
    return (w->mode >> 2 & 3) == 0;
}

#define H_FN(name, expr)                                                                                     \
    LANE_FN(name) {                                                                                          \
        float fa[GS_LANES], fb[GS_LANES], fc[GS_LANES], fd[GS_LANES];                                        \
        u32 sources = op->nsrc;                                                                              \
        bool nearest = nearest_mode(w);                                                                      \
        (void)nearest, (void)fb, (void)fc;                                                                   \
        halves_to_f32(a, fa);                                                                                \
        if (sources > 1)                                                                                     \
            halves_to_f32(b, fb);                                                                            \
        else                                                                                                 \
            memset(fb, 0, sizeof fb);                                                                        \
        if (sources > 2)                                                                                     \
            halves_to_f32(c, fc);                                                                            \
        else                                                                                                 \
            memset(fc, 0, sizeof fc);                                                                        \
        EACH {                                                                                               \
            float x = fa[i], y = fb[i], z = fc[i];                                                           \
            (void)x, (void)y, (void)z;                                                                       \
            fd[i] = (expr);                                                                                  \
        }                                                                                                    \
        f32_to_halves(fd, d);                                                                                \
        return 0;                                                                                            \
    }
H_FN(add, x + y)
H_FN(sub, x - y)
H_FN(subrev, y - x)
H_FN(mul, x *y)
H_FN(fma_, fma_odd(x, y, z, nearest))
H_FN(min_, min_num(x, y))
H_FN(max_, max_num(x, y))
H_FN(minimum_, minimum(x, y))
H_FN(maximum_, maximum(x, y))
H_FN(min3, min_num(min_num(x, y), z))
H_FN(max3, max_num(max_num(x, y), z))
H_FN(med3_, med3(x, y, z))
H_FN(minmax, max_num(min_num(x, y), z))
H_FN(maxmin, min_num(max_num(x, y), z))
H_FN(minimum3, minimum(minimum(x, y), z))
H_FN(maximum3, maximum(maximum(x, y), z))
H_FN(minimummaximum, maximum(minimum(x, y), z))
H_FN(maximumminimum, minimum(maximum(x, y), z))
H_FN(floor_, floorf(x))
H_FN(ceil_, ceilf(x))
H_FN(trunc_, truncf(x))
H_FN(rndne_, rndne(x))
H_FN(fract_, fract(x))
H_FN(frexp_mant_, frexp_mant(x))
H_FN(rcp, half_rcp(x))
H_FN(rsq, half_rsq(x))
H_FN(sqrt_, sqrtf(x))
H_FN(exp_, half_exp2(x))
H_FN(log_, half_log2(x))
H_FN(sin_, gs_sin(x))
H_FN(cos_, gs_cos(x))

LANE_FN(ldexp_) {
    float f[GS_LANES];
    halves_to_f32(a, f);
    EACH
        f[i] = ldexpf(f[i], (i32)(int16_t)b[i]);
    f32_to_halves(f, d);
    (void)c, (void)w, (void)op;
    return 0;
}
LANE_FN(frexp_exp_) {
    for (int i = 0; i < GS_LANES; i++) {
        float x = gs_f16_to_f32_scalar(a[i]);
        int e = 0;
        if (x != 0 && isfinite(x)) (void)frexpf(x, &e);
        d[i] = (u32)e & 0xffff;
    }
    (void)b, (void)c, (void)w, (void)op;
    return 0;
}
LANE_FN(pack) {
    EACH
        d[i] = (a[i] & 0xffff) | b[i] << 16;
    (void)c, (void)w, (void)op;
    return 0;
}
LANE_FN(div_fixup) {
    for (int i = 0; i < GS_LANES; i++) {
        u32 sign = (b[i] ^ c[i]) & 0x8000, den = b[i] & 0x7fff, num = c[i] & 0x7fff;
        if (num > 0x7c00)
            d[i] = c[i] | 0x200;
        else if (den > 0x7c00)
            d[i] = b[i] | 0x200;
        else if ((!num && !den) || (num == 0x7c00 && den == 0x7c00))
            d[i] = 0xfe00;
        else if (!den || num == 0x7c00)
            d[i] = sign | 0x7c00;
        else if (den == 0x7c00 || !num)
            d[i] = sign;
        else if ((a[i] & 0x7fff) > 0x7c00)
            d[i] = sign | 0x7c00; // the steps overflowed
        else
            d[i] = (a[i] & 0x7fff) | sign;
    }
    (void)w, (void)op;
    return 0;
}

// Packed: two passes of the single form.
#define P_FN(name, single)                                                                                   \
    LANE_FN(name) {                                                                                          \
        u32 x[3][GS_LANES], r[2][GS_LANES];                                                                  \
        for (u32 h = 0; h < 2; h++) {                                                                        \
            EACH                                                                                             \
                x[0][i] = a[i] >> 16 * h & 0xffff;                                                           \
            if (op->nsrc > 1)                                                                                \
                EACH                                                                                         \
                    x[1][i] = b[i] >> 16 * h & 0xffff;                                                       \
            if (op->nsrc > 2)                                                                                \
                EACH                                                                                         \
                    x[2][i] = c[i] >> 16 * h & 0xffff;                                                       \
            single(r[h], x[0], x[1], x[2], w, op);                                                           \
        }                                                                                                    \
        EACH                                                                                                 \
            d[i] = r[0][i] | r[1][i] << 16;                                                                  \
        return 0;                                                                                            \
    }
P_FN(pk_add, add)
P_FN(pk_mul, mul)
P_FN(pk_fma, fma_)
P_FN(pk_min, min_)
P_FN(pk_max, max_)
P_FN(pk_minimum, minimum_)
P_FN(pk_maximum, maximum_)

// Mixed: float arithmetic on float or widened half sources (the driver widens). The half forms round the float
// result again, as the ISA guide's formula does.
F_FN(mix, fmaf(x, y, z))
LANE_FN(mix16) {
    mix(d, a, b, c, w, op);
    if (op->clamp)
        EACH
            d[i] = gs_bits(gs_f32(d[i]) > 0 ? (gs_f32(d[i]) < 1 ? gs_f32(d[i]) : 1.0f) : 0.0f);
    f32_to_halves((float *)d, d);
    return 0;
}
static gs_stop mix_high(gs_wave *w, const gs_op *op) {
    gs_op high = *op;
    high.dst.hi = true;
    return gs_valu_exec(w, &high);
}

#define H(name, sig, fn)                                                                                     \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_F16_DENORM, 0 }
#define T(name, sig, fn)                                                                                     \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_TRANS, 0, ROW_VALU | ROW_F16_DENORM, 0 }
const gs_row GS_SYM(gs_rows_f16)[] = {
    H("v_add_f16", "h=hh", add),
    H("v_sub_f16", "h=hh", sub),
    H("v_subrev_f16", "h=hh", subrev),
    H("v_mul_f16", "h=hh", mul),
    H("v_fma_f16", "h=hhh", fma_),
    H("v_fmac_f16", "h=hh+", fma_),
    H("v_fmaak_f16", "h=hhh", fma_),
    H("v_fmamk_f16", "h=hhh", fma_),
    H("v_min_num_f16", "h=hh", min_),
    H("v_max_num_f16", "h=hh", max_),
    H("v_minimum_f16", "h=hh", minimum_),
    H("v_maximum_f16", "h=hh", maximum_),
    H("v_min3_num_f16", "h=hhh", min3),
    H("v_max3_num_f16", "h=hhh", max3),
    H("v_med3_num_f16", "h=hhh", med3_),
    H("v_minmax_num_f16", "h=hhh", minmax),
    H("v_maxmin_num_f16", "h=hhh", maxmin),
    H("v_minimum3_f16", "h=hhh", minimum3),
    H("v_maximum3_f16", "h=hhh", maximum3),
    H("v_minimummaximum_f16", "h=hhh", minimummaximum),
    H("v_maximumminimum_f16", "h=hhh", maximumminimum),
    H("v_floor_f16", "h=h", floor_),
    H("v_ceil_f16", "h=h", ceil_),
    H("v_trunc_f16", "h=h", trunc_),
    H("v_rndne_f16", "h=h", rndne_),
    H("v_fract_f16", "h=h", fract_),
    H("v_ldexp_f16", "h=hw", ldexp_),
    H("v_frexp_exp_i16_f16", "w=h", frexp_exp_),
    H("v_frexp_mant_f16", "h=h", frexp_mant_),
    T("v_rcp_f16", "h=h", rcp),
    T("v_rsq_f16", "h=h", rsq),
    T("v_sqrt_f16", "h=h", sqrt_),
    T("v_exp_f16", "h=h", exp_),
    T("v_log_f16", "h=h", log_),
    T("v_sin_f16", "h=h", sin_),
    T("v_cos_f16", "h=h", cos_),
    H("v_pack_b32_f16", "u=hh", pack),
    H("v_div_fixup_f16", "h=hhh", div_fixup),
    H("v_pk_add_f16", "p=pp", pk_add),
    H("v_pk_mul_f16", "p=pp", pk_mul),
    H("v_pk_fma_f16", "p=ppp", pk_fma),
    H("v_pk_fmac_f16", "p=pp+", pk_fma),
    H("v_pk_min_num_f16", "p=pp", pk_min),
    H("v_pk_max_num_f16", "p=pp", pk_max),
    H("v_pk_minimum_f16", "p=pp", pk_minimum),
    H("v_pk_maximum_f16", "p=pp", pk_maximum),
    H("v_fma_mix_f32", "f=xxx", mix),
    H("v_fma_mixlo_f16", "w=xxx", mix16),
    {"v_fma_mixhi_f16", "w=xxx", mix_high, mix16, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0},
    {0}};
