// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs. A captured operation becomes a node that follows the nodes its stream had come to; a
// stream that joins through an event opens another lane. A launch gives lane 0 to the caller's stream and every
// other lane a stream of its own, so that branches run side by side.
#include <stdlib.h>
#include <string.h>
#include "rt.h"

typedef struct rt_node {
    rt_work *work;
    size_t *follows; // indices of earlier nodes
    size_t follow_count, lane;
} rt_node;

typedef struct rt_graph {
    rt_node **nodes;
    size_t node_count, node_capacity;
    rt_device **lanes; // device of each
    size_t lane_count;
} rt_graph;

struct rt_capture {
    rt_capture *next;
    uint64_t id;
    hipStreamCaptureMode mode;
    pthread_t thread;
    rt_stream *origin;
    rt_graph *graph;
    bool spoiled;
};

typedef struct rt_exec {
    rt_graph *graph;   // its own: shares only the work
    rt_stream **lanes; // [0] null
    rt_fence last;     // end of the last launch: launches of one exec follow each other
} rt_exec;

static uint64_t capture_count;
static _Thread_local hipStreamCaptureMode thread_mode = hipStreamCaptureModeGlobal;

// ---- index lists ----------------------------------------------------------------------------------------
static bool list_add(size_t **list, size_t *count, size_t index) {
    for (size_t i = 0; i < *count; i++)
        if ((*list)[i] == index) return true;
    size_t *grown = realloc(*list, (*count + 1) * sizeof *grown);
    if (!grown) return false;
    grown[(*count)++] = index;
    *list = grown;
    return true;
}

static bool list_join(size_t **list, size_t *count, const size_t *more, size_t more_count) {
    for (size_t i = 0; i < more_count; i++)
        if (!list_add(list, count, more[i])) return false;
    return true;
}

static void list_clear(size_t **list, size_t *count) {
    free(*list);
    *list = NULL;
    *count = 0;
}

// ---- graphs ---------------------------------------------------------------------------------------------
static void graph_free(rt_graph *g, bool handles) {
    if (!g) return;
    for (size_t i = 0; i < g->node_count; i++) {
        if (handles) rt_handle_drop(g->nodes[i]);
        rt_work_release(g->nodes[i]->work);
        free(g->nodes[i]->follows);
        free(g->nodes[i]);
    }
    free(g->nodes);
    free(g->lanes);
    free(g);
}

static bool graph_lane(rt_graph *g, rt_device *device, size_t *lane) {
    rt_device **grown = realloc(g->lanes, (g->lane_count + 1) * sizeof *grown);
    if (!grown) return false;
    g->lanes = grown;
    *lane = g->lane_count;
    g->lanes[g->lane_count++] = device;
    return true;
}

// Takes over the work only when it succeeds.
static bool graph_node(rt_graph *g, rt_work *work, const size_t *follows, size_t follow_count, size_t lane) {
    if (g->node_count == g->node_capacity) {
        size_t capacity = g->node_capacity ? 2 * g->node_capacity : 32;
        rt_node **grown = realloc(g->nodes, capacity * sizeof *grown);
        if (!grown) return false;
        g->nodes = grown;
        g->node_capacity = capacity;
    }
    rt_node *n = calloc(1, sizeof *n);
    if (!n || !list_join(&n->follows, &n->follow_count, follows, follow_count)) {
        if (n) free(n->follows);
        free(n);
        return false;
    }
    n->work = work;
    n->lane = lane;
    g->nodes[g->node_count++] = n;
    return true;
}

// ---- capture --------------------------------------------------------------------------------------------
static rt_capture *capture_of(uint64_t id) {
    rt_capture *c = rt.captures;
    while (c && c->id != id) c = c->next;
    return c;
}

void rt_event_forget_capture(rt_event *event) {
    event->capture_id = 0;
    list_clear(&event->follows, &event->follow_count);
}

void rt_capture_spoil(rt_stream *s) {
    if (s->capture) s->capture->spoiled = true;
}

