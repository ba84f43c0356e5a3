// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the sm_90a attention kernels, and where the keys of a row are cut. Strides in elements.
#ifndef RDI_ATTN_SM90A_ARGS_H
#define RDI_ATTN_SM90A_ARGS_H

#include "kernels/common/sm90a_types.h"

enum {
    RDK_ATTN_STEP_KEYS = 16,
    RDK_ATTN_TILE_ROWS = 16,
    RDK_ATTN_TEAMS = 2,
    RDK_ATTN_MERGE_GROUPS = 8,
    RDK_ATTN_STAGES = 3
};

// Chunks are cut at absolute positions alone: 256 keys up to 32768, so that one sequence of that length with four KV heads fills
// 132 multiprocessors evenly; then 1024 up to 65536 and 2048 beyond, since each chunk of each row costs a partial result.
RDK_HOST_DEVICE int32_t rdk_attn_chunk_begin(int32_t chunk) {
    return chunk <= 128   ? chunk * 256
           : chunk <= 160 ? 32768 + (chunk - 128) * 1024
                          : 65536 + (chunk - 160) * 2048;
}
RDK_HOST_DEVICE int32_t rdk_attn_chunk_count(int32_t keys) {
    return keys <= 32768   ? (keys + 255) / 256
           : keys <= 65536 ? 128 + (keys - 32768 + 1023) / 1024
                           : 160 + (keys - 65536 + 2047) / 2048;
}

// Shared memory of the decode kernels: a ring of stages for each team (later the meeting place of their sums), the queries, and a
// factor a row. head size rounded up to 64, 128, 256 or 512.
RDK_HOST_DEVICE int rdk_attn_stage_bytes(int dims, int fp8) {
    return 2 * RDK_ATTN_STEP_KEYS * dims * (fp8 ? 1 : 2);
}
RDK_HOST_DEVICE int
rdk_attn_query_bytes(int dims, int tiles) { // rows are padded by one 16-byte piece, against bank conflicts
    return tiles * RDK_ATTN_TILE_ROWS * (dims * 2 + 16);
}
RDK_HOST_DEVICE int rdk_attn_ring_bytes(int dims, int tiles, int fp8) {
    int ring = RDK_ATTN_TEAMS * RDK_ATTN_STAGES * rdk_attn_stage_bytes(dims, fp8);
    int meeting = tiles * RDK_ATTN_TILE_ROWS * (dims + 2) * 4;
    return ring > meeting ? ring : meeting;
}
RDK_HOST_DEVICE int rdk_attn_decode_shared_bytes(int dims, int tiles, int fp8) {
    return rdk_attn_ring_bytes(dims, tiles, fp8) + rdk_attn_query_bytes(dims, tiles) +
           tiles * RDK_ATTN_TILE_ROWS * 4;
}

typedef struct rdk_attn_sm90a_args {
    RDK_PTR(const void) q;
    RDK_PTR(const unsigned char) k_cache;
    RDK_PTR(const unsigned char) v_cache;
    RDK_PTR(const float) k_scale; // NULL = 1
    RDK_PTR(const float) v_scale;
    RDK_PTR(const int32_t) block_table;
    RDK_PTR(const int32_t) kv_lens;
    RDK_PTR(const int32_t) q_starts;
    RDK_PTR(const float) sinks; // NULL = none
    RDK_PTR(void) out;
    RDK_PTR(float) sums; // decode: [seqs, kv_heads, chunks, rows, head_dim], not divided by their weight
    RDK_PTR(float) tops; // decode: [seqs, kv_heads, chunks, rows, 2]: largest logit (base 2), weight
    int64_t q_stride_token, q_stride_head, k_stride_block, k_stride_token, k_stride_head, v_stride_block,
        v_stride_token, v_stride_head, block_table_stride, out_stride_token, out_stride_head, blocks;
    int32_t tokens, q_heads, kv_heads, group, head_dim, block_tokens, max_blocks, chunks, max_rows,
        row_blocks;
    int32_t q_type, out_type, aligned, window;
    float scale, softcap;
} rdk_attn_sm90a_args;

#endif // RDI_ATTN_SM90A_ARGS_H
