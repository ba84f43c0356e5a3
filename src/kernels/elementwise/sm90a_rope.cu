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

// What a frequency turns at each position, in 2^-64 of a turn: whole turns fall off the top of the product, and at position 10^6
// an angle is as good as at 0 (a float's would be 0.06 off).
__device__ __forceinline__ uint64_t turn_of(float frequency) {
    double turns = (double)frequency * 0.15915494309189535; // 1 / (2 pi)
    return __double2ull_rz((turns - floor(turns)) * 0x1p64);
}
__device__ __forceinline__ void sine_cosine(uint64_t turn, int32_t position, float &sine, float &cosine) {
    int32_t half_turns = (int32_t)((turn * (uint64_t)(int64_t)position) >> 32); // 2^-31 of one
    sincospif((float)half_turns * 0x1p-31f, &sine, &cosine);
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
    uint64_t turn[PAIRS];
    head_values<PAIRS> weight;
};
template <int PAIRS>
__device__ __forceinline__ void load_constants(const rdk_rope_sm90a_args &args, const void *norm, head_constants<PAIRS> &c) {
#pragma unroll
    for (int t = 0; t < PAIRS; t++) {
        int32_t i = threadIdx.x % 32 + t * 32;
        c.turn[t] = i < args.rotary_dim / 2 ? turn_of(args.inv_freq[i]) : 0;
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
        float inverse = inverse_root(fmaf(squares, reciprocal((float)args.head_dim), args.eps));
#pragma unroll
        for (int t = 0; t < PAIRS; t++) v.first[t] *= inverse * c.weight.first[t], v.second[t] *= inverse * c.weight.second[t];
#pragma unroll
        for (int t = 0; t < PAIRS * 2; t++) v.rest[t] *= inverse * c.weight.rest[t];
    }
#pragma unroll
    for (int t = 0; t < PAIRS; t++) {
        int32_t i = threadIdx.x % 32 + t * 32;
        if (i >= args.rotary_dim / 2) continue;
        float sine, cosine, a = v.first[t], b = v.second[t];
        sine_cosine(c.turn[t], position, sine, cosine);
        emit(first_of(args, i), fmaf(a, cosine, -__fmul_rn(b, sine))); // written out: every kernel of this file gives the same bits
        emit(second_of(args, i), fmaf(b, cosine, __fmul_rn(a, sine)));
    }
#pragma unroll
    for (int t = 0; t < PAIRS * 2; t++) {
        int32_t d = args.rotary_dim + threadIdx.x % 32 + t * 32;
        if ((ALL || norm) && d < args.head_dim) emit(d, v.rest[t]);
    }
}

// What a warp has: one head of one token.
template <int PAIRS> struct head_run {
    int32_t token, head, position;
    head_constants<PAIRS> constants;
    head_values<PAIRS> values;
    __device__ __forceinline__ head_run(int32_t heads) {
        int32_t at = blockIdx.x * (RDK_ROW_THREADS / 32) + threadIdx.x / 32;
        token = at / heads;
        head = at % heads;
    }
    __device__ __forceinline__ void load(const rdk_rope_sm90a_args &args) {
        const head_view view = head_at(args, token, head);
        position = __ldcg(args.positions + token);
        fill(args, values, [&](int32_t d) { return head_element(view, d); });
    }
    __device__ __forceinline__ void turn_in_place(const rdk_rope_sm90a_args &args) {
        const head_view view = head_at(args, token, head);
        turn_head<PAIRS, false>(args, constants, view.norm != nullptr, values, position,
                                [&](int32_t d, float x) { store_element(view.base, view.at + d, view.type, x); });
    }
};

template <int PAIRS> __device__ __forceinline__ void rope(const rdk_rope_sm90a_args &args) {
    launch_dependents();
    head_run<PAIRS> run(args.q_heads + args.k_heads);
    load_constants(args, head_at(args, 0, run.head).norm, run.constants);
    wait_dependencies();
    if (run.token >= args.tokens) return;
    run.load(args);
    run.turn_in_place(args);
}
#define ROPE_KERNEL(dims_)                                                                                               \
    extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)                                                        \
        rdk_rope_sm90a_d##dims_(const __grid_constant__ rdk_rope_sm90a_args args) {                                      \
        rope<dims_ / 64>(args);                                                                                          \
    }
