// SPDX-License-Identifier: Apache-2.0
// Code objects, their kernels and variables, and launches.
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "rt.h"

enum { MAX_IMAGE_BYTES = 1 << 30 };

typedef struct rt_module {
    int refs; // the handle, and every launch or graph node that runs its code
    rt_device *device;
    gs_module *code;
    struct rt_function *functions;
    struct rt_module *next;
} rt_module;

typedef struct rt_function {
    rt_module *module;
    const gs_kernel *kernel;
    struct rt_function *next;
} rt_function;

typedef struct launch_work {
    rt_work work;
    rt_module *module;
    gs_launch launch;
    uint8_t kernarg[];
} launch_work;

static void module_release(rt_module *m) {
    if (--m->refs) return;
    // A launch under way looks at the table of allocations, of which the module's image is one.
    while (m->device->running) pthread_cond_wait(&rt.changed, &rt.lock);
    gs_module_free(m->code);
    free(m);
}

static void module_close(rt_module *m) { // the handle goes; the code stays while work needs it
    for (rt_function *f = m->functions, *next; f; f = next) {
        next = f->next;
        rt_handle_drop(f);
        free(f);
    }
    m->functions = NULL;
    rt_handle_drop(m);
    for (rt_module **at = &m->device->modules; *at; at = &(*at)->next) {
        if (*at != m) continue;
        *at = m->next;
        break;
    }
    module_release(m);
}

void rt_module_drop_all(rt_device *device) {
    while (device->modules) module_close(device->modules);
}

