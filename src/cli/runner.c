// SPDX-License-Identifier: Apache-2.0
// Shared by the commands that run a model: opening it, a progress function that stops on a signal.
#include "runner.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int cli_progress(void *state, const char *what, int64_t done, int64_t total) {
    (void)state;
    (void)what;
    (void)done;
    (void)total;
    return cli_interrupted();
}

double cli_now_seconds(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

// ---- opening -----------------------------------------------------------------------------------------------------------
static rd_status open_all(cli_runner *runner, const char *model, const cli_runner_options *options,
                          const rd_engine_options *engine) {
    rd_ctx_options ctx = {.struct_size = sizeof ctx,
                          .device = options->device,
                          .threads = (int32_t)options->threads,
                          .log = cli_log};
    rd_status status = rd_model_open(model, &runner->model); // first: a wrong path should not start threads
    if (status == RD_OK) status = rd_ctx_create(&ctx, &runner->ctx);
    if (status == RD_OK) status = rd_engine_create(runner->ctx, runner->model, engine, &runner->engine);
    if (status == RD_OK) status = rd_session_create(runner->engine, &runner->session);
    return status;
}

rd_status cli_runner_open(cli_runner *runner, const char *model, const cli_runner_options *options) {
    const double start = cli_now_seconds();
    if (strcmp(options->kv, "fp8") && strcmp(options->kv, "bf16"))
        return cli_error(RD_E_INVALID, "--kv=%.40s, needs bf16 or fp8", options->kv);
    // A card has no fast way to widen e4m3 weights for many rows of 16-bit activations.
    const bool on_card = !strncmp(options->device, "gpu:", 4) || !strncmp(options->device, "sim:", 4);
    const rd_engine_options engine = {.struct_size = sizeof engine,
                                      .context_tokens = (int32_t)options->context,
                                      .max_batch_rows = (int32_t)options->batch_rows,
                                      .kv_dtype = strcmp(options->kv, "fp8") ? RD_DTYPE_BF16 : RD_DTYPE_E4M3,
                                      .activation = options->w8a8 || on_card ? RD_ACT_W8A8 : RD_ACT_W8A16,
                                      .progress = cli_progress};
    rd_status status = open_all(runner, model, options, &engine);
    runner->ready_seconds = cli_now_seconds() - start;
    return status == RD_OK ? RD_OK : cli_fail(status);
}

void cli_runner_close(cli_runner *runner) {
    rd_session_free(runner->session);
    rd_engine_free(runner->engine);
    rd_ctx_free(runner->ctx);
    rd_model_close(runner->model);
    *runner = (cli_runner){0};
}

rd_status cli_print_report(rd_ctx *ctx, FILE *to) {
    size_t bytes = 0;
    rd_status status = rd_report_text(ctx, NULL, &bytes);
    char *text = status == RD_OK ? malloc(bytes + 1) : NULL;
    if (status == RD_OK && !text) return cli_error(RD_E_NOMEM, "out of memory while printing the report");
    if (status == RD_OK) status = rd_report_text(ctx, text, &bytes);
    if (status == RD_OK) fputs(text, to);
    free(text);
    return status == RD_OK ? RD_OK : cli_fail(status);
}
