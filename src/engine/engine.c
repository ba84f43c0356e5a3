// SPDX-License-Identifier: Apache-2.0
// Engine creation: options are checked, plans are made, every buffer is measured, then (unless only asked) allocated, and
// the weights are loaded. rd_engine_memory runs the same code up to the allocation, so its figures are what is allocated.
#include "engine/engine.h"

#include <string.h>

// ---- geometry --------------------------------------------------------------------------------------------------------
static rd_status check_range(const char *field, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return RD_OK;
    return rdi_fail(RD_E_INVALID, "engine: %s=%lld, needs %lld to %lld", field, (long long)value,
                    (long long)min, (long long)max);
}

static rd_status check_options(const rd_engine_options *options, const rdi_model_config *config) {
    if (options->struct_size < sizeof *options)
        return rdi_fail(RD_E_INVALID, "engine: options.struct_size=%u, needs %zu", options->struct_size,
                        sizeof *options);
    RDI_TRY(check_range("context_tokens", options->context_tokens, 0, config->context_tokens));
    RDI_TRY(check_range("max_sessions", options->max_sessions, 0, 4096));
    RDI_TRY(check_range("max_batch_rows", options->max_batch_rows, 0, 65536));
    if (options->kv_dtype != RD_DTYPE_NONE && options->kv_dtype != RD_DTYPE_BF16 &&
        options->kv_dtype != RD_DTYPE_E4M3)
        return rdi_fail(RD_E_INVALID, "engine: kv_dtype=%s, needs bf16 or fp8_e4m3",
                        rd_dtype_name(options->kv_dtype));
    if (options->activation != RD_ACT_W8A16 && options->activation != RD_ACT_W8A8)
        return rdi_fail(RD_E_INVALID, "engine: activation=%d, needs RD_ACT_W8A16 or RD_ACT_W8A8",
                        (int)options->activation);
    return RD_OK;
}

static rd_status derive_geometry(const rdi_model_config *config, const rd_engine_options *options,
                                 bool on_card, rdi_geometry *g) {
    RDI_TRY(check_options(options, config));
    *g = (rdi_geometry){
        .layers = config->layers,
        .hidden = config->hidden,
        .intermediate = config->intermediate,
        .q_heads = config->q_heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .vocab = config->vocab,
        .context_tokens = options->context_tokens ? options->context_tokens : config->context_tokens,
        .max_sessions = options->max_sessions ? options->max_sessions : 1,
        .chunk_rows = options->max_batch_rows ? options->max_batch_rows : RDI_DEFAULT_BATCH_ROWS,
        .kv_dtype = options->kv_dtype ? options->kv_dtype : RD_DTYPE_BF16,
        .on_card = on_card,
        .w8a8 = options->activation == RD_ACT_W8A8};
    g->q_dim = g->q_heads * g->head_dim;
    g->kv_dim = g->kv_heads * g->head_dim;
    g->qkv_dim = g->q_dim + 2 * g->kv_dim;
    g->row_capacity = g->chunk_rows > RD_MAX_VERIFY_WIDTH ? g->chunk_rows : RD_MAX_VERIFY_WIDTH;
    g->step_rows = on_card ? (int32_t)rdi_min(g->row_capacity, RDI_CARD_STEP_ROWS) : g->row_capacity;
    g->max_blocks = (int32_t)rdi_ceil_div(g->context_tokens, RDI_BLOCK_TOKENS);
    int64_t blocks = (int64_t)g->max_blocks * g->max_sessions;
    RDI_TRY(check_range("max_sessions * context_tokens / 64", blocks, 1, INT32_MAX / 4));
    g->pool_blocks = (int32_t)blocks;
    // One session's rows go straight to their destination; several share a buffer that holds a few verify steps. On a card
    // the destination may be host memory, and a whole step is one call of the head, which reads its weight once.
    if (g->on_card)
        g->logit_rows = (int32_t)rdi_min(g->step_rows, (int64_t)RD_MAX_VERIFY_WIDTH * g->max_sessions);
    else if (g->max_sessions > 1)
        g->logit_rows =
            (int32_t)rdi_min(g->row_capacity, (int64_t)RD_MAX_VERIFY_WIDTH * rdi_min(g->max_sessions, 4));
    return RD_OK;
}

