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

// Per worker: a run of k blocks of 48 columns, widened (144 KiB, second-level cache), and sums. A few rows go through the whole
// run at a time, so that their sums stay in the first level; where all of K is one run they are rounded and stored from
// there. Activations whose K is no multiple of 4 are copied to [k block][row][128], zero past K, so that pairs are whole.
enum { TILE_COLUMNS = TILE_PANELS * RDI_PANEL_ROWS, PASS_ROWS = 512, PAIRS = RDI_GEMM_BLOCK / 2 };
enum { RUN_BLOCKS = 12, BLOCK_VECS = PAIRS * TILE_PANELS };

typedef struct pairs_job {
    const rdi_gemm_args *args;
    const uint16_t *a;
    int64_t a_row, a_block; // steps from a row and from a k block to the next
    uint16_t *copy;
    uint8_t *scratch;
    int64_t pass_rows, groups;
    rdi_tiles tiles;
} pairs_job;

static int64_t pass_rows_of(const rdi_gemm_args *args) {
    return rdi_ceil_div(args->m, rdi_ceil_div(args->m, PASS_ROWS));
}
// Rows are read where they are unless the last group of four columns would run past them.
static size_t a_bytes(const rdi_gemm_args *args) {
    if (args->k % 4 == 0) return 0;
    return (size_t)(k_blocks_of(args) * args->m) * RDI_GEMM_BLOCK * sizeof(uint16_t);
}
static size_t tile_scratch_bytes(const rdi_gemm_args *args) {
    return (size_t)(RUN_BLOCKS * PAIRS + pass_rows_of(args)) * TILE_COLUMNS * sizeof(float);
}

static void copy_body(void *arg, int32_t worker, int32_t workers) {
    (void)worker;
    (void)workers;
    pairs_job *job = arg;
    const rdi_gemm_args *args = job->args;
    for (int64_t row, end; rdi_tiles_next(&job->tiles, &row, &end);)
        for (; row < end; row++) { // rows of [k block][m]
            int64_t first = row / args->m * RDI_GEMM_BLOCK, count = rdi_min(RDI_GEMM_BLOCK, args->k - first);
            uint16_t *to = job->copy + row * RDI_GEMM_BLOCK;
            const uint16_t *from = (const uint16_t *)args->a + row % args->m * args->a_stride + first;
            memcpy(to, from, (size_t)count * sizeof *to);
            memset(to + count, 0, (size_t)(RDI_GEMM_BLOCK - count) * sizeof *to);
        }
}

// 32 codes in the low bytes of 16-bit lanes as bf16: the exponent's bias differs by 120. Subnormal codes are a table of eight.
static inline __m512i bf16_of(__m512i code, bool may_hold_nan) {
    static const uint16_t subnormals[32] __attribute__((aligned(64))) = {
        0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60}; // m * 2^-9
    __m512i magnitude = _mm512_and_si512(code, _mm512_set1_epi16(0x7f)),
            sign = _mm512_slli_epi16(_mm512_and_si512(code, _mm512_set1_epi16(0x80)), 8),
            value = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
    __mmask32 small = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
    value = _mm512_mask_permutexvar_epi16(value, small, magnitude, _mm512_load_si512(subnormals));
    if (may_hold_nan)
        value = _mm512_mask_mov_epi16(value, _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f)),
                                      _mm512_set1_epi16(0x7fc0));
    return _mm512_or_si512(value, sign);
}

