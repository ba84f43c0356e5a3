// SPDX-License-Identifier: Apache-2.0
// quant_fp8 on Hopper. Sixteen lanes hold a 1x128 group, eight elements each: its largest magnitude is four shuffles away.
// Alone and after silu*mul every group is on its own; after a norm one block holds the row.
#include "kernels/common/sm90a_rows.cuh"
#include "kernels/quant_fp8/sm90a_args.h"

// Scale and codes of the group that these sixteen lanes hold. The scale comes from the finite values; `count` elements exist.
__device__ __forceinline__ void quantise(const rdk_quant_sm90a_args &args, int32_t row, int32_t at, int32_t count, eight e) {
    float top = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) top = fmaxf(top, isfinite(e.v[i]) ? fabsf(e.v[i]) : 0.0f);
#pragma unroll
    for (int step = 8; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    if (count <= 0) return;
    float scale = fmaxf(__fdiv_rn(top, 448.0f), 1.0f / (448.0f * 512.0f)), inverse = __frcp_rn(scale);
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = divide_by(e.v[i], scale, inverse);
    uint2 codes = pack_e4m3(e);
    unsigned char *to = args.q + row * args.q_stride + at;
    if (count >= 8 && (uint64_t)to % 8 == 0)
        *reinterpret_cast<uint2 *>(to) = codes;
    else
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count) to[i] = (unsigned char)((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
    if (threadIdx.x % 16 == 0)
        args.q_scale[row * args.q_scale_stride_m + at / RDK_QUANT_GROUP * args.q_scale_stride_k] = scale;
}

extern "C" __global__ void __launch_bounds__(RDK_QUANT_THREADS)
    rdk_quant_fp8_sm90a(const __grid_constant__ rdk_quant_sm90a_args args) {
    launch_dependents();
    int64_t group = (int64_t)blockIdx.x * (RDK_QUANT_THREADS / 16) + threadIdx.x / 16;
    int32_t row = (int32_t)(group / args.groups), at = (int32_t)(group % args.groups) * RDK_QUANT_GROUP + threadIdx.x % 16 * 8;
    int32_t count = row < args.m ? args.k - at : 0;
    wait_dependencies();
    raw_eight x = load_raw(args.x, row * args.x_stride + at, count, args.x_type), up = {};
    if (args.up) up = load_raw(args.up, row * args.up_stride + at, count, args.up_type);
    eight e = unpack(x, args.x_type);
    if (args.up) {
        eight factor = unpack(up, args.up_type);
#pragma unroll
        for (int i = 0; i < 8; i++) e.v[i] = e.v[i] / (1.0f + expf(-e.v[i])) * factor.v[i];
    }
    quantise(args, row, at, count, e);
}

template <int TURNS, bool VECTOR> __device__ __forceinline__ void norm_and_quantise(const rdk_quant_sm90a_args &args) {
    launch_dependents();
    const norm_rows rows = {args.x, args.norm_weight, args.residual,      args.x_stride,  args.residual_stride, args.m,
                            args.k, args.x_type,      args.residual_type, args.norm_type, args.eps,             args.weight_offset};
    normalise<TURNS, VECTOR>(rows, [&](int32_t row, int32_t at, int32_t count, const eight &e) { quantise(args, row, at, count, e); });
}

#define NORM_KERNEL(name_, turns_, vector_, blocks_)                                                                              \
    extern "C" __global__ void __launch_bounds__(1024, blocks_) name_(const __grid_constant__ rdk_quant_sm90a_args args) {           \
        norm_and_quantise<turns_, vector_>(args);                                                                                  \
    }
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_x1, 1, false, 1)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_x2, 2, false, 1)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_vector_x1, 1, true, 1)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_dense_x1, 1, true, 2) // many rows: two blocks of 1024 threads at once are worth a few spilled words
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_vector_x2, 2, true, 1)