// ---- carving -----------------------------------------------------------------------------------------------------------
static int64_t kv_token_bytes(const rdi_geometry *g) { // K and V of one layer
    return 2 * (int64_t)g->kv_dim * (int64_t)rd_dtype_bytes(g->kv_dtype);
}

// K and V of a layer: [block, head, dim, 16-token group...] and [block, head, token, dim], so that one head's tokens of a
// block are one run of memory in both.
static void carve_cache(rd_engine *engine, rdi_slab *slab) {
    const rdi_geometry *g = &engine->geometry;
    const int64_t head_elems = (int64_t)RDI_BLOCK_TOKENS * g->head_dim;
    for (int32_t i = 0; i < g->layers; i++) {
        rd_tensor k = {.dtype = g->kv_dtype, .rank = 4, .device = engine->memory.device};
        const int64_t shape[] = {g->pool_blocks, RDI_BLOCK_TOKENS, g->kv_heads, g->head_dim};
        memcpy(k.shape, shape, sizeof shape);
        k.stride[0] = g->kv_heads * head_elems;
        k.stride[2] = head_elems;
        rd_tensor v = k;
        v.stride[1] = k.stride[1] = g->head_dim;
        v.stride[3] = k.stride[3] = 1;
        if (g->k_token_order) { // 16 tokens side by side for each dim, groups of 16 * head_dim
            k.stride[1] = 1;
            k.stride[3] = 16;
        }
        const int64_t bytes = (int64_t)g->pool_blocks * RDI_BLOCK_TOKENS * kv_token_bytes(g) / 2;
        k.data = rdi_slab_take(slab, bytes);
        v.data = rdi_slab_take(slab, bytes);
        engine->layer[i].k_cache = k;
        engine->layer[i].v_cache = v;
    }
}

static void carve_scratch(rd_engine *engine, rdi_slab *slab) {
    const rdi_geometry *g = &engine->geometry;
    rdi_scratch *s = &engine->scratch;
    const int64_t rows = g->row_capacity, word = (int64_t)sizeof(float);
    const int64_t narrow = rdi_max(g->q_dim, g->intermediate), widest = rdi_max(narrow, g->hidden);
    const int64_t act = (int64_t)rd_dtype_bytes(g->act_dtype);
    s->residual = rdi_slab_take(slab, rows * g->hidden * word);
    s->normed = rdi_slab_take(slab, rows * g->hidden * (int64_t)rd_dtype_bytes(g->normed_dtype));
    s->delta = rdi_slab_take(slab, rows * g->hidden * word);
    s->wide = rdi_slab_take(slab, rows * rdi_max(g->qkv_dim, 2 * (int64_t)g->intermediate) * act);
    s->narrow = rdi_slab_take(slab, rows * narrow * act);
    s->logits = g->logit_rows ? rdi_slab_take(slab, g->logit_rows * (int64_t)g->vocab * word) : NULL;
    s->codes = g->w8a8 ? rdi_slab_take(slab, rows * widest) : NULL;
    s->code_scales = g->w8a8 ? rdi_slab_take(slab, rows * rdi_ceil_div(widest, 128) * word) : NULL;
    const rdi_model_config *config = rdi_model_get_config(engine->model);
    s->branch = config->post_norms ? rdi_slab_take(slab, rows * g->hidden * word) : NULL;
    s->inv_freq = rdi_slab_take(slab, g->head_dim / 2 * word);
    s->local_inv_freq = config->window ? rdi_slab_take(slab, g->head_dim / 2 * word) : NULL;
    s->ids = rdi_slab_take(slab, rows * word);
    s->positions = rdi_slab_take(slab, rows * word);
    s->slots = rdi_slab_take(slab, rows * (int64_t)sizeof(int64_t));
    s->kv_lens = rdi_slab_take(slab, g->max_sessions * word);
    s->q_starts = rdi_slab_take(slab, (g->max_sessions + 1) * word);
    s->tail_starts = rdi_slab_take(slab, (g->max_sessions + 1) * word);
    s->sampling = rdi_slab_take(slab, (int64_t)sizeof *s->sampling);
    s->sampled = rdi_slab_take(slab, word);
    s->block_table = rdi_slab_take(slab, (int64_t)g->pool_blocks * word);
}

