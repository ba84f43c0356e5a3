// SPDX-License-Identifier: Apache-2.0
// Fuzz target: machine code. The first byte chooses checks and work-group size, the rest replaces the body of a sound
// kernel, so that the fuzzer's effort goes to decode and execution instead of ELF headers.
#include <stdint.h>
#include "run_kernels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

// The object of template.s, placed here by the assembler.
extern const uint8_t template_begin[], template_end[];
__asm__(".section .rodata\n.globl template_begin\n.globl template_end\n.balign 16\n"
        "template_begin:\n.incbin \"" FUZZ_TEMPLATE "\"\ntemplate_end:\n.byte 0\n.text\n");

enum { S_NOP_BODY = 0xbf801234u, BODY_WORDS = 256 }; // the body: 256 times `s_nop 0x1234`

static uint8_t *body_of(uint8_t *image, size_t bytes) {
    for (size_t at = 0; at + 4 * BODY_WORDS <= bytes; at += 4) {
        uint32_t word;
        memcpy(&word, image + at, 4);
        if (word == S_NOP_BODY) return image + at;
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    size_t image_bytes = (size_t)(template_end - template_begin);
    if (!bytes || bytes > 1 + 4 * BODY_WORDS) return 0;
    uint8_t *image = malloc(image_bytes);
    if (!image) return 0;
    memcpy(image, template_begin, image_bytes);
    uint8_t *body = body_of(image, image_bytes);
    if (!body) abort();
    memcpy(body, data + 1, bytes - 1);
    uint32_t checks = data[0] & 1   ? GS_CHECKS_ALL
                      : data[0] & 2 ? GS_CHECKS_ALL & ~(1u << (data[0] >> 4))
                                    : GS_CHECKS_NONE;
    if (!fuzz_object(image, image_bytes, checks, data[0] & 4 ? 40 : 64)) abort(); // the frame is sound
    free(image);
    return 0;
}
