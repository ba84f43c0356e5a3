// SPDX-License-Identifier: Apache-2.0
// radiance bench: the command, its table and its CSV. The benches themselves stand in bench_*.c.
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const struct {
    const char *op, *about, *uses;
    rd_status (*run)(bench_run *run);
} benches[] = {
#define BENCH_OP(op_, about_, uses_, function_) {#op_, about_, uses_, function_},
#include "bench.def"
#undef BENCH_OP
};

bool bench_shape_value(const bench_options *options, const char *key, int64_t *value) {
    size_t length = strlen(key);
    for (const char *at = options->shape; at && *at; at += strcspn(at, ", "), at += strspn(at, ", "))
        if (!strncasecmp(at, key, length) && at[length] == '=') {
            *value = strtoll(at + length + 1, NULL, 10);
            return true;
        }
    return false;
}

// Every part must read key=number, number from 1 to 2^30, each key one of the bench's own and once: a misspelt shape must not time
// another one.
static rd_status check_shape(const char *shape, const char *op, const char *uses) {
    const char *keys = strstr(uses, "shape="), *end_of_keys = keys ? keys + strcspn(keys, " ") : NULL;
    for (const char *at = shape; at && *at; at += strcspn(at, ", "), at += strspn(at, ", ")) {
        char *end = NULL;
        size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        bool pair = name && at[name] == '=', known = false, again = false;
        long long value = pair ? strtoll(at + name + 1, &end, 10) : 0;
        if (value < 1 || value > 1 << 30 || (*end && *end != ',' && *end != ' '))
            return cli_error(RD_E_INVALID,
                             "shape=%s, needs key=number pairs such as M=1,N=4096,K=4096, numbers up to %d",
                             shape, 1 << 30);
        for (const char *key = keys; key && key < end_of_keys; key += strcspn(key, "=, ") + 1)
            known |= strcspn(key, "=, ") == name && key != keys && !strncasecmp(key, at, name);
        if (!known)
            return cli_error(RD_E_INVALID, "shape=%s: bench %s has no key %.*s, needs: %s", shape, op,
                             (int)name, at, uses);
        for (const char *past = shape; past < at; past += strcspn(past, ", "), past += strspn(past, ", "))
            again |= past[name] == '=' && !strncasecmp(past, at, name);
        if (again)
            return cli_error(RD_E_INVALID, "shape=%s: %.*s is there twice, needs it once", shape, (int)name,
                             at);
    }
    return RD_OK;
}

// An option that a bench does not use would leave its caller with figures of something else.
static rd_status check_options(const bench_options *o, const char *op, const char *uses) {
    const struct {
        const char *name;
        bool given;
    } options[] = {{"shape", o->shape},
                   {"layout", o->layout},
                   {"kernel", o->kernel},
                   {"all", o->all},
                   {"rival", o->rival},
                   {"model", o->model},
                   {"config", o->config},
                   {"batch", o->batch},
                   {"context", o->context != 0},
                   {"prefill", o->prefill != 0},
                   {"kv", o->kv},
                   {"w8a8", o->w8a8},
                   {"csv", o->csv},
                   {"cpu-time", o->cpu_time}};
    for (int i = 0; i < CLI_COUNT(options); i++) {
        bool used = false;
        const size_t length = strlen(options[i].name);
        for (const char *at = uses; *at; at += strcspn(at, " "), at += strspn(at, " "))
            used |= strcspn(at, " =") == length && !strncmp(at, options[i].name, length);
        if (options[i].given && !used)
            return cli_error(RD_E_INVALID, "bench %s does not use --%s, needs options of its own: %s", op,
                             options[i].name, uses);
    }
    return RD_OK;
}

