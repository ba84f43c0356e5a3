// SPDX-License-Identifier: Apache-2.0
// config.json and GGUF metadata to one configuration. What would change the arithmetic and is not known here is refused by
// field, value and need: a model that runs with a setting ignored is wrong without a sign.
#include "model/files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 1024, MAX_WIDTH = 1 << 20, MAX_VOCAB = 1 << 24, MAX_HEADS = 4096, MAX_HEAD_DIM = 1024 };

static const struct {
    const char *architecture, *model_type, *gguf;
    bool qk_norm;
    int32_t default_head_dim; // 0: hidden / heads
} architectures[] = {
    {"LlamaForCausalLM", "llama", "llama", false, 0},
    {"Qwen3ForCausalLM", "qwen3", "qwen3", true, 128},
    {"Gemma3ForCausalLM", "gemma3_text", NULL, true,
     256}, // its GGUF files need types and a tokenizer not known here
};

static rd_status finish(rdi_model_config *c) {
    if (c->q_heads % c->kv_heads)
        return rdi_fail(RD_E_FORMAT, "num_key_value_heads=%d, needs a divisor of num_attention_heads=%d",
                        c->kv_heads, c->q_heads);
    if (c->head_dim < 2 || c->head_dim > MAX_HEAD_DIM || c->head_dim % 2)
        return rdi_fail(RD_E_FORMAT, "head_dim=%d, needs an even number from 2 to %d", c->head_dim,
                        MAX_HEAD_DIM);
    if (c->attn_scale == 0) c->attn_scale = 1.0f / sqrtf((float)c->head_dim);
    if (c->embed_scale == 0) c->embed_scale = 1;
    return RD_OK;
}

// ---- config.json --------------------------------------------------------------------------------------------------------
static rd_status get_int(const rdi_json *json, const char *key, int64_t min, int64_t max, int64_t otherwise,
                         int32_t *out) {
    int64_t value;
    RDI_TRY(rdi_json_int(json, key, min, max, otherwise, &value));
    *out = (int32_t)value;
    return RD_OK;
}

static rd_status get_float(const rdi_json *json, const char *key, double min, double max, double otherwise,
                           float *out) {
    double value;
    RDI_TRY(rdi_json_real(json, key, min, max, otherwise, &value));
    *out = (float)value;
    return RD_OK;
}

static rd_status read_architecture(const rdi_json *json, int *index) {
    const rdi_json *list = rdi_json_get(json, "architectures"), *type = rdi_json_get(json, "model_type");
    const rdi_json *name = list && list->kind == RDI_JSON_ARRAY && list->count ? list->first : type;
    for (size_t i = 0; i < RDI_COUNT(architectures); i++)
        if (rdi_json_is(name, name == type ? architectures[i].model_type : architectures[i].architecture)) {
            *index = (int)i;
            return RD_OK;
        }
    bool text = name && name->kind == RDI_JSON_STRING;
    return rdi_fail(RD_E_UNSUPPORTED,
                    "architectures=%.*s, needs one of LlamaForCausalLM Qwen3ForCausalLM Gemma3ForCausalLM",
                    text ? (int)rdi_min(name->text_bytes, 64) : 7, text ? name->text : "nothing");
}

static rd_status refuse_partial(const rdi_json *where) {
    double partial;
    RDI_TRY(rdi_json_real(where, "partial_rotary_factor", 0, 1, 1, &partial));
    return partial == 1 ? RD_OK : rdi_fail(RD_E_UNSUPPORTED, "partial_rotary_factor=%g, needs 1", partial);
}

