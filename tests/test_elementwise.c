// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Every row of rmsnorm, act_mul and rope against the reference, with bounds from the count and size of roundings, and bit
// for bit within an order class: instruction sets, threads and the number of rows change nothing.
#include "elementwise.h"

// ---- rmsnorm ----------------------------------------------------------------------------------------------------------
typedef struct norm_case {
    int64_t m, k;
    rd_dtype x, residual, weight, y; // residual NONE: without
    float size, eps;
    int unit_offset;
} norm_case;

typedef struct norm_data {
    guarded x, residual, weight, y;
} norm_data;

static void norm_run(const rdi_row *row, const norm_case *c, norm_data *d, rdi_par *par, int64_t first,
                     int64_t count) {
    rdi_rmsnorm_args a = {.m = count,
                          .k = c->k,
                          .weight = d->weight.data,
                          .x_stride = c->k + 3,
                          .residual_stride = c->k + 5,
                          .y_stride = c->k + 1,
                          .x_dtype = c->x,
                          .residual_dtype = c->residual,
                          .weight_dtype = c->weight,
                          .y_dtype = c->y,
                          .eps = c->eps,
                          .unit_offset = c->unit_offset};
    a.x = (char *)d->x.data + (size_t)(first * a.x_stride) * rd_dtype_bytes(c->x);
    a.y = (char *)d->y.data + (size_t)(first * a.y_stride) * rd_dtype_bytes(c->y);
    if (c->residual)
        a.residual =
            (char *)d->residual.data + (size_t)(first * a.residual_stride) * rd_dtype_bytes(c->residual);
    row->run(&a, NULL, par);
}

static norm_data norm_new(const norm_case *c, uint64_t seed) {
    uint64_t state = seed;
    norm_data d = {guarded_new(c->m * (c->k + 3), c->x),
                   guarded_new(c->m * (c->k + 5), c->residual ? c->residual : RD_DTYPE_F32),
                   guarded_new(c->k, c->weight), guarded_new(c->m * (c->k + 1), c->y)};
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t k = 0; k < c->k; k++) {
            rdi_store_f32(d.x.data, c->x, m * (c->k + 3) + k, c->size * random_normal(&state));
            if (c->residual)
                rdi_store_f32(d.residual.data, c->residual, m * (c->k + 5) + k,
                              c->size * random_normal(&state));
        }
    fill(d.weight.data, c->weight, c->k, &state, 1);
    return d;
}
static void norm_free(norm_data *d) {
    guarded_free(&d->x), guarded_free(&d->residual), guarded_free(&d->weight), guarded_free(&d->y);
}

static void norm_check(const norm_case *c, uint64_t seed) {
    norm_data wanted = norm_new(c, seed), first = {0};
    norm_run(reference_of("rmsnorm"), c, &wanted, NULL, 0, c->m);
    const rdi_row *row;
    for (int i = 0; (row = row_at("rmsnorm", i)) && !row->info.is_reference; i++) {
        norm_data got = norm_new(c, seed);
        norm_run(row, c, &got, i ? NULL : pool(), 0, c->m);
        for (int64_t m = 0; m < c->m; m++) {
            for (int64_t k = 0; k < c->k; k++) {
                int64_t at = m * (c->k + 1) + k;
                double y = rdi_load_f32(got.y.data, c->y, at), w = rdi_load_f32(wanted.y.data, c->y, at);
                // The sum of k squares in f32 lanes: k/16 + 5 roundings, halved by the root; then 6 more.
                assert_true(fabs(y - w) <= bound(c->y, w, (double)c->k / 32 + 9));
                if (c->residual)
                    assert_true(
                        same_bits(c->residual, got.residual.data, wanted.residual.data, m * (c->k + 5) + k));
            }
            assert_true(
                isnan(rdi_load_f32(got.y.data, c->y, m * (c->k + 1) + c->k))); // between rows: untouched
        }
        if (!i) {
            first = got;
            continue;
        }
        assert_memory_equal(first.y.data, got.y.data, got.y.bytes);
        norm_free(&got);
    }
    // One row at a time gives the bits of all rows at once.
    norm_data single = norm_new(c, seed);
    for (int64_t m = 0; m < c->m; m++) norm_run(row_at("rmsnorm", 0), c, &single, NULL, m, 1);
    assert_memory_equal(single.y.data, first.y.data, first.y.bytes);
    norm_free(&single), norm_free(&first), norm_free(&wanted);
}

