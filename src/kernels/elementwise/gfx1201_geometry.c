// SPDX-License-Identifier: Apache-2.0
// Launches of the elementwise kernels on gfx1201: arguments of the op in, launches out, no driver call.
#include "kernels/elementwise/gfx1201_args.h"
#include "kernels/elementwise/args.h"
#include "kernels/rows.h"

static int32_t type_code(rd_dtype dtype) {
    return dtype == RD_DTYPE_BF16   ? RDK_BF16
           : dtype == RD_DTYPE_F16  ? RDK_F16
           : dtype == RD_DTYPE_E4M3 ? RDK_E4M3
                                    : RDK_F32;
}

// May a lane move its eight elements of any row in 16-byte pieces?
static bool rows_aligned(const void *data, int64_t stride, rd_dtype dtype) {
    size_t bytes = rd_dtype_bytes(dtype);
    return (uintptr_t)data % 16 == 0 && (size_t)stride * bytes % 16 == 0;
}

int32_t rdi_act_mul_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                     rdi_launch *out) {
    const rdi_act_mul_args *a = args;
    (void)ws, (void)device;
    const rdk_act_mul_gfx1201_args kernel = {
        .gate = RDK_ADDR(a->gate),
        .up = RDK_ADDR(a->up),
        .y = RDK_ADDR(a->y),
        .gate_stride = a->gate_stride,
        .up_stride = a->up_stride,
        .y_stride = a->y_stride,
        .k = (int32_t)a->k,
        .gelu = a->act == RDI_ACT_GELU_TANH,
        .x_dtype = type_code(a->x_dtype),
        .y_dtype = type_code(a->y_dtype),
        .wide = rows_aligned(a->gate, a->gate_stride, a->x_dtype) &&
                rows_aligned(a->up, a->up_stride, a->x_dtype) && rows_aligned(a->y, a->y_stride, a->y_dtype),
    };
    uint32_t columns = (uint32_t)rdi_ceil_div(a->k, RDK_ACT_MUL_THREADS * RDK_GROUP);
    rdi_launch_fill(&out[0], "rdk_act_mul_gfx1201", (const uint32_t[3]){(uint32_t)a->m, columns, 1},
                    RDK_ACT_MUL_THREADS, &kernel, sizeof kernel);
    return 1;
}

int32_t rdi_rmsnorm_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                     rdi_launch *out) {
    const rdi_rmsnorm_args *a = args;
    (void)ws, (void)device;
    if (a->residual && !rdi_launch_takes_type("rmsnorm", "residual", a->residual_dtype)) return 0;
    const rdk_rmsnorm_gfx1201_args kernel = {
        .x = RDK_ADDR(a->x),
        .residual = RDK_ADDR(a->residual),
        .weight = RDK_ADDR(a->weight),
        .y = RDK_ADDR(a->y),
        .x_stride = a->x_stride,
        .residual_stride = a->residual_stride,
        .y_stride = a->y_stride,
        .k = (int32_t)a->k,
        .x_dtype = type_code(a->x_dtype),
        .residual_dtype = type_code(a->residual_dtype),
        .weight_dtype = type_code(a->weight_dtype),
        .y_dtype = type_code(a->y_dtype),
        .unit_offset = a->unit_offset != 0,
        .wide = rows_aligned(a->x, a->x_stride, a->x_dtype) && rows_aligned(a->y, a->y_stride, a->y_dtype) &&
                rows_aligned(a->weight, 0, a->weight_dtype) &&
                (!a->residual || rows_aligned(a->residual, a->residual_stride, a->residual_dtype)),
        .eps = a->eps,
    };
    rdi_launch_fill(&out[0], "rdk_rmsnorm_gfx1201", (const uint32_t[3]){(uint32_t)a->m, 1, 1},
                    RDK_NORM_THREADS, &kernel, sizeof kernel);
    return 1;
}

