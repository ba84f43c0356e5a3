// SPDX-License-Identifier: Apache-2.0
// The multiplying groups of class "chunk" on tall tiles: 256 tokens by 128 weight rows, 128 tokens a group. A group has one product of
// 64 tokens at the tensor cores, adds it up, sum = fma(block sum, As * Ws, sum), and starts the other 64; meanwhile the tensor cores have
// the other group's. The ring, its producers and the order of work are those of pairs of blocks.
#ifndef RDK_GEMM_SM90A_TALL_CUH
#define RDK_GEMM_SM90A_TALL_CUH

#include "kernels/gemm_fp8block/sm90a_chunk.cuh"

namespace tall {

using pairs::cursor;
using pairs::piece;
using pairs::ring;
enum { K_BLOCK = RDK_K_BLOCK, PAIR = 2, PART_TOKENS = 64, PARTS = 2 };

struct shape {
    static constexpr int tokens = RDK_CHUNK_TALL_TOKENS, columns = 128;
    static constexpr bool step = false;
    static constexpr int a_bytes = tokens * K_BLOCK, w_bytes = columns * K_BLOCK, stage_bytes = a_bytes + w_bytes;
    static constexpr int stages = rdk_pairs_stages(tokens, columns);
    static constexpr int part_sums = columns / 2, sums = PARTS * part_sums; // of a thread
    static constexpr int scale_pitch = tokens + 4;
};
struct part_shape : shape { // what the way out sees: from a part's first row the tile's rows end 192 on at most
    static constexpr int tokens = shape::tokens - PART_TOKENS, sums = shape::part_sums;
};

struct group_state {
    uint32_t ring;            // where the ring stands in shared memory
    uint32_t tokens, weights; // descriptors of the group's operands in the first stage
    uint32_t scales;          // the first scale of this thread's rows
    uint32_t release;         // lanes 0 and 1: the first `empty` barrier of block 0 and 1 of the pair
    cursor<shape::stages> stage;
    cursor<pairs::SCALE_BATCHES> batch;
};

template <int PART>
__device__ __forceinline__ void multiply_part(uint32_t tokens, uint32_t weights, float upper, float lower, uint32_t release,
                                              float (&sum)[shape::sums]) {
    float acc[shape::part_sums];
    wgmma_pin(acc);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < K_BLOCK / 32; step++)
        wgmma_e4m3<shape::columns>::run(acc, tokens + PART * (PART_TOKENS * K_BLOCK / 16) + step * 2, weights + step * 2, step != 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(acc);
    if (PART == PARTS - 1 && threadIdx.x % 32 < PAIR) barrier_arrive_at(release);
#pragma unroll
    for (int j = 0; j < shape::part_sums; j++) {
        float &to = sum[PART * shape::part_sums + j];
        to = fmaf(acc[j], j & 2 ? lower : upper, to);
    }
}

__device__ __forceinline__ void multiply_piece(group_state &at, const piece &p, float (&sum)[shape::sums]) {
    const int32_t count = p.end - p.begin;
#pragma unroll
    for (int i = 0; i < shape::sums; i++) sum[i] = 0.0f;
#pragma unroll 1
    for (int32_t i = 0; i < count; i++) {
        const uint32_t tile = __shfl_sync(0xffffffffu, at.stage.slot * (shape::stage_bytes / 16), 0);
        const uint32_t block = i % pairs::SCALE_BLOCKS, row = at.batch.slot * pairs::SCALE_BLOCKS + block;
        if (block == 0)
            barrier_wait(at.ring + (uint32_t)offsetof(ring<shape>, scale_full) + at.batch.slot * 8, at.batch.parity);
        const uint32_t scales = at.scales + row * shape::scale_pitch * 4;
        const float w = shared_f32(at.ring + (uint32_t)offsetof(ring<shape>, w_scales) + row * 8);
        float scale[2 * PARTS];
#pragma unroll
        for (int k = 0; k < 2 * PARTS; k++) scale[k] = shared_f32(scales + (k / 2 * PART_TOKENS + k % 2 * 8) * 4) * w;
        barrier_wait(at.ring + (uint32_t)offsetof(ring<shape>, full) + at.stage.slot * 8, at.stage.parity);
        multiply_part<0>(at.tokens + tile, at.weights + tile, scale[0], scale[1], 0, sum);
        multiply_part<1>(at.tokens + tile, at.weights + tile, scale[2], scale[3], at.release + at.stage.slot * 8, sum);
        if (block == pairs::SCALE_BLOCKS - 1 || i == count - 1) {
            barrier_arrive(at.ring + (uint32_t)offsetof(ring<shape>, scale_empty) + at.batch.slot * 8); // each lane for what it read
            at.batch.advance();
        }
        at.stage.advance();
    }
}

struct groups {
    static __device__ __forceinline__ void run(const rdk_gemm_pairs_args &args, ring<shape> &r) {
        const int32_t group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
        const int32_t token = group * PARTS * PART_TOKENS + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        const uint32_t first = smem_address(&r), split = PARTS * PART_TOKENS * K_BLOCK * (uint32_t)group;
        group_state at = {kept(first),
                          __shfl_sync(0xffffffffu, wgmma_descriptor(first + split), 0),
                          __shfl_sync(0xffffffffu, wgmma_descriptor(first + shape::a_bytes), 0),
                          kept(smem_address(&r.a_scales[0][0][token])),
                          kept(cluster_address(r.empty, threadIdx.x % PAIR)),
                          {0, 0},
                          {0, 0}};
        pairs::walker<shape> walk(args);
        for (piece p; walk.next(args, p);) {
            float sum[shape::sums];
            tall::multiply_piece(at, p, sum);
            if (p.begin) {
                chunk::leave_partials<shape>(args, walk.part, sum);
                continue;
            }
            int32_t missing = args.k_blocks - p.end, others = 0;
            for (; missing > 0; others++)
                missing -= pairs::line_begin(args, walk.part + others + 2) - pairs::line_begin(args, walk.part + others + 1);
            if (others) chunk::add_partials<shape>(args, walk.part + 1, others, sum);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                float half[shape::part_sums];
#pragma unroll
                for (int j = 0; j < shape::part_sums; j++) half[j] = sum[part * shape::part_sums + j];
                piece q = p;
                q.row += part * PART_TOKENS;
                chunk::store_tile<part_shape>(args, q, token, half);
            }
        }
    }
};

} // namespace tall

#endif // RDK_GEMM_SM90A_TALL_CUH
