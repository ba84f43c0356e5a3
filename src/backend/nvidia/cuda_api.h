// SPDX-License-Identifier: Apache-2.0
// The few functions of the CUDA driver that the backend calls, declared anew: prototypes and numbers as NVIDIA's driver API
// reference has them (CUDA 12 and later; names with _v2 are the exported symbols of the current prototypes).
#ifndef RDI_NVIDIA_CUDA_API_H
#define RDI_NVIDIA_CUDA_API_H

#include "backend/backend.h"

enum {
    CUDA_SUCCESS = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_NOT_READY = 600,
    CUDA_INSUFFICIENT_DRIVER = 803 // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
};
enum { // CUdevice_attribute
    CUDA_CLOCK_KHZ = 13,
    CUDA_PROCESSORS = 16,
    CUDA_MEMORY_CLOCK_KHZ = 36,
    CUDA_MEMORY_BITS = 37,
    CUDA_L2_BYTES = 38,
    CUDA_MAJOR = 75,
    CUDA_MINOR = 76,
    CUDA_SHARED_BYTES_OF_A_BLOCK = 97
};
enum { CUDA_KERNEL_SHARED_BYTES = 8, CUDA_KERNEL_CARVEOUT = 9 }; // CUfunction_attribute
enum { CUDA_STREAM_NON_BLOCKING = 1, CUDA_CAPTURE_THREAD_LOCAL = 1 };
enum { CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6 }; // CUlaunchAttributeID
enum { CUDA_OLDEST_DRIVER = 12000 };                 // tensor maps and dependent launch

typedef struct cuda_launch_attribute {
    int id, reserved;
    union {
        int programmatic;
        char room[64];
    } value;
} cuda_launch_attribute;
typedef struct cuda_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    cuda_launch_attribute *attributes;
    unsigned attribute_count;
} cuda_launch_config;

// F(name, parameters): each returns CUresult, an int. A CUdeviceptr is a 64-bit number, here a pointer.
#define CUDA_FUNCTIONS(F)                                                                                    \
    F(cuInit, (unsigned flags))                                                                              \
    F(cuDriverGetVersion, (int *version))                                                                    \
    F(cuGetErrorName, (int error, const char **text))                                                        \
    F(cuGetErrorString, (int error, const char **text))                                                      \
    F(cuDeviceGetCount, (int *count))                                                                        \
    F(cuDeviceGet, (int *device, int index))                                                                 \
    F(cuDeviceGetName, (char *name, int bytes, int device))                                                  \
    F(cuDeviceGetAttribute, (int *value, int attribute, int device))                                         \
    F(cuDeviceTotalMem_v2, (size_t * bytes, int device))                                                     \
    F(cuDevicePrimaryCtxRetain, (void **context, int device))                                                \
    F(cuDevicePrimaryCtxRelease_v2, (int device))                                                            \
    F(cuCtxGetCurrent, (void **context))                                                                     \
    F(cuCtxGetDevice, (int *device))                                                                         \
    F(cuCtxPushCurrent_v2, (void *context))                                                                  \
    F(cuCtxPopCurrent_v2, (void **context))                                                                  \
    F(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                          \
    F(cuMemAlloc_v2, (void **out, size_t bytes))                                                             \
    F(cuMemFree_v2, (void *pointer))                                                                         \
    F(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))                                            \
    F(cuMemFreeHost, (void *pointer))                                                                        \
    F(cuMemcpyAsync, (void *to, const void *from, size_t bytes, void *stream))                               \
    F(cuMemcpyPeerAsync,                                                                                     \
      (void *to, void *to_context, const void *from, void *from_context, size_t bytes, void *stream))        \
    F(cuMemsetD8Async, (void *to, unsigned char byte, size_t bytes, void *stream))                           \
    F(cuStreamCreate, (void **out, unsigned flags))                                                          \
    F(cuStreamDestroy_v2, (void *stream))                                                                    \
    F(cuStreamSynchronize, (void *stream))                                                                   \
    F(cuStreamQuery, (void *stream))                                                                         \
    F(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                                        \
    F(cuEventCreate, (void **out, unsigned flags))                                                           \
    F(cuEventDestroy_v2, (void *event))                                                                      \
    F(cuEventRecord, (void *event, void *stream))                                                            \
    F(cuEventSynchronize, (void *event))                                                                     \
    F(cuEventElapsedTime, (float *milliseconds, void *start, void *stop))                                    \
    F(cuModuleLoadData, (void **out, const void *image))                                                     \
    F(cuModuleUnload, (void *module))                                                                        \
    F(cuModuleGetFunction, (void **out, void *module, const char *name))                                     \
    F(cuFuncSetAttribute, (void *function, int attribute, int value))                                        \
    F(cuLaunchKernelEx, (const cuda_launch_config *config, void *function, void **params, void **extra))     \
    F(cuTensorMapEncodeTiled,                                                                                \
      (void *map, int type, unsigned rank, void *base, const uint64_t *dims, const uint64_t *strides,        \
       const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill))    \
    F(cuStreamBeginCapture_v2, (void *stream, int mode))                                                     \
    F(cuStreamEndCapture, (void *stream, void **graph))                                                      \
    F(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags))                     \
    F(cuGraphLaunch, (void *exec, void *stream))                                                             \
    F(cuGraphExecDestroy, (void *exec))                                                                      \
    F(cuGraphDestroy, (void *graph))

// One loaded driver library. Kept for the life of the process.
typedef struct cuda_library {
    char path[256];
    void *handle;
    int device_count, driver_version; // 1000 * major + 10 * minor
    char why[512];                    // what is missing when device_count is 0
#define CUDA_MEMBER(name_, params_) int(*name_) params_;
    CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
    struct cuda_library *next;
} cuda_library;

// library: path or name, NULL = RADIANCE_CUDA_LIBRARY or libcuda.so.1. NULL with `why` filled when none can be loaded.
// A library without devices is returned, with its own `why`.
cuda_library *rdi_cuda_library_get(const char *library, char *why, size_t why_bytes);

typedef struct cuda_card {
    rdi_card card; // first
    cuda_library *cuda;
    int device;
    void *context;
    bool retained; // the primary context, ours to release; else the host program's current one
    int shared_limit;
    char model[96], arch[16], version[64];
} cuda_card;

#endif // RDI_NVIDIA_CUDA_API_H
