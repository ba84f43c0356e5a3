// SPDX-License-Identifier: Apache-2.0
// quant_fp8 on Hopper. Sixteen lanes hold a 1x128 group, eight elements each: its largest magnitude is four shuffles away.
// Alone and after silu*mul every group is on its own; after a norm one block holds the row.
#include "kernels/common/sm90a_norm.cuh"
#include "kernels/quant_fp8/sm90a_args.h"

// Scale and codes of the groups that these sixteen lanes hold, one of each piece. The scale comes from the finite values.
template <int PIECES>
__device__ __forceinline__ void quantise(const rdk_quant_sm90a_args &args, const int32_t (&row)[PIECES], const int32_t (&at)[PIECES],
                                         const int32_t (&count)[PIECES], eight (&e)[PIECES]) {
    float top[PIECES];
    bool infinite = false;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        top[p] = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) top[p] = fmaxf(top[p], fabsf(e[p].v[i])); // NaN counts as nothing
        infinite = infinite || top[p] == INFINITY;
    }
    if (infinite)
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            top[p] = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) top[p] = fmaxf(top[p], isfinite(e[p].v[i]) ? fabsf(e[p].v[i]) : 0.0f);
        }
#pragma unroll
    for (int step = 8; step; step /= 2)
#pragma unroll
        for (int p = 0; p < PIECES; p++) top[p] = fmaxf(top[p], __shfl_xor_sync(0xffffffffu, top[p], step));
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        if (count[p] <= 0) continue;
        float scale = fmaxf(divide_by(top[p], 448.0f, 1.0f / 448.0f), 1.0f / (448.0f * 512.0f)), inverse = __frcp_rn(scale);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float q = e[p].v[i] * inverse, exact = fmaf(fmaf(-q, scale, e[p].v[i]), inverse, q); // as divide_by
            e[p].v[i] = infinite && !isfinite(q) ? q : exact;
        }
        uint2 codes = pack_e4m3(e[p]);
        unsigned char *to = args.q + row[p] * args.q_stride + at[p];
        if (count[p] >= 8 && (uint64_t)to % 8 == 0)
            *reinterpret_cast<uint2 *>(to) = codes;
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < count[p]) to[i] = (unsigned char)((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
        if (threadIdx.x % 16 == 0)
            args.q_scale[row[p] * args.q_scale_stride_m + at[p] / RDK_QUANT_GROUP * args.q_scale_stride_k] = scale;
    }
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
    eight e[ROWS];
    int32_t row[ROWS], column[ROWS], left[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        row[r] = first + r, column[r] = at, left[r] = first + r < args.m ? count : 0;
        e[r] = unpack(x[r], args.x_type);
        if (!args.up) continue;
        eight factor = unpack(up[r], args.up_type);
#pragma unroll
        for (int i = 0; i < 8; i++) e[r].v[i] = e[r].v[i] / (1.0f + expf(-e[r].v[i])) * factor.v[i];
    }
    quantise(args, row, column, left, e);
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
    normalise(rows_of(args), [&](two_pieces &p) { quantise(args, {p.row, p.row}, p.at, p.count, p.e); });
}
template <int TYPE, bool RESIDUAL> __device__ __forceinline__ void norm_vectors(const rdk_quant_sm90a_args &args) {
    launch_dependents();
    normalise_vectors<TYPE, RESIDUAL>(rows_of(args),
                                      [&](two_pieces &p) { quantise(args, {p.row, p.row}, p.at, p.count, p.e); });
}
#define NORM_KERNEL(name_, type_, residual_)                                                                             \
    extern "C" __global__ void __launch_bounds__(512, 3) name_(const __grid_constant__ rdk_quant_sm90a_args args) {        \
        norm_vectors<type_, residual_>(args);                                                                            \
    }
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_bf16, RDK_BF16, false)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_bf16_add, RDK_BF16, true)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_f16, RDK_F16, false)
NORM_KERNEL(rdk_quant_fp8_norm_sm90a_f16_add, RDK_F16, true)
