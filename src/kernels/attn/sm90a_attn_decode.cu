// SPDX-License-Identifier: Apache-2.0
// attn_decode on Hopper: split over the keys, two launches.
//
// The first runs a block a multiprocessor with two to four teams of four warps, which share the block's chunks of keys
// (sm90a_decode_work.cuh): a loading warp of each streams keys and values through rings in shared memory, and the team attends
// them 64 keys a step for up to 56 rows (query tokens times heads of the group). Every chunk leaves a partial result for each
// row, and the second launch adds those up in order of position. Chunks are cut at absolute positions and lengths are read here, on
// the device: one captured graph serves every length up to its bound, and a row's bits follow from positions.
#include "kernels/attn/sm90a_decode_load.cuh"
#include "kernels/attn/sm90a_decode_merge.cuh"

#include <stddef.h>

// What a team has in shared memory beside its rings. Rows 8j + 2 (lane % 4) + e are a lane's.
template <int N> struct team_view {
    unsigned char *queries, *weights;
    row_table<N> *table;
    int team;
    uint32_t lane_rows; // where the words of a lane's first rows stand

    // Made anew in each step: else the descriptors of 32 products are held through the loop, for which 56 rows leave no room.
    __device__ __forceinline__ uint32_t query_descriptor() const {
        uint32_t all = wgmma_descriptor(queries);
        return N > 40 || N == 8 ? __shfl_sync(0xffffffffu, all, 0) : all;
    }
    // Two words a row of a lane's two rows of eight, from a member of row_words on; and one word a row.
    __device__ __forceinline__ float4 row_pair(size_t member, int j) const {
        return shared_f32x4(lane_rows + (uint32_t)(member + j * 4 * sizeof(row_words)));
    }
    __device__ __forceinline__ float2 row_word(size_t member, int j) const {
        return shared_f32x2(lane_rows + (uint32_t)(member + j * 4 * sizeof(row_words)));
    }
    static __device__ __forceinline__ int thread() { return threadIdx.x % RDK_ATTN_TEAM_THREADS; }
    __device__ __forceinline__ void sync() const {
        asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"((int)RDK_ATTN_TEAM_THREADS) : "memory");
    }
    __device__ __forceinline__ bool any(bool mine) const { // of the team's threads; a barrier
        uint32_t all;
        asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 q, %1, 0;\n\tbar.red.or.pred p, %2, %3, "
                     "q;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(all)
                     : "r"((uint32_t)mine), "r"(team + 1), "n"((int)RDK_ATTN_TEAM_THREADS)
                     : "memory");
        return __any_sync(0xffffffffu, all); // alike in all lanes, which the compiler learns by it
    }
};

// Scores to logits in base 2, less the reference of their row. One rounding, masked step or not: a row's bits do not depend on others'.
template <int N>
__device__ __forceinline__ void relate_scores(float softcap, const team_view<N> &mine, float (&s)[N / 8][4]) {
    if (__builtin_expect(softcap > 0.0f,
                         0)) { // the factor holds 2 log2e / softcap: tanh y = 1 - 2 / (1 + exp 2y)
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float4 its = mine.row_pair(offsetof(row_words, factor), j); // two factors, two references
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float y = power_of_two(s[j][i] * (i % 2 ? its.y : its.x));
                s[j][i] = softcap * 1.4426950408889634f * (1.0f - __fdividef(2.0f, 1.0f + y)) -
                          (i % 2 ? its.w : its.z);
            }
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float4 its = mine.row_pair(offsetof(row_words, factor), j); // two factors, two references
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] = fmaf(s[j][i], i % 2 ? its.y : its.x, i % 2 ? -its.w : -its.z);
    }
}

// Hides keys that a row does not see; key: the lane's first, its other one is 8 on.
template <int N>
__device__ __forceinline__ void mask_scores(const int32_t *positions, int32_t key, int32_t window,
                                            float (&s)[N / 8][4]) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t position = positions[j * 8 + threadIdx.x % 4 * 2 + e],
                    low = window > 0 ? position - window : -1;
            if (key > position || key <= low) s[j][e] = -INFINITY;
            if (key + 8 > position || key + 8 <= low) s[j][2 + e] = -INFINITY;
        }
}

// Does one of a lane's logits stand above its row's limit?
template <int N>
__device__ __forceinline__ bool limit_is_passed(const team_view<N> &mine, const float (&s)[N / 8][4]) {
    bool passed = false;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 limit = mine.row_word(offsetof(row_words, limit), j);
        passed |= fmaxf(s[j][0], s[j][2]) > limit.x;
        passed |= fmaxf(s[j][1], s[j][3]) > limit.y;
    }
    return passed;
}

