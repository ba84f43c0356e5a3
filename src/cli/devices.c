// SPDX-License-Identifier: Apache-2.0
// radiance devices: this machine, measured, its cards, what keeps a vendor's cards from use, and the fixtures.
#include "cli.h"

#include <stdio.h>
#include <string.h>

static cJSON *device_json(const rd_device_info *info) {
    cJSON *object = cJSON_CreateObject();
    cli_json_text(object, "name", info->name);
    cli_json_text(object, "backend", info->backend);
    cli_json_text(object, "arch", info->arch);
    cli_json_text(object, "isa", info->isa);
    cli_json_text(object, "model", info->model);
    cli_json_text(object, "driver", info->driver);
    cJSON_AddBoolToObject(object, "fixture", info->is_fixture);
    cJSON_AddNumberToObject(object, "compute_units", info->compute_units);
    cJSON_AddNumberToObject(object, "performance_cores", info->performance_cores);
    cJSON_AddNumberToObject(object, "l1_bytes", (double)info->l1_bytes);
    cJSON_AddNumberToObject(object, "l2_bytes", (double)info->l2_bytes);
    cJSON_AddNumberToObject(object, "l3_bytes", (double)info->l3_bytes);
    cJSON_AddNumberToObject(object, "lds_bytes", (double)info->lds_bytes);
    cJSON_AddNumberToObject(object, "memory_bytes", (double)info->memory_bytes);
    cli_json_real(object, "read_gbs", info->read_gbs);
    return object;
}

static void print_size(const char *name, int64_t bytes) {
    if (!bytes) return;
    if (bytes >= (int64_t)1 << 30)
        printf(", %s %.1f GiB", name, (double)bytes / (double)(1 << 30));
    else if (bytes >= 1 << 20)
        printf(", %s %lld MiB", name, (long long)bytes >> 20);
    else
        printf(", %s %lld KiB", name, (long long)bytes >> 10);
}

static void print_device(const rd_device_info *info) {
    printf("%-18s %s%s\n%-18s %s", info->name, info->model, info->is_fixture ? " (fixture)" : "", "",
           info->arch);
    if (!strcmp(info->backend, "cpu")) printf(", %s", *info->isa ? info->isa : "no vector extension in use");
    printf(", %d units", info->compute_units);
    if (info->performance_cores != info->compute_units) printf(" (%d fast)", info->performance_cores);
    print_size("L1", info->l1_bytes);
    print_size("L2", info->l2_bytes);
    print_size("L3", info->l3_bytes);
    print_size("LDS", info->lds_bytes);
    print_size("memory", info->memory_bytes);
    if (strcmp(info->backend, "cpu") && !*info->isa)
        printf(", no kernels in this build for it (they are for gfx1201 and sm_90a)");
    if (*info->driver) printf(", %s", info->driver);
    if (info->read_gbs > 0) printf(", read %.1f GB/s", info->read_gbs);
    printf("\n");
}

// A card's read bandwidth, with the library's own kernel; 0 where there is no kernel for it, or no time (the simulator).
static rd_status measure_card(const rd_device_info *info, double *gbs) {
    static const int64_t beyond_caches = (int64_t)2 << 30;
    *gbs = 0;
    // Our simulator may stand in for a card under the card's name.
    if (!*info->isa || strncmp(info->name, "gpu:", 4) != 0 || strstr(info->model, "(gfx12sim)")) return RD_OK;
    rd_ctx *ctx = NULL;
    rd_status status = cli_open_ctx_unchecked(info->name, 1, &ctx);
    size_t free_bytes = 0, total_bytes = 0;
    if (status == RD_OK) status = rd_memory_info(ctx, &free_bytes, &total_bytes);
    const int64_t half = (int64_t)(free_bytes / 2);
    if (status == RD_OK) status = rd_ctx_measure_read(ctx, half < beyond_caches ? half : beyond_caches, gbs);
    rd_ctx_free(ctx);
    return status;
}

// Opens, measures when it is this machine or a card of it, and shows one device.
static rd_status show(const char *name, int64_t threads, bool no_cache, cJSON *list) {
    rd_device *device = NULL;
    rd_status status = rd_device_open(name, &device);
    if (status != RD_OK) return cli_fail(status);
    rd_device_set_log(device, cli_log, NULL);
    rd_device_info info = {.struct_size = sizeof info};
    status = rd_device_get_info(device, &info);
    double gbs;
    if (status == RD_OK && !strcmp(info.backend, "cpu") && !info.is_fixture)
        status =
            rd_device_measure(device, (int32_t)(threads ? threads : info.performance_cores), !no_cache, &gbs);
    if (status == RD_OK) status = rd_device_get_info(device, &info);
    // A card that cannot be measured is shown all the same, without the figure.
    if (status == RD_OK && strcmp(info.backend, "cpu") && !info.is_fixture &&
        measure_card(&info, &info.read_gbs) != RD_OK)
        cli_fail(RD_E_DEVICE);
    if (status != RD_OK)
        cli_fail(status);
    else if (list)
        cJSON_AddItemToArray(list, device_json(&info));
    else
        print_device(&info);
    rd_device_close(device);
    return status;
}

// The cards, and a line for each vendor of which there is none that could be used.
static rd_status show_cards(cJSON *list) {
    char text[2048] = "", name[16];
    size_t bytes = sizeof text;
    int32_t cards = rd_device_cards(text, &bytes);
    rd_status status = RD_OK;
    for (int32_t i = 0; i < cards && status == RD_OK; i++) {
        snprintf(name, sizeof name, "gpu:%d", i);
        status = show(name, 0, true, list);
    }
    for (char *line = strtok(text, "\n"); line && !list; line = strtok(NULL, "\n"))
        printf("%-18s %s\n", "no card", line);
    return status;
}

rd_status cli_run_devices(int argc, char **argv) {
    bool json = false, no_cache = false;
    int64_t threads = 0;
    const char *only = NULL;
    const cli_option options[] = {
        CLI_OPTION_JSON(&json),
        {"--device", CLI_TEXT, &only, "NAME", "only this one", 0, 0},
        CLI_OPTION_THREADS(&threads),
        {"--no-cache", CLI_FLAG, &no_cache, NULL, "measure the read bandwidth anew", 0, 0}};
    cli_args args;
    rd_status status =
        cli_parse("devices [--device NAME] [--threads N] [--no-cache] [--json]",
                  "Shows this machine with its measured read bandwidth (kept in XDG_CACHE_HOME), its cards "
                  "with theirs,\n"
                  "or why there is none to use, and the fixtures that questions may be asked about.",
                  options, CLI_COUNT(options), 0, 0, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    status = show(only ? only : "cpu", threads, no_cache, list);
    if (!only && status == RD_OK) status = show_cards(list);
    const char *fixture;
    for (int32_t i = 0; !only && status == RD_OK && (fixture = rd_device_fixture_at(i)) != NULL; i++)
        status = show(fixture, threads, no_cache, list);
    if (status == RD_OK && json) return cli_print_json(list);
    cJSON_Delete(list);
    return status;
}
