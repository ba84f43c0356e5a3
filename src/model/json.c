// SPDX-License-Identifier: Apache-2.0
// The JSON reader: RFC 8259, one arena, exact 64-bit integers, bounded depth. See files.h for why it is our own.
#include "model/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 }; // model files nest under ten deep

typedef struct reader {
    const char *what, *begin, *at, *end;
    rdi_arena *arena;
} reader;

static rd_status fail_at(const reader *r, const char *need) {
    long long line = 1;
    for (const char *p = r->begin; p < r->at; p++) line += *p == '\n';
    if (r->at >= r->end)
        return rdi_fail(RD_E_FORMAT, "%s: JSON ends at byte %lld (line %lld), needs %s", r->what,
                        (long long)(r->at - r->begin), line, need);
    return rdi_fail(RD_E_FORMAT, "%s: JSON byte 0x%02x at offset %lld (line %lld), needs %s", r->what,
                    (unsigned char)*r->at, (long long)(r->at - r->begin), line, need);
}

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

static int hex4(const reader *r, const char *at) { // -1: not four hex digits
    if (r->end - at < 4) return -1;
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i], lower = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value * 16 + (lower - 'a' + 10);
        else
            return -1;
    }
    return value;
}

static char *put_utf8(char *out, uint32_t code) {
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 63));
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    }
    return out;
}

