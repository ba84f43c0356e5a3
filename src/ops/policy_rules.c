// SPDX-License-Identifier: Apache-2.0
// The table of rules: names, inputs and outputs as the vector files have them.
#include "ops/policy_call.h"

#include "kernels/attn/partition.h"
#include "policy/aiter.h"
#include "policy/draft.h"
#include "policy/engine_share.h"
#include "policy/gemm_route.h"
#include "policy/lds_fit.h"
#include "policy/reduce_route.h"
#include "policy/sm90a_route.h"

#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

static rd_status eval_gemm_route(const rdi_policy_call *call) {
    rdi_gemm_question question = {.gfx12 = !call->device || !strncmp(call->device->info.arch, "gfx12", 5)};
    int64_t n, k;
    if (rdi_call_has(call, "gfx12")) RDI_TRY(rdi_call_flag(call, "gfx12", &question.gfx12));
    RDI_TRY(rdi_call_flag(call, "preshuffled", &question.preshuffled));
    RDI_TRY(rdi_call_int(call, "M", 1, &question.m));
    RDI_TRY(rdi_call_int(call, "N", 1, &n));
    RDI_TRY(rdi_call_int(call, "K", 1, &k));
    if (question.preshuffled && (n % 16 || k % 32))
        return rdi_fail(RD_E_INVALID,
                        "gemm_route: N=%lld K=%lld preshuffled, needs N %% 16 == 0 and K %% 32 == 0",
                        (long long)n, (long long)k);
    rdi_gemm_route route = rdi_gemm_route_decide(&question);
    rdi_call_put_text(call, "route", rdi_gemm_kind_name(route.kind));
    if (route.kind == RDI_GEMM_PRESHUFFLE) {
        rdi_call_put_int(call, "block_m", route.block_m);
        rdi_call_put_int(call, "block_n", route.block_n);
        rdi_call_put_int(call, "block_k", route.block_k);
        rdi_call_put_int(call, "group_m", route.group_m);
        rdi_call_put_int(call, "warps", route.warps);
        rdi_call_put_int(call, "stages", route.stages);
        rdi_call_put_int(call, "waves_per_eu", route.waves_per_eu);
    }
    rdi_call_put_rule(call, route.rule);
    return RD_OK;
}

static rd_status eval_splitk_guard(const rdi_policy_call *call) {
    int64_t k, wanted;
    RDI_TRY(rdi_call_int(call, "K", 1, &k));
    RDI_TRY(rdi_call_int(call, "wanted", 1, &wanted));
    int64_t splits = rdi_splitk_guard(k, wanted);
    rdi_call_put_int(call, "splits", splits);
    rdi_call_put_rule(call, splits == wanted ? "splitk_guard: no block is cut"
                                             : "splitk_guard: halved until K % (128 * splits) == 0");
    return RD_OK;
}

static rd_status eval_engine_share(const rdi_policy_call *call) {
    int64_t n, k;
    RDI_TRY(rdi_call_int(call, "N", 1, &n));
    RDI_TRY(rdi_call_int(call, "K", 1, &k));
    rdi_engine_share share =
        rdi_engine_share_decide(call->device ? call->device->info.arch : "gfx1201", n, k);
    if (share.rows)
        rdi_call_put_int(call, "rows", share.rows);
    else
        rdi_call_put_text(call, "rows", "all");
    rdi_call_put_rule(call, share.rule);
    return RD_OK;
}

