// SPDX-License-Identifier: Apache-2.0
// sample on gfx1201: a work-group of 32 waves a row, the tokens of the CPU's rows bit for bit (select.h: weights rounded to
// multiples of 2^-34, so that masses are integers here and no order of summation matters).
//
// Nothing is sorted and nothing is written but the id. Logits map to 32-bit keys in canonical order; a threshold (the k-th
// largest, the place where the mass reaches top_p, the drawn token) is found by descending through the key's bits, 11 + 11
// + 10, with a histogram of counts or masses in LDS for each step. Tokens of one key have one weight, so the place among
// them follows by division, and its id from a scan in id order.
#include "kernels/elementwise/gfx1201_device.h"

#define WAVES     (RDK_SAMPLE_THREADS / 32)
#define BINS      2048
#define LANE_BINS (BINS / 32)

typedef struct shared_state {
    ulong bins[BINS];
    ulong scan[32];
    uint count[WAVES]; // of a pass over waves: best keys, ties
    ulong above;       // measure of what lies above the prefix
    ulong mass;
    uint prefix, alive;
    int id;
} shared_state;

typedef struct sampler {
    global const float *logits;
    local shared_state *shared;
    rdk_sample_row p;
    float max;
    int vocab;
    uint least_key; // what top_k leaves: keys from here on
} sampler;

enum measure { MEASURE_COUNT, MEASURE_MASS };
enum goal { GOAL_REACH, GOAL_EXCEED };
static inline bool met(enum goal want, ulong sum, double target) {
    return want == GOAL_REACH ? (double)sum >= target : (double)sum > target;
}

// Ascending with the logit; -0 is 0; 0 for what is never drawn: NaN and -inf.
static inline uint key_of(float logit) {
    uint bits = as_uint(logit + 0.0f);
    return logit >= -0x1.fffffep127f ? bits ^ ((uint)((int)bits >> 31) | 0x80000000u) : 0;
}
static inline float logit_of(uint key) { return as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }

static inline float weight_of(const sampler *s, float logit) {
    float distance = logit == s->max ? 0.0f : logit - s->max;
    return exp32(divide(distance, s->p.temperature));
}
static inline ulong mass_of(float weight) { // units of 2^-34
    float units = __builtin_rintf(weight * 0x1p34f), high = __builtin_floorf(units * 0x1p-16f);
    return ((ulong)(uint)high << 16) + (uint)(units - high * 0x1p16f);
}

static inline uint max_u32(uint a, uint b) { return a > b ? a : b; }
static inline int min_i32(int a, int b) { return a < b ? a : b; }
static inline uint wave_max(uint x) {
    x = max_u32(x, (uint)ROW_XMASK((int)x, 1));
    x = max_u32(x, (uint)ROW_XMASK((int)x, 2));
    x = max_u32(x, (uint)ROW_XMASK((int)x, 4));
    x = max_u32(x, (uint)ROW_XMASK((int)x, 8));
    return max_u32(x, (uint)other_half((int)x));
}

static uint largest_key(const sampler *s) {
    uint best = 0;
    for (int i = thread_in_group(); i < s->vocab; i += RDK_SAMPLE_THREADS) best = max_u32(best, key_of(s->logits[i]));
    best = wave_max(best);
    if (lane_of_wave() == 0) s->shared->count[wave_of_group()] = best;
    group_barrier();
    best = s->shared->count[lane_of_wave()];
    group_barrier();
    return __builtin_amdgcn_readfirstlane(wave_max(best));
}