hipError_t rt_capture_add(rt_stream *s, rt_work *work) {
    rt_graph *g = s->capture->graph;
    hipError_t error = s->capture->spoiled ? hipErrorStreamCaptureInvalidated : hipSuccess;
    if (!error && !graph_node(g, work, s->follows, s->follow_count, s->lane)) error = hipErrorOutOfMemory;
    if (error) {
        rt_work_release(work);
        return error;
    }
    list_clear(&s->follows, &s->follow_count);
    return list_add(&s->follows, &s->follow_count, g->node_count - 1) ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t rt_capture_event_record(rt_stream *s, rt_event *event) {
    if (s->capture->spoiled) return hipErrorStreamCaptureInvalidated;
    rt_event_forget_capture(event);
    if (!list_join(&event->follows, &event->follow_count, s->follows, s->follow_count))
        return hipErrorOutOfMemory;
    event->capture_id = s->capture->id;
    return hipSuccess;
}

hipError_t rt_capture_event_wait(rt_stream *s, const rt_event *event) {
    if (!event->capture_id) { // a capture may not wait for work outside it
        if (!event->recorded) return hipSuccess;
        rt_capture_spoil(s);
        return hipErrorStreamCaptureIsolation;
    }
    rt_capture *c = capture_of(event->capture_id);
    if (!c) return hipErrorCapturedEvent; // that capture has ended
    if (s->null_stream) return hipErrorStreamCaptureImplicit;
    if (s->capture && s->capture != c) {
        s->capture->spoiled = c->spoiled = true;
        return hipErrorStreamCaptureMerge;
    }
    if (c->spoiled) return hipErrorStreamCaptureInvalidated;
    if (!s->capture) {
        if (!graph_lane(c->graph, s->device, &s->lane)) return hipErrorOutOfMemory;
        s->capture = c;
    }
    return list_join(&s->follows, &s->follow_count, event->follows, event->follow_count)
               ? hipSuccess
               : hipErrorOutOfMemory;
}

hipError_t rt_capture_forbids(void) {
    if (thread_mode == hipStreamCaptureModeRelaxed) return hipSuccess;
    for (const rt_capture *c = rt.captures; c; c = c->next) {
        bool own = pthread_equal(c->thread, pthread_self()) && c->mode != hipStreamCaptureModeRelaxed;
        bool global = c->mode == hipStreamCaptureModeGlobal && thread_mode == hipStreamCaptureModeGlobal;
        if (own || global) return hipErrorStreamCaptureUnsupported;
    }
    return hipSuccess;
}

hipError_t rt_capture_legacy(const rt_stream *s) {
    if (!s->null_stream) return hipSuccess;
    for (rt_capture *c = rt.captures; c; c = c->next) {
        if (c->origin->device != s->device || (c->origin->flags & hipStreamNonBlocking)) continue;
        c->spoiled = true;
        return hipErrorStreamCaptureImplicit;
    }
    return hipSuccess;
}

static hipError_t begin(rt_stream *s, hipStreamCaptureMode mode) {
    if (s->null_stream) return hipErrorStreamCaptureUnsupported;
    if (s->capture) return hipErrorIllegalState;
    rt_capture *c = calloc(1, sizeof *c);
    rt_graph *g = calloc(1, sizeof *g);
    if (!c || !g || !graph_lane(g, s->device, &s->lane)) {
        free(c);
        free(g);
        return hipErrorOutOfMemory;
    }
    *c = (rt_capture){rt.captures, ++capture_count, mode, pthread_self(), s, g, false};
    rt.captures = c;
    s->capture = c;
    list_clear(&s->follows, &s->follow_count);
    return hipSuccess;
}

HIP_API hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
    RT_BEGIN(rt_enter_device);
    if ((unsigned)mode > hipStreamCaptureModeRelaxed) return rt_done(hipErrorInvalidValue);
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error) error = begin(s, mode);
    rt_unlock();
    return rt_done(error);
}

// Every node must lie before the point that the origin has come to.
static hipError_t joined(const rt_graph *g, const rt_stream *origin) {
    bool *before = calloc(g->node_count + 1, sizeof *before);
    if (!before) return hipErrorOutOfMemory;
    for (size_t i = 0; i < origin->follow_count; i++) before[origin->follows[i]] = true;
    bool all = true;
    for (size_t i = g->node_count; i--;) { // a node follows earlier ones only
        all = all && before[i];
        for (size_t k = 0; before[i] && k < g->nodes[i]->follow_count; k++)
            before[g->nodes[i]->follows[k]] = true;
    }
    free(before);
    return all ? hipSuccess : hipErrorStreamCaptureUnjoined;
}

static void capture_end(rt_capture *c) {
    for (int i = 0; i < rt.device_count; i++)
        for (rt_stream *s = rt.devices[i].streams; s; s = s->next) {
            if (s->capture != c) continue;
            s->capture = NULL;
            list_clear(&s->follows, &s->follow_count);
        }
    for (rt_capture **at = &rt.captures; *at; at = &(*at)->next) {
        if (*at != c) continue;
        *at = c->next;
        break;
    }
    free(c);
}

