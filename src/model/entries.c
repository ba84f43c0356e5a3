// SPDX-License-Identifier: Apache-2.0
// Tables of named tensors, as safetensors and GGUF both have them: sorted, unique, inside the file, free of overlap.
#include "model/files.h"

#include <stdlib.h>
#include <string.h>

bool rdi_entry_bytes(rdi_wtype type, const int64_t *shape, int32_t rank, int64_t *bytes) {
    const rdi_wtype_info *info = rdi_wtype_get(type);
    int64_t elems = 1;
    for (int32_t i = 0; i < rank; i++)
        if (shape[i] < 0 || rdi_mul_overflow(elems, shape[i], &elems)) return false;
    if (info->block_elems > 1 && (rank == 0 || shape[rank - 1] % info->block_elems)) return false;
    return !rdi_mul_overflow(elems / info->block_elems, info->block_bytes, bytes);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const rdi_entry *)a)->name, ((const rdi_entry *)b)->name);
}

static int by_begin(const void *a, const void *b) {
    const rdi_entry *x = *(const rdi_entry *const *)a, *y = *(const rdi_entry *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) -
           (x->bytes < y->bytes); // an empty tensor sorts before the one that begins there
}

rd_status rdi_entries_check(rdi_arena *arena, const char *what, rdi_entries *entries, const uint8_t *data,
                            int64_t data_bytes) {
    int64_t count = entries->count;
    if (count > 1) qsort(entries->entry, (size_t)count, sizeof *entries->entry, by_name);
    const rdi_entry **order = rdi_arena_alloc(arena, (size_t)count * sizeof *order);
    if (!order) return RD_E_NOMEM;
    for (int64_t i = 0; i < count; i++) {
        rdi_entry *entry = &entries->entry[i];
        if (i && !strcmp(entry->name, entry[-1].name))
            return rdi_fail(RD_E_FORMAT, "%s: tensor %s appears twice, needs unique names", what,
                            entry->name);
        int64_t end;
        if (entry->begin < 0 || entry->bytes < 0 || rdi_add_overflow(entry->begin, entry->bytes, &end) ||
            end > data_bytes)
            return rdi_fail(
                RD_E_FORMAT, "%s: tensor %s: bytes %lld + %lld, needs to end within the %lld bytes of data",
                what, entry->name, (long long)entry->begin, (long long)entry->bytes, (long long)data_bytes);
        entry->data = data + entry->begin;
        order[i] = entry;
    }
    if (count > 1) qsort(order, (size_t)count, sizeof *order, by_begin);
    for (int64_t i = 1; i < count; i++)
        if (order[i]->begin < order[i - 1]->begin + order[i - 1]->bytes)
            return rdi_fail(
                RD_E_FORMAT,
                "%s: tensor %s begins at byte %lld inside tensor %s, needs ranges that do not overlap", what,
                order[i]->name, (long long)order[i]->begin, order[i - 1]->name);
    return RD_OK;
}

rd_status rdi_entries_merge(rdi_arena *arena, const char *what, const rdi_entries *tables, int32_t count,
                            rdi_entries *out) {
    out->entry = rdi_arena_alloc(arena, (size_t)out->count * sizeof *out->entry);
    if (!out->entry) return RD_E_NOMEM;
    int64_t at = 0;
    for (int32_t i = 0; i < count; at += tables[i++].count)
        memcpy(out->entry + at, tables[i].entry, (size_t)tables[i].count * sizeof *out->entry);
    if (at > 1) qsort(out->entry, (size_t)at, sizeof *out->entry, by_name);
    for (int64_t i = 1; i < at; i++)
        if (!strcmp(out->entry[i - 1].name, out->entry[i].name))
            return rdi_fail(RD_E_FORMAT, "%s: tensor %s is in two shards, needs unique names", what,
                            out->entry[i].name);
    return RD_OK;
}

const rdi_entry *rdi_entries_find(const rdi_entries *entries, const char *name) {
    rdi_entry key = {.name = name};
    if (!entries->count) return NULL;
    return bsearch(&key, entries->entry, (size_t)entries->count, sizeof key, by_name);
}
