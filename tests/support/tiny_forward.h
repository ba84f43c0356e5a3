// SPDX-License-Identifier: Apache-2.0
// Tiny random models for tests: written to a folder in the Hugging Face layout, and run by a second forward pass in double
// that is written from the formulas and shares nothing with the engine but the number formats.
#ifndef TINY_FORWARD_H
#define TINY_FORWARD_H

#include "base/convert.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct tiny_spec {
    const char *architecture;
    int layers, hidden, intermediate, q_heads, kv_heads, head_dim, vocab, context;
    int tied, fp8;
    double rope_theta;
    int window, period; // Gemma: layers but every period-th see so many keys, rotated by local_theta
    double local_theta;
} tiny_spec;

// Block-FP8 with every ragged edge: no width a multiple of 128, q and k meet inside a scale block.
static const tiny_spec tiny_llama = {"LlamaForCausalLM", 2, 160, 200, 3, 1, 64, 97, 512, 1, 1, 1e4, 0, 0, 0};
// Everything a multiple of 128: q, k and v share one packed matrix.
static const tiny_spec tiny_even = {"LlamaForCausalLM", 2, 128, 256, 4, 2, 64, 130, 512, 0, 1, 1e5, 0, 0, 0};
static const tiny_spec tiny_qwen3 = {"Qwen3ForCausalLM", 3, 96, 144, 4, 2, 64, 101, 512, 1, 1, 1e6, 0, 0, 0};
static const tiny_spec tiny_bf16 = {"LlamaForCausalLM", 2, 96, 136, 2, 1, 64, 83, 512, 0, 0, 1e4, 0, 0, 0};
static const tiny_spec tiny_gemma = {
    "Gemma3ForCausalLM", 4, 128, 256, 4, 1, 64, 113, 512, 1, 1, 1e6, 7, 3, 1e4};
static inline int tiny_is_gemma(const tiny_spec *s) {
    return s->window > 0;
}

typedef struct tiny_tensor {
    char name[96];
    int rows, cols; // rows 0: a vector
    int fp8;
    double *value; // as stored, dequantised
    uint8_t *code; // e4m3
    uint16_t *bf16;
    float *scale;
} tiny_tensor;

typedef struct tiny_model {
    tiny_spec spec;
    char folder[128];
    tiny_tensor tensor[64];
    int count;
    uint64_t rng;
    // What the engine under test rounds: the cache (kv_scale NULL = bf16), activations of block-FP8 layers (W8A8).
    const float *k_scale[8], *v_scale[8];
    int w8a8;
} tiny_model;

