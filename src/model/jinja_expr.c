// SPDX-License-Identifier: Apache-2.0
// Expressions of the Jinja subset: recursive descent, loosest binding first (ternary, or, and, not, comparison, + -, ~, %).
#include "model/jinja.h"

#include <string.h>

enum { MAX_DEPTH = 40 };

rd_status rdi_jinja_node_new(rdi_jinja *j, rdi_jinja_node_kind kind, const char *at, rdi_jinja_node **out) {
    *out = rdi_jinja_alloc(j, sizeof **out);
    if (!*out) return j->bytes_left < (int64_t)sizeof **out ? RD_E_LIMIT : RD_E_NOMEM;
    (*out)->kind = kind;
    (*out)->line = rdi_jinja_line(j, at);
    return RD_OK;
}

static rd_status next(rdi_jinja *j, rdi_jinja_token *t) {
    return rdi_jinja_lex(j, t);
}
static bool is_op(const rdi_jinja_token *t, const char *text) {
    return rdi_jinja_is(t, RDI_TOK_OP, text);
}
static bool is_word(const rdi_jinja_token *t, const char *text) {
    return rdi_jinja_is(t, RDI_TOK_NAME, text);
}

static rd_status unexpected(rdi_jinja *j, const rdi_jinja_token *t, const char *need) {
    return rdi_jinja_fail(j, rdi_jinja_line(j, j->at), "'%.*s', needs %s",
                          (int)rdi_min((int64_t)t->bytes, 40), t->text, need);
}

static rd_status expect(rdi_jinja *j, rdi_jinja_token *t, const char *op) {
    if (!is_op(t, op)) return unexpected(j, t, op);
    return next(j, t);
}

static rd_status binary(rdi_jinja *j, rdi_jinja_op op, rdi_jinja_node *a, rdi_jinja_node *b,
                        rdi_jinja_node **out) {
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_BINARY, j->at, out));
    (*out)->op = op;
    (*out)->a = a;
    (*out)->b = b;
    return RD_OK;
}

// One argument; name=value keeps the name (namespace).
static rd_status argument(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    rdi_jinja_token name = *t;
    RDI_TRY(rdi_jinja_expression(j, t, out));
    if (!*out) return rdi_fail(RD_E_INTERNAL, "chat template: an argument without a node");
    if (!is_op(t, "=") || (*out)->kind != RDI_NODE_NAME) return RD_OK;
    RDI_TRY(next(j, t));
    rdi_jinja_node *value = NULL;
    RDI_TRY(rdi_jinja_expression(j, t, &value));
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_SET, j->at, out));
    (*out)->text = name.text;
    (*out)->bytes = name.bytes;
    (*out)->a = value;
    return RD_OK;
}

// Arguments up to ')'; the token after '(' is current.
static rd_status arguments(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **first) {
    rdi_jinja_node *last = NULL;
    *first = NULL;
    while (!is_op(t, ")")) {
        rdi_jinja_node *value = NULL;
        RDI_TRY(argument(j, t, &value));
        if (last)
            last->next = value;
        else
            *first = value;
        last = value;
        if (is_op(t, ","))
            RDI_TRY(next(j, t));
        else if (!is_op(t, ")"))
            return unexpected(j, t, "',' or ')'");
    }
    return next(j, t);
}

static rd_status list_literal(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_LIST, j->at, out));
    rdi_jinja_node **link = &(*out)->a;
    while (!is_op(t, "]")) {
        RDI_TRY(rdi_jinja_expression(j, t, link));
        link = &(*link)->next;
        if (is_op(t, ","))
            RDI_TRY(next(j, t));
        else if (!is_op(t, "]"))
            return unexpected(j, t, "',' or ']'");
    }
    return next(j, t);
}

static rd_status literal(rdi_jinja *j, rdi_jinja_value value, rdi_jinja_node **out) {
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_LITERAL, j->at, out));
    (*out)->value = value;
    return RD_OK;
}

// Neighbouring string literals are one string, as in Python.
static rd_status string_literal(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    rdi_jinja_value value = rdi_jinja_string(t->text, t->bytes);
    RDI_TRY(next(j, t));
    for (; t->type == RDI_TOK_STRING;) {
        size_t bytes = value.bytes + t->bytes;
        char *joined = rdi_jinja_alloc(j, bytes + 1);
        if (!joined) return j->bytes_left <= (int64_t)bytes ? RD_E_LIMIT : RD_E_NOMEM;
        memcpy(joined, value.text, value.bytes);
        memcpy(joined + value.bytes, t->text, t->bytes);
        value = rdi_jinja_string(joined, bytes);
        RDI_TRY(next(j, t));
    }
    return literal(j, value, out);
}

