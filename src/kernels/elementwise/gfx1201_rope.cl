// SPDX-License-Identifier: Apache-2.0
// rope with qk-norm, kv_write, and both in one launch, on gfx1201. rope: a wave a head, in place; each pair of elements belongs
// to one lane. kv_write: a lane quantises eight elements of K or V and stores them where the token's slot says. Both: a wave a
// head of Q, K or V; a turned K goes to the cache from registers, rounded to its type on the way.
#include "kernels/elementwise/gfx1201_device.h"

// ---- kv_write ---------------------------------------------------------------------------------------------------------
// The hardware's conversion of values within +-448; what lies beyond saturates, a NaN stays one.
static uint e4m3_code(float x) {
    float capped = __builtin_amdgcn_fmed3f(x, -448.0f, 448.0f);
    uint code = (uint)__builtin_amdgcn_cvt_pk_fp8_f32(capped, capped, 0, false) & 0xff;
    return x != x ? (as_uint(x) >> 24 & 0x80) | 0x7f : code;
}

static void store_cached(const rdk_kv_write_gfx1201_args *a, const rdk_kv_side *side, long at, int left, float8 x) {
    if (a->kv_dtype != RDK_E4M3 && side->stride_dim == 1) {
        store_group(side->cache, a->kv_dtype, at, left, side->wide_out, x);
        return;
    }
    for (int i = 0; i < RDK_GROUP && a->kv_dtype != RDK_E4M3; i++)
        if (i < left) store_one(side->cache, a->kv_dtype, at + (long)i * side->stride_dim, x[i]);
    if (a->kv_dtype != RDK_E4M3) return;
    uint code[RDK_GROUP];
    for (int i = 0; i < RDK_GROUP; i++) code[i] = e4m3_code(x[i]);
    global uchar *cache = side->cache;
    if (side->wide_out && left >= RDK_GROUP) {
        uint2 packed = {code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24,
                        code[4] | code[5] << 8 | code[6] << 16 | code[7] << 24};
        *(global uint2 *)(cache + at) = packed;
        return;
    }
    for (int i = 0; i < RDK_GROUP; i++)
        if (i < left) cache[at + (long)i * side->stride_dim] = (uchar)code[i];
}

// The token's place in a cache; -1 outside of it: nothing is written then. Tokens in groups of sixteen: in "token" order of K the
// group is a step of its own.
static long cached_at(const rdk_kv_write_gfx1201_args *a, const rdk_kv_side *side, int token, int head) {
    long slot = a->slots[token];
    if (slot < 0 || slot >= a->capacity) return -1;
    int block = (int)slot / a->block_tokens, in_block = (int)slot - block * a->block_tokens;
    return block * side->stride_block + (in_block >> 4) * side->stride_group +
           (in_block & 15) * side->stride_token + head * side->stride_head;
}

// Elements d .. d + 7 of a head of the caller's to its place `at`.
static void cache_group(const rdk_kv_write_gfx1201_args *a, const rdk_kv_side *side, int token, int head, long at,
                        int d) {
    float8 x = load_group(side->x, a->x_dtype, token * side->x_stride_token + head * side->x_stride_head + d,
                          a->head_dim - d, side->wide_in);
    if (side->scale)
        for (int i = 0; i < RDK_GROUP; i++) x[i] = divide(x[i], side->scale[head]);
    store_cached(a, side, at + (long)d * side->stride_dim, a->head_dim - d, x);
}

kernel THREADS(RDK_KV_THREADS) void rdk_kv_write_gfx1201(const rdk_kv_write_gfx1201_args a) {
    int groups = (a.head_dim + RDK_GROUP - 1) / RDK_GROUP, token = group_x();
    int index = group_y() * RDK_KV_THREADS + thread_in_group(), head = index / groups;
    if (head >= a.kv_heads) return;
    rdk_kv_side side = a.side[group_z()];
    long at = cached_at(&a, &side, token, head);
    if (at >= 0) cache_group(&a, &side, token, head, at, (index - head * groups) * RDK_GROUP);
}

// ---- rope -------------------------------------------------------------------------------------------------------------
typedef struct rope_head {
    global void *base;
    global const void *norm;
    long at;
    int dtype;
    float inverse;
} rope_head;

static float head_element(const rdk_rope_gfx1201_args *a, const rope_head *head, int d) {
    float x = load_one(head->base, head->dtype, head->at + d);
    if (!head->norm) return x;
    return x * head->inverse * (load_one(head->norm, a->norm_dtype, d) + (a->unit_offset ? 1.0f : 0.0f));
}

