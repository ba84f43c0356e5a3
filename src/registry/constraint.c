// SPDX-License-Identifier: Apache-2.0
// Walks a row's constraints in declaration order; the first that fails gives the reason that users quote.
#include "registry/decide.h"

#include <stdio.h>
#include <string.h>

static bool holds(const rd_constraint *constraint, int64_t value) {
    switch (constraint->op) {
    case RD_EQ:
        return value == constraint->value;
    case RD_LE:
        return value <= constraint->value;
    case RD_GE:
        return value >= constraint->value;
    case RD_MULTIPLE_OF:
        return constraint->value > 0 && value % constraint->value == 0;
    case RD_ONE_OF: {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)value);
        return rdi_words_contain(constraint->words, text);
    }
    }
    return false;
}

static void need_text(const rd_constraint *constraint, char *text, size_t bytes) {
    static const char *const phrases[] = {
        [RD_EQ] = "==", [RD_LE] = "<=", [RD_GE] = ">=", [RD_MULTIPLE_OF] = "a multiple of"};
    if (constraint->op == RD_ONE_OF)
        snprintf(text, bytes, "one of: %s", constraint->words);
    else
        snprintf(text, bytes, "%s %lld", phrases[constraint->op], (long long)constraint->value);
}

const rd_constraint *rdi_constraint_first_failure(const rdi_row *row, const rdi_query *query,
                                                  char reason[RDI_REASON_BYTES]) {
    reason[0] = 0;
    for (int32_t i = 0; i < row->info.constraint_count; i++) {
        const rd_constraint *constraint = &row->info.constraints[i];
        const rdi_answer *answer = rdi_query_find(query, constraint->key);
        char need[96];
        need_text(constraint, need, sizeof need);
        if (answer && answer->word[0]) {
            if (constraint->op == RD_ONE_OF && rdi_words_contain(constraint->words, answer->word)) continue;
            snprintf(reason, RDI_REASON_BYTES, "%s=%s, needs %s", constraint->key, answer->word, need);
            return constraint;
        }
        int64_t value;
        if (!rdi_query_int(query, constraint->key, &value)) {
            snprintf(reason, RDI_REASON_BYTES, "%s not given", constraint->key);
            return constraint;
        }
        if (holds(constraint, value)) continue;
        snprintf(reason, RDI_REASON_BYTES, "%s=%lld, needs %s", constraint->key, (long long)value, need);
        return constraint;
    }
    return NULL;
}
