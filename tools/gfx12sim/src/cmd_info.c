// SPDX-License-Identifier: Apache-2.0
// Commands that only print: disasm, coverage; and the counters of stats.
#include <stdlib.h>
#include <string.h>
#include "cmd.h"

int gs_cmd_disasm(int argc, char **argv) {
    gs_mem *mem;
    if (argc != 1 || gs_mem_create(&mem)) {
        fprintf(stderr, "gfx12sim: disasm needs one file\n");
        return 2;
    }
    gs_module *m = gs_open_module(mem, argv[0]);
    for (size_t i = 0; m && i < gs_module_kernel_count(m); i++) {
        const gs_kernel_info *k = gs_kernel_describe(gs_module_kernel_at(m, i));
        printf("kernel %s: %u VGPRs, %u SGPRs, %u B LDS, %u B scratch a lane, %u B kernarg, spills %u VGPRs "
               "%u SGPRs\n",
               k->name, k->vgprs, k->sgprs, k->lds_bytes, k->scratch_bytes, k->kernarg_bytes, k->vgpr_spills,
               k->sgpr_spills);
        for (size_t a = 0; a < k->arg_count; a++)
            printf("  arg %2zu offset %3u bytes %3u %s %s\n", a, k->args[a].offset_bytes,
                   k->args[a].size_bytes, k->args[a].value_kind, k->args[a].name);
    }
    for (size_t i = 0; m && i < gs_module_line_count(m); i++) {
        gs_line line = gs_module_line(m, i);
        if (line.symbol) printf("\n%s:\n", line.symbol);
        printf("%08llx  %s%s\n", (unsigned long long)line.va, line.text,
               line.mnemonic[0] ? "" : "   ; not simulated");
    }
    gs_module_free(m);
    gs_mem_destroy(mem);
    return m ? 0 : 2;
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, *(const char *const *)b);
}

// The list of executed instructions comes from the test cases; that their tests can fail is what the tests
// themselves prove, by falsifying each instruction in turn.
int gs_cmd_coverage(int argc, char **argv) {
    static const char *const how[] = {[GS_EFFECT_RESULT] =
                                          "result: independent formula, and a false result is noticed",
                                      [GS_EFFECT_ORDER] = "order: left out, a check reports it",
                                      [GS_EFFECT_NONE] = "no effect here: decoded and stepped over",
                                      [GS_EFFECT_REFUSED] = "refused: a fault with its text, always"};
    (void)argc, (void)argv;
    size_t tested, untested = 0, count[sizeof how / sizeof *how] = {0};
    const char *const *covered = gs_covered(&tested);
    for (size_t i = 0; i < gs_row_count(); i++) {
        const char *name = gs_row_mnemonic(i);
        bool has = bsearch(name, covered, tested, sizeof *covered, by_text);
        untested += !has;
        count[gs_row_effect(i)] += has;
        printf("%-36s %s\n", name, has ? how[gs_row_effect(i)] : "UNTESTED");
    }
    printf("%zu instructions: %zu results, %zu orders, %zu without effect, %zu refused, %zu untested\n",
           gs_row_count(), count[GS_EFFECT_RESULT], count[GS_EFFECT_ORDER], count[GS_EFFECT_NONE],
           count[GS_EFFECT_REFUSED], untested);
    return untested ? 1 : 0;
}

void gs_cmd_print_stats(FILE *out, const gs_stats *s, bool json) {
    struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"groups", s->groups},
        {"waves", s->waves},
        {"instructions", s->instructions},
        {"wmma_macs", s->wmma_macs},
        {"load_bytes", s->load_bytes},
        {"store_bytes", s->store_bytes},
        {"smem_bytes", s->smem_bytes},
        {"load_lines_128", s->load_lines},
        {"store_lines_128", s->store_lines},
        {"atomic_lanes", s->atomic_lanes},
        {"lds_bytes", s->lds_bytes},
        {"lds_cycles", s->lds_cycles},
        {"lds_conflict_cycles", s->lds_conflict_cycles},
        {"scratch_bytes", s->scratch_bytes},
        {"barriers", s->barriers},
    };
    const char *pattern = json ? "%s\"%s\": %llu" : "%s%-28s %llu";
    const char *separator = json ? ",\n  " : "\n", *first = json ? "{\n  " : "";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++, first = separator)
        fprintf(out, pattern, first, rows[i].name, (unsigned long long)rows[i].value);
    for (int c = 0; c < GS_CLASS_COUNT; c++) {
        char name[40];
        snprintf(name, sizeof name, "class_%s", gs_class_name((gs_class)c));
        fprintf(out, pattern, separator, name, (unsigned long long)s->by_class[c]);
    }
    for (int c = 0; c < GS_CNT_COUNT; c++) {
        char name[40];
        snprintf(name, sizeof name, "wait_%s", gs_counter_name((gs_counter)c));
        fprintf(out, pattern, separator, name, (unsigned long long)s->waits[c]);
        snprintf(name, sizeof name, "wait_%s_blocking", gs_counter_name((gs_counter)c));
        fprintf(out, pattern, separator, name, (unsigned long long)s->blocking_waits[c]);
    }
    fprintf(out, json ? ",\n  \"host_seconds\": %.6f\n}\n" : "\nhost_seconds                 %.6f\n",
            s->seconds);
}
