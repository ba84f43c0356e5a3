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

// A head of up to 64 * PAIRS dims: lane l holds pairs l, l + 32, ... and what is not turned beside them.
template <int PAIRS> struct head_values {
    float first[PAIRS], second[PAIRS], rest[PAIRS * 2];
};
__device__ __forceinline__ int32_t first_of(const rdk_rope_sm90a_args &args, int32_t i) {
    return args.interleaved ? 2 * i : i;
}
__device__ __forceinline__ int32_t second_of(const rdk_rope_sm90a_args &args, int32_t i) {
    return args.interleaved ? 2 * i + 1 : i + args.rotary_dim / 2;
}
template <int PAIRS, typename F> __device__ __forceinline__ void fill(const rdk_rope_sm90a_args &args, head_values<PAIRS> &v, F f) {
#pragma unroll
    for (int t = 0; t < PAIRS; t++) {
        int32_t i = threadIdx.x % 32 + t * 32;
        v.first[t] = i < args.rotary_dim / 2 ? f(first_of(args, i)) : 0.0f;
        v.second[t] = i < args.rotary_dim / 2 ? f(second_of(args, i)) : 0.0f;
    }
#pragma unroll
    for (int t = 0; t < PAIRS * 2; t++) {
        int32_t d = args.rotary_dim + threadIdx.x % 32 + t * 32;
        v.rest[t] = d < args.head_dim ? f(d) : 0.0f;
    }
}

// Constants of the model, which need not wait: frequencies and, with qk-norm, weights.
template <int PAIRS> struct head_constants {
    float frequency[PAIRS];
    head_values<PAIRS> weight;
};
template <int PAIRS>
__device__ __forceinline__ void load_constants(const rdk_rope_sm90a_args &args, const void *norm, head_constants<PAIRS> &c) {
#pragma unroll
    for (int t = 0; t < PAIRS; t++) {
        int32_t i = threadIdx.x % 32 + t * 32;
        c.frequency[t] = i < args.rotary_dim / 2 ? args.inv_freq[i] : 0.0f;
    }
    if (norm) fill(args, c.weight, [&](int32_t d) { return load_element(norm, d, args.norm_type) + args.weight_offset; });
}

// emit(d, value) takes each dim that changes, or with ALL every dim.
template <int PAIRS, bool ALL, typename F>
__device__ __forceinline__ void turn_head(const rdk_rope_sm90a_args &args, const head_constants<PAIRS> &c, bool norm,
                                          head_values<PAIRS> &v, int32_t position, F emit) {
    if (norm) {
        float squares = 0.0f;
#pragma unroll
        for (int t = 0; t < PAIRS; t++) squares = fmaf(v.first[t], v.first[t], fmaf(v.second[t], v.second[t], squares));
#pragma unroll
        for (int t = 0; t < PAIRS * 2; t++) squares = fmaf(v.rest[t], v.rest[t], squares);
#pragma unroll
        for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
        float inverse = 1.0f / sqrtf(squares / (float)args.head_dim + args.eps);
#pragma unroll
        for (int t = 0; t < PAIRS; t++) v.first[t] *= inverse * c.weight.first[t], v.second[t] *= inverse * c.weight.second[t];
#pragma unroll
        for (int t = 0; t < PAIRS * 2; t++) v.rest[t] *= inverse * c.weight.rest[t];
    }
#pragma unroll
    for (int t = 0; t < PAIRS; t++) {
        int32_t i = threadIdx.x % 32 + t * 32;
        if (i >= args.rotary_dim / 2) continue;
        // Whole turns go in double: at position 10^6 a float angle would be 0.06 off.
        double turns = (double)position * (double)c.frequency[t] * 0.15915494309189535;
        float sine, cosine, a = v.first[t], b = v.second[t];
        sincospif(2.0f * (float)(turns - rint(turns)), &sine, &cosine);
        emit(first_of(args, i), fmaf(a, cosine, -__fmul_rn(b, sine))); // written out: every kernel of this file gives the same bits
        emit(second_of(args, i), fmaf(b, cosine, __fmul_rn(a, sine)));
    }
#pragma unroll
    for (int t = 0; t < PAIRS * 2; t++) {
        int32_t d = args.rotary_dim + threadIdx.x % 32 + t * 32;
        if ((ALL || norm) && d < args.head_dim) emit(d, v.rest[t]);
    }
}

