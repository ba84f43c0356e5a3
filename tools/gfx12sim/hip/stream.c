// SPDX-License-Identifier: Apache-2.0
// Streams: queues with one worker thread each, and the fences that order them.
#include <stdlib.h>
#include <string.h>
#include "rt.h"

// ---- work -----------------------------------------------------------------------------------------------
rt_work *rt_work_new(size_t bytes, rt_device *device, hipGraphNodeType type) {
    rt_work *work = calloc(1, bytes);
    if (!work) return NULL;
    work->refs = 1;
    work->device = device;
    work->type = type;
    return work;
}

void rt_work_keep(rt_work *work) {
    work->refs++;
}

void rt_work_release(rt_work *work) {
    if (!work || --work->refs) return;
    if (work->drop) work->drop(work);
    free(work);
}

// ---- queues ---------------------------------------------------------------------------------------------
void rt_stream_keep(rt_stream *stream) {
    stream->refs++;
}

void rt_stream_release(rt_stream *stream) {
    if (!stream || --stream->refs) return;
    free(stream->follows);
    free(stream);
}

rt_stream *rt_stream_new(rt_device *device, unsigned flags, bool null_stream) {
    rt_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->refs = 1;
    s->device = device;
    s->flags = flags;
    s->null_stream = null_stream;
    s->next = device->streams;
    device->streams = s;
    return s;
}

static void run_op(rt_stream *s, rt_op *op) { // with the lock, which it gives up while the work runs
    for (size_t i = 0; i < op->wait_count; i++) {
        rt_wait_fence(op->waits[i]);
        rt_stream_release(op->waits[i].stream);
    }
    rt_work *work = op->work;
    hipError_t state = rt_device_state(s->device);
    if (work && (!state || work->always)) {
        rt_unlock();
        hipError_t error = work->run(work, state);
        rt_lock();
        if (error) rt_fault(work->device, error, hipGetErrorString(error));
    }
    rt_work_release(work);
    s->completed = op->number;
    free(op);
    pthread_cond_broadcast(&rt.changed);
}

static void *worker(void *context) {
    rt_stream *s = context;
    rt_lock();
    for (;;) {
        while (!s->head && !s->stopping) pthread_cond_wait(&rt.changed, &rt.lock);
        if (!s->head) break;
        rt_op *op = s->head;
        s->head = op->next;
        if (!s->head) s->tail = NULL;
        run_op(s, op);
    }
    rt_unlock();
    return NULL;
}

void rt_stream_stop(rt_stream *s) {
    rt_lock();
    while (s->completed < s->submitted) pthread_cond_wait(&rt.changed, &rt.lock);
    s->stopping = true;
    bool started = s->started;
    pthread_cond_broadcast(&rt.changed);
    rt_unlock();
    if (started) pthread_join(s->worker, NULL);
    rt_lock();
    for (rt_stream **at = &s->device->streams; *at; at = &(*at)->next) {
        if (*at != s) continue;
        *at = s->next;
        break;
    }
    rt_stream_release(s);
    rt_unlock();
}

void rt_wait_fence(rt_fence fence) {
    while (fence.stream->completed < fence.number) pthread_cond_wait(&rt.changed, &rt.lock);
}

static void add_wait(rt_op *op, rt_fence fence) {
    if (fence.stream->completed >= fence.number) return;
    rt_stream_keep(fence.stream);
    op->waits[op->wait_count++] = fence;
}

// The legacy null stream: its work follows all blocking streams of the device, and theirs follows it.
static void order_with_null(rt_stream *s, rt_op *op) {
    if (!s->null_stream) {
        rt_stream *null = s->device->null_stream;
        if (!(s->flags & hipStreamNonBlocking)) add_wait(op, (rt_fence){null, null->submitted});
        return;
    }
    for (rt_stream *other = s->device->streams; other; other = other->next)
        if (other != s && !(other->flags & hipStreamNonBlocking))
            add_wait(op, (rt_fence){other, other->submitted});
}