static void test_rmsnorm_rows(void **unused) {
    (void)unused;
    uint64_t state = fresh_seed("rmsnorm");
    for (int64_t k = 1; k <= 300; k += k < 40 ? 1 : 7)
        for (size_t t = 0; t < 3; t++)
            norm_check(&(norm_case){3, k, float_types[t], t == 1 ? RD_DTYPE_NONE : float_types[(t + 1) % 3],
                                    float_types[(size_t)k % 3], float_types[(t + 1) % 3], 1, 1e-5f,
                                    (int)(k & 1)},
                       random_next(&state));
    norm_check(
        &(norm_case){83, 2048, RD_DTYPE_BF16, RD_DTYPE_BF16, RD_DTYPE_BF16, RD_DTYPE_BF16, 30, 1e-6f, 0},
        random_next(&state));
    norm_check(
        &(norm_case){2, 5120, RD_DTYPE_BF16, RD_DTYPE_NONE, RD_DTYPE_F32, RD_DTYPE_F32, 1e-3f, 1e-6f, 1},
        random_next(&state));
    norm_check(&(norm_case){2, 257, RD_DTYPE_F32, RD_DTYPE_F32, RD_DTYPE_F32, RD_DTYPE_F32, 1e-20f, 1e-6f, 0},
               random_next(&state));
}

static void test_rmsnorm_special_values(void **unused) {
    (void)unused;
    // A row of zeros is zeros (eps keeps 1/rms finite); a NaN or an Inf stays within its row.
    const rdi_row *row;
    for (int i = 0; (row = row_at("rmsnorm", i)); i++) {
        float x[3][40], y[3][40], weight[40];
        for (int k = 0; k < 40; k++) x[0][k] = 0, x[1][k] = 1, x[2][k] = (float)k, weight[k] = 1;
        x[1][7] = NAN;
        rdi_rmsnorm_args a = {.m = 3,
                              .k = 40,
                              .x = x,
                              .weight = weight,
                              .y = y,
                              .x_stride = 40,
                              .y_stride = 40,
                              .x_dtype = RD_DTYPE_F32,
                              .weight_dtype = RD_DTYPE_F32,
                              .y_dtype = RD_DTYPE_F32,
                              .eps = 1e-6f};
        row->run(&a, NULL, NULL);
        for (int k = 0; k < 40; k++) {
            assert_true(y[0][k] == 0);
            assert_true(isnan(y[1][k]));
            assert_true(isfinite(y[2][k]));
        }
    }
}

// ---- act_mul ----------------------------------------------------------------------------------------------------------
static void act_check(int64_t m, int64_t k, rdi_act act, rd_dtype x, rd_dtype y, float size, uint64_t seed) {
    uint64_t state = seed;
    guarded gate = guarded_new(m * (k + 2), x), up = guarded_new(m * (k + 1), x),
            wanted = guarded_new(m * (k + 3), y), first = guarded_new(m * (k + 3), y);
    fill(gate.data, x, m * (k + 2), &state, size), fill(up.data, x, m * (k + 1), &state, 1);
    rdi_act_mul_args a = {.m = m,
                          .k = k,
                          .gate = gate.data,
                          .up = up.data,
                          .y = wanted.data,
                          .gate_stride = k + 2,
                          .up_stride = k + 1,
                          .y_stride = k + 3,
                          .x_dtype = x,
                          .y_dtype = y,
                          .act = act};
    reference_of("act_mul")->run(&a, NULL, NULL);
    const rdi_row *row;
    for (int i = 0; (row = row_at("act_mul", i)) && !row->info.is_reference; i++) {
        guarded got = guarded_new(m * (k + 3), y);
        a.y = i ? got.data : first.data;
        row->run(&a, NULL, i ? NULL : pool());
        for (int64_t at = 0; at < m * (k + 3); at++) {
            double w = rdi_load_f32(wanted.data, y, at), g = rdi_load_f32(a.y, y, at);
            if (at % (k + 3) >= k) {
                assert_true(isnan(g));
                continue;
            }
            double arg = fabs((double)rdi_load_f32(gate.data, x, at / (k + 3) * (k + 2) + at % (k + 3)));
            // exp's argument of size z carries z relative roundings; z = 1.6 (g + 0.045 g^3) for gelu with 6 roundings.
            double z = act == RDI_ACT_SILU ? 0 : 6 * 1.6 * (arg + 0.045 * arg * arg * arg);
            double least = 0x1p-125 * (1 + arg); // where 1 + exp overflows the result is flushed to zero
            assert_true(fabs(g - w) <= bound(y, w, 10 + fmin(z, 700)) + least);
            if (i) assert_true(same_bits(y, first.data, got.data, at));
        }
        guarded_free(&got);
    }
    guarded_free(&gate), guarded_free(&up), guarded_free(&wanted), guarded_free(&first);
}

