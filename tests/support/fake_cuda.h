// SPDX-License-Identifier: Apache-2.0
// The handles of tests/support/fake_cuda.c, found in the library that the backend loads too.
#ifndef TEST_FAKE_CUDA_H
#define TEST_FAKE_CUDA_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct fake_cuda {
    void (*reset)(int architecture_major, int driver_version, int devices);
    void (*fail_at)(int nth, int error);                       // the n-th call from now alone
    void (*break_from)(int nth, int error);                    // and all after it
    void (*set_current)(void *context);                        // of a host program
    void (*set_memory)(size_t free_bytes, size_t total_bytes); // what the driver says; a reset: 141 GiB
    int (*calls)(void);                                        // since the last reset
    const char *(*call)(int index);                            // its name
    int (*open)(void); // contexts, memory, streams, events, modules, graphs
    int (*launches)(void);
    int (*last_shared)(void);
    int (*last_dependent)(void);
    const unsigned char *(*last_args)(void);
} fake_cuda;

// 0, or -1 with the reason on stderr.
static inline int fake_cuda_load(const char *path, fake_cuda *fake) {
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"fake_cuda_reset", &fake->reset},
                   {"fake_cuda_fail", &fake->fail_at},
                   {"fake_cuda_break", &fake->break_from},
                   {"fake_cuda_set_current", &fake->set_current},
                   {"fake_cuda_set_memory", &fake->set_memory},
                   {"fake_cuda_calls", &fake->calls},
                   {"fake_cuda_call", &fake->call},
                   {"fake_cuda_open", &fake->open},
                   {"fake_cuda_launches", &fake->launches},
                   {"fake_cuda_last_shared", &fake->last_shared},
                   {"fake_cuda_last_dependent", &fake->last_dependent},
                   {"fake_cuda_last_args", &fake->last_args}};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) library = NULL;
        memcpy(symbols[i].to, &symbol, sizeof symbol); // POSIX: a data pointer of dlsym may be a function's
    }
    if (!library) fprintf(stderr, "%s\n", dlerror());
    return library ? 0 : -1;
}

#endif // TEST_FAKE_CUDA_H
