// SPDX-License-Identifier: Apache-2.0
// Race-free kernels give the same bits under 20 schedules and any number of host threads, with all checks on, and
// the right ones: GEMM through LDS, split-K by atomics and in two launches, attention whose waves meet in LDS. The
// same GEMM without one of its barriers is caught under every schedule.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "snippet.h"

enum { SEEDS = 20, MAX_BUFFERS = 4 };

typedef struct bench {
    gs_mem *mem;
    gs_module *module;
    void *buffer[MAX_BUFFERS];
} bench;

static void open_bench(bench *b, const char *path) {
    static char image[1 << 20];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t bytes = fread(image, 1, sizeof image, f);
    fclose(f);
    gs_error e;
    memset(b, 0, sizeof *b);
    assert_int_equal(gs_mem_create(&b->mem), GS_OK);
    if (gs_module_load(b->mem, image, bytes, &b->module, &e)) fail_msg("%s", e.message);
}

static void close_bench(bench *b) {
    gs_module_free(b->module);
    gs_mem_destroy(b->mem);
}

static void *buffer(bench *b, int i, size_t bytes) {
    assert_int_equal(gs_mem_alloc(b->mem, bytes, &b->buffer[i]), GS_OK);
    memset(b->buffer[i], 0, bytes);
    return b->buffer[i];
}

static gs_status launch(bench *b, const char *kernel, const void *args, size_t bytes, const uint32_t grid[2],
                        uint64_t seed, gs_error *e) {
    gs_launch l;
    const gs_kernel *k = gs_module_kernel(b->module, kernel);
    assert_non_null(k);
    gs_launch_init(&l, k);
    memcpy(l.block, gs_kernel_describe(k)->required_block, sizeof l.block);
    l.grid[0] = grid[0], l.grid[1] = grid[1];
    l.kernarg = args, l.kernarg_bytes = bytes, l.schedule_seed = seed, l.threads = 1 + seed % 3;
    return gs_launch_run(b->mem, &l, e);
}

static void must(gs_status status, const gs_error *e) {
    char text[1024];
    if (!status) return;
    gs_error_format(e, text, sizeof text);
    fail_msg("%s", text);
}

static void fill_floats(float *p, size_t count, uint32_t mix) {
    for (size_t i = 0; i < count; i++) p[i] = (float)(int32_t)((uint32_t)i * mix >> 20) / 2048 - 1;
}

// ---- GEMM through LDS ---------------------------------------------------------------------------------------
enum { M = 128, N = 64, K = 256 };
typedef struct gemm_args {
    void *a, *b, *c;
    int32_t n, k;
} gemm_args;

static gemm_args open_gemm(bench *b, const char *path) {
    open_bench(b, path);
    uint8_t *x = buffer(b, 0, M * K), *y = buffer(b, 1, N * K);
    for (uint32_t i = 0; i < M * K; i++) x[i] = (uint8_t)(i * 2654435761u >> 13) & 0xb7;
    for (uint32_t i = 0; i < N * K; i++) y[i] = (uint8_t)(i * 2246822519u >> 11) & 0xb7;
    return (gemm_args){x, y, buffer(b, 2, M * N * 4), N, K};
}

static void check_gemm(const gemm_args *g) {
    for (int i = 0; i < M; i += 5)
        for (int j = 0; j < N; j += 3) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double p = fp8_value(((uint8_t *)g->a)[i * K + k]) * fp8_value(((uint8_t *)g->b)[j * K + k]);
                sum += p, size += fabs(p);
            }
            assert_true(fabs(((float *)g->c)[i * N + j] - sum) <= size * K * 0x1p-24);
        }
}

static void test_gemm(void **state) {
    (void)state;
    static uint8_t first[M * N * 4];
    bench b;
    gs_error e;
    gemm_args g = open_gemm(&b, GEMM_OBJECT);
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
        memset(g.c, 0xff, sizeof first);
        must(launch(&b, "gemm_fp8", &g, sizeof g, (uint32_t[]){N / 64, M / 64}, seed, &e), &e);
        if (!seed) memcpy(first, g.c, sizeof first), check_gemm(&g);
        assert_memory_equal(first, g.c, sizeof first);
    }
    close_bench(&b);
}

static void test_missing_barrier(void **state) {
    (void)state;
    bench b;
    gs_error e;
    gemm_args g = open_gemm(&b, GEMM_RACE_OBJECT);
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
        assert_int_equal(launch(&b, "gemm_fp8", &g, sizeof g, (uint32_t[]){N / 64, M / 64}, seed, &e),
                         GS_E_CHECK);
        assert_int_equal(e.check, GS_CHECK_RACE_LDS);
    }
    close_bench(&b);
}

// ---- split-K ------------------------------------------------------------------------------------------------
enum { SK_N = 48, SK_K = 256, SPLITS = 4 };

