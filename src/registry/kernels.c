// SPDX-License-Identifier: Apache-2.0
// The table as data.
#include "registry/registry.h"

#include <string.h>

const rd_kernel_info *rd_kernel_at(int32_t index) {
    return index >= 0 && index < rdi_row_count ? &rdi_rows[index].info : NULL;
}

const rd_kernel_info *rd_kernel_find(const char *name) {
    for (int32_t i = 0; name && i < rdi_row_count; i++)
        if (!strcmp(rdi_rows[i].info.name, name)) return &rdi_rows[i].info;
    return NULL;
}
