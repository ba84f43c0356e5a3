// SPDX-License-Identifier: Apache-2.0
// Sixteen f32 lanes for three instruction sets: one zmm, two ymm, or an array. A kernel body written over v16 gives the
// same bits in all three: every operation is one IEEE operation a lane, and the only reduction is one fixed tree.
// The including file's compile flags choose; lanes_math.h adds what is written once for all.
//
// v16_max(a, b) = a > b ? a : b and v16_min(a, b) = a < b ? a : b: a NaN in either operand gives b, as maxps does.
#ifndef RDI_LANES_H
#define RDI_LANES_H

#include "base/base.h"
#include "base/convert.h"

#if defined(__AVX512F__)
#include "base/lanes_avx512.h"
#elif defined(__AVX2__)
#include "base/lanes_avx2.h"
#else
#include "base/lanes_portable.h"
#endif

#include "base/lanes_math.h"

#endif // RDI_LANES_H
