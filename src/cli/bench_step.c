// SPDX-License-Identifier: Apache-2.0
// Bench of a model's passes: a decode step at each batch, and a prefill pass. The whole pass first, then each of its kernels, then
// what the kernels' order costs or wins. A configuration alone is enough: weights are then random, all layers alike.
#include "bench.h"

#include "radiance_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BATCHES = 16, VERIFY_PROMPT = 5, VERIFY_STEPS = 4, LEAST_REPEATS = 5 };
static const int64_t CARD_READ_BYTES = (int64_t)2 << 30, HOST_READ_BYTES = (int64_t)256 << 20,
                     SIM_READ_BYTES = 1 << 18;

typedef struct step_bench {
    bench_run *run;
    rd_model *model;
    rd_engine *engine;
    rd_model_info info;
    int32_t batch[MOST_BATCHES], batches, most, context, prefill;
    double read_gbs, fma_gflops;
} step_bench;

// "1,4,16": numbers from 1 to 128.
static rd_status read_batches(const char *text, step_bench *b) {
    for (const char *at = text; *at && b->batches < MOST_BATCHES;) {
        char *end = NULL;
        const long value = strtol(at, &end, 10);
        if (end == at || value < 1 || value > 128 || (*end && *end != ',') || (*end == ',' && !end[1])) break;
        b->batch[b->batches++] = (int32_t)value;
        if (value > b->most) b->most = (int32_t)value;
        at = *end ? end + 1 : end;
        if (!*at) return RD_OK;
    }
    return cli_error(RD_E_INVALID, "--batch=%.60s, needs up to %d numbers of sequences from 1 to 128: 1,4,16",
                     text, MOST_BATCHES);
}

static rd_status read_options(step_bench *b) {
    const bench_options *o = b->run->options;
    if (!o->config == !o->model)
        return cli_error(RD_E_INVALID,
                         "bench step needs one of --config (a file with the fields of a config.json) and "
                         "--model");
    b->context = o->context ? (int32_t)o->context : 4096;
    b->prefill = o->prefill ? (int32_t)o->prefill : 512;
    return read_batches(o->batch ? o->batch : "1,4,16,64", b);
}

static int progress(void *state, const char *what, int64_t done, int64_t total) {
    (void)state, (void)what, (void)done, (void)total;
    return cli_interrupted();
}

// Defaults shrink to what the model holds; a number that was asked for is run or refused.
static rd_status fit_context(step_bench *b) {
    const bench_options *o = b->run->options;
    const int32_t most = b->info.context_tokens;
    if (o->context >= most)
        return cli_error(RD_E_INVALID,
                         "--context=%d, needs 1 to %d: the model's %d positions less the step's",
                         (int)b->context, (int)most - 1, (int)most);
    if (o->prefill > most)
        return cli_error(RD_E_INVALID, "--prefill=%d, needs 1 to the model's %d positions", (int)b->prefill,
                         (int)most);
    if (b->context >= most) b->context = most - 1;
    if (b->prefill > most) b->prefill = most;
    return RD_OK;
}

static rd_status open_model(step_bench *b) {
    const bench_options *o = b->run->options;
    b->info = (rd_model_info){.struct_size = sizeof b->info};
    rd_status status =
        o->config ? rd_model_open_random(o->config, 1, &b->model) : rd_model_open(o->model, &b->model);
    if (status == RD_OK) status = rd_model_get_info(b->model, &b->info);
    if (status != RD_OK) return cli_fail(status);
    if ((status = fit_context(b)) != RD_OK) return status;
    const int32_t tokens = b->context + 1 > b->prefill ? b->context + 1 : b->prefill;
    const bool fp8_kv = o->kv && !strcmp(o->kv, "fp8"), on_card = rd_ctx_device_number(b->run->ctx) != 0;
    if (o->kv && !fp8_kv && strcmp(o->kv, "bf16") != 0)
        return cli_error(RD_E_INVALID, "--kv=%.40s, needs bf16 or fp8", o->kv);
    const rd_engine_options options = {
        .struct_size = sizeof options,
        .context_tokens = tokens < VERIFY_PROMPT + VERIFY_STEPS ? VERIFY_PROMPT + VERIFY_STEPS : tokens,
        .max_sessions = b->most,
        .max_batch_rows = b->prefill > b->most ? b->prefill : b->most,
        .kv_dtype = fp8_kv ? RD_DTYPE_E4M3 : RD_DTYPE_BF16,
        .activation = o->w8a8 || on_card ? RD_ACT_W8A8 : RD_ACT_W8A16,
        .progress = progress};
    status = rd_engine_create(b->run->ctx, b->model, &options, &b->engine);
    return status == RD_OK ? RD_OK : cli_fail(status);
}

