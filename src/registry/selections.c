// SPDX-License-Identifier: Apache-2.0
// Selections and the report. Users ask for exactly this: which kernel ran, and why the fast one did not.
#include "registry/selections.h"

#include <stdio.h>
#include <string.h>

void rdi_selections_init(rdi_selections *selections) {
    *selections = (rdi_selections){.entries = NULL};
    pthread_mutex_init(&selections->lock, NULL);
}

static void free_entry(rdi_selection *entry) {
    if (!entry) return;
    rdi_free((void *)(uintptr_t)entry->shown.op);
    rdi_free((void *)(uintptr_t)entry->shown.query);
    rdi_free((void *)(uintptr_t)entry->shown.kernel);
    rdi_free((void *)(uintptr_t)entry->shown.reason);
    rdi_free(entry->identity);
    rdi_free(entry);
}

void rdi_selections_free(rdi_selections *selections) {
    for (int32_t i = 0; i < selections->count; i++) free_entry(selections->entries[i]);
    rdi_free(selections->entries);
    pthread_mutex_destroy(&selections->lock);
}

// FNV-1a, 64 bit: a mismatch skips the string comparison of nearly every other entry.
static uint64_t hash_text(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static rdi_selection *make_entry(const char *op, const char *query, const char *identity, const char *kernel,
                                 const char *reason) {
    rdi_selection *entry = rdi_calloc(1, sizeof *entry);
    if (!entry) return NULL;
    entry->identity = rdi_strdup(identity);
    entry->shown.op = rdi_strdup(op);
    entry->shown.query = rdi_strdup(query);
    entry->shown.kernel = kernel ? rdi_strdup(kernel) : NULL;
    entry->shown.reason = rdi_strdup(reason);
    if (!entry->identity || !entry->shown.op || !entry->shown.query || !entry->shown.reason ||
        (kernel && !entry->shown.kernel)) {
        free_entry(entry);
        return NULL;
    }
    entry->hash = hash_text(identity);
    entry->shown.asked = 1;
    return entry;
}

static bool grow(rdi_selections *selections) {
    if (selections->count < selections->capacity) return true;
    int32_t capacity = selections->capacity ? 2 * selections->capacity : 32;
    rdi_selection **entries = rdi_realloc(selections->entries, (size_t)selections->count * sizeof *entries,
                                          (size_t)capacity * sizeof *entries);
    if (!entries) return false;
    selections->entries = entries;
    selections->capacity = capacity;
    return true;
}

static rd_status record_locked(rdi_selections *selections, const char *op, const char *query,
                               const char *identity, const char *kernel, const char *reason) {
    uint64_t hash = hash_text(identity);
    for (int32_t i = 0; i < selections->count; i++) {
        rdi_selection *entry = selections->entries[i];
        if (entry->hash != hash || strcmp(entry->identity, identity) != 0) continue;
        entry->shown.asked++;
        return RD_OK;
    }
    if (!grow(selections)) return RD_E_NOMEM;
    rdi_selection *entry = make_entry(op, query, identity, kernel, reason);
    if (!entry) return RD_E_NOMEM;
    selections->entries[selections->count++] = entry;
    return RD_OK;
}

rd_status rdi_selections_record(rdi_selections *selections, const char *op, const char *query,
                                const char *sorted, const char *kernel, const char *reason) {
    char *identity = rdi_format("%s %s", op, sorted);
    if (!identity) return RD_E_NOMEM;
    pthread_mutex_lock(&selections->lock);
    rd_status status = record_locked(selections, op, query, identity, kernel, reason);
    pthread_mutex_unlock(&selections->lock);
    rdi_free(identity);
    return status;
}

rd_status rdi_selections_at(rdi_selections *selections, int32_t index, rd_selection *out) {
    pthread_mutex_lock(&selections->lock);
    int32_t count = selections->count;
    bool found = index >= 0 && index < count;
    if (found) *out = selections->entries[index]->shown;
    pthread_mutex_unlock(&selections->lock);
    return found ? RD_OK : rdi_fail(RD_E_LIMIT, "selection=%d, needs 0 to %d", index, count - 1);
}

// Appends to a text of which only the first `capacity` bytes are kept; *used counts all of it.
static void append(char *text, size_t capacity, size_t *used, const char *format, ...) RDI_PRINTF(4, 5);
static void append(char *text, size_t capacity, size_t *used, const char *format, ...) {
    va_list list;
    va_start(list, format);
    size_t room = *used < capacity ? capacity - *used : 0;
    int length = vsnprintf(room ? text + *used : NULL, room, format, list);
    va_end(list);
    if (length > 0) *used += (size_t)length;
}

static void append_entry(const rd_selection *shown, int op_width, char *text, size_t capacity, size_t *used) {
    append(text, capacity, used, "%-*s%s%s\n", op_width, shown->op, *shown->query ? " " : "", shown->query);
    if (!shown->kernel)
        append(text, capacity, used, "-> no kernel, fallback runs: %s", shown->reason);
    else if (!strncmp(shown->reason, "slow: ", 6))
        append(text, capacity, used, "-> %s (slow): %s", shown->kernel, shown->reason + 6);
    else
        append(text, capacity, used, "-> %s", shown->kernel);
    if (shown->asked > 1) append(text, capacity, used, " (asked %lldx)", (long long)shown->asked);
    append(text, capacity, used, "\n");
}

rd_status rdi_selections_report(rdi_selections *selections, int32_t kernels_built, char *text,
                                size_t *bytes) {
    size_t capacity = text ? *bytes : 0, used = 0;
    pthread_mutex_lock(&selections->lock);
    int op_width = 0;
    int32_t resolved = 0;
    for (int32_t i = 0; i < selections->count; i++) {
        const rd_selection *shown = &selections->entries[i]->shown;
        int width = (int)strlen(shown->op);
        if (width > op_width) op_width = width;
        resolved += shown->kernel != NULL;
    }
    if (selections->count)
        append(
            text, capacity, &used,
            "Radiance kernel selection: libradiance %s (%s), %d kernels built, %d of %d queries resolved\n",
            rd_version(), rd_build_id(), kernels_built, resolved, selections->count);
    for (int32_t i = 0; i < selections->count; i++)
        append_entry(&selections->entries[i]->shown, op_width, text, capacity, &used);
    pthread_mutex_unlock(&selections->lock);
    *bytes = used + 1;
    if (text && capacity == 0) return rdi_fail(RD_E_LIMIT, "report: bytes=0, needs %zu", used + 1);
    if (text && !used) text[0] = 0;
    if (text && used + 1 > capacity)
        return rdi_fail(RD_E_LIMIT, "report: bytes=%zu, needs %zu", capacity, used + 1);
    return RD_OK;
}
