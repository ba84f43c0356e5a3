// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Every run entry of radiance.h under systematic misuse: each tensor of a good call gets, one at a time, every lie that a
// caller could tell about pointer, rank, type, device, sizes and strides. The answer is an error that names the field,
// never a crash (the ASan suite runs this too) and never a run.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "radiance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a_) ((int)(sizeof(a_) / sizeof((a_)[0])))
enum { M = 3, K = 256, N = 160, HEADS = 4, KV_HEADS = 2, DIM = 64, BLOCK = 16, BLOCKS = 4, VOCAB = 70 };
enum {
    OPTIONAL = 1,
    ANY_TYPE = 2,
    FREE_ROWS = 4,
    FREE_COLS = 8
}; // what the library cannot or need not refuse

typedef struct field {
    const char *name;
    size_t at; // of the rd_tensor in the args
    int flags;
} field;
typedef rd_status (*run_fn)(const rd_plan *plan, const void *args, void *ws, size_t *ws_bytes);
typedef struct op_case {
    const char *op;
    const rd_param *params;
    int param_count;
    int64_t hi;
    run_fn run;
    const void *args;
    size_t args_bytes;
    const field *fields;
    int field_count;
} op_case;

static rd_ctx *ctx;
static void *buffers[64];
static int buffer_count;
static void *zeros(int64_t bytes) {
    void *data = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    if (!data) abort();
    memset(data, 0, (size_t)bytes);
    buffers[buffer_count++] = data;
    return data;
}
static rd_tensor vector(rd_dtype type, int64_t n) {
    return rd_tensor_1d(zeros(n * (int64_t)rd_dtype_bytes(type)), type, n);
}
static rd_tensor matrix(rd_dtype type, int64_t rows, int64_t cols) {
    return rd_tensor_2d(zeros(rows * cols * (int64_t)rd_dtype_bytes(type)), type, rows, cols);
}
static rd_tensor cube(rd_dtype type, int64_t a, int64_t b, int64_t c) {
    return rd_tensor_3d(zeros(a * b * c * (int64_t)rd_dtype_bytes(type)), type, a, b, c);
}
static rd_tensor cache(rd_dtype type) {
    return rd_tensor_4d(zeros(BLOCKS * BLOCK * KV_HEADS * DIM * (int64_t)rd_dtype_bytes(type)), type, BLOCKS,
                        BLOCK, KV_HEADS, DIM);
}

// ---- the mutations ---------------------------------------------------------------------------------------------------
static rd_status run_bytes(const op_case *c, const rd_plan *plan, const void *args, void *ws,
                           size_t ws_bytes) {
    return c->run(plan, args, ws, ws ? &ws_bytes : NULL);
}

static const int64_t extents[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 62, (int64_t)1 << 40};
static const int64_t strides[] = {-1, INT64_MIN, INT64_MAX};
static const int32_t ranks[] = {-1, 0, 1, 2, 3, 4, 5, 6, INT32_MAX, INT32_MIN};
static const int32_t types[] = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99, INT32_MAX};
static const int32_t devices[] = {1, 7, -1, INT32_MIN};

// Number `index` of the lies about a tensor: what is wrong in words, or NULL past the last; `skip` when it is no lie.
static const char *lie(rd_tensor *t, int index, int flags, bool *skip) {
    *skip = false;
    if (index == 0) return *skip = flags & OPTIONAL, t->data = NULL, "data NULL";
    if (index == 1)
        return *skip = rd_dtype_bytes(t->dtype) == 1, t->data = (char *)t->data + 1, "data misaligned";
    index -= 2;
    if (index < COUNT(ranks)) return *skip = t->rank == ranks[index], t->rank = ranks[index], "rank";
    index -= COUNT(ranks);
    if (index < COUNT(types)) {
        bool floating = types[index] >= RD_DTYPE_F32 && types[index] <= RD_DTYPE_E8M0;
        *skip = (int32_t)t->dtype == types[index] || ((flags & ANY_TYPE) && floating);
        t->dtype = (rd_dtype)types[index];
        return "dtype";
    }
    index -= COUNT(types);
    if (index < COUNT(devices)) return t->device = devices[index], "device";
    index -= COUNT(devices);
    for (int axis = 0; axis < t->rank; axis++) {
        if (index < COUNT(extents)) {
            int free_axis = axis == 0 ? FREE_ROWS : axis == 1 ? FREE_COLS : 0;
            *skip = (flags & free_axis) &&
                    extents[index] == (int64_t)1 << 40; // may be true, for all the library knows
            return t->shape[axis] = extents[index], "shape";
        }
        index -= COUNT(extents);
        if (index < COUNT(strides)) {
            *skip = t->shape[axis] <= 1 && strides[index] == INT64_MAX; // one row needs no stride
            return t->stride[axis] = strides[index], "stride";
        }
        index -= COUNT(strides);
    }
    return NULL;
}

