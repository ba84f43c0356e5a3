// SPDX-License-Identifier: Apache-2.0
// Without libFuzzer: feeds the kept corpus to a fuzz target, then seeded damage of each kept input.
// Usage: replay FOLDER [mutations per input [seed]]; the seed is printed.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MAX_BYTES = 1 << 20 };
static uint64_t state;
static uint32_t random32(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state * 0x2545f4914f6cdd1dull >> 32);
}

// Exact size on the heap, so that a sanitizer sees an overrun by one.
static void feed(const uint8_t *data, size_t bytes) {
    uint8_t *exact = malloc(bytes ? bytes : 1);
    if (!exact) exit(1);
    memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static size_t damage(uint8_t *p, size_t bytes) {
    static const uint32_t extremes[] = {0,      1,          0x7f,       0x80,       0xff,      0x7fff,
                                        0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff8};
    // Mostly headers, notes and symbols, or anywhere.
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

static int replay(const char *folder, const char *name, long mutations) {
    static uint8_t good[MAX_BYTES], bad[MAX_BYTES];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    size_t bytes = file ? fread(good, 1, sizeof good, file) : 0;
    if (file) fclose(file);
    if (!bytes) return 0;
    feed(good, bytes);
    for (long i = 0; i < mutations; i++) {
        memcpy(bad, good, bytes);
        feed(bad, damage(bad, bytes));
    }
    return 1;
}

int main(int argc, char **argv) {
    int inputs = 0;
    long mutations = argc > 2 ? atol(argv[2]) : 0;
    state = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu, %ld mutations of each input\n", (unsigned long long)state, mutations);
    state |= 1;
    DIR *dir = argc > 1 ? opendir(argv[1]) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.') inputs += replay(argv[1], entry->d_name, mutations);
    if (dir) closedir(dir);
    printf("%d inputs\n", inputs);
    return inputs ? 0 : 1;
}
