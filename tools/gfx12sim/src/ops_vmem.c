// SPDX-License-Identifier: Apache-2.0
// Vector loads and stores of global, flat, buffer and scratch memory. The address forms differ; after that all
// share one path: check every lane, move the bytes, start the wait counter.
#include "lanes.h"

enum { LOAD, STORE };
#define ARG(part, store) ((part) << 4 | (store))

static inline gs_part part_of(const gs_op *op) {
    return (gs_part)(op->row->arg >> 4 & 15);
}
static inline bool is_store(const gs_op *op) {
    return op->row->arg & 15;
}
static const gs_opnd *data_of(const gs_op *op) {
    return is_store(op) ? &op->src[1] : &op->dst;
}

// global and flat: src[0] vaddr, then data (stores), then saddr.
static void flat_addresses(gs_wave *w, const gs_op *op, const gs_opnd *saddr, u64 *address) {
    const u32 *v = gs_vgpr(w, op->src[0].reg);
    if (saddr && saddr->kind == OPND_SGPR) {
        u64 base = gs_scalar64(w, saddr->reg) + (u64)(i64)op->offset;
        EACH
            address[i] = base + v[i];
    } else
        EACH
            address[i] = lane64(v, i) + (u64)(i64)op->offset;
}

static void finish_load(gs_wave *w, const gs_op *op) {
    if (w->g->run->checked) gs_pend_vgpr(w, op, GS_CNT_LOAD);
    if (op->scope >= SCOPE_DEV) gs_race_acquire(w);
}

// Accesses of device or system scope meet those of other host threads: flags between groups and between devices.
static void move_coherent(u32 *reg, const u64 *address, u32 exec, u32 words, bool store) {
    for (u32 m = exec; m; m &= m - 1) {
        u32 i = (u32)__builtin_ctz(m);
        if (words == 2 && !(address[i] & 7)) {
            u64 *p = (u64 *)(uintptr_t)address[i];
            if (store) {
                __atomic_store_n(p, reg[i] | (u64)reg[GS_LANES + i] << 32, __ATOMIC_RELEASE);
                continue;
            }
            u64 v = __atomic_load_n(p, __ATOMIC_ACQUIRE);
            reg[i] = (u32)v, reg[GS_LANES + i] = (u32)(v >> 32);
            continue;
        }
        u32 *p = (u32 *)(uintptr_t)address[i];
        for (u32 k = 0; k < words; k++) {
            if (store)
                __atomic_store_n(p + k, reg[k * GS_LANES + i], __ATOMIC_RELEASE);
            else
                reg[k * GS_LANES + i] = __atomic_load_n(p + k, __ATOMIC_ACQUIRE);
        }
    }
}
static bool coherent(const gs_op *op) {
    return op->scope >= SCOPE_DEV && part_of(op) == PART_WORDS;
}

static gs_stop move(gs_wave *w, const gs_op *op, const u64 *address, u32 exec) {
    bool store = is_store(op);
    gs_access access = op->scope >= SCOPE_DEV ? ACCESS_ATOMIC : store ? ACCESS_WRITE : ACCESS_READ;
    gs_issue(w, op, store ? GS_CNT_STORE : GS_CNT_LOAD);
    if (op->scope >= SCOPE_DEV && !store)
        access = ACCESS_READ; // a load of device scope waits for nobody's barrier
    if (access == ACCESS_READ && op->scope >= SCOPE_DEV) gs_race_acquire(w);
    if (access == ACCESS_ATOMIC) gs_race_release(w);
    w->store = gs_vgpr(w, data_of(op)->reg), w->store_high = part_of(op) >= PART_HI_U8;
    if (gs_global_access(w, op, address, exec, op->row->bytes, access)) return GS_STOP_FAULT;
    u32 *reg = gs_vgpr(w, data_of(op)->reg);
    if (coherent(op))
        move_coherent(reg, address, exec, op->row->bytes / 4, store);
    else if (store)
        lanes_store(lanes_global(address), reg, exec, op->row->bytes, part_of(op));
    else
        lanes_load(reg, lanes_global(address), exec, op->row->bytes, part_of(op));
    if (!store) finish_load(w, op);
    return GS_RUN;
}

static gs_stop global(gs_wave *w, const gs_op *op) {
    u64 address[GS_LANES];
    flat_addresses(w, op, &op->src[is_store(op) ? 2 : 1], address);
    return move(w, op, address, gs_exec(w));
}

