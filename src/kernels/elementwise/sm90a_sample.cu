// SPDX-License-Identifier: Apache-2.0
// sample on Hopper, in one launch: a cluster of eight blocks a row, each with an eighth of the row in its shared memory.
//
// A token's mass exp((l - max) / temperature) is rounded to a multiple of 2^-34 and summed as an integer, so that sums are exact
// and no order of threads can change the token. Tokens whose mass rounds to zero can neither be drawn nor move a bound and stay
// out. A row is never sorted. With a small top_k the largest logits of warps bound the k-th one from below, and only what is not
// below that bound is listed. Else masses are added up in bins of the distance from the top, and only bins in which top_k, top_p
// and the draw can fall are listed. Where too many tokens share such a bin, the wanted key is found digit by digit.
#include "kernels/elementwise/sm90a_sample.cuh"

// Brings the slice and returns this thread's largest token: four neighbours at 4 t, the next at 4 (THREADS + t), and so on.
__device__ __forceinline__ word64 load_slice(const row_slice &slice, float *held) {
    float best = -INFINITY;
    int32_t at = 0, vectors = (uint64_t)slice.logits % 16 == 0 ? slice.kept / 4 : 0;
    auto take = [&](float v, int32_t i) {
        if (v > best) best = v, at = i; // the lower id wins a tie
    };
    enum { FLIGHT = 6 }; // loads a thread: 196608 logits a row at once
    for (int32_t first = threadIdx.x; first < vectors; first += FLIGHT * THREADS) {
        float4 x[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; i++)
            if (first + i * THREADS < vectors) x[i] = __ldcg(reinterpret_cast<const float4 *>(slice.logits) + first + i * THREADS);
#pragma unroll
        for (int i = 0; i < FLIGHT; i++) {
            int32_t v = first + i * THREADS;
            if (v >= vectors) break;
            reinterpret_cast<float4 *>(held)[v] = x[i];
            take(x[i].x, 4 * v), take(x[i].y, 4 * v + 1), take(x[i].z, 4 * v + 2), take(x[i].w, 4 * v + 3);
        }
    }
#pragma unroll 1
    for (int32_t v = threadIdx.x; v * 4 < slice.count; v += THREADS) {
        if (v < vectors) continue;
        float x[4];
#pragma unroll
        for (int c = 0; c < 4; c++) x[c] = v * 4 + c < slice.count ? __ldcg(slice.logits + v * 4 + c) : -INFINITY;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (v * 4 + c < slice.kept) held[v * 4 + c] = x[c];
            take(x[c], v * 4 + c);
        }
    }
    return best > -INFINITY ? word_of(best, slice.first + at) : 0;
}

// ---- a small top_k --------------------------------------------------------------------------------------------------------
// The first `bins` bins hold at least k tokens, where k warps of the cluster have one there; 0 where fewer have any with a mass.
__device__ __forceinline__ uint32_t bins_of_warps(sample_shared &s, const rule &rules, int32_t k) {
    if (threadIdx.x < BLOCKS * WARPS) {
        float logit = logit_of(key_of_word(s.tops[threadIdx.x]));
        if (measure_one(rules, logit)) atomicAdd(&s.part.count[rules.bin_of(logit)], 1u);
    }
    if (threadIdx.x == 0) s.at = -1;
    __syncthreads();
    uint32_t at = threadIdx.x * 2, first = s.part.count[at], second = s.part.count[at + 1], running = (uint32_t)block_scan(first + second, s);
    if (running >= (uint32_t)k && running - first - second < (uint32_t)k) s.at = (int32_t)(running - second >= (uint32_t)k ? at : at + 1);
    __syncthreads();
    return (uint32_t)(s.at + 1);
}

