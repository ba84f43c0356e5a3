// SPDX-License-Identifier: Apache-2.0
// The tuned decisions: every row of tests/vectors through `radiance policy RULE --csv FILE`, and the field's bug cases.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/attn/partition.h"
#include "policy/aiter.h"
#include "policy/draft.h"
#include "policy/gemm_route.h"
#include "policy/lds_fit.h"
#include "policy/reduce_route.h"
#include "policy/sm90a_route.h"
#include "run_cli.h"

static cli_result result;

// ---- vectors ---------------------------------------------------------------------------------------------------------------
static void check_vectors(const char *rule, int rows) {
    char arguments[1024], last[64];
    snprintf(arguments, sizeof arguments, "policy %s --csv '%s/vectors/%s.csv'", rule, RD_TEST_DIR, rule);
    cli_run("", arguments, &result);
    snprintf(last, sizeof last, "%d rows, 0 differ\n", rows);
    assert_string_equal(result.out, last);
    assert_string_equal(result.err, "");
    assert_int_equal(result.code, 0);
}
static void test_vectors_decode_geometry(void **state) {
    (void)state, check_vectors("decode_geometry", 300);
}
static void test_vectors_decode_geometry_edges(void **state) {
    (void)state, check_vectors("decode_geometry_edges", 68);
}
static void test_vectors_draft_cap(void **state) {
    (void)state, check_vectors("draft_cap", 12);
}
static void test_vectors_draft_depth(void **state) {
    (void)state, check_vectors("draft_depth", 120);
}
static void test_vectors_gemm_route(void **state) {
    (void)state, check_vectors("gemm_route", 56);
}
static void test_vectors_lds_fit(void **state) {
    (void)state, check_vectors("lds_fit", 192);
}
static void test_vectors_prefill_config(void **state) {
    (void)state, check_vectors("prefill_config", 161);
}
static void test_vectors_preshuffle_bytes(void **state) {
    (void)state, check_vectors("preshuffle_bytes", 90);
}
static void test_vectors_preshuffle_contract(void **state) {
    (void)state, check_vectors("preshuffle_contract", 14);
}
static void test_vectors_split_count(void **state) {
    (void)state, check_vectors("split_count", 300);
}
static void test_vectors_splitk_guard(void **state) {
    (void)state, check_vectors("splitk_guard", 65);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_vectors_a_wrong_row_is_found(void **state) {
    (void)state;
    const char *path = "policy_wrong.csv";
    write_file(path, "K,wanted,splits\n8704,8,4\r\n8704,8,8\n128,0,1\n128,x,1\n");
    cli_run("", "policy splitk_guard --csv policy_wrong.csv", &result);
    assert_string_equal(result.out,
                        "row 2: splits=4, expected 8 (splitk_guard: halved until K % (128 * splits) == 0)\n"
                        "row 3: splitk_guard: wanted=0, needs 1 to 2147483647\n"
                        "row 4: splitk_guard: wanted=\"x\" is text, needs a whole number\n"
                        "4 rows, 3 differ\n");
    assert_int_not_equal(result.code, 0);
    write_file(path, "K,wanted,splits,colour\n1,1,1,1\n");
    cli_run("", "policy splitk_guard --csv policy_wrong.csv", &result);
    assert_non_null(strstr(result.err, "column colour, needs an input or output of splitk_guard"));
    assert_int_equal(result.code, RD_E_FORMAT);
    write_file(path, "K,wanted,splits\n1,1\n");
    cli_run("", "policy splitk_guard --csv policy_wrong.csv", &result);
    assert_non_null(strstr(result.err, "row 1: 2 cells, needs 3"));
    write_file(path, "");
    cli_run("", "policy splitk_guard --csv policy_wrong.csv", &result);
    assert_non_null(strstr(result.err, "needs a header line"));
    remove(path);
    cli_run("", "policy splitk_guard --csv policy_wrong.csv", &result);
    assert_int_equal(result.code, RD_E_IO);
}

// ---- bug cases of the field ----------------------------------------------------------------------------------------------------
// Case 1: K = 8704 with 8 splits cut a scale block and faulted.
static void test_bug_1_splitk_never_cuts_a_block(void **state) {
    (void)state;
    assert_int_equal(rdi_splitk_guard(8704, 8), 4);
    for (int64_t k = 128; k <= 20480; k += 128)
        for (int64_t wanted = 1; wanted <= 16; wanted *= 2) {
            int64_t splits = rdi_splitk_guard(k, wanted);
            assert_true(splits >= 1 && splits <= wanted && k % (128 * splits) == 0);
            // The largest such power of two: twice as many would cut.
            assert_true(splits == wanted || k % (256 * splits) != 0);
        }
}

// Case 2: both shapes asked for 65,792 bytes of LDS and failed to launch.
static void test_bug_2_lds_is_fitted_before_launch(void **state) {
    (void)state;
    const rdi_lds_question cases[] = {{256, 2, 64, 2, 65536}, {512, 1, 64, 2, 65536}};
    for (int i = 0; i < 2; i++) {
        rdi_lds_fit fit = rdi_lds_fit_decide(&cases[i]);
        assert_int_equal(fit.bytes, 65792);
        assert_int_equal(fit.fit_tile, 64);
        assert_int_equal(fit.fit_stages, 1);
        assert_int_equal(fit.fit_bytes, 33024);
    }
    rdi_lds_question huge = {4096, 4, 16, 1, 65536}; // 262,400 bytes at the smallest tile
    assert_int_equal(rdi_lds_fit_decide(&huge).fit_tile, 0);
}

// Case 12: an 80 MiB message (a prefill chunk of 8192 x 5120 bf16) went to the vendor's library in silence.
static void test_bug_12_reduce_route_names_the_size(void **state) {
    (void)state;
    rdi_reduce_question q = {
        .world_size = 2, .bytes = 8192 * 5120 * 2, .cap_bytes = 48 << 20, .dtype = RD_DTYPE_BF16};
    rdi_reduce_route route = rdi_reduce_route_decide(&q);
    assert_false(route.exact);
    assert_string_equal(route.rule, "reduce_route: bytes=83886080, needs <= 50331648");
    q.bytes = 50331648;
    assert_true(rdi_reduce_route_decide(&q).exact);
    q.bytes = 10248;
    assert_string_equal(rdi_reduce_route_decide(&q).rule,
                        "reduce_route: bytes=10248, needs a multiple of 16");
    q.bytes = 10240;
    q.dtype = RD_DTYPE_E4M3;
    assert_string_equal(rdi_reduce_route_decide(&q).rule,
                        "reduce_route: dtype=fp8_e4m3, needs one of: fp32 bf16 fp16");
    q.dtype = RD_DTYPE_F16;
    for (int world = 1; world <= 9; world++) {
        q.world_size = world;
        assert_int_equal(rdi_reduce_route_decide(&q).exact, world >= 2 && world <= 8);
    }
}

static rdi_aiter_decode_question verify_pass(int64_t width, int64_t seqs, int64_t context, int64_t programs) {
    return (rdi_aiter_decode_question){.head_size = 256,
                                       .tokens = width * seqs,
                                       .seqs = seqs,
                                       .queries_per_kv = 6,
                                       .kv_heads = 2,
                                       .max_seqlen_k = context,
                                       .num_2d_programs = programs,
                                       .q_fp8 = true,
                                       .kv_fp8 = true};
}

// Case 18: a count taken from the longest context, or for another tile than the launched one, lost 1.35 to 12 times. The
// worked values are those published for 6 query heads a KV head and 2 KV heads.
static void test_bug_18_splits_follow_the_launched_tile_and_batch(void **state) {
    (void)state;
    const struct {
        int64_t width, seqs, context, programs, splits, block_m, seen_programs;
    } cases[] = {
        {9, 1, 32768, 99, 128, 64, 2}, {6, 1, 32768, 8, 64, RDI_KEEP, 8},
        {9, 1, 4096, 99, 64, 64, 2},   {6, 1, 4096, 8, 32, RDI_KEEP, 8},
        {9, 8, 65536, 99, 64, 64, 30}, {6, 8, 65536, 64, 64, RDI_KEEP, 64},
        {6, 1, 16, 8, 4, RDI_KEEP, 8},
    };
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        rdi_aiter_decode_question q =
            verify_pass(cases[i].width, cases[i].seqs, cases[i].context, cases[i].programs);
        rdi_aiter_decode geometry = rdi_aiter_decode_geometry(&q);
        assert_int_equal(geometry.splits, cases[i].splits);
        assert_int_equal(geometry.block_m, cases[i].block_m);
        assert_int_equal(geometry.programs, cases[i].seen_programs);
        assert_int_equal(geometry.tile, geometry.block_m == 64 ? 32 : 16);
    }
}

