// SPDX-License-Identifier: Apache-2.0
// What the gemm_* kernels on gfx1201 share: fragments, scales, the store of four results.
//
// Every product is D = W * A^T, so that a lane owns one row of A (column lane%16 of D) and eight neighbouring rows of W
// (8*(lane/16) + j): its activation scale is one register, and its results are neighbours in C.
// Both operands take the contiguous-eight K map: lane (index lane%16, half lane/16) holds k = 8*half + e of a 16-wide step.
// One 16-byte load of e4m3 codes (k = 16*half + 0..15 of a 32-wide step) therefore feeds two products: its low eight bytes
// and its high eight. In the (16,16) layout these 16 bytes stand at lane*16 of a 512-byte run: a fragment needs no LDS.
#ifndef RDK_GEMM_GFX1201_FRAGMENTS_H
#define RDK_GEMM_GFX1201_FRAGMENTS_H

#include "kernels/gemm_fp8block/gfx1201_args.h"

typedef int v2i __attribute__((ext_vector_type(2)));
typedef int v4i __attribute__((ext_vector_type(4)));
typedef float v2f __attribute__((ext_vector_type(2)));
typedef float v4f __attribute__((ext_vector_type(4)));
typedef float v8f __attribute__((ext_vector_type(8)));
typedef short v8s __attribute__((ext_vector_type(8)));
typedef half v8h __attribute__((ext_vector_type(8)));
typedef ushort v4us __attribute__((ext_vector_type(4)));

#define RDK_INLINE static inline __attribute__((always_inline))
#define UNROLL     _Pragma("unroll")
#define NO_UNROLL  _Pragma("unroll 1")
// Arrays of fragments must end up in registers: their indices must be constants.
#define EACH(index_, count_) UNROLL for (int index_ = 0; index_ < (count_); index_++)

// Orders LDS between the waves of a group and nothing else: loads from memory stay in flight across it.
RDK_INLINE void lds_barrier(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

RDK_INLINE int least(int a, int b) {
    return a < b ? a : b;
}

// Makes an offset a value that the compiler cannot move out of a loop: an address of a uniform base and a 32-bit offset is
// then one instruction's operands, where a hoisted 64-bit offset costs two additions a load.
#define RENEW(offset_) __asm__ volatile("" : "+v"(offset_))

RDK_INLINE v4i load16(global const char *base, uint offset_bytes) {
    return *(global const v4i *)(base + offset_bytes);
}

// The first `valid` of 16 bytes, zero behind them. dwords: the address is a multiple of four.
RDK_INLINE v4i load16_masked(global const char *from, int valid, int dwords) {
    ulong low = 0, high = 0;
    valid = least(valid, 16);
    if (dwords && (valid & 3) == 0) {
        v4i out = 0;
        EACH (d, 4)
            if (4 * d < valid) out[d] = *(global const int *)(from + 4 * d);
        return out;
    }
    NO_UNROLL for (int b = 0; b < valid; b++) {
        const ulong code = (ulong)(uchar)from[b] << (8 * b & 63);
        low |= b < 8 ? code : 0;
        high |= b < 8 ? 0 : code;
    }
    return (v4i)((int)low, (int)(low >> 32), (int)high, (int)(high >> 32));
}

RDK_INLINE v8f wmma_e4m3(v2i w, v2i a, v8f sum) {
    return __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(w, a, sum);
}
RDK_INLINE v8f wmma_bf16(v4i w, v4i a, v8f sum) {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(v8s, w),
                                                             __builtin_bit_cast(v8s, a), sum);
}
RDK_INLINE v8f wmma_f16(v4i w, v4i a, v8f sum) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(v8h, w),
                                                            __builtin_bit_cast(v8h, a), sum);
}

// Eight e4m3 codes to 16-bit floats. Both conversions are exact: f16 and bf16 hold every e4m3 value, and the low half of the
// f32 that the hardware's conversion gives is zero. NaN stays NaN.
RDK_INLINE v4i widen_bf16(v2i codes) {
    v4i out;
    for (int d = 0; d < 2; d++) {
        v2f low = __builtin_amdgcn_cvt_pk_f32_fp8(codes[d], false),
            high = __builtin_amdgcn_cvt_pk_f32_fp8(codes[d], true);
        out[2 * d] = (int)__builtin_amdgcn_perm(as_uint(low.y), as_uint(low.x), 0x07060302u);
        out[2 * d + 1] = (int)__builtin_amdgcn_perm(as_uint(high.y), as_uint(high.x), 0x07060302u);
    }
    return out;
}
RDK_INLINE v4i widen_f16(v2i codes) {
    v4i out;
    for (int d = 0; d < 2; d++) {
        v2f low = __builtin_amdgcn_cvt_pk_f32_fp8(codes[d], false),
            high = __builtin_amdgcn_cvt_pk_f32_fp8(codes[d], true);
        out[2 * d] = __builtin_bit_cast(int, __builtin_amdgcn_cvt_pkrtz(low.x, low.y));
        out[2 * d + 1] = __builtin_bit_cast(int, __builtin_amdgcn_cvt_pkrtz(high.x, high.y));
    }
    return out;
}

