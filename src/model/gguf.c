// SPDX-License-Identifier: Apache-2.0
// GGUF versions 2 and 3, little endian: metadata pairs, tensor infos, padding, data. Counts come from the file, so each is
// held against the bytes that are left before anything is allocated.
#include "model/files.h"

#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const char *what;
    const uint8_t *begin, *at, *end;
} cursor;

static const uint8_t scalar_bytes[RDI_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static uint64_t load(const uint8_t *from, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | from[i];
    return value;
}

static rd_status take(cursor *c, int bytes, const char *field, uint64_t *out) {
    *out = 0;
    if (c->end - c->at < bytes)
        return rdi_fail(RD_E_FORMAT, "%s: file ends at byte %lld inside %s", c->what,
                        (long long)(c->end - c->begin), field);
    *out = load(c->at, bytes);
    c->at += bytes;
    return RD_OK;
}

// A length-prefixed string; *text points into the file.
static rd_status take_string(cursor *c, const char *field, uint64_t max_bytes, const uint8_t **text,
                             uint64_t *bytes) {
    *text = c->at;
    RDI_TRY(take(c, 8, field, bytes));
    if (*bytes > (uint64_t)(c->end - c->at) || *bytes > max_bytes)
        return rdi_fail(
            RD_E_FORMAT, "%s: %s: length=%llu, needs at most %llu", c->what, field,
            (unsigned long long)*bytes,
            (unsigned long long)rdi_min((int64_t)rdi_min(c->end - c->at, INT64_MAX), (int64_t)max_bytes));
    *text = c->at;
    c->at += *bytes;
    return RD_OK;
}

static rd_status take_name(cursor *c, rdi_arena *arena, const char *field, const char **out) {
    const uint8_t *text;
    uint64_t bytes;
    RDI_TRY(take_string(c, field, RDI_TENSOR_MAX_NAME, &text, &bytes));
    if (!bytes || memchr(text, 0, bytes) || !rdi_utf8_valid((const char *)text, bytes))
        return rdi_fail(RD_E_FORMAT, "%s: %s of %llu bytes, needs UTF-8 without NUL", c->what, field,
                        (unsigned long long)bytes);
    *out = rdi_arena_strndup(arena, (const char *)text, bytes);
    return *out ? RD_OK : RD_E_NOMEM;
}

static rd_status take_array(cursor *c, rdi_gguf_value *value) {
    uint64_t type;
    RDI_TRY(take(c, 4, value->key, &type));
    RDI_TRY(take(c, 8, value->key, &value->count));
    if (type >= RDI_GGUF_TYPES || type == RDI_GGUF_ARRAY)
        return rdi_fail(RD_E_FORMAT, "%s: %s: array element type=%llu, needs a scalar or string type",
                        c->what, value->key, (unsigned long long)type);
    value->elem_type = (rdi_gguf_type)type;
    value->data = c->at;
    uint64_t elem_bytes = type == RDI_GGUF_STRING ? 8 : scalar_bytes[type], left = (uint64_t)(c->end - c->at);
    if (value->count > left / elem_bytes)
        return rdi_fail(RD_E_FORMAT, "%s: %s: array count=%llu, needs at most %llu, what the file has left",
                        c->what, value->key, (unsigned long long)value->count,
                        (unsigned long long)(left / elem_bytes));
    if (type != RDI_GGUF_STRING) {
        c->at += value->count * elem_bytes;
        return RD_OK;
    }
    for (uint64_t i = 0; i < value->count; i++) {
        const uint8_t *text;
        uint64_t bytes;
        RDI_TRY(take_string(c, value->key, UINT64_MAX >> 1, &text, &bytes));
    }
    return RD_OK;
}

static rd_status take_value(cursor *c, rdi_arena *arena, rdi_gguf_value *value) {
    uint64_t type;
    RDI_TRY(take_name(c, arena, "a metadata key", &value->key));
    RDI_TRY(take(c, 4, value->key, &type));
    if (type >= RDI_GGUF_TYPES)
        return rdi_fail(RD_E_FORMAT, "%s: %s: type=%llu, needs 0 to %d", c->what, value->key,
                        (unsigned long long)type, RDI_GGUF_TYPES - 1);
    value->type = (rdi_gguf_type)type;
    if (type == RDI_GGUF_ARRAY) return take_array(c, value);
    if (type == RDI_GGUF_STRING)
        return take_string(c, value->key, UINT64_MAX >> 1, &value->data, &value->count);
    value->data = c->at;
    uint64_t ignored;
    return take(c, scalar_bytes[type], value->key, &ignored);
}

// ggml's type numbers. Those without a name here have been removed from the format or never shipped weights.
static const struct {
    const char *name;
    rdi_wtype type;
} ggml_types[] = {[0] = {"F32", RDI_W_F32},   [1] = {"F16", RDI_W_F16},   [2] = {"Q4_0", RDI_W_Q4_0},
                  [3] = {"Q4_1", RDI_W_Q4_1}, [6] = {"Q5_0", 0},          [7] = {"Q5_1", 0},
                  [8] = {"Q8_0", RDI_W_Q8_0}, [9] = {"Q8_1", 0},          [10] = {"Q2_K", 0},
                  [11] = {"Q3_K", 0},         [12] = {"Q4_K", 0},         [13] = {"Q5_K", 0},
                  [14] = {"Q6_K", 0},         [15] = {"Q8_K", 0},         [16] = {"IQ2_XXS", 0},
                  [17] = {"IQ2_XS", 0},       [18] = {"IQ3_XXS", 0},      [19] = {"IQ1_S", 0},
                  [20] = {"IQ4_NL", 0},       [21] = {"IQ3_S", 0},        [22] = {"IQ2_S", 0},
                  [23] = {"IQ4_XS", 0},       [24] = {"I8", 0},           [25] = {"I16", 0},
                  [26] = {"I32", RDI_W_I32},  [27] = {"I64", RDI_W_I64},  [28] = {"F64", 0},
                  [29] = {"IQ1_M", 0},        [30] = {"BF16", RDI_W_BF16}};

static rd_status take_tensor(cursor *c, rdi_arena *arena, rdi_entry *entry) {
    uint64_t rank, type, begin;
    RDI_TRY(take_name(c, arena, "a tensor name", &entry->name));
    RDI_TRY(take(c, 4, entry->name, &rank));
    if (rank < 1 || rank > RDI_TENSOR_MAX_RANK)
        return rdi_fail(RD_E_FORMAT, "%s: tensor %s: dimensions=%llu, needs 1 to %d", c->what, entry->name,
                        (unsigned long long)rank, RDI_TENSOR_MAX_RANK);
    entry->rank = (int32_t)rank;
    for (uint64_t i = 0; i < rank; i++) { // the file has the innermost first
        uint64_t extent;
        RDI_TRY(take(c, 8, entry->name, &extent));
        if (extent > INT64_MAX) extent = INT64_MAX; // fails the size check below
        entry->shape[rank - 1 - i] = (int64_t)extent;
    }
    RDI_TRY(take(c, 4, entry->name, &type));
    RDI_TRY(take(c, 8, entry->name, &begin));
    const char *type_name = type < RDI_COUNT(ggml_types) ? ggml_types[type].name : NULL;
    entry->type = type_name ? ggml_types[type].type : RDI_W_NONE;
    if (entry->type == RDI_W_NONE)
        return rdi_fail(type_name ? RD_E_UNSUPPORTED : RD_E_FORMAT,
                        "%s: tensor %s: type=%llu (%s), needs one of F32 F16 BF16 Q4_0 Q4_1 Q8_0", c->what,
                        entry->name, (unsigned long long)type, type_name ? type_name : "unknown");
    if (begin > INT64_MAX || !rdi_entry_bytes(entry->type, entry->shape, entry->rank, &entry->bytes))
        return rdi_fail(
            RD_E_FORMAT,
            "%s: tensor %s: shape and offset=%llu do not make a size in bytes; %s rows need a multiple of %d",
            c->what, entry->name, (unsigned long long)begin, type_name,
            rdi_wtype_get(entry->type)->block_elems);
    entry->begin = (int64_t)begin;
    return RD_OK;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const rdi_gguf_value *)a)->key, ((const rdi_gguf_value *)b)->key);
}

