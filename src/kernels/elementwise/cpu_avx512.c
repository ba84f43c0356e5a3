// SPDX-License-Identifier: Apache-2.0
// The elementwise ops in AVX-512 (F, BW, VL, DQ): the shared bodies over sixteen lanes.
#include "base/lanes.h"
#include "kernels/elementwise/args.h"
#include "kernels/elementwise/select.h"
#include "kernels/rows.h"

#include <float.h>

#define ROW(op_) rdk_##op_##_cpu_avx512

#include "kernels/elementwise/body.inc"
#include "kernels/elementwise/sample.inc"