// logits: where the sessions' logits lie, host memory or a card's.
static void carve_host(rd_engine *engine, rdi_slab *slab, rdi_slab *logits) {
    const rdi_geometry *g = &engine->geometry;
    rdi_batch *b = &engine->batch;
    const int64_t rows = g->row_capacity, word = (int64_t)sizeof(int32_t);
    b->ids = rdi_slab_take(slab, rows * word);
    b->positions = rdi_slab_take(slab, rows * word);
    b->slots = rdi_slab_take(slab, rows * (int64_t)sizeof(int64_t));
    b->kv_lens = rdi_slab_take(slab, g->max_sessions * word);
    b->q_starts = rdi_slab_take(slab, (g->max_sessions + 1) * word);
    b->tail_starts = rdi_slab_take(slab, (g->max_sessions + 1) * word);
    b->sampling = rdi_slab_take(slab, (int64_t)sizeof *b->sampling);
    b->sampled = rdi_slab_take(slab, word);
    b->block_table = rdi_slab_take(slab, (int64_t)g->pool_blocks * word);
    int32_t *pool = rdi_slab_take(slab, (int64_t)g->pool_blocks * word);
    if (slab->base) {
        memset(b->block_table, 0, (size_t)(g->pool_blocks * word)); // entries past a table's end are block 0
        rdi_pool_init(&engine->pool, g->pool_blocks, pool);
    }
    for (int32_t i = 0; i < g->max_sessions; i++) {
        rd_session session = {.engine = engine};
        session.ids = rdi_slab_take(slab, g->context_tokens * word);
        session.block_table = rdi_slab_take(slab, g->max_blocks * word);
        session.logits = rdi_slab_take(logits, g->vocab * word);
        if (g->on_card) session.host_logits = rdi_slab_take(slab, g->vocab * word);
        if (slab->base) engine->session[i] = session;
    }
}

static rd_status carve(rd_engine *engine) {
    RDI_TRY(rdi_engine_bind_weights(engine, &engine->weights));
    carve_cache(engine, &engine->cache);
    carve_scratch(engine, &engine->scratch_slab);
    carve_host(engine, &engine->host_slab,
               engine->geometry.on_card ? &engine->scratch_slab : &engine->host_slab);
    return RD_OK;
}

// ---- making ------------------------------------------------------------------------------------------------------------
static rd_status fill_inv_freq(rd_engine *engine, bool local, float *place) {
    static const char *const types[] = {
        [RDI_ROPE_NONE] = "none", [RDI_ROPE_LINEAR] = "linear", [RDI_ROPE_LLAMA3] = "llama3"};
    const rdi_model_config *config = rdi_model_get_config(engine->model);
    const rd_rope_scaling scaling = {.type = types[local ? RDI_ROPE_NONE : config->rope_scaling],
                                     .theta = local ? config->local_rope_theta : config->rope_theta,
                                     .factor = config->rope_factor,
                                     .low_freq_factor = config->rope_low_factor,
                                     .high_freq_factor = config->rope_high_factor,
                                     .original_context = config->rope_original_context};
    const int64_t bytes = engine->geometry.head_dim / 2 * (int64_t)sizeof(float);
    float *inv_freq = rdi_memory_open(&engine->memory, place, bytes);
    if (!inv_freq) return engine->memory.failure;
    RDI_TRY(rd_rope_frequencies(&scaling, engine->geometry.head_dim, inv_freq));
    return rdi_memory_commit(&engine->memory, place, bytes);
}

