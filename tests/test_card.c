// SPDX-License-Identifier: Apache-2.0
// A card through the public header alone (the simulated one, or RADIANCE_TEST_CARD's): memory, streams, a kernel's numbers,
// graphs, timers, and what is refused.
#include "support/card_rig.h"

#include <math.h>
#include <stdlib.h>

enum { M = 3, K = 300 };

static void test_memory_and_streams(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    uint8_t *there, *other, *pinned, back[256];
    rd_stream stream = NULL;
    must(rd_stream_create(ctx, &stream));
    assert_non_null(stream);
    must(rd_memory_alloc(ctx, 256, (void **)&there));
    must(rd_memory_alloc(ctx, 256, (void **)&other));
    must(rd_memory_alloc_host(ctx, 256, (void **)&pinned));
    assert_int_equal((uintptr_t)there % 64, 0);
    for (int i = 0; i < 256; i++) pinned[i] = (uint8_t)(255 - i);
    must(rd_memory_copy(ctx, there, pinned, 256, RD_COPY_TO_DEVICE, stream));
    must(rd_memory_set(ctx, there + 16, 7, 4, stream));
    must(rd_memory_copy(ctx, other, there, 256, RD_COPY_ON_DEVICE, stream));
    from_card(ctx, back, other, 256, stream);
    for (int i = 0; i < 256; i++) assert_int_equal(back[i], i >= 16 && i < 20 ? 7 : 255 - i);
    size_t free_bytes = 0, total_bytes = 0;
    must(rd_memory_info(ctx, &free_bytes, &total_bytes));
    assert_true(free_bytes > 0 && free_bytes < total_bytes);
    must(rd_memory_free(ctx, there));
    must(rd_memory_free(ctx, other));
    must(rd_memory_free(ctx, NULL));
    must(rd_memory_free_host(ctx, pinned));
    must(rd_stream_free(ctx, stream));
    rd_ctx_free(ctx);
}

typedef struct act_case {
    float gate[M * K], up[M * K];
    rd_plan *plan;
    rd_act_mul_args args;
} act_case;

static void act_case_make(rd_ctx *ctx, act_case *c) {
    const rd_param params[] = {RD_INT("k", K), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"),
                               RD_WORD("y_dtype", "fp32")};
    for (int i = 0; i < M * K; i++) {
        c->gate[i] = (float)(i % 37 - 18) / 4;
        c->up[i] = (float)(i % 11) - 5;
    }
    must(rd_plan_create(ctx, "act_mul", params, 4, 1, M, &c->plan));
    assert_string_equal(rd_plan_kernel(c->plan, M)->name,
                        card_is_simulated() ? "act_mul_gfx1201" : "act_mul_sm90a");
    c->args = (rd_act_mul_args){sizeof c->args, to_card(ctx, rd_tensor_2d(c->gate, RD_DTYPE_F32, M, K)),
                                to_card(ctx, rd_tensor_2d(c->up, RD_DTYPE_F32, M, K)),
                                to_card(ctx, rd_tensor_2d(c->up, RD_DTYPE_F32, M, K))};
}

static void act_case_free(rd_ctx *ctx, act_case *c) {
    rd_plan_free(c->plan);
    must(rd_memory_free(ctx, c->args.gate.data));
    must(rd_memory_free(ctx, c->args.up.data));
    must(rd_memory_free(ctx, c->args.y.data));
}

static void act_case_check(rd_ctx *ctx, const act_case *c, rd_stream stream) {
    float y[M * K];
    from_card(ctx, y, c->args.y.data, sizeof y, stream);
    for (int i = 0; i < M * K; i++) {
        double g = (double)c->gate[i], wanted = g / (1 + exp(-g)) * (double)c->up[i];
        if (fabs((double)y[i] - wanted) > 1e-6 * fabs(wanted) + 1e-30)
            fail_msg("y[%d]=%g, wanted %g", i, (double)y[i], wanted);
    }
}

