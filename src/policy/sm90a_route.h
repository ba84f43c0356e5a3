// SPDX-License-Identifier: Apache-2.0
// Hopper: which order class serves a GEMM whose caller takes the bits of either ("order=any"), by an estimate of both rows' times from
// the chip's multiprocessors, clock and memory.
#ifndef RDI_SM90A_ROUTE_H
#define RDI_SM90A_ROUTE_H

#include "device/device.h"

typedef struct rdi_sm90a_question {
    const char *op; // "gemm_fp8block", "gemm_fp8block_w8a16", "gemm_bf16"
    int64_t m, n, k;
    int32_t multiprocessors;
    rdi_rates rates;
} rdi_sm90a_question;

typedef struct rdi_sm90a_route {
    bool chunk;               // else "step"
    double step_us, chunk_us; // 0: not estimated
    const char *rule;
} rdi_sm90a_route;

enum { RDI_SM90A_STEP_ROWS = 128 }; // more rows are class "chunk" alone
rdi_sm90a_route rdi_sm90a_route_decide(const rdi_sm90a_question *question);

#endif // RDI_SM90A_ROUTE_H
