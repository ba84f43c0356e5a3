// SPDX-License-Identifier: Apache-2.0
// radiance compare: how far apart two models' next-token distributions are on a text: what quantising has cost, or what
// another device's arithmetic does.
//
//   KL(A || B) at a position = sum over tokens of p_A (ln p_A - ln p_B), in nats; the mean over all positions.
//   logits: largest and root mean square of A - B over positions and tokens. Greedy choices can only part where the gap
//   between A's two likeliest tokens is at most twice the largest.
#include "runner.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USAGE "compare MODEL_A MODEL_B --text FILE [options]"
#define ABOUT                                                                                                \
    "Mean Kullback-Leibler divergence of next-token distributions, how often the likeliest tokens agree, "   \
    "how far\n"                                                                                              \
    "logits lie apart, and each model's perplexity. MODEL_A is the reference; its tokenizer reads the text."

typedef struct compare_options {
    cli_runner_options a, b;
    const char *text;
    int64_t window, threads;
    bool json, as_ids;
} compare_options;

typedef struct totals {
    int64_t positions, agree, predicted;
    double kl, kl_max, nll_a, nll_b, off_max, off_squares;
    double parted_gap; // largest gap of A's two likeliest where B's likeliest is another
} totals;

enum { WIDTH = 16 }; // positions a pass gives logits of

static int32_t top_of(const float *logits, int32_t vocab) {
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static double log_sum_exp(const float *logits, int32_t vocab, int32_t top) {
    double others = 0; // the top itself adds exp(0)
    for (int32_t i = 0; i < vocab; i++)
        if (i != top) others += exp((double)logits[i] - (double)logits[top]);
    return (double)logits[top] + log1p(others);
}

static void add_differences(totals *t, const float *a, const float *b, int32_t vocab) {
    double squares = 0;
    for (int32_t i = 0; i < vocab; i++) {
        const double off = (double)a[i] - (double)b[i];
        squares += off * off;
        t->off_max = fmax(t->off_max, fabs(off));
    }
    t->off_squares += squares / vocab;
}

// next < 0: the text ends here.
static void add_position(totals *t, const float *a, const float *b, int32_t vocab, int32_t next) {
    const int32_t top_a = top_of(a, vocab), top_b = top_of(b, vocab);
    const double lse_a = log_sum_exp(a, vocab, top_a), lse_b = log_sum_exp(b, vocab, top_b);
    double kl = 0;
    for (int32_t i = 0; i < vocab; i++) {
        const double log_p = (double)a[i] - lse_a;
        kl += exp(log_p) * (log_p - ((double)b[i] - lse_b));
    }
    add_differences(t, a, b, vocab);
    t->positions++;
    t->agree += top_a == top_b;
    if (top_a != top_b) t->parted_gap = fmax(t->parted_gap, (double)a[top_a] - (double)a[top_b]);
    t->kl += kl;
    t->kl_max = fmax(t->kl_max, kl);
    if (next < 0) return;
    t->predicted++;
    t->nll_a += lse_a - (double)a[next];
    t->nll_b += lse_b - (double)b[next];
}

// Logits of ids[at..at+count) for one model: the first token of a window by prefill, the others by wide steps.
static rd_status logits_of(cli_runner *runner, const int32_t *ids, int64_t at, int32_t count, int32_t vocab,
                           float *out) {
    if (at > 0) {
        const rd_step_item item = {runner->session, ids + at, count, out};
        return rd_engine_step(runner->engine, &item, 1);
    }
    rd_status status = rd_session_truncate(runner->session, 0);
    if (status == RD_OK) status = rd_session_sync(runner->session, ids, 1, NULL, NULL);
    if (status == RD_OK) memcpy(out, rd_session_logits(runner->session), (size_t)vocab * sizeof *out);
    return status;
}

static rd_status compare_window(cli_runner *pair, const int32_t *ids, int64_t count, int32_t vocab,
                                float *logits, totals *t) {
    float *const b = logits + (int64_t)WIDTH * vocab;
    for (int64_t at = 0; at < count;) {
        const int32_t rows = at == 0 ? 1 : count - at < WIDTH ? (int32_t)(count - at) : WIDTH;
        rd_status status = logits_of(&pair[0], ids, at, rows, vocab, logits);
        if (status == RD_OK) status = logits_of(&pair[1], ids, at, rows, vocab, b);
        if (status != RD_OK) return status;
        for (int32_t r = 0; r < rows; r++)
            add_position(t, logits + (int64_t)r * vocab, b + (int64_t)r * vocab, vocab,
                         at + r + 1 < count ? ids[at + r + 1] : -1);
        at += rows;
        if (cli_interrupted()) return RD_OK;
    }
    return RD_OK;
}

static rd_status print_totals(const totals *t, bool json) {
    const double kl = t->kl / (double)t->positions, agree = (double)t->agree / (double)t->positions;
    const double off_rms = sqrt(t->off_squares / (double)t->positions);
    const double ppl_a = exp(t->nll_a / fmax(1, (double)t->predicted)),
                 ppl_b = exp(t->nll_b / fmax(1, (double)t->predicted));
    if (!json) {
        printf(
            "positions        %" PRId64
            "\nmean KL          %.6f nats (largest %.4f)\ntop-1 agreement  %.2f %%\n"
            "perplexity       %.4f and %.4f\nlogits           %.4f apart (root mean square), %.4f at most; "
            "likeliest tokens part at gaps up to %.4f\n",
            t->positions, kl, t->kl_max, 100 * agree, ppl_a, ppl_b, off_rms, t->off_max, t->parted_gap);
        return RD_OK;
    }
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "positions", (double)t->positions);
    cli_json_real(root, "mean_kl", kl);
    cli_json_real(root, "max_kl", t->kl_max);
    cli_json_real(root, "top1_agreement", agree);
    cli_json_real(root, "perplexity_a", ppl_a);
    cli_json_real(root, "perplexity_b", ppl_b);
    cli_json_real(root, "rms_logit_difference", off_rms);
    cli_json_real(root, "max_logit_difference", t->off_max);
    cli_json_real(root, "largest_parted_gap", t->parted_gap);
    return cli_print_json(root);
}

