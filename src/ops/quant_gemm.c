// SPDX-License-Identifier: Apache-2.0
// Run entry of quant_gemm_fp8block: the checks of both halves, whose codes no caller sees. Nothing is written before all hold.
#include "ops/quant_gemm.h"
#include "ops/operand.h"

#include <stddef.h>

static const char op[] = "quant_gemm_fp8block";

static rd_status check_absent(const char *field, const rd_tensor *tensor) {
    if (!tensor->data) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s is given, needs to be left out: codes stay inside", op, field);
}

static rd_status check_accumulate(const rd_plan *plan, const rd_gemm_args *gemm, bool *out) {
    *out = rdi_plan_int(plan, "accumulate") == 1;
    if (!*out || gemm->c.dtype == RD_DTYPE_F32) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: c: dtype=%s, needs fp32 to accumulate", op, rd_dtype_name(gemm->c.dtype));
}

rd_status rd_quant_gemm_run(const rd_plan *plan, const rd_quant_args *quant, const rd_gemm_args *gemm,
                            void *ws, size_t *ws_bytes, rd_stream stream) {
    rdi_quant_gemm_args kernel;
    RDI_TRY(rdi_operand_begin(plan, op, quant, sizeof *quant));
    RDI_TRY(rdi_operand_begin(plan, op, gemm, offsetof(rd_gemm_args, soon)));
    RDI_TRY(check_absent("q", &quant->q));
    RDI_TRY(check_absent("q_scale", &quant->q_scale));
    RDI_TRY(check_absent("a", &gemm->a));
    RDI_TRY(check_absent("a_scale", &gemm->a_scale));
    RDI_TRY(rdi_quant_bind(plan, op, quant, &kernel.quant));
    RDI_TRY(rdi_quant_check_input(plan, op, quant, kernel.quant.fuse));
    RDI_TRY(rdi_gemm_bind_product(plan, op, gemm, kernel.quant.m, kernel.quant.k, &kernel.gemm));
    RDI_TRY(check_accumulate(plan, gemm, &kernel.accumulate));
    const rdi_row *row = rdi_plan_row(plan, kernel.quant.m);
    if (!row) return RD_E_INVALID;
    bool done = false;
    RDI_TRY(rdi_check_workspace(op, rdi_row_ws_bytes(plan, row, &kernel), ws, ws_bytes, &done));
    return done ? RD_OK : rdi_row_launch(plan, row, &kernel, ws, stream);
}
