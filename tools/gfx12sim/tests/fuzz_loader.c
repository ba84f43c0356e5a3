// SPDX-License-Identifier: Apache-2.0
// Damages a good code object at random, loads it, and when it still loads runs what it holds for a few steps with
// and without checks. Any return is fine; a crash, a hang or a sanitizer report is not.
// Usage: fuzz_loader FILE [iterations [seed]]; the seed is printed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "gfx12sim.h"

enum { MAX_BYTES = 1 << 20 };
static uint64_t state;
static uint32_t random32(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state * 0x2545f4914f6cdd1dull >> 32);
}

static size_t damage(uint8_t *p, size_t bytes) {
    static const uint32_t extremes[] = {0,      1,          0x7f,       0x80,       0xff,      0x7fff,
                                        0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff8};
    // Mostly headers, notes and symbols, or mostly code.
    size_t span = random32() % 3 ? bytes : bytes < 2048 ? bytes : 2048;
    for (uint32_t n = 1 + random32() % 8; n; n--) {
        size_t at = random32() % span;
        uint32_t kind = random32() % 4,
                 value = kind == 0 ? random32() : extremes[random32() % (sizeof extremes / sizeof *extremes)];
        if (kind == 1)
            p[at] ^= (uint8_t)(1u << random32() % 8);
        else
            memcpy(p + at, &value, bytes - at < 4 ? bytes - at : kind == 3 ? 1 : 4);
    }
    return random32() % 8 ? bytes : random32() % (bytes + 1);
}

static void exercise(gs_mem *mem, gs_module *m, void *buffer) {
    size_t text = 0;
    for (size_t i = 0; i < gs_module_line_count(m); i++) text += strlen(gs_module_line(m, i).text);
    for (size_t k = 0; k < gs_module_kernel_count(m); k++) {
        const gs_kernel_info *info = gs_kernel_describe(gs_module_kernel_at(m, k));
        uint8_t kernarg[256] = {0};
        for (size_t i = 0; i + 8 <= sizeof kernarg; i += 8) memcpy(kernarg + i, &buffer, 8);
        gs_launch l;
        gs_error error;
        gs_launch_init(&l, gs_module_kernel_at(m, k));
        memcpy(l.block, info->required_block[0] ? info->required_block : l.block, sizeof l.block);
        l.kernarg = kernarg,
        l.kernarg_bytes = info->kernarg_bytes < sizeof kernarg ? info->kernarg_bytes : sizeof kernarg;
        l.max_wave_steps = 2000, l.threads = 1, l.checks = random32() & 1 ? GS_CHECKS_ALL : GS_CHECKS_NONE;
        gs_launch_run(mem, &l, &error);
    }
}

int main(int argc, char **argv) {
    static uint8_t good[MAX_BYTES];
    FILE *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
    size_t bytes = f ? fread(good, 1, sizeof good, f) : 0, loaded = 0;
    if (!bytes) return fprintf(stderr, "usage: fuzz_loader FILE [iterations [seed]]\n"), 2;
    fclose(f);
    long iterations = argc > 2 ? atol(argv[2]) : 1000;
    state = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
    printf("fuzz_loader: %ld iterations, seed %llu\n", iterations, (unsigned long long)state);
    state |= 1;
    for (long i = 0; i < iterations; i++) {
        // Exact size on the heap, so that a sanitizer sees an overrun by one.
        uint8_t *bad = malloc(bytes);
        memcpy(bad, good, bytes);
        size_t left = damage(bad, bytes);
        uint8_t *image = malloc(left ? left : 1);
        memcpy(image, bad, left);
        gs_mem *mem;
        gs_module *m = NULL;
        gs_error error;
        void *buffer;
        if (gs_mem_create(&mem) || gs_mem_alloc(mem, 1 << 16, &buffer)) return 2;
        memset(buffer, 0, 1 << 16);
        if (gs_module_load(mem, image, left, &m, &error) == GS_OK) {
            loaded++;
            exercise(mem, m, buffer);
            gs_module_free(m);
        }
        gs_mem_destroy(mem);
        free(image);
        free(bad);
    }
    printf("%zu of %ld still loaded\n", loaded, iterations);
    return 0;
}