static void tell_every_lie(const op_case *c) {
    rd_plan *plan = NULL;
    if (rd_plan_create(ctx, c->op, c->params, c->param_count, c->hi ? 1 : 0, c->hi, &plan))
        fail_msg("%s", rd_error_text());
    size_t ws_bytes = 0;
    if (c->run(plan, c->args, NULL, &ws_bytes)) fail_msg("%s: %s", c->op, rd_error_text());
    char *ws = aligned_alloc(64, (ws_bytes + 127) / 64 * 64);
    void *args = malloc(c->args_bytes);
    if (!ws || !args) abort();
    if (run_bytes(c, plan, c->args, ws, ws_bytes)) fail_msg("%s: %s", c->op, rd_error_text());
    for (int f = 0; f < c->field_count; f++) {
        bool skip;
        for (int i = 0;; i++) {
            memcpy(args, c->args, c->args_bytes);
            rd_tensor *tensor = (rd_tensor *)(void *)((char *)args + c->fields[f].at);
            const char *what = lie(tensor, i, c->fields[f].flags, &skip);
            if (!what) break;
            if (skip) continue;
            rd_status status = run_bytes(c, plan, args, ws, ws_bytes);
            if (status != RD_E_INVALID || !strstr(rd_error_text(), c->op))
                fail_msg("%s: %s with a wrong %s (lie %d): status %s, \"%s\"", c->op, c->fields[f].name, what,
                         i, rd_status_name(status), rd_error_text());
        }
    }
    // The rest of the call.
    static const uint32_t sizes[] = {0, 4, 8};
    for (int i = 0; i < COUNT(sizes); i++) {
        memcpy(args, c->args, c->args_bytes);
        memcpy(args, &sizes[i], sizeof sizes[i]);
        assert_int_equal(run_bytes(c, plan, args, ws, ws_bytes), RD_E_INVALID);
        assert_non_null(strstr(rd_error_text(), "struct_size="));
    }
    uint32_t newer = (uint32_t)c->args_bytes + 64; // a caller built against a later header
    memcpy(args, c->args, c->args_bytes);
    memcpy(args, &newer, sizeof newer);
    assert_int_equal(run_bytes(c, plan, args, ws, ws_bytes), RD_OK);
    assert_int_equal(c->run(NULL, c->args, ws, &ws_bytes), RD_E_INVALID);
    assert_int_equal(c->run(plan, NULL, ws, &ws_bytes), RD_E_INVALID);
    if (ws_bytes) {
        assert_int_equal(run_bytes(c, plan, c->args, ws, ws_bytes - 1), RD_E_INVALID);
        assert_non_null(strstr(rd_error_text(), "ws_bytes="));
        assert_int_equal(run_bytes(c, plan, c->args, ws + 4, ws_bytes), RD_E_INVALID);
        assert_non_null(strstr(rd_error_text(), "alignment"));
        assert_int_equal(c->run(plan, c->args, NULL, NULL), RD_E_INVALID);
    }
    const rd_param embed[] = {RD_INT("k", K), RD_WORD("table_dtype", "bf16"), RD_WORD("y_dtype", "fp32")};
    const rd_param vocab[] = {RD_INT("vocab", VOCAB)};
    rd_plan *other = NULL;
    bool is_embed = !strcmp(c->op, "embed");
    assert_int_equal(rd_plan_create(ctx, is_embed ? "sample" : "embed", is_embed ? vocab : embed,
                                    is_embed ? 1 : 3, 0, 0, &other),
                     RD_OK);
    assert_int_equal(run_bytes(c, other, c->args, ws, ws_bytes), RD_E_INVALID); // a plan of another op
    rd_plan_free(other);
    assert_int_equal(run_bytes(c, plan, c->args, ws, ws_bytes), RD_OK); // the good call still runs
    free(args), free(ws);
    rd_plan_free(plan);
}

