// SPDX-License-Identifier: Apache-2.0
// Benches on a card: the operands of a call in several copies that are used in turn and lie beyond its caches together, one
// launch on each recorded as a graph, replays of it between two events.
#include "bench.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_COPIES = 64, LEAST_REPLAYS = 3 };
// Twice the largest cache behind which card memory lies: 256 MiB of Infinity Cache (docs/gfx1201.md: the R9700 has 64).
static const int64_t beyond_bytes = 512 << 20, most_bytes = (int64_t)4 << 30;

typedef struct card_copy {
    void *base[CHECK_TENSORS + 1];
    int count;
    _Alignas(16) char args[CHECK_ARGS_BYTES];
} card_copy;
struct bench_card {
    bench_run *run;
    const bench_call *call;
    const check_op *op;
    rd_plan *plan;
    rd_stream stream;
    rd_graph *graph;
    rd_timer *timer;
    void *ws;
    size_t ws_bytes;
    card_copy *copy;
    int copies;
};

static rd_status put(bench_card *c, card_copy *to, const void *host, size_t bytes, void **there) {
    rd_ctx *ctx = c->run->ctx;
    rd_status status = rd_memory_alloc(ctx, bytes, there);
    if (status != RD_OK) return status;
    to->base[to->count++] = *there;
    status = rd_memory_copy(ctx, *there, host, bytes, RD_COPY_TO_DEVICE, c->stream);
    return status == RD_OK ? rd_stream_sync(ctx, c->stream) : status;
}

static rd_status fill_copy(bench_card *c, card_copy *to) {
    memcpy(to->args, c->call->args, c->op->bytes);
    rd_status status = RD_OK;
    for (int i = 0; i < c->op->count && status == RD_OK; i++) {
        rd_tensor *tensor = (rd_tensor *)(void *)(to->args + c->op->tensor[i]);
        if (!tensor->data) continue;
        status = put(c, to, tensor->data, check_span_bytes(tensor), &tensor->data);
        tensor->device = rd_ctx_device_number(c->run->ctx);
    }
    if (status != RD_OK || c->op != &check_op_sample) return status;
    rd_sample_args *sample = (rd_sample_args *)(void *)to->args;
    return put(c, to, sample->rows, (size_t)sample->logits.shape[0] * sizeof(rd_sample_row),
               (void **)(uintptr_t)&sample->rows);
}

// rope_kv_write has one k in two structs: what the first half brought, the second reads.
static void share_k(const bench_card *c, card_copy *to) {
    check_rope_kv_write_args *both = (check_rope_kv_write_args *)(void *)to->args;
    if (c->op == &check_op_rope_kv_write) both->kv.k = both->rope.k;
}

static int64_t operand_bytes(const bench_card *c) {
    int64_t bytes = 0;
    for (int i = 0; i < c->op->count; i++) {
        const rd_tensor *tensor =
            (const rd_tensor *)(const void *)((const char *)c->call->args + c->op->tensor[i]);
        if (tensor->data) bytes += (int64_t)check_span_bytes(tensor);
    }
    return bytes > 0 ? bytes : 1;
}

static int copies_for(const bench_card *c) {
    if (c->run->simulated) return 2; // nothing is timed there
    const int64_t whole = operand_bytes(c), read = c->call->bytes > 1 ? (int64_t)c->call->bytes : 1;
    int64_t copies = beyond_bytes / read + 2, room = most_bytes / whole;
    copies = copies < room ? copies : room;
    return (int)(copies < 2 ? 2 : copies > MOST_COPIES ? MOST_COPIES : copies);
}

static rd_status launch(bench_card *c, int copy) {
    return c->op->run(c->plan, c->copy[copy].args, c->ws, &c->ws_bytes, c->stream);
}

static rd_status fill(bench_card *c, const char *kernel) {
    const bench_call *call = c->call;
    rd_ctx *ctx = c->run->ctx;
    rd_status status =
        rd_plan_create_kernel(ctx, kernel, call->params, call->param_count, call->at, call->at, &c->plan);
    if (status == RD_OK) status = rd_stream_create(ctx, &c->stream);
    if (status == RD_OK) status = rd_timer_create(ctx, &c->timer);
    c->copies = copies_for(c);
    c->copy = calloc((size_t)c->copies, sizeof *c->copy);
    if (status == RD_OK && !c->copy) return cli_error(RD_E_NOMEM, "no memory for the operands' places");
    for (int i = 0; i < c->copies && status == RD_OK; i++) {
        status = fill_copy(c, &c->copy[i]);
        share_k(c, &c->copy[i]);
    }
    if (status == RD_OK) status = c->op->run(c->plan, c->copy[0].args, NULL, &c->ws_bytes, c->stream);
    if (status == RD_OK) status = rd_memory_alloc(ctx, c->ws_bytes + 1, &c->ws);
    return status == RD_OK ? RD_OK : cli_fail(status);
}