// Case 19, the AITER side: widths 9 and 10 (54 and 60 rows) fit the wide block, width 11 (66 rows) must not take it.
static void test_bug_19_width_11_at_gqa_6_is_not_wide(void **state) {
    (void)state;
    for (int64_t width = 8; width <= 11; width++) {
        rdi_aiter_decode_question q = verify_pass(width, 1, 32768, 8);
        assert_int_equal(rdi_aiter_decode_geometry(&q).block_m, width == 9 || width == 10 ? 64 : RDI_KEEP);
    }
}

// Case 34: a wide geometry asked for but never launched must not leak into the next call. Each answer is a function of its
// question alone: asked in any order, with others between, it stays.
static void test_bug_34_geometry_keeps_no_state(void **state) {
    (void)state;
    enum { QUESTIONS = 60 };
    rdi_aiter_decode first[QUESTIONS];
    for (int i = 0; i < QUESTIONS; i++) {
        rdi_aiter_decode_question q = verify_pass(1 + i % 12, 1 + i % 5, 1 << (i % 18), 1 + i);
        first[i] = rdi_aiter_decode_geometry(&q);
    }
    for (int i = QUESTIONS - 1; i >= 0; i--) {
        rdi_aiter_decode_question wide = verify_pass(9, 1, 32768, 1);
        (void)rdi_aiter_decode_geometry(&wide);
        rdi_aiter_decode_question q = verify_pass(1 + i % 12, 1 + i % 5, 1 << (i % 18), 1 + i);
        rdi_aiter_decode again = rdi_aiter_decode_geometry(&q);
        assert_memory_equal(&again, &first[i], sizeof again);
    }
}