#define CHECK(op_, hi_, run_, args_, fields_, ...)                                                           \
    do {                                                                                                     \
        const rd_param params[] = {__VA_ARGS__};                                                             \
        tell_every_lie(&(op_case){op_, params, COUNT(params), hi_, run_, &(args_), sizeof(args_), fields_,   \
                                  COUNT(fields_)});                                                          \
    } while (0)
#define FIELD(args_, name_, flags_)                                                                          \
    { #name_, offsetof(args_, name_), flags_ }

// ---- the ops ---------------------------------------------------------------------------------------------------------
static rd_status run_gemm(const rd_plan *p, const void *a, void *ws, size_t *bytes) {
    return rd_gemm_run(p, a, ws, bytes, NULL);
}
static rd_status run_quant(const rd_plan *p, const void *a, void *ws, size_t *bytes) {
    return rd_quant_run(p, a, ws, bytes, NULL);
}
static rd_status run_attn(const rd_plan *p, const void *a, void *ws, size_t *bytes) {
    return rd_attn_run(p, a, ws, bytes, NULL);
}
static rd_status run_sample(const rd_plan *p, const void *a, void *ws, size_t *bytes) {
    return rd_sample_run(p, a, ws, bytes, NULL);
}
#define NO_WS(op_)                                                                                           \
    static rd_status run_##op_(const rd_plan *p, const void *a, void *ws, size_t *bytes) {                   \
        (void)ws;                                                                                            \
        if (bytes && !ws) *bytes = 0;                                                                        \
        return rd_##op_##_run(p, a, NULL);                                                                   \
    }
NO_WS(rmsnorm)
NO_WS(rope)
NO_WS(act_mul)
NO_WS(kv_write)
NO_WS(embed)
typedef struct both_args { // two structs in one call
    rd_rope_args rope;
    rd_kv_write_args kv;
} both_args;
static rd_status run_rope_kv_write(const rd_plan *p, const void *args, void *ws, size_t *bytes) {
    const both_args *a = args;
    (void)ws;
    if (bytes && !ws) *bytes = 0;
    return rd_rope_kv_write_run(p, a ? &a->rope : NULL, a ? &a->kv : NULL, NULL);
}

static void test_misuse_gemm(void **state) {
    (void)state;
    static const field fields[] = {FIELD(rd_gemm_args, a, 0),           FIELD(rd_gemm_args, a_scale, 0),
                                   FIELD(rd_gemm_args, w, 0),           FIELD(rd_gemm_args, w_scale, 0),
                                   FIELD(rd_gemm_args, bias, ANY_TYPE), FIELD(rd_gemm_args, c, 0)};
    rd_gemm_args a = {.struct_size = sizeof a,
                      .a = matrix(RD_DTYPE_E4M3, M, K),
                      .a_scale = matrix(RD_DTYPE_F32, M, K / 128),
                      .w = matrix(RD_DTYPE_E4M3, N, K),
                      .w_scale = matrix(RD_DTYPE_F32, 2, K / 128),
                      .bias = vector(RD_DTYPE_F32, N),
                      .c = matrix(RD_DTYPE_F32, M, N)};
    CHECK("gemm_fp8block", 8, run_gemm, a, fields, RD_INT("n", N), RD_INT("k", K), RD_WORD("a_dtype", "fp8"),
          RD_WORD("w_scale_dtype", "fp32"), RD_WORD("c_dtype", "fp32"), RD_WORD("layout", "row"),
          RD_INT("bias", 1));
}