static rd_status read_rope(const rdi_json *json, double default_theta, rdi_model_config *out) {
    const rdi_json *parameters = rdi_json_get(json, "rope_parameters"),
                   *scaling = rdi_json_get(json, "rope_scaling");
    if (rdi_json_get(parameters, "full_attention")) parameters = rdi_json_get(parameters, "full_attention");
    if (parameters && parameters->kind == RDI_JSON_OBJECT)
        scaling = parameters; // transformers >= 5 keeps all of it here
    RDI_TRY(get_float(rdi_json_get(parameters, "rope_theta") ? parameters : json, "rope_theta", 1, 1e12,
                      default_theta, &out->rope_theta));
    RDI_TRY(refuse_partial(json));
    RDI_TRY(refuse_partial(parameters));
    if (!scaling || scaling->kind == RDI_JSON_NULL) return RD_OK;
    if (scaling->kind != RDI_JSON_OBJECT)
        return rdi_fail(RD_E_FORMAT, "rope_scaling is %s, needs an object or null",
                        rdi_json_kind_name(scaling));
    const rdi_json *type = rdi_json_get(scaling, "rope_type");
    if (!type) type = rdi_json_get(scaling, "type");
    if (rdi_json_is(type, "default") || (!type && scaling == parameters)) return RD_OK;
    if (rdi_json_is(type, "linear")) {
        out->rope_scaling = RDI_ROPE_LINEAR;
    } else if (rdi_json_is(type, "llama3")) {
        out->rope_scaling = RDI_ROPE_LLAMA3;
        RDI_TRY(get_float(scaling, "low_freq_factor", 1e-3, 1e6, 1, &out->rope_low_factor));
        RDI_TRY(get_float(scaling, "high_freq_factor", 1e-3, 1e6, 4, &out->rope_high_factor));
        RDI_TRY(get_int(scaling, "original_max_position_embeddings", 1, INT32_MAX, RDI_REQUIRED,
                        &out->rope_original_context));
        if (!(out->rope_high_factor > out->rope_low_factor))
            return rdi_fail(RD_E_FORMAT, "high_freq_factor=%g, needs more than low_freq_factor=%g",
                            (double)out->rope_high_factor, (double)out->rope_low_factor);
    } else {
        bool text = type && type->kind == RDI_JSON_STRING;
        return rdi_fail(RD_E_UNSUPPORTED, "rope_type=%.*s, needs one of default linear llama3",
                        text ? (int)rdi_min(type->text_bytes, 32) : 7, text ? type->text : "nothing");
    }
    if (!rdi_json_get(scaling, "factor"))
        return rdi_fail(RD_E_FORMAT, "rope_scaling: factor is missing, needs a number");
    return get_float(scaling, "factor", 1e-3, 1e6, 1, &out->rope_factor);
}

