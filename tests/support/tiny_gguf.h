// SPDX-License-Identifier: Apache-2.0
// A whole tiny GGUF model in a file: one llama layer of F32 tensors and a byte-level gpt2 tokenizer with a chat template.
#ifndef RD_TEST_TINY_GGUF_H
#define RD_TEST_TINY_GGUF_H

#include "support/files.h"
#include "support/gguf_writer.h"

#include <stdbool.h>

enum {
    TINY_GGUF_HIDDEN = 64,
    TINY_GGUF_WIDE = 96,
    TINY_GGUF_BYTES = 256,
    TINY_GGUF_VOCAB = TINY_GGUF_BYTES + 3
};

// The visible character of each byte in byte-level vocabularies: itself when printable, else 256 + its rank, as UTF-8.
static inline void tiny_gguf_byte_text(int byte, char text[4]) {
    int code = byte, rank = 0;
    for (int b = 0; b <= byte; b++) {
        bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte && !shown) code = 256 + rank;
        rank += !shown;
    }
    int bytes = code < 128 ? 1 : 2;
    text[0] = (char)(bytes == 1 ? code : 0xc0 | code >> 6);
    text[1] = (char)(bytes == 1 ? 0 : 0x80 | (code & 63));
    text[2] = 0;
}

static inline void tiny_gguf_array(gguf_writer *w, const char *key, uint32_t type, uint64_t count) {
    gguf_string(w, key);
    gguf_u32(w, 9);
    gguf_u32(w, type);
    gguf_u64(w, count);
}

static inline void tiny_gguf_tokenizer(gguf_writer *w) {
    static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    char text[4];
    gguf_kv_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_kv_text(w, "tokenizer.ggml.pre", "smollm");
    tiny_gguf_array(w, "tokenizer.ggml.tokens", 8, TINY_GGUF_VOCAB);
    for (int i = 0; i < TINY_GGUF_BYTES; i++) tiny_gguf_byte_text(i, text), gguf_string(w, text);
    for (int i = 0; i < 3; i++) gguf_string(w, special[i]);
    tiny_gguf_array(w, "tokenizer.ggml.token_type", 5, TINY_GGUF_VOCAB);
    for (int i = 0; i < TINY_GGUF_VOCAB; i++) gguf_u32(w, i < TINY_GGUF_BYTES ? 1 : 3); // normal, control
    tiny_gguf_array(w, "tokenizer.ggml.merges", 8, 0);
    gguf_kv_u32(w, "tokenizer.ggml.bos_token_id", 257);
    gguf_kv_u32(w, "tokenizer.ggml.eos_token_id", 258);
    gguf_kv_text(w, "tokenizer.chat_template",
                 "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
                 "'<|im_end|>\n' }}{% endfor %}");
}

static inline void tiny_gguf_write(const char *path) {
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } tensors[] = {{"token_embd.weight", TINY_GGUF_VOCAB, TINY_GGUF_HIDDEN},
                   {"output_norm.weight", 0, TINY_GGUF_HIDDEN},
                   {"blk.0.attn_norm.weight", 0, TINY_GGUF_HIDDEN},
                   {"blk.0.attn_q.weight", TINY_GGUF_HIDDEN, TINY_GGUF_HIDDEN},
                   {"blk.0.attn_k.weight", TINY_GGUF_HIDDEN, TINY_GGUF_HIDDEN},
                   {"blk.0.attn_v.weight", TINY_GGUF_HIDDEN, TINY_GGUF_HIDDEN},
                   {"blk.0.attn_output.weight", TINY_GGUF_HIDDEN, TINY_GGUF_HIDDEN},
                   {"blk.0.ffn_norm.weight", 0, TINY_GGUF_HIDDEN},
                   {"blk.0.ffn_gate.weight", TINY_GGUF_WIDE, TINY_GGUF_HIDDEN},
                   {"blk.0.ffn_up.weight", TINY_GGUF_WIDE, TINY_GGUF_HIDDEN},
                   {"blk.0.ffn_down.weight", TINY_GGUF_HIDDEN, TINY_GGUF_WIDE}};
    enum { COUNT = sizeof tensors / sizeof tensors[0] };
    gguf_writer w = {0};
    gguf_begin(&w, 3, COUNT, 9 + 8);
    gguf_kv_text(&w, "general.architecture", "llama");
    gguf_kv_u32(&w, "llama.block_count", 1);
    gguf_kv_u32(&w, "llama.context_length", 128);
    gguf_kv_u32(&w, "llama.embedding_length", TINY_GGUF_HIDDEN);
    gguf_kv_u32(&w, "llama.feed_forward_length", TINY_GGUF_WIDE);
    gguf_kv_u32(&w, "llama.attention.head_count", 1);
    gguf_kv_u32(&w, "llama.attention.head_count_kv", 1);
    gguf_kv_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_kv_f32(&w, "llama.rope.freq_base", 10000);
    tiny_gguf_tokenizer(&w);
    uint64_t offset = 0;
    for (int i = 0; i < COUNT; i++) {
        gguf_tensor(&w, tensors[i].name, tensors[i].rows, tensors[i].cols, 0, offset);
        offset +=
            (tensors[i].rows ? tensors[i].rows : 1) * tensors[i].cols * sizeof(float); // multiples of 32
    }
    gguf_pad(&w, 32);
    uint64_t state = 88172645463325252u;
    for (uint64_t i = 0; i < offset / sizeof(float); i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        float value = (float)(state >> 40) * 0x1p-24f - 0.5f;
        gguf_put(&w, &value, sizeof value);
    }
    file_write(path, w.bytes, w.count);
    free(w.bytes);
}

#endif // RD_TEST_TINY_GGUF_H
