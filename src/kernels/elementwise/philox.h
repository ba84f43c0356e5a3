// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
// 3" (SC 2011), section 3.3: ten rounds of two 32x32 multiplications on a 128-bit counter, the key bumped by Weyl constants.
#ifndef RDI_PHILOX_H
#define RDI_PHILOX_H

#include <stdint.h>

static inline void rdi_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t next0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, next2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = next0, c2 = next2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// The one draw of a token: uniform on the multiples of 2^-53 in [0, 1), a function of (seed, counter) alone.
static inline double rdi_uniform53(uint64_t seed, uint64_t counter) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t at[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t out[4];
    rdi_philox4x32(at, key, out);
    return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

#endif // RDI_PHILOX_H
