// SPDX-License-Identifier: Apache-2.0
// labels: threads
// The ground floor: error text, counted allocation, arena, environment, fork-join.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // setenv
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/base.h"
#include "base/isa.h"
#include "base/par.h"

// ---- status ----------------------------------------------------------------------------------------------------------------
static void test_status_names(void **state) {
    (void)state;
    for (int i = RD_OK; i <= RD_E_CANCELLED; i++) {
        assert_string_not_equal(rd_status_name((rd_status)i), "unknown status");
        for (int j = RD_OK; j < i; j++)
            assert_string_not_equal(rd_status_name((rd_status)i), rd_status_name((rd_status)j));
    }
    assert_string_equal(rd_status_name((rd_status)(RD_E_CANCELLED + 1)), "unknown status");
    assert_string_equal(rd_status_name((rd_status)-1), "unknown status");
}

static void test_fail_takes_its_own_text_as_argument(void **state) {
    (void)state;
    assert_int_equal(rdi_fail(RD_E_INVALID, "k=%d, needs a multiple of %d", 2000, 128), RD_E_INVALID);
    assert_int_equal(rdi_fail(RD_E_FORMAT, "again: %s", rd_error_text()), RD_E_FORMAT);
    assert_string_equal(rd_error_text(), "again: k=2000, needs a multiple of 128");
    assert_int_equal(rdi_fail_prefix(RD_E_IO, "file %s", "x"), RD_E_IO);
    assert_string_equal(rd_error_text(), "file x: again: k=2000, needs a multiple of 128");
}

static void test_fail_cuts_long_text(void **state) {
    (void)state;
    char text[4000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    rdi_fail(RD_E_INVALID, "%s", text);
    assert_int_equal(strlen(rd_error_text()), 1023);
    rdi_fail_prefix(RD_E_INVALID, "%s", text);
    assert_int_equal(strlen(rd_error_text()), 1023);
}

static void *fail_elsewhere(void *arg) {
    (void)arg;
    assert_string_equal(rd_error_text(), "");
    rdi_fail(RD_E_IO, "of the other thread");
    return NULL;
}
static void test_error_text_is_per_thread(void **state) {
    (void)state;
    rdi_fail(RD_E_INVALID, "of this thread");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(rd_error_text(), "of this thread");
}

// ---- memory ----------------------------------------------------------------------------------------------------------------
static void test_alloc_is_aligned_and_checked(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes < 200; bytes += 7) {
        unsigned char *block = rdi_calloc(1, bytes);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(block[i], 0);
        rdi_free(block);
    }
    assert_null(rdi_alloc(SIZE_MAX));
    assert_non_null(strstr(rd_error_text(), "allocation of"));
    assert_null(rdi_calloc(SIZE_MAX / 4, 8));
    assert_non_null(strstr(rd_error_text(), "overflows"));
    char *text = rdi_strdup("abc");
    text = rdi_realloc(text, 4, 1000);
    assert_string_equal(text, "abc");
    rdi_free(text);
    text = rdi_format("%s=%d", "k", 128);
    assert_string_equal(text, "k=128");
    rdi_free(text);
}

static void test_alloc_fault_hits_the_nth(void **state) {
    (void)state;
    rdi_alloc_fail_at(3);
    void *blocks[4];
    for (int i = 0; i < 4; i++) blocks[i] = rdi_alloc(10);
    int64_t counted = rdi_alloc_count();
    rdi_alloc_fail_at(0);
    bool faults_built = counted != 0;
    assert_int_equal(counted, faults_built ? 4 : 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(blocks[i] == NULL, faults_built && i == 2);
        rdi_free(blocks[i]);
    }
}

static void test_arena_blocks(void **state) {
    (void)state;
    rdi_arena arena = {.head = NULL};
    unsigned char *all[300];
    for (int i = 0; i < 300; i++) {
        size_t bytes = i == 150 ? 200000 : (size_t)(i * 7 + 1); // one larger than a block
        all[i] = rdi_arena_alloc(&arena, bytes);
        assert_non_null(all[i]);
        assert_int_equal((uintptr_t)all[i] % 16, 0);
        for (size_t at = 0; at < bytes; at++) assert_int_equal(all[i][at], 0);
        memset(all[i], i & 0xff, bytes);
    }
    for (int i = 0; i < 300; i++) { // no two overlap
        size_t bytes = i == 150 ? 200000 : (size_t)(i * 7 + 1);
        for (size_t at = 0; at < bytes; at++) assert_int_equal(all[i][at], i & 0xff);
    }
    assert_string_equal(rdi_arena_strndup(&arena, "abcdef", 3), "abc");
    assert_null(rdi_arena_alloc(&arena, SIZE_MAX - 8));
    rdi_arena_free(&arena);
    assert_null(arena.head);
    rdi_arena_free(&arena);
}

// ---- environment ---------------------------------------------------------------------------------------------------------------
static void test_env_is_read_once_and_checked(void **state) {
    (void)state; // main set RADIANCE_THREADS=abc
    int64_t threads;
    assert_int_equal(rdi_env_int("RADIANCE_THREADS", 0, 4096, &threads), RD_E_INVALID);
    assert_string_equal(rd_error_text(), "RADIANCE_THREADS=abc, needs a whole number from 0 to 4096");
    setenv("RADIANCE_THREADS", "2", 1);
    assert_string_equal(rdi_env_text("RADIANCE_THREADS"), "abc");
    assert_null(rdi_env_text("PATH")); // not in the table, so not read
    assert_int_equal(rdi_env_int("PATH", 0, 1, &threads), RD_E_INTERNAL);
    rd_env_info info;
    int count = 0;
    while (rd_env_at(count, &info)) {
        assert_non_null(info.value);
        assert_true(strlen(info.meaning) > 10);
        count++;
    }
    assert_true(count >= 5);
    assert_false(rd_env_at(-1, &info));
    // A context needs the number, so the bad value ends there.
    rd_ctx *ctx = NULL;
    assert_int_equal(rd_ctx_create(NULL, &ctx), RD_E_INVALID);
    assert_null(ctx);
}

