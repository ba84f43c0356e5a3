// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the sm_90a decode kernels, where the keys of a row are cut, and how a block's shared memory is laid out.
// Strides in elements.
#ifndef RDI_ATTN_SM90A_ARGS_H
#define RDI_ATTN_SM90A_ARGS_H

#include "kernels/common/sm90a_types.h"

enum {
    RDK_ATTN_STEP_KEYS = 64,     // one wgmma's rows of keys
    RDK_ATTN_BOX_BYTES = 128,    // of a key that one copy takes: the swizzle's row
    RDK_ATTN_TEAM_THREADS = 128, // a warpgroup with rings and queries of its own
    RDK_ATTN_MAX_SLOTS = 16,
    RDK_ATTN_RECORDS = 4,            // chunks that a loading warp announces ahead
    RDK_ATTN_PREFETCH_BYTES = 65536, // that a loading warp asks for before the kernels ahead are complete
    RDK_ATTN_HEADROOM = 8,           // weights reach 2 to this: exact in 16 bits
    RDK_ATTN_LANE_BLOCKS = 5, // blocks whose shares a lane works out: a grid has at most 32 times as many
    RDK_ATTN_COST_STEP = 4,   // of a step, among what chunks cost
    RDK_ATTN_MERGE_GROUPS = 16,
    RDK_ATTN_MERGE_LANES = 16, // of 16 bytes
    RDK_ATTN_CODE_GROUP = 128, // elements of an e4m3 output that share a scale
};

// Chunks are cut at absolute positions alone, so that a row's bits follow from positions. Short ones first, since a short
// context must still fill the card; longer ones later, since each chunk of each row costs a partial result.
enum {
    RDK_ATTN_SIZES = 4, // of chunks: 256, 512, 1024 and 2048 keys, from these keys on
    RDK_ATTN_CUT_1 = 8192,
    RDK_ATTN_CUT_2 = 32768,
    RDK_ATTN_CUT_3 = 65536,
    RDK_ATTN_CHUNKS_1 = RDK_ATTN_CUT_1 / 256, // before them
    RDK_ATTN_CHUNKS_2 = RDK_ATTN_CHUNKS_1 + (RDK_ATTN_CUT_2 - RDK_ATTN_CUT_1) / 512,
    RDK_ATTN_CHUNKS_3 = RDK_ATTN_CHUNKS_2 + (RDK_ATTN_CUT_3 - RDK_ATTN_CUT_2) / 1024
};
RDK_HOST_DEVICE int32_t rdk_attn_chunk_begin(int32_t chunk) {
    return chunk <= RDK_ATTN_CHUNKS_1   ? chunk * 256
           : chunk <= RDK_ATTN_CHUNKS_2 ? RDK_ATTN_CUT_1 + (chunk - RDK_ATTN_CHUNKS_1) * 512
           : chunk <= RDK_ATTN_CHUNKS_3 ? RDK_ATTN_CUT_2 + (chunk - RDK_ATTN_CHUNKS_2) * 1024
                                        : RDK_ATTN_CUT_3 + (chunk - RDK_ATTN_CHUNKS_3) * 2048;
}
RDK_HOST_DEVICE int32_t rdk_attn_chunk_count(int32_t keys) {
    return keys <= RDK_ATTN_CUT_1   ? (keys + 255) / 256
           : keys <= RDK_ATTN_CUT_2 ? RDK_ATTN_CHUNKS_1 + (keys - RDK_ATTN_CUT_1 + 511) / 512
           : keys <= RDK_ATTN_CUT_3 ? RDK_ATTN_CHUNKS_2 + (keys - RDK_ATTN_CUT_2 + 1023) / 1024
                                    : RDK_ATTN_CHUNKS_3 + (keys - RDK_ATTN_CUT_3 + 2047) / 2048;
}
// The first key of the chunks of one size.
RDK_HOST_DEVICE int32_t rdk_attn_size_begin(int32_t size) {
    return size == 0   ? 0
           : size == 1 ? RDK_ATTN_CUT_1
           : size == 2 ? RDK_ATTN_CUT_2
           : size == 3 ? RDK_ATTN_CUT_3
                       : 0x7fffffc0;
}

// Teams of a block, which fill each other's gaps: as many as the registers of their rows leave room for. The registers of a
// multiprocessor are cut for so many threads at launch; then the loading warps give up what they do not need, and each thread of a
// team takes rdk_attn_registers. Kernels of 8 rows leave room for a block of the merge, which waits there for the end.
RDK_HOST_DEVICE int rdk_attn_most_teams(int dims, int rows) {
    return dims <= 128 && rows <= 24 ? 4 : dims * rows < 256 * 24 ? 3 : 2;
}
RDK_HOST_DEVICE int rdk_attn_register_threads(int dims, int rows) {
    int teams = rdk_attn_most_teams(dims, rows);
    return rows == 8 ? (teams == 4 ? 896 : 640) : (teams + 1) * RDK_ATTN_TEAM_THREADS;
}
RDK_HOST_DEVICE int rdk_attn_registers(int dims, int rows) {
    int teams = rdk_attn_most_teams(dims, rows);
    return rows == 8 ? (teams == 4 ? 72 : 104) : teams == 4 ? 104 : teams == 3 ? 144 : 224;
}
RDK_HOST_DEVICE int rdk_attn_loader_registers(int dims, int rows) {
    return rows != 8 && rdk_attn_most_teams(dims, rows) == 2 ? 56 : 64;
}
RDK_HOST_DEVICE int rdk_attn_block_bytes(int rows) { // shared memory of a block
    return (rows == 8 ? 221 : 227) * 1024;
}

