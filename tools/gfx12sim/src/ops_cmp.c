// SPDX-License-Identifier: Apache-2.0
// Vector compares: one mask bit a lane. v_cmp writes the mask to an SGPR, v_cmpx to EXEC. The tables are made
// from one list of relations per number format.
// Tables and formulas stand one a line: wrapped they cannot be compared by eye.
// clang-format off
#include "isa.h"

static inline u32 collect(const u32 *d) { // lanes of 0 or ~0 to bits
#ifdef __AVX512F__
    return _mm512_movepi32_mask(_mm512_loadu_si512(d)) | (u32)_mm512_movepi32_mask(_mm512_loadu_si512(d + 16))
                                                             << 16;
#else
    u32 mask = 0;
    for (int i = 0; i < 4; i++)
        mask |= (u32)_mm256_movemask_ps(_mm256_loadu_ps((const float *)d + 8 * i)) << 8 * i;
    return mask;
#endif
}

#define CMP_FN(name, T, load, expr)                                                                          \
    LANE_FN(name) {                                                                                          \
        (void)c, (void)w, (void)op;                                                                          \
        EACH {                                                                                               \
            T x = load(a, i), y = load(b, i);                                                                \
            d[i] = (expr) ? ~0u : 0;                                                                         \
        }                                                                                                    \
        return collect(d);                                                                                   \
    }
#define LOAD_F32(p, i) (((const f32a *)(p))[i])
#define LOAD_U32(p, i) ((p)[i])
#define LOAD_I32(p, i) ((i32)(p)[i])
#define LOAD_U16(p, i) ((p)[i] & 0xffff)
#define LOAD_I16(p, i) ((i32)(int16_t)(p)[i])
#define LOAD_U64(p, i) lane64(p, i)
#define LOAD_I64(p, i) ((i64)lane64(p, i))
#define LOAD_F64(p, i) gs_f64(lane64(p, i))

#define FLOATS(X, s, T, load)                                                                                \
    X(lt, s, T, load, x < y)                                                                                 \
    X(eq, s, T, load, x == y)                                                                                \
    X(le, s, T, load, x <= y)                                                                                \
    X(gt, s, T, load, x > y) X(lg, s, T, load, x<y || x> y) X(ge, s, T, load, x >= y)                        \
        X(o, s, T, load, x == x && y == y) X(u, s, T, load, x != x || y != y) X(nge, s, T, load, !(x >= y))  \
            X(nlg, s, T, load, !(x < y || x > y)) X(ngt, s, T, load, !(x > y)) X(nle, s, T, load, !(x <= y)) \
                X(neq, s, T, load, !(x == y)) X(nlt, s, T, load, !(x < y))
#define INTEGERS(X, s, T, load)                                                                              \
    X(lt, s, T, load, x < y)                                                                                 \
    X(eq, s, T, load, x == y)                                                                                \
    X(le, s, T, load, x <= y) X(gt, s, T, load, x > y) X(ne, s, T, load, x != y) X(ge, s, T, load, x >= y)

#define MAKE(rel, s, T, load, expr) CMP_FN(rel##_##s, T, load, expr)
FLOATS(MAKE, f32, float, LOAD_F32)
FLOATS(MAKE, f64, double, LOAD_F64)
INTEGERS(MAKE, u32, u32, LOAD_U32)
INTEGERS(MAKE, i32, i32, LOAD_I32)
INTEGERS(MAKE, u16, u32, LOAD_U16)
INTEGERS(MAKE, i16, i32, LOAD_I16)
INTEGERS(MAKE, u64, u64, LOAD_U64)
INTEGERS(MAKE, i64, i64, LOAD_I64)

// Halves: widen, then compare as floats.
#define MAKE_HALF(rel, s, T, load, expr)                                                                     \
    LANE_FN(rel##_f16) {                                                                                     \
        float fa[GS_LANES], fb[GS_LANES];                                                                    \
        halves_to_f32(a, fa);                                                                                \
        halves_to_f32(b, fb);                                                                                \
        (void)c, (void)w, (void)op;                                                                          \
        EACH {                                                                                               \
            float x = fa[i], y = fb[i];                                                                      \
            d[i] = (expr) ? ~0u : 0;                                                                         \
        }                                                                                                    \
        return collect(d);                                                                                   \
    }
FLOATS(MAKE_HALF, f16, , )

// Class bits, low to high: signalling NaN, quiet NaN, -inf, -normal, -subnormal, -0, +0, +subnormal, +normal, +inf.
static u32 class_bit(bool negative, u64 exponent, u64 exponent_max, u64 mantissa, u64 quiet) {
    if (exponent == exponent_max) return mantissa ? (mantissa & quiet ? 2 : 1) : negative ? 4 : 512;
    if (exponent) return negative ? 8 : 256;
    if (mantissa) return negative ? 16 : 128;
    return negative ? 32 : 64;
}
LANE_FN(class_f32) {
    for (int i = 0; i < GS_LANES; i++)
        d[i] = class_bit(a[i] >> 31, a[i] >> 23 & 255, 255, a[i] & 0x7fffff, 0x400000) & b[i] ? ~0u : 0;
    (void)c, (void)w, (void)op;
    return collect(d);
}
LANE_FN(class_f16) {
    for (int i = 0; i < GS_LANES; i++)
        d[i] = class_bit(a[i] >> 15 & 1, a[i] >> 10 & 31, 31, a[i] & 0x3ff, 0x200) & b[i] ? ~0u : 0;
    (void)c, (void)w, (void)op;
    return collect(d);
}
LANE_FN(class_f64) {
    for (int i = 0; i < GS_LANES; i++) {
        u64 x = lane64(a, i);
        d[i] = class_bit(x >> 63, x >> 52 & 2047, 2047, x & 0xfffffffffffff, 1ull << 51) & b[i] ? ~0u : 0;
    }
    (void)c, (void)w, (void)op;
    return collect(d);
}

#define ROWS(name, fn, sig)                                                                                  \
    {"v_cmp_" name, "m=" sig, gs_valu_cmp, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0},                         \
        {"v_cmpx_" name, "=" sig, gs_valu_cmpx, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0},
#define ROW_f32(rel, s, T, load, expr) ROWS(#rel "_f32", rel##_f32, "ff")
#define ROW_f64(rel, s, T, load, expr) ROWS(#rel "_f64", rel##_f64, "FF")
#define ROW_f16(rel, s, T, load, expr) ROWS(#rel "_f16", rel##_f16, "hh")
#define ROW_32(rel, s, T, load, expr)  ROWS(#rel "_" #s, rel##_##s, "uu")
#define ROW_16(rel, s, T, load, expr)  ROWS(#rel "_" #s, rel##_##s, "ww")
#define ROW_64(rel, s, T, load, expr)  ROWS(#rel "_" #s, rel##_##s, "II")
#define ROW_U64(rel, s, T, load, expr) ROWS(#rel "_" #s, rel##_##s, "UU")
const gs_row GS_SYM(gs_rows_cmp)[] = {
    FLOATS(ROW_f32, f32, , ) FLOATS(ROW_f64, f64, , ) FLOATS(ROW_f16, f16, , ) INTEGERS(ROW_32, u32, , )
        INTEGERS(ROW_32, i32, , ) INTEGERS(ROW_16, u16, , ) INTEGERS(ROW_16, i16, , )
            INTEGERS(ROW_U64, u64, , ) INTEGERS(ROW_64, i64, , ) ROWS("class_f32", class_f32, "fu")
                ROWS("class_f16", class_f16, "hw") ROWS("class_f64", class_f64, "Fu"){0}};
