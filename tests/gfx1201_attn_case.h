// SPDX-License-Identifier: Apache-2.0
// Runs a case of attn_case.h through a gfx1201 row in the simulator, and compares it with the oracle.
#ifndef RD_TEST_GFX1201_ATTN_CASE_H
#define RD_TEST_GFX1201_ATTN_CASE_H

#include "attn_case.h"
#include "gfx1201_sim.h"

static const int head_dims[] = {64, 128, 256, 512};

static inline bool full(void) {
    const char *text = getenv("RADIANCE_TEST_FULL");
    return text && !strcmp(text, "1");
}

// Runs a row into a poisoned output, which it returns (caller frees); pads between rows must stay poison.
static inline void *card_run(attn_case *c, const rdi_row *row) {
    rdi_attn_args a = c->args;
    a.max_q_len = 1, a.max_kv_len = 1;
    for (int s = 0; s < c->shape.seqs; s++) {
        a.max_q_len = rdi_max(a.max_q_len, a.q_starts[s + 1] - a.q_starts[s]);
        a.max_kv_len = rdi_max(a.max_kv_len, a.kv_lens[s]);
    }
    memset(c->out.data, POISON, c->out.bytes);
    size_t seqs = (size_t)a.seqs, kv_heads = (size_t)a.kv_heads;
    const sim_buffer buffers[] = {
        SIM_BUFFER(a, q, c->q.bytes),
        SIM_BUFFER(a, k_cache, c->k.bytes),
        SIM_BUFFER(a, v_cache, c->v.bytes),
        SIM_BUFFER(a, out, c->out.bytes),
        SIM_BUFFER(a, k_scale, kv_heads * sizeof(float)),
        SIM_BUFFER(a, v_scale, kv_heads * sizeof(float)),
        SIM_BUFFER(a, sinks, (size_t)a.q_heads * sizeof(float)),
        SIM_BUFFER(a, block_table, seqs * (size_t)a.block_table_stride * sizeof(int32_t)),
        SIM_BUFFER(a, kv_lens, seqs * sizeof(int32_t)),
        SIM_BUFFER(a, q_starts, (seqs + 1) * sizeof(int32_t))};
    sim_run_mirrored(row, &a, sizeof a, buffers, RDI_COUNT(buffers),
                     row->ws_bytes ? row->ws_bytes(&a, 64) : 0);
    guarded_check(&c->out);
    int64_t row_elems = a.q_heads * a.head_dim, elem = (int64_t)rd_dtype_bytes(a.out_dtype);
    for (int64_t i = 0; i < a.tokens * a.out_stride_token; i++)
        if (i % a.out_stride_token >= row_elems)
            for (int64_t byte = 0; byte < elem; byte++)
                assert_int_equal(((uint8_t *)c->out.data)[i * elem + byte], POISON);
    void *copy = malloc(c->out.bytes + 1);
    assert_non_null(copy);
    return memcpy(copy, c->out.data, c->out.bytes);
}

// Beyond the f32 rows' error (oracle_bound): each weight is narrowed, to f16 towards zero or to bf16 to nearest, and the sum of
// weights is of the narrowed ones, so that numerator and denominator may disagree by twice that. e4m3 keys meet queries of
// two terms, off by 2^-17 of the row's largest element at most.
static inline double card_bound(const attn_case *c, const oracle_row *o, int64_t dim, double q_error) {
    double narrow = c->args.kv_dtype == RD_DTYPE_E4M3 ? 0x1p-10 : 0x1p-8;
    double f32_queries = c->args.q_dtype == RD_DTYPE_F32 ? 0x1p-9 * o->logits : 0;
    return oracle_bound(c, o, dim, false) +
           o->magnitude[dim] * (narrow + 2 * 0.6932 * (q_error + f32_queries));
}

static inline double query_error(const attn_case *c, int64_t token,
                                 int64_t head) { // of a logit, in log2 units
    double top = 0, keys = 0;
    if (c->args.kv_dtype != RD_DTYPE_E4M3) return 0;
    for (int64_t d = 0; d < c->args.head_dim; d++)
        top = fmax(top, fabs((double)rdi_load_f32(c->args.q, c->args.q_dtype,
                                                  token * c->args.q_stride_token +
                                                      head * c->args.q_stride_head + d)));
    keys = 5 * sqrt((double)c->args.head_dim); // generous: |k| of a unit normal row
    double scale = (double)c->args.scale * (c->args.k_scale ? 1.5 : 1.0);
    return top * 0x1p-17 * keys * scale * 1.4427;
}

static inline void compare_to_oracle(attn_case *c, const void *out, const char *row) {
    oracle_row *o = malloc(sizeof *o);
    assert_non_null(o);
    for (int seq = 0; seq < c->shape.seqs; seq++)
        for (int64_t t = 0; t < c->shape.q_len[seq]; t++)
            for (int64_t head = 0; head < c->args.q_heads; head++) {
                oracle_attend(c, seq, t, head, o);
                double q_error = query_error(c, c->q_starts[seq] + t, head);
                for (int64_t d = 0; d < c->args.head_dim; d++) {
                    double got = (double)rdi_load_f32(out, c->args.out_dtype,
                                                      case_out_at(c, c->q_starts[seq] + t, head, d));
                    double allowed = card_bound(c, o, d, q_error);
                    if (!(fabs(got - o->out[d]) <= allowed))
                        fail_msg("%s: head_dim %d gqa %d: sequence %d token %lld head %lld dim %lld: %g, "
                                 "needs %g within %g",
                                 row, c->shape.head_dim, c->shape.q_heads / c->shape.kv_heads, seq,
                                 (long long)t, (long long)head, (long long)d, got, o->out[d], allowed);
                }
            }
    free(o);
}

static inline const char *decode_row(rd_dtype kv) {
    return kv == RD_DTYPE_E4M3 ? "attn_decode_fp8kv_gfx1201" : "attn_decode_bf16kv_gfx1201";
}

static inline const char *prefill_row(rd_dtype kv) {
    return kv == RD_DTYPE_E4M3 ? "attn_prefill_fp8kv_gfx1201" : "attn_prefill_bf16kv_gfx1201";
}

static inline void check_shape(const attn_shape *shape, const char *row, uint64_t *rng) {
    attn_case *c = case_new(shape, rng);
    void *out = card_run(c, gpu_row(row));
    compare_to_oracle(c, out, row);
    free(out);
    case_free(c);
}

#endif // RD_TEST_GFX1201_ATTN_CASE_H
