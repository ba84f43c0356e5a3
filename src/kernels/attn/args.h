// SPDX-License-Identifier: Apache-2.0
// Arguments of every attn_* kernel. Strides in elements. Checked by src/ops/attn.c:
// block ids of every visible position lie in [0, blocks), so kernels trust them and read no entry of a position that no
// row sees.
#ifndef RDI_ATTN_ARGS_H
#define RDI_ATTN_ARGS_H

#include "radiance.h"

enum { RDI_ATTN_CODE_GROUP = 128 }; // elements of an e4m3 output that share a scale

typedef struct rdi_attn_args {
    int64_t seqs, tokens, q_heads, kv_heads, head_dim, block_tokens, max_blocks, blocks;
    const void *q;                         // [tokens, q_heads, head_dim]
    int64_t q_stride_token, q_stride_head; // dim stride 1
    const void *k_cache, *v_cache;         // [blocks, block_tokens, kv_heads, head_dim]
    // 1: element (token, dim) of K lies at token*k_stride_token + dim*k_stride_dim ("dim" order). 16: tokens of a group of
    // 16 are neighbours ("token" order): (token/16)*16*head_dim + token%16 + dim*16; the two strides are then not read.
    int32_t k_interleave;
    int64_t k_stride_block, k_stride_token, k_stride_head, k_stride_dim;
    int64_t v_stride_block, v_stride_token, v_stride_head, v_stride_dim;
    const float *k_scale, *v_scale; // [kv_heads], NULL = 1
    const int32_t *block_table;     // [seqs, max_blocks]
    int64_t block_table_stride;
    const int32_t *kv_lens;  // [seqs]
    const int32_t *q_starts; // [seqs + 1]
    const float *sinks;      // [q_heads] or NULL
    void *out;               // [tokens, q_heads, head_dim]
    int64_t out_stride_token, out_stride_head;
    float *out_scale; // of an e4m3 output: [tokens, q_heads * head_dim / RDI_ATTN_CODE_GROUP]
    int64_t out_scale_stride_token, out_scale_stride_group;
    rd_dtype q_dtype, kv_dtype, out_dtype;
    float scale, softcap; // softcap 0 = off
    int32_t window;       // 0 = off
    // Bounds of the call: no sequence has more query tokens or keys. GPU grids are made from these.
    int64_t max_q_len, max_kv_len;
    int32_t tables_settled; // nothing that may still run writes lengths, starts or block ids
} rdi_attn_args;

// Keys that the longest sequence can have.
static inline int64_t rdi_attn_keys_bound(const rdi_attn_args *a) {
    int64_t tables = a->max_blocks * a->block_tokens;
    return a->max_kv_len > 0 && a->max_kv_len < tables ? a->max_kv_len : tables;
}

#endif // RDI_ATTN_ARGS_H
