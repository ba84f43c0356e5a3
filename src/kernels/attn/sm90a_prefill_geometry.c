// SPDX-License-Identifier: Apache-2.0
// Launches of attn_prefill on sm_90a: arguments of the op in, one to three launches out, no driver call. Lengths stay on the card:
// grids, and how keys are cut, follow from the bounds of the call alone.
#include "kernels/attn/args.h"
#include "kernels/attn/card_operands.h"
#include "kernels/attn/sm90a_prefill_args.h"
#include "kernels/rows.h"

#include <stddef.h>

// Keys and values of the heads that are worked on side by side should stay in the second-level cache (50 MB on H100, 60 on H200, of
// which a half is near), since every row tile of a head reads them again.
enum { CACHE_BYTES = 32 << 20 };
#define STRIDE_BYTES_END ((int64_t)1 << 40) // of a tensor map (cuTensorMapEncodeTiled)

static bool multiple_of_16(const char *field, const char *what, int64_t bytes) {
    if (bytes % 16 == 0 && bytes >= 0 && bytes < STRIDE_BYTES_END) return true;
    rdi_fail(RD_E_INVALID, "attn_prefill: %s: %s of %lld bytes, needs a multiple of 16 below 2^40", field,
             what, (long long)bytes);
    return false;
}
static bool rows_fit(const char *field, const void *data, int64_t stride_token, int64_t stride_head,
                     rd_dtype dtype) {
    int64_t bytes = (int64_t)rd_dtype_bytes(dtype);
    if ((uintptr_t)data % 16 == 0)
        return multiple_of_16(field, "token stride", stride_token * bytes) &&
               multiple_of_16(field, "head stride", stride_head * bytes);
    rdi_fail(RD_E_INVALID, "attn_prefill: %s: data=%p, needs a multiple of 16", field, data);
    return false;
}

typedef struct cache { // K or V
    const char *field;
    const void *data;
    int64_t block, token, head, dim; // strides in elements
} cache;

// The copy engine sees a cache as [rows, heads, dims]: a block's tokens are rows, and so is the way to the next block.
static bool cache_fits(const rdi_attn_args *a, const cache *c) {
    int64_t rows = a->blocks > 1 && c->token > 0 ? c->block / c->token : a->block_tokens;
    if (c->dim != 1)
        rdi_fail(RD_E_INVALID, "attn_prefill: %s: stride[3]=%lld, needs 1", c->field, (long long)c->dim);
    else if (c->token < 1 || (a->blocks > 1 && (c->block < 1 || c->block % c->token)))
        rdi_fail(RD_E_INVALID,
                 "attn_prefill: %s: block stride %lld, needs a multiple of the token stride %lld", c->field,
                 (long long)c->block, (long long)c->token);
    else if (rdi_mul_capped(a->blocks, rows) > INT32_MAX)
        rdi_fail(RD_E_INVALID, "attn_prefill: %s: %lld rows, a copy reaches %d", c->field,
                 (long long)rdi_mul_capped(a->blocks, rows), INT32_MAX);
    else
        return rows_fit(c->field, c->data, c->token, a->kv_heads > 1 ? c->head : 0, a->kv_dtype);
    return false;
}

static rdi_tensor_map map_of(const rdi_attn_args *a, const cache *c, uint32_t arg_offset, int32_t box_rows) {
    uint64_t elem = rd_dtype_bytes(a->kv_dtype);
    int64_t width = a->head_dim * (int64_t)elem < 128 ? a->head_dim : 128 / (int64_t)elem;
    int64_t rows =
        a->blocks > 1 ? (a->blocks - 1) * (c->block / c->token) + a->block_tokens : a->block_tokens;
    return (rdi_tensor_map){
        .arg_offset = arg_offset,
        .base = c->data,
        .elem_bytes = (uint32_t)elem,
        .rank = 3,
        .dim = {(uint64_t)a->head_dim, (uint64_t)a->kv_heads, (uint64_t)rows},
        .stride_bytes = {elem, (uint64_t)(a->kv_heads > 1 ? c->head : c->token) * elem,
                         (uint64_t)c->token * elem},
        .box = {(uint32_t)width, 1, (uint32_t)box_rows},
        .swizzle_bytes = (uint32_t)width * (uint32_t)elem,
    };
}

