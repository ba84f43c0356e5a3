// SPDX-License-Identifier: Apache-2.0
// Drivers of the vector ALU: fetch sources as 32 lanes, apply what the instruction's modifiers ask, run the
// lane function, write the lanes that EXEC enables. Plain instructions take a short way through.
#include "isa.h"

typedef u32 lanes_t[2 * GS_LANES] __attribute__((aligned(64)));

const u32 *gs_fetch(gs_wave *w, const gs_opnd *o, u32 *tmp) {
    if (o->kind == OPND_VGPR) return gs_vgpr(w, o->reg);
    if (o->kind == OPND_CONST) return o->lanes;
    u64 value = gs_scalar_get(w, o);
    for (int i = 0; i < GS_LANES; i++) tmp[i] = (u32)value;
    if (o->dwords == 2)
        for (int i = 0; i < GS_LANES; i++) tmp[GS_LANES + i] = (u32)(value >> 32);
    return tmp;
}

void gs_blend(u32 *d, const u32 *out, u32 exec, u32 dwords) {
    for (u32 k = 0; k < dwords; k++, d += GS_LANES, out += GS_LANES) {
#ifdef __AVX512F__
        _mm512_mask_storeu_epi32(d, (__mmask16)exec, _mm512_loadu_si512(out));
        _mm512_mask_storeu_epi32(d + 16, (__mmask16)(exec >> 16), _mm512_loadu_si512(out + 16));
#else
        EACH
            d[i] = exec >> i & 1 ? out[i] : d[i];
#endif
    }
}

static void dpp_permute(const gs_op *op, u32 *out, const u32 *in, u32 dwords, u32 exec, u32 *write) {
    const gs_dpp *d = op->dpp;
    u32 enabled = d->write_mask;
    for (int i = 0; i < GS_LANES; i++) {
        int j = d->from[i];
        bool valid = j >= 0 && (d->fetch_inactive || exec >> j & 1);
        if (!valid && !d->bound_ctrl) enabled &= ~(1u << i);
        for (u32 k = 0; k < dwords; k++) out[k * GS_LANES + i] = valid ? in[k * GS_LANES + j] : 0;
    }
    *write &= enabled;
}

static void flush32(u32 *x, const u32 *in) { // subnormals to zero of the same sign
    EACH
        x[i] = in[i] & 0x7f800000 ? in[i] : in[i] & 0x80000000;
}
static void flush16(u32 *x, const u32 *in) {
    EACH
        x[i] = in[i] & 0x7c00 ? in[i] : in[i] & 0x8000;
}
static void flush64(u32 *x, const u32 *in) {
    EACH
        set64(x, i,
              in[GS_LANES + i] & 0x7ff00000 ? lane64(in, i) : (u64)(in[GS_LANES + i] & 0x80000000) << 32);
}
static u32 flush_pair(u32 x) {
    u32 lo = x & 0x7c00 ? x & 0xffff : x & 0x8000, hi = x & 0x7c000000 ? x & 0xffff0000 : x & 0x80000000;
    return lo | hi;
}

// MODE bits 4..5: f32 denormals, 6..7: f16 and f64; low bit: keep on input, high bit: keep on output.
static bool flushes(const gs_wave *w, char type, bool output) {
    u32 field = gs_in("ft", type) ? w->mode >> 4 : w->mode >> 6;
    return gs_in("fFhp", type) && !(field >> output & 1);
}

static void flush(u32 *x, const u32 *in, char type) {
    if (type == 'f')
        flush32(x, in);
    else if (type == 'h')
        flush16(x, in);
    else if (type == 'F')
        flush64(x, in);
    else
        EACH
            x[i] = flush_pair(in[i]);
}

static void sign_modify(u32 *x, const u32 *in, const gs_opnd *o, char type) {
    u32 sign = type == 'h' || type == 'w' ? 0x8000 : 0x80000000, flip = o->neg ? sign : 0,
        keep = o->abs ? ~sign : ~0u;
    if (type == 'F' || type == 'U' || type == 'I')
        EACH {
            u32 hi = (in[GS_LANES + i] & keep) ^ flip;
            x[i] = in[i];
            x[GS_LANES + i] = hi;
        }
    else
        EACH
            x[i] = (in[i] & keep) ^ flip;
}

