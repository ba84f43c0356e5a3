// SPDX-License-Identifier: Apache-2.0
// All instruction rows, gathered once from the handlers' lists and sorted by name. The lists that were compiled
// per vector instruction set are taken from the best set that the host has.
#include <stdlib.h>
#include "sim.h"

bool gs_use_avx512 = true;

#define DECLARE_ISA(name)    extern const gs_row gs_rows_##name##_v3[], gs_rows_##name##_v4[];
#define DECLARE_COMMON(name) extern const gs_row gs_rows_##name[];
GS_ROW_LISTS_ISA(DECLARE_ISA)
GS_ROW_LISTS_COMMON(DECLARE_COMMON)

enum { MAX_ROWS = 2048 };
static const gs_row *rows[2][MAX_ROWS]; // [AVX-512][...]
static size_t row_count[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_name(const void *a, const void *b) {
    return strcmp((*(const gs_row *const *)a)->name, (*(const gs_row *const *)b)->name);
}

static void take(int set, const gs_row *list) {
    for (; list->name && row_count[set] < MAX_ROWS; list++) rows[set][row_count[set]++] = list;
}

static void gather(void) {
#define TAKE_V3(name)   take(0, gs_rows_##name##_v3);
#define TAKE_V4(name)   take(1, gs_rows_##name##_v4);
#define TAKE_BOTH(name) take(0, gs_rows_##name), take(1, gs_rows_##name);
    GS_ROW_LISTS_ISA(TAKE_V3)
    GS_ROW_LISTS_ISA(TAKE_V4)
    GS_ROW_LISTS_COMMON(TAKE_BOTH)
    for (int set = 0; set < 2; set++) qsort(rows[set], row_count[set], sizeof rows[set][0], by_name);
}

static int current_set(void) {
    bool v3 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return v4 && gs_use_avx512 ? 1 : v3 ? 0 : -1;
}

const gs_row *gs_row_find(const char *name, size_t length) {
    pthread_once(&once, gather);
    int set = current_set();
    if (set < 0) return NULL;
    size_t lo = 0, hi = row_count[set];
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const char *have = rows[set][mid]->name;
        int c = strncmp(name, have, length);
        if (c == 0) c = have[length] ? -1 : 0;
        if (c == 0) return rows[set][mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

size_t gs_row_count(void) {
    pthread_once(&once, gather);
    return row_count[0];
}
const char *gs_row_mnemonic(size_t index) {
    pthread_once(&once, gather);
    return index < row_count[0] ? rows[0][index]->name : "";
}
gs_class gs_row_class(size_t index) {
    pthread_once(&once, gather);
    return index < row_count[0] ? (gs_class)rows[0][index]->cls : GS_CLASS_HINT;
}

static bool one_of(const char *name, const char *const *list) {
    while (*list && strcmp(*list, name) != 0) list++;
    return *list != NULL;
}

gs_effect gs_row_effect(size_t index) {
    static const char *const order[] = {"s_wait_alu", "s_endpgm", NULL};
    static const char *const none[] = {
        "s_wait_expcnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_event", "v_nop", NULL};
    static const char *const refused[] = {"s_trap", "global_load_tr_b64", NULL};
    const char *name = gs_row_mnemonic(index);
    gs_class class = gs_row_class(index);
    if (one_of(name, refused)) return GS_EFFECT_REFUSED;
    if (one_of(name, order)) return GS_EFFECT_ORDER;
    if (one_of(name, none) || class == GS_CLASS_HINT) return GS_EFFECT_NONE;
    bool waits = class == GS_CLASS_WAIT || class == GS_CLASS_BARRIER;
    return waits && strcmp(name, "s_barrier_signal_isfirst") != 0 ? GS_EFFECT_ORDER : GS_EFFECT_RESULT;
}
