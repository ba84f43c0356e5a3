// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a elementwise kernels: arguments of the op in, launches out, no driver call.
#include "kernels/common/sm90a_norm.h"
#include "kernels/elementwise/args.h"
#include "kernels/elementwise/sm90a_args.h"
#include "kernels/rows.h"

enum { ROW_ELEMS = RDK_ROW_THREADS * 8 }; // of one block of the kernels that take eight elements a thread

// Rows or tokens are the first axis of a launch, which has room for any number; what is left of a row is the second.
enum { GRID_X_MAX = INT32_MAX, GRID_Y_MAX = 65535 };

static int32_t one_launch(rdi_launch *out, const char *kernel, int64_t x, int64_t y, uint32_t block,
                          const void *args, size_t args_bytes) {
    rdi_launch_fill(out, kernel, (const uint32_t[3]){(uint32_t)x, (uint32_t)y, 1}, block, args, args_bytes);
    out->dependent = true;
    return 1;
}

int32_t rdi_rmsnorm_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                   rdi_launch *out) {
    const rdi_rmsnorm_args *a = args;
    (void)ws;
    if (a->residual && !rdi_launch_takes_type("rmsnorm", "residual", a->residual_dtype)) return 0;
    const rdk_rmsnorm_sm90a_args kernel = {
        .x = RDK_ADDR(a->x),
        .residual = RDK_ADDR(a->residual),
        .weight = RDK_ADDR(a->weight),
        .y = RDK_ADDR(a->y),
        .x_stride = a->x_stride,
        .residual_stride = a->residual_stride,
        .y_stride = a->y_stride,
        .k = (int32_t)a->k,
        .x_type = rdk_type_code(a->x_dtype),
        .residual_type = rdk_type_code(a->residual_dtype),
        .weight_type = rdk_type_code(a->weight_dtype),
        .y_type = rdk_type_code(a->y_dtype),
        .eps = a->eps,
        .weight_offset = a->unit_offset ? 1.0f : 0.0f,
    };
    static const char *const names[2][2][2] = {
        {{"rdk_rmsnorm_sm90a_bf16", "rdk_rmsnorm_sm90a_bf16_cluster"},
         {"rdk_rmsnorm_sm90a_bf16_add", "rdk_rmsnorm_sm90a_bf16_add_cluster"}},
        {{"rdk_rmsnorm_sm90a_f16", "rdk_rmsnorm_sm90a_f16_cluster"},
         {"rdk_rmsnorm_sm90a_f16_add", "rdk_rmsnorm_sm90a_f16_add_cluster"}}};
    rd_dtype type = a->x_dtype;
    bool vector =
        type != RD_DTYPE_F32 && rdk_norm_vector(a->x, a->x_stride, a->k, type, type) &&
        rdk_norm_vector(a->y, a->y_stride, a->k, a->y_dtype, type) &&
        rdk_norm_vector(a->weight, 0, a->k, a->weight_dtype, type) &&
        (!a->residual || rdk_norm_vector(a->residual, a->residual_stride, a->k, a->residual_dtype, type));
    bool cluster = vector && rdk_norm_clusters(a->m, device->compute_units);
    const char *name =
        vector ? names[type == RD_DTYPE_F16][a->residual != NULL][cluster] : "rdk_rmsnorm_sm90a_any";
    return one_launch(out, name, a->m * (cluster ? RDK_NORM_BLOCKS : 1), 1,
                      cluster ? rdk_norm_cluster_threads(a->k) : rdk_norm_threads(a->k), &kernel,
                      sizeof kernel);
}

int32_t rdi_act_mul_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                   rdi_launch *out) {
    const rdi_act_mul_args *a = args;
    (void)ws, (void)device;
    const rdk_act_mul_sm90a_args kernel = {
        .gate = RDK_ADDR(a->gate),
        .up = RDK_ADDR(a->up),
        .y = RDK_ADDR(a->y),
        .gate_stride = a->gate_stride,
        .up_stride = a->up_stride,
        .y_stride = a->y_stride,
        .k = (int32_t)a->k,
        .x_type = rdk_type_code(a->x_dtype),
        .y_type = rdk_type_code(a->y_dtype),
        .gelu = a->act == RDI_ACT_GELU_TANH,
    };
    if (!rdi_launch_takes_count("act_mul", "k", a->k, GRID_Y_MAX * ROW_ELEMS)) return 0;
    return one_launch(out, "rdk_act_mul_sm90a", a->m, rdi_ceil_div(a->k, ROW_ELEMS), RDK_ROW_THREADS, &kernel,
                      sizeof kernel);
}

