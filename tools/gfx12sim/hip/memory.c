// SPDX-License-Identifier: Apache-2.0
// Allocations: pieces of each device's pool, pinned and registered host memory, and what kernels of which device
// may touch. The pool is one sparse shared file per device, so that an IPC handle is (process, file, offset), and
// a freed piece is a hole: its bytes are gone at once and its address stays out of every kernel's reach.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "rt.h"

// ---- table of allocations -------------------------------------------------------------------------------
static size_t lower(const void *pointer) { // index of the first allocation that ends above pointer
    size_t lo = 0, hi = rt.alloc_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (rt.allocs[mid].base + rt.allocs[mid].bytes > (const uint8_t *)pointer)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

rt_alloc *rt_alloc_find(const void *pointer) {
    size_t i = lower(pointer);
    return i < rt.alloc_count && rt.allocs[i].base <= (const uint8_t *)pointer ? &rt.allocs[i] : NULL;
}

hipError_t rt_alloc_insert(rt_alloc alloc) {
    size_t at = lower(alloc.base);
    if (at < rt.alloc_count && rt.allocs[at].base < alloc.base + alloc.bytes)
        return hipErrorHostMemoryAlreadyRegistered;
    if (rt.alloc_count == rt.alloc_capacity) {
        size_t capacity = rt.alloc_capacity ? 2 * rt.alloc_capacity : 64;
        rt_alloc *grown = realloc(rt.allocs, capacity * sizeof *grown);
        if (!grown) return hipErrorOutOfMemory;
        rt.allocs = grown;
        rt.alloc_capacity = capacity;
    }
    memmove(rt.allocs + at + 1, rt.allocs + at, (rt.alloc_count - at) * sizeof *rt.allocs);
    rt.allocs[at] = alloc;
    rt.alloc_count++;
    hipError_t error = rt_map_everywhere(&rt.allocs[at]);
    if (error) rt_alloc_erase(&rt.allocs[at]);
    return error;
}

void rt_alloc_erase(rt_alloc *alloc) {
    size_t at = (size_t)(alloc - rt.allocs);
    rt.alloc_count--;
    memmove(rt.allocs + at, rt.allocs + at + 1, (rt.alloc_count - at) * sizeof *rt.allocs);
    if (!rt.alloc_count) {
        free(rt.allocs);
        rt.allocs = NULL;
        rt.alloc_capacity = 0;
    }
}

// ---- what a device's kernels may touch ------------------------------------------------------------------
bool rt_peer_may_touch(const rt_device *device, const rt_alloc *alloc) {
    bool local = alloc->kind != RT_DEVICE && alloc->kind != RT_IPC;
    return local || alloc->device == device || (device->peers >> alloc->device->ordinal & 1);
}

hipError_t rt_map_everywhere(const rt_alloc *alloc) {
    for (int i = 0; i < rt.device_count; i++) {
        if (!rt_peer_may_touch(&rt.devices[i], alloc)) continue;
        if (!gs_mem_map(rt.devices[i].mem, alloc->base, alloc->bytes)) continue;
        while (i--)
            if (rt_peer_may_touch(&rt.devices[i], alloc)) gs_mem_unmap(rt.devices[i].mem, alloc->base);
        return hipErrorOutOfMemory;
    }
    return hipSuccess;
}

// Waits until no launch of the device is under way: a running kernel still looks at the allocation's shadow.
void rt_unmap_everywhere(const rt_alloc *alloc) {
    uint8_t *base = alloc->base; // the table may move while we wait
    for (int i = 0; i < rt.device_count; i++) {
        while (rt.devices[i].running) pthread_cond_wait(&rt.changed, &rt.lock);
        gs_mem_unmap(rt.devices[i].mem, base); // not found where it was never mapped
    }
}

// ---- pool -----------------------------------------------------------------------------------------------
hipError_t rt_pool_open(rt_device *device, size_t bytes) {
    device->pool_file = memfd_create("gfx12sim-device-memory", MFD_CLOEXEC);
    if (device->pool_file < 0) return hipErrorOperatingSystem;
    if (ftruncate(device->pool_file, (off_t)bytes)) return hipErrorOutOfMemory;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, device->pool_file, 0);
    if (p == MAP_FAILED) return hipErrorOutOfMemory;
    device->pool = p;
    device->total_bytes = bytes;
    return hipSuccess;
}

