// SPDX-License-Identifier: Apache-2.0
// What the sm_90a GEMM kernels with 16-bit arithmetic share: the ring and who fills it, sums that travel between blocks, the way
// out. The plan is that of gemm_fp8block_step_sm90a: weight rows on the 64-row side of the tensor core, columns (tokens) in one n
// tile, (tile, k block) units in one line of which each range takes an equal run, cut by N, K and the device alone.
#ifndef RDK_SM90A_SKINNY_CUH
#define RDK_SM90A_SKINNY_CUH

#include "kernels/common/sm90a_rows.cuh"
#include "kernels/common/sm90a_skinny.h"
#include "kernels/common/sm90a_wgmma_half.cuh"

enum { SKINNY_GROUP_ROWS = 64, SKINNY_GROUP_BYTES = 64 * RDK_SKINNY_ROW_BYTES, SKINNY_PREFETCH_UNITS = 4 };

// BOXES of 64 k of the columns in a stage: 1 for 16-bit weights, 2 for 8-bit ones. HELD: the columns stand behind the ring with all
// their k blocks, a box each, for every tile of the block.
template <int COLUMNS, int GROUPS, int BOXES, bool HELD = false> struct skinny_ring {
    static constexpr int columns = COLUMNS, groups = GROUPS, boxes = BOXES;
    static constexpr bool held = HELD;
    static constexpr int rows = GROUPS * SKINNY_GROUP_ROWS, k_block = BOXES * RDK_SKINNY_BOX_K;
    static constexpr int weight_bytes = GROUPS * SKINNY_GROUP_BYTES, box_bytes = COLUMNS * RDK_SKINNY_ROW_BYTES;
    static constexpr int stages = HELD ? rdk_skinny_held_stages(COLUMNS) : rdk_skinny_stages(COLUMNS, rows, BOXES);
    static constexpr int threads = GROUPS * 128 + 64, residents = HELD ? 1 : rdk_skinny_residents(COLUMNS, rows, BOXES);
    static constexpr bool loads = BOXES == 2; // 8-bit weights pass through registers; else wgmma alone reads the ring
    static constexpr int turn_columns = rdk_skinny_turn_columns(COLUMNS);
    static_assert(!HELD || (rows == RDK_SKINNY_HELD_ROWS && BOXES == 1), "what the host reckons with");
    unsigned char tiles[stages][weight_bytes + (HELD ? 0 : BOXES * box_bytes)];
    float turn[GROUPS][turn_columns][RDK_SKINNY_TURN_PITCH];
    uint64_t full[stages], empty[stages];
    __device__ __forceinline__ unsigned char *held_columns() {
        return reinterpret_cast<unsigned char *>(this) + (sizeof(*this) + 1023) / 1024 * 1024;
    }
    __device__ __forceinline__ uint64_t *held_full() {
        return reinterpret_cast<uint64_t *>(held_columns() + RDK_SKINNY_HELD_BLOCKS * box_bytes);
    }
};

