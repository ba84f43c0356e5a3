// SPDX-License-Identifier: Apache-2.0
// Geometry of the sm_90a block-FP8 GEMM rows, without a card: which kernel, how many blocks, where the cuts of K lie; that class
// "step" cuts alike for every number of tokens; that the walk of class "chunk" meets every k block of every tile once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/gemm_fp8block/layout.h"
#include "kernels/gemm_fp8block/sm90a_args.h"
#include "kernels/rows.h"
#include "support/gemm_args.h"

#include <stdio.h>
#include <stdlib.h>

static const rd_device_info h200 = {.compute_units = 132}, h100_pcie = {.compute_units = 114},
                            one = {.compute_units = 1};

static rdi_gemm_args gemm(int64_t m, int64_t n, int64_t k) {
    return gemm_args(m, n, k, RD_DTYPE_E4M3, RD_DTYPE_E4M3);
}

static rdk_gemm_pairs_args pairs_args(const rdi_launch *launch) {
    rdk_gemm_pairs_args args;
    assert_int_equal(launch->args_bytes, sizeof args);
    memcpy(&args, launch->args, sizeof args);
    return args;
}

static rdk_gemm_step_args step_args(const rdi_launch *launch) {
    rdk_gemm_step_args args;
    assert_int_equal(launch->args_bytes, sizeof args);
    memcpy(&args, launch->args, sizeof args);
    return args;
}

// 14336 x 5120: 112 tiles of 128 rows are 56 pairs, 40 k blocks: 2240 units over 66 pairs of blocks are 33 each and 62 left.
static void test_step_cut(void **state) {
    (void)state;
    static const struct {
        int64_t m;
        const char *kernel;
        bool wide;
        int32_t threads;
    } cases[] = {{1, "rdk_gemm_fp8block_step_sm90a_t8_r128", false, 352},
                 {8, "rdk_gemm_fp8block_step_sm90a_t8_r128", false, 352},
                 {9, "rdk_gemm_fp8block_step_sm90a_t16_r128", false, 352},
                 {16, "rdk_gemm_fp8block_step_sm90a_t16_r128", false, 352},
                 {17, "rdk_gemm_fp8block_step_sm90a_t64_r128", true, 256},
                 {64, "rdk_gemm_fp8block_step_sm90a_t64_r128", true, 256},
                 {65, "rdk_gemm_fp8block_step_sm90a_t128_r128", true, 384},
                 {128, "rdk_gemm_fp8block_step_sm90a_t128_r128", true, 384}};
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdk_step_runs first;
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        rdi_gemm_args a = gemm(cases[i].m, 14336, 5120);
        assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, (void *)64, &h200, out), 1);
        assert_string_equal(out[0].kernel, cases[i].kernel);
        assert_int_equal(out[0].grid[0], 132);
        assert_int_equal(out[0].block[0], cases[i].threads);
        assert_true(out[0].dependent && out[0].shared_bytes <= 227 * 1024);
        assert_int_equal(out[0].map_count, cases[i].wide ? 2 : 1);
        // The split of K is the same for every number of tokens: that is what order class "step" says.
        if (cases[i].wide) {
            const rdk_gemm_pairs_args args = pairs_args(&out[0]);
            assert_int_equal(args.k_blocks, 40);
            assert_int_equal(args.line_units, 56);
            assert_memory_equal(&args.runs, &first, sizeof first);
            assert_int_equal(args.pair_m, 0);
            assert_int_equal(out[0].map[0].box[1], args.box_tokens);
            assert_true(args.box_tokens % 8 == 0 && 2 * args.box_tokens >= args.m &&
                        2 * args.box_tokens < args.m + 16);
            assert_int_equal(out[0].map[1].box[1], 64); // half of the tile's weight rows
        } else {
            const rdk_gemm_step_args args = step_args(&out[0]);
            assert_int_equal(args.k_blocks, 40);
            if (i == 0) first = args.runs;
            assert_memory_equal(&args.runs, &first, sizeof first);
            assert_int_equal(out[0].map[0].box[1], 64);
            assert_int_equal(out[0].map[0].dim[1], 14336);
        }
    }
    rdi_gemm_args a = gemm(16, 14336, 5120);
    assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, NULL, &h100_pcie, out), 1);
    const rdk_gemm_step_args args = step_args(&out[0]);
    assert_int_equal(args.runs.begin[57], 2240);
    assert_int_equal(out[0].grid[0], 2 * 57);
    assert_int_equal(rdi_gemm_step_sm90a_ws(&a, 132), 132 * 128 * 16 * 8);
    a.m = 128; // a tile of 128 x 128 sums a block, and a flag
    assert_int_equal(rdi_gemm_step_sm90a_ws(&a, 132), 132 * (128 * 128 * 4 + 32));
}

