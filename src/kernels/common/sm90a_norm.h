// SPDX-License-Identifier: Apache-2.0
// How a row of k elements is laid over threads: sixteen elements a thread of one block, or eight a thread of a cluster.
#ifndef RDK_SM90A_NORM_H
#define RDK_SM90A_NORM_H

#include <stdint.h>

enum {
    RDK_NORM_PIECE = 256, // elements of a warp
    RDK_NORM_PIECES = 64, // of the 16384 elements that the rows state
    RDK_NORM_VECTOR_K = 8192,
    RDK_NORM_BLOCKS = 4 // of a cluster
};

#if !defined(__CUDACC__)
#include "radiance.h"

#include <stdbool.h>

// Of a block that has the whole row, an even number of warps: pieces come in fours.
static inline uint32_t rdk_norm_threads(int64_t k) {
    return (uint32_t)((k + 1023) / 1024 * 64);
}
// Of each block of a cluster.
static inline uint32_t rdk_norm_cluster_threads(int64_t k) {
    const int64_t elems = RDK_NORM_PIECE * RDK_NORM_BLOCKS;
    return (uint32_t)((k + elems - 1) / elems * 32);
}

// Rows of whole pieces of eight of this type, in 16-byte vectors, and of at most 512 threads?
static inline bool rdk_norm_vector(const void *data, int64_t stride, int64_t k, rd_dtype dtype,
                                   rd_dtype wanted) {
    return k <= RDK_NORM_VECTOR_K && (uintptr_t)data % 16 == 0 && stride % 8 == 0 && k % 8 == 0 &&
           dtype == wanted;
}
// Few enough rows that each has several multiprocessors to itself?
static inline bool rdk_norm_clusters(int64_t rows, int32_t units) {
    return rows * RDK_NORM_BLOCKS <= (int64_t)units;
}
#endif

#endif // RDK_SM90A_NORM_H
