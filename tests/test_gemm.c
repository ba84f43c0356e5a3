// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Every GEMM row of the registry: against ref.c within a bound from term count and magnitude, against a formula written here
// (decoding e4m3 from the format's definition), and bit for bit against every other row of its order class.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gemm_case.inc"
#include "support/sparse.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

static uint64_t seed;
static rdi_par *pools[4]; // by thread count

// Workers as fresh threads: a spinning pool of three on a machine of two cores would take most of the test's time.
typedef struct spawned {
    void (*body)(void *arg, int64_t i);
    void *arg;
    int64_t i;
} spawned;
static void *spawned_main(void *pointer) {
    spawned *s = pointer;
    s->body(s->arg, s->i);
    return NULL;
}
static void spawn_all(void *state, int64_t n, void (*body)(void *arg, int64_t i), void *arg) {
    (void)state;
    pthread_t threads[3];
    spawned work[3];
    for (int64_t i = 0; i < n; i++) {
        work[i] = (spawned){body, arg, i};
        if (pthread_create(&threads[i], NULL, spawned_main, &work[i])) abort();
    }
    for (int64_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static const rdi_row *find_row(const char *op, bool reference) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rdi_rows[i].info.op, op) && !!rdi_rows[i].info.is_reference == reference)
            return &rdi_rows[i];
    return NULL;
}

static float c_at(const guarded *c, const gemm_case *g, int64_t m, int64_t n) {
    return rdi_load_f32(c->data, g->spec.c_dtype, m * (g->spec.n + g->spec.c_pad) + n);
}

// ---- the formula once more, from the format's definitions ---------------------------------------------------------------
static double e4m3_value(uint8_t code) {
    int exponent = (code >> 3) & 15, mantissa = code & 7;
    if ((code & 0x7f) == 0x7f) return NAN;
    double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -magnitude : magnitude;
}
static double value_of(const void *base, rd_dtype dtype, int64_t at) {
    if (dtype == RD_DTYPE_E4M3) return e4m3_value(((const uint8_t *)base)[at]);
    if (dtype == RD_DTYPE_E8M0)
        return ((const uint8_t *)base)[at] == 0xff ? NAN : ldexp(1, ((const uint8_t *)base)[at] - 127);
    return rdi_load_f32(base, dtype, at);
}

