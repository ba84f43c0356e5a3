// SPDX-License-Identifier: Apache-2.0
// The attention rows of gfx1201 in the simulator, all checks on, against the oracle in double of attn_case.h: heads, cache
// types, GQA ratios, widths, lengths, windows, caps, sinks, every code. RADIANCE_TEST_FULL=1 runs the whole grids.
#include "gfx1201_attn_case.h"

// ---- numbers ----------------------------------------------------------------------------------------------------------
static const int gqas[] = {1, 2, 3, 5, 6, 8}, windows[] = {1, 20, 64, 256};

// A mix of features that covers, over some dozens of indices, every pair of them.
static attn_shape random_shape(int i, uint64_t *rng) {
    int gqa = gqas[random_next(rng) % 6], kv_heads = 1 + (int)(random_next(rng) % 2);
    return (attn_shape){.seqs = 1 + i % 3,
                        .q_heads = gqa * kv_heads,
                        .kv_heads = kv_heads,
                        .head_dim = head_dims[i / 2 % 4],
                        .block_tokens = i % 5 == 4 ? 48 : 16,
                        .window = i % 3 == 2 ? windows[random_next(rng) % 4] : 0,
                        .softcap = i % 7 == 3 ? 5 : 0,
                        .sinks = i % 4 == 3,
                        .scales = i % 3 != 1,
                        .q_dtype = i % 6 == 5 ? RD_DTYPE_F32 : RD_DTYPE_BF16,
                        .kv_dtype = i & 1 ? RD_DTYPE_BF16 : RD_DTYPE_E4M3,
                        .out_dtype = i % 4 == 2 ? RD_DTYPE_BF16 : RD_DTYPE_F32};
}

static void test_decode_numbers(void **unused) {
    (void)unused;
    NEED_SIM();
    static const int lengths[] = {1, 15, 16, 17, 33, 255, 256, 257, 300, 520};
    uint64_t rng = fresh_seed("attn_decode_gfx1201");
    for (int i = 0; i < (full() ? 240 : 40); i++) {
        attn_shape shape = random_shape(i, &rng);
        for (int s = 0; s < shape.seqs; s++) {
            shape.q_len[s] = s == 0 ? 1 + (int)(random_next(&rng) % 17) : 1;
            shape.kv_len[s] = lengths[random_next(&rng) % 10];
            if (i % 8)
                shape.kv_len[s] =
                    (int)rdi_max(shape.kv_len[s], shape.q_len[s]); // else rows before position 0
        }
        check_shape(&shape, decode_row(shape.kv_dtype), &rng);
    }
}

static void test_prefill_numbers(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t rng = fresh_seed("attn_prefill_gfx1201");
    for (int i = 0; i < (full() ? 120 : 24); i++) {
        attn_shape shape = random_shape(i, &rng);
        shape.q_heads = shape.q_heads > 6 ? 6 : shape.q_heads,
        shape.kv_heads = shape.q_heads % 2 ? 1 : shape.kv_heads;
        if (shape.q_heads % shape.kv_heads) shape.kv_heads = 1;
        for (int s = 0; s < shape.seqs; s++) {
            shape.q_len[s] = s == 1 ? 0 : 1 + (int)(random_next(&rng) % 40);
            shape.kv_len[s] = shape.q_len[s] + (int)(random_next(&rng) % 200) * (i & 1);
        }
        check_shape(&shape, prefill_row(shape.kv_dtype), &rng);
    }
}

// The grid of vLLM's test_triton_unified_attention.py, and its tolerances, on top of the oracle's own bound.
static void test_unified_attention_grid(void **unused) {
    (void)unused;
    NEED_SIM();
    static const int heads[][2] = {{4, 4}, {8, 2}, {5, 1}}, dims[] = {128, 256},
                     grid_windows[] = {0, 64, 128, 256};
    uint64_t rng = fresh_seed("unified attention grid");
    int count = 0;
    for (int i = 0; i < 3 * 2 * 4 * 2 * 2; i++) {
        attn_shape shape = {.seqs = 3,
                            .q_heads = heads[i % 3][0],
                            .kv_heads = heads[i % 3][1],
                            .head_dim = dims[i / 3 % 2],
                            .block_tokens = i / 6 % 2 ? 64 : 16,
                            .window = grid_windows[i / 6 % 4],
                            .softcap = i / 24 % 2 ? 50 : 0,
                            .q_dtype = RD_DTYPE_BF16,
                            .kv_dtype = i / 48 % 2 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16,
                            .scales = true,
                            .out_dtype = RD_DTYPE_BF16};
        if (!full() && i % 13) continue;
        bool decode = i & 1;
        // (1, 1328), (5, 18), (129, 463) of the original; a quarter of the last one's work outside the full run.
        const int q_len[] = {1, decode ? 1 : 5, decode ? 1 : full() ? 129 : 33}, kv_len[] = {1328, 18, 463};
        for (int s = 0; s < 3; s++) shape.q_len[s] = q_len[s], shape.kv_len[s] = kv_len[s];
        check_shape(&shape, decode ? decode_row(shape.kv_dtype) : prefill_row(shape.kv_dtype), &rng);
        count++;
    }
    assert_true(count >= 7);
}