ROPE_KERNEL(128)
ROPE_KERNEL(256)
ROPE_KERNEL(512)

// ---- kv_write -------------------------------------------------------------------------------------------------------------
struct kv_scale {
    float scale, inverse;
    kv_scale() = default;
    // Of a head; constants of the model, which need not wait.
    __device__ __forceinline__ kv_scale(const float *scales, int32_t head) {
        scale = scales ? scales[head] : 1.0f;
        inverse = __frcp_rn(scale);
    }
    __device__ __forceinline__ float apply(float x) const { return divide_by(x, scale, inverse); }
};

__device__ __forceinline__ void write_cache(void *cache, int type, int64_t at, int64_t stride, int32_t count, const kv_scale &scale,
                                            eight e) {
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = scale.apply(e.v[i]);
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

struct cached_token { int64_t block, in_block; }; // where a token goes

__device__ __forceinline__ int64_t slot_of(const rdk_kv_write_sm90a_args &args, int64_t token) {
    return __ldcg(reinterpret_cast<const long long *>(args.slots) + token);
}
// False: nowhere. A slot that counts has 32 bits; block_inverse: 2^64 / block_tokens, rounded up (Lemire, Kaser and Kurz, "Faster
// remainder by direct computation", 2019: exact for 32-bit operands from 2 on).
__device__ __forceinline__ bool find_slot(const rdk_kv_write_sm90a_args &args, int64_t slot, cached_token &to) {
    to.block = args.block_tokens == 1 ? (uint32_t)slot : (int64_t)__umul64hi((uint32_t)slot, args.block_inverse);
    to.in_block = (uint32_t)slot - (uint32_t)to.block * (uint32_t)args.block_tokens;
    return slot >= 0 && slot < args.capacity;
}

// Of dim 0; `stride` from a dim to the next. Interleaved: sixteen tokens of a dim side by side.
__device__ __forceinline__ int64_t k_cache_at(const rdk_kv_write_sm90a_args &args, cached_token to, int32_t head, int64_t &stride) {
    int64_t at = to.block * args.kc_stride_block + head * args.kc_stride_head;
    stride = args.k_interleave == 16 ? 16 : args.kc_stride_dim;
    return at + (args.k_interleave == 16 ? to.in_block / 16 * 16 * args.head_dim + to.in_block % 16
                                         : to.in_block * args.kc_stride_token);
}

__device__ __forceinline__ raw_eight load_v(const rdk_kv_write_sm90a_args &args, int type, int64_t token, int32_t head, int32_t d) {
    return load_raw(args.v, token * args.v_stride_token + head * args.v_stride_head + d, args.head_dim - d, type);
}
__device__ __forceinline__ void write_v(const rdk_kv_write_sm90a_args &args, cached_token to, int32_t head, int32_t d,
                                        const kv_scale &scale, const eight &v) {
    int64_t at = to.block * args.vc_stride_block + to.in_block * args.vc_stride_token + head * args.vc_stride_head +
                 d * args.vc_stride_dim;
    write_cache(args.v_cache, args.kv_type, at, args.vc_stride_dim, args.head_dim - d, scale, v);
}

// Grid (tokens, heads * dims / 8).
extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_kv_write_sm90a(const __grid_constant__ rdk_kv_write_sm90a_args args) {
    launch_dependents();
    int32_t lanes = (args.head_dim + 7) / 8, unit = blockIdx.y * RDK_ROW_THREADS + threadIdx.x;
    int32_t head = min(unit / lanes, args.kv_heads - 1), d = unit % lanes * 8;
    const kv_scale k_scale(args.k_scale, head), v_scale(args.v_scale, head);
    int64_t token = blockIdx.x, stride;
    cached_token to;
    wait_dependencies();
    if (unit / lanes >= args.kv_heads) return;
    int64_t slot = slot_of(args, token);
    eight k = load_eight(args.k, token * args.k_stride_token + head * args.k_stride_head + d, args.head_dim - d, args.x_type);
    raw_eight v = load_v(args, args.x_type, token, head, d);
    if (!find_slot(args, slot, to)) return;
    int64_t at = k_cache_at(args, to, head, stride);
    write_v(args, to, head, d, v_scale, unpack(v, args.x_type));
    write_cache(args.k_cache, args.kv_type, at + d * stride, stride, args.head_dim - d, k_scale, k);
}

// ---- both -----------------------------------------------------------------------------------------------------------------
// A turned, rounded element of k to its place in the cache.
struct k_place {
    void *cache;
    int64_t at, stride;
    kv_scale scale;
    int type;
    __device__ __forceinline__ k_place(const rdk_kv_write_sm90a_args &args, cached_token to, int32_t head, const kv_scale &scale)
        : cache(args.k_cache), scale(scale), type(args.kv_type) {
        at = k_cache_at(args, to, head, stride);
    }
    __device__ __forceinline__ void put(int32_t d, float x) const {
        x = scale.apply(x);
        if (type == RDK_E4M3)
            static_cast<unsigned char *>(cache)[at + d * stride] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
        else
            store_element(cache, at + d * stride, type, x);
    }
    __device__ __forceinline__ void put_two(int32_t d, float2 x) const { // neighbours
        if (type != RDK_E4M3 || stride != 1 || (at + d) % 2) {
            put(d, x.x);
            put(d + 1, x.y);
            return;
        }
        x = make_float2(scale.apply(x.x), scale.apply(x.y));
        reinterpret_cast<unsigned short *>(cache)[(at + d) / 2] = __nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, __NV_E4M3);
    }
};

