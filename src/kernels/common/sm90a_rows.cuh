// SPDX-License-Identifier: Apache-2.0
// Eight neighbours of a row a lane: 16-byte loads and stores where the row allows, single elements at tails and odd strides.
#ifndef RDK_SM90A_ROWS_CUH
#define RDK_SM90A_ROWS_CUH

#include "kernels/common/sm90a_convert.cuh"
#include "kernels/common/sm90a_ptx.cuh"

#include <cuda_fp8.h>

struct eight {
    float v[8];
};

template <int PIECES> struct row_pieces { // eight elements each, of which `count` (may be <= 0) exist
    int32_t row[PIECES], at[PIECES], count[PIECES];
    eight e[PIECES];
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

// 1 / d, rounded once, for d whose exponent is far from both ends: __frcp_rn without its other cases (checked on the device for
// every mantissa).
__device__ __forceinline__ float reciprocal(float d) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return fmaf(r, fmaf(-d, r, 1.0f), r);
}

// x / d, rounded once, where r = 1 / d: Markstein's correction of the product, for finite quotients and normal d.
__device__ __forceinline__ float divide_finite(float x, float d, float r) {
    float q = x * r;
    return fmaf(fmaf(-q, d, x), r, q);
}
__device__ __forceinline__ float divide_by(float x, float d, float r) { // for every x
    float q = x * r;
    return isfinite(q) ? fmaf(fmaf(-q, d, x), r, q) : q;
}

// 1 / sqrt(v): rsqrtf is two units off at most, one Newton step follows.
__device__ __forceinline__ float inverse_root(float v) {
    float r = rsqrtf(v);
    return r < INFINITY && r > 0.0f ? fmaf(r * 0.5f, fmaf(-v * r, r, 1.0f), r) : r;
}

// g / (1 + exp(-z)), two units off at most.
__device__ __forceinline__ float gated(float g, float z) {
    return __fdividef(g, 1.0f + expf(-z));
}
// g / (1 + exp(-2z)) is g/2 (1 + tanh z) without its cancellation; z = sqrt(2/pi) (g + 0.044715 g^3), arXiv 1606.08415.
__device__ __forceinline__ float activate(float g, bool gelu) {
    float z = gelu ? 2.0f * 0.7978845608f * (g + 0.044715f * g * g * g) : g;
    return gated(g, z);
}

#endif // RDK_SM90A_ROWS_CUH
