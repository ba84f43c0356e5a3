// SPDX-License-Identifier: Apache-2.0
// The registry's rows: every family's .def, in one order. To add a family, add its line to kernels.def.
#include "kernels/rows.h"

// GPU rows stand in the table when their code objects were built (RADIANCE_GFX1201, RADIANCE_SM90A: set by CMake).
#if RADIANCE_GFX1201
#define RDI_GPU_ROW_AMD(...) __VA_ARGS__
#else
#define RDI_GPU_ROW_AMD(...)
#endif
#if RADIANCE_SM90A
#define RDI_GPU_ROW_NVIDIA(...) __VA_ARGS__
#else
#define RDI_GPU_ROW_NVIDIA(...)
#endif

const char *rdi_rows_absent(rdi_backend backend) {
    if (backend == RDI_BACKEND_AMD && !RADIANCE_GFX1201) return "built without clang >= 22";
    if (backend == RDI_BACKEND_NVIDIA && !RADIANCE_SM90A) return "built without nvcc >= 13";
    return NULL;
}

// The constraint lists.
#define RD_WS(name_)
#define RD_ROW(name_, op_, backend_, isa_, order_, ws_, computes_, ...)                                      \
    static const rd_constraint constraints_##name_[] = {__VA_ARGS__};
#define RD_REF_ROW(name_, op_, order_, ws_, computes_, ...)                                                  \
    static const rd_constraint constraints_##name_[] = {__VA_ARGS__};
#define RD_GPU_ROW(name_, op_, backend_, isa_, order_, ws_, geometry_, image_, computes_, ...)               \
    RDI_GPU_ROW_##backend_(static const rd_constraint constraints_##name_[] = {__VA_ARGS__};)
#include "kernels/kernels.def"
#undef RD_ROW
#undef RD_REF_ROW
#undef RD_GPU_ROW

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
     ws_,                                                                                                    \
     NULL,                                                                                                   \
     NULL},
#define RD_ROW(name_, op_, backend_, isa_, order_, ws_, computes_, ...)                                      \
    RDI_ROW_INIT(name_, op_, backend_, isa_, order_, ws_, computes_, 0)
#define RD_REF_ROW(name_, op_, order_, ws_, computes_, ...)                                                  \
    RDI_ROW_INIT(name_, op_, CPU, RDI_ISA_NONE, order_, ws_, computes_, 1)
#define RD_GPU_ROW(name_, op_, backend_, isa_, order_, ws_, geometry_, image_, computes_, ...)               \
    RDI_GPU_ROW_##backend_({{#name_, op_, RDI_WORD_##backend_, RDI_ISA_TEXT(isa_), computes_, order_, 0,     \
                             (int32_t)RDI_COUNT(constraints_##name_), constraints_##name_},                  \
                            RDI_BACKEND_##backend_,                                                          \
                            isa_,                                                                            \
                            NULL,                                                                            \
                            ws_,                                                                             \
                            geometry_,                                                                       \
                            #image_}, )
static const rdi_row rows[] = {
#include "kernels/kernels.def"
};
const rdi_row *const rdi_rows = rows;
const int32_t rdi_row_count = (int32_t)RDI_COUNT(rows);
