// SPDX-License-Identifier: Apache-2.0
// Reference of the GEMM with bf16 weights, accumulated in double:  C[m,n] = bias[n] + sum_k A[m,k] W[n,k]
#include "base/convert.h"
#include "kernels/gemm_fp8block/layout.h"
#include "kernels/rows.h"

typedef struct ref_job {
    const rdi_gemm_args *args;
    rdi_tiles tiles; // weight rows
} ref_job;

static double element(const rdi_gemm_args *args, int64_t m, int64_t n) {
    double sum = args->bias ? rdi_load_f32(args->bias, args->bias_dtype, n) : 0;
    for (int64_t k = 0; k < args->k; k++) {
        double a = rdi_load_f32(args->a, args->a_dtype, m * args->a_stride + k);
        sum += a * rdi_load_f32(args->w, args->w_dtype, rdi_weight_offset(args, n, k));
    }
    return sum;
}

static void ref_body(void *arg, int32_t worker, int32_t workers) {
    (void)worker;
    (void)workers;
    ref_job *job = arg;
    const rdi_gemm_args *args = job->args;
    for (int64_t n, end; rdi_tiles_next(&job->tiles, &n, &end);)
        for (; n < end; n++)
            for (int64_t m = 0; m < args->m; m++)
                rdi_store_f32(args->c, args->c_dtype, m * args->c_stride + n, (float)element(args, m, n));
}

void rdk_gemm_bf16_any_cpu_ref(const void *args, void *ws, rdi_par *par) {
    (void)ws;
    ref_job job = {.args = args};
    rdi_tiles_init(&job.tiles, job.args->n, 16);
    rdi_par_run(par, INT32_MAX, ref_body, &job);
}
