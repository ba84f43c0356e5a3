// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a GEMM of class "chunk": which tile, which pairs, what of it is cut along K. No driver call.
#include "kernels/gemm_fp8block/args.h"
#include "kernels/gemm_fp8block/sm90a_args.h"
#include "kernels/gemm_fp8block/sm90a_geometry.h"
#include "kernels/rows.h"

#include <math.h>
#include <stddef.h>

typedef struct chunk_tile {
    const char *kernel;
    int32_t tokens, columns, block_cycles, tile_cycles;
} chunk_tile;

typedef struct chunk_plan {
    rdi_sm90a_pairs pairs;
    const chunk_tile *tile;
    double cycles; // estimate, decides between plans; exact below 2^53, far beyond any call that ends
} chunk_plan;

// Cycles of a block of 128 k for both groups, and of what a tile costs beside them: from ncu's cycles of 8448 x 5376 with 5120 and with
// 17408 of k, all blocks busy; the last tile's from 16896 x 5632 x 5120 and where its warps stood (docs/decisions/008-sm90a.md).
static const chunk_tile tiles[] = {
    {"rdk_gemm_fp8block_chunk_sm90a_128x64", 128, 64, 450, 2800},
    {"rdk_gemm_fp8block_chunk_sm90a_128x96", 128, 96, 570, 3000},
    {"rdk_gemm_fp8block_chunk_sm90a_128x128", 128, 128, 670, 3300},
    {"rdk_gemm_fp8block_chunk_sm90a_128x160", 128, 160, 820, 3500},
    {"rdk_gemm_fp8block_chunk_sm90a_128x192", 128, 192, 900, 3900},
    {"rdk_gemm_fp8block_chunk_sm90a_256x128", RDK_TALL_TOKENS, RDK_TALL_COLUMNS, 1133, 5500},
};
// Sums that travel, a column: once for a cut tile and once more for each block that left some.
enum { CUT_CYCLES_A_COLUMN = 50, MERGE_CYCLES_A_COLUMN = 14 };

// rest: what does not fill a round of all pairs. Cut along K are: 0 nothing, 1 the rest, 2 the rest and one round, so that a
// tile has two or three parts.
static chunk_plan plan_tile(const rdi_gemm_args *a, const chunk_tile *tile, bool pair_m, int32_t cut,
                            int64_t pairs) {
    int64_t tiles_m = rdi_ceil_div(a->m, tile->tokens), tiles_n = rdi_ceil_div(a->n, tile->columns);
    int64_t k_blocks = rdi_ceil_div(a->k, RDK_K_BLOCK);
    chunk_plan p = {
        .tile = tile,
        .pairs = {.tokens = tile->tokens,
                  .columns = tile->columns,
                  .pair_m = pair_m,
                  .pairs = pairs,
                  .units_m = pair_m ? rdi_ceil_div(tiles_m, 2) : tiles_m,
                  .units_n = pair_m ? tiles_n : rdi_ceil_div(tiles_n, 2),
                  .group = (pair_m ? 1024 : 2048) / tile->tokens}}; // 66 units make about a square
    int64_t units = p.pairs.units_m * p.pairs.units_n, rest = units % pairs;
    double whole = (double)(k_blocks * tile->block_cycles + tile->tile_cycles);
    if (cut == 0 || rest == 0) {
        p.cycles = (double)rdi_ceil_div(units, pairs) * whole;
        return p;
    }
    p.pairs.line_units = cut == 2 && units > pairs ? rest + pairs : rest;
    const int64_t line = p.pairs.line_units * k_blocks, others = rdi_ceil_div(pairs, p.pairs.line_units),
                  rounds = (units - p.pairs.line_units) / pairs;
    p.cycles = (double)rounds * whole +
               (double)(rdi_ceil_div(line, pairs) * tile->block_cycles + 2 * tile->tile_cycles +
                        (CUT_CYCLES_A_COLUMN + MERGE_CYCLES_A_COLUMN * others) * tile->columns);
    return p;
}

// Tall tiles are not cut: at every shape that was measured whole rounds of them were faster.
static bool is_tall(const chunk_tile *tile) {
    return tile->tokens == RDK_TALL_TOKENS;
}

