// SPDX-License-Identifier: Apache-2.0
// Vector integer instructions on 32 and 64 bits: moves, logic, shifts, sums, products, byte permutes.
// Semantics: RDNA4 ISA guide, chapters VOP1, VOP2, VOP3.
#include "isa.h"

#define I(v) ((i32)(v))
static inline u32 sat_u(u64 wide, bool clamp) {
    return clamp && wide > UINT32_MAX ? UINT32_MAX : (u32)wide;
}
static inline u32 sat_i(i64 wide, bool clamp) {
    if (clamp && wide > INT32_MAX) wide = INT32_MAX;
    if (clamp && wide < INT32_MIN) wide = INT32_MIN;
    return (u32)wide;
}
static inline u32 sub_sat(u32 x, u32 y, bool clamp) {
    return clamp && y > x ? 0 : x - y;
}
static inline i32 sext24(u32 x) {
    return (i32)(x << 8) >> 8;
}
static inline u32 bfe_u(u32 x, u32 at, u32 n) {
    return n & 31 ? x >> (at & 31) & ((1u << (n & 31)) - 1) : 0;
}
static inline u32 bfe_i(u32 x, u32 at, u32 n) {
    n &= 31;
    if (!n) return 0;
    u32 v = x >> (at & 31), top = 1u << (n - 1);
    if ((at & 31) + n > 32) return (u32)((i32)x >> (at & 31)); // field runs past bit 31: sign of the register
    v &= (top << 1) - 1;
    return (v ^ top) - top;
}
static inline u32 reverse(u32 x) {
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(x);
}
static inline u32 sign_run(u32 x) { // cls: equal leading bits, -1 when all are equal
    u32 y = x ^ (u32)((i32)x >> 31);
    return y ? (u32)__builtin_clz(y) : ~0u;
}
// v_perm_b32: selector 0..3 bytes of src1, 4..7 of src0, 8..11 signs of bytes 1,3 of each, 12 zero, above all ones.
static inline u32 perm_byte(u64 both, u32 sel) {
    if (sel < 8) return both >> (8 * sel) & 0xff;
    if (sel < 12) return both >> (16 * (sel - 8) + 15) & 1 ? 0xff : 0;
    return sel == 12 ? 0 : 0xff;
}
static inline u32 perm(u32 x, u32 y, u32 s) {
    u64 both = (u64)x << 32 | y;
    return perm_byte(both, s & 0xff) | perm_byte(both, s >> 8 & 0xff) << 8 |
           perm_byte(both, s >> 16 & 0xff) << 16 | perm_byte(both, s >> 24) << 24;
}
static inline u32 med_u(u32 x, u32 y, u32 z) {
    u32 lo = x < y ? x : y, hi = x < y ? y : x;
    return z < lo ? lo : z > hi ? hi : z;
}
static inline u32 med_i(i32 x, i32 y, i32 z) {
    i32 lo = x < y ? x : y, hi = x < y ? y : x;
    return (u32)(z < lo ? lo : z > hi ? hi : z);
}
static inline u32 sad8(u32 x, u32 y, bool masked) {
    u32 sum = 0;
    for (int k = 0; k < 32; k += 8) {
        u32 p = x >> k & 0xff, q = y >> k & 0xff;
        if (!masked || q) sum += p > q ? p - q : q - p;
    }
    return sum;
}
static inline u32 sad16(u32 x, u32 y) {
    u32 a0 = x & 0xffff, b0 = y & 0xffff, a1 = x >> 16, b1 = y >> 16;
    return (a0 > b0 ? a0 - b0 : b0 - a0) + (a1 > b1 ? a1 - b1 : b1 - a1);
}
static inline u32 min_u(u32 x, u32 y) {
    return x < y ? x : y;
}
static inline u32 max_u(u32 x, u32 y) {
    return x > y ? x : y;
}
static inline i32 min_i(i32 x, i32 y) {
    return x < y ? x : y;
}
static inline i32 max_i(i32 x, i32 y) {
    return x > y ? x : y;
}

