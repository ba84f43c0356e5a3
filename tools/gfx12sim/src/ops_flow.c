// SPDX-License-Identifier: Apache-2.0
// Control: branches, calls, barriers, wait counters, mode registers, messages, hints.
// Tables and formulas stand one a line: wrapped they cannot be compared by eye.
// clang-format off
#include <immintrin.h>
#include "group.h"
#include "module.h"

static gs_stop nothing(gs_wave *w, const gs_op *op) {
    (void)w, (void)op;
    return GS_RUN;
}
static gs_stop yield(gs_wave *w, const gs_op *op) {
    (void)w, (void)op;
    return GS_STOP_YIELD;
}

static gs_stop jump(gs_wave *w, const gs_op *op) {
    if (!op->target)
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "branch to 0x%llx, which holds no instruction",
                        (unsigned long long)(op->va + 4 + (u64)(i64)op->offset * 4));
    w->pc = op->target - 1;
    return GS_RUN;
}
#define BRANCH(name, condition)                                                                              \
    static gs_stop name(gs_wave *w, const gs_op *op) {                                                       \
        return (condition) ? jump(w, op) : GS_RUN;                                                           \
    }
BRANCH(scc0, !w->scc)
BRANCH(scc1, w->scc)
BRANCH(vccz, !w->s[SGPR_VCC])
BRANCH(vccnz, w->s[SGPR_VCC]) BRANCH(execz, !gs_exec(w)) BRANCH(execnz, gs_exec(w))

    static u64 device_pc(const gs_wave *w, const gs_op *op) {
    return w->g->run->kernel->module->device_base + op->va + op->bytes;
}
static void set64(gs_wave *w, u32 reg, u64 v) {
    gs_scalar_set(w, reg, (u32)v);
    gs_scalar_set(w, reg + 1, (u32)(v >> 32));
}
static gs_stop go_to(gs_wave *w, const gs_op *op, u64 address) {
    const gs_module *m = w->g->run->kernel->module;
    const gs_op *to = gs_op_find(m, address - m->device_base);
    if (!to)
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, address,
                        "jump to 0x%llx, which holds no instruction of this code object",
                        (unsigned long long)address);
    w->pc = to->index;
    return GS_RUN;
}
static gs_stop getpc(gs_wave *w, const gs_op *op) {
    set64(w, op->dst.reg, device_pc(w, op));
    return GS_RUN;
}
static gs_stop setpc(gs_wave *w, const gs_op *op) {
    return go_to(w, op, gs_scalar64(w, op->src[0].reg));
}
static gs_stop swappc(gs_wave *w, const gs_op *op) {
    u64 to = gs_scalar64(w, op->src[0].reg);
    set64(w, op->dst.reg, device_pc(w, op));
    return go_to(w, op, to);
}
static gs_stop call(gs_wave *w, const gs_op *op) {
    set64(w, op->dst.reg, device_pc(w, op));
    return go_to(w, op, device_pc(w, op) + (u64)((i64)op->offset * 4));
}

static gs_stop endpgm(gs_wave *w, const gs_op *op) {
    (void)op;
    for (u32 c = 0; c < GS_CNT_COUNT; c++) w->done[c] = w->issued[c];
    w->ended = true;
    return GS_STOP_END;
}

