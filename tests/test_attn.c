// SPDX-License-Identifier: Apache-2.0
// labels: threads
// Every attention row against the oracle, and the order class: the same bits whatever the instruction set, threads, batch,
// width, cache layout and block size.
#include "attn_case.h"
#include "support/sparse.h"

#include "kernels/attn/lanes_exp2.h"
#include "kernels/attn/partition.h"

static void compare_bits(const attn_case *c, const void *a, const void *b, const char *what) {
    for (int64_t t = 0; t < c->args.tokens; t++)
        for (int64_t h = 0; h < c->args.q_heads; h++)
            for (int64_t d = 0; d < c->args.head_dim; d++)
                if (!same_bits(c->args.out_dtype, a, b, case_out_at(c, t, h, d)))
                    fail_msg("%s: token %lld head %lld dim %lld: %a and %a", what, (long long)t, (long long)h,
                             (long long)d,
                             (double)rdi_load_f32(a, c->args.out_dtype, case_out_at(c, t, h, d)),
                             (double)rdi_load_f32(b, c->args.out_dtype, case_out_at(c, t, h, d)));
}

// Judges `samples` random (token, head) rows of an output, the first and last of each sequence always among them.
static void judge(const attn_case *c, const void *out, bool reference, int samples, uint64_t *rng,
                  const char *what) {
    oracle_row *o = malloc(sizeof *o);
    for (int s = 0; s < c->shape.seqs; s++)
        for (int i = 0; i < samples && c->shape.q_len[s] > 0; i++) {
            int64_t token = i == 0   ? 0
                            : i == 1 ? c->shape.q_len[s] - 1
                                     : (int64_t)(random_next(rng) % (uint64_t)c->shape.q_len[s]);
            int64_t head = (int64_t)(random_next(rng) % (uint64_t)c->args.q_heads);
            oracle_attend(c, s, token, head, o);
            for (int64_t d = 0; d < c->args.head_dim; d++) {
                double seen = (double)rdi_load_f32(out, c->args.out_dtype,
                                                   case_out_at(c, c->q_starts[s] + token, head, d));
                double bound = oracle_bound(c, o, d, reference);
                if (!(fabs(seen - o->out[d]) <= bound))
                    fail_msg("%s: seq %d token %lld head %lld dim %lld: %.9g, needs %.9g +- %.3g", what, s,
                             (long long)token, (long long)head, (long long)d, seen, o->out[d], bound);
            }
        }
    free(o);
}

// Runs every row that this machine has: the first is judged, the others must give its bits; the reference is judged.
// slow: the portable and reference rows too.
static void check_case(attn_case *c, const char *op, int threads, bool slow, uint64_t *rng) {
    void *first = NULL;
    const rdi_row *row;
    for (int i = 0; (row = row_at(op, i)); i++) {
        bool portable = row->isa == RDI_ISA_NONE;
        if (portable && !slow) continue;
        void *out = case_run(c, row, row->info.is_reference ? 1 : threads);
        if (row->info.is_reference || !first) judge(c, out, row->info.is_reference, 5, rng, row->info.name);
        if (!row->info.is_reference && first) compare_bits(c, first, out, row->info.name);
        if (!first && !row->info.is_reference)
            first = out;
        else
            free(out);
    }
    free(first);
}

static attn_shape plain_shape(int q_heads, int kv_heads, int head_dim, int block_tokens) {
    return (attn_shape){.seqs = 1,
                        .q_len = {1},
                        .kv_len = {70},
                        .q_heads = q_heads,
                        .kv_heads = kv_heads,
                        .head_dim = head_dim,
                        .block_tokens = block_tokens,
                        .scales = true,
                        .token_order = true,
                        .q_dtype = RD_DTYPE_BF16,
                        .kv_dtype = RD_DTYPE_E4M3,
                        .out_dtype = RD_DTYPE_F32};
}

