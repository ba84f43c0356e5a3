// SPDX-License-Identifier: Apache-2.0
// The frame of every bench but GEMM's: one call of an op, checked row by row against the op's reference and then timed in
// turns with the read ceiling over as many bytes.
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 16, MOST_PARAMS = 16 };

void *bench_room(bench_buffers *buffers, int64_t bytes) {
    void *data = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096 + 4096);
    if (!data || buffers->count == CLI_COUNT(buffers->at)) {
        free(data);
        buffers->failed = true;
        return NULL;
    }
    memset(data, 0, (size_t)bytes);
    buffers->at[buffers->count++] = data;
    return data;
}

void bench_buffers_free(bench_buffers *buffers) {
    for (int i = 0; i < buffers->count; i++) free(buffers->at[i]);
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

// Uniform in +-size for bf16 and f32; for e4m3 every code but NaN of the upper exponents' kind.
void bench_fill(void *data, rd_dtype dtype, int64_t count, float size) {
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; data && i < count; i++) {
        uint64_t r = next_random(&state);
        float value = size * ((float)(r >> 40) * 0x1p-23f - 1.0f);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == RD_DTYPE_F32)
            ((float *)data)[i] = value;
        else if (dtype == RD_DTYPE_BF16)
            ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        else
            ((uint8_t *)data)[i] = (uint8_t)((r & 0x87) | (4 + (r >> 8) % 4) << 3);
    }
}

static double value_at(const rd_tensor *t, int64_t i) {
    if (t->dtype == RD_DTYPE_F32) return (double)((const float *)t->data)[i];
    if (t->dtype == RD_DTYPE_I32) return ((const int32_t *)t->data)[i];
    if (t->dtype == RD_DTYPE_BF16) {
        uint32_t bits = (uint32_t)((const uint16_t *)t->data)[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    uint8_t code = ((const uint8_t *)t->data)[i]; // e4m3: codes of one sign are in the order of their values
    return code & 0x80 ? -(double)(code & 0x7f) : (double)code;
}

static int64_t elems_of(const rd_tensor *t) {
    int64_t elems = 1;
    for (int32_t axis = 0; axis < t->rank; axis++) elems *= t->shape[axis];
    return elems;
}

typedef struct launcher {
    rd_plan *plan;
    void *ws;
    size_t ws_bytes;
} launcher;

static void launcher_free(launcher *l) {
    rd_plan_free(l->plan);
    free(l->ws);
}

static rd_status launcher_make(rd_ctx *ctx, const bench_call *call, const char *kernel, launcher *l) {
    *l = (launcher){0};
    rd_status status =
        rd_plan_create_kernel(ctx, kernel, call->params, call->param_count, call->at, call->at, &l->plan);
    if (status == RD_OK) status = call->run(l->plan, call->args, NULL, &l->ws_bytes);
    if (status != RD_OK) return cli_fail(status);
    l->ws = aligned_alloc(64, (l->ws_bytes + 127) / 64 * 64);
    return l->ws ? RD_OK : cli_error(RD_E_NOMEM, "no memory for %zu bytes of workspace", l->ws_bytes);
}

static rd_status launch(const bench_call *call, launcher *l) {
    rd_status status = call->run(l->plan, call->args, l->ws, &l->ws_bytes);
    return status == RD_OK ? RD_OK : cli_fail(status);
}

static void freshen(const bench_call *call) {
    if (call->prepare) call->prepare(call->state);
    if (call->rotate) call->rotate(call->state, 0);
    if (!call->in_place)
        memset(call->out->data, 0xff, (size_t)elems_of(call->out) * rd_dtype_bytes(call->out->dtype)); // NaN
}

// Runs once from fresh operands and leaves the output as numbers.
static rd_status run_once(const bench_call *call, launcher *l, double *out) {
    freshen(call);
    rd_status status = launch(call, l);
    for (int64_t i = 0; i < elems_of(call->out); i++) out[i] = value_at(call->out, i);
    return status;
}

static rd_status check(const bench_call *call, const char *kernel, const double *got, const double *want,
                       double *error) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < elems_of(call->out); i++) off += fabs(got[i] - want[i]), size += fabs(want[i]);
    *error = off / (size > 0 ? size : 1) / call->limit;
    if (*error <= 1) return RD_OK;
    return cli_error(RD_E_INTERNAL, "%s: mean|difference|/mean|reference|=%.3g, needs <= %g: not timed",
                     kernel, *error * call->limit, call->limit);
}

