// SPDX-License-Identifier: Apache-2.0
// Reference of act_mul: y = act(gate) * up, with
//   silu(g)      = g / (1 + exp(-g))
//   gelu_tanh(g) = g/2 * (1 + tanh(z)), z = sqrt(2/pi) (g + 0.044715 g^3)     (arXiv 1606.08415, the tanh form)
// written as g / (1 + exp(-2z)), which is the same number without the cancellation of 1 + tanh(z) at negative z.
#include "base/convert.h"
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

static double activate(rdi_act act, double g) {
    if (act == RDI_ACT_SILU) return g / (1 + exp(-g));
    return g / (1 + exp(-2 * 0.79788456080286535588 * (g + 0.044715 * g * g * g))); // sqrt(2/pi)
}

void rdk_act_mul_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_act_mul_args *a = args;
    (void)ws, (void)par;
    for (int64_t m = 0; m < a->m; m++) {
        for (int64_t k = 0; k < a->k; k++) {
            double gate = (double)rdi_load_f32(a->gate, a->x_dtype, m * a->gate_stride + k);
            double up = (double)rdi_load_f32(a->up, a->x_dtype, m * a->up_stride + k);
            rdi_store_f32(a->y, a->y_dtype, m * a->y_stride + k, (float)(activate(a->act, gate) * up));
        }
    }
}
