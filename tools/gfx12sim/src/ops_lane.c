// SPDX-License-Identifier: Apache-2.0
// Instructions that move values between lanes or between vector and scalar registers: readlane, writelane,
// permlane16 and its kin, and the pseudo-scalar transcendentals of the vector ALU.
#include "isa.h"
#include "trans.h"

static gs_stop unwritten(gs_wave *w, const gs_op *op, u32 lane) {
    return gs_fault(w, op, GS_CHECK_UNINIT_VGPR, (int)lane, 0, "lane %u of v%u was never written", lane, op->src[0].reg);
}

static gs_stop read_lane(gs_wave *w, const gs_op *op, u32 lane) {
    const gs_opnd *s = &op->src[0];
    u32 value = s->kind == OPND_VGPR ? gs_vgpr(w, s->reg)[lane] : (u32)gs_scalar_get(w, s);
    if (s->kind == OPND_VGPR && w->g->run->check[GS_CHECK_UNINIT_VGPR] && !(w->written[s->reg] >> lane & 1))
        return unwritten(w, op, lane);
    gs_scalar_set(w, op->dst.reg, value);
    return GS_RUN;
}

static gs_stop readfirstlane(gs_wave *w, const gs_op *op) {
    u32 exec = gs_exec(w);
    return read_lane(w, op, exec ? (u32)__builtin_ctz(exec) : 0);
}
static gs_stop readlane(gs_wave *w, const gs_op *op) { return read_lane(w, op, (u32)gs_scalar_get(w, &op->src[1]) & 31); }
static gs_stop writelane(gs_wave *w, const gs_op *op) {
    u32 lane = (u32)gs_scalar_get(w, &op->src[1]) & 31;
    gs_vgpr(w, op->dst.reg)[lane] = (u32)gs_scalar_get(w, &op->src[0]);
    w->written[op->dst.reg] |= 1u << lane;
    return GS_RUN;
}

// op_sel bit 0: read inactive lanes too (FI); bit 1: an inactive source gives 0 instead of no write (BC).
static gs_stop permlane(gs_wave *w, const gs_op *op, const u32 *from) {
    const u32 *in = gs_vgpr(w, op->src[0].reg);
    u32 exec = gs_exec(w), write = exec, out[GS_LANES];
    for (u32 i = 0; i < GS_LANES; i++) {
        bool valid = op->op_sel & 1 || exec >> from[i] & 1;
        if (!valid && !(op->op_sel & 2)) write &= ~(1u << i);
        out[i] = valid ? in[from[i]] : 0;
        if (write >> i & 1 && valid && w->g->run->check[GS_CHECK_UNINIT_VGPR] && !(w->written[op->src[0].reg] >> from[i] & 1))
            return unwritten(w, op, from[i]);
    }
    gs_blend(gs_vgpr(w, op->dst.reg), out, write, 1);
    return GS_RUN;
}

// The row (16 lanes) of the source: own or opposite. Selectors: nibbles of two scalars, or a register per lane.
static gs_stop permlane_fixed(gs_wave *w, const gs_op *op) {
    u64 select = (u32)gs_scalar_get(w, &op->src[1]) | gs_scalar_get(w, &op->src[2]) << 32;
    u32 from[GS_LANES];
    for (u32 i = 0; i < GS_LANES; i++) from[i] = ((i & 16) ^ op->row->arg) | (select >> 4 * (i & 15) & 15);
    return permlane(w, op, from);
}
static gs_stop permlane_var(gs_wave *w, const gs_op *op) {
    u32 tmp[2 * GS_LANES], from[GS_LANES];
    const u32 *select = gs_fetch(w, &op->src[1], tmp);
    for (u32 i = 0; i < GS_LANES; i++) from[i] = ((i & 16) ^ op->row->arg) | (select[i] & 15);
    return permlane(w, op, from);
}
// Exchanges the halves of a wave64; a wave32 has nothing to exchange (ISA guide: no operation).
static gs_stop permlane64(gs_wave *w, const gs_op *op) { (void)w, (void)op; return GS_RUN; }

