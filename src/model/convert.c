// SPDX-License-Identifier: Apache-2.0
// rd_convert: any model that rd_model_open takes to a Hugging Face folder in the published block-FP8 layout.
//
// Linear weights become e4m3 with `<name>_scale_inv`, f32 [ceil(N/128), ceil(K/128)]; norms, embedding and (unless asked)
// the head stay bf16. One safetensors file: offsets follow from the shapes, so the header goes first and data stream.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // fallocate
#endif
#include "model/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef struct item {
    const rdi_weight *weight;
    char name[RDI_TENSOR_MAX_NAME];
    bool fp8;
    int64_t data_at, scale_at; // from the start of the data section
} item;
typedef struct converter {
    const rd_model *model;
    const rd_convert_options *options;
    rdi_out_folder folder;
    rdi_par *par;
    rdi_arena arena;
    item *items;
    int64_t count, data_bytes, done_bytes;
    int fd; // of model.safetensors, positioned by pwrite
    int64_t data_begin;
} converter;

static int64_t scale_count(const rdi_weight *w) {
    return rdi_ceil_div(w->rows, RDI_FP8_BLOCK) * rdi_ceil_div(w->cols, RDI_FP8_BLOCK);
}

// ---- what goes where ----------------------------------------------------------------------------------------------------
// As stored: what a configuration adds to a norm is not written into it.
static rd_status add_item(converter *c, const rdi_weight *weight, const char *name, bool fp8) {
    item *it = &c->items[c->count++];
    rdi_weight *stored = rdi_arena_alloc(&c->arena, sizeof *stored);
    if (!stored) return RD_E_NOMEM;
    *stored = *weight;
    stored->added = 0;
    it->weight = stored;
    it->fp8 = fp8;
    snprintf(it->name, sizeof it->name, "%s", name);
    return RD_OK;
}

static rd_status list_items(converter *c) {
    const rdi_model_config *config = rdi_model_get_config(c->model);
    c->items = rdi_arena_alloc(&c->arena, ((size_t)config->layers * RDI_LAYER_SLOTS + RDI_MODEL_SLOTS) *
                                              sizeof *c->items);
    if (!c->items) return RD_E_NOMEM;
    bool head_fp8 = c->options->head_fp8 || rdi_model_weight(c->model, RDI_HEAD)->type == RDI_W_E4M3;
    RDI_TRY(add_item(c, rdi_model_weight(c->model, RDI_EMBED), rdi_model_slot_name(RDI_EMBED, false), false));
    for (int32_t layer = 0; layer < config->layers; layer++)
        for (int slot = 0; slot < RDI_LAYER_SLOTS; slot++) {
            const rdi_weight *weight = rdi_model_layer_weight(c->model, layer, (rdi_layer_slot)slot);
            char name[RDI_TENSOR_MAX_NAME];
            if (!weight) continue;
            rdi_slot_name(config, (rdi_layer_slot)slot, layer, false, name);
            RDI_TRY(add_item(c, weight, name, weight->rank == 2));
        }
    RDI_TRY(add_item(c, rdi_model_weight(c->model, RDI_FINAL_NORM),
                     rdi_model_slot_name(RDI_FINAL_NORM, false), false));
    if (!config->tied_head || head_fp8)
        RDI_TRY(add_item(c, rdi_model_weight(c->model, RDI_HEAD), rdi_model_slot_name(RDI_HEAD, false),
                         head_fp8));
    // f32 scales first, then bf16, then e4m3: every tensor is aligned to its element without holes.
    for (int64_t i = 0; i < c->count; i++) {
        if (!c->items[i].fp8) continue;
        c->items[i].scale_at = c->data_bytes;
        c->data_bytes += 4 * scale_count(c->items[i].weight);
    }
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < c->count; i++) {
            if (c->items[i].fp8 != (pass == 1)) continue;
            c->items[i].data_at = c->data_bytes;
            c->data_bytes += c->items[i].weight->rows * c->items[i].weight->cols * (pass ? 1 : 2);
        }
    return RD_OK;
}

