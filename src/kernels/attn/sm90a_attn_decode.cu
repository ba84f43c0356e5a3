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

// A lane's two rows of eight, out of a list of the team's.
__device__ __forceinline__ float2 row_pair(const float *rows, int j) {
    return shared_f32x2(smem_address(rows) + (j * 8 + threadIdx.x % 4 * 2) * 4);
}

// Logits in base 2, less the reference of their row. One rounding, masked step or not: a row's bits do not depend on others'.
template <int N>
__device__ __forceinline__ void relate_scores(float softcap, const row_table<N> *table, const float (&s)[N / 8][4], float (&x)[N / 8][4]) {
    const float *references = table->reference[threadIdx.x / 32 % 4];
    if (__builtin_expect(softcap > 0.0f, 0)) { // the factor holds 2 log2e / softcap: tanh y = 1 - 2 / (1 + exp 2y)
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float2 factor = row_pair(table->factor, j), reference = row_pair(references, j);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float y = power_of_two(s[j][i] * (i % 2 ? factor.y : factor.x));
                x[j][i] = softcap * 1.4426950408889634f * (1.0f - __fdividef(2.0f, 1.0f + y)) - (i % 2 ? reference.y : reference.x);
            }
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 factor = row_pair(table->factor, j), reference = row_pair(references, j);
#pragma unroll
        for (int i = 0; i < 4; i++) x[j][i] = fmaf(s[j][i], i % 2 ? factor.y : factor.x, i % 2 ? -reference.y : -reference.x);
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
    bool passed = false;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 limit = row_pair(table->limit[threadIdx.x / 32 % 4], j);
        passed |= fmaxf(s[j][0], s[j][2]) > limit.x;
        passed |= fmaxf(s[j][1], s[j][3]) > limit.y;
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
    float2 *references = reinterpret_cast<float2 *>(mine.table->reference[warp]), *limits = reinterpret_cast<float2 *>(mine.table->limit[warp]);
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
        float2 reference = references[j * 4 + c], limit = limits[j * 4 + c];
        float2 &sum = mine.sums[j * RDK_ATTN_TEAM_THREADS + thread];
        float rise[2], keep[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float4 tops = *reinterpret_cast<const float4 *>(mine.table->top[j * 8 + c * 2 + e]);
            float top = fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w)), &its = e ? limit.y : limit.x;
            rise[e] = top > its ? top : 0.0f;
            keep[e] = !(top > its) ? 1.0f : its == -INFINITY ? 0.0f : power_of_two(-top);
            if (top > its) its = RDK_ATTN_HEADROOM;
        }
        reference.x += rise[0], reference.y += rise[1];
        __syncwarp();
        if (lane < 4) references[j * 4 + c] = reference, limits[j * 4 + c] = limit;
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

// A row's share of a chunk: values averaged by weight, f16 from a cache of e4m3 (which no average exceeds), else f32.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void store_averages(void *sums, int64_t at, int32_t head_dim, const float (&scale)[N / 8][2], int32_t rows,
                                               const float (&o)[DIMS / 64][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, c = lane % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t row = j * 8 + c * 2 + e;
            if (row >= rows) continue;
            if constexpr (FP8) {
                int d = warp * (DIMS / 4) + lane / 4 * shape::lane_dims;
                uint32_t word[shape::tiles];
#pragma unroll
                for (int t = 0; t < shape::tiles; t++) word[t] = pack_f16(o[t][j][e] * scale[j][e], o[t][j][2 + e] * scale[j][e]);
                __half *to = static_cast<__half *>(sums) + at + row * head_dim + d;
                if (d >= head_dim) continue;
                if constexpr (shape::tiles == 1)
                    *reinterpret_cast<uint32_t *>(to) = word[0];
                else if constexpr (shape::tiles == 2)
                    *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
                else
#pragma unroll
                    for (int t = 0; t < shape::tiles; t += 4)
                        *reinterpret_cast<uint4 *>(to + t * 2) = make_uint4(word[t], word[t + 1], word[t + 2], word[t + 3]);
            } else
#pragma unroll
                for (int t = 0; t < shape::tiles; t++) {
                    int d = t * 64 + warp * 16 + lane / 4;
                    float *to = static_cast<float *>(sums) + at + row * head_dim + d;
                    if (t * 64 + warp * 16 >= head_dim) continue;
                    to[0] = o[t][j][e] * scale[j][e];
                    to[8] = o[t][j][2 + e] * scale[j][e];
                }
        }
}

