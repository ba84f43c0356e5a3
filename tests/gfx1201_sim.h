// SPDX-License-Identifier: Apache-2.0
// Runs rows of gfx1201 in the simulator, without our own backend: the HIP library by path, a row's code object, the launches
// of its geometry. Buffers live twice, on the host and in the simulated card, whose allocations end where they end: an
// access past one is a fault, which fails the test with the simulator's report.
#ifndef RD_TEST_GFX1201_SIM_H
#define RD_TEST_GFX1201_SIM_H

#include "backend/code_objects.h"
#include "registry/registry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static struct sim {
    void *library;
    int (*malloc_)(void **, size_t), (*free_)(void *), (*copy)(void *, const void *, size_t, int),
        (*sync)(void);
    int (*load)(void **, const void *), (*unload)(void *), (*function)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                  void **, void **);
    size_t (*fault)(int, char *, size_t);
    double (*counter)(int, const char *);
    void (*counters_reset)(int);
    struct {
        const char *image;
        void *module;
    } modules[16];
    int module_count;
    int32_t compute_units; // what geometry functions are told; 0 = those of the R9700
} sim;

static inline void sim_symbol(void *slot, const char *name) {
    void *found = dlsym(sim.library, name);
    if (!found) fail_msg("the simulator has no %s", name);
    memcpy(slot, &found, sizeof found);
}

// False (and said) when this build has no simulator.
static inline bool sim_open(void) {
    if (sim.library) return true;
    const char *path = RD_SIM_LIBRARY;
    if (!*path) {
        printf("skipped: this build has no gfx12sim (LLVM 22)\n");
        return false;
    }
    sim.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!sim.library) fail_msg("%s", dlerror());
    sim_symbol(&sim.malloc_, "hipMalloc"), sim_symbol(&sim.free_, "hipFree"),
        sim_symbol(&sim.copy, "hipMemcpy");
    sim_symbol(&sim.sync, "hipDeviceSynchronize"), sim_symbol(&sim.load, "hipModuleLoadData");
    sim_symbol(&sim.unload, "hipModuleUnload"), sim_symbol(&sim.function, "hipModuleGetFunction");
    sim_symbol(&sim.launch, "hipModuleLaunchKernel"), sim_symbol(&sim.fault, "gfx12sim_hip_fault_text");
    sim_symbol(&sim.counter, "gfx12sim_hip_counter"),
        sim_symbol(&sim.counters_reset, "gfx12sim_hip_counters_reset");
    return true;
}
#define NEED_SIM()                                                                                           \
    if (!sim_open()) skip()

static inline void sim_ok(int error, const char *what) {
    char text[2000] = "";
    if (error == 0) return;
    sim.fault(0, text, sizeof text);
    fail_msg("%s: HIP error %d\n%s", what, error, text);
}

// ---- memory -----------------------------------------------------------------------------------------------------------
static inline void *sim_alloc(size_t bytes) {
    void *data = NULL;
    sim_ok(sim.malloc_(&data, bytes ? bytes : 1), "hipMalloc");
    return data;
}
static inline void *sim_put(const void *host, size_t bytes) {
    void *data = sim_alloc(bytes);
    sim_ok(sim.copy(data, host, bytes, 1), "hipMemcpy to the card");
    return data;
}
static inline void sim_get(void *host, const void *data, size_t bytes) {
    sim_ok(sim.copy(host, data, bytes, 2), "hipMemcpy to the host");
}
static inline void sim_free(const void *data) {
    sim_ok(sim.free_((void *)(uintptr_t)data), "hipFree");
}

// ---- rows -------------------------------------------------------------------------------------------------------------
static inline const rdi_row *gpu_row(const char *name) {
    for (int32_t i = 0; i < rdi_row_count; i++)
        if (!strcmp(rdi_rows[i].info.name, name)) return &rdi_rows[i];
    if (rdi_rows_absent(RDI_BACKEND_AMD)) skip(); // a build without the kernels' compiler
    fail_msg("no row %s", name);
    return NULL;
}

static inline void *sim_module(const char *image) {
    for (int i = 0; i < sim.module_count; i++)
        if (!strcmp(sim.modules[i].image, image)) return sim.modules[i].module;
    const rdi_code_object *object = rdi_code_object_find(image);
    if (!object) fail_msg("no code object %s", image);
    assert_true(sim.module_count < (int)RDI_COUNT(sim.modules));
    sim.modules[sim.module_count].image = image;
    sim_ok(sim.load(&sim.modules[sim.module_count].module, object->begin), image);
    return sim.modules[sim.module_count++].module;
}

static inline void sim_launch(const char *image, const rdi_launch *l) {
    void *function = NULL;
    size_t bytes = l->args_bytes;
    sim_ok(sim.function(&function, sim_module(image), l->kernel), l->kernel);
    void *extra[] = {(void *)(uintptr_t)1, (void *)(uintptr_t)l->args, (void *)(uintptr_t)2, &bytes,
                     (void *)(uintptr_t)3}; // HIP_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END
    sim_ok(sim.launch(function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                      l->shared_bytes, NULL, NULL, extra),
           l->kernel);
}

// args hold addresses of the card. ws: of the card, or NULL.
static inline void sim_run(const rdi_row *row, const void *args, void *ws) {
    rdi_launch out[RDI_MAX_LAUNCHES];
    const rd_device_info device = {.compute_units = sim.compute_units ? sim.compute_units : 64};
    int32_t count = row->geometry(args, ws, &device, out);
    assert_in_range(count, 1, RDI_MAX_LAUNCHES);
    for (int32_t i = 0; i < count; i++) sim_launch(row->image, &out[i]);
    sim_ok(sim.sync(), row->info.name);
}

// The same with addresses of the host: each named buffer goes to the card before and comes back after, so that one args
// struct serves the reference and the row. A NULL pointer stays NULL.
typedef struct sim_buffer {
    size_t offset, bytes; // of the pointer in args; of what it points to
} sim_buffer;
static inline void sim_run_mirrored(const rdi_row *row, const void *args, size_t args_bytes,
                                    const sim_buffer *buffers, size_t count, size_t ws_bytes) {
    unsigned char mirrored[512];
    void *card[16] = {0}, *host[16], *ws = ws_bytes ? sim_alloc(ws_bytes) : NULL;
    assert_true(args_bytes <= sizeof mirrored && count <= RDI_COUNT(card));
    memcpy(mirrored, args, args_bytes);
    for (size_t i = 0; i < count; i++) {
        memcpy(&host[i], mirrored + buffers[i].offset, sizeof host[i]);
        if (host[i]) card[i] = sim_put(host[i], buffers[i].bytes);
        memcpy(mirrored + buffers[i].offset, &card[i], sizeof card[i]);
    }
    sim_run(row, mirrored, ws);
    for (size_t i = 0; i < count; i++)
        if (host[i]) sim_get(host[i], card[i], buffers[i].bytes), sim_free(card[i]);
    if (ws) sim_free(ws);
}
#define SIM_BUFFER(args_, field_, bytes_)                                                                    \
    { offsetof(__typeof__(args_), field_), (bytes_) }
#define SIM_RUN(row_, args_, ...)                                                                            \
    sim_run_mirrored((row_), &(args_), sizeof(args_), (const sim_buffer[]){__VA_ARGS__},                     \
                     sizeof((const sim_buffer[]){__VA_ARGS__}) / sizeof(sim_buffer), 0)

#endif // RD_TEST_GFX1201_SIM_H