static rd_status eval_sm90a_route(const rdi_policy_call *call) {
    rdi_sm90a_question question = {.op = "gemm_fp8block"};
    if (call->device && strcmp(call->device->info.arch, "sm_90a") != 0)
        return rdi_fail(RD_E_INVALID, "sm90a_route: device=%s, needs an sm_90a one", call->device->info.name);
    const rd_device *device = call->device;
    for (int32_t i = 0; !device; i++) // the rule's own card
        if (!strcmp(rdi_fixture_at(i)->info.name, "h200-sm90a")) device = rdi_fixture_at(i);
    question.multiprocessors = device->info.compute_units;
    question.rates = device->rates;
    if (rdi_call_has(call, "op")) RDI_TRY(rdi_call_word(call, "op", &question.op));
    if (strcmp(question.op, "gemm_fp8block") && strcmp(question.op, "gemm_fp8block_w8a16") &&
        strcmp(question.op, "gemm_bf16"))
        return rdi_fail(RD_E_INVALID,
                        "sm90a_route: op=%.40s, needs one of: gemm_fp8block gemm_fp8block_w8a16 gemm_bf16",
                        question.op);
    RDI_TRY(rdi_call_int(call, "M", 1, &question.m));
    RDI_TRY(rdi_call_int(call, "N", 1, &question.n));
    RDI_TRY(rdi_call_int(call, "K", 1, &question.k));
    const rdi_sm90a_route route = rdi_sm90a_route_decide(&question);
    char text[32];
    rdi_call_put_text(call, "order", route.chunk ? "chunk" : "step");
    snprintf(text, sizeof text, "%.1f", route.step_us);
    rdi_call_put_text(call, "step_us", route.step_us > 0 ? text : "");
    snprintf(text, sizeof text, "%.1f", route.chunk_us);
    rdi_call_put_text(call, "chunk_us", route.chunk_us > 0 ? text : "");
    rdi_call_put_rule(call, route.rule);
    return RD_OK;
}

static rd_status eval_preshuffle_contract(const rdi_policy_call *call) {
    rdi_preshuffle_question question;
    RDI_TRY(rdi_call_flag(call, "block_quant", &question.block_quant));
    RDI_TRY(rdi_call_word(call, "dtype", &question.dtype));
    RDI_TRY(rdi_call_int(call, "rank", 0, &question.rank));
    RDI_TRY(rdi_call_int(call, "N", 1, &question.n));
    RDI_TRY(rdi_call_int(call, "K", 1, &question.k));
    RDI_TRY(rdi_call_int(call, "scale_rows", 0, &question.scale_rows));
    RDI_TRY(rdi_call_int(call, "scale_cols", 0, &question.scale_cols));
    RDI_TRY(rdi_call_flag(call, "packed_4bit", &question.packed_4bit));
    const char *rule;
    rdi_call_put_int(call, "shuffled", rdi_preshuffle_contract(&question, &rule));
    rdi_call_put_rule(call, rule);
    return RD_OK;
}

static rd_status eval_preshuffle_bytes(const rdi_policy_call *call) {
    int64_t rows, columns, row, column;
    RDI_TRY(rdi_call_int(call, "N", 1, &rows));
    RDI_TRY(rdi_call_int(call, "K", 1, &columns));
    RDI_TRY(rdi_call_int(call, "n", 0, &row));
    RDI_TRY(rdi_call_int(call, "k", 0, &column));
    if (row >= rows || column >= columns)
        return rdi_fail(RD_E_INVALID, "preshuffle_bytes: n=%lld k=%lld, needs n < N=%lld and k < K=%lld",
                        (long long)row, (long long)column, (long long)rows, (long long)columns);
    if (rows % 16 || columns % 32)
        return rdi_fail(RD_E_INVALID, "preshuffle_bytes: N=%lld K=%lld, needs N %% 16 == 0 and K %% 32 == 0",
                        (long long)rows, (long long)columns);
    rdi_call_put_int(call, "byte", rdi_preshuffle_byte(columns, row, column));
    rdi_call_put_rule(call, "preshuffle_bytes: (16,16) layout");
    return RD_OK;
}

static rd_status eval_split_count(const rdi_policy_call *call) {
    int64_t kv_tokens, tile, programs;
    RDI_TRY(rdi_call_int(call, "max_seqlen_k", 1, &kv_tokens));
    RDI_TRY(rdi_call_int(call, "tile", 1, &tile));
    RDI_TRY(rdi_call_int(call, "programs", 1, &programs));
    const char *rule;
    rdi_call_put_int(call, "splits", rdi_aiter_split_count(kv_tokens, tile, programs, &rule));
    rdi_call_put_rule(call, rule);
    return RD_OK;
}

