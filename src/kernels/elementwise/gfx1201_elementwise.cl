// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels on gfx1201. act_mul: a work-group takes RDK_ACT_MUL_BLOCK * 8 neighbouring elements of one row, a lane
// eight of them, so that a 16-bit operand is one 16-byte load. Products and the activation are f32, as in ref_act_mul.c,
// which is judged in double.
#include "kernels/elementwise/gfx1201_args.h"

#define LANE_ELEMS RDK_ACT_MUL_LANE_ELEMS
typedef uint v4u __attribute__((ext_vector_type(4)));
typedef half v8h __attribute__((ext_vector_type(8)));

static float bf16_load(ushort code) {
    return as_float((uint)code << 16);
}

// Nearest, ties to even; NaN stays NaN.
static ushort bf16_store(float value) {
    uint bits = as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (ushort)(bits >> 16 | 0x40u);
    return (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float load_one(global const void *data, int type, long at) {
    if (type == RDK_BF16) return bf16_load(((global const ushort *)data)[at]);
    if (type == RDK_F16) return (float)((global const half *)data)[at];
    return ((global const float *)data)[at];
}

static void store_one(global void *data, int type, long at, float value) {
    if (type == RDK_BF16)
        ((global ushort *)data)[at] = bf16_store(value);
    else if (type == RDK_F16)
        ((global half *)data)[at] = (half)value;
    else
        ((global float *)data)[at] = value;
}

static void load_eight(global const void *data, int type, long at, float *out) {
    if (type == RDK_F32) {
        global const float *from = (global const float *)data + at;
        for (int i = 0; i < LANE_ELEMS; i++) out[i] = from[i];
        return;
    }
    v4u words = *(global const v4u *)((global const ushort *)data + at);
    v8h halves = __builtin_bit_cast(v8h, words);
    for (int i = 0; i < LANE_ELEMS; i++)
        out[i] = type == RDK_F16 ? (float)halves[i] : as_float(i & 1 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
}

static void store_eight(global void *data, int type, long at, const float *in) {
    if (type == RDK_F32) {
        global float *to = (global float *)data + at;
        for (int i = 0; i < LANE_ELEMS; i++) to[i] = in[i];
        return;
    }
    v4u words;
    for (int i = 0; i < 4; i++)
        words[i] = type == RDK_F16 ? (uint)as_ushort((half)in[2 * i]) | (uint)as_ushort((half)in[2 * i + 1]) << 16
                                   : (uint)bf16_store(in[2 * i]) | (uint)bf16_store(in[2 * i + 1]) << 16;
    *(global v4u *)((global ushort *)data + at) = words;
}

// sigmoid(z) = 1 / (1 + 2^(-z log2 e)). For very negative z the power is infinite and the quotient 0, as it should be.
static float sigmoid(float z) {
    return 1.0f / (1.0f + __builtin_amdgcn_exp2f(-1.44269504f * z));
}

// gelu_tanh(x) = x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
static float activate(float x, int gelu) {
    float z = gelu ? 1.59576912f * (x + 0.044715f * x * x * x) : x;
    return z <= -200.0f ? -0.0f : x * sigmoid(z); // -Inf * 0 would be NaN
}

__attribute__((reqd_work_group_size(RDK_ACT_MUL_BLOCK, 1, 1)))
kernel void rdk_act_mul_gfx1201(const rdk_act_mul_gfx1201_args a) {
    long row = __builtin_amdgcn_workgroup_id_y();
    int first = (__builtin_amdgcn_workgroup_id_x() * RDK_ACT_MUL_BLOCK + __builtin_amdgcn_workitem_id_x()) * LANE_ELEMS;
    long gate = row * a.gate_stride + first, up = row * a.up_stride + first, y = row * a.y_stride + first;
    if (a.aligned && first + LANE_ELEMS <= a.k) {
        float g[LANE_ELEMS], u[LANE_ELEMS];
        load_eight(a.gate, a.x_type, gate, g);
        load_eight(a.up, a.x_type, up, u);
        for (int i = 0; i < LANE_ELEMS; i++) g[i] = activate(g[i], a.gelu) * u[i];
        store_eight(a.y, a.y_type, y, g);
        return;
    }
    for (int i = 0; i < LANE_ELEMS && first + i < a.k; i++)
        store_one(a.y, a.y_type, y + i,
                  activate(load_one(a.gate, a.x_type, gate + i), a.gelu) * load_one(a.up, a.x_type, up + i));
}
