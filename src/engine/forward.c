// SPDX-License-Identifier: Apache-2.0
// One pass over all layers for the rows of engine->batch, through the public ops alone.
//
//   x = embed(ids)
//   each layer: q, k, v = W_qkv norm(x);  rope(q, k);  cache <- k, v;  x += W_o attention(q);
//               x += W_down(silu(W_gate y) * W_up y),  y = norm(x)
//   logits = W_head norm(x)
//
// Gemma's layers normalise what W_o and W_down give before it is added, gate with gelu, and see a window of keys but every few.
// The sum into x is fused into the norm that follows it: `delta` holds what the last projection gave. After the last
// layer's cache write only rows [first_out, rows) go on, because no other row's output is read again.
#include "engine/engine.h"

#include <math.h>

static rd_tensor rows_of(const rd_engine *engine, void *data, rd_dtype dtype, int64_t rows, int64_t columns,
                         int64_t row_stride) {
    rd_tensor tensor = rd_tensor_2d(data, dtype, rows, columns);
    tensor.stride[0] = row_stride;
    return rdi_here(engine, tensor);
}

// Of `wide` or `narrow`, from element `at` on.
static void *act_at(const rd_engine *engine, void *base, int64_t at) {
    return (unsigned char *)base + at * (int64_t)rd_dtype_bytes(engine->geometry.act_dtype);
}
static rd_tensor act_rows(const rd_engine *engine, void *data, int64_t rows, int64_t columns,
                          int64_t row_stride) {
    return rows_of(engine, data, engine->geometry.act_dtype, rows, columns, row_stride);
}

static rd_tensor heads_of(const rd_engine *engine, void *data, int64_t rows, int64_t heads,
                          int64_t row_stride) {
    const rdi_geometry *g = &engine->geometry;
    rd_tensor tensor = rd_tensor_3d(data, g->act_dtype, rows, heads, g->head_dim);
    tensor.stride[0] = row_stride;
    return rdi_here(engine, tensor);
}

// For a profile: counts a call of a part (at: its interval value), and says whether it is not to run.
static bool left_out(rd_engine *engine, rdi_part part, const rd_plan *plan, int64_t at, double bytes,
                     double flops) {
    rdi_tally *tally = engine->tally;
    if (!tally) return false;
    const rd_kernel_info *kernel = plan ? rd_plan_kernel(plan, at) : NULL;
    tally->calls[part]++;
    tally->bytes[part] += bytes;
    tally->flops[part] += flops;
    tally->kernel[part] = kernel ? kernel->name : "copies";
    return !(tally->only >> part & 1);
}

// ---- linears --------------------------------------------------------------------------------------------------------
rd_gemm_args rdi_linear_args(const rd_engine *engine, const rdi_linear *linear, bool fp8_input, void *input,
                             int32_t rows, void *output, int64_t output_stride) {
    const rdi_scratch *s = &engine->scratch;
    rd_gemm_args args = {.struct_size = sizeof args,
                         .a = rows_of(engine, input, linear->a_dtype, rows, linear->k, linear->k),
                         .w = linear->w,
                         .w_scale = linear->scale,
                         .c = rows_of(engine, output, linear->c_dtype, rows, linear->n, output_stride)};
    if (fp8_input) {
        args.a = rdi_here(engine, rd_tensor_2d(s->codes, RD_DTYPE_E4M3, rows, linear->k));
        args.a_scale =
            rdi_here(engine, rd_tensor_2d(s->code_scales, RD_DTYPE_F32, rows, rdi_ceil_div(linear->k, 128)));
    }
    return args;
}

static bool linear_left_out(rd_engine *engine, rdi_part part, const rdi_linear *linear, int32_t rows) {
    const double elems = (double)linear->n * (double)linear->k;
    double bytes = elems * (double)rd_dtype_bytes(linear->w.dtype);
    if (linear->scale.data) bytes += 4.0 * (double)(linear->scale.shape[0] * linear->scale.shape[1]);
    return left_out(engine, part, linear->plan[engine->batch.pass], rows, bytes, 2 * elems * rows);
}

static rd_status run_projection(rd_engine *engine, rdi_part part, const rdi_projection *projection,
                                void *input, int32_t rows, void *output) {
    for (int32_t p = 0; p < projection->count; p++) {
        const rdi_linear *linear = &projection->part[p];
        if (linear_left_out(engine, part, linear, rows)) continue;
        void *place = (unsigned char *)output + linear->column * (int64_t)rd_dtype_bytes(linear->c_dtype);
        rd_gemm_args args =
            rdi_linear_args(engine, linear, projection->fp8_input, input, rows, place, projection->n);
        size_t ws_bytes = (size_t)engine->workspace.bytes;
        RDI_TRY(rd_gemm_run(linear->plan[engine->batch.pass], &args, engine->workspace.base, &ws_bytes,
                            engine->memory.stream));
    }
    return RD_OK;
}

