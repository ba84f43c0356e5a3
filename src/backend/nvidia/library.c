// SPDX-License-Identifier: Apache-2.0
// Loads the CUDA driver library, and says in words what is missing. Loaded libraries stay: one entry a path.
#include "backend/nvidia/cuda_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_library *loaded;

static bool bind(cuda_library *cuda, char *why, size_t why_bytes) {
    const char *missing = NULL;
    // POSIX lets a data pointer from dlsym be read as a function pointer; ISO C wants the copy.
#define CUDA_BIND(name_, params_)                                                                            \
    do {                                                                                                     \
        void *symbol = dlsym(cuda->handle, #name_);                                                          \
        memcpy(&cuda->name_, &symbol, sizeof symbol);                                                        \
        if (!symbol && !missing) missing = #name_;                                                           \
    } while (0);
    CUDA_FUNCTIONS(CUDA_BIND)
#undef CUDA_BIND
    if (missing)
        snprintf(why, why_bytes, "%s has no %s, needs a driver for CUDA 12 or later", cuda->path, missing);
    return !missing;
}

static void look_for_devices(cuda_library *cuda) {
    int error = cuda->cuInit(0);
    const char *text = NULL;
    cuda->cuDriverGetVersion(&cuda->driver_version);
    if (error == CUDA_SUCCESS) error = cuda->cuDeviceGetCount(&cuda->device_count);
    if (error == CUDA_NO_DEVICE || (error == CUDA_SUCCESS && cuda->device_count <= 0))
        snprintf(cuda->why, sizeof cuda->why,
                 "%s shows no device (an NVIDIA card and its kernel driver are needed)", cuda->path);
    else if (error != CUDA_SUCCESS)
        snprintf(cuda->why, sizeof cuda->why, "%s: cuInit: %s", cuda->path,
                 cuda->cuGetErrorString(error, &text) == CUDA_SUCCESS && text ? text : "unknown error");
    else if (cuda->driver_version < CUDA_OLDEST_DRIVER)
        snprintf(cuda->why, sizeof cuda->why, "%s is a driver for CUDA %d.%d, needs 12.0 or later",
                 cuda->path, cuda->driver_version / 1000, cuda->driver_version % 1000 / 10);
    if (*cuda->why || cuda->device_count < 0) cuda->device_count = 0;
}

static cuda_library *find_loaded(const char *path) {
    for (cuda_library *at = loaded; at; at = at->next)
        if (!strcmp(at->path, path)) return at;
    return NULL;
}

static cuda_library *load(const char *path, char *why, size_t why_bytes) {
    cuda_library *cuda = find_loaded(path);
    if (cuda) return cuda;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        if (!strcmp(path, "libcuda.so.1"))
            snprintf(
                why, why_bytes,
                "no libcuda.so.1: NVIDIA's driver is not installed (RADIANCE_CUDA_LIBRARY names another)");
        else
            snprintf(why, why_bytes, "%s", dlerror());
        return NULL;
    }
    cuda = rdi_calloc(1, sizeof *cuda);
    if (!cuda) {
        snprintf(why, why_bytes, "out of memory");
        dlclose(handle);
        return NULL;
    }
    snprintf(cuda->path, sizeof cuda->path, "%s", path);
    cuda->handle = handle;
    if (!bind(cuda, why, why_bytes)) {
        rdi_free(cuda);
        dlclose(handle);
        return NULL;
    }
    look_for_devices(cuda);
    cuda->next = loaded;
    loaded = cuda;
    return cuda;
}

cuda_library *rdi_cuda_library_get(const char *library, char *why, size_t why_bytes) {
    if (!library) library = rdi_env_text("RADIANCE_CUDA_LIBRARY");
    pthread_mutex_lock(&lock);
    cuda_library *cuda = load(library && *library ? library : "libcuda.so.1", why, why_bytes);
    pthread_mutex_unlock(&lock);
    return cuda;
}
