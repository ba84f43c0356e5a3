// SPDX-License-Identifier: Apache-2.0
// Runs every case of the .def files: an instruction and its scalar formula. Inputs cover IEEE edge values, halves,
// integers and random bits, under full and random EXEC masks (inactive lanes must keep their old value), on both
// vector instruction sets. The seed is printed.
// Tables and formulas stand one a line: wrapped they cannot be compared by eye.
// clang-format off
#include "snippet.h"
#include "mutants.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>


typedef enum what { W_NONE, W_U32, W_U64, W_F32, W_ULP, W_F64, W_H, W_HH, W_U16, W_U16H, W_PK, W_HULP } what;
typedef struct expect {
    what kind;
    u64 value;
    u32 ulps;
    int mask60, vcc, exec; // -1: not looked at; else this lane's bit
    bool scalar, wide;     // s60 or s60:61
    u64 svalue;
    int scc;               // -1: not looked at
    bool sfloat, shalf;
} expect;

static u32 fbits(float f) { u32 u; memcpy(&u, &f, 4); return u; }
static u64 dbits(double d) { u64 u; memcpy(&u, &d, 8); return u; }
static float f32(u32 u) { float f; memcpy(&f, &u, 4); return f; }
static double f64(u64 u) { double d; memcpy(&d, &u, 8); return d; }
static bool nan_bits(u32 v) { return (v & 0x7fffffff) > 0x7f800000; }
static double lo16(u32 w) { return half_value(w & 0xffff); }
static double hi16(u32 w) { return half_value(w >> 16); }
static u32 as_half(__float128 v) { return nearest_half(v); }
static float bf(u32 h) { return f32(h << 16); }

