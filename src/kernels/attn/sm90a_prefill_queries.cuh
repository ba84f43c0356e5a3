// SPDX-License-Identifier: Apache-2.0
// The ends of a prefill block's work: queries into shared memory as the 16-bit rows that wgmma reads, and finished rows out.
#ifndef RDK_SM90A_PREFILL_QUERIES_CUH
#define RDK_SM90A_PREFILL_QUERIES_CUH

#include "kernels/attn/sm90a_prefill_load.cuh"
#include "kernels/common/sm90a_convert.cuh"

// Packed rows are addressed from the token of the block's first row, so that the division's operand stays small.
struct row_base {
    int32_t token, rest; // of the sequence; heads of that token before the first row
    int32_t head;        // first of the KV head's group
};
__device__ __forceinline__ row_base base_of(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w) {
    int32_t token = w.row / args.group;
    return {token, w.row - token * args.group, w.kv_head * args.group};
}
struct row_place {
    int32_t token, head;
};
__device__ __forceinline__ row_place place_of(const rdk_attn_prefill_sm90a_args &args, const row_base &base, int32_t row) {
    uint32_t x = base.rest + row, token = __umulhi(2 * x, args.group_magic);
    return {base.token + (int32_t)token, base.head + (int32_t)(x - token * args.group)};
}

// One 16-byte piece of a query row: eight 16-bit values, or eight f32 that stay f32 until their row's factor is known.
template <bool F32> struct query_piece {
    uint4 low, high;
    __device__ __forceinline__ void load(const void *q, int64_t at) {
        low = __ldcg(reinterpret_cast<const uint4 *>(static_cast<const char *>(q) + at * (F32 ? 4 : 2)));
        if (F32) high = __ldcg(reinterpret_cast<const uint4 *>(static_cast<const char *>(q) + at * 4) + 1);
    }
    __device__ __forceinline__ void clear() { low = high = make_uint4(0, 0, 0, 0); }
    __device__ __forceinline__ float value(int i) const {
        const uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        return __uint_as_float(F32 ? word[i] : i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
    }
    __device__ __forceinline__ float largest() const {
        float top = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) top = fmaxf(top, fabsf(value(i)));
        return top;
    }
    template <bool F16> __device__ __forceinline__ uint4 narrow(float factor) const {
        if constexpr (!F16 && !F32) {
            return low;
        } else {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = F16 ? pack_f16(value(2 * i) * factor, value(2 * i + 1) * factor) : pack_bf16(value(2 * i), value(2 * i + 1));
            return make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
};

// Rows first .. first + rows of the block by THREADS threads. With f16 arithmetic each row is scaled by a power of two so that its
// largest magnitude lies in [1, 2): f16 then holds any query. The inverse goes to `factor`.
template <class S, bool F32, int THREADS, int ROWS>
__device__ __forceinline__ void load_queries(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const row_base &base,
                                             int32_t first, int32_t thread, unsigned char *q, float *factor) {
    constexpr int pieces = S::dims / 8, lanes = pieces < 32 ? pieces : 32, each = pieces / lanes, high = THREADS / lanes;
    constexpr int turns = ROWS / high, batch = F32 ? 2 : turns < 8 ? turns : 8; // turns whose loads are in flight together
    int32_t lane = thread % lanes;
#pragma unroll 1
    for (int turn = 0; turn < turns; turn += batch) {
        query_piece<F32> held[batch][each];
#pragma unroll
        for (int i = 0; i < batch; i++) {
            int32_t row = first + (turn + i) * high + thread / lanes;
            row_place at = place_of(args, base, row);
            int64_t from = (int64_t)(w.q_begin + at.token) * args.q_stride_token + (int64_t)at.head * args.q_stride_head;
#pragma unroll
            for (int j = 0; j < each; j++)
                if (w.row + row < w.rows)
                    held[i][j].load(args.q, from + (lane + j * lanes) * 8);
                else
                    held[i][j].clear();
        }
#pragma unroll
        for (int i = 0; i < batch; i++) {
            int32_t row = first + (turn + i) * high + thread / lanes;
            float down = 1.0f;
            if (S::fp8) {
                float top = held[i][0].largest();
                if (each > 1) top = fmaxf(top, held[i][each - 1].largest());
#pragma unroll
                for (int step = lanes / 2; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
                int32_t exponent = min(max((int32_t)(__float_as_uint(top) >> 23) - 127, -100), 100); // zeros, infinities: any factor
                down = __uint_as_float((uint32_t)(127 - exponent) << 23);
                if (lane == 0) factor[row] = __uint_as_float((uint32_t)(127 + exponent) << 23);
            }
#pragma unroll
            for (int j = 0; j < each; j++) {
                int32_t piece = lane + j * lanes, in_group = row % 64;
                unsigned char *to = q + row / 64 * 64 * S::dims * 2 + piece / 8 * 8192 + in_group * 128;
                *reinterpret_cast<uint4 *>(to + (piece % 8 ^ in_group % 8) * 16) = held[i][j].template narrow<S::fp8>(down);
            }
        }
    }
}

// Word k of lane c of a quad becomes word c of lane k.
__device__ __forceinline__ void turn_quad(uint32_t (&word)[4]) {
    int32_t c = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, c & 1 ? word[i] : word[i + 1], 1);
        (c & 1 ? word[i] : word[i + 1]) = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, c & 2 ? word[i] : word[i + 2], 2);
        (c & 2 ? word[i] : word[i + 2]) = other;
    }
}

// Sums of this lane's two rows, times their factors, to the output: 16 bytes a lane.
template <class S>
__device__ __forceinline__ void store_rows(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const row_base &base,
                                           int32_t row, int32_t first_dim, const float (&sum)[S::out_dims / 2], const float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        row_place at = place_of(args, base, row + 8 * r);
        bool mine = w.row + row + 8 * r < w.rows;
        int64_t to = (int64_t)(w.q_begin + at.token) * args.out_stride_token + (int64_t)at.head * args.out_stride_head + first_dim;
        int32_t c = threadIdx.x % 4;
#pragma unroll
        for (int d = 0; d < S::out_dims; d += 32) {
            const float *from = sum + d / 2 + 2 * r; // four columns of eight dims, of which a lane has two
            if (args.out_type == RDK_F32) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (mine)
                        *reinterpret_cast<float2 *>(static_cast<float *>(args.out) + to + d + j * 8 + c * 2) =
                            make_float2(from[4 * j] * factor[r], from[4 * j + 1] * factor[r]);
                continue;
            }
            uint32_t word[4];
#pragma unroll
            for (int j = 0; j < 4; j++) word[j] = pack_bf16(from[4 * j] * factor[r], from[4 * j + 1] * factor[r]);
            turn_quad(word);
            if (mine)
                *reinterpret_cast<uint4 *>(static_cast<__nv_bfloat16 *>(args.out) + to + d + c * 8) =
                    make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

#endif // RDK_SM90A_PREFILL_QUERIES_CUH
