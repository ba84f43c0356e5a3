// SPDX-License-Identifier: Apache-2.0
// Run entries of rmsnorm, act_mul and embed: check every operand against the plan, then launch the planned row.
#include "kernels/elementwise/args.h"
#include "ops/operand.h"

#include <string.h>

rd_status rd_rmsnorm_run(const rd_plan *plan, const rd_rmsnorm_args *args, rd_stream stream) {
    static const char op[] = "rmsnorm";
    RDI_TRY(rdi_operand_begin(plan, op, args, sizeof *args));
    int64_t m = args->x.shape[0], k = rdi_plan_int(plan, "k");
    bool residual = rdi_plan_int(plan, "residual") != 0;
    RDI_TRY(rdi_operand_rows(op, "x", &args->x, rdi_plan_dtype(plan, "x_dtype"), m, k, false));
    RDI_TRY(rdi_operand_planned(op, "residual", &args->residual, "residual", residual));
    if (residual) RDI_TRY(rdi_operand_rows(op, "residual", &args->residual, RD_DTYPE_NONE, m, k, true));
    RDI_TRY(rdi_operand_vector(op, "weight", &args->weight, rdi_plan_dtype(plan, "weight_dtype"), k));
    RDI_TRY(rdi_operand_rows(op, "y", &args->y, rdi_plan_dtype(plan, "y_dtype"), m, k, true));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"x", &args->x}, {"residual", &args->residual}, {"weight", &args->weight},
                             {"y", &args->y}));
    const rdi_row *row = rdi_plan_row(plan, m);
    if (!row) return RD_E_INVALID;
    const rdi_rmsnorm_args kernel = {
        .m = m,
        .k = k,
        .x = args->x.data,
        .residual = args->residual.data,
        .weight = args->weight.data,
        .y = args->y.data,
        .x_stride = args->x.stride[0],
        .residual_stride = args->residual.stride[0],
        .y_stride = args->y.stride[0],
        .x_dtype = args->x.dtype,
        .residual_dtype = args->residual.dtype,
        .weight_dtype = args->weight.dtype,
        .y_dtype = args->y.dtype,
        .eps = args->eps,
        .unit_offset = args->unit_offset,
    };
    return rdi_row_launch(plan, row, &kernel, NULL, stream);
}

rd_status rd_act_mul_run(const rd_plan *plan, const rd_act_mul_args *args, rd_stream stream) {
    static const char op[] = "act_mul";
    RDI_TRY(rdi_operand_begin(plan, op, args, sizeof *args));
    int64_t m = args->gate.shape[0], k = rdi_plan_int(plan, "k");
    RDI_TRY(rdi_operand_rows(op, "gate", &args->gate, rdi_plan_dtype(plan, "x_dtype"), m, k, false));
    RDI_TRY(rdi_operand_rows(op, "up", &args->up, args->gate.dtype, m, k, false));
    RDI_TRY(rdi_operand_rows(op, "y", &args->y, rdi_plan_dtype(plan, "y_dtype"), m, k, true));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"gate", &args->gate}, {"up", &args->up}, {"y", &args->y}));
    const char *act = rdi_plan_word(plan, "act");
    if (!act) return rdi_fail(RD_E_INVALID, "%s: the plan has no act, needs silu or gelu_tanh", op);
    const rdi_row *row = rdi_plan_row(plan, m);
    if (!row) return RD_E_INVALID;
    const rdi_act_mul_args kernel = {
        .m = m,
        .k = k,
        .gate = args->gate.data,
        .up = args->up.data,
        .y = args->y.data,
        .gate_stride = args->gate.stride[0],
        .up_stride = args->up.stride[0],
        .y_stride = args->y.stride[0],
        .x_dtype = args->gate.dtype,
        .y_dtype = args->y.dtype,
        .act = strcmp(act, "gelu_tanh") == 0 ? RDI_ACT_GELU_TANH : RDI_ACT_SILU,
    };
    return rdi_row_launch(plan, row, &kernel, NULL, stream);
}

rd_status rd_embed_run(const rd_plan *plan, const rd_embed_args *args, rd_stream stream) {
    static const char op[] = "embed";
    RDI_TRY(rdi_operand_begin(plan, op, args, sizeof *args));
    int64_t tokens = args->ids.shape[0], vocab = args->table.shape[0], k = rdi_plan_int(plan, "k");
    RDI_TRY(
        rdi_operand_rows(op, "table", &args->table, rdi_plan_dtype(plan, "table_dtype"), vocab, k, false));
    RDI_TRY(rdi_operand_vector(op, "ids", &args->ids, RD_DTYPE_I32, tokens));
    RDI_TRY(rdi_operand_rows(op, "y", &args->y, rdi_plan_dtype(plan, "y_dtype"), tokens, k, true));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"table", &args->table}, {"ids", &args->ids}, {"y", &args->y}));
    const int32_t *ids = args->ids.data;
    for (int64_t t = 0; rdi_plan_on_host(plan) && t < tokens; t++)
        if (ids[t] < 0 || ids[t] >= vocab)
            return rdi_fail(RD_E_INVALID, "%s: ids[%lld]=%d, needs 0..%lld", op, (long long)t, ids[t],
                            (long long)vocab - 1);
    const rdi_row *row = rdi_plan_row(plan, 0);
    if (!row) return RD_E_INVALID;
    const rdi_embed_args kernel = {
        .tokens = tokens,
        .vocab = vocab,
        .k = k,
        .table = args->table.data,
        .table_stride = args->table.stride[0],
        .ids = ids,
        .y = args->y.data,
        .y_stride = args->y.stride[0],
        .table_dtype = args->table.dtype,
        .y_dtype = args->y.dtype,
        .scale = args->scale,
    };
    if (!kernel.tokens) return RD_OK;
    return rdi_row_launch(plan, row, &kernel, NULL, stream);
}