// "layer_types" where it is given, else the period's own field: sliding layers, then one that sees all keys.
static rd_status read_layer_types(const rdi_json *json, rdi_model_config *out) {
    const char *key =
        rdi_json_get(json, "sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    const rdi_json *types = rdi_json_get(json, "layer_types");
    RDI_TRY(get_int(json, key, 1, MAX_LAYERS, 6, &out->window_period));
    if (!types || types->kind == RDI_JSON_NULL) return RD_OK;
    if (types->kind != RDI_JSON_ARRAY || (int64_t)types->count != out->layers)
        return rdi_fail(RD_E_FORMAT, "layer_types, needs a list of num_hidden_layers=%d words", out->layers);
    int32_t layer = 0;
    for (const rdi_json *at = types->first; at; at = at->next, layer++) {
        const bool local = rdi_json_is(at, "sliding_attention");
        if (!local && !rdi_json_is(at, "full_attention"))
            return rdi_fail(RD_E_UNSUPPORTED,
                            "layer_types: entry %d, needs one of full_attention sliding_attention", layer);
        if (local != rdi_layer_is_local(out, layer))
            return rdi_fail(
                RD_E_UNSUPPORTED,
                "layer_types: entry %d is %s, needs full_attention at every %d-th layer and there alone",
                layer, local ? "sliding_attention" : "full_attention", out->window_period);
    }
    return RD_OK;
}

static rd_status refuse_true(const rdi_json *json, const char *key) {
    bool value;
    RDI_TRY(rdi_json_bool(json, key, false, &value));
    return value ? rdi_fail(RD_E_UNSUPPORTED, "%s=true, needs false", key) : RD_OK;
}
static rd_status refuse_number(const rdi_json *json, const char *key) {
    const rdi_json *value = rdi_json_get(json, key);
    if (!value || value->kind == RDI_JSON_NULL) return RD_OK;
    return rdi_fail(RD_E_UNSUPPORTED, "%s is %s, needs null", key, rdi_json_kind_name(value));
}

static rd_status read_gemma(const rdi_json *json, rdi_model_config *out) {
    const rdi_json *local = rdi_json_get(rdi_json_get(json, "rope_parameters"), "sliding_attention");
    const rdi_json *act = rdi_json_get(json, "hidden_activation");
    if (act && !rdi_json_is(act, "gelu_pytorch_tanh")) {
        bool text = act->kind == RDI_JSON_STRING;
        return rdi_fail(RD_E_UNSUPPORTED, "hidden_activation=%.*s, needs gelu_pytorch_tanh",
                        text ? (int)rdi_min(act->text_bytes, 32) : 7, text ? act->text : "nothing");
    }
    const rdi_json *type = rdi_json_get(local, "rope_type");
    if (type && !rdi_json_is(type, "default")) {
        bool text = type->kind == RDI_JSON_STRING;
        return rdi_fail(RD_E_UNSUPPORTED, "sliding_attention: rope_type=%.*s, needs default",
                        text ? (int)rdi_min(type->text_bytes, 32) : 7, text ? type->text : "nothing");
    }
    RDI_TRY(refuse_partial(local));
    out->gelu = true;
    out->norm_offset = 1;
    out->embed_scale = sqrtf((float)out->hidden);
    RDI_TRY(get_float(json, "query_pre_attn_scalar", 1e-3, 1e9, 256, &out->attn_scalar));
    out->attn_scale = 1.0f / sqrtf(out->attn_scalar);
    RDI_TRY(get_int(json, "sliding_window", 1, INT32_MAX, RDI_REQUIRED, &out->window));
    RDI_TRY(get_float(local ? local : json, local ? "rope_theta" : "rope_local_base_freq", 1, 1e12, 10000,
                      &out->local_rope_theta));
    RDI_TRY(refuse_number(json, "attn_logit_softcapping"));
    RDI_TRY(refuse_number(json, "final_logit_softcapping"));
    RDI_TRY(refuse_true(json, "use_bidirectional_attention"));
    return read_layer_types(json, out);
}

static rd_status read_quantization(const rdi_json *json, rdi_model_config *out) {
    const rdi_json *q = rdi_json_get(json, "quantization_config");
    if (!q || q->kind == RDI_JSON_NULL) return RD_OK;
    const rdi_json *method = rdi_json_get(q, "quant_method"), *block = rdi_json_get(q, "weight_block_size");
    if (!rdi_json_is(method, "fp8")) {
        bool text = method && method->kind == RDI_JSON_STRING;
        return rdi_fail(RD_E_UNSUPPORTED, "quantization_config: quant_method=%.*s, needs fp8",
                        text ? (int)rdi_min(method->text_bytes, 32) : 7, text ? method->text : "nothing");
    }
    bool square = block && block->kind == RDI_JSON_ARRAY && block->count == 2;
    for (const rdi_json *at = square ? block->first : NULL; at; at = at->next)
        square = square && at->kind == RDI_JSON_INT && at->integer == 128;
    if (!square)
        return rdi_fail(RD_E_UNSUPPORTED, "quantization_config: weight_block_size, needs [128, 128]");
    const rdi_json *format = rdi_json_get(q, "fmt");
    if (format && !rdi_json_is(format, "e4m3"))
        return rdi_fail(RD_E_UNSUPPORTED, "quantization_config: fmt, needs e4m3");
    const rdi_json *scheme = rdi_json_get(q, "activation_scheme");
    if (scheme && !rdi_json_is(scheme, "dynamic"))
        return rdi_fail(RD_E_UNSUPPORTED, "quantization_config: activation_scheme, needs dynamic");
    out->fp8_block = true;
    return RD_OK;
}

static rd_status read_ends(const rdi_json *json, rdi_model_config *out) {
    const rdi_json *eos = rdi_json_get(json, "eos_token_id");
    RDI_TRY(get_int(json, "bos_token_id", -1, MAX_VOCAB, -1, &out->bos_id));
    const rdi_json *at = eos && eos->kind == RDI_JSON_ARRAY ? eos->first : eos;
    for (; at; at = at == eos ? NULL : at->next) {
        if (at->kind == RDI_JSON_NULL) continue;
        if (at->kind != RDI_JSON_INT || at->integer < -1 || at->integer > MAX_VOCAB)
            return rdi_fail(RD_E_FORMAT, "eos_token_id is %s out of place, needs token ids",
                            rdi_json_kind_name(at));
        if (out->eos_count == RDI_MAX_EOS)
            return rdi_fail(RD_E_UNSUPPORTED, "eos_token_id: over %d ids", RDI_MAX_EOS);
        if (at->integer >= 0) out->eos_ids[out->eos_count++] = (int32_t)at->integer;
    }
    return RD_OK;
}

rd_status rdi_config_from_json(const rdi_json *json, rdi_model_config *out) {
    int index = 0;
    memset(out, 0, sizeof *out);
    if (json->kind != RDI_JSON_OBJECT)
        return rdi_fail(RD_E_FORMAT, "config is %s, needs an object", rdi_json_kind_name(json));
    RDI_TRY(read_architecture(json, &index));
    out->architecture = architectures[index].architecture;
    out->qk_norm = architectures[index].qk_norm;
    const bool gemma = !strcmp(out->architecture, "Gemma3ForCausalLM");
    out->post_norms = gemma;
    RDI_TRY(get_int(json, "num_hidden_layers", 1, MAX_LAYERS, RDI_REQUIRED, &out->layers));
    RDI_TRY(get_int(json, "hidden_size", 1, MAX_WIDTH, RDI_REQUIRED, &out->hidden));
    RDI_TRY(get_int(json, "intermediate_size", 1, MAX_WIDTH, RDI_REQUIRED, &out->intermediate));
    RDI_TRY(get_int(json, "num_attention_heads", 1, MAX_HEADS, RDI_REQUIRED, &out->q_heads));
    RDI_TRY(get_int(json, "num_key_value_heads", 1, MAX_HEADS, out->q_heads, &out->kv_heads));
    int32_t head_dim = architectures[index].default_head_dim;
    RDI_TRY(get_int(json, "head_dim", 2, MAX_HEAD_DIM, head_dim ? head_dim : out->hidden / out->q_heads,
                    &out->head_dim));
    RDI_TRY(get_int(json, "vocab_size", 1, MAX_VOCAB, RDI_REQUIRED, &out->vocab));
    RDI_TRY(get_int(json, "max_position_embeddings", 1, INT32_MAX, RDI_REQUIRED, &out->context_tokens));
    RDI_TRY(get_float(json, "rms_norm_eps", 1e-12, 1, 1e-6, &out->norm_eps));
    RDI_TRY(rdi_json_bool(json, "tie_word_embeddings", gemma, &out->tied_head));
    RDI_TRY(refuse_true(json, "attention_bias"));
    RDI_TRY(refuse_true(json, "mlp_bias"));
    RDI_TRY(refuse_true(json, "use_sliding_window"));
    const rdi_json *act = rdi_json_get(json, "hidden_act");
    if (act && !rdi_json_is(act, "silu")) {
        bool text = act->kind == RDI_JSON_STRING;
        return rdi_fail(RD_E_UNSUPPORTED, "hidden_act=%.*s, needs silu",
                        text ? (int)rdi_min(act->text_bytes, 32) : 7, text ? act->text : "nothing");
    }
    if (gemma) RDI_TRY(read_gemma(json, out));
    RDI_TRY(read_rope(json, gemma ? 1e6 : 1e4, out));
    RDI_TRY(read_quantization(json, out));
    RDI_TRY(read_ends(json, out));
    return finish(out);
}

// ---- GGUF metadata --------------------------------------------------------------------------------------------------------
static rd_status gguf_int(const rdi_gguf *gguf, int index, const char *suffix, int64_t max, int64_t otherwise,
                          int32_t *out) {
    char key[96];
    int64_t value;
    snprintf(key, sizeof key, "%s.%s", architectures[index].gguf, suffix);
    RDI_TRY(rdi_gguf_int(gguf, key, 1, max, otherwise, &value));
    *out = (int32_t)value;
    return RD_OK;
}

static rd_status gguf_float(const rdi_gguf *gguf, int index, const char *suffix, double min, double otherwise,
                            float *out) {
    char key[96];
    double value;
    snprintf(key, sizeof key, "%s.%s", architectures[index].gguf, suffix);
    RDI_TRY(rdi_gguf_real(gguf, key, otherwise, &value));
    if (!(value >= min && value <= 1e12))
        return rdi_fail(RD_E_FORMAT, "%s: %s=%g, needs a number from %g to 1e12", gguf->what, key, value,
                        min);
    *out = (float)value;
    return RD_OK;
}

static bool gguf_is(const rdi_gguf_value *value, const char *text) {
    return value && value->type == RDI_GGUF_STRING && value->count == strlen(text) &&
           !memcmp(value->data, text, value->count);
}

static rd_status gguf_rope(const rdi_gguf *gguf, int index, rdi_model_config *out) {
    char key[96];
    int32_t rotary;
    RDI_TRY(gguf_float(gguf, index, "rope.freq_base", 1, 10000, &out->rope_theta));
    RDI_TRY(gguf_int(gguf, index, "rope.dimension_count", MAX_HEAD_DIM, out->head_dim, &rotary));
    if (rotary != out->head_dim)
        return rdi_fail(RD_E_UNSUPPORTED, "%s: rope.dimension_count=%d, needs head_dim=%d", gguf->what,
                        rotary, out->head_dim);
    if (rdi_entries_find(&gguf->tensors, "rope_freqs.weight"))
        return rdi_fail(
            RD_E_UNSUPPORTED,
            "%s: tensor rope_freqs.weight (per-frequency rope factors), needs a file without it or "
            "the Hugging Face folder of the model",
            gguf->what);
    snprintf(key, sizeof key, "%s.rope.scaling.type", architectures[index].gguf);
    const rdi_gguf_value *type = rdi_gguf_find(gguf, key);
    if (!type || gguf_is(type, "none")) return RD_OK;
    if (!gguf_is(type, "linear")) {
        bool text = type->type == RDI_GGUF_STRING && rdi_utf8_valid((const char *)type->data, type->count);
        return rdi_fail(RD_E_UNSUPPORTED, "%s: %s=%.*s, needs one of none linear", gguf->what, key,
                        text ? (int)rdi_min((int64_t)type->count, 32) : 3,
                        text ? (const char *)type->data : "???");
    }
    out->rope_scaling = RDI_ROPE_LINEAR;
    return gguf_float(gguf, index, "rope.scaling.factor", 1e-3, 1, &out->rope_factor);
}

static rd_status gguf_ends(const rdi_gguf *gguf, rdi_model_config *out) {
    int64_t id;
    RDI_TRY(rdi_gguf_int(gguf, "tokenizer.ggml.bos_token_id", 0, MAX_VOCAB, -1, &id));
    out->bos_id = (int32_t)id;
    RDI_TRY(rdi_gguf_int(gguf, "tokenizer.ggml.eos_token_id", 0, MAX_VOCAB, -1, &id));
    if (id >= 0) out->eos_ids[out->eos_count++] = (int32_t)id;
    return RD_OK;
}

rd_status rdi_config_from_gguf(const rdi_gguf *gguf, rdi_model_config *out) {
    memset(out, 0, sizeof *out);
    const rdi_gguf_value *name = rdi_gguf_find(gguf, "general.architecture");
    int index = 0, known = (int)RDI_COUNT(architectures);
    while (index < known && !(architectures[index].gguf && gguf_is(name, architectures[index].gguf))) index++;
    if (index == known) {
        bool text =
            name && name->type == RDI_GGUF_STRING && rdi_utf8_valid((const char *)name->data, name->count);
        return rdi_fail(RD_E_UNSUPPORTED, "%s: general.architecture=%.*s, needs one of llama qwen3",
                        gguf->what, text ? (int)rdi_min((int64_t)name->count, 64) : 7,
                        text ? (const char *)name->data : "nothing");
    }
    out->architecture = architectures[index].architecture;
    out->qk_norm = architectures[index].qk_norm;
    RDI_TRY(gguf_int(gguf, index, "block_count", MAX_LAYERS, RDI_REQUIRED, &out->layers));
    RDI_TRY(gguf_int(gguf, index, "embedding_length", MAX_WIDTH, RDI_REQUIRED, &out->hidden));
    RDI_TRY(gguf_int(gguf, index, "feed_forward_length", MAX_WIDTH, RDI_REQUIRED, &out->intermediate));
    RDI_TRY(gguf_int(gguf, index, "attention.head_count", MAX_HEADS, RDI_REQUIRED, &out->q_heads));
    RDI_TRY(gguf_int(gguf, index, "attention.head_count_kv", MAX_HEADS, out->q_heads, &out->kv_heads));
    RDI_TRY(gguf_int(gguf, index, "attention.key_length", MAX_HEAD_DIM, out->hidden / out->q_heads,
                     &out->head_dim));
    int32_t value_dim;
    RDI_TRY(gguf_int(gguf, index, "attention.value_length", MAX_HEAD_DIM, out->head_dim, &value_dim));
    if (value_dim != out->head_dim)
        return rdi_fail(RD_E_UNSUPPORTED, "%s: attention.value_length=%d, needs key_length=%d", gguf->what,
                        value_dim, out->head_dim);
    RDI_TRY(gguf_int(gguf, index, "context_length", INT32_MAX, RDI_REQUIRED, &out->context_tokens));
    RDI_TRY(gguf_float(gguf, index, "attention.layer_norm_rms_epsilon", 1e-12, 1e-5, &out->norm_eps));
    const rdi_entry *embed = rdi_entries_find(&gguf->tensors, "token_embd.weight");
    int64_t rows = embed && embed->rank == 2 ? rdi_min(embed->shape[0], MAX_VOCAB) : RDI_REQUIRED;
    RDI_TRY(gguf_int(gguf, index, "vocab_size", MAX_VOCAB, rows, &out->vocab));
    out->tied_head = !rdi_entries_find(&gguf->tensors, "output.weight");
    RDI_TRY(gguf_rope(gguf, index, out));
    RDI_TRY(gguf_ends(gguf, out));
    return finish(out);
}
