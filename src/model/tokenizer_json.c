// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of the Hugging Face tokenizers library, byte-level BPE only. Every component that this file does not know
// is refused by its type: a tokenizer that skips a step gives wrong ids without a sign.
#include "model/tokenizer.h"

#include <string.h>

static rd_status refuse(const char *field, const rdi_json *value, const char *need) {
    bool text = value && value->kind == RDI_JSON_STRING;
    return rdi_fail(RD_E_UNSUPPORTED, "%s=%.*s, needs %s", field,
                    text ? (int)rdi_min(value->text_bytes, 64) : 32,
                    text ? value->text : rdi_json_kind_name(value), need);
}

static bool is_null(const rdi_json *value) {
    return !value || value->kind == RDI_JSON_NULL;
}

// ---- normalizer -----------------------------------------------------------------------------------------------------
static rd_status read_normalizer(rd_tokenizer *t, const rdi_json *json) {
    if (is_null(json)) return RD_OK;
    const rdi_json *type = rdi_json_get(json, "type");
    if (rdi_json_is(type, "Sequence")) {
        const rdi_json *list = rdi_json_get(json, "normalizers");
        if (!list || list->kind != RDI_JSON_ARRAY || list->count > 1)
            return rdi_fail(RD_E_UNSUPPORTED, "normalizer: a sequence of %u, needs at most one step",
                            list ? list->count : 0);
        return list->count && list->first->kind == RDI_JSON_OBJECT &&
                       !rdi_json_is(rdi_json_get(list->first, "type"), "Sequence")
                   ? read_normalizer(t, list->first)
                   : RD_OK;
    }
    static const char *const names[] = {"", "NFC", "NFD", "NFKC", "NFKD"}; // by rdi_normal_form
    for (int form = RDI_NORMAL_NFC; form <= RDI_NORMAL_NFKD; form++)
        if (rdi_json_is(type, names[form])) {
            t->normal_form = (rdi_normal_form)form;
            return RD_OK;
        }
    return refuse("normalizer type", type, "one of NFC NFD NFKC NFKD");
}

// ---- pre-tokenizer --------------------------------------------------------------------------------------------------
static rd_status read_split(rd_tokenizer *t, const rdi_json *json) {
    const rdi_json *pattern = rdi_json_get(rdi_json_get(json, "pattern"), "Regex"),
                   *behavior = rdi_json_get(json, "behavior");
    bool invert;
    RDI_TRY(rdi_json_bool(json, "invert", false, &invert));
    if (!pattern || pattern->kind != RDI_JSON_STRING)
        return rdi_fail(RD_E_UNSUPPORTED, "pre_tokenizer: Split pattern, needs {\"Regex\": text}");
    rdi_split_kind kind = RDI_SPLIT_ISOLATE;
    if (rdi_json_is(behavior, "Removed"))
        kind = invert ? RDI_SPLIT_KEEP_MATCHES : RDI_SPLIT_KEEP_GAPS;
    else if (!rdi_json_is(behavior, "Isolated"))
        return refuse("pre_tokenizer: Split behavior", behavior, "one of Isolated Removed");
    return rdi_split_add(t, pattern->text, pattern->text_bytes, kind, false);
}

static rd_status read_pre_step(rd_tokenizer *t, const rdi_json *json, bool *byte_level) {
    const rdi_json *type = rdi_json_get(json, "type");
    bool flag, prefix;
    if (rdi_json_is(type, "Split")) return read_split(t, json);
    if (rdi_json_is(type, "Digits")) {
        RDI_TRY(rdi_json_bool(json, "individual_digits", false, &flag));
        const char *pattern = flag ? rdi_pattern_digit : rdi_pattern_digits;
        return rdi_split_add(t, pattern, strlen(pattern), RDI_SPLIT_ISOLATE, false);
    }
    if (rdi_json_is(type, "ByteLevel")) {
        *byte_level = true;
        RDI_TRY(rdi_json_bool(json, "use_regex", true, &flag));
        RDI_TRY(rdi_json_bool(json, "add_prefix_space", true, &prefix));
        if (!flag && !prefix) return RD_OK;
        return rdi_split_add(t, flag ? rdi_pattern_gpt2 : NULL, flag ? strlen(rdi_pattern_gpt2) : 0,
                             RDI_SPLIT_ISOLATE, prefix);
    }
    return refuse("pre_tokenizer type", type, "one of Sequence Split Digits ByteLevel");
}

