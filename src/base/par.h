// SPDX-License-Identifier: Apache-2.0
// Fork-join over our own team of threads, the host's parallel_for, or the calling thread.
#ifndef RDI_PAR_H
#define RDI_PAR_H

#include "base/base.h"

#include <stdatomic.h>

#pragma GCC visibility push(default) // for libradiance_run alone: tagged RADIANCE_PRIVATE by radiance.map

typedef struct rdi_par rdi_par;

// threads >= 1. With fn == NULL our own team is made; a pool of one thread runs on the caller.
rd_status rdi_par_create(int32_t threads, rd_parallel_for_fn fn, void *state, rdi_par **out);
void rdi_par_free(rdi_par *par);
int32_t rdi_par_threads(const rdi_par *par); // par == NULL counts as 1

// Runs body(arg, worker, workers) once for every worker in [0, workers), workers = min(threads, max_workers); returns
// when all are done. Workers may run one after the other (a busy host pool), so they must not wait for each other.
// Nested calls from inside a body run on the calling worker alone.
typedef void (*rdi_par_body)(void *arg, int32_t worker, int32_t workers);
void rdi_par_run(rdi_par *par, int32_t max_workers, rdi_par_body body, void *arg);

// Workers worth waking for `items` pieces of `elems` elements in all: a fork costs microseconds, in which one core passes
// over tens of thousands of elements from cache.
static inline int32_t rdi_par_workers_for(int64_t items, int64_t elems) {
    int64_t workers = rdi_min(items, elems / 32768 + 1);
    return (int32_t)rdi_min(workers, INT32_MAX);
}

// Dynamic tiles (hybrid cores, noisy neighbours): workers draw [begin, end) ranges until none is left.
typedef struct rdi_tiles {
    _Atomic int64_t next;
    int64_t count, step;
} rdi_tiles;
static inline void rdi_tiles_init(rdi_tiles *tiles, int64_t count, int64_t step) {
    atomic_init(&tiles->next, 0);
    tiles->count = count;
    tiles->step = step < 1 ? 1 : step;
}
static inline bool rdi_tiles_next(rdi_tiles *tiles, int64_t *begin, int64_t *end) {
    int64_t at = atomic_fetch_add_explicit(&tiles->next, tiles->step, memory_order_relaxed);
    if (at >= tiles->count) return false;
    *begin = at;
    *end = at + tiles->step < tiles->count ? at + tiles->step : tiles->count;
    return true;
}

#pragma GCC visibility pop
#endif // RDI_PAR_H
