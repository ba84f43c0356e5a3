// SPDX-License-Identifier: Apache-2.0
// What a prefill block's roles share: shapes, shared memory, rings and works; who finds a work; the warp that brings keys and
// values, tile by tile in the order of their use; and how a tile of e4m3 values is widened to f16 in place.
#ifndef RDK_SM90A_PREFILL_LOAD_CUH
#define RDK_SM90A_PREFILL_LOAD_CUH

#include "kernels/attn/sm90a_prefill_args.h"
#include "kernels/common/sm90a_ptx.cuh"

#include <cuda_fp8.h>

enum { WIDENING_WARPS = 4, QUERY_WARPS = 3, BARRIER_WIDENING = 6 };
enum { TILES_AHEAD = 12 }; // of a work's last one the next work is looked for, so that its queries come in time
enum { WORKS = 4 }; // that a block knows at a time: one whose sums end, one that starts, one whose queries come

template <int DIMS, bool FP8_> struct prefill_shape {
    static constexpr bool fp8 = FP8_;
    static constexpr int dims = DIMS, keys = rdk_prefill_keys(DIMS), rows = rdk_prefill_rows(DIMS);
    static constexpr int key_slots = rdk_prefill_key_slots(DIMS, FP8_), key_bytes = keys * DIMS * (FP8_ ? 1 : 2);
    static constexpr int value_slots = rdk_prefill_value_slots(DIMS, FP8_), value_bytes = keys * DIMS * 2;
    static constexpr int chunk_bytes = keys * 128; // 64 dims of a tile, 16 bits each; 128 dims of keys in codes
    static constexpr int groups = 2, consumers = groups * 128; // groups of four warps that multiply
    static constexpr bool splits_dims = DIMS == 512;    // the groups share their rows, not their output dims
    static constexpr int out_dims = splits_dims ? DIMS / groups : DIMS;
    static constexpr int query_buffers = rdk_prefill_query_buffers(DIMS), query_bytes = rows * DIMS * 2;
    static constexpr int query_warps = QUERY_WARPS + (FP8_ && DIMS == 256 ? WIDENING_WARPS : 0);
    static constexpr int load_registers = FP8_ && DIMS < 512 ? 48 : 56, widen_registers = 96 - load_registers;
    static constexpr int take_registers = FP8_ ? 208 : 224;
    static constexpr int first_consumer = FP8_ ? 256 : 128, product_dims = FP8_ && out_dims > 128 ? 128 : out_dims;
};

struct prefill_work {
    int32_t seq, kv_head, row, rows; // first packed row of the block; rows of the sequence
    int32_t token, chunk;            // of the sequence, that the first row belongs to; of keys
    int32_t q_begin, q_len, kv_len;
    int32_t first_key, tile, tiles; // earliest key that a row sees; tiles of keys
};
struct prefill_state {
    uint64_t keys_full[RDK_PREFILL_SLOTS_MAX], keys_empty[RDK_PREFILL_SLOTS_MAX];
    uint64_t raw[RDK_PREFILL_SLOTS_MAX], values_full[RDK_PREFILL_SLOTS_MAX], values_empty[RDK_PREFILL_SLOTS_MAX]; // raw: in codes
    uint64_t wanted, work_full[WORKS], work_empty[WORKS], queries_full[2], queries_empty[2];
    prefill_work work[WORKS];
    float factor[2][128]; // e4m3 caches: what each query row of a buffer is to be scaled by again
};
static_assert(sizeof(prefill_state) <= RDK_PREFILL_STATE_BYTES, "beside the tiles");

// A block's shared memory, from its first multiple of 1024.
template <class S> struct block_memory {
    unsigned char *base;
    __device__ __forceinline__ unsigned char *keys(int32_t slot) const { return base + slot * S::key_bytes; }
    __device__ __forceinline__ unsigned char *values(int32_t slot) const {
        return base + S::key_slots * S::key_bytes + slot * S::value_bytes;
    }
    __device__ __forceinline__ unsigned char *queries(int32_t buffer) const {
        return base + S::key_slots * S::key_bytes + S::value_slots * S::value_bytes + buffer * S::query_bytes;
    }
    __device__ __forceinline__ prefill_state &state() const {
        return *reinterpret_cast<prefill_state *>(queries(S::query_buffers));
    }
};