struct skinny_cursor { // where a role stands in the ring
    uint32_t slot, parity;
    template <int STAGES> __device__ __forceinline__ void advance() {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

struct skinny_run { // what a block works on: units begin .. end-1 of the line, columns from `column` on
    int32_t range, begin, end, slice, column;
};

__device__ __forceinline__ int32_t skinny_begin(const rdk_skinny_args &args, int32_t range) {
    return (range * args.range_shares + min(range, args.range_rest)) * args.share_units;
}

// Where rows are copied by stores and read by loads, every lane arrives by itself: a checker of races follows lanes, and not what a
// warp's barrier hands on to the one that would arrive for all.
template <class R> __device__ __forceinline__ bool skinny_lanes_arrive(const rdk_skinny_args &args) {
    return R::loads && !(args.w_maps && args.a_maps);
}

// One warp's copy of `rows` rows of 128 bytes into a swizzled tile, for rows that the copy engine cannot address.
__device__ __noinline__ void skinny_copy_rows(unsigned char *tile, const unsigned char *from, int64_t stride, int32_t rows,
                                              int32_t valid_rows, int32_t valid_bytes) {
    bool words = ((uint64_t)from | (uint64_t)stride | (uint32_t)valid_bytes) % 4 == 0;
    for (int32_t i = threadIdx.x % 32; i < rows * 32; i += 32) {
        int32_t row = i / 32, at = i % 32 * 4;
        uint32_t value = 0;
        if (row < valid_rows && at < valid_bytes) {
            const unsigned char *source = from + row * stride + at;
            if (words)
                value = __ldcg(reinterpret_cast<const unsigned int *>(source));
            else
                for (int b = 0; b < 4 && at + b < valid_bytes; b++)
                    value |= (uint32_t)__ldcg(source + b) << 8 * b;
        }
        *reinterpret_cast<uint32_t *>(tile + row * 128 + ((at / 16 ^ row % 8) * 16 + at % 16)) = value;
    }
    fence_async();
    __syncwarp();
}

// ---- who fills the ring ------------------------------------------------------------------------------------------------
// Weights depend on nothing: they are fetched before the input of the call is ready.
template <class R> __device__ __forceinline__ void skinny_weights(const rdk_skinny_args &args, R &r, const skinny_run &run) {
    skinny_cursor at = {0, 1};
    constexpr int elem_bytes = RDK_SKINNY_ROW_BYTES / R::k_block;
    int32_t lane = threadIdx.x % 32, tile = run.begin / args.k_blocks, kb = run.begin % args.k_blocks;
    uint64_t policy = policy_evict_first();
    for (int32_t unit = run.begin; unit < run.end; unit++) {
        if (unit == run.begin + R::stages && args.w_maps && lane == 0) // the ring is full and the columns may be far
            for (int32_t ahead = 0; ahead < SKINNY_PREFETCH_UNITS && unit + ahead < run.end; ahead++)
                prefetch_box(args.w_map, (unit + ahead) % args.k_blocks * R::k_block, (unit + ahead) / args.k_blocks * R::rows);
        unsigned char *to = r.tiles[at.slot];
        int32_t row = tile * R::rows;
        if (args.w_maps) {
            if (lane == 0) {
                barrier_wait(&r.empty[at.slot], at.parity);
                barrier_expect(&r.full[at.slot], R::weight_bytes);
                if (args.w_once)
                    copy_box_once(to, args.w_map, &r.full[at.slot], kb * R::k_block, row, policy);
                else
                    copy_box(to, args.w_map, &r.full[at.slot], kb * R::k_block, row);
            }
        } else {
            barrier_wait(&r.empty[at.slot], at.parity);
            skinny_copy_rows(to, args.w + row * args.w_stride_bytes + kb * RDK_SKINNY_ROW_BYTES, args.w_stride_bytes, R::rows,
                             args.n - row, (args.k - kb * R::k_block) * elem_bytes);
            barrier_arrive(&r.full[at.slot]);
        }
        at.advance<R::stages>();
        if (++kb == args.k_blocks) kb = 0, tile++;
    }
}

template <class R> __device__ __forceinline__ void skinny_columns(const rdk_skinny_args &args, R &r, const skinny_run &run) {
    skinny_cursor at = {0, 1};
    int32_t lane = threadIdx.x % 32, kb = run.begin % args.k_blocks;
    const unsigned char *from = args.a + run.column * args.a_stride_bytes;
    wait_dependencies();
    for (int32_t unit = run.begin; unit < run.end; unit++) {
        unsigned char *to = r.tiles[at.slot] + R::weight_bytes;
        if (args.a_maps) {
            if (lane == 0) {
                barrier_wait(&r.empty[at.slot], at.parity);
                barrier_expect(&r.full[at.slot], R::boxes * R::box_bytes);
                for (int box = 0; box < R::boxes; box++)
                    copy_box(to + box * R::box_bytes, args.a_map, &r.full[at.slot], kb * R::k_block + box * RDK_SKINNY_BOX_K,
                             run.column);
            }
        } else {
            barrier_wait(&r.empty[at.slot], at.parity);
            for (int box = 0; box < R::boxes; box++) {
                int32_t k = kb * R::k_block + box * RDK_SKINNY_BOX_K;
                skinny_copy_rows(to + box * R::box_bytes, from + k * 2, args.a_stride_bytes, R::columns,
                                 args.columns - run.column, (args.k - k) * 2);
            }
            barrier_arrive(&r.full[at.slot]);
        }
        at.advance<R::stages>();
        if (++kb == args.k_blocks) kb = 0;
    }
}

template <class R> __device__ __forceinline__ void skinny_held_columns(const rdk_skinny_args &args, R &r, const skinny_run &run) {
    wait_dependencies();
    if (threadIdx.x % 32) return;
    barrier_expect(r.held_full(), args.k_blocks * R::box_bytes);
    for (int32_t box = 0; box < args.k_blocks; box++)
        copy_box(r.held_columns() + box * R::box_bytes, args.a_map, r.held_full(), box * RDK_SKINNY_BOX_K, run.column);
}

// This warp is done with a stage.
template <class R> __device__ __forceinline__ void skinny_release(R &r, skinny_cursor &tail, bool all_lanes = false) {
    __syncwarp();
    if (threadIdx.x % 32 == 0 || all_lanes) barrier_arrive(&r.empty[tail.slot]);
    tail.advance<R::stages>();
}

// ---- sums between blocks -------------------------------------------------------------------------------------------------
// As in gemm_fp8block_step_sm90a: {value, tag} travel together and the reader clears the tag, so words are free again when the
// call ends. The tag is a NaN in every type that memory may hold before the first call.
enum { SKINNY_TAG = 0x7fff7fff };

template <class R>
__device__ __forceinline__ uint4 *skinny_words(const rdk_skinny_args &args, const skinny_run &run, int32_t range, int group) {
    int64_t tile = ((int64_t)run.slice * args.ranges + range) * R::groups + group;
    return static_cast<uint4 *>(args.partials) + tile * (R::columns / 4) * 128 + threadIdx.x % 128;
}

template <class R> __device__ __forceinline__ void skinny_leave(uint4 *words, const float (&sum)[R::columns / 2]) {
#pragma unroll
    for (int j = 0; j < R::columns / 4; j++)
        store_relaxed(words + j * 128, make_uint4(__float_as_uint(sum[j * 2]), SKINNY_TAG, __float_as_uint(sum[j * 2 + 1]),
                                                  SKINNY_TAG));
}

// Adds what SEVERAL blocks left, in their order; a null stands for no block. All loads of a round are in flight at once.
template <class R, int SEVERAL>
__device__ __forceinline__ void skinny_add(uint4 *const (&from)[SEVERAL], float (&sum)[R::columns / 2]) {
    constexpr int words = R::columns == 128 ? 4 : 8; // more in flight would spill
    constexpr int round = R::columns / 4 < words / SEVERAL ? R::columns / 4 : words / SEVERAL;
    const uint4 none = make_uint4(0, SKINNY_TAG, 0, SKINNY_TAG), free_again = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int begin = 0; begin < R::columns / 4; begin += round) {
        uint4 word[SEVERAL][round];
        bool there;
        do {
            there = true;
#pragma unroll
            for (int s = 0; s < SEVERAL; s++)
#pragma unroll
                for (int i = 0; i < round; i++) word[s][i] = from[s] ? load_relaxed(from[s] + (begin + i) * 128) : none;
#pragma unroll
            for (int s = 0; s < SEVERAL; s++)
#pragma unroll
                for (int i = 0; i < round; i++) there = there && word[s][i].y == SKINNY_TAG && word[s][i].w == SKINNY_TAG;
        } while (!there);
#pragma unroll
        for (int s = 0; s < SEVERAL; s++) {
            if (!from[s]) continue;
#pragma unroll
            for (int i = 0; i < round; i++) {
                store_relaxed(from[s] + (begin + i) * 128, free_again);
                sum[(begin + i) * 2] += __uint_as_float(word[s][i].x);
                sum[(begin + i) * 2 + 1] += __uint_as_float(word[s][i].z);
            }
        }
    }
}

// The rest of a tile whose first k block this range holds.
template <class R>
__device__ __forceinline__ void skinny_gather(const rdk_skinny_args &args, const skinny_run &run, int group, int32_t tile_end,
                                              float (&sum)[R::columns / 2]) {
    constexpr int several = R::columns <= 16 ? 4 : 2;
    for (int32_t other = run.range + 1; skinny_begin(args, other) < tile_end; other += several) {
        uint4 *from[several];
#pragma unroll
        for (int s = 0; s < several; s++)
            from[s] = skinny_begin(args, other + s) < tile_end ? skinny_words<R>(args, run, other + s, group) : nullptr;
        skinny_add<R>(from, sum);
    }
}

// ---- the way out -----------------------------------------------------------------------------------------------------------
__device__ __forceinline__ void skinny_group_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// Four neighbours of one output row.
__device__ __forceinline__ void skinny_store_four(const rdk_skinny_args &args, int32_t token, int32_t row, float4 v) {
    int64_t at = token * args.c_stride + row;
    char *to = static_cast<char *>(args.c) + at * (args.c_type == RDK_F32 ? 4 : 2);
    float value[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (args.bias && row + i < args.n) value[i] += load_element(args.bias, row + i, args.bias_type);
    if (row + 3 < args.n && args.c_type != RDK_F32 && (uint64_t)to % 8 == 0) {
        bool f16 = args.c_type == RDK_F16;
        *reinterpret_cast<uint2 *>(to) = make_uint2(f16 ? pack_f16(value[0], value[1]) : pack_bf16(value[0], value[1]),
                                                    f16 ? pack_f16(value[2], value[3]) : pack_bf16(value[2], value[3]));
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (row + i < args.n) store_element(args.c, at + i, args.c_type, value[i]);
    }
}

__device__ __forceinline__ uint32_t turn_8x8(uint32_t pairs) { // of 16-bit elements: lane l has row l / 4, columns l % 4 * 2 and the next
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pairs));
    return turned;
}

