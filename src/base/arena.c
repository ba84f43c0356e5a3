// SPDX-License-Identifier: Apache-2.0
// A bump arena of chained blocks: parsers make many small objects and drop them together.
#include "base/base.h"

#include <string.h>

struct rdi_arena_block {
    rdi_arena_block *next;
    size_t capacity_bytes;
    _Alignas(16) unsigned char data[];
};

enum { BLOCK_BYTES = 64 * 1024 };

void *rdi_arena_alloc(rdi_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        rdi_fail(RD_E_NOMEM, "allocation of %zu bytes failed", bytes);
        return NULL;
    }
    size_t rounded = (bytes + 15) & ~(size_t)15;
    if (!arena->head || arena->head->capacity_bytes - arena->used_bytes < rounded) {
        size_t capacity = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES;
        rdi_arena_block *block = rdi_alloc(sizeof *block + capacity);
        if (!block) return NULL;
        block->next = arena->head;
        block->capacity_bytes = capacity;
        arena->head = block;
        arena->used_bytes = 0;
    }
    void *pointer = arena->head->data + arena->used_bytes;
    arena->used_bytes += rounded;
    return memset(pointer, 0, rounded);
}

char *rdi_arena_strndup(rdi_arena *arena, const char *text, size_t bytes) {
    char *copy = rdi_arena_alloc(arena, bytes + 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

void rdi_arena_free(rdi_arena *arena) {
    while (arena->head) {
        rdi_arena_block *next = arena->head->next;
        rdi_free(arena->head);
        arena->head = next;
    }
    arena->used_bytes = 0;
}
