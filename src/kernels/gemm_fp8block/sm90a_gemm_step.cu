// SPDX-License-Identifier: Apache-2.0
// Block-FP8 GEMM of order class "step": 1..128 tokens, bound by the read of the weights.
//
// Up to 16 tokens weight rows fill the 64-row side of the tensor core and all tokens stand in one n tile, so each weight byte
// crosses the chip once. The (pair of tiles, k block) units lie in one line, and each pair of multiprocessors takes one run of
// them, a tile each: every one streams about the same number of bytes (rdk_step_runs). A tile that spans runs is added up by the block that holds its
// first k block, in k order, from words that the others leave in `partials`; which block holds what follows from N, K and the
// number of multiprocessors alone, so a row's bits never depend on its neighbours. One warp streams weights (also before the input
// of the call is ready: they depend on nothing), one brings tokens, one their scales, 4 warps multiply for every 64 weight rows.
// From 17 tokens on the tokens fill the 64-row side and the two blocks of a pair bring each other half of them (sm90a_pairs.cuh):
// the same cut, and the same sums in the same order. Rows that the copy engine cannot address stay here, up to 32 at a time.
#include "kernels/common/sm90a_convert.cuh"
#include "kernels/common/sm90a_wgmma.cuh"
#include "kernels/gemm_fp8block/sm90a_args.h"
#include "kernels/gemm_fp8block/sm90a_pairs.cuh"
#include "kernels/gemm_fp8block/sm90a_step_ring.cuh"

__device__ __forceinline__ void group_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// ---- the multiplying groups ------------------------------------------------------------------------------------------
template <int TOKENS, int GROUPS>
__device__ __forceinline__ void issue_block(ring<TOKENS, GROUPS> &r, cursor &at, int group, float (&acc)[TOKENS / 2]) {
    using s = shape<TOKENS, GROUPS>;
    barrier_wait(&r.full[at.slot], at.parity);
    uint32_t weights = wgmma_descriptor(r.tiles[at.slot] + group * GROUP_BYTES);
    uint32_t tokens = wgmma_descriptor(r.tiles[at.slot] + s::weight_bytes);
    wgmma_pin(acc);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < K_BLOCK / 32; step++)
        wgmma_e4m3<TOKENS>::run(acc, weights + step * 2, tokens + step * 2, step != 0);
    wgmma_commit();
    at.advance<s::stages>();
}

struct reader { // what a warp of a multiplying group has taken in
    cursor stage, batch;
    uint32_t unit, begin, end;
};

// As * Ws of the tokens whose columns this lane holds.
template <int TOKENS, int GROUPS>
__device__ __forceinline__ void take_scales(ring<TOKENS, GROUPS> &r, const reader &at, float (&scale)[TOKENS / 4]) {
    uint32_t in_batch = at.unit % RDK_STEP_SCALE_UNITS;
    if (in_batch == 0 || at.unit == at.begin) barrier_wait(&r.scale_full[at.batch.slot], at.batch.parity);
    const float *from = &r.scales[at.batch.slot][in_batch][threadIdx.x % 4 * (TOKENS == 8 ? 2 : 4)];
    if constexpr (TOKENS == 8) {
        float2 pair = *reinterpret_cast<const float2 *>(from);
        scale[0] = pair.x, scale[1] = pair.y;
    } else {
#pragma unroll
        for (int j = 0; j < TOKENS / 16; j++) {
            float4 four = *reinterpret_cast<const float4 *>(from + j * 16);
            scale[j * 4] = four.x, scale[j * 4 + 1] = four.y, scale[j * 4 + 2] = four.z, scale[j * 4 + 3] = four.w;
        }
    }
}

