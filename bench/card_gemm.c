// SPDX-License-Identifier: Apache-2.0
// Times the block-FP8 GEMM of decode steps and prefill on a card, through the public ABI alone: one CSV line a kernel, shape and row
// count. Every row of the op that takes the question is timed, and cuBLASLt from 16 rows on where it can be loaded.
//
//   card_gemm [DEVICE] [CUBLASLT] [ROWS,ROWS..] [REST_MS] > results.csv
//
// DEVICE defaults to gpu:0, CUBLASLT (or "") to where the system keeps it. With a rest of so many milliseconds before each replay the
// card comes to it cold; without, replays follow each other, and a card at its limit of power lowers its clock.
//
// Up to 128 rows a graph holds at least 60 calls, which take turns over so many copies of the weights that no cache has a part in
// it; the median of 15 replays, divided by the calls, is the time. Before that, calls run one by one: sampled outputs are compared
// with the formula in double, and after the replays every call's output must equal, bit for bit, what it was alone.
#include "cublaslt.h"
#include "radiance.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REPLAYS = 15,
    LEAST_CALLS = 60,
    STEP_ROWS = 128,
    MOST_ROWS = 8192,
    SAMPLES = 64,
    RIVAL_ROWS = 16,
    MOST_COUNTS = 16
};
static const size_t RIVAL_WS_BYTES = 64 << 20;
static const int64_t READ_BYTES = (int64_t)2 << 30;
static const double ROTATED_BYTES = 420e6; // seven times the 60 MB second-level cache of an H200

static rd_ctx *ctx;
static cublaslt *rival;
static int64_t counts[MOST_COUNTS] = {1, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 8192}; // of rows
static int count_of_counts = 12;
static long rest_ms;

static void need(rd_status status) {
    if (status == RD_OK) return;
    fprintf(stderr, "card_gemm: %s\n", rd_error_text());
    exit(1);
}

static void *card_alloc(size_t bytes) {
    void *out = NULL;
    need(rd_memory_alloc(ctx, bytes, &out));
    return out;
}

static void *host_alloc(size_t bytes) {
    void *out = malloc(bytes);
    if (!out) fprintf(stderr, "card_gemm: no memory for %zu bytes\n", bytes), exit(1);
    return out;
}

static uint64_t rng = 0x9e3779b97f4a7c15u;
static uint32_t next_random(void) {
    rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
    return (uint32_t)(rng >> 32);
}

static void fill_codes(uint8_t *code, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        code[i] = (uint8_t)next_random();
        if ((code[i] & 0x7f) == 0x7f) code[i]--; // NaN becomes 448
    }
}

static void fill_scales(float *scale, int64_t count) {
    for (int64_t i = 0; i < count; i++) scale[i] = 1e-3f * (1.0f + (float)(next_random() % 1000) / 1000.0f);
}

static double e4m3(uint8_t code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -size : size;
}

static double bf16(uint16_t code) {
    uint32_t word = (uint32_t)code << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return (double)value;
}

typedef struct problem {
    int64_t m, n, k, copies, turns; // a graph holds copies * turns calls
    uint8_t *a, *w;                 // host
    float *a_scale, *w_scale;
    uint16_t *alone, *replayed;                          // [copies, m, n]
    void *card_a, *card_w, *card_a_scale, *card_w_scale; // w: [copies, n, k]
    unsigned char *card_c, *ws;
    size_t ws_bytes;
    rd_plan *plan; // NULL: the rival's `choice`
    int choice;
    rd_stream stream;
} problem;

static size_t c_bytes(const problem *p) {
    return (size_t)(p->m * p->n) * 2;
}

