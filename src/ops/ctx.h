// SPDX-License-Identifier: Apache-2.0
// Inside of rd_ctx, and the decision that select, explain and plans share: the registry's verdicts in policy's order.
#ifndef RDI_CTX_H
#define RDI_CTX_H

#include "policy/order.h"
#include "registry/decide.h"
#include "registry/selections.h"

struct rd_ctx {
    rd_device *device;
    rdi_par *par;
    rdi_log log;
    rdi_table table;   // all rows of the build; a test may put its own here
    rdi_row *own_rows; // the table's, when a card's check left rows out
    rdi_selections selections;
};

rdi_order_question rdi_ctx_order_question(const rd_device *device, const rdi_query *query);
void rdi_ctx_decide(rdi_table table, const rd_device *device, const rdi_query *query, rdi_verdicts *out);
rd_status rdi_ctx_explain(rdi_table table, const rd_device *device, const char *op, const rd_param *params,
                          int32_t count, rd_verdict *verdicts, int32_t *verdict_count);

#endif // RDI_CTX_H
