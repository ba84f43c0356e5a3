// SPDX-License-Identifier: Apache-2.0
// Plans: one question answered once for a whole interval of M or query width, so that a serving run asks nothing per step.
// A plan is immutable: any number of threads may run it.
#include "ops/plan.h"

#include "backend/backend.h"
#include "ops/ctx.h"
#include "ops/shared.h"
#include "policy/order.h"

#include <stdio.h>
#include <string.h>

typedef struct plan_range {
    int64_t lo, hi;
    const rdi_row *row;
    const rdi_loaded *loaded; // a GPU row's code object on the context's card
    bool fast_refused;        // the row is a slow one although the op has faster ones
    char reason[512];
} plan_range;

struct rd_plan {
    rdi_query query; // interval key first (bound to lo) when the op has one
    rd_ctx *ctx;
    int64_t lo, hi;
    int32_t count;
    bool in_turn; // rdi_plan_start_in_turn
    plan_range ranges[];
};

static rd_status check_interval(const rdi_query *query, int64_t lo, int64_t hi) {
    const rd_op_info *op = &query->op->info;
    if (!op->interval_key) {
        if (lo == 0 && hi == 0) return RD_OK;
        return rdi_fail(RD_E_INVALID, "%s: interval=%lld..%lld, needs 0..0: the op has no interval key",
                        op->name, (long long)lo, (long long)hi);
    }
    if (rdi_query_find(query, op->interval_key))
        return rdi_fail(RD_E_INVALID,
                        "%s: %s is given, needs to be left out: the plan covers an interval of it", op->name,
                        op->interval_key);
    if (lo >= 1 && lo <= hi && hi <= INT32_MAX) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s=%lld..%lld, needs 1 <= lo <= hi <= %d", op->name, op->interval_key,
                    (long long)lo, (long long)hi, INT32_MAX);
}

// First values of the sub-intervals after the first, from the rows' constraints and from policy.
static int32_t find_cuts(const rd_ctx *ctx, rdi_table table, const rdi_query *query, int64_t lo, int64_t hi,
                         int64_t cuts[RDI_PLAN_CUTS]) {
    if (!query->op->info.interval_key) return 0;
    int32_t count = rdi_decide_cuts(table, ctx->device, query, lo, hi, cuts);
    const rdi_order_question question = rdi_ctx_order_question(ctx->device, query);
    int64_t more[RDI_ORDER_CUTS];
    const int32_t more_count = rdi_order_cuts(&question, more);
    for (int32_t i = 0; i < more_count; i++) count = rdi_cuts_add(cuts, count, lo, hi, more[i]);
    return count;
}

static void decide_range(const rd_ctx *ctx, rdi_table table, rdi_query *query, plan_range *range) {
    if (query->op->info.interval_key) rdi_query_bind(query, query->op->info.interval_key, range->lo);
    rdi_verdicts verdicts;
    rdi_ctx_decide(table, ctx->device, query, &verdicts);
    range->row = rdi_verdicts_chosen(&verdicts);
    range->fast_refused = range->row && rdi_row_is_slow(range->row) && !rdi_row_is_slow(verdicts.rows[0]) &&
                          !ctx->device->reference_only;
    rdi_verdicts_reason(&verdicts, query, ctx->device, range->reason, sizeof range->reason);
}

// Neighbours with the same row are one range; the first one's reason stands for both.
static void decide_ranges(rd_plan *plan, rdi_table table, const int64_t *cuts, int32_t cut_count) {
    for (int32_t i = 0; i <= cut_count; i++) {
        plan_range *range = &plan->ranges[plan->count];
        range->lo = i ? cuts[i - 1] : plan->lo;
        range->hi = i < cut_count ? cuts[i] - 1 : plan->hi;
        decide_range(plan->ctx, table, &plan->query, range);
        if (plan->count && range[-1].row == range->row)
            range[-1].hi = range->hi;
        else
            plan->count++;
    }
}

static void range_text(const rd_plan *plan, const plan_range *range, char text[RDI_QUERY_TEXT_BYTES]) {
    if (plan->query.op->info.interval_key)
        rdi_query_interval_text(&plan->query, range->lo, range->hi, text);
    else
        rdi_query_text(&plan->query, text);
}

