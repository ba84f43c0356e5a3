// SPDX-License-Identifier: Apache-2.0
// Statements of the Jinja subset, with the white-space rules that chat templates are written for: trim_blocks and
// lstrip_blocks on, one newline at the end of the template dropped.
#include "model/jinja.h"

#include <string.h>

enum { MAX_NESTING = 32 };

typedef enum trim { TRIM_NONE, TRIM_NEWLINE, TRIM_ALL } trim;
typedef struct parser {
    rdi_jinja *j;
    trim trim; // what the tag before asks of the text after it
    int32_t nesting;
} parser;

static bool space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
static bool is_word(const rdi_jinja_token *t, const char *text) {
    return rdi_jinja_is(t, RDI_TOK_NAME, text);
}

static rd_status need_close(rdi_jinja *j, const rdi_jinja_token *t, const char *close) {
    if (rdi_jinja_is(t, RDI_TOK_CLOSE, close)) return RD_OK;
    return rdi_jinja_fail(j, rdi_jinja_line(j, j->at), "'%.*s', needs %s",
                          (int)rdi_min((int64_t)t->bytes, 40), t->text, close);
}

static const char *find_tag(const rdi_jinja *j) { // NULL: text to the end
    for (const char *p = j->at; j->end - p >= 2; p++)
        if (*p == '{' && (p[1] == '{' || p[1] == '%' || p[1] == '#')) return p;
    return NULL;
}

// Text before `tag` (or the end) as a node; none when trimming leaves nothing.
static rd_status take_text(parser *p, const char *tag, rdi_jinja_node **out) {
    rdi_jinja *j = p->j;
    const char *begin = j->at, *end = tag ? tag : j->end;
    *out = NULL;
    if (p->trim == TRIM_NEWLINE && begin < end && *begin == '\r') begin++;
    if (p->trim == TRIM_NEWLINE && begin < end && *begin == '\n') begin++;
    while (p->trim == TRIM_ALL && begin < end && space(*begin)) begin++;
    char mark = tag && j->end - tag > 2 ? tag[2] : 0;
    if (mark == '-') {
        while (end > begin && space(end[-1])) end--;
    } else if (tag && tag[1] != '{' &&
               mark != '+') { // lstrip_blocks: blanks alone before a block tag on its line
        const char *line = end;
        while (line > begin && (line[-1] == ' ' || line[-1] == '\t')) line--;
        if (line == j->source || line[-1] == '\n') end = line;
    }
    j->at = tag ? tag + 2 + (mark == '-' || mark == '+') : j->end;
    if (begin >= end) return RD_OK;
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_TEXT, begin, out));
    (*out)->text = begin;
    (*out)->bytes = (size_t)(end - begin);
    return RD_OK;
}

static rd_status skip_comment(parser *p) {
    rdi_jinja *j = p->j;
    for (const char *at = j->at; j->end - at >= 2; at++)
        if (at[0] == '#' && at[1] == '}') {
            p->trim = at > j->at && at[-1] == '-' ? TRIM_ALL : TRIM_NEWLINE;
            j->at = at + 2;
            return RD_OK;
        }
    return rdi_jinja_fail(j, rdi_jinja_line(j, j->at), "a comment without its end");
}

static rd_status parse_output(parser *p, rdi_jinja_node **out) {
    rdi_jinja_token t;
    RDI_TRY(rdi_jinja_node_new(p->j, RDI_NODE_OUTPUT, p->j->at, out));
    RDI_TRY(rdi_jinja_lex(p->j, &t));
    RDI_TRY(rdi_jinja_expression(p->j, &t, &(*out)->a));
    RDI_TRY(need_close(p->j, &t, "}}"));
    p->trim = t.trim ? TRIM_ALL : TRIM_NONE;
    return RD_OK;
}

static rd_status close_block(parser *p, const rdi_jinja_token *t) {
    RDI_TRY(need_close(p->j, t, "%}"));
    p->trim = t->trim ? TRIM_ALL : t->keep ? TRIM_NONE : TRIM_NEWLINE;
    return RD_OK;
}

static rd_status parse_body(parser *p, rdi_jinja_node **out, rdi_jinja_token *stop);

// After a body: the keyword that ended it is in *stop and the tag is still open.
static rd_status parse_if(parser *p, rdi_jinja_token *t, rdi_jinja_node **out) {
    rdi_jinja_node **link = out;
    for (;;) { // if and each elif
        rdi_jinja_node *node;
        RDI_TRY(rdi_jinja_node_new(p->j, RDI_NODE_IF, p->j->at, &node));
        *link = node;
        RDI_TRY(rdi_jinja_lex(p->j, t));
        RDI_TRY(rdi_jinja_expression(p->j, t, &node->a));
        RDI_TRY(close_block(p, t));
        RDI_TRY(parse_body(p, &node->b, t));
        link = &node->c;
        if (!is_word(t, "elif")) break;
    }
    if (is_word(t, "else")) {
        RDI_TRY(rdi_jinja_lex(p->j, t));
        RDI_TRY(close_block(p, t));
        RDI_TRY(parse_body(p, link, t));
    }
    if (!is_word(t, "endif")) return rdi_jinja_fail(p->j, (*out)->line, "an if without its endif");
    RDI_TRY(rdi_jinja_lex(p->j, t));
    return close_block(p, t);
}

