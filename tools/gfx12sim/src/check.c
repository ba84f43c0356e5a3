// SPDX-License-Identifier: Apache-2.0
// Checks on registers, run before an instruction executes: lanes never written, loads still in flight, values
// that need an s_wait_alu, EXEC. Also the bookkeeping of the wait counters.
#include "sim.h"

void gs_issue(gs_wave *w, const gs_op *op, gs_counter counter) {
    gs_group *g = w->g;
    u32 sequence = ++w->issued[counter];
    if (sequence - w->done[counter] > 63) w->done[counter] = sequence - 63; // a full counter holds the wave
    w->pending_ops[counter][sequence & 63] = op->index;
    if (counter == GS_CNT_DS) w->lds_ticket[sequence & 63] = ++g->lds_ticket;
    else if (counter == GS_CNT_LOAD) w->ld_ticket[sequence & 63] = ++g->vm_ticket;
    else if (counter == GS_CNT_STORE) w->st_ticket[sequence & 63] = ++g->vm_ticket;
}

void gs_pend_vgpr(gs_wave *w, const gs_op *op, gs_counter counter) {
    u32 *pend = counter == GS_CNT_DS ? w->pend_ds : w->pend_load;
    if (op->dst.kind != OPND_VGPR) return;
    for (u32 i = 0; i < op->dst.dwords; i++) pend[op->dst.reg + i] = w->issued[counter];
}

static gs_stop report_wait(gs_wave *w, const gs_op *op, u32 reg, bool write) {
    bool ds = (i32)(w->pend_ds[reg] - w->done[GS_CNT_DS]) > 0;
    gs_counter counter = ds ? GS_CNT_DS : GS_CNT_LOAD;
    u32 sequence = ds ? w->pend_ds[reg] : w->pend_load[reg];
    const gs_op *load = &w->ops[w->pending_ops[counter][sequence & 63]];
    return gs_fault(w, op, GS_CHECK_WAIT, -1, 0,
                    "v%u is %s while the load at %llx (%.60s) is in flight; needs s_wait_%s 0x%x before", reg,
                    write ? "overwritten" : "read", (unsigned long long)load->va, load->text, gs_counter_name(counter),
                    w->issued[counter] - sequence);
}

static gs_stop check_reads(gs_wave *w, const gs_op *op, u32 exec, const bool *check) {
    u32 load_done = w->done[GS_CNT_LOAD], ds_done = w->done[GS_CNT_DS];
    for (u32 k = 0; k < op->vread_count; k++) {
        u32 first = op->vread[k].reg, count = op->vread[k].count, unwritten = 0, pending = 0;
        // Compilers use a 64-bit multiply-add for 32 bits and leave the addend's other half as it is.
        u32 needed = op->row->flags & ROW_WIDE_ADDEND && count == 2 ? first + 1 : first + count;
        for (u32 r = first; r < first + count; r++) {
            if (r < needed) unwritten |= exec & ~w->written[r];
            pending |= (u32)((i32)(w->pend_load[r] - load_done) > 0) | (u32)((i32)(w->pend_ds[r] - ds_done) > 0);
        }
        if (pending && check[GS_CHECK_WAIT])
            for (u32 r = first; r < first + count; r++)
                if ((i32)(w->pend_load[r] - load_done) > 0 || (i32)(w->pend_ds[r] - ds_done) > 0)
                    return report_wait(w, op, r, false);
        if (unwritten && check[GS_CHECK_UNINIT_VGPR] && !(op->row->flags & (ROW_PROPAGATE | ROW_PARTIAL_READ)))
            for (u32 r = first; r < first + count; r++)
                if (exec & ~w->written[r]) {
                    int lane = __builtin_ctz(exec & ~w->written[r]);
                    return gs_fault(w, op, GS_CHECK_UNINIT_VGPR, lane, 0, "v%u is read but lane %d was never written", r, lane);
                }
    }
    return GS_RUN;
}