// ---- checked before timed: steps from an equal start give equal, finite logits, run or replayed ------------------------------
static rd_status steps_of(const step_bench *b, rd_session *session, float *logits) {
    const int32_t vocab = b->info.vocab;
    int32_t ids[VERIFY_PROMPT + VERIFY_STEPS];
    for (int i = 0; i < CLI_COUNT(ids); i++) ids[i] = (int32_t)((i * 7919) % vocab);
    rd_status status = rd_session_sync(session, ids, VERIFY_PROMPT, NULL, NULL);
    for (int i = 0; i < VERIFY_STEPS && status == RD_OK; i++) {
        const rd_step_item item = {.session = session, .ids = &ids[VERIFY_PROMPT + i], .count = 1};
        status = rd_engine_step(b->engine, &item, 1);
        const float *row = status == RD_OK ? rd_session_logits(session) : NULL;
        if (row) memcpy(logits + (int64_t)i * vocab, row, (size_t)vocab * sizeof *row);
        if (status == RD_OK && !row) status = RD_E_DEVICE;
    }
    return status;
}

static rd_status verify(const step_bench *b) {
    const int64_t count = (int64_t)VERIFY_STEPS * b->info.vocab;
    float *first = calloc((size_t)count, sizeof *first), *second = calloc((size_t)count, sizeof *second);
    rd_session *session = NULL;
    rd_status status = first && second ? rd_session_create(b->engine, &session) : RD_E_NOMEM;
    if (status == RD_OK) status = steps_of(b, session, first);
    if (status == RD_OK) status = rd_session_truncate(session, 0);
    if (status == RD_OK) status = steps_of(b, session, second);
    rd_session_free(session);
    if (status != RD_OK) {
        status = first && second ? cli_fail(status) : cli_error(status, "no memory for logits");
    } else if (memcmp(first, second, (size_t)count * sizeof *first) != 0) {
        status = cli_error(RD_E_INTERNAL, "step: two runs of the same steps gave other logits: not timed");
    }
    for (int64_t i = 0; first && i < count && status == RD_OK; i++)
        if (!isfinite(first[i]))
            status = cli_error(RD_E_INTERNAL, "step: a logit is %g: not timed", (double)first[i]);
    free(second), free(first);
    return status;
}

// ---- figures -----------------------------------------------------------------------------------------------------------------
// state: "whole", "alone" (a part's calls one after another) or "in pass" (what the pass is longer for them).
static rd_status report(step_bench *b, const char *pass, const char *state, const rd_profile_part *part,
                        double best, double median) {
    char shape[128];
    snprintf(shape, sizeof shape, "%s,part=%s,calls=%d", pass, part->name, (int)part->calls);
    const bench_result result = {.kernel = part->kernel,
                                 .shape = shape,
                                 .state = state,
                                 .us_best = best,
                                 .us_median = median,
                                 .bytes = part->bytes,
                                 .flops = part->flops,
                                 .read_gbs = b->read_gbs,
                                 .fma_gflops = b->fma_gflops};
    return bench_report(b->run, &result);
}

