// SPDX-License-Identifier: Apache-2.0
// Mappings of model files, and UTF-8 validation.
#include "model/files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

rd_status rdi_file_map(const char *path, rdi_mapping *out) {
    out->data = NULL;
    out->bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // NONBLOCK: a FIFO must not hang the open
    if (fd < 0) return rdi_fail(RD_E_IO, "%s: %s", path, strerror(errno));
    struct stat info;
    rd_status status = RD_OK;
    if (fstat(fd, &info)) {
        status = rdi_fail(RD_E_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = rdi_fail(RD_E_INVALID, "%s: needs a regular file", path);
    } else if (info.st_size == 0) {
        status = rdi_fail(RD_E_FORMAT, "%s: size=0 bytes, the file is empty", path);
    } else {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            status = rdi_fail(RD_E_IO, "%s: mapping %lld bytes: %s", path, (long long)info.st_size,
                              strerror(errno));
        } else {
            out->data = data;
            out->bytes = (size_t)info.st_size;
        }
    }
    close(fd);
    return status;
}

void rdi_file_unmap(rdi_mapping *mapping) {
    if (mapping->data) munmap((void *)(uintptr_t)mapping->data, mapping->bytes);
    mapping->data = NULL;
    mapping->bytes = 0;
}

bool rdi_file_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

bool rdi_folder_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool rdi_utf8_valid(const char *text, size_t bytes) {
    const uint8_t *at = (const uint8_t *)text, *end = at + bytes;
    while (at < end) {
        if (*at < 0x80) {
            at++;
            continue;
        }
        int more = *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : 1;
        if (*at < 0xc2 || *at > 0xf4 || end - at <= more) return false; // c0, c1: overlong
        uint8_t low = *at == 0xe0 ? 0xa0 : *at == 0xf0 ? 0x90 : 0x80;   // overlong
        uint8_t high = *at == 0xed ? 0x9f : *at == 0xf4 ? 0x8f : 0xbf;  // surrogates, beyond U+10FFFF
        if (at[1] < low || at[1] > high) return false;
        for (int i = 2; i <= more; i++)
            if ((at[i] & 0xc0) != 0x80) return false;
        at += more + 1;
    }
    return true;
}
