// SPDX-License-Identifier: Apache-2.0
// attn_decode on Hopper: split over the keys, two launches.
//
// The first runs a block a multiprocessor with two teams of four warps. Each team walks its share of all chunks of keys
// (sm90a_decode_work.cuh): a loading warp of its own streams keys and values through a ring in shared memory, and the team attends
// them 64 keys a step for up to 56 rows (query tokens times heads of the group). Every chunk leaves a partial result for each
// row, and the second launch adds those up in order of position. Chunks are cut at absolute positions and lengths are read here, on
// the device: one captured graph serves every length up to its bound, and a row's bits follow from positions.
#include "kernels/attn/sm90a_decode_load.cuh"

// What a team has in shared memory beside the ring. Rows 8j + 2 (lane % 4) + e are a lane's; what it sums of their weights is
// here too, since the sums of outputs need the registers.
template <int N> struct team_memory {
    unsigned char *queries, *weights;
    float2 *sums; // [N / 8][threads]
    row_table<N> *table;
};

__device__ __forceinline__ void team_sync(int team) {
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"((int)RDK_ATTN_TEAM_THREADS) : "memory");
}

// Logits in base 2, less the reference of their row. One rounding, masked step or not: a row's bits do not depend on others'.
template <int N>
__device__ __forceinline__ void relate_scores(float softcap, const row_table<N> *table, float (&s)[N / 8][4]) {
    int c = threadIdx.x % 4;
    const float4 *levels = reinterpret_cast<const float4 *>(table->level[threadIdx.x / 32 % 4]);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 factor = *reinterpret_cast<const float2 *>(table->factor + j * 8 + c * 2);
        const float4 level = levels[j * 4 + c];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float f = i % 2 ? factor.y : factor.x, reference = i % 2 ? level.z : level.x;
            if (softcap > 0.0f) // the factor holds 2 log2e / softcap: tanh y = 1 - 2 / (1 + exp 2y)
                s[j][i] = softcap * 1.4426950408889634f * (1.0f - __fdividef(2.0f, 1.0f + power_of_two(s[j][i] * f))) - reference;
            else
                s[j][i] = fmaf(s[j][i], f, -reference);
        }
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

// Does a logit stand above its row's limit, anywhere in the team? A barrier of the team.
template <int N> __device__ __forceinline__ bool limit_is_passed(int team, const row_table<N> *table, const float (&s)[N / 8][4]) {
    const float4 *levels = reinterpret_cast<const float4 *>(table->level[threadIdx.x / 32 % 4]);
    bool passed = false;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float4 level = levels[j * 4 + threadIdx.x % 4];
        passed = passed || fmaxf(s[j][0], s[j][2]) > level.y || fmaxf(s[j][1], s[j][3]) > level.w;
    }
    uint32_t any;
    asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 q, %1, 0;\n\tbar.red.or.pred p, %2, %3, q;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(any)
                 : "r"((uint32_t)passed), "r"(team + 1), "n"((int)RDK_ATTN_TEAM_THREADS)
                 : "memory");
    return any;
}

// New references for the rows whose limit is passed, and theirs alone; what is summed so far shrinks with them.
template <int DIMS, int N>
__device__ __forceinline__ void raise_references(int team, const team_memory<N> &mine, float (&s)[N / 8][4],
                                              float (&o)[DIMS / 64][N / 8][4]) {
    int thread = threadIdx.x % RDK_ATTN_TEAM_THREADS, lane = threadIdx.x % 32, warp = thread / 32, c = lane % 4;
    float4 *levels = reinterpret_cast<float4 *>(mine.table->level[warp]);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float top = fmaxf(s[j][e], s[j][2 + e]);
#pragma unroll
            for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
            if (lane < 4) mine.table->top[j * 8 + lane * 2 + e][warp] = top;
        }
    team_sync(team);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float4 level = levels[j * 4 + c];
        float2 &sum = mine.sums[j * RDK_ATTN_TEAM_THREADS + thread];
        float rise[2], keep[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float4 tops = *reinterpret_cast<const float4 *>(mine.table->top[j * 8 + c * 2 + e]);
            float top = fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w)), &reference = e ? level.z : level.x, &limit = e ? level.w : level.y;
            rise[e] = top > limit ? top : 0.0f;
            keep[e] = !(top > limit) ? 1.0f : limit == -INFINITY ? 0.0f : power_of_two(-top);
            reference += rise[e];
            if (top > limit) limit = RDK_ATTN_HEADROOM;
        }
        __syncwarp();
        if (lane < 4) levels[j * 4 + c] = level;
        sum = make_float2(sum.x * keep[0], sum.y * keep[1]);
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] -= rise[i % 2];
#pragma unroll
        for (int t = 0; t < DIMS / 64; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) o[t][j][i] *= keep[i % 2];
    }
    __syncwarp();
}

