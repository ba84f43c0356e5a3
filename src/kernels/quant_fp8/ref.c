// SPDX-License-Identifier: Apache-2.0
// Reference of quant_fp8. For each row and each group g of 128 along k (the last one may be short):
//   y = x | rmsnorm(x) | rmsnorm(residual := round(residual + x)) | silu(x) * up | gelu(x) * up,   rounded to f32
//   s[g] = max(amax/448, 1/(448*512)), amax = max |y| over the FINITE y of the group;   q = e4m3(y / s[g])
// So one bad activation spoils its own code and nothing else: +-Inf saturates to +-448, NaN stays NaN (code 0x7f or 0xff).
// rmsnorm itself spreads an Inf or NaN over its row, as it does without quantisation.
#include "base/convert.h"
#include "kernels/quant_fp8/args.h"
#include "kernels/rows.h"

#define GROUP 128

static double load(const void *base, rd_dtype dtype, int64_t at) {
    return (double)rdi_load_f32(base, dtype, at);
}

// Adds x to the residual where asked; returns 1/rms of the row that is normalised, 1 without a norm.
static double prepare_row(const rdi_quant_args *a, int64_t m) {
    if (a->fuse == RDI_FUSE_NONE || rdi_fuse_takes_up(a->fuse)) return 1;
    double squares = 0;
    for (int64_t k = 0; k < a->k; k++) {
        double x = load(a->x, a->x_dtype, m * a->x_stride + k);
        if (a->fuse == RDI_FUSE_ADD_RMSNORM) {
            int64_t at = m * a->residual_stride + k;
            rdi_store_f32(a->residual, a->residual_dtype, at,
                          (float)(load(a->residual, a->residual_dtype, at) + x));
            x = load(a->residual, a->residual_dtype, at);
        }
        squares += x * x;
    }
    return 1 / sqrt(squares / (double)a->k + (double)a->eps);
}

static float value(const rdi_quant_args *a, double inverse, int64_t m, int64_t k) {
    double x = load(a->x, a->x_dtype, m * a->x_stride + k);
    if (a->fuse == RDI_FUSE_NONE) return (float)x;
    if (rdi_fuse_takes_up(a->fuse)) { // gelu, tanh form: 2 u = 2 sqrt(2/pi) (x + 0.044715 x^3)
        double z = a->fuse == RDI_FUSE_SILU_MUL ? x : 1.5957691216057308 * (x + 0.044715 * x * x * x);
        return (float)(x / (1 + exp(-z)) * load(a->up, a->up_dtype, m * a->up_stride + k));
    }
    if (a->fuse == RDI_FUSE_ADD_RMSNORM) x = load(a->residual, a->residual_dtype, m * a->residual_stride + k);
    return (float)(x * inverse * (load(a->norm_weight, a->norm_dtype, k) + (a->unit_offset ? 1 : 0)));
}

void rdk_quant_fp8_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_quant_args *a = args;
    (void)ws, (void)par;
    for (int64_t m = 0; m < a->m; m++) {
        double inverse = prepare_row(a, m);
        for (int64_t begin = 0; begin < a->k; begin += GROUP) {
            int64_t end = rdi_min(begin + GROUP, a->k);
            float amax = 0;
            for (int64_t k = begin; k < end; k++) {
                float y = value(a, inverse, m, k);
                if (isfinite(y)) amax = fmaxf(amax, fabsf(y));
            }
            float scale = fmaxf(amax / 448.0f, 1.0f / (448.0f * 512.0f));
            a->q_scale[m * a->q_scale_stride_m + begin / GROUP * a->q_scale_stride_k] = scale;
            for (int64_t k = begin; k < end; k++)
                a->q[m * a->q_stride + k] = rdi_e4m3_from_f32(value(a, inverse, m, k) / scale);
        }
    }
}
