// SPDX-License-Identifier: Apache-2.0
// radiance check: one call of an op from host operands. On the CPU as it stands; on a card every operand is copied there
// between guard bytes, and what the op wrote is copied back.
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(type_, member_) offsetof(type_, member_)
static rd_status without_ws(rd_status (*run)(const rd_plan *, const void *, rd_stream), const rd_plan *plan,
                            const void *args, void *ws, size_t *bytes, rd_stream stream) {
    if (ws) return run(plan, args, stream);
    *bytes = 0;
    return RD_OK;
}
#define WITH_WS(op_)                                                                                         \
    static rd_status run_##op_(const rd_plan *plan, const void *args, void *ws, size_t *bytes,               \
                               rd_stream stream) {                                                           \
        return rd_##op_##_run(plan, args, ws, bytes, stream);                                                \
    }
#define NO_WS(op_)                                                                                           \
    static rd_status bare_##op_(const rd_plan *plan, const void *args, rd_stream stream) {                   \
        return rd_##op_##_run(plan, args, stream);                                                           \
    }                                                                                                        \
    static rd_status run_##op_(const rd_plan *plan, const void *args, void *ws, size_t *bytes,               \
                               rd_stream stream) {                                                           \
        return without_ws(bare_##op_, plan, args, ws, bytes, stream);                                        \
    }
WITH_WS(gemm)
WITH_WS(attn)
WITH_WS(quant)
WITH_WS(sample)
NO_WS(rmsnorm)
NO_WS(rope)
NO_WS(act_mul)
NO_WS(kv_write)
NO_WS(embed)
static rd_status bare_rope_kv_write(const rd_plan *plan, const void *args, rd_stream stream) {
    const check_rope_kv_write_args *a = args;
    return rd_rope_kv_write_run(plan, &a->rope, &a->kv, stream);
}
static rd_status run_rope_kv_write(const rd_plan *plan, const void *args, void *ws, size_t *bytes,
                                   rd_stream stream) {
    return without_ws(bare_rope_kv_write, plan, args, ws, bytes, stream);
}

#define OP(name_, writes_, count_, ...)                                                                      \
    const check_op check_op_##name_ = {                                                                      \
        run_##name_, sizeof(rd_##name_##_args), writes_, count_, {__VA_ARGS__}};
#define G(member_) AT(rd_gemm_args, member_)
OP(gemm, 1u << 5, 6, G(a), G(a_scale), G(w), G(w_scale), G(bias), G(c))
#define Q(member_) AT(rd_quant_args, member_)
OP(quant, 7u << 3, 6, Q(x), Q(up), Q(norm_weight), Q(residual), Q(q), Q(q_scale))
#define A(member_) AT(rd_attn_args, member_)
OP(attn, 3u << 9, 11, A(q), A(k_cache), A(v_cache), A(k_scale), A(v_scale), A(block_table), A(kv_lens),
   A(q_starts), A(sinks), A(out), A(out_scale))
#define N(member_) AT(rd_rmsnorm_args, member_)
OP(rmsnorm, 3u << 2, 4, N(x), N(weight), N(residual), N(y))
#define R(member_) AT(rd_rope_args, member_)
OP(rope, 3u, 6, R(q), R(k), R(positions), R(inv_freq), R(q_norm), R(k_norm))
#define M(member_) AT(rd_act_mul_args, member_)
OP(act_mul, 1u << 2, 3, M(gate), M(up), M(y))
#define K(member_) AT(rd_kv_write_args, member_)
OP(kv_write, 3u << 2, 7, K(k), K(v), K(k_cache), K(v_cache), K(k_scale), K(v_scale), K(slots))
#define H(member_) AT(check_rope_kv_write_args, member_)
const check_op check_op_rope_kv_write = {run_rope_kv_write,
                                         sizeof(check_rope_kv_write_args),
                                         1u | 3u << 7,
                                         12,
                                         {H(rope.q), H(rope.k), H(rope.positions), H(rope.inv_freq),
                                          H(rope.q_norm), H(rope.k_norm), H(kv.v), H(kv.k_cache),
                                          H(kv.v_cache), H(kv.k_scale), H(kv.v_scale), H(kv.slots)}};
#define E(member_) AT(rd_embed_args, member_)
OP(embed, 1u << 2, 3, E(table), E(ids), E(y))
#define S(member_) AT(rd_sample_args, member_)
OP(sample, 1u << 1, 2, S(logits), S(ids))

const check_op *check_op_of(const char *op) {
    static const struct {
        const char *op;
        const check_op *calls;
    } known[] = {{"quant_fp8", &check_op_quant},
                 {"rmsnorm", &check_op_rmsnorm},
                 {"rope", &check_op_rope},
                 {"act_mul", &check_op_act_mul},
                 {"kv_write", &check_op_kv_write},
                 {"rope_kv_write", &check_op_rope_kv_write},
                 {"embed", &check_op_embed},
                 {"sample", &check_op_sample},
                 {"gemm_fp8block", &check_op_gemm},
                 {"gemm_bf16", &check_op_gemm},
                 {"gemm_fp8block_w8a16", &check_op_gemm},
                 {"attn_prefill", &check_op_attn},
                 {"attn_decode", &check_op_attn}};
    for (int i = 0; i < CLI_COUNT(known); i++)
        if (!strcmp(known[i].op, op)) return known[i].calls;
    return NULL;
}

// ---- a buffer on the card between guards ------------------------------------------------------------------------------
enum { GUARD_BYTES = 256, GUARD = 0xa5 };
typedef struct staged {
    uint8_t *base; // on the card
    void *host;
    size_t bytes, tail_bytes;
    bool written;
} staged;
typedef struct stage {
    rd_ctx *ctx;
    staged at[CHECK_TENSORS + 2];
    int count;
    bool simulated;
} stage;

// Bytes from the first to the last element; at least the dense size, because token-ordered caches lie in groups.
size_t check_span_bytes(const rd_tensor *t) {
    int64_t last = 0, elems = 1;
    for (int32_t axis = 0; axis < t->rank; axis++) {
        last += (t->shape[axis] - 1) * t->stride[axis];
        elems *= t->shape[axis];
    }
    return (size_t)(last + 1 > elems ? last + 1 : elems) * rd_dtype_bytes(t->dtype);
}

static rd_status put(stage *s, void *host, size_t bytes, bool written, void **there) {
    staged *to = &s->at[s->count];
    // The simulator faults at the last byte of an allocation, on reads too: there the operand ends the allocation.
    *to = (staged){
        .host = host, .bytes = bytes, .written = written, .tail_bytes = s->simulated ? 0 : GUARD_BYTES};
    size_t whole = GUARD_BYTES + bytes + to->tail_bytes;
    rd_status status = rd_memory_alloc(s->ctx, whole, (void **)&to->base);
    if (status != RD_OK) return status;
    s->count++;
    status = rd_memory_set(s->ctx, to->base, GUARD, whole, NULL);
    if (status == RD_OK && host)
        status = rd_memory_copy(s->ctx, to->base + GUARD_BYTES, host, bytes, RD_COPY_TO_DEVICE, NULL);
    if (status == RD_OK) status = rd_stream_sync(s->ctx, NULL);
    *there = to->base + GUARD_BYTES;
    return status;
}

static rd_status check_guard(stage *s, const staged *from, size_t offset, size_t bytes, const char *side) {
    uint8_t guard[GUARD_BYTES];
    rd_status status =
        bytes ? rd_memory_copy(s->ctx, guard, from->base + offset, bytes, RD_COPY_TO_HOST, NULL) : RD_OK;
    if (status == RD_OK) status = rd_stream_sync(s->ctx, NULL);
    for (size_t i = 0; status == RD_OK && i < bytes; i++)
        if (guard[i] != GUARD)
            return cli_error(RD_E_INTERNAL, "a byte %s operand %d was overwritten", side,
                             (int)(from - s->at));
    return status;
}

static rd_status take_back(stage *s) {
    rd_status status = rd_stream_sync(s->ctx, NULL);
    for (int i = 0; i < s->count && status == RD_OK; i++) {
        const staged *from = &s->at[i];
        status = check_guard(s, from, 0, GUARD_BYTES, "before");
        if (status == RD_OK)
            status = check_guard(s, from, GUARD_BYTES + from->bytes, from->tail_bytes, "behind");
        if (status == RD_OK && from->written)
            status = rd_memory_copy(s->ctx, from->host, from->base + GUARD_BYTES, from->bytes,
                                    RD_COPY_TO_HOST, NULL);
        if (status == RD_OK) status = rd_stream_sync(s->ctx, NULL);
    }
    return status;
}

static rd_status stage_operands(stage *s, const check_op *op, char *args) {
    for (int i = 0; i < op->count; i++) {
        rd_tensor *tensor = (rd_tensor *)(void *)(args + op->tensor[i]);
        if (!tensor->data) continue;
        rd_status status = put(s, tensor->data, check_span_bytes(tensor), op->writes >> i & 1, &tensor->data);
        if (status != RD_OK) return status;
        tensor->device = rd_ctx_device_number(s->ctx);
    }
    if (op != &check_op_sample) return RD_OK;
    rd_sample_args *sample = (rd_sample_args *)(void *)args;
    return put(s, (void *)(uintptr_t)sample->rows, (size_t)sample->logits.shape[0] * sizeof(rd_sample_row),
               false, (void **)(uintptr_t)&sample->rows);
}

static rd_status run_on_card(rd_ctx *ctx, const check_op *op, const rd_plan *plan, const void *args) {
    _Alignas(16) char there[CHECK_ARGS_BYTES];
    memcpy(there, args, op->bytes);
    rd_device_info info = {.struct_size = sizeof info};
    rd_status status = rd_device_get_info(rd_ctx_device(ctx), &info);
    stage s = {.ctx = ctx, .simulated = !strncmp(info.name, "sim:", 4)};
    if (status == RD_OK) status = stage_operands(&s, op, there);
    size_t bytes = 0;
    void *ws = NULL;
    if (status == RD_OK) status = op->run(plan, there, NULL, &bytes, NULL);
    if (status == RD_OK) status = put(&s, NULL, bytes + 1, false, &ws);
    if (status == RD_OK) status = op->run(plan, there, ws, &bytes, NULL);
    if (status == RD_OK) status = take_back(&s);
    for (int i = 0; i < s.count; i++) {
        rd_status freed = rd_memory_free(ctx, s.at[i].base);
        if (status == RD_OK) status = freed;
    }
    return status;
}

rd_status check_call(rd_ctx *ctx, const check_op *op, const rd_plan *plan, const void *args) {
    if (rd_ctx_device_number(ctx)) return run_on_card(ctx, op, plan, args);
    size_t bytes = 0;
    rd_status status = op->run(plan, args, NULL, &bytes, NULL);
    if (status != RD_OK) return status;
    void *ws = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!ws) return RD_E_NOMEM;
    status = op->run(plan, args, ws, &bytes, NULL);
    free(ws);
    return status;
}
