// SPDX-License-Identifier: Apache-2.0
// labels: threads
// rd_attn_run through real plans: the same bits as the row itself, and an error with field, value and need for every way
// to hand it something wrong.
#include "attn_case.h"

typedef struct run_case {
    attn_case *c;
    rd_ctx *ctx;
    rd_plan *plan;
    rd_attn_args args;
} run_case;

static rd_plan *make_plan(rd_ctx *ctx, const char *op, const attn_shape *s, int64_t hi) {
    const rd_param params[] = {RD_INT("head_dim", s->head_dim),
                               RD_INT("gqa", s->q_heads / s->kv_heads),
                               RD_INT("block_tokens", s->block_tokens),
                               RD_WORD("q_dtype", rd_dtype_name(s->q_dtype)),
                               RD_WORD("kv_dtype", rd_dtype_name(s->kv_dtype)),
                               RD_WORD("out_dtype", rd_dtype_name(s->out_dtype)),
                               RD_WORD("k_order", s->token_order ? "token" : "dim"),
                               RD_INT("window", s->window > 0),
                               RD_INT("softcap", s->softcap > 0),
                               RD_INT("sinks", s->sinks),
                               RD_INT("causal", 1)};
    rd_plan *plan = NULL;
    if (rd_plan_create(ctx, op, params, (int32_t)RDI_COUNT(params), 1, hi, &plan) != RD_OK)
        fail_msg("%s", rd_error_text());
    return plan;
}

static rd_tensor cache_tensor(const attn_case *c, void *data, bool k) {
    const rdi_attn_args *a = &c->args;
    rd_tensor t = rd_tensor_4d(data, a->kv_dtype, a->blocks, a->block_tokens, a->kv_heads, a->head_dim);
    t.stride[0] = k ? a->k_stride_block : a->v_stride_block,
    t.stride[1] = k ? a->k_stride_token : a->v_stride_token;
    t.stride[2] = k ? a->k_stride_head : a->v_stride_head,
    t.stride[3] = k ? a->k_stride_dim : a->v_stride_dim;
    return t;
}

// The case's operands as a caller hands them over.
static rd_attn_args operands_of(attn_case *c) {
    const rdi_attn_args *a = &c->args;
    rd_attn_args args = {
        .struct_size = sizeof args, .scale = a->scale, .softcap = a->softcap, .window = a->window};
    args.q = rd_tensor_3d(c->q.data, a->q_dtype, a->tokens, a->q_heads, a->head_dim);
    args.q.stride[0] = a->q_stride_token;
    args.out = rd_tensor_3d(c->out.data, a->out_dtype, a->tokens, a->q_heads, a->head_dim);
    args.out.stride[0] = a->out_stride_token;
    args.k_cache = cache_tensor(c, c->k.data, true), args.v_cache = cache_tensor(c, c->v.data, false);
    args.k_scale = rd_tensor_1d(c->k_scale, RD_DTYPE_F32, a->kv_heads);
    args.v_scale = rd_tensor_1d(c->v_scale, RD_DTYPE_F32, a->kv_heads);
    args.block_table = rd_tensor_2d(c->table, RD_DTYPE_I32, a->seqs, a->max_blocks);
    args.kv_lens = rd_tensor_1d(c->kv_lens, RD_DTYPE_I32, a->seqs);
    args.q_starts = rd_tensor_1d(c->q_starts, RD_DTYPE_I32, a->seqs + 1);
    if (a->sinks) args.sinks = rd_tensor_1d(c->sinks, RD_DTYPE_F32, a->q_heads);
    return args;
}

static run_case run_case_new(uint64_t *rng) {
    attn_shape s = {.seqs = 2,
                    .q_len = {2, 3},
                    .kv_len = {40, 19},
                    .q_heads = 6,
                    .kv_heads = 2,
                    .head_dim = 64,
                    .block_tokens = 16,
                    .window = 9,
                    .softcap = 30,
                    .sinks = true,
                    .scales = true,
                    .token_order = true,
                    .q_dtype = RD_DTYPE_BF16,
                    .kv_dtype = RD_DTYPE_E4M3,
                    .out_dtype = RD_DTYPE_F32};
    run_case r = {.c = case_new(&s, rng)};
    const rd_ctx_options options = {.struct_size = sizeof options, .threads = 2};
    assert_int_equal(rd_ctx_create(&options, &r.ctx), RD_OK);
    r.plan = make_plan(r.ctx, "attn_decode", &s, 17);
    r.args = operands_of(r.c);
    return r;
}

static void run_case_free(run_case *r) {
    rd_plan_free(r->plan);
    rd_ctx_free(r->ctx);
    case_free(r->c);
}

