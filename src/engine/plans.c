// SPDX-License-Identifier: Apache-2.0
// The engine's questions to the registry, asked once at creation. Activations between ops are f32 where the device's rows take
// them: every kernel computes in f32, so that a 16-bit store would only add a rounding. What bf16 would do to the speed has
// not been measured.
#include "engine/engine.h"

#include "ops/shared.h"

#include <stdio.h>
#include <string.h>

static const char *act_word(const rd_engine *engine) {
    return rd_dtype_name(engine->geometry.act_dtype);
}

static rd_status plan_slot(rd_engine *engine, rdi_plan_slot slot, const char *op, const rd_param *params,
                           int32_t count, int64_t lo, int64_t hi) {
    RDI_TRY(rd_plan_create(engine->ctx, op, params, count, lo, hi, &engine->plan[slot]));
    // GEMMs have something to do before their input is ready, and attention's loads have. An unbroken chain of dependent edges runs
    // far ahead of itself and holds the processors' room, so norms and quantisers start in turn: a step of eight layers of a 32B
    // shape on an H200 takes 1610 us with GEMMs alone started early, 1585 with rope and attention, 1650 with every kernel
    // (2026-11-30, docs/decisions/008-sm90a.md).
    const bool early = slot == RDI_PLAN_ROPE_KV_WRITE || slot == RDI_PLAN_ROPE || slot == RDI_PLAN_DECODE ||
                       slot == RDI_PLAN_LOCAL_DECODE;
    if (!early) rdi_plan_start_in_turn(engine->plan[slot]);
    return RD_OK;
}

static rd_status plan_norms(rd_engine *engine) {
    const rdi_geometry *g = &engine->geometry;
    for (int32_t residual = 0; residual < 2; residual++) {
        const rd_param params[] = {RD_INT("k", g->hidden), RD_WORD("x_dtype", "fp32"),
                                   RD_WORD("y_dtype", rd_dtype_name(g->normed_dtype)),
                                   RD_WORD("weight_dtype", "fp32"), RD_INT("residual", residual)};
        RDI_TRY(plan_slot(engine, residual ? RDI_PLAN_ADD_NORM : RDI_PLAN_NORM, "rmsnorm", params,
                          (int32_t)RDI_COUNT(params), 1, g->row_capacity));
    }
    if (!rdi_model_get_config(engine->model)->post_norms) return RD_OK;
    const rd_param post[] = {RD_INT("k", g->hidden), RD_WORD("x_dtype", "fp32"), RD_WORD("y_dtype", "fp32"),
                             RD_WORD("weight_dtype", "fp32"), RD_INT("residual", 0)};
    return plan_slot(engine, RDI_PLAN_POST_NORM, "rmsnorm", post, (int32_t)RDI_COUNT(post), 1,
                     g->row_capacity);
}

static rd_status plan_quant(rd_engine *engine, rdi_plan_slot slot, int64_t k, const char *x_dtype,
                            const char *fuse) {
    const rd_param params[] = {RD_INT("k", k), RD_WORD("x_dtype", x_dtype), RD_WORD("fuse", fuse)};
    return plan_slot(engine, slot, "quant_fp8", params, (int32_t)RDI_COUNT(params), 1,
                     engine->geometry.row_capacity);
}

enum { ATTN_KEYS = 11 };
static void attention_question(const rdi_geometry *g, bool local, bool codes, rd_param attn[ATTN_KEYS]) {
    const char *act = rd_dtype_name(g->act_dtype);
    const rd_param params[ATTN_KEYS] = {RD_INT("head_dim", g->head_dim),
                                        RD_INT("gqa", g->q_heads / g->kv_heads),
                                        RD_INT("block_tokens", RDI_BLOCK_TOKENS),
                                        RD_WORD("q_dtype", act),
                                        RD_WORD("kv_dtype", rd_dtype_name(g->kv_dtype)),
                                        RD_WORD("out_dtype", codes ? "fp8_e4m3" : act),
                                        RD_WORD("k_order", g->k_token_order ? "token" : "dim"),
                                        RD_INT("window", local),
                                        RD_INT("softcap", 0),
                                        RD_INT("sinks", 0),
                                        RD_INT("causal", 1)};
    memcpy(attn, params, sizeof params);
}