// ---- wait counters ------------------------------------------------------------------------------------------
static void wait_for(gs_wave *w, const gs_op *op, gs_counter c, u32 allowed) {
    u32 outstanding = w->issued[c] - w->done[c];
    gs_stats *stats = w->g->stats;
    if (w->g->run->want_stats) {
        stats->waits[c]++;
        if (outstanding > allowed) {
            stats->blocking_waits[c]++;
            if (w->g->lines) {
                w->g->lines[op->index].blocking++;
                w->g->lines[w->pending_ops[c][(w->issued[c] - allowed) & 63]].blocking++;
            }
        }
    }
    // Scalar loads return in any order: only a wait for none of them says anything.
    if (c == GS_CNT_KM && allowed) return;
    if (outstanding > allowed) w->done[c] = w->issued[c] - allowed;
    if (c == GS_CNT_KM) w->smem_pending[0] = w->smem_pending[1] = 0;
}
static gs_stop wait_load(gs_wave *w, const gs_op *op) {
    wait_for(w, op, GS_CNT_LOAD, (u32)op->offset & 63);
    return GS_RUN;
}
static gs_stop wait_store(gs_wave *w, const gs_op *op) {
    wait_for(w, op, GS_CNT_STORE, (u32)op->offset & 63);
    return GS_RUN;
}
static gs_stop wait_ds(gs_wave *w, const gs_op *op) {
    wait_for(w, op, GS_CNT_DS, (u32)op->offset & 63);
    return GS_RUN;
}
static gs_stop wait_km(gs_wave *w, const gs_op *op) {
    wait_for(w, op, GS_CNT_KM, (u32)op->offset & 31);
    return GS_RUN;
}
static gs_stop wait_load_ds(gs_wave *w, const gs_op *op) { // bits 5..0 dscnt, 13..8 loadcnt
    wait_for(w, op, GS_CNT_LOAD, (u32)op->offset >> 8 & 63);
    return wait_ds(w, op);
}
static gs_stop wait_store_ds(gs_wave *w, const gs_op *op) {
    wait_for(w, op, GS_CNT_STORE, (u32)op->offset >> 8 & 63);
    return wait_ds(w, op);
}
static gs_stop wait_idle(gs_wave *w, const gs_op *op) {
    for (u32 c = 0; c < GS_CNT_COUNT; c++) wait_for(w, op, (gs_counter)c, 0);
    return GS_RUN;
}
// Fields of the immediate (LLVM's names): va_sdst bits 11..9, va_vcc bit 1, sa_sdst bit 0; all ones: no wait.
static gs_stop wait_alu(gs_wave *w, const gs_op *op) {
    u32 imm = (u32)op->offset;
    if (!(imm >> 9 & 7)) w->hz_valu[0] = w->hz_valu[1] = 0;
    if (!(imm & 2)) w->hz_vcc_valu = false;
    if (!(imm & 1)) w->hz_salu[0] = w->hz_salu[1] = 0, w->hz_vcc_salu = false;
    return GS_RUN;
}

// ---- barriers ----------------------------------------------------------------------------------------------
static gs_stop barrier_signal(gs_wave *w, const gs_op *op) {
    const gs_run *run = w->g->run;
    if ((i32)op->src[0].value != -1 || op->src[0].kind != OPND_CONST)
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "only the work-group barrier (-1) is simulated");
    if (run->check[GS_CHECK_BARRIER] && gs_exec(w) != w->launch_exec) {
        u32 missing = w->launch_exec & ~gs_exec(w);
        return gs_fault(w, op, GS_CHECK_BARRIER, missing ? __builtin_ctz(missing) : 0, 0,
                        "barrier reached with EXEC 0x%08x, the wave began with 0x%08x", gs_exec(w),
                        w->launch_exec);
    }
    if (w->barrier_target > w->g->phase)
        return gs_fault(w, op, GS_CHECK_HANG, -1, 0,
                        "a second s_barrier_signal without s_barrier_wait between");
    if (op->row->arg) w->scc = w->g->signalled == 0; // isfirst
    return gs_barrier_arrive(w, op);
}
static gs_stop barrier_wait(gs_wave *w, const gs_op *op) {
    if (!w->barrier_target)
        return gs_fault(w, op, GS_CHECK_HANG, -1, 0,
                        "s_barrier_wait without s_barrier_signal: the wave would wait for ever");
    if (w->barrier_target > w->g->phase) {
        w->pc = op->index; // tried again when the barrier has completed
        return GS_STOP_BARRIER;
    }
    w->barrier_target = 0;
    gs_race_join(w);
    if (w->g->run->want_stats) w->g->stats->barriers++;
    return GS_RUN;
}

// ---- mode and hardware registers -----------------------------------------------------------------------------
void gs_mode_apply(gs_wave *w) {
    static const u32 host[4] = {0, 2, 1, 3}; // AMD: even, +inf, -inf, zero; x86: even, -inf, +inf, zero
    w->moded = (w->mode & 0xff) != 0xf0;     // bits 3..0 rounding, 7..4 denormals kept
    _mm_setcsr(0x1f80 | host[w->mode & 3] << 13);
}
enum { HW_MODE = 1, HW_STATUS = 2, HW_ID1 = 23, HW_ID2 = 24, HW_CYCLES_LO = 29, HW_CYCLES_HI = 30 };

