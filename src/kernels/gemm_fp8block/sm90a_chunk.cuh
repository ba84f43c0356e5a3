// SPDX-License-Identifier: Apache-2.0
// The multiplying groups of class "chunk" on wide tiles: a group's columns stand in two slices, and while the sums of one slice
// are added up, sum = fma(block sum, As * Ws, sum), the tensor cores have the next one; at the end of a tile that is the first of
// the tile after it. The ring, its producers, the order of work and the way out of odd tiles are those of pairs of blocks.
#ifndef RDK_GEMM_SM90A_CHUNK_CUH
#define RDK_GEMM_SM90A_CHUNK_CUH

#include "kernels/gemm_fp8block/sm90a_pairs.cuh"

namespace chunk {

using pairs::cursor;
using pairs::partial_words;
using pairs::piece;
using pairs::ring;
using pairs::walker;
enum { K_BLOCK = RDK_K_BLOCK, PAIR = 2, GROUP_TOKENS = 64, WARPS = 8, TAG = pairs::TAG };

template <int COLUMNS_> struct shape { // also what the producers of pairs ask for
    static constexpr int tokens = RDK_CHUNK_TOKENS, columns = COLUMNS_;
    static constexpr bool step = false;
    static constexpr int a_bytes = tokens * K_BLOCK, w_bytes = columns * K_BLOCK,
                         stage_bytes = a_bytes + w_bytes;
    static constexpr int stages = rdk_pairs_stages(tokens, columns);
    static constexpr int slice = columns / 2, slice_sums = slice / 2, sums = columns / 2; // sums of a thread
    static constexpr int border_step =
        columns & -columns; // where a border between blocks of weight rows may lie
    static constexpr int scale_pitch = tokens + 4;
    static_assert(sums % 16 == 0, "four octets of columns are turned at a time");
};

// ---- a group ------------------------------------------------------------------------------------------------------------
template <typename S> struct group_state {
    uint32_t ring;                  // where the ring stands in shared memory
    uint32_t tokens, weights;       // descriptors of the group's operands in the first stage
    uint32_t scales;                // the first scale of this thread's rows
    uint32_t release;               // lanes 0 and 1: the first `empty` barrier of block 0 and 1 of the pair
    cursor<S::stages> next, oldest; // stages: the next to be multiplied, and the oldest that is not added up
    cursor<pairs::SCALE_BATCHES> batch;
    bool ready; // `next` was there when it was asked for
    float token[2],
        weight[2]; // scales of the block that is added up next: this thread's rows, blocks of weight rows
    float low[2], high[2]; // As * Ws for the columns before and from the border on
};

// Asked for early: under the tensor cores' reads an answer from shared memory takes long.
template <typename S> __device__ __forceinline__ void look_ahead(group_state<S> &at) {
    at.ready = barrier_passed(at.ring + (uint32_t)offsetof(ring<S>, full) + at.next.slot * 8, at.next.parity);
}

template <typename S> __device__ __forceinline__ void load_scales(group_state<S> &at, uint32_t i) {
    const uint32_t block = i % pairs::SCALE_BLOCKS, row = at.batch.slot * pairs::SCALE_BLOCKS + block;
    if (block == 0)
        barrier_wait(at.ring + (uint32_t)offsetof(ring<S>, scale_full) + at.batch.slot * 8, at.batch.parity);
    const float2 w = shared_f32x2(at.ring + (uint32_t)offsetof(ring<S>, w_scales) + row * 8);
    at.token[0] = shared_f32(at.scales + row * S::scale_pitch * 4);
    at.token[1] = shared_f32(at.scales + row * S::scale_pitch * 4 + 8 * 4);
    at.weight[0] = w.x;
    at.weight[1] = w.y;
}

template <typename S>
__device__ __forceinline__ void take_scales(group_state<S> &at, uint32_t i, uint32_t count) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
        at.low[k] = at.token[k] * at.weight[0];
        at.high[k] = at.token[k] * at.weight[1];
    }
    if (i % pairs::SCALE_BLOCKS == pairs::SCALE_BLOCKS - 1 || i == count - 1) {
        barrier_arrive(at.ring + (uint32_t)offsetof(ring<S>, scale_empty) +
                       at.batch.slot * 8); // each lane for what it read
        at.batch.advance();
    }
}

template <int SLICE, typename S>
__device__ __forceinline__ void issue(group_state<S> &at, float (&acc)[S::slice_sums]) {
    // From one lane: the compiler sees that it is the same in all, and steps along K in registers of the warp.
    const uint32_t tile = __shfl_sync(0xffffffffu, at.next.slot * (S::stage_bytes / 16), 0);
    const uint32_t tokens = at.tokens + tile, weights = at.weights + tile + SLICE * (S::slice * K_BLOCK / 16);
    if (SLICE == 0 && !at.ready)
        barrier_wait(at.ring + (uint32_t)offsetof(ring<S>, full) + at.next.slot * 8, at.next.parity);
    if (SLICE == 1) at.next.advance();
    wgmma_pin(acc);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < K_BLOCK / 32; step++)
        wgmma_e4m3<S::slice>::run(acc, tokens + step * 2, weights + step * 2, step != 0);
    wgmma_commit();
}

