// SPDX-License-Identifier: Apache-2.0
// The norm of a row: by one block, sixteen elements a thread, or by a cluster, eight elements a thread, where rows are few.
//
// The sum of squares has one order, whoever adds it up. Piece p of a row is elements 256 p .. 256 p + 255, zeros past the end.
// Eight neighbours: the even ones one after the other by fma, the odd ones too, then even + odd. Thirty-two such sums: pairs 16
// apart, then 8, 4, 2, 1. Pieces p = j mod 4 one after the other from zero, for each j; then (j=0 + j=1) + (j=2 + j=3).
#ifndef RDK_SM90A_NORM_CUH
#define RDK_SM90A_NORM_CUH

#include "kernels/common/sm90a_norm.h"
#include "kernels/common/sm90a_rows.cuh"

// A residual, where given, takes x in first and its stored sum is what is normalised.
struct norm_rows {
    const void *x, *weight;
    void *residual; // NULL, or read and written
    int64_t x_stride, residual_stride;
    int32_t k, x_type, residual_type, weight_type;
    float eps, offset; // added to the weight
};

struct norm_sums { // of the pieces of a row
    float4 four[RDK_NORM_PIECES / 4];
};

__device__ __forceinline__ float squares_of(const eight &e) {
    float2 sum = {};
#pragma unroll
    for (int i = 0; i < 8; i += 2) sum.x = fmaf(e.v[i], e.v[i], sum.x), sum.y = fmaf(e.v[i + 1], e.v[i + 1], sum.y);
    return sum.x + sum.y;
}

// 1 / sqrt(mean square + eps) of `pieces`, a multiple of four, whose sums stand. BATCH loads are under way at once.
template <int BATCH> __device__ __forceinline__ float inverse_norm(const norm_sums &sums, int pieces, float inverse_k, float eps) {
    float4 v = {};
#pragma unroll
    for (int first = 0; first < RDK_NORM_PIECES / 4; first += BATCH) {
        if (first * 4 >= pieces) break;
        float4 next[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            next[i] = i == 0 || (first + i) * 4 < pieces ? sums.four[first + i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < BATCH; i++) v.x += next[i].x, v.y += next[i].y, v.z += next[i].z, v.w += next[i].w;
    }
    return inverse_root(fmaf((v.x + v.y) + (v.z + v.w), inverse_k, eps));
}

// By a block whose warps have pieces w and warps + w: v[0] and v[1], the squares of this thread's eight neighbours in each. Lanes
// exchange the piece that the other half of the warp goes on with.
__device__ __forceinline__ float inverse_norm(norm_sums &sums, const float (&v)[2], int32_t k, float eps) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float sum = (lane < 16 ? v[0] : v[1]) + __shfl_xor_sync(0xffffffffu, lane < 16 ? v[1] : v[0], 16);
#pragma unroll
    for (int step = 8; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane % 16 == 0) reinterpret_cast<float *>(sums.four)[lane ? warps + warp : warp] = sum;
    __syncthreads();
    return inverse_norm<1>(sums, warps * 2, 1.0f / (float)k, eps);
}

// emit(row_pieces<2>) for row blockIdx.x. All threads call it together.
template <typename F> __device__ __forceinline__ void normalise(const norm_rows &rows, F emit) {
    __shared__ norm_sums sums;
    raw_eight weight[2];
#pragma unroll
    for (int t = 0; t < 2; t++) { // constants of the model: they need not wait
        int32_t at = (t * blockDim.x + threadIdx.x) * 8;
        weight[t] = load_raw(rows.weight, at, rows.k - at, rows.weight_type);
    }
    wait_dependencies();
    const int64_t row = blockIdx.x;
    row_pieces<2> p = {{(int32_t)row, (int32_t)row}};
    auto &e = p.e;
    float squares[2];
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
        squares[t] = squares_of(e[t]);
    }
    float inverse = inverse_norm(sums, squares, rows.k, rows.eps);
#pragma unroll
    for (int t = 0; t < 2; t++) {
        eight w = unpack(weight[t], rows.weight_type);
#pragma unroll
        for (int i = 0; i < 8; i++) e[t].v[i] = e[t].v[i] * inverse * (w.v[i] + rows.offset);
    }
    emit(p);
}

