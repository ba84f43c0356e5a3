// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a GEMM kernels with 16-bit arithmetic: shared by the geometry functions of gemm_bf16 and gemm_fp8block_w8a16.
#ifndef RDI_GEMM_SM90A_SKINNY_H
#define RDI_GEMM_SM90A_SKINNY_H

#include "kernels/common/sm90a_skinny.h"
#include "kernels/gemm_fp8block/args.h"
#include "registry/registry.h"

// How a row lays one call over the device. rows, ranges and the cut of K follow from N, K and the device alone.
typedef struct rdi_skinny_plan {
    int32_t columns, slices; // of one n tile; n tiles
    int32_t parts;           // bf16 parts of an element of A; 1: A as it is
    int32_t rows, boxes;     // weight rows of a tile; 64-element boxes of a k block
    int64_t ranges;
    bool whole; // ranges are whole tiles
} rdi_skinny_plan;

// units: multiprocessors. rows: weight rows of a tile, a function of N and the device. parts: 2 to 4 for the types that the tensor core does not take beside these weights.
rdi_skinny_plan rdi_gemm_skinny_plan(const rdi_gemm_args *a, int32_t units, int32_t rows, int32_t parts,
                                     int32_t boxes, int32_t columns_max);
rdi_skinny_plan rdi_gemm_skinny_dense_plan(const rdi_gemm_args *a, int32_t rows, int32_t parts,
                                           int32_t boxes);
size_t rdi_gemm_skinny_ws(const rdi_gemm_args *a, const rdi_skinny_plan *plan);
// kernel, split: symbols. Returns the number of launches.
int32_t rdi_gemm_skinny_launches(const rdi_gemm_args *a, void *ws, const rdi_skinny_plan *plan,
                                 const char *kernel, const char *split, rdi_launch *out);

#endif // RDI_GEMM_SM90A_SKINNY_H
