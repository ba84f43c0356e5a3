// SPDX-License-Identifier: Apache-2.0
// attn_prefill on Hopper: causal attention of query chunks over a paged cache, wgmma throughout.
//
// A block keeps 128 query rows (head 512: 64) in shared memory and walks the keys that they see, in tiles cut at absolute
// positions. One warp copies tiles into rings; two groups of four warps multiply. A group starts the scores of the next tile and
// the values of this one together, and takes exponentials while the values' product runs. Weights go from registers straight
// into that product. The first scores of the next row tile run beside the last values of this one and while it is written. bf16
// caches are multiplied in bf16. Of an e4m3 cache keys are multiplied as they are, by queries in two e4m3 terms, and values are
// widened to f16, which holds every code exactly.
#include "kernels/attn/sm90a_prefill_queries.cuh"
#include "kernels/attn/sm90a_prefill_wgmma.cuh"

constexpr float LOG2E = 1.4426950408889634f;
constexpr float TOP_SLACK = 8.0f; // a row's reference exponent follows its largest score only when it falls behind by this

enum { BARRIER_ALL = 3 }; // named barriers beside BARRIER_WIDENING

__device__ __forceinline__ float power_of_two(float x) { // 2 ulp; -inf gives 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float tanh_of(float x) { // 1 - 2 / (1 + e^2x): absolute error of a few 2^-24
    return 1.0f - __fdividef(2.0f, 1.0f + power_of_two(fminf(x * (2.0f * LOG2E), 120.0f)));
}

// Running softmax of a lane's two rows, base 2.
struct row_pair {
    float top[2], weight[2]; // reference exponent; this lane's share of the sum
    float scale[2];          // of scores: into the cap, or into the exponent where there is none
    int32_t last[2];         // key that the row sees; its first follows from the window
};

template <class S>
__device__ __forceinline__ row_pair start_rows(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const row_base &base,
                                               int32_t row, const float *factor) {
    row_pair p;
    float k_scale = S::fp8 && args.k_scale ? args.k_scale[w.kv_head] : 1.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        row_place at = place_of(args, base, row + 8 * r);
        float sink = args.sinks && args.chunks == 1 && w.row + row + 8 * r < w.rows ? args.sinks[at.head] * LOG2E : -INFINITY;
        float scale = args.scale * k_scale * (S::fp8 ? factor[row + 8 * r] : 1.0f);
        p.top[r] = sink;
        p.weight[r] = 0.0f;
        p.scale[r] = args.softcap > 0 ? __fdividef(scale, args.softcap) : scale * LOG2E;
        p.last[r] = w.kv_len - w.q_len + min(at.token, w.q_len - 1);
    }
    return p;
}

template <int KEYS> __device__ __forceinline__ void cap_scores(float (&s)[KEYS / 2], const row_pair &p) {
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) s[i] = tanh_of(s[i] * p.scale[i / 2 % 2]);
}
// Scores of keys that a row does not see become -inf. `key`: the tile's first.
template <int KEYS>
__device__ __forceinline__ void hide_scores(float (&s)[KEYS / 2], const row_pair &p, int32_t key, int32_t window) {
    int32_t mine = key + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        int32_t at = i / 4 * 8 + i % 2, r = i / 2 % 2;
        if (at > p.last[r] - mine || (window > 0 && at <= p.last[r] - window - mine)) s[i] = -INFINITY;
    }
}

// Scores to weights; keep: what the sums so far are to be multiplied by.
template <int KEYS> __device__ __forceinline__ void soften(float (&s)[KEYS / 2], row_pair &p, float softcap, float (&keep)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = s[2 * r], scale = softcap > 0 ? softcap * LOG2E : p.scale[r];
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            if (i / 2 % 2 == r) top = fmaxf(top, s[i]);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)) * scale;
        keep[r] = 1.0f;
        if (top - p.top[r] > TOP_SLACK) { // false for -inf against -inf
            keep[r] = power_of_two(p.top[r] - top);
            p.top[r] = top;
        }
        float from = p.top[r] == -INFINITY ? 0.0f : p.top[r], sum = 0.0f;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            if (i / 2 % 2 == r) {
                s[i] = power_of_two(fmaf(s[i], scale, -from));
                sum += s[i];
            }
        p.weight[r] = fmaf(p.weight[r], keep[r], sum);
    }
}
template <bool F16, int KEYS> __device__ __forceinline__ void pack_weights(const float (&s)[KEYS / 2], uint32_t (&weights)[KEYS / 4]) {
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) weights[i] = F16 ? pack_f16(s[2 * i], s[2 * i + 1]) : pack_bf16(s[2 * i], s[2 * i + 1]);
}

