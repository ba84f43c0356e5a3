// SPDX-License-Identifier: Apache-2.0
// One step of decode attention on the tensor cores: 64 keys against a team's rows of queries. S^T = K Q^T, then O^T += V^T P^T:
// the 64-row side is keys or dims, so that eight rows of queries waste little.
//
// Keys go to the tensor cores as they lie in the ring. e4m3 keys are multiplied as they are: a query is the sum of two e4m3
// numbers, the second what the first leaves (exact for bf16 queries but for elements 2^-10 of the largest of their row). The products of
// the small halves come first, since the tensor cores add e4m3 products with few bits below the largest (measured; decision 008).
// Values of e4m3 are widened to f16 in registers, bf16 values go as they lie.
#ifndef RDK_ATTN_SM90A_DECODE_TILE_CUH
#define RDK_ATTN_SM90A_DECODE_TILE_CUH

#include "kernels/attn/sm90a_args.h"
#include "kernels/attn/sm90a_decode_wgmma.cuh"
#include "kernels/common/sm90a_convert.cuh"

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

// Shapes of a tile. DIMS: head size rounded up to a power of two; N: rows of queries of a team.
template <int DIMS, int N, bool FP8> struct attn_shape {
    static constexpr int elem = FP8 ? 1 : 2;
    static constexpr int products = DIMS * elem / 32; // of scores: 32 bytes of a key each
    static constexpr int slot_bytes = rdk_attn_slot_bytes(DIMS, FP8);
    static constexpr int column_bytes = RDK_ATTN_STEP_KEYS * RDK_ATTN_BOX_BYTES;
    static constexpr int query_column = (FP8 ? 2 : 1) * N * 128; // bytes of 128 bytes of dims of all rows; e4m3: both halves
    static constexpr int tiles = DIMS / 64;                      // of 64 dims of the output
    static constexpr int lane_dims = DIMS / 32;                  // e4m3: neighbouring dims of the output that a lane holds
    static constexpr int lane_words = (lane_dims + 3) / 4;
    static constexpr int in_flight = DIMS > 256 ? 0 : 1; // batches of products beside the one made: registers
};