static void select_halves(u32 *x, const u32 *in, const gs_op *op, u32 k, bool real) {
    u32 low = op->op_sel >> k & 1 ? 16 : 0, high = op->op_sel_hi >> k & 1 ? 16 : 0;
    u32 flip = real ? (op->neg_lo >> k & 1 ? 0x8000u : 0) | (op->neg_hi >> k & 1 ? 0x80000000u : 0) : 0;
    EACH
        x[i] = ((in[i] >> low & 0xffff) | (in[i] >> high & 0xffff) << 16) ^ flip;
}

// One source with everything applied; tmp has room for two dwords.
static const u32 *fetch_modified(gs_wave *w, const gs_op *op, u32 k, u32 *tmp, u32 *write) {
    const gs_opnd *o = &op->src[k];
    char type = (char)o->type;
    u32 dwords = gs_in("UFI", type) ? 2 : 1;
    const u32 *in = gs_fetch(w, o, tmp);
    if (k == 0 && op->dpp && o->kind == OPND_VGPR) {
        lanes_t moved;
        dpp_permute(op, moved, in, dwords, gs_exec(w), write);
        memcpy(tmp, moved, dwords * GS_LANES * sizeof *tmp);
        in = tmp;
    }
    if (type == 'p' || type == 'q') {
        select_halves(tmp, in, op, k, type == 'p');
        in = tmp;
    }
    if (type == 'h' || type == 'w' || type == 'b') {
        u32 shift = o->hi ? 16 : 0;
        EACH
            tmp[i] = in[i] >> shift & 0xffff;
        in = tmp;
    }
    if (type == 'x') { // f32, or a half widened to f32
        if (op->op_sel_hi >> k & 1) {
            u32 shift = op->op_sel >> k & 1 ? 16 : 0;
            EACH
                tmp[i] = in[i] >> shift & 0xffff;
            halves_to_f32(tmp, (float *)tmp);
            in = tmp;
        }
        type = 'f';
    }
    if (o->neg || o->abs) {
        sign_modify(tmp, in, o, type);
        in = tmp;
    }
    if (w->moded && flushes(w, type, false)) {
        flush(tmp, in, type);
        in = tmp;
    }
    return in;
}

static float clamp1(float x) {
    return x > 0 ? (x < 1 ? x : 1) : 0;
} // NaN gives 0

static void scale_and_clamp(u32 *d, const gs_op *op, char type) {
    static const float factor[4] = {1, 2, 4, 0.5f};
    if (type == 'f') {
        f32a *f = (f32a *)d;
        if (op->omod)
            EACH
                f[i] = f[i] * factor[op->omod];
        if (op->clamp)
            EACH
                f[i] = clamp1(f[i]);
    } else if (type == 'F') {
        for (int i = 0; i < GS_LANES; i++) {
            double x = gs_f64(lane64(d, i)) * factor[op->omod];
            set64(d, i, gs_bits64(op->clamp ? (x > 0 ? (x < 1 ? x : 1) : 0) : x));
        }
    } else if (type == 'h' || type == 'p') {
        for (u32 part = 0; part < (type == 'p' ? 2u : 1u); part++) {
            u32 h[GS_LANES];
            float f[GS_LANES];
            EACH
                h[i] = d[i] >> 16 * part & 0xffff;
            halves_to_f32(h, f);
            EACH
                f[i] = f[i] * factor[op->omod];
            if (op->clamp)
                EACH
                    f[i] = clamp1(f[i]);
            f32_to_halves(f, h);
            EACH
                d[i] = (d[i] & (part ? 0xffff : 0xffff0000)) | h[i] << 16 * part;
        }
    }
}

// Halves and doubles round in their own mode (MODE bits 2..3).
static void enter_half_rounding(const gs_wave *w) {
    static const u32 host[4] = {0, 2, 1, 3}; // AMD: even, +inf, -inf, zero. x86: even, -inf, +inf, zero
    _mm_setcsr((_mm_getcsr() & ~0x6000u) | host[w->mode >> 2 & 3] << 13);
}

