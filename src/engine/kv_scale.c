// SPDX-License-Identifier: Apache-2.0
// Scales of an fp8 KV cache, one a layer and KV head, from the weights alone.
//
// A calibrated scale would make a token's bits depend on what ran first, and a fixed 1.0 clips heads with large keys. The
// weights give a bound that no input can pass: x = rmsnorm(r) g has |x / g|_2 <= sqrt(hidden), so by Cauchy and Schwarz
// |w.x| <= sqrt(hidden) |w * g|_2 for a row w of W_k or W_v. Rotation mixes two rows i, j of a head: sqrt(b_i^2 + b_j^2).
// With qk-norm a key is u * g_k, |u|_2 <= sqrt(head_dim), so the bound is sqrt(head_dim) max|g_k|, rotation included.
// The scale is the power of two at or above bound / 448: nothing clips, and a typical key (an isotropic x gives |w * g|_2,
// sqrt(hidden) below the bound: 2^4.6 at 576, 2^6.2 at 5120) still stands 8 to 10 binades above e4m3's subnormals, where a
// floating-point format loses nothing to a scale that is larger than it need be.
#include "engine/engine.h"

#include <math.h>

static float scale_for(double bound) {
    if (!(bound > 0)) return 1.0f; // an all-zero head
    int exponent;
    double fraction = frexp(bound / 448.0, &exponent); // [0.5, 1)
    exponent = fraction > 0.5 ? exponent : exponent - 1;
    if (exponent < -100) exponent = -100; // far below any key that matters, well inside f32
    if (exponent > 100) exponent = 100;
    return ldexpf(1.0f, exponent);
}

// sqrt(hidden) |w * g|_2 of each row of one head. 17/16: W8A8 rounds x to e4m3, which may lengthen it by 2^-4.
static void row_bounds(const rdi_weight *weight, int64_t first, int64_t count, const float *norm, float *row,
                       double *bounds) {
    for (int64_t r = 0; r < count; r++) {
        rdi_weight_rows_f32(weight, first + r, 1, row);
        double sum = 0;
        for (int64_t i = 0; i < weight->cols; i++) sum += (double)row[i] * norm[i] * row[i] * norm[i];
        bounds[r] = 17.0 / 16.0 * sqrt(sum * (double)weight->cols);
    }
}

static double norm_bound(const float *k_norm, int64_t head_dim) {
    double largest = 0;
    for (int64_t i = 0; i < head_dim; i++) largest = fmax(largest, fabs((double)k_norm[i]));
    return sqrt((double)head_dim) * largest;
}

rd_status rdi_engine_kv_scales(const rd_engine *engine, int32_t index, float *k_scale, float *v_scale) {
    const rdi_geometry *g = &engine->geometry;
    const rdi_layer *layer = &engine->layer[index];
    const rdi_weight *k = rdi_model_layer_weight(engine->model, index, RDI_ATTN_K);
    const rdi_weight *v = rdi_model_layer_weight(engine->model, index, RDI_ATTN_V);
    double *bounds = rdi_alloc((size_t)g->head_dim * sizeof *bounds);
    // From the model, not from the engine's copies: those may lie on a card.
    const int64_t longest = rdi_max(g->hidden, g->head_dim);
    float *row = rdi_alloc((size_t)(2 * longest) * sizeof *row), *norm = row ? row + longest : NULL;
    if (!bounds || !row) {
        rdi_free(bounds);
        rdi_free(row);
        return RD_E_NOMEM;
    }
    double k_norm_bound = 0;
    if (layer->k_norm.data) {
        rdi_weight_rows_f32(rdi_model_layer_weight(engine->model, index, RDI_ATTN_K_NORM), 0, 1, norm);
        k_norm_bound = norm_bound(norm, g->head_dim);
    }
    rdi_weight_rows_f32(rdi_model_layer_weight(engine->model, index, RDI_ATTN_NORM), 0, 1, norm);
    for (int32_t head = 0; head < g->kv_heads; head++) {
        const int64_t first = (int64_t)head * g->head_dim, half = g->head_dim / 2;
        double k_bound = 0, v_bound = 0;
        if (layer->k_norm.data) {
            k_bound = k_norm_bound;
        } else {
            row_bounds(k, first, g->head_dim, norm, row, bounds);
            for (int64_t i = 0; i < half; i++)
                k_bound = fmax(k_bound, sqrt(bounds[i] * bounds[i] + bounds[i + half] * bounds[i + half]));
        }
        row_bounds(v, first, g->head_dim, norm, row, bounds);
        for (int64_t i = 0; i < g->head_dim; i++) v_bound = fmax(v_bound, bounds[i]);
        k_scale[head] = scale_for(k_bound);
        v_scale[head] = scale_for(v_bound);
    }
    rdi_free(bounds);
    rdi_free(row);
    return RD_OK;
}
