// SPDX-License-Identifier: Apache-2.0
// attn_decode on Hopper: split over the keys, two launches.
//
// The first runs a block a multiprocessor with two teams of four warps. Each team walks its share of all chunks of keys
// (sm90a_decode_work.cuh): a loading warp of its own streams keys and values through a ring in shared memory, and the team attends
// them 64 keys a step for up to 56 rows (query tokens times heads of the group). Every chunk leaves a partial result for each
// row, and the second launch adds those up in order of position. Chunks are cut at absolute positions and lengths are read here, on
// the device: one captured graph serves every length up to its bound, and a row's bits follow from positions.
#include "kernels/attn/sm90a_decode_load.cuh"

// What a team has in shared memory beside its rings, and where a thread stands in it. Rows 8j + 2 (lane % 4) + e are a lane's.
template <int DIMS, int N, bool FP8> struct team_view {
    using shape = attn_shape<DIMS, N, FP8>;
    using table_type = row_table<N, shape::groups * 4>;
    unsigned char *queries, *weights;
    table_type *table;
    int team, member, thread; // of the block, of the team (warpgroup), of the team

    __device__ __forceinline__ void sync() const {
        asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(shape::threads) : "memory");
    }
    __device__ __forceinline__ bool any(bool mine) const { // of the team's threads; a barrier
        uint32_t all;
        asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 q, %1, 0;\n\tbar.red.or.pred p, %2, %3, q;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(all)
                     : "r"((uint32_t)mine), "r"(team + 1), "n"(shape::threads)
                     : "memory");
        return all;
    }
};

// A lane's two rows of eight, out of a list of the team's.
__device__ __forceinline__ float2 row_pair(const float *rows, int j) {
    return shared_f32x2(smem_address(rows) + (j * 8 + threadIdx.x % 4 * 2) * 4);
}

// Scores to logits in base 2, less the reference of their row. One rounding, masked turn or not: a row's bits do not depend on others'.
template <int N> __device__ __forceinline__ void relate_scores(float softcap, const float *factors, const float *references, float (&s)[N / 8][4]) {
    if (__builtin_expect(softcap > 0.0f, 0)) { // the factor holds 2 log2e / softcap: tanh y = 1 - 2 / (1 + exp 2y)
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float2 factor = row_pair(factors, j), reference = row_pair(references, j);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float y = power_of_two(s[j][i] * (i % 2 ? factor.y : factor.x));
                s[j][i] = softcap * 1.4426950408889634f * (1.0f - __fdividef(2.0f, 1.0f + y)) - (i % 2 ? reference.y : reference.x);
            }
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 factor = row_pair(factors, j), reference = row_pair(references, j);
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] = fmaf(s[j][i], i % 2 ? factor.y : factor.x, i % 2 ? -reference.y : -reference.x);
    }
}

// Hides keys that a row does not see; key: the lane's first, its other one is 8 on.
template <int N> __device__ __forceinline__ void mask_scores(const int32_t *positions, int32_t key, int32_t window, float (&s)[N / 8][4]) {
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t position = positions[j * 8 + threadIdx.x % 4 * 2 + e], low = window > 0 ? position - window : -1;
            if (key > position || key <= low) s[j][e] = -INFINITY;
            if (key + 8 > position || key + 8 <= low) s[j][2 + e] = -INFINITY;
        }
}

// Does one of a lane's logits stand above its row's limit?
template <int N> __device__ __forceinline__ bool limit_is_passed(const float *limits, const float (&s)[N / 8][4]) {
    bool passed = false;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 limit = row_pair(limits, j);
        passed |= fmaxf(s[j][0], s[j][2]) > limit.x;
        passed |= fmaxf(s[j][1], s[j][3]) > limit.y;
    }
    return passed;
}