static void pick_features(attn_shape *s, uint64_t *rng) {
    static const int windows[] = {0, 64, 128, 256};
    uint64_t bits = random_next(rng);
    s->window = windows[bits & 3];
    s->softcap = bits >> 2 & 1 ? 50.0f : 0;
    s->sinks = bits >> 3 & 1;
    s->scales = bits >> 4 & 1;
    s->token_order = bits >> 5 & 1;
    s->v_transposed = (bits >> 6 & 3) == 0;
    s->kv_dtype = bits >> 8 & 1 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
    s->q_dtype = bits >> 9 & 1 ? RD_DTYPE_BF16 : RD_DTYPE_F32;
    s->out_dtype = bits >> 10 & 1 ? RD_DTYPE_BF16 : RD_DTYPE_F32;
}

// The field's grid (heads, sizes, blocks, mixed batches), features drawn at random.
static void test_attn_grid(void **state) {
    (void)state;
    static const int heads[][2] = {{4, 4}, {8, 2}, {9, 3}, {5, 1}, {6, 1}},
                     dims[] = {64, 80, 96, 128, 256, 512};
    static const int blocks[] = {16, 64, 128};
    uint64_t rng = fresh_seed("test_attn_grid");
    int number = 0;
    for (size_t h = 0; h < RDI_COUNT(heads); h++)
        for (size_t d = 0; d < RDI_COUNT(dims); d++) {
            if (SPARSE_SKIPS(number++)) continue;
            attn_shape s = plain_shape(heads[h][0], heads[h][1], dims[d], blocks[random_next(&rng) % 3]);
            s.seqs = 3;
            s.q_len[0] = 1, s.q_len[1] = 5, s.q_len[2] = dims[d] > 128 ? 20 : 129;
            s.kv_len[0] = 1328, s.kv_len[1] = 18, s.kv_len[2] = 463;
            pick_features(&s, &rng);
            attn_case *c = case_new(&s, &rng);
            check_case(c, "attn_prefill", 2, dims[d] <= 80, &rng);
            case_free(c);
            s.seqs = 4; // decode and verify steps of every width up to 17
            for (int i = 0; i < 4; i++) {
                s.q_len[i] = 1 + (int)(random_next(&rng) % 17);
                s.kv_len[i] = s.q_len[i] + (int)(random_next(&rng) % 700);
            }
            pick_features(&s, &rng);
            c = case_new(&s, &rng);
            check_case(c, "attn_decode", 2, dims[d] <= 80, &rng);
            case_free(c);
        }
}

// Head sizes beyond the fast rows' go to the reference alone.
static void test_attn_reference_takes_any_head_size(void **state) {
    (void)state;
    uint64_t rng = fresh_seed("test_attn_reference_takes_any_head_size");
    static const int dims[] = {1, 7, 72, 100};
    for (size_t i = 0; i < RDI_COUNT(dims); i++) {
        attn_shape s = plain_shape(3, 1, dims[i], 5);
        s.token_order = false;
        attn_case *c = case_new(&s, &rng);
        void *out = case_run(c, reference_of("attn_decode"), 2);
        judge(c, out, true, 3, &rng, "attn_decode_cpu_ref");
        free(out);
        case_free(c);
    }
}

// ---- order class ------------------------------------------------------------------------------------------------------
// One sequence of 17 query tokens, then the same tokens in calls of every width, alone and behind another sequence: rows at
// equal positions over equal keys must have equal bits. The smaller calls reuse the big case's cache.
static void run_width(attn_case *c, const rdi_row *row, int first, int width, int threads,
                      const uint8_t *whole) {
    attn_case part = *c;
    int last = first + width;
    part.kv_lens[0] = c->kv_lens[0] - c->shape.q_len[0] + last;
    part.q_starts[0] = first, part.q_starts[1] = last;
    part.args.kv_lens = part.kv_lens, part.args.q_starts = part.q_starts;
    uint8_t *out = case_run(&part, row, threads);
    for (int64_t t = first; t < last; t++)
        for (int64_t h = 0; h < c->args.q_heads; h++)
            for (int64_t d = 0; d < c->args.head_dim; d++)
                if (!same_bits(c->args.out_dtype, whole, out, case_out_at(c, t, h, d)))
                    fail_msg("%s: width %d first %d: token %lld head %lld dim %lld differs", row->info.name,
                             width, first, (long long)t, (long long)h, (long long)d);
    free(out);
}

