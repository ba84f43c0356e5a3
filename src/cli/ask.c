// SPDX-License-Identifier: Apache-2.0
// radiance select, explain and plan: one question, three depths of answer.
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 32, MOST_ROWS = 64 };

static rd_status read_question(const cli_args *args, rd_param params[MOST_KEYS]) {
    if (args->count - 1 > MOST_KEYS)
        return cli_error(RD_E_INVALID, "%d keys given, needs at most %d", args->count - 1, MOST_KEYS);
    return cli_params(args->items + 1, args->count - 1, params);
}

// ---- select --------------------------------------------------------------------------------------------------------------
static rd_status print_selection(rd_ctx *ctx, bool json) {
    rd_selection selection;
    rd_status status = rd_selection_at(ctx, 0, &selection);
    if (status != RD_OK) return cli_fail(status);
    if (json) {
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "op", selection.op);
        cli_json_text(object, "query", selection.query);
        cli_json_text(object, "kernel", selection.kernel);
        cli_json_text(object, "reason", selection.reason);
        status = cli_print_json(object);
    } else if (selection.kernel) {
        printf("%s%s%s\n", selection.kernel, strcmp(selection.reason, "ok") ? "  " : "",
               strcmp(selection.reason, "ok") ? selection.reason : "");
    }
    if (status == RD_OK && !selection.kernel)
        status = cli_error(RD_E_UNSUPPORTED, "%s: no kernel takes it: %s", selection.op, selection.reason);
    return status;
}

rd_status cli_run_select(int argc, char **argv) {
    bool json = false;
    const char *device = NULL;
    const cli_option options[] = {CLI_OPTION_JSON(&json), CLI_OPTION_DEVICE(&device)};
    cli_args args;
    rd_status status = cli_parse("select OP key=value... [--device NAME] [--json]",
                                 "Names the kernel that would run. Exit code 2 when none does.\n"
                                 "`radiance constraints KERNEL` lists keys and their words.",
                                 options, CLI_COUNT(options), 1, -1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    rd_param params[MOST_KEYS];
    status = read_question(&args, params);
    if (status != RD_OK) return status;
    rd_ctx *ctx = NULL;
    status = cli_open_ctx(device, 1, &ctx);
    if (status != RD_OK) return status;
    const rd_kernel_info *kernel;
    status = rd_kernel_select(ctx, args.items[0], params, args.count - 1, &kernel);
    status = status == RD_OK ? print_selection(ctx, json) : cli_fail(status);
    rd_ctx_free(ctx);
    return status;
}

// ---- explain -------------------------------------------------------------------------------------------------------------
static rd_status print_verdicts(const rd_verdict *verdicts, int32_t count, bool json) {
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    for (int32_t i = 0; i < count; i++) {
        const rd_verdict *verdict = &verdicts[i];
        if (!json) {
            printf("%s %-44s %s\n", verdict->chosen ? "->" : "  ", verdict->kernel->name, verdict->reason);
            continue;
        }
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "kernel", verdict->kernel->name);
        cJSON_AddBoolToObject(object, "ok", verdict->ok);
        cJSON_AddBoolToObject(object, "chosen", verdict->chosen);
        cli_json_text(object, "reason", verdict->reason);
        cJSON_AddItemToArray(list, object);
    }
    return json ? cli_print_json(list) : RD_OK;
}

static rd_status explain(const rd_device *device, const char *op, const rd_param *params, int count,
                         bool json) {
    rd_verdict verdicts[MOST_ROWS];
    int32_t rows = MOST_ROWS;
    rd_status status = rd_kernel_explain(device, op, params, count, verdicts, &rows);
    if (status != RD_OK) return cli_fail(status);
    if (rows == 0 && !json) {
        rd_device_info info = {.struct_size = sizeof info};
        rd_device_get_info(device, &info);
        printf("no %s kernel for %s in this build\n", op, info.backend);
    }
    return print_verdicts(verdicts, rows, json);
}

