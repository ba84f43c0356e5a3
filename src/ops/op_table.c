// SPDX-License-Identifier: Apache-2.0
// The op table, built once from ops.def and keys.def into static storage: no allocation, so it cannot fail.
#include "registry/query.h"

#include <pthread.h>
#include <string.h>

#define RD_KEY(name_, kind_, words_, meaning_) {#name_, RDI_KEY_##kind_, words_, meaning_},
static const rdi_key keys[] = {
#include "ops/keys.def"
};

static bool derive_k_blocks(const rdi_query *query, int64_t *out) {
    if (!rdi_query_int(query, "k", out)) return false;
    *out = rdi_ceil_div(*out, 128); // the scale block of the block-FP8 format
    return true;
}
static bool derive_n_blocks(const rdi_query *query, int64_t *out) {
    if (!rdi_query_int(query, "n", out)) return false;
    *out = rdi_ceil_div(*out, 128);
    return true;
}
static bool derive_rows(const rdi_query *query, int64_t *out) {
    int64_t gqa;
    if (!rdi_query_int(query, "q_len", out) || !rdi_query_int(query, "gqa", &gqa)) return false;
    *out *= gqa; // both below 2^31
    return true;
}
static const rdi_derived derived[] = {
    {"k_blocks", "ceil(k / 128)", derive_k_blocks},
    {"n_blocks", "ceil(n / 128)", derive_n_blocks},
    {"rows", "q_len * gqa", derive_rows},
};

typedef struct op_source {
    const char *name, *interval_key, *keys, *derived, *computes;
} op_source;
#define RD_OP(name_, interval_key_, keys_, derived_, computes_)                                              \
    {name_, interval_key_, keys_, derived_, computes_},
static const op_source sources[] = {
#include "ops/ops.def"
};

static rdi_op ops[RDI_COUNT(sources)];
static const char *key_names[RDI_COUNT(sources)][RDI_OP_KEYS];
static const char *derived_names[RDI_COUNT(sources)][RDI_OP_KEYS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool named(const char *name, const char *text, size_t bytes) {
    return strlen(name) == bytes && !memcmp(name, text, bytes);
}

// A name in ops.def without its row in keys.def is left out here and found by test_registry (key count).
static void add_key(rdi_op *op, const char **names, const char *text, size_t bytes) {
    for (size_t i = 0; i < RDI_COUNT(keys) && op->info.key_count < RDI_OP_KEYS; i++) {
        if (!named(keys[i].name, text, bytes)) continue;
        names[op->info.key_count] = keys[i].name;
        op->keys[op->info.key_count++] = &keys[i];
    }
}
static void add_derived(rdi_op *op, const char **names, const char *text, size_t bytes) {
    for (size_t i = 0; i < RDI_COUNT(derived) && op->info.derived_count < RDI_OP_KEYS; i++) {
        if (!named(derived[i].name, text, bytes)) continue;
        names[op->info.derived_count] = derived[i].name;
        op->derived[op->info.derived_count++] = &derived[i];
    }
}

static void each_word(const char *words, rdi_op *op, const char **names,
                      void (*add)(rdi_op *op, const char **names, const char *text, size_t bytes)) {
    for (const char *at = words; *at;) {
        size_t span = strcspn(at, " ");
        if (span) add(op, names, at, span);
        at += span;
        at += strspn(at, " ");
    }
}

static void build(void) {
    for (size_t i = 0; i < RDI_COUNT(sources); i++) {
        rdi_op *op = &ops[i];
        op->info.name = sources[i].name;
        op->info.computes = sources[i].computes;
        op->info.interval_key = sources[i].interval_key;
        each_word(sources[i].keys, op, key_names[i], add_key);
        each_word(sources[i].derived, op, derived_names[i], add_derived);
        op->info.keys = key_names[i];
        op->info.derived = derived_names[i];
    }
}

const rdi_op *rdi_op_at(int32_t index) {
    pthread_once(&once, build);
    return index >= 0 && (size_t)index < RDI_COUNT(ops) ? &ops[index] : NULL;
}

const rdi_op *rdi_op_find(const char *name) {
    for (int32_t i = 0; rdi_op_at(i); i++)
        if (!strcmp(rdi_op_at(i)->info.name, name)) return rdi_op_at(i);
    return NULL;
}

const rd_op_info *rd_op_at(int32_t index) {
    const rdi_op *op = rdi_op_at(index);
    return op ? &op->info : NULL;
}

const rd_op_info *rd_op_find(const char *name) {
    const rdi_op *op = name ? rdi_op_find(name) : NULL;
    return op ? &op->info : NULL;
}