// By default the first row of each vector extension, which is the one that would run with that extension.
static bool is_wanted(const bench_options *options, const rd_kernel_info *kernel, const rd_kernel_info **rows,
                      int found) {
    if (options->kernel) return !strcmp(kernel->name, options->kernel);
    if (options->all) return !kernel->is_reference;
    if (!kernel->isa || !*kernel->isa) return false;
    for (int i = 0; i < found; i++)
        if (!strcmp(rows[i]->isa, kernel->isa)) return false;
    return true;
}

rd_status bench_rows(bench_run *run, const rd_param *params, int32_t count, const rd_kernel_info **rows,
                     int most, int *found) {
    rd_verdict verdicts[64];
    int32_t total = CLI_COUNT(verdicts);
    rd_status status = rd_kernel_explain(rd_ctx_device(run->ctx), run->op, params, count, verdicts, &total);
    if (status != RD_OK) return cli_fail(status);
    *found = 0;
    for (int32_t i = 0; i < total && *found < most; i++) {
        const rd_kernel_info *kernel = verdicts[i].kernel;
        if (!verdicts[i].ok || strcmp(kernel->backend, run->device.backend) != 0) continue;
        if (is_wanted(run->options, kernel, rows, *found)) rows[(*found)++] = kernel;
    }
    return RD_OK;
}

// ---- output ------------------------------------------------------------------------------------------------------------
// Percent of the roofline: the least time that either ceiling allows over the time taken.
static double roofline_percent(const bench_result *r) {
    double read_us = r->read_gbs > 0 ? r->bytes / r->read_gbs / 1e3 : 0;
    double fma_us = r->fma_gflops > 0 ? r->flops / r->fma_gflops / 1e3 : 0;
    return 100 * (read_us > fma_us ? read_us : fma_us) / r->us_best;
}

static rd_status csv_failed(const bench_run *run) {
    return cli_error(RD_E_IO, "%s: %s", run->options->csv, strerror(errno));
}

static rd_status write_csv(const bench_run *run, const bench_result *r) {
    FILE *file = fopen(run->options->csv, "a");
    if (!file) return csv_failed(run);
    char date[32];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%d", localtime(&now));
    if (ftell(file) == 0)
        fprintf(
            file,
            "date,commit,device,threads,kernel,shape,state,us_min,us_median,gflops,gbs,read_gbs,fma_gflops,"
            "roofline_pct,rival,rival_us,check\n");
    fprintf(file, "%s,%s,%s,%d,%s,\"%s\",\"%s\",%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.1f,%s,%.2f,ok\n", date,
            rd_build_id(), run->device.model, (int)run->threads, r->kernel, r->shape, r->state, r->us_best,
            r->us_median, r->flops / r->us_best / 1e3, r->bytes / r->us_best / 1e3, r->read_gbs,
            r->fma_gflops, roofline_percent(r), r->rival ? r->rival : "", r->rival_us);
    bool written = !ferror(file);
    return fclose(file) == 0 && written ? RD_OK : csv_failed(run);
}

// What the simulator executes has counters and no time.
static rd_status report_simulated(bench_run *run, const bench_result *r) {
    if (!run->list) {
        printf("%-36s %-34s ran and agrees with its reference; not timed: a simulator's time is none\n",
               r->kernel, r->shape);
        fflush(stdout);
        return RD_OK;
    }
    cJSON *object = cJSON_CreateObject();
    cli_json_text(object, "kernel", r->kernel);
    cli_json_text(object, "shape", r->shape);
    cJSON_AddBoolToObject(object, "timed", false);
    cli_json_real(object, "check_error", r->error);
    cJSON_AddItemToArray(run->list, object);
    return RD_OK;
}

