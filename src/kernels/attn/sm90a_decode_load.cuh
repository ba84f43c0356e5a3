// SPDX-License-Identifier: Apache-2.0
// Keys, values and queries into shared memory. A warp of its own streams a team's cache through two rings of slots, keys and values, with
// tensor copies under the 128-byte swizzle; each team brings its own queries.
#ifndef RDK_ATTN_SM90A_DECODE_LOAD_CUH
#define RDK_ATTN_SM90A_DECODE_LOAD_CUH

#include "kernels/attn/sm90a_decode_tile.cuh"
#include "kernels/attn/sm90a_decode_work.cuh"

// Slots of a ring in turn; the parity of a turn tells barriers apart.
struct ring_place {
    int32_t slot;
    uint32_t turn;
    __device__ __forceinline__ void advance(int32_t slots) {
        if (++slot == slots) slot = 0, turn ^= 1;
    }
};

// ---- the cache ----------------------------------------------------------------------------------------------------------
__device__ __forceinline__ void copy_box_4d(void *to, const void *map, uint64_t *barrier, int32_t dim,
                                            int32_t head, int32_t token, int32_t block, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(smem_address(to)),
                 "l"(map), "r"(smem_address(barrier)), "r"(dim), "r"(head), "r"(token), "r"(block),
                 "l"(policy)
                 : "memory");
}
__device__ __forceinline__ void prefetch_box_4d(const void *map, int32_t dim, int32_t head, int32_t token,
                                                int32_t block) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(dim),
                 "r"(head), "r"(token), "r"(block)
                 : "memory");
}

// The cache of one sequence as the loading warp walks it. A step of 64 keys is 1, 2 or 4 boxes of box_tokens neighbours of one
// page; lane i holds the page of box base + i.
struct page_window {
    int32_t seq, base, page;
};
__device__ __forceinline__ void look_at_boxes(const rdk_attn_sm90a_args &args, const attn_work &w,
                                              int32_t box, int32_t count, page_window &pages) {
    if (pages.seq == w.s.seq && box >= pages.base && box + count <= pages.base + 32) return;
    pages.seq = w.s.seq;
    pages.base = box;
    int32_t mine = pages.base + threadIdx.x % 32, key = mine * args.box_tokens;
    pages.page = key < w.s.kv_len
                     ? __ldcg(args.block_table + w.s.seq * args.block_table_stride + key / args.block_tokens)
                     : -1;
}

// One matrix of a step by single bytes, for rows that copies of 16 bytes do not reach.
__device__ __forceinline__ void load_bytes(const rdk_attn_sm90a_args &args, unsigned char *slot, int matrix,
                                           int32_t key, int32_t valid, int32_t token, int32_t page,
                                           int32_t kv_head, int32_t row_bytes) {
    const rdk_attn_cache_view &view = args.cache.view;
    bool known = page >= 0 && page < view.blocks;
    const unsigned char *from = (matrix ? view.v : view.k) +
                                (known ? page : 0) * (matrix ? view.v_stride_block : view.k_stride_block) +
                                kv_head * (matrix ? view.v_stride_head : view.k_stride_head);
    int64_t stride = matrix ? view.v_stride_token : view.k_stride_token;
    int32_t columns = (row_bytes + RDK_ATTN_BOX_BYTES - 1) / RDK_ATTN_BOX_BYTES;
#pragma unroll 1
    for (int32_t i = threadIdx.x % 32; i < args.box_tokens * columns * RDK_ATTN_BOX_BYTES; i += 32) {
        int32_t row = i / (columns * RDK_ATTN_BOX_BYTES), byte = i % (columns * RDK_ATTN_BOX_BYTES),
                place = key + row;
        int32_t at = byte / 128 * RDK_ATTN_STEP_KEYS * 128 + place * 128 +
                     (byte % 128 / 16 ^ (place & 7)) * 16 + byte % 16;
        slot[at] = known && row < valid && byte < row_bytes ? __ldcg(from + (token + row) * stride + byte)
                                                            : (unsigned char)0;
    }
}