static rd_status eval_decode_geometry(const rdi_policy_call *call) {
    rdi_aiter_decode_question q = {.kv_16bit = false};
    RDI_TRY(rdi_call_int(call, "head_size", 1, &q.head_size));
    RDI_TRY(rdi_call_int(call, "tokens", 0, &q.tokens));
    RDI_TRY(rdi_call_int(call, "seqs", 0, &q.seqs));
    RDI_TRY(rdi_call_int(call, "queries_per_kv", 0, &q.queries_per_kv));
    RDI_TRY(rdi_call_int(call, "kv_heads", 0, &q.kv_heads));
    RDI_TRY(rdi_call_flag(call, "all_decode", &q.all_decode));
    RDI_TRY(rdi_call_int(call, "max_seqlen_k", 0, &q.max_seqlen_k));
    RDI_TRY(rdi_call_int(call, "num_2d_programs", 0, &q.num_2d_programs));
    RDI_TRY(rdi_call_flag(call, "q_fp8", &q.q_fp8));
    RDI_TRY(rdi_call_flag(call, "kv_fp8", &q.kv_fp8));
    if (rdi_call_has(call, "kv_16bit")) RDI_TRY(rdi_call_flag(call, "kv_16bit", &q.kv_16bit));
    rdi_aiter_decode geometry = rdi_aiter_decode_geometry(&q);
    rdi_call_put_kept(call, "tile", geometry.tile);
    rdi_call_put_kept(call, "warps", geometry.warps);
    rdi_call_put_kept(call, "stages", geometry.stages);
    rdi_call_put_kept(call, "waves", geometry.waves);
    rdi_call_put_kept(call, "reduce_tile", geometry.reduce_tile);
    rdi_call_put_kept(call, "reduce_warps", geometry.reduce_warps);
    rdi_call_put_kept(call, "reduce_stages", geometry.reduce_stages);
    rdi_call_put_kept(call, "reduce_waves", geometry.reduce_waves);
    rdi_call_put_kept(call, "splits", geometry.splits);
    rdi_call_put_kept(call, "block_m", geometry.block_m);
    rdi_call_put_kept(call, "programs", geometry.programs);
    rdi_call_put_rule(call, geometry.rule);
    return RD_OK;
}

static rd_status eval_prefill_config(const rdi_policy_call *call) {
    rdi_aiter_prefill_question q;
    const char *kv_dtype;
    rd_dtype dtype;
    RDI_TRY(rdi_call_int(call, "head_size", 1, &q.head_size));
    RDI_TRY(rdi_call_int(call, "max_seqlen_q", 1, &q.max_seqlen_q));
    RDI_TRY(rdi_call_int(call, "queries_per_kv", 1, &q.queries_per_kv));
    RDI_TRY(rdi_call_word(call, "kv_dtype", &kv_dtype));
    rd_status status = rdi_dtype_parse("kv_dtype", kv_dtype, &dtype);
    if (status != RD_OK) return rdi_fail_prefix(status, "prefill_config");
    q.kv_16bit = dtype == RD_DTYPE_BF16 || dtype == RD_DTYPE_F16;
    rdi_aiter_prefill config = rdi_aiter_prefill_config(&q);
    rdi_call_put_kept(call, "tile", config.tile);
    rdi_call_put_kept(call, "block_m", config.block_m);
    rdi_call_put_kept(call, "warps", config.warps);
    rdi_call_put_kept(call, "stages", config.stages);
    rdi_call_put_kept(call, "waves", config.waves);
    rdi_call_put_kept(call, "block_q", config.block_q);
    rdi_call_put_rule(call, config.rule);
    return RD_OK;
}

static rd_status eval_lds_fit(const rdi_policy_call *call) {
    int64_t device_bytes = call->device ? call->device->info.lds_bytes : 0;
    rdi_lds_question q = {.lds_bytes = device_bytes ? device_bytes : RDI_LDS_GFX12_BYTES};
    RDI_TRY(rdi_call_int(call, "head_size", 1, &q.head_size));
    RDI_TRY(rdi_call_int(call, "elem_bytes", 1, &q.elem_bytes));
    RDI_TRY(rdi_call_int(call, "tile", 1, &q.tile));
    RDI_TRY(rdi_call_int(call, "stages", 1, &q.stages));
    if (rdi_call_has(call, "lds_bytes")) RDI_TRY(rdi_call_int(call, "lds_bytes", 1, &q.lds_bytes));
    // Factors of at most 2^14 keep the product in 63 bits; no such tile exists.
    if (q.head_size > 16384 || q.elem_bytes > 16384 || q.tile > 16384 || q.stages > 16384)
        return rdi_fail(RD_E_INVALID, "lds_fit: head_size, elem_bytes, tile and stages each need <= 16384");
    rdi_lds_fit fit = rdi_lds_fit_decide(&q);
    rdi_call_put_int(call, "bytes", fit.bytes);
    if (fit.fit_tile) {
        rdi_call_put_int(call, "fit_tile", fit.fit_tile);
        rdi_call_put_int(call, "fit_stages", fit.fit_stages);
        rdi_call_put_int(call, "fit_bytes", fit.fit_bytes);
    }
    rdi_call_put_rule(call, fit.rule);
    return RD_OK;
}

