// SPDX-License-Identifier: Apache-2.0
// Caches whose K is not in token order (or whose V is not dim-contiguous) are turned block by block into scratch.
#include "kernels/attn/cpu_drive.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

// 16 rows of 16 bytes, transposed by four rounds of interleaving row i with row i + 8.
static void transpose_bytes(const uint8_t *src, int64_t stride, uint8_t *dst) {
    __m128i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm_loadu_si128((const __m128i *)(const void *)(src + i * stride));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
            b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
        }
        memcpy(a, b, sizeof a);
    }
    for (int i = 0; i < 16; i++) _mm_storeu_si128((__m128i *)(void *)(dst + i * 16), a[i]);
}

// 8 rows of 8 words into columns of a 16-wide destination.
static void transpose_words(const uint16_t *src, int64_t stride, uint16_t *dst) {
    __m128i a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = _mm_loadu_si128((const __m128i *)(const void *)(src + i * stride));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
            b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
        }
        memcpy(a, b, sizeof a);
    }
    for (int i = 0; i < 8; i++) _mm_storeu_si128((__m128i *)(void *)(dst + i * 16), a[i]);
}

static bool pack_fast(int64_t elem_bytes, const void *src, int64_t stride_token, int64_t dims, void *dst) {
    if (elem_bytes == 1)
        for (int64_t d = 0; d < dims; d += 16)
            transpose_bytes((const uint8_t *)src + d, stride_token, (uint8_t *)dst + d * 16);
    else
        for (int64_t d = 0; d < dims; d += 8)
            for (int64_t t = 0; t < 16; t += 8)
                transpose_words((const uint16_t *)src + t * stride_token + d, stride_token,
                                (uint16_t *)dst + d * 16 + t);
    return true;
}
#else
static bool pack_fast(int64_t elem_bytes, const void *src, int64_t stride_token, int64_t dims, void *dst) {
    (void)elem_bytes, (void)src, (void)stride_token, (void)dims, (void)dst;
    return false;
}
#endif

void rdi_attn_pack(int64_t elem_bytes, const void *src, int64_t stride_token, int64_t stride_dim,
                   int64_t tokens, int64_t dims, void *dst) {
    if (stride_dim == 1 && tokens == 16 && dims % 16 == 0 &&
        pack_fast(elem_bytes, src, stride_token, dims, dst))
        return;
    for (int64_t d = 0; d < dims; d++)
        for (int64_t t = 0; t < tokens; t++) {
            int64_t from = t * stride_token + d * stride_dim, to = d * tokens + t;
            if (elem_bytes == 1)
                ((uint8_t *)dst)[to] = ((const uint8_t *)src)[from];
            else
                ((uint16_t *)dst)[to] = ((const uint16_t *)src)[from];
        }
}
