// SPDX-License-Identifier: Apache-2.0
// The two ceilings that kernels are measured against: the library's read bandwidth, and multiply-adds timed by the workers
// themselves, from the first that starts to the last that ends, so that a main thread waiting for a core does not count.
#include "bench.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static clockid_t bench_clock = CLOCK_MONOTONIC;
void bench_use_cpu_time(bool on) {
    bench_clock = on ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
}

static double seconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
double bench_wall(void) {
    return seconds_of(CLOCK_MONOTONIC);
}
double bench_now(void) {
    return seconds_of(bench_clock);
}

void bench_sample(bench_samples *samples, double seconds) {
    if (samples->count < CLI_COUNT(samples->us)) samples->us[samples->count++] = seconds * 1e6;
}
double bench_best(const bench_samples *samples) {
    double best = samples->us[0];
    for (int i = 1; i < samples->count; i++) best = samples->us[i] < best ? samples->us[i] : best;
    return best;
}
static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
double bench_median(bench_samples *samples) {
    qsort(samples->us, (size_t)samples->count, sizeof samples->us[0], by_value);
    return samples->us[samples->count / 2];
}

enum { MOST_THREADS = 256 };
typedef struct worker {
    pthread_barrier_t *start;
    void (*body)(struct worker *worker);
    double begin, end;
    uint64_t sum; // of the chains, so that the compiler keeps them
} worker;

static void *worker_main(void *arg) {
    worker *w = arg;
    pthread_barrier_wait(w->start);
    w->begin = bench_now();
    w->body(w);
    w->end = bench_now();
    return NULL;
}

// Seconds from the first start to the last end; 0 when no thread could be made.
static double run_workers(worker *workers, int32_t count) {
    pthread_t threads[MOST_THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)count);
    workers[0].start = &start;
    for (int32_t i = 1; i < count; i++) {
        workers[i].start = &start;
        if (pthread_create(&threads[i], NULL, worker_main, &workers[i])) {
            fprintf(stderr, "radiance: no thread for the ceilings\n");
            exit(RD_E_NOMEM); // those already made wait at the barrier for ever
        }
    }
    worker_main(&workers[0]);
    double begin = workers[0].begin, end = workers[0].end;
    for (int32_t i = 1; i < count; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].begin < begin) begin = workers[i].begin;
        if (workers[i].end > end) end = workers[i].end;
    }
    pthread_barrier_destroy(&start);
    return end - begin;
}

static int32_t clamp_threads(int32_t threads) {
    return threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
}

double bench_read_gbs(int32_t threads, const void *data, int64_t bytes) {
    double gbs = 0, wall = bench_wall(), own = bench_now();
    if (rd_memory_measure(clamp_threads(threads), data, bytes, &gbs) != RD_OK) {
        cli_fail(RD_E_INTERNAL);
        return 0;
    }
    wall = bench_wall() - wall, own = bench_now() - own; // own: CPU time when that is asked for
    return gbs * wall / own;
}

#if defined(__x86_64__)
// Twelve chains cover latency times pipes of every x86 core sold so far (at most 5 cycles x 2 pipes). One asm statement, so
// that the chains stay in registers whatever the compiler thinks of the loop.
enum { FMA_ROUNDS = 100000, FMA_CHAINS = 12 };
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x16 __attribute__((vector_size(64)));
#define FMA_STEP(n_) "vfmadd213ps %13, %12, %" #n_ "\n\t"
#define DEFINE_FMA_BODY(name_, target_, type_, in_out_, in_)                                                 \
    __attribute__((target(target_))) static void name_(worker *w) {                                          \
        type_ x = (type_){0} + 0.999f, y = (type_){0} + 1e-3f;                                               \
        type_ a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x, k = x, l = x;            \
        for (int round = 0; round < FMA_ROUNDS; round++)                                                     \
            __asm__ volatile(FMA_STEP(0) FMA_STEP(1) FMA_STEP(2) FMA_STEP(3) FMA_STEP(4) FMA_STEP(5)         \
                                 FMA_STEP(6) FMA_STEP(7) FMA_STEP(8) FMA_STEP(9) FMA_STEP(10) FMA_STEP(11)   \
                             : in_out_(a), in_out_(b), in_out_(c), in_out_(d), in_out_(e), in_out_(f),       \
                               in_out_(g), in_out_(h), in_out_(i), in_out_(j), in_out_(k), in_out_(l)        \
                             : in_(x), in_(y));                                                              \
        type_ sum = a + b + c + d + e + f + g + h + i + j + k + l;                                           \
        w->sum += (uint64_t)sum[0];                                                                          \
    }
