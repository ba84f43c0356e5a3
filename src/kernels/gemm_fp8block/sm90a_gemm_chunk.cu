// SPDX-License-Identifier: Apache-2.0
// Block-FP8 GEMM of order class "chunk": prefill, bound by the tensor cores.
//
// One block a multiprocessor walks tiles of 128 tokens by 64 to 192 weight rows. Blocks work in pairs on neighbouring tiles that
// share their weights or their tokens: each brings half of what is shared, and the copy engine writes it into both. One warp
// streams tiles into a ring, two bring scales, and two warpgroups of 64 tokens each multiply: four wgmma of one 128-wide k
// block into one set of registers, then sum = fma(block sum, As * Ws, sum) while the other group has the tensor cores.
// What does not fill a whole round of blocks is cut into equal runs of k blocks; a tile that spans blocks is added up by the
// one that holds its first k block, in k order, so the bits follow from M, N, K and the device alone.
#include "kernels/common/sm90a_convert.cuh"
#include "kernels/common/sm90a_wgmma.cuh"
#include "kernels/gemm_fp8block/sm90a_args.h"

enum {
    K_BLOCK = RDK_K_BLOCK,
    TOKENS = RDK_CHUNK_TOKENS,
    GROUP_TOKENS = TOKENS / 2,
    SCALE_BLOCKS = RDK_CHUNK_SCALE_BLOCKS,
    SCALE_BATCHES = RDK_CHUNK_SCALE_BATCHES,
    SCALE_PITCH = TOKENS + 4, // eight rows off each other's banks
    PAIR = 2,
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232, // 2 * 232 + 40 = 3 * 168, what 384 threads get
};

template <int COLUMNS> struct shape {
    static constexpr int a_bytes = TOKENS * K_BLOCK;
    static constexpr int w_bytes = COLUMNS * K_BLOCK;
    static constexpr int stages = rdk_chunk_stages(COLUMNS);
    static constexpr int sums = COLUMNS / 2;                                  // of a thread
    static constexpr bool two_scales = COLUMNS % 128 != 0 && 128 % COLUMNS != 0; // a tile may touch two blocks of weight rows
};

