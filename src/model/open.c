// SPDX-License-Identifier: Apache-2.0
// rd_model: a folder or a GGUF file, mapped, checked and bound. Nothing is copied but names.
#include "model/random.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SHARDS = 1024 };

struct rd_model {
    rdi_arena arena;
    char *path;
    rdi_model_config config;
    rdi_mapping *mapping; // weight files
    int32_t mapping_count;
    rdi_bindings bindings;
    const char *format;
    char quantization[64];
    pthread_mutex_t tokenizer_lock; // the tokenizer is built when first asked for
    rd_tokenizer *tokenizer;
};

static const char *join(rdi_arena *arena, const char *folder, const char *file, size_t file_bytes) {
    size_t bytes = strlen(folder);
    char *path = rdi_arena_alloc(arena, bytes + 1 + file_bytes + 1);
    if (path) snprintf(path, bytes + file_bytes + 2, "%s/%.*s", folder, (int)file_bytes, file);
    return path;
}

// ---- safetensors -----------------------------------------------------------------------------------------------------
static rd_status add_shard(rd_model *model, const char *path, rdi_entries *entries) {
    RDI_TRY(rdi_file_map(path, &model->mapping[model->mapping_count]));
    const rdi_mapping *mapping = &model->mapping[model->mapping_count++];
    return rdi_safetensors_parse(&model->arena, path, mapping->data, mapping->bytes, entries);
}

// Shard names come from the index: they must stay inside the folder.
static rd_status check_shard_name(const char *what, const rdi_json *name) {
    bool plain = name->kind == RDI_JSON_STRING && name->text_bytes > 0 && name->text_bytes < 256 &&
                 name->text[0] != '.' && !memchr(name->text, '/', name->text_bytes) &&
                 !memchr(name->text, 0, name->text_bytes);
    if (plain) return RD_OK;
    return rdi_fail(RD_E_FORMAT, "%s: weight_map names a shard that is no plain file name of this folder",
                    what);
}

static bool same_text(const rdi_json *a, const rdi_json *b) {
    return a->text_bytes == b->text_bytes && !memcmp(a->text, b->text, a->text_bytes);
}

typedef struct shard_list {
    const rdi_json *name[MAX_SHARDS];
    rdi_entries entries[MAX_SHARDS];
    int32_t count;
} shard_list;

static rd_status list_shards(const char *what, const rdi_json *map, shard_list *shards) {
    const rdi_json *previous = NULL;
    for (const rdi_json *at = map->first; at; at = at->next) {
        RDI_TRY(check_shard_name(what, at));
        if (previous && same_text(previous, at)) continue; // neighbours mostly share a shard
        previous = at;
        int32_t i = 0;
        while (i < shards->count && !same_text(shards->name[i], at)) i++;
        if (i < shards->count) continue;
        if (i == MAX_SHARDS) return rdi_fail(RD_E_UNSUPPORTED, "%s: over %d shards", what, MAX_SHARDS);
        shards->name[shards->count++] = at;
    }
    return RD_OK;
}

static rd_status check_map(rdi_arena *arena, const char *what, const rdi_json *map,
                           const shard_list *shards) {
    for (const rdi_json *at = map->first; at; at = at->next) {
        const char *name = rdi_arena_strndup(arena, at->key, at->key_bytes);
        if (!name) return RD_E_NOMEM;
        int32_t i = 0;
        while (!same_text(shards->name[i], at)) i++;
        if (!rdi_entries_find(&shards->entries[i], name))
            return rdi_fail(RD_E_FORMAT, "%s: weight_map puts tensor %.200s into shard %.*s, which lacks it",
                            what, name, (int)at->text_bytes, at->text);
    }
    return RD_OK;
}

static rd_status open_index(rd_model *model, const char *what, const rdi_json *index, shard_list *shards,
                            rdi_entries *out) {
    const rdi_json *map = rdi_json_get(index, "weight_map");
    if (!map || map->kind != RDI_JSON_OBJECT || !map->count)
        return rdi_fail(RD_E_FORMAT, "%s: weight_map is %s, needs a non-empty object of tensor: file", what,
                        rdi_json_kind_name(map));
    RDI_TRY(list_shards(what, map, shards));
    model->mapping = rdi_arena_alloc(&model->arena, (size_t)shards->count * sizeof *model->mapping);
    if (!model->mapping) return RD_E_NOMEM;
    for (int32_t i = 0; i < shards->count; i++) {
        const char *path =
            join(&model->arena, model->path, shards->name[i]->text, shards->name[i]->text_bytes);
        if (!path) return RD_E_NOMEM;
        RDI_TRY(add_shard(model, path, &shards->entries[i]));
        out->count += shards->entries[i].count;
    }
    RDI_TRY(check_map(&model->arena, what, map, shards));
    return rdi_entries_merge(&model->arena, what, shards->entries, shards->count, out);
}

