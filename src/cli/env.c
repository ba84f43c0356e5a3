// SPDX-License-Identifier: Apache-2.0
// radiance env: every environment variable that is read, with its value now.
#include "cli.h"

#include <stdio.h>

rd_status cli_run_env(int argc, char **argv) {
    bool json = false;
    const cli_option options[] = {CLI_OPTION_JSON(&json)};
    cli_args args;
    rd_status status = cli_parse("env [--json]", "Lists the environment variables that Radiance reads.",
                                 options, CLI_COUNT(options), 0, 0, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    rd_env_info info;
    for (int32_t i = 0; rd_env_at(i, &info); i++) {
        if (!json) {
            printf("%-18s \"%s\"  (default \"%s\")\n%-18s %s\n", info.name, info.value, info.default_value,
                   "", info.meaning);
            continue;
        }
        cJSON *object = cJSON_CreateObject();
        cli_json_text(object, "name", info.name);
        cli_json_text(object, "value", info.value);
        cli_json_text(object, "default", info.default_value);
        cli_json_text(object, "meaning", info.meaning);
        cJSON_AddItemToArray(list, object);
    }
    return json ? cli_print_json(list) : RD_OK;
}