template <class S>
__device__ __forceinline__ void start_scores(float (&s)[S::keys / 2], uint32_t q, uint32_t k) {
    constexpr int depth = S::fp8 ? 32 : 16, steps = S::dims / depth; // four steps of 32 bytes a chunk
    if constexpr (S::fp8) // the small terms first: less is lost beside their sum
#pragma unroll
        for (int step = 0; step < 2 * steps; step++) {
            int at = step % steps, byte = at * 32 + (step < steps ? S::dims : 0);
            wgmma16<true, S::keys>::template codes<S::dims == 64>(s, q + (byte / 128 * 8192 + byte % 128) / 16,
                                                                  k + (at / 4 * S::chunk_bytes + at % 4 * 32) / 16, step > 0);
        }
    else
#pragma unroll
        for (int step = 0; step < steps; step++)
            wgmma16<false, S::keys>::both(s, q + (step / 4 * 8192 + step % 4 * 32) / 16,
                                          k + (step / 4 * S::chunk_bytes + step % 4 * 32) / 16, step > 0);
    wgmma_commit();
}
template <class S>
__device__ __forceinline__ void start_values(float (&o)[S::out_dims / 2], const uint32_t (&weights)[S::keys / 4], uint32_t v,
                                             int accumulate) {
#pragma unroll
    for (int step = 0; step < S::keys / 16; step++)
#pragma unroll
        for (int part = 0; part < S::out_dims / S::product_dims; part++)
            wgmma16<S::fp8, S::product_dims>::weights(
                *reinterpret_cast<float(*)[S::product_dims / 2]>(o + part * S::product_dims / 2), weights + 4 * step,
                v + (step * 2048 + part * S::product_dims / 64 * S::chunk_bytes) / 16, step > 0 || accumulate);
    wgmma_commit();
}

// Rows of values past the sequence's last key: the weights there are zero, and 0 * NaN would spoil a sum.
template <class S> __device__ __forceinline__ void clear_values(unsigned char *tile, int32_t from, int32_t thread) {
    for (int32_t i = from * 8 + thread; i < S::keys * 8; i += S::consumers)
#pragma unroll
        for (int chunk = 0; chunk < S::dims / 64; chunk++)
            *reinterpret_cast<uint4 *>(tile + chunk * S::chunk_bytes + i * 16) = make_uint4(0, 0, 0, 0);
    fence_async();
    named_sync(BARRIER_ALL, S::consumers);
}