static rd_status open_weights(rd_model *model, rdi_entries *out) {
    const char *single = join(&model->arena, model->path, "model.safetensors", 17);
    const char *index_path = join(&model->arena, model->path, "model.safetensors.index.json", 28);
    if (!single || !index_path) return RD_E_NOMEM;
    if (rdi_file_exists(single)) {
        model->mapping = rdi_arena_alloc(&model->arena, sizeof *model->mapping);
        return model->mapping ? add_shard(model, single, out) : RD_E_NOMEM;
    }
    if (!rdi_file_exists(index_path))
        return rdi_fail(RD_E_IO,
                        "%s: holds neither model.safetensors nor model.safetensors.index.json, needs one",
                        model->path);
    rdi_mapping mapping = {0};
    rdi_arena scratch = {0};
    const rdi_json *index;
    shard_list *shards = rdi_calloc(1, sizeof *shards);
    rd_status status = shards ? rdi_json_read(&scratch, index_path, &mapping, &index) : RD_E_NOMEM;
    if (!status) status = open_index(model, index_path, index, shards, out);
    rdi_free(shards);
    rdi_arena_free(&scratch);
    rdi_file_unmap(&mapping);
    return status;
}

static rd_status read_config(rd_model *model, const char *config_path) {
    rdi_mapping mapping = {0};
    rdi_arena scratch = {0};
    const rdi_json *json;
    rd_status status = rdi_json_read(&scratch, config_path, &mapping, &json);
    if (!status) {
        status = rdi_config_from_json(json, &model->config);
        if (status && status != RD_E_NOMEM) rdi_fail_prefix(status, "%s", config_path);
    }
    rdi_arena_free(&scratch);
    rdi_file_unmap(&mapping);
    return status;
}

static rd_status open_folder(rd_model *model) {
    const char *config_path = join(&model->arena, model->path, "config.json", 11);
    if (!config_path) return RD_E_NOMEM;
    RDI_TRY(read_config(model, config_path));
    rdi_bind_source source = {.what = model->path, .config = &model->config};
    RDI_TRY(open_weights(model, &source.entries));
    model->format = "safetensors";
    return rdi_bind(&model->arena, &source, &model->bindings);
}

static rd_status open_random(rd_model *model, uint64_t seed) {
    RDI_TRY(read_config(model, model->path));
    model->mapping = rdi_arena_alloc(&model->arena, sizeof *model->mapping);
    if (!model->mapping) return RD_E_NOMEM;
    *model->mapping = (rdi_mapping){0};
    model->mapping_count = 1;
    rdi_bind_source source = {.what = model->path, .config = &model->config};
    RDI_TRY(rdi_random_weights(&model->arena, model->path, &model->config, seed, model->mapping,
                               &source.entries));
    model->format = "random";
    return rdi_bind(&model->arena, &source, &model->bindings);
}

static rd_status open_gguf(rd_model *model) {
    model->mapping = rdi_arena_alloc(&model->arena, sizeof *model->mapping);
    if (!model->mapping) return RD_E_NOMEM;
    RDI_TRY(rdi_file_map(model->path, model->mapping));
    model->mapping_count = 1;
    rdi_gguf gguf;
    RDI_TRY(rdi_gguf_parse(&model->arena, model->path, model->mapping->data, model->mapping->bytes, &gguf));
    RDI_TRY(rdi_config_from_gguf(&gguf, &model->config));
    rdi_bind_source source = {
        .what = model->path, .config = &model->config, .entries = gguf.tensors, .gguf = true};
    model->format = "gguf";
    return rdi_bind(&model->arena, &source, &model->bindings);
}

// ---- public ------------------------------------------------------------------------------------------------------------
static void describe_quantization(rd_model *model) {
    uint32_t plain = 1u << RDI_W_F32 | 1u << RDI_W_F16 | 1u << RDI_W_BF16;
    if (model->bindings.types & 1u << RDI_W_E4M3) {
        snprintf(model->quantization, sizeof model->quantization, "fp8_block128");
    } else if (!(model->bindings.types & ~plain)) {
        snprintf(model->quantization, sizeof model->quantization, "none");
    } else {
        size_t used = 0;
        for (unsigned type = 0; type < RDI_W_COUNT; type++)
            if (model->bindings.types & ~plain & 1u << type)
                used += (size_t)snprintf(model->quantization + used, sizeof model->quantization - used,
                                         "%s%s", used ? "+" : "", rdi_wtype_get((rdi_wtype)type)->name);
    }
}