// Every unit of the line lies in one run, a run is at most a 64th and a unit longer than an equal share, and who waits for the sums of
// a run starts behind it.
static void check_runs(const rdk_gemm_pairs_args *args, int32_t pairs) {
    const int32_t *begin = args->runs.begin, kb = args->k_blocks, line = args->line_units * kb,
                  even = line / pairs;
    int32_t place[RDK_STEP_RUNS_MAX];
    for (int32_t r = 0; r < pairs; r++) place[r] = -1;
    for (int32_t i = 0; i < pairs; i++) {
        assert_true(args->runs.order[i] < pairs);
        assert_int_equal(place[args->runs.order[i]], -1);
        place[args->runs.order[i]] = i;
    }
    assert_int_equal(begin[0], 0);
    assert_int_equal(begin[pairs], line);
    for (int32_t r = 0; r < pairs; r++) {
        assert_true(begin[r] <= begin[r + 1] && begin[r + 1] - begin[r] <= even + even / 64 + 1);
        const int32_t first_tile = rdi_ceil_div(begin[r], kb) * kb,
                      tile_end = rdi_ceil_div(begin[r + 1], kb) * kb;
        if (first_tile >= begin[r + 1]) continue; // it adds up nothing
        for (int32_t other = r + 1; other < pairs && begin[other] < tile_end; other++)
            assert_true(begin[other] == begin[other + 1] || place[other] < place[r]);
    }
}

static void test_runs_of_the_step_cut(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    for (int32_t units = 1; units <= 170; units += units < 4 ? 1 : units < 114 ? 22 : 6)
        for (int64_t n = 16; n < 60000; n += n < 2048 ? 112 : 1616)
            for (int64_t k = 16; k < 20000; k += k < 1024 ? 240 : 3184) {
                const rd_device_info device = {.compute_units = units};
                rdi_gemm_args a = gemm(128, n, k);
                assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, NULL, &device, out), 1);
                const rdk_gemm_pairs_args args = pairs_args(&out[0]);
                const int32_t pairs = units < 2                       ? 1
                                      : units / 2 < RDK_STEP_RUNS_MAX ? units / 2
                                                                      : RDK_STEP_RUNS_MAX;
                assert_int_equal(out[0].grid[0], 2 * pairs);
                check_runs(&args, pairs);
                a.m = 1;
                assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, NULL, &device, out), 1);
                const rdk_gemm_step_args narrow = step_args(&out[0]);
                assert_memory_equal(&narrow.runs, &args.runs, sizeof args.runs);
            }
    // 34816 x 5120: 136 pairs of tiles of 40 k blocks over 66 pairs of blocks: 26 take two tiles, four groups of ten share 21.
    rdi_gemm_args a = gemm(128, 34816, 5120);
    assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, NULL, &h200, out), 1);
    const rdk_gemm_pairs_args args = pairs_args(&out[0]);
    assert_int_equal(args.runs.begin[10], 21 * 40);
    assert_int_equal(args.runs.begin[40], 84 * 40);
    assert_int_equal(args.runs.begin[41], 86 * 40);
    assert_int_equal(args.runs.order[65], 40); // whole tiles start last
}