static void test_run_and_graph(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    act_case c;
    rd_stream stream = NULL;
    rd_graph *graph = NULL;
    rd_timer *timer = NULL;
    double microseconds = -1;
    act_case_make(ctx, &c);
    must(rd_stream_create(ctx, &stream));
    must(rd_timer_create(ctx, &timer));
    must(rd_timer_start(timer, stream));
    must(rd_act_mul_run(c.plan, &c.args, stream));
    must(rd_timer_stop(timer, stream));
    act_case_check(ctx, &c, stream);
    must(rd_timer_read(timer, &microseconds));
    assert_true(microseconds > 0);
    // Recorded, not run: the output keeps what it had; each launch computes from what the operands hold then.
    must(rd_memory_set(ctx, c.args.y.data, 0, sizeof c.gate, stream));
    must(rd_graph_begin(ctx, stream));
    must(rd_act_mul_run(c.plan, &c.args, stream));
    must(rd_graph_end(ctx, stream, &graph));
    float first = -1;
    from_card(ctx, &first, c.args.y.data, sizeof first, stream);
    assert_true(first == 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < M * K; i++) c.gate[i] += 0.25f;
        must(rd_memory_copy(ctx, c.args.gate.data, c.gate, sizeof c.gate, RD_COPY_TO_DEVICE, stream));
        must(rd_graph_launch(graph, stream));
        act_case_check(ctx, &c, stream);
    }
    rd_graph_free(graph);
    rd_timer_free(timer);
    must(rd_stream_free(ctx, stream));
    act_case_free(ctx, &c);
    rd_ctx_free(ctx);
}

static void test_places_are_checked(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx(), *host = NULL;
    if (!ctx) skip();
    act_case c;
    act_case_make(ctx, &c);
    rd_act_mul_args bad = c.args;
    bad.up.device = 0;
    char text[64];
    snprintf(text, sizeof text, "act_mul: up: device=0, needs 1 (%s)", card_device());
    refused(rd_act_mul_run(c.plan, &bad, NULL), RD_E_INVALID, text);
    const rd_param params[] = {RD_INT("k", K), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"),
                               RD_WORD("y_dtype", "fp32")};
    rd_plan *plan = NULL;
    must(rd_ctx_create(&(rd_ctx_options){.struct_size = sizeof(rd_ctx_options), .threads = 1}, &host));
    assert_int_equal(rd_ctx_device_number(host), 0);
    assert_int_equal(rd_ctx_device_number(ctx), 1);
    must(rd_plan_create(host, "act_mul", params, 4, 1, M, &plan));
    refused(rd_act_mul_run(plan, &c.args, NULL), RD_E_INVALID,
            "act_mul: gate: device=1, needs 0 (host memory)");
    rd_plan_free(plan);
    rd_graph *graph = NULL;
    refused(rd_graph_end(host, NULL, &graph), RD_E_UNSUPPORTED, "device=cpu, needs a card");
    rd_ctx_free(host);
    act_case_free(ctx, &c);
    rd_ctx_free(ctx);
}

static rd_plan *plan_of(rd_ctx *ctx, const char *op, const rd_param *params, int32_t count, int64_t hi) {
    rd_plan *plan = NULL;
    must(rd_plan_create(ctx, op, params, count, hi ? 1 : 0, hi, &plan));
    return plan;
}
static rd_tensor on_card(rd_tensor tensor) {
    tensor.device = 1;
    return tensor;
}

