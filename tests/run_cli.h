// SPDX-License-Identifier: Apache-2.0
// Runs the radiance command from a test: exit code, stdout and stderr as text.
#ifndef TEST_RUN_CLI_H
#define TEST_RUN_CLI_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct cli_result {
    int code; // exit code, or 128 + signal
    char out[1 << 19], err[16384];
} cli_result;

static inline void cli_read_file(const char *path, char *text, size_t bytes) {
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, bytes - 1, file) : 0;
    text[length] = 0;
    if (file) fclose(file);
    remove(path);
}

// `environment` and `arguments` are shell words: "XDG_CACHE_HOME=/x", "explain gemm_fp8block m=1".
static inline void cli_run(const char *environment, const char *arguments, cli_result *result) {
    char command[8192], out[64], err[64];
    snprintf(out, sizeof out, "cli_out_%ld.txt", (long)getpid());
    snprintf(err, sizeof err, "cli_err_%ld.txt", (long)getpid());
    const int length =
        snprintf(command, sizeof command, "%s '%s' %s >%s 2>%s", environment, RD_CLI, arguments, out, err);
    assert_true(length > 0 && length < (int)sizeof command);
    int status = system(command);
    result->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    cli_read_file(out, result->out, sizeof result->out);
    cli_read_file(err, result->err, sizeof result->err);
}

#endif // TEST_RUN_CLI_H
