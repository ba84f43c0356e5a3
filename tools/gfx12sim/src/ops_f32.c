// SPDX-License-Identifier: Apache-2.0
// Vector single-precision arithmetic. Sums, products and fused multiply-adds are IEEE-754 in the host's rounding
// mode (set from MODE). The transcendental instructions are a model: hardware promises 1 ulp, this returns the
// double-precision value rounded once; subnormal inputs and results are flushed, as the ISA guide says of them.
#include "isa.h"
#include "trans.h"

static inline float dx9(float product, float x, float y) {
    return x == 0 || y == 0 ? 0.0f : product;
}
static inline float med3(float x, float y, float z) {
    if (x != x || y != y || z != z) return min_num(min_num(x, y), z);
    float most = max_num(max_num(x, y), z); // the guide's order of tests decides the sign of a zero
    return most == x ? max_num(y, z) : most == y ? max_num(x, z) : max_num(x, y);
}
static inline float fract(float x) {
    float r = x - floorf(x);
    return r >= 1.0f ? 0x1.fffffep-1f : r;
}
// floor and its kin keep a quiet NaN; rintf follows the host's rounding mode, which is not what rndne means.
static inline float rndne(float x) {
    float t = truncf(x), f = fabsf(x - t);
    bool up = f > 0.5f || (f == 0.5f && fmodf(t, 2.0f) != 0);
    return copysignf(up ? t + copysignf(1.0f, x) : t, x);
}
static inline u32 frexp_exp(float x) {
    int e = 0;
    if (x != 0 && isfinite(x)) (void)frexpf(x, &e);
    return (u32)e;
}
static inline float frexp_mant(float x) {
    int e;
    return x != 0 && isfinite(x) ? frexpf(x, &e) : x;
}

F_FN(add, x + y)
F_FN(sub, x - y)
F_FN(subrev, y - x)
F_FN(mul, x *y)
F_FN(mul_dx9, dx9(x *y, x, y))
F_FN(fma_, fmaf(x, y, z))
F_FN(fma_dx9, x == 0 || y == 0 ? z : fmaf(x, y, z))
F_FN(min_, min_num(x, y))
F_FN(max_, max_num(x, y))
F_FN(minimum_, minimum(x, y))
F_FN(maximum_, maximum(x, y))
F_FN(min3, min_num(min_num(x, y), z))
F_FN(max3, max_num(max_num(x, y), z))
F_FN(med3_, med3(x, y, z))
F_FN(minmax, max_num(min_num(x, y), z))
F_FN(maxmin, min_num(max_num(x, y), z))
F_FN(minimum3, minimum(minimum(x, y), z))
F_FN(maximum3, maximum(maximum(x, y), z))
F_FN(minimummaximum, maximum(minimum(x, y), z))
F_FN(maximumminimum, minimum(maximum(x, y), z))
F_FN(floor_, floorf(x))
F_FN(ceil_, ceilf(x))
F_FN(trunc_, truncf(x))
F_FN(rndne_, rndne(x))
F_FN(fract_, fract(x))
F_FN(frexp_mant_, frexp_mant(x))
F_FN(rcp, gs_rcp(x))
F_FN(rsq, gs_rsq(x))
F_FN(sqrt_, gs_sqrt(x))
F_FN(log_, gs_log2(x))
F_FN(sin_, gs_sin(x))
F_FN(cos_, gs_cos(x))

// 2^x for 32 lanes: the loop of the transcendental that attention kernels run most.
LANE_FN(exp_) {
    const f32a *fa = (const f32a *)a;
    f32a *fd = (f32a *)d;
    (void)b, (void)c, (void)w, (void)op;
    EACH
        fd[i] = gs_exp2(fa[i]);
    return 0;
}
LANE_FN(ldexp_) {
    for (int i = 0; i < GS_LANES; i++) d[i] = gs_bits(ldexpf(gs_f32(a[i]), (i32)b[i]));
    (void)c, (void)w, (void)op;
    return 0;
}
LANE_FN(frexp_exp_) {
    for (int i = 0; i < GS_LANES; i++) d[i] = frexp_exp(gs_f32(a[i]));
    (void)b, (void)c, (void)w, (void)op;
    return 0;
}