static double tiny_uniform(tiny_model *m) { // splitmix64
    uint64_t z = (m->rng += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}
static double tiny_normal(tiny_model *m) {
    double u = tiny_uniform(m) + 0x1p-60, v = tiny_uniform(m);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static tiny_tensor *tiny_add(tiny_model *m, const char *name, int rows, int cols, int fp8, double mean,
                             double spread) {
    tiny_tensor *t = &m->tensor[m->count++];
    assert(m->count <= 64);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->cols = cols;
    t->fp8 = fp8;
    const int n = rows ? rows : 1, blocks_k = (cols + 127) / 128;
    t->value = malloc(sizeof(double) * (size_t)n * (size_t)cols);
    if (fp8) {
        t->code = malloc((size_t)n * (size_t)cols);
        t->scale = malloc(sizeof(float) * (size_t)((n + 127) / 128 * blocks_k));
        for (int b = 0; b < (n + 127) / 128 * blocks_k; b++)
            t->scale[b] = (float)(spread * (0.5 + tiny_uniform(m)) / 100.0);
    } else {
        t->bf16 = malloc(2 * (size_t)n * (size_t)cols);
    }
    for (int r = 0; r < n; r++)
        for (int c = 0; c < cols; c++) {
            const int at = r * cols + c;
            const double x = mean + spread * tiny_normal(m);
            if (fp8) {
                const float s = t->scale[r / 128 * blocks_k + c / 128];
                t->code[at] = rdi_e4m3_from_f32((float)(x / (double)s));
                t->value[at] = (double)rdi_f32_from_e4m3(t->code[at]) * (double)s;
            } else {
                t->bf16[at] = rdi_bf16_from_f32((float)x);
                t->value[at] = (double)rdi_f32_from_bf16(t->bf16[at]);
            }
        }
    return t;
}

static const double *tiny_get(const tiny_model *m, const char *name) {
    for (int i = 0; i < m->count; i++)
        if (!strcmp(m->tensor[i].name, name)) return m->tensor[i].value;
    fprintf(stderr, "no tensor %s\n", name);
    abort();
}

static void tiny_layer(tiny_model *m, int layer) {
    static const struct {
        const char *name;
        int kind; // 0 attention in, 1 kv in, 2 attention out, 3 mlp in, 4 mlp out
        double gain;
    } rows[] = {{"self_attn.q_proj", 0, 2.0}, {"self_attn.k_proj", 1, 2.0}, {"self_attn.v_proj", 1, 1.0},
                {"self_attn.o_proj", 2, 1.0}, {"mlp.gate_proj", 3, 1.5},    {"mlp.up_proj", 3, 1.5},
                {"mlp.down_proj", 4, 1.0}};
    const tiny_spec *s = &m->spec;
    const int q = s->q_heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const int n[] = {q, kv, s->hidden, s->intermediate, s->hidden};
    const int k[] = {s->hidden, s->hidden, q, s->hidden, s->intermediate};
    char name[96];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, rows[i].name);
        const int kind = rows[i].kind;
        tiny_add(m, name, n[kind], k[kind], s->fp8, 0, rows[i].gain / sqrt(k[kind]));
    }
    static const struct {
        const char *name;
        int only; // 1: with norms of q and k; 2: Gemma
    } norms[] = {{"input_layernorm", 0},           {"post_attention_layernorm", 0},
                 {"pre_feedforward_layernorm", 2}, {"post_feedforward_layernorm", 2},
                 {"self_attn.q_norm", 1},          {"self_attn.k_norm", 1}};
    const int kind = tiny_is_gemma(s) ? 2 : !strcmp(s->architecture, "Qwen3ForCausalLM");
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        if (norms[i].only > kind) continue;
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, norms[i].name);
        const int of_heads = norms[i].only == 1; // Gemma stores norms minus one
        tiny_add(m, name, 0, of_heads ? s->head_dim : s->hidden, 0, !tiny_is_gemma(s), of_heads ? 0.2 : 0.1);
    }
}

// ---- files -------------------------------------------------------------------------------------------------------------
static void tiny_write_config(const tiny_model *m) {
    char path[200];
    snprintf(path, sizeof path, "%s/config.json", m->folder);
    FILE *f = fopen(path, "w");
    const tiny_spec *s = &m->spec;
    fprintf(
        f,
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"num_hidden_layers\": %d, \"hidden_size\": "
        "%d,\n"
        "\"intermediate_size\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": "
        "%d,\n"
        "\"vocab_size\": %d, \"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-5, \"rope_theta\": %.1f,\n"
        "\"tie_word_embeddings\": %s, \"torch_dtype\": \"bfloat16\"",
        s->architecture,
        tiny_is_gemma(s)                              ? "gemma3_text"
        : strcmp(s->architecture, "Qwen3ForCausalLM") ? "llama"
                                                      : "qwen3",
        s->layers, s->hidden, s->intermediate, s->q_heads, s->kv_heads, s->head_dim, s->vocab, s->context,
        s->rope_theta, s->tied ? "true" : "false");
    if (!tiny_is_gemma(s))
        fprintf(f, ",\n\"hidden_act\": \"silu\"");
    else
        fprintf(f,
                ",\n\"hidden_activation\": \"gelu_pytorch_tanh\", \"sliding_window\": %d, "
                "\"sliding_window_pattern\": "
                "%d, \"rope_local_base_freq\": %.1f, \"query_pre_attn_scalar\": %.3f",
                s->window, s->period, s->local_theta, s->head_dim / 2 + 0.375);
    if (s->fp8)
        fprintf(f, ",\n\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
                   "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 128]}");
    fprintf(f, "}\n");
    fclose(f);
}

