// SPDX-License-Identifier: Apache-2.0
// Inside the simulated HIP runtime. One lock (rt.lock) guards every structure below; work runs outside it.
// A stream is a queue with one worker thread; order between streams is expressed by fences (stream, number), so
// null-stream semantics, events and graphs all become "this operation waits for these fences".
#ifndef GFX12SIM_RT_H
#define GFX12SIM_RT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "hip_abi.h"
#include "../src/gfx12sim.h"

#define RT_MAX_DEVICES 16
#define RT_PAGE_BYTES  4096
#define RT_LDS_BYTES   65536 // a work-group's most
#define RT_BLOCK_ITEMS 1024
#define RT_FAULT_BYTES 1024

typedef struct rt_stream rt_stream;
typedef struct rt_capture rt_capture;

// What one operation does. Shared: a captured operation is run by every launch of its graph.
typedef struct rt_work {
    int refs;
    hipGraphNodeType type;
    struct rt_device *device;
    hipError_t (*run)(struct rt_work *work,
                      hipError_t state); // state: the device's fault, seen by callbacks only
    void (*drop)(struct rt_work *work);  // frees what the structure around it owns
    bool always;                         // runs even on a faulted device
} rt_work;

typedef struct rt_fence {
    rt_stream *stream; // counted reference
    uint64_t number;
} rt_fence;

typedef struct rt_op {
    struct rt_op *next;
    rt_work *work; // null: only waits
    uint64_t number;
    size_t wait_count;
    rt_fence waits[];
} rt_op;

struct rt_stream {
    int refs;
    struct rt_device *device;
    struct rt_stream *next; // of the device
    unsigned flags;
    rt_op *head, *tail;
    uint64_t submitted, completed, drain;
    pthread_t worker;
    bool started, stopping, null_stream;
    // Capture: the nodes that the next captured operation follows.
    rt_capture *capture;
    size_t *follows;
    size_t follow_count;
    size_t lane;
};

typedef struct rt_event {
    struct rt_device *device;
    unsigned flags;
    bool recorded;
    rt_fence fence;         // of the last record
    struct rt_stamp *stamp; // its time
    uint64_t capture_id;    // last record was captured, by this capture; 0: was not
    size_t *follows;        // ... after these nodes
    size_t follow_count;
} rt_event;

typedef enum rt_kind { RT_DEVICE, RT_HOST, RT_MANAGED, RT_REGISTERED, RT_IPC } rt_kind;

typedef struct rt_alloc {
    uint8_t *base;
    size_t bytes;
    rt_kind kind;
    struct rt_device *device; // owner; of host memory: the device that was current
    unsigned flags;
    bool freeing;  // hipFreeAsync is on its way
    int opens;     // RT_IPC
    dev_t ipc_dev; // RT_IPC: the exporter's pool file
    ino_t ipc_inode;
    uint64_t ipc_offset;
} rt_alloc;

typedef struct rt_device {
    int ordinal;
    gs_mem *mem;
    int pool_file; // memory of the device: one sparse shared file, so that other processes can map parts of it
    uint8_t *pool;
    size_t total_bytes, used_bytes;
    rt_stream *null_stream, *streams;
    uint32_t peers; // bit p: may touch memory of device p
    size_t running; // launches inside the simulator
    uint64_t launches;
    int64_t lose_after; // launches until the device is lost; -1: never
    bool lost;
    hipError_t fault;
    char fault_text[RT_FAULT_BYTES];
    struct rt_module *modules;
    bool counting;
    gs_stats stats;
} rt_device;

typedef struct rt_config {
    int devices;
    size_t memory_bytes;
    uint32_t checks;
    uint64_t seed, max_steps;
    uint32_t threads;
    bool report;
    int lose_device; // -1: none
    int64_t lose_after;
    char stats_path[1024];
    char error[256]; // a variable that could not be understood
} rt_config;

typedef struct rt_state {
    pthread_mutex_t lock;
    pthread_cond_t changed; // an operation ended, a queue grew, a launch left the simulator
    rt_config config;
    hipError_t status;
    pid_t pid;
    rt_device devices[RT_MAX_DEVICES];
    int device_count;
    rt_alloc *allocs; // by address
    size_t alloc_count, alloc_capacity;
    rt_capture *captures;
} rt_state;

extern rt_state rt;