// Formulas that several cases share; each written from the definition, one value at a time.
static double dmin(double a, double b) { return a != a ? b : b != b ? a : (a == 0 && b == 0) ? (signbit(a) ? a : b) : a < b ? a : b; }
static double dmax(double a, double b) { return a != a ? b : b != b ? a : (a == 0 && b == 0) ? (signbit(a) ? b : a) : a > b ? a : b; }
static double dminp(double a, double b) { return a != a || b != b ? NAN : dmin(a, b); }
static double dmaxp(double a, double b) { return a != a || b != b ? NAN : dmax(a, b); }
static double dmed(double a, double b, double c) {
    if (a != a || b != b || c != c) return dmin(dmin(a, b), c);
    if (dmax(dmax(a, b), c) == a) return dmax(b, c);
    return dmax(dmax(a, b), c) == b ? dmax(a, c) : dmax(a, b);
}
static i64 med3(i64 a, i64 b, i64 c) { return a > b ? (b > c ? b : a > c ? c : a) : (a > c ? a : b > c ? c : b); }
static i64 imin(i64 a, i64 b) { return a < b ? a : b; }
static i64 imax(i64 a, i64 b) { return a > b ? a : b; }
static i64 bound(i64 v, i64 lo, i64 hi) { return v < lo ? lo : v > hi ? hi : v; }
static u32 bit_field(u64 v, u32 at, u32 n) { u32 r = 0; for (u32 i = 0; i < n; i++) r |= (u32)(v >> (at + i > 63 ? 63 : at + i) & 1) << i; return r; }
static i64 sign_ext(u64 v, u32 bits) { return bits == 0 ? 0 : bits >= 64 ? (i64)v : (i64)((v & ((1ull << bits) - 1)) ^ (1ull << (bits - 1))) - (i64)(1ull << (bits - 1)); }
static u32 byte_of(u64 pair, u32 sel) {
    if (sel >= 13) return 255;
    if (sel == 12) return 0;
    if (sel >= 8) return (i64)(pair << (48 - 16 * (sel - 8))) < 0 ? 255 : 0;
    return (u32)(pair >> 8 * sel) & 255;
}
static u32 count_bits(u64 v) { u32 n = 0; for (; v; v &= v - 1) n++; return n; }
static i32 leading(u64 v, u32 bits, bool one) { for (u32 i = 0; i < bits; i++) if ((v >> (bits - 1 - i) & 1) == one) return (i32)i; return -1; }
static i32 trailing(u64 v, u32 bits) { for (u32 i = 0; i < bits; i++) if (v >> i & 1) return (i32)i; return -1; }
static i32 sign_leading(u64 v, u32 bits) { return leading(v, bits, !(v >> (bits - 1) & 1)); }
static u64 mirror(u64 v, u32 bits) { u64 r = 0; for (u32 i = 0; i < bits; i++) if (v >> i & 1) r |= 1ull << (bits - 1 - i); return r; }
static double even(double v) { double r = floor(v), d = v - r; return copysign(d < 0.5 ? r : d > 0.5 ? r + 1 : fmod(r, 2) == 0 ? r : r + 1, v); }
static i64 to_int(double v, double lo, double hi) { return v != v ? 0 : v <= lo ? (i64)lo : v >= hi ? (i64)hi : (i64)v; }
static double fractf_(double v, double top) { double r = v - floor(v); return isinf(v) || v != v ? NAN : r > top ? top : r; }
static double mant(double v) { int e; return v == 0 || v != v || isinf(v) ? v : frexp(v, &e); }
static i32 expo(double v) { int e = 0; if (v != 0 && v == v && !isinf(v)) (void)frexp(v, &e); return e; }
static u32 class_of(double v, bool quiet, double least) {
    bool n = signbit(v);
    if (v != v) return quiet ? 2 : 1;
    if (isinf(v)) return n ? 4 : 512;
    if (v == 0) return n ? 32 : 64;
    if (fabs(v) < least) return n ? 16 : 128;
    return n ? 8 : 256;
}
static double flush(double v) { return fabs(v) < 0x1p-126 ? copysign(0.0, v) : v; }
static i64 dot(u32 a, u32 b, u32 bits, bool sa, bool sb) {
    i64 sum = 0;
    for (u32 i = 0; i < 32; i += bits) {
        u32 p = a >> i & ((1u << bits) - 1), q = b >> i & ((1u << bits) - 1);
        sum += (sa ? sign_ext(p, bits) : (i64)p) * (sb ? sign_ext(q, bits) : (i64)q);
    }
    return sum;
}
static u32 round_bf16(float v) { // nearest by search
    if (v != v) return 0x7fc0;
    u32 t = fbits(v) >> 16;
    double below = bf(t), above = bf(t + 1), x = v;
    if (isinf(v)) return t;
    if (isinf(bf(t + 1))) above = copysign(0x1p128, x);
    double da = fabs(x - below), db = fabs(above - x);
    return da < db ? t : db < da ? t + 1 : t & 1 ? t + 1 : t;
}
// Nearest code by search over all finite codes; ties to the even code.
static u32 round_f8(float v, double (*value)(u32), u32 max_code, u32 over, double limit) {
    u32 sign = signbit(v) ? 0x80 : 0, best = 0;
    if (v != v) return sign | 0x7f;
    double x = fabs((double)v);
    if (x > limit) return sign | over;
    for (u32 c = 1; c <= max_code; c++) {
        double d = fabs(value(c) - x), b = fabs(value(best) - x);
        if (d < b || (d == b && !(c & 1))) best = c;
    }
    return sign | best;
}
static u32 round_fp8(float v) { return round_f8(v, fp8_value, 0x7e, 0x7f, 464); }
static u32 round_bf8(float v) { u32 r = round_f8(v, bf8_value, 0x7b, 0x7c, 61439.999); return v != v ? r : r; }
static u32 sad(u32 a, u32 b, bool masked) { u32 s = 0; for (int i = 0; i < 4; i++) { i32 p = a >> 8 * i & 255, q = b >> 8 * i & 255; if (!masked || q) s += (u32)abs(p - q); } return s; }
static u32 rtz_half(float v) {
    u32 h = nearest_half(v);
    if (v != v || isinf(v)) return h;
    if ((h & 0x7fff) == 0x7c00) return h - 1;
    return fabs(half_value(h)) > fabs((double)v) ? h - 1 : h;
}
static u32 trunc_f8(double v, double (*value)(u32), u32 max_code) { u32 c = 0; while (c < max_code && value(c + 1) <= v) c++; return c; }
static u64 spread(u32 v) { u64 r = 0; for (u32 i = 0; i < 64; i++) r |= (u64)(v >> i / 2 & 1) << i; return r; }
static u64 quads(u64 v) { u64 r = 0; for (u32 i = 0; i < 16; i++) if (v / (1ull << 4 * i) % 16) r |= 1ull << i; return r; }
static u64 whole_quads(u64 v) { u64 r = 0; for (u32 i = 0; i < 64; i++) if (v >> i / 4 * 4 & 15) r |= 1ull << i; return r; }
static u64 field64(u64 v, u32 at, u32 n, bool is_signed) {
    u64 r = 0;
    for (u32 i = 0; i < 64; i++) {
        u32 from = at + (i < n ? i : n - 1);
        bool bit = (n && (i < n || is_signed)) && (from < 64 ? v >> from & 1 : is_signed && v >> 63);
        r |= (u64)bit << i;
    }
    return r;
}
// Quieted payloads of a packed conversion with a NaN: sign, all-ones exponent, quiet bit, top payload bits.
static u32 nan_half(u32 f) { return nan_bits(f) ? (f >> 16 & 0x8000) | 0x7e00 | (f >> 13 & 0x3ff) : rtz_half(f32(f)); }
static u32 pk_nan(float x, float y, const u32 *s) { (void)x, (void)y; return nan_half(s[0]) | nan_half(s[1]) << 16; }
enum { BF16_NAN = 0x7fff }; // stands for any NaN
static u32 bf_or(float v) { return v != v ? BF16_NAN : round_bf16(v); }
// bf16 sums of both halves; a NaN sum keeps the payload that the float addition gives.
static u32 bf_sum(u32 a, u32 b) { volatile float p = bf(a), q = bf(b), r = p + q; return r != r ? (fbits(r) >> 16 | 0x40) : round_bf16(r); }
static u32 bf_pair(u32 a, u32 b) { return bf_sum(a & 0xffff, b & 0xffff) | bf_sum(a >> 16, b >> 16) << 16; }
// Transposing load: elements j and j+1 of lane l are halves l%8 of the lanes 8*(l/8)+j and +j+1.
static u32 tr_pair(const u32 (*wave)[SNIPPET_WORDS], u32 lane, u32 j) {
    u32 h = lane % 8, from = lane / 8 * 8 + j, shift = 16 * (h % 2);
    return (wave[from][h / 2] >> shift & 0xffff) | (wave[from + 1][h / 2] >> shift & 0xffff) << 16;
}
static float dot8(u32 a, u32 b, float z, double (*va)(u32), double (*vb)(u32)) {
    for (int i = 0; i < 4; i++) z = fmaf((float)va(a >> 8 * i & 255), (float)vb(b >> 8 * i & 255), z);
    return z;
}
// The sum rounded in a direction: the nearest float, one step back when it lies on the wrong side. The error of
// the nearest sum is itself a float (Dekker).
static float toward(int direction, float a, float b) {
    volatile float n = a + b, big = fabsf(a) >= fabsf(b) ? a : b, small = fabsf(a) >= fabsf(b) ? b : a, back = n - big, error = small - back;
    if (n != n || isinf(a) || isinf(b)) return n;
    if (isinf(n)) return direction == 0 || (direction > 0) != (n > 0) ? nextafterf(n, 0) : n;
    if (n == 0 && error == 0 && !(a == 0 && b == 0 && signbit(a) == signbit(b))) return direction < 0 ? -0.0f : 0.0f;
    if (direction == 0) return error != 0 && (error > 0) != (n > 0) ? nextafterf(n, 0) : n;
    if (direction > 0) return error > 0 ? nextafterf(n, INFINITY) : n;
    return error < 0 ? nextafterf(n, -INFINITY) : n;
}
static double half_clamp(double v) { return v > 0 ? (v < 1 ? v : 1) : 0; }

