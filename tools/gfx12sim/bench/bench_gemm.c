// SPDX-License-Identifier: Apache-2.0
// Wave-instructions per second of a GEMM on one thread, checks on and off, and the time to decode its object.
// The result is compared with double first. Usage: bench_gemm gemm_fp8.hsaco [on|off]
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "gfx12sim.h"
#include "fp8.h"

enum { M = 256, N = 256, K = 2112, REPEATS = 15 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); // the core's time, whatever else the machine runs
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int run(gs_mem *mem, const gs_kernel *kernel, uint32_t checks, void **buffers) {
    struct {
        void *a, *b, *c;
        int n, k;
    } args = {buffers[0], buffers[1], buffers[2], N, K};
    double best = 1e30;
    gs_stats stats;
    for (int r = 0; r < REPEATS; r++) {
        gs_launch l;
        gs_error error;
        gs_launch_init(&l, kernel);
        l.block[0] = 128, l.grid[0] = N / 64, l.grid[1] = M / 64, l.threads = 1, l.checks = checks;
        l.kernarg = &args, l.kernarg_bytes = 32;
        double start = now();
        if (gs_launch_run(mem, &l, &error)) {
            char text[1024];
            gs_error_format(&error, text, sizeof text);
            fputs(text, stderr);
            return 1;
        }
        double s = now() - start;
        best = s < best ? s : best;
        if (r) continue;
        memset(&stats, 0, sizeof stats);
        l.stats = &stats;
        if (gs_launch_run(mem, &l, &error)) return 1;
    }
    printf("checks %-4s %9llu wave-instructions (%llu WMMA) in %7.2f ms: %6.1f M/s\n", checks ? "on" : "off",
           (unsigned long long)stats.instructions, (unsigned long long)stats.by_class[GS_CLASS_WMMA],
           best * 1e3, (double)stats.instructions / best * 1e-6);
    return 0;
}

int main(int argc, char **argv) {
    FILE *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
    static char image[1 << 22];
    size_t bytes = f ? fread(image, 1, sizeof image, f) : 0;
    gs_mem *mem;
    gs_module *module;
    gs_error error;
    if (!bytes || gs_mem_create(&mem)) return 2;
    double start = now();
    if (gs_module_load(mem, image, bytes, &module, &error)) return fprintf(stderr, "%s\n", error.message), 2;
    printf("load and decode %zu bytes, %zu instructions: %.2f ms\n", bytes, gs_module_line_count(module),
           (now() - start) * 1e3);
    const gs_kernel *kernel = gs_module_kernel(module, "gemm_fp8");
    if (!kernel) return 2;
    void *buffers[3];
    size_t sizes[3] = {(size_t)M * K, (size_t)N * K, (size_t)M * N * 4};
    for (int i = 0; i < 3; i++) {
        if (gs_mem_alloc(mem, sizes[i], &buffers[i])) return 2;
        for (size_t j = 0; j < sizes[i]; j++)
            ((uint8_t *)buffers[i])[j] = (uint8_t)((j * 2654435761u >> 13) % 0x70 | (j * 40503u >> 7 & 0x80));
    }
    const char *only = argc > 2 ? argv[2] : "";
    if (strcmp(only, "off") && run(mem, kernel, GS_CHECKS_ALL, buffers)) return 1;
    if (strcmp(only, "on") && run(mem, kernel, GS_CHECKS_NONE, buffers)) return 1;
    for (int i = 0; i < M; i += 7)
        for (int j = 0; j < N; j += 5) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double p = (double)gs_fp8_to_f32(((uint8_t *)buffers[0])[i * K + k]) *
                           gs_fp8_to_f32(((uint8_t *)buffers[1])[j * K + k]);
                sum += p, size += fabs(p);
            }
            if (fabs(((float *)buffers[2])[i * N + j] - sum) > size * K * 0x1p-24)
                return fprintf(stderr, "wrong at %d %d\n", i, j), 1;
        }
    gs_module_free(module);
    gs_mem_destroy(mem);
    return 0;
}
