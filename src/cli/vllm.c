// SPDX-License-Identifier: Apache-2.0
// radiance vllm: hands over to the Python package vllm_radiance, where everything that knows vLLM lives.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Asks first, so that a machine without the package gets one line and not Python's traceback.
static bool package_found(void) {
    static const char *const probe =
        "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm_radiance') is None)";
    pid_t child = fork();
    if (child == 0) {
        execlp("python3", "python3", "-c", probe, (char *)NULL);
        _exit(127);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

rd_status cli_run_vllm(int argc, char **argv) {
    if (argc > 0 && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h"))) {
        const cli_option none[] = {{"--", CLI_FLAG, NULL, NULL, "", 0, 0}};
        cli_args args;
        return cli_parse("vllm doctor",
                         "Says what the plugin vllm-radiance hooked into this machine's vLLM, and what not.", none, 0, 0, 1,
                         argc, argv, &args);
    }
    if (!package_found())
        return cli_error(RD_E_STATE, "python3 has no package vllm_radiance: pip install vllm-radiance");
    char **command = calloc((size_t)argc + 4, sizeof *command);
    if (!command) return cli_error(RD_E_NOMEM, "no memory for %d arguments", argc);
    char python[] = "python3", option[] = "-m", package[] = "vllm_radiance";
    command[0] = python;
    command[1] = option;
    command[2] = package;
    memcpy(command + 3, argv, (size_t)argc * sizeof *argv);
    execvp(python, command);
    free(command);
    return cli_error(RD_E_IO, "python3 cannot be run: %s", strerror(errno));
}