// sum = fma(block sum, As * Ws, sum), then the stage is free. LEFT younger blocks stay in flight.
template <int LEFT, int TOKENS, int GROUPS>
__device__ __forceinline__ void promote_block(ring<TOKENS, GROUPS> &r, reader &at, float (&acc)[TOKENS / 2],
                                              float (&sum)[TOKENS / 2]) {
    using s = shape<TOKENS, GROUPS>;
    float scale[TOKENS / 4];
    if (TOKENS <= 64) take_scales(r, at, scale); // while the product is under way; 128 tokens lack the registers
    wgmma_wait<LEFT>();
    wgmma_pin(acc);
    if (TOKENS > 64) take_scales(r, at, scale);
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++) sum[i] = fmaf(acc[i], scale[i / 4 * 2 + i % 2], sum[i]);
    __syncwarp();
    bool batch_done = at.unit % RDK_STEP_SCALE_UNITS == RDK_STEP_SCALE_UNITS - 1 || at.unit == at.end - 1;
    if (threadIdx.x % 32 == 0) barrier_arrive(&r.empty[at.stage.slot]);
    if (batch_done) barrier_arrive(&r.scale_empty[at.batch.slot]); // each lane for what it read
    at.stage.advance<s::stages>();
    if (batch_done) at.batch.advance<RDK_STEP_SCALE_BATCHES>();
    at.unit++;
}

template <int TOKENS, int GROUPS>
__device__ __forceinline__ void multiply_segment(ring<TOKENS, GROUPS> &r, cursor &head, reader &tail, int group,
                                                 int32_t count, float (&sum)[TOKENS / 2]) {
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++) sum[i] = 0.0f;
    float even[TOKENS / 2];
    if constexpr (GROUPS == 2 && TOKENS == 32) { // registers for one; the other group fills the gap
        for (int32_t i = 0; i < count; i++) {
            issue_block(r, head, group, even);
            promote_block<0>(r, tail, even, sum);
        }
    } else { // two blocks in flight
        float odd[TOKENS / 2];
        issue_block(r, head, group, even);
        int32_t i = 0;
        for (; i + 2 < count; i += 2) {
            issue_block(r, head, group, odd);
            promote_block<1>(r, tail, even, sum);
            issue_block(r, head, group, even);
            promote_block<1>(r, tail, odd, sum);
        }
        if (i + 1 < count) {
            issue_block(r, head, group, odd);
            promote_block<1>(r, tail, even, sum);
            promote_block<0>(r, tail, odd, sum);
        } else {
            promote_block<0>(r, tail, even, sum);
        }
    }
}

// A sum travels as {value, tag}, 64 bits that arrive together, so no fence and no flag stands between the blocks. The reader
// clears the tag: words are free again when the call ends, and a replayed graph never meets its own old ones. The tag is a NaN in
// every type that memory may hold before the first call.
enum { TAG = 0x7fff7fff };

template <int TOKENS, int GROUPS>
__device__ __forceinline__ uint4 *partial_words(const rdk_gemm_step_args &args, int32_t range, int group) {
    return static_cast<uint4 *>(args.partials) + (int64_t)(own_tile(range) * GROUPS + group) * (TOKENS / 4) * 128 + threadIdx.x % 128;
}

template <int TOKENS> __device__ __forceinline__ void leave_partials(uint4 *words, const float (&sum)[TOKENS / 2]) {
#pragma unroll
    for (int j = 0; j < TOKENS / 4; j++)
        store_relaxed(words + j * 128, make_uint4(__float_as_uint(sum[j * 2]), TAG, __float_as_uint(sum[j * 2 + 1]), TAG));
}

