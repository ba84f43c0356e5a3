// SPDX-License-Identifier: Apache-2.0
// Loads a rival's driver, a shared object built outside the tree (bench/rivals/README.md): no rival is a dependency.
#include "bench.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

rd_status bench_rival_load(const char *name, bench_rival *rival) {
    char file[512];
    if (strchr(name, '/'))
        snprintf(file, sizeof file, "%s", name);
    else
        snprintf(file, sizeof file, "libradiance_rival_%s.so", name);
    *rival = (bench_rival){.handle = dlopen(file, RTLD_NOW | RTLD_LOCAL)};
    if (!rival->handle)
        return cli_error(RD_E_IO, "rival=%s: %s; bench/rivals/README.md says how to build it", name,
                         dlerror());
    const struct {
        const char *symbol;
        void *place;
    } symbols[] = {{"rival_version", &rival->version},
                   {"rival_gemm_open", &rival->gemm_open},
                   {"rival_gemm_run", &rival->gemm_run},
                   {"rival_gemm_close", &rival->gemm_close}};
    for (int i = 0; i < CLI_COUNT(symbols); i++) {
        void *address = dlsym(rival->handle, symbols[i].symbol);
        if (!address) return cli_error(RD_E_IO, "rival=%s: %s lacks %s", name, file, symbols[i].symbol);
        memcpy(symbols[i].place, &address, sizeof address);
    }
    fprintf(stderr, "rival: %s\n", rival->version());
    return RD_OK;
}