static void test_misuse_quant(void **state) {
    (void)state;
    static const field fields[] = {FIELD(rd_quant_args, x, 0), FIELD(rd_quant_args, residual, ANY_TYPE),
                                   FIELD(rd_quant_args, norm_weight, ANY_TYPE), FIELD(rd_quant_args, q, 0),
                                   FIELD(rd_quant_args, q_scale, 0)};
    static const field silu[] = {FIELD(rd_quant_args, x, 0), FIELD(rd_quant_args, up, ANY_TYPE)};
    rd_quant_args a = {.struct_size = sizeof a,
                       .x = matrix(RD_DTYPE_BF16, M, K),
                       .residual = matrix(RD_DTYPE_F32, M, K),
                       .up = matrix(RD_DTYPE_F32, M, K),
                       .norm_weight = vector(RD_DTYPE_F32, K),
                       .q = matrix(RD_DTYPE_E4M3, M, K),
                       .q_scale = matrix(RD_DTYPE_F32, M, K / 128),
                       .eps = 1e-5f};
    CHECK("quant_fp8", 8, run_quant, a, fields, RD_INT("k", K), RD_WORD("x_dtype", "bf16"),
          RD_WORD("fuse", "add_rmsnorm"));
    CHECK("quant_fp8", 8, run_quant, a, silu, RD_INT("k", K), RD_WORD("x_dtype", "bf16"),
          RD_WORD("fuse", "silu_mul"));
}

static void test_misuse_attn(void **state) {
    (void)state;
    static const field fields[] = {FIELD(rd_attn_args, q, 0),
                                   FIELD(rd_attn_args, k_cache, 0),
                                   FIELD(rd_attn_args, v_cache, 0),
                                   FIELD(rd_attn_args, k_scale, OPTIONAL),
                                   FIELD(rd_attn_args, v_scale, OPTIONAL),
                                   FIELD(rd_attn_args, block_table, FREE_COLS),
                                   FIELD(rd_attn_args, kv_lens, 0),
                                   FIELD(rd_attn_args, q_starts, 0),
                                   FIELD(rd_attn_args, sinks, OPTIONAL),
                                   FIELD(rd_attn_args, out, 0)};
    rd_attn_args a = {.struct_size = sizeof a,
                      .q = cube(RD_DTYPE_BF16, M, HEADS, DIM),
                      .k_cache = cache(RD_DTYPE_E4M3),
                      .v_cache = cache(RD_DTYPE_E4M3),
                      .k_scale = vector(RD_DTYPE_F32, KV_HEADS),
                      .v_scale = vector(RD_DTYPE_F32, KV_HEADS),
                      .block_table = matrix(RD_DTYPE_I32, 1, 2),
                      .kv_lens = vector(RD_DTYPE_I32, 1),
                      .q_starts = vector(RD_DTYPE_I32, 2),
                      .sinks = vector(RD_DTYPE_F32, HEADS),
                      .out = cube(RD_DTYPE_F32, M, HEADS, DIM),
                      .scale = 0.125f};
    ((int32_t *)a.kv_lens.data)[0] = 20, ((int32_t *)a.q_starts.data)[1] = M;
    CHECK("attn_decode", 17, run_attn, a, fields, RD_INT("head_dim", DIM), RD_INT("gqa", HEADS / KV_HEADS),
          RD_INT("block_tokens", BLOCK), RD_WORD("q_dtype", "bf16"), RD_WORD("kv_dtype", "fp8"),
          RD_WORD("out_dtype", "fp32"), RD_WORD("k_order", "dim"), RD_INT("window", 0), RD_INT("softcap", 0),
          RD_INT("sinks", 1), RD_INT("causal", 1));
}