template <class S> struct consumer {
    const rdk_attn_prefill_sm90a_args &args;
    const block_memory<S> memory;
    int32_t group; // of four warps
    ring_place<S::key_slots> key;
    ring_place<S::value_slots> value;
    ring_place<S::query_buffers> buffer; // counts works
    uint32_t q_at;

    __device__ __forceinline__ prefill_state &state() const { return memory.state(); }
    // This lane's first row of the block's. Kept: it would stay in registers between works.
    static __device__ __forceinline__ int32_t first_row() {
        uint32_t thread = kept(threadIdx.x) - S::first_consumer;
        return thread / 32 % (S::splits_dims ? 4 : 8) * 16 + thread % 32 / 4;
    }
    static __device__ __forceinline__ int32_t thread() { return threadIdx.x - S::first_consumer; }
    __device__ __forceinline__ void release(uint64_t *barrier) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
    }
    __device__ __forceinline__ uint32_t wait_keys() {
        barrier_wait(&state().keys_full[key.at()], key.parity());
        return wgmma_descriptor(memory.keys(key.at()));
    }
    __device__ __forceinline__ uint32_t wait_values() {
        barrier_wait(&state().values_full[value.at()], value.parity());
        unsigned char *tile = memory.values(value.at()) + (S::splits_dims ? group * (S::out_dims / 64) * S::chunk_bytes : 0);
        return values_descriptor(tile, S::chunk_bytes);
    }
    // The keys of a work's first tile, once its queries are there too.
    __device__ __forceinline__ uint32_t wait_first_keys() {
        barrier_wait(&state().queries_full[buffer.at()], buffer.parity());
        q_at = wgmma_descriptor(memory.queries(buffer.at()) + (S::splits_dims ? 0 : group * 64 * S::dims * 2));
        return wait_keys();
    }
    __device__ __forceinline__ void take_values(float (&o)[S::out_dims / 2]) {
        wgmma_pin(o);
        release(&state().values_empty[value.at()]);
        value.next();
    }
    __device__ __forceinline__ void weigh(const row_pair &rows, float (&s)[S::keys / 2], int32_t tile) {
        if (args.softcap > 0) cap_scores<S::keys>(s, rows);
        // From where to where all rows of the warp see.
        int32_t to = __shfl_sync(0xffffffffu, rows.last[0], 0), from = __shfl_sync(0xffffffffu, rows.last[1], 31) - args.window + 1;
        if (tile * S::keys + S::keys - 1 > to || (args.window > 0 && tile * S::keys < from))
            hide_scores<S::keys>(s, rows, tile * S::keys, args.window);
    }
    // What has been waited for.
    __device__ __forceinline__ void take_scores(float (&s)[S::keys / 2], bool last) {
        wgmma_pin(s);
        release(&state().keys_empty[key.at()]);
        key.next();
        if (last) barrier_arrive(&state().queries_empty[buffer.at()]);
    }

    // From the first tile's scores to the last tile's weights, which wait for their values.
    __device__ __forceinline__ void sum_tiles(const prefill_work &w, row_pair &rows, float (&s)[S::keys / 2],
                                              float (&o)[S::out_dims / 2], uint32_t (&weights)[S::keys / 4]) {
        float keep[2];
        int32_t tile = w.tile, last = w.tile + w.tiles - 1;
        weigh(rows, s, tile);
        soften<S::keys>(s, rows, args.softcap, keep);
        pack_weights<S::fp8, S::keys>(s, weights);
#pragma unroll 1
        while (tile < last) {
            tile++;
            uint32_t at = wait_keys();
            wgmma_fence();
            start_scores<S>(s, q_at, at);
            at = wait_values();
            start_values<S>(o, weights, at, 1);
            wgmma_wait<1>();
            take_scores(s, tile == last);
            weigh(rows, s, tile);
            soften<S::keys>(s, rows, args.softcap, keep);
            wgmma_wait<0>();
            take_values(o);
            if (__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) // a factor of 1 changes no bit
#pragma unroll
                for (int j = 0; j < S::out_dims / 2; j++) o[j] *= keep[j / 2 % 2];
            pack_weights<S::fp8, S::keys>(s, weights);
        }
    }
    // What the sums of a lane's two rows are to be multiplied by. Where keys are cut the merge does that.
    __device__ __forceinline__ void close_rows(const prefill_work &w, const row_pair &rows, float (&factor)[2]) {
        float v_scale = S::fp8 && args.v_scale ? args.v_scale[w.kv_head] : 1.0f;
        row_base base = base_of(args, w);
        int32_t row = first_row();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            bool mine = w.row + row + 8 * r < w.rows;
            float sum = rows.weight[r];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (args.chunks > 1) {
                if (mine && threadIdx.x % 4 == 0)
                    *reinterpret_cast<float2 *>(args.tops + part_of(args, w, row + 8 * r) * 2) = make_float2(rows.top[r], sum);
                factor[r] = 1.0f;
                continue;
            }
            if (args.sinks && mine) {
                float sink = args.sinks[place_of(args, base, row + 8 * r).head] * LOG2E;
                sum += sink == -INFINITY ? 0.0f : power_of_two(sink - rows.top[r]);
            }
            factor[r] = sum == 0.0f ? 0.0f : __fdividef(v_scale, sum);
        }
    }
    // The last tile's values, and beside them and beside what is written the next work's first scores. Returns whether there is one.
    __device__ __forceinline__ bool turn_over(const prefill_work &w, row_pair &rows, float (&s)[S::keys / 2],
                                              float (&o)[S::out_dims / 2], const uint32_t (&weights)[S::keys / 4]) {
        float factor[2];
        uint32_t at = wait_values();
        int32_t end = (w.tile + w.tiles) * S::keys;
        if (!S::fp8 && end > w.kv_len) clear_values<S>(memory.values(value.at()), w.kv_len - end + S::keys, thread());
        wgmma_fence();
        start_values<S>(o, weights, at, 1);
        close_rows(w, rows, factor);
        buffer.next();
        const prefill_work &next = wait_work(state(), {buffer.word});
        bool more = next.seq >= 0;
        if (more) at = wait_first_keys();
        wgmma_fence();
        start_scores<S>(s, q_at, at); // when there are none, of whatever lies there: a branch would part the two products
        wgmma_wait<1>();
        take_values(o);
        store_rows<S>(args, w, base_of(args, w), first_row(), S::splits_dims ? kept(group) * S::out_dims : 0, o, factor);
        if (more) rows = start_rows<S>(args, next, base_of(args, next), first_row(), state().factor[buffer.at()]);
        wgmma_wait<0>();
        wgmma_pin(s);
        return more;
    }
    __device__ __forceinline__ void run() {
        float s[S::keys / 2], o[S::out_dims / 2];
        uint32_t weights[S::keys / 4];
        barrier_wait(&state().work_full[0], 0);
        if (state().work[0].seq < 0) return;
        uint32_t at = wait_first_keys();
        wgmma_fence();
        start_scores<S>(s, q_at, at);
        row_pair rows = start_rows<S>(args, state().work[0], base_of(args, state().work[0]), first_row(), state().factor[0]);
        wgmma_wait<0>();
        for (bool more = true; more;) {
            work_place post = {buffer.word};
            const prefill_work &w = state().work[post.at()]; // read again at the end: it would not fit in registers meanwhile
            take_scores(s, w.tiles == 1);
#pragma unroll
            for (int i = 0; i < S::out_dims / 2; i++) o[i] = 0.0f;
            sum_tiles(w, rows, s, o, weights);
            more = turn_over(w, rows, s, o, weights);
            barrier_arrive(&state().work_empty[(buffer.word - 1) % WORKS]);
        }
    }
};

