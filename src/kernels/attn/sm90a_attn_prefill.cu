// SPDX-License-Identifier: Apache-2.0
// attn_prefill on Hopper: causal attention of query chunks over a paged cache, wgmma throughout.
//
// A block keeps 128 query rows (head 512: 64) in shared memory and walks the keys that they see, in tiles cut at absolute
// positions. One warp copies tiles into a ring; two groups of four warps multiply. A group starts the scores of the next tile and
// the values of this one together, and takes exponentials while the values' product runs. Weights go from registers straight
// into that product. bf16 caches are multiplied in bf16; e4m3 caches are widened to f16, which holds every code exactly.
#include "kernels/attn/sm90a_prefill_queries.cuh"
#include "kernels/attn/sm90a_prefill_wgmma.cuh"

constexpr float LOG2E = 1.4426950408889634f;
constexpr float TOP_SLACK = 8.0f; // a row's reference exponent follows its largest score only when it falls behind by this

enum { BARRIER_GROUP = 1, BARRIER_ALL = 3 }; // named barriers beside BARRIER_WIDENING

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
        float sink = args.sinks && w.row + row + 8 * r < w.rows ? args.sinks[at.head] * LOG2E : -INFINITY;
        float scale = args.scale * k_scale * (S::fp8 ? factor[row + 8 * r] : 1.0f);
        p.top[r] = sink;
        p.weight[r] = 0.0f;
        p.scale[r] = args.softcap > 0 ? scale / args.softcap : scale * LOG2E;
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
#pragma unroll
    for (int step = 0; step < S::dims / 16; step++)
        wgmma16<S::fp8, S::keys>::both(s, q + (step / 4 * 8192 + step % 4 * 32) / 16,
                                       k + (step / 4 * S::chunk_bytes + step % 4 * 32) / 16, step > 0);
    wgmma_commit();
}
template <class S>
__device__ __forceinline__ void start_values(float (&o)[S::out_dims / 2], const uint32_t (&weights)[S::keys / 4], uint32_t v, int accumulate) {
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
    prefill_state &state;
    unsigned char *ring, *queries;
    int32_t group; // of four warps
    ring_place<S::slots> slot;
    ring_place<S::query_buffers> buffer;
    uint32_t q_at;

    __device__ __forceinline__ float *factors() { return state.factor[S::query_buffers == 2 ? buffer.at : buffer.parity]; }

    static __device__ __forceinline__ int32_t thread() { return threadIdx.x - S::first_consumer; }
    __device__ __forceinline__ void release(int32_t at) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(&state.empty[at]);
    }
    __device__ __forceinline__ uint32_t wait_keys() {
        barrier_wait(&state.full[slot.at], slot.parity);
        return wgmma_descriptor(ring + slot.at * S::slot_bytes);
    }
    __device__ __forceinline__ uint32_t wait_values() {
        barrier_wait(&state.full[slot.at], slot.parity);
        unsigned char *tile = ring + slot.at * S::slot_bytes + (S::splits_dims ? group * (S::out_dims / 64) * S::chunk_bytes : 0);
        return values_descriptor(tile, S::chunk_bytes);
    }
    // The queries of this work, ready for products: bf16 rows have been copied; the others, and rows for f16 products, pass here.
    __device__ __forceinline__ void fetch_queries(const prefill_work &w, const row_base &base) {
        constexpr int threads = S::splits_dims ? S::consumers : 128;
        int32_t first = S::splits_dims ? 0 : group * 64;
        unsigned char *q = queries + buffer.at * S::query_bytes;
        float *factor = factors();
        q_at = wgmma_descriptor(q + first * S::dims * 2);
        int barrier = S::splits_dims ? BARRIER_ALL : BARRIER_GROUP + group;
        if (args.q_type == RDK_F32) {
            named_sync(barrier, threads); // other warps may still read the last ones
            narrow_queries<S, true, threads>(args, w, base, first, thread() % threads, q, factor);
        } else {
            barrier_wait(&state.queries_full[buffer.at], buffer.parity);
            if (S::fp8) narrow_queries<S, false, threads>(args, w, base, first, thread() % threads, q, factor);
        }
        fence_async();
        if (S::fp8 || args.q_type == RDK_F32) named_sync(barrier, threads);
    }
    __device__ __forceinline__ void release_queries() {
        __syncwarp();
        if (threadIdx.x % 32 == 0 && args.q_type != RDK_F32) barrier_arrive(&state.queries_empty[buffer.at]);
    }
    __device__ __forceinline__ void weigh(const row_pair &rows, float (&s)[S::keys / 2], int32_t tile,
                                          int32_t all_see, int32_t all_from) {
        if (args.softcap > 0) cap_scores<S::keys>(s, rows);
        if (tile * S::keys + S::keys - 1 > all_see || tile * S::keys < all_from)
            hide_scores<S::keys>(s, rows, tile * S::keys, args.window);
    }

    __device__ __forceinline__ void attend(const prefill_work &w) {
        row_base base = base_of(args, w);
        fetch_queries(w, base);
        int32_t row = (S::splits_dims ? 0 : group * 64) + thread() / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        row_pair rows = start_rows<S>(args, w, base, row, factors());
        int32_t all_see = __shfl_sync(0xffffffffu, rows.last[0], 0),
                all_from = args.window > 0 ? __shfl_sync(0xffffffffu, rows.last[1], 31) - args.window + 1 : 0;
        float o[S::out_dims / 2];
#pragma unroll
        for (int i = 0; i < S::out_dims / 2; i++) o[i] = 0.0f;
        if (w.tiles > 0)
            sum_tiles(w, rows, o, all_see, all_from);
        else
            release_queries();
        buffer.next();
        finish(w, base_of(args, w), row, rows, o);
    }
    __device__ __forceinline__ void sum_tiles(const prefill_work &w, row_pair &rows, float (&o)[S::out_dims / 2], int32_t all_see,
                                              int32_t all_from) {
        float s[S::keys / 2], keep[2];
        uint32_t weights[S::keys / 4];
        int32_t tile = w.tile, last = w.tile + w.tiles - 1;
        uint32_t at = wait_keys();
        wgmma_fence();
        start_scores<S>(s, q_at, at);
        wgmma_wait<0>();
        wgmma_pin(s);
        release(slot.at);
        slot.next();
        if (tile == last) release_queries();
        weigh(rows, s, tile, all_see, all_from);
        soften<S::keys>(s, rows, args.softcap, keep);
        pack_weights<S::fp8, S::keys>(s, weights);
#pragma unroll 1
        while (tile < last) {
            tile++;
            at = wait_keys();
            int32_t keys_slot = slot.at;
            wgmma_fence();
            start_scores<S>(s, q_at, at);
            slot.next();
            at = wait_values();
            start_values<S>(o, weights, at, 1);
            wgmma_wait<1>();
            wgmma_pin(s);
            release(keys_slot);
            if (tile == last) release_queries();
            weigh(rows, s, tile, all_see, all_from);
            soften<S::keys>(s, rows, args.softcap, keep);
            wgmma_wait<0>();
            wgmma_pin(o);
            release(slot.at);
            slot.next();
            if (__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) // a factor of 1 changes no bit
#pragma unroll
                for (int j = 0; j < S::out_dims / 2; j++) o[j] *= keep[j / 2 % 2];
            pack_weights<S::fp8, S::keys>(s, weights);
        }
        at = wait_values();
        int32_t end = (last + 1) * S::keys;
        if (!S::fp8 && end > w.kv_len) clear_values<S>(ring + slot.at * S::slot_bytes, w.kv_len - end + S::keys, thread());
        wgmma_fence();
        start_values<S>(o, weights, at, 1);
        wgmma_wait<0>();
        wgmma_pin(o);
        release(slot.at);
        slot.next();
    }
    __device__ __forceinline__ void finish(const prefill_work &w, const row_base &base, int32_t row, row_pair &rows,
                                           float (&o)[S::out_dims / 2]) {
        float factor[2], v_scale = S::fp8 && args.v_scale ? args.v_scale[w.kv_head] : 1.0f;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = rows.weight[r];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (args.sinks && w.row + row + 8 * r < w.rows) {
                float sink = args.sinks[place_of(args, base, row + 8 * r).head] * LOG2E;
                sum += sink == -INFINITY ? 0.0f : power_of_two(sink - rows.top[r]);
            }
            factor[r] = sum == 0.0f ? 0.0f : v_scale / sum;
        }
        store_rows<S>(args, w, base, row, S::splits_dims ? group * S::out_dims : 0, o, factor);
    }
    __device__ __forceinline__ void run() {
        ring_place<2> post;
        for (;; post.next()) {
            barrier_wait(&state.work_full[post.at], post.parity);
            const prefill_work &w = state.work[post.at]; // read again at the end: it would not fit in registers meanwhile
            if (w.seq < 0) return;
            attend(w);
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(&state.work_empty[post.at]);
        }
    }
};

