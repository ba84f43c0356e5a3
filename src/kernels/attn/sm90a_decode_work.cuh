// SPDX-License-Identifier: Apache-2.0
// Which chunks a block attends. All work of a call forms one line: sequences, KV heads, chunks (the longest, which lie last,
// first), blocks of rows; its unit is a step of 64 keys. A block takes the chunks that begin in its equal share of the line.
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
    if (args.window > 0) s.low = min(max(s.kv_len - s.q_len - args.window + 1, 0) / RDK_ATTN_STEP_KEYS, s.high);
    return s;
}

struct attn_work {
    attn_sequence s;
    int32_t size; // of the chunk: 0 to RDK_ATTN_SIZES - 1
    int32_t kv_head, row_block, chunk;
    int32_t begin, end; // steps of the chunk
    int32_t at, last;   // where the chunk begins on the line, from the share's begin; where the share ends
};

__device__ __forceinline__ int32_t line_units(const rdk_attn_sm90a_args &args, const attn_sequence &s) {
    return (s.high - s.low) * args.kv_heads * args.row_blocks;
}
// The steps of the sequence that chunks of w's size hold: [size_low, size_high).
__device__ __forceinline__ int32_t size_low(const attn_work &w) {
    return max(rdk_attn_size_begin(w.size) / RDK_ATTN_STEP_KEYS, w.s.low);
}
__device__ __forceinline__ int32_t size_high(const attn_work &w) {
    return min(rdk_attn_size_begin(w.size + 1) / RDK_ATTN_STEP_KEYS, w.s.high);
}
__device__ __forceinline__ void open_chunk(attn_work &w, int32_t chunk) {
    w.chunk = chunk;
    w.begin = max(rdk_attn_chunk_begin(chunk) / RDK_ATTN_STEP_KEYS, w.s.low);
    w.end = min(rdk_attn_chunk_begin(chunk + 1) / RDK_ATTN_STEP_KEYS, w.s.high);
}

// The chunk after w's on the line; false when it is another team's.
__device__ __forceinline__ bool next_work(const rdk_attn_sm90a_args &args, attn_work &w) {
    w.at += w.end - w.begin;
    if (w.at >= w.last) return false;
    if (++w.row_block < args.row_blocks) return true;
    w.row_block = 0;
    if (w.begin > size_low(w)) {
        open_chunk(w, w.chunk - 1);
        return true;
    }
    if (++w.kv_head == args.kv_heads) {
        w.kv_head = 0;
        do {
            if (--w.size < 0) {
                do w.s = open_sequence(args, w.s.seq + 1);
                while (w.s.high <= w.s.low && w.s.seq < args.seqs);
                w.size = RDK_ATTN_SIZES - 1;
            }
        } while (size_high(w) <= size_low(w) && w.s.seq < args.seqs);
    }
    open_chunk(w, rdk_attn_chunk_count(size_high(w) * RDK_ATTN_STEP_KEYS) - 1);
    return true;
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

// Sets w to the sequence that holds place `at` of the line and returns where that sequence begins.
__device__ __forceinline__ int32_t find_sequence(const rdk_attn_sm90a_args &args, int32_t at, attn_sequence mine, attn_work &w) {
    int32_t lane = threadIdx.x % 32;
    int32_t before = 0;
    for (int32_t base = 0; base < args.seqs; base += 32) {
        if (base) mine = open_sequence(args, base + lane);
        int32_t units = line_units(args, mine), sum = units;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int32_t other = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum += other;
        }
        uint32_t beyond = __ballot_sync(0xffffffffu, before + sum > at);
        if (beyond) {
            int holder = __ffs(beyond) - 1;
            w.s = broadcast(mine, holder);
            return before + __shfl_sync(0xffffffffu, sum - units, holder);
        }
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    return before;
}

// The chunk that holds the first unit of share `share` of `shares`: this team's if it begins there, w.at == 0. False when the
// share is empty. mine: open_sequence(lane). Called by a whole warp.
__device__ __forceinline__ bool first_work(const rdk_attn_sm90a_args &args, int32_t share, int32_t shares, const attn_sequence &mine,
                                        attn_work &w) {
    int32_t total = line_units(args, mine);
    for (int32_t seq = 32 + threadIdx.x % 32; seq < args.seqs; seq += 32) total += line_units(args, open_sequence(args, seq));
#pragma unroll
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    int32_t even = total / shares, rest_units = total % shares, first = even * share + min(share, rest_units);
    w.last = even + (share < rest_units);
    if (w.last <= 0) return false;
    int32_t start = find_sequence(args, first, mine, w);
    int32_t rest = first - start, steps = 0;
    for (w.size = RDK_ATTN_SIZES - 1; w.size >= 0; w.size--) {
        steps = max(size_high(w) - size_low(w), 0);
        int32_t units = steps * args.kv_heads * args.row_blocks;
        if (rest < units) break;
        rest -= units, start += units;
    }
    int32_t head_units = steps * args.row_blocks;
    w.kv_head = rest / head_units;
    rest -= w.kv_head * head_units;
    open_chunk(w, rdk_attn_chunk_count((size_high(w) - 1 - rest / args.row_blocks) * RDK_ATTN_STEP_KEYS + 1) - 1);
    int32_t passed = (size_high(w) - w.end) * args.row_blocks; // of the head, before this chunk
    w.row_block = (rest - passed) / (w.end - w.begin);
    w.at = start - first + w.kv_head * head_units + passed + w.row_block * (w.end - w.begin);
    return true;
}

#endif // RDK_ATTN_SM90A_DECODE_WORK_CUH
