// SPDX-License-Identifier: Apache-2.0
// The check at first use: the row on the card, the reference on the host, and at most two seconds for each.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // clock_gettime, nanosleep
#endif
#include "ops/first_use.h"

#include "backend/backend.h"
#include "base/convert.h"
#include "ops/first_use_cases.h"
#include "ops/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct trial { // one row at one case
    rd_ctx *card, *host;
    const rdi_op_case *c;
    const rdi_row *row;
    rd_plan *card_plan, *host_plan;
    rdi_any_args card_args, host_args;
    void *packed, *settings;
    double waited; // for the card, by the row's cases so far: seconds
    bool stuck;    // the card runs it still: what it holds cannot be freed
    char why[256];
} trial;

static rd_tensor *tensor_at(rdi_any_args *args, const rdi_case_operand *o) {
    return (rd_tensor *)(void *)((char *)args + o->offset);
}
#define EACH_OPERAND(o_, case_)                                                                              \
    for (const rdi_case_operand *o_ = (case_)->operands;                                                     \
         o_ < (case_)->operands + RDI_CASE_OPERANDS && o_->rank; o_++)

// A weight in the layout that the row wants; the reference reads every layout.
static rd_status pack_weight(trial *t, rd_tensor *w) {
    const char *layout = rdi_plan_word(t->card_plan, "layout");
    if (!layout || !strcmp(layout, "row")) return RD_OK;
    rd_tensor packed = {0};
    RDI_TRY(rd_weight_pack(t->host, w, layout, &packed));
    packed.data = t->packed = rdi_alloc((size_t)rdi_case_elems(&packed));
    if (!packed.data) return RD_E_NOMEM;
    RDI_TRY(rd_weight_pack(t->host, w, layout, &packed));
    rdi_free(w->data);
    *w = packed;
    t->packed = NULL;
    return RD_OK;
}

static rd_status make_operands(trial *t) {
    uint64_t state = 1;
    t->host_args = t->c->args;
    EACH_OPERAND(o, t->c) {
        rd_dtype dtype = o->key ? rdi_plan_dtype(t->card_plan, o->key) : o->dtype;
        rd_tensor *tensor = tensor_at(&t->host_args, o);
        *tensor = o->rank == 1   ? rd_tensor_1d(NULL, dtype, o->shape[0])
                  : o->rank == 2 ? rd_tensor_2d(NULL, dtype, o->shape[0], o->shape[1])
                  : o->rank == 3
                      ? rd_tensor_3d(NULL, dtype, o->shape[0], o->shape[1], o->shape[2])
                      : rd_tensor_4d(NULL, dtype, o->shape[0], o->shape[1], o->shape[2], o->shape[3]);
        tensor->data = rdi_calloc((size_t)rdi_case_elems(tensor), rd_dtype_bytes(dtype));
        if (!tensor->data) return RD_E_NOMEM;
        rdi_case_fill_tensor(o, tensor, &state);
        if (o->fill == RDI_FILL_WEIGHT) RDI_TRY(pack_weight(t, tensor));
    }
    return RD_OK;
}

static rd_status to_card(trial *t, const void *host, size_t bytes, void **there) {
    RDI_TRY(rd_memory_alloc(t->card, bytes, there));
    RDI_TRY(rd_memory_copy(t->card, *there, host, bytes, RD_COPY_TO_DEVICE, NULL));
    return rd_stream_sync(t->card, NULL);
}

static rd_status copy_operands(trial *t) {
    t->card_args = t->host_args;
    EACH_OPERAND(o, t->c)
    tensor_at(&t->card_args, o)->data = NULL; // so that a failure frees what is the card's
    EACH_OPERAND(o, t->c) {
        rd_tensor *there = tensor_at(&t->card_args, o);
        const rd_tensor *here = tensor_at(&t->host_args, o);
        RDI_TRY(
            to_card(t, here->data, (size_t)rdi_case_elems(here) * rd_dtype_bytes(here->dtype), &there->data));
        there->device = rd_ctx_device_number(t->card);
    }
    size_t bytes = 0;
    const void *settings = rdi_op_case_settings(t->c, &bytes);
    if (!settings) return RD_OK;
    rd_status status = to_card(t, settings, bytes, &t->settings);
    t->card_args.sample.rows = t->settings; // freed with the rest, copied to or not
    return status;
}

