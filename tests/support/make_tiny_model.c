// SPDX-License-Identifier: Apache-2.0
// make_tiny_model FOLDER [llama|qwen3] [seed] [shards]: the tiny model writer as a program, for scripts.
#include "tiny_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: make_tiny_model FOLDER [llama|qwen3] [seed] [shards]\n");
        return 2;
    }
    tiny_model_options options = {0};
    if (argc > 2 && !strcmp(argv[2], "qwen3")) options.architecture = "Qwen3ForCausalLM";
    if (argc > 3) options.seed = strtoull(argv[3], NULL, 10);
    if (argc > 4) options.shards = atoi(argv[4]);
    if (tiny_model_write(argv[1], &options)) {
        fprintf(stderr, "make_tiny_model: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    return 0;
}
