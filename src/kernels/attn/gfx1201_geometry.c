// SPDX-License-Identifier: Apache-2.0
// Launches of the attention kernels on gfx1201: arguments of the op in, launches out, no driver call. Lengths stay on the
// card: the grid follows from the bounds of the call alone, so that one captured graph serves every length up to them.
#include "kernels/attn/args.h"
#include "kernels/attn/card_operands.h"
#include "kernels/attn/gfx1201_args.h"
#include "kernels/rows.h"

typedef struct shape { // of the body's kernels for one head
    int64_t head_dim;
    uint32_t waves[3];             // of a tile of 16, 32 and 64 rows
    const char *kernel[3], *merge; // NULL: none
} shape;
#define EACH(waves_, split_32_, split_64_)                                                                   \
    { (waves_), (waves_) * (split_32_), (waves_) * (split_64_) }
#define DECODE_SHAPES(row_)                                                                                  \
    {64, EACH (RDK_WAVES_64, 1, 1), {row_ "_h64_r16", row_ "_h64_r32", row_ "_h64_r64"}, row_ "_merge_h64"}, \
        {128,                                                                                                \
         EACH (RDK_WAVES_128, 1, 1),                                                                         \
         {row_ "_h128_r16", row_ "_h128_r32", row_ "_h128_r64"},                                             \
         row_ "_merge_h128"},                                                                                \
        {256,                                                                                                \
         EACH (RDK_WAVES_256, RDK_SPLIT_256_R32, RDK_SPLIT_256_R64),                                         \
         {row_ "_h256_r16", row_ "_h256_r32", row_ "_h256_r64"},                                             \
         row_ "_merge_h256"},                                                                                \
    {                                                                                                        \
        512, EACH (RDK_WAVES_512, 1, 1), {row_ "_h512_r16", row_ "_h512_r32", NULL}, row_ "_merge_h512"      \
    }
static const shape decode_fp8[] = {DECODE_SHAPES("rdk_attn_decode_fp8kv_gfx1201")};
static const shape decode_bf16[] = {DECODE_SHAPES("rdk_attn_decode_bf16kv_gfx1201")};
typedef struct prefill_shape {
    int64_t head_dim;
    uint32_t waves, rows;
    const char *kernel;
} prefill_shape;
#define PREFILL_SHAPES(row_)                                                                                 \
    {64, RDK_PREFILL_WAVES_64, RDK_PREFILL_ROWS_64, row_ "_h64"},                                            \
        {128, RDK_PREFILL_WAVES_128, RDK_PREFILL_ROWS_128, row_ "_h128"},                                    \
        {256, RDK_PREFILL_WAVES_256, RDK_PREFILL_ROWS_256, row_ "_h256"}, {                                  \
        512, RDK_PREFILL_WAVES_512, RDK_PREFILL_ROWS_512, row_ "_h512"                                       \
    }
static const prefill_shape prefill_fp8[] = {PREFILL_SHAPES("rdk_attn_prefill_fp8kv_gfx1201")};
static const prefill_shape prefill_bf16[] = {PREFILL_SHAPES("rdk_attn_prefill_bf16kv_gfx1201")};

