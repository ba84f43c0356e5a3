// SPDX-License-Identifier: Apache-2.0
// Binds a model's weights: every matrix is packed once into panels of 16 rows, matrices that share their input side by side.
//
// Block-FP8 matrices stay e4m3 with f32 scales. Every other type (bf16, f16, f32, and GGUF's block types) becomes bf16: a
// rounding for those with more bits, none for bf16. Norms and scales are copied as f32; an embedding of a plain float type
// stays in the mapped file. A value that is not finite is refused by its tensor's name.
#include "engine/engine.h"

#include "base/convert.h"
#include "ops/shared.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SLICE_ROWS = 2048,
    STRIP_ROWS = 16
}; // dequantised at a time: 2048 x 576 x 2 bytes = 2.25 MiB, an L2's worth a thread

// ---- shapes --------------------------------------------------------------------------------------------------------
bool rdi_weight_is_fp8(const rdi_weight *weight) {
    return weight->type == RDI_W_E4M3 && weight->scale;
}

static bool can_fuse(const rdi_weight *const *weight, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        if (rdi_weight_is_fp8(weight[i]) != rdi_weight_is_fp8(weight[0])) return false;
        if (i + 1 < count && weight[i]->rows % (rdi_weight_is_fp8(weight[0]) ? 128 : STRIP_ROWS))
            return false;
    }
    return true;
}

static rd_status bind_linear(rd_engine *engine, rdi_slab *slab, rdi_linear_question *question,
                             rdi_linear *linear) {
    const rdi_linear_plan *plan;
    const bool fp8 = question->fp8;
    question->n = linear->n;
    question->k = linear->k;
    RDI_TRY(rdi_engine_linear_plan(engine, question, &plan));
    memcpy(linear->plan, plan->plan, sizeof linear->plan);
    linear->a_dtype = plan->a_dtype;
    linear->c_dtype = plan->c_dtype;
    linear->layout = plan->layout;
    linear->left_alone = plan->left_alone;
    linear->w = plan->w;
    linear->scale = plan->scale;
    linear->w.data =
        rdi_slab_take(slab, plan->w.shape[0] * plan->w.stride[0] * (int64_t)rd_dtype_bytes(plan->w.dtype));
    if (fp8)
        linear->scale.data =
            rdi_slab_take(slab, plan->scale.shape[0] * plan->scale.shape[1] * (int64_t)sizeof(float));
    return RD_OK;
}

// question: types of input and output, whether the input may be codes, most rows of a call.
static rd_status bind_projection(rd_engine *engine, rdi_slab *slab, const rdi_weight *const *weight,
                                 int32_t count, rdi_linear_question question, rdi_projection *out) {
    *out = (rdi_projection){.k = weight[0]->cols, .fp8_input = question.fp8_input && engine->geometry.w8a8};
    for (int32_t i = 0; i < count; i++) out->fp8_input = out->fp8_input && rdi_weight_is_fp8(weight[i]);
    const bool fuse = can_fuse(weight, count);
    for (int32_t i = 0; i < count; i++) {
        if (i == 0 || !fuse) out->part[out->count++] = (rdi_linear){.k = out->k, .column = out->n};
        out->part[out->count - 1].n += weight[i]->rows;
        out->n += weight[i]->rows;
    }
    question.fp8_input = out->fp8_input;
    for (int32_t i = 0; i < (fuse ? 1 : count); i++) {
        question.fp8 = rdi_weight_is_fp8(weight[i]);
        RDI_TRY(bind_linear(engine, slab, &question, &out->part[i]));
    }
    return RD_OK;
}

static rd_tensor take_f32(const rd_engine *engine, rdi_slab *slab, int64_t count) {
    void *place = rdi_slab_take(slab, count * (int64_t)sizeof(float));
    return rdi_here(engine, rd_tensor_1d(place, RD_DTYPE_F32, count));
}

typedef struct layer_weights {
    const rdi_weight *qkv[3], *o[1], *gate_up[2], *down[1];
} layer_weights;

static layer_weights weights_of(const rd_model *model, int32_t layer) {
#define SLOT(slot_) rdi_model_layer_weight(model, layer, slot_)
    return (layer_weights){{SLOT(RDI_ATTN_Q), SLOT(RDI_ATTN_K), SLOT(RDI_ATTN_V)},
                           {SLOT(RDI_ATTN_O)},
                           {SLOT(RDI_MLP_GATE), SLOT(RDI_MLP_UP)},
                           {SLOT(RDI_MLP_DOWN)}};
#undef SLOT
}