static const char *const lines[] = {
#define CASE_LINE(text) text,
#define U(text, ...)          CASE_LINE(text)
#define UC(text, a, b)        CASE_LINE(text)
#define UV(text, a, b)        CASE_LINE(text)
#define W(text, ...)          CASE_LINE(text)
#define WC(text, a, b)        CASE_LINE(text)
#define F(text, ...)          CASE_LINE(text)
#define FULP(text, n, ...)    CASE_LINE(text)
#define FC(text, a, b)        CASE_LINE(text)
#define D(text, ...)          CASE_LINE(text)
#define DC(text, a, b)        CASE_LINE(text)
#define H(text, ...)          CASE_LINE(text)
#define HH(text, ...)         CASE_LINE(text)
#define HULP(text, n, ...)    CASE_LINE(text)
#define U16(text, ...)        CASE_LINE(text)
#define U16H(text, ...)       CASE_LINE(text)
#define PK(text, a, b)        CASE_LINE(text)
#define M(text, ...)          CASE_LINE(text)
#define MV(text, ...)         CASE_LINE(text)
#define MX(text, ...)         CASE_LINE(text)
#define S(text, ...)          CASE_LINE(text)
#define SC(text, a, b)        CASE_LINE(text)
#define SW(text, ...)         CASE_LINE(text)
#define SWC(text, a, b)       CASE_LINE(text)
#define SF(text, ...)         CASE_LINE(text)
#define SH(text, ...)         CASE_LINE(text)
#define CC(text, ...)         CASE_LINE(text)
#define SX(text, a, b, c)     CASE_LINE(text)
#include "cases.inc"
};
#include "undef.inc"

