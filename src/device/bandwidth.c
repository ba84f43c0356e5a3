// SPDX-License-Identifier: Apache-2.0
// Read bandwidth of the running machine: several sequential streams a thread over a buffer that no cache holds. The result
// is kept in a file of its own for each (chip, cores, threads), replaced by rename: readers see the old or the new one.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkstemp, fsync
#endif
#include "device/device.h"

#include "base/par.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RDI_MOST_READERS = 4096 };
enum {
    STREAMS = 4,              // a thread reads 4 rows far apart: one stream alone leaves the prefetchers idle
    PASSES = 7,               // the best counts: other work on the machine only ever slows a pass
    BUFFER_MIN_MIB = 256,     // and at least 4 times the last-level cache
    SHARE_MIN_BYTES = 8 << 20 // a worker reads at least this much, in rounds: waking it takes some 50 us
};

// 64 bytes: one cache line, whatever vectors the compiler makes of it.
typedef uint64_t line_words __attribute__((vector_size(64), aligned(1)));

typedef struct read_job {
    const unsigned char *data;
    int64_t bytes, rounds;
    uint64_t sums[RDI_MOST_READERS]; // the loads must not be optimised away
} read_job;

// Plain sequential streams and the hardware's own prefetch: nothing faster was found on this project's machines.
#define DEFINE_READ(name_, attribute_)                                                                       \
    attribute_ static uint64_t name_(const unsigned char *data, int64_t bytes) {                             \
        int64_t stream_bytes = bytes / STREAMS / 64 * 64;                                                    \
        line_words sum[STREAMS] = {{0}};                                                                     \
        uint64_t total = 0;                                                                                  \
        for (int64_t at = 0; at < stream_bytes; at += 64)                                                    \
            for (int s = 0; s < STREAMS; s++)                                                                \
                sum[s] ^= *(const line_words *)(const void *)(data + s * stream_bytes + at);                 \
        for (int s = 0; s < STREAMS; s++)                                                                    \
            for (int i = 0; i < 8; i++) total ^= sum[s][i];                                                  \
        return total;                                                                                        \
    }
DEFINE_READ(read_plain, )
#if defined(__x86_64__)
DEFINE_READ(read_avx2, __attribute__((target("avx2"))))
DEFINE_READ(read_avx512, __attribute__((target("avx512f"))))
#endif

static uint64_t read_streams(const unsigned char *data, int64_t bytes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return read_avx512(data, bytes);
    if (__builtin_cpu_supports("avx2")) return read_avx2(data, bytes);
#endif
    return read_plain(data, bytes);
}

static void read_share(void *arg, int32_t worker, int32_t workers) {
    read_job *job = arg;
    int64_t share = job->bytes / workers / 256 * 256;
    for (int64_t round = 0; round < job->rounds; round++)
        job->sums[worker] ^= read_streams(job->data + worker * share, share);
}

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// GB/s of one reading by all workers.
static double read_once(rdi_par *par, read_job *job) {
    int32_t workers = rdi_par_threads(par);
    double start = now_seconds();
    rdi_par_run(par, workers, read_share, job);
    int64_t bytes = job->bytes / workers / 256 * 256 * workers * job->rounds;
    return (double)bytes / (now_seconds() - start) / 1e9;
}

rd_status rd_memory_measure(int32_t threads, const void *data, int64_t bytes, double *read_gbs) {
    if (!data || !read_gbs)
        return rdi_fail(RD_E_INVALID, "rd_memory_measure: %s=NULL", data ? "read_gbs" : "data");
    if (threads < 1 || threads > RDI_MOST_READERS || bytes / threads < 256)
        return rdi_fail(
            RD_E_INVALID,
            "rd_memory_measure: threads=%d bytes=%lld, needs 1 to %d threads of at least 256 bytes", threads,
            (long long)bytes, RDI_MOST_READERS);
    rdi_par *par = NULL;
    read_job *job = rdi_calloc(1, sizeof *job);
    rd_status status = job ? rdi_par_create(threads, NULL, NULL, &par) : RD_E_NOMEM;
    if (status == RD_OK) {
        job->data = data, job->bytes = bytes;
        job->rounds = rdi_max(1, SHARE_MIN_BYTES / (bytes / threads));
        *read_gbs = read_once(par, job);
    }
    rdi_par_free(par);
    rdi_free(job);
    return status;
}

