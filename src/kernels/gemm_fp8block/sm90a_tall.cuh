// SPDX-License-Identifier: Apache-2.0
// Class "chunk" on tiles of 256 tokens by 128 weight rows: two groups of 128 tokens, each with one product of 64 tokens by 128 rows at the
// tensor cores. A group adds its product up, sum = fma(block sum, As * Ws, sum), and starts its next; meanwhile the tensor cores have the other
// group's. Barriers, scales and addresses are asked for while a product runs, so that between its end and the next one's start stand
// additions alone. A tile of 128 weight rows has one scale a block, so producers bring As * Ws ready.
#ifndef RDK_GEMM_SM90A_TALL_CUH
#define RDK_GEMM_SM90A_TALL_CUH

#include "kernels/gemm_fp8block/sm90a_chunk.cuh"

namespace tall {

using pairs::cursor;
using pairs::piece;
using pairs::walker;
enum {
    K_BLOCK = RDK_K_BLOCK,
    PAIR = 2,
    GROUPS = 2,
    PARTS = 2, // of a group's tokens: a product each
    PART_TOKENS = 64,
    SETS = GROUPS * 32, // of a multiplying block's threads: those of one set read the same scales
    SCALE_BLOCKS = RDK_PAIRS_SCALE_BLOCKS,
    SCALE_BATCHES = RDK_PAIRS_SCALE_BATCHES,
    SCALE_WARPS = 2,
    PRODUCER_REGISTERS = 56,
    GROUP_REGISTERS = 224, // 2 * 224 + 56 = 3 * 168, what 384 threads get
};

struct shape { // what the walker asks for, too
    static constexpr bool step = false;
    static constexpr int tokens = RDK_TALL_TOKENS, columns = RDK_TALL_COLUMNS;
    static constexpr int a_bytes = tokens * K_BLOCK, w_bytes = columns * K_BLOCK, stage_bytes = a_bytes + w_bytes;
    static constexpr int stages = rdk_tall_stages();
    static constexpr int part_sums = columns / 2, sums = PARTS * part_sums; // of a thread
};
static_assert(shape::tokens == GROUPS * PARTS * PART_TOKENS && shape::columns == 128, "");
struct part_shape : shape { // what the way out sees: from a part's first row the tile ends at most `tokens` on
    static constexpr int tokens = shape::tokens - (PARTS - 1) * PART_TOKENS, sums = shape::part_sums;
};

struct ring {
    unsigned char tiles[shape::stages][shape::stage_bytes];
    float scales[SCALE_BATCHES][SCALE_BLOCKS][RDK_TALL_SCALE_PITCH]; // As * Ws: rows r and r + 8 of both parts, those of a set side by side
    uint64_t full[shape::stages], empty[shape::stages], scale_full[SCALE_BATCHES], scale_empty[SCALE_BATCHES];
};
static_assert(sizeof(ring) + 1024 <= rdk_tall_shared_bytes(), "shared memory");

// ---- producers: one lane each for weights and tokens, two warps for scales -----------------------------------------------
template <bool WEIGHTS> __device__ __forceinline__ void produce_tiles(const rdk_gemm_pairs_args &args, ring &r) {
    constexpr int rows = WEIGHTS ? shape::columns : shape::tokens, half_bytes = rows / 2 * K_BLOCK;
    static_assert(!WEIGHTS || rows / 2 == RDK_TILE_ROWS, "half a tile's weights are one box in every layout");
    const bool shared = (args.pair_m != 0) == WEIGHTS;
    const void *map = WEIGHTS ? args.w_map : args.a_map;
    const int32_t rank = cluster_rank();
    cursor<shape::stages> at = {0, 1};
    walker<shape> walk(args);
    if (!WEIGHTS || !args.early_weights) wait_dependencies();
    for (piece p; walk.next(args, p);) {
#pragma unroll 1
        for (int32_t kb = p.begin; kb < p.end; kb++) {
            const int32_t row = WEIGHTS ? p.column : p.row;
            const rdk_place low = rdk_box_place(WEIGHTS && args.w_tiled, args.k_blocks, row, kb),
                            high = rdk_box_place(WEIGHTS && args.w_tiled, args.k_blocks, row + rows / 2, kb);
            unsigned char *tile = r.tiles[at.slot] + (WEIGHTS ? shape::a_bytes : 0);
            uint64_t *full = &r.full[at.slot];
            barrier_wait(&r.empty[at.slot], at.parity); // of both blocks' groups
            barrier_expect(full, rows * K_BLOCK);
            if (shared) {
                copy_box_cluster(tile + rank * half_bytes, map, full, low.x, rank ? high.y : low.y, 3);
            } else {
                copy_box(tile, map, full, low.x, low.y);
                copy_box(tile + half_bytes, map, full, high.x, high.y);
            }
            at.advance();
        }
    }
}

// Scales of eight k blocks, one sector a row: lane % 8 is the block, lane / 8 + 4 i the set of threads that will read them. In two rounds,
// all loads of a round in flight at once; the next batch's first round is while there is no room for it yet. Two warps, half of the
// tokens each.
struct scale_round {
    static constexpr int sets = SETS / 16; // of this lane
    float token[sets][4], weight;
    static __device__ __forceinline__ int32_t set(int32_t warp, int32_t round, int32_t i) {
        return (warp * 2 + round) * (sets * 4) + 4 * i + threadIdx.x % 32 / 8;
    }
    __device__ __forceinline__ void fetch(const rdk_gemm_pairs_args &args, const piece &p, int32_t kb, int32_t warp, int32_t round) {
        const int32_t block = kb + threadIdx.x % SCALE_BLOCKS, s = set(warp, round, 0), row = s / 32 * (PARTS * PART_TOKENS) + s % 32 / 8 * 16 + s % 8;
        const int32_t left = block < p.end ? args.m - p.row - row : 0;
        const float *from = args.a_scale + (p.row + row) * args.a_scale_stride_m + block * args.a_scale_stride_k;
        int64_t step = 4 * args.a_scale_stride_m;
        asm volatile("" : "+l"(step)); // else every row's offset is held, and spilled
#pragma unroll
        for (int i = 0; i < sets; i++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int more = i / 2 * 16 + i % 2 * 4 + k / 2 * PART_TOKENS + k % 2 * 8;
                token[i][k] = more < left ? load_fresh(from + more / 4 * step) : 0.0f;
            }
        const int32_t w = p.column / 128;
        weight = block < p.end && w * 128 < args.n
                     ? load_scale(args.w_scale, w * args.w_scale_stride_n + block * args.w_scale_stride_k, args.w_scale_e8m0 != 0)
                     : 0.0f;
    }
    __device__ __forceinline__ void store(float (&to)[SCALE_BLOCKS][RDK_TALL_SCALE_PITCH], int32_t warp, int32_t round) const {
#pragma unroll
        for (int i = 0; i < sets; i++)
            *reinterpret_cast<float4 *>(&to[threadIdx.x % SCALE_BLOCKS][set(warp, round, i) * 4]) =
                make_float4(token[i][0] * weight, token[i][1] * weight, token[i][2] * weight, token[i][3] * weight);
    }
};

__device__ __forceinline__ void produce_scales(const rdk_gemm_pairs_args &args, ring &r, int32_t warp) {
    cursor<SCALE_BATCHES> at = {0, 1};
    walker<shape> walk(args);
    wait_dependencies();
    piece p;
    bool more = walk.next(args, p);
    int32_t kb = p.begin;
    scale_round batch;
    if (more) batch.fetch(args, p, kb, warp, 0);
#pragma unroll 1
    while (more) {
        barrier_wait(&r.scale_empty[at.slot], at.parity);
        batch.store(r.scales[at.slot], warp, 0);
        batch.fetch(args, p, kb, warp, 1);
        batch.store(r.scales[at.slot], warp, 1);
        barrier_arrive(&r.scale_full[at.slot]); // each lane for what it stored
        at.advance();
        kb += SCALE_BLOCKS;
        if (kb >= p.end) {
            more = walk.next(args, p);
            kb = p.begin;
        }
        if (more) batch.fetch(args, p, kb, warp, 0);
    }
}

// ---- a group -------------------------------------------------------------------------------------------------------------
struct group_state {
    uint32_t ring;                     // where the ring stands in shared memory
    uint32_t tokens, weights;          // descriptors of the group's operands in the first stage
    uint32_t scales;                   // this thread's scales of the first block
    uint32_t release;                  // lanes 0 and 1: the first `empty` barrier of block 0 and 1 of the pair
    uint32_t tile;                     // `next` in units of descriptors, the same in all lanes
    cursor<shape::stages> next, oldest; // stages: the next to be multiplied, and the oldest that is not released
    cursor<SCALE_BATCHES> batch;
    float scale[4];
};

template <int PART> __device__ __forceinline__ void issue(const group_state &at, float (&acc)[shape::part_sums]) {
    const uint32_t tokens = at.tokens + at.tile, weights = at.weights + at.tile;
    wgmma_pin(acc);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < K_BLOCK / 32; step++)
        wgmma_e4m3<shape::columns>::run(acc, tokens + PART * (PART_TOKENS * K_BLOCK / 16) + step * 2, weights + step * 2, step != 0);
    wgmma_commit();
}
// The last product of the oldest stage runs: `next` becomes the stage after it.
__device__ __forceinline__ void step_stage(group_state &at) {
    at.next.advance();
    at.tile = __shfl_sync(0xffffffffu, at.next.slot * (shape::stage_bytes / 16), 0);
}
__device__ __forceinline__ void await_stage(const group_state &at) {
    barrier_wait(at.ring + (uint32_t)offsetof(ring, full) + at.next.slot * 8, at.next.parity);
}
__device__ __forceinline__ void release_stage(group_state &at) {
    if (threadIdx.x % 32 < PAIR) barrier_arrive_at(at.release + at.oldest.slot * 8);
    at.oldest.advance();
}
__device__ __forceinline__ void load_scales(group_state &at, uint32_t i, uint32_t count) {
    const uint32_t block = i % SCALE_BLOCKS;
    if (block == 0) barrier_wait(at.ring + (uint32_t)offsetof(ring, scale_full) + at.batch.slot * 8, at.batch.parity);
    const float4 v = shared_f32x4(at.scales + (at.batch.slot * SCALE_BLOCKS + block) * (RDK_TALL_SCALE_PITCH * 4));
    at.scale[0] = v.x;
    at.scale[1] = v.y;
    at.scale[2] = v.z;
    at.scale[3] = v.w;
    if (block == SCALE_BLOCKS - 1 || i == count - 1) {
        barrier_arrive(at.ring + (uint32_t)offsetof(ring, scale_empty) + at.batch.slot * 8); // each lane for what it read
        at.batch.advance();
    }
}
// Neighbours share their scale, so that its register is read once for many.
template <int PART> __device__ __forceinline__ void add_part(const group_state &at, float (&acc)[shape::part_sums], float (&sum)[shape::sums]) {
    wgmma_wait<0>();
    wgmma_pin(acc);
#pragma unroll
    for (int k = 0; k < shape::part_sums; k++) {
        const int lower = k / (shape::part_sums / 2), half = k % (shape::part_sums / 2), j = half / 2 * 4 + lower * 2 + half % 2;
        float &to = sum[PART * shape::part_sums + j];
        to = fmaf(acc[j], at.scale[PART * 2 + lower], to);
    }
}
// One block whose first product runs already; its second is left to the caller.
__device__ __forceinline__ void multiply_block(group_state &at, uint32_t i, uint32_t count, float (&acc)[shape::part_sums],
                                               float (&sum)[shape::sums]) {
    load_scales(at, i, count);
    add_part<0>(at, acc, sum);
    issue<1>(at, acc);
    step_stage(at);
}

