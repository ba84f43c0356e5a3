// SPDX-License-Identifier: Apache-2.0
// Runs a parsed template. Strings are shared slices; only joins and numbers make new text, against the memory limit.
#include "model/jinja.h"

#include <string.h>

enum { MAX_DEPTH = 200, MAX_ARGUMENTS = 8 };

typedef struct binding {
    const char *name;
    size_t bytes;
    rdi_jinja_value value;
    struct binding *outer;
} binding;
typedef struct runner {
    rdi_jinja *j;
    binding *scope;      // innermost first
    const binding *mark; // where the current loop body's scope ends
    char *text;
    size_t capacity, used;
} runner;

static rd_status eval(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out);
static rd_status no_memory(const rdi_jinja *j, size_t bytes) {
    return j->bytes_left < (int64_t)bytes ? RD_E_LIMIT : RD_E_NOMEM;
}

// ---- names ----------------------------------------------------------------------------------------------------------
static rd_status bind(runner *r, const char *name, size_t bytes, rdi_jinja_value value) {
    for (binding *b = r->scope; b != r->mark; b = b->outer)
        if (b->bytes == bytes && !memcmp(b->name, name, bytes)) {
            b->value = value;
            return RD_OK;
        }
    binding *b = rdi_jinja_alloc(r->j, sizeof *b);
    if (!b) return no_memory(r->j, sizeof *b);
    *b = (binding){name, bytes, value, r->scope};
    r->scope = b;
    return RD_OK;
}

static rdi_jinja_value undefined(const char *name, size_t bytes) {
    return (rdi_jinja_value){.kind = RDI_JINJA_UNDEFINED, .text = name, .bytes = bytes};
}

static rdi_jinja_value look_up(const runner *r, const rdi_jinja_node *n) {
    for (const binding *b = r->scope; b; b = b->outer)
        if (b->bytes == n->bytes && !memcmp(b->name, n->text, n->bytes)) return b->value;
    return undefined(n->text, n->bytes);
}

static rdi_jinja_value member(const rdi_jinja_value *of, const char *key, size_t bytes) {
    if (of->kind == RDI_JINJA_DICT)
        for (const rdi_jinja_pair *pair = *of->pairs; pair; pair = pair->next)
            if (pair->key_bytes == bytes && !memcmp(pair->key, key, bytes)) return pair->value;
    return undefined(key, bytes);
}

static rd_status refuse_undefined(runner *r, const rdi_jinja_node *n, const rdi_jinja_value *v) {
    if (v->kind != RDI_JINJA_UNDEFINED) return RD_OK;
    return rdi_jinja_fail(r->j, n->line, "'%.*s' is undefined", (int)rdi_min((int64_t)v->bytes, 40), v->text);
}

// ---- operators --------------------------------------------------------------------------------------------------------
static rd_status join(runner *r, const rdi_jinja_node *n, const rdi_jinja_value *a, const rdi_jinja_value *b,
                      rdi_jinja_value *out) {
    size_t bytes = a->bytes + b->bytes;
    RDI_TRY(rdi_jinja_charge(r->j, n->line, bytes));
    char *text = rdi_jinja_alloc(r->j, bytes);
    if (!text) return no_memory(r->j, bytes);
    if (a->bytes) memcpy(text, a->text, a->bytes);
    if (b->bytes) memcpy(text + a->bytes, b->text, b->bytes);
    *out = rdi_jinja_string(text, bytes);
    return RD_OK;
}

