// SPDX-License-Identifier: Apache-2.0
// gemm_fp8block, class `chunk`, on gfx1201: e4m3 activations and weights, any number of rows; tiles of 128x128, and of 64x128
// where those would leave compute units without work.
#include "kernels/gemm_fp8block/gfx1201_fragments.h"

#define OPERAND_BYTES 1
#define STEP_K        128
#define STEP_BYTES    128
#define SCALED        1

RDK_INLINE v8f product(v4i w, const v4i *a, v8f sum) {
    return wmma_e4m3(w.zw, a->zw, wmma_e4m3(w.xy, a->xy, sum));
}

#define M_WAVES  4
#define SHUFFLE  0
#define NAME     rdk_gemm_fp8block_chunk_gfx1201_128x128
#define FN(part) row_128x128_##part
#include "kernels/gemm_fp8block/gfx1201_chunk.inc"
#undef NAME
#undef FN
#undef SHUFFLE
#define SHUFFLE  1
#define NAME     rdk_gemm_fp8block_chunk_preshuffle_gfx1201_128x128
#define FN(part) shuffle_128x128_##part
#include "kernels/gemm_fp8block/gfx1201_chunk.inc"
#undef NAME
#undef FN
#undef M_WAVES
#define M_WAVES  2
#define NAME     rdk_gemm_fp8block_chunk_preshuffle_gfx1201_64x128
#define FN(part) shuffle_64x128_##part
#include "kernels/gemm_fp8block/gfx1201_chunk.inc"
#undef NAME
#undef FN
#undef SHUFFLE
#define SHUFFLE  0
#define NAME     rdk_gemm_fp8block_chunk_gfx1201_64x128
#define FN(part) row_64x128_##part
#include "kernels/gemm_fp8block/gfx1201_chunk.inc"
