// SPDX-License-Identifier: Apache-2.0
// The engine's questions to the registry, asked once at creation. Activations between ops are f32: every CPU kernel computes
// in f32, so that a 16-bit store would only add a rounding. What bf16 would do to the speed has not been measured.
#include "engine/engine.h"

#define ACT_WORD "fp32"

static rd_status plan_slot(rd_engine *engine, rdi_plan_slot slot, const char *op, const rd_param *params, int32_t count,
                           int64_t lo, int64_t hi) {
    return rd_plan_create(engine->ctx, op, params, count, lo, hi, &engine->plan[slot]);
}

static rd_status plan_norms(rd_engine *engine) {
    const rdi_geometry *g = &engine->geometry;
    for (int32_t residual = 0; residual < 2; residual++) {
        const rd_param params[] = {RD_INT("k", g->hidden), RD_WORD("x_dtype", ACT_WORD), RD_WORD("y_dtype", ACT_WORD),
                                   RD_WORD("weight_dtype", "fp32"), RD_INT("residual", residual)};
        RDI_TRY(plan_slot(engine, residual ? RDI_PLAN_ADD_NORM : RDI_PLAN_NORM, "rmsnorm", params,
                          (int32_t)RDI_COUNT(params), 1, g->row_capacity));
    }
    return RD_OK;
}

static rd_status plan_quant(rd_engine *engine, rdi_plan_slot slot, int64_t k, const char *fuse) {
    const rd_param params[] = {RD_INT("k", k), RD_WORD("x_dtype", ACT_WORD), RD_WORD("fuse", fuse)};
    return plan_slot(engine, slot, "quant_fp8", params, (int32_t)RDI_COUNT(params), 1, engine->geometry.row_capacity);
}

static rd_status plan_attention(rd_engine *engine) {
    const rdi_geometry *g = &engine->geometry;
    const char *kv_word = rd_dtype_name(g->kv_dtype);
    const rd_param attn[] = {RD_INT("head_dim", g->head_dim),
                             RD_INT("gqa", g->q_heads / g->kv_heads),
                             RD_INT("block_tokens", RDI_BLOCK_TOKENS),
                             RD_WORD("q_dtype", ACT_WORD),
                             RD_WORD("kv_dtype", kv_word),
                             RD_WORD("out_dtype", ACT_WORD),
                             RD_WORD("k_order", "token"),
                             RD_INT("window", 0),
                             RD_INT("softcap", 0),
                             RD_INT("sinks", 0),
                             RD_INT("causal", 1)};
    const int32_t count = (int32_t)RDI_COUNT(attn);
    RDI_TRY(plan_slot(engine, RDI_PLAN_PREFILL, "attn_prefill", attn, count, 1, g->chunk_rows));
    RDI_TRY(plan_slot(engine, RDI_PLAN_DECODE, "attn_decode", attn, count, 1, RD_MAX_VERIFY_WIDTH));
    const rd_param kv[] = {RD_INT("head_dim", g->head_dim), RD_INT("block_tokens", RDI_BLOCK_TOKENS),
                           RD_WORD("x_dtype", ACT_WORD), RD_WORD("kv_dtype", kv_word), RD_WORD("k_order", "token")};
    RDI_TRY(plan_slot(engine, RDI_PLAN_KV_WRITE, "kv_write", kv, (int32_t)RDI_COUNT(kv), 0, 0));
    const rd_param rope[] = {RD_INT("head_dim", g->head_dim), RD_INT("rotary_dim", g->head_dim),
                             RD_WORD("style", "neox"), RD_WORD("x_dtype", ACT_WORD),
                             RD_INT("qk_norm", rdi_model_get_config(engine->model)->qk_norm)};
    return plan_slot(engine, RDI_PLAN_ROPE, "rope", rope, (int32_t)RDI_COUNT(rope), 0, 0);
}

rd_status rdi_engine_make_plans(rd_engine *engine) {
    const rdi_geometry *g = &engine->geometry;
    const rd_param embed[] = {RD_INT("k", g->hidden), RD_WORD("table_dtype", rd_dtype_name(engine->embed.dtype)),
                              RD_WORD("y_dtype", ACT_WORD)};
    RDI_TRY(plan_slot(engine, RDI_PLAN_EMBED, "embed", embed, (int32_t)RDI_COUNT(embed), 0, 0));
    RDI_TRY(plan_norms(engine));
    RDI_TRY(plan_attention(engine));
    const rd_param act[] = {RD_INT("k", g->intermediate), RD_WORD("act", "silu"), RD_WORD("x_dtype", ACT_WORD),
                            RD_WORD("y_dtype", ACT_WORD)};
    RDI_TRY(plan_slot(engine, RDI_PLAN_ACT_MUL, "act_mul", act, (int32_t)RDI_COUNT(act), 1, g->row_capacity));
    if (g->w8a8) {
        RDI_TRY(plan_quant(engine, RDI_PLAN_QUANT_NORM, g->hidden, "rmsnorm"));
        RDI_TRY(plan_quant(engine, RDI_PLAN_QUANT_ADD_NORM, g->hidden, "add_rmsnorm"));
        RDI_TRY(plan_quant(engine, RDI_PLAN_QUANT_ATTN, g->q_dim, "none"));
        RDI_TRY(plan_quant(engine, RDI_PLAN_QUANT_ACT, g->intermediate, "silu_mul"));
    }
    const rd_param sample[] = {RD_INT("vocab", g->vocab)};
    return plan_slot(engine, RDI_PLAN_SAMPLE, "sample", sample, (int32_t)RDI_COUNT(sample), 0, 0);
}