// Loads are 16 bytes wide and a block's offset is a 32-bit product: what a plan's keys cannot say, said here.
static bool aligned(const char *field, const void *data, int64_t stride_token, int64_t stride_head,
                    int64_t stride_block, rd_dtype dtype) {
    int64_t bytes = (int64_t)rd_dtype_bytes(dtype);
    const int64_t all[] = {stride_token * bytes, stride_head * bytes, stride_block * bytes};
    for (size_t i = 0; i < RDI_COUNT(all); i++)
        if (all[i] % 16 || all[i] < 0 || all[i] > (i < 2 ? INT32_MAX / 16 : UINT32_MAX)) {
            rdi_fail(RD_E_INVALID, "attn: %s: stride of %lld bytes, needs a multiple of 16 up to %lld", field,
                     (long long)all[i], (long long)(i < 2 ? INT32_MAX / 16 : UINT32_MAX));
            return false;
        }
    if ((uintptr_t)data % 16 == 0) return true;
    rdi_fail(RD_E_INVALID, "attn: %s: data=%p, needs a multiple of 16", field, data);
    return false;
}
// Rows of a tile are found by 32-bit offsets from its first: up to 64 tokens and all heads of a KV head.
static bool tile_within_2g(const char *field, const rdi_attn_args *a, int64_t stride_token,
                           int64_t stride_head, rd_dtype dtype) {
    int64_t bytes =
        (64 * stride_token + a->q_heads / a->kv_heads * stride_head) * (int64_t)rd_dtype_bytes(dtype);
    if (bytes <= INT32_MAX) return true;
    rdi_fail(RD_E_INVALID, "attn: %s: 64 tokens and the heads of a KV head span %lld bytes, needs <= %d",
             field, (long long)bytes, INT32_MAX);
    return false;
}
static bool operands_fit(const rdi_attn_args *a) {
    if (!aligned("q", a->q, a->q_stride_token, a->q_stride_head, 0, a->q_dtype) ||
        !aligned("out", a->out, a->out_stride_token, a->out_stride_head, 0, a->out_dtype) ||
        !aligned("k_cache", a->k_cache, a->k_stride_token, a->k_stride_head, a->k_stride_block,
                 a->kv_dtype) ||
        !aligned("v_cache", a->v_cache, a->v_stride_token, a->v_stride_head, a->v_stride_block,
                 a->kv_dtype) ||
        !tile_within_2g("q", a, a->q_stride_token, a->q_stride_head, a->q_dtype) ||
        !tile_within_2g("out", a, a->out_stride_token, a->out_stride_head, a->out_dtype))
        return false;
    if (a->k_stride_dim == 1 && a->v_stride_dim == 1) return true;
    rdi_fail(RD_E_INVALID, "attn: %s: stride[3]=%lld, needs 1", a->k_stride_dim == 1 ? "v_cache" : "k_cache",
             (long long)(a->k_stride_dim == 1 ? a->v_stride_dim : a->k_stride_dim));
    return false;
}

static uint32_t magic_of(int64_t divisor) { // gfx1201_device.h, divide_by
    return (uint32_t)(((uint64_t)1 << 31) / (uint64_t)divisor + 1);
}

static rdk_attn_gfx1201_args kernel_args(const rdi_attn_args *a) {
    int64_t kv_bytes = (int64_t)rd_dtype_bytes(a->kv_dtype), gqa = a->q_heads / a->kv_heads;
    return (rdk_attn_gfx1201_args){
        RDI_ATTN_OPERANDS(a),
        .k_cache = RDK_ADDR(a->k_cache),
        .v_cache = RDK_ADDR(a->v_cache),
        .k_stride_block = (uint32_t)(a->k_stride_block * kv_bytes),
        .v_stride_block = (uint32_t)(a->v_stride_block * kv_bytes),
        .k_stride_token = (int32_t)(a->k_stride_token * kv_bytes),
        .k_stride_head = (int32_t)(a->k_stride_head * kv_bytes),
        .v_stride_token = (int32_t)(a->v_stride_token * kv_bytes),
        .v_stride_head = (int32_t)(a->v_stride_head * kv_bytes),
        .tokens = (int32_t)a->tokens,
        .seqs = (int32_t)a->seqs,
        .q_heads = (int32_t)a->q_heads,
        .kv_heads = (int32_t)a->kv_heads,
        .gqa = (int32_t)gqa,
        .block_tiles = (int32_t)(a->block_tokens / 16),
        .block_magic = magic_of(a->block_tokens / 16),
        .gqa_magic = magic_of(gqa),
        .blocks = (int32_t)a->blocks,
        .max_keys = (int32_t)rdi_min(a->max_blocks * a->block_tokens, a->max_kv_len),
        .chunks = (int32_t)rdi_attn_chunk_count(a->max_kv_len),
        .window = a->window,
        .q_f32 = a->q_dtype == RD_DTYPE_F32,
        .out_f32 = a->out_dtype == RD_DTYPE_F32,
        .scale = a->softcap > 0 ? a->scale : a->scale * 1.4426950408889634f,
        .softcap = a->softcap,
        .softcap_inverse = a->softcap > 0 ? 1.4426950408889634f / a->softcap : 0,
    };
}

