// SPDX-License-Identifier: Apache-2.0
// radiance version: what a bug report needs first. Touches no device.
#include "cli.h"

#include <stdio.h>

rd_status cli_run_version(int argc, char **argv) {
    bool json = false;
    const cli_option options[] = {CLI_OPTION_JSON(&json)};
    cli_args args;
    rd_status status = cli_parse("version [--json]", "Prints version and build id.", options,
                                 CLI_COUNT(options), 0, 0, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (!json) {
        printf("radiance %s (%s)\n", rd_version(), rd_build_id());
        return RD_OK;
    }
    cJSON *object = cJSON_CreateObject();
    cli_json_text(object, "version", rd_version());
    cli_json_text(object, "build_id", rd_build_id());
    cJSON_AddNumberToObject(object, "abi", rd_abi_version());
    return cli_print_json(object);
}
