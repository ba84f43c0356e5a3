// SPDX-License-Identifier: Apache-2.0
// Run entry of kv_write. Every slot is checked before the first byte is written, so a refused call leaves the cache whole.
#include "ops/heads.h"

#include <math.h>
#include <string.h>

static rd_status check_cache(const rd_plan *plan, const char *op, const char *field, const rd_tensor *cache,
                             const rd_tensor *like, int64_t heads, bool token_order) {
    RDI_TRY(rdi_check_tensor(op, field, cache, 4, rdi_plan_dtype(plan, "kv_dtype")));
    RDI_TRY(rdi_check_dim(op, field, cache, 0, like->shape[0]));
    RDI_TRY(rdi_check_dim(op, field, cache, 1, rdi_plan_int(plan, "block_tokens")));
    RDI_TRY(rdi_check_dim(op, field, cache, 2, heads));
    RDI_TRY(rdi_check_dim(op, field, cache, 3, rdi_plan_int(plan, "head_dim")));
    if (!token_order) {
        RDI_TRY(rdi_check_stride(op, field, cache, 3, 1));
        return rdi_check_apart(op, field, cache);
    }
    if (cache->shape[1] % 16)
        return rdi_fail(RD_E_INVALID, "%s: %s: block_tokens=%lld, needs a multiple of 16 for k_order=token",
                        op, field, (long long)cache->shape[1]);
    RDI_TRY(rdi_check_stride(op, field, cache, 1, 1));
    return rdi_check_stride(op, field, cache, 3, 16);
}

static rd_status check_scale(const char *op, const char *field, const rd_tensor *scale, rd_dtype kv_dtype,
                             int64_t heads, bool readable) {
    if (!scale->data) return RD_OK;
    if (kv_dtype != RD_DTYPE_E4M3)
        return rdi_fail(RD_E_INVALID, "%s: %s is given, needs kv_dtype=fp8_e4m3 (seen %s)", op, field,
                        rd_dtype_name(kv_dtype));
    RDI_TRY(rdi_operand_vector(op, field, scale, RD_DTYPE_F32, heads));
    const float *values = scale->data;
    for (int64_t h = 0; readable && h < heads; h++)
        if (!(values[h] > 0.0f) || isinf(values[h]))
            return rdi_fail(RD_E_INVALID, "%s: %s[%lld]=%g, needs a finite number > 0", op, field,
                            (long long)h, (double)values[h]);
    return RD_OK;
}

static rd_status check_slots(const char *op, const rd_tensor *slots, int64_t tokens, int64_t capacity,
                             bool readable) {
    RDI_TRY(rdi_operand_vector(op, "slots", slots, RD_DTYPE_I64, tokens));
    const int64_t *values = slots->data;
    for (int64_t t = 0; readable && t < tokens; t++)
        if (values[t] >= capacity)
            return rdi_fail(RD_E_INVALID, "%s: slots[%lld]=%lld, needs < %lld (blocks * block_tokens)", op,
                            (long long)t, (long long)values[t], (long long)capacity);
    return RD_OK;
}

static rd_status check_operands(const rd_plan *plan, const char *op, const rd_kv_write_args *args) {
    int64_t tokens = args->k.shape[0], heads = args->k.shape[1], head_dim = rdi_plan_int(plan, "head_dim");
    const char *order = rdi_plan_word(plan, "k_order");
    bool token_order = order && strcmp(order, "token") == 0;
    RDI_TRY(rdi_operand_heads(op, "k", &args->k, rdi_plan_dtype(plan, "x_dtype"), tokens, heads, head_dim));
    RDI_TRY(rdi_operand_heads(op, "v", &args->v, args->k.dtype, tokens, heads, head_dim));
    RDI_TRY(check_cache(plan, op, "k_cache", &args->k_cache, &args->k_cache, heads, token_order));
    RDI_TRY(check_cache(plan, op, "v_cache", &args->v_cache, &args->k_cache, heads, false));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"k", &args->k}, {"v", &args->v}, {"k_cache", &args->k_cache},
                             {"v_cache", &args->v_cache}, {"k_scale", &args->k_scale},
                             {"v_scale", &args->v_scale}, {"slots", &args->slots}));
    bool readable = rdi_plan_on_host(plan);
    RDI_TRY(check_scale(op, "k_scale", &args->k_scale, args->k_cache.dtype, heads, readable));
    RDI_TRY(check_scale(op, "v_scale", &args->v_scale, args->k_cache.dtype, heads, readable));
    return check_slots(op, &args->slots, tokens, args->k_cache.shape[0] * args->k_cache.shape[1], readable);
}

rd_status rdi_kv_write_bind(const rd_plan *plan, const char *op, const rd_kv_write_args *args,
                            rdi_kv_write_args *out) {
    RDI_TRY(check_operands(plan, op, args));
    *out = (rdi_kv_write_args){
        .tokens = args->k.shape[0],
        .kv_heads = args->k.shape[1],
        .head_dim = args->k.shape[2],
        .block_tokens = args->k_cache.shape[1],
        .blocks = args->k_cache.shape[0],
        .k = args->k.data,
        .v = args->v.data,
        .k_stride_token = args->k.stride[0],
        .k_stride_head = args->k.stride[1],
        .v_stride_token = args->v.stride[0],
        .v_stride_head = args->v.stride[1],
        .k_cache = args->k_cache.data,
        .v_cache = args->v_cache.data,
        .kc_stride_block = args->k_cache.stride[0],
        .kc_stride_token = args->k_cache.stride[1],
        .kc_stride_head = args->k_cache.stride[2],
        .kc_stride_dim = args->k_cache.stride[3],
        .vc_stride_block = args->v_cache.stride[0],
        .vc_stride_token = args->v_cache.stride[1],
        .vc_stride_head = args->v_cache.stride[2],
        .vc_stride_dim = args->v_cache.stride[3],
        .k_scale = args->k_scale.data,
        .v_scale = args->v_scale.data,
        .slots = args->slots.data,
        .x_dtype = args->k.dtype,
        .kv_dtype = args->k_cache.dtype,
    };
    return RD_OK;
}

rd_status rd_kv_write_run(const rd_plan *plan, const rd_kv_write_args *args, rd_stream stream) {
    static const char op[] = "kv_write";
    rdi_kv_write_args kernel;
    RDI_TRY(rdi_operand_begin(plan, op, args, sizeof *args));
    RDI_TRY(rdi_kv_write_bind(plan, op, args, &kernel));
    const rdi_row *row = rdi_plan_row(plan, 0);
    if (row && !kernel.tokens) return RD_OK;
    return row ? rdi_row_launch(plan, row, &kernel, NULL, stream) : RD_E_INVALID;
}