static void tiny_write_weights(const tiny_model *m) {
    char path[200], *header = malloc(65536);
    size_t used = 0, offset = 0;
#define TINY_PUT(...) used += (size_t)snprintf(header + used, 65536 - used, __VA_ARGS__)
    TINY_PUT("{");
    for (int i = 0; i < m->count; i++) {
        const tiny_tensor *t = &m->tensor[i];
        const int n = t->rows ? t->rows : 1, nb = (n + 127) / 128, kb = (t->cols + 127) / 128;
        const size_t bytes = (size_t)n * (size_t)t->cols * (t->fp8 ? 1 : 2);
        TINY_PUT("%s\"%s\": {\"dtype\": \"%s\", \"shape\": [", i ? ", " : "", t->name,
                 t->fp8 ? "F8_E4M3" : "BF16");
        if (t->rows) TINY_PUT("%d, ", t->rows);
        TINY_PUT("%d], \"data_offsets\": [%zu, %zu]}", t->cols, offset, offset + bytes);
        offset += bytes;
        if (!t->fp8) continue;
        TINY_PUT(
            ", \"%s_scale_inv\": {\"dtype\": \"F32\", \"shape\": [%d, %d], \"data_offsets\": [%zu, %zu]}",
            t->name, nb, kb, offset, offset + 4 * (size_t)(nb * kb));
        offset += 4 * (size_t)(nb * kb);
    }
    TINY_PUT("}");
    while (used % 8) TINY_PUT(" ");
    snprintf(path, sizeof path, "%s/model.safetensors", m->folder);
    FILE *f = fopen(path, "wb");
    const uint64_t header_bytes = used;
    fwrite(&header_bytes, 8, 1, f);
    fwrite(header, 1, used, f);
    for (int i = 0; i < m->count; i++) {
        const tiny_tensor *t = &m->tensor[i];
        const size_t n = (size_t)(t->rows ? t->rows : 1), k = (size_t)t->cols;
        if (t->fp8) {
            fwrite(t->code, 1, n * k, f);
            fwrite(t->scale, 4, (n + 127) / 128 * ((k + 127) / 128), f);
        } else {
            fwrite(t->bf16, 2, n * k, f);
        }
    }
    fclose(f);
    free(header);
}

static void tiny_make(tiny_model *m, const tiny_spec *spec, uint64_t seed) {
    *m = (tiny_model){.spec = *spec, .rng = seed};
    snprintf(m->folder, sizeof m->folder, "%s/radiance-tiny-XXXXXX", "/tmp");
    if (!mkdtemp(m->folder)) abort();
    const int gemma = tiny_is_gemma(spec);
    tiny_add(m, "model.embed_tokens.weight", spec->vocab, spec->hidden, 0, 0,
             gemma ? 1 / sqrt(spec->hidden) : 1);
    for (int i = 0; i < spec->layers; i++) tiny_layer(m, i);
    tiny_add(m, "model.norm.weight", 0, spec->hidden, 0, !gemma, 0.1);
    if (!spec->tied)
        tiny_add(m, "lm_head.weight", spec->vocab, spec->hidden, spec->fp8, 0, 1.5 / sqrt(spec->hidden));
    tiny_write_config(m);
    tiny_write_weights(m);
}

static void tiny_free(tiny_model *m) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[200];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", m->folder, files[i]);
        unlink(path);
    }
    rmdir(m->folder);
    for (int i = 0; i < m->count; i++) {
        free(m->tensor[i].value);
        free(m->tensor[i].code);
        free(m->tensor[i].bf16);
        free(m->tensor[i].scale);
    }
}

// ---- the forward pass in double ------------------------------------------------------------------------------------------
static void tiny_matmul(const double *w, int n, int k, const double *x, double *y) {
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < k; j++) sum += w[i * k + j] * x[j];
        y[i] = sum;
    }
}

static void tiny_rmsnorm(const tiny_model *m, const double *x, const double *g, int n, double *y) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    const double r = 1 / sqrt(sum / n + 1e-5);
    for (int i = 0; i < n; i++) y[i] = x[i] * r * (g[i] + tiny_is_gemma(&m->spec));
}

static void tiny_rope(double *head, int dim, int position, double theta) {
    for (int i = 0; i < dim / 2; i++) {
        const double angle = position * pow(theta, -2.0 * i / dim), a = head[i], b = head[i + dim / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + dim / 2] = b * cos(angle) + a * sin(angle);
    }
}

