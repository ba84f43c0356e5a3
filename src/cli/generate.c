// SPDX-License-Identifier: Apache-2.0
// radiance generate: one answer, streamed or as JSON; without a prompt on a terminal, a chat.
#include "chat.h"
#include "runner.h"

#include <cJSON.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USAGE "generate MODEL [--prompt TEXT | --prompt-file FILE] [options]"
#define ABOUT                                                                                                \
    "Answers a prompt with a model (a Hugging Face folder or a .gguf file). Without a prompt: reads "        \
    "standard input, or\n"                                                                                   \
    "chats when that is a terminal. Ctrl-C stops cleanly with what was generated."

typedef struct generate_options {
    cli_runner_options runner;
    const char *prompt, *prompt_file, *system;
    int64_t max_tokens, top_k, top_logits, seed;
    double temperature, top_p, min_p;
    bool raw, special, json, report, stats, ignore_end, as_ids;
} generate_options;

typedef struct answer {
    char *prompt; // as the model sees it
    int32_t *prompt_ids, *ids;
    int64_t prompt_count;
    int32_t *top_ids;
    float *top_values;
    int64_t top_count;
    double prefill_seconds;
    rd_generate_result result;
} answer;

static void free_answer(answer *a) {
    free(a->prompt);
    free(a->prompt_ids);
    free(a->ids);
    free(a->top_ids);
    free(a->top_values);
}

// ---- prompt ----------------------------------------------------------------------------------------------------------
static rd_status make_prompt(const generate_options *o, const rd_tokenizer *tokenizer, const char *text,
                             size_t bytes, answer *a) {
    rd_status status = RD_OK;
    if (o->raw) {
        uint32_t flags = RD_TOKENIZE_ADD_BOS | (o->special ? RD_TOKENIZE_SPECIAL : 0);
        a->prompt_ids = cli_tokenize(tokenizer, text, bytes, flags, &a->prompt_count, &status);
        return status;
    }
    rd_chat_message messages[2] = {{"system", o->system}, {"user", text}};
    const int skip = o->system ? 0 : 1;
    size_t rendered = 0;
    a->prompt = cli_render_chat(tokenizer, messages + skip, 2 - skip, &rendered, &status);
    if (a->prompt)
        a->prompt_ids =
            cli_tokenize(tokenizer, a->prompt, rendered, RD_TOKENIZE_SPECIAL, &a->prompt_count, &status);
    return status;
}

// ---- top logits -------------------------------------------------------------------------------------------------------
typedef struct scored {
    float value;
    int32_t id;
} scored;
// Ties by id. NaN comes last: an order that held for some pairs alone would be undefined to qsort.
static int larger_first(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (isnan(x->value) != isnan(y->value)) return isnan(x->value) ? 1 : -1;
    if (x->value > y->value || x->value < y->value) return x->value > y->value ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static rd_status keep_top_logits(answer *a, const float *logits, int32_t vocab, int64_t k) {
    if (k > vocab) k = vocab;
    scored *all = malloc((size_t)vocab * sizeof *all);
    a->top_ids = malloc((size_t)(k + 1) * sizeof *a->top_ids);
    a->top_values = malloc((size_t)(k + 1) * sizeof *a->top_values);
    if (!all || !a->top_ids || !a->top_values) {
        free(all);
        return RD_E_NOMEM;
    }
    for (int32_t id = 0; id < vocab; id++) all[id] = (scored){logits[id], id};
    qsort(all, (size_t)vocab, sizeof *all, larger_first);
    for (; a->top_count < k; a->top_count++) {
        a->top_ids[a->top_count] = all[a->top_count].id;
        a->top_values[a->top_count] = all[a->top_count].value;
    }
    free(all);
    return RD_OK;
}

// ---- output -------------------------------------------------------------------------------------------------------------
typedef struct text_sink {
    cli_utf8 utf8;
    char *text; // NULL: to stdout
    size_t bytes, capacity;
    bool quiet, lost;
    int64_t shown; // ids printed where the model has no tokenizer; -1: it has one
} text_sink;

static void sink_text(void *state, const char *text, size_t bytes) {
    text_sink *sink = state;
    if (!sink->quiet) {
        fwrite(text, 1, bytes, stdout);
        fflush(stdout);
        return;
    }
    if (sink->bytes + bytes + 1 > sink->capacity) {
        size_t capacity = 2 * (sink->bytes + bytes + 1);
        char *larger = realloc(sink->text, capacity);
        if (!larger) {
            sink->lost = true;
            return;
        }
        sink->text = larger;
        sink->capacity = capacity;
    }
    memcpy(sink->text + sink->bytes, text, bytes);
    sink->bytes += bytes;
    sink->text[sink->bytes] = 0;
}

static int on_token(void *state, int32_t id, const char *bytes, size_t count) {
    text_sink *sink = state;
    if (sink->shown >= 0 && !sink->quiet) {
        printf("%s%" PRId32, sink->shown++ ? "," : "", id);
        fflush(stdout);
        return cli_interrupted();
    }
    cli_utf8_push(&sink->utf8, bytes, count, sink_text, sink);
    return cli_interrupted();
}

static double per_second(double count, double seconds) {
    return count > 0 && seconds > 0 ? count / seconds : 0;
}
static double prefill_rate(const answer *a) {
    return per_second((double)a->result.prefilled_tokens, a->prefill_seconds);
}
static double
decode_rate(const answer *a) { // passes, not tokens: the first token comes from the prefill's logits
    return per_second((double)(a->result.generated + a->result.hit_end - 1), a->result.decode_seconds);
}

static rd_status print_json(const answer *a, const text_sink *sink) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddItemToObject(root, "prompt_ids", cJSON_CreateIntArray(a->prompt_ids, (int)a->prompt_count));
    cJSON_AddItemToObject(root, "ids", cJSON_CreateIntArray(a->ids, (int)a->result.generated));
    cJSON_AddStringToObject(root, "text", sink->text ? sink->text : "");
    cJSON *top = cJSON_AddArrayToObject(root, "top_logits");
    for (int64_t i = 0; i < a->top_count; i++) {
        const double pair[] = {a->top_ids[i], a->top_values[i]};
        cJSON_AddItemToArray(top, cJSON_CreateDoubleArray(pair, 2));
    }
    cJSON_AddNumberToObject(root, "prefill_tok_s", prefill_rate(a));
    cJSON_AddNumberToObject(root, "decode_tok_s", decode_rate(a));
    cJSON_AddBoolToObject(root, "hit_end", a->result.hit_end);
    cJSON_AddBoolToObject(root, "hit_limit", a->result.hit_limit);
    cJSON_AddBoolToObject(root, "interrupted", cli_interrupted());
    char *text = sink->lost ? NULL : cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    if (!text) return cli_error(RD_E_NOMEM, "out of memory while printing JSON");
    puts(text);
    cJSON_free(text);
    return RD_OK;
}

