// SPDX-License-Identifier: Apache-2.0
// The last step of every run entry: the plan's row on the CPU pool, or its geometry's launches on the card.
#include "backend/backend.h"
#include "ops/ctx.h"
#include "ops/plan.h"

// The longest axis that kernels of a card can count.
static rd_status check_extents(const char *op, const rdi_operand *operand) {
    for (int32_t axis = 0; axis < operand->tensor->rank && axis < RD_MAX_RANK; axis++)
        if (operand->tensor->shape[axis] > RDI_CARD_EXTENT_MAX)
            return rdi_fail(RD_E_INVALID, "%s: %s: shape[%d]=%lld, a card takes up to %d", op, operand->field,
                            axis, (long long)operand->tensor->shape[axis], RDI_CARD_EXTENT_MAX);
    return RD_OK;
}

bool rdi_plan_on_host(const rd_plan *plan) {
    return rdi_plan_ctx(plan)->device->backend == RDI_BACKEND_CPU;
}

rd_status rdi_check_places(const rd_plan *plan, const rdi_operand *operands, size_t count) {
    const rd_device *device = rdi_plan_ctx(plan)->device;
    int32_t needed = device->card ? device->card->number : 0;
    // A plan of a fixture runs nothing: rdi_row_launch says so, whatever the operands.
    for (size_t i = 0; i < count && !device->info.is_fixture; i++) {
        const rd_tensor *tensor = operands[i].tensor;
        if (!tensor->data) continue;
        if (device->card) RDI_TRY(check_extents(rdi_plan_op(plan), &operands[i]));
        if (tensor->device == needed) continue;
        return rdi_fail(RD_E_INVALID, "%s: %s: device=%d, needs %d (%s)", rdi_plan_op(plan),
                        operands[i].field, tensor->device, needed,
                        device->card ? device->card->name : "host memory");
    }
    return RD_OK;
}

size_t rdi_row_ws_bytes(const rd_plan *plan, const rdi_row *row, const void *args) {
    const rd_ctx *ctx = rdi_plan_ctx(plan);
    if (!row->ws_bytes) return 0;
    return row->ws_bytes(args, row->geometry ? ctx->device->info.compute_units : rdi_par_threads(ctx->par));
}

static rd_status launch_on_card(const rd_plan *plan, const rdi_row *row, const void *args, void *ws,
                                rd_stream stream) {
    const rd_device *device = rdi_plan_ctx(plan)->device;
    const rdi_loaded *loaded = rdi_plan_loaded(plan, row);
    rdi_launch launches[RDI_MAX_LAUNCHES];
    int32_t count = row->geometry(args, ws, &device->info, launches);
    if (count < 1) return RD_E_INVALID; // the geometry has said what does not fit
    for (int32_t i = 0; i < count; i++) {
        launches[i].dependent = launches[i].dependent && !rdi_plan_starts_in_turn(plan);
        RDI_TRY(rdi_card_launch(device->card, loaded, &launches[i], stream));
    }
    return RD_OK;
}

rd_status rdi_row_launch(const rd_plan *plan, const rdi_row *row, const void *args, void *ws,
                         rd_stream stream) {
    const rd_ctx *ctx = rdi_plan_ctx(plan);
    const rd_device_info *device = &ctx->device->info;
    if (device->is_fixture)
        return rdi_fail(RD_E_NO_DEVICE,
                        "device=%s is a fixture: it answers questions, kernels cannot run on it",
                        device->name);
    if (row->geometry) return launch_on_card(plan, row, args, ws, stream);
    row->run(args, ws, ctx->par);
    return RD_OK;
}