void rt_pool_close(rt_device *device) {
    if (device->pool) munmap(device->pool, device->total_bytes);
    if (device->pool_file >= 0) close(device->pool_file);
    device->pool = NULL;
    device->pool_file = -1;
}

bool rt_in_pool(const void *pointer) {
    for (int i = 0; i < rt.device_count; i++)
        if ((uintptr_t)pointer - (uintptr_t)rt.devices[i].pool < rt.devices[i].total_bytes) return true;
    return false;
}

// First gap that holds the pages and one guard page, so that two allocations never touch.
static uint8_t *pool_gap(const rt_device *device, size_t bytes) {
    uint8_t *at = device->pool, *end = device->pool + device->total_bytes;
    for (size_t i = lower(device->pool); i <= rt.alloc_count; i++) {
        bool inside = i < rt.alloc_count && rt.allocs[i].base < end;
        uint8_t *stop = inside ? rt.allocs[i].base : end;
        if (stop > at && (size_t)(stop - at) >= bytes) return at;
        if (!inside) return NULL;
        size_t used = (rt.allocs[i].bytes + RT_PAGE_BYTES - 1) / RT_PAGE_BYTES * RT_PAGE_BYTES;
        at = rt.allocs[i].base + used + RT_PAGE_BYTES;
        if (at > end) return NULL;
    }
    return NULL;
}

static size_t page_round(size_t bytes) {
    return (bytes + RT_PAGE_BYTES - 1) / RT_PAGE_BYTES * RT_PAGE_BYTES;
}

static hipError_t device_alloc(void **out, size_t bytes, unsigned flags) {
    rt_device *d = rt_current();
    if (bytes > d->total_bytes - d->used_bytes) return hipErrorOutOfMemory;
    size_t rounded = page_round(bytes);
    uint8_t *base = rounded <= d->total_bytes - d->used_bytes ? pool_gap(d, rounded + RT_PAGE_BYTES) : NULL;
    if (!base) return hipErrorOutOfMemory;
    hipError_t error = rt_alloc_insert(
        (rt_alloc){.base = base, .bytes = bytes, .kind = RT_DEVICE, .device = d, .flags = flags});
    if (error) return hipErrorOutOfMemory;
    d->used_bytes += rounded;
    *out = base;
    return hipSuccess;
}

void rt_alloc_free(rt_alloc *alloc) {
    uint8_t *base = alloc->base;
    alloc->freeing = true;
    rt_unmap_everywhere(alloc);
    alloc = rt_alloc_find(base);
    rt_device *d = alloc->device;
    size_t rounded = page_round(alloc->bytes);
    if (alloc->kind == RT_DEVICE) {
        fallocate(d->pool_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, base - d->pool, (off_t)rounded);
        d->used_bytes -= rounded;
    } else if (alloc->kind == RT_IPC) {
        munmap(base, rounded);
    } else if (alloc->kind != RT_REGISTERED) {
        free(base);
    }
    rt_alloc_erase(alloc);
}

// ---- allocation functions -------------------------------------------------------------------------------
static hipError_t allocate(void **out, size_t bytes, unsigned flags) {
    RT_BEGIN(rt_enter_device);
    if (!out) return rt_done(hipErrorInvalidValue);
    *out = NULL;
    if (!bytes) return rt_done(hipSuccess); // as HIP: a null pointer, which hipFree takes
    rt_lock();
    hipError_t error = rt_capture_forbids();
    if (!error) error = device_alloc(out, bytes, flags);
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipMalloc(void **out, size_t bytes) {
    return allocate(out, bytes, 0);
}
HIP_API hipError_t hipExtMallocWithFlags(void **out, size_t bytes, unsigned flags) {
    return allocate(out, bytes, flags); // uncached, fine-grained, signal: all memory here is coherent
}

HIP_API hipError_t hipMallocAsync(void **out, size_t bytes, hipStream_t stream) {
    RT_BEGIN(rt_enter_device);
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error && s->capture) error = hipErrorStreamCaptureUnsupported;
    rt_unlock();
    return error ? rt_done(error) : allocate(out, bytes, 0);
}