// New references for the rows whose limit is passed, and theirs alone; what is summed so far shrinks with them.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void raise_references(const team_view<DIMS, N, FP8> &mine, float (&s)[N / 8][4], float (&sums)[N / 8][2],
                                              float (&o)[attn_shape<DIMS, N, FP8>::tiles][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = mine.thread / 32;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float top = fmaxf(s[j][e], s[j][2 + e]);
#pragma unroll
            for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
            if (lane < 4) mine.table->top[j * 8 + lane * 2 + e][warp] = top;
        }
    mine.sync();
    int at = mine.thread;
    if (at < N) {
        float top = mine.table->top[at][0], limit = mine.table->limit[at];
#pragma unroll
        for (int i = 1; i < shape::groups * 4; i++) top = fmaxf(top, mine.table->top[at][i]);
        bool raised = top > limit;
        mine.table->rise[at] = raised ? top : 0.0f;
        mine.table->keep[at] = !raised ? 1.0f : limit == -INFINITY ? 0.0f : power_of_two(-top);
        if (raised) mine.table->reference[at] += top, mine.table->limit[at] = RDK_ATTN_HEADROOM;
    }
    mine.sync();
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 rise = row_pair(mine.table->rise, j), keep = row_pair(mine.table->keep, j);
        sums[j][0] *= keep.x, sums[j][1] *= keep.y;
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] -= i % 2 ? rise.y : rise.x;
#pragma unroll
        for (int t = 0; t < shape::tiles; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) o[t][j][i] *= i % 2 ? keep.y : keep.x;
    }
}

// Logits become weights; each lane sums its own.
template <int N> __device__ __forceinline__ void soften(float (&s)[N / 8][4], float (&sums)[N / 8][2]) {
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] = power_of_two(s[j][i]);
        sums[j][0] += s[j][0] + s[j][2], sums[j][1] += s[j][1] + s[j][3];
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
__device__ __forceinline__ void store_averages(const team_view<DIMS, N, FP8> &mine, void *sums, int64_t at, int32_t head_dim, int32_t rows,
                                               const float (&o)[attn_shape<DIMS, N, FP8>::tiles][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, dim = mine.member * shape::tiles * 64 + threadIdx.x / 32 % 4 * 16, row = lane % 4 * 2;
    int64_t first = at + row * head_dim + dim + (FP8 ? lane / 4 * 2 : lane / 4);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 scale = row_pair(mine.table->scale, j);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float by = e ? scale.y : scale.x;
            int64_t to = first + (j * 8 + e) * head_dim;
            if (row + j * 8 + e >= rows) continue;
#pragma unroll
            for (int t = 0; t < shape::tiles; t++) {
                if (dim + t * 64 >= head_dim) continue;
                if constexpr (FP8)
                    *reinterpret_cast<uint32_t *>(static_cast<__half *>(sums) + to + t * 64) = pack_f16(o[t][j][e] * by, o[t][j][2 + e] * by);
                else
                    static_cast<float *>(sums)[to + t * 64] = o[t][j][e] * by, static_cast<float *>(sums)[to + t * 64 + 8] = o[t][j][2 + e] * by;
            }
        }
    }
}

// A chunk's averages, tops and weights to memory.
template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void store_partial(const rdk_attn_sm90a_args &args, const chunk_record &w, int32_t first,
                                              const team_view<DIMS, N, FP8> &mine, float (&sums)[N / 8][2],
                                              const float (&o)[attn_shape<DIMS, N, FP8>::tiles][N / 8][4]) {
    using shape = attn_shape<DIMS, N, FP8>;
    int lane = threadIdx.x % 32, warp = mine.thread / 32, at = mine.thread;
    int32_t count = w.q_len * args.group;
    int64_t place = (((int64_t)w.seq * args.kv_heads + w.kv_head) * args.chunks + w.chunk) * args.max_rows + first;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int step = 4; step < 32; step *= 2) sums[j][e] += __shfl_xor_sync(0xffffffffu, sums[j][e], step);
            if (lane < 4) mine.table->top[j * 8 + lane * 2 + e][warp] = sums[j][e];
        }
    mine.sync();
    if (at < N) {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < shape::groups * 4; i++) total += mine.table->top[at][i];
        mine.table->scale[at] = total == 0.0f ? 0.0f : __fdividef(1.0f, total);
        float reference = mine.table->limit[at] == -INFINITY ? -INFINITY : mine.table->reference[at];
        if (first + at < count) *reinterpret_cast<float2 *>(args.tops + (place + at) * 2) = make_float2(reference, total);
    }
    mine.sync();
    store_averages<DIMS, N, FP8>(mine, args.sums, place * args.head_dim, args.head_dim, count - first, o);
}

