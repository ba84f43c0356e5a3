// SPDX-License-Identifier: Apache-2.0
// What the shadows of LDS and of global memory have in common: an entry's low bits, and the exemption of stores
// that change nothing.
#ifndef GFX12SIM_RACE_H
#define GFX12SIM_RACE_H

#include "sim.h"

#define ATOMIC_BIT (1u << 9)
#define MASK(e)    ((e) >> 5 & 15)
#define WAVE(e)    ((e)&31)

static inline u32 byte_mask(u32 address, u32 bytes) {
    return bytes >= 4 ? 15 : ((1u << bytes) - 1) << (address & 3);
}

// Two waves that store the same value to the same byte do no harm, and compilers that replicate data do it.
static inline bool same_value(const gs_wave *w, int lane, u32 offset, u32 bytes, const u8 *memory) {
    for (u32 i = 0; i < bytes; i++) {
        u32 at = offset + i + (w->store_high ? 2 : 0);
        if ((u8)(w->store[at / 4 * GS_LANES + (u32)lane] >> 8 * (at & 3)) != memory[i]) return false;
    }
    return true;
}

#endif