// Division steps. ISA guide, V_DIV_SCALE_F32: src0 is the numerator (src2) or the denominator (src1) again.
static u32 exponent_of(float x) {
    return gs_bits(x) >> 23 & 255;
}
static bool is_subnormal(float x) {
    return x != 0 && exponent_of(x) == 0;
}

LANE_FN(div_scale) {
    u32 vcc = 0;
    for (int i = 0; i < GS_LANES; i++) {
        float s0 = gs_f32(a[i]), den = gs_f32(b[i]), num = gs_f32(c[i]), r = s0;
        bool flag = false;
        // Whether a quotient would be subnormal is asked of exact values, whatever MODE says.
        double inverse = 1.0 / (double)den, quotient = (double)num / (double)den;
        bool tiny_inverse = inverse != 0 && fabs(inverse) < 0x1p-126,
             tiny_quotient = quotient != 0 && fabs(quotient) < 0x1p-126;
        if (den == 0 || num == 0)
            r = NAN;
        else if ((i32)exponent_of(num) - (i32)exponent_of(den) >= 96) {
            flag = true;
            if (a[i] == b[i]) r = ldexpf(s0, 64);
        } else if (is_subnormal(den))
            r = ldexpf(s0, 64);
        else if (tiny_inverse &&
                 tiny_quotient) { // a huge denominator: smaller, so that its inverse is normal
            flag = true;
            if (a[i] == b[i]) r = ldexpf(s0, -64);
        } else if (tiny_inverse)
            r = ldexpf(s0, -64);
        else if (tiny_quotient) {
            flag = true;
            if (a[i] == c[i]) r = ldexpf(s0, 64);
        } else if (exponent_of(num) <= 23)
            r = ldexpf(s0, 64);
        d[i] = gs_bits(r);
        vcc |= (u32)flag << i;
    }
    (void)w, (void)op;
    return vcc;
}
LANE_FN(div_fmas) {
    u32 vcc = w->s[SGPR_VCC];
    for (int i = 0; i < GS_LANES; i++) {
        float x = gs_f32(a[i]), y = gs_f32(b[i]), z = gs_f32(c[i]), r = fmaf(x, y, z);
        if (vcc >> i & 1) r = ldexpf(r, exponent_of(z) > 127 ? 64 : -64);
        d[i] = gs_bits(r);
    }
    (void)op;
    return 0;
}
LANE_FN(div_fixup) {
    for (int i = 0; i < GS_LANES; i++) {
        float q = gs_f32(a[i]), den = gs_f32(b[i]), num = gs_f32(c[i]);
        u32 sign = (b[i] ^ c[i]) & 0x80000000;
        u32 r;
        if (num != num)
            r = c[i] | 0x400000;
        else if (den != den)
            r = b[i] | 0x400000;
        else if ((num == 0 && den == 0) || (isinf(num) && isinf(den)))
            r = 0xffc00000;
        else if (den == 0 || isinf(num))
            r = sign | 0x7f800000;
        else if (isinf(den) || num == 0)
            r = sign;
        else if ((i32)exponent_of(num) - (i32)exponent_of(den) < -150)
            r = sign;
        else if (exponent_of(den) == 255)
            r = sign | 0x7f800000;
        else if (q != q)
            r = sign | 0x7f800000; // the steps overflowed: the quotient is too large
        else
            r = (gs_bits(q) & 0x7fffffff) | sign;
        d[i] = r;
    }
    (void)w, (void)op;
    return 0;
}
LANE_FN(mullit) {
    for (int i = 0; i < GS_LANES; i++) {
        float x = gs_f32(a[i]), y = gs_f32(b[i]), z = gs_f32(c[i]);
        d[i] = y == -3.402823466e38f || !(y > -INFINITY) || !(z > 0) ? gs_bits(-3.402823466e38f)
                                                                     : gs_bits(dx9(x * y, x, y));
    }
    (void)w, (void)op;
    return 0;
}