// ---- the loop over tiles -------------------------------------------------------------------------------------------------
__device__ __forceinline__ void store_parts(const rdk_gemm_pairs_args &args, piece p, int32_t token, float (&sum)[shape::sums]) {
#pragma unroll
    for (int part = 0; part < PARTS; part++, p.row += PART_TOKENS) {
        float half[shape::part_sums];
#pragma unroll
        for (int j = 0; j < shape::part_sums; j++) half[j] = sum[part * shape::part_sums + j];
        chunk::store_tile<part_shape>(args, p, token, half);
    }
}

// Tiles of this size are not cut along K: at every shape that was measured whole rounds were faster.
__device__ __forceinline__ void multiply_tiles(const rdk_gemm_pairs_args &args, group_state &at, int32_t token) {
    walker<shape> walk(args);
    piece p, next;
    float acc[shape::part_sums], sum[shape::sums];
    if (!walk.next(args, p)) return;
    await_stage(at);
    issue<0>(at, acc);
    while (true) {
        const int32_t count = p.end - p.begin;
#pragma unroll
        for (int i = 0; i < shape::sums; i++) sum[i] = 0.0f;
        int32_t i = 0;
#pragma unroll 1
        for (; i + 1 < count; i++) {
            multiply_block(at, i, count, acc, sum);
            await_stage(at);
            add_part<1>(at, acc, sum);
            issue<0>(at, acc);
            release_stage(at);
        }
        const bool more = walk.next(args, next);
        multiply_block(at, i, count, acc, sum);
        add_part<1>(at, acc, sum);
        release_stage(at);
        // The next tile's first product runs while this one's sums go out. After the last tile it is of an old stage and nobody's: a second
        // place of issue would cost registers.
        if (more) await_stage(at);
        issue<0>(at, acc);
        store_parts(args, p, token, sum);
        if (!more) break;
        p = next;
    }
    wgmma_wait<0>();
    wgmma_pin(acc);
}

