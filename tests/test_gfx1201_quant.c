// SPDX-License-Identifier: Apache-2.0
// quant_fp8 and its fusions on gfx1201, executed in the simulator with all its checks on. Without fusion the reference's bits;
// with one, scales within a bound and codes at most one step apart where the unrounded quotients straddle a boundary. A row
// alone has the bits that it has among others.
#include "rows.h"

#include "gfx1201_sim.h"
#include "kernels/quant_fp8/args.h"
#include "kernels/quant_fp8/gfx1201_args.h"

static bool full_run(void) {
    return getenv("RADIANCE_TEST_FULL") != NULL;
}

static const rd_dtype float_types[] = {RD_DTYPE_F32, RD_DTYPE_BF16, RD_DTYPE_F16};

typedef struct quant_case {
    int64_t m, k, pad; // pad: elements between rows
    rdi_quant_fuse fuse;
    rd_dtype x, other; // other: up, residual and norm weight
    int unit_offset, scales_by_column;
} quant_case;

typedef struct quant_data {
    guarded x, up, residual, weight, q, scale;
    rdi_quant_args args;
} quant_data;

static void data_fill(const quant_case *c, quant_data *d, uint64_t state) {
    for (int64_t m = 0; m < c->m; m++)
        for (int64_t k = 0; k < c->k; k++) {
            int64_t at = m * (c->k + c->pad) + k;
            float wide = k / 128 % 3 ? 1.0f : 64.0f; // groups of different size
            rdi_store_f32(d->x.data, c->x, at, 3 * wide * random_normal(&state));
            rdi_store_f32(d->up.data, c->other, at, random_normal(&state));
            rdi_store_f32(d->residual.data, c->other, at, random_normal(&state));
        }
    for (int64_t k = 0; k < c->k; k++) rdi_store_f32(d->weight.data, c->other, k, random_normal(&state));
}

static quant_data data_new(const quant_case *c, uint64_t seed) {
    int64_t stride = c->k + c->pad, elems = c->m * stride, groups = rdi_ceil_div(c->k, 128);
    quant_data d = {guarded_new(elems, c->x),
                    guarded_new(elems, c->other),
                    guarded_new(elems, c->other),
                    guarded_new(c->k, c->other),
                    guarded_new(elems, RD_DTYPE_E4M3),
                    guarded_new(c->m * groups, RD_DTYPE_F32),
                    {0}};
    data_fill(c, &d, seed);
    d.args = (rdi_quant_args){.m = c->m,
                              .k = c->k,
                              .x = d.x.data,
                              .up = d.up.data,
                              .residual = d.residual.data,
                              .norm_weight = d.weight.data,
                              .q = d.q.data,
                              .q_scale = d.scale.data,
                              .x_stride = stride,
                              .up_stride = stride,
                              .residual_stride = stride,
                              .q_stride = stride,
                              .q_scale_stride_m = c->scales_by_column ? 1 : groups,
                              .q_scale_stride_k = c->scales_by_column ? c->m : 1,
                              .x_dtype = c->x,
                              .up_dtype = c->other,
                              .residual_dtype = c->other,
                              .norm_dtype = c->other,
                              .eps = 1e-6f,
                              .unit_offset = c->unit_offset,
                              .fuse = c->fuse};
    return d;
}
static void data_free(quant_data *d) {
    guarded_free(&d->x), guarded_free(&d->up), guarded_free(&d->residual);
    guarded_free(&d->weight), guarded_free(&d->q), guarded_free(&d->scale);
}

static void run_args(const rdi_quant_args *args, const quant_data *d) {
    SIM_RUN(gpu_row("quant_fp8_gfx1201"), *args, SIM_BUFFER(*args, x, d->x.bytes),
            SIM_BUFFER(*args, up, d->up.bytes), SIM_BUFFER(*args, residual, d->residual.bytes),
            SIM_BUFFER(*args, norm_weight, d->weight.bytes), SIM_BUFFER(*args, q, d->q.bytes),
            SIM_BUFFER(*args, q_scale, d->scale.bytes));
}

