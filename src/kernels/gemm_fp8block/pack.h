// SPDX-License-Identifier: Apache-2.0
// Moves weights between layouts. Portable C; the rows for wider vectors bring their own movers for whole blocks.
#ifndef RDI_GEMM_PACK_H
#define RDI_GEMM_PACK_H

#include "base/base.h"
#include "kernels/gemm_fp8block/layout.h"

#include <string.h>

// Groups of columns [k_begin, k_begin + k_count) of panel `panel`, in panel16 order without header, from any layout; rows past
// N and columns past k_count become zero codes. k_begin is a multiple of 16. dst: 16 * k_count rounded up to groups.
void rdi_weight_block(const rdi_gemm_args *args, int64_t panel, int64_t k_begin, int64_t k_count, void *dst);

// One whole panel with its header, of e4m3 or bf16 weights in layout row.
void rdi_weight_pack_panel(const rdi_gemm_args *args, int64_t panel, void *dst);
// 64 rows of tiles from layout row.
void rdi_weight_pack_tile64(const rdi_gemm_args *args, int64_t panel, void *dst);
// 16 rows of the (16,16) layout from layout row.
void rdi_weight_pack_shuffle16(const rdi_gemm_args *args, int64_t panel, void *dst);

// 1 when any code is 0x7f or 0xff, both NaN; count is a multiple of 64.
static inline bool rdi_codes_have_nan(const uint8_t *codes, int64_t count) {
    uint64_t found = 0;
    for (int64_t i = 0; i < count; i += 8) {
        uint64_t eight;
        memcpy(&eight, codes + i, 8);
        found |= (eight & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;
    }
    return (found & 0x8080808080808080u) != 0;
}

#endif // RDI_GEMM_PACK_H