rd_status bench_card_open(bench_run *run, const bench_call *call, const char *kernel, bench_card **out) {
    bench_card *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return cli_error(RD_E_NOMEM, "out of memory");
    *c = (bench_card){.run = run, .call = call, .op = check_op_of(run->op)};
    rd_status status =
        c->op ? fill(c, kernel) : cli_error(RD_E_UNSUPPORTED, "%s has no bench on a card", run->op);
    if (status == RD_OK)
        *out = c;
    else
        bench_card_close(c);
    return status;
}

void bench_card_close(bench_card *c) {
    if (!c) return;
    rd_ctx *ctx = c->run->ctx;
    rd_graph_free(c->graph);
    rd_timer_free(c->timer);
    for (int i = 0; c->copy && i < c->copies; i++)
        for (int at = 0; at < c->copy[i].count; at++) rd_memory_free(ctx, c->copy[i].base[at]);
    rd_memory_free(ctx, c->ws);
    rd_stream_free(ctx, c->stream);
    rd_plan_free(c->plan);
    free(c->copy);
    free(c);
}

rd_status bench_card_once(bench_card *c) {
    rd_status status = launch(c, 0);
    for (int i = 0; i < c->op->count && status == RD_OK; i++) {
        const rd_tensor *host =
                            (const rd_tensor *)(const void *)((const char *)c->call->args + c->op->tensor[i]),
                        *there = (const rd_tensor *)(const void *)(c->copy[0].args + c->op->tensor[i]);
        if (host->data && c->op->writes >> i & 1)
            status = rd_memory_copy(c->run->ctx, host->data, there->data, check_span_bytes(host),
                                    RD_COPY_TO_HOST, c->stream);
    }
    if (status == RD_OK) status = rd_stream_sync(c->run->ctx, c->stream);
    return status == RD_OK ? RD_OK : cli_fail(status);
}

static rd_status record(bench_card *c) {
    rd_status status = rd_graph_begin(c->run->ctx, c->stream);
    if (status != RD_OK) return status;
    for (int i = 0; i < c->copies && status == RD_OK; i++) status = launch(c, i);
    rd_status ended = rd_graph_end(c->run->ctx, c->stream, &c->graph);
    return status == RD_OK ? ended : status;
}

// Microseconds of one call, over one replay.
static rd_status replay(bench_card *c, double *us) {
    rd_status status = rd_timer_start(c->timer, c->stream);
    if (status == RD_OK) status = rd_graph_launch(c->graph, c->stream);
    if (status == RD_OK) status = rd_timer_stop(c->timer, c->stream);
    if (status == RD_OK) status = rd_timer_read(c->timer, us);
    *us /= c->copies;
    return status;
}

rd_status bench_card_time(bench_card *c, bench_result *r) {
    static bench_samples samples; // 32 KiB: not for the stack
    samples.count = 0;
    double us = 0;
    rd_status status = record(c);
    if (status == RD_OK) status = replay(c, &us); // the first brings code and tables
    const bool simulated = c->run->simulated;
    for (double end = bench_wall() + (simulated ? 0 : c->run->options->seconds);
         status == RD_OK && (bench_wall() < end || samples.count < (simulated ? 1 : LEAST_REPLAYS));) {
        if (cli_interrupted()) return RD_E_CANCELLED;
        status = replay(c, &us);
        bench_sample(&samples, us * 1e-6);
    }
    if (status == RD_OK && !simulated) status = rd_ctx_measure_read(c->run->ctx, beyond_bytes, &r->read_gbs);
    if (status != RD_OK) return cli_fail(status);
    r->us_best = bench_best(&samples), r->us_median = bench_median(&samples);
    r->state = (double)c->copies * r->bytes >= (double)beyond_bytes ? "cold" : "hot";
    return RD_OK;
}
