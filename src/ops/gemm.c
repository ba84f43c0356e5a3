// SPDX-License-Identifier: Apache-2.0
// rd_gemm_run: checks every field of a GEMM call against its plan, then launches the plan's row. One entry serves
// gemm_fp8block, gemm_fp8block_w8a16 and gemm_bf16: the plan says which.
#include "kernels/gemm_fp8block/layout.h"
#include "ops/plan.h"

#include <string.h>

typedef struct gemm_call {
    const rd_plan *plan;
    const char *op;
    const rd_gemm_args *in;
    rdi_gemm_args *out;
} gemm_call;

// A value that the plan's question fixed must be the one that the call brings.
static rd_status check_planned(const gemm_call *call, const char *key, int64_t seen) {
    int64_t planned = rdi_plan_int(call->plan, key);
    if (planned == 0 || planned == seen) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s=%lld, the plan was made for %lld", call->op, key, (long long)seen,
                    (long long)planned);
}

static rd_status check_dtype(const gemm_call *call, const char *field, const char *key, rd_dtype seen,
                             const char *needs) {
    rd_dtype planned = rdi_plan_dtype(call->plan, key);
    if (planned != RD_DTYPE_NONE && planned != seen)
        return rdi_fail(RD_E_INVALID, "%s: %s: dtype=%s, the plan was made for %s", call->op, field,
                        rd_dtype_name(seen), rd_dtype_name(planned));
    size_t length = strlen(rd_dtype_name(seen));
    for (const char *at = needs; (at = strstr(at, rd_dtype_name(seen))); at += length)
        if ((at == needs || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s: dtype=%s, needs one of: %s", call->op, field, rd_dtype_name(seen),
                    needs);
}

static rd_status check_alignment(const gemm_call *call, const char *field, const rd_tensor *tensor) {
    size_t bytes = rd_dtype_bytes(tensor->dtype);
    if (bytes && (uintptr_t)tensor->data % bytes)
        return rdi_fail(RD_E_INVALID, "%s: %s: data=%p, needs alignment to %zu bytes", call->op, field,
                        tensor->data, bytes);
    return RD_OK;
}

// Rank 2, elements of a row adjacent. Rows that are written must not overlap.
static rd_status check_matrix(const gemm_call *call, const char *field, const rd_tensor *tensor,
                              const char *key, const char *dtypes, bool written) {
    RDI_TRY(rdi_check_tensor(call->op, field, tensor, 2, RD_DTYPE_NONE));
    RDI_TRY(check_dtype(call, field, key, tensor->dtype, dtypes));
    RDI_TRY(check_alignment(call, field, tensor));
    for (int axis = 0; axis < 2; axis++)
        if (tensor->shape[axis] < 1)
            return rdi_fail(RD_E_INVALID, "%s: %s: shape[%d]=%lld, needs >= 1", call->op, field, axis,
                            (long long)tensor->shape[axis]);
    if (tensor->shape[1] > 1) RDI_TRY(rdi_check_stride(call->op, field, tensor, 1, 1));
    if (tensor->shape[0] > 1 && tensor->stride[0] < (written ? tensor->shape[1] : 0))
        return rdi_fail(RD_E_INVALID, "%s: %s: stride[0]=%lld, needs >= %lld", call->op, field,
                        (long long)tensor->stride[0], (long long)(written ? tensor->shape[1] : 0));
    return RD_OK;
}

static rd_status check_scale(const gemm_call *call, const char *field, const rd_tensor *scale,
                             const char *key, const char *dtypes, int64_t rows) {
    RDI_TRY(rdi_check_tensor(call->op, field, scale, 2, RD_DTYPE_NONE));
    RDI_TRY(check_dtype(call, field, key, scale->dtype, dtypes));
    RDI_TRY(check_alignment(call, field, scale));
    RDI_TRY(rdi_check_dim(call->op, field, scale, 0, rows));
    return rdi_check_dim(call->op, field, scale, 1, rdi_ceil_div(call->out->k, RDI_GEMM_BLOCK));
}

static rd_status check_layout(const gemm_call *call) {
    const char *word = rdi_plan_word(call->plan, "layout");
    call->out->layout = word ? rdi_layout_named(word) : RDI_LAYOUTS;
    if (call->out->layout != RDI_LAYOUTS) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: layout=%s, needs one of: row shuffle16 panel16 tile64", call->op,
                    word ? word : "(not given)");
}

static rd_status check_weight(const gemm_call *call, const char *dtype) {
    const rd_tensor *w = &call->in->w;
    rdi_gemm_args *out = call->out;
    RDI_TRY(check_layout(call));
    RDI_TRY(check_matrix(call, "w", w, "w_dtype", dtype, false));
    const int64_t rows = rdi_ceil_div(out->n, rdi_layout_panel_rows(out->layout)),
                  columns = rdi_layout_panel_elems(out->layout, w->dtype, out->k);
    if (out->layout == RDI_LAYOUT_SHUFFLE16) {
        if (out->n % 16)
            return rdi_fail(RD_E_INVALID, "%s: n=%lld, shuffle16 needs a multiple of 16", call->op,
                            (long long)out->n);
        if (out->k % 32)
            return rdi_fail(RD_E_INVALID, "%s: k=%lld, shuffle16 needs a multiple of 32", call->op,
                            (long long)out->k);
    }
    RDI_TRY(rdi_check_dim(call->op, "w", w, 0, rows));
    RDI_TRY(rdi_check_dim(call->op, "w", w, 1, columns));
    bool packed = out->layout != RDI_LAYOUT_ROW;
    if (rows > 1 && (packed ? w->stride[0] != columns : w->stride[0] < columns))
        return rdi_fail(RD_E_INVALID, "%s: w: stride[0]=%lld, needs %s%lld", call->op,
                        (long long)w->stride[0], packed ? "" : ">= ", (long long)columns);
    out->w = w->data;
    out->w_stride = w->stride[0];
    out->w_dtype = w->dtype;
    return RD_OK;
}