static rd_status read_pre_tokenizer(rd_tokenizer *t, const rdi_json *json) {
    bool byte_level = false;
    if (rdi_json_is(rdi_json_get(json, "type"), "Sequence")) {
        const rdi_json *list = rdi_json_get(json, "pretokenizers");
        if (!list || list->kind != RDI_JSON_ARRAY)
            return rdi_fail(RD_E_FORMAT, "pre_tokenizer: pretokenizers is %s, needs an array",
                            rdi_json_kind_name(list));
        for (const rdi_json *step = list->first; step; step = step->next) {
            if (byte_level)
                return rdi_fail(RD_E_UNSUPPORTED,
                                "pre_tokenizer: a step after ByteLevel, needs ByteLevel last");
            RDI_TRY(read_pre_step(t, step, &byte_level));
        }
    } else {
        RDI_TRY(read_pre_step(t, json, &byte_level));
    }
    if (!byte_level)
        return rdi_fail(RD_E_UNSUPPORTED,
                        "pre_tokenizer: no ByteLevel step, needs a byte-level BPE tokenizer");
    return RD_OK;
}

// ---- model and added tokens -------------------------------------------------------------------------------------------
static rd_status check_model(const rdi_json *model) {
    const rdi_json *type = rdi_json_get(model, "type"), *dropout = rdi_json_get(model, "dropout");
    if (!is_null(type) && !rdi_json_is(type, "BPE")) return refuse("model type", type, "BPE");
    if (!is_null(dropout) && !(dropout->kind == RDI_JSON_REAL && dropout->real == 0))
        return rdi_fail(RD_E_UNSUPPORTED, "model: dropout is set, needs null");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < RDI_COUNT(affixes); i++) {
        const rdi_json *affix = rdi_json_get(model, affixes[i]);
        if (!is_null(affix) && !rdi_json_is(affix, ""))
            return refuse(affixes[i], affix, "null or an empty string");
    }
    bool fallback;
    RDI_TRY(rdi_json_bool(model, "byte_fallback", false, &fallback));
    return fallback ? rdi_fail(RD_E_UNSUPPORTED, "model: byte_fallback=true, needs false (byte-level BPE)")
                    : RD_OK;
}

static rd_status added_id(const rdi_json *token, int64_t *id) {
    if (!token || token->kind != RDI_JSON_OBJECT)
        return rdi_fail(RD_E_FORMAT, "added_tokens: an entry is %s, needs an object",
                        rdi_json_kind_name(token));
    return rdi_json_int(token, "id", 0, 1 << 24, RDI_REQUIRED, id);
}

// Ids may have holes, but a number far beyond the count is a lie that would only cost memory.
static rd_status count_tokens(const rdi_json *vocab, const rdi_json *added, int64_t *out) {
    int64_t last = -1, given = vocab->count + (added ? added->count : 0), id = 0;
    for (const rdi_json *at = vocab->first; at; at = at->next) {
        if (at->kind != RDI_JSON_INT || at->integer < 0)
            return rdi_fail(RD_E_FORMAT, "model: vocab[\"%.*s\"] is no token id",
                            (int)rdi_min(at->key_bytes, 64), at->key);
        last = rdi_max(last, at->integer);
    }
    for (const rdi_json *at = added ? added->first : NULL; at; at = at->next) {
        RDI_TRY(added_id(at, &id));
        last = rdi_max(last, id);
    }
    if (last < 0 || last > 2 * given + 65536)
        return rdi_fail(RD_E_FORMAT, "tokenizer: %lld tokens with ids up to %lld, needs dense ids",
                        (long long)given, (long long)last);
    *out = last + 1;
    return RD_OK;
}

