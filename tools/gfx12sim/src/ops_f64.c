// SPDX-License-Identifier: Apache-2.0
// Double-precision vector arithmetic: IEEE-754 in the host's rounding mode. Reciprocal and root instructions
// are approximations on hardware; here they are correctly rounded.
#include "isa.h"

static inline double dmin(double x, double y) {
    if (x != x) return y != y ? x + y : y;
    if (y != y) return x;
    return x < y ? x : y < x ? y : gs_f64(gs_bits64(x) | gs_bits64(y));
}
static inline double dmax(double x, double y) {
    if (x != x) return y != y ? x + y : y;
    if (y != y) return x;
    return x > y ? x : y > x ? y : gs_f64(gs_bits64(x) & gs_bits64(y));
}
static inline double dminimum(double x, double y) { return x != x || y != y ? x + y : dmin(x, y); }
static inline double dmaximum(double x, double y) { return x != x || y != y ? x + y : dmax(x, y); }
static inline double drndne(double x) {
    double t = trunc(x), f = fabs(x - t);
    bool up = f > 0.5 || (f == 0.5 && fmod(t, 2.0) != 0);
    return copysign(up ? t + copysign(1.0, x) : t, x);
}
static inline double dfract(double x) {
    double r = x - floor(x);
    return r >= 1.0 ? 0x1.fffffffffffffp-1 : r;
}
static inline double dmant(double x) {
    int e;
    return x != 0 && isfinite(x) ? frexp(x, &e) : x;
}

#define D_FN(name, expr)                                                                                       \
    LANE_FN(name) {                                                                                            \
        (void)w;                                                                                               \
        for (int i = 0; i < GS_LANES; i++) {                                                                   \
            double x = gs_f64(lane64(a, i)), y = op->nsrc > 1 ? gs_f64(lane64(b, i)) : 0, z = op->nsrc > 2 ? gs_f64(lane64(c, i)) : 0; \
            (void)x, (void)y, (void)z;                                                                         \
            set64(d, i, gs_bits64(expr));                                                                      \
        }                                                                                                      \
        return 0;                                                                                              \
    }
D_FN(add, x + y)
D_FN(mul, x *y)
D_FN(fma_, fma(x, y, z))
D_FN(min_, dmin(x, y))
D_FN(max_, dmax(x, y))
D_FN(minimum_, dminimum(x, y))
D_FN(maximum_, dmaximum(x, y))
D_FN(floor_, floor(x))
D_FN(ceil_, ceil(x))
D_FN(trunc_, trunc(x))
D_FN(rndne_, drndne(x))
D_FN(fract_, dfract(x))
D_FN(mant_, dmant(x))
D_FN(rcp, 1.0 / x)
D_FN(rsq, 1.0 / sqrt(x))
D_FN(sqrt_, sqrt(x))

LANE_FN(ldexp_) {
    for (int i = 0; i < GS_LANES; i++) set64(d, i, gs_bits64(ldexp(gs_f64(lane64(a, i)), (i32)b[i])));
    (void)c, (void)w, (void)op;
    return 0;
}
LANE_FN(exponent) {
    for (int i = 0; i < GS_LANES; i++) {
        double x = gs_f64(lane64(a, i));
        int e = 0;
        if (x != 0 && isfinite(x)) (void)frexp(x, &e);
        d[i] = (u32)e;
    }
    (void)b, (void)c, (void)w, (void)op;
    return 0;
}

static i32 exponent_of(double x) { return (i32)(gs_bits64(x) >> 52 & 2047); }
static bool tiny(double x) { return x != 0 && fabs(x) < 0x1p-1022; }

