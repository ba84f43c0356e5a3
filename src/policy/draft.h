// SPDX-License-Identifier: Apache-2.0
// How many draft tokens a request proposes: the n-gram continuation when the draft model agrees with it, else until the
// product of its confidences falls below tau.
#ifndef RDI_DRAFT_H
#define RDI_DRAFT_H

#include "base/base.h"

#define RDI_DRAFT_TAU_BF16_HEAD 0.35
#define RDI_DRAFT_TAU_INT2_HEAD 0.28 // +5.3% over 0.35 with the 2-bit head, whose confidences run lower

typedef struct rdi_draft_question {
    double tau;
    int64_t cap;
    const int64_t *continuation; // of the n-gram match; continuation_count may be 0
    int64_t continuation_count;
    const int64_t *tokens; // of the draft model, slot by slot
    int64_t token_count;
    const double *probabilities; // top-1 probability of each, by online logsumexp
} rdi_draft_question;

typedef enum rdi_draft_why { RDI_DRAFT_NGRAM = 0, RDI_DRAFT_STOP, RDI_DRAFT_CAP } rdi_draft_why;
typedef struct rdi_draft {
    int64_t last_slot; // its token is part of the draft
    rdi_draft_why why;
    const char *rule;
} rdi_draft;

rdi_draft rdi_draft_depth(const rdi_draft_question *question);
const char *rdi_draft_why_name(rdi_draft_why why); // "ngram" "stop" "cap"
int64_t rdi_draft_cap(int64_t batch, const char **rule);

#endif // RDI_DRAFT_H
