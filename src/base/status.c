// SPDX-License-Identifier: Apache-2.0
// Status names and the per-thread error text. A fixed thread-local buffer: reporting an error must not allocate.
#include "base/base.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[1024];

static const char *const status_names[] = {
    [RD_OK] = "ok",
    [RD_E_INVALID] = "invalid",
    [RD_E_UNSUPPORTED] = "unsupported",
    [RD_E_NO_DEVICE] = "no device",
    [RD_E_NOMEM] = "out of memory",
    [RD_E_IO] = "input/output error",
    [RD_E_FORMAT] = "bad format",
    [RD_E_DEVICE] = "device error",
    [RD_E_STATE] = "wrong state",
    [RD_E_LIMIT] = "limit reached",
    [RD_E_INTERNAL] = "internal error",
    [RD_E_CANCELLED] = "cancelled",
};

const char *rd_status_name(rd_status status) {
    if ((unsigned)status >= RDI_COUNT(status_names)) return "unknown status";
    return status_names[status];
}

const char *rd_error_text(void) {
    return error_text;
}

rd_status rdi_fail(rd_status status, const char *format, ...) {
    char text[sizeof error_text]; // the arguments may point into error_text itself
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    memcpy(error_text, text, sizeof text);
    return status;
}

rd_status rdi_fail_prefix(rd_status status, const char *format, ...) {
    char text[sizeof error_text];
    va_list list;
    va_start(list, format);
    int used = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (used < 0 || (size_t)used >= sizeof text) used = (int)sizeof text - 1;
    snprintf(text + used, sizeof text - (size_t)used, ": %.900s", error_text);
    memcpy(error_text, text, sizeof text);
    return status;
}