static void test_misuse_elementwise(void **state) {
    (void)state;
    static const field norm_fields[] = {FIELD(rd_rmsnorm_args, x, 0),
                                        FIELD(rd_rmsnorm_args, residual, ANY_TYPE),
                                        FIELD(rd_rmsnorm_args, weight, 0), FIELD(rd_rmsnorm_args, y, 0)};
    rd_rmsnorm_args norm = {.struct_size = sizeof norm,
                            .x = matrix(RD_DTYPE_BF16, M, K),
                            .residual = matrix(RD_DTYPE_F32, M, K),
                            .weight = vector(RD_DTYPE_BF16, K),
                            .y = matrix(RD_DTYPE_F32, M, K),
                            .eps = 1e-5f};
    CHECK("rmsnorm", 8, run_rmsnorm, norm, norm_fields, RD_INT("k", K), RD_WORD("x_dtype", "bf16"),
          RD_WORD("y_dtype", "fp32"), RD_WORD("weight_dtype", "bf16"), RD_INT("residual", 1));
    static const field act_fields[] = {FIELD(rd_act_mul_args, gate, 0), FIELD(rd_act_mul_args, up, 0),
                                       FIELD(rd_act_mul_args, y, 0)};
    rd_act_mul_args act = {.struct_size = sizeof act,
                           .gate = matrix(RD_DTYPE_BF16, M, K),
                           .up = matrix(RD_DTYPE_BF16, M, K),
                           .y = matrix(RD_DTYPE_BF16, M, K)};
    CHECK("act_mul", 8, run_act_mul, act, act_fields, RD_INT("k", K), RD_WORD("act", "silu"),
          RD_WORD("x_dtype", "bf16"), RD_WORD("y_dtype", "bf16"));
    static const field embed_fields[] = {FIELD(rd_embed_args, table, FREE_ROWS), FIELD(rd_embed_args, ids, 0),
                                         FIELD(rd_embed_args, y, 0)};
    rd_embed_args embed = {.struct_size = sizeof embed,
                           .table = matrix(RD_DTYPE_BF16, VOCAB, K),
                           .ids = vector(RD_DTYPE_I32, M),
                           .y = matrix(RD_DTYPE_F32, M, K),
                           .scale = 1};
    CHECK("embed", 0, run_embed, embed, embed_fields, RD_INT("k", K), RD_WORD("table_dtype", "bf16"),
          RD_WORD("y_dtype", "fp32"));
}

