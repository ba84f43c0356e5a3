// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the sm_90a GEMM kernels, and the tile arithmetic that host and device share. Strides in elements.
#ifndef RDI_GEMM_SM90A_ARGS_H
#define RDI_GEMM_SM90A_ARGS_H

#include "kernels/common/sm90a_types.h"

// The cut of class "step": run r of the line of (pair of tiles, k block) units is begin[r] .. begin[r + 1] - 1, and the pair of blocks
// that starts as i-th takes run order[i].
enum { RDK_STEP_RUNS_MAX = 72 };
typedef struct rdk_step_runs {
    int32_t begin[RDK_STEP_RUNS_MAX + 1];
    uint8_t order[RDK_STEP_RUNS_MAX];
} rdk_step_runs;

typedef struct rdk_gemm_step_args {
    RDK_ALIGN64 unsigned char w_map[128]; // box: 128 bytes of K x 64 weight rows
    unsigned char a_map[128];             // box: 128 bytes of K x the kernel's tokens; tiles of 64 rows alone
    RDK_PTR(const unsigned char) a;
    RDK_PTR(const unsigned char) w; // where the copy engine cannot address its rows
    RDK_PTR(const float) a_scale;
    RDK_PTR(const void) w_scale;
    RDK_PTR(const void) bias;
    RDK_PTR(void) c;
    RDK_PTR(void) partials; // one tile of {value, tag} pairs a block
    int64_t a_stride, w_stride, a_scale_stride_m, a_scale_stride_k, w_scale_stride_n, w_scale_stride_k,
        c_stride;
    int32_t m, n, k, k_blocks;
    int32_t w_rows; // as the copy engine sees them: in layout tile64 those of tiles
    int32_t use_maps, w_tiled, w_scale_e8m0, bias_type, c_type;
    rdk_step_runs runs;
} rdk_gemm_step_args;

// The ring of the step kernels: stages of one weight tile and one token tile; the tokens' scales beside it. Up to 32 tokens two blocks
// share a multiprocessor, so that the next call's ring fills while this one drains.
enum { RDK_K_BLOCK = 128, RDK_TILE_ROWS = 64, RDK_STEP_STAGES_MAX = 12 };
// Where the copy engine finds a box of 128 bytes of K that starts at `row`. Layout tile64 is to it a matrix of 128-byte rows, 64 a tile,
// tile after tile, and the box lies in one of them.
typedef struct rdk_place {
    int32_t x, y;
} rdk_place;
RDK_HOST_DEVICE rdk_place rdk_box_place(int tiled, int32_t k_blocks, int32_t row, int32_t k_block) {
    rdk_place place = {tiled ? 0 : k_block * RDK_K_BLOCK, row};
    if (tiled) place.y = (row / RDK_TILE_ROWS * k_blocks + k_block) * RDK_TILE_ROWS + row % RDK_TILE_ROWS;
    return place;
}
RDK_HOST_DEVICE int rdk_step_stage_bytes(int tokens, int rows) {
    return (rows + tokens) * RDK_K_BLOCK;
}
// Output rows are turned in shared memory, this many tokens at a time; the pitch keeps lanes off each other's banks.
enum { RDK_STEP_TURN_PITCH = 68 };
RDK_HOST_DEVICE int rdk_step_turn_tokens(int tokens) {
    return tokens < 16 ? tokens : 16;
}
enum { RDK_STEP_SCALE_UNITS = 8, RDK_STEP_SCALE_BATCHES = 4 };
// What stands beside the ring; 1024 for the tiles' alignment.
RDK_HOST_DEVICE int rdk_step_fixed_bytes(int tokens, int rows) {
    return 1024 + 8 + RDK_STEP_SCALE_BATCHES * (RDK_STEP_SCALE_UNITS * (tokens + 4) * 4 + 16) +
           rows / 64 * rdk_step_turn_tokens(tokens) * RDK_STEP_TURN_PITCH * 4;
}
// 228 KB a multiprocessor, 1 KB of it taken a block (CUDA programming guide, compute capability 9.0). Two barriers a stage.
RDK_HOST_DEVICE int rdk_step_stages(int tokens, int rows) {
    int limit = tokens <= 32 ? 113 * 1024 : 227 * 1024;
    int fit = (limit - rdk_step_fixed_bytes(tokens, rows)) / (rdk_step_stage_bytes(tokens, rows) + 16);
    return fit < RDK_STEP_STAGES_MAX ? fit : RDK_STEP_STAGES_MAX;
}
RDK_HOST_DEVICE int rdk_step_shared_bytes(int tokens, int rows) {
    return rdk_step_fixed_bytes(tokens, rows) +
           rdk_step_stages(tokens, rows) * (rdk_step_stage_bytes(tokens, rows) + 16);
}

