// SPDX-License-Identifier: Apache-2.0
// rope with qk-norm, kv_write, and both in one launch, on Hopper. rope: a warp a head, held in registers, each pair by one lane.
// kv_write: eight dims of a token a lane. Both: a warp a head of q, k or v; a turned k goes to the cache from registers.
#include "kernels/common/sm90a_rows.cuh"
#include "kernels/elementwise/sm90a_args.h"

// ---- rope ----------------------------------------------------------------------------------------------------------------
struct head_view {
    void *base;
    const void *norm;
    int64_t at;
    int type;
};

__device__ __forceinline__ head_view head_at(const rdk_rope_sm90a_args &args, int32_t token, int32_t head) {
    // nvcc 13.0 loads args.q on both sides of a conditional between two struct initialisers here; integers it chooses right.
    bool of_k = head >= args.q_heads;
    int64_t q_at = token * args.q_stride_token + head * args.q_stride_head;
    int64_t k_at = token * args.k_stride_token + (head - args.q_heads) * args.k_stride_head;
    uint64_t q = (uint64_t)args.q, k = (uint64_t)args.k, q_norm = (uint64_t)args.q_norm, k_norm = (uint64_t)args.k_norm;
    return {reinterpret_cast<void *>(of_k ? k : q), reinterpret_cast<const void *>(of_k ? k_norm : q_norm), of_k ? k_at : q_at,
            of_k ? args.k_type : args.q_type};
}

// Past the first-level cache: see sm90a_ptx.cuh on dependent launch.
__device__ __forceinline__ float head_element(const head_view &head, int32_t d) {
    if (head.type == RDK_F32) return __ldcg(static_cast<const float *>(head.base) + head.at + d);
    unsigned short bits = __ldcg(static_cast<const unsigned short *>(head.base) + head.at + d);
    return head.type == RDK_F16 ? __half2float(__ushort_as_half(bits)) : __uint_as_float((uint32_t)bits << 16);
}

// A head of up to 64 * PAIRS dims: lane l holds pairs l, l + 32, ... and what is not turned beside them. emit(d, value) takes each
// dim that changes, or with ALL every dim.
template <int PAIRS, bool ALL, typename F>
__device__ __forceinline__ void turn_head(const rdk_rope_sm90a_args &args, const head_view &head, int32_t token, F emit) {
    int32_t lane = threadIdx.x % 32, half = args.rotary_dim / 2;
    float first[PAIRS], second[PAIRS], rest[PAIRS * 2], squares = 0.0f;
    double position = (double)__ldcg(args.positions + token);
    auto first_of = [&](int32_t i) { return args.interleaved ? 2 * i : i; };
    auto second_of = [&](int32_t i) { return args.interleaved ? 2 * i + 1 : i + half; };
    bool with_rest = ALL || head.norm;
#pragma unroll
    for (int t = 0; t < PAIRS; t++) {
        int32_t i = lane + t * 32;
        first[t] = i < half ? head_element(head, first_of(i)) : 0.0f;
        second[t] = i < half ? head_element(head, second_of(i)) : 0.0f;
    }
#pragma unroll
    for (int t = 0; t < PAIRS * 2; t++) {
        int32_t d = args.rotary_dim + lane + t * 32;
        rest[t] = with_rest && d < args.head_dim ? head_element(head, d) : 0.0f;
    }
    if (head.norm) {
#pragma unroll
        for (int t = 0; t < PAIRS; t++) squares = fmaf(first[t], first[t], fmaf(second[t], second[t], squares));
#pragma unroll
        for (int t = 0; t < PAIRS * 2; t++) squares = fmaf(rest[t], rest[t], squares);
#pragma unroll
        for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    }
    float inverse = 1.0f / sqrtf(squares / (float)args.head_dim + args.eps);
    auto normed = [&](float x, int32_t d) {
        return head.norm ? x * (inverse * (load_element(head.norm, d, args.norm_type) + args.weight_offset)) : x;
    };
#pragma unroll
    for (int t = 0; t < PAIRS; t++) {
        int32_t i = lane + t * 32;
        if (i >= half) continue;
        float a = normed(first[t], first_of(i)), b = normed(second[t], second_of(i));
        // Whole turns go in double: at position 10^6 a float angle would be 0.06 off.
        double turns = position * (double)args.inv_freq[i] * 0.15915494309189535;
        float sine, cosine;
        sincospif(2.0f * (float)(turns - rint(turns)), &sine, &cosine);
        emit(first_of(i), fmaf(a, cosine, -__fmul_rn(b, sine))); // written out: every kernel of this file gives the same bits
        emit(second_of(i), fmaf(b, cosine, __fmul_rn(a, sine)));
    }
#pragma unroll
    for (int t = 0; t < PAIRS * 2; t++) {
        int32_t d = args.rotary_dim + lane + t * 32;
        if (with_rest && d < args.head_dim) emit(d, normed(rest[t], d));
    }
}

template <int PAIRS>
__device__ __forceinline__ void turn_in_place(const rdk_rope_sm90a_args &args, const head_view &head, int32_t token) {
    turn_head<PAIRS, false>(args, head, token, [&](int32_t d, float x) { store_element(head.base, head.at + d, head.type, x); });
}