static rd_status eval_draft_depth(const rdi_policy_call *call) {
    rdi_draft_question q = {.tau = 0};
    int64_t continuation[RDI_LIST_MAX], tokens[RDI_LIST_MAX], probability_count;
    double probabilities[RDI_LIST_MAX];
    RDI_TRY(rdi_call_real(call, "tau", 0, 1, &q.tau));
    RDI_TRY(rdi_call_int(call, "cap", 1, &q.cap));
    RDI_TRY(rdi_call_ints(call, "continuation", continuation, &q.continuation_count));
    RDI_TRY(rdi_call_ints(call, "mtp_tokens", tokens, &q.token_count));
    RDI_TRY(rdi_call_reals(call, "probabilities", 0, 1, probabilities, &probability_count));
    if (!q.token_count || probability_count != q.token_count)
        return rdi_fail(RD_E_INVALID,
                        "draft_depth: %lld mtp_tokens and %lld probabilities, needs as many of each, >= 1",
                        (long long)q.token_count, (long long)probability_count);
    q.continuation = continuation;
    q.tokens = tokens;
    q.probabilities = probabilities;
    rdi_draft draft = rdi_draft_depth(&q);
    rdi_call_put_int(call, "last_slot", draft.last_slot);
    rdi_call_put_text(call, "why", rdi_draft_why_name(draft.why));
    rdi_call_put_rule(call, draft.rule);
    return RD_OK;
}

static rd_status eval_draft_cap(const rdi_policy_call *call) {
    int64_t batch;
    RDI_TRY(rdi_call_int(call, "batch", 1, &batch));
    const char *rule;
    rdi_call_put_int(call, "cap", rdi_draft_cap(batch, &rule));
    rdi_call_put_rule(call, rule);
    return RD_OK;
}

static rd_status eval_reduce_route(const rdi_policy_call *call) {
    rdi_reduce_question q = {.cap_bytes = RDI_REDUCE_CAP_BYTES};
    const char *dtype;
    RDI_TRY(rdi_call_int(call, "world_size", 1, &q.world_size));
    RDI_TRY(rdi_call_word(call, "dtype", &dtype));
    RDI_TRY(rdi_dtype_parse("dtype", dtype, &q.dtype));
    RDI_TRY(rdi_call_int(call, "bytes", 1, &q.bytes));
    if (rdi_call_has(call, "cap_bytes")) RDI_TRY(rdi_call_int(call, "cap_bytes", 1, &q.cap_bytes));
    rdi_reduce_route route = rdi_reduce_route_decide(&q);
    rdi_call_put_text(call, "route", route.exact ? "exact" : "vendor");
    rdi_call_put_rule(call, route.rule);
    return RD_OK;
}

// The rule itself stands beside the kernels that must cut at the same places (kernels/attn/partition.h).
static rd_status eval_attn_partition(const rdi_policy_call *call) {
    int64_t kv_tokens;
    RDI_TRY(rdi_call_int(call, "kv_tokens", 0, &kv_tokens));
    int64_t chunks = rdi_attn_chunk_count(kv_tokens);
    rdi_call_put_int(call, "chunks", chunks);
    if (!chunks) {
        rdi_call_put_rule(call, "attn_partition: no keys, no chunk: the state is (-inf, 0)");
        return RD_OK;
    }
    int64_t begin = rdi_attn_chunk_begin(chunks - 1);
    rdi_call_put_int(call, "last_begin", begin);
    rdi_call_put_int(call, "last_tokens", kv_tokens - begin);
    rdi_call_put_int(call, "last_capacity", rdi_attn_chunk_begin(chunks) - begin);
    rdi_call_put_rule(call, "attn_partition: a chunk's bounds are a function of the key's position alone");
    return RD_OK;
}