// Any types and sizes: a warp a head.
extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)
    rdk_rope_kv_write_sm90a_any(const __grid_constant__ rdk_rope_kv_write_sm90a_args args) {
    launch_dependents();
    int32_t q_heads = args.rope.q_heads, kv_heads = args.kv.kv_heads;
    head_run<8> run(q_heads + 2 * kv_heads);
    bool of_v = run.head >= q_heads + kv_heads;
    if (!of_v) load_constants(args.rope, head_at(args.rope, 0, run.head).norm, run.constants);
    wait_dependencies();
    cached_token to;
    if (run.token >= args.rope.tokens) return;
    if (run.head < q_heads) {
        run.load(args.rope);
        run.turn_in_place(args.rope);
    } else if (find_slot(args.kv, slot_of(args.kv, run.token), to)) {
        int32_t head = run.head - q_heads - (of_v ? kv_heads : 0);
        uint64_t k_scales = (uint64_t)args.kv.k_scale, v_scales = (uint64_t)args.kv.v_scale; // integers: see head_at
        const kv_scale scale(reinterpret_cast<const float *>(of_v ? v_scales : k_scales), head);
        if (of_v) {
            for (int32_t d = threadIdx.x % 32 * 8; d < args.kv.head_dim; d += 256)
                write_v(args.kv, to, head, d, scale, unpack(load_v(args.kv, args.kv.x_type, run.token, head, d), args.kv.x_type));
            return;
        }
        run.load(args.rope);
        const k_place place(args.kv, to, head, scale);
        turn_head<8, true>(args.rope, run.constants, args.rope.k_norm != nullptr, run.values, run.position,
                           [&](int32_t d, float x) { place.put(d, rounded(x, args.rope.k_type)); });
    }
}

