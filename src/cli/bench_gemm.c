// SPDX-License-Identifier: Apache-2.0
// Benches of the three GEMM ops. Copies of the weight together are eight times the last cache and are used in turn, so that no
// call finds its weight cached (three times still gave the read ceiling a sixth of its lines from cache: 50 against 43 GB/s); sampled outputs meet the reference before anything is timed.
#include "bench.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, SLICE = 16, MOST_ROWS = 16, MOST_PARAMS = 9 };
static const double error_limit =
    1e-3; // mean|difference| / mean|reference|, the bound of the field's block-FP8 tests

typedef struct problem {
    int64_t m, n, k;
    const char *layout;
    bool w16, a8; // bf16 weights; e4m3 activations
    int64_t copies, copy_bytes;
    uint8_t *source, *weights; // row-major; `copies` in the layout
    void *a;
    float *a_scale, *w_scale, *c;
    rd_gemm_args args; // of the first copy
    rd_param params[MOST_PARAMS];
    int param_count;
} problem;

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

// Codes as quantised weights have them: exponents in the upper half, one in ten thousand subnormal or zero.
static void fill_weights(problem *p) {
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < p->n * p->k; i++) {
        uint64_t r = next_random(&state);
        if (p->w16)
            ((uint16_t *)p->source)[i] = (uint16_t)(0x3c00 | (r & 0x80ff));
        else
            p->source[i] = (uint8_t)((r & 0x87) | ((r >> 32) % 10000 == 0 ? 0 : (6 + (r >> 8) % 8) << 3));
    }
}

static void fill_activations(problem *p) {
    uint64_t state = 1181783497276652981u;
    for (int64_t i = 0; i < p->m * p->k; i++) {
        uint64_t r = next_random(&state);
        if (p->a8)
            ((uint8_t *)p->a)[i] = (uint8_t)((r & 0x87) | (6 + (r >> 8) % 8) << 3);
        else
            ((uint16_t *)p->a)[i] = (uint16_t)(0x3f00 | (r & 0x80ff));
    }
    int64_t blocks = (p->k + BLOCK - 1) / BLOCK, n_blocks = (p->n + BLOCK - 1) / BLOCK;
    for (int64_t i = 0; p->a8 && i < p->m * blocks; i++) p->a_scale[i] = 0.01f + 1e-4f * (float)(i % 7);
    for (int64_t i = 0; !p->w16 && i < n_blocks * blocks; i++)
        p->w_scale[i] = 0.002f + 1e-5f * (float)(i % 5);
}

static void describe(problem *p) {
    p->param_count = 0;
    const rd_param common[] = {RD_INT("n", p->n),
                               RD_INT("k", p->k),
                               RD_WORD("a_dtype", p->a8 ? "fp8_e4m3" : "bf16"),
                               RD_WORD("c_dtype", "fp32"),
                               RD_WORD("layout", p->layout),
                               RD_INT("bias", 0)};
    for (int i = 0; i < CLI_COUNT(common); i++) p->params[p->param_count++] = common[i];
    if (!p->w16) p->params[p->param_count++] = (rd_param)RD_WORD("w_scale_dtype", "fp32");
    if (!p->w16 && !p->a8) p->params[p->param_count++] = (rd_param)RD_WORD("order", "any");
}

static void problem_free(problem *p) {
    free(p->source), free(p->weights), free(p->a), free(p->a_scale), free(p->w_scale), free(p->c);
}

static void *room(int64_t bytes) {
    return aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
}

// Every copy is packed from the source; layout row is the source itself, copied.
static rd_status make_copies(bench_run *run, problem *p) {
    rd_dtype dtype = p->w16 ? RD_DTYPE_BF16 : RD_DTYPE_E4M3;
    rd_tensor source = rd_tensor_2d(p->source, dtype, p->n, p->k), w = source;
    bool row = !strcmp(p->layout, "row");
    if (!row) {
        w = (rd_tensor){0};
        if (rd_weight_pack(run->ctx, &source, p->layout, &w)) return cli_fail(RD_E_INVALID);
    }
    int64_t bytes = w.shape[0] * w.shape[1] * (int64_t)rd_dtype_bytes(dtype);
    int64_t beyond = 8 * (run->device.l3_bytes > 0 ? run->device.l3_bytes : 32 << 20);
    p->copy_bytes = (bytes + 4095) / 4096 * 4096;
    p->copies = bench_on_card(run) ? 1 : beyond / p->copy_bytes + 2; // bench_card.c copies there
    p->weights = room(p->copies * p->copy_bytes);
    if (!p->weights) return cli_error(RD_E_NOMEM, "no memory for %lld weight copies", (long long)p->copies);
    for (int64_t i = 0; i < p->copies; i++) {
        w.data = p->weights + i * p->copy_bytes;
        if (row)
            memcpy(w.data, p->source, (size_t)bytes);
        else if (rd_weight_pack(run->ctx, &source, p->layout, &w))
            return cli_fail(RD_E_INVALID);
    }
    w.data = p->weights;
    p->args.w = w;
    return RD_OK;
}