static void expect_error(const run_case *r, const rd_attn_args *args, const char *text) {
    size_t bytes = 0;
    rd_status status = rd_attn_run(r->plan, args, NULL, &bytes, NULL);
    if (status != RD_E_INVALID || !strstr(rd_error_text(), text))
        fail_msg("status %s, text \"%s\", needs \"%s\"", rd_status_name(status), rd_error_text(), text);
}

static void test_attn_run_gives_the_rows_bits(void **state) {
    (void)state;
    uint64_t rng = fresh_seed("test_attn_run_gives_the_rows_bits");
    run_case r = run_case_new(&rng);
    const rd_kernel_info *chosen = rd_plan_kernel(r.plan, 3);
    assert_non_null(chosen);
    const rdi_row *row = NULL;
    for (int i = 0; (row = row_at("attn_decode", i)); i++)
        if (!strcmp(row->info.name, chosen->name)) break;
    assert_non_null(row);
    void *direct = case_run(r.c, row, 1);
    size_t bytes = 0;
    assert_int_equal(rd_attn_run(r.plan, &r.args, NULL, &bytes, NULL), RD_OK);
    void *ws = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(ws);
    memset(r.c->out.data, POISON, r.c->out.bytes);
    assert_int_equal(rd_attn_run(r.plan, &r.args, ws, &bytes, NULL), RD_OK);
    assert_memory_equal(direct, r.c->out.data, r.c->out.bytes);
    if (bytes) {
        size_t small = bytes - 1;
        assert_int_equal(rd_attn_run(r.plan, &r.args, ws, &small, NULL), RD_E_INVALID);
    }
    free(ws), free(direct);
    run_case_free(&r);
}

#define EXPECT(change_, text_)                                                                               \
    do {                                                                                                     \
        rd_attn_args args = r.args;                                                                          \
        change_;                                                                                             \
        expect_error(&r, &args, text_);                                                                      \
    } while (0)

static void test_attn_run_refuses_bad_tensors(void **state) {
    (void)state;
    uint64_t rng = fresh_seed("test_attn_run_refuses_bad_tensors");
    run_case r = run_case_new(&rng);
    EXPECT(args.struct_size = 8, "struct_size=8");
    EXPECT(args.q.data = NULL, "q: data=NULL");
    EXPECT(args.q.dtype = RD_DTYPE_F16, "q: dtype=fp16, needs one of: bf16 fp32");
    EXPECT(args.q.rank = 2, "q: rank=2, needs 3");
    EXPECT(args.q.stride[2] = 2, "q: stride[2]=2, needs 1");
    EXPECT(args.q.shape[1] = 5, "out: shape[1]=6, needs 5");
    EXPECT((args.q.shape[1] = 5, args.out.shape[1] = 5), "5 query heads, needs a multiple of 2 KV heads");
    EXPECT((args.q.shape[1] = 4, args.out.shape[1] = 4, args.sinks.shape[0] = 4), "gqa=2, the plan needs 3");
    EXPECT(args.out.dtype = RD_DTYPE_BF16, "out_dtype=bf16, the plan needs fp32");
    EXPECT(args.out.dtype = RD_DTYPE_E4M3, "out: fp8_e4m3 with head_dim=64, needs a multiple of 128");
    EXPECT(args.k_cache.dtype = RD_DTYPE_F32, "k_cache: dtype=fp32, needs one of: fp8_e4m3 bf16");
    EXPECT(args.v_cache.shape[0]++, "v_cache: shape[0]=");
    EXPECT(args.k_cache.stride[1] = 64, "k_cache: stride[1]=64, needs 1");
    EXPECT(args.k_cache.stride[3] = 1, "k_cache: stride[3]=1, needs 16");
    EXPECT(args.k_scale.shape[0] = 3, "k_scale: shape[0]=3, needs 2");
    EXPECT(args.sinks.shape[0] = 2, "sinks: shape[0]=2, needs 6");
    EXPECT(args.kv_lens.dtype = RD_DTYPE_I64, "kv_lens: dtype=i64, needs i32");
    EXPECT(args.q_starts.shape[0] = 2, "q_starts: shape[0]=2, needs 3");
    EXPECT(args.block_table.shape[0] = 1, "block_table: shape[0]=1, needs 2");
    EXPECT(args.scale = 0, "scale=0, needs a finite value > 0");
    EXPECT(args.scale = NAN, "scale=nan");
    EXPECT(args.softcap = -1, "softcap=-1");
    EXPECT(args.window = -3, "window=-3");
    rd_status status = rd_attn_run(NULL, &r.args, NULL, NULL, NULL);
    assert_int_equal(status, RD_E_INVALID);
    assert_int_equal(rd_attn_run(r.plan, NULL, NULL, NULL, NULL), RD_E_INVALID);
    run_case_free(&r);
}