static rd_status run_quant(rd_engine *engine, rdi_part part, rdi_plan_slot slot, rd_quant_args *args,
                           int32_t rows, int64_t k) {
    if (left_out(engine, part, engine->plan[slot], rows, 0, 0)) return RD_OK;
    args->struct_size = sizeof *args;
    args->q = rdi_here(engine, rd_tensor_2d(engine->scratch.codes, RD_DTYPE_E4M3, rows, k));
    args->q_scale =
        rdi_here(engine, rd_tensor_2d(engine->scratch.code_scales, RD_DTYPE_F32, rows, rdi_ceil_div(k, 128)));
    size_t ws_bytes = (size_t)engine->workspace.bytes;
    return rd_quant_run(engine->plan[slot], args, engine->workspace.base, &ws_bytes, engine->memory.stream);
}

// x += delta unless it is the first norm; then norm(x) as the next projection wants it: in `normed`, or codes.
static rd_status run_norm(rd_engine *engine, const rd_tensor *weight, bool add, bool to_codes, int32_t first,
                          int32_t rows) {
    const rdi_scratch *s = &engine->scratch;
    const int64_t hidden = engine->geometry.hidden, count = rows - first;
    float *residual = s->residual + first * hidden;
    rd_tensor sum = rows_of(engine, residual, RD_DTYPE_F32, count, hidden, hidden);
    rd_tensor x = add ? rows_of(engine, s->delta, RD_DTYPE_F32, count, hidden, hidden) : sum;
    const float eps = rdi_model_get_config(engine->model)->norm_eps;
    if (to_codes) {
        rd_quant_args args = {.x = x, .norm_weight = *weight, .eps = eps};
        if (add) args.residual = sum;
        return run_quant(engine, RDI_PART_NORM, add ? RDI_PLAN_QUANT_ADD_NORM : RDI_PLAN_QUANT_NORM, &args,
                         (int32_t)count, hidden);
    }
    const rd_plan *plan = engine->plan[add ? RDI_PLAN_ADD_NORM : RDI_PLAN_NORM];
    if (left_out(engine, RDI_PART_NORM, plan, count, 0, 0)) return RD_OK;
    rd_rmsnorm_args args = {.struct_size = sizeof args, .x = x, .weight = *weight, .eps = eps};
    args.y = rows_of(engine, s->normed, engine->geometry.normed_dtype, count, hidden, hidden);
    if (add) args.residual = sum;
    return rd_rmsnorm_run(plan, &args, engine->memory.stream);
}

// With norms behind attention and MLP: delta = norm(branch). Where a projection of either writes:
static float *branch_of(const rd_engine *engine) {
    return engine->scratch.branch ? engine->scratch.branch : engine->scratch.delta;
}
static rd_status run_post_norm(rd_engine *engine, const rd_tensor *weight, int32_t rows) {
    const rd_plan *plan = engine->plan[RDI_PLAN_POST_NORM];
    if (!plan || left_out(engine, RDI_PART_NORM, plan, rows, 0, 0)) return RD_OK;
    const int64_t hidden = engine->geometry.hidden;
    const rd_rmsnorm_args args = {
        .struct_size = sizeof args,
        .x = rows_of(engine, engine->scratch.branch, RD_DTYPE_F32, rows, hidden, hidden),
        .weight = *weight,
        .y = rows_of(engine, engine->scratch.delta, RD_DTYPE_F32, rows, hidden, hidden),
        .eps = rdi_model_get_config(engine->model)->norm_eps};
    return rd_rmsnorm_run(plan, &args, engine->memory.stream);
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
    args.q =
        heads_of(engine, act_at(engine, s->wide, (int64_t)first * g->qkv_dim), rows, g->q_heads, g->qkv_dim);
    args.out = heads_of(engine, s->narrow, rows, g->q_heads, g->q_dim);
    args.block_table = rdi_here(engine, rd_tensor_2d(s->block_table, RD_DTYPE_I32, seqs, g->max_blocks));
    args.kv_lens = rdi_here(engine, rd_tensor_1d(s->kv_lens, RD_DTYPE_I32, seqs));
    int32_t *starts = first > 0 ? s->tail_starts : s->q_starts;
    args.q_starts = rdi_here(engine, rd_tensor_1d(starts, RD_DTYPE_I32, seqs + 1));
    args.scale = rdi_model_get_config(engine->model)->attn_scale;
    args.window = layer->local ? rdi_model_get_config(engine->model)->window : 0;
    args.max_q_len = (int32_t)rdi_min(engine->batch.longest, rows);
    args.max_kv_len = engine->batch.keys;
    args.tables_settled = 1;
    return args;
}