// ---- writing ------------------------------------------------------------------------------------------------------------
static rd_status write_at(converter *c, const void *data, int64_t bytes, int64_t at) {
    const char *from = data;
    while (bytes > 0) {
        ssize_t written = pwrite(c->fd, from, (size_t)rdi_min(bytes, 1 << 30), (off_t)at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return rdi_fail(RD_E_IO, "%s/model.safetensors: write: %s", c->folder.final_path,
                            strerror(errno));
        from += written;
        at += written;
        bytes -= written;
    }
    return RD_OK;
}

static void put_header_entry(FILE *file, const char *name, const char *suffix, const char *dtype,
                             int32_t rank, int64_t rows, int64_t cols, int64_t begin, int64_t bytes) {
    fprintf(file, ",\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", name, suffix, dtype);
    if (rank == 2) fprintf(file, "%lld,", (long long)rows);
    long long end = begin + bytes;
    fprintf(file, "%lld],\"data_offsets\":[%lld,%lld]}", (long long)cols, (long long)begin, end);
}

static rd_status write_header(converter *c) {
    FILE *file;
    RDI_TRY(rdi_folder_create_file(&c->folder, "model.safetensors", &file));
    static const char placeholder[8]; // the header's length, known at the end
    fwrite(placeholder, sizeof placeholder, 1, file);
    fprintf(file, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < c->count; i++) {
        const item *it = &c->items[i];
        const rdi_weight *w = it->weight;
        put_header_entry(file, it->name, "", it->fp8 ? "F8_E4M3" : "BF16", w->rank, w->rows, w->cols,
                         it->data_at, w->rows * w->cols * (it->fp8 ? 1 : 2));
        if (it->fp8)
            put_header_entry(file, it->name, "_scale_inv", "F32", 2, rdi_ceil_div(w->rows, RDI_FP8_BLOCK),
                             rdi_ceil_div(w->cols, RDI_FP8_BLOCK), it->scale_at, 4 * scale_count(w));
    }
    fputc('}', file);
    while (ftello(file) % 64 > 0) fputc(' ', file); // data begin on a cache line
    c->data_begin = (int64_t)ftello(file);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)(c->data_begin - 8) >> (8 * i));
    bool sought = fseeko(file, 0, SEEK_SET) == 0 && fwrite(length, 8, 1, file) == 1;
    rd_status status =
        sought ? RD_OK : rdi_fail(RD_E_IO, "%s/model.safetensors: %s", c->folder.final_path, strerror(errno));
    return rdi_folder_close_file(&c->folder, "model.safetensors", file, status);
}