LANE_FN(div_scale) {
    u32 vcc = 0;
    for (int i = 0; i < GS_LANES; i++) {
        u64 s0 = lane64(a, i), s1 = lane64(b, i), s2 = lane64(c, i);
        double x = gs_f64(s0), den = gs_f64(s1), num = gs_f64(s2), r = x;
        bool flag = false;
        if (den == 0 || num == 0) r = NAN;
        else if (exponent_of(num) - exponent_of(den) >= 768) {
            flag = true;
            if (s0 == s1) r = ldexp(x, 128);
        } else if (tiny(den)) r = ldexp(x, 128);
        else if (tiny(1.0 / den) && tiny(num / den)) {
            flag = true;
            if (s0 == s1) r = ldexp(x, -128);
        } else if (tiny(1.0 / den)) r = ldexp(x, -128);
        else if (tiny(num / den)) {
            flag = true;
            if (s0 == s2) r = ldexp(x, 128);
        } else if (exponent_of(num) <= 53) r = ldexp(x, 128);
        set64(d, i, gs_bits64(r));
        vcc |= (u32)flag << i;
    }
    (void)w, (void)op;
    return vcc;
}
LANE_FN(div_fmas) {
    u32 vcc = w->s[SGPR_VCC];
    for (int i = 0; i < GS_LANES; i++) {
        double z = gs_f64(lane64(c, i)), r = fma(gs_f64(lane64(a, i)), gs_f64(lane64(b, i)), z);
        if (vcc >> i & 1) r = ldexp(r, exponent_of(z) > 1023 ? 128 : -128);
        set64(d, i, gs_bits64(r));
    }
    (void)op;
    return 0;
}
LANE_FN(div_fixup) {
    for (int i = 0; i < GS_LANES; i++) {
        u64 q = lane64(a, i), bd = lane64(b, i), bn = lane64(c, i), sign = (bd ^ bn) & 1ull << 63, r;
        double den = gs_f64(bd), num = gs_f64(bn);
        if (num != num) r = bn | 1ull << 51;
        else if (den != den) r = bd | 1ull << 51;
        else if ((num == 0 && den == 0) || (isinf(num) && isinf(den))) r = 0xfff8000000000000;
        else if (den == 0 || isinf(num)) r = sign | 0x7ff0000000000000;
        else if (isinf(den) || num == 0) r = sign;
        else if (exponent_of(num) - exponent_of(den) < -1075) r = sign;
        else if (gs_f64(q) != gs_f64(q)) r = sign | 0x7ff0000000000000; // the steps overflowed
        else r = (q & ~(1ull << 63)) | sign;
        set64(d, i, r);
    }
    (void)w, (void)op;
    return 0;
}

#define V(name, sig, fn, ...) {name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_F16_DENORM | (0 __VA_ARGS__), 0}
#define T(name, sig, fn)      {name, sig, gs_valu_exec, fn, NULL, GS_CLASS_TRANS, 0, ROW_VALU | ROW_F16_DENORM, 0}
const gs_row GS_SYM(gs_rows_f64)[] = {
    V("v_add_f64", "F=FF", add), V("v_mul_f64", "F=FF", mul), V("v_fma_f64", "F=FFF", fma_), V("v_min_num_f64", "F=FF", min_), V("v_max_num_f64", "F=FF", max_),
    V("v_minimum_f64", "F=FF", minimum_), V("v_maximum_f64", "F=FF", maximum_), V("v_floor_f64", "F=F", floor_), V("v_ceil_f64", "F=F", ceil_), V("v_trunc_f64", "F=F", trunc_),
    V("v_rndne_f64", "F=F", rndne_), V("v_fract_f64", "F=F", fract_), V("v_frexp_mant_f64", "F=F", mant_), V("v_frexp_exp_i32_f64", "u=F", exponent), V("v_ldexp_f64", "F=Fu", ldexp_),
    T("v_rcp_f64", "F=F", rcp), T("v_rsq_f64", "F=F", rsq), T("v_sqrt_f64", "F=F", sqrt_),
    V("v_div_scale_f64", "Fm=FFF", div_scale), V("v_div_fmas_f64", "F=FFF", div_fmas, | ROW_READS_VCC), V("v_div_fixup_f64", "F=FFF", div_fixup),
    {0}};