U_FN(mov, x)
U_FN(not_b32, ~x)
U_FN(bfrev, reverse(x))
U_FN(cls, sign_run(x))
U_FN(clz, x ? (u32)__builtin_clz(x) : ~0u)
U_FN(ctz, x ? (u32)__builtin_ctz(x) : ~0u)
U_FN(add, sat_u((u64)x + y, op->clamp))
U_FN(sub, sub_sat(x, y, op->clamp))
U_FN(subrev, sub_sat(y, x, op->clamp))
U_FN(add_i, sat_i((i64)I(x) + I(y), op->clamp))
U_FN(sub_i, sat_i((i64)I(x) - I(y), op->clamp))
U_FN(and_b32, x &y)
U_FN(or_b32, x | y)
U_FN(xor_b32, x ^ y)
U_FN(xnor_b32, ~(x ^ y))
U_FN(lshlrev, y << (x & 31))
U_FN(lshrrev, y >> (x & 31))
U_FN(ashrrev, I(y) >> (x & 31))
U_FN(min_u32, min_u(x, y))
U_FN(max_u32, max_u(x, y))
U_FN(min_i32, min_i(I(x), I(y)))
U_FN(max_i32, max_i(I(x), I(y)))
U_FN(mul_u24, (x & 0xffffff) * (y & 0xffffff))
U_FN(mul_i24, (u32)sext24(x) * (u32)sext24(y))
U_FN(mul_hi_u24, (u64)(x & 0xffffff) * (y & 0xffffff) >> 32)
U_FN(mul_hi_i24, (i64)sext24(x) * sext24(y) >> 32)
U_FN(mul_lo, x *y)
U_FN(mul_hi_u, (u64)x *y >> 32)
U_FN(mul_hi_i, (u32)((i64)I(x) * I(y) >> 32))
U_FN(mad_u24, sat_u((u64)(x & 0xffffff) * (y & 0xffffff) + z, op->clamp))
U_FN(mad_i24, sat_i((i64)sext24(x) * sext24(y) + I(z), op->clamp))
U_FN(add3, x + y + z)
U_FN(lshl_add, (x << (y & 31)) + z)
U_FN(add_lshl, (x + y) << (z & 31))
U_FN(xad, (x ^ y) + z)
U_FN(lshl_or, x << (y & 31) | z)
U_FN(and_or, (x & y) | z)
U_FN(or3, x | y | z)
U_FN(xor3, x ^ y ^ z)
U_FN(bfe_u32, bfe_u(x, y, z))
U_FN(bfe_i32, bfe_i(x, y, z))
U_FN(bfi, (x & y) | (~x & z))
U_FN(bfm, ((1u << (x & 31)) - 1) << (y & 31))
U_FN(bcnt, (u32)__builtin_popcount(x) + y)
U_FN(perm_b32, perm(x, y, z))
U_FN(alignbit, ((u64)x << 32 | y) >> (z & 31))
U_FN(alignbyte, ((u64)x << 32 | y) >> 8 * (z & 3))
U_FN(min3_u, min_u(min_u(x, y), z))
U_FN(max3_u, max_u(max_u(x, y), z))
U_FN(med3_u, med_u(x, y, z))
U_FN(min3_i, min_i(min_i(I(x), I(y)), I(z)))
U_FN(max3_i, max_i(max_i(I(x), I(y)), I(z)))
U_FN(med3_i, med_i(I(x), I(y), I(z)))
U_FN(minmax_u, max_u(min_u(x, y), z))
U_FN(maxmin_u, min_u(max_u(x, y), z))
U_FN(minmax_i, max_i(min_i(I(x), I(y)), I(z)))
U_FN(maxmin_i, min_i(max_i(I(x), I(y)), I(z)))
U_FN(sad_u8, sat_u((u64)sad8(x, y, false) + z, op->clamp))
U_FN(msad_u8, sat_u((u64)sad8(x, y, true) + z, op->clamp))
U_FN(sad_hi_u8, (sad8(x, y, false) << 16) + z)
U_FN(sad_u16, sat_u((u64)sad16(x, y) + z, op->clamp))
U_FN(sad_u32, sat_u((u64)(x > y ? x - y : y - x) + z, op->clamp))
U_FN(lerp_u8, (((x & 0xff) + (y & 0xff) + (z & 1)) >> 1) |
                  ((((x >> 8 & 0xff) + (y >> 8 & 0xff) + (z >> 8 & 1)) >> 1) << 8) |
                  ((((x >> 16 & 0xff) + (y >> 16 & 0xff) + (z >> 16 & 1)) >> 1) << 16) |
                  ((((x >> 24) + (y >> 24) + (z >> 24 & 1)) >> 1) << 24))

