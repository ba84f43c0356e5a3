// SPDX-License-Identifier: Apache-2.0
// labels: threads
// The small ops through the public header: a plan, a run, the right numbers; then every operand wrong in turn, refused with
// the field, the value seen and what is needed, before anything is written. And kernels named by the caller.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "radiance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static rd_ctx *ctx;
static int open_ctx(void **state) {
    (void)state;
    return rd_ctx_create(&(rd_ctx_options){.struct_size = sizeof(rd_ctx_options), .threads = 2}, &ctx) ==
                   RD_OK
               ? 0
               : -1;
}
static int close_ctx(void **state) {
    (void)state;
    rd_ctx_free(ctx);
    return 0;
}

#define COUNT(a_) ((int32_t)(sizeof(a_) / sizeof((a_)[0])))
static rd_plan *plan_of(const char *op, const rd_param *params, int32_t count, int64_t hi) {
    rd_plan *plan = NULL;
    if (rd_plan_create(ctx, op, params, count, hi ? 1 : 0, hi, &plan) != RD_OK)
        fail_msg("%s", rd_error_text());
    return plan;
}
static void refused(rd_status status, rd_status wanted, const char *text) {
    if (status != wanted || !strstr(rd_error_text(), text))
        fail_msg("status %d: \"%s\", wanted %d: \"%s\"", status, rd_error_text(), wanted, text);
}

static void test_rmsnorm_run(void **state) {
    (void)state;
    const rd_param params[] = {RD_INT("k", 4), RD_WORD("x_dtype", "fp32"), RD_WORD("y_dtype", "fp32"),
                               RD_WORD("weight_dtype", "fp32"), RD_INT("residual", 1)};
    rd_plan *plan = plan_of("rmsnorm", params, COUNT(params), 8);
    float x[] = {1, 2, 3, 4, 0, 0, 0, 0}, residual[] = {0, 0, 0, 0, 2, 2, 2, 2}, weight[] = {1, 1, 2, 0},
          y[8];
    rd_rmsnorm_args a = {.struct_size = sizeof a,
                         .x = rd_tensor_2d(x, RD_DTYPE_F32, 2, 4),
                         .residual = rd_tensor_2d(residual, RD_DTYPE_F32, 2, 4),
                         .weight = rd_tensor_1d(weight, RD_DTYPE_F32, 4),
                         .y = rd_tensor_2d(y, RD_DTYPE_F32, 2, 4)};
    assert_int_equal(rd_rmsnorm_run(plan, &a, NULL), RD_OK);
    const double rms = sqrt(30.0 / 4);
    const double wanted[] = {1 / rms, 2 / rms, 6 / rms, 0, 1, 1, 2, 0};
    for (int i = 0; i < 8; i++) assert_true(fabs((double)y[i] - wanted[i]) < 1e-6);
    rd_rmsnorm_args bad = a;
    bad.struct_size = 8;
    refused(rd_rmsnorm_run(plan, &bad, NULL), RD_E_INVALID, "rmsnorm: struct_size=8, needs");
    bad = a, bad.x.data = NULL;
    refused(rd_rmsnorm_run(plan, &bad, NULL), RD_E_INVALID, "rmsnorm: x: data=NULL");
    bad = a, bad.x.dtype = RD_DTYPE_BF16;
    refused(rd_rmsnorm_run(plan, &bad, NULL), RD_E_INVALID, "rmsnorm: x: dtype=bf16, needs fp32");
    bad = a, bad.weight.shape[0] = 5;
    refused(rd_rmsnorm_run(plan, &bad, NULL), RD_E_INVALID, "rmsnorm: weight: shape[0]=5, needs 4");
    bad = a, bad.residual.data = NULL;
    refused(rd_rmsnorm_run(plan, &bad, NULL), RD_E_INVALID,
            "rmsnorm: residual is not given, needs what the plan says: residual=1");
    bad = a, bad.y.stride[0] = 2;
    refused(rd_rmsnorm_run(plan, &bad, NULL), RD_E_INVALID, "rmsnorm: y: stride[0]=2, needs >= 4");
    bad = a, bad.x.stride[1] = 2;
    refused(rd_rmsnorm_run(plan, &bad, NULL), RD_E_INVALID, "rmsnorm: x: stride[1]=2, needs 1");
    bad = a, bad.x.shape[0] = bad.y.shape[0] = bad.residual.shape[0] = 9;
    refused(rd_rmsnorm_run(plan, &bad, NULL), RD_E_INVALID, "m=9: the plan covers 1..8");
    refused(rd_rmsnorm_run(NULL, &a, NULL), RD_E_INVALID, "rmsnorm: plan=NULL");
    refused(rd_rmsnorm_run(plan, NULL, NULL), RD_E_INVALID, "rmsnorm: args=NULL");
    refused(rd_act_mul_run(plan, &(rd_act_mul_args){.struct_size = sizeof(rd_act_mul_args)}, NULL),
            RD_E_INVALID, "act_mul: the plan is for rmsnorm");
    rd_plan_free(plan);
}