// The reference's codes are quant_fp8's of its own f32 output, by the formula: scale = max(top / 448, 1 / (448 * 512)).
static void test_codes_of_the_reference(void **state) {
    (void)state;
    enum { GROUPS = 4 * 2 * 2, GROUP = 128 }; // 4 tokens, 2 heads of 256
    uint64_t rng = fresh_seed("test_codes_of_the_reference");
    const attn_shape s = {.seqs = 2,
                          .q_len = {1, 3},
                          .kv_len = {21, 1}, // two of its rows see no key: zeros
                          .q_heads = 2,
                          .kv_heads = 1,
                          .head_dim = 256,
                          .block_tokens = 16,
                          .scales = true,
                          .q_dtype = RD_DTYPE_F32,
                          .kv_dtype = RD_DTYPE_E4M3,
                          .out_dtype = RD_DTYPE_F32};
    attn_case *c = case_new(&s, &rng);
    const rdi_row *row = reference_of("attn_decode");
    float *wide = case_run(c, row, 1), scale[GROUPS], seen_scale[GROUPS];
    uint8_t seen[GROUPS * GROUP];
    const int64_t stride = c->args.out_stride_token;
    c->args.out = seen, c->args.out_dtype = RD_DTYPE_E4M3;
    c->args.out_stride_token = 2 * 256, c->args.out_stride_head = 256;
    c->args.out_scale = seen_scale, c->args.out_scale_stride_token = 4, c->args.out_scale_stride_group = 1;
    rdi_par *par = NULL;
    assert_int_equal(rdi_par_create(1, NULL, NULL, &par), RD_OK);
    row->run(&c->args, NULL, par);
    rdi_par_free(par);
    for (int g = 0; g < GROUPS; g++) {
        const float *from = wide + g / 4 * stride + g % 4 * GROUP;
        float top = 0;
        for (int i = 0; i < GROUP; i++) top = fmaxf(top, fabsf(from[i]));
        scale[g] = fmaxf(top / 448.0f, 1.0f / (448.0f * 512.0f));
        for (int i = 0; i < GROUP; i++)
            assert_int_equal(seen[g * GROUP + i], rdi_e4m3_from_f32(from[i] / scale[g]));
    }
    assert_memory_equal(seen_scale, scale, sizeof scale);
    free(wide);
    case_free(c);
}

// Codes by rd_attn_run: scales with strides of their own, groups before tokens, are the row's own; what is wrong with them is
// named.
static void test_attn_run_of_codes(void **state) {
    (void)state;
    enum { TOKENS = 4, HEADS = 2, HEAD = 256, GROUPS = HEADS * HEAD / 128 };
    uint64_t rng = fresh_seed("test_attn_run_of_codes");
    attn_shape s = {.seqs = 2,
                    .q_len = {1, 3},
                    .kv_len = {21, 40},
                    .q_heads = HEADS,
                    .kv_heads = 1,
                    .head_dim = HEAD,
                    .block_tokens = 16,
                    .scales = true,
                    .q_dtype = RD_DTYPE_F32,
                    .kv_dtype = RD_DTYPE_E4M3,
                    .out_dtype = RD_DTYPE_F32};
    run_case r = {.c = case_new(&s, &rng)};
    attn_case *c = r.c;
    const rd_ctx_options options = {.struct_size = sizeof options, .threads = 2};
    assert_int_equal(rd_ctx_create(&options, &r.ctx), RD_OK);
    s.out_dtype = RD_DTYPE_E4M3;
    r.plan = make_plan(r.ctx, "attn_decode", &s, 17);
    uint8_t codes[2][TOKENS * HEADS * HEAD];
    float direct[TOKENS][GROUPS], scales[GROUPS][TOKENS + 1];
    memset(scales, 0x5a, sizeof scales);
    const float gap = scales[0][TOKENS];
    r.args = operands_of(c);
    r.args.out = rd_tensor_3d(codes[0], RD_DTYPE_E4M3, TOKENS, HEADS, HEAD);
    r.args.out_scale = rd_tensor_2d(scales, RD_DTYPE_F32, TOKENS, GROUPS);
    r.args.out_scale.stride[0] = 1, r.args.out_scale.stride[1] = TOKENS + 1;
    EXPECT(args.out_scale.data = NULL, "out_scale: data=NULL");
    EXPECT(args.out_scale.dtype = RD_DTYPE_BF16, "out_scale: dtype=bf16, needs fp32");
    EXPECT(args.out_scale.shape[0] = 3, "out_scale: shape[0]=3, needs 4");
    EXPECT(args.out_scale.shape[1] = 2, "out_scale: shape[1]=2, needs 4");
    EXPECT(args.out_scale.stride[1] = 0, "out_scale: ");
    EXPECT(args.out_scale.device = 1, "out_scale: device=1, needs 0");
    EXPECT(args.struct_size = offsetof(rd_attn_args, out_scale), "struct_size=");
    if (rd_attn_run(r.plan, &r.args, NULL, NULL, NULL) != RD_OK) fail_msg("%s", rd_error_text());
    c->args.out = codes[1], c->args.out_dtype = RD_DTYPE_E4M3;
    c->args.out_stride_token = HEADS * HEAD, c->args.out_stride_head = HEAD;
    c->args.out_scale = direct[0], c->args.out_scale_stride_token = GROUPS;
    c->args.out_scale_stride_group = 1;
    rdi_par *par = NULL;
    assert_int_equal(rdi_par_create(1, NULL, NULL, &par), RD_OK);
    reference_of("attn_decode")->run(&c->args, NULL, par);
    rdi_par_free(par);
    assert_memory_equal(codes[0], codes[1], sizeof codes[0]);
    for (int g = 0; g < GROUPS; g++) {
        for (int t = 0; t < TOKENS; t++) assert_memory_equal(&scales[g][t], &direct[t][g], sizeof(float));
        assert_memory_equal(&scales[g][TOKENS], &gap, sizeof gap);
    }
    run_case_free(&r);
}