static rd_status contains(runner *r, const rdi_jinja_node *n, const rdi_jinja_value *a,
                          const rdi_jinja_value *in, bool *out) {
    *out = false;
    RDI_TRY(rdi_jinja_charge(r->j, n->line, in->kind == RDI_JINJA_STRING ? in->bytes * (a->bytes + 1) : 0));
    if (in->kind == RDI_JINJA_STRING && a->kind == RDI_JINJA_STRING) {
        for (size_t i = 0; !*out && i + a->bytes <= in->bytes; i++)
            *out = !a->bytes || !memcmp(in->text + i, a->text, a->bytes);
    } else if (in->kind == RDI_JINJA_LIST) {
        for (int64_t i = 0; !*out && i < in->integer; i++) {
            RDI_TRY(rdi_jinja_charge(r->j, n->line, a->bytes));
            *out = rdi_jinja_equal(a, &in->items[i]);
        }
    } else if (in->kind == RDI_JINJA_DICT && a->kind == RDI_JINJA_STRING) {
        *out = member(in, a->text, a->bytes).kind != RDI_JINJA_UNDEFINED;
    } else {
        return rdi_jinja_fail(r->j, n->line, "operator in between these types");
    }
    return RD_OK;
}

static rd_status arithmetic(runner *r, const rdi_jinja_node *n, int64_t a, int64_t b, rdi_jinja_value *out) {
    int64_t value = 0;
    bool overflow = false;
    switch (n->op) {
    case RDI_OP_ADD:
        overflow = rdi_add_overflow(a, b, &value);
        break;
    case RDI_OP_SUB:
        overflow = __builtin_sub_overflow(a, b, &value);
        break;
    case RDI_OP_MOD: // Python's: the sign of the divisor
        overflow = b == 0;
        if (b && b != -1) value = (a % b + b) % b;
        break;
    case RDI_OP_LT:
        *out = rdi_jinja_bool(a < b);
        return RD_OK;
    case RDI_OP_LE:
        *out = rdi_jinja_bool(a <= b);
        return RD_OK;
    case RDI_OP_GT:
        *out = rdi_jinja_bool(a > b);
        return RD_OK;
    default:
        *out = rdi_jinja_bool(a >= b);
        return RD_OK;
    }
    if (overflow) return rdi_jinja_fail(r->j, n->line, "arithmetic without a 64-bit result");
    *out = rdi_jinja_int(value);
    return RD_OK;
}

static rd_status eval_binary(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    rdi_jinja_value a = {0}, b = {0};
    bool truth;
    RDI_TRY(eval(r, n->a, &a));
    if (n->op == RDI_OP_OR || n->op == RDI_OP_AND) { // Python's: the operand itself
        if (rdi_jinja_truth(&a) == (n->op == RDI_OP_AND)) return eval(r, n->b, out);
        *out = a;
        return RD_OK;
    }
    RDI_TRY(eval(r, n->b, &b));
    switch (n->op) {
    case RDI_OP_EQ:
    case RDI_OP_NE:
        RDI_TRY(rdi_jinja_charge(r->j, n->line, a.bytes == b.bytes ? a.bytes : 0));
        *out = rdi_jinja_bool(rdi_jinja_equal(&a, &b) == (n->op == RDI_OP_EQ));
        return RD_OK;
    case RDI_OP_IN:
    case RDI_OP_NOT_IN:
        RDI_TRY(contains(r, n, &a, &b, &truth));
        *out = rdi_jinja_bool(truth == (n->op == RDI_OP_IN));
        return RD_OK;
    case RDI_OP_CONCAT:
        RDI_TRY(rdi_jinja_text_of(r->j, n, &a, &a));
        RDI_TRY(rdi_jinja_text_of(r->j, n, &b, &b));
        return join(r, n, &a, &b, out);
    default:
        break;
    }
    RDI_TRY(refuse_undefined(r, n, &a));
    RDI_TRY(refuse_undefined(r, n, &b));
    if (n->op == RDI_OP_ADD && a.kind == RDI_JINJA_STRING && b.kind == RDI_JINJA_STRING)
        return join(r, n, &a, &b, out);
    bool numbers = (a.kind == RDI_JINJA_INT || a.kind == RDI_JINJA_BOOL) &&
                   (b.kind == RDI_JINJA_INT || b.kind == RDI_JINJA_BOOL);
    if (!numbers)
        return rdi_jinja_fail(r->j, n->line,
                              "an operator between these types (+ joins strings or adds numbers)");
    return arithmetic(r, n, a.integer, b.integer, out);
}

