// SPDX-License-Identifier: Apache-2.0
// The registry's own types: what a kernel row is, what an op declares, how a question is walked. Kernel families include
// this header and nothing else of the floors above base.
#ifndef RDI_REGISTRY_H
#define RDI_REGISTRY_H

#include "base/base.h"
#include "base/isa.h"
#include "base/par.h"

// ---- a row ----------------------------------------------------------------------------------------------------------
// CPU kernels share one shape: args points to the family's args struct (args.h), already checked by src/ops.
typedef void (*rdi_kernel_fn)(const void *args, void *ws, rdi_par *par);
typedef size_t (*rdi_ws_fn)(const void *args, int32_t threads); // workspace bytes; NULL = none

typedef struct rdi_row {
    rd_kernel_info info;
    rdi_backend backend;
    uint32_t isa;
    rdi_kernel_fn run; // NULL for rows of GPU backends: these are launched by name
    rdi_ws_fn ws_bytes;
} rdi_row;

// A row to warn about when it is what is left: the reference, and portable C on a CPU.
static inline bool rdi_row_is_slow(const rdi_row *row) {
    return row->info.is_reference || (row->backend == RDI_BACKEND_CPU && row->isa == RDI_ISA_NONE);
}

// All rows, in the order of the families' .def files (src/kernels/table.c). Within an op and a backend the order is the
// preference when no policy rule speaks; the last CPU row of each op is the plain-C reference.
extern const rdi_row *const rdi_rows;
extern const int32_t rdi_row_count;

// A row of a .def file:
//   RD_ROW(name, "op", CPU, isa bits, "order class", ws function or NULL, "what it computes", constraints...)
// name becomes the symbol rdk_<name>, the test id, the bench id and the report line. A reference row is written
//   RD_REF_ROW(name, "op", "order class", ws, "what it computes", constraints...)
// Constraints (at least one):
#define RD_C_EQ(key_, value_, text_)                                                                         \
    { (key_), RD_EQ, (value_), NULL, (text_) }
#define RD_C_LE(key_, value_, text_)                                                                         \
    { (key_), RD_LE, (value_), NULL, (text_) }
#define RD_C_GE(key_, value_, text_)                                                                         \
    { (key_), RD_GE, (value_), NULL, (text_) }
#define RD_C_MULTIPLE(key_, value_, text_)                                                                   \
    { (key_), RD_MULTIPLE_OF, (value_), NULL, (text_) }
#define RD_C_ONE_OF(key_, words_, text_)                                                                     \
    { (key_), RD_ONE_OF, 0, (words_), (text_) }

#endif // RDI_REGISTRY_H