// New references for the rows whose limit is passed, and theirs alone; what is summed so far shrinks with them.
template <int TILES, int N>
__device__ __forceinline__ void raise_references(const team_view<N> &mine, float (&s)[N / 8][4],
                                                 float (&sums)[N / 8][2], float (&o)[TILES][N / 8][4]) {
    int lane = threadIdx.x % 32, at = mine.thread();
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float top = fmaxf(s[j][e], s[j][2 + e]);
#pragma unroll
            for (int step = 4; step < 32; step *= 2)
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
            if (lane < 4) mine.table->top[j * 8 + lane * 2 + e][at / 32] = top;
        }
    mine.sync();
    if (at < N) {
        const float4 tops = *reinterpret_cast<const float4 *>(mine.table->top[at]);
        row_words &row = mine.table->pair[at / 2];
        float top = fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w)), limit = row.limit[at % 2];
        bool raised = top > limit;
        row.rise[at % 2] = raised ? top : 0.0f;
        row.keep[at % 2] = !raised ? 1.0f : limit == -INFINITY ? 0.0f : power_of_two(-top);
        if (raised) row.reference[at % 2] += top, row.limit[at % 2] = RDK_ATTN_HEADROOM;
    }
    mine.sync();
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float4 its = mine.row_pair(offsetof(row_words, rise), j); // two rises, two shares to keep
        sums[j][0] *= its.z, sums[j][1] *= its.w;
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] -= i % 2 ? its.y : its.x;
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) o[t][j][i] *= i % 2 ? its.w : its.z;
    }
}

// Logits become weights: 16-bit rows of 64 keys under the swizzle (what lies key by key in the lanes is stored transposed), and each
// lane's sums of its own, in addition to what stands there or in its place. The logits stay as they are.
template <int N, bool FP8, bool ADD>
__device__ __forceinline__ void soften(unsigned char *weights, const float (&s)[N / 8][4],
                                       float (&sums)[N / 8][2]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = lane % 8, half = lane / 8 % 2;
    uint32_t at = smem_address(weights) + row * 128 + ((warp * 2 + half) ^ row) * 16;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float p[4];
#pragma unroll
        for (int i = 0; i < 4; i++) p[i] = power_of_two(s[j][i]);
        sums[j][0] = (ADD ? sums[j][0] : 0.0f) + (p[0] + p[2]),
        sums[j][1] = (ADD ? sums[j][1] : 0.0f) + (p[1] + p[3]);
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at + j * 1024),
                     "r"(pack_weights<FP8>(p[0], p[1])), "r"(pack_weights<FP8>(p[2], p[3]))
                     : "memory");
    }
}

template <int TILES, int N> __device__ __forceinline__ void pin(float (&o)[TILES][N][4]) {
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) asm volatile("" : "+f"(o[t][j][i])::"memory");
}
template <int N> __device__ __forceinline__ void pin(float (&s)[N][4]) {
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(s[j][i])::"memory");
}

// A row's share of a chunk: values averaged by weight, f16 from a cache of e4m3 (which no average exceeds), else f32.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void store_averages(const team_view<N> &mine, void *sums, int64_t at,
                                               int32_t head_dim, int32_t rows,
                                               const float (&o)[DIMS / 64][N / 8][4]) {
    int lane = threadIdx.x % 32, dim = threadIdx.x / 32 % 4 * 16, row = lane % 4 * 2;
    int64_t first = at + row * head_dim + dim + (FP8 ? lane / 4 * 2 : lane / 4);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 scale = mine.row_word(offsetof(row_words, scale), j);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float by = e ? scale.y : scale.x;
            int64_t to = first + (j * 8 + e) * head_dim;
            if (row + j * 8 + e >= rows) continue;
#pragma unroll
            for (int t = 0; t < DIMS / 64; t++) {
                if (dim + t * 64 >= head_dim) continue;
                if constexpr (FP8)
                    *reinterpret_cast<uint32_t *>(static_cast<__half *>(sums) + to + t * 64) =
                        pack_f16(o[t][j][e] * by, o[t][j][2 + e] * by);
                else
                    static_cast<float *>(sums)[to + t * 64] = o[t][j][e] * by,
                                                        static_cast<float *>(sums)[to + t * 64 + 8] =
                                                            o[t][j][2 + e] * by;
            }
        }
    }
}

