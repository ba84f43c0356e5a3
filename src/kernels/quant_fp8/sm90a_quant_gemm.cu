// SPDX-License-Identifier: Apache-2.0
// The step GEMM for one to four tokens that quantises them itself: alone, after rmsnorm or after silu*mul, and adds its product
// to what the output holds when asked. A launch of a few rows between two GEMMs costs a decode step 2 to 4 us of an idle memory;
// here every block does the work of that launch for the tokens' k blocks that it needs, while its ring fills with weights.
//
// The cut of the weights, the products and the order of all sums are those of sm90a_gemm_step.cu, the codes those of quant_fp8:
// the result has the bits of the launches that it stands for.
#include "kernels/common/sm90a_codes.cuh"
#include "kernels/gemm_fp8block/sm90a_step.cuh"
#include "kernels/quant_fp8/sm90a_quant_gemm.h"

// d (64 weight rows x 8 tokens) = a b^T + (accumulate ? d : 0). b without swizzle: the upper half of its descriptor is zero.
__device__ __forceinline__ void multiply_step(float (&d)[4], uint32_t a, uint32_t b, int accumulate) {
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 p, %6, 0;\n\t"
                 "mov.b64 a, {%4, 0x40000040};\n\tmov.b64 b, {%5, 0x00000008};\n\t"
                 "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, a, b, p, 1, 1;\n\t}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a), "r"(b), "r"(accumulate));
}

template <int TOKENS, int GROUPS> struct fused {
    static constexpr int threads = GROUPS * 128 + 32, workers = GROUPS * 128, warps = GROUPS * 4;
    static constexpr int weight_bytes = GROUPS * GROUP_BYTES, slot_bytes = TOKENS * K_BLOCK;
    static constexpr int piece_bytes = TOKENS * 16; // of 16 bytes of k of all tokens
    static constexpr int norm_rounds = 16 / warps;  // of 512 elements a warp: rows of up to 8192
    static constexpr int most_at_once = 8;          // loads of a lane, of each operand

    unsigned char *tiles, *codes;
    float *token_scale, *weight_scale, *turn, *squares;
    uint64_t *full, *empty;
    int32_t range, begin, end;

    __device__ __forceinline__ explicit fused(const rdk_quant_gemm_sm90a_args &args) {
        extern __shared__ unsigned char shared_bytes[];
        tiles = shared_bytes + (1024 - smem_address(shared_bytes) % 1024) % 1024;
        codes = tiles + args.stages * weight_bytes;
        full = reinterpret_cast<uint64_t *>(codes + args.slots * slot_bytes + RDK_QUANT_GEMM_PAD_BYTES);
        empty = full + args.stages;
        turn = reinterpret_cast<float *>(empty + args.stages);
        squares = turn + GROUPS * TOKENS * RDK_STEP_TURN_PITCH;
        weight_scale = squares + 16;
        token_scale = weight_scale + (args.range_units + 1 + 3) / 4 * 4;
        // Lower blocks start first and take the later runs: who waits for partials waits for blocks that run already.
        range = args.ranges - 1 - (int32_t)blockIdx.x / 2, begin = range_begin(args, range), end = range_begin(args, range + 1);
    }
    // Where the tokens of a unit stand.
    __device__ __forceinline__ int32_t slot_of(const rdk_quant_gemm_sm90a_args &args, int32_t unit) const {
        return args.slots == args.k_blocks ? unit % args.k_blocks : unit - begin;
    }
    __device__ __forceinline__ void keep(int32_t slot, int token, int32_t in_block, uint2 value, float scale) const {
        *reinterpret_cast<uint2 *>(codes + slot * slot_bytes + in_block / 16 * piece_bytes + token * 16 + in_block % 16) = value;
        if (threadIdx.x % 16 == 0) token_scale[slot * TOKENS + token] = scale;
    }
};

