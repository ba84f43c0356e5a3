// SPDX-License-Identifier: Apache-2.0
// What the gfx1201 attention kernels share: vector types of the matrix instructions, lane exchange, the page table, the rows
// of a tile. Included by gfx1201_body.h and gfx1201_merge.h.
#ifndef RDK_ATTN_GFX1201_DEVICE_H
#define RDK_ATTN_GFX1201_DEVICE_H

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#include "kernels/attn/gfx1201_args.h"

typedef int v2i __attribute__((ext_vector_type(2)));
typedef int v4i __attribute__((ext_vector_type(4)));
typedef float v2f __attribute__((ext_vector_type(2)));
typedef float v4f __attribute__((ext_vector_type(4)));
typedef float v8f __attribute__((ext_vector_type(8)));
typedef short v2s __attribute__((ext_vector_type(2)));
typedef short v8s __attribute__((ext_vector_type(8)));
typedef half v2h __attribute__((ext_vector_type(2)));
typedef half v8h __attribute__((ext_vector_type(8)));

#define GROUP_SIZE(threads_) __attribute__((reqd_work_group_size(threads_, 1, 1)))
#define INLINE               static inline __attribute__((always_inline))

#define MINUS_INF  (-__builtin_inff())
#define MOST_FLOAT 0x1.fffffep127f
#define LOG2E      1.4426950408889634f

INLINE int thread_id(void) {
    return (int)__builtin_amdgcn_workitem_id_x();
}
INLINE int lane_id(void) {
    return thread_id() & 31;
}
INLINE int wave_id(void) {
    return __builtin_amdgcn_readfirstlane(thread_id() >> 5);
}

