// SPDX-License-Identifier: Apache-2.0
// What the step kernels of few tokens share: the cut of the weights into runs, how sums travel between blocks, the way out.
#ifndef RDK_SM90A_STEP_CUH
#define RDK_SM90A_STEP_CUH

#include "kernels/common/sm90a_convert.cuh"
#include "kernels/common/sm90a_wgmma.cuh"
#include "kernels/gemm_fp8block/sm90a_args.h"

enum { K_BLOCK = RDK_K_BLOCK, GROUP_ROWS = 64, GROUP_BYTES = GROUP_ROWS * K_BLOCK };

struct cursor { // where a role stands in the ring
    uint32_t slot, parity;
    template <int STAGES> __device__ __forceinline__ void advance() {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// The first unit of a run.
template <typename ARGS> __device__ __forceinline__ int32_t range_begin(const ARGS &args, int32_t range) {
    return range * args.range_units + min(range, args.range_rest);
}
// A unit is two tiles: this block's.
__device__ __forceinline__ int32_t own_tile(int32_t unit_tile) {
    return unit_tile * 2 + blockIdx.x % 2;
}

// What the launches behind this one read, a block's share of it, into the second-level cache: their first bytes come while this
// kernel's last sums travel and while small kernels run that leave the memory idle.
template <typename ARGS> __device__ __forceinline__ void ask_soon(const ARGS &args) {
    const int64_t piece = 8192, part = (args.soon_bytes / 16 + gridDim.x - 1) / gridDim.x * 16;
    int64_t at = part * blockIdx.x, end = min(at + part, args.soon_bytes / 16 * 16);
    for (; at < end; at += piece) prefetch_bytes(args.soon + at, (uint32_t)min(end - at, piece));
}

__device__ __forceinline__ void group_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// A sum travels as {value, tag}, 64 bits that arrive together, so no fence and no flag stands between the blocks. The reader
// clears the tag: words are free again when the call ends, and a replayed graph never meets its own old ones. The tag is a NaN in
// every type that memory may hold before the first call.
enum { TAG = 0x7fff7fff };


// Four neighbours of one output row.
template <typename ARGS>
__device__ __forceinline__ void store_four(const ARGS &args, int32_t token, int32_t row, float4 v) {
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

#endif // RDK_SM90A_STEP_CUH
