// SPDX-License-Identifier: Apache-2.0
// Where the keys of a row are cut into chunks: at absolute positions alone, so that a row's bits depend on no batch,
// width or thread count. 256 keys a chunk in the first 8192 (a short context still feeds every thread), then twice as
// long at 8192, 16384 and 32768 (a long context has chunks enough, and each costs a merge).
#ifndef RDI_ATTN_PARTITION_H
#define RDI_ATTN_PARTITION_H

#include "base/gpu_args.h" // fixed-width integers, also on cards

enum { RDI_ATTN_CHUNK_MIN = 256, RDI_ATTN_CHUNK_MAX = 2048 };

static inline int64_t rdi_attn_chunk_begin(int64_t index) {
    if (index <= 32) return index * 256;
    if (index <= 48) return 8192 + (index - 32) * 512;
    if (index <= 64) return 16384 + (index - 48) * 1024;
    return 32768 + (index - 64) * 2048;
}

// The chunk that holds `position` >= 0.
static inline int64_t rdi_attn_chunk_of(int64_t position) {
    if (position < 8192) return position / 256;
    if (position < 16384) return 32 + (position - 8192) / 512;
    if (position < 32768) return 48 + (position - 16384) / 1024;
    return 64 + (position - 32768) / 2048;
}

static inline int64_t rdi_attn_chunk_count(int64_t keys) {
    return keys > 0 ? rdi_attn_chunk_of(keys - 1) + 1 : 0;
}

#endif // RDI_ATTN_PARTITION_H
