// SPDX-License-Identifier: Apache-2.0
// ELF64 of an AMD HSA code object: program headers, dynamic symbols, relocations, the metadata note.
// Section headers are not needed to load a program and are ignored.
#include <elf.h>
#include <stdlib.h>
#include "codeobj.h"

enum { EM_AMDGPU_ = 224, OSABI_AMDGPU_HSA = 64, MACH_GFX1201 = 0x4e, NT_AMDGPU_METADATA_ = 32 };

static const void *at(const gs_elf *e, u64 offset, u64 bytes) {
    if (offset > e->file.bytes || bytes > e->file.bytes - offset) return NULL;
    return e->file.data + offset;
}

// File bytes behind a virtual address, or null when no segment's file part holds them all.
static const void *at_va(const gs_elf *e, u64 va, u64 bytes) {
    for (u32 i = 0; i < e->segment_count; i++) {
        const gs_segment *s = &e->segments[i];
        if (va >= s->va && va - s->va <= s->file_bytes && bytes <= s->file_bytes - (va - s->va))
            return at(e, s->file_offset + (va - s->va), bytes);
    }
    return NULL;
}

static gs_status read_header(gs_elf *e, Elf64_Ehdr *h, gs_error *error) {
    const void *p = at(e, 0, sizeof *h);
    if (!p) return gs_error_set(error, GS_E_FORMAT, "code object: %llu bytes, an ELF header needs 64",
                                (unsigned long long)e->file.bytes);
    memcpy(h, p, sizeof *h);
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
        return gs_error_set(error, GS_E_FORMAT, "code object: no ELF magic");
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB)
        return gs_error_set(error, GS_E_FORMAT, "code object: needs little-endian ELF64");
    if (h->e_machine != EM_AMDGPU_ || h->e_ident[EI_OSABI] != OSABI_AMDGPU_HSA)
        return gs_error_set(error, GS_E_UNSUPPORTED, "code object: machine %u OS ABI %u, needs AMDGPU (224) HSA (64)",
                            h->e_machine, h->e_ident[EI_OSABI]);
    e->abi_version = h->e_ident[EI_ABIVERSION];
    if (e->abi_version != 3 && e->abi_version != 4)
        return gs_error_set(error, GS_E_UNSUPPORTED, "code object: ABI version %u, needs 3 (v5) or 4 (v6)",
                            e->abi_version);
    if ((h->e_flags & 0xff) != MACH_GFX1201)
        return gs_error_set(error, GS_E_UNSUPPORTED, "code object: processor flag 0x%x, needs gfx1201 (0x4e)",
                            h->e_flags & 0xff);
    if (h->e_phentsize != sizeof(Elf64_Phdr))
        return gs_error_set(error, GS_E_FORMAT, "code object: program header of %u bytes, needs 56", h->e_phentsize);
    return GS_OK;
}

static gs_status add_segment(gs_elf *e, const Elf64_Phdr *p, gs_error *error) {
    if (e->segment_count == GS_MAX_SEGMENTS)
        return gs_error_set(error, GS_E_FORMAT, "code object: more than %d load segments", GS_MAX_SEGMENTS);
    if (p->p_filesz > p->p_memsz || !at(e, p->p_offset, p->p_filesz))
        return gs_error_set(error, GS_E_FORMAT, "code object: load segment at 0x%llx leaves the file",
                            (unsigned long long)p->p_vaddr);
    if (p->p_vaddr > UINT32_MAX || p->p_memsz > UINT32_MAX)
        return gs_error_set(error, GS_E_FORMAT, "code object: load segment at 0x%llx of 0x%llx bytes is beyond 4 GiB",
                            (unsigned long long)p->p_vaddr, (unsigned long long)p->p_memsz);
    e->segments[e->segment_count++] =
        (gs_segment){p->p_vaddr, p->p_offset, p->p_filesz, p->p_memsz, (p->p_flags & PF_X) != 0};
    return GS_OK;
}

static void find_metadata(gs_elf *e, const Elf64_Phdr *p) {
    u64 offset = p->p_offset, end = p->p_offset + p->p_filesz;
    if (!at(e, p->p_offset, p->p_filesz)) return;
    while (end - offset >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr n;
        memcpy(&n, e->file.data + offset, sizeof n);
        offset += sizeof n;
        u64 name = offset, name_bytes = ((u64)n.n_namesz + 3) & ~3ull, desc_bytes = ((u64)n.n_descsz + 3) & ~3ull;
        if (name_bytes > end - offset || n.n_descsz > end - offset - name_bytes) return;
        offset += name_bytes;
        if (n.n_type == NT_AMDGPU_METADATA_ && n.n_namesz == 7 && memcmp(e->file.data + name, "AMDGPU", 7) == 0)
            e->metadata = (gs_span){e->file.data + offset, n.n_descsz};
        if (desc_bytes > end - offset) return;
        offset += desc_bytes;
    }
}

typedef struct dynamic {
    u64 symtab, strtab, strsz, hash, rela, relasz, relaent;
} dynamic;

