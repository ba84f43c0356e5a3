// SPDX-License-Identifier: Apache-2.0
// Every check against a kernel with one planted bug (caught, and the report names the place) and the same kernel
// without it (passes with all checks on). Then schedules: a race-free kernel gives the same bits under every seed.
#include "snippet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, BUFFER_BYTES = 4096, STEPS = 20000 };
#define ZERO_4_TO_19 ".irp i,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19\nv_mov_b32 v\\i, 0\n.endr\n"
static const struct {
    const char *bad, *good;
    gs_check check;
    int address;
} cases[] = {
#define BUG(bad, good, check, address) {bad, good, GS_CHECK_##check, address},
#include "checks.def"
};
enum { CASES = sizeof cases / sizeof *cases };

static const char before[] = "s_load_b64 s[4:5], s[0:1], 0x0\ns_wait_kmcnt 0x0\nv_lshlrev_b32 v1, 2, "
                             "v0\nv_lshlrev_b32 v2, 4, v0\ns_lshr_b32 s8, ttmp8, 25\ns_and_b32 s8, s8, 31\n";

static gs_module *load(gs_mem *mem, const kernel_text *kernels, size_t count) {
    size_t bytes;
    void *image = assemble_kernels(kernels, count, &bytes);
    gs_module *module = NULL;
    gs_error error;
    if (gs_module_load(mem, image, bytes, &module, &error)) fail_msg("%s", error.message);
    free(image);
    return module;
}

static gs_module *load_cases(gs_mem *mem) { // kernel 2c is case c's bug, 2c + 1 the same without it
    static char names[2 * CASES][16];
    kernel_text kernels[2 * CASES];
    for (size_t i = 0; i < 2 * CASES; i++) {
        const char *text = i % 2 ? cases[i / 2].good : cases[i / 2].bad;
        char *body = malloc(sizeof before + strlen(text) + 16);
        assert_non_null(body);
        sprintf(body, "%s%s\ns_endpgm", before, text);
        snprintf(names[i], sizeof names[i], "%s%zu", i % 2 ? "good" : "bad", i / 2);
        kernels[i] = (kernel_text){names[i], body, 8, 256, 64, BLOCK};
    }
    gs_module *module = load(mem, kernels, 2 * CASES);
    for (size_t i = 0; i < 2 * CASES; i++) free((void *)(uintptr_t)kernels[i].body);
    return module;
}

static gs_status launch(gs_mem *mem, const gs_module *module, const char *name, void *buffer, uint32_t checks,
                        gs_error *error) {
    const void *kernarg[1] = {buffer};
    gs_launch l;
    const gs_kernel *kernel = gs_module_kernel(module, name);
    assert_non_null(kernel);
    gs_launch_init(&l, kernel);
    l.block[0] = BLOCK;
    l.kernarg = kernarg, l.kernarg_bytes = sizeof kernarg;
    l.threads = 1, l.max_wave_steps = STEPS, l.checks = checks;
    memset(error, 0, sizeof *error);
    return gs_launch_run(mem, &l, error);
}

static void caught(const char *name, const gs_error *e, gs_status status, size_t c, const char *buffer) {
    if (status != GS_E_CHECK || e->check != cases[c].check)
        fail_msg("%s: wanted %s, got %s: %s\n%s", name, gs_check_name(cases[c].check),
                 gs_check_name(e->check), e->message, cases[c].bad);
    assert_string_equal(e->kernel, name);
    assert_true(e->wave < BLOCK / 32);
    assert_true(e->lane >= -1 && e->lane < 32);
    assert_true(e->line[0] && e->message[0] && e->pc);
    char name_of[64] = {0};
    sscanf(e->line, "%63s", name_of);
    char *form = strstr(name_of, "_e32"); // the assembler's input names no encoding
    if (!form) form = strstr(name_of, "_e64");
    if (form) *form = 0;
    if (!strstr(cases[c].bad, name_of))
        fail_msg("%s reports the line %s, which is not in\n%s", name, e->line, cases[c].bad);
    if (cases[c].address != -1)
        assert_true(e->address == (uint64_t)(uintptr_t)buffer + (uint64_t)(int64_t)cases[c].address);
}