// Tokens that pass min_p and top_k, and their mass, into shared->alive and shared->mass.
static void total_mass(const sampler *s) {
    local shared_state *shared = s->shared;
    if (thread_in_group() == 0) shared->mass = 0, shared->alive = 0;
    group_barrier();
    ulong mass = 0;
    uint alive = 0;
    for (int i = thread_in_group(); i < s->vocab; i += RDK_SAMPLE_THREADS) {
        float logit = s->logits[i];
        uint key = key_of(logit);
        if (key == 0 || key < s->least_key) continue;
        float weight = weight_of(s, logit);
        if (weight >= s->p.min_p) mass += mass_of(weight), alive++;
    }
    __scoped_atomic_fetch_add(&shared->mass, mass, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    __scoped_atomic_fetch_add(&shared->alive, alive, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    group_barrier();
}

// One wave reads the histogram from its top: the first bin in which the measure meets the goal joins the prefix.
static void choose_bin(local shared_state *shared, int bits, enum goal want, double target) {
    int lane = lane_of_wave(), top = BINS - 1 - lane * LANE_BINS;
    ulong sum = 0;
    for (int i = 0; i < LANE_BINS; i++) sum += shared->bins[top - (i + lane) % LANE_BINS]; // lanes on other banks
    shared->scan[lane] = sum;
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
    ulong above = shared->above;
    for (int i = 0; i < 32; i++) above += i < lane ? shared->scan[i] : 0;
    uint found = __builtin_amdgcn_ballot_w32(sum > 0 && met(want, above + sum, target));
    uint any = __builtin_amdgcn_ballot_w32(sum > 0); // rounding can put the target past all: the last token then
    int chosen = found ? __builtin_ctz(found) : 31 - __builtin_clz(any | 1);
    if (lane != chosen) return;
    int bin = top, last = top;
    ulong last_above = above;
    for (int i = 0; i < LANE_BINS; i++, bin--) {
        ulong here = shared->bins[bin];
        if (here == 0) continue;
        last = bin, last_above = above;
        if (met(want, above + here, target)) break;
        above += here;
    }
    shared->prefix = shared->prefix << bits | (uint)last;
    shared->above = last_above;
}

// The key of the first token, in canonical order, at which the measure meets the goal; shared->above: what lies above it.
static uint descend(const sampler *s, enum measure by, enum goal want, double target) {
    local shared_state *shared = s->shared;
    if (thread_in_group() == 0) shared->prefix = 0, shared->above = 0;
    for (int level = 0; level < 3; level++) {
        int shift = level == 0 ? 21 : level == 1 ? 10 : 0, bits = level == 2 ? 10 : 11;
        for (int i = thread_in_group(); i < BINS; i += RDK_SAMPLE_THREADS) shared->bins[i] = 0;
        group_barrier();
        uint prefix = shared->prefix;
        for (int i = thread_in_group(); i < s->vocab; i += RDK_SAMPLE_THREADS) {
            float logit = s->logits[i];
            uint key = key_of(logit), head = level ? key >> shift >> bits : 0;
            if (key == 0 || key < s->least_key || head != prefix) continue;
            float weight = weight_of(s, logit);
            ulong value = by == MEASURE_COUNT ? 1 : mass_of(weight);
            if (weight >= s->p.min_p && value)
                __scoped_atomic_fetch_add(&shared->bins[key >> shift & ((1u << bits) - 1)], value, __ATOMIC_RELAXED,
                                          __MEMORY_SCOPE_WRKGRP);
        }
        group_barrier();
        if (wave_of_group() == 0) choose_bin(shared, bits, want, target);
        group_barrier();
    }
    return shared->prefix;
}

// The place-th token, from 0 and in id order, among those of one key.
static int tie_at(const sampler *s, uint key, uint place) {
    local shared_state *shared = s->shared;
    int segment = (s->vocab + RDK_SAMPLE_THREADS - 1) / RDK_SAMPLE_THREADS * 32;
    int begin = wave_of_group() * segment, end = min_i32(begin + segment, s->vocab);
    uint ties = 0;
    for (int i = begin; i < end; i += 32) {
        int at = i + lane_of_wave();
        ties += __builtin_popcount(__builtin_amdgcn_ballot_w32(at < end && key_of(s->logits[min_i32(at, end - 1)]) == key));
    }
    if (lane_of_wave() == 0) shared->count[wave_of_group()] = ties;
    group_barrier();
    uint before = 0;
    for (int i = 0; i < wave_of_group(); i++) before += shared->count[i];
    if (place >= before && place < before + ties)
        for (int i = begin; i < end; i += 32) {
            int at = i + lane_of_wave();
            uint here = __builtin_amdgcn_ballot_w32(at < end && key_of(s->logits[min_i32(at, end - 1)]) == key);
            uint rank = before + __builtin_amdgcn_mbcnt_lo(here, 0);
            if ((here >> lane_of_wave() & 1) && rank == place) shared->id = at;
            before += __builtin_popcount(here);
        }
    group_barrier();
    return shared->id;
}

// How many tokens of weight `mass` must follow `above` until the goal is met, at least 1.
static uint tokens_until(ulong above, ulong mass, enum goal want, double target) {
    double estimate = (target - (double)above) / (double)mass;
    ulong n = estimate > 2 ? (ulong)(uint)estimate - 1 : 1;
    while (!met(want, above + n * mass, target) && n < RDK_SAMPLE_MAX_VOCAB) n++;
    return (uint)n;
}

// Philox4x32-10 (kernels/elementwise/philox.h), and its first 53 bits as a fraction.
static double uniform53(ulong seed, ulong counter) {
    uint c0 = (uint)counter, c1 = (uint)(counter >> 32), c2 = 0, c3 = 0, k0 = (uint)seed, k1 = (uint)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        ulong p0 = (ulong)0xD2511F53u * c0, p1 = (ulong)0xCD9E8D57u * c2;
        uint next0 = (uint)(p1 >> 32) ^ c1 ^ k0, next2 = (uint)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint)p1, c3 = (uint)p0, c0 = next0, c2 = next2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (double)(((ulong)c1 << 32 | c0) >> 11) * 0x1p-53;
}

static int draw(sampler *s) {
    local shared_state *shared = s->shared;
    total_mass(s);
    int k = s->p.top_k;
    if (k > 0 && k < s->vocab && (uint)k < shared->alive) {
        s->least_key = descend(s, MEASURE_COUNT, GOAL_REACH, (double)k); // ties of the k-th stay
        total_mass(s);
    }
    ulong mass = shared->mass;
    if (s->p.top_p < 1.0f) {
        double target = (double)s->p.top_p * (double)mass;
        ulong each = mass_of(weight_of(s, logit_of(descend(s, MEASURE_MASS, GOAL_REACH, target))));
        mass = shared->above + each * tokens_until(shared->above, each, GOAL_REACH, target);
        group_barrier();
    }
    double target = uniform53(s->p.seed, s->p.counter) * (double)mass;
    uint key = descend(s, MEASURE_MASS, GOAL_EXCEED, target);
    ulong each = mass_of(weight_of(s, logit_of(key)));
    return tie_at(s, key, tokens_until(shared->above, each, GOAL_EXCEED, target) - 1);
}

kernel THREADS(RDK_SAMPLE_THREADS) void rdk_sample_gfx1201(const rdk_sample_gfx1201_args a) {
    local shared_state shared;
    int row = group_x();
    sampler s = {.logits = a.logits + row * a.logits_stride, .shared = &shared, .p = a.params[row], .vocab = a.vocab};
    uint best = largest_key(&s);
    int id = -1;
    if (best) {
        s.max = logit_of(best);
        id = s.p.temperature == 0.0f ? tie_at(&s, best, 0) : draw(&s);
    }
    if (thread_in_group() == 0) a.ids[row] = id;
}
