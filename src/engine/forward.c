// SPDX-License-Identifier: Apache-2.0
// One pass over all layers for the rows of engine->batch, through the public ops alone.
//
//   x = embed(ids)
//   each layer: q, k, v = W_qkv norm(x);  rope(q, k);  cache <- k, v;  x += W_o attention(q);
//               x += W_down(silu(W_gate y) * W_up y),  y = norm(x)
//   logits = W_head norm(x)
//
// The sum into x is fused into the norm that follows it: `delta` holds what the last projection gave. After the last
// layer's cache write only rows [first_out, rows) go on, because no other row's output is read again.
#include "engine/engine.h"

#include <math.h>

static rd_tensor rows_of(float *data, int64_t rows, int64_t columns, int64_t row_stride) {
    rd_tensor tensor = rd_tensor_2d(data, RD_DTYPE_F32, rows, columns);
    tensor.stride[0] = row_stride;
    return tensor;
}

static rd_tensor heads_of(float *data, int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride) {
    rd_tensor tensor = rd_tensor_3d(data, RD_DTYPE_F32, rows, heads, head_dim);
    tensor.stride[0] = row_stride;
    return tensor;
}

// ---- linears --------------------------------------------------------------------------------------------------------
rd_gemm_args rdi_linear_args(const rd_engine *engine, const rdi_linear *linear, bool fp8_input, float *input,
                             int32_t rows, float *output, int64_t output_stride) {
    const rdi_scratch *s = &engine->scratch;
    rd_gemm_args args = {.struct_size = sizeof args,
                         .a = rows_of(input, rows, linear->k, linear->k),
                         .w = linear->w,
                         .w_scale = linear->scale,
                         .c = rows_of(output, rows, linear->n, output_stride)};
    if (fp8_input) {
        args.a = rd_tensor_2d(s->codes, RD_DTYPE_E4M3, rows, linear->k);
        args.a_scale = rd_tensor_2d(s->code_scales, RD_DTYPE_F32, rows, rdi_ceil_div(linear->k, 128));
    }
    return args;
}

static rd_status run_projection(rd_engine *engine, const rdi_projection *projection, float *input, int32_t rows,
                                float *output) {
    for (int32_t p = 0; p < projection->count; p++) {
        const rdi_linear *linear = &projection->part[p];
        rd_gemm_args args = rdi_linear_args(engine, linear, projection->fp8_input, input, rows, output + linear->column,
                                            projection->n);
        size_t ws_bytes = (size_t)engine->workspace.bytes;
        RDI_TRY(rd_gemm_run(linear->plan, &args, engine->workspace.base, &ws_bytes, NULL));
    }
    return RD_OK;
}

static rd_status run_quant(rd_engine *engine, rdi_plan_slot slot, rd_quant_args *args, int32_t rows, int64_t k) {
    args->struct_size = sizeof *args;
    args->q = rd_tensor_2d(engine->scratch.codes, RD_DTYPE_E4M3, rows, k);
    args->q_scale = rd_tensor_2d(engine->scratch.code_scales, RD_DTYPE_F32, rows, rdi_ceil_div(k, 128));
    size_t ws_bytes = (size_t)engine->workspace.bytes;
    return rd_quant_run(engine->plan[slot], args, engine->workspace.base, &ws_bytes, NULL);
}

// x += delta unless it is the first norm; then norm(x) as the next projection wants it: f32 in `normed`, or codes.
static rd_status run_norm(rd_engine *engine, const rd_tensor *weight, bool add, bool to_codes, int32_t first,
                          int32_t rows) {
    const rdi_scratch *s = &engine->scratch;
    const int64_t hidden = engine->geometry.hidden, count = rows - first;
    float *residual = s->residual + first * hidden;
    rd_tensor sum = rows_of(residual, count, hidden, hidden);
    rd_tensor x = add ? rows_of(s->delta, count, hidden, hidden) : sum;
    const float eps = rdi_model_get_config(engine->model)->norm_eps;
    if (to_codes) {
        rd_quant_args args = {.x = x, .norm_weight = *weight, .eps = eps};
        if (add) args.residual = sum;
        return run_quant(engine, add ? RDI_PLAN_QUANT_ADD_NORM : RDI_PLAN_QUANT_NORM, &args, (int32_t)count, hidden);
    }
    rd_rmsnorm_args args = {.struct_size = sizeof args, .x = x, .weight = *weight, .eps = eps};
    args.y = rows_of(s->normed, count, hidden, hidden);
    if (add) args.residual = sum;
    return rd_rmsnorm_run(engine->plan[add ? RDI_PLAN_ADD_NORM : RDI_PLAN_NORM], &args, NULL);
}

