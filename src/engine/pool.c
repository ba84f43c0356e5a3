// SPDX-License-Identifier: Apache-2.0
// The block pool: a stack of free blocks. The caller holds the engine's lock.
#include "engine/pool.h"

void rdi_pool_init(rdi_pool *pool, int32_t blocks, int32_t *storage) {
    *pool = (rdi_pool){.blocks = blocks, .free_count = blocks, .free_list = storage};
    for (int32_t i = 0; i < blocks; i++) pool->free_list[i] = blocks - 1 - i; // block 0 is taken first
}

rd_status rdi_pool_take(rdi_pool *pool, int32_t count, int32_t *taken) {
    if (count > pool->free_count)
        return rdi_fail(RD_E_LIMIT, "kv cache: %d blocks needed, %d of %d are free", count, pool->free_count,
                        pool->blocks);
    for (int32_t i = 0; i < count; i++) taken[i] = pool->free_list[--pool->free_count];
    return RD_OK;
}

void rdi_pool_drop(rdi_pool *pool, const int32_t *held, int32_t count) {
    // Backwards, so that a retake gives the same blocks in the same order.
    for (int32_t i = count - 1; i >= 0; i--) pool->free_list[pool->free_count++] = held[i];
}
