// SPDX-License-Identifier: Apache-2.0
// What the engine sees of a model file: the configuration as plain values and every weight as a view of mapped bytes.
//
// Row order is always Hugging Face's (rotary halves, "neox"): the permutation that llama-type GGUF files apply to Q and
// K rows is a property of the view and rdi_weight_rows_f32 undoes it, so nothing above this header knows of it.
#ifndef RDI_MODEL_H
#define RDI_MODEL_H

#include "base/base.h"
#include "radiance_run.h"

// ---- storage types -------------------------------------------------------------------------------------------------
typedef enum rdi_wtype {
    RDI_W_NONE = 0,
    RDI_W_F32,
    RDI_W_F16,
    RDI_W_BF16,
    RDI_W_E4M3,
    RDI_W_E8M0,
    RDI_W_I32,
    RDI_W_I64,
    RDI_W_U8,
    RDI_W_Q4_0, // GGUF: f16 d, 16 bytes of nibbles;          w = d * (q - 8)
    RDI_W_Q4_1, // GGUF: f16 d, f16 m, 16 bytes of nibbles;   w = d * q + m
    RDI_W_Q8_0, // GGUF: f16 d, 32 signed bytes;              w = d * q
    RDI_W_COUNT
} rdi_wtype;

typedef struct rdi_wtype_info {
    const char *name;    // as the file formats spell it: "F32", "F8_E4M3", "Q4_1"
    int32_t block_elems; // 1, or the elements that share a scale inside the row
    int32_t block_bytes;
    rd_dtype dtype; // RD_DTYPE_NONE for the GGUF block types: those must be dequantised
} rdi_wtype_info;
const rdi_wtype_info *rdi_wtype_get(rdi_wtype type);

// ---- weights --------------------------------------------------------------------------------------------------------
typedef struct rdi_weight {
    const char *name; // as the file calls it
    const void *data; // into the mapping; rows are dense
    rdi_wtype type;
    int32_t rank; // 1: [rows = 1, cols]; 2: [rows, cols] = [N, K] of y = x W^T
    int64_t rows, cols;
    int64_t row_bytes;
    const void *scale;    // block-FP8: [ceil(rows/128), ceil(cols/128)], else NULL; w = code * scale
    rdi_wtype scale_type; // F32, BF16 or E8M0
    float added;          // to each element as stored: norms that are kept minus one
    int32_t
        permuted_head_dim; // 0, or: rows of each head of this size are stored as (pair, half) instead of (half, pair)
} rdi_weight;

// Stored row of logical (Hugging Face order) row `row`.
static inline int64_t rdi_weight_stored_row(const rdi_weight *weight, int64_t row) {
    int64_t dim = weight->permuted_head_dim;
    if (!dim) return row;
    int64_t head = row / dim, in_head = row % dim, half = in_head / (dim / 2), pair = in_head % (dim / 2);
    return head * dim + 2 * pair + half;
}
// Dequantises logical rows [row, row + count) to out[count][cols]; block-FP8 scales and the permutation are applied.
void rdi_weight_rows_f32(const rdi_weight *weight, int64_t row, int64_t count, float *out);
// Block scales widened exactly to out[ceil(rows/128)][ceil(cols/128)].
void rdi_weight_scales_f32(const rdi_weight *weight, float *out);
// A descriptor of the mapped bytes for kernels, when the type is an rd_dtype and rows are in logical order; else data NULL.
rd_tensor rdi_weight_tensor(const rdi_weight *weight);

// ---- configuration ---------------------------------------------------------------------------------------------------
typedef enum rdi_rope_scaling { RDI_ROPE_NONE = 0, RDI_ROPE_LINEAR, RDI_ROPE_LLAMA3 } rdi_rope_scaling;

enum { RDI_MAX_EOS = 8 };
typedef struct rdi_model_config {
    const char *architecture; // "LlamaForCausalLM", "Qwen3ForCausalLM" or "Gemma3ForCausalLM"
    int32_t layers, hidden, intermediate, q_heads, kv_heads, head_dim, vocab, context_tokens;
    float norm_eps;
    float rope_theta;
    rdi_rope_scaling rope_scaling;
    float rope_factor;                       // linear and llama3
    float rope_low_factor, rope_high_factor; // llama3
    int32_t rope_original_context;           // llama3
    bool tied_head;                          // no lm_head tensor: the head is the embedding
    bool qk_norm;                            // Qwen3: rmsnorm over head_dim of q and k before rope
    float norm_offset;                       // added to every norm's weight as stored (Gemma: 1)
    bool post_norms;                         // what attention and MLP give is normalised before it is added
    bool gelu;                               // the MLP's gate: gelu's tanh form, else silu
    float embed_scale, attn_scale;           // of embeddings (1 for most); of query times key
    float attn_scalar;                       // Gemma's word for the latter, whose inverse root it is; 0: none
    int32_t window,
        window_period;      // layers but every window_period-th see `window` keys alone; 0: all see all
    float local_rope_theta; // of those layers
    bool fp8_block;         // quantization_config says block-FP8, 128x128
    int32_t bos_id;         // -1: none
    int32_t eos_count, eos_ids[RDI_MAX_EOS];
} rdi_model_config;

static inline bool rdi_layer_is_local(const rdi_model_config *config, int32_t layer) {
    return config->window && (layer + 1) % config->window_period;
}

typedef enum rdi_layer_slot {
    RDI_ATTN_NORM = 0,
    RDI_ATTN_Q,
    RDI_ATTN_K,
    RDI_ATTN_V,
    RDI_ATTN_O,
    RDI_ATTN_Q_NORM, // qk_norm only
    RDI_ATTN_K_NORM,
    RDI_ATTN_POST_NORM, // post_norms only
    RDI_MLP_NORM,
    RDI_MLP_GATE,
    RDI_MLP_UP,
    RDI_MLP_DOWN,
    RDI_MLP_POST_NORM, // post_norms only
    RDI_LAYER_SLOTS
} rdi_layer_slot;
typedef enum rdi_model_slot { RDI_EMBED = 0, RDI_FINAL_NORM, RDI_HEAD, RDI_MODEL_SLOTS } rdi_model_slot;

const rdi_model_config *rdi_model_get_config(const rd_model *model);
rd_status rdi_model_get_tokenizer(const rd_model *model,
                                  const rd_tokenizer **out); // builds it when first asked
// Every weight that the configuration asks for exists and has its shape: rd_model_open has checked. NULL only for slots
// that the architecture lacks (norms of Q and K, norms behind attention and MLP). RDI_HEAD of a tied model is the embedding's view.
const rdi_weight *rdi_model_layer_weight(const rd_model *model, int32_t layer, rdi_layer_slot slot);
const rdi_weight *rdi_model_weight(const rd_model *model, rdi_model_slot slot);

#endif // RDI_MODEL_H
