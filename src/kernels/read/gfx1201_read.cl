// SPDX-License-Identifier: Apache-2.0
// Reads memory once and keeps nothing: the read ceiling of a gfx1201 card. Eight 16-byte loads of a lane are in flight.
#include "kernels/elementwise/gfx1201_device.h"
#include "kernels/read/read_args.h"

kernel THREADS(RDK_READ_THREADS) void rdk_read_gfx1201(const rdk_read_args a) {
    global const uint4 *data = (global const uint4 *)a.data;
    const ulong threads = a.threads;
    uint sum = 0;
    ulong at = (ulong)group_x() * RDK_READ_THREADS + thread_in_group();
    for (; at + (RDK_READ_DEPTH - 1) * threads < a.pieces; at += RDK_READ_DEPTH * threads) {
        uint4 piece[RDK_READ_DEPTH];
        for (int i = 0; i < RDK_READ_DEPTH; i++) piece[i] = data[at + i * threads];
        for (int i = 0; i < RDK_READ_DEPTH; i++) sum |= piece[i].x | piece[i].y | piece[i].z | piece[i].w;
    }
    for (; at < a.pieces; at += threads) sum |= data[at].x | data[at].w;
    if (sum == 0x5a5a5a5au) *a.sink = sum;
}