// Logits become weights; each lane sums its own.
template <int N> __device__ __forceinline__ void soften(const team_memory<N> &mine, float (&s)[N / 8][4]) {
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float2 &sum = mine.sums[j * RDK_ATTN_TEAM_THREADS + threadIdx.x % RDK_ATTN_TEAM_THREADS];
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] = power_of_two(s[j][i]);
        sum = make_float2(sum.x + (s[j][0] + s[j][2]), sum.y + (s[j][1] + s[j][3]));
    }
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
                                              const team_memory<N> &mine, const float (&o)[DIMS / 64][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, c = lane % 4, d = warp * (DIMS / 4) + lane / 4 * shape::lane_dims;
    int32_t count = w.q_len * args.group;
    int64_t place = (((int64_t)w.seq * args.kv_heads + w.kv_head) * args.chunks + w.chunk) * args.max_rows;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float2 sum = mine.sums[j * RDK_ATTN_TEAM_THREADS + threadIdx.x % RDK_ATTN_TEAM_THREADS];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
            sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
            sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
        }
        if (lane < 4) mine.table->sum[j * 8 + c * 2][warp] = sum.x, mine.table->sum[j * 8 + c * 2 + 1][warp] = sum.y;
    }
    float *to = args.sums + (place + first + c * 2) * args.head_dim + d;
    bool inside = d < args.head_dim;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float *row = to + (j * 8 + e) * args.head_dim;
            if (!inside || first + j * 8 + c * 2 + e >= count) continue;
            if constexpr (shape::tiles == 1)
                *reinterpret_cast<float2 *>(row) = make_float2(o[0][j][e], o[0][j][2 + e]);
            else
#pragma unroll
                for (int t = 0; t < shape::tiles; t += 2)
                    *reinterpret_cast<float4 *>(row + t * 2) = make_float4(o[t][j][e], o[t][j][2 + e], o[t + 1][j][e], o[t + 1][j][2 + e]);
        }
    team_sync(team);
    int32_t at = threadIdx.x % RDK_ATTN_TEAM_THREADS;
    if (at < N && first + at < count) {
        const float4 sums = *reinterpret_cast<const float4 *>(mine.table->sum[at]);
        const float2 level = mine.table->level[warp][at];
        *reinterpret_cast<float2 *>(args.tops + (place + first + at) * 2) =
            make_float2(level.y == -INFINITY ? -INFINITY : level.x, (sums.x + sums.y) + (sums.z + sums.w));
    }
    __syncwarp(); // levels are written anew
}

// This warp has read a slot.
__device__ __forceinline__ void slot_done(uint64_t *empty, ring_place &place, int32_t slots) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + place.slot);
    place.advance(slots);
}

