// SPDX-License-Identifier: Apache-2.0
// Feeds every file of a corpus folder to a fuzz target once, and every prefix of the small ones: kept findings are
// regression tests in builds without libFuzzer.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MAX_BYTES = 1 << 20, PREFIX_BYTES = 1024 };

static void feed(const uint8_t *data, size_t bytes) {
    uint8_t *exact = calloc(1, bytes ? bytes : 1); // its own block: reads past the end are seen by ASan
    if (!exact) exit(1);
    if (bytes) memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static int replay(const char *folder, const char *name) {
    static uint8_t data[MAX_BYTES];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    feed(data, bytes);
    for (size_t prefix = 0; bytes <= PREFIX_BYTES && prefix < bytes; prefix++) feed(data, prefix);
    return 1;
}

int main(int argc, char **argv) {
    int inputs = 0;
    feed((const uint8_t *)"", 0);
    DIR *dir = argc > 1 ? opendir(argv[1]) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.') inputs += replay(argv[1], entry->d_name);
    if (dir) closedir(dir);
    printf("%d inputs\n", inputs);
    return inputs ? 0 : 1;
}