// Two plans that share a range and the other keys ask the same question.
static void sorted_text(const rd_plan *plan, const plan_range *range, char *text, size_t bytes) {
    rdi_query query = plan->query;
    if (query.op->info.interval_key) rdi_query_bind(&query, query.op->info.interval_key, range->lo);
    char rest[RDI_QUERY_TEXT_BYTES];
    rdi_query_sorted_text(&query, rest);
    if (query.op->info.interval_key)
        snprintf(text, bytes, "..%lld %s", (long long)range->hi, rest);
    else
        snprintf(text, bytes, "%s", rest); // the same question as a select: one entry
}

static rd_status record(const rd_plan *plan) {
    const char *op = plan->query.op->info.name;
    for (int32_t i = 0; i < plan->count; i++) {
        const plan_range *range = &plan->ranges[i];
        char text[RDI_QUERY_TEXT_BYTES], sorted[RDI_QUERY_TEXT_BYTES + 64];
        range_text(plan, range, text);
        sorted_text(plan, range, sorted, sizeof sorted);
        RDI_TRY(rdi_selections_record(&plan->ctx->selections, op, text, sorted,
                                      range->row ? range->row->info.name : NULL, range->reason));
        // A refused fast row is news; an op that has only slow rows is a fact of the build.
        if (range->row && rdi_row_is_slow(range->row))
            rdi_log_write(&plan->ctx->log, range->fast_refused ? RD_LOG_WARN : RD_LOG_INFO,
                          "%s %s -> %s (%s)", op, text, range->row->info.name, range->reason);
    }
    return RD_OK;
}

static rd_status check_covered(const rd_plan *plan) {
    for (int32_t i = 0; i < plan->count; i++) {
        if (plan->ranges[i].row) continue;
        char text[RDI_QUERY_TEXT_BYTES];
        range_text(plan, &plan->ranges[i], text);
        return rdi_fail(RD_E_UNSUPPORTED, "%s: no kernel takes %s: %s", plan->query.op->info.name, text,
                        plan->ranges[i].reason);
    }
    return RD_OK;
}

// Code objects are loaded here, so that a run allocates nothing.
static rd_status load_code(rd_plan *plan) {
    rdi_card *card = plan->ctx->device->card;
    for (int32_t i = 0; card && i < plan->count; i++)
        RDI_TRY(rdi_card_load(card, plan->ranges[i].row->image, &plan->ranges[i].loaded));
    return RD_OK;
}

// `table` holds the rows to decide among: the context's, or the one that the caller forces. Only a decision is recorded.
static rd_status create(rd_ctx *ctx, rdi_table table, bool forced, const char *op, const rd_param *params,
                        int32_t count, int64_t lo, int64_t hi, rd_plan **out) {
    rdi_query query;
    RDI_TRY(rdi_query_read(op, params, count, &query));
    RDI_TRY(check_interval(&query, lo, hi));
    int64_t cuts[RDI_PLAN_CUTS];
    int32_t cut_count = find_cuts(ctx, table, &query, lo, hi, cuts);
    rd_plan *plan = rdi_calloc(1, sizeof *plan + (size_t)(cut_count + 1) * sizeof plan->ranges[0]);
    if (!plan) return RD_E_NOMEM;
    plan->query = query;
    plan->ctx = ctx;
    plan->lo = lo;
    plan->hi = hi;
    decide_ranges(plan, table, cuts, cut_count);
    if (query.op->info.interval_key) rdi_query_bind(&plan->query, query.op->info.interval_key, lo);
    rd_status status = forced ? RD_OK : record(plan);
    if (status == RD_OK) status = check_covered(plan);
    if (status == RD_OK) status = load_code(plan);
    if (status != RD_OK) {
        rdi_free(plan);
        return status;
    }
    *out = plan;
    return RD_OK;
}

rd_status rd_plan_create(rd_ctx *ctx, const char *op, const rd_param *params, int32_t count, int64_t lo,
                         int64_t hi, rd_plan **out) {
    if (!ctx || !out) return rdi_fail(RD_E_INVALID, "rd_plan_create: %s=NULL", ctx ? "out" : "ctx");
    *out = NULL;
    return create(ctx, ctx->table, false, op, params, count, lo, hi, out);
}

