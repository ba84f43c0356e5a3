// SPDX-License-Identifier: Apache-2.0
// Which all-reduce serves a message: our exact one or the vendor's library.
#ifndef RDI_REDUCE_ROUTE_H
#define RDI_REDUCE_ROUTE_H

#include "base/base.h"

// 48 MiB, the larger of the two published limits of the one-shot scratch (32 MiB before). It is a limit to state, not to
// hide: a prefill chunk of 8192 x 5120 bf16 is 80 MiB and went to the vendor's library in silence.
enum { RDI_REDUCE_CAP_BYTES = 48 * 1024 * 1024 };

typedef struct rdi_reduce_question {
    int64_t world_size, bytes, cap_bytes;
    rd_dtype dtype;
} rdi_reduce_question;
typedef struct rdi_reduce_route {
    bool exact;     // else the vendor's library
    char rule[128]; // names the size that missed
} rdi_reduce_route;
rdi_reduce_route rdi_reduce_route_decide(const rdi_reduce_question *question);

#endif // RDI_REDUCE_ROUTE_H
