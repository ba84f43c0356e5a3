// SPDX-License-Identifier: Apache-2.0
// What the simulated HIP runtime offers beyond HIP: the text of a fault and the counters of the launches.
#ifndef GFX12SIM_HIP_H
#define GFX12SIM_HIP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// The report of the fault that stopped the device (check, kernel, work-group, wave, lane, address, instruction), or
// else why the last code object or launch was refused, or else "". Returns the length of the whole text; writes at most bytes, ending in 0.
size_t gfx12sim_hip_fault_text(int device, char *text, size_t bytes);
// Counting begins with the first reset. One counter, summed over the launches that have ended since the last reset;
// the name is one that gfx12sim_hip_counter_name gives. Returns -1 for an unknown name or device.
double gfx12sim_hip_counter(int device, const char *name);
const char *gfx12sim_hip_counter_name(size_t index); // null past the last
void gfx12sim_hip_counters_reset(int device);

#ifdef __cplusplus
}
#endif
#endif
