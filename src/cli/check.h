// SPDX-License-Identifier: Apache-2.0
// radiance check: every kernel row that this machine runs, against the reference row of its op, through the public header
// alone, so that what is judged is what a caller gets. An op's cases live in check_<family>.c; rows come from the registry,
// so that a new row is covered without an edit here.
#ifndef CLI_CHECK_H
#define CLI_CHECK_H

#include "cli.h"

typedef struct check_row { // one kernel's tally
    const rd_kernel_info *kernel;
    int64_t cases, failed, refused;
    double worst; // error as a share of the limit; above 1 fails
    double worst_limit;
    const char *worst_measure; // what the limit is one of
    char worst_case[96];
    char failure[224]; // text of the first failure
    char refusal[224]; // text of the last refusal
} check_row;

enum { CHECK_MOST_ROWS = 64 };
typedef struct check_run { // one op
    rd_ctx *ctx, *host;    // of the rows, of the reference (one and the same on the CPU)
    bool simulated;        // a card that is simulated: small shapes, --full for the whole grid
    bool small;            // small shapes: a simulated card, or asked for
    bool on_card;          // a real one: cases that launch the kernels which no case of the grid does
    const char *op;
    uint64_t seed;
    bool full;
    const rd_kernel_info *reference;
    check_row rows[CHECK_MOST_ROWS];
    int row_count;
    rd_status status; // of the machinery: out of memory and the like
    char fault[512];  // what stopped the card, when that is why
} check_run;

// How judged values are compared with the reference's.
typedef enum check_judge {
    CHECK_MEAN,  // mean |got - want| / mean |want| < limit
    CHECK_CLOSE, // |got - want| <= limit * |want| + least, everywhere
    CHECK_SHARE, // values that differ at all: at most limit * count, or `least` of them
    CHECK_CODES  // the same, and by no more than one step
} check_judge;
typedef struct check_output {
    check_judge judge;
    double limit, least;
    int64_t count;
    float *got, *want; // [count], freed by check_case_run's caller through check_output_free
    float *first;      // of the first row of `order`: rows of one class must equal it bit for bit
    const char *order;
} check_output;

enum { CHECK_OUTPUTS = 3 };
typedef struct check_case {
    rd_ctx *ctx; // of the plan at hand: set by check_case_run
    char name[96];
    const rd_param *params;
    int32_t param_count;
    int64_t at; // value of the op's interval key, 0 when it has none
    // Runs the op once from the case's inputs and leaves the judged values in outputs[].got. kernel tells a plain-C row,
    // which may be given the judged part of the problem alone: bits do not depend on the rest.
    rd_status (*execute)(struct check_case *c, const rd_plan *plan, const rd_kernel_info *kernel);
    void *data;
    check_output outputs[CHECK_OUTPUTS];
    int output_count;
    bool have_reference;
} check_case;

rd_status check_output_new(check_output *output, check_judge judge, double limit, double least,
                           int64_t count);
void check_output_free(check_output *output);
// The reference (once a case, however often it is called with other params), then every row.
void check_case_run(check_run *run, check_case *c);

// One call of the op with operands in host memory, workspace included; on a card the operands are copied there and back.
enum { CHECK_TENSORS = 12 };
// Where an args struct holds tensors; `writes` has a bit for each that the op writes.
typedef struct check_op {
    rd_status (*run)(const rd_plan *plan, const void *args, void *ws, size_t *bytes, rd_stream stream);
    size_t bytes;
    uint32_t writes;
    int count;
    size_t tensor[CHECK_TENSORS];
} check_op;
const check_op *check_op_of(const char *op); // NULL: none
// From a tensor's first to its last element; at least the dense size, because token-ordered caches lie in groups.
size_t check_span_bytes(const rd_tensor *t);
extern const check_op check_op_gemm, check_op_quant, check_op_attn, check_op_rmsnorm, check_op_rope,
    check_op_act_mul, check_op_kv_write, check_op_rope_kv_write, check_op_embed, check_op_sample;
typedef struct check_rope_kv_write_args { // its run entry takes two structs
    rd_rope_args rope;
    rd_kv_write_args kv;
} check_rope_kv_write_args;
enum { CHECK_ARGS_BYTES = sizeof(check_rope_kv_write_args) };
_Static_assert(CHECK_ARGS_BYTES >= sizeof(rd_attn_args), "the largest args of an op");
rd_status check_call(rd_ctx *ctx, const check_op *op, const rd_plan *plan, const void *args);

// ---- numbers -----------------------------------------------------------------------------------------------------------
uint64_t check_random(uint64_t *state);
float check_normal(uint64_t *state); // mean 0, deviation 1
// [count] values of `dtype` (fp32, bf16, fp16) from deviates of the given size; freed by free.
void *check_values(uint64_t *state, rd_dtype dtype, int64_t count, float size);
uint8_t *check_codes(uint64_t *state, int64_t count); // e4m3 codes, no NaN
float check_read(const void *data, rd_dtype dtype, int64_t at);

// ---- the cases -----------------------------------------------------------------------------------------------------------
void check_gemm(check_run *run);
void check_attn(check_run *run);
void check_quant(check_run *run);
void check_rmsnorm(check_run *run);
void check_rope(check_run *run);
void check_act_mul(check_run *run);
void check_kv_write(check_run *run);
void check_rope_kv_write(check_run *run);
void check_embed(check_run *run);
void check_sample(check_run *run);

#endif // CLI_CHECK_H
