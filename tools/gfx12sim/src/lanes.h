// SPDX-License-Identifier: Apache-2.0
// Moving bytes between 32 lane addresses and registers laid out [dword][lane]: the inner loops of every vector
// memory instruction. Addresses have been checked by the caller.
#ifndef GFX12SIM_LANES_H
#define GFX12SIM_LANES_H

#include "isa.h"

// What a sub-dword access does with its value.
typedef enum gs_part {
    PART_WORDS,
    PART_U8,
    PART_I8,
    PART_U16,
    PART_I16,
    PART_LO_U8,
    PART_LO_I8,
    PART_LO_16,
    PART_HI_U8,
    PART_HI_I8,
    PART_HI_16
} gs_part;

static inline u32 lanes_merge(u32 old, u32 value, gs_part part) {
    switch (part) {
    case PART_I8:
        return (u32)(i32)(int8_t)value;
    case PART_I16:
        return (u32)(i32)(int16_t)value;
    case PART_LO_U8:
    case PART_LO_16:
        return (old & 0xffff0000) | value;
    case PART_LO_I8:
        return (old & 0xffff0000) | ((u32)(i32)(int8_t)value & 0xffff);
    case PART_HI_U8:
    case PART_HI_16:
        return (old & 0xffff) | value << 16;
    case PART_HI_I8:
        return (old & 0xffff) | (u32)(i32)(int8_t)value << 16;
    default:
        return value;
    }
}

// Lane addresses: 64-bit ones are host addresses, 32-bit ones lie in LDS.
typedef struct gs_lanes {
    const u64 *global; // or null
    const u8 *lds;
    const u32 *offset;
} gs_lanes;

static inline __attribute__((always_inline)) gs_lanes lanes_global(const u64 *address) {
    return (gs_lanes){address, NULL, NULL};
}
static inline __attribute__((always_inline)) gs_lanes lanes_lds(const gs_wave *w, const u32 *offset) {
    return (gs_lanes){NULL, w->g->lds, offset};
}
static inline __attribute__((always_inline)) u8 *at(const gs_lanes a, int i) {
    return (u8 *)(uintptr_t)(a.global ? a.global[i] : (u64)(uintptr_t)a.lds + a.offset[i]);
}

// Four lanes of four dwords to four registers of four lanes: a 4x4 transpose.
static inline __attribute__((always_inline)) void lanes_load_quads(u32 *d, const gs_lanes a) {
    for (int i = 0; i < GS_LANES; i += 4) {
        __m128i r0 = _mm_loadu_si128((const __m128i *)(at(a, i))),
                r1 = _mm_loadu_si128((const __m128i *)(at(a, i + 1)));
        __m128i r2 = _mm_loadu_si128((const __m128i *)(at(a, i + 2))),
                r3 = _mm_loadu_si128((const __m128i *)(at(a, i + 3)));
        __m128i x = _mm_unpacklo_epi32(r0, r1), y = _mm_unpacklo_epi32(r2, r3),
                z = _mm_unpackhi_epi32(r0, r1), t = _mm_unpackhi_epi32(r2, r3);
        _mm_storeu_si128((__m128i *)(d + i), _mm_unpacklo_epi64(x, y));
        _mm_storeu_si128((__m128i *)(d + GS_LANES + i), _mm_unpackhi_epi64(x, y));
        _mm_storeu_si128((__m128i *)(d + 2 * GS_LANES + i), _mm_unpacklo_epi64(z, t));
        _mm_storeu_si128((__m128i *)(d + 3 * GS_LANES + i), _mm_unpackhi_epi64(z, t));
    }
}
static inline __attribute__((always_inline)) void lanes_store_quads(const gs_lanes a, const u32 *s) {
    for (int i = 0; i < GS_LANES; i += 4) {
        __m128i r0 = _mm_loadu_si128((const __m128i *)(s + i)),
                r1 = _mm_loadu_si128((const __m128i *)(s + GS_LANES + i));
        __m128i r2 = _mm_loadu_si128((const __m128i *)(s + 2 * GS_LANES + i)),
                r3 = _mm_loadu_si128((const __m128i *)(s + 3 * GS_LANES + i));
        __m128i x = _mm_unpacklo_epi32(r0, r1), y = _mm_unpacklo_epi32(r2, r3),
                z = _mm_unpackhi_epi32(r0, r1), t = _mm_unpackhi_epi32(r2, r3);
        _mm_storeu_si128((__m128i *)(at(a, i)), _mm_unpacklo_epi64(x, y));
        _mm_storeu_si128((__m128i *)(at(a, i + 1)), _mm_unpackhi_epi64(x, y));
        _mm_storeu_si128((__m128i *)(at(a, i + 2)), _mm_unpacklo_epi64(z, t));
        _mm_storeu_si128((__m128i *)(at(a, i + 3)), _mm_unpackhi_epi64(z, t));
    }
}