static void check_widths(int q_heads, int kv_heads, int head_dim, int kv_len, uint64_t *rng) {
    attn_shape s = plain_shape(q_heads, kv_heads, head_dim, 16);
    pick_features(&s, rng);
    s.q_len[0] = 17, s.kv_len[0] = kv_len;
    s.out_dtype = RD_DTYPE_F32;
    attn_case *c = case_new(&s, rng);
    const rdi_row *row;
    for (int i = 0; (row = row_at("attn_decode", i)); i++) {
        if (row->info.is_reference || (row->isa == RDI_ISA_NONE && head_dim > 64)) continue;
        uint8_t *whole = case_run(c, row, 1);
        for (int width = 1; width <= 17; width++) {
            run_width(c, row, 17 - width, width, 1 + width % 3, whole);
            run_width(c, row, 0, width, 1 + width % 2, whole);
        }
        uint8_t *prefill = case_run(c, row_at("attn_prefill", i), 2);
        compare_bits(c, whole, prefill, "prefill against decode");
        free(prefill), free(whole);
    }
    case_free(c);
}
static void
test_attn_bug_28_same_bits_at_every_width(void **state) { // bug case 28: verify widths must not differ
    (void)state;
    uint64_t rng = fresh_seed("test_attn_bug_28_same_bits_at_every_width");
    check_widths(9, 3, 64, 600, &rng);
    check_widths(8, 2, 128, 300, &rng);
    check_widths(6, 1, 80, 257, &rng);
    check_widths(2, 2, 256, 1040, &rng);
}

// A row's bits do not depend on the other sequences, nor on how many threads split its chunks.
static void test_attn_same_bits_in_any_batch(void **state) {
    (void)state;
    uint64_t rng = fresh_seed("test_attn_same_bits_in_any_batch");
    attn_shape s = plain_shape(6, 2, 64, 64);
    pick_features(&s, &rng);
    s.seqs = 5;
    static const int q_len[] = {1, 40, 3, 0, 17}, kv_len[] = {9000, 40, 1025, 64, 513};
    memcpy(s.q_len, q_len, sizeof q_len), memcpy(s.kv_len, kv_len, sizeof kv_len);
    attn_case *c = case_new(&s, &rng);
    const rdi_row *row;
    for (int i = 0; (row = row_at("attn_decode", i)); i++) {
        if (row->info.is_reference) continue;
        uint8_t *whole = case_run(c, row, 1);
        for (int threads = 2; threads <= 9; threads += threads < 4 ? 1 : 5) {
            uint8_t *out = case_run(c, row, threads);
            compare_bits(c, whole, out, "threads");
            free(out);
        }
        for (int seq = 0; seq < s.seqs; seq++) {
            attn_case part = *c;
            part.kv_lens[0] = c->kv_lens[seq];
            part.args.seqs = 1, part.args.kv_lens = part.kv_lens, part.args.q_starts = c->q_starts + seq;
            part.args.block_table = c->table + seq * c->blocks_per_seq;
            uint8_t *out = case_run(&part, row, 3);
            for (int64_t at = c->q_starts[seq] * c->args.out_stride_token;
                 at < c->q_starts[seq + 1] * c->args.out_stride_token; at++)
                assert_true(same_bits(c->args.out_dtype, whole, out, at));
            free(out);
        }
        free(whole);
    }
    case_free(c);
}