// A chunk's averages, tops and weights to memory.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void
store_partial(const rdk_attn_sm90a_args &args, const chunk_record &w, int32_t first, const team_view<N> &mine,
              float (&sums)[N / 8][2], const float (&o)[DIMS / 64][N / 8][4]) {
    int lane = threadIdx.x % 32, at = mine.thread();
    int32_t count = w.q_len * args.group;
    int64_t place =
        (((int64_t)w.seq * args.kv_heads + w.kv_head) * args.chunks + w.chunk) * args.max_rows + first;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int step = 4; step < 32; step *= 2)
                sums[j][e] += __shfl_xor_sync(0xffffffffu, sums[j][e], step);
            if (lane < 4) mine.table->top[j * 8 + lane * 2 + e][at / 32] = sums[j][e];
        }
    mine.sync();
    if (at < N) {
        const float4 parts = *reinterpret_cast<const float4 *>(mine.table->top[at]);
        float total = (parts.x + parts.y) + (parts.z + parts.w);
        row_words &row = mine.table->pair[at / 2];
        row.scale[at % 2] = total == 0.0f ? 0.0f : __fdividef(1.0f, total);
        float reference = row.limit[at % 2] == -INFINITY ? -INFINITY : row.reference[at % 2];
        if (first + at < count)
            *reinterpret_cast<float2 *>(args.tops + (place + at) * 2) = make_float2(reference, total);
    }
    mine.sync();
    store_averages<DIMS, N, FP8>(mine, args.sums, place * args.head_dim, args.head_dim, count - first, o);
}

// This warp has read a slot.
__device__ __forceinline__ void slot_done(uint64_t *empty, int32_t slot) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + slot);
}

// Where a team stands in its rings and in a chunk: its last step, and the steps whose 64 keys every row sees.
struct chunk_walk {
    ring_place keys, values;
    int32_t end, seen, seen_count;
    int32_t odd; // whose turn it is of two sets of weights
};

// One step: scores become weights, the next step's scores are asked for, values are summed.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend_step(const rdk_attn_sm90a_args &args, const team_view<N> &mine,
                                            const cache_rings &rings, chunk_walk &walk, const chunk_record &w,
                                            int32_t step, float (&s)[N / 8][4], float (&sums)[N / 8][2],
                                            float (&o)[DIMS / 64][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int32_t slot = rings.keys + walk.values.slot;
    bool whole = (uint32_t)(step - walk.seen) < (uint32_t)walk.seen_count;
    constexpr bool one_barrier = rdk_attn_weight_sets(N) == 2;
    unsigned char *its_weights = mine.weights;
    if constexpr (one_barrier) its_weights += walk.odd * N * 128, walk.odd ^= 1;
    uint32_t weights = wgmma_descriptor(its_weights), slots = wgmma_descriptor(rings.slots);
    uint32_t queries = mine.query_descriptor();
    relate_scores<N>(args.softcap, mine, s);
    if (__builtin_expect(!whole, 0)) {
        int32_t first = step * RDK_ATTN_STEP_KEYS, left = w.kv_len - first;
        mask_scores<N>(mine.table->position, first + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4,
                       args.window, s);
        if (left < RDK_ATTN_STEP_KEYS) {
            barrier_wait(rings.full + slot, walk.values.turn);
            clear_values<DIMS, FP8>(rings.slots + slot * shape::slot_bytes, left);
            if constexpr (one_barrier) mine.sync(); // the first values are read ahead of the step's barrier
        }
    }
    bool passed = limit_is_passed<N>(mine, s);
    float part[N / 8][2];
    if constexpr (one_barrier)
        soften<N, FP8, false>(its_weights, s, part);
    else {
        if (__builtin_expect(mine.any(passed), 0)) raise_references<DIMS / 64, N>(mine, s, sums, o);
        soften<N, FP8, true>(its_weights, s, sums);
    }
    // The first values are read ahead of the next scores, whose products read shared memory too.
    barrier_wait(rings.full + slot, walk.values.turn);
    uint32_t from =
        smem_address(rings.slots) + slot * shape::slot_bytes + value_batch<DIMS, N>::lane_offset();
    value_batch<DIMS, N> values;
    if constexpr (FP8) values.load(from, 0);
    fence_async();
    if constexpr (one_barrier) { // the weights were made as if no limit were passed
        if (__builtin_expect(mine.any(passed), 0)) {
            raise_references<DIMS / 64, N>(mine, s, sums, o);
            soften<N, FP8, false>(its_weights, s, part);
            fence_async();
            mine.sync();
        }
#pragma unroll
        for (int j = 0; j < N / 8; j++) sums[j][0] += part[j][0], sums[j][1] += part[j][1];
    } else
        mine.sync();
    int32_t keys = walk.keys.slot;
    bool more = step + 1 < walk.end;
    if (more) {
        barrier_wait(rings.full + keys, walk.keys.turn);
        start_scores<DIMS, N, FP8>(slots + keys * (shape::slot_bytes / 16), queries, s);
        walk.keys.advance(rings.keys);
    }
    if constexpr (FP8) {
#pragma unroll
        for (int i = 0; i < values.batches; i++) {
            values.multiply(weights, from, i, o);
            if (i == 0 && more) slot_done(rings.empty, keys); // their products were asked for before
            if (i == values.batches - 2) slot_done(rings.empty, slot);
        }
    } else {
        multiply_values<DIMS, N>(slots + slot * (shape::slot_bytes / 16), weights, o);
        wgmma_wait<1>();
        if (more) slot_done(rings.empty, keys);
    }
    wgmma_wait<0>();
    pin(s);
    pin(o);
    if constexpr (!FP8) slot_done(rings.empty, slot);
    walk.values.advance(rings.values);
}

