// SPDX-License-Identifier: Apache-2.0
// The GEMM rows of gfx1201, executed in the simulator with all its checks on: against ref.c within a bound from term count
// and magnitude, and, in class `step`, the same bits of a row whatever stands beside it, the layout and the schedule.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gemm_case.inc"
#include "gfx1201_sim.h"
#include "kernels/gemm_fp8block/gfx1201_geometry.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed;

static bool full(void) {
    return getenv("RADIANCE_TEST_FULL") != NULL;
}

static const rdi_row *row_named(const char *name) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rdi_rows[i].info.name, name)) return &rdi_rows[i];
    return NULL;
}

// ---- running ------------------------------------------------------------------------------------------------------------
// Rows first .. first + m - 1 of the case; a poisoned buffer of m rows comes back.
static guarded run_rows(const rdi_row *row, const gemm_case *g, rdi_weight_layout layout, int64_t first,
                        int64_t m) {
    rdi_gemm_args args = g->args;
    size_t c_bytes = rd_dtype_bytes(args.c_dtype),
           a_at = (size_t)(first * args.a_stride) * rd_dtype_bytes(args.a_dtype),
           s_at = (size_t)(first * args.a_scale_stride_m) * sizeof(float);
    args.m = m;
    args.layout = layout;
    args.w = g->w[layout].data;
    args.c_stride = g->spec.n + g->spec.c_pad;
    args.a = (const uint8_t *)args.a + a_at;
    if (args.a_scale) args.a_scale += first * args.a_scale_stride_m;
    guarded c = guarded_new((size_t)((m - 1) * args.c_stride + args.n) * c_bytes, POISON);
    args.c = c.data;
    SIM_RUN(row, args, SIM_BUFFER(args, a, g->a.bytes - a_at),
            SIM_BUFFER(args, a_scale, g->a_scale.bytes - s_at), SIM_BUFFER(args, w, g->w[layout].bytes),
            SIM_BUFFER(args, w_scale, g->w_scale.bytes), SIM_BUFFER(args, bias, g->bias.bytes),
            SIM_BUFFER(args, c, c.bytes));
    return c;
}

static guarded run_all(const rdi_row *row, const gemm_case *g, rdi_weight_layout layout) {
    return run_rows(row, g, layout, 0, g->spec.m);
}

// ---- judging ------------------------------------------------------------------------------------------------------------
// f32 results of a CPU row: ref.c, or for large problems the fast row, which test_gemm.c holds to the same reference.
static float *on_cpu(const gemm_case *g, rdi_gemm_args args) {
    bool large = (double)args.m * (double)args.n * (double)args.k > 1e8;
    const rdi_row *judge = NULL;
    for (int32_t i = 0; i < rdi_row_count; i++) {
        const rdi_row *row = &rdi_rows[i];
        if (strcmp(row->info.op, g->spec.op) || row->backend != RDI_BACKEND_CPU) continue;
        if (row->info.is_reference || (large && !judge && gemm_row_takes(row, g))) judge = row;
        if (large && judge) break;
    }
    float *c = malloc((size_t)(args.m * args.n) * sizeof *c);
    void *ws = judge->ws_bytes ? aligned_alloc(64, (judge->ws_bytes(&args, 1) + 63) / 64 * 64) : NULL;
    args.c = c, args.c_dtype = RD_DTYPE_F32, args.c_stride = args.n;
    judge->run(&args, ws, NULL);
    free(ws);
    return c;
}

// The sum of absolute terms, what rounding errors are relative to: the same product of the operands without their signs.
static float *magnitudes(const gemm_case *g) {
    rdi_gemm_args args = g->args;
    guarded copies[3];
    const guarded *sources[3] = {&g->a, &g->w[0], &g->bias};
    size_t elem_bytes[3] = {rd_dtype_bytes(args.a_dtype), rd_dtype_bytes(args.w_dtype),
                            rd_dtype_bytes(args.bias_dtype)};
    for (int i = 0; i < 3; i++) {
        copies[i] = guarded_new(sources[i]->bytes, 0);
        for (size_t at = 0; at < sources[i]->bytes; at++)
            copies[i].data[at] = sources[i]->data[at] & ((at + 1) % elem_bytes[i] == 0 ? 0x7f : 0xff);
    }
    args.a = copies[0].data, args.w = copies[1].data, args.bias = args.bias ? copies[2].data : NULL;
    float *sum = on_cpu(g, args);
    for (int i = 0; i < 3; i++) guarded_free(&copies[i]);
    return sum;
}

