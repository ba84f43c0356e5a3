// SPDX-License-Identifier: Apache-2.0
// Weights between layouts, in portable C: two bytes (e4m3) or four (bf16) at a time, which is what stays adjacent in a panel.
#include "kernels/gemm_fp8block/pack.h"

#include <string.h>

// Start of 16 adjacent columns of row n; the bytes from there to the end of the 16 columns are adjacent in every layout.
static const uint8_t *row_at(const rdi_gemm_args *args, int64_t n, int64_t k) {
    return (const uint8_t *)args->w + rdi_weight_offset(args, n, k) * (int64_t)rd_dtype_bytes(args->w_dtype);
}

// e4m3: columns in groups of four, row r's pairs (k0 k1) and (k2 k3) eight bytes apart.
static void block_e4m3(const rdi_gemm_args *args, int64_t n, int64_t k_begin, int64_t k_count, uint8_t *dst) {
    int64_t r = n % RDI_PANEL_ROWS;
    uint8_t *out = dst + r / 4 * 16 + r % 4 * 2;
    for (int64_t k = 0; k < k_count; k += 16) {
        const uint8_t *in = row_at(args, n, k_begin + k);
        int64_t count = rdi_min(16, k_count - k);
        for (int64_t i = 0; i < count; i += 4, out += RDI_PANEL_GROUP_BYTES) {
            uint8_t four[4] = {0};
            if (count - i >= 4)
                memcpy(four, in + i, 4);
            else
                memcpy(four, in + i, (size_t)(count - i));
            memcpy(out, four, 2);
            memcpy(out + 8, four + 2, 2);
        }
    }
}

static void block_bf16(const rdi_gemm_args *args, int64_t n, int64_t k_begin, int64_t k_count, uint8_t *dst) {
    const uint8_t *in = row_at(args, n, k_begin); // row layout only: the whole run is adjacent
    uint8_t *out = dst + n % RDI_PANEL_ROWS * 4;
    for (int64_t k = 0; k < k_count; k += 2, out += RDI_PANEL_GROUP_BYTES) {
        uint8_t two[4] = {0};
        memcpy(two, in + 2 * k, k + 1 < k_count ? 4 : 2);
        memcpy(out, two, 4);
    }
}

void rdi_weight_block(const rdi_gemm_args *args, int64_t panel, int64_t k_begin, int64_t k_count, void *dst) {
    int64_t elem_bytes = (int64_t)rd_dtype_bytes(args->w_dtype);
    size_t bytes = (size_t)(rdi_round_up(k_count, rdi_panel_group_k(args->w_dtype)) * RDI_PANEL_ROWS * elem_bytes);
    int64_t first = panel * RDI_PANEL_ROWS, last = rdi_min(first + RDI_PANEL_ROWS, args->n);
    if (args->layout == RDI_LAYOUT_PANEL16) {
        memcpy(dst, (const uint8_t *)args->w + rdi_weight_offset(args, first, k_begin) * elem_bytes, bytes);
        return;
    }
    if (last - first < RDI_PANEL_ROWS) memset(dst, 0, bytes);
    for (int64_t n = first; n < last; n++)
        if (args->w_dtype == RD_DTYPE_BF16)
            block_bf16(args, n, k_begin, k_count, dst);
        else
            block_e4m3(args, n, k_begin, k_count, dst);
}

// 1 when any code is 0x7f or 0xff, both NaN.
static bool has_nan(const uint8_t *codes, int64_t count) {
    uint64_t found = 0;
    for (int64_t i = 0; i < count; i += 8) { // panels are whole 64-byte groups
        uint64_t eight;
        memcpy(&eight, codes + i, 8);
        found |= (eight & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;
    }
    return (found & 0x8080808080808080u) != 0;
}

void rdi_weight_pack_panel(const rdi_gemm_args *args, int64_t panel, void *dst) {
    if (args->w_dtype == RD_DTYPE_BF16) {
        rdi_weight_block(args, panel, 0, args->k, dst);
        return;
    }
    uint8_t *codes = (uint8_t *)dst + RDI_PANEL_HEADER_BYTES;
    rdi_weight_block(args, panel, 0, args->k, codes);
    memset(dst, 0, RDI_PANEL_HEADER_BYTES);
    *(uint8_t *)dst = has_nan(codes, rdi_panel_elems(args->w_dtype, args->k) - RDI_PANEL_HEADER_BYTES);
}

void rdi_weight_pack_shuffle16(const rdi_gemm_args *args, int64_t panel, void *dst) {
    uint8_t *out = dst;
    for (int64_t k = 0; k < args->k; k += 16)
        for (int64_t r = 0; r < RDI_PANEL_ROWS; r++, out += 16) memcpy(out, row_at(args, panel * RDI_PANEL_ROWS + r, k), 16);
}
