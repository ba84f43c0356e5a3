// SPDX-License-Identifier: Apache-2.0
// rd_attn_run, the entry of attn_prefill and attn_decode: checks every field, index and length that a kernel trusts,
// then launches the rows of the plan. One call may hold sequences of different q_len; each must lie in the plan's interval.
#include "kernels/attn/args.h"
#include "ops/plan.h"

#include <math.h>
#include <string.h>

static rd_status check_dtype(const char *op, const char *field, const rd_tensor *tensor, rd_dtype first,
                             rd_dtype second) {
    if (tensor->dtype == first || tensor->dtype == second) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s: dtype=%s, needs one of: %s %s", op, field,
                    rd_dtype_name(tensor->dtype), rd_dtype_name(first), rd_dtype_name(second));
}

// What the plan was asked for must be what arrives: its rows were chosen for that and for nothing else.
static rd_status check_planned(const rd_plan *plan, const char *key, int64_t seen) {
    int64_t planned = rdi_plan_int(plan, key);
    if (planned == 0 || planned == seen) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s=%lld, the plan needs %lld", rdi_plan_op(plan), key, (long long)seen,
                    (long long)planned);
}

static rd_status check_planned_dtype(const rd_plan *plan, const char *key, rd_dtype seen) {
    rd_dtype planned = rdi_plan_dtype(plan, key);
    if (planned == RD_DTYPE_NONE || planned == seen) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s=%s, the plan needs %s", rdi_plan_op(plan), key, rd_dtype_name(seen),
                    rd_dtype_name(planned));
}

// A feature that the question did not announce may meet a row that lacks it.
static rd_status check_feature(const rd_plan *plan, const char *key, bool used) {
    if (!used || rdi_plan_int(plan, key) == 1) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s is used, the plan needs %s=1", rdi_plan_op(plan), key, key);
}

static rd_status check_query(const char *op, const rd_attn_args *args) {
    const rd_tensor *q = &args->q, *out = &args->out;
    RDI_TRY(rdi_check_tensor(op, "q", q, 3, RD_DTYPE_NONE));
    RDI_TRY(check_dtype(op, "q", q, RD_DTYPE_BF16, RD_DTYPE_F32));
    RDI_TRY(rdi_check_stride(op, "q", q, 2, 1));
    RDI_TRY(rdi_check_tensor(op, "out", out, 3, RD_DTYPE_NONE));
    if (out->dtype != RD_DTYPE_E4M3) RDI_TRY(check_dtype(op, "out", out, RD_DTYPE_BF16, RD_DTYPE_F32));
    for (int32_t axis = 0; axis < 3; axis++) RDI_TRY(rdi_check_dim(op, "out", out, axis, q->shape[axis]));
    RDI_TRY(rdi_check_stride(op, "out", out, 2, 1));
    return rdi_check_apart(op, "out", out);
}

// Scales of an e4m3 output: a group of 128 lies in one head.
static rd_status check_out_scale(const char *op, const rd_attn_args *args) {
    const rd_tensor *out = &args->out, *scale = &args->out_scale;
    if (out->dtype != RD_DTYPE_E4M3) return RD_OK;
    if (out->shape[2] % RDI_ATTN_CODE_GROUP)
        return rdi_fail(RD_E_INVALID, "%s: out: fp8_e4m3 with head_dim=%lld, needs a multiple of %d", op,
                        (long long)out->shape[2], RDI_ATTN_CODE_GROUP);
    RDI_TRY(rdi_check_tensor(op, "out_scale", scale, 2, RD_DTYPE_F32));
    RDI_TRY(rdi_check_dim(op, "out_scale", scale, 0, out->shape[0]));
    RDI_TRY(rdi_check_dim(op, "out_scale", scale, 1, out->shape[1] * (out->shape[2] / RDI_ATTN_CODE_GROUP)));
    return rdi_check_apart(op, "out_scale", scale);
}

static rd_status check_scale(const char *op, const char *field, const rd_tensor *scale,
                             const rd_tensor *cache) {
    if (!scale->data) return RD_OK; // 1 for every head
    if (cache->dtype != RD_DTYPE_E4M3)
        return rdi_fail(RD_E_INVALID, "%s: %s: given with a %s cache, needs fp8_e4m3", op, field,
                        rd_dtype_name(cache->dtype));
    RDI_TRY(rdi_check_tensor(op, field, scale, 1, RD_DTYPE_F32));
    RDI_TRY(rdi_check_dim(op, field, scale, 0, cache->shape[2]));
    return rdi_check_stride(op, field, scale, 0, 1);
}