// The same keys in another layout and block size: same bits.
static void test_attn_same_bits_in_any_layout(void **state) {
    (void)state;
    uint64_t seed = fresh_seed("test_attn_same_bits_in_any_layout");
    for (int kind = 0; kind < 2; kind++) {
        const rdi_row *row = row_at("attn_decode", 0);
        void *first = NULL;
        attn_case *kept = NULL;
        for (int layout = 0; layout < 6; layout++) {
            static const int blocks[] = {16, 64, 128};
            uint64_t rng = 0; // the table's permutation draws too, so values come from a second stream
            attn_shape s = plain_shape(4, 2, 64, blocks[layout % 3]);
            s.q_len[0] = 7, s.kv_len[0] = 400, s.window = kind ? 100 : 0;
            s.kv_dtype = kind ? RD_DTYPE_BF16 : RD_DTYPE_E4M3;
            s.token_order = layout < 3, s.v_transposed = layout == 5;
            rng = seed;
            attn_case *c = case_new(&s, &rng);
            if (kept) { // give it the first case's numbers, in its own layout
                memcpy(c->q.data, kept->q.data, c->q.bytes);
                uint64_t per_key = (uint64_t)(s.kv_heads * s.head_dim);
                memcpy(c->k_scale, kept->k_scale, (size_t)s.kv_heads * 4),
                    memcpy(c->v_scale, kept->v_scale, (size_t)s.kv_heads * 4);
                for (int64_t p = s.window ? s.kv_len[0] - 7 - s.window + 1 : 0; p < s.kv_len[0]; p++)
                    for (uint64_t i = 0; i < per_key; i++) {
                        int64_t block = c->table[p / s.block_tokens], token = p % s.block_tokens;
                        int64_t h = (int64_t)i / s.head_dim, d = (int64_t)i % s.head_dim;
                        case_put(c->k.data, s.kv_dtype, case_key_at(&c->args, block, token, h, d),
                                 kept->k_codes[0][(uint64_t)p * per_key + i]);
                        case_put(c->v.data, s.kv_dtype, case_value_at(&c->args, block, token, h, d),
                                 kept->v_codes[0][(uint64_t)p * per_key + i]);
                    }
            }
            void *out = case_run(c, row, 2);
            if (first) compare_bits(c, first, out, "layout");
            if (!kept)
                kept = c, first = out;
            else
                free(out), case_free(c);
        }
        free(first), case_free(kept);
    }
}

// ---- named cases ----------------------------------------------------------------------------------------------------------
static void check_one(attn_shape s, const char *op, const char *name) {
    uint64_t rng = fresh_seed(name);
    attn_case *c = case_new(&s, &rng);
    check_case(c, op, 2, true, &rng);
    case_free(c);
}

static void test_attn_bug_16_one_token_prefill(
    void **state) { // bug case 16: a prefill of one token, with and without a past
    (void)state;
    attn_shape s = plain_shape(9, 3, 64, 64);
    s.kv_len[0] = 1;
    check_one(s, "attn_prefill", "test_attn_bug_16_one_token_prefill");
    s.kv_len[0] = 129;
    check_one(s, "attn_prefill", "test_attn_bug_16_one_token_prefill");
}

static void
test_attn_bug_19_rows_above_64_at_gqa_6(void **state) { // bug case 19: 9, 10, 11 tokens times 6 heads
    (void)state;
    for (int q_len = 9; q_len <= 11; q_len++) {
        attn_shape s = plain_shape(12, 2, 128, 16);
        s.q_len[0] = q_len, s.kv_len[0] = 200;
        check_one(s, "attn_decode", "test_attn_bug_19_rows_above_64_at_gqa_6");
    }
    attn_shape wide = plain_shape(128, 1, 64, 16); // more heads than rows of an item
    wide.q_len[0] = 2, wide.kv_len[0] = 70;
    check_one(wide, "attn_decode", "test_attn_bug_19_rows_above_64_at_gqa_6");
}

static void test_attn_bug_35_rows_before_the_first_key(
    void **state) { // bug case 35: nothing visible gives zeros, not NaN
    (void)state;
    attn_shape s = plain_shape(4, 2, 64, 16);
    s.seqs = 3;
    s.q_len[0] = 8, s.kv_len[0] = 3; // five rows see nothing
    s.q_len[1] = 2, s.kv_len[1] = 0; // none sees anything
    s.q_len[2] = 1, s.kv_len[2] = 40;
    for (int sinks = 0; sinks < 2; sinks++) {
        s.sinks = sinks;
        check_one(s, "attn_decode", "test_attn_bug_35_rows_before_the_first_key");
    }
    uint64_t rng = fresh_seed("test_attn_bug_35_rows_before_the_first_key");
    attn_case *c = case_new(&s, &rng);
    const rdi_row *row;
    for (int i = 0; (row = row_at("attn_decode", i)); i++) {
        float *out = case_run(c, row, 2);
        for (int64_t d = 0; d < 64; d++)
            assert_true(out[case_out_at(c, 0, 1, d)] == 0 && out[case_out_at(c, 9, 3, d)] == 0);
        free(out);
    }
    case_free(c);
}

