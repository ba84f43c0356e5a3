// SPDX-License-Identifier: Apache-2.0
// attn_decode on Hopper: split over the keys, two launches.
//
// The first runs as many blocks as stay resident; each walks its share of all chunks of keys (sm90a_decode_work.cuh). One warp
// streams keys and values through a ring in shared memory; a team of four warps attends them for up to 32 rows (query tokens
// times heads of the group), 64 keys a step; two teams share a ring when there are more rows. Every chunk leaves a partial result
// for each row, and the second launch adds those up in order of position. Chunks are cut at absolute positions and lengths are
// read here, on the device: one captured graph serves every length up to its bound, and a row's bits follow from positions.
#include "kernels/attn/sm90a_decode_load.cuh"

// Running softmax of the rows that a lane holds, base 2: rows 8j + 2 (lane % 4) + e.
template <int N> struct lane_rows {
    float factor[N / 8][2], top[N / 8][2], sum[N / 8][2];
};

__device__ __forceinline__ void team_sync(int team) {
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"((int)RDK_ATTN_TEAM_THREADS) : "memory");
}

// Logits in base 2, before any mask.
template <int N> __device__ __forceinline__ void scale_scores(float softcap, const lane_rows<N> &rows, float (&s)[N / 8][4]) {
    const float log2e = 1.4426950408889634f;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float x = s[j][i] * rows.factor[j][i % 2];
            if (softcap > 0.0f) // factor holds 2 log2e / softcap: tanh y = 1 - 2 / (1 + exp 2y)
                x = softcap * log2e * (1.0f - 2.0f / (1.0f + power_of_two(x)));
            s[j][i] = x;
        }
}

// Hides keys that a row does not see; key: the lane's first, its other one is 8 on.
template <int N>
__device__ __forceinline__ void mask_scores(const row_table<N> *table, int32_t key, int32_t window, float (&s)[N / 8][4]) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t position = table->position[j * 8 + threadIdx.x % 4 * 2 + e], low = window > 0 ? position - window : -1;
            if (key > position || key <= low) s[j][e] = -INFINITY;
            if (key + 8 > position || key + 8 <= low) s[j][2 + e] = -INFINITY;
        }
}

// The largest logit of each row among this warp's keys, for the team to see.
template <int N> __device__ __forceinline__ void publish_tops(const float (&s)[N / 8][4], row_table<N> *table) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float top = fmaxf(s[j][e], s[j][2 + e]);
#pragma unroll
            for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
            if (lane < 4) table->top[j * 8 + lane * 2 + e][warp] = top;
        }
}

// Turns logits into weights under the team's new tops; keep: what becomes of sums so far. True where a top rises.
template <int N>
__device__ __forceinline__ bool soften(const row_table<N> *table, lane_rows<N> &rows, float (&s)[N / 8][4], float (&keep)[N / 8][2]) {
    bool rises = false;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float4 tops = *reinterpret_cast<const float4 *>(table->top[j * 8 + threadIdx.x % 4 * 2 + e]);
            float old = rows.top[j][e], top = fmaxf(fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w)), old);
            float base = top == -INFINITY ? 0.0f : top;
            keep[j][e] = old == top ? 1.0f : power_of_two(old - top);
            rises = rises || old != top;
            rows.top[j][e] = top;
            s[j][e] = power_of_two(s[j][e] - base);
            s[j][2 + e] = power_of_two(s[j][2 + e] - base);
            rows.sum[j][e] = rows.sum[j][e] * keep[j][e] + (s[j][e] + s[j][2 + e]);
        }
    return rises;
}

// Weights as 16-bit rows of 64 keys under the swizzle: what lies key by key in the lanes is stored transposed.
template <int N, bool FP8> __device__ __forceinline__ void store_weights(unsigned char *weights, const float (&s)[N / 8][4]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = lane % 8, half = lane / 8 % 2;
    uint32_t at = smem_address(weights) + row * 128 + ((warp * 2 + half) ^ row) * 16;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at + j * 1024),
                     "r"(pack_weights<FP8>(s[j][0], s[j][1])), "r"(pack_weights<FP8>(s[j][2], s[j][3]))
                     : "memory");
}

template <int DIMS, int N> __device__ __forceinline__ void pin(float (&o)[DIMS / 64][N / 8][4]) {
#pragma unroll
    for (int t = 0; t < DIMS / 64; t++)
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) asm volatile("" : "+f"(o[t][j][i])::"memory");
}

