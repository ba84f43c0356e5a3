// SPDX-License-Identifier: Apache-2.0
// The halves of quant_gemm_fp8block, checked and bound for the ops themselves and for the one of both. `op` begins error texts.
#ifndef RDI_OPS_QUANT_GEMM_H
#define RDI_OPS_QUANT_GEMM_H

#include "kernels/quant_fp8/quant_gemm.h"
#include "ops/plan.h"

// Of quant_fp8: args as they are, nothing but `fuse` checked; then what it reads.
rd_status rdi_quant_bind(const rd_plan *plan, const char *op, const rd_quant_args *args, rdi_quant_args *out);
rd_status rdi_quant_check_input(const rd_plan *plan, const char *op, const rd_quant_args *args,
                                rdi_quant_fuse fuse);
// Of a block-FP8 GEMM of m rows of k: all but a and a_scale.
rd_status rdi_gemm_bind_product(const rd_plan *plan, const char *op, const rd_gemm_args *args, int64_t m,
                                int64_t k, rdi_gemm_args *out);

#endif // RDI_OPS_QUANT_GEMM_H