static void test_act_mul_run(void **state) {
    (void)state;
    const rd_param params[] = {RD_INT("k", 3), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"),
                               RD_WORD("y_dtype", "fp32")};
    rd_plan *plan = plan_of("act_mul", params, COUNT(params), 1);
    float gate[] = {0, 1, -2}, up[] = {5, 2, 3}, y[3];
    rd_act_mul_args a = {sizeof a, rd_tensor_2d(gate, RD_DTYPE_F32, 1, 3),
                         rd_tensor_2d(up, RD_DTYPE_F32, 1, 3), rd_tensor_2d(y, RD_DTYPE_F32, 1, 3)};
    assert_int_equal(rd_act_mul_run(plan, &a, NULL), RD_OK);
    for (int i = 0; i < 3; i++)
        assert_true(fabs((double)y[i] - (double)up[i] * gate[i] / (1 + exp(-(double)gate[i]))) < 1e-6);
    a.up.shape[1] = 2;
    refused(rd_act_mul_run(plan, &a, NULL), RD_E_INVALID, "act_mul: up: shape[1]=2, needs 3");
    rd_plan_free(plan);
}

static void test_rope_run(void **state) {
    (void)state;
    const rd_param params[] = {RD_INT("head_dim", 4), RD_INT("rotary_dim", 4),
                               RD_WORD("style", "interleaved"), RD_WORD("x_dtype", "fp32"),
                               RD_INT("qk_norm", 0)};
    rd_plan *plan = plan_of("rope", params, COUNT(params), 0);
    float q[] = {1, 0, 0, 1, 1, 0, 0, 1}, inv_freq[] = {1, 0.25f};
    int32_t positions[] = {0, 3};
    rd_rope_args a = {.struct_size = sizeof a,
                      .q = rd_tensor_3d(q, RD_DTYPE_F32, 2, 1, 4),
                      .positions = rd_tensor_1d(positions, RD_DTYPE_I32, 2),
                      .inv_freq = rd_tensor_1d(inv_freq, RD_DTYPE_F32, 2)};
    assert_int_equal(rd_rope_run(plan, &a, NULL), RD_OK);
    const double wanted[] = {1, 0, 0, 1, cos(3), sin(3), -sin(0.75), cos(0.75)};
    for (int i = 0; i < 8; i++) assert_true(fabs((double)q[i] - wanted[i]) < 1e-6);
    positions[1] = -1;
    refused(rd_rope_run(plan, &a, NULL), RD_E_INVALID, "rope: positions[1]=-1, needs 0..4194304");
    positions[1] = 3, a.inv_freq.shape[0] = 1;
    refused(rd_rope_run(plan, &a, NULL), RD_E_INVALID, "rope: inv_freq: shape[0]=1, needs 2");
    a.inv_freq.shape[0] = 2, a.q_norm = rd_tensor_1d(inv_freq, RD_DTYPE_F32, 4);
    refused(rd_rope_run(plan, &a, NULL), RD_E_INVALID,
            "rope: q_norm is given, needs what the plan says: qk_norm=0");
    rd_plan_free(plan);
}