// ---- the same where x, residual and weight are of one type and every row is whole pieces of eight -------------------------------
template <int TYPE> struct row_vector { // eight neighbours as they lie in memory
    static constexpr int words = TYPE == RDK_F32 ? 2 : 1;
    uint4 word[words];

    static __device__ __forceinline__ char *at(const void *rows, int64_t place) {
        return const_cast<char *>(static_cast<const char *>(rows)) + place * words * 2;
    }
    static __device__ __forceinline__ row_vector load(const char *from, bool valid) {
        row_vector v;
#pragma unroll
        for (int i = 0; i < words; i++) v.word[i] = valid ? __ldcg(reinterpret_cast<const uint4 *>(from) + i) : make_uint4(0, 0, 0, 0);
        return v;
    }
    __device__ __forceinline__ void store(char *to) const {
#pragma unroll
        for (int i = 0; i < words; i++) reinterpret_cast<uint4 *>(to)[i] = word[i];
    }
    __device__ __forceinline__ eight wide() const { return unpack({word[0], word[words - 1]}, TYPE); }
    static __device__ __forceinline__ row_vector of(const eight &e) { // rounded once
        row_vector v;
        if constexpr (TYPE == RDK_F32) {
#pragma unroll
            for (int i = 0; i < 2; i++)
                v.word[i] = make_uint4(__float_as_uint(e.v[i * 4]), __float_as_uint(e.v[i * 4 + 1]), __float_as_uint(e.v[i * 4 + 2]),
                                       __float_as_uint(e.v[i * 4 + 3]));
        } else {
            uint32_t pair[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                pair[i] = TYPE == RDK_F16 ? pack_f16(e.v[2 * i], e.v[2 * i + 1]) : pack_bf16(e.v[2 * i], e.v[2 * i + 1]);
            v.word[0] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        }
        return v;
    }
    // The sum that the residual keeps, as it is stored: what is normalised.
    __device__ __forceinline__ row_vector plus(const row_vector &residual) const {
        eight e = wide(), held = residual.wide();
#pragma unroll
        for (int i = 0; i < 8; i++) e.v[i] += held.v[i];
        return of(e);
    }
    __device__ __forceinline__ eight scaled(const row_vector &weight, float inverse, float offset) const {
        eight e = wide(), w = weight.wide();
#pragma unroll
        for (int i = 0; i < 8; i++) e.v[i] = e.v[i] * inverse * (w.v[i] + offset);
        return e;
    }
};

// RESIDUAL: rows.residual is given. The row waits for its sum as it is stored.
template <int TYPE, bool RESIDUAL, typename F> __device__ __forceinline__ void normalise_vectors(const norm_rows &rows, F emit) {
    __shared__ norm_sums sums;
    int32_t at[2] = {(int32_t)threadIdx.x * 8, (int32_t)(blockDim.x + threadIdx.x) * 8};
    bool valid[2] = {at[0] < rows.k, at[1] < rows.k};
    using vector = row_vector<TYPE>;
    vector weight[2];
#pragma unroll
    for (int t = 0; t < 2; t++) weight[t] = vector::load(vector::at(rows.weight, at[t]), valid[t]);
    wait_dependencies();
    const int64_t row = blockIdx.x;
    vector x[2], residual[2];
#pragma unroll
    for (int t = 0; t < 2; t++) x[t] = vector::load(vector::at(rows.x, row * rows.x_stride + at[t]), valid[t]);
    if (RESIDUAL) {
#pragma unroll
        for (int t = 0; t < 2; t++)
            residual[t] = vector::load(vector::at(rows.residual, row * rows.residual_stride + at[t]), valid[t]);
#pragma unroll
        for (int t = 0; t < 2; t++) {
            x[t] = x[t].plus(residual[t]);
            if (valid[t]) x[t].store(vector::at(rows.residual, row * rows.residual_stride + at[t]));
        }
    }
    float squares[2] = {squares_of(x[0].wide()), squares_of(x[1].wide())};
    float inverse = inverse_norm(sums, squares, rows.k, rows.eps);
    row_pieces<2> p = {{(int32_t)row, (int32_t)row}, {at[0], at[1]}, {valid[0] ? 8 : 0, valid[1] ? 8 : 0}};
#pragma unroll
    for (int t = 0; t < 2; t++) p.e[t] = x[t].scaled(weight[t], inverse, rows.offset);
    emit(p);
}

// ---- a cluster of RDK_NORM_BLOCKS blocks a row, a warp a piece -------------------------------------------------------------------
// Every warp sends its sum to every block of the cluster, onto a barrier there that counts the bytes.
struct norm_cluster {
    norm_sums sums;
    uint64_t arrived;
};

// This thread's first element.
__device__ __forceinline__ int32_t norm_cluster_at() {
    return (int32_t)(cluster_rank() * (blockDim.x / 32) + threadIdx.x / 32) * RDK_NORM_PIECE + (int32_t)(threadIdx.x % 32) * 8;
}

// emit(row_pieces<1>). Everything that does not wait for data is done before the edge.
template <int TYPE, bool RESIDUAL, typename F> __device__ __forceinline__ void normalise_cluster(const norm_rows &rows, F emit) {
    __shared__ norm_cluster shared;
    const uint32_t rank = cluster_rank(), lane = threadIdx.x % 32, warps = blockDim.x / 32, pieces = warps * RDK_NORM_BLOCKS;
    if (threadIdx.x == 0) {
        barrier_init(&shared.arrived, 1);
        barrier_init_fence();
        barrier_expect(&shared.arrived, pieces * 4);
    }
    cluster_arrive_relaxed();
    const uint32_t piece = rank * warps + threadIdx.x / 32;
    const int32_t row = blockIdx.x / RDK_NORM_BLOCKS, at = norm_cluster_at();
    const bool valid = at < rows.k;
    using vector = row_vector<TYPE>;
    char *const from = vector::at(rows.x, row * rows.x_stride + at), *const sum = vector::at(rows.residual, row * rows.residual_stride + at);
    const vector weight = vector::load(vector::at(rows.weight, at), valid);
    const uint32_t to = cluster_address(reinterpret_cast<float *>(shared.sums.four) + piece, lane % RDK_NORM_BLOCKS),
                   barrier = cluster_address(&shared.arrived, lane % RDK_NORM_BLOCKS);
    const float inverse_k = reciprocal((float)rows.k);
    wait_dependencies();
    vector x = vector::load(from, valid);
    if (RESIDUAL) {
        x = x.plus(vector::load(sum, valid));
        if (valid) x.store(sum);
    }
    float squares = squares_of(x.wide());
#pragma unroll
    for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    cluster_wait(); // every block has its barrier
    if (lane < RDK_NORM_BLOCKS) send_f32(to, squares, barrier);
    barrier_wait(&shared.arrived, 0);
    float inverse = inverse_norm<8>(shared.sums, (int)pieces, inverse_k, rows.eps);
    row_pieces<1> p = {{row}, {at}, {valid ? 8 : 0}, {x.scaled(weight, inverse, rows.offset)}};
    emit(p);
}

// Both kernels of rows of one type: a block a row, and a cluster a row. rows_, cluster_: templates of the type and of whether a residual is
// added, which take the kernel's arguments.
#define NORM_KERNELS(name_, args_, rows_, cluster_, type_, residual_)                                                    \
    extern "C" __global__ void __launch_bounds__(512, type_ == RDK_F32 ? 2 : 3) name_(const __grid_constant__ args_ args) { \
        rows_<type_, residual_>(args);                                                                                   \
    }                                                                                                                    \
    extern "C" __global__ void __cluster_dims__(RDK_NORM_BLOCKS, 1, 1) __launch_bounds__(RDK_NORM_VECTOR_K / 8 / RDK_NORM_BLOCKS) \
        name_##_cluster(const __grid_constant__ args_ args) {                                                            \
        cluster_<type_, residual_>(args);                                                                                \
    }

#endif // RDK_SM90A_NORM_CUH