// 8x8 transpose of halves inside each group of eight lanes: lane L's element j comes from lane 8*(L/8)+j, its
// half L%8 (the map that others measured on cards).
static gs_stop global_tr16(gs_wave *w, const gs_op *op) {
    u64 address[GS_LANES];
    u32 raw[4 * GS_LANES], *d = gs_vgpr(w, op->dst.reg);
    flat_addresses(w, op, &op->src[1], address);
    gs_issue(w, op, GS_CNT_LOAD);
    if (gs_global_access(w, op, address, ~0u, 16, ACCESS_READ)) return GS_STOP_FAULT;
    lanes_load(raw, lanes_global(address), ~0u, 16, PART_WORDS);
    for (u32 lane = 0; lane < GS_LANES; lane++)
        for (u32 j = 0; j < 8; j += 2) {
            u32 h = lane & 7, from = (lane & ~7u) + j, shift = 16 * (h & 1);
            u32 lo = raw[(h >> 1) * GS_LANES + from] >> shift & 0xffff,
                hi = raw[(h >> 1) * GS_LANES + from + 1] >> shift & 0xffff;
            d[(j >> 1) * GS_LANES + lane] = lo | hi << 16;
        }
    finish_load(w, op);
    return GS_RUN;
}
static gs_stop global_tr8(gs_wave *w, const gs_op *op) {
    return gs_fault(
        w, op, GS_CHECK_UNKNOWN, -1, 0,
        "the lane map of the 8-bit transposing load is unpublished; it is refused rather than guessed");
}

// One row of scratch per dword: [dword][lane].
static gs_stop scratch_move(gs_wave *w, const gs_op *op, const u32 *address, u32 exec) {
    u32 limit = w->g->run->scratch_bytes, bytes = op->row->bytes;
    bool store = is_store(op);
    u32 *reg = gs_vgpr(w, data_of(op)->reg);
    gs_issue(w, op, store ? GS_CNT_STORE : GS_CNT_LOAD);
    if (w->g->run->want_stats) w->g->stats->scratch_bytes += (u64)__builtin_popcount(exec) * bytes;
    for (u32 m = exec; m; m &= m - 1) {
        u32 i = (u32)__builtin_ctz(m), at = address[i], v = 0;
        if (at > limit || bytes > limit - at)
            return gs_fault(w, op, GS_CHECK_OUT_OF_BOUNDS, (int)i, at,
                            "scratch access of %u bytes at %u, a lane has %u bytes", bytes, at, limit);
        u8 value[16];
        if (store) {
            u32 words[4] = {0};
            for (u32 k = 0; k < (bytes + 3) / 4; k++) words[k] = reg[k * GS_LANES + i];
            if (part_of(op) >= PART_HI_U8) words[0] >>= 16;
            memcpy(value, words, sizeof value);
        }
        for (u32 b = 0; b < bytes; b++) {
            u8 *p = w->scratch + (((at + b) >> 2) * GS_LANES + i) * 4 + ((at + b) & 3);
            if (store)
                *p = value[b];
            else
                value[b] = *p;
        }
        if (store) continue;
        if (part_of(op) == PART_WORDS)
            for (u32 k = 0; k < bytes / 4; k++) memcpy(&reg[k * GS_LANES + i], value + 4 * k, 4);
        else {
            memcpy(&v, value, bytes);
            reg[i] = lanes_merge(reg[i], v, part_of(op));
        }
    }
    if (!store) finish_load(w, op);
    return GS_RUN;
}

static gs_stop scratch(gs_wave *w, const gs_op *op) {
    const gs_opnd *vaddr = &op->src[0], *saddr = &op->src[is_store(op) ? 2 : 1];
    u32 address[GS_LANES], base = (u32)op->offset + (saddr->kind == OPND_SGPR ? w->s[saddr->reg] : 0);
    for (int i = 0; i < GS_LANES; i++)
        address[i] = base + (vaddr->kind == OPND_VGPR ? gs_vgpr(w, vaddr->reg)[i] : 0);
    return scratch_move(w, op, address, gs_exec(w));
}