static hipError_t host_allocate(void **out, size_t bytes, unsigned flags, rt_kind kind) {
    RT_BEGIN(rt_enter_device);
    if (!out) return rt_done(hipErrorInvalidValue);
    *out = NULL;
    if (!bytes) return rt_done(hipSuccess);
    void *base = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&base, RT_PAGE_BYTES, page_round(bytes) + RT_PAGE_BYTES))
        return rt_done(hipErrorOutOfMemory);
    rt_lock();
    hipError_t error = rt_capture_forbids();
    if (!error)
        error = rt_alloc_insert(
            (rt_alloc){.base = base, .bytes = bytes, .kind = kind, .device = rt_current(), .flags = flags});
    rt_unlock();
    if (error)
        free(base);
    else
        *out = base;
    return rt_done(error);
}

HIP_API hipError_t hipHostMalloc(void **out, size_t bytes, unsigned flags) {
    return host_allocate(out, bytes, flags, RT_HOST);
}
HIP_API hipError_t hipMallocManaged(void **out, size_t bytes, unsigned flags) {
    return host_allocate(out, bytes, flags, RT_MANAGED);
}

// Frees an allocation that begins at pointer, when it is one of kinds (bits), after all work that may use it.
static hipError_t release(void *pointer, unsigned kinds, hipError_t wrong) {
    if (!pointer) return hipSuccess;
    rt_lock();
    hipError_t error = rt_capture_forbids();
    for (int i = 0; i < rt.device_count && !error; i++) rt_device_drain(&rt.devices[i]);
    rt_alloc *a = error ? NULL : rt_alloc_find(pointer);
    bool good = a && a->base == pointer && (kinds >> a->kind & 1) && !a->freeing;
    if (!error && !good) error = wrong;
    if (!error) rt_alloc_free(a);
    rt_unlock();
    return error;
}

HIP_API hipError_t hipFree(void *pointer) {
    RT_BEGIN(rt_enter);
    return rt_done(release(pointer, 1u << RT_DEVICE | 1u << RT_MANAGED, hipErrorInvalidValue));
}

HIP_API hipError_t hipHostFree(void *pointer) {
    RT_BEGIN(rt_enter);
    return rt_done(release(pointer, 1u << RT_HOST, hipErrorInvalidValue));
}

HIP_API hipError_t hipHostUnregister(void *pointer) {
    RT_BEGIN(rt_enter);
    if (!pointer) return rt_done(hipErrorInvalidValue);
    return rt_done(release(pointer, 1u << RT_REGISTERED, hipErrorHostMemoryNotRegistered));
}

typedef struct free_work {
    rt_work work;
    void *pointer;
} free_work;

static hipError_t run_free(rt_work *work, hipError_t state) {
    (void)state;
    rt_lock();
    rt_alloc *a = rt_alloc_find(((free_work *)work)->pointer);
    if (a) rt_alloc_free(a);
    rt_unlock();
    return hipSuccess;
}

