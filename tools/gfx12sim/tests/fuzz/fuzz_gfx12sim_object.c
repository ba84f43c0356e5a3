// SPDX-License-Identifier: Apache-2.0
// Fuzz target: whole code objects, so the loader (ELF, notes, MessagePack, relocations, bundles) comes first.
// Its last byte switches the checks, so that both paths of the memory handlers are reached.
#include <stdint.h>
#include "run_kernels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    uint32_t checks = bytes && data[bytes - 1] & 1 ? GS_CHECKS_ALL : GS_CHECKS_NONE;
    fuzz_object(data, bytes, checks, 64);
    return 0;
}