static hipError_t end(rt_stream *s, hipGraph_t *out) {
    rt_capture *c = s->capture;
    if (!c) return hipErrorIllegalState;
    if (c->origin != s) return hipErrorStreamCaptureUnmatched;
    if (c->mode != hipStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self()))
        return hipErrorStreamCaptureWrongThread;
    rt_graph *g = c->graph;
    hipError_t error = c->spoiled ? hipErrorStreamCaptureInvalidated : joined(g, s);
    if (!error && !rt_handle_add(g, RT_H_GRAPH)) error = hipErrorOutOfMemory;
    capture_end(c);
    if (error) {
        graph_free(g, false);
        return error;
    }
    for (size_t i = 0; i < g->node_count; i++) rt_handle_add(g->nodes[i], RT_H_NODE);
    *out = g;
    return hipSuccess;
}

HIP_API hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *out) {
    RT_BEGIN(rt_enter);
    if (!out) return rt_done(hipErrorInvalidValue);
    *out = NULL;
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error) error = end(s, out);
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus *status,
                                           unsigned long long *id) {
    RT_BEGIN(rt_enter);
    if (!status) return rt_done(hipErrorInvalidValue);
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_stream_resolve(stream, &s);
    if (!error) {
        *status = !s->capture           ? hipStreamCaptureStatusNone
                  : s->capture->spoiled ? hipStreamCaptureStatusInvalidated
                                        : hipStreamCaptureStatusActive;
        if (id) *id = s->capture ? s->capture->id : 0;
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status) {
    return hipStreamGetCaptureInfo(stream, status, NULL);
}

HIP_API hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
    RT_BEGIN(rt_enter);
    if (!mode || (unsigned)*mode > hipStreamCaptureModeRelaxed) return rt_done(hipErrorInvalidValue);
    hipStreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return rt_done(hipSuccess);
}

// ---- graph handles --------------------------------------------------------------------------------------
HIP_API hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
    RT_BEGIN(rt_enter);
    if (!count) return rt_done(hipErrorInvalidValue);
    rt_lock();
    hipError_t error = rt_handle_is(graph, RT_H_GRAPH) ? hipSuccess : hipErrorInvalidValue;
    if (!error && nodes) {
        size_t given = *count < graph->node_count ? *count : graph->node_count;
        for (size_t i = 0; i < *count; i++) nodes[i] = i < given ? graph->nodes[i] : NULL;
        *count = given;
    } else if (!error) {
        *count = graph->node_count;
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType *type) {
    RT_BEGIN(rt_enter);
    if (!type) return rt_done(hipErrorInvalidValue);
    rt_lock();
    hipError_t error = rt_handle_is(node, RT_H_NODE) ? hipSuccess : hipErrorInvalidValue;
    if (!error) *type = node->work->type;
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipGraphDestroy(hipGraph_t graph) {
    RT_BEGIN(rt_enter);
    rt_lock();
    hipError_t error = rt_handle_is(graph, RT_H_GRAPH) ? hipSuccess : hipErrorInvalidValue;
    if (!error) {
        rt_handle_drop(graph);
        graph_free(graph, true);
    }
    rt_unlock();
    return rt_done(error);
}

// ---- executable graphs ----------------------------------------------------------------------------------
static void exec_free(rt_exec *x) { // without the lock: stops the lanes
    for (size_t i = 1; x->lanes && i < x->graph->lane_count; i++)
        if (x->lanes[i]) rt_stream_stop(x->lanes[i]);
    rt_lock();
    if (x->last.stream) rt_stream_release(x->last.stream);
    graph_free(x->graph, false);
    rt_unlock();
    free(x->lanes);
    free(x);
}

static bool exec_copy(rt_exec *x, const rt_graph *from) {
    rt_graph *g = x->graph;
    for (size_t i = 0; i < from->lane_count; i++) {
        size_t lane;
        if (!graph_lane(g, from->lanes[i], &lane)) return false;
    }
    for (size_t i = 0; i < from->node_count; i++) {
        const rt_node *n = from->nodes[i];
        if (!graph_node(g, n->work, n->follows, n->follow_count, n->lane)) return false;
        rt_work_keep(n->work);
    }
    x->lanes = calloc(from->lane_count, sizeof *x->lanes);
    for (size_t i = 1; x->lanes && i < from->lane_count; i++)
        if (!(x->lanes[i] = rt_stream_new(from->lanes[i], hipStreamNonBlocking, false))) return false;
    return x->lanes != NULL;
}

HIP_API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *out, hipGraph_t graph,
                                                unsigned long long flags) {
    enum { KNOWN = 0xf }; // free on launch, upload, device launch, node priority: none changes what runs
    RT_BEGIN(rt_enter_device);
    if (!out || (flags & ~(unsigned long long)KNOWN)) return rt_done(hipErrorInvalidValue);
    rt_exec *x = calloc(1, sizeof *x);
    if (x) x->graph = calloc(1, sizeof *x->graph);
    if (!x || !x->graph) {
        free(x);
        return rt_done(hipErrorOutOfMemory);
    }
    rt_lock();
    hipError_t error = rt_handle_is(graph, RT_H_GRAPH) ? hipSuccess : hipErrorInvalidValue;
    if (!error && (!exec_copy(x, graph) || !rt_handle_add(x, RT_H_EXEC))) error = hipErrorOutOfMemory;
    rt_unlock();
    if (error)
        exec_free(x);
    else
        *out = x;
    return rt_done(error);
}