// Lane mask sources: the scalar operand itself, not 32 lanes.
static u32 mask_of(const gs_wave *w, const gs_opnd *o) {
    return (u32)gs_scalar_get(w, o);
}

LANE_FN(cndmask) {
    u32 m = mask_of(w, &op->src[2]);
    EACH
        d[i] = m >> i & 1 ? b[i] : a[i];
    (void)c;
    return 0;
}
LANE_FN(add_co) {
    u32 carry = 0;
    for (int i = 0; i < GS_LANES; i++) {
        u64 sum = (u64)a[i] + b[i];
        d[i] = op->clamp && sum >> 32 ? ~0u : (u32)sum;
        carry |= (u32)(sum >> 32) << i;
    }
    (void)c, (void)w;
    return carry;
}
static u32 borrow(u32 *d, const u32 *x, const u32 *y, u32 in, bool clamp) {
    u32 out = 0;
    for (int i = 0; i < GS_LANES; i++) {
        u64 diff = (u64)x[i] - y[i] - (in >> i & 1);
        d[i] = clamp && diff >> 63 ? 0 : (u32)diff;
        out |= (u32)(diff >> 63) << i;
    }
    return out;
}
LANE_FN(sub_co) {
    (void)c, (void)w;
    return borrow(d, a, b, 0, op->clamp);
}
LANE_FN(subrev_co) {
    (void)c, (void)w;
    return borrow(d, b, a, 0, op->clamp);
}
LANE_FN(add_co_ci) {
    u32 in = mask_of(w, &op->src[2]), carry = 0;
    for (int i = 0; i < GS_LANES; i++) {
        u64 sum = (u64)a[i] + b[i] + (in >> i & 1);
        d[i] = op->clamp && sum >> 32 ? ~0u : (u32)sum;
        carry |= (u32)(sum >> 32) << i;
    }
    (void)c;
    return carry;
}
LANE_FN(sub_co_ci) {
    (void)c;
    return borrow(d, a, b, mask_of(w, &op->src[2]), op->clamp);
}
LANE_FN(subrev_co_ci) {
    (void)c;
    return borrow(d, b, a, mask_of(w, &op->src[2]), op->clamp);
}

#define W_FN(name, expr)                                                                                     \
    LANE_FN(name) {                                                                                          \
        (void)c, (void)w, (void)op;                                                                          \
        EACH                                                                                                 \
            set64(d, i, (u64)(expr));                                                                        \
        return 0;                                                                                            \
    }
W_FN(lshlrev64, lane64(b, i) << (a[i] & 63))
W_FN(lshrrev64, lane64(b, i) >> (a[i] & 63))
W_FN(ashrrev64, (i64)lane64(b, i) >> (a[i] & 63))

