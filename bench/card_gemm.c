// SPDX-License-Identifier: Apache-2.0
// Times the GEMMs of decode steps and prefill on a card: one CSV line a kernel, shape and row count. Every row of the op that takes
// the question is timed, and cuBLASLt and DeepGEMM beside them where they are given.
//
//   card_gemm [--device gpu:0] [--op gemm_fp8block|gemm_fp8block_w8a16|gemm_bf16] [--shapes 14336x5120,...] [--rows 1,16,...]
//             [--edges dependent|plain|both] [--layout row|tile64|shuffle16] [--cublaslt PATH|none] [--deepgemm FOLDER] [--chain] > results.csv
//
// Up to 128 rows a graph holds at least 60 calls, which take turns over so many copies of the weights that no cache has a part in
// it; the median of 15 replays, divided by the calls, is the time. Before that, calls run one by one: sampled outputs are compared
// with the formula in double, and after the replays every call's output must equal, bit for bit, what it was alone. From 2048 rows
// on the card's power sets its clock: such cells are timed cold and warm (card.h). --chain: one call of each shape in turn, with
// the first row of each, one line a row count. cuBLASLt's edges are its own, whatever the column says. A weight in another layout
// than row is packed once, and the rivals, which read rows, are left out.
#include "card.h"
#include "cublaslt.h"
#include "deepgemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_CALLS = 60, STEP_ROWS = 128, HOT_ROWS = 2048, SAMPLES = 64, CUBLASLT_ROWS = 16 };
static const size_t RIVAL_WS_BYTES = 64 << 20;
// Operands repeat a pattern whose length is no multiple of a row's or a block's, so that no two blocks are alike.
static const int64_t PATTERN_ELEMS = (32 << 20) + 1003;
static const double ROTATED_BYTES = 420e6; // seven times the 60 MB second-level cache of an H200
// Of an output: half a step of bf16, 2^-8 of it at most, and a sixteenth more; of the sum of its terms' magnitudes what the tensor
// cores' own sums of e4m3 products may lose (they keep about 14 bits below the largest product).
static const double OUTPUT_ERROR = 0x1.1p-8, SUM_ERROR = 0x1p-12;

typedef struct options {
    const char *device, *op, *cublaslt, *deepgemm, *layout;
    bool dependent, plain, chain;
    int64_t n[CARD_LIST], k[CARD_LIST], rows[CARD_LIST];
    int shapes, row_counts;
} options;

static options o;
static cublaslt *lt;
static deepgemm *dg;

typedef enum runner { OURS = 0, CUBLASLT, DEEPGEMM } runner;
typedef struct problem {
    int64_t m, n, k, copies, turns; // a graph holds copies * turns calls
    size_t w_elem, a_elem;          // bytes
    void *a, *w;                    // host
    rd_tensor form;                 // of a weight, in its layout
    float *a_scale, *w_scale;
    uint16_t *alone, *replayed;                          // [copies, m, n]
    void *card_a, *card_w, *card_a_scale, *card_w_scale; // w: [copies, n, k]
    unsigned char *card_c, *ws;
    size_t ws_bytes;
    runner runner;
    int choice; // of cuBLASLt's
    bool dependent;
    rd_plan *plan;
} problem;