// Case 35, the partition side: a short context has only the chunks that hold keys, so that no empty one needs merging, and
// bounds depend on the position alone.
static void test_bug_35_partition_has_no_empty_chunk(void **state) {
    (void)state;
    assert_int_equal(rdi_attn_chunk_count(0), 0);
    for (int64_t keys = 1; keys <= 70000; keys++) {
        int64_t chunks = rdi_attn_chunk_count(keys);
        assert_true(chunks >= 1 && rdi_attn_chunk_begin(chunks - 1) < keys &&
                    keys <= rdi_attn_chunk_begin(chunks));
        int64_t chunk = rdi_attn_chunk_of(keys - 1);
        assert_int_equal(chunk, chunks - 1);
        int64_t length = rdi_attn_chunk_begin(chunk + 1) - rdi_attn_chunk_begin(chunk);
        assert_true(length >= 256 && length <= 2048 && (keys > 8192 || length == 256));
    }
    cli_run("", "policy attn_partition kv_tokens=16", &result);
    assert_non_null(strstr(result.out, "chunks=1\nlast_begin=0\nlast_tokens=16\nlast_capacity=256\n"));
    cli_run("", "policy attn_partition kv_tokens=0", &result);
    assert_non_null(strstr(result.out, "chunks=0\n"));
}

// ---- beside the vectors --------------------------------------------------------------------------------------------------------
static void test_split_count_is_the_law(void **state) {
    (void)state;
    // Against the definition: largest power of two within the law and the bounds, found by trying all.
    for (int64_t kv = 1; kv < 300000; kv = kv * 5 / 4 + 1)
        for (int64_t programs = 1; programs < 5000; programs = programs * 3 / 2 + 1) {
            int64_t tiles = (kv + 15) / 16, best = 1, bound = 1;
            for (int64_t s = 1; s <= 128; s *= 2)
                if (s * s * s * programs <= 4096 * tiles) best = s;
            while (bound < tiles) bound *= 2;
            if (best > bound) best = bound;
            if (best < 4) best = 4;
            const char *rule;
            assert_int_equal(rdi_aiter_split_count(kv, 16, programs, &rule), best);
        }
    const char *rule;
    rdi_aiter_split_count(INT32_MAX, 1, 1, &rule);
    assert_string_equal(rule, "split_count: cap of 128");
    rdi_aiter_split_count(64, 16, 1, &rule);
    assert_string_equal(rule, "split_count: no more splits than tiles");
}

