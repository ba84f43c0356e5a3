// SPDX-License-Identifier: Apache-2.0
// The CUDA driver for what the benches start beside the library (a rival's kernels, an empty kernel): loaded at run time, types and
// numbers declared anew from NVIDIA's driver reference. No part of the library.
#ifndef BENCH_CUDA_H
#define BENCH_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cuda_tensor_map {
    _Alignas(64) uint64_t words[16];
} cuda_tensor_map;
typedef struct cuda_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        unsigned cluster[3];
        int dependent;
    } value;
} cuda_attribute;
typedef struct cuda_launch {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    cuda_attribute *attributes;
    unsigned attribute_count;
} cuda_launch;

// F(name, parameters): each returns a status, 0 = success.
#define CUDA_DRIVER(F)                                                                                       \
    F(cuInit, (unsigned flags))                                                                              \
    F(cuDeviceGet, (int *device, int index))                                                                 \
    F(cuDevicePrimaryCtxRetain, (void **context, int device))                                                \
    F(cuCtxSetCurrent, (void *context))                                                                      \
    F(cuModuleLoadData, (void **module, const void *image))                                                  \
    F(cuModuleGetFunction, (void **function, void *module, const char *name))                                \
    F(cuLibraryLoadFromFile,                                                                                 \
      (void **library, const char *path, void *a, void *b, unsigned c, void *d, void *e, unsigned f))        \
    F(cuLibraryEnumerateKernels, (void **kernels, unsigned count, void *library))                            \
    F(cuKernelGetFunction, (void **function, void *kernel))                                                  \
    F(cuFuncSetAttribute, (void *function, int which, int value))                                            \
    F(cuTensorMapEncodeTiled,                                                                                \
      (void *map, int type, uint32_t rank, void *base, const uint64_t *dim, const uint64_t *stride,          \
       const uint32_t *box, const uint32_t *step, int interleave, int swizzle, int promotion, int fill))     \
    F(cuLaunchKernelEx, (const cuda_launch *launch, void *function, void **args, void **extra))

typedef struct cuda_driver {
#define MEMBER(name_, params_) int(*name_) params_;
    CUDA_DRIVER(MEMBER)
#undef MEMBER
} cuda_driver;

// Loads the driver and makes the first card's primary context, in which the library's memory lies, current on this thread. False with
// the reason in why.
bool cuda_open(cuda_driver *cuda, char *why, size_t why_bytes);
// Starts a kernel; cluster: blocks of one, 1 = none; dependent: programmatic dependent launch. 0 = started.
int cuda_start(const cuda_driver *cuda, void *function, unsigned grid, const unsigned block[2],
               unsigned shared_bytes, int cluster, bool dependent, void **args, void *stream);

#endif // BENCH_CUDA_H