// r->at is at the first 'u' digit position; writes the character and moves past the escape (or the surrogate pair).
static rd_status read_unicode_escape(reader *r, char **out) {
    int code = hex4(r, r->at);
    if (code < 0) return fail_at(r, "four hex digits");
    if (code >= 0xdc00 && code <= 0xdfff) return fail_at(r, "a high surrogate before a low one");
    if (code >= 0xd800 && code <= 0xdbff) {
        int low = r->end - r->at >= 10 && r->at[4] == '\\' && r->at[5] == 'u' ? hex4(r, r->at + 6) : -1;
        if (low < 0xdc00 || low > 0xdfff) return fail_at(r, "a low surrogate after a high one");
        *out = put_utf8(*out, 0x10000u + ((uint32_t)(code - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
        r->at += 10;
    } else {
        *out = put_utf8(*out, (uint32_t)code);
        r->at += 4;
    }
    return RD_OK;
}

static rd_status read_escapes(reader *r, const char *close, char *out, uint32_t *bytes) {
    char *begin = out;
    while (r->at < close) {
        if (*r->at != '\\') {
            *out++ = *r->at++;
            continue;
        }
        r->at++;
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *simple = *r->at ? strchr(from, *r->at) : NULL;
        if (simple) {
            *out++ = to[simple - from];
            r->at++;
        } else if (*r->at == 'u') {
            r->at++;
            RDI_TRY(read_unicode_escape(r, &out));
        } else {
            return fail_at(r, "one of \" \\ / b f n r t u after a backslash");
        }
    }
    *bytes = (uint32_t)(out - begin);
    return RD_OK;
}

static rd_status read_string(reader *r, const char **text, uint32_t *bytes) {
    if (r->at >= r->end || *r->at != '"') return fail_at(r, "a string");
    const char *open = ++r->at, *close = open;
    bool escaped = false;
    for (; close < r->end && *close != '"'; close++) {
        if ((unsigned char)*close < 0x20) {
            r->at = close;
            return fail_at(r, "control characters escaped inside a string");
        }
        if (*close == '\\') {
            escaped = true;
            if (++close >= r->end) break;
        }
    }
    if (close >= r->end) {
        r->at = r->end;
        return fail_at(r, "the end of a string");
    }
    if (close - open > INT32_MAX) return fail_at(r, "strings under 2 GiB");
    if (!escaped) {
        *text = open;
        *bytes = (uint32_t)(close - open);
    } else {
        char *copy = rdi_arena_alloc(r->arena, (size_t)(close - open)); // escapes never grow
        if (!copy) return RD_E_NOMEM;
        RDI_TRY(read_escapes(r, close, copy, bytes));
        *text = copy;
    }
    r->at = close + 1;
    return RD_OK;
}

static rd_status read_number(reader *r, rdi_json *value) {
    const char *at = r->at, *end = r->end;
    bool real = false;
    if (at < end && *at == '-') at++;
    const char *digits = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    if (at == digits) return fail_at(r, "a value");
    if (*digits == '0' && at - digits > 1) return fail_at(r, "a number without leading zeros");
    if (at < end && *at == '.') {
        real = true;
        const char *fraction = ++at;
        while (at < end && *at >= '0' && *at <= '9') at++;
        if (at == fraction) return fail_at(r, "digits after the decimal point");
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        real = true;
        if (++at < end && (*at == '+' || *at == '-')) at++;
        const char *exponent = at;
        while (at < end && *at >= '0' && *at <= '9') at++;
        if (at == exponent) return fail_at(r, "digits in the exponent");
    }
    char copy[64]; // strtod needs a NUL
    if (at - r->at >= (ptrdiff_t)sizeof copy) return fail_at(r, "numbers under 64 characters");
    memcpy(copy, r->at, (size_t)(at - r->at));
    copy[at - r->at] = 0;
    if (!real) {
        int64_t integer = 0;
        bool overflow = false, negative = *copy == '-';
        for (const char *p = copy + negative; *p; p++)
            overflow |= __builtin_mul_overflow(integer, 10, &integer) ||
                        __builtin_sub_overflow(integer, *p - '0', &integer); // negative: holds INT64_MIN
        if (!negative) overflow |= __builtin_sub_overflow(0, integer, &integer);
        value->kind = RDI_JSON_INT;
        value->integer = integer;
        real = overflow;
    }
    if (real) {
        value->kind = RDI_JSON_REAL;
        value->real = strtod(copy, NULL);
    }
    r->at = at;
    return RD_OK;
}

static rd_status read_value(reader *r, int depth, rdi_json *value);

static rd_status read_children(reader *r, int depth, rdi_json *parent) {
    bool object = parent->kind == RDI_JSON_OBJECT;
    char close = object ? '}' : ']';
    const rdi_json **link = &parent->first;
    r->at++;
    skip_space(r);
    if (r->at < r->end && *r->at == close) {
        r->at++;
        return RD_OK;
    }
    for (;;) {
        rdi_json *child = rdi_arena_alloc(r->arena, sizeof *child);
        if (!child) return RD_E_NOMEM;
        skip_space(r);
        if (object) {
            RDI_TRY(read_string(r, &child->key, &child->key_bytes));
            skip_space(r);
            if (r->at >= r->end || *r->at != ':') return fail_at(r, "':'");
            r->at++;
        }
        RDI_TRY(read_value(r, depth + 1, child));
        *link = child;
        link = &child->next;
        parent->count++;
        skip_space(r);
        if (r->at < r->end && *r->at == close) break;
        if (r->at >= r->end || *r->at != ',') return fail_at(r, object ? "',' or '}'" : "',' or ']'");
        r->at++;
    }
    r->at++;
    return RD_OK;
}

static rd_status read_value(reader *r, int depth, rdi_json *value) {
    static const struct {
        const char *word;
        rdi_json_kind kind;
        int64_t integer;
    } words[] = {{"null", RDI_JSON_NULL, 0}, {"true", RDI_JSON_BOOL, 1}, {"false", RDI_JSON_BOOL, 0}};
    if (depth > MAX_DEPTH) return fail_at(r, "nesting of at most 64");
    skip_space(r);
    char c = r->at < r->end ? *r->at : 0;
    if (c == '{' || c == '[') {
        value->kind = c == '{' ? RDI_JSON_OBJECT : RDI_JSON_ARRAY;
        return read_children(r, depth, value);
    }
    if (c == '"') {
        value->kind = RDI_JSON_STRING;
        return read_string(r, &value->text, &value->text_bytes);
    }
    for (size_t i = 0; i < RDI_COUNT(words); i++) {
        size_t bytes = strlen(words[i].word);
        if ((size_t)(r->end - r->at) >= bytes && !memcmp(r->at, words[i].word, bytes)) {
            value->kind = words[i].kind;
            value->integer = words[i].integer;
            r->at += bytes;
            return RD_OK;
        }
    }
    return read_number(r, value);
}

rd_status rdi_json_parse(rdi_arena *arena, const char *what, const char *text, size_t bytes,
                         const rdi_json **out) {
    if (!rdi_utf8_valid(text, bytes)) return rdi_fail(RD_E_FORMAT, "%s: JSON is not valid UTF-8", what);
    reader r = {what, text, text, text + bytes, arena};
    rdi_json *root = rdi_arena_alloc(arena, sizeof *root);
    if (!root) return RD_E_NOMEM;
    RDI_TRY(read_value(&r, 0, root));
    skip_space(&r);
    if (r.at != r.end) return fail_at(&r, "the end of the document");
    *out = root;
    return RD_OK;
}

rd_status rdi_json_read(rdi_arena *arena, const char *path, rdi_mapping *mapping, const rdi_json **out) {
    RDI_TRY(rdi_file_map(path, mapping));
    RDI_TRY(rdi_json_parse(arena, path, (const char *)mapping->data, mapping->bytes, out));
    if ((*out)->kind != RDI_JSON_OBJECT) return rdi_fail(RD_E_FORMAT, "%s: needs a JSON object", path);
    return RD_OK;
}

// ---- members --------------------------------------------------------------------------------------------------------
const rdi_json *rdi_json_get(const rdi_json *object, const char *key) {
    const rdi_json *found = NULL;
    size_t bytes = strlen(key);
    if (!object || object->kind != RDI_JSON_OBJECT) return NULL;
    for (const rdi_json *child = object->first; child; child = child->next)
        if (child->key_bytes == bytes && !memcmp(child->key, key, bytes)) found = child;
    return found;
}

bool rdi_json_is(const rdi_json *value, const char *text) {
    return value && value->kind == RDI_JSON_STRING && value->text_bytes == strlen(text) &&
           !memcmp(value->text, text, value->text_bytes);
}

const char *rdi_json_kind_name(const rdi_json *value) {
    static const char *const names[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "an array",  "an object"};
    return value ? names[value->kind] : "missing";
}

static bool absent(const rdi_json *value) {
    return !value || value->kind == RDI_JSON_NULL;
}

rd_status rdi_json_int(const rdi_json *object, const char *key, int64_t min, int64_t max, int64_t otherwise,
                       int64_t *out) {
    const rdi_json *value = rdi_json_get(object, key);
    int64_t seen;
    if (absent(value)) {
        if (otherwise == RDI_REQUIRED)
            return rdi_fail(RD_E_FORMAT, "%s is missing, needs a whole number", key);
        seen = otherwise;
    } else if (value->kind == RDI_JSON_INT) {
        seen = value->integer;
        if (seen < min || seen > max)
            return rdi_fail(RD_E_FORMAT, "%s=%lld, needs a whole number from %lld to %lld", key,
                            (long long)seen, (long long)min, (long long)max);
    } else if (value->kind == RDI_JSON_REAL) {
        return rdi_fail(RD_E_FORMAT, "%s=%g, needs a whole number from %lld to %lld", key, value->real,
                        (long long)min, (long long)max);
    } else {
        return rdi_fail(RD_E_FORMAT, "%s is %s, needs a whole number", key, rdi_json_kind_name(value));
    }
    *out = seen;
    return RD_OK;
}

rd_status rdi_json_real(const rdi_json *object, const char *key, double min, double max, double otherwise,
                        double *out) {
    const rdi_json *value = rdi_json_get(object, key);
    *out = otherwise;
    if (absent(value)) return RD_OK;
    if (value->kind != RDI_JSON_INT && value->kind != RDI_JSON_REAL)
        return rdi_fail(RD_E_FORMAT, "%s is %s, needs a number", key, rdi_json_kind_name(value));
    *out = value->kind == RDI_JSON_INT ? (double)value->integer : value->real;
    if (!(*out >= min && *out <= max))
        return rdi_fail(RD_E_FORMAT, "%s=%g, needs a number from %g to %g", key, *out, min, max);
    return RD_OK;
}

rd_status rdi_json_bool(const rdi_json *object, const char *key, bool otherwise, bool *out) {
    const rdi_json *value = rdi_json_get(object, key);
    *out = otherwise;
    if (absent(value)) return RD_OK;
    if (value->kind != RDI_JSON_BOOL)
        return rdi_fail(RD_E_FORMAT, "%s is %s, needs true or false", key, rdi_json_kind_name(value));
    *out = value->integer != 0;
    return RD_OK;
}

rd_status rdi_json_text(rdi_arena *arena, const rdi_json *object, const char *key, const char *otherwise,
                        const char **out) {
    const rdi_json *value = rdi_json_get(object, key);
    *out = otherwise;
    if (absent(value)) return RD_OK;
    if (value->kind != RDI_JSON_STRING)
        return rdi_fail(RD_E_FORMAT, "%s is %s, needs a string", key, rdi_json_kind_name(value));
    if (memchr(value->text, 0, value->text_bytes))
        return rdi_fail(RD_E_FORMAT, "%s holds a NUL character", key);
    *out = rdi_arena_strndup(arena, value->text, value->text_bytes);
    return *out ? RD_OK : RD_E_NOMEM;
}
