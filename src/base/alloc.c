// SPDX-License-Identifier: Apache-2.0
// Aligned allocation through one door, so that a fault-injection build can make the n-th allocation fail.
#include "base/base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64 }; // a cache line, and the widest vector

#ifdef RADIANCE_FAULTS
static _Atomic int64_t allocations, fail_at;
void rdi_alloc_fail_at(int64_t nth) {
    atomic_store(&allocations, 0);
    atomic_store(&fail_at, nth);
}
int64_t rdi_alloc_count(void) {
    return atomic_load(&allocations);
}
static bool injected_failure(void) {
    return atomic_fetch_add(&allocations, 1) + 1 == atomic_load(&fail_at);
}
#else
void rdi_alloc_fail_at(int64_t nth) {
    (void)nth;
}
int64_t rdi_alloc_count(void) {
    return 0;
}
static bool injected_failure(void) {
    return false;
}
#endif

void *rdi_alloc(size_t bytes) {
    if (bytes > SIZE_MAX - ALIGN_BYTES || injected_failure()) {
        rdi_fail(RD_E_NOMEM, "allocation of %zu bytes failed", bytes);
        return NULL;
    }
    size_t rounded = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    void *pointer = aligned_alloc(ALIGN_BYTES, rounded ? rounded : ALIGN_BYTES);
    if (!pointer) rdi_fail(RD_E_NOMEM, "allocation of %zu bytes failed", bytes);
    return pointer;
}

void *rdi_calloc(size_t count, size_t elem_bytes) {
    size_t bytes;
    if (__builtin_mul_overflow(count, elem_bytes, &bytes)) {
        rdi_fail(RD_E_NOMEM, "allocation of %zu elements of %zu bytes overflows", count, elem_bytes);
        return NULL;
    }
    void *pointer = rdi_alloc(bytes);
    if (pointer) memset(pointer, 0, bytes);
    return pointer;
}

void *rdi_realloc(void *old, size_t old_bytes, size_t bytes) {
    void *pointer = rdi_alloc(bytes);
    if (!pointer) return NULL; // the old block stays valid, as with realloc
    if (old) memcpy(pointer, old, old_bytes < bytes ? old_bytes : bytes);
    rdi_free(old);
    return pointer;
}

void rdi_free(void *pointer) {
    free(pointer);
}

char *rdi_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = rdi_alloc(bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

char *rdi_format(const char *format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *text = length < 0 ? NULL : rdi_alloc((size_t)length + 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}
