// SPDX-License-Identifier: Apache-2.0
// The NVIDIA driver: the backend's vtable over the CUDA driver API. Each call pushes the card's context and pops it again, so
// that the host program's current context stays as it was.
#include "backend/nvidia/cuda_api.h"

#include <stdio.h>
#include <string.h>

static cuda_card *cuda_of(rdi_card *card) {
    return (cuda_card *)card;
}

static rd_status fail(const rdi_card *card, const char *call, int error) {
    const cuda_card *at = (const cuda_card *)card;
    const char *name = NULL, *text = NULL;
    at->cuda->cuGetErrorName(error, &name);
    at->cuda->cuGetErrorString(error, &text);
    rd_status status = error == CUDA_OUT_OF_MEMORY ? RD_E_NOMEM
                       : error == CUDA_NO_DEVICE   ? RD_E_NO_DEVICE
                                                   : RD_E_DEVICE;
    return rdi_fail(status, "%s: %s: %s (%s)", card->name, call, name ? name : "unknown",
                    text ? text : "no text");
}

static int enter(cuda_card *at) {
    return at->cuda->cuCtxPushCurrent_v2(at->context);
}
static void leave(cuda_card *at) {
    void *context;
    at->cuda->cuCtxPopCurrent_v2(&context);
}

// Calls within the card's context; `return` of the enclosing function on failure.
#define CUDA_CALL(card_, name_, ...)                                                                         \
    do {                                                                                                     \
        cuda_card *at_ = cuda_of(card_);                                                                     \
        int error_ = enter(at_);                                                                             \
        if (error_ != CUDA_SUCCESS) return fail(card_, "cuCtxPushCurrent_v2", error_);                       \
        error_ = at_->cuda->name_(__VA_ARGS__);                                                              \
        leave(at_);                                                                                          \
        if (error_ != CUDA_SUCCESS) return fail(card_, #name_, error_);                                      \
    } while (0)

// ---- probe ------------------------------------------------------------------------------------------------------
static int32_t count(const char *library, char *why, size_t why_bytes) {
    cuda_library *cuda = rdi_cuda_library_get(library, why, why_bytes);
    if (!cuda) return 0;
    if (!cuda->device_count) snprintf(why, why_bytes, "%s", cuda->why);
    return cuda->device_count;
}

static rd_status attribute(cuda_card *at, int which, int *value) {
    int error = at->cuda->cuDeviceGetAttribute(value, which, at->device);
    return error == CUDA_SUCCESS ? RD_OK : fail(&at->card, "cuDeviceGetAttribute", error);
}

static rd_status describe(cuda_card *at, rd_device_info *info, uint32_t *isa) {
    int major = 0, minor = 0, processors = 0, l2 = 0, clock = 0, memory_clock = 0, memory_bits = 0;
    size_t bytes = 0;
    RDI_TRY(attribute(at, CUDA_MAJOR, &major));
    RDI_TRY(attribute(at, CUDA_MINOR, &minor));
    RDI_TRY(attribute(at, CUDA_PROCESSORS, &processors));
    RDI_TRY(attribute(at, CUDA_L2_BYTES, &l2));
    RDI_TRY(attribute(at, CUDA_CLOCK_KHZ, &clock));
    RDI_TRY(attribute(at, CUDA_MEMORY_CLOCK_KHZ, &memory_clock));
    RDI_TRY(attribute(at, CUDA_MEMORY_BITS, &memory_bits));
    RDI_TRY(attribute(at, CUDA_SHARED_BYTES_OF_A_BLOCK, &at->shared_limit));
    int error = at->cuda->cuDeviceGetName(at->model, (int)sizeof at->model, at->device);
    if (error != CUDA_SUCCESS) return fail(&at->card, "cuDeviceGetName", error);
    error = at->cuda->cuDeviceTotalMem_v2(&bytes, at->device);
    if (error != CUDA_SUCCESS) return fail(&at->card, "cuDeviceTotalMem_v2", error);
    bool ours = major == 9 && minor == 0; // sm_90a code runs on this compute capability alone
    snprintf(at->arch, sizeof at->arch, "sm_%d%d%s", major, minor, ours ? "a" : "");
    snprintf(at->version, sizeof at->version, "CUDA driver %d.%d", at->cuda->driver_version / 1000,
             at->cuda->driver_version % 1000 / 10);
    *isa = ours ? RDI_ISA_SM90A : RDI_ISA_NONE;
    info->backend = "nvidia";
    info->arch = at->arch;
    info->isa = ours ? "sm_90a" : "";
    info->model = at->model;
    info->compute_units = info->performance_cores = processors;
    info->l2_bytes = l2;
    info->lds_bytes = at->shared_limit;
    info->memory_bytes = (int64_t)bytes;
    at->card.rates =
        (rdi_rates){clock / 1000, 2.0 * memory_clock * memory_bits / 8 * 1e-6}; // both edges of the clock
    return RD_OK;
}

// The host program's current context, when it is one of this card: memory is a context's own. Else the primary one.
static rd_status take_context(cuda_card *at) {
    void *current = NULL;
    int device = -1;
    if (at->cuda->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
        at->cuda->cuCtxGetDevice(&device) == CUDA_SUCCESS && device == at->device) {
        at->context = current;
        return RD_OK;
    }
    int error = at->cuda->cuDevicePrimaryCtxRetain(&at->context, at->device);
    if (error != CUDA_SUCCESS) return fail(&at->card, "cuDevicePrimaryCtxRetain", error);
    at->retained = true;
    return RD_OK;
}

static void close(rdi_card *card) {
    cuda_card *at = cuda_of(card);
    if (at->retained) at->cuda->cuDevicePrimaryCtxRelease_v2(at->device);
    rdi_free(at);
}

static rd_status open(const char *library, int32_t index, rd_device_info *info, uint32_t *isa,
                      rdi_card **out) {
    char why[512] = "";
    cuda_library *cuda = rdi_cuda_library_get(library, why, sizeof why);
    if (!cuda) return rdi_fail(RD_E_NO_DEVICE, "%s", why);
    if (index < 0 || index >= cuda->device_count)
        return rdi_fail(RD_E_NO_DEVICE, "%s", cuda->device_count ? "no such card" : cuda->why);
    cuda_card *at = rdi_calloc(1, sizeof *at);
    if (!at) return RD_E_NOMEM;
    at->cuda = cuda;
    snprintf(at->card.name, sizeof at->card.name, "card %d", index);
    int error = cuda->cuDeviceGet(&at->device, index);
    rd_status status =
        error == CUDA_SUCCESS ? describe(at, info, isa) : fail(&at->card, "cuDeviceGet", error);
    if (status == RD_OK) status = take_context(at);
    if (status != RD_OK) {
        rdi_free(at);
        return status;
    }
    *out = &at->card;
    return RD_OK;
}

static const char *version(const rdi_card *card) {
    return ((const cuda_card *)card)->version;
}

// ---- memory -----------------------------------------------------------------------------------------------------
static rd_status memory(rdi_card *card, size_t *free_bytes, size_t *total_bytes) {
    CUDA_CALL(card, cuMemGetInfo_v2, free_bytes, total_bytes);
    return RD_OK;
}

static rd_status alloc(rdi_card *card, size_t bytes, void **out) {
    cuda_card *at = cuda_of(card);
    size_t free_bytes = 0, total_bytes = 0;
    *out = NULL;
    int error = enter(at);
    if (error != CUDA_SUCCESS) return fail(card, "cuCtxPushCurrent_v2", error);
    error = at->cuda->cuMemAlloc_v2(out, bytes ? bytes : 1);
    if (error == CUDA_OUT_OF_MEMORY) at->cuda->cuMemGetInfo_v2(&free_bytes, &total_bytes);
    leave(at);
    if (error == CUDA_OUT_OF_MEMORY)
        return rdi_fail(RD_E_NOMEM, "%s: out of memory: %zu bytes asked, %zu of %zu free", card->name, bytes,
                        free_bytes, total_bytes);
    return error == CUDA_SUCCESS ? RD_OK : fail(card, "cuMemAlloc_v2", error);
}
static rd_status free_memory(rdi_card *card, void *pointer) {
    CUDA_CALL(card, cuMemFree_v2, pointer);
    return RD_OK;
}
static rd_status host_alloc(rdi_card *card, size_t bytes, void **out) {
    CUDA_CALL(card, cuMemHostAlloc, out, bytes ? bytes : 1, 0);
    return RD_OK;
}
static rd_status host_free(rdi_card *card, void *pointer) {
    CUDA_CALL(card, cuMemFreeHost, pointer);
    return RD_OK;
}

static rd_status copy(rdi_card *card, void *to, const void *from, size_t bytes, rdi_copy direction,
                      void *stream) {
    (void)direction; // addresses are unified: the driver sees which side each is on
    if (!bytes) return RD_OK;
    CUDA_CALL(card, cuMemcpyAsync, to, from, bytes, stream);
    return RD_OK;
}
static rd_status copy_peer(rdi_card *card, void *to, rdi_card *from_card, const void *from, size_t bytes,
                           void *stream) {
    cuda_card *at = cuda_of(card), *peer = cuda_of(from_card);
    if (at->cuda != peer->cuda)
        return rdi_fail(RD_E_UNSUPPORTED, "%s and %s belong to two drivers: copy through the host",
                        card->name, from_card->name);
    if (!bytes) return RD_OK;
    CUDA_CALL(card, cuMemcpyPeerAsync, to, at->context, from, peer->context, bytes, stream);
    return RD_OK;
}
static rd_status set(rdi_card *card, void *to, uint8_t byte, size_t bytes, void *stream) {
    if (!bytes) return RD_OK;
    CUDA_CALL(card, cuMemsetD8Async, to, byte, bytes, stream);
    return RD_OK;
}

// ---- streams, events --------------------------------------------------------------------------------------------
static rd_status stream_create(rdi_card *card, void **out) {
    CUDA_CALL(card, cuStreamCreate, out, CUDA_STREAM_NON_BLOCKING);
    return RD_OK;
}
static rd_status stream_free(rdi_card *card, void *stream) {
    CUDA_CALL(card, cuStreamDestroy_v2, stream);
    return RD_OK;
}
static rd_status stream_sync(rdi_card *card, void *stream) {
    CUDA_CALL(card, cuStreamSynchronize, stream);
    return RD_OK;
}
static rd_status stream_ready(rdi_card *card, void *stream, bool *ready) {
    cuda_card *at = cuda_of(card);
    int error = enter(at);
    if (error == CUDA_SUCCESS) {
        error = at->cuda->cuStreamQuery(stream);
        leave(at);
    }
    *ready = error == CUDA_SUCCESS;
    return error == CUDA_SUCCESS || error == CUDA_NOT_READY ? RD_OK : fail(card, "cuStreamQuery", error);
}
static rd_status event_create(rdi_card *card, void **out) {
    CUDA_CALL(card, cuEventCreate, out, 0);
    return RD_OK;
}
static rd_status event_free(rdi_card *card, void *event) {
    CUDA_CALL(card, cuEventDestroy_v2, event);
    return RD_OK;
}
static rd_status event_record(rdi_card *card, void *event, void *stream) {
    CUDA_CALL(card, cuEventRecord, event, stream);
    return RD_OK;
}
static rd_status event_wait(rdi_card *card, void *event, void *stream) {
    CUDA_CALL(card, cuStreamWaitEvent, stream, event, 0);
    return RD_OK;
}
static rd_status event_sync(rdi_card *card, void *event) {
    CUDA_CALL(card, cuEventSynchronize, event);
    return RD_OK;
}
static rd_status event_elapsed(rdi_card *card, void *start, void *stop, double *microseconds) {
    float milliseconds = 0;
    CUDA_CALL(card, cuEventElapsedTime, &milliseconds, start, stop);
    *microseconds = 1000.0 * (double)milliseconds;
    return RD_OK;
}

// ---- code -------------------------------------------------------------------------------------------------------
static rd_status module_load(rdi_card *card, const void *image, size_t bytes, void **out) {
    (void)bytes; // the image is a fat binary: the driver reads its length there
    CUDA_CALL(card, cuModuleLoadData, out, image);
    return RD_OK;
}
static rd_status module_free(rdi_card *card, void *module) {
    CUDA_CALL(card, cuModuleUnload, module);
    return RD_OK;
}
// What the compiler gave the kernel of itself: it counts towards a block's limit.
static int static_shared_bytes(const char *symbol) {
    for (int32_t i = 0; i < rdi_code_object_count; i++)
        for (int32_t k = 0; k < rdi_code_objects[i].kernel_count; k++)
            if (!strcmp(rdi_code_objects[i].kernels[k].symbol, symbol))
                return rdi_code_objects[i].kernels[k].shared_bytes;
    return 0;
}

// Every kernel may ask for all the shared memory that a block can have; a launch says how much it takes.
static rd_status module_kernel(rdi_card *card, void *module, const char *symbol, void **out) {
    cuda_card *at = cuda_of(card);
    CUDA_CALL(card, cuModuleGetFunction, out, module, symbol);
    CUDA_CALL(card, cuFuncSetAttribute, *out, CUDA_KERNEL_SHARED_BYTES,
              at->shared_limit - static_shared_bytes(symbol));
    CUDA_CALL(card, cuFuncSetAttribute, *out, CUDA_KERNEL_CARVEOUT,
              100); // percent: blocks side by side need it
    return RD_OK;
}

static int encode_map(const cuda_library *cuda, const rdi_tensor_map *map, void *to) {
    static const uint32_t steps[4] = {1, 1, 1, 1};
    int type = map->elem_bytes == 1 ? 0 : map->elem_bytes == 2 ? 1 : 2; // unsigned integers of 8, 16, 32 bits
    int swizzle = map->swizzle_bytes == 32    ? 1
                  : map->swizzle_bytes == 64  ? 2
                  : map->swizzle_bytes == 128 ? 3
                                              : 0;
    return cuda->cuTensorMapEncodeTiled(to, type, map->rank, (void *)(uintptr_t)map->base, map->dim,
                                        map->stride_bytes + 1, map->box, steps, 0, swizzle, 0, 0);
}

// Axes of a grid (CUDA programming guide, technical specifications). Geometries refuse what has no room in one, so this is a bug of one of
// them, and the driver's own text names neither axis nor kernel.
static rd_status check_grid(const rdi_card *card, const rdi_launch *launch) {
    static const uint32_t most[3] = {INT32_MAX, 65535, 65535};
    for (int i = 0; i < 3; i++)
        if (launch->grid[i] < 1 || launch->grid[i] > most[i])
            return rdi_fail(RD_E_INTERNAL, "%s: %s: grid[%d]=%u, needs 1 to %u", card->name, launch->kernel,
                            i, launch->grid[i], most[i]);
    return RD_OK;
}

static rd_status launch(rdi_card *card, void *kernel, const rdi_launch *launch, void *stream) {
    cuda_card *at = cuda_of(card);
    RDI_TRY(check_grid(card, launch));
    _Alignas(64) unsigned char args[RDI_LAUNCH_ARG_BYTES];
    memcpy(args, launch->args, launch->args_bytes);
    cuda_launch_attribute dependent = {.id = CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION, .value.programmatic = 1};
    cuda_launch_config config = {.grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
                                 .block = {launch->block[0], launch->block[1], launch->block[2]},
                                 .shared_bytes = launch->shared_bytes,
                                 .stream = stream,
                                 .attributes = &dependent,
                                 .attribute_count = launch->dependent ? 1 : 0};
    void *params[] = {args}; // the one by-value struct; the driver copies it
    const char *call = launch->kernel;
    int error = enter(at);
    if (error != CUDA_SUCCESS) return fail(card, "cuCtxPushCurrent_v2", error);
    for (uint32_t i = 0; i < launch->map_count && error == CUDA_SUCCESS; i++) {
        call = "cuTensorMapEncodeTiled";
        error = encode_map(at->cuda, &launch->map[i], args + launch->map[i].arg_offset);
    }
    if (error == CUDA_SUCCESS) {
        call = launch->kernel;
        error = at->cuda->cuLaunchKernelEx(&config, kernel, params, NULL);
    }
    leave(at);
    return error == CUDA_SUCCESS ? RD_OK : fail(card, call, error);
}

// ---- graphs -----------------------------------------------------------------------------------------------------
static rd_status graph_begin(rdi_card *card, void *stream) {
    CUDA_CALL(card, cuStreamBeginCapture_v2, stream, CUDA_CAPTURE_THREAD_LOCAL);
    return RD_OK;
}
static rd_status graph_end(rdi_card *card, void *stream, void **out) {
    cuda_card *at = cuda_of(card);
    void *graph = NULL;
    *out = NULL;
    CUDA_CALL(card, cuStreamEndCapture, stream, &graph);
    int error = enter(at);
    if (error == CUDA_SUCCESS) {
        error = at->cuda->cuGraphInstantiateWithFlags(out, graph, 0);
        leave(at);
    }
    at->cuda->cuGraphDestroy(graph);
    return error == CUDA_SUCCESS ? RD_OK : fail(card, "cuGraphInstantiateWithFlags", error);
}
static rd_status graph_launch(rdi_card *card, void *graph, void *stream) {
    CUDA_CALL(card, cuGraphLaunch, graph, stream);
    return RD_OK;
}
static rd_status graph_free(rdi_card *card, void *graph) {
    CUDA_CALL(card, cuGraphExecDestroy, graph);
    return RD_OK;
}

const rdi_driver rdi_nvidia_driver = {
    .backend = RDI_BACKEND_NVIDIA,
    .count = count,
    .open = open,
    .close = close,
    .version = version,
    .alloc = alloc,
    .free = free_memory,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .memory = memory,
    .copy = copy,
    .copy_peer = copy_peer,
    .set = set,
    .stream_create = stream_create,
    .stream_free = stream_free,
    .stream_sync = stream_sync,
    .stream_ready = stream_ready,
    .event_create = event_create,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
    .module_load = module_load,
    .module_free = module_free,
    .module_kernel = module_kernel,
    .launch = launch,
    .graph_begin = graph_begin,
    .graph_end = graph_end,
    .graph_launch = graph_launch,
    .graph_free = graph_free,
};