// From 65 tokens on over few weight rows a pair of blocks splits the tokens and shares the weights.
static void test_step_splits_tokens(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_gemm_args a = gemm(100, 5120, 6144);
    assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_fp8block_step_sm90a_t128_r64");
    assert_int_equal(out[0].block[0], 256);
    const rdk_gemm_pairs_args args = pairs_args(&out[0]);
    assert_int_equal(args.pair_m, 1);
    assert_int_equal(args.box_tokens, 56); // 56 and 44
    assert_int_equal(args.line_units, 40);
    assert_int_equal(out[0].map[1].box[1], 64);
    assert_int_equal(rdi_gemm_step_sm90a_ws(&a, 132), 132 * (64 * 128 * 4 + 32));
}

static void test_step_of_odd_shapes(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_gemm_args a = gemm(5, 576, 3884); // rows of 3884 bytes are no multiple of 16: no tensor copies
    assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_fp8block_step_sm90a_t8_r64");
    assert_int_equal(out[0].map_count, 0);
    assert_int_equal(step_args(&out[0]).use_maps, 0);
    assert_int_equal(step_args(&out[0]).k_blocks, 31);
    a = gemm(100, 576, 3884); // 32 + 32 + 32 + 4 tokens
    assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, NULL, &h200, out), 4);
    assert_string_equal(out[2].kernel, "rdk_gemm_fp8block_step_sm90a_t32_r64");
    assert_string_equal(out[3].kernel, "rdk_gemm_fp8block_step_sm90a_t8_r64");
    const rdk_gemm_step_args last = step_args(&out[3]);
    assert_int_equal(last.m, 4);
    assert_int_equal(last.a, 4096 + 96 * 3884);
    assert_int_equal(last.c, 16384 + 96 * 576 * 2);
    a = gemm(44, 1024, 5120); // few weight rows: tiles of 64
    assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_fp8block_step_sm90a_t64_r64");
}

// ---- class "chunk" ---------------------------------------------------------------------------------------------------
// How often the blocks of a launch meet each (tile of M, tile of N, k block), and that they stay inside their partial sums.
typedef struct walk {
    rdk_gemm_pairs_args args;
    int32_t tiles_m, tiles_n, tokens, columns;
    unsigned char *met;
} walk;

static void meet(walk *w, int32_t unit, int32_t rank, int32_t begin, int32_t end) {
    const rdk_gemm_pairs_args *a = &w->args;
    int32_t band = unit / (a->group * a->units_n), first = band * a->group;
    int32_t height = a->units_m - first < a->group ? a->units_m - first : a->group;
    int32_t inside = unit % (a->group * a->units_n), m = first + inside % height, n = inside / height;
    int32_t tile_m = a->pair_m ? 2 * m + rank : m, tile_n = a->pair_m ? n : 2 * n + rank;
    assert_true(m < a->units_m && n < a->units_n);
    if (tile_m >= w->tiles_m || tile_n >= w->tiles_n) return; // the odd one of a pair
    for (int32_t kb = begin; kb < end; kb++) w->met[(tile_m * w->tiles_n + tile_n) * a->k_blocks + kb]++;
}

static void check_walk(const rdi_launch *launch) {
    walk w = {.args = pairs_args(launch)};
    const rdk_gemm_pairs_args *a = &w.args;
    assert_int_equal(sscanf(launch->kernel, "rdk_gemm_fp8block_chunk_sm90a_%dx%d", &w.tokens, &w.columns), 2);
    assert_int_equal(launch->map[0].box[1], w.tokens / 2);
    assert_int_equal(launch->map[1].box[1], w.columns / 2);
    w.tiles_m = (a->m + w.tokens - 1) / w.tokens;
    w.tiles_n = (a->n + w.columns - 1) / w.columns;
    const int32_t pairs = (int32_t)launch->grid[0] / 2, units = a->units_m * a->units_n,
                  line = a->line_units * a->k_blocks;
    size_t cells = (size_t)w.tiles_m * (size_t)w.tiles_n * (size_t)a->k_blocks;
    assert_non_null(w.met = calloc(cells, 1));
    int32_t at = 0;
    for (int32_t part = 0; part < pairs; part++)
        for (int32_t left = a->line_part + (part < a->line_rest); left > 0; left--, at++)
            for (int32_t rank = 0; rank < 2; rank++)
                meet(&w, at / a->k_blocks, rank, at % a->k_blocks, at % a->k_blocks + 1);
    assert_int_equal(at, line);
    for (int32_t unit = a->line_units; unit < units; unit++)
        for (int32_t rank = 0; rank < 2; rank++) meet(&w, unit, rank, 0, a->k_blocks);
    for (size_t i = 0; i < cells; i++) assert_int_equal(w.met[i], 1);
    free(w.met);
}