LANE_FN(mad_u64) {
    u32 carry = 0;
    for (int i = 0; i < GS_LANES; i++) {
        u64 product = (u64)a[i] * b[i], sum = product + lane64(c, i);
        carry |= (u32)(sum < product) << i;
        set64(d, i, op->clamp && sum < product ? ~0ull : sum);
    }
    (void)w;
    return carry;
}
LANE_FN(mad_i64) {
    u32 carry = 0;
    for (int i = 0; i < GS_LANES; i++) {
        i64 product = (i64)I(a[i]) * I(b[i]), sum;
        bool over = __builtin_add_overflow(product, (i64)lane64(c, i), &sum);
        carry |= (u32)over << i;
        set64(d, i, op->clamp && over ? (product < 0 ? (u64)INT64_MIN : (u64)INT64_MAX) : (u64)sum);
    }
    (void)w;
    return carry;
}
// Lanes below this one in a mask: mbcnt counts the low half, then the high half (nothing of it in wave32).
LANE_FN(mbcnt_lo) {
    EACH
        d[i] = (u32)__builtin_popcount(a[i] & ((1u << i) - 1)) + b[i];
    (void)c, (void)w, (void)op;
    return 0;
}
LANE_FN(mbcnt_hi) {
    EACH
        d[i] = b[i];
    (void)a, (void)c, (void)w, (void)op;
    return 0;
}
static gs_stop nop(gs_wave *w, const gs_op *op) {
    (void)w, (void)op;
    return GS_RUN;
}
static gs_stop swap(gs_wave *w, const gs_op *op) {
    u32 *x = gs_vgpr(w, op->dst.reg), *y = gs_vgpr(w, op->src[0].reg), exec = gs_exec(w);
    for (int i = 0; i < GS_LANES; i++)
        if (exec >> i & 1) {
            u32 t = x[i];
            x[i] = y[i];
            y[i] = t;
        }
    return GS_RUN;
}

#define V(name, sig, fn, ...)                                                                                \
    { name, sig, gs_valu_exec, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU | (0 __VA_ARGS__), 0 }
#define D(name, sig, fn)                                                                                     \
    { "v_dual_" name, sig, gs_valu_vopd, fn, NULL, GS_CLASS_VALU, 0, ROW_VALU, 0 }