static rd_status primary(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    if (t->type == RDI_TOK_STRING) return string_literal(j, t, out);
    if (t->type == RDI_TOK_INT) {
        RDI_TRY(literal(j, rdi_jinja_int(t->integer), out));
    } else if (is_word(t, "true") || is_word(t, "True") || is_word(t, "false") || is_word(t, "False")) {
        RDI_TRY(literal(j, rdi_jinja_bool(t->text[0] == 't' || t->text[0] == 'T'), out));
    } else if (is_word(t, "none") || is_word(t, "None")) {
        RDI_TRY(literal(j, (rdi_jinja_value){.kind = RDI_JINJA_NONE}, out));
    } else if (t->type == RDI_TOK_NAME) {
        RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_NAME, j->at, out));
        (*out)->text = t->text;
        (*out)->bytes = t->bytes;
    } else if (is_op(t, "(")) {
        RDI_TRY(next(j, t));
        RDI_TRY(rdi_jinja_expression(j, t, out));
        if (is_op(t, ",")) return rdi_jinja_fail(j, (*out)->line, "a tuple");
        return expect(j, t, ")");
    } else if (is_op(t, "[")) {
        RDI_TRY(next(j, t));
        return list_literal(j, t, out);
    } else {
        return is_op(t, "{") ? rdi_jinja_fail(j, rdi_jinja_line(j, j->at), "a dict literal")
                             : unexpected(j, t, "a value");
    }
    return next(j, t);
}

// [index] or [from:to:step]; '[' is consumed.
static rd_status subscript(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node *of, rdi_jinja_node **out) {
    rdi_jinja_node *part[3] = {NULL};
    int parts = 0;
    for (;; parts++) {
        if (!is_op(t, ":") && !is_op(t, "]")) RDI_TRY(rdi_jinja_expression(j, t, &part[parts]));
        if (!is_op(t, ":") || parts == 2) break;
        RDI_TRY(next(j, t));
    }
    if (parts == 0 && !part[0]) return unexpected(j, t, "an index");
    RDI_TRY(rdi_jinja_node_new(j, parts ? RDI_NODE_SLICE : RDI_NODE_INDEX, j->at, out));
    (*out)->a = of;
    (*out)->b = part[0];
    (*out)->c = part[1];
    (*out)->d = part[2];
    return expect(j, t, "]");
}

static rd_status named(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node_kind kind, rdi_jinja_node *of,
                       rdi_jinja_node **out) {
    if (t->type != RDI_TOK_NAME) return unexpected(j, t, "a name");
    RDI_TRY(rdi_jinja_node_new(j, kind, j->at, out));
    (*out)->text = t->text;
    (*out)->bytes = t->bytes;
    (*out)->a = of;
    return next(j, t);
}

// name or name(arguments) after '|'.
static rd_status filter(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node *of, rdi_jinja_node **out) {
    rdi_jinja_token name = *t;
    rdi_jinja_node *given = NULL;
    if (t->type != RDI_TOK_NAME) return unexpected(j, t, "a name");
    RDI_TRY(next(j, t));
    if (is_op(t, "(")) {
        RDI_TRY(next(j, t));
        RDI_TRY(arguments(j, t, &given));
    }
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_FILTER, j->at, out));
    (*out)->text = name.text;
    (*out)->bytes = name.bytes;
    (*out)->a = of;
    (*out)->b = given;
    return RD_OK;
}

// (arguments) after `of`; '(' is consumed.
static rd_status call(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node *of, rdi_jinja_node **out) {
    rdi_jinja_node *given = NULL;
    RDI_TRY(arguments(j, t, &given));
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_CALL, j->at, out));
    (*out)->a = of;
    (*out)->b = given;
    return RD_OK;
}

static rd_status postfix(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(primary(j, t, out));
    for (;;) {
        rdi_jinja_node *of = *out;
        if (is_op(t, ".")) {
            RDI_TRY(next(j, t));
            RDI_TRY(named(j, t, RDI_NODE_ATTRIBUTE, of, out));
        } else if (is_op(t, "[")) {
            RDI_TRY(next(j, t));
            RDI_TRY(subscript(j, t, of, out));
        } else if (is_op(t, "(")) {
            RDI_TRY(next(j, t));
            RDI_TRY(call(j, t, of, out));
        } else if (is_op(t, "|")) {
            RDI_TRY(next(j, t));
            RDI_TRY(filter(j, t, of, out));
        } else {
            return RD_OK;
        }
    }
}

static rd_status unary(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    if (!is_op(t, "-")) return postfix(j, t, out);
    RDI_TRY(next(j, t));
    rdi_jinja_node *of = NULL;
    RDI_TRY(postfix(j, t, &of));
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_NEGATE, j->at, out));
    (*out)->a = of;
    return RD_OK;
}

static rd_status modulo(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(unary(j, t, out));
    for (;;) {
        static const char *const refused[] = {"*", "/", "//", "**"};
        for (size_t i = 0; i < RDI_COUNT(refused); i++)
            if (is_op(t, refused[i]))
                return rdi_jinja_fail(j, rdi_jinja_line(j, j->at), "operator %s", refused[i]);
        if (!is_op(t, "%")) return RD_OK;
        rdi_jinja_node *right = NULL, *left = *out;
        RDI_TRY(next(j, t));
        RDI_TRY(unary(j, t, &right));
        RDI_TRY(binary(j, RDI_OP_MOD, left, right, out));
    }
}

