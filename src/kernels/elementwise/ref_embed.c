// SPDX-License-Identifier: Apache-2.0
// Reference of embed: y[t] = table[ids[t]] * scale, rounded once.
#include "base/convert.h"
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

void rdk_embed_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_embed_args *a = args;
    (void)ws, (void)par;
    for (int64_t t = 0; t < a->tokens; t++) {
        for (int64_t k = 0; k < a->k; k++) {
            double x = (double)rdi_load_f32(a->table, a->table_dtype, a->ids[t] * a->table_stride + k);
            rdi_store_f32(a->y, a->y_dtype, t * a->y_stride + k, (float)(x * (double)a->scale));
        }
    }
}