// This warp has read a slot.
__device__ __forceinline__ void slot_done(uint64_t *empty, int32_t slot) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + slot);
}

// A chunk's keys by turns: `groups` steps from the chunk's first key on, those of them that some row sees.
template <int DIMS, int N, bool FP8> struct chunk_loop {
    using shape = attn_shape<DIMS, N, FP8>;
    static constexpr int groups = shape::groups;
    const rdk_attn_sm90a_args &args;
    const team_view<DIMS, N, FP8> &mine;
    const cache_rings &rings;
    ring_place &keys, &values; // the turn's first slots
    uint32_t queries, weights, slots; // descriptors
    int32_t begin, end; // steps
    float s[N / 8][4], sums[N / 8][2], o[shape::tiles][N / 8][4];
    ring_place own; // the slot of this warpgroup's keys, and whether they are there
    bool has;

    // This warpgroup's scores of the turn that begins at step `turn`.
    __device__ __forceinline__ void start_turn(int32_t turn) {
        int32_t low = max(turn, begin), step = turn + mine.member;
        has = step >= low && step < end;
        if (!has) return;
        own = keys;
        own.advance(rings.keys, step - low);
        barrier_wait(rings.full + own.slot, own.turn);
        start_scores<DIMS, N, FP8>(slots + own.slot * (shape::slot_bytes / 16), queries, s);
    }
    __device__ __forceinline__ void keys_done() {
        if (has) slot_done(rings.empty, own.slot);
    }

    // Products of one slot of e4m3 values.
    __device__ __forceinline__ void multiply_codes(uint32_t weights_at, int32_t left, bool first) {
        using codes = value_codes<DIMS, N>;
        uint32_t from = smem_address(rings.slots) + (rings.keys + values.slot) * shape::slot_bytes + codes::lane_offset(mine.member), word[shape::tiles][4];
#pragma unroll
        for (int t = 0; t < shape::tiles; t++) codes::load(word[t], from, t, 0);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (__builtin_expect(left < RDK_ATTN_STEP_KEYS, 0))
#pragma unroll
                for (int t = 0; t < shape::tiles; t++) codes::hide(word[t], half, left);
#pragma unroll
            for (int step = 0; step < 2; step += codes::steps) {
                uint32_t a[codes::steps * shape::tiles][4];
#pragma unroll
                for (int i = 0; i < codes::steps * shape::tiles; i++)
#pragma unroll
                    for (int k = 0; k < 2; k++)
                        widen_codes(__byte_perm(word[i % shape::tiles][(step + i / shape::tiles) * 2 + k], 0, 0x3120), a[i][k * 2], a[i][k * 2 + 1]);
                pin_operands(a);
                if (half == 0 && step + codes::steps == 2)
#pragma unroll
                    for (int t = 0; t < shape::tiles; t++) codes::load(word[t], from, t, 1);
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < codes::steps * shape::tiles; i++)
                    wgmma_decode<N>::values(o[i % shape::tiles], a[i], weights_at + (half * 2 + step + i / shape::tiles) * 2);
                wgmma_commit();
                wgmma_wait<1>();
                if (first && half == 0 && step == 0) keys_done(); // their products were asked for before
            }
        }
        slot_done(rings.empty, rings.keys + values.slot);
    }

    // One turn: scores become weights, the next turn's scores are asked for, values are summed.
    __device__ __forceinline__ void attend_turn(int32_t turn, int32_t open, int32_t shut, int32_t kv_len) {
        int32_t low = max(turn, begin), high = min(turn + groups, end), key = (turn + mine.member) * RDK_ATTN_STEP_KEYS;
        relate_scores<N>(args.softcap, mine.table->factor, mine.table->reference, s);
        if (__builtin_expect(key + RDK_ATTN_STEP_KEYS - 1 > open || key < shut, 0))
            mask_scores<N>(mine.table->position, key + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, args.window, s);
        if (__builtin_expect(mine.any(limit_is_passed<N>(mine.table->limit, s)), 0)) raise_references<DIMS, N, FP8>(mine, s, sums, o);
        soften<N>(s, sums);
        store_weights<N, FP8>(mine.weights + mine.member * shape::weight_bytes, s);
        if constexpr (!FP8)
            if (__builtin_expect(high * RDK_ATTN_STEP_KEYS > kv_len, 0)) { // the last step of the sequence
                ring_place last = values;
                last.advance(rings.values, high - 1 - low);
                barrier_wait(rings.full + rings.keys + last.slot, last.turn);
                clear_values<DIMS>(rings.slots + (rings.keys + last.slot) * shape::slot_bytes, kv_len - (high - 1) * RDK_ATTN_STEP_KEYS, mine.thread, shape::threads);
            }
        fence_async();
        mine.sync();
        keys.advance(rings.keys, high - low);
        has = false;
        if (turn + groups < end) start_turn(turn + groups);
        bool first = true;
#pragma unroll 1
        for (int32_t step = low; step < high; step++, first = false) {
            barrier_wait(rings.full + rings.keys + values.slot, values.turn);
            uint32_t weights_at = weights + (step - turn) * (shape::weight_bytes / 16);
            if constexpr (FP8)
                multiply_codes(weights_at, kv_len - step * RDK_ATTN_STEP_KEYS, first);
            else {
                multiply_values<DIMS, N>(slots + ((rings.keys + values.slot) * shape::slot_bytes + mine.member * shape::tiles * shape::column_bytes) / 16,
                                         weights_at, o);
                wgmma_wait<1>();
                if (first)
                    keys_done();
                else
                    slot_done(rings.empty, rings.keys + (values.slot ? values.slot : rings.values) - 1);
            }
            values.advance(rings.values);
        }
        wgmma_wait<0>();
        pin(s);
        pin(o);
        if (!FP8) slot_done(rings.empty, rings.keys + (values.slot ? values.slot : rings.values) - 1);
    }

    __device__ __forceinline__ void run(const chunk_record &w) {
        int32_t kv_len = w.kv_len, open = kv_len - w.q_len;            // keys up to here are hidden by windows alone,
        int32_t shut = args.window > 0 ? kv_len - args.window : 0; // keys from here on are not
        int32_t turn = rdk_attn_chunk_begin(w.chunk) / RDK_ATTN_STEP_KEYS;
        begin = w.begin, end = w.end;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            sums[j][0] = sums[j][1] = 0.0f;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[j][i] = 0.0f;
#pragma unroll
                for (int t = 0; t < shape::tiles; t++) o[t][j][i] = 0.0f;
            }
        }
        while (turn + groups <= begin) turn += groups; // hidden by the window
        pin(s);
        pin(o);
        start_turn(turn);
        wgmma_wait<0>();
        pin(s);
        keys_done();
        do {
            attend_turn(turn, open, shut, kv_len);
            turn += groups;
        } while (turn < end);
    }
};

