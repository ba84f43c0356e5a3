// SPDX-License-Identifier: Apache-2.0
// Beside an engine that has a block-FP8 GEMM of its own: the calls that ours takes.
#ifndef RDI_ENGINE_SHARE_H
#define RDI_ENGINE_SHARE_H

#include "base/base.h"

typedef struct rdi_engine_share {
    int64_t rows; // ours takes calls of up to so many rows; 0 = of any number
    const char *rule;
} rdi_engine_share;
rdi_engine_share rdi_engine_share_decide(const char *arch, int64_t n, int64_t k);

#endif // RDI_ENGINE_SHARE_H
