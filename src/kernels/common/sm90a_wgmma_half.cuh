// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix instructions of 16-bit operands: 64 rows of A times N columns of B, K-major under the 128-byte swizzle as in
// sm90a_wgmma.cuh; A from shared memory or from registers. One call is one k step of 16 elements. PTX ISA, wgmma.
#ifndef RDK_SM90A_WGMMA_HALF_CUH
#define RDK_SM90A_WGMMA_HALF_CUH

#include "kernels/common/sm90a_wgmma.cuh"

// d (64 x N, f32) = a b^T + (accumulate ? d : 0), bf16 or f16. A in registers: warp w of the group holds rows 16 w .. 16 w + 15;
// lane l rows l / 4 (a[0], a[2]) and l / 4 + 8 (a[1], a[3]), elements l % 4 * 2 and the next (a[0], a[1]) and eight on (a[2], a[3]).
template <int N, bool F16> struct wgmma_half;

#define RDK_WGMMA_8(type_)                                                                                                \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %6, 0;\n\t"                                     \
                 "mov.b64 a, {%4, 0x40000040};\n\tmov.b64 b, {%5, 0x40000040};\n\t"                                       \
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32." type_ "." type_ " "                                         \
                 "{%0, %1, %2, %3}, "                                                                                     \
                 "a, b, p, 1, 1, 0, 0;\n\t}"                                                                              \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                         \
                 : "r"(a), "r"(b), "r"(accumulate))
#define RDK_WGMMA_A_8(type_)                                                                                              \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\tsetp.ne.b32 p, %9, 0;\n\t"                                        \
                 "mov.b64 b, {%8, 0x40000040};\n\t"                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32." type_ "." type_ " "                                         \
                 "{%0, %1, %2, %3}, "                                                                                     \
                 "{%4, %5, %6, %7}, b, p, 1, 1, 0;\n\t}"                                                                  \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate))
#define RDK_WGMMA_16(type_)                                                                                               \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %10, 0;\n\t"                                    \
                 "mov.b64 a, {%8, 0x40000040};\n\tmov.b64 b, {%9, 0x40000040};\n\t"                                       \
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32." type_ "." type_ " "                                        \
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, "                                                                     \
                 "a, b, p, 1, 1, 0, 0;\n\t}"                                                                              \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])         \
                 : "r"(a), "r"(b), "r"(accumulate))
#define RDK_WGMMA_A_16(type_)                                                                                             \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\tsetp.ne.b32 p, %13, 0;\n\t"                                       \
                 "mov.b64 b, {%12, 0x40000040};\n\t"                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32." type_ "." type_ " "                                        \
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, "                                                                     \
                 "{%8, %9, %10, %11}, b, p, 1, 1, 0;\n\t}"                                                                \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate))
#define RDK_WGMMA_32(type_)                                                                                               \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %18, 0;\n\t"                                    \
                 "mov.b64 a, {%16, 0x40000040};\n\tmov.b64 b, {%17, 0x40000040};\n\t"                                     \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." type_ "." type_ " "                                        \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                               \
                 "a, b, p, 1, 1, 0, 0;\n\t}"                                                                              \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),        \
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])   \
                 : "r"(a), "r"(b), "r"(accumulate))
#define RDK_WGMMA_A_32(type_)                                                                                             \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\tsetp.ne.b32 p, %21, 0;\n\t"                                       \
                 "mov.b64 b, {%20, 0x40000040};\n\t"                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." type_ "." type_ " "                                        \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                               \
                 "{%16, %17, %18, %19}, b, p, 1, 1, 0;\n\t}"                                                              \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),        \
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate))
#define RDK_WGMMA_64(type_)                                                                                               \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %34, 0;\n\t"                                    \
                 "mov.b64 a, {%32, 0x40000040};\n\tmov.b64 b, {%33, 0x40000040};\n\t"                                     \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." type_ "." type_ " "                                        \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "            \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                          \
                 "a, b, p, 1, 1, 0, 0;\n\t}"                                                                              \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),        \
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),  \
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),\
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) \
                 : "r"(a), "r"(b), "r"(accumulate))
#define RDK_WGMMA_A_64(type_)                                                                                             \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\tsetp.ne.b32 p, %37, 0;\n\t"                                       \
                 "mov.b64 b, {%36, 0x40000040};\n\t"                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." type_ "." type_ " "                                        \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "            \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                          \
                 "{%32, %33, %34, %35}, b, p, 1, 1, 0;\n\t}"                                                              \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),        \
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),  \
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),\
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate))
#define RDK_WGMMA_128(type_)                                                                                              \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %66, 0;\n\t"                                    \
                 "mov.b64 a, {%64, 0x40000040};\n\tmov.b64 b, {%65, 0x40000040};\n\t"                                     \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type_ "." type_ " "                                       \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "            \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "   \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "   \
                 "%60, %61, %62, %63}, "                                                                                  \
                 "a, b, p, 1, 1, 0, 0;\n\t}"                                                                              \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),        \
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),  \
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),\
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),\
                   "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),\
                   "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),\
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),\
                   "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]) \
                 : "r"(a), "r"(b), "r"(accumulate))
#define RDK_WGMMA_A_128(type_)                                                                                            \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\tsetp.ne.b32 p, %69, 0;\n\t"                                       \
                 "mov.b64 b, {%68, 0x40000040};\n\t"                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type_ "." type_ " "                                       \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "            \
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "   \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "   \
                 "%60, %61, %62, %63}, "                                                                                  \
                 "{%64, %65, %66, %67}, b, p, 1, 1, 0;\n\t}"                                                              \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),        \
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),  \
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),\
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),\
                   "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),\
                   "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),\
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),\
                   "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate))

#define RDK_WGMMA_HALF(n_)                                                                                                \
    template <bool F16> struct wgmma_half<n_, F16> {                                                                      \
        static __device__ __forceinline__ void run(float (&d)[n_ / 2], uint32_t a, uint32_t b, int accumulate) {          \
            if constexpr (F16)                                                                                            \
                RDK_WGMMA_##n_("f16");                                                                                    \
            else                                                                                                          \
                RDK_WGMMA_##n_("bf16");                                                                                   \
        }                                                                                                                 \
        static __device__ __forceinline__ void run(float (&d)[n_ / 2], const uint32_t (&a)[4], uint32_t b, int accumulate) {\
            if constexpr (F16)                                                                                            \
                RDK_WGMMA_A_##n_("f16");                                                                                  \
            else                                                                                                          \
                RDK_WGMMA_A_##n_("bf16");                                                                                 \
        }                                                                                                                 \
    };
RDK_WGMMA_HALF(8)
RDK_WGMMA_HALF(16)
RDK_WGMMA_HALF(32)
RDK_WGMMA_HALF(64)
RDK_WGMMA_HALF(128)

#endif // RDK_SM90A_WGMMA_HALF_CUH
