// SPDX-License-Identifier: Apache-2.0
// Block-FP8 GEMM rules of the original gfx1201 dispatcher (public descriptions of its routing module).
#include "policy/gemm_route.h"

#include "base/dtype.h"

#include <string.h>

// Why these numbers:
// - M is read when the op RUNS. A branch on M inside traced Python is frozen to the side that the trace took.
// - M <= 8: the split-K kernel was worth 1.5 to 1.9 times the generic one there and lost at M >= 16. 9..15 was never
//   measured, so it stays with the generic kernel.
// - Preshuffled: the gain is the layout itself; split-K and a larger tile N helped alone and not end to end, so the
//   configuration has neither. Two tile heights: 16 rows up to M = 32, 64 above.
// - A preshuffled weight without its kernel is an error: the generic kernel would read the bytes in the wrong order.
rdi_gemm_route rdi_gemm_route_decide(const rdi_gemm_question *question) {
    if (question->preshuffled && !question->gfx12)
        return (rdi_gemm_route){.kind = RDI_GEMM_REFUSED,
                                .rule =
                                    "gemm_route rule 1: a preshuffled weight has a kernel on gfx12 alone"};
    if (question->preshuffled)
        return (rdi_gemm_route){.kind = RDI_GEMM_PRESHUFFLE,
                                .block_m = question->m <= RDI_PRESHUFFLE_SMALL_M ? 16 : 64,
                                .block_n = 128,
                                .block_k = 128,
                                .group_m = 8,
                                .warps = 4,
                                .stages = 1,
                                .waves_per_eu = 2,
                                .rule = question->m <= RDI_PRESHUFFLE_SMALL_M
                                            ? "gemm_route rule 1: preshuffled, M <= 32: tile M 16"
                                            : "gemm_route rule 1: preshuffled, M > 32: tile M 64"};
    if (question->gfx12 && question->m <= RDI_SPLIT_K_MAX_M)
        return (rdi_gemm_route){.kind = RDI_GEMM_SPLIT_K, .rule = "gemm_route rule 2: M <= 8 on gfx12"};
    return (rdi_gemm_route){.kind = RDI_GEMM_GENERIC,
                            .rule = question->gfx12 ? "gemm_route rule 3: M > 8"
                                                    : "gemm_route rule 3: not gfx12"};
}

const char *rdi_gemm_kind_name(rdi_gemm_kind kind) {
    static const char *const names[] = {"generic", "split_k", "preshuffle", "refused"};
    return names[kind];
}

// K = 8704 with 8 splits gave 1088 columns a split, 8.5 blocks: a page fault in the field. Halving gives 4.
int64_t rdi_splitk_guard(int64_t k, int64_t wanted_splits) {
    int64_t splits = wanted_splits;
    while (splits > 1 && k % (128 * splits)) splits /= 2;
    return splits < 1 ? 1 : splits;
}

bool rdi_preshuffle_contract(const rdi_preshuffle_question *question, const char **rule) {
    rd_dtype dtype;
    bool e4m3 = rdi_dtype_parse("dtype", question->dtype, &dtype) == RD_OK && dtype == RD_DTYPE_E4M3;
    const char *why = NULL;
    if (!question->block_quant)
        why = "not block-quantised";
    else if (question->packed_4bit)
        why = "already packed to 4 bits";
    else if (!e4m3)
        why = "weight type is not e4m3fn";
    else if (question->rank != 2)
        why = "rank is not 2";
    else if (question->n % 128)
        why = "N is not a multiple of 128";
    else if (question->k % 128)
        why = "K is not a multiple of 128";
    else if (question->scale_rows != question->n / 128 || question->scale_cols != question->k / 128)
        why = "scale shape is not [N/128, K/128]";
    *rule = why ? why : "contract holds: shuffle once at load";
    return !why;
}

// 16 rows by 32 columns are one 512-byte fragment, halves of 16 columns apart, so that a lane's matrix operand is one
// 16-byte load.
int64_t rdi_preshuffle_byte(int64_t k_elems, int64_t row, int64_t column) {
    return row / 16 * (16 * k_elems) + column / 32 * 512 + column % 32 / 16 * 256 + row % 16 * 16 +
           column % 16;
}
