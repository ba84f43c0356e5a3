// SPDX-License-Identifier: Apache-2.0
// Scalar floats of the scalar ALU: IEEE-754 in the host's rounding mode, which follows MODE. 16-bit results
// clear the upper half of the destination.
// Tables and formulas stand one a line: wrapped they cannot be compared by eye.
// clang-format off
#include <math.h>
#include "simd.h"

static float fmin_num(float x, float y) {
    if (x != x) return y != y ? x + y : y;
    if (y != y) return x;
    return x < y ? x : y < x ? y : gs_f32(gs_bits(x) | gs_bits(y));
}
static float fmax_num(float x, float y) {
    if (x != x) return y != y ? x + y : y;
    if (y != y) return x;
    return x > y ? x : y > x ? y : gs_f32(gs_bits(x) & gs_bits(y));
}
static float minimum(float x, float y) {
    return x != x || y != y ? x + y : fmin_num(x, y);
}
static float maximum(float x, float y) {
    return x != x || y != y ? x + y : fmax_num(x, y);
}
static float rndne(float x) {
    float t = truncf(x), f = fabsf(x - t);
    bool up = f > 0.5f || (f == 0.5f && fmodf(t, 2.0f) != 0);
    return copysignf(up ? t + copysignf(1.0f, x) : t, x);
}
static u32 to_i32(float x) {
    return (u32)(x != x ? 0 : x <= -2147483648.0f ? INT32_MIN : x >= 2147483648.0f ? INT32_MAX : (i32)x);
}
static u32 to_u32(float x) {
    return !(x > 0) ? 0 : x >= 4294967296.0f ? UINT32_MAX : (u32)x;
}
static u32 half_rtz(float x) {
    u32 bits = gs_bits(x), h = gs_f32_to_f16_scalar(x);
    if ((bits & 0x7fffffff) >= 0x7f800000) return h;
    if ((h & 0x7fff) == 0x7c00) return (h & 0x8000) | 0x7bff;
    return fabsf(gs_f16_to_f32_scalar(h)) > fabsf(x) ? h - 1 : h;
}
// Nearest-even only; the other modes of a half result are taken from the double that is exact for one operation.
static u32 round_half(const gs_wave *w, double exact) {
    u32 mode = w->mode >> 2 & 3;
    // Round to odd in float keeps the last rounding honest (24 bits against 11).
    float f = (float)exact;
    if ((double)f != exact && isfinite(f)) {
        u32 bits = gs_bits(f);
        if (fabs((double)f) > fabs(exact)) bits--; // towards zero
        f = gs_f32(bits | 1);
    }
    u32 h = gs_f32_to_f16_scalar(f);
    if (mode == 0 || !isfinite(f)) return h;
    double got = (double)gs_f16_to_f32_scalar(h);
    bool away = fabs(got) > fabs((double)f), negative = h >> 15;
    if (mode == 3) return away ? h - 1 : h;
    bool want_away = (mode == 1) != negative; // +inf rounds positives away, -inf negatives
    if (want_away) return fabs(got) < fabs((double)f) ? h + 1 : h;
    return away ? h - 1 : h;
}

#define FN(name, ...)                                                                                        \
    static u64 name(gs_wave *w, const gs_op *op, u64 a, u64 b) {                                             \
        float x = gs_f32((u32)a), y = gs_f32((u32)b), hx = gs_f16_to_f32_scalar((u32)a & 0xffff),            \
              hy = gs_f16_to_f32_scalar((u32)b & 0xffff);                                                    \
        (void)w, (void)op, (void)x, (void)y, (void)hx, (void)hy;                                             \
        __VA_ARGS__;                                                                                         \
    }
#define F32(name, expr)       FN(name, return gs_bits(expr))
#define F16(name, expr)       FN(name, return round_half(w, (expr)))
#define CMP(name, u, v, expr) FN(name, float p = u, q = v; (void)p, (void)q; w->scc = (expr); return 0)

F32(add, x + y)
F32(sub, x - y)
F32(mul, x *y)
F32(min_, fmin_num(x, y)) F32(max_, fmax_num(x, y)) F32(minimum_, minimum(x, y)) F32(maximum_, maximum(x, y))
    F32(ceil_, ceilf(x)) F32(floor_, floorf(x)) F32(trunc_, truncf(x)) F32(rndne_, rndne(x))
        F32(f32_i32, (float)(i32)(u32)a) F32(f32_u32, (float)(u32)a) F32(f32_f16, hx)
            F32(hi_f32_f16, gs_f16_to_f32_scalar((u32)a >> 16))
                F32(fmac, fmaf(x, y, gs_f32(w->s[op->dst.reg])))
                    F32(fma3, fmaf(x, y, gs_f32((u32)gs_scalar_get(w, &op->src[2]))))
                        FN(i32_f32, return to_i32(x)) FN(u32_f32, return to_u32(x))
                            FN(f16_f32, return round_half(w, (double)x))
                                FN(pk_rtz, return half_rtz(x) | half_rtz(y) << 16) F16(add16, (double)hx + hy)
                                    F16(sub16, (double)hx - hy) F16(mul16, (double)hx *hy)
                                        F16(min16, fmin_num(hx, hy)) F16(max16, fmax_num(hx, hy))
                                            F16(minimum16, minimum(hx, hy)) F16(maximum16, maximum(hx, hy))
                                                F16(ceil16, ceilf(hx)) F16(floor16, floorf(hx))
                                                    F16(trunc16, truncf(hx)) F16(rndne16, rndne(hx))
    // Product of halves exact in double; the sum rounded to odd by hand through its error term.
    FN(fmac16, double p = (double)hx * hy, z = gs_f16_to_f32_scalar(w->s[op->dst.reg] & 0xffff), s = p + z,
       back = s - p, e = (p - (s - back)) + (z - back);
       u64 bits = gs_bits64(s);
       if (e != 0 && isfinite(s) && !(bits & 1)) bits += (e > 0) == (s > 0) ? 1 : ~0ull;
       return round_half(w, gs_f64(bits)))

