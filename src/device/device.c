// SPDX-License-Identifier: Apache-2.0
// rd_device: the running CPU, the running CPU with its instruction set capped, or a fixture by name.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getaffinity
#endif
#include "device/device.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *word;
    uint32_t keep;
} caps[] = {
    {"double", RDI_ISA_NONE},
    {"ref", RDI_ISA_NONE},
    {"avx2", RDI_ISA_AVX2},
    {"avx512", RDI_ISA_AVX2 | RDI_ISA_AVX512},
};

rdi_backend rdi_device_backend(const rd_device *device) {
    return device->backend;
}
uint32_t rdi_device_isa(const rd_device *device) {
    return device->isa;
}

static rd_status unknown_device(const char *name) {
    char known[256] = "cpu cpu:double cpu:ref cpu:avx2 cpu:avx512 gpu:0 sim:gfx1201";
    for (int32_t i = 0; rdi_fixture_at(i); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, " %s", rdi_fixture_at(i)->info.name);
    }
    return rdi_fail(RD_E_NO_DEVICE, "device=%.40s is not known, needs one of: %s", name, known);
}

// mask: the bits that the cap word keeps. RD_E_NO_DEVICE when the word is unknown.
static bool cap_mask(const char *word, uint32_t *mask) {
    for (size_t i = 0; i < RDI_COUNT(caps); i++) {
        if (strcmp(word, caps[i].word) != 0) continue;
        *mask = caps[i].keep;
        return true;
    }
    return false;
}

static int32_t allowed_cpus(unsigned char *allowed, int32_t capacity) {
    memset(allowed, 0, (size_t)capacity);
    cpu_set_t set;
    CPU_ZERO(&set);
    bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (int32_t cpu = 0; cpu < capacity; cpu++)
        allowed[cpu] = known ? (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &set)) : cpu < online;
    return capacity;
}

static void probe(rd_device *device) {
    unsigned char allowed[CPU_SETSIZE];
    int32_t cpus = allowed_cpus(allowed, CPU_SETSIZE);
    rdi_cores cores = rdi_cores_probe("/sys/devices", allowed, cpus);
    rdi_caches caches = rdi_caches_probe("/sys/devices");
    rdi_cpu_model(device->model, sizeof device->model);
    device->info.model = device->model;
    device->info.compute_units = cores.physical;
    device->info.performance_cores = cores.performance;
    device->info.l1_bytes = caches.l1_bytes;
    device->info.l2_bytes = caches.l2_bytes;
    device->info.l3_bytes = caches.l3_bytes;
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    device->info.memory_bytes = pages > 0 && page_bytes > 0 ? (int64_t)pages * page_bytes : 0;
}

static rd_status open_cpu(const char *name, rd_device **out) {
    uint32_t mask = UINT32_MAX;
    const char *cap = rdi_env_text("RADIANCE_ISA");
    if (cap && *cap && (!strcmp(cap, "double") || !cap_mask(cap, &mask)))
        return rdi_fail(RD_E_INVALID, "RADIANCE_ISA=%.40s, needs one of: ref avx2 avx512", cap);
    if (name[3] == ':') {
        uint32_t named = 0;
        if (!cap_mask(name + 4, &named)) return unknown_device(name);
        uint32_t has = rdi_cpu_isa();
        if (named & ~has)
            return rdi_fail(RD_E_NO_DEVICE, "device=%s: this machine has no%s", name,
                            rdi_isa_texts[(named & ~has) & RDI_ISA_CPU_MASK]);
        mask &= named;
    }
    rd_device *device = rdi_calloc(1, sizeof *device);
    if (!device) return RD_E_NOMEM;
    device->backend = RDI_BACKEND_CPU;
    device->isa = rdi_cpu_isa() & mask;
    device->reference_only = !strcmp(name, "cpu:double");
    snprintf(device->name, sizeof device->name, "%s", name);
#if defined(__x86_64__)
    const char *arch = "x86-64";
#else
    const char *arch = "portable";
#endif
    device->info = (rd_device_info){.struct_size = sizeof device->info,
                                    .name = device->name,
                                    .backend = "cpu",
                                    .arch = arch,
                                    .isa = RDI_ISA_TEXT(device->isa)};
    probe(device);
    *out = device;
    return RD_OK;
}

rd_status rdi_device_open_host(const char *name, rd_device **out) {
    if (!strcmp(name, "cpu") || !strncmp(name, "cpu:", 4)) return open_cpu(name, out);
    for (int32_t i = 0; rdi_fixture_at(i); i++) {
        if (strcmp(name, rdi_fixture_at(i)->info.name) != 0) continue;
        rd_device *device = rdi_alloc(sizeof *device);
        if (!device) return RD_E_NOMEM;
        *device = *rdi_fixture_at(i);
        *out = device;
        return RD_OK;
    }
    return unknown_device(name);
}

void rd_device_set_log(rd_device *device, rd_log_fn log, void *log_state) {
    if (device) device->log = (rdi_log){log, log_state};
}

rd_status rd_device_get_info(const rd_device *device, rd_device_info *info) {
    if (!device || !info)
        return rdi_fail(RD_E_INVALID, "rd_device_get_info: %s=NULL", device ? "info" : "device");
    if (info->struct_size < sizeof *info)
        return rdi_fail(RD_E_INVALID, "rd_device_get_info: struct_size=%u, needs %zu", info->struct_size,
                        sizeof *info);
    uint32_t size = info->struct_size;
    *info = device->info;
    info->struct_size = size;
    if (!info->driver) info->driver = ""; // the CPU and the fixtures
    return RD_OK;
}

const char *rd_device_fixture_at(int32_t index) {
    const rd_device *fixture = rdi_fixture_at(index);
    return fixture ? fixture->info.name : NULL;
}
