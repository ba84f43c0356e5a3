// SPDX-License-Identifier: Apache-2.0
// The second launch of decode attention: partial results of a row's chunks, added up in order of position.
#ifndef RDK_ATTN_SM90A_DECODE_MERGE_CUH
#define RDK_ATTN_SM90A_DECODE_MERGE_CUH

#include "kernels/attn/sm90a_decode_tile.cuh"
#include "kernels/common/sm90a_codes.cuh"

// A lane's neighbouring dims of a partial result as they lie in memory, 16 bytes.
template <bool FP8> struct average {
    static constexpr int dims = FP8 ? 8 : 4;
    uint4 raw;
    __device__ __forceinline__ void load(const void *averages, int64_t at) {
        raw = __ldcg(
            reinterpret_cast<const uint4 *>(static_cast<const unsigned char *>(averages) + at * (16 / dims)));
    }
    __device__ __forceinline__ void widen(float (&x)[dims]) const {
        const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if constexpr (FP8) {
                const float2 two = __half22float2(*reinterpret_cast<const __half2 *>(word + i));
                x[i * 2] = two.x, x[i * 2 + 1] = two.y;
            } else
                x[i] = __uint_as_float(word[i]);
    }
};

// Partial results added up so far, under their largest logit.
template <int DIMS> struct merged {
    float top, weight, sum[DIMS]; // sum: weighted
    __device__ __forceinline__ void add(float other_top, float other_weight, const float (&part)[DIMS],
                                        float by) {
        float high = fmaxf(top, other_top), base = high == -INFINITY ? 0.0f : high;
        float keep = power_of_two(top - base), take = power_of_two(other_top - base);
        top = high;
        weight = fmaf(other_weight, take, weight * keep);
        take *= by;
#pragma unroll
        for (int i = 0; i < DIMS; i++) sum[i] = fmaf(part[i], take, sum[i] * keep);
    }
};

// A lane's sums of all groups, in order, under the largest logit of them all.
template <int DIMS>
__device__ __forceinline__ merged<DIMS>
all_groups(const float2 *states, const float (*sums)[RDK_ATTN_MERGE_LANES][DIMS], int32_t lane) {
    merged<DIMS> sum = {-INFINITY, 0.0f, {}};
#pragma unroll
    for (int g = 0; g < RDK_ATTN_MERGE_GROUPS; g++) sum.top = fmaxf(sum.top, states[g].x);
    float base = sum.top == -INFINITY ? 0.0f : sum.top;
#pragma unroll
    for (int g = 0; g < RDK_ATTN_MERGE_GROUPS; g++) {
        float take = power_of_two(states[g].x - base);
        sum.weight = fmaf(states[g].y, take, sum.weight);
#pragma unroll
        for (int i = 0; i < DIMS; i++) sum.sum[i] = fmaf(sums[g][lane][i], take, sum.sum[i]);
    }
    return sum;
}

// A head's sink and scale, constants of the model that need not wait, come into the first-level cache: read first at the end they would
// cost a way to memory, and kept from here on two registers.
__device__ __forceinline__ void read_and_forget(const float *place) {
    asm volatile("{\n\t.reg .f32 value;\n\tld.global.ca.f32 value, [%0];\n\t}" ::"l"(place));
}
__device__ __forceinline__ void touch_constants(const rdk_attn_sm90a_args &args, int32_t dims) {
    int32_t slices = (args.head_dim + RDK_ATTN_MERGE_LANES * dims - 1) / (RDK_ATTN_MERGE_LANES * dims);
    int32_t head = blockIdx.x / slices;
    if (args.sinks) read_and_forget(args.sinks + head);
    if (args.v_scale) read_and_forget(args.v_scale + head / args.group);
}

