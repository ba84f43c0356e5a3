// SPDX-License-Identifier: Apache-2.0
// gfx12sim: run, inspect and measure gfx1201 code objects without the card.
#include <string.h>
#include "cmd.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
} commands[] = {
    {"run", gs_cmd_run, "run FILE --kernel K --grid X[,Y,Z] --block X[,Y,Z] --arg ... [options]   run a kernel, print its outputs"},
    {"stats", gs_cmd_stats, "stats (as run) [--lines] [--json]                                        run it and print counters"},
    {"trace", gs_cmd_trace, "trace (as run) [--group G] [--wave W]                                    run it and print one wave's instructions"},
    {"disasm", gs_cmd_disasm, "disasm FILE                                                              kernels and decoded instructions"},
    {"coverage", gs_cmd_coverage, "coverage                                                                 instructions simulated, and whether a test executes each"},
};

static int usage(void) {
    fprintf(stderr, "gfx12sim runs gfx1201 machine code on the CPU and stops at what the card would let pass.\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) fprintf(stderr, "  gfx12sim %s\n", commands[i].usage);
    fprintf(stderr, "\narguments, in order: --arg i32:5 | u32: | i64: | u64: | f32:1.5 | f64: | lds:4096 (bytes of dynamic LDS)\n"
                    "  --arg in:TYPE:@FILE | in:TYPE:COUNT (zeros) | out:TYPE:COUNT[:@FILE] | inout:TYPE:@FILE[:@FILE]\n"
                    "  TYPE: f32 f16 bf16 fp8 f64 i8 u8 i16 u16 i32 u32 i64 u64\n"
                    "options: --checks all|none|name,name,...  --schedule-seed S  --threads N  --max-steps N  --lds BYTES\n");
    return 2;
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    return usage();
}
