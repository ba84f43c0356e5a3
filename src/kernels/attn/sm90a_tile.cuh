// SPDX-License-Identifier: Apache-2.0
// One 16-row tile of queries against 16 keys, on the tensor cores (mma.m16n8k16, f32 sums), with keys and values as they lie in
// the cache. A dot product may take its terms in any order, so each lane takes 16 neighbouring bytes of a key as its share of
// several products, and the queries are read in the same order: e4m3 widens two codes at a time (exact in f16), with no shuffle.
// Values need pairs of keys side by side: one byte permutation each.
#ifndef RDK_ATTN_SM90A_TILE_CUH
#define RDK_ATTN_SM90A_TILE_CUH

#include "kernels/attn/sm90a_args.h"
#include "kernels/common/sm90a_convert.cuh"
#include "kernels/common/sm90a_ptx.cuh"

#include <cuda_fp8.h>

__device__ __forceinline__ uint32_t widen_codes(uint32_t two) { // two e4m3 codes to f16
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)two));
    return pair;
}

template <bool FP8>
__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    if constexpr (FP8)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <bool FP8> __device__ __forceinline__ uint32_t pack_p(float low, float high) {
    return FP8 ? pack_f16(low, high) : pack_bf16(low, high);
}

// Shapes. DIMS: head size rounded up to a power of two. A row of keys or values is DIMS elements in 16-byte pieces; piece p of
// row r stands at p ^ (r % 8), so that no two lanes of a phase meet in a bank.
template <int DIMS, bool FP8> struct kv_shape {
    static constexpr int elem = FP8 ? 1 : 2;
    static constexpr int row_bytes = DIMS * elem, pieces = row_bytes / 16, mask = pieces < 8 ? pieces - 1 : 7;
    static constexpr int matrix_bytes = RDK_ATTN_STEP_KEYS * row_bytes, stage_bytes = 2 * matrix_bytes;
    static constexpr int q_pitch = DIMS * 2 + 16; // bytes of a query row in shared memory
    static constexpr int k_span = FP8 ? 64 : 32;  // dims that four lanes' pieces cover
    static constexpr int v_dims = DIMS * elem >= 128 ? 16 / elem : 8; // neighbouring dims of a lane's share of a value row
    static constexpr int v_span = v_dims * 8;     // dims that eight lanes' shares cover
    static __device__ __forceinline__ int piece(int row, int piece) { return row * row_bytes + (piece ^ (row & mask)) * 16; }
};

// Scores of 16 rows against 16 keys: s[0] keys 0..7, s[1] keys 8..15.
template <int DIMS, bool FP8>
__device__ __forceinline__ void scores(const unsigned char *q, const unsigned char *k, float (&s)[2][4]) {
    using shape = kv_shape<DIMS, FP8>;
    int lane = threadIdx.x % 32, row = lane / 4, c = lane % 4;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = 0.0f;
#pragma unroll
    for (int d = 0; d < DIMS; d += shape::k_span) {
        constexpr int steps = FP8 ? 4 : 2; // products of 16 dims each that a piece feeds
        uint32_t top[steps * 2], low[steps * 2];
#pragma unroll
        for (int half = 0; half < steps / 2; half++) {
            const unsigned char *at = q + row * shape::q_pitch + (d + c * shape::k_span / 4 + half * 8) * 2;
            *reinterpret_cast<uint4 *>(top + half * 4) = *reinterpret_cast<const uint4 *>(at);
            *reinterpret_cast<uint4 *>(low + half * 4) = *reinterpret_cast<const uint4 *>(at + 8 * shape::q_pitch);
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const uint4 raw = *reinterpret_cast<const uint4 *>(k + shape::piece(n * 8 + row, d * shape::elem / 16 + c));
            const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int step = 0; step < steps; step++) {
                uint32_t b0 = FP8 ? widen_codes(word[step]) : word[step % 2 * 2];
                uint32_t b1 = FP8 ? widen_codes(word[step] >> 16) : word[step % 2 * 2 + 1];
                mma<FP8>(s[n], top[step * 2], low[step * 2], top[step * 2 + 1], low[step * 2 + 1], b0, b1);
            }
        }
    }
}