// Rotation and cache write as one launch, or as two where the device has no row for the one.
static rd_status plan_heads(rd_engine *engine) {
    const rdi_geometry *g = &engine->geometry;
    const rd_param params[] = {RD_INT("head_dim", g->head_dim),
                               RD_WORD("x_dtype", act_word(engine)),
                               RD_INT("rotary_dim", g->head_dim),
                               RD_WORD("style", "neox"),
                               RD_INT("qk_norm", rdi_model_get_config(engine->model)->qk_norm),
                               RD_INT("block_tokens", RDI_BLOCK_TOKENS),
                               RD_WORD("kv_dtype", rd_dtype_name(g->kv_dtype)),
                               RD_WORD("k_order", g->k_token_order ? "token" : "dim")};
    const int32_t count = (int32_t)RDI_COUNT(params), rope_keys = 5;
    rd_status status = plan_slot(engine, RDI_PLAN_ROPE_KV_WRITE, "rope_kv_write", params, count, 0, 0);
    if (status != RD_E_UNSUPPORTED) return status;
    rd_param kv[RDI_COUNT(params)] = {params[0], params[1]};
    memcpy(kv + 2, params + rope_keys, (size_t)(count - rope_keys) * sizeof *kv);
    RDI_TRY(plan_slot(engine, RDI_PLAN_KV_WRITE, "kv_write", kv, count - rope_keys + 2, 0, 0));
    return plan_slot(engine, RDI_PLAN_ROPE, "rope", params, rope_keys, 0, 0);
}

static rd_status plan_attention(rd_engine *engine) {
    const rdi_geometry *g = &engine->geometry;
    rd_param attn[ATTN_KEYS];
    const int kinds = rdi_model_get_config(engine->model)->window ? 2 : 1;
    for (int local = 0; local < kinds; local++) {
        attention_question(g, local, false, attn);
        RDI_TRY(plan_slot(engine, local ? RDI_PLAN_LOCAL_PREFILL : RDI_PLAN_PREFILL, "attn_prefill", attn,
                          ATTN_KEYS, 1, g->chunk_rows));
        attention_question(g, local, g->decode_codes, attn);
        RDI_TRY(plan_slot(engine, local ? RDI_PLAN_LOCAL_DECODE : RDI_PLAN_DECODE, "attn_decode", attn,
                          ATTN_KEYS, 1, RD_MAX_VERIFY_WIDTH));
    }
    return plan_heads(engine);
}

rd_status rdi_engine_make_plans(rd_engine *engine) {
    const rdi_geometry *g = &engine->geometry;
    const rd_param embed[] = {RD_INT("k", g->hidden),
                              RD_WORD("table_dtype", rd_dtype_name(engine->embed.dtype)),
                              RD_WORD("y_dtype", "fp32")};
    RDI_TRY(plan_slot(engine, RDI_PLAN_EMBED, "embed", embed, (int32_t)RDI_COUNT(embed), 0, 0));
    RDI_TRY(plan_norms(engine));
    RDI_TRY(plan_attention(engine));
    const bool gelu = rdi_model_get_config(engine->model)->gelu;
    const rd_param act[] = {RD_INT("k", g->intermediate), RD_WORD("act", gelu ? "gelu_tanh" : "silu"),
                            RD_WORD("x_dtype", act_word(engine)), RD_WORD("y_dtype", act_word(engine))};
    RDI_TRY(plan_slot(engine, RDI_PLAN_ACT_MUL, "act_mul", act, (int32_t)RDI_COUNT(act), 1, g->row_capacity));
    if (g->w8a8) {
        RDI_TRY(plan_quant(engine, RDI_PLAN_QUANT_NORM, g->hidden, "fp32", "rmsnorm"));
        RDI_TRY(plan_quant(engine, RDI_PLAN_QUANT_ADD_NORM, g->hidden, "fp32", "add_rmsnorm"));
        RDI_TRY(plan_quant(engine, RDI_PLAN_QUANT_ATTN, g->q_dim, act_word(engine), "none"));
        RDI_TRY(plan_quant(engine, RDI_PLAN_QUANT_ACT, g->intermediate, act_word(engine),
                           gelu ? "gelu_mul" : "silu_mul"));
    }
    const rd_param sample[] = {RD_INT("vocab", g->vocab)};
    return plan_slot(engine, RDI_PLAN_SAMPLE, "sample", sample, (int32_t)RDI_COUNT(sample), 0, 0);
}