template <int PAIRS> __device__ __forceinline__ void rope(const rdk_rope_sm90a_args &args) {
    launch_dependents();
    int32_t heads = args.q_heads + args.k_heads, at = blockIdx.x * (RDK_ROW_THREADS / 32) + threadIdx.x / 32, token = at / heads;
    wait_dependencies();
    if (token < args.tokens) turn_in_place<PAIRS>(args, head_at(args, token, at % heads), token);
}

// ---- kv_write -------------------------------------------------------------------------------------------------------------
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

struct cached_token { // where a token goes
    int64_t block, in_block;
};

// False: nowhere.
__device__ __forceinline__ bool find_slot(const rdk_kv_write_sm90a_args &args, int64_t token, cached_token &to) {
    int64_t slot = __ldcg(reinterpret_cast<const long long *>(args.slots) + token);
    to.block = slot / args.block_tokens;
    to.in_block = slot % args.block_tokens;
    return slot >= 0 && slot < args.capacity;
}

// Of dim 0; `stride` from a dim to the next. Interleaved: sixteen tokens of a dim side by side.
__device__ __forceinline__ int64_t k_cache_at(const rdk_kv_write_sm90a_args &args, cached_token to, int32_t head, int64_t &stride) {
    int64_t at = to.block * args.kc_stride_block + head * args.kc_stride_head;
    stride = args.k_interleave == 16 ? 16 : args.kc_stride_dim;
    return at + (args.k_interleave == 16 ? to.in_block / 16 * 16 * args.head_dim + to.in_block % 16
                                         : to.in_block * args.kc_stride_token);
}

__device__ __forceinline__ void write_v(const rdk_kv_write_sm90a_args &args, cached_token to, int64_t token, int32_t head,
                                        int32_t d) {
    int32_t count = args.head_dim - d;
    eight v = load_eight(args.v, token * args.v_stride_token + head * args.v_stride_head + d, count, args.x_type);
    int64_t at = to.block * args.vc_stride_block + to.in_block * args.vc_stride_token + head * args.vc_stride_head +
                 d * args.vc_stride_dim;
    write_cache(args.v_cache, args.kv_type, at, args.vc_stride_dim, count, args.v_scale ? args.v_scale[head] : 1.0f, v);
}

// Grid (heads * dims / 8, tokens).
extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_kv_write_sm90a(const __grid_constant__ rdk_kv_write_sm90a_args args) {
    launch_dependents();
    int32_t lanes = (args.head_dim + 7) / 8, unit = blockIdx.x * RDK_ROW_THREADS + threadIdx.x;
    int32_t head = unit / lanes, d = unit % lanes * 8;
    int64_t token = blockIdx.y, stride;
    cached_token to;
    wait_dependencies();
    if (head >= args.kv_heads || !find_slot(args, token, to)) return;
    eight k = load_eight(args.k, token * args.k_stride_token + head * args.k_stride_head + d, args.head_dim - d, args.x_type);
    int64_t at = k_cache_at(args, to, head, stride);
    write_v(args, to, token, head, d);
    write_cache(args.k_cache, args.kv_type, at + d * stride, stride, args.head_dim - d, args.k_scale ? args.k_scale[head] : 1.0f,
                k);
}

// ---- both -----------------------------------------------------------------------------------------------------------------
template <int PAIRS> __device__ __forceinline__ void rope_kv_write(const rdk_rope_kv_write_sm90a_args &args) {
    launch_dependents();
    int32_t q_heads = args.rope.q_heads, kv_heads = args.kv.kv_heads, heads = q_heads + 2 * kv_heads;
    int32_t at = blockIdx.x * (RDK_ROW_THREADS / 32) + threadIdx.x / 32, token = at / heads, head = at % heads;
    wait_dependencies();
    if (token >= args.rope.tokens) return;
    if (head < q_heads) {
        turn_in_place<PAIRS>(args.rope, head_at(args.rope, token, head), token);
        return;
    }
    cached_token to;
    if (!find_slot(args.kv, token, to)) return;
    if (head >= q_heads + kv_heads) {
        for (int32_t d = threadIdx.x % 32 * 8; d < args.kv.head_dim; d += 256) write_v(args.kv, to, token, head - q_heads - kv_heads, d);
        return;
    }
    int64_t stride, cache_at = k_cache_at(args.kv, to, head - q_heads, stride);
    float scale = args.kv.k_scale ? args.kv.k_scale[head - q_heads] : 1.0f, inverse = __frcp_rn(scale);
    const head_view view = head_at(args.rope, token, head);
    turn_head<PAIRS, true>(args.rope, view, token, [&](int32_t d, float x) {
        x = divide_by(rounded(x, view.type), scale, inverse);
        if (args.kv.kv_type == RDK_E4M3)
            static_cast<unsigned char *>(args.kv.k_cache)[cache_at + d * stride] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
        else
            store_element(args.kv.k_cache, cache_at + d * stride, args.kv.kv_type, x);
    });
}

#define HEAD_KERNELS(dims_)                                                                                              \
    extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)                                                        \
        rdk_rope_sm90a_d##dims_(const __grid_constant__ rdk_rope_sm90a_args args) {                                      \
        rope<dims_ / 64>(args);                                                                                          \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)                                                        \
        rdk_rope_kv_write_sm90a_d##dims_(const __grid_constant__ rdk_rope_kv_write_sm90a_args args) {                    \
        rope_kv_write<dims_ / 64>(args);                                                                                 \
    }
HEAD_KERNELS(128)
HEAD_KERNELS(256)
HEAD_KERNELS(512)
