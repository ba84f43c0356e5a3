// SPDX-License-Identifier: Apache-2.0
// Reading model files: mappings, a JSON reader, and the tensor tables of safetensors and GGUF. Every parser works on
// (pointer, length) memory, so that tests and fuzzers need no files.
#ifndef RDI_MODEL_FILES_H
#define RDI_MODEL_FILES_H

#include "model/model.h"

#define RDI_REQUIRED INT64_MIN // `otherwise` of an integer that the file must give

// ---- files ----------------------------------------------------------------------------------------------------------
typedef struct rdi_mapping {
    const uint8_t *data;
    size_t bytes;
} rdi_mapping;
// Read-only mapping of a regular, non-empty file. A file cut short by someone else while mapped faults: as with any mmap.
rd_status rdi_file_map(const char *path, rdi_mapping *out);
void rdi_file_unmap(rdi_mapping *mapping);
bool rdi_file_exists(const char *path);
bool rdi_folder_exists(const char *path);
bool rdi_utf8_valid(const char *text, size_t bytes);

// ---- JSON -----------------------------------------------------------------------------------------------------------
// Own reader rather than cJSON: integers are exact over 64 bits (file offsets), strings carry their length (NUL bytes in a
// vocabulary), memory is counted and freed in one go, and no process-wide allocator hook is touched.
typedef enum rdi_json_kind {
    RDI_JSON_NULL = 0,
    RDI_JSON_BOOL,
    RDI_JSON_INT,
    RDI_JSON_REAL,
    RDI_JSON_STRING,
    RDI_JSON_ARRAY,
    RDI_JSON_OBJECT
} rdi_json_kind;
typedef struct rdi_json rdi_json;
struct rdi_json {
    const rdi_json *next; // sibling
    const char *key;      // member name, key_bytes long, not NUL-terminated; NULL outside objects
    const char *text;     // STRING: text_bytes long, not NUL-terminated
    uint32_t key_bytes, text_bytes;
    rdi_json_kind kind;
    uint32_t count; // ARRAY, OBJECT: children
    union {
        const rdi_json *first; // ARRAY, OBJECT
        int64_t integer;       // INT, BOOL
        double real;           // REAL
    };
};
// `what` names the document in errors. text must outlive the tree (strings without escapes point into it).
rd_status rdi_json_parse(rdi_arena *arena, const char *what, const char *text, size_t bytes,
                         const rdi_json **out);
const rdi_json *rdi_json_get(const rdi_json *object,
                             const char *key);             // last member of that name, as Python; or NULL
bool rdi_json_is(const rdi_json *value, const char *text); // is this string
const char *rdi_json_kind_name(const rdi_json *value);     // "string", "nothing" for NULL, ...
rd_status rdi_json_read(rdi_arena *arena, const char *path, rdi_mapping *mapping,
                        const rdi_json **out); // map + parse
// Typed members; the error names field, value and need. A missing or null member gives `otherwise`.
rd_status rdi_json_int(const rdi_json *object, const char *key, int64_t min, int64_t max, int64_t otherwise,
                       int64_t *out);
rd_status rdi_json_real(const rdi_json *object, const char *key, double min, double max, double otherwise,
                        double *out);
rd_status rdi_json_bool(const rdi_json *object, const char *key, bool otherwise, bool *out);
// NUL-terminated copy; a string with NUL inside is refused.
rd_status rdi_json_text(rdi_arena *arena, const rdi_json *object, const char *key, const char *otherwise,
                        const char **out);

// ---- tensor tables ------------------------------------------------------------------------------------------------------
enum { RDI_TENSOR_MAX_RANK = 4, RDI_TENSOR_MAX_NAME = 256 };
typedef struct rdi_entry {
    const char *name; // NUL-terminated
    rdi_wtype type;
    int32_t rank;
    int64_t shape[RDI_TENSOR_MAX_RANK]; // outermost first
    int64_t begin, bytes;               // from the start of the data section
    const uint8_t *data;
} rdi_entry;
typedef struct rdi_entries {
    rdi_entry *entry; // sorted by name once checked
    int64_t count;
} rdi_entries;
// Sorts by name; refuses duplicate names, ranges outside [0, data_bytes) and ranges that overlap. Sets entry data.
rd_status rdi_entries_check(rdi_arena *arena, const char *what, rdi_entries *entries, const uint8_t *data,
                            int64_t data_bytes);
// Concatenates checked tables (out->count holds the sum) and sorts; a name in two of them is refused.
rd_status rdi_entries_merge(rdi_arena *arena, const char *what, const rdi_entries *tables, int32_t count,
                            rdi_entries *out);
const rdi_entry *rdi_entries_find(const rdi_entries *entries, const char *name);
// Bytes of a dense tensor; false when the product overflows or the last extent cuts a block.
bool rdi_entry_bytes(rdi_wtype type, const int64_t *shape, int32_t rank, int64_t *bytes);

rd_status rdi_safetensors_parse(rdi_arena *arena, const char *what, const uint8_t *data, size_t bytes,
                                rdi_entries *out);

// ---- GGUF -----------------------------------------------------------------------------------------------------------
typedef enum rdi_gguf_type {
    RDI_GGUF_U8 = 0,
    RDI_GGUF_I8,
    RDI_GGUF_U16,
    RDI_GGUF_I16,
    RDI_GGUF_U32,
    RDI_GGUF_I32,
    RDI_GGUF_F32,
    RDI_GGUF_BOOL,
    RDI_GGUF_STRING,
    RDI_GGUF_ARRAY,
    RDI_GGUF_U64,
    RDI_GGUF_I64,
    RDI_GGUF_F64,
    RDI_GGUF_TYPES
} rdi_gguf_type;
typedef struct rdi_gguf_value {
    const char *key; // NUL-terminated
    rdi_gguf_type type;
    rdi_gguf_type elem_type; // of an array
    const uint8_t *data;     // the value's bytes; for STRING and string arrays the length-prefixed strings
    uint64_t count;          // array elements, or bytes of a string
} rdi_gguf_value;
typedef struct rdi_gguf {
    const char *what;
    uint32_t version;
    rdi_gguf_value *value;
    int64_t value_count;
    rdi_entries tensors;
} rdi_gguf;
rd_status rdi_gguf_parse(rdi_arena *arena, const char *what, const uint8_t *data, size_t bytes,
                         rdi_gguf *out);
const rdi_gguf_value *rdi_gguf_find(const rdi_gguf *gguf, const char *key);
// Like the JSON ones: a missing key gives `otherwise`.
rd_status rdi_gguf_int(const rdi_gguf *gguf, const char *key, int64_t min, int64_t max, int64_t otherwise,
                       int64_t *out);
rd_status rdi_gguf_real(const rdi_gguf *gguf, const char *key, double otherwise, double *out);
rd_status rdi_gguf_bool(const rdi_gguf *gguf, const char *key, bool otherwise, bool *out);
rd_status rdi_gguf_text(rdi_arena *arena, const rdi_gguf *gguf, const char *key, const char *otherwise,
                        const char **out);
int64_t rdi_gguf_array_int(const rdi_gguf_value *value,
                           uint64_t index); // integer arrays; the parser has checked bounds
// Walks a string array: *cursor starts at value->data.
void rdi_gguf_array_next(const uint8_t **cursor, const char **text, uint64_t *bytes);

// ---- configuration ------------------------------------------------------------------------------------------------------
rd_status rdi_config_from_json(const rdi_json *json, rdi_model_config *out);
rd_status rdi_config_from_gguf(const rdi_gguf *gguf, rdi_model_config *out);

#endif // RDI_MODEL_FILES_H