static u32 valu_general(gs_wave *w, const gs_op *op, u32 *out, u32 *write) {
    lanes_t tmp[3];
    const u32 *s[3] = {tmp[0], tmp[0], tmp[0]};
    for (u32 k = 0; k < op->nsrc && k < 3; k++)
        s[k] = op->src[k].type == 'm' ? tmp[k] : fetch_modified(w, op, k, tmp[k], write);
    char type = (char)op->dst.type;
    bool other = w->moded && (w->mode >> 2 & 3) != (w->mode & 3) && op->row->flags & ROW_F16_DENORM;
    if (other) enter_half_rounding(w);
    u32 mask = op->lane(out, s[0], s[1], s[2], w, op);
    if ((op->omod || op->clamp) && gs_in("fFhp", type)) scale_and_clamp(out, op, type);
    if (other) gs_mode_apply(w);
    if (w->moded && flushes(w, type, true)) flush(out, out, type);
    return mask;
}

static void write_half(u32 *d, const u32 *out, bool hi, u32 exec) {
    u32 shift = hi ? 16 : 0, keep = hi ? 0xffff : 0xffff0000;
    EACH
        d[i] = exec >> i & 1 ? (d[i] & keep) | (out[i] & 0xffff) << shift : d[i];
}

static void set_mask(gs_wave *w, const gs_opnd *o, u32 mask) {
    if (o->kind == OPND_SGPR) gs_scalar_set(w, o->reg, mask);
}

static gs_stop valu_slow(gs_wave *w, const gs_op *op) {
    lanes_t out;
    u32 exec = gs_exec(w), write = exec;
    u32 mask = valu_general(w, op, out, &write);
    u32 *d = gs_vgpr(w, op->dst.reg);
    if (gs_in("hwb", op->dst.type))
        write_half(d, out, op->dst.hi, write);
    else
        gs_blend(d, out, write, op->dst.dwords);
    if (op->ndst == 2) set_mask(w, &op->sdst, mask & exec);
    return GS_RUN;
}

static inline u32 run_plain(gs_wave *w, const gs_op *op, u32 *out) {
    lanes_t tmp[3];
    const u32 *s[3];
    s[1] = s[2] = tmp[0];
    for (u32 k = 0; k < op->nsrc && k < 3; k++)
        s[k] = op->src[k].type == 'm' ? tmp[k] : gs_fetch(w, &op->src[k], tmp[k]);
    return op->lane(out, s[0], s[1], s[2], w, op);
}

gs_stop gs_valu_exec(gs_wave *w, const gs_op *op) {
    if (!op->plain || w->moded) return valu_slow(w, op);
    u32 exec = gs_exec(w), *d = gs_vgpr(w, op->dst.reg), mask;
    if (exec == ~0u)
        mask = run_plain(w, op, d);
    else {
        lanes_t out;
        mask = run_plain(w, op, out);
        gs_blend(d, out, exec, op->dst.dwords);
    }
    if (op->ndst == 2) set_mask(w, &op->sdst, mask & exec);
    return GS_RUN;
}

// Compares: the lane function's mask is the result; inactive lanes give 0.
static u32 compare(gs_wave *w, const gs_op *op) {
    lanes_t out;
    u32 write = gs_exec(w);
    u32 mask = op->plain && !w->moded ? run_plain(w, op, out) : valu_general(w, op, out, &write);
    return mask & write;
}

gs_stop gs_valu_cmp(gs_wave *w, const gs_op *op) {
    set_mask(w, &op->dst, compare(w, op));
    return GS_RUN;
}

gs_stop gs_valu_cmpx(gs_wave *w, const gs_op *op) {
    w->s[SGPR_EXEC] = compare(w, op);
    return GS_RUN;
}

gs_stop gs_valu_vopd(gs_wave *w, const gs_op *op) {
    lanes_t x, y;
    u32 exec = gs_exec(w), write = exec;
    const gs_op *pair = op->pair;
    u32 *dx = gs_vgpr(w, op->dst.reg), *dy = gs_vgpr(w, pair->dst.reg);
    if (w->moded) {
        valu_general(w, op, x, &write);
        valu_general(w, pair, y, &write);
        gs_blend(dx, x, exec, 1);
        gs_blend(dy, y, exec, 1);
    } else if (exec == ~0u && !op->bound && op->plain && pair->plain) {
        run_plain(w, op, dx);
        run_plain(w, pair, dy);
    } else {
        valu_general(w, op, x, &write);
        valu_general(w, pair, y, &write);
        gs_blend(dx, x, exec, 1);
        gs_blend(dy, y, exec, 1);
    }
    return GS_RUN;
}
