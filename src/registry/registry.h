// SPDX-License-Identifier: Apache-2.0
// The registry's own types: what a kernel row is, what an op declares, how a question is walked. Kernel families include
// this header and nothing else of the floors above base.
#ifndef RDI_REGISTRY_H
#define RDI_REGISTRY_H

#include "base/base.h"
#include "base/isa.h"
#include "base/par.h"

#include <string.h>

// ---- a row ----------------------------------------------------------------------------------------------------------
// CPU kernels share one shape: args points to the family's args struct (args.h), already checked by src/ops.
typedef void (*rdi_kernel_fn)(const void *args, void *ws, rdi_par *par);
typedef size_t (*rdi_ws_fn)(const void *args, int32_t threads); // workspace bytes; NULL = none

// GPU kernels are launched by name. A row's geometry function turns the op's checked arguments into launches and calls no
// driver, so that it is tested without a card.
enum { RDI_MAX_LAUNCHES = 4, RDI_LAUNCH_ARG_BYTES = 832 };

// NVIDIA: a tensor map, encoded by the backend into args at arg_offset (128 bytes, 64-byte aligned).
typedef struct rdi_tensor_map {
    uint32_t arg_offset;
    const void *base;
    uint32_t elem_bytes, rank;
    uint64_t dim[4], stride_bytes[4];
    uint32_t box[4], swizzle_bytes;
} rdi_tensor_map;

typedef struct rdi_launch {
    const char *kernel;         // symbol in the row's code object
    uint32_t grid[3], block[3]; // grid in work-groups
    uint32_t shared_bytes;      // dynamic LDS or shared memory
    uint32_t args_bytes;        // size of the kernel's one by-value struct
    bool dependent;             // NVIDIA: programmatic dependent launch
    uint32_t map_count;
    rdi_tensor_map map[2];
    _Alignas(64) unsigned char args[RDI_LAUNCH_ARG_BYTES];
} rdi_launch;

// A card's kernels count rows and elements in 32 bits, and round them up to whole tiles: the longest axis of an operand.
enum { RDI_CARD_EXTENT_MAX = INT32_MAX - 4095 };

// args: the family's args struct, pointers of the device, no axis longer than RDI_CARD_EXTENT_MAX (src/ops has looked). device: has
// at least one compute unit (a card without is not opened). Returns how many launches of `out` are filled, 1 to
// RDI_MAX_LAUNCHES, in stream order; 0, with the error text set, when an operand's strides or place do not fit.
typedef int32_t (*rdi_geometry_fn)(const void *args, void *ws, const rd_device_info *device, rdi_launch *out);

// One launch: `args` is copied.
static inline void rdi_launch_fill(rdi_launch *launch, const char *kernel, const uint32_t grid[3],
                                   uint32_t block, const void *args, size_t args_bytes) {
    launch->kernel = kernel;
    for (int i = 0; i < 3; i++) launch->grid[i] = grid[i];
    launch->block[0] = block;
    launch->block[1] = launch->block[2] = 1;
    launch->shared_bytes = 0;
    launch->args_bytes = (uint32_t)args_bytes;
    launch->dependent = false;
    launch->map_count = 0;
    memcpy(launch->args, args, args_bytes);
}

// For geometries. The run entries let an operand that no key names be of any floating type; a card's kernels load these
// three. False, with the error text set, when `dtype` is another.
static inline bool rdi_launch_takes_type(const char *op, const char *field, rd_dtype dtype) {
    if (dtype == RD_DTYPE_F32 || dtype == RD_DTYPE_BF16 || dtype == RD_DTYPE_F16) return true;
    rdi_fail(RD_E_INVALID, "%s: %s: dtype=%s, a card needs one of: bf16 fp16 fp32", op, field,
             rd_dtype_name(dtype));
    return false;
}

// For geometries: what the grid of a launch, or a 32-bit count in its kernels, has no room for. False, with the error text set.
static inline bool rdi_launch_takes_count(const char *op, const char *field, int64_t seen, int64_t most) {
    if (seen <= most) return true;
    rdi_fail(RD_E_INVALID, "%s: %s=%lld, a launch on this card takes up to %lld", op, field, (long long)seen,
             (long long)most);
    return false;
}

typedef struct rdi_row {
    rd_kernel_info info;
    rdi_backend backend;
    uint32_t isa;
    rdi_kernel_fn run;        // CPU rows; NULL for GPU rows
    rdi_ws_fn ws_bytes;       // its second argument is the device's compute units for GPU rows
    rdi_geometry_fn geometry; // GPU rows; NULL for CPU rows
    const char *image;        // GPU rows: word of the code object that holds their kernels
} rdi_row;

// A row to warn about when it is what is left: the reference, and portable C on a CPU.
static inline bool rdi_row_is_slow(const rdi_row *row) {
    return row->info.is_reference || (row->backend == RDI_BACKEND_CPU && row->isa == RDI_ISA_NONE);
}

// All rows, in the order of the families' .def files (src/kernels/table.c). Within an op and a backend the order is the
// preference when no policy rule speaks; the last CPU row of each op is the plain-C reference.
extern const rdi_row *const rdi_rows;
extern const int32_t rdi_row_count;
// Why the rows of a backend are not in this build ("built without clang >= 22"); NULL when they are.
const char *rdi_rows_absent(rdi_backend backend);

// A row of a .def file:
//   RD_ROW(name, "op", CPU, isa bits, "order class", ws function or NULL, "what it computes", constraints...)
// name becomes the symbol rdk_<name>, the test id, the bench id and the report line. A reference row is written
//   RD_REF_ROW(name, "op", "order class", ws, "what it computes", constraints...)
// A row of a GPU backend (AMD or NVIDIA) is written
//   RD_GPU_ROW(name, "op", AMD, RDI_ISA_GFX1201, "order class", ws, geometry function, image, "what it computes",
//              constraints...)
// image: file name of the kernels' source without its suffix (gfx1201_gemm_step); each kernel symbol is rdk_ + a name that
// begins with the row's name. The row is left out of a build without the code object's compiler.
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
