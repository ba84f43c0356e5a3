// SPDX-License-Identifier: Apache-2.0
// full shards: 8
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

// RADIANCE_TEST_SHARD=i/n and RADIANCE_TEST_FULL (ctest): every n-th case of the whole acceptance grid, from the i-th on.
static long shard, shards;
static bool full(void) {
    return shards > 0;
}
static bool mine(void) { // is the next case of the grid this shard's?
    static long next;
    return !full() || next++ % shards == shard - 1;
}

enum { SKIPPED = 77 }; // tests/CMakeLists.txt
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
    bool large = (double)args.m * (double)args.n * (double)args.k > 5e6;
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

// What a case's C must be, and how exactly.
typedef struct verdict {
    float *want, *magnitude;
} verdict;

// c: the first `rows` rows of the case's C.
static void judge(const rdi_row *row, const gemm_case *g, const verdict *v, const guarded *c, int64_t rows) {
    const gemm_spec *s = &g->spec;
    const float *want = v->want, *magnitude = v->magnitude;
    double difference = 0, size = 0;
    for (int64_t m = 0; m < rows; m++)
        for (int64_t n = 0; n < s->n + s->c_pad && (m < rows - 1 || n < s->n); n++) {
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
                row->info.name, (long long)rows, (long long)s->n, (long long)s->k, rd_dtype_name(s->a_dtype),
                rd_dtype_name(s->c_dtype), (unsigned long long)seed, (long long)m, (long long)n, got, value,
                (double)magnitude[m * s->n + n]);
        }
    // The field's acceptance: mean |diff| / mean |ref| < 1e-3. Half a unit of bf16 alone is up to 2^-9.
    if (s->c_dtype == RD_DTYPE_F32) assert_true(difference <= 1e-3 * size);
    if (!guarded_ok(c)) fail_msg("%s: a guard of C was touched", row->info.name);
}

static void check_row(const char *name, const gemm_case *g, const verdict *v, rdi_weight_layout layout,
                      int64_t rows) {
    const rdi_row *row = gpu_row(name);
    guarded c = run_rows(row, g, layout, 0, rows);
    judge(row, g, v, &c, rows);
    guarded_free(&c);
}

// Names of the rows of one op and class: for row-major weights, and for the (16,16) layout where there is one.
typedef struct row_pair {
    const char *row, *shuffle16;
} row_pair;

// counts: how many of the case's first rows each call takes; the last is all of them.
static void check_counts(row_pair names, const gemm_spec *spec, const int64_t *counts, size_t count) {
    gemm_rng rng = {seed};
    gemm_case g;
    gemm_case_make(&g, spec, &rng);
    verdict v = {on_cpu(&g, g.args), magnitudes(&g)};
    for (size_t i = 0; i < count; i++) {
        check_row(names.row, &g, &v, RDI_LAYOUT_ROW, counts[i]);
        if (names.shuffle16 && gemm_case_has_layout(&g, RDI_LAYOUT_SHUFFLE16))
            check_row(names.shuffle16, &g, &v, RDI_LAYOUT_SHUFFLE16, counts[i]);
    }
    assert_true(gemm_case_guards_ok(&g));
    free(v.want), free(v.magnitude);
    gemm_case_free(&g);
}
static void check_spec(row_pair names, const gemm_spec *spec) {
    check_counts(names, spec, &spec->m, 1);
}

// ---- the cases --------------------------------------------------------------------------------------------------------------
// The rows of one op and class, and what all its cases have in common.
typedef struct family {
    row_pair names;
    gemm_spec spec;
} family;
#define FP8   .op = "gemm_fp8block", .a_dtype = RD_DTYPE_E4M3, .w_scale_dtype = RD_DTYPE_F32
#define W8A16 .op = "gemm_fp8block_w8a16", .w_scale_dtype = RD_DTYPE_F32
#define BF16  .op = "gemm_bf16", .a_dtype = RD_DTYPE_BF16
static const family fp8_step = {{"gemm_fp8block_step_gfx1201", "gemm_fp8block_step_preshuffle_gfx1201"},
                                {FP8}};
static const family fp8_chunk = {{"gemm_fp8block_chunk_gfx1201", "gemm_fp8block_chunk_preshuffle_gfx1201"},
                                 {FP8}};
static const family w8a16_bf16 = {{"gemm_fp8block_w8a16_step_gfx1201", "gemm_fp8block_w8a16_step_gfx1201"},
                                  {W8A16, .a_dtype = RD_DTYPE_BF16}};