static void test_decode_geometry_of_wider_types(void **state) {
    (void)state;
    rdi_aiter_decode_question q = verify_pass(9, 1, 32768, 8);
    q.q_fp8 = q.kv_fp8 = false;
    assert_int_equal(rdi_aiter_decode_geometry(&q).tile, RDI_KEEP);
    q.kv_16bit = true;
    rdi_aiter_decode geometry = rdi_aiter_decode_geometry(&q);
    assert_int_equal(geometry.tile, 16);
    assert_int_equal(geometry.stages, 2);
    assert_int_equal(geometry.waves, 2);
    assert_int_equal(geometry.reduce_warps, 4);
    q = verify_pass(9, 1, 32768, 8);
    q.seqs = 0; // unreadable: the constants, no division by it
    geometry = rdi_aiter_decode_geometry(&q);
    assert_int_equal(geometry.warps, 4);
    assert_int_equal(geometry.splits, RDI_KEEP);
}

// Every byte of a tile is used exactly once.
static void test_preshuffle_byte_is_a_permutation(void **state) {
    (void)state;
    enum { ROWS = 48, COLUMNS = 96 };
    unsigned char seen[ROWS * COLUMNS] = {0};
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++) {
            int64_t byte = rdi_preshuffle_byte(COLUMNS, row, column);
            assert_true(byte >= 0 && byte < ROWS * COLUMNS && !seen[byte]);
            seen[byte] = 1;
        }
}

static void test_rules_refuse_bad_inputs(void **state) {
    (void)state;
    const struct {
        const char *arguments, *text;
    } cases[] = {
        {"policy split_count max_seqlen_k=1 tile=16", "split_count: programs not given"},
        {"policy split_count max_seqlen_k=1 tile=16 programs=1 x=2",
         "split_count: unknown key x, the rule has: max_seqlen_k tile programs"},
        {"policy split_count tile=0 max_seqlen_k=1 programs=1", "split_count: tile=0, needs 1 to 2147483647"},
        {"policy split_count tile=16 tile=16", "split_count: tile is given twice"},
        {"policy draft_depth tau=2 cap=1 continuation= mtp_tokens=1 probabilities=1",
         "tau: \"2\", needs numbers from 0 to 1"},
        {"policy draft_depth tau=0.3 cap=1 continuation= mtp_tokens='1 2' probabilities=1",
         "needs as many of each"},
        {"policy preshuffle_bytes N=16 K=32 n=16 k=0", "needs n < N=16 and k < K=32"},
        {"policy prefill_config head_size=64 max_seqlen_q=1 queries_per_kv=1 kv_dtype=e4m3fnuz",
         "different type"},
        {"policy reduce_routes", "unknown rule reduce_routes"},
        {"policy split_count --csv x y=1", "together with --csv"},
    };
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        cli_run("", cases[i].arguments, &result);
        assert_int_equal(result.code, RD_E_INVALID);
        if (!strstr(result.err, cases[i].text)) fail_msg("%s: %s", cases[i].arguments, result.err);
    }
}

static void test_device_picks_the_table(void **state) {
    (void)state;
    cli_run("", "policy lds_fit head_size=512 elem_bytes=2 tile=64 stages=2", &result);
    assert_non_null(strstr(result.out, "fit_tile=32\nfit_stages=1\n"));
    cli_run("", "policy lds_fit head_size=512 elem_bytes=2 tile=64 stages=2 --device h200-sm90a", &result);
    assert_non_null(strstr(result.out, "fit_tile=64\nfit_stages=2\n"));
    cli_run("", "policy gemm_route preshuffled=0 M=1 N=128 K=128", &result);
    assert_non_null(strstr(result.out, "route=split_k\n"));
    cli_run("", "policy gemm_route preshuffled=0 M=1 N=128 K=128 --device h200-sm90a", &result);
    assert_non_null(strstr(result.out, "route=generic\n"));
}

