// SPDX-License-Identifier: Apache-2.0
// The draw of one row by one block of 1024 threads, from the running sums of its bins (sm90a_sample.cu says how they come).
#ifndef RDK_SM90A_SAMPLE_CUH
#define RDK_SM90A_SAMPLE_CUH

#include "kernels/common/sm90a_ptx.cuh"
#include "kernels/elementwise/sm90a_args.h"

struct sample_row { // rd_sample_row
    float temperature, top_p, min_p;
    int32_t top_k;
    uint64_t seed, counter;
};

enum { TOPS_THREADS = 256, BINS = RDK_SAMPLE_BINS, LIST = 2048, KEY_BINS = 1024 };

struct row_words { // of one row in the workspace
    unsigned long long *tops; // [splits]: key of the slice's largest logit above the inverted id
    unsigned long long *mass;
    uint32_t *count, *done;
};
__device__ __forceinline__ row_words words_of(const rdk_sample_sm90a_args &args, int32_t row) {
    char *at = static_cast<char *>(args.words) + row * rdk_sample_row_bytes(args.splits);
    auto tops = reinterpret_cast<unsigned long long *>(at), mass = tops + (args.splits + 1) / 2 * 2;
    auto count = reinterpret_cast<uint32_t *>(mass + BINS);
    return {tops, mass, count, count + BINS};
}

// Keys order as logits do; 0 stands for what is never drawn: NaN and -inf. -0 counts as 0.
__device__ __forceinline__ uint32_t key_of(float logit) {
    if (!(logit > -INFINITY)) return 0;
    uint32_t bits = __float_as_uint(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

struct rule {
    float top, temperature, inverse, min_p, bins_per_unit; // inverse: 1 / temperature, rounded
    __device__ __forceinline__ uint32_t bin_of(float logit) const {
        return logit == top ? 0 : min((uint32_t)((top - logit) * bins_per_unit), BINS - 1u);
    }
    // False for a token that has no mass. The bin grows as the logit falls; a mass of 2^-35 is 24.3 temperatures from the top. What
    // min_p removes still counts for top_k.
    __device__ __forceinline__ bool measure(float logit, uint32_t &bin, uint64_t &mass) const {
        if (!(logit > -INFINITY)) return false;
        float distance = logit - top, q = distance * inverse; // the quotient, rounded once; NaN, no mass, where it overflows
        q = fmaf(fmaf(-q, temperature, distance), inverse, q);
        float weight = logit == top ? 1.0f : expf(q);
        uint64_t whole = (uint64_t)__float2ull_rn(weight * 0x1p34f);
        if (!whole) return false;
        bin = bin_of(logit);
        mass = weight >= min_p ? whole : 0;
        return true;
    }
};

struct tokens {
    const float *logits;
    int32_t vocab;
    rule rules;
    // f(logit, id) of every token, 32 logits in flight a thread.
    template <typename F> __device__ __forceinline__ void each(F f) const {
        int32_t head = min(vocab, (int32_t)(-(int64_t)((uint64_t)logits / 4) & 3)), vectors = (vocab - head) / 4;
        const float4 *from = reinterpret_cast<const float4 *>(logits + head);
        for (int32_t first = threadIdx.x; first < vectors; first += 8 * RDK_SAMPLE_THREADS) {
            float4 v[8];
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = first + i * RDK_SAMPLE_THREADS < vectors ? __ldcg(from + first + i * RDK_SAMPLE_THREADS)
                                                                : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int32_t id = head + (first + i * RDK_SAMPLE_THREADS) * 4;
                f(v[i].x, id), f(v[i].y, id + 1), f(v[i].z, id + 2), f(v[i].w, id + 3);
            }
        }
        int32_t rest = (int32_t)threadIdx.x < head ? (int32_t)threadIdx.x : vectors * 4 + (int32_t)threadIdx.x;
        if ((int32_t)threadIdx.x < vocab - vectors * 4) f(__ldcg(logits + rest), rest);
    }
};

struct draw_state {
    unsigned long long mass[BINS]; // running sums
    uint32_t count[BINS];
    union {
        unsigned long long list[LIST]; // key above inverted id: bins low .. high - 1, from the top
        struct {
            unsigned long long mass[KEY_BINS];
            uint32_t count[KEY_BINS];
        } keys;
    };
    unsigned long long scratch[33], through;
    uint32_t low, high, listed, key;
    int32_t bin, id;
};

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

// Sum of v over this thread and all before it.
__device__ __forceinline__ unsigned long long block_scan(unsigned long long v, draw_state &s) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        unsigned long long other = __shfl_up_sync(0xffffffffu, v, step);
        if (lane >= step) v += other;
    }
    __syncthreads();
    if (lane == 31) s.scratch[threadIdx.x / 32] = v;
    __syncthreads();
    unsigned long long warp = s.scratch[lane];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        unsigned long long other = __shfl_up_sync(0xffffffffu, warp, step);
        if (lane >= step) warp += other;
    }
    unsigned long long before = __shfl_sync(0xffffffffu, warp, (threadIdx.x / 32 + 31) % 32);
    return v + (threadIdx.x >= 32 ? before : 0);
}