// The output as W_o takes it: codes, and scales of 128 of them.
void rdi_attention_leaves_codes(const rd_engine *engine, rd_attn_args *args) {
    const rdi_geometry *g = &engine->geometry;
    args->out = rdi_here(engine, rd_tensor_3d(engine->scratch.codes, RD_DTYPE_E4M3, args->q.shape[0],
                                              g->q_heads, g->head_dim));
    args->out_scale = rdi_here(engine, rd_tensor_2d(engine->scratch.code_scales, RD_DTYPE_F32,
                                                    args->q.shape[0], rdi_ceil_div(g->q_dim, 128)));
}

static rd_status run_rope_and_cache(rd_engine *engine, const rdi_layer *layer, int32_t rows) {
    const rdi_geometry *g = &engine->geometry;
    const rdi_scratch *s = &engine->scratch;
    void *k = act_at(engine, s->wide, g->q_dim), *v = act_at(engine, k, g->kv_dim);
    rd_rope_args rope = {.struct_size = sizeof rope,
                         .q = heads_of(engine, s->wide, rows, g->q_heads, g->qkv_dim),
                         .k = heads_of(engine, k, rows, g->kv_heads, g->qkv_dim),
                         .positions = rdi_here(engine, rd_tensor_1d(s->positions, RD_DTYPE_I32, rows)),
                         .inv_freq =
                             rdi_here(engine, rd_tensor_1d(layer->local ? s->local_inv_freq : s->inv_freq,
                                                           RD_DTYPE_F32, g->head_dim / 2)),
                         .q_norm = layer->q_norm,
                         .k_norm = layer->k_norm,
                         .eps = rdi_model_get_config(engine->model)->norm_eps,
                         .tables_settled = 1}; // uploaded before the first norm, which starts in turn
    rd_kv_write_args write = {.struct_size = sizeof write,
                              .k = rope.k,
                              .v = heads_of(engine, v, rows, g->kv_heads, g->qkv_dim),
                              .k_cache = layer->k_cache,
                              .v_cache = layer->v_cache,
                              .k_scale = layer->k_scale,
                              .v_scale = layer->v_scale,
                              .slots = rdi_here(engine, rd_tensor_1d(s->slots, RD_DTYPE_I64, rows))};
    const rd_stream stream = engine->memory.stream;
    const rd_plan *both = engine->plan[RDI_PLAN_ROPE_KV_WRITE];
    if (both && left_out(engine, RDI_PART_ROPE, both, 0, 0, 0)) return RD_OK;
    if (both) return rd_rope_kv_write_run(both, &rope, &write, stream);
    if (!left_out(engine, RDI_PART_ROPE, engine->plan[RDI_PLAN_ROPE], 0, 0, 0))
        RDI_TRY(rd_rope_run(engine->plan[RDI_PLAN_ROPE], &rope, stream));
    if (left_out(engine, RDI_PART_KV_WRITE, engine->plan[RDI_PLAN_KV_WRITE], 0, 0, 0)) return RD_OK;
    return rd_kv_write_run(engine->plan[RDI_PLAN_KV_WRITE], &write, stream);
}

// Keys and values that the pass reads, and its products: a query's with the keys up to its own.
static bool attention_left_out(rd_engine *engine, const rd_plan *plan, const rd_attn_args *args) {
    if (!engine->tally) return false;
    const rdi_geometry *g = &engine->geometry;
    const rdi_batch *batch = &engine->batch;
    double keys = 0, pairs = 0;
    for (int32_t seq = 0; seq < batch->seqs; seq++) {
        const double length = batch->kv_lens[seq];
        const double rows =
            batch->seqs > 1 ? batch->q_starts[seq + 1] - batch->q_starts[seq] : (double)args->q.shape[0];
        const double window = args->window ? (double)args->window : length;
        keys += fmin(length, window + rows - 1);
        pairs += rows * fmin(length - 0.5 * (rows - 1), window);
    }
    const double bytes = keys * 2 * g->kv_dim * (double)rd_dtype_bytes(g->kv_dtype);
    return left_out(engine, RDI_PART_ATTENTION, plan, args->max_q_len, bytes, 4 * pairs * g->q_dim);
}

