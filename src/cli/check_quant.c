// SPDX-License-Identifier: Apache-2.0
// radiance check: the group quantiser over the field's grid (tokens 7 and 2050, D 512 4096 5120 13824; the field allows
// one step in 5e-4 of the codes; 3 and 35 in f32, as an engine has them) and ragged K, alone and with its fusions.
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct quant_data {
    rd_quant_args args;
    void *residual; // as it was: every run reads a copy
    rd_dtype other; // of what stands beside x
    int64_t m, k, groups;
} quant_data;

static rd_status execute(check_case *c, const rd_plan *plan, const rd_kernel_info *kernel) {
    const quant_data *d = c->data;
    (void)kernel;
    int64_t elems = d->m * d->k;
    uint8_t *q = malloc((size_t)elems);
    const size_t residual_bytes = (size_t)elems * rd_dtype_bytes(d->other);
    void *residual = malloc(residual_bytes);
    rd_status status = q && residual ? RD_OK : RD_E_NOMEM;
    if (status == RD_OK) {
        rd_quant_args args = d->args;
        memcpy(residual, d->residual, residual_bytes);
        memset(q, 0xff, (size_t)elems);
        if (args.residual.rank) args.residual.data = residual;
        args.q = rd_tensor_2d(q, RD_DTYPE_E4M3, d->m, d->k);
        args.q_scale = rd_tensor_2d(c->outputs[1].got, RD_DTYPE_F32, d->m, d->groups);
        status = check_call(c->ctx, &check_op_quant, plan, &args);
        // A code as its place among all codes of its sign: one step is 1.
        for (int64_t i = 0; i < elems && status == RD_OK; i++)
            c->outputs[0].got[i] =
                (q[i] & 0x7f) == 0x7f ? NAN : (float)(q[i] & 0x80 ? -(q[i] & 0x7f) : q[i] & 0x7f);
    }
    free(q), free(residual);
    return status;
}

static void run_case(check_run *run, int64_t m, int64_t k, const char *fuse, rd_dtype x_dtype,
                     uint64_t *state) {
    const rd_dtype other = m > 1 ? x_dtype : RD_DTYPE_BF16; // one row: of two types
    quant_data d = {.other = other, .m = m, .k = k, .groups = (k + 127) / 128};
    void *x = check_values(state, x_dtype, m * k, 3), *up = check_values(state, other, m * k, 1);
    void *weight = check_values(state, other, k, 1);
    d.residual = check_values(state, other, m * k, 1);
    d.args = (rd_quant_args){.struct_size = sizeof d.args, .x = rd_tensor_2d(x, x_dtype, m, k), .eps = 1e-6f};
    if (strstr(fuse, "_mul")) d.args.up = rd_tensor_2d(up, other, m, k);
    if (strstr(fuse, "rmsnorm")) d.args.norm_weight = rd_tensor_1d(weight, other, k);
    if (!strcmp(fuse, "add_rmsnorm")) d.args.residual = rd_tensor_2d(d.residual, other, m, k);
    const rd_param params[] = {RD_INT("k", k), RD_WORD("x_dtype", rd_dtype_name(x_dtype)),
                               RD_WORD("fuse", fuse)};
    check_case c = {.params = params,
                    .param_count = CLI_COUNT(params),
                    .at = m,
                    .execute = execute,
                    .data = &d,
                    .output_count = 2};
    // Alone, no code may differ: amax, scale and quotient are one rounding each. Fused, a quotient within a rounding of a
    // boundary may go either way, by one step; with 16-bit inputs 1/rms cancels in y/amax and leaves ratios of short
    // numbers, which hit boundaries often.
    bool exact = !strcmp(fuse, "none");
    rd_status status = x && up && weight && d.residual ? RD_OK : RD_E_NOMEM;
    if (status == RD_OK)
        status = check_output_new(&c.outputs[0], CHECK_CODES, exact ? 0 : 2e-2, exact ? 0 : 4, m * k);
    if (status == RD_OK)
        status = check_output_new(&c.outputs[1], CHECK_CLOSE, exact ? 1e-12 : 1e-5, 0, m * d.groups);
    snprintf(c.name, sizeof c.name, "m=%lld k=%lld %s %s", (long long)m, (long long)k, fuse,
             rd_dtype_name(x_dtype));
    if (status == RD_OK)
        check_case_run(run, &c);
    else
        run->status = cli_error(status, "out of memory at %s", c.name);
    check_output_free(&c.outputs[0]), check_output_free(&c.outputs[1]);
    free(x), free(up), free(weight), free(d.residual);
}

void check_quant(check_run *run) {
    static const char *const fuses[] = {"none", "rmsnorm", "add_rmsnorm", "silu_mul", "gelu_mul"};
    static const int64_t dims[] = {512, 4096, 5120, 13824, 1, 100, 128, 129, 576, 3884};
    const bool small = run->small && !run->simulated; // a checker of a card's memory follows every access
    const int64_t many = small ? 300 : 2050;
    uint64_t state = run->seed;
    for (int f = 0; f < CLI_COUNT(fuses); f++)
        for (int i = 0; i < CLI_COUNT(dims); i++) {
            if (small && dims[i] > 4096) continue;
            run_case(run, 7, dims[i], fuses[f], RD_DTYPE_BF16, &state);
            run_case(run, 1, dims[i], fuses[f], RD_DTYPE_F32, &state);
            run_case(run, i % 2 ? 3 : 35, dims[i], fuses[f], RD_DTYPE_F32, &state);
            if (i == 0 || run->full) run_case(run, many, dims[i], fuses[f], RD_DTYPE_BF16, &state);
            if (dims[i] == 576) { // few rows and many of one 16-bit type have kernels of their own
                run_case(run, 7, dims[i], fuses[f], RD_DTYPE_F16, &state);
                run_case(run, 83, dims[i], fuses[f], RD_DTYPE_F16, &state);
            }
        }
}
