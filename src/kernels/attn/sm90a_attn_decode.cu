// SPDX-License-Identifier: Apache-2.0
// attn_decode on Hopper: split over the keys, two launches.
//
// A block takes one chunk of one sequence's keys for one KV head and up to 64 rows (query tokens times heads of the group).
// Chunks are cut at absolute positions (sm90a_args.h) and lengths are read here, on the device, so one captured graph serves
// every length up to its bound. Two teams of warps take the 16-key steps in turn, each with a ring of stages that cp.async
// fills; a warp holds 16 rows. The teams' sums meet in shared memory, the chunks' in the second launch, in order of position.
#include "kernels/attn/sm90a_tile.cuh"

template <int DIMS, int TILES, bool FP8> struct block_shape {
    using kv = kv_shape<DIMS, FP8>;
    static constexpr int splits = DIMS > 256 ? 2 : 1; // warps that share a tile's dims: 16 x 256 sums fill a warp's registers
    static constexpr int dims = DIMS / splits;        // of a warp
    static constexpr int team_warps = TILES * splits, team_threads = team_warps * 32, threads = RDK_ATTN_TEAMS * team_threads;
    static constexpr int stages = RDK_ATTN_STAGES;
};

struct work { // what this block attends
    int32_t seq, kv_head, chunk, first_row, rows, q_begin, q_len, kv_len, begin, end; // keys [begin, end)
};

__device__ __forceinline__ bool find_work(const rdk_attn_sm90a_args &args, int32_t block_rows, work &w) {
    w.seq = blockIdx.z;
    w.kv_head = blockIdx.y / args.row_blocks;
    w.first_row = blockIdx.y % args.row_blocks * block_rows;
    w.chunk = args.chunks - 1 - (int32_t)blockIdx.x; // the longest first
    w.q_begin = __ldcg(args.q_starts + w.seq);
    w.q_len = __ldcg(args.q_starts + w.seq + 1) - w.q_begin;
    w.kv_len = min(__ldcg(args.kv_lens + w.seq), args.max_blocks * args.block_tokens);
    w.rows = min(w.q_len * args.group, args.max_rows) - w.first_row;
    w.begin = rdk_attn_chunk_begin(w.chunk);
    w.end = min(rdk_attn_chunk_begin(w.chunk + 1), w.kv_len);
    if (args.window > 0) { // whole steps that no row of the sequence sees are left out
        int32_t seen = max(w.kv_len - w.q_len - args.window + 1, 0);
        w.begin = max(w.begin, seen / RDK_ATTN_STEP_KEYS * RDK_ATTN_STEP_KEYS);
    }
    return w.rows > 0 && w.begin < w.end;
}

// Queries of the block as 16-bit rows, each scaled by a power of two so that its largest magnitude lies in [1, 2): f16 then
// holds any bf16 query. The exponent goes back into the scores.
template <int DIMS, int TILES, bool FP8>
__device__ __forceinline__ void load_queries(const rdk_attn_sm90a_args &args, const work &w, unsigned char *q, float *factors) {
    using kv = kv_shape<DIMS, FP8>;
    int32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int32_t row = threadIdx.x / 32; row < TILES * RDK_ATTN_TILE_ROWS; row += warps) {
        int32_t at = w.first_row + row, token = w.q_begin + at / args.group, head = w.kv_head * args.group + at % args.group;
        int64_t from = token * args.q_stride_token + head * args.q_stride_head;
        float x[DIMS / 32], top = 0.0f;
#pragma unroll
        for (int i = 0; i < DIMS / 32; i++) {
            int32_t d = i * 32 + lane;
            x[i] = 0.0f;
            if (row < w.rows && d < args.head_dim)
                x[i] = args.q_type == RDK_F32
                           ? __ldcg(static_cast<const float *>(args.q) + from + d)
                           : __uint_as_float((uint32_t)__ldcg(static_cast<const unsigned short *>(args.q) + from + d) << 16);
            top = fmaxf(top, fabsf(x[i]));
        }
#pragma unroll
        for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
        int exponent = (int)(__float_as_uint(top) >> 23) - 127;
        exponent = min(max(exponent, -100), 100); // of zeros, subnormals, infinities: any factor does
        float down = __uint_as_float((uint32_t)(127 - exponent) << 23);
#pragma unroll
        for (int i = 0; i < DIMS / 32; i++) {
            unsigned short bits;
            if (FP8)
                bits = __half_as_ushort(__float2half_rn(x[i] * down));
            else
                bits = __bfloat16_as_ushort(__float2bfloat16_rn(x[i] * down));
            *reinterpret_cast<unsigned short *>(q + row * kv::q_pitch + (i * 32 + lane) * 2) = bits;
        }
        if (lane == 0) {
            float k_scale = FP8 && args.k_scale ? args.k_scale[w.kv_head] : 1.0f;
            factors[row] = __uint_as_float((uint32_t)(127 + exponent) << 23) * args.scale * k_scale;
        }
    }
}