// ---- what a card takes -------------------------------------------------------------------------------------------------
static bool answered(const rd_engine *engine, const char *op, const rd_param *params, int32_t count) {
    enum { MOST_ROWS = 64 };
    rd_verdict verdicts[MOST_ROWS];
    int32_t rows = MOST_ROWS;
    if (rd_kernel_explain(rd_ctx_device(engine->ctx), op, params, count, verdicts, &rows) != RD_OK)
        return false;
    for (int32_t i = 0; i < rows; i++)
        if (verdicts[i].ok) return true;
    return false;
}

static bool attention_answered(const rd_engine *engine) {
    rd_param attn[ATTN_KEYS + 1];
    attention_question(&engine->geometry, rdi_model_get_config(engine->model)->window > 0, false, attn);
    attn[ATTN_KEYS] = (rd_param)RD_INT("q_len", 1);
    return answered(engine, "attn_decode", attn, ATTN_KEYS + 1) &&
           answered(engine, "attn_prefill", attn, ATTN_KEYS + 1);
}

// Decode attention that quantises what it gives, as the quantiser between it and W_o would.
static bool decode_leaves_codes(const rd_engine *engine) {
    rd_param attn[ATTN_KEYS + 1];
    attention_question(&engine->geometry, rdi_model_get_config(engine->model)->window > 0, true, attn);
    attn[ATTN_KEYS] = (rd_param)RD_INT("q_len", 1);
    return engine->geometry.act_dtype == RD_DTYPE_F32 && engine->geometry.head_dim % 128 == 0 &&
           answered(engine, "attn_decode", attn, ATTN_KEYS + 1);
}

static bool head_answered(const rd_engine *engine, int32_t rows, const char *order) {
    const rdi_geometry *g = &engine->geometry;
    bool fp8 = rdi_weight_is_fp8(rdi_model_weight(engine->model, RDI_HEAD));
    const rd_param params[] = {RD_INT("m", rows),
                               RD_INT("n", g->vocab),
                               RD_INT("k", g->hidden),
                               RD_WORD("a_dtype", rd_dtype_name(g->normed_dtype)),
                               RD_WORD("c_dtype", "fp32"),
                               RD_WORD("layout", "row"),
                               RD_INT("bias", 0),
                               RD_WORD("order", order),
                               RD_WORD("w_scale_dtype", "fp32")};
    return answered(engine, fp8 ? "gemm_fp8block_w8a16" : "gemm_bf16", params,
                    (int32_t)RDI_COUNT(params) - !fp8);
}

static bool outputs_take_codes(const rd_engine *engine) {
    bool codes = engine->geometry.w8a8;
    for (int32_t i = 0; i < engine->geometry.layers && codes; i++)
        codes = rdi_weight_is_fp8(rdi_model_layer_weight(engine->model, i, RDI_ATTN_O)) &&
                rdi_weight_is_fp8(rdi_model_layer_weight(engine->model, i, RDI_MLP_DOWN));
    return codes;
}

// f32 and keys by head_dim first; what no row takes is left at the last choice, and the plan then says why.
void rdi_engine_pick_types(rd_engine *engine) {
    rdi_geometry *g = &engine->geometry;
    g->act_dtype = g->normed_dtype = RD_DTYPE_F32;
    g->k_token_order = true;
    if (!g->on_card) return;
    // A prompt's bf16 projections are of class chunk.
    if (!head_answered(engine, 1, "step") || !head_answered(engine, 1, "chunk"))
        g->normed_dtype = RD_DTYPE_BF16;
    while (g->logit_rows > 1 && !head_answered(engine, g->logit_rows, "step")) g->logit_rows /= 2;
    // Projections that take no codes take what the head takes.
    const bool narrow = g->normed_dtype == RD_DTYPE_BF16 && !outputs_take_codes(engine);
    for (int choice = narrow ? 2 : 0; choice < 4; choice++) {
        g->act_dtype = choice < 2 ? RD_DTYPE_F32 : RD_DTYPE_BF16;
        g->k_token_order = choice % 2 == 1;
        if (attention_answered(engine)) break;
    }
    g->decode_codes = outputs_take_codes(engine) && decode_leaves_codes(engine);
}

