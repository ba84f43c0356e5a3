// SPDX-License-Identifier: Apache-2.0
// Where policy orders kernel rows: one table of (chip, op) -> rule. Without an entry, row order holds.
#ifndef RDI_ORDER_H
#define RDI_ORDER_H

#include "base/base.h"

typedef struct rdi_order_question {
    const char *arch, *op; // "gfx1201", "gemm_fp8block"
    const char *layout;    // of the weight, NULL when not given
    int64_t interval;      // m or q_len; 0 when not given
} rdi_order_question;

typedef struct rdi_order {
    const char *trait; // rows with this word in their name come first; "" = no rule
    const char *rule;  // "gemm_route rule 2"
    bool exclusive;    // only they will do
} rdi_order;

rdi_order rdi_order_decide(const rdi_order_question *question);
// First interval values at which the order changes; returns how many there are.
int32_t rdi_order_cuts(const char *arch, const char *op, const int64_t **cuts);

#endif // RDI_ORDER_H
