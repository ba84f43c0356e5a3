// SPDX-License-Identifier: Apache-2.0
// Checks shared by the run entries. Each error names the op, the field, the value seen and what is needed.
#include "ops/plan.h"

rd_status rdi_check_struct(const char *op, uint32_t seen, size_t needed) {
    if (seen >= needed) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: struct_size=%u, needs %zu", op, seen, needed);
}

// A tensor that ends beyond the address space is a lie; found here, no size computed from shapes can overflow later.
static rd_status check_extent(const char *op, const char *field, const rd_tensor *tensor, size_t elem_bytes) {
    int64_t extent = 0, step;
    for (int32_t axis = 0; axis < tensor->rank; axis++)
        if (tensor->shape[axis] > 1 &&
            (__builtin_mul_overflow(tensor->shape[axis] - 1, tensor->stride[axis], &step) ||
             __builtin_add_overflow(extent, step, &extent)))
            extent = INT64_MAX;
    if (extent < INT64_MAX / 64 / (int64_t)elem_bytes) return RD_OK;
    return rdi_fail(RD_E_INVALID,
                    "%s: %s: shape and stride span over 2^57 bytes, needs a tensor that memory can hold", op,
                    field);
}

static rd_status check_layout(const char *op, const char *field, const rd_tensor *tensor, int32_t rank) {
    if (tensor->rank != rank)
        return rdi_fail(RD_E_INVALID, "%s: %s: rank=%d, needs %d", op, field, tensor->rank, rank);
    for (int32_t axis = 0; axis < rank; axis++) {
        if (tensor->shape[axis] < 0)
            return rdi_fail(RD_E_INVALID, "%s: %s: shape[%d]=%lld, needs >= 0", op, field, axis,
                            (long long)tensor->shape[axis]);
        if (tensor->stride[axis] < 0)
            return rdi_fail(RD_E_INVALID, "%s: %s: stride[%d]=%lld, needs >= 0", op, field, axis,
                            (long long)tensor->stride[axis]);
    }
    return check_extent(op, field, tensor, rd_dtype_bytes(tensor->dtype));
}

rd_status rdi_check_tensor(const char *op, const char *field, const rd_tensor *tensor, int32_t rank,
                           rd_dtype dtype) {
    if (!tensor->data) return rdi_fail(RD_E_INVALID, "%s: %s: data=NULL, needs a tensor", op, field);
    if (dtype != RD_DTYPE_NONE && tensor->dtype != dtype)
        return rdi_fail(RD_E_INVALID, "%s: %s: dtype=%s, needs %s", op, field, rd_dtype_name(tensor->dtype),
                        rd_dtype_name(dtype));
    if (dtype == RD_DTYPE_NONE && (tensor->dtype < RD_DTYPE_F32 || tensor->dtype > RD_DTYPE_E8M0))
        return rdi_fail(RD_E_INVALID, "%s: %s: dtype=%s, needs a floating type", op, field,
                        rd_dtype_name(tensor->dtype));
    size_t elem_bytes = rd_dtype_bytes(tensor->dtype);
    if ((uintptr_t)tensor->data % elem_bytes)
        return rdi_fail(RD_E_INVALID, "%s: %s: data=%p, needs %zu-byte alignment", op, field, tensor->data,
                        elem_bytes);
    return check_layout(op, field, tensor, rank);
}

rd_status rdi_check_dim(const char *op, const char *field, const rd_tensor *tensor, int32_t axis,
                        int64_t needed) {
    if (tensor->shape[axis] == needed) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s: shape[%d]=%lld, needs %lld", op, field, axis,
                    (long long)tensor->shape[axis], (long long)needed);
}

rd_status rdi_check_stride(const char *op, const char *field, const rd_tensor *tensor, int32_t axis,
                           int64_t needed) {
    if (tensor->stride[axis] == needed) return RD_OK;
    return rdi_fail(RD_E_INVALID, "%s: %s: stride[%d]=%lld, needs %lld", op, field, axis,
                    (long long)tensor->stride[axis], (long long)needed);
}

rd_status rdi_check_apart(const char *op, const char *field, const rd_tensor *tensor) {
    int64_t span = 1, below = -1; // elements covered by the axes of smaller stride; the last of those strides
    for (int32_t left = tensor->rank; left > 0; left--) {
        int32_t axis = -1;
        for (int32_t i = 0; i < tensor->rank; i++)
            if (tensor->shape[i] > 1 && tensor->stride[i] > below &&
                (axis < 0 || tensor->stride[i] < tensor->stride[axis]))
                axis = i;
        if (axis < 0) return RD_OK;
        for (int32_t i = 0; i < tensor->rank; i++)
            if (i != axis && tensor->shape[i] > 1 && tensor->stride[i] == tensor->stride[axis])
                span = INT64_MAX;
        if (tensor->stride[axis] < span)
            return rdi_fail(RD_E_INVALID,
                            "%s: %s: stride[%d]=%lld, needs room for the axes inside it: what is written "
                            "must not overlap",
                            op, field, axis, (long long)tensor->stride[axis]);
        span += tensor->stride[axis] * (tensor->shape[axis] - 1);
        below = tensor->stride[axis];
    }
    return RD_OK;
}

rd_status rdi_check_workspace(const char *op, size_t needed, void *ws, size_t *ws_bytes, bool *done) {
    *done = false;
    if (!ws && ws_bytes) { // size query
        *ws_bytes = needed;
        *done = true;
        return RD_OK;
    }
    if (!needed) return RD_OK;
    if (!ws || !ws_bytes) return rdi_fail(RD_E_INVALID, "%s: ws=NULL, needs %zu bytes", op, needed);
    if (*ws_bytes < needed)
        return rdi_fail(RD_E_INVALID, "%s: ws_bytes=%zu, needs %zu", op, *ws_bytes, needed);
    if ((uintptr_t)ws % 64) return rdi_fail(RD_E_INVALID, "%s: ws=%p, needs 64-byte alignment", op, ws);
    return RD_OK;
}
