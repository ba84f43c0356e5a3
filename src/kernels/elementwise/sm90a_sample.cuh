// SPDX-License-Identifier: Apache-2.0
// What the sampler's cluster of a row works with: masses of tokens, a block's slice of the row, sums over bins, a sorted list.
#ifndef RDK_SM90A_SAMPLE_CUH
#define RDK_SM90A_SAMPLE_CUH

#include "kernels/common/sm90a_ptx.cuh"
#include "kernels/elementwise/sm90a_args.h"

struct sample_row { // rd_sample_row
    float temperature, top_p, min_p;
    int32_t top_k;
    uint64_t seed, counter;
};

typedef unsigned long long word64;
enum { THREADS = RDK_SAMPLE_THREADS, BLOCKS = RDK_SAMPLE_BLOCKS, WARPS = THREADS / 32, BINS = 2048, LIST = 2048, INTERVALS = 3 };

// Keys order as logits do; 0 stands for what is never drawn: NaN and -inf. -0 counts as 0.
__device__ __forceinline__ uint32_t key_of(float logit) {
    if (!(logit > -INFINITY)) return 0;
    uint32_t bits = __float_as_uint(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
// Orders tokens: the larger logit, then the lower id.
__device__ __forceinline__ word64 word_of(float logit, int32_t id) {
    return (word64)key_of(logit) << 32 | (0xffffffffu - (uint32_t)id);
}
__device__ __forceinline__ uint32_t key_of_word(word64 word) {
    return (uint32_t)(word >> 32);
}
__device__ __forceinline__ int32_t id_of_word(word64 word) {
    return (int32_t)(0xffffffffu - (uint32_t)word);
}

struct rule {
    float top, temperature, inverse, min_p, bins_per_unit; // inverse: 1 / temperature, rounded
    __device__ __forceinline__ uint32_t bin_of(float logit) const {
        return logit == top ? 0 : min((uint32_t)((top - logit) * bins_per_unit), BINS - 1u);
    }
    // False for a token that has no mass. The bin grows as the logit falls; a mass of 2^-35 is 24.3 temperatures from the top. What
    // min_p removes still counts for top_k.
    __device__ __forceinline__ bool measure(float logit, uint32_t &bin, uint64_t &mass) const {
        // The quotient, rounded once. NaN, which has no mass, where it overflows and for NaN and -inf.
        float distance = logit - top, q = distance * inverse;
        q = fmaf(fmaf(-q, temperature, distance), inverse, q);
        float weight = logit == top ? 1.0f : expf(q), whole = weight * 0x1p34f;
        bin = min((uint32_t)(-distance * bins_per_unit), BINS - 1u); // as bin_of: inf - inf is NaN, and NaN is 0
        uint32_t high = (uint32_t)(whole * 0x1p-32f), low = __float2uint_rn(fmaf(-(float)high, 0x1p32f, whole)); // exact from 2^24 on
        mass = weight >= min_p ? (uint64_t)high << 32 | low : 0;
        return whole > 0.5f;
    }
};

// The same where few tokens are measured: a row is drawn from by code that no multiprocessor has at hand, so less of it is quicker.
enum : word64 { REMOVED = 1ull << 40 }; // by min_p
__device__ __noinline__ word64 measure_one(rule rules, float logit) {
    uint32_t bin;
    uint64_t mass;
    return rules.measure(logit, bin, mass) ? mass ? mass : REMOVED : 0;
}

struct row_slice { // a block's share of a row: ids first .. first + count - 1
    const float *logits, *held;
    int32_t first, count, kept; // `kept` of them in shared memory
    rule rules;
    __device__ __forceinline__ float at(int32_t i) const {
        return i < kept ? held[i] : i < count ? __ldcg(logits + i) : -INFINITY;
    }
    // f(logit, id) by whole warps; past the end the logit is -inf.
    template <int UNROLL, typename F> __device__ __forceinline__ void each(F f) const {
#pragma unroll UNROLL
        for (int32_t base = 0; base < count; base += THREADS) f(at(base + threadIdx.x), first + base + (int32_t)threadIdx.x);
    }
};

// What is looked for: the token with which the count, or the running mass, reaches the target, or exceeds it.
struct wanted {
    bool by_mass, exceed;
    double target;
    __device__ __forceinline__ bool met(word64 running) const {
        return exceed ? (double)running > target : (double)running >= target;
    }
};

struct bin_parts { // of one block; a mass is two halves, the carry goes into the upper one by hand
    uint32_t count[BINS], low[BINS], high[BINS];
};
struct running_sums { // of the row
    word64 mass[BINS];
    uint32_t count[BINS];
};

struct bin_range {
    uint32_t low, high; // high < low: none
};
struct bin_ranges {
    bin_range of[INTERVALS];
    uint32_t first, last;
    __device__ __forceinline__ bool has(uint32_t bin) const {
        bool in = false;
#pragma unroll
        for (int i = 0; i < INTERVALS; i++) in = in || (bin >= of[i].low && bin <= of[i].high);
        return in;
    }
};

struct sample_shared {
    word64 tops[BLOCKS * WARPS]; // of every warp of the cluster
    bin_parts part;
    running_sums bins;
    union {
        running_sums keys;
        word64 list[LIST];
    };
    word64 scratch[WARPS], kept[2], above;
    uint64_t arrived[3]; // barriers: tops, numbers listed, the list
    uint32_t listed[BLOCKS], own, key, above_count, ties;
    int32_t at, second, id;
};
static_assert(sizeof(sample_shared) <= RDK_SAMPLE_SHARED_BYTES, "the slice begins behind this");

template <typename T> __device__ __forceinline__ T *of_block(T *place, uint32_t rank) { // the same place in another block of the cluster
    T *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(place), "r"(rank));
    return there;
}

__device__ __forceinline__ word64 warp_top(word64 v) {
#pragma unroll
    for (int step = 16; step; step /= 2) {
        word64 other = __shfl_xor_sync(0xffffffffu, v, step);
        v = other > v ? other : v;
    }
    return v;
}

// Sum of v over this thread and all before it.
__device__ __noinline__ word64 block_scan(word64 v, sample_shared &s) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        word64 other = __shfl_up_sync(0xffffffffu, v, step);
        if (lane >= step) v += other;
    }
    __syncthreads();
    if (lane == 31) s.scratch[threadIdx.x / 32] = v;
    __syncthreads();
    word64 warp = s.scratch[lane];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        word64 other = __shfl_up_sync(0xffffffffu, warp, step);
        if (lane >= step) warp += other;
    }
    word64 before = __shfl_sync(0xffffffffu, warp, (threadIdx.x / 32 + 31) % 32);
    return v + (threadIdx.x >= 32 ? before : 0);
}