static void test_act_mul_rows(void **unused) {
    (void)unused;
    uint64_t state = fresh_seed("act_mul");
    for (int64_t k = 1; k <= 300; k += k < 40 ? 1 : 11)
        for (int act = 0; act < 2; act++)
            act_check(2, k, (rdi_act)act, float_types[k % 3], float_types[(k / 3) % 3], k % 5 ? 1 : 20,
                      random_next(&state));
    act_check(83, 1536, RDI_ACT_SILU, RD_DTYPE_BF16, RD_DTYPE_BF16, 3, random_next(&state));
    act_check(1, 13824, RDI_ACT_GELU_TANH, RD_DTYPE_F32, RD_DTYPE_F32, 3, random_next(&state));
}

// gelu by tanh and silu by its half-angle form, in double: other formulas than the rows use.
static void test_act_mul_formulas(void **unused) {
    (void)unused;
    const rdi_row *row;
    for (int act = 0; act < 2; act++)
        for (int i = 0; (row = row_at("act_mul", i)); i++)
            for (float g = -12; g <= 12; g += 0.0625f) {
                float up = 1.5f, y;
                rdi_act_mul_args a = {.m = 1,
                                      .k = 1,
                                      .gate = &g,
                                      .up = &up,
                                      .y = &y,
                                      .x_dtype = RD_DTYPE_F32,
                                      .y_dtype = RD_DTYPE_F32,
                                      .act = (rdi_act)act};
                row->run(&a, NULL, NULL);
                double x = (double)g,
                       gelu = x / 2 * (1 + tanh(sqrt(2 / 3.141592653589793) * (x + 0.044715 * x * x * x)));
                double silu = x * (1 + tanh(x / 2)) / 2, wanted = 1.5 * (act ? gelu : silu);
                assert_true(fabs((double)y - wanted) <= fabs(wanted) * 0x1p-20 + 1e-11);
            }
}

static void test_act_mul_special_values(void **unused) {
    (void)unused;
    static const float gates[] = {0.0f,  -0.0f,  1e-40f,   88.0f, -88.0f, 104.0f, -104.0f,
                                  3e38f, -3e38f, INFINITY, NAN,   -1e5f,  1e20f};
    const rdi_row *row;
    for (int act = 0; act < 2; act++)
        for (int i = 0; (row = row_at("act_mul", i)); i++) {
            float up[RDI_COUNT(gates)], y[RDI_COUNT(gates)];
            for (size_t k = 0; k < RDI_COUNT(gates); k++) up[k] = 1;
            rdi_act_mul_args a = {.m = 1,
                                  .k = RDI_COUNT(gates),
                                  .gate = gates,
                                  .up = up,
                                  .y = y,
                                  .x_dtype = RD_DTYPE_F32,
                                  .y_dtype = RD_DTYPE_F32,
                                  .act = (rdi_act)act};
            row->run(&a, NULL, NULL);
            assert_true(y[0] == 0 && y[1] == 0 && y[3] == 88.0f && fabsf(y[4]) < 1e-30f && y[5] == 104.0f);
            assert_true(fabsf(y[6]) < 1e-30f && y[7] == 3e38f && fabsf(y[8]) == 0 && y[9] == INFINITY &&
                        isnan(y[10]));
            assert_true(fabsf(y[11]) == 0 && y[12] == 1e20f);
        }
}

// ---- rope -------------------------------------------------------------------------------------------------------------
typedef struct rope_case {
    int64_t tokens, q_heads, k_heads, head_dim, rotary_dim;
    rd_dtype x, norm; // NONE: no qk-norm
    int interleaved, unit_offset, far_positions;
} rope_case;

