// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Ranges are checked when the call is made and again when the work runs, because a stream-ordered
// free may have come between. Pageable host memory behaves as on hardware: an upload is staged before the call
// returns, a download is complete when it returns; only pinned memory is truly asynchronous.
#include <stdlib.h>
#include <string.h>
#include "rt.h"

typedef struct copy_work {
    rt_work work;
    uint8_t *dst;
    const uint8_t *src;
    size_t dst_pitch, src_pitch, width, height;
    uint8_t *staged; // owned copy of a pageable source
} copy_work;

typedef struct fill_work {
    rt_work work;
    uint8_t *dst;
    size_t bytes, unit;
    uint32_t value;
} fill_work;

hipError_t rt_range_check(const void *pointer, size_t bytes, rt_side *side, rt_device **device) {
    if (!pointer || bytes > UINTPTR_MAX - (uintptr_t)pointer) return hipErrorInvalidValue;
    const uint8_t *p = pointer;
    const rt_alloc *a = rt_alloc_find(p);
    *device = NULL;
    if (a) {
        if (bytes > (size_t)(a->base + a->bytes - p)) return hipErrorInvalidValue;
        bool on_device = a->kind == RT_DEVICE || a->kind == RT_IPC;
        *side = on_device ? RT_SIDE_DEVICE : RT_SIDE_PINNED;
        *device = on_device ? a->device : NULL;
        return hipSuccess;
    }
    if (rt_in_pool(p)) return hipErrorInvalidValue;
    for (int i = 0; i < rt.device_count; i++) { // a variable of a module
        void *base;
        size_t size;
        if (gs_mem_find(rt.devices[i].mem, p, &base, &size)) continue;
        *side = RT_SIDE_DEVICE;
        *device = &rt.devices[i];
        return bytes > (size_t)((uint8_t *)base + size - p) ? hipErrorInvalidValue : hipSuccess;
    }
    *side = RT_SIDE_PAGEABLE;
    return hipSuccess;
}

static size_t extent(size_t pitch, size_t width, size_t height) {
    return (height - 1) * pitch + width;
}

static hipError_t run_copy(rt_work *work, hipError_t state) {
    (void)state;
    copy_work *c = (copy_work *)work;
    const uint8_t *src = c->staged ? c->staged : c->src;
    size_t src_pitch = c->staged ? c->width : c->src_pitch;
    rt_side side;
    rt_device *device;
    rt_lock();
    hipError_t error = rt_range_check(c->dst, extent(c->dst_pitch, c->width, c->height), &side, &device);
    if (!error && !c->staged)
        error = rt_range_check(src, extent(src_pitch, c->width, c->height), &side, &device);
    rt_unlock();
    if (error) return hipErrorIllegalAddress;
    if (c->dst_pitch == c->width && src_pitch == c->width)
        memmove(c->dst, src, c->width * c->height);
    else
        for (size_t row = 0; row < c->height; row++)
            memmove(c->dst + row * c->dst_pitch, src + row * src_pitch, c->width);
    return hipSuccess;
}

static void drop_copy(rt_work *work) {
    free(((copy_work *)work)->staged);
}

static hipError_t stage(copy_work *c) {
    c->staged = malloc(c->width * c->height);
    if (!c->staged) return hipErrorOutOfMemory;
    for (size_t row = 0; row < c->height; row++)
        memcpy(c->staged + row * c->width, c->src + row * c->src_pitch, c->width);
    return hipSuccess;
}

static hipError_t direction(hipMemcpyKind kind, rt_side dst, rt_side src) {
    if (kind != hipMemcpyDeviceToDeviceNoCU && (kind < hipMemcpyHostToHost || kind > hipMemcpyDefault))
        return hipErrorInvalidMemcpyDirection;
    if (kind == hipMemcpyDefault) return hipSuccess;
    bool to_device = kind != hipMemcpyHostToHost && kind != hipMemcpyDeviceToHost;
    bool from_device = kind != hipMemcpyHostToHost && kind != hipMemcpyHostToDevice;
    // Pinned memory is both; the others must be what the caller says they are.
    bool good = dst != (to_device ? RT_SIDE_PAGEABLE : RT_SIDE_DEVICE) &&
                src != (from_device ? RT_SIDE_PAGEABLE : RT_SIDE_DEVICE);
    return good ? hipSuccess : hipErrorInvalidValue;
}

static hipError_t wait_for(rt_stream *s) {
    rt_fence fence = {s, s->submitted};
    rt_stream_keep(s);
    rt_wait_fence(fence);
    rt_stream_release(s);
    return rt_device_state(s->device);
}

