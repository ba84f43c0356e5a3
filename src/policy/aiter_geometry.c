// SPDX-License-Identifier: Apache-2.0
// Launch geometry of AITER's split-KV decode kernel.
#include "policy/aiter.h"

// The constants for fp8 queries and keys. The single-token pass of a drafter keeps them and everything else it had: it
// already reads at 97% of the card's DRAM rate (576 of 604 GB/s measured on an R9700).
static const rdi_aiter_decode FP8_CONSTANTS = {.tile = 16,
                                               .warps = 4,
                                               .stages = 1,
                                               .waves = 6,
                                               .reduce_tile = 16,
                                               .reduce_warps = 8,
                                               .reduce_stages = 1,
                                               .reduce_waves = 2,
                                               .splits = RDI_KEEP,
                                               .block_m = RDI_KEEP,
                                               .programs = RDI_KEEP,
                                               .rule = "decode_geometry: fp8 constants"};

// A fork's tuning for 16-bit keys: +14% decode there, and two stages of tile 16 fit in LDS at every head size up to 512.
static const rdi_aiter_decode WIDE_TYPE_CONSTANTS = {.tile = 16,
                                                     .warps = 4,
                                                     .stages = 2,
                                                     .waves = 2,
                                                     .reduce_tile = RDI_KEEP,
                                                     .reduce_warps = 4,
                                                     .reduce_stages = RDI_KEEP,
                                                     .reduce_waves = RDI_KEEP,
                                                     .splits = RDI_KEEP,
                                                     .block_m = RDI_KEEP,
                                                     .programs = RDI_KEEP,
                                                     .rule = "decode_geometry: 16-bit KV constants"};

static const rdi_aiter_decode KEEP_ALL = {
    RDI_KEEP, RDI_KEEP, RDI_KEEP, RDI_KEEP,
    RDI_KEEP, RDI_KEEP, RDI_KEEP, RDI_KEEP,
    RDI_KEEP, RDI_KEEP, RDI_KEEP, "decode_geometry: queries or keys are not fp8, left as they were"};

// A verify pass fills 52 to 64 rows of a 64-row block (80% and up): one wide block then serves all its queries and reads
// the keys once. Worth 2.03 to 2.11 times at 32K..128K; at 36 rows (width 6, 6 heads a KV head) it was 20% slower. 66 rows
// (width 11) do not fit.
enum { WIDE_ROWS_MIN = 52, WIDE_ROWS = 64, TUNED_HEAD = 256 };

rdi_aiter_decode rdi_aiter_decode_geometry(const rdi_aiter_decode_question *q) {
    if (!q->kv_fp8 && q->kv_16bit) return WIDE_TYPE_CONSTANTS;
    if (!q->q_fp8 || !q->kv_fp8) return KEEP_ALL;
    rdi_aiter_decode geometry = FP8_CONSTANTS;
    bool readable = q->tokens > 0 && q->seqs > 0 && q->queries_per_kv > 0 && q->kv_heads > 0 &&
                    q->max_seqlen_k > 0 && q->num_2d_programs > 0;
    // Only head 256 was tuned, and only where some sequence brings more than one token.
    if (q->head_size != TUNED_HEAD || q->all_decode || !readable) return geometry;
    geometry.warps = 2;
    geometry.programs = q->num_2d_programs;
    geometry.rule = "decode_geometry: verify pass";
    int64_t rows = rdi_ceil_div(q->tokens, q->seqs) * q->queries_per_kv;
    if (rows >= WIDE_ROWS_MIN && rows <= WIDE_ROWS) {
        int64_t queries_per_block = WIDE_ROWS / q->queries_per_kv;
        geometry.block_m = WIDE_ROWS;
        geometry.tile = geometry.reduce_tile = 32;
        geometry.warps = 4;
        geometry.programs = (q->tokens / queries_per_block + q->seqs) * q->kv_heads;
        geometry.rule = "decode_geometry: verify pass, wide block";
    }
    // Sized from the tile and grid that are launched, never from the model's longest context: a count frozen at graph
    // capture lost 1.35 to 1.80 times.
    const char *split_rule;
    geometry.splits = rdi_aiter_split_count(q->max_seqlen_k, geometry.tile, geometry.programs, &split_rule);
    return geometry;
}
