// SPDX-License-Identifier: Apache-2.0
// Run entry of rope: check every operand and position against the plan, then launch the planned row.
#include "ops/heads.h"

#include <string.h>

// Beyond 2^22 positions the fast rows' three-part reduction of the angle loses bits (kernels/elementwise/body.inc).
#define MAX_POSITION (1 << 22)

static rd_status check_positions(const char *op, const rd_tensor *positions, int64_t tokens, bool readable) {
    RDI_TRY(rdi_operand_vector(op, "positions", positions, RD_DTYPE_I32, tokens));
    const int32_t *values = positions->data;
    for (int64_t t = 0; readable && t < tokens; t++)
        if (values[t] < 0 || values[t] > MAX_POSITION)
            return rdi_fail(RD_E_INVALID, "%s: positions[%lld]=%d, needs 0..%d", op, (long long)t, values[t],
                            MAX_POSITION);
    return RD_OK;
}

static rd_status check_norms(const char *op, const rd_plan *plan, const rd_rope_args *args,
                             int64_t head_dim) {
    bool norm = rdi_plan_int(plan, "qk_norm") != 0, has_k = args->k.data != NULL;
    RDI_TRY(rdi_operand_planned(op, "q_norm", &args->q_norm, "qk_norm", norm));
    if (has_k) RDI_TRY(rdi_operand_planned(op, "k_norm", &args->k_norm, "qk_norm", norm));
    if (!norm) return RD_OK;
    RDI_TRY(rdi_operand_vector(op, "q_norm", &args->q_norm, RD_DTYPE_NONE, head_dim));
    return has_k ? rdi_operand_vector(op, "k_norm", &args->k_norm, args->q_norm.dtype, head_dim) : RD_OK;
}

rd_status rdi_rope_bind(const rd_plan *plan, const char *op, const rd_rope_args *args, rdi_rope_args *out) {
    int64_t tokens = args->q.shape[0], head_dim = rdi_plan_int(plan, "head_dim"),
            rotary = rdi_plan_int(plan, "rotary_dim");
    if (rotary < 2 || rotary % 2 || rotary > head_dim)
        return rdi_fail(RD_E_INVALID, "%s: rotary_dim=%lld, needs an even number from 2 to head_dim=%lld", op,
                        (long long)rotary, (long long)head_dim);
    const char *style = rdi_plan_word(plan, "style");
    if (!style) return rdi_fail(RD_E_INVALID, "%s: the plan has no style, needs neox or interleaved", op);
    bool has_k = args->k.data != NULL;
    RDI_TRY(rdi_operand_heads(op, "q", &args->q, rdi_plan_dtype(plan, "x_dtype"), tokens, args->q.shape[1],
                              head_dim));
    if (has_k)
        RDI_TRY(rdi_operand_heads(op, "k", &args->k, args->q.dtype, tokens, args->k.shape[1], head_dim));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"q", &args->q}, {"k", &args->k}, {"positions", &args->positions},
                             {"inv_freq", &args->inv_freq}, {"q_norm", &args->q_norm},
                             {"k_norm", &args->k_norm}));
    RDI_TRY(check_positions(op, &args->positions, tokens, rdi_plan_on_host(plan)));
    RDI_TRY(rdi_check_apart(op, "q", &args->q));
    if (has_k) RDI_TRY(rdi_check_apart(op, "k", &args->k));
    RDI_TRY(rdi_operand_vector(op, "inv_freq", &args->inv_freq, RD_DTYPE_F32, rotary / 2));
    RDI_TRY(check_norms(op, plan, args, head_dim));
    *out = (rdi_rope_args){
        .tokens = tokens,
        .q_heads = args->q.shape[1],
        .k_heads = has_k ? args->k.shape[1] : 0,
        .head_dim = head_dim,
        .rotary_dim = rotary,
        .q = args->q.data,
        .k = args->k.data,
        .q_stride_token = args->q.stride[0],
        .q_stride_head = args->q.stride[1],
        .k_stride_token = args->k.stride[0],
        .k_stride_head = args->k.stride[1],
        .positions = args->positions.data,
        .inv_freq = args->inv_freq.data,
        .q_norm = args->q_norm.data,
        .k_norm = args->k_norm.data,
        .q_dtype = args->q.dtype,
        .k_dtype = args->k.dtype,
        .norm_dtype = args->q_norm.dtype,
        .eps = args->eps,
        .unit_offset = args->unit_offset,
        .tables_settled = args->tables_settled != 0,
        .interleaved = strcmp(style, "interleaved") == 0,
    };
    return RD_OK;
}

rd_status rd_rope_run(const rd_plan *plan, const rd_rope_args *args, rd_stream stream) {
    static const char op[] = "rope";
    rdi_rope_args kernel = {0};
    RDI_TRY(rdi_operand_begin(plan, op, args, sizeof *args));
    RDI_TRY(rdi_rope_bind(plan, op, args, &kernel));
    const rdi_row *row = rdi_plan_row(plan, 0);
    if (row && !kernel.tokens) return RD_OK;
    return row ? rdi_row_launch(plan, row, &kernel, NULL, stream) : RD_E_INVALID;
}
