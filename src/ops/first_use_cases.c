// SPDX-License-Identifier: Apache-2.0
// The cases of the check at first use: small operands of known kinds. One an op, and more where a row holds several kernels: a
// step of the block-FP8 GEMMs has one for each count of 16-row tiles, attention one for each head size.
#include "ops/first_use_cases.h"

#include "base/convert.h"

#include <string.h>

enum {
    M = 16,
    MOST_M = 128, // of a step
    N = 256,
    K = 512,
    KB = K / 128,
    TOKENS = 8,
    Q_HEADS = 4,
    KV_HEADS = 2,
    DIM = 128,
    BLOCK = 16,
    BLOCKS = 8
};
enum { SEQS = 2, VOCAB = 1000 };

#define RUN_WS(op_)                                                                                          \
    static rd_status run_##op_(const rd_plan *plan, const rdi_any_args *args, void *ws, size_t *bytes) {     \
        return rd_##op_##_run(plan, &args->op_, ws, bytes, NULL);                                            \
    }
#define RUN(op_)                                                                                             \
    static rd_status run_##op_(const rd_plan *plan, const rdi_any_args *args, void *ws, size_t *bytes) {     \
        *bytes = 0;                                                                                          \
        return ws ? rd_##op_##_run(plan, &args->op_, NULL) : RD_OK;                                          \
    }
RUN_WS(gemm)
RUN_WS(quant)
RUN_WS(attn)
RUN_WS(sample)
RUN(rmsnorm)
RUN(rope)
RUN(act_mul)
RUN(kv_write)
RUN(embed)
static rd_status run_rope_kv_write(const rd_plan *plan, const rdi_any_args *args, void *ws, size_t *bytes) {
    *bytes = 0;
    return ws ? rd_rope_kv_write_run(plan, &args->rope_kv_write.rope, &args->rope_kv_write.kv, NULL) : RD_OK;
}

#define AT(type_, member_) offsetof(rd_##type_##_args, member_)
#define IN_HALF(half_, member_, fill_, ...)                                                                  \
    { offsetof(rdi_any_args, rope_kv_write.half_.member_), fill_, __VA_ARGS__ }
#define IN(type_, member_, fill_, ...)                                                                       \
    { AT(type_, member_), fill_, __VA_ARGS__ }
#define F32            NULL, RD_DTYPE_F32, false
#define I32            NULL, RD_DTYPE_I32, false
#define OF(key_)       key_, RD_DTYPE_NONE, false
#define OUT(key_)      key_, RD_DTYPE_NONE, true
#define OUT_AS(dtype_) NULL, dtype_, true
#define ALONE          NULL, NULL // the op's one case, for every row
#define GEMM_SIZES     RD_INT("n", N), RD_INT("k", K)
#define GEMM_C(m_)     IN(gemm, c, RDI_FILL_ZEROS, OUT("c_dtype"), 2, {m_, N})
#define ATTN_CASE(op_, more_, dim_, scale_)                                                                  \
    {                                                                                                        \
        op_, run_attn,                                                                                       \
            {.attn = {.struct_size = sizeof(rd_attn_args), .scale = scale_, .max_q_len = TOKENS / SEQS}},    \
            TOKENS / SEQS,                                                                                   \
            {RD_INT("head_dim", dim_),                                                                       \
             RD_INT("gqa", Q_HEADS / KV_HEADS),                                                              \
             RD_INT("block_tokens", BLOCK),                                                                  \
             RD_WORD("q_dtype", "bf16"),                                                                     \
             RD_WORD("kv_dtype", "bf16"),                                                                    \
             RD_WORD("out_dtype", "bf16"),                                                                   \
             RD_WORD("k_order", "dim"),                                                                      \
             RD_INT("window", 0),                                                                            \
             RD_INT("softcap", 0),                                                                           \
             RD_INT("sinks", 0),                                                                             \
             RD_INT("causal", 1)},                                                                           \
            {IN(attn, q, RDI_FILL_NORMAL, OF("q_dtype"), 3, {TOKENS, Q_HEADS, dim_}),                        \
             IN(attn, k_cache, RDI_FILL_NORMAL, OF("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, dim_}),         \
             IN(attn, v_cache, RDI_FILL_NORMAL, OF("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, dim_}),         \
             IN(attn, block_table, RDI_FILL_TABLE, I32, 2, {SEQS, BLOCKS / SEQS}),                           \
             IN(attn, kv_lens, RDI_FILL_LENGTHS, I32, 1, {SEQS}),                                            \
             IN(attn, q_starts, RDI_FILL_STARTS, I32, 1, {SEQS + 1}),                                        \
             IN(attn, out, RDI_FILL_ZEROS, OUT("out_dtype"), 3, {TOKENS, Q_HEADS, dim_}),                    \
             IN(attn, out_scale, RDI_FILL_ZEROS, OUT_AS(RD_DTYPE_F32), 2, {TOKENS, Q_HEADS * dim_ / 128})},  \
            more_, NULL                                                                                      \
    }