// Philox4x32-10 (Salmon et al., SC 2011, section 3.3), as the host draws it: a multiple of 2^-53 in [0, 1).
__device__ inline double uniform53(uint64_t seed, uint64_t counter) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll 1
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t next0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, next2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = next0, c2 = next2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (double)(((uint64_t)c1 << 32 | c0) >> 11) * 0x1p-53;
}

// ---- sums over bins --------------------------------------------------------------------------------------------------------
__device__ __forceinline__ void clear(bin_parts &part) {
    for (int i = threadIdx.x; i < BINS; i += THREADS) part.count[i] = part.low[i] = part.high[i] = 0;
}

// By whole warps. A warp whose tokens share a bin, as in a row of equal logits, adds them up first.
template <bool COUNT> __device__ __forceinline__ void add(bin_parts &part, bool counts, uint32_t bin, uint64_t mass) {
    uint32_t first = __shfl_sync(0xffffffffu, bin, 0), tokens = 1;
    if (__all_sync(0xffffffffu, counts && bin == first)) {
        uint32_t low = __reduce_add_sync(0xffffffffu, (uint32_t)mass & 0x1ffff), high = __reduce_add_sync(0xffffffffu, (uint32_t)(mass >> 17));
        mass = ((uint64_t)high << 17) + low;
        tokens = 32;
        counts = threadIdx.x % 32 == 0;
    }
    if (!counts) return;
    if (COUNT) atomicAdd(&part.count[bin], tokens);
    uint32_t low = (uint32_t)mass, before = low ? atomicAdd(&part.low[bin], low) : 0;
    uint32_t high = (uint32_t)(mass >> 32) + (before + low < before);
    if (high) atomicAdd(&part.high[bin], high);
}

