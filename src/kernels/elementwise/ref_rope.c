// SPDX-License-Identifier: Apache-2.0
// Reference of rope (rotary position embedding, arXiv 2104.09864), in place. For each token t and head, with
// angle_i = positions[t] * inv_freq[i] and the pair (a, b) = (x[i], x[i + rotary_dim/2]) for neox, (x[2i], x[2i+1]) for
// interleaved:
//   a := a cos(angle_i) - b sin(angle_i),   b := b cos(angle_i) + a sin(angle_i)
// With a norm weight the head is first x := x / sqrt(mean(x^2) + eps) * (weight + unit_offset), unrounded (qk-norm).
#include "base/convert.h"
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

typedef struct head_view {
    void *base;
    rd_dtype dtype;
    int64_t at;
    const void *norm;
} head_view;

// The element after qk-norm; inverse = 1 without one.
static double element(const rdi_rope_args *a, head_view head, double inverse, int64_t d) {
    double x = (double)rdi_load_f32(head.base, head.dtype, head.at + d);
    if (!head.norm) return x;
    return x * inverse * ((double)rdi_load_f32(head.norm, a->norm_dtype, d) + (a->unit_offset ? 1 : 0));
}

static void rotate_head(const rdi_rope_args *a, head_view head, double position) {
    double squares = 0;
    for (int64_t d = 0; d < a->head_dim; d++)
        squares += pow((double)rdi_load_f32(head.base, head.dtype, head.at + d), 2);
    double inverse = 1 / sqrt(squares / (double)a->head_dim + (double)a->eps);
    int64_t half = a->rotary_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        int64_t first = a->interleaved ? 2 * i : i, second = a->interleaved ? 2 * i + 1 : i + half;
        double x = element(a, head, inverse, first), y = element(a, head, inverse, second);
        double angle = position * (double)a->inv_freq[i], c = cos(angle), s = sin(angle);
        rdi_store_f32(head.base, head.dtype, head.at + first, (float)(x * c - y * s));
        rdi_store_f32(head.base, head.dtype, head.at + second, (float)(y * c + x * s));
    }
    for (int64_t d = a->rotary_dim; head.norm && d < a->head_dim; d++)
        rdi_store_f32(head.base, head.dtype, head.at + d, (float)element(a, head, inverse, d));
}

void rdk_rope_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_rope_args *a = args;
    (void)ws, (void)par;
    for (int64_t t = 0; t < a->tokens; t++) {
        double position = a->positions[t];
        for (int64_t h = 0; h < a->q_heads; h++)
            rotate_head(
                a, (head_view){a->q, a->q_dtype, t * a->q_stride_token + h * a->q_stride_head, a->q_norm},
                position);
        for (int64_t h = 0; h < a->k_heads; h++)
            rotate_head(
                a, (head_view){a->k, a->k_dtype, t * a->k_stride_token + h * a->k_stride_head, a->k_norm},
                position);
    }
}
