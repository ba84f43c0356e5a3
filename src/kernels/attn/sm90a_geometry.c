// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a attention kernels: arguments of the op in, launches out, no driver call.
#include "kernels/attn/args.h"
#include "kernels/attn/card_operands.h"
#include "kernels/attn/sm90a_args.h"
#include "kernels/rows.h"

_Static_assert((int)RDK_ATTN_CODE_GROUP == (int)RDI_ATTN_CODE_GROUP, "the merge's groups are the op's");

// Of a chunk beside its steps, in quarters of a step: 3 and 10 were slower at 1 x 32K or 8 x 128K keys (docs/decisions/008-sm90a.md).
enum { CHUNK_COST = 6 };

typedef struct decode_shape {
    int32_t group, max_rows, chunks;
    int32_t dims, rows, row_blocks, teams, slots, fp8; // dims, rows: of the kernel
} decode_shape;

// Rows of queries by the blocks that a team takes: the smallest kernel of the head size that holds them, else several blocks.
static void cut_rows(decode_shape *s) {
    static const int32_t rows_of[4][3] = {
        {24, 24, 24}, {8, 24, 40}, {8, 24, 56}, {24, 24, 24}}; // compiled in
    const int32_t *sizes = rows_of[s->dims == 64 ? 0 : s->dims == 128 ? 1 : s->dims == 256 ? 2 : 3];
    s->row_blocks = (int32_t)rdi_ceil_div(s->max_rows, sizes[2]);
    int32_t rows = (int32_t)rdi_ceil_div(s->max_rows, s->row_blocks), i = 0;
    while (i < 2 && sizes[i] < rows) i++;
    s->rows = sizes[i];
}

static decode_shape shape_of(const rdi_attn_args *a) {
    decode_shape s = {.group = (int32_t)(a->q_heads / a->kv_heads),
                      .chunks = rdk_attn_chunk_count((int32_t)rdi_attn_keys_bound(a)),
                      .fp8 = a->kv_dtype == RD_DTYPE_E4M3};
    s.max_rows = (int32_t)rdi_min(a->max_q_len * s.group, INT32_MAX);
    s.dims = a->head_dim <= 64 ? 64 : a->head_dim <= 128 ? 128 : a->head_dim <= 256 ? 256 : 512;
    if (s.chunks < 1) s.chunks = 1;
    cut_rows(&s);
    // As many teams as rings deep enough to keep the memory busy fit beside each other.
    s.teams = rdk_attn_most_teams(s.dims, s.rows);
    while (s.teams > 1 && rdk_attn_slots(s.dims, s.fp8, s.rows, s.teams) < 3) s.teams--;
    s.slots = rdk_attn_slots(s.dims, s.fp8, s.rows, s.teams);
    return s;
}

// One partial result a sequence, KV head, chunk and row: sums first, then the pairs of largest logit and weight.
static int64_t partial_count(const rdi_attn_args *a, const decode_shape *s) {
    return rdi_mul_capped(rdi_mul_capped(a->seqs * a->kv_heads, s->chunks), s->max_rows);
}
size_t rdi_attn_decode_sm90a_ws(const void *args, int32_t units) {
    const rdi_attn_args *a = args;
    decode_shape s = shape_of(a);
    (void)units;
    return (size_t)rdi_mul_capped(partial_count(a, &s),
                                  a->head_dim * (s.fp8 ? 2 : 4) + 2 * (int64_t)sizeof(float));
}

static const char *decode_kernel(const decode_shape *s) {
#define NAME(text_) "rdk_attn_decode_sm90a_" text_
    static const char *const names[2][4][7] = {
        // by rows / 8 - 1
        {{[2] = NAME("bf16_d64_r24")},
         {[0] = NAME("bf16_d128_r8"), [2] = NAME("bf16_d128_r24"), [4] = NAME("bf16_d128_r40")},
         {[0] = NAME("bf16_d256_r8"), [2] = NAME("bf16_d256_r24"), [6] = NAME("bf16_d256_r56")},
         {[2] = NAME("bf16_d512_r24")}},
        {{[2] = NAME("fp8_d64_r24")},
         {[0] = NAME("fp8_d128_r8"), [2] = NAME("fp8_d128_r24"), [4] = NAME("fp8_d128_r40")},
         {[0] = NAME("fp8_d256_r8"), [2] = NAME("fp8_d256_r24"), [6] = NAME("fp8_d256_r56")},
         {[2] = NAME("fp8_d512_r24")}},
    };
#undef NAME
    return names[s->fp8][s->dims == 64 ? 0 : s->dims == 128 ? 1 : s->dims == 256 ? 2 : 3][s->rows / 8 - 1];
}

