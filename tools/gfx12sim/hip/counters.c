// SPDX-License-Identifier: Apache-2.0
// The simulator's counters under their names: for gfx12sim_hip_counter and for the table of launches that
// GFX12SIM_STATS asks for.
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "rt.h"
#include "gfx12sim_hip.h"

#define C(name)                                                                                              \
    { #name, offsetof(gs_stats, name) }
#define AT(name, array, index)                                                                               \
    { name, offsetof(gs_stats, array) + (index) * sizeof(uint64_t) }
static const struct {
    const char *name;
    size_t offset;
} counters[] = {
    C(launches),
    C(groups),
    C(waves),
    C(instructions),
    AT("salu", by_class, GS_CLASS_SALU),
    AT("smem", by_class, GS_CLASS_SMEM),
    AT("valu", by_class, GS_CLASS_VALU),
    AT("trans", by_class, GS_CLASS_TRANS),
    AT("wmma", by_class, GS_CLASS_WMMA),
    AT("vmem_load", by_class, GS_CLASS_VMEM_LOAD),
    AT("vmem_store", by_class, GS_CLASS_VMEM_STORE),
    AT("atomic", by_class, GS_CLASS_ATOMIC),
    AT("scratch", by_class, GS_CLASS_SCRATCH),
    AT("lds", by_class, GS_CLASS_LDS),
    AT("branch", by_class, GS_CLASS_BRANCH),
    AT("wait", by_class, GS_CLASS_WAIT),
    AT("barrier", by_class, GS_CLASS_BARRIER),
    AT("hint", by_class, GS_CLASS_HINT),
    C(wmma_macs),
    C(load_bytes),
    C(store_bytes),
    C(smem_bytes),
    C(load_lines),
    C(store_lines),
    C(atomic_lanes),
    C(lds_bytes),
    C(lds_cycles),
    C(lds_conflict_cycles),
    C(scratch_bytes),
    AT("wait_loadcnt", waits, GS_CNT_LOAD),
    AT("wait_storecnt", waits, GS_CNT_STORE),
    AT("wait_dscnt", waits, GS_CNT_DS),
    AT("wait_kmcnt", waits, GS_CNT_KM),
    AT("blocking_loadcnt", blocking_waits, GS_CNT_LOAD),
    AT("blocking_storecnt", blocking_waits, GS_CNT_STORE),
    AT("blocking_dscnt", blocking_waits, GS_CNT_DS),
    AT("blocking_kmcnt", blocking_waits, GS_CNT_KM),
    C(barriers),
};
enum { COUNTERS = sizeof counters / sizeof *counters };
// Every member is a 64-bit count but the last: a new one must be named here too.
_Static_assert((COUNTERS + 1) * 8 == sizeof(gs_stats), "a counter of gs_stats is missing in the table");

static uint64_t value(const gs_stats *stats, size_t index) {
    uint64_t v;
    memcpy(&v, (const char *)stats + counters[index].offset, sizeof v);
    return v;
}

void rt_stats_add(gs_stats *sum, const gs_stats *more) {
    for (size_t i = 0; i < COUNTERS; i++) {
        uint64_t v = value(sum, i) + value(more, i);
        memcpy((char *)sum + counters[i].offset, &v, sizeof v);
    }
    sum->seconds += more->seconds;
}

// With the lock, so that lines of two devices do not mix. One line a launch, below one line of titles.
void rt_stats_write(const rt_device *device, const gs_launch *launch, const gs_stats *stats) {
    FILE *file = fopen(rt.config.stats_path, "a");
    if (!file) return;
    fseek(file, 0, SEEK_END);
    if (ftell(file) == 0) {
        fputs("device,kernel,grid_x,grid_y,grid_z,block_x,block_y,block_z", file);
        for (size_t i = 0; i < COUNTERS; i++) fprintf(file, ",%s", counters[i].name);
        fputs(",seconds\n", file);
    }
    fprintf(file, "%d,%s,%u,%u,%u,%u,%u,%u", device->ordinal, gs_kernel_describe(launch->kernel)->name,
            launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1],
            launch->block[2]);
    for (size_t i = 0; i < COUNTERS; i++) fprintf(file, ",%llu", (unsigned long long)value(stats, i));
    fprintf(file, ",%.6f\n", stats->seconds);
    fclose(file);
}

HIP_API const char *gfx12sim_hip_counter_name(size_t index) {
    return index < COUNTERS ? counters[index].name : index == COUNTERS ? "seconds" : NULL;
}

HIP_API double gfx12sim_hip_counter(int device, const char *name) {
    hipError_t entered = rt_enter();
    if (entered || !name || device < 0 || device >= rt.device_count) return -1;
    double result = -1;
    rt_lock();
    const gs_stats *stats = &rt.devices[device].stats;
    if (strcmp(name, "seconds") == 0) result = stats->seconds;
    for (size_t i = 0; i < COUNTERS; i++)
        if (strcmp(name, counters[i].name) == 0) result = (double)value(stats, i);
    rt_unlock();
    return result;
}

HIP_API void gfx12sim_hip_counters_reset(int device) {
    hipError_t entered = rt_enter();
    if (entered || device < 0 || device >= rt.device_count) return;
    rt_lock();
    rt.devices[device].stats = (gs_stats){0};
    rt.devices[device].counting = true;
    rt_unlock();
}
