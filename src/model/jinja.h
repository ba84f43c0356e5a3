// SPDX-License-Identifier: Apache-2.0
// A safe subset of Jinja for chat templates: what published ChatML-like templates use, nothing that reaches outside the
// template. Anything else is refused by its name. Steps, memory, depth and output are bounded: templates come with models.
#ifndef RDI_MODEL_JINJA_H
#define RDI_MODEL_JINJA_H

#include "base/base.h"

// ---- values -----------------------------------------------------------------------------------------------------------
typedef enum rdi_jinja_kind {
    RDI_JINJA_UNDEFINED = 0,
    RDI_JINJA_NONE,
    RDI_JINJA_BOOL,
    RDI_JINJA_INT,
    RDI_JINJA_STRING,
    RDI_JINJA_LIST,
    RDI_JINJA_DICT // messages, loop, namespace
} rdi_jinja_kind;
typedef struct rdi_jinja_value rdi_jinja_value;
typedef struct rdi_jinja_pair rdi_jinja_pair;
struct rdi_jinja_value {
    rdi_jinja_kind kind;
    int64_t integer;  // INT, BOOL; elements of a LIST
    const char *text; // STRING; UNDEFINED: the name that was asked for
    size_t bytes;
    rdi_jinja_value *items; // LIST
    rdi_jinja_pair **pairs; // DICT: its list head, shared so that a namespace can be written to
};
struct rdi_jinja_pair {
    const char *key;
    size_t key_bytes;
    rdi_jinja_value value;
    rdi_jinja_pair *next;
};

// ---- syntax tree ---------------------------------------------------------------------------------------------------------
typedef enum rdi_jinja_node_kind {
    RDI_NODE_TEXT,
    RDI_NODE_OUTPUT,
    RDI_NODE_IF,
    RDI_NODE_FOR,
    RDI_NODE_SET, // statements
    RDI_NODE_LITERAL,
    RDI_NODE_NAME,
    RDI_NODE_ATTRIBUTE,
    RDI_NODE_INDEX,
    RDI_NODE_SLICE, // expressions
    RDI_NODE_CALL,
    RDI_NODE_FILTER,
    RDI_NODE_TEST,
    RDI_NODE_NOT,
    RDI_NODE_NEGATE,
    RDI_NODE_BINARY,
    RDI_NODE_TERNARY,
    RDI_NODE_LIST
} rdi_jinja_node_kind;
typedef enum rdi_jinja_op {
    RDI_OP_OR,
    RDI_OP_AND,
    RDI_OP_EQ,
    RDI_OP_NE,
    RDI_OP_LT,
    RDI_OP_LE,
    RDI_OP_GT,
    RDI_OP_GE,
    RDI_OP_IN,
    RDI_OP_NOT_IN,
    RDI_OP_ADD,
    RDI_OP_SUB,
    RDI_OP_MOD,
    RDI_OP_CONCAT
} rdi_jinja_op;
typedef struct rdi_jinja_node rdi_jinja_node;
struct rdi_jinja_node {
    rdi_jinja_node_kind kind;
    int32_t line;
    rdi_jinja_op op;
    bool negated;     // TEST: `is not`
    const char *text; // TEXT; name of NAME, ATTRIBUTE, CALL argument, FILTER, TEST, FOR target, SET target
    size_t bytes;
    rdi_jinja_value value; // LITERAL
    rdi_jinja_node *a, *b, *c,
        *d;               // operands; IF: condition, body, else; FOR: iterable, body, else, condition
    rdi_jinja_node *next; // statement lists, arguments, list items
};