template <int COLUMNS> struct ring {
    using s = shape<COLUMNS>;
    unsigned char tiles[s::stages][s::a_bytes + s::w_bytes];
    float a_scales[SCALE_BATCHES][SCALE_BLOCKS][SCALE_PITCH];
    float w_scales[SCALE_BATCHES][SCALE_BLOCKS][2];
    uint64_t full[s::stages], empty[s::stages], scale_full[SCALE_BATCHES], scale_empty[SCALE_BATCHES];
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

__device__ __forceinline__ int32_t line_begin(const rdk_gemm_chunk_args &args, int32_t part) {
    return part * args.line_part + min(part, args.line_rest);
}

struct walker {
    int32_t part, at, end, unit; // of the line; then whole units
    // Lower blocks start first and take the later parts: who waits for partial sums waits for blocks that run already.
    __device__ __forceinline__ walker(const rdk_gemm_chunk_args &args) {
        int32_t pairs = gridDim.x / PAIR, pair = blockIdx.x / PAIR;
        part = pairs - 1 - pair;
        at = line_begin(args, part);
        end = line_begin(args, part + 1);
        unit = args.line_units + pair;
    }
    template <int COLUMNS> __device__ __forceinline__ bool next(const rdk_gemm_chunk_args &args, piece &p) {
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
        p.row = (args.pair_m ? m * PAIR + rank : m) * TOKENS;
        p.column = (args.pair_m ? n : n * PAIR + rank) * COLUMNS;
        return true;
    }
};

// ---- producers -----------------------------------------------------------------------------------------------------------
template <int COLUMNS>
__device__ __forceinline__ void produce_tiles(const rdk_gemm_chunk_args &args, ring<COLUMNS> &r) {
    using s = shape<COLUMNS>;
    const void *shared_map = args.pair_m ? args.w_map : args.a_map, *own_map = args.pair_m ? args.a_map : args.w_map;
    const int32_t shared_half = args.pair_m ? COLUMNS / 2 : TOKENS / 2, own_half = args.pair_m ? TOKENS / 2 : COLUMNS / 2;
    const int32_t shared_offset = args.pair_m ? s::a_bytes : 0, own_offset = args.pair_m ? 0 : s::a_bytes;
    const int32_t rank = cluster_rank();
    cursor<s::stages> at = {0, 1};
    walker walk(args);
    wait_dependencies();
    for (piece p; walk.next<COLUMNS>(args, p);) {
        int32_t shared_row = (args.pair_m ? p.column : p.row) + rank * shared_half, own_row = args.pair_m ? p.row : p.column;
        for (int32_t kb = p.begin; kb < p.end; kb++) {
            unsigned char *shared_tile = r.tiles[at.slot] + shared_offset + rank * shared_half * K_BLOCK;
            unsigned char *own_tile = r.tiles[at.slot] + own_offset;
            uint64_t *full = &r.full[at.slot];
            barrier_wait(&r.empty[at.slot], at.parity); // of both blocks' groups
            barrier_expect(full, s::a_bytes + s::w_bytes);
            copy_box_cluster(shared_tile, shared_map, full, kb * K_BLOCK, shared_row, 3);
            copy_box(own_tile, own_map, full, kb * K_BLOCK, own_row);
            copy_box(own_tile + own_half * K_BLOCK, own_map, full, kb * K_BLOCK, own_row + own_half);
            at.advance();
        }
    }
}

// Scales come eight k blocks at a time: where they lie side by side they are one sector of the second-level cache. Two warps, 64
// tokens each; lanes 0 to 15 of the first also bring those of the weights.
template <int COLUMNS>
__device__ __forceinline__ void produce_scales(const rdk_gemm_chunk_args &args, ring<COLUMNS> &r, int32_t warp) {
    const int32_t lane = threadIdx.x % 32, block = lane % SCALE_BLOCKS, first = warp * 64 + lane / 8;
    const int64_t step = 4 * args.a_scale_stride_m;
    cursor<SCALE_BATCHES> at = {0, 1};
    walker walk(args);
    wait_dependencies();
    for (piece p; walk.next<COLUMNS>(args, p);) {
        const float *from = args.a_scale + (p.row + first) * args.a_scale_stride_m + block * args.a_scale_stride_k;
        const int32_t left = args.m - p.row - first;
        for (int32_t kb = p.begin; kb < p.end; kb += SCALE_BLOCKS) {
            const bool there = kb + block < p.end;
            const float *token = from + kb * args.a_scale_stride_k;
            float *to = &r.a_scales[at.slot][block][first];
            barrier_wait(&r.scale_empty[at.slot], at.parity);
#pragma unroll 1
            for (int32_t done = 0; done < 64; done += 32) { // eight loads in flight
                float scale[8];
#pragma unroll
                for (int i = 0; i < 8; i++, token += step)
                    scale[i] = there && done + 4 * i < left ? load_fresh(token) : 0.0f;
#pragma unroll
                for (int i = 0; i < 8; i++) to[done + 4 * i] = scale[i];
            }
            if (warp == 0 && lane < 16) {
                int32_t row = p.column / 128 + lane / 8;
                r.w_scales[at.slot][block][lane / 8] =
                    there && row * 128 < args.n
                        ? load_scale(args.w_scale, row * args.w_scale_stride_n + (kb + block) * args.w_scale_stride_k,
                                     args.w_scale_e8m0 != 0)
                        : 0.0f;
            }
            barrier_arrive(&r.scale_full[at.slot]); // each lane for what it stored
            at.advance();
        }
    }
}

// ---- the multiplying groups ----------------------------------------------------------------------------------------------
struct scales { // of this thread's two rows, for the weight rows before and from the border between two blocks of them
    float low[2], high[2];
};

template <int COLUMNS>
__device__ __forceinline__ scales take_scales(const ring<COLUMNS> &r, uint32_t batch, uint32_t block) {
    const float *tokens = r.a_scales[batch][block] + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    float2 w = *reinterpret_cast<const float2 *>(r.w_scales[batch][block]);
    float upper = tokens[0], lower = tokens[8];
    return {{upper * w.x, lower * w.x}, {upper * w.y, lower * w.y}};
}

// sum = fma(block sum, As * Ws, sum); columns from `border` on belong to the next block of weight rows.
template <int COLUMNS>
__device__ __forceinline__ void promote(const float (&acc)[COLUMNS / 2], const scales &scale, int32_t border,
                                        float (&sum)[COLUMNS / 2]) {
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
        bool high = shape<COLUMNS>::two_scales && j / 4 * 32 >= border;
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[j * 4 + i] = fmaf(acc[j * 4 + i], high ? scale.high[i / 2] : scale.low[i / 2], sum[j * 4 + i]);
    }
}

template <int COLUMNS> struct group_state {
    cursor<shape<COLUMNS>::stages> stage;
    cursor<SCALE_BATCHES> batch;
    uint32_t release; // lanes 0 and 1: the first `empty` barrier of block 0 and 1 of the pair
};