static rd_status check_cache(const char *op, const rd_attn_args *args, bool token_order) {
    const rd_tensor *k = &args->k_cache, *v = &args->v_cache;
    RDI_TRY(rdi_check_tensor(op, "k_cache", k, 4, RD_DTYPE_NONE));
    RDI_TRY(check_dtype(op, "k_cache", k, RD_DTYPE_E4M3, RD_DTYPE_BF16));
    RDI_TRY(rdi_check_tensor(op, "v_cache", v, 4, k->dtype));
    for (int32_t axis = 0; axis < 4; axis++) RDI_TRY(rdi_check_dim(op, "v_cache", v, axis, k->shape[axis]));
    for (int32_t axis = 0; axis < 4; axis++)
        if (k->shape[axis] < 1)
            return rdi_fail(RD_E_INVALID, "%s: k_cache: shape[%d]=%lld, needs >= 1", op, axis,
                            (long long)k->shape[axis]);
    RDI_TRY(rdi_check_dim(op, "k_cache", k, 3, args->q.shape[2]));
    if (args->q.shape[1] % k->shape[2])
        return rdi_fail(RD_E_INVALID, "%s: q: shape[1]=%lld query heads, needs a multiple of %lld KV heads",
                        op, (long long)args->q.shape[1], (long long)k->shape[2]);
    if (token_order) {
        if (k->shape[1] % 16)
            return rdi_fail(RD_E_INVALID,
                            "%s: k_cache: block_tokens=%lld with k_order=token, needs a multiple of 16", op,
                            (long long)k->shape[1]);
        RDI_TRY(rdi_check_stride(op, "k_cache", k, 1, 1));
        RDI_TRY(rdi_check_stride(op, "k_cache", k, 3, 16));
    }
    RDI_TRY(check_scale(op, "k_scale", &args->k_scale, k));
    return check_scale(op, "v_scale", &args->v_scale, v);
}

static rd_status check_tables(const char *op, const rd_attn_args *args) {
    RDI_TRY(rdi_check_tensor(op, "kv_lens", &args->kv_lens, 1, RD_DTYPE_I32));
    RDI_TRY(rdi_check_stride(op, "kv_lens", &args->kv_lens, 0, 1));
    int64_t seqs = args->kv_lens.shape[0];
    RDI_TRY(rdi_check_tensor(op, "q_starts", &args->q_starts, 1, RD_DTYPE_I32));
    RDI_TRY(rdi_check_dim(op, "q_starts", &args->q_starts, 0, seqs + 1));
    RDI_TRY(rdi_check_stride(op, "q_starts", &args->q_starts, 0, 1));
    RDI_TRY(rdi_check_tensor(op, "block_table", &args->block_table, 2, RD_DTYPE_I32));
    RDI_TRY(rdi_check_dim(op, "block_table", &args->block_table, 0, seqs));
    RDI_TRY(rdi_check_stride(op, "block_table", &args->block_table, 1, 1));
    if (args->sinks.data) {
        RDI_TRY(rdi_check_tensor(op, "sinks", &args->sinks, 1, RD_DTYPE_F32));
        RDI_TRY(rdi_check_dim(op, "sinks", &args->sinks, 0, args->q.shape[1]));
        RDI_TRY(rdi_check_stride(op, "sinks", &args->sinks, 0, 1));
    }
    if (!isfinite(args->scale) || args->scale <= 0)
        return rdi_fail(RD_E_INVALID, "%s: scale=%g, needs a finite value > 0", op, (double)args->scale);
    if (!isfinite(args->softcap) || args->softcap < 0)
        return rdi_fail(RD_E_INVALID, "%s: softcap=%g, needs 0 (off) or a finite value > 0", op,
                        (double)args->softcap);
    if (args->window < 0)
        return rdi_fail(RD_E_INVALID, "%s: window=%d, needs 0 (off) or more", op, args->window);
    return RD_OK;
}