// Samples of at least 50 us where the operands are in cache; of one call on the next copy where they are not.
static rd_status time_row(bench_run *run, const bench_call *call, launcher *l, bench_result *r) {
    static bench_samples ours; // 32 KiB: not for the stack
    ours.count = 0;
    int64_t turn = 0;
    for (double end = bench_wall() + run->options->seconds; bench_wall() < end || ours.count < 3;) {
        if (cli_interrupted()) return RD_E_CANCELLED;
        double begin = bench_now(), now;
        int64_t calls = 0;
        do {
            if (call->rotate) call->rotate(call->state, turn++);
            rd_status status = launch(call, l);
            if (status != RD_OK) return status;
            calls++, now = bench_now();
        } while (!call->rotate && now - begin < 50e-6);
        bench_sample(&ours, (now - begin) / (double)calls);
        if (ours.count % 8 == 1) {
            double read = bench_read_gbs(run->threads, call->memory, call->memory_bytes);
            r->read_gbs = read > r->read_gbs ? read : r->read_gbs;
        }
    }
    if (call->flops > 0) r->fma_gflops = bench_fma_gflops(run->threads, run->device.isa);
    r->us_best = bench_best(&ours), r->us_median = bench_median(&ours);
    return RD_OK;
}

static rd_status bench_row(bench_run *run, const bench_call *call, const rd_kernel_info *kernel,
                           const double *want, double *got) {
    bench_result result = {.kernel = kernel->name,
                           .shape = call->shape,
                           .state = call->rotate ? "cold" : "hot",
                           .bytes = call->bytes,
                           .flops = call->flops};
    launcher l;
    rd_status status = launcher_make(run->ctx, call, kernel->name, &l);
    if (status == RD_OK) status = run_once(call, &l, got);
    if (status == RD_OK) status = check(call, kernel->name, got, want, &result.error);
    if (status == RD_OK) status = time_row(run, call, &l, &result);
    if (status == RD_OK) status = bench_report(run, &result);
    launcher_free(&l);
    return status;
}

static rd_status bench_row_on_card(bench_run *run, const bench_call *call, const rd_kernel_info *kernel,
                                   const double *want, double *got) {
    bench_result result = {
        .kernel = kernel->name, .shape = call->shape, .bytes = call->bytes, .flops = call->flops};
    bench_card *card = NULL;
    freshen(call);
    rd_status status = bench_card_open(run, call, kernel->name, &card);
    if (status == RD_OK) status = bench_card_once(card);
    for (int64_t i = 0; i < elems_of(call->out); i++) got[i] = value_at(call->out, i);
    if (status == RD_OK) status = check(call, kernel->name, got, want, &result.error);
    if (status == RD_OK) status = bench_card_time(card, &result);
    if (status == RD_OK) status = bench_report(run, &result);
    bench_card_close(card);
    return status;
}

static const char *reference_of(const char *op) {
    const rd_kernel_info *info;
    for (int32_t i = 0; (info = rd_kernel_at(i)); i++)
        if (info->is_reference && !strcmp(info->op, op)) return info->name;
    return "none";
}

rd_status bench_call_rows(bench_run *run, const bench_call *call) {
    const rd_kernel_info *rows[MOST_ROWS];
    rd_param question[MOST_PARAMS];
    const char *interval = rd_op_find(run->op)->interval_key;
    int found = 0, count = call->param_count;
    memcpy(question, call->params, (size_t)count * sizeof *question);
    if (interval) question[count++] = (rd_param)RD_INT(interval, call->at);
    rd_status status = bench_rows(run, question, count, rows, MOST_ROWS, &found);
    if (status != RD_OK) return status;
    if (!found)
        return cli_error(RD_E_UNSUPPORTED, "no such row takes %s: ask `radiance explain`", call->shape);
    double *want = calloc((size_t)elems_of(call->out), sizeof *want);
    double *got = calloc((size_t)elems_of(call->out), sizeof *got);
    launcher l = {0};
    if (!want || !got) {
        free(got), free(want);
        return cli_error(RD_E_NOMEM, "no memory for the reference");
    }
    status = launcher_make(run->host, call, reference_of(run->op), &l);
    if (status == RD_OK) status = run_once(call, &l, want);
    launcher_free(&l);
    for (int i = 0; status == RD_OK && i < found; i++)
        status = bench_on_card(run) ? bench_row_on_card(run, call, rows[i], want, got)
                                    : bench_row(run, call, rows[i], want, got);
    free(got), free(want);
    return status;
}
