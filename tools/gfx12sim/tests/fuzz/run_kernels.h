// SPDX-License-Identifier: Apache-2.0
// What both fuzz targets do with a code object: load it, read every decoded line, run its kernels for a few steps.
// Any status is fine; a crash, a hang or a sanitizer report is not.
#ifndef GFX12SIM_FUZZ_RUN_KERNELS_H
#define GFX12SIM_FUZZ_RUN_KERNELS_H

#include <stdlib.h>
#include <string.h>
#include "gfx12sim.h"

enum { FUZZ_BUFFER_BYTES = 1 << 12, FUZZ_KERNELS = 4, FUZZ_STEPS = 400, FUZZ_KERNARG_BYTES = 256 };

static inline void fuzz_launch(gs_mem *mem, const gs_module *m, const gs_kernel *kernel, void *buffer,
                               uint32_t checks, uint32_t items) {
    const gs_kernel_info *info = gs_kernel_describe(kernel);
    uint8_t kernarg[FUZZ_KERNARG_BYTES];
    for (size_t i = 0; i < sizeof kernarg; i += sizeof buffer) memcpy(kernarg + i, &buffer, sizeof buffer);
    gs_launch l;
    gs_error error;
    gs_stats stats = {0};
    gs_line_stats *lines = calloc(gs_module_line_count(m) + 1, sizeof *lines);
    gs_launch_init(&l, kernel);
    l.block[0] = items;
    if (info->required_block[0]) memcpy(l.block, info->required_block, sizeof l.block);
    l.kernarg = kernarg;
    l.kernarg_bytes = info->kernarg_bytes < sizeof kernarg ? info->kernarg_bytes : sizeof kernarg;
    l.max_wave_steps = FUZZ_STEPS, l.threads = 1, l.checks = checks;
    if (lines) l.stats = &stats, l.lines = lines;
    gs_launch_run(mem, &l, &error);
    free(lines);
}

// Returns whether the object was accepted.
static inline bool fuzz_object(const void *image, size_t bytes, uint32_t checks, uint32_t items) {
    gs_mem *mem;
    gs_module *m = NULL;
    gs_error error;
    void *buffer;
    if (gs_mem_create(&mem)) return false;
    if (gs_mem_alloc(mem, FUZZ_BUFFER_BYTES, &buffer) == GS_OK &&
        gs_module_load(mem, image, bytes, &m, &error) == GS_OK) {
        memset(buffer, 0, FUZZ_BUFFER_BYTES);
        size_t text = 0;
        for (size_t i = 0; i < gs_module_line_count(m); i++) text += strlen(gs_module_line(m, i).text);
        for (size_t k = 0; text && k < gs_module_kernel_count(m) && k < FUZZ_KERNELS; k++)
            fuzz_launch(mem, m, gs_module_kernel_at(m, k), buffer, checks, items);
        gs_module_free(m);
    }
    gs_mem_destroy(mem);
    return m != NULL;
}

#endif
