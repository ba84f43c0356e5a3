// SPDX-License-Identifier: Apache-2.0
// tokenizer.json from memory, then texts through what was accepted: the input itself and a fixed one.
#include "model/tokenizer.h"

#include <stdlib.h>

static void use(const rd_tokenizer *tokenizer, const char *text, size_t bytes, uint32_t flags) {
    int32_t ids[256];
    int64_t count = 256;
    if (rd_tokenize(tokenizer, text, bytes, flags, ids, &count) != RD_OK) return;
    char out[64];
    size_t out_bytes = sizeof out;
    (void)rd_detokenize(tokenizer, ids, count, 1, out, &out_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char text[] = "Hello  world\n\n 12 don't \xc3\xa9\xcc\x81 <|im_end|> \xe4\xbd\xa0";
    rdi_arena arena = {0};
    const rdi_json *json;
    rd_tokenizer tokenizer = {0};
    if (rdi_json_parse(&arena, "fuzz", (const char *)data, bytes, &json) == RD_OK &&
        rdi_tokenizer_from_json(&tokenizer, json) == RD_OK) {
        (void)rdi_tokenizer_config(&tokenizer, json);
        use(&tokenizer, text, sizeof text - 1, RD_TOKENIZE_SPECIAL | RD_TOKENIZE_ADD_BOS);
        use(&tokenizer, (const char *)data, bytes < 256 ? bytes : 256, 0);
    }
    rdi_tokenizer_destroy(&tokenizer);
    rdi_arena_free(&arena);
    return 0;
}
