// SPDX-License-Identifier: Apache-2.0
// quant_fp8 on Hopper. Sixteen lanes hold a 1x128 group, eight elements each: its largest magnitude is four shuffles away.
// Alone and after silu*mul every group is on its own; after a norm one block holds the row.
#include "kernels/common/sm90a_norm.cuh"
#include "kernels/quant_fp8/sm90a_args.h"

// Scale and codes of the group that these sixteen lanes hold. The scale comes from the finite values; `count` elements exist.
__device__ __forceinline__ void quantise(const rdk_quant_sm90a_args &args, int32_t row, int32_t at, int32_t count, eight e) {
    float top = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) top = fmaxf(top, fabsf(e.v[i])); // NaN counts as nothing
    if (top == INFINITY) {
        top = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) top = fmaxf(top, isfinite(e.v[i]) ? fabsf(e.v[i]) : 0.0f);
    }
#pragma unroll
    for (int step = 8; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    if (count <= 0) return;
    float scale = fmaxf(divide_by(top, 448.0f, 1.0f / 448.0f), 1.0f / (448.0f * 512.0f)), inverse = __frcp_rn(scale);
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

// ROWS rows of 1024 columns a block, grid (rows, columns): with many rows several loads are in flight.
template <int ROWS> __device__ __forceinline__ void quantise_rows(const rdk_quant_sm90a_args &args) {
    launch_dependents();
    int32_t first = blockIdx.x * ROWS, at = (blockIdx.y * RDK_QUANT_THREADS + threadIdx.x) * 8, count = args.k - at;
    wait_dependencies();
    raw_eight x[ROWS], up[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int32_t row = first + r, left = row < args.m ? count : 0;
        x[r] = load_raw(args.x, row * args.x_stride + at, left, args.x_type);
        if (args.up) up[r] = load_raw(args.up, row * args.up_stride + at, left, args.up_type);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        eight e = unpack(x[r], args.x_type);
        if (args.up) {
            eight factor = unpack(up[r], args.up_type);
#pragma unroll
            for (int i = 0; i < 8; i++) e.v[i] = e.v[i] / (1.0f + expf(-e.v[i])) * factor.v[i];
        }
        quantise(args, first + r, at, first + r < args.m ? count : 0, e);
    }
}
extern "C" __global__ void __launch_bounds__(RDK_QUANT_THREADS)
    rdk_quant_fp8_sm90a_one(const __grid_constant__ rdk_quant_sm90a_args args) {
    quantise_rows<1>(args);
}
extern "C" __global__ void __launch_bounds__(RDK_QUANT_THREADS)
    rdk_quant_fp8_sm90a_many(const __grid_constant__ rdk_quant_sm90a_args args) {
    quantise_rows<RDK_QUANT_ROWS>(args);
}

__device__ __forceinline__ norm_rows rows_of(const rdk_quant_sm90a_args &args) {
    return {args.x, args.norm_weight, args.residual,      args.x_stride,  args.residual_stride, args.m,
            args.k, args.x_type,      args.residual_type, args.norm_type, args.eps,             args.weight_offset};
}
extern "C" __global__ void __launch_bounds__(1024)
    rdk_quant_fp8_norm_sm90a_any(const __grid_constant__ rdk_quant_sm90a_args args) {
    launch_dependents();
    normalise(rows_of(args), [&](int32_t row, int32_t at, int32_t count, const eight &e) { quantise(args, row, at, count, e); });
}
template <int TYPE, bool RESIDUAL> __device__ __forceinline__ void norm_vectors(const rdk_quant_sm90a_args &args) {
    launch_dependents();
    normalise_vectors<TYPE, RESIDUAL>(
        rows_of(args), [&](int32_t row, int32_t at, int32_t count, const eight &e) { quantise(args, row, at, count, e); });
}
#define NORM_KERNEL(name_, type_, residual_)                                                                             \
    extern "C" __global__ void __launch_bounds__(1024) name_(const __grid_constant__ rdk_quant_sm90a_args args) {        \
        norm_vectors<type_, residual_>(args);                                                                            \
    }
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_bf16, RDK_BF16, false)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_bf16_add, RDK_BF16, true)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_f16, RDK_F16, false)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_f16_add, RDK_F16, true)