// ---- access -----------------------------------------------------------------------------------------------------------
static rd_status eval_attribute(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    rdi_jinja_value of = {0};
    RDI_TRY(eval(r, n->a, &of));
    RDI_TRY(refuse_undefined(r, n, &of));
    *out = member(&of, n->text, n->bytes);
    return RD_OK;
}

static rd_status eval_index(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    rdi_jinja_value of = {0}, index = {0};
    RDI_TRY(eval(r, n->a, &of));
    RDI_TRY(refuse_undefined(r, n, &of));
    RDI_TRY(eval(r, n->b, &index));
    if (index.kind == RDI_JINJA_STRING) {
        *out = member(&of, index.text, index.bytes);
        return RD_OK;
    }
    if (of.kind != RDI_JINJA_LIST || index.kind != RDI_JINJA_INT)
        return rdi_jinja_fail(r->j, n->line, "an index of this type");
    int64_t at = index.integer < 0 ? index.integer + of.integer : index.integer;
    *out = at >= 0 && at < of.integer ? of.items[at] : undefined("list element", 12);
    return RD_OK;
}

static rd_status bound(runner *r, const rdi_jinja_node *n, const rdi_jinja_node *part, int64_t otherwise,
                       int64_t *out) {
    rdi_jinja_value v = {.kind = RDI_JINJA_NONE};
    if (part) RDI_TRY(eval(r, part, &v));
    *out = v.kind == RDI_JINJA_INT ? v.integer : otherwise;
    return v.kind == RDI_JINJA_INT || v.kind == RDI_JINJA_NONE
               ? RD_OK
               : rdi_jinja_fail(r->j, n->line, "a slice bound that is no integer");
}

// Python's slice of a list.
static rd_status eval_slice(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    rdi_jinja_value of = {0};
    int64_t from, to, step;
    RDI_TRY(eval(r, n->a, &of));
    if (of.kind != RDI_JINJA_LIST)
        return rdi_jinja_fail(r->j, n->line, "a slice of something that is no list");
    int64_t count = of.integer;
    RDI_TRY(bound(r, n, n->d, 1, &step));
    if (step != 1 && step != -1)
        return rdi_jinja_fail(r->j, n->line, "a slice step that is neither 1 nor -1");
    RDI_TRY(bound(r, n, n->b, step > 0 ? 0 : INT64_MAX, &from));
    RDI_TRY(bound(r, n, n->c, step > 0 ? INT64_MAX : INT64_MIN, &to));
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
    if (from < 0) from += count;
    if (to < 0 && to != INT64_MIN) to += count;
    from = rdi_max(low, rdi_min(from, high));
    to = rdi_max(low, rdi_min(to, high));
    int64_t length = rdi_max(0, (to - from) * step);
    size_t bytes = (size_t)length * sizeof *out->items;
    rdi_jinja_value *items = rdi_jinja_alloc(r->j, bytes);
    if (!items) return no_memory(r->j, bytes);
    for (int64_t i = 0; i < length; i++) items[i] = of.items[from + i * step];
    *out = (rdi_jinja_value){.kind = RDI_JINJA_LIST, .integer = length, .items = items};
    return RD_OK;
}

// ---- calls --------------------------------------------------------------------------------------------------------------
static rd_status eval_arguments(runner *r, const rdi_jinja_node *n, rdi_jinja_value args[MAX_ARGUMENTS],
                                int *count) {
    *count = 0;
    for (const rdi_jinja_node *at = n->b; at; at = at->next) {
        if (*count == MAX_ARGUMENTS) return rdi_jinja_fail(r->j, n->line, "over %d arguments", MAX_ARGUMENTS);
        RDI_TRY(eval(r, at->kind == RDI_NODE_SET ? at->a : at, &args[*count]));
        ++*count;
    }
    return RD_OK;
}