template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend(const rdk_attn_sm90a_args &args, const team_view<N> &mine,
                                       const cache_rings &rings, chunk_ring *chunks) {
    uint32_t taken = 0; // chunks
    chunk_walk walk = {};
    wait_dependencies();
    while (true) {
        barrier_wait(chunks->full + taken % RDK_ATTN_RECORDS, taken / RDK_ATTN_RECORDS % 2);
        const chunk_record &w =
            chunks->record[taken % RDK_ATTN_RECORDS]; // read anew where it is needed: registers are short
        if (w.begin == w.end) return;
        if (mine.thread() < N) {
            row_words &row = mine.table->pair[mine.thread() / 2];
            row.reference[mine.thread() % 2] = 0.0f, row.limit[mine.thread() % 2] = -INFINITY;
        }
        if (!w.same_rows) {
            if (args.q_vector)
                load_queries<DIMS, N, FP8, true>(args, w, w.row_block * N, mine.queries, mine.table);
            else
                load_queries<DIMS, N, FP8, false>(args, w, w.row_block * N, mine.queries, mine.table);
            fence_async();
        }
        mine.sync();
        walk.end = w.end,
        walk.seen = args.window > 0
                        ? (max(w.kv_len - args.window, 0) + RDK_ATTN_STEP_KEYS - 1) / RDK_ATTN_STEP_KEYS
                        : 0;
        walk.seen_count = max((w.kv_len - w.q_len + 1) / RDK_ATTN_STEP_KEYS - walk.seen, 0);
        float s[N / 8][4], sums[N / 8][2], o[DIMS / 64][N / 8][4];
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            sums[j][0] = sums[j][1] = 0.0f;
#pragma unroll
            for (int t = 0; t < DIMS / 64; t++)
#pragma unroll
                for (int i = 0; i < 4; i++) o[t][j][i] = 0.0f;
        }
        int32_t step = w.begin;
        barrier_wait(rings.full + walk.keys.slot, walk.keys.turn);
        pin(o);
        start_scores<DIMS, N, FP8>(wgmma_descriptor(rings.slots) +
                                       walk.keys.slot * (rdk_attn_slot_bytes(DIMS, FP8) / 16),
                                   mine.query_descriptor(), s);
        wgmma_wait<0>();
        pin(s);
        slot_done(rings.empty, walk.keys.slot);
        walk.keys.advance(rings.keys);
        do attend_step<DIMS, N, FP8>(args, mine, rings, walk, w, step, s, sums, o);
        while (++step < walk.end);
        store_partial<DIMS, N, FP8>(args, w, w.row_block * N, mine, sums, o);
        slot_done(chunks->empty, taken++ % RDK_ATTN_RECORDS);
    }
}

