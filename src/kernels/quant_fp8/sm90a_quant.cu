// SPDX-License-Identifier: Apache-2.0
// quant_fp8 on Hopper. Sixteen lanes hold a 1x128 group, eight elements each: its largest magnitude is two reductions of the
// warp away. Alone and after silu*mul or gelu*mul every group is on its own; after a norm a block or a cluster holds the row.
#include "kernels/common/sm90a_codes.cuh"
#include "kernels/common/sm90a_norm.cuh"
#include "kernels/quant_fp8/sm90a_args.h"

__device__ __forceinline__ quant_place place_of(const rdk_quant_sm90a_args &args, int64_t row, int32_t at) {
    return {args.q + row * args.q_stride + at, args.q_scale + row * args.q_scale_stride_m + at / RDK_QUANT_GROUP * args.q_scale_stride_k};
}

__device__ __forceinline__ void quantise(const rdk_quant_sm90a_args &args, row_pieces<2> &p) {
    quantise(p, {place_of(args, p.row[0], p.at[0]), place_of(args, p.row[1], p.at[1])});
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
    row_pieces<ROWS> p;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        p.row[r] = first + r, p.at[r] = at, p.count[r] = first + r < args.m ? count : 0;
        p.e[r] = unpack(x[r], args.x_type);
        if (!args.up) continue;
        eight factor = unpack(up[r], args.up_type);
#pragma unroll
        for (int i = 0; i < 8; i++) p.e[r].v[i] = activate(p.e[r].v[i], args.gelu != 0) * factor.v[i];
    }
    quant_place to[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) to[r] = place_of(args, p.row[r], at);
    quantise(p, to);
}
extern "C" __global__ void __launch_bounds__(RDK_QUANT_THREADS)
    rdk_quant_fp8_sm90a_one(const __grid_constant__ rdk_quant_sm90a_args args) {
    quantise_rows<1>(args);
}
extern "C" __global__ void __launch_bounds__(RDK_QUANT_THREADS, 10)
    rdk_quant_fp8_sm90a_many(const __grid_constant__ rdk_quant_sm90a_args args) {
    quantise_rows<RDK_QUANT_ROWS>(args);
}

__device__ __forceinline__ norm_rows rows_of(const rdk_quant_sm90a_args &args) {
    return {args.x,      args.norm_weight,   args.residual,  args.x_stride, args.residual_stride, args.k,
            args.x_type, args.residual_type, args.norm_type, args.eps,      args.weight_offset};
}
extern "C" __global__ void __launch_bounds__(1024)
    rdk_quant_fp8_norm_sm90a_any(const __grid_constant__ rdk_quant_sm90a_args args) {
    launch_dependents();
    normalise(rows_of(args), [&](row_pieces<2> &p) { quantise(args, p); });
}
template <int TYPE, bool RESIDUAL> __device__ __forceinline__ void norm_vectors(const rdk_quant_sm90a_args &args) {
    launch_dependents();
    normalise_vectors<TYPE, RESIDUAL>(rows_of(args), [&](row_pieces<2> &p) { quantise(args, p); });
}
template <int TYPE, bool RESIDUAL> __device__ __forceinline__ void norm_cluster_of(const rdk_quant_sm90a_args &args) {
    launch_dependents();
    const int32_t row = blockIdx.x / RDK_NORM_BLOCKS, at = norm_cluster_at();
    const quant_place to = {kept(place_of(args, row, at).q), kept(place_of(args, row, at).scale)};
    normalise_cluster<TYPE, RESIDUAL>(rows_of(args), [&](row_pieces<1> &p) { quantise(p, {to}); });
}
NORM_KERNELS(rdk_quant_fp8_norm_sm90a_f32, rdk_quant_sm90a_args, norm_vectors, norm_cluster_of, RDK_F32, false)
NORM_KERNELS(rdk_quant_fp8_norm_sm90a_f32_add, rdk_quant_sm90a_args, norm_vectors, norm_cluster_of, RDK_F32, true)
NORM_KERNELS(rdk_quant_fp8_norm_sm90a_bf16, rdk_quant_sm90a_args, norm_vectors, norm_cluster_of, RDK_BF16, false)
NORM_KERNELS(rdk_quant_fp8_norm_sm90a_bf16_add, rdk_quant_sm90a_args, norm_vectors, norm_cluster_of, RDK_BF16, true)
NORM_KERNELS(rdk_quant_fp8_norm_sm90a_f16, rdk_quant_sm90a_args, norm_vectors, norm_cluster_of, RDK_F16, false)
NORM_KERNELS(rdk_quant_fp8_norm_sm90a_f16_add, rdk_quant_sm90a_args, norm_vectors, norm_cluster_of, RDK_F16, true)