// A chunk's averages, tops and weights to memory.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void store_partial(const rdk_attn_sm90a_args &args, const chunk_record &w, int32_t first, int team,
                                              const team_memory<N> &mine, const float (&o)[DIMS / 64][N / 8][4]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, c = lane % 4;
    int32_t count = w.q_len * args.group;
    int64_t place = (((int64_t)w.seq * args.kv_heads + w.kv_head) * args.chunks + w.chunk) * args.max_rows + first;
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
    team_sync(team);
    auto total = [&](int32_t row) {
        const float4 sums = *reinterpret_cast<const float4 *>(mine.table->sum[row]);
        return (sums.x + sums.y) + (sums.z + sums.w);
    };
    float scale[N / 8][2];
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float weight = total(j * 8 + c * 2 + e);
            scale[j][e] = weight == 0.0f ? 0.0f : __fdividef(1.0f, weight);
        }
    store_averages<DIMS, N, FP8>(args.sums, place * args.head_dim, args.head_dim, scale, count - first, o);
    int32_t at = threadIdx.x % RDK_ATTN_TEAM_THREADS;
    if (at < N && first + at < count) {
        float reference = mine.table->limit[warp][at] == -INFINITY ? -INFINITY : mine.table->reference[warp][at];
        *reinterpret_cast<float2 *>(args.tops + (place + at) * 2) = make_float2(reference, total(at));
    }
    __syncwarp(); // references are written anew
}

// This warp has read a slot.
__device__ __forceinline__ void slot_done(uint64_t *empty, int32_t slot) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + slot);
}

// One chunk: its steps through the ring, its sums in registers. Scores of a step are on their way while the step before becomes
// weights.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend_chunk(const rdk_attn_sm90a_args &args, const chunk_record &w, int team, const team_memory<N> &mine,
                                             unsigned char *ring, uint64_t *full, uint64_t *empty, ring_place &place,
                                             float (&o)[DIMS / 64][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    uint32_t queries = wgmma_descriptor(mine.queries), weights = wgmma_descriptor(mine.weights), slots = wgmma_descriptor(ring);
    int32_t open = w.kv_len - w.q_len;                                   // keys up to here are hidden by windows alone,
    int32_t shut = args.window > 0 ? w.kv_len - args.window : 0;           // keys from here on are not
    float s[N / 8][4];
    int32_t step = w.begin, end = w.end, kv_len = w.kv_len;
    barrier_wait(full + place.slot, place.turn);
    pin<DIMS, N>(o);
    start_scores<DIMS, N, FP8>(slots + place.slot * (shape::slot_bytes / 16), queries, s);
    do {
        float x[N / 8][4];
        int32_t first = step * RDK_ATTN_STEP_KEYS, left = kv_len - first;
        wgmma_wait<0>();
        wgmma_pin(*reinterpret_cast<float(*)[N / 2]>(&s));
        pin<DIMS, N>(o);
        if (!FP8 && step > w.begin) slot_done(empty, place.before(args.slots)); // values
        slot_done(empty, place.slot);
        place.advance(args.slots);
        relate_scores(args.softcap, mine.table, s, x);
        ring_place next = place;
        next.advance(args.slots);
        if (step + 1 < end) {
            barrier_wait(full + next.slot, next.turn);
            start_scores<DIMS, N, FP8>(slots + next.slot * (shape::slot_bytes / 16), queries, s);
        }

        if (__builtin_expect(first + RDK_ATTN_STEP_KEYS - 1 > open || first < shut, 0))
            mask_scores(mine.table, first + warp * 16 + lane / 4, args.window, x);
        if (__builtin_expect(limit_is_passed(team, mine.table, x), 0)) raise_references<DIMS, N>(team, mine, x, o);
        soften(mine, x);
        store_weights<N, FP8>(mine.weights, x);
        unsigned char *slot = ring + place.slot * shape::slot_bytes;
        barrier_wait(full + place.slot, place.turn);
        if constexpr (FP8) {
            value_batch<DIMS, N> values;
            values.load(slot, 0, left);
            fence_async();
            team_sync(team);
#pragma unroll
            for (int product = 0; product < 4; product += values.steps) {
                if (product) values.load(slot, product, left);
                if (product + values.steps == 4) slot_done(empty, place.slot);
                values.multiply(weights, product, o);
            }
        } else {
            if (left < RDK_ATTN_STEP_KEYS) clear_values<DIMS>(slot, left);
            fence_async();
            team_sync(team);
            multiply_values<DIMS, N>(slots + place.slot * (shape::slot_bytes / 16), weights, o);
        }
        place = next;
    } while (++step < end);
    wgmma_wait<0>();
    pin<DIMS, N>(o);
    if (!FP8) slot_done(empty, place.before(args.slots));
}