// One rounding a term, for each slice's sum and each sum of slices, two for a scale, one for the bias; then half a unit of
// the output type. WMMA's own order of additions is unknown, so the bound holds for any.
static double bound(const gemm_spec *s, double magnitude, double value) {
    double terms = s->op[5] == 'b' ? (double)s->k + 10 : 128 + 2 + (double)((s->k + 127) / 128) + 10;
    double unit = s->c_dtype == RD_DTYPE_BF16 ? 0x1p-8 : s->c_dtype == RD_DTYPE_F16 ? 0x1p-11 : 0x1p-24;
    double least = s->c_dtype == RD_DTYPE_F16 ? 0x1p-25 : 0x1p-149;
    return terms * 0x1p-24 * magnitude * (1 + unit) + unit * fabs(value) * 1.0001 + least;
}

static void judge(const rdi_row *row, const gemm_case *g, const guarded *c) {
    const gemm_spec *s = &g->spec;
    float *want = on_cpu(g, g->args), *magnitude = magnitudes(g);
    double difference = 0, size = 0;
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t n = 0; n < s->n + s->c_pad && (m < s->m - 1 || n < s->n); n++) {
            if (n >= s->n) { // between the rows
                for (size_t b = 0; b < rd_dtype_bytes(s->c_dtype); b++)
                    assert_int_equal(
                        c->data[(size_t)(m * (s->n + s->c_pad) + n) * rd_dtype_bytes(s->c_dtype) + b],
                        POISON);
                continue;
            }
            double value = (double)want[m * s->n + n],
                   got = (double)rdi_load_f32(c->data, s->c_dtype, m * (s->n + s->c_pad) + n);
            if (isnan(value) ? isnan(got)
                             : fabs(got - value) <= bound(s, (double)magnitude[m * s->n + n], value)) {
                if (!isnan(value)) difference += fabs(got - value), size += fabs(value);
                continue;
            }
            fail_msg(
                "%s m=%lld n=%lld k=%lld a=%s c=%s seed=%llx: C[%lld][%lld] = %g, reference %g, magnitude %g",
                row->info.name, (long long)s->m, (long long)s->n, (long long)s->k, rd_dtype_name(s->a_dtype),
                rd_dtype_name(s->c_dtype), (unsigned long long)seed, (long long)m, (long long)n, got, value,
                (double)magnitude[m * s->n + n]);
        }
    // The field's acceptance: mean |diff| / mean |ref| < 1e-3. Half a unit of bf16 alone is up to 2^-9.
    if (s->c_dtype == RD_DTYPE_F32) assert_true(difference <= 1e-3 * size);
    if (!guarded_ok(c)) fail_msg("%s: a guard of C was touched", row->info.name);
    free(want), free(magnitude);
}

static void check_row(const char *name, const gemm_case *g, rdi_weight_layout layout) {
    const rdi_row *row = row_named(name);
    guarded c = run_all(row, g, layout);
    judge(row, g, &c);
    guarded_free(&c);
}

// Names of the rows of one op and class: for row-major weights, and for the (16,16) layout where there is one.
typedef struct row_pair {
    const char *row, *shuffle16;
} row_pair;

static void check_spec(row_pair names, const gemm_spec *spec) {
    gemm_rng rng = {seed};
    gemm_case g;
    gemm_case_make(&g, spec, &rng);
    check_row(names.row, &g, RDI_LAYOUT_ROW);
    if (names.shuffle16 && gemm_case_has_layout(&g, RDI_LAYOUT_SHUFFLE16))
        check_row(names.shuffle16, &g, RDI_LAYOUT_SHUFFLE16);
    assert_true(gemm_case_guards_ok(&g));
    gemm_case_free(&g);
}