static rd_status open_data(converter *c) {
    char *path = rdi_format("%s/model.safetensors", c->folder.partial_path);
    if (!path) return RD_E_NOMEM;
    c->fd = open(path, O_WRONLY | O_CLOEXEC);
    rd_status status = c->fd < 0 ? rdi_fail(RD_E_IO, "%s: %s", path, strerror(errno)) : RD_OK;
    rdi_free(path);
    RDI_TRY(status);
    // Reserves the space now: a full disk is told before the work. Not every file system can: then writes tell.
    long long bytes = c->data_begin + c->data_bytes;
    if (fallocate(c->fd, 0, 0, (off_t)bytes) && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
        return rdi_fail(RD_E_IO, "%s/model.safetensors: %lld bytes: %s", c->folder.final_path, bytes,
                        strerror(errno));
    return RD_OK;
}

static rd_status write_slab(converter *c, const item *it, rdi_quant_slab *slab,
                            rd_convert_tensor_report *totals) {
    const rdi_weight *w = it->weight;
    rdi_quant_slab_run(c->par, slab);
    for (int64_t b = 0; b * RDI_FP8_BLOCK < slab->rows; b++) {
        const rdi_block_stats *stats = &slab->stats[b];
        if (stats->bad_row >= 0)
            return rdi_fail(RD_E_FORMAT,
                            "tensor %s: element [%lld, %lld] is NaN or infinite, needs finite weights",
                            w->name, (long long)stats->bad_row, (long long)stats->bad_col);
        totals->mean_abs_error += stats->sum_error;
        totals->max_abs_error =
            stats->max_error > totals->max_abs_error ? stats->max_error : totals->max_abs_error;
        totals->relative_error += stats->sum_weight;
    }
    int64_t elem_bytes = it->fp8 ? 1 : 2, scale_cols = rdi_ceil_div(w->cols, RDI_FP8_BLOCK);
    RDI_TRY(write_at(c, slab->codes, slab->rows * w->cols * elem_bytes,
                     c->data_begin + it->data_at + slab->row * w->cols * elem_bytes));
    if (!it->fp8) return RD_OK;
    return write_at(c, slab->scales, 4 * rdi_ceil_div(slab->rows, RDI_FP8_BLOCK) * scale_cols,
                    c->data_begin + it->scale_at + 4 * (slab->row / RDI_FP8_BLOCK) * scale_cols);
}

static rd_status step(converter *c, const char *what, int64_t bytes) {
    c->done_bytes += bytes;
    if (c->options->progress &&
        c->options->progress(c->options->progress_state, what, c->done_bytes, c->data_bytes))
        return rdi_fail(RD_E_CANCELLED, "convert: cancelled at %s", what);
    return RD_OK;
}

static int64_t slab_bytes(const item *it, int64_t rows) {
    int64_t cols = it->weight->cols;
    if (!it->fp8) return 2 * rows * cols;
    return rows * cols + 4 * rdi_ceil_div(rows, RDI_FP8_BLOCK) * rdi_ceil_div(cols, RDI_FP8_BLOCK);
}

static rd_status write_item(converter *c, const item *it) {
    const rdi_weight *w = it->weight;
    int64_t slab_rows = rdi_min(w->rows, RDI_SLAB_BLOCKS * RDI_FP8_BLOCK),
            scale_cols = rdi_ceil_div(w->cols, RDI_FP8_BLOCK);
    rdi_quant_slab slab = {.weight = w, .fp8 = it->fp8};
    rd_convert_tensor_report totals = {.name = it->name};
    float *scales = rdi_calloc((size_t)scale_count(w), sizeof *scales);
    slab.codes = rdi_alloc((size_t)(slab_rows * w->cols) * (it->fp8 ? 1 : 2));
    slab.scratch =
        rdi_alloc((size_t)rdi_par_threads(c->par) * RDI_FP8_BLOCK * (size_t)w->cols * sizeof(float));
    rd_status status = scales && slab.codes && slab.scratch ? RD_OK : RD_E_NOMEM;
    if (!status && it->fp8 && w->type == RDI_W_E4M3) rdi_weight_scales_f32(w, scales);
    for (; !status && slab.row < w->rows; slab.row += slab_rows) {
        slab.rows = rdi_min(slab_rows, w->rows - slab.row);
        slab.scales = scales + slab.row / RDI_FP8_BLOCK * scale_cols;
        status = write_slab(c, it, &slab, &totals);
        if (!status) status = step(c, it->name, slab_bytes(it, slab.rows));
    }
    if (!status && c->options->report) {
        totals.relative_error = totals.relative_error > 0 ? totals.mean_abs_error / totals.relative_error : 0;
        totals.mean_abs_error /= (double)(w->rows * w->cols);
        c->options->report(c->options->report_state, &totals);
    }
    rdi_free(slab.scratch);
    rdi_free(slab.codes);
    rdi_free(scales);
    return status;
}

static rd_status write_weights(converter *c) {
    RDI_TRY(list_items(c));
    RDI_TRY(write_header(c));
    RDI_TRY(open_data(c));
    for (int64_t i = 0; i < c->count; i++) RDI_TRY(write_item(c, &c->items[i]));
    if (fsync(c->fd))
        return rdi_fail(RD_E_IO, "%s/model.safetensors: fsync: %s", c->folder.final_path, strerror(errno));
    int failed = close(c->fd);
    c->fd = -1;
    return failed
               ? rdi_fail(RD_E_IO, "%s/model.safetensors: close: %s", c->folder.final_path, strerror(errno))
               : RD_OK;
}

static rd_status write_rest(converter *c, const char *in) {
    static const char *const copied[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
        "merges.txt",     "added_tokens.json",     "chat_template.jinja",     "generation_config.json"};
    const rdi_model_config *config = rdi_model_get_config(c->model);
    const item *last = &c->items[c->count - 1];
    bool head_fp8 = last->fp8 && !strcmp(last->name, rdi_model_slot_name(RDI_HEAD, false));
    const rd_tokenizer *tokenizer = NULL;
    if (rdi_folder_exists(in)) {
        for (size_t i = 0; i < RDI_COUNT(copied); i++)
            RDI_TRY(rdi_folder_copy_file(&c->folder, in, copied[i]));
    } else {
        rd_status status = rdi_model_get_tokenizer(c->model, &tokenizer);
        if (status)
            return status == RD_E_NOMEM ? status : rdi_fail_prefix(status, "convert needs the tokenizer");
        RDI_TRY(rdi_write_tokenizer(&c->folder, tokenizer, config));
    }
    return rdi_write_config(&c->folder, config, tokenizer,
                            head_fp8); // last: without it nothing loads the folder
}

static rd_status make_pool(converter *c) {
    int64_t threads;
    RDI_TRY(rdi_env_int("RADIANCE_THREADS", 0, 4096, &threads));
    if (!threads) threads = rdi_max(1, sysconf(_SC_NPROCESSORS_ONLN));
    return rdi_par_create((int32_t)rdi_min(threads, RDI_SLAB_BLOCKS), NULL, NULL, &c->par);
}

static rd_status run(converter *c, const char *in, const char *out) {
    RDI_TRY(make_pool(c));
    RDI_TRY(rdi_folder_begin(out, c->options->overwrite != 0, &c->folder));
    RDI_TRY(write_weights(c));
    RDI_TRY(write_rest(c, in));
    RDI_TRY(step(c, "finish", 0)); // the last chance to cancel
    return rdi_folder_commit(&c->folder);
}

rd_status rd_convert(const char *in, const char *out, const rd_convert_options *options) {
    static const rd_convert_options defaults = {.struct_size = sizeof defaults};
    if (!in || !*in || !out || !*out)
        return rdi_fail(RD_E_INVALID, "rd_convert: in or out is empty, needs two paths");
    if (!options) options = &defaults;
    if (options->struct_size < sizeof *options)
        return rdi_fail(RD_E_INVALID, "rd_convert: struct_size=%u, needs %zu", options->struct_size,
                        sizeof *options);
    rd_model *model;
    RDI_TRY(rd_model_open(in, &model));
    converter c = {.model = model, .options = options, .fd = -1};
    rd_status status = run(&c, in, out);
    if (c.fd >= 0) close(c.fd);
    rdi_folder_end(&c.folder);
    rdi_par_free(c.par);
    rdi_arena_free(&c.arena);
    rd_model_close(model);
    return status;
}
