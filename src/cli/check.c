// SPDX-License-Identifier: Apache-2.0
// radiance check: the command and its report. One line a row, a summary, exit code 10 when a row fails.
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *op;
    void (*cases)(check_run *run);
} checkers[] = {
    {"gemm_fp8block", check_gemm},
    {"gemm_fp8block_w8a16", check_gemm},
    {"gemm_bf16", check_gemm},
    {"quant_fp8", check_quant},
    {"attn_prefill", check_attn},
    {"attn_decode", check_attn},
    {"rmsnorm", check_rmsnorm},
    {"rope", check_rope},
    {"act_mul", check_act_mul},
    {"kv_write", check_kv_write},
    {"embed", check_embed},
    {"sample", check_sample},
    {"rope_kv_write", check_rope_kv_write},
};

typedef struct totals {
    int64_t rows, cases, failed;
    cJSON *list;  // rows; NULL: text
    cJSON *head;  // what was checked: the device, at the first op
    bool faulted; // the card stopped: later rows were not run
    char fault[512], model[128], arch[32];
    bool on_card; // a real one
} totals;

static void collect_rows(check_run *run, const char *backend) {
    const rd_kernel_info *kernel;
    for (int32_t i = 0; (kernel = rd_kernel_at(i)); i++) {
        if (strcmp(kernel->op, run->op) != 0) continue;
        if (kernel->is_reference)
            run->reference = kernel;
        else if (!strcmp(kernel->backend, backend) && run->row_count < CHECK_MOST_ROWS)
            run->rows[run->row_count++] = (check_row){.kernel = kernel};
    }
}

static const char *verdict_of(const check_row *row) {
    if (row->failed) return "FAILED";
    return row->cases ? "ok" : "not run";
}

static void report_row(const check_row *row, totals *sum) {
    bool never_ran = row->cases == 0;
    sum->rows += never_ran ? 0 : 1;
    sum->cases += row->cases;
    sum->failed += row->failed;
    if (sum->list) {
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "op", row->kernel->op);
        cli_json_text(object, "kernel", row->kernel->name);
        cli_json_text(object, "verdict", verdict_of(row));
        cJSON_AddNumberToObject(object, "cases", (double)row->cases);
        cJSON_AddNumberToObject(object, "failed", (double)row->failed);
        cJSON_AddNumberToObject(object, "refused", (double)row->refused);
        cli_json_real(object, "max_error", row->worst * row->worst_limit);
        cli_json_real(object, "limit", row->worst_limit);
        cli_json_text(object, "measure", row->worst_measure ? row->worst_measure : "");
        cli_json_text(object, "worst_case", row->worst_case);
        cli_json_text(object, "reason", row->failed ? row->failure : never_ran ? row->refusal : "");
        cJSON_AddItemToArray(sum->list, object);
        return;
    }
    if (never_ran)
        printf("%-44s not run: %s\n", row->kernel->name, row->refusal);
    else if (row->failed)
        printf("%-44s FAILED %lld of %lld: %s\n", row->kernel->name, (long long)row->failed,
               (long long)row->cases, row->failure);
    else
        printf("%-44s ok, %lld cases, worst %.2g%% of the limit (%s)\n", row->kernel->name,
               (long long)row->cases, 100 * row->worst, row->worst_case);
    fflush(stdout);
}

// A file of a check is sent and kept: it says what was checked, with what, and on which card and driver.
static void describe_device(totals *sum, const rd_device_info *info) {
    if (!sum->list || sum->head) return;
    char date[32];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    sum->head = cJSON_CreateObject();
    cli_json_text(sum->head, "version", rd_version());
    cli_json_text(sum->head, "build", rd_build_id());
    cli_json_text(sum->head, "date", date);
    cli_json_text(sum->head, "device", info->name);
    cli_json_text(sum->head, "model", info->model);
    cli_json_text(sum->head, "arch", info->arch);
    cli_json_text(sum->head, "isa", info->isa);
    cli_json_text(sum->head, "driver", info->driver);
    cJSON_AddNumberToObject(sum->head, "compute_units", info->compute_units);
    cJSON_AddNumberToObject(sum->head, "memory_bytes", (double)info->memory_bytes);
}

static rd_status check_rows(const char *device, int64_t threads, check_run *run, totals *sum) {
    void (*cases)(check_run *) = NULL;
    for (int i = 0; i < CLI_COUNT(checkers); i++)
        if (!strcmp(checkers[i].op, run->op)) cases = checkers[i].cases;
    rd_status status = cli_open_ctx_unchecked(device, threads, &run->ctx);
    if (status != RD_OK) return status;
    rd_device_info info = {.struct_size = sizeof info};
    status = rd_device_get_info(rd_ctx_device(run->ctx), &info);
    if (status == RD_OK && info.is_fixture)
        status =
            cli_error(RD_E_NO_DEVICE, "device=%s is a fixture, needs a device that runs kernels", info.name);
    run->host = run->ctx;
    if (status == RD_OK) describe_device(sum, &info);
    run->simulated = status == RD_OK && !strncmp(info.name, "sim:", 4);
    sum->on_card = status == RD_OK && rd_ctx_device_number(run->ctx) && !run->simulated;
    run->on_card = sum->on_card;
    if (sum->on_card) {
        snprintf(sum->model, sizeof sum->model, "%s", info.model);
        snprintf(sum->arch, sizeof sum->arch, "%s", info.arch);
    }
    run->small |= run->simulated;
    if (status == RD_OK && rd_ctx_device_number(run->ctx)) status = cli_open_ctx("cpu", threads, &run->host);
    if (status == RD_OK) {
        collect_rows(run, info.backend);
        if (!run->reference || !cases)
            status = cli_error(RD_E_INTERNAL, "%s has no %s, needs one to be checked", run->op,
                               run->reference ? "cases" : "reference row");
    }
    if (status == RD_OK && run->row_count) cases(run);
    for (int i = 0; i < run->row_count && status == RD_OK; i++) report_row(&run->rows[i], sum);
    if (status == RD_OK && !sum->list)
        printf("%-44s judges the rows above%s\n", run->reference->name,
               run->row_count ? "" : ": there are none");
    if (status == RD_OK) status = run->status;
    if (status != RD_OK && run->status == status) { // of a case, not of the machinery
        sum->faulted = status == RD_E_DEVICE || status == RD_E_NO_DEVICE;
        snprintf(sum->fault, sizeof sum->fault, "%s", run->fault);
    }
    if (run->host != run->ctx) rd_ctx_free(run->host);
    rd_ctx_free(run->ctx);
    return status;
}