template <class S> __device__ __forceinline__ void init_barriers(prefill_state &state) {
    constexpr int warps = S::consumers / 32, widening = S::fp8 ? WIDENING_WARPS : 0;
    for (int i = 0; i < S::key_slots; i++) {
        barrier_init(&state.keys_full[i], 1);
        barrier_init(&state.keys_empty[i], warps);
    }
    for (int i = 0; i < S::value_slots; i++) {
        barrier_init(&state.raw[i], 1);
        barrier_init(&state.values_full[i], S::fp8 ? widening : 1);
        barrier_init(&state.values_empty[i], warps);
    }
    barrier_init(&state.wanted, 1);
    // Once a work: every lane arrives for itself, which racecheck can follow.
    for (int i = 0; i < WORKS; i++) {
        barrier_init(&state.work_full[i], 1);
        barrier_init(&state.work_empty[i], (warps + widening + QUERY_WARPS) * 32);
    }
    for (int i = 0; i < 2; i++) {
        barrier_init(&state.queries_full[i], S::query_warps * 32);
        barrier_init(&state.queries_empty[i], warps * 32);
    }
    barrier_init_fence();
}

template <class S> __device__ __forceinline__ void prefill(const rdk_attn_prefill_sm90a_args &args) {
    extern __shared__ unsigned char shared[];
    const block_memory<S> memory = {shared + (1024 - smem_address(shared) % 1024) % 1024};
    if (threadIdx.x == 0) {
        prefetch_map(args.k_map);
        prefetch_map(args.v_map);
        init_barriers<S>(memory.state());
    }
    __syncthreads();
    wait_dependencies();
    if (threadIdx.x < 128) {
        registers_give<S::load_registers>();
        if (threadIdx.x < 32)
            load_all<S>(args, memory);
        else if (threadIdx.x < 64)
            find_all<S>(args, memory);
        else
            bring_all_queries<S>(args, memory);
    } else if (S::fp8 && threadIdx.x < 256) {
        registers_give<S::widen_registers>();
        widen_all<S>(args, memory);
    } else {
        registers_take<S::take_registers>();
        int32_t group = __shfl_sync(0xffffffffu, (threadIdx.x - S::first_consumer) / 128, 0);
        consumer<S>{args, memory, group, {}, {}, {}, 0}.run();
    }
}

// Before a call with more units than blocks.
extern "C" __global__ void rdk_attn_prefill_sm90a_begin(const __grid_constant__ rdk_attn_prefill_sm90a_args args) {
    wait_dependencies();
    if (threadIdx.x == 0) *args.taken = 0;
}