// *magnitude: the sum of absolute terms, what rounding errors are relative to.
static double expected(const gemm_case *g, int64_t m, int64_t n, double *magnitude) {
    const rdi_gemm_args *a = &g->args;
    double sum = a->bias ? value_of(a->bias, a->bias_dtype, n) : 0;
    *magnitude = fabs(sum);
    for (int64_t k = 0; k < a->k; k++) {
        int64_t b = k / 128;
        double term =
            value_of(a->a, a->a_dtype, m * a->a_stride + k) * value_of(a->w, a->w_dtype, n * a->w_stride + k);
        if (a->a_scale) term *= a->a_scale[m * a->a_scale_stride_m + b * a->a_scale_stride_k];
        if (a->w_scale)
            term *= value_of(a->w_scale, a->w_scale_dtype,
                             n / 128 * a->w_scale_stride_n + b * a->w_scale_stride_k);
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

// One rounding a term of a block, two for the scale, one a block, one for the bias; then half a unit of the output type.
static double bound(const gemm_case *g, double magnitude, double value) {
    double terms = 128 + 2 + (double)((g->spec.k + 127) / 128) + 1;
    double unit = g->spec.c_dtype == RD_DTYPE_BF16  ? 0x1p-8
                  : g->spec.c_dtype == RD_DTYPE_F16 ? 0x1p-11
                                                    : 0x1p-24;
    double least = g->spec.c_dtype == RD_DTYPE_F16 ? 0x1p-25 : 0x1p-149;
    return terms * 0x1p-24 * magnitude * (1 + unit) + unit * fabs(value) * 1.0001 + least;
}

static void check_element(const gemm_case *g, const char *name, const guarded *c, int64_t m, int64_t n) {
    double magnitude, want = expected(g, m, n, &magnitude), got = c_at(c, g, m, n);
    if (isnan(want) ? isnan(got) : fabs(got - want) <= bound(g, magnitude, want)) return;
    fail_msg("%s m=%d n=%d k=%d: c[%d][%d]=%.9g, needs %.9g within %.3g (seed %llu)", name, (int)g->spec.m,
             (int)g->spec.n, (int)g->spec.k, (int)m, (int)n, got, want, bound(g, magnitude, want),
             (unsigned long long)seed);
}

// ---- every row on one case ---------------------------------------------------------------------------------------------
static void check_samples(const gemm_case *g, const char *name, const guarded *c, gemm_rng *rng) {
    int64_t last_m = g->spec.m - 1, last_n = g->spec.n - 1;
    check_element(g, name, c, 0, 0);
    check_element(g, name, c, last_m, last_n);
    check_element(g, name, c, last_m, 0);
    for (int i = 0; i < 24; i++)
        check_element(g, name, c, rng_below(rng, last_m + 1), rng_below(rng, last_n + 1));
}

// Padding between rows of C keeps its poison.
static void check_padding(const gemm_case *g, const char *name, const guarded *c) {
    size_t elem_bytes = rd_dtype_bytes(g->spec.c_dtype),
           row_bytes = (size_t)(g->spec.n + g->spec.c_pad) * elem_bytes;
    for (int64_t m = 0; m + 1 < g->spec.m; m++)
        for (size_t at = (size_t)g->spec.n * elem_bytes; at < row_bytes; at++)
            if (c->data[(size_t)m * row_bytes + at] != POISON) fail_msg("%s wrote between rows of C", name);
}

// Beyond this many multiply-adds the plain C rows sit out: the vector rows still meet the formula at sampled elements.
static const int64_t slow_rows_limit = 1500000;

static void check_case(const gemm_spec *spec, gemm_rng *rng) {
    bool slow_too = spec->m * spec->n * spec->k <= slow_rows_limit;
    gemm_case g;
    gemm_case_make(&g, spec, rng);
    guarded first = {0};
    int rows = 0;
    for (int32_t i = 0; i < rdi_row_count; i++) {
        const rdi_row *row = &rdi_rows[i];
        if (!gemm_row_takes(row, &g) || (row->isa == RDI_ISA_NONE && !slow_too)) continue;
        bool in_class = !strcmp(row->info.order, "cpu");
        for (int layout = 0; layout < RDI_LAYOUTS; layout++) {
            int threads = 1 + (layout + (int)i) % 3;
            if (!gemm_case_has_layout(&g, (rdi_weight_layout)layout)) continue;
            guarded c = gemm_row_run(row, &g, (rdi_weight_layout)layout, pools[threads]);
            check_samples(&g, row->info.name, &c, rng);
            check_padding(&g, row->info.name, &c);
            if (in_class && first.base && memcmp(first.data, c.data, c.bytes))
                fail_msg("%s layout %d threads %d m=%d n=%d k=%d: bits differ within the class (seed %llu)",
                         row->info.name, layout, threads, (int)spec->m, (int)spec->n, (int)spec->k,
                         (unsigned long long)seed);
            rows += in_class;
            if (in_class && !first.base)
                first = c;
            else
                guarded_free(&c);
        }
    }
    assert_true(rows >= 1 || !slow_too);
    assert_true(gemm_case_guards_ok(&g));
    if (first.base) guarded_free(&first);
    gemm_case_free(&g);
}

static gemm_spec spec_of(const char *op, int64_t m, int64_t n, int64_t k) {
    bool quantised = !strcmp(op, "gemm_fp8block");
    return (gemm_spec){.op = op,
                       .m = m,
                       .n = n,
                       .k = k,
                       .a_dtype = quantised ? RD_DTYPE_E4M3 : RD_DTYPE_BF16,
                       .w_scale_dtype = RD_DTYPE_F32,
                       .c_dtype = RD_DTYPE_BF16};
}
static const char *const ops[] = {"gemm_fp8block", "gemm_fp8block_w8a16", "gemm_bf16"};

static void test_gemm_grid(void **state) {
    (void)state;
    static const int64_t ms[] = {1, 2, 7, 8, 17, 83}, ns[] = {16, 128, 576, 500},
                         ks[] = {128, 256, 576, 3884};
    gemm_rng rng = {seed};
    int number = 0;
    for (size_t op = 0; op < 3; op++)
        for (size_t i = 0; i < RDI_COUNT(ms); i++)
            for (size_t j = 0; j < RDI_COUNT(ns); j++)
                for (size_t l = 0; l < RDI_COUNT(ks); l++) {
                    if (SPARSE_SKIPS(number++)) continue;
                    gemm_spec spec = spec_of(ops[op], ms[i], ns[j], ks[l]);
                    spec.c_dtype = (rd_dtype)(RD_DTYPE_F32 + rng_below(&rng, 3));
                    if (op) spec.a_dtype = (rd_dtype)(RD_DTYPE_F32 + rng_below(&rng, 3));
                    spec.w_scale_dtype = rng_below(&rng, 3) ? RD_DTYPE_F32 : RD_DTYPE_E8M0;
                    spec.bias_dtype =
                        (rd_dtype[]){RD_DTYPE_NONE, RD_DTYPE_F32, RD_DTYPE_BF16}[rng_below(&rng, 3)];
                    spec.scales_transposed = rng_below(&rng, 2);
                    spec.a_pad = rng_below(&rng, 3) * 5;
                    spec.w_pad = rng_below(&rng, 3) * 7;
                    spec.c_pad = rng_below(&rng, 3) * 3;
                    check_case(&spec, &rng);
                }
}

// Every M around the tiles of the kernels, ragged N and K: tails belong to the kernels (bug case 8: wrong columns only when M > 8).
static void test_gemm_bug_8_tails_m1_to_17(void **state) {
    (void)state;
    gemm_rng rng = {seed + 1};
    for (int64_t m = 1; m <= 17; m++)
        for (size_t op = 0; op < 3; op++) {
            gemm_spec spec = spec_of(ops[op], m, 48 + m % 5, 130 + m);
            check_case(&spec, &rng);
            spec = spec_of(ops[op], m, 1 + m, 1 + m % 7);
            spec.c_dtype = RD_DTYPE_F32;
            check_case(&spec, &rng);
        }
}

// Rows enough for the prefill kernels, K that is no multiple of 4 and longer than what they widen at a time.
static void test_gemm_long_k_with_a_tail(void **state) {
    (void)state;
    gemm_rng rng = {seed + 8};
    for (int64_t k = 3085; k <= 3088; k++) {
        gemm_spec spec = spec_of("gemm_fp8block_w8a16", 21, 40, k);
        spec.a_pad = k % 2 * 3;
        check_case(&spec, &rng);
    }
}

// Bug case 24: a skinny GEMM that was right up to K = 4096 only.
static void test_gemm_bug_24_k_beyond_4096(void **state) {
    (void)state;
    static const int64_t ks[] = {4096, 4352, 8192};
    gemm_rng rng = {seed + 2};
    for (size_t i = 0; i < RDI_COUNT(ks); i++)
        for (size_t op = 0; op < 3; op++)
            for (int64_t m = 1; m <= 9; m += 8) {
                gemm_spec spec = spec_of(ops[op], m, 64, ks[i]);
                check_case(&spec, &rng);
            }
}

// Bug case 28: a row of a verify pass (M = 8, 17, 83) has the bits of the same row decoded alone, in every row of the class.
static void test_gemm_bug_28_bits_do_not_depend_on_m(void **state) {
    (void)state;
    static const int64_t ms[] = {8, 17, 83};
    gemm_rng rng = {seed + 3};
    for (size_t op = 0; op < 3; op++)
        for (size_t i = 0; i < RDI_COUNT(ms); i++) {
            gemm_spec spec = spec_of(ops[op], ms[i], 144, 700);
            spec.c_dtype = RD_DTYPE_F32;
            gemm_case g;
            gemm_case_make(&g, &spec, &rng);
            const rdi_row *fast = find_row(ops[op], false);
            for (int32_t r = 0; r < rdi_row_count; r++) {
                if (!gemm_row_takes(&rdi_rows[r], &g) || strcmp(rdi_rows[r].info.order, "cpu")) continue;
                guarded all = gemm_row_run(&rdi_rows[r], &g, RDI_LAYOUT_PANEL16, pools[3]);
                for (int64_t m = 0; m < ms[i]; m += 5) {
                    rdi_gemm_args one = g.args;
                    one.m = 1;
                    one.a = (const uint8_t *)g.args.a +
                            (size_t)(m * g.args.a_stride) * rd_dtype_bytes(g.args.a_dtype);
                    if (one.a_scale) one.a_scale += m * one.a_scale_stride_m;
                    one.c_stride = spec.n;
                    guarded alone = gemm_row_run_args(fast, one, pools[1]);
                    assert_memory_equal(alone.data, all.data + (size_t)(m * spec.n) * 4, alone.bytes);
                    guarded_free(&alone);
                }
                guarded_free(&all);
            }
            gemm_case_free(&g);
        }
}

// -0, subnormal codes and 448 everywhere; then NaN codes in one panel; then activations beyond the scaled fast path.
static void test_gemm_special_values(void **state) {
    (void)state;
    gemm_rng rng = {seed + 4};
    for (size_t op = 0; op < 3; op++)
        for (int64_t m = 1; m <= 20; m += 6) {
            gemm_spec spec = spec_of(ops[op], m, 80, 300);
            spec.specials = true;
            spec.c_dtype = RD_DTYPE_F32;
            check_case(&spec, &rng);
            spec.a_scale_by = op ? 3000.0f : 0;
            spec.a_dtype = op ? RD_DTYPE_F32 : spec.a_dtype;
            check_case(&spec, &rng);
        }
}

// Puts one NaN code, Inf or NaN scale somewhere and looks where it must and must not show, in every row and layout.
static void check_poisoned(const gemm_spec *spec, gemm_rng *rng, int kind) {
    gemm_case g;
    gemm_case_make(&g, spec, rng);
    int64_t m_bad = rng_below(rng, spec->m), n_bad = rng_below(rng, spec->n), k_bad = rng_below(rng, spec->k);
    if (kind == 0) g.w[0].data[n_bad * g.args.w_stride + k_bad] = rng_below(rng, 2) ? 0x7f : 0xff;
    if (kind == 1)
        rdi_store_f32(g.a.data, spec->a_dtype, m_bad * g.args.a_stride + k_bad,
                      spec->a_dtype == RD_DTYPE_E4M3 ? NAN : INFINITY);
    if (kind == 2)
        g.w_scale.data[n_bad / 128 * g.args.w_scale_stride_n + k_bad / 128 * g.args.w_scale_stride_k] = 0xff;
    for (int layout = 1; layout < RDI_LAYOUTS; layout++) guarded_free(&g.w[layout]);
    memset(&g.w[1], 0, (RDI_LAYOUTS - 1) * sizeof g.w[1]);
    pack_layouts(&g);
    for (int32_t i = 0; i < rdi_row_count; i++) {
        if (!gemm_row_takes(&rdi_rows[i], &g)) continue;
        for (int layout = 0; layout < RDI_LAYOUTS; layout++) {
            if (!gemm_case_has_layout(&g, (rdi_weight_layout)layout)) continue;
            guarded c = gemm_row_run(&rdi_rows[i], &g, (rdi_weight_layout)layout, pools[2]);
            for (int64_t m = 0; m < spec->m; m++)
                for (int64_t n = 0; n < spec->n; n++) {
                    bool bad = kind == 0 ? n == n_bad : kind == 1 ? m == m_bad : n / 128 == n_bad / 128;
                    bool finite = isfinite(c_at(&c, &g, m, n));
                    if (bad == finite)
                        fail_msg("%s kind %d layout %d: c[%d][%d] %s", rdi_rows[i].info.name, kind, layout,
                                 (int)m, (int)n, finite ? "hides it" : "is poisoned");
                }
            guarded_free(&c);
        }
    }
    gemm_case_free(&g);
}

static void test_gemm_nan_and_inf_stay_in_their_row_or_column(void **state) {
    (void)state;
    gemm_rng rng = {seed + 5};
    for (size_t op = 0; op < 2; op++)
        for (int kind = 0; kind < 3; kind++)
            for (int64_t m = 1; m <= 25; m += 8) {
                gemm_spec spec = spec_of(ops[op], m, 176, 260);
                if (kind == 2) spec.w_scale_dtype = RD_DTYPE_E8M0;
                check_poisoned(&spec, &rng, kind);
            }
}

// Activations that are the identity show each weight as the row widens it: every finite code, at every place of a group.
static void test_gemm_every_code_is_widened_exactly(void **state) {
    (void)state;
    gemm_rng rng = {seed + 7};
    gemm_spec spec = spec_of("gemm_fp8block_w8a16", 132, 256, 132);
    gemm_case g;
    gemm_case_make(&g, &spec, &rng);
    for (int64_t m = 0; m < spec.m; m++)
        for (int64_t k = 0; k < spec.k; k++)
            rdi_store_f32(g.a.data, spec.a_dtype, m * g.args.a_stride + k, m == k ? 1.0f : 0.0f);
    for (int64_t n = 0; n < spec.n; n++)
        for (int64_t k = 0; k < spec.k; k++) {
            uint8_t code = (uint8_t)(n + k);
            g.w[0].data[n * g.args.w_stride + k] = (code & 0x7f) == 0x7f ? 0 : code;
        }
    for (int64_t i = 0; i < 2 * 2; i++)
        rdi_store_f32(g.w_scale.data, RD_DTYPE_F32,
                      i / 2 * g.args.w_scale_stride_n + i % 2 * g.args.w_scale_stride_k, 1.0f);
    for (int layout = 1; layout < RDI_LAYOUTS; layout++) guarded_free(&g.w[layout]);
    memset(&g.w[1], 0, (RDI_LAYOUTS - 1) * sizeof g.w[1]);
    pack_layouts(&g);
    for (int32_t i = 0; i < rdi_row_count; i++) {
        if (!gemm_row_takes(&rdi_rows[i], &g)) continue;
        guarded c = gemm_row_run(&rdi_rows[i], &g, RDI_LAYOUT_PANEL16, pools[2]);
        for (int64_t m = 0; m < spec.m; m++)
            for (int64_t n = 0; n < spec.n; n++) {
                double want = e4m3_value(g.w[0].data[n * g.args.w_stride + m]);
                if ((double)c_at(&c, &g, m, n) != want)
                    fail_msg("%s: code 0x%02x of column %d reads as %.9g, needs %.9g", rdi_rows[i].info.name,
                             g.w[0].data[n * g.args.w_stride + m], (int)m, (double)c_at(&c, &g, m, n), want);
            }
        guarded_free(&c);
    }
    gemm_case_free(&g);
}

// The rows agree with ref.c on every element of a few problems, not only on samples.
static void test_gemm_every_element_against_ref(void **state) {
    (void)state;
    gemm_rng rng = {seed + 6};
    for (size_t op = 0; op < 3; op++)
        for (int64_t m = 1; m <= 33; m += 16) {
            gemm_spec spec = spec_of(ops[op], m, 120, 516);
            spec.c_dtype = RD_DTYPE_F32;
            gemm_case g;
            gemm_case_make(&g, &spec, &rng);
            guarded want = gemm_row_run(find_row(ops[op], true), &g, RDI_LAYOUT_ROW, pools[2]);
            for (int32_t i = 0; i < rdi_row_count; i++) {
                if (!gemm_row_takes(&rdi_rows[i], &g)) continue;
                guarded c = gemm_row_run(&rdi_rows[i], &g, RDI_LAYOUT_PANEL16, pools[2]);
                for (int64_t at = 0; at < m * spec.n; at++) {
                    double magnitude, value = ((float *)want.data)[at];
                    expected(&g, at / spec.n, at % spec.n, &magnitude);
                    assert_true(fabs(((float *)c.data)[at] - value) <= bound(&g, magnitude, value));
                }
                guarded_free(&c);
            }
            guarded_free(&want);
            gemm_case_free(&g);
        }
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu (give it as the first argument to repeat)\n", (unsigned long long)seed);
    for (int threads = 1; threads < 4; threads++)
        if (rdi_par_create(threads, spawn_all, NULL, &pools[threads])) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_grid),
        cmocka_unit_test(test_gemm_bug_8_tails_m1_to_17),
        cmocka_unit_test(test_gemm_bug_24_k_beyond_4096),
        cmocka_unit_test(test_gemm_bug_28_bits_do_not_depend_on_m),
        cmocka_unit_test(test_gemm_special_values),
        cmocka_unit_test(test_gemm_every_code_is_widened_exactly),
        cmocka_unit_test(test_gemm_long_k_with_a_tail),
        cmocka_unit_test(test_gemm_nan_and_inf_stay_in_their_row_or_column),
        cmocka_unit_test(test_gemm_every_element_against_ref),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int threads = 1; threads < 4; threads++) rdi_par_free(pools[threads]);
    return failed;
}
