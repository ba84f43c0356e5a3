// SPDX-License-Identifier: Apache-2.0
// gemm_bf16, class `step`, for f16 and f32 activations on gfx1201: each is the sum of bf16 parts, two of an f16 and three of an f32,
// cut off one after the other and therefore exact, and each part has its own product. The smallest is added first.
#include "kernels/gemm_fp8block/gfx1201_fragments.h"

#define W_BYTES  2
#define STEP_K   64
#define A_SCALED 0
#define W_SCALED 0
#define WIDEN    0
#define widen(w) (w)

#define FEW_TILES 1

#define product product_f16
RDK_INLINE v8f product_f16(v4i w, const v4i *a, v8f sum) {
    v8f rest, nothing;
    const v4i high = cut_bf16(__builtin_convertvector(__builtin_bit_cast(v8h, a[0]), v8f), &rest);
    return wmma_bf16(w, high, wmma_bf16(w, cut_bf16(rest, &nothing), sum));
}
#define A_LOADS 1
#define PREFIX  rdk_gemm_bf16_step_wide_gfx1201_f16
#define SHUFFLE 0
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
#undef A_LOADS
#undef PREFIX
#undef SHUFFLE
#undef product

#define product product_bf16_f32
#define A_LOADS 2
#define PREFIX  rdk_gemm_bf16_step_wide_gfx1201_f32
#define SHUFFLE 0
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
