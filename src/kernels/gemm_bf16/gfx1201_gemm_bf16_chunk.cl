// SPDX-License-Identifier: Apache-2.0
// gemm_bf16, class `chunk`, on gfx1201: any number of rows, the tiles of gemm_fp8block_chunk_gfx1201. One running sum over K.
#include "kernels/gemm_fp8block/gfx1201_fragments.h"

#define OPERAND_BYTES 2
#define STEP_K        64
#define STEP_BYTES    128
#define SCALED        0
#define SHUFFLE       0

RDK_INLINE v8f product(v4i w, const v4i *a, v8f sum) {
    return wmma_bf16(w, *a, sum);
}

#define M_WAVES  4
#define NAME     rdk_gemm_bf16_chunk_gfx1201_128x128
#define FN(part) tall_##part
#include "kernels/gemm_fp8block/gfx1201_chunk.inc"
#undef M_WAVES
#undef NAME
#undef FN
#define M_WAVES  2
#define NAME     rdk_gemm_bf16_chunk_gfx1201_64x128
#define FN(part) low_##part
#include "kernels/gemm_fp8block/gfx1201_chunk.inc"
