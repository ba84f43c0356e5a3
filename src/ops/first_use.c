// SPDX-License-Identifier: Apache-2.0
// The cases of the check at first use, one an op: small operands of known kinds, the row on the card, the reference on the host.
#include "ops/first_use.h"

#include "backend/backend.h"
#include "base/convert.h"
#include "ops/plan.h"

#include <stdio.h>

enum {
    M = 16,
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
enum { SEQS = 2, VOCAB = 1000, MOST_OPERANDS = 10, MOST_PARAMS = 12 };

typedef enum fill {
    NORMAL,
    CODES,
    SCALES,
    ZEROS,
    IDS,
    POSITIONS,
    SLOTS,
    LENGTHS,
    STARTS,
    TABLE,
    WEIGHT
} fill;
typedef struct operand {
    size_t offset; // in the op's args
    fill fill;
    const char *key; // of the plan: its dtype; NULL = `dtype`
    rd_dtype dtype;
    bool written;
    int32_t rank, shape[4];
} operand;

typedef union any_args {
    rd_gemm_args gemm;
    rd_quant_args quant;
    rd_attn_args attn;
    rd_rmsnorm_args rmsnorm;
    rd_rope_args rope;
    rd_act_mul_args act_mul;
    rd_kv_write_args kv_write;
    rd_embed_args embed;
    rd_sample_args sample;
    struct {
        rd_rope_args rope;
        rd_kv_write_args kv;
    } rope_kv_write;
} any_args;

typedef rd_status (*run_fn)(const rd_plan *plan, const any_args *args, void *ws, size_t *bytes);
typedef struct op_case {
    const char *op;
    run_fn run;
    any_args args; // what is no tensor
    int64_t at;    // of the interval key; 0 = none
    rd_param params[MOST_PARAMS];
    operand operands[MOST_OPERANDS];
} op_case;

#define RUN_WS(op_)                                                                                          \
    static rd_status run_##op_(const rd_plan *plan, const any_args *args, void *ws, size_t *bytes) {         \
        return rd_##op_##_run(plan, &args->op_, ws, bytes, NULL);                                            \
    }
#define RUN(op_)                                                                                             \
    static rd_status run_##op_(const rd_plan *plan, const any_args *args, void *ws, size_t *bytes) {         \
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
static rd_status run_rope_kv_write(const rd_plan *plan, const any_args *args, void *ws, size_t *bytes) {
    *bytes = 0;
    return ws ? rd_rope_kv_write_run(plan, &args->rope_kv_write.rope, &args->rope_kv_write.kv, NULL) : RD_OK;
}

#define AT(type_, member_) offsetof(rd_##type_##_args, member_)
#define IN_HALF(half_, member_, fill_, ...)                                                                  \
    { offsetof(any_args, rope_kv_write.half_.member_), fill_, __VA_ARGS__ }
#define IN(type_, member_, fill_, ...)                                                                       \
    { AT(type_, member_), fill_, __VA_ARGS__ }