// v_s_*: one scalar through the transcendental unit.
#define SCALAR_FN(name, expr)                                                                                  \
    static gs_stop name(gs_wave *w, const gs_op *op) {                                                         \
        u32 bits = (u32)gs_scalar_get(w, &op->src[0]);                                                         \
        if (op->src[0].abs) bits &= 0x7fffffff;                                                                \
        if (op->src[0].neg) bits ^= 0x80000000;                                                                \
        float x = gs_f32(bits);                                                                                \
        gs_scalar_set(w, op->dst.reg, gs_bits(expr));                                                          \
        return GS_RUN;                                                                                         \
    }
#define SCALAR_HALF(name, expr)                                                                                \
    static gs_stop name(gs_wave *w, const gs_op *op) {                                                         \
        u32 bits = (u32)gs_scalar_get(w, &op->src[0]) & 0xffff;                                                \
        if (op->src[0].abs) bits &= 0x7fff;                                                                    \
        if (op->src[0].neg) bits ^= 0x8000;                                                                    \
        float x = gs_f16_to_f32_scalar(bits);                                                                  \
        gs_scalar_set(w, op->dst.reg, gs_f32_to_f16_scalar(expr));                                             \
        return GS_RUN;                                                                                         \
    }
SCALAR_FN(s_rcp, gs_rcp(x))
SCALAR_FN(s_rsq, gs_rsq(x))
SCALAR_FN(s_sqrt, gs_sqrt(x))
SCALAR_FN(s_exp, gs_exp2(x))
SCALAR_FN(s_log, gs_log2(x))
SCALAR_HALF(s_rcp16, 1.0f / x)
SCALAR_HALF(s_rsq16, (float)(1.0 / sqrt((double)x)))
SCALAR_HALF(s_sqrt16, sqrtf(x))
SCALAR_HALF(s_exp16, (float)exp2((double)x))
SCALAR_HALF(s_log16, (float)log2((double)x))

#define L(name, sig, fn, arg, flags) {name, sig, fn, NULL, NULL, GS_CLASS_VALU, 0, ROW_VALU | (flags), arg}
#define T(name, sig, fn)             {name, sig, fn, NULL, NULL, GS_CLASS_TRANS, 0, ROW_VALU, 0}
const gs_row GS_SYM(gs_rows_lane)[] = {
    L("v_readfirstlane_b32", "s=r", readfirstlane, 0, ROW_NO_EXEC | ROW_PARTIAL_READ), L("v_readlane_b32", "s=rs", readlane, 0, ROW_NO_EXEC | ROW_PARTIAL_READ),
    L("v_writelane_b32", "u=ss", writelane, 0, ROW_NO_EXEC | ROW_PARTIAL_READ),
    L("v_permlane16_b32", "u=uss", permlane_fixed, 0, ROW_PARTIAL_READ), L("v_permlanex16_b32", "u=uss", permlane_fixed, 16, ROW_PARTIAL_READ),
    L("v_permlane16_var_b32", "u=uu", permlane_var, 0, ROW_PARTIAL_READ), L("v_permlanex16_var_b32", "u=uu", permlane_var, 16, ROW_PARTIAL_READ),
    L("v_permlane64_b32", "u=u", permlane64, 0, ROW_PARTIAL_READ),
    T("v_s_rcp_f32", "t=t", s_rcp), T("v_s_rsq_f32", "t=t", s_rsq), T("v_s_sqrt_f32", "t=t", s_sqrt), T("v_s_exp_f32", "t=t", s_exp), T("v_s_log_f32", "t=t", s_log),
    T("v_s_rcp_f16", "T=T", s_rcp16), T("v_s_rsq_f16", "T=T", s_rsq16), T("v_s_sqrt_f16", "T=T", s_sqrt16), T("v_s_exp_f16", "T=T", s_exp16), T("v_s_log_f16", "T=T", s_log16),
    {0}};