static void test_embed_run(void **state) {
    (void)state;
    const rd_param params[] = {RD_INT("k", 2), RD_WORD("table_dtype", "bf16"), RD_WORD("y_dtype", "fp32")};
    rd_plan *plan = plan_of("embed", params, COUNT(params), 0);
    uint16_t table[] = {0x3f80, 0x4000, 0x4040, 0x4080, 0xbf80, 0}; // 1 2, 3 4, -1 0
    int32_t ids[] = {2, 1};
    float y[4];
    rd_embed_args a = {sizeof a, rd_tensor_2d(table, RD_DTYPE_BF16, 3, 2), rd_tensor_1d(ids, RD_DTYPE_I32, 2),
                       rd_tensor_2d(y, RD_DTYPE_F32, 2, 2), 2};
    assert_int_equal(rd_embed_run(plan, &a, NULL), RD_OK);
    assert_true(y[0] == -2 && y[1] == 0 && y[2] == 6 && y[3] == 8);
    ids[1] = 3;
    refused(rd_embed_run(plan, &a, NULL), RD_E_INVALID, "embed: ids[1]=3, needs 0..2");
    ids[1] = -1;
    refused(rd_embed_run(plan, &a, NULL), RD_E_INVALID, "embed: ids[1]=-1, needs 0..2");
    rd_plan_free(plan);
}

static void test_kv_write_run(void **state) {
    (void)state;
    const rd_param params[] = {RD_INT("head_dim", 2), RD_INT("block_tokens", 16), RD_WORD("x_dtype", "fp32"),
                               RD_WORD("kv_dtype", "fp8_e4m3"), RD_WORD("k_order", "token")};
    rd_plan *plan = plan_of("kv_write", params, COUNT(params), 0);
    float k[] = {1, 2, 3, 4}, v[] = {5, 6, 7, 8}, scale[] = {2};
    uint8_t k_cache[64], v_cache[64], empty[64];
    int64_t slots[] = {17, -1};
    memset(k_cache, 0xff, 64), memset(v_cache, 0xff, 64), memset(empty, 0xff, 64);
    rd_kv_write_args a = {.struct_size = sizeof a,
                          .k = rd_tensor_3d(k, RD_DTYPE_F32, 2, 1, 2),
                          .v = rd_tensor_3d(v, RD_DTYPE_F32, 2, 1, 2),
                          .k_cache = rd_tensor_4d(k_cache, RD_DTYPE_E4M3, 2, 16, 1, 2),
                          .v_cache = rd_tensor_4d(v_cache, RD_DTYPE_E4M3, 2, 16, 1, 2),
                          .k_scale = rd_tensor_1d(scale, RD_DTYPE_F32, 1),
                          .slots = rd_tensor_1d(slots, RD_DTYPE_I64, 2)};
    refused(rd_kv_write_run(plan, &a, NULL), RD_E_INVALID, "kv_write: k_cache: stride[1]=2, needs 1");
    a.k_cache.stride[1] = 1, a.k_cache.stride[3] = 16;
    slots[0] = 32;
    refused(rd_kv_write_run(plan, &a, NULL), RD_E_INVALID, "kv_write: slots[0]=32, needs < 32");
    slots[0] = 17, scale[0] = 0;
    refused(rd_kv_write_run(plan, &a, NULL), RD_E_INVALID,
            "kv_write: k_scale[0]=0, needs a finite number > 0");
    scale[0] = 2;
    assert_memory_equal(k_cache, empty, 64); // refused calls wrote nothing
    assert_int_equal(rd_kv_write_run(plan, &a, NULL), RD_OK);
    empty[32 + 1] = 0x30, empty[32 + 16 + 1] = 0x38; // 0.5 and 1 at block 1, token 1, dims 0 and 1
    assert_memory_equal(k_cache, empty, 64);
    memset(empty, 0xff, 64), empty[34] = 0x4a, empty[35] = 0x4c; // 5 and 6
    assert_memory_equal(v_cache, empty, 64);
    rd_plan_free(plan);
}

