// SPDX-License-Identifier: Apache-2.0
// Finds and loads the HIP runtime, and says in words what is missing. Loaded libraries stay: one entry a path.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NOLOAD
#endif
#include "backend/amd/hip_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hip_library *loaded;

// The runtime that this process already holds (a host program's own) is taken before any other: two runtimes in one
// process do not share memory.
static const char *const usual_names[] = {"libamdhip64.so.7",
                                          "libamdhip64.so.6",
                                          "libamdhip64.so.10",
                                          "libamdhip64.so",
                                          "/opt/rocm/lib/libamdhip64.so",
                                          "/opt/rocm/lib64/libamdhip64.so"};

static bool bind(hip_library *hip, char *why, size_t why_bytes) {
    const char *missing = NULL;
    // POSIX lets a data pointer from dlsym be read as a function pointer; ISO C wants the copy.
#define HIP_BIND(name_, params_)                                                                             \
    do {                                                                                                     \
        void *symbol = dlsym(hip->handle, #name_);                                                           \
        memcpy(&hip->name_, &symbol, sizeof symbol);                                                         \
        if (!symbol && !missing) missing = #name_;                                                           \
    } while (0);
    HIP_FUNCTIONS(HIP_BIND)
#undef HIP_BIND
    void *name = dlsym(hip->handle, "hipGetErrorName"), *text = dlsym(hip->handle, "hipGetErrorString"),
         *fault = dlsym(hip->handle, "gfx12sim_hip_fault_text");
    memcpy(&hip->error_name, &name, sizeof name);
    memcpy(&hip->error_text, &text, sizeof text);
    memcpy(&hip->fault_text, &fault, sizeof fault);
    if (!missing && (!name || !text)) missing = "hipGetErrorString";
    if (missing) snprintf(why, why_bytes, "%s has no %s, needs ROCm 6 or later", hip->path, missing);
    return !missing;
}

static void look_for_devices(hip_library *hip) {
    int error = hip->hipInit(0);
    hip->hipRuntimeGetVersion(&hip->runtime_version);
    hip->hipDriverGetVersion(&hip->driver_version);
    if (error == HIP_SUCCESS) error = hip->hipGetDeviceCount(&hip->device_count);
    if (error == HIP_INSUFFICIENT_DRIVER)
        snprintf(hip->why, sizeof hip->why, "the kernel's amdgpu driver is older than %s (HIP %d.%d) needs",
                 hip->path, hip->runtime_version / 10000000, hip->runtime_version / 100000 % 100);
    else if (error == HIP_NO_DEVICE || (error == HIP_SUCCESS && hip->device_count <= 0))
        snprintf(
            hip->why, sizeof hip->why,
            "%s shows no device (an AMD card, its amdgpu driver, and the right to open /dev/kfd are needed)",
            hip->path);
    else if (error != HIP_SUCCESS)
        snprintf(hip->why, sizeof hip->why, "%s: %s (%s)", hip->path, hip->error_name(error),
                 hip->error_text(error));
    if (error != HIP_SUCCESS || hip->device_count < 0) hip->device_count = 0;
}

static hip_library *find_loaded(const char *path) {
    for (hip_library *at = loaded; at; at = at->next)
        if (!strcmp(at->path, path)) return at;
    return NULL;
}

static hip_library *add(const char *path, void *handle, char *why, size_t why_bytes) {
    hip_library *hip = rdi_calloc(1, sizeof *hip);
    if (!hip) {
        snprintf(why, why_bytes, "out of memory");
        return NULL;
    }
    snprintf(hip->path, sizeof hip->path, "%s", path);
    hip->handle = handle;
    if (!bind(hip, why, why_bytes)) {
        rdi_free(hip);
        return NULL;
    }
    look_for_devices(hip);
    hip->next = loaded;
    loaded = hip;
    return hip;
}

static hip_library *load_named(const char *path, char *why, size_t why_bytes) {
    hip_library *hip = find_loaded(path);
    if (hip) return hip;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle) return add(path, handle, why, why_bytes);
    snprintf(why, why_bytes, "%s", dlerror());
    return NULL;
}

static hip_library *load_usual(char *why, size_t why_bytes) {
    for (int pass = 0; pass < 2; pass++) {
        int flags = RTLD_NOW | RTLD_LOCAL | (pass == 0 ? RTLD_NOLOAD : 0);
        for (size_t i = 0; i < RDI_COUNT(usual_names); i++) {
            hip_library *hip = find_loaded(usual_names[i]);
            if (hip) return hip;
            void *handle = dlopen(usual_names[i], flags);
            if (handle) return add(usual_names[i], handle, why, why_bytes);
        }
    }
    snprintf(why, why_bytes,
             "no libamdhip64.so: ROCm's HIP runtime is not installed (RADIANCE_HIP_LIBRARY names another)");
    return NULL;
}

hip_library *rdi_hip_library_get(const char *library, char *why, size_t why_bytes) {
    if (!library) library = rdi_env_text("RADIANCE_HIP_LIBRARY");
    pthread_mutex_lock(&lock);
    hip_library *hip = library && *library ? load_named(library, why, why_bytes) : load_usual(why, why_bytes);
    pthread_mutex_unlock(&lock);
    return hip;
}
