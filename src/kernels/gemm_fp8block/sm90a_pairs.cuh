// SPDX-License-Identifier: Apache-2.0
// Block-FP8 tiles multiplied by pairs of multiprocessors, for tokens that fill the 64-row side of wgmma: the core of class "chunk"
// and of class "step" from 17 tokens on.
//
// The two blocks of a cluster work on neighbouring tiles that share their weights or their tokens: each brings half of what is
// shared, and the copy engine writes it into both. Four warps produce (weights, tokens, two for the scales), one or two warpgroups
// multiply: four wgmma of one 128-wide k block into fresh registers, then sum = fma(block sum, As * Ws, sum). Units of work are
// pairs of tiles. A part of them forms one line of (unit, k block) that is cut into runs; a tile that spans runs is added
// up by the block that holds its first k block, in k order, so the bits follow from the sizes and the device alone.
#ifndef RDK_GEMM_SM90A_PAIRS_CUH
#define RDK_GEMM_SM90A_PAIRS_CUH

#include "kernels/common/sm90a_convert.cuh"
#include "kernels/common/sm90a_wgmma.cuh"
#include "kernels/gemm_fp8block/sm90a_pairs_ring.cuh"
#include "kernels/gemm_fp8block/sm90a_pairs_sums.cuh"

namespace pairs {

// ---- producers: one lane each for weights and tokens ---------------------------------------------------------------------
// The ring is full of weights and the tokens of its first block have not come: the next ones go to the second-level cache, about as
// fast as memory brings them.
template <typename S> __device__ __forceinline__ void prefetch_weights(const rdk_gemm_pairs_args &args, ring<S> &r, int32_t at, int32_t end) {
    constexpr uint32_t cycles = 700;
    const int32_t last = min(at + S::prefetch, end);
    int32_t unit = at / args.k_blocks, kb = at - unit * args.k_blocks;
#pragma unroll 1
    for (; at < last; at++) {
        for (const uint32_t start = clock_now(); clock_now() - start < cycles;) {}
        if (barrier_passed(&r.full[0], 0)) break;
        const int32_t row = (unit * PAIR + (int32_t)cluster_rank()) * S::columns;
        for (int32_t i = 0; i < S::columns; i += args.w_box) {
            const rdk_place from = rdk_box_place(args.w_tiled, args.k_blocks, row + i, kb);
            prefetch_box(args.w_map, from.x, from.y);
        }
        if (++kb == args.k_blocks) kb = 0, unit++;
    }
}

template <typename S, bool WEIGHTS>
__device__ __forceinline__ void produce_tiles(const rdk_gemm_pairs_args &args, ring<S> &r) {
    constexpr int rows = WEIGHTS ? S::columns : S::tokens;
    const bool shared = S::step ? splits_tokens<S>() == WEIGHTS : (args.pair_m != 0) == WEIGHTS;
    const bool boxes_of_tokens = S::step && !WEIGHTS; // as long as the call's tokens ask for: what sticks out costs more than what is there
    const int32_t half = boxes_of_tokens ? args.box_tokens : rows / 2, all = boxes_of_tokens && splits_tokens<S>() ? half : half * 2;
    const void *map = WEIGHTS ? args.w_map : args.a_map;
    const uint64_t policy = policy_evict_first();
    const int32_t box = WEIGHTS ? args.w_box : half, first = shared ? (int32_t)cluster_rank() * half : 0,
                  last = shared ? first + half : all;
    cursor<S::stages> at = {0, 1};
    walker<S> walk(args);
    int32_t others = 0, until_full = S::stages;
    if constexpr (S::step) others = count_others(args, walk);
    const int32_t line_at = walk.at, line_end = walk.end;
    if (!WEIGHTS || !args.early_weights) wait_dependencies();
    for (piece p; walk.next(args, p);) {
#pragma unroll 1
        for (int32_t kb = p.begin; kb < p.end; kb++) {
            const int32_t row = WEIGHTS ? p.column : p.row;
            unsigned char *tile = r.tiles[at.slot] + (WEIGHTS ? S::a_bytes : 0);
            uint64_t *full = &r.full[at.slot];
            if constexpr (S::step && WEIGHTS)
                if (S::prefetch > 0 && until_full-- == 0) prefetch_weights<S>(args, r, line_at + S::stages, line_end);
            barrier_wait(&r.empty[at.slot], at.parity); // of both blocks' groups
            barrier_expect(full, all * K_BLOCK);
            for (int32_t i = first; i < last; i += box) {
                const rdk_place from = rdk_box_place(WEIGHTS && args.w_tiled, args.k_blocks, row + i, kb);
                unsigned char *to = tile + i * K_BLOCK;
                if (shared && S::step && WEIGHTS)
                    copy_box_cluster_once(to, map, full, from.x, from.y, 3, policy);
                else if (shared)
                    copy_box_cluster(to, map, full, from.x, from.y, 3);
                else if (S::step && WEIGHTS)
                    copy_box_once(to, map, full, from.x, from.y, policy);
                else
                    copy_box(to, map, full, from.x, from.y);
            }
            at.advance();
        }
        if constexpr (S::step)
            if (p.begin == 0 && p.end < args.k_blocks) copy_left<S, WEIGHTS>(args, r, at, others, walk.part + 1);
    }
}

// Scales come eight k blocks at a time: where they lie side by side they are one sector of the second-level cache. Two warps, half
// of the tokens each; lanes 0 to 15 of the first also bring those of the weights. All loads of a batch are in flight at once, and
// those of the next are while there is no room for it yet.
template <typename S> struct scale_batch {
    static constexpr int count = S::tokens / 8;
    float tokens[count], weight;
    __device__ __forceinline__ void fetch(const rdk_gemm_pairs_args &args, const piece &p, int32_t kb, int32_t warp) {
        const int32_t lane = threadIdx.x % 32, block = kb + lane % SCALE_BLOCKS, first = p.row + warp * (S::tokens / 2) + lane / 8;
        const float *from = args.a_scale + first * args.a_scale_stride_m + block * args.a_scale_stride_k;
        const int32_t left = block < p.end ? args.m - first : 0;
        const int64_t step = 4 * args.a_scale_stride_m;
#pragma unroll
        for (int i = 0; i < count; i++, from += step) tokens[i] = 4 * i < left ? load_fresh(from) : 0.0f;
        const int32_t row = p.column / 128 + lane / 8;
        weight = warp == 0 && lane < 16 && block < p.end && row * 128 < args.n
                     ? load_scale(args.w_scale, row * args.w_scale_stride_n + block * args.w_scale_stride_k, args.w_scale_e8m0 != 0)
                     : 0.0f;
    }
};

template <typename S>
__device__ __forceinline__ void produce_scales(const rdk_gemm_pairs_args &args, ring<S> &r, int32_t warp) {
    const int32_t lane = threadIdx.x % 32, first = warp * (S::tokens / 2) + lane / 8;
    cursor<SCALE_BATCHES> at = {0, 1};
    walker<S> walk(args);
    wait_dependencies();
    piece p;
    const int32_t part = walk.part;
    bool more = walk.next(args, p);
    int32_t kb = p.begin;
    bool leaves = S::step && warp == 1 && lane == 0 && more && p.begin > 0; // this lane says when
    scale_batch<S> batch;
    if (more) batch.fetch(args, p, kb, warp);
#pragma unroll 1
    while (more) {
        barrier_wait(&r.scale_empty[at.slot], at.parity);
        float *to = &r.a_scales[at.slot][lane % SCALE_BLOCKS][first];
#pragma unroll
        for (int i = 0; i < batch.count; i++) to[4 * i] = batch.tokens[i];
        if (warp == 0 && lane < 16) r.w_scales[at.slot][lane % SCALE_BLOCKS][lane / 8] = batch.weight;
        barrier_arrive(&r.scale_full[at.slot]); // each lane for what it stored
        at.advance();
        kb += SCALE_BLOCKS;
        if (kb >= p.end) {
            more = walk.next(args, p);
            kb = p.begin;
        }
        if (more) batch.fetch(args, p, kb, warp);
        if constexpr (S::step)
            if (leaves && barrier_passed(&r.left, 0)) {
                store_release(left_flag<S>(args, part), TAG);
                leaves = false;
            }
    }
    if constexpr (S::step)
        if (leaves) {
            barrier_wait(&r.left, 0);
            store_release(left_flag<S>(args, part), TAG);
        }
}

// ---- the multiplying groups ----------------------------------------------------------------------------------------------
template <typename S> struct group_state {
    uint32_t ring;    // where the ring stands in shared memory
    uint32_t tokens, weights; // descriptors of the group's operands in the first stage
    uint32_t scales;  // the first scale of this thread's rows
    uint32_t release; // lanes 0 and 1: the first `empty` barrier of block 0 and 1 of the pair
    cursor<S::stages> stage; // the oldest that is not added up
    cursor<SCALE_BATCHES> batch;
};

// AHEAD blocks are in flight already.
template <int AHEAD, typename S> __device__ __forceinline__ void issue_block(const group_state<S> &at, float (&acc)[S::sums]) {
    cursor<S::stages> stage = at.stage;
    if (AHEAD) stage.advance();
    // From one lane: the compiler sees that it is the same in all, and steps along K in registers of the warp.
    const uint32_t tile = __shfl_sync(0xffffffffu, stage.slot * (S::stage_bytes / 16), 0);
    const uint32_t tokens = at.tokens + tile, weights = at.weights + tile;
    barrier_wait(at.ring + (uint32_t)offsetof(ring<S>, full) + stage.slot * 8, stage.parity);
    wgmma_pin(acc);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < K_BLOCK / 32; step++)
        wgmma_e4m3<S::group_columns>::run(acc, tokens + step * 2, weights + step * 2, step != 0);
    wgmma_commit();
}