// ---- gemm_fp8block, class step --------------------------------------------------------------------------------------------
static const row_pair step = {"gemm_fp8block_step_gfx1201", "gemm_fp8block_step_preshuffle_gfx1201"};

// Every kernel of the class: row tiles 1, 2, 4 by M; weight tiles 1, 2, 4 by N, as a card of four compute units has them.
static void test_step_tiles(void **state) {
    NEED_SIM();
    static const int64_t rows[] = {1, 16, 17, 40, 128}, columns[] = {112, 144, 272};
    (void)state;
    sim.compute_units = 4;
    for (size_t m = 0; m < RDI_COUNT(rows); m++)
        for (size_t n = 0; n < RDI_COUNT(columns); n++)
            check_spec(
                step,
                &(gemm_spec){.op = "gemm_fp8block",
                             .m = rows[m],
                             .n = columns[n],
                             .k = 640 + 32 * (int64_t)n,
                             .a_dtype = RD_DTYPE_E4M3,
                             .w_scale_dtype = n & 1 ? RD_DTYPE_E8M0 : RD_DTYPE_F32,
                             .c_dtype = (rd_dtype[]){RD_DTYPE_BF16, RD_DTYPE_F16, RD_DTYPE_F32}[(m + n) % 3],
                             .bias_dtype = (rd_dtype[]){RD_DTYPE_NONE, RD_DTYPE_F32, RD_DTYPE_BF16}[m % 3],
                             .specials = true});
    sim.compute_units = 0;
}

// Ragged N and K, padded rows that start on dwords or anywhere, scales by columns.
static void test_step_ragged(void **state) {
    NEED_SIM();
    static const gemm_spec base = {.op = "gemm_fp8block",
                                   .a_dtype = RD_DTYPE_E4M3,
                                   .w_scale_dtype = RD_DTYPE_F32,
                                   .c_dtype = RD_DTYPE_BF16,
                                   .specials = true};
    static const int64_t columns[] = {1, 17, 130, 301}, depths[] = {1, 31, 127, 129, 517, 1100};
    (void)state;
    for (size_t i = 0; i < RDI_COUNT(columns); i++)
        for (size_t j = 0; j < RDI_COUNT(depths); j++) {
            gemm_spec s = base;
            s.m = 1 + (int64_t)(i * 7 + j) % 20, s.n = columns[i], s.k = depths[j];
            s.a_pad = (int64_t)(i + j) % 4, s.w_pad = (int64_t)j % 3 * 2, s.c_pad = (int64_t)i;
            s.scales_transposed = (i + j) & 1;
            sim.compute_units = j & 1 ? 4 : 0;
            check_spec(step, &s);
        }
    sim.compute_units = 0;
}

// The field's grid: M {1, 7, 8, 83} x N {128, 512, 576, 7168, 13824} x K {256, 3884, 4096, 13824, 16384}.
static void test_step_acceptance(void **state) {
    NEED_SIM();
    static const int64_t rows[] = {1, 7, 8, 83}, columns[] = {128, 512, 576, 7168, 13824},
                         depths[] = {256, 3884, 4096, 13824, 16384};
    (void)state;
    for (size_t n = 0; n < (full() ? 5 : 3); n++)
        for (size_t k = 0; k < (full() ? 5 : 3); k++)
            for (size_t m = 0; m < 4; m++)
                if (full() || n == 0 || (n + k + m) % 4 == 0)
                    check_spec(step, &(gemm_spec){.op = "gemm_fp8block",
                                                  .m = rows[m],
                                                  .n = columns[n],
                                                  .k = depths[k],
                                                  .a_dtype = RD_DTYPE_E4M3,
                                                  .w_scale_dtype = RD_DTYPE_F32,
                                                  .c_dtype = m == 1 ? RD_DTYPE_F32 : RD_DTYPE_BF16});
}