static bool fp8_weights(void) {
    return strcmp(o.op, "gemm_bf16") != 0;
}
static bool fp8_activations(void) {
    return !strcmp(o.op, "gemm_fp8block");
}
static size_t c_bytes(const problem *p) {
    return (size_t)(p->m * p->n) * 2;
}
static size_t w_bytes(const problem *p) {
    return (size_t)(p->n * p->k) * p->w_elem;
}
// Rows of a k block side by side, from 16 bytes on: as the rivals have them.
static int64_t scale_stride(const problem *p) {
    return (p->m + 3) / 4 * 4;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void fill(void *data, int64_t count, bool fp8) {
    uint8_t *codes = data;
    if (!fp8) card_fill_bf16(data, count);
    for (int64_t i = 0; i < count && fp8; i++) {
        const uint32_t r = card_random();
        codes[i] = (uint8_t)((r & 0x7f) == 0x7f ? r - 1 : r); // NaN becomes 448
    }
}

static double value(const void *data, int64_t i, bool fp8) {
    const int64_t at = i % PATTERN_ELEMS;
    return fp8 ? card_e4m3(((const uint8_t *)data)[at]) : card_bf16(((const uint16_t *)data)[at]);
}

static rd_gemm_args args_of(const problem *p, int64_t copy) {
    rd_gemm_args args = {.struct_size = sizeof args};
    args.a = rd_tensor_2d(p->card_a, fp8_activations() ? RD_DTYPE_E4M3 : RD_DTYPE_BF16, p->m, p->k);
    args.w = p->form;
    args.w.data = (unsigned char *)p->card_w + (size_t)copy * w_bytes(p);
    args.c = rd_tensor_2d(p->card_c + (size_t)copy * c_bytes(p), RD_DTYPE_BF16, p->m, p->n);
    if (fp8_activations()) {
        args.a_scale = rd_tensor_2d(p->card_a_scale, RD_DTYPE_F32, p->m, p->k / 128);
        args.a_scale.stride[0] = 1, args.a_scale.stride[1] = scale_stride(p);
    }
    if (fp8_weights()) args.w_scale = rd_tensor_2d(p->card_w_scale, RD_DTYPE_F32, p->n / 128, p->k / 128);
    args.a.device = args.a_scale.device = args.w.device = args.w_scale.device = args.c.device =
        rd_ctx_device_number(card_ctx);
    return args;
}

static void run_copy(void *state, int64_t call) {
    problem *p = state;
    const rd_gemm_args args = args_of(p, call % p->copies);
    int failed = 0;
    if (p->runner == CUBLASLT)
        failed = cublaslt_run(lt, p->choice, args.a.data, args.w.data, args.c.data, card_stream);
    else if (p->runner == DEEPGEMM)
        failed = deepgemm_run(dg, args.w.data, args.c.data, card_stream, p->dependent);
    else
        card_need(rd_gemm_run(p->plan, &args, p->ws, &p->ws_bytes, card_stream));
    if (failed) card_fail("card_gemm: a rival's call failed: %d", failed);
}

// Largest error over the sampled outputs, as a share of what is allowed.
static double worst_error(const problem *p) {
    double worst = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        const int64_t row = card_random() % p->m, column = card_random() % p->n;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < p->k; k++) {
            double term = value(p->a, row * p->k + k, fp8_activations()) *
                          value(p->w, column * p->k + k, fp8_weights());
            if (fp8_activations()) term *= (double)p->a_scale[k / 128 * scale_stride(p) + row];
            if (fp8_weights()) term *= (double)p->w_scale[column / 128 * (p->k / 128) + k / 128];
            sum += term, size += fabs(term);
        }
        const double error = fabs(card_bf16(p->alone[row * p->n + column]) - sum) /
                             (OUTPUT_ERROR * fabs(sum) + SUM_ERROR * size);
        worst = error > worst || !(error == error) ? error : worst;
    }
    return worst;
}

static void print_line(const problem *p, const char *kernel, card_state state, card_time time, double error,
                       bool same, double rival_us) {
    const double bytes = (double)w_bytes(p), products = (double)p->m * (double)p->n * (double)p->k;
    printf("%s,%s,%lld,%lld,%lld,%s,%s,%lld,%.2f,%.2f,%.0f,%.1f,%.1f,%.2f,%s,", card_run, kernel,
           (long long)p->m, (long long)p->n, (long long)p->k, p->dependent ? "dependent" : "plain",
           card_state_name(state), (long long)(p->copies * p->turns), time.us, time.best_us,
           bytes / time.us * 1e-3, 100 * bytes * 1e-3 / card_read_gbs / time.us,
           2 * products / time.us * 1e-6, error, same ? "same" : "DIFFERENT");
    if (rival_us > 0) printf("%.3f", rival_us / time.us);
    printf("\n");
    fflush(stdout);
}

