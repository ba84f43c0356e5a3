// SPDX-License-Identifier: Apache-2.0
// Prototypes of every kernel and workspace function that the .def files name; a kernel's source file includes it, so that
// a row and its function cannot drift apart.
#ifndef RDI_PROTOTYPES_H
#define RDI_PROTOTYPES_H

#include "registry/registry.h"

#define RD_ROW(name_, op_, backend_, isa_, order_, ws_, computes_, ...)                                               \
    void rdk_##name_(const void *args, void *ws, rdi_par *par);
#define RD_REF_ROW(name_, op_, order_, ws_, computes_, ...) void rdk_##name_(const void *args, void *ws, rdi_par *par);
#define RD_WS(name_) size_t name_(const void *args, int32_t threads);
#include "kernels/kernels.def"
#undef RD_ROW
#undef RD_REF_ROW
#undef RD_WS

#endif // RDI_PROTOTYPES_H