rd_status bench_report(bench_run *run, const bench_result *r) {
    if (run->simulated) return report_simulated(run, r);
    double gbs = r->bytes / r->us_best / 1e3, gflops = r->flops / r->us_best / 1e3;
    rd_status status = run->options->csv ? write_csv(run, r) : RD_OK;
    if (run->list) {
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "kernel", r->kernel);
        cli_json_text(object, "shape", r->shape);
        cli_json_text(object, "state", r->state);
        cJSON_AddNumberToObject(object, "threads", run->threads);
        const struct {
            const char *name;
            double value;
        } numbers[] = {{"us_min", r->us_best},
                       {"us_median", r->us_median},
                       {"gbs", gbs},
                       {"gflops", gflops},
                       {"read_gbs", r->read_gbs},
                       {"fma_gflops", r->fma_gflops},
                       {"roofline_pct", roofline_percent(r)},
                       {"rival_us", r->rival_us},
                       {"check_error", r->error}};
        for (int i = 0; i < CLI_COUNT(numbers); i++) cli_json_real(object, numbers[i].name, numbers[i].value);
        cli_json_text(object, "rival", r->rival);
        cJSON_AddItemToArray(run->list, object);
        return status;
    }
    printf("%-36s %-34s ", r->kernel, r->shape);
    if (!bench_on_card(run)) printf("T=%d ", (int)run->threads);
    printf("%10.1f us %7.1f GB/s %8.1f GF/s  %5.1f%% of %.1f GB/s", r->us_best, gbs, gflops,
           roofline_percent(r), r->read_gbs);
    if (r->fma_gflops > 0) printf(", %.0f GF/s", r->fma_gflops);
    if (r->rival) printf("  %s %.1f us, %.2fx", r->rival, r->rival_us, r->rival_us / r->us_best);
    printf("\n");
    fflush(stdout);
    return status;
}

// ---- the command -------------------------------------------------------------------------------------------------------
static rd_status run_with_threads(bench_run *run, rd_status (*bench)(bench_run *), int64_t threads) {
    rd_status status = cli_open_ctx(run->options->device, threads, &run->ctx);
    if (status != RD_OK) return status;
    run->host = run->ctx;
    if (bench_on_card(run)) status = cli_open_ctx("cpu", 0, &run->host);
    if (status != RD_OK) {
        rd_ctx_free(run->ctx);
        return status;
    }
    run->threads = rd_ctx_threads(run->ctx);
    run->device = (rd_device_info){.struct_size = sizeof run->device};
    status = rd_device_get_info(rd_ctx_device(run->ctx), &run->device);
    run->simulated = status == RD_OK && !strncmp(run->device.name, "sim:", 4);
    if (status != RD_OK)
        status = cli_fail(status);
    else if (run->device.is_fixture)
        status = cli_error(RD_E_NO_DEVICE, "device=%s is a fixture, needs a device that runs kernels",
                           run->device.name);
    else
        status = bench(run);
    if (run->host != run->ctx) rd_ctx_free(run->host);
    rd_ctx_free(run->ctx);
    return status;
}

static rd_status list_benches(bool json) {
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    for (int i = 0; i < CLI_COUNT(benches); i++) {
        if (!json) {
            printf("%-20s %s\n", benches[i].op, benches[i].about);
            continue;
        }
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "op", benches[i].op);
        cli_json_text(object, "about", benches[i].about);
        cJSON_AddItemToArray(list, object);
    }
    return json ? cli_print_json(list) : RD_OK;
}