// Where a team's things stand in shared memory: all rings, then all queries and weights, then the rest.
template <int DIMS, int N, bool FP8> struct team_layout {
    static constexpr int operand_bytes =
        rdk_attn_operand_bytes(DIMS, N); // whole kilobytes: the swizzle counts rows by address
    static_assert(sizeof(row_table<N>) <= rdk_attn_table_bytes(N), "room of the rows");
    static_assert(sizeof(chunk_ring) <= RDK_ATTN_RECORD_BYTES, "room of the chunks");
    cache_rings rings;
    chunk_ring *chunks;
    int32_t *taken; // chunks of the block that its teams have
    team_view<N> view;

    __device__ __forceinline__ team_layout(const rdk_attn_sm90a_args &args, int team) {
        extern __shared__ __align__(1024) unsigned char shared_bytes[];
        int slots = args.key_slots + args.value_slots, ring_bytes = slots * rdk_attn_slot_bytes(DIMS, FP8);
        unsigned char *own = shared_bytes + args.teams * ring_bytes + team * operand_bytes;
        unsigned char *all = shared_bytes + args.teams * (ring_bytes + operand_bytes);
        unsigned char *rest = all + team * (rdk_attn_table_bytes(N) + RDK_ATTN_RECORD_BYTES + slots * 16);
        taken = &reinterpret_cast<chunk_ring *>(all + rdk_attn_table_bytes(N))->taken;
        chunks = reinterpret_cast<chunk_ring *>(rest + rdk_attn_table_bytes(N));
        uint64_t *full = reinterpret_cast<uint64_t *>(chunks + 1);
        rings = {shared_bytes + team * ring_bytes, full, full + slots, args.key_slots, args.value_slots};
        view = {own, own + rdk_attn_query_bytes(DIMS, N), reinterpret_cast<row_table<N> *>(rest), team,
                kept(smem_address(rest) + threadIdx.x % 4 * (uint32_t)sizeof(row_words))};
    }
};

template <int DIMS, int N, bool FP8> __device__ __forceinline__ void decode(const rdk_attn_sm90a_args &args) {
    using layout = team_layout<DIMS, N, FP8>;
    int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    launch_dependents();
    if (warp < args.teams && threadIdx.x % 32 == 0) {
        const layout its(args, warp);
        for (int32_t i = 0; i < args.key_slots + args.value_slots; i++)
            barrier_init(its.rings.full + i, 1), barrier_init(its.rings.empty + i, 4);
        for (int32_t i = 0; i < RDK_ATTN_RECORDS; i++)
            barrier_init(its.chunks->full + i, 1), barrier_init(its.chunks->empty + i, 4);
        if (warp == 0) *its.taken = args.teams;
        barrier_init_fence();
    }
    __syncthreads();
    if (warp < 4) { // addresses are made anew in each role: what lives across its beginning is held in memory
        registers_give<rdk_attn_loader_registers(DIMS, N)>();
        int team = kept(warp);
        const layout its(args, team);
        if (team < args.teams) stream_cache(args, team, its.rings, its.chunks, its.taken);
    } else {
        registers_take<rdk_attn_registers(DIMS, N)>();
        int team = kept(warp / 4 - 1);
        const layout its(args, team);
        if (team < args.teams) attend<DIMS, N, FP8>(args, its.view, its.rings, its.chunks);
    }
}

#define DECODE_KERNEL(type_, dims_, rows_, fp8_)                                                             \
    extern "C" __global__ void __launch_bounds__(rdk_attn_register_threads(dims_, rows_), 1)                 \
        rdk_attn_decode_sm90a_##type_##_d##dims_##_r##rows_(                                                 \
            const __grid_constant__ rdk_attn_sm90a_args args) {                                              \
        decode<dims_, rows_, fp8_>(args);                                                                    \
    }
#define DECODE_KERNELS(type_, fp8_)                                                                          \
    DECODE_KERNEL(type_, 64, 24, fp8_)                                                                       \
    DECODE_KERNEL(type_, 128, 8, fp8_)                                                                       \
    DECODE_KERNEL(type_, 128, 24, fp8_)                                                                      \
    DECODE_KERNEL(type_, 128, 40, fp8_)                                                                      \
    DECODE_KERNEL(type_, 256, 8, fp8_)                                                                       \
    DECODE_KERNEL(type_, 256, 24, fp8_)                                                                      \
    DECODE_KERNEL(type_, 256, 56, fp8_)                                                                      \
    DECODE_KERNEL(type_, 512, 24, fp8_)
DECODE_KERNELS(fp8, true)
DECODE_KERNELS(bf16, false)

#define MERGE_KERNEL(name_, fp8_, codes_)                                                                    \
    extern "C" __global__ void __launch_bounds__(RDK_ATTN_MERGE_GROUPS *RDK_ATTN_MERGE_LANES, 4)             \
        name_(const __grid_constant__ rdk_attn_sm90a_args args) {                                            \
        merge<fp8_, codes_>(args);                                                                           \
    }
MERGE_KERNEL(rdk_attn_decode_sm90a_merge_fp8, true, false)
MERGE_KERNEL(rdk_attn_decode_sm90a_merge_bf16, false, false)
MERGE_KERNEL(rdk_attn_decode_codes_sm90a_merge, true, true)
