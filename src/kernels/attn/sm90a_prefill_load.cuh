// SPDX-License-Identifier: Apache-2.0
// Who works on what in a prefill block, and the warps that bring keys and values: one warp finds the block's work and starts the
// tensor copies, tile by tile in the order in which the tiles are used; for e4m3 four more warps widen each tile to f16 in place.
#ifndef RDK_SM90A_PREFILL_LOAD_CUH
#define RDK_SM90A_PREFILL_LOAD_CUH

#include "kernels/attn/sm90a_prefill_args.h"
#include "kernels/common/sm90a_ptx.cuh"

#include <cuda_fp8.h>

enum { WIDENING_WARPS = 4, QUERY_WARPS = 3, BARRIER_WIDENING = 6 };
enum { WORKS = 4 }; // that a block knows at a time: one whose sums end, one that starts, one whose queries come

template <int DIMS, bool FP8_> struct prefill_shape {
    static constexpr bool fp8 = FP8_;
    static constexpr int dims = DIMS, keys = rdk_prefill_keys(DIMS), rows = rdk_prefill_rows(DIMS);
    static constexpr int slots = rdk_prefill_slots(DIMS), slot_bytes = keys * DIMS * 2;
    static constexpr int chunk_bytes = keys * 128;      // 64 dims of a tile, 16 bits each
    static constexpr int groups = 2, consumers = groups * 128; // groups of four warps that multiply
    static constexpr bool splits_dims = DIMS == 512;    // the groups share their rows, not their output dims
    static constexpr int out_dims = splits_dims ? DIMS / groups : DIMS;
    static constexpr int query_buffers = rdk_prefill_query_buffers(DIMS), query_bytes = rows * DIMS * 2;
    static constexpr int load_registers = FP8_ ? 40 : 56, widen_registers = 56, take_registers = FP8_ ? 208 : 224;
    static constexpr int first_consumer = FP8_ ? 256 : 128, product_dims = FP8_ && out_dims > 128 ? 128 : out_dims;
};

struct prefill_work {
    int32_t seq, kv_head, row, rows; // first packed row of the block; rows of the sequence
    int32_t q_begin, q_len, kv_len;
    int32_t first_key, tile, tiles; // earliest key that a row sees; tiles of keys
};
struct prefill_state {
    uint64_t full[RDK_PREFILL_SLOTS_MAX], empty[RDK_PREFILL_SLOTS_MAX], raw[RDK_PREFILL_SLOTS_MAX];
    uint64_t work_full[WORKS], work_empty[WORKS], queries_full[2], queries_empty[2];
    prefill_work work[WORKS];
    float factor[2][128]; // f16 products: what each query row of a buffer was scaled by
};
static_assert(sizeof(prefill_state) <= RDK_PREFILL_STATE_BYTES, "beside the tiles");

// A position in a ring of COUNT barriers and the parity that a wait needs.
template <int COUNT> struct ring_place {
    int32_t at = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void next() {
        at++;
        if (at == COUNT) {
            at = 0;
            parity ^= 1;
        }
    }
};

// The same for works, in one register.
struct work_place {
    uint32_t count = 0;
    __device__ __forceinline__ int32_t at() const { return count % WORKS; }
    __device__ __forceinline__ int32_t last() const { return (count - 1) % WORKS; }
    __device__ __forceinline__ int32_t before_last() const { return (count - 2) % WORKS; }
    __device__ __forceinline__ uint32_t parity() const { return count / WORKS % 2; }
    __device__ __forceinline__ void next() { count++; }
};

