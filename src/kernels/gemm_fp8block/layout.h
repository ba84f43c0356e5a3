// SPDX-License-Identifier: Apache-2.0
// Where element (n, k) of a weight stands in each of the three layouts. One place, read by packers, references and checks.
//
// row        n * stride + k
// shuffle16  the (16,16) contract: blocks of 16 rows x 16 k, two of them to a 32-wide k step
// panel16    our own: panels of 16 rows, K-major inside, each panel one sequential run. A 64-byte group is 16 dwords, one a
//            row: 4 columns of e4m3 or 2 of bf16. K is rounded up to whole groups and N to whole panels with zero codes.
//            An e4m3 panel starts with a 64-byte header whose first byte is 1 when the panel holds a NaN code: a kernel may
//            then take a widening that only finite codes survive, and still be exact.
#ifndef RDI_GEMM_LAYOUT_H
#define RDI_GEMM_LAYOUT_H

#include "kernels/gemm_fp8block/args.h"

enum { RDI_PANEL_ROWS = 16, RDI_PANEL_GROUP_BYTES = 64, RDI_PANEL_HEADER_BYTES = 64, RDI_GEMM_BLOCK = 128 };

static inline int64_t rdi_panel_group_k(rd_dtype w_dtype) {
    return w_dtype == RD_DTYPE_BF16 ? 2 : 4;
}

// Elements of one panel of k columns, header included.
static inline int64_t rdi_panel_elems(rd_dtype w_dtype, int64_t k) {
    int64_t group = rdi_panel_group_k(w_dtype);
    return (k + group - 1) / group * group * RDI_PANEL_ROWS +
           (w_dtype == RD_DTYPE_BF16 ? 0 : RDI_PANEL_HEADER_BYTES);
}

// Element offset of row r (0..15), column k from the start of its panel.
static inline int64_t rdi_panel_offset(rd_dtype w_dtype, int64_t r, int64_t k) {
    int64_t group = rdi_panel_group_k(w_dtype),
            header = w_dtype == RD_DTYPE_BF16 ? 0 : RDI_PANEL_HEADER_BYTES;
    return header + k / group * group * RDI_PANEL_ROWS + r * group + k % group;
}

static inline int64_t rdi_weight_offset(const rdi_gemm_args *args, int64_t n, int64_t k) {
    switch (args->layout) {
    case RDI_LAYOUT_SHUFFLE16:
        return n / 16 * 16 * args->k + k / 32 * 512 + k % 32 / 16 * 256 + n % 16 * 16 + k % 16;
    case RDI_LAYOUT_PANEL16:
        return n / 16 * rdi_panel_elems(args->w_dtype, args->k) + rdi_panel_offset(args->w_dtype, n % 16, k);
    default:
        return n * args->w_stride + k;
    }
}

#endif // RDI_GEMM_LAYOUT_H
