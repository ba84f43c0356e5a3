// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a quantisation kernels: arguments of the op in, launches out, no driver call.
#include "kernels/common/sm90a_norm.h"
#include "kernels/quant_fp8/args.h"
#include "kernels/quant_fp8/sm90a_args.h"
#include "kernels/rows.h"

static rdk_quant_sm90a_args kernel_args(const rdi_quant_args *a) {
    return (rdk_quant_sm90a_args){
        .x = RDK_ADDR(a->x),
        .up = rdi_fuse_takes_up(a->fuse) ? RDK_ADDR(a->up) : 0,
        .residual = a->fuse == RDI_FUSE_ADD_RMSNORM ? RDK_ADDR(a->residual) : 0,
        .norm_weight = RDK_ADDR(a->norm_weight),
        .q = RDK_ADDR(a->q),
        .q_scale = RDK_ADDR(a->q_scale),
        .x_stride = a->x_stride,
        .up_stride = a->up_stride,
        .residual_stride = a->residual_stride,
        .q_stride = a->q_stride,
        .q_scale_stride_m = a->q_scale_stride_m,
        .q_scale_stride_k = a->q_scale_stride_k,
        .m = (int32_t)a->m,
        .k = (int32_t)a->k,
        .x_type = rdk_type_code(a->x_dtype),
        .up_type = rdk_type_code(a->up_dtype),
        .residual_type = rdk_type_code(a->residual_dtype),
        .norm_type = rdk_type_code(a->norm_dtype),
        .gelu = a->fuse == RDI_FUSE_GELU_MUL,
        .eps = a->eps,
        .weight_offset = a->unit_offset ? 1.0f : 0.0f,
    };
}

// Operands that no key of the question names.
static bool types_fit(const rdi_quant_args *a) {
    bool add = a->fuse == RDI_FUSE_ADD_RMSNORM, norm = add || a->fuse == RDI_FUSE_RMSNORM;
    return (!rdi_fuse_takes_up(a->fuse) || rdi_launch_takes_type("quant_fp8", "up", a->up_dtype)) &&
           (!add || rdi_launch_takes_type("quant_fp8", "residual", a->residual_dtype)) &&
           (!norm || rdi_launch_takes_type("quant_fp8", "norm_weight", a->norm_dtype));
}

int32_t rdi_quant_sm90a_geometry(const void *args, void *ws, const rd_device_info *device, rdi_launch *out) {
    const rdi_quant_args *a = args;
    if (!types_fit(a) || !rdi_launch_takes_count("quant_fp8", "k", a->k, 65535 * RDK_QUANT_THREADS * 8))
        return 0;
    rdk_quant_sm90a_args kernel = kernel_args(a);
    (void)ws;
    bool many = a->m >= device->compute_units; // enough for every multiprocessor
    uint32_t rows = (uint32_t)rdi_ceil_div(a->m, many ? RDK_QUANT_ROWS : 1),
             columns = (uint32_t)rdi_ceil_div(a->k, RDK_QUANT_THREADS * 8);
    rdi_launch_fill(out, many ? "rdk_quant_fp8_sm90a_many" : "rdk_quant_fp8_sm90a_one",
                    (const uint32_t[3]){rows, columns, 1}, RDK_QUANT_THREADS, &kernel, sizeof kernel);
    out->dependent = true;
    return 1;
}

int32_t rdi_quant_norm_sm90a_geometry(const void *args, void *ws, const rd_device_info *device,
                                      rdi_launch *out) {
    const rdi_quant_args *a = args;
    if (!types_fit(a)) return 0;
    rdk_quant_sm90a_args kernel = kernel_args(a);
    static const char *const names[3][2][2] = {
        // by rdk_type_code
        {{"rdk_quant_fp8_norm_sm90a_f32", "rdk_quant_fp8_norm_sm90a_f32_cluster"},
         {"rdk_quant_fp8_norm_sm90a_f32_add", "rdk_quant_fp8_norm_sm90a_f32_add_cluster"}},
        {{"rdk_quant_fp8_norm_sm90a_bf16", "rdk_quant_fp8_norm_sm90a_bf16_cluster"},
         {"rdk_quant_fp8_norm_sm90a_bf16_add", "rdk_quant_fp8_norm_sm90a_bf16_add_cluster"}},
        {{"rdk_quant_fp8_norm_sm90a_f16", "rdk_quant_fp8_norm_sm90a_f16_cluster"},
         {"rdk_quant_fp8_norm_sm90a_f16_add", "rdk_quant_fp8_norm_sm90a_f16_add_cluster"}}};
    rd_dtype type = a->x_dtype;
    bool add = a->fuse == RDI_FUSE_ADD_RMSNORM;
    bool vector = rdk_norm_vector(a->x, a->x_stride, a->k, type, type) &&
                  rdk_norm_vector(a->norm_weight, 0, a->k, a->norm_dtype, type) &&
                  (!add || rdk_norm_vector(a->residual, a->residual_stride, a->k, a->residual_dtype, type));
    bool cluster = vector && rdk_norm_clusters(a->m, device->compute_units);
    uint32_t blocks = (uint32_t)a->m * (cluster ? RDK_NORM_BLOCKS : 1);
    (void)ws;
    rdi_launch_fill(out, vector ? names[rdk_type_code(type)][add][cluster] : "rdk_quant_fp8_norm_sm90a_any",
                    (const uint32_t[3]){blocks, 1, 1},
                    cluster ? rdk_norm_cluster_threads(a->k) : rdk_norm_threads(a->k), &kernel,
                    sizeof kernel);
    out->dependent = true;
    return 1;
}