// ---- attention -------------------------------------------------------------------------------------------------------
rd_attn_args rdi_attention_args(const rd_engine *engine, const rdi_layer *layer, int32_t rows, int32_t seqs,
                                int32_t first) {
    const rdi_geometry *g = &engine->geometry;
    const rdi_scratch *s = &engine->scratch;
    rd_attn_args args = {.struct_size = sizeof args,
                         .k_cache = layer->k_cache,
                         .v_cache = layer->v_cache,
                         .k_scale = layer->k_scale,
                         .v_scale = layer->v_scale};
    args.q = heads_of(s->wide + (int64_t)first * g->qkv_dim, rows, g->q_heads, g->head_dim, g->qkv_dim);
    args.out = heads_of(s->narrow, rows, g->q_heads, g->head_dim, g->q_dim);
    args.block_table = rd_tensor_2d(s->block_table, RD_DTYPE_I32, seqs, g->max_blocks);
    args.kv_lens = rd_tensor_1d(s->kv_lens, RD_DTYPE_I32, seqs);
    args.q_starts = rd_tensor_1d(s->q_starts, RD_DTYPE_I32, seqs + 1);
    args.scale = 1.0f / sqrtf((float)g->head_dim);
    return args;
}

static rd_status run_rope_and_cache(rd_engine *engine, const rdi_layer *layer, int32_t rows) {
    const rdi_geometry *g = &engine->geometry;
    const rdi_scratch *s = &engine->scratch;
    float *k = s->wide + g->q_dim, *v = k + g->kv_dim;
    rd_rope_args rope = {.struct_size = sizeof rope,
                         .q = heads_of(s->wide, rows, g->q_heads, g->head_dim, g->qkv_dim),
                         .k = heads_of(k, rows, g->kv_heads, g->head_dim, g->qkv_dim),
                         .positions = rd_tensor_1d(s->positions, RD_DTYPE_I32, rows),
                         .inv_freq = rd_tensor_1d(s->inv_freq, RD_DTYPE_F32, g->head_dim / 2),
                         .q_norm = layer->q_norm,
                         .k_norm = layer->k_norm,
                         .eps = rdi_model_get_config(engine->model)->norm_eps};
    RDI_TRY(rd_rope_run(engine->plan[RDI_PLAN_ROPE], &rope, NULL));
    rd_kv_write_args write = {.struct_size = sizeof write,
                              .k = rope.k,
                              .v = heads_of(v, rows, g->kv_heads, g->head_dim, g->qkv_dim),
                              .k_cache = layer->k_cache,
                              .v_cache = layer->v_cache,
                              .k_scale = layer->k_scale,
                              .v_scale = layer->v_scale,
                              .slots = rd_tensor_1d(s->slots, RD_DTYPE_I64, rows)};
    return rd_kv_write_run(engine->plan[RDI_PLAN_KV_WRITE], &write, NULL);
}

static rd_status run_attention(rd_engine *engine, const rdi_layer *layer, int32_t first) {
    rdi_batch *batch = &engine->batch;
    rd_attn_args args = rdi_attention_args(engine, layer, batch->rows - first, batch->seqs, first);
    size_t ws_bytes = (size_t)engine->workspace.bytes;
    rdi_plan_slot slot = batch->pass == RDI_PASS_PREFILL ? RDI_PLAN_PREFILL : RDI_PLAN_DECODE;
    RDI_TRY(rd_attn_run(engine->plan[slot], &args, engine->workspace.base, &ws_bytes, NULL));
    if (!layer->o.fp8_input) return RD_OK;
    const rdi_geometry *g = &engine->geometry;
    const int32_t rows = batch->rows - first;
    rd_quant_args quant = {.x = rows_of(engine->scratch.narrow, rows, g->q_dim, g->q_dim)};
    return run_quant(engine, RDI_PLAN_QUANT_ATTN, &quant, rows, g->q_dim);
}

static rd_status run_mlp_act(rd_engine *engine, const rdi_layer *layer, int32_t rows) {
    const rdi_scratch *s = &engine->scratch;
    const int64_t width = engine->geometry.intermediate;
    rd_tensor gate = rows_of(s->wide, rows, width, 2 * width), up = rows_of(s->wide + width, rows, width, 2 * width);
    if (layer->down.fp8_input) {
        rd_quant_args args = {.x = gate, .up = up};
        return run_quant(engine, RDI_PLAN_QUANT_ACT, &args, rows, width);
    }
    rd_act_mul_args args = {
        .struct_size = sizeof args, .gate = gate, .up = up, .y = rows_of(s->narrow, rows, width, width)};
    return rd_act_mul_run(engine->plan[RDI_PLAN_ACT_MUL], &args, NULL);
}