static rd_status take_header(cursor *c, rdi_gguf *out, uint64_t *tensors, uint64_t *values) {
    uint64_t magic, version;
    RDI_TRY(take(c, 4, "the magic", &magic));
    if (magic != 0x46554747u)
        return rdi_fail(RD_E_FORMAT, "%s: magic=0x%08llx, needs \"GGUF\"", c->what,
                        (unsigned long long)magic);
    RDI_TRY(take(c, 4, "the version", &version));
    if (version != 2 && version != 3)
        return rdi_fail(RD_E_UNSUPPORTED, "%s: version=%llu%s, needs 2 or 3", c->what,
                        (unsigned long long)version,
                        version == 0x02000000u || version == 0x03000000u ? " (a big-endian file)" : "");
    out->version = (uint32_t)version;
    RDI_TRY(take(c, 8, "the tensor count", tensors));
    RDI_TRY(take(c, 8, "the metadata count", values));
    uint64_t left = (uint64_t)(c->end - c->at); // a pair takes 13 bytes at least, a tensor info 32
    if (*values > left / 13 || *tensors > left / 32)
        return rdi_fail(
            RD_E_FORMAT, "%s: counts of %llu tensors and %llu metadata pairs, needs what fits in %llu bytes",
            c->what, (unsigned long long)*tensors, (unsigned long long)*values, (unsigned long long)left);
    return RD_OK;
}

