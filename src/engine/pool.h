// SPDX-License-Identifier: Apache-2.0
// Blocks of the paged KV cache: which are free. A block belongs to one timeline at a time.
#ifndef RDI_ENGINE_POOL_H
#define RDI_ENGINE_POOL_H

#include "base/base.h"

typedef struct rdi_pool {
    int32_t blocks, free_count;
    int32_t *free_list; // the last one given back is the next one taken: it may still be in the cache
} rdi_pool;

// storage: `blocks` values, owned by the caller.
void rdi_pool_init(rdi_pool *pool, int32_t blocks, int32_t *storage);
// All `count` blocks or none: RD_E_LIMIT says how many are free.
rd_status rdi_pool_take(rdi_pool *pool, int32_t count, int32_t *taken);
void rdi_pool_drop(rdi_pool *pool, const int32_t *held, int32_t count);

#endif // RDI_ENGINE_POOL_H
