// SPDX-License-Identifier: Apache-2.0
// A GEMM's arguments for tests of geometry: addresses that nothing reads, rows without padding, f32 scales, bf16 out.
#ifndef TEST_SUPPORT_GEMM_ARGS_H
#define TEST_SUPPORT_GEMM_ARGS_H

#include "kernels/gemm_fp8block/args.h"

static inline rdi_gemm_args gemm_args(int64_t m, int64_t n, int64_t k, rd_dtype a_dtype, rd_dtype w_dtype) {
    return (rdi_gemm_args){.m = m,
                           .n = n,
                           .k = k,
                           .a = (void *)4096,
                           .a_stride = k,
                           .w = (void *)8192,
                           .w_stride = k,
                           .c = (void *)16384,
                           .c_stride = n,
                           .a_dtype = a_dtype,
                           .w_dtype = w_dtype,
                           .w_scale_dtype = RD_DTYPE_F32,
                           .c_dtype = RD_DTYPE_BF16};
}

#endif // TEST_SUPPORT_GEMM_ARGS_H