// A lane's box of a step: 128 bytes of box_tokens keys, or of their values. What the head lacks of the last column reads as zero.
struct lane_box {
    int32_t page, token, bytes; // bytes: of all lanes' boxes
    bool mine;
    static __device__ __forceinline__ int32_t sub(const rdk_attn_sm90a_args &args) { // box of a step
        return threadIdx.x % 32 >> args.column_shift;
    }
    static __device__ __forceinline__ int32_t column(const rdk_attn_sm90a_args &args) { // 128 bytes of a key
        return threadIdx.x & ((1 << args.column_shift) - 1);
    }
    __device__ __forceinline__ void find(const rdk_attn_sm90a_args &args, const attn_work &w,
                                         const page_window &pages, int32_t box) {
        int32_t key = (box + sub(args)) * args.box_tokens;
        page = __shfl_sync(0xffffffffu, pages.page, box + sub(args) - pages.base);
        token = args.block_tokens == args.box_tokens ? 0 : key % args.block_tokens;
        mine = sub(args) * args.box_tokens < RDK_ATTN_STEP_KEYS && key < w.s.kv_len;
        bytes = __popc(__ballot_sync(0xffffffffu, mine)) * args.box_tokens * RDK_ATTN_BOX_BYTES;
    }
    __device__ __forceinline__ void load(const rdk_attn_sm90a_args &args, const void *map, int32_t head,
                                         unsigned char *slot, uint64_t *full) const {
        if (threadIdx.x % 32 == 0) barrier_expect(full, bytes);
        if (mine)
            copy_box_4d(slot + (column(args) * RDK_ATTN_STEP_KEYS + sub(args) * args.box_tokens) *
                                   RDK_ATTN_BOX_BYTES,
                        map, full, column(args) * args.box_dims, head, token, page, policy_evict_first());
    }
    __device__ __forceinline__ void prefetch(const rdk_attn_sm90a_args &args, int matrix,
                                             int32_t head) const {
        if (mine) prefetch_box_4d(args.cache.maps[matrix], column(args) * args.box_dims, head, token, page);
    }
};