// One template being parsed or run.
typedef struct rdi_jinja rdi_jinja;
struct rdi_jinja {
    rdi_arena arena;
    const char *source, *at, *end;
    const char *line_at; // where `line` was counted to: asking forwards costs each byte once
    int32_t line, depth;
    int64_t steps_left, bytes_left;
};
rd_status rdi_jinja_fail(const rdi_jinja *j, int32_t line, const char *format, ...) RDI_PRINTF(3, 4);
void *rdi_jinja_alloc(rdi_jinja *j, size_t bytes);                    // counted against bytes_left
rd_status rdi_jinja_charge(rdi_jinja *j, int32_t line, size_t bytes); // steps for work on that many bytes
rd_status rdi_jinja_parse(rdi_jinja *j, rdi_jinja_node **out);

// Expression tokens (jinja_lex.c).
typedef enum rdi_token_type {
    RDI_TOK_NAME,
    RDI_TOK_STRING,
    RDI_TOK_INT,
    RDI_TOK_OP,
    RDI_TOK_CLOSE
} rdi_token_type;
typedef struct rdi_jinja_token {
    rdi_token_type type;
    const char *text; // spelling; CLOSE: "}}" or "%}"
    size_t bytes;
    int64_t integer;
    bool trim; // CLOSE: "-}}" or "-%}"
    bool keep; // CLOSE: "+%}"
} rdi_jinja_token;
rd_status rdi_jinja_lex(rdi_jinja *j, rdi_jinja_token *out); // at j->at, which moves on
int32_t rdi_jinja_line(rdi_jinja *j, const char *at);
rd_status rdi_jinja_expression(rdi_jinja *j, rdi_jinja_token *token,
                               rdi_jinja_node **out); // token: current, then the next
rd_status rdi_jinja_condition(rdi_jinja *j, rdi_jinja_token *token,
                              rdi_jinja_node **out); // no ternary: `for x in y if z`
bool rdi_jinja_is(const rdi_jinja_token *token, rdi_token_type type, const char *text);
rd_status rdi_jinja_node_new(rdi_jinja *j, rdi_jinja_node_kind kind, const char *at, rdi_jinja_node **out);

// Filters, tests, methods and functions by name (jinja_library.c). args: evaluated, in order.
rd_status rdi_jinja_filter(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *self,
                           const rdi_jinja_value *args, int count, rdi_jinja_value *out);
rd_status rdi_jinja_test(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *self, bool *out);
rd_status rdi_jinja_method(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *self,
                           const rdi_jinja_value *args, int count, rdi_jinja_value *out);
bool rdi_jinja_truth(const rdi_jinja_value *v);
bool rdi_jinja_equal(const rdi_jinja_value *a, const rdi_jinja_value *b);
rdi_jinja_value rdi_jinja_string(const char *text, size_t bytes);
rdi_jinja_value rdi_jinja_int(int64_t value);
rdi_jinja_value rdi_jinja_bool(bool value);
rd_status rdi_jinja_dict_set(rdi_jinja *j, rdi_jinja_value *dict, const char *key, size_t key_bytes,
                             rdi_jinja_value value);
rd_status rdi_jinja_text_of(rdi_jinja *j, const rdi_jinja_node *node, const rdi_jinja_value *v,
                            rdi_jinja_value *out); // as printed

// ---- running --------------------------------------------------------------------------------------------------------------
// Renders into text (capacity bytes, no NUL); *needed is the full length. RD_E_UNSUPPORTED names what is outside the subset.
rd_status rdi_jinja_run(rdi_jinja *j, const rdi_jinja_node *body, rdi_jinja_value *globals, char *text,
                        size_t capacity, size_t *needed);
// Chat form: messages, add_generation_prompt, bos_token, eos_token.
typedef struct rdi_jinja_chat {
    const char *source;
    size_t source_bytes;
    const char *bos_text, *eos_text; // may be NULL
} rdi_jinja_chat;
struct rd_chat_message;
rd_status rdi_jinja_render(const rdi_jinja_chat *chat, const struct rd_chat_message *messages, int32_t count,
                           bool add_generation_prompt, char *text, size_t capacity, size_t *needed);

#endif // RDI_MODEL_JINJA_H