// A later load of the same counter may overwrite: loads return in order. Anything else must wait.
static gs_stop check_writes(gs_wave *w, const gs_op *op, u32 exec, bool wait) {
    u32 load_done = w->done[GS_CNT_LOAD], ds_done = w->done[GS_CNT_DS];
    bool by_load = op->row->flags & ROW_VM_RETURN, by_ds = op->row->flags & ROW_LDS_RETURN;
    u32 defined = exec;
    if (op->row->flags & ROW_PROPAGATE && exec) { // a move: what was undefined in the sources stays so
        for (u32 k = 0; k < op->vread_count; k++) defined &= w->written[op->vread[k].reg];
        if (op->pair) defined = exec;
    }
    u32 high = ~0u; // lanes whose result's high half is defined
    for (u32 k = 0; op->row->flags & ROW_WIDE_ADDEND && k < op->vread_count; k++)
        if (op->vread[k].count == 2) high = w->written[op->vread[k].reg + 1];
    for (u32 k = 0; k < op->vwrite_count; k++)
        for (u32 r = op->vwrite[k].reg; r < (u32)op->vwrite[k].reg + op->vwrite[k].count; r++) {
            bool late = ((i32)(w->pend_load[r] - load_done) > 0 && !by_load) || ((i32)(w->pend_ds[r] - ds_done) > 0 && !by_ds);
            if (late && wait) return report_wait(w, op, r, true);
            u32 lanes = r > op->vwrite[k].reg ? defined & high : defined;
            w->written[r] = (w->written[r] & ~(exec & ~lanes)) | lanes;
        }
    return GS_RUN;
}

static u32 first_bit(u64 lo, u64 hi) { return lo ? (u32)__builtin_ctzll(lo) : 64 + (u32)__builtin_ctzll(hi); }

static gs_stop check_scalar_wait(gs_wave *w, const gs_op *op) {
    u64 lo = (op->sread[0] | op->swrite[0]) & w->smem_pending[0], hi = (op->sread[1] | op->swrite[1]) & w->smem_pending[1];
    if (!(lo | hi) || op->cls == GS_CLASS_SMEM) {
        // A scalar load may follow another into other registers; its address must be there.
        lo = op->sread[0] & w->smem_pending[0], hi = op->sread[1] & w->smem_pending[1];
        if (!(lo | hi)) return GS_RUN;
    }
    return gs_fault(w, op, GS_CHECK_WAIT, -1, 0, "s%u is used while a scalar load into it is in flight; needs s_wait_kmcnt 0x0",
                    first_bit(lo, hi));
}

// The SGPR read hazard of GFX12. A pair of SGPRs that a VALU has read once is cached; after that, a value written
// by the SALU needs sa_sdst(0), one written by a VALU va_sdst(0) (VCC: va_vcc(0)) before the next read. A scalar or
// buffer memory instruction flushes. EXEC, M0 and NULL are exempt. (Facts: LLVM's description of the hazard.)
static const u64 VCC_HI = 3ull << (SGPR_VCC - 64);
static const u64 EXEMPT_HI = 15ull << (SGPR_NULL - 64);

static u64 pairs_of(u64 lo, u64 hi) { // 128 registers to 64 pairs
    lo = (lo | lo >> 1) & 0x5555555555555555, hi = (hi | hi >> 1) & 0x5555555555555555;
    u64 r = 0;
    while (lo) r |= 1ull << (__builtin_ctzll(lo) / 2), lo &= lo - 1;
    while (hi) r |= 1ull << (32 + __builtin_ctzll(hi) / 2), hi &= hi - 1;
    return r;
}