// The parts of all blocks into `sums` of every block, as running sums that every thread may read. All blocks of the cluster call it
// together.
__device__ __noinline__ void collect(sample_shared &s, running_sums &sums) {
    enum { SHARE = BINS / BLOCKS, HELPERS = THREADS / SHARE }; // four threads a bin, each with two blocks
    static_assert(HELPERS == 4 && BLOCKS == 8, "two shuffles add them up");
    cluster_sync();
    const uint32_t bin = cluster_rank() * SHARE + threadIdx.x / HELPERS, rank = threadIdx.x % HELPERS * 2;
    const bin_parts *first = of_block(&s.part, rank), *other = of_block(&s.part, rank + 1);
    uint32_t count = first->count[bin] + other->count[bin];
    word64 mass = ((word64)first->high[bin] << 32) + first->low[bin] + ((word64)other->high[bin] << 32) + other->low[bin];
#pragma unroll
    for (int step = 1; step < HELPERS; step *= 2) {
        count += __shfl_xor_sync(0xffffffffu, count, step);
        mass += __shfl_xor_sync(0xffffffffu, mass, step);
    }
    for (uint32_t i = rank; i < rank + 2; i++) {
        running_sums *to = of_block(&sums, i);
        to->mass[bin] = mass;
        to->count[bin] = count;
    }
    cluster_sync();
    uint32_t at = threadIdx.x * 2, second = sums.count[at + 1], counts = sums.count[at] + second;
    word64 second_mass = sums.mass[at + 1], masses = sums.mass[at] + second_mass;
    masses = block_scan(masses, s), counts = (uint32_t)block_scan(counts, s);
    sums.mass[at] = masses - second_mass, sums.mass[at + 1] = masses;
    sums.count[at] = counts - second, sums.count[at + 1] = counts;
    __syncthreads();
}

// The bins in which the sum, from `above` on, meets each of two targets, or -1.
__device__ __noinline__ int2 locate(sample_shared &s, const running_sums &sums, bool by_mass, bool exceed, double target, double second,
                                    word64 above) {
    __syncthreads();
    if (threadIdx.x == 0) s.at = s.second = -1;
    __syncthreads();
    uint32_t i = threadIdx.x * 2;
    word64 running = above + (i == 0 ? 0 : by_mass ? sums.mass[i - 1] : sums.count[i - 1]);
    for (int n = 0; n < 2; n++, i++) {
        word64 before = running;
        running = above + (by_mass ? sums.mass[i] : sums.count[i]);
        if (running == before) continue;
        const wanted w = {by_mass, exceed, target}, other = {by_mass, exceed, second};
        if (w.met(running) && !w.met(before)) s.at = (int32_t)i;
        if (other.met(running) && !other.met(before)) s.second = (int32_t)i;
    }
    __syncthreads();
    return make_int2(s.at, s.second);
}

// ---- the list ------------------------------------------------------------------------------------------------------------
// Largest first, in `list` or in `other`: where the result is. Few words count how many are larger; many go through a bitonic
// network, whose steps below 64 stay inside the 64 words of a warp.
__device__ inline word64 *sort_list(word64 *list, word64 *other, uint32_t n) {
    const uint32_t size = n <= 32 ? 32 : 1u << (32 - __clz(n - 1)); // a power of two
    for (uint32_t i = n + threadIdx.x; i < size; i += THREADS) list[i] = 0;
    __syncthreads();
    if (n <= 128) {
        const uint32_t shift = 10 - (31 - __clz(size)), parts = 1u << shift, i = threadIdx.x >> shift; // threads a word, at most 32
        const word64 mine = list[i];
        uint32_t larger = 0;
        for (uint32_t j = threadIdx.x & (parts - 1); j < n; j += parts) larger += list[j] > mine;
        for (uint32_t step = parts / 2; step; step /= 2) larger += __shfl_xor_sync(0xffffffffu, larger, step);
        if (i < n && (threadIdx.x & (parts - 1)) == 0) other[larger] = mine;
        __syncthreads();
        return other;
    }
    uint32_t before = 64;
    for (uint32_t span = 2; span <= size; span *= 2)
        for (uint32_t step = span / 2; step; before = step, step /= 2) {
            if (step >= 64 || before >= 64)
                __syncthreads();
            else
                __syncwarp();
            if (threadIdx.x >= size / 2) continue;
            uint32_t i = 2 * threadIdx.x - (threadIdx.x & (step - 1));
            word64 a = list[i], b = list[i + step];
            if ((a < b) == ((i & span) == 0)) list[i] = b, list[i + step] = a;
        }
    __syncthreads();
    return list;
}

