// SPDX-License-Identifier: Apache-2.0
// The environment variables of the simulated runtime, read once. docs/gfx12sim.md has the table.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rt.h"

// 31.86 GiB usable of the card's 32 (as its users report it), in MiB.
enum { DEFAULT_MEMORY_MIB = 32624 };

static bool bad(rt_config *c, const char *name, const char *value, const char *needed) {
    if (!c->error[0]) snprintf(c->error, sizeof c->error, "%s=%.60s: needs %s", name, value, needed);
    return false;
}

static bool number(const char *text, uint64_t *out, const char **end) {
    if (*text < '0' || *text > '9') return false;
    char *stop;
    errno = 0;
    *out = strtoull(text, &stop, 0);
    *end = stop;
    return errno == 0;
}

static bool whole(rt_config *c, const char *name, uint64_t lo, uint64_t hi, const char *needed,
                  uint64_t *out) {
    const char *value = getenv(name), *end;
    if (!value || !*value) return false;
    uint64_t n;
    if (!number(value, &n, &end) || *end || n < lo || n > hi) return bad(c, name, value, needed);
    *out = n;
    return true;
}

static void memory(rt_config *c) {
    static const char name[] = "GFX12SIM_MEMORY",
                      needed[] = "bytes, with K, M or G behind if wanted, 1M to 1024G";
    const char *value = getenv(name), *end;
    if (!value || !*value) return;
    uint64_t n;
    int shift = 0;
    bool ok = number(value, &n, &end);
    if (ok && *end) {
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : -1;
        ok = shift > 0 && !end[1];
    }
    if (!ok || n > (UINT64_MAX >> 30) || n << shift < 1u << 20 || n << shift > UINT64_C(1) << 40) {
        bad(c, name, value, needed);
        return;
    }
    c->memory_bytes = (size_t)(n << shift) / RT_PAGE_BYTES * RT_PAGE_BYTES;
}

// "all", "none", or a list: "race_lds,wait" turns on just these, "-hazard" all but these.
static void checks(rt_config *c) {
    static const char name[] = "GFX12SIM_CHECKS",
                      needed[] = "all, none, or check names with commas, '-' before each to omit";
    const char *value = getenv(name);
    if (!value || !*value || strcmp(value, "all") == 0) return;
    if (strcmp(value, "none") == 0) {
        c->checks = GS_CHECKS_NONE;
        return;
    }
    bool omit = *value == '-';
    uint32_t set = omit ? GS_CHECKS_ALL : GS_CHECKS_NONE;
    for (const char *at = value; *at;) {
        if ((*at == '-') != omit) {
            bad(c, name, value, needed);
            return;
        }
        at += omit;
        size_t length = strcspn(at, ",");
        int check = 1;
        for (; check < GS_CHECK_COUNT; check++) {
            const char *known = gs_check_name((gs_check)check);
            if (strlen(known) == length && memcmp(known, at, length) == 0) break;
        }
        if (check == GS_CHECK_COUNT) {
            bad(c, name, value, needed);
            return;
        }
        set = omit ? set & ~(1u << check) : set | 1u << check;
        at += length;
        if (*at == ',') at++;
    }
    c->checks = set;
}

static void lose(rt_config *c) { // "N" or "device:N"
    static const char name[] = "GFX12SIM_LOSE_AFTER", needed[] = "launches, or device:launches";
    const char *value = getenv(name), *end;
    if (!value || !*value) return;
    uint64_t first, second;
    bool ok = number(value, &first, &end);
    c->lose_device = 0;
    if (ok && *end == ':') {
        ok = first < RT_MAX_DEVICES && number(end + 1, &second, &end);
        c->lose_device = (int)first;
        first = second;
    }
    if (!ok || *end || first > INT64_MAX) {
        c->lose_device = -1;
        bad(c, name, value, needed);
        return;
    }
    c->lose_after = (int64_t)first;
}

void rt_config_read(rt_config *c) {
    *c = (rt_config){.devices = 1,
                     .memory_bytes = (size_t)DEFAULT_MEMORY_MIB << 20,
                     .checks = GS_CHECKS_ALL,
                     .lose_device = -1,
                     .lose_after = -1};
    uint64_t n;
    if (whole(c, "GFX12SIM_DEVICES", 0, RT_MAX_DEVICES, "0 to 16", &n)) c->devices = (int)n;
    if (whole(c, "GFX12SIM_SEED", 0, UINT64_MAX, "a number", &n)) c->seed = n;
    if (whole(c, "GFX12SIM_MAX_STEPS", 1, UINT64_MAX, "instructions per wave, 1 or more", &n))
        c->max_steps = n;
    if (whole(c, "GFX12SIM_THREADS", 0, 1024, "0 (as many as the host has) to 1024", &n))
        c->threads = (uint32_t)n;
    if (whole(c, "GFX12SIM_REPORT", 0, 1, "0 or 1", &n)) c->report = n != 0;
    const char *path = getenv("GFX12SIM_STATS");
    if (path && strlen(path) < sizeof c->stats_path)
        memcpy(c->stats_path, path, strlen(path) + 1);
    else if (path)
        bad(c, "GFX12SIM_STATS", path, "a path of at most 1023 bytes");
    memory(c);
    checks(c);
    lose(c);
}
