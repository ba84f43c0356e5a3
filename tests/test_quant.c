// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Every row of quant_fp8 and its fusions. Without fusion every row must give the reference's bits: amax is exact and scale
// and code are one f32 division each. With a fusion the scale is bounded and a code may differ by one step where the
// unrounded quotients straddle a rounding boundary. Within the class "cpu" all bits are equal.
#include "rows.h"

#include "kernels/quant_fp8/args.h"

static const rd_dtype float_types[] = {RD_DTYPE_F32, RD_DTYPE_BF16, RD_DTYPE_F16};

static rdi_par *pool(void) {
    static rdi_par *par;
    if (!par) assert_int_equal(rdi_par_create(4, NULL, NULL, &par), RD_OK);
    return par;
}

typedef struct quant_case {
    int64_t m, k;
    rdi_quant_fuse fuse;
    rd_dtype x, other; // other: up, residual and norm weight
    float size;
    int unit_offset, scales_by_column; // scales [k/128][m] in memory
} quant_case;

typedef struct quant_data {
    guarded x, up, residual, weight, q, scale;
} quant_data;

static quant_data data_new(const quant_case *c, uint64_t seed) {
    uint64_t state = seed;
    int64_t elems = c->m * (c->k + 3), groups = rdi_ceil_div(c->k, 128);
    quant_data d = {guarded_new(elems, c->x),          guarded_new(elems, c->other),
                    guarded_new(elems, c->other),      guarded_new(c->k, c->other),
                    guarded_new(elems, RD_DTYPE_E4M3), guarded_new(c->m * groups, RD_DTYPE_F32)};
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t k = 0; k < c->k; k++) {
            int64_t at = m * (c->k + 3) + k;
            float wide = k / 128 % 3 ? 1.0f : 64.0f; // groups of different size
            rdi_store_f32(d.x.data, c->x, at, c->size * wide * random_normal(&state));
            rdi_store_f32(d.up.data, c->other, at, random_normal(&state));
            rdi_store_f32(d.residual.data, c->other, at, c->size * random_normal(&state));
        }
    for (int64_t k = 0; k < c->k; k++) rdi_store_f32(d.weight.data, c->other, k, random_normal(&state));
    return d;
}
static void data_free(quant_data *d) {
    guarded_free(&d->x), guarded_free(&d->up), guarded_free(&d->residual);
    guarded_free(&d->weight), guarded_free(&d->q), guarded_free(&d->scale);
}

static rdi_quant_args args_of(const quant_case *c, quant_data *d) {
    int64_t groups = rdi_ceil_div(c->k, 128);
    return (rdi_quant_args){.m = c->m,
                            .k = c->k,
                            .x = d->x.data,
                            .up = d->up.data,
                            .residual = d->residual.data,
                            .norm_weight = d->weight.data,
                            .q = d->q.data,
                            .q_scale = d->scale.data,
                            .x_stride = c->k + 3,
                            .up_stride = c->k + 3,
                            .residual_stride = c->k + 3,
                            .q_stride = c->k + 3,
                            .q_scale_stride_m = c->scales_by_column ? 1 : groups,
                            .q_scale_stride_k = c->scales_by_column ? c->m : 1,
                            .x_dtype = c->x,
                            .up_dtype = c->other,
                            .residual_dtype = c->other,
                            .norm_dtype = c->other,
                            .eps = 1e-6f,
                            .unit_offset = c->unit_offset,
                            .fuse = c->fuse};
}

// Steps between two e4m3 codes of one sign; a code's magnitude orders the values.
static int code_steps(uint8_t a, uint8_t b) {
    int left = a & 0x80 ? -(a & 0x7f) : a & 0x7f, right = b & 0x80 ? -(b & 0x7f) : b & 0x7f;
    return abs(left - right);
}

