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

struct raw_eight { // as they lie in memory; `high` for f32 alone
    uint4 low, high;
};

// Elements at .. at+7 of a row, of which `count` (may be <= 0) exist; the others read as zero. Past the first-level cache: see
// sm90a_ptx.cuh on dependent launch. Not unpacked yet, so that several loads can be in flight.
__device__ __forceinline__ raw_eight load_raw(const void *row, int64_t at, int32_t count, int type) {
    raw_eight r = {};
    const char *from = static_cast<const char *>(row) + at * element_bytes(type);
    if (count >= 8 && (uint64_t)from % 16 == 0) {
        r.low = __ldcg(reinterpret_cast<const uint4 *>(from));
        if (type == RDK_F32) r.high = __ldcg(reinterpret_cast<const uint4 *>(from) + 1);
        return r;
    }
    uint32_t word[8] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i >= count) continue;
        if (type == RDK_F32)
            word[i] = __ldcg(reinterpret_cast<const unsigned int *>(from) + i);
        else
            word[i / 2] |= (uint32_t)__ldcg(reinterpret_cast<const unsigned short *>(from) + i) << i % 2 * 16;
    }
    r.low = make_uint4(word[0], word[1], word[2], word[3]);
    r.high = make_uint4(word[4], word[5], word[6], word[7]);
    return r;
}
// The same for rows of 16-bit elements that all start on 16 bytes and hold a multiple of eight.
__device__ __forceinline__ raw_eight load_raw_vector(const void *row, int64_t at, int32_t count) {
    raw_eight r = {};
    if (count > 0) r.low = __ldcg(reinterpret_cast<const uint4 *>(static_cast<const char *>(row) + at * 2));
    return r;
}
__device__ __forceinline__ eight unpack(const raw_eight &r, int type) {
    eight e;
    const uint32_t word[8] = {r.low.x, r.low.y, r.low.z, r.low.w, r.high.x, r.high.y, r.high.z, r.high.w};
    if (type == RDK_F32) {
#pragma unroll
        for (int i = 0; i < 8; i++) e.v[i] = __uint_as_float(word[i]);
        return e;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 pair = unpack_pair(word[i], type);
        e.v[2 * i] = pair.x;
        e.v[2 * i + 1] = pair.y;
    }
    return e;
}
__device__ __forceinline__ eight load_eight(const void *row, int64_t at, int32_t count, int type) {
    return unpack(load_raw(row, at, count, type), type);
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

// Rows, eight elements of one a thread and turn, TURNS turns. A residual, where given, takes x in first and its stored sum is
// what is normalised.
struct norm_rows {
    const void *x, *weight;
    void *residual; // NULL, or read and written
    int64_t x_stride, residual_stride;
    int32_t m, k, x_type, residual_type, weight_type;
    float eps, offset; // added to the weight
};

// emit(row, at, count, eight) for each piece of each row of this block: blockIdx.x, and then every gridDim.x-th.
// VECTOR: x, residual and weight are 16-bit and fit load_raw_vector.
template <int TURNS, bool VECTOR, typename F> __device__ __forceinline__ void normalise(const norm_rows &rows, F emit) {
    auto load = [](const void *row, int64_t at, int32_t count, int type) {
        return VECTOR ? load_raw_vector(row, at, count) : load_raw(row, at, count, type);
    };
    auto type_of = [](int type) { return VECTOR && type == RDK_F32 ? RDK_BF16 : type; }; // no f32 there: spares its code
    __shared__ float scratch[2][32];
    raw_eight weight[TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; t++) { // constants of the model: they need not wait
        int32_t at = (t * blockDim.x + threadIdx.x) * 8;
        weight[t] = load(rows.weight, at, rows.k - at, rows.weight_type);
    }
    wait_dependencies();
    for (int32_t row = blockIdx.x, turn = 0; row < rows.m; row += gridDim.x, turn ^= 1) {
        raw_eight x[TURNS], residual[TURNS];
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int32_t at = (t * blockDim.x + threadIdx.x) * 8, count = rows.k - at;
            x[t] = load(rows.x, row * rows.x_stride + at, count, rows.x_type);
            if (rows.residual)
                residual[t] = load(rows.residual, row * rows.residual_stride + at, count, rows.residual_type);
        }
        eight e[TURNS];
        float squares = 0.0f;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int32_t at = (t * blockDim.x + threadIdx.x) * 8;
            e[t] = unpack(x[t], type_of(rows.x_type));
            if (rows.residual) {
                eight held = unpack(residual[t], type_of(rows.residual_type));
#pragma unroll
                for (int i = 0; i < 8; i++) e[t].v[i] = rounded(held.v[i] + e[t].v[i], rows.residual_type);
                int32_t count = rows.k - at;
                if (!VECTOR || count > 0)
                    store_eight(rows.residual, row * rows.residual_stride + at, VECTOR ? 8 : count, rows.residual_type, e[t]);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(e[t].v[i], e[t].v[i], squares);
        }
        float inverse = 1.0f / sqrtf(block_sum(squares, scratch[turn]) / (float)rows.k + rows.eps);
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int32_t at = (t * blockDim.x + threadIdx.x) * 8;
            eight w = unpack(weight[t], type_of(rows.weight_type));
#pragma unroll
            for (int i = 0; i < 8; i++) e[t].v[i] = e[t].v[i] * inverse * (w.v[i] + rows.offset);
            emit(row, at, rows.k - at, e[t]);
        }
    }
}

#endif // RDK_SM90A_ROWS_CUH