const gs_row GS_SYM(gs_rows_int)[] = {
    V("v_mov_b32", "u=u", mov, | ROW_PROPAGATE),
    {"v_dual_mov_b32", "u=u", gs_valu_vopd, mov, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_PROPAGATE, 0},
    {"v_nop", "*", nop, NULL, NULL, GS_CLASS_VALU, 0, 0, 0},
    {"v_swap_b32", "u=u", swap, NULL, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_MODIFIES_VGPR_SRC, 0},
    V("v_not_b32", "u=u", not_b32),
    V("v_bfrev_b32", "u=u", bfrev),
    V("v_cls_i32", "u=u", cls),
    V("v_clz_i32_u32", "u=u", clz),
    V("v_ctz_i32_b32", "u=u", ctz),
    V("v_cndmask_b32", "u=uum", cndmask, | ROW_PROPAGATE),
    {"v_dual_cndmask_b32", "u=uum", gs_valu_vopd, cndmask, NULL, GS_CLASS_VALU, 0, ROW_VALU | ROW_PROPAGATE,
     0},
    V("v_add_nc_u32", "u=uu", add),
    D("add_nc_u32", "u=uu", add),
    V("v_sub_nc_u32", "u=uu", sub),
    V("v_subrev_nc_u32", "u=uu", subrev),
    V("v_add_nc_i32", "u=uu", add_i),
    V("v_sub_nc_i32", "u=uu", sub_i),
    V("v_add_co_u32", "um=uu", add_co),
    V("v_sub_co_u32", "um=uu", sub_co),
    V("v_subrev_co_u32", "um=uu", subrev_co),
    V("v_add_co_ci_u32", "um=uum", add_co_ci),
    V("v_sub_co_ci_u32", "um=uum", sub_co_ci),
    V("v_subrev_co_ci_u32", "um=uum", subrev_co_ci),
    V("v_and_b32", "u=uu", and_b32),
    D("and_b32", "u=uu", and_b32),
    V("v_or_b32", "u=uu", or_b32),
    V("v_xor_b32", "u=uu", xor_b32),
    V("v_xnor_b32", "u=uu", xnor_b32),
    V("v_lshlrev_b32", "u=uu", lshlrev),
    D("lshlrev_b32", "u=uu", lshlrev),
    V("v_lshrrev_b32", "u=uu", lshrrev),
    V("v_ashrrev_i32", "u=uu", ashrrev),
    V("v_lshlrev_b64", "U=uU", lshlrev64),
    V("v_lshrrev_b64", "U=uU", lshrrev64),
    V("v_ashrrev_i64", "U=uI", ashrrev64),
    V("v_min_u32", "u=uu", min_u32),
    V("v_max_u32", "u=uu", max_u32),
    V("v_min_i32", "u=uu", min_i32),
    V("v_max_i32", "u=uu", max_i32),
    V("v_mul_u32_u24", "u=uu", mul_u24),
    V("v_mul_i32_i24", "u=uu", mul_i24),
    V("v_mul_hi_u32_u24", "u=uu", mul_hi_u24),
    V("v_mul_hi_i32_i24", "u=uu", mul_hi_i24),
    V("v_mul_lo_u32", "u=uu", mul_lo),
    V("v_mul_hi_u32", "u=uu", mul_hi_u),
    V("v_mul_hi_i32", "u=uu", mul_hi_i),
    V("v_mad_u32_u24", "u=uuu", mad_u24),
    V("v_mad_i32_i24", "u=uuu", mad_i24),
    V("v_mad_co_u64_u32", "Um=uuU", mad_u64, | ROW_WIDE_ADDEND),
    V("v_mad_co_i64_i32", "Um=uuI", mad_i64, | ROW_WIDE_ADDEND),
    V("v_add3_u32", "u=uuu", add3),
    V("v_lshl_add_u32", "u=uuu", lshl_add),
    V("v_add_lshl_u32", "u=uuu", add_lshl),
    V("v_xad_u32", "u=uuu", xad),
    V("v_lshl_or_b32", "u=uuu", lshl_or),
    V("v_and_or_b32", "u=uuu", and_or),
    V("v_or3_b32", "u=uuu", or3),
    V("v_xor3_b32", "u=uuu", xor3),
    V("v_bfe_u32", "u=uuu", bfe_u32),
    V("v_bfe_i32", "u=uuu", bfe_i32),
    V("v_bfi_b32", "u=uuu", bfi),
    V("v_bfm_b32", "u=uu", bfm),
    V("v_bcnt_u32_b32", "u=uu", bcnt),
    V("v_perm_b32", "u=uuu", perm_b32),
    V("v_alignbit_b32", "u=uuw", alignbit),
    V("v_alignbyte_b32", "u=uuw", alignbyte),
    V("v_min3_u32", "u=uuu", min3_u),
    V("v_max3_u32", "u=uuu", max3_u),
    V("v_med3_u32", "u=uuu", med3_u),
    V("v_min3_i32", "u=uuu", min3_i),
    V("v_max3_i32", "u=uuu", max3_i),
    V("v_med3_i32", "u=uuu", med3_i),
    V("v_minmax_u32", "u=uuu", minmax_u),
    V("v_maxmin_u32", "u=uuu", maxmin_u),
    V("v_minmax_i32", "u=uuu", minmax_i),
    V("v_maxmin_i32", "u=uuu", maxmin_i),
    V("v_sad_u8", "u=uuu", sad_u8),
    V("v_sad_hi_u8", "u=uuu", sad_hi_u8),
    V("v_msad_u8", "u=uuu", msad_u8),
    V("v_sad_u16", "u=uuu", sad_u16),
    V("v_sad_u32", "u=uuu", sad_u32),
    V("v_lerp_u8", "u=uuu", lerp_u8),
    V("v_mbcnt_lo_u32_b32", "u=uu", mbcnt_lo),
    V("v_mbcnt_hi_u32_b32", "u=uu", mbcnt_hi),
    {0}};
