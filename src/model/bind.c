// SPDX-License-Identifier: Apache-2.0
// Tensors of a file to the slots of the forward pass: one table of names and shapes, every tensor accounted for.
#include "model/bind.h"

#include <stdio.h>
#include <string.h>

typedef enum extent { EXTENT_NONE, HIDDEN, INTERMEDIATE, VOCAB, Q_ROWS, KV_ROWS, HEAD_DIM } extent;
typedef struct slot_row {
    const char *hf, *gguf; // with %d for the layer
    extent rows, cols;     // rows EXTENT_NONE: a vector
    bool permuted_in_llama_gguf;
} slot_row;

static const slot_row layer_rows[RDI_LAYER_SLOTS] = {
    [RDI_ATTN_NORM] = {"model.layers.%d.input_layernorm.weight", "blk.%d.attn_norm.weight", EXTENT_NONE,
                       HIDDEN, false},
    [RDI_ATTN_Q] = {"model.layers.%d.self_attn.q_proj.weight", "blk.%d.attn_q.weight", Q_ROWS, HIDDEN, true},
    [RDI_ATTN_K] = {"model.layers.%d.self_attn.k_proj.weight", "blk.%d.attn_k.weight", KV_ROWS, HIDDEN, true},
    [RDI_ATTN_V] = {"model.layers.%d.self_attn.v_proj.weight", "blk.%d.attn_v.weight", KV_ROWS, HIDDEN,
                    false},
    [RDI_ATTN_O] = {"model.layers.%d.self_attn.o_proj.weight", "blk.%d.attn_output.weight", HIDDEN, Q_ROWS,
                    false},
    [RDI_ATTN_Q_NORM] = {"model.layers.%d.self_attn.q_norm.weight", "blk.%d.attn_q_norm.weight", EXTENT_NONE,
                         HEAD_DIM, false},
    [RDI_ATTN_K_NORM] = {"model.layers.%d.self_attn.k_norm.weight", "blk.%d.attn_k_norm.weight", EXTENT_NONE,
                         HEAD_DIM, false},
    [RDI_ATTN_POST_NORM] = {"model.layers.%d.post_attention_layernorm.weight",
                            "blk.%d.post_attention_norm.weight", EXTENT_NONE, HIDDEN, false},
    [RDI_MLP_NORM] = {"model.layers.%d.post_attention_layernorm.weight", "blk.%d.ffn_norm.weight",
                      EXTENT_NONE, HIDDEN, false},
    [RDI_MLP_GATE] = {"model.layers.%d.mlp.gate_proj.weight", "blk.%d.ffn_gate.weight", INTERMEDIATE, HIDDEN,
                      false},
    [RDI_MLP_UP] = {"model.layers.%d.mlp.up_proj.weight", "blk.%d.ffn_up.weight", INTERMEDIATE, HIDDEN,
                    false},
    [RDI_MLP_DOWN] = {"model.layers.%d.mlp.down_proj.weight", "blk.%d.ffn_down.weight", HIDDEN, INTERMEDIATE,
                      false},
    [RDI_MLP_POST_NORM] = {"model.layers.%d.post_feedforward_layernorm.weight", "blk.%d.post_ffw_norm.weight",
                           EXTENT_NONE, HIDDEN, false},
};
static const slot_row model_rows[RDI_MODEL_SLOTS] = {
    [RDI_EMBED] = {"model.embed_tokens.weight", "token_embd.weight", VOCAB, HIDDEN, false},
    [RDI_FINAL_NORM] = {"model.norm.weight", "output_norm.weight", EXTENT_NONE, HIDDEN, false},
    [RDI_HEAD] = {"lm_head.weight", "output.weight", VOCAB, HIDDEN, false},
};

static int64_t extent_of(const rdi_model_config *c, extent what) {
    switch (what) {
    case HIDDEN:
        return c->hidden;
    case INTERMEDIATE:
        return c->intermediate;
    case VOCAB:
        return c->vocab;
    case Q_ROWS:
        return (int64_t)c->q_heads * c->head_dim;
    case KV_ROWS:
        return (int64_t)c->kv_heads * c->head_dim;
    case HEAD_DIM:
        return c->head_dim;
    default:
        return 1;
    }
}

bool rdi_slot_exists(const rdi_model_config *config, rdi_layer_slot slot) {
    if (slot == RDI_ATTN_Q_NORM || slot == RDI_ATTN_K_NORM) return config->qk_norm;
    if (slot == RDI_ATTN_POST_NORM || slot == RDI_MLP_POST_NORM) return config->post_norms;
    return true;
}