static rd_status bind_layer(rd_engine *engine, rdi_slab *slab, int32_t index) {
    const rdi_geometry *g = &engine->geometry;
    rdi_layer *layer = &engine->layer[index];
    const layer_weights w = weights_of(engine->model, index);
    layer->attn_norm = take_f32(engine, slab, g->hidden);
    layer->mlp_norm = take_f32(engine, slab, g->hidden);
    const rdi_model_config *config = rdi_model_get_config(engine->model);
    layer->local = rdi_layer_is_local(config, index);
    if (config->post_norms) {
        layer->attn_post_norm = take_f32(engine, slab, g->hidden);
        layer->mlp_post_norm = take_f32(engine, slab, g->hidden);
    }
    if (config->qk_norm) {
        layer->q_norm = take_f32(engine, slab, g->head_dim);
        layer->k_norm = take_f32(engine, slab, g->head_dim);
    }
    if (g->kv_dtype == RD_DTYPE_E4M3) {
        layer->k_scale = take_f32(engine, slab, g->kv_heads);
        layer->v_scale = take_f32(engine, slab, g->kv_heads);
    }
    const rdi_linear_question inward = {
        .fp8_input = true, .a_dtype = g->normed_dtype, .c_dtype = g->act_dtype, .rows = g->row_capacity};
    const rdi_linear_question outward = {
        .fp8_input = true, .a_dtype = g->act_dtype, .c_dtype = RD_DTYPE_F32, .rows = g->row_capacity};
    RDI_TRY(bind_projection(engine, slab, w.qkv, 3, inward, &layer->qkv));
    RDI_TRY(bind_projection(engine, slab, w.o, 1, outward, &layer->o));
    RDI_TRY(bind_projection(engine, slab, w.gate_up, 2, inward, &layer->gate_up));
    return bind_projection(engine, slab, w.down, 1, outward, &layer->down);
}

rd_status rdi_engine_bind_weights(rd_engine *engine, rdi_slab *slab) {
    const rdi_geometry *g = &engine->geometry;
    const rdi_weight *embed = rdi_model_weight(engine->model, RDI_EMBED);
    // A plain float table stays in the mapped file on the CPU; a card gets a copy.
    engine->embed = rdi_weight_tensor(embed);
    const bool plain = engine->embed.data && engine->embed.dtype != RD_DTYPE_E4M3;
    if (!plain || g->on_card) {
        rd_dtype dtype = plain ? engine->embed.dtype : RD_DTYPE_BF16;
        void *place = rdi_slab_take(slab, embed->rows * embed->cols * (int64_t)rd_dtype_bytes(dtype));
        engine->embed = rdi_here(engine, rd_tensor_2d(place, dtype, embed->rows, embed->cols));
    }
    engine->final_norm = take_f32(engine, slab, g->hidden);
    for (int32_t i = 0; i < g->layers; i++) RDI_TRY(bind_layer(engine, slab, i));
    // The head stays W8A16 under W8A8 too: its input would be rounded right before the logits, and at one row nothing is won.
    const rdi_weight *head[] = {rdi_model_weight(engine->model, RDI_HEAD)};
    const rdi_linear_question question = {.one_class = true,
                                          .a_dtype = g->normed_dtype,
                                          .c_dtype = RD_DTYPE_F32,
                                          .rows = g->on_card ? g->logit_rows : g->row_capacity};
    return bind_projection(engine, slab, head, 1, question, &engine->head);
}

// ---- loading ---------------------------------------------------------------------------------------------------------
typedef struct loader {
    rd_engine *engine;
    rdi_par *par;
    uint16_t *slice; // [SLICE_ROWS, widest row] bf16
    float *strips;   // per thread [STRIP_ROWS, widest row]
    int64_t widest;
    rd_progress_fn progress;
    void *progress_state;
    int64_t done_bytes, total_bytes;
} loader;

typedef struct strip_job { // rows [first, first + count) of a weight: to bf16, or scanned where they lie
    const rdi_weight *weight;
    int64_t first, count, widest;
    uint16_t *out; // NULL: scan codes
    float *strips;
    rdi_tiles tiles;
    _Atomic int64_t bad_row; // -1: none
} strip_job;

static bool finite_codes(const uint8_t *code, int64_t count) {
    unsigned bad = 0;
    for (int64_t i = 0; i < count; i++) bad |= (code[i] & 0x7f) == 0x7f;
    return !bad;
}

static bool finite_bf16(const uint16_t *code, int64_t count) {
    unsigned bad = 0;
    for (int64_t i = 0; i < count; i++) bad |= (code[i] & 0x7f80) == 0x7f80;
    return !bad;
}

