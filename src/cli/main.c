// SPDX-License-Identifier: Apache-2.0
// radiance: the command. One file a command; this one finds it and turns its status into the exit code.
#include "cli.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *about;
    rd_status (*run)(int argc, char **argv);
} commands[] = {
#define CLI_COMMAND(name_, about_) {#name_, about_, cli_run_##name_},
#include "commands.def"
#undef CLI_COMMAND
};

static int find_command(const char *name) {
    for (int i = 0; i < CLI_COUNT(commands); i++)
        if (!strcmp(commands[i].name, name)) return i;
    return -1;
}

static void print_help(FILE *out) {
    fprintf(out,
            "radiance %s: chooses, explains and runs kernels for block-FP8 language models\n\n"
            "usage: radiance COMMAND [arguments]\n\n",
            rd_version());
    for (int i = 0; i < CLI_COUNT(commands); i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].about);
    fprintf(out, "  %-12s %s\n\nExit codes are the library's statuses: 0 ok", "help",
            "this text, or `help COMMAND`");
    for (int status = 1; status <= RD_E_CANCELLED; status++)
        fprintf(out, ", %d %s", status, rd_status_name(status));
    fprintf(out, ".\n");
}

static rd_status unknown_command(const char *name) {
    cli_error(RD_E_INVALID, "unknown command %s, `radiance help` lists them", name);
    return RD_E_INVALID;
}

static rd_status help(int argc, char **argv) {
    if (argc < 1) {
        print_help(stdout);
        return RD_OK;
    }
    int command = find_command(argv[0]);
    if (command < 0) return unknown_command(argv[0]);
    char option[] = "--help", *arguments[] = {option, NULL};
    return commands[command].run(1, arguments);
}

static rd_status dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return RD_E_INVALID;
    }
    if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return help(argc - 2, argv + 2);
    if (!strcmp(argv[1], "--version")) return cli_run_version(0, argv + 2);
    int command = find_command(argv[1]);
    if (command < 0) return unknown_command(argv[1]);
    return commands[command].run(argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // a closed reader is a write error like any other
    rd_status status = dispatch(argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && status == RD_OK)
        status = cli_error(RD_E_IO, "standard output could not be written");
    return (int)status;
}