// A card's partial results have the longest sequence's rows for every sequence of a call: sequences of one number of rows, which stand
// together in a step's batch (rdi_engine_step), are a call.
static rd_status attend(rd_engine *engine, const rd_plan *plan, const rd_attn_args *args) {
    const rdi_batch *batch = &engine->batch;
    for (int32_t seq = 0, end; seq < batch->seqs; seq = end) {
        const int32_t rows = batch->q_starts[seq + 1] - batch->q_starts[seq];
        for (end = seq + 1; end < batch->seqs; end++)
            if (engine->geometry.on_card && batch->q_starts[end + 1] - batch->q_starts[end] != rows) break;
        rd_attn_args part = *args;
        if (end - seq < batch->seqs) {
            part.kv_lens.data = (int32_t *)args->kv_lens.data + seq;
            part.q_starts.data = (int32_t *)args->q_starts.data + seq;
            part.block_table.data = (int32_t *)args->block_table.data + seq * args->block_table.stride[0];
            part.kv_lens.shape[0] = part.block_table.shape[0] = end - seq;
            part.q_starts.shape[0] = end - seq + 1;
            part.max_q_len = rows;
        }
        size_t ws_bytes = (size_t)engine->workspace.bytes;
        RDI_TRY(rd_attn_run(plan, &part, engine->workspace.base, &ws_bytes, engine->memory.stream));
    }
    return RD_OK;
}

static rd_status run_attention(rd_engine *engine, const rdi_layer *layer, int32_t first) {
    rdi_batch *batch = &engine->batch;
    rd_attn_args args = rdi_attention_args(engine, layer, batch->rows - first, batch->seqs, first);
    const rdi_plan_slot prefill = layer->local ? RDI_PLAN_LOCAL_PREFILL : RDI_PLAN_PREFILL,
                        decode = layer->local ? RDI_PLAN_LOCAL_DECODE : RDI_PLAN_DECODE;
    const rd_plan *plan = engine->plan[batch->pass == RDI_PASS_PREFILL ? prefill : decode];
    const bool codes = batch->pass != RDI_PASS_PREFILL && engine->geometry.decode_codes;
    if (codes) rdi_attention_leaves_codes(engine, &args);
    if (!attention_left_out(engine, plan, &args)) RDI_TRY(attend(engine, plan, &args));
    if (!layer->o.fp8_input || codes) return RD_OK;
    const rdi_geometry *g = &engine->geometry;
    const int32_t rows = batch->rows - first;
    rd_quant_args quant = {.x = act_rows(engine, engine->scratch.narrow, rows, g->q_dim, g->q_dim)};
    return run_quant(engine, RDI_PART_QUANT_ATTENTION, RDI_PLAN_QUANT_ATTN, &quant, rows, g->q_dim);
}

static rd_status run_mlp_act(rd_engine *engine, const rdi_layer *layer, int32_t rows) {
    const rdi_scratch *s = &engine->scratch;
    const int64_t width = engine->geometry.intermediate;
    rd_tensor gate = act_rows(engine, s->wide, rows, width, 2 * width),
              up = act_rows(engine, act_at(engine, s->wide, width), rows, width, 2 * width);
    if (layer->down.fp8_input) {
        rd_quant_args args = {.x = gate, .up = up};
        return run_quant(engine, RDI_PART_ACT, RDI_PLAN_QUANT_ACT, &args, rows, width);
    }
    if (left_out(engine, RDI_PART_ACT, engine->plan[RDI_PLAN_ACT_MUL], rows, 0, 0)) return RD_OK;
    rd_act_mul_args args = {.struct_size = sizeof args,
                            .gate = gate,
                            .up = up,
                            .y = act_rows(engine, s->narrow, rows, width, width)};
    return rd_act_mul_run(engine->plan[RDI_PLAN_ACT_MUL], &args, engine->memory.stream);
}