static rdk_rope_sm90a_args rope_args(const rdi_rope_args *a) {
    return (rdk_rope_sm90a_args){
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
        .tokens = (int32_t)a->tokens,
        .q_heads = (int32_t)a->q_heads,
        .k_heads = (int32_t)a->k_heads,
        .head_dim = (int32_t)a->head_dim,
        .rotary_dim = (int32_t)a->rotary_dim,
        .interleaved = a->interleaved,
        .tables_settled = a->tables_settled,
        .q_type = rdk_type_code(a->q_dtype),
        .k_type = rdk_type_code(a->k_dtype),
        .norm_type = rdk_type_code(a->norm_dtype),
        .eps = a->eps,
        .weight_offset = a->unit_offset ? 1.0f : 0.0f,
    };
}

// A warp a head, or several heads of a token.
static int32_t head_launch(const char *op, const char *kernel, int64_t warps, const void *args,
                           size_t args_bytes, rdi_launch *out) {
    if (!rdi_launch_takes_count(op, "q: heads of all tokens", warps, RDI_CARD_EXTENT_MAX)) return 0;
    return one_launch(out, kernel, rdi_ceil_div(warps, RDK_ROW_THREADS / 32), 1, RDK_ROW_THREADS, args,
                      args_bytes);
}

int32_t rdi_rope_sm90a_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    static const char *const names[] = {"rdk_rope_sm90a_d128", "rdk_rope_sm90a_d256", "rdk_rope_sm90a_d512"};
    const rdi_rope_args *a = args;
    (void)ws, (void)device;
    if (a->q_norm && !rdi_launch_takes_type("rope", "q_norm", a->norm_dtype)) return 0;
    const rdk_rope_sm90a_args kernel = rope_args(a);
    return head_launch("rope",
                       names[a->head_dim <= 128   ? 0
                             : a->head_dim <= 256 ? 1
                                                  : 2],
                       rdi_mul_capped(a->tokens, a->q_heads + a->k_heads), &kernel, sizeof kernel, out);
}

static rdk_kv_write_sm90a_args kv_write_args(const rdi_kv_write_args *a) {
    return (rdk_kv_write_sm90a_args){
        .k = RDK_ADDR(a->k),
        .v = RDK_ADDR(a->v),
        .k_cache = RDK_ADDR(a->k_cache),
        .v_cache = RDK_ADDR(a->v_cache),
        .k_scale = RDK_ADDR(a->k_scale),
        .v_scale = RDK_ADDR(a->v_scale),
        .slots = RDK_ADDR(a->slots),
        .k_stride_token = a->k_stride_token,
        .k_stride_head = a->k_stride_head,
        .v_stride_token = a->v_stride_token,
        .v_stride_head = a->v_stride_head,
        .kc_stride_block = a->kc_stride_block,
        .kc_stride_token = a->kc_stride_token,
        .kc_stride_head = a->kc_stride_head,
        .kc_stride_dim = a->kc_stride_dim,
        .vc_stride_block = a->vc_stride_block,
        .vc_stride_token = a->vc_stride_token,
        .vc_stride_head = a->vc_stride_head,
        .vc_stride_dim = a->vc_stride_dim,
        .capacity = a->blocks * a->block_tokens,
        .block_inverse = UINT64_MAX / (uint64_t)a->block_tokens + 1,
        .kv_heads = (int32_t)a->kv_heads,
        .head_dim = (int32_t)a->head_dim,
        .block_tokens = (int32_t)a->block_tokens,
        .k_interleave = a->kc_stride_dim == 16 ? 16 : 1,
        .x_type = rdk_type_code(a->x_dtype),
        .kv_type = rdk_type_code(a->kv_dtype),
    };
}

int32_t rdi_kv_write_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                    rdi_launch *out) {
    const rdi_kv_write_args *a = args;
    (void)ws, (void)device;
    const rdk_kv_write_sm90a_args kernel = kv_write_args(a);
    int64_t pieces = rdi_mul_capped(a->kv_heads, rdi_ceil_div(a->head_dim, 8));
    if (!rdi_launch_takes_count("kv_write", "k: 16-byte pieces of a token", pieces,
                                GRID_Y_MAX * RDK_ROW_THREADS))
        return 0;
    return one_launch(out, "rdk_kv_write_sm90a", a->tokens, rdi_ceil_div(pieces, RDK_ROW_THREADS),
                      RDK_ROW_THREADS, &kernel, sizeof kernel);
}

// Rows of pairs: two elements, of at most `bytes` each, at a place that is a multiple of both.
static bool has_pairs(const void *data, int64_t bytes, int64_t stride_token, int64_t stride_head) {
    return (uintptr_t)data % (uintptr_t)(2 * bytes) == 0 && stride_token % 2 == 0 && stride_head % 2 == 0;
}

// q and k of one type, turned by halves of whole pairs?
static bool turns_pairs(const rdi_rope_args *a) {
    const int64_t bytes = (int64_t)rd_dtype_bytes(a->q_dtype);
    return a->q_dtype == a->k_dtype && !a->interleaved && a->head_dim <= 256 && a->head_dim % 2 == 0 &&
           a->rotary_dim % 4 == 0 && has_pairs(a->q, bytes, a->q_stride_token, a->q_stride_head) &&
           has_pairs(a->k, bytes, a->k_stride_token, a->k_stride_head) &&
           (!a->q_norm || (has_pairs(a->q_norm, 2, 0, 0) && has_pairs(a->k_norm, 2, 0, 0)));
}

