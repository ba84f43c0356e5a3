// SPDX-License-Identifier: Apache-2.0
// Errors as values, and the words for every enumeration that a user sees.
#include <stdarg.h>
#include "sim.h"

gs_status gs_error_set(gs_error *error, gs_status status, const char *format, ...) {
    if (!error) return status;
    memset(error, 0, sizeof *error);
    error->status = status;
    error->lane = -1;
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return status;
}

const char *gs_status_name(gs_status status) {
    static const char *const names[] = {"ok",        "invalid",   "bad code object", "unsupported",
                                        "no memory", "not found", "kernel fault"};
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown status";
}

const char *gs_check_name(gs_check check) {
    static const char *const names[GS_CHECK_COUNT] = {
        "none",       "out_of_bounds", "lds_bounds", "unknown_instruction", "hang",   "misaligned", "uninit_vgpr",
        "uninit_lds", "race_lds",      "race_global", "wait",               "hazard", "exec",       "barrier"};
    return (unsigned)check < GS_CHECK_COUNT ? names[check] : "unknown check";
}

const char *gs_class_name(gs_class c) {
    static const char *const names[GS_CLASS_COUNT] = {"salu",       "smem",   "valu",    "trans", "wmma",
                                                      "vmem_load",  "vmem_store", "atomic", "scratch", "lds",
                                                      "branch",     "wait",   "barrier", "hint"};
    return (unsigned)c < GS_CLASS_COUNT ? names[c] : "unknown";
}

const char *gs_counter_name(gs_counter c) {
    static const char *const names[GS_CNT_COUNT] = {"loadcnt", "storecnt", "dscnt", "kmcnt"};
    return (unsigned)c < GS_CNT_COUNT ? names[c] : "unknown";
}

size_t gs_error_format(const gs_error *e, char *text, size_t bytes) {
    if (e->status != GS_E_CHECK)
        return (size_t)snprintf(text, bytes, "%s: %s\n", gs_status_name(e->status), e->message);
    char lane[32] = "all lanes", address[40] = "";
    if (e->lane >= 0) snprintf(lane, sizeof lane, "lane %d", e->lane);
    if (e->address) snprintf(address, sizeof address, ", address 0x%llx", (unsigned long long)e->address);
    return (size_t)snprintf(text, bytes, "%s: %s\n  kernel %s, group (%u,%u,%u), wave %u, %s%s\n  %08llx: %s\n",
                            gs_check_name(e->check), e->message, e->kernel, e->group[0], e->group[1], e->group[2],
                            e->wave, lane, address, (unsigned long long)e->pc, e->line);
}
