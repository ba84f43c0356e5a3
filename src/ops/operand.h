// SPDX-License-Identifier: Apache-2.0
// Operand checks shared by the small ops' run entries: what a plan must be, rows of a matrix, vectors.
#ifndef RDI_OPERAND_H
#define RDI_OPERAND_H

#include "ops/plan.h"

// plan and args are given, the plan is one for `op`, and the args struct is at least `bytes` long (its first field).
rd_status rdi_operand_begin(const rd_plan *plan, const char *op, const void *args, size_t bytes);
// [m, k], the last axis contiguous; k and dtype as planned. An output's rows must not overlap.
rd_status rdi_operand_rows(const char *op, const char *field, const rd_tensor *tensor, rd_dtype dtype,
                           int64_t m, int64_t k, bool output);
// [n], contiguous.
rd_status rdi_operand_vector(const char *op, const char *field, const rd_tensor *tensor, rd_dtype dtype,
                             int64_t n);
// [tokens, heads, head_dim], the last axis contiguous.
rd_status rdi_operand_heads(const char *op, const char *field, const rd_tensor *tensor, rd_dtype dtype,
                            int64_t tokens, int64_t heads, int64_t head_dim);
// An optional operand is given exactly when the plan says so.
rd_status rdi_operand_planned(const char *op, const char *field, const rd_tensor *tensor, const char *key,
                              bool planned);

#endif // RDI_OPERAND_H