template <int TOKENS, int GROUPS> __device__ __forceinline__ void stream_weights(const rdk_quant_gemm_sm90a_args &args, const fused<TOKENS, GROUPS> &f) {
    using s = fused<TOKENS, GROUPS>;
    if (threadIdx.x % 32) return;
    uint64_t policy = policy_evict_first();
    int32_t tile = f.begin / args.k_blocks, kb = f.begin - tile * args.k_blocks, slot = 0;
    uint32_t parity = 1;
    for (int32_t unit = f.begin; unit < f.end; unit++) {
        if (unit == f.end - args.trigger) launch_dependents();
        if (unit == f.begin + args.stages) // the ring is full and the tokens may be far
            for (int32_t next = unit; next < unit + args.ahead && next < f.end; next++)
                prefetch_box(args.w_map, next % args.k_blocks * K_BLOCK, own_tile(next / args.k_blocks) * GROUPS * GROUP_ROWS);
        barrier_wait(&f.empty[slot], parity);
        barrier_expect(&f.full[slot], s::weight_bytes);
        copy_box_once(f.tiles + slot * s::weight_bytes, args.w_map, &f.full[slot], kb * K_BLOCK, own_tile(tile) * GROUPS * GROUP_ROWS,
                      policy);
        if (++slot == args.stages) slot = 0, parity ^= 1;
        if (++kb == args.k_blocks) kb = 0, tile++;
    }
    ask_soon(args);
}

// ---- the tokens --------------------------------------------------------------------------------------------------------
// Each group of 128 is on its own: sixteen lanes take the k blocks of this run in turn, several loads in flight.
template <bool SILU, int TOKENS, int GROUPS>
__device__ __forceinline__ void quantise_groups(const rdk_quant_gemm_sm90a_args &args, const fused<TOKENS, GROUPS> &f) {
    using s = fused<TOKENS, GROUPS>;
    constexpr int at_once = SILU ? s::most_at_once / 2 : s::most_at_once;
    const int32_t count = min(f.end - f.begin, args.k_blocks) * args.m, first = threadIdx.x / 16, lane = threadIdx.x % 16 * 8;
    wait_dependencies();
    for (int32_t item = first; item < count + first; item += s::workers / 16 * at_once) { // whole warps, for their shuffles
        raw_eight x[at_once], up[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            int32_t mine = item + i * (s::workers / 16), token = mine % args.m, at = (f.begin + mine / args.m) % args.k_blocks * K_BLOCK + lane;
            int32_t left = mine < count ? args.k - at : 0;
            x[i] = load_raw(args.x, token * args.x_stride + at, left, args.x_type);
            if (SILU) up[i] = load_raw(args.up, token * args.up_stride + at, left, args.up_type);
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            int32_t mine = item + i * (s::workers / 16);
            eight e = unpack(x[i], args.x_type);
            if (SILU) {
                eight factor = unpack(up[i], args.up_type);
#pragma unroll
                for (int j = 0; j < 8; j++) e.v[j] = e.v[j] / (1.0f + expf(-e.v[j])) * factor.v[j];
            }
            uint2 codes;
            float scale = quantise_eight(e, codes);
            if (mine < count) f.keep(f.slot_of(args, f.begin + mine / args.m), mine % args.m, lane, codes, scale);
        }
    }
}