static rd_status problem_make(bench_run *run, problem *p) {
    int64_t blocks = (p->k + BLOCK - 1) / BLOCK, n_blocks = (p->n + BLOCK - 1) / BLOCK;
    p->source = room(p->n * p->k * (p->w16 ? 2 : 1));
    p->a = room(p->m * p->k * (p->a8 ? 1 : 2));
    p->a_scale = room(p->m * blocks * 4), p->w_scale = room(n_blocks * blocks * 4),
    p->c = room(p->m * p->n * 4);
    if (!p->source || !p->a || !p->a_scale || !p->w_scale || !p->c)
        return cli_error(RD_E_NOMEM, "no memory for the operands");
    fill_weights(p);
    fill_activations(p);
    describe(p);
    p->args = (rd_gemm_args){.struct_size = sizeof p->args,
                             .a = rd_tensor_2d(p->a, p->a8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16, p->m, p->k),
                             .c = rd_tensor_2d(p->c, RD_DTYPE_F32, p->m, p->n)};
    if (p->a8) p->args.a_scale = rd_tensor_2d(p->a_scale, RD_DTYPE_F32, p->m, blocks);
    if (!p->w16) p->args.w_scale = rd_tensor_2d(p->w_scale, RD_DTYPE_F32, n_blocks, blocks);
    return make_copies(run, p);
}

typedef struct launcher {
    rd_plan *plan;
    void *ws;
    size_t ws_bytes;
} launcher;
static rd_status launcher_make(rd_ctx *ctx, const char *kernel, const rd_param *params, int count,
                               const rd_gemm_args *args, launcher *l) {
    int64_t m = args->a.shape[0];
    *l = (launcher){0};
    if (rd_plan_create_kernel(ctx, kernel, params, count, m, m, &l->plan)) return cli_fail(RD_E_UNSUPPORTED);
    rd_status status = rd_gemm_run(l->plan, args, NULL, &l->ws_bytes, NULL);
    if (status != RD_OK) return cli_fail(status);
    l->ws = room((int64_t)l->ws_bytes + 1);
    return l->ws ? RD_OK : cli_error(RD_E_NOMEM, "no memory for %zu bytes of workspace", l->ws_bytes);
}
static void launcher_free(launcher *l) {
    rd_plan_free(l->plan);
    free(l->ws);
}

// Sixteen columns from n on of the first and last rows through the reference, from the row-major source: adds to the sums.
static rd_status check_slice(bench_run *run, const problem *p, const char *reference, int64_t m, int64_t n,
                             double *off, double *size) {
    float want[SLICE];
    int64_t elem_bytes = p->w16 ? 2 : 1, width = p->n - n < SLICE ? p->n - n : SLICE,
            blocks = (p->k + BLOCK - 1) / BLOCK;
    rd_gemm_args args = p->args;
    args.a = rd_tensor_2d((uint8_t *)p->a + m * p->k * (p->a8 ? 1 : 2), args.a.dtype, 1, p->k);
    if (p->a8) args.a_scale = rd_tensor_2d(p->a_scale + m * blocks, RD_DTYPE_F32, 1, blocks);
    args.w = rd_tensor_2d(p->source + n * p->k * elem_bytes, args.w.dtype, width, p->k);
    if (!p->w16) args.w_scale = rd_tensor_2d(p->w_scale + n / BLOCK * blocks, RD_DTYPE_F32, 1, blocks);
    args.c = rd_tensor_2d(want, RD_DTYPE_F32, 1, width);
    rd_param params[MOST_PARAMS];
    memcpy(params, p->params, sizeof params);
    params[0].i = width;
    for (int i = 0; i < p->param_count; i++)
        if (!strcmp(params[i].key, "layout")) params[i].word = "row";
    launcher l;
    rd_status status = launcher_make(run->host, reference, params, p->param_count, &args, &l);
    if (status == RD_OK && rd_gemm_run(l.plan, &args, l.ws, &l.ws_bytes, NULL))
        status = cli_fail(RD_E_INTERNAL);
    for (int64_t i = 0; status == RD_OK && i < width; i++) {
        *off += fabs((double)p->c[m * p->n + n + i] - (double)want[i]);
        *size += fabs((double)want[i]);
    }
    launcher_free(&l);
    return status;
}