#define NAMES(...)                                                                                           \
    (const char *const[]) {                                                                                  \
        __VA_ARGS__                                                                                          \
    }
#define NAME_COUNT(...) (int32_t)(sizeof(__VA_ARGS__) / sizeof(const char *))
#define RULE(name_, computes_, inputs_, outputs_)                                                            \
    { {#name_, computes_, NAME_COUNT(inputs_), NAME_COUNT(outputs_), inputs_, outputs_}, eval_##name_ }

static const rdi_policy_rule rules[] = {
    RULE(gemm_route, "kernel of a block-FP8 GEMM and its tile (gfx12: taken from the device when not given)",
         NAMES("gfx12", "preshuffled", "M", "N", "K"),
         NAMES("route", "block_m", "block_n", "block_k", "group_m", "warps", "stages", "waves_per_eu")),
    RULE(splitk_guard, "splits of K that cut no 128-wide scale block", NAMES("K", "wanted"), NAMES("splits")),
    RULE(engine_share, "rows of a block-FP8 GEMM up to which our kernel is used beside an engine's own",
         NAMES("N", "K"), NAMES("rows")),
    RULE(sm90a_route, "order class of a GEMM on Hopper that takes either (op: gemm_fp8block when not given)",
         NAMES("op", "M", "N", "K"), NAMES("order", "step_us", "chunk_us")),
    RULE(preshuffle_contract, "may this weight be preshuffled at load",
         NAMES("block_quant", "dtype", "rank", "N", "K", "scale_rows", "scale_cols", "packed_4bit"),
         NAMES("shuffled")),
    RULE(preshuffle_bytes, "byte of element (n, k) of an [N, K] weight in the (16,16) layout",
         NAMES("N", "K", "n", "k"), NAMES("byte")),
    RULE(decode_geometry, "AITER: launch of split-KV decode (kv_16bit: 0 when not given)",
         NAMES("head_size", "tokens", "seqs", "queries_per_kv", "kv_heads", "all_decode", "max_seqlen_k",
               "num_2d_programs", "q_fp8", "kv_fp8", "kv_16bit"),
         NAMES("tile", "warps", "stages", "waves", "reduce_tile", "reduce_warps", "reduce_stages",
               "reduce_waves", "splits", "block_m", "programs")),
    RULE(split_count, "AITER: pieces that the keys of a decode call are split into",
         NAMES("max_seqlen_k", "tile", "programs"), NAMES("splits")),
    RULE(prefill_config, "AITER: launch of prefill attention",
         NAMES("head_size", "max_seqlen_q", "queries_per_kv", "kv_dtype"),
         NAMES("tile", "block_m", "warps", "stages", "waves", "block_q")),
    RULE(lds_fit,
         "bytes of an attention tile, and the tile that fits (lds_bytes: the device's when not given)",
         NAMES("head_size", "elem_bytes", "tile", "stages", "lds_bytes"),
         NAMES("bytes", "fit_tile", "fit_stages", "fit_bytes")),
    RULE(draft_depth, "slot at which a request stops drafting, and why",
         NAMES("tau", "cap", "continuation", "mtp_tokens", "probabilities"), NAMES("last_slot", "why")),
    RULE(draft_cap, "most draft tokens of a request by batch size", NAMES("batch"), NAMES("cap")),
    RULE(reduce_route, "all-reduce that serves a message (cap_bytes: 48 MiB when not given)",
         NAMES("world_size", "dtype", "bytes", "cap_bytes"), NAMES("route")),
    RULE(attn_partition, "our own kernels: chunks that the keys of a row are cut into", NAMES("kv_tokens"),
         NAMES("chunks", "last_begin", "last_tokens", "last_capacity")),
};

const rdi_policy_rule *rdi_policy_rule_at(int32_t index) {
    return index >= 0 && (size_t)index < RDI_COUNT(rules) ? &rules[index] : NULL;
}