static void read_dynamic(const gs_elf *e, const Elf64_Phdr *p, dynamic *d) {
    for (u64 i = 0; i < p->p_filesz / sizeof(Elf64_Dyn); i++) {
        const void *q = at(e, p->p_offset + i * sizeof(Elf64_Dyn), sizeof(Elf64_Dyn));
        if (!q) return;
        Elf64_Dyn y;
        memcpy(&y, q, sizeof y);
        switch (y.d_tag) {
        case DT_NULL: return;
        case DT_SYMTAB: d->symtab = y.d_un.d_ptr; break;
        case DT_STRTAB: d->strtab = y.d_un.d_ptr; break;
        case DT_STRSZ: d->strsz = y.d_un.d_val; break;
        case DT_HASH: d->hash = y.d_un.d_ptr; break;
        case DT_RELA: d->rela = y.d_un.d_ptr; break;
        case DT_RELASZ: d->relasz = y.d_un.d_val; break;
        case DT_RELAENT: d->relaent = y.d_un.d_val; break;
        default: break;
        }
    }
}

// DT_HASH's chain count is the number of dynamic symbols.
static gs_status read_symbols(gs_elf *e, const dynamic *d, gs_error *error) {
    const u8 *hash = at_va(e, d->hash, 8);
    const char *names = at_va(e, d->strtab, d->strsz);
    u32 count = 0;
    if (d->hash && hash) memcpy(&count, hash + 4, 4);
    const u8 *table = at_va(e, d->symtab, (u64)count * sizeof(Elf64_Sym));
    if (!count || !table || !names || !d->strsz || names[d->strsz - 1] != 0)
        return gs_error_set(error, GS_E_FORMAT, "code object: dynamic symbol, string or hash table missing or damaged");
    e->symbols = calloc(count, sizeof *e->symbols);
    if (!e->symbols) return gs_error_set(error, GS_E_NOMEM, "code object: no memory for %u symbols", count);
    for (u32 i = 0; i < count; i++) {
        Elf64_Sym s;
        memcpy(&s, table + i * sizeof s, sizeof s);
        if (s.st_name >= d->strsz)
            return gs_error_set(error, GS_E_FORMAT, "code object: name of symbol %u leaves the string table", i);
        e->symbols[i] = (gs_symbol){names + s.st_name, s.st_value, s.st_size, ELF64_ST_TYPE(s.st_info),
                                    s.st_shndx == SHN_UNDEF, s.st_shndx == SHN_ABS};
    }
    e->symbol_count = count;
    return GS_OK;
}

static gs_status read_relocs(gs_elf *e, const dynamic *d, gs_error *error) {
    if (!d->rela || !d->relasz) return GS_OK;
    const u8 *table = at_va(e, d->rela, d->relasz);
    u64 count = d->relasz / sizeof(Elf64_Rela);
    if (!table || d->relaent != sizeof(Elf64_Rela))
        return gs_error_set(error, GS_E_FORMAT, "code object: relocation table damaged");
    e->relocs = calloc(count ? count : 1, sizeof *e->relocs);
    if (!e->relocs) return gs_error_set(error, GS_E_NOMEM, "code object: no memory for relocations");
    for (u64 i = 0; i < count; i++) {
        Elf64_Rela r;
        memcpy(&r, table + i * sizeof r, sizeof r);
        e->relocs[i] = (gs_reloc){r.r_offset, r.r_addend, (u32)ELF64_R_TYPE(r.r_info), (u32)ELF64_R_SYM(r.r_info)};
        if (e->relocs[i].symbol >= e->symbol_count)
            return gs_error_set(error, GS_E_FORMAT, "code object: relocation %llu names symbol %u of %u",
                                (unsigned long long)i, e->relocs[i].symbol, e->symbol_count);
    }
    e->reloc_count = (u32)count;
    return GS_OK;
}

gs_status gs_elf_open(gs_elf *e, const void *image, size_t bytes, gs_error *error) {
    Elf64_Ehdr h;
    *e = (gs_elf){.file = {image, bytes}};
    gs_status status = read_header(e, &h, error);
    if (status) return status;
    const u8 *table = at(e, h.e_phoff, (u64)h.e_phnum * sizeof(Elf64_Phdr));
    if (!table) return gs_error_set(error, GS_E_FORMAT, "code object: program headers leave the file");
    Elf64_Phdr p, dyn = {0};
    for (u32 i = 0; i < h.e_phnum; i++) {
        memcpy(&p, table + i * sizeof p, sizeof p);
        if (p.p_type == PT_LOAD && (status = add_segment(e, &p, error))) return status;
        if (p.p_type == PT_NOTE) find_metadata(e, &p);
        if (p.p_type == PT_DYNAMIC) dyn = p;
    }
    if (!e->segment_count) return gs_error_set(error, GS_E_FORMAT, "code object: nothing to load");
    if (!e->metadata.data) return gs_error_set(error, GS_E_FORMAT, "code object: no AMDGPU metadata note");
    dynamic d = {0};
    read_dynamic(e, &dyn, &d);
    if ((status = read_symbols(e, &d, error))) return status;
    return read_relocs(e, &d, error);
}

void gs_elf_close(gs_elf *e) {
    free(e->symbols);
    free(e->relocs);
    *e = (gs_elf){0};
}
