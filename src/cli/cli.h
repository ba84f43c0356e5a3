// SPDX-License-Identifier: Apache-2.0
// What the commands share. A command is one file and one line of commands.def: CLI_COMMAND(name, "what it does") calls
// `rd_status cli_run_name(int argc, char **argv)` with argv[0] the first argument after the command's name. The status it
// returns is the exit code. Data go to stdout, every other word to stderr.
#ifndef CLI_H
#define CLI_H

#include "radiance.h"

#include <cJSON.h>
#include <stdbool.h>

#define CLI_COUNT(array_) ((int)(sizeof(array_) / sizeof((array_)[0])))

// ---- options -------------------------------------------------------------------------------------------------------
typedef enum cli_kind { CLI_FLAG = 0, CLI_TEXT, CLI_INT, CLI_REAL } cli_kind;
typedef struct cli_option {
    const char *name; // "--device"
    cli_kind kind;
    void *value;          // bool, const char *, int64_t or double
    const char *argument; // "NAME" in the help text; NULL for flags
    const char *help;
    int64_t least, most; // CLI_INT: both 0 = any
} cli_option;
#define CLI_OPTION_JSON(value_)                                                                              \
    { "--json", CLI_FLAG, (value_), NULL, "print JSON", 0, 0 }
#define CLI_OPTION_DEVICE(value_)                                                                            \
    { "--device", CLI_TEXT, (value_), "NAME", "a device of `radiance devices`; default cpu", 0, 0 }
// --threads 0 is refused: leave the option out for the default.
#define CLI_OPTION_THREADS(value_)                                                                           \
    { "--threads", CLI_INT, (value_), "N", "worker threads; default all fast cores", 1, 4096 }

typedef struct cli_args {
    int count;    // positional arguments, in order
    char **items; // points into argv
    bool done;    // --help was asked and printed: return RD_OK
} cli_args;
// usage: "explain OP key=value... [options]"; about: one or more lines. Reorders argv. Errors are printed already; options
// may stand anywhere, "--name value" or "--name=value"; after "--" everything is positional. Refuses more than
// `most_positional` (-1 = any number) and fewer than `least_positional`.
rd_status cli_parse(const char *usage, const char *about, const cli_option *options, int option_count,
                    int least_positional, int most_positional, int argc, char **argv, cli_args *args);

// key=value arguments: a value that reads as a whole number is one, all others are words. `params` has room for `count`.
// The strings are split in place.
rd_status cli_params(char **items, int count, rd_param *params);

// ---- errors and log --------------------------------------------------------------------------------------------------
// Prints "radiance: <text>" to stderr and returns status. cli_fail prints what rd_error_text() says.
rd_status cli_error(rd_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
rd_status cli_fail(rd_status status);
// For rd_ctx_options.log and the like: lines up to RADIANCE_LOG's level go to stderr.
void cli_log(void *state, rd_log_level level, const char *text);
// Opens a context on `device` (NULL = cpu) with `threads` (0 = default) that logs to stderr; prints its errors.
rd_status cli_open_ctx(const char *device, int64_t threads, rd_ctx **out);
// With every row of the build, whatever a card's check at first use says of it.
rd_status cli_open_ctx_unchecked(const char *device, int64_t threads, rd_ctx **out);

// ---- signals: the first SIGINT, SIGTERM or SIGHUP asks for a clean stop, a second one ends the process ----------------
void cli_catch_interrupt(void);
bool cli_interrupted(void);
void cli_clear_interrupt(void); // of a chat: forgets, and from now on catches SIGINT alone

// ---- output ----------------------------------------------------------------------------------------------------------
// Prints the value and a newline, and deletes it. NULL counts as out of memory.
rd_status cli_print_json(cJSON *value);
// Adds a number or, for NaN and infinities, null.
void cli_json_real(cJSON *object, const char *name, double value);
// NULL becomes null.
void cli_json_text(cJSON *object, const char *name, const char *text);

// ---- the commands ------------------------------------------------------------------------------------------------------
#define CLI_COMMAND(name_, about_) rd_status cli_run_##name_(int argc, char **argv);
#include "commands.def"
#undef CLI_COMMAND

#endif // CLI_H