// From registers, where a column is a token. f32: eight lanes have 32 neighbouring bytes of a token. 16-bit: after a turn four lanes
// have them, and a pair of lanes exchanges words so that each has eight bytes. False where that does not fit.
template <class R>
__device__ __forceinline__ bool skinny_store_direct(const rdk_skinny_args &args, const skinny_run &run, int32_t first_row,
                                                    const float (&sum)[R::columns / 2]) {
    bool f32 = args.c_type == RDK_F32, f16 = args.c_type == RDK_F16;
    if (args.parts != 1 || (!f32 && (first_row + SKINNY_GROUP_ROWS > args.n || args.c_stride % 4 || (uint64_t)args.c % 8))) return false;
    int32_t lane = threadIdx.x % 32, pair = lane % 4, row = first_row + threadIdx.x % 128 / 32 * 16 + lane / 4;
    float bias[2] = {0.0f, 0.0f};
    for (int i = 0; args.bias && i < 2; i++)
        if (row + i * 8 < args.n) bias[i] = load_element(args.bias, row + i * 8, args.bias_type);
    // 16-bit: the even lane of a pair takes the first eight rows' words.
    int32_t at = row - lane / 4 + (pair % 2 ? 6 : 0) + pair * 2;
#pragma unroll
    for (int j = 0; j < R::columns / 8; j++) {
        if (run.column + j * 8 >= args.columns) break;
        float v[4]; // of a row two columns, of the row eight on two columns
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = args.bias ? sum[j * 4 + i] + bias[i / 2] : sum[j * 4 + i];
        if (f32) {
            int32_t token = run.column + j * 8 + pair * 2;
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (token + i % 2 < args.columns && row + i / 2 * 8 < args.n)
                    static_cast<float *>(args.c)[(token + i % 2) * args.c_stride + row + i / 2 * 8] = v[i];
            continue;
        }
        uint32_t low = turn_8x8(f16 ? pack_f16(v[0], v[1]) : pack_bf16(v[0], v[1]));
        uint32_t high = turn_8x8(f16 ? pack_f16(v[2], v[3]) : pack_bf16(v[2], v[3]));
        uint32_t other = __shfl_xor_sync(0xffffffffu, pair % 2 ? low : high, 1);
        int32_t token = run.column + j * 8 + lane / 4;
        if (token < args.columns)
            *reinterpret_cast<uint2 *>(static_cast<char *>(args.c) + (token * args.c_stride + at) * 2) =
                pair % 2 ? make_uint2(other, high) : make_uint2(low, other);
    }
    return true;
}