// ---- the products ------------------------------------------------------------------------------------------------------
template <int TOKENS, int GROUPS> struct multiplier {
    using s = fused<TOKENS, GROUPS>;
    const rdk_quant_gemm_sm90a_args &args;
    const s &f;
    int group;
    bool holds;              // this lane has columns of tokens
    uint32_t head_slot, head_parity, tail_slot; // of the ring
    uint32_t head_token, tail_token;            // slots of tokens
    int32_t unit;

    __device__ __forceinline__ void next_token(uint32_t &slot) const {
        if (++slot == (uint32_t)args.slots) slot = 0;
    }
    __device__ __forceinline__ void issue(float (&acc)[4]) {
        barrier_wait(&f.full[head_slot], head_parity);
        uint32_t weights = wgmma_descriptor(f.tiles + head_slot * s::weight_bytes + group * GROUP_BYTES);
        uint32_t tokens = (smem_address(f.codes) + head_token * s::slot_bytes) >> 4 | (uint32_t)TOKENS << 16;
        wgmma_pin(acc);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < K_BLOCK / 32; step++)
            multiply_step(acc, weights + step * 2, tokens + step * 2 * TOKENS, step != 0);
        wgmma_commit();
        if (++head_slot == (uint32_t)args.stages) head_slot = 0, head_parity ^= 1;
        next_token(head_token);
    }
    // sum = fma(block sum, As * Ws, sum), then the stage is free. LEFT younger blocks stay in flight.
    template <int LEFT> __device__ __forceinline__ void promote(float (&acc)[4], float (&sum)[4]) {
        const float weight = f.weight_scale[unit - f.begin];
        const float *token = f.token_scale + tail_token * TOKENS + (holds ? threadIdx.x % 4 * 2 : 0);
        float scale[2] = {token[0] * weight, TOKENS > 1 ? token[1] * weight : 0.0f};
        wgmma_wait<LEFT>();
        wgmma_pin(acc);
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] = fmaf(acc[i], scale[i % 2], sum[i]);
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(&f.empty[tail_slot]);
        if (++tail_slot == (uint32_t)args.stages) tail_slot = 0;
        next_token(tail_token);
        unit++;
    }
    __device__ __forceinline__ void segment(int32_t count, float (&sum)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] = 0.0f;
        float even[4], odd[4];
        issue(even);
        int32_t i = 0;
        for (; i + 2 < count; i += 2) {
            issue(odd);
            promote<1>(even, sum);
            issue(even);
            promote<1>(odd, sum);
        }
        if (i + 1 < count) {
            issue(odd);
            promote<1>(even, sum);
            promote<0>(odd, sum);
        } else {
            promote<0>(even, sum);
        }
    }

    // Sums of the tokens that there are: one word of two rows a lane, or two words of two tokens each.
    static constexpr int words = TOKENS == 1 ? 1 : 2;
    __device__ __forceinline__ uint4 *partial(int32_t of) const {
        return static_cast<uint4 *>(args.partials) + (int64_t)(own_tile(of) * GROUPS + group) * 2 * 128 + threadIdx.x % 128;
    }
    __device__ __forceinline__ void leave(const float (&sum)[4]) const {
        uint4 *to = partial(range());
#pragma unroll
        for (int j = 0; j < words; j++)
            store_relaxed(to + j * 128, make_uint4(__float_as_uint(sum[j * 2]), TAG, __float_as_uint(sum[TOKENS == 1 ? 2 : j * 2 + 1]), TAG));
    }
    __device__ __forceinline__ int32_t range() const {
        return f.range;
    }
    __device__ __forceinline__ void add(uint4 *first, uint4 *second, float (&sum)[4]) const {
        const uint4 none = make_uint4(0, TAG, 0, TAG), free_again = make_uint4(0, 0, 0, 0);
        uint4 a[words], b[words];
        bool there;
        do {
            there = true;
#pragma unroll
            for (int j = 0; j < words; j++) {
                a[j] = load_relaxed(first + j * 128);
                b[j] = second ? load_relaxed(second + j * 128) : none;
            }
#pragma unroll
            for (int j = 0; j < words; j++) there = there && a[j].y == TAG && a[j].w == TAG && b[j].y == TAG && b[j].w == TAG;
        } while (!there);
#pragma unroll
        for (int j = 0; j < words; j++) {
            float *low = sum + j * 2, *high = sum + (TOKENS == 1 ? 2 : j * 2 + 1);
            store_relaxed(first + j * 128, free_again);
            *low += __uint_as_float(a[j].x), *high += __uint_as_float(a[j].z);
            if (!second) continue;
            store_relaxed(second + j * 128, free_again);
            *low += __uint_as_float(b[j].x), *high += __uint_as_float(b[j].z);
        }
    }

    __device__ __forceinline__ float4 held(int32_t token, int32_t row) const {
        float4 v = make_float4(0, 0, 0, 0);
        float *value = &v.x;
        const float *from = static_cast<const float *>(args.c) + token * args.c_stride + row;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (args.accumulate && token < args.m && row + i < args.n) value[i] = __ldcg(from + i);
        return v;
    }
    // The tile stands with weight rows across the lanes; the output wants them side by side.
    __device__ __forceinline__ void store(int32_t first_row, const float (&sum)[4], float4 before) const {
        int32_t thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4, token = thread % 4 * 2;
        float *turn = f.turn + group * TOKENS * RDK_STEP_TURN_PITCH;
        group_sync(group);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (token + i % 2 < TOKENS) turn[(token + i % 2) * RDK_STEP_TURN_PITCH + row + i / 2 * 8] = sum[i];
        group_sync(group);
        int32_t to = thread / 16, at = thread % 16 * 4;
        if (to >= args.m || first_row + at >= args.n) return;
        float4 v = *reinterpret_cast<const float4 *>(&turn[to * RDK_STEP_TURN_PITCH + at]);
        if (args.accumulate) v.x += before.x, v.y += before.y, v.z += before.z, v.w += before.w;
        store_four(args, to, first_row + at, v);
    }

    __device__ __forceinline__ void run() {
        for (; unit < f.end;) {
            int32_t tile = unit / args.k_blocks, kb = unit - tile * args.k_blocks, tile_end = (tile + 1) * args.k_blocks;
            int32_t count = min(f.end, tile_end) - unit, row = (own_tile(tile) * GROUPS + group) * GROUP_ROWS;
            float sum[4];
            segment(count, sum);
            if (kb) {
                if (holds) leave(sum);
                continue;
            }
            float4 before = held(threadIdx.x % 128 / 16, row + threadIdx.x % 16 * 4);
            for (int32_t other = range() + 1; holds && range_begin(args, other) < tile_end; other += 2)
                add(partial(other), range_begin(args, other + 1) < tile_end ? partial(other + 1) : nullptr, sum);
            __syncwarp();
            store(row, sum, before);
        }
    }
};