// Columns of one block of some panels, [pair of k][panels][16]; zeros past K. A group holds the four codes of a row together.
static void widen_tile(const rdi_gemm_args *args, int64_t panel, int panels, int64_t block, __m512i *to) {
    uint8_t scratch[BLOCK_BYTES] __attribute__((aligned(64)));
    const __m512i low = _mm512_set1_epi16(0xff), upper = _mm512_set1_epi32((int)0xffff0000);
    int64_t k_count = rdi_min(RDI_GEMM_BLOCK, args->k - block * RDI_GEMM_BLOCK);
    for (int p = 0; p < panels; p++) {
        panel_codes place = panel_at(args, panel + p);
        const uint8_t *codes = block_codes(args, &place, block, scratch);
        bool may_hold_nan = !place.in_place || place.may_hold_nan;
        for (int64_t k = 0; k < k_count; k += GROUP_K) {
            const uint8_t *group = codes + k * (RDI_PANEL_GROUP_BYTES / GROUP_K);
            __builtin_prefetch(group + BLOCK_BYTES);
            __m512i four = _mm512_loadu_si512(group),
                    even = bf16_of(_mm512_and_si512(four, low), may_hold_nan),
                    odd = bf16_of(_mm512_srli_epi16(four, 8), may_hold_nan);
            _mm512_store_si512(to + k / 2 * panels + p,
                               _mm512_or_si512(_mm512_andnot_si512(upper, even), _mm512_slli_epi32(odd, 16)));
            // cppcheck-suppress arrayIndexOutOfBounds // it takes another instruction set's GROUP_K; here it is 4
            _mm512_store_si512(to + (k / 2 + 1) * panels + p,
                               _mm512_or_si512(_mm512_srli_epi32(even, 16), _mm512_and_si512(odd, upper)));
        }
    }
}

static inline ALWAYS_INLINE void multiply(const uint16_t *a, int64_t a_row, const __m512i *w, int64_t pairs,
                                          const float *w_scale, bool fresh, float *restrict c, const int rows,
                                          const int panels) {
    vec acc[TILE_ROWS * TILE_PANELS];
    UNROLL for (int i = 0; i < rows * panels; i++) acc[i] = vec_zero();
    for (int64_t k = 0; k < pairs; k++) {
        __m512i column[TILE_PANELS];
        UNROLL for (int p = 0; p < panels; p++) column[p] = _mm512_load_si512(w + k * panels + p);
        UNROLL for (int m = 0; m < rows; m++) {
            int32_t two;
            memcpy(&two, a + m * a_row + 2 * k, sizeof two);
            __m512i x = _mm512_set1_epi32(two);
            KEEP_IN_REGISTER(x);
            UNROLL for (int p = 0; p < panels; p++) acc[m * panels + p] =
                _mm512_dpbf16_ps(acc[m * panels + p], (__m512bh)x, (__m512bh)column[p]);
        }
    }
    UNROLL for (int m = 0; m < rows; m++) UNROLL for (int p = 0; p < panels; p++) {
        float *to = c + m * TILE_COLUMNS + p * RDI_PANEL_ROWS;
        vec sum = fresh ? vec_zero() : vec_load(to); // the first block finds nothing there
        vec_store(to, vec_fma(acc[m * panels + p], vec_set1(w_scale[p]), sum));
    }
}

#define DEFINE_TILE(rows_, panels_)                                                                          \
    static NEVER_INLINE void tile_##rows_##_##panels_(const uint16_t *a, int64_t a_row, const __m512i *w,    \
                                                      int64_t pairs, const float *w_scale, bool fresh,       \
                                                      float *c) {                                            \
        multiply(a, a_row, w, pairs, w_scale, fresh, c, rows_, panels_);                                     \
    }
TILE_CASES(DEFINE_TILE)

static void multiply_tile(const uint16_t *a, int64_t a_row, const __m512i *w, int64_t pairs,
                          const float *w_scale, bool fresh, float *c, int64_t rows, int panels) {
    switch (rows * 8 + panels) {
#define CALL_TILE(rows_, panels_)                                                                            \
    case rows_ * 8 + panels_:                                                                                \
        tile_##rows_##_##panels_(a, a_row, w, pairs, w_scale, fresh, c);                                     \
        break;
        TILE_CASES(CALL_TILE)
    }
}

// Row by row, so that a row of C is written as one run; whole panels of bf16 by the instruction that rounds.
static void finish_tile(const rdi_gemm_args *args, int64_t panel, int panels, int64_t first, int64_t last,
                        const float *c) {
    float bias[TILE_PANELS][RDI_PANEL_ROWS];
    int64_t n = panel * RDI_PANEL_ROWS;
    for (int p = 0; p < panels; p++) load_bias(args, n + p * RDI_PANEL_ROWS, bias[p]);
    bool direct = args->c_dtype == RD_DTYPE_BF16 && n + panels * RDI_PANEL_ROWS <= args->n;
    for (int64_t m = first; m < last; m++, c += TILE_COLUMNS)
        for (int p = 0; p < panels; p++) {
            vec sum = vec_load(c + p * RDI_PANEL_ROWS);
            if (!direct) {
                finish(args, m, n + p * RDI_PANEL_ROWS, &sum, bias[p]);
                continue;
            }
            if (args->bias) sum = vec_add(sum, vec_load(bias[p]));
            __m256i out = (__m256i)_mm512_cvtneps_pbh(vec_canonical(sum));
            _mm256_storeu_si256(
                (__m256i *)((uint16_t *)args->c + m * args->c_stride + n + p * RDI_PANEL_ROWS), out);
        }
}

