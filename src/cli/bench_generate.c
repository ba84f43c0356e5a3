// SPDX-License-Identifier: Apache-2.0
// Bench of a whole model: prefill of 512 tokens, then decode of 32 at a short and at a long context, a token at a time. Best of
// as many runs as the time allows. Before anything is timed, two runs must give the same tokens.
#include "bench.h"

#include "radiance_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFILL = 512, STEPS = 32, MOST_CONTEXT = 4096 };

typedef struct generate_bench {
    rd_model *model;
    rd_engine *engine;
    rd_session *session;
    rd_model_info info;
    rd_memory_report memory;
    int32_t prompt[MOST_CONTEXT], ids[STEPS];
} generate_bench;

static int progress(void *state, const char *what, int64_t done, int64_t total) {
    (void)state, (void)what, (void)done, (void)total;
    return cli_interrupted();
}

static rd_status open_model(bench_run *run, generate_bench *g) {
    const char *path = run->options->model;
    if (!path) return cli_error(RD_E_INVALID, "bench generate needs --model, a model folder or a .gguf file");
    g->info = (rd_model_info){.struct_size = sizeof g->info};
    g->memory = (rd_memory_report){.struct_size = sizeof g->memory};
    rd_engine_options options = {.struct_size = sizeof options, .progress = progress};
    rd_status status = rd_model_open(path, &g->model);
    if (status == RD_OK) status = rd_model_get_info(g->model, &g->info);
    if (status == RD_OK) {
        options.context_tokens =
            g->info.context_tokens < MOST_CONTEXT ? g->info.context_tokens : MOST_CONTEXT;
        status = rd_engine_memory(run->ctx, g->model, &options, &g->memory);
    }
    if (status == RD_OK) status = rd_engine_create(run->ctx, g->model, &options, &g->engine);
    if (status == RD_OK) status = rd_session_create(g->engine, &g->session);
    for (int i = 0; status == RD_OK && i < MOST_CONTEXT; i++)
        g->prompt[i] = (int32_t)(i * 37 % g->info.vocab);
    return status == RD_OK ? RD_OK : cli_fail(status);
}

static void close_model(generate_bench *g) {
    rd_session_free(g->session);
    rd_engine_free(g->engine);
    rd_model_close(g->model);
}

// Seconds of a prefill of `tokens` and of decoding `steps` after it.
static rd_status run_once(generate_bench *g, int32_t tokens, int32_t steps, double *prefill, double *decode) {
    const rd_generate_options options = {.struct_size = sizeof options, .max_tokens = steps, .ignore_end = 1};
    rd_generate_result result = {.struct_size = sizeof result};
    rd_status status = rd_session_truncate(g->session, 0);
    double begin = bench_now();
    if (status == RD_OK) status = rd_session_sync(g->session, g->prompt, tokens, progress, NULL);
    *prefill = bench_now() - begin, begin = bench_now();
    if (status == RD_OK) status = rd_generate(g->session, g->prompt, tokens, &options, g->ids, &result);
    *decode = bench_now() - begin;
    if (status == RD_OK && cli_interrupted()) status = RD_E_CANCELLED;
    return status == RD_OK || status == RD_E_CANCELLED ? status : cli_fail(status);
}

static rd_status verify(generate_bench *g, int32_t tokens) {
    int32_t first[STEPS];
    double prefill, decode;
    rd_status status = run_once(g, tokens, STEPS, &prefill, &decode);
    memcpy(first, g->ids, sizeof first);
    if (status == RD_OK) status = run_once(g, tokens, STEPS, &prefill, &decode);
    if (status == RD_OK && memcmp(first, g->ids, sizeof first))
        status = cli_error(RD_E_INTERNAL, "generate: two runs gave other tokens: not timed");
    return status;
}

// One figure a token: prefill against multiply-adds, decode against the bytes of the packed weights.
static rd_status bench_depth(bench_run *run, generate_bench *g, int32_t tokens, bool prefill) {
    static bench_samples samples; // 32 KiB: not for the stack
    char shape[64];
    samples.count = 0;
    snprintf(shape, sizeof shape, prefill ? "prefill,tokens=%d" : "decode,at=%d", (int)tokens);
    double embedding = (double)g->info.vocab * g->info.hidden,
           linear = (double)g->info.parameters - embedding;
    if (!g->info.tied_head) linear -= embedding; // the head of one position is nothing beside 512 of the rest
    bench_result result = {.kernel = "generate", .shape = shape, .state = "model"};
    if (prefill) {
        result.flops = 2 * linear;
    } else {
        result.bytes = (double)g->memory.weights_packed;
        result.flops = 2 * (linear + embedding);
    }
    void *data = calloc(1, 256 << 20); // the ceiling reads it: untouched pages would all be one
    if (!data) return cli_error(RD_E_NOMEM, "no memory for the read ceiling");
    memset(data, 1, 256 << 20);
    rd_status status = RD_OK;
    for (double end = bench_wall() + run->options->seconds;
         status == RD_OK && (bench_wall() < end || samples.count < 2);) {
        double seconds[2];
        status = run_once(g, tokens, prefill ? 1 : STEPS, &seconds[0], &seconds[1]);
        bench_sample(&samples, prefill ? seconds[0] / tokens
                                       : seconds[1] / (STEPS - 1)); // the first comes from the prefill
        double read = bench_read_gbs(run->threads, data, 256 << 20),
               fma = bench_fma_gflops(run->threads, run->device.isa);
        result.read_gbs = read > result.read_gbs ? read : result.read_gbs;
        result.fma_gflops = fma > result.fma_gflops ? fma : result.fma_gflops;
    }
    free(data);
    result.us_best = bench_best(&samples), result.us_median = bench_median(&samples);
    return status == RD_OK ? bench_report(run, &result) : status;
}

rd_status bench_generate(bench_run *run) {
    if (bench_on_card(run))
        return cli_error(RD_E_UNSUPPORTED, "device=%s: `bench step` times a model's passes on a card",
                         run->device.name);
    generate_bench *g = calloc(1, sizeof *g);
    if (!g) return cli_error(RD_E_NOMEM, "out of memory");
    int64_t depth = 0;
    rd_status status = open_model(run, g);
    int32_t room = status == RD_OK ? (int32_t)rd_session_room(g->session) - STEPS : 0;
    if (status == RD_OK && bench_shape_value(run->options, "AT", &depth) && depth > room)
        status = cli_error(RD_E_LIMIT, "shape: AT=%lld, needs at most %d", (long long)depth, (int)room);
    if (status == RD_OK) status = verify(g, depth ? (int32_t)depth : room < 64 ? room : 64);
    if (status == RD_OK && !depth && room >= PREFILL) status = bench_depth(run, g, PREFILL, true);
    const int32_t depths[] = {64, 2048};
    for (int i = 0; status == RD_OK && !depth && i < CLI_COUNT(depths); i++)
        if (depths[i] <= room) status = bench_depth(run, g, depths[i], false);
    if (status == RD_OK && depth) status = bench_depth(run, g, (int32_t)depth, false);
    close_model(g);
    free(g);
    return status;
}