__device__ __forceinline__ void copy_box3(void *to, const void *map, uint64_t *barrier, int32_t x, int32_t y, int32_t z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
                     smem_address(to)),
                 "l"(map), "r"(smem_address(barrier)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
// The units of a call in order: sequence by sequence; in it, as many KV heads together as the second-level cache holds; in those,
// the row tiles from the last, which sees most keys. Block b starts with unit b and then takes the next one that is left. All
// lanes of a warp call it.
struct work_finder {
    uint32_t unit; // of the next call
    int32_t seq = 0, before = 0; // first of the 32 sequences looked at; units before them
    __device__ __forceinline__ uint32_t take(const rdk_attn_prefill_sm90a_args &args) {
        uint32_t taken = 0;
        if (threadIdx.x % 32 == 0) taken = atomicAdd(args.taken, 1);
        uint32_t blocks;
        asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks)); // volatile: it would wait in a register
        return taken + blocks; // of lane 0
    }
    template <class S> __device__ __forceinline__ void next(const rdk_attn_prefill_sm90a_args &args, prefill_work &w) {
        int32_t lane = threadIdx.x % 32, unit = (int32_t)__shfl_sync(0xffffffffu, this->unit, 0);
        this->unit = args.taken ? take(args) : INT32_MAX; // needed a whole work later
        for (; seq < args.seqs; seq += 32) {
            int32_t mine = seq + lane, begin = 0, q_len = 0;
            if (mine < args.seqs) {
                begin = __ldcg(args.q_starts + mine);
                q_len = __ldcg(args.q_starts + mine + 1) - begin;
            }
            int32_t tiles = (q_len * args.group + S::rows - 1) / S::rows, sum = tiles * args.kv_heads;
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
                place<S>(args, w, unit - before - __shfl_sync(0xffffffffu, sum, at) + tiles * args.kv_heads, tiles);
                return;
            }
            before += __shfl_sync(0xffffffffu, sum, 31);
        }
        w.seq = -1; // none is left
    }
    template <class S>
    static __device__ __forceinline__ void place(const rdk_attn_prefill_sm90a_args &args, prefill_work &w, int32_t unit, int32_t tiles) {
        uint32_t together = args.heads_together, at = unit, span = tiles * together, group = args.group;
        int32_t heads = at / span * together;
        at %= span;
        uint32_t down = at / together; // row tiles from the last
        w.kv_head = heads + at - down * together;
        w.row = (tiles - 1 - down) * S::rows;
        w.rows = w.q_len * group;
        w.kv_len = min(__ldcg(args.kv_lens + w.seq), args.max_keys);
        int32_t before = w.kv_len - w.q_len, last = (min(w.row + S::rows, w.rows) - 1) / group;
        w.first_key = args.window > 0 ? max(before + (int32_t)(w.row / group) - args.window + 1, 0) : 0;
        w.tile = (uint32_t)w.first_key / S::keys;
        // Rows that see no key have a tile of which nothing is read and all is hidden.
        w.tiles = max((before + last + S::keys) / S::keys - w.tile, 1);
    }
};

// What the loading warp has posted, for the other roles.
__device__ __forceinline__ prefill_work read_work(prefill_state &state, const work_place &post) {
    barrier_wait(&state.work_full[post.at()], post.parity());
    prefill_work w = state.work[post.at()];
    barrier_arrive(&state.work_empty[post.at()]);
    return w;
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
    if (S::fp8) slot += S::keys * S::dims; // codes fill the upper half: see widen_tile
    if (lane == 0) barrier_expect(barrier, S::keys * S::dims * (S::fp8 ? 1 : 2));
    __syncwarp();
    if (lane < args.boxes)
        for (int chunk = 0; chunk < S::dims / width; chunk++)
            copy_box3(slot + chunk * S::keys * bytes + lane * args.box_rows * bytes, map, barrier, chunk * width, kv_head, row);
}

template <class S>
__device__ __forceinline__ void post_work(const rdk_attn_prefill_sm90a_args &args, prefill_state &state, work_finder &finder,
                                          work_place &post) {
    prefill_work found;
    barrier_wait(&state.work_empty[post.at()], post.parity() ^ 1);
    finder.next<S>(args, found);
    if (threadIdx.x % 32 == 0) {
        state.work[post.at()] = found;
        barrier_arrive(&state.work_full[post.at()]);
    }
    __syncwarp();
    post.next();
}

// One warp. Tiles come in the order of their use: the scores of a tile are started before the values of the one before it.
template <class S>
__device__ __forceinline__ void load_all(const rdk_attn_prefill_sm90a_args &args, prefill_state &state, unsigned char *ring) {
    work_finder finder = {blockIdx.x};
    work_place post;
    ring_place<S::slots> slot;
    uint64_t *loaded = S::fp8 ? state.raw : state.full;
    post_work<S>(args, state, finder, post);
    while (state.work[post.last()].seq >= 0) {
        post_work<S>(args, state, finder, post); // the next one, so that its queries come meanwhile
        const prefill_work &w = state.work[post.before_last()];
        box_place now = find_box<S>(args, w, w.tile), last = now;
        for (int32_t i = 0; i <= w.tiles; i++) {
            box_place next = find_box<S>(args, w, w.tile + i + 1);
            if (i < w.tiles) {
                barrier_wait(&state.empty[slot.at], slot.parity ^ 1);
                load_tile<S>(args, args.k_map, args.k_block_rows, now, w.kv_head, ring + slot.at * S::slot_bytes, &loaded[slot.at]);
                slot.next();
            }
            if (i > 0) {
                barrier_wait(&state.empty[slot.at], slot.parity ^ 1);
                load_tile<S>(args, args.v_map, args.v_block_rows, last, w.kv_head, ring + slot.at * S::slot_bytes, &loaded[slot.at]);
                slot.next();
            }
            last = now;
            now = next;
        }
    }
}

