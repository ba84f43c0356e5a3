// SPDX-License-Identifier: Apache-2.0
// radiance_run.h: models, tokenizers, conversion and the engine on top of libradiance (libradiance_run).
//
// rd_model_open maps a Hugging Face folder or a GGUF file; rd_engine_create binds its weights to plans; a session owns one
// token timeline. Callers hand in FULL token prefixes: rd_session_sync reuses what is already there. Errors as in radiance.h.
#ifndef RADIANCE_RUN_H
#define RADIANCE_RUN_H

#include "radiance.h"

#ifdef __cplusplus
extern "C" {
#endif

// Return non-zero to stop: the call ends with RD_E_CANCELLED, nothing is lost.
typedef int (*rd_progress_fn)(void *state, const char *what, int64_t done, int64_t total);

// ---- model -------------------------------------------------------------------------------------------------------
typedef struct rd_model rd_model;
typedef struct rd_model_info {
    uint32_t struct_size;
    const char *architecture; // "LlamaForCausalLM", "Qwen3ForCausalLM", "Gemma3ForCausalLM"
    const char *format;       // "safetensors", "gguf" or "random"
    const char *quantization; // "none", "fp8_block128", or the GGUF types in words
    int32_t layers, hidden, intermediate, q_heads, kv_heads, head_dim, vocab, context_tokens;
    int32_t tied_head;    // 1: the head is the embedding
    int64_t weight_bytes; // as stored
    int64_t parameters;
} rd_model_info;

RD_API rd_status rd_model_open(const char *path,
                               rd_model **out); // folder or .gguf; everything checked, nothing copied
// A model of a shape without its checkpoint: config is the path of a file with the fields of a config.json, weights are
// drawn from the seed. With a quantization_config the layers are block-FP8. It has no tokenizer. For benches: all layers
// hold the same values.
RD_API rd_status rd_model_open_random(const char *config, uint64_t seed, rd_model **out);
RD_API void rd_model_close(rd_model *model);
RD_API rd_status rd_model_get_info(const rd_model *model, rd_model_info *info);

// ---- tokenizer -----------------------------------------------------------------------------------------------------
typedef struct rd_tokenizer rd_tokenizer;
enum {
    RD_TOKENIZE_SPECIAL = 1,
    RD_TOKENIZE_ADD_BOS = 2
}; // parse special tokens in the text; BOS as the model asks
RD_API rd_status rd_tokenizer_open(const char *path, rd_tokenizer **out); // model folder or .gguf
RD_API void rd_tokenizer_close(rd_tokenizer *tokenizer);
RD_API const rd_tokenizer *
rd_model_tokenizer(const rd_model *model); // RD_E_* text when the model has none: NULL
// text need not end with NUL; it must be UTF-8. *count in: capacity of ids, out: ids needed. RD_E_LIMIT when too small.
RD_API rd_status rd_tokenize(const rd_tokenizer *tokenizer, const char *text, size_t text_bytes,
                             uint32_t flags, int32_t *ids, int64_t *count);
// Bytes of one token (may be part of a UTF-8 sequence). special = 0 renders special tokens as nothing.
RD_API rd_status rd_token_bytes(const rd_tokenizer *tokenizer, int32_t id, int32_t special,
                                const char **bytes, size_t *byte_count);
RD_API rd_status rd_detokenize(const rd_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                               int32_t special, char *text,
                               size_t *bytes); // *bytes in: capacity, out: length with NUL
RD_API int32_t rd_token_is_end(const rd_tokenizer *tokenizer, int32_t id); // end of generation
RD_API int32_t rd_tokenizer_vocab(const rd_tokenizer *tokenizer);
typedef struct rd_chat_message {
    const char *role, *content;
} rd_chat_message;
// Renders the model's chat template (a safe Jinja subset); RD_E_UNSUPPORTED names a construct outside it.
RD_API rd_status rd_chat_render(const rd_tokenizer *tokenizer, const rd_chat_message *messages, int32_t count,
                                int32_t add_generation_prompt, char *text, size_t *bytes);

// ---- convert -------------------------------------------------------------------------------------------------------
typedef struct rd_convert_tensor_report {
    const char *name;
    double mean_abs_error, max_abs_error,
        relative_error; // of the dequantised tensor; relative = sum|d| / sum|w|
} rd_convert_tensor_report;
typedef struct rd_convert_options {
    uint32_t struct_size;
    int32_t head_fp8;  // quantise embedding-tied or separate head too (stored as lm_head.weight)
    int32_t overwrite; // replace an existing output folder
    rd_progress_fn progress;
    void *progress_state;
    void (*report)(void *state, const rd_convert_tensor_report *tensor); // per tensor, NULL = no verification
    void *report_state;
} rd_convert_options;
// IN: HF folder or .gguf. OUT: an HF folder in block-FP8 layout (e4m3 + weight_scale_inv, 128x128). Atomic: OUT appears
// whole or not at all.
RD_API rd_status rd_convert(const char *in, const char *out, const rd_convert_options *options);

// ---- engine --------------------------------------------------------------------------------------------------------
typedef struct rd_engine rd_engine;
typedef struct rd_session rd_session;
typedef enum rd_activation { RD_ACT_W8A16 = 0, RD_ACT_W8A8 = 1 } rd_activation;

typedef struct rd_engine_options {
    uint32_t struct_size;
    int32_t context_tokens;   // per session, 0 = the model's
    int32_t max_sessions;     // sessions that share the KV pool, 0 = 1
    int32_t max_batch_rows;   // most token rows of one step (prefill chunk), 0 = 512
    rd_dtype kv_dtype;        // RD_DTYPE_E4M3 or RD_DTYPE_BF16; NONE = bf16
    rd_activation activation; // how block-FP8 linears run
    rd_progress_fn progress;
    void *progress_state;
} rd_engine_options;

typedef struct rd_memory_report { // bytes, exact, before anything is allocated
    uint32_t struct_size;
    int64_t weights_mapped, weights_packed, kv_cache, kv_per_token, workspace, activations, total_allocated;
} rd_memory_report;

RD_API rd_status rd_engine_memory(rd_ctx *ctx, const rd_model *model, const rd_engine_options *options,
                                  rd_memory_report *report);
// The model and the context must outlive the engine.
RD_API rd_status rd_engine_create(rd_ctx *ctx, const rd_model *model, const rd_engine_options *options,
                                  rd_engine **out);
RD_API void rd_engine_free(rd_engine *engine);

RD_API rd_status rd_session_create(rd_engine *engine, rd_session **out);
RD_API void rd_session_free(rd_session *session);
RD_API int64_t rd_session_tokens(const rd_session *session); // tokens in the timeline
RD_API int64_t rd_session_room(const rd_session *session);   // tokens that still fit
// Makes the timeline equal ids[0..count): keeps the common prefix, drops the rest, prefills what is new in chunks. The
// logits of the last position are ready afterwards. RD_E_LIMIT (with how many fit) leaves the timeline as it was.
RD_API rd_status rd_session_sync(rd_session *session, const int32_t *ids, int64_t count,
                                 rd_progress_fn progress, void *progress_state);
RD_API rd_status rd_session_truncate(rd_session *session, int64_t tokens); // drop the tail: rejected drafts
RD_API const float *
rd_session_logits(const rd_session *session); // [vocab] of the last position; NULL before any

// One decode or verify step over several sessions: each appends its `count` tokens (1..17) and gets logits for every one.
// Rows of one item never depend on the other items. A session in prefill (fresh tokens) goes through sync, not here.
#define RD_MAX_VERIFY_WIDTH 17
typedef struct rd_step_item {
    rd_session *session;
    const int32_t *ids;
    int32_t count;
    float *logits; // [count, vocab] out, may be NULL except that the last row is always kept in the session
} rd_step_item;
RD_API rd_status rd_engine_step(rd_engine *engine, const rd_step_item *items, int32_t count);

// ---- profile: what a pass of an engine takes, and which kernel takes how much of it -------------------------------------
// All sessions of the engine must be free (RD_E_STATE); the cache's contents are overwritten. Options out of range are
// RD_E_INVALID by field. On a card the whole step and each part alone are recorded as graphs and timed by the device as they are
// replayed; a prefill pass, and all on a CPU, runs as it always does.
typedef struct rd_profile_options {
    uint32_t struct_size;
    int32_t sessions;        // of a decode step: one new token each, 0 = 1
    int32_t context_tokens;  // already in each session's cache
    int32_t prefill_tokens;  // > 0: one prefill pass of that many tokens of one session instead
    int32_t repeats;         // samples of each time, 0 = 10
    rd_progress_fn progress; // between samples; non-zero stops: RD_E_CANCELLED
    void *progress_state;
} rd_profile_options;
typedef struct rd_profile_part {
    const char *name;   // "qkv", "attention"
    const char *kernel; // a row's name; "copies" of ids, lengths and block tables to a card
    int32_t calls;      // in one pass
    double us;          // of all of them, the pass's other parts left out
    double us_in_pass;  // how much longer the whole pass is for them: the edges to their neighbours included
    double bytes;       // weights, scales, cached keys and values that they must read
    double flops;       // of products
} rd_profile_part;
#define RD_MAX_PROFILE_PARTS 16
typedef struct rd_profile {
    uint32_t struct_size;
    int32_t is_graph;          // the whole pass was timed as one
    double us_best, us_median; // of the whole pass
    double parts_us;           // sum of the parts' times
    double bytes, flops;       // sums
    int32_t kernel_calls;      // calls of ops in one pass
    int32_t part_count;
    rd_profile_part part[RD_MAX_PROFILE_PARTS];
} rd_profile;
RD_API rd_status rd_engine_profile(rd_engine *engine, const rd_profile_options *options, rd_profile *out);

typedef struct rd_generate_options {
    uint32_t struct_size;
    int32_t max_tokens;
    rd_sample_row sampling; // counter is set by the engine
    int32_t ignore_end;     // keep going past an end token
    int (*on_token)(void *state, int32_t id, const char *bytes, size_t byte_count); // non-zero stops
    void *on_token_state;
} rd_generate_options;
typedef struct rd_generate_result {
    uint32_t struct_size;
    int64_t generated;
    int32_t hit_end;   // an end token was produced (not counted in generated)
    int32_t hit_limit; // the context is full
    double prefill_seconds, decode_seconds;
    int64_t prefilled_tokens; // after prefix reuse
} rd_generate_result;
// Syncs the session to prompt ids, then samples. ids_out: [max_tokens].
RD_API rd_status rd_generate(rd_session *session, const int32_t *prompt, int64_t prompt_count,
                             const rd_generate_options *options, int32_t *ids_out,
                             rd_generate_result *result);

#ifdef __cplusplus
}
#endif
#endif // RADIANCE_RUN_H
