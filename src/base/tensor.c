// SPDX-License-Identifier: Apache-2.0
// Dtype names and dense tensor descriptors. A shape whose product overflows gets stride -1, which every run refuses by name.
#include "base/base.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [RD_DTYPE_NONE] = {"none", 0}, [RD_DTYPE_F32] = {"fp32", 4},      [RD_DTYPE_BF16] = {"bf16", 2},
    [RD_DTYPE_F16] = {"fp16", 2},  [RD_DTYPE_E4M3] = {"fp8_e4m3", 1}, [RD_DTYPE_E5M2] = {"fp8_e5m2", 1},
    [RD_DTYPE_E8M0] = {"e8m0", 1}, [RD_DTYPE_I32] = {"i32", 4},       [RD_DTYPE_I64] = {"i64", 8},
    [RD_DTYPE_U8] = {"u8", 1},
};

size_t rd_dtype_bytes(rd_dtype dtype) {
    return (unsigned)dtype < RDI_COUNT(dtypes) ? dtypes[dtype].bytes : 0;
}
const char *rd_dtype_name(rd_dtype dtype) {
    return (unsigned)dtype < RDI_COUNT(dtypes) ? dtypes[dtype].name : "unknown";
}

static rd_tensor dense(void *data, rd_dtype dtype, int32_t rank, const int64_t *shape) {
    rd_tensor tensor = {.data = data, .dtype = dtype, .rank = rank};
    int64_t stride = 1;
    for (int32_t axis = rank - 1; axis >= 0; axis--) {
        tensor.shape[axis] = shape[axis];
        tensor.stride[axis] = stride;
        if (stride < 0 || __builtin_mul_overflow(stride, shape[axis], &stride)) stride = -1;
    }
    return tensor;
}

rd_tensor rd_tensor_1d(void *data, rd_dtype dtype, int64_t n0) {
    return dense(data, dtype, 1, (int64_t[]){n0});
}
rd_tensor rd_tensor_2d(void *data, rd_dtype dtype, int64_t n0, int64_t n1) {
    return dense(data, dtype, 2, (int64_t[]){n0, n1});
}
rd_tensor rd_tensor_3d(void *data, rd_dtype dtype, int64_t n0, int64_t n1, int64_t n2) {
    return dense(data, dtype, 3, (int64_t[]){n0, n1, n2});
}
rd_tensor rd_tensor_4d(void *data, rd_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return dense(data, dtype, 4, (int64_t[]){n0, n1, n2, n3});
}