static void test_split_atomic(void **state) {
    (void)state;
    bench b;
    gs_error e;
    open_bench(&b, SCHEDULES_OBJECT);
    int8_t *x = buffer(&b, 0, 16 * SK_K), *y = buffer(&b, 1, SK_N * SK_K);
    for (uint32_t i = 0; i < 16 * SK_K; i++) x[i] = (int8_t)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < SK_N * SK_K; i++) y[i] = (int8_t)(i * 2246822519u >> 11);
    int32_t *c = buffer(&b, 2, 16 * SK_N * 4);
    struct {
        void *a, *b, *c;
        int32_t n, k, part;
    } args = {x, y, c, SK_N, SK_K, SK_K / SPLITS};
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
        memset(c, 0, 16 * SK_N * 4);
        must(launch(&b, "split_atomic", &args, 36, (uint32_t[]){SK_N / 16, SPLITS}, seed, &e), &e);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < SK_N; j++) {
                int32_t sum = 0;
                for (int k = 0; k < SK_K; k++) sum += x[i * SK_K + k] * y[j * SK_K + k];
                assert_int_equal(c[i * SK_N + j], sum);
            }
    }
    close_bench(&b);
}

static void test_split_two_launches(void **state) {
    (void)state;
    enum { ROWS = 128 };
    bench b;
    gs_error e;
    open_bench(&b, SCHEDULES_OBJECT);
    float *x = buffer(&b, 0, SK_K * 4), *y = buffer(&b, 1, ROWS * SK_K * 4),
          *part = buffer(&b, 2, SPLITS * ROWS * 4), *c = buffer(&b, 3, ROWS * 4);
    fill_floats(x, SK_K, 2654435761u), fill_floats(y, ROWS * SK_K, 2246822519u);
    struct {
        void *a, *b, *c;
        int32_t n, k, part;
    } args = {x, y, part, ROWS, SK_K, SK_K / SPLITS};
    struct {
        void *partial, *c;
        int32_t n, splits;
    } args2 = {part, c, ROWS, SPLITS};
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
        memset(part, 0xff, SPLITS * ROWS * 4), memset(c, 0xff, ROWS * 4);
        must(launch(&b, "split_partial", &args, 36, (uint32_t[]){ROWS / 64, SPLITS}, seed, &e), &e);
        must(launch(&b, "split_sum", &args2, sizeof args2, (uint32_t[]){ROWS / 64, 1}, seed, &e), &e);
        for (int i = 0; i < ROWS; i++) { // the kernel's own order of sums, on the host
            float total = 0;
            for (int s = 0; s < SPLITS; s++) {
                float sum = 0;
                for (int k = s * SK_K / SPLITS; k < (s + 1) * SK_K / SPLITS; k++)
                    sum = fmaf(x[k], y[i * SK_K + k], sum);
                total += sum;
            }
            assert_memory_equal(&c[i], &total, sizeof total);
        }
    }
    close_bench(&b);
}

// ---- attention ----------------------------------------------------------------------------------------------
enum { HEADS = 3, KEYS = 37, WIDTH = 64 };

static void check_attention(const float *q, const float *keys, const float *values, const float *out) {
    for (int h = 0; h < HEADS; h++) {
        double p[KEYS], high = -1e30, total = 0;
        for (int j = 0; j < KEYS; j++) {
            p[j] = 0;
            for (int d = 0; d < WIDTH; d++) p[j] += (double)q[h * WIDTH + d] * keys[j * WIDTH + d];
            high = fmax(high, p[j]);
        }
        for (int j = 0; j < KEYS; j++) total += p[j] = exp2(p[j] - high);
        for (int d = 0; d < WIDTH; d++) {
            double sum = 0;
            for (int j = 0; j < KEYS; j++) sum += p[j] / total * values[j * WIDTH + d];
            assert_true(fabs(out[h * WIDTH + d] - sum) <
                        1e-5); // |values| <= 1, scores below 64: float rounding
        }
    }
}

static void test_attention(void **state) {
    (void)state;
    static float first[HEADS * WIDTH];
    bench b;
    gs_error e;
    open_bench(&b, SCHEDULES_OBJECT);
    float *q = buffer(&b, 0, sizeof first), *keys = buffer(&b, 1, KEYS * WIDTH * 4),
          *values = buffer(&b, 2, KEYS * WIDTH * 4), *out = buffer(&b, 3, sizeof first);
    fill_floats(q, HEADS * WIDTH, 2654435761u), fill_floats(keys, KEYS * WIDTH, 2246822519u),
        fill_floats(values, KEYS * WIDTH, 3266489917u);
    struct {
        void *q, *keys, *values, *out;
        int32_t n;
    } args = {q, keys, values, out, KEYS};
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
        memset(out, 0xff, sizeof first);
        must(launch(&b, "attention", &args, 36, (uint32_t[]){HEADS, 1}, seed, &e), &e);
        if (!seed) memcpy(first, out, sizeof first), check_attention(q, keys, values, out);
        assert_memory_equal(first, out, sizeof first);
    }
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemm), cmocka_unit_test(test_missing_barrier),
                                       cmocka_unit_test(test_split_atomic),
                                       cmocka_unit_test(test_split_two_launches),
                                       cmocka_unit_test(test_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
