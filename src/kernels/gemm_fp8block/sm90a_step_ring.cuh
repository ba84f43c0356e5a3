// SPDX-License-Identifier: Apache-2.0
// What the warps of a step kernel bring, up to 32 tokens: weights, tokens, scales, and the ring that they fill.
#ifndef RDK_GEMM_SM90A_STEP_RING_CUH
#define RDK_GEMM_SM90A_STEP_RING_CUH

#include "kernels/common/sm90a_convert.cuh"
#include "kernels/gemm_fp8block/sm90a_args.h"

enum { K_BLOCK = RDK_K_BLOCK, GROUP_ROWS = 64, GROUP_BYTES = GROUP_ROWS * K_BLOCK, PREFETCH_UNITS = 4, MULTIPROCESSORS_MOST = 256 };

template <int TOKENS, int GROUPS> struct shape {
    static constexpr int rows = GROUPS * GROUP_ROWS;
    static constexpr int weight_bytes = GROUPS * GROUP_BYTES;
    static constexpr int token_bytes = TOKENS * K_BLOCK;
    static constexpr int stages = rdk_step_stages(TOKENS, rows);
    static constexpr int threads = GROUPS * 128 + 96;
    static constexpr int residents = TOKENS <= 32 ? 2 : 1;
    static constexpr int turn_tokens = rdk_step_turn_tokens(TOKENS);
    static constexpr bool lanes_copy = GROUPS == 2;        // tokens past the copy engine
    static constexpr int tokens_ahead = stages * 2 / 3;    // then: units of them on their way
    static constexpr int full_arrivals = lanes_copy ? 33 : 2; // one for weights, one or each lane's for tokens
    static constexpr int scale_ahead = TOKENS <= 16 ? 4 : TOKENS <= 64 ? 2 : 1; // batches in flight
};

template <int TOKENS, int GROUPS> struct ring {
    using s = shape<TOKENS, GROUPS>;
    unsigned char tiles[s::stages][s::weight_bytes + s::token_bytes];
    float scales[RDK_STEP_SCALE_BATCHES][RDK_STEP_SCALE_UNITS][TOKENS + 4]; // the pitch keeps eight rows off each other's banks
    float turn[GROUPS][s::turn_tokens][RDK_STEP_TURN_PITCH];
    uint64_t full[s::stages], empty[s::stages], scale_full[RDK_STEP_SCALE_BATCHES], scale_empty[RDK_STEP_SCALE_BATCHES];
    uint64_t input; // the kernels before this one are complete
};

