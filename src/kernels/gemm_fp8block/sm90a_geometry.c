// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a GEMM kernels: arguments of the op in, launches out, no driver call.
#include "kernels/gemm_fp8block/layout.h"
#include "kernels/gemm_fp8block/sm90a_args.h"
#include "kernels/gemm_fp8block/sm90a_geometry.h"
#include "kernels/rows.h"

#include <stddef.h>

bool rdi_sm90a_engine_can(const void *data, int64_t rows, int64_t stride_bytes) {
    return (uintptr_t)data % 16 == 0 &&
           (rows == 1 || (stride_bytes % 16 == 0 && stride_bytes < (int64_t)1 << 40));
}

rdi_tensor_map rdi_sm90a_byte_map(uint32_t arg_offset, const void *base, int64_t rows, int64_t k,
                                  int64_t stride, int32_t box_rows) {
    return (rdi_tensor_map){
        .arg_offset = arg_offset,
        .base = base,
        .elem_bytes = 1,
        .rank = 2,
        .dim = {(uint64_t)k, (uint64_t)rows},
        .stride_bytes = {1, (uint64_t)(rows == 1 ? rdi_round_up(k, 16) : stride)},
        .box = {RDK_K_BLOCK, (uint32_t)box_rows},
        .swizzle_bytes = 128,
    };
}

rdi_sm90a_weight rdi_sm90a_weight_of(const rdi_gemm_args *a) {
    rdi_sm90a_weight w = {.data = a->w, .rows = a->n, .bytes = a->k, .stride = a->w_stride};
    if (a->layout == RDI_LAYOUT_TILE64) {
        w.tiled = true;
        w.rows = rdi_round_up(a->n, RDI_TILE_ROWS) * rdi_ceil_div(a->k, RDK_K_BLOCK);
        w.bytes = w.stride = RDK_K_BLOCK;
    }
    w.engine_can = rdi_sm90a_engine_can(w.data, w.rows, w.stride);
    return w;
}

bool rdi_sm90a_weight_fits(const rdi_gemm_args *a) {
    const rdi_sm90a_weight w = rdi_sm90a_weight_of(a);
    return !w.tiled || rdi_launch_takes_count("gemm", "w: rows of tiles", w.rows, INT32_MAX);
}

rdi_tensor_map rdi_sm90a_weight_map(uint32_t arg_offset, const rdi_gemm_args *a, int32_t box_rows) {
    const rdi_sm90a_weight w = rdi_sm90a_weight_of(a);
    return rdi_sm90a_byte_map(arg_offset, w.data, w.rows, w.bytes, w.stride, box_rows);
}

// Rows of a box of weights: half a tile, or what of it lies in one panel whichever half it is.
static int32_t weight_box(const rdi_gemm_args *a, int32_t columns) {
    const int32_t half = columns / 2;
    return a->layout == RDI_LAYOUT_TILE64 ? rdi_min(half & -half, RDI_TILE_ROWS) : half;
}

size_t rdi_sm90a_partial_bytes(const rdi_sm90a_pairs *p) {
    int32_t sums = p->tokens * p->columns / 256; // of a thread
    return p->line_units ? (size_t)p->pairs * 2 * 256 * 16 * (size_t)rdk_pairs_partial_words(sums) : 0;
}

