// SPDX-License-Identifier: Apache-2.0
// Reads memory once and keeps nothing: the read ceiling of a Hopper card. Eight 16-byte loads of a thread are in flight.
#include "kernels/read/read_args.h"

extern "C" __global__ void __launch_bounds__(RDK_READ_THREADS) rdk_read_sm90a(const __grid_constant__ rdk_read_args args) {
    const uint4 *data = static_cast<const uint4 *>(args.data);
    const uint64_t threads = args.threads;
    uint32_t sum = 0;
    uint64_t at = (uint64_t)blockIdx.x * RDK_READ_THREADS + threadIdx.x;
    for (; at + (RDK_READ_DEPTH - 1) * threads < args.pieces; at += RDK_READ_DEPTH * threads) {
        uint4 piece[RDK_READ_DEPTH];
#pragma unroll
        for (int i = 0; i < RDK_READ_DEPTH; i++) piece[i] = __ldcs(&data[at + i * threads]);
#pragma unroll
        for (int i = 0; i < RDK_READ_DEPTH; i++) sum |= piece[i].x | piece[i].y | piece[i].z | piece[i].w;
    }
    for (; at < args.pieces; at += threads) sum |= data[at].x | data[at].w;
    if (sum == 0x5a5a5a5au) *args.sink = sum;
}