// seed NULL: the weights of a file.
static rd_status open_model(const char *path, const uint64_t *seed, rd_model **out) {
    rd_model *model = rdi_calloc(1, sizeof *model);
    if (!model) return RD_E_NOMEM;
    pthread_mutex_init(&model->tokenizer_lock, NULL);
    rd_status status = RD_E_NOMEM;
    model->path = rdi_arena_strndup(&model->arena, path, strlen(path));
    if (model->path && seed)
        status = open_random(model, *seed);
    else if (model->path)
        status = rdi_folder_exists(path) ? open_folder(model) : open_gguf(model);
    if (status) {
        rd_model_close(model);
        return status;
    }
    describe_quantization(model);
    *out = model;
    return RD_OK;
}

static rd_status open_checked(const char *call, const char *path, const char *needs, const uint64_t *seed,
                              rd_model **out) {
    if (!out) return rdi_fail(RD_E_INVALID, "%s: out is NULL", call);
    *out = NULL;
    if (!path || !*path) return rdi_fail(RD_E_INVALID, "%s: path is empty, needs %s", call, needs);
    return open_model(path, seed, out);
}

rd_status rd_model_open(const char *path, rd_model **out) {
    return open_checked("rd_model_open", path, "a model folder or a .gguf file", NULL, out);
}

rd_status rd_model_open_random(const char *config, uint64_t seed, rd_model **out) {
    return open_checked("rd_model_open_random", config, "a file with the fields of a config.json", &seed,
                        out);
}

void rd_model_close(rd_model *model) {
    if (!model) return;
    rd_tokenizer_close(model->tokenizer);
    for (int32_t i = 0; i < model->mapping_count; i++) rdi_file_unmap(&model->mapping[i]);
    rdi_arena_free(&model->arena);
    pthread_mutex_destroy(&model->tokenizer_lock);
    rdi_free(model);
}

rd_status rd_model_get_info(const rd_model *model, rd_model_info *info) {
    if (!model || !info) return rdi_fail(RD_E_INVALID, "rd_model_get_info: model or info is NULL");
    if (info->struct_size < sizeof *info)
        return rdi_fail(RD_E_INVALID, "rd_model_get_info: struct_size=%u, needs %zu", info->struct_size,
                        sizeof *info);
    const rdi_model_config *c = &model->config;
    info->architecture = c->architecture;
    info->format = model->format;
    info->quantization = model->quantization;
    info->layers = c->layers;
    info->hidden = c->hidden;
    info->intermediate = c->intermediate;
    info->q_heads = c->q_heads;
    info->kv_heads = c->kv_heads;
    info->head_dim = c->head_dim;
    info->vocab = c->vocab;
    info->context_tokens = c->context_tokens;
    info->tied_head = c->tied_head;
    info->weight_bytes = model->bindings.weight_bytes;
    info->parameters = model->bindings.parameters;
    return RD_OK;
}

rd_status rdi_model_get_tokenizer(const rd_model *model, const rd_tokenizer **out) {
    // The lazily built tokenizer is no part of the model's visible state.
    rd_model *self = (rd_model *)(uintptr_t)model;
    pthread_mutex_lock(&self->tokenizer_lock);
    rd_status status = self->tokenizer ? RD_OK : rd_tokenizer_open(model->path, &self->tokenizer);
    *out = self->tokenizer;
    pthread_mutex_unlock(&self->tokenizer_lock);
    return status;
}

const rd_tokenizer *rd_model_tokenizer(const rd_model *model) {
    const rd_tokenizer *tokenizer = NULL;
    if (!model)
        rdi_fail(RD_E_INVALID, "rd_model_tokenizer: model is NULL");
    else
        (void)rdi_model_get_tokenizer(model, &tokenizer); // error text stays for the caller
    return tokenizer;
}

const rdi_model_config *rdi_model_get_config(const rd_model *model) {
    return &model->config;
}

const rdi_weight *rdi_model_layer_weight(const rd_model *model, int32_t layer, rdi_layer_slot slot) {
    if (layer < 0 || layer >= model->config.layers || !rdi_slot_exists(&model->config, slot)) return NULL;
    return &model->bindings.layer[layer][slot];
}

const rdi_weight *rdi_model_weight(const rd_model *model, rdi_model_slot slot) {
    return &model->bindings.model[slot];
}
