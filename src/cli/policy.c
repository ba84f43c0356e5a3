// SPDX-License-Identifier: Apache-2.0
// radiance policy: the tuned decisions as a calculator, and against files of right answers.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 32, OUTPUT_BYTES = 64, RULE_BYTES = 128, LINE_BYTES = 4096 };

static void print_names(const char *title, const char *const *names, int32_t count) {
    printf("    %s", title);
    for (int32_t i = 0; i < count; i++) printf(" %s", names[i]);
    printf("\n");
}

static cJSON *names_json(const char *const *names, int32_t count) {
    cJSON *list = cJSON_CreateArray();
    for (int32_t i = 0; i < count; i++) cJSON_AddItemToArray(list, cJSON_CreateString(names[i]));
    return list;
}

static rd_status list_rules(bool json) {
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    const rd_policy_info *info;
    for (int32_t i = 0; (info = rd_policy_at(i)) != NULL; i++) {
        if (json) {
            cJSON *object = cJSON_CreateObject();
            cli_json_text(object, "rule", info->name);
            cli_json_text(object, "computes", info->computes);
            cJSON_AddItemToObject(object, "inputs", names_json(info->inputs, info->input_count));
            cJSON_AddItemToObject(object, "outputs", names_json(info->outputs, info->output_count));
            cJSON_AddItemToArray(list, object);
            continue;
        }
        printf("%-20s %s\n", info->name, info->computes);
        print_names("inputs: ", info->inputs, info->input_count);
        print_names("outputs:", info->outputs, info->output_count);
    }
    return json ? cli_print_json(list) : RD_OK;
}

static rd_status evaluate(const rd_device *device, const rd_policy_info *info, cli_args *args, bool json) {
    rd_param params[MOST_COLUMNS];
    char outputs[MOST_COLUMNS][OUTPUT_BYTES], rule[RULE_BYTES];
    if (args->count - 1 > MOST_COLUMNS) return cli_error(RD_E_INVALID, "more than %d inputs", MOST_COLUMNS);
    rd_status status = cli_params(args->items + 1, args->count - 1, params);
    if (status != RD_OK) return status;
    status = rd_policy_eval(device, info->name, params, args->count - 1, outputs, rule);
    if (status != RD_OK) return cli_fail(status);
    if (!json) {
        for (int32_t i = 0; i < info->output_count; i++)
            printf("%s=%s\n", info->outputs[i], *outputs[i] ? outputs[i] : "(kept)");
        printf("rule: %s\n", rule);
        return RD_OK;
    }
    cJSON *object = cJSON_CreateObject(), *values = cJSON_AddObjectToObject(object, "outputs");
    for (int32_t i = 0; i < info->output_count; i++)
        cli_json_text(values, info->outputs[i], *outputs[i] ? outputs[i] : NULL);
    cli_json_text(object, "rule", rule);
    return cli_print_json(object);
}

// ---- CSV -------------------------------------------------------------------------------------------------------------------
typedef struct csv_check {
    const rd_device *device;
    const rd_policy_info *info;
    int columns, output_at[MOST_COLUMNS]; // index among the rule's outputs, -1 = an input
    char names[LINE_BYTES];
    char *name_at[MOST_COLUMNS];
} csv_check;

// Splits at commas in place. The files have neither quotes nor commas inside cells; -1 = too many cells.
static int split(char *line, char **cells) {
    line[strcspn(line, "\r\n")] = 0;
    int count = 0;
    for (char *at = line; at; count++) {
        if (count == MOST_COLUMNS) return -1;
        cells[count] = at;
        at = strchr(at, ',');
        if (at) *at++ = 0;
    }
    return count;
}