int32_t rdi_embed_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                   rdi_launch *out) {
    const rdi_embed_args *a = args;
    (void)ws, (void)device;
    const rdk_embed_gfx1201_args kernel = {
        .table = RDK_ADDR(a->table),
        .ids = RDK_ADDR(a->ids),
        .y = RDK_ADDR(a->y),
        .table_stride = a->table_stride,
        .y_stride = a->y_stride,
        .vocab = a->vocab,
        .k = (int32_t)a->k,
        .table_dtype = type_code(a->table_dtype),
        .y_dtype = type_code(a->y_dtype),
        .wide = rows_aligned(a->table, a->table_stride, a->table_dtype) &&
                rows_aligned(a->y, a->y_stride, a->y_dtype),
        .scale = a->scale,
    };
    uint32_t columns = (uint32_t)rdi_ceil_div(a->k, RDK_EMBED_THREADS * RDK_GROUP);
    rdi_launch_fill(&out[0], "rdk_embed_gfx1201", (const uint32_t[3]){(uint32_t)a->tokens, columns, 1},
                    RDK_EMBED_THREADS, &kernel, sizeof kernel);
    return 1;
}

static rdk_rope_gfx1201_args rope_kernel_args(const rdi_rope_args *a) {
    return (rdk_rope_gfx1201_args){
        .q = RDK_ADDR(a->q),
        .k = RDK_ADDR(a->k),
        .positions = RDK_ADDR(a->positions),
        .inv_freq = RDK_ADDR(a->inv_freq),
        .q_norm = RDK_ADDR(a->q_norm),
        .k_norm = RDK_ADDR(a->k_norm),
        .q_stride_token = a->q_stride_token,
        .q_stride_head = a->q_stride_head,
        .k_stride_token = a->k_stride_token,
        .k_stride_head = a->k_stride_head,
        .q_heads = (int32_t)a->q_heads,
        .k_heads = (int32_t)a->k_heads,
        .head_dim = (int32_t)a->head_dim,
        .rotary_dim = (int32_t)a->rotary_dim,
        .q_dtype = type_code(a->q_dtype),
        .k_dtype = type_code(a->k_dtype),
        .norm_dtype = type_code(a->norm_dtype),
        .unit_offset = a->unit_offset != 0,
        .interleaved = a->interleaved != 0,
        .eps = a->eps,
    };
}

int32_t rdi_rope_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    const rdi_rope_args *a = args;
    (void)ws, (void)device;
    if (a->q_norm && !rdi_launch_takes_type("rope", "q_norm", a->norm_dtype)) return 0;
    const rdk_rope_gfx1201_args kernel = rope_kernel_args(a);
    uint32_t groups = (uint32_t)rdi_ceil_div(a->q_heads + a->k_heads, RDK_ROPE_WAVES);
    rdi_launch_fill(&out[0], "rdk_rope_gfx1201", (const uint32_t[3]){(uint32_t)a->tokens, groups, 1},
                    32 * RDK_ROPE_WAVES, &kernel, sizeof kernel);
    return 1;
}

// Eight neighbours of a head, read: 16 bytes of a 16-bit type, 32 of f32; written: 8 bytes of e4m3.
static void kv_alignment(rdk_kv_side *side, rd_dtype x_dtype, rd_dtype kv_dtype) {
    int64_t x_bytes = (int64_t)rd_dtype_bytes(x_dtype), kv_bytes = (int64_t)rd_dtype_bytes(kv_dtype);
    int64_t least = kv_bytes == 1 ? 8 : 16;
    side->wide_in = side->x % 16 == 0 && side->x_stride_token * x_bytes % 16 == 0 &&
                    side->x_stride_head * x_bytes % 16 == 0;
    side->wide_out = side->stride_dim == 1 && side->cache % (uint64_t)least == 0 &&
                     side->stride_block * kv_bytes % least == 0 &&
                     side->stride_group * kv_bytes % least == 0 &&
                     side->stride_token * kv_bytes % least == 0 && side->stride_head * kv_bytes % least == 0;
}

