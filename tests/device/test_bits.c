// SPDX-License-Identifier: Apache-2.0
// Rows of order class "step" on a card: the bits of a GEMM's row for every count of rows from 1 to 128, of an attention row for every
// width and batch, and of a recorded call for every length up to its bound. Then contexts: two in two threads, one beside the
// context that another library has made current, and one whose kernel faults.
//
// RADIANCE_TEST_CARD names the card (default: the simulated one).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pthread
#endif
#include "support/card_rig.h"

#include <dlfcn.h>
#include <pthread.h>

enum { ROWS = 128, HEAD = 128, BLOCK = 64, WIDTH = 17 };
static uint64_t state = 1442695040888963407u;
static uint32_t draw(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static void *put(rd_ctx *ctx, const void *host, size_t bytes) {
    void *there = NULL;
    must(rd_memory_alloc(ctx, bytes, &there));
    must(rd_memory_copy(ctx, there, host, bytes, RD_COPY_TO_DEVICE, NULL));
    must(rd_stream_sync(ctx, NULL));
    return there;
}

// Random values of a type on the card: e4m3 below 2, bf16 and f32 within 2, scales when `positive`.
static void *put_random(rd_ctx *ctx, rd_dtype dtype, size_t count, bool positive) {
    const size_t bytes = rd_dtype_bytes(dtype);
    unsigned char *host = malloc(count * bytes);
    for (size_t i = 0; i < count; i++) {
        float value = positive ? 0.01f * (float)(1 + draw() % 100) : (float)(int32_t)draw() * 0x1p-30f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == RD_DTYPE_E4M3)
            host[i] = (uint8_t)(draw() & 0xbf);
        else
            memcpy(host + i * bytes, (unsigned char *)&bits + (dtype == RD_DTYPE_BF16 ? 2 : 0), bytes);
    }
    void *there = put(ctx, host, count * bytes);
    free(host);
    return there;
}

// ---- GEMM: rows 1..128 ---------------------------------------------------------------------------------------------------------
typedef struct gemm_case {
    const char *op;
    rd_dtype a_dtype;
    int n, k, stride, step; // stride: of weight rows; step: of the counts that are tried
} gemm_case;

static rd_plan *plan_gemm(rd_ctx *ctx, const gemm_case *c) {
    const bool bf16_weight = !strcmp(c->op, "gemm_bf16");
    rd_param p[] = {RD_INT("n", c->n),          RD_INT("k", c->k),
                    RD_INT("bias", 0),          RD_WORD("a_dtype", rd_dtype_name(c->a_dtype)),
                    RD_WORD("c_dtype", "fp32"), RD_WORD("layout", "row"),
                    RD_WORD("order", "step"),   RD_WORD("w_scale_dtype", "fp32")};
    rd_plan *plan = NULL;
    int32_t most = ROWS;
    rd_status status = rd_plan_create(ctx, c->op, p, 8 - bf16_weight, 1, most, &plan);
    if (status == RD_E_UNSUPPORTED)
        print_message("%s %d x %d is left out: %s\n", c->op, c->n, c->k, rd_error_text());
    else
        must(status);
    return plan;
}

typedef struct gemm_operands {
    const gemm_case *c;
    rd_ctx *ctx;
    void *a, *a_scale, *w, *w_scale, *out;
} gemm_operands;

static rd_gemm_args gemm_args(const gemm_operands *o, int m) {
    const gemm_case *c = o->c;
    const bool fp8 = strcmp(c->op, "gemm_bf16") != 0;
    const int k_blocks = (c->k + 127) / 128, n_blocks = (c->n + 127) / 128;
    rd_gemm_args args = {.struct_size = sizeof args};
    args.a = rd_tensor_2d(o->a, c->a_dtype, m, c->k);
    if (c->a_dtype == RD_DTYPE_E4M3) args.a_scale = rd_tensor_2d(o->a_scale, RD_DTYPE_F32, m, k_blocks);
    args.w = rd_tensor_2d(o->w, fp8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16, c->n, c->k);
    args.w.stride[0] = c->stride;
    if (fp8) args.w_scale = rd_tensor_2d(o->w_scale, RD_DTYPE_F32, n_blocks, k_blocks);
    args.c = rd_tensor_2d(o->out, RD_DTYPE_F32, m, c->n);
    args.a.device = args.a_scale.device = args.w.device = args.w_scale.device = args.c.device =
        rd_ctx_device_number(o->ctx);
    return args;
}

