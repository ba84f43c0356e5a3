// SPDX-License-Identifier: Apache-2.0
// Prototypes of every kernel row and of every GPU row's geometry function, from the same .def files as the table: a kernel's file includes this, so that a symbol
// that differs from its row in name or type does not compile.
#ifndef RDI_ROWS_H
#define RDI_ROWS_H

#include "registry/registry.h"

#define RD_ROW(name_, op_, backend_, isa_, order_, ws_, computes_, ...)                                      \
    void rdk_##name_(const void *args, void *ws, rdi_par *par);
#define RD_REF_ROW(name_, op_, order_, ws_, computes_, ...)                                                  \
    void rdk_##name_(const void *args, void *ws, rdi_par *par);
#define RD_GPU_ROW(name_, op_, backend_, isa_, order_, ws_, geometry_, image_, computes_, ...)               \
    int32_t geometry_(const void *args, void *ws, const rd_device_info *device, rdi_launch *out);
#define RD_WS(name_) size_t name_(const void *args, int32_t threads);
#include "kernels/kernels.def"
#undef RD_ROW
#undef RD_REF_ROW
#undef RD_GPU_ROW
#undef RD_WS

#endif // RDI_ROWS_H
