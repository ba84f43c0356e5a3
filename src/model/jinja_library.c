// SPDX-License-Identifier: Apache-2.0
// Filters, tests and string methods of the Jinja subset, each by its name; Python's rules for truth and equality.
#include "model/jinja.h"

#include <stdio.h>
#include <string.h>

rdi_jinja_value rdi_jinja_string(const char *text, size_t bytes) {
    return (rdi_jinja_value){.kind = RDI_JINJA_STRING, .text = text, .bytes = bytes};
}
rdi_jinja_value rdi_jinja_int(int64_t value) {
    return (rdi_jinja_value){.kind = RDI_JINJA_INT, .integer = value};
}
rdi_jinja_value rdi_jinja_bool(bool value) {
    return (rdi_jinja_value){.kind = RDI_JINJA_BOOL, .integer = value};
}

bool rdi_jinja_truth(const rdi_jinja_value *v) {
    switch (v->kind) {
    case RDI_JINJA_BOOL:
    case RDI_JINJA_INT:
    case RDI_JINJA_LIST:
        return v->integer != 0;
    case RDI_JINJA_STRING:
        return v->bytes != 0;
    case RDI_JINJA_DICT:
        return *v->pairs != NULL;
    default:
        return false;
    }
}

bool rdi_jinja_equal(const rdi_jinja_value *a, const rdi_jinja_value *b) {
    bool numbers = (a->kind == RDI_JINJA_INT || a->kind == RDI_JINJA_BOOL) &&
                   (b->kind == RDI_JINJA_INT || b->kind == RDI_JINJA_BOOL);
    if (numbers) return a->integer == b->integer;
    if (a->kind != b->kind) return false;
    if (a->kind == RDI_JINJA_STRING)
        return a->bytes == b->bytes && (!a->bytes || !memcmp(a->text, b->text, a->bytes));
    if (a->kind == RDI_JINJA_DICT) return a->pairs == b->pairs;
    if (a->kind == RDI_JINJA_LIST) return a->integer == b->integer && (!a->integer || a->items == b->items);
    return true; // none, undefined
}

rd_status rdi_jinja_dict_set(rdi_jinja *j, rdi_jinja_value *dict, const char *key, size_t key_bytes,
                             rdi_jinja_value value) {
    for (rdi_jinja_pair *pair = *dict->pairs; pair; pair = pair->next)
        if (pair->key_bytes == key_bytes && !memcmp(pair->key, key, key_bytes)) {
            pair->value = value;
            return RD_OK;
        }
    rdi_jinja_pair *pair = rdi_jinja_alloc(j, sizeof *pair);
    if (!pair) return j->bytes_left < (int64_t)sizeof *pair ? RD_E_LIMIT : RD_E_NOMEM;
    *pair = (rdi_jinja_pair){key, key_bytes, value, *dict->pairs};
    *dict->pairs = pair;
    return RD_OK;
}

static bool named(const rdi_jinja_node *node, const char *name) {
    return node->bytes == strlen(name) && !memcmp(node->text, name, node->bytes);
}

static const char *kind_name(const rdi_jinja_value *v) {
    static const char *const names[] = {"undefined", "none",   "a boolean", "an integer",
                                        "a string",  "a list", "a mapping"};
    return names[v->kind];
}

rd_status rdi_jinja_text_of(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *v,
                            rdi_jinja_value *out) {
    switch (v->kind) {
    case RDI_JINJA_STRING:
        *out = *v;
        return RD_OK;
    case RDI_JINJA_UNDEFINED:
        *out = rdi_jinja_string("", 0);
        return RD_OK;
    case RDI_JINJA_NONE:
        *out = rdi_jinja_string("None", 4);
        return RD_OK;
    case RDI_JINJA_BOOL:
        *out = v->integer ? rdi_jinja_string("True", 4) : rdi_jinja_string("False", 5);
        return RD_OK;
    case RDI_JINJA_INT: {
        char *text = rdi_jinja_alloc(j, 24);
        if (!text) return j->bytes_left < 24 ? RD_E_LIMIT : RD_E_NOMEM;
        *out = rdi_jinja_string(text, (size_t)snprintf(text, 24, "%lld", (long long)v->integer));
        return RD_OK;
    }
    default:
        return rdi_jinja_fail(j, node->line, "printing %s", kind_name(v));
    }
}