static void check_gemm(rd_ctx *ctx, const gemm_case *c) {
    rd_plan *plan = plan_gemm(ctx, c);
    if (!plan) return;
    const bool fp8 = strcmp(c->op, "gemm_bf16") != 0;
    const int k_blocks = (c->k + 127) / 128, n_blocks = (c->n + 127) / 128;
    const size_t row = (size_t)c->n * sizeof(float), all = ROWS * row;
    void *a = put_random(ctx, c->a_dtype, (size_t)(ROWS * c->k), false);
    void *a_scale = put_random(ctx, RD_DTYPE_F32, (size_t)(ROWS * k_blocks), true);
    void *w = put_random(ctx, fp8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16, (size_t)c->n * (size_t)c->stride, false);
    void *w_scale = put_random(ctx, RD_DTYPE_F32, (size_t)(n_blocks * k_blocks), true), *out = NULL,
         *ws = NULL;
    must(rd_memory_alloc(ctx, all, &out));
    size_t ws_bytes = 0, ws_most = 0;
    unsigned char *want = malloc(all), *got = malloc(all);
    gemm_operands o = {c, ctx, a, a_scale, w, w_scale, out};
    for (int m = 1; m <= ROWS; m++) {
        const rd_gemm_args args = gemm_args(&o, m);
        must(rd_gemm_run(plan, &args, NULL, &ws_bytes, NULL));
        ws_most = ws_bytes > ws_most ? ws_bytes : ws_most;
    }
    must(rd_memory_alloc(ctx, ws_most + 64, &ws));
    must(rd_memory_set(ctx, ws, 0, ws_most + 64, NULL));
    for (int m = ROWS; m >= 1; m -= m == ROWS ? 1 : c->step) {
        const rd_gemm_args args = gemm_args(&o, m);
        ws_bytes = ws_most + 64;
        must(rd_memory_set(ctx, out, 0xff, all, NULL));
        must(rd_gemm_run(plan, &args, ws, &ws_bytes, NULL));
        from_card(ctx, m == ROWS ? want : got, out, (size_t)m * row, NULL);
        if (m < ROWS && memcmp(want, got, (size_t)m * row) != 0)
            fail_msg("%s %d x %d: %d rows give other bits than %d", c->op, c->n, c->k, m, ROWS);
    }
    void *const memory[] = {a, a_scale, w, w_scale, out, ws};
    for (int i = 0; i < 6; i++) must(rd_memory_free(ctx, memory[i]));
    free(want), free(got);
    rd_plan_free(plan);
}

static void test_rows_of_a_step_gemm(void **unused) {
    (void)unused;
    static const gemm_case whole[] = {{"gemm_fp8block", RD_DTYPE_E4M3, 14336, 5120, 5120, 1},
                                      {"gemm_fp8block", RD_DTYPE_E4M3, 5120, 6144, 6144, 1},
                                      {"gemm_fp8block", RD_DTYPE_E4M3, 5120, 17408, 17408, 1},
                                      {"gemm_fp8block", RD_DTYPE_E4M3, 576, 3884, 3900, 1},
                                      {"gemm_fp8block", RD_DTYPE_E4M3, 512, 256, 256, 1},
                                      {"gemm_fp8block_w8a16", RD_DTYPE_BF16, 5120, 6144, 6144, 1},
                                      {"gemm_fp8block_w8a16", RD_DTYPE_BF16, 576, 3884, 3900, 1},
                                      {"gemm_bf16", RD_DTYPE_BF16, 4099, 5120, 5120, 1},
                                      {"gemm_bf16", RD_DTYPE_F32, 512, 576, 584, 1}},
                           small[] = {{"gemm_fp8block", RD_DTYPE_E4M3, 200, 300, 304, 31},
                                      {"gemm_bf16", RD_DTYPE_BF16, 64, 128, 128, 41}};
    const bool simulated = card_is_simulated();
    const gemm_case *cases = simulated ? small : whole;
    rd_ctx *ctx = card_ctx();
    if (!ctx) skip();
    for (size_t i = 0; i < (simulated ? sizeof small : sizeof whole) / sizeof *small; i++)
        check_gemm(ctx, &cases[i]);
    rd_ctx_free(ctx);
}

