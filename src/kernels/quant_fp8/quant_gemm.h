// SPDX-License-Identifier: Apache-2.0
// Arguments of every quant_gemm_fp8block kernel: quant_fp8 whose codes stay inside, and the GEMM that takes them.
#ifndef RDI_QUANT_GEMM_H
#define RDI_QUANT_GEMM_H

#include "kernels/gemm_fp8block/args.h"
#include "kernels/quant_fp8/args.h"

#include <stdbool.h>

typedef struct rdi_quant_gemm_args {
    rdi_quant_args quant; // q and q_scale: NULL
    rdi_gemm_args gemm;   // a and a_scale: NULL
    bool accumulate;      // c += product; c is f32 then
} rdi_quant_gemm_args;

#endif // RDI_QUANT_GEMM_H
