// SPDX-License-Identifier: Apache-2.0
// By-value argument of the sm_90a prefill kernels, and the shapes that the host's launches and the device code share.
#ifndef RDI_ATTN_SM90A_PREFILL_ARGS_H
#define RDI_ATTN_SM90A_PREFILL_ARGS_H

#include "kernels/common/sm90a_types.h"

// A block holds two groups of four warps, 64 query rows each (head 512: the same 64 rows, 256 output dims each), beside the
// warp that loads and, for e4m3, four that widen values. Keys come in tiles; K and V have rings of their own.
enum { RDK_PREFILL_SLOTS_MAX = 8, RDK_PREFILL_STATE_BYTES = 1664, RDK_PREFILL_MERGE_THREADS = 128 };
RDK_HOST_DEVICE int rdk_prefill_rows(int dims) {
    return dims == 512 ? 64 : 128;
}
// Tiles are cut at multiples of this, so that a row's bits depend on nothing but its own keys' positions.
RDK_HOST_DEVICE int rdk_prefill_keys(int dims) {
    return dims == 512 ? 32 : dims == 256 ? 64 : 128;
}
// As many as 227 KB hold beside the queries. Keys of an e4m3 cache stay codes, of half the size.
RDK_HOST_DEVICE int rdk_prefill_key_slots(int dims, int fp8) {
    return dims <= 64 ? fp8 ? 8 : 4 : fp8 ? 2 : 3;
}
RDK_HOST_DEVICE int rdk_prefill_value_slots(int dims, int fp8) {
    return dims <= 64 ? fp8 ? 8 : 4 : fp8 ? 4 : 2;
}
RDK_HOST_DEVICE int
rdk_prefill_query_buffers(int dims) { // the next work's queries come in early where they find room
    return dims <= 128 ? 2 : 1;
}
RDK_HOST_DEVICE int rdk_prefill_threads(int fp8) {
    return fp8 ? 512 : 384;
}
RDK_HOST_DEVICE int rdk_prefill_tile_bytes(int dims, int fp8) {
    return (rdk_prefill_key_slots(dims, fp8) * (fp8 ? 1 : 2) + rdk_prefill_value_slots(dims, fp8) * 2) *
               rdk_prefill_keys(dims) * dims +
           rdk_prefill_query_buffers(dims) * rdk_prefill_rows(dims) * dims * 2;
}
// 1024: tiles are aligned to their swizzle atoms. Barriers, work entries and a factor a row stand behind them.
RDK_HOST_DEVICE int rdk_prefill_shared_bytes(int dims, int fp8) {
    return rdk_prefill_tile_bytes(dims, fp8) + 1024 + RDK_PREFILL_STATE_BYTES;
}

// A call whose row tiles leave multiprocessors idle may be cut along its keys too, at multiples of chunk_keys: every row tile and
// chunk is a unit, and another launch adds up the partial results of a row, a lane of a warp each.
enum { RDK_PREFILL_CHUNKS_MAX = 32, RDK_PREFILL_CHUNK_KEYS_MIN = 512 };

// Row `r` of a sequence is query token r / group and head r % group of the KV head: heads that share keys share a tile.
typedef struct rdk_attn_prefill_sm90a_args {
    // [dims, kv_heads, rows of all blocks]; box: 128 bytes (head 64 in e4m3: 64) x 1 x box_rows
    RDK_ALIGN64 unsigned char k_map[128];
    unsigned char v_map[128];
    RDK_PTR(const void) q;
    RDK_PTR(const float) k_scale; // NULL = 1
    RDK_PTR(const float) v_scale;
    RDK_PTR(const int32_t) block_table;
    RDK_PTR(const int32_t) kv_lens;
    RDK_PTR(const int32_t) q_starts;
    RDK_PTR(const float) sinks; // NULL = none
    RDK_PTR(void) out;
    RDK_PTR(float)
    sums; // chunks > 1: [kv_heads, chunks, packed rows of the call, dims], not divided by their weight
    RDK_PTR(float) tops;     // [kv_heads, chunks, packed rows, 2]: largest logit (base 2), weight
    RDK_PTR(uint32_t) taken; // units beyond one a block that blocks have taken; NULL: there are none
    int64_t q_stride_token, q_stride_head, out_stride_token, out_stride_head, block_table_stride;
    int32_t seqs, tokens, kv_heads, group, head_dim;
    int32_t chunks, chunk_keys;     // of a row tile's keys, each a unit of its own; 1: keys are not cut
    uint32_t group_magic;           // x / group = mulhi(2 x, magic) for x < 2^15
    int32_t heads_together;         // KV heads whose keys and values fit the second-level cache side by side
    int32_t block_tokens, max_keys; // of a cache block; of a block table row
    int32_t box_rows, boxes;        // a tile is `boxes` copies of box_rows keys, each inside one cache block
    int32_t k_block_rows, v_block_rows; // from block to block in the maps' third dimension
    int32_t q_type, out_type, window;
    float scale, softcap;
} rdk_attn_prefill_sm90a_args;

#endif // RDI_ATTN_SM90A_PREFILL_ARGS_H
