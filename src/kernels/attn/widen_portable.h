// SPDX-License-Identifier: Apache-2.0
// fp8 codes to sixteen lanes in plain C, as value * 2^-8: the same bits as the vector rows on any machine whose float is
// IEEE single precision.
#ifndef RDI_ATTN_WIDEN_PORTABLE_H
#define RDI_ATTN_WIDEN_PORTABLE_H

#include "base/lanes.h"

enum { DIRECT_ROWS = 6, WIDEN_VECS = 1, GROUP_ROWS = 6, TILE_VECS = 1 };
#define DIRECT_VECS(rows_)          1
#define FMA_BROADCAST(acc_, w_, x_) ((acc_) = v16_fma(v16_set(*(x_)), (w_), (acc_)))
#define LANE_FN                     static inline

LANE_FN float largest_lane(v16 x) {
    return v16_top(x);
}
LANE_FN float sum_lanes(v16 x) {
    return v16_sum(x);
}

typedef struct fp8_widener {
    int unused;
} fp8_widener;
LANE_FN fp8_widener fp8_widener_init(void) {
    return (fp8_widener){0};
}
LANE_FN v16 widen_fp8(const fp8_widener *t, const uint8_t *p) {
    (void)t;
    float lane[16];
    for (int i = 0; i < 16; i++)
        lane[i] = rdi_e4m3_table[p[i]] * 0x1p-8f; // exact: at most four significant bits
    return v16_load(lane);
}
LANE_FN void widen_fp8_vecs(const fp8_widener *t, const uint8_t *p, v16 out[WIDEN_VECS]) {
    out[0] = widen_fp8(t, p);
}

#endif // RDI_ATTN_WIDEN_PORTABLE_H
