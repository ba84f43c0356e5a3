// SPDX-License-Identifier: Apache-2.0
// The products of decode attention (PTX ISA, wgmma): 64 rows of the cache's side times N rows of queries, f32 sums. Scores take
// both sides from shared memory, each row's dims side by side; values are widened in registers (e4m3) or taken as they lie in the
// cache, a row a key, the 64-row side along the row (bf16). All under the 128-byte swizzle, so the upper halves of descriptors are
// one constant: 1024 bytes on to the next eight rows.
#ifndef RDK_ATTN_SM90A_DECODE_WGMMA_CUH
#define RDK_ATTN_SM90A_DECODE_WGMMA_CUH

#include "kernels/common/sm90a_wgmma.cuh"

template <int N> struct wgmma_decode;

#define D4(j_) "+f"(d[j_][0]), "+f"(d[j_][1]), "+f"(d[j_][2]), "+f"(d[j_][3])
#define D8     "%0, %1, %2, %3"
#define D16    D8 ", %4, %5, %6, %7"
#define D24    D16 ", %8, %9, %10, %11"
#define D40    D24 ", %12, %13, %14, %15, %16, %17, %18, %19"
#define D56    D40 ", %20, %21, %22, %23, %24, %25, %26, %27"
#define OUT40  D4(0), D4(1), D4(2), D4(3), D4(4)
#define BOTH(n_, type_, tail_, a_, b_, p_, ...)                                                              \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %" #p_ ", 0;\n\t"                  \
                 "mov.b64 a, {%" #a_ ", 0x40000040};\n\tmov.b64 b, {%" #b_ ", 0x40000040};\n\t"              \
                 "wgmma.mma_async.sync.aligned.m64n" #n_ type_ " {" D##n_ "}, a, b, p, 1, 1" tail_ ";\n\t}"  \
                 : __VA_ARGS__                                                                               \
                 : "r"(a), "r"(b), "r"(accumulate))
// d = a b^T + (accumulate ? d : 0). scores: 32 bytes of a row's dims; values: 16 keys.
#define WGMMA_DECODE(n_, a_, b_, p_, x_, xb_, ...)                                                           \
    template <> struct wgmma_decode<n_> {                                                                    \
        template <bool FP8>                                                                                  \
        static __device__ __forceinline__ void scores(float (&d)[n_ / 8][4], uint32_t a, uint32_t b,         \
                                                      int accumulate) {                                      \
            if constexpr (FP8)                                                                               \
                BOTH(n_, "k32.f32.e4m3.e4m3", "", a_, b_, p_, __VA_ARGS__);                                  \
            else                                                                                             \
                BOTH(n_, "k16.f32.bf16.bf16", ", 0, 0", a_, b_, p_, __VA_ARGS__);                            \
        }                                                                                                    \
        static __device__ __forceinline__ void values(float (&d)[n_ / 8][4], uint32_t a, uint32_t b) {       \
            int accumulate = 1;                                                                              \
            BOTH(n_, "k16.f32.bf16.bf16", ", 1, 0", a_, b_, p_, __VA_ARGS__);                                \
        }                                                                                                    \
        static __device__ __forceinline__ void values(float (&d)[n_ / 8][4], const uint32_t (&a)[4],         \
                                                      uint32_t b) {                                          \
            asm volatile("{\n\t.reg .b64 b;\n\tmov.b64 b, {%" #xb_ ", 0x40000040};\n\t"                      \
                         "wgmma.mma_async.sync.aligned.m64n" #n_ "k16.f32.f16.f16 {" D##n_                   \
                         "}, {" x_ "}, b, 1, 1, 1, 0;\n\t}"                                                  \
                         : __VA_ARGS__                                                                       \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));                              \
        }                                                                                                    \
    };
WGMMA_DECODE(8, 4, 5, 6, "%4, %5, %6, %7", 8, D4(0))
WGMMA_DECODE(24, 12, 13, 14, "%12, %13, %14, %15", 16, D4(0), D4(1), D4(2))
WGMMA_DECODE(40, 20, 21, 22, "%20, %21, %22, %23", 24, OUT40)
WGMMA_DECODE(56, 28, 29, 30, "%28, %29, %30, %31", 32, OUT40, D4(5), D4(6))
#undef WGMMA_DECODE
#undef BOTH
#undef OUT40
#undef D56
#undef D40
#undef D24
#undef D16
#undef D8
#undef D4

#endif // RDK_ATTN_SM90A_DECODE_WGMMA_CUH
