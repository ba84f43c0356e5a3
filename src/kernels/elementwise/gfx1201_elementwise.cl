// SPDX-License-Identifier: Apache-2.0
// act_mul on gfx1201: a work-group takes 2048 neighbouring elements of one row, a lane eight of them. Products and the
// activation are f32, as in ref_act_mul.c, which is judged in double.
#include "kernels/elementwise/gfx1201_device.h"

// silu(x) = x / (1 + e^-x); gelu_tanh(x) = x/2 (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3).
static float activate(float x, int gelu) {
    float z = gelu ? 1.59576912f * (x + 0.044715f * x * x * x) : x;
    return z <= -200.0f ? -0.0f : divide(x, 1.0f + exp32(-z)); // -Inf / Inf would be NaN
}

kernel THREADS(RDK_ACT_MUL_THREADS) void rdk_act_mul_gfx1201(const rdk_act_mul_gfx1201_args a) {
    int k = (group_y() * RDK_ACT_MUL_THREADS + thread_in_group()) * RDK_GROUP;
    long row = group_x();
    if (k >= a.k) return;
    float8 gate = load_group(a.gate, a.x_dtype, row * a.gate_stride + k, a.k - k, a.wide);
    float8 up = load_group(a.up, a.x_dtype, row * a.up_stride + k, a.k - k, a.wide);
    for (int i = 0; i < RDK_GROUP; i++) gate[i] = activate(gate[i], a.gelu);
    store_group(a.y, a.y_dtype, row * a.y_stride + k, a.k - k, a.wide, gate * up);
}