// Each row by itself, through arguments that are one row of the whole.
static void run_row_by_row(quant_data *d) {
    quant_data row = *d;
    size_t x = rd_dtype_bytes(d->args.x_dtype), up = rd_dtype_bytes(d->args.up_dtype);
    for (int64_t m = 0; m < d->args.m; m++) {
        rdi_quant_args a = d->args;
        size_t at = (size_t)(m * a.x_stride), s_at = (size_t)(m * a.q_scale_stride_m) * sizeof(float);
        a.m = 1;
        a.x = (const char *)a.x + at * x, row.x.bytes = d->x.bytes - at * x;
        a.up = (const char *)a.up + at * up, row.up.bytes = d->up.bytes - at * up;
        a.residual = (char *)a.residual + at * up, row.residual.bytes = d->residual.bytes - at * up;
        a.q += at, row.q.bytes = d->q.bytes - at;
        a.q_scale += s_at / sizeof(float), row.scale.bytes = d->scale.bytes - s_at;
        run_args(&a, &row);
    }
}

// Steps between two e4m3 codes of one sign; a code's magnitude orders the values.
static int code_steps(uint8_t a, uint8_t b) {
    int left = a & 0x80 ? -(a & 0x7f) : a & 0x7f, right = b & 0x80 ? -(b & 0x7f) : b & 0x7f;
    return abs(left - right);
}

static void compare(const quant_case *c, const quant_data *got, const quant_data *wanted) {
    // Roundings of a value: of the sum of squares a few a thread, of 1/rms and the products a handful.
    double steps = c->fuse == RDI_FUSE_NONE ? 0 : (double)c->k / 32 + 16;
    const float *s = got->scale.data, *sw = wanted->scale.data;
    const uint8_t *q = got->q.data, *qw = wanted->q.data;
    int64_t different = 0, stride = c->k + c->pad;
    for (int64_t i = 0; i < c->m * rdi_ceil_div(c->k, 128); i++)
        assert_true(fabs((double)s[i] - (double)sw[i]) <= (double)sw[i] * steps * 0x1p-24);
    for (int64_t m = 0; m < c->m; m++) {
        for (int64_t k = 0; k < c->k; k++) {
            int64_t at = m * stride + k;
            different += q[at] != qw[at];
            assert_true(code_steps(q[at], qw[at]) <= (c->fuse == RDI_FUSE_NONE ? 0 : 1));
        }
        for (int64_t k = c->k; k < stride; k++) assert_int_equal(q[m * stride + k], POISON);
    }
    assert_true((double)different <= 4 + 0.02 * (double)(c->m * c->k)); // as in test_quant.c
    if (c->fuse == RDI_FUSE_ADD_RMSNORM)
        for (int64_t at = 0; at < c->m * stride; at++)
            assert_true(same_bits(c->other, got->residual.data, wanted->residual.data, at));
}

static void check_case(const quant_case *c, uint64_t seed) {
    quant_data wanted = data_new(c, seed), got = data_new(c, seed), single = data_new(c, seed);
    reference_of("quant_fp8")->run(&wanted.args, NULL, NULL);
    run_args(&got.args, &got);
    compare(c, &got, &wanted);
    run_row_by_row(&single);
    assert_memory_equal(got.q.data, single.q.data, got.q.bytes);
    assert_memory_equal(got.scale.data, single.scale.data, got.scale.bytes);
    data_free(&wanted), data_free(&got), data_free(&single);
}

static void test_every_k(void **state) {
    NEED_SIM();
    (void)state;
    uint64_t random = fresh_seed("quant on gfx1201");
    for (int64_t k = 1; k <= 300; k += full_run() ? 1 : 7)
        check_case(&(quant_case){2, k, k / 5 % 5 * 2, (rdi_quant_fuse)(k % 5), float_types[k % 3],
                                 float_types[k / 4 % 3], (int)(k & 1), k / 2 & 1},
                   random_next(&random));
}

static void test_acceptance_shapes(void **state) {
    NEED_SIM();
    static const int64_t dims[] = {512, 4096, 5120, 13824};
    (void)state;
    uint64_t random = fresh_seed("quant shapes on gfx1201");
    for (size_t i = 0; i < RDI_COUNT(dims); i++)
        for (int fuse = 0; fuse < 5; fuse++)
            check_case(&(quant_case){full_run() ? 83 : 3, dims[i], 0, (rdi_quant_fuse)fuse, RD_DTYPE_BF16,
                                     RD_DTYPE_BF16, 0, 0},
                       random_next(&random));
}

