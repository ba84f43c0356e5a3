// SPDX-License-Identifier: Apache-2.0
// config.json from memory, and so the JSON reader.
#include "model/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    rdi_arena arena = {0};
    const rdi_json *json;
    rdi_model_config config;
    if (rdi_json_parse(&arena, "fuzz", (const char *)data, bytes, &json) == RD_OK)
        (void)rdi_config_from_json(json, &config);
    rdi_arena_free(&arena);
    return 0;
}
