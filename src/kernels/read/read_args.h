// SPDX-License-Identifier: Apache-2.0
// By-value arguments of the kernels that only read: what a card's memory gives, for benches to stand beside.
#ifndef RDK_READ_ARGS_H
#define RDK_READ_ARGS_H

#include "base/gpu_args.h"

enum {
    RDK_READ_THREADS = 512,
    RDK_READ_DEPTH = 8,
    RDK_READ_BYTES = 16
}; // a thread's loads in flight, bytes of one

typedef struct rdk_read_args {
    RDK_PTR(const void) data;
    RDK_PTR(uint32_t) sink; // written when a thread's bits sum to a word that many random ones never do
    uint64_t pieces;        // of RDK_READ_BYTES
    uint64_t threads;       // of the whole grid
} rdk_read_args;

#endif // RDK_READ_ARGS_H
