// SPDX-License-Identifier: Apache-2.0
// Decoding a module once: LLVM's disassembler gives the text of each instruction, parse.c turns it into a gs_op.
// Equal encodings share the work through a small hash table.
#include <ctype.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>
#include <stdlib.h>
#include "module.h"

enum { CODE_END = 0xbf9f0000u, SEEN_SLOTS = 1 << 14 };

struct gs_konst {
    u64 value;
    const u32 *lanes;
};

const u32 *gs_konst_lanes(gs_module *m, u64 value) {
    for (u32 i = 0; i < m->konst_count; i++)
        if (m->konsts[i].value == value) return m->konsts[i].lanes;
    if (m->konst_count == m->konst_capacity) {
        u32 capacity = m->konst_capacity ? 2 * m->konst_capacity : 64;
        struct gs_konst *grown = realloc(m->konsts, capacity * sizeof *grown);
        if (!grown) return NULL;
        m->konsts = grown;
        m->konst_capacity = capacity;
    }
    u32 *lanes = gs_arena_alloc(&m->arena, 2 * GS_LANES * sizeof *lanes, 64);
    if (!lanes) return NULL;
    for (int i = 0; i < GS_LANES; i++) lanes[i] = (u32)value, lanes[GS_LANES + i] = (u32)(value >> 32);
    m->konsts[m->konst_count++] = (struct gs_konst){value, lanes};
    return lanes;
}

static void initialise_llvm(void) {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
}

static gs_stop unknown(gs_wave *w, const gs_op *op) {
    return gs_fault(w, op, GS_CHECK_UNKNOWN, -1, op->va, "no semantics for '%s' (encoding 0x%08x)", op->text,
                    op->raw);
}
static const gs_row unknown_row = {"", "*", unknown, NULL, NULL, GS_CLASS_HINT, 0, 0, 0};

static gs_op *add_op(gs_module *m, u64 va) {
    if (m->op_count == m->op_capacity) {
        u32 capacity = m->op_capacity ? 2 * m->op_capacity : 4096;
        gs_op *grown = realloc(m->ops, capacity * sizeof *grown);
        if (!grown) return NULL;
        m->ops = grown;
        m->op_capacity = capacity;
    }
    gs_op *op = &m->ops[m->op_count];
    memset(op, 0, sizeof *op);
    op->va = va;
    op->index = m->op_count++;
    op->row = &unknown_row;
    op->exec = unknown;
    op->cls = GS_CLASS_HINT;
    op->text = "";
    return op;
}

static const char *copy_text(gs_module *m, const char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) n--;
    char *copy = gs_arena_alloc(&m->arena, n + 1, 1);
    if (!copy) return "";
    memcpy(copy, text, n);
    for (size_t i = 0; i < n; i++)
        if (copy[i] == '\t') copy[i] = ' ';
    return copy;
}

// Immediates that the encoding states more plainly than the text.
static void read_immediates(gs_op *op, const u8 *code, u64 bytes) {
    u32 second = 0;
    if (bytes >= 8) memcpy(&second, code + 4, 4);
    if (strchr(op->row->sig, 'i') || strcmp(op->row->sig, "*") == 0)
        op->offset = (i32)(int16_t)(op->raw & 0xffff);
    if (strcmp(op->row->name, "s_setreg_imm32_b32") == 0) op->offset1 = (i32)second;
    if (strcmp(op->row->name, "ds_swizzle_b32") == 0) op->offset = (i32)(op->raw & 0xffff);
}

static u32 hash_bytes(const u8 *code, u64 bytes) {
    u32 words[2] = {0, 0};
    memcpy(words, code, bytes < 8 ? bytes : 8);
    u64 h = (words[0] | (u64)words[1] << 32) * 0x9e3779b97f4a7c15ull;
    return (u32)(h >> 50);
}

// LLVM 22.1.8 crashes on the barrier instructions of SOP1 (opcodes 0x4e to 0x53) with a literal operand, which no
// assembler produces, and on v_fmamk_f16 and v_fmaak_f16 (VOP2 opcodes 55 and 56) whose literal is 0xff, the number that
// says "a literal" in an operand. Found by random encodings.
static bool disassembler_crashes(u32 word, u32 second) {
    u32 sop1 = word >> 8 & 0xff, vop2 = word >> 25;
    return (word >> 23 == 0x17d && (word & 0xff) == 0xff && sop1 >= 0x4e && sop1 <= 0x53) ||
           ((vop2 == 55 || vop2 == 56) && second == 0xff);
}

typedef struct decoder {
    gs_module *m;
    LLVMDisasmContextRef llvm;
    u32 *seen; // op index + 1 by hash
} decoder;