static rd_status concat(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(modulo(j, t, out));
    while (is_op(t, "~")) {
        rdi_jinja_node *right = NULL, *left = *out;
        RDI_TRY(next(j, t));
        RDI_TRY(modulo(j, t, &right));
        RDI_TRY(binary(j, RDI_OP_CONCAT, left, right, out));
    }
    return RD_OK;
}

static rd_status sum(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(concat(j, t, out));
    while (is_op(t, "+") || is_op(t, "-")) {
        rdi_jinja_op op = is_op(t, "+") ? RDI_OP_ADD : RDI_OP_SUB;
        rdi_jinja_node *right = NULL, *left = *out;
        RDI_TRY(next(j, t));
        RDI_TRY(concat(j, t, &right));
        RDI_TRY(binary(j, op, left, right, out));
    }
    return RD_OK;
}

static rd_status is_test(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    rdi_jinja_node *of = *out;
    RDI_TRY(next(j, t));
    bool negated = is_word(t, "not");
    if (negated) RDI_TRY(next(j, t));
    RDI_TRY(named(j, t, RDI_NODE_TEST, of, out));
    (*out)->negated = negated;
    return RD_OK;
}

static bool comparison_op(const rdi_jinja_token *t, rdi_jinja_op *op) {
    static const struct {
        const char *text;
        rdi_jinja_op op;
    } rows[] = {{"==", RDI_OP_EQ}, {"!=", RDI_OP_NE}, {"<", RDI_OP_LT},
                {"<=", RDI_OP_LE}, {">", RDI_OP_GT},  {">=", RDI_OP_GE}};
    for (size_t i = 0; i < RDI_COUNT(rows); i++)
        if (is_op(t, rows[i].text)) {
            *op = rows[i].op;
            return true;
        }
    *op = RDI_OP_IN;
    return is_word(t, "in");
}

static rd_status comparison(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(sum(j, t, out));
    for (int compared = 0;;) {
        rdi_jinja_op op;
        if (is_word(t, "is")) {
            RDI_TRY(is_test(j, t, out));
            continue;
        }
        bool negated = is_word(t, "not");
        if (negated) {
            RDI_TRY(next(j, t));
            if (!is_word(t, "in")) return unexpected(j, t, "'in' after 'not'");
        }
        if (!comparison_op(t, &op)) return RD_OK;
        if (compared++) return rdi_jinja_fail(j, rdi_jinja_line(j, j->at), "a chained comparison");
        rdi_jinja_node *right = NULL, *left = *out;
        RDI_TRY(next(j, t));
        RDI_TRY(sum(j, t, &right));
        RDI_TRY(binary(j, negated ? RDI_OP_NOT_IN : op, left, right, out));
    }
}

static rd_status inverted(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    int nots = 0;
    for (; is_word(t, "not"); nots++) RDI_TRY(next(j, t));
    RDI_TRY(comparison(j, t, out));
    if (!nots) return RD_OK;
    for (int i = 0; i < 2 - nots % 2; i++) { // an even number still makes a boolean
        rdi_jinja_node *of = *out;
        RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_NOT, j->at, out));
        (*out)->a = of;
    }
    return RD_OK;
}

static rd_status conjunction(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(inverted(j, t, out));
    while (is_word(t, "and")) {
        rdi_jinja_node *right = NULL, *left = *out;
        RDI_TRY(next(j, t));
        RDI_TRY(inverted(j, t, &right));
        RDI_TRY(binary(j, RDI_OP_AND, left, right, out));
    }
    return RD_OK;
}

static rd_status disjunction(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(conjunction(j, t, out));
    while (is_word(t, "or")) {
        rdi_jinja_node *right = NULL, *left = *out;
        RDI_TRY(next(j, t));
        RDI_TRY(conjunction(j, t, &right));
        RDI_TRY(binary(j, RDI_OP_OR, left, right, out));
    }
    return RD_OK;
}

static rd_status ternary(rdi_jinja *j, rdi_jinja_token *t, rdi_jinja_node **out) {
    RDI_TRY(disjunction(j, t, out));
    if (!is_word(t, "if")) return RD_OK;
    rdi_jinja_node *value = *out, *condition, *otherwise = NULL;
    RDI_TRY(next(j, t));
    RDI_TRY(disjunction(j, t, &condition));
    if (is_word(t, "else")) {
        RDI_TRY(next(j, t));
        RDI_TRY(rdi_jinja_expression(j, t, &otherwise));
    }
    RDI_TRY(rdi_jinja_node_new(j, RDI_NODE_TERNARY, j->at, out));
    (*out)->a = condition;
    (*out)->b = value;
    (*out)->c = otherwise;
    return RD_OK;
}

rd_status rdi_jinja_expression(rdi_jinja *j, rdi_jinja_token *token, rdi_jinja_node **out) {
    if (++j->depth > MAX_DEPTH)
        return rdi_fail(RD_E_LIMIT, "chat template, line %d: nested deeper than %d", rdi_jinja_line(j, j->at),
                        MAX_DEPTH);
    rd_status status = ternary(j, token, out);
    j->depth--;
    return status;
}

rd_status rdi_jinja_condition(rdi_jinja *j, rdi_jinja_token *token, rdi_jinja_node **out) {
    return disjunction(j, token, out);
}