// The cheapest by the estimate; a function of M, N, K and the multiprocessors alone.
static chunk_plan plan_chunk(const rdi_gemm_args *a, int32_t multiprocessors) {
    chunk_plan best = {.cycles = INFINITY};
    int64_t pairs = multiprocessors > 1 ? multiprocessors / 2 : 1;
    for (size_t i = 0; i < RDI_COUNT(tiles); i++) {
        // Of two plans that take equally long: the one whose pair is squarer asks less of the second-level cache, or weights are read once.
        const bool weights_shared = !is_tall(&tiles[i]) || a->m <= 2 * tiles[i].tokens;
        for (int32_t option = 0; option < (is_tall(&tiles[i]) ? 2 : 6); option++) {
            chunk_plan p = plan_tile(a, &tiles[i], (option % 2 == 0) == weights_shared, option / 2, pairs);
            if (p.cycles < best.cycles) best = p;
        }
    }
    return best;
}

// The workspace: partial sums, then operands that the copy engine cannot address where they are.
typedef struct chunk_ws {
    size_t a, w, bytes;
    int64_t a_row_bytes, w_row_bytes; // of the copied operands
} chunk_ws;

static chunk_ws plan_ws(const rdi_gemm_args *a, const rdi_sm90a_pairs *p) {
    const rdi_sm90a_weight w = rdi_sm90a_weight_of(a);
    chunk_ws ws = {.a_row_bytes = rdi_round_up(a->k, 16), .w_row_bytes = rdi_round_up(w.bytes, 16)};
    ws.a = rdi_sm90a_partial_bytes(p);
    ws.w = ws.a;
    if (!rdi_sm90a_engine_can(a->a, a->m, a->a_stride)) ws.w += (size_t)(a->m * ws.a_row_bytes);
    ws.bytes = ws.w;
    if (!w.engine_can) ws.bytes += (size_t)(w.rows * ws.w_row_bytes);
    return ws;
}

size_t rdi_gemm_chunk_sm90a_ws(const void *args, int32_t units) {
    const chunk_plan p = plan_chunk(args, units);
    return plan_ws(args, &p.pairs).bytes;
}

static void repack_launch(const void *from, int64_t stride, int64_t rows, int64_t bytes, void *to,
                          int64_t to_stride, rdi_launch *out) {
    rdk_gemm_repack_args args = {.from = RDK_ADDR(from),
                                 .to = RDK_ADDR(to),
                                 .from_stride = stride,
                                 .to_stride = to_stride,
                                 .rows = rows,
                                 .bytes = (int32_t)bytes};
    const uint32_t grid[3] = {(uint32_t)rdi_min(rdi_ceil_div(bytes, 1024), 8), (uint32_t)rdi_min(rows, 1024),
                              1};
    rdi_launch_fill(out, "rdk_gemm_fp8block_chunk_sm90a_repack", grid, 256, &args, sizeof args);
    out->dependent = true;
}

int32_t rdi_gemm_chunk_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                      rdi_launch *out) {
    rdi_gemm_args a = *(const rdi_gemm_args *)args;
    chunk_plan p = plan_chunk(&a, device->compute_units);
    if (!rdi_sm90a_weight_fits(&a) ||
        !rdi_launch_takes_count("gemm", "c: tiles", p.pairs.units_m * p.pairs.units_n, RDI_SM90A_TILES_MAX) ||
        !rdi_launch_takes_count("gemm", "w: tiles by k blocks",
                                rdi_max(p.pairs.line_units, 1) * rdi_ceil_div(a.k, RDK_K_BLOCK),
                                RDI_SM90A_TILES_MAX))
        return 0;
    const chunk_ws places = plan_ws(&a, &p.pairs);
    unsigned char *base = ws;
    int32_t count = 0;
    if (places.w > places.a) {
        repack_launch(a.a, a.a_stride, a.m, a.k, base + places.a, places.a_row_bytes, &out[count++]);
        a.a = base + places.a;
        a.a_stride = places.a_row_bytes;
    }
    if (places.bytes > places.w) {
        const rdi_sm90a_weight w = rdi_sm90a_weight_of(&a);
        repack_launch(w.data, w.stride, w.rows, w.bytes, base + places.w, places.w_row_bytes, &out[count++]);
        a.w = base + places.w;
        a.w_stride = places.w_row_bytes;
    }
    p.pairs.early_weights = places.bytes == places.w;
    rdi_sm90a_pairs_launch(p.tile->kernel, &a, &p.pairs, base, &out[count]);
    if (is_tall(p.tile)) out[count].shared_bytes = (uint32_t)rdk_tall_shared_bytes();
    return count + 1;
}
