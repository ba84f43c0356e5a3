// SPDX-License-Identifier: Apache-2.0
// Weights that no file holds: the tensors that a configuration asks for, drawn from a seed.
#ifndef RDI_MODEL_RANDOM_H
#define RDI_MODEL_RANDOM_H

#include "model/bind.h"

#define RDI_RANDOM_CODE_SIZE 100.0f // standard deviation of e4m3 codes: none is beyond 3.5 of them

// Block-FP8 layers where the configuration has them, else bf16; embedding, head and norms bf16. `out` is unmapped by the caller.
rd_status rdi_random_weights(rdi_arena *arena, const char *what, const rdi_model_config *config,
                             uint64_t seed, rdi_mapping *out, rdi_entries *entries);

#endif // RDI_MODEL_RANDOM_H
