// SPDX-License-Identifier: Apache-2.0
// Kernels in every order, on a card: for each ordered pair of kinds the second reads what the first wrote, all pairs stand in one
// graph behind one another, and each call of every replay has its own output, which must be, bit for bit, what it was when the
// host waited after each call. Kernels that start before their predecessor has ended are wrong here first.
//
// RADIANCE_TEST_CARD names the card (default: the simulated one), RADIANCE_TEST_REPLAYS the replays (10000; 3 simulated).
#include "support/card_rig.h"

#include <math.h>

enum { M = 4, MOST_D = 2048, MOST_KINDS = 16, HEAD = 128, BLOCK = 64, BLOCKS = 4, KEYS = BLOCK * BLOCKS };
static int d; // width of every operand: each output can be the next kernel's input

typedef enum form { BF16, CODES } form; // [M, d] bf16, or [M, d] e4m3 with [M, d / 128] scales behind it
typedef struct kind {
    const char *name, *op;
    form in, out;
    rd_status (*run)(const struct kind *kind, const void *in, void *out, rd_stream stream);
    rd_plan *plan; // NULL: no row of this card takes it
} kind;

static rd_ctx *ctx;
static void *weights, *weights_bf16, *scales, *vector, *cache, *inputs[2], *workspace, *ids, *tables, *other;
static size_t workspace_bytes;

static rd_tensor here(rd_tensor tensor) {
    tensor.device = rd_ctx_device_number(ctx);
    return tensor;
}
static rd_tensor matrix(const void *data, rd_dtype dtype, int rows, int columns) {
    return here(rd_tensor_2d((void *)(uintptr_t)data, dtype, rows, columns));
}
static rd_tensor scales_behind(const void *codes) {
    return matrix((const char *)codes + M * d, RD_DTYPE_F32, M, d / 128);
}
static size_t form_bytes(form f) {
    return f == BF16 ? (size_t)(M * d) * 2 : (size_t)(M * d) + (size_t)(M * d / 128) * 4;
}

// ---- the kinds ---------------------------------------------------------------------------------------------------------------
static rd_status run_gemm(const kind *k, const void *in, void *out, rd_stream stream) {
    const bool fp8_weight = strcmp(k->op, "gemm_bf16") != 0, codes = k->in == CODES;
    rd_gemm_args a = {.struct_size = sizeof a};
    a.a = matrix(in, codes ? RD_DTYPE_E4M3 : RD_DTYPE_BF16, M, d);
    if (codes) a.a_scale = scales_behind(in);
    a.w = fp8_weight ? matrix(weights, RD_DTYPE_E4M3, d, d) : matrix(weights_bf16, RD_DTYPE_BF16, d, d);
    if (fp8_weight) a.w_scale = matrix(scales, RD_DTYPE_F32, d / 128, d / 128);
    a.c = matrix(out, RD_DTYPE_BF16, M, d);
    size_t bytes = workspace_bytes;
    return rd_gemm_run(k->plan, &a, workspace, &bytes, stream);
}

static rd_status run_quant(const kind *k, const void *in, void *out, rd_stream stream) {
    rd_quant_args a = {.struct_size = sizeof a, .x = matrix(in, RD_DTYPE_BF16, M, d), .eps = 1e-6f};
    if (!strcmp(k->name, "silu_quant")) a.up = matrix(other, RD_DTYPE_BF16, M, d);
    if (!strcmp(k->name, "norm_quant")) a.norm_weight = here(rd_tensor_1d(vector, RD_DTYPE_F32, d));
    a.q = matrix(out, RD_DTYPE_E4M3, M, d);
    a.q_scale = scales_behind(out);
    size_t bytes = workspace_bytes;
    return rd_quant_run(k->plan, &a, workspace, &bytes, stream);
}

static rd_status run_norm(const kind *k, const void *in, void *out, rd_stream stream) {
    const rd_rmsnorm_args a = {.struct_size = sizeof a,
                               .x = matrix(in, RD_DTYPE_BF16, M, d),
                               .weight = here(rd_tensor_1d(vector, RD_DTYPE_F32, d)),
                               .y = matrix(out, RD_DTYPE_BF16, M, d),
                               .eps = 1e-6f};
    return rd_rmsnorm_run(k->plan, &a, stream);
}

static rd_status run_act(const kind *k, const void *in, void *out, rd_stream stream) {
    const rd_act_mul_args a = {.struct_size = sizeof a,
                               .gate = matrix(in, RD_DTYPE_BF16, M, d),
                               .up = matrix(other, RD_DTYPE_BF16, M, d),
                               .y = matrix(out, RD_DTYPE_BF16, M, d)};
    return rd_act_mul_run(k->plan, &a, stream);
}