// Philox4x32-10 (Salmon et al., SC 2011, section 3.3), as the host draws it: a multiple of 2^-53 in [0, 1).
__device__ inline double uniform53(uint64_t seed, uint64_t counter) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t next0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, next2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = next0, c2 = next2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (double)(((uint64_t)c1 << 32 | c0) >> 11) * 0x1p-53;
}

// ---- the list ------------------------------------------------------------------------------------------------------------
// Largest first. A bitonic network over `size` words, a power of two. Steps below 64 stay inside the 64 words of a warp.
__device__ inline void sort_list(unsigned long long *list, uint32_t size) {
    uint32_t before = 64;
    for (uint32_t span = 2; span <= size; span *= 2)
        for (uint32_t step = span / 2; step; before = step, step /= 2) {
            if (step >= 64 || before >= 64)
                __syncthreads();
            else
                __syncwarp();
            if (threadIdx.x >= size / 2) continue;
            uint32_t i = 2 * threadIdx.x - (threadIdx.x & (step - 1));
            unsigned long long a = list[i], b = list[i + step];
            if ((a < b) == ((i & span) == 0)) list[i] = b, list[i + step] = a;
        }
    __syncthreads();
}

// Lists bins from `low` on, as many as fit; none when `low` alone does not.
__device__ __noinline__ void gather(const tokens &all, draw_state &s, uint32_t low) {
    uint32_t before = low ? s.count[low - 1] : 0;
    __syncthreads();
    if (threadIdx.x == 0) s.low = s.high = low, s.listed = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < BINS; i += RDK_SAMPLE_THREADS)
        if (i >= low && s.count[i] - before <= LIST && (i == BINS - 1 || s.count[i + 1] - before > LIST)) s.high = i + 1;
    __syncthreads();
    uint32_t high = s.high;
    if (high == low) return;
    const rule rules = all.rules;
    // Logits of these bins, and a little more on both sides: two comparisons spare the rest.
    float least = rules.top - (float)(high + 1) / rules.bins_per_unit;
    float most = low ? rules.top - (float)(low - 1) / rules.bins_per_unit : INFINITY;
    all.each([&](float logit, int32_t id) {
        if (!(logit >= least && logit <= most)) return;
        uint32_t bin = rules.bin_of(logit);
        uint64_t mass;
        if (bin >= low && bin < high && rules.measure(logit, bin, mass))
            s.list[atomicAdd(&s.listed, 1u)] = (unsigned long long)key_of(logit) << 32 | (0xffffffffu - (uint32_t)id);
    });
    __syncthreads();
    uint32_t listed = s.listed, size = 2;
    while (size < listed) size *= 2;
    for (uint32_t i = listed + threadIdx.x; i < size; i += RDK_SAMPLE_THREADS) s.list[i] = 0;
    sort_list(s.list, size);
}

