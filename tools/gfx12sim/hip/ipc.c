// SPDX-License-Identifier: Apache-2.0
// Memory handles between processes of one host: a handle names the exporter's pool file and a range in it; the
// importer opens that file through /proc and maps the range.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "rt.h"

typedef struct ipc_handle {
    char magic[8];
    int32_t pid, file, device, zero;
    uint64_t offset, bytes, st_dev, st_ino; // the file's identity: a recycled pid or number is noticed
    uint64_t check;
} ipc_handle;
_Static_assert(sizeof(ipc_handle) == sizeof(hipIpcMemHandle_t), "the whole handle, no more");

static const char ipc_magic[8] = {'g', 'f', 'x', '1', '2', 'i', 'p', 'c'};

static uint64_t check_of(const ipc_handle *h) { // FNV-1a over all before it
    uint64_t sum = UINT64_C(14695981039346656037);
    const uint8_t *bytes = (const uint8_t *)h;
    for (size_t i = 0; i < offsetof(ipc_handle, check); i++) sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
    return sum;
}

HIP_API hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *out, void *pointer) {
    RT_BEGIN(rt_enter_device);
    if (!out || !pointer) return rt_done(hipErrorInvalidValue);
    ipc_handle h = {.pid = rt.pid};
    memcpy(h.magic, ipc_magic, sizeof h.magic);
    struct stat st;
    rt_lock();
    const rt_alloc *a = rt_alloc_find(pointer);
    hipError_t error =
        a && a->base == pointer && a->kind == RT_DEVICE && !a->freeing ? hipSuccess : hipErrorInvalidValue;
    if (!error && fstat(a->device->pool_file, &st)) error = hipErrorOperatingSystem;
    if (!error) {
        h.file = a->device->pool_file;
        h.device = a->device->ordinal;
        h.offset = (uint64_t)(a->base - a->device->pool);
        h.bytes = a->bytes;
        h.st_dev = st.st_dev;
        h.st_ino = st.st_ino;
        h.check = check_of(&h);
        memcpy(out, &h, sizeof h);
    }
    rt_unlock();
    return rt_done(error);
}

static rt_alloc *already_open(const ipc_handle *h) {
    for (size_t i = 0; i < rt.alloc_count; i++) {
        rt_alloc *a = &rt.allocs[i];
        if (a->kind == RT_IPC && a->ipc_dev == h->st_dev && a->ipc_inode == h->st_ino &&
            a->ipc_offset == h->offset)
            return a;
    }
    return NULL;
}

static hipError_t map_handle(const ipc_handle *h, void **out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return hipErrorMapFailed; // the exporter has ended, or belongs to someone else
    struct stat st;
    bool same = fstat(file, &st) == 0 && st.st_dev == h->st_dev && st.st_ino == h->st_ino &&
                h->offset % RT_PAGE_BYTES == 0 && h->offset <= (uint64_t)st.st_size &&
                h->bytes <= (uint64_t)st.st_size - h->offset;
    void *p = same ? mmap(NULL, h->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file,
                          (off_t)h->offset)
                   : MAP_FAILED;
    close(file);
    if (p == MAP_FAILED) return hipErrorMapFailed;
    hipError_t error = rt_alloc_insert((rt_alloc){.base = p,
                                                  .bytes = h->bytes,
                                                  .kind = RT_IPC,
                                                  .device = rt_current(),
                                                  .opens = 1,
                                                  .ipc_dev = h->st_dev,
                                                  .ipc_inode = h->st_ino,
                                                  .ipc_offset = h->offset});
    if (error)
        munmap(p, h->bytes);
    else
        *out = p;
    return error;
}

HIP_API hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t handle, unsigned flags) {
    RT_BEGIN(rt_enter_device);
    if (!out || flags != hipIpcMemLazyEnablePeerAccess) return rt_done(hipErrorInvalidValue);
    ipc_handle h;
    memcpy(&h, &handle, sizeof h);
    if (memcmp(h.magic, ipc_magic, sizeof h.magic) != 0 || h.check != check_of(&h) || !h.bytes)
        return rt_done(hipErrorInvalidValue);
    if (h.pid == rt.pid) return rt_done(hipErrorInvalidContext); // as HIP: not in the exporting process
    rt_lock();
    rt_alloc *open_one = already_open(&h);
    hipError_t error = hipSuccess;
    if (open_one) {
        open_one->opens++;
        *out = open_one->base;
    } else {
        error = map_handle(&h, out);
    }
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipIpcCloseMemHandle(void *pointer) {
    RT_BEGIN(rt_enter);
    rt_lock();
    for (int i = 0; i < rt.device_count; i++) rt_device_drain(&rt.devices[i]);
    rt_alloc *a = rt_alloc_find(pointer);
    hipError_t error =
        a && a->base == pointer && a->kind == RT_IPC && a->opens > 0 ? hipSuccess : hipErrorInvalidValue;
    if (!error && --a->opens == 0) rt_alloc_free(a);
    rt_unlock();
    return rt_done(error);
}
