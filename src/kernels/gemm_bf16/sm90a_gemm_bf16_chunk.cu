// SPDX-License-Identifier: Apache-2.0
// gemm_bf16 of order class "chunk" on sm_90a: any number of rows. A block takes a tile of 256 weight rows by
// 128 tokens over all of K.
#include "kernels/gemm_bf16/sm90a_gemm_bf16.cuh"

GEMM_BF16_KERNEL(rdk_gemm_bf16_chunk_sm90a, 128, 4, 256, true)
SKINNY_SPLIT_KERNEL(rdk_gemm_bf16_chunk_sm90a_split)
