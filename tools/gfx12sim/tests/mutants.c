// SPDX-License-Identifier: Apache-2.0
// See mutants.h.
#include "mutants.h"

static const char *target;
static mutation kind;

static void flip_vgpr(gs_wave *w, const gs_op *op, const gs_opnd *o) {
    u32 exec = op->row->flags & ROW_NO_EXEC ? ~0u : gs_exec(w), *v = gs_vgpr(w, o->reg);
    if (kind == FLIP_MANY) {
        for (u32 i = 0; i < (u32)o->dwords * GS_LANES; i++)
            if (exec >> (i % GS_LANES) & 1)
                v[i] ^= 0x00400040; // both halves, and a high bit of an f32's fraction
    } else if (exec)
        v[__builtin_ctz(exec)] ^= o->hi ? 0x10000 : 1;
}

static void falsify(gs_wave *w, const gs_op *op) {
    const gs_opnd *o = op->dst.kind == OPND_SGPR && op->dst.reg == SGPR_NULL ? &op->sdst : &op->dst;
    if (o->kind == OPND_VGPR)
        flip_vgpr(w, op, o);
    else if (o->kind == OPND_SGPR)
        for (u32 i = 0; i < o->dwords; i++)
            gs_scalar_set(w, o->reg + i, w->s[o->reg + i] ^ (kind ? 1 : 0x00400040));
}

static bool is_target(const gs_op *op) {
    return op && op->row && strcmp(op->row->name, target) == 0;
}

static gs_stop mutated(gs_wave *w, const gs_op *op) {
    bool here = is_target(op), result = op->dst.kind == OPND_VGPR || op->dst.kind == OPND_SGPR;
    if (strncmp(op->row->name, "s_movreld", 9) == 0) result = false; // writes another register than it names
    if (here && (!result || kind == LEAVE_OUT)) return GS_RUN;
    gs_stop stop = op->row->exec(w, op);
    if (here) falsify(w, op);
    if (is_target(op->pair)) falsify(w, op->pair);
    return stop;
}

void mutants_body(const gs_module *m, const gs_kernel *kernel, u32 before, u32 after, u32 *first, u32 *last) {
    u32 end = m->op_count, stop = kernel->entry;
    for (u32 k = 0; k < m->kernel_count; k++)
        if (m->kernels[k].entry > kernel->entry && m->kernels[k].entry < end) end = m->kernels[k].entry;
    for (u32 i = kernel->entry; i < end; i++)
        if (strcmp(m->ops[i].row->name, "s_endpgm") == 0) stop = i + 1;
    *first = kernel->entry + before;
    *last = stop - after;
}

u32 mutants_set(gs_module *m, u32 first, u32 last, const char *name, mutation how) {
    u32 count = 0;
    target = name, kind = how;
    for (u32 i = first; i < last; i++)
        if (is_target(&m->ops[i]) || is_target(m->ops[i].pair)) m->ops[i].exec = mutated, count++;
    return count;
}

void mutants_clear(gs_module *m, u32 first, u32 last) {
    for (u32 i = first; i < last; i++) m->ops[i].exec = m->ops[i].row->exec;
}