// A step's keys (matrix 0) or values (1) by single bytes.
__device__ __forceinline__ void load_slot_bytes(const rdk_attn_sm90a_args &args, const attn_work &w,
                                                const page_window &pages, int32_t box, int matrix,
                                                unsigned char *slot, uint64_t *full, int32_t row_bytes) {
    for (int32_t sub = 0; sub < RDK_ATTN_STEP_KEYS / args.box_tokens; sub++) {
        int32_t key = (box + sub) * args.box_tokens,
                page = __shfl_sync(0xffffffffu, pages.page, box + sub - pages.base);
        load_bytes(args, slot, matrix, sub * args.box_tokens, w.s.kv_len - key, key % args.block_tokens, page,
                   w.kv_head, row_bytes);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(full);
}

// What the loading warp tells the teams of each chunk, ahead of its keys.
struct chunk_record {
    int32_t seq, kv_head, row_block, chunk, begin, end; // begin == end: no more
    int32_t q_begin, q_len, kv_len;
    int32_t same_rows; // queries of the chunk before
    int32_t padding[2];
};
struct chunk_ring {
    chunk_record record[RDK_ATTN_RECORDS];
    uint64_t full[RDK_ATTN_RECORDS], empty[RDK_ATTN_RECORDS];
    attn_share share; // the block's chunks
    int32_t taken;    // of them, by all teams: counted in the first team's ring
    int32_t padding[3];
};
__device__ __forceinline__ void announce(chunk_ring *ring, ring_place &place, const attn_work &w, bool some,
                                         bool same_rows) {
    barrier_wait(ring->empty + place.slot, place.turn);
    if (threadIdx.x % 32 == 0) {
        ring->record[place.slot] = {
            w.s.seq,   w.kv_head,  w.row_block, w.chunk, some ? w.begin : 0, some ? w.end : 0, w.s.q_begin,
            w.s.q_len, w.s.kv_len, same_rows,   {}};
        barrier_arrive(ring->full + place.slot);
    }
    place.advance(RDK_ATTN_RECORDS);
}

// A team's rings, one behind the other: slots of keys, then of values; barriers alike.
struct cache_rings {
    unsigned char *slots;
    uint64_t *full, *empty;
    int32_t keys, values; // slots
};

// A matrix of a step into its ring.
__device__ __forceinline__ void load_matrix(const rdk_attn_sm90a_args &args, const attn_work &w,
                                            const page_window &pages, const lane_box &box, int32_t step,
                                            int matrix, const cache_rings &rings, ring_place &place) {
    int32_t at = matrix ? rings.keys + place.slot : place.slot;
    unsigned char *slot = rings.slots + at * args.slot_bytes;
    barrier_wait(rings.empty + at, place.turn);
    if (args.use_maps)
        box.load(args, args.cache.maps[matrix], w.kv_head, slot, rings.full + at);
    else
        load_slot_bytes(args, w, pages, step * (RDK_ATTN_STEP_KEYS / args.box_tokens), matrix, slot,
                        rings.full + at, args.row_bytes);
    place.advance(matrix ? rings.values : rings.keys);
}

// A loading warp. Before the kernels ahead are complete it finds its chunks and asks for the first steps, a hint alone (the map keeps
// every address inside the cache). What those kernels may still write, lengths and pages unless the caller has said that these stand, is
// read again after them; the cut of the work stands where no length has changed. taken: chunks of the block that its teams have; each begins with its own.
__device__ __forceinline__ void stream_cache(const rdk_attn_sm90a_args &args, int team,
                                             const cache_rings &rings, chunk_ring *chunks, int32_t *taken) {
    int32_t lane = threadIdx.x % 32, boxes = RDK_ATTN_STEP_KEYS / args.box_tokens;
    ring_place keys = {0, 1}, values = {0, 1}, record = {0, 1}; // the first turn finds every slot free
    page_window pages = {-1, 0, 0};
    lane_box box;
    attn_work w = {};
    attn_sequence mine = open_sequence(args, lane);
    bool some;
#pragma unroll 1
    for (int pass = 0;; pass++) {
        cut_lines(args, mine, &chunks->share);
        some = first_work(args, &chunks->share, RDK_ATTN_SIZES - 1, mine, w);
#pragma unroll 1
        for (int i = 0; some && i < team; i++) some = next_work(args, &chunks->share, mine, w);
        if (pass) break;
        int32_t end = some && args.use_maps ? min(w.end, w.begin + args.prefetch_steps) : w.begin;
#pragma unroll 1
        for (int32_t step = w.begin; step < end; step++) {
            look_at_boxes(args, w, step * boxes, boxes, pages);
            box.find(args, w, pages, step * boxes);
            for (int matrix = 0; matrix < 2; matrix++) box.prefetch(args, matrix, w.kv_head);
        }
        wait_dependencies();
        if (args.tables_settled) break;
        pages.seq = -1;
        if (some)
            look_at_boxes(args, w, w.begin * boxes, boxes, pages); // on its way together with the lengths
        const attn_sequence now = open_sequence(args, lane);
        bool kept_length =
            now.q_begin == mine.q_begin && now.q_len == mine.q_len && now.kv_len == mine.kv_len;
        if (__all_sync(0xffffffffu, kept_length && args.seqs <= 32)) break;
        mine = now;
        pages.seq = -1;
    }
    int32_t seq = -1, kv_head = 0, row_block = 0, at = team,
            ticket = team; // announced last; of the block's chunks: this, the next
#pragma unroll 1
    for (; some; some = next_work(args, &chunks->share, mine, w)) {
        if (at++ < ticket) continue; // another team has it
        announce(chunks, record, w, true, w.s.seq == seq && w.kv_head == kv_head && w.row_block == row_block);
        seq = w.s.seq, kv_head = w.kv_head, row_block = w.row_block;
#pragma unroll 1
        for (int32_t step = w.begin; step < w.end; step++) {
            look_at_boxes(args, w, step * boxes, boxes, pages);
            box.find(args, w, pages, step * boxes);
            load_matrix(args, w, pages, box, step, 0, rings, keys);
            load_matrix(args, w, pages, box, step, 1, rings, values);
        }
        if (lane == 0) ticket = atomicAdd(taken, 1);
        ticket = __shfl_sync(0xffffffffu, ticket, 0);
    }
    announce(chunks, record, w, false, false);
}

// ---- the queries --------------------------------------------------------------------------------------------------------
// What a team knows of two neighbouring rows, which a lane reads together.
struct row_words {
    float factor[2]; // of a score: exponent taken off the query, scales of the call and of the keys
    // What weights are relative to, and what a logit less that may reach before it is raised: a largest logit of the past and a
    // headroom, which spare most steps the search; 0 and -inf until the row sees a key.
    float reference[2], rise[2], keep[2], limit[2]; // rise, keep: of a raise
    float scale[2];                                 // 1 / sum of weights, at the end of a chunk
};
// Of all its rows, in shared memory.
template <int N> struct row_table {
    row_words pair[N / 2];
    float top
        [N]
        [4]; // of each warp's keys of a step, less the reference; at the end of a chunk the sums of their weights
    int32_t position[N]; // the last key that the row sees
};

// Eight neighbouring dims of a row of queries.
template <bool VECTOR>
__device__ __forceinline__ void read_eight(const rdk_attn_sm90a_args &args, int64_t at, float (&x)[8]) {
    const float *wide = static_cast<const float *>(args.q) + at;
    const unsigned short *narrow = static_cast<const unsigned short *>(args.q) + at;
    if (args.q_type == RDK_F32) {
        if constexpr (VECTOR) {
            *reinterpret_cast<float4 *>(x) = __ldcg(reinterpret_cast<const float4 *>(wide));
            *reinterpret_cast<float4 *>(x + 4) = __ldcg(reinterpret_cast<const float4 *>(wide + 4));
        } else
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] = __ldcg(wide + i);
    } else if constexpr (VECTOR) {
        const uint4 raw = __ldcg(reinterpret_cast<const uint4 *>(narrow));
        const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = __uint_as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
    } else
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = __uint_as_float((uint32_t)__ldcg(narrow + i) << 16);
}

