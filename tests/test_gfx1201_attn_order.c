// SPDX-License-Identifier: Apache-2.0
// The order class of gfx1201's attention rows: a row's bits whatever its batch, width, tile height and the order in which
// waves run. And their geometry, which needs no card.
#include "gfx1201_attn_case.h"

#include "kernels/attn/gfx1201_args.h"
#include "kernels/rows.h"

#include <sys/wait.h>
#include <unistd.h>

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
        for (int units = 1; units <= 2; units++) { // a full card: work-groups of four chunks, of two
            sim.compute_units = units;
            uint8_t *grouped = card_run(c, row);
            same_rows(c, whole, grouped, 0, 17, "chunks in one work-group");
            free(grouped);
        }
        sim.compute_units = 0;
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
static const rd_device_info card = {.compute_units = 64};
static void refused(const rdi_attn_args *a, const char *text) {
    rdi_launch out[RDI_MAX_LAUNCHES];
    assert_int_equal(rdi_attn_decode_fp8kv_gfx1201_geometry(a, NULL, &card, out), 0);
    assert_int_equal(rdi_attn_prefill_fp8kv_gfx1201_geometry(a, NULL, &card, out), 0);
    if (!strstr(rd_error_text(), text)) fail_msg("\"%s\", needs \"%s\"", rd_error_text(), text);
}
static void test_geometry(void **unused) {
    (void)unused;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_attn_args a = plain_args(), bad;
    assert_int_equal(rdi_attn_decode_fp8kv_gfx1201_geometry(&a, NULL, &card, out), 2);
    // 11 tokens of 6 heads are 66 rows: tiles of 64, at most 120/64 + 3 of them; 9000 keys: 32 + 2 chunks.
    assert_string_equal(out[0].kernel, "rdk_attn_decode_fp8kv_gfx1201_h256_r64");
    assert_int_equal(out[0].grid[0], 4);
    assert_int_equal(out[0].grid[1], 2);
    rdk_attn_gfx1201_args kernel;
    memcpy(&kernel, out[0].args, sizeof kernel);
    assert_int_equal(kernel.chunks, 34);
    assert_int_equal(kernel.group_chunks, 4); // 4 * 2 * 34 groups of 8 waves: four times eight a compute unit
    assert_int_equal(out[0].grid[2], 9);
    assert_int_equal(out[0].block[0], 256); // rows split over two halves of eight waves
    assert_string_equal(out[1].kernel, "rdk_attn_decode_fp8kv_gfx1201_merge_h256");
    assert_int_equal(out[1].grid[0], 20);
    assert_int_equal(out[1].grid[1], 3); // 12 heads, four a work-group
    assert_int_equal(rdi_attn_decode_gfx1201_ws(&a, 64), 20 * 12 * 34 * 258 * 4);
    a.kv_heads = a.tokens = a.seqs = 1, a.q_heads = 6;
    rdi_attn_decode_fp8kv_gfx1201_geometry(&a, NULL, &card, out); // few work-groups: a chunk each
    assert_int_equal(out[0].grid[2], 34);
    a = plain_args(), a.max_q_len = 2; // 12 rows
    rdi_attn_decode_bf16kv_gfx1201_geometry(&a, NULL, &card, out);
    assert_string_equal(out[0].kernel, "rdk_attn_decode_bf16kv_gfx1201_h256_r16");
    a.head_dim = 512, a.max_q_len = 17; // no tiles of 64 there: their queries fill LDS
    rdi_attn_decode_fp8kv_gfx1201_geometry(&a, NULL, &card, out);
    assert_string_equal(out[0].kernel, "rdk_attn_decode_fp8kv_gfx1201_h512_r32");
    assert_int_equal(rdi_attn_prefill_fp8kv_gfx1201_geometry(&a, NULL, &card, out), 1);
    assert_string_equal(out[0].kernel, "rdk_attn_prefill_fp8kv_gfx1201_h512");
    assert_int_equal(out[0].grid[0], 120 / 32 + 3);
    bad = plain_args(), bad.k_stride_token = 520;
    refused(&bad, "k_cache: stride of 520 bytes, needs a multiple of 16");
    bad = plain_args(), bad.q_stride_head = 260;
    refused(&bad, "q: stride of 520 bytes");
    bad = plain_args(), bad.q_stride_token = 1 << 24;
    refused(&bad, "q: 64 tokens and the heads of a KV head span 2147486720 bytes, needs <= 2147483647");
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
        rdi_attn_decode_fp8kv_gfx1201_geometry(&a, NULL, &card, out);
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
        cmocka_unit_test(test_block_magic),     cmocka_unit_test(test_decode_widths),
        cmocka_unit_test(test_prefill_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