static rdk_kv_write_gfx1201_args kv_write_kernel_args(const rdi_kv_write_args *a) {
    bool token_order = a->kc_stride_dim == 16;
    rdk_kv_write_gfx1201_args kernel = {
        .side = {{.x = RDK_ADDR(a->k),
                  .cache = RDK_ADDR(a->k_cache),
                  .scale = RDK_ADDR(a->k_scale),
                  .x_stride_token = a->k_stride_token,
                  .x_stride_head = a->k_stride_head,
                  .stride_block = a->kc_stride_block,
                  .stride_group = token_order ? 16 * a->head_dim : 16 * a->kc_stride_token,
                  .stride_token = token_order ? 1 : a->kc_stride_token,
                  .stride_head = a->kc_stride_head,
                  .stride_dim = a->kc_stride_dim},
                 {.x = RDK_ADDR(a->v),
                  .cache = RDK_ADDR(a->v_cache),
                  .scale = RDK_ADDR(a->v_scale),
                  .x_stride_token = a->v_stride_token,
                  .x_stride_head = a->v_stride_head,
                  .stride_block = a->vc_stride_block,
                  .stride_group = 16 * a->vc_stride_token,
                  .stride_token = a->vc_stride_token,
                  .stride_head = a->vc_stride_head,
                  .stride_dim = a->vc_stride_dim}},
        .slots = RDK_ADDR(a->slots),
        .capacity = (int32_t)rdi_min(a->blocks * a->block_tokens, INT32_MAX),
        .kv_heads = (int32_t)a->kv_heads,
        .head_dim = (int32_t)a->head_dim,
        .block_tokens = (int32_t)a->block_tokens,
        .x_dtype = type_code(a->x_dtype),
        .kv_dtype = type_code(a->kv_dtype),
    };
    for (int i = 0; i < 2; i++) kv_alignment(&kernel.side[i], a->x_dtype, a->kv_dtype);
    return kernel;
}

int32_t rdi_kv_write_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                      rdi_launch *out) {
    const rdi_kv_write_args *a = args;
    (void)ws, (void)device;
    const rdk_kv_write_gfx1201_args kernel = kv_write_kernel_args(a);
    int64_t lanes = a->kv_heads * rdi_ceil_div(a->head_dim, RDK_GROUP);
    const uint32_t grid[3] = {(uint32_t)a->tokens, (uint32_t)rdi_ceil_div(lanes, RDK_KV_THREADS), 2};
    rdi_launch_fill(&out[0], "rdk_kv_write_gfx1201", grid, RDK_KV_THREADS, &kernel, sizeof kernel);
    return 1;
}

int32_t rdi_rope_kv_write_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                           rdi_launch *out) {
    const rdi_rope_kv_write_args *a = args;
    (void)ws, (void)device;
    if (a->rope.q_norm && !rdi_launch_takes_type("rope_kv_write", "q_norm", a->rope.norm_dtype)) return 0;
    const rdk_rope_kv_write_gfx1201_args kernel = {rope_kernel_args(&a->rope), kv_write_kernel_args(&a->kv)};
    uint32_t groups = (uint32_t)rdi_ceil_div(a->rope.q_heads + 2 * a->kv.kv_heads, RDK_ROPE_WAVES);
    rdi_launch_fill(&out[0], "rdk_rope_kv_write_gfx1201",
                    (const uint32_t[3]){(uint32_t)a->rope.tokens, groups, 1}, 32 * RDK_ROPE_WAVES, &kernel,
                    sizeof kernel);
    return 1;
}

_Static_assert(sizeof(rdk_sample_row) == sizeof(rd_sample_row) &&
                   offsetof(rdk_sample_row, top_k) == offsetof(rd_sample_row, top_k) &&
                   offsetof(rdk_sample_row, counter) == offsetof(rd_sample_row, counter),
               "the kernel reads the caller's rows");
int32_t rdi_sample_gfx1201_geometry(const void *args, void *ws, const rd_device_info *device,
                                    rdi_launch *out) {
    const rdi_sample_args *a = args;
    (void)ws, (void)device;
    const rdk_sample_gfx1201_args kernel = {
        .logits = RDK_ADDR(a->logits),
        .params = RDK_ADDR(a->params),
        .ids = RDK_ADDR(a->ids),
        .logits_stride = a->logits_stride,
        .vocab = (int32_t)a->vocab,
    };
    rdi_launch_fill(&out[0], "rdk_sample_gfx1201", (const uint32_t[3]){(uint32_t)a->rows, 1, 1},
                    RDK_SAMPLE_THREADS, &kernel, sizeof kernel);
    return 1;
}
