// SPDX-License-Identifier: Apache-2.0
// Running one work-group: its waves take turns until all have ended.
#ifndef GFX12SIM_GROUP_H
#define GFX12SIM_GROUP_H

#include "sim.h"

typedef enum gs_progress { GROUP_DONE, GROUP_BUSY, GROUP_IDLE, GROUP_FAULT } gs_progress;

gs_group *gs_group_create(gs_run *run, gs_stats *stats, gs_line_stats *lines);
void gs_group_free(gs_group *g);
void gs_group_start(gs_group *g, u32 linear);
// Runs about `budget` wave-instructions. IDLE: every wave has yielded (s_sleep); others should run.
gs_progress gs_group_run(gs_group *g, u64 budget);
gs_stop gs_barrier_arrive(gs_wave *w, const gs_op *op);

#endif
