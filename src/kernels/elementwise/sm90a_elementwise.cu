// SPDX-License-Identifier: Apache-2.0
// rmsnorm, act_mul and embed on Hopper: each row or token on its own, every byte moved once.
#include "kernels/common/sm90a_norm.cuh"
#include "kernels/elementwise/sm90a_args.h"

// ---- rmsnorm --------------------------------------------------------------------------------------------
__device__ __forceinline__ norm_rows rows_of(const rdk_rmsnorm_sm90a_args &args) {
    return {args.x,      args.weight,        args.residual,    args.x_stride, args.residual_stride, args.k,
            args.x_type, args.residual_type, args.weight_type, args.eps,      args.weight_offset};
}
extern "C" __global__ void __launch_bounds__(1024) rdk_rmsnorm_sm90a_any(const __grid_constant__ rdk_rmsnorm_sm90a_args args) {
    launch_dependents();
    normalise(rows_of(args), [&](const row_pieces<2> &p) {
        for (int t = 0; t < 2; t++)
            store_eight(args.y, (int64_t)p.row[t] * args.y_stride + p.at[t], p.count[t], args.y_type, p.e[t]);
    });
}
template <int TYPE, int PIECES>
__device__ __forceinline__ void store_vectors(const rdk_rmsnorm_sm90a_args &args, const row_pieces<PIECES> &p) {
#pragma unroll
    for (int t = 0; t < PIECES; t++)
        if (p.count[t]) row_vector<TYPE>::of(p.e[t]).store(row_vector<TYPE>::at(args.y, (int64_t)p.row[t] * args.y_stride + p.at[t]));
}
template <int TYPE, bool RESIDUAL> __device__ __forceinline__ void rmsnorm_vectors(const rdk_rmsnorm_sm90a_args &args) {
    launch_dependents();
    normalise_vectors<TYPE, RESIDUAL>(rows_of(args), [&](const row_pieces<2> &p) { store_vectors<TYPE>(args, p); });
}
template <int TYPE, bool RESIDUAL> __device__ __forceinline__ void rmsnorm_cluster(const rdk_rmsnorm_sm90a_args &args) {
    launch_dependents();
    normalise_cluster<TYPE, RESIDUAL>(rows_of(args), [&](const row_pieces<1> &p) { store_vectors<TYPE>(args, p); });
}
NORM_KERNELS(rdk_rmsnorm_sm90a_bf16, rdk_rmsnorm_sm90a_args, rmsnorm_vectors, rmsnorm_cluster, RDK_BF16, false)
NORM_KERNELS(rdk_rmsnorm_sm90a_bf16_add, rdk_rmsnorm_sm90a_args, rmsnorm_vectors, rmsnorm_cluster, RDK_BF16, true)
NORM_KERNELS(rdk_rmsnorm_sm90a_f16, rdk_rmsnorm_sm90a_args, rmsnorm_vectors, rmsnorm_cluster, RDK_F16, false)
NORM_KERNELS(rdk_rmsnorm_sm90a_f16_add, rdk_rmsnorm_sm90a_args, rmsnorm_vectors, rmsnorm_cluster, RDK_F16, true)

// ---- act_mul: eight elements a thread, grid (rows, columns) ----------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_act_mul_sm90a(const __grid_constant__ rdk_act_mul_sm90a_args args) {
    launch_dependents();
    int32_t at = (blockIdx.y * RDK_ROW_THREADS + threadIdx.x) * 8, count = args.k - at;
    int64_t row = blockIdx.x;
    wait_dependencies();
    if (count <= 0) return;
    raw_eight raw_gate = load_raw(args.gate, row * args.gate_stride + at, count, args.x_type);
    raw_eight raw_up = load_raw(args.up, row * args.up_stride + at, count, args.x_type);
    eight gate = unpack(raw_gate, args.x_type), up = unpack(raw_up, args.x_type);
#pragma unroll
    for (int i = 0; i < 8; i++) gate.v[i] = activate(gate.v[i], args.gelu != 0) * up.v[i];
    store_eight(args.y, row * args.y_stride + at, count, args.y_type, gate);
}

// ---- embed: eight elements a thread, grid (tokens, columns) --------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_embed_sm90a(const __grid_constant__ rdk_embed_sm90a_args args) {
    launch_dependents();
    int32_t at = (blockIdx.y * RDK_ROW_THREADS + threadIdx.x) * 8, count = args.k - at;
    int64_t token = blockIdx.x;
    wait_dependencies();
    int32_t id = __ldcg(args.ids + token);
    if (count <= 0 || id < 0 || id >= args.vocab) return; // outside the table: the row is left as it is
    eight e = load_eight(args.table, id * args.table_stride + at, count, args.table_type);
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] *= args.scale;
    store_eight(args.y, token * args.y_stride + at, count, args.y_type, e);
}
