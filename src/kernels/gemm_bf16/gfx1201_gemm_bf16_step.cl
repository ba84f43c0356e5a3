// SPDX-License-Identifier: Apache-2.0
// gemm_bf16, class `step`, on gfx1201: routers, gates and lm_head, 1..128 rows. The loads of gemm_fp8block_step_gfx1201, half as
// many k in each; without scales a slice is one running sum.
#include "kernels/gemm_fp8block/gfx1201_fragments.h"

#define W_BYTES  2
#define STEP_K   64
#define A_LOADS  1
#define A_SCALED 0
#define W_SCALED 0
#define WIDEN    0
#define widen(w) (w)

RDK_INLINE v8f product(v4i w, const v4i *a, v8f sum) {
    return wmma_bf16(w, a[0], sum);
}

#define PREFIX  rdk_gemm_bf16_step_gfx1201
#define SHUFFLE 0
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
