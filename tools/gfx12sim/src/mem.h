// SPDX-License-Identifier: Apache-2.0
// What the launch needs of the allocation table beyond gfx12sim.h.
#ifndef GFX12SIM_MEM_H
#define GFX12SIM_MEM_H

#include "sim.h"

#define GS_UID_LIMIT (1u << 26) // the race check's stamps have 26 bits for the group

gs_status gs_mem_alloc_aligned(gs_mem *mem, size_t bytes, size_t align, void **out);
gs_status gs_mem_snapshot(gs_mem *mem, bool shadows, gs_snapshot *out); // free out->ranges
const gs_range *gs_snapshot_find(const gs_snapshot *snapshot, u64 address);
u32 gs_mem_reserve_uids(gs_mem *mem, u32 count);

#endif
