// SPDX-License-Identifier: Apache-2.0
// Weights between layouts, in portable C, a dword at a time: that is what stays adjacent in a panel.
#include "kernels/gemm_fp8block/pack.h"

// Start of 16 adjacent columns of row n; the bytes from there to the end of the 16 columns are adjacent in every layout.
static const uint8_t *row_at(const rdi_gemm_args *args, int64_t n, int64_t k) {
    return (const uint8_t *)args->w + rdi_weight_offset(args, n, k) * (int64_t)rd_dtype_bytes(args->w_dtype);
}

// One row's columns into its dwords of the panel's groups. Layouts keep 16 columns adjacent at least.
static void move_row(const rdi_gemm_args *args, int64_t n, int64_t k_begin, int64_t k_count, uint8_t *dst) {
    int64_t elem_bytes = (int64_t)rd_dtype_bytes(args->w_dtype);
    uint8_t *out = dst + n % RDI_PANEL_ROWS * 4;
    for (int64_t k = 0; k < k_count; k += 16) {
        const uint8_t *in = row_at(args, n, k_begin + k);
        int64_t bytes = rdi_min(16, k_count - k) * elem_bytes, at = 0;
        for (; at + 4 <= bytes; at += 4, out += RDI_PANEL_GROUP_BYTES) memcpy(out, in + at, 4);
        if (at == bytes) continue;
        uint8_t last[4] = {0};
        memcpy(last, in + at, (size_t)(bytes - at));
        memcpy(out, last, 4);
    }
}

void rdi_weight_block(const rdi_gemm_args *args, int64_t panel, int64_t k_begin, int64_t k_count, void *dst) {
    int64_t elem_bytes = (int64_t)rd_dtype_bytes(args->w_dtype);
    size_t bytes =
        (size_t)(rdi_round_up(k_count, rdi_panel_group_k(args->w_dtype)) * RDI_PANEL_ROWS * elem_bytes);
    int64_t first = panel * RDI_PANEL_ROWS, last = rdi_min(first + RDI_PANEL_ROWS, args->n);
    if (args->layout == RDI_LAYOUT_PANEL16) {
        memcpy(dst, (const uint8_t *)args->w + rdi_weight_offset(args, first, k_begin) * elem_bytes, bytes);
        return;
    }
    if (last - first < RDI_PANEL_ROWS) memset(dst, 0, bytes);
    for (int64_t n = first; n < last; n++) move_row(args, n, k_begin, k_count, dst);
}

void rdi_weight_pack_panel(const rdi_gemm_args *args, int64_t panel, void *dst) {
    if (args->w_dtype == RD_DTYPE_BF16) {
        rdi_weight_block(args, panel, 0, args->k, dst);
        return;
    }
    uint8_t *codes = (uint8_t *)dst + RDI_PANEL_HEADER_BYTES;
    rdi_weight_block(args, panel, 0, args->k, codes);
    memset(dst, 0, RDI_PANEL_HEADER_BYTES);
    *(uint8_t *)dst =
        rdi_codes_have_nan(codes, rdi_panel_elems(args->w_dtype, args->k) - RDI_PANEL_HEADER_BYTES);
}

void rdi_weight_pack_shuffle16(const rdi_gemm_args *args, int64_t panel, void *dst) {
    uint8_t *out = dst;
    for (int64_t k = 0; k < args->k; k += 16)
        for (int64_t r = 0; r < RDI_PANEL_ROWS; r++, out += 16)
            memcpy(out, row_at(args, panel * RDI_PANEL_ROWS + r, k), 16);
}

void rdi_weight_pack_tile64(const rdi_gemm_args *args, int64_t panel, void *dst) {
    uint8_t *out = dst;
    for (int64_t k = 0; k < args->k; k += RDI_GEMM_BLOCK)
        for (int64_t r = 0; r < RDI_TILE_ROWS; r++, out += RDI_GEMM_BLOCK) {
            const int64_t n = panel * RDI_TILE_ROWS + r;
            const int64_t count = n < args->n ? rdi_min(RDI_GEMM_BLOCK, args->k - k) : 0;
            if (count) memcpy(out, row_at(args, n, k), (size_t)count);
            memset(out + count, 0, (size_t)(RDI_GEMM_BLOCK - count));
        }
}