static void rope_check(const rope_case *c, uint64_t seed) {
    int64_t q_elems = c->tokens * c->q_heads * (c->head_dim + 2),
            k_elems = c->tokens * c->k_heads * (c->head_dim + 2);
    uint64_t state = seed;
    int32_t positions[64];
    float inv_freq[256], q_norm[512], k_norm[512];
    for (int64_t t = 0; t < c->tokens; t++)
        positions[t] = (int32_t)(random_next(&state) % (c->far_positions ? 4194305 : 2048));
    if (c->far_positions) positions[0] = 4194304;
    for (int64_t i = 0; i < c->rotary_dim / 2; i++)
        inv_freq[i] = (float)pow(10000, -2.0 * (double)i / (double)c->rotary_dim);
    for (int64_t d = 0; d < c->head_dim; d++) {
        rdi_store_f32(q_norm, c->norm ? c->norm : RD_DTYPE_F32, d, random_normal(&state));
        rdi_store_f32(k_norm, c->norm ? c->norm : RD_DTYPE_F32, d, random_normal(&state));
    }
    guarded q0 = guarded_new(q_elems, c->x), k0 = guarded_new(k_elems, c->x), first_q = {0}, first_k = {0},
            want_q = {0}, want_k = {0};
    fill(q0.data, c->x, q_elems, &state, 1), fill(k0.data, c->x, k_elems, &state, 1);
    const rdi_row *rows[8] = {reference_of("rope")}, *row;
    int count = 1;
    for (int i = 0; (row = row_at("rope", i)) && !row->info.is_reference; i++) rows[count++] = row;
    for (int i = 0; i < count; i++) {
        guarded q = guarded_new(q_elems, c->x), k = guarded_new(k_elems, c->x);
        memcpy(q.data, q0.data, q.bytes), memcpy(k.data, k0.data, k.bytes);
        rdi_rope_args a = {.tokens = c->tokens,
                           .q_heads = c->q_heads,
                           .k_heads = c->k_heads,
                           .head_dim = c->head_dim,
                           .rotary_dim = c->rotary_dim,
                           .q = q.data,
                           .k = k.data,
                           .q_stride_head = c->head_dim + 2,
                           .q_stride_token = c->q_heads * (c->head_dim + 2),
                           .k_stride_head = c->head_dim + 2,
                           .k_stride_token = c->k_heads * (c->head_dim + 2),
                           .positions = positions,
                           .inv_freq = inv_freq,
                           .q_norm = c->norm ? q_norm : NULL,
                           .k_norm = c->norm ? k_norm : NULL,
                           .q_dtype = c->x,
                           .k_dtype = c->x,
                           .norm_dtype = c->norm,
                           .eps = 1e-6f,
                           .unit_offset = c->unit_offset,
                           .interleaved = c->interleaved};
        rows[i]->run(&a, NULL, i == 1 ? pool() : NULL);
        if (i == 0) {
            want_q = q, want_k = k;
            continue;
        }
        for (int64_t at = 0; at < q_elems; at++) {
            int64_t d = at % (c->head_dim + 2), head = at - d;
            double w = rdi_load_f32(want_q.data, c->x, at), g = rdi_load_f32(q.data, c->x, at);
            if (d >= c->head_dim || (d >= c->rotary_dim && !c->norm)) {
                assert_true(same_bits(c->x, q.data, q0.data, at));
                continue;
            }
            // A pair's length times the error of sine and cosine (2^-22), the norm's head_dim/32 + 9 roundings as above.
            int64_t half = c->rotary_dim / 2, other = c->interleaved ? (d ^ 1) : (d + half) % (2 * half);
            double partner =
                d < c->rotary_dim ? fabs((double)rdi_load_f32(want_q.data, c->x, head + other)) : 0;
            double length = (fabs(w) + partner + ulp_of(c->x, partner)) * 1.5;
            assert_true(fabs(g - w) <=
                        bound(c->x, w, 4) +
                            length * (0x1p-22 + (c->norm ? (double)c->head_dim / 32 + 9 : 0) * 0x1p-24));
        }
        if (i == 1) {
            first_q = q, first_k = k;
            continue;
        }
        assert_memory_equal(q.data, first_q.data, q.bytes);
        assert_memory_equal(k.data, first_k.data, k.bytes);
        guarded_free(&q), guarded_free(&k);
    }
    guarded_free(&q0), guarded_free(&k0), guarded_free(&want_q), guarded_free(&want_k),
        guarded_free(&first_q), guarded_free(&first_k);
}

