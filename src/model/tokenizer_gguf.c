// SPDX-License-Identifier: Apache-2.0
// Tokenizers of GGUF files of the "gpt2" kind: tokens, types and merges as arrays, the pre-tokeniser as a name.
#include "model/tokenizer.h"

#include <string.h>

// Names that llama.cpp's converter writes, and the split that the named tokenizer's own tokenizer.json states.
static const rdi_pre_row pre_rows[] = {
    {"gpt-2", false, NULL, false, false, false},
    {"smollm", true, NULL, false, false, false},
    {"starcoder", true, NULL, false, false, false},
    {"refact", true, NULL, false, false, false},
    {"llama-bpe", false, rdi_pattern_llama3, true, true, false},
    {"llama3", false, rdi_pattern_llama3, true, true, false},
    {"qwen2", false, rdi_pattern_qwen2, false, false, true},
};

const rdi_pre_row *rdi_pre_find(const char *name, size_t bytes) {
    for (size_t i = 0; i < RDI_COUNT(pre_rows); i++)
        if (strlen(pre_rows[i].name) == bytes && !memcmp(pre_rows[i].name, name, bytes)) return &pre_rows[i];
    return NULL;
}

static rd_status need_array(const rdi_gguf *gguf, const char *key, bool strings, const rdi_gguf_value **out) {
    const rdi_gguf_value *value = *out = rdi_gguf_find(gguf, key);
    bool right = value && value->type == RDI_GGUF_ARRAY && (value->elem_type == RDI_GGUF_STRING) == strings &&
                 (strings || value->elem_type <= RDI_GGUF_I32);
    if (!right)
        return rdi_fail(RD_E_FORMAT, "%s: %s, needs an array of %s", gguf->what, key,
                        strings ? "strings" : "integers");
    return RD_OK;
}

static rd_status read_tokens(rd_tokenizer *t, const rdi_gguf *gguf) {
    enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 }; // the format's token types
    const rdi_gguf_value *tokens, *types;
    RDI_TRY(need_array(gguf, "tokenizer.ggml.tokens", true, &tokens));
    RDI_TRY(need_array(gguf, "tokenizer.ggml.token_type", false, &types));
    if (types->count != tokens->count)
        return rdi_fail(RD_E_FORMAT, "%s: tokenizer.ggml.token_type has %llu entries, needs %llu", gguf->what,
                        (unsigned long long)types->count, (unsigned long long)tokens->count);
    RDI_TRY(rdi_vocab_create(t, (int64_t)rdi_min((int64_t)tokens->count, INT32_MAX)));
    const uint8_t *cursor = tokens->data;
    for (int32_t id = 0; id < t->vocab; id++) {
        const char *text;
        uint64_t bytes;
        rdi_gguf_array_next(&cursor, &text, &bytes);
        int64_t type = rdi_gguf_array_int(types, (uint64_t)id);
        rdi_token_kind kind = RDI_TOKEN_NORMAL;
        if (type == CONTROL || type == UNKNOWN)
            kind = RDI_TOKEN_SPECIAL;
        else if (type == USER_DEFINED)
            kind = RDI_TOKEN_ADDED;
        else if (type != NORMAL && type != UNUSED)
            return rdi_fail(RD_E_UNSUPPORTED, "%s: token %d has token_type=%lld, needs 1 to 5", gguf->what,
                            id, (long long)type);
        if (!rdi_utf8_valid(text, bytes))
            return rdi_fail(RD_E_FORMAT, "%s: token %d is not valid UTF-8", gguf->what, id);
        RDI_TRY(rdi_vocab_set(t, id, text, bytes, kind));
    }
    return RD_OK;
}