// ---- the token, of a sorted list ---------------------------------------------------------------------------------------------
// gaps: the list holds some bins alone, whose running sums stand in s.bins; else it begins at the top and holds the k-th token.
// The first block's threads call it. -1 for the top token.
__device__ __forceinline__ int32_t find_in_list(const row_slice &slice, sample_shared &s, const word64 *list, uint32_t n, bool gaps,
                                             int32_t k, float top_p, double uniform) {
    uint32_t at = threadIdx.x * 2, key[3] = {}, counts[2] = {}, tokens[2] = {};
    word64 mass[2] = {}, share[2] = {}; // of the token, and with what is not listed between two bins before it
    if (threadIdx.x == 0) s.key = 0, s.id = -1, s.kept[0] = gaps ? s.bins.mass[BINS - 1] : 0;
    for (uint32_t i = 0; i < 3 && at + i < n; i++) key[i] = key_of_word(list[at + i]);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        if (at + i >= n) continue;
        word64 measured = measure_one(slice.rules, logit_of(key[i]));
        share[i] = mass[i] = measured & (REMOVED - 1);
        tokens[i] = counts[i] = measured != 0;
        if (!gaps) continue;
        int32_t bin = (int32_t)slice.rules.bin_of(logit_of(key[i]));
        int32_t before = at + i == 0 ? -1 : (int32_t)slice.rules.bin_of(logit_of(key_of_word(list[at + i - 1])));
        if (before == bin) continue;
        share[i] += (bin ? s.bins.mass[bin - 1] : 0) - (before < 0 ? 0 : s.bins.mass[before]);
        tokens[i] += (bin ? s.bins.count[bin - 1] : 0) - (before < 0 ? 0 : s.bins.count[before]);
    }
    word64 running = block_scan(share[0] + share[1], s);
    const word64 through[2] = {running - share[1], running};
    if (k > 0) { // ties at the k-th token stay
        uint32_t counted = (uint32_t)block_scan(tokens[0] + tokens[1], s);
        const uint32_t count[2] = {counted - tokens[1], counted};
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (counts[i] && count[i] >= (uint32_t)k && count[i] - 1 < (uint32_t)k) s.key = key[i];
        __syncthreads();
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (counts[i] && key[i] == s.key && key[i + 1] != key[i]) s.kept[0] = through[i];
    }
    __syncthreads();
    word64 kept = s.kept[0];
    auto find = [&](const wanted &w, auto found) {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (mass[i] && w.met(through[i]) && !w.met(through[i] - mass[i])) found(i);
        __syncthreads();
    };
    if (top_p < 1.0f) {
        find({true, false, fmax((double)top_p * (double)kept, 1.0)}, [&](uint32_t i) { s.kept[1] = through[i]; });
        kept = s.kept[1];
    }
    find({true, true, uniform * (double)kept}, [&](uint32_t i) { s.id = id_of_word(list[at + i]); }); // others still read s.kept
    return s.id;
}

// The bins in which the k-th token, the bound of top_p and the draw can be, whatever the bins before hold exactly.
__device__ __forceinline__ bin_ranges find_bins(sample_shared &s, int32_t k, float top_p, double uniform) {
    bin_ranges r = {{{1, 0}, {1, 0}, {1, 0}}, BINS, 0};
    double low = (double)s.bins.mass[BINS - 1], high = low;
#pragma unroll 1
    for (int i = 0; i < INTERVALS; i++) { // the k-th token, top_p, the draw
        if ((i == 0 && k == 0) || (i == 1 && top_p >= 1.0f)) continue;
        double from = i == 0 ? k : i == 1 ? fmax((double)top_p * low, 1.0) : uniform * low;
        double to = i == 0 ? k : i == 1 ? fmax((double)top_p * high, 1.0) : uniform * high;
        int2 bins = locate(s, s.bins, i != 0, i == 2, from, to, 0);
        if (bins.x < 0) continue;
        const bin_range range = {(uint32_t)bins.x, (uint32_t)max(bins.x, bins.y)};
        r.of[i] = range;
        r.first = min(r.first, range.low), r.last = max(r.last, range.high);
        low = i == 1 ? from : range.low ? (double)s.bins.mass[range.low - 1] : 0.0;
        high = (double)s.bins.mass[range.high];
    }
    return r;
}

// ---- the token, digit by digit --------------------------------------------------------------------------------------------------
struct key_place {
    uint32_t key, ties; // how many tokens have it
    word64 above, each; // mass of what comes before, and of one of them
};

