// SPDX-License-Identifier: Apache-2.0
// What the commands that run a model share: opening model and engine, a clean stop on SIGINT, text in and out.
#ifndef CLI_RUNNER_H
#define CLI_RUNNER_H

#include "cli.h"
#include "radiance_run.h"

#include <stdio.h>

// ---- model, engine, session ------------------------------------------------------------------------------------------
typedef struct cli_runner_options {
    const char *device, *kv;
    int64_t threads, context, batch_rows;
    bool w8a8;
} cli_runner_options;
#define CLI_RUNNER_DEFAULTS                                                                                  \
    { .device = "cpu", .kv = "bf16" }
#define CLI_RUNNER_OPTIONS(o_)                                                                               \
    CLI_OPTION_DEVICE(&(o_).device), CLI_OPTION_THREADS(&(o_).threads),                                      \
        {"--kv", CLI_TEXT, &(o_).kv, "TYPE", "KV cache: bf16 (default) or fp8", 0, 0},                       \
        {"--w8a8",                                                                                           \
         CLI_FLAG,                                                                                           \
         &(o_).w8a8,                                                                                         \
         NULL,                                                                                               \
         "quantise activations too in block-FP8 layers (a card always does)",                                \
         0,                                                                                                  \
         0},                                                                                                 \
        {"--context", CLI_INT, &(o_).context, "N", "tokens a session can hold; default the model's",         \
         1,           1 << 24},                                                                              \
    {                                                                                                        \
        "--batch-rows", CLI_INT, &(o_).batch_rows, "N", "most tokens of a prefill chunk; default 512", 1,    \
            65536                                                                                            \
    }

typedef struct cli_runner {
    rd_ctx *ctx;
    rd_model *model;
    rd_engine *engine;
    rd_session *session;
    double ready_seconds;
} cli_runner;
// Prints its errors.
rd_status cli_runner_open(cli_runner *runner, const char *model, const cli_runner_options *options);
void cli_runner_close(cli_runner *runner);
rd_status cli_print_report(rd_ctx *ctx, FILE *to);

double cli_now_seconds(void);

int cli_progress(void *state, const char *what, int64_t done,
                 int64_t total); // an rd_progress_fn: stops when interrupted

// ---- text -------------------------------------------------------------------------------------------------------------
// Whole UTF-8 sequences only: an unfinished one waits for its rest, what can never become one is U+FFFD.
typedef struct cli_utf8 {
    unsigned char pending[4];
    int pending_bytes;
} cli_utf8;
typedef void (*cli_text_fn)(void *state, const char *text, size_t bytes);
void cli_utf8_push(cli_utf8 *utf8, const char *bytes, size_t count, cli_text_fn out, void *state);
void cli_utf8_finish(cli_utf8 *utf8, cli_text_fn out, void *state);

char *cli_read_file(const char *path, size_t *bytes); // "-" = stdin; malloc'd, NULL with a message on stderr
// malloc'd text and ids; NULL with rd_error_text set.
char *cli_render_chat(const rd_tokenizer *tokenizer, const rd_chat_message *messages, int32_t count,
                      size_t *bytes, rd_status *status);
int32_t *cli_tokenize(const rd_tokenizer *tokenizer, const char *text, size_t bytes, uint32_t flags,
                      int64_t *count, rd_status *status);
// "1, 2, 3" or "1 2 3": what no text may give, as a prompt of a random model does. *ids is the caller's to free, on failure too; prints
// its errors.
rd_status cli_read_ids(const char *text, size_t bytes, int32_t **ids, int64_t *count);
rd_status cli_no_tokenizer(void); // says why rd_model_tokenizer() was NULL, and the way without one

#endif // CLI_RUNNER_H