// ---- images of unknown size -----------------------------------------------------------------------------
// hipModuleLoadData gets a pointer and no size. The kernel's own copy routine tells us where readable memory ends,
// so that a damaged header cannot make us read beyond it.
static bool read_safely(const uint8_t *from, size_t bytes, uint8_t *to) {
    int file = memfd_create("gfx12sim-image", MFD_CLOEXEC);
    if (file < 0) return false;
    size_t done = 0;
    while (done < bytes) {
        long n = syscall(SYS_write, file, from + done, bytes - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    size_t back = 0;
    while (done == bytes && back < bytes) {
        ssize_t n = pread(file, to + back, bytes - back, (off_t)back);
        if (n <= 0) break;
        back += (size_t)n;
    }
    close(file);
    return back == bytes;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t elf_bytes(const uint8_t *image, const Elf64_Ehdr *e) {
    uint64_t end = sizeof *e;
    if (e->e_shoff) end = larger(end, e->e_shoff + (uint64_t)e->e_shnum * e->e_shentsize);
    for (unsigned i = 0; i < e->e_phnum; i++) {
        Elf64_Phdr p;
        if (e->e_phoff > MAX_IMAGE_BYTES ||
            !read_safely(image + e->e_phoff + i * sizeof p, sizeof p, (uint8_t *)&p))
            return 0;
        if (p.p_offset > MAX_IMAGE_BYTES || p.p_filesz > MAX_IMAGE_BYTES) return 0;
        end = larger(end, p.p_offset + p.p_filesz);
    }
    return end;
}

static uint64_t bundle_bytes(const uint8_t *image) {
    enum { COUNT_AT = 24, FIRST_AT = 32, MAX_ENTRIES = 1024 };
    uint64_t count, at = FIRST_AT, end = FIRST_AT, entry[3]; // offset, bytes, length of the name
    if (!read_safely(image + COUNT_AT, sizeof count, (uint8_t *)&count) || count > MAX_ENTRIES) return 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!read_safely(image + at, sizeof entry, (uint8_t *)entry)) return 0;
        if (entry[0] > MAX_IMAGE_BYTES || entry[1] > MAX_IMAGE_BYTES || entry[2] > RT_PAGE_BYTES) return 0;
        at += sizeof entry + entry[2];
        end = larger(end, larger(at, entry[0] + entry[1]));
    }
    return end;
}

static hipError_t copy_image(const uint8_t *image, uint8_t **out, size_t *bytes) {
    static const char bundle[] = "__CLANG_OFFLOAD_BUNDLE__";
    Elf64_Ehdr e;
    if (!read_safely(image, sizeof e, (uint8_t *)&e)) return hipErrorInvalidImage;
    uint64_t size = 0;
    if (memcmp(e.e_ident, ELFMAG, SELFMAG) == 0)
        size = elf_bytes(image, &e);
    else if (memcmp(&e, bundle, sizeof bundle - 1) == 0)
        size = bundle_bytes(image);
    if (!size || size > MAX_IMAGE_BYTES) return hipErrorInvalidImage;
    *out = malloc(size);
    if (!*out) return hipErrorOutOfMemory;
    *bytes = size;
    if (read_safely(image, size, *out)) return hipSuccess;
    free(*out);
    return hipErrorInvalidImage;
}

// ---- modules --------------------------------------------------------------------------------------------
static hipError_t load(const uint8_t *image, size_t bytes, hipModule_t *out) {
    rt_device *d = rt_current();
    rt_module *m = calloc(1, sizeof *m);
    if (!m) return hipErrorOutOfMemory;
    m->refs = 1;
    m->device = d;
    gs_error e;
    gs_status status = gs_module_load(d->mem, image, bytes, &m->code, &e);
    rt_lock();
    if (!status && !rt_handle_add(m, RT_H_MODULE)) {
        gs_module_free(m->code);
        status = GS_E_NOMEM;
    } else if (status) {
        rt_note(d, e.message);
    }
    if (!status) {
        m->next = d->modules;
        d->modules = m;
        *out = m;
    }
    rt_unlock();
    if (!status) return hipSuccess;
    free(m);
    return status == GS_E_UNSUPPORTED ? hipErrorNoBinaryForGpu
           : status == GS_E_NOMEM     ? hipErrorOutOfMemory
                                      : hipErrorInvalidImage;
}

HIP_API hipError_t hipModuleLoadData(hipModule_t *out, const void *image) {
    RT_BEGIN(rt_enter_device);
    if (!out || !image) return rt_done(hipErrorInvalidValue);
    uint8_t *copy;
    size_t bytes;
    hipError_t error = copy_image(image, &copy, &bytes);
    if (error) return rt_done(error);
    error = load(copy, bytes, out);
    free(copy);
    return rt_done(error);
}

HIP_API hipError_t hipModuleLoadDataEx(hipModule_t *out, const void *image, unsigned count, int *options,
                                       void **values) {
    (void)count; // as in HIP: the options are for a compiler, and there is nothing to compile
    (void)options;
    (void)values;
    return hipModuleLoadData(out, image);
}

static hipError_t read_file(const char *path, uint8_t **out, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return hipErrorFileNotFound;
    hipError_t error = hipErrorInvalidImage;
    long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    *out = NULL;
    if (size > 0 && size <= MAX_IMAGE_BYTES && fseek(file, 0, SEEK_SET) == 0) {
        *out = malloc((size_t)size);
        error = hipErrorOutOfMemory;
        if (*out)
            error = fread(*out, 1, (size_t)size, file) == (size_t)size ? hipSuccess : hipErrorInvalidImage;
    }
    fclose(file);
    if (error) free(*out);
    *bytes = error ? 0 : (size_t)size;
    return error;
}

HIP_API hipError_t hipModuleLoad(hipModule_t *out, const char *path) {
    RT_BEGIN(rt_enter_device);
    if (!out || !path) return rt_done(hipErrorInvalidValue);
    uint8_t *image;
    size_t bytes;
    hipError_t error = read_file(path, &image, &bytes);
    if (error) return rt_done(error);
    error = load(image, bytes, out);
    free(image);
    return rt_done(error);
}

HIP_API hipError_t hipModuleUnload(hipModule_t module) {
    RT_BEGIN(rt_enter);
    rt_lock();
    hipError_t error = rt_handle_is(module, RT_H_MODULE) ? hipSuccess : hipErrorInvalidHandle;
    if (!error) module_close(module);
    rt_unlock();
    return rt_done(error);
}

static hipError_t function_of(rt_module *m, const char *name, hipFunction_t *out) {
    const gs_kernel *kernel = gs_module_kernel(m->code, name);
    if (!kernel) return hipErrorNotFound;
    rt_function *f = m->functions;
    while (f && f->kernel != kernel) f = f->next;
    if (!f) {
        f = calloc(1, sizeof *f);
        if (!f || !rt_handle_add(f, RT_H_FUNCTION)) {
            free(f);
            return hipErrorOutOfMemory;
        }
        *f = (rt_function){m, kernel, m->functions};
        m->functions = f;
    }
    *out = f;
    return hipSuccess;
}

HIP_API hipError_t hipModuleGetFunction(hipFunction_t *out, hipModule_t module, const char *name) {
    RT_BEGIN(rt_enter);
    if (!out || !name) return rt_done(hipErrorInvalidValue);
    rt_lock();
    hipError_t error =
        rt_handle_is(module, RT_H_MODULE) ? function_of(module, name, out) : hipErrorInvalidHandle;
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipModuleGetGlobal(hipDeviceptr_t *out, size_t *bytes, hipModule_t module,
                                      const char *name) {
    RT_BEGIN(rt_enter);
    if (!name || (!out && !bytes)) return rt_done(hipErrorInvalidValue);
    rt_lock();
    hipError_t error = rt_handle_is(module, RT_H_MODULE) ? hipSuccess : hipErrorInvalidHandle;
    void *address;
    size_t size;
    if (!error && gs_module_symbol(module->code, name, &address, &size)) error = hipErrorNotFound;
    if (!error && out) *out = address;
    if (!error && bytes) *bytes = size;
    rt_unlock();
    return rt_done(error);
}

HIP_API hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute attribute, hipFunction_t function) {
    enum { CODE_VERSION = 120 };
    RT_BEGIN(rt_enter);
    if (!value) return rt_done(hipErrorInvalidValue);
    rt_lock();
    hipError_t error = rt_handle_is(function, RT_H_FUNCTION) ? hipSuccess : hipErrorInvalidDeviceFunction;
    const gs_kernel_info *k = error ? NULL : gs_kernel_describe(function->kernel);
    if (k) switch (attribute) {
        case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value = (int)k->max_block_items;
            break;
        case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
            *value = (int)k->lds_bytes;
            break;
        case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
            *value = (int)k->scratch_bytes;
            break;
        case HIP_FUNC_ATTRIBUTE_NUM_REGS:
            *value = (int)k->vgprs;
            break;
        case HIP_FUNC_ATTRIBUTE_PTX_VERSION:
        case HIP_FUNC_ATTRIBUTE_BINARY_VERSION:
            *value = CODE_VERSION;
            break;
        case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *value = RT_LDS_BYTES - (int)k->lds_bytes;
            break;
        case HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        case HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        case HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            *value = 0;
            break;
        default:
            error = hipErrorInvalidValue;
            break;
        }
    rt_unlock();
    return rt_done(error);
}

// All of the LDS is open to every kernel already; only an impossible wish is refused.
HIP_API hipError_t hipFuncSetAttribute(const void *function, int attribute, int value) {
    enum { MAX_DYNAMIC = 8, CARVEOUT = 9 };
    RT_BEGIN(rt_enter);
    rt_lock();
    hipError_t error = rt_handle_is(function, RT_H_FUNCTION) ? hipSuccess : hipErrorInvalidDeviceFunction;
    if (!error && attribute != MAX_DYNAMIC && attribute != CARVEOUT) error = hipErrorInvalidValue;
    if (!error && attribute == MAX_DYNAMIC) {
        const rt_function *f = function;
        int most = RT_LDS_BYTES - (int)gs_kernel_describe(f->kernel)->lds_bytes;
        if (value < 0 || value > most) error = hipErrorInvalidValue;
    }
    rt_unlock();
    return rt_done(error);
}

// ---- launch ---------------------------------------------------------------------------------------------
static hipError_t fault_code(const gs_error *e) {
    if (e->status == GS_E_NOMEM) return hipErrorOutOfMemory;
    if (e->status != GS_E_CHECK) return hipErrorLaunchFailure;
    return e->check == GS_CHECK_OUT_OF_BOUNDS ? hipErrorIllegalAddress
           : e->check == GS_CHECK_HANG        ? hipErrorLaunchTimeOut
                                              : hipErrorLaunchFailure;
}

static hipError_t run_launch(rt_work *work, hipError_t state) {
    (void)state;
    launch_work *w = (launch_work *)work;
    rt_device *d = work->device;
    rt_lock();
    if (d->lose_after >= 0 && d->launches >= (uint64_t)d->lose_after) {
        rt_fault(d, hipErrorLaunchFailure, "device lost, as GFX12SIM_LOSE_AFTER asked");
        d->lost = true;
        rt_unlock();
        return hipSuccess;
    }
    d->launches++;
    d->running++;
    gs_launch launch = w->launch; // a graph may run this work again
    gs_stats stats = {0};
    bool counting = d->counting || rt.config.stats_path[0];
    rt_unlock();
    launch.stats = counting ? &stats : NULL;
    gs_error e;
    char text[RT_FAULT_BYTES];
    gs_status status = gs_launch_run(d->mem, &launch, &e);
    if (status) gs_error_format(&e, text, sizeof text);
    rt_lock();
    d->running--;
    rt_stats_add(&d->stats, &stats);
    if (rt.config.stats_path[0] && !status) rt_stats_write(d, &launch, &stats);
    if (status) rt_fault(d, fault_code(&e), text);
    pthread_cond_broadcast(&rt.changed);
    rt_unlock();
    return hipSuccess;
}

static void drop_launch(rt_work *work) {
    module_release(((launch_work *)work)->module);
}

static size_t explicit_bytes(const gs_kernel_info *k) {
    size_t end = 0;
    for (size_t i = 0; i < k->explicit_arg_count; i++)
        end = (size_t)larger(end, k->args[i].offset_bytes + k->args[i].size_bytes);
    return end;
}

// extra = {1, buffer, 2, &bytes, 3}: the arguments as one block, in the kernel's own layout.
static hipError_t pack_extra(const gs_kernel_info *k, void **extra, uint8_t *kernarg) {
    enum { BUFFER = 1, BYTES = 2, END = 3, MAX_WORDS = 8 };
    const void *buffer = NULL;
    size_t bytes = 0;
    int i = 0;
    while (i < MAX_WORDS && (uintptr_t)extra[i] != END) {
        uintptr_t word = (uintptr_t)extra[i];
        if ((word != BUFFER && word != BYTES) || !extra[i + 1]) return hipErrorInvalidValue;
        if (word == BUFFER)
            buffer = extra[i + 1];
        else
            bytes = *(const size_t *)extra[i + 1];
        i += 2;
    }
    if (i >= MAX_WORDS || (bytes && !buffer)) return hipErrorInvalidValue;
    if (bytes < explicit_bytes(k) || bytes > k->kernarg_bytes) return hipErrorInvalidValue;
    if (bytes) memcpy(kernarg, buffer, bytes);
    return hipSuccess;
}

static hipError_t geometry(const gs_kernel_info *k, const gs_launch *l) {
    uint64_t items = 1;
    for (int i = 0; i < 3; i++) {
        if (!l->grid[i] || !l->block[i] || l->block[i] > RT_BLOCK_ITEMS) return hipErrorInvalidConfiguration;
        if ((uint64_t)l->grid[i] * l->block[i] > UINT32_MAX) return hipErrorInvalidValue; // HIP's own limit
        items *= l->block[i];
    }
    if (items > RT_BLOCK_ITEMS || (k->max_block_items && items > k->max_block_items))
        return hipErrorInvalidConfiguration;
    for (int i = 0; i < 3; i++)
        if (k->required_block[i] && k->required_block[i] != l->block[i]) return hipErrorInvalidConfiguration;
    if ((uint64_t)k->lds_bytes + l->dynamic_lds_bytes > RT_LDS_BYTES) return hipErrorLaunchOutOfResources;
    return hipSuccess;
}

static hipError_t launch(rt_function *f, rt_stream *s, const gs_launch *shape, void **params, void **extra) {
    const gs_kernel_info *k = gs_kernel_describe(f->kernel);
    if (s->device != f->module->device) return hipErrorInvalidHandle;
    hipError_t error = geometry(k, shape);
    if (error) return error;
    if ((params && extra) || (!params && !extra && k->explicit_arg_count)) return hipErrorInvalidValue;
    launch_work *w =
        (launch_work *)rt_work_new(sizeof *w + k->kernarg_bytes, s->device, hipGraphNodeTypeKernel);
    if (!w) return hipErrorOutOfMemory;
    w->work.run = run_launch;
    w->work.drop = drop_launch;
    w->module = f->module;
    f->module->refs++;
    w->launch = *shape;
    w->launch.kernarg = w->kernarg;
    w->launch.kernarg_bytes = k->kernarg_bytes;
    gs_error e;
    if (extra)
        error = pack_extra(k, extra, w->kernarg);
    else if (params && gs_kernarg_pack(f->kernel, params, w->kernarg, &e)) {
        rt_note(s->device, e.message);
        error = hipErrorInvalidValue;
    }
    if (error) {
        rt_work_release(&w->work);
        return error;
    }
    return rt_submit(s, &w->work, NULL, 0);
}

HIP_API hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned block_x, unsigned block_y,
                                         unsigned block_z, unsigned shared_bytes, hipStream_t stream,
                                         void **params, void **extra) {
    RT_BEGIN(rt_enter_device);
    rt_lock();
    rt_stream *s;
    hipError_t error =
        rt_handle_is(function, RT_H_FUNCTION) ? rt_stream_resolve(stream, &s) : hipErrorInvalidHandle;
    if (!error) {
        gs_launch shape;
        gs_launch_init(&shape, function->kernel);
        const uint32_t grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
        memcpy(shape.grid, grid, sizeof grid);
        memcpy(shape.block, block, sizeof block);
        shape.dynamic_lds_bytes = shared_bytes;
        shape.checks = rt.config.checks;
        shape.schedule_seed = rt.config.seed;
        shape.threads = rt.config.threads;
        if (rt.config.max_steps) shape.max_wave_steps = rt.config.max_steps;
        error = launch(function, s, &shape, params, extra);
    }
    rt_unlock();
    return rt_done(error);
}
