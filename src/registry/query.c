// SPDX-License-Identifier: Apache-2.0
// Normalises questions. What other registries let through is refused here by name: silence about a misspelt key or a
// zero size turns into a wrong kernel much later.
#include "registry/query.h"

#include "base/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char FLOAT_TYPES[] = "fp32 bf16 fp16 fp8_e4m3 fp8_e5m2 e8m0";

bool rdi_words_contain(const char *words, const char *word) {
    size_t bytes = strlen(word);
    if (!bytes) return false;
    for (const char *at = words; *at;) {
        size_t span = strcspn(at, " ");
        if (span == bytes && !memcmp(at, word, bytes)) return true;
        at += span;
        at += strspn(at, " ");
    }
    return false;
}

// "m n k a_dtype": the names a user may choose from, for error texts.
static void key_names(const rdi_op *op, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = 0;
    for (int32_t i = 0; i < op->info.key_count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? " " : "", op->keys[i]->name);
}

// Keys are matched without regard to case: the same sizes are M, N, K in the literature and m, n, k in code.
static const rdi_key *find_key(const rdi_op *op, const char *name) {
    for (int32_t i = 0; i < op->info.key_count; i++)
        if (!strcasecmp(op->keys[i]->name, name)) return op->keys[i];
    return NULL;
}

static rd_status unknown_key(const rdi_op *op, const char *name) {
    char names[512];
    key_names(op, names, sizeof names);
    for (int32_t i = 0; i < op->info.derived_count; i++)
        if (!strcasecmp(op->derived[i]->name, name))
            return rdi_fail(RD_E_INVALID, "%s: %.40s is computed (%s), give one of: %s", op->info.name, name,
                            op->derived[i]->formula, names);
    return rdi_fail(RD_E_INVALID, "%s: unknown key %.40s, the op has: %s", op->info.name, name, names);
}

static rd_status read_number(const rdi_op *op, const rdi_key *key, const rd_param *param,
                             rdi_answer *answer) {
    int64_t least = key->kind == RDI_KEY_FLAG ? 0 : 1, most = key->kind == RDI_KEY_FLAG ? 1 : INT32_MAX;
    if (param->kind != RD_PARAM_INT)
        return rdi_fail(RD_E_INVALID, "%s: %s=\"%.40s\" is text, needs a whole number", op->info.name,
                        key->name, param->word ? param->word : "");
    if (param->i < least || param->i > most)
        return rdi_fail(RD_E_INVALID, "%s: %s=%lld, needs %lld to %lld", op->info.name, key->name,
                        (long long)param->i, (long long)least, (long long)most);
    answer->i = param->i;
    return RD_OK;
}

static rd_status read_word(const rdi_op *op, const rdi_key *key, const rd_param *param, rdi_answer *answer) {
    const char *known = key->kind == RDI_KEY_DTYPE ? FLOAT_TYPES : key->words;
    if (param->kind != RD_PARAM_WORD || !param->word)
        return rdi_fail(RD_E_INVALID, "%s: %s=%lld is a number, needs one of: %s", op->info.name, key->name,
                        (long long)param->i, known);
    const char *word = param->word;
    if (key->kind == RDI_KEY_DTYPE) {
        rd_dtype dtype;
        rd_status status = rdi_dtype_parse(key->name, word, &dtype);
        if (status != RD_OK) return rdi_fail_prefix(status, "%s", op->info.name);
        word = rd_dtype_name(dtype);
        answer->dtype = dtype;
    }
    if (!rdi_words_contain(known, word))
        return rdi_fail(RD_E_INVALID, "%s: %s=%.40s, needs one of: %s", op->info.name, key->name, param->word,
                        known);
    snprintf(answer->word, sizeof answer->word, "%s", word);
    return RD_OK;
}

static rd_status unknown_op(const char *op) {
    char names[512] = "";
    size_t used = 0;
    for (int32_t i = 0; rdi_op_at(i) && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? " " : "",
                                 rdi_op_at(i)->info.name);
    return rdi_fail(RD_E_INVALID, "unknown op %.40s, known: %s", op && *op ? op : "\"\"", names);
}

