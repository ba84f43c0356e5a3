// SPDX-License-Identifier: Apache-2.0
// Where the engine's bytes live. Every buffer that a kernel reads or writes comes from here, so that another memory (a
// GPU's) is added in memory.c alone. Slabs measure and carve with one function: a size that is reported is the size used.
#ifndef RDI_ENGINE_MEMORY_H
#define RDI_ENGINE_MEMORY_H

#include "base/base.h"

typedef struct rdi_memory {
    int32_t device;          // rd_tensor.device of what is allocated here
    int64_t allocated_bytes; // live
} rdi_memory;

rd_status rdi_memory_init(rdi_memory *memory, const rd_device *device);
// bytes as asked; NULL with the error text set. A slab of `bytes` 0 is a valid pointer.
void *rdi_memory_alloc(rdi_memory *memory, int64_t bytes);
void rdi_memory_free(rdi_memory *memory, void *pointer, int64_t bytes);
void rdi_memory_write(rdi_memory *memory, void *to, const void *host, int64_t bytes);

// A slab with base NULL only counts: run the same carving code twice, once to learn the size and once to place.
typedef struct rdi_slab {
    unsigned char *base;
    int64_t used_bytes; // taken in this carving
    int64_t bytes;      // allocated
} rdi_slab;
// 64-byte aligned. While counting every piece is one placeholder: a pointer that may be shown to size queries, and is
// never read or written through.
void *rdi_slab_take(rdi_slab *slab, int64_t bytes);
rd_status rdi_slab_alloc(rdi_slab *slab, rdi_memory *memory); // after counting: the next carving places
void rdi_slab_free(rdi_slab *slab, rdi_memory *memory);

#endif // RDI_ENGINE_MEMORY_H