DEFINE_FMA_BODY(fma_avx2, "avx2,fma", f32x8, "+x", "x")
DEFINE_FMA_BODY(fma_avx512, "avx512f", f32x16, "+v", "v")

double bench_fma_gflops(int32_t threads, const char *isa) {
    worker workers[MOST_THREADS];
    bool wide = isa && strstr(isa, "avx512") && __builtin_cpu_supports("avx512f");
    if (!isa || !strstr(isa, "avx") || !__builtin_cpu_supports("fma")) return 0;
    threads = clamp_threads(threads);
    for (int32_t i = 0; i < threads; i++) workers[i] = (worker){.body = wide ? fma_avx512 : fma_avx2};
    double flops = 2.0 * FMA_ROUNDS * FMA_CHAINS * (wide ? 16 : 8) * threads;
    return flops / run_workers(workers, threads) / 1e9;
}
#else
double bench_fma_gflops(int32_t threads, const char *isa) {
    (void)threads;
    (void)isa;
    return 0; // no ceiling of this architecture is written yet; the column stays empty
}
#endif

static rd_status card_ceiling(bench_run *run) {
    static const int64_t beyond_caches = (int64_t)2 << 30;
    double read = 0;
    if (run->simulated)
        return cli_error(RD_E_UNSUPPORTED,
                         "%s has no time, needs a card: counters say what a kernel would read",
                         run->device.name);
    rd_status status = rd_ctx_measure_read(run->ctx, beyond_caches, &read);
    if (status != RD_OK) return cli_fail(status);
    if (run->list) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddNumberToObject(object, "read_gbs", read);
        cJSON_AddItemToArray(run->list, object);
    } else {
        printf("%s  read %.1f GB/s\n", run->device.name, read);
    }
    return RD_OK;
}

rd_status bench_ceilings(bench_run *run) {
    if (bench_on_card(run)) return card_ceiling(run);
    int64_t bytes = 4 * run->device.l3_bytes > (128 << 20) ? 4 * run->device.l3_bytes : 128 << 20;
    void *data = aligned_alloc(4096, (size_t)bytes);
    if (!data) return cli_error(RD_E_NOMEM, "no memory for %lld bytes", (long long)bytes);
    memset(data, 1, (size_t)bytes);
    double read = 0, fma2 = 0, fma512 = 0;
    bool wide = strstr(run->device.isa, "avx512") != NULL;
    for (double end = bench_wall() + run->options->seconds; bench_wall() < end && !cli_interrupted();) {
        double a = bench_read_gbs(run->threads, data, bytes), b = bench_fma_gflops(run->threads, "avx2");
        double c = wide ? bench_fma_gflops(run->threads, "avx512") : 0;
        read = a > read ? a : read;
        fma2 = b > fma2 ? b : fma2;
        fma512 = c > fma512 ? c : fma512;
    }
    free(data);
    if (run->list) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddNumberToObject(object, "threads", run->threads);
        cJSON_AddNumberToObject(object, "read_gbs", read);
        cJSON_AddNumberToObject(object, "fma_avx2_gflops", fma2);
        cJSON_AddNumberToObject(object, "fma_avx512_gflops", fma512);
        cJSON_AddItemToArray(run->list, object);
    } else {
        printf("T=%d  read %.1f GB/s  f32 multiply-add avx2 %.1f GF/s, avx512 %.1f GF/s\n", (int)run->threads,
               read, fma2, fma512);
    }
    return RD_OK;
}
