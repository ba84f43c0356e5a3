// SPDX-License-Identifier: Apache-2.0
// The engine's memory, through the public memory calls. The only file of the engine that knows where a pointer points to.
#include "engine/memory.h"

#include <string.h>
#include <sys/mman.h>

enum { SLAB_ALIGN_BYTES = 64, HUGE_PAGE_BYTES = 2 << 20 };

rd_status rdi_memory_init(rdi_memory *memory, rd_ctx *ctx) {
    rd_device_info info = {.struct_size = sizeof info};
    RDI_TRY(rd_device_get_info(rd_ctx_device(ctx), &info));
    if (info.is_fixture)
        return rdi_fail(RD_E_NO_DEVICE, "engine: device=%s is a fixture for questions, needs a real device",
                        info.name);
    *memory = (rdi_memory){.ctx = ctx, .device = rd_ctx_device_number(ctx)};
    return rd_stream_create(ctx, &memory->stream);
}

void rdi_memory_close(rdi_memory *memory) {
    if (!memory->ctx) return;
    rd_memory_free_host(memory->ctx, memory->stage);
    rd_stream_free(memory->ctx, memory->stream);
    *memory = (rdi_memory){0};
}

rdi_memory rdi_memory_of_host(const rdi_memory *memory) {
    return (rdi_memory){.ctx = memory->ctx, .page_locked = memory->device != 0};
}

static void *alloc_host(int64_t bytes) {
    unsigned char *pointer = rdi_alloc((size_t)bytes);
    if (!pointer) return NULL;
    // A hint only: fewer page faults while weights are packed. A refusal changes nothing.
    uintptr_t first = ((uintptr_t)pointer + HUGE_PAGE_BYTES - 1) & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)pointer + (uintptr_t)bytes) & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    if (end > first) (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
    return pointer;
}

void *rdi_memory_alloc(rdi_memory *memory, int64_t bytes) {
    void *pointer = NULL;
    memory->failure = RD_E_NOMEM;
    if (memory->device)
        memory->failure = rd_memory_alloc(memory->ctx, (size_t)bytes, &pointer);
    else if (memory->page_locked)
        memory->failure = rd_memory_alloc_host(memory->ctx, (size_t)bytes, &pointer);
    else
        pointer = alloc_host(bytes);
    if (pointer) memory->allocated_bytes += bytes;
    return pointer;
}

void rdi_memory_free(rdi_memory *memory, void *pointer, int64_t bytes) {
    if (!pointer) return;
    memory->allocated_bytes -= bytes;
    if (memory->device)
        rd_memory_free(memory->ctx, pointer);
    else if (memory->page_locked)
        rd_memory_free_host(memory->ctx, pointer);
    else
        rdi_free(pointer);
}

rd_status rdi_memory_write(rdi_memory *memory, void *to, const void *host, int64_t bytes) {
    memory->busy = true;
    if (memory->device)
        return rd_memory_copy(memory->ctx, to, host, (size_t)bytes, RD_COPY_TO_DEVICE, memory->stream);
    memcpy(to, host, (size_t)bytes);
    return RD_OK;
}

rd_status rdi_memory_move(rdi_memory *memory, void *to, const void *from, int64_t bytes) {
    memory->busy = true;
    if (memory->device)
        return rd_memory_copy(memory->ctx, to, from, (size_t)bytes, RD_COPY_ON_DEVICE, memory->stream);
    memcpy(to, from, (size_t)bytes);
    return RD_OK;
}

rd_status rdi_memory_fetch(rdi_memory *memory, void *host, const void *from, int64_t bytes) {
    memory->busy = true;
    if (memory->device)
        return rd_memory_copy(memory->ctx, host, from, (size_t)bytes, RD_COPY_TO_HOST, memory->stream);
    memcpy(host, from, (size_t)bytes);
    return RD_OK;
}

rd_status rdi_memory_settle(rdi_memory *memory) {
    if (memory->device && memory->busy) RDI_TRY(rd_stream_sync(memory->ctx, memory->stream));
    memory->busy = false;
    return RD_OK;
}

rd_status rdi_memory_read(rdi_memory *memory, void *host, const void *from, int64_t bytes) {
    RDI_TRY(rdi_memory_fetch(memory, host, from, bytes));
    return rdi_memory_settle(memory);
}

void *rdi_memory_open(rdi_memory *memory, void *to, int64_t bytes) {
    if (!memory->device) return to;
    if (bytes > memory->stage_bytes) {
        rd_memory_free_host(memory->ctx, memory->stage);
        memory->stage = NULL;
        memory->stage_bytes = 0;
        memory->failure = rd_memory_alloc_host(memory->ctx, (size_t)bytes, &memory->stage);
        if (memory->failure != RD_OK) return NULL;
        memory->stage_bytes = bytes;
    }
    return memory->stage;
}

rd_status rdi_memory_commit(rdi_memory *memory, void *to, int64_t bytes) {
    if (!memory->device) return RD_OK;
    RDI_TRY(rdi_memory_write(memory, to, memory->stage, bytes));
    return rdi_memory_settle(memory); // the stage is filled again at once
}

void *rdi_slab_take(rdi_slab *slab, int64_t bytes) {
    static _Alignas(SLAB_ALIGN_BYTES) unsigned char placeholder[SLAB_ALIGN_BYTES];
    void *place = slab->base ? slab->base + slab->used_bytes : placeholder;
    // No machine has so much: the sum stops there, and the allocation is what refuses it.
    slab->used_bytes = rdi_min(slab->used_bytes + rdi_round_up(bytes, SLAB_ALIGN_BYTES), INT64_MAX / 2);
    return place;
}

rd_status rdi_slab_alloc(rdi_slab *slab, rdi_memory *memory) {
    slab->bytes = slab->used_bytes;
    slab->base = rdi_memory_alloc(memory, slab->bytes);
    if (!slab->base) return memory->failure; // a card's text says how much it has
    slab->used_bytes = 0;
    return RD_OK;
}

void rdi_slab_free(rdi_slab *slab, rdi_memory *memory) {
    rdi_memory_free(memory, slab->base, slab->bytes);
    *slab = (rdi_slab){0};
}