static void test_chunk_walk(void **state) {
    (void)state;
    const rd_device_info *const devices[] = {&h200, &h100_pcie, &one};
    static const int64_t shapes[][3] = {{1, 1, 16},         {129, 5120, 6144}, {512, 14336, 5120},
                                        {512, 5120, 17408}, {333, 576, 3888},  {8192, 5120, 256},
                                        {1000, 5000, 208}};
    rdi_launch out[RDI_MAX_LAUNCHES];
    for (size_t d = 0; d < RDI_COUNT(devices); d++)
        for (size_t i = 0; i < RDI_COUNT(shapes); i++) {
            rdi_gemm_args a = gemm(shapes[i][0], shapes[i][1], shapes[i][2]);
            assert_int_equal(rdi_gemm_chunk_sm90a_geometry(&a, (void *)4096, devices[d], out), 1);
            const rdk_gemm_pairs_args args = pairs_args(&out[0]);
            assert_true(out[0].shared_bytes <= 227 * 1024 && out[0].dependent);
            assert_true(out[0].grid[0] % 2 == 0 &&
                        out[0].grid[0] <= (uint32_t)(devices[d]->compute_units + 1));
            assert_int_equal(args.early_weights, 1);
            check_walk(&out[0]);
            size_t words = rdi_gemm_chunk_sm90a_ws(&a, devices[d]->compute_units);
            assert_true(args.line_units ? words >= out[0].grid[0] * 128u * 64u * 4u : words == 0);
        }
}

// Rows that the copy engine cannot address are brought to 16 bytes by launches of their own.
static void test_chunk_repacks(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdk_gemm_repack_args repack;
    rdi_gemm_args a = gemm(300, 576, 3884);
    a.w_stride = 3888;
    unsigned char *ws = (unsigned char *)(1 << 20);
    assert_int_equal(rdi_gemm_chunk_sm90a_geometry(&a, ws, &h200, out), 2);
    assert_string_equal(out[0].kernel, "rdk_gemm_fp8block_chunk_sm90a_repack");
    memcpy(&repack, out[0].args, sizeof repack);
    assert_int_equal(repack.from, 4096);
    assert_int_equal(repack.from_stride, 3884);
    assert_int_equal(repack.to_stride, 3888);
    assert_int_equal(repack.rows, 300);
    assert_int_equal(repack.bytes, 3884);
    assert_int_equal(repack.to, (uintptr_t)out[1].map[0].base);
    assert_int_equal(out[1].map[0].stride_bytes[1], 3888);
    assert_ptr_equal(out[1].map[1].base, (void *)8192);
    assert_int_equal(pairs_args(&out[1]).early_weights, 1);
    check_walk(&out[1]);
    a.w = (void *)8200; // and the weights: the kernel may not read them before they are repacked
    assert_int_equal(rdi_gemm_chunk_sm90a_geometry(&a, ws, &h200, out), 3);
    memcpy(&repack, out[1].args, sizeof repack);
    assert_int_equal(repack.from, 8200);
    assert_int_equal(repack.rows, 576);
    assert_int_equal(pairs_args(&out[2]).early_weights, 0);
    assert_int_equal(repack.to + 576 * 3888, (uintptr_t)ws + rdi_gemm_chunk_sm90a_ws(&a, 132));
    assert_int_equal(repack.to % 16, 0);
}

// ---- layout tile64 -----------------------------------------------------------------------------------------------------
// A box that starts at any row of its panel holds, row by row, what the layout says stands there.
static void check_boxes(const rdi_gemm_args *a, const rdi_tensor_map *map, int32_t k_blocks) {
    const int64_t box = map->box[1], rows = (a->n + 63) / 64 * 64;
    assert_int_equal(map->dim[0], 128);
    assert_int_equal(map->dim[1], rows * k_blocks);
    assert_int_equal(map->stride_bytes[1], 128);
    assert_int_equal(64 % box, 0);
    for (int64_t row = 0; row < rows; row += box)
        for (int32_t kb = 0; kb < k_blocks; kb++) {
            const rdk_place from = rdk_box_place(1, k_blocks, (int32_t)row, kb);
            assert_int_equal(from.x, 0);
            for (int64_t i = 0; i < box && row + i < a->n; i++)
                assert_int_equal((from.y + i) * 128, rdi_weight_offset(a, row + i, kb * 128));
        }
}