// Before the last layer's attention: of a window that starts inside the batch only its rows remain, as one sequence each
// row's own (prefill: the one sequence, shortened at the front).
static void keep_window(rd_engine *engine) {
    rdi_batch *batch = &engine->batch;
    for (int32_t seq = 0; seq <= batch->seqs; seq++) {
        int32_t start = batch->q_starts[seq] - batch->first_out;
        batch->q_starts[seq] = start < 0 ? 0 : start;
    }
    rdi_memory_write(&engine->memory, engine->scratch.q_starts, batch->q_starts,
                     (int64_t)sizeof(int32_t) * (batch->seqs + 1));
}

static rd_status run_layer(rd_engine *engine, int32_t index) {
    const rdi_batch *batch = &engine->batch;
    const rdi_layer *layer = &engine->layer[index];
    const rdi_scratch *s = &engine->scratch;
    RDI_TRY(run_norm(engine, &layer->attn_norm, index > 0, layer->qkv.fp8_input, 0, batch->rows));
    RDI_TRY(run_projection(engine, &layer->qkv, s->normed, batch->rows, s->wide));
    RDI_TRY(run_rope_and_cache(engine, layer, batch->rows));
    int32_t first = index + 1 == engine->geometry.layers ? batch->first_out : 0, rows = batch->rows - first;
    if (rows == 0) return RD_OK; // a chunk whose outputs nobody reads: its keys and values are all that matters
    if (first > 0) keep_window(engine);
    RDI_TRY(run_attention(engine, layer, first));
    RDI_TRY(run_projection(engine, &layer->o, s->narrow, rows, s->delta));
    RDI_TRY(run_norm(engine, &layer->mlp_norm, true, layer->gate_up.fp8_input, first, batch->rows));
    RDI_TRY(run_projection(engine, &layer->gate_up, s->normed, rows, s->wide));
    RDI_TRY(run_mlp_act(engine, layer, rows));
    return run_projection(engine, &layer->down, s->narrow, rows, s->delta);
}

static void upload_batch(rd_engine *engine) {
    const rdi_batch *b = &engine->batch;
    const rdi_scratch *s = &engine->scratch;
    const int64_t word = (int64_t)sizeof(int32_t);
    rdi_memory_write(&engine->memory, s->ids, b->ids, word * b->rows);
    rdi_memory_write(&engine->memory, s->positions, b->positions, word * b->rows);
    rdi_memory_write(&engine->memory, s->slots, b->slots, (int64_t)sizeof(int64_t) * b->rows);
    rdi_memory_write(&engine->memory, s->kv_lens, b->kv_lens, word * b->seqs);
    rdi_memory_write(&engine->memory, s->q_starts, b->q_starts, word * (b->seqs + 1));
    rdi_memory_write(&engine->memory, s->block_table, b->block_table, word * b->seqs * engine->geometry.max_blocks);
}

rd_status rdi_forward(rd_engine *engine) {
    const rdi_batch *batch = &engine->batch;
    const rdi_scratch *s = &engine->scratch;
    const int64_t hidden = engine->geometry.hidden;
    engine->passes[batch->pass]++;
    upload_batch(engine);
    rd_embed_args embed = {.struct_size = sizeof embed,
                           .table = engine->embed,
                           .ids = rd_tensor_1d(s->ids, RD_DTYPE_I32, batch->rows),
                           .y = rows_of(s->residual, batch->rows, hidden, hidden),
                           .scale = 1.0f};
    RDI_TRY(rd_embed_run(engine->plan[RDI_PLAN_EMBED], &embed, NULL));
    for (int32_t i = 0; i < engine->geometry.layers; i++) RDI_TRY(run_layer(engine, i));
    if (batch->first_out == batch->rows) return RD_OK;
    return run_norm(engine, &engine->final_norm, true, false, batch->first_out, batch->rows);
}

rd_status rdi_forward_head(rd_engine *engine, int32_t row, int32_t count, float *logits) {
    const rdi_geometry *g = &engine->geometry;
    float *input = engine->scratch.normed + (int64_t)(row - engine->batch.first_out) * g->hidden;
    return run_projection(engine, &engine->head, input, count, logits);
}
