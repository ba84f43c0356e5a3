// SPDX-License-Identifier: Apache-2.0
// LDS loads, stores and the lane-permuting instructions of the LDS unit.
#include "lanes.h"

enum { LOAD, STORE };
#define ARG(part, store, stride) ((part) << 4 | (store) | (stride) << 8)

static inline gs_part part_of(const gs_op *op) {
    return (gs_part)(op->row->arg >> 4 & 15);
}
static inline bool is_store(const gs_op *op) {
    return op->row->arg & 15;
}

static gs_stop access_lds(gs_wave *w, const gs_op *op, u32 *reg, const u32 *address) {
    u32 exec = gs_exec(w);
    if (!exec) return GS_RUN;
    w->store = reg, w->store_high = part_of(op) >= PART_HI_U8;
    if (gs_lds_access(w, op, address, exec, op->row->bytes, is_store(op) ? ACCESS_WRITE : ACCESS_READ))
        return GS_STOP_FAULT;
    if (is_store(op))
        lanes_store(lanes_lds(w, address), reg, exec, op->row->bytes, part_of(op));
    else
        lanes_load(reg, lanes_lds(w, address), exec, op->row->bytes, part_of(op));
    return GS_RUN;
}

static inline void addresses(gs_wave *w, const gs_op *op, u32 offset, u32 *address) {
    const u32 *v = gs_vgpr(w, op->src[0].reg);
    EACH
        address[i] = v[i] + offset;
}

static void finish(gs_wave *w, const gs_op *op) {
    if (w->g->run->checked && op->ndst) gs_pend_vgpr(w, op, GS_CNT_DS);
}

static gs_stop single(gs_wave *w, const gs_op *op) {
    u32 address[GS_LANES] __attribute__((aligned(64)));
    gs_issue(w, op, GS_CNT_DS);
    addresses(w, op, (u32)op->offset, address);
    if (access_lds(w, op, gs_vgpr(w, is_store(op) ? op->src[1].reg : op->dst.reg), address))
        return GS_STOP_FAULT;
    finish(w, op);
    return GS_RUN;
}

// Two addresses at offset0 and offset1, in units of the element (or of 64 elements).
static gs_stop pair(gs_wave *w, const gs_op *op) {
    u32 unit = op->row->arg >> 8, words = op->row->bytes / 4;
    u32 first[GS_LANES] __attribute__((aligned(64))), second[GS_LANES] __attribute__((aligned(64)));
    gs_issue(w, op, GS_CNT_DS);
    addresses(w, op, (u32)op->offset * unit, first); // both before a load may overwrite the address register
    addresses(w, op, (u32)op->offset1 * unit, second);
    if (is_store(op))
        return access_lds(w, op, gs_vgpr(w, op->src[1].reg), first)
                   ? GS_STOP_FAULT
                   : access_lds(w, op, gs_vgpr(w, op->src[2].reg), second);
    u32 *d = gs_vgpr(w, op->dst.reg);
    if (access_lds(w, op, d, first) || access_lds(w, op, d + words * GS_LANES, second)) return GS_STOP_FAULT;
    finish(w, op);
    return GS_RUN;
}

// ds_bpermute: lane i takes the value of lane address/4 mod 32; an inactive source lane gives 0.
static gs_stop bpermute(gs_wave *w, const gs_op *op) {
    const u32 *address = gs_vgpr(w, op->src[0].reg), *data = gs_vgpr(w, op->src[1].reg);
    u32 exec = gs_exec(w), out[GS_LANES];
    gs_issue(w, op, GS_CNT_DS);
    for (u32 i = 0; i < GS_LANES; i++) {
        u32 from = (address[i] + (u32)op->offset) >> 2 & 31;
        out[i] =
            op->row->arg || exec >> from & 1 ? data[from] : 0; // arg: ds_bpermute_fi reads inactive lanes too
    }
    gs_blend(gs_vgpr(w, op->dst.reg), out, exec, 1);
    finish(w, op);
    return GS_RUN;
}
// ds_permute: lane i sends to lane address/4 mod 32; the highest sender wins, a lane nobody sends to gets 0.
static gs_stop permute(gs_wave *w, const gs_op *op) {
    const u32 *address = gs_vgpr(w, op->src[0].reg), *data = gs_vgpr(w, op->src[1].reg);
    u32 exec = gs_exec(w), out[GS_LANES] = {0};
    gs_issue(w, op, GS_CNT_DS);
    for (u32 m = exec; m; m &= m - 1) {
        u32 i = (u32)__builtin_ctz(m);
        out[(address[i] + (u32)op->offset) >> 2 & 31] = data[i];
    }
    gs_blend(gs_vgpr(w, op->dst.reg), out, exec, 1);
    finish(w, op);
    return GS_RUN;
}
// ds_swizzle, offset from the encoding: bit 15 clear: and, or, xor masks of five bits on the lane; set: quad
// permute, or (top bits 110 and 111) FFT and rotate, of which rotate is simulated.
static gs_stop swizzle(gs_wave *w, const gs_op *op) {
    const u32 *data = gs_vgpr(w, op->src[0].reg);
    u32 exec = gs_exec(w), out[GS_LANES], code = (u32)op->offset & 0xffff;
    gs_issue(w, op, GS_CNT_DS);
    if (code >= 0xe000)
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "FFT swizzle 0x%04x is not simulated", code);
    for (u32 i = 0; i < GS_LANES; i++) {
        u32 from;
        if (code >= 0xc000) { // rotate by bits 9..5, direction bit 10, inside the mask of bits 4..0
            u32 n = code >> 5 & 31, mask = code & 31;
            from = code >> 10 & 1 ? i - n : i + n;
            from = (i & mask) | (from & ~mask & 31);
        } else if (code & 0x8000)
            from = (i & ~3u) | (code >> 2 * (i & 3) & 3);
        else
            from = (((i & (code & 31)) | (code >> 5 & 31)) ^ (code >> 10 & 31)) & 31;
        out[i] = exec >> from & 1 ? data[from] : 0;
    }
    gs_blend(gs_vgpr(w, op->dst.reg), out, exec, 1);
    finish(w, op);
    return GS_RUN;
}
// LDS byte offset from M0, as the *_addtid forms have it: M0 + offset + 4 * lane.
static gs_stop addtid(gs_wave *w, const gs_op *op) {
    u32 address[GS_LANES], exec = gs_exec(w), base = (w->s[SGPR_M0] & 0xffff) + (u32)op->offset;
    EACH
        address[i] = base + 4 * (u32)i;
    gs_issue(w, op, GS_CNT_DS);
    w->store = gs_vgpr(w, op->src[0].reg), w->store_high = false;
    if (exec && gs_lds_access(w, op, address, exec, 4, is_store(op) ? ACCESS_WRITE : ACCESS_READ))
        return GS_STOP_FAULT;
    if (is_store(op))
        lanes_store(lanes_lds(w, address), gs_vgpr(w, op->src[0].reg), exec, 4, PART_WORDS);
    else
        lanes_load(gs_vgpr(w, op->dst.reg), lanes_lds(w, address), exec, 4, PART_WORDS);
    finish(w, op);
    return GS_RUN;
}
static gs_stop ds_nop(gs_wave *w, const gs_op *op) {
    (void)w, (void)op;
    return GS_RUN;
}

