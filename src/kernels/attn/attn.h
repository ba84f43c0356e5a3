// SPDX-License-Identifier: Apache-2.0
// The attn family: args and the prototypes of its rows, read from attn.def so that a row is named once.
#ifndef RDI_ATTN_H
#define RDI_ATTN_H

#include "kernels/attn/args.h"
#include "registry/registry.h"

#define RD_ROW(name_, op_, backend_, isa_, order_, ws_, computes_, ...)                                              \
    void rdk_##name_(const void *args, void *ws, rdi_par *par);
#define RD_REF_ROW(name_, op_, order_, ws_, computes_, ...) void rdk_##name_(const void *args, void *ws, rdi_par *par);
#define RD_WS(name_) size_t name_(const void *args, int32_t threads);
#include "kernels/attn/attn.def"
#undef RD_ROW
#undef RD_REF_ROW
#undef RD_WS

#endif // RDI_ATTN_H
