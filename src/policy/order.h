// SPDX-License-Identifier: Apache-2.0
// Where policy orders kernel rows: one table of (chip, op) -> rule. Without an entry, row order holds.
#ifndef RDI_ORDER_H
#define RDI_ORDER_H

#include "device/device.h"

typedef struct rdi_order_question {
    const char *arch, *op; // "gfx1201", "gemm_fp8block"
    const char *layout;    // of the weight, NULL when not given
    int64_t interval;      // m or q_len; 0 when not given
    bool any_order;        // the caller takes the bits of either order class
    int64_t n, k;          // of a GEMM; 0 when not given
    int32_t units;         // CUs or SMs
    rdi_rates rates;
} rdi_order_question;

typedef struct rdi_order {
    const char *trait; // rows with this word in their name come first; "" = no rule
    const char *rule;  // "gemm_route rule 2"
    bool exclusive;    // only they will do
} rdi_order;

rdi_order rdi_order_decide(const rdi_order_question *question);
// First interval values at which the order changes, whatever the question's own; returns how many there are.
enum { RDI_ORDER_CUTS = 16 };
int32_t rdi_order_cuts(const rdi_order_question *question, int64_t cuts[RDI_ORDER_CUTS]);

#endif // RDI_ORDER_H