// Decodes one instruction at code; returns its size.
static u64 decode_one(decoder *d, const u8 *code, u64 left, u64 va, bool *no_memory) {
    gs_module *m = d->m;
    char text[256];
    u32 slot = hash_bytes(code, left), before = d->seen[slot];
    gs_op *op = add_op(m, va);
    if (!op) {
        *no_memory = true;
        return left;
    }
    if (before) {
        const gs_op *old = &m->ops[before - 1];
        const u8 *old_code = m->image + (old->va - m->va_lo);
        if (old->bytes <= left && memcmp(old_code, code, old->bytes) == 0) {
            u32 index = op->index;
            *op = *old;
            op->va = va;
            op->index = index;
            return op->bytes;
        }
    }
    memcpy(&op->raw, code, left < 4 ? left : 4);
    u8 window[32] = {
        0}; // LLVM also crashes where the end of the code cuts a literal off: give it zeros instead
    memcpy(window, code, left < sizeof window ? left : sizeof window);
    u32 second;
    memcpy(&second, window + 4, sizeof second);
    u64 bytes = disassembler_crashes(op->raw, second)
                    ? 0
                    : LLVMDisasmInstruction(d->llvm, window, sizeof window, va, text, sizeof text);
    if (!bytes || bytes > left || bytes > 32) {
        op->bytes = (u8)(left < 4 ? left : 4);
        op->text = ".long (not an instruction)";
        return op->bytes;
    }
    op->bytes = (u8)bytes;
    op->text = copy_text(m, text);
    op->row = NULL;
    if (gs_parse_op(m, op, op->text))
        read_immediates(op, code, bytes);
    else { // keep text and position only
        gs_op blank = {.exec = unknown,
                       .row = &unknown_row,
                       .cls = GS_CLASS_HINT,
                       .bytes = op->bytes,
                       .index = op->index,
                       .raw = op->raw,
                       .va = va,
                       .text = op->text};
        *op = blank;
    }
    if (op->pair) ((gs_op *)(uintptr_t)op->pair)->text = op->text, ((gs_op *)(uintptr_t)op->pair)->va = va;
    d->seen[slot] = op->index + 1;
    return bytes;
}

static bool add_end(gs_module *m, u64 va) {
    gs_op *op = add_op(m, va);
    if (op) op->text = "(end of code)";
    return op != NULL;
}

static bool decode_segment(decoder *d, const gs_segment *s) {
    gs_module *m = d->m;
    const u8 *code = m->image + (s->va - m->va_lo);
    bool no_memory = false;
    for (u64 at = 0; at < s->file_bytes && !no_memory;) {
        u32 word = 0;
        if (s->file_bytes - at >= 4) memcpy(&word, code + at, 4);
        if (word == CODE_END) {
            at += 4;
            continue;
        } // padding for the instruction prefetcher
        if (m->op_count && m->ops[m->op_count - 1].va + m->ops[m->op_count - 1].bytes != s->va + at)
            if (!add_end(m, s->va + at)) return false;
        if (s->va + at >= m->code_lo) m->op_at[(s->va + at - m->code_lo) / 4] = m->op_count + 1;
        at += decode_one(d, code + at, s->file_bytes - at, s->va + at, &no_memory);
    }
    return !no_memory && add_end(m, s->va + s->file_bytes);
}

static void link_branches(gs_module *m) {
    for (u32 i = 0; i < m->op_count; i++) {
        gs_op *op = &m->ops[i];
        if (op->cls != GS_CLASS_BRANCH || strcmp(op->row->sig, "*") != 0) continue;
        const gs_op *to = gs_op_find(m, op->va + 4 + (u64)((i64)op->offset * 4));
        op->target = to ? to->index + 1 : 0;
    }
}

gs_status gs_decode_module(gs_module *m, const gs_elf *elf, gs_error *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise_llvm);
    m->code_lo = UINT64_MAX;
    for (u32 i = 0; i < elf->segment_count; i++) {
        const gs_segment *s = &elf->segments[i];
        if (!s->executable) continue;
        if (s->va & 3)
            return gs_error_set(error, GS_E_FORMAT, "code object: code at 0x%llx is not aligned to 4 bytes",
                                (unsigned long long)s->va);
        if (s->va < m->code_lo) m->code_lo = s->va;
        if (s->va + s->file_bytes > m->code_hi) m->code_hi = s->va + s->file_bytes;
    }
    if (m->code_lo >= m->code_hi)
        return gs_error_set(error, GS_E_FORMAT, "code object: no executable segment");
    if (!gs_row_find("s_endpgm", 8))
        return gs_error_set(error, GS_E_UNSUPPORTED, "this host has neither AVX-512 nor AVX2");
    decoder d = {
        m, LLVMCreateDisasmCPUFeatures("amdgcn-amd-amdhsa", "gfx1201", "+real-true16", NULL, 0, NULL, NULL),
        calloc(SEEN_SLOTS, sizeof(u32))};
    m->op_at = calloc((m->code_hi - m->code_lo) / 4 + 2, sizeof *m->op_at);
    gs_status status =
        d.llvm ? GS_OK : gs_error_set(error, GS_E_UNSUPPORTED, "LLVM has no gfx1201 disassembler");
    if (!status && (!d.seen || !m->op_at))
        status = gs_error_set(error, GS_E_NOMEM, "code object: no memory to decode");
    for (u32 i = 0; !status && i < elf->segment_count; i++)
        if (elf->segments[i].executable && elf->segments[i].file_bytes &&
            !decode_segment(&d, &elf->segments[i]))
            status = gs_error_set(error, GS_E_NOMEM, "code object: no memory to decode");
    if (!status) link_branches(m);
    if (d.llvm) LLVMDisasmDispose(d.llvm);
    free(d.seen);
    return status;
}