// Measured ahead of DeepGEMM up to 64 rows on four shapes, of which the smallest has 31 million weights.
static void test_engine_share(void **state) {
    (void)state;
    static const struct {
        const char *device, *shape, *rows;
    } cases[] = {{"h200-sm90a", "N=14336 K=5120", "rows=64\n"},  {"h200-sm90a", "N=5120 K=6144", "rows=64\n"},
                 {"h200-sm90a", "N=34816 K=5120", "rows=64\n"},  {"h200-sm90a", "N=5120 K=5120", "rows=32\n"},
                 {"r9700-gfx1201", "N=128 K=128", "rows=all\n"}, {"x86-avx2", "N=128 K=128", "rows=all\n"}};
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        char line[128];
        snprintf(line, sizeof line, "policy engine_share %s --device %s", cases[i].shape, cases[i].device);
        cli_run("", line, &result);
        if (!strstr(result.out, cases[i].rows)) fail_msg("%s: %s%s", line, result.out, result.err);
    }
}

// The sweep that the rule's numbers were fitted to: both order classes of some shapes on one H200. Taking the rule's class costs
// little against the faster one of each cell, and less than either class alone.
static void check_sweep(const char *path, const char *op, int least_cells) {
    enum { MOST_CELLS = 256 };
    static struct cell {
        long long m, n, k;
        double us[2];
    } cells[MOST_CELLS];
    int count = 0;
    char line[512], kernel[64];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        struct cell at;
        double us;
        if (sscanf(line, "%*[^,],%63[^,],%lld,%lld,%lld,%*[^,],%*[^,],%*[^,],%lf", kernel, &at.m, &at.n,
                   &at.k, &us) != 5)
            continue; // the head
        int i = 0;
        while (i < count && (cells[i].m != at.m || cells[i].n != at.n || cells[i].k != at.k)) i++;
        if (i == count) cells[count++] = at;
        cells[i].us[strstr(kernel, "_chunk_") != NULL] = us;
        assert_true(count < MOST_CELLS);
    }
    fclose(file);
    double rule = 0, alone[2] = {0, 0};
    for (int i = 0; i < count; i++) {
        const double *us = cells[i].us, best = us[0] < us[1] ? us[0] : us[1];
        const rdi_sm90a_question q = {op, cells[i].m, cells[i].n, cells[i].k, 132, {1980, 4917}};
        const double taken = us[rdi_sm90a_route_decide(&q).chunk];
        if (taken > 1.15 * best)
            fail_msg("%s: %lld rows of %lldx%lld: %.1f us, the other class %.1f", op, cells[i].m, cells[i].n,
                     cells[i].k, taken, best);
        rule += taken / best, alone[0] += us[0] / best, alone[1] += us[1] / best;
    }
    assert_true(count >= least_cells);
    assert_true(rule / count < 1.01);
    assert_true(rule < alone[0] && rule < alone[1]);
}

static void test_sm90a_route_loses_little(void **state) {
    (void)state;
    check_sweep(RD_TEST_DIR "/../bench/results/h200/2026-11-30-sweep-fp8.csv", "gemm_fp8block", 48);
    check_sweep(RD_TEST_DIR "/../bench/results/h200/2026-11-30-sweep-w8a16.csv", "gemm_fp8block_w8a16", 18);
}