static void test_misuse_heads(void **state) {
    (void)state;
    static const field rope_fields[] = {FIELD(rd_rope_args, q, 0),
                                        FIELD(rd_rope_args, k, OPTIONAL),
                                        FIELD(rd_rope_args, positions, 0),
                                        FIELD(rd_rope_args, inv_freq, 0),
                                        FIELD(rd_rope_args, q_norm, ANY_TYPE),
                                        FIELD(rd_rope_args, k_norm, 0)};
    rd_rope_args rope = {.struct_size = sizeof rope,
                         .q = cube(RD_DTYPE_BF16, M, HEADS, DIM),
                         .k = cube(RD_DTYPE_BF16, M, KV_HEADS, DIM),
                         .positions = vector(RD_DTYPE_I32, M),
                         .inv_freq = vector(RD_DTYPE_F32, DIM / 2),
                         .q_norm = vector(RD_DTYPE_F32, DIM),
                         .k_norm = vector(RD_DTYPE_F32, DIM),
                         .eps = 1e-5f};
    CHECK("rope", 0, run_rope, rope, rope_fields, RD_INT("head_dim", DIM), RD_INT("rotary_dim", DIM),
          RD_WORD("style", "neox"), RD_WORD("x_dtype", "bf16"), RD_INT("qk_norm", 1));
    static const field kv_fields[] = {FIELD(rd_kv_write_args, k, 0),
                                      FIELD(rd_kv_write_args, v, 0),
                                      FIELD(rd_kv_write_args, k_cache, 0),
                                      FIELD(rd_kv_write_args, v_cache, 0),
                                      FIELD(rd_kv_write_args, k_scale, OPTIONAL),
                                      FIELD(rd_kv_write_args, v_scale, OPTIONAL),
                                      FIELD(rd_kv_write_args, slots, 0)};
    rd_kv_write_args kv = {.struct_size = sizeof kv,
                           .k = cube(RD_DTYPE_BF16, M, KV_HEADS, DIM),
                           .v = cube(RD_DTYPE_BF16, M, KV_HEADS, DIM),
                           .k_cache = cache(RD_DTYPE_E4M3),
                           .v_cache = cache(RD_DTYPE_E4M3),
                           .k_scale = vector(RD_DTYPE_F32, KV_HEADS),
                           .v_scale = vector(RD_DTYPE_F32, KV_HEADS),
                           .slots = vector(RD_DTYPE_I64, M)};
    for (int h = 0; h < KV_HEADS; h++) ((float *)kv.k_scale.data)[h] = ((float *)kv.v_scale.data)[h] = 1;
    CHECK("kv_write", 0, run_kv_write, kv, kv_fields, RD_INT("head_dim", DIM), RD_INT("block_tokens", BLOCK),
          RD_WORD("x_dtype", "bf16"), RD_WORD("kv_dtype", "fp8"), RD_WORD("k_order", "dim"));
    static const field both_fields[] = {FIELD(both_args, rope.q, 0),
                                        FIELD(both_args, rope.k, 0),
                                        FIELD(both_args, rope.positions, 0),
                                        FIELD(both_args, rope.inv_freq, 0),
                                        FIELD(both_args, rope.q_norm, ANY_TYPE),
                                        FIELD(both_args, rope.k_norm, 0),
                                        FIELD(both_args, kv.k, OPTIONAL),
                                        FIELD(both_args, kv.v, 0),
                                        FIELD(both_args, kv.k_cache, 0),
                                        FIELD(both_args, kv.v_cache, 0),
                                        FIELD(both_args, kv.k_scale, OPTIONAL),
                                        FIELD(both_args, kv.v_scale, OPTIONAL),
                                        FIELD(both_args, kv.slots, 0)};
    both_args both = {rope, kv};
    both.kv.k = both.rope.k;
    CHECK("rope_kv_write", 0, run_rope_kv_write, both, both_fields, RD_INT("head_dim", DIM),
          RD_INT("rotary_dim", DIM), RD_WORD("style", "neox"), RD_WORD("x_dtype", "bf16"),
          RD_INT("qk_norm", 1), RD_INT("block_tokens", BLOCK), RD_WORD("kv_dtype", "fp8"),
          RD_WORD("k_order", "dim"));
    both.kv.struct_size = 8;
    const rd_param params[] = {RD_INT("head_dim", DIM),    RD_INT("rotary_dim", DIM),
                               RD_WORD("style", "neox"),   RD_WORD("x_dtype", "bf16"),
                               RD_INT("qk_norm", 1),       RD_INT("block_tokens", BLOCK),
                               RD_WORD("kv_dtype", "fp8"), RD_WORD("k_order", "dim")};
    rd_plan *plan = NULL;
    assert_int_equal(rd_plan_create(ctx, "rope_kv_write", params, COUNT(params), 0, 0, &plan), RD_OK);
    assert_int_equal(rd_rope_kv_write_run(plan, &both.rope, &both.kv, NULL), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "rope_kv_write: struct_size=8"));
    rd_plan_free(plan);
}

static void test_misuse_sample(void **state) {
    (void)state;
    static const field fields[] = {FIELD(rd_sample_args, logits, 0), FIELD(rd_sample_args, ids, 0)};
    static const rd_sample_row rows[M] = {
        {.temperature = 1, .top_p = 1}, {.temperature = 0}, {.temperature = 1, .top_k = 3, .top_p = 1}};
    rd_sample_args a = {.struct_size = sizeof a,
                        .logits = matrix(RD_DTYPE_F32, M, VOCAB),
                        .rows = rows,
                        .ids = vector(RD_DTYPE_I32, M)};
    CHECK("sample", 0, run_sample, a, fields, RD_INT("vocab", VOCAB));
}

static int open_ctx(void **state) {
    (void)state;
    return rd_ctx_create(&(rd_ctx_options){.struct_size = sizeof(rd_ctx_options), .threads = 2}, &ctx);
}
static int close_ctx(void **state) {
    (void)state;
    for (int i = 0; i < buffer_count; i++) free(buffers[i]);
    rd_ctx_free(ctx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misuse_gemm),  cmocka_unit_test(test_misuse_quant),
        cmocka_unit_test(test_misuse_attn),  cmocka_unit_test(test_misuse_elementwise),
        cmocka_unit_test(test_misuse_heads), cmocka_unit_test(test_misuse_sample),
    };
    return cmocka_run_group_tests(tests, open_ctx, close_ctx);
}