void rdi_sm90a_pairs_launch(const char *kernel, const rdi_gemm_args *a, const rdi_sm90a_pairs *p,
                            void *partials, rdi_launch *out) {
    int64_t k_blocks = rdi_ceil_div(a->k, RDK_K_BLOCK), line = p->line_units * k_blocks;
    _Static_assert((int)RDK_TILE_ROWS == (int)RDI_TILE_ROWS, "the kernels' tiles are the layout's");
    _Static_assert(sizeof(rdk_gemm_pairs_args) <= RDI_LAUNCH_ARG_BYTES &&
                       sizeof(rdk_gemm_step_args) <= RDI_LAUNCH_ARG_BYTES,
                   "");
    rdk_gemm_pairs_args args = {
        .a_scale = RDK_ADDR(a->a_scale),
        .w_scale = RDK_ADDR(a->w_scale),
        .bias = RDK_ADDR(a->bias),
        .c = RDK_ADDR(a->c),
        .partials = RDK_ADDR(partials),
        .a_scale_stride_m = a->a_scale_stride_m,
        .a_scale_stride_k = a->a_scale_stride_k,
        .w_scale_stride_n = a->w_scale_stride_n,
        .w_scale_stride_k = a->w_scale_stride_k,
        .c_stride = a->c_stride,
        .m = (int32_t)a->m,
        .n = (int32_t)a->n,
        .k_blocks = (int32_t)k_blocks,
        .units_m = (int32_t)p->units_m,
        .units_n = (int32_t)p->units_n,
        .pair_m = p->pair_m,
        .group = (int32_t)p->group,
        .line_units = (int32_t)p->line_units,
        .line_part = (int32_t)(line / p->pairs),
        .line_rest = (int32_t)(line % p->pairs),
        .w_tiled = a->layout == RDI_LAYOUT_TILE64,
        .w_box = weight_box(a, p->columns),
        .early_weights = p->early_weights,
        .w_scale_e8m0 = a->w_scale_dtype == RD_DTYPE_E8M0,
        .bias_type = rdk_type_code(a->bias_dtype),
        .c_type = rdk_type_code(a->c_dtype),
        .c_vectors = (uintptr_t)a->c % 16 == 0 && a->c_stride % 8 == 0,
        .box_tokens = p->box_tokens,
    };
    if (p->runs) args.runs = *p->runs;
    int64_t pairs = p->line_units ? p->pairs : rdi_min(p->pairs, p->units_m * p->units_n);
    rdi_launch_fill(out, kernel, (const uint32_t[3]){(uint32_t)(2 * pairs), 1, 1},
                    p->one_group ? RDK_PAIRS_ONE_GROUP_THREADS : RDK_PAIRS_THREADS, &args, sizeof args);
    out->shared_bytes = (uint32_t)rdk_pairs_shared_bytes(p->tokens, p->columns);
    out->dependent = true;
    out->map_count = 2;
    out->map[0] = rdi_sm90a_byte_map(offsetof(rdk_gemm_pairs_args, a_map), a->a, a->m, a->k, a->a_stride,
                                     p->box_tokens ? p->box_tokens : p->tokens / 2);
    out->map[1] = rdi_sm90a_weight_map(offsetof(rdk_gemm_pairs_args, w_map), a, args.w_box);
}

// ---- class "step" ----------------------------------------------------------------------------------------------------
// The cut of the weights: pairs of tiles of `rows` weight rows, runs of k blocks for pairs of multiprocessors. Few rows take tiles
// of 64, so that fewer blocks share one; a function of N, K and the device alone.
typedef struct step_cut {
    int32_t rows, pairs;
    int64_t unit_tiles, k_blocks, units;
} step_cut;

static step_cut cut_step(const rdi_gemm_args *a, int32_t multiprocessors) {
    step_cut cut = {.rows = rdi_ceil_div(a->n, 128) < multiprocessors * 2 / 3 ? 64 : 128,
                    .pairs =
                        (int32_t)rdi_min(multiprocessors > 1 ? multiprocessors / 2 : 1, RDK_STEP_RUNS_MAX),
                    .k_blocks = rdi_ceil_div(a->k, RDK_K_BLOCK)};
    cut.unit_tiles = rdi_ceil_div(a->n, 2 * cut.rows);
    cut.units = cut.unit_tiles * cut.k_blocks;
    return cut;
}

// Runs of one length, or, where a pair has more than a tile, whole tiles for some pairs and a longer run, by one 64th and a unit
// at most, for the others: groups of `group` pairs share one tile more than the whole ones have.
static void cut_runs(const step_cut *cut, int32_t *begin) {
    const int64_t pairs = cut->pairs, whole = cut->unit_tiles / pairs, rest = cut->unit_tiles % pairs;
    const int64_t even = cut->units / pairs, room = even + even / 64 + 1 - whole * cut->k_blocks;
    const int64_t group = rdi_ceil_div(cut->k_blocks, room), tiles = group * whole + 1;
    if (!whole || rest * group > pairs) {
        for (int64_t r = 0; r <= pairs; r++) begin[r] = (int32_t)(r * even + rdi_min(r, cut->units % pairs));
        return;
    }
    for (int64_t r = 0; r <= pairs; r++) {
        const int64_t in = rdi_min(r, rest * group), i = in / group;
        begin[r] = (int32_t)(i * tiles * cut->k_blocks + tiles * cut->k_blocks * (in % group) / group +
                             (r - in) * whole * cut->k_blocks);
    }
}