HIP_API hipError_t hipFreeAsync(void *pointer, hipStream_t stream) {
    RT_BEGIN(rt_enter_device);
    if (!pointer) return rt_done(hipSuccess);
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error && s->capture) error = hipErrorStreamCaptureUnsupported;
    rt_alloc *a = error ? NULL : rt_alloc_find(pointer);
    if (!error && (!a || a->base != pointer || a->kind != RT_DEVICE || a->freeing))
        error = hipErrorInvalidValue;
    free_work *w = error ? NULL : (free_work *)rt_work_new(sizeof *w, s->device, hipGraphNodeTypeEmpty);
    if (!error && !w) error = hipErrorOutOfMemory;
    if (!error) {
        w->work.run = run_free;
        w->work.always = true;
        w->pointer = pointer;
        error = rt_submit(s, &w->work, NULL, 0);
        if (!error) a->freeing = true;
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipHostRegister(void *pointer, size_t bytes, unsigned flags) {
    enum { KNOWN = 0xf };
    RT_BEGIN(rt_enter_device);
    if (!pointer || !bytes || bytes > SIZE_MAX - (uintptr_t)pointer || (flags & ~(unsigned)KNOWN))
        return rt_done(hipErrorInvalidValue);
    rt_lock();
    hipError_t error = rt_in_pool(pointer) ? hipErrorInvalidValue : hipSuccess;
    if (!error)
        error = rt_alloc_insert((rt_alloc){
            .base = pointer, .bytes = bytes, .kind = RT_REGISTERED, .device = rt_current(), .flags = flags});
    rt_unlock();
    return rt_done(error);
}

// ---- questions ------------------------------------------------------------------------------------------
HIP_API hipError_t hipHostGetDevicePointer(void **out, void *pointer, unsigned flags) {
    RT_BEGIN(rt_enter);
    if (!out || flags) return rt_done(hipErrorInvalidValue);
    rt_lock();
    const rt_alloc *a = rt_alloc_find(pointer);
    hipError_t error = a && a->kind != RT_DEVICE && a->kind != RT_IPC ? hipSuccess : hipErrorInvalidValue;
    *out = error ? NULL : pointer; // one address space
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    RT_BEGIN(rt_enter);
    if (!free_bytes || !total_bytes) return rt_done(hipErrorInvalidValue);
    rt_lock();
    *total_bytes = rt_current()->total_bytes;
    *free_bytes = *total_bytes - rt_current()->used_bytes;
    rt_unlock();
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t pointer) {
    RT_BEGIN(rt_enter);
    if (!base || !bytes) return rt_done(hipErrorInvalidValue);
    rt_lock();
    const rt_alloc *a = rt_alloc_find(pointer);
    if (a) {
        *base = a->base;
        *bytes = a->bytes;
    }
    rt_unlock();
    return rt_done(a ? hipSuccess : hipErrorNotFound);
}

static hipMemoryType type_of(const rt_alloc *a) {
    static const hipMemoryType types[] = {[RT_DEVICE] = hipMemoryTypeDevice,
                                          [RT_HOST] = hipMemoryTypeHost,
                                          [RT_MANAGED] = hipMemoryTypeManaged,
                                          [RT_REGISTERED] = hipMemoryTypeHost,
                                          [RT_IPC] = hipMemoryTypeDevice};
    return types[a->kind];
}

HIP_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t *out, const void *pointer) {
    RT_BEGIN(rt_enter);
    if (!out || !pointer) return rt_done(hipErrorInvalidValue);
    *out = (hipPointerAttribute_t){.type = hipMemoryTypeUnregistered, .device = -2}; // -2: as HIP 6 and later
    rt_lock();
    const rt_alloc *a = rt_alloc_find(pointer);
    if (a) {
        out->type = type_of(a);
        out->device = a->device->ordinal;
        out->devicePointer = (void *)(uintptr_t)pointer;
        out->hostPointer = out->type == hipMemoryTypeDevice ? NULL : out->devicePointer;
        out->isManaged = a->kind == RT_MANAGED;
        out->allocationFlags = a->flags;
    }
    rt_unlock();
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipPointerGetAttribute(void *data, hipPointer_attribute attribute,
                                          hipDeviceptr_t pointer) {
    RT_BEGIN(rt_enter);
    if (!data || !pointer) return rt_done(hipErrorInvalidValue);
    rt_lock();
    const rt_alloc *a = rt_alloc_find(pointer);
    hipError_t error = a || attribute == HIP_POINTER_ATTRIBUTE_MAPPED ? hipSuccess : hipErrorInvalidValue;
    bool device = a && type_of(a) == hipMemoryTypeDevice;
    if (!error) switch (attribute) {
        case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)data = type_of(a);
            break;
        case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER:
            *(void **)data = pointer;
            break;
        case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
            if (device)
                error = hipErrorInvalidValue;
            else
                *(void **)data = pointer;
            break;
        case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
            *(bool *)data = a->kind == RT_MANAGED;
            break;
        case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)data = a->device->ordinal;
            break;
        case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(void **)data = a->base;
            break;
        case HIP_POINTER_ATTRIBUTE_RANGE_SIZE:
            *(size_t *)data = a->bytes;
            break;
        case HIP_POINTER_ATTRIBUTE_MAPPED:
            *(bool *)data = a != NULL;
            break;
        default:
            error = hipErrorNotSupported;
            break;
        }
    rt_unlock();
    return rt_done(error);
}
