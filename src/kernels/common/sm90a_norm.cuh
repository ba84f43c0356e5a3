// SPDX-License-Identifier: Apache-2.0
// The norm of a row by one block, sixteen elements a thread: eight at 8 t and eight at 8 (threads + t). The order of summation
// follows from the row's length alone: a thread's elements, a tree over its warp, the warps one after the other.
#ifndef RDK_SM90A_NORM_CUH
#define RDK_SM90A_NORM_CUH

#include "kernels/common/sm90a_rows.cuh"

// A residual, where given, takes x in first and its stored sum is what is normalised.
struct norm_rows {
    const void *x, *weight;
    void *residual; // NULL, or read and written
    int64_t x_stride, residual_stride;
    int32_t k, x_type, residual_type, weight_type;
    float eps, offset; // added to the weight
};

struct norm_scratch {
    float4 warps[8];
};

__device__ __forceinline__ float inverse_of_squares(float squares, int32_t k, float eps) {
    float mean = squares / (float)k + eps, r = rsqrtf(mean); // two units off at most: one Newton step
    return r < INFINITY && r > 0.0f ? fmaf(r * 0.5f, fmaf(-mean * r, r, 1.0f), r) : r;
}

// 1 / sqrt(mean square + eps), the same in every thread. v: this thread's squares.
__device__ __forceinline__ float inverse_norm(const norm_rows &rows, norm_scratch &scratch, float v) {
#pragma unroll
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    int warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) reinterpret_cast<float *>(scratch.warps)[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i * 4 >= warps) break;
        float4 four = scratch.warps[i];
        v += four.x;
        v += i * 4 + 1 < warps ? four.y : 0.0f;
        v += i * 4 + 2 < warps ? four.z : 0.0f;
        v += i * 4 + 3 < warps ? four.w : 0.0f;
    }
    return inverse_of_squares(v, rows.k, rows.eps);
}

struct two_pieces { // of a row: eight elements each, of which `count` (may be <= 0) exist
    int32_t row, at[2], count[2];
    eight e[2];
};

// emit(two_pieces) for row blockIdx.x. All threads call it together.
template <typename F> __device__ __forceinline__ void normalise(const norm_rows &rows, F emit) {
    __shared__ norm_scratch scratch;
    raw_eight weight[2];
#pragma unroll
    for (int t = 0; t < 2; t++) { // constants of the model: they need not wait
        int32_t at = (t * blockDim.x + threadIdx.x) * 8;
        weight[t] = load_raw(rows.weight, at, rows.k - at, rows.weight_type);
    }
    wait_dependencies();
    const int64_t row = blockIdx.x;
    two_pieces p = {(int32_t)row};
    auto &e = p.e;
    float squares = 0.0f;
#pragma unroll
    for (int t = 0; t < 2; t++) {
        int32_t at = p.at[t] = (t * blockDim.x + threadIdx.x) * 8, count = p.count[t] = rows.k - at;
        e[t] = load_eight(rows.x, row * rows.x_stride + at, count, rows.x_type);
        if (rows.residual) {
            eight held = load_eight(rows.residual, row * rows.residual_stride + at, count, rows.residual_type);
#pragma unroll
            for (int i = 0; i < 8; i++) e[t].v[i] = rounded(held.v[i] + e[t].v[i], rows.residual_type);
            store_eight(rows.residual, row * rows.residual_stride + at, count, rows.residual_type, e[t]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) squares = fmaf(e[t].v[i], e[t].v[i], squares);
    }
    float inverse = inverse_norm(rows, scratch, squares);
#pragma unroll
    for (int t = 0; t < 2; t++) {
        eight w = unpack(weight[t], rows.weight_type);
#pragma unroll
        for (int i = 0; i < 8; i++) e[t].v[i] = e[t].v[i] * inverse * (w.v[i] + rows.offset);
    }
    emit(p);
}

// ---- the same where x, residual and weight are of one 16-bit type and every row is whole 16-byte pieces -----------------------
template <int TYPE> __device__ __forceinline__ eight unpack_vector(uint4 v) {
    return unpack({v, {}}, TYPE);
}
template <int TYPE> __device__ __forceinline__ uint4 pack_vector(const eight &e) {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        word[i] = TYPE == RDK_F16 ? pack_f16(e.v[2 * i], e.v[2 * i + 1]) : pack_bf16(e.v[2 * i], e.v[2 * i + 1]);
    return make_uint4(word[0], word[1], word[2], word[3]);
}
__device__ __forceinline__ uint4 vector_at(const void *row, int64_t at, bool valid) {
    return valid ? __ldcg(reinterpret_cast<const uint4 *>(static_cast<const char *>(row) + at * 2)) : make_uint4(0, 0, 0, 0);
}

// RESIDUAL: rows.residual is given. The row waits for its sum as it is stored, two elements a word.
template <int TYPE, bool RESIDUAL, typename F> __device__ __forceinline__ void normalise_vectors(const norm_rows &rows, F emit) {
    __shared__ norm_scratch scratch;
    int32_t at[2] = {(int32_t)threadIdx.x * 8, (int32_t)(blockDim.x + threadIdx.x) * 8};
    bool valid[2] = {at[0] < rows.k, at[1] < rows.k};
    uint4 weight[2];
#pragma unroll
    for (int t = 0; t < 2; t++) weight[t] = vector_at(rows.weight, at[t], valid[t]);
    wait_dependencies();
    const int64_t row = blockIdx.x;
    uint4 x[2], residual[2];
#pragma unroll
    for (int t = 0; t < 2; t++) x[t] = vector_at(rows.x, row * rows.x_stride + at[t], valid[t]);
#pragma unroll
    for (int t = 0; RESIDUAL && t < 2; t++)
        residual[t] = vector_at(rows.residual, row * rows.residual_stride + at[t], valid[t]);
    float squares = 0.0f;
#pragma unroll
    for (int t = 0; t < 2; t++) {
        eight e = unpack_vector<TYPE>(x[t]);
        if (RESIDUAL) {
            eight held = unpack_vector<TYPE>(residual[t]);
#pragma unroll
            for (int i = 0; i < 8; i++) e.v[i] += held.v[i];
            x[t] = pack_vector<TYPE>(e);
            if (valid[t])
                *reinterpret_cast<uint4 *>(static_cast<char *>(rows.residual) + (row * rows.residual_stride + at[t]) * 2) =
                    x[t];
            e = unpack_vector<TYPE>(x[t]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) squares = fmaf(e.v[i], e.v[i], squares);
    }
    float inverse = inverse_norm(rows, scratch, squares);
    two_pieces p = {(int32_t)row, {at[0], at[1]}, {valid[0] ? 8 : 0, valid[1] ? 8 : 0}};
#pragma unroll
    for (int t = 0; t < 2; t++) {
        eight w = unpack_vector<TYPE>(weight[t]);
        p.e[t] = unpack_vector<TYPE>(x[t]);
#pragma unroll
        for (int i = 0; i < 8; i++) p.e[t].v[i] = p.e[t].v[i] * inverse * (w.v[i] + rows.offset);
    }
    emit(p);
}

#endif // RDK_SM90A_NORM_CUH
