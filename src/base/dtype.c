// SPDX-License-Identifier: Apache-2.0
// Dtype names: one table of aliases, one of look-alikes that must not be folded.
#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    rd_dtype dtype;
} aliases[] = {
    {"fp32", RD_DTYPE_F32},
    {"float32", RD_DTYPE_F32},
    {"float", RD_DTYPE_F32},
    {"f32", RD_DTYPE_F32},
    {"bf16", RD_DTYPE_BF16},
    {"bfloat16", RD_DTYPE_BF16},
    {"fp16", RD_DTYPE_F16},
    {"float16", RD_DTYPE_F16},
    {"half", RD_DTYPE_F16},
    {"f16", RD_DTYPE_F16},
    {"fp8_e4m3", RD_DTYPE_E4M3},
    {"fp8", RD_DTYPE_E4M3},
    {"float8_e4m3fn", RD_DTYPE_E4M3},
    {"fp8_e4m3fn", RD_DTYPE_E4M3},
    {"e4m3fn", RD_DTYPE_E4M3},
    {"e4m3", RD_DTYPE_E4M3},
    {"fp8_e5m2", RD_DTYPE_E5M2},
    {"float8_e5m2", RD_DTYPE_E5M2},
    {"e5m2", RD_DTYPE_E5M2},
    {"e8m0", RD_DTYPE_E8M0},
    {"float8_e8m0fnu", RD_DTYPE_E8M0},
    {"e8m0fnu", RD_DTYPE_E8M0},
    {"ue8m0", RD_DTYPE_E8M0},
    {"i32", RD_DTYPE_I32},
    {"int32", RD_DTYPE_I32},
    {"i64", RD_DTYPE_I64},
    {"int64", RD_DTYPE_I64},
    {"u8", RD_DTYPE_U8},
    {"uint8", RD_DTYPE_U8},
};

// Other exponent biases and zeros: folding one of these into its neighbour would halve or double every value.
static const struct {
    const char *name, *difference;
} look_alikes[] = {
    {"e4m3fnuz", "exponent bias 8, not 7"},
    {"e4m3b11fnuz", "exponent bias 11, not 7"},
    {"e5m2fnuz", "exponent bias 16, not 15"},
};

#define KNOWN "fp32 bf16 fp16 fp8_e4m3 fp8_e5m2 e8m0 i32 i64 u8"

rd_status rdi_dtype_parse(const char *field, const char *text, rd_dtype *out) {
    if (!text) return rdi_fail(RD_E_INVALID, "%s not given, needs one of: " KNOWN, field);
    const char *name = !strncmp(text, "torch.", 6) ? text + 6 : text;
    for (size_t i = 0; i < RDI_COUNT(aliases); i++) {
        if (strcmp(name, aliases[i].name) != 0) continue;
        *out = aliases[i].dtype;
        return RD_OK;
    }
    const char *core = !strncmp(name, "float8_", 7) ? name + 7 : !strncmp(name, "fp8_", 4) ? name + 4 : name;
    for (size_t i = 0; i < RDI_COUNT(look_alikes); i++)
        if (!strcmp(core, look_alikes[i].name))
            return rdi_fail(RD_E_INVALID, "%s=%.40s is a different type (%s), needs one of: " KNOWN, field,
                            text, look_alikes[i].difference);
    return rdi_fail(RD_E_INVALID, "%s=%.40s, needs one of: " KNOWN, field, text);
}
