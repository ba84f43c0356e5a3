// SPDX-License-Identifier: Apache-2.0
// config.json with the published block-FP8 quantization_config, and the tokenizer files of a GGUF model in the layout of
// the Hugging Face libraries.
#include "model/convert.h"

#include <stdlib.h>
#include <string.h>

void rdi_json_put_string(FILE *file, const char *text, size_t bytes) {
    fputc('"', file);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void put_text(FILE *file, const char *text) {
    rdi_json_put_string(file, text, strlen(text));
}

// The shortest text that reads back as the same float: 1e-05, not 9.99999975e-06.
static void put_float(FILE *file, float value) {
    char text[32];
    int digits = 1;
    do snprintf(text, sizeof text, "%.*g", digits, (double)value);
    while (strtof(text, NULL) != value && ++digits <= 9);
    fputs(text, file);
}

static void put_float_field(FILE *file, const char *key, float value, const char *after) {
    fprintf(file, "\"%s\": ", key);
    put_float(file, value);
    fputs(after, file);
}

// ---- config.json --------------------------------------------------------------------------------------------------------
static void put_rope(FILE *file, const rdi_model_config *c) {
    fputs("  ", file);
    put_float_field(file, "rope_theta", c->rope_theta, ",\n");
    if (c->rope_scaling == RDI_ROPE_NONE) {
        fprintf(file, "  \"rope_scaling\": null,\n");
        return;
    }
    fprintf(file, "  \"rope_scaling\": {");
    put_float_field(file, "factor", c->rope_factor, ", ");
    if (c->rope_scaling == RDI_ROPE_LLAMA3) {
        put_float_field(file, "low_freq_factor", c->rope_low_factor, ", ");
        put_float_field(file, "high_freq_factor", c->rope_high_factor, ", ");
        fprintf(file, "\"original_max_position_embeddings\": %d, ", c->rope_original_context);
    }
    fprintf(file, "\"rope_type\": \"%s\"},\n", c->rope_scaling == RDI_ROPE_LINEAR ? "linear" : "llama3");
}

// The model's own end tokens come first; the tokenizer may know more (a GGUF names only one).
static void put_ends(FILE *file, const rdi_model_config *c, const rd_tokenizer *t) {
    int count = 0;
    fprintf(file, "[");
    for (int i = 0; i < c->eos_count; i++) fprintf(file, "%s%d", count++ ? ", " : "", c->eos_ids[i]);
    for (int32_t id = 0; t && id < t->vocab; id++) {
        bool listed = !t->token[id].end;
        for (int i = 0; i < c->eos_count; i++) listed |= c->eos_ids[i] == id;
        if (!listed) fprintf(file, "%s%d", count++ ? ", " : "", id);
    }
    fprintf(file, "]");
}

// What Gemma's class reads: transformers' names and its defaults written out.
static void put_gemma(FILE *file, const rdi_model_config *c) {
    fprintf(
        file,
        "  \"hidden_activation\": \"gelu_pytorch_tanh\",\n  \"sliding_window\": %d,\n  \"layer_types\": [",
        c->window);
    for (int32_t i = 0; i < c->layers; i++)
        fprintf(file, "%s\"%s\"", i ? ", " : "",
                rdi_layer_is_local(c, i) ? "sliding_attention" : "full_attention");
    fprintf(file, "],\n  \"sliding_window_pattern\": %d,\n  ", c->window_period);
    put_float_field(file, "rope_local_base_freq", c->local_rope_theta, ",\n  ");
    put_float_field(file, "query_pre_attn_scalar", c->attn_scalar, ",\n");
}

static void put_config(FILE *file, const rdi_model_config *c, const rd_tokenizer *t, bool head_fp8) {
    bool qwen3 = !strcmp(c->architecture, "Qwen3ForCausalLM"),
         gemma = !strcmp(c->architecture, "Gemma3ForCausalLM");
    fprintf(file, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n", c->architecture,
            gemma   ? "gemma3_text"
            : qwen3 ? "qwen3"
                    : "llama");
    fprintf(file, "  \"num_hidden_layers\": %d,\n  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n",
            c->layers, c->hidden, c->intermediate);
    fprintf(file, "  \"num_attention_heads\": %d,\n  \"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n",
            c->q_heads, c->kv_heads, c->head_dim);
    fprintf(file, "  \"vocab_size\": %d,\n  \"max_position_embeddings\": %d,\n  ", c->vocab,
            c->context_tokens);
    put_float_field(file, "rms_norm_eps", c->norm_eps, ",\n");
    put_rope(file, c);
    if (gemma)
        put_gemma(file, c);
    else
        fprintf(file, "  \"hidden_act\": \"silu\",\n");
    fprintf(file, "  \"attention_bias\": false,\n");
    if (!qwen3 && !gemma) fprintf(file, "  \"mlp_bias\": false,\n");
    fprintf(file, "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"bfloat16\",\n",
            c->tied_head && !head_fp8 ? "true" : "false");
    if (c->bos_id >= 0) fprintf(file, "  \"bos_token_id\": %d,\n", c->bos_id);
    fprintf(file, "  \"eos_token_id\": ");
    put_ends(file, c, t);
    // With an FP8 head the list stays empty but present: transformers then converts lm_head too.
    fprintf(file,
            ",\n  \"quantization_config\": {\n    \"quant_method\": \"fp8\",\n    \"fmt\": \"e4m3\",\n    "
            "\"activation_scheme\": \"dynamic\",\n"
            "    \"weight_block_size\": [128, 128],\n    \"modules_to_not_convert\": [%s]\n  }\n}\n",
            head_fp8 ? "" : "\"lm_head\"");
}

rd_status rdi_write_config(const rdi_out_folder *folder, const rdi_model_config *config,
                           const rd_tokenizer *tokenizer, bool head_fp8) {
    FILE *file;
    RDI_TRY(rdi_folder_create_file(folder, "config.json", &file));
    put_config(file, config, tokenizer, head_fp8);
    return rdi_folder_close_file(folder, "config.json", file, RD_OK);
}

// ---- tokenizer.json -----------------------------------------------------------------------------------------------------
// One token as the vocabulary spells it: byte alphabet for normal tokens.
static void put_token(FILE *file, const rdi_token *token, char *scratch) {
    if (token->kind == RDI_TOKEN_NORMAL)
        rdi_json_put_string(file, scratch,
                            rdi_byte_alphabet_encode(token->bytes, token->byte_count, scratch));
    else
        rdi_json_put_string(file, token->bytes, token->byte_count);
}

static void put_pre_tokenizer(FILE *file, const rdi_pre_row *pre) {
    fprintf(file, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    if (pre->digits) fprintf(file, "{\"type\": \"Digits\", \"individual_digits\": true}, ");
    if (pre->pattern) {
        fprintf(file, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        put_text(file, pre->pattern);
        fprintf(file, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    fprintf(file,
            "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": "
            "%s}]},\n",
            pre->pattern ? "false" : "true");
}

static void put_post_processor(FILE *file, const rd_tokenizer *t) {
    if (!t->prefix_count) {
        fprintf(file, "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                      "\"trim_offsets\": false, \"use_regex\": true},\n");
        return;
    }
    const rdi_token *bos = &t->token[t->prefix[0]];
    fprintf(
        file,
        "  \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": ");
    rdi_json_put_string(file, bos->bytes, bos->byte_count);
    fprintf(file, ", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": "
                  "[{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                  "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {");
    rdi_json_put_string(file, bos->bytes, bos->byte_count);
    fprintf(file, ": {\"id\": ");
    rdi_json_put_string(file, bos->bytes, bos->byte_count);
    fprintf(file, ", \"ids\": [%d], \"tokens\": [", t->prefix[0]);
    rdi_json_put_string(file, bos->bytes, bos->byte_count);
    fprintf(file, "]}}},\n");
}

static void put_added(FILE *file, const rd_tokenizer *t) {
    const char *separator = "\n";
    fprintf(file, "  \"added_tokens\": [");
    for (int32_t id = 0; id < t->vocab; id++) {
        const rdi_token *token = &t->token[id];
        if (token->kind < RDI_TOKEN_ADDED) continue;
        fprintf(file, "%s    {\"id\": %d, \"content\": ", separator, id);
        rdi_json_put_string(file, token->bytes, token->byte_count);
        fprintf(file,
                ", \"single_word\": false, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": false, "
                "\"special\": %s}",
                token->lstrip ? "true" : "false", token->rstrip ? "true" : "false",
                token->kind == RDI_TOKEN_SPECIAL ? "true" : "false");
        separator = ",\n";
    }
    fprintf(file, "],\n");
}

// Merges in rank order; the lookup table has them by hash.
static rd_status put_merges(FILE *file, const rd_tokenizer *t, char *scratch) {
    int64_t count = 0;
    for (uint32_t slot = 0; slot <= t->merge_mask; slot++)
        if (t->merge_slots[slot].pair) count = rdi_max(count, t->merge_slots[slot].rank + 1);
    uint64_t *pair = rdi_calloc((size_t)count, sizeof *pair); // by rank, 0: none
    if (!pair) return RD_E_NOMEM;
    for (uint32_t slot = 0; slot <= t->merge_mask; slot++)
        if (t->merge_slots[slot].pair) pair[t->merge_slots[slot].rank] = t->merge_slots[slot].pair;
    const char *separator = "\n";
    fprintf(file, "    \"merges\": [");
    for (int64_t rank = 0; rank < count; rank++) {
        if (!pair[rank]) continue;
        fprintf(file, "%s      [", separator);
        put_token(file, &t->token[(pair[rank] - 1) >> 32], scratch);
        fprintf(file, ", ");
        put_token(file, &t->token[(pair[rank] - 1) & 0xffffffffu], scratch);
        fprintf(file, "]");
        separator = ",\n";
    }
    fprintf(file, "]\n");
    rdi_free(pair);
    return RD_OK;
}

static rd_status put_tokenizer(FILE *file, const rd_tokenizer *t, char *scratch) {
    const rdi_pre_row *pre = rdi_pre_find(t->pre_name, strlen(t->pre_name));
    fprintf(file, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(file, t);
    fprintf(file, "  \"normalizer\": %s,\n",
            t->normal_form == RDI_NORMAL_NFC ? "{\"type\": \"NFC\"}" : "null");
    put_pre_tokenizer(file, pre);
    put_post_processor(file, t);
    fprintf(file,
            "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
            "\"use_regex\": true},\n"
            "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
            "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": "
            "false,\n"
            "    \"byte_fallback\": false,\n    \"ignore_merges\": %s,\n    \"vocab\": {",
            t->ignore_merges ? "true" : "false");
    for (int32_t id = 0; id < t->vocab;
         id++) { // special tokens too: the library numbers an added token by the vocabulary
        fprintf(file, "%s      ", id ? ",\n" : "\n");
        put_token(file, &t->token[id], scratch);
        fprintf(file, ": %d", id);
    }
    fprintf(file, "},\n");
    RDI_TRY(put_merges(file, t, scratch));
    fprintf(file, "  }\n}\n");
    return RD_OK;
}

static void put_tokenizer_config(FILE *file, const rd_tokenizer *t, const rdi_model_config *c) {
    fprintf(
        file,
        "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"clean_up_tokenization_spaces\": false,\n"
        "  \"model_max_length\": %d,\n  \"add_bos_token\": %s",
        c->context_tokens, t->prefix_count ? "true" : "false");
    const struct {
        const char *key, *text;
    } rows[] = {{"bos_token", t->bos_text}, {"eos_token", t->eos_text}, {"chat_template", t->chat_template}};
    for (size_t i = 0; i < RDI_COUNT(rows); i++) {
        if (!rows[i].text) continue;
        fprintf(file, ",\n  \"%s\": ", rows[i].key);
        put_text(file, rows[i].text);
    }
    fprintf(file, "\n}\n");
}

rd_status rdi_write_tokenizer(const rdi_out_folder *folder, const rd_tokenizer *t,
                              const rdi_model_config *c) {
    FILE *file;
    size_t longest = 0;
    for (int32_t id = 0; id < t->vocab; id++)
        longest = t->token[id].byte_count > longest ? t->token[id].byte_count : longest;
    char *scratch = rdi_alloc(2 * longest + 1);
    if (!scratch) return RD_E_NOMEM;
    rd_status status = rdi_folder_create_file(folder, "tokenizer.json", &file);
    if (!status)
        status = rdi_folder_close_file(folder, "tokenizer.json", file, put_tokenizer(file, t, scratch));
    rdi_free(scratch);
    RDI_TRY(status);
    RDI_TRY(rdi_folder_create_file(folder, "tokenizer_config.json", &file));
    put_tokenizer_config(file, t, c);
    RDI_TRY(rdi_folder_close_file(folder, "tokenizer_config.json", file, RD_OK));
    RDI_TRY(rdi_folder_create_file(folder, "generation_config.json", &file));
    fprintf(file, "{\n  \"eos_token_id\": ");
    put_ends(file, c, t);
    if (c->bos_id >= 0) fprintf(file, ",\n  \"bos_token_id\": %d", c->bos_id);
    fprintf(file, "\n}\n");
    return rdi_folder_close_file(folder, "generation_config.json", file, RD_OK);
}
