// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Every row of embed and kv_write against the reference, and bit for bit within an order class: instruction sets, threads
// and the number of rows change nothing.
#include "elementwise.h"

#include "registry/decide.h"

// ---- embed ------------------------------------------------------------------------------------------------------------
static void test_embed_rows(void **unused) {
    (void)unused;
    uint64_t state = fresh_seed("embed");
    for (int64_t k = 1; k <= 300; k += 13)
        for (size_t t = 0; t < 9; t++) {
            rd_dtype table_type = float_types[t / 3], y_type = float_types[t % 3];
            int32_t ids[5] = {0, 6, 3, 3, 1};
            float scale = t & 1 ? 1.0f : 24.0f;
            guarded table = guarded_new(7 * (k + 1), table_type);
            fill(table.data, table_type, 7 * (k + 1), &state, 1);
            const rdi_row *row;
            for (int i = 0; (row = row_at("embed", i)); i++) {
                guarded y = guarded_new(5 * (k + 2), y_type);
                rdi_embed_args a = {.tokens = 5,
                                    .vocab = 7,
                                    .k = k,
                                    .table = table.data,
                                    .table_stride = k + 1,
                                    .ids = ids,
                                    .y = y.data,
                                    .y_stride = k + 2,
                                    .table_dtype = table_type,
                                    .y_dtype = y_type,
                                    .scale = scale};
                row->run(&a, NULL, pool());
                for (int64_t at = 0; at < 5 * (k + 2); at++) {
                    int64_t d = at % (k + 2);
                    float wanted[1],
                        x = d < k ? rdi_load_f32(table.data, table_type, ids[at / (k + 2)] * (k + 1) + d) *
                                        scale
                                  : 0;
                    rdi_store_f32(wanted, y_type, 0, x);
                    if (d < k)
                        assert_true(rdi_load_f32(y.data, y_type, at) == rdi_load_f32(wanted, y_type, 0));
                    else
                        assert_true(isnan(rdi_load_f32(y.data, y_type, at)));
                }
                guarded_free(&y);
            }
            guarded_free(&table);
        }
}

// ---- kv_write -----------------------------------------------------------------------------------------------------------
typedef struct kv_case {
    int64_t heads, head_dim, block_tokens;
    rd_dtype x, kv;
    int token_order, scaled;
} kv_case;

// Where element (slot, head, d) of K must be, from the layout's description alone.
static int64_t kv_place(const kv_case *c, int64_t slot, int64_t head, int64_t d, bool token_order) {
    int64_t block = slot / c->block_tokens, token = slot % c->block_tokens;
    int64_t head_elems = c->block_tokens * c->head_dim, base = block * c->heads * head_elems;
    if (!token_order) return base + (token * c->heads + head) * c->head_dim + d;
    return base + head * head_elems + (token / 16 * c->head_dim + d) * 16 + token % 16;
}

// A row is run on what its constraints take, as a plan would.
static bool row_takes(const rdi_row *row, const kv_case *c) {
    const rd_param params[] = {RD_INT("head_dim", c->head_dim), RD_INT("block_tokens", c->block_tokens),
                               RD_WORD("x_dtype", rd_dtype_name(c->x)),
                               RD_WORD("kv_dtype", rd_dtype_name(c->kv)),
                               RD_WORD("k_order", c->token_order ? "token" : "dim")};
    rdi_query query;
    char reason[RDI_REASON_BYTES];
    assert_int_equal(rdi_query_read("kv_write", params, 5, &query), RD_OK);
    return !rdi_constraint_first_failure(row, &query, reason);
}

