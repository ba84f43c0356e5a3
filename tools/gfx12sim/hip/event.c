// SPDX-License-Identifier: Apache-2.0
// Events: a fence on a stream, and the host time at which the stream came past it.
#include <stdlib.h>
#include <time.h>
#include "rt.h"

typedef struct stamp_work {
    rt_work work;
    rt_stamp *stamp;
} stamp_work;

static void stamp_release(rt_stamp *stamp) {
    if (stamp && --stamp->refs == 0) free(stamp);
}

static hipError_t run_stamp(rt_work *work, hipError_t state) {
    (void)state;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    rt_lock();
    ((stamp_work *)work)->stamp->seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    rt_unlock();
    return hipSuccess;
}

static void drop_stamp(rt_work *work) {
    stamp_release(((stamp_work *)work)->stamp);
}

HIP_API hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags) {
    // The upper three bits choose how far a release reaches: all memory here is coherent.
    const unsigned known = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess | 7u << 29;
    RT_BEGIN(rt_enter_device);
    if (!out || (flags & ~known)) return rt_done(hipErrorInvalidValue);
    // As in HIP: an event for other processes has no time.
    if ((flags & hipEventInterprocess) && !(flags & hipEventDisableTiming))
        return rt_done(hipErrorInvalidValue);
    rt_event *event = calloc(1, sizeof *event);
    if (!event) return rt_done(hipErrorOutOfMemory);
    event->device = rt_current();
    event->flags = flags;
    rt_lock();
    bool ok = rt_handle_add(event, RT_H_EVENT);
    rt_unlock();
    if (ok)
        *out = event;
    else
        free(event);
    return rt_done(ok ? hipSuccess : hipErrorOutOfMemory);
}

HIP_API hipError_t hipEventCreate(hipEvent_t *out) {
    return hipEventCreateWithFlags(out, 0);
}

static void forget_record(rt_event *event) {
    if (event->recorded) rt_stream_release(event->fence.stream);
    stamp_release(event->stamp);
    event->stamp = NULL;
    event->recorded = false;
    rt_event_forget_capture(event);
}

HIP_API hipError_t hipEventDestroy(hipEvent_t event) {
    RT_BEGIN(rt_enter);
    rt_lock();
    hipError_t error = rt_handle_is(event, RT_H_EVENT) ? hipSuccess : hipErrorInvalidHandle;
    if (!error) {
        rt_handle_drop(event);
        forget_record(event);
        free(event);
    }
    rt_unlock();
    return rt_done(error);
}

static hipError_t record(rt_event *event, rt_stream *s) {
    if (event->device != s->device) return hipErrorInvalidHandle;
    if (s->capture) return rt_capture_event_record(s, event);
    stamp_work *w = (stamp_work *)rt_work_new(sizeof *w, s->device, hipGraphNodeTypeEmpty);
    rt_stamp *stamp = calloc(1, sizeof *stamp);
    if (!w || !stamp) {
        rt_work_release((rt_work *)w);
        free(stamp);
        return hipErrorOutOfMemory;
    }
    stamp->refs = 2;
    w->stamp = stamp;
    w->work.run = run_stamp;
    w->work.drop = drop_stamp;
    hipError_t error = rt_submit(s, &w->work, NULL, 0);
    if (error) {
        stamp_release(stamp);
        return error;
    }
    forget_record(event);
    rt_stream_keep(s);
    event->fence = (rt_fence){s, s->submitted};
    event->stamp = stamp;
    event->recorded = true;
    return hipSuccess;
}

HIP_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    RT_BEGIN(rt_enter);
    rt_lock();
    rt_stream *s;
    hipError_t error =
        rt_handle_is(event, RT_H_EVENT) ? rt_stream_resolve(stream, &s) : hipErrorInvalidHandle;
    if (!error) error = record(event, s);
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipEventSynchronize(hipEvent_t event) {
    RT_BEGIN(rt_enter);
    rt_lock();
    hipError_t error = rt_handle_is(event, RT_H_EVENT) ? rt_capture_forbids() : hipErrorInvalidHandle;
    if (!error && event->capture_id) error = hipErrorCapturedEvent;
    if (!error && event->recorded) {
        rt_fence fence = event->fence; // the event may be destroyed or recorded anew while we wait
        rt_device *device = event->device;
        rt_stream_keep(fence.stream);
        rt_wait_fence(fence);
        rt_stream_release(fence.stream);
        error = rt_device_state(device);
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipEventQuery(hipEvent_t event) {
    RT_BEGIN(rt_enter);
    rt_lock();
    hipError_t error = rt_handle_is(event, RT_H_EVENT) ? hipSuccess : hipErrorInvalidHandle;
    if (!error && event->capture_id) error = hipErrorCapturedEvent;
    if (!error && event->recorded) {
        bool passed = event->fence.stream->completed >= event->fence.number;
        error = passed ? rt_device_state(event->device) : hipErrorNotReady;
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop) {
    RT_BEGIN(rt_enter);
    if (!milliseconds) return rt_done(hipErrorInvalidValue);
    rt_lock();
    hipError_t error = hipSuccess;
    const hipEvent_t events[2] = {start, stop};
    for (int i = 0; i < 2 && !error; i++) {
        const rt_event *e = events[i];
        if (!rt_handle_is(e, RT_H_EVENT) || (e->flags & hipEventDisableTiming) || !e->recorded)
            error = hipErrorInvalidHandle;
        else if (e->fence.stream->completed < e->fence.number)
            error = hipErrorNotReady;
        else
            error = rt_device_state(e->device);
    }
    if (!error) *milliseconds = (float)(1e3 * (stop->stamp->seconds - start->stamp->seconds));
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
    RT_BEGIN(rt_enter);
    if (flags) return rt_done(hipErrorInvalidValue);
    rt_lock();
    rt_stream *s;
    hipError_t error =
        rt_handle_is(event, RT_H_EVENT) ? rt_stream_resolve(stream, &s) : hipErrorInvalidHandle;
    if (!error && (s->capture || event->capture_id))
        error = rt_capture_event_wait(s, event);
    else if (!error && event->recorded)
        error = rt_submit(s, NULL, &event->fence, 1);
    rt_unlock();
    return rt_done(error);
}
