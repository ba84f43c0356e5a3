// SPDX-License-Identifier: Apache-2.0
// attn_prefill and attn_decode for any machine: slow where fmaf is a library call, but the same bits.
#include "kernels/attn/widen_portable.h"

#include "kernels/attn/cpu_body.inc"

void rdk_attn_prefill_cpu_portable(const void *args, void *ws, rdi_par *par) {
    rdi_attn_cpu_run(args, ws, par, &isa);
}
void rdk_attn_decode_cpu_portable(const void *args, void *ws, rdi_par *par) {
    rdi_attn_cpu_run(args, ws, par, &isa);
}