// A chunk's sums, tops and weights to memory.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void store_partial(const rdk_attn_sm90a_args &args, const chunk_record &w, int32_t first, int team,
                                              lane_rows<N> &rows, row_table<N> *table, const float (&o)[DIMS / 64][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, c = lane % 4, d = warp * (DIMS / 4) + lane / 4 * shape::lane_dims;
    int32_t count = w.q_len * args.group;
    int64_t place = (((int64_t)w.seq * args.kv_heads + w.kv_head) * args.chunks + w.chunk) * args.max_rows;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float sum = rows.sum[j][e];
#pragma unroll
            for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (lane < 4) table->sum[j * 8 + c * 2 + e][warp] = sum;
            int32_t row = first + j * 8 + c * 2 + e;
            if (row >= count || d >= args.head_dim) continue;
            float *to = args.sums + (place + row) * args.head_dim + d;
            if constexpr (shape::tiles == 1)
                *reinterpret_cast<float2 *>(to) = make_float2(o[0][j][e], o[0][j][2 + e]);
            else
#pragma unroll
                for (int t = 0; t < shape::tiles; t += 2)
                    *reinterpret_cast<float4 *>(to + t * 2) = make_float4(o[t][j][e], o[t][j][2 + e], o[t + 1][j][e], o[t + 1][j][2 + e]);
        }
    team_sync(team);
    if (warp) return;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t at = j * 8 + c * 2 + e;
            const float4 sums = *reinterpret_cast<const float4 *>(table->sum[at]);
            if (lane < 4 && first + at < count)
                *reinterpret_cast<float2 *>(args.tops + (place + first + at) * 2) =
                    make_float2(rows.top[j][e], (sums.x + sums.y) + (sums.z + sums.w));
        }
}

// What a team has in shared memory beside the ring.
template <int N> struct team_memory {
    unsigned char *queries, *weights;
    row_table<N> *table;
};

// One chunk: its steps through the ring, its sums in registers.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend_chunk(const rdk_attn_sm90a_args &args, const chunk_record &w, int team, const team_memory<N> &mine,
                                             unsigned char *ring, uint64_t *full, uint64_t *empty, ring_place &place,
                                             lane_rows<N> &rows, float (&o)[DIMS / 64][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    uint32_t queries = wgmma_descriptor(mine.queries), weights = wgmma_descriptor(mine.weights);
    int32_t open = w.kv_len - w.q_len;                                   // keys up to here are hidden by windows alone,
    int32_t shut = args.window > 0 ? w.kv_len - args.window : 0;           // keys from here on are not
    for (int32_t step = w.begin; step < w.end; step++) {
        float s[N / 8][4], keep[N / 8][2];
        barrier_wait(full + place.slot, place.turn);
        start_scores<DIMS, N, FP8>(ring + place.slot * shape::slot_bytes, queries, s);
        __syncwarp();
        if (lane == 0) barrier_arrive(empty + place.slot);
        place.advance(args.slots);
        wgmma_wait<0>();
        wgmma_pin(*reinterpret_cast<float(*)[N / 2]>(&s));

        int32_t first = step * RDK_ATTN_STEP_KEYS;
        scale_scores(args.softcap, rows, s);
        if (first + RDK_ATTN_STEP_KEYS - 1 > open || first < shut)
            mask_scores(mine.table, first + warp * 16 + key_at(lane / 4), args.window, s);
        publish_tops(s, mine.table);
        team_sync(team);
        bool rises = soften(mine.table, rows, s, keep);
        store_weights<N, FP8>(mine.weights, s);
        fence_async();
        if (__any_sync(0xffffffffu, rises)) // a factor of 1 changes no bit, so the vote does not either
#pragma unroll
            for (int t = 0; t < shape::tiles; t++)
#pragma unroll
                for (int j = 0; j < N / 8; j++)
#pragma unroll
                    for (int i = 0; i < 4; i++) o[t][j][i] *= keep[j][i % 2];
        team_sync(team);
        barrier_wait(full + place.slot, place.turn);
        start_values<DIMS, N, FP8>(ring + place.slot * shape::slot_bytes, weights, w.kv_len - first, o);
        __syncwarp();
        if (lane == 0) barrier_arrive(empty + place.slot);
        place.advance(args.slots);
        wgmma_wait<0>();
        pin<DIMS, N>(o);
    }
}

