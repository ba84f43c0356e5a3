// SPDX-License-Identifier: Apache-2.0
// Launches of gemm_bf16 on gfx1201: the tiles of the block-FP8 kernels.
#include "kernels/gemm_fp8block/gfx1201_geometry.h"
#include "kernels/rows.h"

int32_t rdi_gemm_bf16_step_gfx1201(const void *args, void *ws, const rd_device_info *device,
                                   rdi_launch *out) {
    static const rdi_step_kernels kernels = RDI_STEP_KERNELS("rdk_gemm_bf16_step_gfx1201");
    (void)ws;
    return rdi_gemm_gfx1201_step(args, device, &kernels, out);
}

int32_t rdi_gemm_bf16_step_wide_gfx1201(const void *args, void *ws, const rd_device_info *device,
                                        rdi_launch *out) {
    static const rdi_step_kernels kernels[2] = {
        RDI_STEP_KERNELS_WIDEN("rdk_gemm_bf16_step_wide_gfx1201_f16"),
        RDI_STEP_KERNELS_WIDEN("rdk_gemm_bf16_step_wide_gfx1201_f32")};
    const rdi_gemm_args *a = args;
    (void)ws;
    return rdi_gemm_gfx1201_step(a, device, &kernels[a->a_dtype == RD_DTYPE_F32], out);
}

int32_t rdi_gemm_bf16_chunk_gfx1201(const void *args, void *ws, const rd_device_info *device,
                                    rdi_launch *out) {
    static const char *const kernels[2] = {"rdk_gemm_bf16_chunk_gfx1201_128x128",
                                           "rdk_gemm_bf16_chunk_gfx1201_64x128"};
    (void)ws;
    return rdi_gemm_gfx1201_chunk(args, device, kernels, out);
}
