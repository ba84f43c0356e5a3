// SPDX-License-Identifier: Apache-2.0
// Loading a code object: unwrap an offload bundle, place the segments in device memory, apply relocations,
// decode the code, read the metadata.
#include <elf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "mem.h"
#include "module.h"

enum { PAGE_BYTES = 4096, MAX_IMAGE_BYTES = 1 << 30 };

struct gs_chunk {
    struct gs_chunk *next;
    size_t used, bytes;
    u8 data[];
};

void *gs_arena_alloc(gs_arena *arena, size_t bytes, size_t align) {
    struct gs_chunk *c = arena->chunks;
    size_t at = c ? (((uintptr_t)c->data + c->used + align - 1) & ~(align - 1)) - (uintptr_t)c->data : 0;
    if (!c || at + bytes > c->bytes) {
        size_t capacity = bytes + align > 65536 ? bytes + align : 65536;
        c = calloc(1, sizeof *c + capacity);
        if (!c) return NULL;
        c->bytes = capacity;
        c->next = arena->chunks;
        arena->chunks = c;
        at = (((uintptr_t)c->data + align - 1) & ~(align - 1)) - (uintptr_t)c->data;
    }
    c->used = at + bytes;
    return c->data + at;
}

void gs_arena_free(gs_arena *arena) {
    for (struct gs_chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    arena->chunks = NULL;
}

// A clang offload bundle: magic, count, then {offset, bytes, name length, name} per target.
static gs_status unwrap(gs_span *image, gs_error *error) {
    static const char magic[24] = "__CLANG_OFFLOAD_BUNDLE__";
    if (image->bytes >= 4 && memcmp(image->data, "CCOB", 4) == 0)
        return gs_error_set(error, GS_E_UNSUPPORTED,
                            "code object: compressed offload bundle; unbundle it first");
    if (image->bytes < 32 || memcmp(image->data, magic, 24) != 0) return GS_OK;
    u64 count, at = 32, field[3];
    memcpy(&count, image->data + 24, 8);
    for (u64 i = 0; i < count; i++) {
        if (image->bytes - at < 24) break;
        memcpy(field, image->data + at, 24);
        at += 24;
        if (field[2] > image->bytes - at) break;
        const char *name = (const char *)image->data + at;
        at += field[2];
        bool ours = field[2] >= 7 && memcmp(name + field[2] - 7, "gfx1201", 7) == 0;
        if (!ours) continue;
        if (field[0] > image->bytes || field[1] > image->bytes - field[0]) break;
        *image = (gs_span){image->data + field[0], field[1]};
        return GS_OK;
    }
    return gs_error_set(error, GS_E_FORMAT, "offload bundle: no whole gfx1201 entry among %llu",
                        (unsigned long long)count);
}

static size_t mapped_bytes(const gs_module *m) {
    return m->va_hi - m->va_lo + PAGE_BYTES;
}

static gs_status place_segments(gs_module *m, const gs_elf *elf, gs_error *error) {
    m->va_lo = UINT64_MAX;
    for (u32 i = 0; i < elf->segment_count; i++) {
        const gs_segment *s = &elf->segments[i];
        if (s->va < m->va_lo) m->va_lo = s->va;
        if (s->va + s->mem_bytes > m->va_hi) m->va_hi = s->va + s->mem_bytes;
    }
    m->va_lo &= ~(u64)(PAGE_BYTES - 1);
    if (m->va_hi <= m->va_lo || m->va_hi - m->va_lo > MAX_IMAGE_BYTES)
        return gs_error_set(error, GS_E_FORMAT,
                            "code object: segments span 0x%llx bytes, at most 1 GiB is loaded",
                            (unsigned long long)(m->va_hi - m->va_lo));
    // Fresh pages are zero and cost nothing until touched; one more than asked keeps neighbours apart.
    void *p = mmap(NULL, mapped_bytes(m), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) return gs_error_set(error, GS_E_NOMEM, "code object: no memory for its segments");
    m->image = p;
    m->device_base = (u64)(uintptr_t)p - m->va_lo;
    gs_status status = gs_mem_map(m->mem, p, m->va_hi - m->va_lo);
    if (status) return gs_error_set(error, status, "code object: no memory for its segments");
    for (u32 i = 0; i < elf->segment_count; i++) {
        const gs_segment *s = &elf->segments[i];
        if (s->file_bytes)
            memcpy(m->image + (s->va - m->va_lo), elf->file.data + s->file_offset, s->file_bytes);
    }
    return GS_OK;
}

// Relocation types and formulas: LLVM's AMDGPU usage guide, table of ELF relocations.
static gs_status relocate(gs_module *m, const gs_elf *elf, gs_error *error) {
    enum {
        NONE,
        ABS32_LO,
        ABS32_HI,
        ABS64,
        REL32,
        REL64,
        ABS32,
        REL32_LO = 10,
        REL32_HI = 11,
        RELATIVE64 = 13
    };
    for (u32 i = 0; i < elf->reloc_count; i++) {
        const gs_reloc *r = &elf->relocs[i];
        const gs_symbol *s = &elf->symbols[r->symbol];
        u32 bytes = r->type == ABS64 || r->type == REL64 || r->type == RELATIVE64 ? 8 : 4;
        if (r->type == NONE) continue;
        if (r->va < m->va_lo || r->va > m->va_hi || m->va_hi - r->va < bytes)
            return gs_error_set(error, GS_E_FORMAT, "code object: relocation %u writes outside the image", i);
        if (r->type != RELATIVE64 && s->undefined)
            return gs_error_set(error, GS_E_UNSUPPORTED, "code object: undefined symbol '%.80s'", s->name);
        u64 value = m->device_base + s->va + (u64)r->addend, place = m->device_base + r->va;
        switch (r->type) {
        case ABS32_LO:
        case ABS32:
        case ABS64:
            break;
        case ABS32_HI:
            value >>= 32;
            break;
        case REL32:
        case REL32_LO:
        case REL64:
            value -= place;
            break;
        case REL32_HI:
            value = (value - place) >> 32;
            break;
        case RELATIVE64:
            value = m->device_base + (u64)r->addend;
            break;
        default:
            return gs_error_set(error, GS_E_UNSUPPORTED, "code object: relocation type %u", r->type);
        }
        memcpy(m->image + (r->va - m->va_lo), &value, bytes);
    }
    return GS_OK;
}

static gs_status copy_symbols(gs_module *m, const gs_elf *elf, gs_error *error) {
    m->symbols = calloc(elf->symbol_count, sizeof *m->symbols);
    if (!m->symbols) return gs_error_set(error, GS_E_NOMEM, "code object: no memory for symbols");
    for (u32 i = 0; i < elf->symbol_count; i++) {
        size_t bytes = strlen(elf->symbols[i].name) + 1;
        char *name = gs_arena_alloc(&m->arena, bytes, 1);
        if (!name) return gs_error_set(error, GS_E_NOMEM, "code object: no memory for symbols");
        memcpy(name, elf->symbols[i].name, bytes);
        m->symbols[i] = elf->symbols[i];
        m->symbols[i].name = name;
    }
    m->symbol_count = elf->symbol_count;
    return GS_OK;
}

gs_status gs_module_load(gs_mem *mem, const void *image, size_t bytes, gs_module **out, gs_error *error) {
    if (!mem || !image || !out) return gs_error_set(error, GS_E_INVALID, "module load: null argument");
    gs_span span = {image, bytes};
    gs_status status = unwrap(&span, error);
    if (status) return status;
    gs_module *m = calloc(1, sizeof *m);
    if (!m) return gs_error_set(error, GS_E_NOMEM, "module load: no memory");
    m->mem = mem;
    gs_elf elf;
    status = gs_elf_open(&elf, span.data, span.bytes, error);
    if (!status) status = place_segments(m, &elf, error);
    if (!status) status = relocate(m, &elf, error);
    if (!status) status = copy_symbols(m, &elf, error);
    if (!status) status = gs_decode_module(m, &elf, error);
    if (!status) status = gs_metadata_read(m, &elf, error);
    gs_elf_close(&elf);
    if (status)
        gs_module_free(m);
    else
        *out = m;
    return status;
}

void gs_module_free(gs_module *m) {
    if (!m) return;
    if (m->image) gs_mem_unmap(m->mem, m->image), munmap(m->image, mapped_bytes(m));
    gs_arena_free(&m->arena);
    free(m->ops);
    free(m->op_at);
    free(m->kernels);
    free(m->symbols);
    free(m->konsts);
    free(m);
}

size_t gs_module_kernel_count(const gs_module *m) {
    return m->kernel_count;
}
const gs_kernel *gs_module_kernel_at(const gs_module *m, size_t index) {
    return index < m->kernel_count ? &m->kernels[index] : NULL;
}
const gs_kernel *gs_module_kernel(const gs_module *m, const char *name) {
    for (u32 i = 0; name && i < m->kernel_count; i++)
        if (strcmp(m->kernels[i].info.name, name) == 0) return &m->kernels[i];
    return NULL;
}
const gs_kernel_info *gs_kernel_describe(const gs_kernel *kernel) {
    return &kernel->info;
}

gs_status gs_module_symbol(const gs_module *m, const char *name, void **address, size_t *bytes) {
    for (u32 i = 0; name && i < m->symbol_count; i++) {
        const gs_symbol *s = &m->symbols[i];
        if (s->undefined || s->type != STT_OBJECT || strcmp(s->name, name) != 0) continue;
        if (s->va < m->va_lo || s->va > m->va_hi || s->bytes > m->va_hi - s->va) return GS_E_FORMAT;
        if (address) *address = m->image + (s->va - m->va_lo);
        if (bytes) *bytes = s->bytes;
        return GS_OK;
    }
    return GS_E_NOTFOUND;
}

const gs_op *gs_op_find(const gs_module *m, u64 va) {
    if (va < m->code_lo || va >= m->code_hi || va & 3) return NULL;
    u32 index = m->op_at[(va - m->code_lo) / 4];
    return index ? &m->ops[index - 1] : NULL;
}

size_t gs_module_line_count(const gs_module *m) {
    return m->op_count;
}

gs_line gs_module_line(const gs_module *m, size_t index) {
    if (index >= m->op_count) return (gs_line){0, "", "", NULL};
    const gs_op *op = &m->ops[index];
    gs_line line = {op->va, op->text, op->row ? op->row->name : "", NULL};
    for (u32 i = 0; i < m->symbol_count; i++)
        if (m->symbols[i].type == STT_FUNC && m->symbols[i].va == op->va && !m->symbols[i].undefined)
            line.symbol = m->symbols[i].name;
    return line;
}