static rd_status parse_for(parser *p, rdi_jinja_token *t, rdi_jinja_node **out) {
    rdi_jinja *j = p->j;
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_FOR, j->at, out));
    rdi_jinja_node *node = *out;
    RDI_TRY(rdi_jinja_lex(j, t));
    if (t->type != RDI_TOK_NAME) return rdi_jinja_fail(j, node->line, "for without a plain name");
    node->text = t->text;
    node->bytes = t->bytes;
    RDI_TRY(rdi_jinja_lex(j, t));
    if (!is_word(t, "in")) return rdi_jinja_fail(j, node->line, "for with several names");
    RDI_TRY(rdi_jinja_lex(j, t));
    RDI_TRY(rdi_jinja_condition(j, t, &node->a));
    if (is_word(t, "if")) {
        RDI_TRY(rdi_jinja_lex(j, t));
        RDI_TRY(rdi_jinja_condition(j, t, &node->d));
    }
    if (is_word(t, "recursive")) return rdi_jinja_fail(j, node->line, "a recursive for");
    RDI_TRY(close_block(p, t));
    RDI_TRY(parse_body(p, &node->b, t));
    if (is_word(t, "else")) {
        RDI_TRY(rdi_jinja_lex(j, t));
        RDI_TRY(close_block(p, t));
        RDI_TRY(parse_body(p, &node->c, t));
    }
    if (!is_word(t, "endfor")) return rdi_jinja_fail(j, node->line, "a for without its endfor");
    RDI_TRY(rdi_jinja_lex(j, t));
    return close_block(p, t);
}

static rd_status parse_set(parser *p, rdi_jinja_token *t, rdi_jinja_node **out) {
    rdi_jinja *j = p->j;
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_SET, j->at, out));
    RDI_TRY(rdi_jinja_lex(j, t));
    RDI_TRY(rdi_jinja_condition(j, t, &(*out)->a)); // the target: a name or namespace.name
    bool plain = (*out)->a->kind == RDI_NODE_NAME;
    bool member = (*out)->a->kind == RDI_NODE_ATTRIBUTE && (*out)->a->a->kind == RDI_NODE_NAME;
    if (!plain && !member) return rdi_jinja_fail(j, (*out)->line, "set of something other than a name");
    if (!rdi_jinja_is(t, RDI_TOK_OP, "="))
        return rdi_jinja_fail(j, (*out)->line,
                              rdi_jinja_is(t, RDI_TOK_CLOSE, "%}") ? "a set block" : "set of several names");
    RDI_TRY(rdi_jinja_lex(j, t));
    RDI_TRY(rdi_jinja_expression(j, t, &(*out)->b));
    return close_block(p, t);
}

static rd_status parse_statement(parser *p, rdi_jinja_token *t, rdi_jinja_node **out) {
    if (is_word(t, "if")) return parse_if(p, t, out);
    if (is_word(t, "for")) return parse_for(p, t, out);
    if (is_word(t, "set")) return parse_set(p, t, out);
    return rdi_jinja_fail(p->j, rdi_jinja_line(p->j, p->j->at), "statement '%.*s', needs one of if for set",
                          (int)rdi_min((int64_t)t->bytes, 40), t->text);
}

// Parses until a keyword that closes or continues the surrounding statement; stop NULL: until the end of the template.
static rd_status parse_body(parser *p, rdi_jinja_node **out, rdi_jinja_token *stop) {
    static const char *const stops[] = {"elif", "else", "endif", "endfor"};
    rdi_jinja *j = p->j;
    rdi_jinja_node **link = out;
    if (++p->nesting > MAX_NESTING)
        return rdi_fail(RD_E_LIMIT, "chat template: statements nested deeper than %d", MAX_NESTING);
    for (;;) {
        const char *tag = find_tag(j);
        char type = tag ? tag[1] : 0;
        RDI_TRY(take_text(p, tag, link));
        if (*link) link = &(*link)->next;
        if (!tag) break;
        if (type == '#') {
            RDI_TRY(skip_comment(p));
            continue;
        }
        if (type == '{') {
            RDI_TRY(parse_output(p, link));
        } else {
            rdi_jinja_token t;
            RDI_TRY(rdi_jinja_lex(j, &t));
            for (size_t i = 0; i < RDI_COUNT(stops); i++) {
                if (!is_word(&t, stops[i])) continue;
                if (!stop)
                    return rdi_jinja_fail(j, rdi_jinja_line(j, j->at), "%s without its beginning", stops[i]);
                *stop = t;
                p->nesting--;
                return RD_OK;
            }
            RDI_TRY(parse_statement(p, &t, link));
        }
        while (*link) link = &(*link)->next;
    }
    if (stop) return rdi_jinja_fail(j, rdi_jinja_line(j, j->end), "the template ends inside an if or a for");
    return RD_OK;
}

rd_status rdi_jinja_parse(rdi_jinja *j, rdi_jinja_node **out) {
    parser p = {.j = j};
    *out = NULL;
    if (j->end > j->at && j->end[-1] == '\n') j->end--;
    return parse_body(&p, out, NULL);
}
