// SPDX-License-Identifier: Apache-2.0
// The tiles, the ring and the order of work of pairs of blocks (sm90a_pairs.cuh).
#ifndef RDK_GEMM_SM90A_PAIRS_RING_CUH
#define RDK_GEMM_SM90A_PAIRS_RING_CUH

#include "kernels/common/sm90a_wgmma.cuh"
#include "kernels/gemm_fp8block/sm90a_args.h"

namespace pairs {

enum {
    K_BLOCK = RDK_K_BLOCK,
    PAIR = 2,
    GROUP_TOKENS = 64,
    SCALE_BLOCKS = RDK_PAIRS_SCALE_BLOCKS,
    SCALE_BATCHES = RDK_PAIRS_SCALE_BATCHES,
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232, // 2 * 232 + 40 = 3 * 168, what 384 threads get
};

// What the blocks of a pair share. Class "chunk" is told at run time; class "step" reads weights once, by one tile of tokens or,
// where a pair splits the tokens, by two.
enum sharing { TOLD, TOKENS_SHARED, WEIGHTS_SHARED };
// GROUPS: warpgroups that multiply. PREFETCH: blocks of weights asked for beyond the ring while tokens are awaited.
template <int TOKENS_, int COLUMNS_, int SHARING_ = TOLD, int GROUPS_ = 2, int PREFETCH_ = 0> struct shape {
    static constexpr int tokens = TOKENS_, columns = COLUMNS_, groups = GROUPS_, prefetch = PREFETCH_;
    static constexpr int threads = groups * 128 + 128;
    static constexpr bool step = SHARING_ != TOLD, split_tokens = SHARING_ == WEIGHTS_SHARED;
    static constexpr int a_bytes = tokens * K_BLOCK, w_bytes = columns * K_BLOCK, stage_bytes = a_bytes + w_bytes;
    static constexpr int stages = rdk_pairs_stages(tokens, columns);
    static constexpr bool split_columns = tokens == GROUP_TOKENS && groups == 2; // the groups share the tokens, not the weights
    static constexpr int group_columns = split_columns ? columns / 2 : columns;
    static constexpr int sums = group_columns / 2; // of a thread
    static constexpr bool two_scales = columns % 128 != 0 && 128 % columns != 0; // a tile may touch two blocks of weight rows
    static constexpr int border_step = columns & -columns; // where the border may lie
    static_assert(sums % 16 == 0, "store_sums turns four octets of columns at a time");
    static constexpr int scale_pitch = tokens + 4;                              // eight rows off each other's banks
    static constexpr bool two_in_flight = sums <= 64; // else registers are short
};

// Class "chunk" brings shapes of its own (sm90a_chunk.cuh).
template <typename S> __device__ constexpr int consumer_warps() {
    if constexpr (S::step) return S::groups * 4;
    return 8;
}
template <typename S> __device__ constexpr bool splits_tokens() {
    if constexpr (S::step) return S::split_tokens;
    return false;
}

template <typename S> struct ring {
    unsigned char tiles[S::stages][S::stage_bytes];
    float a_scales[SCALE_BATCHES][SCALE_BLOCKS][S::scale_pitch];
    float w_scales[SCALE_BATCHES][SCALE_BLOCKS][2];
    uint64_t full[S::stages], empty[S::stages], scale_full[SCALE_BATCHES], scale_empty[SCALE_BATCHES], left;
};

template <int STAGES> struct cursor { // where a role stands in a ring
    uint32_t slot, parity;
    __device__ __forceinline__ void advance() {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// ---- the order of work, the same for every role --------------------------------------------------------------------------
struct piece { // of one tile: k blocks begin .. end-1
    int32_t row, column, begin, end;
};

__device__ __forceinline__ int32_t line_begin(const rdk_gemm_pairs_args &args, int32_t part) {
    return part * args.line_part + min(part, args.line_rest);
}

template <typename S> struct walker {
    int32_t part, at, end, unit; // of the line; then whole units
    // Lower blocks start first: who waits for partial sums waits for blocks that run already.
    __device__ __forceinline__ walker(const rdk_gemm_pairs_args &args) {
        int32_t pairs = gridDim.x / PAIR, pair = blockIdx.x / PAIR;
        part = S::step ? args.runs.order[pair] : pairs - 1 - pair;
        at = S::step ? args.runs.begin[part] : line_begin(args, part);
        end = S::step ? args.runs.begin[part + 1] : line_begin(args, part + 1);
        unit = args.line_units + pair;
    }
    __device__ __forceinline__ bool next(const rdk_gemm_pairs_args &args, piece &p) {
        int32_t u = unit;
        p.begin = 0;
        p.end = args.k_blocks;
        if (at < end) {
            u = at / args.k_blocks;
            p.begin = at - u * args.k_blocks;
            p.end = min(args.k_blocks, p.begin + end - at);
            at += p.end - p.begin;
        } else {
            if (unit >= args.units_m * args.units_n) return false;
            unit += gridDim.x / PAIR;
        }
        int32_t band = u / (args.group * args.units_n), rest = u - band * args.group * args.units_n;
        int32_t height = min(args.group, args.units_m - band * args.group), n = rest / height;
        int32_t m = band * args.group + rest - n * height, rank = cluster_rank();
        p.row = splits_tokens<S>() ? rank * args.box_tokens : (args.pair_m ? m * PAIR + rank : m) * S::tokens;
        p.column = (args.pair_m ? n : n * PAIR + rank) * S::columns;
        return true;
    }
};

} // namespace pairs

#endif // RDK_GEMM_SM90A_PAIRS_RING_CUH