// A NaN weight spoils its own column, a NaN activation its own row.
static void test_step_nan(void **state) {
    NEED_SIM();
    (void)state;
    gemm_rng rng = {seed};
    gemm_case g;
    gemm_case_make(&g,
                   &(gemm_spec){.op = "gemm_fp8block",
                                .m = 5,
                                .n = 96,
                                .k = 384,
                                .a_dtype = RD_DTYPE_E4M3,
                                .w_scale_dtype = RD_DTYPE_F32,
                                .c_dtype = RD_DTYPE_BF16},
                   &rng);
    g.w[0].data[37 * 384 + 200] = 0xff;
    g.a.data[3 * 384 + 17] = 0x7f;
    guarded c = run_all(row_named(step.row), &g, RDI_LAYOUT_ROW);
    for (int64_t m = 0; m < 5; m++)
        for (int64_t n = 0; n < 96; n++)
            assert_int_equal(isnan(rdi_load_f32(c.data, RD_DTYPE_BF16, m * 96 + n)), m == 3 || n == 37);
    guarded_free(&c);
    gemm_case_free(&g);
}

// ---- gemm_fp8block, class chunk -------------------------------------------------------------------------------------------
static const row_pair chunk = {"gemm_fp8block_chunk_gfx1201", "gemm_fp8block_chunk_preshuffle_gfx1201"};

static void test_chunk_tiles(void **state) {
    NEED_SIM();
    static const int64_t rows[] = {1, 65, 200}, columns[] = {96, 272}, depths[] = {128, 416, 1024};
    (void)state;
    for (int units = 1; units <= 64; units += 63) // tiles of 128 rows, of 64 rows
        for (size_t m = 0; m < RDI_COUNT(rows); m++)
            for (size_t n = 0; n < RDI_COUNT(columns); n++) {
                sim.compute_units = units;
                check_spec(chunk, &(gemm_spec){.op = "gemm_fp8block",
                                               .m = rows[m],
                                               .n = columns[n],
                                               .k = depths[m],
                                               .a_dtype = RD_DTYPE_E4M3,
                                               .w_scale_dtype = n ? RD_DTYPE_E8M0 : RD_DTYPE_F32,
                                               .c_dtype = (rd_dtype[]){RD_DTYPE_BF16, RD_DTYPE_F16,
                                                                       RD_DTYPE_F32}[(m + n) % 3],
                                               .bias_dtype = (rd_dtype[]){RD_DTYPE_NONE, RD_DTYPE_F32,
                                                                          RD_DTYPE_BF16}[m],
                                               .specials = true});
            }
    sim.compute_units = 0;
}

static void test_chunk_ragged(void **state) {
    NEED_SIM();
    static const int64_t columns[] = {1, 130}, depths[] = {1, 127, 129, 517, 580};
    (void)state;
    for (size_t i = 0; i < RDI_COUNT(columns); i++)
        for (size_t j = 0; j < RDI_COUNT(depths); j++)
            check_spec(chunk, &(gemm_spec){.op = "gemm_fp8block",
                                           .m = 3 + 66 * (int64_t)i,
                                           .n = columns[i],
                                           .k = depths[j],
                                           .a_dtype = RD_DTYPE_E4M3,
                                           .w_scale_dtype = RD_DTYPE_F32,
                                           .c_dtype = RD_DTYPE_BF16,
                                           .a_pad = (int64_t)(i + j) % 4,
                                           .w_pad = (int64_t)j % 3 * 2,
                                           .c_pad = (int64_t)i,
                                           .scales_transposed = (i + j) & 1,
                                           .specials = true});
}

// The field's grid with M = 83, and 4096 where M * N * K stays below what two cores simulate in minutes.
static void test_chunk_acceptance(void **state) {
    NEED_SIM();
    static const int64_t columns[] = {128, 512, 576, 7168, 13824}, depths[] = {256, 3884, 4096, 13824, 16384};
    (void)state;
    for (size_t n = 0; n < (full() ? 5 : 3); n++)
        for (size_t k = 0; k < (full() ? 5 : 2); k++)
            for (int large = 0; large < (full() && n < 3 && k < 3 ? 2 : 1); large++)
                check_spec(chunk, &(gemm_spec){.op = "gemm_fp8block",
                                               .m = large ? 4096 : 83,
                                               .n = columns[n],
                                               .k = depths[k],
                                               .a_dtype = RD_DTYPE_E4M3,
                                               .w_scale_dtype = RD_DTYPE_F32,
                                               .c_dtype = n == 1 ? RD_DTYPE_F32 : RD_DTYPE_BF16});
}