// Groups of four columns are whole in the tile; their last columns past K meet zero activations.
static int64_t pairs_of(const rdi_gemm_args *args, int64_t block) {
    return rdi_ceil_div(rdi_min(RDI_GEMM_BLOCK, args->k - block * RDI_GEMM_BLOCK), 4) * 2;
}

// Some panels times the rows of one pass, over the k blocks first_block..end_block.
static void run_blocks(const pairs_job *job, int64_t panel, int panels, int64_t first, int64_t last,
                       int64_t first_block, int64_t end_block, __m512i *wide, float *c) {
    const rdi_gemm_args *args = job->args;
    int64_t steps = rdi_ceil_div(last - first, TILE_ROWS), blocks = k_blocks_of(args);
    bool whole = first_block == 0 && end_block == blocks; // no sums to keep between runs
    float w_scale[RUN_BLOCKS][TILE_PANELS] = {{0}};
    for (int64_t block = first_block; block < end_block; block++) {
        widen_tile(args, panel, panels, block, wide + (block - first_block) * BLOCK_VECS);
        for (int p = 0; p < panels; p++)
            w_scale[block - first_block][p] = weight_scale(args, panel + p, block);
    }
    for (int64_t step = 0; step < steps; step++) { // even steps: a pass of 17 rows runs as 6 6 5
        int64_t m = first + (last - first) * step / steps,
                rows = first + (last - first) * (step + 1) / steps - m;
        float *sums = c + (whole ? 0 : m - first) * TILE_COLUMNS;
        for (int64_t block = first_block; block < end_block; block++)
            multiply_tile(job->a + block * job->a_block + m * job->a_row, job->a_row,
                          wide + (block - first_block) * BLOCK_VECS, pairs_of(args, block),
                          w_scale[block - first_block], block == 0, sums, rows, panels);
        if (end_block == blocks) finish_tile(args, panel, panels, m, m + rows, sums);
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
            int64_t last = rdi_min(first + job->pass_rows, args->m), blocks = k_blocks_of(args);
            for (int64_t block = 0; block < blocks; block += RUN_BLOCKS)
                run_blocks(job, panel, panels, first, last, block, rdi_min(block + RUN_BLOCKS, blocks),
                           (__m512i *)scratch, (float *)scratch + RUN_BLOCKS * PAIRS * TILE_COLUMNS);
        }
}

void rdk_gemm_fp8block_w8a16_pairs_cpu_avx512bf16(const void *arg, void *ws, rdi_par *par) {
    const rdi_gemm_args *args = arg;
    pairs_job job = {.args = args,
                     .a = args->a,
                     .a_row = args->a_stride,
                     .a_block = RDI_GEMM_BLOCK,
                     .copy = ws,
                     .scratch = (uint8_t *)ws + a_bytes(args)};
    job.pass_rows = pass_rows_of(args);
    job.groups = rdi_ceil_div(panels_of(args), TILE_PANELS);
    if (a_bytes(args)) {
        job.a = ws;
        job.a_row = RDI_GEMM_BLOCK;
        job.a_block = args->m * RDI_GEMM_BLOCK;
        rdi_tiles_init(&job.tiles, args->m * k_blocks_of(args), 64);
        rdi_par_run(par, INT32_MAX, copy_body, &job);
    }
    rdi_tiles_init(&job.tiles, job.groups * rdi_ceil_div(args->m, job.pass_rows), 1);
    rdi_par_run(par, INT32_MAX, tiles_body, &job);
}

size_t rdi_gemm_fp8block_pairs_ws(const void *args, int32_t threads) {
    return a_bytes(args) + (size_t)threads * tile_scratch_bytes(args);
}