// A position in a ring of COUNT barriers and the parity that a wait needs, in one register.
template <int COUNT> struct ring_place {
    static constexpr bool power = (COUNT & (COUNT - 1)) == 0;
    uint32_t word = 0; // a count, or where COUNT is no power of two the position and above it the parity
    __device__ __forceinline__ int32_t at() const { return power ? word % COUNT : word & 0xff; }
    __device__ __forceinline__ uint32_t parity() const { return power ? word / COUNT % 2 : word >> 31; }
    __device__ __forceinline__ void next() { word = power || at() < COUNT - 1 ? word + 1 : ~word & 0x80000000u; }
};
using work_place = ring_place<WORKS>;

__device__ __forceinline__ void copy_box3(void *to, const void *map, uint64_t *barrier, int32_t x, int32_t y, int32_t z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
                     smem_address(to)),
                 "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
// The units of a call in order: sequence by sequence; in it, as many KV heads together as the second-level cache holds; in those,
// the row tiles from the last, which sees most keys. Block b starts with unit b and then takes the next one that is left, as late as
// it can: units differ in length. All lanes of a warp call it.
struct work_finder {
    uint32_t unit; // of the next call
    int32_t seq = 0, before = 0; // first of the 32 sequences looked at; units before them
    __device__ __forceinline__ void take(const rdk_attn_prefill_sm90a_args &args) {
        if (!args.taken) {
            unit = INT32_MAX;
            return;
        }
        uint32_t taken = 0, blocks;
        if (threadIdx.x % 32 == 0) taken = atomicAdd(args.taken, 1);
        asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks)); // volatile: it would wait in a register
        unit = taken + blocks; // of lane 0
    }
    template <class S> __device__ __forceinline__ void next(const rdk_attn_prefill_sm90a_args &args, prefill_work &w) {
        int32_t lane = threadIdx.x % 32, unit = (int32_t)__shfl_sync(0xffffffffu, this->unit, 0);
        for (; seq < args.seqs; seq += 32) {
            int32_t mine = seq + lane, begin = 0, q_len = 0;
            if (mine < args.seqs) {
                begin = __ldcg(args.q_starts + mine);
                q_len = __ldcg(args.q_starts + mine + 1) - begin;
            }
            int32_t tiles = (q_len * args.group + S::rows - 1) / S::rows, sum = tiles * args.kv_heads * args.chunks;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                int32_t below = __shfl_up_sync(0xffffffffu, sum, step);
                if (lane >= step) sum += below;
            }
            uint32_t found = __ballot_sync(0xffffffffu, unit < before + sum);
            if (found) {
                int32_t at = __ffs((int)found) - 1;
                w.seq = seq + at;
                w.q_begin = __shfl_sync(0xffffffffu, begin, at);
                w.q_len = __shfl_sync(0xffffffffu, q_len, at);
                tiles = __shfl_sync(0xffffffffu, tiles, at);
                place<S>(args, w, unit - before - __shfl_sync(0xffffffffu, sum, at) + tiles * args.kv_heads * args.chunks, tiles);
                return;
            }
            before += __shfl_sync(0xffffffffu, sum, 31);
        }
        w.seq = -1; // none is left
    }
    template <class S>
    static __device__ __forceinline__ void place(const rdk_attn_prefill_sm90a_args &args, prefill_work &w, int32_t unit, int32_t tiles) {
        uint32_t together = args.heads_together, at = (uint32_t)unit / args.chunks, span = tiles * together, group = args.group;
        w.chunk = unit - at * args.chunks;
        int32_t heads = at / span * together;
        at %= span;
        uint32_t down = at / together; // row tiles from the last
        w.kv_head = heads + at - down * together;
        w.row = (tiles - 1 - down) * S::rows;
        w.rows = w.q_len * group;
        w.kv_len = min(__ldcg(args.kv_lens + w.seq), args.max_keys);
        int32_t before = w.kv_len - w.q_len, last = (min(w.row + S::rows, w.rows) - 1) / group;
        w.token = (uint32_t)w.row / group;
        w.first_key = args.window > 0 ? max(before + w.token - args.window + 1, 0) : 0;
        w.tile = (uint32_t)w.first_key / S::keys;
        // Rows that see no key have a tile of which nothing is read and all is hidden.
        int32_t end = max((before + last + S::keys) / S::keys, w.tile + 1);
        if (args.chunks > 1) { // may leave none
            int32_t tiles_each = args.chunk_keys / S::keys;
            w.tile = max(w.tile, w.chunk * tiles_each);
            end = min(end, (w.chunk + 1) * tiles_each);
        }
        w.tiles = end - w.tile;
    }
};

