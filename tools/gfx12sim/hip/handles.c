// SPDX-License-Identifier: Apache-2.0
// Which handles are alive: an open-addressing set of pointers. A program that passes a stale or invented handle
// gets hipErrorInvalidHandle instead of a crash.
#include <stdlib.h>
#include "rt.h"

static struct slot {
    const void *pointer; // null: free; &tombstone: was used
    rt_handle kind;
} * slots;
static size_t capacity, filled;
static const char tombstone;

static size_t first_slot(const void *pointer) {
    uint64_t h = (uint64_t)(uintptr_t)pointer * UINT64_C(0x9E3779B97F4A7C15); // Fibonacci hashing
    return (size_t)(h >> 32) & (capacity - 1);
}

static struct slot *find(const void *pointer) {
    if (!capacity || !pointer) return NULL;
    for (size_t i = first_slot(pointer); slots[i].pointer; i = (i + 1) & (capacity - 1))
        if (slots[i].pointer == pointer) return &slots[i];
    return NULL;
}

static void place(const void *pointer, rt_handle kind) {
    size_t i = first_slot(pointer);
    while (slots[i].pointer) i = (i + 1) & (capacity - 1);
    slots[i] = (struct slot){pointer, kind};
    filled++;
}

bool rt_handle_add(const void *pointer, rt_handle kind) {
    if (2 * (filled + 1) > capacity) {
        struct slot *old = slots;
        size_t old_capacity = capacity, bigger = capacity ? 2 * capacity : 256;
        struct slot *grown = calloc(bigger, sizeof *grown);
        if (!grown) return false;
        slots = grown;
        capacity = bigger;
        filled = 0;
        for (size_t i = 0; i < old_capacity; i++)
            if (old[i].pointer && old[i].pointer != &tombstone) place(old[i].pointer, old[i].kind);
        free(old);
    }
    place(pointer, kind);
    return true;
}

bool rt_handle_is(const void *pointer, rt_handle kind) {
    struct slot *s = find(pointer);
    return s && s->kind == kind;
}

void rt_handle_drop(const void *pointer) {
    struct slot *s = find(pointer);
    if (s) *s = (struct slot){&tombstone, RT_H_NONE};
}

void rt_handle_clear(void) {
    free(slots);
    slots = NULL;
    capacity = filled = 0;
}