// Adds what one or two blocks left, in this order. All loads of a round are in flight at once: one after the other they cost
// 0.7 us each, 17 us of a call of 128 tokens (H200).
template <int TOKENS>
__device__ __forceinline__ void add_partials(uint4 *first, uint4 *second, float (&sum)[TOKENS / 2]) {
    constexpr int round = TOKENS == 8 || TOKENS == 32 || TOKENS == 128 ? 2 : 4; // more would spill
    const uint4 none = make_uint4(0, TAG, 0, TAG), free_again = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int begin = 0; begin < TOKENS / 4; begin += round) {
        uint4 a[round], b[round];
        bool there;
        do {
            there = true;
#pragma unroll
            for (int i = 0; i < round; i++) a[i] = load_relaxed(first + (begin + i) * 128);
#pragma unroll
            for (int i = 0; i < round; i++) b[i] = second ? load_relaxed(second + (begin + i) * 128) : none;
#pragma unroll
            for (int i = 0; i < round; i++) there = there && a[i].y == TAG && a[i].w == TAG && b[i].y == TAG && b[i].w == TAG;
        } while (!there);
#pragma unroll
        for (int i = 0; i < round; i++) {
            float *to = sum + (begin + i) * 2;
            store_relaxed(first + (begin + i) * 128, free_again);
            to[0] += __uint_as_float(a[i].x);
            to[1] += __uint_as_float(a[i].z);
            if (!second) continue;
            store_relaxed(second + (begin + i) * 128, free_again);
            to[0] += __uint_as_float(b[i].x);
            to[1] += __uint_as_float(b[i].z);
        }
    }
}

