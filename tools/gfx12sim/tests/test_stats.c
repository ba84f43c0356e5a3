// SPDX-License-Identifier: Apache-2.0
// Counters of kernels whose traffic is known by hand: LDS bank conflicts of the stated model (32 banks of 4 bytes), lines of
// 128 bytes, waits that block and what they block on, instructions by class; the trace of one wave.
#include <stdlib.h>
#include <string.h>
#include "snippet.h"

enum { BUFFER_BYTES = 8192, STATS_CASES = 10 };

static const char before[] =
    "s_load_b64 s[4:5], s[0:1], 0x0\nv_and_b32 v0, 0x3ff, v0\ns_wait_kmcnt 0\n"; // VALU 1, SMEM 1
static const struct stats_case {
    const char *body;
    uint32_t lds_cycles, conflicts, load_lines, store_lines, blocking_loads, blocking_ds;
} cases[STATS_CASES] = {
    // 32 neighbouring dwords: one pass of one cycle.
    {"v_lshlrev_b32 v1, 2, v0\nds_store_b32 v1, v0\ns_endpgm", 1, 0, 0, 0, 0, 0},
    // 32 dwords of one bank: 32 cycles where one would do.
    {"v_lshlrev_b32 v1, 7, v0\nds_store_b32 v1, v0\ns_endpgm", 32, 31, 0, 0, 0, 0},
    // One dword for all lanes is broadcast.
    {"v_mov_b32 v1, 0\nds_store_b32 v1, v0\nds_load_b32 v2, v1\ns_wait_dscnt 0\ns_endpgm", 2, 0, 0, 0, 0, 1},
    // Every other dword: two lanes a bank.
    {"v_lshlrev_b32 v1, 3, v0\nds_store_b32 v1, v0\ns_endpgm", 2, 1, 0, 0, 0, 0},
    // Rows of 64 bytes read with 8: 16 lanes a pass, whose dwords lie on banks 0, 1, 16 and 17: 8 each. Padded to 72: none.
    {"v_lshlrev_b32 v1, 6, v0\nv_mov_b32 v2, 0\nv_mov_b32 v3, 0\nds_store_b64 v1, v[2:3]\ns_endpgm", 16, 14,
     0, 0, 0, 0},
    {"v_mul_u32_u24 v1, 72, v0\nv_mov_b32 v2, 0\nv_mov_b32 v3, 0\nds_store_b64 v1, v[2:3]\ns_endpgm", 2, 0, 0,
     0, 0, 0},
    // 128 bytes on a line; 32 lines; 16 bytes a lane on 4 lines.
    {"v_lshlrev_b32 v1, 2, v0\nglobal_store_b32 v1, v0, s[4:5]\nglobal_load_b32 v2, v1, "
     "s[4:5]\ns_wait_loadcnt 0\ns_endpgm",
     0, 0, 1, 1, 1, 0},
    {"v_lshlrev_b32 v1, 7, v0\nglobal_load_b32 v2, v1, s[4:5]\nglobal_load_b32 v3, v1, "
     "s[4:5]\ns_wait_loadcnt 2\ns_wait_loadcnt 1\ns_wait_loadcnt 1\ns_endpgm",
     0, 0, 64, 0, 1, 0},
    {"v_lshlrev_b32 v1, 4, v0\nglobal_load_b128 v[4:7], v1, s[4:5]\ns_endpgm", 0, 0, 4, 0, 0, 0},
    // Lanes that are off ask for nothing.
    {"s_mov_b32 exec_lo, 15\nv_lshlrev_b32 v1, 7, v0\nglobal_load_b32 v2, v1, s[4:5]\nds_store_b32 v1, "
     "v0\ns_wait_idle\ns_endpgm",
     4, 3, 4, 0, 1, 1},
};

typedef struct bench {
    gs_mem *mem;
    gs_module *module;
    void *buffer;
    char names[STATS_CASES][16];
    char *bodies[STATS_CASES];
} bench;