static double tiny_round_kv(double x, const float *scale, int head) {
    if (!scale) return (double)rdi_f32_from_bf16(rdi_bf16_from_f32((float)x));
    return (double)rdi_f32_from_e4m3(rdi_e4m3_from_f32((float)(x / (double)scale[head]))) *
           (double)scale[head];
}

// x as W8A8 sees it: codes of 128 with scale max(amax / 448, 1 / (448 * 512)).
static void tiny_quantise(const tiny_model *m, double *x, int count) {
    if (!m->w8a8) return;
    for (int begin = 0; begin < count; begin += 128) {
        const int end = begin + 128 < count ? begin + 128 : count;
        double amax = 0;
        for (int i = begin; i < end; i++) amax = fmax(amax, fabs(x[i]));
        const float scale = (float)fmax(amax / 448, 1.0 / (448 * 512));
        for (int i = begin; i < end; i++)
            x[i] = (double)rdi_f32_from_e4m3(rdi_e4m3_from_f32((float)x[i] / scale)) * (double)scale;
    }
}

typedef struct tiny_run {
    const tiny_model *m;
    double *k, *v; // [layer][token][kv_dim]
    int tokens;
} tiny_run;

static const double *tiny_weight(const tiny_model *m, int layer, const char *part) {
    char name[96];
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, part);
    return tiny_get(m, name);
}

static int tiny_is_local(const tiny_spec *s, int layer) {
    return s->window && (layer + 1) % s->period;
}

static void tiny_attention(const tiny_run *run, int layer, int position, const double *q, double *out) {
    const tiny_spec *s = &run->m->spec;
    const int kv = s->kv_heads * s->head_dim;
    double *p = malloc(sizeof(double) * (size_t)(position + 1));
    const int local = tiny_is_local(s, layer),
              first = local && position >= s->window ? position - s->window + 1 : 0;
    const double scale = 1 / sqrt(tiny_is_gemma(s) ? s->head_dim / 2 + 0.375 : s->head_dim);
    for (int h = 0; h < s->q_heads; h++) {
        const int kvh = h / (s->q_heads / s->kv_heads);
        double top = -1e300, sum = 0;
        for (int t = first; t <= position; t++) {
            const double *key =
                run->k + ((size_t)layer * (size_t)run->tokens + (size_t)t) * (size_t)kv + kvh * s->head_dim;
            p[t] = 0;
            for (int d = 0; d < s->head_dim; d++) p[t] += q[h * s->head_dim + d] * key[d];
            p[t] *= scale;
            if (p[t] > top) top = p[t];
        }
        for (int t = first; t <= position; t++) sum += p[t] = exp(p[t] - top);
        for (int d = 0; d < s->head_dim; d++) {
            double value = 0;
            for (int t = first; t <= position; t++)
                value += p[t] / sum *
                         run->v[((size_t)layer * (size_t)run->tokens + (size_t)t) * (size_t)kv +
                                (size_t)(kvh * s->head_dim + d)];
            out[h * s->head_dim + d] = value;
        }
    }
    free(p);
}

static void tiny_attention_block(tiny_run *run, int layer, int position, double *x) {
    const tiny_model *m = run->m;
    const tiny_spec *s = &m->spec;
    const int q_dim = s->q_heads * s->head_dim, kv = s->kv_heads * s->head_dim, dim = s->head_dim;
    double *y = malloc(sizeof(double) * (size_t)(2 * s->hidden + 2 * q_dim)), *q = y + s->hidden,
           *o = q + q_dim;
    double *delta = o + q_dim;
    const size_t at = ((size_t)layer * (size_t)run->tokens + (size_t)position) * (size_t)kv;
    double *k = run->k + at, *v = run->v + at;
    tiny_rmsnorm(m, x, tiny_weight(m, layer, "input_layernorm"), s->hidden, y);
    tiny_quantise(m, y, s->hidden);
    tiny_matmul(tiny_weight(m, layer, "self_attn.q_proj"), q_dim, s->hidden, y, q);
    tiny_matmul(tiny_weight(m, layer, "self_attn.k_proj"), kv, s->hidden, y, k);
    tiny_matmul(tiny_weight(m, layer, "self_attn.v_proj"), kv, s->hidden, y, v);
    const int qk_norm = tiny_is_gemma(s) || !strcmp(s->architecture, "Qwen3ForCausalLM");
    const double theta = tiny_is_local(s, layer) ? s->local_theta : s->rope_theta;
    for (int h = 0; h < s->q_heads; h++) {
        if (qk_norm)
            tiny_rmsnorm(m, q + h * dim, tiny_weight(m, layer, "self_attn.q_norm"), dim, q + h * dim);
        tiny_rope(q + h * dim, dim, position, theta);
    }
    for (int h = 0; h < s->kv_heads; h++) {
        if (qk_norm)
            tiny_rmsnorm(m, k + h * dim, tiny_weight(m, layer, "self_attn.k_norm"), dim, k + h * dim);
        tiny_rope(k + h * dim, dim, position, theta);
        for (int d = 0; d < dim; d++) {
            k[h * dim + d] = tiny_round_kv(k[h * dim + d], m->k_scale[layer], h);
            v[h * dim + d] = tiny_round_kv(v[h * dim + d], m->v_scale[layer], h);
        }
    }
    tiny_attention(run, layer, position, q, o);
    tiny_quantise(m, o, q_dim);
    tiny_matmul(tiny_weight(m, layer, "self_attn.o_proj"), s->hidden, q_dim, o, delta);
    if (tiny_is_gemma(s))
        tiny_rmsnorm(m, delta, tiny_weight(m, layer, "post_attention_layernorm"), s->hidden, delta);
    for (int i = 0; i < s->hidden; i++) x[i] += delta[i];
    free(y);
}

