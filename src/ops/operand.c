// SPDX-License-Identifier: Apache-2.0
// Operand checks shared by the small ops' run entries.
#include "ops/operand.h"

#include <string.h>

rd_status rdi_operand_begin(const rd_plan *plan, const char *op, const void *args, size_t bytes) {
    if (!plan) return rdi_fail(RD_E_INVALID, "%s: plan=NULL, needs a plan", op);
    if (!args) return rdi_fail(RD_E_INVALID, "%s: args=NULL, needs the op's arguments", op);
    if (strcmp(rdi_plan_op(plan), op) != 0)
        return rdi_fail(RD_E_INVALID, "%s: the plan is for %s, needs one for %s", op, rdi_plan_op(plan), op);
    uint32_t seen;
    memcpy(&seen, args, sizeof seen);
    return rdi_check_struct(op, seen, bytes);
}

rd_status rdi_operand_rows(const char *op, const char *field, const rd_tensor *tensor, rd_dtype dtype,
                           int64_t m, int64_t k, bool output) {
    RDI_TRY(rdi_check_tensor(op, field, tensor, 2, dtype));
    RDI_TRY(rdi_check_dim(op, field, tensor, 0, m));
    RDI_TRY(rdi_check_dim(op, field, tensor, 1, k));
    if (k > 1) RDI_TRY(rdi_check_stride(op, field, tensor, 1, 1));
    if (output && m > 1 && tensor->stride[0] < k)
        return rdi_fail(RD_E_INVALID,
                        "%s: %s: stride[0]=%lld, needs >= %lld: rows of an output must not overlap", op,
                        field, (long long)tensor->stride[0], (long long)k);
    return RD_OK;
}

rd_status rdi_operand_vector(const char *op, const char *field, const rd_tensor *tensor, rd_dtype dtype,
                             int64_t n) {
    RDI_TRY(rdi_check_tensor(op, field, tensor, 1, dtype));
    RDI_TRY(rdi_check_dim(op, field, tensor, 0, n));
    return n > 1 ? rdi_check_stride(op, field, tensor, 0, 1) : RD_OK;
}

rd_status rdi_operand_heads(const char *op, const char *field, const rd_tensor *tensor, rd_dtype dtype,
                            int64_t tokens, int64_t heads, int64_t head_dim) {
    RDI_TRY(rdi_check_tensor(op, field, tensor, 3, dtype));
    RDI_TRY(rdi_check_dim(op, field, tensor, 0, tokens));
    RDI_TRY(rdi_check_dim(op, field, tensor, 1, heads));
    RDI_TRY(rdi_check_dim(op, field, tensor, 2, head_dim));
    return head_dim > 1 ? rdi_check_stride(op, field, tensor, 2, 1) : RD_OK;
}

rd_status rdi_operand_planned(const char *op, const char *field, const rd_tensor *tensor, const char *key,
                              bool planned) {
    if (planned == (tensor->data != NULL)) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s is %s, needs what the plan says: %s=%d", op, field,
                    tensor->data ? "given" : "not given", key, planned ? 1 : 0);
}
