// SPDX-License-Identifier: Apache-2.0
// The one decider: a walker fills a verdict for every row of an op, select and explain and plans all read those.
#ifndef RDI_DECIDE_H
#define RDI_DECIDE_H

#include "device/device.h"
#include "registry/query.h"

// The rows to decide among. Everyone uses rdi_table_built; tests bring their own.
typedef struct rdi_table {
    const rdi_row *rows;
    int32_t count;
    bool rows_out; // the build's rows for this device, less those that failed their check at first use
} rdi_table;
rdi_table rdi_table_built(void);

// What policy says about one question: rows whose name has `trait` as one of its "_"-separated words come first and `rule`
// says why. exclusive: only they will do. trait "" = no rule, row order.
typedef struct rdi_preference {
    char trait[24];
    char rule[64];
    bool exclusive;
} rdi_preference;

// First constraint that fails, or NULL. reason gets its text ("gqa=8, needs == 6"), "" when all hold.
enum { RDI_REASON_BYTES = 160 };
const rd_constraint *rdi_constraint_first_failure(const rdi_row *row, const rdi_query *query,
                                                  char reason[RDI_REASON_BYTES]);

// Verdicts of the op's rows for the device's backend, in policy order; returns how many there are (at most
// RDI_OP_ROWS are filled).
enum { RDI_OP_ROWS = 64 };
typedef struct rdi_verdicts {
    int32_t count;
    bool rows_out; // the table's
    const rdi_row *rows[RDI_OP_ROWS];
    rd_verdict at[RDI_OP_ROWS];
} rdi_verdicts;
void rdi_decide(rdi_table table, const rd_device *device, const rdi_query *query,
                const rdi_preference *preference, rdi_verdicts *out);

const rdi_row *rdi_verdicts_chosen(const rdi_verdicts *verdicts); // NULL: none
// Why no row applies: the distinct reasons joined by "; ". Why a slow row was left: "slow: " and the reason of the first
// fast row. Else "ok".
void rdi_verdicts_reason(const rdi_verdicts *verdicts, const rdi_query *query, const rd_device *device,
                         char *text, size_t bytes);

// Values of the interval key inside (lo, hi] at which some row's verdict may change, ascending, distinct; returns how
// many. Values beyond capacity are an error of the table (test_registry).
enum { RDI_PLAN_CUTS = 64 };
int32_t rdi_decide_cuts(rdi_table table, const rd_device *device, const rdi_query *query, int64_t lo,
                        int64_t hi, int64_t cuts[RDI_PLAN_CUTS]);
// Adds a cut of policy's, keeping the order.
int32_t rdi_cuts_add(int64_t cuts[RDI_PLAN_CUTS], int32_t count, int64_t lo, int64_t hi, int64_t cut);

#endif // RDI_DECIDE_H
