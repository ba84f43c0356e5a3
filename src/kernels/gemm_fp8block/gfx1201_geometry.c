// SPDX-License-Identifier: Apache-2.0
// Launches of the block-FP8 GEMMs on gfx1201: arguments of the op in, launches out, no driver call.
#include "kernels/gemm_fp8block/gfx1201_geometry.h"
#include "kernels/rows.h"

static int32_t type_code(rd_dtype dtype) {
    return dtype == RD_DTYPE_BF16 ? RDK_GEMM_BF16 : dtype == RD_DTYPE_F16 ? RDK_GEMM_F16 : RDK_GEMM_F32;
}

// May 16-byte loads run along the rows of one group? They need dwords; the group's rows are addressed by 32-bit offsets.
static bool rows_on_dwords(const void *data, int64_t stride_bytes) {
    return (uintptr_t)data % 4 == 0 && stride_bytes % 4 == 0 && stride_bytes >= 0 &&
           stride_bytes < UINT32_MAX / 256;
}

rdk_gemm_gfx1201_args rdi_gemm_gfx1201_args(const rdi_gemm_args *a) {
    int64_t a_stride = a->a_stride * (int64_t)rd_dtype_bytes(a->a_dtype),
            w_stride = a->w_stride * (int64_t)rd_dtype_bytes(a->w_dtype);
    bool w_on_dwords = a->layout == RDI_LAYOUT_SHUFFLE16 || rows_on_dwords(a->w, a->n > 1 ? w_stride : 0);
    return (rdk_gemm_gfx1201_args){
        .a = RDK_ADDR(a->a),
        .w = RDK_ADDR(a->w),
        .a_scale = RDK_ADDR(a->a_scale),
        .w_scale = RDK_ADDR(a->w_scale),
        .bias = RDK_ADDR(a->bias),
        .c = RDK_ADDR(a->c),
        .a_stride_bytes = a_stride,
        .w_stride_bytes = w_stride,
        .c_stride = a->c_stride,
        .a_scale_stride_m = a->a_scale_stride_m,
        .a_scale_stride_k = a->a_scale_stride_k,
        .w_scale_stride_n = a->w_scale_stride_n,
        .w_scale_stride_k = a->w_scale_stride_k,
        .m = (int32_t)a->m,
        .n = (int32_t)a->n,
        .k = (int32_t)a->k,
        .e8m0 = a->w_scale_dtype == RD_DTYPE_E8M0,
        .bias_type = a->bias ? type_code(a->bias_dtype) : RDK_GEMM_NONE,
        .c_type = type_code(a->c_dtype),
        .aligned = w_on_dwords && rows_on_dwords(a->a, a->m > 1 ? a_stride : 0),
        .c_aligned = (uintptr_t)a->c % (4 * rd_dtype_bytes(a->c_dtype)) == 0 && a->c_stride % 4 == 0 &&
                     a->c_stride < UINT32_MAX / (128 * 4),
    };
}

// A tile's rows are addressed by 32-bit offsets from its first one: operands whose rows lie farther apart are refused.
static bool spans_fit(const rdi_gemm_args *a, const rdk_gemm_gfx1201_args *args) {
    enum { TILE_ROWS = 128 };
    const int64_t blocks = rdi_ceil_div(a->k, 128);
    const struct {
        const char *field;
        int64_t bytes;
    } spans[] = {
        {"a", (rdi_min(a->m, TILE_ROWS) - 1) * args->a_stride_bytes},
        {"w", a->layout == RDI_LAYOUT_ROW ? (rdi_min(a->n, TILE_ROWS) - 1) * args->w_stride_bytes : 0},
        {"a_scale", a->a_scale ? 4 * ((rdi_min(a->m, TILE_ROWS) - 1) * a->a_scale_stride_m +
                                      (blocks - 1) * a->a_scale_stride_k)
                               : 0},
    };
    for (size_t i = 0; i < RDI_COUNT(spans); i++)
        if (spans[i].bytes > INT32_MAX) {
            rdi_fail(RD_E_INVALID, "gemm: %s: %d rows span %lld bytes, gfx1201 needs <= %d", spans[i].field,
                     TILE_ROWS, (long long)spans[i].bytes, INT32_MAX);
            return false;
        }
    return true;
}

rdi_step_tiles rdi_gemm_step_tiles(int64_t m, int64_t n, int32_t compute_units, bool widen) {
    rdi_step_tiles tiles = {.m_tiles = m <= 16 ? 1 : m <= 32 || widen ? 2 : 4};
    int64_t rows = n / compute_units; // of weights, for each compute unit
    // Wide groups take fewer instructions for each byte of weights; with few rows the bytes in flight are what is short, and
    // eight waves share K (docs/decisions/005-gemm-gfx1201.md).
    tiles.n_tiles = rows >= 64 ? 4 : rows >= 16 ? 2 : 1;
    tiles.slices = rows >= 32 ? 4 : 8;
    // Larger tiles than these do not fit the registers.
    if (tiles.n_tiles == 4 && tiles.m_tiles > (widen ? 1 : 2)) tiles.n_tiles = 2;
    return tiles;
}

