// SPDX-License-Identifier: Apache-2.0
// Tests of single instructions: many one-instruction kernels are assembled in one run of clang, each executed
// over the same inputs, and each result compared with a scalar formula written here and nowhere else.
//
// Registers around the instruction under test: v10..v25 hold in[0..15] of the lane; v40..v43 start as in[12..15],
// v44..v47 as 0, and are stored afterwards; s16..s31 hold sc[0..15] of the wave; s60, s61 start as sc[10], sc[11];
// v1 is 64 * lane, the lane's own bytes in the output buffer s[6:7] (also v[54:55], and buffer resource s[36:39]);
// v50 its own 64 bytes of LDS; s[8:9] + s10 holds sc. vcc_lo is sc[14], SCC is sc[15] & 1, EXEC is sc[13] (all ones in even waves).
#ifndef GFX12SIM_SNIPPET_H
#define GFX12SIM_SNIPPET_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include "gfx12sim.h"

enum { SNIPPET_WAVES = 96, SNIPPET_WORDS = 16 };

typedef struct snippet_out { // per lane
    uint32_t v[8], s60, s61, vcc, scc, exec, v10, pad[2];
} snippet_out;

typedef struct snippet_inputs {
    uint32_t in[SNIPPET_WAVES * 32][SNIPPET_WORDS];
    uint32_t sc[SNIPPET_WAVES][16];
} snippet_inputs;

void snippet_fill(snippet_inputs *inputs, uint64_t seed);
// Assembles text (a whole file) with llvm-mc-22 and ld.lld-22; the caller frees. Fails the test when it does not assemble.
void *assemble_text(const char *text, size_t *bytes);
// One module with a kernel t0..tN-1 per instruction line.
gs_module *snippet_module(gs_mem *mem, const char *const *lines, size_t count);
void snippet_run(gs_mem *mem, gs_module *module, size_t index, const snippet_inputs *device_inputs,
                 snippet_out *device_out);
// The same, but a fault is the caller's business.
gs_status snippet_try(gs_mem *mem, gs_module *module, size_t index, const snippet_inputs *device_inputs,
                      snippet_out *device_out, gs_error *error);
// Instructions around each line of snippet_module.
void snippet_frame(uint32_t *instructions_before, uint32_t *instructions_after);

// Kernel text for hand-written bodies: prologue (descriptor and metadata) around `body`.
typedef struct kernel_text {
    const char *name, *body;
    uint32_t kernarg_bytes, lds_bytes, scratch_bytes, block;
} kernel_text;
void *assemble_kernels(const kernel_text *kernels, size_t count, size_t *bytes);

// Exact rounding to a half, found by comparing neighbours; independent of the simulator's conversion.
uint32_t nearest_half(__float128 exact);
double half_value(uint32_t bits);
double fp8_value(uint32_t bits);
double bf8_value(uint32_t bits);

#endif
