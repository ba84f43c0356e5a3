// SPDX-License-Identifier: Apache-2.0
// Writes a small random model folder in the Hugging Face layout: config.json, safetensors (one file or shards),
// tokenizer.json with known merges, tokenizer_config.json with a ChatML template, generation_config.json.
#ifndef RD_TEST_TINY_MODEL_H
#define RD_TEST_TINY_MODEL_H

#include <stdint.h>

typedef struct tiny_model_options { // zero = the value in brackets
    const char *architecture;       // "LlamaForCausalLM" or "Qwen3ForCausalLM" [Llama]
    int layers, hidden, intermediate, q_heads, kv_heads, head_dim; // [2, 192, 320, 6, 2, 64]
    int vocab;                // [320]; the tokenizer has TINY_MODEL_TOKENS of them
    int context;              // [512]
    int untied;               // 1: an lm_head tensor of its own
    int f32;                  // 1: F32 tensors, else BF16
    int shards;               // > 1: that many files and an index
    const char *rope_scaling; // JSON [null]
    uint64_t seed;
} tiny_model_options;

// Tokens: 0..255 the bytes, then one per merge, then three special ones.
#define TINY_MODEL_MERGES 12
enum {
    TINY_MODEL_END = 256 + TINY_MODEL_MERGES, // <|endoftext|>
    TINY_MODEL_IM_START,                      // <|im_start|>
    TINY_MODEL_IM_END,                        // <|im_end|>, the end token
    TINY_MODEL_TOKENS
};
extern const char *const tiny_model_merges[TINY_MODEL_MERGES][2]; // plain bytes, in rank order

// Makes the folder if need be. 0, or -1 with errno set.
int tiny_model_write(const char *folder, const tiny_model_options *options);
// The same weights (f32, drawn from the seed and the tensor's name), for tests that compute with them.
void tiny_model_fill(const tiny_model_options *options, const char *tensor, int64_t count, float *out);

#endif // RD_TEST_TINY_MODEL_H