static bool finite_f32(const float *value, int64_t count) {
    bool finite = true;
    for (int64_t i = 0; i < count; i++) finite &= isfinite(value[i]) != 0;
    return finite;
}

static bool convert_row(const strip_job *job, int64_t row, float *strip) {
    const rdi_weight *w = job->weight;
    if (!job->out && (w->type == RDI_W_BF16 || w->type == RDI_W_E4M3)) {
        const void *stored = (const uint8_t *)w->data + rdi_weight_stored_row(w, row) * w->row_bytes;
        return w->type == RDI_W_BF16 ? finite_bf16(stored, w->cols) : finite_codes(stored, w->cols);
    }
    rdi_weight_rows_f32(w, row, 1, strip);
    if (!job->out) return finite_f32(strip, w->cols);
    uint16_t *out = job->out + (row - job->first) * w->cols;
    for (int64_t i = 0; i < w->cols; i++) out[i] = rdi_bf16_from_f32(strip[i]);
    return finite_bf16(out, w->cols); // a finite f32 that rounds to Inf is refused too
}

static void strip_body(void *arg, int32_t worker, int32_t workers) {
    (void)workers;
    strip_job *job = arg;
    float *strip = job->strips + worker * job->widest;
    for (int64_t row, end; rdi_tiles_next(&job->tiles, &row, &end);)
        for (; row < end; row++)
            if (!convert_row(job, job->first + row, strip)) atomic_store(&job->bad_row, job->first + row);
}

static rd_status run_strips(loader *load, const rdi_weight *weight, int64_t first, int64_t count,
                            uint16_t *out) {
    strip_job job = {.weight = weight,
                     .first = first,
                     .count = count,
                     .widest = load->widest,
                     .out = out,
                     .strips = load->strips};
    rdi_tiles_init(&job.tiles, count, STRIP_ROWS);
    atomic_init(&job.bad_row, -1);
    rdi_par_run(load->par, INT32_MAX, strip_body, &job);
    int64_t bad = atomic_load(&job.bad_row);
    if (bad < 0) return RD_OK;
    return rdi_fail(RD_E_FORMAT, "%s: row %lld holds NaN or Inf, needs finite weights", weight->name,
                    (long long)bad);
}

// Pages of the file that have been copied are not needed again; they come back from the file if somebody reads them.
static void release_mapped(const rdi_weight *weight) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)weight->data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)weight->data + (uintptr_t)(weight->rows * weight->row_bytes)) / page * page;
    if (end > begin) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

// Rows [row, row + rows) of a packed weight: a run of memory in every layout, row a multiple of 16.
static rd_tensor rows_from(const rdi_linear *linear, int64_t row, int64_t rows) {
    const bool plain = !strcmp(linear->layout, "row");
    const int64_t group = plain ? 1 : STRIP_ROWS;
    rd_tensor part = linear->w;
    part.data =
        (unsigned char *)part.data + row / group * part.stride[0] * (int64_t)rd_dtype_bytes(part.dtype);
    part.shape[0] = rdi_ceil_div(rows, group);
    return part;
}

static rd_status pack_rows(loader *load, const void *data, rd_dtype dtype, const rdi_weight *weight,
                           int64_t rows, const rdi_linear *linear, int64_t at_row) {
    rdi_memory *memory = &load->engine->memory;
    rd_tensor row_major = rd_tensor_2d((void *)(uintptr_t)data, dtype, rows, weight->cols);
    rd_tensor part = rows_from(linear, at_row, rows);
    void *place = part.data;
    const int64_t bytes = part.shape[0] * part.stride[0] * (int64_t)rd_dtype_bytes(dtype);
    part.data = rdi_memory_open(memory, place, bytes);
    part.device = 0;
    if (!part.data) return memory->failure;
    if (strcmp(linear->layout, "row") != 0)
        RDI_TRY(rd_weight_pack(load->engine->ctx, &row_major, linear->layout, &part));
    else
        memcpy(part.data, data, (size_t)bytes);
    return rdi_memory_commit(memory, place, bytes);
}