static gs_stop check_hazard(gs_wave *w, const gs_op *op) {
    bool valu = op->row->flags & ROW_VALU, salu = op->row->flags & ROW_SALU;
    if (op->cls == GS_CLASS_SMEM || (op->cls <= GS_CLASS_ATOMIC && op->cls >= GS_CLASS_VMEM_LOAD && op->text[0] == 'b')) {
        w->hz_salu[0] = w->hz_salu[1] = w->hz_valu[0] = w->hz_valu[1] = 0;
        w->hz_vcc_salu = w->hz_vcc_valu = false;
        return GS_RUN;
    }
    if (!valu && !salu) return GS_RUN;
    u64 rlo = op->sread[0], rhi = op->sread[1] & ~EXEMPT_HI, wlo = op->swrite[0], whi = op->swrite[1] & ~EXEMPT_HI;
    if (!(rlo | rhi | wlo | whi)) return GS_RUN;
    u64 tracked = w->hz_tracked, read_pairs = pairs_of(rlo, rhi);
    if (salu && tracked & read_pairs) { // an SALU read waits for the VALU in hardware
        if (rhi & VCC_HI) w->hz_vcc_valu = false;
        if (rlo | (rhi & ~VCC_HI)) w->hz_valu[0] = w->hz_valu[1] = 0;
    }
    u64 slo = rlo & w->hz_salu[0], shi = rhi & ~VCC_HI & w->hz_salu[1], vlo = valu ? rlo & w->hz_valu[0] : 0, vhi = valu ? rhi & ~VCC_HI & w->hz_valu[1] : 0;
    bool vcc = rhi & VCC_HI;
    if (valu && w->g->run->check[GS_CHECK_HAZARD]) {
        if (slo | shi) return gs_fault(w, op, GS_CHECK_HAZARD, -1, 0, "s%u was written by the SALU after a VALU had read its pair; needs s_wait_alu depctr_sa_sdst(0) before this read", first_bit(slo, shi));
        if (vlo | vhi) return gs_fault(w, op, GS_CHECK_HAZARD, -1, 0, "s%u was written by a VALU after a VALU had read its pair; needs s_wait_alu depctr_va_sdst(0) before this read", first_bit(vlo, vhi));
        if (vcc && w->hz_vcc_salu) return gs_fault(w, op, GS_CHECK_HAZARD, -1, 0, "VCC was written by the SALU after a VALU had read it; needs s_wait_alu depctr_sa_sdst(0) before this read");
        if (vcc && w->hz_vcc_valu) return gs_fault(w, op, GS_CHECK_HAZARD, -1, 0, "VCC was written by a VALU after a VALU had read it; needs s_wait_alu depctr_va_vcc(0) before this read");
    }
    if (valu) tracked = w->hz_tracked |= read_pairs;
    for (int i = 0; i < 2; i++) {
        u64 writes = i ? whi & ~VCC_HI : wlo;
        while (writes) {
            u32 bit = (u32)__builtin_ctzll(writes);
            writes &= writes - 1;
            if (!(tracked >> (bit / 2 + 32 * i) & 1)) continue;
            if (salu) w->hz_salu[i] |= 1ull << bit;
            else w->hz_valu[i] |= 1ull << bit;
        }
    }
    if (whi & VCC_HI && tracked >> (SGPR_VCC / 2) & 1) w->hz_vcc_salu = salu, w->hz_vcc_valu = valu;
    return GS_RUN;
}

gs_stop gs_check_op(gs_wave *w, const gs_op *op) {
    const bool *check = w->g->run->check;
    u32 flags = op->row->flags, exec = flags & (ROW_NO_EXEC | ROW_EXEC_FULL) ? ~0u : gs_exec(w);
    if (flags & ROW_EXEC_FULL && gs_exec(w) != ~0u && check[GS_CHECK_EXEC])
        return gs_fault(w, op, GS_CHECK_EXEC, __builtin_ctz(~gs_exec(w)), 0, "EXEC is 0x%08x; this instruction needs all 32 lanes", gs_exec(w));
    if (op->vread_count && check_reads(w, op, exec, check)) return GS_STOP_FAULT;
    if (op->pair && op->pair->vread_count && check_reads(w, op->pair, exec, check)) return GS_STOP_FAULT;
    if (w->smem_pending[0] | w->smem_pending[1] && check[GS_CHECK_WAIT] && check_scalar_wait(w, op)) return GS_STOP_FAULT;
    if (op->vwrite_count && !(flags & ROW_PARTIAL_READ && flags & ROW_NO_EXEC) && check_writes(w, op, exec, check[GS_CHECK_WAIT])) return GS_STOP_FAULT;
    if (op->pair && check_writes(w, op->pair, exec, check[GS_CHECK_WAIT])) return GS_STOP_FAULT;
    return check_hazard(w, op);
}
