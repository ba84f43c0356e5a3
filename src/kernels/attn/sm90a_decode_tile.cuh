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

__device__ __forceinline__ void widen_codes(uint32_t four, uint32_t &low,
                                            uint32_t &high) { // four e4m3 codes to f16, exactly
    asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, l;\n\tcvt.rn.f16x2.e4m3x2 "
        "%1, h;\n\t}"
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
    static constexpr int query_column =
        (FP8 ? 2 : 1) * N * 128;            // bytes of 128 bytes of dims of all rows; e4m3: both halves
    static constexpr int tiles = DIMS / 64; // of 64 dims of the output
};

// s = scores of 64 keys (16 a warp: lane / 4 and 8 + lane / 4) for N rows. Starts the products; wgmma_wait ends them.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void start_scores(uint32_t keys, uint32_t queries, float (&s)[N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    wgmma_fence();
#pragma unroll
    for (int half = FP8; half >= 0; half--)
#pragma unroll
        for (int i = 0; i < shape::products; i++)
            wgmma_decode<N>::template scores<FP8>(
                s, keys + (i / 4 * shape::column_bytes + i % 4 * 32) / 16,
                queries + (i / 4 * shape::query_column + half * N * 128 + i % 4 * 32) / 16,
                i > 0 || half != FP8);
    wgmma_commit();
}

// ---- values -------------------------------------------------------------------------------------------------------------
// Values of keys from `left` on are not the sequence's and count as zero, since 0 * NaN would spoil a row.
template <int DIMS, bool FP8>
__device__ __forceinline__ void clear_values(unsigned char *values, int32_t left) {
    constexpr int pieces = DIMS * attn_shape<DIMS, 8, FP8>::elem / 16; // of a key
#pragma unroll 1
    for (int i = max(left, 0) * pieces + threadIdx.x % RDK_ATTN_TEAM_THREADS; i < RDK_ATTN_STEP_KEYS * pieces;
         i += RDK_ATTN_TEAM_THREADS) {
        int key = i / pieces, piece = i % pieces; // the swizzle keeps a row's pieces in the row
        *reinterpret_cast<uint4 *>(values + (piece / 8 * RDK_ATTN_STEP_KEYS + key) * RDK_ATTN_BOX_BYTES +
                                   (pieces < 8 ? piece ^ key % 8 : piece % 8) * 16) = make_uint4(0, 0, 0, 0);
    }
}

// Keeps the making of left operands before the fence that hands them to the tensor cores.
template <int COUNT> __device__ __forceinline__ void pin_operands(uint32_t (&a)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

// Values of e4m3 as the left side of products, some tiles of 32 keys at a time. Rows of a product may stand in any order: a lane's
// dims of a tile are neighbours, so that pairs of keys are put side by side by one byte permutation.
template <int DIMS, int N> struct value_batch {
    using shape = attn_shape<DIMS, N, true>;
    static constexpr int tiles = (N == 24 && (DIMS == 128 || DIMS == 256)) || (N == 40 && DIMS == 128)
                                     ? 2
                                     : 1; // of a batch: registers
    static constexpr int parts = shape::tiles / tiles, batches = 2 * parts;
    uint32_t word[tiles][4]; // two neighbouring dims of keys 8 m + 2 (lane % 4) and the next

    // Where a lane's share of a slot begins: a key's 16 bytes of a warp's 16 dims.
    static __device__ __forceinline__ uint32_t lane_offset() {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        return lane * RDK_ATTN_BOX_BYTES + (warp ^ lane % 8) * 16;
    }
    __device__ __forceinline__ void load(uint32_t from, int batch) {
#pragma unroll
        for (int i = 0; i < tiles; i++) {
            int tile = batch % parts * tiles + i;
            uint32_t at = (from ^ tile % 2 * 64) + tile / 2 * shape::column_bytes +
                          batch / parts * 32 * RDK_ATTN_BOX_BYTES;
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(word[i][0]), "=r"(word[i][1]), "=r"(word[i][2]), "=r"(word[i][3])
                         : "r"(at)
                         : "memory");
        }
    }
    // o += values x weights, and the words of the next batch asked for.
    __device__ __forceinline__ void multiply(uint32_t weights, uint32_t from, int batch,
                                             float (&o)[shape::tiles][N / 8][4]) {
        uint32_t a[2 * tiles][4];
#pragma unroll
        for (int i = 0; i < 2 * tiles; i++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                widen_codes(__byte_perm(word[i % tiles][i / tiles * 2 + k], 0, 0x3120), a[i][k * 2],
                            a[i][k * 2 + 1]);
        pin_operands(a);
        if (batch + 1 < batches) load(from, batch + 1);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 2 * tiles; i++)
            wgmma_decode<N>::values(o[batch % parts * tiles + i % tiles], a[i],
                                    weights + (batch / parts * 2 + i / tiles) * 2);
        wgmma_commit();
        wgmma_wait<1>();
    }
};

// o += values x weights for the 64 keys of a slot, tile t the 64 dims of column t from `values` on.
template <int DIMS, int N>
__device__ __forceinline__ void multiply_values(uint32_t values, uint32_t weights,
                                                float (&o)[attn_shape<DIMS, N, false>::tiles][N / 8][4]) {
    using shape = attn_shape<DIMS, N, false>;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < RDK_ATTN_STEP_KEYS / 16; step++)
#pragma unroll
        for (int tile = 0; tile < shape::tiles; tile++)
            wgmma_decode<N>::values(
                o[tile], values + (tile * shape::column_bytes + step * 16 * RDK_ATTN_BOX_BYTES) / 16,
                weights + step * 2);
    wgmma_commit();
}

#endif // RDK_ATTN_SM90A_DECODE_TILE_CUH
