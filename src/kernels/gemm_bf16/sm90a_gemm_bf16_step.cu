// SPDX-License-Identifier: Apache-2.0
// gemm_bf16 of order class "step" on sm_90a: lm_head, routers, gates at 1..128 rows, bound by the read of the weights.
#include "kernels/gemm_bf16/sm90a_gemm_bf16.cuh"

#define STEP_KERNEL(columns_, groups_, rows_) GEMM_BF16_KERNEL(rdk_gemm_bf16_step_sm90a, columns_, groups_, rows_, false)
STEP_KERNEL(8, 1, 64)
STEP_KERNEL(16, 1, 64)
STEP_KERNEL(32, 1, 64)
STEP_KERNEL(64, 1, 64)
STEP_KERNEL(128, 1, 64)
STEP_KERNEL(8, 2, 128)
STEP_KERNEL(16, 2, 128)
STEP_KERNEL(32, 2, 128)
STEP_KERNEL(64, 2, 128)
STEP_KERNEL(128, 2, 128)
// 64 columns of a small K: kept for all tiles of a block.
GEMM_BF16_RING_KERNEL(rdk_gemm_bf16_step_sm90a_c64_held, true, 64, 2, 1, true)
SKINNY_SPLIT_KERNEL(rdk_gemm_bf16_step_sm90a_split)