// One matrix of a step by single bytes, for rows that 16-byte copies do not reach. Out of line: it is rare and long.
__device__ __noinline__ void load_bytes(unsigned char *to, const unsigned char *from, int64_t stride, int32_t row_bytes,
                                        int32_t pitch, int32_t mask, int32_t rows, int32_t thread, int32_t threads) {
#pragma unroll 1
    for (int32_t i = thread; i < RDK_ATTN_STEP_KEYS * pitch; i += threads) {
        int32_t row = i / pitch, byte = i % pitch;
        to[row * pitch + ((byte / 16) ^ (row & mask)) * 16 + byte % 16] =
            row < rows && byte < row_bytes ? __ldcg(from + row * stride + byte) : (unsigned char)0;
    }
}

// Keys and values of one step into a stage; what lies past the end reads as zero, since 0 * NaN would spoil a row.
template <int DIMS, int TILES, bool FP8>
__device__ __forceinline__ void load_step(const rdk_attn_sm90a_args &args, const work &w, unsigned char *stage, int32_t key,
                                          int32_t block) {
    using kv = kv_shape<DIMS, FP8>;
    constexpr int threads = block_shape<DIMS, TILES, FP8>::team_threads;
    constexpr int wide = threads < kv::pieces ? kv::pieces / threads : 1;      // pieces of a row that a thread moves
    constexpr int high = threads > kv::pieces ? threads / kv::pieces : 1;      // rows that the team moves at once
    constexpr int turns = RDK_ATTN_STEP_KEYS < high ? 1 : RDK_ATTN_STEP_KEYS / high;
    int32_t in_block = key % args.block_tokens, thread = threadIdx.x % threads, row = thread / kv::pieces, piece = thread % kv::pieces;
    int32_t rows = block >= 0 && block < args.blocks ? w.end - key : 0, row_bytes = args.head_dim * kv::elem;
#pragma unroll
    for (int matrix = 0; matrix < 2; matrix++) {
        int64_t stride = (matrix ? args.v_stride_token : args.k_stride_token) * kv::elem;
        const unsigned char *from = (matrix ? args.v_cache : args.k_cache) +
                                    (block * (matrix ? args.v_stride_block : args.k_stride_block) +
                                     w.kv_head * (matrix ? args.v_stride_head : args.k_stride_head)) * kv::elem + in_block * stride;
        unsigned char *to = stage + matrix * kv::matrix_bytes;
        if (!args.aligned) {
            load_bytes(to, from, stride, row_bytes, kv::row_bytes, kv::mask, rows, thread, threads);
            continue;
        }
        from += row * stride + piece * 16;
        if (row >= RDK_ATTN_STEP_KEYS) continue;
#pragma unroll
        for (int t = 0; t < turns; t++, from += high * stride)
#pragma unroll
            for (int i = 0; i < wide; i++) {
                bool valid = row + t * high < rows && (piece + i * threads) * 16 < row_bytes;
                copy_vector(to + kv::piece(row + t * high, piece + i * threads), valid ? from + i * threads * 16 : args.k_cache, valid);
            }
    }
}

template <int THREADS> __device__ __forceinline__ void team_sync(int team) {
    if (THREADS == 32)
        __syncwarp();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(THREADS) : "memory");
}

// Logits in base 2, hidden keys at -inf. `first` is the step's first key, `row` the lane's upper row in the block.
__device__ __forceinline__ void finish_scores(const rdk_attn_sm90a_args &args, const work &w, int32_t first, int32_t row,
                                              const float (&factor)[2], bool masked, float (&s)[2][4]) {
    const float log2e = 1.4426950408889634f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int32_t position = w.kv_len - w.q_len + (w.first_row + row + r * 8) / args.group;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float x = s[n][2 * r + i] * factor[r];
                if (args.softcap > 0.0f) // tanh y = 1 - 2 / (1 + exp 2y)
                    x = args.softcap * (1.0f - 2.0f / (1.0f + power_of_two(2.0f * log2e * x / args.softcap)));
                x *= log2e;
                int32_t key = first + n * 8 + threadIdx.x % 4 * 2 + i;
                if (masked && (key > position || (args.window > 0 && key <= position - args.window))) x = -INFINITY;
                s[n][2 * r + i] = x;
            }
    }
}