// Alone, then replayed; rival_us[state]: the best rival's, to compare with or (for a rival) to lower.
static bool measure(problem *p, const char *kernel, double rival_us[3]) {
    const size_t bytes = (size_t)p->copies * c_bytes(p);
    card_set(p->card_c, 0xff, bytes);
    for (int64_t copy = 0; copy < p->copies; copy++) {
        run_copy(p, copy);
        card_need(rd_stream_sync(card_ctx, card_stream));
    }
    card_get(p->alone, p->card_c, bytes);
    const double error = worst_error(p);
    card_set(p->card_c, 0xff, bytes);
    rd_graph *graph = card_record(run_copy, p, p->copies * p->turns);
    const card_state first = p->m >= HOT_ROWS ? CARD_COLD : CARD_READY,
                     last = p->m >= HOT_ROWS ? CARD_WARM : CARD_READY;
    bool good = error <= 1;
    for (card_state state = first; state <= last; state++) {
        const card_time time = card_replay(graph, p->copies * p->turns, state);
        card_get(p->replayed, p->card_c, bytes);
        const bool same = !memcmp(p->alone, p->replayed, bytes);
        good = good && same;
        print_line(p, kernel, state, time, error, same, p->runner == OURS ? rival_us[state] : 0);
        if (p->runner != OURS && good && (rival_us[state] == 0 || time.us < rival_us[state]))
            rival_us[state] = time.us;
    }
    rd_graph_free(graph);
    return good;
}

static void measure_rivals(problem *p, double rival_us[3]) {
    char why[256];
    if (lt && p->m >= CUBLASLT_ROWS && strcmp(o.op, "gemm_fp8block_w8a16") != 0) {
        const cublaslt_gemm gemm = {p->m,  p->n,           p->k,          p->card_a_scale, p->card_w_scale,
                                    p->ws, RIVAL_WS_BYTES, !fp8_weights()};
        const int choices = cublaslt_plan(lt, &gemm, why, sizeof why);
        if (!choices) fprintf(stderr, "card_gemm: %s\n", why);
        p->runner = CUBLASLT;
        for (p->choice = 0; p->choice < choices; p->choice++) (void)measure(p, "cublaslt", rival_us);
    }
    if (dg && fp8_activations()) {
        const deepgemm_gemm gemm = {p->m, p->n, p->k, p->card_a, p->card_a_scale, p->card_w_scale};
        p->runner = DEEPGEMM;
        if (deepgemm_plan(dg, &gemm, why, sizeof why))
            (void)measure(p, "deepgemm", rival_us);
        else
            fprintf(stderr, "card_gemm: %s\n", why);
    }
    p->runner = OURS;
}

static int32_t question_of(const problem *p, rd_param out[9]) {
    const rd_param question[] = {RD_WORD("a_dtype", fp8_activations() ? "fp8_e4m3" : "bf16"),
                                 RD_WORD("c_dtype", "bf16"),
                                 RD_WORD("layout", o.layout),
                                 RD_WORD("order", "any"),
                                 RD_INT("n", p->n),
                                 RD_INT("k", p->k),
                                 RD_INT("bias", 0),
                                 RD_WORD("w_scale_dtype", "fp32")};
    const int32_t count = fp8_weights() ? 8 : 7;
    memcpy(out, question, (size_t)count * sizeof *out);
    out[count] = (rd_param)RD_INT("m", p->m);
    return count;
}

static void open_kernel(problem *p, const char *kernel) {
    rd_param question[9];
    const int32_t count = question_of(p, question);
    p->plan = card_plan(kernel, question, count, p->m, !p->dependent);
    const rd_gemm_args first = args_of(p, 0);
    size_t bytes = 0;
    card_need(rd_gemm_run(p->plan, &first, NULL, &bytes, card_stream));
    if (bytes > p->ws_bytes) {
        card_free(p->ws);
        p->ws = card_alloc(p->ws_bytes = bytes + 64);
    }
    card_set(p->ws, 0, p->ws_bytes);
}

