// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a attention kernels: arguments of the op in, launches out, no driver call.
#include "kernels/attn/args.h"
#include "kernels/attn/sm90a_args.h"
#include "kernels/rows.h"

typedef struct decode_shape {
    int32_t group, max_rows, tiles, row_blocks, chunks, dims;
} decode_shape;

static decode_shape shape_of(const rdi_attn_args *a) {
    int64_t bound = a->max_blocks * a->block_tokens;
    if (a->max_kv_len > 0 && a->max_kv_len < bound) bound = a->max_kv_len;
    decode_shape s = {.group = (int32_t)(a->q_heads / a->kv_heads),
                      .chunks = rdk_attn_chunk_count((int32_t)bound)};
    s.max_rows = (int32_t)a->max_q_len * s.group;
    s.dims = a->head_dim <= 64 ? 64 : a->head_dim <= 128 ? 128 : a->head_dim <= 256 ? 256 : 512;
    int32_t tiles = (int32_t)rdi_ceil_div(s.max_rows, RDK_ATTN_TILE_ROWS), most = s.dims == 512 ? 2 : 4;
    s.tiles = tiles <= 1 ? 1 : tiles <= 2 ? 2 : most;
    s.row_blocks = (int32_t)rdi_ceil_div(tiles, s.tiles);
    if (s.chunks < 1) s.chunks = 1;
    return s;
}

// One partial result a sequence, KV head, chunk and row: sums first, then the pairs of largest logit and weight.
static int64_t partial_count(const rdi_attn_args *a, const decode_shape *s) {
    return a->seqs * a->kv_heads * s->chunks * s->max_rows;
}
size_t rdi_attn_decode_sm90a_ws(const void *args, int32_t units) {
    const rdi_attn_args *a = args;
    decode_shape s = shape_of(a);
    (void)units;
    return (size_t)partial_count(a, &s) * (size_t)(a->head_dim + 2) * sizeof(float);
}

static const char *decode_kernel(bool fp8, int32_t dims, int32_t tiles) {
#define NAME(text_) "rdk_attn_decode_sm90a_" text_
    static const char *const names[2][4][3] = {
        {{NAME("bf16_d64_r16"), NAME("bf16_d64_r32"), NAME("bf16_d64_r64")},
         {NAME("bf16_d128_r16"), NAME("bf16_d128_r32"), NAME("bf16_d128_r64")},
         {NAME("bf16_d256_r16"), NAME("bf16_d256_r32"), NAME("bf16_d256_r64")},
         {NAME("bf16_d512_r16"), NAME("bf16_d512_r32"), NULL}},
        {{NAME("fp8_d64_r16"), NAME("fp8_d64_r32"), NAME("fp8_d64_r64")},
         {NAME("fp8_d128_r16"), NAME("fp8_d128_r32"), NAME("fp8_d128_r64")},
         {NAME("fp8_d256_r16"), NAME("fp8_d256_r32"), NAME("fp8_d256_r64")},
         {NAME("fp8_d512_r16"), NAME("fp8_d512_r32"), NULL}},
    };
#undef NAME
    int32_t size = dims == 64 ? 0 : dims == 128 ? 1 : dims == 256 ? 2 : 3;
    return names[fp8][size][tiles == 1 ? 0 : tiles == 2 ? 1 : 2];
}

static bool pieces_aligned(const void *data, int64_t block, int64_t token, int64_t head, int64_t elem) {
    return (uintptr_t)data % 16 == 0 && block * elem % 16 == 0 && token * elem % 16 == 0 &&
           head * elem % 16 == 0;
}

static rdk_attn_sm90a_args kernel_args(const rdi_attn_args *a) {
    int64_t elem = (int64_t)rd_dtype_bytes(a->kv_dtype);
    return (rdk_attn_sm90a_args){
        .q = RDK_ADDR(a->q),
        .k_cache = RDK_ADDR(a->k_cache),
        .v_cache = RDK_ADDR(a->v_cache),
        .k_scale = RDK_ADDR(a->k_scale),
        .v_scale = RDK_ADDR(a->v_scale),
        .block_table = RDK_ADDR(a->block_table),
        .kv_lens = RDK_ADDR(a->kv_lens),
        .q_starts = RDK_ADDR(a->q_starts),
        .sinks = RDK_ADDR(a->sinks),
        .out = RDK_ADDR(a->out),
        .q_stride_token = a->q_stride_token,
        .q_stride_head = a->q_stride_head,
        .k_stride_block = a->k_stride_block,
        .k_stride_token = a->k_stride_token,
        .k_stride_head = a->k_stride_head,
        .v_stride_block = a->v_stride_block,
        .v_stride_token = a->v_stride_token,
        .v_stride_head = a->v_stride_head,
        .block_table_stride = a->block_table_stride,
        .out_stride_token = a->out_stride_token,
        .out_stride_head = a->out_stride_head,
        .blocks = a->blocks,
        .tokens = (int32_t)a->tokens,
        .q_heads = (int32_t)a->q_heads,
        .kv_heads = (int32_t)a->kv_heads,
        .head_dim = (int32_t)a->head_dim,
        .block_tokens = (int32_t)a->block_tokens,
        .max_blocks = (int32_t)a->max_blocks,
        .q_type = rdk_type_code(a->q_dtype),
        .out_type = rdk_type_code(a->out_dtype),
        .aligned = pieces_aligned(a->k_cache, a->k_stride_block, a->k_stride_token, a->k_stride_head, elem) &&
                   pieces_aligned(a->v_cache, a->v_stride_block, a->v_stride_token, a->v_stride_head, elem),
        .window = a->window,
        .scale = a->scale,
        .softcap = a->softcap,
    };
}

int32_t rdi_attn_decode_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                       rdi_launch *out) {
    const rdi_attn_args *a = args;
    decode_shape s = shape_of(a);
    bool fp8 = a->kv_dtype == RD_DTYPE_E4M3;
    rdk_attn_sm90a_args kernel = kernel_args(a);
    (void)device;
    kernel.group = s.group;
    kernel.chunks = s.chunks;
    kernel.max_rows = s.max_rows;
    kernel.row_blocks = s.row_blocks;
    kernel.sums = RDK_ADDR(ws);
    kernel.tops = kernel.sums + (uint64_t)partial_count(a, &s) * (uint64_t)a->head_dim * sizeof(float);
    uint32_t warps = (uint32_t)(s.tiles * (s.dims > 256 ? 2 : 1) * RDK_ATTN_TEAMS);
    rdi_launch_fill(
        &out[0], decode_kernel(fp8, s.dims, s.tiles),
        (const uint32_t[3]){(uint32_t)s.chunks, (uint32_t)(a->kv_heads * s.row_blocks), (uint32_t)a->seqs},
        warps * 32, &kernel, sizeof kernel);
    out[0].shared_bytes = (uint32_t)rdk_attn_decode_shared_bytes(s.dims, s.tiles, fp8);
    out[0].dependent = true;
    rdi_launch_fill(&out[1], "rdk_attn_decode_sm90a_merge",
                    (const uint32_t[3]){(uint32_t)a->q_heads, (uint32_t)a->max_q_len, (uint32_t)a->seqs},
                    RDK_ATTN_MERGE_GROUPS * (uint32_t)s.dims / 4, &kernel, sizeof kernel);
    out[1].dependent = true;
    return 2;
}
