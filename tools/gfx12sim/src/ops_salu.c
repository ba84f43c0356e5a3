// SPDX-License-Identifier: Apache-2.0
// Scalar ALU: integers with SCC, 64-bit forms, EXEC save forms, scalar floats, compares. Compiled once; these
// handlers work on one value. Semantics: RDNA4 ISA guide, chapters SOP1, SOP2, SOPK, SOPC.
// Tables and formulas stand one a line: wrapped they cannot be compared by eye.
// clang-format off
#include <math.h>
#include "simd.h"

#define FN(name, ...)                                                                                        \
    static u64 name(gs_wave *w, const gs_op *op, u64 a, u64 b) {                                             \
        (void)w, (void)op, (void)a, (void)b;                                                                 \
        __VA_ARGS__;                                                                                         \
    }
#define X ((u32)a)
#define Y ((u32)b)
#define RET_SCC(expr, cond)                                                                                  \
    u64 r = (expr);                                                                                          \
    w->scc = (cond);                                                                                         \
    return r
#define NZ32(name, expr) FN(name, RET_SCC((u32)(expr), r != 0))
#define NZ64(name, expr) FN(name, RET_SCC((expr), r != 0))

static bool over(i64 v) {
    return v > INT32_MAX || v < INT32_MIN;
}
static u32 bfe32(u32 x, u32 spec, bool sign) {
    u32 at = spec & 31, n = spec >> 16 & 127;
    if (n > 32) n = 32;
    if (!n) return 0;
    i64 v = sign ? (i64)(i32)x : (i64)x;
    u64 f = (u64)(v >> at) & ((1ull << n) - 1);
    return sign && n < 32 && f >> (n - 1) & 1 ? (u32)(f | ~0ull << n) : (u32)f;
}
static u64 bfe64(u64 x, u32 spec, bool sign) {
    u32 at = spec & 63, n = spec >> 16 & 127;
    if (!n) return 0;
    u64 v = sign ? (u64)((i64)x >> at) : x >> at;
    if (n >= 64) return v;
    u64 f = v & ((1ull << n) - 1);
    return sign && f >> (n - 1) & 1 ? f | ~0ull << n : f;
}
static u64 reverse64(u64 x, u32 bits) {
    u64 r = 0;
    for (u32 i = 0; i < bits; i++) r |= (x >> i & 1) << (bits - 1 - i);
    return r;
}
static u32 sign_run(u64 x, u32 bits) { // leading bits equal to the sign, ~0 when all are
    u64 y = bits == 64 ? x ^ (u64)((i64)x >> 63) : (u32)x ^ (u32)((i32)(u32)x >> 31);
    return y ? (u32)__builtin_clzll(y) - (64 - bits) : ~0u;
}
static u64 quads(u64 x, u32 bits, bool whole) {
    u64 r = 0;
    for (u32 q = 0; q < bits / 4; q++)
        if (x >> 4 * q & 15) r |= whole ? 15ull << 4 * q : 1ull << q;
    return r;
}

FN(mov, return a)
FN(cmov, return w->scc ? a : op->dst.dwords == 2 ? gs_scalar64(w, op->dst.reg) : w->s[op->dst.reg])
FN(brev32, return reverse64(a, 32))
FN(brev64, return reverse64(a, 64))
FN(ctz32, return X ? (u32)__builtin_ctz(X) : ~0u)
FN(ctz64, return a ? (u32)__builtin_ctzll(a) : ~0u)
FN(clz32, return X ? (u32)__builtin_clz(X) : ~0u)
FN(clz64, return a ? (u32)__builtin_clzll(a) : ~0u)
FN(cls32, return sign_run(a, 32))
FN(cls64, return sign_run(a, 64))
FN(sext8, return (u32)(i32)(int8_t)a)
FN(sext16, return (u32)(i32)(int16_t)a)
FN(bitset0, return op->dst.dwords == 2 ? gs_scalar64(w, op->dst.reg) & ~(1ull << (a & 63))
                                       : w->s[op->dst.reg] & ~(1u << (a & 31)))
FN(bitset1, return op->dst.dwords == 2 ? gs_scalar64(w, op->dst.reg) | 1ull << (a & 63)
                                       : w->s[op->dst.reg] | 1u << (a & 31))
