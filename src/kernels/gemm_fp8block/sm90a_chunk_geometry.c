// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a GEMM of class "chunk": which tile, which pairs, what of it is cut along K. No driver call.
#include "kernels/gemm_fp8block/args.h"
#include "kernels/gemm_fp8block/sm90a_args.h"
#include "kernels/gemm_fp8block/sm90a_geometry.h"
#include "kernels/rows.h"

#include <stddef.h>

typedef struct chunk_plan {
    int32_t columns; // weight rows of a tile
    bool pair_m;
    int64_t units_m, units_n, line_units, pairs;
    int64_t cycles; // estimate, decides between plans
} chunk_plan;

typedef struct chunk_tile {
    const char *kernel;
    int32_t columns, block_cycles;
} chunk_tile;

// Cycles of a block of 128 k for both groups, and of what a tile costs beside them; estimates until measured.
static const chunk_tile tiles[] = {
    {"rdk_gemm_fp8block_chunk_sm90a_128x64", 64, 380},
    {"rdk_gemm_fp8block_chunk_sm90a_128x96", 96, 480},
    {"rdk_gemm_fp8block_chunk_sm90a_128x128", 128, 610},
    {"rdk_gemm_fp8block_chunk_sm90a_128x160", 160, 730},
    {"rdk_gemm_fp8block_chunk_sm90a_128x192", 192, 850},
};
enum { TILE_CYCLES = 2500, MERGE_CYCLES = 3500 };

static chunk_plan plan_tile(const rdi_gemm_args *a, const chunk_tile *tile, bool pair_m, bool line, int64_t pairs) {
    int64_t tiles_m = rdi_ceil_div(a->m, RDK_CHUNK_TOKENS), tiles_n = rdi_ceil_div(a->n, tile->columns);
    int64_t k_blocks = rdi_ceil_div(a->k, RDK_K_BLOCK);
    chunk_plan p = {.columns = tile->columns,
                    .pair_m = pair_m,
                    .units_m = pair_m ? rdi_ceil_div(tiles_m, 2) : tiles_m,
                    .units_n = pair_m ? tiles_n : rdi_ceil_div(tiles_n, 2),
                    .pairs = pairs};
    int64_t units = p.units_m * p.units_n, rounds = units / pairs, rest = units % pairs;
    int64_t whole = k_blocks * tile->block_cycles + TILE_CYCLES;
    if (line) {
        p.line_units = rest;
        p.cycles = rounds * whole + rdi_ceil_div(rest * k_blocks, pairs) * tile->block_cycles + TILE_CYCLES +
                   MERGE_CYCLES * rdi_ceil_div(pairs, rdi_min(rest + 1, pairs));
    } else {
        p.cycles = (rounds + (rest > 0)) * whole;
    }
    return p;
}

// The cheapest by the estimate; a function of M, N, K and the multiprocessors alone.
static chunk_plan plan_chunk(const rdi_gemm_args *a, int32_t units) {
    chunk_plan best = {.cycles = INT64_MAX};
    int64_t pairs = units > 1 ? units / 2 : 1;
    for (size_t i = 0; i < RDI_COUNT(tiles); i++)
        for (int option = 0; option < 4; option++) {
            chunk_plan p = plan_tile(a, &tiles[i], option & 1, option & 2, pairs);
            if (p.cycles < best.cycles) best = p;
        }
    return best;
}

// The workspace: partial sums and their words, then operands that the copy engine cannot address where they are.
typedef struct chunk_ws {
    size_t arrived, a, w, bytes;
    int64_t row_bytes; // of the copied operands
} chunk_ws;

static chunk_ws plan_ws(const rdi_gemm_args *a, const chunk_plan *p) {
    chunk_ws ws = {.row_bytes = rdi_round_up(a->k, 16)};
    size_t blocks = p->line_units ? (size_t)p->pairs * 2 : 0;
    ws.arrived = blocks * RDK_CHUNK_TOKENS * (size_t)p->columns * sizeof(float);
    ws.a = ws.arrived + blocks * RDK_CHUNK_WARPS * sizeof(uint32_t);
    ws.w = ws.a;
    if (!rdi_sm90a_engine_can(a->a, a->m, a->a_stride)) ws.w += (size_t)(a->m * ws.row_bytes);
    ws.bytes = ws.w;
    if (!rdi_sm90a_engine_can(a->w, a->n, a->w_stride)) ws.bytes += (size_t)(a->n * ws.row_bytes);
    return ws;
}

