// SPDX-License-Identifier: Apache-2.0
// A CUDA driver with nothing behind it, for the host logic of the backend: memory is the host's, launches are counted, handles are
// numbers. Every call is written to a log, and the n-th from now can be made to fail, alone or with all that come after it, as
// after a kernel's fault. Counts of what is open show leaks: what a failing release was asked to give back counts as given.
// FAKE_CUDA=none, old, sm80, idle (no multiprocessors), small (16 MiB) or broken is what a command's process sees; FAKE_CUDA_LAUNCHED names a file that
// takes a line for each kernel that was launched, at the end.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_ENTRIES = 4096, ALLOCATIONS = 256, CONTEXT = 77, FUNCTIONS = 1024 };
static struct {
    char name[96];
    int launches;
} functions[FUNCTIONS]; // a handle is 1 + a place here
static int function_count;
static void *allocation[ALLOCATIONS];
static const char *log_names[LOG_ENTRIES];
static int log_count, call_count, fail_at, fail_with, sticky, major = 9, driver = 13000, device_count = 1,
                                                              processors = 132, init_error, shared_of_launch,
                                                              dependent_of_launch;
static int launches;
static int open_memory, open_streams, open_events, open_modules, open_graphs, open_contexts, context_depth;
static void *current; // of a host program
static size_t free_memory, total_memory;
static unsigned char args_of_launch[512];

// ---- what a test sets and reads; a reset forgets what is open ----------------------------------------------------------------------------------
void fake_cuda_reset(int architecture_major, int driver_version, int devices) {
    log_count = call_count = fail_at = sticky = launches = 0;
    major = architecture_major;
    driver = driver_version;
    device_count = devices;
    current = NULL;
    free_memory = total_memory = (size_t)141 << 30;
    for (int slot = 0; slot < ALLOCATIONS; slot++) free(allocation[slot]), allocation[slot] = NULL;
    open_memory = open_streams = open_events = open_modules = open_graphs = open_contexts = context_depth = 0;
}
void fake_cuda_fail(int nth, int error) {
    fail_at = nth;
    fail_with = error;
}
// From the n-th call on every one fails, but for those that only turn contexts over: a fault that a kernel left behind.
void fake_cuda_break(int nth, int error) {
    fake_cuda_fail(nth, error);
    sticky = 1;
}
int fake_cuda_calls(void) {
    return call_count;
}
int fake_cuda_launches(void) {
    return launches;
}
__attribute__((constructor)) static void read_mode(void) {
    fake_cuda_reset(major, driver, device_count);
    const char *mode = getenv("FAKE_CUDA");
    if (!mode) return;
    if (!strcmp(mode, "none")) device_count = 0;
    if (!strcmp(mode, "old")) driver = 11080;
    if (!strcmp(mode, "sm80")) major = 8;
    if (!strcmp(mode, "idle")) processors = 0;
    if (!strcmp(mode, "small")) free_memory = total_memory = (size_t)16 << 20;
    if (!strcmp(mode, "broken")) init_error = 999;
}
__attribute__((destructor)) static void write_launched(void) {
    const char *path = getenv("FAKE_CUDA_LAUNCHED");
    FILE *file = path ? fopen(path, "a") : NULL;
    for (int at = 0; file && at < function_count; at++)
        if (functions[at].launches) fprintf(file, "%s\n", functions[at].name);
    if (file) fclose(file);
}
const char *fake_cuda_call(int index) { // "": more than the log holds
    return index < log_count ? log_names[index] : "";
}
int fake_cuda_open(void) {
    return open_memory + open_streams + open_events + open_modules + open_graphs + open_contexts +
           context_depth;
}
void fake_cuda_set_memory(size_t free_bytes,
                          size_t total_bytes) { // what the driver says of it, until the next reset
    free_memory = free_bytes;
    total_memory = total_bytes;
}
void fake_cuda_set_current(void *context) {
    current = context;
}
int fake_cuda_last_shared(void) {
    return shared_of_launch;
}
int fake_cuda_last_dependent(void) {
    return dependent_of_launch;
}
const unsigned char *fake_cuda_last_args(void) {
    return args_of_launch;
}