static int32_t heads_together(const rdi_attn_args *a) {
    int64_t bytes = 2 * a->max_kv_len * a->head_dim * (int64_t)rd_dtype_bytes(a->kv_dtype),
            heads = a->kv_heads;
    while (heads > 1 && (a->kv_heads % heads || heads * bytes > CACHE_BYTES)) heads--;
    return (int32_t)heads;
}

static const char *prefill_kernel(int64_t dims, bool fp8) {
    static const char *const names[2][4] = {
        {"rdk_attn_prefill_sm90a_bf16_d64", "rdk_attn_prefill_sm90a_bf16_d128",
         "rdk_attn_prefill_sm90a_bf16_d256", "rdk_attn_prefill_sm90a_bf16_d512"},
        {"rdk_attn_prefill_sm90a_fp8_d64", "rdk_attn_prefill_sm90a_fp8_d128",
         "rdk_attn_prefill_sm90a_fp8_d256", "rdk_attn_prefill_sm90a_fp8_d512"},
    };
    return names[fp8][dims == 64 ? 0 : dims == 128 ? 1 : dims == 256 ? 2 : 3];
}

static int32_t common_divisor(int32_t x, int32_t y) {
    while (y) {
        int32_t rest = x % y;
        x = y, y = rest;
    }
    return x;
}

static rdk_attn_prefill_sm90a_args kernel_args(const rdi_attn_args *a, int32_t keys) {
    int32_t box_rows = common_divisor(keys, (int32_t)a->block_tokens),
            group = (int32_t)(a->q_heads / a->kv_heads);
    return (rdk_attn_prefill_sm90a_args){
        RDI_ATTN_OPERANDS(a),
        .seqs = (int32_t)a->seqs,
        .tokens = (int32_t)a->tokens,
        .kv_heads = (int32_t)a->kv_heads,
        .group = group,
        .head_dim = (int32_t)a->head_dim,
        .group_magic = (uint32_t)((1u << 31) / (uint32_t)group + 1),
        .heads_together = heads_together(a),
        .block_tokens = (int32_t)a->block_tokens,
        .max_keys = (int32_t)(a->max_blocks * a->block_tokens),
        .box_rows = box_rows,
        .boxes = keys / box_rows,
        .k_block_rows = (int32_t)(a->k_stride_block / a->k_stride_token),
        .v_block_rows = (int32_t)(a->v_stride_block / a->v_stride_token),
        .q_type = rdk_type_code(a->q_dtype),
        .out_type = rdk_type_code(a->out_dtype),
        .window = a->window,
        .scale = a->scale,
        .softcap = a->softcap,
    };
}

// Units of a call, and how its keys are cut.
typedef struct prefill_cut {
    int64_t units, rows;              // rows: packed, of one KV head
    int32_t most, chunks, chunk_keys; // most: chunks for any bound of keys
} prefill_cut;

// A call with no more units than multiprocessors is cut where up to four rounds of shorter units end sooner. A unit costs about as much as
// 512 keys beside its own (one H200, head 128: 51 us for 16 tiles of 128 keys, 76 for 32).
enum { CHUNK_COST_KEYS = 512, ROUNDS_MAX = 4 };
static prefill_cut cut_of(const rdi_attn_args *a, int32_t processors) {
    int64_t rows = a->tokens * (a->q_heads / a->kv_heads), bound = rdi_attn_keys_bound(a);
    // The most row tiles that so many rows of so many sequences can take.
    int64_t each = rdk_prefill_rows((int)a->head_dim), tiles = (rows + (each - 1) * a->seqs) / each;
    prefill_cut cut = {.units = rdi_mul_capped(tiles, a->kv_heads), .rows = rows, .chunks = 1};
    if (cut.units > processors || bound <= RDK_PREFILL_CHUNK_KEYS_MIN) return cut;
    cut.most =
        (int32_t)rdi_min(RDK_PREFILL_CHUNKS_MAX, ROUNDS_MAX * (int64_t)processors / rdi_max(cut.units, 1));
    int64_t least = INT64_MAX;
    for (int32_t c = 1; c <= cut.most; c++) {
        int64_t keys = rdi_round_up(rdi_ceil_div(bound, c), RDK_PREFILL_CHUNK_KEYS_MIN),
                chunks = rdi_ceil_div(bound, keys), rounds = rdi_ceil_div(cut.units * chunks, processors),
                cost = rounds * (keys + CHUNK_COST_KEYS);
        if (cost >= least) continue;
        least = cost;
        cut.chunks = (int32_t)chunks;
        cut.chunk_keys = (int32_t)keys;
    }
    cut.units *= cut.chunks;
    return cut;
}