#define FP8_CASE(m_, more_, order_)                                                                          \
    {                                                                                                        \
        "gemm_fp8block", run_gemm, {.gemm = {.struct_size = sizeof(rd_gemm_args)}}, m_,                      \
            {GEMM_SIZES,                                                                                     \
             RD_WORD("a_dtype", "fp8_e4m3"),                                                                 \
             RD_WORD("w_scale_dtype", "fp32"),                                                               \
             RD_WORD("c_dtype", "fp32"),                                                                     \
             RD_WORD("layout", "row"),                                                                       \
             RD_INT("bias", 0)},                                                                             \
            {IN(gemm, a, RDI_FILL_CODES, OF("a_dtype"), 2, {m_, K}),                                         \
             IN(gemm, a_scale, RDI_FILL_SCALES, F32, 2, {m_, KB}),                                           \
             IN(gemm, w, RDI_FILL_WEIGHT, NULL, RD_DTYPE_E4M3, false, 2, {N, K}),                            \
             IN(gemm, w_scale, RDI_FILL_SCALES, F32, 2, {N / 128, KB}), GEMM_C(m_)},                         \
            more_, order_                                                                                    \
    }
#define W8A16_CASE(m_, more_, order_)                                                                        \
    {                                                                                                        \
        "gemm_fp8block_w8a16", run_gemm, {.gemm = {.struct_size = sizeof(rd_gemm_args)}}, m_,                \
            {GEMM_SIZES,                                                                                     \
             RD_WORD("a_dtype", "bf16"),                                                                     \
             RD_WORD("w_scale_dtype", "fp32"),                                                               \
             RD_WORD("c_dtype", "fp32"),                                                                     \
             RD_WORD("layout", "row"),                                                                       \
             RD_INT("bias", 0)},                                                                             \
            {IN(gemm, a, RDI_FILL_NORMAL, OF("a_dtype"), 2, {m_, K}),                                        \
             IN(gemm, w, RDI_FILL_WEIGHT, NULL, RD_DTYPE_E4M3, false, 2, {N, K}),                            \
             IN(gemm, w_scale, RDI_FILL_SCALES, F32, 2, {N / 128, KB}), GEMM_C(m_)},                         \
            more_, order_                                                                                    \
    }

static const rd_sample_row greedy[M]; // temperature 0

