// SPDX-License-Identifier: Apache-2.0
// The staged K or V tile is held at the next power of two of the head size, and 256 bytes go to the softmax state. 65,536
// bytes a work-group is gfx12's limit: head 256 with 2-byte keys, tile 64 and two stages asked for 65,792 and failed to launch
// in the field; so did head 512 with 1-byte keys.
#include "policy/lds_fit.h"

static int64_t needed_bytes(int64_t head_size, int64_t elem_bytes, int64_t tile, int64_t stages) {
    int64_t padded = 1;
    while (padded < head_size) padded *= 2;
    return tile * padded * elem_bytes * stages + 256;
}

// Stages go first: a smaller tile also costs matrix-unit use, fewer stages only latency hiding.
rdi_lds_fit rdi_lds_fit_decide(const rdi_lds_question *q) {
    int64_t tile = q->tile, stages = q->stages,
            bytes = needed_bytes(q->head_size, q->elem_bytes, tile, stages);
    rdi_lds_fit fit = {.bytes = bytes, .rule = "lds_fit: fits as asked"};
    for (; bytes > q->lds_bytes && stages > 1;
         bytes = needed_bytes(q->head_size, q->elem_bytes, tile, stages)) {
        stages--;
        fit.rule = "lds_fit: fewer stages";
    }
    for (; bytes > q->lds_bytes && tile / 2 >= RDI_LDS_TILE_MIN;
         bytes = needed_bytes(q->head_size, q->elem_bytes, tile, stages)) {
        tile /= 2;
        fit.rule = "lds_fit: smaller tile";
    }
    if (bytes > q->lds_bytes) {
        fit.rule = "lds_fit: no tile of 16 or more fits";
        return fit;
    }
    fit.fit_tile = tile;
    fit.fit_stages = stages;
    fit.fit_bytes = bytes;
    return fit;
}
