// SPDX-License-Identifier: Apache-2.0
// act_mul on gfx1201: a work-group takes 2048 neighbouring elements of one row, a lane eight of them. Products and the
// activation are f32, as in ref_act_mul.c, which is judged in double.
#include "kernels/elementwise/gfx1201_device.h"

kernel THREADS(RDK_ACT_MUL_THREADS) void rdk_act_mul_gfx1201(const rdk_act_mul_gfx1201_args a) {
    int k = (group_y() * RDK_ACT_MUL_THREADS + thread_in_group()) * RDK_GROUP;
    long row = group_x();
    if (k >= a.k) return;
    float8 gate = load_group(a.gate, a.x_dtype, row * a.gate_stride + k, a.k - k, a.wide);
    float8 up = load_group(a.up, a.x_dtype, row * a.up_stride + k, a.k - k, a.wide);
    for (int i = 0; i < RDK_GROUP; i++) gate[i] = activate(gate[i], a.gelu);
    store_group(a.y, a.y_dtype, row * a.y_stride + k, a.k - k, a.wide, gate * up);
}
