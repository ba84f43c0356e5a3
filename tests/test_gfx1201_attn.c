// SPDX-License-Identifier: Apache-2.0
// The attention rows of gfx1201 in the simulator, all checks on, against the oracle in double of attn_case.h, over heads,
// cache types, GQA ratios, widths, lengths, windows, caps and sinks; and the order class: a row's bits whatever its batch,
// width, tile height, block size and the order in which waves run. RADIANCE_TEST_FULL=1 runs the whole grids.
#include "attn_case.h"
#include "kernels/attn/gfx1201_args.h"
#include "kernels/rows.h"

#include "gfx1201_sim.h"

#include <sys/wait.h>
#include <unistd.h>

static bool full(void) {
    const char *text = getenv("RADIANCE_TEST_FULL");
    return text && !strcmp(text, "1");
}

// Runs a row into a poisoned output, which it returns (caller frees); pads between rows must stay poison.
static void *card_run(attn_case *c, const rdi_row *row) {
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
static double card_bound(const attn_case *c, const oracle_row *o, int64_t dim, double q_error) {
    double narrow = c->args.kv_dtype == RD_DTYPE_E4M3 ? 0x1p-10 : 0x1p-8;
    double f32_queries = c->args.q_dtype == RD_DTYPE_F32 ? 0x1p-9 * o->logits : 0;
    return oracle_bound(c, o, dim, false) +
           o->magnitude[dim] * (narrow + 2 * 0.6932 * (q_error + f32_queries));
}

static double query_error(const attn_case *c, int64_t token, int64_t head) { // of a logit, in log2 units
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

static void compare_to_oracle(attn_case *c, const void *out, const char *row) {
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

static const char *decode_row(rd_dtype kv) {
    return kv == RD_DTYPE_E4M3 ? "attn_decode_fp8kv_gfx1201" : "attn_decode_bf16kv_gfx1201";
}

static const char *prefill_row(rd_dtype kv) {
    return kv == RD_DTYPE_E4M3 ? "attn_prefill_fp8kv_gfx1201" : "attn_prefill_bf16kv_gfx1201";
}

static void check_shape(const attn_shape *shape, const char *row, uint64_t *rng) {
    attn_case *c = case_new(shape, rng);
    void *out = card_run(c, gpu_row(row));
    compare_to_oracle(c, out, row);
    free(out);
    case_free(c);
}

// ---- numbers ----------------------------------------------------------------------------------------------------------
static const int head_dims[] = {64, 128, 256, 512}, gqas[] = {1, 2, 3, 5, 6, 8}, windows[] = {1, 20, 64, 256};

// A mix of features that covers, over some dozens of indices, every pair of them.
static attn_shape random_shape(int i, uint64_t *rng) {
    int gqa = gqas[random_next(rng) % 6], kv_heads = 1 + (int)(random_next(rng) % 2);
    return (attn_shape){.seqs = 1 + i % 3,
                        .q_heads = gqa * kv_heads,
                        .kv_heads = kv_heads,
                        .head_dim = head_dims[i / 2 % 4],
                        .block_tokens = i % 5 == 4 ? 48 : 16,
                        .window = i % 3 == 2 ? windows[random_next(rng) % 4] : 0,
                        .softcap = i % 7 == 3 ? 5 : 0,
                        .sinks = i % 4 == 3,
                        .scales = i % 3 != 1,
                        .q_dtype = i % 6 == 5 ? RD_DTYPE_F32 : RD_DTYPE_BF16,
                        .kv_dtype = i & 1 ? RD_DTYPE_BF16 : RD_DTYPE_E4M3,
                        .out_dtype = i % 4 == 2 ? RD_DTYPE_BF16 : RD_DTYPE_F32};
}

static void test_decode_numbers(void **unused) {
    (void)unused;
    NEED_SIM();
    static const int lengths[] = {1, 15, 16, 17, 33, 255, 256, 257, 300, 520};
    uint64_t rng = fresh_seed("attn_decode_gfx1201");
    for (int i = 0; i < (full() ? 240 : 40); i++) {
        attn_shape shape = random_shape(i, &rng);
        for (int s = 0; s < shape.seqs; s++) {
            shape.q_len[s] = s == 0 ? 1 + (int)(random_next(&rng) % 17) : 1;
            shape.kv_len[s] = lengths[random_next(&rng) % 10];
            if (i % 8)
                shape.kv_len[s] =
                    (int)rdi_max(shape.kv_len[s], shape.q_len[s]); // else rows before position 0
        }
        check_shape(&shape, decode_row(shape.kv_dtype), &rng);
    }
}

static void test_prefill_numbers(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t rng = fresh_seed("attn_prefill_gfx1201");
    for (int i = 0; i < (full() ? 120 : 24); i++) {
        attn_shape shape = random_shape(i, &rng);
        shape.q_heads = shape.q_heads > 6 ? 6 : shape.q_heads,
        shape.kv_heads = shape.q_heads % 2 ? 1 : shape.kv_heads;
        if (shape.q_heads % shape.kv_heads) shape.kv_heads = 1;
        for (int s = 0; s < shape.seqs; s++) {
            shape.q_len[s] = s == 1 ? 0 : 1 + (int)(random_next(&rng) % 40);
            shape.kv_len[s] = shape.q_len[s] + (int)(random_next(&rng) % 200) * (i & 1);
        }
        check_shape(&shape, prefill_row(shape.kv_dtype), &rng);
    }
}

// The grid of vLLM's test_triton_unified_attention.py, and its tolerances, on top of the oracle's own bound.
static void test_unified_attention_grid(void **unused) {
    (void)unused;
    NEED_SIM();
    static const int heads[][2] = {{4, 4}, {8, 2}, {5, 1}}, dims[] = {128, 256},
                     grid_windows[] = {0, 64, 128, 256};
    uint64_t rng = fresh_seed("unified attention grid");
    int count = 0;
    for (int i = 0; i < 3 * 2 * 4 * 2 * 2; i++) {
        attn_shape shape = {.seqs = 3,
                            .q_heads = heads[i % 3][0],
                            .kv_heads = heads[i % 3][1],
                            .head_dim = dims[i / 3 % 2],
                            .block_tokens = i / 6 % 2 ? 64 : 16,
                            .window = grid_windows[i / 6 % 4],
                            .softcap = i / 24 % 2 ? 50 : 0,
                            .q_dtype = RD_DTYPE_BF16,
                            .kv_dtype = i / 48 % 2 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16,
                            .scales = true,
                            .out_dtype = RD_DTYPE_BF16};
        if (!full() && i % 13) continue;
        bool decode = i & 1;
        // (1, 1328), (5, 18), (129, 463) of the original; a quarter of the last one's work outside the full run.
        const int q_len[] = {1, decode ? 1 : 5, decode ? 1 : full() ? 129 : 33}, kv_len[] = {1328, 18, 463};
        for (int s = 0; s < 3; s++) shape.q_len[s] = q_len[s], shape.kv_len[s] = kv_len[s];
        check_shape(&shape, decode ? decode_row(shape.kv_dtype) : prefill_row(shape.kv_dtype), &rng);
        count++;
    }
    assert_true(count >= 7);
}

// ---- special codes ----------------------------------------------------------------------------------------------------
static void put_code(attn_case *c, bool value, int64_t position, int64_t head, int64_t dim, uint16_t code) {
    const rdi_attn_args *a = &c->args;
    int64_t block = c->table[position / a->block_tokens], token = position % a->block_tokens;
    (value ? c->v_codes : c->k_codes)[0][(position * a->kv_heads + head) * a->head_dim + dim] = code;
    if (value)
        case_put(c->v.data, a->kv_dtype, case_value_at(a, block, token, head, dim), code);
    else
        case_put(c->k.data, a->kv_dtype, case_key_at(a, block, token, head, dim), code);
}
static attn_shape special_shape(int i) {
    return (attn_shape){.seqs = 1,
                        .q_heads = 3,
                        .kv_heads = 1,
                        .head_dim = head_dims[i / 2],
                        .block_tokens = 16,
                        .q_dtype = RD_DTYPE_BF16,
                        .kv_dtype = i & 1 ? RD_DTYPE_BF16 : RD_DTYPE_E4M3,
                        .out_dtype = RD_DTYPE_F32,
                        .q_len = {2},
                        .kv_len = {70}};
}

// Every finite e4m3 code as key and as value, subnormals and 448 among them; bf16 of sizes 2^-40 to 2^40 as values.
static void test_every_code(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t rng = fresh_seed("attn_decode_gfx1201 codes");
    for (int i = 0; i < 8; i++) {
        attn_shape shape = special_shape(i);
        attn_case *c = case_new(&shape, &rng);
        for (int64_t at = 0; at < 70 * c->args.head_dim; at++) {
            int64_t position = at / c->args.head_dim, dim = at % c->args.head_dim;
            if (shape.kv_dtype == RD_DTYPE_E4M3) {
                uint8_t key = (uint8_t)random_next(&rng), value = (uint8_t)random_next(&rng);
                put_code(c, false, position, 0, dim, (key & 0x7f) == 0x7f ? 0 : key);
                put_code(c, true, position, 0, dim, (value & 0x7f) == 0x7f ? 0x80 : value);
            } else {
                float size = ldexpf(1, (int)(random_next(&rng) % 81) - 40);
                put_code(c, true, position, 0, dim, rdi_bf16_from_f32(size * random_normal(&rng)));
            }
        }
        c->args.scale *= 0.01f; // scores of a few units, not of thousands
        void *out = card_run(c, gpu_row(decode_row(shape.kv_dtype)));
        compare_to_oracle(c, out, decode_row(shape.kv_dtype));
        free(out);
        case_free(c);
    }
}

// A NaN among the values spoils its own dim and no other; one among the keys spoils the rows that see it.
static void test_nan_stays_where_it_is(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t rng = fresh_seed("attn_decode_gfx1201 NaN");
    for (int i = 0; i < 8; i++) {
        attn_shape shape = special_shape(i);
        attn_case *c = case_new(&shape, &rng);
        uint16_t nan_code = shape.kv_dtype == RD_DTYPE_E4M3 ? 0x7f : 0x7fc0,
                 kept = c->k_codes[0][69 * c->args.head_dim + 3];
        const rdi_row *row = gpu_row(decode_row(shape.kv_dtype));
        float *clean = card_run(c, row);
        put_code(c, true, 20, 0, 5, nan_code);
        float *value = card_run(c, row);
        put_code(c, true, 20, 0, 5, 0);
        put_code(c, false, 69, 0, 3, nan_code); // the last key: the second token sees it, the first does not
        float *key = card_run(c, row);
        put_code(c, false, 69, 0, 3, kept);
        for (int64_t t = 0; t < 2; t++)
            for (int64_t h = 0; h < 3; h++)
                for (int64_t d = 0; d < c->args.head_dim; d++) {
                    int64_t at = case_out_at(c, t, h, d);
                    assert_true(d == 5 ? isnan(value[at]) : value[at] == clean[at]);
                    assert_true(t == 1 ? isnan(key[at]) : isfinite(key[at]));
                }
        free(clean), free(value), free(key);
        case_free(c);
    }
}

// ---- order class ------------------------------------------------------------------------------------------------------
static void same_rows(const attn_case *c, const uint8_t *whole, const uint8_t *part, int64_t first,
                      int64_t last, const char *what) {
    for (int64_t t = first; t < last; t++)
        for (int64_t h = 0; h < c->args.q_heads; h++)
            for (int64_t d = 0; d < c->args.head_dim; d++)
                if (!same_bits(c->args.out_dtype, whole, part, case_out_at(c, t, h, d)))
                    fail_msg("%s, head_dim %d: token %lld head %lld dim %lld differs", what,
                             c->shape.head_dim, (long long)t, (long long)h, (long long)d);
}

// Rows first .. last - 1 of sequence 0 alone.
static uint8_t *run_part(attn_case *c, const rdi_row *row, int first, int last) {
    attn_case part = *c;
    part.shape.seqs = 1;
    part.kv_lens[0] = c->kv_lens[0] - c->shape.q_len[0] + last;
    part.q_starts[0] = first, part.q_starts[1] = last;
    part.args.seqs = 1, part.args.kv_lens = part.kv_lens, part.args.q_starts = part.q_starts;
    return card_run(&part, row);
}

// Seventeen query tokens beside another sequence, then the same tokens in calls of every width: other tile heights (16, 32
// and 64 rows), other neighbours, other chunks of the grid, the same bits.
static void test_decode_widths(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t rng = fresh_seed("attn_decode_gfx1201 widths");
    for (int i = 0; i < 8; i++) {
        attn_shape shape = {.seqs = 2,
                            .q_heads = 6,
                            .kv_heads = 1,
                            .head_dim = head_dims[i % 4],
                            .block_tokens = 16,
                            .window = i == 2 || i == 7 ? 200 : 0,
                            .sinks = i == 1,
                            .softcap = i == 3 ? 20 : 0,
                            .scales = true,
                            .q_dtype = RD_DTYPE_BF16,
                            .kv_dtype = i / 4 ? RD_DTYPE_BF16 : RD_DTYPE_E4M3,
                            .out_dtype = RD_DTYPE_F32,
                            .q_len = {17, 3},
                            .kv_len = {530, 40}};
        attn_case *c = case_new(&shape, &rng);
        const rdi_row *row = gpu_row(decode_row(shape.kv_dtype));
        uint8_t *whole = card_run(c, row);
        static const int widths[] = {1, 2, 5, 9, 11};
        for (size_t w = 0; w < RDI_COUNT(widths); w++)
            for (int first = 0; first < 17; first += full() ? widths[w] : 6) {
                int last = (int)rdi_min(first + widths[w], 17);
                uint8_t *part = run_part(c, row, first, last);
                same_rows(c, whole, part, first, last, row->info.name);
                free(part);
            }
        free(whole);
        case_free(c);
    }
}

// Sequences of a batch, each alone: a prefill chunk does not see its neighbours.
static void test_prefill_batches(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t rng = fresh_seed("attn_prefill_gfx1201 batches");
    for (int i = 0; i < 8; i++) {
        attn_shape shape = {.seqs = 2,
                            .q_heads = 4,
                            .kv_heads = 2,
                            .head_dim = head_dims[i % 4],
                            .block_tokens = 16,
                            .scales = true,
                            .q_dtype = RD_DTYPE_BF16,
                            .kv_dtype = i / 4 ? RD_DTYPE_BF16 : RD_DTYPE_E4M3,
                            .out_dtype = RD_DTYPE_BF16,
                            .q_len = {45, 7},
                            .kv_len = {300, 7}};
        attn_case *c = case_new(&shape, &rng);
        const rdi_row *row = gpu_row(prefill_row(shape.kv_dtype));
        uint8_t *whole = card_run(c, row), *part = run_part(c, row, 0, 45);
        same_rows(c, whole, part, 0, 45, row->info.name);
        free(whole), free(part);
        case_free(c);
    }
}

// ---- the order in which waves run ---------------------------------------------------------------------------------------
enum { SEEDED_BYTES = 2 * 9 * (6 * 256 + 24) * (int)sizeof(float) };

// In a process of its own: the simulator reads its seed once. Decode of nine tokens, then prefill of the same.
static void run_seeded(const char *seed, int pipe_end) {
    setenv("GFX12SIM_SEED", seed, 1);
    if (!sim_open()) _exit(0);
    uint64_t rng = 42;
    attn_shape shape = {.seqs = 1,
                        .q_heads = 6,
                        .kv_heads = 1,
                        .head_dim = 256,
                        .block_tokens = 16,
                        .scales = true,
                        .q_dtype = RD_DTYPE_BF16,
                        .kv_dtype = RD_DTYPE_E4M3,
                        .out_dtype = RD_DTYPE_F32,
                        .q_len = {9},
                        .kv_len = {300}};
    attn_case *c = case_new(&shape, &rng);
    for (int i = 0; i < 2; i++) {
        const uint8_t *out =
            card_run(c, gpu_row(i ? prefill_row(shape.kv_dtype) : decode_row(shape.kv_dtype)));
        for (size_t done = 0; done < c->out.bytes;) {
            ssize_t wrote = write(pipe_end, out + done, c->out.bytes - done);
            if (wrote <= 0) _exit(1);
            done += (size_t)wrote;
        }
    }
    _exit(0);
}

static void test_schedule_seeds(void **unused) { // stands first: a fork after the first call has no simulator
    (void)unused;
    static const char *const seeds[] = {"0", "1", "7919"};
    static uint8_t out[3][SEEDED_BYTES];
    for (int i = 0; i < 3; i++) {
        int ends[2], status = 0;
        size_t got = 0;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) close(ends[0]), run_seeded(seeds[i], ends[1]);
        close(ends[1]);
        for (ssize_t n; (n = read(ends[0], out[i] + got, sizeof out[i] - got)) > 0;) got += (size_t)n;
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        if (got == 0 && !*RD_SIM_LIBRARY) skip();
        assert_int_equal(got, sizeof out[i]);
        assert_memory_equal(out[i], out[0], sizeof out[0]);
    }
}

// ---- geometry: no card needed -------------------------------------------------------------------------------------------
static rdi_attn_args plain_args(void) {
    return (rdi_attn_args){.seqs = 3,
                           .tokens = 20,
                           .q_heads = 12,
                           .kv_heads = 2,
                           .head_dim = 256,
                           .block_tokens = 784,
                           .max_blocks = 12,
                           .blocks = 40,
                           .q = (void *)4096,
                           .k_cache = (void *)8192,
                           .v_cache = (void *)8192,
                           .out = (void *)4096,
                           .q_stride_token = 12 * 256,
                           .q_stride_head = 256,
                           .out_stride_token = 12 * 256,
                           .out_stride_head = 256,
                           .k_interleave = 1,
                           .k_stride_block = 784 * 512,
                           .k_stride_token = 512,
                           .k_stride_head = 256,
                           .k_stride_dim = 1,
                           .v_stride_block = 784 * 512,
                           .v_stride_token = 512,
                           .v_stride_head = 256,
                           .v_stride_dim = 1,
                           .block_table_stride = 12,
                           .q_dtype = RD_DTYPE_BF16,
                           .kv_dtype = RD_DTYPE_E4M3,
                           .out_dtype = RD_DTYPE_BF16,
                           .scale = 1,
                           .max_q_len = 11,
                           .max_kv_len = 9000};
}
static void refused(const rdi_attn_args *a, const char *text) {
    rdi_launch out[RDI_MAX_LAUNCHES];
    assert_int_equal(rdi_attn_decode_fp8kv_gfx1201_geometry(a, NULL, NULL, out), 0);
    assert_int_equal(rdi_attn_prefill_fp8kv_gfx1201_geometry(a, NULL, NULL, out), 0);
    if (!strstr(rd_error_text(), text)) fail_msg("\"%s\", needs \"%s\"", rd_error_text(), text);
}
static void test_geometry(void **unused) {
    (void)unused;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_attn_args a = plain_args(), bad;
    assert_int_equal(rdi_attn_decode_fp8kv_gfx1201_geometry(&a, NULL, NULL, out), 2);
    // 11 tokens of 6 heads are 66 rows: tiles of 64, at most 120/64 + 3 of them; 9000 keys: 32 + 2 chunks.
    assert_string_equal(out[0].kernel, "rdk_attn_decode_fp8kv_gfx1201_h256_r64");
    assert_int_equal(out[0].grid[0], 4);
    assert_int_equal(out[0].grid[1], 2);
    assert_int_equal(out[0].grid[2], 34);
    assert_int_equal(out[0].block[0], 128);
    assert_string_equal(out[1].kernel, "rdk_attn_decode_fp8kv_gfx1201_merge_h256");
    assert_int_equal(out[1].grid[0], 20);
    assert_int_equal(out[1].grid[1], 3); // 12 heads, four a work-group
    assert_int_equal(rdi_attn_decode_gfx1201_ws(&a, 64), 20 * 12 * 34 * 258 * 4);
    a.max_q_len = 2; // 12 rows
    rdi_attn_decode_bf16kv_gfx1201_geometry(&a, NULL, NULL, out);
    assert_string_equal(out[0].kernel, "rdk_attn_decode_bf16kv_gfx1201_h256_r16");
    a.head_dim = 512, a.max_q_len = 17; // no tiles of 64 there: their queries fill LDS
    rdi_attn_decode_fp8kv_gfx1201_geometry(&a, NULL, NULL, out);
    assert_string_equal(out[0].kernel, "rdk_attn_decode_fp8kv_gfx1201_h512_r32");
    assert_int_equal(rdi_attn_prefill_fp8kv_gfx1201_geometry(&a, NULL, NULL, out), 1);
    assert_string_equal(out[0].kernel, "rdk_attn_prefill_fp8kv_gfx1201_h512");
    assert_int_equal(out[0].grid[0], 120 / 32 + 3);
    bad = plain_args(), bad.k_stride_token = 520;
    refused(&bad, "k_cache: stride of 520 bytes, needs a multiple of 16");
    bad = plain_args(), bad.q_stride_head = 260;
    refused(&bad, "q: stride of 520 bytes");
    bad = plain_args(), bad.out = (void *)4104;
    refused(&bad, "out: data=");
    bad = plain_args(), bad.v_stride_block = (int64_t)1 << 32;
    refused(&bad, "v_cache: stride of 4294967296 bytes, needs a multiple of 16 up to 4294967295");
    bad = plain_args(), bad.v_stride_dim = 784;
    refused(&bad, "v_cache: stride[3]=784, needs 1");
}

// A block's number by multiplication, as the kernels compute it, for every block size that a row takes.
static void test_block_magic(void **unused) {
    (void)unused;
    rdi_launch out[RDI_MAX_LAUNCHES];
    uint64_t rng = fresh_seed("block magic");
    for (int64_t tiles = 1; tiles <= 256; tiles++) {
        rdi_attn_args a = plain_args();
        a.block_tokens = 16 * tiles;
        rdk_attn_gfx1201_args kernel;
        rdi_attn_decode_fp8kv_gfx1201_geometry(&a, NULL, NULL, out);
        memcpy(&kernel, out[0].args, sizeof kernel);
        for (int i = 0; i < 1000; i++) {
            uint32_t x = (uint32_t)(random_next(&rng) % (0x7fffffff / (uint64_t)tiles));
            if (i < 300) x = (uint32_t)(i / 3 * tiles + i % 3 - 1 < 0 ? 0 : i / 3 * tiles + i % 3 - 1);
            assert_int_equal((uint64_t)(2 * x) * kernel.block_magic >> 32, x / tiles);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule_seeds),  cmocka_unit_test(test_geometry),
        cmocka_unit_test(test_block_magic),     cmocka_unit_test(test_decode_numbers),
        cmocka_unit_test(test_prefill_numbers), cmocka_unit_test(test_unified_attention_grid),
        cmocka_unit_test(test_every_code),      cmocka_unit_test(test_nan_stays_where_it_is),
        cmocka_unit_test(test_decode_widths),   cmocka_unit_test(test_prefill_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