#define RELATIONS(X, s, left, right)                                                                         \
    X(lt, s, left, right, p < q)                                                                             \
    X(eq, s, left, right, p == q)                                                                            \
    X(le, s, left, right, p <= q)                                                                            \
    X(gt, s, left, right, p > q) X(lg, s, left, right, p<q || p> q) X(ge, s, left, right, p >= q)            \
        X(o, s, left, right, p == p && q == q) X(u, s, left, right, p != p || q != q)                        \
            X(nge, s, left, right, !(p >= q)) X(nlg, s, left, right, !(p < q || p > q))                      \
                X(ngt, s, left, right, !(p > q)) X(nle, s, left, right, !(p <= q))                           \
                    X(neq, s, left, right, !(p == q)) X(nlt, s, left, right, !(p < q))
#define MAKE(rel, s, u, v, expr) CMP(rel##_##s, u, v, expr)
        RELATIONS(MAKE, f32, x, y) RELATIONS(MAKE, f16, hx, hy)

            static gs_stop salu_float(gs_wave *w, const gs_op *op) {
    u64 a = gs_scalar_get(w, &op->src[0]), b = op->nsrc > 1 ? gs_scalar_get(w, &op->src[1]) : 0;
    u64 r = op->row->scalar(w, op, a, b);
    if (op->ndst) gs_scalar_set(w, op->dst.reg, (u32)r);
    return GS_RUN;
}

#define R(name, sig, fn)                                                                                     \
    { name, sig, salu_float, NULL, fn, GS_CLASS_SALU, 0, ROW_SALU, 0 }
#define ROW32(rel, s, u, v, expr) R("s_cmp_" #rel "_f32", "=tt", rel##_f32),
#define ROW16(rel, s, u, v, expr) R("s_cmp_" #rel "_f16", "=TT", rel##_f16),
const gs_row gs_rows_sfloat[] = {R("s_add_f32", "t=tt", add),
                                 R("s_sub_f32", "t=tt", sub),
                                 R("s_mul_f32", "t=tt", mul),
                                 R("s_min_num_f32", "t=tt", min_),
                                 R("s_max_num_f32", "t=tt", max_),
                                 R("s_minimum_f32", "t=tt", minimum_),
                                 R("s_maximum_f32", "t=tt", maximum_),
                                 R("s_ceil_f32", "t=t", ceil_),
                                 R("s_floor_f32", "t=t", floor_),
                                 R("s_trunc_f32", "t=t", trunc_),
                                 R("s_rndne_f32", "t=t", rndne_),
                                 R("s_fmac_f32", "t=tt+", fmac),
                                 R("s_fmaak_f32", "t=ttt", fma3),
                                 R("s_fmamk_f32", "t=ttt", fma3),
                                 R("s_cvt_f32_i32", "t=s", f32_i32),
                                 R("s_cvt_f32_u32", "t=s", f32_u32),
                                 R("s_cvt_i32_f32", "s=t", i32_f32),
                                 R("s_cvt_u32_f32", "s=t", u32_f32),
                                 R("s_cvt_f16_f32", "T=t", f16_f32),
                                 R("s_cvt_f32_f16", "t=T", f32_f16),
                                 R("s_cvt_hi_f32_f16", "t=T", hi_f32_f16),
                                 R("s_cvt_pk_rtz_f16_f32", "s=tt", pk_rtz),
                                 R("s_add_f16", "T=TT", add16),
                                 R("s_sub_f16", "T=TT", sub16),
                                 R("s_mul_f16", "T=TT", mul16),
                                 R("s_min_num_f16", "T=TT", min16),
                                 R("s_max_num_f16", "T=TT", max16),
                                 R("s_minimum_f16", "T=TT", minimum16),
                                 R("s_maximum_f16", "T=TT", maximum16),
                                 R("s_ceil_f16", "T=T", ceil16),
                                 R("s_floor_f16", "T=T", floor16),
                                 R("s_trunc_f16", "T=T", trunc16),
                                 R("s_rndne_f16", "T=T", rndne16),
                                 R("s_fmac_f16", "T=TT+", fmac16),
                                 RELATIONS(ROW32, f32, , ) RELATIONS(ROW16, f16, , ){0}};