// Verify rows whose window starts in a later chunk than their neighbours': empty chunks between.
static void test_attn_bug_35_window_across_empty_chunks(void **state) {
    (void)state;
    for (int q_len = 1; q_len <= 17; q_len += 8)
        for (int kv_len = 250; kv_len <= 300; kv_len += 7) {
            attn_shape s = plain_shape(3, 1, 64, 16);
            s.q_len[0] = q_len, s.kv_len[0] = kv_len, s.window = 5;
            check_one(s, "attn_decode", "test_attn_bug_35_window_across_empty_chunks");
        }
}

// A NaN in a visible key or value reaches exactly the rows that see it (bug case 23's kin: pads hold NaN throughout).
static void test_attn_nan_reaches_its_readers_alone(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        uint64_t rng = fresh_seed("test_attn_nan_reaches_its_readers_alone");
        attn_shape s = plain_shape(3, 1, 64, 16);
        s.q_len[0] = 17, s.kv_len[0] = 100;
        s.kv_dtype = kind & 1 ? RD_DTYPE_BF16 : RD_DTYPE_E4M3;
        attn_case *c = case_new(&s, &rng);
        int poisoned = 90, block = c->table[poisoned / 16];
        uint16_t nan = kind & 1 ? 0x7fc0 : kind & 2 ? 0x7f : 0xff;
        if (kind & 2)
            case_put(c->v.data, s.kv_dtype, case_value_at(&c->args, block, poisoned % 16, 0, 11), nan);
        else
            case_put(c->k.data, s.kv_dtype, case_key_at(&c->args, block, poisoned % 16, 0, 11), nan);
        const rdi_row *row;
        for (int i = 0; (row = row_at("attn_decode", i)); i++) {
            float *out = case_run(c, row, 2);
            for (int64_t t = 0; t < 17; t++)
                for (int64_t h = 0; h < 3; h++)
                    for (int64_t d = 0; d < 64; d++) {
                        bool sees = 100 - 17 + t >= poisoned && (!(kind & 2) || d == 11);
                        if (isnan(out[case_out_at(c, t, h, d)]) != sees)
                            fail_msg("%s: kind %d token %d dim %d: NaN %s", row->info.name, kind, (int)t,
                                     (int)d, sees ? "lost" : "leaked");
                    }
            free(out);
        }
        case_free(c);
    }
}

// All 256 fp8 codes through the value path: one key, weight 1, so out = value * v_scale exactly.
static void test_attn_every_fp8_code(void **state) {
    (void)state;
    attn_shape s = plain_shape(1, 1, 256, 16);
    s.kv_len[0] = 1;
    uint64_t rng = fresh_seed("test_attn_every_fp8_code");
    attn_case *c = case_new(&s, &rng);
    for (int code = 0; code < 256; code++)
        case_put(c->v.data, RD_DTYPE_E4M3, case_value_at(&c->args, c->table[0], 0, 0, code), (uint16_t)code);
    c->v_scale[0] = 0.5f;
    const rdi_row *row;
    for (int i = 0; (row = row_at("attn_decode", i)); i++) {
        float *out = case_run(c, row, 1);
        for (int code = 0; code < 256; code++) {
            float seen = out[case_out_at(c, 0, 0, code)], value = rdi_f32_from_e4m3((uint8_t)code);
            if (isnan(value) ? !isnan(seen) : seen != value * 0.5f)
                fail_msg("%s: code %d: %g", row->info.name, code, (double)seen);
        }
        free(out);
    }
    case_free(c);
}
// ... and through the key path: 256 keys with one nonzero dim each, weights told apart by their values.
static void test_attn_every_fp8_code_as_key(void **state) {
    (void)state;
    attn_shape s = plain_shape(1, 1, 64, 64);
    s.kv_len[0] = 254;
    uint64_t rng = fresh_seed("test_attn_every_fp8_code_as_key");
    for (int order = 0; order < 2; order++) {
        s.token_order = order;
        attn_case *c = case_new(&s, &rng);
        for (int p = 0; p < 254; p++) {
            int code = p < 127 ? p : p + 1; // both NaN codes left out
            for (int d = 0; d < 64; d++) {
                c->k_codes[0][p * 64 + d] = d == p % 64 ? (uint16_t)code : 0;
                case_put(c->k.data, RD_DTYPE_E4M3, case_key_at(&c->args, c->table[p / 64], p % 64, 0, d),
                         c->k_codes[0][p * 64 + d]);
            }
        }
        check_case(c, "attn_decode", 1, true, &rng);
        case_free(c);
    }
}