// The other team's sums into shared memory, or from there into this team's.
template <int DIMS, int COUNT>
__device__ __forceinline__ void merge_teams(bool give, float *meeting, int row, int first, int32_t v_dims, row_state &state,
                                            float (&o)[COUNT / 8][4]) {
    int c = threadIdx.x % 4;
    float keep[2], take[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *theirs = meeting + (row + r * 8) * (DIMS + 2);
        if (give) {
            if (c == 0 && first == 0) theirs[DIMS] = state.top[r], theirs[DIMS + 1] = state.weight[r];
            continue;
        }
        float other = theirs[DIMS], top = fmaxf(state.top[r], other), base = top == -INFINITY ? 0.0f : top;
        keep[r] = power_of_two(state.top[r] - base);
        take[r] = power_of_two(other - base);
        state.weight[r] = state.weight[r] * keep[r] + theirs[DIMS + 1] * take[r];
        state.top[r] = top;
    }
#pragma unroll
    for (int j = 0; j < COUNT / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) { // dims in the order of the products: both teams use the same
            float *at = meeting + (row + i / 2 * 8) * (DIMS + 2) + first + j * 8 + 2 * c + i % 2;
            if (give)
                *at = o[j][i];
            else
                o[j][i] = o[j][i] * keep[i / 2] + *at * take[i / 2];
        }
}

template <int DIMS, int TILES, bool FP8> __device__ __forceinline__ void attend(const rdk_attn_sm90a_args &args) {
    using shape = block_shape<DIMS, TILES, FP8>;
    using kv = kv_shape<DIMS, FP8>;
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    unsigned char *queries = shared_bytes + rdk_attn_ring_bytes(DIMS, TILES, FP8);
    float *factors = reinterpret_cast<float *>(queries + rdk_attn_query_bytes(DIMS, TILES));
    launch_dependents();
    wait_dependencies();
    work w;
    if (!find_work(args, TILES * RDK_ATTN_TILE_ROWS, w)) return;

    int32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    int32_t team = warp / shape::team_warps, tile = warp % shape::team_warps / shape::splits, half = warp % shape::splits;
    unsigned char *ring = shared_bytes + team * shape::stages * kv::stage_bytes;
    const int32_t *blocks = args.block_table + w.seq * args.block_table_stride;
    // Steps go to teams by their absolute number: a row's bits follow from positions.
    int32_t step = w.begin / RDK_ATTN_STEP_KEYS, last = (w.end - 1) / RDK_ATTN_STEP_KEYS;
    step += (step + team) % RDK_ATTN_TEAMS;
    auto block_of = [&](int32_t s) { return s <= last ? __ldcg(blocks + s * RDK_ATTN_STEP_KEYS / args.block_tokens) : -1; };
#pragma unroll 1
    for (int i = 0; i < shape::stages - 1; i++) {
        int32_t s = step + i * RDK_ATTN_TEAMS;
        if (s <= last) load_step<DIMS, TILES, FP8>(args, w, ring + i * kv::stage_bytes, s * RDK_ATTN_STEP_KEYS, block_of(s));
        copies_commit();
    }
    load_queries<DIMS, TILES, FP8>(args, w, queries, factors);
    __syncthreads();

    float o[shape::dims / 8][4];
#pragma unroll
    for (int j = 0; j < shape::dims / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[j][i] = 0.0f;
    row_state state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    int32_t row = tile * RDK_ATTN_TILE_ROWS + lane / 4;
    const float factor[2] = {factors[row], factors[row + 8]};
    bool active = tile * RDK_ATTN_TILE_ROWS < w.rows;
    int32_t open = w.kv_len - w.q_len + w.first_row / args.group; // keys up to here are seen by every row, but for windows
    int32_t next_block = block_of(step + (shape::stages - 1) * RDK_ATTN_TEAMS), slot = 0;
    for (; step <= last; step += RDK_ATTN_TEAMS) {
        copies_wait<shape::stages - 2>();
        team_sync<shape::team_threads>(team);
        int32_t ahead = step + (shape::stages - 1) * RDK_ATTN_TEAMS;
        if (ahead <= last)
            load_step<DIMS, TILES, FP8>(args, w, ring + (slot == 0 ? shape::stages - 1 : slot - 1) * kv::stage_bytes,
                                        ahead * RDK_ATTN_STEP_KEYS, next_block);
        copies_commit();
        next_block = block_of(ahead + RDK_ATTN_TEAMS);
        if (active) {
            const unsigned char *stage = ring + slot * kv::stage_bytes;
            float s[2][4];
            uint32_t p[4];
            int32_t first = step * RDK_ATTN_STEP_KEYS;
            scores<DIMS, FP8>(queries + tile * RDK_ATTN_TILE_ROWS * kv::q_pitch, stage, s);
            finish_scores(args, w, first, row, factor, args.window > 0 || first + RDK_ATTN_STEP_KEYS - 1 > open, s);
            soften<shape::dims, FP8>(s, state, o, p);
            add_values<DIMS, shape::dims, FP8>(stage + kv::matrix_bytes, half * shape::dims, p, o);
        }
        slot = slot + 1 == shape::stages ? 0 : slot + 1;
    }

    copies_wait<0>();
    __syncthreads();
    float *meeting = reinterpret_cast<float *>(shared_bytes);
    if (team == 1 && active) merge_teams<DIMS, shape::dims>(true, meeting, row, half * shape::dims, kv::v_dims, state, o);
    __syncthreads();
    if (team != 0 || !active) return;
    merge_teams<DIMS, shape::dims>(false, meeting, row, half * shape::dims, kv::v_dims, state, o);
    int64_t place = (((int64_t)w.seq * args.kv_heads + w.kv_head) * args.chunks + w.chunk) * args.max_rows + w.first_row;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int32_t mine = row + r * 8;
        if (mine >= w.rows) continue;
        if (lane % 4 == 0 && half == 0)
            *reinterpret_cast<float2 *>(args.tops + (place + mine) * 2) = make_float2(state.top[r], state.weight[r]);
        float *to = args.sums + (place + mine) * args.head_dim;
#pragma unroll
        for (int j = 0; j < shape::dims / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) { // product j of span d / v_span, column 2c + i
                int32_t column = lane % 4 * 2 + i, d = half * shape::dims + j / kv::v_dims * kv::v_span + column * kv::v_dims + j % kv::v_dims;
                if (d < args.head_dim) to[d] = o[j][2 * r + i];
            }
    }
}