// Adds up slice SLICE of block i of `count`; LEFT younger products stay in flight. Columns from `border` on belong to the next block
// of weight rows.
template <int SLICE, int LEFT, typename S>
__device__ __forceinline__ void add_slice(group_state<S> &at, uint32_t i, uint32_t count, int32_t border,
                                          float (&acc)[S::slice_sums], float (&sum)[S::sums]) {
    if (SLICE == 0) take_scales(at, i, count);
    wgmma_wait<LEFT>();
    wgmma_pin(acc);
    if (SLICE == 1) {
        if (threadIdx.x % 32 < PAIR) barrier_arrive_at(at.release + at.oldest.slot * 8);
        at.oldest.advance();
    }
#pragma unroll
    for (int j = 0; j < S::slice_sums / 4; j++) {
        const bool high = (SLICE * S::slice + j * 8) / S::border_step * S::border_step >= border;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float &to = sum[SLICE * S::slice_sums + j * 4 + k];
            to = fmaf(acc[j * 4 + k], high ? at.high[k / 2] : at.low[k / 2], to);
        }
    }
}

// ---- sums between blocks -------------------------------------------------------------------------------------------------
// A thread's sums in the order of threads, neighbours exchanged, then a flag for each warp: not exchanged, ptxas 13.0 lets sums stand in the
// bank of registers of the block sums that are added to them, and each addition takes a cycle longer. Tags beside the sums, as in pairs, would be a third more to write and
// to read and all of it to clear. The reader clears the flag, so a replayed graph never meets its own old one.
template <typename S>
__device__ __forceinline__ uint32_t *partial_flag(const rdk_gemm_pairs_args &args, int32_t part) {
    static_assert(rdk_pairs_partial_words(S::sums) > S::sums / 4, "room for flags behind the sums");
    return reinterpret_cast<uint32_t *>(partial_words<S>(args, part) - threadIdx.x % 32 + S::sums / 4 * 256);
}

template <typename S>
__device__ __forceinline__ void leave_partials(const rdk_gemm_pairs_args &args, int32_t part,
                                               const float (&sum)[S::sums]) {
    uint4 *words = kept(partial_words<S>(args, part));
#pragma unroll
    for (int i = 0; i < S::sums; i += 4)
        store_relaxed(words + i / 4 * 256,
                      make_uint4(__float_as_uint(sum[i + 1]), __float_as_uint(sum[i]),
                                 __float_as_uint(sum[i + 3]), __float_as_uint(sum[i + 2])));
    __threadfence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) store_release(partial_flag<S>(args, part), TAG);
}

// Adds what `count` blocks from `part` on left, in this order.
template <typename S>
__device__ __forceinline__ void add_partials(const rdk_gemm_pairs_args &args, int32_t part, int32_t count,
                                             float (&sum)[S::sums]) {
    constexpr int words = S::sums / 4, round = words / 2; // in flight at once
    for (; count > 0; part++, count--) {
        const uint4 *from = kept(partial_words<S>(args, part));
        uint32_t *flag = partial_flag<S>(args, part);
        while (load_acquire(flag) != TAG) {
        }
        __syncwarp();
#pragma unroll
        for (int first = 0; first < words; first += round) {
            uint4 word[round];
#pragma unroll
            for (int i = 0; i < round; i++) word[i] = load_relaxed(from + (first + i) * 256);
#pragma unroll
            for (int i = 0; i < round; i++) {
                sum[(first + i) * 4 + 1] += __uint_as_float(word[i].x);
                sum[(first + i) * 4] += __uint_as_float(word[i].y);
                sum[(first + i) * 4 + 3] += __uint_as_float(word[i].z);
                sum[(first + i) * 4 + 2] += __uint_as_float(word[i].w);
            }
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) store_release(flag, 0);
    }
}

// ---- output --------------------------------------------------------------------------------------------------------------
// Four words of each of four neighbouring lanes, turned without a branch: lane q gets word q of all four, in lane order.
__device__ __forceinline__ uint4 turn_quad(const uint32_t (&word)[4]) {
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    uint32_t got[4];
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? word[i] : word[i + 1], 1);
        got[i] = odd ? other : word[i];
        got[i + 1] = odd ? word[i + 1] : other;
    }
    const uint32_t first = __shfl_xor_sync(0xffffffffu, upper ? got[0] : got[2], 2);
    const uint32_t second = __shfl_xor_sync(0xffffffffu, upper ? got[1] : got[3], 2);
    uint4 v;
    v.x = upper ? first : got[0];
    v.y = upper ? second : got[1];
    v.z = upper ? got[2] : first;
    v.w = upper ? got[3] : second;
    return v;
}

