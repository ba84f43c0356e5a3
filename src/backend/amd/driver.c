// SPDX-License-Identifier: Apache-2.0
// The AMD driver: the backend's vtable over the HIP runtime.
#include "backend/amd/hip_api.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static hip_card *hip_of(rdi_card *card) {
    return (hip_card *)card;
}

static rd_status fail(const rdi_card *card, const char *call, int error) {
    const hip_card *at = (const hip_card *)card;
    char fault[640] = "";
    // The simulator knows the instruction; a card's fault is a number.
    if (at->hip->fault_text) at->hip->fault_text(at->device, fault, sizeof fault);
    for (char *c = fault; *c; c++)
        if (*c == '\n') *c = c[1] ? ';' : 0;
    at->hip->hipGetLastError(); // clears it: the next caller's own error must not look like this one
    rd_status status = error == HIP_OUT_OF_MEMORY ? RD_E_NOMEM
                       : error == HIP_NO_DEVICE   ? RD_E_NO_DEVICE
                                                  : RD_E_DEVICE;
    return rdi_fail(status, "%s: %s: %s (%s)%s%s", card->name, call, at->hip->error_name(error),
                    at->hip->error_text(error), *fault ? ": " : "", fault);
}

// Makes the card current and calls; `return` of the enclosing function on failure.
#define HIP_CALL(card_, name_, ...)                                                                          \
    do {                                                                                                     \
        hip_card *at_ = hip_of(card_);                                                                       \
        int error_ = at_->hip->hipSetDevice(at_->device);                                                    \
        if (error_ == HIP_SUCCESS) error_ = at_->hip->name_(__VA_ARGS__);                                    \
        if (error_ != HIP_SUCCESS) return fail(card_, #name_, error_);                                       \
    } while (0)

// ---- probe ------------------------------------------------------------------------------------------------------
static int32_t count(const char *library, char *why, size_t why_bytes) {
    hip_library *hip = rdi_hip_library_get(library, why, why_bytes);
    if (!hip) return 0;
    if (!hip->device_count) snprintf(why, why_bytes, "%s", hip->why);
    return hip->device_count;
}

// The runtime, and the kernel's driver below it: AMD's own package says its version, else the kernel's stands for it.
static void write_version(hip_card *at) {
    char module[64] = "";
    struct utsname system;
    snprintf(at->version, sizeof at->version, "HIP %d.%d.%d", at->hip->runtime_version / 10000000,
             at->hip->runtime_version / 100000 % 100, at->hip->runtime_version % 100000);
    if (at->hip->fault_text) return; // the simulator has none
    FILE *file = fopen("/sys/module/amdgpu/version", "r");
    if (file && !fgets(module, sizeof module, file)) *module = 0;
    if (file) fclose(file);
    module[strcspn(module, "\n")] = 0;
    const size_t used = strlen(at->version);
    if (*module)
        snprintf(at->version + used, sizeof at->version - used, ", amdgpu %.40s", module);
    else if (uname(&system) == 0)
        snprintf(at->version + used, sizeof at->version - used, ", Linux %.60s", system.release);
}

static rd_status describe(hip_card *at, rd_device_info *info, uint32_t *isa) {
    hip_properties properties;
    memset(&properties, 0, sizeof properties);
    HIP_CALL(&at->card, hipGetDevicePropertiesR0600, &properties, at->device);
    snprintf(at->model, sizeof at->model, "%.*s", (int)sizeof at->model - 1, properties.name);
    size_t length = strcspn(properties.arch.text, ":"); // features follow the name
    snprintf(at->arch, sizeof at->arch, "%.*s",
             (int)(length < sizeof at->arch ? length : sizeof at->arch - 1), properties.arch.text);
    write_version(at);
    bool ours = !strcmp(at->arch, "gfx1201");
    *isa = ours ? RDI_ISA_GFX1201 : RDI_ISA_NONE;
    info->backend = "amd";
    info->arch = at->arch;
    info->isa = ours ? "gfx1201" : "";
    info->model = at->model;
    // HIP counts work-group processors from gfx10 on: two compute units each.
    info->compute_units = info->performance_cores = 2 * properties.processors.count;
    info->l2_bytes = properties.l2.bytes;
    info->lds_bytes = 64 * 1024; // of a work-group (docs/gfx1201.md)
    info->memory_bytes = (int64_t)properties.memory.total_bytes;
    return RD_OK;
}

static rd_status open(const char *library, int32_t index, rd_device_info *info, uint32_t *isa,
                      rdi_card **out) {
    char why[256] = "";
    hip_library *hip = rdi_hip_library_get(library, why, sizeof why);
    if (!hip) return rdi_fail(RD_E_NO_DEVICE, "%s", why);
    if (index < 0 || index >= hip->device_count)
        return rdi_fail(RD_E_NO_DEVICE, "%s", hip->device_count ? "no such card" : hip->why);
    hip_card *at = rdi_calloc(1, sizeof *at);
    if (!at) return RD_E_NOMEM;
    at->hip = hip;
    at->device = index;
    snprintf(at->card.name, sizeof at->card.name, "amd card %d", index);
    rd_status status = describe(at, info, isa);
    if (status != RD_OK) {
        rdi_free(at);
        return status;
    }
    *out = &at->card;
    return RD_OK;
}

static void close(rdi_card *card) {
    rdi_free(card);
}
static const char *version(const rdi_card *card) {
    return ((const hip_card *)card)->version;
}

// ---- memory -----------------------------------------------------------------------------------------------------
static rd_status memory(rdi_card *card, size_t *free_bytes, size_t *total_bytes) {
    HIP_CALL(card, hipMemGetInfo, free_bytes, total_bytes);
    return RD_OK;
}

static rd_status alloc(rdi_card *card, size_t bytes, void **out) {
    hip_card *at = hip_of(card);
    *out = NULL;
    int error = at->hip->hipSetDevice(at->device);
    if (error == HIP_SUCCESS) error = at->hip->hipMalloc(out, bytes ? bytes : 1);
    if (error == HIP_SUCCESS) return RD_OK;
    if (error != HIP_OUT_OF_MEMORY) return fail(card, "hipMalloc", error);
    size_t free_bytes = 0, total_bytes = 0;
    at->hip->hipGetLastError();
    at->hip->hipMemGetInfo(&free_bytes, &total_bytes);
    return rdi_fail(RD_E_NOMEM, "%s: out of memory: %zu bytes asked, %zu of %zu free", card->name, bytes,
                    free_bytes, total_bytes);
}
static rd_status free_memory(rdi_card *card, void *pointer) {
    HIP_CALL(card, hipFree, pointer);
    return RD_OK;
}
static rd_status host_alloc(rdi_card *card, size_t bytes, void **out) {
    HIP_CALL(card, hipHostMalloc, out, bytes ? bytes : 1, 0);
    return RD_OK;
}
static rd_status host_free(rdi_card *card, void *pointer) {
    HIP_CALL(card, hipHostFree, pointer);
    return RD_OK;
}

static rd_status copy(rdi_card *card, void *to, const void *from, size_t bytes, rdi_copy direction,
                      void *stream) {
    static const int kinds[] = {[RDI_COPY_TO_CARD] = HIP_TO_DEVICE,
                                [RDI_COPY_TO_HOST] = HIP_TO_HOST,
                                [RDI_COPY_ON_CARD] = HIP_ON_DEVICE};
    if (!bytes) return RD_OK;
    HIP_CALL(card, hipMemcpyAsync, to, from, bytes, kinds[direction], stream);
    return RD_OK;
}
static rd_status copy_peer(rdi_card *card, void *to, rdi_card *from_card, const void *from, size_t bytes,
                           void *stream) {
    hip_card *at = hip_of(card), *peer = hip_of(from_card);
    if (at->hip != peer->hip)
        return rdi_fail(RD_E_UNSUPPORTED, "%s and %s belong to two runtimes: copy through the host",
                        card->name, from_card->name);
    if (!bytes) return RD_OK;
    int error = at->hip->hipSetDevice(at->device);
    // Without peer access the runtime stages the copy: slower, and right.
    if (error == HIP_SUCCESS && at->device != peer->device &&
        at->hip->hipDeviceEnablePeerAccess(peer->device, 0) != HIP_SUCCESS)
        at->hip->hipGetLastError();
    HIP_CALL(card, hipMemcpyPeerAsync, to, at->device, from, peer->device, bytes, stream);
    return RD_OK;
}
static rd_status set(rdi_card *card, void *to, uint8_t byte, size_t bytes, void *stream) {
    if (!bytes) return RD_OK;
    HIP_CALL(card, hipMemsetAsync, to, byte, bytes, stream);
    return RD_OK;
}

// ---- streams, events --------------------------------------------------------------------------------------------
static rd_status stream_create(rdi_card *card, void **out) {
    HIP_CALL(card, hipStreamCreateWithFlags, out, HIP_STREAM_NON_BLOCKING);
    return RD_OK;
}
static rd_status stream_free(rdi_card *card, void *stream) {
    HIP_CALL(card, hipStreamDestroy, stream);
    return RD_OK;
}
static rd_status stream_sync(rdi_card *card, void *stream) {
    HIP_CALL(card, hipStreamSynchronize, stream);
    return RD_OK;
}
static rd_status stream_ready(rdi_card *card, void *stream, bool *ready) {
    hip_card *at = hip_of(card);
    int error = at->hip->hipSetDevice(at->device);
    if (error == HIP_SUCCESS) error = at->hip->hipStreamQuery(stream);
    *ready = error == HIP_SUCCESS;
    if (error == HIP_NOT_READY) at->hip->hipGetLastError(); // an answer, not an error
    return error == HIP_SUCCESS || error == HIP_NOT_READY ? RD_OK : fail(card, "hipStreamQuery", error);
}
static rd_status event_create(rdi_card *card, void **out) {
    HIP_CALL(card, hipEventCreate, out);
    return RD_OK;
}
static rd_status event_free(rdi_card *card, void *event) {
    HIP_CALL(card, hipEventDestroy, event);
    return RD_OK;
}
static rd_status event_record(rdi_card *card, void *event, void *stream) {
    HIP_CALL(card, hipEventRecord, event, stream);
    return RD_OK;
}
static rd_status event_wait(rdi_card *card, void *event, void *stream) {
    HIP_CALL(card, hipStreamWaitEvent, stream, event, 0);
    return RD_OK;
}
static rd_status event_sync(rdi_card *card, void *event) {
    HIP_CALL(card, hipEventSynchronize, event);
    return RD_OK;
}
static rd_status event_elapsed(rdi_card *card, void *start, void *stop, double *microseconds) {
    float milliseconds = 0;
    HIP_CALL(card, hipEventElapsedTime, &milliseconds, start, stop);
    *microseconds = 1000.0 * (double)milliseconds;
    return RD_OK;
}

// ---- code -------------------------------------------------------------------------------------------------------
static rd_status module_load(rdi_card *card, const void *image, size_t bytes, void **out) {
    (void)bytes; // the image is an ELF file: HIP reads its length there
    HIP_CALL(card, hipModuleLoadData, out, image);
    return RD_OK;
}
static rd_status module_free(rdi_card *card, void *module) {
    HIP_CALL(card, hipModuleUnload, module);
    return RD_OK;
}
static rd_status module_kernel(rdi_card *card, void *module, const char *symbol, void **out) {
    HIP_CALL(card, hipModuleGetFunction, out, module, symbol);
    return RD_OK;
}
static rd_status launch(rdi_card *card, void *kernel, const rdi_launch *launch, void *stream) {
    hip_card *at = hip_of(card);
    void *params[] = {(void *)launch->args}; // the one by-value struct; HIP copies it
    int error = at->hip->hipSetDevice(at->device);
    if (error == HIP_SUCCESS)
        error = at->hip->hipModuleLaunchKernel(kernel, launch->grid[0], launch->grid[1], launch->grid[2],
                                               launch->block[0], launch->block[1], launch->block[2],
                                               launch->shared_bytes, stream, params, NULL);
    return error == HIP_SUCCESS ? RD_OK : fail(card, launch->kernel, error);
}

// ---- graphs -----------------------------------------------------------------------------------------------------
static rd_status graph_begin(rdi_card *card, void *stream) {
    HIP_CALL(card, hipStreamBeginCapture, stream, HIP_CAPTURE_THREAD_LOCAL);
    return RD_OK;
}
static rd_status graph_end(rdi_card *card, void *stream, void **out) {
    hip_card *at = hip_of(card);
    void *graph = NULL;
    *out = NULL;
    HIP_CALL(card, hipStreamEndCapture, stream, &graph);
    int error = at->hip->hipGraphInstantiateWithFlags(out, graph, 0);
    at->hip->hipGraphDestroy(graph);
    return error == HIP_SUCCESS ? RD_OK : fail(card, "hipGraphInstantiateWithFlags", error);
}
static rd_status graph_launch(rdi_card *card, void *graph, void *stream) {
    HIP_CALL(card, hipGraphLaunch, graph, stream);
    return RD_OK;
}
static rd_status graph_free(rdi_card *card, void *graph) {
    HIP_CALL(card, hipGraphExecDestroy, graph);
    return RD_OK;
}

const rdi_driver rdi_amd_driver = {
    .backend = RDI_BACKEND_AMD,
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
