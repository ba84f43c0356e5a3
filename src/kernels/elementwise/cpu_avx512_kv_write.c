// SPDX-License-Identifier: Apache-2.0
// kv_write of fp8 keys in token order, sixteen tokens at a time: a group's codes are transposed in registers and stored as
// whole lines, where the one-token path scatters single bytes sixteen apart. Decode steps and ragged ends take that path.
#include "base/lanes.h"
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

#include "kernels/elementwise/kv_write.inc"
#include "kernels/elementwise/pass.inc"

// Address bits of a 16x16 matrix of bytes are (row, column): interleaving the upper with the lower half of the rows rotates
// them by one, so that four rounds swap row and column.
static void transpose_16x16(__m128i rows[16]) {
    for (int round = 0; round < 4; round++) {
        __m128i out[16];
        for (int i = 0; i < 8; i++) {
            out[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
            out[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
        }
        for (int i = 0; i < 16; i++) rows[i] = out[i];
    }
}

// Tokens t.. fill one group of sixteen slots in order. block_tokens is a multiple of 16: a group lies in one block.
static bool is_group(const rdi_kv_write_args *a, const kv_side *side, int64_t t) {
    if (side->stride_dim != 16 || t + 16 > a->tokens || a->slots[t] < 0 || a->slots[t] % 16) return false;
    for (int64_t i = 1; i < 16; i++)
        if (a->slots[t + i] != a->slots[t] + i) return false;
    return true;
}

static void write_group(const rdi_kv_write_args *a, const kv_side *side, int64_t head, int64_t t, v16 scale) {
    uint8_t *to = (uint8_t *)side->cache + kv_slot_at(a, side, head, a->slots[t]);
    for (int64_t d = 0; d < a->head_dim; d += 16) {
        __m128i rows[16];
        for (int64_t i = 0; i < 16; i++)
            rows[i] = _mm512_cvtepi32_epi8(i16_e4m3_codes(kv_load(a, side, head, t + i, d, scale)));
        transpose_16x16(rows);
        for (int64_t i = 0; i < 16; i++) _mm_storeu_si128((__m128i *)(to + (d + i) * 16), rows[i]);
    }
}

// Heads as in kv_write_heads: tokens of a head in order, so that a slot named twice holds the later token.
static void write_heads(const void *args, int64_t begin, int64_t end) {
    const rdi_kv_write_args *a = args;
    for (int64_t item = begin; item < end; item++) {
        kv_side side = kv_side_of(a, item & 1);
        v16 scale = v16_set(side.scale ? side.scale[item / 2] : 1.0f);
        for (int64_t t = 0; t < a->tokens;) {
            bool group = is_group(a, &side, t);
            if (group)
                write_group(a, &side, item / 2, t, scale);
            else
                kv_write_token(a, &side, item / 2, t, scale);
            t += group ? 16 : 1;
        }
    }
}

void rdk_kv_write_token16_cpu_avx512(const void *args, void *ws, rdi_par *par) {
    const rdi_kv_write_args *a = args;
    (void)ws;
    run_pass(par, a->tokens < 16 ? kv_write_heads : write_heads, a, 2 * a->kv_heads,
             2 * a->tokens * a->kv_heads * a->head_dim);
}

void rdk_rope_kv_write_token16_cpu_avx512(const void *args, void *ws, rdi_par *par) {
    const rdi_rope_kv_write_args *a = args;
    rdk_rope_cpu_avx512(&a->rope, ws, par);
    rdk_kv_write_token16_cpu_avx512(&a->kv, ws, par);
}
