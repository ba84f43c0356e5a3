// SPDX-License-Identifier: Apache-2.0
// Many rows of bf16 activations by vdpbf16ps, which adds two products at a time: nearly twice the f32 rate, and an order of
// sums of its own ("cpu_pairs"), so the row runs only for callers that say order=any. e4m3 and bf16 products are exact in
// f32; the instruction takes subnormal inputs as zero.
#include "kernels/gemm_fp8block/cpu_prelude.inc"
#include "kernels/gemm_fp8block/vec_avx512.inc"

#pragma GCC diagnostic ignored                                                                               \
    "-Wunused-function" // activations stay bf16 here: the shared widening has no caller
#include "kernels/gemm_fp8block/cpu_common.inc"

#define KEEP_IN_REGISTER(x_)                                                                                 \
    __asm__("" : "+v"(x_)) // gcc 12 folds the broadcast into each product and runs out of load slots

// Per worker: the widened tile (64 pairs x 48 columns) and the sums of the pass. Activations stand as [k block][row][128],
// zero past K, so that pairs and blocks are whole.
enum { TILE_COLUMNS = TILE_PANELS * RDI_PANEL_ROWS, PASS_ROWS = 512, PAIRS = RDI_GEMM_BLOCK / 2 };

typedef struct pairs_job {
    const rdi_gemm_args *args;
    uint16_t *a;
    uint8_t *scratch;
    int64_t pass_rows, groups;
    rdi_tiles tiles;
} pairs_job;

static int64_t pass_rows_of(const rdi_gemm_args *args) {
    return rdi_ceil_div(args->m, rdi_ceil_div(args->m, PASS_ROWS));
}
static size_t a_bytes(const rdi_gemm_args *args) {
    return (size_t)(k_blocks_of(args) * args->m) * RDI_GEMM_BLOCK * sizeof(uint16_t);
}
static size_t tile_scratch_bytes(const rdi_gemm_args *args) {
    return (size_t)(PAIRS + pass_rows_of(args)) * TILE_COLUMNS * sizeof(float);
}

static void copy_body(void *arg, int32_t worker, int32_t workers) {
    (void)worker;
    (void)workers;
    pairs_job *job = arg;
    const rdi_gemm_args *args = job->args;
    for (int64_t row, end; rdi_tiles_next(&job->tiles, &row, &end);)
        for (; row < end; row++) { // rows of [k block][m]
            int64_t first = row / args->m * RDI_GEMM_BLOCK, count = rdi_min(RDI_GEMM_BLOCK, args->k - first);
            uint16_t *to = job->a + row * RDI_GEMM_BLOCK;
            const uint16_t *from = (const uint16_t *)args->a + row % args->m * args->a_stride + first;
            memcpy(to, from, (size_t)count * sizeof *to);
            memset(to + count, 0, (size_t)(RDI_GEMM_BLOCK - count) * sizeof *to);
        }
}

// Two columns of f32 as the instruction wants them: e4m3 has three mantissa bits, so the upper halves are the values.
static inline __m512i pair_of(vec low, vec high) {
    __m512i upper = _mm512_and_si512(_mm512_castps_si512(high), _mm512_set1_epi32((int)0xffff0000));
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16), upper);
}

// Columns of one block of some panels, [pair of k][panels][16]; zeros past K.
static void widen_tile(const rdi_gemm_args *args, int64_t panel, int panels, int64_t block, __m512i *to) {
    uint8_t scratch[BLOCK_BYTES] __attribute__((aligned(64)));
    vec wide[GROUP_K], factor = vec_set1(0x1p120f);
    int64_t k_count = rdi_min(RDI_GEMM_BLOCK, args->k - block * RDI_GEMM_BLOCK);
    for (int p = 0; p < panels; p++) {
        panel_codes place = panel_at(args, panel + p);
        const uint8_t *codes = block_codes(args, &place, block, scratch);
        for (int64_t k = 0; k < k_count; k += GROUP_K) {
            const uint8_t *group = codes + k * (RDI_PANEL_GROUP_BYTES / GROUP_K);
            __builtin_prefetch(group + BLOCK_BYTES);
            widen(group, true, factor, wide);
            _mm512_store_si512(to + k / 2 * panels + p, pair_of(wide[0], wide[1]));
            // cppcheck-suppress arrayIndexOutOfBounds // it takes another instruction set's GROUP_K; here it is 4
            _mm512_store_si512(to + (k / 2 + 1) * panels + p, pair_of(wide[2], wide[3]));
        }
    }
}

static inline ALWAYS_INLINE void multiply(const uint16_t *a, const __m512i *w, int64_t pairs,
                                          const float *w_scale, float *restrict c, const int rows,
                                          const int panels) {
    vec acc[TILE_ROWS * TILE_PANELS];
    UNROLL for (int i = 0; i < rows * panels; i++) acc[i] = vec_zero();
    for (int64_t k = 0; k < pairs; k++) {
        __m512i column[TILE_PANELS];
        UNROLL for (int p = 0; p < panels; p++) column[p] = _mm512_load_si512(w + k * panels + p);
        UNROLL for (int m = 0; m < rows; m++) {
            int32_t two;
            memcpy(&two, a + m * RDI_GEMM_BLOCK + 2 * k, sizeof two);
            __m512i x = _mm512_set1_epi32(two);
            KEEP_IN_REGISTER(x);
            UNROLL for (int p = 0; p < panels; p++) acc[m * panels + p] =
                _mm512_dpbf16_ps(acc[m * panels + p], (__m512bh)x, (__m512bh)column[p]);
        }
    }
    UNROLL for (int m = 0; m < rows; m++) UNROLL for (int p = 0; p < panels; p++) {
        float *to = c + m * TILE_COLUMNS + p * RDI_PANEL_ROWS;
        vec_store(to, vec_fma(acc[m * panels + p], vec_set1(w_scale[p]), vec_load(to)));
    }
}

