// SPDX-License-Identifier: Apache-2.0
// What the check at first use found, kept in a file for each build, card and driver, and the rows that it takes from a context.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkstemp
#endif
#include "backend/backend.h"
#include "ops/first_use.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, HEAD_BYTES = 512 };
static const char all_tried[] = "all rows were tried";

// "<cache>/radiance/rows-<card>": one card a file; its first line names build, card and driver.
static bool file_path(const rd_ctx *ctx, char folder[PATH_BYTES], char path[PATH_BYTES]) {
    const char *root = rdi_env_text("XDG_CACHE_HOME"), *home = rdi_env_text("HOME");
    if (!*root && !*home) return false;
    int length = *root ? snprintf(folder, PATH_BYTES, "%s/radiance", root)
                       : snprintf(folder, PATH_BYTES, "%s/.cache/radiance", home);
    char card[96];
    snprintf(card, sizeof card, "%s", ctx->device->info.model);
    for (char *at = card; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", *at)) *at = '-';
    return length > 0 && snprintf(path, PATH_BYTES, "%s/rows-%s", folder, card) < PATH_BYTES &&
           length < PATH_BYTES;
}

static void head_line(const rd_ctx *ctx, char head[HEAD_BYTES]) {
    const rdi_card *card = ctx->device->card;
    snprintf(head, HEAD_BYTES, "%s %s | %s | %s\n", rd_version(), rd_build_id(), ctx->device->info.model,
             card->driver->version(card));
}

static int32_t row_named(const rdi_table *table, const char *name) {
    for (int32_t i = 0; i < table->count; i++)
        if (!strcmp(table->rows[i].info.name, name)) return i;
    return -1;
}

// One failing row a line, and a last line when all rows were tried. False when there is more to try: a card stopped, so that
// bad rows are known and the others are not; or nothing is known, as from a file of another build, card or driver.
static bool read_verdicts(const rd_ctx *ctx, bool *bad) {
    char folder[PATH_BYTES], path[PATH_BYTES], head[HEAD_BYTES], line[HEAD_BYTES];
    if (!file_path(ctx, folder, path)) return false;
    FILE *file = fopen(path, "r");
    if (!file) return false;
    head_line(ctx, head);
    bool good = fgets(line, sizeof line, file) && !strcmp(line, head), all = false;
    while (good && !all && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        all = !strcmp(line, all_tried);
        int32_t row = all ? 0 : row_named(&ctx->table, line);
        good = row >= 0;
        if (good && !all) bad[row] = true;
    }
    fclose(file);
    if (!good) memset(bad, 0, (size_t)ctx->table.count * sizeof *bad);
    return good && all;
}

// Replaced by rename: readers see the old or the new one.
static bool write_verdicts(const rd_ctx *ctx, const bool *bad, bool all, char *folder, const char *path) {
    char fresh[PATH_BYTES + 16], head[HEAD_BYTES];
    for (char *at = folder + 1;; at++) {
        if (*at && *at != '/') continue;
        char kept = *at;
        *at = 0;
        if (mkdir(folder, 0777) && errno != EEXIST) return false;
        *at = kept;
        if (!kept) break;
    }
    snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
    int handle = mkstemp(fresh);
    FILE *file = handle < 0 ? NULL : fdopen(handle, "w");
    if (!file) return false;
    head_line(ctx, head);
    bool written = fputs(head, file) >= 0;
    for (int32_t i = 0; i < ctx->table.count && written; i++)
        if (bad[i]) written = fprintf(file, "%s\n", ctx->table.rows[i].info.name) > 0;
    if (all && written) written = fprintf(file, "%s\n", all_tried) > 0;
    written = !fclose(file) && written;
    if (written && !rename(fresh, path)) return true;
    const int error = errno;
    unlink(fresh);
    errno = error;
    return false;
}

// A folder that cannot be written costs the check again at every start: no reason to fail, but one to say so.
static void keep_verdicts(const rd_ctx *ctx, const bool *bad, bool all) {
    char folder[PATH_BYTES], path[PATH_BYTES];
    if (!file_path(ctx, folder, path))
        rdi_log_write(&ctx->log, RD_LOG_WARN,
                      "%s: what its kernels' check found cannot be kept, needs XDG_CACHE_HOME or HOME, under "
                      "%d bytes",
                      ctx->device->info.model, PATH_BYTES);
    else if (!write_verdicts(ctx, bad, all, folder, path))
        rdi_log_write(&ctx->log, RD_LOG_WARN,
                      "%s cannot be written: %s: every kernel is checked again at the next start", path,
                      strerror(errno));
}

static rd_status take_out(rd_ctx *ctx, const bool *bad) {
    int32_t left = 0;
    for (int32_t i = 0; i < ctx->table.count; i++) left += !bad[i];
    if (left == ctx->table.count) return RD_OK;
    rdi_row *rows = rdi_alloc((size_t)left * sizeof *rows);
    if (!rows) return RD_E_NOMEM;
    for (int32_t i = 0, at = 0; i < ctx->table.count; i++)
        if (!bad[i]) rows[at++] = ctx->table.rows[i];
    rdi_log_write(&ctx->log, RD_LOG_WARN, "%d kernels failed their check on %s and are left out",
                  ctx->table.count - left, ctx->device->info.model);
    ctx->own_rows = rows;
    ctx->table = (rdi_table){rows, left, true};
    return RD_OK;
}

rd_status rdi_first_use_apply(rd_ctx *ctx) {
    bool *bad = rdi_calloc((size_t)ctx->table.count, sizeof *bad);
    if (!bad) return RD_E_NOMEM;
    rd_status status = RD_OK;
    if (!read_verdicts(ctx, bad)) {
        rdi_log_write(&ctx->log, RD_LOG_INFO, "first use of this build on %s: every kernel is checked once",
                      ctx->device->info.model);
        status = rdi_first_use_run(ctx, bad);
        if (status == RD_OK || status == RD_E_DEVICE) keep_verdicts(ctx, bad, status == RD_OK);
    }
    if (status == RD_OK) status = take_out(ctx, bad);
    rdi_free(bad);
    return status;
}
