// SPDX-License-Identifier: Apache-2.0
// Memory, streams, graphs and timers of a context's device, through the driver's vtable; plain host memory on the CPU.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // clock_gettime
#endif
#include "backend/backend.h"
#include "ops/ctx.h"

#include <string.h>
#include <time.h>

static rd_status begin(const char *call, const rd_ctx *ctx, const void *argument, const char *name) {
    if (!ctx || !argument) return rdi_fail(RD_E_INVALID, "%s: %s=NULL", call, ctx ? name : "ctx");
    if (!ctx->device->info.is_fixture) return RD_OK;
    return rdi_fail(RD_E_NO_DEVICE, "%s: device=%s is a fixture: it answers questions and has no memory",
                    call, ctx->device->info.name);
}

int32_t rd_ctx_device_number(const rd_ctx *ctx) {
    return ctx && ctx->device->card ? ctx->device->card->number : 0;
}

// ---- memory -----------------------------------------------------------------------------------------------------
rd_status rd_memory_alloc(rd_ctx *ctx, size_t bytes, void **out) {
    RDI_TRY(begin("rd_memory_alloc", ctx, out, "out"));
    rdi_card *card = ctx->device->card;
    *out = NULL;
    if (card) return card->driver->alloc(card, bytes, out);
    *out = rdi_alloc(bytes);
    return *out ? RD_OK : RD_E_NOMEM;
}

rd_status rd_memory_free(rd_ctx *ctx, void *pointer) {
    if (!pointer) return RD_OK;
    RDI_TRY(begin("rd_memory_free", ctx, pointer, "pointer"));
    rdi_card *card = ctx->device->card;
    if (card) return card->driver->free(card, pointer);
    rdi_free(pointer);
    return RD_OK;
}

rd_status rd_memory_alloc_host(rd_ctx *ctx, size_t bytes, void **out) {
    RDI_TRY(begin("rd_memory_alloc_host", ctx, out, "out"));
    rdi_card *card = ctx->device->card;
    *out = NULL;
    if (card) return card->driver->host_alloc(card, bytes, out);
    *out = rdi_alloc(bytes);
    return *out ? RD_OK : RD_E_NOMEM;
}

rd_status rd_memory_free_host(rd_ctx *ctx, void *pointer) {
    if (!pointer) return RD_OK;
    RDI_TRY(begin("rd_memory_free_host", ctx, pointer, "pointer"));
    rdi_card *card = ctx->device->card;
    if (card) return card->driver->host_free(card, pointer);
    rdi_free(pointer);
    return RD_OK;
}

rd_status rd_memory_info(rd_ctx *ctx, size_t *free_bytes, size_t *total_bytes) {
    RDI_TRY(begin("rd_memory_info", ctx, free_bytes, "free_bytes"));
    RDI_TRY(begin("rd_memory_info", ctx, total_bytes, "total_bytes"));
    rdi_card *card = ctx->device->card;
    if (card) return card->driver->memory(card, free_bytes, total_bytes);
    return rdi_fail(RD_E_UNSUPPORTED,
                    "rd_memory_info: device=%s, needs a card: host memory belongs to the system",
                    ctx->device->info.name);
}

rd_status rd_memory_copy(rd_ctx *ctx, void *to, const void *from, size_t bytes, rd_copy direction,
                         rd_stream stream) {
    RDI_TRY(begin("rd_memory_copy", ctx, to, "to"));
    RDI_TRY(begin("rd_memory_copy", ctx, from, "from"));
    static const rdi_copy directions[] = {RDI_COPY_TO_CARD, RDI_COPY_TO_HOST, RDI_COPY_ON_CARD};
    if ((unsigned)direction >= RDI_COUNT(directions))
        return rdi_fail(RD_E_INVALID, "rd_memory_copy: direction=%d, needs 0 to 2", (int)direction);
    rdi_card *card = ctx->device->card;
    if (card) return card->driver->copy(card, to, from, bytes, directions[direction], stream);
    memmove(to, from, bytes);
    return RD_OK;
}

rd_status rd_memory_set(rd_ctx *ctx, void *to, int32_t byte, size_t bytes, rd_stream stream) {
    RDI_TRY(begin("rd_memory_set", ctx, to, "to"));
    rdi_card *card = ctx->device->card;
    if (card) return card->driver->set(card, to, (uint8_t)byte, bytes, stream);
    memset(to, byte, bytes);
    return RD_OK;
}

// ---- streams ----------------------------------------------------------------------------------------------------
rd_status rd_stream_create(rd_ctx *ctx, rd_stream *out) {
    RDI_TRY(begin("rd_stream_create", ctx, out, "out"));
    rdi_card *card = ctx->device->card;
    *out = NULL;
    return card ? card->driver->stream_create(card, out) : RD_OK;
}