// In a bin of more tokens than the list holds: eleven bits of the key at a time. All blocks call it together.
__device__ __noinline__ key_place find_key(const row_slice &slice, sample_shared &s, const wanted &w, uint32_t bin) {
    const rule rules = slice.rules;
    key_place at = {0, 0, bin ? s.bins.mass[bin - 1] : 0, 0};
    uint32_t fixed = 0, count = bin ? s.bins.count[bin - 1] : 0, of;
    for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift == 10 ? 0 : -1) {
        const uint32_t mask = shift == 0 ? 1023 : 2047;
        __syncthreads();
        clear(s.part);
        __syncthreads();
        slice.each<1>([&](float logit, int32_t) {
            uint32_t key = key_of(logit);
            uint64_t mass = 0;
            bool in = key && rules.bin_of(logit) == bin && (key & fixed) == at.key && rules.measure(logit, of, mass);
            add<true>(s.part, in, mask - (key >> shift & mask), mass);
        });
        collect(s, s.keys);
        int32_t digit = locate(s, s.keys, w.by_mass, w.exceed, w.target, w.target, w.by_mass ? at.above : count).x;
        if (digit < 0) digit = 0; // cannot be: the bin holds the target
        if (digit) at.above += s.keys.mass[digit - 1], count += s.keys.count[digit - 1];
        at.ties = s.keys.count[digit] - (digit ? s.keys.count[digit - 1] : 0);
        at.key |= (mask - (uint32_t)digit) << shift;
        fixed |= mask << shift;
    }
    uint64_t mass = 0;
    rules.measure(logit_of(at.key), of, mass);
    at.each = mass;
    return at;
}

// The id of the index-th token, by id, that has this key. Each thread has a run of ids.
__device__ __noinline__ void find_id(const row_slice &slice, sample_shared &s, uint32_t key, uint32_t index, int32_t *id) {
    int32_t run = (slice.count + THREADS - 1) / THREADS, begin = threadIdx.x * run, end = min(begin + run, slice.count);
    uint32_t own = 0;
    for (int32_t i = begin; i < end; i++) own += key_of(slice.at(i)) == key;
    uint32_t before = (uint32_t)block_scan(own, s) - own;
    if (threadIdx.x == THREADS - 1) s.own = before + own;
    __syncthreads();
    if (threadIdx.x < BLOCKS) of_block(s.listed, threadIdx.x)[cluster_rank()] = s.own;
    cluster_sync();
    for (uint32_t i = 0; i < cluster_rank(); i++) before += s.listed[i];
    for (int32_t i = begin; i < end && before <= index; i++)
        if (key_of(slice.at(i)) == key && before++ == index) *id = slice.first + i;
}

// Rare: many equal logits, or a temperature so high that all masses are alike. False for the top token.
__device__ __noinline__ bool find_by_keys(const row_slice &slice, sample_shared &s, int32_t k, float top_p, double uniform, int32_t *id) {
    word64 kept = s.bins.mass[BINS - 1];
    if (k > 0) {
        const wanted w = {false, false, (double)k};
        int32_t bin = locate(s, s.bins, w.by_mass, w.exceed, w.target, w.target, 0).x;
        if (bin >= 0) {
            key_place at = find_key(slice, s, w, (uint32_t)bin);
            kept = at.above + at.each * at.ties;
        }
    }
    auto index_of = [](const key_place &at, double target, bool exceed) { // which of the equal tokens
        double left = at.each ? (target - (double)at.above) / (double)at.each : 0.0;
        return (uint32_t)fmin(fmax(exceed ? floor(left) : ceil(left) - 1.0, 0.0), (double)(at.ties - 1));
    };
    if (top_p < 1.0f) {
        const wanted w = {true, false, fmax((double)top_p * (double)kept, 1.0)};
        int32_t bin = locate(s, s.bins, w.by_mass, w.exceed, w.target, w.target, 0).x;
        if (bin >= 0) {
            key_place at = find_key(slice, s, w, (uint32_t)bin);
            kept = at.above + at.each * (index_of(at, w.target, false) + 1);
        }
    }
    const wanted w = {true, true, uniform * (double)kept};
    int32_t bin = locate(s, s.bins, w.by_mass, w.exceed, w.target, w.target, 0).x;
    if (bin < 0) return false;
    key_place at = find_key(slice, s, w, (uint32_t)bin);
    find_id(slice, s, at.key, index_of(at, w.target, true), id);
    return true;
}

