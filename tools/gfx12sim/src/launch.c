// SPDX-License-Identifier: Apache-2.0
// A launch: geometry checks, kernel arguments with their hidden part, the dispatch packet, worker threads.
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "group.h"
#include "mem.h"
#include "module.h"

enum {
    MAX_THREADS = 256,
    MAX_RESIDENT = 64,
    GROUP_TURN = 1 << 22,
    DISPATCH_PACKET_BYTES = 64,
    MAX_GROUPS = GS_UID_LIMIT / 2,
    MAX_KERNARG_BYTES = 1 << 20,
    MAX_SCRATCH_BYTES = 1 << 20
};

void gs_launch_init(gs_launch *launch, const gs_kernel *kernel) {
    *launch = (gs_launch){.kernel = kernel, .grid = {1, 1, 1}, .block = {32, 1, 1}, .checks = GS_CHECKS_ALL};
}

gs_status gs_kernarg_pack(const gs_kernel *kernel, void *const *params, void *kernarg, gs_error *error) {
    if (!kernel || !kernarg || (!params && kernel->info.explicit_arg_count))
        return gs_error_set(error, GS_E_INVALID, "kernarg: null argument");
    memset(kernarg, 0, kernel->info.kernarg_bytes);
    for (size_t i = 0; i < kernel->info.explicit_arg_count; i++) {
        const gs_arg *a = &kernel->info.args[i];
        if (!params[i])
            return gs_error_set(error, GS_E_INVALID, "kernarg: parameter %zu of %s is null", i,
                                kernel->info.name);
        memcpy((u8 *)kernarg + a->offset_bytes, params[i], a->size_bytes);
    }
    return GS_OK;
}

static gs_status check_geometry(const gs_launch *l, const gs_kernel_info *k, gs_error *error) {
    u64 items = 1, groups = 1;
    for (int d = 0; d < 3; d++) {
        if (!l->grid[d] || !l->block[d] || l->block[d] > 1024)
            return gs_error_set(error, GS_E_INVALID,
                                "%s: grid[%d]=%u block[%d]=%u, needs at least 1 (block at most 1024)",
                                k->name, d, l->grid[d], d, l->block[d]);
        if (k->required_block[d] && k->required_block[d] != l->block[d])
            return gs_error_set(error, GS_E_INVALID, "%s: block[%d]=%u, the kernel was compiled for %u",
                                k->name, d, l->block[d], k->required_block[d]);
        items *= l->block[d], groups *= l->grid[d];
        if (groups > MAX_GROUPS)
            return gs_error_set(error, GS_E_INVALID, "%s: %llu work-groups, at most 2^25", k->name,
                                (unsigned long long)groups);
    }
    if (k->kernarg_bytes > MAX_KERNARG_BYTES || k->scratch_bytes > MAX_SCRATCH_BYTES)
        return gs_error_set(error, GS_E_INVALID,
                            "%s: %u kernarg bytes and %u scratch bytes a lane, at most %u and %u", k->name,
                            k->kernarg_bytes, k->scratch_bytes, MAX_KERNARG_BYTES, MAX_SCRATCH_BYTES);
    u32 limit = k->max_block_items ? k->max_block_items : 1024;
    if (items > limit || items > 1024)
        return gs_error_set(error, GS_E_INVALID, "%s: %llu work-items a group, the kernel takes at most %u",
                            k->name, (unsigned long long)items, limit);
    if (l->grid[1] > 65535 || l->grid[2] > 65535)
        return gs_error_set(error, GS_E_INVALID, "%s: grid %u x %u x %u, y and z at most 65535", k->name,
                            l->grid[0], l->grid[1], l->grid[2]);
    if (l->dynamic_lds_bytes > GS_LDS_MAX_BYTES - k->lds_bytes)
        return gs_error_set(error, GS_E_INVALID, "%s: %u + %u bytes of LDS, a group has 65536", k->name,
                            k->lds_bytes, l->dynamic_lds_bytes);
    return GS_OK;
}

