// SPDX-License-Identifier: Apache-2.0
// Which chunks a block attends. The chunks of each size of a call form a line: sequences, KV heads, chunks (the last ones first),
// blocks of rows. The blocks cut the lines among themselves, long chunks first, each line by what room the longer ones left a block:
// so no block ends with a long chunk too many, and each has its part of the short ones, which cost more than their keys. The
// teams of a block take its chunks in turn, each the next one that is left.
// Lengths are read here, on the device. Where a chunk is computed changes no bit of it.
#ifndef RDK_ATTN_SM90A_DECODE_WORK_CUH
#define RDK_ATTN_SM90A_DECODE_WORK_CUH

#include "kernels/attn/sm90a_args.h"

struct attn_sequence {
    int32_t seq, q_begin, q_len, kv_len;
    int32_t low, high; // steps that some row sees: [low, high)
};

__device__ __forceinline__ attn_sequence open_sequence(const rdk_attn_sm90a_args &args, int32_t seq) {
    attn_sequence s = {seq, 0, 0, 0, 0, 0};
    if (seq >= args.seqs) return s;
    s.q_begin = __ldcg(args.q_starts + seq);
    s.q_len = __ldcg(args.q_starts + seq + 1) - s.q_begin;
    s.kv_len = max(min(__ldcg(args.kv_lens + seq), args.max_blocks * args.block_tokens), 0);
    s.q_len = max(min(s.q_len, args.max_rows / args.group), 0);
    s.high = s.q_len > 0 ? (s.kv_len + RDK_ATTN_STEP_KEYS - 1) / RDK_ATTN_STEP_KEYS : 0;
    if (args.window > 0)
        s.low = min(max(s.kv_len - s.q_len - args.window + 1, 0) / RDK_ATTN_STEP_KEYS, s.high);
    return s;
}

// What chunks of one size hold of a head: steps [low, high) and `count` chunks, of which `top` is the last.
struct size_span {
    int32_t low, high, top, count;
    __device__ __forceinline__ size_span(const attn_sequence &s, int32_t size) {
        low = max(rdk_attn_size_begin(size) / RDK_ATTN_STEP_KEYS, s.low);
        high = min(rdk_attn_size_begin(size + 1) / RDK_ATTN_STEP_KEYS, s.high);
        top = rdk_attn_chunk_count(high * RDK_ATTN_STEP_KEYS) - 1;
        count = high <= low ? 0 : top + 1 - (rdk_attn_chunk_count(low * RDK_ATTN_STEP_KEYS + 1) - 1);
    }
};

// The chunks of each size that are a block's: `count` of them from place `first` of the line of that size.
struct attn_share {
    int32_t first[RDK_ATTN_SIZES], count[RDK_ATTN_SIZES];
};

struct attn_work {
    attn_sequence s;
    int32_t size, left; // of the chunk; of the block's chunks of that size, this one among them
    int32_t kv_head, row_block, chunk;
    int32_t begin, end; // steps of the chunk
};

__device__ __forceinline__ int32_t warp_running_sum(int32_t x) { // of the lanes up to this one
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int32_t other = __shfl_up_sync(0xffffffffu, x, step);
        if (threadIdx.x % 32 >= step) x += other;
    }
    return x;
}

// Cuts the line of one size among the blocks by what is left of their even share; loads: of the lane's blocks so far.
__device__ __forceinline__ void cut_size(int32_t chunks, int32_t cost, int32_t even, bool first,
                                         int32_t (&loads)[RDK_ATTN_LANE_BLOCKS], attn_share *share,
                                         int32_t size) {
    int32_t lane = threadIdx.x % 32, blocks = gridDim.x, block = lane * RDK_ATTN_LANE_BLOCKS;
    int32_t room[RDK_ATTN_LANE_BLOCKS], own = 0, at = 0, all = 0;
    if (!first) {
#pragma unroll
        for (int i = 0; i < RDK_ATTN_LANE_BLOCKS; i++) {
            int32_t left = max(even - loads[i], 0);
            room[i] = block + i < blocks && 2 * left >= cost ? left : 0;
            own += room[i];
        }
        at = warp_running_sum(own), all = __shfl_sync(0xffffffffu, at, 31);
        at -= own;
    }
    if (all == 0) { // all blocks are alike, or none has room for one
        at = block, all = blocks;
#pragma unroll
        for (int i = 0; i < RDK_ATTN_LANE_BLOCKS; i++) room[i] = 1;
    }
    float scale = __fdividef((float)chunks, (float)all);
    auto place = [&](int32_t room_before) {
        return room_before >= all ? chunks : min((int32_t)fmaf((float)room_before, scale, 0.5f), chunks);
    };
    int32_t from = place(at);
#pragma unroll
    for (int i = 0; i < RDK_ATTN_LANE_BLOCKS; i++) {
        at += room[i];
        int32_t to = place(at);
        loads[i] += (to - from) * cost;
        if (block + i == (int32_t)blockIdx.x) share->first[size] = from, share->count[size] = to - from;
        from = to;
    }
    __syncwarp();
}