static const family w8a16_f16 = {{"gemm_fp8block_w8a16_step_gfx1201", "gemm_fp8block_w8a16_step_gfx1201"},
                                 {W8A16, .a_dtype = RD_DTYPE_F16}};
static const family bf16_step = {{"gemm_bf16_step_gfx1201", NULL}, {BF16}};
static const family bf16_f16 = {{"gemm_bf16_step_wide_gfx1201", NULL},
                                {.op = "gemm_bf16", .a_dtype = RD_DTYPE_F16}};
static const family bf16_f32 = {{"gemm_bf16_step_wide_gfx1201", NULL},
                                {.op = "gemm_bf16", .a_dtype = RD_DTYPE_F32}};
static const family bf16_chunk = {{"gemm_bf16_chunk_gfx1201", NULL}, {BF16}};
static const family *const steps[] = {&fp8_step, &w8a16_bf16, &w8a16_f16, &bf16_step, &bf16_f16, &bf16_f32};
static const family *const chunks[] = {&fp8_chunk, &bf16_chunk};

static gemm_spec sized(const family *f, int64_t m, int64_t n, int64_t k) {
    gemm_spec spec = f->spec;
    spec.m = m, spec.n = n, spec.k = k;
    spec.c_dtype = RD_DTYPE_BF16;
    return spec;
}

static const rd_dtype c_types[] = {RD_DTYPE_BF16, RD_DTYPE_F16, RD_DTYPE_F32},
                      bias_types[] = {RD_DTYPE_NONE, RD_DTYPE_F32, RD_DTYPE_BF16};

static void check_tiles(const family *f, int64_t m, int64_t n, int64_t k, size_t turn) {
    gemm_spec spec = sized(f, m, n, k);
    if (spec.w_scale_dtype && turn & 1) spec.w_scale_dtype = RD_DTYPE_E8M0;
    spec.c_dtype = c_types[turn % 3];
    spec.bias_dtype = bias_types[turn / 2 % 3];
    spec.specials = true;
    check_spec(f->names, &spec);
}

// Every kernel of a class: row tiles by M; weight tiles by N, as a card of few compute units has them.
static void test_step_tiles(void **state) {
    NEED_SIM();
    static const int64_t rows[] = {1, 16, 17, 40, 128}, columns[] = {48, 112, 144, 272};
    (void)state;
    sim.compute_units = 4;
    for (size_t f = 0; f < RDI_COUNT(steps); f++)
        for (size_t m = 0; m < RDI_COUNT(rows); m++)
            for (size_t n = 0; n < RDI_COUNT(columns); n++)
                check_tiles(steps[f], rows[m], columns[n], 640 + 32 * (int64_t)n, m + n);
    sim.compute_units = 0;
}
static void test_chunk_tiles(void **state) {
    NEED_SIM();
    static const int64_t rows[] = {1, 65, 200}, columns[] = {96, 272}, depths[] = {128, 416, 1024};
    (void)state;
    for (int units = 1; units <= 64; units += 63) { // tiles of 128 rows, of 64 rows
        sim.compute_units = units;
        for (size_t f = 0; f < RDI_COUNT(chunks); f++)
            for (size_t m = 0; m < RDI_COUNT(rows); m++)
                for (size_t n = 0; n < RDI_COUNT(columns); n++)
                    check_tiles(chunks[f], rows[m], columns[n], depths[m], m + n);
    }
    sim.compute_units = 0;
}

// Ragged N and K, padded rows that start on dwords or anywhere, scales by columns.
static void check_ragged(const family *f, int64_t m, int64_t n, int64_t k, size_t turn) {
    gemm_spec spec = sized(f, m, n, k);
    spec.a_pad = (int64_t)turn % 4, spec.w_pad = (int64_t)turn % 3 * 2, spec.c_pad = (int64_t)turn % 5;
    spec.scales_transposed = turn & 1;
    spec.specials = true;
    sim.compute_units = turn & 1 ? 4 : 0;
    check_spec(f->names, &spec);
    sim.compute_units = 0;
}
static void test_ragged(void **state) {
    NEED_SIM();
    static const int64_t columns[] = {1, 17, 130, 301}, depths[] = {1, 31, 63, 127, 129, 517, 1100};
    (void)state;
    for (size_t i = 0; i < RDI_COUNT(columns); i++)
        for (size_t j = 0; j < RDI_COUNT(depths); j++) {
            for (size_t f = 0; f < RDI_COUNT(steps); f++)
                check_ragged(steps[f], 1 + (int64_t)(i * 7 + j) % 20, columns[i], depths[j], i + j + f);
            for (size_t f = 0; f < RDI_COUNT(chunks) && i < 3; f++)
                check_ragged(chunks[f], 3 + 33 * (int64_t)i, columns[i], depths[j], i + j + f);
        }
}