// o += p v. Column n of product j of a span is dim n * v_dims + j; dims [first, first + COUNT) of the row.
template <int DIMS, int COUNT, bool FP8>
__device__ __forceinline__ void add_values(const unsigned char *v, int first, const uint32_t (&p)[4], float (&o)[COUNT / 8][4]) {
    using shape = kv_shape<DIMS, FP8>;
    int lane = threadIdx.x % 32, n = lane / 4, c = lane % 4;
#pragma unroll
    for (int d = 0; d < COUNT; d += shape::v_span) {
        constexpr int words = shape::v_dims * shape::elem / 4;
        uint32_t key[4][words];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = 2 * c + i % 2 + i / 2 * 8, byte = (first + d + n * shape::v_dims) * shape::elem;
            const unsigned char *at = v + shape::piece(row, byte / 16) + byte % 16;
            if constexpr (words == 4)
                *reinterpret_cast<uint4 *>(key[i]) = *reinterpret_cast<const uint4 *>(at);
            else
                *reinterpret_cast<uint2 *>(key[i]) = *reinterpret_cast<const uint2 *>(at);
        }
#pragma unroll
        for (int w = 0; w < words; w++) {
            constexpr int pairs = 4 / shape::elem; // dims a word
#pragma unroll
            for (int e = 0; e < pairs; e++) {
                uint32_t b0, b1;
                if constexpr (FP8) {
                    uint32_t low = __byte_perm(key[0][w], key[1][w], e < 2 ? 0x5140 : 0x7362);
                    uint32_t high = __byte_perm(key[2][w], key[3][w], e < 2 ? 0x5140 : 0x7362);
                    b0 = widen_codes(low >> e % 2 * 16);
                    b1 = widen_codes(high >> e % 2 * 16);
                } else {
                    b0 = __byte_perm(key[0][w], key[1][w], e ? 0x7632 : 0x5410);
                    b1 = __byte_perm(key[2][w], key[3][w], e ? 0x7632 : 0x5410);
                }
                mma<FP8>(o[(d / 8) + w * pairs + e], p[0], p[1], p[2], p[3], b0, b1);
            }
        }
    }
}

__device__ __forceinline__ float power_of_two(float x) { // 2 ulp; -inf gives 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Running softmax of the two rows that a lane holds, base 2.
struct row_state {
    float top[2], weight[2];
};

// Turns scores into weights (packed for the next product) and scales what is summed so far where a row's top rises.
template <int COUNT, bool FP8>
__device__ __forceinline__ void soften(float (&s)[2][4], row_state &state, float (&o)[COUNT / 8][4], uint32_t (&p)[4]) {
    float keep[2];
    bool rises = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        top = fmaxf(top, state.top[r]);
        keep[r] = state.top[r] == top ? 1.0f : power_of_two(state.top[r] - top); // -inf to a number: 0
        rises = rises || state.top[r] != top;
        state.top[r] = top;
        float base = top == -INFINITY ? 0.0f : top, sum = 0.0f;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                s[n][2 * r + i] = power_of_two(s[n][2 * r + i] - base);
                sum += s[n][2 * r + i];
            }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        state.weight[r] = state.weight[r] * keep[r] + sum;
    }
    if (__any_sync(0xffffffffu, rises)) // a factor of 1 changes no bit, so the vote does not either
#pragma unroll
        for (int j = 0; j < COUNT / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) o[j][i] *= keep[i / 2];
    p[0] = pack_p<FP8>(s[0][0], s[0][1]);
    p[1] = pack_p<FP8>(s[0][2], s[0][3]);
    p[2] = pack_p<FP8>(s[1][0], s[1][1]);
    p[3] = pack_p<FP8>(s[1][2], s[1][3]);
}

#endif // RDK_ATTN_SM90A_TILE_CUH
