// SPDX-License-Identifier: Apache-2.0
// What src/ops/<family>.c needs of a plan: its normalised query, the row for an interval value, the pool.
//
// Key words fixed for all: dtypes "fp32 bf16 fp16 fp8_e4m3 e8m0"; layout "row shuffle16 panel16 tile64"; fuse "none rmsnorm
// add_rmsnorm silu_mul gelu_mul"; k_order "dim" (head_dim contiguous) or "token" (16 tokens contiguous per dim: token stride 1, dim
// stride 16, block_tokens a multiple of 16, stride between 16-token groups 16*head_dim); style "neox interleaved"; act "silu
// gelu_tanh"; window, softcap, sinks, causal, residual, bias, qk_norm 0 or 1.
#ifndef RDI_PLAN_H
#define RDI_PLAN_H

#include "registry/registry.h"

const char *rdi_plan_op(const rd_plan *plan);
// Row for interval value `at`; NULL with RD_E_INVALID text when `at` lies outside the plan ("m=9: the plan covers 1..8").
const rdi_row *rdi_plan_row(const rd_plan *plan, int64_t at);
int64_t rdi_plan_int(const rd_plan *plan, const char *key);      // 0 when the question did not give it
const char *rdi_plan_word(const rd_plan *plan, const char *key); // NULL when the question did not give it
rd_dtype rdi_plan_dtype(const rd_plan *plan, const char *key);   // RD_DTYPE_NONE when not given

// ---- checks shared by the run entries (src/ops/check.c); errors read "gemm: a: dtype=bf16, needs fp8_e4m3" -------------
rd_status rdi_check_struct(const char *op, uint32_t seen, size_t needed);
// Presence, rank, dtype; dtype RD_DTYPE_NONE = any of the floating types.
rd_status rdi_check_tensor(const char *op, const char *field, const rd_tensor *tensor, int32_t rank,
                           rd_dtype dtype);
rd_status rdi_check_dim(const char *op, const char *field, const rd_tensor *tensor, int32_t axis,
                        int64_t needed);
rd_status rdi_check_stride(const char *op, const char *field, const rd_tensor *tensor, int32_t axis,
                           int64_t needed);
// No element twice: for what a kernel writes. After rdi_check_tensor, which bounds the extent.
rd_status rdi_check_apart(const char *op, const char *field, const rd_tensor *tensor);
// The ws protocol of radiance.h: with ws == NULL stores `needed` in *ws_bytes and sets *done; else checks size, alignment.
rd_status rdi_check_workspace(const char *op, size_t needed, void *ws, size_t *ws_bytes, bool *done);
// Every operand lies where the plan's device is: host memory for the CPU, memory of the card for a GPU. Operands that are
// not given (data == NULL) are passed over.
typedef struct rdi_operand {
    const char *field;
    const rd_tensor *tensor;
} rdi_operand;
rd_status rdi_check_places(const rd_plan *plan, const rdi_operand *operands, size_t count);
#define RDI_CHECK_PLACES(plan_, ...)                                                                         \
    rdi_check_places((plan_), (const rdi_operand[]){__VA_ARGS__},                                            \
                     sizeof((const rdi_operand[]){__VA_ARGS__}) / sizeof(rdi_operand))
// May the host read the operands' contents? False on a card: there the kernels keep to their bounds themselves.
bool rdi_plan_on_host(const rd_plan *plan);

// Size of the workspace of `row` for args; launch on the plan's pool or card (launch.c).
size_t rdi_row_ws_bytes(const rd_plan *plan, const rdi_row *row, const void *args);
rd_status rdi_row_launch(const rd_plan *plan, const rdi_row *row, const void *args, void *ws,
                         rd_stream stream);

// What launch.c needs of a plan.
const rd_ctx *rdi_plan_ctx(const rd_plan *plan);
bool rdi_plan_starts_in_turn(const rd_plan *plan); // shared.h: rdi_plan_start_in_turn
const struct rdi_loaded *rdi_plan_loaded(const rd_plan *plan, const rdi_row *row); // code object of a GPU row

#endif // RDI_PLAN_H