static rd_status load_matrix(loader *load, const rdi_weight *weight, const rdi_linear *linear,
                             int64_t at_row) {
    rd_tensor direct = rdi_weight_tensor(weight);
    const bool as_stored = direct.data && direct.dtype == linear->w.dtype;
    if (as_stored) RDI_TRY(run_strips(load, weight, 0, weight->rows, NULL));
    // A card's rows pass through a stage of one slice.
    const int64_t slice = as_stored && !load->engine->geometry.on_card ? weight->rows : SLICE_ROWS;
    for (int64_t row = 0; row < weight->rows; row += slice) {
        int64_t count = rdi_min(slice, weight->rows - row);
        const void *data = load->slice;
        if (as_stored)
            data = (const unsigned char *)direct.data +
                   row * direct.stride[0] * (int64_t)rd_dtype_bytes(direct.dtype);
        else
            RDI_TRY(run_strips(load, weight, row, count, load->slice));
        RDI_TRY(pack_rows(load, data, linear->w.dtype, weight, count, linear, at_row + row));
    }
    return RD_OK;
}

static rd_status load_scales(loader *load, const rdi_weight *weight, const rd_tensor *scale, int64_t at_row) {
    float *place = (float *)scale->data + at_row / 128 * scale->stride[0];
    const int64_t count = rdi_ceil_div(weight->rows, 128) * scale->shape[1],
                  bytes = count * (int64_t)sizeof(float);
    float *out = rdi_memory_open(&load->engine->memory, place, bytes);
    if (!out) return load->engine->memory.failure;
    rdi_weight_scales_f32(weight, out);
    for (int64_t i = 0; i < count; i++)
        if (!(out[i] >= 0.0f) || isinf(out[i]))
            return rdi_fail(RD_E_FORMAT, "%s: scale %lld is %g, needs a finite number >= 0", weight->name,
                            (long long)i, (double)out[i]);
    return rdi_memory_commit(&load->engine->memory, place, bytes);
}

static rd_status load_projection(loader *load, const rdi_weight *const *weight, int32_t count,
                                 bool keep_mapped, const rdi_projection *projection) {
    int64_t at_row = 0;
    for (int32_t i = 0; i < count; i++) {
        const bool fused = projection->count == 1;
        const rdi_linear *linear = &projection->part[fused ? 0 : i];
        if (!fused) at_row = 0;
        RDI_TRY(load_matrix(load, weight[i], linear, at_row));
        if (linear->scale.data) RDI_TRY(load_scales(load, weight[i], &linear->scale, at_row));
        if (*linear->left_alone)
            rdi_log_write(rdi_ctx_log(load->engine->ctx), RD_LOG_INFO, "%s stays row-major: %s",
                          weight[i]->name, linear->left_alone);
        if (!keep_mapped) release_mapped(weight[i]);
        at_row += weight[i]->rows;
        load->done_bytes += weight[i]->rows * weight[i]->row_bytes;
    }
    if (load->progress &&
        load->progress(load->progress_state, "weights", load->done_bytes, load->total_bytes))
        return rdi_fail(RD_E_CANCELLED, "engine: stopped while loading weights");
    return RD_OK;
}

static rd_status load_vector(loader *load, const rdi_weight *weight, const rd_tensor *out) {
    const int64_t bytes = weight->cols * (int64_t)sizeof(float);
    float *value = rdi_memory_open(&load->engine->memory, out->data, bytes);
    if (!value) return load->engine->memory.failure;
    rdi_weight_rows_f32(weight, 0, 1, value);
    for (int64_t i = 0; i < weight->cols; i++)
        if (!isfinite(value[i]))
            return rdi_fail(RD_E_FORMAT, "%s: element %lld is %g, needs finite weights", weight->name,
                            (long long)i, (double)value[i]);
    return rdi_memory_commit(&load->engine->memory, out->data, bytes);
}

static rd_status load_kv_scales(loader *load, int32_t index) {
    rd_engine *engine = load->engine;
    const rdi_layer *layer = &engine->layer[index];
    const int32_t heads = engine->geometry.kv_heads;
    float *scales = rdi_alloc(2 * (size_t)heads * sizeof *scales);
    if (!scales) return RD_E_NOMEM;
    rd_status status = rdi_engine_kv_scales(engine, index, scales, scales + heads);
    float *const place[] = {layer->k_scale.data, layer->v_scale.data};
    for (int i = 0; i < 2 && status == RD_OK; i++) {
        const int64_t bytes = heads * (int64_t)sizeof *scales;
        float *out = rdi_memory_open(&engine->memory, place[i], bytes);
        if (out) memcpy(out, scales + i * heads, (size_t)bytes);
        status = out ? rdi_memory_commit(&engine->memory, place[i], bytes) : engine->memory.failure;
    }
    rdi_free(scales);
    return status;
}

