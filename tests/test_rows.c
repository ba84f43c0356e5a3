// SPDX-License-Identifier: Apache-2.0
// labels: threads
// The built table and the op table are sound: what every row must keep to, whoever adds it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ops/ctx.h"

static int count_words(const char *words) {
    int count = 0;
    for (const char *at = words; *at; count++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return count;
}

static void test_ops_resolve_all_their_keys(void **state) {
    (void)state;
    const struct {
        const char *name, *interval_key, *keys, *derived;
    } sources[] = {
#define RD_OP(name_, interval_key_, keys_, derived_, computes_) {name_, interval_key_, keys_, derived_},
#include "ops/ops.def"
#undef RD_OP
    };
    for (size_t i = 0; i < RDI_COUNT(sources); i++) {
        const rd_op_info *op = rd_op_find(sources[i].name);
        assert_ptr_equal(op, rd_op_at((int32_t)i));
        assert_int_equal(op->key_count, count_words(sources[i].keys));
        assert_int_equal(op->derived_count, count_words(sources[i].derived));
        if (op->interval_key) assert_true(rdi_words_contain(sources[i].keys, op->interval_key));
    }
    assert_null(rd_op_at((int32_t)RDI_COUNT(sources)));
    assert_null(rd_op_at(-1));
    assert_null(rd_op_find("gemm"));
    assert_null(rd_op_find(NULL));
}

static void check_name(const rd_kernel_info *kernel) {
    // The name begins with its op, and with no longer op's name: gemm_fp8block_w8a16_x is not a row of gemm_fp8block.
    size_t op_length = 0;
    const rd_op_info *longest = NULL, *op;
    for (int32_t i = 0; (op = rd_op_at(i)) != NULL; i++) {
        size_t length = strlen(op->name);
        if (strncmp(kernel->name, op->name, length) || kernel->name[length] != '_' || length < op_length)
            continue;
        longest = op;
        op_length = length;
    }
    if (!longest || strcmp(longest->name, kernel->op))
        fail_msg("%s: does not begin with its op %s", kernel->name, kernel->op);
    for (const char *at = kernel->name; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_", *at)) fail_msg("%s: has %c", kernel->name, *at);
}

static const rdi_key *key_of(const rdi_op *op, const char *name) {
    for (int32_t i = 0; i < op->info.key_count; i++)
        if (!strcmp(op->keys[i]->name, name)) return op->keys[i];
    return NULL;
}

static void check_words(const rd_kernel_info *kernel, const rdi_key *key, const rd_constraint *constraint) {
    for (const char *at = constraint->words; *at; at += strspn(at, " ")) {
        char word[32];
        size_t span = strcspn(at, " ");
        assert_true(span > 0 && span < sizeof word);
        snprintf(word, sizeof word, "%.*s", (int)span, at);
        const char *known = key->kind == RDI_KEY_WORD ? key->words : "fp32 bf16 fp16 fp8_e4m3 fp8_e5m2 e8m0";
        if (key->kind != RDI_KEY_SIZE && !rdi_words_contain(known, word))
            fail_msg("%s: %s needs %s, which no question can hold", kernel->name, key->name, word);
        at += span;
    }
}

static void check_constraint(const rd_kernel_info *kernel, const rd_constraint *constraint) {
    const rdi_op *op = rdi_op_find(kernel->op);
    const rdi_key *key = key_of(op, constraint->key);
    bool is_derived = false;
    for (int32_t i = 0; i < op->info.derived_count; i++)
        is_derived |= !strcmp(op->derived[i]->name, constraint->key);
    if (!key && !is_derived) fail_msg("%s: %s has no key %s", kernel->name, kernel->op, constraint->key);
    if (!constraint->text || !*constraint->text || strlen(constraint->text) >= 60)
        fail_msg("%s: %s: the reason text needs 1 to 59 characters", kernel->name, constraint->key);
    bool numeric = is_derived || key->kind == RDI_KEY_SIZE || key->kind == RDI_KEY_FLAG;
    if (constraint->op == RD_ONE_OF) {
        assert_true(constraint->words && *constraint->words);
        if (key) check_words(kernel, key, constraint);
    } else if (!numeric) {
        fail_msg("%s: %s is a word, its constraint a number", kernel->name, constraint->key);
    }
    if (constraint->op == RD_MULTIPLE_OF) assert_true(constraint->value > 0);
    // Plans cut intervals at thresholds only: kernels own their tails.
    bool on_interval = op->info.interval_key && (!strcmp(constraint->key, op->info.interval_key) ||
                                                 (is_derived && !strcmp(constraint->key, "rows")));
    if (on_interval && (constraint->op == RD_MULTIPLE_OF || constraint->op == RD_ONE_OF))
        fail_msg("%s: %s must not be a multiple or a list", kernel->name, constraint->key);
}

static void test_registry_rows_are_sound(void **state) {
    (void)state;
    assert_true(rdi_row_count > 0);
    for (int32_t i = 0; i < rdi_row_count; i++) {
        const rdi_row *row = &rdi_rows[i];
        const rd_kernel_info *kernel = &row->info;
        assert_ptr_equal(rd_kernel_at(i), kernel);
        assert_ptr_equal(rd_kernel_find(kernel->name), kernel); // so names are unique
        assert_non_null(rd_op_find(kernel->op));
        check_name(kernel);
        assert_true(kernel->constraint_count >= 1 && *kernel->computes && *kernel->order);
        for (int32_t j = 0; j < kernel->constraint_count; j++)
            check_constraint(kernel, &kernel->constraints[j]);
        assert_int_equal(row->run != NULL, row->backend == RDI_BACKEND_CPU);
        assert_int_equal(row->geometry != NULL, row->backend != RDI_BACKEND_CPU);
        assert_int_equal(row->image != NULL, row->backend != RDI_BACKEND_CPU);
        assert_int_equal(row->backend == RDI_BACKEND_CPU, !strcmp(kernel->backend, "cpu"));
        assert_string_equal(kernel->isa, RDI_ISA_TEXT(row->isa));
    }
    assert_null(rd_kernel_at(rdi_row_count));
    assert_null(rd_kernel_at(-1));
    assert_null(rd_kernel_find("gemm"));
    assert_null(rd_kernel_find(NULL));
}

static void test_registry_has_one_reference_last_in_each_op(void **state) {
    (void)state;
    const rd_op_info *op;
    for (int32_t i = 0; (op = rd_op_at(i)) != NULL; i++) {
        int references = 0, rows_of_op = 0;
        const rdi_row *last = NULL;
        for (int32_t j = 0; j < rdi_row_count; j++) {
            if (strcmp(rdi_rows[j].info.op, op->name)) continue;
            rows_of_op++;
            references += rdi_rows[j].info.is_reference;
            if (rdi_rows[j].backend == RDI_BACKEND_CPU) last = &rdi_rows[j];
        }
        assert_true(rows_of_op <= RDI_OP_ROWS);
        if (references != 1 || !last || !last->info.is_reference || last->isa)
            fail_msg("%s: %d references, needs one, last and without an instruction set", op->name,
                     references);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_resolve_all_their_keys),
        cmocka_unit_test(test_registry_rows_are_sound),
        cmocka_unit_test(test_registry_has_one_reference_last_in_each_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