// ---- the bits of a row ------------------------------------------------------------------------------------------------------
static void same_rows(const gemm_case *g, const guarded *some, int64_t first, int64_t m, const guarded *all) {
    size_t row_bytes = (size_t)g->spec.n * rd_dtype_bytes(g->spec.c_dtype);
    for (int64_t i = 0; i < m; i++)
        if (memcmp(some->data + (size_t)i * row_bytes, all->data + (size_t)(first + i) * row_bytes,
                   row_bytes))
            fail_msg("row %lld of %lld alone has other bits than among %lld (seed %llx)",
                     (long long)(first + i), (long long)m, (long long)g->spec.m, (unsigned long long)seed);
}

// Every second call is of the other layout, where there is one.
static void check_bits(row_pair names, const gemm_spec *spec) {
    gemm_rng rng = {seed};
    gemm_case g;
    gemm_case_make(&g, spec, &rng);
    guarded all = run_all(row_named(names.row), &g, RDI_LAYOUT_ROW);
    for (int64_t m = 1; m <= 128; m += m < 20 ? 3 : 21)
        for (int turn = 0; turn < 2; turn++) { // from the first row, and from anywhere
            int64_t first = turn ? rng_below(&rng, 129 - m) : 0;
            bool other = turn && names.shuffle16;
            guarded some = run_rows(row_named(other ? names.shuffle16 : names.row), &g,
                                    other ? RDI_LAYOUT_SHUFFLE16 : RDI_LAYOUT_ROW, first, m);
            same_rows(&g, &some, first, m, &all);
            guarded_free(&some);
        }
    guarded_free(&all);
    gemm_case_free(&g);
}

static void test_step_bits(void **state) {
    NEED_SIM();
    (void)state;
    for (int units = 1; units <= 4; units *= 2) { // N = 112: four, two and one weight tiles
        sim.compute_units = units;
        check_bits(step, &(gemm_spec){.op = "gemm_fp8block",
                                      .m = 128,
                                      .n = 112,
                                      .k = 672,
                                      .a_dtype = RD_DTYPE_E4M3,
                                      .w_scale_dtype = RD_DTYPE_F32,
                                      .c_dtype = RD_DTYPE_F32});
    }
    sim.compute_units = 0;
}

// The tiles of class chunk do not decide bits either.
static void test_chunk_bits(void **state) {
    NEED_SIM();
    (void)state;
    gemm_rng rng = {seed};
    gemm_case g;
    gemm_case_make(&g,
                   &(gemm_spec){.op = "gemm_fp8block",
                                .m = 150,
                                .n = 144,
                                .k = 416,
                                .a_dtype = RD_DTYPE_E4M3,
                                .w_scale_dtype = RD_DTYPE_F32,
                                .c_dtype = RD_DTYPE_F32},
                   &rng);
    sim.compute_units = 1;
    guarded all = run_all(row_named(chunk.row), &g, RDI_LAYOUT_ROW);
    sim.compute_units = 64;
    guarded some = run_rows(row_named(chunk.shuffle16), &g, RDI_LAYOUT_SHUFFLE16, 40, 110);
    same_rows(&g, &some, 40, 110, &all);
    sim.compute_units = 0;
    guarded_free(&all), guarded_free(&some);
    gemm_case_free(&g);
}

