// SPDX-License-Identifier: Apache-2.0
// Warpgroup products (PTX ISA, wgmma): 64 rows times N columns with f32 sums, 16 deep in 16 bits or 32 in e4m3. `both`: A and B
// from shared memory, both K-major under the 128-byte swizzle, for scores; `codes`: the same in e4m3. `weights`: A from registers,
// B as it lies in the cache (its rows are the depth, "transposed"), for the sums of values.
#ifndef RDK_SM90A_PREFILL_WGMMA_CUH
#define RDK_SM90A_PREFILL_WGMMA_CUH

#include "kernels/common/sm90a_wgmma.cuh"

// Lower half of the descriptor of a tile of values: 64 dims in each 128-byte row, a row a key, `chunk_bytes` on to the next 64
// dims. The upper half is that of a K-major tile: 1024 bytes on to the next eight keys.
__device__ __forceinline__ uint32_t values_descriptor(const void *tile, int chunk_bytes) {
    return (smem_address(tile) & 0x3ffff) >> 4 | (uint32_t)(chunk_bytes >> 4) << 16;
}

template <bool F16, int N> struct wgmma16;

#define D8(i_)                                                                                                                   \
    "+f"(d[i_]), "+f"(d[i_ + 1]), "+f"(d[i_ + 2]), "+f"(d[i_ + 3]), "+f"(d[i_ + 4]), "+f"(d[i_ + 5]), "+f"(d[i_ + 6]), "+f"(d[i_ + 7])
#define D16      D8(0), D8(8)
#define D32      D16, D8(16), D8(24)
#define D64      D32, D8(32), D8(40), D8(48), D8(56)
#define D128     D64, D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120)
#define NAMES16  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES32  NAMES16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES64                                                                                                                  \
    NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,"  \
            "%60,%61,%62,%63"
#define NAMES128                                                                                                                 \
    NAMES64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,"  \
            "%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,"   \
            "%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define BOTH(type_, n_, count_, a_, b_, p_)                                                                                      \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %" #p_ ", 0;\n\t"                                      \
                 "mov.b64 a, {%" #a_ ", 0x40000040};\n\tmov.b64 b, {%" #b_ ", 0x40000040};\n\t"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #n_ "k16.f32." type_ "." type_ " {" NAMES##count_                           \
                 "}, a, b, p, 1, 1, 0, 0;\n\t}"                                                                                  \
                 : D##count_                                                                                                     \
                 : "r"(a), "r"(b), "r"(accumulate))
#define CODES(n_, count_, a_, b_, p_, high_)                                                                                      \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %" #p_ ", 0;\n\t"                                      \
                 "mov.b64 a, {%" #a_ ", 0x40000040};\n\tmov.b64 b, {%" #b_ ", " high_ "};\n\t"                                   \
                 "wgmma.mma_async.sync.aligned.m64n" #n_ "k32.f32.e4m3.e4m3 {" NAMES##count_ "}, a, b, p, 1, 1;\n\t}"            \
                 : D##count_                                                                                                     \
                 : "r"(a), "r"(b), "r"(accumulate))
#define WEIGHTS(type_, n_, count_, a0_, a1_, a2_, a3_, b_, p_)                                                                   \
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\tsetp.ne.b32 p, %" #p_ ", 0;\n\t"                                         \
                 "mov.b64 b, {%" #b_ ", 0x40000040};\n\t"                                                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #n_ "k16.f32." type_ "." type_ " {" NAMES##count_ "}, {%" #a0_ ",%" #a1_    \
                 ",%" #a2_ ",%" #a3_ "}, b, p, 1, 1, 1;\n\t}"                                                                    \
                 : D##count_                                                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate))
#define WGMMA16(n_, count_, o0_, o1_, o2_, o3_, o4_, o5_)                                                                        \
    template <bool F16> struct wgmma16<F16, n_> {                                                                                \
        static __device__ __forceinline__ void both(float(&d)[count_], uint32_t a, uint32_t b, int accumulate) {                 \
            if constexpr (F16)                                                                                                   \
                BOTH("f16", n_, count_, o0_, o1_, o2_);                                                                          \
            else                                                                                                                 \
                BOTH("bf16", n_, count_, o0_, o1_, o2_);                                                                         \
        }                                                                                                                        \
        /* NARROW: rows of b have 64 bytes and that swizzle. */                                                                  \
        template <bool NARROW>                                                                                                   \
        static __device__ __forceinline__ void codes(float(&d)[count_], uint32_t a, uint32_t b, int accumulate) {                \
            if constexpr (NARROW)                                                                                                \
                CODES(n_, count_, o0_, o1_, o2_, "0x80000020");                                                                  \
            else                                                                                                                 \
                CODES(n_, count_, o0_, o1_, o2_, "0x40000040");                                                                  \
        }                                                                                                                        \
        static __device__ __forceinline__ void weights(float(&d)[count_], const uint32_t *a, uint32_t b, int accumulate) {       \
            if constexpr (F16)                                                                                                   \
                WEIGHTS("f16", n_, count_, o0_, o1_, o2_, o3_, o4_, o5_);                                                        \
            else                                                                                                                 \
                WEIGHTS("bf16", n_, count_, o0_, o1_, o2_, o3_, o4_, o5_);                                                       \
        }                                                                                                                        \
    }
WGMMA16(32, 16, 16, 17, 18, 19, 20, 21);
WGMMA16(64, 32, 32, 33, 34, 35, 36, 37);
WGMMA16(128, 64, 64, 65, 66, 67, 68, 69);
WGMMA16(256, 128, 128, 129, 130, 131, 132, 133);

#endif // RDK_SM90A_PREFILL_WGMMA_CUH