static void measure_rows(problem *p) {
    enum { MOST_KERNELS = 64 };
    rd_param question[9];
    rd_verdict verdicts[MOST_KERNELS];
    int32_t rows = MOST_KERNELS;
    double rival_us[3] = {0};
    const int32_t count = question_of(p, question);
    measure_rivals(p, rival_us);
    card_need(rd_kernel_explain(rd_ctx_device(card_ctx), o.op, question, count + 1, verdicts, &rows));
    for (int32_t i = 0; i < rows; i++) {
        if (!verdicts[i].ok) continue;
        open_kernel(p, verdicts[i].kernel->name);
        if (!measure(p, verdicts[i].kernel->name, rival_us))
            card_fail("card_gemm: %s is wrong here", verdicts[i].kernel->name);
        rd_plan_free(p->plan);
    }
}

// Rows beyond a step's are bound by products: fewer copies, fewer calls.
static void open_count(problem *p, int64_t m) {
    p->m = m;
    p->copies = (int64_t)ceil((m <= STEP_ROWS ? ROTATED_BYTES : ROTATED_BYTES / 4) / (double)w_bytes(p));
    if (m >= HOT_ROWS) p->copies = 1;
    p->turns = ((m <= STEP_ROWS ? LEAST_CALLS : m < HOT_ROWS ? 12 : 4) + p->copies - 1) / p->copies;
    if (card_simulated) p->copies = 1, p->turns = 2;
    const size_t out_bytes = (size_t)p->copies * c_bytes(p);
    p->alone = card_host(out_bytes), p->replayed = card_host(out_bytes);
    p->card_c = card_alloc(out_bytes);
    if (!fp8_activations()) return;
    const int64_t scales = p->k / 128 * scale_stride(p);
    p->a_scale = card_host((size_t)scales * sizeof(float));
    for (int64_t i = 0; i < scales; i++)
        p->a_scale[i] = 1e-3f * (1.0f + (float)(card_random() % 1000) / 1000.0f);
    p->card_a_scale = card_put(p->a_scale, (size_t)scales * sizeof(float));
}

static void close_count(problem *p) {
    free(p->alone), free(p->replayed), free(p->a_scale);
    card_free(p->card_c), card_free(p->card_a_scale);
    p->a_scale = NULL, p->card_a_scale = NULL;
}

// What every copy of the weight repeats, and how long it is: the pattern, or the whole weight packed.
static void *weight_source(problem *p, size_t *bytes) {
    *bytes = (size_t)PATTERN_ELEMS * p->w_elem;
    p->form = rd_tensor_2d(p->w, fp8_weights() ? RD_DTYPE_E4M3 : RD_DTYPE_BF16, p->n, p->k);
    if (!strcmp(o.layout, "row")) return p->w;
    unsigned char *rows = card_host(w_bytes(p));
    for (size_t at = 0; at < w_bytes(p); at += *bytes)
        memcpy(rows + at, p->w, *bytes < w_bytes(p) - at ? *bytes : w_bytes(p) - at);
    p->form.data = rows;
    rd_tensor packed = {0};
    card_need(rd_weight_pack(NULL, &p->form, o.layout, &packed));
    if ((size_t)(packed.shape[0] * packed.shape[1]) * p->w_elem != w_bytes(p))
        card_fail("card_gemm: --layout %s: its weights are longer than those of layout row", o.layout);
    packed.data = card_host(w_bytes(p));
    card_need(rd_weight_pack(NULL, &p->form, o.layout, &packed));
    free(rows);
    p->form = packed;
    *bytes = w_bytes(p);
    return packed.data;
}