template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend(const rdk_attn_sm90a_args &args, int team, const team_memory<N> &mine, unsigned char *ring,
                                       uint64_t *full, uint64_t *empty, chunk_ring *chunks) {
    ring_place place = {0, 0}, record = {0, 0};
    int32_t seq = -1, kv_head = 0, first = 0; // of the queries at hand
    wait_dependencies();
    while (true) {
        barrier_wait(chunks->full + record.slot, record.turn);
        const chunk_record &w = chunks->record[record.slot]; // read anew where it is needed: registers are short
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
            int warp = threadIdx.x / 32 % 4, at = j * 8 + threadIdx.x % 32;
            if (threadIdx.x % 32 < 8) mine.table->reference[warp][at] = 0.0f, mine.table->limit[warp][at] = -INFINITY;
        }
        __syncwarp();
        attend_chunk<DIMS, N, FP8>(args, w, team, mine, ring, full, empty, place, o);
        store_partial<DIMS, N, FP8>(args, w, first, team, mine, o);
        slot_done(chunks->empty, record.slot);
        record.advance(RDK_ATTN_RECORDS);
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
    constexpr int query_bytes = N * rdk_attn_query_dims(DIMS) * 2;
    team_memory<N> mine = {own, own + query_bytes, reinterpret_cast<float2 *>(own + query_bytes + N * RDK_ATTN_STEP_KEYS * 2),
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
// Four dims of a partial result as they lie in memory.
template <bool FP8> struct average;
template <> struct average<true> {
    uint2 raw;
    __device__ __forceinline__ void load(const void *averages, int64_t at) {
        raw = __ldcg(reinterpret_cast<const uint2 *>(static_cast<const __half *>(averages) + at));
    }
    __device__ __forceinline__ float4 times(float weight) const {
        const float2 low = __half22float2(*reinterpret_cast<const __half2 *>(&raw.x)), high = __half22float2(*reinterpret_cast<const __half2 *>(&raw.y));
        return make_float4(low.x * weight, low.y * weight, high.x * weight, high.y * weight);
    }
};
template <> struct average<false> {
    float4 raw;
    __device__ __forceinline__ void load(const void *averages, int64_t at) {
        raw = __ldcg(reinterpret_cast<const float4 *>(static_cast<const float *>(averages) + at));
    }
    __device__ __forceinline__ float4 times(float weight) const {
        return make_float4(raw.x * weight, raw.y * weight, raw.z * weight, raw.w * weight);
    }
};

template <bool FP8> __device__ __forceinline__ void merge(const rdk_attn_sm90a_args &args) {
    constexpr int ahead = FP8 ? 6 : 5;
    __shared__ float4 sums[RDK_ATTN_MERGE_GROUPS][RDK_ATTN_MERGE_LANES];
    __shared__ float2 states[RDK_ATTN_MERGE_GROUPS];
    launch_dependents();
    int32_t lane = threadIdx.x % RDK_ATTN_MERGE_LANES, group = threadIdx.x / RDK_ATTN_MERGE_LANES;
    int32_t slices = (args.head_dim + RDK_ATTN_MERGE_LANES * 4 - 1) / (RDK_ATTN_MERGE_LANES * 4);
    int32_t seq = blockIdx.z, head = blockIdx.x / slices, token = blockIdx.y, kv_head = head / args.group;
    int32_t d = (blockIdx.x % slices * RDK_ATTN_MERGE_LANES + lane) * 4, row = token * args.group + head % args.group;
    int64_t base = ((int64_t)seq * args.kv_heads + kv_head) * args.chunks * args.max_rows + row;
    const float2 *tops = reinterpret_cast<const float2 *>(args.tops) + base;
    int64_t parts = base * args.head_dim + (d < args.head_dim ? d : 0);
    auto state_of = [&](int32_t c) { return __ldcg(tops + (int64_t)c * args.max_rows); };
    auto part_of = [&](int32_t c) { average<FP8> part; part.load(args.sums, parts + (int64_t)c * args.max_rows * args.head_dim); return part; };
    wait_dependencies();
    float2 state[ahead];
    average<FP8> part[ahead];
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
        if (c >= first && c < count) sum.add(state[i].x, state[i].y, part[i].times(state[i].y));
    }
#pragma unroll 4
    for (int32_t c = group + ahead * RDK_ATTN_MERGE_GROUPS; c < count; c += RDK_ATTN_MERGE_GROUPS) {
        float2 mine = state_of(c);
        average<FP8> its = part_of(c);
        if (c >= first) sum.add(mine.x, mine.y, its.times(mine.y));
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
extern "C" __global__ void __launch_bounds__(RDK_ATTN_MERGE_GROUPS *RDK_ATTN_MERGE_LANES, 4)
    rdk_attn_decode_sm90a_merge_fp8(const __grid_constant__ rdk_attn_sm90a_args args) {
    merge<true>(args);
}
extern "C" __global__ void __launch_bounds__(RDK_ATTN_MERGE_GROUPS *RDK_ATTN_MERGE_LANES, 4)
    rdk_attn_decode_sm90a_merge_bf16(const __grid_constant__ rdk_attn_sm90a_args args) {
    merge<false>(args);
}