void rdi_slot_name(const rdi_model_config *config, rdi_layer_slot slot, int32_t layer, bool gguf,
                   char name[RDI_TENSOR_MAX_NAME]) {
    const char *format = gguf ? layer_rows[slot].gguf : layer_rows[slot].hf;
    // Hugging Face's name of the MLP's norm says where it stands: with norms behind attention it is another's.
    if (config->post_norms && slot == RDI_MLP_NORM && !gguf)
        format = "model.layers.%d.pre_feedforward_layernorm.weight";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" // all formats stand above
    snprintf(name, RDI_TENSOR_MAX_NAME, format, layer);
#pragma GCC diagnostic pop
}

const char *rdi_model_slot_name(rdi_model_slot slot, bool gguf) {
    return gguf ? model_rows[slot].gguf : model_rows[slot].hf;
}

static void shape_of(const rdi_model_config *config, const slot_row *row, int64_t shape[2]) {
    shape[0] = row->rows == EXTENT_NONE ? 0 : extent_of(config, row->rows);
    shape[1] = extent_of(config, row->cols);
}
void rdi_slot_shape(const rdi_model_config *config, rdi_layer_slot slot, int64_t shape[2]) {
    shape_of(config, &layer_rows[slot], shape);
}
void rdi_model_slot_shape(const rdi_model_config *config, rdi_model_slot slot, int64_t shape[2]) {
    shape_of(config, &model_rows[slot], shape);
}

typedef struct binder {
    const rdi_bind_source *source;
    bool *used;
    rdi_bindings *out;
} binder;

static const rdi_entry *find(binder *b, const char *name) {
    const rdi_entry *entry = rdi_entries_find(&b->source->entries, name);
    if (!entry) return NULL;
    b->used[entry - b->source->entries.entry] = true;
    b->out->weight_bytes += entry->bytes;
    return entry;
}

static rd_status bind_scale(binder *b, const char *name, rdi_weight *weight) {
    char scale_name[RDI_TENSOR_MAX_NAME + 16];
    const char *what = b->source->what;
    snprintf(scale_name, sizeof scale_name, "%s_scale_inv", name);
    const rdi_entry *scale = find(b, scale_name);
    if (!scale) {
        snprintf(scale_name, sizeof scale_name, "%s_scale", name);
        scale = find(b, scale_name);
    }
    if (!scale)
        return rdi_fail(RD_E_FORMAT, "%s: tensor %s is F8_E4M3 and has no %s_scale_inv, needs one", what,
                        name, name);
    int64_t rows = rdi_ceil_div(weight->rows, 128), cols = rdi_ceil_div(weight->cols, 128);
    if (scale->rank != 2 || scale->shape[0] != rows || scale->shape[1] != cols)
        return rdi_fail(RD_E_FORMAT,
                        "%s: tensor %s: shape=[%lld, %lld], needs [%lld, %lld] (a scale per 128x128 block of "
                        "[%lld, %lld])",
                        what, scale_name, (long long)scale->shape[0], (long long)scale->shape[1],
                        (long long)rows, (long long)cols, (long long)weight->rows, (long long)weight->cols);
    if (scale->type != RDI_W_F32 && scale->type != RDI_W_BF16 && scale->type != RDI_W_E8M0)
        return rdi_fail(RD_E_FORMAT, "%s: tensor %s: dtype=%s, needs one of F32 BF16 F8_E8M0", what,
                        scale_name, rdi_wtype_get(scale->type)->name);
    weight->scale = scale->data;
    weight->scale_type = scale->type;
    return RD_OK;
}

// Names the kin that are there: a checkpoint of another packing (".weight_packed", ".weight_blocks") is told apart from a
// truncated one.
static rd_status fail_missing(const binder *b, const char *name, int64_t rows, int64_t cols) {
    size_t stem = strlen(name);
    const rdi_entries *entries = &b->source->entries;
    for (int64_t i = 0; i < entries->count; i++)
        if (!strncmp(entries->entry[i].name, name, stem) &&
            strncmp(entries->entry[i].name + stem, "_scale", 6) != 0)
            return rdi_fail(RD_E_UNSUPPORTED,
                            "%s: tensor %s is missing, needs it plain or F8_E4M3 with %s_scale_inv; the file "
                            "packs it as %s",
                            b->source->what, name, name, entries->entry[i].name);
    return rdi_fail(RD_E_FORMAT, "%s: tensor %s is missing, needs shape [%lld, %lld]", b->source->what, name,
                    (long long)rows, (long long)cols);
}

