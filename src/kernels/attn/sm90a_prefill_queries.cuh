// SPDX-License-Identifier: Apache-2.0
// What stands around a prefill block's products: the warps that find works, bring their queries into shared memory as wgmma reads
// them, and widen values; and finished rows on their way out.
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
    return {w.token, w.row - w.token * args.group, w.kv_head * args.group};
}
struct row_place {
    int32_t token, head;
};
__device__ __forceinline__ row_place place_of(const rdk_attn_prefill_sm90a_args &args, const row_base &base, int32_t row) {
    uint32_t x = base.rest + row, token = __umulhi(2 * x, args.group_magic);
    return {base.token + (int32_t)token, base.head + (int32_t)(x - token * args.group)};
}

// Rows of queries as wgmma reads them: rows of 128 bytes, 64 rows a chunk, the 16-byte pieces under the 128-byte swizzle. Sixteen-bit
// rows have 64 dims a chunk. Byte of piece `piece` of row `row`.
template <class S> __device__ __forceinline__ int32_t query_byte(int32_t row, int32_t piece) {
    return row / 64 * 64 * S::dims * 2 + piece / 8 * 8192 + row % 64 * 128 + (piece % 8 ^ row % 8) * 16;
}
// Two terms in e4m3: chunks of 128 dims of the first, then of the second; head 64: both terms in one chunk. Byte of the eight dims
// of piece `piece`.
template <class S> __device__ __forceinline__ int32_t term_byte(int32_t row, int32_t piece, int32_t term) {
    int32_t at = piece * 8 + term * S::dims; // byte of the row, were it in one piece
    return row / 64 * 64 * S::dims * 2 + at / 128 * 8192 + row % 64 * 128 + (at / 16 % 8 ^ row % 8) * 16 + at % 16;
}

// Rows of queries as a warp walks them: `lanes` lanes have a row, `each` 16-byte pieces a lane. A lane meets the same pieces in
// every walk.
template <class S> struct query_walk {
    static constexpr int pieces = S::dims / 8, lanes = pieces < 32 ? pieces : 32, each = pieces / lanes, high = 32 / lanes;
    static constexpr int step = S::query_warps * high; // rows
    uint32_t thread = kept(threadIdx.x); // what follows from it is not to stay in registers between works
    __device__ __forceinline__ int32_t first_row() const { return (thread / 32 - 1) * high + thread % 32 / lanes; }
    __device__ __forceinline__ int32_t lane() const { return thread % 32; }
    __device__ __forceinline__ int32_t piece(int j) const { return lane() % lanes + j * lanes; }
};
// Of a row's first piece of this lane; in elements.
__device__ __forceinline__ int64_t query_at(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const row_base &base,
                                            int32_t row, int32_t piece) {
    row_place at = place_of(args, base, row);
    return (int64_t)(w.q_begin + at.token) * args.q_stride_token + (int64_t)at.head * args.q_stride_head + piece * 8;
}