template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend(const rdk_attn_sm90a_args &args, int team, const team_memory<N> &mine, unsigned char *ring,
                                       uint64_t *full, uint64_t *empty, chunk_ring *chunks) {
    ring_place place = {0, 0}, record = {0, 0};
    lane_rows<N> rows;
    int32_t seq = -1, kv_head = 0, first = 0; // of the queries at hand
    wait_dependencies();
    while (true) {
        barrier_wait(chunks->full + record.slot, record.turn);
        const chunk_record w = chunks->record[record.slot];
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(chunks->empty + record.slot);
        record.advance(RDK_ATTN_RECORDS);
        if (w.begin == w.end) return;
        int32_t row = (w.row_block * args.teams + team) * N;
        if (seq != w.seq || kv_head != w.kv_head || first != row) {
            seq = w.seq, kv_head = w.kv_head, first = row;
            load_queries<DIMS, N, FP8>(args, w, first, mine.queries, mine.table);
            fence_async();
            team_sync(team);
        }
        float o[DIMS / 64][N / 8][4];
#pragma unroll
        for (int t = 0; t < DIMS / 64; t++)
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) o[t][j][i] = 0.0f;
        float units = args.softcap > 0.0f ? 2.0f * 1.4426950408889634f / args.softcap : 1.4426950408889634f;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                rows.factor[j][e] = mine.table->factor[j * 8 + threadIdx.x % 4 * 2 + e] * units;
                rows.top[j][e] = -INFINITY;
                rows.sum[j][e] = 0.0f;
            }
        attend_chunk<DIMS, N, FP8>(args, w, team, mine, ring, full, empty, place, rows, o);
        store_partial<DIMS, N, FP8>(args, w, first, team, rows, mine.table, o);
    }
}

template <int DIMS, int N, bool FP8> __device__ __forceinline__ void decode(const rdk_attn_sm90a_args &args) {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    static_assert(sizeof(chunk_ring) <= RDK_ATTN_RECORD_BYTES, "room of the chunks");
    static_assert(sizeof(row_table<N>) <= N * RDK_ATTN_ROW_WORDS * 4, "room of a row");
    int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), team = warp / 4;
    unsigned char *ring = shared_bytes, *rest = ring + args.slots * rdk_attn_slot_bytes(DIMS, FP8);
    unsigned char *own = rest + team * (N * DIMS * 2 + N * 128); // whole kilobytes: the swizzle counts rows by address
    team_memory<N> mine = {own, own + N * DIMS * 2, nullptr};
    rest += args.teams * (N * DIMS * 2 + N * 128);
    mine.table = reinterpret_cast<row_table<N> *>(rest + team * N * RDK_ATTN_ROW_WORDS * 4);
    uint64_t *full = reinterpret_cast<uint64_t *>(rest + args.teams * N * RDK_ATTN_ROW_WORDS * 4), *empty = full + args.slots;
    chunk_ring *chunks = reinterpret_cast<chunk_ring *>(empty + args.slots);
    launch_dependents();
    if (threadIdx.x == 0) {
        for (int32_t i = 0; i < args.slots; i++) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, args.teams * 4);
        }
        for (int32_t i = 0; i < RDK_ATTN_RECORDS; i++) {
            barrier_init(chunks->full + i, 1);
            barrier_init(chunks->empty + i, args.teams * 4);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (team == args.teams)
        stream_cache<DIMS, FP8>(args, ring, full, empty, chunks);
    else
        attend<DIMS, N, FP8>(args, team, mine, ring, full, empty, chunks);
}

#define DECODE_KERNEL(name_, dims_, rows_, fp8_)                                                                          \
    extern "C" __global__ void __launch_bounds__(RDK_ATTN_MAX_TEAMS *RDK_ATTN_TEAM_THREADS + 32)                          \
        rdk_attn_decode_sm90a_##name_(const __grid_constant__ rdk_attn_sm90a_args args) {                                 \
        decode<dims_, rows_, fp8_>(args);                                                                                 \
    }