static void compare(const quant_case *c, const quant_data *got, const quant_data *wanted) {
    double steps = c->fuse == RDI_FUSE_NONE ? 0 : (double)c->k / 32 + 16;
    const float *s = got->scale.data, *sw = wanted->scale.data;
    for (int64_t i = 0; i < c->m * rdi_ceil_div(c->k, 128); i++)
        assert_true(fabs((double)s[i] - (double)sw[i]) <= (double)sw[i] * steps * 0x1p-24);
    const uint8_t *q = got->q.data, *qw = wanted->q.data;
    int64_t different = 0;
    for (int64_t m = 0; m < c->m; m++) {
        for (int64_t k = 0; k < c->k; k++) {
            int64_t at = m * (c->k + 3) + k;
            different += q[at] != qw[at];
            assert_true(code_steps(q[at], qw[at]) <= (c->fuse == RDI_FUSE_NONE ? 0 : 1));
        }
        for (int64_t k = c->k; k < c->k + 3; k++) assert_int_equal(q[m * (c->k + 3) + k], POISON);
    }
    // A straddled boundary needs a quotient within steps * 2^-24 of it. With 16-bit inputs 1/rms cancels in y/amax: ratios
    // of short numbers hit boundaries exactly far more often than chance.
    assert_true((double)different <= 4 + 0.02 * (double)(c->m * c->k));
    if (c->fuse == RDI_FUSE_ADD_RMSNORM)
        for (int64_t at = 0; at < c->m * (c->k + 3); at++)
            assert_true(same_bits(c->other, got->residual.data, wanted->residual.data, at));
}

static void check_case(const quant_case *c, uint64_t seed) {
    quant_data wanted = data_new(c, seed), first = {0};
    rdi_quant_args a = args_of(c, &wanted);
    reference_of("quant_fp8")->run(&a, NULL, NULL);
    const rdi_row *row;
    for (int i = 0; (row = row_at("quant_fp8", i)) && !row->info.is_reference; i++) {
        quant_data got = data_new(c, seed);
        a = args_of(c, &got);
        if (i) {
            row->run(&a, NULL, NULL);
        } else { // the first row alone in threads, the others whole: M and threads must not matter
            row->run(&a, NULL, pool());
        }
        compare(c, &got, &wanted);
        if (!i) {
            first = got;
            continue;
        }
        assert_memory_equal(first.q.data, got.q.data, got.q.bytes);
        assert_memory_equal(first.scale.data, got.scale.data, got.scale.bytes);
        data_free(&got);
    }
    data_free(&first), data_free(&wanted);
}

static void test_quant_every_k(void **unused) {
    (void)unused;
    uint64_t state = fresh_seed("quant");
    for (int64_t k = 1; k <= 300; k++)
        check_case(&(quant_case){2, k, (rdi_quant_fuse)(k % 5), float_types[k % 3], float_types[k / 4 % 3], 1,
                                 (int)(k & 1), k / 2 & 1},
                   random_next(&state));
}

static void test_quant_acceptance_shapes(void **unused) {
    (void)unused;
    static const int64_t dims[] = {512, 4096, 5120, 13824};
    uint64_t state = fresh_seed("quant shapes");
    for (size_t i = 0; i < RDI_COUNT(dims); i++)
        for (int fuse = 0; fuse < 5; fuse++)
            check_case(&(quant_case){7, dims[i], (rdi_quant_fuse)fuse, RD_DTYPE_BF16, RD_DTYPE_BF16, 3, 0, 0},
                       random_next(&state));
    check_case(&(quant_case){2050, 512, RDI_FUSE_NONE, RD_DTYPE_BF16, RD_DTYPE_BF16, 3, 0, 1},
               random_next(&state));
}

// q * s gives x back within half a step of the code: 2^-4 relative for normal codes, 2^-10 of the scale below.
static void test_quant_restores_the_values(void **unused) {
    (void)unused;
    uint64_t state = fresh_seed("quant restores");
    quant_case c = {5, 700, RDI_FUSE_NONE, RD_DTYPE_F32, RD_DTYPE_F32, 10, 0, 0};
    const rdi_row *row;
    for (int i = 0; (row = row_at("quant_fp8", i)); i++) {
        quant_data d = data_new(&c, random_next(&state));
        rdi_quant_args a = args_of(&c, &d);
        row->run(&a, NULL, NULL);
        for (int64_t m = 0; m < c.m; m++)
            for (int64_t k = 0; k < c.k; k++) {
                double x = ((float *)d.x.data)[m * 703 + k], s = ((float *)d.scale.data)[m * 6 + k / 128];
                double back = s * (double)rdi_f32_from_e4m3(((uint8_t *)d.q.data)[m * 703 + k]);
                assert_true(fabs(back - x) <= fmax(fabs(x) * 0x1p-4, s * 0x1p-10) * (1 + 0x1p-20));
            }
        data_free(&d);
    }
}

