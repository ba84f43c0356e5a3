// SPDX-License-Identifier: Apache-2.0
// labels: threads
// rope_kv_write: every row of this machine leaves the bits in q and in the caches that rope and then kv_write of the same
// instruction set leave; through the public header it turns and stores what a formula says, and refuses before it writes.
#include "rope_kv_write.h"

#include "registry/decide.h"

static bool row_takes(const rdi_row *row, const both_case *c) {
    const rd_param params[] = {RD_INT("head_dim", c->head_dim),
                               RD_INT("rotary_dim", c->rotary_dim),
                               RD_WORD("style", c->interleaved ? "interleaved" : "neox"),
                               RD_WORD("x_dtype", rd_dtype_name(c->x)),
                               RD_INT("qk_norm", c->norm != RD_DTYPE_NONE),
                               RD_INT("block_tokens", BLOCK_TOKENS),
                               RD_WORD("kv_dtype", rd_dtype_name(c->kv)),
                               RD_WORD("k_order", c->token_order ? "token" : "dim")};
    rdi_query query;
    char reason[RDI_REASON_BYTES];
    assert_int_equal(rdi_query_read("rope_kv_write", params, RDI_COUNT(params), &query), RD_OK);
    return !rdi_constraint_first_failure(row, &query, reason);
}

// The half's row by the same instruction set: the last one of its op that asks for exactly these bits.
static const rdi_row *half_of(const char *op, const rdi_row *both) {
    const rdi_row *row, *found = NULL;
    for (int i = 0; (row = row_at(op, i)); i++)
        if (row->isa == both->isa && row->info.is_reference == both->info.is_reference) found = row;
    assert_non_null(found);
    return found;
}

static void both_check(const both_case *c, uint64_t seed) {
    uint64_t state = seed ^ 1;
    const rdi_row *row;
    fill_tables(c, &state);
    for (int i = 0; (row = row_at("rope_kv_write", i)); i++) {
        if (!row_takes(row, c)) continue;
        both_data want = both_new(c, seed), got = both_new(c, seed);
        half_of("rope", row)->run(&want.args.rope, NULL, NULL);
        half_of("kv_write", row)->run(&want.args.kv, NULL, NULL);
        row->run(&got.args, NULL, pool());
        assert_memory_equal(got.q.data, want.q.data, want.q.bytes);
        assert_memory_equal(got.v.data, want.v.data, want.v.bytes);
        assert_memory_equal(got.k_cache.data, want.k_cache.data, want.k_cache.bytes);
        assert_memory_equal(got.v_cache.data, want.v_cache.data, want.v_cache.bytes);
        both_free(&want), both_free(&got);
    }
}

static void test_rows_equal_the_two_ops(void **unused) {
    (void)unused;
    static const int64_t dims[][2] = {{64, 64}, {128, 32}, {72, 40}, {256, 256}, {2, 2}, {16, 6}};
    static const rd_dtype caches[] = {RD_DTYPE_E4M3, RD_DTYPE_BF16, RD_DTYPE_F16, RD_DTYPE_F32};
    uint64_t state = fresh_seed("rope_kv_write");
    for (int i = 0; i < 96; i++)
        both_check(&(both_case){dims[i / 16][0], dims[i / 16][1], float_types[i % 3], caches[i % 4],
                                i % 5 ? RD_DTYPE_NONE : float_types[i / 3 % 3], i >> 2 & 1, i >> 3 & 1},
                   random_next(&state));
}

// ---- through the public header -----------------------------------------------------------------------------------------
static void refused(rd_status status, const char *text) {
    if (status != RD_E_INVALID || !strstr(rd_error_text(), text))
        fail_msg("status %d: \"%s\", wanted \"%s\"", status, rd_error_text(), text);
}

static void test_run(void **unused) {
    (void)unused;
    rd_ctx *ctx = NULL;
    rd_plan *plan = NULL;
    const rd_param params[] = {RD_INT("head_dim", 4),       RD_INT("rotary_dim", 2),
                               RD_WORD("style", "neox"),    RD_WORD("x_dtype", "fp32"),
                               RD_INT("qk_norm", 0),        RD_INT("block_tokens", 16),
                               RD_WORD("kv_dtype", "fp32"), RD_WORD("k_order", "dim")};
    assert_int_equal(rd_ctx_create(NULL, &ctx), RD_OK);
    assert_int_equal(rd_plan_create(ctx, "rope_kv_write", params, RDI_COUNT(params), 0, 0, &plan), RD_OK);
    float q[4] = {1, 0, 7, 8}, k[4] = {0, 2, 5, 6}, v[4] = {1, 2, 3, 4}, frequency[1] = {0.5f};
    float k_cache[64], v_cache[64];
    int32_t position[1] = {3};
    int64_t slot[1] = {16};
    memset(k_cache, 0, sizeof k_cache), memset(v_cache, 0, sizeof v_cache);
    rd_rope_args rope = {.struct_size = sizeof rope,
                         .q = rd_tensor_3d(q, RD_DTYPE_F32, 1, 1, 4),
                         .k = rd_tensor_3d(k, RD_DTYPE_F32, 1, 1, 4),
                         .positions = rd_tensor_1d(position, RD_DTYPE_I32, 1),
                         .inv_freq = rd_tensor_1d(frequency, RD_DTYPE_F32, 1)};
    rd_kv_write_args kv = {.struct_size = sizeof kv,
                           .v = rd_tensor_3d(v, RD_DTYPE_F32, 1, 1, 4),
                           .k_cache = rd_tensor_4d(k_cache, RD_DTYPE_F32, 1, 16, 1, 4),
                           .v_cache = rd_tensor_4d(v_cache, RD_DTYPE_F32, 1, 16, 1, 4),
                           .slots = rd_tensor_1d(slot, RD_DTYPE_I64, 1)};
    refused(rd_rope_kv_write_run(plan, &rope, &kv, NULL), "rope_kv_write: slots[0]=16, needs < 16");
    slot[0] = 2, position[0] = -1;
    refused(rd_rope_kv_write_run(plan, &rope, &kv, NULL), "rope_kv_write: positions[0]=-1");
    position[0] = 3, kv.k = kv.v;
    refused(rd_rope_kv_write_run(plan, &rope, &kv, NULL), "rope_kv_write: kv->k differs from rope->k");
    kv.k = rope.k;
    refused(rd_rope_kv_write_run(plan, &rope, NULL, NULL), "rope_kv_write: args=NULL");
    assert_true(q[0] == 1 && q[1] == 0 && k[0] == 0 && k[1] == 2 && k_cache[8] == 0); // nothing was written
    assert_int_equal(rd_rope_kv_write_run(plan, &rope, &kv, NULL), RD_OK);
    const double c = cos(1.5), s = sin(1.5); // the first two elements of a head turn, the others stay
    const double want_q[4] = {c, s, 7, 8}, want_k[4] = {-2 * s, 2 * c, 5, 6};
    for (int i = 0; i < 4; i++) {
        assert_true(fabs((double)q[i] - want_q[i]) < 1e-6);
        assert_true(fabs((double)k_cache[8 + i] - want_k[i]) < 1e-6);
        assert_true(v_cache[8 + i] == v[i]);
    }
    rope.k.data = NULL;
    refused(rd_rope_kv_write_run(plan, &rope, &kv, NULL), "rope_kv_write: k: data=NULL");
    rd_plan_free(plan);
    rd_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_equal_the_two_ops),
        cmocka_unit_test(test_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