// Half the memory rate and fewer multiprocessors: a shape whose tiles fill the H200's rounds is bound by bytes there, where runs of
// equal length have nothing to lose.
static void test_sm90a_route_follows_the_chip(void **state) {
    (void)state;
    rdi_sm90a_question q = {"gemm_fp8block", 128, 24576, 1536, 132, {1980, 4917}};
    assert_true(rdi_sm90a_route_decide(&q).chunk);
    const double h200_us = rdi_sm90a_route_decide(&q).step_us;
    q.multiprocessors = 114, q.rates = (rdi_rates){1755, 2039};
    rdi_sm90a_route route = rdi_sm90a_route_decide(&q);
    assert_false(route.chunk);
    assert_true(route.step_us > 24576.0 * 1536 / 2039e3); // not faster than the bytes
    assert_true(route.step_us > 1.3 * h200_us);
    // W8A16 of three slices of columns, by chunk tiles that fill most of a round or a part of one.
    rdi_sm90a_question w8a16 = {"gemm_fp8block_w8a16", 96, 14336, 5120, 132, {1980, 4917}};
    assert_true(rdi_sm90a_route_decide(&w8a16).chunk);
    w8a16.n = 2048;
    assert_false(rdi_sm90a_route_decide(&w8a16).chunk);
    w8a16.n = 128, w8a16.k = 16384; // many runs in one tile
    route = rdi_sm90a_route_decide(&w8a16);
    assert_true(!route.chunk && route.step_us > 0);
    q.rates.memory_gbs = 0; // unknown: no estimate, a step's rows
    assert_false(rdi_sm90a_route_decide(&q).chunk);
    q.m = 129;
    assert_true(rdi_sm90a_route_decide(&q).chunk);
    q = (rdi_sm90a_question){"gemm_fp8block", 128, 14336, 5120, 0,
                             {1980, 4917}}; // nor of a chip that is not known
    assert_true(rdi_sm90a_route_decide(&q).step_us == 0 && !rdi_sm90a_route_decide(&q).chunk);
}

// The card of the rule where none is named, and words for what it does not know.
static void test_sm90a_route_asked_by_name(void **state) {
    (void)state;
    const rd_param params[] = {RD_WORD("op", "gemm_fp8block"), RD_INT("M", 128), RD_INT("N", 14336),
                               RD_INT("K", 5120)},
                   other[] = {RD_WORD("op", "gemm_fp4"), params[1], params[2], params[3]};
    char outputs[3][64], rule[128];
    assert_int_equal(rd_policy_eval(NULL, "sm90a_route", params, 4, outputs, rule), RD_OK);
    assert_true(strtod(outputs[1], NULL) > 0 && strtod(outputs[2], NULL) > 0); // estimates: its chip is known
    assert_int_equal(rd_policy_eval(NULL, "sm90a_route", other, 4, outputs, rule), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "op=gemm_fp4, needs one of: gemm_fp8block"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_decode_geometry),
        cmocka_unit_test(test_vectors_decode_geometry_edges),
        cmocka_unit_test(test_vectors_draft_cap),
        cmocka_unit_test(test_vectors_draft_depth),
        cmocka_unit_test(test_vectors_gemm_route),
        cmocka_unit_test(test_vectors_lds_fit),
        cmocka_unit_test(test_vectors_prefill_config),
        cmocka_unit_test(test_vectors_preshuffle_bytes),
        cmocka_unit_test(test_vectors_preshuffle_contract),
        cmocka_unit_test(test_vectors_split_count),
        cmocka_unit_test(test_vectors_splitk_guard),
        cmocka_unit_test(test_vectors_a_wrong_row_is_found),
        cmocka_unit_test(test_bug_1_splitk_never_cuts_a_block),
        cmocka_unit_test(test_bug_2_lds_is_fitted_before_launch),
        cmocka_unit_test(test_bug_12_reduce_route_names_the_size),
        cmocka_unit_test(test_bug_18_splits_follow_the_launched_tile_and_batch),
        cmocka_unit_test(test_bug_19_width_11_at_gqa_6_is_not_wide),
        cmocka_unit_test(test_bug_34_geometry_keeps_no_state),
        cmocka_unit_test(test_bug_35_partition_has_no_empty_chunk),
        cmocka_unit_test(test_split_count_is_the_law),
        cmocka_unit_test(test_decode_geometry_of_wider_types),
        cmocka_unit_test(test_preshuffle_byte_is_a_permutation),
        cmocka_unit_test(test_rules_refuse_bad_inputs),
        cmocka_unit_test(test_device_picks_the_table),
        cmocka_unit_test(test_engine_share),
        cmocka_unit_test(test_sm90a_route_loses_little),
        cmocka_unit_test(test_sm90a_route_follows_the_chip),
        cmocka_unit_test(test_sm90a_route_asked_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