enum { CASE_COUNT = sizeof lines / sizeof *lines, BASE = __COUNTER__ + 1 };

typedef struct context {
    const u32 *in, *s;
    u32 lane, exec, vcc, scc;
    const u32 (*wave_in)[SNIPPET_WORDS];
} context;

static void formula(size_t index, const context *c, expect *e) {
    const u32 *in = c->in, *s = c->s, lane = c->lane, exec = c->exec, vcc = c->vcc, scc = c->scc;
    const u32 x = in[0], y = in[1], z = in[2], q = in[3], old = in[12], vb = vcc >> lane & 1;
    const u64 X = in[4] | (u64)in[5] << 32, Y = in[6] | (u64)in[7] << 32, Z = in[8] | (u64)in[9] << 32, OLD = in[12] | (u64)in[13] << 32;
    const float fx = f32(x), fy = f32(y), fz = f32(z), fold = f32(old);
    const double dx = f64(X), dy = f64(Y), dz = f64(Z), hx = lo16(x), hy = lo16(y), hz = lo16(z), hxh = hi16(x), hyh = hi16(y), hzh = hi16(z), hold = lo16(old), holdh = hi16(old);
    const u32 xl = x & 0xffff, yl = y & 0xffff, zl = z & 0xffff, xh = x >> 16, yh = y >> 16, zh = z >> 16;
    const i32 ix = (i32)x, iy = (i32)y, iz = (i32)z, sxl = (int16_t)xl, syl = (int16_t)yl, szl = (int16_t)zl, sxh = (int16_t)xh, syh = (int16_t)yh, szh = (int16_t)zh;
    const u32 a = s[0], b = s[1], d = s[10];
    const i32 ia = (i32)a, ib = (i32)b;
    const u64 A = s[4] | (u64)s[5] << 32, B = s[6] | (u64)s[7] << 32, DD = s[10] | (u64)s[11] << 32;
    const float fa = f32(a), fb = f32(b), fc = f32(s[2]), fd = f32(d);
    const double ha = lo16(a), hb = lo16(b), hd = lo16(d);
    (void)q, (void)vb, (void)Z, (void)OLD, (void)fz, (void)fold, (void)dz, (void)hold, (void)holdh, (void)hzh, (void)zh, (void)szl, (void)szh, (void)fc, (void)fd, (void)hd, (void)DD, (void)exec, (void)scc, (void)zl;
    (void)xh, (void)yh, (void)sxh, (void)syh, (void)ia, (void)ib, (void)iz, (void)hz, (void)B, (void)fa, (void)fb, (void)ha, (void)hb, (void)A, (void)iy;
    memset(e, 0, sizeof *e);
    e->mask60 = e->vcc = e->exec = e->scc = -1;
    switch (index) {
#define CASE(...) case __COUNTER__ - BASE: __VA_ARGS__; break;
#define SETV(k, val)  e->kind = k, e->value = (val)
#define U(text, ...)       CASE(SETV(W_U32, (u32)(__VA_ARGS__)))
#define UC(text, v, m)     CASE(SETV(W_U32, (u32)(v)), e->mask60 = (m) != 0)
#define UV(text, v, m)     CASE(SETV(W_U32, (u32)(v)), e->vcc = (m) != 0)
#define W(text, ...)       CASE(SETV(W_U64, (u64)(__VA_ARGS__)))
#define WC(text, v, m)     CASE(SETV(W_U64, (u64)(v)), e->mask60 = (m) != 0)
#define F(text, ...)       CASE(SETV(W_F32, fbits((float)(__VA_ARGS__))))
#define FULP(text, n, ...) CASE(SETV(W_ULP, fbits((float)(__VA_ARGS__))), e->ulps = n)
#define FC(text, v, m)     CASE(SETV(W_F32, fbits((float)(v))), e->mask60 = (m) != 0)
#define D(text, ...)       CASE(SETV(W_F64, dbits(__VA_ARGS__)))
#define DC(text, v, m)     CASE(SETV(W_F64, dbits(v)), e->mask60 = (m) != 0)
#define H(text, ...)       CASE(SETV(W_H, as_half(__VA_ARGS__)))
#define HH(text, ...)      CASE(SETV(W_HH, as_half(__VA_ARGS__)))
#define HULP(text, n, ...) CASE(SETV(W_HULP, as_half(__VA_ARGS__)), e->ulps = n)
#define U16(text, ...)     CASE(SETV(W_U16, (u32)(__VA_ARGS__) & 0xffff))
#define U16H(text, ...)    CASE(SETV(W_U16H, (u32)(__VA_ARGS__) & 0xffff))
#define PK(text, l, h)     CASE(SETV(W_PK, (u32)as_half(l) | (u32)as_half(h) << 16))
#define M(text, ...)       CASE(e->mask60 = (__VA_ARGS__) != 0)
#define MV(text, ...)      CASE(e->vcc = (__VA_ARGS__) != 0)
#define MX(text, ...)      CASE(e->exec = (__VA_ARGS__) != 0)
#define S(text, ...)       CASE(e->scalar = true, e->svalue = (u32)(__VA_ARGS__), e->scc = (i32)scc)
#define SC(text, v, f)     CASE(e->scalar = true, e->svalue = (u32)(v), e->scc = (f) != 0)
#define SW(text, ...)      CASE(e->scalar = e->wide = true, e->svalue = (u64)(__VA_ARGS__), e->scc = (i32)scc)
#define SWC(text, v, f)    CASE(e->scalar = e->wide = true, e->svalue = (u64)(v), e->scc = (f) != 0)
#define SF(text, ...)      CASE(e->scalar = e->sfloat = true, e->svalue = fbits((float)(__VA_ARGS__)))
#define SH(text, ...)      CASE(e->scalar = e->shalf = true, e->svalue = as_half(__VA_ARGS__))
#define CC(text, ...)      CASE(e->scc = (__VA_ARGS__) != 0)
#define SX(text, v, f, ex) CASE(e->scalar = true, e->svalue = (u32)(v), e->scc = (f) != 0, e->exec = (int)((u32)(ex) >> lane & 1))
#include "cases.inc"
    default: fail_msg("case %zu has no formula", index);
    }
}
#include "undef.inc"

