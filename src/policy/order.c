// SPDX-License-Identifier: Apache-2.0
// From a rule's answer to the order of rows. The trait words are those of kernel names (gemm_fp8block_m8_splitk_...).
#include "policy/order.h"

#include "policy/gemm_route.h"
#include "policy/sm90a_route.h"

#include <string.h>

static bool gemm_route_rules(const char *arch, const char *op) {
    return !strncmp(arch, "gfx12", 5) && !strcmp(op, "gemm_fp8block");
}

static bool sm90a_route_rules(const rdi_order_question *question) {
    return !strcmp(question->arch, "sm_90a") && !strncmp(question->op, "gemm_", 5) && question->any_order &&
           question->n > 0 && question->k > 0;
}

static rdi_order order_of_sm90a(const rdi_order_question *question) {
    const rdi_sm90a_question gemm = {.op = question->op,
                                     .m = question->interval,
                                     .n = question->n,
                                     .k = question->k,
                                     .multiprocessors = question->units,
                                     .rates = question->rates};
    const rdi_sm90a_route route = rdi_sm90a_route_decide(&gemm);
    if (route.chunk) return (rdi_order){"chunk", "sm90a_route rule 3", false};
    return route.step_us > 0 ? (rdi_order){"step", "sm90a_route rule 4", false} : (rdi_order){"", "", false};
}

rdi_order rdi_order_decide(const rdi_order_question *question) {
    static const rdi_order by_kind[] = {
        [RDI_GEMM_GENERIC] = {"", "", false},
        [RDI_GEMM_SPLIT_K] = {"splitk", "gemm_route rule 2", false},
        [RDI_GEMM_PRESHUFFLE] = {"preshuffle", "gemm_route rule 1", true},
        [RDI_GEMM_REFUSED] = {"preshuffle", "gemm_route rule 1", true},
    };
    if (sm90a_route_rules(question) && question->interval >= 1 && question->interval <= RDI_SM90A_STEP_ROWS)
        return order_of_sm90a(question);
    if (!gemm_route_rules(question->arch, question->op) || question->interval < 1)
        return by_kind[RDI_GEMM_GENERIC];
    rdi_gemm_question gemm = {.gfx12 = true,
                              .preshuffled = question->layout && !strcmp(question->layout, "shuffle16"),
                              .m = question->interval};
    return by_kind[rdi_gemm_route_decide(&gemm).kind];
}

int32_t rdi_order_cuts(const rdi_order_question *question, int64_t cuts[RDI_ORDER_CUTS]) {
    int32_t count = 0;
    if (gemm_route_rules(question->arch, question->op)) {
        cuts[count++] = RDI_SPLIT_K_MAX_M + 1;
        cuts[count++] = RDI_PRESHUFFLE_SMALL_M + 1;
    }
    if (!sm90a_route_rules(question)) return count;
    rdi_order_question at = *question;
    const char *before = "";
    for (at.interval = 1; at.interval <= RDI_SM90A_STEP_ROWS && count < RDI_ORDER_CUTS; at.interval++) {
        const char *trait = rdi_order_decide(&at).trait;
        if (strcmp(trait, before) != 0) cuts[count++] = at.interval;
        before = trait;
    }
    return count;
}
