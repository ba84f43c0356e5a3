// SPDX-License-Identifier: Apache-2.0
// How many pieces the keys of one decode call are split into.
#include "policy/aiter.h"

// The law 16 * cbrt(tiles / programs), floored to a power of two, in integers: the largest 2^k with
// 2^(3k) * programs <= 4096 * tiles. Fitted by its author to 16 measured points on gfx1201: the worst was 2.2% off the best
// split, 11 were exact; worth 1.35 to 1.80 times over the fixed count.
//
// 128 is the cap because the f32 partials are tokens x heads x splits x head_dim x 4 bytes: at 48 tokens, 12 heads, 128
// splits and head 256 that is 75 MB. No more splits than tiles (rounded up to a power of two, as the kernel's grid needs):
// the rest would be empty. At least 4, and that floor wins: with fewer the device is idle at one sequence.
int64_t rdi_aiter_split_count(int64_t kv_tokens, int64_t tile, int64_t programs, const char **rule) {
    int64_t tiles = rdi_ceil_div(kv_tokens, tile), splits = 1, tiles_bound = 1;
    *rule = "split_count: 16 * cbrt(tiles / programs)";
    // splits <= 128 keeps 8 * splits^3 at 2^24, so that neither product can overflow for 32-bit sizes.
    while (8 * splits * splits * splits * programs <= 4096 * tiles) {
        if (splits == RDI_AITER_SPLITS_MAX) {
            *rule = "split_count: cap of 128";
            break;
        }
        splits *= 2;
    }
    while (tiles_bound < tiles) tiles_bound *= 2;
    if (splits > tiles_bound) {
        splits = tiles_bound;
        *rule = "split_count: no more splits than tiles";
    }
    if (splits < RDI_AITER_SPLITS_MIN) {
        splits = RDI_AITER_SPLITS_MIN;
        *rule = "split_count: at least 4";
    }
    return splits;
}