// One chunk: its steps through the ring, its sums in registers.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend_chunk(const rdk_attn_sm90a_args &args, const chunk_record &w, int team, const team_memory<N> &mine,
                                             unsigned char *ring, uint64_t *full, uint64_t *empty, ring_place &place,
                                             float (&o)[DIMS / 64][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    uint32_t queries = wgmma_descriptor(mine.queries), weights = wgmma_descriptor(mine.weights);
    int32_t open = w.kv_len - w.q_len;                                   // keys up to here are hidden by windows alone,
    int32_t shut = args.window > 0 ? w.kv_len - args.window : 0;           // keys from here on are not
    for (int32_t step = w.begin; step < w.end; step++) {
        float s[N / 8][4];
        value_batch<DIMS, N, FP8> values;
        int32_t first = step * RDK_ATTN_STEP_KEYS, left = w.kv_len - first;
        barrier_wait(full + place.slot, place.turn);
        start_scores<DIMS, N, FP8>(ring + place.slot * shape::slot_bytes, queries, s);
        slot_done(empty, place, args.slots);
        const unsigned char *slot = ring + place.slot * shape::slot_bytes;
        if constexpr (values.early) {
            barrier_wait(full + place.slot, place.turn);
            values.load(slot, 0, left);
            if (values.steps == 4) slot_done(empty, place, args.slots);
        }
        wgmma_wait<0>();
        wgmma_pin(*reinterpret_cast<float(*)[N / 2]>(&s));

        relate_scores(args.softcap, mine.table, s);
        if (first + RDK_ATTN_STEP_KEYS - 1 > open || first < shut)
            mask_scores(mine.table, first + warp * 16 + key_at(lane / 4), args.window, s);
        if (limit_is_passed(team, mine.table, s)) raise_references<DIMS, N>(team, mine, s, o);
        soften(mine, s);
        store_weights<N, FP8>(mine.weights, s);
        fence_async();
        team_sync(team);
        if constexpr (!values.early) barrier_wait(full + place.slot, place.turn);
#pragma unroll
        for (int product = 0; product < 4; product += values.steps) {
            if (product || !values.early) values.load(slot, product, left);
            values.multiply(weights, product, o);
        }
        if (values.steps < 4) slot_done(empty, place, args.slots);
        wgmma_wait<0>();
        pin<DIMS, N>(o);
    }
}

template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend(const rdk_attn_sm90a_args &args, int team, const team_memory<N> &mine, unsigned char *ring,
                                       uint64_t *full, uint64_t *empty, chunk_ring *chunks) {
    ring_place place = {0, 0}, record = {0, 0};
    int32_t seq = -1, kv_head = 0, first = 0; // of the queries at hand
    wait_dependencies();
    while (true) {
        barrier_wait(chunks->full + record.slot, record.turn);
        const chunk_record w = chunks->record[record.slot];
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(chunks->empty + record.slot);
        record.advance(RDK_ATTN_RECORDS);
        if (w.begin == w.end) return;
        int32_t row = w.row_block * N;
        if (seq != w.seq || kv_head != w.kv_head || first != row) {
            seq = w.seq, kv_head = w.kv_head, first = row;
            if (args.q_vector)
                load_queries<DIMS, N, FP8, true>(args, w, first, mine.queries, mine.table);
            else
                load_queries<DIMS, N, FP8, false>(args, w, first, mine.queries, mine.table);
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
#pragma unroll
        for (int j = 0; j < N / 8; j++) { // a lane's own, but for the tops that a warp's lanes write and read
            mine.sums[j * RDK_ATTN_TEAM_THREADS + threadIdx.x % RDK_ATTN_TEAM_THREADS] = make_float2(0.0f, 0.0f);
            if (threadIdx.x % 32 < 8) mine.table->level[threadIdx.x / 32 % 4][j * 8 + threadIdx.x % 32] = make_float2(0.0f, -INFINITY);
        }
        __syncwarp();
        attend_chunk<DIMS, N, FP8>(args, w, team, mine, ring, full, empty, place, o);
        store_partial<DIMS, N, FP8>(args, w, first, team, mine, o);
    }
}

template <int DIMS, int N, bool FP8> __device__ __forceinline__ void decode(const rdk_attn_sm90a_args &args) {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    static_assert(sizeof(row_table<N>) <= N * RDK_ATTN_ROW_WORDS * 4, "room of a row");
    static_assert(sizeof(chunk_ring) <= RDK_ATTN_RECORD_BYTES, "room of the chunks");
    constexpr int operand_bytes = rdk_attn_operand_bytes(DIMS, N); // whole kilobytes: the swizzle counts rows by address
    int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), team = warp < 4 ? warp : warp / 4 - 1;
    int32_t ring_bytes = args.slots * rdk_attn_slot_bytes(DIMS, FP8);
    unsigned char *ring = shared_bytes + team * ring_bytes, *own = shared_bytes + args.teams * ring_bytes + team * operand_bytes;
    unsigned char *rest = shared_bytes + args.teams * (ring_bytes + operand_bytes) +
                          team * (N * RDK_ATTN_ROW_WORDS * 4 + RDK_ATTN_RECORD_BYTES + args.slots * 16);
    team_memory<N> mine = {own, own + N * DIMS * 2, reinterpret_cast<float2 *>(own + N * (DIMS + RDK_ATTN_STEP_KEYS) * 2),
                           reinterpret_cast<row_table<N> *>(rest)};
    chunk_ring *chunks = reinterpret_cast<chunk_ring *>(rest + N * RDK_ATTN_ROW_WORDS * 4);
    uint64_t *full = reinterpret_cast<uint64_t *>(chunks + 1), *empty = full + args.slots;
    launch_dependents();
    if (warp < args.teams && threadIdx.x % 32 == 0) {
        for (int32_t i = 0; i < args.slots; i++) barrier_init(full + i, 1), barrier_init(empty + i, 4);
        for (int32_t i = 0; i < RDK_ATTN_RECORDS; i++) barrier_init(chunks->full + i, 1), barrier_init(chunks->empty + i, 4);
        barrier_init_fence();
    }
    __syncthreads();
    if (warp < 4) {
        registers_give<64>();
        if (warp < args.teams) stream_cache(args, team, ring, full, empty, chunks);
    } else {
        registers_take<rdk_attn_registers(DIMS, N)>();
        if (team < args.teams) attend<DIMS, N, FP8>(args, team, mine, ring, full, empty, chunks);
    }
}