hipError_t rt_submit_raw(rt_stream *s, rt_work *work, const rt_fence *waits, size_t wait_count, bool order) {
    size_t streams = 1;
    for (rt_stream *other = s->device->streams; other; other = other->next) streams++;
    rt_op *op = calloc(1, sizeof *op + (wait_count + streams) * sizeof *op->waits);
    hipError_t error = op ? hipSuccess : hipErrorOutOfMemory;
    if (op && !s->started) {
        s->started = pthread_create(&s->worker, NULL, worker, s) == 0;
        if (!s->started) error = hipErrorOperatingSystem;
    }
    if (error) {
        free(op);
        rt_work_release(work);
        return error;
    }
    op->work = work;
    for (size_t i = 0; i < wait_count; i++) add_wait(op, waits[i]);
    if (order) order_with_null(s, op);
    op->number = ++s->submitted;
    if (s->tail)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    pthread_cond_broadcast(&rt.changed);
    return hipSuccess;
}

hipError_t rt_submit(rt_stream *s, rt_work *work, const rt_fence *waits, size_t wait_count) {
    hipError_t error = rt_device_state(s->device);
    if (!error) error = rt_capture_legacy(s);
    if (error) {
        rt_work_release(work);
        return error;
    }
    return s->capture ? rt_capture_add(s, work) : rt_submit_raw(s, work, waits, wait_count, true);
}

hipError_t rt_device_drain(rt_device *d) {
    for (rt_stream *s = d->streams; s; s = s->next) s->drain = s->submitted;
    for (;;) {
        rt_stream *s = d->streams;
        while (s && s->completed >= s->drain) s = s->next;
        if (!s) break;
        pthread_cond_wait(&rt.changed, &rt.lock);
    }
    return rt_device_state(d);
}

// ---- handles --------------------------------------------------------------------------------------------
static pthread_once_t per_thread_once = PTHREAD_ONCE_INIT;
static pthread_key_t per_thread_key;

static void per_thread_end(void *context) {
    rt_stream **streams = context;
    for (int i = 0; i < RT_MAX_DEVICES; i++)
        if (streams[i]) rt_stream_stop(streams[i]);
    free(streams);
}

static void per_thread_start(void) {
    pthread_key_create(&per_thread_key, per_thread_end);
}

static hipError_t per_thread_stream(rt_stream **out) {
    pthread_once(&per_thread_once, per_thread_start);
    rt_stream **streams = pthread_getspecific(per_thread_key);
    if (!streams) {
        streams = calloc(RT_MAX_DEVICES, sizeof(rt_stream *));
        if (!streams || pthread_setspecific(per_thread_key, streams)) {
            free(streams);
            return hipErrorOutOfMemory;
        }
    }
    rt_stream **mine = &streams[rt_current_ordinal()];
    if (!*mine) *mine = rt_stream_new(rt_current(), hipStreamDefault, false);
    *out = *mine;
    return *mine ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t rt_stream_resolve(hipStream_t handle, rt_stream **out) {
    if (!handle || handle == hipStreamLegacy) {
        *out = rt_current()->null_stream;
        return hipSuccess;
    }
    if (handle == hipStreamPerThread) return per_thread_stream(out);
    if (!rt_handle_is(handle, RT_H_STREAM)) return hipErrorInvalidHandle;
    *out = handle;
    return hipSuccess;
}

HIP_API hipError_t hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority) {
    (void)priority; // every stream has a thread of its own: nothing to prefer
    RT_BEGIN(rt_enter_device);
    if (!out || (flags & ~(unsigned)hipStreamNonBlocking)) return rt_done(hipErrorInvalidValue);
    rt_lock();
    rt_stream *s = rt_stream_new(rt_current(), flags, false);
    bool ok = s && rt_handle_add(s, RT_H_STREAM);
    rt_unlock();
    if (s && !ok) rt_stream_stop(s);
    if (ok) *out = s;
    return rt_done(ok ? hipSuccess : hipErrorOutOfMemory);
}

HIP_API hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned flags) {
    return hipStreamCreateWithPriority(out, flags, 0);
}
HIP_API hipError_t hipStreamCreate(hipStream_t *out) {
    return hipStreamCreateWithPriority(out, hipStreamDefault, 0);
}

HIP_API hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    RT_BEGIN(rt_enter);
    if (least) *least = 0;
    if (greatest) *greatest = 0;
    return rt_done(hipSuccess);
}

