// SPDX-License-Identifier: Apache-2.0
// Block-FP8 GEMM rows in portable C: the order class spelled with fmaf. Correct on every machine, not fast.
#include "kernels/gemm_fp8block/cpu_prelude.inc"
#include "kernels/gemm_fp8block/vec_generic.inc"

#define KEEP_IN_REGISTER(x_) (void)(x_)

#include "kernels/gemm_fp8block/cpu_common.inc"
#include "kernels/gemm_fp8block/cpu_prefill.inc"

void rdk_gemm_fp8block_any_cpu_generic(const void *args, void *ws, rdi_par *par) {
    run_prefill(args, ws, par);
}
void rdk_gemm_fp8block_w8a16_any_cpu_generic(const void *args, void *ws, rdi_par *par) {
    run_prefill(args, ws, par);
}

size_t rdi_gemm_fp8block_generic_ws(const void *args, int32_t threads) {
    return a_wide_bytes(args) + (size_t)threads * prefill_scratch_bytes(args);
}