// ---- linears -----------------------------------------------------------------------------------------------------------
// The layout of a weight: the CPU's panels; on a gfx12 card the (16,16) shuffle where its contract holds, else as loaded.
static rd_status pick_layout(const rd_engine *engine, const rdi_linear_question *question,
                             rdi_linear_plan *plan) {
    plan->layout = "panel16";
    if (!engine->geometry.on_card) return RD_OK;
    plan->layout = "row";
    rd_device_info info = {.struct_size = sizeof info};
    RDI_TRY(rd_device_get_info(rd_ctx_device(engine->ctx), &info));
    if (!question->fp8_input || strncmp(info.arch, "gfx12", 5)) return RD_OK;
    char outputs[4][64], rule[128];
    const rd_param params[] = {RD_INT("block_quant", 1),
                               RD_INT("packed_4bit", 0),
                               RD_WORD("dtype", "float8_e4m3fn"),
                               RD_INT("rank", 2),
                               RD_INT("N", question->n),
                               RD_INT("K", question->k),
                               RD_INT("scale_rows", rdi_ceil_div(question->n, 128)),
                               RD_INT("scale_cols", rdi_ceil_div(question->k, 128))};
    RDI_TRY(rd_policy_eval(rd_ctx_device(engine->ctx), "preshuffle_contract", params,
                           (int32_t)RDI_COUNT(params), outputs, rule));
    if (!strcmp(outputs[0], "1"))
        plan->layout = "shuffle16";
    else
        snprintf(plan->left_alone, sizeof plan->left_alone, "%s", rule);
    return RD_OK;
}

// What a packed weight of this shape looks like; nothing is packed yet.
static rd_status describe_packed(rd_engine *engine, rdi_linear_plan *plan) {
    rd_tensor row = rd_tensor_2d(rdi_slab_take(&(rdi_slab){0}, 0), plan->fp8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16,
                                 plan->n, plan->k);
    if (strcmp(plan->layout, "row") != 0)
        RDI_TRY(rd_weight_pack(engine->ctx, &row, plan->layout, &plan->w));
    else
        plan->w = row;
    plan->w = rdi_here(engine, plan->w);
    if (plan->fp8)
        plan->scale = rdi_here(
            engine, rd_tensor_2d(NULL, RD_DTYPE_F32, rdi_ceil_div(plan->n, 128), rdi_ceil_div(plan->k, 128)));
    return RD_OK;
}

static bool same_linear(const rdi_linear_plan *plan, const rdi_linear_question *q) {
    return plan->fp8 == q->fp8 && plan->fp8_input == q->fp8_input && plan->n == q->n && plan->k == q->k &&
           plan->a_dtype == q->a_dtype && plan->c_dtype == q->c_dtype && plan->rows == q->rows &&
           plan->one_class == q->one_class;
}

static int64_t most_rows(const rd_engine *engine, const rdi_linear_plan *plan, rdi_pass_class pass) {
    return pass == RDI_PASS_STEP ? rdi_min(plan->rows, engine->geometry.step_rows) : plan->rows;
}

// One plan for both passes on the CPU, whose rows are of one class; on a card one for each, of the class that is the pass's.
static rd_status plan_passes(rd_engine *engine, const char *op, rd_param *params, int32_t count,
                             rdi_linear_plan *plan) {
    static const char *const words[] = {[RDI_PASS_PREFILL] = "chunk", [RDI_PASS_STEP] = "step"};
    if (!engine->geometry.on_card) {
        RDI_TRY(rd_plan_create(engine->ctx, op, params, count, 1, plan->rows, &plan->plan[RDI_PASS_STEP]));
        plan->plan[RDI_PASS_PREFILL] = plan->plan[RDI_PASS_STEP];
        return RD_OK;
    }
    for (int pass = RDI_PASS_STEP; pass >= (plan->one_class ? RDI_PASS_STEP : RDI_PASS_PREFILL); pass--) {
        params[count] = (rd_param)RD_WORD("order", words[pass]);
        RDI_TRY(rd_plan_create(engine->ctx, op, params, count + 1, 1,
                               most_rows(engine, plan, (rdi_pass_class)pass), &plan->plan[pass]));
    }
    if (plan->one_class) plan->plan[RDI_PASS_PREFILL] = plan->plan[RDI_PASS_STEP];
    return RD_OK;
}

static void free_passes(rdi_linear_plan *plan) {
    if (plan->plan[RDI_PASS_PREFILL] != plan->plan[RDI_PASS_STEP]) rd_plan_free(plan->plan[RDI_PASS_PREFILL]);
    rd_plan_free(plan->plan[RDI_PASS_STEP]);
}

