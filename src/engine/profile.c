// SPDX-License-Identifier: Apache-2.0
// Times of a pass and of its parts, by running the engine's own forward pass with parts left out.
//
// A part alone has the whole pass's calls of it, one after another over all layers' weights: no cache holds them, and calls
// overlap with their like as they would with their neighbours. What the parts' times sum to, less the whole pass's time, is what
// the order of kernels costs or wins; the pass without a part says what that part has of it.
#include "engine/engine.h"

#include "base/convert.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_REPEATS = 10, MOST_REPEATS = 1000, WARM_UPS = 2, PATTERN_BYTES = 4 << 20 };

static const char *const part_names[RDI_PARTS] = {[RDI_PART_UPLOAD] = "upload",
                                                  [RDI_PART_EMBED] = "embed",
                                                  [RDI_PART_NORM] = "norm",
                                                  [RDI_PART_QKV] = "qkv",
                                                  [RDI_PART_ROPE] = "rope",
                                                  [RDI_PART_KV_WRITE] = "kv_write",
                                                  [RDI_PART_ATTENTION] = "attention",
                                                  [RDI_PART_QUANT_ATTENTION] = "quant_attention",
                                                  [RDI_PART_O] = "o",
                                                  [RDI_PART_GATE_UP] = "gate_up",
                                                  [RDI_PART_ACT] = "act",
                                                  [RDI_PART_DOWN] = "down",
                                                  [RDI_PART_HEAD] = "head"};
_Static_assert(RDI_PARTS <= RD_MAX_PROFILE_PARTS, "a place for each part");

// ---- sessions at a length ------------------------------------------------------------------------------------------------
// The whole cache: random, finite, of the size of real keys.
static rd_status fill_cache(rd_engine *engine) {
    const int64_t bytes = engine->cache.bytes, pattern = rdi_min(bytes, PATTERN_BYTES);
    unsigned char *base = engine->cache.base;
    unsigned char *out = rdi_memory_open(&engine->memory, base, pattern);
    uint32_t state = 1;
    if (!out) return engine->memory.failure;
    for (int64_t i = 0; i < pattern; i++) {
        state = state * 1664525u + 1013904223u;
        const float value = (float)(int32_t)state * 0x1p-31f;
        const uint16_t code = rdi_bf16_from_f32(value);
        if (engine->geometry.kv_dtype == RD_DTYPE_E4M3)
            out[i] = rdi_e4m3_from_f32(8.0f * value);
        else
            memcpy(out + i / 2 * 2, &code, 2);
    }
    RDI_TRY(rdi_memory_commit(&engine->memory, base, pattern));
    for (int64_t filled = pattern; filled < bytes;) {
        const int64_t more = rdi_min(filled, bytes - filled);
        RDI_TRY(rdi_memory_move(&engine->memory, base + filled, base, more));
        filled += more;
    }
    return rdi_memory_settle(&engine->memory);
}

static rd_status stage_batch(rd_engine *engine, const rd_profile_options *o, int32_t sessions) {
    const int32_t rows = o->prefill_tokens ? o->prefill_tokens : 1;
    int32_t *ids = rdi_calloc((size_t)rows, sizeof *ids);
    if (!ids) return RD_E_NOMEM;
    rd_status status = RD_OK;
    rdi_batch_begin(engine, o->prefill_tokens ? RDI_PASS_PREFILL : RDI_PASS_STEP);
    for (int32_t i = 0; i < sessions && status == RD_OK; i++) {
        rd_session *session = &engine->session[i];
        status = rdi_session_hold(session, (int64_t)o->context_tokens + rows);
        session->tokens = o->context_tokens;
        for (int32_t t = 0; t < rows; t++)
            ids[t] = (int32_t)(((int64_t)i * 7919 + t * 37) % engine->geometry.vocab);
        if (status == RD_OK) rdi_batch_append(engine, session, ids, rows);
    }
    if (o->prefill_tokens)
        engine->batch.first_out = rows - 1; // the last chunk of a prompt
    else if (engine->geometry.on_card)
        engine->batch.keys = rdi_step_keys(engine);
    rdi_free(ids);
    return status;
}