static bool nan32(u32 v) { return (v & 0x7fffffff) > 0x7f800000; }
static bool nan16(u32 v) { return (v & 0x7fff) > 0x7c00; }
static bool same32(u32 got, u32 want) { return got == want || (nan32(got) && nan32(want)); }
static bool same16(u32 got, u32 want) { return got == want || (nan16(got) && nan16(want)); }
static bool near32(u32 got, u32 want, u32 ulps) {
    i64 g = got & 0x80000000 ? -(i64)(got & 0x7fffffff) : (i64)got, w = want & 0x80000000 ? -(i64)(want & 0x7fffffff) : (i64)want;
    return same32(got, want) || (!nan32(got) && !nan32(want) && llabs(g - w) <= ulps);
}

static bool vector_ok(const expect *e, const snippet_out *o, const u32 *in, bool active) {
    u32 g = o->v[0], old = in[12];
    u64 wide = g | (u64)o->v[1] << 32, w = e->value;
    if (!active) return e->kind == W_NONE || (g == old && o->v[1] == in[13]);
    switch (e->kind) {
    case W_NONE: return true;
    case W_U32: return g == (u32)w && o->v[1] == in[13];
    case W_F32: return same32(g, (u32)w);
    case W_ULP: return near32(g, (u32)w, e->ulps);
    case W_U64: return wide == w && o->v[2] == in[14];
    case W_F64: return wide == w || (f64(wide) != f64(wide) && f64(w) != f64(w));
    case W_H: return same16(g & 0xffff, (u32)w) && g >> 16 == old >> 16;
    case W_HH: return same16(g >> 16, (u32)w) && (g & 0xffff) == (old & 0xffff);
    case W_HULP: return (same16(g & 0xffff, (u32)w) || (u32)abs((i32)(g & 0xffff) - (i32)w) <= e->ulps) && g >> 16 == old >> 16;
    case W_U16: return ((g & 0xffff) == w || (w == BF16_NAN && (g & 0x7fff) > 0x7f80)) && g >> 16 == old >> 16;
    case W_U16H: return g >> 16 == w && (g & 0xffff) == (old & 0xffff);
    case W_PK: return same16(g & 0xffff, (u32)w & 0xffff) && same16(g >> 16, (u32)w >> 16);
    }
    return false;
}