// What the finding warp has posted. It stays until every lane of every other role has arrived at its work_empty; fields are read
// again where they are needed, which takes no registers.
__device__ __forceinline__ const prefill_work &wait_work(prefill_state &state, const work_place &post) {
    barrier_wait(&state.work_full[post.at()], post.parity());
    return state.work[post.at()];
}

// Where this lane's box of a tile lies: the cache block and the row in it. A box that no row sees reads nothing: its place is outside
// the tensor, which the copy engine fills with zeros.
struct box_place {
    int32_t block, row;
};
template <class S>
__device__ __forceinline__ box_place find_box(const rdk_attn_prefill_sm90a_args &args, const prefill_work &w, int32_t tile) {
    int32_t lane = threadIdx.x % 32, key = tile * S::keys + lane * args.box_rows;
    if (lane >= args.boxes || key >= w.kv_len || key + args.box_rows <= w.first_key || tile >= w.tile + w.tiles) return {-1, 0};
    int32_t block = (uint32_t)key / (uint32_t)args.block_tokens;
    return {__ldcg(args.block_table + w.seq * args.block_table_stride + block), key - block * args.block_tokens};
}
template <class S>
__device__ __forceinline__ void load_tile(const rdk_attn_prefill_sm90a_args &args, const void *map, int32_t block_rows, box_place from,
                                          int32_t kv_head, unsigned char *slot, uint64_t *barrier) {
    constexpr int width = S::fp8 ? (S::dims < 128 ? S::dims : 128) : 64, bytes = S::fp8 ? width : 128; // of a copied row
    int32_t lane = threadIdx.x % 32, row = from.block < 0 ? -args.box_rows : from.block * block_rows + from.row;
    if (lane == 0) barrier_expect(barrier, S::keys * S::dims * (S::fp8 ? 1 : 2));
    __syncwarp();
    if (lane < args.boxes)
        for (int chunk = 0; chunk < S::dims / width; chunk++)
            copy_box3(slot + chunk * S::keys * bytes + lane * args.box_rows * bytes, map, barrier, chunk * width, kv_head, row);
}

// One warp. Tiles come in the order of their use: the scores of a tile are started before the values of the one before it. Codes
// of values fill the upper half of their slot: see widen_tile.
template <class S>
__device__ __forceinline__ void load_all(const rdk_attn_prefill_sm90a_args &args, const block_memory<S> memory) {
    prefill_state &state = memory.state();
    work_place post;
    ring_place<S::key_slots> key;
    ring_place<S::value_slots> value;
    for (;; post.next()) {
        const prefill_work &w = wait_work(state, post);
        if (w.seq < 0) return;
        box_place now = find_box<S>(args, w, w.tile), last = now;
        int32_t tiles = w.tiles;
        for (int32_t i = 0; i <= tiles; i++) {
            box_place next = find_box<S>(args, w, w.tile + i + 1);
            if (i == max(tiles - TILES_AHEAD, 0) && threadIdx.x % 32 == 0) barrier_arrive(&state.wanted);
            if (i < tiles) {
                barrier_wait(&state.keys_empty[key.at()], key.parity() ^ 1);
                load_tile<S>(args, args.k_map, args.k_block_rows, now, w.kv_head, memory.keys(key.at()), &state.keys_full[key.at()]);
                key.next();
            }
            if (i > 0) {
                barrier_wait(&state.values_empty[value.at()], value.parity() ^ 1);
                load_tile<S>(args, args.v_map, args.v_block_rows, last, w.kv_head,
                             memory.values(value.at()) + (S::fp8 ? S::value_bytes / 2 : 0),
                             S::fp8 ? &state.raw[value.at()] : &state.values_full[value.at()]);
                value.next();
            }
            last = now;
            now = next;
        }
        barrier_arrive(&state.work_empty[post.at()]);
    }
}