HIP_API hipError_t hipGraphInstantiate(hipGraphExec_t *out, hipGraph_t graph, hipGraphNode_t *error_node,
                                       char *log, size_t log_bytes) {
    if (error_node) *error_node = NULL;
    if (log && log_bytes) log[0] = 0;
    return hipGraphInstantiateWithFlags(out, graph, 0);
}

// fences[i]: end of node i. The first and the last operation on the caller's stream tie all lanes to it.
static hipError_t launch(rt_exec *x, rt_stream *s, rt_fence *fences, rt_fence *waits) {
    const rt_graph *g = x->graph;
    size_t last = x->last.stream ? 1 : 0;
    hipError_t error = rt_submit_raw(s, NULL, &x->last, last, true);
    const rt_fence start = {s, s->submitted};
    for (size_t i = 0; i < g->node_count && !error; i++) {
        const rt_node *n = g->nodes[i];
        rt_stream *lane = n->lane ? x->lanes[n->lane] : s;
        size_t count = 0;
        for (size_t k = 0; k < n->follow_count; k++) waits[count++] = fences[n->follows[k]];
        if (!count) waits[count++] = start;
        rt_work_keep(n->work);
        error = rt_submit_raw(lane, n->work, waits, count, false);
        fences[i] = (rt_fence){lane, lane->submitted};
    }
    if (!error) error = rt_submit_raw(s, NULL, fences, g->node_count, false);
    if (error) return error;
    if (x->last.stream) rt_stream_release(x->last.stream);
    rt_stream_keep(s);
    x->last = (rt_fence){s, s->submitted};
    return hipSuccess;
}

HIP_API hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
    RT_BEGIN(rt_enter_device);
    rt_lock();
    rt_stream *s;
    hipError_t error = rt_handle_is(exec, RT_H_EXEC) ? rt_stream_resolve(stream, &s) : hipErrorInvalidValue;
    if (!error) error = rt_capture_legacy(s);
    if (!error && s->capture) { // a graph within a graph is not made
        rt_capture_spoil(s);
        error = hipErrorStreamCaptureUnsupported;
    }
    if (!error && s->device != exec->graph->lanes[0]) error = hipErrorInvalidHandle;
    for (size_t i = 0; !error && i < exec->graph->lane_count; i++)
        error = rt_device_state(exec->graph->lanes[i]);
    if (!error) {
        size_t count = exec->graph->node_count + 1;
        rt_fence *fences = calloc(2 * count, sizeof *fences);
        error = fences ? launch(exec, s, fences, fences + count) : hipErrorOutOfMemory;
        free(fences);
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipGraphExecDestroy(hipGraphExec_t exec) {
    RT_BEGIN(rt_enter);
    rt_lock();
    bool alive = rt_handle_is(exec, RT_H_EXEC);
    if (alive) {
        rt_handle_drop(exec);
        while (exec->last.stream && exec->last.stream->completed < exec->last.number)
            pthread_cond_wait(&rt.changed, &rt.lock);
    }
    rt_unlock();
    if (alive) exec_free(exec);
    return rt_done(alive ? hipSuccess : hipErrorInvalidValue);
}