static void every_planted_bug_is_caught(void **state) {
    (void)state;
    gs_mem *mem;
    void *buffer;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, BUFFER_BYTES, &buffer), GS_OK);
    gs_module *module = load_cases(mem);
    bool seen[GS_CHECK_COUNT] = {false};
    for (size_t c = 0; c < CASES; c++) {
        char bad[16], good[16];
        gs_error error;
        snprintf(bad, sizeof bad, "bad%zu", c), snprintf(good, sizeof good, "good%zu", c);
        caught(bad, &error, launch(mem, module, bad, buffer, GS_CHECKS_ALL, &error), c, buffer);
        if (launch(mem, module, good, buffer, GS_CHECKS_ALL, &error))
            fail_msg("%s: %s: %s\n%s", good, gs_check_name(error.check), error.message, cases[c].good);
        // Switched off, the check is silent; the first four cannot be.
        gs_status off = launch(mem, module, bad, buffer, GS_CHECKS_ALL & ~(1u << cases[c].check), &error);
        if (cases[c].check <= GS_CHECK_HANG)
            assert_int_equal(off, GS_E_CHECK);
        else
            assert_int_not_equal(error.check, cases[c].check);
        seen[cases[c].check] = true;
    }
    for (int check = GS_CHECK_NONE + 1; check < GS_CHECK_COUNT; check++) assert_true(seen[check]);
    gs_module_free(module);
    gs_mem_destroy(mem);
}

// ---- schedules ----------------------------------------------------------------------------------------------
enum { GROUPS = 3, ITEMS = 256, ROUNDS = 8, SEEDS = 20, OUT_WORDS = GROUPS * ITEMS };
// Eight rounds of x = 5 x + x of the work-item 32 further on, exchanged through LDS; then out[id] = x and sum += x.
static const char exchange[] =
    "s_load_b64 s[4:5], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\nv_add_nc_u32 v2, 0x80, v1\nv_and_b32 v2, "
    "0x3fc, v2\ns_lshl_b32 s6, ttmp9, 8\nv_add_nc_u32 v3, s6, v0\n"
    "s_mov_b32 s7, 8\n1:\nds_store_b32 v1, v3\ns_wait_dscnt 0x0\ns_barrier_signal -1\ns_barrier_wait "
    "-1\nds_load_b32 v4, v2\nv_mul_lo_u32 v3, v3, 5\ns_wait_dscnt 0x0\nv_add_nc_u32 v3, v3, v4\n"
    "s_barrier_signal -1\ns_barrier_wait -1\ns_sub_co_u32 s7, s7, 1\ns_cmp_lg_u32 s7, 0\ns_cbranch_scc1 1b\n"
    "s_wait_kmcnt 0x0\nv_add_nc_u32 v5, s6, v0\nv_lshlrev_b32 v5, 2, v5\nglobal_store_b32 v5, v3, "
    "s[4:5]\nv_mov_b32 v6, 0\nglobal_atomic_add_u32 v6, v3, s[4:5] offset:3072\ns_endpgm";

static void expected(uint32_t *out) {
    out[OUT_WORDS] = 0;
    for (uint32_t group = 0; group < GROUPS; group++) {
        uint32_t x[ITEMS], next[ITEMS];
        for (uint32_t i = 0; i < ITEMS; i++) x[i] = group * ITEMS + i;
        for (int round = 0; round < ROUNDS; round++) {
            for (uint32_t i = 0; i < ITEMS; i++) next[i] = 5 * x[i] + x[(i + 32) % ITEMS];
            memcpy(x, next, sizeof x);
        }
        for (uint32_t i = 0; i < ITEMS; i++) out[group * ITEMS + i] = x[i], out[OUT_WORDS] += x[i];
    }
}

static void schedules_give_the_same_bits(void **state) {
    (void)state;
    gs_mem *mem;
    void *buffer;
    uint32_t want[OUT_WORDS + 1];
    expected(want);
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, sizeof want, &buffer), GS_OK);
    kernel_text text = {"exchange", exchange, 8, ITEMS * 4, 0, ITEMS};
    gs_module *module = load(mem, &text, 1);
    const void *kernarg[1] = {buffer};
    for (uint64_t seed = 0; seed <= SEEDS; seed++) {
        gs_launch l;
        gs_error error;
        memset(buffer, 0, sizeof want);
        gs_launch_init(&l, gs_module_kernel(module, "exchange"));
        l.grid[0] = GROUPS, l.block[0] = ITEMS, l.kernarg = kernarg, l.kernarg_bytes = sizeof kernarg;
        l.schedule_seed = seed, l.threads = 1 + seed % 2;
        if (gs_launch_run(mem, &l, &error)) fail_msg("seed %u: %s", (unsigned)seed, error.message);
        assert_memory_equal(buffer, want, sizeof want);
    }
    gs_module_free(module);
    gs_mem_destroy(mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_planted_bug_is_caught),
                                       cmocka_unit_test(schedules_give_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
