// SPDX-License-Identifier: Apache-2.0
// Reference of the block-FP8 GEMMs, accumulated in double:
//
//   C[m,n] = bias[n] + sum_b As[m,b] Ws[n/128,b] sum_{k in block b} A[m,k] W[n,k]       b = k/128; As = 1 for 16-bit A
//
// Takes everything legal: any layout, ragged N and K, padded rows, strided scales. Judges the other rows; not fast.
#include "base/convert.h"
#include "kernels/gemm_fp8block/layout.h"
#include "kernels/rows.h"

typedef struct ref_job {
    const rdi_gemm_args *args;
    rdi_tiles tiles; // weight rows
} ref_job;

static double block_dot(const rdi_gemm_args *args, int64_t m, int64_t n, int64_t k_begin, int64_t k_end) {
    double sum = 0;
    for (int64_t k = k_begin; k < k_end; k++) {
        double a = rdi_load_f32(args->a, args->a_dtype, m * args->a_stride + k);
        sum += a * rdi_load_f32(args->w, args->w_dtype, rdi_weight_offset(args, n, k));
    }
    return sum;
}

static double element(const rdi_gemm_args *args, int64_t m, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < args->k; k += RDI_GEMM_BLOCK) {
        int64_t block = k / RDI_GEMM_BLOCK,
                w_at = n / RDI_GEMM_BLOCK * args->w_scale_stride_n + block * args->w_scale_stride_k;
        double scale = rdi_load_f32(args->w_scale, args->w_scale_dtype, w_at);
        if (args->a_scale)
            scale *= args->a_scale[m * args->a_scale_stride_m + block * args->a_scale_stride_k];
        sum += scale * block_dot(args, m, n, k, rdi_min(k + RDI_GEMM_BLOCK, args->k));
    }
    return args->bias ? sum + rdi_load_f32(args->bias, args->bias_dtype, n) : sum;
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

void rdk_gemm_fp8block_any_cpu_ref(const void *args, void *ws, rdi_par *par) {
    (void)ws;
    ref_job job = {.args = args};
    rdi_tiles_init(&job.tiles, job.args->n, 16);
    rdi_par_run(par, INT32_MAX, ref_body, &job);
}

// The same sum: without activation scales, and with A widened from 16 bits.
void rdk_gemm_fp8block_w8a16_any_cpu_ref(const void *args, void *ws, rdi_par *par) {
    rdk_gemm_fp8block_any_cpu_ref(args, ws, par);
}
