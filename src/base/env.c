// SPDX-License-Identifier: Apache-2.0
// The one table of environment variables and the only getenv. Values are read once, at the first question.
#include "base/base.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const rdi_env_entry table[] = {
    {"RADIANCE_THREADS", "0", "worker threads; 0 = all performance cores"},
    {"RADIANCE_ISA", "", "cap of the CPU's instruction set: ref, avx2 or avx512; empty = what cpuid reports"},
    {"RADIANCE_HIP_LIBRARY", "", "path of the HIP runtime; empty = libamdhip64.so where the system keeps it"},
    {"RADIANCE_CUDA_LIBRARY", "", "path of the CUDA driver; empty = libcuda.so.1 where the system keeps it"},
    {"RADIANCE_TRUST", "0", "1: a card's kernels are not checked at first use"},
    {"RADIANCE_SIM_LIBRARY", "", "path of the gfx1201 simulator; empty = beside libradiance or the command"},
    {"RADIANCE_LOG", "warn", "command line log level: error, warn, info or debug"},
    {"XDG_CACHE_HOME", "", "folder of the bandwidth cache; empty = $HOME/.cache"},
    {"RADIANCE_TEST_MODEL", "", "tests: path of the demo model; empty = where make demo puts it"},
    {"HOME", "", "home folder, for the cache's default place"},
};

static const char *values[RDI_COUNT(table)];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_all(void) {
    for (size_t i = 0; i < RDI_COUNT(table); i++) {
        const char *value = getenv(table[i].name);
        // A copy: the process may change its environment later, and "read once" must hold.
        values[i] = value ? strdup(value) : table[i].default_value;
        if (!values[i]) values[i] = table[i].default_value;
    }
}

const rdi_env_entry *rdi_env_at(int index) {
    return index >= 0 && (size_t)index < RDI_COUNT(table) ? &table[index] : NULL;
}

const char *rdi_env_text(const char *name) {
    pthread_once(&once, read_all);
    for (size_t i = 0; i < RDI_COUNT(table); i++)
        if (!strcmp(table[i].name, name)) return values[i];
    return NULL;
}

int32_t rd_env_at(int32_t index, rd_env_info *out) {
    const rdi_env_entry *entry = rdi_env_at(index);
    if (!entry || !out) return 0;
    *out = (rd_env_info){entry->name, rdi_env_text(entry->name), entry->default_value, entry->meaning};
    return 1;
}

rd_status rdi_env_int(const char *name, int64_t min, int64_t max, int64_t *out) {
    const char *text = rdi_env_text(name);
    if (!text) return rdi_fail(RD_E_INTERNAL, "%s is not in the environment table", name);
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max)
        return rdi_fail(RD_E_INVALID, "%s=%.40s, needs a whole number from %lld to %lld", name, text,
                        (long long)min, (long long)max);
    *out = value;
    return RD_OK;
}
