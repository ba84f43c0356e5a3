// SPDX-License-Identifier: Apache-2.0
// GEMM rows with bf16 weights for AVX-512: the bodies of the block-FP8 rows with another widening.
#define GEMM_BF16
#include "kernels/gemm_fp8block/cpu_prelude.inc"
#include "kernels/gemm_fp8block/vec_avx512.inc"

enum { PREFETCH_BYTES = 8192 }; // over all streams of a thread
#define IN_ORDER(rows_, next_, sum_) (void)(next_)
#define KEEP_IN_REGISTER(x_)                                                                                 \
    __asm__("" : "+v"(x_)) // gcc 12 folds the broadcast into each multiply-add and runs out of load slots

#include "kernels/gemm_fp8block/cpu_common.inc"
#include "kernels/gemm_fp8block/cpu_decode.inc"
#include "kernels/gemm_fp8block/cpu_prefill.inc"

void rdk_gemm_bf16_m16_cpu_avx512(const void *args, void *ws, rdi_par *par) {
    run_decode(args, ws, par);
}
void rdk_gemm_bf16_any_cpu_avx512(const void *args, void *ws, rdi_par *par) {
    run_prefill(args, ws, par);
}

size_t rdi_gemm_bf16_avx512_ws(const void *args, int32_t threads) {
    return a_wide_bytes(args) + (size_t)threads * prefill_scratch_bytes(args);
}
