// SPDX-License-Identifier: Apache-2.0
// attn_prefill and attn_decode for AVX-512 with VBMI.
#include "kernels/attn/widen_avx512.h"

#include "kernels/attn/cpu_body.inc"

void rdk_attn_prefill_cpu_avx512vbmi(const void *args, void *ws, rdi_par *par) {
    rdi_attn_cpu_run(args, ws, par, &isa);
}
void rdk_attn_decode_cpu_avx512vbmi(const void *args, void *ws, rdi_par *par) {
    rdi_attn_cpu_run(args, ws, par, &isa);
}