static rd_status finish(totals *sum, uint64_t seed, bool full) {
    rd_status status = RD_OK;
    if (sum->list) {
        cJSON_AddNumberToObject(sum->head, "seed", (double)seed);
        cJSON_AddBoolToObject(sum->head, "full", full);
        cJSON_AddNumberToObject(sum->head, "rows_run", (double)sum->rows);
        cJSON_AddNumberToObject(sum->head, "cases", (double)sum->cases);
        cJSON_AddNumberToObject(sum->head, "failed", (double)sum->failed);
        cli_json_text(sum->head, "fault", sum->fault);
        cJSON_AddItemToObject(sum->head, "rows", sum->list);
        status = cli_print_json(sum->head);
    } else {
        printf("%lld rows, %lld cases, %lld failed, seed %llu\n", (long long)sum->rows, (long long)sum->cases,
               (long long)sum->failed, (unsigned long long)seed);
    }
    if (status == RD_OK && sum->on_card &&
        !sum->rows) // a card of another kind, or a build without its compiler
        return cli_error(RD_E_UNSUPPORTED, "no kernel of this build runs on %s (%s)", sum->model, sum->arch);
    return status == RD_OK && sum->failed ? RD_E_INTERNAL : status;
}

static rd_status check_all(const char *op, const char *device, int64_t threads, uint64_t seed, bool full,
                           bool small, totals *sum) {
    int checked = 0;
    const rd_op_info *info;
    for (int32_t i = 0; (info = rd_op_at(i)); i++) {
        if (op && strcmp(info->name, op) != 0) continue;
        check_run *run = calloc(1, sizeof *run);
        if (!run) return cli_error(RD_E_NOMEM, "out of memory");
        run->op = info->name, run->seed = seed, run->full = full, run->small = small;
        rd_status status = check_rows(device, threads, run, sum);
        free(run);
        if (status != RD_OK) return status;
        checked++;
    }
    return checked ? RD_OK : cli_error(RD_E_INVALID, "op=%s, needs one that `radiance kernels` lists", op);
}

rd_status cli_run_check(int argc, char **argv) {
    bool json = false, full = false, small = false;
    const char *op = NULL, *device = NULL;
    int64_t threads = 0, seed = 0;
    const cli_option options[] = {
        CLI_OPTION_JSON(&json),
        CLI_OPTION_DEVICE(&device),
        CLI_OPTION_THREADS(&threads),
        {"--op", CLI_TEXT, &op, "OP", "only the rows of this op", 0, 0},
        {"--small", CLI_FLAG, &small, NULL, "small shapes, as on a simulated card: for checkers of memory", 0,
         0},
        {"--full", CLI_FLAG, &full, NULL, "whole shapes and every combination: hours on a few cores", 0, 0},
        {"--seed", CLI_INT, &seed, "N", "numbers of an earlier run; default a fresh seed, printed", 1,
         INT64_MAX},
    };
    cli_args args;
    rd_status status =
        cli_parse("check [--op OP] [--device NAME] [--small | --full] [--seed N] [--json]",
                  "Runs every kernel row that this machine can run against the reference of its op, over\n"
                  "the acceptance grids. Exit code 10 when a row fails.",
                  options, CLI_COUNT(options), 0, 0, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (small && full) return cli_error(RD_E_INVALID, "--small and --full exclude each other");
    if (!seed) seed = (int64_t)time(NULL);
    totals sum = {.list = json ? cJSON_CreateArray() : NULL};
    if (json) fprintf(stderr, "seed %lld\n", (long long)seed);
    cli_catch_interrupt();
    status = check_all(op, device, threads, (uint64_t)seed, full, small, &sum);
    // A card that stopped in mid-run: what was found until then, and the fault, are what the file is for.
    if (status != RD_OK && status != RD_E_CANCELLED && !(json && sum.faulted)) {
        cJSON_Delete(sum.list);
        cJSON_Delete(sum.head);
        return status;
    }
    rd_status verdict = finish(&sum, (uint64_t)seed, full);
    if (verdict == RD_OK && status == RD_E_CANCELLED)
        return cli_error(status, "check: stopped by a signal: later cases were not run");
    return sum.faulted ? status : verdict;
}
