// SPDX-License-Identifier: Apache-2.0
// Scratch folders and whole files for tests.
#ifndef RD_TEST_FILES_H
#define RD_TEST_FILES_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct scratch {
    char folder[64], path[128];
} scratch;
static inline scratch scratch_make(void) {
    scratch s = {.folder = "/tmp/radiance-test-XXXXXX"};
    if (!mkdtemp(s.folder)) abort();
    return s;
}
static inline void scratch_remove(const scratch *s) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    if (system(command)) abort();
}
// folder/name, valid until the next call on the same scratch
static inline const char *scratch_path(scratch *s, const char *name) {
    snprintf(s->path, sizeof s->path, "%s/%s", s->folder, name);
    return s->path;
}
static inline int scratch_entries(const char *folder) { // -1: no such folder
    DIR *dir = opendir(folder);
    int count = dir ? 0 : -1;
    for (struct dirent *entry; dir && (entry = readdir(dir));) count += entry->d_name[0] != '.';
    if (dir) closedir(dir);
    return count;
}
static inline uint8_t *file_read(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    *bytes = 0;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*bytes + 1);
    if (!data || fread(data, 1, *bytes, file) != *bytes) abort();
    data[*bytes] = 0;
    fclose(file);
    return data;
}
static inline void file_write(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) abort();
}
// Replaces the first `from` in a file, binary or not, by `to`.
static inline void file_edit(const char *path, const char *from, const char *to) {
    size_t bytes = 0, at = 0, length = strlen(from);
    uint8_t *data = file_read(path, &bytes);
    if (!data) abort();
    while (at + length <= bytes && memcmp(data + at, from, length)) at++;
    FILE *file = at + length <= bytes ? fopen(path, "wb") : NULL;
    if (!file) abort();
    fwrite(data, 1, at, file);
    fputs(to, file);
    fwrite(data + at + length, 1, bytes - at - length, file);
    if (fclose(file)) abort();
    free(data);
}

#endif // RD_TEST_FILES_H
