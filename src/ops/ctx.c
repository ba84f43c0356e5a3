// SPDX-License-Identifier: Apache-2.0
// rd_ctx: a device, a thread pool, a log and the record of questions. Select and explain ask the same decider.
#include "ops/ctx.h"
#include "ops/first_use.h"
#include "ops/plan.h"
#include "ops/shared.h"

#include "policy/order.h"

#include <stdio.h>
#include <string.h>

enum {
    RDI_MOST_THREADS = 4096
}; // of a team; a host's parallel_for keeps to it, so that workspace sizes stay sane

static rd_status pick_threads(const rd_ctx_options *options, const rd_device *device, int32_t *out) {
    int64_t threads = options ? options->threads : 0;
    if (threads < 0 || threads > RDI_MOST_THREADS)
        return rdi_fail(RD_E_INVALID, "threads=%lld, needs 1 to %d, or 0 for the default", (long long)threads,
                        RDI_MOST_THREADS);
    if (threads == 0) RDI_TRY(rdi_env_int("RADIANCE_THREADS", 0, RDI_MOST_THREADS, &threads));
    if (threads == 0 && device->card) { // a card's context still packs weights on the host
        rd_device *host = NULL;
        RDI_TRY(rdi_device_open_host("cpu", &host));
        threads = host->info.performance_cores;
        rd_device_close(host);
    }
    if (threads == 0) threads = device->info.performance_cores;
    *out = (int32_t)threads;
    return RD_OK;
}

static rd_status fill(rd_ctx *ctx, const rd_ctx_options *options) {
    RDI_TRY(rd_device_open(options ? options->device : NULL, &ctx->device));
    rd_device_set_log(ctx->device, ctx->log.fn, ctx->log.state);
    int32_t threads = 1;
    RDI_TRY(pick_threads(options, ctx->device, &threads));
    // A fixture answers questions: it needs no workers.
    if (ctx->device->info.is_fixture) threads = 1;
    return rdi_par_create(threads, options ? options->parallel_for : NULL,
                          options ? options->parallel_for_state : NULL, &ctx->par);
}

rd_status rd_ctx_create(const rd_ctx_options *options, rd_ctx **out) {
    if (!out) return rdi_fail(RD_E_INVALID, "rd_ctx_create: out=NULL, needs a place for the context");
    *out = NULL;
    if (options && options->struct_size < sizeof *options)
        return rdi_fail(RD_E_INVALID, "rd_ctx_create: struct_size=%u, needs %zu", options->struct_size,
                        sizeof *options);
    int64_t trust = 0;
    RDI_TRY(rdi_env_int("RADIANCE_TRUST", 0, 1, &trust));
    rd_ctx *ctx = rdi_calloc(1, sizeof *ctx);
    if (!ctx) return RD_E_NOMEM;
    if (options) ctx->log = (rdi_log){options->log, options->log_state};
    ctx->table = rdi_table_built();
    rdi_selections_init(&ctx->selections);
    rd_status status = fill(ctx, options);
    // The simulator's kernels are checked by the tests; a card is checked where it is.
    if (status == RD_OK && !strncmp(ctx->device->info.name, "gpu:", 4) && ctx->device->isa &&
        !(options && options->trust_card) && !trust)
        status = rdi_first_use_apply(ctx);
    if (status != RD_OK) {
        rd_ctx_free(ctx);
        return status;
    }
    *out = ctx;
    return RD_OK;
}

void rd_ctx_free(rd_ctx *ctx) {
    if (!ctx) return;
    rdi_selections_free(&ctx->selections);
    rdi_par_free(ctx->par);
    rd_device_close(ctx->device);
    rdi_free(ctx->own_rows);
    rdi_free(ctx);
}

const rd_device *rd_ctx_device(const rd_ctx *ctx) {
    return ctx ? ctx->device : NULL;
}
int32_t rd_ctx_threads(const rd_ctx *ctx) {
    return ctx ? rdi_par_threads(ctx->par) : 0;
}
rdi_par *rdi_ctx_par(const rd_ctx *ctx) {
    return ctx->par;
}
const rdi_log *rdi_ctx_log(const rd_ctx *ctx) {
    return &ctx->log;
}