rd_status rd_plan_create_kernel(rd_ctx *ctx, const char *kernel, const rd_param *params, int32_t count,
                                int64_t lo, int64_t hi, rd_plan **out) {
    if (!ctx || !kernel || !out)
        return rdi_fail(RD_E_INVALID, "rd_plan_create_kernel: %s=NULL",
                        !ctx     ? "ctx"
                        : kernel ? "out"
                                 : "kernel");
    *out = NULL;
    for (int32_t i = 0; i < ctx->table.count; i++) {
        const rdi_row *row = &ctx->table.rows[i];
        if (!strcmp(row->info.name, kernel))
            return create(ctx, (rdi_table){row, 1, false}, true, row->info.op, params, count, lo, hi, out);
    }
    return rdi_fail(RD_E_INVALID, "kernel=%.80s, needs one of those that `radiance kernels` lists", kernel);
}

void rd_plan_free(rd_plan *plan) {
    rdi_free(plan);
}

const char *rdi_plan_op(const rd_plan *plan) {
    return plan->query.op->info.name;
}

const rdi_row *rdi_plan_row(const rd_plan *plan, int64_t at) {
    for (int32_t i = 0; i < plan->count; i++)
        if (at >= plan->ranges[i].lo && at <= plan->ranges[i].hi) return plan->ranges[i].row;
    const rd_op_info *op = &plan->query.op->info;
    rdi_fail(RD_E_INVALID, "%s: %s=%lld: the plan covers %lld..%lld", op->name,
             op->interval_key ? op->interval_key : "interval", (long long)at, (long long)plan->lo,
             (long long)plan->hi);
    return NULL;
}

const rd_kernel_info *rd_plan_kernel(const rd_plan *plan, int64_t at) {
    const rdi_row *row = plan ? rdi_plan_row(plan, at) : NULL;
    return row ? &row->info : NULL;
}

int64_t rdi_plan_int(const rd_plan *plan, const char *key) {
    const rdi_answer *answer = rdi_query_find(&plan->query, key);
    return answer ? answer->i : 0;
}

const char *rdi_plan_word(const rd_plan *plan, const char *key) {
    const rdi_answer *answer = rdi_query_find(&plan->query, key);
    return answer && answer->word[0] ? answer->word : NULL;
}

rd_dtype rdi_plan_dtype(const rd_plan *plan, const char *key) {
    const rdi_answer *answer = rdi_query_find(&plan->query, key);
    return answer ? answer->dtype : RD_DTYPE_NONE;
}

rd_status rd_plan_text(const rd_plan *plan, char *text, size_t *bytes) {
    if (!plan || !bytes) return rdi_fail(RD_E_INVALID, "rd_plan_text: %s=NULL", plan ? "bytes" : "plan");
    size_t capacity = text ? *bytes : 0, used = 0;
    for (int32_t i = 0; i < plan->count; i++) {
        char question[RDI_QUERY_TEXT_BYTES];
        range_text(plan, &plan->ranges[i], question);
        bool slow = !strncmp(plan->ranges[i].reason, "slow: ", 6);
        size_t room = used < capacity ? capacity - used : 0;
        used += (size_t)snprintf(room ? text + used : NULL, room, "%s %s\n-> %s%s%s\n", rdi_plan_op(plan),
                                 question, plan->ranges[i].row->info.name, slow ? " (slow): " : "",
                                 slow ? plan->ranges[i].reason + strlen("slow: ") : "");
    }
    *bytes = used + 1;
    if (text && used + 1 > capacity)
        return rdi_fail(RD_E_LIMIT, "rd_plan_text: bytes=%zu, needs %zu", capacity, used + 1);
    return RD_OK;
}

void rdi_plan_start_in_turn(rd_plan *plan) {
    plan->in_turn = true;
}
bool rdi_plan_starts_in_turn(const rd_plan *plan) {
    return plan->in_turn;
}

const rd_ctx *rdi_plan_ctx(const rd_plan *plan) {
    return plan->ctx;
}

const struct rdi_loaded *rdi_plan_loaded(const rd_plan *plan, const rdi_row *row) {
    for (int32_t i = 0; i < plan->count; i++)
        if (plan->ranges[i].row == row) return plan->ranges[i].loaded;
    return NULL;
}