rd_status rd_stream_free(rd_ctx *ctx, rd_stream stream) {
    if (!stream) return RD_OK;
    RDI_TRY(begin("rd_stream_free", ctx, stream, "stream"));
    rdi_card *card = ctx->device->card;
    return card ? card->driver->stream_free(card, stream) : RD_OK;
}

rd_status rd_stream_sync(rd_ctx *ctx, rd_stream stream) {
    RDI_TRY(begin("rd_stream_sync", ctx, ctx, "ctx"));
    rdi_card *card = ctx->device->card;
    return card ? card->driver->stream_sync(card, stream) : RD_OK;
}

// ---- graphs -----------------------------------------------------------------------------------------------------
struct rd_graph {
    rdi_card *card;
    void *handle;
};

static rd_status begin_graph(const char *call, const rd_ctx *ctx, const void *argument) {
    RDI_TRY(begin(call, ctx, argument, "out"));
    if (ctx->device->card) return RD_OK;
    return rdi_fail(RD_E_UNSUPPORTED, "%s: device=%s, needs a card", call, ctx->device->info.name);
}

rd_status rd_graph_begin(rd_ctx *ctx, rd_stream stream) {
    RDI_TRY(begin_graph("rd_graph_begin", ctx, ctx));
    rdi_card *card = ctx->device->card;
    return card->driver->graph_begin(card, stream);
}

rd_status rd_graph_end(rd_ctx *ctx, rd_stream stream, rd_graph **out) {
    RDI_TRY(begin_graph("rd_graph_end", ctx, out));
    rdi_card *card = ctx->device->card;
    *out = NULL;
    void *handle = NULL;
    rd_status status = card->driver->graph_end(card, stream, &handle); // ends the recording in any case
    rd_graph *graph = status == RD_OK ? rdi_calloc(1, sizeof *graph) : NULL;
    if (!graph) {
        if (status != RD_OK) return status;
        card->driver->graph_free(card, handle);
        return RD_E_NOMEM;
    }
    *graph = (rd_graph){card, handle};
    *out = graph;
    return RD_OK;
}

rd_status rd_graph_launch(rd_graph *graph, rd_stream stream) {
    if (!graph) return rdi_fail(RD_E_INVALID, "rd_graph_launch: graph=NULL");
    return graph->card->driver->graph_launch(graph->card, graph->handle, stream);
}

void rd_graph_free(rd_graph *graph) {
    if (!graph) return;
    graph->card->driver->graph_free(graph->card, graph->handle);
    rdi_free(graph);
}

// ---- timers -----------------------------------------------------------------------------------------------------
struct rd_timer {
    rdi_card *card; // NULL: the host's clock
    void *point[2]; // events
    double at_us[2];
};

rd_status rd_timer_create(rd_ctx *ctx, rd_timer **out) {
    RDI_TRY(begin("rd_timer_create", ctx, out, "out"));
    *out = NULL;
    rd_timer *timer = rdi_calloc(1, sizeof *timer);
    if (!timer) return RD_E_NOMEM;
    timer->card = ctx->device->card;
    rd_status status = RD_OK;
    for (int i = 0; timer->card && i < 2 && status == RD_OK; i++)
        status = timer->card->driver->event_create(timer->card, &timer->point[i]);
    if (status != RD_OK) {
        rd_timer_free(timer);
        return status;
    }
    *out = timer;
    return RD_OK;
}

void rd_timer_free(rd_timer *timer) {
    if (!timer) return;
    for (int i = 0; timer->card && i < 2; i++)
        if (timer->point[i]) timer->card->driver->event_free(timer->card, timer->point[i]);
    rdi_free(timer);
}

static rd_status mark(rd_timer *timer, int which, rd_stream stream) {
    if (!timer) return rdi_fail(RD_E_INVALID, "rd_timer: timer=NULL");
    if (timer->card) return timer->card->driver->event_record(timer->card, timer->point[which], stream);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    timer->at_us[which] = 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
    return RD_OK;
}

rd_status rd_timer_start(rd_timer *timer, rd_stream stream) {
    return mark(timer, 0, stream);
}
rd_status rd_timer_stop(rd_timer *timer, rd_stream stream) {
    return mark(timer, 1, stream);
}

rd_status rd_timer_read(rd_timer *timer, double *microseconds) {
    if (!timer || !microseconds)
        return rdi_fail(RD_E_INVALID, "rd_timer_read: %s=NULL", timer ? "microseconds" : "timer");
    *microseconds = timer->at_us[1] - timer->at_us[0];
    if (!timer->card) return RD_OK;
    RDI_TRY(timer->card->driver->event_sync(timer->card, timer->point[1]));
    return timer->card->driver->event_elapsed(timer->card, timer->point[0], timer->point[1], microseconds);
}