// The upper halves of eight floats, and what they leave over: nothing of an infinity, a NaN of a NaN.
RDK_INLINE v4i cut_bf16(v8f x, v8f *rest) {
    v4i part;
    EACH (i, 4) part[i] = (int)__builtin_amdgcn_perm(as_uint(x[2 * i + 1]), as_uint(x[2 * i]), 0x07060302u);
    EACH (i, 8) {
        const float left = x[i] - as_float(as_uint(x[i]) & 0xffff0000u);
        (*rest)[i] = __builtin_isinf(x[i]) ? 0.0f : left;
    }
    return part;
}

// bf16 weights times eight f32 activations as three bf16 parts, the smallest first: exact products.
RDK_INLINE v8f product_bf16_f32(v4i w, const v4i *a, v8f sum) {
    v8f x, rest, last, nothing;
    x.lo = __builtin_bit_cast(v4f, a[0]), x.hi = __builtin_bit_cast(v4f, a[1]);
    const v4i high = cut_bf16(x, &rest), middle = cut_bf16(rest, &last);
    return wmma_bf16(w, high, wmma_bf16(w, middle, wmma_bf16(w, cut_bf16(last, &nothing), sum)));
}

// A wave-uniform scale of the weights, through the scalar cache. e8m0: 2^(code - 127), 0xff is NaN, and code 0 is a subnormal f32.
RDK_INLINE float weight_scale(global const char *at, int e8m0) {
    if (!e8m0) return *(constant const float *)(ulong)at;
    uint code = *(constant const uchar *)(ulong)at;
    return as_float(code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : code << 23);
}

// Nearest, ties to even, in the upper half; NaN stays NaN.
RDK_INLINE uint bf16_high(float value) {
    const uint bits = as_uint(value), rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return value != value ? bits | 0x400000u : rounded;
}

RDK_INLINE uint pair_of(float low, float high, int c_type) {
    if (c_type == RDK_GEMM_BF16) return __builtin_amdgcn_perm(bf16_high(high), bf16_high(low), 0x07060302u);
    return (uint)as_ushort((half)low) | (uint)as_ushort((half)high) << 16;
}

RDK_INLINE v4f plus_bias(const rdk_gemm_gfx1201_args *g, int n, int count, v4f sum) {
    if (g->bias_type == RDK_GEMM_F32)
        EACH (i, 4) sum[i] += i < count ? ((global const float *)g->bias)[n + i] : 0.0f;
    else if (g->bias_type == RDK_GEMM_BF16)
        EACH (i, 4)
            sum[i] += i < count ? as_float((uint)((global const ushort *)g->bias)[n + i] << 16) : 0.0f;
    return sum;
}

// Eight neighbours of one row of C; rows start on four elements.
RDK_INLINE void store_eight(global char *to, v8f sum, const int c_type) {
    if (c_type == RDK_GEMM_F32) {
        *(global v4f *)to = sum.lo;
        *(global v4f *)(to + 16) = sum.hi;
        return;
    }
    v4i pairs;
    EACH (i, 4) pairs[i] = (int)pair_of(sum[2 * i], sum[2 * i + 1], c_type);
    *(global v4i *)to = pairs;
}

// C[m0 + row][n .. n+3] = sum + bias, one rounding to the type of C; elements past M or N are left alone. m0 is the group's.
// inside, the same for the group: its columns all exist and rows of C start on four elements, so the four go at once.
RDK_INLINE void store_four(const rdk_gemm_gfx1201_args *g, int m0, int row, int n, int inside, v4f sum) {
    const int elem_bytes = g->c_type == RDK_GEMM_F32 ? 4 : 2;
    if (m0 + row >= g->m || n >= g->n) return;
    if (inside) {
        sum = plus_bias(g, n, 4, sum);
        global char *to = g->c + m0 * g->c_stride * elem_bytes;
        const uint at = ((uint)row * (uint)g->c_stride + (uint)n) * (uint)elem_bytes;
        if (g->c_type == RDK_GEMM_F32)
            *(global v4f *)(to + at) = sum;
        else
            *(global v2i *)(to + at) =
                (v2i)((int)pair_of(sum.x, sum.y, g->c_type), (int)pair_of(sum.z, sum.w, g->c_type));
        return;
    }
    const int count = least(g->n - n, 4);
    sum = plus_bias(g, n, count, sum);
    global char *to = g->c + ((m0 + row) * g->c_stride + n) * elem_bytes;
    EACH (i, 4) {
        if (i >= count) break;
        if (g->c_type == RDK_GEMM_F32)
            ((global float *)to)[i] = sum[i];
        else
            ((global ushort *)to)[i] = (ushort)pair_of(sum[i], 0.0f, g->c_type);
    }
}

#endif // RDK_GEMM_GFX1201_FRAGMENTS_H
