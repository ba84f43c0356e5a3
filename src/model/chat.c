// SPDX-License-Identifier: Apache-2.0
// rd_chat_render: the model's chat template over a list of messages.
#include "model/jinja.h"
#include "model/tokenizer.h"

#include <string.h>

// Bounds: a published template takes some thousand steps for ten messages.
enum { MAX_TEMPLATE_BYTES = 1 << 20, MAX_STEPS = 4000000, MAX_MEMORY_BYTES = 64 << 20 };

static rd_status put_text(rdi_jinja *j, rdi_jinja_value *dict, const char *key, const char *text) {
    return rdi_jinja_dict_set(j, dict, key, strlen(key), rdi_jinja_string(text, strlen(text)));
}

static rd_status new_dict(rdi_jinja *j, rdi_jinja_value *out) {
    *out = (rdi_jinja_value){.kind = RDI_JINJA_DICT, .pairs = rdi_arena_alloc(&j->arena, sizeof *out->pairs)};
    return out->pairs ? RD_OK : RD_E_NOMEM;
}

static rd_status make_globals(rdi_jinja *j, const rdi_jinja_chat *chat, const rd_chat_message *messages,
                              int32_t count, bool add_prompt, rdi_jinja_value *globals) {
    rdi_jinja_value list = {.kind = RDI_JINJA_LIST, .integer = count};
    list.items = rdi_arena_alloc(&j->arena, (size_t)count * sizeof *list.items);
    if (!list.items) return RD_E_NOMEM;
    for (int32_t i = 0; i < count; i++) {
        RDI_TRY(new_dict(j, &list.items[i]));
        RDI_TRY(put_text(j, &list.items[i], "role", messages[i].role));
        RDI_TRY(put_text(j, &list.items[i], "content", messages[i].content));
    }
    RDI_TRY(new_dict(j, globals));
    RDI_TRY(rdi_jinja_dict_set(j, globals, "messages", 8, list));
    RDI_TRY(rdi_jinja_dict_set(j, globals, "add_generation_prompt", 21, rdi_jinja_bool(add_prompt)));
    RDI_TRY(put_text(j, globals, "bos_token", chat->bos_text ? chat->bos_text : ""));
    return put_text(j, globals, "eos_token", chat->eos_text ? chat->eos_text : "");
}

// Jinja reads every newline as \n.
static rd_status normalise_newlines(rdi_jinja *j) {
    size_t bytes = (size_t)(j->end - j->source);
    if (!bytes || !memchr(j->source, '\r', bytes)) return RD_OK;
    char *copy = rdi_arena_alloc(&j->arena, bytes), *to = copy;
    if (!copy) return RD_E_NOMEM;
    for (const char *from = j->source; from < j->end; from++) {
        bool pair = *from == '\r' && from + 1 < j->end && from[1] == '\n';
        if (!pair) *to++ = *from == '\r' ? '\n' : *from;
    }
    j->source = j->at = copy;
    j->end = to;
    return RD_OK;
}

rd_status rdi_jinja_render(const rdi_jinja_chat *chat, const rd_chat_message *messages, int32_t count,
                           bool add_generation_prompt, char *text, size_t capacity, size_t *needed) {
    if (chat->source_bytes > MAX_TEMPLATE_BYTES)
        return rdi_fail(RD_E_LIMIT, "chat template of %zu bytes, needs at most %d", chat->source_bytes,
                        MAX_TEMPLATE_BYTES);
    rdi_jinja j = {.source = chat->source,
                   .at = chat->source,
                   .end = chat->source + chat->source_bytes,
                   .steps_left = MAX_STEPS,
                   .bytes_left = MAX_MEMORY_BYTES};
    for (int32_t i = 0; i < count; i++) { // long conversations may take more: limits grow with the input
        int64_t bytes = (int64_t)strlen(messages[i].content);
        j.bytes_left += 1024 + 16 * bytes;
        j.steps_left += 1000 + bytes;
    }
    rdi_jinja_node *body = NULL;
    rdi_jinja_value globals;
    rd_status status = normalise_newlines(&j);
    if (!status) status = rdi_jinja_parse(&j, &body);
    if (!status) status = make_globals(&j, chat, messages, count, add_generation_prompt, &globals);
    if (!status) status = rdi_jinja_run(&j, body, &globals, text, capacity, needed);
    rdi_arena_free(&j.arena);
    return status;
}

rd_status rd_chat_render(const rd_tokenizer *tokenizer, const rd_chat_message *messages, int32_t count,
                         int32_t add_generation_prompt, char *text, size_t *bytes) {
    if (!tokenizer || !bytes || count < 0 || (count && !messages))
        return rdi_fail(RD_E_INVALID, "rd_chat_render: tokenizer, messages or bytes is NULL, or count < 0");
    for (int32_t i = 0; i < count; i++)
        if (!messages[i].role || !messages[i].content)
            return rdi_fail(RD_E_INVALID, "rd_chat_render: message %d has no role or content", i);
    if (!tokenizer->chat_template)
        return rdi_fail(RD_E_UNSUPPORTED, "the model has no chat template, needs plain text");
    rdi_jinja_chat chat = {tokenizer->chat_template, strlen(tokenizer->chat_template), tokenizer->bos_text,
                           tokenizer->eos_text};
    size_t capacity = text ? *bytes : 0, needed = 0;
    RDI_TRY(rdi_jinja_render(&chat, messages, count, add_generation_prompt != 0, text, capacity, &needed));
    *bytes = needed + 1;
    if (!text) return RD_OK;
    if (needed + 1 > capacity)
        return rdi_fail(RD_E_LIMIT, "rd_chat_render: room for %zu bytes, needs %zu", capacity, needed + 1);
    text[needed] = 0;
    return RD_OK;
}