static bool pieces_aligned(const void *data, int64_t block, int64_t token, int64_t head, int64_t elem) {
    const int64_t strides[3] = {block * elem, token * elem, head * elem};
    bool fit = (uintptr_t)data % 16 == 0;
    for (int i = 0; i < 3; i++)
        fit = fit && strides[i] % 16 == 0 && strides[i] < (int64_t)1 << 40; // what a map can say
    return fit;
}

static rdk_attn_sm90a_args kernel_args(const rdi_attn_args *a, const decode_shape *s) {
    int64_t elem = (int64_t)rd_dtype_bytes(a->kv_dtype), columns = s->dims * elem / RDK_ATTN_BOX_BYTES;
    return (rdk_attn_sm90a_args){
        RDI_ATTN_OPERANDS(a),
        .out_scale = RDK_ADDR(a->out_scale),
        .out_scale_stride_token = a->out_scale_stride_token,
        .out_scale_stride_group = a->out_scale_stride_group,
        .seqs = (int32_t)a->seqs,
        .kv_heads = (int32_t)a->kv_heads,
        .group = s->group,
        .head_dim = (int32_t)a->head_dim,
        .block_tokens = (int32_t)a->block_tokens,
        .max_blocks = (int32_t)a->max_blocks,
        .chunks = s->chunks,
        .max_rows = s->max_rows,
        .row_blocks = s->row_blocks,
        .teams = s->teams,
        .key_slots = (s->slots + 1) / 2,
        .value_slots = s->slots / 2,
        .slot_bytes = rdk_attn_slot_bytes(s->dims, s->fp8),
        .row_bytes = (int32_t)(a->head_dim * elem),
        .column_shift = columns >= 8   ? 3
                        : columns >= 4 ? 2
                        : columns >= 2 ? 1
                                       : 0,
        .box_dims = (int32_t)(RDK_ATTN_BOX_BYTES / elem),
        .box_tokens = a->block_tokens % 64 == 0   ? 64
                      : a->block_tokens % 32 == 0 ? 32
                                                  : 16,
        .chunk_cost = CHUNK_COST,
        .prefetch_steps = RDK_ATTN_PREFETCH_BYTES / (2 * rdk_attn_slot_bytes(s->dims, s->fp8)),
        .q_type = rdk_type_code(a->q_dtype),
        .q_vector =
            pieces_aligned(a->q, 0, a->q_stride_token, a->q_stride_head, (int64_t)rd_dtype_bytes(a->q_dtype)),
        .out_type = rdk_type_code(a->out_dtype),
        .tables_settled = a->tables_settled,
        .window = a->window,
        .scale = a->scale,
        .softcap = a->softcap,
    };
}

// The cache: tensor copies where every row begins at a multiple of 16 bytes, else addresses for single bytes.
static void describe_cache(const rdi_attn_args *a, rdk_attn_sm90a_args *kernel, rdi_launch *out) {
    int64_t elem = (int64_t)rd_dtype_bytes(a->kv_dtype);
    const void *data[2] = {a->k_cache, a->v_cache};
    int64_t block[2] = {a->k_stride_block, a->v_stride_block},
            token[2] = {a->k_stride_token, a->v_stride_token}, head[2] = {a->k_stride_head, a->v_stride_head};
    kernel->use_maps = pieces_aligned(data[0], block[0], token[0], head[0], elem) &&
                       pieces_aligned(data[1], block[1], token[1], head[1], elem);
    if (!kernel->use_maps) {
        kernel->cache.view = (rdk_attn_cache_view){RDK_ADDR(data[0]), RDK_ADDR(data[1]), block[0] * elem,
                                                   token[0] * elem,   head[0] * elem,    block[1] * elem,
                                                   token[1] * elem,   head[1] * elem,    a->blocks};
        return;
    }
    out->map_count = 2;
    for (int i = 0; i < 2; i++)
        out->map[i] = (rdi_tensor_map){
            .arg_offset =
                (uint32_t)(offsetof(rdk_attn_sm90a_args, cache) + (size_t)i * sizeof kernel->cache.maps[0]),
            .base = data[i],
            .elem_bytes = (uint32_t)elem,
            .rank = 4,
            .dim = {(uint64_t)a->head_dim, (uint64_t)a->kv_heads, (uint64_t)a->block_tokens,
                    (uint64_t)a->blocks},
            .stride_bytes = {(uint64_t)elem, (uint64_t)(head[i] * elem), (uint64_t)(token[i] * elem),
                             (uint64_t)(block[i] * elem)},
            .box = {(uint32_t)(RDK_ATTN_BOX_BYTES / elem), 1, (uint32_t)kernel->box_tokens, 1},
            .swizzle_bytes = 128,
        };
}

