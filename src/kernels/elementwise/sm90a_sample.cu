// SPDX-License-Identifier: Apache-2.0
// sample on Hopper, in two launches: the largest logit of each slice of a row, then a block a row.
//
// A row is never sorted. Logits become 32-bit keys of the same order, and a wanted place in canonical order (the k-th largest,
// the token at which the mass reaches a target) is found by three passes over the row, each a histogram of 11 bits of the key
// within the bin of the pass before. A token's mass exp((l - max) / temperature) is rounded to a multiple of 2^-34 and summed as
// an integer, so that sums are exact and no order of threads can change the token.
#include "kernels/common/sm90a_ptx.cuh"
#include "kernels/elementwise/sm90a_args.h"

struct sample_row { // rd_sample_row
    float temperature, top_p, min_p;
    int32_t top_k;
    uint64_t seed, counter;
};

enum { TOPS_THREADS = 256, BINS = 2048, LIST = 2880 };

// Keys order as logits do; 0 stands for what is never drawn: NaN and -inf. -0 counts as 0.
__device__ __forceinline__ uint32_t key_of(float logit) {
    if (!(logit > -INFINITY)) return 0;
    uint32_t bits = __float_as_uint(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ unsigned long long warp_top(unsigned long long v) {
#pragma unroll
    for (int step = 16; step; step /= 2) {
        unsigned long long other = __shfl_xor_sync(0xffffffffu, v, step);
        v = other > v ? other : v;
    }
    return v;
}
__device__ __forceinline__ unsigned long long block_top(unsigned long long v, unsigned long long *scratch) {
    v = warp_top(v);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : 0;
    return warp_top(v);
}

extern "C" __global__ void __launch_bounds__(TOPS_THREADS)
    rdk_sample_sm90a_tops(const __grid_constant__ rdk_sample_sm90a_args args) {
    __shared__ unsigned long long scratch[32];
    launch_dependents();
    wait_dependencies();
    const float *logits = args.logits + blockIdx.y * args.logits_stride;
    int32_t begin = blockIdx.x * RDK_SAMPLE_SPLIT_ELEMS, end = min(begin + RDK_SAMPLE_SPLIT_ELEMS, args.vocab);
    unsigned long long top = 0;
#pragma unroll 4
    for (int32_t i = begin + threadIdx.x; i < end; i += TOPS_THREADS) {
        uint32_t key = key_of(__ldcg(logits + i));
        unsigned long long word = (unsigned long long)key << 32 | (0xffffffffu - (uint32_t)i); // the lower id wins a tie
        top = key && word > top ? word : top;
    }
    top = block_top(top, scratch);
    if (threadIdx.x == 0) static_cast<unsigned long long *>(args.tops)[blockIdx.y * args.splits + blockIdx.x] = top;
}

// Philox4x32-10 (Salmon et al., SC 2011, section 3.3), as the host draws it: a multiple of 2^-53 in [0, 1).
__device__ double uniform53(uint64_t seed, uint64_t counter) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t next0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, next2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = next0, c2 = next2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (double)(((uint64_t)c1 << 32 | c0) >> 11) * 0x1p-53;
}

__device__ __forceinline__ float logit_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// The tokens that a pass walks: the whole row, or those near the top, gathered once into shared memory.
struct candidates {
    const float *logits;
    const unsigned long long *list; // key above id; NULL = the row
    int32_t count;
    float top, temperature, min_p;
    uint32_t bound; // keys below are out
    __device__ __forceinline__ uint32_t key(int32_t i, int32_t &id) const {
        if (i >= count) return 0;
        id = list ? (int32_t)(uint32_t)list[i] : i;
        return list ? (uint32_t)(list[i] >> 32) : key_of(__ldcg(logits + i));
    }
    __device__ __forceinline__ uint64_t mass_of(uint32_t &k) const {
        float logit = logit_of(k);
        float weight = k == 0 ? 0.0f : logit == top ? 1.0f : expf((logit - top) / temperature); // top = inf: 1 or 0
        if (k == 0 || k < bound || !(weight >= min_p)) {
            k = 0;
            return 0;
        }
        return (uint64_t)__float2ull_rn(weight * 0x1p34f);
    }
};

// f(key, id) of every token, eight loads of the row in flight a thread.
template <typename F> __device__ __forceinline__ void each_token(const candidates &c, F f) {
    for (int32_t first = threadIdx.x; first < c.count; first += 8 * blockDim.x) {
        uint32_t key[8];
        int32_t id[8] = {};
#pragma unroll
        for (int i = 0; i < 8; i++) key[i] = c.key(first + i * blockDim.x, id[i]);
#pragma unroll
        for (int i = 0; i < 8; i++) f(key[i], id[i]);
    }
}

struct place {
    uint32_t key;   // of the wanted token
    uint64_t above; // measure of all larger keys
    uint64_t here;  // measure of this key's tokens together
    uint32_t ties;
};

struct bins {
    unsigned long long measure[BINS];
    uint32_t count[BINS];
    unsigned long long scratch[32], above, here;
    uint32_t chosen, ties;
};

// The bin, from the top, in which `above` plus the running measure meets the target; else the last one that holds anything. One
// warp: each lane sums `chunk` bins, the lane in which it happens walks them.
__device__ void choose_bin(bins &b, int chunk, uint64_t above, bool exceed, double target) {
    int lane = threadIdx.x % 32, high = (32 - lane) * chunk - 1;
    unsigned long long sum = 0, through;
    bool any = false;
    for (int j = 0; j < chunk; j++) { // each lane starts elsewhere, so that no two meet in a bank
        int i = high - (j + lane) % chunk;
        sum += b.measure[i];
        any = any || b.count[i];
    }
    through = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        unsigned long long other = __shfl_up_sync(0xffffffffu, through, step);
        if (lane >= step) through += other;
    }
    double reached = (double)(above + through);
    uint32_t met = __ballot_sync(0xffffffffu, any && (exceed ? reached > target : reached >= target));
    uint32_t filled = __ballot_sync(0xffffffffu, any);
    int chosen = met ? __ffs(met) - 1 : 31 - __clz(filled | 1);
    if (lane != chosen) return;
    above += through - sum;
    int last = high;
    uint64_t last_above = above;
    for (int i = high; i > high - chunk; i--) {
        if (!b.count[i]) continue;
        last = i;
        last_above = above;
        above += b.measure[i];
        if (exceed ? (double)above > target : (double)above >= target) break;
    }
    b.chosen = (uint32_t)last;
    b.above = last_above;
    b.here = b.measure[last];
    b.ties = b.count[last];
}

