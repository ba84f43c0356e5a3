// SPDX-License-Identifier: Apache-2.0
// The engine's memory: host memory on the CPU. The only file of the engine that knows where a pointer points to.
#include "engine/memory.h"

#include <string.h>
#include <sys/mman.h>

enum { SLAB_ALIGN_BYTES = 64, HUGE_PAGE_BYTES = 2 << 20 };

rd_status rdi_memory_init(rdi_memory *memory, const rd_device *device) {
    rd_device_info info = {.struct_size = sizeof info};
    RDI_TRY(rd_device_get_info(device, &info));
    if (info.is_fixture)
        return rdi_fail(RD_E_NO_DEVICE, "engine: device=%s is a fixture for questions, needs a real device",
                        info.name);
    if (strcmp(info.backend, "cpu"))
        return rdi_fail(RD_E_UNSUPPORTED, "engine: device=%s, the engine runs on cpu", info.name);
    *memory = (rdi_memory){0};
    return RD_OK;
}

void *rdi_memory_alloc(rdi_memory *memory, int64_t bytes) {
    unsigned char *pointer = rdi_alloc((size_t)bytes);
    if (!pointer) return NULL;
    memory->allocated_bytes += bytes;
    // A hint only: fewer page faults while weights are packed. A refusal changes nothing.
    uintptr_t first = ((uintptr_t)pointer + HUGE_PAGE_BYTES - 1) & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)pointer + (uintptr_t)bytes) & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    if (end > first) (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
    return pointer;
}

void rdi_memory_free(rdi_memory *memory, void *pointer, int64_t bytes) {
    if (!pointer) return;
    memory->allocated_bytes -= bytes;
    rdi_free(pointer);
}

void rdi_memory_write(rdi_memory *memory, void *to, const void *host, int64_t bytes) {
    (void)memory;
    memcpy(to, host, (size_t)bytes);
}

void *rdi_slab_take(rdi_slab *slab, int64_t bytes) {
    static _Alignas(SLAB_ALIGN_BYTES) unsigned char placeholder[SLAB_ALIGN_BYTES];
    void *place = slab->base ? slab->base + slab->used_bytes : placeholder;
    slab->used_bytes += rdi_round_up(bytes, SLAB_ALIGN_BYTES);
    return place;
}

rd_status rdi_slab_alloc(rdi_slab *slab, rdi_memory *memory) {
    slab->bytes = slab->used_bytes;
    slab->base = rdi_memory_alloc(memory, slab->bytes);
    if (!slab->base) return RD_E_NOMEM;
    slab->used_bytes = 0;
    return RD_OK;
}

void rdi_slab_free(rdi_slab *slab, rdi_memory *memory) {
    rdi_memory_free(memory, slab->base, slab->bytes);
    *slab = (rdi_slab){0};
}
