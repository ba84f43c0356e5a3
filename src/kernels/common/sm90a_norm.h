// SPDX-License-Identifier: Apache-2.0
// How a row of k elements is laid over a block: eight elements a thread and turn. A function of k alone, so that a row's sum
// has one order.
#ifndef RDK_SM90A_NORM_H
#define RDK_SM90A_NORM_H

#include "radiance.h"

#include <stdbool.h>
#include <stdint.h>

enum { RDK_NORM_MAX_K = 16384 }; // 1024 threads, two turns

static inline int32_t rdk_norm_turns(int64_t k) {
    return k <= 8192 ? 1 : 2;
}
static inline uint32_t rdk_norm_threads(int64_t k) {
    int64_t lanes = (k + 8 * rdk_norm_turns(k) - 1) / (8 * rdk_norm_turns(k));
    return (uint32_t)((lanes + 31) / 32 * 32);
}

// Blocks: one a row, and from some rows on as many as run at once (2048 threads a multiprocessor), each with several rows.
static inline uint32_t rdk_norm_blocks(int64_t m, int64_t k, int32_t units) {
    int64_t at_once = (int64_t)units * (2048 / rdk_norm_threads(k));
    return (uint32_t)(m < at_once ? m : at_once);
}

// 16-bit rows of whole 16-byte pieces?
static inline bool rdk_norm_vector(const void *data, int64_t stride, int64_t k, rd_dtype dtype) {
    return (uintptr_t)data % 16 == 0 && stride % 8 == 0 && k % 8 == 0 &&
           (dtype == RD_DTYPE_BF16 || dtype == RD_DTYPE_F16);
}

#endif // RDK_SM90A_NORM_H
