// SPDX-License-Identifier: Apache-2.0
// Cores and caches from sysfs. The root is an argument, so that tests can lay out hybrid and SMT machines as folders.
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_line(const char *path, char *text, size_t bytes) {
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool ok = fgets(text, (int)bytes, file) != NULL;
    fclose(file);
    if (ok) text[strcspn(text, "\n")] = 0;
    return ok;
}

static bool read_number(const char *path, int64_t *out) {
    char text[64], *end;
    if (!read_line(path, text, sizeof text)) return false;
    *out = strtoll(text, &end, 10);
    return end != text;
}

// "0-3,8": does the list hold `cpu`?
static bool list_holds(const char *list, int32_t cpu) {
    for (const char *at = list; *at;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (end == at) return false;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        if (cpu >= first && cpu <= last) return true;
        at = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') return false;
    }
    return false;
}

// A core counts once, at the lowest of its threads that this process may use.
static bool counts(const char *sysfs, const unsigned char *allowed, int32_t cpu) {
    char path[512], siblings[256];
    snprintf(path, sizeof path, "%s/system/cpu/cpu%d/topology/thread_siblings_list", sysfs, cpu);
    if (!read_line(path, siblings, sizeof siblings)) return true;
    for (int32_t other = 0; other < cpu; other++)
        if (allowed[other] && list_holds(siblings, other)) return false;
    return true;
}

// How fast a core is, in units that only compare with each other: the scheduler's capacity (ARM and recent x86), else
// the highest clock. 0 when neither is told.
static int64_t core_speed(const char *sysfs, int32_t cpu) {
    char path[512];
    int64_t speed;
    snprintf(path, sizeof path, "%s/system/cpu/cpu%d/cpu_capacity", sysfs, cpu);
    if (read_number(path, &speed)) return speed;
    snprintf(path, sizeof path, "%s/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", sysfs, cpu);
    return read_number(path, &speed) ? speed : 0;
}

// Intel's hybrid chips list their kinds outright; favoured cores of one kind differ in clock by a few percent, so a clock
// tells kinds apart only below 3/4 of the fastest.
static bool is_performance(const char *performance_list, int64_t speed, int64_t fastest, int32_t cpu) {
    if (performance_list[0]) return list_holds(performance_list, cpu);
    return speed * 4 >= fastest * 3;
}

rdi_cores rdi_cores_probe(const char *sysfs, const unsigned char *allowed, int32_t cpus) {
    char path[512], performance_list[256] = "";
    snprintf(path, sizeof path, "%s/cpu_core/cpus", sysfs);
    if (!read_line(path, performance_list, sizeof performance_list)) performance_list[0] = 0;
    int64_t fastest = 0;
    for (int32_t cpu = 0; cpu < cpus; cpu++)
        if (allowed[cpu]) fastest = rdi_max(fastest, core_speed(sysfs, cpu));
    rdi_cores cores = {0, 0};
    for (int32_t cpu = 0; cpu < cpus; cpu++) {
        if (!allowed[cpu] || !counts(sysfs, allowed, cpu)) continue;
        cores.physical++;
        if (is_performance(performance_list, core_speed(sysfs, cpu), fastest, cpu)) cores.performance++;
    }
    if (!cores.physical) cores.physical = 1;
    if (!cores.performance) cores.performance = cores.physical; // only slow cores are ours: use them
    return cores;
}

static int64_t cache_bytes(const char *sysfs, int index) {
    char path[512], text[64], *end;
    snprintf(path, sizeof path, "%s/system/cpu/cpu0/cache/index%d/size", sysfs, index);
    if (!read_line(path, text, sizeof text)) return 0;
    int64_t bytes = strtoll(text, &end, 10);
    return *end == 'K' ? bytes * 1024 : *end == 'M' ? bytes * 1024 * 1024 : bytes;
}

rdi_caches rdi_caches_probe(const char *sysfs) {
    rdi_caches caches = {0, 0, 0};
    for (int index = 0; index < 8; index++) {
        char path[512], type[64];
        int64_t level;
        snprintf(path, sizeof path, "%s/system/cpu/cpu0/cache/index%d/level", sysfs, index);
        if (!read_number(path, &level)) break;
        snprintf(path, sizeof path, "%s/system/cpu/cpu0/cache/index%d/type", sysfs, index);
        if (!read_line(path, type, sizeof type) || !strcmp(type, "Instruction")) continue;
        int64_t *slot = level == 1 ? &caches.l1_bytes : level == 2 ? &caches.l2_bytes : &caches.l3_bytes;
        if (level >= 1 && level <= 3) *slot = cache_bytes(sysfs, index);
    }
    return caches;
}