#define ATTN_KERNEL(name_, dims_, tiles_, fp8_)                                                                          \
    extern "C" __global__ void __launch_bounds__(block_shape<dims_, tiles_, fp8_>::threads)                              \
        rdk_attn_decode_sm90a_##name_(const __grid_constant__ rdk_attn_sm90a_args args) {                               \
        attend<dims_, tiles_, fp8_>(args);                                                                               \
    }
ATTN_KERNEL(fp8_d64_r16, 64, 1, true)
ATTN_KERNEL(fp8_d64_r32, 64, 2, true)
ATTN_KERNEL(fp8_d64_r64, 64, 4, true)
ATTN_KERNEL(fp8_d128_r16, 128, 1, true)
ATTN_KERNEL(fp8_d128_r32, 128, 2, true)
ATTN_KERNEL(fp8_d128_r64, 128, 4, true)
ATTN_KERNEL(fp8_d256_r16, 256, 1, true)
ATTN_KERNEL(fp8_d256_r32, 256, 2, true)
ATTN_KERNEL(fp8_d256_r64, 256, 4, true)
ATTN_KERNEL(fp8_d512_r16, 512, 1, true)
ATTN_KERNEL(fp8_d512_r32, 512, 2, true)
ATTN_KERNEL(bf16_d64_r16, 64, 1, false)
ATTN_KERNEL(bf16_d64_r32, 64, 2, false)
ATTN_KERNEL(bf16_d64_r64, 64, 4, false)
ATTN_KERNEL(bf16_d128_r16, 128, 1, false)
ATTN_KERNEL(bf16_d128_r32, 128, 2, false)
ATTN_KERNEL(bf16_d128_r64, 128, 4, false)
ATTN_KERNEL(bf16_d256_r16, 256, 1, false)
ATTN_KERNEL(bf16_d256_r32, 256, 2, false)
ATTN_KERNEL(bf16_d256_r64, 256, 4, false)
ATTN_KERNEL(bf16_d512_r16, 512, 1, false)
ATTN_KERNEL(bf16_d512_r32, 512, 2, false)