struct scales { // As * Ws of this thread's two rows, for the weight rows before and from the border between two blocks of them
    float low[2], high[2];
};

template <typename S> __device__ __forceinline__ scales take_scales(const group_state<S> &at, uint32_t block) {
    const uint32_t row = at.batch.slot * SCALE_BLOCKS + block;
    const uint32_t tokens = at.scales + row * S::scale_pitch * 4;
    float2 w = shared_f32x2(at.ring + (uint32_t)offsetof(ring<S>, w_scales) + row * 8);
    float upper = shared_f32(tokens), lower = shared_f32(tokens + 8 * 4);
    return {{upper * w.x, lower * w.x}, {upper * w.y, lower * w.y}};
}

// sum = fma(block sum, As * Ws, sum), then the stage is free. LEFT younger blocks stay in flight. Columns from `border` on
// belong to the next block of weight rows.
template <int LEFT, typename S>
__device__ __forceinline__ void promote_block(group_state<S> &at, uint32_t i, uint32_t count, int32_t border,
                                              float (&acc)[S::sums], float (&sum)[S::sums]) {
    const uint32_t block = i % SCALE_BLOCKS;
    if (block == 0) barrier_wait(at.ring + (uint32_t)offsetof(ring<S>, scale_full) + at.batch.slot * 8, at.batch.parity);
    const scales scale = take_scales(at, block);
    wgmma_wait<LEFT>();
    wgmma_pin(acc);
    if (threadIdx.x % 32 < PAIR) barrier_arrive_at(at.release + at.stage.slot * 8);
    if (block == SCALE_BLOCKS - 1 || i == count - 1) {
        barrier_arrive(at.ring + (uint32_t)offsetof(ring<S>, scale_empty) + at.batch.slot * 8); // each lane for what it read
        at.batch.advance();
    }
#pragma unroll
    for (int j = 0; j < S::sums / 4; j++) {
        const bool high = S::two_scales && j * 8 / S::border_step * S::border_step >= border;
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum[j * 4 + k] = fmaf(acc[j * 4 + k], high ? scale.high[k / 2] : scale.low[k / 2], sum[j * 4 + k]);
    }
    at.stage.advance();
}

