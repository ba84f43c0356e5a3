// SPDX-License-Identifier: Apache-2.0
// The sampler's selection: k-th largest and first-past-a-mass by partitioning (Hoare's quickselect), never a full sort.
// The expected work is linear in the candidates, whose order on entry does not matter to the result.
#include "kernels/elementwise/args.h"
#include "kernels/elementwise/philox.h"
#include "kernels/elementwise/select.h"
#include "kernels/rows.h"

// Canonical order: raw logit descending, ties to the lower id.
static bool before(const rdi_candidate *a, const rdi_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void swap(rdi_candidate *a, rdi_candidate *b) {
    rdi_candidate held = *a;
    *a = *b;
    *b = held;
}

typedef enum measure { MEASURE_COUNT, MEASURE_MASS } measure;
static double measured(measure by, const rdi_candidate *e) {
    return by == MEASURE_COUNT ? 1 : rdi_mass(e->weight);
}

// What the running measure must do at the wanted element.
typedef enum goal { GOAL_REACH, GOAL_EXCEED } goal;
static bool met(goal want, double sum, double target) {
    return want == GOAL_REACH ? sum >= target : sum > target;
}

// Moves what comes before the pivot to the front of [begin, end), the pivot behind it; returns the pivot's place and, in
// *sum, the measure in front of it. Pivot: the median of three places drawn from a small generator.
static int64_t partition(rdi_candidate *list, int64_t begin, int64_t end, measure by, uint64_t *state,
                         double *sum) {
    int64_t at[3];
    for (int i = 0; i < 3; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX constants
        at[i] = begin + (int64_t)((*state >> 33) % (uint64_t)(end - begin));
    }
    if (before(&list[at[1]], &list[at[0]])) {
        int64_t t = at[0];
        at[0] = at[1];
        at[1] = t;
    }
    if (before(&list[at[2]], &list[at[1]])) at[1] = before(&list[at[2]], &list[at[0]]) ? at[0] : at[2];
    swap(&list[at[1]], &list[end - 1]);
    const rdi_candidate pivot = list[end - 1];
    int64_t place = begin;
    *sum = 0;
    for (int64_t i = begin; i < end - 1; i++) {
        if (!before(&list[i], &pivot)) continue;
        *sum += measured(by, &list[i]);
        swap(&list[i], &list[place++]);
    }
    swap(&list[place], &list[end - 1]);
    return place;
}

static void sort_few(rdi_candidate *list, int64_t begin, int64_t end) {
    for (int64_t i = begin + 1; i < end; i++)
        for (int64_t j = i; j > begin && before(&list[j], &list[j - 1]); j--) swap(&list[j], &list[j - 1]);
}

// Place of the first element, in canonical order, at which the running measure meets the goal, or -1; *through is the
// measure up to and with it. Elements before it stand before it in the list afterwards.
static int64_t find(rdi_candidate *list, int64_t count, measure by, goal want, double target,
                    double *through) {
    int64_t begin = 0, end = count;
    uint64_t state = 0x9e3779b97f4a7c15u;
    double above = 0;
    while (end - begin > 16) {
        double sum;
        int64_t place = partition(list, begin, end, by, &state, &sum);
        double with_pivot = above + sum + measured(by, &list[place]);
        if (met(want, above + sum, target) && place > begin) {
            end = place;
        } else if (met(want, with_pivot, target)) {
            *through = with_pivot;
            return place;
        } else {
            above = with_pivot;
            begin = place + 1;
        }
    }
    sort_few(list, begin, end);
    for (int64_t i = begin; i < end; i++) {
        above += measured(by, &list[i]);
        *through = above;
        if (met(want, above, target)) return i;
    }
    return -1;
}

// Keeps the candidates not below the k-th largest logit: ties at the boundary stay.
static void keep_top_k(rdi_candidates *c, int64_t k) {
    double through;
    int64_t place = find(c->list, c->count, MEASURE_COUNT, GOAL_REACH, (double)k, &through), kept = 0;
    float bound = c->list[place].logit;
    c->mass = 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (c->list[i].logit < bound) continue;
        c->mass += rdi_mass(c->list[i].weight);
        c->list[kept++] = c->list[i];
    }
    c->count = c->alive = kept;
}

bool rdi_select_token(rdi_candidates *candidates, const rd_sample_row *params, int64_t vocab, int32_t *id) {
    rdi_candidates c = *candidates;
    int64_t k = params->top_k > 0 && params->top_k < vocab ? params->top_k : 0;
    if (k > 0 && k < c.alive) {
        if (c.count < k) return false;
        keep_top_k(&c, k);
    } else if (k > 0 && c.count < c.alive) {
        return false;
    }
    double mass = c.mass;
    if (params->top_p < 1.0f) {
        int64_t place =
            find(c.list, c.count, MEASURE_MASS, GOAL_REACH, (double)params->top_p * c.mass, &mass);
        if (place < 0) return false;
        c.count = place + 1;
    }
    double target = rdi_uniform53(params->seed, params->counter) * mass, through;
    int64_t place = find(c.list, c.count, MEASURE_MASS, GOAL_EXCEED, target, &through);
    if (place < 0) return false;
    *id = c.list[place].id;
    return true;
}

size_t rdi_sample_fast_ws(const void *args, int32_t threads) {
    return (size_t)((const rdi_sample_args *)args)->vocab * (size_t)threads * sizeof(rdi_candidate);
}