// What a packed weight of this shape looks like; nothing is packed yet.
static rd_status describe_packed(rd_engine *engine, rdi_linear_plan *plan) {
    rd_tensor row = rd_tensor_2d(rdi_slab_take(&(rdi_slab){0}, 0), plan->fp8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16, plan->n,
                                 plan->k);
    RDI_TRY(rd_weight_pack(engine->ctx, &row, "panel16", &plan->w));
    if (plan->fp8)
        plan->scale = rd_tensor_2d(NULL, RD_DTYPE_F32, rdi_ceil_div(plan->n, 128), rdi_ceil_div(plan->k, 128));
    return RD_OK;
}

rd_status rdi_engine_linear_plan(rd_engine *engine, bool fp8, bool fp8_input, int64_t n, int64_t k,
                                 const rdi_linear_plan **out) {
    for (int32_t i = 0; i < engine->linear_plan_count; i++) {
        *out = &engine->linear_plan[i];
        if ((*out)->fp8 == fp8 && (*out)->fp8_input == fp8_input && (*out)->n == n && (*out)->k == k) return RD_OK;
    }
    if (engine->linear_plan_count == RDI_MAX_LINEAR_PLANS)
        return rdi_fail(RD_E_UNSUPPORTED, "engine: more than %d distinct linear shapes", RDI_MAX_LINEAR_PLANS);
    const rd_param params[] = {RD_INT("n", n), RD_INT("k", k), RD_WORD("a_dtype", fp8_input ? "fp8_e4m3" : ACT_WORD),
                               RD_WORD("c_dtype", ACT_WORD), RD_WORD("layout", "panel16"), RD_INT("bias", 0),
                               RD_WORD("w_scale_dtype", "fp32")};
    const int32_t count = (int32_t)RDI_COUNT(params) - (fp8 ? 0 : 1); // a bf16 weight has no scale
    const char *op = !fp8 ? "gemm_bf16" : fp8_input ? "gemm_fp8block" : "gemm_fp8block_w8a16";
    rdi_linear_plan *fresh = &engine->linear_plan[engine->linear_plan_count];
    *fresh = (rdi_linear_plan){.fp8 = fp8, .fp8_input = fp8_input, .n = n, .k = k};
    RDI_TRY(describe_packed(engine, fresh));
    RDI_TRY(rd_plan_create(engine->ctx, op, params, count, 1, engine->geometry.row_capacity, &fresh->plan));
    engine->linear_plan_count++;
    *out = fresh;
    return RD_OK;
}

void rdi_engine_free_plans(rd_engine *engine) {
    for (int32_t i = 0; i < RDI_PLAN_SLOTS; i++) rd_plan_free(engine->plan[i]);
    for (int32_t i = 0; i < engine->linear_plan_count; i++) rd_plan_free(engine->linear_plan[i].plan);
}

// ---- workspace: one buffer, as large as the hungriest run of any row count ----------------------------------------------
static rd_status measure_linears(rd_engine *engine, int64_t *bytes) {
    const rdi_scratch *s = &engine->scratch;
    for (int32_t i = 0; i < engine->linear_plan_count; i++) {
        const rdi_linear_plan *plan = &engine->linear_plan[i];
        rdi_linear linear = {.n = plan->n, .k = plan->k, .w = plan->w, .scale = plan->scale, .plan = plan->plan};
        linear.w.data = s->wide; // any pointer: a size query reads nothing
        if (plan->fp8) linear.scale.data = s->wide;
        for (int32_t rows = 1; rows <= engine->geometry.row_capacity; rows++) {
            rd_gemm_args args = rdi_linear_args(engine, &linear, plan->fp8_input, s->narrow, rows, s->wide, plan->n);
            size_t needed = 0;
            RDI_TRY(rd_gemm_run(plan->plan, &args, NULL, &needed, NULL));
            *bytes = rdi_max(*bytes, (int64_t)needed);
        }
    }
    return RD_OK;
}