// The simulator reads its schedule seed once, so each has a process.
static void test_schedules(void **state) {
    (void)state;
    const gemm_spec spec = {.op = "gemm_fp8block",
                            .m = 20,
                            .n = 80,
                            .k = 1184,
                            .a_dtype = RD_DTYPE_E4M3,
                            .w_scale_dtype = RD_DTYPE_F32,
                            .c_dtype = RD_DTYPE_F32};
    size_t bytes = (size_t)(spec.m * spec.n) * 4;
    uint8_t *shared = mmap(NULL, 4 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!*RD_SIM_LIBRARY) skip();
    for (int child = 0; child < 4; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            char text[2] = {(char)('0' + child), 0};
            setenv("GFX12SIM_SEED", text, 1);
            gemm_rng rng = {seed};
            gemm_case g;
            gemm_case_make(&g, &spec, &rng);
            if (!sim_open()) _exit(1);
            guarded c = run_all(row_named(step.shuffle16), &g, RDI_LAYOUT_SHUFFLE16);
            memcpy(shared + (size_t)child * bytes, c.data, bytes);
            _exit(0);
        }
        int status = 1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_memory_equal(shared, shared + (size_t)child * bytes, bytes);
    }
    munmap(shared, 4 * bytes);
}

// ---- geometry, without a card -----------------------------------------------------------------------------------------------
static void test_step_geometry(void **state) {
    (void)state;
    static const struct {
        int64_t m, n;
        int32_t units, m_tiles, n_tiles, slices;
    } rows[] = {{1, 14336, 64, 1, 4, 4}, {16, 5120, 64, 1, 4, 4},  {17, 34816, 64, 2, 4, 4},
                {33, 5120, 64, 4, 2, 4}, {128, 4096, 64, 4, 2, 4}, {8, 4095, 64, 1, 2, 4},
                {8, 2047, 64, 1, 1, 8},  {100, 256, 64, 4, 1, 8}};
    for (size_t i = 0; i < RDI_COUNT(rows); i++) {
        rdi_step_tiles tiles = rdi_gemm_step_tiles(rows[i].m, rows[i].n, rows[i].units);
        assert_int_equal(tiles.m_tiles, rows[i].m_tiles);
        assert_int_equal(tiles.n_tiles, rows[i].n_tiles);
        assert_int_equal(tiles.slices, rows[i].slices);
    }
    for (int64_t n = 1; n < 9000; n += 37)
        for (int64_t m = 2; m <= 128; m++) // what decides bits does not see M
            assert_int_equal(rdi_gemm_step_tiles(m, n, 64).slices, rdi_gemm_step_tiles(1, n, 64).slices);
    rdi_launch launch;
    const rd_device_info device = {.compute_units = 64};
    rdi_gemm_args args = {.m = 65,
                          .n = 14337,
                          .k = 5120,
                          .a_stride = 5120,
                          .w_stride = 5120,
                          .c_stride = 14340,
                          .a_dtype = RD_DTYPE_E4M3,
                          .w_dtype = RD_DTYPE_E4M3,
                          .c_dtype = RD_DTYPE_BF16};
    assert_int_equal(row_named(step.row)->geometry(&args, NULL, &device, &launch), 1);
    assert_string_equal(launch.kernel, "rdk_gemm_fp8block_step_gfx1201_4x2");
    assert_int_equal(launch.grid[0], 2);
    assert_int_equal(launch.grid[1], 449);
    assert_int_equal(launch.block[0], 128);
    const rdk_gemm_gfx1201_args *kernel = (const void *)launch.args;
    assert_int_equal(kernel->aligned, 1);
    assert_int_equal(kernel->c_aligned, 1);
    args.w_stride = 5121;
    row_named(step.row)->geometry(&args, NULL, &device, &launch);
    assert_int_equal(kernel->aligned, 0);
}

int main(void) {
    const char *given = getenv("RADIANCE_TEST_SEED");
    seed = given ? strtoull(given, NULL, 16) : (uint64_t)time(NULL) * 2654435761u;
    printf("seed %llx (RADIANCE_TEST_SEED repeats it)\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules), // first: a process that has opened the simulator cannot fork another
        cmocka_unit_test(test_step_geometry), cmocka_unit_test(test_step_tiles),
        cmocka_unit_test(test_step_ragged),   cmocka_unit_test(test_step_nan),
        cmocka_unit_test(test_step_bits),     cmocka_unit_test(test_step_acceptance),
        cmocka_unit_test(test_chunk_tiles),   cmocka_unit_test(test_chunk_ragged),
        cmocka_unit_test(test_chunk_bits),    cmocka_unit_test(test_chunk_acceptance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
