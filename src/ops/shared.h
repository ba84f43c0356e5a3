// SPDX-License-Identifier: Apache-2.0
// What this floor shares with libradiance_run beyond the public ABI: tagged RADIANCE_PRIVATE by radiance.map.
#ifndef RDI_OPS_SHARED_H
#define RDI_OPS_SHARED_H

#include "base/par.h"

#pragma GCC visibility push(default)

// A context's pool. One pool a context: the spinning threads of a second one would sit on the same CPUs.
rdi_par *rdi_ctx_par(const rd_ctx *ctx);
const rdi_log *rdi_ctx_log(const rd_ctx *ctx);
// A new plan's launches start when what is before them has ended (launch.c). Before the plan is shared.
void rdi_plan_start_in_turn(rd_plan *plan);

#pragma GCC visibility pop
#endif // RDI_OPS_SHARED_H