// ---- attention -----------------------------------------------------------------------------------------------------------------
enum { Q_HEADS = 6, KV_HEADS = 2, ATTN_BLOCKS = 40, ATTN_SEQS = 3 };
typedef struct attention {
    rd_ctx *ctx;
    rd_plan *plan;
    void *q, *k, *v, *scale, *table, *lens, *starts, *out, *ws;
    size_t ws_bytes;
    int row_bytes;
} attention;

static bool open_attention(attention *t) {
    const rd_param p[] = {RD_INT("head_dim", HEAD),
                          RD_INT("gqa", Q_HEADS / KV_HEADS),
                          RD_INT("block_tokens", BLOCK),
                          RD_INT("window", 0),
                          RD_INT("softcap", 0),
                          RD_INT("sinks", 0),
                          RD_INT("causal", 1),
                          RD_WORD("q_dtype", "bf16"),
                          RD_WORD("out_dtype", "bf16"),
                          RD_WORD("k_order", "dim"),
                          RD_WORD("kv_dtype", "fp8_e4m3")};
    const size_t cached = (size_t)ATTN_BLOCKS * BLOCK * KV_HEADS * HEAD;
    int32_t table[ATTN_SEQS * ATTN_BLOCKS];
    *t = (attention){.ctx = card_ctx(), .row_bytes = Q_HEADS * HEAD * 2};
    if (!t->ctx) return false;
    must(rd_plan_create(t->ctx, "attn_decode", p, 11, 1, WIDTH, &t->plan));
    for (int i = 0; i < ATTN_SEQS * ATTN_BLOCKS; i++) table[i] = i * 7 % ATTN_BLOCKS;
    t->q = put_random(t->ctx, RD_DTYPE_BF16, (size_t)ATTN_SEQS * WIDTH * Q_HEADS * HEAD, false);
    t->k = put_random(t->ctx, RD_DTYPE_E4M3, cached, false),
    t->v = put_random(t->ctx, RD_DTYPE_E4M3, cached, false);
    t->scale = put_random(t->ctx, RD_DTYPE_F32, KV_HEADS, true);
    t->table = put(t->ctx, table, sizeof table);
    must(rd_memory_alloc(t->ctx, 64, &t->lens));
    must(rd_memory_alloc(t->ctx, 64, &t->starts));
    must(rd_memory_alloc(t->ctx, (size_t)(ATTN_SEQS * WIDTH * t->row_bytes), &t->out));
    t->ws_bytes = (size_t)64 << 20;
    must(rd_memory_alloc(t->ctx, t->ws_bytes, &t->ws));
    must(rd_memory_set(t->ctx, t->ws, 0, t->ws_bytes, NULL));
    must(rd_stream_sync(t->ctx, NULL)); // a stream of a test's own does not wait for this one
    return true;
}

static void close_attention(attention *t) {
    void *const all[] = {t->q, t->k, t->v, t->scale, t->table, t->lens, t->starts, t->out, t->ws};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) must(rd_memory_free(t->ctx, all[i]));
    rd_plan_free(t->plan);
    rd_ctx_free(t->ctx);
}

static void set_lengths(attention *t, int seqs, int width, const int32_t *lens, rd_stream stream) {
    int32_t starts[ATTN_SEQS + 1];
    for (int s = 0; s <= seqs; s++) starts[s] = s * width;
    must(rd_memory_copy(t->ctx, t->lens, lens, (size_t)seqs * 4, RD_COPY_TO_DEVICE, stream));
    must(rd_memory_copy(t->ctx, t->starts, starts, (size_t)(seqs + 1) * 4, RD_COPY_TO_DEVICE, stream));
    must(rd_stream_sync(t->ctx, stream));
}

