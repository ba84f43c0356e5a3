// SPDX-License-Identifier: Apache-2.0
// See cuda.h.
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_DEPENDENT = 6 };

bool cuda_open(cuda_driver *cuda, char *why, size_t why_bytes) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    const char *missing = library ? NULL : "libcuda.so.1";
#define BIND(name_, params_)                                                                                 \
    do {                                                                                                     \
        void *symbol = library ? dlsym(library, #name_) : NULL;                                              \
        memcpy(&cuda->name_, &symbol, sizeof symbol);                                                        \
        if (!symbol && !missing) missing = #name_;                                                           \
    } while (0);
    CUDA_DRIVER(BIND)
#undef BIND
    int device = 0, error = missing ? 0 : cuda->cuInit(0);
    void *context = NULL;
    if (!missing && !error) error = cuda->cuDeviceGet(&device, 0);
    if (!missing && !error) error = cuda->cuDevicePrimaryCtxRetain(&context, device);
    if (!missing && !error) error = cuda->cuCtxSetCurrent(context);
    if (missing) snprintf(why, why_bytes, "no %s", missing);
    if (error) snprintf(why, why_bytes, "the card's primary context: error %d", error);
    return !missing && !error;
}

int cuda_start(const cuda_driver *cuda, void *function, unsigned grid, const unsigned block[2],
               unsigned shared_bytes, int cluster, bool dependent, void **args, void *stream) {
    cuda_attribute attributes[2];
    cuda_launch launch = {.grid = {grid, 1, 1},
                          .block = {block[0], block[1], 1},
                          .shared_bytes = shared_bytes,
                          .stream = stream,
                          .attributes = attributes};
    memset(attributes, 0, sizeof attributes);
    if (cluster > 1) {
        cuda_attribute *to = &attributes[launch.attribute_count++];
        to->id = ATTRIBUTE_CLUSTER;
        to->value.cluster[0] = (unsigned)cluster;
        to->value.cluster[1] = to->value.cluster[2] = 1;
    }
    if (dependent) {
        cuda_attribute *edge = &attributes[launch.attribute_count++];
        edge->id = ATTRIBUTE_DEPENDENT;
        edge->value.dependent = 1;
    }
    return cuda->cuLaunchKernelEx(&launch, function, args, NULL);
}
