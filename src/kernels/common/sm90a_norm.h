// SPDX-License-Identifier: Apache-2.0
// How a row of k elements is laid over a block: sixteen elements a thread. A function of k alone, so that a row's sum has one order.
#ifndef RDK_SM90A_NORM_H
#define RDK_SM90A_NORM_H

#include "radiance.h"

#include <stdbool.h>
#include <stdint.h>

// At most 1024, for the 16384 elements that the rows state.
static inline uint32_t rdk_norm_threads(int64_t k) {
    return (uint32_t)((k + 511) / 512 * 32);
}

// Rows of whole 16-byte pieces of this 16-bit type, and of at most 512 threads?
static inline bool rdk_norm_vector(const void *data, int64_t stride, int64_t k, rd_dtype dtype,
                                   rd_dtype wanted) {
    return k <= 8192 && (uintptr_t)data % 16 == 0 && stride % 8 == 0 && k % 8 == 0 && dtype == wanted &&
           (dtype == RD_DTYPE_BF16 || dtype == RD_DTYPE_F16);
}

#endif // RDK_SM90A_NORM_H
