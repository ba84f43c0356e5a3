// SPDX-License-Identifier: Apache-2.0
// Device allocations: a sorted table of host ranges, and per allocation the shadow words of the race check.
// A launch works on a snapshot, so that it looks addresses up without a lock.
#include <stdlib.h>
#include <sys/mman.h>
#include "mem.h"

enum { DEVICE_ALIGN_BYTES = 256, HUGE_PAGE_BYTES = 2 << 20 };

struct gs_block { // one per allocation; address stable while snapshots refer to it
    void *owned;  // null: the caller's bytes
    u64 *shadow;
    size_t shadow_bytes;
};

struct gs_mem {
    pthread_mutex_t lock;
    gs_range *ranges; // by address
    size_t count, capacity, used_bytes;
    u32 next_uid;
};

gs_status gs_mem_create(gs_mem **out) {
    if (!out) return GS_E_INVALID;
    gs_mem *mem = calloc(1, sizeof *mem);
    if (!mem) return GS_E_NOMEM;
    pthread_mutex_init(&mem->lock, NULL);
    mem->next_uid = 1;
    *out = mem;
    return GS_OK;
}

static void block_free(struct gs_block *block) {
    if (block->shadow) munmap(block->shadow, block->shadow_bytes);
    free(block->owned);
    free(block);
}

void gs_mem_destroy(gs_mem *mem) {
    if (!mem) return;
    for (size_t i = 0; i < mem->count; i++) block_free(mem->ranges[i].block);
    free(mem->ranges);
    pthread_mutex_destroy(&mem->lock);
    free(mem);
}