// The field's grid: M {1, 7, 8, 83, 4096} x N {128, 512, 576, 7168, 13824} x K {256, 3884, 4096, 13824, 16384}; M = 4096 where
// M * N * K stays below what two cores simulate in minutes.
static const int64_t grid_n[] = {128, 512, 576, 7168, 13824}, grid_k[] = {256, 3884, 4096, 13824, 16384};

static void test_step_acceptance(void **state) {
    NEED_SIM();
    static const int64_t rows[] = {1, 7, 8, 83};
    (void)state;
    for (size_t f = 0; f < RDI_COUNT(steps); f++)
        for (size_t n = 0; n < (full() ? 5 : 3); n++)
            for (size_t k = 0; k < (full() ? 5 : 3); k++) {
                gemm_spec spec = sized(steps[f], 83, grid_n[n], grid_k[k]);
                spec.c_dtype = (n + k) % 2 ? RD_DTYPE_F32 : RD_DTYPE_BF16;
                if (full() && mine())
                    check_counts(steps[f]->names, &spec, rows, RDI_COUNT(rows));
                else if (!full() && (n + k + f) % 3 == 0) {
                    spec.m = 8;
                    check_counts(steps[f]->names, &spec, rows, 3);
                }
            }
}
static void test_chunk_acceptance(void **state) {
    NEED_SIM();
    (void)state;
    for (size_t f = 0; f < RDI_COUNT(chunks); f++)
        for (size_t n = 0; n < (full() ? 5 : 3); n++)
            for (size_t k = 0; k < (full() ? 5 : 2); k++)
                for (int large = 0; large < (full() && n < 3 && k < 3 ? 2 : 1); large++) {
                    gemm_spec spec = sized(chunks[f], large ? 4096 : 83, grid_n[n], grid_k[k]);
                    spec.c_dtype = n == 1 ? RD_DTYPE_F32 : RD_DTYPE_BF16;
                    if (mine()) check_spec(chunks[f]->names, &spec);
                }
}

