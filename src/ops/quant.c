// SPDX-License-Identifier: Apache-2.0
// Run entry of quant_fp8 and its fusions: check every operand against the plan, then launch the planned row.
#include "kernels/quant_fp8/args.h"
#include "ops/operand.h"

#include <string.h>

static const char op[] = "quant_fp8";

static rd_status parse_fuse(const rd_plan *plan, rdi_quant_fuse *out) {
    static const char *const words[] = {"none", "rmsnorm", "add_rmsnorm", "silu_mul", "gelu_mul"};
    const char *word = rdi_plan_word(plan, "fuse");
    for (size_t i = 0; word && i < RDI_COUNT(words); i++) {
        if (strcmp(word, words[i]) != 0) continue;
        *out = (rdi_quant_fuse)i;
        return RD_OK;
    }
    return rdi_fail(RD_E_INVALID, "%s: fuse=%s, needs one of: none rmsnorm add_rmsnorm silu_mul gelu_mul", op,
                    word ? word : "(not given)");
}

static rd_status check_operands(const rd_plan *plan, const rd_quant_args *args, rdi_quant_fuse fuse) {
    int64_t m = args->x.shape[0], k = rdi_plan_int(plan, "k");
    RDI_TRY(rdi_operand_rows(op, "x", &args->x, rdi_plan_dtype(plan, "x_dtype"), m, k, false));
    if (rdi_fuse_takes_up(fuse)) RDI_TRY(rdi_operand_rows(op, "up", &args->up, RD_DTYPE_NONE, m, k, false));
    if (fuse == RDI_FUSE_ADD_RMSNORM)
        RDI_TRY(rdi_operand_rows(op, "residual", &args->residual, RD_DTYPE_NONE, m, k, true));
    if (fuse == RDI_FUSE_RMSNORM || fuse == RDI_FUSE_ADD_RMSNORM)
        RDI_TRY(rdi_operand_vector(op, "norm_weight", &args->norm_weight, RD_DTYPE_NONE, k));
    RDI_TRY(rdi_operand_rows(op, "q", &args->q, RD_DTYPE_E4M3, m, k, true));
    RDI_TRY(rdi_check_tensor(op, "q_scale", &args->q_scale, 2, RD_DTYPE_F32));
    RDI_TRY(rdi_check_dim(op, "q_scale", &args->q_scale, 0, m));
    return rdi_check_dim(op, "q_scale", &args->q_scale, 1, rdi_ceil_div(k, 128));
}

rd_status rd_quant_run(const rd_plan *plan, const rd_quant_args *args, void *ws, size_t *ws_bytes,
                       rd_stream stream) {
    RDI_TRY(rdi_operand_begin(plan, op, args, sizeof *args));
    rdi_quant_fuse fuse = RDI_FUSE_NONE;
    RDI_TRY(parse_fuse(plan, &fuse));
    const rdi_row *row = rdi_plan_row(plan, args->x.shape[0]);
    if (!row) return RD_E_INVALID;
    const rdi_quant_args kernel = {
        .m = args->x.shape[0],
        .k = rdi_plan_int(plan, "k"),
        .x = args->x.data,
        .up = args->up.data,
        .residual = args->residual.data,
        .norm_weight = args->norm_weight.data,
        .q = args->q.data,
        .q_scale = args->q_scale.data,
        .x_stride = args->x.stride[0],
        .up_stride = args->up.stride[0],
        .residual_stride = args->residual.stride[0],
        .q_stride = args->q.stride[0],
        .q_scale_stride_m = args->q_scale.stride[0],
        .q_scale_stride_k = args->q_scale.stride[1],
        .x_dtype = args->x.dtype,
        .up_dtype = args->up.dtype,
        .residual_dtype = args->residual.dtype,
        .norm_dtype = args->norm_weight.dtype,
        .eps = args->eps,
        .unit_offset = args->unit_offset,
        .fuse = fuse,
    };
    bool done = false;
    RDI_TRY(rdi_check_workspace(op, rdi_row_ws_bytes(plan, row, &kernel), ws, ws_bytes, &done));
    if (done) return RD_OK;
    RDI_TRY(check_operands(plan, args, fuse));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"x", &args->x}, {"up", &args->up}, {"residual", &args->residual},
                             {"norm_weight", &args->norm_weight}, {"q", &args->q},
                             {"q_scale", &args->q_scale}));
    return rdi_row_launch(plan, row, &kernel, ws, stream);
}
