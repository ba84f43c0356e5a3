// SPDX-License-Identifier: Apache-2.0
// Run entry of quant_gemm_fp8block: the checks of both halves, whose codes no caller sees. Nothing is written before all hold.
#include "ops/quant_gemm.h"
#include "ops/operand.h"

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

static rd_status check_soon(const rd_plan *plan, const rd_tensor *soon, rdi_quant_gemm_args *out) {
    out->soon = NULL;
    out->soon_bytes = 0;
    if (!soon || !soon->data) return RD_OK;
    RDI_TRY(rdi_check_tensor(op, "soon", soon, 1, RD_DTYPE_NONE));
    RDI_TRY(rdi_check_stride(op, "soon", soon, 0, 1));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"soon", soon}));
    if ((uintptr_t)soon->data % 16)
        return rdi_fail(RD_E_INVALID, "%s: soon: data=%p, needs alignment to 16 bytes", op, soon->data);
    out->soon = soon->data;
    out->soon_bytes = soon->shape[0] * (int64_t)rd_dtype_bytes(soon->dtype);
    return RD_OK;
}

rd_status rd_quant_gemm_run(const rd_plan *plan, const rd_quant_args *quant, const rd_gemm_args *gemm,
                            const rd_tensor *soon, void *ws, size_t *ws_bytes, rd_stream stream) {
    rdi_quant_gemm_args kernel;
    RDI_TRY(rdi_operand_begin(plan, op, quant, sizeof *quant));
    RDI_TRY(rdi_operand_begin(plan, op, gemm, sizeof *gemm));
    RDI_TRY(check_absent("q", &quant->q));
    RDI_TRY(check_absent("q_scale", &quant->q_scale));
    RDI_TRY(check_absent("a", &gemm->a));
    RDI_TRY(check_absent("a_scale", &gemm->a_scale));
    RDI_TRY(rdi_quant_bind(plan, op, quant, &kernel.quant));
    RDI_TRY(rdi_quant_check_input(plan, op, quant, kernel.quant.fuse));
    RDI_TRY(rdi_gemm_bind_product(plan, op, gemm, kernel.quant.m, kernel.quant.k, &kernel.gemm));
    RDI_TRY(check_accumulate(plan, gemm, &kernel.accumulate));
    RDI_TRY(check_soon(plan, soon, &kernel));
    const rdi_row *row = rdi_plan_row(plan, kernel.quant.m);
    if (!row) return RD_E_INVALID;
    bool done = false;
    RDI_TRY(rdi_check_workspace(op, rdi_row_ws_bytes(plan, row, &kernel), ws, ws_bytes, &done));
    return done ? RD_OK : rdi_row_launch(plan, row, &kernel, ws, stream);
}