// ---- pairs of blocks: class "chunk", and class "step" from 17 tokens on -------------------------------------------------
typedef struct rdk_gemm_pairs_args {
    RDK_ALIGN64 unsigned char a_map[128]; // box: 128 bytes of K x half a tile's tokens
    unsigned char w_map[128];             // box: 128 bytes of K x w_box weight rows
    RDK_PTR(const float) a_scale;
    RDK_PTR(const void) w_scale;
    RDK_PTR(const void) bias;
    RDK_PTR(void) c;
    RDK_PTR(void) partials; // what each block leaves of one tile
    int64_t a_scale_stride_m, a_scale_stride_k, w_scale_stride_n, w_scale_stride_k, c_stride;
    int32_t m, n, k_blocks;
    int32_t units_m,
        units_n; // pairs of neighbouring tiles: two of M over the same weights, or two of N over the same tokens
    int32_t pair_m; // which of the two
    int32_t group;  // units of M that are walked together before N moves on
    int32_t line_units, line_part,
        line_rest; // class "chunk": the first units are one line of (unit, k block), cut into equal runs
    int32_t w_tiled, w_box; // layout tile64; rows of a box, a part of half a tile
    int32_t early_weights;  // they are there before the kernels before this one end
    int32_t w_scale_e8m0, bias_type, c_type, c_vectors;
    int32_t box_tokens; // class "step": rows of a copy of tokens
    rdk_step_runs runs; // class "step"
} rdk_gemm_pairs_args;

// Rows that the copy engine cannot address, brought to strides of 16 bytes.
typedef struct rdk_gemm_repack_args {
    RDK_PTR(const unsigned char) from;
    RDK_PTR(unsigned char) to;
    int64_t from_stride, to_stride, rows;
    int32_t bytes;
} rdk_gemm_repack_args;

enum {
    RDK_CHUNK_TOKENS = 128,
    RDK_PAIRS_SCALE_BATCHES = 2,
    RDK_PAIRS_SCALE_BLOCKS = 8,
    RDK_PAIRS_THREADS = 384,
    RDK_PAIRS_ONE_GROUP_THREADS = 256
};
RDK_HOST_DEVICE int rdk_pairs_stage_bytes(int tokens, int columns) {
    return (tokens + columns) * RDK_K_BLOCK;
}
// Beside the ring: 1024 for the tiles' alignment, one barrier, the scales, their barriers.
RDK_HOST_DEVICE int rdk_pairs_fixed_bytes(int tokens) {
    return 1024 + 16 + RDK_PAIRS_SCALE_BATCHES * (RDK_PAIRS_SCALE_BLOCKS * (tokens + 4 + 2) * 4 + 16);
}
RDK_HOST_DEVICE int rdk_pairs_stages(int tokens, int columns) {
    int fit = (227 * 1024 - rdk_pairs_fixed_bytes(tokens)) / (rdk_pairs_stage_bytes(tokens, columns) + 16);
    return fit < RDK_STEP_STAGES_MAX ? fit : RDK_STEP_STAGES_MAX;
}
RDK_HOST_DEVICE int rdk_pairs_shared_bytes(int tokens, int columns) {
    return rdk_pairs_fixed_bytes(tokens) +
           rdk_pairs_stages(tokens, columns) * (rdk_pairs_stage_bytes(tokens, columns) + 16);
}
RDK_HOST_DEVICE int rdk_pairs_partial_words(int sums) { // of a thread; class "chunk"
    return (sums + 2) / 3;
}
// Class "step": a tile's sums for each block, then a flag for each, 32 bytes apart.
enum { RDK_PAIRS_FLAG_BYTES = 32 };
RDK_HOST_DEVICE int rdk_pairs_left_bytes(int tokens, int columns) {
    return tokens * columns * 4;
}

// Class "chunk" on tiles of 256 x 128 (sm90a_tall.cuh): a float of As * Ws for each token; 4 more, so that rows of eight blocks lie off
// each other's banks.
enum { RDK_TALL_TOKENS = 256, RDK_TALL_COLUMNS = 128, RDK_TALL_SCALE_PITCH = RDK_TALL_TOKENS + 4 };
RDK_HOST_DEVICE int rdk_tall_fixed_bytes(void) {
    return 1024 + RDK_PAIRS_SCALE_BATCHES * (RDK_PAIRS_SCALE_BLOCKS * RDK_TALL_SCALE_PITCH * 4 + 16);
}
RDK_HOST_DEVICE int rdk_tall_stages(void) {
    return (227 * 1024 - rdk_tall_fixed_bytes()) /
           (rdk_pairs_stage_bytes(RDK_TALL_TOKENS, RDK_TALL_COLUMNS) + 16);
}
RDK_HOST_DEVICE int rdk_tall_shared_bytes(void) {
    return rdk_tall_fixed_bytes() +
           rdk_tall_stages() * (rdk_pairs_stage_bytes(RDK_TALL_TOKENS, RDK_TALL_COLUMNS) + 16);
}

#endif // RDI_GEMM_SM90A_ARGS_H