// flat: each lane's high address dword says LDS, scratch or global.
static gs_stop flat(gs_wave *w, const gs_op *op) {
    u64 address[GS_LANES];
    u32 low[GS_LANES], exec = gs_exec(w), lds = 0, priv = 0;
    flat_addresses(w, op, NULL, address);
    for (u32 i = 0; i < GS_LANES; i++) {
        u32 hi = (u32)(address[i] >> 32);
        low[i] = (u32)address[i];
        lds |= (u32)(hi == GS_APERTURE_SHARED_HI) << i;
        priv |= (u32)(hi == GS_APERTURE_PRIVATE_HI) << i;
    }
    lds &= exec, priv &= exec;
    u32 global_lanes = exec & ~lds & ~priv;
    gs_issue(w, op, GS_CNT_DS); // a flat access counts on both, whatever its lanes hit
    if (w->g->run->checked && !is_store(op)) gs_pend_vgpr(w, op, GS_CNT_DS);
    if (lds) {
        w->store = gs_vgpr(w, data_of(op)->reg), w->store_high = part_of(op) >= PART_HI_U8;
        if (gs_lds_access(w, op, low, lds, op->row->bytes, is_store(op) ? ACCESS_WRITE : ACCESS_READ))
            return GS_STOP_FAULT;
        if (is_store(op))
            lanes_store(lanes_lds(w, low), gs_vgpr(w, data_of(op)->reg), lds, op->row->bytes, part_of(op));
        else
            lanes_load(gs_vgpr(w, op->dst.reg), lanes_lds(w, low), lds, op->row->bytes, part_of(op));
    }
    if (priv && scratch_move(w, op, low, priv)) return GS_STOP_FAULT;
    return move(w, op, address, global_lanes);
}

// Buffer resource (RDNA4 ISA guide, "Buffer Resource Descriptor"): base 48 bits, stride 14 bits, records, flags.
// Lanes out of range load 0 and store nothing, as the hardware does; in range, the memory must be allocated.
static gs_stop buffer(gs_wave *w, const gs_op *op) {
    u32 k = is_store(op) ? 1 : 0; // stores: data is the first operand
    const gs_opnd *vaddr = &op->src[k], *rsrc = &op->src[k + 1], *soffset = &op->src[k + 2];
    const gs_opnd *data = is_store(op) ? &op->src[0] : &op->dst;
    const u32 *r = &w->s[rsrc->reg], *v = vaddr->kind == OPND_VGPR ? gs_vgpr(w, vaddr->reg) : NULL;
    u64 base = (r[0] | (u64)(r[1] & 0xffff) << 32), address[GS_LANES];
    u32 stride = r[1] >> 16 & 0x3fff, records = r[2], mode = r[3] >> 28 & 3, exec = gs_exec(w), in = 0,
        bytes = op->row->bytes;
    u32 scalar = (u32)gs_scalar_get(w, soffset);
    if (r[1] >> 30 || r[3] >> 23 & 1)
        return gs_fault(
            w, op, GS_CHECK_UNKNOWN, -1, 0,
            "buffer resource word1 0x%08x word3 0x%08x: swizzled and thread-id buffers are not simulated",
            r[1], r[3]);
    for (u32 i = 0; i < GS_LANES; i++) {
        u32 index = op->idxen && v ? v[i] : 0,
            offset = (op->offen && v ? v[(op->idxen ? GS_LANES : 0) + i] : 0);
        u64 in_record = (u64)offset + (u32)op->offset, linear = in_record + (u64)index * stride;
        bool ok = mode == 0   ? index < records && in_record + bytes <= stride
                  : mode == 1 ? index < records
                  : mode == 2 ? records != 0
                              : linear + bytes <= records;
        if (mode < 2 && !stride) ok = linear + bytes <= records; // no records to speak of: raw bytes
        address[i] = base + linear + scalar;
        in |= (u32)ok << i;
    }
    u32 active = exec & in;
    gs_issue(w, op, is_store(op) ? GS_CNT_STORE : GS_CNT_LOAD);
    u32 *reg = gs_vgpr(w, data->reg);
    w->store = reg, w->store_high = part_of(op) >= PART_HI_U8;
    if (gs_global_access(w, op, address, active, bytes, is_store(op) ? ACCESS_WRITE : ACCESS_READ))
        return GS_STOP_FAULT;
    if (is_store(op)) {
        lanes_store(lanes_global(address), reg, active, bytes, part_of(op));
        return GS_RUN;
    }
    for (u32 m = exec & ~in; m; m &= m - 1) {
        u32 i = (u32)__builtin_ctz(m);
        if (part_of(op) == PART_WORDS)
            for (u32 j = 0; j < bytes / 4; j++) reg[j * GS_LANES + i] = 0;
        else
            reg[i] = lanes_merge(reg[i], 0, part_of(op));
    }
    lanes_load(reg, lanes_global(address), active, bytes, part_of(op));
    finish_load(w, op);
    return GS_RUN;
}

