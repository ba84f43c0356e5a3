// SPDX-License-Identifier: Apache-2.0
// Which of Hopper's block-FP8 GEMMs runs where bits need not agree (order=any): the one of class "step", whose time is that of reading
// the weights until its tensor cores are full, or the one of class "chunk", whose tiles take 128 tokens.
#ifndef RDI_GEMM_SM90A_H
#define RDI_GEMM_SM90A_H

#include "base/base.h"

enum {
    RDI_SM90A_STEP_ROWS = 128,
    RDI_SM90A_WIDE_TILE_M = 65
}; // the step GEMM's n tile is 128 tokens from there on

// Fewest rows for which "chunk" is the faster one. units: multiprocessors; read_gbs: of the memory, 0 = as on an H200.
int64_t rdi_gemm_sm90a_chunk_from(int32_t units, double read_gbs);

#endif // RDI_GEMM_SM90A_H
