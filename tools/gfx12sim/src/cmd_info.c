// SPDX-License-Identifier: Apache-2.0
// Commands that only print: disasm, coverage; and the counters of stats.
#include <stdlib.h>
#include <string.h>
#include "cmd.h"

void gs_cmd_print_text(FILE *out, const char *text) {
    putc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 32 || c > 126) // names come from files
            fprintf(out, "\\u%04x", c);
        else
            putc(c, out);
    }
    putc('"', out);
}

int gs_cmd_report(FILE *out, const gs_error *e, bool json) {
    char text[2048];
    if (!json) {
        gs_error_format(e, text, sizeof text);
        fputs(text, stderr);
    } else {
        fprintf(out, "{\"status\": \"%s\", \"check\": \"%s\", \"message\": ", gs_status_name(e->status),
                gs_check_name(e->check));
        gs_cmd_print_text(out, e->message);
        if (e->status == GS_E_CHECK) {
            fprintf(out, ", \"kernel\": ");
            gs_cmd_print_text(out, e->kernel);
            fprintf(out,
                    ", \"group\": [%u, %u, %u], \"wave\": %u, \"lane\": %d, \"address\": %llu, \"pc\": %llu, "
                    "\"line\": ",
                    e->group[0], e->group[1], e->group[2], e->wave, e->lane, (unsigned long long)e->address,
                    (unsigned long long)e->pc);
            gs_cmd_print_text(out, e->line);
        }
        fprintf(out, "}\n");
    }
    return e->status == GS_E_CHECK ? 1 : 2;
}

static void print_kernel(const gs_kernel_info *k, bool json, bool last) {
    if (!json) {
        printf("kernel %s: %u VGPRs, %u SGPRs, %u B LDS, %u B scratch a lane, %u B kernarg, spills %u VGPRs "
               "%u SGPRs\n",
               k->name, k->vgprs, k->sgprs, k->lds_bytes, k->scratch_bytes, k->kernarg_bytes, k->vgpr_spills,
               k->sgpr_spills);
        for (size_t a = 0; a < k->arg_count; a++)
            printf("  arg %2zu offset %3u bytes %3u %s %s\n", a, k->args[a].offset_bytes,
                   k->args[a].size_bytes, k->args[a].value_kind, k->args[a].name);
        return;
    }
    printf("  {\"name\": ");
    gs_cmd_print_text(stdout, k->name);
    printf(", \"vgprs\": %u, \"sgprs\": %u, \"lds_bytes\": %u, \"scratch_bytes\": %u, \"kernarg_bytes\": %u, "
           "\"vgpr_spills\": %u, \"sgpr_spills\": %u, \"args\": [",
           k->vgprs, k->sgprs, k->lds_bytes, k->scratch_bytes, k->kernarg_bytes, k->vgpr_spills,
           k->sgpr_spills);
    for (size_t a = 0; a < k->arg_count; a++) {
        printf("%s{\"offset\": %u, \"bytes\": %u, \"kind\": ", a ? ", " : "", k->args[a].offset_bytes,
               k->args[a].size_bytes);
        gs_cmd_print_text(stdout, k->args[a].value_kind);
        printf("}");
    }
    printf("]}%s\n", last ? "" : ",");
}

static void print_line(const gs_line *line, bool json, bool last) {
    if (!json) {
        if (line->symbol) printf("\n%s:\n", line->symbol);
        printf("%08llx  %s%s\n", (unsigned long long)line->va, line->text,
               line->mnemonic[0] ? "" : "   ; not simulated");
        return;
    }
    printf("  {\"va\": %llu, \"simulated\": %s, \"text\": ", (unsigned long long)line->va,
           line->mnemonic[0] ? "true" : "false");
    gs_cmd_print_text(stdout, line->text);
    printf("}%s\n", last ? "" : ",");
}

int gs_cmd_disasm(int argc, char **argv) {
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    gs_mem *mem;
    if ((argc != 1 && !json) || gs_mem_create(&mem)) {
        fprintf(stderr, "gfx12sim: disasm needs one file, and may have --json after it\n");
        return 2;
    }
    gs_module *m = gs_open_module(mem, argv[0]);
    size_t kernels = m ? gs_module_kernel_count(m) : 0, lines = m ? gs_module_line_count(m) : 0;
    if (m && json) printf("{\"kernels\": [\n");
    for (size_t i = 0; i < kernels; i++)
        print_kernel(gs_kernel_describe(gs_module_kernel_at(m, i)), json, i + 1 == kernels);
    if (m && json) printf("], \"lines\": [\n");
    for (size_t i = 0; i < lines; i++) {
        gs_line line = gs_module_line(m, i);
        print_line(&line, json, i + 1 == lines);
    }
    if (m && json) printf("]}\n");
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

void gs_cmd_print_stats(FILE *out, const gs_stats *s, const uint64_t *by_stall, bool json) {
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
    static const gs_class sources[] = {GS_CLASS_SMEM,   GS_CLASS_VMEM_LOAD, GS_CLASS_VMEM_STORE,
                                       GS_CLASS_ATOMIC, GS_CLASS_SCRATCH,   GS_CLASS_LDS};
    for (size_t i = 0; by_stall && i < sizeof sources / sizeof *sources; i++) {
        char name[40];
        snprintf(name, sizeof name, "stalls_on_%s", gs_class_name(sources[i]));
        fprintf(out, pattern, separator, name, (unsigned long long)by_stall[sources[i]]);
    }
    fprintf(out, json ? ",\n  \"host_seconds\": %.6f" : "\nhost_seconds                 %.6f\n", s->seconds);
}
