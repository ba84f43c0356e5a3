// SPDX-License-Identifier: Apache-2.0
// Scalar memory: loads into SGPRs, which return out of order and are waited for with s_wait_kmcnt 0.
#include "simd.h"

enum { SIGNED = 1, BUFFER = 2 };

static gs_stop finish(gs_wave *w, const gs_op *op, u64 address, u32 bytes, bool in_range) {
    u64 addresses[GS_LANES] = {address};
    u32 value[16] = {0}, words = (bytes + 3) / 4;
    gs_issue(w, op, GS_CNT_KM);
    if (in_range) {
        if (gs_global_access(w, op, addresses, 1, bytes, ACCESS_READ)) return GS_STOP_FAULT;
        memcpy(value, (const void *)(uintptr_t)address, bytes);
    }
    if (op->row->arg & SIGNED) value[0] = bytes == 1 ? (u32)(i32)(int8_t)value[0] : (u32)(i32)(int16_t)value[0];
    if (op->dst.reg + words > SGPR_NULL && op->dst.reg != SGPR_NULL)
        return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, 0, "scalar load of %u dwords runs past the scalar registers", words);
    for (u32 i = 0; i < words; i++)
        if (op->dst.reg != SGPR_NULL) w->s[op->dst.reg + i] = value[i];
    if (w->g->run->checked) w->smem_pending[0] |= op->swrite[0], w->smem_pending[1] |= op->swrite[1];
    return GS_RUN;
}

static gs_stop load(gs_wave *w, const gs_op *op) {
    u64 address = gs_scalar64(w, op->src[0].reg) + (u64)(i64)op->offset;
    const gs_opnd *o = &op->src[1];
    address += o->kind == OPND_CONST ? (u64)(i64)(i32)o->value : gs_scalar_get(w, o);
    return finish(w, op, op->row->bytes >= 4 ? address & ~3ull : address, op->row->bytes, true);
}

// Beyond num_records (counted in stride units when there is a stride) a scalar buffer load gives 0.
static gs_stop buffer_load(gs_wave *w, const gs_op *op) {
    const u32 *r = &w->s[op->src[0].reg];
    const gs_opnd *o = &op->src[1];
    u32 stride = r[1] >> 16 & 0x3fff;
    u64 base = r[0] | (u64)(r[1] & 0xffff) << 32, size = (u64)r[2] * (stride ? stride : 1);
    u64 offset = (u64)(u32)op->offset + (o->kind == OPND_CONST ? o->value : gs_scalar_get(w, o));
    if (op->row->bytes >= 4) offset &= ~3ull;
    return finish(w, op, base + offset, op->row->bytes, offset + op->row->bytes <= size);
}
static gs_stop hint(gs_wave *w, const gs_op *op) { (void)w, (void)op; return GS_RUN; }

#define L(name, bytes, arg) {"s_load_" name, "r=rs", load, NULL, NULL, GS_CLASS_SMEM, bytes, 0, arg}, \
                            {"s_buffer_load_" name, "r=rs", buffer_load, NULL, NULL, GS_CLASS_SMEM, bytes, 0, (arg) | BUFFER}
#define N(name)             {name, "*", hint, NULL, NULL, GS_CLASS_HINT, 0, 0, 0}
const gs_row gs_rows_smem[] = {
    L("b32", 4, 0), L("b64", 8, 0), L("b96", 12, 0), L("b128", 16, 0), L("b256", 32, 0), L("b512", 64, 0), L("u8", 1, 0), L("i8", 1, SIGNED), L("u16", 2, 0), L("i16", 2, SIGNED),
    N("s_dcache_inv"), N("s_prefetch_data"), N("s_prefetch_inst"), N("s_prefetch_data_pc_rel"), N("s_prefetch_inst_pc_rel"), N("s_buffer_prefetch_data"),
    {0}};