// Index of the first range that ends above address.
static size_t lower(const gs_range *ranges, size_t count, u64 address) {
    size_t lo = 0, hi = count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (ranges[mid].hi > address)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static gs_status insert(gs_mem *mem, void *base, size_t bytes, void *owned) {
    u64 lo = (u64)(uintptr_t)base, hi = lo + bytes;
    struct gs_block *block = calloc(1, sizeof *block);
    if (!block) return GS_E_NOMEM;
    block->owned = owned;
    pthread_mutex_lock(&mem->lock);
    gs_status status = GS_OK;
    size_t at = lower(mem->ranges, mem->count, lo);
    if (at < mem->count && mem->ranges[at].lo < hi) status = GS_E_INVALID;
    if (!status && mem->count == mem->capacity) {
        size_t capacity = mem->capacity ? 2 * mem->capacity : 64;
        gs_range *grown = realloc(mem->ranges, capacity * sizeof *grown);
        if (grown)
            mem->ranges = grown, mem->capacity = capacity;
        else
            status = GS_E_NOMEM;
    }
    if (!status) {
        memmove(mem->ranges + at + 1, mem->ranges + at, (mem->count - at) * sizeof *mem->ranges);
        mem->ranges[at] = (gs_range){.lo = lo, .hi = hi, .block = block};
        mem->count++;
        mem->used_bytes += bytes;
    }
    pthread_mutex_unlock(&mem->lock);
    if (status) free(block);
    return status;
}

gs_status gs_mem_alloc_aligned(gs_mem *mem, size_t bytes, size_t align, void **out) {
    if (!mem || !out || !bytes || bytes > SIZE_MAX / 2) return GS_E_INVALID;
    void *p = NULL;
    // One more unit than asked, so that two allocations never touch and an overrun by one is seen.
    if (posix_memalign(&p, align, (bytes + 2 * align - 1) / align * align)) return GS_E_NOMEM;
    gs_status status = insert(mem, p, bytes, p);
    if (status)
        free(p);
    else
        *out = p;
    return status;
}

gs_status gs_mem_alloc(gs_mem *mem, size_t bytes, void **out) {
    return gs_mem_alloc_aligned(mem, bytes, DEVICE_ALIGN_BYTES, out);
}

gs_status gs_mem_map(gs_mem *mem, void *base, size_t bytes) {
    if (!mem || !base || !bytes || bytes > SIZE_MAX / 2) return GS_E_INVALID;
    return insert(mem, base, bytes, NULL);
}

static gs_status drop(gs_mem *mem, void *base, bool owned) {
    if (!mem || !base) return GS_E_INVALID;
    pthread_mutex_lock(&mem->lock);
    size_t at = lower(mem->ranges, mem->count, (u64)(uintptr_t)base);
    gs_status status = GS_E_NOTFOUND;
    if (at < mem->count && mem->ranges[at].lo == (u64)(uintptr_t)base &&
        (mem->ranges[at].block->owned != NULL) == owned) {
        mem->used_bytes -= mem->ranges[at].hi - mem->ranges[at].lo;
        block_free(mem->ranges[at].block);
        mem->count--;
        memmove(mem->ranges + at, mem->ranges + at + 1, (mem->count - at) * sizeof *mem->ranges);
        status = GS_OK;
    }
    pthread_mutex_unlock(&mem->lock);
    return status;
}

gs_status gs_mem_free(gs_mem *mem, void *base) {
    return drop(mem, base, true);
}
gs_status gs_mem_unmap(gs_mem *mem, void *base) {
    return drop(mem, base, false);
}

gs_status gs_mem_find(gs_mem *mem, const void *address, void **base, size_t *bytes) {
    if (!mem) return GS_E_INVALID;
    pthread_mutex_lock(&mem->lock);
    size_t at = lower(mem->ranges, mem->count, (u64)(uintptr_t)address);
    gs_status status = GS_E_NOTFOUND;
    if (at < mem->count && mem->ranges[at].lo <= (u64)(uintptr_t)address) {
        if (base) *base = (void *)(uintptr_t)mem->ranges[at].lo;
        if (bytes) *bytes = mem->ranges[at].hi - mem->ranges[at].lo;
        status = GS_OK;
    }
    pthread_mutex_unlock(&mem->lock);
    return status;
}

size_t gs_mem_used_bytes(gs_mem *mem) {
    pthread_mutex_lock(&mem->lock);
    size_t used = mem->used_bytes;
    pthread_mutex_unlock(&mem->lock);
    return used;
}

// Untouched pages cost nothing.
static bool shadow_ensure(gs_range *range) {
    struct gs_block *block = range->block;
    size_t granules = ((range->hi + 15) >> 4) - (range->lo >> 4);
    if (!block->shadow) {
        size_t bytes = granules * 5 * 2 * sizeof(u64);
        void *p =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return false;
        if (bytes >= HUGE_PAGE_BYTES)
            madvise(p, bytes, MADV_HUGEPAGE); // strided kernels touch a page per lane
        block->shadow = p;
        block->shadow_bytes = bytes;
    }
    range->coarse = block->shadow;
    range->fine = block->shadow + 2 * granules;
    return true;
}

gs_status gs_mem_snapshot(gs_mem *mem, bool shadows, gs_snapshot *out) {
    pthread_mutex_lock(&mem->lock);
    gs_range *copy = malloc((mem->count + 1) * sizeof *copy);
    gs_status status = copy ? GS_OK : GS_E_NOMEM;
    for (size_t i = 0; copy && i < mem->count; i++) {
        if (shadows && !shadow_ensure(&mem->ranges[i])) status = GS_E_NOMEM;
        copy[i] = mem->ranges[i];
    }
    *out = (gs_snapshot){copy, mem->count};
    pthread_mutex_unlock(&mem->lock);
    if (status) free(copy);
    return status;
}

const gs_range *gs_snapshot_find(const gs_snapshot *s, u64 address) {
    size_t at = lower(s->ranges, s->count, address);
    return at < s->count && s->ranges[at].lo <= address ? &s->ranges[at] : NULL;
}

u32 gs_mem_reserve_uids(gs_mem *mem, u32 count) {
    pthread_mutex_lock(&mem->lock);
    if (mem->next_uid + (u64)count >= GS_UID_LIMIT) { // start over: forget every stamp
        for (size_t i = 0; i < mem->count; i++) {
            struct gs_block *block = mem->ranges[i].block;
            if (block->shadow) madvise(block->shadow, block->shadow_bytes, MADV_DONTNEED);
        }
        mem->next_uid = 1;
    }
    u32 first = mem->next_uid;
    mem->next_uid += count;
    pthread_mutex_unlock(&mem->lock);
    return first;
}
