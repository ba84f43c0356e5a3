// SPDX-License-Identifier: Apache-2.0
// What the geometry functions of the sm_90a GEMMs share: rows for the tensor copy engine, and launches of pairs of blocks.
#ifndef RDI_GEMM_SM90A_GEOMETRY_H
#define RDI_GEMM_SM90A_GEOMETRY_H

#include "kernels/gemm_fp8block/args.h"
#include "kernels/gemm_fp8block/sm90a_args.h"
#include "registry/registry.h"

// Tiles of a weight by its k blocks: kernels count them in 32 bits, and no memory holds as many.
enum { RDI_SM90A_TILES_MAX = 1 << 28 };

// The copy engine wants 16-byte rows; a single row may have any stride.
bool rdi_sm90a_engine_can(const void *data, int64_t rows, int64_t stride_bytes);

// Boxes of 128 bytes of K by `box_rows` rows under the 128-byte swizzle.
rdi_tensor_map rdi_sm90a_byte_map(uint32_t arg_offset, const void *base, int64_t rows, int64_t k,
                                  int64_t stride, int32_t box_rows);

// A weight as the copy engine sees it: rows of bytes. In layout tile64 those are the 128-byte rows of tiles.
typedef struct rdi_sm90a_weight {
    const void *data;
    int64_t rows, bytes, stride;
    bool tiled, engine_can;
} rdi_sm90a_weight;
rdi_sm90a_weight rdi_sm90a_weight_of(const rdi_gemm_args *a);
bool rdi_sm90a_weight_fits(
    const rdi_gemm_args *a); // else the error text says why: kernels count rows of tiles in 32 bits
rdi_tensor_map rdi_sm90a_weight_map(uint32_t arg_offset, const rdi_gemm_args *a, int32_t box_rows);

// How pairs of blocks walk the tiles of one launch (sm90a_pairs.cuh).
typedef struct rdi_sm90a_pairs {
    int32_t tokens, columns; // of a tile
    bool pair_m;        // a pair is two tiles of M over the same weights, else two of N over the same tokens
    bool early_weights; // the weights do not come from the launch before
    bool one_group;     // one warpgroup multiplies
    int32_t box_tokens; // rows of a copy of tokens; 0: half a tile
    const rdk_step_runs *runs; // class "step"
    int64_t pairs, units_m, units_n, group, line_units;
} rdi_sm90a_pairs;
size_t rdi_sm90a_partial_bytes(const rdi_sm90a_pairs *p);
void rdi_sm90a_pairs_launch(const char *kernel, const rdi_gemm_args *a, const rdi_sm90a_pairs *p,
                            void *partials, rdi_launch *out);

#endif // RDI_GEMM_SM90A_GEOMETRY_H