// Who waits for a run's sums starts behind it, so that blocks that wait cannot keep out those that they wait for. First the runs
// that lie inside one tile, whose sums are ready last, then those that share a tile, from the end of the line on: each waits for
// the ones after it. Whole tiles end first and start last.
static rdk_step_runs lay_out_runs(const step_cut *cut) {
    rdk_step_runs runs = {.begin = {0}};
    const int32_t kb = (int32_t)cut->k_blocks;
    cut_runs(cut, runs.begin);
    for (int32_t r = cut->pairs + 1; r <= RDK_STEP_RUNS_MAX; r++) runs.begin[r] = runs.begin[cut->pairs];
    int32_t count = 0;
    for (int rank = 0; rank < 3; rank++)
        for (int32_t r = cut->pairs - 1; r >= 0; r--) {
            const int32_t begin = runs.begin[r], end = runs.begin[r + 1];
            const bool inside = (begin + kb - 1) / kb == (end + kb - 1) / kb;
            if (rank == (inside ? 0 : begin % kb || end % kb ? 1 : 2)) runs.order[count++] = (uint8_t)r;
        }
    return runs;
}

// From 17 tokens on: tokens on the 64-row side. These kernels know tensor copies alone. Both blocks of a pair take all tokens, or,
// where weight rows are few, half of the tokens and both tiles.
enum { NARROW_TOKENS = 16, NARROW_TOKENS_MAX = 32 };
static rdi_sm90a_pairs wide_pairs(const step_cut *cut, int64_t m, const rdk_step_runs *runs) {
    const bool split = m > 64 && cut->rows == 64;
    return (rdi_sm90a_pairs){.tokens = m <= 64 || split ? 64 : 128,
                             .columns = split ? 128 : cut->rows,
                             .pair_m = split,
                             .early_weights = true,
                             .one_group = m <= 64 || split,
                             .box_tokens = (int32_t)rdi_round_up(rdi_ceil_div(m, 2), 8),
                             .runs = runs,
                             .pairs = cut->pairs,
                             .units_m = 1,
                             .units_n = cut->unit_tiles,
                             .group = 1,
                             .line_units = cut->unit_tiles};
}

static bool step_is_wide(const rdi_gemm_args *a) {
    return a->m > NARROW_TOKENS && rdi_sm90a_engine_can(a->a, a->m, a->a_stride) &&
           rdi_sm90a_weight_of(a).engine_can;
}

static int32_t narrow_tokens(int64_t m) {
    return m <= 8 ? 8 : m <= 16 ? 16 : NARROW_TOKENS_MAX;
}

size_t rdi_gemm_step_sm90a_ws(const void *args, int32_t multiprocessors) {
    const rdi_gemm_args *a = args;
    const step_cut cut = cut_step(a, multiprocessors);
    if (!step_is_wide(a))
        return (size_t)cut.pairs * 2 * (size_t)cut.rows * (size_t)narrow_tokens(a->m) * 2 * sizeof(float);
    const rdi_sm90a_pairs p = wide_pairs(&cut, a->m, NULL);
    return (size_t)p.pairs * 2 * (size_t)(rdk_pairs_left_bytes(p.tokens, p.columns) + RDK_PAIRS_FLAG_BYTES);
}

static const char *step_kernel(int32_t tokens, int32_t rows) {
    static const char *const names[2][5] = {
        {"rdk_gemm_fp8block_step_sm90a_t8_r64", "rdk_gemm_fp8block_step_sm90a_t16_r64",
         "rdk_gemm_fp8block_step_sm90a_t32_r64", "rdk_gemm_fp8block_step_sm90a_t64_r64",
         "rdk_gemm_fp8block_step_sm90a_t128_r64"},
        {"rdk_gemm_fp8block_step_sm90a_t8_r128", "rdk_gemm_fp8block_step_sm90a_t16_r128",
         "rdk_gemm_fp8block_step_sm90a_t32_r128", "rdk_gemm_fp8block_step_sm90a_t64_r128",
         "rdk_gemm_fp8block_step_sm90a_t128_r128"},
    };
    int32_t index = 0;
    while (8 << index < tokens) index++;
    return names[rows == 128][index];
}

