// SPDX-License-Identifier: Apache-2.0
// Tokens inside {{ }} and {% %}, and what every part of the Jinja subset shares: errors, counted memory, steps.
#include "model/jinja.h"

#include <stdio.h>
#include <string.h>

int32_t rdi_jinja_line(rdi_jinja *j, const char *at) {
    if (!j->line_at || at < j->line_at) {
        j->line_at = j->source;
        j->line = 1;
    }
    for (; j->line_at < at; j->line_at++) j->line += *j->line_at == '\n';
    return j->line;
}

rd_status rdi_jinja_fail(const rdi_jinja *j, int32_t line, const char *format, ...) {
    char text[512];
    va_list list;
    (void)j;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return rdi_fail(RD_E_UNSUPPORTED, "chat template, line %d: %s", line, text);
}

void *rdi_jinja_alloc(rdi_jinja *j, size_t bytes) {
    if (bytes > (size_t)j->bytes_left) {
        rdi_fail(RD_E_LIMIT, "chat template: needs more memory than its limit");
        return NULL;
    }
    j->bytes_left -= (int64_t)bytes;
    return rdi_arena_alloc(&j->arena, bytes);
}

rd_status rdi_jinja_charge(rdi_jinja *j, int32_t line, size_t bytes) {
    j->steps_left -= 1 + (int64_t)(bytes / 64);
    return j->steps_left < 0 ? rdi_fail(RD_E_LIMIT, "chat template, line %d: runs over its step limit", line)
                             : RD_OK;
}

bool rdi_jinja_is(const rdi_jinja_token *token, rdi_token_type type, const char *text) {
    return token->type == type && token->bytes == strlen(text) && !memcmp(token->text, text, token->bytes);
}

static bool name_start(char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static bool digit(char c) {
    return c >= '0' && c <= '9';
}

static rd_status lex_string(rdi_jinja *j, rdi_jinja_token *out) {
    char quote = *j->at;
    const char *open = ++j->at;
    while (j->at < j->end && *j->at != quote) j->at += *j->at == '\\' && j->at + 1 < j->end ? 2 : 1;
    if (j->at >= j->end)
        return rdi_jinja_fail(j, rdi_jinja_line(j, open), "a string without its closing quote");
    char *text = rdi_jinja_alloc(j, (size_t)(j->at - open) + 1), *to = text;
    if (!text) return j->bytes_left < j->at - open ? RD_E_LIMIT : RD_E_NOMEM;
    for (const char *p = open; p < j->at; p++) {
        static const char from[] = "nrt\\'\"", escaped[] = "\n\r\t\\'\"";
        const char *known = *p == '\\' && p + 1 < j->at && p[1] ? strchr(from, p[1]) : NULL;
        if (*p == '\\' && !known)
            return rdi_jinja_fail(j, rdi_jinja_line(j, p),
                                  "escape \\%c in a string, needs one of \\n \\r \\t \\\\ \\' \\\"", p[1]);
        *to++ = known ? escaped[known - from] : *p;
        p += known != NULL;
    }
    j->at++;
    *out = (rdi_jinja_token){.type = RDI_TOK_STRING, .text = text, .bytes = (size_t)(to - text)};
    return RD_OK;
}

static rd_status lex_int(rdi_jinja *j, rdi_jinja_token *out) {
    const char *begin = j->at;
    int64_t value = 0;
    while (j->at < j->end && digit(*j->at))
        if (rdi_mul_overflow(value, 10, &value) || rdi_add_overflow(value, *j->at++ - '0', &value))
            return rdi_jinja_fail(j, rdi_jinja_line(j, begin), "a number beyond 64 bits");
    if (j->at < j->end && (*j->at == '.' || name_start(*j->at)))
        return rdi_jinja_fail(j, rdi_jinja_line(j, begin), "a number that is no whole number");
    *out = (rdi_jinja_token){
        .type = RDI_TOK_INT, .text = begin, .bytes = (size_t)(j->at - begin), .integer = value};
    return RD_OK;
}

// "}}" or "%}", with its - or + mark.
static bool lex_close(rdi_jinja *j, rdi_jinja_token *out) {
    const char *at = j->at;
    bool mark = *at == '-' || *at == '+';
    if (j->end - at < 2 + mark || (at[mark] != '}' && at[mark] != '%') || at[mark + 1] != '}') return false;
    *out = (rdi_jinja_token){.type = RDI_TOK_CLOSE,
                             .text = at + mark,
                             .bytes = 2,
                             .trim = mark && *at == '-',
                             .keep = mark && *at == '+'};
    j->at = at + mark + 2;
    return true;
}

rd_status rdi_jinja_lex(rdi_jinja *j, rdi_jinja_token *out) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r')) j->at++;
    if (j->at >= j->end)
        return rdi_jinja_fail(j, rdi_jinja_line(j, j->end), "the template ends inside a tag");
    const char *at = j->at;
    if (lex_close(j, out)) return RD_OK;
    if (*at == '\'' || *at == '"') return lex_string(j, out);
    if (digit(*at)) return lex_int(j, out);
    if (name_start(*at)) {
        while (j->at < j->end && (name_start(*j->at) || digit(*j->at))) j->at++;
        *out = (rdi_jinja_token){.type = RDI_TOK_NAME, .text = at, .bytes = (size_t)(j->at - at)};
        return RD_OK;
    }
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
    size_t bytes = 1;
    for (size_t i = 0; i < RDI_COUNT(pairs); i++)
        if (j->end - at >= 2 && !memcmp(at, pairs[i], 2)) bytes = 2;
    if (!*at || !strchr("()[]{}.,:|~+-*/%<>=!", *at))
        return rdi_jinja_fail(j, rdi_jinja_line(j, at), "byte 0x%02x in an expression", (unsigned char)*at);
    j->at = at + bytes;
    *out = (rdi_jinja_token){.type = RDI_TOK_OP, .text = at, .bytes = bytes};
    return RD_OK;
}
