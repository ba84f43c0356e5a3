// SPDX-License-Identifier: Apache-2.0
// e4m3 to 16-bit operands of the tensor core, exactly.
#ifndef RDK_SM90A_W8A16_CUH
#define RDK_SM90A_W8A16_CUH

#include <cuda_fp16.h>
#include <stdint.h>

// Two pairs of codes to two words of two 16-bit numbers each. e4m3 is exact in f16, and f16 of e4m3 in the upper half of f32.
template <bool F16> __device__ __forceinline__ void widen(uint32_t codes, uint32_t &first, uint32_t &second) {
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\t"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n\tcvt.rn.f16x2.e4m3x2 %1, high;\n\t}"
        : "=r"(first), "=r"(second)
        : "r"(codes));
    if constexpr (!F16) {
        float2 a = __half22float2(*reinterpret_cast<__half2 *>(&first)), b = __half22float2(*reinterpret_cast<__half2 *>(&second));
        first = __byte_perm(__float_as_uint(a.x), __float_as_uint(a.y), 0x7632);
        second = __byte_perm(__float_as_uint(b.x), __float_as_uint(b.y), 0x7632);
    }
}

#endif // RDK_SM90A_W8A16_CUH