static void narrow_launch(const rdi_gemm_args *a, const step_cut *cut, const rdk_step_runs *runs, void *ws,
                          rdi_launch *out) {
    const int32_t tokens = narrow_tokens(a->m);
    const rdi_sm90a_weight w = rdi_sm90a_weight_of(a);
    rdk_gemm_step_args kernel = {
        .a = RDK_ADDR(a->a),
        .w = RDK_ADDR(a->w),
        .a_scale = RDK_ADDR(a->a_scale),
        .w_scale = RDK_ADDR(a->w_scale),
        .bias = RDK_ADDR(a->bias),
        .c = RDK_ADDR(a->c),
        .partials = RDK_ADDR(ws),
        .a_stride = a->a_stride,
        .w_stride = w.stride,
        .a_scale_stride_m = a->a_scale_stride_m,
        .a_scale_stride_k = a->a_scale_stride_k,
        .w_scale_stride_n = a->w_scale_stride_n,
        .w_scale_stride_k = a->w_scale_stride_k,
        .c_stride = a->c_stride,
        .m = (int32_t)a->m,
        .n = (int32_t)a->n,
        .k = (int32_t)a->k,
        .k_blocks = (int32_t)cut->k_blocks,
        .use_maps = rdi_sm90a_engine_can(a->a, a->m, a->a_stride) && w.engine_can,
        .w_tiled = w.tiled,
        .w_rows = (int32_t)w.rows,
        .w_scale_e8m0 = a->w_scale_dtype == RD_DTYPE_E8M0,
        .bias_type = rdk_type_code(a->bias_dtype),
        .c_type = rdk_type_code(a->c_dtype),
        .runs = *runs,
    };
    rdi_launch_fill(out, step_kernel(tokens, cut->rows),
                    (const uint32_t[3]){(uint32_t)(2 * cut->pairs), 1, 1},
                    (uint32_t)(cut->rows / 64 * 128 + 96), &kernel, sizeof kernel);
    out->shared_bytes = (uint32_t)rdk_step_shared_bytes(tokens, cut->rows);
    out->dependent = true;
    if (kernel.use_maps) {
        out->map_count = cut->rows == RDK_TILE_ROWS ? 2 : 1;
        out->map[0] = rdi_sm90a_weight_map(offsetof(rdk_gemm_step_args, w_map), a, RDK_TILE_ROWS);
        out->map[1] =
            rdi_sm90a_byte_map(offsetof(rdk_gemm_step_args, a_map), a->a, a->m, a->k, a->a_stride, tokens);
    }
}

// One launch; four of 32 tokens, one after the other over the same words of the workspace, where rows are not the copy engine's.
int32_t rdi_gemm_step_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                     rdi_launch *out) {
    const rdi_gemm_args *a = args;
    const step_cut cut = cut_step(a, device->compute_units);
    if (!rdi_sm90a_weight_fits(a) ||
        !rdi_launch_takes_count("gemm", "w: tiles by k blocks", cut.units, RDI_SM90A_TILES_MAX))
        return 0;
    const rdk_step_runs runs = lay_out_runs(&cut);
    if (step_is_wide(a)) {
        const rdi_sm90a_pairs p = wide_pairs(&cut, a->m, &runs);
        rdi_sm90a_pairs_launch(step_kernel(a->m <= 64 ? 64 : 128, cut.rows), a, &p, ws, out);
        return 1;
    }
    int32_t count = 0;
    for (int64_t first = 0; first < a->m; first += NARROW_TOKENS_MAX, count++) {
        rdi_gemm_args part = *a;
        part.m = rdi_min(a->m - first, NARROW_TOKENS_MAX);
        part.a = (const uint8_t *)a->a + first * a->a_stride;
        part.a_scale = a->a_scale + first * a->a_scale_stride_m;
        part.c = (uint8_t *)a->c + first * a->c_stride * (int64_t)rd_dtype_bytes(a->c_dtype);
        narrow_launch(&part, &cut, &runs, ws, &out[count]);
    }
    return count;
}
