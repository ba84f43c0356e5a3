// SPDX-License-Identifier: Apache-2.0
// The public tokenizer calls: open a folder or a GGUF file, text to ids, ids to bytes.
#include "model/tokenizer.h"

#include <stdio.h>
#include <string.h>

// ---- open -----------------------------------------------------------------------------------------------------------
void rdi_tokenizer_destroy(rd_tokenizer *t) {
    rdi_split_free(t);
    rdi_arena_free(&t->arena);
}

static void mark_end(rd_tokenizer *t, int64_t id) {
    if (id >= 0 && id < t->vocab) t->token[id].end = true;
}

// eos_token_id of config.json or generation_config.json: a number or a list.
static void mark_json_ends(rd_tokenizer *t, const rdi_json *json) {
    const rdi_json *eos = rdi_json_get(json, "eos_token_id");
    if (!eos) return;
    if (eos->kind == RDI_JSON_INT) mark_end(t, eos->integer);
    if (eos->kind != RDI_JSON_ARRAY) return;
    for (const rdi_json *at = eos->first; at; at = at->next)
        if (at->kind == RDI_JSON_INT) mark_end(t, at->integer);
}

typedef rd_status (*json_reader)(rd_tokenizer *t, const rdi_json *json);
static rd_status read_ends(rd_tokenizer *t, const rdi_json *json) {
    mark_json_ends(t, json);
    return RD_OK;
}

static rd_status read_file(rd_tokenizer *t, const char *folder, const char *file, bool required,
                           json_reader reader) {
    char *path = rdi_format("%s/%s", folder, file);
    if (!path) return RD_E_NOMEM;
    rd_status status = RD_OK;
    if (required || rdi_file_exists(path)) {
        rdi_mapping mapping = {0};
        rdi_arena scratch = {0};
        const rdi_json *json;
        status = rdi_json_read(&scratch, path, &mapping, &json);
        if (!status) {
            status = reader(t, json);
            if (status && status != RD_E_NOMEM) rdi_fail_prefix(status, "%s", path);
        }
        rdi_arena_free(&scratch);
        rdi_file_unmap(&mapping);
    }
    rdi_free(path);
    return status;
}

// Newer folders keep the chat template in a file of its own, which then counts.
static rd_status read_template_file(rd_tokenizer *t, const char *folder) {
    char *path = rdi_format("%s/chat_template.jinja", folder);
    if (!path) return RD_E_NOMEM;
    rd_status status = RD_OK;
    if (rdi_file_exists(path)) {
        rdi_mapping mapping = {0};
        status = rdi_file_map(path, &mapping);
        if (!status && (memchr(mapping.data, 0, mapping.bytes) ||
                        !rdi_utf8_valid((const char *)mapping.data, mapping.bytes)))
            status = rdi_fail(RD_E_FORMAT, "%s: needs UTF-8 without NUL", path);
        if (!status) {
            t->chat_template = rdi_arena_strndup(&t->arena, (const char *)mapping.data, mapping.bytes);
            if (!t->chat_template) status = RD_E_NOMEM;
        }
        rdi_file_unmap(&mapping);
    }
    rdi_free(path);
    return status;
}

static rd_status open_folder(rd_tokenizer *t, const char *folder) {
    RDI_TRY(read_file(t, folder, "tokenizer.json", true, rdi_tokenizer_from_json));
    RDI_TRY(read_file(t, folder, "tokenizer_config.json", false, rdi_tokenizer_config));
    RDI_TRY(read_template_file(t, folder));
    RDI_TRY(read_file(t, folder, "config.json", false, read_ends));
    return read_file(t, folder, "generation_config.json", false, read_ends);
}

static rd_status open_gguf(rd_tokenizer *t, const char *path) {
    rdi_mapping mapping;
    rdi_arena scratch = {0};
    rdi_gguf gguf;
    RDI_TRY(rdi_file_map(path, &mapping));
    rd_status status = rdi_gguf_parse(&scratch, path, mapping.data, mapping.bytes, &gguf);
    if (!status) status = rdi_tokenizer_from_gguf(t, &gguf);
    rdi_arena_free(&scratch);
    rdi_file_unmap(&mapping);
    return status;
}

rd_status rd_tokenizer_open(const char *path, rd_tokenizer **out) {
    if (!out) return rdi_fail(RD_E_INVALID, "rd_tokenizer_open: out is NULL");
    *out = NULL;
    if (!path || !*path)
        return rdi_fail(RD_E_INVALID,
                        "rd_tokenizer_open: path is empty, needs a model folder or a .gguf file");
    rd_tokenizer *t = rdi_calloc(1, sizeof *t);
    if (!t) return RD_E_NOMEM;
    t->unknown_id = -1;
    rd_status status = rdi_folder_exists(path) ? open_folder(t, path) : open_gguf(t, path);
    if (status) {
        rd_tokenizer_close(t);
        return status;
    }
    *out = t;
    return RD_OK;
}

void rd_tokenizer_close(rd_tokenizer *tokenizer) {
    if (!tokenizer) return;
    rdi_tokenizer_destroy(tokenizer);
    rdi_free(tokenizer);
}