// ---- one row ---------------------------------------------------------------------------------------------------------------
// A kernel that never ends would hold whoever waits for it: its end is asked for, and given up after the limit.
static rd_status wait_for_card(trial *t) {
    rdi_card *card = t->card->device->card;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (bool ready = false;;) {
        RDI_TRY(card->driver->stream_ready(card, NULL, &ready));
        clock_gettime(CLOCK_MONOTONIC, &now);
        double seconds = (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
        if (ready) {
            t->waited += seconds;
            return rd_stream_sync(t->card, NULL); // a fault is told here
        }
        if (t->waited + seconds > RDI_FIRST_USE_SECONDS) break;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    t->stuck = card->stuck = true;
    return rdi_fail(RD_E_DEVICE, "%s: %s did not end in %d seconds", card->name, t->row->info.name,
                    RDI_FIRST_USE_SECONDS);
}

static rd_status run_on_host(trial *t) {
    size_t bytes = 0;
    void *ws = NULL;
    RDI_TRY(t->c->run(t->host_plan, &t->host_args, NULL, &bytes));
    RDI_TRY(rd_memory_alloc(t->host, bytes + 64, &ws));
    rd_status status = t->c->run(t->host_plan, &t->host_args, ws, &bytes);
    rd_memory_free(t->host, ws);
    return status;
}

static rd_status run_on_card(trial *t) {
    size_t bytes = 0;
    void *ws = NULL;
    RDI_TRY(t->c->run(t->card_plan, &t->card_args, NULL, &bytes));
    RDI_TRY(rd_memory_alloc(t->card, bytes + 64, &ws));
    rd_status status = t->c->run(t->card_plan, &t->card_args, ws, &bytes);
    if (status == RD_OK) status = wait_for_card(t);
    if (t->stuck) return status;
    rd_status freed = rd_memory_free(t->card, ws);
    return status == RD_OK ? freed : status;
}

static double value_at(const rd_tensor *tensor, const void *data, int64_t at) {
    return tensor->dtype == RD_DTYPE_I32 ? (double)((const int32_t *)data)[at]
                                         : (double)rdi_load_f32(data, tensor->dtype, at);
}

// Mean |difference| against mean |reference|, 1e-2: a bf16 store is off by 4e-3 at most, a wrong kernel by far more.
static bool agrees(const rd_tensor *tensor, const void *got) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < rdi_case_elems(tensor); i++) {
        double want = value_at(tensor, tensor->data, i);
        off += fabs(value_at(tensor, got, i) - want);
        size += fabs(want);
    }
    return off <= 1e-2 * size; // false for NaN too
}

static rd_status compare(trial *t) {
    EACH_OPERAND(o, t->c) {
        const rd_tensor *want = tensor_at(&t->host_args, o), *there = tensor_at(&t->card_args, o);
        if (!o->written) continue;
        size_t bytes = (size_t)rdi_case_elems(want) * rd_dtype_bytes(want->dtype);
        void *got = rdi_alloc(bytes);
        if (!got) return RD_E_NOMEM;
        rd_status status = rd_memory_copy(t->card, got, there->data, bytes, RD_COPY_TO_HOST, NULL);
        if (status == RD_OK) status = rd_stream_sync(t->card, NULL);
        bool good = status == RD_OK && agrees(want, got);
        rdi_free(got);
        RDI_TRY(status);
        if (!good)
            snprintf(t->why, sizeof t->why, "its results are not those of the reference%s%s",
                     t->c->more ? " at " : "", t->c->more ? t->c->more : "");
    }
    return RD_OK;
}

// The case's parameters with what the row insists on.
static int32_t params_for(const trial *t, rd_param params[RDI_CASE_PARAMS],
                          char words[RDI_CASE_PARAMS][RDI_WORD_BYTES]) {
    int32_t count = 0;
    while (count < RDI_CASE_PARAMS && t->c->params[count].key) count++;
    memcpy(params, t->c->params, sizeof t->c->params);
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < t->row->info.constraint_count; j++) {
            const rd_constraint *constraint = &t->row->info.constraints[j];
            if (strcmp(constraint->key, params[i].key) != 0 || params[i].kind != RD_PARAM_WORD ||
                constraint->op != RD_ONE_OF || rdi_words_contain(constraint->words, params[i].word))
                continue;
            snprintf(words[i], RDI_WORD_BYTES, "%.*s", (int)strcspn(constraint->words, " "),
                     constraint->words);
            params[i].word = words[i];
        }
    return count;
}

