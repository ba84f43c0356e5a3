// SPDX-License-Identifier: Apache-2.0
// rope with qk-norm, and kv_write, on gfx1201. rope: a wave a head, in place; each pair of elements belongs to one lane.
// kv_write: a lane quantises eight elements of K or V and stores them where the token's slot says.
#include "kernels/elementwise/gfx1201_device.h"

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

kernel THREADS(32 * RDK_ROPE_WAVES) void rdk_rope_gfx1201(const rdk_rope_gfx1201_args a) {
    int token = group_x(), index = group_y() * RDK_ROPE_WAVES + wave_of_group(), lane = lane_of_wave();
    if (index >= a.q_heads + a.k_heads) return;
    bool is_k = index >= a.q_heads;
    rope_head head = {a.q, a.q_norm, token * a.q_stride_token + index * a.q_stride_head, a.q_dtype, 1.0f};
    if (is_k)
        head = (rope_head){a.k, a.k_norm, token * a.k_stride_token + (index - a.q_heads) * a.k_stride_head,
                           a.k_dtype, 1.0f};
    if (head.norm) {
        float squares = 0;
        for (int d = lane; d < a.head_dim; d += 32) {
            float x = load_one(head.base, head.dtype, head.at + d);
            squares = fma32(x, x, squares);
        }
        head.inverse = divide(1.0f, __builtin_sqrtf(divide(wave_sum(squares), (float)a.head_dim) + a.eps));
    }
    int half_dim = a.rotary_dim / 2;
    float position = (float)a.positions[token];
    for (int i = lane; i < half_dim; i += 32) {
        int first = a.interleaved ? 2 * i : i, second = a.interleaved ? 2 * i + 1 : i + half_dim;
        float x = head_element(&a, &head, first), y = head_element(&a, &head, second), sine, cosine;
        sincos32(position, a.inv_freq[i], &sine, &cosine);
        store_one(head.base, head.dtype, head.at + first, fma32(x, cosine, -(y * sine)));
        store_one(head.base, head.dtype, head.at + second, fma32(y, cosine, x * sine));
    }
    if (!head.norm) return;
    for (int d = a.rotary_dim + lane; d < a.head_dim; d += 32)
        store_one(head.base, head.dtype, head.at + d, head_element(&a, &head, d));
}

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

kernel THREADS(RDK_KV_THREADS) void rdk_kv_write_gfx1201(const rdk_kv_write_gfx1201_args a) {
    int groups = (a.head_dim + RDK_GROUP - 1) / RDK_GROUP, token = group_x();
    int index = group_y() * RDK_KV_THREADS + thread_in_group(), head = index / groups;
    int d = (index - head * groups) * RDK_GROUP, left = a.head_dim - d;
    long slot = a.slots[token];
    if (slot < 0 || slot >= a.capacity || head >= a.kv_heads) return; // outside the cache: nothing is written
    int block = (int)slot / a.block_tokens, in_block = (int)slot - block * a.block_tokens;
    rdk_kv_side side = a.side[group_z()];
    float8 x = load_group(side.x, a.x_dtype, token * side.x_stride_token + head * side.x_stride_head + d, left,
                          side.wide_in);
    if (side.scale)
        for (int i = 0; i < RDK_GROUP; i++) x[i] = divide(x[i], side.scale[head]);
    // Tokens in groups of sixteen: in "token" order of K the group is a step of its own.
    long at = block * side.stride_block + (in_block >> 4) * side.stride_group + (in_block & 15) * side.stride_token +
              head * side.stride_head + (long)d * side.stride_dim;
    store_cached(&a, &side, at, left, x);
}