// Partial results of all chunks: a row's sums, largest logit and weight.
static int64_t part_bytes(const rdi_attn_args *a, const prefill_cut *cut, int32_t chunks, int64_t floats) {
    return a->kv_heads * chunks * cut->rows * floats * (int64_t)sizeof(float);
}
enum { COUNTER_BYTES = 256 };
size_t rdi_attn_prefill_sm90a_ws(const void *args, int32_t units) {
    const rdi_attn_args *a = args;
    prefill_cut cut = cut_of(a, units); // no less for fewer keys: callers ask for their longest context
    return (size_t)(COUNTER_BYTES + part_bytes(a, &cut, cut.most, a->head_dim + 2));
}

// What the kernels count in 32 bits, and the second axis of the launch that adds up.
static bool counts_fit(const rdi_attn_args *a, const prefill_cut *cut) {
    return rdi_launch_takes_count("attn_prefill", "q: rows of a KV head", cut->rows, RDI_CARD_EXTENT_MAX) &&
           rdi_launch_takes_count("attn_prefill", "q: row tiles of all KV heads", cut->units,
                                  RDI_CARD_EXTENT_MAX) &&
           rdi_launch_takes_count("attn_prefill", "k_cache: shape[2]", a->kv_heads, 65535);
}

int32_t rdi_attn_prefill_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                        rdi_launch *out) {
    const rdi_attn_args *a = args;
    const cache k = {"k_cache",         a->k_cache,       a->k_stride_block,
                     a->k_stride_token, a->k_stride_head, a->k_stride_dim},
                v = {"v_cache",         a->v_cache,       a->v_stride_block,
                     a->v_stride_token, a->v_stride_head, a->v_stride_dim};
    if (!rows_fit("q", a->q, a->q_stride_token, a->q_stride_head, a->q_dtype) ||
        !rows_fit("out", a->out, a->out_stride_token, a->out_stride_head, a->out_dtype) ||
        !cache_fits(a, &k) || !cache_fits(a, &v))
        return 0;
    int32_t dims = (int32_t)a->head_dim, launches = 0;
    bool fp8 = a->kv_dtype == RD_DTYPE_E4M3;
    prefill_cut cut = cut_of(a, device->compute_units);
    if (!counts_fit(a, &cut)) return 0;
    rdk_attn_prefill_sm90a_args kernel = kernel_args(a, rdk_prefill_keys(dims));
    kernel.chunks = cut.chunks;
    kernel.chunk_keys = cut.chunk_keys;
    kernel.sums = RDK_ADDR(ws) + COUNTER_BYTES;
    kernel.tops = kernel.sums + (uint64_t)part_bytes(a, &cut, cut.chunks, a->head_dim);
    const uint32_t grid[3] = {(uint32_t)rdi_max(1, rdi_min(cut.units, device->compute_units)), 1, 1},
                   one[3] = {1, 1, 1};
    if (cut.units > device->compute_units || cut.chunks > 1) { // blocks take what is left from a counter
        kernel.taken = RDK_ADDR(ws);
        rdi_launch_fill(&out[launches], "rdk_attn_prefill_sm90a_begin", one, 32, &kernel, sizeof kernel);
        out[launches++].dependent = true;
    }
    rdi_launch *main = &out[launches++];
    rdi_launch_fill(main, prefill_kernel(dims, fp8), grid, (uint32_t)rdk_prefill_threads(fp8), &kernel,
                    sizeof kernel);
    main->shared_bytes = (uint32_t)rdk_prefill_shared_bytes(dims, fp8);
    main->dependent = true;
    main->map_count = 2;
    main->map[0] = map_of(a, &k, offsetof(rdk_attn_prefill_sm90a_args, k_map), kernel.box_rows);
    main->map[1] = map_of(a, &v, offsetof(rdk_attn_prefill_sm90a_args, v_map), kernel.box_rows);
    if (cut.chunks > 1) {
        int64_t each = RDK_PREFILL_MERGE_THREADS / 32;
        const uint32_t rows[3] = {(uint32_t)rdi_ceil_div(cut.rows, each), (uint32_t)a->kv_heads, 1};
        rdi_launch *merge = &out[launches++];
        rdi_launch_fill(merge, "rdk_attn_prefill_sm90a_merge", rows, RDK_PREFILL_MERGE_THREADS, &kernel,
                        sizeof kernel);
        merge->dependent = true;
    }
    return launches;
}