FN(bitreplicate, u64 r = 0; for (u32 i = 0; i < 32; i++) r |= (a >> i & 1) * 3ull << 2 * i; return r)
NZ32(abs32, (i32)X < 0 ? 0u - X : X)
NZ32(bcnt0_32, 32 - __builtin_popcount(X))
NZ32(bcnt1_32, __builtin_popcount(X))
NZ32(bcnt0_64, 64 - __builtin_popcountll(a))
NZ32(bcnt1_64, __builtin_popcountll(a))
NZ32(quadmask32, quads(X, 32, false))
NZ64(quadmask64, quads(a, 64, false))
NZ32(wqm32, quads(X, 32, true))
NZ64(wqm64, quads(a, 64, true))
NZ32(not32, ~X)
NZ64(not64, ~a)

FN(add_u, u64 s = (u64)X + Y; RET_SCC((u32)s, s >> 32 != 0))
FN(sub_u, RET_SCC((u32)(X - Y), Y > X))
FN(add_i, i64 s = (i64)(i32)X + (i32)Y; RET_SCC((u32)s, over(s)))
FN(sub_i, i64 s = (i64)(i32)X - (i32)Y; RET_SCC((u32)s, over(s)))
FN(add_ci, u64 s = (u64)X + Y + w->scc; RET_SCC((u32)s, s >> 32 != 0))
FN(sub_ci, u64 s = (u64)X - Y - w->scc; RET_SCC((u32)s, s >> 63 != 0))
NZ32(absdiff, (i32)X > (i32)Y ? X - Y : Y - X)
NZ32(lshl32, X << (Y & 31))
NZ32(lshr32, X >> (Y & 31))
NZ32(ashr32, (i32)X >> (Y & 31))
NZ64(lshl64, a << (Y & 63))
NZ64(lshr64, a >> (Y & 63))
NZ64(ashr64, (u64)((i64)a >> (Y & 63)))
static u64 shift_add(gs_wave *w, u64 a, u64 b, u32 n) {
    u64 s = (u64)X * (1u << n) + Y;
    w->scc = s >> 32 != 0;
    return (u32)s;
}
FN(lshl1_add, return shift_add(w, a, b, 1))
FN(lshl2_add, return shift_add(w, a, b, 2))
FN(lshl3_add, return shift_add(w, a, b, 3))
FN(lshl4_add, return shift_add(w, a, b, 4))
FN(min_i, RET_SCC((i32)X < (i32)Y ? X : Y, (i32)X < (i32)Y))
FN(min_u, RET_SCC(X < Y ? X : Y, X < Y))
FN(max_i, RET_SCC((i32)X >= (i32)Y ? X : Y, (i32)X >= (i32)Y))
FN(max_u, RET_SCC(X >= Y ? X : Y, X >= Y))
NZ32(and32, X &Y)
NZ64(and64, a &b)
NZ32(or32, X | Y)
NZ64(or64, a | b) NZ32(xor32, X ^ Y) NZ64(xor64, a ^ b) NZ32(not_and32, ~(X &Y)) NZ64(not_and64, ~(a &b))
    NZ32(nor32, ~(X | Y)) NZ64(nor64, ~(a | b)) NZ32(xnor32, ~(X ^ Y)) NZ64(xnor64, ~(a ^ b)) NZ32(
        andn32, X & ~Y) NZ64(andn64, a & ~b) NZ32(orn32, X | ~Y) NZ64(orn64, a | ~b) NZ32(bfe_u32,
                                                                                          bfe32(X, Y, false))
        NZ32(bfe_i32, bfe32(X, Y, true)) NZ64(bfe_u64, bfe64(a, Y, false)) NZ64(bfe_i64, bfe64(a, Y, true))
            FN(bfm32, return (u32)(((1u << (X & 31)) - 1)
                                   << (Y & 31))) FN(bfm64, return ((1ull << (X & 63)) - 1)
                                                                  << (Y & 63)) FN(mul32, return X * Y)
                FN(mul_hi_u, return (u64)X * Y >> 32) FN(mul_hi_i, return (u32)((i64)(i32)X * (i32)Y >> 32))
                    FN(cselect, return w->scc ? a : b) FN(pack_ll, return (X & 0xffff) | Y << 16) FN(
                        pack_lh, return (X & 0xffff) |
                                        (Y & 0xffff0000)) FN(pack_hh, return X >> 16 | (Y & 0xffff0000))
                        FN(pack_hl, return X >> 16 | Y << 16) FN(mul64, return a * b) FN(add64, return a + b)
                            FN(sub64, return a - b)

