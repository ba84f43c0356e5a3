// SPDX-License-Identifier: Apache-2.0
// Block-FP8 GEMM rules of gfx12: which kernel runs, where split-K may cut, which weights may be preshuffled and where their
// bytes go. Pure functions over small structs.
#ifndef RDI_GEMM_ROUTE_H
#define RDI_GEMM_ROUTE_H

#include "base/base.h"

typedef struct rdi_gemm_question {
    bool gfx12, preshuffled;
    int64_t m;
} rdi_gemm_question;

typedef enum rdi_gemm_kind {
    RDI_GEMM_GENERIC = 0,
    RDI_GEMM_SPLIT_K,
    RDI_GEMM_PRESHUFFLE,
    RDI_GEMM_REFUSED
} rdi_gemm_kind;

typedef struct rdi_gemm_route {
    rdi_gemm_kind kind;
    int32_t block_m, block_n, block_k, group_m, warps, stages,
        waves_per_eu; // RDI_GEMM_PRESHUFFLE only, else 0
    const char *rule;
} rdi_gemm_route;

enum { RDI_SPLIT_K_MAX_M = 8, RDI_PRESHUFFLE_SMALL_M = 32 };

rdi_gemm_route rdi_gemm_route_decide(const rdi_gemm_question *question);
const char *rdi_gemm_kind_name(rdi_gemm_kind kind); // "generic" "split_k" "preshuffle" "refused"

// Split-K never cuts a 128-wide scale block: the wanted factor is halved until K % (128 * splits) == 0.
int64_t rdi_splitk_guard(int64_t k, int64_t wanted_splits);

// May this weight be preshuffled at load? The layer stays as it is when not, and `rule` says why.
typedef struct rdi_preshuffle_question {
    bool block_quant, packed_4bit;
    const char *dtype; // as the checkpoint spells it
    int64_t rank, n, k, scale_rows, scale_cols;
} rdi_preshuffle_question;
bool rdi_preshuffle_contract(const rdi_preshuffle_question *question, const char **rule);

// Byte of weight element (row, column) in the (16,16) layout of an [N, k_elems] weight.
int64_t rdi_preshuffle_byte(int64_t k_elems, int64_t row, int64_t column);

#endif // RDI_GEMM_ROUTE_H