template <int DIMS, int N, bool FP8>
__device__ __forceinline__ void attend(const rdk_attn_sm90a_args &args, const team_view<DIMS, N, FP8> &mine, const cache_rings &rings,
                                       chunk_ring *chunks) {
    ring_place keys = {0, 0}, values = {0, 0}, record = {0, 0};
    int32_t seq = -1, kv_head = 0, first = 0; // of the queries at hand
    wait_dependencies();
    while (true) {
        barrier_wait(chunks->full + record.slot, record.turn);
        const chunk_record &w = chunks->record[record.slot]; // read anew where it is needed: registers are short
        if (w.begin == w.end) return;
        int32_t row = w.row_block * N;
        if (mine.thread < N) mine.table->reference[mine.thread] = 0.0f, mine.table->limit[mine.thread] = -INFINITY;
        if (seq != w.seq || kv_head != w.kv_head || first != row) {
            seq = w.seq, kv_head = w.kv_head, first = row;
            if (args.q_vector)
                load_queries<DIMS, N, FP8, true>(args, w, first, mine.queries, mine.table);
            else
                load_queries<DIMS, N, FP8, false>(args, w, first, mine.queries, mine.table);
            fence_async();
        }
        mine.sync();
        chunk_loop<DIMS, N, FP8> loop = {args, mine, rings, keys, values, wgmma_descriptor(mine.queries), wgmma_descriptor(mine.weights),
                                         wgmma_descriptor(rings.slots)};
        loop.run(w);
        store_partial<DIMS, N, FP8>(args, w, first, mine, loop.sums, loop.o);
        slot_done(chunks->empty, record.slot);
        record.advance(RDK_ATTN_RECORDS);
    }
}

