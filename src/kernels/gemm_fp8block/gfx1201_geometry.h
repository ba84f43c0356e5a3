// SPDX-License-Identifier: Apache-2.0
// Tiles and arguments of the gemm_* kernels on gfx1201: shared by the geometry functions of gemm_fp8block and gemm_bf16.
#ifndef RDI_GEMM_GFX1201_GEOMETRY_H
#define RDI_GEMM_GFX1201_GEOMETRY_H

#include "kernels/gemm_fp8block/args.h"
#include "kernels/gemm_fp8block/gfx1201_args.h"
#include "registry/registry.h"

rdk_gemm_gfx1201_args rdi_gemm_gfx1201_args(const rdi_gemm_args *a);

// Class `step`. slices, the number of waves that share K, decides the bits: a function of N and the compute units alone.
// A group has 16 * m_tiles rows of A and 16 * n_tiles rows of W; these decide no bits. widen: weights take registers twice.
typedef struct rdi_step_tiles {
    int32_t m_tiles, n_tiles, slices;
} rdi_step_tiles;
rdi_step_tiles rdi_gemm_step_tiles(int64_t m, int64_t n, int32_t compute_units, bool widen);

// Symbols of one layout's kernels, [slices == 8][n_tiles / 2][m_tiles / 2] for 1, 2 and 4 tiles.
typedef struct rdi_step_kernels {
    const char *symbols[2][3][3];
    bool widen;
} rdi_step_kernels;
// clang-format off
#define RDI_STEP_KERNELS(prefix_)                                                                            \
    {{{{NULL, NULL, NULL},                                                                                   \
       {prefix_ "_1x2x4", prefix_ "_2x2x4", prefix_ "_4x2x4"},                                               \
       {prefix_ "_1x4x4", prefix_ "_2x4x4", NULL}},                                                          \
      {{prefix_ "_1x1x8", prefix_ "_2x1x8", prefix_ "_4x1x8"},                                               \
       {prefix_ "_1x2x8", prefix_ "_2x2x8", prefix_ "_4x2x8"},                                               \
       {NULL, NULL, NULL}}}, false}
#define RDI_STEP_KERNELS_WIDEN(prefix_)                                                                      \
    {{{{NULL, NULL, NULL},                                                                                   \
       {prefix_ "_1x2x4", prefix_ "_2x2x4", NULL},                                                           \
       {prefix_ "_1x4x4", NULL, NULL}},                                                                      \
      {{prefix_ "_1x1x8", prefix_ "_2x1x8", NULL},                                                           \
       {prefix_ "_1x2x8", prefix_ "_2x2x8", NULL},                                                           \
       {NULL, NULL, NULL}}}, true}
// clang-format on
int32_t rdi_gemm_gfx1201_step(const rdi_gemm_args *a, const rd_device_info *device,
                              const rdi_step_kernels *kernels, rdi_launch *out);

// Class `chunk`: symbols of the 128x128 and of the 64x128 kernel.
int32_t rdi_gemm_gfx1201_chunk(const rdi_gemm_args *a, const rd_device_info *device,
                               const char *const kernels[2], rdi_launch *out);

#endif // RDI_GEMM_GFX1201_GEOMETRY_H