// EXEC forms: the old EXEC goes to the destination; SCC says whether any lane is left.
#define SAVE(name, expr)                                                                                     \
    static u64 name(gs_wave *w, const gs_op *op, u64 a, u64 b) {                                             \
        u32 e = gs_exec(w), s = X;                                                                           \
        (void)op, (void)b;                                                                                   \
        w->s[SGPR_EXEC] = (expr);                                                                            \
        w->scc = w->s[SGPR_EXEC] != 0;                                                                       \
        return e;                                                                                            \
    }
                                SAVE(save_and, s &e) SAVE(save_or, s | e) SAVE(save_xor, s ^ e)
                                    SAVE(save_nand, ~(s &e)) SAVE(save_nor, ~(s | e)) SAVE(
                                        save_xnor, ~(s ^ e)) SAVE(save_and_not0, ~s &e)
                                        SAVE(save_or_not0,
                                             ~s | e) SAVE(save_and_not1,
                                                          s & ~e) SAVE(save_or_not1, s | ~e)
#define WREXEC(name, expr)                                                                                   \
    static u64 name(gs_wave *w, const gs_op *op, u64 a, u64 b) {                                             \
        u32 e = gs_exec(w), s = X;                                                                           \
        (void)op, (void)b;                                                                                   \
        w->s[SGPR_EXEC] = (expr);                                                                            \
        w->scc = w->s[SGPR_EXEC] != 0;                                                                       \
        return w->s[SGPR_EXEC];                                                                              \
    }
                                            WREXEC(wr_and_not0, ~s &e) WREXEC(wr_and_not1, s & ~e)

#define CMP(name, expr) FN(name, w->scc = (expr); return 0)
                                                CMP(eq_32, X == Y) CMP(lg_32, X != Y)
                                                    CMP(gt_i, (i32)X > (i32)Y) CMP(ge_i, (i32)X >= (i32)Y)
                                                        CMP(lt_i, (i32)X < (i32)Y) CMP(le_i, (i32)X <= (i32)Y)
                                                            CMP(gt_u, X > Y) CMP(ge_u, X >= Y)
                                                                CMP(lt_u, X < Y) CMP(le_u, X <= Y)
                                                                    CMP(eq_64, a == b) CMP(lg_64, a != b)
                                                                        CMP(bitcmp0_32, !(X >> (Y & 31) & 1))
                                                                            CMP(bitcmp1_32, X >> (Y & 31) & 1)
                                                                                CMP(bitcmp0_64,
                                                                                    !(a >> (Y & 63) & 1))
                                                                                    CMP(bitcmp1_64,
                                                                                        a >> (Y & 63) & 1)

    // SOPK: the 16-bit immediate is the encoding's low half.
    FN(movk, return (u32)op->offset) FN(cmovk, return w->scc ? (u32)op->offset : w->s[op->dst.reg])
        FN(addk, i64 s = (i64)(i32)w->s[op->dst.reg] + op->offset; RET_SCC((u32)s, over(s)))
            FN(mulk, return w->s[op->dst.reg] * (u32)op->offset)

                static gs_stop salu_exec(gs_wave *w, const gs_op *op) {
    u64 a = op->nsrc > 0 ? gs_scalar_get(w, &op->src[0]) : 0,
        b = op->nsrc > 1 ? gs_scalar_get(w, &op->src[1]) : 0;
    u64 r = op->row->scalar(w, op, a, b);
    if (!op->ndst) return GS_RUN;
    gs_scalar_set(w, op->dst.reg, (u32)r);
    if (op->dst.dwords == 2) gs_scalar_set(w, op->dst.reg + 1u, (u32)(r >> 32));
    return GS_RUN;
}

// s_movrels/s_movreld: register number plus M0.
static gs_stop movrel(gs_wave *w, const gs_op *op) {
    bool source = op->row->arg & 1;
    u32 words = op->row->arg >> 1, from = op->src[0].reg + (source ? w->s[SGPR_M0] : 0),
        to = op->dst.reg + (source ? 0 : w->s[SGPR_M0]);
    if (from + words > 106 || to + words > 106)
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "M0 = %u takes the register number past s105",
                        w->s[SGPR_M0]);
    u32 value[2] = {w->s[from], w->s[from + words - 1]};
    if (!source && op->src[0].kind == OPND_CONST)
        value[0] = (u32)op->src[0].value, value[words - 1] = (u32)(op->src[0].value >> (words == 2 ? 32 : 0));
    for (u32 i = 0; i < words; i++) w->s[to + i] = value[i];
    return GS_RUN;
}