// ---- special codes ----------------------------------------------------------------------------------------------------
static void put_code(attn_case *c, bool value, int64_t position, int64_t head, int64_t dim, uint16_t code) {
    const rdi_attn_args *a = &c->args;
    int64_t block = c->table[position / a->block_tokens], token = position % a->block_tokens;
    (value ? c->v_codes : c->k_codes)[0][(position * a->kv_heads + head) * a->head_dim + dim] = code;
    if (value)
        case_put(c->v.data, a->kv_dtype, case_value_at(a, block, token, head, dim), code);
    else
        case_put(c->k.data, a->kv_dtype, case_key_at(a, block, token, head, dim), code);
}
static attn_shape special_shape(int i) {
    return (attn_shape){.seqs = 1,
                        .q_heads = 3,
                        .kv_heads = 1,
                        .head_dim = head_dims[i / 2],
                        .block_tokens = 16,
                        .q_dtype = RD_DTYPE_BF16,
                        .kv_dtype = i & 1 ? RD_DTYPE_BF16 : RD_DTYPE_E4M3,
                        .out_dtype = RD_DTYPE_F32,
                        .q_len = {2},
                        .kv_len = {70}};
}

// Every finite e4m3 code as key and as value, subnormals and 448 among them; bf16 of sizes 2^-40 to 2^40 as values.
static void test_every_code(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t rng = fresh_seed("attn_decode_gfx1201 codes");
    for (int i = 0; i < 8; i++) {
        attn_shape shape = special_shape(i);
        attn_case *c = case_new(&shape, &rng);
        for (int64_t at = 0; at < 70 * c->args.head_dim; at++) {
            int64_t position = at / c->args.head_dim, dim = at % c->args.head_dim;
            if (shape.kv_dtype == RD_DTYPE_E4M3) {
                uint8_t key = (uint8_t)random_next(&rng), value = (uint8_t)random_next(&rng);
                put_code(c, false, position, 0, dim, (key & 0x7f) == 0x7f ? 0 : key);
                put_code(c, true, position, 0, dim, (value & 0x7f) == 0x7f ? 0x80 : value);
            } else {
                float size = ldexpf(1, (int)(random_next(&rng) % 81) - 40);
                put_code(c, true, position, 0, dim, rdi_bf16_from_f32(size * random_normal(&rng)));
            }
        }
        c->args.scale *= 0.01f; // scores of a few units, not of thousands
        void *out = card_run(c, gpu_row(decode_row(shape.kv_dtype)));
        compare_to_oracle(c, out, decode_row(shape.kv_dtype));
        free(out);
        case_free(c);
    }
}

// A NaN among the values spoils its own dim and no other; one among the keys spoils the rows that see it.
static void test_nan_stays_where_it_is(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t rng = fresh_seed("attn_decode_gfx1201 NaN");
    for (int i = 0; i < 8; i++) {
        attn_shape shape = special_shape(i);
        attn_case *c = case_new(&shape, &rng);
        uint16_t nan_code = shape.kv_dtype == RD_DTYPE_E4M3 ? 0x7f : 0x7fc0,
                 kept = c->k_codes[0][69 * c->args.head_dim + 3];
        const rdi_row *row = gpu_row(decode_row(shape.kv_dtype));
        float *clean = card_run(c, row);
        put_code(c, true, 20, 0, 5, nan_code);
        float *value = card_run(c, row);
        put_code(c, true, 20, 0, 5, 0);
        put_code(c, false, 69, 0, 3, nan_code); // the last key: the second token sees it, the first does not
        float *key = card_run(c, row);
        put_code(c, false, 69, 0, 3, kept);
        for (int64_t t = 0; t < 2; t++)
            for (int64_t h = 0; h < 3; h++)
                for (int64_t d = 0; d < c->args.head_dim; d++) {
                    int64_t at = case_out_at(c, t, h, d);
                    assert_true(d == 5 ? isnan(value[at]) : value[at] == clean[at]);
                    assert_true(t == 1 ? isnan(key[at]) : isfinite(key[at]));
                }
        free(clean), free(value), free(key);
        case_free(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_numbers),         cmocka_unit_test(test_prefill_numbers),
        cmocka_unit_test(test_unified_attention_grid), cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_nan_stays_where_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
