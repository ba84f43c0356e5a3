// SPDX-License-Identifier: Apache-2.0
// One case of radiance check: the reference once, every row of the op, and the comparison.
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rd_status check_output_new(check_output *output, check_judge judge, double limit, double least,
                           int64_t count) {
    *output = (check_output){.judge = judge, .limit = limit, .least = least, .count = count};
    size_t bytes = (size_t)count * sizeof(float);
    output->got = malloc(bytes), output->want = malloc(bytes), output->first = malloc(bytes);
    if (output->got && output->want && output->first) return RD_OK;
    check_output_free(output);
    return RD_E_NOMEM;
}

void check_output_free(check_output *output) {
    free(output->got), free(output->want), free(output->first);
    *output = (check_output){0};
}

// Error as a share of the limit; NaN where the reference has none is the worst there is.
static double judged_error(const check_output *o) {
    double worst = 0, difference = 0, size = 0;
    int64_t different = 0;
    for (int64_t i = 0; i < o->count; i++) {
        double got = (double)o->got[i], want = (double)o->want[i];
        if (isnan(got) && isnan(want)) continue;
        if (isnan(got) || isnan(want)) return INFINITY;
        double off = got == want ? 0 : fabs(got - want); // equal infinities
        difference += off, size += fabs(want), different += off != 0;
        double allowed = o->limit * fabs(want) + o->least;
        if (o->judge == CHECK_CLOSE && off > 0) worst = fmax(worst, off / allowed);
        if (o->judge == CHECK_CODES && off > 1) return INFINITY;
    }
    if (o->judge == CHECK_MEAN) return difference == 0 ? 0 : difference / size / o->limit;
    if (o->judge == CHECK_CLOSE || different == 0) return worst;
    return (double)different / fmax(o->limit * (double)o->count, o->least);
}

static bool same_value(float a, float b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b && !signbit(a) == !signbit(b);
}

// Place of the first value that is not the class's, or -1.
static int64_t class_difference(check_output *o, const char *order) {
    if (!o->order || strcmp(o->order, order) != 0) {
        if (o->order) return -1; // another class: its first row is not kept
        o->order = order;
        memcpy(o->first, o->got, (size_t)o->count * sizeof(float));
        return -1;
    }
    for (int64_t i = 0; i < o->count; i++)
        if (!same_value(o->first[i], o->got[i])) return i;
    return -1;
}

static void fail_row(check_row *row, const char *case_name, const char *what) {
    if (!row->failed) snprintf(row->failure, sizeof row->failure, "%s: %.110s", case_name, what);
    row->failed++;
}

static void judge_row(check_row *row, check_case *c) {
    static const char *const measures[] = {[CHECK_MEAN] = "mean |difference| / mean |reference|",
                                           [CHECK_CLOSE] =
                                               "largest |difference| / |reference|, near zero absolute",
                                           [CHECK_SHARE] = "share of values that differ",
                                           [CHECK_CODES] = "share of codes that differ, by one step"};
    char what[112];
    bool failed = false;
    for (int i = 0; i < c->output_count; i++) {
        check_output *o = &c->outputs[i];
        double error = judged_error(o);
        if (error >= row->worst) {
            row->worst = error;
            row->worst_limit = o->limit;
            row->worst_measure = measures[o->judge];
            snprintf(row->worst_case, sizeof row->worst_case, "%s", c->name);
        }
        int64_t at = class_difference(o, row->kernel->order);
        if (error > 1)
            snprintf(what, sizeof what, "error %.3g times the limit", error);
        else if (at >= 0)
            snprintf(what, sizeof what, "value %lld is not that of order class %s", (long long)at,
                     row->kernel->order);
        else
            continue;
        if (!failed) fail_row(row, c->name, what);
        failed = true;
    }
}

static rd_status execute(check_run *run, check_case *c, const rd_kernel_info *kernel) {
    rd_plan *plan = NULL;
    c->ctx = kernel->is_reference ? run->host : run->ctx;
    rd_status status =
        rd_plan_create_kernel(c->ctx, kernel->name, c->params, c->param_count, c->at, c->at, &plan);
    if (status == RD_OK) {
        // Poison: a value that the row leaves unwritten is NaN.
        for (int i = 0; i < c->output_count; i++)
            memset(c->outputs[i].got, 0xff, (size_t)c->outputs[i].count * sizeof(float));
        status = c->execute(c, plan, kernel);
    }
    rd_plan_free(plan);
    return status;
}

static bool stopped(check_run *run) {
    if (run->status == RD_OK && cli_interrupted()) run->status = RD_E_CANCELLED;
    return run->status != RD_OK;
}

void check_case_run(check_run *run, check_case *c) {
    if (stopped(run)) return;
    if (!c->have_reference) {
        run->status = execute(run, c, run->reference);
        if (run->status != RD_OK) {
            cli_error(run->status, "%s: %s: %s", run->reference->name, c->name, rd_error_text());
            return;
        }
        for (int i = 0; i < c->output_count; i++)
            memcpy(c->outputs[i].want, c->outputs[i].got, (size_t)c->outputs[i].count * sizeof(float));
        c->have_reference = true;
    }
    for (int i = 0; i < run->row_count && !stopped(run); i++) {
        check_row *row = &run->rows[i];
        rd_status status = execute(run, c, row->kernel);
        if (status == RD_E_UNSUPPORTED) {
            row->refused++;
            snprintf(row->refusal, sizeof row->refusal, "%s", rd_error_text());
            continue;
        }
        row->cases++;
        // A fault stops a card: what follows would only repeat it.
        if (status == RD_E_DEVICE || status == RD_E_NO_DEVICE) {
            snprintf(run->fault, sizeof run->fault, "%s: %s: %s", row->kernel->name, c->name,
                     rd_error_text());
            run->status = cli_error(status, "%s", run->fault);
            fail_row(row, c->name, rd_error_text());
            return;
        }
        if (status != RD_OK)
            fail_row(row, c->name, rd_error_text());
        else
            judge_row(row, c);
    }
}
