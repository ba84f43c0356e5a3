// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: vocabulary, merges, pre-tokeniser steps, added tokens. Built once by a loader (tokenizer.json or GGUF),
// immutable afterwards, so that threads may share it.
#ifndef RDI_MODEL_TOKENIZER_H
#define RDI_MODEL_TOKENIZER_H

#include "model/files.h"

// ---- vocabulary -----------------------------------------------------------------------------------------------------
typedef enum rdi_token_kind {
    RDI_TOKEN_ABSENT = 0, // a hole in the numbering
    RDI_TOKEN_NORMAL,     // made by merges
    RDI_TOKEN_ADDED,      // cut out of any text before the merges run
    RDI_TOKEN_SPECIAL     // as ADDED, but only when the caller asks for special tokens
} rdi_token_kind;
typedef struct rdi_token {
    const char *bytes; // what the token stands for, the byte alphabet undone
    uint32_t byte_count;
    uint8_t kind;        // rdi_token_kind
    bool end;            // ends generation
    bool lstrip, rstrip; // an added token that swallows white space before or after it
} rdi_token;
typedef struct rdi_merge {
    uint64_t pair; // left << 32 | right, +1 so that 0 is empty
    int32_t rank, merged;
} rdi_merge;
typedef struct rdi_trie_node {
    int32_t child, sibling; // -1: none
    int32_t token;          // -1: no token ends here
    uint8_t byte;
} rdi_trie_node;

typedef enum rdi_split_kind { RDI_SPLIT_ISOLATE, RDI_SPLIT_KEEP_MATCHES, RDI_SPLIT_KEEP_GAPS } rdi_split_kind;
typedef struct rdi_split {
    void *regex; // pcre2_code
    rdi_split_kind kind;
    bool prefix_space; // before the match: begin the piece with a space
} rdi_split;
enum { RDI_MAX_SPLITS = 8, RDI_MAX_PREFIX = 4, RDI_BYTE_CODES = 324 };

typedef enum rdi_normal_form {
    RDI_NORMAL_NONE,
    RDI_NORMAL_NFC,
    RDI_NORMAL_NFD,
    RDI_NORMAL_NFKC,
    RDI_NORMAL_NFKD
} rdi_normal_form;

struct rd_tokenizer {
    rdi_arena arena;
    rdi_token *token;
    int32_t vocab;
    int32_t *text_slots; // open addressing: id + 1, 0 empty
    uint32_t text_mask;
    rdi_merge *merge_slots;
    uint32_t merge_mask;
    int16_t byte_of_code[RDI_BYTE_CODES]; // GPT-2's byte alphabet: byte of U+0000.., -1: none
    int32_t byte_id[256];                 // -1: the vocabulary lacks the byte
    int32_t unknown_id; // for those bytes; -1: they are dropped, as the Hugging Face library does
    bool ignore_merges; // a word that is a token needs no merges
    rdi_trie_node *trie;
    int32_t trie_count;
    rdi_split split[RDI_MAX_SPLITS];
    int32_t split_count;
    rdi_normal_form normal_form;
    int32_t prefix[RDI_MAX_PREFIX]; // BOS and kin, when the caller asks
    int32_t prefix_count;
    const char *chat_template; // NULL: the model has none
    const char *bos_text, *eos_text;
    const char *pre_name; // GGUF only: the pre-tokeniser's name
};

rd_status rdi_vocab_create(rd_tokenizer *t, int64_t count);
// Byte-alphabet text for NORMAL tokens, plain text for the others. An id may be set twice: the later kind wins.
rd_status rdi_vocab_set(rd_tokenizer *t, int64_t id, const char *text, size_t bytes, rdi_token_kind kind);
rd_status rdi_vocab_finish(rd_tokenizer *t, int64_t merges); // builds the lookup; merges follow
int32_t rdi_vocab_find(const rd_tokenizer *t, const char *bytes, size_t count); // -1: none; takes plain bytes
rd_status rdi_merge_add(rd_tokenizer *t, int64_t rank, const char *left, size_t left_bytes, const char *right,
                        size_t right_bytes);
const rdi_merge *rdi_merge_find(const rd_tokenizer *t, int32_t left,
                                int32_t right); // NULL: the pair does not merge
rd_status rdi_trie_build(rd_tokenizer *t);      // added and special tokens
// Longest added token at text; -1: none. specials = false skips RDI_TOKEN_SPECIAL.
int32_t rdi_trie_match(const rd_tokenizer *t, const char *text, const char *end, bool specials);
void rdi_vocab_mark_ends(rd_tokenizer *t); // end tokens known by their text
// Byte alphabet of GPT-2: writes the UTF-8 of each byte; out holds 2 bytes per byte. Returns bytes written.
size_t rdi_byte_alphabet_encode(const char *bytes, size_t count, char *out);

// ---- ids of one word --------------------------------------------------------------------------------------------------
typedef struct rdi_id_sink {
    int32_t *ids;
    int64_t capacity, count; // count goes on past capacity
} rdi_id_sink;
typedef struct rdi_bpe_scratch {
    void *memory;
    size_t bytes;
} rdi_bpe_scratch;
rd_status rdi_bpe_encode(const rd_tokenizer *t, rdi_bpe_scratch *scratch, const char *word, size_t bytes,
                         rdi_id_sink *sink);

// ---- pre-tokeniser ------------------------------------------------------------------------------------------------------
extern const char rdi_pattern_gpt2[], rdi_pattern_digit[], rdi_pattern_digits[], rdi_pattern_llama3[],
    rdi_pattern_qwen2[];
// Adds a step. pattern NULL: no regex (a step that only asks for the leading space).
rd_status rdi_split_add(rd_tokenizer *t, const char *pattern, size_t bytes, rdi_split_kind kind,
                        bool prefix_space);
void rdi_split_free(rd_tokenizer *t);
typedef struct rdi_pretoken_run rdi_pretoken_run;
rd_status rdi_pretoken_begin(const rd_tokenizer *t, rdi_pretoken_run **out);
void rdi_pretoken_end(rdi_pretoken_run *run);
// Normalises, splits and encodes text that holds no added token.
rd_status rdi_pretoken_encode(rdi_pretoken_run *run, const char *text, size_t bytes, rdi_id_sink *sink);

// ---- loaders --------------------------------------------------------------------------------------------------------------
rd_status rdi_tokenizer_from_json(rd_tokenizer *t, const rdi_json *json);
// tokenizer_config.json: chat_template, bos/eos text, add_bos_token.
rd_status rdi_tokenizer_config(rd_tokenizer *t, const rdi_json *json);
rd_status rdi_tokenizer_from_gguf(rd_tokenizer *t, const rdi_gguf *gguf);
typedef struct rdi_pre_row {
    const char *name;    // tokenizer.ggml.pre
    bool digits;         // digits are split off one by one first
    const char *pattern; // NULL: GPT-2's
    bool ignore_merges, add_bos, nfc;
} rdi_pre_row;
const rdi_pre_row *rdi_pre_find(const char *name, size_t bytes);
void rdi_tokenizer_destroy(rd_tokenizer *t); // fields, not t itself

#endif // RDI_MODEL_TOKENIZER_H
