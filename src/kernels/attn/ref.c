// SPDX-License-Identifier: Apache-2.0
// Attention over a paged cache, the reference: double accumulation, one row at a time, anything legal. For query token i
// of a sequence, at position p = kv_len - q_len + i, and query head h that reads KV head g = h / gqa:
//   x_j = scale * sum_d q[d] k[j][d],  x_j = softcap * tanh(x_j / softcap) when softcap > 0,
//   out[d] = sum_j exp(x_j - m) v[j][d] / (sum_j exp(x_j - m) + exp(sink_h - m)),  m = max(max_j x_j, sink_h),
// over the visible keys j: max(0, p - window + 1) <= j <= p. A row that sees no key (p < 0) gives zeros.
#include "base/convert.h"
#include "kernels/attn/args.h"
#include "kernels/rows.h"

enum { ROW_DIMS_MAX = 512 }; // output dims kept on the stack at a time

static double key_at(const rdi_attn_args *a, int64_t block, int64_t token, int64_t kv_head, int64_t dim) {
    int64_t at = a->k_interleave == 16 ? (token / 16) * 16 * a->head_dim + token % 16 + dim * 16
                                       : token * a->k_stride_token + dim * a->k_stride_dim;
    at += block * a->k_stride_block + kv_head * a->k_stride_head;
    return rdi_load_f32(a->k_cache, a->kv_dtype, at);
}

static double logit(const rdi_attn_args *a, const int32_t *blocks, int64_t token, int64_t head,
                    int64_t position) {
    int64_t kv_head = head / (a->q_heads / a->kv_heads), in_block = position % a->block_tokens;
    double sum = 0;
    for (int64_t d = 0; d < a->head_dim; d++)
        sum +=
            (double)rdi_load_f32(a->q, a->q_dtype, token * a->q_stride_token + head * a->q_stride_head + d) *
            key_at(a, blocks[position / a->block_tokens], in_block, kv_head, d);
    double x = sum * (a->k_scale ? (double)a->k_scale[kv_head] : 1.0) * (double)a->scale;
    return a->softcap > 0 ? (double)a->softcap * tanh(x / (double)a->softcap) : x;
}

// An e4m3 output as quant_fp8 makes it of these: a group's scale is max(largest magnitude / 448, 1 / (448 * 512)), of its finite
// elements.
static void store(const rdi_attn_args *a, int64_t token, int64_t head, int64_t first, int64_t dims,
                  const float *out) {
    const int64_t row = token * a->out_stride_token + head * a->out_stride_head;
    float scale = 1;
    for (int64_t d = 0; d < dims; d++) {
        if (a->out_dtype == RD_DTYPE_E4M3 && d % RDI_ATTN_CODE_GROUP == 0) {
            float top = 0;
            for (int64_t i = d; i < rdi_min(d + RDI_ATTN_CODE_GROUP, dims); i++)
                if (isfinite(out[i])) top = fmaxf(top, fabsf(out[i]));
            scale = fmaxf(top / 448.0f, 1.0f / (448.0f * 512.0f));
            const int64_t group = (head * a->head_dim + first + d) / RDI_ATTN_CODE_GROUP;
            a->out_scale[token * a->out_scale_stride_token + group * a->out_scale_stride_group] = scale;
        }
        if (a->out_dtype == RD_DTYPE_E4M3)
            ((uint8_t *)a->out)[row + first + d] = rdi_e4m3_from_f32(out[d] / scale);
        else
            rdi_store_f32(a->out, a->out_dtype, row + first + d, out[d]);
    }
}

// One output row, online softmax, so that no buffer grows with the context.
static void attend(const rdi_attn_args *a, int64_t seq, int64_t token, int64_t head, int64_t position) {
    int64_t first = a->window > 0 ? rdi_max(0, position - a->window + 1) : 0,
            kv_head = head / (a->q_heads / a->kv_heads);
    const int32_t *blocks = a->block_table + seq * a->block_table_stride;
    double v_scale = a->v_scale ? (double)a->v_scale[kv_head] : 1.0;
    for (int64_t d0 = 0; d0 < a->head_dim; d0 += ROW_DIMS_MAX) {
        int64_t dims = rdi_min(ROW_DIMS_MAX, a->head_dim - d0);
        double acc[ROW_DIMS_MAX] = {0}, top = a->sinks ? (double)a->sinks[head] : -INFINITY,
               sum = a->sinks ? 1.0 : 0.0;
        if (isinf(top)) sum = 0;
        for (int64_t j = first; j <= position; j++) {
            double x = logit(a, blocks, token, head, j), old = top;
            if (x > top) top = x;
            double base = isinf(top) && top < 0 ? 0.0 : top, keep = exp(old - base), p = exp(x - base);
            sum = sum * keep + p;
            int64_t at = blocks[j / a->block_tokens] * a->v_stride_block +
                         (j % a->block_tokens) * a->v_stride_token + kv_head * a->v_stride_head;
            for (int64_t d = 0; d < dims; d++)
                acc[d] = acc[d] * keep +
                         p * (double)rdi_load_f32(a->v_cache, a->kv_dtype, at + (d0 + d) * a->v_stride_dim);
        }
        float out[ROW_DIMS_MAX];
        for (int64_t d = 0; d < dims; d++) out[d] = (float)(sum == 0 ? 0.0 : acc[d] * v_scale / sum);
        store(a, token, head, d0, dims, out);
    }
}

static void attn_worker(void *arg, int32_t worker, int32_t workers) {
    const rdi_attn_args *a = arg;
    for (int64_t seq = 0; seq < a->seqs; seq++)
        for (int64_t token = a->q_starts[seq]; token < a->q_starts[seq + 1]; token++)
            for (int64_t head = 0; head < a->q_heads; head++)
                if ((token * a->q_heads + head) % workers == worker)
                    attend(a, seq, token, head, a->kv_lens[seq] - a->q_starts[seq + 1] + token);
}

void rdk_attn_prefill_cpu_ref(const void *args, void *ws, rdi_par *par) {
    (void)ws;
    rdi_par_run(par, rdi_par_threads(par), attn_worker, (void *)args);
}

void rdk_attn_decode_cpu_ref(const void *args, void *ws, rdi_par *par) {
    rdk_attn_prefill_cpu_ref(args, ws, par);
}
