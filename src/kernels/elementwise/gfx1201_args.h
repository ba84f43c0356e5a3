// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the elementwise kernels on gfx1201, one struct a kernel. Strides in elements.
#ifndef RDK_ELEMENTWISE_GFX1201_ARGS_H
#define RDK_ELEMENTWISE_GFX1201_ARGS_H

#include "base/gpu_args.h"

// Codes of element types; the host's rd_dtype is not visible in OpenCL C.
enum { RDK_F32 = 0, RDK_BF16, RDK_F16, RDK_E4M3 };

// A `wide` flag says that every group of eight elements that starts at a multiple of eight lies on 16 bytes (8 for one-byte
// types), so that it moves in one instruction.
enum { RDK_GROUP = 8 }; // elements of a lane's load

enum { RDK_ACT_MUL_THREADS = 256 };
typedef struct rdk_act_mul_gfx1201_args {
    RDK_PTR(const void) gate;
    RDK_PTR(const void) up;
    RDK_PTR(void) y;
    int64_t gate_stride, up_stride, y_stride;
    int32_t k, x_dtype, y_dtype, wide;
    int32_t gelu; // 1: gelu_tanh, 0: silu
    int32_t reserved;
} rdk_act_mul_gfx1201_args;

enum { RDK_NORM_THREADS = 256 };
typedef struct rdk_rmsnorm_gfx1201_args {
    RDK_PTR(const void) x;
    RDK_PTR(void) residual; // null: none
    RDK_PTR(const void) weight;
    RDK_PTR(void) y;
    int64_t x_stride, residual_stride, y_stride;
    int32_t k, x_dtype, residual_dtype, weight_dtype, y_dtype, unit_offset, wide;
    float eps;
} rdk_rmsnorm_gfx1201_args;

enum { RDK_EMBED_THREADS = 256 };
typedef struct rdk_embed_gfx1201_args {
    RDK_PTR(const void) table;
    RDK_PTR(const int32_t) ids;
    RDK_PTR(void) y;
    int64_t table_stride, y_stride, vocab;
    int32_t k, table_dtype, y_dtype, wide;
    float scale;
} rdk_embed_gfx1201_args;

enum { RDK_ROPE_WAVES = 4 }; // a wave a head
typedef struct rdk_rope_gfx1201_args {
    RDK_PTR(void) q;
    RDK_PTR(void) k;
    RDK_PTR(const int32_t) positions;
    RDK_PTR(const float) inv_freq;
    RDK_PTR(const void) q_norm; // null: no qk-norm
    RDK_PTR(const void) k_norm;
    int64_t q_stride_token, q_stride_head, k_stride_token, k_stride_head;
    int32_t q_heads, k_heads, head_dim, rotary_dim, q_dtype, k_dtype, norm_dtype, unit_offset, interleaved;
    float eps;
} rdk_rope_gfx1201_args;

enum { RDK_KV_THREADS = 128 };
typedef struct rdk_kv_side { // K or V
    RDK_PTR(const void) x;
    RDK_PTR(void) cache;
    RDK_PTR(const float) scale; // null: 1
    int64_t x_stride_token, x_stride_head, stride_block, stride_group, stride_token, stride_head;
    int32_t stride_dim, wide_in, wide_out, reserved;
} rdk_kv_side;
typedef struct rdk_kv_write_gfx1201_args {
    rdk_kv_side side[2];
    RDK_PTR(const int64_t) slots;
    int32_t capacity, kv_heads, head_dim, block_tokens, x_dtype, kv_dtype;
} rdk_kv_write_gfx1201_args;

typedef struct rdk_rope_kv_write_gfx1201_args { // side[0].x and rope.k are one tensor
    rdk_rope_gfx1201_args rope;
    rdk_kv_write_gfx1201_args kv;
} rdk_rope_kv_write_gfx1201_args;

enum { RDK_SAMPLE_THREADS = 1024, RDK_SAMPLE_MAX_VOCAB = 1 << 19 };
typedef struct rdk_sample_row { // rd_sample_row
    float temperature, top_p, min_p;
    int32_t top_k;
    uint64_t seed, counter;
} rdk_sample_row;
typedef struct rdk_sample_gfx1201_args {
    RDK_PTR(const float) logits;
    RDK_PTR(const rdk_sample_row) params;
    RDK_PTR(int32_t) ids;
    int64_t logits_stride;
    int32_t vocab;
} rdk_sample_gfx1201_args;

#endif // RDK_ELEMENTWISE_GFX1201_ARGS_H
