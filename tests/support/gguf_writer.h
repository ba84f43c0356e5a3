// SPDX-License-Identifier: Apache-2.0
// Builds GGUF files in memory for tests. Follows the format's description, shares nothing with the reader.
#ifndef RD_TEST_GGUF_WRITER_H
#define RD_TEST_GGUF_WRITER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gguf_writer {
    uint8_t *bytes;
    size_t count, room;
} gguf_writer;

static inline void gguf_put(gguf_writer *w, const void *data, size_t bytes) {
    if (w->count + bytes > w->room) {
        w->room = 2 * (w->count + bytes) + 256;
        w->bytes = realloc(w->bytes, w->room);
        if (!w->bytes) abort();
    }
    if (bytes) memcpy(w->bytes + w->count, data, bytes);
    w->count += bytes;
}
static inline void gguf_u32(gguf_writer *w, uint32_t value) {
    gguf_put(w, &value, 4);
} // little-endian machine
static inline void gguf_u64(gguf_writer *w, uint64_t value) {
    gguf_put(w, &value, 8);
}
static inline void gguf_string(gguf_writer *w, const char *text) {
    gguf_u64(w, strlen(text));
    gguf_put(w, text, strlen(text));
}
static inline void gguf_begin(gguf_writer *w, uint32_t version, uint64_t tensors, uint64_t pairs) {
    gguf_put(w, "GGUF", 4);
    gguf_u32(w, version);
    gguf_u64(w, tensors);
    gguf_u64(w, pairs);
}
static inline void gguf_kv_u32(gguf_writer *w, const char *key, uint32_t value) {
    gguf_string(w, key);
    gguf_u32(w, 4);
    gguf_u32(w, value);
}
static inline void gguf_kv_f32(gguf_writer *w, const char *key, float value) {
    gguf_string(w, key);
    gguf_u32(w, 6);
    gguf_put(w, &value, 4);
}
static inline void gguf_kv_text(gguf_writer *w, const char *key, const char *value) {
    gguf_string(w, key);
    gguf_u32(w, 8);
    gguf_string(w, value);
}
// rows 0: a vector. The file has the innermost extent first.
static inline void gguf_tensor(gguf_writer *w, const char *name, uint64_t rows, uint64_t cols, uint32_t type,
                               uint64_t offset) {
    gguf_string(w, name);
    gguf_u32(w, rows ? 2 : 1);
    gguf_u64(w, cols);
    if (rows) gguf_u64(w, rows);
    gguf_u32(w, type);
    gguf_u64(w, offset);
}
static inline void gguf_pad(gguf_writer *w, size_t alignment) {
    while (w->count % alignment) gguf_put(w, "", 1);
}

#endif // RD_TEST_GGUF_WRITER_H