static void tiny_mlp_block(const tiny_model *m, int layer, double *x) {
    const tiny_spec *s = &m->spec;
    const int width = s->intermediate;
    double *y = malloc(sizeof(double) * (size_t)(2 * s->hidden + 2 * width)), *gate = y + s->hidden,
           *up = gate + width;
    double *delta = up + width;
    const int gemma = tiny_is_gemma(s);
    tiny_rmsnorm(m, x,
                 tiny_weight(m, layer, gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm"),
                 s->hidden, y);
    tiny_quantise(m, y, s->hidden);
    tiny_matmul(tiny_weight(m, layer, "mlp.gate_proj"), width, s->hidden, y, gate);
    tiny_matmul(tiny_weight(m, layer, "mlp.up_proj"), width, s->hidden, y, up);
    for (int i = 0; i < width; i++) {
        const double g = gate[i], inner = 0.7978845608028654 * (g + 0.044715 * g * g * g); // sqrt(2 / pi)
        gate[i] = (gemma ? 0.5 * g * (1 + tanh(inner)) : g / (1 + exp(-g))) * up[i];
    }
    tiny_quantise(m, gate, width);
    tiny_matmul(tiny_weight(m, layer, "mlp.down_proj"), s->hidden, width, gate, delta);
    if (gemma) tiny_rmsnorm(m, delta, tiny_weight(m, layer, "post_feedforward_layernorm"), s->hidden, delta);
    for (int i = 0; i < s->hidden; i++) x[i] += delta[i];
    free(y);
}

// logits: [count, vocab]
static inline void tiny_forward(const tiny_model *m, const int32_t *ids, int count, double *logits) {
    const tiny_spec *s = &m->spec;
    const size_t kv = (size_t)s->layers * (size_t)count * (size_t)(s->kv_heads * s->head_dim);
    tiny_run run = {m, malloc(sizeof(double) * kv), malloc(sizeof(double) * kv), count};
    double *x = malloc(sizeof(double) * (size_t)s->hidden * 2), *y = x + s->hidden;
    const double *embed = tiny_get(m, "model.embed_tokens.weight");
    for (int t = 0; t < count; t++) {
        for (int i = 0; i < s->hidden; i++)
            x[i] = embed[ids[t] * s->hidden + i] * (tiny_is_gemma(s) ? sqrt(s->hidden) : 1);
        for (int layer = 0; layer < s->layers; layer++) {
            tiny_attention_block(&run, layer, t, x);
            tiny_mlp_block(m, layer, x);
        }
        tiny_rmsnorm(m, x, tiny_get(m, "model.norm.weight"), s->hidden, y);
        tiny_matmul(s->tied ? embed : tiny_get(m, "lm_head.weight"), s->vocab, s->hidden, y,
                    logits + (size_t)t * (size_t)s->vocab);
    }
    free(run.k);
    free(run.v);
    free(x);
}

#endif // TINY_FORWARD_H
