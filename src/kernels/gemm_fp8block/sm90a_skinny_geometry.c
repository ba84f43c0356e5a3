// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a GEMM kernels with 16-bit arithmetic: arguments of the op in, launches out, no driver call.
#include "kernels/gemm_fp8block/sm90a_geometry.h"
#include "kernels/gemm_fp8block/sm90a_skinny_geometry.h"

#include <stddef.h>

// No tile spans more than nine blocks: one after the other, what they leave costs more than a longer run does.
enum { TILE_BLOCKS = 8 };
// Ranges are the second axis of a launch, so that the blocks of one range stand together (CUDA programming guide, technical
// specifications of compute capability 9.0).
enum { GRID_Y_MAX = 65535 };

// Whole tiles where they lie almost evenly: then no sums travel.
static bool whole_tiles(int64_t tiles, int32_t units) {
    return tiles * 16 >= rdi_ceil_div(tiles, units) * units * 15;
}

rdi_skinny_plan rdi_gemm_skinny_plan(const rdi_gemm_args *a, int32_t units, int32_t rows, int32_t parts,
                                     int32_t boxes, int32_t columns_max) {
    rdi_skinny_plan plan = {.columns = 8, .parts = parts, .rows = rows, .boxes = boxes};
    int64_t tiles = rdi_ceil_div(a->n, plan.rows), columns = a->m * parts;
    plan.whole = whole_tiles(tiles, units);
    plan.ranges = rdi_min(units, plan.whole ? tiles : tiles * TILE_BLOCKS);
    // Weights that leave multiprocessors idle are read by several blocks of few columns each.
    while (plan.columns < columns_max && rdi_ceil_div(columns, plan.columns) * plan.ranges > units &&
           plan.columns < columns)
        plan.columns *= 2;
    plan.slices = (int32_t)rdi_ceil_div(columns, plan.columns);
    return plan;
}

rdi_skinny_plan rdi_gemm_skinny_dense_plan(const rdi_gemm_args *a, int32_t rows, int32_t parts,
                                           int32_t boxes) {
    rdi_skinny_plan plan = {.parts = parts, .rows = rows, .boxes = boxes, .whole = true};
    plan.columns = RDK_SKINNY_COLUMNS_MAX;
    plan.slices = (int32_t)rdi_min(rdi_ceil_div(a->m * parts, plan.columns), INT32_MAX);
    plan.ranges = rdi_min(rdi_ceil_div(a->n, plan.rows), GRID_Y_MAX); // a tile each, or some two or more
    return plan;
}

static size_t partial_bytes(const rdi_skinny_plan *plan) {
    if (plan->whole) return 0;
    return (size_t)plan->slices * (size_t)plan->ranges * (size_t)plan->rows * (size_t)plan->columns * 2 *
           sizeof(float);
}

enum { SPLIT_ELEMS = RDK_SKINNY_SPLIT_THREADS * 8 }; // of a block of the launch that splits
static int64_t split_stride(int64_t k) {
    return rdi_round_up(k, 8); // the copy engine wants 16-byte rows
}

size_t rdi_gemm_skinny_ws(const rdi_gemm_args *a, const rdi_skinny_plan *plan) {
    size_t split = plan->parts > 1 ? (size_t)rdi_mul_capped(a->m * plan->parts, split_stride(a->k) * 2) : 0;
    return partial_bytes(plan) + split;
}

static rdi_tensor_map row_map(uint32_t arg_offset, const void *base, int64_t rows, int64_t k,
                              int64_t stride_bytes, uint32_t elem_bytes, int32_t box_rows) {
    return (rdi_tensor_map){
        .arg_offset = arg_offset,
        .base = base,
        .elem_bytes = elem_bytes,
        .rank = 2,
        .dim = {(uint64_t)k, (uint64_t)rows},
        .stride_bytes = {elem_bytes, (uint64_t)(rows == 1 ? rdi_round_up(k * elem_bytes, 16) : stride_bytes)},
        .box = {RDK_SKINNY_ROW_BYTES / elem_bytes, (uint32_t)box_rows},
        .swizzle_bytes = 128,
    };
}

static void split_launch(const rdi_gemm_args *a, void *to, int32_t parts, const char *kernel,
                         rdi_launch *out) {
    rdk_skinny_split_args args = {
        .a = RDK_ADDR(a->a),
        .to = RDK_ADDR(to),
        .a_stride = a->a_stride,
        .to_stride = split_stride(a->k),
        .k = (int32_t)a->k,
        .a_type = rdk_type_code(a->a_dtype),
        .parts = parts,
    };
    uint32_t blocks = (uint32_t)rdi_ceil_div(a->k, SPLIT_ELEMS);
    rdi_launch_fill(out, kernel, (const uint32_t[3]){(uint32_t)a->m, blocks, 1}, RDK_SKINNY_SPLIT_THREADS,
                    &args, sizeof args);
    out->dependent = true;
}

