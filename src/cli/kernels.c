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

static cJSON *resources_json(const rd_kernel_info *kernel) {
    cJSON *list = cJSON_CreateArray();
    rd_kernel_resources r = {.struct_size = sizeof r};
    for (int32_t i = 0; rd_kernel_resources_at(kernel, i, &r) == RD_OK; i++) {
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "symbol", r.symbol);
        cJSON_AddNumberToObject(object, "vector_registers", r.vector_registers);
        cJSON_AddNumberToObject(object, "scalar_registers", r.scalar_registers);
        cJSON_AddNumberToObject(object, "shared_bytes", r.shared_bytes);
        cJSON_AddNumberToObject(object, "scratch_bytes", r.scratch_bytes);
        cJSON_AddNumberToObject(object, "spills", r.spills);
        cJSON_AddNumberToObject(object, "code_bytes", r.code_bytes);
        cJSON_AddNumberToObject(object, "waves_per_simd", r.waves_per_simd);
        cJSON_AddItemToArray(list, object);
    }
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
    cJSON_AddItemToObject(object, "resources", resources_json(kernel));
    return object;
}

// A device's rows: with the resources of each kernel that a row launches.
static void print_resources(const rd_kernel_info *kernel) {
    rd_kernel_resources r = {.struct_size = sizeof r};
    for (int32_t i = 0; rd_kernel_resources_at(kernel, i, &r) == RD_OK; i++) {
        printf("    %-52s %3d registers", r.symbol, r.vector_registers);
        if (r.scalar_registers) printf(", %3d scalar", r.scalar_registers);
        printf(", %5d bytes static shared, %d spilled, %d scratch", r.shared_bytes, r.spills,
               r.scratch_bytes);
        if (r.code_bytes) printf(", %5d bytes of code", r.code_bytes);
        if (r.waves_per_simd) printf(", %2d waves per SIMD", r.waves_per_simd);
        printf("\n");
    }
}

// The backend of `device`, "" for every backend. RD_E_NO_DEVICE when there is no such device.
static rd_status backend_of(const char *name, char backend[16]) {
    backend[0] = 0;
    if (!name) return RD_OK;
    rd_device *device = NULL;
    rd_device_info info = {.struct_size = sizeof info};
    rd_status status = rd_device_open(name, &device);
    if (status == RD_OK) status = rd_device_get_info(device, &info);
    if (status == RD_OK) snprintf(backend, 16, "%s", info.backend);
    rd_device_close(device);
    return status == RD_OK ? RD_OK : cli_fail(status);
}

rd_status cli_run_kernels(int argc, char **argv) {
    bool json = false;
    const char *op = NULL, *device = NULL;
    char backend[16];
    const cli_option options[] = {CLI_OPTION_JSON(&json),
                                  {"--op", CLI_TEXT, &op, "OP", "only rows of this op", 0, 0},
                                  {"--device", CLI_TEXT, &device, "NAME",
                                   "only rows of its backend, with what their kernels take", 0, 0}};
    cli_args args;
    rd_status status =
        cli_parse("kernels [--op OP] [--device NAME] [--json]",
                  "Lists the kernel rows, those of an op in order of preference, the reference last.",
                  options, CLI_COUNT(options), 0, 0, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (op && !rd_op_find(op))
        return cli_error(RD_E_INVALID, "unknown op %s, `radiance kernels` shows them", op);
    status = backend_of(device, backend);
    if (status != RD_OK) return status;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    const rd_kernel_info *kernel;
    for (int32_t i = 0; (kernel = rd_kernel_at(i)) != NULL; i++) {
        if (op && strcmp(op, kernel->op) != 0) continue;
        if (*backend && strcmp(backend, kernel->backend) != 0) continue;
        if (json)
            cJSON_AddItemToArray(list, kernel_json(kernel));
        else
            printf("%-44s %-20s %-7s %-28s %-8s %s\n", kernel->name, kernel->op, kernel->backend,
                   *kernel->isa ? kernel->isa : "any", kernel->order, kernel->computes);
        if (device && !json) print_resources(kernel);
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