static rd_status check_bias(const gemm_call *call) {
    const rd_tensor *bias = &call->in->bias;
    int64_t planned = rdi_plan_int(call->plan, "bias");
    if (planned == 1 && !bias->data)
        return rdi_fail(RD_E_INVALID, "%s: bias: not given, the plan was made with one", call->op);
    if (!bias->data) return RD_OK;
    RDI_TRY(rdi_check_tensor(call->op, "bias", bias, 1, RD_DTYPE_NONE));
    RDI_TRY(check_dtype(call, "bias", "bias_dtype", bias->dtype, "fp32 bf16"));
    RDI_TRY(check_alignment(call, "bias", bias));
    RDI_TRY(rdi_check_dim(call->op, "bias", bias, 0, call->out->n));
    if (call->out->n > 1) RDI_TRY(rdi_check_stride(call->op, "bias", bias, 0, 1));
    call->out->bias = bias->data;
    call->out->bias_dtype = bias->dtype;
    return RD_OK;
}

static rd_status check_scales(const gemm_call *call, bool quantised_a) {
    rdi_gemm_args *out = call->out;
    const rd_tensor *w_scale = &call->in->w_scale, *a_scale = &call->in->a_scale;
    RDI_TRY(check_scale(call, "w_scale", w_scale, "w_scale_dtype", "fp32 e8m0",
                        rdi_ceil_div(out->n, RDI_GEMM_BLOCK)));
    out->w_scale = w_scale->data;
    out->w_scale_dtype = w_scale->dtype;
    out->w_scale_stride_n = w_scale->stride[0];
    out->w_scale_stride_k = w_scale->stride[1];
    if (!quantised_a) return RD_OK;
    RDI_TRY(check_scale(call, "a_scale", a_scale, "a_scale_dtype", "fp32", out->m));
    out->a_scale = a_scale->data;
    out->a_scale_stride_m = a_scale->stride[0];
    out->a_scale_stride_k = a_scale->stride[1];
    return RD_OK;
}

static rd_status check_call(const gemm_call *call) {
    const rd_gemm_args *in = call->in;
    rdi_gemm_args *out = call->out;
    bool bf16 = !strcmp(call->op, "gemm_bf16"), quantised_a = !strcmp(call->op, "gemm_fp8block");
    RDI_TRY(rdi_check_struct(call->op, in->struct_size, sizeof *in));
    RDI_TRY(check_matrix(call, "a", &in->a, "a_dtype", quantised_a ? "fp8_e4m3" : "bf16 fp16 fp32", false));
    RDI_TRY(check_matrix(call, "c", &in->c, "c_dtype", "bf16 fp16 fp32", true));
    *out = (rdi_gemm_args){.m = in->a.shape[0], .n = in->c.shape[1], .k = in->a.shape[1]};
    RDI_TRY(check_planned(call, "n", out->n));
    RDI_TRY(check_planned(call, "k", out->k));
    RDI_TRY(rdi_check_dim(call->op, "c", &in->c, 0, out->m));
    out->a = in->a.data;
    out->a_dtype = in->a.dtype;
    out->a_stride = in->a.stride[0];
    out->c = in->c.data;
    out->c_dtype = in->c.dtype;
    out->c_stride = in->c.stride[0];
    RDI_TRY(check_weight(call, bf16 ? "bf16" : "fp8_e4m3"));
    if (!bf16) RDI_TRY(check_scales(call, quantised_a));
    return check_bias(call);
}

rd_status rd_gemm_run(const rd_plan *plan, const rd_gemm_args *args, void *ws, size_t *ws_bytes,
                      rd_stream stream) {
    if (!plan || !args) return rdi_fail(RD_E_INVALID, "gemm: %s=NULL, needs a value", plan ? "args" : "plan");
    const char *op = rdi_plan_op(plan);
    if (strncmp(op, "gemm_", 5))
        return rdi_fail(RD_E_INVALID, "gemm: the plan answers op %s, needs a gemm op", op);
    rdi_gemm_args kernel_args;
    gemm_call call = {plan, op, args, &kernel_args};
    RDI_TRY(check_call(&call));
    RDI_TRY(RDI_CHECK_PLACES(plan, {"a", &args->a}, {"a_scale", &args->a_scale}, {"w", &args->w},
                             {"w_scale", &args->w_scale}, {"bias", &args->bias}, {"c", &args->c}));
    const rdi_row *row = rdi_plan_row(plan, kernel_args.m);
    if (!row) return RD_E_INVALID;
    bool done = false;
    RDI_TRY(rdi_check_workspace(op, rdi_row_ws_bytes(plan, row, &kernel_args), ws, ws_bytes, &done));
    return done ? RD_OK : rdi_row_launch(plan, row, &kernel_args, ws, stream);
}
