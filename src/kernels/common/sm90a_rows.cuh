// SPDX-License-Identifier: Apache-2.0
// Eight neighbours of a row a lane: 16-byte loads and stores where the row allows, single elements at tails and odd strides.
// And the norm of one row by one block, whose order of summation follows from the row's length alone.
#ifndef RDK_SM90A_ROWS_CUH
#define RDK_SM90A_ROWS_CUH

#include "kernels/common/sm90a_convert.cuh"
#include "kernels/common/sm90a_ptx.cuh"

#include <cuda_fp8.h>

struct eight {
    float v[8];
};

__device__ __forceinline__ int element_bytes(int type) {
    return type == RDK_F32 ? 4 : type == RDK_E4M3 ? 1 : 2;
}

__device__ __forceinline__ float2 unpack_pair(uint32_t word, int type) {
    if (type == RDK_F16) return __half22float2(*reinterpret_cast<const __half2 *>(&word));
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

// Elements at .. at+7 of a row, of which `count` (may be <= 0) exist; the others read as zero. Past the first-level cache: see
// sm90a_ptx.cuh on dependent launch.
__device__ __forceinline__ eight load_eight(const void *row, int64_t at, int32_t count, int type) {
    eight e;
    const char *from = static_cast<const char *>(row) + at * element_bytes(type);
    if (count >= 8 && (uint64_t)from % 16 == 0) {
        uint4 low = __ldcg(reinterpret_cast<const uint4 *>(from));
        if (type == RDK_F32) {
            uint4 high = __ldcg(reinterpret_cast<const uint4 *>(from) + 1);
            const uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 8; i++) e.v[i] = __uint_as_float(word[i]);
        } else {
            const uint32_t word[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 pair = unpack_pair(word[i], type);
                e.v[2 * i] = pair.x;
                e.v[2 * i + 1] = pair.y;
            }
        }
        return e;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        e.v[i] = 0.0f;
        if (i >= count) continue;
        if (type == RDK_F32)
            e.v[i] = __ldcg(reinterpret_cast<const float *>(from) + i);
        else
            e.v[i] = unpack_pair(__ldcg(reinterpret_cast<const unsigned short *>(from) + i), type).x;
    }
    return e;
}

// To f32, bf16 or f16, rounded once.
__device__ __forceinline__ void store_eight(void *row, int64_t at, int32_t count, int type, const eight &e) {
    char *to = static_cast<char *>(row) + at * element_bytes(type);
    if (count >= 8 && (uint64_t)to % 16 == 0) {
        if (type == RDK_F32) {
            reinterpret_cast<float4 *>(to)[0] = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
            reinterpret_cast<float4 *>(to)[1] = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
        } else {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = type == RDK_F16 ? pack_f16(e.v[2 * i], e.v[2 * i + 1]) : pack_bf16(e.v[2 * i], e.v[2 * i + 1]);
            *reinterpret_cast<uint4 *>(to) = make_uint4(word[0], word[1], word[2], word[3]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) store_element(row, at + i, type, e.v[i]);
}

// The value a store of `type` leaves behind.
__device__ __forceinline__ float rounded(float v, int type) {
    return type == RDK_F32 ? v : type == RDK_F16 ? __half2float(__float2half_rn(v)) : __bfloat162float(__float2bfloat16_rn(v));
}

// Eight codes; +-Inf saturates to +-448, NaN stays NaN (OCP e4m3).
__device__ __forceinline__ uint2 pack_e4m3(const eight &e) {
    uint32_t word[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(e.v[4 * i], e.v[4 * i + 1]), __NV_SATFINITE, __NV_E4M3);
        uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(e.v[4 * i + 2], e.v[4 * i + 3]), __NV_SATFINITE, __NV_E4M3);
        word[i] = low | high << 16;
    }
    return make_uint2(word[0], word[1]);
}

// x / d, rounded once, where r = 1 / d: Markstein's correction of the product, for finite x and normal d.
__device__ __forceinline__ float divide_by(float x, float d, float r) {
    float q = x * r, rest = fmaf(-q, d, x);
    return isfinite(q) ? fmaf(rest, r, q) : q;
}

// Sum over a block, the same in every thread. Shuffles, then one word a warp in shared memory.
__device__ __forceinline__ float block_sum(float v, float *scratch) {
#pragma unroll
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    int warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < warps ? scratch[threadIdx.x % 32] : 0.0f;
#pragma unroll
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

// One row, eight elements a thread and turn, TURNS turns. x is the row that is normalised (the stored sum where a residual is
// given), already scaled by the weight when the function returns.
struct norm_row {
    const void *x, *weight;
    void *residual; // NULL, or read and written
    int x_type, residual_type, weight_type;
    int32_t k;
    float eps, offset; // added to the weight
};

template <int TURNS>
__device__ __forceinline__ void normalise(const norm_row &row, int64_t x_at, int64_t residual_at, eight (&e)[TURNS]) {
    __shared__ float scratch[32];
    eight weight[TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; t++) { // constants of the model: they need not wait
        int32_t at = (t * blockDim.x + threadIdx.x) * 8;
        weight[t] = load_eight(row.weight, at, row.k - at, row.weight_type);
    }
    wait_dependencies();
    float squares = 0.0f;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int32_t at = (t * blockDim.x + threadIdx.x) * 8;
        e[t] = load_eight(row.x, x_at + at, row.k - at, row.x_type);
        if (row.residual) {
            eight held = load_eight(row.residual, residual_at + at, row.k - at, row.residual_type);
#pragma unroll
            for (int i = 0; i < 8; i++) e[t].v[i] = rounded(held.v[i] + e[t].v[i], row.residual_type);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) squares = fmaf(e[t].v[i], e[t].v[i], squares);
    }
    if (row.residual)
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int32_t at = (t * blockDim.x + threadIdx.x) * 8;
            store_eight(row.residual, residual_at + at, row.k - at, row.residual_type, e[t]);
        }
    float inverse = 1.0f / sqrtf(block_sum(squares, scratch) / (float)row.k + row.eps);
#pragma unroll
    for (int t = 0; t < TURNS; t++)
#pragma unroll
        for (int i = 0; i < 8; i++) e[t].v[i] = e[t].v[i] * inverse * (weight[t].v[i] + row.offset);
}

#endif // RDK_SM90A_ROWS_CUH