// The partial results of a row, a warp: a lane has a chunk's largest logit and weight, then each lane some dims of all chunks. Which
// chunks a row has follows from the keys that it sees.
extern "C" __global__ void __launch_bounds__(RDK_PREFILL_MERGE_THREADS)
    rdk_attn_prefill_sm90a_merge(const __grid_constant__ rdk_attn_prefill_sm90a_args args) {
    int32_t lane = threadIdx.x % 32, row = blockIdx.x * (RDK_PREFILL_MERGE_THREADS / 32) + threadIdx.x / 32, kv_head = blockIdx.y;
    int32_t token = row / args.group, head = kv_head * args.group + row - token * args.group;
    wait_dependencies();
    int32_t seq = 0;
    for (uint32_t later = 0; !later && seq < args.seqs; seq += later ? __ffs((int)later) - 1 : 32)
        later = __ballot_sync(0xffffffffu, seq + lane < args.seqs && token < __ldcg(args.q_starts + seq + lane + 1));
    if (seq >= args.seqs) return;
    int32_t last = min(__ldcg(args.kv_lens + seq), args.max_keys) - __ldcg(args.q_starts + seq + 1) + token; // key
    int32_t first = args.window > 0 ? max(last - args.window + 1, 0) : 0;
    bool mine = last >= 0 && lane >= first / args.chunk_keys && lane <= last / args.chunk_keys;
    int64_t rows = (int64_t)args.tokens * args.group, part = (int64_t)kv_head * args.chunks * rows + row;
    float2 state = make_float2(-INFINITY, 0.0f);
    if (mine) state = __ldcg(reinterpret_cast<const float2 *>(args.tops) + part + lane * rows);
    float sink = args.sinks ? args.sinks[head] * LOG2E : -INFINITY, top = fmaxf(state.x, sink);
#pragma unroll
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    if (top == -INFINITY) top = 0.0f;
    float keep = power_of_two(state.x - top), weight = state.y * keep;
#pragma unroll
    for (int step = 16; step; step /= 2) weight += __shfl_xor_sync(0xffffffffu, weight, step);
    weight += power_of_two(sink - top);
    float factor = weight == 0.0f ? 0.0f : __fdividef(args.v_scale ? args.v_scale[kv_head] : 1.0f, weight);
    uint32_t chunks = __ballot_sync(0xffffffffu, mine);
    int64_t to = (int64_t)token * args.out_stride_token + (int64_t)head * args.out_stride_head;
    for (int32_t d = lane * 2; d < args.head_dim; d += 64) {
        float2 sum = make_float2(0.0f, 0.0f);
        for (uint32_t left = chunks; left; left &= left - 1) {
            int32_t c = __ffs((int)left) - 1;
            float2 its = __ldcg(reinterpret_cast<const float2 *>(args.sums + (part + c * rows) * args.head_dim + d));
            float by = __shfl_sync(0xffffffffu, keep, c);
            sum.x = fmaf(its.x, by, sum.x);
            sum.y = fmaf(its.y, by, sum.y);
        }
        if (args.out_type == RDK_F32)
            *reinterpret_cast<float2 *>(static_cast<float *>(args.out) + to + d) = make_float2(sum.x * factor, sum.y * factor);
        else
            *reinterpret_cast<uint32_t *>(static_cast<__nv_bfloat16 *>(args.out) + to + d) = pack_bf16(sum.x * factor, sum.y * factor);
    }
}

#define PREFILL_KERNEL(name_, dims_, fp8_)                                                                                       \
    extern "C" __global__ void __launch_bounds__(rdk_prefill_threads(fp8_), 1)                                                   \
        rdk_attn_prefill_sm90a_##name_(const __grid_constant__ rdk_attn_prefill_sm90a_args args) {                               \
        prefill<prefill_shape<dims_, fp8_>>(args);                                                                               \
    }
PREFILL_KERNEL(bf16_d64, 64, false)
PREFILL_KERNEL(bf16_d128, 128, false)
PREFILL_KERNEL(bf16_d256, 256, false)
PREFILL_KERNEL(bf16_d512, 512, false)
PREFILL_KERNEL(fp8_d64, 64, true)
PREFILL_KERNEL(fp8_d128, 128, true)
PREFILL_KERNEL(fp8_d256, 256, true)
PREFILL_KERNEL(fp8_d512, 512, true)