// Lengths and block ids of one sequence. Entries of positions that no row sees may hold anything: engines free the
// blocks that a window has left behind.
static rd_status check_sequence(const char *op, const rdi_attn_args *a, int64_t seq) {
    int64_t q_len = (int64_t)a->q_starts[seq + 1] - a->q_starts[seq], kv_len = a->kv_lens[seq];
    if (q_len < 0 || a->q_starts[seq + 1] > a->tokens)
        return rdi_fail(RD_E_INVALID, "%s: q_starts[%lld]=%d after %d, needs %d..%lld", op,
                        (long long)seq + 1, a->q_starts[seq + 1], a->q_starts[seq], a->q_starts[seq],
                        (long long)a->tokens);
    if (kv_len < 0 || kv_len > a->max_blocks * a->block_tokens)
        return rdi_fail(RD_E_INVALID, "%s: kv_lens[%lld]=%lld, needs 0..%lld (%lld blocks of %lld tokens)",
                        op, (long long)seq, (long long)kv_len, (long long)(a->max_blocks * a->block_tokens),
                        (long long)a->max_blocks, (long long)a->block_tokens);
    if (q_len == 0 || kv_len == 0) return RD_OK;
    int64_t first = a->window > 0 ? rdi_max(0, kv_len - q_len - a->window + 1) : 0;
    for (int64_t i = first / a->block_tokens; i * a->block_tokens < kv_len; i++) {
        int32_t block = a->block_table[seq * a->block_table_stride + i];
        if (block < 0 || block >= a->blocks)
            return rdi_fail(RD_E_INVALID, "%s: block_table[%lld][%lld]=%d, needs 0..%lld", op, (long long)seq,
                            (long long)i, block, (long long)a->blocks - 1);
    }
    return RD_OK;
}

static rdi_attn_args kernel_args(const rd_attn_args *args, bool token_order) {
    const rd_tensor *k = &args->k_cache, *v = &args->v_cache;
    return (rdi_attn_args){
        .seqs = args->kv_lens.shape[0],
        .tokens = args->q.shape[0],
        .q_heads = args->q.shape[1],
        .kv_heads = k->shape[2],
        .head_dim = args->q.shape[2],
        .block_tokens = k->shape[1],
        .max_blocks = args->block_table.shape[1],
        .blocks = k->shape[0],
        .q = args->q.data,
        .q_stride_token = args->q.stride[0],
        .q_stride_head = args->q.stride[1],
        .k_cache = k->data,
        .v_cache = v->data,
        .k_interleave = token_order ? 16 : 1,
        .k_stride_block = k->stride[0],
        .k_stride_token = k->stride[1],
        .k_stride_head = k->stride[2],
        .k_stride_dim = k->stride[3],
        .v_stride_block = v->stride[0],
        .v_stride_token = v->stride[1],
        .v_stride_head = v->stride[2],
        .v_stride_dim = v->stride[3],
        .k_scale = args->k_scale.data,
        .v_scale = args->v_scale.data,
        .block_table = args->block_table.data,
        .block_table_stride = args->block_table.stride[0],
        .kv_lens = args->kv_lens.data,
        .q_starts = args->q_starts.data,
        .sinks = args->sinks.data,
        .out = args->out.data,
        .out_stride_token = args->out.stride[0],
        .out_stride_head = args->out.stride[1],
        .out_scale = args->out_scale.data,
        .out_scale_stride_token = args->out_scale.stride[0],
        .out_scale_stride_group = args->out_scale.stride[1],
        .q_dtype = args->q.dtype,
        .kv_dtype = k->dtype,
        .out_dtype = args->out.dtype,
        .scale = args->scale,
        .softcap = args->softcap,
        .window = args->window,
        .max_q_len = args->max_q_len,
        .tables_settled = args->tables_settled != 0,
        .max_kv_len = args->max_kv_len ? args->max_kv_len : args->block_table.shape[1] * k->shape[1],
    };
}

static rd_status check_against_plan(const rd_plan *plan, const rdi_attn_args *a) {
    RDI_TRY(check_planned(plan, "head_dim", a->head_dim));
    RDI_TRY(check_planned(plan, "gqa", a->q_heads / a->kv_heads));
    RDI_TRY(check_planned(plan, "block_tokens", a->block_tokens));
    RDI_TRY(check_planned_dtype(plan, "q_dtype", a->q_dtype));
    RDI_TRY(check_planned_dtype(plan, "kv_dtype", a->kv_dtype));
    RDI_TRY(check_planned_dtype(plan, "out_dtype", a->out_dtype));
    RDI_TRY(check_feature(plan, "window", a->window > 0));
    RDI_TRY(check_feature(plan, "softcap", a->softcap > 0));
    return check_feature(plan, "sinks", a->sinks != NULL);
}