#define DECODE_KERNEL(type_, dims_, rows_, fp8_)                                                                          \
    extern "C" __global__ void __launch_bounds__(rdk_attn_register_threads(dims_, rows_), 1)                                       \
        rdk_attn_decode_sm90a_##type_##_d##dims_##_r##rows_(const __grid_constant__ rdk_attn_sm90a_args args) {            \
        decode<dims_, rows_, fp8_>(args);                                                                                  \
    }
#define DECODE_KERNELS(type_, fp8_)         \
    DECODE_KERNEL(type_, 64, 24, fp8_)      \
    DECODE_KERNEL(type_, 128, 8, fp8_)      \
    DECODE_KERNEL(type_, 128, 24, fp8_)     \
    DECODE_KERNEL(type_, 128, 40, fp8_)     \
    DECODE_KERNEL(type_, 256, 8, fp8_)      \
    DECODE_KERNEL(type_, 256, 24, fp8_)     \
    DECODE_KERNEL(type_, 256, 56, fp8_)     \
    DECODE_KERNEL(type_, 512, 24, fp8_)
DECODE_KERNELS(fp8, true)
DECODE_KERNELS(bf16, false)

// ---- the second launch: chunks in order of position --------------------------------------------------------------------
// Partial results added up so far, under their largest logit.
struct merged {
    float top, weight;
    float4 sum;
    __device__ __forceinline__ void add(float other_top, float other_weight, const float4 &part) {
        float high = fmaxf(top, other_top), base = high == -INFINITY ? 0.0f : high;
        float keep = power_of_two(top - base), take = power_of_two(other_top - base);
        top = high;
        weight = fmaf(other_weight, take, weight * keep);
        sum.x = fmaf(part.x, take, sum.x * keep);
        sum.y = fmaf(part.y, take, sum.y * keep);
        sum.z = fmaf(part.z, take, sum.z * keep);
        sum.w = fmaf(part.w, take, sum.w * keep);
    }
};