// ---- the second launch: chunks in order of position --------------------------------------------------------------------
// A block a row; a thread takes four dims of every eighth chunk, and the eight sums meet in order.
extern "C" __global__ void __launch_bounds__(RDK_ATTN_MERGE_GROUPS * 128)
    rdk_attn_decode_sm90a_merge(const __grid_constant__ rdk_attn_sm90a_args args) {
    __shared__ float shared_top[32];
    __shared__ float4 sums[RDK_ATTN_MERGE_GROUPS][128];
    __shared__ float weights[RDK_ATTN_MERGE_GROUPS];
    launch_dependents();
    wait_dependencies();
    int32_t seq = blockIdx.z, head = blockIdx.x, token = blockIdx.y, kv_head = head / args.group;
    int32_t q_begin = __ldcg(args.q_starts + seq), q_len = __ldcg(args.q_starts + seq + 1) - q_begin;
    int32_t kv_len = max(min(__ldcg(args.kv_lens + seq), args.max_blocks * args.block_tokens), 0);
    int32_t count = rdk_attn_chunk_count(kv_len), row = token * args.group + head % args.group, first = 0;
    if (args.window > 0) first = max(rdk_attn_chunk_count(max(kv_len - q_len - args.window + 1, 0) + 1) - 1, 0);
    if (token >= q_len || row >= args.max_rows) return;
    int64_t base = ((int64_t)seq * args.kv_heads + kv_head) * args.chunks * args.max_rows + row;
    const float2 *tops = reinterpret_cast<const float2 *>(args.tops) + base;
    float sink = args.sinks ? args.sinks[head] * 1.4426950408889634f : -INFINITY, top = sink;
    for (int32_t c = first + threadIdx.x; c < count; c += blockDim.x) top = fmaxf(top, __ldcg(tops + (int64_t)c * args.max_rows).x);
#pragma unroll
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    if (threadIdx.x % 32 == 0) shared_top[threadIdx.x / 32] = top;
    __syncthreads();
    for (int i = 0; i < blockDim.x / 32; i++) top = fmaxf(top, shared_top[i]);
    float from = top == -INFINITY ? 0.0f : top;

    int32_t lanes = blockDim.x / RDK_ATTN_MERGE_GROUPS, lane = threadIdx.x % lanes, group = threadIdx.x / lanes, d = lane * 4;
    bool mine = d < args.head_dim;
    const float *parts = args.sums + base * args.head_dim + (mine ? d : 0);
    float4 sum = make_float4(0, 0, 0, 0);
    float weight = 0.0f;
#pragma unroll 4
    for (int32_t c = first / RDK_ATTN_MERGE_GROUPS * RDK_ATTN_MERGE_GROUPS + group; c < count; c += RDK_ATTN_MERGE_GROUPS) {
        if (c < first) continue;
        float2 state = __ldcg(tops + (int64_t)c * args.max_rows);
        float4 part = __ldcg(reinterpret_cast<const float4 *>(parts + (int64_t)c * args.max_rows * args.head_dim));
        float factor = power_of_two(state.x - from);
        weight = fmaf(state.y, factor, weight);
        sum.x = fmaf(part.x, factor, sum.x);
        sum.y = fmaf(part.y, factor, sum.y);
        sum.z = fmaf(part.z, factor, sum.z);
        sum.w = fmaf(part.w, factor, sum.w);
    }
    sums[group][lane] = sum;
    if (lane == 0) weights[group] = weight;
    __syncthreads();
    if (group || !mine) return;
    weight = sink == -INFINITY ? 0.0f : power_of_two(sink - from);
    sum = make_float4(0, 0, 0, 0);
    for (int g = 0; g < RDK_ATTN_MERGE_GROUPS; g++) {
        float4 part = sums[g][lane];
        weight += weights[g];
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    float scale = weight == 0.0f ? 0.0f : (args.v_scale ? args.v_scale[kv_head] : 1.0f) / weight;
    int64_t to = (int64_t)(q_begin + token) * args.out_stride_token + head * args.out_stride_head + d;
    store_element(args.out, to, args.out_type, sum.x * scale);
    store_element(args.out, to + 1, args.out_type, sum.y * scale);
    store_element(args.out, to + 2, args.out_type, sum.z * scale);
    store_element(args.out, to + 3, args.out_type, sum.w * scale);
}