rdi_order_question rdi_ctx_order_question(const rd_device *device, const rdi_query *query) {
    const rdi_answer *layout = rdi_query_find(query, "layout"), *order = rdi_query_find(query, "order");
    rdi_order_question question = {.arch = device->info.arch,
                                   .op = query->op->info.name,
                                   .layout = layout ? layout->word : NULL,
                                   .any_order = order && !strcmp(order->word, "any"),
                                   .units = device->info.compute_units,
                                   .rates = device->rates};
    rdi_query_int(query, "n", &question.n);
    rdi_query_int(query, "k", &question.k);
    if (query->op->info.interval_key) rdi_query_int(query, query->op->info.interval_key, &question.interval);
    return question;
}

void rdi_ctx_decide(rdi_table table, const rd_device *device, const rdi_query *query, rdi_verdicts *out) {
    const rdi_order_question question = rdi_ctx_order_question(device, query);
    rdi_order order = rdi_order_decide(&question);
    rdi_preference preference = {.exclusive = order.exclusive};
    snprintf(preference.trait, sizeof preference.trait, "%s", order.trait);
    snprintf(preference.rule, sizeof preference.rule, "%s", order.rule);
    rdi_decide(table, device, query, &preference, out);
}

rd_status rdi_ctx_explain(rdi_table table, const rd_device *device, const char *op, const rd_param *params,
                          int32_t count, rd_verdict *verdicts, int32_t *verdict_count) {
    if (!device || !verdict_count)
        return rdi_fail(RD_E_INVALID, "rd_kernel_explain: %s=NULL", device ? "verdict_count" : "device");
    rdi_query query;
    RDI_TRY(rdi_query_read(op, params, count, &query));
    rdi_verdicts all;
    rdi_ctx_decide(table, device, &query, &all);
    int32_t capacity = *verdict_count;
    *verdict_count = all.count;
    if (!verdicts) return RD_OK;
    if (capacity < all.count)
        return rdi_fail(RD_E_LIMIT, "rd_kernel_explain: verdict_count=%d, needs %d", capacity, all.count);
    memcpy(verdicts, all.at, (size_t)all.count * sizeof *verdicts);
    return RD_OK;
}

rd_status rd_kernel_explain(const rd_device *device, const char *op, const rd_param *params, int32_t count,
                            rd_verdict *verdicts, int32_t *verdict_count) {
    return rdi_ctx_explain(rdi_table_built(), device, op, params, count, verdicts, verdict_count);
}

rd_status rd_kernel_select(rd_ctx *ctx, const char *op, const rd_param *params, int32_t count,
                           const rd_kernel_info **out) {
    if (!ctx || !out) return rdi_fail(RD_E_INVALID, "rd_kernel_select: %s=NULL", ctx ? "out" : "ctx");
    *out = NULL;
    rdi_query query;
    RDI_TRY(rdi_query_read(op, params, count, &query));
    rdi_verdicts verdicts;
    rdi_ctx_decide(ctx->table, ctx->device, &query, &verdicts);
    const rdi_row *row = rdi_verdicts_chosen(&verdicts);
    char reason[512], text[RDI_QUERY_TEXT_BYTES], sorted[RDI_QUERY_TEXT_BYTES];
    rdi_verdicts_reason(&verdicts, &query, ctx->device, reason, sizeof reason);
    rdi_query_text(&query, text);
    rdi_query_sorted_text(&query, sorted);
    RDI_TRY(rdi_selections_record(&ctx->selections, query.op->info.name, text, sorted,
                                  row ? row->info.name : NULL, reason));
    if (!row) rdi_fail(RD_OK, "%s: %s", query.op->info.name, reason);
    *out = row ? &row->info : NULL;
    return RD_OK;
}

rd_status rd_selection_at(rd_ctx *ctx, int32_t index, rd_selection *out) {
    if (!ctx || !out) return rdi_fail(RD_E_INVALID, "rd_selection_at: %s=NULL", ctx ? "out" : "ctx");
    return rdi_selections_at(&ctx->selections, index, out);
}

rd_status rd_report_text(rd_ctx *ctx, char *text, size_t *bytes) {
    if (!ctx || !bytes) return rdi_fail(RD_E_INVALID, "rd_report_text: %s=NULL", ctx ? "bytes" : "ctx");
    return rdi_selections_report(&ctx->selections, ctx->table.count, text, bytes);
}
