// SPDX-License-Identifier: Apache-2.0
// All-reduce route. The push writes 16-byte words into every peer's scratch and sums in f32, in rank order.
#include "policy/reduce_route.h"

#include <stdio.h>

rdi_reduce_route rdi_reduce_route_decide(const rdi_reduce_question *q) {
    rdi_reduce_route route = {.exact = false};
    if (q->world_size < 2 || q->world_size > 8)
        snprintf(route.rule, sizeof route.rule, "reduce_route: world_size=%lld, needs 2 to 8",
                 (long long)q->world_size);
    else if (q->dtype != RD_DTYPE_BF16 && q->dtype != RD_DTYPE_F16 && q->dtype != RD_DTYPE_F32)
        snprintf(route.rule, sizeof route.rule, "reduce_route: dtype=%s, needs one of: fp32 bf16 fp16",
                 rd_dtype_name(q->dtype));
    else if (q->bytes % 16)
        snprintf(route.rule, sizeof route.rule, "reduce_route: bytes=%lld, needs a multiple of 16",
                 (long long)q->bytes);
    else if (q->bytes > q->cap_bytes)
        snprintf(route.rule, sizeof route.rule, "reduce_route: bytes=%lld, needs <= %lld",
                 (long long)q->bytes, (long long)q->cap_bytes);
    else {
        route.exact = true;
        snprintf(route.rule, sizeof route.rule, "reduce_route: world size, type and size fit");
    }
    return route;
}
