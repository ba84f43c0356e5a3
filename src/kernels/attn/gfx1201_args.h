// SPDX-License-Identifier: Apache-2.0
// By-value struct of the gfx1201 attention kernels, read by the device code and filled by gfx1201_geometry.c, and the shapes
// that both sides must know.
#ifndef RDK_ATTN_GFX1201_ARGS_H
#define RDK_ATTN_GFX1201_ARGS_H

#include "base/gpu_args.h"
#include "kernels/attn/partition.h"

// Waves of a work-group: one 16-key tile of a step each, HEAD / WAVES output dims each. Decode, then prefill.
#define RDK_WAVES_64          2
#define RDK_WAVES_128         4
#define RDK_WAVES_256         4
#define RDK_WAVES_512         8
#define RDK_PREFILL_WAVES_64  2
#define RDK_PREFILL_ROWS_64   64
#define RDK_PREFILL_WAVES_128 4
#define RDK_PREFILL_ROWS_128  64
#define RDK_PREFILL_WAVES_256 8
#define RDK_PREFILL_ROWS_256  64
#define RDK_PREFILL_WAVES_512 16
#define RDK_PREFILL_ROWS_512  32
// Decode at head 256, tiles of 32 and 64 rows: waves that share a key tile, each scoring a part of the rows.
#define RDK_SPLIT_256_R32 1
#define RDK_SPLIT_256_R64 2
enum { RDK_MERGE_WAVES = 4 }; // rows of a merge work-group

// Strides of q and out in elements, of the caches in bytes.
typedef struct rdk_attn_gfx1201_args {
    RDK_PTR(const void) q;
    RDK_PTR(const char) k_cache;
    RDK_PTR(const char) v_cache;
    RDK_PTR(const float) k_scale; // null: 1
    RDK_PTR(const float) v_scale;
    RDK_PTR(const int32_t) block_table;
    RDK_PTR(const int32_t) kv_lens;
    RDK_PTR(const int32_t) q_starts;
    RDK_PTR(const float) sinks; // null: none
    RDK_PTR(void) out;
    RDK_PTR(float) acc;   // decode: [token, q_head, chunk, dim], unnormalised sums
    RDK_PTR(float) state; // decode: [token, q_head, chunk, 2], reference exponent and sum
    int64_t q_stride_token, q_stride_head, out_stride_token, out_stride_head;
    int64_t block_table_stride;
    uint32_t k_stride_block, v_stride_block;
    int32_t k_stride_token, k_stride_head, v_stride_token, v_stride_head;
    int32_t tokens, seqs, q_heads, kv_heads, gqa;
    int32_t block_tiles;              // 16-key tiles of a cache block
    uint32_t block_magic;             // tile / block_tiles = mulhi(2 tile, magic)
    uint32_t gqa_magic;               // row / gqa the same way
    int32_t blocks, max_keys, chunks; // chunks: room in acc and state
    int32_t group_chunks;             // decode: chunks in a row that a work-group takes
    int32_t window, q_f32, out_f32;
    float scale;                    // times log2 e: logits are powers of two
    float softcap, softcap_inverse; // of logits before log2 e; 0 = off
} rdk_attn_gfx1201_args;

#endif // RDK_ATTN_GFX1201_ARGS_H
