// SPDX-License-Identifier: Apache-2.0
// Run entry of sample. A greedy row (temperature 0) is recognised before its other settings are looked at: engines leave
// top_k = vocab and the like there.
#include "kernels/elementwise/args.h"
#include "ops/operand.h"

#include <math.h>

static const char op[] = "sample";

static rd_status check_row(int64_t index, const rd_sample_row *row) {
    long long i = index;
    if (row->temperature == 0.0f) return RD_OK;
    if (!(row->temperature > 0.0f) || isinf(row->temperature))
        return rdi_fail(RD_E_INVALID, "%s: rows[%lld].temperature=%g, needs 0 or a finite number > 0", op, i,
                        (double)row->temperature);
    if (!(row->top_p >= 0.0f && row->top_p <= 1.0f))
        return rdi_fail(RD_E_INVALID, "%s: rows[%lld].top_p=%g, needs 0..1 (1 = off)", op, i,
                        (double)row->top_p);
    if (!(row->min_p >= 0.0f && row->min_p <= 1.0f))
        return rdi_fail(RD_E_INVALID, "%s: rows[%lld].min_p=%g, needs 0..1 (0 = off)", op, i,
                        (double)row->min_p);
    if (row->top_k < 0)
        return rdi_fail(RD_E_INVALID, "%s: rows[%lld].top_k=%d, needs >= 0 (0 = off)", op, i, row->top_k);
    return RD_OK;
}

static rd_status check_operands(const rd_plan *plan, const rd_sample_args *args) {
    int64_t rows = args->logits.shape[0];
    RDI_TRY(rdi_operand_rows(op, "logits", &args->logits, RD_DTYPE_F32, rows, rdi_plan_int(plan, "vocab"),
                             false));
    RDI_TRY(rdi_operand_vector(op, "ids", &args->ids, RD_DTYPE_I32, rows));
    if (!args->rows)
        return rdi_fail(RD_E_INVALID, "%s: rows=NULL, needs the settings of %lld rows", op, (long long)rows);
    RDI_TRY(RDI_CHECK_PLACES(plan, {"logits", &args->logits}, {"ids", &args->ids}));
    for (int64_t i = 0; rdi_plan_on_host(plan) && i < rows; i++) RDI_TRY(check_row(i, &args->rows[i]));
    return RD_OK;
}

rd_status rd_sample_run(const rd_plan *plan, const rd_sample_args *args, void *ws, size_t *ws_bytes,
                        rd_stream stream) {
    RDI_TRY(rdi_operand_begin(plan, op, args, sizeof *args));
    const rdi_row *row = rdi_plan_row(plan, 0);
    if (!row) return RD_E_INVALID;
    const rdi_sample_args kernel = {
        .rows = args->logits.shape[0],
        .vocab = rdi_plan_int(plan, "vocab"),
        .logits = args->logits.data,
        .logits_stride = args->logits.stride[0],
        .params = args->rows,
        .ids = args->ids.data,
    };
    // The size may be asked for before anything is allocated: shapes alone decide it.
    bool done = false;
    RDI_TRY(rdi_check_workspace(op, rdi_row_ws_bytes(plan, row, &kernel), ws, ws_bytes, &done));
    if (done) return RD_OK;
    RDI_TRY(check_operands(plan, args));
    if (!kernel.rows) return RD_OK;
    return rdi_row_launch(plan, row, &kernel, ws, stream);
}
