// SPDX-License-Identifier: Apache-2.0
// Where element (n, k) of a weight stands in each of the layouts. One place, read by packers, references and checks.
//
// row        n * stride + k
// shuffle16  the (16,16) contract: blocks of 16 rows x 16 k, two of them to a 32-wide k step
// panel16    our own: panels of 16 rows, K-major inside, each panel one sequential run. A 64-byte group is 16 dwords, one a
//            row: 4 columns of e4m3 or 2 of bf16. K is rounded up to whole groups and N to whole panels with zero codes.
//            An e4m3 panel starts with a 64-byte header whose first byte is 1 when the panel holds a NaN code: a kernel may
//            then take a widening that only finite codes survive, and still be exact.
// tile64     panels of 64 rows, each a run of tiles of 64 rows x 128 k, a tile's rows one after the other: 8 KB that a copy
//            engine reads as they lie. N is rounded up to whole panels and K to whole tiles with zero codes.
#ifndef RDI_GEMM_LAYOUT_H
#define RDI_GEMM_LAYOUT_H

#include "base/base.h"
#include "kernels/gemm_fp8block/args.h"

#include <string.h>

enum {
    RDI_PANEL_ROWS = 16,
    RDI_PANEL_GROUP_BYTES = 64,
    RDI_PANEL_HEADER_BYTES = 64,
    RDI_TILE_ROWS = 64,
    RDI_GEMM_BLOCK = 128
};

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

// e4m3 alone.
static inline int64_t rdi_tile_panel_elems(int64_t k) {
    return rdi_round_up(k, RDI_GEMM_BLOCK) * RDI_TILE_ROWS;
}

// The word of the query key `layout`.
static inline const char *rdi_layout_word(rdi_weight_layout layout) {
    static const char *const words[RDI_LAYOUTS] = {"row", "shuffle16", "panel16", "tile64"};
    return words[layout];
}
// RDI_LAYOUTS: no layout has this name.
static inline rdi_weight_layout rdi_layout_named(const char *word) {
    int layout = 0;
    while (layout < RDI_LAYOUTS && strcmp(word, rdi_layout_word((rdi_weight_layout)layout)) != 0) layout++;
    return (rdi_weight_layout)layout;
}

// A packed weight is a tensor of [ceil(n / panel rows), panel elems].
static inline int64_t rdi_layout_panel_rows(rdi_weight_layout layout) {
    return layout == RDI_LAYOUT_ROW ? 1 : layout == RDI_LAYOUT_TILE64 ? RDI_TILE_ROWS : RDI_PANEL_ROWS;
}
static inline int64_t rdi_layout_panel_elems(rdi_weight_layout layout, rd_dtype w_dtype, int64_t k) {
    switch (layout) {
    case RDI_LAYOUT_SHUFFLE16:
        return RDI_PANEL_ROWS * k;
    case RDI_LAYOUT_PANEL16:
        return rdi_panel_elems(w_dtype, k);
    case RDI_LAYOUT_TILE64:
        return rdi_tile_panel_elems(k);
    default:
        return k;
    }
}

static inline int64_t rdi_weight_offset(const rdi_gemm_args *args, int64_t n, int64_t k) {
    switch (args->layout) {
    case RDI_LAYOUT_SHUFFLE16:
        return n / 16 * 16 * args->k + k / 32 * 512 + k % 32 / 16 * 256 + n % 16 * 16 + k % 16;
    case RDI_LAYOUT_PANEL16:
        return n / 16 * rdi_panel_elems(args->w_dtype, args->k) + rdi_panel_offset(args->w_dtype, n % 16, k);
    case RDI_LAYOUT_TILE64:
        return n / RDI_TILE_ROWS * rdi_tile_panel_elems(args->k) +
               k / RDI_GEMM_BLOCK * RDI_GEMM_BLOCK * RDI_TILE_ROWS + n % RDI_TILE_ROWS * RDI_GEMM_BLOCK +
               k % RDI_GEMM_BLOCK;
    default:
        return n * args->w_stride + k;
    }
}

#endif // RDI_GEMM_LAYOUT_H
