// SPDX-License-Identifier: Apache-2.0
// Rotary embedding: the run entry, and the table of inverse frequencies for each published scaling.
#include "kernels/elementwise/args.h"
#include "ops/operand.h"

#include <math.h>
#include <string.h>

// Beyond 2^22 positions the fast rows' three-part reduction of the angle loses bits (kernels/elementwise/body.inc).
#define MAX_POSITION (1 << 22)

static rd_status check_positions(const char *op, const rd_tensor *positions, int64_t tokens) {
    RDI_TRY(rdi_operand_vector(op, "positions", positions, RD_DTYPE_I32, tokens));
    const int32_t *values = positions->data;
    for (int64_t t = 0; t < tokens; t++)
        if (values[t] < 0 || values[t] > MAX_POSITION)
            return rdi_fail(RD_E_INVALID, "%s: positions[%lld]=%d, needs 0..%d", op, (long long)t, values[t], MAX_POSITION);
    return RD_OK;
}

static rd_status check_norms(const char *op, const rd_plan *plan, const rd_rope_args *args, int64_t head_dim) {
    bool norm = rdi_plan_int(plan, "qk_norm") != 0, has_k = args->k.data != NULL;
    RDI_TRY(rdi_operand_planned(op, "q_norm", &args->q_norm, "qk_norm", norm));
    if (has_k) RDI_TRY(rdi_operand_planned(op, "k_norm", &args->k_norm, "qk_norm", norm));
    if (!norm) return RD_OK;
    RDI_TRY(rdi_operand_vector(op, "q_norm", &args->q_norm, RD_DTYPE_NONE, head_dim));
    return has_k ? rdi_operand_vector(op, "k_norm", &args->k_norm, args->q_norm.dtype, head_dim) : RD_OK;
}

rd_status rd_rope_run(const rd_plan *plan, const rd_rope_args *args, rd_stream stream) {
    static const char op[] = "rope";
    (void)stream;
    RDI_TRY(rdi_operand_begin(plan, op, args, sizeof *args));
    int64_t tokens = args->q.shape[0], head_dim = rdi_plan_int(plan, "head_dim"), rotary = rdi_plan_int(plan, "rotary_dim");
    if (rotary < 2 || rotary % 2 || rotary > head_dim)
        return rdi_fail(RD_E_INVALID, "%s: rotary_dim=%lld, needs an even number from 2 to head_dim=%lld", op,
                        (long long)rotary, (long long)head_dim);
    const char *style = rdi_plan_word(plan, "style");
    if (!style) return rdi_fail(RD_E_INVALID, "%s: the plan has no style, needs neox or interleaved", op);
    bool has_k = args->k.data != NULL;
    RDI_TRY(rdi_operand_heads(op, "q", &args->q, rdi_plan_dtype(plan, "x_dtype"), tokens, args->q.shape[1], head_dim));
    if (has_k) RDI_TRY(rdi_operand_heads(op, "k", &args->k, args->q.dtype, tokens, args->k.shape[1], head_dim));
    RDI_TRY(check_positions(op, &args->positions, tokens));
    RDI_TRY(rdi_operand_vector(op, "inv_freq", &args->inv_freq, RD_DTYPE_F32, rotary / 2));
    RDI_TRY(check_norms(op, plan, args, head_dim));
    const rdi_row *row = rdi_plan_row(plan, 0);
    if (!row) return RD_E_INVALID;
    const rdi_rope_args kernel = {
        .tokens = tokens,
        .q_heads = args->q.shape[1],
        .k_heads = has_k ? args->k.shape[1] : 0,
        .head_dim = head_dim,
        .rotary_dim = rotary,
        .q = args->q.data,
        .k = args->k.data,
        .q_stride_token = args->q.stride[0],
        .q_stride_head = args->q.stride[1],
        .k_stride_token = args->k.stride[0],
        .k_stride_head = args->k.stride[1],
        .positions = args->positions.data,
        .inv_freq = args->inv_freq.data,
        .q_norm = args->q_norm.data,
        .k_norm = args->k_norm.data,
        .q_dtype = args->q.dtype,
        .k_dtype = args->k.dtype,
        .norm_dtype = args->q_norm.dtype,
        .eps = args->eps,
        .unit_offset = args->unit_offset,
        .interleaved = strcmp(style, "interleaved") == 0,
    };
    return rdi_row_launch(plan, row, &kernel, NULL);
}

// Llama 3.1's rule: wavelengths below original_context / high_freq_factor stay, above original_context / low_freq_factor
// are stretched by `factor`, in between the two are blended linearly in original_context / wavelength.
static double llama3_frequency(const rd_rope_scaling *s, double frequency) {
    double turns = s->original_context * frequency / (2 * 3.14159265358979323846);
    if (turns > s->high_freq_factor) return frequency;
    if (turns < s->low_freq_factor) return frequency / s->factor;
    double smooth = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * frequency / s->factor + smooth * frequency;
}

static rd_status check_positive(const char *field, double value) {
    if (value > 0 && isfinite(value)) return RD_OK;
    return rdi_fail(RD_E_INVALID, "rope frequencies: %s=%g, needs a finite number > 0", field, value);
}

static rd_status check_scaling(const rd_rope_scaling *s, bool linear, bool llama3) {
    RDI_TRY(check_positive("theta", s->theta));
    if (linear || llama3) RDI_TRY(check_positive("factor", s->factor));
    if (!llama3) return RD_OK;
    RDI_TRY(check_positive("low_freq_factor", s->low_freq_factor));
    RDI_TRY(check_positive("high_freq_factor", s->high_freq_factor));
    RDI_TRY(check_positive("original_context", s->original_context));
    if (s->high_freq_factor <= s->low_freq_factor)
        return rdi_fail(RD_E_INVALID, "rope frequencies: high_freq_factor=%g, needs > low_freq_factor=%g",
                        s->high_freq_factor, s->low_freq_factor);
    return RD_OK;
}

rd_status rd_rope_frequencies(const rd_rope_scaling *scaling, int32_t rotary_dim, float *inv_freq) {
    if (!scaling || !inv_freq)
        return rdi_fail(RD_E_INVALID, "rope frequencies: %s=NULL, needs a pointer", scaling ? "inv_freq" : "scaling");
    if (rotary_dim < 2 || rotary_dim % 2)
        return rdi_fail(RD_E_INVALID, "rope frequencies: rotary_dim=%d, needs an even number >= 2", rotary_dim);
    const char *type = scaling->type ? scaling->type : "none";
    bool linear = strcmp(type, "linear") == 0, llama3 = strcmp(type, "llama3") == 0;
    if (!linear && !llama3 && strcmp(type, "none") != 0)
        return rdi_fail(RD_E_UNSUPPORTED, "rope frequencies: type=%.40s, needs one of: none linear llama3", type);
    RDI_TRY(check_scaling(scaling, linear, llama3));
    for (int32_t i = 0; i < rotary_dim / 2; i++) {
        double frequency = pow(scaling->theta, -2.0 * i / rotary_dim);
        if (linear) frequency /= scaling->factor;
        if (llama3) frequency = llama3_frequency(scaling, frequency);
        inv_freq[i] = (float)frequency;
    }
    return RD_OK;
}