static bool scalar_ok(const expect *e, const snippet_out *o) {
    if (e->scc >= 0 && (u32)e->scc != o->scc) return false;
    if (!e->scalar) return true;
    if (e->sfloat) return same32(o->s60, (u32)e->svalue);
    if (e->shalf) return same16(o->s60 & 0xffff, (u32)e->svalue) && !(o->s60 >> 16);
    return o->s60 == (u32)e->svalue && (!e->wide || o->s61 == (u32)(e->svalue >> 32));
}

static bool quiet; // mutants are expected to fail
static size_t check_case(size_t index, const snippet_inputs *inputs, const snippet_out *out) {
    size_t bad = 0;
    for (u32 i = 0; i < SNIPPET_WAVES * 32; i++) {
        const u32 *s = inputs->sc[i / 32], lane = i % 32;
        context c = {inputs->in[i], s, lane, s[13], s[14], s[15], &inputs->in[i & ~31u]};
        expect e;
        formula(index, &c, &e);
        const snippet_out *o = &out[i];
        bool active = c.exec >> lane & 1, ok = vector_ok(&e, o, inputs->in[i], active) && scalar_ok(&e, o);
        if (e.mask60 >= 0) ok &= (o->s60 >> lane & 1) == (u32)(active && e.mask60);
        if (e.vcc >= 0) ok &= (o->vcc >> lane & 1) == (u32)(active && e.vcc);
        if (e.exec >= 0) ok &= (o->exec >> lane & 1) == (u32)(e.scalar ? e.exec : active && e.exec);
        if (ok) continue;
        if (bad++ == 0 && !quiet)
            print_error("%s\n  wave %u lane %u%s: in %08x %08x %08x old %08x | %08x%08x %08x%08x | s %08x %08x vcc bit %u scc %u\n  got v %08x %08x s60 %08x %08x vcc %08x scc %u exec %08x\n  want v %0*llx mask %d vcc %d s %llx scc %d\n",
                        lines[index], i / 32, lane, active ? "" : " (inactive)", c.in[0], c.in[1], c.in[2], c.in[12], c.in[5], c.in[4], c.in[7], c.in[6], s[0], s[1], c.vcc >> lane & 1, c.scc,
                        o->v[0], o->v[1], o->s60, o->s61, o->vcc, o->scc, o->exec, e.kind == W_U64 || e.kind == W_F64 ? 16 : 8, (unsigned long long)e.value, e.mask60, e.vcc, (unsigned long long)e.svalue, e.scc);
    }
    return bad;
}

static void run_all(bool avx512) {
    gs_use_avx512 = avx512;
    gs_mem *mem;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    void *in, *out;
    assert_int_equal(gs_mem_alloc(mem, sizeof(snippet_inputs), &in), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, sizeof(snippet_out) * SNIPPET_WAVES * 32, &out), GS_OK);
    u64 seed = (u64)time(NULL);
    print_message("%zu instruction cases, %s, input seed %llu\n", (size_t)CASE_COUNT, avx512 ? "AVX-512" : "AVX2", (unsigned long long)seed);
    snippet_fill(in, seed);
    gs_module *module = snippet_module(mem, lines, CASE_COUNT);
    size_t failed = 0;
    for (size_t i = 0; i < CASE_COUNT; i++) {
        memset(out, 0xee, sizeof(snippet_out) * SNIPPET_WAVES * 32);
        snippet_run(mem, module, i, in, out);
        size_t bad = check_case(i, in, out);
        failed += bad > 0;
        if (bad) print_error("  (%zu of %d lanes)\n", bad, SNIPPET_WAVES * 32);
    }
    gs_module_free(module);
    gs_mem_destroy(mem);
    gs_use_avx512 = true;
    assert_int_equal(failed, 0);
}
// ---- every instruction's test can fail -------------------------------------------------------------------------
typedef struct proof { // of one mnemonic
    const char *name;
    bool executed, killed, killed_by_low_bit;
} proof;

