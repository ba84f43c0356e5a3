// SPDX-License-Identifier: Apache-2.0
// rmsnorm, act_mul, rope, kv_write and embed on Hopper: each row, head or token on its own, every byte moved once.
#include "kernels/common/sm90a_rows.cuh"
#include "kernels/elementwise/sm90a_args.h"

// ---- rmsnorm --------------------------------------------------------------------------------------------
template <int TURNS, bool VECTOR> __device__ __forceinline__ void rmsnorm(const rdk_rmsnorm_sm90a_args &args) {
    launch_dependents();
    const norm_rows rows = {args.x, args.weight, args.residual,      args.x_stride,    args.residual_stride, args.m,
                            args.k, args.x_type, args.residual_type, args.weight_type, args.eps,             args.weight_offset};
    normalise<TURNS, VECTOR>(rows, [&](int32_t row, int32_t at, int32_t count, const eight &e) {
        store_eight(args.y, row * args.y_stride + at, count, args.y_type, e);
    });
}
#define NORM_KERNEL(name_, turns_, vector_, blocks_)                                                                              \
    extern "C" __global__ void __launch_bounds__(1024, blocks_) name_(const __grid_constant__ rdk_rmsnorm_sm90a_args args) {           \
        rmsnorm<turns_, vector_>(args);                                                                                  \
    }
NORM_KERNEL(rdk_rmsnorm_sm90a_x1, 1, false, 1)
NORM_KERNEL(rdk_rmsnorm_sm90a_x2, 2, false, 1)
NORM_KERNEL(rdk_rmsnorm_sm90a_vector_x1, 1, true, 1)
NORM_KERNEL(rdk_rmsnorm_sm90a_dense_x1, 1, true, 2) // many rows: two blocks of 1024 threads at once are worth a few spilled words
NORM_KERNEL(rdk_rmsnorm_sm90a_vector_x2, 2, true, 1)

// ---- act_mul: eight elements a thread, grid (columns, rows) ----------------------------------------------------------------
// g / (1 + exp(-2z)) is g/2 (1 + tanh z) without its cancellation; z = sqrt(2/pi) (g + 0.044715 g^3), arXiv 1606.08415.
__device__ __forceinline__ float activate(float g, bool gelu) {
    float z = gelu ? 2.0f * 0.7978845608f * (g + 0.044715f * g * g * g) : g;
    return g / (1.0f + expf(-z));
}

extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_act_mul_sm90a(const __grid_constant__ rdk_act_mul_sm90a_args args) {
    launch_dependents();
    int32_t at = (blockIdx.x * RDK_ROW_THREADS + threadIdx.x) * 8, count = args.k - at;
    int64_t row = blockIdx.y;
    wait_dependencies();
    if (count <= 0) return;
    raw_eight raw_gate = load_raw(args.gate, row * args.gate_stride + at, count, args.x_type);
    raw_eight raw_up = load_raw(args.up, row * args.up_stride + at, count, args.x_type);
    eight gate = unpack(raw_gate, args.x_type), up = unpack(raw_up, args.x_type);
#pragma unroll
    for (int i = 0; i < 8; i++) gate.v[i] = activate(gate.v[i], args.gelu != 0) * up.v[i];
    store_eight(args.y, row * args.y_stride + at, count, args.y_type, gate);
}

// ---- rope: a warp a head -------------------------------------------------------------------------------------------------
struct head_view {
    void *base;
    const void *norm;
    int64_t at;
    int type;
};

__device__ __forceinline__ float head_element(const head_view &head, int32_t d) {
    return load_eight(head.base, head.at + d, 1, head.type).v[0];
}
__device__ __forceinline__ float norm_factor(const rdk_rope_sm90a_args &args, const head_view &head, float inverse, int32_t d) {
    return head.norm ? inverse * (load_element(head.norm, d, args.norm_type) + args.weight_offset) : 1.0f;
}

__device__ __forceinline__ float head_inverse(const rdk_rope_sm90a_args &args, const head_view &head) {
    if (!head.norm) return 1.0f;
    float squares = 0.0f;
    for (int32_t d = threadIdx.x % 32; d < args.head_dim; d += 32) {
        float x = head_element(head, d);
        squares = fmaf(x, x, squares);
    }
#pragma unroll
    for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    return 1.0f / sqrtf(squares / (float)args.head_dim + args.eps);
}

extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_rope_sm90a(const __grid_constant__ rdk_rope_sm90a_args args) {
    launch_dependents();
    int32_t heads = args.q_heads + args.k_heads, lane = threadIdx.x % 32, half = args.rotary_dim / 2;
    int64_t at = (int64_t)blockIdx.x * (RDK_ROW_THREADS / 32) + threadIdx.x / 32, token = at / heads;
    int32_t head = (int32_t)(at % heads);
    wait_dependencies();
    if (token >= args.tokens) return;
    // nvcc 13.0 loads args.q on both sides of a conditional between two struct initialisers here; integers it chooses right.
    bool of_k = head >= args.q_heads;
    int64_t q_at = token * args.q_stride_token + head * args.q_stride_head;
    int64_t k_at = token * args.k_stride_token + (head - args.q_heads) * args.k_stride_head;
    uint64_t q = (uint64_t)args.q, k = (uint64_t)args.k, q_norm = (uint64_t)args.q_norm, k_norm = (uint64_t)args.k_norm;
    const head_view view = {reinterpret_cast<void *>(of_k ? k : q), reinterpret_cast<const void *>(of_k ? k_norm : q_norm),
                            of_k ? k_at : q_at, of_k ? args.k_type : args.q_type};
    float inverse = head_inverse(args, view);
    double position = (double)__ldcg(args.positions + token);
    for (int32_t i = lane; i < half; i += 32) {
        int32_t first = args.interleaved ? 2 * i : i, second = args.interleaved ? 2 * i + 1 : i + half;
        float a = head_element(view, first) * norm_factor(args, view, inverse, first);
        float b = head_element(view, second) * norm_factor(args, view, inverse, second);
        // Whole turns go in double: at position 10^6 a float angle would be 0.06 off.
        double turns = position * (double)args.inv_freq[i] * 0.15915494309189535;
        float sine, cosine;
        sincospif(2.0f * (float)(turns - rint(turns)), &sine, &cosine);
        store_element(view.base, view.at + first, view.type, a * cosine - b * sine);
        store_element(view.base, view.at + second, view.type, b * cosine + a * sine);
    }
    for (int32_t d = args.rotary_dim + lane; view.norm && d < args.head_dim; d += 32)
        store_element(view.base, view.at + d, view.type, head_element(view, d) * norm_factor(args, view, inverse, d));
}

// ---- kv_write: eight dims a thread, grid (heads * dims / 8, tokens) -----------------------------------------------------------
__device__ __forceinline__ void write_cache(void *cache, int type, int64_t at, int64_t stride, int32_t count, float scale,
                                            eight e) {
    float inverse = __frcp_rn(scale);
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = divide_by(e.v[i], scale, inverse);
    if (type != RDK_E4M3 && stride == 1) {
        store_eight(cache, at, count, type, e);
        return;
    }
    uint2 codes = type == RDK_E4M3 ? pack_e4m3(e) : make_uint2(0, 0);
    unsigned char *to = static_cast<unsigned char *>(cache) + at;
    if (type == RDK_E4M3 && stride == 1 && count >= 8 && (uint64_t)to % 8 == 0) {
        *reinterpret_cast<uint2 *>(to) = codes;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i >= count) continue;
        if (type == RDK_E4M3)
            to[i * stride] = (unsigned char)((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
        else
            store_element(cache, at + i * stride, type, e.v[i]);
    }
}

extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_kv_write_sm90a(const __grid_constant__ rdk_kv_write_sm90a_args args) {
    launch_dependents();
    int32_t lanes = (args.head_dim + 7) / 8, unit = blockIdx.x * RDK_ROW_THREADS + threadIdx.x;
    int32_t head = unit / lanes, d = unit % lanes * 8, count = args.head_dim - d;
    int64_t token = blockIdx.y;
    wait_dependencies();
    if (head >= args.kv_heads) return;
    int64_t slot = __ldcg(reinterpret_cast<const long long *>(args.slots) + token);
    if (slot < 0 || slot >= args.capacity) return;
    int64_t block = slot / args.block_tokens, in_block = slot % args.block_tokens;
    eight k = load_eight(args.k, token * args.k_stride_token + head * args.k_stride_head + d, count, args.x_type);
    eight v = load_eight(args.v, token * args.v_stride_token + head * args.v_stride_head + d, count, args.x_type);
    int64_t k_at = block * args.kc_stride_block + head * args.kc_stride_head, k_stride = args.kc_stride_dim;
    if (args.k_interleave == 16) { // sixteen tokens of a dim side by side
        k_at += in_block / 16 * 16 * args.head_dim + in_block % 16 + d * 16;
        k_stride = 16;
    } else {
        k_at += in_block * args.kc_stride_token + d * args.kc_stride_dim;
    }
    int64_t v_at = block * args.vc_stride_block + in_block * args.vc_stride_token + head * args.vc_stride_head +
                   d * args.vc_stride_dim;
    write_cache(args.k_cache, args.kv_type, k_at, k_stride, count, args.k_scale ? args.k_scale[head] : 1.0f, k);
    write_cache(args.v_cache, args.kv_type, v_at, args.vc_stride_dim, count, args.v_scale ? args.v_scale[head] : 1.0f, v);
}

// ---- embed: eight elements a thread, grid (columns, tokens) --------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_embed_sm90a(const __grid_constant__ rdk_embed_sm90a_args args) {
    launch_dependents();
    int32_t at = (blockIdx.x * RDK_ROW_THREADS + threadIdx.x) * 8, count = args.k - at;
    int64_t token = blockIdx.y;
    wait_dependencies();
    int32_t id = __ldcg(args.ids + token);
    if (count <= 0 || id < 0 || id >= args.vocab) return; // outside the table: the row is left as it is
    eight e = load_eight(args.table, id * args.table_stride + at, count, args.table_type);
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] *= args.scale;
    store_eight(args.y, token * args.y_stride + at, count, args.y_type, e);
}
