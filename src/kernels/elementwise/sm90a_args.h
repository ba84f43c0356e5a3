// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the sm_90a elementwise kernels, one struct a kernel. Strides in elements.
#ifndef RDI_ELEMENTWISE_SM90A_ARGS_H
#define RDI_ELEMENTWISE_SM90A_ARGS_H

#include "kernels/common/sm90a_types.h"

enum {
    RDK_ROW_THREADS = 128,
    RDK_ROPE_HEADS = 4, // of one token, by a warp, where there are many; of more than 128 dims half of them
    RDK_SAMPLE_THREADS = 1024,
    RDK_SAMPLE_BLOCKS = 8,              // of a row
    RDK_SAMPLE_SHARED_BYTES = 76 << 10, // of a block beside its logits
    RDK_SAMPLE_HELD_ELEMS = 37888       // of them: 148 KB
};

typedef struct rdk_rmsnorm_sm90a_args {
    RDK_PTR(const void) x;
    RDK_PTR(void) residual; // NULL, or read and written
    RDK_PTR(const void) weight;
    RDK_PTR(void) y;
    int64_t x_stride, residual_stride, y_stride;
    int32_t k, x_type, residual_type, weight_type, y_type;
    float eps, weight_offset;
} rdk_rmsnorm_sm90a_args;

typedef struct rdk_act_mul_sm90a_args {
    RDK_PTR(const void) gate;
    RDK_PTR(const void) up;
    RDK_PTR(void) y;
    int64_t gate_stride, up_stride, y_stride;
    int32_t k, x_type, y_type, gelu;
} rdk_act_mul_sm90a_args;

typedef struct rdk_rope_sm90a_args {
    RDK_PTR(void) q;
    RDK_PTR(void) k;
    RDK_PTR(const int32_t) positions;
    RDK_PTR(const float) inv_freq;
    RDK_PTR(const void) q_norm; // NULL = none
    RDK_PTR(const void) k_norm;
    int64_t q_stride_token, q_stride_head, k_stride_token, k_stride_head;
    int32_t tokens, q_heads, k_heads, head_dim, rotary_dim, interleaved, q_type, k_type, norm_type,
        tables_settled;
    float eps, weight_offset;
} rdk_rope_sm90a_args;

typedef struct rdk_kv_write_sm90a_args {
    RDK_PTR(const void) k;
    RDK_PTR(const void) v;
    RDK_PTR(void) k_cache;
    RDK_PTR(void) v_cache;
    RDK_PTR(const float) k_scale; // NULL = 1
    RDK_PTR(const float) v_scale;
    RDK_PTR(const int64_t) slots;
    int64_t k_stride_token, k_stride_head, v_stride_token, v_stride_head;
    int64_t kc_stride_block, kc_stride_token, kc_stride_head, kc_stride_dim;
    int64_t vc_stride_block, vc_stride_token, vc_stride_head, vc_stride_dim,
        capacity;           // blocks * block_tokens
    uint64_t block_inverse; // 2^64 / block_tokens, rounded up
    int32_t kv_heads, head_dim, block_tokens, k_interleave, x_type, kv_type;
} rdk_kv_write_sm90a_args;

typedef struct rdk_rope_kv_write_sm90a_args { // kv.k and rope.k are one tensor
    rdk_rope_sm90a_args rope;
    rdk_kv_write_sm90a_args kv;
} rdk_rope_kv_write_sm90a_args;

typedef struct rdk_embed_sm90a_args {
    RDK_PTR(const void) table;
    RDK_PTR(const int32_t) ids;
    RDK_PTR(void) y;
    int64_t table_stride, y_stride, vocab;
    int32_t k, table_type, y_type;
    float scale;
} rdk_embed_sm90a_args;

typedef struct rdk_sample_sm90a_args {
    RDK_PTR(const float) logits;
    RDK_PTR(const void) params; // rd_sample_row
    RDK_PTR(int32_t) ids;
    int64_t logits_stride;
    int32_t vocab, slice,
        held; // logits of a block, a multiple of four, and how many of them its shared memory has room for
} rdk_sample_sm90a_args;

#endif // RDI_ELEMENTWISE_SM90A_ARGS_H
