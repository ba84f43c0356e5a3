// SPDX-License-Identifier: Apache-2.0
// make_tiny_model FOLDER [llama|qwen3] [seed] [shards] [hidden=N ...]: the tiny model writer as a program, for scripts.
#include "tiny_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// "hidden=1024" and the like.
static int set_size(tiny_model_options *o, const char *text) {
    const struct {
        const char *name;
        int *value;
    } sizes[] = {{"layers=", &o->layers},   {"hidden=", &o->hidden},     {"intermediate=", &o->intermediate},
                 {"q_heads=", &o->q_heads}, {"kv_heads=", &o->kv_heads}, {"head_dim=", &o->head_dim},
                 {"vocab=", &o->vocab},     {"context=", &o->context},   {"untied=", &o->untied}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strncmp(text, sizes[i].name, strlen(sizes[i].name))) {
            *sizes[i].value = atoi(text + strlen(sizes[i].name));
            return 0;
        }
    fprintf(stderr, "make_tiny_model: %s: not a size of a model\n", text);
    return -1;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: make_tiny_model FOLDER [llama|qwen3] [seed] [shards] [hidden=N ...]\n");
        return 2;
    }
    tiny_model_options options = {0};
    if (argc > 2 && !strcmp(argv[2], "qwen3")) options.architecture = "Qwen3ForCausalLM";
    if (argc > 3) options.seed = strtoull(argv[3], NULL, 10);
    if (argc > 4) options.shards = atoi(argv[4]);
    for (int i = 5; i < argc; i++)
        if (set_size(&options, argv[i])) return 2;
    if (tiny_model_write(argv[1], &options)) {
        fprintf(stderr, "make_tiny_model: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    return 0;
}