template <int DIMS, int N, bool FP8> __device__ __forceinline__ void decode(const rdk_attn_sm90a_args &args) {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    using shape = attn_shape<DIMS, N, FP8>;
    using view = team_view<DIMS, N, FP8>;
    static_assert(sizeof(typename view::table_type) <= rdk_attn_table_bytes(DIMS, FP8, N), "room of the rows");
    static_assert(sizeof(chunk_ring) <= RDK_ATTN_RECORD_BYTES, "room of the chunks");
    constexpr int operand_bytes = rdk_attn_operand_bytes(DIMS, FP8, N); // whole kilobytes: the swizzle counts rows by address
    constexpr int most_teams = rdk_attn_most_teams(DIMS), loaders = most_teams <= 2 ? 2 : 1; // warps that load for a team
    int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    int team = warp < 4 ? warp / loaders : most_teams == 1 ? 0 : (warp / 4 - 1) / shape::groups, slots = args.key_slots + args.value_slots;
    unsigned char *ring = shared_bytes + team * slots * shape::slot_bytes;
    unsigned char *own = shared_bytes + args.teams * slots * shape::slot_bytes + team * operand_bytes;
    unsigned char *rest = shared_bytes + args.teams * (slots * shape::slot_bytes + operand_bytes) +
                          team * (rdk_attn_table_bytes(DIMS, FP8, N) + RDK_ATTN_RECORD_BYTES + slots * 16);
    chunk_ring *chunks = reinterpret_cast<chunk_ring *>(rest + rdk_attn_table_bytes(DIMS, FP8, N));
    uint64_t *full = reinterpret_cast<uint64_t *>(chunks + 1), *empty = full + slots;
    const cache_rings rings = {ring, full, empty, args.key_slots, args.value_slots};
    launch_dependents();
    if (warp < 4 && team < args.teams && warp % loaders == 0 && threadIdx.x % 32 == 0) {
        for (int32_t i = 0; i < slots; i++) barrier_init(full + i, 1), barrier_init(empty + i, i < args.key_slots ? 4 : shape::groups * 4);
        for (int32_t i = 0; i < RDK_ATTN_RECORDS; i++) barrier_init(chunks->full + i, 1), barrier_init(chunks->empty + i, shape::groups * 4);
        barrier_init_fence();
    }
    __syncthreads();
    if (warp < 4) {
        registers_give<64>();
        if (team < args.teams)
            stream_cache(args, team, shape::groups, warp % loaders, loaders == 1 ? 1 : warp % loaders, rings, chunks);
    } else {
        registers_take<rdk_attn_registers(DIMS, FP8, N)>();
        const view mine = {own, own + rdk_attn_query_bytes(DIMS, N), reinterpret_cast<typename view::table_type *>(rest),
                           most_teams == 1 ? 0 : team, (warp / 4 - 1) % shape::groups, (int)threadIdx.x - 128 - team * shape::threads};
        if (team < args.teams) attend<DIMS, N, FP8>(args, mine, rings, chunks);
    }
}

#define DECODE_KERNEL(type_, dims_, rows_, fp8_)                                                                          \
    extern "C" __global__ void __launch_bounds__(rdk_attn_register_threads(dims_, fp8_, rows_), 1)                                       \
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
    constexpr int ahead = FP8 ? 6 : 4;
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