// The first token, in canonical order, at which the running measure (tokens, or mass) reaches the target, or exceeds it.
// At most `total` is there: a target beyond it gives the last token that has any.
__device__ place find_place(const candidates &c, bins &b, bool by_mass, bool exceed, double target) {
    place found = {0, 0, 0, 0};
    uint32_t fixed = 0;
    for (int shift = 21, width = 11; width; shift -= shift == 21 ? 11 : 10, width = shift < 0 ? 0 : shift ? 11 : 10) {
        __syncthreads();
        for (int i = threadIdx.x; i < BINS; i += blockDim.x) b.measure[i] = b.count[i] = 0;
        __syncthreads();
        each_token(c, [&](uint32_t key, int32_t) {
            uint64_t mass = c.mass_of(key);
            if (!key || (key & fixed) != found.key) return;
            uint32_t bin = key >> shift & ((1u << width) - 1);
            atomicAdd(&b.measure[bin], by_mass ? mass : 1);
            atomicAdd(&b.count[bin], 1u);
        });
        __syncthreads();
        if (threadIdx.x < 32) choose_bin(b, (1 << width) / 32, found.above, exceed, target);
        __syncthreads();
        found.key |= b.chosen << shift;
        fixed |= ((1u << width) - 1) << shift;
        found.above = b.above;
        found.here = b.here;
        found.ties = b.ties;
    }
    return found;
}