template <int COLUMNS>
__device__ __forceinline__ void multiply_piece(ring<COLUMNS> &r, group_state<COLUMNS> &at, int32_t group, const piece &p,
                                               float (&sum)[COLUMNS / 2]) {
    using s = shape<COLUMNS>;
    const int32_t border = 128 - p.column % 128, lane = threadIdx.x % 32;
    float acc[s::sums];
#pragma unroll
    for (int i = 0; i < s::sums; i++) sum[i] = 0.0f;
    for (int32_t i = 0, count = p.end - p.begin; i < count; i++) {
        barrier_wait(&r.full[at.stage.slot], at.stage.parity);
        uint32_t tokens = wgmma_descriptor(r.tiles[at.stage.slot] + group * GROUP_TOKENS * K_BLOCK);
        uint32_t weights = wgmma_descriptor(r.tiles[at.stage.slot] + s::a_bytes);
        wgmma_pin(acc);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < K_BLOCK / 32; step++)
            wgmma_e4m3<COLUMNS>::run(acc, tokens + step * 2, weights + step * 2, step != 0);
        wgmma_commit();
        uint32_t block = i % SCALE_BLOCKS;
        if (block == 0) barrier_wait(&r.scale_full[at.batch.slot], at.batch.parity);
        scales scale = take_scales(r, at.batch.slot, block);
        wgmma_wait<0>();
        wgmma_pin(acc);
        if (lane < PAIR) barrier_arrive_at(at.release + at.stage.slot * 8);
        if (block == SCALE_BLOCKS - 1 || i == count - 1) {
            barrier_arrive(&r.scale_empty[at.batch.slot]); // each lane for what it read
            at.batch.advance();
        }
        promote<COLUMNS>(acc, scale, border, sum);
        at.stage.advance();
    }
}

// A part of a tile that another block adds up: four neighbouring sums of all 256 threads side by side, then a word a warp that
// says so. The reader clears the word, so a replayed graph never meets its own old ones.
enum { ARRIVED = 0x7fff7fff };

template <int COLUMNS> __device__ __forceinline__ float4 *partial_words(const rdk_gemm_chunk_args &args, int32_t part) {
    return reinterpret_cast<float4 *>(args.partials) + (int64_t)(part * PAIR + cluster_rank()) * (COLUMNS / 8) * 256 + threadIdx.x;
}
__device__ __forceinline__ uint32_t *arrived_word(const rdk_gemm_chunk_args &args, int32_t part) {
    return args.arrived + (part * PAIR + cluster_rank()) * RDK_CHUNK_WARPS + threadIdx.x / 32;
}

template <int COLUMNS>
__device__ __forceinline__ void leave_partials(const rdk_gemm_chunk_args &args, int32_t part, const float (&sum)[COLUMNS / 2]) {
    float4 *words = partial_words<COLUMNS>(args, part);
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++)
        __stcg(words + j * 256, make_float4(sum[j * 4], sum[j * 4 + 1], sum[j * 4 + 2], sum[j * 4 + 3]));
    __threadfence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) store_release(arrived_word(args, part), ARRIVED);
}

template <int COLUMNS>
__device__ __forceinline__ void add_partials(const rdk_gemm_chunk_args &args, int32_t part, float (&sum)[COLUMNS / 2]) {
    const float4 *words = partial_words<COLUMNS>(args, part);
    uint32_t *word = arrived_word(args, part);
    while (load_acquire(word) != ARRIVED) {}
    __syncwarp();
    if (threadIdx.x % 32 == 0) *word = 0;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
        float4 four = __ldcg(words + j * 256);
        sum[j * 4] += four.x;
        sum[j * 4 + 1] += four.y;
        sum[j * 4 + 2] += four.z;
        sum[j * 4 + 3] += four.w;
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

// Eight 16-bit neighbours of one output row.
__device__ __forceinline__ void store_eight_16(const rdk_gemm_chunk_args &args, int32_t row, int32_t column, uint4 v) {
    uint16_t *to = static_cast<uint16_t *>(args.c) + row * args.c_stride + column;
    if (row >= args.m) return;
    if (args.c_vectors && column + 8 <= args.n) {
        *reinterpret_cast<uint4 *>(to) = v;
        return;
    }
    const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (column + i < args.n) to[i] = (uint16_t)(word[i / 2] >> i % 2 * 16);
}

template <int COLUMNS>
__device__ __forceinline__ void store_piece(const rdk_gemm_chunk_args &args, const piece &p, float (&sum)[COLUMNS / 2]) {
    const int32_t quad = threadIdx.x % 4, row = p.row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    if (args.bias)
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int32_t column = p.column + j * 8 + quad * 2 + i;
                float bias = column < args.n ? load_element(args.bias, column, args.bias_type) : 0.0f;
                sum[j * 4 + i] += bias;
                sum[j * 4 + 2 + i] += bias;
            }
    if (args.c_type == RDK_F32) {
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int32_t column = p.column + j * 8 + quad * 2 + i % 2, at = row + i / 2 * 8;
                if (at < args.m && column < args.n) static_cast<float *>(args.c)[at * args.c_stride + column] = sum[j * 4 + i];
            }
        return;
    }
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 4)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float low = sum[(j + i) * 4 + half * 2], high = sum[(j + i) * 4 + half * 2 + 1];
                word[i] = args.c_type == RDK_F16 ? pack_f16(low, high) : pack_bf16(low, high);
            }
            uint4 v = turn_quad(word);
            store_eight_16(args, row + half * 8, p.column + (j + quad) * 8, v);
        }
}