#define L(name, bytes, part)                                                                                 \
    { "ds_load_" name, "r=r", single, NULL, NULL, GS_CLASS_LDS, bytes, ROW_LDS_RETURN, ARG(part, LOAD, 0) }
#define S(name, bytes, part)                                                                                 \
    { "ds_store_" name, "=rr", single, NULL, NULL, GS_CLASS_LDS, bytes, 0, ARG(part, STORE, 0) }
#define L2(name, bytes, unit)                                                                                \
    {                                                                                                        \
        "ds_load_" name, "r=r", pair, NULL, NULL, GS_CLASS_LDS, bytes, ROW_LDS_RETURN,                       \
            ARG(PART_WORDS, LOAD, unit)                                                                      \
    }
#define S2(name, bytes, unit)                                                                                \
    { "ds_store_" name, "=rrr", pair, NULL, NULL, GS_CLASS_LDS, bytes, 0, ARG(PART_WORDS, STORE, unit) }
#define P(name, sig, fn, arg)                                                                                \
    { name, sig, fn, NULL, NULL, GS_CLASS_LDS, 4, ROW_LDS_RETURN, arg }
const gs_row GS_SYM(gs_rows_lds)[] = {
    L("b32", 4, PART_WORDS),
    L("b64", 8, PART_WORDS),
    L("b96", 12, PART_WORDS),
    L("b128", 16, PART_WORDS),
    L("u8", 1, PART_U8),
    L("i8", 1, PART_I8),
    L("u16", 2, PART_U16),
    L("i16", 2, PART_I16),
    L("u8_d16", 1, PART_LO_U8),
    L("i8_d16", 1, PART_LO_I8),
    L("u16_d16", 2, PART_LO_16),
    L("u8_d16_hi", 1, PART_HI_U8),
    L("i8_d16_hi", 1, PART_HI_I8),
    L("u16_d16_hi", 2, PART_HI_16),
    S("b32", 4, PART_WORDS),
    S("b64", 8, PART_WORDS),
    S("b96", 12, PART_WORDS),
    S("b128", 16, PART_WORDS),
    S("b8", 1, PART_U8),
    S("b16", 2, PART_U16),
    S("b8_d16_hi", 1, PART_HI_U8),
    S("b16_d16_hi", 2, PART_HI_16),
    L2("2addr_b32", 4, 4),
    L2("2addr_b64", 8, 8),
    L2("2addr_stride64_b32", 4, 256),
    L2("2addr_stride64_b64", 8, 512),
    S2("2addr_b32", 4, 4),
    S2("2addr_b64", 8, 8),
    S2("2addr_stride64_b32", 4, 256),
    S2("2addr_stride64_b64", 8, 512),
    P("ds_bpermute_b32", "r=rr", bpermute, 0),
    P("ds_bpermute_fi_b32", "r=rr", bpermute, 1),
    P("ds_permute_b32", "r=rr", permute, 0),
    P("ds_swizzle_b32", "r=r", swizzle, 0),
    {"ds_load_addtid_b32", "r=", addtid, NULL, NULL, GS_CLASS_LDS, 4, ROW_LDS_RETURN,
     ARG(PART_WORDS, LOAD, 0)},
    {"ds_store_addtid_b32", "=r", addtid, NULL, NULL, GS_CLASS_LDS, 4, 0, ARG(PART_WORDS, STORE, 0)},
    {"ds_nop", "=", ds_nop, NULL, NULL, GS_CLASS_HINT, 0, 0, 0},
    {0}};
