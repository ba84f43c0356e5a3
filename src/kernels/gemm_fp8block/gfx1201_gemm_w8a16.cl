// SPDX-License-Identifier: Apache-2.0
// gemm_fp8block_w8a16, class `step`, on gfx1201: e4m3 weights widened by the hardware's conversion to the 16-bit type of the
// activations, 1..128 rows. Products are exact, as e4m3 times bf16 or f16 is in f32.
#include "kernels/gemm_fp8block/gfx1201_fragments.h"

#define W_BYTES  1
#define STEP_K   128
#define A_LOADS  2
#define A_SCALED 0
#define W_SCALED 1
#define WIDEN    1

typedef struct wide {
    v4i low, high; // k 0..7 and 8..15 of a lane
} wide;

#define widen widen_all_bf16
#define product product_bf16
RDK_INLINE wide widen_all_bf16(v4i w) {
    return (wide){widen_bf16(w.xy), widen_bf16(w.zw)};
}
RDK_INLINE v8f product_bf16(wide w, const v4i *a, v8f sum) {
    return wmma_bf16(w.high, a[1], wmma_bf16(w.low, a[0], sum));
}
#define PREFIX  rdk_gemm_fp8block_w8a16_step_gfx1201_row_bf16
#define SHUFFLE 0
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
#undef PREFIX
#undef SHUFFLE
#define PREFIX  rdk_gemm_fp8block_w8a16_step_gfx1201_shuffle16_bf16
#define SHUFFLE 1
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
#undef PREFIX
#undef SHUFFLE
#undef widen
#undef product

#define widen widen_all_f16
#define product product_f16
RDK_INLINE wide widen_all_f16(v4i w) {
    return (wide){widen_f16(w.xy), widen_f16(w.zw)};
}
RDK_INLINE v8f product_f16(wide w, const v4i *a, v8f sum) {
    return wmma_f16(w.high, a[1], wmma_f16(w.low, a[0], sum));
}
#define PREFIX  rdk_gemm_fp8block_w8a16_step_gfx1201_row_f16
#define SHUFFLE 0
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
#undef PREFIX
#undef SHUFFLE
#define PREFIX  rdk_gemm_fp8block_w8a16_step_gfx1201_shuffle16_f16
#define SHUFFLE 1
#include "kernels/gemm_fp8block/gfx1201_step_kernels.inc"
