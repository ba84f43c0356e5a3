// SPDX-License-Identifier: Apache-2.0
// Reading an AMD HSA code object: every offset is checked against the file before it is followed.
#ifndef GFX12SIM_CODEOBJ_H
#define GFX12SIM_CODEOBJ_H

#include "sim.h"

typedef struct gs_span {
    const u8 *data;
    u64 bytes;
} gs_span;

typedef struct gs_segment {
    u64 va, file_offset, file_bytes, mem_bytes;
    bool executable;
} gs_segment;

typedef struct gs_symbol {
    const char *name; // inside the file
    u64 va, bytes;
    u8 type; // STT_*
    bool undefined, absolute;
} gs_symbol;

typedef struct gs_reloc {
    u64 va;
    i64 addend;
    u32 type, symbol;
} gs_reloc;

enum { GS_MAX_SEGMENTS = 32 };

typedef struct gs_elf {
    gs_span file;
    u32 abi_version; // 3: code object v5, 4: v6
    gs_segment segments[GS_MAX_SEGMENTS];
    u32 segment_count;
    gs_symbol *symbols; // dynamic symbol table, index as relocations use it
    u32 symbol_count;
    gs_reloc *relocs;
    u32 reloc_count;
    gs_span metadata; // MessagePack of the AMDGPU note
} gs_elf;

gs_status gs_elf_open(gs_elf *elf, const void *image, size_t bytes, gs_error *error);
void gs_elf_close(gs_elf *elf);

// MessagePack cursor. Each reader returns false at a wrong type or at the end of the data.
typedef struct gs_msgpack {
    const u8 *at, *end;
} gs_msgpack;

bool gs_msgpack_map(gs_msgpack *m, u32 *count);
bool gs_msgpack_array(gs_msgpack *m, u32 *count);
bool gs_msgpack_text(gs_msgpack *m, const char **text, u32 *bytes);
bool gs_msgpack_uint(gs_msgpack *m, u64 *value);
bool gs_msgpack_bool(gs_msgpack *m, bool *value);
bool gs_msgpack_skip(gs_msgpack *m);

#endif