// ---- places ----------------------------------------------------------------------------------------------------------------
// What is looked for: the token with which the count, or the running mass, reaches the target, or exceeds it.
struct wanted {
    bool by_mass, exceed;
    double target;
    __device__ __forceinline__ bool met(unsigned long long running) const {
        return exceed ? (double)running > target : (double)running >= target;
    }
};

// In a listed bin. through: running mass at the token; by count, at the last token of the same logit.
__device__ __noinline__ void find_in_list(const tokens &all, draw_state &s, const wanted &w, uint32_t bin) {
    uint32_t before = bin ? s.count[bin - 1] : 0, n = s.count[bin] - before;
    const unsigned long long *list = s.list + (before - (s.low ? s.count[s.low - 1] : 0));
    unsigned long long mass[2] = {};
    uint32_t key[3] = {}, at = threadIdx.x * 2, nth = w.by_mass ? 0 : (uint32_t)w.target - 1 - before;
    for (uint32_t i = 0; i < 3 && at + i < n; i++) {
        key[i] = (uint32_t)(list[at + i] >> 32);
        uint32_t same_bin;
        uint64_t m;
        if (i < 2 && all.rules.measure(logit_of(key[i]), same_bin, m)) mass[i] = m;
    }
    unsigned long long running = (bin ? s.mass[bin - 1] : 0) + block_scan(mass[0] + mass[1], s) - mass[1];
    uint32_t key_of_nth = w.by_mass ? 0 : (uint32_t)(list[nth] >> 32);
    for (uint32_t i = 0; i < 2 && at + i < n; i++) {
        if (i) running += mass[1];
        bool here = w.by_mass ? w.met(running) && !(w.met(running - mass[i])) : key[i] == key_of_nth && key[i + 1] != key[i];
        if (!here) continue;
        s.through = running;
        s.id = (int32_t)(0xffffffffu - (uint32_t)list[at + i]);
    }
    __syncthreads();
}

// The id of the index-th token, by id, that has this key. Each thread counts a run of ids.
__device__ __noinline__ void find_id(const tokens &all, draw_state &s, uint32_t key, uint32_t index) {
    int32_t run = (all.vocab + RDK_SAMPLE_THREADS - 1) / RDK_SAMPLE_THREADS, begin = threadIdx.x * run;
    int32_t end = min(begin + run, all.vocab);
    uint32_t count = 0;
    for (int32_t i = begin; i < end; i++) count += key_of(__ldcg(all.logits + i)) == key;
    uint32_t before = (uint32_t)block_scan(count, s) - count;
    for (int32_t i = begin; i < end && before <= index; i++)
        if (key_of(__ldcg(all.logits + i)) == key && before++ == index) s.id = i;
    __syncthreads();
}

