// SPDX-License-Identifier: Apache-2.0
// Binding of a tensor table to the slots of the forward pass, and the names of the slots in both formats.
#ifndef RDI_MODEL_BIND_H
#define RDI_MODEL_BIND_H

#include "model/files.h"

typedef struct rdi_bind_source {
    const char *what; // path, for errors
    const rdi_model_config *config;
    rdi_entries entries;
    bool gguf;
} rdi_bind_source;
typedef struct rdi_bindings {
    rdi_weight model[RDI_MODEL_SLOTS];
    rdi_weight (*layer)[RDI_LAYER_SLOTS];
    int64_t weight_bytes, parameters;
    uint32_t types; // bit per rdi_wtype seen
} rdi_bindings;
rd_status rdi_bind(rdi_arena *arena, const rdi_bind_source *source, rdi_bindings *out);

bool rdi_slot_exists(const rdi_model_config *config, rdi_layer_slot slot);
void rdi_slot_name(const rdi_model_config *config, rdi_layer_slot slot, int32_t layer, bool gguf,
                   char name[RDI_TENSOR_MAX_NAME]);
const char *rdi_model_slot_name(rdi_model_slot slot, bool gguf);
// [rows, cols] that a configuration asks for; rows 0: a vector.
void rdi_slot_shape(const rdi_model_config *config, rdi_layer_slot slot, int64_t shape[2]);
void rdi_model_slot_shape(const rdi_model_config *config, rdi_model_slot slot, int64_t shape[2]);

#endif // RDI_MODEL_BIND_H
