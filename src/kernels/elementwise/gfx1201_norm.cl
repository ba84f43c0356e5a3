// SPDX-License-Identifier: Apache-2.0
// rmsnorm and embed on gfx1201: a work-group a row, or (embed) 2048 elements of one, eight elements a lane. A row's bits
// depend on that row alone.
#include "kernels/elementwise/gfx1201_device.h"

// The sum of the group's threads, the same in each: waves first, then their sums in wave order.
static float group_sum(float x, local float *partial) {
    x = wave_sum(x);
    if (lane_of_wave() == 0) partial[wave_of_group()] = x;
    group_barrier();
    float sum = partial[0];
    for (int i = 1; i < RDK_NORM_THREADS / 32; i++) sum += partial[i];
    return sum;
}

kernel THREADS(RDK_NORM_THREADS) void rdk_rmsnorm_gfx1201(const rdk_rmsnorm_gfx1201_args a) {
    local float partial[RDK_NORM_THREADS / 32];
    int row = group_x(), first = thread_in_group() * RDK_GROUP, step = RDK_NORM_THREADS * RDK_GROUP;
    long x_at = row * a.x_stride, sum_at = row * a.residual_stride, y_at = row * a.y_stride;
    float squares = 0;
    for (int k = first; k < a.k; k += step) {
        float8 x = load_group(a.x, a.x_dtype, x_at + k, a.k - k, a.wide);
        if (a.residual) { // the norm is taken of the stored, rounded sum
            x += load_group(a.residual, a.residual_dtype, sum_at + k, a.k - k, a.wide);
            store_group(a.residual, a.residual_dtype, sum_at + k, a.k - k, a.wide, x);
            for (int i = 0; i < RDK_GROUP; i++) x[i] = rounded_to(a.residual_dtype, x[i]);
        }
        for (int i = 0; i < RDK_GROUP; i++) squares = fma32(x[i], x[i], squares);
    }
    float mean = divide(group_sum(squares, partial), (float)a.k);
    float inverse = divide(1.0f, __builtin_sqrtf(mean + a.eps)), offset = a.unit_offset ? 1.0f : 0.0f;
    global const void *source = a.residual ? a.residual : a.x;
    int dtype = a.residual ? a.residual_dtype : a.x_dtype;
    long at = a.residual ? sum_at : x_at;
    for (int k = first; k < a.k; k += step) {
        float8 x = load_group(source, dtype, at + k, a.k - k, a.wide);
        float8 weight = load_group(a.weight, a.weight_dtype, k, a.k - k, a.wide);
        store_group(a.y, a.y_dtype, y_at + k, a.k - k, a.wide, x * inverse * (weight + offset));
    }
}

// An id outside the table, which the host cannot see here, gives NaN: no memory is read, and no sampler takes the row.
kernel THREADS(RDK_EMBED_THREADS) void rdk_embed_gfx1201(const rdk_embed_gfx1201_args a) {
    int k = (group_y() * RDK_EMBED_THREADS + thread_in_group()) * RDK_GROUP, token = group_x(), id = a.ids[token];
    if (k >= a.k) return;
    float8 y = as_float(0x7fc00000);
    if (id >= 0 && id < a.vocab)
        y = load_group(a.table, a.table_dtype, id * a.table_stride + k, a.k - k, a.wide) * a.scale;
    store_group(a.y, a.y_dtype, token * a.y_stride + k, a.k - k, a.wide, y);
}