// How rows of queries lie over a team: so many lanes a row, eight dims each; a longer row takes two turns of a warp's lanes.
template <int DIMS, int N> struct query_shape {
    static constexpr int lanes = DIMS >= 256 ? 32 : DIMS / 8, shares = DIMS > 256 ? DIMS / 256 : 1;
    static constexpr int rows = RDK_ATTN_TEAM_THREADS / lanes, turns = (N + rows - 1) / rows;
    static constexpr int at_once =
        turns * shares <= 7 ? turns : turns / 2; // turns whose loads are on their way together
};

// Eight numbers scaled by a power of two as e4m3 codes, and the codes of what those leave of them. f16 holds either exactly
// where e4m3 tells them from zero, but for the last bits of fp32 queries.
__device__ __forceinline__ void narrow_twice(const float (&x)[8], float down, uint2 &codes, uint2 &rest) {
    uint32_t pair[2][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm("{\n\t.reg .b16 c, r;\n\t.reg .b32 h, w;\n\tcvt.rn.f16x2.f32 h, %3, "
            "%2;\n\tcvt.rn.satfinite.e4m3x2.f16x2 c, h;\n\t"
            "cvt.rn.f16x2.e4m3x2 w, c;\n\tsub.rn.f16x2 h, h, w;\n\tcvt.rn.satfinite.e4m3x2.f16x2 r, h;\n\t"
            "cvt.u32.u16 %0, c;\n\tcvt.u32.u16 %1, r;\n\t}"
            : "=r"(pair[0][i]), "=r"(pair[1][i])
            : "f"(x[i * 2] * down), "f"(x[i * 2 + 1] * down));
    codes =
        make_uint2(__byte_perm(pair[0][0], pair[0][1], 0x5410), __byte_perm(pair[0][2], pair[0][3], 0x5410));
    rest =
        make_uint2(__byte_perm(pair[1][0], pair[1][1], 0x5410), __byte_perm(pair[1][2], pair[1][3], 0x5410));
}

// Stores a lane's shares of COUNT rows (`row` and every query_shape::rows after it), each scaled by a power of two, so that the row's
// largest magnitude lies in [128, 256) in the middle of what e4m3 holds; e4m3 caches take two codes a number, the second ones N rows on.
// powers: what goes back into the scores. A row that is not finite becomes NaN.
template <int DIMS, int N, bool FP8, int COUNT>
__device__ __forceinline__ void store_queries(int32_t row,
                                              const float (&x)[COUNT][query_shape<DIMS, N>::shares][8],
                                              unsigned char *queries, float (&powers)[COUNT]) {
    using shape = query_shape<DIMS, N>;
    uint32_t tops[(COUNT + 1) / 2] = {}; // upper halves of the largest magnitudes, two rows a word
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float top = 0.0f;
#pragma unroll
        for (int k = 0; k < shape::shares * 8; k++) top = fmaxf(top, fabsf(x[i][k / 8][k % 8]));
        tops[i / 2] |= i % 2 ? __float_as_uint(top) & 0xffff0000u : __float_as_uint(top) >> 16;
    }
#pragma unroll
    for (int step = shape::lanes / 2; step; step /= 2)
#pragma unroll
        for (int i = 0; i < (COUNT + 1) / 2; i++)
            tops[i] = __vmaxu2(tops[i], __shfl_xor_sync(0xffffffffu, tops[i], step));
#pragma unroll
    for (int i = 0; i < COUNT; i++, row += shape::rows) {
        int exponent = (int)(tops[i / 2] >> (i % 2 ? 23 : 7) & 0xff) - 127 - 7;
        bool finite = exponent < 128 - 7;
        exponent = min(max(exponent, -100), 100); // of zeros and subnormals: any factor does
        float down = __uint_as_float(finite ? (uint32_t)(127 - exponent) << 23 : 0x7fffffffu);
        powers[i] = __uint_as_float((uint32_t)(127 + exponent) << 23);
        if (row >= N) continue;
#pragma unroll
        for (int k = 0; k < shape::shares; k++) {
            int32_t d = (k * 32 + threadIdx.x % shape::lanes) * 8, byte = FP8 ? d : d * 2;
            unsigned char *to = queries + byte / 128 * attn_shape<DIMS, N, FP8>::query_column + row * 128 +
                                (byte % 128 / 16 ^ row % 8) * 16 + byte % 16;
            const float(&its)[8] = x[i][k];
            if constexpr (FP8)
                narrow_twice(its, down, *reinterpret_cast<uint2 *>(to),
                             *reinterpret_cast<uint2 *>(to + N * 128));
            else
                *reinterpret_cast<uint4 *>(to) = make_uint4(
                    pack_bf16(its[0] * down, its[1] * down), pack_bf16(its[2] * down, its[3] * down),
                    pack_bf16(its[4] * down, its[5] * down), pack_bf16(its[6] * down, its[7] * down));
        }
    }
}