static rdk_skinny_args kernel_args(const rdi_gemm_args *a, const void *columns, int64_t column_stride_bytes,
                                   void *ws, const rdi_skinny_plan *plan) {
    int64_t w_bytes = (int64_t)rd_dtype_bytes(a->w_dtype),
            k_blocks = rdi_ceil_div(a->k, plan->boxes * RDK_SKINNY_BOX_K);
    int64_t share = plan->whole ? k_blocks : 1, shares = rdi_ceil_div(a->n, plan->rows) * k_blocks / share;
    return (rdk_skinny_args){
        .a = RDK_ADDR(columns),
        .w = RDK_ADDR(a->w),
        .w_scale = RDK_ADDR(a->w_scale),
        .bias = RDK_ADDR(a->bias),
        .c = RDK_ADDR(a->c),
        .partials = RDK_ADDR(ws),
        .a_stride_bytes = column_stride_bytes,
        .w_stride_bytes = a->w_stride * w_bytes,
        .w_scale_stride_n = a->w_scale_stride_n,
        .w_scale_stride_k = a->w_scale_stride_k,
        .c_stride = a->c_stride,
        .columns = (int32_t)(a->m * plan->parts),
        .parts = plan->parts,
        .n = (int32_t)a->n,
        .k = (int32_t)a->k,
        .k_blocks = (int32_t)k_blocks,
        .ranges = (int32_t)plan->ranges,
        .range_shares = (int32_t)(shares / plan->ranges),
        .range_rest = (int32_t)(shares % plan->ranges),
        .share_units = (int32_t)share,
        .a_maps = rdi_sm90a_engine_can(columns, a->m * plan->parts, column_stride_bytes),
        .w_maps = rdi_sm90a_engine_can(a->w, a->n, a->w_stride * w_bytes),
        .w_once = plan->slices == 1,
        .w_scale_e8m0 = a->w_scale_dtype == RD_DTYPE_E8M0,
        .bias_type = rdk_type_code(a->bias_dtype),
        .c_type = rdk_type_code(a->c_dtype),
    };
}

// What kernels count in 32 bits, and the second axis of the launch that splits.
static bool counts_fit(const rdi_gemm_args *a, const rdi_skinny_plan *plan) {
    int64_t k_blocks = rdi_ceil_div(a->k, plan->boxes * RDK_SKINNY_BOX_K);
    return rdi_launch_takes_count("gemm", "a: columns", a->m * plan->parts, RDI_CARD_EXTENT_MAX) &&
           rdi_launch_takes_count("gemm", "k", a->k,
                                  plan->parts > 1 ? (int64_t)GRID_Y_MAX * SPLIT_ELEMS
                                                  : RDI_CARD_EXTENT_MAX / 2) &&
           rdi_launch_takes_count("gemm", "w: tiles by k blocks", rdi_ceil_div(a->n, plan->rows) * k_blocks,
                                  RDI_SM90A_TILES_MAX);
}

int32_t rdi_gemm_skinny_launches(const rdi_gemm_args *a, void *ws, const rdi_skinny_plan *plan,
                                 const char *kernel, const char *split, rdi_launch *out) {
    const void *columns = a->a;
    int64_t stride_bytes = a->a_stride * (int64_t)rd_dtype_bytes(a->a_dtype);
    int32_t count = 0;
    if (!counts_fit(a, plan)) return 0;
    if (plan->parts > 1) {
        void *parts = (uint8_t *)ws + partial_bytes(plan);
        split_launch(a, parts, plan->parts, split, &out[count++]);
        columns = parts;
        stride_bytes = split_stride(a->k) * 2;
    }
    rdk_skinny_args args = kernel_args(a, columns, stride_bytes, ws, plan);
    rdi_launch *launch = &out[count++];
    rdi_launch_fill(launch, kernel, (const uint32_t[3]){(uint32_t)plan->slices, (uint32_t)plan->ranges, 1},
                    (uint32_t)(plan->rows / 64 * 128 + 64), &args, sizeof args);
    launch->shared_bytes = (uint32_t)rdk_skinny_shared_bytes(plan->columns, plan->rows, plan->boxes);
    launch->dependent = true;
    if (args.w_maps)
        launch->map[launch->map_count++] =
            row_map(offsetof(rdk_skinny_args, w_map), a->w, a->n, a->k, args.w_stride_bytes,
                    (uint32_t)rd_dtype_bytes(a->w_dtype), plan->rows);
    if (args.a_maps)
        launch->map[launch->map_count++] = row_map(offsetof(rdk_skinny_args, a_map), columns, args.columns,
                                                   a->k, stride_bytes, 2, plan->columns);
    return count;
}