// With the lock. blocking: the call returns when the copy is done.
static hipError_t submit_copy(copy_work *c, hipMemcpyKind kind, hipStream_t stream, bool blocking) {
    rt_stream *s;
    rt_side dst, src;
    rt_device *device;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error) error = rt_range_check(c->dst, extent(c->dst_pitch, c->width, c->height), &dst, &device);
    if (!error) error = rt_range_check(c->src, extent(c->src_pitch, c->width, c->height), &src, &device);
    if (!error) error = direction(kind, dst, src);
    bool capturing = !error && s->capture;
    if (!error && blocking && capturing) {
        rt_capture_spoil(s);
        error = hipErrorStreamCaptureUnsupported;
    }
    if (!error && !blocking && !capturing && src == RT_SIDE_PAGEABLE) error = stage(c);
    if (error) {
        rt_work_release(&c->work);
        return error;
    }
    c->work.device = s->device;
    error = rt_submit(s, &c->work, NULL, 0);
    if (!error && (blocking || (dst == RT_SIDE_PAGEABLE && !capturing))) error = wait_for(s);
    return error;
}

static hipError_t copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                          size_t height, hipMemcpyKind kind, hipStream_t stream, bool blocking) {
    RT_BEGIN(rt_enter_device);
    if (!width || !height) return rt_done(hipSuccess);
    if (!dst || !src) return rt_done(hipErrorInvalidValue);
    if (dst_pitch < width || src_pitch < width) return rt_done(hipErrorInvalidPitchValue);
    size_t pitch = dst_pitch > src_pitch ? dst_pitch : src_pitch;
    if (pitch > (SIZE_MAX / 2) / height) return rt_done(hipErrorInvalidValue);
    copy_work *c = (copy_work *)rt_work_new(sizeof *c, NULL, hipGraphNodeTypeMemcpy);
    if (!c) return rt_done(hipErrorOutOfMemory);
    c->work.run = run_copy;
    c->work.drop = drop_copy;
    c->dst = dst;
    c->src = src;
    c->dst_pitch = dst_pitch;
    c->src_pitch = src_pitch;
    c->width = width;
    c->height = height;
    rt_lock();
    hipError_t error = submit_copy(c, kind, stream, blocking);
    rt_unlock();
    return rt_done(error);
}

static hipError_t copy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind, hipStream_t stream,
                       bool blocking) {
    return copy_2d(dst, bytes, src, bytes, bytes, 1, kind, stream, blocking);
}

HIP_API hipError_t hipMemcpy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind) {
    return copy(dst, src, bytes, kind, NULL, true);
}
HIP_API hipError_t hipMemcpyAsync(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                                  hipStream_t stream) {
    return copy(dst, src, bytes, kind, stream, false);
}
HIP_API hipError_t hipMemcpyWithStream(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                                       hipStream_t stream) {
    return copy(dst, src, bytes, kind, stream, true);
}
HIP_API hipError_t hipMemcpyHtoD(hipDeviceptr_t dst, const void *src, size_t bytes) {
    return copy(dst, src, bytes, hipMemcpyHostToDevice, NULL, true);
}
HIP_API hipError_t hipMemcpyDtoH(void *dst, hipDeviceptr_t src, size_t bytes) {
    return copy(dst, src, bytes, hipMemcpyDeviceToHost, NULL, true);
}
HIP_API hipError_t hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes) {
    return copy(dst, src, bytes, hipMemcpyDeviceToDevice, NULL, true);
}
HIP_API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, const void *src, size_t bytes, hipStream_t stream) {
    return copy(dst, src, bytes, hipMemcpyHostToDevice, stream, false);
}
HIP_API hipError_t hipMemcpyDtoHAsync(void *dst, hipDeviceptr_t src, size_t bytes, hipStream_t stream) {
    return copy(dst, src, bytes, hipMemcpyDeviceToHost, stream, false);
}
HIP_API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes,
                                      hipStream_t stream) {
    return copy(dst, src, bytes, hipMemcpyDeviceToDevice, stream, false);
}
HIP_API hipError_t hipMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                               size_t height, hipMemcpyKind kind) {
    return copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, NULL, true);
}
HIP_API hipError_t hipMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                                    size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream) {
    return copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, stream, false);
}

