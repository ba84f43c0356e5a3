// SPDX-License-Identifier: Apache-2.0
// The instruction-set words, spelled once: entry i of the table names the bits of i.
#include "base/isa.h"

#define BIT_0(rest_) "" rest_, " avx2" rest_
#define BIT_1(rest_) BIT_0(rest_), BIT_0(" avx512" rest_)
#define BIT_2(rest_) BIT_1(rest_), BIT_1(" avx512vbmi" rest_)
#define BIT_3(rest_) BIT_2(rest_), BIT_2(" avx512bf16" rest_)
#define BIT_4(rest_) BIT_3(rest_), BIT_3(" avx512vnni" rest_)

const char rdi_isa_texts[32][56] = {BIT_4("")};
