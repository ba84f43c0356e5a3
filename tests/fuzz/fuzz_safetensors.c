// SPDX-License-Identifier: Apache-2.0
// safetensors from memory; every byte that an accepted table points to is read.
#include "model/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    rdi_arena arena = {0};
    rdi_entries entries;
    static volatile uint8_t sink __attribute__((unused)); // read so that the loads stay
    if (rdi_safetensors_parse(&arena, "fuzz", data, bytes, &entries) == RD_OK)
        for (int64_t i = 0; i < entries.count; i++)
            for (int64_t b = 0; b < entries.entry[i].bytes; b++) sink ^= entries.entry[i].data[b];
    rdi_arena_free(&arena);
    return 0;
}