// The clock counts the wave's instructions, which are summed up between turns: the reader takes a new turn first.
static bool clock_behind(gs_wave *w) {
    w->clock_read = !w->clock_read;
    if (w->clock_read) w->pc--;
    return w->clock_read;
}

// simm16: register bits 5..0, offset 10..6, width - 1 15..11
static gs_stop hwreg_read(gs_wave *w, const gs_op *op, u32 id, u32 *value) {
    switch (id) {
    case HW_MODE:
        *value = w->mode;
        return GS_RUN;
    case HW_STATUS:
        *value = w->scc;
        return GS_RUN;
    case HW_ID1:
        *value = w->index;
        return GS_RUN;
    case HW_ID2:
        *value = 0;
        return GS_RUN;
    case HW_CYCLES_LO:
        *value = (u32)w->steps;
        return GS_RUN; // a clock of executed instructions
    case HW_CYCLES_HI:
        *value = (u32)(w->steps >> 32);
        return GS_RUN;
    default:
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "hardware register %u is not simulated", id);
    }
}
static gs_stop getreg(gs_wave *w, const gs_op *op) {
    u32 imm = (u32)op->offset & 0xffff, value = 0;
    if (((imm & 63) == HW_CYCLES_LO || (imm & 63) == HW_CYCLES_HI) && clock_behind(w)) return GS_STOP_YIELD;
    if (hwreg_read(w, op, imm & 63, &value)) return GS_STOP_FAULT;
    u32 width = (imm >> 11) + 1;
    value >>= imm >> 6 & 31;
    gs_scalar_set(w, op->dst.reg, width < 32 ? value & ((1u << width) - 1) : value);
    return GS_RUN;
}
static gs_stop set_mode_field(gs_wave *w, const gs_op *op, u32 imm, u32 value) {
    if ((imm & 63) != HW_MODE)
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "write of hardware register %u is not simulated",
                        imm & 63);
    u32 at = imm >> 6 & 31, width = (imm >> 11) + 1, mask = (width < 32 ? (1u << width) - 1 : ~0u) << at;
    w->mode = (w->mode & ~mask) | (value << at & mask);
    gs_mode_apply(w);
    return GS_RUN;
}
static gs_stop setreg(gs_wave *w, const gs_op *op) {
    return set_mode_field(w, op, (u32)op->offset & 0xffff, (u32)gs_scalar_get(w, &op->src[1]));
}
static gs_stop setreg_imm(gs_wave *w, const gs_op *op) {
    return set_mode_field(w, op, (u32)op->offset & 0xffff, (u32)op->offset1);
}
static gs_stop round_mode(gs_wave *w, const gs_op *op) {
    return set_mode_field(w, op, HW_MODE | 3 << 11, (u32)op->offset & 15);
}
static gs_stop denorm_mode(gs_wave *w, const gs_op *op) {
    return set_mode_field(w, op, HW_MODE | 4 << 6 | 3 << 11, (u32)op->offset & 15);
}

// Messages: the one that frees registers is a hint. Returned ones: only the clock.
static gs_stop sendmsg_rtn(gs_wave *w, const gs_op *op) {
    enum { GET_REALTIME = 0x83 };
    u32 id = op->raw >> 0 & 0xff;
    if (id != GET_REALTIME)
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "returned message 0x%x is not simulated", id);
    if (clock_behind(w)) return GS_STOP_YIELD;
    gs_issue(w, op, GS_CNT_KM);
    gs_scalar_set(w, op->dst.reg, (u32)w->steps);
    if (op->dst.dwords == 2) gs_scalar_set(w, op->dst.reg + 1u, (u32)(w->steps >> 32));
    if (w->g->run->checked) w->smem_pending[0] |= op->swrite[0], w->smem_pending[1] |= op->swrite[1];
    return GS_RUN;
}
static gs_stop trap(gs_wave *w, const gs_op *op) {
    return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "s_trap: the kernel reports that it cannot go on");
}