#define R(name, sig, fn)                                                                                     \
    { name, sig, salu_exec, NULL, fn, GS_CLASS_SALU, 0, ROW_SALU, 0 }
#define BOTH(name, sig32, sig64, fn32, fn64) R(name "_b32", sig32, fn32), R(name "_b64", sig64, fn64)
#define EX(name, fn)                                                                                         \
    { name, "s=s", salu_exec, NULL, fn, GS_CLASS_SALU, 0, ROW_SALU, 0 }
const gs_row gs_rows_salu[] = {BOTH("s_mov", "s=s", "S=S", mov, mov),
                               BOTH("s_cmov", "s=s", "S=S", cmov, cmov),
                               BOTH("s_brev", "s=s", "S=S", brev32, brev64),
                               R("s_ctz_i32_b32", "s=s", ctz32),
                               R("s_ctz_i32_b64", "s=S", ctz64),
                               R("s_clz_i32_u32", "s=s", clz32),
                               R("s_clz_i32_u64", "s=S", clz64),
                               R("s_cls_i32", "s=s", cls32),
                               R("s_cls_i32_i64", "s=S", cls64),
                               R("s_sext_i32_i8", "s=s", sext8),
                               R("s_sext_i32_i16", "s=s", sext16),
                               BOTH("s_bitset0", "s=s", "S=s", bitset0, bitset0),
                               BOTH("s_bitset1", "s=s", "S=s", bitset1, bitset1),
                               R("s_bitreplicate_b64_b32", "S=s", bitreplicate),
                               R("s_abs_i32", "s=s", abs32),
                               R("s_bcnt0_i32_b32", "s=s", bcnt0_32),
                               R("s_bcnt1_i32_b32", "s=s", bcnt1_32),
                               R("s_bcnt0_i32_b64", "s=S", bcnt0_64),
                               R("s_bcnt1_i32_b64", "s=S", bcnt1_64),
                               BOTH("s_quadmask", "s=s", "S=S", quadmask32, quadmask64),
                               BOTH("s_wqm", "s=s", "S=S", wqm32, wqm64),
                               BOTH("s_not", "s=s", "S=S", not32, not64),
                               R("s_add_co_u32", "s=ss", add_u),
                               R("s_sub_co_u32", "s=ss", sub_u),
                               R("s_add_co_i32", "s=ss", add_i),
                               R("s_sub_co_i32", "s=ss", sub_i),
                               R("s_add_co_ci_u32", "s=ss", add_ci),
                               R("s_sub_co_ci_u32", "s=ss", sub_ci),
                               R("s_absdiff_i32", "s=ss", absdiff),
                               BOTH("s_lshl", "s=ss", "S=Ss", lshl32, lshl64),
                               BOTH("s_lshr", "s=ss", "S=Ss", lshr32, lshr64),
                               R("s_ashr_i32", "s=ss", ashr32),
                               R("s_ashr_i64", "S=Ss", ashr64),
                               R("s_lshl1_add_u32", "s=ss", lshl1_add),
                               R("s_lshl2_add_u32", "s=ss", lshl2_add),
                               R("s_lshl3_add_u32", "s=ss", lshl3_add),
                               R("s_lshl4_add_u32", "s=ss", lshl4_add),
                               R("s_min_i32", "s=ss", min_i),
                               R("s_min_u32", "s=ss", min_u),
                               R("s_max_i32", "s=ss", max_i),
                               R("s_max_u32", "s=ss", max_u),
                               BOTH("s_and", "s=ss", "S=SS", and32, and64),
                               BOTH("s_or", "s=ss", "S=SS", or32, or64),
                               BOTH("s_xor", "s=ss", "S=SS", xor32, xor64),
                               BOTH("s_nand", "s=ss", "S=SS", not_and32, not_and64),
                               BOTH("s_nor", "s=ss", "S=SS", nor32, nor64),
                               BOTH("s_xnor", "s=ss", "S=SS", xnor32, xnor64),
                               BOTH("s_and_not1", "s=ss", "S=SS", andn32, andn64),
                               BOTH("s_or_not1", "s=ss", "S=SS", orn32, orn64),
                               R("s_bfe_u32", "s=ss", bfe_u32),
                               R("s_bfe_i32", "s=ss", bfe_i32),
                               R("s_bfe_u64", "S=Ss", bfe_u64),
                               R("s_bfe_i64", "S=Ss", bfe_i64),
                               R("s_bfm_b32", "s=ss", bfm32),
                               R("s_bfm_b64", "S=ss", bfm64),
                               R("s_mul_i32", "s=ss", mul32),
                               R("s_mul_hi_u32", "s=ss", mul_hi_u),
                               R("s_mul_hi_i32", "s=ss", mul_hi_i),
                               BOTH("s_cselect", "s=ss", "S=SS", cselect, cselect),
                               R("s_pack_ll_b32_b16", "s=ss", pack_ll),
                               R("s_pack_lh_b32_b16", "s=ss", pack_lh),
                               R("s_pack_hh_b32_b16", "s=ss", pack_hh),
                               R("s_pack_hl_b32_b16", "s=ss", pack_hl),
                               R("s_mul_u64", "S=SS", mul64),
                               R("s_add_nc_u64", "S=SS", add64),
                               R("s_sub_nc_u64", "S=SS", sub64),
                               EX("s_and_saveexec_b32", save_and),
                               EX("s_or_saveexec_b32", save_or),
                               EX("s_xor_saveexec_b32", save_xor),
                               EX("s_nand_saveexec_b32", save_nand),
                               EX("s_nor_saveexec_b32", save_nor),
                               EX("s_xnor_saveexec_b32", save_xnor),
                               EX("s_and_not0_saveexec_b32", save_and_not0),
                               EX("s_or_not0_saveexec_b32", save_or_not0),
                               EX("s_and_not1_saveexec_b32", save_and_not1),
                               EX("s_or_not1_saveexec_b32", save_or_not1),
                               EX("s_and_not0_wrexec_b32", wr_and_not0),
                               EX("s_and_not1_wrexec_b32", wr_and_not1),
                               R("s_cmp_eq_i32", "=ss", eq_32),
                               R("s_cmp_lg_i32", "=ss", lg_32),
                               R("s_cmp_gt_i32", "=ss", gt_i),
                               R("s_cmp_ge_i32", "=ss", ge_i),
                               R("s_cmp_lt_i32", "=ss", lt_i),
                               R("s_cmp_le_i32", "=ss", le_i),
                               R("s_cmp_eq_u32", "=ss", eq_32),
                               R("s_cmp_lg_u32", "=ss", lg_32),
                               R("s_cmp_gt_u32", "=ss", gt_u),
                               R("s_cmp_ge_u32", "=ss", ge_u),
                               R("s_cmp_lt_u32", "=ss", lt_u),
                               R("s_cmp_le_u32", "=ss", le_u),
                               R("s_cmp_eq_u64", "=SS", eq_64),
                               R("s_cmp_lg_u64", "=SS", lg_64),
                               R("s_bitcmp0_b32", "=ss", bitcmp0_32),
                               R("s_bitcmp1_b32", "=ss", bitcmp1_32),
                               R("s_bitcmp0_b64", "=Ss", bitcmp0_64),
                               R("s_bitcmp1_b64", "=Ss", bitcmp1_64),
                               R("s_movk_i32", "s=i", movk),
                               R("s_cmovk_i32", "s=i", cmovk),
                               R("s_addk_co_i32", "s=i", addk),
                               R("s_mulk_i32", "s=i", mulk),
                               {"s_movrels_b32", "s=s", movrel, NULL, NULL, GS_CLASS_SALU, 0, ROW_SALU, 3},
                               {"s_movrels_b64", "S=S", movrel, NULL, NULL, GS_CLASS_SALU, 0, ROW_SALU, 5},
                               {"s_movreld_b32", "s=s", movrel, NULL, NULL, GS_CLASS_SALU, 0, ROW_SALU, 2},
                               {"s_movreld_b64", "S=S", movrel, NULL, NULL, GS_CLASS_SALU, 0, ROW_SALU, 4},
                               {0}};