// One sequence of M query tokens (prefill), or M sequences of one (decode), over blocks of one cache; two query heads a KV head.
static rd_status run_attn(const kind *k, const void *in, void *out, rd_stream stream) {
    const int heads = d / HEAD, kv_heads = heads / 2, seqs = strcmp(k->op, "attn_decode") ? 1 : M;
    const int32_t *words = tables; // [M, BLOCKS] blocks, [M] lengths, [M + 1] starts of each, [2] of one
    rd_attn_args a = {.struct_size = sizeof a, .scale = 0.0884f, .max_q_len = M / seqs, .max_kv_len = KEYS};
    a.q = here(rd_tensor_3d((void *)(uintptr_t)in, RD_DTYPE_BF16, M, heads, HEAD));
    a.out = here(rd_tensor_3d(out, RD_DTYPE_BF16, M, heads, HEAD));
    a.k_cache = here(rd_tensor_4d(cache, RD_DTYPE_BF16, BLOCKS, BLOCK, kv_heads, HEAD));
    a.v_cache = a.k_cache;
    a.block_table = matrix(words, RD_DTYPE_I32, seqs, BLOCKS);
    a.kv_lens = here(rd_tensor_1d((void *)(uintptr_t)(words + M * BLOCKS), RD_DTYPE_I32, seqs));
    const int32_t *starts = words + M * BLOCKS + M + (seqs == 1 ? M + 1 : 0);
    a.q_starts = here(rd_tensor_1d((void *)(uintptr_t)starts, RD_DTYPE_I32, seqs + 1));
    size_t bytes = workspace_bytes;
    return rd_attn_run(k->plan, &a, workspace, &bytes, stream);
}

static rd_status run_embed(const kind *k, const void *in, void *out, rd_stream stream) {
    const rd_embed_args a = {.struct_size = sizeof a,
                             .table = matrix(in, RD_DTYPE_BF16, M, d), // the last kernel's rows, turned over
                             .ids = here(rd_tensor_1d(ids, RD_DTYPE_I32, M)),
                             .y = matrix(out, RD_DTYPE_BF16, M, d),
                             .scale = 1.0f};
    return rd_embed_run(k->plan, &a, stream);
}

static kind kinds[] = {{"gemm", "gemm_fp8block", CODES, BF16, run_gemm, NULL},
                       {"gemm_w8a16", "gemm_fp8block_w8a16", BF16, BF16, run_gemm, NULL},
                       {"gemm_bf16", "gemm_bf16", BF16, BF16, run_gemm, NULL},
                       {"quant", "quant_fp8", BF16, CODES, run_quant, NULL},
                       {"silu_quant", "quant_fp8", BF16, CODES, run_quant, NULL},
                       {"norm_quant", "quant_fp8", BF16, CODES, run_quant, NULL},
                       {"norm", "rmsnorm", BF16, BF16, run_norm, NULL},
                       {"act", "act_mul", BF16, BF16, run_act, NULL},
                       {"decode", "attn_decode", BF16, BF16, run_attn, NULL},
                       {"prefill", "attn_prefill", BF16, BF16, run_attn, NULL},
                       {"embed", "embed", BF16, BF16, run_embed, NULL}};
enum { KINDS = sizeof kinds / sizeof *kinds, CALLS = 2 * KINDS * KINDS };

