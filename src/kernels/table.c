// SPDX-License-Identifier: Apache-2.0
// The registry's rows: every family's .def, in one order. To add a family, add its line to kernels.def.
#include "kernels/rows.h"

// The constraint lists.
#define RD_WS(name_)
#define RD_ROW(name_, op_, backend_, isa_, order_, ws_, computes_, ...)                                      \
    static const rd_constraint constraints_##name_[] = {__VA_ARGS__};
#define RD_REF_ROW(name_, op_, order_, ws_, computes_, ...)                                                  \
    static const rd_constraint constraints_##name_[] = {__VA_ARGS__};
#include "kernels/kernels.def"
#undef RD_ROW
#undef RD_REF_ROW

#define RDI_WORD_CPU    "cpu"
#define RDI_WORD_AMD    "amd"
#define RDI_WORD_NVIDIA "nvidia"

// The table.
#define RDI_ROW_INIT(name_, op_, backend_, isa_, order_, ws_, computes_, is_reference_)                      \
    {{#name_, op_, RDI_WORD_##backend_, RDI_ISA_TEXT(isa_), computes_, order_, is_reference_,                \
      (int32_t)RDI_COUNT(constraints_##name_), constraints_##name_},                                         \
     RDI_BACKEND_##backend_,                                                                                 \
     isa_,                                                                                                   \
     rdk_##name_,                                                                                            \
     ws_},
#define RD_ROW(name_, op_, backend_, isa_, order_, ws_, computes_, ...)                                      \
    RDI_ROW_INIT(name_, op_, backend_, isa_, order_, ws_, computes_, 0)
#define RD_REF_ROW(name_, op_, order_, ws_, computes_, ...)                                                  \
    RDI_ROW_INIT(name_, op_, CPU, RDI_ISA_NONE, order_, ws_, computes_, 1)
static const rdi_row rows[] = {
#include "kernels/kernels.def"
};
const rdi_row *const rdi_rows = rows;
const int32_t rdi_row_count = (int32_t)RDI_COUNT(rows);
