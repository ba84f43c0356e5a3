// SPDX-License-Identifier: Apache-2.0
// What the geometry functions of the sm_90a GEMMs share: rows for the tensor copy engine.
#ifndef RDI_GEMM_SM90A_GEOMETRY_H
#define RDI_GEMM_SM90A_GEOMETRY_H

#include "registry/registry.h"

// The copy engine wants 16-byte rows; a single row may have any stride.
bool rdi_sm90a_engine_can(const void *data, int64_t rows, int64_t stride_bytes);

// Boxes of 128 bytes of K by `box_rows` rows under the 128-byte swizzle.
rdi_tensor_map rdi_sm90a_byte_map(uint32_t arg_offset, const void *base, int64_t rows, int64_t k, int64_t stride,
                                  int32_t box_rows);

#endif // RDI_GEMM_SM90A_GEOMETRY_H