rd_status rdi_gguf_parse(rdi_arena *arena, const char *what, const uint8_t *data, size_t bytes,
                         rdi_gguf *out) {
    cursor c = {what, data, data, data + bytes};
    uint64_t tensors = 0, values = 0;
    memset(out, 0, sizeof *out);
    out->what = what;
    RDI_TRY(take_header(&c, out, &tensors, &values));
    out->value = rdi_arena_alloc(arena, values * sizeof *out->value);
    out->tensors.entry = rdi_arena_alloc(arena, tensors * sizeof *out->tensors.entry);
    if (!out->value || !out->tensors.entry) return RD_E_NOMEM;

    for (; out->value_count < (int64_t)values; out->value_count++)
        RDI_TRY(take_value(&c, arena, &out->value[out->value_count]));
    if (values > 1) qsort(out->value, values, sizeof *out->value, by_key);
    for (uint64_t i = 1; i < values; i++)
        if (!strcmp(out->value[i - 1].key, out->value[i].key))
            return rdi_fail(RD_E_FORMAT, "%s: metadata key %s appears twice", what, out->value[i].key);

    for (; out->tensors.count < (int64_t)tensors; out->tensors.count++)
        RDI_TRY(take_tensor(&c, arena, &out->tensors.entry[out->tensors.count]));
    int64_t alignment = 32;
    RDI_TRY(rdi_gguf_int(out, "general.alignment", 1, 1 << 20, 32, &alignment));
    for (int64_t i = 0; i < out->tensors.count; i++)
        if (out->tensors.entry[i].begin % alignment)
            return rdi_fail(
                RD_E_FORMAT, "%s: tensor %s: offset=%lld, needs a multiple of general.alignment=%lld", what,
                out->tensors.entry[i].name, (long long)out->tensors.entry[i].begin, (long long)alignment);
    int64_t data_begin = rdi_round_up(c.at - c.begin, alignment);
    if (data_begin > (int64_t)bytes) data_begin = (int64_t)bytes; // no tensors, no padding
    return rdi_entries_check(arena, what, &out->tensors, data + data_begin, (int64_t)bytes - data_begin);
}

// ---- values ---------------------------------------------------------------------------------------------------------
const rdi_gguf_value *rdi_gguf_find(const rdi_gguf *gguf, const char *key) {
    rdi_gguf_value probe = {.key = key};
    if (!gguf->value_count) return NULL;
    return bsearch(&probe, gguf->value, (size_t)gguf->value_count, sizeof probe, by_key);
}

