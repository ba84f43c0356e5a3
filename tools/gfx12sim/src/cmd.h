// SPDX-License-Identifier: Apache-2.0
// The command `gfx12sim`: what its subcommands share. A new subcommand is one row in main.c and one file.
#ifndef GFX12SIM_CMD_H
#define GFX12SIM_CMD_H

#include "gfx12sim.h"

// Exit codes: 0 fine, 1 the kernel broke a rule, 2 bad usage or file.
int gs_cmd_run(int argc, char **argv);
int gs_cmd_stats(int argc, char **argv);
int gs_cmd_trace(int argc, char **argv);
int gs_cmd_disasm(int argc, char **argv);
int gs_cmd_coverage(int argc, char **argv);

void *gs_read_file(const char *path, size_t *bytes);      // malloc'd; prints and returns null on failure
gs_module *gs_open_module(gs_mem *mem, const char *path); // prints and returns null on failure

// One launch described by command-line options; run, stats and trace share it.
enum { GS_MAX_CMD_ARGS = 64 };
typedef struct gs_cmd_buffer {
    void *base;
    size_t bytes;
    char type[8];
    const char *write_to; // null: print the first values
    bool output;
} gs_cmd_buffer;
typedef struct gs_cmd_launch {
    gs_mem *mem;
    gs_module *module;
    gs_launch launch;
    unsigned char *kernarg;
    gs_cmd_buffer buffers[GS_MAX_CMD_ARGS];
    size_t buffer_count;
    bool json;
} gs_cmd_launch;
bool gs_cmd_launch_parse(gs_cmd_launch *c, int argc, char **argv); // prints its complaint
void gs_cmd_launch_free(gs_cmd_launch *c);
// by_stall: blocking waits attributed to the class of the instruction that they waited for; null: not known.
void gs_cmd_print_stats(FILE *out, const gs_stats *stats, const uint64_t *by_stall, bool json);
void gs_cmd_print_text(FILE *out, const char *text);            // as a JSON string
int gs_cmd_report(FILE *out, const gs_error *error, bool json); // returns the exit code
const char *const *gs_covered(size_t *count); // mnemonics that the instruction tests execute, sorted

#endif