// Four lanes of two dwords.
static inline __attribute__((always_inline)) void lanes_load_pairs(u32 *d, const gs_lanes a) {
    for (int i = 0; i < GS_LANES; i += 4) {
        __m128i r0 = _mm_loadl_epi64((const __m128i *)(at(a, i))),
                r1 = _mm_loadl_epi64((const __m128i *)(at(a, i + 1)));
        __m128i r2 = _mm_loadl_epi64((const __m128i *)(at(a, i + 2))),
                r3 = _mm_loadl_epi64((const __m128i *)(at(a, i + 3)));
        __m128i x = _mm_unpacklo_epi32(r0, r1), y = _mm_unpacklo_epi32(r2, r3);
        _mm_storeu_si128((__m128i *)(d + i), _mm_unpacklo_epi64(x, y));
        _mm_storeu_si128((__m128i *)(d + GS_LANES + i), _mm_unpackhi_epi64(x, y));
    }
}
static inline __attribute__((always_inline)) void lanes_store_pairs(const gs_lanes a, const u32 *s) {
    for (int i = 0; i < GS_LANES; i += 4) {
        __m128i r0 = _mm_loadu_si128((const __m128i *)(s + i)),
                r1 = _mm_loadu_si128((const __m128i *)(s + GS_LANES + i));
        __m128i lo = _mm_unpacklo_epi32(r0, r1), hi = _mm_unpackhi_epi32(r0, r1);
        _mm_storel_epi64((__m128i *)(at(a, i)), lo);
        _mm_storel_epi64((__m128i *)(at(a, i + 1)), _mm_unpackhi_epi64(lo, lo));
        _mm_storel_epi64((__m128i *)(at(a, i + 2)), hi);
        _mm_storel_epi64((__m128i *)(at(a, i + 3)), _mm_unpackhi_epi64(hi, hi));
    }
}

static inline __attribute__((always_inline)) void lanes_load(u32 *d, const gs_lanes a, u32 exec, u32 bytes,
                                                             gs_part part) {
    if (exec == ~0u && bytes == 16) {
        lanes_load_quads(d, a);
        return;
    }
    if (exec == ~0u && bytes == 8) {
        lanes_load_pairs(d, a);
        return;
    }
    if (exec == ~0u && bytes == 4) {
        for (int i = 0; i < GS_LANES; i++) memcpy(&d[i], at(a, i), 4);
        return;
    }
    for (u32 m = exec; m; m &= m - 1) {
        int i = __builtin_ctz(m);
        const u8 *p = at(a, i);
        u32 v = 0;
        if (part == PART_WORDS)
            for (u32 k = 0; k < bytes / 4; k++) memcpy(&d[k * GS_LANES + (u32)i], p + 4 * k, 4);
        else {
            if (bytes == 1)
                v = *p;
            else {
                u16 h;
                memcpy(&h, p, 2);
                v = h;
            }
            d[i] = lanes_merge(d[i], v, part);
        }
    }
}

static inline __attribute__((always_inline)) void lanes_store(const gs_lanes a, const u32 *s, u32 exec,
                                                              u32 bytes, gs_part part) {
    if (exec == ~0u && bytes == 16) {
        lanes_store_quads(a, s);
        return;
    }
    if (exec == ~0u && bytes == 8) {
        lanes_store_pairs(a, s);
        return;
    }
    for (u32 m = exec; m; m &= m - 1) {
        int i = __builtin_ctz(m);
        u8 *p = at(a, i);
        if (bytes >= 4)
            for (u32 k = 0; k < bytes / 4; k++) memcpy(p + 4 * k, &s[k * GS_LANES + (u32)i], 4);
        else {
            u32 v = part >= PART_HI_U8 ? s[i] >> 16 : s[i];
            if (bytes == 1)
                *p = (u8)v;
            else {
                u16 h = (u16)v;
                memcpy(p, &h, 2);
            }
        }
    }
}

#endif