static rd_status compare_text(cli_runner *pair, const compare_options *o, const char *text, size_t bytes) {
    rd_model_info a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    rd_status status = rd_model_get_info(pair[0].model, &a);
    if (status == RD_OK) status = rd_model_get_info(pair[1].model, &b);
    if (status != RD_OK) return cli_fail(status);
    if (a.vocab != b.vocab)
        return cli_error(RD_E_INVALID, "vocabularies of %d and %d tokens, needs the same", a.vocab, b.vocab);
    const rd_tokenizer *tokenizer = rd_model_tokenizer(pair[0].model);
    int64_t count = 0;
    int32_t *ids = NULL;
    if (o->as_ids) {
        if ((status = cli_read_ids(text, bytes, &ids, &count)) != RD_OK) {
            free(ids);
            return status;
        }
    } else {
        if (!tokenizer) return cli_no_tokenizer();
        ids = cli_tokenize(tokenizer, text, bytes, RD_TOKENIZE_ADD_BOS, &count, &status);
        if (!ids) return cli_fail(status);
    }
    float *logits = malloc(sizeof *logits * 2 * WIDTH * (size_t)a.vocab);
    if (!logits) {
        free(ids);
        return cli_error(RD_E_NOMEM, "out of memory for logits");
    }
    totals t = {0};
    for (int64_t at = 0; status == RD_OK && at < count && !cli_interrupted(); at += o->window) {
        int64_t rows = count - at < o->window ? count - at : o->window;
        status = compare_window(pair, ids + at, rows, a.vocab, logits, &t);
        if (status != RD_OK) cli_fail(status);
    }
    free(logits);
    free(ids);
    if (status != RD_OK) return status;
    return t.positions ? print_totals(&t, o->json)
                       : cli_error(RD_E_INVALID, "the text is empty, needs a token or more");
}

static rd_status compare_models(char **models, const compare_options *o, const char *text, size_t bytes) {
    cli_runner pair[2] = {0};
    rd_status status = cli_runner_open(&pair[0], models[0], &o->a);
    if (status == RD_OK) status = cli_runner_open(&pair[1], models[1], &o->b);
    if (status == RD_OK) status = compare_text(pair, o, text, bytes);
    cli_runner_close(&pair[1]);
    cli_runner_close(&pair[0]);
    return status;
}

rd_status cli_run_compare(int argc, char **argv) {
    compare_options o = {.a = CLI_RUNNER_DEFAULTS, .b = CLI_RUNNER_DEFAULTS, .window = 512};
    o.b.device = NULL;
    const cli_option options[] = {
        {"--text", CLI_TEXT, &o.text, "FILE", "the text, - for standard input", 0, 0},
        {"--ids", CLI_FLAG, &o.as_ids, NULL, "the text is token ids: 1,2,3", 0, 0},
        {"--window", CLI_INT, &o.window, "N", "tokens that see each other; default 512", 2, 1 << 20},
        {"--kv-a", CLI_TEXT, &o.a.kv, "TYPE", "KV cache of A: bf16 (default) or fp8", 0, 0},
        {"--kv-b", CLI_TEXT, &o.b.kv, "TYPE", "KV cache of B", 0, 0},
        {"--w8a8-a", CLI_FLAG, &o.a.w8a8, NULL, "A quantises activations too", 0, 0},
        {"--w8a8-b", CLI_FLAG, &o.b.w8a8, NULL, "B quantises activations too", 0, 0},
        CLI_OPTION_DEVICE(&o.a.device),
        {"--device-b", CLI_TEXT, &o.b.device, "NAME", "of B, default the same", 0, 0},
        CLI_OPTION_THREADS(&o.threads),
        CLI_OPTION_JSON(&o.json)};
    cli_args args;
    rd_status status = cli_parse(USAGE, ABOUT, options, CLI_COUNT(options), 2, 2, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (!o.text) return cli_error(RD_E_INVALID, "--text is missing, needs a file or -");
    if (!o.b.device) o.b.device = o.a.device;
    o.a.threads = o.b.threads = o.threads;
    o.a.context = o.b.context = o.window;
    o.a.batch_rows = o.b.batch_rows = WIDTH;
    size_t bytes;
    char *text = cli_read_file(o.text, &bytes);
    if (!text) return RD_E_IO;
    cli_catch_interrupt();
    status = compare_models(args.items, &o, text, bytes);
    free(text);
    return status;
}
