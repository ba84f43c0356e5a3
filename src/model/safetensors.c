// SPDX-License-Identifier: Apache-2.0
// safetensors: 8 bytes of header length, a JSON header {name: {dtype, shape, data_offsets}}, then one dense buffer.
// Everything that the format promises is checked: a header may lie about its length, shapes, offsets and names.
#include "model/files.h"

#include <string.h>

enum { MAX_HEADER_BYTES = 100000000 }; // the format's own cap

static rd_status read_dtype(const char *what, const char *name, const rdi_json *value, rdi_wtype *out) {
    static const rdi_wtype known[] = {RDI_W_F32,  RDI_W_F16, RDI_W_BF16, RDI_W_E4M3,
                                      RDI_W_E8M0, RDI_W_I32, RDI_W_I64,  RDI_W_U8};
    for (size_t i = 0; i < RDI_COUNT(known); i++)
        if (rdi_json_is(value, rdi_wtype_get(known[i])->name)) {
            *out = known[i];
            return RD_OK;
        }
    bool text = value && value->kind == RDI_JSON_STRING;
    return rdi_fail(RD_E_FORMAT,
                    "%s: tensor %s: dtype=%.*s, needs one of F32 F16 BF16 F8_E4M3 F8_E8M0 I32 I64 U8", what,
                    name, text ? (int)rdi_min(value->text_bytes, 32) : 3, text ? value->text : "???");
}

static rd_status read_entry(rdi_arena *arena, const char *what, const rdi_json *member, rdi_entry *entry) {
    if (member->key_bytes == 0 || member->key_bytes > RDI_TENSOR_MAX_NAME ||
        memchr(member->key, 0, member->key_bytes))
        return rdi_fail(RD_E_FORMAT, "%s: a tensor name of %u bytes, needs 1 to %d bytes without NUL", what,
                        member->key_bytes, RDI_TENSOR_MAX_NAME);
    entry->name = rdi_arena_strndup(arena, member->key, member->key_bytes);
    if (!entry->name) return RD_E_NOMEM;
    if (member->kind != RDI_JSON_OBJECT)
        return rdi_fail(RD_E_FORMAT, "%s: tensor %s is %s, needs an object", what, entry->name,
                        rdi_json_kind_name(member));
    RDI_TRY(read_dtype(what, entry->name, rdi_json_get(member, "dtype"), &entry->type));

    const rdi_json *shape = rdi_json_get(member, "shape");
    if (!shape || shape->kind != RDI_JSON_ARRAY || shape->count > RDI_TENSOR_MAX_RANK)
        return rdi_fail(RD_E_FORMAT, "%s: tensor %s: shape has %u extents, needs an array of at most %d",
                        what, entry->name, shape ? shape->count : 0, RDI_TENSOR_MAX_RANK);
    entry->rank = (int32_t)shape->count;
    int32_t axis = 0;
    for (const rdi_json *extent = shape->first; extent; extent = extent->next, axis++) {
        if (extent->kind != RDI_JSON_INT || extent->integer < 0)
            return rdi_fail(RD_E_FORMAT, "%s: tensor %s: shape[%d] is no whole number >= 0", what,
                            entry->name, axis);
        entry->shape[axis] = extent->integer;
    }

    const rdi_json *range = rdi_json_get(member, "data_offsets");
    const rdi_json *begin = range && range->kind == RDI_JSON_ARRAY && range->count == 2 ? range->first : NULL;
    if (!begin || begin->kind != RDI_JSON_INT || begin->next->kind != RDI_JSON_INT || begin->integer < 0 ||
        begin->next->integer < begin->integer)
        return rdi_fail(RD_E_FORMAT, "%s: tensor %s: data_offsets, needs two whole numbers [begin, end]",
                        what, entry->name);
    entry->begin = begin->integer;
    entry->bytes = begin->next->integer - begin->integer;
    int64_t need;
    if (!rdi_entry_bytes(entry->type, entry->shape, entry->rank, &need) || need != entry->bytes)
        return rdi_fail(RD_E_FORMAT, "%s: tensor %s: data_offsets span %lld bytes, needs shape x dtype", what,
                        entry->name, (long long)entry->bytes);
    return RD_OK;
}

rd_status rdi_safetensors_parse(rdi_arena *arena, const char *what, const uint8_t *data, size_t bytes,
                                rdi_entries *out) {
    uint64_t header_bytes = 0;
    memset(out, 0, sizeof *out);
    if (bytes < 8)
        return rdi_fail(RD_E_FORMAT, "%s: size=%zu bytes, needs at least 8 for the header length", what,
                        bytes);
    for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | data[i];
    if (header_bytes > bytes - 8 || header_bytes > MAX_HEADER_BYTES)
        return rdi_fail(RD_E_FORMAT,
                        "%s: header length=%llu, needs at most %llu (file size less 8, and the format's cap)",
                        what, (unsigned long long)header_bytes,
                        (unsigned long long)rdi_min((int64_t)(bytes - 8), MAX_HEADER_BYTES));
    const rdi_json *header;
    RDI_TRY(rdi_json_parse(arena, what, (const char *)data + 8, (size_t)header_bytes, &header));
    if (header->kind != RDI_JSON_OBJECT)
        return rdi_fail(RD_E_FORMAT, "%s: header is %s, needs an object", what, rdi_json_kind_name(header));

    out->entry = rdi_arena_alloc(arena, (size_t)header->count * sizeof *out->entry);
    if (!out->entry) return RD_E_NOMEM;
    int64_t total = 0;
    for (const rdi_json *member = header->first; member; member = member->next) {
        if (member->key_bytes == 12 && !memcmp(member->key, "__metadata__", 12)) continue;
        rdi_entry *entry = &out->entry[out->count++];
        RDI_TRY(read_entry(arena, what, member, entry));
        if (rdi_add_overflow(total, entry->bytes, &total)) total = INT64_MAX;
    }
    int64_t data_bytes = (int64_t)(bytes - 8 - (size_t)header_bytes);
    RDI_TRY(rdi_entries_check(arena, what, out, data + 8 + header_bytes, data_bytes));
    if (total != data_bytes) // with no overlap, equal sums mean no hole either
        return rdi_fail(RD_E_FORMAT, "%s: tensors cover %lld bytes, needs all %lld bytes of data covered",
                        what, (long long)total, (long long)data_bytes);
    return RD_OK;
}
