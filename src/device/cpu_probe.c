// SPDX-License-Identifier: Apache-2.0
// What this CPU can do, from cpuid and xgetbv (Intel SDM volume 2, CPUID; volume 1, 13.3): a feature counts only when the
// operating system saves its registers. Elsewhere than x86-64 no fast row applies and the portable rows answer.
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

static bool bit(uint32_t word, int index) {
    return (word >> index) & 1;
}

static uint64_t enabled_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint32_t rdi_cpu_isa(void) {
    uint32_t a, b, c, d, b7, c7, d7, a7_1 = 0, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) return RDI_ISA_NONE; // no OSXSAVE
    bool fma = bit(c, 12), f16c = bit(c, 29), avx = bit(c, 28);
    uint64_t state = enabled_state();
    if (!avx || (state & 0x6) != 0x6) return RDI_ISA_NONE; // XMM and YMM
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return RDI_ISA_NONE;
    if (a >= 1) __get_cpuid_count(7, 1, &a7_1, &unused, &unused, &unused);
    uint32_t isa = bit(b7, 5) && fma && f16c ? RDI_ISA_AVX2 : RDI_ISA_NONE;
    bool zmm = (state & 0xe0) == 0xe0; // opmask, upper ZMM, ZMM16-31
    if (!isa || !zmm || !bit(b7, 16) || !bit(b7, 17) || !bit(b7, 30) || !bit(b7, 31))
        return isa; // F, DQ, BW, VL
    isa |= RDI_ISA_AVX512;
    if (bit(c7, 1)) isa |= RDI_ISA_AVX512VBMI;
    if (bit(c7, 11)) isa |= RDI_ISA_AVX512VNNI;
    if (bit(a7_1, 5)) isa |= RDI_ISA_AVX512BF16;
    return isa;
}

void rdi_cpu_model(char *text, size_t bytes) {
    uint32_t words[13] = {0};
    for (uint32_t leaf = 0; leaf < 3; leaf++)
        if (!__get_cpuid(0x80000002u + leaf, &words[4 * leaf], &words[4 * leaf + 1], &words[4 * leaf + 2],
                         &words[4 * leaf + 3]))
            break;
    char brand[sizeof words];
    memcpy(brand, words, sizeof words);
    char *start = brand + strspn(brand, " "); // Intel pads on the left
    size_t length = strlen(start);
    while (length && start[length - 1] == ' ') start[--length] = 0;
    snprintf(text, bytes, "%s", *start ? start : "x86-64");
}
#else
uint32_t rdi_cpu_isa(void) {
    return RDI_ISA_NONE;
}
void rdi_cpu_model(char *text, size_t bytes) {
    snprintf(text, bytes, "unknown CPU");
}
#endif