static void put(u8 *kernarg, const gs_arg *a, u64 value) {
    memcpy(kernarg + a->offset_bytes, &value, a->size_bytes < 8 ? a->size_bytes : 8);
}

static void fill_hidden(const gs_run *run, const gs_launch *l) {
    const gs_kernel_info *k = &run->kernel->info;
    u32 dims = l->grid[2] * l->block[2] > 1 ? 3 : l->grid[1] * l->block[1] > 1 ? 2 : 1;
    for (size_t i = 0; i < k->arg_count; i++) {
        const gs_arg *a = &k->args[i];
        if (a->kind != GS_ARG_HIDDEN) continue;
        const char *n = a->value_kind + 7;
        u32 axis = a->value_kind[strlen(a->value_kind) - 1] - 'x';
        if (strncmp(n, "block_count_", 12) == 0 && axis < 3)
            put(run->kernarg, a, l->grid[axis]);
        else if (strncmp(n, "group_size_", 11) == 0 && axis < 3)
            put(run->kernarg, a, l->block[axis]);
        else if (strcmp(n, "grid_dims") == 0)
            put(run->kernarg, a, dims);
        else if (strcmp(n, "dynamic_lds_size") == 0)
            put(run->kernarg, a, l->dynamic_lds_bytes);
        else if (strcmp(n, "shared_base") == 0)
            put(run->kernarg, a, GS_APERTURE_SHARED_HI);
        else if (strcmp(n, "private_base") == 0)
            put(run->kernarg, a, GS_APERTURE_PRIVATE_HI);
        else
            put(run->kernarg, a,
                0); // offsets, remainders, and services that a simulator has not (printf, heap)
    }
}

// hsa_kernel_dispatch_packet_t: sizes of block (u16 x3 at 4) and grid in items (u32 x3 at 12), segments, kernarg.
static void fill_packet(const gs_run *run, const gs_launch *l) {
    u8 *p = run->dispatch_packet;
    memset(p, 0, DISPATCH_PACKET_BYTES);
    u64 kernarg = (u64)(uintptr_t)run->kernarg;
    for (int d = 0; d < 3; d++) {
        u16 block = (u16)l->block[d];
        u32 items = l->grid[d] * l->block[d];
        memcpy(p + 4 + 2 * d, &block, 2);
        memcpy(p + 12 + 4 * d, &items, 4);
    }
    memcpy(p + 24, &run->scratch_bytes, 4);
    memcpy(p + 28, &run->lds_bytes, 4);
    memcpy(p + 40, &kernarg, 8);
}

static gs_status prepare_arguments(gs_run *run, const gs_launch *l, gs_error *error) {
    const gs_kernel_info *k = &run->kernel->info;
    if (l->kernarg_bytes > k->kernarg_bytes || (l->kernarg_bytes && !l->kernarg))
        return gs_error_set(error, GS_E_INVALID, "%s: %zu bytes of arguments, the kernel has %u", k->name,
                            l->kernarg_bytes, k->kernarg_bytes);
    void *p;
    size_t room = ((size_t)k->kernarg_bytes + 63) & ~(size_t)63;
    if (gs_mem_alloc(run->mem, room + DISPATCH_PACKET_BYTES, &p))
        return gs_error_set(error, GS_E_NOMEM, "%s: no memory for arguments", k->name);
    run->kernarg = p;
    run->dispatch_packet = run->kernarg + room;
    memset(p, 0, room);
    if (l->kernarg_bytes) memcpy(p, l->kernarg, l->kernarg_bytes);
    for (size_t i = 0; i < k->explicit_arg_count; i++)
        if (k->args[i].kind == GS_ARG_OTHER)
            return gs_error_set(error, GS_E_UNSUPPORTED, "%s: argument %zu is a %s", k->name, i,
                                k->args[i].value_kind);
    fill_hidden(run, l);
    fill_packet(run, l);
    return GS_OK;
}