static void test_sample_run(void **state) {
    (void)state;
    const rd_param params[] = {RD_INT("vocab", 6)};
    rd_plan *plan = plan_of("sample", params, 1, 0);
    float logits[] = {0, 3, 3, 1, 0, 0};
    rd_sample_row row = {.temperature = 0, .top_k = 6, .top_p = -5};
    int32_t id = -2;
    size_t bytes = 0;
    rd_sample_args a = {sizeof a, rd_tensor_2d(logits, RD_DTYPE_F32, 1, 6), &row,
                        rd_tensor_1d(&id, RD_DTYPE_I32, 1)};
    rd_sample_args unallocated = a;
    unallocated.logits.data = unallocated.ids.data = NULL;
    assert_int_equal(rd_sample_run(plan, &unallocated, NULL, &bytes, NULL), RD_OK);
    assert_true(bytes > 0 && id == -2);
    void *ws = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_int_equal(rd_sample_run(plan, &a, ws, &bytes, NULL), RD_OK);
    assert_int_equal(id, 1);
    row = (rd_sample_row){.temperature = -1, .top_p = 1};
    refused(rd_sample_run(plan, &a, ws, &bytes, NULL), RD_E_INVALID,
            "sample: rows[0].temperature=-1, needs 0 or a finite");
    row = (rd_sample_row){.temperature = 1, .top_p = 1.5f};
    refused(rd_sample_run(plan, &a, ws, &bytes, NULL), RD_E_INVALID, "sample: rows[0].top_p=1.5, needs 0..1");
    row = (rd_sample_row){.temperature = 1, .top_p = 1, .min_p = NAN};
    refused(rd_sample_run(plan, &a, ws, &bytes, NULL), RD_E_INVALID, "sample: rows[0].min_p=");
    row = (rd_sample_row){.temperature = 1, .top_p = 1, .top_k = -1};
    refused(rd_sample_run(plan, &a, ws, &bytes, NULL), RD_E_INVALID, "sample: rows[0].top_k=-1, needs >= 0");
    size_t small = bytes - 1;
    refused(rd_sample_run(plan, &a, ws, &small, NULL), RD_E_INVALID, "sample: ws_bytes=");
    free(ws);
    rd_plan_free(plan);
}

static void test_quant_run(void **state) {
    (void)state;
    const rd_param params[] = {RD_INT("k", 130), RD_WORD("x_dtype", "fp32"), RD_WORD("fuse", "none")};
    rd_plan *plan = plan_of("quant_fp8", params, COUNT(params), 4);
    float x[130] = {448, -224}, scale[2];
    uint8_t q[130];
    x[129] = -7;
    rd_quant_args a = {.struct_size = sizeof a,
                       .x = rd_tensor_2d(x, RD_DTYPE_F32, 1, 130),
                       .q = rd_tensor_2d(q, RD_DTYPE_E4M3, 1, 130),
                       .q_scale = rd_tensor_2d(scale, RD_DTYPE_F32, 1, 2)};
    size_t bytes = 99;
    assert_int_equal(rd_quant_run(plan, &a, NULL, &bytes, NULL), RD_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(rd_quant_run(plan, &a, NULL, NULL, NULL), RD_OK);
    assert_true(scale[0] == 1 && scale[1] == 7.0f / 448 && q[0] == 0x7e && q[1] == 0xf6 && q[129] == 0xfe);
    a.q_scale.shape[1] = 1;
    refused(rd_quant_run(plan, &a, NULL, NULL, NULL), RD_E_INVALID,
            "quant_fp8: q_scale: shape[1]=1, needs 2");
    rd_plan_free(plan);
}

static void test_plan_forced_kernel(void **state) {
    (void)state;
    const rd_param params[] = {RD_INT("head_dim", 514), RD_INT("rotary_dim", 64), RD_WORD("style", "neox"),
                               RD_WORD("x_dtype", "fp32"), RD_INT("qk_norm", 0)};
    rd_plan *plan = NULL;
    assert_int_equal(rd_plan_create_kernel(ctx, "rope_cpu_ref", params, COUNT(params), 0, 0, &plan), RD_OK);
    assert_string_equal(rd_plan_kernel(plan, 0)->name, "rope_cpu_ref");
    rd_plan_free(plan);
    refused(rd_plan_create_kernel(ctx, "rope_cpu_portable", params, COUNT(params), 0, 0, &plan),
            RD_E_UNSUPPORTED, "head_dim=514, needs <= 512");
    assert_null(plan);
    refused(rd_plan_create_kernel(ctx, "rope_cpu_mmx", params, COUNT(params), 0, 0, &plan), RD_E_INVALID,
            "kernel=rope_cpu_mmx, needs one of");
    refused(rd_plan_create_kernel(ctx, NULL, params, COUNT(params), 0, 0, &plan), RD_E_INVALID,
            "kernel=NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm_run),  cmocka_unit_test(test_act_mul_run),
        cmocka_unit_test(test_rope_run),     cmocka_unit_test(test_embed_run),
        cmocka_unit_test(test_kv_write_run), cmocka_unit_test(test_sample_run),
        cmocka_unit_test(test_quant_run),    cmocka_unit_test(test_plan_forced_kernel),
    };
    return cmocka_run_group_tests(tests, open_ctx, close_ctx);
}
