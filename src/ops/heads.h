// SPDX-License-Identifier: Apache-2.0
// rope and kv_write as halves: each one's operands are checked against a plan and turned into its kernels' arguments, for the
// op itself and for rope_kv_write. `op` begins the error texts.
#ifndef RDI_HEADS_H
#define RDI_HEADS_H

#include "kernels/elementwise/args.h"
#include "ops/operand.h"

rd_status rdi_rope_bind(const rd_plan *plan, const char *op, const rd_rope_args *args, rdi_rope_args *out);
rd_status rdi_kv_write_bind(const rd_plan *plan, const char *op, const rd_kv_write_args *args,
                            rdi_kv_write_args *out);

#endif // RDI_HEADS_H