// The bytes of a work's queries on their way into the second-level cache, while the only buffer is still in use.
template <class S>
__device__ __forceinline__ void warm_queries(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const row_base &base) {
    constexpr int every = 8; // lanes: 128 bytes of bf16
#pragma unroll 1
    for (int32_t row = threadIdx.x - 32; row < S::rows; row += S::query_warps * 32)
        if (w.row + row < w.rows)
#pragma unroll
            for (int piece = 0; piece < S::dims / 8; piece += every)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const __nv_bfloat16 *>(args.q) +
                                                              query_at(args, w, base, row, piece)));
}
template <class S>
__device__ __forceinline__ void copy_queries(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const row_base &base,
                                             unsigned char *q) {
    const query_walk<S> walk;
#pragma unroll S::fp8 ? 2 : 4
    for (int32_t row = walk.first_row(); row < S::rows; row += walk.step) {
        const __nv_bfloat16 *from = static_cast<const __nv_bfloat16 *>(args.q) + query_at(args, w, base, row, walk.piece(0));
        bool valid = w.row + row < w.rows;
#pragma unroll
        for (int j = 0; j < walk.each; j++) // none is read of a row that is not there
            copy_vector(q + query_byte<S>(row, walk.piece(j)),
                        valid ? from + j * walk.lanes * 8 : static_cast<const __nv_bfloat16 *>(args.q), valid);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Eight dims of a query row: eight bf16 values, or eight f32 that stay f32 until their row's factor is known.
template <bool F32> struct query_piece {
    uint4 low, high;
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
    __device__ __forceinline__ uint4 narrow() const {
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = pack_bf16(value(2 * i), value(2 * i + 1));
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
    // Two e4m3 terms of each value times `factor`: four bits, and the four of what they leave, which is exact.
    __device__ __forceinline__ void split(float factor, uint2 &first, uint2 &second) const {
        uint32_t code[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t pair = pack_f16(value(2 * i) * factor, value(2 * i + 1) * factor);
            code[0][i] = narrow_two(pair);
            __half2 left = __hsub2(*reinterpret_cast<__half2 *>(&pair), __half2_raw(widened(code[0][i])));
            code[1][i] = narrow_two(*reinterpret_cast<uint32_t *>(&left));
        }
        first = make_uint2(code[0][0] | code[0][1] << 16, code[0][2] | code[0][3] << 16);
        second = make_uint2(code[1][0] | code[1][1] << 16, code[1][2] | code[1][3] << 16);
    }
    static __device__ __forceinline__ __half2_raw widened(uint32_t codes) {
        uint32_t pair = widen_two(codes);
        return *reinterpret_cast<__half2_raw *>(&pair);
    }
    static __device__ __forceinline__ uint32_t narrow_two(uint32_t pair) { // f16 to e4m3
        unsigned short codes;
        asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(codes) : "r"(pair));
        return codes;
    }
};

// f32 queries from memory, or bf16 queries from the buffer they were copied to, into the buffer: as bf16, or for products with
// codes as two terms. Each row is then scaled by a power of two so that its largest magnitude lies in [128, 256), far from where
// e4m3 loses bits at either end. The inverse goes to `factor`.
template <class S, bool F32>
__device__ __forceinline__ void narrow_queries(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const row_base &base,
                                               unsigned char *q, float *factor) {
    const query_walk<S> walk;
#pragma unroll 1
    for (int32_t row = walk.first_row(); row < S::rows; row += walk.step) {
        query_piece<F32> held[walk.each];
#pragma unroll
        for (int j = 0; j < walk.each; j++) {
            const uint4 *source = reinterpret_cast<const uint4 *>(static_cast<const float *>(args.q) +
                                                                  query_at(args, w, base, row, walk.piece(j)));
            if (!F32)
                held[j].low = *reinterpret_cast<const uint4 *>(q + query_byte<S>(row, walk.piece(j)));
            else if (w.row + row < w.rows)
                held[j].low = __ldcg(source), held[j].high = __ldcg(source + 1);
            else
                held[j].low = held[j].high = make_uint4(0, 0, 0, 0);
        }
        if (!S::fp8) {
#pragma unroll
            for (int j = 0; j < walk.each; j++)
                *reinterpret_cast<uint4 *>(q + query_byte<S>(row, walk.piece(j))) = held[j].narrow();
            continue;
        }
        float top = held[0].largest();
        if (walk.each > 1) top = fmaxf(top, held[walk.each - 1].largest());
#pragma unroll
        for (int step = walk.lanes / 2; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
        int32_t exponent = min(max((int32_t)(__float_as_uint(top) >> 23) - 127, -100), 100) - 7; // zeros, infinities: any factor
        if (walk.lane() % walk.lanes == 0) factor[row] = __uint_as_float((uint32_t)(127 + exponent) << 23);
        __syncwarp(); // a row's terms lie where its bf16 values lay
#pragma unroll
        for (int j = 0; j < walk.each; j++) {
            uint2 first, second;
            held[j].split(__uint_as_float((uint32_t)(127 - exponent) << 23), first, second);
            *reinterpret_cast<uint2 *>(q + term_byte<S>(row, walk.piece(j), 0)) = first;
            *reinterpret_cast<uint2 *>(q + term_byte<S>(row, walk.piece(j), 1)) = second;
        }
    }
}

// Warps of their own: each work's queries, as soon as the last use of the buffer is over.
template <class S>
__device__ __forceinline__ void bring_queries(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const block_memory<S> memory,
                                              ring_place<S::query_buffers> buffer) {
    prefill_state &state = memory.state();
    row_base base = base_of(args, w);
    if (S::query_buffers == 1 && args.q_type != RDK_F32) warm_queries<S>(args, w, base);
    barrier_wait(&state.queries_empty[buffer.at()], buffer.parity() ^ 1);
    unsigned char *q = memory.queries(buffer.at());
    if (args.q_type == RDK_F32) {
        narrow_queries<S, true>(args, w, base, q, state.factor[buffer.at()]);
    } else {
        copy_queries<S>(args, w, base, q);
        if (S::fp8) narrow_queries<S, false>(args, w, base, q, state.factor[buffer.at()]);
    }
    fence_async();
    barrier_arrive(&state.queries_full[buffer.at()]);
}
// One warp finds work, each when the loading warp is a few tiles from the end of the one before, and brings queries with the others.
template <class S>
__device__ __forceinline__ void find_all(const rdk_attn_prefill_sm90a_args &args, const block_memory<S> memory) {
    prefill_state &state = memory.state();
    work_finder finder = {blockIdx.x};
    for (work_place post;; post.next()) {
        prefill_work found;
        for (;; finder.take(args)) {
            finder.next<S>(args, found);
            if (found.seq < 0 || found.tiles > 0) break;
        }
        barrier_wait(&state.work_empty[post.at()], post.parity() ^ 1);
        if (threadIdx.x % 32 == 0) {
            state.work[post.at()] = found;
            barrier_arrive(&state.work_full[post.at()]);
        }
        if (found.seq < 0) return;
        __syncwarp();
        bring_queries<S>(args, state.work[post.at()], memory, {post.word});
        barrier_wait(&state.wanted, ring_place<1>{post.word}.parity());
        finder.take(args);
    }
}
template <class S>
__device__ __forceinline__ void bring_all_queries(const rdk_attn_prefill_sm90a_args &args, const block_memory<S> memory) {
    for (work_place post;; post.next()) {
        const prefill_work &w = wait_work(memory.state(), post);
        if (w.seq < 0) return;
        bring_queries<S>(args, w, memory, {post.word});
        barrier_arrive(&memory.state().work_empty[post.at()]);
    }
}

// The widening warps. Where queries have one buffer, all wait while it is filled: they help.
template <class S>
__device__ __forceinline__ void widen_all(const rdk_attn_prefill_sm90a_args &args, const block_memory<S> memory) {
    prefill_state &state = memory.state();
    ring_place<S::value_slots> slot;
    for (work_place post;; post.next()) {
        const prefill_work &w = wait_work(state, post);
        if (w.seq < 0) return;
        if (S::query_warps > QUERY_WARPS) bring_queries<S>(args, w, memory, {post.word});
        uint32_t thread = kept(threadIdx.x);
        for (int32_t i = 0; i < w.tiles; i++) {
            barrier_wait(&state.raw[slot.at()], slot.parity());
            widen_tile<S>(memory.values(slot.at()), thread, w.kv_len - (w.tile + i) * S::keys);
            if (threadIdx.x % 32 == 0) barrier_arrive(&state.values_full[slot.at()]);
            slot.next();
        }
        barrier_arrive(&state.work_empty[post.at()]);
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

// Where keys are cut: the place of the partial result of the block's row `row`.
__device__ __forceinline__ int64_t part_of(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, int32_t row) {
    return (int64_t)(w.kv_head * args.chunks + w.chunk) * args.tokens * args.group + (int64_t)w.q_begin * args.group + w.row + row;
}

// Sums of this lane's two rows, times their factors, to the output: 16 bytes a lane in bf16. Partial sums in f32.
template <class S>
__device__ __forceinline__ void store_rows(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, const row_base &base,
                                           int32_t row, int32_t first_dim, const float (&sum)[S::out_dims / 2], const float (&factor)[2]) {
    int32_t c = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) { // sum: of four columns of eight dims a lane has two each
        row_place at = place_of(args, base, row + 8 * r);
        bool mine = w.row + row + 8 * r < w.rows;
        int64_t to = (int64_t)(w.q_begin + at.token) * args.out_stride_token + (int64_t)at.head * args.out_stride_head + first_dim;
        bool part = args.chunks > 1;
        if (part) to = part_of(args, w, row + 8 * r) * S::dims + first_dim;
        if (part || args.out_type == RDK_F32) {
            float *out = (part ? args.sums : static_cast<float *>(args.out)) + to + c * 2;
#pragma unroll
            for (int i = 2 * r; i < S::out_dims / 2; i += 4)
                if (mine) *reinterpret_cast<float2 *>(out + i / 4 * 8) = make_float2(sum[i] * factor[r], sum[i + 1] * factor[r]);
        } else {
            __nv_bfloat16 *out = static_cast<__nv_bfloat16 *>(args.out) + to + c * 8;
#pragma unroll
            for (int i = 2 * r; i < S::out_dims / 2; i += 16) {
                uint32_t word[4];
#pragma unroll
                for (int j = 0; j < 4; j++) word[j] = pack_bf16(sum[i + 4 * j] * factor[r], sum[i + 4 * j + 1] * factor[r]);
                turn_quad(word);
                if (mine) *reinterpret_cast<uint4 *>(out + i / 16 * 32) = make_uint4(word[0], word[1], word[2], word[3]);
            }
        }
    }
}

#endif // RDK_SM90A_PREFILL_QUERIES_CUH