// What a warp has: one head of TOKENS tokens from `first` on, all of whose loads are in flight together.
template <int PAIRS, int TOKENS> struct head_run {
    int32_t first, head, position[TOKENS];
    head_constants<PAIRS> constants;
    head_values<PAIRS> values[TOKENS];
    __device__ __forceinline__ bool has(const rdk_rope_sm90a_args &args, int t) const { return first + t < args.tokens; }
    __device__ __forceinline__ void load(const rdk_rope_sm90a_args &args) {
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (!has(args, t)) continue;
            const head_view view = head_at(args, first + t, head);
            position[t] = __ldcg(args.positions + first + t);
            fill(args, values[t], [&](int32_t d) { return head_element(view, d); });
        }
    }
    __device__ __forceinline__ void turn_in_place(const rdk_rope_sm90a_args &args) {
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (!has(args, t)) continue;
            const head_view view = head_at(args, first + t, head);
            turn_head<PAIRS, false>(args, constants, view.norm != nullptr, values[t], position[t],
                                    [&](int32_t d, float x) { store_element(view.base, view.at + d, view.type, x); });
        }
    }
};
template <int TOKENS> __device__ __forceinline__ int32_t run_of_warp(int32_t heads, int32_t &head) {
    int32_t at = blockIdx.x * (RDK_ROW_THREADS / 32) + threadIdx.x / 32;
    head = at % heads;
    return at / heads * TOKENS;
}

template <int PAIRS, int TOKENS> __device__ __forceinline__ void rope(const rdk_rope_sm90a_args &args) {
    launch_dependents();
    head_run<PAIRS, TOKENS> run;
    run.first = run_of_warp<TOKENS>(args.q_heads + args.k_heads, run.head);
    load_constants(args, head_at(args, 0, run.head).norm, run.constants);
    wait_dependencies();
    run.load(args);
    run.turn_in_place(args);
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
    to.block = (uint32_t)slot / (uint32_t)args.block_tokens; // a slot that counts has 32 bits
    to.in_block = (uint32_t)slot % (uint32_t)args.block_tokens;
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
template <int PAIRS, int TOKENS> __device__ __forceinline__ void write_turned_k(const rdk_rope_kv_write_sm90a_args &args,
                                                                               head_run<PAIRS, TOKENS> &run) {
    int32_t kv_head = run.head - args.rope.q_heads;
    float scale = args.kv.k_scale ? args.kv.k_scale[kv_head] : 1.0f, inverse = __frcp_rn(scale);
    cached_token to[TOKENS];
    bool kept[TOKENS];
#pragma unroll
    for (int t = 0; t < TOKENS; t++) kept[t] = run.has(args.rope, t) && find_slot(args.kv, run.first + t, to[t]);
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        if (!kept[t]) continue;
        int64_t stride, at = k_cache_at(args.kv, to[t], kv_head, stride);
        turn_head<PAIRS, true>(args.rope, run.constants, args.rope.k_norm != nullptr, run.values[t], run.position[t],
                               [&](int32_t d, float x) {
            x = divide_by(rounded(x, args.rope.k_type), scale, inverse);
            if (args.kv.kv_type == RDK_E4M3)
                static_cast<unsigned char *>(args.kv.k_cache)[at + d * stride] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
            else
                store_element(args.kv.k_cache, at + d * stride, args.kv.kv_type, x);
        });
    }
}

template <int PAIRS, int TOKENS> __device__ __forceinline__ void rope_kv_write(const rdk_rope_kv_write_sm90a_args &args) {
    launch_dependents();
    int32_t turned = args.rope.q_heads + args.kv.kv_heads;
    head_run<PAIRS, TOKENS> run;
    run.first = run_of_warp<TOKENS>(turned + args.kv.kv_heads, run.head);
    if (run.head < turned) load_constants(args.rope, head_at(args.rope, 0, run.head).norm, run.constants);
    wait_dependencies();
    if (run.head < turned) {
        run.load(args.rope);
        if (run.head < args.rope.q_heads)
            run.turn_in_place(args.rope);
        else
            write_turned_k(args, run);
        return;
    }
    int32_t head = run.head - turned;
    for (int t = 0; t < TOKENS && run.has(args.rope, t); t++) {
        cached_token to;
        if (find_slot(args.kv, run.first + t, to))
            for (int32_t d = threadIdx.x % 32 * 8; d < args.kv.head_dim; d += 256) write_v(args.kv, to, run.first + t, head, d);
    }
}

#define HEAD_KERNELS(name_, dims_, tokens_)                                                                              \
    extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)                                                        \
        rdk_rope_sm90a_##name_(const __grid_constant__ rdk_rope_sm90a_args args) {                                       \
        rope<dims_ / 64, tokens_>(args);                                                                                 \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)                                                        \
        rdk_rope_kv_write_sm90a_##name_(const __grid_constant__ rdk_rope_kv_write_sm90a_args args) {                     \
        rope_kv_write<dims_ / 64, tokens_>(args);                                                                        \
    }
HEAD_KERNELS(d128, 128, 1)
HEAD_KERNELS(d256, 256, 1)
HEAD_KERNELS(d512, 512, 1)
HEAD_KERNELS(d128_many, 128, RDK_ROPE_TOKENS)
HEAD_KERNELS(d256_many, 256, RDK_ROPE_TOKENS)
