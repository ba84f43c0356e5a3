// SPDX-License-Identifier: Apache-2.0
// The calls of the plugin on plain pointers: what the boxed torch ops and the ctypes fallback share. Contexts and plans are
// made at first use and kept; a call then allocates nothing but scratch.
#ifndef RDT_LAYER_H
#define RDT_LAYER_H

#include "radiance.h"

#include <stdbool.h>

#define RDT_API __attribute__((visibility("default")))

// Scratch of one call, 64-byte aligned; NULL = the thread's own host memory, kept between calls.
typedef struct rdt_scratch {
    void *(*get)(void *state, size_t bytes);
    void *state;
} rdt_scratch;

typedef struct rdt_linear_call {
    rd_tensor x;       // [m, k]
    rd_tensor w;       // as its layout has it
    rd_tensor w_scale; // [ceil(n/128), ceil(k/128)]
    rd_tensor bias;    // [n], optional
    rd_tensor c;       // [m, n]
    int32_t layout;    // index into rdt_layouts
    int32_t quantise;  // 1: x is quantised to e4m3 per 1x128 first
    int64_t rows;      // most rows of any call with this weight, which its plan must cover; 0 = no limit
    void *stream;
    rdt_scratch scratch;
} rdt_linear_call;

extern const char *const rdt_layouts[3];

// How contexts of card `device` (0 = host) are made; before its first use. threads 0 = the library's default.
RDT_API rd_status rdt_device_configure(int32_t device, const char *name, int32_t threads,
                                       rd_parallel_for_fn parallel_for);
RDT_API rd_status rdt_context(int32_t device, rd_ctx **out);
RDT_API int32_t rdt_context_made(int32_t device); // 1 when a call has used that device
// From now on plans hold each op's plain-C reference and nothing else.
RDT_API void rdt_use_reference(int32_t on);
// A kept plan, or a new one. The interval key covers 1..limit.
rd_status rdt_plan(int32_t device, const char *op, const rd_param *params, int32_t count, int64_t limit,
                   const rd_plan **out);
// Makes that plan now: on a card this is after the check of its kernels at first use.
RDT_API rd_status rdt_plan_ready(int32_t device, const char *op, const rd_param *params, int32_t count,
                                 int64_t limit);
void *rdt_scratch_get(const rdt_scratch *scratch, size_t bytes);

RDT_API rd_status rdt_linear_run(const rdt_linear_call *call);
RDT_API rd_status rdt_attn_run(const rd_attn_args *args, int64_t longest, int32_t token_order,
                               const rdt_scratch *scratch, void *stream);
RDT_API rd_status rdt_kv_write_run(const rd_kv_write_args *args, int32_t token_order, void *stream);

#endif // RDT_LAYER_H
