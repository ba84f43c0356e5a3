// SPDX-License-Identifier: Apache-2.0
// rd_weight_pack: copies a row-major weight into a layout that kernels read faster. Done once, at load.
#include "kernels/gemm_fp8block/pack.h"
#include "ops/plan.h"
#include "ops/shared.h"

#include <string.h>

typedef struct pack_job {
    rdi_gemm_args from; // only what describes the weight
    uint8_t *to;
    int64_t panel_bytes;
    rdi_weight_layout layout;
    rdi_tiles tiles; // panels
} pack_job;

static void pack_body(void *arg, int32_t worker, int32_t workers) {
    (void)worker;
    (void)workers;
    pack_job *job = arg;
    for (int64_t panel, end; rdi_tiles_next(&job->tiles, &panel, &end);)
        for (; panel < end; panel++) {
            uint8_t *to = job->to + panel * job->panel_bytes;
            if (job->layout == RDI_LAYOUT_SHUFFLE16)
                rdi_weight_pack_shuffle16(&job->from, panel, to);
            else if (job->layout == RDI_LAYOUT_TILE64)
                rdi_weight_pack_tile64(&job->from, panel, to);
            else
                rdi_weight_pack_panel(&job->from, panel, to);
        }
}

static rd_status check_source(const rd_tensor *w) {
    static const char *const op = "weight_pack";
    RDI_TRY(rdi_check_tensor(op, "w", w, 2, RD_DTYPE_NONE));
    if (w->device) return rdi_fail(RD_E_INVALID, "%s: w: device=%d, needs 0 (host memory)", op, w->device);
    if (w->dtype != RD_DTYPE_E4M3 && w->dtype != RD_DTYPE_BF16)
        return rdi_fail(RD_E_INVALID, "%s: w: dtype=%s, needs one of: fp8_e4m3 bf16", op,
                        rd_dtype_name(w->dtype));
    for (int axis = 0; axis < 2; axis++)
        if (w->shape[axis] < 1)
            return rdi_fail(RD_E_INVALID, "%s: w: shape[%d]=%lld, needs >= 1", op, axis,
                            (long long)w->shape[axis]);
    if (w->shape[1] > 1) RDI_TRY(rdi_check_stride(op, "w", w, 1, 1));
    if (w->shape[0] > 1 && w->stride[0] < w->shape[1])
        return rdi_fail(RD_E_INVALID, "%s: w: stride[0]=%lld, needs >= %lld", op, (long long)w->stride[0],
                        (long long)w->shape[1]);
    return RD_OK;
}

// What a layout asks of the weight.
static rd_status check_layout(const rd_tensor *w, rdi_weight_layout layout) {
    if (layout == RDI_LAYOUT_PANEL16) return RD_OK;
    if (w->dtype != RD_DTYPE_E4M3)
        return rdi_fail(RD_E_INVALID, "weight_pack: w: dtype=%s, %s needs fp8_e4m3", rd_dtype_name(w->dtype),
                        rdi_layout_word(layout));
    if (layout != RDI_LAYOUT_SHUFFLE16) return RD_OK;
    if (w->shape[0] % 16)
        return rdi_fail(RD_E_INVALID, "weight_pack: n=%lld, shuffle16 needs a multiple of 16",
                        (long long)w->shape[0]);
    if (w->shape[1] % 32)
        return rdi_fail(RD_E_INVALID, "weight_pack: k=%lld, shuffle16 needs a multiple of 32",
                        (long long)w->shape[1]);
    return RD_OK;
}

rd_status rd_weight_pack(rd_ctx *ctx, const rd_tensor *w, const char *layout, rd_tensor *packed) {
    if (!w || !layout || !packed)
        return rdi_fail(RD_E_INVALID, "weight_pack: %s=NULL, needs a value",
                        !w        ? "w"
                        : !layout ? "layout"
                                  : "packed");
    RDI_TRY(check_source(w));
    pack_job job = {
        .from = {
            .n = w->shape[0], .k = w->shape[1], .w = w->data, .w_stride = w->stride[0], .w_dtype = w->dtype}};
    job.layout = rdi_layout_named(layout);
    if (job.layout == RDI_LAYOUT_ROW || job.layout == RDI_LAYOUTS)
        return rdi_fail(RD_E_INVALID, "weight_pack: layout=%s, needs one of: shuffle16 panel16 tile64",
                        layout);
    RDI_TRY(check_layout(w, job.layout));
    int64_t panels = rdi_ceil_div(job.from.n, rdi_layout_panel_rows(job.layout));
    int64_t elems = rdi_layout_panel_elems(job.layout, w->dtype, job.from.k);
    rd_tensor dense = rd_tensor_2d(packed->data, w->dtype, panels, elems);
    if (!packed->data) {
        *packed = dense;
        return RD_OK;
    }
    RDI_TRY(rdi_check_tensor("weight_pack", "packed", packed, 2, w->dtype));
    if (packed->device)
        return rdi_fail(RD_E_INVALID, "weight_pack: packed: device=%d, needs 0 (host memory)",
                        packed->device);
    RDI_TRY(rdi_check_dim("weight_pack", "packed", packed, 0, panels));
    RDI_TRY(rdi_check_dim("weight_pack", "packed", packed, 1, elems));
    RDI_TRY(rdi_check_stride("weight_pack", "packed", packed, 1, 1));
    RDI_TRY(rdi_check_stride("weight_pack", "packed", packed, 0, elems));
    job.to = packed->data;
    job.panel_bytes = elems * (int64_t)rd_dtype_bytes(w->dtype);
    rdi_tiles_init(&job.tiles, panels, 4);
    rdi_par_run(ctx ? rdi_ctx_par(ctx) : NULL, INT32_MAX, pack_body, &job);
    return RD_OK;
}