static int by_name(const void *a, const void *b) { return strcmp(((const proof *)a)->name, ((const proof *)b)->name); }

// Matrix instructions, waits and barriers are proven in test_wmma and test_faults.
static bool proven_here(size_t row) { return gs_row_effect(row) == GS_EFFECT_RESULT && gs_row_class(row) != GS_CLASS_WMMA; }

static bool survives(gs_mem *mem, gs_module *module, size_t index, const snippet_inputs *in, snippet_out *out, u32 first, u32 last, const char *name, mutation how) {
    gs_error error;
    memset(out, 0xee, sizeof(snippet_out) * SNIPPET_WAVES * 32);
    mutants_set(module, first, last, name, how);
    bool fault = snippet_try(mem, module, index, in, out, &error) != GS_OK;
    mutants_clear(module, first, last);
    return !fault && !check_case(index, in, out);
}

static void prove(gs_mem *mem, gs_module *module, size_t index, const snippet_inputs *in, snippet_out *out, const char *name, u32 first, u32 last, proof *proofs, size_t count) {
    proof *p = bsearch(&(proof){.name = name}, proofs, count, sizeof *proofs, by_name);
    if (!p) fail_msg("%s has no row", name);
    p->executed = true;
    if (!p->killed) p->killed = !survives(mem, module, index, in, out, first, last, name, FLIP_MANY);
    if (!p->killed_by_low_bit) p->killed_by_low_bit = !survives(mem, module, index, in, out, first, last, name, FLIP_LOW_BIT_OF_ONE_LANE);
}

static void test_every_instruction_can_fail(void **state) {
    (void)state;
    gs_mem *mem;
    void *in, *out;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, sizeof(snippet_inputs), &in), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, sizeof(snippet_out) * SNIPPET_WAVES * 32, &out), GS_OK);
    snippet_fill(in, (u64)time(NULL));
    gs_module *module = snippet_module(mem, lines, CASE_COUNT);
    size_t count = gs_row_count(), loose = 0, failed = 0;
    proof *proofs = calloc(count, sizeof *proofs);
    assert_non_null(proofs);
    for (size_t i = 0; i < count; i++) proofs[i].name = gs_row_mnemonic(i);
    u32 before, after, first, last;
    snippet_frame(&before, &after);
    quiet = true;
    for (size_t i = 0; i < CASE_COUNT; i++) {
        mutants_body(module, gs_module_kernel_at(module, i), before, after, &first, &last);
        for (u32 k = first; k < last; k++) {
            const gs_op *op = &module->ops[k];
            if (!op->row->name[0]) continue;
            prove(mem, module, i, in, out, op->row->name, first, last, proofs, count);
            if (op->pair) prove(mem, module, i, in, out, op->pair->row->name, first, last, proofs, count);
        }
    }
    quiet = false;
    for (size_t i = 0; i < count; i++) {
        if (!proven_here(i)) continue;
        if (!proofs[i].killed) failed++, print_error("%s: %s\n", proofs[i].name, proofs[i].executed ? "no test notices a false result" : "no test executes it");
        if (proofs[i].killed && !proofs[i].killed_by_low_bit) loose++, print_message("%s: tests allow an error of the lowest bit\n", proofs[i].name);
    }
    print_message("%zu instructions, %zu within a bound rather than to the bit, %zu unproven\n", count, loose, failed);
    free(proofs);
    gs_module_free(module);
    gs_mem_destroy(mem);
    assert_int_equal(failed, 0);
}

static void test_ops_avx512(void **state) { (void)state; run_all(true); }
static void test_ops_avx2(void **state) { (void)state; run_all(false); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops_avx512), cmocka_unit_test(test_ops_avx2), cmocka_unit_test(test_every_instruction_can_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
