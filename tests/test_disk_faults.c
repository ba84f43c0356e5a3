// SPDX-License-Identifier: Apache-2.0
// A disk that fails: every call by which conversion and the bandwidth cache touch the disk fails in turn (no space, an I/O
// error), and each time the error names the file, nothing is left that looks whole, and what was there before still is.
// The calls are taken over by the definitions below; streams are given /dev/full.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT, renameat2
#endif
#include "support/files.h"
#include "support/tiny_model.h"

#include "radiance_run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <cmocka.h>

// ---- the failing calls -----------------------------------------------------------------------------------------------
static int calls, fail_at, fail_errno; // fail_at 0: none fails
static bool fails(void) {
    if (!fail_at || ++calls != fail_at) return false;
    errno = fail_errno;
    return true;
}
static void *next_symbol(const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    if (!symbol) abort();
    return symbol;
}
// A function pointer from an object pointer, as POSIX allows and ISO C has no cast for.
#define REAL(type_, name_)                                                                                   \
    __typeof__(type_) *real;                                                                                 \
    *(void **)&real = next_symbol(name_)

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    REAL(ssize_t(int, const void *, size_t, off_t), "pwrite");
    return fails() ? -1 : real(fd, data, bytes, at);
}
ssize_t write(int fd, const void *data, size_t bytes) {
    REAL(ssize_t(int, const void *, size_t), "write");
    return fails() ? -1 : real(fd, data, bytes);
}
int fsync(int fd) {
    REAL(int(int), "fsync");
    return fails() ? -1 : real(fd);
}
int fallocate(int fd, int mode, off_t at, off_t bytes) {
    REAL(int(int, int, off_t, off_t), "fallocate");
    return fails() ? -1 : real(fd, mode, at, bytes);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int(const char *, mode_t), "mkdir");
    return fails() ? -1 : real(path, mode);
}
int rename(const char *from, const char *to) {
    REAL(int(const char *, const char *), "rename");
    return fails() ? -1 : real(from, to);
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(int(int, const char *, int, const char *, unsigned), "renameat2");
    return fails() ? -1 : real(a, from, b, to, flags);
}
int mkstemp(char *template) {
    REAL(int(char *), "mkstemp");
    return fails() ? -1 : real(template);
}
FILE *fopen(const char *path,
            const char *mode) { // a stream's own writes cannot be taken over: a full device in its place
    REAL(FILE * (const char *, const char *), "fopen");
    if (*mode != 'w') return real(path, mode);
    return fails() ? real("/dev/full", mode) : real(path, mode);
}

static rd_status with_failure(int nth, int error, const char *in, const char *out, int overwrite) {
    const rd_convert_options options = {.struct_size = sizeof options, .overwrite = overwrite};
    calls = 0, fail_at = nth, fail_errno = error;
    rd_status status = rd_convert(in, out, &options);
    fail_at = 0;
    return status;
}

// ---- convert ---------------------------------------------------------------------------------------------------------
static void expect_whole(const char *folder) {
    rd_model *model;
    if (rd_model_open(folder, &model)) fail_msg("%s", rd_error_text());
    assert_non_null(rd_model_tokenizer(model));
    rd_model_close(model);
}

static void check_convert(int error, int overwrite) {
    scratch s = scratch_make();
    char in[128], out[128];
    snprintf(in, sizeof in, "%s/in", s.folder), snprintf(out, sizeof out, "%s/out", s.folder);
    const tiny_model_options o = {.layers = 1};
    assert_int_equal(tiny_model_write(in, &o), 0);
    struct stat before = {0}, after = {0};
    if (overwrite && rd_convert(in, out, NULL)) fail_msg("%s", rd_error_text());
    if (overwrite) assert_int_equal(stat(out, &before), 0);
    int nth = 1, refused = 0;
    for (;; nth++) {
        rd_status status = with_failure(nth, error, in, out, overwrite);
        bool injected = calls >= nth, there = stat(out, &after) == 0;
        if (status != RD_OK) {
            refused++;
            assert_int_equal(status, RD_E_IO);
            if (!strstr(rd_error_text(), s.folder))
                fail_msg("call %d: \"%s\" names no file", nth, rd_error_text());
        }
        assert_int_equal(scratch_entries(s.folder), there ? 2 : 1); // no partial and no aside folder
        if (there) expect_whole(out);
        if (overwrite) assert_true(there); // the old model or the new one, never none
        if (!injected) break;
        if (!overwrite && there) {
            // Only a failed sync of the parent folder comes after the rename; a refused fallocate is no failure by itself.
            char command[256];
            snprintf(command, sizeof command, "rm -rf '%s'", out);
            assert_int_equal(system(command), 0);
        }
    }
    assert_true(nth > 15 && refused > 10); // the calls were counted, and most of them matter
    scratch_remove(&s);
}

static void test_disk_convert_no_space_at_any_call(void **state) {
    (void)state;
    check_convert(ENOSPC, 0);
    check_convert(ENOSPC, 1);
}
static void test_disk_convert_io_error_at_any_call(void **state) {
    (void)state;
    check_convert(EIO, 0);
    check_convert(EIO, 1);
}

// ---- the bandwidth cache ---------------------------------------------------------------------------------------------
static scratch cache;
static char warning[512];
static void keep_warning(void *state, rd_log_level level, const char *text) {
    (void)state, (void)level;
    snprintf(warning, sizeof warning, "%s", text);
}

static void test_disk_cache_is_whole_or_absent(void **state) {
    (void)state;
    rd_device *device;
    assert_int_equal(rd_device_open("cpu", &device), RD_OK);
    rd_device_set_log(device, keep_warning, NULL);
    char folder[128];
    snprintf(folder, sizeof folder, "%s/radiance", cache.folder);
    for (int nth = 1;; nth++) {
        double gbs = 0;
        warning[0] = 0;
        calls = 0, fail_at = nth, fail_errno = ENOSPC;
        rd_status status = rd_device_measure(device, 1, 0, &gbs);
        fail_at = 0;
        assert_int_equal(status, RD_OK); // a figure without a cache is a figure
        assert_true(gbs > 0);
        int left = scratch_entries(folder);
        if (calls < nth) {
            assert_int_equal(left, 1);
            assert_true(nth > 4); // mkdir, mkstemp, write, fsync, rename
            break;
        }
        assert_true(left <= 0);
        assert_non_null(strstr(warning, "No space left on device"));
        assert_non_null(strstr(warning, folder));
    }
    rd_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disk_convert_no_space_at_any_call),
        cmocka_unit_test(test_disk_convert_io_error_at_any_call),
        cmocka_unit_test(test_disk_cache_is_whole_or_absent),
    };
    cache = scratch_make();
    setenv("XDG_CACHE_HOME", cache.folder, 1); // before the library's first look at its environment
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove(&cache);
    return failed;
}