struct cursor { // where a role stands in the ring
    uint32_t slot, parity;
    template <int STAGES> __device__ __forceinline__ void advance() {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// A unit is two tiles: this block's.
__device__ __forceinline__ int32_t own_tile(int32_t unit_tile) {
    return unit_tile * 2 + blockIdx.x % 2;
}

// One warp's copy of `rows` rows of 128 bytes into a swizzled tile, for rows that the copy engine cannot address.
__device__ __noinline__ void copy_rows(unsigned char *tile, const unsigned char *from, int64_t stride, int32_t rows,
                                       int32_t valid_rows, int32_t valid_bytes) {
    bool words = ((uint64_t)from | (uint64_t)stride | (uint32_t)valid_bytes) % 4 == 0;
    for (int32_t i = threadIdx.x % 32; i < rows * (K_BLOCK / 4); i += 32) {
        int32_t row = i / (K_BLOCK / 4), at = i % (K_BLOCK / 4) * 4;
        uint32_t value = 0;
        if (row < valid_rows && at < valid_bytes) {
            const unsigned char *source = from + row * stride + at;
            if (words)
                value = __ldcg(reinterpret_cast<const unsigned int *>(source));
            else
                for (int b = 0; b < 4 && at + b < valid_bytes; b++)
                    value |= (uint32_t)__ldcg(source + b) << 8 * b;
        }
        *reinterpret_cast<uint32_t *>(tile + row * K_BLOCK + ((at / 16 ^ row % 8) * 16 + at % 16)) = value;
    }
    fence_async();
    __syncwarp();
}

// For each group of a block its 64 rows of a unit.
template <int GROUPS, typename F>
__device__ __forceinline__ void each_box(const rdk_gemm_step_args &args, int32_t tile, int32_t kb, F f) {
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
        f(group * GROUP_BYTES, rdk_box_place(args.w_tiled, args.k_blocks, (own_tile(tile) * GROUPS + group) * GROUP_ROWS, kb));
}

// How many blocks on each multiprocessor have weights to ask for. Only a hint of when memory has nothing else to do: blocks of other
// streams and kernels that never were here do not count.
__device__ uint32_t askers[MULTIPROCESSORS_MOST];

__device__ __forceinline__ uint32_t *askers_here() {
    uint32_t multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    return askers + multiprocessor % MULTIPROCESSORS_MOST;
}

// The ring is full: the next weights go to the second-level cache, as soon as the call before has asked for its last ones. Earlier
// they would only take turns with that call's; where the input comes first, with this one's tokens.
template <int TOKENS, int GROUPS>
__device__ __forceinline__ void prefetch_weights(const rdk_gemm_step_args &args, ring<TOKENS, GROUPS> &r, const uint32_t *here,
                                                 int32_t unit, int32_t end) {
    if (!barrier_passed(&r.input, 0)) // else the edge is a plain one
        while (load_relaxed(here) > 1)
            if (barrier_passed(&r.input, 0)) return;
    for (int32_t last = min(unit + PREFETCH_UNITS, end); unit < last; unit++)
        each_box<GROUPS>(args, unit / args.k_blocks, unit % args.k_blocks,
                         [&](int, rdk_place from) { prefetch_box(args.w_map, from.x, from.y); });
}

template <int TOKENS, int GROUPS>
__device__ __forceinline__ void produce_weights(const rdk_gemm_step_args &args, ring<TOKENS, GROUPS> &r, int32_t begin,
                                                int32_t end) {
    using s = shape<TOKENS, GROUPS>;
    cursor at = {0, 1};
    int32_t lane = threadIdx.x % 32, tile = begin / args.k_blocks, kb = begin % args.k_blocks;
    uint64_t policy = policy_evict_first();
    uint32_t *here = askers_here();
    if (lane == 0) atomicAdd(here, 1u);
    for (int32_t unit = begin; unit < end; unit++) {
        unsigned char *to = r.tiles[at.slot];
        if (args.use_maps) {
            if (lane == 0) {
                if (unit == begin + s::stages) prefetch_weights(args, r, here, unit, end);
                barrier_wait(&r.empty[at.slot], at.parity);
                barrier_expect(&r.full[at.slot], s::weight_bytes);
                each_box<GROUPS>(args, tile, kb, [&](int place, rdk_place from) {
                    copy_box_once(to + place, args.w_map, &r.full[at.slot], from.x, from.y, policy);
                });
            }
        } else {
            barrier_wait(&r.empty[at.slot], at.parity);
            each_box<GROUPS>(args, tile, kb, [&](int place, rdk_place from) {
                copy_rows(to + place, args.w + from.y * args.w_stride + from.x, args.w_stride, GROUP_ROWS, args.w_rows - from.y,
                          args.w_tiled ? K_BLOCK : args.k - from.x);
            });
            if (lane == 0) barrier_arrive(&r.full[at.slot]);
        }
        at.advance<s::stages>();
        if (++kb == args.k_blocks) kb = 0, tile++;
    }
    if (lane == 0) atomicSub(here, 1u);
}

// Tokens by the lanes, 16 bytes each at a time: when a call begins the copy engine's own queue is full of weights.
template <int TOKENS, int GROUPS>
__device__ __forceinline__ void copy_tokens(const rdk_gemm_step_args &args, ring<TOKENS, GROUPS> &r, int32_t begin, int32_t end) {
    using s = shape<TOKENS, GROUPS>;
    const int32_t row = threadIdx.x % 32 / 8, chunk = threadIdx.x % 8;
    const int64_t step = 4 * args.a_stride;
    const unsigned char *from = args.a + row * args.a_stride + chunk * 16;
    cursor at = {0, 1}, there = {0, 1};
    int32_t kb = begin % args.k_blocks;
    for (int32_t unit = begin; unit < end; unit++) {
        barrier_wait(&r.empty[at.slot], at.parity);
        unsigned char *to = r.tiles[at.slot] + s::weight_bytes;
        const int32_t bytes = max(0, min(16, args.k - kb * K_BLOCK - chunk * 16));
#pragma unroll
        for (int i = 0; i < TOKENS / 4; i++)
            copy_part(to + (row + 4 * i) * K_BLOCK + (chunk ^ (row + 4 * i) % 8) * 16, from + i * step + kb * K_BLOCK,
                      row + 4 * i < args.m ? bytes : 0);
        copies_commit();
        at.advance<s::stages>();
        if (++kb == args.k_blocks) kb = 0;
        if (unit - begin < s::tokens_ahead) continue;
        copies_wait<s::tokens_ahead>();
        fence_async();
        barrier_arrive(&r.full[there.slot]); // each lane for what it copied
        there.advance<s::stages>();
    }
    copies_wait<0>();
    fence_async();
    for (int32_t left = min(s::tokens_ahead, end - begin); left > 0; left--) {
        barrier_arrive(&r.full[there.slot]);
        there.advance<s::stages>();
    }
}

template <int TOKENS, int GROUPS>
__device__ __forceinline__ void produce_tokens(const rdk_gemm_step_args &args, ring<TOKENS, GROUPS> &r, int32_t begin,
                                               int32_t end) {
    using s = shape<TOKENS, GROUPS>;
    cursor at = {0, 1};
    int32_t lane = threadIdx.x % 32, kb = begin % args.k_blocks;
    wait_dependencies();
    if (lane == 0) barrier_arrive(&r.input);
    if (s::lanes_copy && args.use_maps) {
        copy_tokens(args, r, begin, end);
        return;
    }
    for (int32_t unit = begin; unit < end; unit++) {
        barrier_wait(&r.empty[at.slot], at.parity);
        unsigned char *to = r.tiles[at.slot] + s::weight_bytes;
        if (args.use_maps) {
            if (lane == 0) {
                barrier_expect(&r.full[at.slot], s::token_bytes);
                copy_box(to, args.a_map, &r.full[at.slot], kb * K_BLOCK, 0);
            }
        } else {
            copy_rows(to, args.a + kb * K_BLOCK, args.a_stride, TOKENS, args.m, args.k - kb * K_BLOCK);
            if (s::lanes_copy || lane == 0) barrier_arrive(&r.full[at.slot]);
        }
        at.advance<s::stages>();
        if (++kb == args.k_blocks) kb = 0;
    }
}

// Scales come eight k blocks at a time: a token's 32 bytes of them are one sector of the second-level cache, and all
// multiprocessors ask the same few lines for them. Batches lie at fixed places of the line of units.
template <int TOKENS> struct scale_batch {
    float tokens[TOKENS / 4], weight;
    int32_t row, kb; // of the weights; row < 0: nothing of this run
    // Those of the weights are there before the input of the call.
    __device__ __forceinline__ void fetch_weight(const rdk_gemm_step_args &args, int32_t rows, int32_t batch, int32_t begin, int32_t end) {
        const int32_t unit = batch * RDK_STEP_SCALE_UNITS + threadIdx.x % 8, tile = unit / args.k_blocks;
        kb = unit - tile * args.k_blocks;
        row = unit >= begin && unit < end ? own_tile(tile) * rows : -1;
        weight = row >= 0 && row < args.n
                     ? load_scale(args.w_scale, row / K_BLOCK * args.w_scale_stride_n + kb * args.w_scale_stride_k, args.w_scale_e8m0 != 0)
                     : 0.0f;
    }
    __device__ __forceinline__ void fetch_tokens(const rdk_gemm_step_args &args) {
        const int32_t token = threadIdx.x % 32 / 8;
        const float *from = args.a_scale + kb * args.a_scale_stride_k + token * args.a_scale_stride_m;
#pragma unroll
        for (int i = 0; i < TOKENS; i += 4)
            tokens[i / 4] = row >= 0 && token + i < args.m ? load_fresh(from + i * args.a_scale_stride_m) : 0.0f;
    }
};

// Where a token's scale stands in a row of them: what one lane of the product wants lies together.
template <int TOKENS> __device__ __forceinline__ int scale_place(int token) {
    return TOKENS == 8 ? token : token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
}

template <int TOKENS, int GROUPS>
__device__ __forceinline__ void produce_scales(const rdk_gemm_step_args &args, ring<TOKENS, GROUPS> &r, int32_t begin,
                                               int32_t end) {
    using s = shape<TOKENS, GROUPS>;
    cursor at = {0, 1};
    scale_batch<TOKENS> batch[s::scale_ahead];
    int32_t first = begin / RDK_STEP_SCALE_UNITS, last = (end - 1) / RDK_STEP_SCALE_UNITS;
#pragma unroll
    for (int d = 0; d < s::scale_ahead; d++) batch[d].fetch_weight(args, s::rows, first + d, begin, end);
    wait_dependencies();
    if (begin == end) return;
#pragma unroll
    for (int d = 0; d < s::scale_ahead; d++) batch[d].fetch_tokens(args);
    for (; first <= last; first += s::scale_ahead)
#pragma unroll
        for (int d = 0; d < s::scale_ahead; d++) {
            if (first + d > last) return;
            barrier_wait(&r.scale_empty[at.slot], at.parity);
#pragma unroll
            for (int i = 0; i < TOKENS / 4; i++)
                r.scales[at.slot][threadIdx.x % 8][scale_place<TOKENS>(threadIdx.x % 32 / 8 + 4 * i)] =
                    batch[d].tokens[i] * batch[d].weight;
            barrier_arrive(&r.scale_full[at.slot]); // each lane for what it stored
            batch[d].fetch_weight(args, s::rows, first + d + s::scale_ahead, begin, end);
            batch[d].fetch_tokens(args);
            at.advance<RDK_STEP_SCALE_BATCHES>();
        }
}

#endif // RDK_GEMM_SM90A_STEP_RING_CUH