static rd_status make_namespace(runner *r, const rdi_jinja_node *n, const rdi_jinja_value *args,
                                rdi_jinja_value *out) {
    *out = (rdi_jinja_value){.kind = RDI_JINJA_DICT, .pairs = rdi_jinja_alloc(r->j, sizeof *out->pairs)};
    if (!out->pairs) return no_memory(r->j, sizeof *out->pairs);
    for (const rdi_jinja_node *at = n->b; at; at = at->next, args++) {
        if (at->kind != RDI_NODE_SET)
            return rdi_jinja_fail(r->j, n->line, "namespace of something other than name=value");
        RDI_TRY(rdi_jinja_dict_set(r->j, out, at->text, at->bytes, *args));
    }
    return RD_OK;
}

static bool is_name(const rdi_jinja_node *n, const char *name) {
    return n->kind == RDI_NODE_NAME && n->bytes == strlen(name) && !memcmp(n->text, name, n->bytes);
}

static rd_status eval_call(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    rdi_jinja_value args[MAX_ARGUMENTS], self = {0};
    int count;
    if (n->a->kind == RDI_NODE_ATTRIBUTE) {
        RDI_TRY(eval(r, n->a->a, &self));
        RDI_TRY(refuse_undefined(r, n, &self));
        RDI_TRY(eval_arguments(r, n, args, &count));
        return rdi_jinja_method(r->j, n->a, &self, args, count, out);
    }
    if (is_name(n->a, "namespace")) {
        RDI_TRY(eval_arguments(r, n, args, &count));
        return make_namespace(r, n, args, out);
    }
    if (is_name(n->a, "raise_exception")) {
        RDI_TRY(eval_arguments(r, n, args, &count));
        bool text = count == 1 && args[0].kind == RDI_JINJA_STRING;
        return rdi_fail(RD_E_INVALID, "chat template, line %d: %.*s", n->line,
                        text ? (int)rdi_min((int64_t)args[0].bytes, 200) : 9,
                        text ? args[0].text : "exception");
    }
    bool plain = n->a->kind == RDI_NODE_NAME;
    return rdi_jinja_fail(
        r->j, n->line, "call of %.*s, needs namespace, raise_exception or a string's method",
        plain ? (int)rdi_min((int64_t)n->a->bytes, 40) : 13, plain ? n->a->text : "an expression");
}

static rd_status eval_filter(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    rdi_jinja_value args[MAX_ARGUMENTS], self = {0};
    int count;
    RDI_TRY(eval(r, n->a, &self));
    RDI_TRY(eval_arguments(r, n, args, &count));
    return rdi_jinja_filter(r->j, n, &self, args, count, out);
}

static rd_status eval_list(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    int64_t count = 0;
    for (const rdi_jinja_node *at = n->a; at; at = at->next) count++;
    size_t bytes = (size_t)count * sizeof *out->items;
    rdi_jinja_value *items = rdi_jinja_alloc(r->j, bytes);
    if (!items) return no_memory(r->j, bytes);
    int64_t i = 0;
    for (const rdi_jinja_node *at = n->a; at; at = at->next) RDI_TRY(eval(r, at, &items[i++]));
    *out = (rdi_jinja_value){.kind = RDI_JINJA_LIST, .integer = count, .items = items};
    return RD_OK;
}