// ---- the kernel ------------------------------------------------------------------------------------------------------------------
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
    rdk_sample_sm90a(const __grid_constant__ rdk_sample_sm90a_args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    sample_shared &s = *reinterpret_cast<sample_shared *>(shared);
    float *held = reinterpret_cast<float *>(shared + RDK_SAMPLE_SHARED_BYTES);
    launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < 3; i++) barrier_init(&s.arrived[i], 1);
        barrier_init_fence();
        barrier_expect(&s.arrived[0], BLOCKS * WARPS * 8);
    }
    cluster_arrive_relaxed();
    for (int i = threadIdx.x; i < BINS; i += THREADS) s.part.count[i] = 0;
    const uint32_t rank = cluster_rank(), row = blockIdx.x / BLOCKS, lane = threadIdx.x % 32;
    row_slice slice = {args.logits + row * args.logits_stride, held, (int32_t)rank * args.slice};
    slice.logits += slice.first;
    slice.count = max(min(args.slice, args.vocab - slice.first), 0);
    slice.kept = min(slice.count, args.held);
    wait_dependencies();
    const sample_row p = static_cast<const sample_row *>(args.params)[row];
    word64 top = warp_top(load_slice(slice, held));
    cluster_wait(); // every block has its barriers
    if (lane < BLOCKS) send_u64(cluster_address(&s.tops[rank * WARPS + threadIdx.x / 32], lane), top, cluster_address(&s.arrived[0], lane));
    const double uniform = p.temperature == 0.0f ? 0.0 : uniform53(p.seed, p.counter); // while the others' are on their way
    barrier_wait(&s.arrived[0], 0);
    top = 0;
#pragma unroll
    for (int i = 0; i < BLOCKS * WARPS; i += 32) top = max(top, s.tops[i + lane]);
    top = warp_top(top);
    const int32_t top_id = top ? id_of_word(top) : -1;
    const bool first = rank == 0 && threadIdx.x == 0;
    int32_t *id = args.ids + row, k = p.top_k > 0 && p.top_k < args.vocab ? p.top_k : 0;
    if (top == 0 || p.temperature == 0.0f) {
        if (first) *id = top_id;
        return;
    }
    slice.rules = {logit_of(key_of_word(top)), p.temperature, __frcp_rn(p.temperature), p.min_p, (float)BINS / (24.5f * p.temperature)};
    __syncthreads(); // of all counts that were cleared
    uint32_t bins = k > 0 && k < BLOCKS * WARPS ? bins_of_warps(s, slice.rules, k) : 0, n = LIST + 1, gathers = 0;
    bool gaps = false;
#pragma unroll 1
    for (int pass = bins ? 0 : 1; pass < 2 && n > LIST; pass++) {
        bin_ranges ranges = {{{0, bins - 1}, {1, 0}, {1, 0}}, 0, bins - 1};
        if (pass) {
            gaps = true;
            __syncthreads();
            clear(s.part);
            __syncthreads();
            slice.each<2>([&](float logit, int32_t) {
                uint32_t bin = 0;
                uint64_t mass = 0;
                bool counts = slice.rules.measure(logit, bin, mass);
                if (k)
                    add<true>(s.part, counts, bin, mass);
                else
                    add<false>(s.part, counts, bin, mass);
            });
            collect(s, s.bins);
            ranges = find_bins(s, k, p.top_p, uniform);
        }
        n = gather(slice, s, ranges, gathers++ % 2);
    }
    if (n > LIST) {
        const row_slice same = slice; // the other stays in registers
        if (!find_by_keys(same, s, k, p.top_p, uniform, id) && first) *id = top_id;
        return;
    }
    if (rank) return;
    word64 *list = sort_list(s.list, reinterpret_cast<word64 *>(&s.part), n);
    int32_t drawn = find_in_list(slice, s, list, n, gaps, k, p.top_p, uniform);
    if (first) *id = drawn < 0 ? top_id : drawn;
}