static rd_gemm_args args_of(const problem *p, int64_t copy) {
    rd_gemm_args args = {.struct_size = sizeof args};
    args.a = rd_tensor_2d(p->card_a, RD_DTYPE_E4M3, p->m, p->k);
    args.a_scale = rd_tensor_2d(p->card_a_scale, RD_DTYPE_F32, p->m,
                                p->k / 128); // rows side by side, as the rival has them
    args.a_scale.stride[0] = 1, args.a_scale.stride[1] = p->m;
    args.w = rd_tensor_2d((unsigned char *)p->card_w + copy * p->n * p->k, RD_DTYPE_E4M3, p->n, p->k);
    args.w_scale = rd_tensor_2d(p->card_w_scale, RD_DTYPE_F32, p->n / 128, p->k / 128);
    args.c = rd_tensor_2d(p->card_c + (size_t)copy * c_bytes(p), RD_DTYPE_BF16, p->m, p->n);
    args.a.device = args.a_scale.device = args.w.device = args.w_scale.device = args.c.device = 1;
    return args;
}

static void run_copy(problem *p, int64_t copy) {
    const rd_gemm_args args = args_of(p, copy);
    if (p->plan) {
        need(rd_gemm_run(p->plan, &args, p->ws, &p->ws_bytes, p->stream));
    } else if (cublaslt_run(rival, p->choice, args.a.data, args.w.data, args.c.data, p->stream)) {
        fprintf(stderr, "card_gemm: cublasLtMatmul failed\n");
        exit(1);
    }
}

static void read_outputs(problem *p, uint16_t *to) {
    need(rd_memory_copy(ctx, to, p->card_c, (size_t)p->copies * c_bytes(p), RD_COPY_TO_HOST, p->stream));
    need(rd_stream_sync(ctx, p->stream));
}

// Largest error over the sampled outputs, as a share of the sum of the terms' magnitudes.
static double worst_error(const problem *p) {
    double worst = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        int64_t row = next_random() % p->m, column = next_random() % p->n;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < p->k; k++) {
            double term = e4m3(p->a[row * p->k + k]) * (double)p->a_scale[k / 128 * p->m + row] *
                          e4m3(p->w[column * p->k + k]) *
                          (double)p->w_scale[column / 128 * (p->k / 128) + k / 128];
            sum += term, size += fabs(term);
        }
        worst = fmax(worst, fabs(bf16(p->alone[row * p->n + column]) - sum) / size);
    }
    return worst;
}