// s = scores of 64 keys (16 a warp: lane / 4 and 8 + lane / 4) for N rows. Starts the products; wgmma_wait ends them.
template <int DIMS, int N, bool FP8> __device__ __forceinline__ void start_scores(uint32_t keys, uint32_t queries, float (&s)[N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    wgmma_fence();
#pragma unroll
    for (int half = FP8; half >= 0; half--)
#pragma unroll
        for (int i = 0; i < shape::products; i++)
            wgmma_decode<N>::template scores<FP8>(s, keys + (i / 4 * shape::column_bytes + i % 4 * 32) / 16,
                                                  queries + (i / 4 * shape::query_column + half * N * 128 + i % 4 * 32) / 16,
                                                  i > 0 || half != FP8);
    wgmma_commit();
}

// ---- e4m3 values --------------------------------------------------------------------------------------------------------
// Keeps the making of left operands before the fence that hands them to the tensor cores.
template <int COUNT> __device__ __forceinline__ void pin_operands(uint32_t (&a)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

template <int BYTES, int WORDS> __device__ __forceinline__ void load_share(uint32_t (&to)[WORDS], const unsigned char *from) {
    if constexpr (BYTES == 2)
        to[0] = *reinterpret_cast<const unsigned short *>(from);
    else if constexpr (BYTES == 4)
        to[0] = *reinterpret_cast<const uint32_t *>(from);
    else if constexpr (BYTES == 8)
        *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(from);
    else
        *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

// A lane's values of some products of 16 keys: its dims of four keys each. A product may take its rows in any order: a lane takes
// neighbouring dims, so that pairs of keys are put side by side by one byte permutation and nothing is shuffled.
template <int DIMS, int N> struct value_batch {
    using shape = attn_shape<DIMS, N, true>;
    static constexpr int steps = shape::lane_words == 1 ? 4 : shape::lane_words == 2 && N < 56 ? 2 : 1;
    uint32_t word[steps][4][shape::lane_words]; // keys first, first + 1, then the same + 8

    // Products [step, step + steps) of a slot. Values of keys from `left` on are not the sequence's and count as zero, since 0 * NaN
    // would spoil a row.
    __device__ __forceinline__ void load(const unsigned char *values, int step, int32_t left) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, first = lane % 4 * 2;
        int byte = warp * (DIMS / 4) + lane / 4 * shape::lane_dims, piece = byte % 128 / 16;
        const unsigned char *at = values + byte / 128 * shape::column_bytes + byte % 16;
        const unsigned char *at0 = at + first * RDK_ATTN_BOX_BYTES + (piece ^ first) * 16;
        const unsigned char *at1 = at + (first + 1) * RDK_ATTN_BOX_BYTES + (piece ^ first ^ 1) * 16;
#pragma unroll
        for (int i = 0; i < steps * 2; i++) {
            int row = step * 16 + i * 8;
            load_share<shape::lane_dims>(word[i / 2][i % 2 * 2], at0 + row * RDK_ATTN_BOX_BYTES);
            load_share<shape::lane_dims>(word[i / 2][i % 2 * 2 + 1], at1 + row * RDK_ATTN_BOX_BYTES);
        }
        if (__builtin_expect(left >= RDK_ATTN_STEP_KEYS, 1)) return;
#pragma unroll
        for (int i = 0; i < steps * 4; i++)
#pragma unroll
            for (int j = 0; j < shape::lane_words; j++)
                if (step * 16 + i / 2 * 8 + first + i % 2 >= left) word[i / 4][i % 4][j] = 0;
    }

    // o += values x weights, dims on the 64-row side: a lane's tile t holds its dims 2t and 2t + 1.
    __device__ __forceinline__ void multiply(uint32_t weights, int step, float (&o)[DIMS / 64][N / 8][4]) const {
#pragma unroll
        for (int i = 0; i < steps; i++) {
            uint32_t a[shape::tiles][4];
#pragma unroll
            for (int tile = 0; tile < shape::tiles; tile++)
#pragma unroll
                for (int half = 0; half < 2; half++) // pairs of two keys, one a dim
                    widen_codes(__byte_perm(word[i][half * 2][tile / 2], word[i][half * 2 + 1][tile / 2], tile % 2 ? 0x7362 : 0x5140),
                                a[tile][half * 2], a[tile][half * 2 + 1]);
            pin_operands(a);
            wgmma_fence();
#pragma unroll
            for (int tile = 0; tile < shape::tiles; tile++) wgmma_decode<N>::values(o[tile], a[tile], weights + (step + i) * 2);
            wgmma_commit();
            wgmma_wait<shape::in_flight>();
        }
    }
};

// ---- bf16 values --------------------------------------------------------------------------------------------------------
// Values of keys from `left` on count as zero.
template <int DIMS> __device__ __forceinline__ void clear_values(unsigned char *values, int32_t left) {
    constexpr int pieces = DIMS * 2 / 16; // of a key
    for (int i = max(left, 0) * pieces + threadIdx.x % RDK_ATTN_TEAM_THREADS; i < RDK_ATTN_STEP_KEYS * pieces; i += RDK_ATTN_TEAM_THREADS) {
        int key = i / pieces, piece = i % pieces; // the swizzle keeps a row's pieces in the row
        *reinterpret_cast<uint4 *>(values + (piece / 8 * RDK_ATTN_STEP_KEYS + key) * RDK_ATTN_BOX_BYTES + piece % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
}

// o += values x weights, tile t the dims from 64 t on.
template <int DIMS, int N> __device__ __forceinline__ void multiply_values(uint32_t values, uint32_t weights, float (&o)[DIMS / 64][N / 8][4]) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < RDK_ATTN_STEP_KEYS / 16; step++)
#pragma unroll
        for (int tile = 0; tile < DIMS / 64; tile++)
            wgmma_decode<N>::values(o[tile], values + (tile * attn_shape<DIMS, N, false>::column_bytes + step * 16 * RDK_ATTN_BOX_BYTES) / 16,
                                    weights + step * 2);
    wgmma_commit();
}

#endif // RDK_ATTN_SM90A_DECODE_TILE_CUH