HIP_API hipError_t hipStreamDestroy(hipStream_t stream) {
    RT_BEGIN(rt_enter);
    rt_lock();
    hipError_t error = rt_handle_is(stream, RT_H_STREAM) ? hipSuccess : hipErrorInvalidHandle;
    if (!error && stream->capture) {
        rt_capture_spoil(stream);
        error = hipErrorStreamCaptureUnsupported;
    }
    if (!error) rt_handle_drop(stream);
    rt_unlock();
    if (!error) rt_stream_stop(stream);
    return rt_done(error);
}

// A stream that the caller wants to wait for or ask about: never one that captures. Kept; release after use.
static hipError_t awaitable(hipStream_t handle, rt_stream **out) {
    hipError_t error = rt_stream_resolve(handle, out);
    if (error) return error;
    error = rt_capture_legacy(*out);
    if (!error && (*out)->capture) {
        rt_capture_spoil(*out);
        error = hipErrorStreamCaptureUnsupported;
    }
    if (!error) rt_stream_keep(*out);
    return error;
}

HIP_API hipError_t hipStreamSynchronize(hipStream_t stream) {
    RT_BEGIN(rt_enter);
    rt_lock();
    rt_stream *s;
    hipError_t error = awaitable(stream, &s);
    if (!error) {
        rt_wait_fence((rt_fence){s, s->submitted});
        // The null stream is done when all that it would order behind itself is done.
        if (s->null_stream)
            for (rt_stream *other = s->device->streams; other; other = other->next)
                if (!(other->flags & hipStreamNonBlocking)) other->drain = other->submitted;
        for (rt_stream *other = s->null_stream ? s->device->streams : NULL; other;) {
            bool wait = !(other->flags & hipStreamNonBlocking) && other->completed < other->drain;
            if (wait) pthread_cond_wait(&rt.changed, &rt.lock);
            other = wait ? s->device->streams : other->next;
        }
        error = rt_device_state(s->device);
        rt_stream_release(s);
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipStreamQuery(hipStream_t stream) {
    RT_BEGIN(rt_enter);
    rt_lock();
    rt_stream *s;
    hipError_t error = awaitable(stream, &s);
    if (!error) {
        bool busy = s->completed < s->submitted;
        for (rt_stream *other = s->null_stream ? s->device->streams : NULL; other; other = other->next)
            if (!(other->flags & hipStreamNonBlocking)) busy = busy || other->completed < other->submitted;
        error = busy ? hipErrorNotReady : rt_device_state(s->device);
        rt_stream_release(s);
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipStreamGetFlags(hipStream_t stream, unsigned *flags) {
    RT_BEGIN(rt_enter);
    if (!flags) return rt_done(hipErrorInvalidValue);
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error) *flags = s->flags;
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t *device) {
    RT_BEGIN(rt_enter);
    if (!device) return rt_done(hipErrorInvalidValue);
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error) *device = s->device->ordinal;
    rt_unlock();
    return rt_done(error);
}

// ---- host functions -------------------------------------------------------------------------------------
typedef struct host_work {
    rt_work work;
    hipHostFn_t function;
    hipStreamCallback_t callback;
    hipStream_t stream;
    void *user_data;
} host_work;

static hipError_t run_host(rt_work *work, hipError_t state) {
    host_work *h = (host_work *)work;
    if (h->callback)
        h->callback(h->stream, state, h->user_data);
    else
        h->function(h->user_data);
    return hipSuccess;
}

static hipError_t submit_host(hipStream_t handle, hipHostFn_t function, hipStreamCallback_t callback,
                              void *data) {
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_stream_resolve(handle, &s);
    host_work *h = error ? NULL : (host_work *)rt_work_new(sizeof *h, s->device, hipGraphNodeTypeHost);
    if (!error && !h) error = hipErrorOutOfMemory;
    if (!error) {
        h->work.run = run_host;
        h->work.always = callback != NULL; // learns of the fault through its status
        h->function = function;
        h->callback = callback;
        h->stream = handle;
        h->user_data = data;
        error = rt_submit(s, &h->work, NULL, 0);
    }
    rt_unlock();
    return error;
}

HIP_API hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *user_data) {
    RT_BEGIN(rt_enter);
    return rt_done(function ? submit_host(stream, function, NULL, user_data) : hipErrorInvalidValue);
}

HIP_API hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void *user_data,
                                        unsigned flags) {
    RT_BEGIN(rt_enter);
    if (!callback || flags) return rt_done(hipErrorInvalidValue);
    return rt_done(submit_host(stream, NULL, callback, user_data));
}
