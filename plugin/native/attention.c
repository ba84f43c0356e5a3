// SPDX-License-Identifier: Apache-2.0
// Paged attention and the cache write on plain tensors: the plan's question is read off the operands.
#include "layer.h"

enum { VERIFY_WIDTH = 17, LONGEST_CHUNK = 1 << 24 }; // attn_decode serves q_len 1..17

rd_status rdt_attn_run(const rd_attn_args *args, int64_t longest, int32_t token_order,
                       const rdt_scratch *scratch, void *stream) {
    bool decode = longest <= VERIFY_WIDTH;
    const rd_param question[] = {RD_INT("head_dim", args->q.shape[2]),
                                 RD_INT("gqa", args->q.shape[1] / args->k_cache.shape[2]),
                                 RD_INT("block_tokens", args->k_cache.shape[1]),
                                 RD_WORD("q_dtype", rd_dtype_name(args->q.dtype)),
                                 RD_WORD("kv_dtype", rd_dtype_name(args->k_cache.dtype)),
                                 RD_WORD("out_dtype", rd_dtype_name(args->out.dtype)),
                                 RD_WORD("k_order", token_order ? "token" : "dim"),
                                 RD_INT("window", args->window > 0),
                                 RD_INT("softcap", args->softcap > 0),
                                 RD_INT("sinks", args->sinks.data != NULL),
                                 RD_INT("causal", 1)};
    const rd_plan *plan;
    rd_status status = rdt_plan(args->q.device, decode ? "attn_decode" : "attn_prefill", question, 11,
                                decode ? VERIFY_WIDTH : LONGEST_CHUNK, &plan);
    size_t bytes = 0;
    if (status == RD_OK) status = rd_attn_run(plan, args, NULL, &bytes, stream);
    if (status != RD_OK) return status;
    void *memory = bytes ? rdt_scratch_get(scratch, bytes) : NULL;
    if (bytes && !memory) return RD_E_NOMEM;
    return rd_attn_run(plan, args, memory, bytes ? &bytes : NULL, stream);
}

rd_status rdt_kv_write_run(const rd_kv_write_args *args, int32_t token_order, void *stream) {
    const rd_param question[] = {RD_INT("head_dim", args->k.shape[2]),
                                 RD_INT("block_tokens", args->k_cache.shape[1]),
                                 RD_WORD("x_dtype", rd_dtype_name(args->k.dtype)),
                                 RD_WORD("kv_dtype", rd_dtype_name(args->k_cache.dtype)),
                                 RD_WORD("k_order", token_order ? "token" : "dim")};
    const rd_plan *plan;
    rd_status status = rdt_plan(args->k.device, "kv_write", question, 5, 0, &plan);
    return status == RD_OK ? rd_kv_write_run(plan, args, stream) : status;
}