template <typename S>
__device__ __forceinline__ void multiply_piece(group_state<S> &at, const piece &p, float (&sum)[S::sums]) {
    const int32_t border = kept(128 - p.column % 128), count = p.end - p.begin;
#pragma unroll
    for (int i = 0; i < S::sums; i++) sum[i] = 0.0f;
    float even[S::sums];
    if constexpr (S::two_in_flight) {
        float odd[S::sums];
        int32_t i = 0;
        issue_block<0>(at, even);
        for (; i + 2 < count; i += 2) {
            issue_block<1>(at, odd);
            promote_block<1>(at, i, count, border, even, sum);
            issue_block<1>(at, even);
            promote_block<1>(at, i + 1, count, border, odd, sum);
        }
        if (i + 1 < count) {
            issue_block<1>(at, odd);
            promote_block<1>(at, i, count, border, even, sum);
            promote_block<0>(at, i + 1, count, border, odd, sum);
        } else {
            promote_block<0>(at, i, count, border, even, sum);
        }
    } else {
        for (int32_t i = 0; i < count; i++) {
            issue_block<0>(at, even);
            promote_block<0>(at, i, count, border, even, sum);
        }
    }
}

// ---- output --------------------------------------------------------------------------------------------------------------
// Four words of each of four neighbouring lanes, turned: lane q gets word q of all four, in lane order.
__device__ __forceinline__ uint4 turn_quad(uint32_t (&word)[4]) {
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? word[i] : word[i + 1], 1);
        if (odd)
            word[i] = got;
        else
            word[i + 1] = got;
    }
    uint32_t first = __shfl_xor_sync(0xffffffffu, upper ? word[0] : word[2], 2);
    uint32_t second = __shfl_xor_sync(0xffffffffu, upper ? word[1] : word[3], 2);
    return upper ? make_uint4(first, second, word[2], word[3]) : make_uint4(word[0], word[1], first, second);
}