// Queries from row `first` on; the block table's rows from sequence `seq` on.
static void run_attention_to(attention *t, int first, int seq, int seqs, int width, int bound, rd_tensor out,
                             rd_tensor out_scale, rd_stream stream) {
    const int number = rd_ctx_device_number(t->ctx), rows = seqs * width;
    rd_attn_args a = {.struct_size = sizeof a, .scale = 0.0884f, .max_q_len = width, .max_kv_len = bound};
    a.q = rd_tensor_3d((char *)t->q + (size_t)(first * t->row_bytes), RD_DTYPE_BF16, rows, Q_HEADS, HEAD);
    a.out = out, a.out_scale = out_scale;
    a.k_cache = rd_tensor_4d(t->k, RD_DTYPE_E4M3, ATTN_BLOCKS, BLOCK, KV_HEADS, HEAD);
    a.v_cache = a.k_cache, a.v_cache.data = t->v;
    a.k_scale = rd_tensor_1d(t->scale, RD_DTYPE_F32, KV_HEADS), a.v_scale = a.k_scale;
    a.block_table = rd_tensor_2d((int32_t *)t->table + seq * ATTN_BLOCKS, RD_DTYPE_I32, seqs, ATTN_BLOCKS);
    a.kv_lens = rd_tensor_1d(t->lens, RD_DTYPE_I32, seqs);
    a.q_starts = rd_tensor_1d(t->starts, RD_DTYPE_I32, seqs + 1);
    rd_tensor *const all[] = {&a.q,       &a.out,         &a.k_cache, &a.v_cache,  &a.k_scale,
                              &a.v_scale, &a.block_table, &a.kv_lens, &a.q_starts, &a.out_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]->device = number;
    size_t bytes = t->ws_bytes;
    must(rd_attn_run(t->plan, &a, t->ws, &bytes, stream));
}
static void run_attention(attention *t, int first, int seq, int seqs, int width, int bound,
                          rd_stream stream) {
    const rd_tensor out = rd_tensor_3d(t->out, RD_DTYPE_BF16, seqs * width, Q_HEADS, HEAD);
    run_attention_to(t, first, seq, seqs, width, bound, out, (rd_tensor){0}, stream);
}

// A row of three sequences of `width` queries against the same query asked alone, at the same position of its keys.
static void test_widths_and_batches_of_attention(void **unused) {
    (void)unused;
    static const int widths[] = {1, 2, 9, WIDTH};
    attention t;
    if (!open_attention(&t)) skip();
    const bool simulated = card_is_simulated();
    const int32_t lens[ATTN_SEQS] = {ATTN_BLOCKS * BLOCK, simulated ? 70 : 1029, WIDTH};
    unsigned char *together = malloc((size_t)(ATTN_SEQS * WIDTH * t.row_bytes)),
                  *alone = malloc((size_t)t.row_bytes);
    for (size_t w = simulated ? 2 : 0; w < sizeof widths / sizeof *widths; w++) {
        const int width = widths[w];
        set_lengths(&t, ATTN_SEQS, width, lens, NULL);
        run_attention(&t, 0, 0, ATTN_SEQS, width, 0, NULL);
        from_card(t.ctx, together, t.out, (size_t)(ATTN_SEQS * width * t.row_bytes), NULL);
        for (int row = 0; row < ATTN_SEQS * width; row += simulated ? 7 : 1) {
            const int seq = row / width;
            const int32_t length = lens[seq] - width + 1 + row % width;
            set_lengths(&t, 1, 1, &length, NULL);
            run_attention(&t, row, seq, 1, 1, 0, NULL);
            from_card(t.ctx, alone, t.out, (size_t)t.row_bytes, NULL);
            if (memcmp(alone, together + (size_t)(row * t.row_bytes), (size_t)t.row_bytes) != 0)
                fail_msg("width %d, sequence %d, query %d: other bits than alone", width, seq, row % width);
        }
    }
    free(together), free(alone);
    close_attention(&t);
}