// A tile inside a bf16 output whose rows start on 16 bytes: nothing is asked between the stores, so that they overlap.
template <typename S>
__device__ __forceinline__ void store_tile(const rdk_gemm_pairs_args &args, const piece &p, int32_t token,
                                           float (&sum)[S::sums]) {
    if (!args.c_vectors || args.c_type != RDK_BF16 || args.bias || p.row + S::tokens > args.m ||
        p.column + S::columns > args.n) {
        pairs::store_sums<S>(args, p.row + token, p.column, sum);
        return;
    }
    uint16_t *to =
        static_cast<uint16_t *>(args.c) + (p.row + token) * args.c_stride + p.column + threadIdx.x % 4 * 8;
#pragma unroll
    for (int j = 0; j < S::sums / 4; j += 4)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = pack_bf16(sum[(j + i) * 4 + half * 2], sum[(j + i) * 4 + half * 2 + 1]);
            *reinterpret_cast<uint4 *>(to + half * 8 * args.c_stride + j * 8) = turn_quad(word);
        }
}

// ---- the loop over tiles ---------------------------------------------------------------------------------------------------
template <typename S>
__device__ __forceinline__ void finish_tile(const rdk_gemm_pairs_args &args, const piece &p, int32_t part,
                                            int32_t token, float (&sum)[S::sums]) {
    int32_t missing = args.k_blocks - p.end, others = 0;
    for (; missing > 0; others++)
        missing -= pairs::line_begin(args, part + others + 2) - pairs::line_begin(args, part + others + 1);
    if (others) chunk::add_partials<S>(args, part + 1, others, sum);
    store_tile<S>(args, p, token, sum);
}

template <typename S>
__device__ __forceinline__ void multiply_tiles(const rdk_gemm_pairs_args &args, group_state<S> &at,
                                               int32_t token) {
    walker<S> walk(args);
    piece p, next;
    float even[S::slice_sums], odd[S::slice_sums], sum[S::sums];
    if (!walk.next(args, p)) return;
    look_ahead(at);
    issue<0>(at, even);
    load_scales(at, 0);
    while (true) {
        const int32_t border = kept(128 - p.column % 128), count = p.end - p.begin;
#pragma unroll
        for (int i = 0; i < S::sums; i++) sum[i] = 0.0f;
        int32_t i = 0;
        for (; i + 1 < count; i++) {
            issue<1>(at, odd);
            add_slice<0, 1>(at, i, count, border, even, sum);
            look_ahead(at);
            load_scales(at, i + 1);
            issue<0>(at, even);
            add_slice<1, 1>(at, i, count, border, odd, sum);
        }
        const bool more = walk.next(args, next);
        if (i + 1 !=
            count) { // no piece is empty; without this way out ptxas 13.0 serialises all products (C7514)
            add_slice<0, 0>(at, i, count, border, even, sum);
            chunk::leave_partials<S>(args, walk.part, sum);
            return;
        }
        issue<1>(at, odd);
        add_slice<0, 1>(at, i, count, border, even, sum);
        if (more && count == args.k_blocks) { // what is left to do needs no registers
            look_ahead(at);
            issue<0>(at, even);
            add_slice<1, 1>(at, i, count, border, odd, sum);
            store_tile<S>(args, p, token, sum);
            load_scales(at, 0);
        } else {
            add_slice<1, 0>(at, i, count, border, odd, sum);
            if (p.begin)
                chunk::leave_partials<S>(args, walk.part, sum);
            else
                finish_tile<S>(args, p, walk.part, token, sum);
            if (!more) return;
            look_ahead(at);
            issue<0>(at, even);
            load_scales(at, 0);
        }
        p = next;
    }
}

template <typename S> struct groups {
    static __device__ __forceinline__ void run(const rdk_gemm_pairs_args &args, ring<S> &r) {
        const int32_t group =
            __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
        const int32_t token = group * GROUP_TOKENS + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        const uint32_t first = smem_address(&r), split = GROUP_TOKENS * K_BLOCK * (uint32_t)group;
        group_state<S> at;
        at.ring = kept(first);
        at.tokens = __shfl_sync(0xffffffffu, wgmma_descriptor(first + split), 0);
        at.weights = __shfl_sync(0xffffffffu, wgmma_descriptor(first + S::a_bytes), 0);
        at.scales = kept(smem_address(&r.a_scales[0][0][token]));
        at.release = kept(cluster_address(r.empty, threadIdx.x % PAIR));
        at.next = at.oldest = {0, 0};
        at.batch = {0, 0};
        multiply_tiles<S>(args, at, token);
    }
};

} // namespace chunk

#endif // RDK_GEMM_SM90A_CHUNK_CUH