// Lists the tokens of these bins that lie in this block's slice, with a mass or not, as many as fit; s.own says how many. The loop is that
// of load_slice: a warp whose largest token is too small has none.
__device__ __forceinline__ void gather_own(const row_slice &slice, sample_shared &s, const bin_ranges &ranges) {
    const rule rules = slice.rules;
    // Logits of these bins, and a little more on both sides: two comparisons spare the rest.
    const float least = ranges.last >= BINS - 1 ? -INFINITY : rules.top - (float)(ranges.last + 2) / rules.bins_per_unit;
    const float most = ranges.first ? rules.top - (float)(ranges.first - 1) / rules.bins_per_unit : INFINITY;
    const uint32_t before = (1u << threadIdx.x % 32) - 1;
    if (logit_of(key_of_word(s.tops[cluster_rank() * WARPS + threadIdx.x / 32])) >= least)
#pragma unroll 1
        for (int32_t base = 0; base * 4 < slice.count; base += THREADS) {
            int32_t i = (base + (int32_t)threadIdx.x) * 4;
            float4 x = i + 3 < slice.kept ? *reinterpret_cast<const float4 *>(slice.held + i)
                                          : make_float4(slice.at(i), slice.at(i + 1), slice.at(i + 2), slice.at(i + 3));
            const float v[4] = {x.x, x.y, x.z, x.w};
            uint32_t wanted = 0;
#pragma unroll
            for (int c = 0; c < 4; c++) wanted |= (uint32_t)(v[c] >= least && v[c] <= most) << c;
            while (__any_sync(0xffffffffu, wanted != 0)) { // the next of each lane
                const int c = __ffs(wanted) - 1;
                const float logit = c == 0 ? v[0] : c == 1 ? v[1] : c == 2 ? v[2] : v[3];
                const bool listed = wanted && ranges.has(rules.bin_of(logit));
                wanted &= wanted - 1;
                uint32_t lanes = __ballot_sync(0xffffffffu, listed), at = 0;
                if (threadIdx.x % 32 == 0 && lanes) at = atomicAdd(&s.own, (uint32_t)__popc(lanes));
                at = __shfl_sync(0xffffffffu, at, 0) + __popc(lanes & before);
                if (listed && at < LIST) s.list[at] = word_of(logit, slice.first + i + c);
            }
        }
}

// The same of all slices, in the list of the first block; returns how many there are. More than LIST: nothing is listed. parity:
// of the calls so far.
__device__ __forceinline__ uint32_t gather(const row_slice &slice, sample_shared &s, const bin_ranges &ranges, uint32_t parity) {
    const uint32_t rank = cluster_rank();
    if (threadIdx.x == 0) {
        s.own = 0;
        barrier_expect(&s.arrived[1], BLOCKS * 4);
    }
    __syncthreads();
    gather_own(slice, s, ranges);
    __syncthreads();
    const uint32_t own = s.own;
    if (threadIdx.x < BLOCKS)
        send_u32(cluster_address(&s.listed[rank], threadIdx.x), min(own, LIST + 1u), cluster_address(&s.arrived[1], threadIdx.x));
    barrier_wait(&s.arrived[1], parity);
    uint32_t total = 0, before = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        if (i == rank) before = total;
        total += s.listed[i];
    }
    if (total > LIST) return total;
    if (rank) { // and may end
        for (uint32_t i = threadIdx.x; i < own; i += THREADS)
            send_u64(cluster_address(&s.list[before + i], 0), s.list[i], cluster_address(&s.arrived[2], 0));
    } else {
        if (threadIdx.x == 0) barrier_expect(&s.arrived[2], (total - own) * 8);
        barrier_wait(&s.arrived[2], 0);
    }
    return total;
}

#endif // RDK_SM90A_SAMPLE_CUH