#define F32            NULL, RD_DTYPE_F32, false
#define I32            NULL, RD_DTYPE_I32, false
#define OF(key_)       key_, RD_DTYPE_NONE, false
#define OUT(key_)      key_, RD_DTYPE_NONE, true
#define OUT_AS(dtype_) NULL, dtype_, true
#define GEMM_SIZES     RD_INT("n", N), RD_INT("k", K)
#define GEMM_C         IN(gemm, c, ZEROS, OUT("c_dtype"), 2, {M, N})
#define ATTN_CASE(op_)                                                                                       \
    {                                                                                                        \
        op_, run_attn,                                                                                       \
            {.attn = {.struct_size = sizeof(rd_attn_args),                                                   \
                      .scale = 0.0883883f,                                                                   \
                      .max_q_len = TOKENS / SEQS}},                                                          \
            TOKENS / SEQS,                                                                                   \
            {RD_INT("head_dim", DIM),                                                                        \
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
        {                                                                                                    \
            IN(attn, q, NORMAL, OF("q_dtype"), 3, {TOKENS, Q_HEADS, DIM}),                                   \
                IN(attn, k_cache, NORMAL, OF("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),                \
                IN(attn, v_cache, NORMAL, OF("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),                \
                IN(attn, block_table, TABLE, I32, 2, {SEQS, BLOCKS / SEQS}),                                 \
                IN(attn, kv_lens, LENGTHS, I32, 1, {SEQS}), IN(attn, q_starts, STARTS, I32, 1, {SEQS + 1}),  \
                IN(attn, out, ZEROS, OUT("out_dtype"), 3, {TOKENS, Q_HEADS, DIM})                            \
        }                                                                                                    \
    }

static const rd_sample_row greedy[M]; // temperature 0

static const op_case cases[] = {
    {"gemm_fp8block",
     run_gemm,
     {.gemm = {.struct_size = sizeof(rd_gemm_args)}},
     M,
     {GEMM_SIZES, RD_WORD("a_dtype", "fp8_e4m3"), RD_WORD("w_scale_dtype", "fp32"),
      RD_WORD("c_dtype", "fp32"), RD_WORD("layout", "row"), RD_INT("bias", 0)},
     {IN(gemm, a, CODES, OF("a_dtype"), 2, {M, K}), IN(gemm, a_scale, SCALES, F32, 2, {M, KB}),
      IN(gemm, w, WEIGHT, NULL, RD_DTYPE_E4M3, false, 2, {N, K}),
      IN(gemm, w_scale, SCALES, F32, 2, {N / 128, KB}), GEMM_C}},
    {"gemm_fp8block_w8a16",
     run_gemm,
     {.gemm = {.struct_size = sizeof(rd_gemm_args)}},
     M,
     {GEMM_SIZES, RD_WORD("a_dtype", "bf16"), RD_WORD("w_scale_dtype", "fp32"), RD_WORD("c_dtype", "fp32"),
      RD_WORD("layout", "row"), RD_INT("bias", 0)},
     {IN(gemm, a, NORMAL, OF("a_dtype"), 2, {M, K}),
      IN(gemm, w, WEIGHT, NULL, RD_DTYPE_E4M3, false, 2, {N, K}),
      IN(gemm, w_scale, SCALES, F32, 2, {N / 128, KB}), GEMM_C}},
    {"gemm_bf16",
     run_gemm,
     {.gemm = {.struct_size = sizeof(rd_gemm_args)}},
     M,
     {GEMM_SIZES, RD_WORD("a_dtype", "bf16"), RD_WORD("c_dtype", "fp32"), RD_WORD("layout", "row"),
      RD_INT("bias", 0)},
     {IN(gemm, a, NORMAL, OF("a_dtype"), 2, {M, K}),
      IN(gemm, w, WEIGHT, NULL, RD_DTYPE_BF16, false, 2, {N, K}), GEMM_C}},
    {"quant_fp8",
     run_quant,
     {.quant = {.struct_size = sizeof(rd_quant_args), .eps = 1e-6f}},
     M,
     {RD_INT("k", K), RD_WORD("x_dtype", "bf16"), RD_WORD("fuse", "add_rmsnorm")},
     {IN(quant, x, NORMAL, OF("x_dtype"), 2, {M, K}),
      IN(quant, residual, NORMAL, OUT_AS(RD_DTYPE_F32), 2, {M, K}),
      IN(quant, norm_weight, NORMAL, F32, 1, {K}), IN(quant, q, ZEROS, OUT_AS(RD_DTYPE_E4M3), 2, {M, K}),
      IN(quant, q_scale, ZEROS, OUT_AS(RD_DTYPE_F32), 2, {M, KB})}},
    ATTN_CASE("attn_prefill"),
    ATTN_CASE("attn_decode"),
    {"rmsnorm",
     run_rmsnorm,
     {.rmsnorm = {.struct_size = sizeof(rd_rmsnorm_args), .eps = 1e-6f}},
     M,
     {RD_INT("k", K), RD_WORD("x_dtype", "fp32"), RD_WORD("y_dtype", "fp32"), RD_WORD("weight_dtype", "fp32"),
      RD_INT("residual", 1)},
     {IN(rmsnorm, x, NORMAL, OF("x_dtype"), 2, {M, K}),
      IN(rmsnorm, residual, NORMAL, OUT_AS(RD_DTYPE_F32), 2, {M, K}),
      IN(rmsnorm, weight, NORMAL, OF("weight_dtype"), 1, {K}),
      IN(rmsnorm, y, ZEROS, OUT("y_dtype"), 2, {M, K})}},
    {"rope",
     run_rope,
     {.rope = {.struct_size = sizeof(rd_rope_args), .eps = 1e-6f}},
     0,
     {RD_INT("head_dim", DIM), RD_INT("rotary_dim", DIM), RD_WORD("style", "neox"),
      RD_WORD("x_dtype", "fp32"), RD_INT("qk_norm", 1)},
     {IN(rope, q, NORMAL, OUT("x_dtype"), 3, {TOKENS, Q_HEADS, DIM}),
      IN(rope, k, NORMAL, OUT("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN(rope, positions, POSITIONS, I32, 1, {TOKENS}), IN(rope, inv_freq, SCALES, F32, 1, {DIM / 2}),
      IN(rope, q_norm, NORMAL, F32, 1, {DIM}), IN(rope, k_norm, NORMAL, F32, 1, {DIM})}},
    {"act_mul",
     run_act_mul,
     {.act_mul = {.struct_size = sizeof(rd_act_mul_args)}},
     M,
     {RD_INT("k", K), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"), RD_WORD("y_dtype", "fp32")},
     {IN(act_mul, gate, NORMAL, OF("x_dtype"), 2, {M, K}), IN(act_mul, up, NORMAL, OF("x_dtype"), 2, {M, K}),
      IN(act_mul, y, ZEROS, OUT("y_dtype"), 2, {M, K})}},
    {"kv_write",
     run_kv_write,
     {.kv_write = {.struct_size = sizeof(rd_kv_write_args)}},
     0,
     {RD_INT("head_dim", DIM), RD_INT("block_tokens", BLOCK), RD_WORD("x_dtype", "fp32"),
      RD_WORD("kv_dtype", "fp8_e4m3"), RD_WORD("k_order", "dim")},
     {IN(kv_write, k, NORMAL, OF("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN(kv_write, v, NORMAL, OF("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN(kv_write, k_cache, ZEROS, OUT("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),
      IN(kv_write, v_cache, ZEROS, OUT("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),
      IN(kv_write, slots, SLOTS, NULL, RD_DTYPE_I64, false, 1, {TOKENS})}},
    {"rope_kv_write", // k is consumed: not compared
     run_rope_kv_write,
     {.rope_kv_write = {{.struct_size = sizeof(rd_rope_args), .eps = 1e-6f},
                        {.struct_size = sizeof(rd_kv_write_args)}}},
     0,
     {RD_INT("head_dim", DIM), RD_INT("rotary_dim", DIM), RD_WORD("style", "neox"),
      RD_WORD("x_dtype", "fp32"), RD_INT("qk_norm", 1), RD_INT("block_tokens", BLOCK),
      RD_WORD("kv_dtype", "fp8_e4m3"), RD_WORD("k_order", "dim")},
     {IN_HALF(rope, q, NORMAL, OUT("x_dtype"), 3, {TOKENS, Q_HEADS, DIM}),
      IN_HALF(rope, k, NORMAL, OF("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN_HALF(rope, positions, POSITIONS, I32, 1, {TOKENS}),
      IN_HALF(rope, inv_freq, SCALES, F32, 1, {DIM / 2}), IN_HALF(rope, q_norm, NORMAL, F32, 1, {DIM}),
      IN_HALF(rope, k_norm, NORMAL, F32, 1, {DIM}),
      IN_HALF(kv, v, NORMAL, OF("x_dtype"), 3, {TOKENS, KV_HEADS, DIM}),
      IN_HALF(kv, k_cache, ZEROS, OUT("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),
      IN_HALF(kv, v_cache, ZEROS, OUT("kv_dtype"), 4, {BLOCKS, BLOCK, KV_HEADS, DIM}),
      IN_HALF(kv, slots, SLOTS, NULL, RD_DTYPE_I64, false, 1, {TOKENS})}},
    {"embed",
     run_embed,
     {.embed = {.struct_size = sizeof(rd_embed_args), .scale = 1.0f}},
     0,
     {RD_INT("k", K), RD_WORD("table_dtype", "bf16"), RD_WORD("y_dtype", "fp32")},
     {IN(embed, table, NORMAL, OF("table_dtype"), 2, {N, K}), IN(embed, ids, IDS, I32, 1, {TOKENS}),
      IN(embed, y, ZEROS, OUT("y_dtype"), 2, {TOKENS, K})}},
    {"sample",
     run_sample,
     {.sample = {.struct_size = sizeof(rd_sample_args), .rows = greedy}},
     0,
     {RD_INT("vocab", VOCAB)},
     {IN(sample, logits, NORMAL, F32, 2, {M, VOCAB}), IN(sample, ids, ZEROS, OUT_AS(RD_DTYPE_I32), 1, {M})}},
};

static const op_case *case_of(const char *op) {
    for (size_t i = 0; i < RDI_COUNT(cases); i++)
        if (!strcmp(cases[i].op, op)) return &cases[i];
    return NULL;
}

// ---- operands ------------------------------------------------------------------------------------------------------------
static int64_t elems_of(const rd_tensor *tensor) {
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

static void fill_integers(const operand *o, rd_tensor *tensor) {
    int32_t *words = tensor->data;
    int64_t *wide = tensor->data;
    for (int64_t i = 0; i < elems_of(tensor); i++) {
        int32_t value = (int32_t)i; // TABLE: blocks in order
        if (o->fill == IDS) value = (int32_t)(i * 37 % N);
        if (o->fill == POSITIONS) value = (int32_t)(i * 101);
        if (o->fill == LENGTHS) value = (int32_t)(BLOCKS / SEQS * BLOCK - 5 * i); // ragged
        if (o->fill == STARTS) value = (int32_t)(i * TOKENS / SEQS);
        if (o->fill == SLOTS)
            wide[i] = i * 13 + 2;
        else
            words[i] = value;
    }
}

static void fill_tensor(const operand *o, rd_tensor *tensor, uint64_t *state) {
    if (o->fill == ZEROS) return; // allocated zeroed
    if (o->fill >= IDS && o->fill != WEIGHT) {
        fill_integers(o, tensor);
        return;
    }
    for (int64_t i = 0; i < elems_of(tensor); i++) {
        float value = next_value(state);
        rdi_store_f32(tensor->data, tensor->dtype, i,
                      o->fill == SCALES ? 0.01f * (1.5f + value) : 2.0f * value);
    }
}

typedef struct trial { // one row
    rd_ctx *card, *host;
    const op_case *c;
    const rdi_row *row;
    rd_plan *card_plan, *host_plan;
    any_args card_args, host_args;
    void *packed;
    char why[256];
} trial;

static rd_tensor *tensor_at(any_args *args, const operand *o) {
    return (rd_tensor *)(void *)((char *)args + o->offset);
}
#define EACH_OPERAND(o_, case_)                                                                              \
    for (const operand *o_ = (case_)->operands; o_ < (case_)->operands + MOST_OPERANDS && o_->rank; o_++)

// A weight in the layout that the row wants; the reference reads every layout.
static rd_status pack_weight(trial *t, rd_tensor *w) {
    const char *layout = rdi_plan_word(t->card_plan, "layout");
    if (!layout || !strcmp(layout, "row")) return RD_OK;
    rd_tensor packed = {0};
    RDI_TRY(rd_weight_pack(t->host, w, layout, &packed));
    packed.data = t->packed = rdi_alloc((size_t)elems_of(&packed));
    if (!packed.data) return RD_E_NOMEM;
    RDI_TRY(rd_weight_pack(t->host, w, layout, &packed));
    rdi_free(w->data);
    *w = packed;
    t->packed = NULL;
    return RD_OK;
}

static rd_status make_operands(trial *t) {
    uint64_t state = 1;
    t->host_args = t->c->args;
    EACH_OPERAND(o, t->c) {
        rd_dtype dtype = o->key ? rdi_plan_dtype(t->card_plan, o->key) : o->dtype;
        rd_tensor *tensor = tensor_at(&t->host_args, o);
        *tensor = o->rank == 1   ? rd_tensor_1d(NULL, dtype, o->shape[0])
                  : o->rank == 2 ? rd_tensor_2d(NULL, dtype, o->shape[0], o->shape[1])
                  : o->rank == 3
                      ? rd_tensor_3d(NULL, dtype, o->shape[0], o->shape[1], o->shape[2])
                      : rd_tensor_4d(NULL, dtype, o->shape[0], o->shape[1], o->shape[2], o->shape[3]);
        tensor->data = rdi_calloc((size_t)elems_of(tensor), rd_dtype_bytes(dtype));
        if (!tensor->data) return RD_E_NOMEM;
        fill_tensor(o, tensor, &state);
        if (o->fill == WEIGHT) RDI_TRY(pack_weight(t, tensor));
    }
    return RD_OK;
}

static rd_status to_card(trial *t, const void *host, size_t bytes, void **there) {
    RDI_TRY(rd_memory_alloc(t->card, bytes, there));
    RDI_TRY(rd_memory_copy(t->card, *there, host, bytes, RD_COPY_TO_DEVICE, NULL));
    return rd_stream_sync(t->card, NULL);
}

static rd_status copy_operands(trial *t) {
    t->card_args = t->host_args;
    EACH_OPERAND(o, t->c)
    tensor_at(&t->card_args, o)->data = NULL; // so that a failure frees what is the card's
    EACH_OPERAND(o, t->c) {
        rd_tensor *there = tensor_at(&t->card_args, o);
        const rd_tensor *here = tensor_at(&t->host_args, o);
        RDI_TRY(to_card(t, here->data, (size_t)elems_of(here) * rd_dtype_bytes(here->dtype), &there->data));
        there->device = rd_ctx_device_number(t->card);
    }
    if (t->c->run != run_sample) return RD_OK;
    void *settings = NULL;
    RDI_TRY(to_card(t, greedy, sizeof greedy, &settings));
    t->card_args.sample.rows = settings;
    return RD_OK;
}

// ---- one row ---------------------------------------------------------------------------------------------------------------
static rd_status run_once(rd_ctx *ctx, const rd_plan *plan, run_fn run, const any_args *args) {
    size_t bytes = 0;
    void *ws = NULL;
    RDI_TRY(run(plan, args, NULL, &bytes));
    RDI_TRY(rd_memory_alloc(ctx, bytes + 64, &ws));
    rd_status status = run(plan, args, ws, &bytes);
    if (status == RD_OK) status = rd_stream_sync(ctx, NULL);
    rd_status freed = rd_memory_free(ctx, ws);
    return status == RD_OK ? freed : status;
}

static double value_at(const rd_tensor *tensor, const void *data, int64_t at) {
    return tensor->dtype == RD_DTYPE_I32 ? (double)((const int32_t *)data)[at]
                                         : (double)rdi_load_f32(data, tensor->dtype, at);
}

// Mean |difference| against mean |reference|, 1e-2: a bf16 store is off by 4e-3 at most, a wrong kernel by far more.
static bool agrees(const rd_tensor *tensor, const void *got) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < elems_of(tensor); i++) {
        double want = value_at(tensor, tensor->data, i);
        off += fabs(value_at(tensor, got, i) - want);
        size += fabs(want);
    }
    return off <= 1e-2 * size; // false for NaN too
}

static rd_status compare(trial *t) {
    EACH_OPERAND(o, t->c) {
        const rd_tensor *want = tensor_at(&t->host_args, o), *there = tensor_at(&t->card_args, o);
        if (!o->written) continue;
        size_t bytes = (size_t)elems_of(want) * rd_dtype_bytes(want->dtype);
        void *got = rdi_alloc(bytes);
        if (!got) return RD_E_NOMEM;
        rd_status status = rd_memory_copy(t->card, got, there->data, bytes, RD_COPY_TO_HOST, NULL);
        if (status == RD_OK) status = rd_stream_sync(t->card, NULL);
        bool good = status == RD_OK && agrees(want, got);
        rdi_free(got);
        RDI_TRY(status);
        if (!good) snprintf(t->why, sizeof t->why, "its results are not those of the reference");
    }
    return RD_OK;
}

// The case's parameters with what the row insists on.
static int32_t params_for(const trial *t, rd_param params[MOST_PARAMS],
                          char words[MOST_PARAMS][RDI_WORD_BYTES]) {
    int32_t count = 0;
    while (count < MOST_PARAMS && t->c->params[count].key) count++;
    memcpy(params, t->c->params, sizeof t->c->params);
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < t->row->info.constraint_count; j++) {
            const rd_constraint *constraint = &t->row->info.constraints[j];
            if (strcmp(constraint->key, params[i].key) != 0 || params[i].kind != RD_PARAM_WORD ||
                constraint->op != RD_ONE_OF || rdi_words_contain(constraint->words, params[i].word))
                continue;
            snprintf(words[i], RDI_WORD_BYTES, "%.*s", (int)strcspn(constraint->words, " "),
                     constraint->words);
            params[i].word = words[i];
        }
    return count;
}

static rd_status try_row(trial *t, const char *reference) {
    rd_param params[MOST_PARAMS];
    char words[MOST_PARAMS][RDI_WORD_BYTES];
    int32_t count = params_for(t, params, words);
    RDI_TRY(
        rd_plan_create_kernel(t->card, t->row->info.name, params, count, t->c->at, t->c->at, &t->card_plan));
    RDI_TRY(rd_plan_create_kernel(t->host, reference, params, count, t->c->at, t->c->at, &t->host_plan));
    RDI_TRY(make_operands(t));
    RDI_TRY(copy_operands(t));
    RDI_TRY(run_once(t->host, t->host_plan, t->c->run, &t->host_args));
    RDI_TRY(run_once(t->card, t->card_plan, t->c->run, &t->card_args));
    return compare(t);
}

static void free_trial(trial *t) {
    EACH_OPERAND(o, t->c) {
        rdi_free(tensor_at(&t->host_args, o)->data);
        rd_memory_free(t->card, tensor_at(&t->card_args, o)->data);
    }
    if (t->c->run == run_sample && t->card_args.sample.rows != greedy)
        rd_memory_free(t->card, (void *)(uintptr_t)t->card_args.sample.rows);
    rdi_free(t->packed);
    rd_plan_free(t->card_plan);
    rd_plan_free(t->host_plan);
}

static const char *reference_of(const char *op) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (rdi_rows[i].info.is_reference && !strcmp(rdi_rows[i].info.op, op)) return rdi_rows[i].info.name;
    return NULL;
}

rd_status rdi_first_use_run(rd_ctx *ctx, bool *bad) {
    rd_ctx *host = NULL;
    RDI_TRY(rd_ctx_create(
        &(rd_ctx_options){.struct_size = sizeof(rd_ctx_options), .device = "cpu:ref", .threads = 1}, &host));
    rd_status status = RD_OK;
    for (int32_t i = 0; i < ctx->table.count && status == RD_OK; i++) {
        trial t = {
            .card = ctx, .host = host, .row = &ctx->table.rows[i], .c = case_of(ctx->table.rows[i].info.op)};
        bad[i] = false;
        if (t.row->backend != ctx->device->backend || !t.row->geometry || !t.c) continue;
        status = try_row(&t, reference_of(t.c->op));
        // A row that refuses the case, or a card that refuses the row, is a verdict; a card that stopped is an error.
        if (status == RD_E_INTERNAL || status == RD_E_INVALID || status == RD_E_UNSUPPORTED) {
            snprintf(t.why, sizeof t.why, "%s", rd_error_text());
            status = RD_OK;
        }
        bad[i] = *t.why != 0;
        if (bad[i]) rdi_log_write(&ctx->log, RD_LOG_ERROR, "%s is left out: %s", t.row->info.name, t.why);
        free_trial(&t);
    }
    rd_ctx_free(host);
    return status;
}