static void drop_batch(rd_engine *engine, int32_t sessions) {
    for (int32_t i = 0; i < sessions; i++) {
        rd_session *session = &engine->session[i];
        rdi_pool_drop(&engine->pool, session->block_table, session->blocks);
        session->tokens = session->blocks = 0;
    }
}

// ---- times -----------------------------------------------------------------------------------------------------------------
static rd_status run_pass(rd_engine *engine) {
    const rdi_batch *batch = &engine->batch;
    const int32_t slice = engine->geometry.logit_rows ? engine->geometry.logit_rows : 1;
    float *logits = engine->geometry.logit_rows ? engine->scratch.logits : engine->session[0].logits;
    RDI_TRY(rdi_forward(engine));
    for (int32_t row = batch->first_out; row < batch->rows; row += slice)
        RDI_TRY(rdi_forward_head(engine, row, (int32_t)rdi_min(slice, batch->rows - row), logits));
    return RD_OK;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Between samples: a pass of a large model takes seconds, and there are hundreds of them.
static rd_status go_on(const rd_profile_options *o, int32_t done, int32_t repeats) {
    if (!o->progress || !o->progress(o->progress_state, "profile", done, repeats)) return RD_OK;
    return rdi_fail(RD_E_CANCELLED, "profile: stopped before it was done");
}

static rd_status sample(rd_engine *engine, rd_graph *graph, rd_timer *timer, double *us) {
    RDI_TRY(rd_timer_start(timer, engine->memory.stream));
    RDI_TRY(graph ? rd_graph_launch(graph, engine->memory.stream) : run_pass(engine));
    RDI_TRY(rd_timer_stop(timer, engine->memory.stream));
    return rd_timer_read(timer, us);
}

static rd_status time_pass(rd_engine *engine, const rd_profile_options *o, bool as_graph, double *best,
                           double *median) {
    const int32_t repeats = o->repeats ? o->repeats : DEFAULT_REPEATS;
    rd_graph *graph = NULL;
    rd_timer *timer = NULL;
    double *us = rdi_alloc((size_t)(repeats + WARM_UPS) * sizeof *us);
    rd_status status = us ? rd_timer_create(engine->ctx, &timer) : RD_E_NOMEM;
    if (status == RD_OK && as_graph) status = rdi_pass_record(engine, run_pass, &graph);
    for (int32_t i = 0; i < repeats + WARM_UPS && status == RD_OK; i++) {
        status = go_on(o, i, repeats + WARM_UPS);
        if (status == RD_OK) status = sample(engine, graph, timer, &us[i < WARM_UPS ? 0 : i - WARM_UPS]);
    }
    if (status == RD_OK) {
        qsort(us, (size_t)repeats, sizeof *us, by_size);
        *best = us[0];
        *median = us[repeats / 2];
    }
    rd_timer_free(timer);
    rd_graph_free(graph);
    rdi_free(us);
    return status;
}

// Which parts there are, and how often they are called; nothing runs.
static rd_status count_parts(rd_engine *engine, rdi_tally *counts) {
    *counts = (rdi_tally){0};
    engine->tally = counts;
    rd_status status = run_pass(engine);
    engine->tally = NULL;
    return status;
}

static rd_status time_some(rd_engine *engine, const rd_profile_options *o, uint32_t parts, bool as_graph,
                           double *median) {
    rdi_tally some = {.only = parts};
    double best = 0;
    engine->tally = &some;
    rd_status status = time_pass(engine, o, as_graph, &best, median);
    engine->tally = NULL;
    return status;
}

static rd_status time_part(rd_engine *engine, const rd_profile_options *o, const rdi_tally *counts, int part,
                           rd_profile *out) {
    rd_profile_part *at = &out->part[out->part_count++];
    double without = 0;
    *at = (rd_profile_part){.name = part_names[part],
                            .kernel = counts->kernel[part],
                            .calls = counts->calls[part],
                            .bytes = counts->bytes[part],
                            .flops = counts->flops[part]};
    RDI_TRY(time_some(engine, o, 1u << part, engine->geometry.on_card, &at->us));
    RDI_TRY(time_some(engine, o, ~(1u << part), out->is_graph, &without));
    at->us_in_pass = out->us_median - without;
    out->parts_us += at->us;
    out->bytes += at->bytes;
    out->flops += at->flops;
    out->kernel_calls += part == RDI_PART_UPLOAD ? 0 : at->calls;
    return RD_OK;
}

static rd_status profile_locked(rd_engine *engine, const rd_profile_options *o, int32_t sessions,
                                rd_profile *out) {
    rdi_tally counts;
    RDI_TRY(rdi_memory_settle(&engine->memory));
    RDI_TRY(fill_cache(engine));
    RDI_TRY(stage_batch(engine, o, sessions));
    RDI_TRY(run_pass(engine)); // every buffer holds a pass's values
    RDI_TRY(rdi_memory_settle(&engine->memory));
    out->is_graph = engine->geometry.on_card && !o->prefill_tokens;
    RDI_TRY(time_pass(engine, o, out->is_graph, &out->us_best, &out->us_median));
    RDI_TRY(count_parts(engine, &counts));
    for (int part = 0; part < RDI_PARTS; part++)
        if (counts.calls[part] && (part != RDI_PART_UPLOAD || engine->geometry.on_card))
            RDI_TRY(time_part(engine, o, &counts, part, out));
    return rdi_memory_settle(&engine->memory);
}

// ---- the public call -------------------------------------------------------------------------------------------------------
static rd_status check_field(const char *field, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return RD_OK;
    return rdi_fail(RD_E_INVALID, "profile: %s=%lld, needs %lld to %lld", field, (long long)value,
                    (long long)min, (long long)max);
}

static rd_status check_options(const rd_engine *engine, const rd_profile_options *o, int32_t sessions) {
    const rdi_geometry *g = &engine->geometry;
    const int64_t rows = o->prefill_tokens ? o->prefill_tokens : 1;
    const int64_t most = rdi_min(g->max_sessions, g->on_card ? g->logit_rows : g->step_rows);
    RDI_TRY(check_field("prefill_tokens", o->prefill_tokens, 0, g->chunk_rows));
    RDI_TRY(check_field("sessions", sessions, 1, o->prefill_tokens ? 1 : most));
    RDI_TRY(check_field("context_tokens", o->context_tokens, o->prefill_tokens ? 0 : 1,
                        g->context_tokens - rows));
    RDI_TRY(check_field("repeats", o->repeats, 0, MOST_REPEATS));
    for (int32_t i = 0; i < g->max_sessions; i++)
        if (engine->session[i].open)
            return rdi_fail(RD_E_STATE, "profile: a session is open, needs all of them freed");
    return RD_OK;
}

rd_status rd_engine_profile(rd_engine *engine, const rd_profile_options *options, rd_profile *out) {
    if (!engine || !options || !out)
        return rdi_fail(RD_E_INVALID, "profile: %s is NULL",
                        !engine    ? "engine"
                        : !options ? "options"
                                   : "out");
    if (options->struct_size < sizeof *options || out->struct_size < sizeof *out)
        return rdi_fail(RD_E_INVALID, "profile: struct_size=%u and %u, needs %zu and %zu",
                        options->struct_size, out->struct_size, sizeof *options, sizeof *out);
    const int32_t sessions = options->sessions ? options->sessions : 1;
    *out = (rd_profile){.struct_size = out->struct_size};
    pthread_mutex_lock(&engine->lock);
    rd_status status = check_options(engine, options, sessions);
    if (status == RD_OK) {
        status = profile_locked(engine, options, sessions, out);
        drop_batch(engine, sessions);
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}
