// SPDX-License-Identifier: Apache-2.0
// What the tests of the elementwise rows share: types, random data, a pool of threads and the bound of a rounding.
#ifndef RADIANCE_TESTS_ELEMENTWISE_H
#define RADIANCE_TESTS_ELEMENTWISE_H

#include "rows.h"

#include "kernels/elementwise/args.h"

static const rd_dtype float_types[] = {RD_DTYPE_F32, RD_DTYPE_BF16, RD_DTYPE_F16};

static inline void fill(void *data, rd_dtype dtype, int64_t elems, uint64_t *state, float size) {
    for (int64_t i = 0; i < elems; i++) rdi_store_f32(data, dtype, i, size * random_normal(state));
}

static inline rdi_par *pool(void) {
    static rdi_par *par;
    if (!par) assert_int_equal(rdi_par_create(4, NULL, NULL, &par), RD_OK);
    return par;
}

// Largest |got - wanted| allowed: `steps` f32 roundings of a value of this size, and the rounding to the output type.
static inline double bound(rd_dtype dtype, double wanted, double steps) {
    return fabs(wanted) * steps * 0x1p-24 + ulp_of(dtype, wanted) * (dtype == RD_DTYPE_F32 ? 0.51 : 1.01);
}

#endif
