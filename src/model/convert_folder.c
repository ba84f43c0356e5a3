// SPDX-License-Identifier: Apache-2.0
// The output folder of a conversion: written under a sibling name, synced, then renamed, so that OUT is whole or absent.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // renameat2
#endif
#include "model/convert.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Only a folder that holds nothing but model files may be replaced: a mistyped OUT must not cost a home folder.
static bool is_model_file(const char *name) {
    static const char *const names[] = {
        "config.json",       "generation_config.json",      "tokenizer.json",
        "vocab.json",        "tokenizer_config.json",       "special_tokens_map.json",
        "merges.txt",        "added_tokens.json",           "chat_template.jinja",
        "model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < RDI_COUNT(names); i++)
        if (!strcmp(name, names[i])) return true;
    size_t bytes = strlen(name), tail = strlen(".safetensors");
    return bytes > tail && !strncmp(name, "model-", 6) && !strcmp(name + bytes - tail, ".safetensors");
}

static bool dots(const char *name) {
    return !strcmp(name, ".") || !strcmp(name, "..");
}

static rd_status check_replaceable(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return rdi_fail(RD_E_IO, "%s: %s", path, strerror(errno));
    rd_status status = RD_OK;
    for (struct dirent *entry; status == RD_OK && (entry = readdir(dir));)
        if (!dots(entry->d_name) && !is_model_file(entry->d_name))
            status = rdi_fail(RD_E_INVALID,
                              "%s: holds %.200s, needs a folder of nothing but model files to replace it",
                              path, entry->d_name);
    closedir(dir);
    return status;
}

static void remove_folder(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (!dots(entry->d_name)) unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    rmdir(path);
}

static rd_status make_partial(rdi_out_folder *f) {
    for (int attempt = 0; attempt < 100; attempt++) {
        char *path = rdi_format("%s.partial-%ld-%d", f->final_path, (long)getpid(), attempt);
        if (!path) return RD_E_NOMEM;
        if (mkdir(path, 0777) == 0) {
            f->partial_path = path;
            return RD_OK;
        }
        rd_status status = errno == EEXIST ? RD_OK
                                           : rdi_fail(RD_E_IO, "%s: a folder cannot be made there: %s",
                                                      f->final_path, strerror(errno));
        rdi_free(path);
        if (status) return status;
    }
    return rdi_fail(RD_E_IO, "%s: 100 partial folders beside it, needs them removed", f->final_path);
}

rd_status rdi_folder_begin(const char *path, bool overwrite, rdi_out_folder *out) {
    memset(out, 0, sizeof *out);
    out->overwrite = overwrite;
    out->final_path = rdi_strdup(path);
    if (!out->final_path) return RD_E_NOMEM;
    for (size_t n = strlen(path); n > 1 && out->final_path[n - 1] == '/'; n--) out->final_path[n - 1] = 0;
    const char *slash = strrchr(out->final_path, '/');
    int parent_bytes = slash == out->final_path ? 1
                       : slash                  ? (int)(slash - out->final_path)
                                                : 0; // 1: the root
    out->parent_path = slash ? rdi_format("%.*s", parent_bytes, out->final_path) : rdi_strdup(".");
    if (!out->parent_path) return RD_E_NOMEM;
    struct stat info;
    if (lstat(out->final_path, &info) == 0) {
        if (!overwrite)
            return rdi_fail(RD_E_INVALID, "%s: exists, needs a new path or overwrite", out->final_path);
        if (!S_ISDIR(info.st_mode))
            return rdi_fail(RD_E_INVALID, "%s: is no folder, needs one to replace it", out->final_path);
        RDI_TRY(check_replaceable(out->final_path));
    }
    return make_partial(out);
}

static rd_status sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return rdi_fail(RD_E_IO, "%s: %s", path, strerror(errno));
    // Some file systems refuse to sync a folder (EINVAL): then there is nothing more to do.
    rd_status status =
        fsync(fd) && errno != EINVAL ? rdi_fail(RD_E_IO, "%s: fsync: %s", path, strerror(errno)) : RD_OK;
    close(fd);
    return status;
}

rd_status rdi_folder_commit(rdi_out_folder *f) {
    RDI_TRY(sync_folder(f->partial_path));
    bool exists = rdi_folder_exists(f->final_path);
    if (exists && renameat2(AT_FDCWD, f->partial_path, AT_FDCWD, f->final_path, RENAME_EXCHANGE) == 0)
        return sync_folder(
            f->parent_path); // the old folder now has the partial name: rdi_folder_end removes it
    if (exists) {            // no exchange on this file system: the old one steps aside first
        char *aside = rdi_format("%s-old", f->partial_path);
        if (!aside) return RD_E_NOMEM;
        rd_status status = rename(f->final_path, aside)
                               ? rdi_fail(RD_E_IO, "%s: rename: %s", f->final_path, strerror(errno))
                               : RD_OK;
        if (!status && rename(f->partial_path, f->final_path)) {
            status = rdi_fail(RD_E_IO, "%s: rename: %s", f->final_path, strerror(errno));
            (void)rename(aside, f->final_path); // put the old one back
        } else if (!status) {
            remove_folder(aside);
        }
        rdi_free(aside);
        RDI_TRY(status);
    } else if (rename(f->partial_path, f->final_path)) {
        return rdi_fail(RD_E_IO, "%s: rename: %s", f->final_path, strerror(errno));
    }
    return sync_folder(f->parent_path);
}

void rdi_folder_end(rdi_out_folder *f) {
    if (f->partial_path) remove_folder(f->partial_path);
    rdi_free(f->partial_path);
    rdi_free(f->final_path);
    rdi_free(f->parent_path);
    memset(f, 0, sizeof *f);
}

rd_status rdi_folder_create_file(const rdi_out_folder *f, const char *name, FILE **out) {
    *out = NULL;
    char *path = rdi_format("%s/%s", f->partial_path, name);
    if (!path) return RD_E_NOMEM;
    *out = fopen(path, "wbe");
    rd_status status = *out ? RD_OK : rdi_fail(RD_E_IO, "%s: %s", path, strerror(errno));
    rdi_free(path);
    return status;
}

rd_status rdi_folder_close_file(const rdi_out_folder *f, const char *name, FILE *file, rd_status status) {
    errno = 0;
    bool failed = fflush(file) || ferror(file) || fsync(fileno(file));
    if (failed && !status)
        status = rdi_fail(RD_E_IO, "%s/%s: write: %s", f->final_path, name,
                          errno ? strerror(errno) : "an earlier write failed, is the disk full?");
    if (fclose(file) && !status)
        status = rdi_fail(RD_E_IO, "%s/%s: close: %s", f->final_path, name, strerror(errno));
    return status;
}

rd_status rdi_folder_copy_file(const rdi_out_folder *f, const char *from, const char *name) {
    char *path = rdi_format("%s/%s", from, name);
    if (!path) return RD_E_NOMEM;
    rd_status status = RD_OK;
    if (rdi_file_exists(path)) {
        rdi_mapping mapping;
        FILE *file;
        status = rdi_file_map(path, &mapping);
        if (!status) status = rdi_folder_create_file(f, name, &file);
        if (!status) {
            fwrite(mapping.data, 1, mapping.bytes,
                   file); // an error stays in the stream: close_file reports it
            status = rdi_folder_close_file(f, name, file, RD_OK);
        }
        rdi_file_unmap(&mapping);
    }
    rdi_free(path);
    return status;
}
