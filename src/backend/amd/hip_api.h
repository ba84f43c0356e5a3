// SPDX-License-Identifier: Apache-2.0
// The few functions of the HIP runtime that the backend calls, declared anew: prototypes, numbers and layouts as ROCm 6, 7 and
// 10 have them (tests/data/hip_functions.txt says where each was looked up). hipGetDevicePropertiesR0600 is ROCm 6's name for the layout that is current since.
#ifndef RDI_AMD_HIP_API_H
#define RDI_AMD_HIP_API_H

#include "backend/backend.h"

enum {
    HIP_SUCCESS = 0,
    HIP_OUT_OF_MEMORY = 2,
    HIP_INSUFFICIENT_DRIVER = 35,
    HIP_NO_DEVICE = 100,
    HIP_NOT_READY = 600,
    HIP_PEER_ALREADY_ENABLED = 704
};
enum { HIP_TO_DEVICE = 1, HIP_TO_HOST = 2, HIP_ON_DEVICE = 3 }; // hipMemcpyKind
enum { HIP_STREAM_NON_BLOCKING = 1, HIP_CAPTURE_THREAD_LOCAL = 1 };

// hipDeviceProp_tR0600 as far as it is read; the offsets are those of the public header (1472 bytes in all).
enum { HIP_PROPERTY_BYTES = 1472, HIP_PROPERTY_ROOM = 4096 }; // room: a later runtime may append
typedef union hip_properties {
    char name[256];
    struct {
        char before[288];
        size_t total_bytes;
    } memory;
    struct {
        char before[388];
        int count; // work-group processors, each of two compute units, on gfx10 and later
    } processors;
    struct {
        char before[616];
        int bytes;
    } l2;
    struct {
        char before[1160];
        char text[256]; // "gfx1201" or "gfx1201:sramecc-:xnack-"
    } arch;
    char room[HIP_PROPERTY_ROOM];
} hip_properties;

// F(name, parameters): each returns hipError_t, an int.
#define HIP_FUNCTIONS(F)                                                                                     \
    F(hipInit, (unsigned flags))                                                                             \
    F(hipDriverGetVersion, (int *version))                                                                   \
    F(hipRuntimeGetVersion, (int *version))                                                                  \
    F(hipGetDeviceCount, (int *count))                                                                       \
    F(hipSetDevice, (int device))                                                                            \
    F(hipGetDevicePropertiesR0600, (hip_properties * properties, int device))                                \
    F(hipGetLastError, (void))                                                                               \
    F(hipDeviceEnablePeerAccess, (int peer, unsigned flags))                                                 \
    F(hipMalloc, (void **out, size_t bytes))                                                                 \
    F(hipFree, (void *pointer))                                                                              \
    F(hipHostMalloc, (void **out, size_t bytes, unsigned flags))                                             \
    F(hipHostFree, (void *pointer))                                                                          \
    F(hipMemGetInfo, (size_t * free_bytes, size_t * total_bytes))                                            \
    F(hipMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, void *stream))                    \
    F(hipMemcpyPeerAsync,                                                                                    \
      (void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream))              \
    F(hipMemsetAsync, (void *to, int value, size_t bytes, void *stream))                                     \
    F(hipStreamCreateWithFlags, (void **out, unsigned flags))                                                \
    F(hipStreamDestroy, (void *stream))                                                                      \
    F(hipStreamSynchronize, (void *stream))                                                                  \
    F(hipStreamQuery, (void *stream))                                                                        \
    F(hipStreamWaitEvent, (void *stream, void *event, unsigned flags))                                       \
    F(hipEventCreate, (void **out))                                                                          \
    F(hipEventDestroy, (void *event))                                                                        \
    F(hipEventRecord, (void *event, void *stream))                                                           \
    F(hipEventSynchronize, (void *event))                                                                    \
    F(hipEventElapsedTime, (float *milliseconds, void *start, void *stop))                                   \
    F(hipModuleLoadData, (void **out, const void *image))                                                    \
    F(hipModuleUnload, (void *module))                                                                       \
    F(hipModuleGetFunction, (void **out, void *module, const char *name))                                    \
    F(hipModuleLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,   \
                              void *stream, void **params, void **extra))                                    \
    F(hipStreamBeginCapture, (void *stream, int mode))                                                       \
    F(hipStreamEndCapture, (void *stream, void **graph))                                                     \
    F(hipGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags))                    \
    F(hipGraphLaunch, (void *exec, void *stream))                                                            \
    F(hipGraphExecDestroy, (void *exec))                                                                     \
    F(hipGraphDestroy, (void *graph))

// One loaded runtime. Kept for the life of the process: the vendor's library does not survive being unloaded.
typedef struct hip_library {
    char path[256];
    void *handle;
    int device_count;
    int driver_version, runtime_version; // 10000000 * major + 100000 * minor + patch
    char why[640];                       // what is missing when device_count is 0
    const char *(*error_name)(int error);
    const char *(*error_text)(int error);
    size_t (*fault_text)(int device, char *text, size_t bytes); // our simulator alone: else NULL
#define HIP_MEMBER(name_, params_) int(*name_) params_;
    HIP_FUNCTIONS(HIP_MEMBER)
#undef HIP_MEMBER
    struct hip_library *next;
} hip_library;

// library: path or name, NULL = RADIANCE_HIP_LIBRARY or the usual names. NULL with `why` filled when none can be loaded.
// A library without devices is returned, with its own `why`.
hip_library *rdi_hip_library_get(const char *library, char *why, size_t why_bytes);

typedef struct hip_card {
    rdi_card card; // first
    hip_library *hip;
    int device;
    char model[256], arch[32], version[128];
} hip_card;

#endif // RDI_AMD_HIP_API_H
