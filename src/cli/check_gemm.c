// SPDX-License-Identifier: Apache-2.0
// radiance check: the block-FP8 acceptance grid of the field (vLLM's test_block_fp8: mean |difference| / mean |reference|
// below 1e-3, ragged N = 576 and K = 3884 among the shapes), for all GEMM ops and all weight layouts.
//
// The reference takes nanoseconds for each product, so it computes a part: at most 64 rows of C, and (without --full) at
// most 128 columns of them. Fast rows compute the whole C; without --full, as many of its rows as 2e10 products allow.
// Rows in plain C are given the judged part alone. The output's type, a bias, e8m0 scales, scales by block and gaps between rows
// are drawn.
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, JUDGED_ROWS = 64, GAP = 0x5a };
static const int64_t quick_judged_products = 30000000, quick_row_products = 20000000000;
static const char *const layouts[] = {"row", "shuffle16", "panel16", "tile64"};

typedef struct gemm_data {
    check_run *run;
    bool quantised_a, scaled_w;
    rd_dtype a_dtype, w_dtype, c_dtype, w_scale_dtype, bias_dtype; // bias_dtype RD_DTYPE_NONE: no bias
    int64_t m, n, k, blocks;
    int64_t a_stride, w_stride, c_stride; // of rows
    bool any_padding;                     // rows may start anywhere, else where copies of 16 bytes reach them
    bool scales_by_block;                 // rows of As are neighbours, else its k blocks
    int64_t rows, row_step;               // judged: rows 0, row_step, ...
    int64_t column, columns;              // judged: [column, column + columns), column a multiple of 128
    void *a, *w, *w_scale, *bias;         // w_scale: [ceil(n/128), blocks]
    float *a_scale;
    const char *layout;
    rd_tensor packed; // of the whole weight, layouts other than row
} gemm_data;

static size_t elem_bytes(rd_dtype dtype, int64_t elems) {
    return rd_dtype_bytes(dtype) * (size_t)elems;
}

static rd_tensor rows_of(void *data, rd_dtype dtype, int64_t rows, int64_t columns, int64_t stride) {
    rd_tensor t = rd_tensor_2d(data, dtype, rows, columns);
    t.stride[0] = stride;
    return t;
}

static rd_tensor a_scales(const gemm_data *d) {
    rd_tensor t = rd_tensor_2d(d->a_scale, RD_DTYPE_F32, d->m, d->blocks);
    if (d->scales_by_block) t.stride[0] = 1, t.stride[1] = d->m;
    return t;
}

// The judged rows of A side by side, with their scales.
static rd_status gather_rows(const gemm_data *d, void **a, float **scale) {
    const size_t bytes = elem_bytes(d->a_dtype, d->k), stride = elem_bytes(d->a_dtype, d->a_stride);
    const rd_tensor from = a_scales(d);
    *a = malloc((size_t)d->rows * bytes);
    *scale = malloc((size_t)(d->rows * d->blocks) * sizeof(float));
    if (!*a || !*scale) return RD_E_NOMEM;
    for (int64_t i = 0; i < d->rows; i++) {
        memcpy((char *)*a + (size_t)i * bytes, (char *)d->a + (size_t)(i * d->row_step) * stride, bytes);
        for (int64_t b = 0; b < d->blocks && d->quantised_a; b++)
            (*scale)[i * d->blocks + b] = d->a_scale[i * d->row_step * from.stride[0] + b * from.stride[1]];
    }
    return RD_OK;
}

static rd_gemm_args part_args(const gemm_data *d, void *a, float *a_scale, void *c) {
    char *w = (char *)d->w + elem_bytes(d->w_dtype, d->w_stride * d->column);
    rd_gemm_args args = {.struct_size = sizeof args,
                         .a = rd_tensor_2d(a, d->a_dtype, d->rows, d->k),
                         .w = rows_of(w, d->w_dtype, d->columns, d->k, d->w_stride),
                         .c = rd_tensor_2d(c, d->c_dtype, d->rows, d->columns)};
    int64_t scale_rows = (d->columns + BLOCK - 1) / BLOCK, first = d->column / BLOCK * d->blocks;
    if (d->quantised_a) args.a_scale = rd_tensor_2d(a_scale, RD_DTYPE_F32, d->rows, d->blocks);
    if (d->scaled_w)
        args.w_scale = rd_tensor_2d((char *)d->w_scale + elem_bytes(d->w_scale_dtype, first),
                                    d->w_scale_dtype, scale_rows, d->blocks);
    if (d->bias_dtype)
        args.bias =
            rd_tensor_1d((char *)d->bias + elem_bytes(d->bias_dtype, d->column), d->bias_dtype, d->columns);
    return args;
}