// A block takes 128 (e4m3 caches) or 64 neighbouring dims of a row; a group of 16 lanes adds up every sixteenth chunk, and the sixteen
// sums meet in order. Partial results are asked for before the length is known: they are at hand when it is. CODES: the 128 dims leave
// as codes and their scale, made by the whole first warp.
template <bool FP8, bool CODES> __device__ __forceinline__ void merge(const rdk_attn_sm90a_args &args) {
    using part_type = average<FP8>;
    constexpr int ahead = 5, dims = part_type::dims;
    __shared__ float sums[RDK_ATTN_MERGE_GROUPS][RDK_ATTN_MERGE_LANES][dims];
    __shared__ float2 states[RDK_ATTN_MERGE_GROUPS];
    launch_dependents();
    if (threadIdx.x == blockDim.x - 1) touch_constants(args, dims);
    int32_t lane = threadIdx.x % RDK_ATTN_MERGE_LANES, group = threadIdx.x / RDK_ATTN_MERGE_LANES;
    int32_t slices = (args.head_dim + RDK_ATTN_MERGE_LANES * dims - 1) / (RDK_ATTN_MERGE_LANES * dims);
    int32_t seq = blockIdx.z, head = blockIdx.x / slices, token = blockIdx.y, kv_head = head / args.group;
    int32_t d = (blockIdx.x % slices * RDK_ATTN_MERGE_LANES + lane) * dims,
            row = token * args.group + head % args.group;
    int64_t base = ((int64_t)seq * args.kv_heads + kv_head) * args.chunks * args.max_rows + row;
    const float2 *tops = reinterpret_cast<const float2 *>(args.tops) + base;
    int64_t parts = base * args.head_dim + (d < args.head_dim ? d : 0);
    auto state_of = [&](int32_t c) { return __ldcg(tops + (int64_t)c * args.max_rows); };
    auto load_part = [&](part_type &part, int32_t c) {
        part.load(args.sums, parts + (int64_t)c * args.max_rows * args.head_dim);
    };
    merged<dims> sum = {-INFINITY, 0.0f, {}};
    auto add_chunk = [&](float2 state, const part_type &part) {
        float x[dims];
        part.widen(x);
        sum.add(state.x, state.y, x, state.y);
    };
    wait_dependencies();
    float2 state[ahead];
    part_type part[ahead];
#pragma unroll
    for (int i = 0; i < ahead; i++) {
        int32_t c = min(group + i * RDK_ATTN_MERGE_GROUPS, args.chunks - 1);
        state[i] = state_of(c);
        load_part(part[i], c);
    }
    int32_t q_begin = __ldcg(args.q_starts + seq), q_len = __ldcg(args.q_starts + seq + 1) - q_begin;
    int32_t kv_len = max(min(__ldcg(args.kv_lens + seq), args.max_blocks * args.block_tokens), 0);
    int32_t count = rdk_attn_chunk_count(kv_len), first = 0;
    if (args.window > 0)
        first = max(rdk_attn_chunk_count(max(kv_len - q_len - args.window + 1, 0) + 1) - 1, 0);
#pragma unroll
    for (int i = 0; i < ahead; i++) {
        int32_t c = group + i * RDK_ATTN_MERGE_GROUPS;
        if (c >= first && c < count) add_chunk(state[i], part[i]);
    }
#pragma unroll 4
    for (int32_t c = group + ahead * RDK_ATTN_MERGE_GROUPS; c < count; c += RDK_ATTN_MERGE_GROUPS) {
        float2 its = state_of(c);
        part_type more;
        load_part(more, c);
        if (c >= first) add_chunk(its, more);
    }
#pragma unroll
    for (int i = 0; i < dims; i++) sums[group][lane][i] = sum.sum[i];
    if (lane == 0) states[group] = make_float2(sum.top, sum.weight);
    __syncthreads();
    if (group > CODES || d >= args.head_dim || token >= q_len || row >= args.max_rows) return;
    sum = all_groups<dims>(states, sums, lane);
    if (args.sinks) {
        const float none[dims] = {};
        sum.add(args.sinks[head] * 1.4426950408889634f, 1.0f, none, 0.0f);
    }
    float scale = sum.weight == 0.0f ? 0.0f : (args.v_scale ? args.v_scale[kv_head] : 1.0f) / sum.weight;
    int64_t place = q_begin + token, to = place * args.out_stride_token + head * args.out_stride_head + d;
    if constexpr (CODES) {
        static_assert(!CODES || RDK_ATTN_MERGE_LANES * dims == RDK_ATTN_CODE_GROUP, "a block has one group");
        row_pieces<1> p = {{}, {}, {group ? 0 : dims}};
#pragma unroll
        for (int i = 0; i < dims; i++) p.e[0].v[i] = sum.sum[i] * scale;
        int32_t of = (head * args.head_dim + d) / RDK_ATTN_CODE_GROUP;
        quantise(p,
                 {{static_cast<unsigned char *>(args.out) + to,
                   args.out_scale + place * args.out_scale_stride_token + of * args.out_scale_stride_group}});
    } else {
#pragma unroll
        for (int i = 0; i < dims; i++) store_element(args.out, to + i, args.out_type, sum.sum[i] * scale);
    }
}

#endif // RDK_ATTN_SM90A_DECODE_MERGE_CUH
