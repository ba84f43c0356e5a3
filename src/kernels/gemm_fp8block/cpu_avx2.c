// SPDX-License-Identifier: Apache-2.0
// Block-FP8 GEMM rows for AVX2.
#include "kernels/gemm_fp8block/cpu_prelude.inc"
#include "kernels/gemm_fp8block/vec_avx2.inc"

enum { PREFETCH_BYTES = 16384 }; // over all streams of a thread
// gcc 12 would widen all streams at once and spill: the next stream's address waits for this one's sum, and with more rows
// than one, activations are read again rather than kept.
#define IN_ORDER(rows_, next_, sum_)                                                                         \
    do {                                                                                                     \
        __asm__("" : "+r"(next_) : "x"(sum_));                                                               \
        if ((rows_) > 1) __asm__ volatile("" ::: "memory");                                                  \
    } while (0)
#define KEEP_IN_REGISTER(x_) (void)(x_)

#include "kernels/gemm_fp8block/cpu_common.inc"
#include "kernels/gemm_fp8block/cpu_decode.inc"
#include "kernels/gemm_fp8block/cpu_prefill.inc"

void rdk_gemm_fp8block_m16_cpu_avx2(const void *args, void *ws, rdi_par *par) {
    run_decode(args, ws, par);
}
void rdk_gemm_fp8block_w8a16_m16_cpu_avx2(const void *args, void *ws, rdi_par *par) {
    run_decode(args, ws, par);
}
void rdk_gemm_fp8block_any_cpu_avx2(const void *args, void *ws, rdi_par *par) {
    run_prefill(args, ws, par);
}
void rdk_gemm_fp8block_w8a16_any_cpu_avx2(const void *args, void *ws, rdi_par *par) {
    run_prefill(args, ws, par);
}

size_t rdi_gemm_fp8block_avx2_ws(const void *args, int32_t threads) {
    return a_wide_bytes(args) + (size_t)threads * prefill_scratch_bytes(args);
}