template <class S> __device__ __forceinline__ void init_barriers(prefill_state &state) {
    constexpr int warps = S::consumers / 32, widening = S::fp8 ? WIDENING_WARPS : 0;
    for (int i = 0; i < S::slots; i++) {
        barrier_init(&state.full[i], S::fp8 ? widening : 1);
        barrier_init(&state.raw[i], 1);
        barrier_init(&state.empty[i], warps);
    }
    for (int i = 0; i < 2; i++) {
        barrier_init(&state.work_full[i], 1);
        barrier_init(&state.work_empty[i], warps + widening + 3);
        barrier_init(&state.queries_full[i], 96);
        barrier_init(&state.queries_empty[i], warps);
    }
    barrier_init_fence();
}

template <class S> __device__ __forceinline__ void prefill(const rdk_attn_prefill_sm90a_args &args) {
    extern __shared__ unsigned char shared[];
    unsigned char *ring = shared + (1024 - smem_address(shared) % 1024) % 1024, *queries = ring + S::slots * S::slot_bytes;
    prefill_state &state = *reinterpret_cast<prefill_state *>(queries + S::query_buffers * S::query_bytes);
    if (threadIdx.x == 0) {
        prefetch_map(args.k_map);
        prefetch_map(args.v_map);
        init_barriers<S>(state);
    }
    __syncthreads();
    wait_dependencies();
    if (threadIdx.x < 128) {
        registers_give<S::load_registers>();
        if (threadIdx.x < 32)
            load_all<S>(args, state, ring);
        else
            copy_queries<S>(args, state, queries);
    } else if (S::fp8 && threadIdx.x < 256) {
        registers_give<S::widen_registers>();
        widen_all<S>(state, ring);
    } else {
        registers_take<S::take_registers>();
        int32_t group = __shfl_sync(0xffffffffu, (threadIdx.x - S::first_consumer) / 128, 0);
        consumer<S>{args, state, ring, queries, group, {}, {}, 0}.run();
    }
}

// Before a call with more units than blocks.
extern "C" __global__ void rdk_attn_prefill_sm90a_begin(const __grid_constant__ rdk_attn_prefill_sm90a_args args) {
    wait_dependencies();
    if (threadIdx.x == 0) *args.taken = 0;
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
