// SPDX-License-Identifier: Apache-2.0
// Life of the runtime: first use, current device, last error, faults, end of the process.
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "rt.h"
#include "gfx12sim_hip.h"

rt_state rt = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local hipError_t last_error;
static _Thread_local int current_device;

static hipError_t open_device(rt_device *d, int ordinal) {
    d->ordinal = ordinal;
    d->pool_file = -1;
    d->lose_after = ordinal == rt.config.lose_device ? rt.config.lose_after : -1;
    if (gs_mem_create(&d->mem)) return hipErrorOutOfMemory;
    hipError_t error = rt_pool_open(d, rt.config.memory_bytes);
    if (error) return error;
    d->null_stream = rt_stream_new(d, hipStreamDefault, true);
    return d->null_stream ? hipSuccess : hipErrorOutOfMemory;
}

static void start(void) {
    rt.pid = getpid();
    rt_config_read(&rt.config);
    if (rt.config.error[0]) {
        // Nothing is able to return this text before the first call fails, so it goes where a person looks.
        fprintf(stderr, "gfx12sim: %s\n", rt.config.error);
        rt.status = hipErrorNotInitialized;
        return;
    }
    for (int i = 0; i < rt.config.devices; i++) {
        rt.status = open_device(&rt.devices[i], i);
        rt.device_count = i + 1;
        if (rt.status) return;
    }
}

hipError_t rt_enter(void) {
    pthread_once(&once, start);
    if (rt.status) return rt.status;
    // Worker threads do not survive a fork: a child must start before its parent's runtime did.
    if (rt.pid != getpid()) return hipErrorNotInitialized;
    return rt.device_count ? hipSuccess : hipErrorNoDevice;
}

hipError_t rt_enter_device(void) {
    hipError_t error = rt_enter();
    if (error) return error;
    rt_lock();
    error = rt_device_state(rt_current());
    rt_unlock();
    return error;
}

hipError_t rt_done(hipError_t error) {
    // "Not ready" is an answer, not a failure.
    if (error && error != hipErrorNotReady) last_error = error;
    return error;
}

HIP_API hipError_t hipGetLastError(void) {
    hipError_t error = last_error;
    last_error = hipSuccess;
    return error;
}

HIP_API hipError_t hipPeekAtLastError(void) {
    return last_error;
}

int rt_current_ordinal(void) {
    return current_device;
}
void rt_current_set(int ordinal) {
    current_device = ordinal;
}
rt_device *rt_current(void) {
    return &rt.devices[current_device];
}

hipError_t rt_device_state(const rt_device *device) {
    return device->lost ? hipErrorLaunchFailure : device->fault;
}

void rt_note(rt_device *device, const char *text) {
    if (device->fault) return;
    snprintf(device->fault_text, sizeof device->fault_text, "%s", text);
    if (rt.config.report) fprintf(stderr, "gfx12sim: device %d: %s\n", device->ordinal, device->fault_text);
}

void rt_fault(rt_device *device, hipError_t error, const char *text) {
    if (device->fault) return; // the first one is the cause
    rt_note(device, text);
    device->fault = error;
}

HIP_API size_t gfx12sim_hip_fault_text(int device, char *text, size_t bytes) {
    if (text && bytes) text[0] = 0;
    hipError_t entered = rt_enter();
    if (entered || device < 0 || device >= rt.device_count) return 0;
    rt_lock();
    size_t length = strlen(rt.devices[device].fault_text);
    if (text && bytes) snprintf(text, bytes, "%s", rt.devices[device].fault_text);
    rt_unlock();
    return length;
}

static void close_device(rt_device *d) {
    while (d->streams) rt_stream_stop(d->streams);
    rt_lock();
    rt_module_drop_all(d);
    rt_unlock();
}

static bool busy(void) {
    bool any = false;
    rt_lock();
    for (int i = 0; i < rt.device_count; i++)
        for (const rt_stream *s = rt.devices[i].streams; s; s = s->next)
            any = any || s->completed < s->submitted;
    rt_unlock();
    return any;
}

// Ends the workers before the library's code goes away (dlclose or exit). A program that exits in the middle of its
// work does not wait for it: the process takes the workers with it.
__attribute__((destructor)) static void stop(void) {
    if (!rt.pid || rt.pid != getpid() || busy()) return;
    for (int i = 0; i < rt.device_count; i++) close_device(&rt.devices[i]);
    rt_lock();
    while (rt.alloc_count) rt_alloc_free(&rt.allocs[rt.alloc_count - 1]);
    rt_unlock();
    for (int i = 0; i < rt.device_count; i++) {
        rt_pool_close(&rt.devices[i]);
        gs_mem_destroy(rt.devices[i].mem);
    }
    rt_handle_clear();
}