static void choose_checks(gs_run *run, u32 checks) {
    for (u32 c = 0; c < GS_CHECK_COUNT; c++) run->check[c] = c <= GS_CHECK_HANG || checks >> c & 1;
    for (u32 c = GS_CHECK_HANG + 1; c < GS_CHECK_COUNT; c++) run->checked |= run->check[c];
}

// ---- workers ------------------------------------------------------------------------------------------------
typedef struct worker {
    gs_run *run;
    gs_stats stats;
    gs_line_stats *lines;
    pthread_t thread;
    bool started;
} worker;

static bool take_group(worker *k, gs_group *g) {
    u32 next = __atomic_fetch_add(&k->run->next_group, 1, __ATOMIC_RELAXED);
    if (next >= k->run->group_count) return false;
    gs_group_start(g, next);
    return true;
}

// Runs groups to their end. A group that sleeps or runs long is set aside for another, so that groups which wait
// for each other get on, as they would when resident together on the card.
static void work(worker *k) {
    gs_group *resident[MAX_RESIDENT];
    u32 count = 0, at = 0;
    while (!__atomic_load_n(&k->run->stop, __ATOMIC_RELAXED)) {
        bool more = __atomic_load_n(&k->run->next_group, __ATOMIC_RELAXED) < k->run->group_count;
        if (at == count && count < MAX_RESIDENT && more) {
            gs_group *g = gs_group_create(k->run, &k->stats, k->lines);
            if (!g && !count) {
                pthread_mutex_lock(&k->run->lock);
                if (!k->run->status)
                    k->run->status = gs_error_set(k->run->error, GS_E_NOMEM, "%s: no memory for a work-group",
                                                  k->run->kernel->info.name);
                pthread_mutex_unlock(&k->run->lock);
                break;
            }
            if (g && !take_group(k, g)) gs_group_free(g), g = NULL;
            if (g) resident[count++] = g;
        }
        if (!count) break;
        if (at >= count) at = 0;
        gs_progress p = gs_group_run(resident[at], GROUP_TURN);
        if (p == GROUP_FAULT) break;
        if (p == GROUP_DONE && !take_group(k, resident[at])) {
            gs_group_free(resident[at]);
            resident[at] = resident[--count];
        } else if (p != GROUP_DONE)
            at++;
        if (p == GROUP_IDLE) sched_yield(); // what it waits for may be another device's launch
    }
    while (count) gs_group_free(resident[--count]);
}
static void *work_thread(void *argument) {
    work(argument);
    return NULL;
}

static void add_stats(gs_stats *to, const gs_stats *from) {
    const u64 *f = (const u64 *)from;
    u64 *t = (u64 *)to;
    for (size_t i = 0; i < offsetof(gs_stats, seconds) / 8; i++) t[i] += f[i];
}

static void collect(gs_run *run, const gs_launch *l, worker *workers, u32 threads) {
    const gs_module *m = run->kernel->module;
    for (u32 t = 0; t < threads; t++) {
        worker *k = &workers[t];
        for (u32 i = 0; k->lines && i < m->op_count; i++) {
            if (l->stats) {
                k->stats.by_class[m->ops[i].cls] += k->lines[i].hits;
                if (m->ops[i].cls == GS_CLASS_WMMA)
                    k->stats.wmma_macs += k->lines[i].hits * (m->ops[i].row->arg >> 12 & 255) * 256;
            }
            if (!l->lines) continue;
            l->lines[i].hits += k->lines[i].hits, l->lines[i].blocking += k->lines[i].blocking;
            l->lines[i].lds_conflict_cycles += k->lines[i].lds_conflict_cycles,
                l->lines[i].lines_touched += k->lines[i].lines_touched;
        }
        if (l->stats) add_stats(l->stats, &k->stats);
        free(k->lines);
    }
}

