// SPDX-License-Identifier: Apache-2.0
// The crossover of Hopper's two block-FP8 GEMMs, from what a block of 128x128 weights takes of a multiprocessor.
#include "policy/gemm_sm90a.h"

// us * multiprocessors a block, from bench/results/h200/2026-11-30-card-gemm.csv (132 multiprocessors): 14336 x 5120 has 4480
// blocks; the step GEMM takes 37.0 us at 96 rows, the chunk GEMM 28.2. Up to 64 rows the step GEMM is at the speed of memory.
static const double STEP_BLOCK_US = 1.09, CHUNK_BLOCK_US = 0.83;
static const double H200_READ_GBS = 4380.0, H200_UNITS = 132.0, BLOCK_BYTES = 128.0 * 128.0;

int64_t rdi_gemm_sm90a_chunk_from(int32_t units, double read_gbs) {
    const double share = read_gbs > 0 ? read_gbs / units : H200_READ_GBS / H200_UNITS; // GB/s of one
    const double read_us = BLOCK_BYTES / share * 1e-3;
    // Where memory is so slow that both wait for it, the step GEMM wastes no rows of a tile.
    const double step = STEP_BLOCK_US > read_us ? STEP_BLOCK_US : read_us,
                 chunk = CHUNK_BLOCK_US > read_us ? CHUNK_BLOCK_US : read_us;
    return chunk < step ? RDI_SM90A_WIDE_TILE_M : RDI_SM90A_STEP_ROWS + 1;
}