int32_t rdi_rope_kv_write_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                         rdi_launch *out) {
    static const char *const names[3][2][2] = {
        // by rdk_type_code
        {{"rdk_rope_kv_write_sm90a_f32_d128", "rdk_rope_kv_write_sm90a_f32_d128_many"},
         {"rdk_rope_kv_write_sm90a_f32_d256", "rdk_rope_kv_write_sm90a_f32_d256_many"}},
        {{"rdk_rope_kv_write_sm90a_bf16_d128", "rdk_rope_kv_write_sm90a_bf16_d128_many"},
         {"rdk_rope_kv_write_sm90a_bf16_d256", "rdk_rope_kv_write_sm90a_bf16_d256_many"}},
        {{"rdk_rope_kv_write_sm90a_f16_d128", "rdk_rope_kv_write_sm90a_f16_d128_many"},
         {"rdk_rope_kv_write_sm90a_f16_d256", "rdk_rope_kv_write_sm90a_f16_d256_many"}}};
    const rdi_rope_kv_write_args *a = args;
    int64_t q_heads = a->rope.q_heads, kv_heads = a->kv.kv_heads;
    (void)ws;
    if (a->rope.q_norm && !rdi_launch_takes_type("rope_kv_write", "q_norm", a->rope.norm_dtype)) return 0;
    const rdk_rope_kv_write_sm90a_args kernel = {rope_args(&a->rope), kv_write_args(&a->kv)};
    int64_t all_heads = rdi_mul_capped(a->rope.tokens, q_heads + 2 * kv_heads);
    if (!turns_pairs(&a->rope))
        return head_launch("rope_kv_write", "rdk_rope_kv_write_sm90a_any", all_heads, &kernel, sizeof kernel,
                           out);
    // Several heads a warp where that still leaves every multiprocessor enough warps.
    bool many = all_heads >= (int64_t)device->compute_units * 32 * RDK_ROPE_HEADS;
    int64_t heads = !many ? 1 : a->rope.head_dim > 128 ? RDK_ROPE_HEADS / 2 : RDK_ROPE_HEADS;
    int64_t warps =
        rdi_mul_capped(a->rope.tokens, rdi_ceil_div(q_heads, heads) + 2 * rdi_ceil_div(kv_heads, heads));
    return head_launch("rope_kv_write", names[rdk_type_code(a->rope.q_dtype)][a->rope.head_dim > 128][many],
                       warps, &kernel, sizeof kernel, out);
}

int32_t rdi_embed_sm90a_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    const rdi_embed_args *a = args;
    (void)ws, (void)device;
    const rdk_embed_sm90a_args kernel = {
        .table = RDK_ADDR(a->table),
        .ids = RDK_ADDR(a->ids),
        .y = RDK_ADDR(a->y),
        .table_stride = a->table_stride,
        .y_stride = a->y_stride,
        .vocab = a->vocab,
        .k = (int32_t)a->k,
        .table_type = rdk_type_code(a->table_dtype),
        .y_type = rdk_type_code(a->y_dtype),
        .scale = a->scale,
    };
    if (!rdi_launch_takes_count("embed", "k", a->k, GRID_Y_MAX * ROW_ELEMS)) return 0;
    return one_launch(out, "rdk_embed_sm90a", a->tokens, rdi_ceil_div(a->k, ROW_ELEMS), RDK_ROW_THREADS,
                      &kernel, sizeof kernel);
}

int32_t rdi_sample_sm90a_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    const rdi_sample_args *a = args;
    int64_t slice = rdi_ceil_div(a->vocab, RDK_SAMPLE_BLOCKS * 4) * 4,
            held = rdi_min(slice, RDK_SAMPLE_HELD_ELEMS);
    (void)ws, (void)device;
    const rdk_sample_sm90a_args kernel = {
        .logits = RDK_ADDR(a->logits),
        .params = RDK_ADDR(a->params),
        .ids = RDK_ADDR(a->ids),
        .logits_stride = a->logits_stride,
        .vocab = (int32_t)a->vocab,
        .slice = (int32_t)slice,
        .held = (int32_t)held,
    };
    if (!rdi_launch_takes_count("sample", "rows", a->rows, GRID_X_MAX / RDK_SAMPLE_BLOCKS)) return 0;
    one_launch(out, "rdk_sample_sm90a", a->rows * RDK_SAMPLE_BLOCKS, 1, RDK_SAMPLE_THREADS, &kernel,
               sizeof kernel);
    out->shared_bytes = (uint32_t)(RDK_SAMPLE_SHARED_BYTES + held * 4);
    return 1;
}