// Eight 16-bit neighbours of one output row, `count` of them inside it.
__device__ __forceinline__ void store_eight_16(uint16_t *to, int32_t count, bool vector, uint4 v) {
    if (vector && count >= 8) {
        *reinterpret_cast<uint4 *>(to) = v;
        return;
    }
    const uint64_t low = v.x | (uint64_t)v.y << 32, high = v.z | (uint64_t)v.w << 32;
#pragma unroll 1
    for (int i = 0; i < min(count, 8); i++) to[i] = (uint16_t)((i < 4 ? low : high) >> i % 4 * 16);
}

template <typename S>
__device__ __forceinline__ void add_bias(const rdk_gemm_pairs_args &args, int32_t column, float (&sum)[S::sums]) {
    const auto *f32 = static_cast<const float *>(args.bias) + column;
    const auto *bf16 = static_cast<const uint16_t *>(args.bias) + column; // the op takes these two types
#pragma unroll
    for (int j = 0; j < S::sums / 4; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (column + j * 8 + i >= args.n) continue;
            const float bias = args.bias_type == RDK_F32 ? f32[j * 8 + i] : __uint_as_float((uint32_t)bf16[j * 8 + i] << 16);
            sum[j * 4 + i] += bias;
            sum[j * 4 + 2 + i] += bias;
        }
}

template <typename S> __device__ __forceinline__ int32_t row_end(const rdk_gemm_pairs_args &args) { // of this block's tokens
    if constexpr (splits_tokens<S>()) return min(args.m, ((int32_t)cluster_rank() + 1) * args.box_tokens);
    return args.m;
}

// row: of this thread's upper sums; first: the group's first column.
template <typename S>
__device__ __forceinline__ void store_sums(const rdk_gemm_pairs_args &args, int32_t row, int32_t first, float (&sum)[S::sums]) {
    const int32_t quad = threadIdx.x % 4, pair = first + quad * 2;
    if (args.bias) add_bias<S>(args, pair, sum);
#pragma unroll
    for (int half = 0; half < 2; half++, row += 8) {
        if (args.c_type == RDK_F32) {
            float *to = static_cast<float *>(args.c) + row * args.c_stride + pair;
#pragma unroll
            for (int j = 0; j < S::sums / 4; j++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (row < row_end<S>(args) && pair + j * 8 + i < args.n) to[j * 8 + i] = sum[j * 4 + half * 2 + i];
            continue;
        }
        uint16_t *to = static_cast<uint16_t *>(args.c) + row * args.c_stride + first + quad * 8;
        const int32_t count = row < row_end<S>(args) ? args.n - first - quad * 8 : 0;
#pragma unroll
        for (int j = 0; j < S::sums / 4; j += 4) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float low = sum[(j + i) * 4 + half * 2], high = sum[(j + i) * 4 + half * 2 + 1];
                word[i] = args.c_type == RDK_F16 ? pack_f16(low, high) : pack_bf16(low, high);
            }
            store_eight_16(to + j * 8, count - j * 8, args.c_vectors, turn_quad(word));
        }
    }
}