#define V(name, sig, fn)                                                                                     \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0 }
#define T(name, sig, fn)                                                                                     \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_TRANS, 0, ROW_VALU, 0 }
#define D(name, sig, fn)                                                                                     \
    { name, sig, gs_valu_vopd, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0 }
const gs_row GS_SYM(gs_rows_f32)[] = {
    V("v_add_f32", "f=ff", add),
    V("v_sub_f32", "f=ff", sub),
    V("v_subrev_f32", "f=ff", subrev),
    V("v_mul_f32", "f=ff", mul),
    V("v_mul_dx9_zero_f32", "f=ff", mul_dx9),
    V("v_fma_f32", "f=fff", fma_),
    V("v_fmac_f32", "f=ff+", fma_),
    V("v_fmaak_f32", "f=fff", fma_),
    V("v_fmamk_f32", "f=fff", fma_),
    V("v_fma_dx9_zero_f32", "f=fff", fma_dx9),
    D("v_dual_add_f32", "f=ff", add),
    D("v_dual_sub_f32", "f=ff", sub),
    D("v_dual_subrev_f32", "f=ff", subrev),
    D("v_dual_mul_f32", "f=ff", mul),
    D("v_dual_mul_dx9_zero_f32", "f=ff", mul_dx9),
    D("v_dual_fmac_f32", "f=ff+", fma_),
    D("v_dual_fmaak_f32", "f=fff", fma_),
    D("v_dual_fmamk_f32", "f=fff", fma_),
    D("v_dual_max_num_f32", "f=ff", max_),
    D("v_dual_min_num_f32", "f=ff", min_),
    V("v_min_num_f32", "f=ff", min_),
    V("v_max_num_f32", "f=ff", max_),
    V("v_minimum_f32", "f=ff", minimum_),
    V("v_maximum_f32", "f=ff", maximum_),
    V("v_min3_num_f32", "f=fff", min3),
    V("v_max3_num_f32", "f=fff", max3),
    V("v_med3_num_f32", "f=fff", med3_),
    V("v_minmax_num_f32", "f=fff", minmax),
    V("v_maxmin_num_f32", "f=fff", maxmin),
    V("v_minimum3_f32", "f=fff", minimum3),
    V("v_maximum3_f32", "f=fff", maximum3),
    V("v_minimummaximum_f32", "f=fff", minimummaximum),
    V("v_maximumminimum_f32", "f=fff", maximumminimum),
    V("v_floor_f32", "f=f", floor_),
    V("v_ceil_f32", "f=f", ceil_),
    V("v_trunc_f32", "f=f", trunc_),
    V("v_rndne_f32", "f=f", rndne_),
    V("v_fract_f32", "f=f", fract_),
    V("v_ldexp_f32", "f=fu", ldexp_),
    V("v_frexp_exp_i32_f32", "u=f", frexp_exp_),
    V("v_frexp_mant_f32", "f=f", frexp_mant_),
    T("v_rcp_f32", "f=f", rcp),
    T("v_rcp_iflag_f32", "f=f", rcp),
    T("v_rsq_f32", "f=f", rsq),
    T("v_sqrt_f32", "f=f", sqrt_),
    T("v_exp_f32", "f=f", exp_),
    T("v_log_f32", "f=f", log_),
    T("v_sin_f32", "f=f", sin_),
    T("v_cos_f32", "f=f", cos_),
    V("v_div_scale_f32", "fm=fff", div_scale),
    {"v_div_fmas_f32", "f=fff", gs_valu_exec, div_fmas, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_READS_VCC, 0},
    V("v_div_fixup_f32", "f=fff", div_fixup),
    V("v_mullit_f32", "f=fff", mullit),
    {0}};