static rd_status eval_kind(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    rdi_jinja_value v = {0};
    bool truth = false;
    switch (n->kind) {
    case RDI_NODE_LITERAL:
        *out = n->value;
        return RD_OK;
    case RDI_NODE_NAME:
        *out = look_up(r, n);
        return RD_OK;
    case RDI_NODE_ATTRIBUTE:
        return eval_attribute(r, n, out);
    case RDI_NODE_INDEX:
        return eval_index(r, n, out);
    case RDI_NODE_SLICE:
        return eval_slice(r, n, out);
    case RDI_NODE_CALL:
        return eval_call(r, n, out);
    case RDI_NODE_FILTER:
        return eval_filter(r, n, out);
    case RDI_NODE_BINARY:
        return eval_binary(r, n, out);
    case RDI_NODE_LIST:
        return eval_list(r, n, out);
    case RDI_NODE_TEST:
        RDI_TRY(eval(r, n->a, &v));
        RDI_TRY(rdi_jinja_test(r->j, n, &v, &truth));
        *out = rdi_jinja_bool(truth != n->negated);
        return RD_OK;
    case RDI_NODE_NOT:
        RDI_TRY(eval(r, n->a, &v));
        *out = rdi_jinja_bool(!rdi_jinja_truth(&v));
        return RD_OK;
    case RDI_NODE_NEGATE:
        RDI_TRY(eval(r, n->a, &v));
        if (v.kind != RDI_JINJA_INT)
            return rdi_jinja_fail(r->j, n->line, "minus of something that is no integer");
        *out = rdi_jinja_int(v.integer == INT64_MIN ? v.integer : -v.integer);
        return RD_OK;
    case RDI_NODE_TERNARY:
        RDI_TRY(eval(r, n->a, &v));
        if (rdi_jinja_truth(&v)) return eval(r, n->b, out);
        *out = undefined("else of an if expression", 24);
        return n->c ? eval(r, n->c, out) : RD_OK;
    default:
        return rdi_fail(RD_E_INTERNAL, "chat template: a statement inside an expression");
    }
}

static rd_status eval(runner *r, const rdi_jinja_node *n, rdi_jinja_value *out) {
    RDI_TRY(rdi_jinja_charge(r->j, n->line, 0));
    if (++r->j->depth > MAX_DEPTH)
        return rdi_fail(RD_E_LIMIT, "chat template, line %d: an expression of over %d levels", n->line,
                        MAX_DEPTH);
    rd_status status = eval_kind(r, n, out);
    r->j->depth--;
    return status;
}

// ---- statements -----------------------------------------------------------------------------------------------------------
static rd_status run(runner *r, const rdi_jinja_node *list);

static rd_status put(runner *r, const rdi_jinja_node *n, const char *text, size_t bytes) {
    RDI_TRY(rdi_jinja_charge(r->j, n->line, bytes));
    if (bytes && r->used + bytes <= r->capacity) memcpy(r->text + r->used, text, bytes);
    r->used += bytes;
    return RD_OK;
}

static rd_status set(runner *r, const rdi_jinja_node *n) {
    rdi_jinja_value v = {0}, space = {0};
    RDI_TRY(eval(r, n->b, &v));
    if (n->a->kind == RDI_NODE_NAME) return bind(r, n->a->text, n->a->bytes, v);
    RDI_TRY(eval(r, n->a->a, &space));
    if (space.kind != RDI_JINJA_DICT)
        return rdi_jinja_fail(r->j, n->line, "set of a member of something that is no namespace");
    return rdi_jinja_dict_set(r->j, &space, n->a->text, n->a->bytes, v);
}

static rd_status set_loop(runner *r, rdi_jinja_value *loop, int64_t index, int64_t count) {
    const struct {
        const char *name;
        rdi_jinja_value value;
    } rows[] = {{"index", rdi_jinja_int(index + 1)},
                {"index0", rdi_jinja_int(index)},
                {"first", rdi_jinja_bool(index == 0)},
                {"last", rdi_jinja_bool(index == count - 1)},
                {"length", rdi_jinja_int(count)},
                {"revindex", rdi_jinja_int(count - index)},
                {"revindex0", rdi_jinja_int(count - index - 1)}};
    for (size_t i = 0; i < RDI_COUNT(rows); i++)
        RDI_TRY(rdi_jinja_dict_set(r->j, loop, rows[i].name, strlen(rows[i].name), rows[i].value));
    return RD_OK;
}