// What the row left in p->c.
static rd_status judge(bench_run *run, const problem *p, const rd_kernel_info *kernel, double *error) {
    const char *reference = NULL;
    const rd_kernel_info *info;
    for (int32_t i = 0; (info = rd_kernel_at(i)); i++)
        if (info->is_reference && !strcmp(info->op, run->op)) reference = info->name;
    double off = 0, size = 0;
    for (int i = 0; i < 8; i++) {
        int64_t m = i * (p->m - 1) / 7,
                n = i * ((p->n - 1) / SLICE) / 7 * SLICE; // whole slices: none crosses a scale block
        rd_status status = check_slice(run, p, reference, m, n, &off, &size);
        if (status != RD_OK) return status;
    }
    *error = off / size / error_limit;
    if (*error <= 1) return RD_OK;
    return cli_error(RD_E_INTERNAL, "%s: mean|difference|/mean|reference|=%.3g, needs <= %g: not timed",
                     kernel->name, *error * error_limit, error_limit);
}

static void poison(problem *p) { // NaN: an element that stays unwritten fails
    memset(p->c, 0xff, (size_t)(p->m * p->n) * sizeof(float));
}
static rd_status verify(bench_run *run, problem *p, const rd_kernel_info *kernel, launcher *l,
                        double *error) {
    poison(p);
    if (rd_gemm_run(l->plan, &p->args, l->ws, &l->ws_bytes, NULL)) return cli_fail(RD_E_INTERNAL);
    return judge(run, p, kernel, error);
}

// Turns of our kernel, the ceilings and the rival, so that a noisy neighbour meets all of them.
static rd_status time_row(bench_run *run, problem *p, const rd_kernel_info *kernel, launcher *l,
                          bench_result *r) {
    static bench_samples ours, theirs; // 64 KiB: not for the stack
    ours.count = theirs.count = 0;
    int64_t copy = 0;
    for (double end = bench_wall() + run->options->seconds; bench_wall() < end || ours.count < 3;) {
        if (cli_interrupted()) return RD_E_CANCELLED;
        // One sample is one call, or as many as a millisecond holds: longer ones meet more interruptions than the ceilings do.
        double begin = bench_now(), now = begin;
        int64_t calls = 0;
        for (; calls < p->copies && now - begin < 1e-3; calls++, now = bench_now()) {
            p->args.w.data = p->weights + copy++ % p->copies * p->copy_bytes;
            if (rd_gemm_run(l->plan, &p->args, l->ws, &l->ws_bytes, NULL)) return cli_fail(RD_E_INTERNAL);
        }
        bench_sample(&ours, (now - begin) / (double)calls);
        if (ours.count % 8 == 1) {
            double read = bench_read_gbs(run->threads, p->weights, p->copies * p->copy_bytes);
            double fma = bench_fma_gflops(run->threads, kernel->isa);
            r->read_gbs = read > r->read_gbs ? read : r->read_gbs;
            r->fma_gflops = fma > r->fma_gflops ? fma : r->fma_gflops;
        }
        if (!run->rival) continue;
        begin = bench_now();
        if (run->rival->gemm_run((int)(ours.count % p->copies)))
            return cli_error(RD_E_INTERNAL, "the rival failed");
        bench_sample(&theirs, bench_now() - begin);
    }
    p->args.w.data = p->weights;
    r->us_best = bench_best(&ours), r->us_median = bench_median(&ours);
    if (run->rival) r->rival = run->options->rival, r->rival_us = bench_best(&theirs);
    return RD_OK;
}

static rd_status time_on_card(bench_run *run, problem *p, const rd_kernel_info *kernel, bench_result *r) {
    const bench_call call = {.params = p->params,
                             .param_count = p->param_count,
                             .at = p->m,
                             .args = &p->args,
                             .bytes = r->bytes,
                             .shape = r->shape};
    bench_card *card = NULL;
    poison(p);
    rd_status status = bench_card_open(run, &call, kernel->name, &card);
    if (status == RD_OK) status = bench_card_once(card);
    if (status == RD_OK) status = judge(run, p, kernel, &r->error);
    if (status == RD_OK) status = bench_card_time(card, r);
    bench_card_close(card);
    return status;
}

