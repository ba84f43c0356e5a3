// SPDX-License-Identifier: Apache-2.0
// Configuration of AITER's prefill attention. One entry per head size, never unified: 32 rows gain a lot at head 512 and
// lose at head 256.
#include "policy/aiter.h"

enum { LONG_PREFILL = 256, WIDEST_HEAD = 512 };

// Head 512 is bound by occupancy: 8 query rows a warp is the optimum. 32 rows on 4 warps: time to first token -30% at 32K,
// -38% at 64K, -46% at 120K; 64 rows on 8 warps gave -27% where those gave -30%. Head 256 keeps its 64 rows: forced to 32
// it lost 8% at 32K and 14% at 64K.
rdi_aiter_prefill rdi_aiter_prefill_config(const rdi_aiter_prefill_question *q) {
    rdi_aiter_prefill config = {RDI_KEEP,
                                RDI_KEEP,
                                RDI_KEEP,
                                RDI_KEEP,
                                RDI_KEEP,
                                RDI_KEEP,
                                "prefill_config: short queries, left as they were"};
    if (q->kv_16bit) return (rdi_aiter_prefill){16, RDI_KEEP, 4, 1, 1, RDI_KEEP, "prefill_config: 16-bit KV"};
    if (q->max_seqlen_q < LONG_PREFILL) return config;
    config.tile = 16;
    config.waves = 1;
    config.rule = "prefill_config: long queries over 8-bit KV";
    if (q->head_size != WIDEST_HEAD) return config;
    config.block_m = 32;
    config.warps = 4;
    config.block_q = rdi_max(1, 32 / q->queries_per_kv);
    config.rule = "prefill_config: long queries over 8-bit KV, head 512";
    return config;
}
