// SPDX-License-Identifier: Apache-2.0
// quant_fp8 in AVX-512 (F, BW, VL, DQ): the shared body over sixteen lanes.
#include "base/lanes.h"
#include "kernels/rows.h"
#include "kernels/quant_fp8/args.h"

#define ROW(op_) rdk_##op_##_cpu_avx512

#include "kernels/quant_fp8/body.inc"