// ---- text to ids -----------------------------------------------------------------------------------------------------
static bool space_at(const char *at, const char *end,
                     int *bytes) { // ASCII white space and U+00A0 suffice for rstrip
    *bytes = 1;
    if (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r'))) return true;
    *bytes = 2;
    return end - at >= 2 && (unsigned char)at[0] == 0xc2 && (unsigned char)at[1] == 0xa0;
}

static const char *trim_tail(const char *begin, const char *end) {
    while (end > begin && (end[-1] == ' ' || (end[-1] >= '\t' && end[-1] <= '\r'))) end--;
    return end;
}

// Cuts text at added tokens; what lies between goes through the pre-tokeniser.
static rd_status encode_text(const rd_tokenizer *t, rdi_pretoken_run *run, const char *text, const char *end,
                             bool specials, rdi_id_sink *sink) {
    const char *plain = text;
    while (text < end) {
        int32_t id = rdi_trie_match(t, text, end, specials);
        if (id < 0) {
            text++;
            continue;
        }
        const rdi_token *token = &t->token[id];
        const char *plain_end = token->lstrip ? trim_tail(plain, text) : text;
        RDI_TRY(rdi_pretoken_encode(run, plain, (size_t)(plain_end - plain), sink));
        if (sink->count < sink->capacity) sink->ids[sink->count] = id;
        sink->count++;
        text += token->byte_count;
        for (int bytes; token->rstrip && space_at(text, end, &bytes);) text += bytes;
        plain = text;
    }
    return rdi_pretoken_encode(run, plain, (size_t)(end - plain), sink);
}

rd_status rd_tokenize(const rd_tokenizer *tokenizer, const char *text, size_t text_bytes, uint32_t flags,
                      int32_t *ids, int64_t *count) {
    if (!tokenizer || !count || (!text && text_bytes))
        return rdi_fail(RD_E_INVALID, "rd_tokenize: tokenizer, text or count is NULL");
    if (flags & ~(uint32_t)(RD_TOKENIZE_SPECIAL | RD_TOKENIZE_ADD_BOS))
        return rdi_fail(RD_E_INVALID,
                        "rd_tokenize: flags=0x%x, needs RD_TOKENIZE_SPECIAL and RD_TOKENIZE_ADD_BOS only",
                        flags);
    if (!rdi_utf8_valid(text, text_bytes))
        return rdi_fail(RD_E_INVALID, "rd_tokenize: text is not valid UTF-8");
    if (text_bytes > INT32_MAX / 2)
        return rdi_fail(RD_E_LIMIT, "rd_tokenize: text of %zu bytes, needs under 1 GiB", text_bytes);
    rdi_id_sink sink = {ids, ids ? *count : 0, 0};
    for (int32_t i = 0; (flags & RD_TOKENIZE_ADD_BOS) && i < tokenizer->prefix_count; i++, sink.count++)
        if (sink.count < sink.capacity) ids[sink.count] = tokenizer->prefix[i];
    if (text_bytes) {
        rdi_pretoken_run *run;
        RDI_TRY(rdi_pretoken_begin(tokenizer, &run));
        rd_status status =
            encode_text(tokenizer, run, text, text + text_bytes, flags & RD_TOKENIZE_SPECIAL, &sink);
        rdi_pretoken_end(run);
        RDI_TRY(status);
    }
    *count = sink.count;
    if (ids && sink.count > sink.capacity)
        return rdi_fail(RD_E_LIMIT, "rd_tokenize: room for %lld ids, needs %lld", (long long)sink.capacity,
                        (long long)sink.count);
    return RD_OK;
}

// ---- ids to text ------------------------------------------------------------------------------------------------------
rd_status rd_token_bytes(const rd_tokenizer *tokenizer, int32_t id, int32_t special, const char **bytes,
                         size_t *byte_count) {
    if (!tokenizer || !bytes || !byte_count)
        return rdi_fail(RD_E_INVALID, "rd_token_bytes: tokenizer, bytes or byte_count is NULL");
    if (id < 0 || id >= tokenizer->vocab)
        return rdi_fail(RD_E_INVALID, "rd_token_bytes: id=%d, needs 0 to %d", id, tokenizer->vocab - 1);
    const rdi_token *token = &tokenizer->token[id];
    bool hidden = token->kind == RDI_TOKEN_ABSENT || (token->kind == RDI_TOKEN_SPECIAL && !special);
    *bytes = hidden ? "" : token->bytes;
    *byte_count = hidden ? 0 : token->byte_count;
    return RD_OK;
}

rd_status rd_detokenize(const rd_tokenizer *tokenizer, const int32_t *ids, int64_t count, int32_t special,
                        char *text, size_t *bytes) {
    if (!tokenizer || !bytes || count < 0 || (!ids && count))
        return rdi_fail(RD_E_INVALID, "rd_detokenize: tokenizer, ids or bytes is NULL, or count < 0");
    size_t capacity = text ? *bytes : 0, used = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *piece = NULL;
        size_t piece_bytes = 0;
        RDI_TRY(rd_token_bytes(tokenizer, ids[i], special, &piece, &piece_bytes));
        if (piece_bytes && used + piece_bytes < capacity) memcpy(text + used, piece, piece_bytes);
        used += piece_bytes;
    }
    *bytes = used + 1;
    if (!text) return RD_OK;
    if (used + 1 > capacity)
        return rdi_fail(RD_E_LIMIT, "rd_detokenize: room for %zu bytes, needs %zu", capacity, used + 1);
    text[used] = 0;
    return RD_OK;
}

int32_t rd_token_is_end(const rd_tokenizer *tokenizer, int32_t id) {
    return tokenizer && id >= 0 && id < tokenizer->vocab && tokenizer->token[id].end;
}

int32_t rd_tokenizer_vocab(const rd_tokenizer *tokenizer) {
    return tokenizer ? tokenizer->vocab : 0;
}