rd_status cli_run_explain(int argc, char **argv) {
    bool json = false;
    const char *device_name = NULL;
    const cli_option options[] = {CLI_OPTION_JSON(&json), CLI_OPTION_DEVICE(&device_name)};
    cli_args args;
    rd_status status =
        cli_parse("explain OP key=value... [--device NAME] [--json]",
                  "Says of every kernel of the op why it would or would not run, in policy order.\n"
                  "`radiance constraints KERNEL` lists keys and their words.",
                  options, CLI_COUNT(options), 1, -1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    rd_param params[MOST_KEYS];
    status = read_question(&args, params);
    if (status != RD_OK) return status;
    rd_device *device = NULL;
    status = rd_device_open(device_name, &device);
    if (status != RD_OK) return cli_fail(status);
    status = explain(device, args.items[0], params, args.count - 1, json);
    rd_device_close(device);
    return status;
}

// ---- plan ----------------------------------------------------------------------------------------------------------------
// "m=1..4096": moves the interval out of the list.
static rd_status take_interval(char **items, int *count, const char *interval_key, int64_t *lo, int64_t *hi) {
    for (int i = 0; i < *count; i++) {
        size_t bytes = strlen(interval_key);
        if (strncmp(items[i], interval_key, bytes) != 0 || items[i][bytes] != '=') continue;
        char *end, *text = items[i] + bytes + 1;
        errno = 0;
        *lo = strtoll(text, &end, 10);
        *hi = *lo;
        if (end != text && !strncmp(end, "..", 2)) {
            text = end + 2;
            *hi = strtoll(text, &end, 10);
        }
        if (errno || end == text || *end)
            return cli_error(RD_E_INVALID, "%s, needs the form %s=LO..HI", items[i], interval_key);
        memmove(items + i, items + i + 1, (size_t)(*count - i - 1) * sizeof items[0]);
        --*count;
        return RD_OK;
    }
    return cli_error(RD_E_INVALID, "%s not given, needs the form %s=LO..HI", interval_key, interval_key);
}

static rd_status print_plan(rd_ctx *ctx, const rd_plan *plan, bool json) {
    char text[16384];
    size_t bytes = sizeof text;
    rd_status status = json ? RD_OK : rd_plan_text(plan, text, &bytes);
    if (status != RD_OK) return cli_fail(status);
    if (!json) {
        fputs(text, stdout);
        return RD_OK;
    }
    cJSON *list = cJSON_CreateArray();
    rd_selection range;
    for (int32_t i = 0; rd_selection_at(ctx, i, &range) == RD_OK; i++) {
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "op", range.op);
        cli_json_text(object, "query", range.query);
        cli_json_text(object, "kernel", range.kernel);
        cli_json_text(object, "reason", range.reason);
        cJSON_AddItemToArray(list, object);
    }
    return cli_print_json(list);
}

static rd_status plan_question(rd_ctx *ctx, cli_args *args, bool json) {
    const rd_op_info *op = rd_op_find(args->items[0]);
    int64_t lo = 0, hi = 0;
    int count = args->count - 1;
    rd_status status = RD_OK;
    if (op && op->interval_key) status = take_interval(args->items + 1, &count, op->interval_key, &lo, &hi);
    if (status != RD_OK) return status;
    args->count = count + 1;
    rd_param params[MOST_KEYS];
    status = read_question(args, params);
    if (status != RD_OK) return status;
    rd_plan *plan = NULL;
    status = rd_plan_create(ctx, args->items[0], params, count, lo, hi, &plan);
    if (status != RD_OK) return cli_fail(status);
    status = print_plan(ctx, plan, json);
    rd_plan_free(plan);
    return status;
}

rd_status cli_run_plan(int argc, char **argv) {
    bool json = false;
    const char *device = NULL;
    const cli_option options[] = {CLI_OPTION_JSON(&json), CLI_OPTION_DEVICE(&device)};
    cli_args args;
    rd_status status =
        cli_parse("plan OP KEY=LO..HI key=value... [--device NAME] [--json]",
                  "Shows the kernels of every size in an interval (of m, or of q_len for attention).",
                  options, CLI_COUNT(options), 1, -1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    rd_ctx *ctx = NULL;
    status = cli_open_ctx(device, 1, &ctx);
    if (status != RD_OK) return status;
    status = plan_question(ctx, &args, json);
    rd_ctx_free(ctx);
    return status;
}