static rd_gemm_args whole_args(const gemm_data *d, void *c) {
    rd_gemm_args args = {.struct_size = sizeof args,
                         .a = rows_of(d->a, d->a_dtype, d->m, d->k, d->a_stride),
                         .w = rows_of(d->w, d->w_dtype, d->n, d->k, d->w_stride),
                         .c = rows_of(c, d->c_dtype, d->m, d->n, d->c_stride)};
    if (strcmp(d->layout, "row") != 0) args.w = d->packed;
    if (d->quantised_a) args.a_scale = a_scales(d);
    if (d->scaled_w)
        args.w_scale = rd_tensor_2d(d->w_scale, d->w_scale_dtype, (d->n + BLOCK - 1) / BLOCK, d->blocks);
    if (d->bias_dtype) args.bias = rd_tensor_1d(d->bias, d->bias_dtype, d->n);
    return args;
}

// Of the two parameters that end a question: scales belong to e4m3 weights, order to gemm_fp8block_w8a16 alone.
static int params_unused(const gemm_data *d) {
    return !d->scaled_w ? 2 : d->quantised_a ? 1 : 0;
}

// The plan of the case asks for the whole n; the part has its own.
static rd_status plan_part(rd_ctx *ctx, const gemm_data *d, const rd_kernel_info *kernel, rd_plan **plan) {
    const rd_param params[] = {RD_INT("n", d->columns),
                               RD_INT("k", d->k),
                               RD_WORD("a_dtype", rd_dtype_name(d->a_dtype)),
                               RD_WORD("c_dtype", rd_dtype_name(d->c_dtype)),
                               RD_WORD("layout", d->layout),
                               RD_INT("bias", d->bias_dtype != RD_DTYPE_NONE),
                               RD_WORD("w_scale_dtype", rd_dtype_name(d->w_scale_dtype)),
                               RD_WORD("order", "any")};
    return rd_plan_create_kernel(ctx, kernel->name, params, CLI_COUNT(params) - params_unused(d), d->rows,
                                 d->rows, plan);
}

static rd_status execute_part(rd_ctx *ctx, const gemm_data *d, const rd_kernel_info *kernel,
                              check_output *out) {
    void *a = NULL, *c = calloc((size_t)(d->rows * d->columns), 4), *packed = NULL;
    float *a_scale = NULL;
    rd_plan *plan = NULL;
    rd_status status = c ? gather_rows(d, &a, &a_scale) : RD_E_NOMEM;
    if (status == RD_OK) status = plan_part(ctx, d, kernel, &plan);
    rd_gemm_args args = part_args(d, a, a_scale, c);
    if (status == RD_OK && strcmp(d->layout, "row") != 0) {
        rd_tensor tensor = {0};
        status = rd_weight_pack(d->run->ctx, &args.w, d->layout, &tensor);
        if (status == RD_OK)
            packed =
                aligned_alloc(64, (elem_bytes(d->w_dtype, tensor.shape[0] * tensor.shape[1]) + 63) / 64 * 64);
        tensor.data = packed;
        if (status == RD_OK)
            status = packed ? rd_weight_pack(d->run->ctx, &args.w, d->layout, &tensor) : RD_E_NOMEM;
        args.w = tensor;
    }
    if (status == RD_OK) status = check_call(ctx, &check_op_gemm, plan, &args);
    for (int64_t i = 0; status == RD_OK && i < out->count; i++) out->got[i] = check_read(c, d->c_dtype, i);
    rd_plan_free(plan);
    free(a), free(a_scale), free(c), free(packed);
    return status;
}