// ---- entry and exit of every exported function (state.c)
hipError_t rt_enter(void);        // initialised, and not in a forked child
hipError_t rt_enter_device(void); // ... and the current device has no fault
hipError_t rt_done(hipError_t error);
rt_device *rt_current(void);
int rt_current_ordinal(void);
void rt_current_set(int ordinal);
hipError_t rt_device_state(const rt_device *device); // with the lock
void rt_fault(rt_device *device, hipError_t error, const char *text);
void rt_note(rt_device *device, const char *text);      // a refusal that is no fault: text and report only
void rt_config_read(rt_config *config);                 // env.c
void rt_stats_add(gs_stats *sum, const gs_stats *more); // counters.c
void rt_stats_write(const rt_device *device, const gs_launch *launch, const gs_stats *stats);

#define RT_BEGIN(enter)                                                                                      \
    do {                                                                                                     \
        hipError_t begin_ = enter();                                                                         \
        if (begin_) return rt_done(begin_);                                                                  \
    } while (0)

static inline void rt_lock(void) {
    pthread_mutex_lock(&rt.lock);
}
static inline void rt_unlock(void) {
    pthread_mutex_unlock(&rt.lock);
}

// ---- live handles (handles.c), with the lock
typedef enum rt_handle {
    RT_H_NONE,
    RT_H_STREAM,
    RT_H_EVENT,
    RT_H_MODULE,
    RT_H_FUNCTION,
    RT_H_GRAPH,
    RT_H_NODE,
    RT_H_EXEC
} rt_handle;
bool rt_handle_add(const void *pointer, rt_handle kind);
bool rt_handle_is(const void *pointer, rt_handle kind);
void rt_handle_drop(const void *pointer);
void rt_handle_clear(void);

// ---- streams (stream.c), with the lock unless said otherwise
rt_stream *rt_stream_new(rt_device *device, unsigned flags, bool null_stream);
void rt_stream_keep(rt_stream *stream);
void rt_stream_release(rt_stream *stream);
void rt_stream_stop(rt_stream *stream); // without the lock: drains, joins the worker
hipError_t rt_stream_resolve(hipStream_t handle, rt_stream **out);
// Takes over the caller's reference to work. Captures instead of queueing when the stream captures.
hipError_t rt_submit(rt_stream *stream, rt_work *work, const rt_fence *waits, size_t wait_count);
hipError_t rt_submit_raw(rt_stream *stream, rt_work *work, const rt_fence *waits, size_t wait_count,
                         bool order);
void rt_wait_fence(rt_fence fence);
hipError_t rt_device_drain(rt_device *device);
void rt_work_keep(rt_work *work);
void rt_work_release(rt_work *work);
rt_work *rt_work_new(size_t bytes, rt_device *device, hipGraphNodeType type);

// ---- memory (memory.c), with the lock
rt_alloc *rt_alloc_find(const void *pointer);
hipError_t rt_alloc_insert(rt_alloc alloc);
void rt_alloc_erase(rt_alloc *alloc);
hipError_t
rt_map_everywhere(const rt_alloc *alloc); // into the address space of each device that may touch it
void rt_unmap_everywhere(const rt_alloc *alloc);
hipError_t rt_pool_open(rt_device *device, size_t bytes);
void rt_pool_close(rt_device *device);
bool rt_in_pool(const void *pointer);
void rt_alloc_free(rt_alloc *alloc); // gives its bytes back
bool rt_peer_may_touch(const rt_device *device, const rt_alloc *alloc);
typedef enum rt_side { RT_SIDE_PAGEABLE, RT_SIDE_PINNED, RT_SIDE_DEVICE } rt_side;
hipError_t rt_range_check(const void *pointer, size_t bytes, rt_side *side, rt_device **device);

// ---- events, capture
typedef struct rt_stamp {
    int refs;
    double seconds;
} rt_stamp;
void rt_event_forget_capture(rt_event *event);
hipError_t rt_capture_add(rt_stream *stream, rt_work *work);
hipError_t rt_capture_forbids(void); // an unsafe call while a capture is on: the error to return
hipError_t rt_capture_legacy(const rt_stream *stream); // null stream while a global capture is on
hipError_t rt_capture_event_record(rt_stream *stream, rt_event *event);
hipError_t rt_capture_event_wait(rt_stream *stream, const rt_event *event);
void rt_capture_spoil(rt_stream *stream);
void rt_module_drop_all(rt_device *device);

#endif