// Axes of the merge's launch, and what the kernels count in 32 bits: rows of a KV head, costs of the steps of keys of all heads.
static bool counts_fit(const rdi_attn_args *a, const decode_shape *s, int64_t slices) {
    int64_t steps = rdi_ceil_div(rdi_attn_keys_bound(a), RDK_ATTN_STEP_KEYS);
    return rdi_launch_takes_count("attn_decode", "kv_lens: shape[0]", a->seqs, 65535) &&
           rdi_launch_takes_count("attn_decode", "max_q_len", a->max_q_len, 65535) &&
           rdi_launch_takes_count("attn_decode", "q: shape[1]", a->q_heads, RDI_CARD_EXTENT_MAX / slices) &&
           rdi_launch_takes_count("attn_decode", "q: rows of a KV head", a->max_q_len * s->group,
                                  RDI_CARD_EXTENT_MAX) &&
           rdi_launch_takes_count("attn_decode", "max_kv_len: steps of 64 keys of all sequences and heads",
                                  rdi_mul_capped(rdi_mul_capped(a->seqs * a->kv_heads, steps), s->row_blocks),
                                  RDI_CARD_EXTENT_MAX / (RDK_ATTN_COST_STEP + CHUNK_COST));
}

int32_t rdi_attn_decode_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                       rdi_launch *out) {
    const rdi_attn_args *a = args;
    decode_shape s = shape_of(a);
    int64_t slices = rdi_ceil_div(a->head_dim, RDK_ATTN_MERGE_LANES * (s.fp8 ? 8 : 4));
    if (!counts_fit(a, &s, slices)) return 0;
    rdk_attn_sm90a_args kernel = kernel_args(a, &s);
    kernel.sums = RDK_ADDR(ws);
    kernel.tops = RDK_ADDR(ws) + (uint64_t)partial_count(a, &s) * (uint64_t)a->head_dim * (s.fp8 ? 2 : 4);
    out[0].map_count = 0;
    describe_cache(a, &kernel, &out[0]);
    uint32_t maps = out[0].map_count;
    uint32_t blocks = (uint32_t)device->compute_units;
    if (blocks > 32 * RDK_ATTN_LANE_BLOCKS) blocks = 32 * RDK_ATTN_LANE_BLOCKS;
    rdi_launch_fill(&out[0], decode_kernel(&s), (const uint32_t[3]){blocks, 1, 1},
                    (uint32_t)(s.teams + 1) * RDK_ATTN_TEAM_THREADS, &kernel, sizeof kernel);
    out[0].map_count = maps;
    out[0].shared_bytes = (uint32_t)(s.teams * rdk_attn_team_bytes(s.dims, s.fp8, s.rows, s.slots));
    out[0].dependent = true;
    rdi_launch_fill(
        &out[1],
        a->out_dtype == RD_DTYPE_E4M3 ? "rdk_attn_decode_codes_sm90a_merge"
        : s.fp8                       ? "rdk_attn_decode_sm90a_merge_fp8"
                                      : "rdk_attn_decode_sm90a_merge_bf16",
        (const uint32_t[3]){(uint32_t)(a->q_heads * slices), (uint32_t)a->max_q_len, (uint32_t)a->seqs},
        RDK_ATTN_MERGE_GROUPS * RDK_ATTN_MERGE_LANES, &kernel, sizeof kernel);
    out[1].dependent = true;
    return 2;
}