static const rdi_op_case cases[] = {
    FP8_CASE(M, NULL, NULL),
    FP8_CASE(MOST_M, "128 rows", "step"),
    W8A16_CASE(M, NULL, NULL),
    W8A16_CASE(MOST_M, "128 rows", "step"),
    {"gemm_bf16",
     run_gemm,
     {.gemm = {.struct_size = sizeof(rd_gemm_args)}},
     M,
     {GEMM_SIZES, RD_WORD("a_dtype", "bf16"), RD_WORD("c_dtype", "fp32"), RD_WORD("layout", "row"),
      RD_INT("bias", 0)},
     {IN(gemm, a, RDI_FILL_NORMAL, OF("a_dtype"), 2, {M, K}),
      IN(gemm, w, RDI_FILL_WEIGHT, NULL, RD_DTYPE_BF16, false, 2, {N, K}), GEMM_C(M)},
     ALONE},
    {"quant_fp8",
     run_quant,
     {.quant = {.struct_size = sizeof(rd_quant_args), .eps = 1e-6f}},
     M,
     {RD_INT("k", K), RD_WORD("x_dtype", "bf16"), RD_WORD("fuse", "add_rmsnorm")},
     {IN(quant, x, RDI_FILL_NORMAL, OF("x_dtype"), 2, {M, K}),
      IN(quant, residual, RDI_FILL_NORMAL, OUT_AS(RD_DTYPE_F32), 2, {M, K}),
      IN(quant, norm_weight, RDI_FILL_NORMAL, F32, 1, {K}),
      IN(quant, q, RDI_FILL_ZEROS, OUT_AS(RD_DTYPE_E4M3), 2, {M, K}),
      IN(quant, q_scale, RDI_FILL_ZEROS, OUT_AS(RD_DTYPE_F32), 2, {M, KB})},
     ALONE},
    ATTN_CASE("attn_prefill", NULL, DIM, 0.0883883f),
    ATTN_CASE("attn_prefill", "head 256", 256, 0.0625f),
    ATTN_CASE("attn_decode", NULL, DIM, 0.0883883f),
    ATTN_CASE("attn_decode", "head 256", 256, 0.0625f),
    {"rmsnorm",
     run_rmsnorm,
     {.rmsnorm = {.struct_size = sizeof(rd_rmsnorm_args), .eps = 1e-6f}},
     M,
     {RD_INT("k", K), RD_WORD("x_dtype", "fp32"), RD_WORD("y_dtype", "fp32"), RD_WORD("weight_dtype", "fp32"),
      RD_INT("residual", 1)},
     {IN(rmsnorm, x, RDI_FILL_NORMAL, OF("x_dtype"), 2, {M, K}),
      IN(rmsnorm, residual, RDI_FILL_NORMAL, OUT_AS(RD_DTYPE_F32), 2, {M, K}),
      IN(rmsnorm, weight, RDI_FILL_NORMAL, OF("weight_dtype"), 1, {K}),
      IN(rmsnorm, y, RDI_FILL_ZEROS, OUT("y_dtype"), 2, {M, K})},
     ALONE},
    {"rope",
     run_rope,
     {.rope = {.struct_size = sizeof(rd_rope_args), .eps = 1e-6f}},
     0,
     {RD_INT("head_dim", DIM), RD_INT("rotary_dim", DIM), RD_WORD("style", "neox"),
      RD_WORD("x_dtype", "fp32"), RD_INT("qk_norm", 1)},
     {IN(rope, q, RDI_FILL_NORMAL, OUT("x_dtype"), 3, {TOKENS, Q_HEADS, DIM}),
      IN(rope, k, RDI_FILL_NORMAL, OUT("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN(rope, positions, RDI_FILL_POSITIONS, I32, 1, {TOKENS}),
      IN(rope, inv_freq, RDI_FILL_SCALES, F32, 1, {DIM / 2}),
      IN(rope, q_norm, RDI_FILL_NORMAL, F32, 1, {DIM}), IN(rope, k_norm, RDI_FILL_NORMAL, F32, 1, {DIM})},
     ALONE},
    {"act_mul",
     run_act_mul,
     {.act_mul = {.struct_size = sizeof(rd_act_mul_args)}},
     M,
     {RD_INT("k", K), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"), RD_WORD("y_dtype", "fp32")},
     {IN(act_mul, gate, RDI_FILL_NORMAL, OF("x_dtype"), 2, {M, K}),
      IN(act_mul, up, RDI_FILL_NORMAL, OF("x_dtype"), 2, {M, K}),
      IN(act_mul, y, RDI_FILL_ZEROS, OUT("y_dtype"), 2, {M, K})},
     ALONE},
    {"kv_write",
     run_kv_write,
     {.kv_write = {.struct_size = sizeof(rd_kv_write_args)}},
     0,
     {RD_INT("head_dim", DIM), RD_INT("block_tokens", BLOCK), RD_WORD("x_dtype", "fp32"),
      RD_WORD("kv_dtype", "fp8_e4m3"), RD_WORD("k_order", "dim")},
     {IN(kv_write, k, RDI_FILL_NORMAL, OF("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN(kv_write, v, RDI_FILL_NORMAL, OF("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN(kv_write, k_cache, RDI_FILL_ZEROS, OUT("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),
      IN(kv_write, v_cache, RDI_FILL_ZEROS, OUT("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),
      IN(kv_write, slots, RDI_FILL_SLOTS, NULL, RD_DTYPE_I64, false, 1, {TOKENS})},
     ALONE},
    {"rope_kv_write", // k is consumed: not compared
     run_rope_kv_write,
     {.rope_kv_write = {{.struct_size = sizeof(rd_rope_args), .eps = 1e-6f},
                        {.struct_size = sizeof(rd_kv_write_args)}}},
     0,
     {RD_INT("head_dim", DIM), RD_INT("rotary_dim", DIM), RD_WORD("style", "neox"),
      RD_WORD("x_dtype", "fp32"), RD_INT("qk_norm", 1), RD_INT("block_tokens", BLOCK),
      RD_WORD("kv_dtype", "fp8_e4m3"), RD_WORD("k_order", "dim")},
     {IN_HALF(rope, q, RDI_FILL_NORMAL, OUT("x_dtype"), 3, {TOKENS, Q_HEADS, DIM}),
      IN_HALF(rope, k, RDI_FILL_NORMAL, OF("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN_HALF(rope, positions, RDI_FILL_POSITIONS, I32, 1, {TOKENS}),
      IN_HALF(rope, inv_freq, RDI_FILL_SCALES, F32, 1, {DIM / 2}),
      IN_HALF(rope, q_norm, RDI_FILL_NORMAL, F32, 1, {DIM}),
      IN_HALF(rope, k_norm, RDI_FILL_NORMAL, F32, 1, {DIM}),
      IN_HALF(kv, v, RDI_FILL_NORMAL, OF("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN_HALF(kv, k_cache, RDI_FILL_ZEROS, OUT("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),
      IN_HALF(kv, v_cache, RDI_FILL_ZEROS, OUT("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),
      IN_HALF(kv, slots, RDI_FILL_SLOTS, NULL, RD_DTYPE_I64, false, 1, {TOKENS})},
     ALONE},
    {"embed",
     run_embed,
     {.embed = {.struct_size = sizeof(rd_embed_args), .scale = 1.0f}},
     0,
     {RD_INT("k", K), RD_WORD("table_dtype", "bf16"), RD_WORD("y_dtype", "fp32")},
     {IN(embed, table, RDI_FILL_NORMAL, OF("table_dtype"), 2, {N, K}),
      IN(embed, ids, RDI_FILL_IDS, I32, 1, {TOKENS}),
      IN(embed, y, RDI_FILL_ZEROS, OUT("y_dtype"), 2, {TOKENS, K})},
     ALONE},
    {"sample",
     run_sample,
     {.sample = {.struct_size = sizeof(rd_sample_args), .rows = greedy}},
     0,
     {RD_INT("vocab", VOCAB)},
     {IN(sample, logits, RDI_FILL_NORMAL, F32, 2, {M, VOCAB}),
      IN(sample, ids, RDI_FILL_ZEROS, OUT_AS(RD_DTYPE_I32), 1, {M})},
     ALONE},
};

const void *rdi_op_case_settings(const rdi_op_case *c, size_t *bytes) {
    *bytes = sizeof greedy;
    return c->run == run_sample ? greedy : NULL;
}

const rdi_op_case *rdi_op_case_next(const char *op, const rdi_op_case *after) {
    for (const rdi_op_case *c = after ? after + 1 : cases; c < cases + RDI_COUNT(cases); c++)
        if (!strcmp(c->op, op)) return c;
    return NULL;
}

// ---- operands ------------------------------------------------------------------------------------------------------------
int64_t rdi_case_elems(const rd_tensor *tensor) {
    int64_t elems = 1;
    for (int32_t axis = 0; axis < tensor->rank; axis++) elems *= tensor->shape[axis];
    return elems;
}

// Values of order one from a fixed sequence (splitmix64): a card is judged by the same numbers each time.
static float next_value(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1.0); // [-1, 1)
}

static void fill_integers(const rdi_case_operand *o, rd_tensor *tensor) {
    int32_t *words = tensor->data;
    int64_t *wide = tensor->data;
    for (int64_t i = 0; i < rdi_case_elems(tensor); i++) {
        int32_t value = (int32_t)i; // RDI_FILL_TABLE: blocks in order
        if (o->fill == RDI_FILL_IDS) value = (int32_t)(i * 37 % N);
        if (o->fill == RDI_FILL_POSITIONS) value = (int32_t)(i * 101);
        if (o->fill == RDI_FILL_LENGTHS) value = (int32_t)(BLOCKS / SEQS * BLOCK - 5 * i); // ragged
        if (o->fill == RDI_FILL_STARTS) value = (int32_t)(i * TOKENS / SEQS);
        if (o->fill == RDI_FILL_SLOTS)
            wide[i] = i * 13 + 2;
        else
            words[i] = value;
    }
}

void rdi_case_fill_tensor(const rdi_case_operand *o, rd_tensor *tensor, uint64_t *state) {
    if (o->fill == RDI_FILL_ZEROS) return; // allocated zeroed
    if (o->fill >= RDI_FILL_IDS && o->fill != RDI_FILL_WEIGHT) {
        fill_integers(o, tensor);
        return;
    }
    for (int64_t i = 0; i < rdi_case_elems(tensor); i++) {
        float value = next_value(state);
        rdi_store_f32(tensor->data, tensor->dtype, i,
                      o->fill == RDI_FILL_SCALES ? 0.01f * (1.5f + value) : 2.0f * value);
    }
}