static rd_status read_added(rd_tokenizer *t, const rdi_json *added) {
    for (const rdi_json *at = added ? added->first : NULL; at; at = at->next) {
        int64_t id = 0;
        bool special = false, single_word = false;
        const rdi_json *content = rdi_json_get(at, "content");
        RDI_TRY(added_id(at, &id));
        if (!content || content->kind != RDI_JSON_STRING)
            return rdi_fail(RD_E_FORMAT, "added_tokens: id %lld: content is %s, needs a string",
                            (long long)id, rdi_json_kind_name(content));
        RDI_TRY(rdi_json_bool(at, "special", false, &special));
        RDI_TRY(rdi_json_bool(at, "single_word", false, &single_word));
        if (single_word)
            return rdi_fail(RD_E_UNSUPPORTED, "added_tokens: id %lld: single_word=true, needs false",
                            (long long)id);
        RDI_TRY(rdi_vocab_set(t, id, content->text, content->text_bytes,
                              special ? RDI_TOKEN_SPECIAL : RDI_TOKEN_ADDED));
        RDI_TRY(rdi_json_bool(at, "lstrip", false, &t->token[id].lstrip));
        RDI_TRY(rdi_json_bool(at, "rstrip", false, &t->token[id].rstrip));
    }
    return RD_OK;
}

static rd_status read_merges(rd_tokenizer *t, const rdi_json *merges) {
    if (!merges || merges->kind != RDI_JSON_ARRAY)
        return rdi_fail(RD_E_FORMAT, "model: merges is %s, needs an array", rdi_json_kind_name(merges));
    RDI_TRY(rdi_vocab_finish(t, merges->count));
    int64_t rank = 0;
    for (const rdi_json *at = merges->first; at; at = at->next, rank++) {
        const rdi_json *left = at->kind == RDI_JSON_ARRAY && at->count == 2 ? at->first : NULL;
        if (left && left->kind == RDI_JSON_STRING && left->next->kind == RDI_JSON_STRING) {
            RDI_TRY(rdi_merge_add(t, rank, left->text, left->text_bytes, left->next->text,
                                  left->next->text_bytes));
            continue;
        }
        const char *space =
            at->kind == RDI_JSON_STRING && at->text_bytes ? memchr(at->text, ' ', at->text_bytes) : NULL;
        if (!space)
            return rdi_fail(RD_E_FORMAT, "model: merge %lld, needs \"left right\" or [left, right]",
                            (long long)rank);
        size_t head = (size_t)(space - at->text);
        RDI_TRY(rdi_merge_add(t, rank, at->text, head, space + 1, at->text_bytes - head - 1));
    }
    return RD_OK;
}

static rd_status read_model(rd_tokenizer *t, const rdi_json *json) {
    const rdi_json *model = rdi_json_get(json, "model"), *vocab = rdi_json_get(model, "vocab"),
                   *added = rdi_json_get(json, "added_tokens");
    int64_t count = 0;
    if (!vocab || vocab->kind != RDI_JSON_OBJECT)
        return rdi_fail(RD_E_FORMAT, "model: vocab is %s, needs an object", rdi_json_kind_name(vocab));
    if (is_null(added)) added = NULL;
    if (added && added->kind != RDI_JSON_ARRAY)
        return rdi_fail(RD_E_FORMAT, "added_tokens is %s, needs an array", rdi_json_kind_name(added));
    RDI_TRY(check_model(model));
    RDI_TRY(count_tokens(vocab, added, &count));
    RDI_TRY(rdi_vocab_create(t, count));
    for (const rdi_json *at = vocab->first; at; at = at->next)
        RDI_TRY(rdi_vocab_set(t, at->integer, at->key, at->key_bytes, RDI_TOKEN_NORMAL));
    RDI_TRY(read_added(t, added));
    RDI_TRY(read_merges(t, rdi_json_get(model, "merges")));
    RDI_TRY(rdi_json_bool(model, "ignore_merges", false, &t->ignore_merges));
    const rdi_json *unknown = rdi_json_get(model, "unk_token");
    if (unknown && unknown->kind == RDI_JSON_STRING)
        t->unknown_id = rdi_vocab_find(t, unknown->text, unknown->text_bytes);
    return rdi_trie_build(t);
}