static rd_status execute(check_case *c, const rd_plan *plan, const rd_kernel_info *kernel) {
    const gemm_data *d = c->data;
    check_output *out = &c->outputs[0];
    if (kernel->is_reference || !kernel->isa[0]) return execute_part(c->ctx, d, kernel, out);
    const size_t room = elem_bytes(d->c_dtype, d->m * d->c_stride);
    unsigned char *product = malloc(room);
    if (!product) return RD_E_NOMEM;
    memset(product, GAP, room);
    rd_gemm_args args = whole_args(d, product);
    rd_status status = check_call(c->ctx, &check_op_gemm, plan, &args);
    const size_t row = elem_bytes(d->c_dtype, d->n), stride = elem_bytes(d->c_dtype, d->c_stride);
    for (size_t at = 0; at < room && status == RD_OK; at++)
        if (at % stride >= row && product[at] != GAP)
            status = cli_error(RD_E_INTERNAL, "a byte between two rows of c was overwritten");
    for (int64_t i = 0; status == RD_OK && i < out->count; i++)
        out->got[i] = check_read(product, d->c_dtype,
                                 i / d->columns * d->row_step * d->c_stride + d->column + i % d->columns);
    free(product);
    return status;
}

// Packs the whole weight; RD_E_INVALID (a shape that the layout cannot hold) leaves the layout out.
static rd_status pack(gemm_data *d) {
    if (!strcmp(d->layout, "row")) return RD_OK;
    rd_tensor w = rows_of(d->w, d->w_dtype, d->n, d->k, d->w_stride);
    d->packed = (rd_tensor){0};
    rd_status status = rd_weight_pack(d->run->ctx, &w, d->layout, &d->packed);
    if (status != RD_OK) return status;
    d->packed.data =
        aligned_alloc(64, (elem_bytes(d->w_dtype, d->packed.shape[0] * d->packed.shape[1]) + 63) / 64 * 64);
    return d->packed.data ? rd_weight_pack(d->run->ctx, &w, d->layout, &d->packed) : RD_E_NOMEM;
}

static void run_layouts(check_run *run, gemm_data *d, const char *name) {
    check_case c = {.at = d->m, .execute = execute, .data = d, .output_count = 1};
    if (check_output_new(&c.outputs[0], CHECK_MEAN, 1e-3, 0, d->rows * d->columns) != RD_OK)
        run->status = cli_error(RD_E_NOMEM, "out of memory");
    for (int i = 0; i < CLI_COUNT(layouts) && run->status == RD_OK; i++) {
        d->layout = layouts[i];
        // A card's checkers take their time: tiles where N has a tail alone.
        if (run->small && !run->full && !strcmp(d->layout, "tile64") && d->n % BLOCK == 0) continue;
        const rd_param params[] = {RD_INT("n", d->n),
                                   RD_INT("k", d->k),
                                   RD_WORD("a_dtype", rd_dtype_name(d->a_dtype)),
                                   RD_WORD("c_dtype", rd_dtype_name(d->c_dtype)),
                                   RD_WORD("layout", d->layout),
                                   RD_INT("bias", d->bias_dtype != RD_DTYPE_NONE),
                                   RD_WORD("w_scale_dtype", rd_dtype_name(d->w_scale_dtype)),
                                   RD_WORD("order", "any")};
        rd_status status = pack(d);
        if (status == RD_E_NOMEM) run->status = cli_error(status, "out of memory");
        if (status != RD_OK) continue;
        c.params = params, c.param_count = CLI_COUNT(params) - params_unused(d);
        snprintf(c.name, sizeof c.name, "%s %s", name, d->layout);
        check_case_run(run, &c);
        if (i) free(d->packed.data);
    }
    check_output_free(&c.outputs[0]);
}

static float *scales(uint64_t *state, int64_t count, float step) {
    float *all = malloc((size_t)count * sizeof *all);
    for (int64_t i = 0; all && i < count; i++) all[i] = step * (float)(1 + check_random(state) % 4096);
    return all;
}

static uint8_t *powers_of_two(uint64_t *state, int64_t count) { // 2^-12 to 2^-8
    uint8_t *all = malloc((size_t)count);
    for (int64_t i = 0; all && i < count; i++) all[i] = (uint8_t)(127 - 12 + check_random(state) % 5);
    return all;
}

// What lies between two rows: nothing, 16 elements, or (any) three, so that rows do not start on 16 bytes.
static int64_t padding(uint64_t *state, bool any) {
    const int64_t elems[] = {0, 0, 16, 3};
    return elems[check_random(state) % (any ? 4 : 3)];
}

