// SPDX-License-Identifier: Apache-2.0
// From a rule's answer to the order of rows. The trait words are those of kernel names (gemm_fp8block_m8_splitk_...).
#include "policy/order.h"

#include "policy/gemm_route.h"

#include <string.h>

static bool gemm_route_rules(const char *arch, const char *op) {
    return !strncmp(arch, "gfx12", 5) && !strcmp(op, "gemm_fp8block");
}

rdi_order rdi_order_decide(const rdi_order_question *question) {
    static const rdi_order by_kind[] = {
        [RDI_GEMM_GENERIC] = {"", "", false},
        [RDI_GEMM_SPLIT_K] = {"splitk", "gemm_route rule 2", false},
        [RDI_GEMM_PRESHUFFLE] = {"preshuffle", "gemm_route rule 1", true},
        [RDI_GEMM_REFUSED] = {"preshuffle", "gemm_route rule 1", true},
    };
    if (!gemm_route_rules(question->arch, question->op) || question->interval < 1)
        return by_kind[RDI_GEMM_GENERIC];
    rdi_gemm_question gemm = {.gfx12 = true,
                              .preshuffled = question->layout && !strcmp(question->layout, "shuffle16"),
                              .m = question->interval};
    return by_kind[rdi_gemm_route_decide(&gemm).kind];
}

int32_t rdi_order_cuts(const char *arch, const char *op, const int64_t **cuts) {
    static const int64_t gemm_cuts[] = {RDI_SPLIT_K_MAX_M + 1, RDI_PRESHUFFLE_SMALL_M + 1};
    if (!gemm_route_rules(arch, op)) return 0;
    *cuts = gemm_cuts;
    return (int32_t)RDI_COUNT(gemm_cuts);
}
