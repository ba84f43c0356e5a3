// SPDX-License-Identifier: Apache-2.0
// Log lines go to the caller's function or nowhere: the library itself never prints.
#include "base/base.h"

#include <stdio.h>

void rdi_log_write(const rdi_log *log, rd_log_level level, const char *format, ...) {
    if (!log || !log->fn) return;
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    log->fn(log->state, level, text);
}