static void test_tiles(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 16, 32, 33, 64, 128},
                         shapes[][2] = {{576, 3884}, {14336, 256}, {100, 130}};
    rdi_launch out[RDI_MAX_LAUNCHES];
    for (size_t s = 0; s < RDI_COUNT(shapes); s++) {
        const int32_t k_blocks = (int32_t)(shapes[s][1] + 127) / 128;
        for (size_t i = 0; i < RDI_COUNT(counts); i++) {
            rdi_gemm_args a = gemm(counts[i], shapes[s][0], shapes[s][1]);
            a.layout = RDI_LAYOUT_TILE64, a.a_stride = (a.k + 15) / 16 * 16;
            assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, (void *)64, &h200, out), 1);
            const bool wide = counts[i] > 16;
            assert_int_equal(wide ? pairs_args(&out[0]).w_tiled : step_args(&out[0]).w_tiled, 1);
            check_boxes(&a, &out[0].map[wide ? 1 : 0], k_blocks);
            if (wide) assert_int_equal(out[0].map[1].box[1], pairs_args(&out[0]).w_box);
            a.w = (void *)8200; // no place for the copy engine: rows of tiles by hand
            assert_int_equal(rdi_gemm_step_sm90a_geometry(&a, (void *)64, &h200, out), (counts[i] + 31) / 32);
            const rdk_gemm_step_args args = step_args(&out[0]);
            assert_int_equal(args.use_maps, 0);
            assert_int_equal(args.w_stride, 128);
            assert_int_equal(args.w_rows, (shapes[s][0] + 63) / 64 * 64 * k_blocks);
        }
        for (int64_t m = 129; m < 3000; m = m * 3 / 2) { // tiles of every width
            rdi_gemm_args a = gemm(m, shapes[s][0], shapes[s][1]);
            a.layout = RDI_LAYOUT_TILE64, a.a_stride = (a.k + 15) / 16 * 16;
            assert_int_equal(rdi_gemm_chunk_sm90a_geometry(&a, (void *)4096, &h200, out), 1);
            const rdk_gemm_pairs_args args = pairs_args(&out[0]);
            int32_t tokens, columns;
            assert_int_equal(sscanf(out[0].kernel, "rdk_gemm_fp8block_chunk_sm90a_%dx%d", &tokens, &columns),
                             2);
            assert_int_equal(columns / 2 % args.w_box, 0);
            assert_int_equal(out[0].map[1].box[1], args.w_box);
            check_boxes(&a, &out[0].map[1], k_blocks);
        }
    }
    rdi_gemm_args a = gemm(300, 100, 130);
    rdk_gemm_repack_args repack;
    a.layout = RDI_LAYOUT_TILE64, a.a_stride = 144, a.w = (void *)8200;
    assert_int_equal(rdi_gemm_chunk_sm90a_geometry(&a, (void *)4096, &h200, out), 2);
    memcpy(&repack, out[0].args, sizeof repack);
    assert_int_equal(repack.rows, 128 * 2);
    assert_int_equal(repack.bytes, 128);
    assert_int_equal(repack.from_stride, 128);
    assert_int_equal(repack.to, (uintptr_t)out[1].map[1].base);
    assert_int_equal(repack.to + 128 * 2 * 128 - 4096, rdi_gemm_chunk_sm90a_ws(&a, 132));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_cut),
        cmocka_unit_test(test_runs_of_the_step_cut),
        cmocka_unit_test(test_step_splits_tokens),
        cmocka_unit_test(test_step_of_odd_shapes),
        cmocka_unit_test(test_chunk_walk),
        cmocka_unit_test(test_chunk_repacks),
        cmocka_unit_test(test_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