// The tile stands with weight rows across the lanes; the output wants them side by side. Where registers do not do: turned in shared
// memory, so that a group writes 64 neighbours of a token at once.
template <class R>
__device__ __forceinline__ void skinny_store(const rdk_skinny_args &args, R &r, const skinny_run &run, int group, int32_t first_row,
                                             const float (&sum)[R::columns / 2]) {
    if (skinny_store_direct<R>(args, run, first_row, sum)) return;
    int32_t thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    int32_t tokens = args.columns / args.parts, pass_tokens = R::turn_columns / args.parts;
#pragma unroll
    for (int first = 0; first < R::columns; first += R::turn_columns) {
        if (run.column + first >= args.columns) break;
        skinny_group_sync(group);
#pragma unroll
        for (int j = 0; j < R::turn_columns / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                r.turn[group][j * 8 + column + i % 2][row + i / 2 * 8] = sum[(first / 8 + j) * 4 + i];
        skinny_group_sync(group);
#pragma unroll 1
        for (int32_t to = thread / 16; to < pass_tokens; to += 8) {
            int32_t at = thread % 16 * 4, token = (run.column + first) / args.parts + to;
            if (token >= tokens || first_row + at >= args.n) continue;
            float4 v = *reinterpret_cast<const float4 *>(&r.turn[group][to * args.parts][at]);
#pragma unroll 1
            for (int32_t p = 1; p < args.parts; p++) {
                float4 more = *reinterpret_cast<const float4 *>(&r.turn[group][to * args.parts + p][at]);
                v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
            }
            skinny_store_four(args, token, first_row + at, v);
        }
    }
}

// ---- a block -----------------------------------------------------------------------------------------------------------------
template <class R> __device__ __forceinline__ void skinny_start(const rdk_skinny_args &args, R &r) {
    launch_dependents();
    if (threadIdx.x == 0) {
        prefetch_map(args.w_map);
        prefetch_map(args.a_map);
        if (R::held) barrier_init(r.held_full(), 1);
        for (int i = 0; i < R::stages; i++) {
            barrier_init(&r.full[i], (args.w_maps ? 1 : 32) + (R::held ? 0 : args.a_maps ? 1 : 32)); // weights and columns
            barrier_init(&r.empty[i], R::groups * 4 * (skinny_lanes_arrive<R>(args) ? 32 : 1));
        }
        barrier_init_fence();
    }
    __syncthreads();
}

// Blocks of one range and several slices of columns stand together. Lower blocks start first and take the later ranges: who waits
// for sums waits for blocks that run already.
template <class R> __device__ __forceinline__ skinny_run skinny_share(const rdk_skinny_args &args) {
    int32_t range = args.ranges - 1 - (int32_t)blockIdx.y;
    return {range, skinny_begin(args, range), skinny_begin(args, range + 1), (int32_t)blockIdx.x,
            (int32_t)blockIdx.x * R::columns};
}

// The body of a kernel: a warp for each side of the ring, the groups for multiply(ring, run).
template <class R, typename F> __device__ __forceinline__ void skinny_block(const rdk_skinny_args &args, F multiply) {
    extern __shared__ unsigned char shared_bytes[];
    R &r = *reinterpret_cast<R *>(shared_bytes + (1024 - smem_address(shared_bytes) % 1024) % 1024);
    skinny_start(args, r);
    skinny_run run = skinny_share<R>(args);
    int32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (warp == R::groups * 4)
        skinny_weights(args, r, run);
    else if (warp != R::groups * 4 + 1)
        multiply(r, run);
    else if constexpr (R::held)
        skinny_held_columns(args, r, run);
    else
        skinny_columns(args, r, run);
}

// f16 has 11 significant bits and f32 24, a bf16 part eight. Parts are cut off, not rounded: none overflows and their sum is exact.
__device__ __forceinline__ void skinny_split(const rdk_skinny_split_args &args) {
    launch_dependents();
    int32_t token = blockIdx.x, at = (blockIdx.y * RDK_SKINNY_SPLIT_THREADS + threadIdx.x) * 8;
    wait_dependencies();
    if (at >= args.k) return;
    eight e = load_eight(static_cast<const char *>(args.a) + token * args.a_stride * element_bytes(args.a_type), at, args.k - at,
                         args.a_type);
    for (int32_t part = 0; part < args.parts; part++) {
        eight cut;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float v = e.v[i];
            cut.v[i] = isnan(v) ? v : __uint_as_float(__float_as_uint(v) & 0xffff0000u);
            e.v[i] = isfinite(v) ? v - cut.v[i] : 0.0f;
        }
        store_eight(static_cast<__nv_bfloat16 *>(args.to) + (token * (int64_t)args.parts + part) * args.to_stride, at,
                    args.k - at, RDK_BF16, cut);
    }
}

#define SKINNY_SPLIT_KERNEL(name_)                                                                                       \
    extern "C" __global__ void __launch_bounds__(RDK_SKINNY_SPLIT_THREADS)                                               \
        name_(const __grid_constant__ rdk_skinny_split_args args) {                                                      \
        skinny_split(args);                                                                                              \
    }

#endif // RDK_SM90A_SKINNY_CUH