// An output of codes has the bits of an f32 output and the quantiser behind it.
static void test_codes_of_attention(void **unused) {
    (void)unused;
    attention t;
    if (!open_attention(&t)) skip();
    enum { ROWS_OF_ALL = ATTN_SEQS * 2, ELEMS = ROWS_OF_ALL * Q_HEADS * HEAD };
    rd_param p[] = {RD_INT("head_dim", HEAD),
                    RD_INT("gqa", Q_HEADS / KV_HEADS),
                    RD_INT("block_tokens", BLOCK),
                    RD_INT("window", 0),
                    RD_INT("softcap", 0),
                    RD_INT("sinks", 0),
                    RD_INT("causal", 1),
                    RD_WORD("q_dtype", "bf16"),
                    RD_WORD("out_dtype", "fp8_e4m3"),
                    RD_WORD("k_order", "dim"),
                    RD_WORD("kv_dtype", "fp8_e4m3")};
    const rd_param of_quant[] = {RD_INT("k", Q_HEADS * HEAD), RD_WORD("x_dtype", "fp32"),
                                 RD_WORD("fuse", "none")};
    rd_plan *codes, *quant, *whole;
    if (rd_plan_create(t.ctx, "attn_decode", p, 11, 1, 2, &codes) != RD_OK) { // the card has no such row
        close_attention(&t);
        skip();
    }
    p[8] = (rd_param)RD_WORD("out_dtype", "fp32");
    must(rd_plan_create(t.ctx, "attn_decode", p, 11, 1, 2, &whole));
    must(rd_plan_create(t.ctx, "quant_fp8", of_quant, 3, 1, ROWS_OF_ALL, &quant));
    void *memory[5]; // f32 output; codes and scales of both ways
    const size_t bytes[5] = {ELEMS * 4, ELEMS, ELEMS / 128 * 4, ELEMS, ELEMS / 128 * 4};
    unsigned char *host[5];
    for (int i = 0; i < 5; i++)
        must(rd_memory_alloc(t.ctx, bytes[i], &memory[i])), host[i] = malloc(bytes[i]);
    const int32_t lens[ATTN_SEQS] = {ATTN_BLOCKS * BLOCK, 1029, 2};
    set_lengths(&t, ATTN_SEQS, 2, lens, NULL);
    rd_plan *const kept = t.plan;
    const int number = rd_ctx_device_number(t.ctx);
    rd_tensor out = rd_tensor_3d(memory[0], RD_DTYPE_F32, ROWS_OF_ALL, Q_HEADS, HEAD), scale = {0};
    t.plan = whole;
    run_attention_to(&t, 0, 0, ATTN_SEQS, 2, 0, out, scale, NULL);
    rd_quant_args q = {.struct_size = sizeof q,
                       .x = rd_tensor_2d(memory[0], RD_DTYPE_F32, ROWS_OF_ALL, Q_HEADS * HEAD)};
    q.q = rd_tensor_2d(memory[1], RD_DTYPE_E4M3, ROWS_OF_ALL, Q_HEADS * HEAD);
    q.q_scale = rd_tensor_2d(memory[2], RD_DTYPE_F32, ROWS_OF_ALL, Q_HEADS * HEAD / 128);
    q.x.device = q.q.device = q.q_scale.device = number;
    size_t ws_bytes = t.ws_bytes;
    must(rd_quant_run(quant, &q, t.ws, &ws_bytes, NULL));
    t.plan = codes;
    out = rd_tensor_3d(memory[3], RD_DTYPE_E4M3, ROWS_OF_ALL, Q_HEADS, HEAD);
    scale = rd_tensor_2d(memory[4], RD_DTYPE_F32, ROWS_OF_ALL, Q_HEADS * HEAD / 128);
    run_attention_to(&t, 0, 0, ATTN_SEQS, 2, 0, out, scale, NULL);
    for (int i = 0; i < 5; i++) from_card(t.ctx, host[i], memory[i], bytes[i], NULL);
    assert_memory_equal(host[1], host[3], bytes[1]);
    assert_memory_equal(host[2], host[4], bytes[2]);
    for (int i = 0; i < 5; i++) must(rd_memory_free(t.ctx, memory[i])), free(host[i]);
    t.plan = kept;
    rd_plan_free(codes), rd_plan_free(quant), rd_plan_free(whole);
    close_attention(&t);
}