rd_status rdi_query_read(const char *op_name, const rd_param *params, int32_t count, rdi_query *out) {
    memset(out, 0, sizeof *out);
    out->op = op_name ? rdi_op_find(op_name) : NULL;
    if (!out->op) return unknown_op(op_name);
    if (count < 0 || (count > 0 && !params))
        return rdi_fail(RD_E_INVALID, "%s: params=%s with count=%d, needs a list", out->op->info.name,
                        params ? "given" : "NULL", count);
    for (int32_t i = 0; i < count; i++) {
        if (!params[i].key || !*params[i].key)
            return rdi_fail(RD_E_INVALID, "%s: params[%d] has no key", out->op->info.name, i);
        const rdi_key *key = find_key(out->op, params[i].key);
        if (!key) return unknown_key(out->op, params[i].key);
        if (rdi_query_find(out, key->name))
            return rdi_fail(RD_E_INVALID, "%s: %s is given twice", out->op->info.name, key->name);
        rdi_answer *answer = &out->answers[out->count];
        answer->key = key;
        if (key->kind == RDI_KEY_SIZE || key->kind == RDI_KEY_FLAG)
            RDI_TRY(read_number(out->op, key, &params[i], answer));
        else
            RDI_TRY(read_word(out->op, key, &params[i], answer));
        out->count++;
    }
    return RD_OK;
}

const rdi_answer *rdi_query_find(const rdi_query *query, const char *key) {
    for (int32_t i = 0; i < query->count; i++)
        if (!strcmp(query->answers[i].key->name, key)) return &query->answers[i];
    return NULL;
}

bool rdi_query_int(const rdi_query *query, const char *key, int64_t *out) {
    const rdi_answer *answer = rdi_query_find(query, key);
    if (answer) {
        *out = answer->i;
        return !answer->word[0];
    }
    for (int32_t i = 0; i < query->op->info.derived_count; i++)
        if (!strcmp(query->op->derived[i]->name, key)) return query->op->derived[i]->value(query, out);
    return false;
}

void rdi_query_bind(rdi_query *query, const char *key, int64_t value) {
    if (!query->count || strcmp(query->answers[0].key->name, key) != 0) {
        memmove(query->answers + 1, query->answers, (size_t)query->count * sizeof query->answers[0]);
        query->count++;
        query->answers[0] = (rdi_answer){.key = find_key(query->op, key)};
    }
    query->answers[0].i = value;
}

static int print_answer(const rdi_answer *answer, char *text, size_t bytes) {
    return answer->word[0] ? snprintf(text, bytes, "%s=%s", answer->key->name, answer->word)
                           : snprintf(text, bytes, "%s=%lld", answer->key->name, (long long)answer->i);
}

static void print_answers(const rdi_answer *answers, int32_t count, char *text, size_t bytes) {
    text[0] = 0;
    for (int32_t i = 0; i < count; i++) {
        size_t used = strlen(text);
        if (i && used + 1 < bytes) text[used++] = ' ';
        print_answer(&answers[i], text + used, bytes - used);
    }
}

void rdi_query_text(const rdi_query *query, char text[RDI_QUERY_TEXT_BYTES]) {
    print_answers(query->answers, query->count, text, RDI_QUERY_TEXT_BYTES);
}

void rdi_query_interval_text(const rdi_query *query, int64_t lo, int64_t hi,
                             char text[RDI_QUERY_TEXT_BYTES]) {
    int used = snprintf(text, RDI_QUERY_TEXT_BYTES, "%s=%lld..%lld%s", query->answers[0].key->name,
                        (long long)lo, (long long)hi, query->count > 1 ? " " : "");
    print_answers(query->answers + 1, query->count - 1, text + used, (size_t)(RDI_QUERY_TEXT_BYTES - used));
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const rdi_answer *)a)->key->name, ((const rdi_answer *)b)->key->name);
}

void rdi_query_sorted_text(const rdi_query *query, char text[RDI_QUERY_TEXT_BYTES]) {
    rdi_answer sorted[RDI_OP_KEYS];
    memcpy(sorted, query->answers, (size_t)query->count * sizeof sorted[0]);
    qsort(sorted, (size_t)query->count, sizeof sorted[0], by_key);
    print_answers(sorted, query->count, text, RDI_QUERY_TEXT_BYTES);
}
