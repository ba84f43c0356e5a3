// SPDX-License-Identifier: Apache-2.0
// Backends and the instruction-set words that devices have and kernel rows need. In base because both speak of them.
#ifndef RDI_ISA_H
#define RDI_ISA_H

#include <stdint.h>

typedef enum rdi_backend { RDI_BACKEND_CPU = 0, RDI_BACKEND_AMD, RDI_BACKEND_NVIDIA } rdi_backend;

// ISA words a CPU row may need; each includes those before it in practice, but every row names all it uses.
enum {
    RDI_ISA_NONE = 0,
    RDI_ISA_AVX2 = 1u << 0,   // avx2 + fma + f16c
    RDI_ISA_AVX512 = 1u << 1, // avx512 f + bw + vl + dq
    RDI_ISA_AVX512VBMI = 1u << 2,
    RDI_ISA_AVX512BF16 = 1u << 3,
    RDI_ISA_AVX512VNNI = 1u << 4,
    RDI_ISA_CPU_MASK = 31,
    RDI_ISA_GFX1201 = 1u << 8,
    RDI_ISA_SM90A = 1u << 9
};

// Words of each set of CPU bits, each with a leading space ("" and " avx2 avx512"); RDI_ISA_TEXT is a constant
// expression, so that the kernel table stays constant data.
extern const char rdi_isa_texts[32][56];
#define RDI_ISA_TEXT(bits_)                                                                                  \
    (((bits_)&RDI_ISA_GFX1201) ? "gfx1201"                                                                   \
     : ((bits_)&RDI_ISA_SM90A) ? "sm_90a"                                                                    \
                               : &rdi_isa_texts[(bits_)&RDI_ISA_CPU_MASK][1])

#endif // RDI_ISA_H