// Both pointers must belong to the devices that the caller names.
static hipError_t peer_check(const void *pointer, int device) {
    if (device < 0 || device >= rt.device_count) return hipErrorInvalidDevice;
    rt_side side;
    rt_device *owner;
    rt_lock();
    hipError_t error = rt_range_check(pointer, 1, &side, &owner);
    rt_unlock();
    if (error) return error;
    return side == RT_SIDE_PINNED || (owner && owner->ordinal == device) ? hipSuccess : hipErrorInvalidValue;
}

static hipError_t copy_peer(void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                            hipStream_t stream, bool blocking) {
    RT_BEGIN(rt_enter_device);
    if (!bytes) return rt_done(hipSuccess);
    hipError_t error = peer_check(dst, dst_device);
    if (!error) error = peer_check(src, src_device);
    return error ? rt_done(error) : copy(dst, src, bytes, hipMemcpyDefault, stream, blocking);
}

HIP_API hipError_t hipMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t bytes) {
    return copy_peer(dst, dst_device, src, src_device, bytes, NULL, true);
}
HIP_API hipError_t hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                      size_t bytes, hipStream_t stream) {
    return copy_peer(dst, dst_device, src, src_device, bytes, stream, false);
}

// ---- fills ----------------------------------------------------------------------------------------------
static hipError_t run_fill(rt_work *work, hipError_t state) {
    (void)state;
    fill_work *f = (fill_work *)work;
    rt_side side;
    rt_device *device;
    rt_lock();
    hipError_t error = rt_range_check(f->dst, f->bytes, &side, &device);
    rt_unlock();
    if (error) return hipErrorIllegalAddress;
    if (f->unit == 1)
        memset(f->dst, (int)f->value, f->bytes);
    else
        for (size_t at = 0; at < f->bytes; at += f->unit) memcpy(f->dst + at, &f->value, f->unit);
    return hipSuccess;
}

static hipError_t submit_fill(fill_work *f, hipStream_t stream, bool blocking) {
    rt_stream *s;
    rt_side side;
    rt_device *device;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error) error = rt_range_check(f->dst, f->bytes, &side, &device);
    if (!error && side == RT_SIDE_PAGEABLE) error = hipErrorInvalidValue;
    if (!error && blocking && s->capture) error = hipErrorStreamCaptureUnsupported;
    if (error) {
        rt_work_release(&f->work);
        return error;
    }
    f->work.device = s->device;
    error = rt_submit(s, &f->work, NULL, 0);
    return !error && blocking ? wait_for(s) : error;
}

static hipError_t fill(void *dst, uint32_t value, size_t unit, size_t count, hipStream_t stream,
                       bool blocking) {
    RT_BEGIN(rt_enter_device);
    if (!count) return rt_done(hipSuccess);
    if (!dst || count > SIZE_MAX / unit || (uintptr_t)dst % unit) return rt_done(hipErrorInvalidValue);
    fill_work *f = (fill_work *)rt_work_new(sizeof *f, NULL, hipGraphNodeTypeMemset);
    if (!f) return rt_done(hipErrorOutOfMemory);
    f->work.run = run_fill;
    f->dst = dst;
    f->bytes = count * unit;
    f->unit = unit;
    f->value = value;
    rt_lock();
    hipError_t error = submit_fill(f, stream, blocking);
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipMemset(void *dst, int value, size_t bytes) {
    return fill(dst, (uint8_t)value, 1, bytes, NULL, true);
}
HIP_API hipError_t hipMemsetAsync(void *dst, int value, size_t bytes, hipStream_t stream) {
    return fill(dst, (uint8_t)value, 1, bytes, stream, false);
}
HIP_API hipError_t hipMemsetD8(hipDeviceptr_t dst, unsigned char value, size_t count) {
    return fill(dst, value, 1, count, NULL, true);
}
HIP_API hipError_t hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, size_t count,
                                    hipStream_t stream) {
    return fill(dst, value, 1, count, stream, false);
}
HIP_API hipError_t hipMemsetD16(hipDeviceptr_t dst, unsigned short value, size_t count) {
    return fill(dst, value, 2, count, NULL, true);
}
HIP_API hipError_t hipMemsetD16Async(hipDeviceptr_t dst, unsigned short value, size_t count,
                                     hipStream_t stream) {
    return fill(dst, value, 2, count, stream, false);
}
HIP_API hipError_t hipMemsetD32(hipDeviceptr_t dst, int value, size_t count) {
    return fill(dst, (uint32_t)value, 4, count, NULL, true);
}
HIP_API hipError_t hipMemsetD32Async(hipDeviceptr_t dst, int value, size_t count, hipStream_t stream) {
    return fill(dst, (uint32_t)value, 4, count, stream, false);
}