static int64_t integer_at(rdi_gguf_type type, const uint8_t *from) {
    switch (type) {
    case RDI_GGUF_I8:
        return (int8_t)*from;
    case RDI_GGUF_I16:
        return (int16_t)load(from, 2);
    case RDI_GGUF_I32:
        return (int32_t)load(from, 4);
    case RDI_GGUF_U64:
        return load(from, 8) > INT64_MAX ? INT64_MAX : (int64_t)load(from, 8);
    case RDI_GGUF_I64:
        return (int64_t)load(from, 8);
    default:
        return (int64_t)load(from, scalar_bytes[type]);
    }
}

static bool is_integer(rdi_gguf_type type) {
    return type <= RDI_GGUF_I32 || type == RDI_GGUF_U64 || type == RDI_GGUF_I64;
}

int64_t rdi_gguf_array_int(const rdi_gguf_value *value, uint64_t index) {
    return integer_at(value->elem_type, value->data + index * scalar_bytes[value->elem_type]);
}

void rdi_gguf_array_next(const uint8_t **cursor_, const char **text, uint64_t *bytes) {
    *bytes = load(*cursor_, 8);
    *text = (const char *)*cursor_ + 8;
    *cursor_ += 8 + *bytes;
}

rd_status rdi_gguf_int(const rdi_gguf *gguf, const char *key, int64_t min, int64_t max, int64_t otherwise,
                       int64_t *out) {
    const rdi_gguf_value *value = rdi_gguf_find(gguf, key);
    if (!value) {
        if (otherwise == RDI_REQUIRED)
            return rdi_fail(RD_E_FORMAT, "%s: %s is missing, needs a whole number", gguf->what, key);
        *out = otherwise;
        return RD_OK;
    }
    if (!is_integer(value->type))
        return rdi_fail(RD_E_FORMAT, "%s: %s has type %d, needs an integer type", gguf->what, key,
                        value->type);
    int64_t seen = integer_at(value->type, value->data);
    if (seen < min || seen > max)
        return rdi_fail(RD_E_FORMAT, "%s: %s=%lld, needs a whole number from %lld to %lld", gguf->what, key,
                        (long long)seen, (long long)min, (long long)max);
    *out = seen;
    return RD_OK;
}

rd_status rdi_gguf_real(const rdi_gguf *gguf, const char *key, double otherwise, double *out) {
    const rdi_gguf_value *value = rdi_gguf_find(gguf, key);
    *out = otherwise;
    if (!value) return RD_OK;
    if (value->type == RDI_GGUF_F32) {
        uint32_t bits = (uint32_t)load(value->data, 4);
        float single;
        memcpy(&single, &bits, sizeof single);
        *out = single;
    } else if (value->type == RDI_GGUF_F64) {
        uint64_t bits = load(value->data, 8);
        memcpy(out, &bits, sizeof *out);
    } else {
        return rdi_fail(RD_E_FORMAT, "%s: %s has type %d, needs a floating type", gguf->what, key,
                        value->type);
    }
    return RD_OK;
}

rd_status rdi_gguf_bool(const rdi_gguf *gguf, const char *key, bool otherwise, bool *out) {
    const rdi_gguf_value *value = rdi_gguf_find(gguf, key);
    *out = otherwise;
    if (!value) return RD_OK;
    if (value->type != RDI_GGUF_BOOL)
        return rdi_fail(RD_E_FORMAT, "%s: %s has type %d, needs a boolean", gguf->what, key, value->type);
    *out = *value->data != 0;
    return RD_OK;
}

rd_status rdi_gguf_text(rdi_arena *arena, const rdi_gguf *gguf, const char *key, const char *otherwise,
                        const char **out) {
    const rdi_gguf_value *value = rdi_gguf_find(gguf, key);
    *out = otherwise;
    if (!value) return RD_OK;
    if (value->type != RDI_GGUF_STRING || memchr(value->data, 0, value->count) ||
        !rdi_utf8_valid((const char *)value->data, value->count))
        return rdi_fail(RD_E_FORMAT, "%s: %s, needs a UTF-8 string without NUL", gguf->what, key);
    *out = rdi_arena_strndup(arena, (const char *)value->data, value->count);
    return *out ? RD_OK : RD_E_NOMEM;
}