static int by_size(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double time_replays(problem *p) {
    rd_graph *graph;
    rd_timer *timer;
    double us[REPLAYS];
    need(rd_graph_begin(ctx, p->stream));
    for (int64_t call = 0; call < p->copies * p->turns; call++) run_copy(p, call % p->copies);
    need(rd_graph_end(ctx, p->stream, &graph));
    need(rd_timer_create(ctx, &timer));
    for (int i = rest_ms ? 0 : -3; i < REPLAYS; i++) { // three unmeasured ones raise the clocks
        if (rest_ms) nanosleep(&(struct timespec){rest_ms / 1000, rest_ms % 1000 * 1000000}, NULL);
        need(rd_timer_start(timer, p->stream));
        need(rd_graph_launch(graph, p->stream));
        need(rd_timer_stop(timer, p->stream));
        need(rd_timer_read(timer, &us[i < 0 ? 0 : i]));
    }
    need(rd_stream_sync(ctx, p->stream));
    rd_timer_free(timer);
    rd_graph_free(graph);
    qsort(us, REPLAYS, sizeof *us, by_size);
    return us[REPLAYS / 2] / (double)(p->copies * p->turns);
}

// Alone, then replayed; false when the replays differ or the sums are wrong.
static double measure(problem *p, const char *kernel, int *good) {
    need(rd_memory_set(ctx, p->card_c, 0xff, (size_t)p->copies * c_bytes(p), p->stream));
    for (int64_t copy = 0; copy < p->copies; copy++) {
        run_copy(p, copy);
        need(rd_stream_sync(ctx, p->stream));
    }
    read_outputs(p, p->alone);
    const double error = worst_error(p);
    need(rd_memory_set(ctx, p->card_c, 0xff, (size_t)p->copies * c_bytes(p), p->stream));
    const double us = time_replays(p), products = (double)p->m * (double)p->n * (double)p->k;
    read_outputs(p, p->replayed);
    const int same = !memcmp(p->alone, p->replayed, (size_t)p->copies * c_bytes(p));
    printf("%s,%lld,%lld,%lld,%lld,%.2f,%.0f,%.1f,%.1e,%s", kernel, (long long)p->m, (long long)p->n,
           (long long)p->k, (long long)(p->copies * p->turns), us, (double)(p->n * p->k) / us * 1e-3,
           2 * products / us * 1e-6, error, same ? "same" : "DIFFERENT");
    *good = same && error <= 4e-3; // bf16 keeps 2^-9 of the result
    return us;
}

static double measure_rival(problem *p) {
    char why[256];
    const cublaslt_gemm gemm = {p->m, p->n, p->k, p->card_a_scale, p->card_w_scale, p->ws, RIVAL_WS_BYTES};
    const int choices = cublaslt_plan(rival, &gemm, why, sizeof why);
    double best = 0;
    int good = 0;
    if (!choices) fprintf(stderr, "card_gemm: %s\n", why);
    p->plan = NULL;
    for (p->choice = 0; p->choice < choices; p->choice++) {
        const double us = measure(p, "cublaslt", &good);
        printf(",\n");
        if (good && (best == 0 || us < best)) best = us;
    }
    return best;
}

static void measure_kernel(problem *p, const char *kernel, const rd_param *question, int32_t count,
                           double rival_us) {
    int good = 0;
    need(rd_plan_create_kernel(ctx, kernel, question, count, p->m, p->m, &p->plan));
    const rd_gemm_args first = args_of(p, 0);
    size_t bytes = 0;
    need(rd_gemm_run(p->plan, &first, NULL, &bytes, p->stream));
    if (bytes > p->ws_bytes) {
        need(rd_memory_free(ctx, p->ws));
        p->ws = card_alloc(p->ws_bytes = bytes + 64);
    }
    need(rd_memory_set(ctx, p->ws, 0, p->ws_bytes, p->stream));
    const double us = measure(p, kernel, &good);
    printf(",%.2f\n", rival_us / us);
    fflush(stdout);
    rd_plan_free(p->plan);
    if (!good) exit(1);
}

static void measure_rows(problem *p) {
    enum { MOST_KERNELS = 64 };
    const rd_param question[] = {RD_WORD("a_dtype", "fp8_e4m3"),
                                 RD_WORD("c_dtype", "bf16"),
                                 RD_WORD("layout", "row"),
                                 RD_WORD("w_scale_dtype", "fp32"),
                                 RD_WORD("order", "any"),
                                 RD_INT("n", p->n),
                                 RD_INT("k", p->k),
                                 RD_INT("bias", 0),
                                 RD_INT("m", p->m)};
    rd_verdict verdicts[MOST_KERNELS];
    int32_t rows = MOST_KERNELS;
    const double rival_us = rival && p->m >= RIVAL_ROWS ? measure_rival(p) : 0;
    need(rd_kernel_explain(rd_ctx_device(ctx), "gemm_fp8block", question, 9, verdicts, &rows));
    for (int32_t i = 0; i < rows; i++)
        if (verdicts[i].ok) measure_kernel(p, verdicts[i].kernel->name, question, 8, rival_us);
}

static void to_card(void **card, const void *host, size_t bytes) {
    *card = card_alloc(bytes);
    need(rd_memory_copy(ctx, *card, host, bytes, RD_COPY_TO_DEVICE, NULL));
}

// Rows beyond a step's are bound by products: fewer copies, fewer calls.
static void measure_count(problem *p, int64_t m) {
    p->m = m;
    p->copies = (int64_t)ceil((m <= STEP_ROWS ? ROTATED_BYTES : ROTATED_BYTES / 4) / (double)(p->n * p->k));
    if (m > 1024) p->copies = 1;
    p->turns = ((m <= STEP_ROWS ? LEAST_CALLS : m <= 1024 ? 12 : 4) + p->copies - 1) / p->copies;
    const size_t out_bytes = (size_t)p->copies * c_bytes(p);
    p->alone = host_alloc(out_bytes), p->replayed = host_alloc(out_bytes);
    p->card_c = card_alloc(out_bytes);
    measure_rows(p);
    free(p->alone), free(p->replayed);
    need(rd_memory_free(ctx, p->card_c));
}

static void measure_shape(int64_t n, int64_t k) {
    problem p = {.n = n, .k = k};
    const int64_t copies = (int64_t)ceil(ROTATED_BYTES / (double)(n * k));
    const size_t w_bytes = (size_t)(n * k), a_scales = (size_t)(MOST_ROWS * k / 128),
                 w_scales = (size_t)(n / 128 * (k / 128));
    p.a = host_alloc((size_t)(MOST_ROWS * k)), p.w = host_alloc(w_bytes);
    p.a_scale = host_alloc(a_scales * sizeof(float)), p.w_scale = host_alloc(w_scales * sizeof(float));
    fill_codes(p.a, MOST_ROWS * k), fill_codes(p.w, n * k);
    fill_scales(p.a_scale, (int64_t)a_scales), fill_scales(p.w_scale, (int64_t)w_scales);
    to_card(&p.card_a, p.a, (size_t)(MOST_ROWS * k));
    to_card(&p.card_a_scale, p.a_scale, a_scales * sizeof(float));
    to_card(&p.card_w_scale, p.w_scale, w_scales * sizeof(float));
    p.card_w = card_alloc((size_t)copies * w_bytes);
    p.ws = card_alloc(p.ws_bytes = RIVAL_WS_BYTES);
    for (int64_t copy = 0; copy < copies; copy++)
        need(rd_memory_copy(ctx, (unsigned char *)p.card_w + (size_t)copy * w_bytes, p.w, w_bytes,
                            RD_COPY_TO_DEVICE, NULL));
    need(rd_stream_create(ctx, &p.stream));
    for (int i = 0; i < count_of_counts; i++) measure_count(&p, counts[i]);
    need(rd_stream_free(ctx, p.stream));
    void *const cards[] = {p.card_a, p.card_a_scale, p.card_w_scale, p.card_w, p.ws}, *const hosts[] = {
                                                                                          p.a, p.w, p.a_scale,
                                                                                          p.w_scale};
    for (int i = 0; i < 5; i++) need(rd_memory_free(ctx, cards[i]));
    for (int i = 0; i < 4; i++) free(hosts[i]);
}

static void read_counts(const char *list) {
    char *end;
    for (count_of_counts = 0; *list && count_of_counts < MOST_COUNTS; list = *end ? end + 1 : end) {
        const long long rows = strtoll(list, &end, 10);
        if (end == list || rows < 1 || rows > MOST_ROWS || (*end && *end != ',')) {
            fprintf(stderr, "card_gemm: ROWS: \"%s\": counts of 1 to %d with commas between them\n", list,
                    MOST_ROWS);
            exit(2);
        }
        counts[count_of_counts++] = rows;
    }
}

int main(int argc, char **argv) {
    const rd_ctx_options options = {.struct_size = sizeof options, .device = argc > 1 ? argv[1] : "gpu:0"};
    char why[256];
    double read_gbs = 0;
    need(rd_ctx_create(&options, &ctx));
    need(rd_ctx_measure_read(ctx, READ_BYTES, &read_gbs));
    if (argc > 3 && *argv[3]) read_counts(argv[3]);
    if (argc > 4) rest_ms = strtol(argv[4], NULL, 10);
    rival = cublaslt_open(argc > 2 && *argv[2] ? argv[2] : NULL, why, sizeof why);
    if (!rival) fprintf(stderr, "card_gemm: without cuBLASLt: %s\n", why);
    fprintf(stderr, "read ceiling %.0f GB/s\n", read_gbs);
    printf("kernel,m,n,k,calls,us,weight_gbs,tflops,error,replays,rival_ratio\n");
    measure_shape(14336, 5120); // the shapes of a 27B model: gate or up of one half, o, gate and up, down
    measure_shape(5120, 6144);
    measure_shape(34816, 5120);
    measure_shape(5120, 17408);
    rd_ctx_free(ctx);
    return 0;
}