static void print_stats(const cli_runner *runner, const answer *a) {
    fflush(stdout); // the two may be one terminal: the answer ends before its figures
    fprintf(stderr,
            "ready in %.0f ms; prefill %" PRId64 " tokens, %.1f tok/s; decode %" PRId64
            " tokens, %.1f tok/s\n",
            1e3 * runner->ready_seconds, a->result.prefilled_tokens, prefill_rate(a), a->result.generated,
            decode_rate(a));
}

// ---- the answer -----------------------------------------------------------------------------------------------------------
static rd_sample_row sampling_of(const generate_options *o) {
    return (rd_sample_row){.temperature = (float)o->temperature,
                           .top_p = (float)o->top_p,
                           .min_p = (float)o->min_p,
                           .top_k = (int32_t)o->top_k,
                           .seed = (uint64_t)o->seed};
}

static rd_status run(const cli_runner *runner, const generate_options *o, text_sink *sink, answer *a) {
    rd_model_info info = {.struct_size = sizeof info};
    rd_status status = rd_model_get_info(runner->model, &info);
    if (status != RD_OK) return status;
    a->result = (rd_generate_result){.struct_size = sizeof a->result};
    const double start = cli_now_seconds();
    status = rd_session_sync(runner->session, a->prompt_ids, a->prompt_count, cli_progress, NULL);
    a->prefill_seconds = cli_now_seconds() - start;
    if (status == RD_OK && o->top_logits)
        status = keep_top_logits(a, rd_session_logits(runner->session), info.vocab, o->top_logits);
    if (status != RD_OK) return status;
    const rd_generate_options options = {.struct_size = sizeof options,
                                         .max_tokens = (int32_t)o->max_tokens,
                                         .sampling = sampling_of(o),
                                         .ignore_end = o->ignore_end,
                                         .on_token = on_token,
                                         .on_token_state = sink};
    a->ids = malloc((size_t)(o->max_tokens + 1) * sizeof *a->ids);
    if (!a->ids) return RD_E_NOMEM;
    status = rd_generate(runner->session, a->prompt_ids, a->prompt_count, &options, a->ids, &a->result);
    a->result.prefilled_tokens = a->prompt_count;
    cli_utf8_finish(&sink->utf8, sink_text, sink);
    return status == RD_E_CANCELLED ? RD_OK : status; // a signal: what was generated is the answer
}

static rd_status answer_prompt(const cli_runner *runner, const generate_options *o, const char *text,
                               size_t bytes) {
    answer a = {0};
    const rd_tokenizer *tokenizer = rd_model_tokenizer(runner->model);
    if (!tokenizer && !o->as_ids) return cli_no_tokenizer();
    text_sink sink = {.quiet = o->json, .shown = tokenizer ? -1 : 0};
    rd_status status = RD_OK;
    if (o->as_ids && (status = cli_read_ids(text, bytes, &a.prompt_ids, &a.prompt_count)) != RD_OK) {
        free_answer(&a);
        return status;
    }
    if (!o->as_ids) status = make_prompt(o, tokenizer, text, bytes, &a);
    if (status == RD_OK) status = run(runner, o, &sink, &a);
    if (status != RD_OK) cli_fail(status);
    if (status == RD_OK && !o->json) putchar('\n');
    if (status == RD_OK && o->json) status = print_json(&a, &sink);
    if (status == RD_OK && o->stats) print_stats(runner, &a);
    free(sink.text);
    free_answer(&a);
    return status;
}