size_t rdi_gemm_chunk_sm90a_ws(const void *args, int32_t units) {
    const chunk_plan p = plan_chunk(args, units);
    return plan_ws(args, &p).bytes;
}

static void repack_launch(const void *from, int64_t stride, int64_t rows, int64_t bytes, void *to, int64_t to_stride,
                          rdi_launch *out) {
    rdk_gemm_repack_args args = {.from = RDK_ADDR(from),
                                 .to = RDK_ADDR(to),
                                 .from_stride = stride,
                                 .to_stride = to_stride,
                                 .rows = rows,
                                 .bytes = (int32_t)bytes};
    const uint32_t grid[3] = {(uint32_t)rdi_min(rdi_ceil_div(bytes, 1024), 8), (uint32_t)rdi_min(rows, 1024), 1};
    rdi_launch_fill(out, "rdk_gemm_fp8block_chunk_sm90a_repack", grid, 256, &args, sizeof args);
    out->dependent = true;
}

static void chunk_launch(const rdi_gemm_args *a, const chunk_plan *p, unsigned char *ws, const chunk_ws *places,
                         rdi_launch *out) {
    int64_t k_blocks = rdi_ceil_div(a->k, RDK_K_BLOCK), line = p->line_units * k_blocks;
    rdk_gemm_chunk_args kernel = {
        .a_scale = RDK_ADDR(a->a_scale),
        .w_scale = RDK_ADDR(a->w_scale),
        .bias = RDK_ADDR(a->bias),
        .c = RDK_ADDR(a->c),
        .partials = RDK_ADDR(ws),
        .arrived = RDK_ADDR(ws + places->arrived),
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
        .group = p->pair_m ? 8 : 16, // 66 units of 256 x 160 or 128 x 320 make about a square
        .line_units = (int32_t)p->line_units,
        .line_part = (int32_t)(line / p->pairs),
        .line_rest = (int32_t)(line % p->pairs),
        .w_scale_e8m0 = a->w_scale_dtype == RD_DTYPE_E8M0,
        .bias_type = rdk_type_code(a->bias_dtype),
        .c_type = rdk_type_code(a->c_dtype),
        .c_vectors = (uintptr_t)a->c % 16 == 0 && a->c_stride % 8 == 0,
    };
    const char *name = tiles[0].kernel;
    for (size_t i = 0; i < RDI_COUNT(tiles); i++)
        if (tiles[i].columns == p->columns) name = tiles[i].kernel;
    int64_t pairs = p->line_units ? p->pairs : rdi_min(p->pairs, p->units_m * p->units_n);
    rdi_launch_fill(out, name, (const uint32_t[3]){(uint32_t)(2 * pairs), 1, 1}, 384, &kernel, sizeof kernel);
    out->shared_bytes = (uint32_t)rdk_chunk_shared_bytes(p->columns);
    out->dependent = true;
    out->map_count = 2;
    out->map[0] = rdi_sm90a_byte_map(offsetof(rdk_gemm_chunk_args, a_map), a->a, a->m, a->k, a->a_stride, RDK_CHUNK_TOKENS / 2);
    out->map[1] = rdi_sm90a_byte_map(offsetof(rdk_gemm_chunk_args, w_map), a->w, a->n, a->k, a->w_stride, p->columns / 2);
}

int32_t rdi_gemm_chunk_sm90a_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    rdi_gemm_args a = *(const rdi_gemm_args *)args;
    const chunk_plan p = plan_chunk(&a, device->compute_units);
    const chunk_ws places = plan_ws(&a, &p);
    unsigned char *base = ws;
    int32_t count = 0;
    if (places.w > places.a) {
        repack_launch(a.a, a.a_stride, a.m, a.k, base + places.a, places.row_bytes, &out[count++]);
        a.a = base + places.a;
        a.a_stride = places.row_bytes;
    }
    if (places.bytes > places.w) {
        repack_launch(a.w, a.w_stride, a.n, a.k, base + places.w, places.row_bytes, &out[count++]);
        a.w = base + places.w;
        a.w_stride = places.row_bytes;
    }
    chunk_launch(&a, &p, base, &places, &out[count]);
    return count + 1;
}