template <int FUSE, int TOKENS, int GROUPS> __device__ __forceinline__ void fused_block(const rdk_quant_gemm_sm90a_args &args) {
    using s = fused<TOKENS, GROUPS>;
    s f(args);
    if (args.trigger > f.end - f.begin) launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < args.stages; i++) {
            barrier_init(&f.full[i], 1);
            barrier_init(&f.empty[i], s::warps);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x / 32 == s::warps) {
        stream_weights(args, f);
        return;
    }
    for (int32_t i = threadIdx.x; i < f.end - f.begin; i += s::workers) {
        int32_t unit = f.begin + i, tile = unit / args.k_blocks, kb = unit - tile * args.k_blocks, row = own_tile(tile) * GROUPS * GROUP_ROWS;
        f.weight_scale[i] = row < args.n ? load_scale(args.w_scale, row / K_BLOCK * args.w_scale_stride_n + kb * args.w_scale_stride_k, args.w_scale_e8m0 != 0)
                                         : 0.0f;
    }
    quantise_groups(args, f);
    fence_async();
    named_sync(3, s::workers);
    int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    uint32_t first = (uint32_t)f.slot_of(args, f.begin);
    multiplier<TOKENS, GROUPS> mul = {args, f, group, threadIdx.x % 4 * 2 < TOKENS, 0, 0, 0, first, first, f.begin};
    mul.run();
}

#define FUSED_KERNEL(name_, fuse_, tokens_, groups_)                                                                     \
    extern "C" __global__ void __launch_bounds__(fused<tokens_, groups_>::threads, 2) name_(                             \
        const __grid_constant__ rdk_quant_gemm_sm90a_args args) {                                                              \
        fused_block<fuse_, tokens_, groups_>(args);                                                                      \
    }
#define FUSED_KERNELS(tokens_)                                                                                           \
    FUSED_KERNEL(rdk_quant_gemm_fp8block_step_sm90a_none_t##tokens_##_r64, RDK_QUANT_GEMM_NONE, tokens_, 1)                         \
    FUSED_KERNEL(rdk_quant_gemm_fp8block_step_sm90a_none_t##tokens_##_r128, RDK_QUANT_GEMM_NONE, tokens_, 2)                        \
    FUSED_KERNEL(rdk_quant_gemm_fp8block_norm_step_sm90a_t##tokens_##_r64, RDK_QUANT_GEMM_NORM, tokens_, 1)                         \
    FUSED_KERNEL(rdk_quant_gemm_fp8block_norm_step_sm90a_t##tokens_##_r128, RDK_QUANT_GEMM_NORM, tokens_, 2)                        \
    FUSED_KERNEL(rdk_quant_gemm_fp8block_step_sm90a_silu_t##tokens_##_r64, RDK_QUANT_GEMM_SILU, tokens_, 1)                         \
    FUSED_KERNEL(rdk_quant_gemm_fp8block_step_sm90a_silu_t##tokens_##_r128, RDK_QUANT_GEMM_SILU, tokens_, 2)
FUSED_KERNELS(1)
FUSED_KERNELS(2)
FUSED_KERNELS(4)