static int note(const char *call) {
    if (log_count < LOG_ENTRIES) log_names[log_count++] = call;
    call_count++;
    if (!fail_at) return 0;
    if (fail_at > 1) return fail_at--, 0;
    fail_at = sticky;
    return fail_with;
}
// A release gives back first, whatever it then says.
#define ENTER_RELEASE(give_)                                                                                 \
    do {                                                                                                     \
        int error_ = note(__func__);                                                                         \
        if (!context_depth) return 201;                                                                      \
        give_;                                                                                               \
        return error_;                                                                                       \
    } while (0)
#define ENTER                                                                                                \
    do {                                                                                                     \
        int error_ = note(__func__);                                                                         \
        if (error_) return error_;                                                                           \
    } while (0)
// Calls that need a context fail without one, as the driver's do.
#define ENTER_CONTEXT                                                                                        \
    do {                                                                                                     \
        ENTER;                                                                                               \
        if (!context_depth) return 201;                                                                      \
    } while (0)

// ---- errors, devices, contexts -------------------------------------------------------------------------------------
int cuInit(unsigned flags) {
    (void)flags;
    ENTER;
    return init_error;
}
int cuDriverGetVersion(int *version) {
    *version = driver;
    return 0;
}
int cuGetErrorName(int error, const char **text) {
    *text = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == 201 ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
                           : "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuGetErrorString(int error, const char **text) {
    *text = error == 700 ? "an illegal memory access was encountered" : "what the driver says";
    return 0;
}
int cuDeviceGetCount(int *count) {
    ENTER;
    *count = device_count;
    return device_count ? 0 : 100;
}
int cuDeviceGet(int *device, int index) {
    ENTER;
    *device = index;
    return 0;
}
int cuDeviceGetName(char *name, int bytes, int device) {
    (void)device;
    ENTER;
    strncpy(name, "NVIDIA Fake", (size_t)bytes - 1);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    ENTER;
    *value = attribute == 13   ? 1980000
             : attribute == 16 ? processors
             : attribute == 36 ? 3201000
             : attribute == 37 ? 6144
             : attribute == 38 ? 50 << 20
             : attribute == 75 ? major
             : attribute == 97 ? 232448
                               : 0;
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    ENTER;
    *bytes = (size_t)141 << 30;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    ENTER;
    *context = (void *)(uintptr_t)CONTEXT;
    open_contexts++;
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    open_contexts--;
    return note(__func__);
}
int cuCtxGetCurrent(void **context) {
    ENTER;
    *context = current;
    return 0;
}
int cuCtxGetDevice(int *device) {
    ENTER;
    *device = 0;
    return current ? 0 : 201;
}
int cuCtxPushCurrent_v2(void *context) {
    (void)context;
    if (!sticky || fail_at > 1) ENTER;
    context_depth++;
    return 0;
}
int cuCtxPopCurrent_v2(void **context) {
    *context = NULL;
    context_depth--;
    return 0;
}

// ---- memory ----------------------------------------------------------------------------------------------------
static int take(void **out, size_t bytes) {
    size_t rounded = (bytes + 255) / 256 * 256;
    int slot = 0;
    while (slot < ALLOCATIONS && allocation[slot]) slot++;
    *out = slot < ALLOCATIONS ? aligned_alloc(256, rounded) : NULL;
    if (!*out) return 2;
    allocation[slot] = *out;
    memset(*out, 0, rounded); // what kernels that do nothing leave is the same in every run
    open_memory++;
    return 0;
}
static void give(void *pointer) {
    for (int slot = 0; slot < ALLOCATIONS; slot++)
        if (allocation[slot] == pointer) allocation[slot] = NULL;
    free(pointer);
    open_memory--;
}
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    ENTER_CONTEXT;
    *free_bytes = free_memory;
    *total_bytes = total_memory;
    return 0;
}
int cuMemAlloc_v2(void **out, size_t bytes) {
    ENTER_CONTEXT;
    return take(out, bytes);
}
int cuMemFree_v2(void *pointer) {
    ENTER_RELEASE(give(pointer));
}
int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT;
    return take(out, bytes);
}
int cuMemFreeHost(void *pointer) {
    ENTER_RELEASE(give(pointer));
}
int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    ENTER_CONTEXT;
    memcpy(to, from, bytes);
    return 0;
}
int cuMemcpyPeerAsync(void *to, void *to_context, const void *from, void *from_context, size_t bytes,
                      void *stream) {
    (void)to_context, (void)from_context, (void)stream;
    ENTER_CONTEXT;
    memcpy(to, from, bytes);
    return 0;
}
int cuMemsetD8Async(void *to, unsigned char byte, size_t bytes, void *stream) {
    (void)stream;
    ENTER_CONTEXT;
    memset(to, byte, bytes);
    return 0;
}

