// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the sm_90a GEMM kernels with 16-bit arithmetic, and the tile arithmetic that host and device share.
#ifndef RDK_SM90A_SKINNY_H
#define RDK_SM90A_SKINNY_H

#include "kernels/common/sm90a_types.h"

// A column is a token, or one of the bf16 parts whose sum is the token's f16 or f32 value exactly: the parts of a token stand side
// by side, and its output is the sum of their columns.
typedef struct rdk_skinny_args {
    RDK_ALIGN64 unsigned char w_map[128]; // box: 128 bytes of K x the tile's weight rows
    unsigned char a_map[128];             // box: 64 elements of K x the tile's columns
    RDK_PTR(const unsigned char) a;       // these two serve rows that the copy engine cannot address
    RDK_PTR(const unsigned char) w;
    RDK_PTR(const void) w_scale; // e4m3 weights
    RDK_PTR(const void) bias;
    RDK_PTR(void) c;
    RDK_PTR(void) partials; // one tile of {value, tag} pairs a block
    int64_t a_stride_bytes, w_stride_bytes, w_scale_stride_n, w_scale_stride_k, c_stride;
    int32_t columns, parts, n, k, k_blocks;
    int32_t ranges, range_shares, range_rest,
        share_units; // range r takes range_shares (+1 while r < range_rest) shares of units of (tile, k block)
    int32_t a_maps, w_maps, w_once, w_scale_e8m0, bias_type, c_type;
} rdk_skinny_args;

typedef struct rdk_skinny_split_args { // f16 or f32 rows into their bf16 parts
    RDK_PTR(const void) a;
    RDK_PTR(void) to; // [m * parts] rows of to_stride elements
    int64_t a_stride, to_stride;
    int32_t k, a_type, parts;
} rdk_skinny_split_args;

enum {
    RDK_SKINNY_ROW_BYTES = 128, // of a weight row in a tile, and of a column in one of its boxes
    RDK_SKINNY_BOX_K = 64,
    RDK_SKINNY_COLUMNS_MAX = 128,
    RDK_SKINNY_STAGES_MAX = 12,
    RDK_SKINNY_TURN_PITCH =
        68, // output rows are turned in shared memory; the pitch keeps lanes off each other's banks
    RDK_SKINNY_SPLIT_THREADS = 128,
};
RDK_HOST_DEVICE int rdk_skinny_stage_bytes(int columns, int rows, int boxes) {
    return (rows + columns * boxes) * RDK_SKINNY_ROW_BYTES;
}
RDK_HOST_DEVICE int rdk_skinny_turn_columns(int columns) {
    return columns < 16 ? columns : 16;
}
// What stands beside the ring; 1024 for the tiles' alignment.
RDK_HOST_DEVICE int rdk_skinny_fixed_bytes(int columns, int rows) {
    return 1024 + rows / 64 * rdk_skinny_turn_columns(columns) * RDK_SKINNY_TURN_PITCH * 4;
}
// Two blocks share a multiprocessor where that leaves a ring deep enough, so that the next call's ring fills while this one drains.
RDK_HOST_DEVICE int rdk_skinny_residents(int columns, int rows, int boxes) {
    return columns <= 32 / boxes && rows <= 128 ? 2 : 1;
}
// 228 KB a multiprocessor, 1 KB of it taken a block (CUDA programming guide, compute capability 9.0). Two barriers a stage.
RDK_HOST_DEVICE int rdk_skinny_stages(int columns, int rows, int boxes) {
    int limit = rdk_skinny_residents(columns, rows, boxes) == 2 ? 113 * 1024 : 227 * 1024;
    int fit =
        (limit - rdk_skinny_fixed_bytes(columns, rows)) / (rdk_skinny_stage_bytes(columns, rows, boxes) + 16);
    return fit < RDK_SKINNY_STAGES_MAX ? fit : RDK_SKINNY_STAGES_MAX;
}
RDK_HOST_DEVICE int rdk_skinny_shared_bytes(int columns, int rows, int boxes) {
    return rdk_skinny_fixed_bytes(columns, rows) +
           rdk_skinny_stages(columns, rows, boxes) * (rdk_skinny_stage_bytes(columns, rows, boxes) + 16);
}
// Where all k blocks of the columns are held beside a ring of weights alone, of one box each: a tile of 128 rows.
enum { RDK_SKINNY_HELD_ROWS = 128, RDK_SKINNY_HELD_BLOCKS = 9 }; // K up to 576
RDK_HOST_DEVICE int rdk_skinny_held_bytes(int columns) {         // with what aligns them, and a barrier
    return 1024 + RDK_SKINNY_HELD_BLOCKS * columns * RDK_SKINNY_ROW_BYTES + 16;
}
RDK_HOST_DEVICE int rdk_skinny_held_stages(int columns) {
    int stage = RDK_SKINNY_HELD_ROWS * RDK_SKINNY_ROW_BYTES + 16;
    int fit = (227 * 1024 - rdk_skinny_fixed_bytes(columns, RDK_SKINNY_HELD_ROWS) -
               rdk_skinny_held_bytes(columns)) /
              stage;
    return fit < RDK_SKINNY_STAGES_MAX ? fit : RDK_SKINNY_STAGES_MAX;
}
RDK_HOST_DEVICE int rdk_skinny_held_shared_bytes(int columns) {
    return rdk_skinny_fixed_bytes(columns, RDK_SKINNY_HELD_ROWS) + rdk_skinny_held_bytes(columns) +
           rdk_skinny_held_stages(columns) * (RDK_SKINNY_HELD_ROWS * RDK_SKINNY_ROW_BYTES + 16);
}

#endif // RDK_SM90A_SKINNY_H