// One recorded call serves every length up to its bound.
static void test_a_graph_serves_every_length(void **unused) {
    (void)unused;
    attention t;
    rd_stream stream;
    rd_graph *graph;
    if (!open_attention(&t)) skip();
    const int most = ATTN_BLOCKS * BLOCK, lengths = card_is_simulated() ? 3 : 200;
    unsigned char *replayed = malloc((size_t)(2 * t.row_bytes)), *run = malloc((size_t)(2 * t.row_bytes));
    must(rd_stream_create(t.ctx, &stream));
    must(rd_graph_begin(t.ctx, stream));
    run_attention(&t, 0, 0, 2, 1, most, stream);
    must(rd_graph_end(t.ctx, stream, &graph));
    for (int i = 0; i < lengths; i++) {
        const int32_t lens[2] = {1 + (int32_t)(draw() % (uint32_t)most), i % 3 ? 1 + i : most};
        set_lengths(&t, 2, 1, lens, stream);
        must(rd_graph_launch(graph, stream));
        from_card(t.ctx, replayed, t.out, (size_t)(2 * t.row_bytes), stream);
        run_attention(&t, 0, 0, 2, 1, lens[0] > lens[1] ? lens[0] : lens[1], stream);
        from_card(t.ctx, run, t.out, (size_t)(2 * t.row_bytes), stream);
        if (memcmp(replayed, run, (size_t)(2 * t.row_bytes)) != 0)
            fail_msg("lengths %d and %d", lens[0], lens[1]);
    }
    rd_graph_free(graph);
    must(rd_stream_free(t.ctx, stream));
    free(replayed), free(run);
    close_attention(&t);
}

// ---- contexts ------------------------------------------------------------------------------------------------------------------
enum { NORM_K = 4096, NORM_ROUNDS = 300 };
typedef struct norm_job {
    int salt;
    char why[256]; // "" = as it should be
} norm_job;

// A context of this thread's own: y = rmsnorm(x) with weight 1 and x = salt everywhere is 1, whatever others do meanwhile.
static void *norm_in_own_context(void *argument) {
    norm_job *job = argument;
    const rd_param p[] = {RD_INT("k", NORM_K), RD_WORD("x_dtype", "fp32"), RD_WORD("y_dtype", "fp32"),
                          RD_WORD("weight_dtype", "fp32"), RD_INT("residual", 0)};
    const rd_ctx_options options = {.struct_size = sizeof options, .device = card_device(), .threads = 1};
    float host[2][NORM_K];
    rd_ctx *ctx = NULL;
    rd_plan *plan = NULL;
    rd_stream stream = NULL;
    void *there[3] = {NULL};
    for (int i = 0; i < NORM_K; i++) host[0][i] = (float)job->salt, host[1][i] = 1.0f;
    rd_status status = rd_ctx_create(&options, &ctx);
    if (status == RD_OK) status = rd_plan_create(ctx, "rmsnorm", p, 5, 1, 1, &plan);
    if (status == RD_OK) status = rd_stream_create(ctx, &stream);
    for (int i = 0; i < 3 && status == RD_OK; i++) status = rd_memory_alloc(ctx, sizeof host[0], &there[i]);
    for (int i = 0; i < 2 && status == RD_OK; i++)
        status = rd_memory_copy(ctx, there[i], host[i], sizeof host[0], RD_COPY_TO_DEVICE, stream);
    rd_rmsnorm_args args = {.struct_size = sizeof args, .eps = 0};
    args.x = rd_tensor_2d(there[0], RD_DTYPE_F32, 1, NORM_K),
    args.weight = rd_tensor_1d(there[1], RD_DTYPE_F32, NORM_K);
    args.y = rd_tensor_2d(there[2], RD_DTYPE_F32, 1, NORM_K);
    args.x.device = args.weight.device = args.y.device = rd_ctx_device_number(ctx);
    for (int round = 0; round < (card_is_simulated() ? 5 : NORM_ROUNDS) && status == RD_OK; round++) {
        status = rd_memory_set(ctx, there[2], 0, sizeof host[0], stream);
        if (status == RD_OK) status = rd_rmsnorm_run(plan, &args, stream);
        if (status == RD_OK)
            status = rd_memory_copy(ctx, host[0], there[2], sizeof host[0], RD_COPY_TO_HOST, stream);
        if (status == RD_OK) status = rd_stream_sync(ctx, stream);
        for (int i = 0; i < NORM_K && status == RD_OK && !*job->why; i++)
            if (host[0][i] < 0.9999f || host[0][i] > 1.0001f)
                snprintf(job->why, sizeof job->why, "round %d: y[%d]=%g", round, i, (double)host[0][i]);
    }
    if (status != RD_OK) snprintf(job->why, sizeof job->why, "%s", rd_error_text());
    for (int i = 0; i < 3 && ctx; i++) rd_memory_free(ctx, there[i]);
    if (ctx) rd_stream_free(ctx, stream);
    rd_plan_free(plan);
    rd_ctx_free(ctx);
    return NULL;
}