// ---- strings --------------------------------------------------------------------------------------------------------------
// White space of Python's str.strip, the ASCII part, or the characters of `set`.
static bool strip_char(char c, const rdi_jinja_value *set) {
    if (set) return set->bytes && memchr(set->text, c, set->bytes);
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static rdi_jinja_value strip(const rdi_jinja_value *v, const rdi_jinja_value *set, bool left, bool right) {
    const char *begin = v->text, *end = v->text + v->bytes;
    while (left && begin < end && strip_char(*begin, set)) begin++;
    while (right && end > begin && strip_char(end[-1], set)) end--;
    return rdi_jinja_string(begin, (size_t)(end - begin));
}

static rd_status change_case(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *v, bool upper,
                             rdi_jinja_value *out) {
    char *text = rdi_jinja_alloc(j, v->bytes + 1);
    if (!text) return j->bytes_left <= (int64_t)v->bytes ? RD_E_LIMIT : RD_E_NOMEM;
    for (size_t i = 0; i < v->bytes; i++) {
        char c = v->text[i];
        if ((unsigned char)c >= 0x80) return rdi_jinja_fail(j, node->line, "change of case outside ASCII");
        if (upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z') c ^= 0x20;
        text[i] = c;
    }
    *out = rdi_jinja_string(text, v->bytes);
    return RD_OK;
}

static const char *find(const char *begin, const char *end,
                        const rdi_jinja_value *needle) { // NULL: not there
    for (; (size_t)(end - begin) >= needle->bytes; begin++)
        if (!memcmp(begin, needle->text, needle->bytes)) return begin;
    return NULL;
}

static rd_status split(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *v,
                       const rdi_jinja_value *by, rdi_jinja_value *out) {
    const char *at = v->text, *end = v->text + v->bytes, *hit;
    if (!by || !by->bytes) return rdi_jinja_fail(j, node->line, "split without a separator");
    int64_t count = 1;
    for (const char *p = at; (hit = find(p, end, by)); p = hit + by->bytes) count++;
    size_t bytes = (size_t)count * sizeof *out->items;
    rdi_jinja_value *items = rdi_jinja_alloc(j, bytes);
    if (!items) return j->bytes_left < (int64_t)bytes ? RD_E_LIMIT : RD_E_NOMEM;
    for (int64_t i = 0; i < count; i++, at = hit ? hit + by->bytes : end) {
        hit = find(at, end, by);
        items[i] = rdi_jinja_string(at, (size_t)((hit ? hit : end) - at));
    }
    *out = (rdi_jinja_value){.kind = RDI_JINJA_LIST, .integer = count, .items = items};
    return RD_OK;
}

// ---- filters ------------------------------------------------------------------------------------------------------------
static int64_t length_of(const rdi_jinja_value *v) {
    if (v->kind == RDI_JINJA_LIST) return v->integer;
    int64_t count = 0;
    if (v->kind == RDI_JINJA_STRING) // characters, not bytes
        for (size_t i = 0; i < v->bytes; i++) count += (v->text[i] & 0xc0) != 0x80;
    if (v->kind == RDI_JINJA_DICT)
        for (rdi_jinja_pair *pair = *v->pairs; pair; pair = pair->next) count++;
    return count;
}

rd_status rdi_jinja_filter(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *self,
                           const rdi_jinja_value *args, int count, rdi_jinja_value *out) {
    RDI_TRY(rdi_jinja_charge(j, node->line, self->bytes));
    bool string = self->kind == RDI_JINJA_STRING, list = self->kind == RDI_JINJA_LIST;
    const rdi_jinja_value *set = count ? args : NULL;
    if (named(node, "trim") && string && (!set || set->kind == RDI_JINJA_STRING)) {
        *out = strip(self, set, true, true);
    } else if ((named(node, "length") || named(node, "count")) &&
               (string || list || self->kind == RDI_JINJA_DICT)) {
        *out = rdi_jinja_int(length_of(self));
    } else if ((named(node, "upper") || named(node, "lower")) && string) {
        return change_case(j, node, self, node->text[0] == 'u', out);
    } else if ((named(node, "first") || named(node, "last")) && list) {
        *out = (rdi_jinja_value){.kind = RDI_JINJA_UNDEFINED, .text = "first of an empty list", .bytes = 22};
        if (self->integer) *out = self->items[node->text[0] == 'f' ? 0 : self->integer - 1];
    } else if ((named(node, "default") || named(node, "d")) && count >= 1) {
        bool falsy = count > 1 && rdi_jinja_truth(&args[1]) && !rdi_jinja_truth(self);
        *out = self->kind == RDI_JINJA_UNDEFINED || falsy ? args[0] : *self;
    } else if (named(node, "string")) {
        return rdi_jinja_text_of(j, node, self, out);
    } else if (named(node, "safe")) {
        *out = *self;
    } else {
        return rdi_jinja_fail(
            j, node->line,
            "filter %.*s of %s, needs one of trim length count upper lower first last default string safe",
            (int)rdi_min((int64_t)node->bytes, 40), node->text, kind_name(self));
    }
    return RD_OK;
}

rd_status rdi_jinja_test(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *self, bool *out) {
    static const struct {
        const char *name;
        uint32_t kinds; // bit per rdi_jinja_kind
    } rows[] = {
        {"undefined", 1u << RDI_JINJA_UNDEFINED},
        {"none", 1u << RDI_JINJA_NONE},
        {"string", 1u << RDI_JINJA_STRING},
        {"boolean", 1u << RDI_JINJA_BOOL},
        {"integer", 1u << RDI_JINJA_INT},
        {"number", 1u << RDI_JINJA_INT | 1u << RDI_JINJA_BOOL},
        {"mapping", 1u << RDI_JINJA_DICT},
        {"sequence", 1u << RDI_JINJA_LIST | 1u << RDI_JINJA_STRING | 1u << RDI_JINJA_DICT},
        {"iterable", 1u << RDI_JINJA_LIST | 1u << RDI_JINJA_STRING | 1u << RDI_JINJA_DICT},
        {"defined", ~(1u << RDI_JINJA_UNDEFINED)},
    };
    for (size_t i = 0; i < RDI_COUNT(rows); i++)
        if (named(node, rows[i].name)) {
            *out = rows[i].kinds >> self->kind & 1u;
            return RD_OK;
        }
    bool is_true = named(node, "true");
    if (is_true || named(node, "false")) {
        *out = self->kind == RDI_JINJA_BOOL && (self->integer != 0) == is_true;
        return RD_OK;
    }
    return rdi_jinja_fail(j, node->line, "test %.*s", (int)rdi_min((int64_t)node->bytes, 40), node->text);
}

rd_status rdi_jinja_method(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *self,
                           const rdi_jinja_value *args, int count, rdi_jinja_value *out) {
    RDI_TRY(rdi_jinja_charge(j, node->line, self->bytes));
    const rdi_jinja_value *text = count == 1 && args->kind == RDI_JINJA_STRING ? args : NULL;
    bool string = self->kind == RDI_JINJA_STRING && (count == 0 || text);
    if (string && named(node, "strip")) {
        *out = strip(self, text, true, true);
    } else if (string && named(node, "lstrip")) {
        *out = strip(self, text, true, false);
    } else if (string && named(node, "rstrip")) {
        *out = strip(self, text, false, true);
    } else if (string && text && named(node, "startswith")) {
        *out = rdi_jinja_bool(self->bytes >= text->bytes && !memcmp(self->text, text->text, text->bytes));
    } else if (string && text && named(node, "endswith")) {
        *out = rdi_jinja_bool(self->bytes >= text->bytes &&
                              !memcmp(self->text + self->bytes - text->bytes, text->text, text->bytes));
    } else if (string && text && named(node, "split")) {
        RDI_TRY(rdi_jinja_charge(j, node->line, self->bytes * text->bytes));
        return split(j, node, self, text, out);
    } else if (string && !text && (named(node, "upper") || named(node, "lower"))) {
        return change_case(j, node, self, node->text[0] == 'u', out);
    } else {
        return rdi_jinja_fail(j, node->line,
                              "call of .%.*s on %s, needs one of strip lstrip rstrip startswith endswith "
                              "split upper lower of a string",
                              (int)rdi_min((int64_t)node->bytes, 40), node->text, kind_name(self));
    }
    return RD_OK;
}
