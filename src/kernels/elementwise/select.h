// SPDX-License-Identifier: Apache-2.0
// The scalar half of the sampler's fast rows: from a list of candidates to one token, without a full sort.
//
// Masses are exact. A candidate's weight w = exp((l - l_max) / temperature) in [0, 1] is rounded to a multiple of 2^-34, so
// that sums of up to 2^19 of them are exact in double: no order of summation, thread or instruction set can change the
// token. What is lost is at most 2^-35 a token, 7.7e-6 of l_max's own mass over 262144 tokens.
#ifndef RDI_SELECT_H
#define RDI_SELECT_H

#include "radiance.h"

#include <stdbool.h>

#define RDI_SAMPLE_MAX_VOCAB (1 << 19)

typedef struct rdi_candidate {
    float logit, weight;
    int32_t id;
} rdi_candidate;

static inline double rdi_mass(float weight) {
    return ((double)weight + 0x1p18) - 0x1p18;
}

// What a sweep over the row found: `count` candidates, all tokens that pass min_p and lie above some logit; `alive` tokens
// pass min_p in all, with `mass` in all.
typedef struct rdi_candidates {
    rdi_candidate *list;
    int64_t count, alive;
    double mass;
} rdi_candidates;

// Applies top_k and top_p and draws. False when the list does not reach far enough down: sweep again with a lower bound.
// The list is permuted.
bool rdi_select_token(rdi_candidates *candidates, const rd_sample_row *params, int64_t vocab, int32_t *id);

#endif // RDI_SELECT_H
