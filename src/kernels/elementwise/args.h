// SPDX-License-Identifier: Apache-2.0
// Arguments of the elementwise ops' kernels. Strides in elements; the last axis is contiguous unless a stride is named.
#ifndef RDI_ELEMENTWISE_ARGS_H
#define RDI_ELEMENTWISE_ARGS_H

#include "radiance.h"

typedef struct rdi_rmsnorm_args {
    int64_t m, k;
    const void *x;
    void *residual; // NULL, or read and written: residual += x, y = norm(residual)
    const void *weight;
    void *y;
    int64_t x_stride, residual_stride, y_stride;
    rd_dtype x_dtype, residual_dtype, weight_dtype, y_dtype;
    float eps;
    int32_t unit_offset;
} rdi_rmsnorm_args;

typedef struct rdi_rope_args {
    int64_t tokens, q_heads, k_heads, head_dim, rotary_dim; // k_heads 0 = no k
    void *q, *k;
    int64_t q_stride_token, q_stride_head, k_stride_token, k_stride_head;
    const int32_t *positions;
    const float *inv_freq;       // [rotary_dim/2]
    const void *q_norm, *k_norm; // [head_dim] or NULL
    rd_dtype q_dtype, k_dtype, norm_dtype;
    float eps;
    int32_t unit_offset, interleaved, tables_settled;
} rdi_rope_args;

typedef enum rdi_act { RDI_ACT_SILU = 0, RDI_ACT_GELU_TANH } rdi_act;
typedef struct rdi_act_mul_args {
    int64_t m, k;
    const void *gate, *up;
    void *y;
    int64_t gate_stride, up_stride, y_stride;
    rd_dtype x_dtype, y_dtype; // gate and up share x_dtype
    rdi_act act;
} rdi_act_mul_args;

typedef struct rdi_kv_write_args {
    int64_t tokens, kv_heads, head_dim, block_tokens, blocks;
    const void *k, *v;
    int64_t k_stride_token, k_stride_head, v_stride_token, v_stride_head;
    void *k_cache, *v_cache;
    int64_t kc_stride_block, kc_stride_token, kc_stride_head, kc_stride_dim;
    int64_t vc_stride_block, vc_stride_token, vc_stride_head, vc_stride_dim;
    const float *k_scale, *v_scale; // NULL = 1
    const int64_t *slots;
    rd_dtype x_dtype, kv_dtype;
} rdi_kv_write_args;

// kv.k is rope.k: rotated, rounded to its type, then written. A row may leave k rotated or as it was.
typedef struct rdi_rope_kv_write_args {
    rdi_rope_args rope;
    rdi_kv_write_args kv;
} rdi_rope_kv_write_args;

typedef struct rdi_embed_args {
    int64_t tokens, vocab, k;
    const void *table;
    int64_t table_stride;
    const int32_t *ids;
    void *y;
    int64_t y_stride;
    rd_dtype table_dtype, y_dtype;
    float scale;
} rdi_embed_args;

typedef struct rdi_sample_args {
    int64_t rows, vocab;
    const float *logits;
    int64_t logits_stride;
    const rd_sample_row *params;
    int32_t *ids;
} rdi_sample_args;

#endif // RDI_ELEMENTWISE_ARGS_H