// Four neighbours of one output row.
__device__ __forceinline__ void store_four(const rdk_gemm_step_args &args, int32_t token, int32_t row, float4 v) {
    int64_t at = token * args.c_stride + row;
    char *to = static_cast<char *>(args.c) + at * (args.c_type == RDK_F32 ? 4 : 2);
    float value[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (args.bias && row + i < args.n) value[i] += load_element(args.bias, row + i, args.bias_type);
    if (row + 3 < args.n && args.c_type != RDK_F32 && (uint64_t)to % 8 == 0) {
        uint32_t low, high;
        if (args.c_type == RDK_F16) {
            low = pack_f16(value[0], value[1]);
            high = pack_f16(value[2], value[3]);
        } else {
            low = pack_bf16(value[0], value[1]);
            high = pack_bf16(value[2], value[3]);
        }
        *reinterpret_cast<uint2 *>(to) = make_uint2(low, high);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (row + i < args.n) store_element(args.c, at + i, args.c_type, value[i]);
    }
}

// The tile stands with weight rows across the lanes; the output wants them side by side: turned in shared memory, so that a
// group writes 64 neighbours of a token at once.
template <int TOKENS, int GROUPS>
__device__ __forceinline__ void store_tile(const rdk_gemm_step_args &args, ring<TOKENS, GROUPS> &r, int group, int32_t first_row,
                                           const float (&sum)[TOKENS / 2]) {
    using s = shape<TOKENS, GROUPS>;
    int32_t thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4, token = thread % 4 * 2;
#pragma unroll
    for (int first = 0; first < TOKENS; first += s::turn_tokens) {
        if (first >= args.m) break;
        group_sync(group);
#pragma unroll
        for (int j = 0; j < s::turn_tokens / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                r.turn[group][j * 8 + token + i % 2][row + i / 2 * 8] = sum[(first / 8 + j) * 4 + i];
        group_sync(group);
#pragma unroll
        for (int t = 0; t < s::turn_tokens; t += 8) {
            int32_t to = t + thread / 16, at = thread % 16 * 4;
            if (first + to < args.m && first_row + at < args.n)
                store_four(args, first + to, first_row + at, *reinterpret_cast<const float4 *>(&r.turn[group][to][at]));
        }
    }
}

template <int TOKENS, int GROUPS>
__device__ __forceinline__ void multiply(const rdk_gemm_step_args &args, ring<TOKENS, GROUPS> &r, int32_t range, int32_t begin,
                                         int32_t end) {
    int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
    cursor head = {0, 0};
    reader tail = {{0, 0}, {0, 0}, (uint32_t)begin, (uint32_t)begin, (uint32_t)end};
    const int32_t last_end = (end + args.k_blocks - 1) / args.k_blocks * args.k_blocks;
    int32_t others_end = range + 1; // runs up to here hold the rest of this one's last tile
    while (args.runs.begin[others_end] < last_end) others_end++;
    for (int32_t unit = begin; unit < end;) {
        int32_t tile = unit / args.k_blocks, kb = unit - tile * args.k_blocks, tile_end = (tile + 1) * args.k_blocks;
        int32_t count = min(end, tile_end) - unit, row = (own_tile(tile) * GROUPS + group) * GROUP_ROWS;
        float sum[TOKENS / 2];
        multiply_segment<TOKENS, GROUPS>(r, head, tail, group, count, sum);
        unit += count;
        if (kb) {
            leave_partials<TOKENS>(partial_words<TOKENS, GROUPS>(args, range, group), sum);
            continue;
        }
        if (unit == end)
            for (int32_t other = range + 1; other < others_end; other += 2)
                add_partials<TOKENS>(partial_words<TOKENS, GROUPS>(args, other, group),
                                     other + 1 < others_end ? partial_words<TOKENS, GROUPS>(args, other + 1, group) : nullptr, sum);
        store_tile<TOKENS, GROUPS>(args, r, group, row, sum);
    }
}

template <int TOKENS, int GROUPS> __device__ __forceinline__ void step_block(const rdk_gemm_step_args &args) {
    using s = shape<TOKENS, GROUPS>;
    extern __shared__ unsigned char shared_bytes[];
    auto &r = *reinterpret_cast<ring<TOKENS, GROUPS> *>(
        shared_bytes + (1024 - smem_address(shared_bytes) % 1024) % 1024);
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch_map(args.w_map);
        if (!s::lanes_copy) prefetch_map(args.a_map);
        for (int i = 0; i < s::stages; i++) {
            barrier_init(&r.full[i], s::full_arrivals);
            barrier_init(&r.empty[i], GROUPS * 4);
        }
        barrier_init(&r.input, 1);
        for (int i = 0; i < RDK_STEP_SCALE_BATCHES; i++) {
            barrier_init(&r.scale_full[i], 32);
            barrier_init(&r.scale_empty[i], GROUPS * 128);
        }
        barrier_init_fence();
    }
    __syncthreads();
    // Who waits for partials waits for blocks that start before it (rdk_step_runs).
    int32_t range = args.runs.order[blockIdx.x / 2], begin = args.runs.begin[range], end = args.runs.begin[range + 1];
    int32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (warp == GROUPS * 4)
        produce_weights<TOKENS, GROUPS>(args, r, begin, end);
    else if (warp == GROUPS * 4 + 1)
        produce_tokens<TOKENS, GROUPS>(args, r, begin, end);
    else if (warp == GROUPS * 4 + 2)
        produce_scales<TOKENS, GROUPS>(args, r, begin, end);
    else
        multiply<TOKENS, GROUPS>(args, r, range, begin, end);
}

#define STEP_KERNEL(tokens_, groups_, rows_)                                                                             \
    extern "C" __global__ void __launch_bounds__(shape<tokens_, groups_>::threads, shape<tokens_, groups_>::residents)  \
        rdk_gemm_fp8block_step_sm90a_t##tokens_##_r##rows_(const __grid_constant__ rdk_gemm_step_args args) {           \
        step_block<tokens_, groups_>(args);                                                                              \
    }
STEP_KERNEL(8, 1, 64)
STEP_KERNEL(16, 1, 64)
STEP_KERNEL(32, 1, 64)
STEP_KERNEL(8, 2, 128)
STEP_KERNEL(16, 2, 128)
STEP_KERNEL(32, 2, 128)

#define WIDE_KERNEL(tokens_, rows_, ...)                                                                                 \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(pairs::shape<__VA_ARGS__>::threads, 1)        \
        rdk_gemm_fp8block_step_sm90a_t##tokens_##_r##rows_(const __grid_constant__ rdk_gemm_pairs_args args) {          \
        pairs::pairs_block<pairs::shape<__VA_ARGS__>>(args);                                                             \
    }
WIDE_KERNEL(64, 64, 64, 64, pairs::TOKENS_SHARED, 1, 0)
WIDE_KERNEL(128, 64, 64, 128, pairs::WEIGHTS_SHARED, 1, 0) // half of the tokens by both tiles of the unit
WIDE_KERNEL(64, 128, 64, 128, pairs::TOKENS_SHARED, 1, 12)
WIDE_KERNEL(128, 128, 128, 128, pairs::TOKENS_SHARED, 2, 12)