#define DEFINE_TILE(rows_, panels_)                                                                          \
    static NEVER_INLINE void tile_##rows_##_##panels_(const uint16_t *a, const __m512i *w, int64_t pairs,    \
                                                      const float *w_scale, float *c) {                      \
        multiply(a, w, pairs, w_scale, c, rows_, panels_);                                                   \
    }
TILE_CASES(DEFINE_TILE)

static void multiply_tile(const uint16_t *a, const __m512i *w, int64_t pairs, const float *w_scale, float *c,
                          int64_t rows, int panels) {
    switch (rows * 8 + panels) {
#define CALL_TILE(rows_, panels_)                                                                            \
    case rows_ * 8 + panels_:                                                                                \
        tile_##rows_##_##panels_(a, w, pairs, w_scale, c);                                                   \
        break;
        TILE_CASES(CALL_TILE)
    }
}

// Some panels times the rows of one pass, over all of K.
static void run_tile(const pairs_job *job, int64_t panel, int panels, int64_t first, int64_t last,
                     __m512i *wide, float *c) {
    const rdi_gemm_args *args = job->args;
    int64_t steps = rdi_ceil_div(last - first, TILE_ROWS);
    memset(c, 0, (size_t)(last - first) * TILE_COLUMNS * sizeof *c);
    for (int64_t block = 0; block < k_blocks_of(args); block++) {
        // Groups of four columns are whole in the tile; their last columns past K meet zero activations.
        int64_t pairs = rdi_ceil_div(rdi_min(RDI_GEMM_BLOCK, args->k - block * RDI_GEMM_BLOCK), 4) * 2;
        float w_scale[TILE_PANELS] = {0};
        widen_tile(args, panel, panels, block, wide);
        for (int p = 0; p < panels; p++) w_scale[p] = weight_scale(args, panel + p, block);
        for (int64_t step = 0; step < steps; step++) { // even steps: a pass of 17 rows runs as 6 6 5
            int64_t m = first + (last - first) * step / steps,
                    rows = first + (last - first) * (step + 1) / steps - m;
            multiply_tile(job->a + (block * args->m + m) * RDI_GEMM_BLOCK, wide, pairs, w_scale,
                          c + (m - first) * TILE_COLUMNS, rows, panels);
        }
    }
    for (int p = 0; p < panels; p++) {
        int64_t n = (panel + p) * RDI_PANEL_ROWS;
        float bias[RDI_PANEL_ROWS];
        load_bias(args, n, bias);
        for (int64_t m = first; m < last; m++) {
            vec sums[PANEL_VECS] = {vec_load(c + (m - first) * TILE_COLUMNS + p * RDI_PANEL_ROWS)};
            finish(args, m, n, sums, bias);
        }
    }
}

static void tiles_body(void *arg, int32_t worker, int32_t workers) {
    (void)workers;
    pairs_job *job = arg;
    const rdi_gemm_args *args = job->args;
    uint8_t *scratch = job->scratch + (size_t)worker * tile_scratch_bytes(args);
    for (int64_t tile, end; rdi_tiles_next(&job->tiles, &tile, &end);)
        for (; tile < end; tile++) {
            int64_t panel = tile % job->groups * TILE_PANELS, first = tile / job->groups * job->pass_rows;
            int panels = (int)rdi_min(TILE_PANELS, panels_of(args) - panel);
            run_tile(job, panel, panels, first, rdi_min(first + job->pass_rows, args->m), (__m512i *)scratch,
                     (float *)scratch + PAIRS * TILE_COLUMNS);
        }
}

void rdk_gemm_fp8block_w8a16_pairs_cpu_avx512bf16(const void *arg, void *ws, rdi_par *par) {
    const rdi_gemm_args *args = arg;
    pairs_job job = {.args = args, .a = ws, .scratch = (uint8_t *)ws + a_bytes(args)};
    job.pass_rows = pass_rows_of(args);
    job.groups = rdi_ceil_div(panels_of(args), TILE_PANELS);
    rdi_tiles_init(&job.tiles, args->m * k_blocks_of(args), 64);
    rdi_par_run(par, INT32_MAX, copy_body, &job);
    rdi_tiles_init(&job.tiles, job.groups * rdi_ceil_div(args->m, job.pass_rows), 1);
    rdi_par_run(par, INT32_MAX, tiles_body, &job);
}

size_t rdi_gemm_fp8block_pairs_ws(const void *args, int32_t threads) {
    return a_bytes(args) + (size_t)threads * tile_scratch_bytes(args);
}