// ---- fork-join -------------------------------------------------------------------------------------------------------------------
typedef struct tally {
    rdi_tiles tiles;
    _Atomic int64_t sum, calls, nested;
    rdi_par *par;
} tally;

static void nested_body(void *arg, int32_t worker, int32_t workers) {
    tally *t = arg;
    if (worker == 0 && workers == 1) atomic_fetch_add(&t->nested, 1);
}

static void tally_body(void *arg, int32_t worker, int32_t workers) {
    tally *t = arg;
    int64_t begin, end;
    if (worker >= 0 && worker < workers) atomic_fetch_add(&t->calls, 1);
    while (rdi_tiles_next(&t->tiles, &begin, &end))
        for (int64_t i = begin; i < end; i++) atomic_fetch_add(&t->sum, i);
    rdi_par_run(t->par, 4, nested_body, t);
}

static void run_tally(rdi_par *par, int32_t expected_workers) {
    tally t = {.par = par};
    rdi_tiles_init(&t.tiles, 1003, 10);
    rdi_par_run(par, 8, tally_body, &t);
    assert_int_equal(t.sum, 1003 * 1002 / 2);
    assert_int_equal(t.calls, expected_workers);
    assert_int_equal(t.nested, expected_workers); // a nested run stays on its worker
}

static void *run_from_another_thread(void *par) {
    for (int i = 0; i < 20; i++) run_tally(par, 3);
    return NULL;
}

static void test_par_own_pool(void **state) {
    (void)state;
    rdi_par *par = NULL;
    assert_int_equal(rdi_par_create(0, NULL, NULL, &par), RD_E_INVALID);
    assert_string_equal(rd_error_text(), "threads=0, needs >= 1");
    for (int32_t threads = 1; threads <= 4; threads++) {
        assert_int_equal(rdi_par_create(threads, NULL, NULL, &par), RD_OK);
        assert_int_equal(rdi_par_threads(par), threads);
        run_tally(par, threads);
        rdi_par_free(par);
    }
    run_tally(NULL, 1);
    // Two threads on one pool take turns.
    assert_int_equal(rdi_par_create(3, NULL, NULL, &par), RD_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_from_another_thread, par), 0);
    run_from_another_thread(par);
    pthread_join(thread, NULL);
    rdi_par_free(par);
}

typedef struct host {
    int64_t asked;
    int32_t calls;
} host;
// The worst host that the contract allows: one after the other, from the last to the first.
static void host_backwards(void *state, int64_t n, void (*body)(void *arg, int64_t i), void *arg) {
    host *h = state;
    h->asked = n;
    h->calls++;
    while (n--) body(arg, n);
}
typedef struct host_item {
    void (*body)(void *arg, int64_t i);
    void *arg;
    int64_t i;
} host_item;
static void *host_thread(void *arg) {
    host_item *item = arg;
    item->body(item->arg, item->i);
    return NULL;
}
static void host_threads(void *state, int64_t n, void (*body)(void *arg, int64_t i), void *arg) {
    pthread_t threads[16];
    host_item items[16];
    ((host *)state)->calls++;
    for (int64_t i = 0; i < n; i++) {
        items[i] = (host_item){body, arg, i};
        assert_int_equal(pthread_create(&threads[i], NULL, host_thread, &items[i]), 0);
    }
    for (int64_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static void test_par_host_parallel_for(void **state) {
    (void)state;
    const rd_parallel_for_fn hosts[] = {host_backwards, host_threads};
    for (int i = 0; i < 2; i++) {
        host h = {0, 0};
        rdi_par *par = NULL;
        assert_int_equal(rdi_par_create(3, hosts[i], &h, &par), RD_OK);
        run_tally(par, 3);
        assert_int_equal(h.calls, 1); // nested runs do not go back to the host
        rdi_par_free(par);
    }
}

static void test_isa_words(void **state) {
    (void)state;
    assert_string_equal(RDI_ISA_TEXT(0), "");
    assert_string_equal(RDI_ISA_TEXT(RDI_ISA_AVX2), "avx2");
    assert_string_equal(RDI_ISA_TEXT(RDI_ISA_AVX2 | RDI_ISA_AVX512 | RDI_ISA_AVX512BF16),
                        "avx2 avx512 avx512bf16");
    assert_string_equal(RDI_ISA_TEXT(RDI_ISA_CPU_MASK), "avx2 avx512 avx512vbmi avx512bf16 avx512vnni");
    assert_string_equal(RDI_ISA_TEXT(RDI_ISA_GFX1201), "gfx1201");
    assert_string_equal(RDI_ISA_TEXT(RDI_ISA_SM90A), "sm_90a");
}

int main(void) {
    setenv("RADIANCE_THREADS", "abc", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_fail_takes_its_own_text_as_argument),
        cmocka_unit_test(test_fail_cuts_long_text),
        cmocka_unit_test(test_error_text_is_per_thread),
        cmocka_unit_test(test_alloc_is_aligned_and_checked),
        cmocka_unit_test(test_alloc_fault_hits_the_nth),
        cmocka_unit_test(test_arena_blocks),
        cmocka_unit_test(test_env_is_read_once_and_checked),
        cmocka_unit_test(test_par_own_pool),
        cmocka_unit_test(test_par_host_parallel_for),
        cmocka_unit_test(test_isa_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
