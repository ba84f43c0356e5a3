// SPDX-License-Identifier: Apache-2.0
// The cases of the check at first use: what first_use.c runs and first_use_cases.c lists.
#ifndef RDI_FIRST_USE_CASES_H
#define RDI_FIRST_USE_CASES_H

#include "base/base.h"

enum { RDI_CASE_OPERANDS = 10, RDI_CASE_PARAMS = 12 };

typedef enum rdi_case_fill {
    RDI_FILL_NORMAL,
    RDI_FILL_CODES,
    RDI_FILL_SCALES,
    RDI_FILL_ZEROS,
    RDI_FILL_IDS,
    RDI_FILL_POSITIONS,
    RDI_FILL_SLOTS,
    RDI_FILL_LENGTHS,
    RDI_FILL_STARTS,
    RDI_FILL_TABLE,
    RDI_FILL_WEIGHT
} rdi_case_fill;
typedef struct rdi_case_operand {
    size_t offset; // in the op's args
    rdi_case_fill fill;
    const char *key; // of the plan: its dtype; NULL = `dtype`
    rd_dtype dtype;
    bool written;
    int32_t rank, shape[4];
} rdi_case_operand;

typedef union rdi_any_args {
    rd_gemm_args gemm;
    rd_quant_args quant;
    rd_attn_args attn;
    rd_rmsnorm_args rmsnorm;
    rd_rope_args rope;
    rd_act_mul_args act_mul;
    rd_kv_write_args kv_write;
    rd_embed_args embed;
    rd_sample_args sample;
    struct {
        rd_rope_args rope;
        rd_kv_write_args kv;
    } rope_kv_write;
} rdi_any_args;

typedef rd_status (*rdi_case_run_fn)(const rd_plan *plan, const rdi_any_args *args, void *ws, size_t *bytes);
typedef struct rdi_op_case {
    const char *op;
    rdi_case_run_fn run;
    rdi_any_args args; // what is no tensor
    int64_t at;        // of the interval key; 0 = none
    rd_param params[RDI_CASE_PARAMS];
    rdi_case_operand operands[RDI_CASE_OPERANDS];
    const char *more;  // NULL: the op's first case; else what it tries beyond that, of rows that take it
    const char *order; // rows of this class alone; NULL: every row
} rdi_op_case;

// The op's case after that one, or its first after NULL; NULL: no more.
const rdi_op_case *rdi_op_case_next(const char *op, const rdi_op_case *after);
// sample: its rows, which a card wants in its memory; NULL: the case has none.
const void *rdi_op_case_settings(const rdi_op_case *c, size_t *bytes);
int64_t rdi_case_elems(const rd_tensor *tensor);
// Fills the tensor's data; numbers continue from *state, so that a card is judged by the same ones each time.
void rdi_case_fill_tensor(const rdi_case_operand *o, rd_tensor *tensor, uint64_t *state);

#endif // RDI_FIRST_USE_CASES_H