static int64_t handle_bytes(const rdi_geometry *g) {
    return (int64_t)sizeof(rd_engine) + g->layers * (int64_t)sizeof(rdi_layer) +
           g->max_sessions * (int64_t)sizeof(rd_session);
}

// Everything up to the first large allocation.
static rd_status measure(rd_ctx *ctx, const rd_model *model, const rd_engine_options *options,
                         rd_engine *engine) {
    const rd_engine_options defaults = {.struct_size = sizeof defaults};
    if (!ctx || !model) return rdi_fail(RD_E_INVALID, "engine: %s is NULL", ctx ? "model" : "ctx");
    engine->ctx = ctx;
    engine->model = model;
    RDI_TRY(rdi_memory_init(&engine->memory, ctx));
    engine->host_memory = rdi_memory_of_host(&engine->memory);
    RDI_TRY(derive_geometry(rdi_model_get_config(model), options ? options : &defaults,
                            engine->memory.device != 0, &engine->geometry));
    rdi_engine_pick_types(engine);
    engine->layer = rdi_calloc((size_t)engine->geometry.layers, sizeof *engine->layer);
    engine->session = rdi_calloc((size_t)engine->geometry.max_sessions, sizeof *engine->session);
    if (!engine->layer || !engine->session) return RD_E_NOMEM;
    RDI_TRY(carve(engine));
    RDI_TRY(rdi_engine_make_plans(engine));
    int64_t workspace_bytes;
    RDI_TRY(rdi_engine_measure_workspace(engine, &workspace_bytes));
    rdi_slab_take(&engine->workspace, workspace_bytes);
    return RD_OK;
}

static void fill_report(const rd_engine *engine, const rd_model_info *info, rd_memory_report *report) {
    const rdi_geometry *g = &engine->geometry;
    report->weights_mapped = info->weight_bytes;
    report->weights_packed = engine->weights.used_bytes;
    report->kv_cache = engine->cache.used_bytes;
    report->kv_per_token = g->layers * kv_token_bytes(g);
    report->workspace = engine->workspace.used_bytes;
    report->activations = engine->scratch_slab.used_bytes + engine->host_slab.used_bytes + handle_bytes(g);
    report->total_allocated =
        report->weights_packed + report->kv_cache + report->workspace + report->activations;
}

static rd_engine *new_engine(void) {
    rd_engine *engine = rdi_calloc(1, sizeof *engine);
    if (engine) pthread_mutex_init(&engine->lock, NULL);
    return engine;
}

rd_status rd_engine_memory(rd_ctx *ctx, const rd_model *model, const rd_engine_options *options,
                           rd_memory_report *report) {
    if (!report || report->struct_size < sizeof *report)
        return rdi_fail(RD_E_INVALID, "engine: report.struct_size=%u, needs %zu",
                        report ? report->struct_size : 0, sizeof *report);
    rd_engine *engine = new_engine();
    if (!engine) return RD_E_NOMEM;
    rd_model_info info = {.struct_size = sizeof info};
    rd_status status = measure(ctx, model, options, engine);
    if (status == RD_OK) status = rd_model_get_info(model, &info);
    if (status == RD_OK) fill_report(engine, &info, report);
    rd_engine_free(engine);
    return status;
}

// Blocks of a card's cache that no token has been written to: defined memory, for checkers of uninitialised reads.
static rd_status clear_cache(rd_engine *engine) {
    return rd_memory_set(engine->ctx, engine->cache.base, 0, (size_t)engine->cache.bytes,
                         engine->memory.stream);
}