static rd_status run_layer(rd_engine *engine, int32_t index) {
    const rdi_batch *batch = &engine->batch;
    const rdi_layer *layer = &engine->layer[index];
    const rdi_scratch *s = &engine->scratch;
    RDI_TRY(run_norm(engine, &layer->attn_norm, index > 0, layer->qkv.fp8_input, 0, batch->rows));
    RDI_TRY(run_projection(engine, RDI_PART_QKV, &layer->qkv, s->normed, batch->rows, s->wide));
    RDI_TRY(run_rope_and_cache(engine, layer, batch->rows));
    int32_t first = index + 1 == engine->geometry.layers ? batch->first_out : 0, rows = batch->rows - first;
    if (rows == 0)
        return RD_OK; // a chunk whose outputs nobody reads: its keys and values are all that matters
    RDI_TRY(run_attention(engine, layer, first));
    RDI_TRY(run_projection(engine, RDI_PART_O, &layer->o, s->narrow, rows, branch_of(engine)));
    RDI_TRY(run_post_norm(engine, &layer->attn_post_norm, rows));
    RDI_TRY(run_norm(engine, &layer->mlp_norm, true, layer->gate_up.fp8_input, first, batch->rows));
    RDI_TRY(run_projection(engine, RDI_PART_GATE_UP, &layer->gate_up, s->normed, rows, s->wide));
    RDI_TRY(run_mlp_act(engine, layer, rows));
    RDI_TRY(run_projection(engine, RDI_PART_DOWN, &layer->down, s->narrow, rows, branch_of(engine)));
    return run_post_norm(engine, &layer->mlp_post_norm, rows);
}

// The last layer's attention: of a window that starts inside the batch only its rows remain, as one sequence each row's own
// (prefill: the one sequence, shortened at the front).
static void shorten_starts(rdi_batch *batch) {
    for (int32_t seq = 0; seq <= batch->seqs; seq++) {
        int32_t start = batch->q_starts[seq] - batch->first_out;
        batch->tail_starts[seq] = start < 0 ? 0 : start;
    }
}

static rd_status upload_batch(rd_engine *engine) {
    rdi_batch *b = &engine->batch;
    const rdi_scratch *s = &engine->scratch;
    const int64_t word = (int64_t)sizeof(int32_t);
    rdi_memory *memory = &engine->memory;
    shorten_starts(b);
    if (left_out(engine, RDI_PART_UPLOAD, NULL, 0, 0, 0)) return RD_OK;
    RDI_TRY(rdi_memory_write(memory, s->ids, b->ids, word * b->rows));
    RDI_TRY(rdi_memory_write(memory, s->positions, b->positions, word * b->rows));
    RDI_TRY(rdi_memory_write(memory, s->slots, b->slots, (int64_t)sizeof(int64_t) * b->rows));
    RDI_TRY(rdi_memory_write(memory, s->kv_lens, b->kv_lens, word * b->seqs));
    RDI_TRY(rdi_memory_write(memory, s->q_starts, b->q_starts, word * (b->seqs + 1)));
    if (b->first_out > 0)
        RDI_TRY(rdi_memory_write(memory, s->tail_starts, b->tail_starts, word * (b->seqs + 1)));
    return rdi_memory_write(memory, s->block_table, b->block_table,
                            word * b->seqs * engine->geometry.max_blocks);
}

rd_status rdi_forward(rd_engine *engine) {
    const rdi_batch *batch = &engine->batch;
    const rdi_scratch *s = &engine->scratch;
    const int64_t hidden = engine->geometry.hidden;
    RDI_TRY(upload_batch(engine));
    rd_embed_args embed = {.struct_size = sizeof embed,
                           .table = engine->embed,
                           .ids = rdi_here(engine, rd_tensor_1d(s->ids, RD_DTYPE_I32, batch->rows)),
                           .y = rows_of(engine, s->residual, RD_DTYPE_F32, batch->rows, hidden, hidden),
                           .scale = rdi_model_get_config(engine->model)->embed_scale};
    if (!left_out(engine, RDI_PART_EMBED, engine->plan[RDI_PLAN_EMBED], 0, 0, 0))
        RDI_TRY(rd_embed_run(engine->plan[RDI_PLAN_EMBED], &embed, engine->memory.stream));
    for (int32_t i = 0; i < engine->geometry.layers; i++) RDI_TRY(run_layer(engine, i));
    if (batch->first_out == batch->rows) return RD_OK;
    return run_norm(engine, &engine->final_norm, true, false, batch->first_out, batch->rows);
}

rd_status rdi_forward_head(rd_engine *engine, int32_t row, int32_t count, float *logits) {
    const rdi_geometry *g = &engine->geometry;
    int64_t at =
        (int64_t)(row - engine->batch.first_out) * g->hidden * (int64_t)rd_dtype_bytes(g->normed_dtype);
    unsigned char *input = (unsigned char *)engine->scratch.normed + at;
    return run_projection(engine, RDI_PART_HEAD, &engine->head, input, count, logits);
}