static void test_two_contexts_in_two_threads(void **unused) {
    (void)unused;
    rd_ctx *probe = card_ctx();
    if (!probe) skip();
    rd_ctx_free(probe);
    norm_job jobs[2] = {{.salt = 3}, {.salt = 5}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, norm_in_own_context, &jobs[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (*jobs[i].why) fail_msg("thread %d: %s", i, jobs[i].why);
}

// As in a program that uses torch: the primary context is current before ours is made, and still afterwards.
static void test_a_current_context_stays_current(void **unused) {
    (void)unused;
    void *cuda = card_is_simulated() ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*get)(void **), (*release)(int);
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"cuInit", &init},
                   {"cuDevicePrimaryCtxRetain", &retain},
                   {"cuCtxSetCurrent", &set},
                   {"cuCtxGetCurrent", &get},
                   {"cuDevicePrimaryCtxRelease_v2", &release}};
    if (!cuda) {
        print_message("no NVIDIA driver\n");
        skip();
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(cuda, symbols[i].name);
        assert_non_null(symbol);
        memcpy(symbols[i].to, &symbol, sizeof symbol);
    }
    void *theirs = NULL, *current = NULL;
    norm_job job = {.salt = 7};
    assert_int_equal(init(0), 0);
    assert_int_equal(retain(&theirs, 0), 0);
    assert_int_equal(set(theirs), 0);
    norm_in_own_context(&job);
    if (*job.why) fail_msg("%s", job.why);
    assert_int_equal(get(&current), 0);
    assert_ptr_equal(current, theirs);
    assert_int_equal(set(NULL), 0);
    norm_in_own_context(&job); // and without one
    if (*job.why) fail_msg("%s", job.why);
    assert_int_equal(release(0), 0);
}

// Last: the process's context is lost. A kernel writes outside its operand; each later call says so, all can be freed.
static void test_a_kernel_that_faults(void **unused) {
    (void)unused;
    rd_ctx *ctx = card_is_simulated() ? NULL : card_ctx();
    if (!ctx) skip();
    const rd_param p[] = {RD_INT("k", 512), RD_WORD("act", "silu"), RD_WORD("x_dtype", "fp32"),
                          RD_WORD("y_dtype", "fp32")};
    float host[512] = {0};
    rd_plan *plan = NULL;
    rd_stream stream = NULL;
    must(rd_plan_create(ctx, "act_mul", p, 4, 1, 1, &plan));
    must(rd_stream_create(ctx, &stream));
    rd_tensor x = to_card(ctx, rd_tensor_2d(host, RD_DTYPE_F32, 1, 512));
    rd_act_mul_args args = {sizeof args, x, x, x};
    args.y.data = (void *)(uintptr_t)4096;
    must(rd_act_mul_run(plan, &args, stream)); // launches are asynchronous
    assert_int_equal(rd_stream_sync(ctx, stream), RD_E_DEVICE);
    print_message("%s\n", rd_error_text());
    args.y = x;
    rd_status status = rd_act_mul_run(plan, &args, stream);
    if (status == RD_OK) status = rd_stream_sync(ctx, stream);
    assert_int_equal(status, RD_E_DEVICE);
    (void)rd_stream_free(ctx, stream);
    (void)rd_memory_free(ctx, x.data);
    rd_plan_free(plan);
    rd_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_a_step_gemm),
        cmocka_unit_test(test_widths_and_batches_of_attention),
        cmocka_unit_test(test_codes_of_attention),
        cmocka_unit_test(test_a_graph_serves_every_length),
        cmocka_unit_test(test_two_contexts_in_two_threads),
        cmocka_unit_test(test_a_current_context_stays_current),
        cmocka_unit_test(test_a_kernel_that_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
