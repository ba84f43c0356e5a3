// SPDX-License-Identifier: Apache-2.0
// Two spinning threads on one CPU halve each other, and the kernel may leave them there for seconds: seen on Linux 6.18 with
// two cores (2026-11-30, SmolLM2 in block-FP8, two threads): 130 tok/s unpinned, 320 pinned. So each helper is tied to a CPU
// of its own. The caller's thread belongs to the caller: it is only moved when it stands on a helper's CPU.
#define _GNU_SOURCE
#include "base/affinity.h"

#include "base/base.h"

#include <sched.h>
#include <stdatomic.h>

struct rdi_affinity {
    cpu_set_t allowed, helpers;
    int first; // rank among the allowed CPUs at which this team starts
};

// Teams of one process start on CPUs after one another: two contexts must not put their helpers on the same ones.
static _Atomic unsigned next_first;

rdi_affinity *rdi_affinity_create(int threads) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < threads) return NULL;
    rdi_affinity *affinity = rdi_calloc(1, sizeof *affinity);
    if (!affinity) return NULL;
    affinity->allowed = allowed;
    affinity->first = (int)(atomic_fetch_add(&next_first, (unsigned)threads) % (unsigned)CPU_COUNT(&allowed));
    return affinity;
}

void rdi_affinity_free(rdi_affinity *affinity) {
    rdi_free(affinity);
}

void rdi_affinity_pin(rdi_affinity *affinity, pthread_t thread, int index) {
    if (!affinity) return;
    int rank =
        (affinity->first + index + 1) % CPU_COUNT(&affinity->allowed); // the first one is left for the caller
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &affinity->allowed) || rank-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (!pthread_setaffinity_np(thread, sizeof one, &one)) CPU_SET(cpu, &affinity->helpers);
        return;
    }
}

void rdi_affinity_step_aside(const rdi_affinity *affinity) {
    const int cpu = affinity ? sched_getcpu() : -1;
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &affinity->helpers)) return;
    cpu_set_t own, elsewhere;
    if (sched_getaffinity(0, sizeof own, &own)) return;
    CPU_ZERO(&elsewhere);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &own) && !CPU_ISSET(i, &affinity->helpers)) CPU_SET(i, &elsewhere);
    if (!CPU_COUNT(&elsewhere) || sched_setaffinity(0, sizeof elsewhere, &elsewhere)) return;
    (void)sched_setaffinity(0, sizeof own, &own);
}