// Calls of m rows by d's weight. a_dtype: of activations that are not quantised.
static void run_rows(check_run *run, gemm_data d, int64_t m, rd_dtype a_dtype, uint64_t *state) {
    static const rd_dtype outputs[] = {RD_DTYPE_BF16, RD_DTYPE_F16, RD_DTYPE_F32},
                          biases[] = {RD_DTYPE_NONE, RD_DTYPE_NONE, RD_DTYPE_F32, RD_DTYPE_BF16};
    const int64_t n = d.n, k = d.k;
    d.a_dtype = d.quantised_a ? RD_DTYPE_E4M3 : a_dtype;
    d.c_dtype = outputs[check_random(state) % CLI_COUNT(outputs)];
    d.m = run->full || m * n * k < quick_row_products ? m : quick_row_products / (n * k);
    d.rows = d.m < JUDGED_ROWS ? d.m : JUDGED_ROWS, d.columns = n;
    if (!run->full) {
        int64_t rows = quick_judged_products / (BLOCK * k);
        d.rows = d.rows < rows ? d.rows : rows;
        d.column = (int64_t)(check_random(state) % (uint64_t)((n + BLOCK - 1) / BLOCK)) * BLOCK;
        d.columns = n - d.column < BLOCK ? n - d.column : BLOCK;
    }
    d.row_step = d.m / d.rows;
    d.a_stride = k + padding(state, d.any_padding);
    d.c_stride = n + padding(state, true);
    d.scales_by_block = check_random(state) & 1;
    d.bias_dtype = biases[check_random(state) % CLI_COUNT(biases)];
    d.a = d.quantised_a ? (void *)check_codes(state, d.m * d.a_stride)
                        : check_values(state, d.a_dtype, d.m * d.a_stride, 1);
    d.a_scale = scales(state, d.m * d.blocks, 0x1p-12f);
    // Of the products' order, so that a bias left out would show.
    d.bias = check_values(state, d.bias_dtype ? d.bias_dtype : RD_DTYPE_F32, n, d.quantised_a ? 100 : 1);
    char name[80];
    snprintf(name, sizeof name, "m=%lld n=%lld k=%lld %s to %s%s%s%s", (long long)d.m, (long long)n,
             (long long)k, rd_dtype_name(d.a_dtype), rd_dtype_name(d.c_dtype), d.bias_dtype ? ", bias" : "",
             d.scaled_w && d.w_scale_dtype == RD_DTYPE_E8M0 ? ", e8m0" : "",
             d.a_stride > k || d.w_stride > k || d.c_stride > n ? ", gaps" : "");
    if (d.a && d.a_scale && d.bias)
        run_layouts(run, &d, name);
    else
        run->status = cli_error(RD_E_NOMEM, "out of memory at %s", name);
    free(d.a), free(d.a_scale), free(d.bias);
}

// a_dtype: RD_DTYPE_NONE chooses.
static void run_weight(check_run *run, int64_t n, int64_t k, const int64_t *ms, int count, rd_dtype a_dtype,
                       bool any_padding, uint64_t *state) {
    gemm_data d = {.run = run,
                   .n = n,
                   .k = k,
                   .blocks = (k + BLOCK - 1) / BLOCK,
                   .scaled_w = strcmp(run->op, "gemm_bf16") != 0,
                   .quantised_a = !strcmp(run->op, "gemm_fp8block"),
                   .any_padding = any_padding};
    const int64_t scale_count = (n + BLOCK - 1) / BLOCK * d.blocks;
    d.w_dtype = d.scaled_w ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
    d.w_scale_dtype = check_random(state) % 3 ? RD_DTYPE_F32 : RD_DTYPE_E8M0;
    d.w_stride = k + padding(state, any_padding);
    d.w = d.scaled_w ? (void *)check_codes(state, n * d.w_stride)
                     : check_values(state, RD_DTYPE_BF16, n * d.w_stride, 0.05f);
    d.w_scale = d.w_scale_dtype == RD_DTYPE_F32 ? (void *)scales(state, scale_count, 0x1p-20f)
                                                : powers_of_two(state, scale_count);
    if (!d.w || !d.w_scale)
        run->status = cli_error(RD_E_NOMEM, "out of memory at n=%lld k=%lld", (long long)n, (long long)k);
    for (int i = 0; i < count && run->status == RD_OK; i++) {
        // Some shapes, always the same ones, with f32 activations: no row goes untried.
        rd_dtype usual = ms[i] == 7 ? RD_DTYPE_F32 : RD_DTYPE_BF16;
        run_rows(run, d, ms[i], a_dtype == RD_DTYPE_NONE ? usual : a_dtype, state);
    }
    free(d.w), free(d.w_scale);
}

