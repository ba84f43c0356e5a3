// SPDX-License-Identifier: Apache-2.0
// GGUF from memory: metadata, tensors, configuration, binding, rows of every weight, tokenizer.
#include "model/bind.h"
#include "model/tokenizer.h"

#include <stdlib.h>

static void read_rows(const rdi_weight *weight) {
    if (!weight->data || weight->cols > 1 << 16) return;
    float *row = malloc((size_t)weight->cols * sizeof *row);
    if (!row) return;
    rdi_weight_rows_f32(weight, 0, 1, row);
    rdi_weight_rows_f32(weight, weight->rows - 1, 1, row);
    free(row);
}

static void bind(rdi_arena *arena, const rdi_gguf *gguf) {
    rdi_model_config config;
    rdi_bindings bindings;
    if (rdi_config_from_gguf(gguf, &config) != RD_OK) return;
    rdi_bind_source source = {.what = "fuzz", .config = &config, .entries = gguf->tensors, .gguf = true};
    if (rdi_bind(arena, &source, &bindings) != RD_OK) return;
    for (int32_t layer = 0; layer < config.layers; layer++)
        for (int slot = 0; slot < RDI_LAYER_SLOTS; slot++) read_rows(&bindings.layer[layer][slot]);
    for (int slot = 0; slot < RDI_MODEL_SLOTS; slot++) read_rows(&bindings.model[slot]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    rdi_arena arena = {0};
    rdi_gguf gguf;
    if (rdi_gguf_parse(&arena, "fuzz", data, bytes, &gguf) == RD_OK) {
        bind(&arena, &gguf);
        rd_tokenizer tokenizer = {0};
        if (rdi_tokenizer_from_gguf(&tokenizer, &gguf) == RD_OK) {
            int64_t count = 0;
            rd_tokenize(&tokenizer, "ab 12\n\xc3\xa9", 8, RD_TOKENIZE_SPECIAL | RD_TOKENIZE_ADD_BOS, NULL,
                        &count);
        }
        rdi_tokenizer_destroy(&tokenizer);
    }
    rdi_arena_free(&arena);
    return 0;
}