static rd_status bench_op(const bench_options *options, const char *op) {
    bench_rival rival = {0};
    bench_run run = {.options = options, .op = op, .list = options->json ? cJSON_CreateArray() : NULL};
    rd_status status = RD_OK;
    rd_status (*bench)(bench_run *) = NULL;
    const char *uses = NULL;
    for (int i = 0; i < CLI_COUNT(benches); i++)
        if (!strcmp(benches[i].op, op)) bench = benches[i].run, uses = benches[i].uses;
    if (bench) status = check_options(options, op, uses);
    if (bench && status == RD_OK) status = check_shape(options->shape, op, uses);
    if (!bench) status = cli_error(RD_E_INVALID, "op=%s has no bench, `radiance bench` lists them", op);
    if (status == RD_OK && options->rival) {
        status = bench_rival_load(options->rival, &rival);
        run.rival = &rival;
    }
    if (status == RD_OK) status = run_with_threads(&run, bench, options->threads ? options->threads : 1);
    const bool on_host = !strcmp(run.device.backend ? run.device.backend : "", "cpu");
    if (status == RD_OK && !options->threads && on_host && run.device.performance_cores > 1)
        status = run_with_threads(&run, bench, run.device.performance_cores);
    bool stopped = status == RD_E_CANCELLED;
    if (options->json && (status == RD_OK || stopped)) {
        rd_status printed = cli_print_json(run.list);
        status = printed != RD_OK ? printed : status;
    } else {
        cJSON_Delete(run.list);
    }
    if (stopped) cli_error(status, "bench: stopped by a signal: later rows were not timed");
    return status;
}

rd_status cli_run_bench(int argc, char **argv) {
    bench_options o = {.seconds = 0.5};
    const cli_option options[] = {
        CLI_OPTION_DEVICE(&o.device),
        CLI_OPTION_THREADS(&o.threads),
        {"--shape", CLI_TEXT, &o.shape, "M=..,N=..,K=..", "one shape instead of the usual ones", 0, 0},
        {"--layout", CLI_TEXT, &o.layout, "NAME",
         "weight layout: row (default on a card), shuffle16, tile64, panel16 (default)", 0, 0},
        {"--kernel", CLI_TEXT, &o.kernel, "NAME", "one kernel row", 0, 0},
        {"--all", CLI_FLAG, &o.all, NULL, "every row that takes the shape, plain C too", 0, 0},
        {"--rival", CLI_TEXT, &o.rival, "NAME", "onednn, or the path of a driver: see bench/rivals", 0, 0},
        {"--model", CLI_TEXT, &o.model, "MODEL", "of generate and step: a folder or a .gguf file", 0, 0},
        {"--config", CLI_TEXT, &o.config, "FILE", "of step: a config.json's fields, for random weights", 0,
         0},
        {"--batch", CLI_TEXT, &o.batch, "N,N", "of step: sequences of a decode step; default 1,4,16,64", 0,
         0},
        {"--context", CLI_INT, &o.context, "N", "of step: tokens in each cache; default 4096", 1, 1 << 24},
        {"--prefill", CLI_INT, &o.prefill, "N", "of step: tokens of the prefill pass; default 512", 1, 65536},
        {"--kv", CLI_TEXT, &o.kv, "TYPE", "of step: KV cache, bf16 (default) or fp8", 0, 0},
        {"--w8a8", CLI_FLAG, &o.w8a8, NULL, "of step: quantised activations (a card always has them)", 0, 0},
        {"--csv", CLI_TEXT, &o.csv, "FILE", "append the figures to FILE", 0, 0},
        {"--cpu-time", CLI_FLAG, &o.cpu_time, NULL,
         "CPU time in place of wall time, on a busy machine; one thread", 0, 0},
        {"--seconds", CLI_REAL, &o.seconds, "S", "time for each kernel and shape", 0, 0},
        CLI_OPTION_JSON(&o.json),
    };
    cli_args args;
    rd_status status = cli_parse(
        "bench [OP] [options]",
        "Times kernel rows on operands beyond the caches, after checking them against their reference.\n"
        "Ceilings are measured between the samples of the same run. Without OP: lists the benches.",
        options, CLI_COUNT(options), 0, 1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (args.count == 0) return list_benches(o.json);
    if (!(o.seconds > 0 && o.seconds <= 60))
        return cli_error(RD_E_INVALID, "seconds=%g, needs 0 < seconds <= 60", o.seconds);
    if (o.cpu_time && o.threads != 1) return cli_error(RD_E_INVALID, "cpu-time needs threads=1");
    cli_catch_interrupt();
    bench_use_cpu_time(o.cpu_time);
    return bench_op(&o, args.items[0]);
}