static problem open_shape(int64_t n, int64_t k, int64_t most_rows) {
    problem p = {.n = n, .k = k, .w_elem = fp8_weights() ? 1 : 2, .a_elem = fp8_activations() ? 1 : 2};
    if (n % 128 || k % 128)
        card_fail("card_gemm: %lldx%lld, needs multiples of 128", (long long)n, (long long)k);
    const int64_t copies = card_simulated ? 1 : (int64_t)ceil(ROTATED_BYTES / (double)w_bytes(&p)),
                  scales = n / 128 * (k / 128);
    p.a = card_host((size_t)PATTERN_ELEMS * p.a_elem), p.w = card_host((size_t)PATTERN_ELEMS * p.w_elem);
    p.w_scale = card_host((size_t)scales * sizeof(float));
    fill(p.a, least(PATTERN_ELEMS, most_rows * k), fp8_activations());
    fill(p.w, least(PATTERN_ELEMS, n * k), fp8_weights());
    for (int64_t i = 0; i < scales; i++)
        p.w_scale[i] = 1e-3f * (1.0f + (float)(card_random() % 1000) / 1000.0f);
    p.card_a = card_alloc((size_t)(most_rows * k) * p.a_elem);
    card_tile(p.card_a, (size_t)(most_rows * k) * p.a_elem, p.a, (size_t)PATTERN_ELEMS * p.a_elem);
    p.card_w_scale = card_put(p.w_scale, (size_t)scales * sizeof(float));
    p.card_w = card_alloc((size_t)copies * w_bytes(&p));
    size_t source_bytes;
    void *source = weight_source(&p, &source_bytes);
    for (int64_t copy = 0; copy < copies; copy++)
        card_tile((unsigned char *)p.card_w + (size_t)copy * w_bytes(&p), w_bytes(&p), source, source_bytes);
    if (source != p.w) free(source);
    p.ws = card_alloc(p.ws_bytes = RIVAL_WS_BYTES);
    return p;
}

static void close_shape(problem *p) {
    card_free(p->card_a), card_free(p->card_w), card_free(p->card_w_scale), card_free(p->ws);
    free(p->a), free(p->w), free(p->w_scale);
}

static void run_chain(void *state, int64_t call) {
    problem *p = state;
    run_copy(&p[call % o.shapes], call / o.shapes);
}

// All shapes in turn: what edges between different kernels cost.
static void measure_chain(problem *p, int64_t m, bool dependent) {
    problem all = {.m = m, .copies = 1, .w_elem = 1, .k = 1, .dependent = dependent};
    const int64_t turns = LEAST_CALLS / o.shapes;
    bool same = true;
    double error = 0;
    for (int i = 0; i < o.shapes; i++) {
        rd_param question[9];
        p[i].dependent = dependent;
        open_count(&p[i], m);
        const int32_t count = question_of(&p[i], question);
        const char *kernel = card_kernel(o.op, question, count + 1);
        if (!kernel) card_fail("card_gemm: no row takes %lld rows", (long long)m);
        open_kernel(&p[i], kernel);
        all.n += (int64_t)w_bytes(&p[i]);
        for (int64_t copy = 0; copy < p[i].copies; copy++) {
            run_copy(&p[i], copy);
            card_need(rd_stream_sync(card_ctx, card_stream));
        }
        card_get(p[i].alone, p[i].card_c, (size_t)p[i].copies * c_bytes(&p[i]));
        error = fmax(error, worst_error(&p[i]));
        card_set(p[i].card_c, 0xff, (size_t)p[i].copies * c_bytes(&p[i]));
    }
    rd_graph *graph = card_record(run_chain, p, turns * o.shapes);
    const card_time time = card_replay(graph, turns, CARD_READY);
    rd_graph_free(graph);
    for (int i = 0; i < o.shapes; i++) {
        const size_t bytes = (size_t)(turns < p[i].copies ? turns : p[i].copies) * c_bytes(&p[i]);
        card_get(p[i].replayed, p[i].card_c, bytes);
        same = same && !memcmp(p[i].alone, p[i].replayed, bytes);
        rd_plan_free(p[i].plan);
        close_count(&p[i]);
    }
    all.turns = turns;
    print_line(&all, "chain", CARD_READY, time, error, same, 0);
    if (!same || !(error <= 1)) card_fail("card_gemm: the chain is wrong");
}