// A turned element back to its place; or, with a cache, to that of K, rounded to its type on the way.
typedef struct cached_head {
    long at;
    float scale; // 0: none
} cached_head;
static void put_element(const rope_head *head, const rdk_kv_write_gfx1201_args *cache, cached_head to, int d, float x) {
    if (!cache) {
        store_one(head->base, head->dtype, head->at + d, x);
        return;
    }
    long at = to.at + (long)d * cache->side[0].stride_dim;
    x = rounded_to(head->dtype, x);
    if (to.scale != 0.0f) x = divide(x, to.scale);
    if (cache->kv_dtype == RDK_E4M3)
        ((global uchar *)cache->side[0].cache)[at] = (uchar)e4m3_code(x);
    else
        store_one(cache->side[0].cache, cache->kv_dtype, at, x);
}

// A wave's head, each lane its pairs; with qk-norm, or to the cache, also what is not turned.
static void turn_head(const rdk_rope_gfx1201_args *a, rope_head head, int token, const rdk_kv_write_gfx1201_args *cache,
                      cached_head to) {
    int lane = lane_of_wave(), half_dim = a->rotary_dim / 2;
    if (head.norm) {
        float squares = 0;
        for (int d = lane; d < a->head_dim; d += 32) {
            float x = load_one(head.base, head.dtype, head.at + d);
            squares = fma32(x, x, squares);
        }
        head.inverse = divide(1.0f, __builtin_sqrtf(divide(wave_sum(squares), (float)a->head_dim) + a->eps));
    }
    float position = (float)a->positions[token];
    for (int i = lane; i < half_dim; i += 32) {
        int first = a->interleaved ? 2 * i : i, second = a->interleaved ? 2 * i + 1 : i + half_dim;
        float x = head_element(a, &head, first), y = head_element(a, &head, second), sine, cosine;
        sincos32(position, a->inv_freq[i], &sine, &cosine);
        put_element(&head, cache, to, first, fma32(x, cosine, -(y * sine)));
        put_element(&head, cache, to, second, fma32(y, cosine, x * sine));
    }
    if (!head.norm && !cache) return;
    for (int d = a->rotary_dim + lane; d < a->head_dim; d += 32)
        put_element(&head, cache, to, d, head_element(a, &head, d));
}

static rope_head head_at(const rdk_rope_gfx1201_args *a, int token, int index) {
    if (index < a->q_heads)
        return (rope_head){a->q, a->q_norm, token * a->q_stride_token + index * a->q_stride_head, a->q_dtype, 1.0f};
    return (rope_head){a->k, a->k_norm, token * a->k_stride_token + (index - a->q_heads) * a->k_stride_head,
                       a->k_dtype, 1.0f};
}

kernel THREADS(32 * RDK_ROPE_WAVES) void rdk_rope_gfx1201(const rdk_rope_gfx1201_args a) {
    int token = group_x(), index = group_y() * RDK_ROPE_WAVES + wave_of_group();
    if (index >= a.q_heads + a.k_heads) return;
    turn_head(&a, head_at(&a, token, index), token, 0, (cached_head){0, 0});
}

// ---- both -------------------------------------------------------------------------------------------------------------
kernel THREADS(32 * RDK_ROPE_WAVES) void rdk_rope_kv_write_gfx1201(const rdk_rope_kv_write_gfx1201_args a) {
    int token = group_x(), index = group_y() * RDK_ROPE_WAVES + wave_of_group(), q_heads = a.rope.q_heads,
        heads = a.kv.kv_heads;
    if (index < q_heads) {
        turn_head(&a.rope, head_at(&a.rope, token, index), token, 0, (cached_head){0, 0});
        return;
    }
    if (index >= q_heads + 2 * heads) return;
    if (index >= q_heads + heads) {
        int head = index - q_heads - heads;
        long at = cached_at(&a.kv, &a.kv.side[1], token, head);
        for (int d = lane_of_wave() * RDK_GROUP; at >= 0 && d < a.kv.head_dim; d += 32 * RDK_GROUP)
            cache_group(&a.kv, &a.kv.side[1], token, head, at, d);
        return;
    }
    int head = index - q_heads;
    long at = cached_at(&a.kv, &a.kv.side[0], token, head);
    float scale = a.kv.side[0].scale ? a.kv.side[0].scale[head] : 0.0f;
    if (at >= 0) turn_head(&a.rope, head_at(&a.rope, token, index), token, &a.kv, (cached_head){at, scale});
}