// Rows for which the grid above chooses none of a row's kernels on 114 or 132 multiprocessors: token counts between 9 and 64, weights
// of so many rows that tiles are wide, f16 activations; the last three of gemm_fp8block are cut along K.
// test_check_kernels proves that every kernel is launched.
static const struct {
    const char *op;
    rd_dtype a_dtype;
    int64_t n, k, ms[5];
} kernel_shapes[] = {
    {"gemm_fp8block", RD_DTYPE_NONE, 576, 256, {7, 12, 20, 40, 83}},
    {"gemm_fp8block", RD_DTYPE_NONE, 12736, 256, {5, 12, 20, 40, 70}},
    {"gemm_fp8block", RD_DTYPE_NONE, 12736, 256, {140, 256}}, // one round of tiles of 256 tokens
    {"gemm_fp8block", RD_DTYPE_NONE, 12736, 204, {20}},       // rows that no tensor copy reaches
    {"gemm_fp8block", RD_DTYPE_NONE, 8512, 256, {70, 140}},
    {"gemm_fp8block", RD_DTYPE_NONE, 16960, 256, {70}},
    {"gemm_fp8block", RD_DTYPE_NONE, 21184, 256, {70}},
    {"gemm_fp8block", RD_DTYPE_NONE, 10624, 256, {140}},
    {"gemm_fp8block", RD_DTYPE_NONE, 192, 8192, {150}},
    {"gemm_fp8block", RD_DTYPE_NONE, 4352, 8192, {129}},
    {"gemm_fp8block", RD_DTYPE_NONE, 8768, 6144, {257}},
    {"gemm_fp8block_w8a16", RD_DTYPE_F16, 576, 256, {7, 40, 83, 150}},
    {"gemm_fp8block_w8a16", RD_DTYPE_BF16, 576, 652, {12, 40}},
    {"gemm_bf16", RD_DTYPE_BF16, 576, 256, {7, 12, 20, 40, 83}},
    {"gemm_bf16", RD_DTYPE_BF16, 11264, 256, {5, 12, 20, 40, 100}},
    {"gemm_bf16", RD_DTYPE_BF16, 16896, 256, {40}},
    {"gemm_bf16", RD_DTYPE_F16, 576, 652, {12, 150}},
};

static void run_kernel_shapes(check_run *run, uint64_t *state) {
    for (int i = 0; i < CLI_COUNT(kernel_shapes) && run->status == RD_OK; i++) {
        int count = 0;
        while (count < CLI_COUNT(kernel_shapes[i].ms) && kernel_shapes[i].ms[count]) count++;
        if (!strcmp(kernel_shapes[i].op, run->op))
            run_weight(run, kernel_shapes[i].n, kernel_shapes[i].k, kernel_shapes[i].ms, count,
                       kernel_shapes[i].a_dtype, false, state);
    }
}

void check_gemm(check_run *run) {
    static const int64_t ms[] = {1, 7, 8, 83, 4096}, ns[] = {128, 512, 576, 7168, 13824},
                         ks[] = {256, 3884, 4096, 13824, 16384};
    // The simulator takes about a microsecond for 40 products: tails of every kind, and both order classes, in little.
    static const int64_t small_ms[] = {1, 7, 8, 83, 150}, small_ns[] = {128, 576}, small_ks[] = {256, 652};
    const bool small = run->small && !run->full;
    const int first =
        run->small && !run->simulated; // of small_ns: a checker of a card's memory follows every access
    const int counts = small ? CLI_COUNT(small_ms) : CLI_COUNT(ms);
    uint64_t state = run->seed;
    for (int n = first; n < (small ? CLI_COUNT(small_ns) : CLI_COUNT(ns)); n++)
        for (int k = 0; k < (small ? CLI_COUNT(small_ks) : CLI_COUNT(ks)) && run->status == RD_OK; k++)
            run_weight(run, small ? small_ns[n] : ns[n], small ? small_ks[k] : ks[k], small ? small_ms : ms,
                       counts, RD_DTYPE_NONE, true, &state);
    if (run->on_card) run_kernel_shapes(run, &state);
}