int32_t rdi_gemm_gfx1201_step(const rdi_gemm_args *a, const rd_device_info *device,
                              const rdi_step_kernels *kernels, rdi_launch *out) {
    rdi_step_tiles tiles = rdi_gemm_step_tiles(a->m, a->n, device->compute_units, kernels->widen);
    const rdk_gemm_gfx1201_args args = rdi_gemm_gfx1201_args(a);
    if (!spans_fit(a, &args)) return 0;
    const uint32_t grid[3] = {(uint32_t)rdi_ceil_div(a->m, 16 * tiles.m_tiles),
                              (uint32_t)rdi_ceil_div(a->n, 16 * tiles.n_tiles), 1};
    const char *kernel = kernels->symbols[tiles.slices == 8][tiles.n_tiles / 2][tiles.m_tiles / 2];
    rdi_launch_fill(out, kernel, grid, 32 * (uint32_t)tiles.slices, &args, sizeof args);
    return 1;
}

int32_t rdi_gemm_fp8block_step_gfx1201(const void *args, void *ws, const rd_device_info *device,
                                       rdi_launch *out) {
    static const rdi_step_kernels kernels = RDI_STEP_KERNELS("rdk_gemm_fp8block_step_gfx1201");
    (void)ws;
    return rdi_gemm_gfx1201_step(args, device, &kernels, out);
}

int32_t rdi_gemm_fp8block_step_preshuffle_gfx1201(const void *args, void *ws, const rd_device_info *device,
                                                  rdi_launch *out) {
    static const rdi_step_kernels kernels = RDI_STEP_KERNELS("rdk_gemm_fp8block_step_preshuffle_gfx1201");
    (void)ws;
    return rdi_gemm_gfx1201_step(args, device, &kernels, out);
}

int32_t rdi_gemm_gfx1201_chunk(const rdi_gemm_args *a, const rd_device_info *device,
                               const char *const kernels[2], rdi_launch *out) {
    const rdk_gemm_gfx1201_args args = rdi_gemm_gfx1201_args(a);
    if (!spans_fit(a, &args)) return 0;
    int64_t n_tiles = rdi_ceil_div(a->n, RDK_CHUNK_TILE_N);
    // Two groups of 128 rows fit beside each other on a WGP, which is two compute units: with fewer groups than units take
    // tiles of half the height.
    bool narrow = rdi_ceil_div(a->m, 128) * n_tiles < device->compute_units;
    int64_t m_tiles = rdi_ceil_div(a->m, narrow ? 64 : 128), m_group = rdi_min(m_tiles, RDK_CHUNK_M_GROUP);
    const uint32_t grid[3] = {(uint32_t)m_group, (uint32_t)n_tiles,
                              (uint32_t)rdi_ceil_div(m_tiles, RDK_CHUNK_M_GROUP)};
    rdi_launch_fill(out, kernels[narrow], grid, RDK_CHUNK_BLOCK, &args, sizeof args);
    return 1;
}

int32_t rdi_gemm_fp8block_chunk_gfx1201(const void *args, void *ws, const rd_device_info *device,
                                        rdi_launch *out) {
    static const char *const kernels[2] = {"rdk_gemm_fp8block_chunk_gfx1201_128x128",
                                           "rdk_gemm_fp8block_chunk_gfx1201_64x128"};
    (void)ws;
    return rdi_gemm_gfx1201_chunk(args, device, kernels, out);
}

int32_t rdi_gemm_fp8block_chunk_preshuffle_gfx1201(const void *args, void *ws, const rd_device_info *device,
                                                   rdi_launch *out) {
    static const char *const kernels[2] = {"rdk_gemm_fp8block_chunk_preshuffle_gfx1201_128x128",
                                           "rdk_gemm_fp8block_chunk_preshuffle_gfx1201_64x128"};
    (void)ws;
    return rdi_gemm_gfx1201_chunk(args, device, kernels, out);
}

int32_t rdi_gemm_fp8block_w8a16_step_gfx1201(const void *args, void *ws, const rd_device_info *device,
                                             rdi_launch *out) {
    static const rdi_step_kernels kernels[2][2] = {
        {RDI_STEP_KERNELS_WIDEN("rdk_gemm_fp8block_w8a16_step_gfx1201_row_bf16"),
         RDI_STEP_KERNELS_WIDEN("rdk_gemm_fp8block_w8a16_step_gfx1201_row_f16")},
        {RDI_STEP_KERNELS_WIDEN("rdk_gemm_fp8block_w8a16_step_gfx1201_shuffle16_bf16"),
         RDI_STEP_KERNELS_WIDEN("rdk_gemm_fp8block_w8a16_step_gfx1201_shuffle16_f16")}};
    const rdi_gemm_args *a = args;
    (void)ws;
    return rdi_gemm_gfx1201_step(
        a, device, &kernels[a->layout == RDI_LAYOUT_SHUFFLE16][a->a_dtype == RD_DTYPE_F16], out);
}