rd_status rdi_engine_linear_plan(rd_engine *engine, const rdi_linear_question *q,
                                 const rdi_linear_plan **out) {
    for (int32_t i = 0; i < engine->linear_plan_count; i++) {
        *out = &engine->linear_plan[i];
        if (same_linear(*out, q)) return RD_OK;
    }
    if (engine->linear_plan_count == RDI_MAX_LINEAR_PLANS)
        return rdi_fail(RD_E_UNSUPPORTED, "engine: more than %d distinct linear shapes",
                        RDI_MAX_LINEAR_PLANS);
    rdi_linear_plan *fresh = &engine->linear_plan[engine->linear_plan_count];
    *fresh = (rdi_linear_plan){.fp8 = q->fp8,
                               .fp8_input = q->fp8_input,
                               .one_class = q->one_class,
                               .a_dtype = q->a_dtype,
                               .c_dtype = q->c_dtype,
                               .n = q->n,
                               .k = q->k,
                               .rows = q->rows};
    RDI_TRY(pick_layout(engine, q, fresh));
    enum { KEYS = 7 };
    rd_param params[KEYS + 1] = {RD_INT("n", q->n),
                                 RD_INT("k", q->k),
                                 RD_WORD("a_dtype", q->fp8_input ? "fp8_e4m3" : rd_dtype_name(q->a_dtype)),
                                 RD_WORD("c_dtype", rd_dtype_name(q->c_dtype)),
                                 RD_WORD("layout", fresh->layout),
                                 RD_INT("bias", 0),
                                 RD_WORD("w_scale_dtype", "fp32")}; // and the order class
    const int32_t count = KEYS - (q->fp8 ? 0 : 1);                  // a bf16 weight has no scale
    const char *op = !q->fp8 ? "gemm_bf16" : q->fp8_input ? "gemm_fp8block" : "gemm_fp8block_w8a16";
    RDI_TRY(describe_packed(engine, fresh));
    rd_status status = plan_passes(engine, op, params, count, fresh);
    if (status != RD_OK) {
        free_passes(fresh);
        return status;
    }
    engine->linear_plan_count++;
    *out = fresh;
    return RD_OK;
}

void rdi_engine_free_plans(rd_engine *engine) {
    for (int32_t i = 0; i < RDI_PLAN_SLOTS; i++) rd_plan_free(engine->plan[i]);
    for (int32_t i = 0; i < engine->linear_plan_count; i++) free_passes(&engine->linear_plan[i]);
}

// ---- workspace: one buffer, as large as the hungriest run of any row count ----------------------------------------------
static rd_status measure_linear(rd_engine *engine, const rdi_linear_plan *plan, rdi_pass_class pass,
                                int64_t *bytes) {
    const rdi_scratch *s = &engine->scratch;
    rdi_linear linear = {.n = plan->n,
                         .k = plan->k,
                         .w = plan->w,
                         .scale = plan->scale,
                         .a_dtype = plan->a_dtype,
                         .c_dtype = plan->c_dtype};
    linear.w.data = s->wide; // any pointer: a size query reads nothing
    if (plan->fp8) linear.scale.data = s->wide;
    for (int32_t rows = 1; rows <= most_rows(engine, plan, pass); rows++) {
        rd_gemm_args args =
            rdi_linear_args(engine, &linear, plan->fp8_input, s->narrow, rows, s->wide, plan->n);
        size_t needed = 0;
        RDI_TRY(rd_gemm_run(plan->plan[pass], &args, NULL, &needed, NULL));
        *bytes = rdi_max(*bytes, (int64_t)needed);
    }
    return RD_OK;
}

static rd_status measure_linears(rd_engine *engine, int64_t *bytes) {
    for (int32_t i = 0; i < engine->linear_plan_count; i++) {
        const rdi_linear_plan *plan = &engine->linear_plan[i];
        for (int pass = RDI_PASS_PREFILL; pass < RDI_PASS_CLASSES; pass++)
            if (pass == RDI_PASS_STEP || plan->plan[pass] != plan->plan[RDI_PASS_STEP])
                RDI_TRY(measure_linear(engine, plan, (rdi_pass_class)pass, bytes));
    }
    return RD_OK;
}