static rd_status bind(binder *b, const slot_row *row, const char *name, bool may_be_fp8, rdi_weight *weight) {
    const rdi_model_config *config = b->source->config;
    const char *what = b->source->what;
    int64_t rows = extent_of(config, row->rows), cols = extent_of(config, row->cols);
    int32_t rank = row->rows == EXTENT_NONE ? 1 : 2;
    const rdi_entry *entry = find(b, name);
    if (!entry) return fail_missing(b, name, rows, cols);
    bool same =
        entry->rank == rank && entry->shape[rank - 1] == cols && (rank == 1 || entry->shape[0] == rows);
    if (!same && rank == 1)
        return rdi_fail(RD_E_FORMAT,
                        "%s: tensor %s: rank=%d shape[0]=%lld, needs [%lld] from the configuration", what,
                        name, entry->rank, (long long)entry->shape[0], (long long)cols);
    if (!same)
        return rdi_fail(
            RD_E_FORMAT,
            "%s: tensor %s: rank=%d shape=[%lld, %lld], needs [%lld, %lld] from the configuration", what,
            name, entry->rank, (long long)entry->shape[0], (long long)entry->shape[1], (long long)rows,
            (long long)cols);
    *weight = (rdi_weight){.name = entry->name,
                           .data = entry->data,
                           .type = entry->type,
                           .rank = rank,
                           .added = rank == 1 ? config->norm_offset : 0,
                           .rows = rows,
                           .cols = cols};
    const rdi_wtype_info *info = rdi_wtype_get(entry->type);
    weight->row_bytes = cols / info->block_elems * info->block_bytes;
    bool plain = entry->type == RDI_W_F32 || entry->type == RDI_W_F16 || entry->type == RDI_W_BF16;
    bool fp8 = may_be_fp8 && entry->type == RDI_W_E4M3, blocks = rank == 2 && info->dtype == RD_DTYPE_NONE;
    if (!plain && !fp8 && !blocks)
        return rdi_fail(RD_E_FORMAT, "%s: tensor %s: dtype=%s, needs a floating type%s", what, name,
                        info->name, may_be_fp8 ? " or F8_E4M3 with scales" : " of 16 or 32 bits");
    if (fp8 && !config->fp8_block)
        return rdi_fail(RD_E_FORMAT,
                        "%s: tensor %s: dtype=F8_E4M3, needs a quantization_config in config.json", what,
                        name);
    if (fp8) RDI_TRY(bind_scale(b, name, weight));
    if (row->permuted_in_llama_gguf && b->source->gguf && !config->qk_norm)
        weight->permuted_head_dim = config->head_dim;
    b->out->types |= 1u << entry->type;
    b->out->parameters += rows * cols;
    return RD_OK;
}

// Left-over tensors change the arithmetic (biases, adapters) unless they are known to be derived data.
static rd_status refuse_unused(const binder *b) {
    const rdi_entries *entries = &b->source->entries;
    for (int64_t i = 0; i < entries->count; i++) {
        const char *name = entries->entry[i].name, *tail = strrchr(name, '.');
        bool derived = (tail && !strcmp(tail, ".inv_freq")) ||
                       (b->source->config->tied_head && !strcmp(name, "lm_head.weight"));
        if (!b->used[i] && !derived)
            return rdi_fail(RD_E_UNSUPPORTED, "%s: tensor %s has no place in %s, needs a file without it",
                            b->source->what, name, b->source->config->architecture);
    }
    return RD_OK;
}

rd_status rdi_bind(rdi_arena *arena, const rdi_bind_source *source, rdi_bindings *out) {
    const rdi_model_config *config = source->config;
    memset(out, 0, sizeof *out);
    // A layer has 9 tensors at least: holds hostile layer counts against the file before allocating for them.
    if (config->layers > source->entries.count / 9)
        return rdi_fail(RD_E_FORMAT,
                        "%s: num_hidden_layers=%d, needs at most %lld: the file has %lld tensors",
                        source->what, config->layers, (long long)(source->entries.count / 9),
                        (long long)source->entries.count);
    out->layer = rdi_arena_alloc(arena, (size_t)config->layers * sizeof *out->layer);
    binder b = {source, rdi_arena_alloc(arena, (size_t)source->entries.count), out};
    if (!out->layer || !b.used) return RD_E_NOMEM;
    for (int slot = 0; slot < RDI_MODEL_SLOTS; slot++) {
        if (slot == RDI_HEAD && config->tied_head) continue;
        RDI_TRY(bind(&b, &model_rows[slot], rdi_model_slot_name((rdi_model_slot)slot, source->gguf),
                     slot == RDI_HEAD, &out->model[slot]));
    }
    if (config->tied_head) out->model[RDI_HEAD] = out->model[RDI_EMBED];
    for (int32_t layer = 0; layer < config->layers; layer++)
        for (int slot = 0; slot < RDI_LAYER_SLOTS; slot++) {
            char name[RDI_TENSOR_MAX_NAME];
            if (!rdi_slot_exists(config, (rdi_layer_slot)slot)) continue;
            rdi_slot_name(config, (rdi_layer_slot)slot, layer, source->gguf, name);
            RDI_TRY(bind(&b, &layer_rows[slot], name, layer_rows[slot].rows != EXTENT_NONE,
                         &out->layer[layer][slot]));
        }
    return refuse_unused(&b);
}