// Two neighbours as they lie in memory.
template <int TYPE> struct head_pair {
    static constexpr int bytes = 4;
    uint32_t word;
    __device__ __forceinline__ void load(const char *from) { word = __ldcg(reinterpret_cast<const unsigned int *>(from)); }
    __device__ __forceinline__ float2 wide() const { return unpack_pair(word, TYPE); }
    static __device__ __forceinline__ head_pair of(float2 x) { return {TYPE == RDK_F16 ? pack_f16(x.x, x.y) : pack_bf16(x.x, x.y)}; }
    __device__ __forceinline__ void store(char *to) const { *reinterpret_cast<uint32_t *>(to) = word; }
};
template <> struct head_pair<RDK_F32> {
    static constexpr int bytes = 8;
    float2 word;
    __device__ __forceinline__ void load(const char *from) { word = __ldcg(reinterpret_cast<const float2 *>(from)); }
    __device__ __forceinline__ float2 wide() const { return word; }
    static __device__ __forceinline__ head_pair of(float2 x) { return {x}; }
    __device__ __forceinline__ void store(char *to) const { *reinterpret_cast<float2 *>(to) = word; }
};

// Heads whose halves are whole pairs, turned by halves (not interleaved): a lane takes two neighbours at once, and a warp up to HEADS
// heads of a token's q, k or v, which share the token's angles. WORDS: pairs of pairs a lane; heads of up to 128 * WORDS dims.
template <int WORDS> struct head_words { // words 0 .. WORDS - 1: of first halves; up to 2 WORDS - 1: of second ones; then the rest
    template <typename F> static __device__ __forceinline__ void each(const rdk_rope_sm90a_args &args, F f) { // f(word, dim)
        int32_t lane = threadIdx.x % 32, half = args.rotary_dim / 2;
#pragma unroll
        for (int t = 0; t < WORDS; t++)
            if (lane * 2 + t * 64 < half) f(t, lane * 2 + t * 64), f(WORDS + t, lane * 2 + t * 64 + half);
#pragma unroll
        for (int t = 0; t < WORDS * 2; t++) {
            int32_t d = args.rotary_dim + lane * 2 + t * 64;
            if (d < args.head_dim) f(WORDS * 2 + t, d);
        }
    }
};

template <int TYPE, int WORDS, int HEADS> struct heads_of_token {
    static constexpr int all = WORDS * 4, elem = head_pair<TYPE>::bytes / 2;
    float2 cosine[WORDS], sine[WORDS]; // frequencies at first
    ulonglong2 step[WORDS];            // turn_of both
    float2 weight[all];                // at first as they lie in memory, a 16-bit pair in x
    head_pair<TYPE> word[HEADS][all];

    // All of them are asked for before any is looked at.
    __device__ __forceinline__ void load_constants(const rdk_rope_sm90a_args &args, const void *norm) {
#pragma unroll
        for (int t = 0; t < WORDS; t++) {
            int32_t i = threadIdx.x % 32 * 2 + t * 64;
            cosine[t] = make_float2(0.0f, 0.0f);
            if (i < args.rotary_dim / 2) cosine[t] = make_float2(args.inv_freq[i], args.inv_freq[i + 1]);
        }
        if (norm && args.norm_type == RDK_F32)
            head_words<WORDS>::each(args, [&](int w, int32_t d) {
                const float *from = static_cast<const float *>(norm) + d;
                weight[w] = make_float2(from[0], from[1]);
            });
        else if (norm)
            head_words<WORDS>::each(args, [&](int w, int32_t d) { weight[w].x = static_cast<const float *>(norm)[d / 2]; });
    }
    __device__ __forceinline__ void take_frequencies() {
#pragma unroll
        for (int t = 0; t < WORDS; t++) step[t] = make_ulonglong2(turn_of(cosine[t].x), turn_of(cosine[t].y));
    }
    __device__ __forceinline__ void take_constants(const rdk_rope_sm90a_args &args) {
        if (HEADS == 1) take_frequencies();
#pragma unroll
        for (int w = 0; w < all; w++) {
            if (args.norm_type != RDK_F32) weight[w] = unpack_pair(__float_as_uint(weight[w].x), args.norm_type);
            weight[w].x += args.weight_offset, weight[w].y += args.weight_offset;
        }
    }
    __device__ __forceinline__ void load(const rdk_rope_sm90a_args &args, const void *base, int64_t at, int64_t stride_head,
                                         int32_t heads) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
#pragma unroll
            for (int w = 0; w < all; w++) word[h][w] = {};
            if (h >= heads) continue;
            const char *from = static_cast<const char *>(base) + (at + h * stride_head) * elem;
            head_words<WORDS>::each(args, [&](int w, int32_t d) { word[h][w].load(from + d * elem); });
        }
    }
    __device__ __forceinline__ void angles(int32_t position) {
        if (HEADS != 1) take_frequencies(); // later, for want of registers
#pragma unroll
        for (int t = 0; t < WORDS; t++) {
            sine_cosine(step[t].x, position, sine[t].x, cosine[t].x);
            sine_cosine(step[t].y, position, sine[t].y, cosine[t].y);
        }
    }
    // emit(head, dim, two neighbours) for each dim.
    template <typename F>
    __device__ __forceinline__ void turn(const rdk_rope_sm90a_args &args, bool norm, int32_t heads, F emit) {
        float squares[HEADS], inverse[HEADS];
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            squares[h] = 0.0f;
#pragma unroll
            for (int w = 0; w < all; w++) {
                const float2 x = word[h][w].wide();
                squares[h] = fmaf(x.x, x.x, fmaf(x.y, x.y, squares[h]));
            }
        }