#define LOADS(prefix, sig, fn, cls)                                                                          \
    {prefix "_load_b32", sig, fn, NULL, NULL, cls, 4, ROW_VM_RETURN, ARG(PART_WORDS, LOAD)},                 \
        {prefix "_load_b64", sig, fn, NULL, NULL, cls, 8, ROW_VM_RETURN, ARG(PART_WORDS, LOAD)},             \
        {prefix "_load_b96", sig, fn, NULL, NULL, cls, 12, ROW_VM_RETURN, ARG(PART_WORDS, LOAD)},            \
        {prefix "_load_b128", sig, fn, NULL, NULL, cls, 16, ROW_VM_RETURN, ARG(PART_WORDS, LOAD)},           \
        {prefix "_load_u8", sig, fn, NULL, NULL, cls, 1, ROW_VM_RETURN, ARG(PART_U8, LOAD)},                 \
        {prefix "_load_i8", sig, fn, NULL, NULL, cls, 1, ROW_VM_RETURN, ARG(PART_I8, LOAD)},                 \
        {prefix "_load_u16", sig, fn, NULL, NULL, cls, 2, ROW_VM_RETURN, ARG(PART_U16, LOAD)},               \
        {prefix "_load_i16", sig, fn, NULL, NULL, cls, 2, ROW_VM_RETURN, ARG(PART_I16, LOAD)},               \
        {prefix "_load_d16_u8", sig, fn, NULL, NULL, cls, 1, ROW_VM_RETURN, ARG(PART_LO_U8, LOAD)},          \
        {prefix "_load_d16_i8", sig, fn, NULL, NULL, cls, 1, ROW_VM_RETURN, ARG(PART_LO_I8, LOAD)},          \
        {prefix "_load_d16_b16", sig, fn, NULL, NULL, cls, 2, ROW_VM_RETURN, ARG(PART_LO_16, LOAD)},         \
        {prefix "_load_d16_hi_u8", sig, fn, NULL, NULL, cls, 1, ROW_VM_RETURN, ARG(PART_HI_U8, LOAD)},       \
        {prefix "_load_d16_hi_i8", sig, fn, NULL, NULL, cls, 1, ROW_VM_RETURN, ARG(PART_HI_I8, LOAD)},       \
        {prefix "_load_d16_hi_b16", sig, fn, NULL, NULL, cls, 2, ROW_VM_RETURN, ARG(PART_HI_16, LOAD)},
#define STORES(prefix, sig, fn, cls)                                                                         \
    {prefix "_store_b32", sig, fn, NULL, NULL, cls, 4, 0, ARG(PART_WORDS, STORE)},                           \
        {prefix "_store_b64", sig, fn, NULL, NULL, cls, 8, 0, ARG(PART_WORDS, STORE)},                       \
        {prefix "_store_b96", sig, fn, NULL, NULL, cls, 12, 0, ARG(PART_WORDS, STORE)},                      \
        {prefix "_store_b128", sig, fn, NULL, NULL, cls, 16, 0, ARG(PART_WORDS, STORE)},                     \
        {prefix "_store_b8", sig, fn, NULL, NULL, cls, 1, 0, ARG(PART_U8, STORE)},                           \
        {prefix "_store_b16", sig, fn, NULL, NULL, cls, 2, 0, ARG(PART_U16, STORE)},                         \
        {prefix "_store_d16_hi_b8", sig, fn, NULL, NULL, cls, 1, 0, ARG(PART_HI_U8, STORE)},                 \
        {prefix "_store_d16_hi_b16", sig, fn, NULL, NULL, cls, 2, 0, ARG(PART_HI_16, STORE)},
const gs_row GS_SYM(gs_rows_vmem)[] = {
    LOADS("global", "r=rr", global, GS_CLASS_VMEM_LOAD) STORES("global", "=rrr", global, GS_CLASS_VMEM_STORE)
        LOADS("flat", "r=r", flat, GS_CLASS_VMEM_LOAD) STORES("flat", "=rr", flat, GS_CLASS_VMEM_STORE)
            LOADS("scratch", "r=rr", scratch, GS_CLASS_SCRATCH)
                STORES("scratch", "=rrr", scratch, GS_CLASS_SCRATCH)
                    LOADS("buffer", "r=rrr", buffer, GS_CLASS_VMEM_LOAD)
                        STORES("buffer", "=rrrr", buffer, GS_CLASS_VMEM_STORE){
                            "global_load_tr_b128", "r=rr", global_tr16, NULL, NULL, GS_CLASS_VMEM_LOAD, 16,
                            ROW_VM_RETURN | ROW_EXEC_FULL, ARG(PART_WORDS, LOAD)},
    {"global_load_tr_b64", "r=rr", global_tr8, NULL, NULL, GS_CLASS_VMEM_LOAD, 8,
     ROW_VM_RETURN | ROW_EXEC_FULL, ARG(PART_WORDS, LOAD)},
    {0}};
