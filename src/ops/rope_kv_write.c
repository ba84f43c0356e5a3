// SPDX-License-Identifier: Apache-2.0
// Run entry of rope_kv_write: the checks of both halves, and that they speak of the same k. Nothing is written before all hold.
#include "ops/heads.h"

static const char op[] = "rope_kv_write";

// kv->k is left out or names rope->k again: what is rotated is what is written.
static rd_status check_same_k(const rd_tensor *rope, const rd_tensor *kv) {
    if (!rope->data) return rdi_fail(RD_E_INVALID, "%s: k: data=NULL, needs a tensor", op);
    if (!kv->data) return RD_OK;
    bool same = rope->data == kv->data && rope->rank == kv->rank && rope->dtype == kv->dtype &&
                rope->device == kv->device;
    for (int32_t axis = 0; same && axis < rope->rank && axis < RD_MAX_RANK; axis++)
        same = rope->shape[axis] == kv->shape[axis] && rope->stride[axis] == kv->stride[axis];
    if (same) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: kv->k differs from rope->k, needs the same tensor or none", op);
}

rd_status rd_rope_kv_write_run(const rd_plan *plan, const rd_rope_args *rope, const rd_kv_write_args *kv,
                               rd_stream stream) {
    rdi_rope_kv_write_args kernel;
    RDI_TRY(rdi_operand_begin(plan, op, rope, sizeof *rope));
    RDI_TRY(rdi_operand_begin(plan, op, kv, sizeof *kv));
    RDI_TRY(check_same_k(&rope->k, &kv->k));
    rd_kv_write_args write = *kv;
    write.k = rope->k;
    RDI_TRY(rdi_rope_bind(plan, op, rope, &kernel.rope));
    RDI_TRY(rdi_kv_write_bind(plan, op, &write, &kernel.kv));
    const rdi_row *row = rdi_plan_row(plan, 0);
    if (row && !kernel.rope.tokens) return RD_OK;
    return row ? rdi_row_launch(plan, row, &kernel, NULL, stream) : RD_E_INVALID;
}