#pragma unroll
        for (int step = 16; step; step /= 2)
#pragma unroll
            for (int h = 0; h < HEADS; h++) squares[h] += __shfl_xor_sync(0xffffffffu, squares[h], step);
#pragma unroll
        for (int h = 0; h < HEADS; h++) inverse[h] = inverse_root(fmaf(squares[h], reciprocal((float)args.head_dim), args.eps));
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (h >= heads) continue;
            float2 x[all];
#pragma unroll
            for (int w = 0; w < all; w++) {
                x[w] = word[h][w].wide();
                if (norm) x[w].x *= inverse[h] * weight[w].x, x[w].y *= inverse[h] * weight[w].y;
            }
#pragma unroll
            for (int t = 0; t < WORDS; t++) {
                float2 a = x[t], b = x[WORDS + t];
                x[t].x = fmaf(a.x, cosine[t].x, -__fmul_rn(b.x, sine[t].x)), x[t].y = fmaf(a.y, cosine[t].y, -__fmul_rn(b.y, sine[t].y));
                x[WORDS + t].x = fmaf(b.x, cosine[t].x, __fmul_rn(a.x, sine[t].x));
                x[WORDS + t].y = fmaf(b.y, cosine[t].y, __fmul_rn(a.y, sine[t].y));
            }
            head_words<WORDS>::each(args, [&](int w, int32_t d) { emit(h, d, x[w]); });
        }
    }
};