// All of it at once, before the first allocation: what cannot fit is refused with the sum, and before weights are read for minutes.
// Another program may still take a card's memory in between: then the allocation says so.
static rd_status check_room(const rd_engine *engine) {
    const rdi_geometry *g = &engine->geometry;
    const int64_t most = INT64_MAX / 4, // slabs stop counting at twice that
        weights = rdi_min(engine->weights.used_bytes, most), cache = rdi_min(engine->cache.used_bytes, most),
                  rest = rdi_min(engine->scratch_slab.used_bytes, most / 2) +
                         rdi_min(engine->workspace.used_bytes, most / 2);
    rd_device_info info = {.struct_size = sizeof info};
    RDI_TRY(rd_device_get_info(rd_ctx_device(engine->ctx), &info));
    size_t room = (size_t)info.memory_bytes, total = 0; // of a host: all it has
    if (g->on_card) RDI_TRY(rd_memory_info(engine->ctx, &room, &total));
    const int64_t needed = weights + cache + rest;
    if ((size_t)needed <= room || (!g->on_card && !room)) return RD_OK;
    return rdi_fail(
        RD_E_NOMEM,
        "engine: context_tokens=%d, max_sessions=%d: needs %lld bytes (weights %lld, KV cache %lld, "
        "activations and workspace %lld), %s has %zu%s",
        g->context_tokens, g->max_sessions, (long long)needed, (long long)weights, (long long)cache,
        (long long)rest, info.name, room, g->on_card ? " free" : "");
}

static rd_status make(rd_engine *engine, const rd_engine_options *options) {
    RDI_TRY(check_room(engine));
    rdi_slab *const slabs[] = {&engine->weights, &engine->cache, &engine->scratch_slab, &engine->workspace};
    for (size_t i = 0; i < RDI_COUNT(slabs); i++) RDI_TRY(rdi_slab_alloc(slabs[i], &engine->memory));
    RDI_TRY(rdi_slab_alloc(&engine->host_slab, &engine->host_memory));
    RDI_TRY(carve(engine));
    RDI_TRY(fill_inv_freq(engine, false, engine->scratch.inv_freq));
    if (engine->scratch.local_inv_freq) RDI_TRY(fill_inv_freq(engine, true, engine->scratch.local_inv_freq));
    if (engine->geometry.on_card) RDI_TRY(clear_cache(engine));
    return rdi_engine_load_weights(engine, options ? options->progress : NULL,
                                   options ? options->progress_state : NULL);
}

rd_status rd_engine_create(rd_ctx *ctx, const rd_model *model, const rd_engine_options *options,
                           rd_engine **out) {
    if (!out) return rdi_fail(RD_E_INVALID, "engine: out is NULL");
    *out = NULL;
    rd_engine *engine = new_engine();
    if (!engine) return RD_E_NOMEM;
    rd_status status = measure(ctx, model, options, engine);
    if (status == RD_OK) status = make(engine, options);
    if (status != RD_OK) {
        rd_engine_free(engine);
        return status;
    }
    *out = engine;
    return RD_OK;
}

void rd_engine_free(rd_engine *engine) {
    if (!engine) return;
    rdi_slab *const slabs[] = {&engine->weights, &engine->cache, &engine->scratch_slab, &engine->workspace};
    (void)rdi_memory_settle(&engine->memory); // a card may still be replaying a step
    rdi_step_graphs_free(engine);
    for (size_t i = 0; i < RDI_COUNT(slabs); i++) rdi_slab_free(slabs[i], &engine->memory);
    rdi_slab_free(&engine->host_slab, &engine->host_memory);
    rdi_memory_close(&engine->memory);
    rdi_engine_free_plans(engine);
    rdi_free(engine->layer);
    rdi_free(engine->session);
    pthread_mutex_destroy(&engine->lock);
    rdi_free(engine);
}
