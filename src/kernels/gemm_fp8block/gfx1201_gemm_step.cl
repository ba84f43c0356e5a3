// SPDX-License-Identifier: Apache-2.0
// gemm_fp8block, class `step`, on gfx1201: e4m3 activations and weights, 1..128 rows.
#include "kernels/gemm_fp8block/gfx1201_fragments.h"

#define W_BYTES  1
#define STEP_K   128
#define A_LOADS  1
#define A_SCALED 1
#define W_SCALED 1
#define WIDEN    0
#define widen(w) (w)

RDK_INLINE v8f product(v4i w, const v4i *a, v8f sum) {
    return wmma_e4m3(w.zw, a[0].zw, wmma_e4m3(w.xy, a[0].xy, sum));
}

#define PREFIX  rdk_gemm_fp8block_step_gfx1201
#define SHUFFLE 0
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
#undef PREFIX
#undef SHUFFLE
#define PREFIX  rdk_gemm_fp8block_step_preshuffle_gfx1201
#define SHUFFLE 1
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