static void kv_check(const kv_case *c, uint64_t seed) {
    enum { TOKENS = 7 + 35, BLOCKS = 3 };
    uint64_t state = seed;
    int64_t capacity = BLOCKS * c->block_tokens, elems = capacity * c->heads * c->head_dim,
            x_elems = TOKENS * c->heads * (c->head_dim + 1);
    int64_t slots[TOKENS] = {0, capacity - 1, -1, c->block_tokens + 1, 2, -7, c->block_tokens};
    // Then runs: one that begins within a group of 16, a whole group, one that is cut short, and a group with a hole.
    for (int64_t i = 7, slot = 13; i < TOKENS; i++, slot++) slots[i] = i == 40 ? -1 : slot % capacity;
    float scales[2][8];
    guarded k = guarded_new(x_elems, c->x), v = guarded_new(x_elems, c->x);
    fill(k.data, c->x, x_elems, &state, 30), fill(v.data, c->x, x_elems, &state, 30);
    for (int h = 0; h < 8; h++) scales[0][h] = 0.01f + 0.1f * (float)h, scales[1][h] = 1.5f;
    const rdi_row *row;
    for (int i = 0; (row = row_at("kv_write", i)); i++) {
        if (!row_takes(row, c)) continue;
        guarded k_cache = guarded_new(elems, c->kv), v_cache = guarded_new(elems, c->kv);
        bool order = c->token_order;
        rdi_kv_write_args a = {.tokens = TOKENS,
                               .kv_heads = c->heads,
                               .head_dim = c->head_dim,
                               .block_tokens = c->block_tokens,
                               .blocks = BLOCKS,
                               .k = k.data,
                               .v = v.data,
                               .k_stride_head = c->head_dim + 1,
                               .k_stride_token = c->heads * (c->head_dim + 1),
                               .v_stride_head = c->head_dim + 1,
                               .v_stride_token = c->heads * (c->head_dim + 1),
                               .k_cache = k_cache.data,
                               .v_cache = v_cache.data,
                               .kc_stride_block = c->block_tokens * c->heads * c->head_dim,
                               .kc_stride_token = order ? 1 : c->heads * c->head_dim,
                               .kc_stride_head = order ? c->block_tokens * c->head_dim : c->head_dim,
                               .kc_stride_dim = order ? 16 : 1,
                               .vc_stride_block = c->block_tokens * c->heads * c->head_dim,
                               .vc_stride_token = c->heads * c->head_dim,
                               .vc_stride_head = c->head_dim,
                               .vc_stride_dim = 1,
                               .k_scale = c->scaled ? scales[0] : NULL,
                               .v_scale = c->scaled ? scales[1] : NULL,
                               .slots = slots,
                               .x_dtype = c->x,
                               .kv_dtype = c->kv};
        row->run(&a, NULL, pool());
        guarded want_k = guarded_new(elems, c->kv), want_v = guarded_new(elems, c->kv);
        for (int64_t t = 0; t < TOKENS; t++)
            for (int64_t h = 0; h < c->heads && slots[t] >= 0; h++)
                for (int64_t d = 0; d < c->head_dim; d++) {
                    int64_t from = (t * c->heads + h) * (c->head_dim + 1) + d;
                    float kx = rdi_load_f32(k.data, c->x, from), vx = rdi_load_f32(v.data, c->x, from);
                    rdi_store_f32(want_k.data, c->kv, kv_place(c, slots[t], h, d, order),
                                  c->scaled ? kx / scales[0][h] : kx);
                    rdi_store_f32(want_v.data, c->kv, kv_place(c, slots[t], h, d, false),
                                  c->scaled ? vx / scales[1][h] : vx);
                }
        assert_memory_equal(k_cache.data, want_k.data, k_cache.bytes); // skipped slots keep their poison
        assert_memory_equal(v_cache.data, want_v.data, v_cache.bytes);
        guarded_free(&k_cache), guarded_free(&v_cache), guarded_free(&want_k), guarded_free(&want_v);
    }
    guarded_free(&k), guarded_free(&v);
}

static void test_kv_write_rows(void **unused) {
    (void)unused;
    static const rd_dtype caches[] = {RD_DTYPE_E4M3, RD_DTYPE_BF16, RD_DTYPE_F16, RD_DTYPE_F32};
    static const int64_t dims[] = {1, 8, 15, 16, 17, 64, 72, 128};
    uint64_t state = fresh_seed("kv_write");
    for (size_t d = 0; d < RDI_COUNT(dims); d++)
        for (size_t kv = 0; kv < RDI_COUNT(caches); kv++)
            for (int order = 0; order < 2; order++)
                kv_check(&(kv_case){3, dims[d], d & 1 ? 16 : 48, float_types[(d + kv) % 3], caches[kv], order,
                                    kv == 0 && d % 4},
                         random_next(&state));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed_rows),
        cmocka_unit_test(test_kv_write_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