static void test_rope_rows(void **unused) {
    (void)unused;
    uint64_t state = fresh_seed("rope");
    for (int i = 0; i < 24; i++) {
        int64_t head_dim = 2 + 2 * (int64_t)(random_next(&state) % 140),
                rotary = 2 + 2 * (int64_t)(random_next(&state) % (uint64_t)(head_dim / 2));
        rope_check(&(rope_case){5, 3, 1, head_dim, i & 1 ? head_dim : rotary, float_types[i % 3],
                                i % 4 < 2 ? RD_DTYPE_NONE : float_types[(i + 1) % 3], i >> 2 & 1, i & 1,
                                i >> 3 & 1},
                   random_next(&state));
    }
    rope_check(&(rope_case){64, 9, 3, 64, 64, RD_DTYPE_BF16, RD_DTYPE_NONE, 0, 0, 0}, random_next(&state));
    rope_check(&(rope_case){3, 16, 8, 128, 128, RD_DTYPE_BF16, RD_DTYPE_BF16, 0, 0, 0}, random_next(&state));
    rope_check(&(rope_case){2, 2, 1, 512, 512, RD_DTYPE_F32, RD_DTYPE_F32, 1, 1, 1}, random_next(&state));
}

static void test_rope_position_zero_changes_nothing(void **unused) {
    (void)unused;
    const rdi_row *row;
    for (int i = 0; (row = row_at("rope", i)); i++) {
        float q[64], before[64], inv_freq[32];
        for (int d = 0; d < 64; d++) q[d] = before[d] = (float)d - 31.5f;
        for (int d = 0; d < 32; d++) inv_freq[d] = powf(0.5f, (float)d);
        int32_t position = 0;
        rdi_rope_args a = {.tokens = 1,
                           .q_heads = 1,
                           .head_dim = 64,
                           .rotary_dim = 64,
                           .q = q,
                           .positions = &position,
                           .inv_freq = inv_freq,
                           .q_dtype = RD_DTYPE_F32};
        row->run(&a, NULL, NULL);
        assert_memory_equal(q, before, sizeof q);
    }
}

static double
llama3_by_wavelength(double frequency) { // Llama 3.1's rule stated in wavelengths, factor 8, 1, 4, 8192
    double wavelength = 2 * 3.141592653589793 / frequency;
    if (wavelength < 8192 / 4.0) return frequency;
    if (wavelength > 8192 / 1.0) return frequency / 8;
    double smooth = (8192 / wavelength - 1) / (4 - 1.0);
    return frequency * ((1 - smooth) / 8 + smooth);
}

static void test_rope_frequencies(void **unused) {
    (void)unused;
    float plain[32], linear[32], llama3[64];
    assert_int_equal(rd_rope_frequencies(&(rd_rope_scaling){.theta = 10000}, 64, plain), RD_OK);
    assert_int_equal(
        rd_rope_frequencies(&(rd_rope_scaling){.type = "linear", .theta = 10000, .factor = 4}, 64, linear),
        RD_OK);
    for (int i = 0; i < 32; i++) {
        double wanted = exp(-log(10000) * 2 * i / 64);
        assert_true(fabs(plain[i] - wanted) <= wanted * 0x1p-23);
        assert_true(linear[i] == plain[i] / 4);
    }
    rd_rope_scaling scaling = {"llama3", 500000, 8, 1, 4, 8192};
    assert_int_equal(rd_rope_frequencies(&scaling, 128, llama3), RD_OK);
    for (int i = 0; i < 64; i++) {
        double wanted = llama3_by_wavelength(exp(-log(500000) * 2 * i / 128));
        assert_true(fabs(llama3[i] - wanted) <= wanted * 0x1p-22);
    }
    scaling.type = "yarn";
    assert_int_equal(rd_rope_frequencies(&scaling, 128, llama3), RD_E_UNSUPPORTED);
    assert_non_null(strstr(rd_error_text(), "type=yarn, needs one of: none linear llama3"));
    scaling.type = "llama3", scaling.factor = 0;
    assert_int_equal(rd_rope_frequencies(&scaling, 128, llama3), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "factor=0, needs"));
    assert_int_equal(rd_rope_frequencies(&scaling, 127, llama3), RD_E_INVALID);
    assert_int_equal(rd_rope_frequencies(NULL, 128, llama3), RD_E_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm_rows),
        cmocka_unit_test(test_rmsnorm_special_values),
        cmocka_unit_test(test_act_mul_rows),
        cmocka_unit_test(test_act_mul_formulas),
        cmocka_unit_test(test_act_mul_special_values),
        cmocka_unit_test(test_rope_rows),
        cmocka_unit_test(test_rope_position_zero_changes_nothing),
        cmocka_unit_test(test_rope_frequencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