template <int TYPE, int WORDS, int HEADS>
__device__ __forceinline__ void rope_kv_write_pairs(const rdk_rope_kv_write_sm90a_args &args) {
    launch_dependents();
    const rdk_rope_sm90a_args &rope = args.rope;
    int32_t q_groups = (rope.q_heads + HEADS - 1) / HEADS, kv_groups = (args.kv.kv_heads + HEADS - 1) / HEADS;
    int32_t at = blockIdx.x * (RDK_ROW_THREADS / 32) + threadIdx.x / 32, groups = q_groups + 2 * kv_groups;
    int32_t token = at / groups, group = at % groups;
    bool of_q = group < q_groups, of_v = group >= q_groups + kv_groups;
    int32_t head = (of_q ? group : of_v ? group - q_groups - kv_groups : group - q_groups) * HEADS;
    int32_t heads = min(HEADS, (of_q ? rope.q_heads : args.kv.kv_heads) - head);
    uint64_t q_norm = (uint64_t)rope.q_norm, k_norm = (uint64_t)rope.k_norm, norm = of_q ? q_norm : k_norm;
    heads_of_token<TYPE, WORDS, HEADS> run;
    if (!of_v) run.load_constants(rope, reinterpret_cast<const void *>(norm));
    uint64_t k_scales = (uint64_t)args.kv.k_scale, v_scales = (uint64_t)args.kv.v_scale; // integers: see head_at
    const float *scales = reinterpret_cast<const float *>(of_v ? v_scales : of_q ? 0 : k_scales);
    const kv_scale scale = HEADS == 1 ? kv_scale(scales, head) : kv_scale();
    if (!of_v) run.take_constants(rope);
    if (!rope.tables_settled || token >= rope.tokens) wait_dependencies();
    if (token >= rope.tokens) return;
    int64_t slot = of_q ? 0 : slot_of(args.kv, token); // everything is asked for before anything is waited for
    int32_t position = of_v ? 0 : __ldcg(rope.positions + token);
    cached_token to = {};
    const auto scale_of = [&](int h) { return HEADS == 1 ? scale : kv_scale(scales, head + h); };
    if (of_v) {
        constexpr int32_t turns = (HEADS * WORDS + 1) / 2; // of up to 16 * WORDS pieces a head
        int32_t pieces = (args.kv.head_dim + 7) / 8, lane = threadIdx.x % 32;
        raw_eight v[turns];
        wait_dependencies();
#pragma unroll
        for (int t = 0; t < turns; t++) {
            int32_t p = lane + t * 32;
            if (p < heads * pieces) v[t] = load_v(args.kv, TYPE, token, head + p / pieces, p % pieces * 8);
        }
        if (!find_slot(args.kv, slot, to)) return;
#pragma unroll
        for (int t = 0; t < turns; t++) {
            int32_t p = lane + t * 32, h = p / pieces;
            if (p < heads * pieces) write_v(args.kv, to, head + h, p % pieces * 8, scale_of(h), unpack(v[t], TYPE));
        }
        return;
    }
    uint64_t q = (uint64_t)rope.q, k = (uint64_t)rope.k; // integers: see head_at
    int64_t stride_head = of_q ? rope.q_stride_head : rope.k_stride_head;
    int64_t from = token * (of_q ? rope.q_stride_token : rope.k_stride_token) + head * stride_head;
    void *const base = reinterpret_cast<void *>(of_q ? q : k);
    if (rope.tables_settled) run.angles(position);
    wait_dependencies();
    run.load(rope, base, from, stride_head, heads);
    if (!rope.tables_settled) run.angles(position);
    if (!of_q && !find_slot(args.kv, slot, to)) return;
    run.turn(rope, norm != 0, heads, [&](int h, int32_t d, float2 x) {
        if (!of_q)
            k_place(args.kv, to, head + h, scale_of(h)).put_two(d, head_pair<TYPE>::of(x).wide());
        else if (norm || d < rope.rotary_dim)
            head_pair<TYPE>::of(x).store(static_cast<char *>(base) + (from + h * stride_head + d) * run.elem);
    });
}

#define PAIR_KERNELS(type_, type_code_)                                                                                  \
    PAIR_KERNEL(type_, type_code_, 1, 1, d128)                                                                           \
    PAIR_KERNEL(type_, type_code_, 1, RDK_ROPE_HEADS, d128_many)                                                                      \
    PAIR_KERNEL(type_, type_code_, 2, 1, d256)                                                                           \
    PAIR_KERNEL(type_, type_code_, 2, RDK_ROPE_HEADS / 2, d256_many)
#define PAIR_KERNEL(type_, type_code_, words_, heads_, size_)                                                            \
    extern "C" __global__ void __launch_bounds__(RDK_ROW_THREADS)                                                        \
        rdk_rope_kv_write_sm90a_##type_##_##size_(const __grid_constant__ rdk_rope_kv_write_sm90a_args args) {           \
        rope_kv_write_pairs<type_code_, words_, heads_>(args);                                                           \
    }
PAIR_KERNELS(f32, RDK_F32)
PAIR_KERNELS(bf16, RDK_BF16)
PAIR_KERNELS(f16, RDK_F16)
