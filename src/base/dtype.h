// SPDX-License-Identifier: Apache-2.0
// Names of element types as people write them: torch's, numpy's, the OCP's and ours.
#ifndef RDI_DTYPE_H
#define RDI_DTYPE_H

#include "base/base.h"

#pragma GCC visibility push(default) // for libradiance_run alone: tagged RADIANCE_PRIVATE by radiance.map

// Folds aliases ("torch.bfloat16" = "bfloat16" = "bf16"; "fp8" = "float8_e4m3fn" = "fp8_e4m3"). A type that only looks
// alike (e4m3fnuz: exponent bias 8, one zero, one NaN) is refused by its name. The error starts with "field=text".
rd_status rdi_dtype_parse(const char *field, const char *text, rd_dtype *out);

#pragma GCC visibility pop
#endif // RDI_DTYPE_H