// In a bin of more tokens than the list holds: ten bits of the key at a time, a pass over the row each. Rare: many equal logits,
// or a temperature so high that all masses are alike.
__device__ __noinline__ void find_by_key(const tokens &all, draw_state &s, const wanted &w, uint32_t bin) {
    const rule rules = all.rules;
    uint32_t found = 0, fixed = 0, ties = 0;
    unsigned long long above = bin ? s.mass[bin - 1] : 0, above_count = bin ? s.count[bin - 1] : 0, each = 0;
    for (int shift = 22; shift >= 0; shift = shift == 2 ? 0 : shift ? shift - 10 : -1) {
        uint32_t width = shift ? 10 : 2, mask = (1u << width) - 1;
        __syncthreads();
        s.keys.mass[threadIdx.x] = s.keys.count[threadIdx.x] = 0;
        __syncthreads();
        all.each([&](float logit, int32_t) {
            uint32_t of, key = key_of(logit);
            uint64_t mass;
            if (rules.bin_of(logit) != bin || (key & fixed) != found || !rules.measure(logit, of, mass)) return;
            uint32_t same = __match_any_sync(__activemask(), key); // equal logits are added by one lane
            if (__ffs(same) - 1 != (int)threadIdx.x % 32) return;
            atomicAdd(&s.keys.mass[key >> shift & mask], (unsigned long long)mass * __popc(same));
            atomicAdd(&s.keys.count[key >> shift & mask], (uint32_t)__popc(same));
        });
        __syncthreads();
        uint32_t at = mask - threadIdx.x; // from the top
        bool valid = threadIdx.x <= mask;
        unsigned long long mass = valid ? s.keys.mass[at] : 0, count = valid ? s.keys.count[at] : 0;
        unsigned long long running = above + block_scan(mass, s), counted = above_count + block_scan(count, s);
        bool here = count && (w.by_mass ? w.met(running) && !w.met(running - mass) : w.met(counted) && !w.met(counted - count));
        if (here) s.key = found | at << shift, s.scratch[32] = running - mass, s.through = counted - count, s.listed = (uint32_t)count;
        __syncthreads();
        found = s.key, above = s.scratch[32], above_count = s.through, ties = s.listed;
        fixed |= mask << shift;
    }
    uint32_t of;
    uint64_t mass = 0;
    all.rules.measure(logit_of(found), of, mass);
    each = mass;
    double left = each ? (w.target - (double)above) / (double)each : 0.0; // tokens of this logit that it takes
    uint32_t index = w.by_mass ? (uint32_t)fmin(fmax(w.exceed ? floor(left) : ceil(left) - 1.0, 0.0), (double)(ties - 1)) : ties - 1;
    if (w.by_mass && w.exceed) find_id(all, s, found, index);
    if (threadIdx.x == 0) s.through = above + each * (index + 1), s.high = s.low; // the list is gone
    __syncthreads();
}

// False where the target lies beyond all tokens.
__device__ __noinline__ bool find(const tokens &all, draw_state &s, const wanted &w) {
    __syncthreads();
    if (threadIdx.x == 0) s.bin = -1;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < BINS; i += RDK_SAMPLE_THREADS) {
        unsigned long long before = i == 0 ? 0 : w.by_mass ? s.mass[i - 1] : s.count[i - 1], here = w.by_mass ? s.mass[i] : s.count[i];
        if (here > before && w.met(here) && (i == 0 || !w.met(before))) s.bin = (int32_t)i;
    }
    __syncthreads();
    int32_t bin = s.bin;
    if (bin < 0) return false;
    if (bin < (int32_t)s.low || bin >= (int32_t)s.high) gather(all, s, (uint32_t)bin);
    if (bin < (int32_t)s.high)
        find_in_list(all, s, w, (uint32_t)bin);
    else
        find_by_key(all, s, w, (uint32_t)bin);
    return true;
}

// -1 for the top token.
__device__ inline int32_t draw_token(const tokens &all, const row_words &row, draw_state &s, const sample_row &p) {
    int32_t first = threadIdx.x * 2;
    ulonglong2 mass = __ldcg(reinterpret_cast<const ulonglong2 *>(row.mass) + threadIdx.x);
    uint2 count = __ldcg(reinterpret_cast<const uint2 *>(row.count) + threadIdx.x);
    s.mass[first + 1] = block_scan(mass.x + mass.y, s);
    s.mass[first] = s.mass[first + 1] - mass.y;
    s.count[first + 1] = (uint32_t)block_scan(count.x + count.y, s);
    s.count[first] = s.count[first + 1] - count.y;
    if (threadIdx.x == 0) s.low = s.high = 0;
    __syncthreads();
    gather(all, s, 0);
    unsigned long long kept = s.mass[BINS - 1];
    if (p.top_k > 0 && p.top_k < all.vocab && find(all, s, {false, false, (double)p.top_k})) kept = s.through;
    if (p.top_p < 1.0f && find(all, s, {true, false, fmax((double)p.top_p * (double)kept, 1.0)})) kept = s.through;
    bool drawn = find(all, s, {true, true, uniform53(p.seed, p.counter) * (double)kept});
    return drawn ? s.id : -1;
}

#endif // RDK_SM90A_SAMPLE_CUH