// Every boundary between two codes, through a group whose scale is exactly 1: ties go to the even code.
static void test_codes_at_every_tie(void **state) {
    NEED_SIM();
    (void)state;
    quant_case c = {126, 128, 0, RDI_FUSE_NONE, RD_DTYPE_F32, RD_DTYPE_F32, 0, 0};
    quant_data d = data_new(&c, 1);
    float *x = d.x.data;
    memset(x, 0, d.x.bytes);
    for (int code = 0; code < 126; code++) {
        float *row = x + code * 128,
              tie = (rdi_f32_from_e4m3((uint8_t)code) + rdi_f32_from_e4m3((uint8_t)(code + 1))) / 2;
        row[0] = 448, row[1] = tie, row[2] = nextafterf(tie, 0), row[3] = nextafterf(tie, 1000),
        row[4] = -tie, row[5] = -0.0f;
    }
    run_args(&d.args, &d);
    for (int code = 0; code < 126; code++) {
        const uint8_t *q = (const uint8_t *)d.q.data + code * 128;
        int even = code & 1 ? code + 1 : code;
        assert_true(((float *)d.scale.data)[code] == 1.0f);
        assert_int_equal(q[0], 0x7e);
        assert_int_equal(q[1], even);
        assert_int_equal(q[2], code);
        assert_int_equal(q[3], code + 1);
        assert_int_equal(q[4], even | 0x80);
        assert_int_equal(q[5], 0x80);
        assert_int_equal(q[127], 0);
    }
    data_free(&d);
}

// The scale comes from the finite values, Inf saturates, NaN stays alone; a group of zeros has the floor.
static void test_inf_nan_and_floor(void **state) {
    NEED_SIM();
    (void)state;
    quant_case c = {1, 300, 0, RDI_FUSE_NONE, RD_DTYPE_F32, RD_DTYPE_F32, 0, 0};
    quant_data clean = data_new(&c, 7), bad = data_new(&c, 7);
    float *x = clean.x.data, *b = bad.x.data;
    x[3] = x[100] = x[130] = 0;
    b[3] = INFINITY, b[100] = -INFINITY, b[130] = NAN;
    for (int k = 256; k < 300; k++) x[k] = b[k] = k == 299 ? 1e-30f : 0;
    run_args(&clean.args, &clean);
    run_args(&bad.args, &bad);
    assert_memory_equal(clean.scale.data, bad.scale.data, clean.scale.bytes);
    assert_true(((float *)bad.scale.data)[2] == 1.0f / (448.0f * 512.0f));
    uint8_t *q = clean.q.data, *q_bad = bad.q.data;
    assert_int_equal(q_bad[130] & 0x7f, 0x7f);
    q[3] = 0x7e, q[100] = 0xfe, q[130] = q_bad[130];
    assert_memory_equal(q, q_bad, 300);
    data_free(&clean), data_free(&bad);
}

static void test_geometry(void **state) {
    (void)state;
    rdi_launch launch;
    const rd_device_info device = {.compute_units = 64};
    rdi_quant_args a = {.m = 9, .k = 5000, .x_stride = 5000, .q_stride = 5000, .x_dtype = RD_DTYPE_BF16};
    assert_int_equal(gpu_row("quant_fp8_gfx1201")->geometry(&a, NULL, &device, &launch), 1);
    const rdk_quant_fp8_gfx1201_args *kernel = (const void *)launch.args;
    assert_string_equal(launch.kernel, "rdk_quant_fp8_gfx1201_groups");
    assert_int_equal(launch.grid[0], 9);
    assert_int_equal(launch.grid[1], 3);
    assert_int_equal(kernel->wide, 1);
    a.x_stride = 5004;
    gpu_row("quant_fp8_gfx1201")->geometry(&a, NULL, &device, &launch);
    assert_int_equal(kernel->wide, 0);
    a.fuse = RDI_FUSE_ADD_RMSNORM;
    a.residual_dtype = RD_DTYPE_F32, a.norm_dtype = RD_DTYPE_BF16;
    gpu_row("quant_fp8_gfx1201")->geometry(&a, NULL, &device, &launch);
    assert_string_equal(launch.kernel, "rdk_quant_fp8_gfx1201_norm");
    assert_int_equal(launch.grid[1], 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_geometry),          cmocka_unit_test(test_every_k),
        cmocka_unit_test(test_acceptance_shapes), cmocka_unit_test(test_codes_at_every_tie),
        cmocka_unit_test(test_inf_nan_and_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