template <int COLUMNS>
__device__ __forceinline__ void multiply(const rdk_gemm_chunk_args &args, ring<COLUMNS> &r) {
    const int32_t group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); // the same in all lanes, and the compiler sees it
    group_state<COLUMNS> at = {{0, 0}, {0, 0}, cluster_address(r.empty, threadIdx.x % PAIR)};
    walker walk(args);
    for (piece p; walk.next<COLUMNS>(args, p);) {
        float sum[COLUMNS / 2];
        multiply_piece<COLUMNS>(r, at, group, p, sum);
        if (p.begin) {
            leave_partials<COLUMNS>(args, walk.part, sum);
            continue;
        }
        int32_t missing = args.k_blocks - p.end;
        for (int32_t part = walk.part + 1; missing > 0; part++) {
            add_partials<COLUMNS>(args, part, sum);
            missing -= line_begin(args, part + 1) - line_begin(args, part);
        }
        store_piece<COLUMNS>(args, p, sum);
    }
}

template <int COLUMNS> __device__ __forceinline__ void chunk_block(const rdk_gemm_chunk_args &args) {
    using s = shape<COLUMNS>;
    extern __shared__ unsigned char shared_bytes[];
    auto &r = *reinterpret_cast<ring<COLUMNS> *>(shared_bytes + (1024 - smem_address(shared_bytes) % 1024) % 1024);
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch_map(args.a_map);
        prefetch_map(args.w_map);
        for (int i = 0; i < s::stages; i++) {
            barrier_init(&r.full[i], 1);
            barrier_init(&r.empty[i], PAIR * RDK_CHUNK_WARPS);
        }
        for (int i = 0; i < SCALE_BATCHES; i++) {
            barrier_init(&r.scale_full[i], 64);
            barrier_init(&r.scale_empty[i], RDK_CHUNK_WARPS * 32);
        }
        barrier_init_fence();
    }
    cluster_sync();
    const int32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (warp >= RDK_CHUNK_WARPS) {
        registers_give<PRODUCER_REGISTERS>();
        if (warp == RDK_CHUNK_WARPS) {
            if (threadIdx.x % 32 == 0) produce_tiles<COLUMNS>(args, r);
        } else if (warp < RDK_CHUNK_WARPS + 3) {
            produce_scales<COLUMNS>(args, r, warp - RDK_CHUNK_WARPS - 1);
        }
    } else {
        registers_take<CONSUMER_REGISTERS>();
        multiply<COLUMNS>(args, r);
    }
    cluster_sync(); // the other block still writes into this one's ring and barriers
}

#define CHUNK_KERNEL(columns_)                                                                                           \
    extern "C" __global__ void __cluster_dims__(PAIR, 1, 1) __launch_bounds__(384, 1)                                    \
        rdk_gemm_fp8block_chunk_sm90a_128x##columns_(const __grid_constant__ rdk_gemm_chunk_args args) {                \
        chunk_block<columns_>(args);                                                                                     \
    }
CHUNK_KERNEL(64)
CHUNK_KERNEL(96)
CHUNK_KERNEL(128)
CHUNK_KERNEL(160)
CHUNK_KERNEL(192)

// Rows of any stride and any alignment to rows on 16 bytes; a word of output a thread and turn.
extern "C" __global__ void __launch_bounds__(256) rdk_gemm_fp8block_chunk_sm90a_repack(const __grid_constant__ rdk_gemm_repack_args args) {
    launch_dependents();
    wait_dependencies();
    const int32_t words = (args.bytes + 3) / 4;
    for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y)
        for (int32_t at = blockIdx.x * 256 + threadIdx.x; at < words; at += gridDim.x * 256) {
            const unsigned char *from = args.from + row * args.from_stride + at * 4;
            uint32_t word = 0;
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (at * 4 + i < args.bytes) word |= (uint32_t)__ldcg(from + i) << 8 * i;
            *reinterpret_cast<uint32_t *>(args.to + row * args.to_stride + at * 4) = word;
        }
}