// words: lens[seqs], starts[seqs + 1], one row of block ids, all zero. The run entry checks what they say.
static rd_status measure_attention(rd_engine *engine, bool decode, int32_t seqs, int32_t rows, int32_t *words,
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
    args.max_q_len =
        rows / seqs; // of a mixed pass on a card: what each call has, its own width, is measured alone
    args.max_kv_len = engine->geometry.context_tokens;
    if (decode && engine->geometry.decode_codes) rdi_attention_leaves_codes(engine, &args);
    const rd_plan *const plans[] = {engine->plan[decode ? RDI_PLAN_DECODE : RDI_PLAN_PREFILL],
                                    engine->plan[decode ? RDI_PLAN_LOCAL_DECODE : RDI_PLAN_LOCAL_PREFILL]};
    for (size_t local = 0; local < RDI_COUNT(plans); local++) {
        if (!plans[local]) continue;
        args.window = local ? rdi_model_get_config(engine->model)->window : 0;
        size_t needed = 0;
        RDI_TRY(rd_attn_run(plans[local], &args, NULL, &needed, engine->memory.stream));
        *bytes = rdi_max(*bytes, (int64_t)needed);
    }
    return RD_OK;
}

static rd_status measure_attentions(rd_engine *engine, int32_t *words, int64_t *bytes) {
    const rdi_geometry *g = &engine->geometry;
    int32_t longest = (int32_t)rdi_min(g->chunk_rows, g->context_tokens);
    for (int32_t rows = 1; rows <= longest; rows++)
        RDI_TRY(measure_attention(engine, false, 1, rows, words, bytes));
    const int32_t widest = (int32_t)rdi_min(RD_MAX_VERIFY_WIDTH, g->context_tokens);
    for (int32_t seqs = 1; seqs <= rdi_min(g->max_sessions, g->step_rows); seqs++) {
        for (int32_t width = 1; width <= widest; width++)
            if (seqs * width <= g->step_rows) // of one width, or each width a call (forward.c)
                RDI_TRY(measure_attention(engine, true, seqs, seqs * width, words, bytes));
        const int32_t most =
            (int32_t)rdi_min(seqs * widest, g->step_rows); // of mixed widths: every call sees all rows
        RDI_TRY(measure_attention(engine, true, seqs, most, words, bytes));
    }
    return RD_OK;
}

static rd_status measure_quants(rd_engine *engine, int64_t *bytes) {
    static const struct {
        rdi_plan_slot slot;
        bool add, up;
    } cases[] = {{RDI_PLAN_QUANT_NORM, false, false},
                 {RDI_PLAN_QUANT_ADD_NORM, true, false},
                 {RDI_PLAN_QUANT_ATTN, false, false},
                 {RDI_PLAN_QUANT_ACT, false, true}};
    const rdi_geometry *g = &engine->geometry;
    const rdi_scratch *s = &engine->scratch;
    const int64_t rows = g->row_capacity;
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        int64_t k = cases[i].slot == RDI_PLAN_QUANT_ATTN ? g->q_dim
                    : cases[i].up                        ? g->intermediate
                                                         : g->hidden;
        bool inside = cases[i].slot == RDI_PLAN_QUANT_ATTN || cases[i].up;
        rd_tensor x = rdi_here(engine, rd_tensor_2d(s->wide, inside ? g->act_dtype : RD_DTYPE_F32, rows, k));
        rd_quant_args args = {.struct_size = sizeof args, .x = x, .q = x, .eps = 1e-5f};
        args.q.data = s->codes;
        args.q.dtype = RD_DTYPE_E4M3;
        args.q_scale =
            rdi_here(engine, rd_tensor_2d(s->code_scales, RD_DTYPE_F32, rows, rdi_ceil_div(k, 128)));
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
    rd_sample_args sample = {
        .struct_size = sizeof sample,
        .logits = rdi_here(engine, rd_tensor_2d(engine->scratch.residual, RD_DTYPE_F32, 1, g->vocab)),
        .rows = &row,
        .ids = rdi_here(engine, rd_tensor_1d(engine->scratch.ids, RD_DTYPE_I32, 1))};
    size_t needed = 0;
    RDI_TRY(rd_sample_run(engine->plan[RDI_PLAN_SAMPLE], &sample, NULL, &needed, NULL));
    *bytes = rdi_max(*bytes, (int64_t)needed);
    return RD_OK;
}