// The block's share of all lines, by a whole warp. mine: open_sequence(lane).
__device__ __forceinline__ void cut_lines(const rdk_attn_sm90a_args &args, const attn_sequence &mine,
                                          attn_share *share) {
    int32_t heads = args.kv_heads * args.row_blocks, even = 0, chunks[RDK_ATTN_SIZES] = {},
            costs[RDK_ATTN_SIZES] = {};
#pragma unroll 1
    for (int32_t base = 0; base < args.seqs; base += 32) {
        const attn_sequence s = base ? open_sequence(args, base + threadIdx.x % 32) : mine;
#pragma unroll
        for (int size = 0; size < RDK_ATTN_SIZES; size++) {
            const size_span span(s, size);
            chunks[size] += span.count, costs[size] += max(span.high - span.low, 0) * RDK_ATTN_COST_STEP;
        }
    }
#pragma unroll
    for (int size = 0; size < RDK_ATTN_SIZES; size++) {
        chunks[size] = __reduce_add_sync(0xffffffffu, chunks[size]) * heads;
        costs[size] = __reduce_add_sync(0xffffffffu, costs[size]) * heads + chunks[size] * args.chunk_cost;
        even += costs[size];
    }
    even = (even + gridDim.x - 1) / gridDim.x;
    int32_t loads[RDK_ATTN_LANE_BLOCKS] = {};
    bool first = true;
#pragma unroll
    for (int size = RDK_ATTN_SIZES - 1; size >= 0; size--) {
        if (!chunks[size]) {
            if (threadIdx.x % 32 == 0) share->count[size] = 0;
            continue;
        }
        cut_size(chunks[size], costs[size] / chunks[size], even, first, loads, share, size);
        first = false;
    }
    __syncwarp();
}

// The sequence of a lane, for the whole warp.
__device__ __forceinline__ attn_sequence broadcast(const attn_sequence &mine, int lane) {
    attn_sequence s;
    s.seq = __shfl_sync(0xffffffffu, mine.seq, lane);
    s.q_begin = __shfl_sync(0xffffffffu, mine.q_begin, lane);
    s.q_len = __shfl_sync(0xffffffffu, mine.q_len, lane);
    s.kv_len = __shfl_sync(0xffffffffu, mine.kv_len, lane);
    s.low = __shfl_sync(0xffffffffu, mine.low, lane);
    s.high = __shfl_sync(0xffffffffu, mine.high, lane);
    return s;
}

__device__ __forceinline__ void open_chunk(attn_work &w, const size_span &span, int32_t chunk) {
    w.chunk = chunk;
    w.begin = max(rdk_attn_chunk_begin(chunk) / RDK_ATTN_STEP_KEYS, span.low);
    w.end = min(rdk_attn_chunk_begin(chunk + 1) / RDK_ATTN_STEP_KEYS, span.high);
}

// The chunk at place `at` of the line of w.size, by a whole warp.
__device__ __forceinline__ void find_chunk(const rdk_attn_sm90a_args &args, int32_t at, attn_sequence mine,
                                           attn_work &w) {
    int32_t lane = threadIdx.x % 32, heads = args.kv_heads * args.row_blocks;
    for (int32_t base = 0; base < args.seqs; base += 32) {
        if (base) mine = open_sequence(args, base + lane);
        int32_t own = size_span(mine, w.size).count * heads, sum = warp_running_sum(own);
        uint32_t beyond = __ballot_sync(0xffffffffu, sum > at);
        if (beyond) {
            int holder = __ffs(beyond) - 1;
            w.s = broadcast(mine, holder);
            at -= __shfl_sync(0xffffffffu, sum - own, holder);
            break;
        }
        at -= __shfl_sync(0xffffffffu, sum, 31);
    }
    const size_span span(w.s, w.size);
    int32_t head_chunks = max(span.count, 1) * args.row_blocks;
    w.kv_head = at / head_chunks;
    at -= w.kv_head * head_chunks;
    w.row_block = at % args.row_blocks;
    open_chunk(w, span, span.top - at / args.row_blocks);
}

// The first chunk of the block; false when it has none.
__device__ __forceinline__ bool first_work(const rdk_attn_sm90a_args &args, const attn_share *share,
                                           int32_t size, const attn_sequence &mine, attn_work &w) {
    for (w.size = size; w.size >= 0; w.size--) {
        w.left = share->count[w.size];
        if (!w.left) continue;
        find_chunk(args, share->first[w.size], mine, w);
        return true;
    }
    return false;
}
// The chunk after w's; false when there is none.
__device__ __forceinline__ bool next_work(const rdk_attn_sm90a_args &args, const attn_share *share,
                                          const attn_sequence &mine, attn_work &w) {
    if (--w.left == 0) return first_work(args, share, w.size - 1, mine, w);
    if (++w.row_block < args.row_blocks) return true;
    w.row_block = 0;
    size_span span(w.s, w.size);
    if (w.begin > span.low) {
        open_chunk(w, span, w.chunk - 1);
        return true;
    }
    if (++w.kv_head == args.kv_heads) {
        w.kv_head = 0;
        do {
            int32_t seq = w.s.seq + 1;
            w.s = seq < 32 ? broadcast(mine, seq) : open_sequence(args, seq);
            span = size_span(w.s, w.size);
        } while (!span.count && w.s.seq < args.seqs);
    }
    open_chunk(w, span, span.top);
    return true;
}

#endif // RDK_ATTN_SM90A_DECODE_WORK_CUH
