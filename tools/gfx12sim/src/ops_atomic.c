// SPDX-License-Identifier: Apache-2.0
// Atomics of global memory, buffers, flat addresses and LDS. In global memory they are host atomics, so they
// hold between threads of the simulator and between processes that share a mapping.
#include <math.h>
#include "simd.h"

typedef enum kind { SWAP, CMPSWAP, ADD, SUB, SUB_CLAMP, COND_SUB, MIN_I, MAX_I, MIN_U, MAX_U, AND, OR, XOR, INC, DEC, ADD_F32, MIN_F32, MAX_F32, ADD_F16, ADD_BF16, MIN_F64, MAX_F64 } kind;

static u32 to_bf16(float x) {
    u32 b = gs_bits(x);
    return x != x ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
static float min_num(float x, float y) { return x != x ? y : y != y ? x : x < y ? x : y < x ? y : gs_f32(gs_bits(x) | gs_bits(y)); }
static float max_num(float x, float y) { return x != x ? y : y != y ? x : x > y ? x : y > x ? y : gs_f32(gs_bits(x) & gs_bits(y)); }
// Doubles as their bits: NaN gives way to a number, and -0 counts as less than +0, as in the 32-bit forms.
static u64 min_num64(u64 a, u64 b) {
    double x = gs_f64(a), y = gs_f64(b);
    return x != x ? b : y != y ? a : x < y ? a : y < x ? b : a | b;
}
static u64 max_num64(u64 a, u64 b) {
    double x = gs_f64(a), y = gs_f64(b);
    return x != x ? b : y != y ? a : x > y ? a : y > x ? b : a & b;
}
// Bits of two bf16 in the high half of f32. Of NaNs the first operand's stays: an addition the compiler may turn round.
static u32 add_bf16(u32 a, u32 b) {
    float x = gs_f32(a), y = gs_f32(b);
    return to_bf16(x != x ? x : y != y ? y : x + y);
}
static i64 sext(u64 v, u32 bytes) { return bytes == 4 ? (i64)(i32)(u32)v : (i64)v; }

// new value of memory from old value, data and (cmpswap) compare value
static u64 apply(kind k, u32 bytes, u64 old, u64 data, u64 compare) {
    float fo = gs_f32((u32)old), fd = gs_f32((u32)data);
    switch (k) {
    case SWAP: return data;
    case CMPSWAP: return old == compare ? data : old;
    case ADD: return old + data;
    case SUB: return old - data;
    case SUB_CLAMP: return old < data ? 0 : old - data;
    case COND_SUB: return old >= data ? old - data : old;
    case MIN_I: return sext(old, bytes) < sext(data, bytes) ? old : data;
    case MAX_I: return sext(old, bytes) > sext(data, bytes) ? old : data;
    case MIN_U: return old < data ? old : data;
    case MAX_U: return old > data ? old : data;
    case AND: return old & data;
    case OR: return old | data;
    case XOR: return old ^ data;
    case INC: return old >= data ? 0 : old + 1;
    case DEC: return old == 0 || old > data ? data : old - 1;
    case ADD_F32: return gs_bits(fo + fd);
    case MIN_F32: return gs_bits(min_num(fo, fd));
    case MAX_F32: return gs_bits(max_num(fo, fd));
    case ADD_F16: {
        u32 lo = gs_f32_to_f16_scalar(gs_f16_to_f32_scalar(old & 0xffff) + gs_f16_to_f32_scalar(data & 0xffff));
        return lo | gs_f32_to_f16_scalar(gs_f16_to_f32_scalar(old >> 16 & 0xffff) + gs_f16_to_f32_scalar(data >> 16 & 0xffff)) << 16;
    }
    case ADD_BF16: {
        return add_bf16((u32)old << 16, (u32)data << 16) | add_bf16((u32)old & 0xffff0000, (u32)data & 0xffff0000) << 16;
    }
    case MIN_F64: return min_num64(old, data);
    case MAX_F64: return max_num64(old, data);
    }
    return old;
}

static u64 update(void *p, u32 bytes, kind k, u64 data, u64 compare) {
    if (bytes == 4) {
        u32 old = __atomic_load_n((u32 *)p, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n((u32 *)p, &old, (u32)apply(k, 4, old, data, compare), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
        return old;
    }
    u64 old = __atomic_load_n((u64 *)p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n((u64 *)p, &old, apply(k, 8, old, data, compare), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
    return old;
}

static void lane_values(const u32 *v, u32 i, u32 bytes, kind k, u64 *data, u64 *compare) {
    u32 words = bytes / 4; // data first, compare value behind it
    *data = words == 2 ? v[i] | (u64)v[GS_LANES + i] << 32 : v[i];
    if (k == CMPSWAP) *compare = words == 2 ? v[2 * GS_LANES + i] | (u64)v[3 * GS_LANES + i] << 32 : v[GS_LANES + i];
}

static gs_stop perform(gs_wave *w, const gs_op *op, const u64 *address, u32 exec, const gs_opnd *data_opnd) {
    kind k = (kind)op->row->arg;
    u32 bytes = op->row->bytes;
    const u32 *v = gs_vgpr(w, data_opnd->reg);
    u32 *d = op->atomic_return ? gs_vgpr(w, op->dst.reg) : NULL;
    gs_issue(w, op, op->atomic_return ? GS_CNT_LOAD : GS_CNT_STORE);
    gs_race_release(w);
    if (op->atomic_return) gs_race_acquire(w);
    for (u32 m = exec; m; m &= m - 1) {
        u32 i = (u32)__builtin_ctz(m);
        if (address[i] & (bytes - 1))
            return gs_fault(w, op, GS_CHECK_MISALIGNED, (int)i, address[i], "atomic of %u bytes at 0x%llx", bytes, (unsigned long long)address[i]);
    }
    if (gs_global_access(w, op, address, exec, bytes, ACCESS_ATOMIC)) return GS_STOP_FAULT;
    if (w->g->run->want_stats) w->g->stats->atomic_lanes += (u64)__builtin_popcount(exec);
    for (u32 m = exec; m; m &= m - 1) {
        u32 i = (u32)__builtin_ctz(m);
        u64 data, compare = 0, old;
        lane_values(v, i, bytes, k, &data, &compare);
        old = update((void *)(uintptr_t)address[i], bytes, k, data, compare);
        if (!d) continue;
        d[i] = (u32)old;
        if (bytes == 8) d[GS_LANES + i] = (u32)(old >> 32);
    }
    if (d && w->g->run->checked) gs_pend_vgpr(w, op, GS_CNT_LOAD);
    return GS_RUN;
}

static gs_stop global(gs_wave *w, const gs_op *op) {
    const u32 *v = gs_vgpr(w, op->src[0].reg);
    const gs_opnd *saddr = &op->src[2];
    u64 address[GS_LANES];
    for (u32 i = 0; i < GS_LANES; i++)
        address[i] = (saddr->kind == OPND_SGPR ? gs_scalar64(w, saddr->reg) + v[i] : v[i] | (u64)v[GS_LANES + i] << 32) + (u64)(i64)op->offset;
    return perform(w, op, address, gs_exec(w), &op->src[1]);
}

static gs_stop buffer(gs_wave *w, const gs_op *op) {
    const gs_opnd *vaddr = &op->src[1];
    const u32 *r = &w->s[op->src[2].reg], *v = vaddr->kind == OPND_VGPR ? gs_vgpr(w, vaddr->reg) : NULL;
    u32 stride = r[1] >> 16 & 0x3fff, in = 0;
    u64 address[GS_LANES], base = (r[0] | (u64)(r[1] & 0xffff) << 32) + gs_scalar_get(w, &op->src[3]);
    for (u32 i = 0; i < GS_LANES; i++) {
        u64 linear = (u64)(op->offen && v ? v[(op->idxen ? GS_LANES : 0) + i] : 0) + (u32)op->offset + (u64)(op->idxen && v ? v[i] : 0) * stride;
        in |= (u32)(linear + op->row->bytes <= r[2]) << i;
        address[i] = base + linear;
    }
    return perform(w, op, address, gs_exec(w) & in, &op->src[0]);
}

static gs_stop lds(gs_wave *w, const gs_op *op) {
    kind k = (kind)(op->row->arg & 255);
    u32 bytes = op->row->bytes, exec = gs_exec(w), address[GS_LANES];
    const u32 *v = gs_vgpr(w, op->src[0].reg);
    u32 *d = op->ndst ? gs_vgpr(w, op->dst.reg) : NULL;
    gs_issue(w, op, GS_CNT_DS);
    for (int i = 0; i < GS_LANES; i++) address[i] = v[i] + (u32)op->offset;
    if (exec && gs_lds_access(w, op, address, exec, bytes, ACCESS_ATOMIC)) return GS_STOP_FAULT;
    for (u32 m = exec; m; m &= m - 1) {
        u32 i = (u32)__builtin_ctz(m);
        u64 old = 0, data, compare = 0, changed;
        memcpy(&old, w->g->lds + address[i], bytes);
        lane_values(gs_vgpr(w, op->src[1].reg), i, bytes, k, &data, &compare);
        if (k == CMPSWAP && op->nsrc > 2) lane_values(gs_vgpr(w, op->src[2].reg), i, bytes, SWAP, &compare, &compare);
        changed = apply(k, bytes, old, data, compare);
        memcpy(w->g->lds + address[i], &changed, bytes);
        if (!d) continue;
        d[i] = (u32)old;
        if (bytes == 8) d[GS_LANES + i] = (u32)(old >> 32);
    }
    if (d && w->g->run->checked) gs_pend_vgpr(w, op, GS_CNT_DS);
    return GS_RUN;
}

#define G(name, bytes, k) {"global_atomic_" name, "R=rrr", global, NULL, NULL, GS_CLASS_ATOMIC, bytes, ROW_VM_RETURN, k}, \
                          {"flat_atomic_" name, "R=rr", global, NULL, NULL, GS_CLASS_ATOMIC, bytes, ROW_VM_RETURN, k}, \
                          {"buffer_atomic_" name, "=rrrr", buffer, NULL, NULL, GS_CLASS_ATOMIC, bytes, ROW_VM_RETURN, k}
#define D(name, type, bytes, k) {"ds_" name "_" type, "=rr", lds, NULL, NULL, GS_CLASS_LDS, bytes, 0, k}, \
                                {"ds_" name "_rtn_" type, "r=rr", lds, NULL, NULL, GS_CLASS_LDS, bytes, ROW_LDS_RETURN, k}
#define D_CMP(type, bytes)      {"ds_cmpstore_" type, "=rrr", lds, NULL, NULL, GS_CLASS_LDS, bytes, 0, CMPSWAP}, \
                                {"ds_cmpstore_rtn_" type, "r=rrr", lds, NULL, NULL, GS_CLASS_LDS, bytes, ROW_LDS_RETURN, CMPSWAP}
const gs_row gs_rows_atomic[] = {
    G("swap_b32", 4, SWAP), G("swap_b64", 8, SWAP), G("cmpswap_b32", 4, CMPSWAP), G("cmpswap_b64", 8, CMPSWAP), G("add_u32", 4, ADD), G("add_u64", 8, ADD), G("sub_u32", 4, SUB), G("sub_u64", 8, SUB),
    G("sub_clamp_u32", 4, SUB_CLAMP), G("cond_sub_u32", 4, COND_SUB), G("min_i32", 4, MIN_I), G("min_i64", 8, MIN_I), G("max_i32", 4, MAX_I), G("max_i64", 8, MAX_I), G("min_u32", 4, MIN_U), G("min_u64", 8, MIN_U), G("max_u32", 4, MAX_U), G("max_u64", 8, MAX_U),
    G("and_b32", 4, AND), G("and_b64", 8, AND), G("or_b32", 4, OR), G("or_b64", 8, OR), G("xor_b32", 4, XOR), G("xor_b64", 8, XOR), G("inc_u32", 4, INC), G("inc_u64", 8, INC), G("dec_u32", 4, DEC), G("dec_u64", 8, DEC),
    G("add_f32", 4, ADD_F32), G("min_num_f32", 4, MIN_F32), G("max_num_f32", 4, MAX_F32), G("pk_add_f16", 4, ADD_F16), G("pk_add_bf16", 4, ADD_BF16),
    D("add", "u32", 4, ADD), D("add", "u64", 8, ADD), D("sub", "u32", 4, SUB), D("sub", "u64", 8, SUB), D("sub_clamp", "u32", 4, SUB_CLAMP), D("cond_sub", "u32", 4, COND_SUB), D("inc", "u32", 4, INC), D("inc", "u64", 8, INC), D("dec", "u32", 4, DEC), D("dec", "u64", 8, DEC),
    D("min", "i32", 4, MIN_I), D("min", "i64", 8, MIN_I), D("max", "i32", 4, MAX_I), D("max", "i64", 8, MAX_I), D("min", "u32", 4, MIN_U), D("min", "u64", 8, MIN_U), D("max", "u32", 4, MAX_U), D("max", "u64", 8, MAX_U),
    D("and", "b32", 4, AND), D("and", "b64", 8, AND), D("or", "b32", 4, OR), D("or", "b64", 8, OR), D("xor", "b32", 4, XOR), D("xor", "b64", 8, XOR),
    D("add", "f32", 4, ADD_F32), D("min_num", "f32", 4, MIN_F32), D("max_num", "f32", 4, MAX_F32), D("min_num", "f64", 8, MIN_F64), D("max_num", "f64", 8, MAX_F64), D("pk_add", "f16", 4, ADD_F16), D("pk_add", "bf16", 4, ADD_BF16),
    {"ds_storexchg_rtn_b32", "r=rr", lds, NULL, NULL, GS_CLASS_LDS, 4, ROW_LDS_RETURN, SWAP}, {"ds_storexchg_rtn_b64", "r=rr", lds, NULL, NULL, GS_CLASS_LDS, 8, ROW_LDS_RETURN, SWAP},
    D_CMP("b32", 4), D_CMP("b64", 8),
    {0}};