// words: lens[seqs], starts[seqs + 1], one row of block ids, all zero. The run entry checks what they say.
static rd_status measure_attention(rd_engine *engine, rdi_plan_slot slot, int32_t seqs, int32_t rows, int32_t *words,
                                   int64_t *bytes) {
    rd_attn_args args = rdi_attention_args(engine, &engine->layer[0], rows, seqs, 0);
    int32_t *lens = words, *starts = words + seqs;
    for (int32_t seq = 0; seq < seqs; seq++) {
        lens[seq] = engine->geometry.context_tokens;
        starts[seq] = (int32_t)((int64_t)rows * seq / seqs);
    }
    starts[seqs] = rows;
    args.kv_lens.data = lens;
    args.q_starts.data = starts;
    args.block_table.data = words + 2 * engine->geometry.max_sessions + 1;
    args.block_table.stride[0] = 0;
    size_t needed = 0;
    RDI_TRY(rd_attn_run(engine->plan[slot], &args, NULL, &needed, NULL));
    *bytes = rdi_max(*bytes, (int64_t)needed);
    return RD_OK;
}

static rd_status measure_attentions(rd_engine *engine, int32_t *words, int64_t *bytes) {
    const rdi_geometry *g = &engine->geometry;
    int32_t longest = (int32_t)rdi_min(g->chunk_rows, g->context_tokens);
    for (int32_t rows = 1; rows <= longest; rows++)
        RDI_TRY(measure_attention(engine, RDI_PLAN_PREFILL, 1, rows, words, bytes));
    for (int32_t seqs = 1; seqs <= rdi_min(g->max_sessions, g->row_capacity); seqs++)
        for (int32_t width = 1; width <= rdi_min(RD_MAX_VERIFY_WIDTH, g->context_tokens); width++)
            if (seqs * width <= g->row_capacity)
                RDI_TRY(measure_attention(engine, RDI_PLAN_DECODE, seqs, seqs * width, words, bytes));
    return RD_OK;
}

static rd_status measure_quants(rd_engine *engine, int64_t *bytes) {
    static const struct {
        rdi_plan_slot slot;
        bool add, up;
    } cases[] = {{RDI_PLAN_QUANT_NORM, false, false}, {RDI_PLAN_QUANT_ADD_NORM, true, false},
                 {RDI_PLAN_QUANT_ATTN, false, false}, {RDI_PLAN_QUANT_ACT, false, true}};
    const rdi_geometry *g = &engine->geometry;
    const rdi_scratch *s = &engine->scratch;
    const int64_t rows = g->row_capacity;
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        int64_t k = cases[i].slot == RDI_PLAN_QUANT_ATTN ? g->q_dim : cases[i].up ? g->intermediate : g->hidden;
        rd_tensor x = rd_tensor_2d(s->wide, RD_DTYPE_F32, rows, k);
        rd_quant_args args = {.struct_size = sizeof args, .x = x, .q = x, .eps = 1e-5f};
        args.q.data = s->codes;
        args.q.dtype = RD_DTYPE_E4M3;
        args.q_scale = rd_tensor_2d(s->code_scales, RD_DTYPE_F32, rows, rdi_ceil_div(k, 128));
        if (cases[i].up) args.up = x;
        if (cases[i].add) args.residual = x;
        if (cases[i].slot == RDI_PLAN_QUANT_NORM || cases[i].add) args.norm_weight = engine->final_norm;
        size_t needed = 0;
        RDI_TRY(rd_quant_run(engine->plan[cases[i].slot], &args, NULL, &needed, NULL));
        *bytes = rdi_max(*bytes, (int64_t)needed);
    }
    return RD_OK;
}

rd_status rdi_engine_measure_workspace(rd_engine *engine, int64_t *bytes) {
    const rdi_geometry *g = &engine->geometry;
    *bytes = 64; // never NULL, which would turn a run into a size query
    RDI_TRY(measure_linears(engine, bytes));
    if (g->w8a8) RDI_TRY(measure_quants(engine, bytes));
    int32_t *words = rdi_calloc((size_t)(2 * g->max_sessions + 1 + g->max_blocks), sizeof *words);
    if (!words) return RD_E_NOMEM;
    rd_status status = measure_attentions(engine, words, bytes);
    rdi_free(words);
    if (status != RD_OK) return status;
    const rd_sample_row row = {.temperature = 1.0f, .top_p = 1.0f};
    rd_sample_args sample = {.struct_size = sizeof sample,
                             .logits = rd_tensor_2d(engine->scratch.wide, RD_DTYPE_F32, 1, g->vocab),
                             .rows = &row,
                             .ids = rd_tensor_1d(engine->scratch.ids, RD_DTYPE_I32, 1)};
    size_t needed = 0;
    RDI_TRY(rd_sample_run(engine->plan[RDI_PLAN_SAMPLE], &sample, NULL, &needed, NULL));
    *bytes = rdi_max(*bytes, (int64_t)needed);
    return RD_OK;
}
