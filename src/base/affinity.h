// SPDX-License-Identifier: Apache-2.0
// Keeps the spinning threads of a team on CPUs of their own.
#ifndef RDI_AFFINITY_H
#define RDI_AFFINITY_H

#include <pthread.h>
#include <stdbool.h>

typedef struct rdi_affinity rdi_affinity;
rdi_affinity *rdi_affinity_create(int threads); // NULL: fewer CPUs allowed than threads, or the system does not say
void rdi_affinity_free(rdi_affinity *affinity);
// Ties helper `index` (0 = the first started thread) to its CPU.
void rdi_affinity_pin(rdi_affinity *affinity, pthread_t thread, int index);
// Moves the calling thread off the helpers' CPUs if it is found on one; its allowed set stays as it was.
void rdi_affinity_step_aside(const rdi_affinity *affinity);

#endif // RDI_AFFINITY_H
