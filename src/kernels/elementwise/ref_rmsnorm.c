// SPDX-License-Identifier: Apache-2.0
// Reference of rmsnorm, the judge of every other row. For each row of m:
//   r = residual ? (residual := round(residual + x)) : x
//   y = r / sqrt(sum(r^2) / k + eps) * (weight + unit_offset)
// The norm is taken of the STORED sum, so that add and norm in one call give what two calls give.
#include "base/convert.h"
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

static double load(const void *base, rd_dtype dtype, int64_t at) {
    return (double)rdi_load_f32(base, dtype, at);
}

void rdk_rmsnorm_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_rmsnorm_args *a = args;
    (void)ws, (void)par;
    for (int64_t m = 0; m < a->m; m++) {
        const void *source = a->x;
        rd_dtype dtype = a->x_dtype;
        int64_t base = m * a->x_stride;
        if (a->residual) {
            int64_t residual_base = m * a->residual_stride;
            for (int64_t k = 0; k < a->k; k++) {
                double sum =
                    load(a->residual, a->residual_dtype, residual_base + k) + load(source, dtype, base + k);
                rdi_store_f32(a->residual, a->residual_dtype, residual_base + k, (float)sum);
            }
            source = a->residual, dtype = a->residual_dtype, base = residual_base;
        }
        double squares = 0;
        for (int64_t k = 0; k < a->k; k++) squares += pow(load(source, dtype, base + k), 2);
        double inverse = 1 / sqrt(squares / (double)a->k + (double)a->eps);
        for (int64_t k = 0; k < a->k; k++) {
            double weight = load(a->weight, a->weight_dtype, k) + (a->unit_offset ? 1 : 0);
            double y = load(source, dtype, base + k) * inverse * weight;
            rdi_store_f32(a->y, a->y_dtype, m * a->y_stride + k, (float)y);
        }
    }
}