static rd_status bench_row(bench_run *run, problem *p, const rd_kernel_info *kernel) {
    char shape[128];
    snprintf(shape, sizeof shape, "m=%lld,n=%lld,k=%lld,layout=%s", (long long)p->m, (long long)p->n,
             (long long)p->k, p->layout);
    bench_result result = {.kernel = kernel->name,
                           .shape = shape,
                           .state = run->options->cpu_time ? "cold, cpu time" : "cold",
                           .flops = 2.0 * (double)p->m * (double)p->n * (double)p->k};
    result.bytes = (double)p->n * (double)p->k * (p->w16 ? 2 : 1); // the weight: what must come from memory
    if (bench_on_card(run)) {
        rd_status timed = time_on_card(run, p, kernel, &result);
        return timed == RD_OK ? bench_report(run, &result) : timed;
    }
    launcher l;
    rd_status status = launcher_make(run->ctx, kernel->name, p->params, p->param_count, &p->args, &l);
    if (status == RD_OK) status = verify(run, p, kernel, &l, &result.error);
    if (status == RD_OK) status = time_row(run, p, kernel, &l, &result);
    if (status == RD_OK) status = bench_report(run, &result);
    launcher_free(&l);
    return status;
}

static rd_status bench_shape(bench_run *run, problem *p) {
    const rd_kernel_info *rows[MOST_ROWS];
    rd_param question[MOST_PARAMS + 1];
    int found = 0;
    p->w16 = !strcmp(run->op, "gemm_bf16"), p->a8 = !strcmp(run->op, "gemm_fp8block");
    describe(p);
    memcpy(question, p->params, sizeof p->params);
    question[p->param_count] = (rd_param)RD_INT("m", p->m);
    rd_status status = bench_rows(run, question, p->param_count + 1, rows, MOST_ROWS, &found);
    if (status == RD_OK && !found && bench_on_card(run) && !run->options->shape) { // of the usual shapes
        fprintf(stderr, "radiance: no row takes m=%lld n=%lld k=%lld layout=%s\n", (long long)p->m,
                (long long)p->n, (long long)p->k, p->layout);
        return RD_OK;
    }
    if (status != RD_OK || !found)
        return status != RD_OK
                   ? status
                   : cli_error(RD_E_UNSUPPORTED,
                               "no such row takes m=%lld n=%lld k=%lld layout=%s: ask `radiance explain`",
                               (long long)p->m, (long long)p->n, (long long)p->k, p->layout);
    status = problem_make(run, p);
    bool rival = status == RD_OK && run->rival;
    if (rival && run->rival->gemm_open(p->m, p->n, p->k, (int)(p->copies < 8 ? p->copies : 8), run->threads))
        status = cli_error(RD_E_INTERNAL, "the rival does not take m=%lld n=%lld k=%lld", (long long)p->m,
                           (long long)p->n, (long long)p->k);
    for (int i = 0; status == RD_OK && i < found; i++) status = bench_row(run, p, rows[i]);
    if (rival) run->rival->gemm_close();
    problem_free(p);
    return status;
}

// Decode, verify and prefill of an 8B model's square projection, of a small model's down projection, and of its head.
rd_status bench_gemm(bench_run *run) {
    static const int64_t usual[][3] = {{1, 4096, 4096},  {1, 576, 1536},    {8, 4096, 4096},
                                       {17, 4096, 4096}, {512, 4096, 4096}, {512, 576, 1536}};
    static const int64_t head[][3] = {{1, 49152, 576}, {8, 49152, 576}, {64, 49152, 576}, {512, 4096, 4096}};
    bool bf16 = !strcmp(run->op, "gemm_bf16");
    const int64_t(*shapes)[3] = bf16 ? head : usual;
    static const int64_t small[][3] = {{8, 256, 512}, {150, 256, 512}}; // executed instruction by instruction
    if (run->simulated) shapes = small;
    int count = run->options->shape ? 1
                : run->simulated    ? CLI_COUNT(small)
                : bf16              ? CLI_COUNT(head)
                                    : CLI_COUNT(usual);
    const char *layout = bench_on_card(run) ? "row" : "panel16";
    rd_status status = RD_OK;
    for (int i = 0; status == RD_OK && i < count; i++) {
        problem p = {.m = shapes[i][0],
                     .n = shapes[i][1],
                     .k = shapes[i][2],
                     .layout = run->options->layout ? run->options->layout : layout};
        bench_shape_value(run->options, "M", &p.m);
        bench_shape_value(run->options, "N", &p.n);
        bench_shape_value(run->options, "K", &p.k);
        status = bench_shape(run, &p);
    }
    return status;
}