static rd_status try_row(trial *t, const char *reference) {
    rd_param params[RDI_CASE_PARAMS];
    char words[RDI_CASE_PARAMS][RDI_WORD_BYTES];
    int32_t count = params_for(t, params, words);
    rd_status status =
        rd_plan_create_kernel(t->card, t->row->info.name, params, count, t->c->at, t->c->at, &t->card_plan);
    if (status == RD_E_UNSUPPORTED && t->c->more) return RD_OK; // not one of its sizes: never asked of it
    RDI_TRY(status);
    RDI_TRY(rd_plan_create_kernel(t->host, reference, params, count, t->c->at, t->c->at, &t->host_plan));
    RDI_TRY(make_operands(t));
    RDI_TRY(copy_operands(t));
    RDI_TRY(run_on_host(t));
    RDI_TRY(run_on_card(t));
    return compare(t);
}

static void free_trial(trial *t) {
    EACH_OPERAND(o, t->c) {
        rdi_free(tensor_at(&t->host_args, o)->data);
        if (!t->stuck) rd_memory_free(t->card, tensor_at(&t->card_args, o)->data);
    }
    if (!t->stuck) rd_memory_free(t->card, t->settings);
    rdi_free(t->packed);
    rd_plan_free(t->card_plan);
    rd_plan_free(t->host_plan);
}

static const char *reference_of(const char *op) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (rdi_rows[i].info.is_reference && !strcmp(rdi_rows[i].info.op, op)) return rdi_rows[i].info.name;
    return NULL;
}

// A row that refuses the case, a card that refuses the row and results that differ are verdicts. A card that stopped, or that
// does not come back, is a verdict too, and an error: nothing can follow.
static rd_status judge(rd_ctx *ctx, trial *t, bool *bad) {
    rd_status status = try_row(t, reference_of(t->c->op));
    const bool stopped = status == RD_E_DEVICE;
    if (stopped || status == RD_E_INTERNAL || status == RD_E_INVALID || status == RD_E_UNSUPPORTED)
        snprintf(t->why, sizeof t->why, "%s", rd_error_text());
    *bad = *t->why != 0;
    if (*bad) rdi_log_write(&ctx->log, RD_LOG_ERROR, "%s is left out: %s", t->row->info.name, t->why);
    free_trial(t);
    if (!*bad) return status;
    if (!stopped) return RD_OK;
    return rdi_fail(RD_E_DEVICE,
                    "first use: %s stopped the card and is left out from now on: start again (a card that "
                    "does not come back needs a reset): %s",
                    t->row->info.name, t->why);
}

static rd_status judge_at_cases(rd_ctx *ctx, rd_ctx *host, const rdi_row *row, bool *bad) {
    rd_status status = RD_OK;
    double waited = 0;
    const rdi_op_case *c = NULL;
    while (status == RD_OK && !*bad && (c = rdi_op_case_next(row->info.op, c)) != NULL) {
        if (c->order && strcmp(c->order, row->info.order) != 0) continue;
        trial t = {.card = ctx, .host = host, .row = row, .c = c, .waited = waited};
        status = judge(ctx, &t, bad);
        waited = t.waited;
    }
    return status;
}

rd_status rdi_first_use_run(rd_ctx *ctx, bool *bad) {
    rd_ctx *host = NULL;
    RDI_TRY(rd_ctx_create(
        &(rd_ctx_options){.struct_size = sizeof(rd_ctx_options), .device = "cpu:ref", .threads = 1}, &host));
    rd_status status = RD_OK;
    for (int32_t i = 0; i < ctx->table.count && status == RD_OK; i++) {
        const rdi_row *row = &ctx->table.rows[i];
        if (!bad[i] && row->backend == ctx->device->backend && row->geometry)
            status = judge_at_cases(ctx, host, row, &bad[i]);
    }
    rd_ctx_free(host);
    return status;
}
