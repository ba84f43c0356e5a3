// SPDX-License-Identifier: Apache-2.0
// radiance: the command. One file a command; this one finds it.
#include "radiance.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "version")) {
        printf("radiance %s (%s)\n", rd_version(), rd_build_id());
        return 0;
    }
    return 1;
}