static void plan_kind(kind *k) {
    const bool gemm = !strncmp(k->op, "gemm", 4), attn = !strncmp(k->op, "attn", 4);
    rd_param p[16];
    int32_t n = 0;
#define INT(key_, value_)  p[n++] = (rd_param)RD_INT(key_, value_)
#define WORD(key_, value_) p[n++] = (rd_param)RD_WORD(key_, value_)
    if (gemm) {
        INT("n", d), INT("k", d), INT("bias", 0);
        WORD("a_dtype", k->in == CODES ? "fp8_e4m3" : "bf16"), WORD("c_dtype", "bf16"), WORD("layout", "row");
        if (strcmp(k->op, "gemm_bf16") != 0) WORD("w_scale_dtype", "fp32");
        WORD("order", "step");
    } else if (attn) {
        INT("head_dim", HEAD), INT("gqa", 2), INT("block_tokens", BLOCK), INT("window", 0), INT("softcap", 0);
        INT("sinks", 0), INT("causal", 1);
        WORD("q_dtype", "bf16"), WORD("kv_dtype", "bf16"), WORD("out_dtype", "bf16"), WORD("k_order", "dim");
    } else {
        INT("k", d);
        if (!strcmp(k->op, "embed"))
            WORD("table_dtype", "bf16"), WORD("y_dtype", "bf16");
        else
            WORD("x_dtype", "bf16");
        if (!strcmp(k->op, "quant_fp8"))
            WORD("fuse", k->name[0] == 'n' ? "rmsnorm" : k->name[0] == 's' ? "silu_mul" : "none");
        if (!strcmp(k->op, "rmsnorm"))
            WORD("y_dtype", "bf16"), WORD("weight_dtype", "fp32"), INT("residual", 0);
        if (!strcmp(k->op, "act_mul")) WORD("y_dtype", "bf16"), WORD("act", "silu");
    }
    const int64_t at = !strcmp(k->op, "embed") ? 0 : !strcmp(k->op, "attn_decode") ? 1 : M;
    rd_status status = rd_plan_create(ctx, k->op, p, n, at, at, &k->plan);
    if (status == RD_E_UNSUPPORTED)
        print_message("%s is left out: %s\n", k->name, rd_error_text());
    else
        must(status);
}