// No token, row or sequence: done at once, as on a host, though no grid is so small. An attention call still answers with its workspace.
static void test_calls_of_nothing(void **state) {
    (void)state;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    void *at = NULL;
    must(rd_memory_alloc(ctx, 1 << 16, &at));
    const rd_param embed[] = {RD_INT("k", 64), RD_WORD("table_dtype", "bf16"), RD_WORD("y_dtype", "bf16")};
    rd_plan *plan = plan_of(ctx, "embed", embed, 3, 0);
    const rd_embed_args embed_args = {.struct_size = sizeof embed_args,
                                      .table = on_card(rd_tensor_2d(at, RD_DTYPE_BF16, 9, 64)),
                                      .ids = on_card(rd_tensor_1d(at, RD_DTYPE_I32, 0)),
                                      .y = on_card(rd_tensor_2d(at, RD_DTYPE_BF16, 0, 64)),
                                      .scale = 1};
    must(rd_embed_run(plan, &embed_args, NULL));
    rd_plan_free(plan);
    const rd_param rope[] = {RD_INT("head_dim", 128), RD_INT("rotary_dim", 128), RD_WORD("style", "neox"),
                             RD_WORD("x_dtype", "bf16"), RD_INT("qk_norm", 0)};
    plan = plan_of(ctx, "rope", rope, 5, 0);
    const rd_rope_args rope_args = {.struct_size = sizeof rope_args,
                                    .q = on_card(rd_tensor_3d(at, RD_DTYPE_BF16, 0, 4, 128)),
                                    .k = on_card(rd_tensor_3d(at, RD_DTYPE_BF16, 0, 2, 128)),
                                    .positions = on_card(rd_tensor_1d(at, RD_DTYPE_I32, 0)),
                                    .inv_freq = on_card(rd_tensor_1d(at, RD_DTYPE_F32, 64))};
    must(rd_rope_run(plan, &rope_args, NULL));
    rd_plan_free(plan);
    const rd_param sample[] = {RD_INT("vocab", 300)};
    const rd_sample_row greedy = {0};
    plan = plan_of(ctx, "sample", sample, 1, 0);
    const rd_sample_args sample_args = {.struct_size = sizeof sample_args,
                                        .logits = on_card(rd_tensor_2d(at, RD_DTYPE_F32, 0, 300)),
                                        .rows = &greedy,
                                        .ids = on_card(rd_tensor_1d(at, RD_DTYPE_I32, 0))};
    size_t bytes = 1 << 16;
    must(rd_sample_run(plan, &sample_args, at, &bytes, NULL));
    rd_plan_free(plan);
    const rd_param attn[] = {RD_INT("head_dim", 128),
                             RD_INT("gqa", 2),
                             RD_INT("block_tokens", 16),
                             RD_WORD("q_dtype", "fp32"),
                             RD_WORD("kv_dtype", "fp8_e4m3"),
                             RD_WORD("out_dtype", "fp32"),
                             RD_WORD("k_order", "dim"),
                             RD_INT("window", 0),
                             RD_INT("softcap", 0),
                             RD_INT("sinks", 0),
                             RD_INT("causal", 1)};
    plan = plan_of(ctx, "attn_decode", attn, 11, 16);
    for (int tokens = 0; tokens <= 1; tokens++) {
        rd_attn_args args = {.struct_size = sizeof args, .scale = 1, .max_q_len = 1};
        args.q = on_card(rd_tensor_3d(at, RD_DTYPE_F32, tokens, 4, 128)), args.out = args.q;
        args.k_cache = args.v_cache = on_card(rd_tensor_4d(at, RD_DTYPE_E4M3, 2, 16, 2, 128));
        args.kv_lens = on_card(rd_tensor_1d(at, RD_DTYPE_I32, !tokens));
        args.q_starts = on_card(rd_tensor_1d(at, RD_DTYPE_I32, !tokens + 1));
        args.block_table = on_card(rd_tensor_2d(at, RD_DTYPE_I32, !tokens, 1));
        bytes = 77;
        must(rd_attn_run(plan, &args, NULL, &bytes, NULL));
        assert_int_equal(bytes, 0);
        must(rd_attn_run(plan, &args, at, &bytes, NULL));
    }
    rd_plan_free(plan);
    must(rd_memory_free(ctx, at));
    rd_ctx_free(ctx);
}

static void test_host_memory_through_the_same_calls(void **state) {
    (void)state;
    rd_ctx *host = NULL;
    must(rd_ctx_create(&(rd_ctx_options){.struct_size = sizeof(rd_ctx_options), .threads = 1}, &host));
    char *memory = NULL, text[] = "here";
    rd_stream stream = host;
    must(rd_stream_create(host, &stream));
    assert_null(stream);
    must(rd_memory_alloc(host, 64, (void **)&memory));
    must(rd_memory_copy(host, memory, text, sizeof text, RD_COPY_TO_DEVICE, stream));
    assert_string_equal(memory, "here");
    must(rd_memory_set(host, memory, 'x', 2, stream));
    must(rd_stream_sync(host, stream));
    assert_string_equal(memory, "xxre");
    refused(rd_memory_copy(host, memory, text, 1, (rd_copy)9, stream), RD_E_INVALID,
            "direction=9, needs 0 to 2");
    refused(rd_memory_alloc(host, 64, NULL), RD_E_INVALID, "out=NULL");
    refused(rd_memory_alloc(NULL, 64, (void **)&memory), RD_E_INVALID, "ctx=NULL");
    must(rd_memory_free(host, memory));
    rd_ctx_free(host);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_and_streams),
        cmocka_unit_test(test_run_and_graph),
        cmocka_unit_test(test_places_are_checked),
        cmocka_unit_test(test_calls_of_nothing),
        cmocka_unit_test(test_host_memory_through_the_same_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
