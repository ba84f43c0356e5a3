// SPDX-License-Identifier: Apache-2.0
// Where the engine's bytes live: host memory or a card's. Every buffer that a kernel reads or writes comes from here. Slabs
// measure and carve with one function: a size that is reported is the size used.
#ifndef RDI_ENGINE_MEMORY_H
#define RDI_ENGINE_MEMORY_H

#include "base/base.h"

typedef struct rdi_memory {
    rd_ctx *ctx;
    rd_stream stream;        // everything of the engine runs on it; NULL on the CPU
    int32_t device;          // rd_tensor.device of what is allocated here; 0 = host
    bool page_locked;        // host memory that a card copies from and to
    bool busy;               // something was issued since the last wait
    int64_t allocated_bytes; // live
    rd_status failure;       // of the last call that handed back NULL
    void *stage;             // a card's: host memory on the way there
    int64_t stage_bytes;
} rdi_memory;

rd_status rdi_memory_init(rdi_memory *memory, rd_ctx *ctx);
void rdi_memory_close(rdi_memory *memory);
// The host's side of `memory`: for what the host writes each pass.
rdi_memory rdi_memory_of_host(const rdi_memory *memory);
// bytes as asked; NULL with `failure` and the error text set. A slab of `bytes` 0 is a valid pointer.
void *rdi_memory_alloc(rdi_memory *memory, int64_t bytes);
void rdi_memory_free(rdi_memory *memory, void *pointer, int64_t bytes);
// In stream order. On a card `host` must stay as it is until the stream has come past the copy.
rd_status rdi_memory_write(rdi_memory *memory, void *to, const void *host, int64_t bytes);
rd_status rdi_memory_move(rdi_memory *memory, void *to, const void *from, int64_t bytes);
// Complete after the next settle: host memory is filled then.
rd_status rdi_memory_fetch(rdi_memory *memory, void *host, const void *from, int64_t bytes);
// Complete on return: waits for all that was issued before.
rd_status rdi_memory_read(rdi_memory *memory, void *host, const void *from, int64_t bytes);
// Waits for all that was issued before; no call of the driver when that has been waited for already.
rd_status rdi_memory_settle(rdi_memory *memory);
// Filling `to` from host code: open gives where to write (on the CPU, `to` itself), commit brings it there. One at a time.
void *rdi_memory_open(rdi_memory *memory, void *to, int64_t bytes);
rd_status rdi_memory_commit(rdi_memory *memory, void *to, int64_t bytes);

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
