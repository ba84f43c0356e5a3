// SPDX-License-Identifier: Apache-2.0
// radiance check: the quantiser and the product behind it in one launch: each count of rows, each thing that may stand before the
// quantiser, ragged N and K, onto what the output holds and over it.
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128 };
typedef struct quant_gemm_data {
    check_quant_gemm_args args;
    const float *before; // what c holds, where the product is added to it
    int64_t elems;
} quant_gemm_data;

static rd_status execute(check_case *c, const rd_plan *plan, const rd_kernel_info *kernel) {
    quant_gemm_data *d = c->data;
    (void)kernel;
    check_quant_gemm_args args = d->args;
    float *got = c->outputs[0].got;
    memcpy(got, d->before, (size_t)d->elems * sizeof *got);
    args.gemm.c.data = got;
    return check_call(c->ctx, &check_op_quant_gemm, plan, &args);
}

typedef struct sizes {
    int64_t m, n, k;
} sizes;

static void run_case(check_run *run, sizes s, const char *fuse, bool accumulate, uint64_t *state) {
    const int64_t blocks = (s.k + BLOCK - 1) / BLOCK, scale_rows = (s.n + BLOCK - 1) / BLOCK;
    const bool up = strstr(fuse, "_mul") != NULL, norm = !strcmp(fuse, "rmsnorm");
    const rd_dtype x_dtype = norm ? RD_DTYPE_F32 : RD_DTYPE_BF16;
    quant_gemm_data d = {.elems = s.m * s.n};
    void *x = check_values(state, x_dtype, s.m * s.k, 3), *factor = check_values(state, RD_DTYPE_BF16, s.m * s.k, 1),
         *weight = check_values(state, RD_DTYPE_F32, s.k, 1);
    uint8_t *w = check_codes(state, s.n * s.k);
    float *scale = check_values(state, RD_DTYPE_F32, scale_rows * blocks, 1e-2f),
          *before = check_values(state, RD_DTYPE_F32, d.elems, 100);
    d.before = before;
    d.args.quant = (rd_quant_args){.struct_size = sizeof d.args.quant, .x = rd_tensor_2d(x, x_dtype, s.m, s.k), .eps = 1e-6f};
    if (up) d.args.quant.up = rd_tensor_2d(factor, RD_DTYPE_BF16, s.m, s.k);
    if (norm) d.args.quant.norm_weight = rd_tensor_1d(weight, RD_DTYPE_F32, s.k);
    d.args.gemm = (rd_gemm_args){.struct_size = sizeof d.args.gemm,
                                 .w = rd_tensor_2d(w, RD_DTYPE_E4M3, s.n, s.k),
                                 .w_scale = rd_tensor_2d(scale, RD_DTYPE_F32, scale_rows, blocks),
                                 .c = rd_tensor_2d(NULL, RD_DTYPE_F32, s.m, s.n)};
    const rd_param params[] = {RD_INT("n", s.n),
                               RD_INT("k", s.k),
                               RD_WORD("x_dtype", rd_dtype_name(x_dtype)),
                               RD_WORD("fuse", fuse),
                               RD_WORD("w_scale_dtype", "fp32"),
                               RD_WORD("c_dtype", "fp32"),
                               RD_WORD("layout", "row"),
                               RD_INT("accumulate", accumulate)};
    check_case c = {.params = params,
                    .param_count = CLI_COUNT(params),
                    .at = s.m,
                    .execute = execute,
                    .data = &d,
                    .output_count = 1};
    // A quotient within a rounding of a boundary may go either way behind a norm or an activation: one step of one code in
    // some thousands (check_quant.c), each an eighth at most of its product.
    rd_status status = x && factor && weight && w && scale && before ? RD_OK : RD_E_NOMEM;
    if (status == RD_OK) status = check_output_new(&c.outputs[0], CHECK_MEAN, strcmp(fuse, "none") ? 4e-3 : 1e-3, 0, d.elems);
    snprintf(c.name, sizeof c.name, "m=%lld n=%lld k=%lld %s%s", (long long)s.m, (long long)s.n, (long long)s.k, fuse,
             accumulate ? " accumulate" : "");
    if (status == RD_OK)
        check_case_run(run, &c);
    else
        run->status = cli_error(status, "out of memory at %s", c.name);
    check_output_free(&c.outputs[0]);
    free(x), free(factor), free(weight), free(w), free(scale), free(before);
}

void check_quant_gemm(check_run *run) {
    static const char *const fuses[] = {"none", "rmsnorm", "silu_mul"};
    static const sizes shapes[] = {{1, 128, 256},  {1, 576, 3888}, {2, 512, 576},   {3, 100, 400},
                                   {4, 640, 1024}, {1, 11776, 640}, {4, 12300, 384}, {1, 640, 16384}};
    uint64_t state = run->seed;
    const int count = run->small ? 4 : CLI_COUNT(shapes);
    for (int f = 0; f < CLI_COUNT(fuses); f++)
        for (int i = 0; i < count; i++)
            if (strcmp(fuses[f], "rmsnorm") != 0 || shapes[i].k <= 8192)
                run_case(run, shapes[i], fuses[f], i % 2 == f % 2, &state);
}
