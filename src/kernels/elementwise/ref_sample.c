// SPDX-License-Identifier: Apache-2.0
// Reference of sample. Canonical order of a row: raw logit descending, ties to the lower id; NaN counts as -inf, -inf is
// never drawn, and a row with nothing else gives id -1.
//   temperature 0: the first token of that order (greedy), whatever the other settings say; no draw.
//   else w_i = exp((l_i - l_max) / temperature) and, in this order: min_p keeps w_i >= min_p; top_k keeps l_i >= the k-th
//   largest (ties stay); top_p keeps the shortest prefix whose mass reaches top_p of what is left; then, with one uniform u,
//   the first token whose cumulative mass exceeds u * mass. l_max = +inf leaves w = 1 for +inf and 0 for the rest.
#include "base/convert.h"
#include "kernels/elementwise/args.h"
#include "kernels/elementwise/philox.h"
#include "kernels/rows.h"

#include <stdlib.h>

typedef struct entry {
    float logit;
    int32_t id;
} entry;

size_t rdi_sample_ref_ws(const void *args, int32_t threads) {
    (void)threads;
    return (size_t)((const rdi_sample_args *)args)->vocab * sizeof(entry);
}

static int canonical(const void *left, const void *right) {
    const entry *l = left, *r = right;
    if (l->logit != r->logit) return l->logit > r->logit ? -1 : 1;
    return l->id < r->id ? -1 : 1;
}

static double mass_of(const entry *e, float max, float temperature) {
    return e->logit == max ? 1 : exp(((double)e->logit - (double)max) / (double)temperature);
}

static int32_t draw(const entry *list, int64_t count, const rd_sample_row *p, int64_t vocab) {
    float max = list[0].logit;
    int64_t kept = 0;
    double total = 0, mass = 0, cumulative = 0;
    for (; kept < count && mass_of(&list[kept], max, p->temperature) >= (double)p->min_p; kept++) {
        bool limited = p->top_k > 0 && p->top_k < vocab && kept >= p->top_k;
        if (limited && list[kept].logit < list[p->top_k - 1].logit) break;
        total += mass_of(&list[kept], max, p->temperature);
    }
    for (int64_t i = 0; i < kept && (i == 0 || mass < (double)p->top_p * total); i++)
        mass += mass_of(&list[i], max, p->temperature);
    double target = rdi_uniform53(p->seed, p->counter) * mass;
    for (int64_t i = 0; i < kept; i++) {
        cumulative += mass_of(&list[i], max, p->temperature);
        if (cumulative > target) return list[i].id;
    }
    return list[0].id;
}

void rdk_sample_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_sample_args *a = args;
    entry *list = ws;
    (void)par;
    for (int64_t row = 0; row < a->rows; row++) {
        int64_t count = 0;
        for (int64_t i = 0; i < a->vocab; i++) {
            float logit = a->logits[row * a->logits_stride + i];
            if (logit > -INFINITY) list[count++] = (entry){logit, (int32_t)i};
        }
        qsort(list, (size_t)count, sizeof *list, canonical);
        const rd_sample_row *p = &a->params[row];
        a->ids[row] = count == 0 ? -1 : p->temperature == 0 ? list[0].id : draw(list, count, p, a->vocab);
    }
}