static rd_status read_merges(rd_tokenizer *t, const rdi_gguf *gguf) {
    const rdi_gguf_value *merges;
    RDI_TRY(need_array(gguf, "tokenizer.ggml.merges", true, &merges));
    RDI_TRY(rdi_vocab_finish(t, (int64_t)rdi_min((int64_t)merges->count, INT32_MAX)));
    const uint8_t *cursor = merges->data;
    for (uint64_t rank = 0; rank < merges->count; rank++) {
        const char *text;
        uint64_t bytes;
        rdi_gguf_array_next(&cursor, &text, &bytes);
        const char *space = memchr(text, ' ', bytes);
        if (!space)
            return rdi_fail(RD_E_FORMAT, "%s: merge %llu has no space, needs \"left right\"", gguf->what,
                            (unsigned long long)rank);
        size_t left = (size_t)(space - text);
        RDI_TRY(rdi_merge_add(t, (int64_t)rank, text, left, space + 1, bytes - left - 1));
    }
    return RD_OK;
}

static rd_status read_ids(rd_tokenizer *t, const rdi_gguf *gguf, bool add_bos_default) {
    int64_t bos, end;
    bool add_bos;
    RDI_TRY(rdi_gguf_int(gguf, "tokenizer.ggml.bos_token_id", 0, t->vocab - 1, -1, &bos));
    RDI_TRY(rdi_gguf_bool(gguf, "tokenizer.ggml.add_bos_token", add_bos_default, &add_bos));
    if (bos >= 0) t->bos_text = t->token[bos].bytes;
    if (add_bos && bos < 0)
        return rdi_fail(RD_E_FORMAT, "%s: tokenizer.ggml.add_bos_token is true, needs bos_token_id",
                        gguf->what);
    if (add_bos) t->prefix[t->prefix_count++] = (int32_t)bos;
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < RDI_COUNT(keys); i++) {
        RDI_TRY(rdi_gguf_int(gguf, keys[i], 0, t->vocab - 1, -1, &end));
        if (end < 0) continue;
        t->token[end].end = true;
        if (i == 0) t->eos_text = t->token[end].bytes;
    }
    rdi_vocab_mark_ends(t);
    return RD_OK;
}

rd_status rdi_tokenizer_from_gguf(rd_tokenizer *t, const rdi_gguf *gguf) {
    const char *model = "", *pre = "";
    t->unknown_id = -1;
    RDI_TRY(rdi_gguf_text(&t->arena, gguf, "tokenizer.ggml.model", "nothing", &model));
    if (strcmp(model, "gpt2") != 0)
        return rdi_fail(RD_E_UNSUPPORTED, "%s: tokenizer.ggml.model=%.40s, needs gpt2 (byte-level BPE)",
                        gguf->what, model);
    RDI_TRY(rdi_gguf_text(&t->arena, gguf, "tokenizer.ggml.pre", "nothing", &pre));
    const rdi_pre_row *row = rdi_pre_find(pre, strlen(pre));
    if (!row)
        return rdi_fail(
            RD_E_UNSUPPORTED,
            "%s: tokenizer.ggml.pre=%.40s, needs one of gpt-2 smollm starcoder refact llama-bpe llama3 qwen2",
            gguf->what, pre);
    t->pre_name = row->name;
    t->ignore_merges = row->ignore_merges;
    t->normal_form = row->nfc ? RDI_NORMAL_NFC : RDI_NORMAL_NONE;
    if (row->digits)
        RDI_TRY(rdi_split_add(t, rdi_pattern_digit, strlen(rdi_pattern_digit), RDI_SPLIT_ISOLATE, false));
    const char *pattern = row->pattern ? row->pattern : rdi_pattern_gpt2;
    RDI_TRY(rdi_split_add(t, pattern, strlen(pattern), RDI_SPLIT_ISOLATE, false));
    RDI_TRY(read_tokens(t, gguf));
    RDI_TRY(read_merges(t, gguf));
    RDI_TRY(rdi_trie_build(t));
    RDI_TRY(read_ids(t, gguf, row->add_bos));
    return rdi_gguf_text(&t->arena, gguf, "tokenizer.chat_template", NULL, &t->chat_template);
}