static void open_bench(bench *b) {
    kernel_text kernels[STATS_CASES];
    for (int i = 0; i < STATS_CASES; i++) {
        b->bodies[i] = malloc(sizeof before + strlen(cases[i].body) + 1);
        assert_non_null(b->bodies[i]);
        sprintf(b->bodies[i], "%s%s", before, cases[i].body);
        snprintf(b->names[i], sizeof b->names[i], "k%d", i);
        kernels[i] = (kernel_text){b->names[i], b->bodies[i], 8, 4096, 0, 32};
    }
    size_t bytes;
    gs_error e;
    void *image = assemble_kernels(kernels, STATS_CASES, &bytes);
    assert_int_equal(gs_mem_create(&b->mem), GS_OK);
    assert_int_equal(gs_mem_alloc(b->mem, BUFFER_BYTES, &b->buffer), GS_OK);
    memset(b->buffer, 0, BUFFER_BYTES);
    if (gs_module_load(b->mem, image, bytes, &b->module, &e)) fail_msg("%s", e.message);
    free(image);
}

static void close_bench(bench *b) {
    for (int i = 0; i < STATS_CASES; i++) free(b->bodies[i]);
    gs_module_free(b->module);
    gs_mem_destroy(b->mem);
}

static uint64_t instructions_of(const char *text) { // lines of the source
    uint64_t n = 1;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static void test_counters(void **state) {
    (void)state;
    bench b;
    gs_error e;
    open_bench(&b);
    gs_line_stats *lines = calloc(gs_module_line_count(b.module), sizeof *lines);
    assert_non_null(lines);
    for (int i = 0; i < STATS_CASES; i++) {
        const struct stats_case *c = &cases[i];
        gs_stats s = {0};
        gs_launch l;
        gs_launch_init(&l, gs_module_kernel(b.module, b.names[i]));
        l.kernarg = &b.buffer, l.kernarg_bytes = 8, l.stats = &s, l.lines = lines;
        memset(lines, 0, gs_module_line_count(b.module) * sizeof *lines);
        if (gs_launch_run(b.mem, &l, &e)) fail_msg("%d: %s", i, e.message);
        if (s.lds_cycles != c->lds_cycles || s.lds_conflict_cycles != c->conflicts ||
            s.load_lines != c->load_lines || s.store_lines != c->store_lines ||
            s.blocking_waits[GS_CNT_LOAD] != c->blocking_loads ||
            s.blocking_waits[GS_CNT_DS] != c->blocking_ds)
            fail_msg("case %d: lds %llu (%llu extra), lines %llu loaded %llu stored, blocking %llu %llu", i,
                     (unsigned long long)s.lds_cycles, (unsigned long long)s.lds_conflict_cycles,
                     (unsigned long long)s.load_lines, (unsigned long long)s.store_lines,
                     (unsigned long long)s.blocking_waits[GS_CNT_LOAD],
                     (unsigned long long)s.blocking_waits[GS_CNT_DS]);
        uint64_t by_class = 0, stalls = 0;
        for (int k = 0; k < GS_CLASS_COUNT; k++) by_class += s.by_class[k];
        assert_int_equal(s.instructions, instructions_of(b.bodies[i]));
        assert_int_equal(by_class, s.instructions);
        assert_int_equal(s.by_class[GS_CLASS_SMEM], 1);
        assert_int_equal(s.smem_bytes, 8);
        for (size_t k = 0; k < gs_module_line_count(b.module); k++) // a blocked wait names its load
            if (strstr(gs_module_line(b.module, k).text, "_load_")) stalls += lines[k].blocking;
        bool stores_too = i == 9; // s_wait_idle waits for the LDS store as well
        assert_int_equal(stalls,
                         1 + c->blocking_loads + c->blocking_ds - stores_too); // 1: the kernel argument
    }
    free(lines);
    close_bench(&b);
}

typedef struct trace {
    int lines;
    char last[128];
} trace;
static void note(void *context, const char *text) {
    trace *t = context;
    t->lines++;
    snprintf(t->last, sizeof t->last, "%s", text);
}

static void test_trace(void **state) {
    (void)state;
    bench b;
    gs_error e;
    open_bench(&b);
    trace t = {0};
    gs_launch l;
    gs_launch_init(&l, gs_module_kernel(b.module, "k0"));
    l.grid[0] = 3, l.kernarg = &b.buffer, l.kernarg_bytes = 8;
    l.trace = note, l.trace_context = &t, l.trace_group = 1;
    assert_int_equal(gs_launch_run(b.mem, &l, &e), GS_OK);
    assert_int_equal(t.lines, instructions_of(b.bodies[0])); // of group 1 alone, each once
    assert_non_null(strstr(t.last, "s_endpgm"));
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counters), cmocka_unit_test(test_trace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
