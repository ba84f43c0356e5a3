// SPDX-License-Identifier: Apache-2.0
// For programs that use the simulated HIP runtime as any HIP program would: by dlopen, through the exported C
// functions alone. The runtime reads its environment once per process, so each case runs in a child of its own.
#ifndef GFX12SIM_HIP_TEST_H
#define GFX12SIM_HIP_TEST_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "../hip/hip_abi.h"

#define HIP_F(name, ...) hipError_t (*name)(__VA_ARGS__);
static struct {
#include "../hip/hip_functions.h"
    const char *(*hipGetErrorString)(hipError_t error);
    const char *(*hipGetErrorName)(hipError_t error);
    size_t (*fault_text)(int device, char *text, size_t bytes);
    double (*counter)(int device, const char *name);
    void (*counters_reset)(int device);
} hip;

#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define EXPECT(wanted, call)                                                                                 \
    do {                                                                                                     \
        hipError_t got_ = (call);                                                                            \
        if (got_ != (wanted)) {                                                                              \
            fprintf(stderr, "%s:%d: %s gave %s, expected %s\n", __FILE__, __LINE__, #call,                   \
                    hip.hipGetErrorName(got_), hip.hipGetErrorName(wanted));                                 \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define OK(call) EXPECT(hipSuccess, call)

static inline void *symbol(void *library, const char *name) {
    void *p = dlsym(library, name);
    if (!p) {
        fprintf(stderr, "no %s in the library\n", name);
        exit(1);
    }
    return p;
}

static inline void hip_open(void) {
    void *library = dlopen(HIP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void *p;
#define HIP_F(name, ...) p = symbol(library, #name), memcpy(&hip.name, &p, sizeof p);
#include "../hip/hip_functions.h"
#define LOAD(member, name) p = symbol(library, name), memcpy(&hip.member, &p, sizeof p)
    LOAD(hipGetErrorString, "hipGetErrorString");
    LOAD(hipGetErrorName, "hipGetErrorName");
    LOAD(fault_text, "gfx12sim_hip_fault_text");
    LOAD(counter, "gfx12sim_hip_counter");
    LOAD(counters_reset, "gfx12sim_hip_counters_reset");
}

static inline hipFunction_t kernel_of(const char *name) { // of the current device
    hipModule_t module;
    hipFunction_t function;
    OK(hip.hipModuleLoad(&module, HIP_KERNELS));
    OK(hip.hipModuleGetFunction(&function, module, name));
    return function;
}

static inline hipError_t launch_scale(hipFunction_t f, hipStream_t s, int *x, int scale, int add, int n) {
    void *params[] = {&x, &scale, &add, &n};
    return hip.hipModuleLaunchKernel(f, (unsigned)(n + 63) / 64, 1, 1, 64, 1, 1, 0, s, params, NULL);
}

// Runs the case in a child with these environment settings ("NAME=value", null at the end).
static inline void run_case(void (*body)(void), const char *const *settings) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        for (size_t i = 0; settings && settings[i]; i++) {
            char name[64];
            size_t length = strcspn(settings[i], "=");
            snprintf(name, sizeof name, "%.*s", (int)length, settings[i]);
            setenv(name, settings[i] + length + 1, 1);
        }
        hip_open();
        body();
        exit(0); // with the checks of the sanitizers
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define CASE(body, ...)                                                                                      \
    static void test_##body(void **state) {                                                                  \
        (void)state;                                                                                         \
        run_case(body, (const char *const[]){__VA_ARGS__, NULL});                                            \
    }

#endif
