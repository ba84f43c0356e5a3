// SPDX-License-Identifier: Apache-2.0
// One step of decode attention on the tensor cores: 64 keys against a team's rows of queries, wgmma with the cache's side in
// registers. S^T = K Q^T, then O^T += V^T P^T: the 64-row side is keys or dims, so that eight rows of queries waste little and
// each code is widened once for all of them.
//
// A product may take its terms in any order. A lane takes 16 neighbouring bytes of a key as its share of several products, and
// queries are stored in that order; the keys of a warp are numbered so that no two lanes meet in a bank. Nothing is shuffled.
#ifndef RDK_ATTN_SM90A_DECODE_TILE_CUH
#define RDK_ATTN_SM90A_DECODE_TILE_CUH

#include "kernels/attn/sm90a_args.h"
#include "kernels/common/sm90a_convert.cuh"
#include "kernels/common/sm90a_ptx.cuh"
#include "kernels/common/sm90a_wgmma.cuh"

#include <cuda_fp8.h>

__device__ __forceinline__ void widen_codes(uint32_t four, uint32_t &low, uint32_t &high) { // four e4m3 codes to f16, exactly
    asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, l;\n\tcvt.rn.f16x2.e4m3x2 %1, h;\n\t}"
        : "=r"(low), "=r"(high)
        : "r"(four));
}
template <bool FP8> __device__ __forceinline__ uint32_t pack_weights(float low, float high) {
    return FP8 ? pack_f16(low, high) : pack_bf16(low, high);
}
__device__ __forceinline__ float power_of_two(float x) { // 2 ulp; -inf gives 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// d (64 x N, f32) = a b^T + (accumulate ? d : 0). a: this warp's 16 x 16 in registers; b: descriptor of N rows in shared memory.
template <int N, bool F16> struct wgmma_16bit;
#define WGMMA_16BIT(n_, f16_, type_, d_, a_, b_, p_, ...)                                                                    \
    template <> struct wgmma_16bit<n_, f16_> {                                                                                \
        static __device__ __forceinline__ void run(float (&d)[n_ / 8][4], const uint32_t (&a)[4], uint32_t b, int accumulate) { \
            asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\tsetp.ne.b32 p, %" #p_ ", 0;\n\t"                              \
                         "mov.b64 b, {%" #b_ ", 0x40000040};\n\t"                                                             \
                         "wgmma.mma_async.sync.aligned.m64n" #n_ "k16.f32." type_ "." type_ " {" d_ "}, {" a_                 \
                         "}, b, p, 1, 1, 0;\n\t}"                                                                             \
                         : __VA_ARGS__                                                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate));                              \
        }                                                                                                                     \
    };
#define D4(j_) "+f"(d[j_][0]), "+f"(d[j_][1]), "+f"(d[j_][2]), "+f"(d[j_][3])
#define D8     "%0, %1, %2, %3"
#define D24    D8 ", %4, %5, %6, %7, %8, %9, %10, %11"
#define D40    D24 ", %12, %13, %14, %15, %16, %17, %18, %19"
#define D56    D40 ", %20, %21, %22, %23, %24, %25, %26, %27"
#define OUT40  D4(0), D4(1), D4(2), D4(3), D4(4)
#define OUT56  OUT40, D4(5), D4(6)
WGMMA_16BIT(8, true, "f16", D8, "%4, %5, %6, %7", 8, 9, D4(0))
WGMMA_16BIT(8, false, "bf16", D8, "%4, %5, %6, %7", 8, 9, D4(0))
WGMMA_16BIT(24, true, "f16", D24, "%12, %13, %14, %15", 16, 17, D4(0), D4(1), D4(2))
WGMMA_16BIT(24, false, "bf16", D24, "%12, %13, %14, %15", 16, 17, D4(0), D4(1), D4(2))
WGMMA_16BIT(40, true, "f16", D40, "%20, %21, %22, %23", 24, 25, OUT40)
WGMMA_16BIT(40, false, "bf16", D40, "%20, %21, %22, %23", 24, 25, OUT40)
WGMMA_16BIT(56, true, "f16", D56, "%28, %29, %30, %31", 32, 33, OUT56)
WGMMA_16BIT(56, false, "bf16", D56, "%28, %29, %30, %31", 32, 33, OUT56)
#undef OUT56
#undef OUT40
#undef D56
#undef D40
#undef D24
#undef D8
#undef D4
#undef WGMMA_16BIT

// Shapes of a tile. DIMS: head size rounded up to a power of two; N: rows of queries of a team.
template <int DIMS, int N, bool FP8> struct attn_shape {
    static constexpr int elem = FP8 ? 1 : 2;
    static constexpr int spans = DIMS * elem / 64;    // of a key: 64 bytes, 16 a lane
    static constexpr int span_steps = 64 / elem / 16; // products of 16 dims that a span feeds
    static constexpr int slot_bytes = rdk_attn_slot_bytes(DIMS, FP8);
    static constexpr int column_bytes = RDK_ATTN_STEP_KEYS * RDK_ATTN_BOX_BYTES;
    static constexpr int tiles = DIMS / 64;     // of 64 dims of the output
    static constexpr int lane_dims = DIMS / 32; // neighbouring dims of the output that a lane holds
    static constexpr int lane_bytes = lane_dims * elem, lane_words = (lane_bytes + 3) / 4;
    static constexpr int query_column = N * 128; // bytes of 64 dims of all rows of queries
    static constexpr int in_flight = DIMS > 256 ? 0 : 1; // batches of products beside the one made: registers
    static constexpr bool preload = in_flight && DIMS * N < 128 * 40;
};

// The key at place `at` (0..7) of a group of eight: neighbouring places differ in bit 2, so that under the swizzle two lanes of K
// read different halves of a 128-byte row, and four lanes of V read rows that differ in the upper two bits.
__device__ __forceinline__ int key_at(int at) {
    return at ^ (at & 1) * 4;
}

// Keeps the making of left operands before the fence that hands them to the tensor cores.
template <int COUNT> __device__ __forceinline__ void pin_operands(uint32_t (&a)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

// s = scores of 64 keys (16 a warp: places lane / 4 and 8 + lane / 4) for N rows. Starts the products; wgmma_wait ends them.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void start_scores(const unsigned char *keys, uint32_t queries, float (&s)[N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, key = key_at(lane / 4), piece = lane % 4 ^ key;
    const unsigned char *row = keys + (warp * 16 + key) * RDK_ATTN_BOX_BYTES;
    uint4 low, high; // of the next span: on their way while products are made
    auto load = [&](int span) {
        const unsigned char *at = row + span / 2 * shape::column_bytes + (piece ^ span % 2 * 4) * 16;
        low = *reinterpret_cast<const uint4 *>(at);
        high = *reinterpret_cast<const uint4 *>(at + 8 * RDK_ATTN_BOX_BYTES);
    };
    load(0);
#pragma unroll
    for (int span = 0; span < shape::spans; span++) {
        const uint32_t word[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
        uint32_t a[shape::span_steps][4];
#pragma unroll
        for (int step = 0; step < shape::span_steps; step++)
#pragma unroll
            for (int key = 0; key < 2; key++) { // +0 and +8: lower half of the product's dims, then the upper half
                if (FP8)
                    widen_codes(word[key][step], a[step][key], a[step][2 + key]);
                else
                    a[step][key] = word[key][step % 2 * 2], a[step][2 + key] = word[key][step % 2 * 2 + 1];
            }
        pin_operands(a);
        if (shape::preload && span + 1 < shape::spans) load(span + 1);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < shape::span_steps; step++) {
            int product = span * shape::span_steps + step;
            wgmma_16bit<N, FP8>::run(s, a[step], queries + (product / 4 * shape::query_column + product % 4 * 32) / 16, product > 0);
        }
        wgmma_commit();
        wgmma_wait<shape::in_flight>();
        if (!shape::preload && span + 1 < shape::spans) load(span + 1);
    }
}

template <int BYTES, int WORDS> __device__ __forceinline__ void load_share(uint32_t (&to)[WORDS], const unsigned char *from, int flip) {
    if constexpr (BYTES == 2)
        to[0] = *reinterpret_cast<const unsigned short *>(from);
    else if constexpr (BYTES == 4)
        to[0] = *reinterpret_cast<const uint32_t *>(from);
    else if constexpr (BYTES == 8)
        *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(from);
    else {
        *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
        if constexpr (BYTES == 32) *reinterpret_cast<uint4 *>(to + 4) = *reinterpret_cast<const uint4 *>(from + flip);
    }
}

// Pairs of values of two keys, one pair a dim, out of the words of the two keys: the left operand of two rows of a tile.
template <bool FP8> __device__ __forceinline__ void pair_values(uint32_t first, uint32_t second, int half, uint32_t &even, uint32_t &odd) {
    if (FP8) {
        widen_codes(__byte_perm(first, second, half ? 0x7362 : 0x5140), even, odd);
    } else {
        even = __byte_perm(first, second, 0x5410);
        odd = __byte_perm(first, second, 0x7632);
    }
}

// A lane's values of some products of 16 keys: its dims of four keys each.
template <int DIMS, int N, bool FP8> struct value_batch {
    using shape = attn_shape<DIMS, N, FP8>;
    static constexpr bool early = DIMS * N <= 128 * 24; // the first batch beside the step's scores: its slot is free the sooner
    static constexpr int steps = shape::lane_words > 2 ? (N == 8 ? 2 : 1) : shape::lane_words * N <= 24 ? 4 : 2;
    uint32_t word[steps][4][shape::lane_words]; // keys first, first ^ 5, then the same + 8

    // Products [step, step + steps) of a slot. Values of keys from `left` on are not the sequence's and count as zero, since 0 * NaN
    // would spoil a row.
    __device__ __forceinline__ void load(const unsigned char *values, int step, int32_t left) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, first = key_at(lane % 4 * 2);
        int byte = (warp * (DIMS / 4) + lane / 4 * shape::lane_dims) * shape::elem, piece = byte % 128 / 16;
        const unsigned char *at = values + byte / 128 * shape::column_bytes + byte % 16;
        const unsigned char *at0 = at + first * RDK_ATTN_BOX_BYTES + (piece ^ first) * 16;
        const unsigned char *at1 = at + (first ^ 5) * RDK_ATTN_BOX_BYTES + (piece ^ first ^ 5) * 16;
        int flip = (piece ^ first) & 1 ? -16 : 16; // to the neighbouring piece
#pragma unroll
        for (int i = 0; i < steps * 2; i++) {
            int row = step * 16 + i * 8;
            load_share<shape::lane_bytes>(word[i / 2][i % 2 * 2], at0 + row * RDK_ATTN_BOX_BYTES, flip);
            load_share<shape::lane_bytes>(word[i / 2][i % 2 * 2 + 1], at1 + row * RDK_ATTN_BOX_BYTES, -flip);
        }
        if (left >= RDK_ATTN_STEP_KEYS) return;
#pragma unroll
        for (int i = 0; i < steps * 4; i++)
#pragma unroll
            for (int j = 0; j < shape::lane_words; j++)
                if (step * 16 + i / 2 * 8 + (first ^ i % 2 * 5) >= left) word[i / 4][i % 4][j] = 0;
    }

    // o += values x weights, dims on the 64-row side: a lane's tile t holds its dims 2t and 2t + 1.
    __device__ __forceinline__ void multiply(uint32_t weights, int step, float (&o)[DIMS / 64][N / 8][4]) const {
#pragma unroll
        for (int i = 0; i < steps; i++) {
            uint32_t a[shape::tiles][4];
#pragma unroll
            for (int tile = 0; tile < shape::tiles; tile++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    int at = FP8 ? tile / 2 : tile;
                    pair_values<FP8>(word[i][half * 2][at], word[i][half * 2 + 1][at], tile % 2, a[tile][half * 2], a[tile][half * 2 + 1]);
                }
            pin_operands(a);
            wgmma_fence();
#pragma unroll
            for (int tile = 0; tile < shape::tiles; tile++) wgmma_16bit<N, FP8>::run(o[tile], a[tile], weights + (step + i) * 2, 1);
            wgmma_commit();
            wgmma_wait<shape::in_flight>();
        }
    }
};

#endif // RDK_ATTN_SM90A_DECODE_TILE_CUH