static void print_summary(const step_bench *b, const char *pass, const rd_profile *p) {
    const double floor_us = b->read_gbs > 0 ? p->bytes / b->read_gbs / 1e3 : 0,
                 order = p->us_median - p->parts_us;
    printf("  %s: %.1f us a pass%s, %.1f us of bytes at the read ceiling (%.1f%%); kernels alone sum to %.1f "
           "us, their "
           "order %s %.1f us (%.2f us a kernel)\n  of the pass, us:",
           pass, p->us_median, p->is_graph ? " as one graph" : "", floor_us, 100 * floor_us / p->us_median,
           p->parts_us, order > 0 ? "costs" : "wins", fabs(order),
           order / (p->kernel_calls ? p->kernel_calls : 1));
    for (int32_t i = 0; i < p->part_count; i++) printf(" %s %.0f", p->part[i].name, p->part[i].us_in_pass);
    printf("\n");
}

static rd_status report_profile(step_bench *b, const char *pass, const rd_profile *p) {
    const bool kept = b->run->list || b->run->options->csv;
    rd_profile_part whole = {
        .name = "all", .kernel = "step", .calls = p->kernel_calls, .bytes = p->bytes, .flops = p->flops};
    rd_status status = report(b, pass, "whole", &whole, p->us_best, p->us_median);
    for (int32_t i = 0; i < p->part_count && status == RD_OK; i++) {
        const rd_profile_part *part = &p->part[i];
        status = report(b, pass, "alone", part, part->us, part->us);
        if (status == RD_OK && kept)
            status = report(b, pass, "in pass", part, part->us_in_pass, part->us_in_pass);
    }
    whole.name = "sum";
    if (status == RD_OK) status = report(b, pass, "alone", &whole, p->parts_us, p->parts_us);
    if (!b->run->list && status == RD_OK) print_summary(b, pass, p);
    return status;
}

static rd_status bench_pass(step_bench *b, int32_t batch) {
    static rd_profile profile; // 800 bytes of figures
    const double seconds = b->run->options->seconds;
    rd_profile_options options = {.struct_size = sizeof options,
                                  .sessions = batch ? batch : 1,
                                  .context_tokens = batch ? b->context : 0,
                                  .prefill_tokens = batch ? 0 : b->prefill,
                                  .repeats = LEAST_REPEATS + (int32_t)(seconds * 50),
                                  .progress = progress};
    char pass[96];
    if (batch)
        snprintf(pass, sizeof pass, "step,batch=%d,context=%d", (int)batch, (int)b->context);
    else
        snprintf(pass, sizeof pass, "prefill,tokens=%d", (int)b->prefill);
    profile = (rd_profile){.struct_size = sizeof profile};
    if (cli_interrupted()) return RD_E_CANCELLED;
    rd_status status = rd_engine_profile(b->engine, &options, &profile);
    return status == RD_OK ? report_profile(b, pass, &profile) : cli_fail(status);
}

static rd_status measure_ceilings(step_bench *b) {
    const bool on_card = rd_ctx_device_number(b->run->ctx) != 0,
               simulated = !strncmp(b->run->device.name, "sim:", 4);
    const int64_t bytes = simulated ? SIM_READ_BYTES : on_card ? CARD_READ_BYTES : HOST_READ_BYTES;
    rd_status status = rd_ctx_measure_read(b->run->ctx, bytes, &b->read_gbs);
    if (!on_card) b->fma_gflops = bench_fma_gflops(b->run->threads, b->run->device.isa);
    return status == RD_OK ? RD_OK : cli_fail(status);
}

rd_status bench_step(bench_run *run) {
    step_bench b = {.run = run};
    rd_status status = read_options(&b);
    if (status == RD_OK) status = measure_ceilings(&b); // before the weights take the memory
    if (status == RD_OK) status = open_model(&b);
    if (status == RD_OK) status = verify(&b);
    for (int32_t i = 0; i < b.batches && status == RD_OK; i++) status = bench_pass(&b, b.batch[i]);
    if (status == RD_OK) status = bench_pass(&b, 0);
    rd_engine_free(b.engine);
    rd_model_close(b.model);
    return status;
}