// TemplateProcessing: special tokens before the text are the prefix; "single" is the template of one text.
static rd_status read_template(rd_tokenizer *t, const rdi_json *json) {
    const rdi_json *single = rdi_json_get(json, "single");
    for (const rdi_json *at = single && single->kind == RDI_JSON_ARRAY ? single->first : NULL; at;
         at = at->next) {
        const rdi_json *special = rdi_json_get(at, "SpecialToken"), *id_text = rdi_json_get(special, "id");
        if (!special) break; // the text itself; what follows it is no BOS
        int32_t id = id_text && id_text->kind == RDI_JSON_STRING
                         ? rdi_vocab_find(t, id_text->text, id_text->text_bytes)
                         : -1;
        if (id < 0 || t->prefix_count == RDI_MAX_PREFIX)
            return refuse("post_processor: special token", id_text, "up to four tokens of the vocabulary");
        t->prefix[t->prefix_count++] = id;
    }
    return RD_OK;
}

static rd_status read_post_processor(rd_tokenizer *t, const rdi_json *json) {
    const rdi_json *type = rdi_json_get(json, "type"), *list = rdi_json_get(json, "processors");
    if (is_null(json) || rdi_json_is(type, "ByteLevel")) return RD_OK; // ByteLevel only trims offsets
    if (rdi_json_is(type, "TemplateProcessing")) return read_template(t, json);
    if (!rdi_json_is(type, "Sequence") || !list || list->kind != RDI_JSON_ARRAY)
        return refuse("post_processor type", type, "one of ByteLevel TemplateProcessing Sequence");
    for (const rdi_json *at = list->first; at; at = at->next) {
        const rdi_json *step = rdi_json_get(at, "type");
        if (rdi_json_is(step, "TemplateProcessing"))
            RDI_TRY(read_template(t, at));
        else if (!rdi_json_is(step, "ByteLevel"))
            return refuse("post_processor type", step, "one of ByteLevel TemplateProcessing");
    }
    return RD_OK;
}

rd_status rdi_tokenizer_from_json(rd_tokenizer *t, const rdi_json *json) {
    t->unknown_id = -1;
    RDI_TRY(read_normalizer(t, rdi_json_get(json, "normalizer")));
    RDI_TRY(read_pre_tokenizer(t, rdi_json_get(json, "pre_tokenizer")));
    RDI_TRY(read_model(t, json));
    RDI_TRY(read_post_processor(t, rdi_json_get(json, "post_processor")));
    rdi_vocab_mark_ends(t);
    return RD_OK;
}

// ---- tokenizer_config.json --------------------------------------------------------------------------------------------
// A token is given as text or as an object with its content.
static rd_status token_text(rd_tokenizer *t, const rdi_json *json, const char *key, const char **out) {
    const rdi_json *value = rdi_json_get(json, key);
    if (is_null(value)) return RD_OK;
    return value->kind == RDI_JSON_OBJECT ? rdi_json_text(&t->arena, value, "content", NULL, out)
                                          : rdi_json_text(&t->arena, json, key, NULL, out);
}

static rd_status read_chat_template(rd_tokenizer *t, const rdi_json *json) {
    const rdi_json *value = rdi_json_get(json, "chat_template");
    if (!value || value->kind != RDI_JSON_ARRAY)
        return rdi_json_text(&t->arena, json, "chat_template", NULL, &t->chat_template);
    for (const rdi_json *at = value->first; at; at = at->next) // a list of named templates
        if (rdi_json_is(rdi_json_get(at, "name"), "default"))
            return rdi_json_text(&t->arena, at, "template", NULL, &t->chat_template);
    return RD_OK;
}

rd_status rdi_tokenizer_config(rd_tokenizer *t, const rdi_json *json) {
    bool add_bos;
    RDI_TRY(token_text(t, json, "bos_token", &t->bos_text));
    RDI_TRY(token_text(t, json, "eos_token", &t->eos_text));
    RDI_TRY(read_chat_template(t, json));
    RDI_TRY(rdi_json_bool(json, "add_bos_token", false, &add_bos));
    int32_t bos = t->bos_text ? rdi_vocab_find(t, t->bos_text, strlen(t->bos_text)) : -1;
    int32_t eos = t->eos_text ? rdi_vocab_find(t, t->eos_text, strlen(t->eos_text)) : -1;
    if (eos >= 0) t->token[eos].end = true;
    if (add_bos && bos < 0)
        return rdi_fail(RD_E_FORMAT, "add_bos_token=true, needs a bos_token of the vocabulary");
    if (add_bos && !t->prefix_count) t->prefix[t->prefix_count++] = bos;
    return RD_OK;
}
