// SPDX-License-Identifier: Apache-2.0
// The read ceiling of a context's device: what benches stand their figures beside.
#include "backend/backend.h"
#include "backend/code_objects.h"
#include "ops/ctx.h"

#include "kernels/read/read_args.h"

#include <string.h>

enum { PASSES = 5, READS = 4, GROUPS_OF_A_UNIT = 4, PATTERN_BYTES = 4 << 20, LEAST_BYTES = 1 << 16 };

static void fill(uint32_t *words, int64_t bytes) {
    uint32_t state = 1;
    for (int64_t i = 0; i < bytes / 4; i++) {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        words[i] = state;
    }
}

// The pattern's bytes to the whole buffer, by copies of what is there already.
static rd_status spread(rd_ctx *ctx, unsigned char *data, int64_t bytes, rd_stream stream) {
    const int64_t pattern = rdi_min(bytes, PATTERN_BYTES);
    void *host = rdi_alloc((size_t)pattern);
    if (!host) return RD_E_NOMEM;
    fill(host, pattern);
    rd_status status = rd_memory_copy(ctx, data, host, (size_t)pattern, RD_COPY_TO_DEVICE, stream);
    for (int64_t filled = pattern; filled < bytes && status == RD_OK;) {
        const int64_t more = rdi_min(filled, bytes - filled);
        status = rd_memory_copy(ctx, data + filled, data, (size_t)more, RD_COPY_ON_DEVICE, stream);
        filled += more;
    }
    const rd_status ended = rd_stream_sync(ctx, stream); // the pattern is read until here
    rdi_free(host);
    return status != RD_OK ? status : ended;
}

// The kernel of this build that reads on the device's backend: kernels/read has one file a backend.
static const rdi_code_object *reader_of(const rd_device *device) {
    static const char suffix[] = "_read";
    for (int32_t i = 0; i < rdi_code_object_count; i++) {
        const rdi_code_object *object = &rdi_code_objects[i];
        const size_t length = strlen(object->image);
        if (object->backend == device->backend && length >= sizeof suffix &&
            !strcmp(object->image + length - (sizeof suffix - 1), suffix))
            return object;
    }
    return NULL;
}

static rd_status start_read(rd_ctx *ctx, const rdi_loaded *loaded, unsigned char *data, int64_t bytes,
                            rd_stream stream) {
    const uint32_t groups = (uint32_t)(GROUPS_OF_A_UNIT * ctx->device->info.compute_units);
    const rdk_read_args args = {.data = RDK_ADDR(data),
                                .sink = RDK_ADDR(data),
                                .pieces = (uint64_t)(bytes / RDK_READ_BYTES),
                                .threads = (uint64_t)groups * RDK_READ_THREADS};
    rdi_launch launch;
    rdi_launch_fill(&launch, reader_of(ctx->device)->kernels[0].symbol, (const uint32_t[3]){groups, 1, 1},
                    RDK_READ_THREADS, &args, sizeof args);
    return rdi_card_launch(ctx->device->card, loaded, &launch, stream);
}

static rd_status time_reads(rd_ctx *ctx, const rdi_loaded *loaded, unsigned char *data, int64_t bytes,
                            rd_stream stream, double *read_gbs) {
    rd_timer *timer = NULL;
    rd_status status = rd_timer_create(ctx, &timer);
    *read_gbs = 0;
    for (int pass = 0; pass < PASSES && status == RD_OK; pass++) {
        double us = 0;
        status = rd_timer_start(timer, stream);
        for (int i = 0; i < READS && status == RD_OK; i++)
            status = start_read(ctx, loaded, data, bytes, stream);
        if (status == RD_OK) status = rd_timer_stop(timer, stream);
        if (status == RD_OK) status = rd_timer_read(timer, &us);
        const double gbs = us > 0 ? READS * (double)bytes / us / 1e3 : 0;
        if (gbs > *read_gbs) *read_gbs = gbs;
    }
    rd_timer_free(timer);
    return status;
}

static rd_status measure_card(rd_ctx *ctx, int64_t bytes, double *read_gbs) {
    const rdi_code_object *reader = reader_of(ctx->device);
    const rdi_loaded *loaded = NULL;
    rd_stream stream = NULL;
    void *data = NULL;
    if (!reader)
        return rdi_fail(RD_E_UNSUPPORTED, "device=%s: no kernel that reads in this build",
                        ctx->device->info.name);
    RDI_TRY(rdi_card_load(ctx->device->card, reader->image, &loaded));
    RDI_TRY(rd_stream_create(ctx, &stream));
    rd_status status = rd_memory_alloc(ctx, (size_t)bytes, &data);
    if (status == RD_OK) status = spread(ctx, data, bytes, stream);
    if (status == RD_OK) status = time_reads(ctx, loaded, data, bytes, stream, read_gbs);
    (void)rd_memory_free(ctx, data); // a failure before this one is what the caller hears of
    (void)rd_stream_free(ctx, stream);
    return status;
}

static rd_status measure_host(rd_ctx *ctx, int64_t bytes, double *read_gbs) {
    void *data = rdi_alloc((size_t)bytes);
    if (!data) return RD_E_NOMEM;
    fill(data, bytes); // every page a real one
    rd_status status = RD_OK;
    double best = 0;
    for (int pass = 0; pass < PASSES && status == RD_OK; pass++) {
        status = rd_memory_measure(rd_ctx_threads(ctx), data, bytes, read_gbs);
        if (status == RD_OK && *read_gbs > best) best = *read_gbs;
    }
    *read_gbs = best;
    rdi_free(data);
    return status;
}

rd_status rd_ctx_measure_read(rd_ctx *ctx, int64_t bytes, double *read_gbs) {
    if (!ctx || !read_gbs)
        return rdi_fail(RD_E_INVALID, "rd_ctx_measure_read: %s=NULL", ctx ? "read_gbs" : "ctx");
    if (bytes < LEAST_BYTES)
        return rdi_fail(RD_E_INVALID, "rd_ctx_measure_read: bytes=%lld, needs at least %d", (long long)bytes,
                        LEAST_BYTES);
    if (ctx->device->info.is_fixture)
        return rdi_fail(RD_E_NO_DEVICE, "device=%s is a fixture: it cannot be measured",
                        ctx->device->info.name);
    return ctx->device->card ? measure_card(ctx, bytes, read_gbs) : measure_host(ctx, bytes, read_gbs);
}