static uint32_t tiles_of(const rdi_attn_args *a, int64_t rows) { // gfx1201_device.h, first_tile
    return (uint32_t)(a->tokens * (a->q_heads / a->kv_heads) / rows + a->seqs);
}

size_t rdi_attn_decode_gfx1201_ws(const void *args, int32_t compute_units) {
    const rdi_attn_args *a = args;
    (void)compute_units;
    return (size_t)(a->tokens * a->q_heads * rdi_attn_chunk_count(a->max_kv_len) * (a->head_dim + 2)) *
           sizeof(float);
}

// The least height that holds every row of a sequence, so that K and V are read once; no bit depends on it.
static int32_t height_of(const shape *of, int64_t rows) {
    int32_t height = rows <= 16 ? 0 : rows <= 32 ? 1 : 2;
    return of->kernel[height] || height == 0 ? height : height - 1;
}

// Chunks that a work-group takes one after the other, up to 8, so that it stages its queries once: as many as leave eight waves
// a compute unit. No bit depends on it.
static int32_t chunks_of_group(int64_t waves, const rd_device_info *device) {
    int32_t chunks = 1;
    while (chunks < 8 && waves / (2 * chunks) >= 8 * device->compute_units) chunks *= 2;
    return chunks;
}

static int32_t decode(const rdi_attn_args *a, void *ws, const rd_device_info *device, const shape *shapes,
                      rdi_launch *out) {
    if (!operands_fit(a)) return 0;
    while (shapes->head_dim != a->head_dim) shapes++; // the rows' constraint
    rdk_attn_gfx1201_args kernel = kernel_args(a);
    int32_t height = height_of(shapes, a->max_q_len * (a->q_heads / a->kv_heads));
    int64_t partials = a->tokens * a->q_heads * kernel.chunks;
    kernel.acc = RDK_ADDR(ws);
    kernel.state = RDK_ADDR((float *)ws + partials * a->head_dim);
    int64_t tiles = tiles_of(a, 16 << height);
    kernel.group_chunks =
        chunks_of_group(tiles * a->kv_heads * kernel.chunks * shapes->waves[height], device);
    const uint32_t grid[3] = {(uint32_t)tiles, (uint32_t)a->kv_heads,
                              (uint32_t)rdi_ceil_div(kernel.chunks, kernel.group_chunks)};
    rdi_launch_fill(&out[0], shapes->kernel[height], grid, 32 * shapes->waves[height], &kernel,
                    sizeof kernel);
    const uint32_t rows[3] = {(uint32_t)a->tokens, (uint32_t)rdi_ceil_div(a->q_heads, RDK_MERGE_WAVES), 1};
    rdi_launch_fill(&out[1], shapes->merge, rows, 32 * RDK_MERGE_WAVES, &kernel, sizeof kernel);
    return 2;
}

int32_t rdi_attn_decode_fp8kv_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                               rdi_launch *out) {
    return decode(args, ws, device, decode_fp8, out);
}
int32_t rdi_attn_decode_bf16kv_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                                rdi_launch *out) {
    return decode(args, ws, device, decode_bf16, out);
}

static int32_t prefill(const rdi_attn_args *a, const prefill_shape *shapes, rdi_launch *out) {
    if (!operands_fit(a)) return 0;
    while (shapes->head_dim != a->head_dim) shapes++;
    rdk_attn_gfx1201_args kernel = kernel_args(a);
    const uint32_t grid[3] = {tiles_of(a, shapes->rows), (uint32_t)a->kv_heads, 1};
    rdi_launch_fill(&out[0], shapes->kernel, grid, 32 * shapes->waves, &kernel, sizeof kernel);
    return 1;
}

int32_t rdi_attn_prefill_fp8kv_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                                rdi_launch *out) {
    (void)ws, (void)device;
    return prefill(args, prefill_fp8, out);
}
int32_t rdi_attn_prefill_bf16kv_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                                 rdi_launch *out) {
    (void)ws, (void)device;
    return prefill(args, prefill_bf16, out);
}