static int name_index(const char *const *names, int32_t count, const char *name) {
    for (int32_t i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

static rd_status read_header(csv_check *check, const char *line, const char *path) {
    snprintf(check->names, sizeof check->names, "%s", line);
    check->columns = split(check->names, check->name_at);
    if (check->columns < 0) return cli_error(RD_E_FORMAT, "%s: more than %d columns", path, MOST_COLUMNS);
    for (int i = 0; i < check->columns; i++) {
        check->output_at[i] = name_index(check->info->outputs, check->info->output_count, check->name_at[i]);
        if (check->output_at[i] < 0 &&
            name_index(check->info->inputs, check->info->input_count, check->name_at[i]) < 0)
            return cli_error(RD_E_FORMAT, "%s: column %s, needs an input or output of %s", path,
                             check->name_at[i], check->info->name);
    }
    return RD_OK;
}

static rd_param cell_param(char *name, char *cell) {
    char *end;
    long long number = strtoll(cell, &end, 10);
    bool is_number = *cell && !*end;
    return (rd_param){name, is_number ? RD_PARAM_INT : RD_PARAM_WORD, is_number ? number : 0,
                      is_number ? NULL : cell};
}

// Checks one row; prints it when it differs.
static rd_status check_row(const csv_check *check, char *line, int row, bool *differs) {
    char *cells[MOST_COLUMNS], outputs[MOST_COLUMNS][OUTPUT_BYTES], rule[RULE_BYTES];
    rd_param params[MOST_COLUMNS];
    int count = 0;
    const int cell_count = split(line, cells);
    if (cell_count != check->columns)
        return cli_error(RD_E_FORMAT, "row %d: %d cells, needs %d", row, cell_count, check->columns);
    for (int i = 0; i < cell_count; i++)
        if (check->output_at[i] < 0) params[count++] = cell_param(check->name_at[i], cells[i]);
    *differs = rd_policy_eval(check->device, check->info->name, params, count, outputs, rule) != RD_OK;
    if (*differs) {
        printf("row %d: %s\n", row, rd_error_text());
        return RD_OK;
    }
    for (int i = 0; i < cell_count; i++) {
        if (check->output_at[i] < 0 || !strcmp(outputs[check->output_at[i]], cells[i])) continue;
        printf("row %d: %s=%s, expected %s (%s)\n", row, check->name_at[i], outputs[check->output_at[i]],
               cells[i], rule);
        *differs = true;
    }
    return RD_OK;
}

static rd_status check_file(csv_check *check, FILE *file, const char *path) {
    char line[LINE_BYTES];
    int rows = 0, differ = 0;
    if (!fgets(line, sizeof line, file))
        return cli_error(RD_E_FORMAT, "%s: empty, needs a header line", path);
    rd_status status = read_header(check, line, path);
    while (status == RD_OK && fgets(line, sizeof line, file)) {
        bool differs = false;
        if (!line[strspn(line, "\r\n")]) continue;
        status = check_row(check, line, ++rows, &differs);
        differ += status == RD_OK && differs;
    }
    if (status != RD_OK) return status;
    printf("%d rows, %d differ\n", rows, differ);
    return differ ? RD_E_INVALID : RD_OK;
}

static rd_status check_csv(const rd_device *device, const rd_policy_info *info, const char *path) {
    csv_check check = {.device = device, .info = info};
    FILE *file = fopen(path, "r");
    if (!file) return cli_error(RD_E_IO, "%s cannot be read", path);
    rd_status status = check_file(&check, file, path);
    fclose(file);
    return status;
}

rd_status cli_run_policy(int argc, char **argv) {
    bool json = false;
    const char *device_name = NULL, *csv = NULL;
    const cli_option options[] = {
        CLI_OPTION_JSON(&json),
        {"--device", CLI_TEXT, &device_name, "NAME",
         "a device of `radiance devices`; default the card that the rule was made for", 0, 0},
        {"--csv", CLI_TEXT, &csv, "FILE", "check every row of FILE", 0, 0}};
    cli_args args;
    rd_status status =
        cli_parse("policy [RULE [key=value... | --csv FILE]] [--device NAME] [--json]",
                  "Lists the rules, prints a rule's values and the clause that fired, or checks a file "
                  "of right\nanswers. The device picks the table.",
                  options, CLI_COUNT(options), 0, -1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (!args.count) return csv ? cli_error(RD_E_INVALID, "--csv needs a RULE before it") : list_rules(json);
    const rd_policy_info *info = rd_policy_find(args.items[0]);
    if (!info) return cli_error(RD_E_INVALID, "unknown rule %s, `radiance policy` lists them", args.items[0]);
    rd_device *device = NULL;
    if (device_name) status = rd_device_open(device_name, &device);
    if (status != RD_OK) return cli_fail(status);
    if (csv && args.count > 1)
        status = cli_error(RD_E_INVALID, "argument %s together with --csv, needs one of them", args.items[1]);
    else
        status = csv ? check_csv(device, info, csv) : evaluate(device, info, &args, json);
    rd_device_close(device);
    return status;
}