// A NaN weight spoils its own column, a NaN activation its own row.
static void check_nan(const family *f) {
    gemm_spec spec = sized(f, 5, 96, 384);
    gemm_rng rng = {seed};
    gemm_case g;
    gemm_case_make(&g, &spec, &rng);
    if (g.args.w_dtype == RD_DTYPE_E4M3)
        g.w[0].data[37 * 384 + 200] = 0xff;
    else
        rdi_store_f32(g.w[0].data, RD_DTYPE_BF16, 37 * 384 + 200, NAN);
    rdi_store_f32(g.a.data, spec.a_dtype, 3 * 384 + 17, NAN);
    guarded c = run_all(gpu_row(f->names.row), &g, RDI_LAYOUT_ROW);
    for (int64_t m = 0; m < 5; m++)
        for (int64_t n = 0; n < 96; n++)
            assert_int_equal(isnan(rdi_load_f32(c.data, RD_DTYPE_BF16, m * 96 + n)), m == 3 || n == 37);
    guarded_free(&c);
    gemm_case_free(&g);
}
static void test_nan(void **state) {
    NEED_SIM();
    (void)state;
    for (size_t f = 0; f < RDI_COUNT(steps); f++) check_nan(steps[f]);
    for (size_t f = 0; f < RDI_COUNT(chunks); f++) check_nan(chunks[f]);
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
    guarded all = run_all(gpu_row(names.row), &g, RDI_LAYOUT_ROW);
    for (int64_t m = 1; m <= 128; m += m < 20 ? 3 : 21)
        for (int turn = 0; turn < 2; turn++) { // from the first row, and from anywhere
            int64_t first = turn ? rng_below(&rng, 129 - m) : 0;
            bool other = turn && names.shuffle16;
            guarded some = run_rows(gpu_row(other ? names.shuffle16 : names.row), &g,
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
    for (size_t f = 0; f < RDI_COUNT(steps); f++)
        for (int units = 1; units <= 8; units *= 2) { // N = 112: every pair of tiles and slices
            gemm_spec spec = sized(steps[f], 128, 112, 672);
            spec.c_dtype = RD_DTYPE_F32;
            sim.compute_units = units;
            check_bits(steps[f]->names, &spec);
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
    guarded all = run_all(gpu_row(fp8_chunk.names.row), &g, RDI_LAYOUT_ROW);
    sim.compute_units = 64;
    guarded some = run_rows(gpu_row(fp8_chunk.names.shuffle16), &g, RDI_LAYOUT_SHUFFLE16, 40, 110);
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
            guarded c = run_all(gpu_row(fp8_step.names.shuffle16), &g, RDI_LAYOUT_SHUFFLE16);
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
        bool widen;
    } rows[] = {
        {1, 14336, 64, 1, 4, 4, false}, {16, 5120, 64, 1, 4, 4, false},  {17, 34816, 64, 2, 4, 4, false},
        {33, 5120, 64, 4, 2, 4, false}, {128, 4096, 64, 4, 2, 4, false}, {8, 4095, 64, 1, 2, 4, false},
        {8, 2047, 64, 1, 2, 8, false},  {100, 256, 64, 4, 1, 8, false},  {8, 5120, 64, 1, 4, 4, true},
        {17, 5120, 64, 2, 2, 4, true},  {128, 256, 64, 2, 1, 8, true}};
    for (size_t i = 0; i < RDI_COUNT(rows); i++) {
        rdi_step_tiles tiles = rdi_gemm_step_tiles(rows[i].m, rows[i].n, rows[i].units, rows[i].widen);
        assert_int_equal(tiles.m_tiles, rows[i].m_tiles);
        assert_int_equal(tiles.n_tiles, rows[i].n_tiles);
        assert_int_equal(tiles.slices, rows[i].slices);
    }
    for (int64_t n = 1; n < 9000; n += 37)
        for (int64_t m = 2; m <= 128; m++) // what decides bits does not see M
            assert_int_equal(rdi_gemm_step_tiles(m, n, 64, m & 1).slices,
                             rdi_gemm_step_tiles(1, n, 64, m & 1).slices);
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
    assert_int_equal(gpu_row(fp8_step.names.row)->geometry(&args, NULL, &device, &launch), 1);
    assert_string_equal(launch.kernel, "rdk_gemm_fp8block_step_gfx1201_4x2x4");
    assert_int_equal(launch.grid[0], 2);
    assert_int_equal(launch.grid[1], 449);
    assert_int_equal(launch.block[0], 128);
    const rdk_gemm_gfx1201_args *kernel = (const void *)launch.args;
    assert_int_equal(kernel->aligned, 1);
    assert_int_equal(kernel->c_aligned, 1);
    args.w_stride = 5121;
    gpu_row(fp8_step.names.row)->geometry(&args, NULL, &device, &launch);
    assert_int_equal(kernel->aligned, 0);
}

int main(void) {
    const char *given = getenv("RADIANCE_TEST_SEED");
    seed = given ? strtoull(given, NULL, 16) : (uint64_t)time(NULL) * 2654435761u;
    printf("seed %llx (RADIANCE_TEST_SEED repeats it)\n", (unsigned long long)seed);
    const char *part = getenv("RADIANCE_TEST_SHARD"), *whole = getenv("RADIANCE_TEST_FULL");
    if (part) {
        const struct CMUnitTest grid[] = {cmocka_unit_test(test_step_acceptance),
                                          cmocka_unit_test(test_chunk_acceptance)};
        char *end = NULL;
        shard = strtol(part, &end, 10), shards = *end == '/' ? strtol(end + 1, NULL, 10) : 0;
        if (!whole) return SKIPPED;
        if (shard < 1 || shard > shards)
            return fprintf(stderr, "RADIANCE_TEST_SHARD=%s, needs i/n\n", part), 1;
        return cmocka_run_group_tests(grid, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        // First: a process that has opened the simulator cannot fork another.
        cmocka_unit_test(test_schedules),       cmocka_unit_test(test_step_geometry),
        cmocka_unit_test(test_step_tiles),      cmocka_unit_test(test_chunk_tiles),
        cmocka_unit_test(test_ragged),          cmocka_unit_test(test_nan),
        cmocka_unit_test(test_step_bits),       cmocka_unit_test(test_chunk_bits),
        cmocka_unit_test(test_step_acceptance), cmocka_unit_test(test_chunk_acceptance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
