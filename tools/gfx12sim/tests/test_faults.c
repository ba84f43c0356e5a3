// SPDX-License-Identifier: Apache-2.0
// Planted bugs in kernels of several waves and groups: each is caught by the check that is meant for it, the report
// names kernel, work-group, wave, lane and line, and the repaired twin passes all checks under 20 schedules.
#include "snippet.h"
#include "mutants.h"
#include <stdlib.h>
#include <string.h>

enum { RACE_OR_UNINIT = 100, BUFFER_BYTES = 4096, SEEDS = 20, STEPS = 20000, PROLOGUE = 6 };
#define GS_CHECK_RACE_LDS_OR_UNINIT RACE_OR_UNINIT // whether the reader comes first depends on the schedule
static const struct fault {
    const char *bad, *good;
    int check;
    const char *line;
    int wave, lane, block, groups;
} faults[] = {
#define FAULT(bad, good, check, ...) {bad, good, GS_CHECK_##check, __VA_ARGS__},
#include "faults.def"
};
enum { FAULTS = sizeof faults / sizeof *faults };

static char *with_prologue(const char *body) {
    static const char head[] =
        "s_load_b128 s[4:7], s[0:1], 0x0\nv_and_b32 v0, 0x3ff, v0\ns_bfe_u32 s10, ttmp8, "
        "0x50019\ns_mov_b32 s11, ttmp9\ns_wait_kmcnt 0\nv_lshlrev_b32 v1, 2, v0\n";
    char *text = malloc(sizeof head + strlen(body) + 1);
    assert_non_null(text);
    sprintf(text, "%s%s", head, body);
    return text;
}

typedef struct bench {
    gs_mem *mem;
    gs_module *module;
    void *buffers[2];
    char names[2 * FAULTS][24];
} bench;

static void open_bench(bench *b) {
    static kernel_text kernels[2 * FAULTS];
    for (int i = 0; i < 2 * FAULTS; i++) {
        snprintf(b->names[i], sizeof b->names[i], "%s%d", i % 2 ? "good" : "bad", i / 2);
        const struct fault *f = &faults[i / 2];
        kernels[i] = (kernel_text){b->names[i], with_prologue(i % 2 ? f->good : f->bad), 16, 4096, 16, 64};
    }
    size_t bytes;
    gs_error e;
    void *image = assemble_kernels(kernels, 2 * FAULTS, &bytes);
    assert_int_equal(gs_mem_create(&b->mem), GS_OK);
    if (gs_module_load(b->mem, image, bytes, &b->module, &e)) fail_msg("%s", e.message);
    for (int i = 0; i < 2; i++) assert_int_equal(gs_mem_alloc(b->mem, BUFFER_BYTES, &b->buffers[i]), GS_OK);
    for (int i = 0; i < 2 * FAULTS; i++) free((void *)(uintptr_t)kernels[i].body);
    free(image);
}

static gs_status run_one(bench *b, int kernel, uint64_t seed, gs_error *e) {
    const struct fault *f = &faults[kernel / 2];
    gs_launch l;
    memset(b->buffers[0], 0, BUFFER_BYTES), memset(b->buffers[1], 0, BUFFER_BYTES);
    memset(e, 0, sizeof *e);
    gs_launch_init(&l, gs_module_kernel(b->module, b->names[kernel]));
    l.block[0] = (uint32_t)f->block, l.grid[0] = (uint32_t)f->groups;
    l.kernarg = b->buffers, l.kernarg_bytes = sizeof b->buffers;
    l.threads = 1, l.schedule_seed = seed, l.max_wave_steps = STEPS;
    return gs_launch_run(b->mem, &l, e);
}

static bool caught(const bench *b, int i, const gs_error *e) {
    const struct fault *f = &faults[i];
    bool kind = f->check == RACE_OR_UNINIT ? e->check == GS_CHECK_RACE_LDS || e->check == GS_CHECK_UNINIT_LDS
                                           : (int)e->check == f->check;
    bool group = e->group[0] < (uint32_t)f->groups && !e->group[1] && !e->group[2];
    if (strstr(f->bad, "s_cmp_eq_u32 s11, 2")) group &= e->group[0] == 2;
    bool needs_address = e->check == GS_CHECK_OUT_OF_BOUNDS || e->check == GS_CHECK_RACE_GLOBAL;
    return kind && group && strcmp(e->kernel, b->names[2 * i]) == 0 && strstr(e->line, f->line) && e->pc &&
           (f->wave < 0 || (int)e->wave == f->wave) && (f->lane == -2 || e->lane == f->lane) &&
           e->message[0] && (!needs_address || e->address);
}

static void test_planted_bugs(void **state) {
    (void)state;
    static bench b;
    gs_error e;
    size_t failed = 0;
    char text[2048];
    bool seen[GS_CHECK_COUNT] = {0};
    open_bench(&b);
    for (int i = 0; i < FAULTS; i++) {
        gs_status status = run_one(&b, 2 * i, 0, &e);
        if (status == GS_E_CHECK && caught(&b, i, &e))
            seen[e.check] = true;
        else {
            gs_error_format(&e, text, sizeof text);
            failed++, print_error("planted bug %d not caught as told:\n%s\n-> %s\n", i, faults[i].bad, text);
        }
        for (uint64_t seed = 0; seed < SEEDS; seed++)
            if (run_one(&b, 2 * i + 1, seed, &e)) {
                gs_error_format(&e, text, sizeof text);
                failed++, print_error("repaired kernel %d, schedule %d:\n%s\n-> %s\n", i, (int)seed,
                                      faults[i].good, text);
                break;
            }
    }
    for (int c = 1; c < GS_CHECK_COUNT; c++)
        if (!seen[c]) failed++, print_error("no planted bug for check %s\n", gs_check_name((gs_check)c));
    gs_module_free(b.module);
    gs_mem_destroy(b.mem);
    assert_int_equal(failed, 0);
}

// A wait or a barrier that a repaired kernel needs is left out: some check must speak, for every such instruction.
static void test_every_wait_matters(void **state) {
    (void)state;
    static bench b;
    gs_error e;
    size_t missed = 0;
    open_bench(&b);
    for (size_t row = 0; row < gs_row_count(); row++) {
        const char *name = gs_row_mnemonic(row);
        bool caught = strcmp(name, "s_endpgm") == 0; // without it a kernel runs into the next one's code
        if (gs_row_effect(row) != GS_EFFECT_ORDER) continue;
        for (int i = 0; i < FAULTS && !caught; i++) {
            u32 first, last;
            mutants_body(b.module, gs_module_kernel(b.module, b.names[2 * i + 1]), PROLOGUE, 0, &first,
                         &last);
            if (mutants_set(b.module, first, last, name, LEAVE_OUT))
                caught = run_one(&b, 2 * i + 1, 0, &e) == GS_E_CHECK;
            mutants_clear(b.module, first, last);
        }
        if (!caught) missed++, print_error("no kernel needs its %s\n", name);
    }
    gs_module_free(b.module);
    gs_mem_destroy(b.mem);
    assert_int_equal(missed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted_bugs),
                                       cmocka_unit_test(test_every_wait_matters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
