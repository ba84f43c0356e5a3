// SPDX-License-Identifier: Apache-2.0
// radiance vllm: hands over to the Python package vllm_radiance, where everything that knows vLLM lives.
#include "cli.h"

#include <errno.h>
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
    cli_args args;
    rd_status status =
        cli_parse("vllm doctor", "Says what the plugin hooked into this machine's vLLM, and what not.", NULL,
                  0, 1, 1, argc, argv, &args);
    if (status != RD_OK || args.done) return status;
    if (!package_found())
        return cli_error(RD_E_STATE, "python3 has no package vllm_radiance: `make wheel`, then install it");
    execlp("python3", "python3", "-m", "vllm_radiance", args.items[0], (char *)NULL);
    return cli_error(RD_E_IO, "python3 cannot be run: %s", strerror(errno));
}