__device__ uint64_t total_mass(const candidates &c, bins &b) {
    uint64_t sum = 0;
    each_token(c, [&](uint32_t key, int32_t) { sum += c.mass_of(key); });
#pragma unroll
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) b.scratch[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = b.scratch[threadIdx.x % 32];
#pragma unroll
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

// The id of the index-th token, by id, that has this key. A tie is rare: each of its tokens counts those below it.
__device__ void write_id(const candidates &c, uint32_t wanted, uint32_t index, uint32_t ties, int32_t *to) {
    each_token(c, [&](uint32_t key, int32_t id) {
        if (key != wanted) return;
        uint32_t rank = 0;
        for (int32_t j = 0, other = 0; ties > 1 && j < c.count; j++) rank += c.key(j, other) == wanted && other < id;
        if (rank == index) *to = id;
    });
}

// Gathers the largest keys into `list`, whole bins of the upper 11 bits, as many as fit. Nearly always the token is among them.
__device__ int32_t gather(const candidates &row, bins &b, unsigned long long *list) {
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) b.count[i] = 0;
    __syncthreads();
    each_token(row, [&](uint32_t key, int32_t) {
        if (key) atomicAdd(&b.count[key >> 21], 1u);
    });
    __syncthreads();
    if (threadIdx.x < 32) { // lane l sums 64 bins from the top; the first bin that does not fit ends the list
        int lane = threadIdx.x, high = (32 - lane) * (BINS / 32) - 1;
        uint32_t sum = 0, before;
        for (int j = 0; j < BINS / 32; j++) sum += b.count[high - (j + lane) % (BINS / 32)];
        before = sum;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            uint32_t other = __shfl_up_sync(0xffffffffu, before, step);
            if (lane >= step) before += other;
        }
        uint32_t over = __ballot_sync(0xffffffffu, before > LIST);
        if (over == 0 && lane == 0) b.chosen = 0;
        if (over && lane == __ffs(over) - 1) {
            uint32_t held = before - sum;
            int i = high;
            while (held + b.count[i] <= LIST) held += b.count[i--];
            b.chosen = (uint32_t)(i + 1);
        }
    }
    if (threadIdx.x == 0) b.ties = 0;
    __syncthreads();
    uint32_t bound = b.chosen;
    each_token(row, [&](uint32_t key, int32_t id) {
        if (key && key >> 21 >= bound) list[atomicAdd(&b.ties, 1u)] = (unsigned long long)key << 32 | (uint32_t)id;
    });
    __syncthreads();
    int32_t count = (int32_t)b.ties;
    __syncthreads();
    return count;
}

// One draw over `c`, whose row has `all` mass; *to is written unless the list ends too early.
__device__ bool draw(candidates c, bins &b, const sample_row &p, int32_t vocab, uint64_t all, int32_t *to) {
    bool limited = p.top_k > 0 && p.top_k < vocab;
    if (limited) {
        if (c.list && c.count < p.top_k) return false;
        candidates unlimited = c;
        unlimited.min_p = 0.0f;
        c.bound = find_place(unlimited, b, false, false, (double)p.top_k).key;
    }
    uint64_t here = total_mass(c, b), mass = limited ? here : all;
    if (p.top_p < 1.0f) {
        double target = (double)p.top_p * (double)mass;
        if ((double)here < target) return false;
        place at = find_place(c, b, true, false, target);
        uint64_t each = at.here / max(at.ties, 1u), need = 1;
        if (each) need = (uint64_t)fmax(1.0, ceil((target - (double)at.above) / (double)each));
        mass = at.above + each * (need < at.ties ? need : at.ties);
    }
    double target = uniform53(p.seed, p.counter) * (double)mass;
    if (c.list && !((double)here > target)) return false;
    place at = find_place(c, b, true, true, target);
    uint64_t each = at.here / max(at.ties, 1u), index = each ? (uint64_t)fmax(0.0, floor((target - (double)at.above) / (double)each)) : 0;
    write_id(c, at.key, (uint32_t)(index < at.ties ? index : at.ties - 1), at.ties, to);
    return true;
}

extern "C" __global__ void __launch_bounds__(RDK_SAMPLE_THREADS)
    rdk_sample_sm90a_draw(const __grid_constant__ rdk_sample_sm90a_args args) {
    __shared__ bins b;
    __shared__ unsigned long long list[LIST];
    launch_dependents();
    wait_dependencies();
    int32_t row = blockIdx.x;
    const unsigned long long *tops = static_cast<const unsigned long long *>(args.tops) + row * args.splits;
    unsigned long long top = 0;
    for (int32_t i = threadIdx.x; i < args.splits; i += blockDim.x) {
        unsigned long long word = __ldcg(tops + i);
        top = word > top ? word : top;
    }
    top = block_top(top, b.scratch);
    const sample_row p = static_cast<const sample_row *>(args.params)[row];
    int32_t top_id = (int32_t)(0xffffffffu - (uint32_t)top);
    if (top == 0 || p.temperature == 0.0f) {
        if (threadIdx.x == 0) args.ids[row] = top ? top_id : -1;
        return;
    }
    const float *logits = args.logits + row * args.logits_stride;
    candidates row_all = {logits, nullptr, args.vocab, __ldcg(logits + top_id), p.temperature, p.min_p, 1};
    uint64_t all = total_mass(row_all, b);
    candidates near = row_all;
    near.list = list;
    near.count = gather(row_all, b, list);
    if (near.count && draw(near, b, p, args.vocab, all, args.ids + row)) return;
    draw(row_all, b, p, args.vocab, all, args.ids + row);
}
