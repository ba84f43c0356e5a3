// SPDX-License-Identifier: Apache-2.0
// Questions about the embedded code objects: by word, and the kernels that belong to a row.
#include "backend/code_objects.h"
#include "registry/registry.h"

const rdi_code_object *rdi_code_object_find(const char *image) {
    for (int32_t i = 0; i < rdi_code_object_count; i++)
        if (!strcmp(rdi_code_objects[i].image, image)) return &rdi_code_objects[i];
    return NULL;
}

// Length of the row's name when the symbol is rdk_<name> or rdk_<name>_<more>, else 0.
static size_t name_match(const rdi_row *row, const char *symbol) {
    size_t bytes = strlen(row->info.name);
    const char *name = symbol + strlen("rdk_");
    bool begins = !strncmp(name, row->info.name, bytes) && (name[bytes] == '_' || !name[bytes]);
    return begins ? bytes : 0;
}

// A kernel belongs to the row of its object with the longest name that its symbol begins with.
static bool owns(const rdi_row *row, const char *symbol) {
    size_t own = name_match(row, symbol);
    for (int32_t i = 0; own && i < rdi_row_count; i++) {
        const rdi_row *other = &rdi_rows[i];
        if (other->image && !strcmp(other->image, row->image) && name_match(other, symbol) > own)
            return false;
    }
    return own > 0;
}

static const rdi_row *row_of(const rd_kernel_info *kernel) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (&rdi_rows[i].info == kernel) return &rdi_rows[i];
    return NULL;
}

rd_status rd_kernel_resources_at(const rd_kernel_info *kernel, int32_t index, rd_kernel_resources *out) {
    const rdi_row *row = row_of(kernel);
    if (!row || !out)
        return rdi_fail(RD_E_INVALID, "rd_kernel_resources_at: %s",
                        row ? "out=NULL" : "kernel is none of rd_kernel_at's");
    if (out->struct_size < sizeof *out)
        return rdi_fail(RD_E_INVALID, "rd_kernel_resources_at: struct_size=%u, needs %zu", out->struct_size,
                        sizeof *out);
    const rdi_code_object *object = row->image ? rdi_code_object_find(row->image) : NULL;
    int32_t count = 0;
    for (int32_t i = 0; object && i < object->kernel_count; i++) {
        const rdi_kernel_resources *built = &object->kernels[i];
        if (!owns(row, built->symbol) || count++ != index) continue;
        *out = (rd_kernel_resources){out->struct_size,        built->symbol,       built->vector_registers,
                                     built->scalar_registers, built->shared_bytes, built->scratch_bytes,
                                     built->spills,           built->code_bytes,   built->waves_per_simd};
        return RD_OK;
    }
    return rdi_fail(RD_E_LIMIT, "%s: resources=%d, needs 0 to %d", kernel->name, index, count - 1);
}