static void read_shapes(const char *text) {
    int used = 0;
    for (o.shapes = 0; *text; o.shapes++) {
        long long n, k;
        if (sscanf(text, "%lldx%lld%n", &n, &k, &used) != 2 || n < 1 || k < 1 || n > 1 << 30 || k > 1 << 30 ||
            (text[used] && text[used] != ',') || o.shapes == CARD_LIST)
            card_fail("card_gemm: cannot read %s, needs 14336x5120", text);
        o.n[o.shapes] = n, o.k[o.shapes] = k;
        text += used + (text[used] == ',');
    }
}

static void read_options(int argc, char **argv) {
    o = (options){.op = "gemm_fp8block", .layout = "row", .dependent = true};
    // Of a 27B model: gate or up of a half, o, gate and up, down.
    read_shapes("14336x5120,5120x6144,34816x5120,5120x17408");
    o.row_counts = card_numbers("1,8,16,32,64,96,128,192,256,512,1024,8192", o.rows);
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *text = strcmp(name, "--chain") ? card_value(argc, argv, i) : NULL;
        if (!strcmp(name, "--chain")) {
            o.chain = true;
            continue;
        }
        if (!strcmp(name, "--device"))
            o.device = text;
        else if (!strcmp(name, "--op"))
            o.op = text;
        else if (!strcmp(name, "--shapes"))
            read_shapes(text);
        else if (!strcmp(name, "--rows"))
            o.row_counts = card_numbers(text, o.rows);
        else if (!strcmp(name, "--layout"))
            o.layout = text;
        else if (!strcmp(name, "--cublaslt"))
            o.cublaslt = text;
        else if (!strcmp(name, "--deepgemm"))
            o.deepgemm = text;
        else if (!strcmp(name, "--edges"))
            card_word(name, text, "dependent plain both"), o.plain = strcmp(text, "dependent") != 0,
                                                           o.dependent = strcmp(text, "plain") != 0;
        else
            card_fail("card_gemm: %s is no option, see the top of bench/card_gemm.c", name);
        i++;
    }
}

static void open_rivals(void) {
    char why[256];
    if (strcmp(o.layout, "row") != 0) return;
    if (!o.cublaslt || strcmp(o.cublaslt, "none") != 0) lt = cublaslt_open(o.cublaslt, why, sizeof why);
    if (!lt && (!o.cublaslt || strcmp(o.cublaslt, "none") != 0))
        fprintf(stderr, "card_gemm: without cuBLASLt: %s\n", why);
    if (o.deepgemm && !(dg = deepgemm_open(o.deepgemm, why, sizeof why)))
        card_fail("card_gemm: no DeepGEMM: %s", why);
}

int main(int argc, char **argv) {
    problem chain[CARD_LIST];
    int64_t most = 1;
    read_options(argc, argv);
    for (int i = 0; i < o.row_counts; i++) most = o.rows[i] > most ? o.rows[i] : most;
    card_open(o.device);
    open_rivals();
    printf("run,kernel,m,n,k,edges,state,calls,us,best_us,weight_gbs,ceiling_percent,tflops,error,replays,"
           "rival_ratio\n");
    for (int s = 0; s < o.shapes; s++) {
        problem p = open_shape(o.n[s], o.k[s], most);
        for (int i = 0; i < o.row_counts && !o.chain; i++) {
            open_count(&p, o.rows[i]);
            for (int plain = 0; plain < 2; plain++) {
                p.dependent = !plain;
                if (plain ? o.plain : o.dependent) measure_rows(&p);
            }
            close_count(&p);
        }
        if (o.chain)
            chain[s] = p;
        else
            close_shape(&p);
    }
    for (int i = 0; i < o.row_counts && o.chain; i++)
        for (int plain = 0; plain < 2; plain++)
            if (plain ? o.plain : o.dependent) measure_chain(chain, o.rows[i], !plain);
    for (int s = 0; s < o.shapes && o.chain; s++) close_shape(&chain[s]);
    deepgemm_close(dg);
    card_close();
    return 0;
}