static void run_workers(gs_run *run, const gs_launch *l, u32 threads) {
    worker *workers = calloc(threads, sizeof *workers);
    if (!workers) {
        run->status = gs_error_set(run->error, GS_E_NOMEM, "launch: no memory for workers");
        return;
    }
    for (u32 t = 0; t < threads; t++) {
        workers[t].run = run;
        if (!run->want_stats) continue;
        workers[t].lines = calloc(run->kernel->module->op_count, sizeof(gs_line_stats));
        if (!workers[t].lines)
            run->status = gs_error_set(run->error, GS_E_NOMEM, "launch: no memory for statistics");
    }
    bool ready = !run->status; // from here on the lock guards it
    for (u32 t = 1; t < threads && ready; t++)
        workers[t].started = pthread_create(&workers[t].thread, NULL, work_thread, &workers[t]) == 0;
    if (ready) work(&workers[0]);
    for (u32 t = 1; t < threads; t++)
        if (workers[t].started) pthread_join(workers[t].thread, NULL);
    collect(run, l, workers, threads);
    free(workers);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

gs_status gs_launch_run(gs_mem *mem, const gs_launch *l, gs_error *error) {
    gs_error ignored;
    if (!error) error = &ignored;
    if (!mem || !l || !l->kernel) return gs_error_set(error, GS_E_INVALID, "launch: null argument");
    const gs_kernel_info *k = &l->kernel->info;
    gs_status status = check_geometry(l, k, error);
    if (status) return status;
    gs_error_set(error, GS_OK, "%s", "");
    double start = now();
    u32 items = l->block[0] * l->block[1] * l->block[2];
    gs_run run = {.launch = l,
                  .kernel = l->kernel,
                  .mem = mem,
                  .error = error,
                  .waves_per_group = (items + GS_LANES - 1) / GS_LANES,
                  .group_count = l->grid[0] * l->grid[1] * l->grid[2],
                  .lds_bytes = k->lds_bytes + l->dynamic_lds_bytes,
                  .scratch_bytes = k->scratch_bytes,
                  .vgprs = GS_VGPRS,
                  .max_steps = l->max_wave_steps ? l->max_wave_steps : 1000000000ull,
                  .want_stats = l->stats || l->lines,
                  .clock = 1};
    if (k->dynamic_stack) run.scratch_bytes += 16384; // calls and alloca: the metadata gives a floor only
    run.scratch_bytes = (run.scratch_bytes + 3) & ~3u;
    memcpy(run.grid, l->grid, sizeof run.grid), memcpy(run.block, l->block, sizeof run.block);
    choose_checks(&run, l->checks);
    pthread_mutex_init(&run.lock, NULL);
    status = prepare_arguments(&run, l, error);
    if (!status) status = gs_mem_snapshot(mem, run.check[GS_CHECK_RACE_GLOBAL], &run.memory);
    if (status == GS_E_NOMEM)
        gs_error_set(error, status, "%s: no memory for the race check's shadow", k->name);
    run.released = calloc(run.group_count, sizeof *run.released);
    if (!status && !run.released)
        status = gs_error_set(error, GS_E_NOMEM, "%s: no memory for %u groups", k->name, run.group_count);
    if (!status) {
        run.uid_base = gs_mem_reserve_uids(mem, run.group_count);
        long host = sysconf(_SC_NPROCESSORS_ONLN);
        u32 threads = l->threads ? l->threads : host > 0 ? (u32)host : 1;
        if (threads > MAX_THREADS) threads = MAX_THREADS;
        if (threads > run.group_count) threads = run.group_count;
        run_workers(&run, l, threads);
        status = run.status;
    }
    free((void *)(uintptr_t)run.memory.ranges);
    free(run.released);
    if (run.kernarg) gs_mem_free(mem, run.kernarg);
    pthread_mutex_destroy(&run.lock);
    if (l->stats) l->stats->launches++, l->stats->seconds += now() - start;
    return status;
}