__device__ __forceinline__ uint32_t widen_two(uint32_t codes) { // e4m3 to f16, exact
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)codes));
    return pair;
}

// Widens a tile of values in its own slot, whose upper half holds the codes. A warp takes 8 keys x 64 dims at a time; the eight
// lanes of a phase take four pieces each of two keys that differ in bits 0 and 2, so that reads and writes of 16 bytes meet in no
// bank under either swizzle. From head 128 on a key's codes lie where the upper half of its own values come to lie: a warp widens
// the lower half of the dims, then holds the other codes of its keys before it writes. In head 64 they lie where another's values
// do. Rows from `limit` on become zero: 0 * NaN would spoil a sum. Every address is a lane's base plus a constant.
template <class S> __device__ __forceinline__ void widen_tile(unsigned char *slot, uint32_t thread, int32_t limit) {
    constexpr int code_bytes = S::dims < 128 ? 64 : 128; // of a copied row
    constexpr int halves = S::dims < 128 ? 1 : 2, strips = S::dims / 64 / halves; // a strip has 64 dims
    constexpr int turns = S::keys / 8 / WIDENING_WARPS;
    int32_t lane = thread % 32, column = lane % 4, warp = thread / 32 % WIDENING_WARPS;
    int32_t in_atom = lane / 8 * 2 ^ (lane & 4 ? 5 : 0), row = warp * 8 + in_atom;
    int32_t piece = column ^ in_atom / (128 / code_bytes);
    const unsigned char *even = slot + S::keys * S::dims + row * code_bytes + piece * 16, *odd = even - piece * 16 + (piece ^ 4) * 16;
    unsigned char *to = slot + row * 128 + (column * 2 ^ in_atom) * 16, *beside = slot + row * 128 + (column * 2 + 1 ^ in_atom) * 16;
#pragma unroll
    for (int half = 0; half < halves; half++) {
        uint4 held[strips][turns];
#pragma unroll
        for (int i = 0; i < strips * turns; i++) {
            int strip = half * strips + i / turns, down = i % turns * WIDENING_WARPS * 8;
            held[i / turns][i % turns] =
                *reinterpret_cast<const uint4 *>((strip % 2 ? odd : even) + (strip / 2 * S::keys + down) * code_bytes);
        }
        if (S::dims < 128)
            named_sync(BARRIER_WIDENING, WIDENING_WARPS * 32);
        else if (half)
            __syncwarp();
#pragma unroll
        for (int i = 0; i < strips * turns; i++) {
            int strip = half * strips + i / turns, down = i % turns * WIDENING_WARPS * 8;
            uint4 codes = held[i / turns][i % turns];
            if (row + down >= limit) codes = make_uint4(0, 0, 0, 0);
            *reinterpret_cast<uint4 *>(to + strip * S::chunk_bytes + down * 128) =
                make_uint4(widen_two(codes.x), widen_two(codes.x >> 16), widen_two(codes.y), widen_two(codes.y >> 16));
            *reinterpret_cast<uint4 *>(beside + strip * S::chunk_bytes + down * 128) =
                make_uint4(widen_two(codes.z), widen_two(codes.z >> 16), widen_two(codes.w), widen_two(codes.w >> 16));
        }
    }
    fence_async();
    __syncwarp();
}

#endif // RDK_SM90A_PREFILL_LOAD_CUH