// All queries of a team, rows [first, first + N) of the sequence's head, on their way at once where they can be read by vectors. Rows and
// dims that are not there read a place that is.
template <int DIMS, int N, bool FP8, bool VECTOR>
__device__ __forceinline__ void load_queries(const rdk_attn_sm90a_args &args, const chunk_record &w,
                                             int32_t first, unsigned char *queries, row_table<N> *rows) {
    using shape = query_shape<DIMS, N>;
    constexpr int at_once = VECTOR ? shape::at_once : 1;
    const float log2e = 1.4426950408889634f;
    int32_t lane = threadIdx.x % shape::lanes, count = w.q_len * args.group;
#pragma unroll 1
    for (int32_t at = threadIdx.x % RDK_ATTN_TEAM_THREADS / shape::lanes; at < shape::turns * shape::rows;
         at += at_once * shape::rows) {
        float x[at_once][shape::shares][8], powers[at_once];
#pragma unroll
        for (int i = 0; i < at_once * shape::shares; i++) {
            int32_t row = min(first + at + i / shape::shares * shape::rows, count - 1),
                    d = (i % shape::shares * 32 + lane) * 8;
            int32_t token = row / args.group, head = w.kv_head * args.group + row % args.group;
            read_eight<VECTOR>(args,
                               (w.q_begin + token) * args.q_stride_token + head * args.q_stride_head +
                                   (d < args.head_dim ? d : 0),
                               x[i / shape::shares][i % shape::shares]);
        }
        float factor = args.scale * (FP8 && args.k_scale ? __ldcg(args.k_scale + w.kv_head) : 1.0f);
        factor *= args.softcap > 0.0f ? 2.0f * log2e / args.softcap : log2e;
#pragma unroll
        for (int i = 0; i < at_once; i++)
#pragma unroll
            for (int k = 0; k < shape::shares * 8; k++)
                if (first + at + i * shape::rows >= count || (k / 8 * 32 + lane) * 8 >= args.head_dim)
                    x[i][k / 8][k % 8] = 0.0f;
        store_queries<DIMS, N, FP8, at_once>(at, x, queries, powers);
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            int32_t row = at + i * shape::rows;
            if (lane == 0 && row < N) {
                rows->pair[row / 2].factor[row % 2] = powers[i] * factor;
                rows->position[row] = w.kv_len - w.q_len + (first + row) / args.group;
            }
        }
    }
}

#endif // RDK_ATTN_SM90A_DECODE_LOAD_CUH