// On a card the caller names the bounds that the host reads from the tables elsewhere.
static rd_status check_bounds(const char *op, const rdi_attn_args *a) {
    if (a->max_q_len < 1 || a->max_q_len > a->tokens)
        return rdi_fail(RD_E_INVALID, "%s: max_q_len=%lld, a card needs 1..%lld: it bounds every q_len", op,
                        (long long)a->max_q_len, (long long)a->tokens);
    if (a->max_blocks * a->block_tokens > RDI_CARD_EXTENT_MAX)
        return rdi_fail(RD_E_INVALID,
                        "%s: block_table: shape[1]=%lld blocks of %lld tokens, a card takes up to %d tokens",
                        op, (long long)a->max_blocks, (long long)a->block_tokens, RDI_CARD_EXTENT_MAX);
    if (a->max_kv_len < 1 || a->max_kv_len > a->max_blocks * a->block_tokens)
        return rdi_fail(RD_E_INVALID, "%s: max_kv_len=%lld, needs 1..%lld (%lld blocks of %lld tokens)", op,
                        (long long)a->max_kv_len, (long long)(a->max_blocks * a->block_tokens),
                        (long long)a->max_blocks, (long long)a->block_tokens);
    return RD_OK;
}

static rd_status check_contents(const char *op, rdi_attn_args *a) {
    if (a->q_starts[0] < 0)
        return rdi_fail(RD_E_INVALID, "%s: q_starts[0]=%d, needs >= 0", op, a->q_starts[0]);
    a->max_q_len = 1;
    for (int64_t seq = 0; seq < a->seqs; seq++) {
        RDI_TRY(check_sequence(op, a, seq));
        a->max_q_len = rdi_max(a->max_q_len, (int64_t)a->q_starts[seq + 1] - a->q_starts[seq]);
    }
    return RD_OK;
}

// The row for the longest sequence of the batch. Every q_len must lie in the plan's interval; rows of one op and
// backend that a plan can mix share an order class, so a sequence's bits do not depend on its neighbours' lengths.
static rd_status row_of_batch(const rd_plan *plan, const rdi_attn_args *a, const rdi_row **out) {
    *out = rdi_plan_row(plan, a->max_q_len);
    return *out ? RD_OK : RD_E_INVALID;
}

rd_status rd_attn_run(const rd_plan *plan, const rd_attn_args *args, void *ws, size_t *ws_bytes,
                      rd_stream stream) {
    if (!plan) return rdi_fail(RD_E_INVALID, "attn: plan=NULL, needs a plan of attn_prefill or attn_decode");
    const char *op = rdi_plan_op(plan), *order = rdi_plan_word(plan, "k_order");
    if (strcmp(op, "attn_prefill") && strcmp(op, "attn_decode"))
        return rdi_fail(RD_E_INVALID, "attn: plan of %s, needs attn_prefill or attn_decode", op);
    if (!args) return rdi_fail(RD_E_INVALID, "%s: args=NULL, needs rd_attn_args", op);
    RDI_TRY(rdi_check_struct(op, args->struct_size, sizeof *args));
    bool token_order = order && !strcmp(order, "token");
    RDI_TRY(check_query(op, args));
    RDI_TRY(check_out_scale(op, args));
    RDI_TRY(check_cache(op, args, token_order));
    RDI_TRY(check_tables(op, args));
    rdi_attn_args a = kernel_args(args, token_order);
    RDI_TRY(check_against_plan(plan, &a));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"q", &args->q}, {"k_cache", &args->k_cache}, {"v_cache", &args->v_cache},
                             {"k_scale", &args->k_scale}, {"v_scale", &args->v_scale},
                             {"block_table", &args->block_table}, {"kv_lens", &args->kv_lens},
                             {"q_starts", &args->q_starts}, {"sinks", &args->sinks}, {"out", &args->out}));
    if (args->out.dtype == RD_DTYPE_E4M3) RDI_TRY(RDI_CHECK_PLACES(plan, {"out_scale", &args->out_scale}));
    bool done = false;
    if (!rdi_plan_on_host(plan) &&
        (!a.seqs || !a.tokens)) // as on a host: nothing to do, and no grid has room for it
        return rdi_check_workspace(op, 0, ws, ws_bytes, &done);
    RDI_TRY(rdi_plan_on_host(plan) ? check_contents(op, &a) : check_bounds(op, &a));
    const rdi_row *row;
    RDI_TRY(row_of_batch(plan, &a, &row));
    RDI_TRY(rdi_check_workspace(op, rdi_row_ws_bytes(plan, row, &a), ws, ws_bytes, &done));
    return done ? RD_OK : rdi_row_launch(plan, row, &a, ws, stream);
}
