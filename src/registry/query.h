// SPDX-License-Identifier: Apache-2.0
// A question about an op: what keys it may give, and its normalised form. Normalising is where bad questions end: an
// unknown or repeated key, a number given as text, a size below one, an unknown word or dtype.
#ifndef RDI_QUERY_H
#define RDI_QUERY_H

#include "registry/registry.h"

typedef enum rdi_key_kind {
    RDI_KEY_SIZE = 0, // a whole number from 1 to INT32_MAX
    RDI_KEY_FLAG,     // 0 or 1
    RDI_KEY_DTYPE,    // a floating type, aliases folded
    RDI_KEY_WORD      // one of the key's words
} rdi_key_kind;

typedef struct rdi_key {
    const char *name;
    rdi_key_kind kind;
    const char *words; // RDI_KEY_WORD: space separated
    const char *meaning;
} rdi_key;

typedef struct rdi_query rdi_query;

// A key computed from given ones. Values must not fall when the op's interval key grows: plans find their cuts by
// bisection.
typedef struct rdi_derived {
    const char *name;
    const char *formula;
    bool (*value)(const rdi_query *query, int64_t *out); // false: a key it needs was not given
} rdi_derived;

enum { RDI_OP_KEYS = 24, RDI_WORD_BYTES = 24 };

typedef struct rdi_op {
    rd_op_info info;
    const rdi_key *keys[RDI_OP_KEYS];
    const rdi_derived *derived[RDI_OP_KEYS];
} rdi_op;

// The ops, their keys and derived keys (src/ops/op_table.c, from ops.def and keys.def).
const rdi_op *rdi_op_at(int32_t index); // NULL past the end
const rdi_op *rdi_op_find(const char *name);

typedef struct rdi_answer {
    const rdi_key *key;
    rd_dtype dtype;            // RDI_KEY_DTYPE, else RD_DTYPE_NONE
    int64_t i;                 // RDI_KEY_SIZE, RDI_KEY_FLAG
    char word[RDI_WORD_BYTES]; // RDI_KEY_DTYPE, RDI_KEY_WORD; "" for numbers
} rdi_answer;

struct rdi_query {
    const rdi_op *op;
    int32_t count;
    rdi_answer answers[RDI_OP_KEYS]; // in asked order
};

rd_status rdi_query_read(const char *op, const rd_param *params, int32_t count, rdi_query *out);
const rdi_answer *rdi_query_find(const rdi_query *query, const char *key); // NULL when not given
// Given or derived number; false when it cannot be known.
bool rdi_query_int(const rdi_query *query, const char *key, int64_t *out);
// Sets a size that may not be given yet (the interval key of a plan): first in order.
void rdi_query_bind(rdi_query *query, const char *key, int64_t value);

enum { RDI_QUERY_TEXT_BYTES = 1024 }; // every question fits: 24 keys of at most 16 + 1 + 16 bytes and a blank
// "m=1 n=7168 k=2048": asked order, or sorted by key so that the order of keys does not tell two questions apart.
void rdi_query_text(const rdi_query *query, char text[RDI_QUERY_TEXT_BYTES]);
void rdi_query_sorted_text(const rdi_query *query, char text[RDI_QUERY_TEXT_BYTES]);
// The same with `key` (which must be first) printed as the interval "key=lo..hi".
void rdi_query_interval_text(const rdi_query *query, int64_t lo, int64_t hi, char text[RDI_QUERY_TEXT_BYTES]);

// True when `word` is one of the space separated `words`.
bool rdi_words_contain(const char *words, const char *word);

#endif // RDI_QUERY_H
