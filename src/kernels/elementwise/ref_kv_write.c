// SPDX-License-Identifier: Apache-2.0
// Reference of kv_write: for each token with slot >= 0, head h and dim d, at block = slot / block_tokens and offset =
// slot % block_tokens of the paged cache
//   k_cache(block, offset, h, d) := round(k(token, h, d) / k_scale[h]), v alike; scale 1 for 16-bit caches.
// Token order of K (dim stride 16): groups of 16 tokens lie 16*head_dim apart, the 16 tokens of a dim side by side.
#include "base/convert.h"
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

static int64_t k_offset(const rdi_kv_write_args *a, int64_t block, int64_t token, int64_t head, int64_t d) {
    int64_t base = block * a->kc_stride_block + head * a->kc_stride_head;
    if (a->kc_stride_dim == 16) return base + token / 16 * 16 * a->head_dim + d * 16 + token % 16;
    return base + token * a->kc_stride_token + d * a->kc_stride_dim;
}

void rdk_kv_write_cpu_ref(const void *args, void *ws, rdi_par *par) {
    const rdi_kv_write_args *a = args;
    (void)ws, (void)par;
    for (int64_t t = 0; t < a->tokens; t++) {
        if (a->slots[t] < 0) continue;
        int64_t block = a->slots[t] / a->block_tokens, token = a->slots[t] % a->block_tokens;
        for (int64_t h = 0; h < a->kv_heads; h++) {
            float k_scale = a->k_scale ? a->k_scale[h] : 1.0f, v_scale = a->v_scale ? a->v_scale[h] : 1.0f;
            for (int64_t d = 0; d < a->head_dim; d++) {
                float k = rdi_load_f32(a->k, a->x_dtype, t * a->k_stride_token + h * a->k_stride_head + d);
                float v = rdi_load_f32(a->v, a->x_dtype, t * a->v_stride_token + h * a->v_stride_head + d);
                int64_t v_at = block * a->vc_stride_block + token * a->vc_stride_token +
                               h * a->vc_stride_head + d * a->vc_stride_dim;
                rdi_store_f32(a->k_cache, a->kv_dtype, k_offset(a, block, token, h, d), k / k_scale);
                rdi_store_f32(a->v_cache, a->kv_dtype, v_at, v / v_scale);
            }
        }
    }
}
