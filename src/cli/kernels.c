// SPDX-License-Identifier: Apache-2.0
// radiance kernels, radiance constraints: the table of rows as data.
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const char *const operators[] = {
    [RD_EQ] = "eq", [RD_LE] = "le", [RD_GE] = "ge", [RD_MULTIPLE_OF] = "multiple_of", [RD_ONE_OF] = "one_of"};

static cJSON *constraint_json(const rd_constraint *constraint) {
    cJSON *object = cJSON_CreateObject();
    cli_json_text(object, "key", constraint->key);
    cli_json_text(object, "op", operators[constraint->op]);
    if (constraint->op == RD_ONE_OF)
        cli_json_text(object, "value", constraint->words);
    else
        cJSON_AddNumberToObject(object, "value", (double)constraint->value);
    cli_json_text(object, "text", constraint->text);
    return object;
}

static cJSON *constraints_json(const rd_kernel_info *kernel) {
    cJSON *list = cJSON_CreateArray();
    for (int32_t i = 0; i < kernel->constraint_count; i++)
        cJSON_AddItemToArray(list, constraint_json(&kernel->constraints[i]));
    return list;
}

static cJSON *kernel_json(const rd_kernel_info *kernel) {
    cJSON *object = cJSON_CreateObject();
    cli_json_text(object, "name", kernel->name);
    cli_json_text(object, "op", kernel->op);
    cli_json_text(object, "backend", kernel->backend);
    cli_json_text(object, "isa", kernel->isa);
    cli_json_text(object, "order", kernel->order);
    cli_json_text(object, "computes", kernel->computes);
    cJSON_AddBoolToObject(object, "reference", kernel->is_reference);
    cJSON_AddItemToObject(object, "constraints", constraints_json(kernel));
    return object;
}

rd_status cli_run_kernels(int argc, char **argv) {
    bool json = false;
    const char *op = NULL;
    const cli_option options[] = {CLI_OPTION_JSON(&json),
                                  {"--op", CLI_TEXT, &op, "OP", "only rows of this op", 0, 0}};
    cli_args args;
    rd_status status =
        cli_parse("kernels [--op OP] [--json]",
                  "Lists the kernel rows, those of an op in order of preference, the reference last.",
                  options, CLI_COUNT(options), 0, 0, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (op && !rd_op_find(op))
        return cli_error(RD_E_INVALID, "unknown op %s, `radiance kernels` shows them", op);
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    const rd_kernel_info *kernel;
    for (int32_t i = 0; (kernel = rd_kernel_at(i)) != NULL; i++) {
        if (op && strcmp(op, kernel->op) != 0) continue;
        if (json)
            cJSON_AddItemToArray(list, kernel_json(kernel));
        else
            printf("%-44s %-20s %-7s %-28s %-8s %s\n", kernel->name, kernel->op, kernel->backend,
                   *kernel->isa ? kernel->isa : "any", kernel->order, kernel->computes);
    }
    return json ? cli_print_json(list) : RD_OK;
}

rd_status cli_run_constraints(int argc, char **argv) {
    bool json = false;
    const cli_option options[] = {CLI_OPTION_JSON(&json)};
    cli_args args;
    rd_status status =
        cli_parse("constraints KERNEL [--json]", "Lists what a kernel needs, in the order it is checked.",
                  options, CLI_COUNT(options), 1, 1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    const rd_kernel_info *kernel = rd_kernel_find(args.items[0]);
    if (!kernel)
        return cli_error(RD_E_INVALID, "unknown kernel %s, `radiance kernels` lists them", args.items[0]);
    if (json) return cli_print_json(constraints_json(kernel));
    for (int32_t i = 0; i < kernel->constraint_count; i++) {
        const rd_constraint *constraint = &kernel->constraints[i];
        char value[32];
        snprintf(value, sizeof value, "%lld", (long long)constraint->value);
        printf("%-14s %-11s %-28s %s\n", constraint->key, operators[constraint->op],
               constraint->op == RD_ONE_OF ? constraint->words : value, constraint->text);
    }
    return RD_OK;
}
