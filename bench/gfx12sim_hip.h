// SPDX-License-Identifier: Apache-2.0
// The simulator's HIP library for the counter drivers: opened by path, a failing call ends the run with the fault's report.
#ifndef RD_BENCH_GFX12SIM_HIP_H
#define RD_BENCH_GFX12SIM_HIP_H

#include "base/base.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TO_CARD = 1, TO_HOST = 2 }; // hipMemcpyKind

static struct {
    int (*malloc_)(void **, size_t), (*free_)(void *), (*copy)(void *, const void *, size_t, int),
        (*sync)(void);
    int (*load)(void **, const void *), (*function)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                  void **, void **);
    size_t (*fault)(int, char *, size_t);
    double (*counter)(int, const char *);
    void (*reset)(int);
} hip;

static void open_library(const char *path) {
    static const struct {
        void *slot;
        const char *name;
    } symbols[] = {{&hip.malloc_, "hipMalloc"},
                   {&hip.free_, "hipFree"},
                   {&hip.copy, "hipMemcpy"},
                   {&hip.sync, "hipDeviceSynchronize"},
                   {&hip.load, "hipModuleLoadData"},
                   {&hip.function, "hipModuleGetFunction"},
                   {&hip.launch, "hipModuleLaunchKernel"},
                   {&hip.fault, "gfx12sim_hip_fault_text"},
                   {&hip.counter, "gfx12sim_hip_counter"},
                   {&hip.reset, "gfx12sim_hip_counters_reset"}};
    void *library = dlopen(path, RTLD_NOW);
    for (size_t i = 0; i < RDI_COUNT(symbols); i++) {
        void *found = library ? dlsym(library, symbols[i].name) : NULL;
        if (!found) fprintf(stderr, "%s: %s\n", path, dlerror()), exit(1);
        memcpy(symbols[i].slot, &found, sizeof found);
    }
}

static void need(int error, const char *what) {
    char text[2000] = "";
    if (!error) return;
    hip.fault(0, text, sizeof text);
    fprintf(stderr, "%s: HIP error %d\n%s\n", what, error, text);
    exit(1);
}

#endif // RD_BENCH_GFX12SIM_HIP_H
