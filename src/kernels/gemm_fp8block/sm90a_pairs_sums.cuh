// SPDX-License-Identifier: Apache-2.0
// How the sums of a tile that spans runs of the line come together, in k order, in the block that holds its first k block.
#ifndef RDK_GEMM_SM90A_PAIRS_SUMS_CUH
#define RDK_GEMM_SM90A_PAIRS_SUMS_CUH

#include "kernels/gemm_fp8block/sm90a_pairs_ring.cuh"

#include <stddef.h>

namespace pairs {

// A NaN in every type that memory may hold before the first call, and not the one that arithmetic makes.
enum { TAG = 0x7fff7fff };

// ---- class "chunk": words ------------------------------------------------------------------------------------------------
// Up to three sums and a tag that arrive together, so no fence and no flag stands between the blocks. The reader clears the word: it
// is free again when the call ends, and a replayed graph never meets its own old ones.
template <typename S> __device__ __forceinline__ uint4 *partial_words(const rdk_gemm_pairs_args &args, int32_t part) {
    return static_cast<uint4 *>(args.partials) +
           (int64_t)(part * PAIR + cluster_rank()) * rdk_pairs_partial_words(S::sums) * 256 + threadIdx.x;
}

template <typename S>
__device__ __forceinline__ void leave_partials(const rdk_gemm_pairs_args &args, int32_t part, const float (&sum)[S::sums]) {
    uint4 *words = kept(partial_words<S>(args, part));
#pragma unroll
    for (int i = 0; i < S::sums; i += 3)
        store_word(words + i / 3 * 256, make_uint4(__float_as_uint(sum[i]), i + 1 < S::sums ? __float_as_uint(sum[i + 1]) : TAG,
                                                   i + 2 < S::sums ? __float_as_uint(sum[i + 2]) : TAG, TAG));
}

// Adds what `count` blocks from `part` on left, in this order. All loads of a round are in flight at once: one after the other
// they cost 0.7 us each (H200).
template <typename S>
__device__ __forceinline__ void add_partials(const rdk_gemm_pairs_args &args, int32_t part, int32_t count, float (&sum)[S::sums]) {
    constexpr int words = rdk_pairs_partial_words(S::sums), together = words <= 11 ? 2 : 1, round = words > 24 ? (words + 1) / 2 : words;
    for (; count > 0; part += together, count -= together) {
        uint4 *at_word[together];
#pragma unroll
        for (int b = 0; b < together; b++) at_word[b] = kept(partial_words<S>(args, part + b));
#pragma unroll
        for (int first = 0; first < words; first += round) {
            uint4 word[together][round];
            bool there;
            do {
                there = true;
#pragma unroll
                for (int b = 0; b < together; b++)
#pragma unroll
                    for (int i = 0; i < round; i++)
                        if (b < count && first + i < words) word[b][i] = load_word(at_word[b] + (first + i) * 256);
#pragma unroll
                for (int b = 0; b < together; b++)
#pragma unroll
                    for (int i = 0; i < round; i++)
                        if (b < count && first + i < words) { // every part is read: else the compiler loads less, in parts
                            const int at = (first + i) * 3;
                            there = there && word[b][i].w == TAG;
                            if (at + 1 >= S::sums) there = there && word[b][i].y == TAG;
                            if (at + 2 >= S::sums) there = there && word[b][i].z == TAG;
                        }
            } while (!there);
#pragma unroll
            for (int b = 0; b < together; b++)
#pragma unroll
                for (int i = 0; i < round; i++)
                    if (b < count && first + i < words) {
                        const int at = (first + i) * 3;
                        store_word(at_word[b] + (first + i) * 256, make_uint4(0, 0, 0, 0));
                        sum[at] += __uint_as_float(word[b][i].x);
                        if (at + 1 < S::sums) sum[at + 1] += __uint_as_float(word[b][i].y);
                        if (at + 2 < S::sums) sum[at + 2] += __uint_as_float(word[b][i].z);
                    }
        }
    }
}

// ---- class "step": whole tiles through the ring ------------------------------------------------------------------------------
// What a block leaves of a tile is as long as some stages of the ring. A scale warp says with a flag that it is there, the reader's
// weight lane waits for it and copies the sums into the ring, behind the last weights, so that they are there when the multiplying
// groups come to them. The reader clears the flag: it is free again when the call ends.
enum { LANE_BYTES = 16 };
template <typename S> struct left_sums {
    static constexpr int bytes = rdk_pairs_left_bytes(S::tokens, S::columns);
    static constexpr int turn_bytes = consumer_warps<S>() * 32 * LANE_BYTES; // four sums of every thread
    static constexpr int turns = bytes / turn_bytes, stage_turns = S::stage_bytes / turn_bytes;
    static constexpr int slices = (turns + stage_turns - 1) / stage_turns; // stages that a tile takes
    static_assert(S::stage_bytes % turn_bytes == 0 && turns == S::sums / 4, "");
};
__device__ __forceinline__ int64_t block_of_part(int32_t part) {
    return part * PAIR + (int32_t)cluster_rank();
}
template <typename S> __device__ __forceinline__ unsigned char *left_bytes(const rdk_gemm_pairs_args &args, int32_t part) {
    return static_cast<unsigned char *>(args.partials) + block_of_part(part) * left_sums<S>::bytes;
}
template <typename S> __device__ __forceinline__ uint32_t *left_flag(const rdk_gemm_pairs_args &args, int32_t part) {
    return reinterpret_cast<uint32_t *>(static_cast<unsigned char *>(args.partials) + (int64_t)gridDim.x * left_sums<S>::bytes +
                                        block_of_part(part) * RDK_PAIRS_FLAG_BYTES);
}
// How many runs after this one hold the rest of its last tile.
template <typename S> __device__ __forceinline__ int32_t count_others(const rdk_gemm_pairs_args &args, const walker<S> &walk) {
    const int32_t tile_end = (walk.end + args.k_blocks - 1) / args.k_blocks * args.k_blocks;
    int32_t others = 0;
    while (args.runs.begin[walk.part + 1 + others] < tile_end) others++;
    return others;
}
__device__ __forceinline__ void wait_flag(uint32_t *flag) {
    while (load_acquire(flag) != TAG) {}
    store_relaxed(flag, 0);
    fence_async_global(); // what it guards was written by ordinary stores and is read by the copy engine
}

// The sums that others left of this tile take the place of weights and tokens in the ring.
template <typename S, bool WEIGHTS>
__device__ __forceinline__ void copy_left(const rdk_gemm_pairs_args &args, ring<S> &r, cursor<S::stages> &at, int32_t others,
                                          int32_t part) {
    using left = left_sums<S>;
    if (WEIGHTS && others) wait_dependencies(); // the flags of the call before are gone
#pragma unroll 1
    for (; others > 0; others--, part++) {
        const unsigned char *from = left_bytes<S>(args, part);
        if (WEIGHTS) wait_flag(left_flag<S>(args, part));
#pragma unroll 1
        for (int slice = 0; slice < left::slices; slice++) {
            uint64_t *full = &r.full[at.slot];
            barrier_wait(&r.empty[at.slot], at.parity);
            if (WEIGHTS) {
                const uint32_t bytes = min(left::stage_turns, left::turns - slice * left::stage_turns) * left::turn_bytes;
                barrier_expect(full, bytes);
                copy_bytes(r.tiles[at.slot], from + slice * S::stage_bytes, bytes, full);
            } else {
                barrier_arrive(full);
            }
            at.advance();
        }
    }
}

template <typename S>
__device__ __forceinline__ void leave_sums(const rdk_gemm_pairs_args &args, ring<S> &r, int32_t part, const float (&sum)[S::sums]) {
    auto *to = kept(reinterpret_cast<float4 *>(left_bytes<S>(args, part)) + threadIdx.x);
#pragma unroll
    for (int i = 0; i < S::sums / 4; i++)
        to[i * consumer_warps<S>() * 32] = make_float4(sum[i * 4], sum[i * 4 + 1], sum[i * 4 + 2], sum[i * 4 + 3]);
    barrier_arrive(&r.left);
}

// at: where a group stands in the ring.
template <typename S, typename AT> __device__ __forceinline__ void add_left(AT &at, float (&sum)[S::sums]) {
    using left = left_sums<S>;
#pragma unroll
    for (int slice = 0; slice < left::slices; slice++) {
        barrier_wait(at.ring + (uint32_t)offsetof(ring<S>, full) + at.stage.slot * 8, at.stage.parity);
        const uint32_t from = at.ring + at.stage.slot * S::stage_bytes + threadIdx.x * LANE_BYTES;
#pragma unroll
        for (int turn = 0; turn < left::stage_turns; turn++) {
            const int i = (slice * left::stage_turns + turn) * 4;
            if (i >= S::sums) break;
            const float4 v = shared_f32x4(from + turn * left::turn_bytes);
            sum[i] += v.x;
            sum[i + 1] += v.y;
            sum[i + 2] += v.z;
            sum[i + 3] += v.w;
        }
        __syncwarp();
        if (threadIdx.x % 32 < PAIR) barrier_arrive_at(at.release + at.stage.slot * 8);
        at.stage.advance();
    }
}

} // namespace pairs

#endif // RDK_GEMM_SM90A_PAIRS_SUMS_CUH