#ifdef ONE
DECODE_KERNEL(fp8_d256_r8, 256, 8, true)
DECODE_KERNEL(fp8_d256_r24, 256, 24, true)
DECODE_KERNEL(bf16_d256_r8, 256, 8, false)
#endif
#define DECODE_KERNELS(type_, dims_, fp8_)            \
    DECODE_KERNEL(type_##_d##dims_##_r8, dims_, 8, fp8_)   \
    DECODE_KERNEL(type_##_d##dims_##_r24, dims_, 24, fp8_) \
    DECODE_KERNEL(type_##_d##dims_##_r32, dims_, 32, fp8_)

// ---- the second launch: chunks in order of position --------------------------------------------------------------------
// A block takes `slice` neighbouring dims of a row (blockDim.x / 16 lanes of four); a thread adds up every sixteenth chunk, and
// the sixteen sums meet in order. Slices change no bit.
extern "C" __global__ void __launch_bounds__(RDK_ATTN_MERGE_GROUPS * 32)
    rdk_attn_decode_sm90a_merge(const __grid_constant__ rdk_attn_sm90a_args args) {
    __shared__ float shared_top[RDK_ATTN_MERGE_GROUPS];
    __shared__ float4 sums[RDK_ATTN_MERGE_GROUPS][32];
    __shared__ float weights[RDK_ATTN_MERGE_GROUPS];
    launch_dependents();
    int32_t lanes = blockDim.x / RDK_ATTN_MERGE_GROUPS, lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
    int32_t slices = (args.head_dim + lanes * 4 - 1) / (lanes * 4);
    int32_t seq = blockIdx.z, head = blockIdx.x / slices, token = blockIdx.y, kv_head = head / args.group;
    int32_t d = (blockIdx.x % slices * lanes + lane) * 4;
    wait_dependencies();
    int32_t q_begin = __ldcg(args.q_starts + seq), q_len = __ldcg(args.q_starts + seq + 1) - q_begin;
    int32_t kv_len = max(min(__ldcg(args.kv_lens + seq), args.max_blocks * args.block_tokens), 0);
    int32_t count = rdk_attn_chunk_count(kv_len), row = token * args.group + head % args.group, first = 0;
    if (args.window > 0) first = max(rdk_attn_chunk_count(max(kv_len - q_len - args.window + 1, 0) + 1) - 1, 0);
    if (token >= q_len || row >= args.max_rows) return;
    int64_t base = ((int64_t)seq * args.kv_heads + kv_head) * args.chunks * args.max_rows + row;
    const float2 *tops = reinterpret_cast<const float2 *>(args.tops) + base;
    float sink = args.sinks ? args.sinks[head] * 1.4426950408889634f : -INFINITY, top = sink;
    for (int32_t c = first + threadIdx.x; c < count; c += blockDim.x) top = fmaxf(top, __ldcg(tops + (int64_t)c * args.max_rows).x);
#pragma unroll
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    if (threadIdx.x % 32 == 0) shared_top[threadIdx.x / 32] = top;
    __syncthreads();
    for (int i = 0; i < blockDim.x / 32; i++) top = fmaxf(top, shared_top[i]);
    float from = top == -INFINITY ? 0.0f : top;

    bool mine = d < args.head_dim;
    const float *parts = args.sums + base * args.head_dim + (mine ? d : 0);
    float4 sum = make_float4(0, 0, 0, 0);
    float weight = 0.0f;
#pragma unroll 4
    for (int32_t c = first / RDK_ATTN_MERGE_GROUPS * RDK_ATTN_MERGE_GROUPS + group; c < count; c += RDK_ATTN_MERGE_GROUPS) {
        if (c < first) continue;
        float2 state = __ldcg(tops + (int64_t)c * args.max_rows);
        float4 part = __ldcg(reinterpret_cast<const float4 *>(parts + (int64_t)c * args.max_rows * args.head_dim));
        float factor = power_of_two(state.x - from);
        weight = fmaf(state.y, factor, weight);
        sum.x = fmaf(part.x, factor, sum.x);
        sum.y = fmaf(part.y, factor, sum.y);
        sum.z = fmaf(part.z, factor, sum.z);
        sum.w = fmaf(part.w, factor, sum.w);
    }
    sums[group][lane] = sum;
    if (lane == 0) weights[group] = weight;
    __syncthreads();
    if (group || !mine) return;
    weight = sink == -INFINITY ? 0.0f : power_of_two(sink - from);
    sum = make_float4(0, 0, 0, 0);
    for (int g = 0; g < RDK_ATTN_MERGE_GROUPS; g++) {
        float4 part = sums[g][lane];
        weight += weights[g];
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    float scale = weight == 0.0f ? 0.0f : (args.v_scale ? args.v_scale[kv_head] : 1.0f) / weight;
    int64_t to = (int64_t)(q_begin + token) * args.out_stride_token + head * args.out_stride_head + d;
    store_element(args.out, to, args.out_type, sum.x * scale);
    store_element(args.out, to + 1, args.out_type, sum.y * scale);
    store_element(args.out, to + 2, args.out_type, sum.z * scale);
    store_element(args.out, to + 3, args.out_type, sum.w * scale);
}
#ifndef ONE
DECODE_KERNELS(fp8, 64, true)
DECODE_KERNELS(fp8, 128, true)
DECODE_KERNELS(fp8, 256, true)
DECODE_KERNELS(fp8, 512, true)
DECODE_KERNELS(bf16, 64, false)
DECODE_KERNELS(bf16, 128, false)
DECODE_KERNELS(bf16, 256, false)
DECODE_KERNELS(bf16, 512, false)
#endif