static rd_status run_command(const char *model, const generate_options *o, const char *text, size_t bytes) {
    cli_runner runner = {0};
    rd_status status = cli_runner_open(&runner, model, &o->runner);
    if (status == RD_OK && o->report) status = cli_print_report(runner.ctx, stderr);
    const cli_chat_options chat = {.system = o->system,
                                   .max_tokens = (int32_t)o->max_tokens,
                                   .stats = o->stats,
                                   .sampling = sampling_of(o)};
    if (status == RD_OK) status = text ? answer_prompt(&runner, o, text, bytes) : cli_chat(&runner, &chat);
    cli_runner_close(&runner);
    return status;
}

static rd_status check_sampling(const generate_options *o) {
    if (o->temperature < 0) return cli_error(RD_E_INVALID, "--temperature=%g, needs >= 0", o->temperature);
    if (o->top_p <= 0 || o->top_p > 1)
        return cli_error(RD_E_INVALID, "--top-p=%g, needs above 0 to 1", o->top_p);
    if (o->min_p < 0 || o->min_p > 1) return cli_error(RD_E_INVALID, "--min-p=%g, needs 0 to 1", o->min_p);
    if (o->prompt && o->prompt_file)
        return cli_error(RD_E_INVALID, "--prompt and --prompt-file exclude each other");
    return RD_OK;
}

static rd_status prompt_and_run(const char *model, const generate_options *o) {
    if (o->prompt) return run_command(model, o, o->prompt, strlen(o->prompt));
    if (!o->prompt_file && isatty(STDIN_FILENO)) return run_command(model, o, NULL, 0);
    size_t bytes;
    char *text = cli_read_file(o->prompt_file ? o->prompt_file : "-", &bytes);
    if (!text) return RD_E_IO;
    rd_status status = run_command(model, o, text, bytes);
    free(text);
    return status;
}

rd_status cli_run_generate(int argc, char **argv) {
    generate_options o = {.runner = CLI_RUNNER_DEFAULTS, .max_tokens = 256, .top_p = 1};
    const cli_option options[] = {
        {"--prompt", CLI_TEXT, &o.prompt, "TEXT", "the user's text", 0, 0},
        {"--prompt-file", CLI_TEXT, &o.prompt_file, "FILE", "read it from a file, - for standard input", 0,
         0},
        {"--system", CLI_TEXT, &o.system, "TEXT", "system text; default the chat template's own", 0, 0},
        {"--raw", CLI_FLAG, &o.raw, NULL, "no chat template", 0, 0},
        {"--ids", CLI_FLAG, &o.as_ids, NULL,
         "the prompt is token ids: 1,2,3; so is the answer of a model without a tokenizer", 0, 0},
        {"--special", CLI_FLAG, &o.special, NULL,
         "with --raw: special tokens written in the prompt count as such", 0, 0},
        {"--max-tokens", CLI_INT, &o.max_tokens, "N", "most tokens to generate; default 256", 0, 1 << 24},
        {"--temperature", CLI_REAL, &o.temperature, "X", "default 0: the likeliest token each time", 0, 0},
        {"--top-k", CLI_INT, &o.top_k, "N", "draw among the N likeliest; default 0 = off", 0, INT32_MAX},
        {"--top-p", CLI_REAL, &o.top_p, "X", "draw within this much probability; default 1 = off", 0, 0},
        {"--min-p", CLI_REAL, &o.min_p, "X", "drop what is rarer than X times the likeliest; default 0 = off",
         0, 0},
        {"--seed", CLI_INT, &o.seed, "N", "of the draws; default 0", 0, INT64_MAX},
        {"--ignore-end", CLI_FLAG, &o.ignore_end, NULL, "keep going past an end token", 0, 0},
        {"--top-logits", CLI_INT, &o.top_logits, "N",
         "with --json: the N largest logits of the last prompt position", 1, 1 << 24},
        {"--report", CLI_FLAG, &o.report, NULL, "print the kernel selection report first", 0, 0},
        {"--stats", CLI_FLAG, &o.stats, NULL, "print times when done", 0, 0},
        CLI_OPTION_JSON(&o.json),
        CLI_RUNNER_OPTIONS(o.runner)};
    cli_args args;
    rd_status status = cli_parse(USAGE, ABOUT, options, CLI_COUNT(options), 1, 1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    status = check_sampling(&o);
    if (status != RD_OK) return status;
    cli_catch_interrupt();
    return prompt_and_run(args.items[0], &o);
}