// Every finite f32 boundary of the encoder: the fast encoder against the scalar one, through a group whose amax is 448.
static void test_quant_codes_at_every_tie(void **unused) {
    (void)unused;
    const rdi_row *row;
    for (int i = 0; (row = row_at("quant_fp8", i)); i++)
        for (int code = 0; code < 0x7e; code++) {
            float tie = (rdi_f32_from_e4m3((uint8_t)code) + rdi_f32_from_e4m3((uint8_t)(code + 1))) / 2;
            float x[128] =
                {448, tie, nextafterf(tie, 0), nextafterf(tie, 1000), -tie, rdi_f32_from_e4m3((uint8_t)code)},
                  s;
            uint8_t q[128];
            rdi_quant_args a = {.m = 1, .k = 128, .x = x, .q = q, .q_scale = &s, .x_dtype = RD_DTYPE_F32};
            row->run(&a, NULL, NULL);
            int even = code & 1 ? code + 1 : code;
            assert_true(s == 1.0f && q[0] == 0x7e);
            assert_int_equal(q[1], even);
            assert_int_equal(q[2], code);
            assert_int_equal(q[3], code + 1);
            assert_int_equal(q[4], even | 0x80);
            assert_int_equal(q[5], code);
            assert_int_equal(q[127], 0);
        }
}

static void test_quant_scale_floor(void **unused) {
    (void)unused;
    const rdi_row *row;
    for (int i = 0; (row = row_at("quant_fp8", i)); i++) {
        float x[130] = {0}, s[2];
        uint8_t q[130];
        x[128] = 1e-30f;
        rdi_quant_args a = {
            .m = 1, .k = 130, .x = x, .q = q, .q_scale = s, .q_scale_stride_k = 1, .x_dtype = RD_DTYPE_F32};
        row->run(&a, NULL, NULL);
        for (int k = 0; k < 130; k++) assert_int_equal(q[k], 0);
        assert_true(s[0] == 1.0f / (448.0f * 512.0f) && s[1] == s[0]);
    }
}

// A NaN or Inf activation must not poison its row: the scale comes from the finite values, Inf saturates, NaN stays alone.
static void test_quant_bug_27_inf_nan_keep_the_row(void **unused) {
    (void)unused;
    const rdi_row *row;
    for (int i = 0; (row = row_at("quant_fp8", i)); i++)
        for (int where = 0; where < 200; where += 13) {
            float x[200], bad[200], s[2], s_bad[2];
            uint8_t q[200], q_bad[200];
            for (int k = 0; k < 200; k++) x[k] = bad[k] = (float)((k * 37) % 101 - 50);
            x[where] = 0, x[(where + 70) % 200] = 0, x[(where + 140) % 200] = 0;
            bad[where] = INFINITY, bad[(where + 70) % 200] = -INFINITY, bad[(where + 140) % 200] = NAN;
            rdi_quant_args a = {.m = 1,
                                .k = 200,
                                .x = x,
                                .q = q,
                                .q_scale = s,
                                .q_scale_stride_k = 1,
                                .x_dtype = RD_DTYPE_F32};
            row->run(&a, NULL, NULL);
            a.x = bad, a.q = q_bad, a.q_scale = s_bad;
            row->run(&a, NULL, NULL);
            assert_true(s[0] == s_bad[0] && s[1] == s_bad[1] && isfinite(s_bad[0]) && isfinite(s_bad[1]));
            q[where] = 0x7e, q[(where + 70) % 200] = 0xfe,
            q[(where + 140) % 200] = 0x7f | (q_bad[(where + 140) % 200] & 0x80);
            assert_memory_equal(q, q_bad, 200);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quant_every_k),
        cmocka_unit_test(test_quant_acceptance_shapes),
        cmocka_unit_test(test_quant_restores_the_values),
        cmocka_unit_test(test_quant_codes_at_every_tie),
        cmocka_unit_test(test_quant_scale_floor),
        cmocka_unit_test(test_quant_bug_27_inf_nan_keep_the_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