__device__ __forceinline__ void multiply(const rdk_gemm_pairs_args &args, ring &r) {
    const int32_t group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
    const int32_t set = threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4; // of 32 of this group
    const uint32_t first = smem_address(&r), split = PARTS * PART_TOKENS * K_BLOCK * (uint32_t)group;
    group_state at;
    at.ring = kept(first);
    at.tokens = __shfl_sync(0xffffffffu, wgmma_descriptor(first + split), 0);
    at.weights = __shfl_sync(0xffffffffu, wgmma_descriptor(first + shape::a_bytes), 0);
    at.scales = kept(smem_address(&r.scales[0][0][(group * 32 + set) * 4]));
    at.release = kept(cluster_address(r.empty, threadIdx.x % PAIR));
    at.tile = 0;
    at.next = at.oldest = {0, 0};
    at.batch = {0, 0};
    multiply_tiles(args, at, group * PARTS * PART_TOKENS + set / 8 * 16 + set % 8);
}

__device__ __forceinline__ void block(const rdk_gemm_pairs_args &args) {
    extern __shared__ unsigned char shared_bytes[];
    auto &r = *reinterpret_cast<ring *>(shared_bytes + (1024 - smem_address(shared_bytes) % 1024) % 1024);
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch_map(args.a_map);
        prefetch_map(args.w_map);
        for (int i = 0; i < shape::stages; i++) {
            barrier_init(&r.full[i], 2);
            barrier_init(&r.empty[i], PAIR * GROUPS * 4);
        }
        for (int i = 0; i < SCALE_BATCHES; i++) {
            barrier_init(&r.scale_full[i], SCALE_WARPS * 32);
            barrier_init(&r.scale_empty[i], GROUPS * 128);
        }
        barrier_init_fence();
    }
    cluster_sync();
    const int32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) - GROUPS * 4;
    if (warp >= 0) {
        registers_give<PRODUCER_REGISTERS>();
        if (warp == 0) {
            if (threadIdx.x % 32 == 0) produce_tiles<true>(args, r);
        } else if (warp == 1) {
            if (threadIdx.x % 32 == 0) produce_tiles<false>(args, r);
        } else {
            produce_scales(args, r, warp - 2);
        }
    } else {
        registers_take<GROUP_REGISTERS>();
        multiply(args, r);
    }
    cluster_sync(); // the other block still writes into this one's ring and barriers
}

} // namespace tall

#endif // RDK_GEMM_SM90A_TALL_CUH
