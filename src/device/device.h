// SPDX-License-Identifier: Apache-2.0
// Inside of rd_device: the public facts, the bits that rows are matched with, the log of its measurements.
#ifndef RDI_DEVICE_H
#define RDI_DEVICE_H

#include "base/base.h"
#include "base/isa.h"

typedef struct rdi_card rdi_card; // src/backend/backend.h

// What a chip promises, for policy: the same numbers on the card and on its fixture, so that both take the same route. 0 unknown.
typedef struct rdi_rates {
    int32_t clock_mhz; // of the multiprocessors, at most
    double memory_gbs; // clock of the memory times its width
} rdi_rates;

struct rd_device {
    rd_device_info info;
    rdi_backend backend;
    uint32_t isa;
    bool reference_only; // "cpu:double": rows that accumulate in double, one an op
    rdi_log log;
    rdi_rates rates;
    rdi_card *card;           // an opened GPU; NULL on the CPU and for fixtures
    char name[32], model[96]; // what info points to on a probed device
};

rdi_backend rdi_device_backend(const rd_device *device);
uint32_t rdi_device_isa(const rd_device *device);

// rd_device_open's part that needs no driver: the CPU and the fixtures. Cards are opened by src/backend/cards.c.
rd_status rdi_device_open_host(const char *name, rd_device **out);

// Fixtures (fixtures.c): NULL past the end.
const rd_device *rdi_fixture_at(int32_t index);

// The running machine (cpu_probe.c, cores.c).
uint32_t rdi_cpu_isa(void);
void rdi_cpu_model(char *text, size_t bytes);

typedef struct rdi_cores {
    int32_t physical, performance; // among those this process may run on
} rdi_cores;
typedef struct rdi_caches {
    int64_t l1_bytes, l2_bytes, l3_bytes; // data or unified, of one core's view
} rdi_caches;
// sysfs: "/sys/devices" on a real machine; allowed: one byte a CPU, non-zero = may run there.
rdi_cores rdi_cores_probe(const char *sysfs, const unsigned char *allowed, int32_t cpus);
rdi_caches rdi_caches_probe(const char *sysfs);

#endif // RDI_DEVICE_H