// Shared memory of a block, for each team: slots of keys, then of values, each 64 of one head in columns of 128 bytes; queries and
// weights (16 bits); then some words a row, the chunks announced, and barriers. rows: of a team.
RDK_HOST_DEVICE int rdk_attn_slot_bytes(int dims, int fp8) {
    int columns = dims * (fp8 ? 1 : 2) / RDK_ATTN_BOX_BYTES;
    return (columns ? columns : 1) * RDK_ATTN_STEP_KEYS * RDK_ATTN_BOX_BYTES;
}
enum {
    RDK_ATTN_RECORD_BYTES = RDK_ATTN_RECORDS * 64 + 48 // with their barriers and the block's share of chunks
};
// Queries: two bytes a dim: bf16, or two e4m3 codes in rows of 128 bytes.
RDK_HOST_DEVICE int rdk_attn_query_bytes(int dims, int rows) {
    return rows * (dims < 128 ? 128 : dims) * 2;
}
// Weights of a step. Two sets spare a barrier a step; kernels of 56 rows have no registers for it.
RDK_HOST_DEVICE int rdk_attn_weight_sets(int rows) {
    return rows <= 40 ? 2 : 1;
}
RDK_HOST_DEVICE int rdk_attn_operand_bytes(int dims, int rows) {
    return rdk_attn_query_bytes(dims, rows) + rdk_attn_weight_sets(rows) * rows * RDK_ATTN_STEP_KEYS * 2;
}
RDK_HOST_DEVICE int rdk_attn_table_bytes(int rows) { // seven words a row and one a warp
    return rows * (7 + 4) * 4;
}
RDK_HOST_DEVICE int rdk_attn_team_bytes(int dims, int fp8, int rows, int slots) {
    return slots * (rdk_attn_slot_bytes(dims, fp8) + 16) + rdk_attn_operand_bytes(dims, rows) +
           rdk_attn_table_bytes(rows) + RDK_ATTN_RECORD_BYTES;
}
RDK_HOST_DEVICE int rdk_attn_slots(int dims, int fp8, int rows, int teams) {
    int room = rdk_attn_block_bytes(rows) / teams - rdk_attn_team_bytes(dims, fp8, rows, 0);
    int slots = room / (rdk_attn_slot_bytes(dims, fp8) + 16);
    return slots < RDK_ATTN_MAX_SLOTS ? slots : RDK_ATTN_MAX_SLOTS;
}

// Where copies of 16 bytes do not reach the rows of the cache, one warp moves single bytes.
typedef struct rdk_attn_cache_view {
    RDK_PTR(const unsigned char) k;
    RDK_PTR(const unsigned char) v;
    int64_t k_stride_block, k_stride_token, k_stride_head, v_stride_block, v_stride_token,
        v_stride_head; // bytes
    int64_t blocks;
} rdk_attn_cache_view;

typedef struct rdk_attn_sm90a_args {
    RDK_ALIGN64 union {
        unsigned char maps[2]
                          [128];  // K, V: [block, token, head, dim], a box is 128 bytes of box_tokens tokens
        rdk_attn_cache_view view; // !use_maps
    } cache;
    RDK_PTR(const void) q;
    RDK_PTR(const float) k_scale; // NULL = 1
    RDK_PTR(const float) v_scale;
    RDK_PTR(const int32_t) block_table;
    RDK_PTR(const int32_t) kv_lens;
    RDK_PTR(const int32_t) q_starts;
    RDK_PTR(const float) sinks; // NULL = none
    RDK_PTR(void) out;
    RDK_PTR(float) out_scale; // of an e4m3 output
    RDK_PTR(void)
    sums; // [seqs, kv_heads, chunks, rows, head_dim]: averages by weight, f16 (e4m3 caches) or f32
    RDK_PTR(float) tops; // [seqs, kv_heads, chunks, rows, 2]: largest logit (base 2), weight
    int64_t q_stride_token, q_stride_head, block_table_stride, out_stride_token, out_stride_head,
        out_scale_stride_token, out_scale_stride_group;
    int32_t seqs, kv_heads, group, head_dim, block_tokens, max_blocks, chunks, max_rows;
    int32_t row_blocks; // of a team's rows, that max_rows takes
    int32_t teams, key_slots, value_slots, slot_bytes, prefetch_steps;
    int32_t chunk_cost; // of a chunk beside its steps, in quarters of a step
    int32_t row_bytes, column_shift, box_dims,
        box_tokens; // of a key: bytes, boxes (a power of two); of a box: dims, keys
    int32_t q_type, q_vector, out_type, use_maps, tables_settled,
        window; // q_vector: rows of queries begin at multiples of 16 bytes
    float scale, softcap;
} rdk_attn_sm90a_args;

#endif // RDI_ATTN_SM90A_ARGS_H