template <typename S> __device__ __forceinline__ void multiply(const rdk_gemm_pairs_args &args, ring<S> &r) {
    const int32_t group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
    const int32_t token = (S::split_columns ? 0 : group * GROUP_TOKENS) + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const uint32_t first = smem_address(&r), split = (S::split_columns ? S::group_columns : GROUP_TOKENS) * K_BLOCK * (uint32_t)group;
    group_state<S> at = {kept(first),
                         __shfl_sync(0xffffffffu, wgmma_descriptor(first + (S::split_columns ? 0 : split)), 0),
                         __shfl_sync(0xffffffffu, wgmma_descriptor(first + S::a_bytes + (S::split_columns ? split : 0)), 0),
                         kept(smem_address(&r.a_scales[0][0][token])),
                         kept(cluster_address(r.empty, threadIdx.x % PAIR)),
                         {0, 0},
                         {0, 0}};
    walker<S> walk(args);
    int32_t others = 0;
    if constexpr (S::step) others = count_others(args, walk);
    for (piece p; walk.next(args, p);) {
        float sum[S::sums];
        multiply_piece<S>(at, p, sum);
        if constexpr (S::step) {
            if (p.begin) {
                leave_sums<S>(args, r, walk.part, sum);
                continue;
            }
            if (p.end < args.k_blocks)
                for (int32_t i = 0; i < others; i++) add_left<S>(at, sum);
            store_sums<S>(args, p.row + token, p.column + (S::split_columns ? group * S::group_columns : 0), sum);
            continue;
        }
        if (p.begin) {
            leave_partials<S>(args, walk.part, sum);
            continue;
        }
        int32_t missing = args.k_blocks - p.end, others = 0;
        for (; missing > 0; others++) missing -= line_begin(args, walk.part + others + 2) - line_begin(args, walk.part + others + 1);
        if (others) add_partials<S>(args, walk.part + 1, others, sum);
        store_sums<S>(args, p.row + token, p.column + (S::split_columns ? group * S::group_columns : 0), sum);
    }
}

template <typename S> struct groups { // what the multiplying groups run; sm90a_chunk.cuh has another
    static __device__ __forceinline__ void run(const rdk_gemm_pairs_args &args, ring<S> &r) {
        multiply<S>(args, r);
    }
};

template <typename S, typename GROUPS = groups<S>> __device__ __forceinline__ void pairs_block(const rdk_gemm_pairs_args &args) {
    extern __shared__ unsigned char shared_bytes[];
    auto &r = *reinterpret_cast<ring<S> *>(shared_bytes + (1024 - smem_address(shared_bytes) % 1024) % 1024);
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch_map(args.a_map);
        prefetch_map(args.w_map);
        for (int i = 0; i < S::stages; i++) {
            barrier_init(&r.full[i], 2);
            barrier_init(&r.empty[i], PAIR * consumer_warps<S>());
        }
        for (int i = 0; i < SCALE_BATCHES; i++) {
            barrier_init(&r.scale_full[i], 64);
            barrier_init(&r.scale_empty[i], consumer_warps<S>() * 32);
        }
        barrier_init(&r.left, consumer_warps<S>() * 32);
        barrier_init_fence();
    }
    cluster_sync();
    const int32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) - consumer_warps<S>();
    if (warp >= 0) {
        if (consumer_warps<S>() == 8) registers_give<PRODUCER_REGISTERS>();
        if (warp == 0) {
            if (threadIdx.x % 32 == 0) produce_tiles<S, true>(args, r);
        } else if (warp == 1) {
            if (threadIdx.x % 32 == 0) produce_tiles<S, false>(args, r);
        } else {
            produce_scales<S>(args, r, warp - 2);
        }
    } else {
        if (consumer_warps<S>() == 8) registers_take<CONSUMER_REGISTERS>(); // one group has them from the start
        GROUPS::run(args, r);
    }
    cluster_sync(); // the other block still writes into this one's ring and barriers
}

} // namespace pairs

#endif // RDK_GEMM_SM90A_PAIRS_CUH