// The elements that pass the loop's own condition, which sees the target but no `loop`.
static rd_status filter_items(runner *r, const rdi_jinja_node *n, rdi_jinja_value *list) {
    size_t bytes = (size_t)list->integer * sizeof *list->items;
    rdi_jinja_value *kept = rdi_jinja_alloc(r->j, bytes), truth;
    if (!kept) return no_memory(r->j, bytes);
    int64_t count = 0;
    for (int64_t i = 0; i < list->integer; i++) {
        RDI_TRY(bind(r, n->text, n->bytes, list->items[i]));
        RDI_TRY(eval(r, n->d, &truth));
        if (rdi_jinja_truth(&truth)) kept[count++] = list->items[i];
    }
    list->items = kept;
    list->integer = count;
    return RD_OK;
}

static rd_status loop_items(runner *r, const rdi_jinja_node *n, const rdi_jinja_value *list) {
    rdi_jinja_value loop = {.kind = RDI_JINJA_DICT, .pairs = rdi_jinja_alloc(r->j, sizeof *loop.pairs)};
    if (!loop.pairs) return no_memory(r->j, sizeof *loop.pairs);
    binding *outer = r->scope;
    for (int64_t i = 0; i < list->integer; i++) {
        r->scope = outer; // what a body sets ends with its round
        RDI_TRY(set_loop(r, &loop, i, list->integer));
        RDI_TRY(bind(r, "loop", 4, loop));
        RDI_TRY(bind(r, n->text, n->bytes, list->items[i]));
        RDI_TRY(run(r, n->b));
    }
    return RD_OK;
}

static rd_status run_for(runner *r, const rdi_jinja_node *n) {
    rdi_jinja_value list = {0};
    RDI_TRY(eval(r, n->a, &list));
    RDI_TRY(refuse_undefined(r, n, &list));
    if (list.kind != RDI_JINJA_LIST)
        return rdi_jinja_fail(r->j, n->line, "for over something that is no list");
    binding *scope = r->scope;
    const binding *mark = r->mark;
    r->mark = r->scope;
    if (n->d) RDI_TRY(filter_items(r, n, &list));
    r->scope = scope;
    RDI_TRY(loop_items(r, n, &list));
    r->scope = scope;
    r->mark = mark;
    return list.integer ? RD_OK : run(r, n->c);
}

static rd_status run(runner *r, const rdi_jinja_node *list) {
    for (const rdi_jinja_node *n = list; n; n = n->next) {
        rdi_jinja_value v = {0};
        if (n->kind == RDI_NODE_TEXT) {
            RDI_TRY(put(r, n, n->text, n->bytes));
        } else if (n->kind == RDI_NODE_OUTPUT) {
            RDI_TRY(eval(r, n->a, &v));
            RDI_TRY(rdi_jinja_text_of(r->j, n, &v, &v));
            RDI_TRY(put(r, n, v.text, v.bytes));
        } else if (n->kind == RDI_NODE_IF) {
            RDI_TRY(eval(r, n->a, &v));
            RDI_TRY(run(r, rdi_jinja_truth(&v) ? n->b : n->c));
        } else if (n->kind == RDI_NODE_FOR) {
            RDI_TRY(run_for(r, n));
        } else {
            RDI_TRY(set(r, n));
        }
    }
    return RD_OK;
}

rd_status rdi_jinja_run(rdi_jinja *j, const rdi_jinja_node *body, rdi_jinja_value *globals, char *text,
                        size_t capacity, size_t *needed) {
    runner r = {.j = j, .text = text, .capacity = capacity};
    j->depth = 0;
    for (const rdi_jinja_pair *pair = *globals->pairs; pair; pair = pair->next)
        RDI_TRY(bind(&r, pair->key, pair->key_bytes, pair->value));
    RDI_TRY(run(&r, body));
    *needed = r.used;
    return RD_OK;
}
