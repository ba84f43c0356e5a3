// SPDX-License-Identifier: Apache-2.0
// The ground floor: status and error text, counted allocation, arenas, log, environment table. libc only.
#ifndef RDI_BASE_H
#define RDI_BASE_H

#include "radiance.h"

#include <stdarg.h>
#include <stdbool.h>

#pragma GCC visibility push(default) // for libradiance_run alone: tagged RADIANCE_PRIVATE by radiance.map

#define RDI_PRINTF(fmt_, first_) __attribute__((format(printf, fmt_, first_)))
#define RDI_COUNT(array_)        (sizeof(array_) / sizeof((array_)[0]))

// ---- errors: text is per thread, the status is handed back so that `return rdi_fail(...)` reads well ----------------
rd_status rdi_fail(rd_status status, const char *format, ...) RDI_PRINTF(2, 3);
// Puts "prefix: " before the text already there (adds the file or field to an error from below); returns status.
rd_status rdi_fail_prefix(rd_status status, const char *format, ...) RDI_PRINTF(2, 3);

#define RDI_TRY(call_)                                                                                       \
    do {                                                                                                     \
        rd_status rdi_try_status_ = (call_);                                                                 \
        if (rdi_try_status_ != RD_OK) return rdi_try_status_;                                                \
    } while (0)

// ---- memory: 64-byte aligned; NULL on failure, with the error text set. The fault-injection build counts these. -----
void *rdi_alloc(size_t bytes);                     // uninitialised; bytes 0 gives a valid pointer
void *rdi_calloc(size_t count, size_t elem_bytes); // zeroed, overflow checked
void *rdi_realloc(void *old, size_t old_bytes, size_t bytes);
void rdi_free(void *pointer);
char *rdi_strdup(const char *text);
char *rdi_format(const char *format, ...) RDI_PRINTF(1, 2); // allocated text or NULL
// The n-th allocation from now fails (1 = the next); 0 = off. Only in builds with RADIANCE_FAULTS; else no effect.
void rdi_alloc_fail_at(int64_t nth);
int64_t rdi_alloc_count(void); // allocations so far (RADIANCE_FAULTS builds), else 0

static inline bool rdi_mul_overflow(int64_t a, int64_t b, int64_t *out) {
    return __builtin_mul_overflow(a, b, out);
}
static inline bool rdi_add_overflow(int64_t a, int64_t b, int64_t *out) {
    return __builtin_add_overflow(a, b, out);
}
// Of sizes, >= 0: INT64_MAX where the product does not fit, which no memory and no launch has room for.
static inline int64_t rdi_mul_capped(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}
static inline int64_t rdi_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static inline int64_t rdi_round_up(int64_t a, int64_t b) {
    return rdi_ceil_div(a, b) * b;
}
static inline int64_t rdi_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t rdi_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// ---- arena: many small objects, one free ----------------------------------------------------------------------------
typedef struct rdi_arena_block rdi_arena_block;
typedef struct rdi_arena {
    rdi_arena_block *head;
    size_t used_bytes; // in the head block
} rdi_arena;
void *rdi_arena_alloc(rdi_arena *arena, size_t bytes); // zeroed, 16-byte aligned
char *rdi_arena_strndup(rdi_arena *arena, const char *text, size_t bytes);
void rdi_arena_free(rdi_arena *arena);

// ---- log --------------------------------------------------------------------------------------------------------------
typedef struct rdi_log {
    rd_log_fn fn;
    void *state;
} rdi_log;
void rdi_log_write(const rdi_log *log, rd_log_level level, const char *format, ...) RDI_PRINTF(3, 4);

// ---- environment: the one table (src/base/env.c holds the only getenv) -------------------------------------------------
typedef struct rdi_env_entry {
    const char *name, *default_value, *meaning;
} rdi_env_entry;
const rdi_env_entry *rdi_env_at(int index); // NULL past the end
const char *rdi_env_text(const char *name); // value, or the default; read once, NULL for an unknown name
rd_status rdi_env_int(const char *name, int64_t min, int64_t max,
                      int64_t *out); // RD_E_INVALID names value and need

#pragma GCC visibility pop
#endif // RDI_BASE_H
