// SPDX-License-Identifier: Apache-2.0
// Where the keys of a row are cut into chunks: at absolute positions alone, so that a row's bits depend on no batch,
// width or thread count. 256 keys a chunk in the first 8192 (a short context still feeds every thread), then twice as
// long at 8192, 16384 and 32768 (a long context has chunks enough, and each costs a merge).
#ifndef RDI_ATTN_PARTITION_H
#define RDI_ATTN_PARTITION_H

#include "base/gpu_args.h" // fixed-width integers, also on cards

enum { RDI_ATTN_CHUNK_MIN = 256, RDI_ATTN_CHUNK_MAX = 2048 };

// Chunks of 512 << d keys begin at position 8192 << d, as chunk 32 + 16 d; d = 2 has no end.
static inline int64_t rdi_attn_chunk_begin(int64_t index) {
    if (index <= 32) return index * 256;
    int64_t d = index < 48 ? 0 : index < 64 ? 1 : 2;
    return ((int64_t)8192 << d) + ((index - 32 - 16 * d) << (9 + d));
}

// The chunk that holds `position` >= 0.
static inline int64_t rdi_attn_chunk_of(int64_t position) {
    if (position < 8192) return position / 256;
    int64_t d = position < 16384 ? 0 : position < 32768 ? 1 : 2;
    return 32 + 16 * d + ((position - ((int64_t)8192 << d)) >> (9 + d));
}

static inline int64_t rdi_attn_chunk_count(int64_t keys) {
    return keys > 0 ? rdi_attn_chunk_of(keys - 1) + 1 : 0;
}

#endif // RDI_ATTN_PARTITION_H