#define B(name, sig, fn)                                                                                     \
    { name, sig, fn, NULL, NULL, GS_CLASS_BRANCH, 0, 0, 0 }
#define P(name, sig, fn)                                                                                     \
    { name, sig, fn, NULL, NULL, GS_CLASS_BRANCH, 0, ROW_SALU, 0 }
#define WAIT(name, fn)                                                                                       \
    { name, "*", fn, NULL, NULL, GS_CLASS_WAIT, 0, 0, 0 }
#define HINT(name)                                                                                           \
    { name, "*", nothing, NULL, NULL, GS_CLASS_HINT, 0, 0, 0 }
const gs_row gs_rows_flow[] = {
    B("s_branch", "*", jump),
    B("s_cbranch_scc0", "*", scc0),
    B("s_cbranch_scc1", "*", scc1),
    B("s_cbranch_vccz", "*", vccz),
    B("s_cbranch_vccnz", "*", vccnz),
    B("s_cbranch_execz", "*", execz),
    B("s_cbranch_execnz", "*", execnz),
    P("s_getpc_b64", "S=", getpc),
    P("s_setpc_b64", "=S", setpc),
    P("s_swappc_b64", "S=S", swappc),
    P("s_call_b64", "S=i", call),
    B("s_endpgm", "*", endpgm),
    WAIT("s_wait_loadcnt", wait_load),
    WAIT("s_wait_storecnt", wait_store),
    WAIT("s_wait_dscnt", wait_ds),
    WAIT("s_wait_kmcnt", wait_km),
    WAIT("s_wait_loadcnt_dscnt", wait_load_ds),
    WAIT("s_wait_storecnt_dscnt", wait_store_ds),
    WAIT("s_wait_idle", wait_idle),
    WAIT("s_wait_expcnt", nothing),
    WAIT("s_wait_samplecnt", nothing),
    WAIT("s_wait_bvhcnt", nothing),
    WAIT("s_wait_event", nothing),
    {"s_wait_alu", "*", wait_alu, NULL, NULL, GS_CLASS_HINT, 0, 0, 0},
    {"s_barrier_signal", "=s", barrier_signal, NULL, NULL, GS_CLASS_BARRIER, 0, 0, 0},
    {"s_barrier_signal_isfirst", "=s", barrier_signal, NULL, NULL, GS_CLASS_BARRIER, 0, 0, 1},
    {"s_barrier_wait", "*", barrier_wait, NULL, NULL, GS_CLASS_BARRIER, 0, 0, 0},
    {"s_getreg_b32", "s=i", getreg, NULL, NULL, GS_CLASS_SALU, 0, ROW_SALU, 0},
    {"s_setreg_b32", "=is", setreg, NULL, NULL, GS_CLASS_SALU, 0, ROW_SALU, 0},
    {"s_setreg_imm32_b32", "*", setreg_imm, NULL, NULL, GS_CLASS_SALU, 0, 0, 0},
    {"s_round_mode", "*", round_mode, NULL, NULL, GS_CLASS_SALU, 0, 0, 0},
    {"s_denorm_mode", "*", denorm_mode, NULL, NULL, GS_CLASS_SALU, 0, 0, 0},
    {"s_sendmsg_rtn_b32", "s=i", sendmsg_rtn, NULL, NULL, GS_CLASS_SMEM, 0, 0, 0},
    {"s_sendmsg_rtn_b64", "S=i", sendmsg_rtn, NULL, NULL, GS_CLASS_SMEM, 0, 0, 0},
    {"s_trap", "*", trap, NULL, NULL, GS_CLASS_BRANCH, 0, 0, 0},
    {"s_sleep", "*", yield, NULL, NULL, GS_CLASS_HINT, 0, 0, 0},
    {"s_sleep_var", "*", yield, NULL, NULL, GS_CLASS_HINT, 0, 0, 0},
    HINT("s_nop"),
    HINT("s_delay_alu"),
    HINT("s_clause"),
    HINT("s_sendmsg"),
    HINT("s_setprio"),
    HINT("s_icache_inv"),
    HINT("global_inv"),
    HINT("global_wb"),
    HINT("global_wbinv"),
    {0}};