static rd_status load_layer(loader *load, int32_t index) {
    rd_engine *engine = load->engine;
    const rdi_layer *layer = &engine->layer[index];
    const layer_weights w = weights_of(engine->model, index);
    const struct {
        rdi_layer_slot slot;
        const rd_tensor *to;
    } norms[] = {{RDI_ATTN_NORM, &layer->attn_norm},
                 {RDI_MLP_NORM, &layer->mlp_norm},
                 {RDI_ATTN_Q_NORM, &layer->q_norm},
                 {RDI_ATTN_K_NORM, &layer->k_norm},
                 {RDI_ATTN_POST_NORM, &layer->attn_post_norm},
                 {RDI_MLP_POST_NORM, &layer->mlp_post_norm}};
    for (size_t i = 0; i < RDI_COUNT(norms); i++)
        if (norms[i].to->data)
            RDI_TRY(
                load_vector(load, rdi_model_layer_weight(engine->model, index, norms[i].slot), norms[i].to));
    if (layer->k_scale.data) RDI_TRY(load_kv_scales(load, index));
    RDI_TRY(load_projection(load, w.qkv, 3, false, &layer->qkv));
    RDI_TRY(load_projection(load, w.o, 1, false, &layer->o));
    RDI_TRY(load_projection(load, w.gate_up, 2, false, &layer->gate_up));
    return load_projection(load, w.down, 1, false, &layer->down);
}

static rd_status load_embed(loader *load, const rdi_weight *weight, bool mapped) {
    rd_engine *engine = load->engine;
    if (mapped) return run_strips(load, weight, 0, weight->rows, NULL);
    const rd_tensor stored = rdi_weight_tensor(weight), *table = &engine->embed;
    const bool as_stored = stored.data && stored.dtype == table->dtype;
    if (as_stored) RDI_TRY(run_strips(load, weight, 0, weight->rows, NULL));
    const int64_t row_bytes = weight->cols * (int64_t)rd_dtype_bytes(table->dtype);
    for (int64_t row = 0; row < weight->rows; row += SLICE_ROWS) {
        const int64_t count = rdi_min(SLICE_ROWS, weight->rows - row);
        void *place = (unsigned char *)table->data + row * row_bytes;
        void *out = rdi_memory_open(&engine->memory, place, count * row_bytes);
        if (!out) return engine->memory.failure;
        if (as_stored)
            memcpy(out, (const unsigned char *)stored.data + row * row_bytes, (size_t)(count * row_bytes));
        else
            RDI_TRY(run_strips(load, weight, row, count, out));
        RDI_TRY(rdi_memory_commit(&engine->memory, place, count * row_bytes));
    }
    return RD_OK;
}

static rd_status load_all(loader *load) {
    rd_engine *engine = load->engine;
    const rdi_weight *embed = rdi_model_weight(engine->model, RDI_EMBED);
    const rdi_weight *head[] = {rdi_model_weight(engine->model, RDI_HEAD)};
    const bool mapped_embed = rdi_weight_tensor(embed).data == engine->embed.data;
    const bool tied = head[0]->data == embed->data; // then the head's packing scans the table
    if (!mapped_embed || !tied) RDI_TRY(load_embed(load, embed, mapped_embed));
    RDI_TRY(load_vector(load, rdi_model_weight(engine->model, RDI_FINAL_NORM), &engine->final_norm));
    for (int32_t i = 0; i < engine->geometry.layers; i++) RDI_TRY(load_layer(load, i));
    return load_projection(load, head, 1, mapped_embed && tied, &engine->head);
}

static int64_t widest_row(const rd_engine *engine) {
    return rdi_max(engine->geometry.hidden, rdi_max(engine->geometry.q_dim, engine->geometry.intermediate));
}

rd_status rdi_engine_load_weights(rd_engine *engine, rd_progress_fn progress, void *progress_state) {
    rd_model_info info = {.struct_size = sizeof info};
    RDI_TRY(rd_model_get_info(engine->model, &info));
    const int32_t threads = rd_ctx_threads(engine->ctx);
    loader load = {.engine = engine,
                   .par = rdi_ctx_par(engine->ctx),
                   .widest = widest_row(engine),
                   .progress = progress,
                   .progress_state = progress_state,
                   .total_bytes = info.weight_bytes};
    load.slice = rdi_alloc((size_t)(SLICE_ROWS * load.widest) * sizeof *load.slice);
    load.strips = rdi_alloc((size_t)(threads * load.widest) * sizeof *load.strips);
    rd_status status = load.slice && load.strips ? load_all(&load) : RD_E_NOMEM;
    rdi_free(load.strips);
    rdi_free(load.slice);
    return status;
}