static void test_attn_partition_is_a_partition(void **state) {
    (void)state;
    int64_t previous = -1;
    for (int64_t position = 0; position < 200000; position++) {
        int64_t chunk = rdi_attn_chunk_of(position), begin = rdi_attn_chunk_begin(chunk),
                end = rdi_attn_chunk_begin(chunk + 1);
        assert_true(begin <= position && position < end && begin % 64 == 0);
        assert_true(end - begin >= RDI_ATTN_CHUNK_MIN && end - begin <= RDI_ATTN_CHUNK_MAX);
        assert_true(chunk == previous || (chunk == previous + 1 && position == begin));
        assert_int_equal(rdi_attn_chunk_count(position + 1), chunk + 1);
        previous = chunk;
    }
    assert_int_equal(rdi_attn_chunk_count(0), 0);
}

// The exponential against libm in double: 2^22 steps over the range that the softmax uses, ends and special values.
static void test_attn_exp2_within_3_ulp(void **state) {
    (void)state;
    float lane[16], x[16];
    for (int64_t i = 0; i < (1 << 22); i += 16) {
        for (int l = 0; l < 16; l++) x[l] = -126.0f * (float)(i + l) / (float)(1 << 22);
        v16_store(lane, lanes_exp2(v16_load(x)));
        for (int l = 0; l < 16; l++) {
            double exact = exp2((double)x[l]);
            if (fabs((double)lane[l] - exact) > 3 * 0x1p-23 * exact)
                fail_msg("2^%a = %a, needs %a", (double)x[l], (double)lane[l], exact);
        }
    }
    const float special[16] = {0,         -0.0f, -1,        -126,    -126.5f,    -127,
                               -INFINITY, NAN,   -0x1p-30f, -125.5f, -125.49999f};
    v16_store(lane, lanes_exp2(v16_load(special)));
    assert_true(lane[0] == 1 && lane[1] == 1 && lane[2] == 0.5f && lane[3] == 0x1p-126f);
    assert_true(lane[4] == 0 && lane[5] == 0 && lane[6] == 0 && isnan(lane[7]) && lane[8] == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attn_exp2_within_3_ulp),
        cmocka_unit_test(test_attn_partition_is_a_partition),
        cmocka_unit_test(test_attn_reference_takes_any_head_size),
        cmocka_unit_test(test_attn_bug_16_one_token_prefill),
        cmocka_unit_test(test_attn_bug_19_rows_above_64_at_gqa_6),
        cmocka_unit_test(test_attn_bug_35_rows_before_the_first_key),
        cmocka_unit_test(test_attn_bug_35_window_across_empty_chunks),
        cmocka_unit_test(test_attn_nan_reaches_its_readers_alone),
        cmocka_unit_test(test_attn_every_fp8_code),
        cmocka_unit_test(test_attn_every_fp8_code_as_key),
        cmocka_unit_test(test_attn_bug_28_same_bits_at_every_width),
        cmocka_unit_test(test_attn_same_bits_in_any_batch),
        cmocka_unit_test(test_attn_same_bits_in_any_layout),
        cmocka_unit_test(test_attn_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
