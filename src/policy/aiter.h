// SPDX-License-Identifier: Apache-2.0
// The original dispatcher's tuned attention table for AITER's Triton kernels on gfx1201: it serves the AITER hook. For our
// own kernels it is a hypothesis, not a law; they have their own partition.
//
// Fields of -1 mean "keeps what the caller had".
#ifndef RDI_AITER_H
#define RDI_AITER_H

#include "base/base.h"

enum { RDI_KEEP = -1 };

// ---- split count (aiter_split.c) ----
enum { RDI_AITER_SPLITS_MIN = 4, RDI_AITER_SPLITS_MAX = 128 };
int64_t rdi_aiter_split_count(int64_t kv_tokens, int64_t tile, int64_t programs, const char **rule);

// ---- decode geometry (aiter_geometry.c) ----
typedef struct rdi_aiter_decode_question {
    int64_t head_size, tokens, seqs, queries_per_kv, kv_heads, max_seqlen_k, num_2d_programs;
    bool all_decode; // one query token a sequence
    bool q_fp8, kv_fp8, kv_16bit;
} rdi_aiter_decode_question;
typedef struct rdi_aiter_decode {
    int64_t tile, warps, stages, waves;
    int64_t reduce_tile, reduce_warps, reduce_stages, reduce_waves;
    int64_t splits, block_m, programs; // programs: what the split count saw
    const char *rule;
} rdi_aiter_decode;
rdi_aiter_decode rdi_aiter_decode_geometry(const rdi_aiter_decode_question *question);

// ---- prefill (aiter_prefill.c) ----
typedef struct rdi_aiter_prefill_question {
    int64_t head_size, max_seqlen_q, queries_per_kv;
    bool kv_16bit;
} rdi_aiter_prefill_question;
typedef struct rdi_aiter_prefill {
    int64_t tile, block_m, warps, stages, waves, block_q;
    const char *rule;
} rdi_aiter_prefill;
rdi_aiter_prefill rdi_aiter_prefill_config(const rdi_aiter_prefill_question *question);

#endif // RDI_AITER_H
