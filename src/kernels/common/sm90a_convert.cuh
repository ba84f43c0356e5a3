// SPDX-License-Identifier: Apache-2.0
// Element types chosen at run time: loads widen to f32 exactly, stores round once. And the scale types of block-FP8.
#ifndef RDK_SM90A_CONVERT_CUH
#define RDK_SM90A_CONVERT_CUH

#include "kernels/common/sm90a_types.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __forceinline__ float load_element(const void *from, int64_t at, int type) {
    if (type == RDK_F32) return static_cast<const float *>(from)[at];
    if (type == RDK_F16) return __half2float(static_cast<const __half *>(from)[at]);
    return __bfloat162float(static_cast<const __nv_bfloat16 *>(from)[at]);
}
__device__ __forceinline__ void store_element(void *to, int64_t at, int type, float v) {
    if (type == RDK_F32)
        static_cast<float *>(to)[at] = v;
    else if (type == RDK_F16)
        static_cast<__half *>(to)[at] = __float2half_rn(v);
    else
        static_cast<__nv_bfloat16 *>(to)[at] = __float2bfloat16_rn(v);
}
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}
// 2^(code - 127); code 0 is the subnormal 2^-127, 255 is NaN (OCP MX, e8m0).
__device__ __forceinline__ float e8m0_value(uint8_t code) {
    return __uint_as_float(code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : (uint32_t)code << 23);
}
__device__ __forceinline__ float load_scale(const void *from, int64_t at, bool e8m0) {
    return e8m0 ? e8m0_value(static_cast<const uint8_t *>(from)[at]) : static_cast<const float *>(from)[at];
}

#endif // RDK_SM90A_CONVERT_CUH