// ---- operands ----------------------------------------------------------------------------------------------------------------
static uint64_t state = 88172645463325252u;
static uint32_t draw(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}
static uint16_t draw_bf16(void) { // within +-2
    float value = (float)(int32_t)draw() * 0x1p-30f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void *put(const void *host, size_t bytes) {
    void *there = NULL;
    must(rd_memory_alloc(ctx, bytes, &there));
    must(rd_memory_copy(ctx, there, host, bytes, RD_COPY_TO_DEVICE, NULL));
    must(rd_stream_sync(ctx, NULL));
    return there;
}
static void *put_bf16(size_t count) {
    uint16_t *host = malloc(count * 2);
    for (size_t i = 0; i < count; i++) host[i] = draw_bf16();
    void *there = put(host, count * 2);
    free(host);
    return there;
}
static void *put_codes(size_t count) {
    uint8_t *host = malloc(count);
    for (size_t i = 0; i < count; i++) host[i] = (uint8_t)(draw() & 0xbf); // below 2: no NaN
    void *there = put(host, count);
    free(host);
    return there;
}
static void *put_scales(size_t count) {
    float *host = malloc(count * sizeof *host);
    for (size_t i = 0; i < count; i++) host[i] = 0.02f * (1.0f + (float)(draw() % 1000) * 1e-3f);
    void *there = put(host, count * sizeof *host);
    free(host);
    return there;
}

static void make_operands(void) {
    const size_t square = (size_t)d * (size_t)d;
    int32_t turned[M], words[M * BLOCKS + M + M + 1 + 2];
    for (int i = 0; i < M; i++) turned[i] = M - 1 - i;
    for (int s = 0; s < M; s++) {
        for (int b = 0; b < BLOCKS; b++) words[s * BLOCKS + b] = (s + b) % BLOCKS;
        words[M * BLOCKS + s] = KEYS - 37 * s;
        words[M * BLOCKS + M + s] = s;
    }
    words[M * BLOCKS + 2 * M] = words[M * BLOCKS + 2 * M + 2] = M;
    words[M * BLOCKS + 2 * M + 1] = 0;
    weights = put_codes(square), weights_bf16 = put_bf16(square);
    scales = put_scales(square / 128 / 128), vector = put_scales((size_t)d);
    cache = put_bf16((size_t)(KEYS * d / 2)), other = put_bf16((size_t)(M * d));
    ids = put(turned, sizeof turned), tables = put(words, sizeof words);
    inputs[BF16] = put_bf16((size_t)(M * d));
    uint8_t *codes = malloc(form_bytes(CODES));
    for (int i = 0; i < M * d; i++) codes[i] = (uint8_t)(draw() & 0xbf);
    for (int i = 0; i < M * d / 128; i++)
        ((float *)(void *)(codes + M * d))[i] = 0.01f * (float)(1 + draw() % 9);
    inputs[CODES] = put(codes, form_bytes(CODES));
    free(codes);
    workspace_bytes = (size_t)64 << 20; // more than any of them asks for at this size
    must(rd_memory_alloc(ctx, workspace_bytes, &workspace));
    must(rd_memory_set(ctx, workspace, 0, workspace_bytes, NULL));
    must(rd_stream_sync(ctx, NULL));
}

// ---- pairs -------------------------------------------------------------------------------------------------------------------
static unsigned char *ring; // an output a call
static size_t slot_bytes;

// Both calls of a pair; waits after each when `apart`.
static void run_pair(int first, int second, rd_stream stream, bool apart) {
    unsigned char *out = ring + (size_t)(2 * (first * KINDS + second)) * slot_bytes;
    const kind *a = &kinds[first], *b = &kinds[second];
    must(a->run(a, inputs[a->in], out, stream));
    if (apart) must(rd_stream_sync(ctx, stream));
    must(b->run(b, a->out == b->in ? out : inputs[b->in], out + slot_bytes, stream));
    if (apart) must(rd_stream_sync(ctx, stream));
}
static void run_pairs(rd_stream stream, bool apart) {
    for (int a = 0; a < KINDS; a++)
        for (int b = 0; b < KINDS; b++)
            if (kinds[a].plan && kinds[b].plan) run_pair(a, b, stream, apart);
}

static void check_ring(const unsigned char *got, const unsigned char *want, int replay) {
    if (!memcmp(got, want, CALLS * slot_bytes)) return;
    for (int call = 0; call < CALLS; call++)
        if (memcmp(got + (size_t)call * slot_bytes, want + (size_t)call * slot_bytes, slot_bytes) != 0)
            fail_msg("replay %d: %s after %s: the %s call's output differs", replay,
                     kinds[call / 2 % KINDS].name, kinds[call / 2 / KINDS].name,
                     call % 2 ? "second" : "first");
}

static int replays(void) {
    const char *named = getenv("RADIANCE_TEST_REPLAYS");
    return named ? atoi(named) : card_is_simulated() ? 3 : 10000;
}

static void test_every_order_of_kernels(void **unused) {
    (void)unused;
    if (!ctx) skip();
    rd_stream stream;
    rd_graph *graph;
    unsigned char *want, *got;
    const size_t bytes = CALLS * slot_bytes;
    void *kept = NULL, *read = NULL;
    must(rd_memory_alloc(ctx, bytes, (void **)&ring));
    must(rd_memory_alloc_host(ctx, bytes, &kept));
    must(rd_memory_alloc_host(ctx, bytes, &read));
    want = kept, got = read;
    must(rd_stream_create(ctx, &stream));
    must(rd_memory_set(ctx, ring, 0, bytes, stream));
    run_pairs(stream, true);
    from_card(ctx, want, ring, bytes, stream);
    must(rd_graph_begin(ctx, stream));
    must(rd_memory_set(ctx, ring, 0, bytes, stream)); // a call that does not write is seen
    run_pairs(stream, false);
    must(rd_graph_end(ctx, stream, &graph));
    int done = 0;
    for (; done < replays(); done++) {
        must(rd_graph_launch(graph, stream));
        from_card(ctx, got, ring, bytes, stream);
        check_ring(got, want, done);
    }
    for (int i = 0; i < (card_is_simulated() ? 1 : 20); i++, done++) { // launch by launch too
        must(rd_memory_set(ctx, ring, 0, bytes, stream));
        run_pairs(stream, false);
        from_card(ctx, got, ring, bytes, stream);
        check_ring(got, want, done);
    }
    int pairs = 0;
    for (int i = 0; i < KINDS; i++) pairs += kinds[i].plan != NULL;
    print_message("%d kinds, %d ordered pairs, %d replays: every call compared\n", pairs, pairs * pairs,
                  done);
    assert_true(pairs >= 8);
    rd_graph_free(graph);
    must(rd_stream_free(ctx, stream));
    must(rd_memory_free_host(ctx, kept));
    must(rd_memory_free_host(ctx, read));
    must(rd_memory_free(ctx, ring));
}

static int open_all(void **unused) {
    (void)unused;
    ctx = card_ctx();
    if (!ctx) return 0;
    d = card_is_simulated() ? 512 : MOST_D;
    slot_bytes = form_bytes(BF16);
    make_operands();
    for (int i = 0; i < KINDS; i++) plan_kind(&kinds[i]);
    return 0;
}
static int close_all(void **unused) {
    (void)unused;
    void *const all[] = {weights,   weights_bf16, scales, vector, cache, inputs[0],
                         inputs[1], workspace,    ids,    tables, other};
    for (int i = 0; i < KINDS; i++) rd_plan_free(kinds[i].plan);
    for (size_t i = 0; ctx && i < sizeof all / sizeof *all; i++) must(rd_memory_free(ctx, all[i]));
    rd_ctx_free(ctx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_order_of_kernels)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
