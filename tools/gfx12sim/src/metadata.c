// SPDX-License-Identifier: Apache-2.0
// Kernels of a code object: the metadata note's maps (names as LLVM's AMDGPU usage guide lists them for code
// objects v5 and v6), each joined to its 64-byte kernel descriptor.
#include <stdlib.h>
#include "module.h"

enum { MAX_ARGS = 4096, DESCRIPTOR_BYTES = 64 };

static bool same(const char *text, u32 bytes, const char *word) {
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

static const char *copy_text(gs_module *m, const char *text, u32 bytes) {
    char *copy = gs_arena_alloc(&m->arena, (size_t)bytes + 1, 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

static gs_arg_kind arg_kind(const char *word) {
    if (strcmp(word, "by_value") == 0) return GS_ARG_BY_VALUE;
    if (strcmp(word, "global_buffer") == 0) return GS_ARG_GLOBAL_BUFFER;
    if (strcmp(word, "dynamic_shared_pointer") == 0) return GS_ARG_DYNAMIC_SHARED;
    return strncmp(word, "hidden_", 7) == 0 ? GS_ARG_HIDDEN : GS_ARG_OTHER;
}

static bool read_u32(gs_msgpack *c, u32 *value) {
    u64 wide;
    if (!gs_msgpack_uint(c, &wide) || wide > UINT32_MAX) return false;
    *value = (u32)wide;
    return true;
}

static bool read_arg(gs_module *m, gs_msgpack *c, gs_arg *arg) {
    u32 count, bytes;
    const char *key, *text;
    if (!gs_msgpack_map(c, &count)) return false;
    *arg = (gs_arg){.name = "", .value_kind = ""};
    for (u32 i = 0; i < count; i++) {
        if (!gs_msgpack_text(c, &key, &bytes)) return false;
        bool ok;
        if (same(key, bytes, ".offset")) ok = read_u32(c, &arg->offset_bytes);
        else if (same(key, bytes, ".size")) ok = read_u32(c, &arg->size_bytes);
        else if (same(key, bytes, ".pointee_align")) ok = read_u32(c, &arg->pointee_align);
        else if (same(key, bytes, ".name") || same(key, bytes, ".value_kind")) {
            bool name = same(key, bytes, ".name");
            ok = gs_msgpack_text(c, &text, &bytes) && (text = copy_text(m, text, bytes));
            if (ok && name) arg->name = text;
            else if (ok) arg->value_kind = text;
        } else ok = gs_msgpack_skip(c);
        if (!ok) return false;
    }
    arg->kind = arg_kind(arg->value_kind);
    return true;
}

static bool read_args(gs_module *m, gs_msgpack *c, gs_kernel_info *info) {
    u32 count;
    if (!gs_msgpack_array(c, &count) || count > MAX_ARGS) return false;
    gs_arg *args = gs_arena_alloc(&m->arena, (count + 1) * sizeof *args, 8);
    if (!args) return false;
    for (u32 i = 0; i < count; i++)
        if (!read_arg(m, c, &args[i])) return false;
    info->args = args;
    info->arg_count = count;
    while (info->explicit_arg_count < count && args[info->explicit_arg_count].kind != GS_ARG_HIDDEN)
        info->explicit_arg_count++;
    return true;
}

static bool read_kernel(gs_module *m, gs_msgpack *c, gs_kernel *k, const char **descriptor) {
    gs_kernel_info *info = &k->info;
    struct { const char *key; u32 *value; } numbers[] = {
        {".kernarg_segment_size", &info->kernarg_bytes},      {".kernarg_segment_align", &info->kernarg_align},
        {".group_segment_fixed_size", &info->lds_bytes},      {".private_segment_fixed_size", &info->scratch_bytes},
        {".vgpr_count", &info->vgprs},                        {".sgpr_count", &info->sgprs},
        {".vgpr_spill_count", &info->vgpr_spills},            {".sgpr_spill_count", &info->sgpr_spills},
        {".max_flat_workgroup_size", &info->max_block_items},
    };
    u32 count, bytes, n, wavefront = 32;
    const char *key, *text;
    if (!gs_msgpack_map(c, &count)) return false;
    for (u32 i = 0; i < count; i++) {
        if (!gs_msgpack_text(c, &key, &bytes)) return false;
        bool ok = true, done = false;
        for (u32 j = 0; j < sizeof numbers / sizeof *numbers && !done; j++)
            if (same(key, bytes, numbers[j].key)) ok = read_u32(c, numbers[j].value), done = true;
        if (done) { if (!ok) return false; continue; }
        if (same(key, bytes, ".name") || same(key, bytes, ".symbol")) {
            bool name = same(key, bytes, ".name");
            ok = gs_msgpack_text(c, &text, &bytes) && (text = copy_text(m, text, bytes));
            if (ok && name) info->name = text;
            else if (ok) *descriptor = text;
        } else if (same(key, bytes, ".args")) ok = read_args(m, c, info);
        else if (same(key, bytes, ".wavefront_size")) ok = read_u32(c, &wavefront);
        else if (same(key, bytes, ".uses_dynamic_stack")) ok = gs_msgpack_bool(c, &info->dynamic_stack);
        else if (same(key, bytes, ".reqd_workgroup_size")) {
            ok = gs_msgpack_array(c, &n) && n == 3;
            for (u32 d = 0; ok && d < 3; d++) ok = read_u32(c, &info->required_block[d]);
        } else ok = gs_msgpack_skip(c);
        if (!ok) return false;
    }
    return info->name && *descriptor && wavefront == 32;
}

static gs_status join_descriptor(gs_module *m, gs_kernel *k, const char *symbol, gs_error *error) {
    void *address;
    size_t bytes;
    if (gs_module_symbol(m, symbol, &address, &bytes) || bytes < DESCRIPTOR_BYTES)
        return gs_error_set(error, GS_E_FORMAT, "kernel %.80s: no 64-byte descriptor '%.80s'", k->info.name, symbol);
    const u8 *d = address;
    u32 lds, scratch, kernarg;
    i64 offset;
    u16 properties;
    memcpy(&lds, d, 4);
    memcpy(&scratch, d + 4, 4);
    memcpy(&kernarg, d + 8, 4);
    memcpy(&offset, d + 16, 8);
    memcpy(&k->rsrc1, d + 48, 4);
    memcpy(&k->rsrc2, d + 52, 4);
    memcpy(&properties, d + 56, 2);
    k->properties = properties;
    k->entry_va = (u64)(d - m->image) + m->va_lo + (u64)offset;
    const gs_op *op = gs_op_find(m, k->entry_va);
    if (!op) return gs_error_set(error, GS_E_FORMAT, "kernel %.80s: entry 0x%llx is no instruction", k->info.name,
                                 (unsigned long long)k->entry_va);
    if (!(properties & 1u << 10))
        return gs_error_set(error, GS_E_UNSUPPORTED, "kernel %.80s: compiled for wave64, needs wave32", k->info.name);
    if (lds != k->info.lds_bytes || scratch < k->info.scratch_bytes || kernarg != k->info.kernarg_bytes ||
        lds > GS_LDS_MAX_BYTES)
        return gs_error_set(error, GS_E_FORMAT,
                            "kernel %.80s: descriptor has LDS %u scratch %u kernarg %u, metadata LDS %u scratch %u "
                            "kernarg %u (LDS at most 65536)",
                            k->info.name, lds, scratch, kernarg, k->info.lds_bytes, k->info.scratch_bytes,
                            k->info.kernarg_bytes);
    k->entry = op->index;
    k->module = m;
    for (u32 i = 0; i < k->info.arg_count; i++)
        if (k->info.args[i].offset_bytes > kernarg || k->info.args[i].size_bytes > kernarg - k->info.args[i].offset_bytes)
            return gs_error_set(error, GS_E_FORMAT, "kernel %.80s: argument %u leaves the %u kernarg bytes",
                                k->info.name, i, kernarg);
    return GS_OK;
}

// Size of the function symbol at the entry; up to the end of the code when there is none.
static void measure_code(gs_module *m, gs_kernel *k) {
    k->info.code_va = k->entry_va;
    k->info.code_bytes = m->code_hi - k->entry_va;
    for (u32 i = 0; i < m->symbol_count; i++)
        if (m->symbols[i].va == k->entry_va && m->symbols[i].bytes && m->symbols[i].bytes < k->info.code_bytes)
            k->info.code_bytes = m->symbols[i].bytes;
}

static gs_status read_kernels(gs_module *m, gs_msgpack *c, gs_error *error) {
    u32 count;
    if (!gs_msgpack_array(c, &count) || count > (u64)(c->end - c->at))
        return gs_error_set(error, GS_E_FORMAT, "metadata: amdhsa.kernels is no array");
    m->kernels = calloc(count ? count : 1, sizeof *m->kernels);
    if (!m->kernels) return gs_error_set(error, GS_E_NOMEM, "metadata: no memory for %u kernels", count);
    for (u32 i = 0; i < count; i++) {
        const char *descriptor = NULL;
        gs_kernel *k = &m->kernels[i];
        if (!read_kernel(m, c, k, &descriptor))
            return gs_error_set(error, GS_E_FORMAT, "metadata: kernel %u is damaged or not wave32", i);
        gs_status status = join_descriptor(m, k, descriptor, error);
        if (status) return status;
        measure_code(m, k);
        m->kernel_count++;
    }
    return GS_OK;
}

gs_status gs_metadata_read(gs_module *m, const gs_elf *elf, gs_error *error) {
    gs_msgpack c = {elf->metadata.data, elf->metadata.data + elf->metadata.bytes};
    u32 count, bytes;
    const char *key;
    if (!gs_msgpack_map(&c, &count)) return gs_error_set(error, GS_E_FORMAT, "metadata: not a MessagePack map");
    for (u32 i = 0; i < count; i++) {
        if (!gs_msgpack_text(&c, &key, &bytes)) return gs_error_set(error, GS_E_FORMAT, "metadata: key %u damaged", i);
        if (same(key, bytes, "amdhsa.kernels") && !m->kernels) {
            gs_status status = read_kernels(m, &c, error);
            if (status) return status;
        } else if (!gs_msgpack_skip(&c)) return gs_error_set(error, GS_E_FORMAT, "metadata: value %u damaged", i);
    }
    return GS_OK;
}