// ---- handles: numbers, counted -----------------------------------------------------------------------------------
#define MAKES(name_, params_, counter_)                                                                      \
    int name_ params_ {                                                                                      \
        ENTER_CONTEXT;                                                                                       \
        *out = (void *)(uintptr_t)(100 + ++counter_);                                                        \
        return 0;                                                                                            \
    }
#define ENDS(name_, counter_)                                                                                \
    int name_(void *handle) {                                                                                \
        (void)handle;                                                                                        \
        ENTER_RELEASE(counter_--);                                                                           \
    }
#define PASSES(name_, params_)                                                                               \
    int name_ params_ {                                                                                      \
        ENTER_CONTEXT;                                                                                       \
        return 0;                                                                                            \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
MAKES(cuStreamCreate, (void **out, unsigned flags), open_streams)
ENDS(cuStreamDestroy_v2, open_streams)
PASSES(cuStreamSynchronize, (void *stream))
PASSES(cuStreamQuery, (void *stream))
PASSES(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))
MAKES(cuEventCreate, (void **out, unsigned flags), open_events)
ENDS(cuEventDestroy_v2, open_events)
PASSES(cuEventRecord, (void *event, void *stream))
PASSES(cuEventSynchronize, (void *event))
int cuEventElapsedTime(float *milliseconds, void *start, void *stop) {
    ENTER_CONTEXT;
    *milliseconds = 0.25f;
    return 0;
}
MAKES(cuModuleLoadData, (void **out, const void *image), open_modules)
ENDS(cuModuleUnload, open_modules)
int cuModuleGetFunction(void **out, void *module, const char *name) {
    ENTER_CONTEXT;
    int at = 0;
    while (at < function_count && strcmp(functions[at].name, name)) at++;
    if (at == FUNCTIONS || strlen(name) >= sizeof functions[at].name) return 500; // not found
    if (at == function_count) strcpy(functions[function_count++].name, name);
    *out = (void *)(uintptr_t)(at + 1);
    return 0;
}
PASSES(cuFuncSetAttribute, (void *function, int attribute, int value))
PASSES(cuStreamBeginCapture_v2, (void *stream, int mode))
MAKES(cuStreamEndCapture, (void *stream, void **out), open_graphs)
MAKES(cuGraphInstantiateWithFlags, (void **out, void *graph, unsigned long long flags), open_graphs)
PASSES(cuGraphLaunch, (void *exec, void *stream))
ENDS(cuGraphExecDestroy, open_graphs)
int cuGraphDestroy(void *graph) {
    open_graphs--;
    return 0;
}

// ---- launches: the public layout of CUlaunchConfig --------------------------------------------------------------------
struct config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    struct {
        int id, pad, value[16];
    } * attributes;
    unsigned attribute_count;
};
int cuLaunchKernelEx(const struct config *config, void *function, void **params, void **extra) {
    ENTER_CONTEXT;
    launches++;
    functions[(uintptr_t)function - 1].launches++;
    shared_of_launch = (int)config->shared_bytes;
    dependent_of_launch =
        config->attribute_count == 1 && config->attributes[0].id == 6 && config->attributes[0].value[0] == 1;
    memcpy(args_of_launch, params[0], sizeof args_of_launch);
    return 0;
}
// A map becomes its own box and address, so that a test sees where it went.
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *base, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int promotion, int fill) {
    ENTER_CONTEXT;
    if ((uintptr_t)map % 64 || (uintptr_t)base % 16 || rank < 2 || rank > 5) return 1;
    for (unsigned i = 0; i + 1 < rank; i++)
        if (strides[i] % 16 || !dims[i + 1] || !box[i] || box[i] > 256) return 1;
    memset(map, 0, 128);
    memcpy(map, &base, sizeof base);
    memcpy((char *)map + 8, box, 8);
    return 0;
}
