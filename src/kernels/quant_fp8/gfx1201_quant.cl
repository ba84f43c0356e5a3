// SPDX-License-Identifier: Apache-2.0
// quant_fp8 and its fusions on gfx1201: eight elements a lane, so that sixteen lanes are one group of 128 and its maximum is
// four exchanges inside a row of lanes. A row's bits depend on that row alone. Non-finite activations: see ref.c.
#include "kernels/elementwise/gfx1201_device.h"
#include "kernels/quant_fp8/gfx1201_args.h"

// y / scale rounded to nearest, from reciprocal = RN(1 / scale): one Newton step on the quotient (Markstein). The scale's range,
// 2^-18 to 2^120, keeps the reciprocal normal; where the remainder underflows the code is 0 either way.
static float quotient(float y, float scale, float reciprocal) {
    float q = y * reciprocal;
    return __builtin_copysignf(fma32(fma32(-q, scale, y), reciprocal, q), y); // -0 stays -0
}

// The scale of the group that this lane and fifteen neighbours hold: the largest finite magnitude over 448, with a floor.
static float group_scale(float8 y) {
    float amax = 0;
    for (int i = 0; i < RDK_GROUP; i++) {
        uint magnitude = as_uint(y[i]) & 0x7fffffffu;
        float finite = as_float(magnitude < 0x7f800000u ? magnitude : 0u);
        amax = __builtin_fmaxf(amax, finite);
    }
    amax = __builtin_fmaxf(amax, as_float(ROW_XMASK(as_int(amax), 1)));
    amax = __builtin_fmaxf(amax, as_float(ROW_XMASK(as_int(amax), 2)));
    amax = __builtin_fmaxf(amax, as_float(ROW_XMASK(as_int(amax), 4)));
    amax = __builtin_fmaxf(amax, as_float(ROW_XMASK(as_int(amax), 8)));
    return __builtin_fmaxf(divide(amax, 448.0f), 1.0f / (448.0f * 512.0f));
}

// Codes of the lane's eight elements from column k on and, by the first of sixteen lanes, the group's scale.
static void quant_eight(const rdk_quant_fp8_gfx1201_args *a, long row, int k, float8 y) {
    float scale = group_scale(y), reciprocal = divide(1.0f, scale);
    int words[2];
    if (k >= a->k) return;
    for (int i = 0; i < RDK_GROUP; i++) {
        float code = quotient(y[i], scale, reciprocal);
        y[i] = __builtin_isinf(y[i]) ? __builtin_copysignf(448.0f, y[i]) : code;
    }
    for (int i = 0; i < 2; i++) {
        words[i] = __builtin_amdgcn_cvt_pk_fp8_f32(y[4 * i], y[4 * i + 1], 0, false);
        words[i] = __builtin_amdgcn_cvt_pk_fp8_f32(y[4 * i + 2], y[4 * i + 3], words[i], true);
    }
    global uchar *to = a->q + row * a->q_stride + k;
    if (a->wide && k + RDK_GROUP <= a->k)
        *(global int2 *)to = (int2)(words[0], words[1]);
    else
        for (int i = 0; i < RDK_GROUP; i++)
            if (k + i < a->k) to[i] = (uchar)(words[i / 4] >> 8 * (i % 4));
    if (k % RDK_QUANT_SCALE_GROUP == 0)
        a->q_scale[row * a->q_scale_stride_m + k / RDK_QUANT_SCALE_GROUP * a->q_scale_stride_k] = scale;
}

// y = x, or an activation of x times up: every group by itself, 2048 elements a work-group.
kernel THREADS(RDK_QUANT_THREADS) void rdk_quant_fp8_gfx1201_groups(const rdk_quant_fp8_gfx1201_args a) {
    long row = group_x();
    int k = (group_y() * RDK_QUANT_THREADS + thread_in_group()) * RDK_GROUP;
    float8 y = load_group(a.x, a.x_dtype, row * a.x_stride + k, a.k - k, a.wide);
    if (a.up) {
        float8 up = load_group(a.up, a.up_dtype, row * a.up_stride + k, a.k - k, a.wide);
        for (int i = 0; i < RDK_GROUP; i++) y[i] = activate(y[i], a.gelu) * up[i];
    }
    quant_eight(&a, row, k, y);
}

// y = rmsnorm(x), or of the residual after x was added to it: a work-group a row, which it reads twice.
kernel THREADS(RDK_QUANT_THREADS) void rdk_quant_fp8_gfx1201_norm(const rdk_quant_fp8_gfx1201_args a) {
    local float partial[RDK_QUANT_THREADS / 32];
    long row = group_x(), x_at = row * a.x_stride, sum_at = row * a.residual_stride;
    int first = thread_in_group() * RDK_GROUP, step = RDK_QUANT_THREADS * RDK_GROUP;
    float squares = 0;
    for (int begin = 0; begin < a.k; begin += step) {
        int k = begin + first;
        float8 x = load_group(a.x, a.x_dtype, x_at + k, a.k - k, a.wide);
        if (a.residual) { // the norm is taken of the stored, rounded sum
            x += load_group(a.residual, a.residual_dtype, sum_at + k, a.k - k, a.wide);
            store_group(a.residual, a.residual_dtype, sum_at + k, a.k - k, a.wide, x);
            for (int i = 0; i < RDK_GROUP; i++) x[i] = rounded_to(a.residual_dtype, x[i]);
        }
        for (int i = 0; i < RDK_GROUP; i++) squares = fma32(x[i], x[i], squares);
    }
    squares = wave_sum(squares);
    if (lane_of_wave() == 0) partial[wave_of_group()] = squares;
    group_barrier();
    float sum = partial[0];
    for (int i = 1; i < RDK_QUANT_THREADS / 32; i++) sum += partial[i];
    float inverse = divide(1.0f, __builtin_sqrtf(divide(sum, (float)a.k) + a.eps)), offset = a.unit_offset ? 1.0f : 0.0f;
    global const void *source = a.residual ? a.residual : a.x;
    int dtype = a.residual ? a.residual_dtype : a.x_dtype;
    long at = a.residual ? sum_at : x_at;
    for (int begin = 0; begin < a.k; begin += step) { // the same bounds in every lane: the maxima need all sixteen
        int k = begin + first;
        float8 x = load_group(source, dtype, at + k, a.k - k, a.wide);
        float8 weight = load_group(a.weight, a.weight_dtype, k, a.k - k, a.wide);
        quant_eight(&a, row, k, x * inverse * (weight + offset));
    }
}