static void test_attn_run_refuses_bad_tables(void **state) {
    (void)state;
    uint64_t rng = fresh_seed("test_attn_run_refuses_bad_tables");
    run_case r = run_case_new(&rng);
    attn_case *c = r.c;
    int32_t seen = 2, kept = c->table[seen]; // keys 32..39 of sequence 0: visible through the window
    c->table[seen] = (int32_t)c->args.blocks;
    expect_error(&r, &r.args, "block_table[0][2]=");
    c->table[seen] = -1;
    expect_error(&r, &r.args, "block_table[0][2]=-1, needs 0..");
    c->table[seen] = kept;
    size_t bytes = 0; // entries that no row sees hold rubbish already (case_new): they are not read
    assert_true(c->table[0] < 0);
    assert_int_equal(rd_attn_run(r.plan, &r.args, NULL, &bytes, NULL), RD_OK);
    c->kv_lens[1] = 65;
    expect_error(&r, &r.args, "kv_lens[1]=65, needs 0..64 (4 blocks of 16 tokens)");
    c->kv_lens[1] = -1;
    expect_error(&r, &r.args, "kv_lens[1]=-1");
    c->kv_lens[1] = 19;
    c->q_starts[1] = 6;
    expect_error(&r, &r.args, "q_starts[1]=6");
    c->q_starts[1] = 2, c->q_starts[2] = 1;
    expect_error(&r, &r.args, "q_starts[2]=1 after 2");
    c->q_starts[2] = 5, c->q_starts[0] = -1;
    expect_error(&r, &r.args, "q_starts[0]=-1");
    c->q_starts[0] = 0;
    run_case_free(&r);
}

static void test_attn_run_refuses_what_the_plan_lacks(void **state) {
    (void)state;
    uint64_t rng = fresh_seed("test_attn_run_refuses_what_the_plan_lacks");
    run_case r = run_case_new(&rng);
    attn_shape plain = r.c->shape;
    plain.window = 0, plain.softcap = 0, plain.sinks = false;
    rd_plan *whole = r.plan;
    r.plan = make_plan(r.ctx, "attn_decode", &plain, 2); // and q_len 3 lies outside
    expect_error(&r, &r.args, "window is used, the plan needs window=1");
    EXPECT(args.window = 0, "softcap is used");
    EXPECT((args.window = 0, args.softcap = 0), "sinks is used");
    rd_plan_free(r.plan);
    r.plan = make_plan(r.ctx, "attn_decode", &r.c->shape, 2);
    expect_error(&r, &r.args, "q_len=3");
    rd_plan_free(r.plan);
    r.plan = whole;
    run_case_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attn_run_gives_the_rows_bits),
        cmocka_unit_test(test_attn_run_refuses_bad_tensors),
        cmocka_unit_test(test_codes_of_the_reference),
        cmocka_unit_test(test_attn_run_of_codes),
        cmocka_unit_test(test_attn_run_refuses_bad_tables),
        cmocka_unit_test(test_attn_run_refuses_what_the_plan_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
