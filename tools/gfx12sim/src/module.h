// SPDX-License-Identifier: Apache-2.0
// A loaded code object: memory image, decoded instructions, kernels, symbols.
#ifndef GFX12SIM_MODULE_H
#define GFX12SIM_MODULE_H

#include "codeobj.h"
#include "sim.h"

typedef struct gs_arena { // strings, constants, DPP maps of one module; freed at once
    struct gs_chunk *chunks;
} gs_arena;
void *gs_arena_alloc(gs_arena *arena, size_t bytes, size_t align); // zeroed; null: no memory
void gs_arena_free(gs_arena *arena);

struct gs_kernel {
    gs_kernel_info info;
    gs_module *module;
    u64 entry_va;
    u32 entry; // op index
    u32 rsrc1, rsrc2, properties;
    u32 max_vgpr; // highest index that its code names
};

struct gs_module {
    gs_mem *mem;
    u8 *image; // device memory that holds the segments; byte of va is image[va - va_lo]
    u64 va_lo, va_hi, device_base; // device_base: device address of va 0
    gs_arena arena;
    gs_op *ops;
    u32 op_count, op_capacity;
    u32 *op_at; // per code word of [code_lo, code_hi): op index + 1
    u64 code_lo, code_hi;
    gs_kernel *kernels;
    u32 kernel_count;
    gs_symbol *symbols; // names in the arena
    u32 symbol_count;
    struct gs_konst *konsts; // constant broadcasts, shared
    u32 konst_count, konst_capacity;
};

gs_status gs_decode_module(gs_module *m, const gs_elf *elf, gs_error *error);
gs_status gs_metadata_read(gs_module *m, const gs_elf *elf, gs_error *error);
// Fills op from LLVM's text. false: not understood (op->row stays null, executing it is an error).
bool gs_parse_op(gs_module *m, gs_op *op, const char *text);
const u32 *gs_konst_lanes(gs_module *m, u64 value);
const gs_op *gs_op_find(const gs_module *m, u64 va);

#endif
