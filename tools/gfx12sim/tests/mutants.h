// SPDX-License-Identifier: Apache-2.0
// Proof that tests can fail: an instruction's handler is replaced by one that falsifies its result (or, where it has
// none in a register, leaves the instruction out). A test of that instruction must then report an error.
#ifndef GFX12SIM_MUTANTS_H
#define GFX12SIM_MUTANTS_H

#include "module.h"

typedef enum mutation { FLIP_MANY, FLIP_LOW_BIT_OF_ONE_LANE, LEAVE_OUT } mutation;

// Ops of a kernel from its entry to its last s_endpgm, without the first `before` and the last `after`.
void mutants_body(const gs_module *module, const gs_kernel *kernel, u32 before, u32 after, u32 *first,
                  u32 *last);
// Falsifies the instructions `name` (both halves of a VOPD count) in ops [first, last); returns how many. Not for threads.
u32 mutants_set(gs_module *module, u32 first, u32 last, const char *name, mutation how);
void mutants_clear(gs_module *module, u32 first, u32 last);

#endif
