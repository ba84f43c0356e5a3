// SPDX-License-Identifier: Apache-2.0
// Reference of quant_gemm_fp8block: quant_fp8 into the workspace, then gemm_fp8block of those codes, by their references.
#include "kernels/quant_fp8/quant_gemm.h"
#include "kernels/rows.h"

typedef struct ref_places {
    size_t scales, product, bytes; // codes come first
} ref_places;

static ref_places places_of(const rdi_quant_gemm_args *a) {
    const int64_t m = a->gemm.m, groups = rdi_ceil_div(a->gemm.k, 128);
    ref_places at = {.scales = (size_t)rdi_round_up(m * a->gemm.k, 64)};
    at.product = at.scales + (size_t)rdi_round_up(m * groups * 4, 64);
    at.bytes = at.product + (a->accumulate ? (size_t)(m * a->gemm.n) * sizeof(float) : 0);
    return at;
}

size_t rdi_quant_gemm_ref_ws(const void *args, int32_t threads) {
    (void)threads;
    return places_of(args).bytes;
}

void rdk_quant_gemm_fp8block_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_quant_gemm_args *a = args;
    const ref_places at = places_of(a);
    const int64_t groups = rdi_ceil_div(a->gemm.k, 128);
    rdi_quant_args quant = a->quant;
    quant.q = ws;
    quant.q_stride = a->gemm.k;
    quant.q_scale = (float *)(void *)((unsigned char *)ws + at.scales);
    quant.q_scale_stride_m = groups;
    quant.q_scale_stride_k = 1;
    rdk_quant_fp8_cpu_ref(&quant, NULL, par);
    rdi_gemm_args gemm = a->gemm;
    gemm.a = quant.q;
    gemm.a_dtype = RD_DTYPE_E4M3;
    gemm.a_stride = quant.q_stride;
    gemm.a_scale = quant.q_scale;
    gemm.a_scale_stride_m = groups;
    gemm.a_scale_stride_k = 1;
    if (a->accumulate) {
        gemm.c = (unsigned char *)ws + at.product;
        gemm.c_stride = a->gemm.n;
    }
    rdk_gemm_fp8block_any_cpu_ref(&gemm, NULL, par);
    for (int64_t row = 0; a->accumulate && row < a->gemm.m; row++) {
        float *c = (float *)a->gemm.c + row * a->gemm.c_stride;
        const float *product = (const float *)gemm.c + row * gemm.c_stride;
        for (int64_t n = 0; n < a->gemm.n; n++) c[n] += product[n];
    }
}
