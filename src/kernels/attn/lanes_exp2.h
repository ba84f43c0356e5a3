// SPDX-License-Identifier: Apache-2.0
// The power of two of the softmax, one sequence of operations for every instruction set. Attention keeps its logits in
// log2 units, which saves base/lanes_math.h's reduction by ln 2: eleven operations for sixteen keys.
#ifndef RDI_ATTN_LANES_EXP2_H
#define RDI_ATTN_LANES_EXP2_H

#include "base/lanes.h"

// 2^x for x <= 0 (-inf gives 0, NaN stays); below 2^-126: 0. n = round(x), 2^(x-n) by a
// polynomial of degree 5 whose coefficients minimise the largest relative error on |x-n| <= 1/2 (1.1e-7 once rounded to
// f32; constant term 1, so that 2^0 is 1 exactly), times 2^n. Within 3 ulp.
static inline v16 lanes_exp2(v16 x) {
    v16 magic = v16_set(0x1.8p23f + 127), t = v16_add(x, magic), f = v16_sub(x, v16_sub(t, magic));
    v16 p = v16_set(0x1.5bba14p-10f);
    p = v16_fma(p, f, v16_set(0x1.3cea88p-7f));
    p = v16_fma(p, f, v16_set(0x1.c6b752p-5f));
    p = v16_fma(p, f, v16_set(0x1.ebf9bcp-3f));
    p = v16_fma(p, f, v16_set(0x1.62e42ap-1f));
    p = v16_fma(p, f, v16_set(1.0f));
    v16 power = v16_bits(i16_shl(i16_bits(t), 23)); // low bits of t: round(x) + 127, the exponent field
    return v16_select(v16_ge(v16_set(-0x1.f80002p6f), x), v16_set(0),
                      v16_mul(p, power)); // the float below -126
}

#endif // RDI_ATTN_LANES_EXP2_H
