// SPDX-License-Identifier: Apache-2.0
// What the benches of `radiance bench` share. An op's bench is one line of bench.def: BENCH_OP(op, "what it times",
// "options it uses", function) with `rd_status function(bench_run *run)`, which verifies, times and calls bench_report for each
// kernel and shape.
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli.h"

typedef struct bench_options {
    const char *device, *shape, *layout, *kernel, *rival, *csv, *model; // NULL = not given
    const char *config, *batch, *kv;                                    // of the bench step
    int64_t threads;                                                    // 0 = one, then all
    int64_t context, prefill;                                           // of the bench step, 0 = its default
    double seconds;                                                     // per kernel and shape
    bool all, json, cpu_time, w8a8;                                     // all: every row but the reference
} bench_options;

typedef struct bench_run {
    const bench_options *options;
    const char *op;
    rd_ctx *ctx, *host; // of `threads`; of the reference: the same on the CPU
    int32_t threads;
    bool simulated; // a card without a time: rows are checked and run, no figure is printed
    rd_device_info device;
    cJSON *list; // --json
    struct bench_rival *rival;
} bench_run;

typedef struct bench_result {
    const char *kernel, *shape;              // "m=1,n=4096,k=4096,layout=panel16"
    const char *state;                       // "cold": operands beyond the caches; "hot": in them
    double us_best, us_median, bytes, flops; // bytes and flops of one call
    double read_gbs, fma_gflops;             // ceilings of the same run; 0 = unknown
    const char *rival;                       // NULL = none
    double rival_us;
    double error; // of the check before timing, as a share of its limit
} bench_result;
// Prints and appends to the CSV file; RD_E_IO (already printed) when that cannot be written.
rd_status bench_report(bench_run *run, const bench_result *result);

#define BENCH_OP(op_, about_, uses_, function_) rd_status function_(bench_run *run);
#include "bench.def"
#undef BENCH_OP

// "M=1,N=4096,K=4096" or "m=1 n=..": false when the shape does not give the key (or no shape is given).
bool bench_shape_value(const bench_options *options, const char *key, int64_t *value);

// ---- time and ceilings (bench_ceiling.c) ---------------------------------------------------------------------------
double bench_wall(void); // seconds
double bench_now(void);  // the same, or CPU seconds of this process after bench_use_cpu_time(true)
void bench_use_cpu_time(bool on);
// Reads `bytes` once with `threads` threads, four sequential runs a thread: GB/s.
double bench_read_gbs(int32_t threads, const void *data, int64_t bytes);
// Independent f32 multiply-adds on registers with the vectors of `isa` ("avx2", "avx512"): GFLOP/s, 0 where unknown.
double bench_fma_gflops(int32_t threads, const char *isa);

typedef struct bench_samples {
    double us[4096];
    int count;
} bench_samples;
void bench_sample(bench_samples *samples, double seconds);
double bench_best(const bench_samples *samples);
double bench_median(bench_samples *samples); // sorts

// Rows of the run's op that take the question, fastest first, as the options ask: at most `most`.
rd_status bench_rows(bench_run *run, const rd_param *params, int32_t count, const rd_kernel_info **rows,
                     int most, int *found);

// ---- one call of an op (bench_call.c) ------------------------------------------------------------------------------
typedef struct bench_buffers { // operands, freed together
    void *at[24];
    int count;
    bool failed; // an allocation failed
} bench_buffers;
void *bench_room(bench_buffers *buffers, int64_t bytes); // zeroed, page aligned; NULL sets failed
void bench_buffers_free(bench_buffers *buffers);
void bench_fill(void *data, rd_dtype dtype, int64_t count, float size); // random numbers in +-size

typedef struct bench_call {
    const rd_param *params;
    int32_t param_count;
    int64_t at; // value of the op's interval key, 0 when it has none
    rd_status (*run)(const rd_plan *plan, const void *args, void *ws, size_t *ws_bytes);
    const void *args;
    const rd_tensor *out; // judged, dense; in_place: also read, so it is not poisoned
    bool in_place;
    double limit; // of mean|difference| / mean|reference|
    double bytes, flops;
    const char *shape;
    const void *memory; // for the read ceiling
    int64_t memory_bytes;
    void (*prepare)(void *state);              // fresh operands before a checked call; or NULL
    void (*rotate)(void *state, int64_t turn); // the next copy before a timed call: "cold"; NULL: "hot"
    void *state;
} bench_call;
// Checks and times every row that takes the call.
rd_status bench_call_rows(bench_run *run, const bench_call *call);

// ---- the same on a card (bench_card.c): operands are copied there, outputs back to the host's tensors --------------------
typedef struct bench_card bench_card;
static inline bool bench_on_card(const bench_run *run) {
    return rd_ctx_device_number(run->ctx) != 0;
}
rd_status bench_card_open(bench_run *run, const bench_call *call, const char *kernel, bench_card **out);
rd_status
bench_card_once(bench_card *card); // for a check: the first copy, as the host's operands were at open
rd_status bench_card_time(bench_card *card, bench_result *result);
void bench_card_close(bench_card *card);

// ---- rivals (bench_rival.c): a shared object built outside the tree, see bench/rivals/README.md ----------------------
typedef struct bench_rival {
    void *handle;
    const char *(*version)(void);
    int (*gemm_open)(int64_t m, int64_t n, int64_t k, int copies, int threads);
    int (*gemm_run)(int copy);
    void (*gemm_close)(void);
} bench_rival;
rd_status bench_rival_load(const char *name, bench_rival *rival);

#endif // CLI_BENCH_H
