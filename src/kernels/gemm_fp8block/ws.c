// SPDX-License-Identifier: Apache-2.0
// Workspace of the decode rows, the same for every instruction set: the activations widened to f32.
#include "kernels/gemm_fp8block/layout.h"
#include "kernels/rows.h"

size_t rdi_gemm_decode_ws(const void *args, int32_t threads) {
    (void)threads;
    const rdi_gemm_args *gemm = args;
    return (size_t)(rdi_ceil_div(gemm->k, RDI_GEMM_BLOCK) * gemm->m) * RDI_GEMM_BLOCK * sizeof(float);
}