// A block takes 64 neighbouring dims of a row, four a lane; a group of 16 lanes adds up every sixteenth chunk, and the sixteen sums
// meet in order. Partial results are asked for before the length is known: they are at hand when it is.
extern "C" __global__ void __launch_bounds__(RDK_ATTN_MERGE_GROUPS *RDK_ATTN_MERGE_LANES, 4)
    rdk_attn_decode_sm90a_merge(const __grid_constant__ rdk_attn_sm90a_args args) {
    constexpr int ahead = 5;
    __shared__ float4 sums[RDK_ATTN_MERGE_GROUPS][RDK_ATTN_MERGE_LANES];
    __shared__ float2 states[RDK_ATTN_MERGE_GROUPS];
    launch_dependents();
    int32_t lane = threadIdx.x % RDK_ATTN_MERGE_LANES, group = threadIdx.x / RDK_ATTN_MERGE_LANES;
    int32_t slices = (args.head_dim + RDK_ATTN_MERGE_LANES * 4 - 1) / (RDK_ATTN_MERGE_LANES * 4);
    int32_t seq = blockIdx.z, head = blockIdx.x / slices, token = blockIdx.y, kv_head = head / args.group;
    int32_t d = (blockIdx.x % slices * RDK_ATTN_MERGE_LANES + lane) * 4, row = token * args.group + head % args.group;
    int64_t base = ((int64_t)seq * args.kv_heads + kv_head) * args.chunks * args.max_rows + row;
    const float2 *tops = reinterpret_cast<const float2 *>(args.tops) + base;
    const float *parts = args.sums + base * args.head_dim + (d < args.head_dim ? d : 0);
    auto state_of = [&](int32_t c) { return __ldcg(tops + (int64_t)c * args.max_rows); };
    auto part_of = [&](int32_t c) { return __ldcg(reinterpret_cast<const float4 *>(parts + (int64_t)c * args.max_rows * args.head_dim)); };
    wait_dependencies();
    float2 state[ahead];
    float4 part[ahead];
#pragma unroll
    for (int i = 0; i < ahead; i++) {
        int32_t c = min(group + i * RDK_ATTN_MERGE_GROUPS, args.chunks - 1);
        state[i] = state_of(c);
        part[i] = part_of(c);
    }
    int32_t q_begin = __ldcg(args.q_starts + seq), q_len = __ldcg(args.q_starts + seq + 1) - q_begin;
    int32_t kv_len = max(min(__ldcg(args.kv_lens + seq), args.max_blocks * args.block_tokens), 0);
    int32_t count = rdk_attn_chunk_count(kv_len), first = 0;
    if (args.window > 0) first = max(rdk_attn_chunk_count(max(kv_len - q_len - args.window + 1, 0) + 1) - 1, 0);
    merged sum = {-INFINITY, 0.0f, make_float4(0, 0, 0, 0)};
#pragma unroll
    for (int i = 0; i < ahead; i++) {
        int32_t c = group + i * RDK_ATTN_MERGE_GROUPS;
        if (c >= first && c < count) sum.add(state[i].x, state[i].y, part[i]);
    }
#pragma unroll 4
    for (int32_t c = group + ahead * RDK_ATTN_MERGE_GROUPS; c < count; c += RDK_ATTN_MERGE_GROUPS) {
        float2 mine = state_of(c);
        float4 its = part_of(c);
        if (c >= first) sum.add(mine.x, mine.y, its);
    }
    sums[group][lane] = sum.sum;
    if (lane == 0) states[group] = make_float2(sum.top, sum.weight);
    __syncthreads();
    if (group || d >= args.head_dim || token >= q_len || row >= args.max_rows) return;
    for (int g = 1; g < RDK_ATTN_MERGE_GROUPS; g++) sum.add(states[g].x, states[g].y, sums[g][lane]);
    if (args.sinks) sum.add(args.sinks[head] * 1.4426950408889634f, 1.0f, make_float4(0, 0, 0, 0));
    float scale = sum.weight == 0.0f ? 0.0f : (args.v_scale ? args.v_scale[kv_head] : 1.0f) / sum.weight;
    int64_t to = (int64_t)(q_begin + token) * args.out_stride_token + head * args.out_stride_head + d;
    store_element(args.out, to, args.out_type, sum.sum.x * scale);
    store_element(args.out, to + 1, args.out_type, sum.sum.y * scale);
    store_element(args.out, to + 2, args.out_type, sum.sum.z * scale);
    store_element(args.out, to + 3, args.out_type, sum.sum.w * scale);
}