static rd_status measure(const rd_device *device, int32_t threads, double *gbs) {
    rdi_par *par = NULL;
    RDI_TRY(rdi_par_create(threads, NULL, NULL, &par));
    int64_t bytes = rdi_max((int64_t)BUFFER_MIN_MIB << 20, 4 * device->info.l3_bytes);
    read_job *job = rdi_calloc(1, sizeof *job);
    unsigned char *data = rdi_alloc((size_t)bytes);
    rd_status status = job && data ? RD_OK : RD_E_NOMEM;
    if (status == RD_OK) {
        memset(data, 1, (size_t)bytes); // every page must be a real one
        *job = (read_job){.data = data, .bytes = bytes, .rounds = 1};
        *gbs = 0;
        for (int pass = 0; pass < PASSES; pass++) {
            double seen = read_once(par, job);
            if (seen > *gbs) *gbs = seen;
        }
    }
    rdi_free(data);
    rdi_free(job);
    rdi_par_free(par);
    return status;
}

// ---- the cache file --------------------------------------------------------------------------------------------------------
// "<folder>/radiance/read-<chip>-<cores>c-<threads>t": the chip's name in letters, digits and dashes.
static rd_status cache_path(const rd_device *device, int32_t threads, char *folder, char *path,
                            size_t bytes) {
    const char *root = rdi_env_text("XDG_CACHE_HOME"), *home = rdi_env_text("HOME");
    int length = *root ? snprintf(folder, bytes, "%s/radiance", root)
                       : snprintf(folder, bytes, "%s/.cache/radiance", home);
    if ((!*root && !*home) || length < 0 || (size_t)length >= bytes)
        return rdi_fail(RD_E_IO, "bandwidth cache: neither XDG_CACHE_HOME nor HOME names a folder");
    char chip[sizeof device->model];
    snprintf(chip, sizeof chip, "%s", device->info.model);
    for (char *at = chip; *at; at++) {
        bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        if (!plain) *at = '-';
    }
    length = snprintf(path, bytes, "%s/read-%s-%dc-%dt", folder, chip, device->info.compute_units, threads);
    return length > 0 && (size_t)length < bytes ? RD_OK : rdi_fail(RD_E_IO, "bandwidth cache: path too long");
}

static bool read_cache(const char *path, double *gbs) {
    char text[64], *end;
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool ok = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (!ok) return false;
    double value = strtod(text, &end);
    // A damaged file is measured anew, not believed: no machine reads below 0.01 or above 100000 GB/s.
    if (end == text || *end != '\n' || !(value > 0.01 && value < 1e5)) return false;
    *gbs = value;
    return true;
}

static bool make_folders(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        if (mkdir(path, 0700) && errno != EEXIST) return false;
        *at = '/';
    }
    return !mkdir(path, 0700) || errno == EEXIST;
}

static bool write_whole(int fd, const char *text) {
    size_t left = strlen(text);
    while (left) {
        ssize_t wrote = write(fd, text, left);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        text += wrote;
        left -= (size_t)wrote;
    }
    return fsync(fd) == 0;
}

static bool write_cache(const char *folder, const char *path, double gbs) {
    char temporary[4096 + 16], text[64];
    if (!make_folders(folder)) return false;
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    snprintf(text, sizeof text, "%.3f\n", gbs);
    int fd = mkstemp(temporary);
    if (fd < 0) return false;
    bool ok = write_whole(fd, text);
    int error = errno;
    ok = close(fd) == 0 && ok;
    if (ok && rename(temporary, path) == 0) return true;
    if (ok) error = errno;
    unlink(temporary);
    errno = error;
    return false;
}

rd_status rd_device_measure(rd_device *device, int32_t threads, int32_t use_cache, double *read_gbs) {
    if (!device || !read_gbs)
        return rdi_fail(RD_E_INVALID, "rd_device_measure: %s=NULL", device ? "read_gbs" : "device");
    if (device->card)
        return rdi_fail(RD_E_UNSUPPORTED, "device=%s: the read bandwidth of a card is not measured here",
                        device->info.name);
    if (device->info.is_fixture)
        return rdi_fail(RD_E_NO_DEVICE, "device=%s is a fixture: it cannot be measured", device->info.name);
    if (threads < 1 || threads > RDI_MOST_READERS)
        return rdi_fail(RD_E_INVALID, "threads=%d, needs 1 to %d", threads, RDI_MOST_READERS);
    char folder[4096], path[4096];
    bool have_path = cache_path(device, threads, folder, path, sizeof path) == RD_OK;
    if (use_cache && have_path && read_cache(path, read_gbs)) {
        device->info.read_gbs = *read_gbs;
        return RD_OK;
    }
    RDI_TRY(measure(device, threads, read_gbs));
    device->info.read_gbs = *read_gbs;
    // A cache that cannot be written costs the next start a second; it is no reason to fail.
    if (!have_path)
        rdi_log_write(&device->log, RD_LOG_WARN, "%s", rd_error_text());
    else if (!write_cache(folder, path, *read_gbs))
        rdi_log_write(&device->log, RD_LOG_WARN, "bandwidth cache %s cannot be written: %s", path,
                      strerror(errno));
    return RD_OK;
}