__device__ __forceinline__ uint32_t widen_two(uint32_t codes) { // e4m3 to f16, exact
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)codes));
    return pair;
}

// Widens a tile in its own slot, whose upper half holds the codes. A warp takes 8 keys x 64 dims at a time; the eight lanes of a
// phase take four pieces each of two keys that differ in bits 0 and 2, so that reads and writes of 16 bytes meet in no bank under
// either swizzle. A warp holds all codes of its keys before it writes: from head 128 on a key's codes lie where its own values
// come to lie, in head 64 where another's do. Rows from `limit` on become zero: 0 * NaN would spoil a sum. Every address is a
// lane's base plus a constant.
template <class S> __device__ __forceinline__ void widen_tile(unsigned char *slot, int32_t limit) {
    constexpr int code_bytes = S::dims < 128 ? 64 : 128; // of a copied row
    constexpr int high = S::keys / 8, share = high * S::dims / 64 / WIDENING_WARPS, turns = high / WIDENING_WARPS; // of a strip
    int32_t lane = threadIdx.x % 32, column = lane % 4, warp = threadIdx.x / 32 % WIDENING_WARPS;
    int32_t in_atom = lane / 8 * 2 ^ (lane & 4 ? 5 : 0), row = warp * 8 + in_atom;
    int32_t piece = column ^ in_atom / (128 / code_bytes);
    const unsigned char *even = slot + S::keys * S::dims + row * code_bytes + piece * 16, *odd = even - piece * 16 + (piece ^ 4) * 16;
    unsigned char *to = slot + row * 128 + (column * 2 ^ in_atom) * 16, *beside = slot + row * 128 + (column * 2 + 1 ^ in_atom) * 16;
    uint4 held[share];
#pragma unroll
    for (int i = 0; i < share; i++) {
        int strip = i / turns, down = i % turns * WIDENING_WARPS * 8; // a strip has 64 dims
        held[i] = *reinterpret_cast<const uint4 *>((strip % 2 ? odd : even) + (strip / 2 * S::keys + down) * code_bytes);
    }
    if (S::dims < 128)
        named_sync(BARRIER_WIDENING, WIDENING_WARPS * 32);
    else
        __syncwarp();
#pragma unroll
    for (int i = 0; i < share; i++) {
        int strip = i / turns, down = i % turns * WIDENING_WARPS * 8;
        if (row + down >= limit) held[i] = make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4 *>(to + strip * S::chunk_bytes + down * 128) =
            make_uint4(widen_two(held[i].x), widen_two(held[i].x >> 16), widen_two(held[i].y), widen_two(held[i].y >> 16));
        *reinterpret_cast<uint4 *>(beside + strip * S::chunk_bytes + down * 128) =
            make_uint4(widen_two(held[i].z), widen_two(held[i].z >> 16), widen_two(held[i].w), widen_two(held[i].w >> 16));
    }
    fence_async();
    __syncwarp();
}
template <class S> __device__ __forceinline__ void widen_all(prefill_state &state, unsigned char *ring) {
    work_place post;
    ring_place<S::slots> slot;
    for (;; post.next()) {
        prefill_work w = read_work(state, post);
        int32_t tile = w.tile, tiles = w.tiles, kv_len = w.kv_len;
        if (w.seq < 0) return;
        for (int32_t item = 0; item < 2 * tiles; item++) { // K, K V, K V ... V
            bool values = item > 0 && (item % 2 == 0 || item == 2 * tiles - 1);
            int32_t of = tile + (item + 1) / 2 - 1; // of a tile of values
            barrier_wait(&state.raw[slot.at], slot.parity);
            widen_tile<S>(ring + slot.at * S::slot_bytes, values ? kv_len - of * S::keys : S::keys);
            if (threadIdx.x % 32 == 0) barrier_arrive(&state.full[slot.at]);
            slot.next();
        }
    }
}

#endif // RDK_SM90A_PREFILL_LOAD_CUH