// LDS written before is visible after; loads from memory stay in flight.
INLINE void group_barrier(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

INLINE float fma32(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
INLINE float max32(float a, float b) {
    return __builtin_fmaxf(a, b);
}
INLINE float maximum32(float a, float b) { // a NaN wins, which needs no instruction to quieten it first
    return __builtin_elementwise_maximum(a, b);
}
INLINE float exp2_32(float x) {
    return __builtin_amdgcn_exp2f(x);
}
INLINE int min_int(int a, int b) {
    return a < b ? a : b;
}
INLINE int max_int(int a, int b) {
    return a > b ? a : b;
}
INLINE int clamp_int(int x, int low, int high) {
    return min_int(max_int(x, low), high);
}
INLINE uint mul_high(uint a, uint b) {
    return (uint)((ulong)a * b >> 32);
}
// x / d for x * d < 2^31: magic = 2^31 / d + 1, so that the quotient's error stays below 1 / d.
INLINE uint divide_by(uint x, uint magic) {
    return mul_high(2 * x, magic);
}

// The value of the lane 16 away: the other half of a tile's tokens, the same query.
INLINE float other_half(float x) {
    int bits = as_int(x);
    return as_float(__builtin_amdgcn_permlanex16(bits, bits, 0x76543210, 0xfedcba98, false, false));
}

// Over a wave, lanes 1, 2, 4, 8 and 16 apart.
#define ROW_XMASK(x_, mask_)                                                                                 \
    as_float(__builtin_amdgcn_update_dpp(0, as_int(x_), 0x160 + (mask_), 0xf, 0xf, true))
INLINE float wave_max(float x) {
    x = max32(x, ROW_XMASK(x, 1));
    x = max32(x, ROW_XMASK(x, 2));
    x = max32(x, ROW_XMASK(x, 4));
    x = max32(x, ROW_XMASK(x, 8));
    return max32(x, other_half(x));
}
INLINE float wave_sum(float x) {
    x += ROW_XMASK(x, 1);
    x += ROW_XMASK(x, 2);
    x += ROW_XMASK(x, 4);
    x += ROW_XMASK(x, 8);
    return x + other_half(x);
}

INLINE ushort bf16_code(float x) { // to nearest even; a NaN stays one
    uint bits = as_uint(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (ushort)(x != x ? bits >> 16 | 0x40 : rounded);
}

// Keeps the compiler from mixing an address that all lanes share into their own offsets: one instruction less a load.
INLINE global const char *in_scalars(global const char *address) {
    ulong bits = (ulong)address;
    uint low = __builtin_amdgcn_readfirstlane((uint)bits),
         high = __builtin_amdgcn_readfirstlane((uint)(bits >> 32));
    return (global const char *)((ulong)high << 32 | low);
}

// The lane, as a number that the compiler has not seen before: what is computed from it stays where it is needed, and holds
// no registers through the loop before.
INLINE int lane_anew(void) {
    int lane = lane_id();
    __asm__ volatile("" : "+v"(lane));
    return lane;
}

// ---- the rows of a tile -------------------------------------------------------------------------------------------------
// Tiles of `rows` rows: sequence s owns tiles first_tile(s) .. first_tile(s + 1) - 1, at least as many as it needs, so that
// a grid of fixed size finds its sequence on the card whatever the lengths are.
typedef struct tile_rows {
    int seq, row0; // first row of the tile within the sequence
    int rows;      // of the sequence: q_len * gqa
    int token0;    // the sequence's first query token
    int first;     // token of the tile's first row, within the sequence
    int q_len, kv_len;
} tile_rows;

INLINE int starts_at(const rdk_attn_gfx1201_args *a, int seq) {
    return clamp_int(a->q_starts[seq], 0, a->tokens);
}
INLINE int first_tile(const rdk_attn_gfx1201_args *a, int seq, int rows) {
    return (int)((uint)((starts_at(a, seq) - starts_at(a, 0)) * a->gqa) / (uint)rows) + seq;
}
INLINE bool tile_find(const rdk_attn_gfx1201_args *a, int tile, int rows, tile_rows *out) {
    int low = 0, high = a->seqs; // first_tile(low) <= tile < first_tile(high)
    if (tile >= first_tile(a, high, rows)) return false;
    while (high - low > 1) {
        int middle = (low + high) >> 1;
        if (first_tile(a, middle, rows) <= tile)
            low = middle;
        else
            high = middle;
    }
    out->seq = low;
    out->row0 = (tile - first_tile(a, low, rows)) * rows;
    out->token0 = starts_at(a, low);
    out->q_len = max_int(starts_at(a, low + 1) - out->token0, 0);
    out->kv_len = clamp_int(a->kv_lens[low], 0, a->max_keys);
    out->rows = out->q_len * a->gqa;
    out->first = (int)divide_by((uint)out->row0, a->gqa_magic);
    return out->row0 < out->rows;
}

// A row's token, counted from the tile's first, and its head of the KV head's gqa: small numbers, so that a row's place is a
// 32-bit offset from the tile's (gfx1201_geometry.c refuses strides for which it is not).
typedef struct lane_row {
    int token, head;
} lane_row;
INLINE lane_row row_of(const rdk_attn_gfx1201_args *a, const tile_rows *t, int row) {
    int token = (int)divide_by((uint)row, a->gqa_magic);
    return (lane_row){token - t->first, row - token * a->gqa};
}

// Keys that query token `token` of the sequence sees: [*low, *high).
INLINE void visible_keys(const rdk_attn_gfx1201_args *a, const tile_rows *t, int token, int *low, int *high) {
    *high = max_int(t->kv_len - t->q_len + token + 1, 0);
    *low = a->window > 0 ? max_int(*high - a->window, 0) : 0;
}

// ---- the page table -----------------------------------------------------------------------------------------------------
// Each lane looks up one 16-key tile of 32 in a row, so that a look-up serves several steps; readers take their tile's offset
// from its lane. Tiles outside [begin, end) stand for the nearest inside, which lies in a valid block; a tile never straddles
// blocks.
enum { PAGED_KEYS = 32 * 16 };
INLINE int paged_tile(int key, int begin, int end) {
    return clamp_int((key >> 4) + lane_id(), begin >> 4, (end - 1) >> 4);
}
INLINE uint block_of(const rdk_attn_gfx1201_args *a, global const char *table, int key, int begin, int end) {
    uint index = divide_by((uint)paged_tile(key, begin, end), a->block_magic);
    return *(global const uint *)(table + index * 4);
}
typedef struct pages {
    ulong k, v; // byte offsets of this lane's tile in the caches
} pages;
INLINE pages pages_at(const rdk_attn_gfx1201_args *a, uint block, int key, int begin, int end) {
    int tile = paged_tile(key, begin, end),
        in_block = (tile - (int)divide_by((uint)tile, a->block_magic) * a->block_tiles) * 16;
    uint last = (uint)a->blocks - 1;
    block = block < last ? block : last; // the host cannot check ids here
    return (pages){(ulong)block * a->k_stride_block + (uint)(in_block * a->k_stride_token),
                   (ulong)block * a->v_stride_block + (uint)(in_block * a->v_stride_token)};
}
INLINE ulong read_lane(ulong x, int lane) {
    uint low = __builtin_amdgcn_readlane((uint)x, lane),
         high = __builtin_amdgcn_readlane((uint)(x >> 32), lane);
    return (ulong)high << 32 | low;
}
#endif // RDK_ATTN_GFX1201_DEVICE_H
