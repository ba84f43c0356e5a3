// SPDX-License-Identifier: Apache-2.0
// The sm_90a geometries at the ends of what their ops let through, without a card: axes of up to 2^31 - 4096, cards of one to 132
// multiprocessors and one of 300. Each call is refused with a text that names a field, or every launch is one that a driver takes;
// nothing overflows (the sanitizer suite runs this too). And shapes beyond what one axis of a grid holds, which must be taken.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/code_objects.h"
#include "kernels/attn/args.h"
#include "kernels/attn/sm90a_prefill_args.h"
#include "kernels/common/sm90a_skinny.h"
#include "kernels/elementwise/args.h"
#include "kernels/quant_fp8/args.h"
#include "kernels/rows.h"
#include "support/gemm_args.h"

static const int64_t HUGE_AXIS = RDI_CARD_EXTENT_MAX;
static const int64_t sizes[] = {
    1, 2, 127, 129, 4096, 65535, 65536, (int64_t)1 << 27, (int64_t)1 << 30, RDI_CARD_EXTENT_MAX};
static const int32_t cards[] = {1, 2, 3, 16, 114, 132, 300};
static int64_t taken, refused;

// Threads, registers' worth of blocks and shared memory of compute capability 9.0; axes of a grid.
static void check_launches(const rdi_launch *launch, int32_t count) {
    assert_in_range(count, 1, RDI_MAX_LAUNCHES);
    for (int32_t i = 0; i < count; i++, launch++) {
        const uint32_t most[3] = {INT32_MAX, 65535, 65535};
        for (int axis = 0; axis < 3; axis++)
            if (launch->grid[axis] < 1 || launch->grid[axis] > most[axis])
                fail_msg("%s: grid[%d]=%u", launch->kernel, axis, launch->grid[axis]);
        assert_in_range(launch->block[0], 1, 1024);
        assert_in_range(launch->shared_bytes, 0, 227 * 1024);
        for (uint32_t m = 0; m < launch->map_count; m++)
            for (uint32_t axis = 0; axis < launch->map[m].rank; axis++) {
                assert_in_range(launch->map[m].dim[axis], 1, (uint64_t)1 << 32);
                assert_in_range(launch->map[m].box[axis], 1, 256);
                assert_true(axis == 0 || launch->map[m].stride_bytes[axis] < (uint64_t)1 << 40);
            }
    }
}

// Every row of `op` on every card.
static void run_rows(const char *op, const void *args, int64_t m, int64_t k) {
    for (int32_t r = 0; r < rdi_row_count; r++) {
        const rdi_row *row = &rdi_rows[r];
        if (row->backend != RDI_BACKEND_NVIDIA || strcmp(row->info.op, op)) continue;
        if (strstr(row->info.name, "_step_") && m > 128) continue; // constraints of rows
        if (strstr(row->info.name, "quant_fp8_norm_") && k > 16384) continue;
        for (size_t c = 0; c < RDI_COUNT(cards); c++) {
            const rd_device_info device = {.compute_units = cards[c]};
            rdi_launch out[RDI_MAX_LAUNCHES];
            if (row->ws_bytes) row->ws_bytes(args, cards[c]);
            const int32_t count = row->geometry(args, (void *)4096, &device, out);
            if (count) {
                check_launches(out, count);
                taken++;
            } else { // "op: field ... seen ... needed"
                assert_non_null(strstr(rd_error_text(), ": "));
                assert_non_null(strpbrk(rd_error_text(), "0123456789"));
                refused++;
            }
        }
    }
}

static void test_gemms(void **state) {
    (void)state;
    static const struct {
        const char *op;
        rd_dtype a, w;
        rdi_weight_layout layout;
    } ops[] = {{"gemm_fp8block", RD_DTYPE_E4M3, RD_DTYPE_E4M3, RDI_LAYOUT_ROW},
               {"gemm_fp8block", RD_DTYPE_E4M3, RD_DTYPE_E4M3, RDI_LAYOUT_TILE64},
               {"gemm_fp8block_w8a16", RD_DTYPE_BF16, RD_DTYPE_E4M3, RDI_LAYOUT_ROW},
               {"gemm_fp8block_w8a16", RD_DTYPE_F32, RD_DTYPE_E4M3, RDI_LAYOUT_ROW},
               {"gemm_bf16", RD_DTYPE_BF16, RD_DTYPE_BF16, RDI_LAYOUT_ROW},
               {"gemm_bf16", RD_DTYPE_F32, RD_DTYPE_BF16, RDI_LAYOUT_ROW}};
    for (size_t o = 0; o < RDI_COUNT(ops); o++)
        for (size_t i = 0; i < RDI_COUNT(sizes) * RDI_COUNT(sizes) * RDI_COUNT(sizes); i++) {
            const int64_t m = sizes[i % RDI_COUNT(sizes)], n = sizes[i / RDI_COUNT(sizes) % RDI_COUNT(sizes)],
                          k = sizes[i / RDI_COUNT(sizes) / RDI_COUNT(sizes)];
            rdi_gemm_args a = gemm_args(m, n, k, ops[o].a, ops[o].w);
            a.layout = ops[o].layout;
            run_rows(ops[o].op, &a, m, k);
        }
}

static void test_attention(void **state) {
    (void)state;
    static const int64_t head_dims[] = {64, 512}, counts[] = {1, 17, 65536, RDI_CARD_EXTENT_MAX};
    enum { COUNTS = RDI_COUNT(counts) };
    for (size_t i = 0; i < 2 * COUNTS * COUNTS * COUNTS * COUNTS; i++) {
        size_t at = i / 2;
        rdi_attn_args a = {.head_dim = head_dims[i % 2], .block_tokens = 16, .blocks = 64};
        a.seqs = counts[at % COUNTS], at /= COUNTS;
        a.tokens = a.max_q_len = counts[at % COUNTS], at /= COUNTS;
        a.kv_heads = counts[at % COUNTS], at /= COUNTS;
        a.max_blocks = counts[at] / 16 + 1;
        a.q_heads = a.kv_heads <= HUGE_AXIS / 8 ? a.kv_heads * 8 : a.kv_heads;
        a.q = a.k_cache = a.v_cache = (void *)65536, a.out = (void *)65536;
        a.q_stride_head = a.out_stride_head = a.k_stride_head = a.v_stride_head = a.head_dim;
        a.k_stride_token = a.v_stride_token = a.head_dim * a.kv_heads;
        a.q_stride_token = a.out_stride_token = a.head_dim * a.q_heads;
        a.k_stride_block = a.v_stride_block = a.k_stride_token * a.block_tokens;
        a.k_stride_dim = a.v_stride_dim = 1;
        a.q_dtype = a.out_dtype = RD_DTYPE_BF16;
        a.kv_dtype = i % 3 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
        a.scale = 1;
        run_rows("attn_decode", &a, 1, 1);
        run_rows("attn_prefill", &a, 1, 1);
    }
}

static void test_small_ops(void **state) {
    (void)state;
    for (size_t i = 0; i < RDI_COUNT(sizes) * RDI_COUNT(sizes); i++) {
        const int64_t m = sizes[i % RDI_COUNT(sizes)], k = sizes[i / RDI_COUNT(sizes)];
        rdi_quant_args quant = {.m = m, .k = k, .x_dtype = RD_DTYPE_BF16, .x_stride = k};
        quant.norm_dtype = RD_DTYPE_F32;
        run_rows("quant_fp8", &quant, m, k);
        rdi_act_mul_args act = {.m = m, .k = k, .x_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16};
        run_rows("act_mul", &act, m, k);
        rdi_embed_args embed = {.tokens = m, .k = k, .table_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16};
        run_rows("embed", &embed, m, k);
        rdi_sample_args sample = {.rows = m, .vocab = rdi_min(k, 524288)}; // a constraint of the row
        run_rows("sample", &sample, m, k);
        rdi_rmsnorm_args norm = {
            .m = m, .k = rdi_min(k, 16384), .x_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16};
        norm.weight_dtype = RD_DTYPE_BF16;
        run_rows("rmsnorm", &norm, m, k);
        rdi_rope_kv_write_args both = {
            .rope = {.tokens = m, .q_heads = k, .k_heads = k, .head_dim = 128, .rotary_dim = 128},
            .kv = {.tokens = m, .kv_heads = k, .head_dim = 128, .blocks = 1, .block_tokens = 16}};
        both.rope.q_dtype = both.rope.k_dtype = both.kv.x_dtype = RD_DTYPE_BF16;
        both.kv.kv_dtype = RD_DTYPE_E4M3;
        run_rows("rope", &both.rope, m, k);
        run_rows("kv_write", &both.kv, m, k);
        run_rows("rope_kv_write", &both, m, k);
    }
}

// ---- shapes that one axis of a grid does not hold ------------------------------------------------------------------------
static const rd_device_info h200 = {.compute_units = 132};

// 2^27 + 1 weight rows of 16: more tiles than the second axis has blocks. Ranges take whole tiles, some one more than others.
static void test_columns_beyond_a_grid(void **state) {
    (void)state;
    const struct {
        const char *row;
        int64_t rows; // of a tile
        rd_dtype w;
    } cases[] = {{"gemm_fp8block_w8a16_chunk_sm90a", 128, RD_DTYPE_E4M3},
                 {"gemm_bf16_chunk_sm90a", 256, RD_DTYPE_BF16}};
    for (size_t i = 0; i < RDI_COUNT(cases); i++)
        for (int over = -1; over <= 1; over++) {
            const int64_t n = over > 0 ? ((int64_t)1 << 27) + 1 : (65535 + over + 1) * cases[i].rows,
                          tiles = (n + cases[i].rows - 1) / cases[i].rows;
            rdi_gemm_args a = gemm_args(300, n, 16, RD_DTYPE_BF16, cases[i].w);
            rdi_launch out[RDI_MAX_LAUNCHES];
            const rdi_row *row = NULL;
            for (int32_t r = 0; r < rdi_row_count; r++)
                if (!strcmp(rdi_rows[r].info.name, cases[i].row)) row = &rdi_rows[r];
            if (!row) skip(); // built without nvcc
            assert_int_equal(row->geometry(&a, (void *)4096, &h200, out), 1);
            check_launches(out, 1);
            rdk_skinny_args args;
            memcpy(&args, out[0].args, sizeof args);
            assert_int_equal(args.ranges, tiles < 65535 ? tiles : 65535);
            assert_int_equal(out[0].grid[1], args.ranges);
            assert_int_equal((int64_t)args.ranges * args.range_shares + args.range_rest,
                             tiles); // each tile once, whole
            assert_int_equal(args.share_units, args.k_blocks);
            assert_int_equal(row->ws_bytes(&a, 132), 0);
        }
}

// More rows or tokens than the second axis has blocks: they are the first.
static void test_rows_beyond_a_grid(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    const int64_t rows = 131072;
    const rdi_act_mul_args act = {.m = rows, .k = 25600, .x_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16};
    assert_int_equal(rdi_act_mul_sm90a_geometry(&act, NULL, &h200, out), 1);
    assert_int_equal(out[0].grid[0], rows);
    assert_int_equal(out[0].grid[1], 25); // of 1024
    const rdi_embed_args embed = {
        .tokens = rows, .k = 5120, .table_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16};
    assert_int_equal(rdi_embed_sm90a_geometry(&embed, NULL, &h200, out), 1);
    assert_int_equal(out[0].grid[0], rows);
    assert_int_equal(out[0].grid[1], 5);
    const rdi_kv_write_args kv = {.tokens = rows,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .blocks = 8192,
                                  .block_tokens = 16,
                                  .x_dtype = RD_DTYPE_BF16,
                                  .kv_dtype = RD_DTYPE_E4M3};
    assert_int_equal(rdi_kv_write_sm90a_geometry(&kv, NULL, &h200, out), 1);
    assert_int_equal(out[0].grid[0], rows);
    assert_int_equal(out[0].grid[1], 1);
}

// The last that fits is taken, the first that does not is refused by name.
static void test_words_of_a_refusal(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    for (int64_t over = 0; over < 2; over++) {
        const rdi_act_mul_args act = {
            .m = 1, .k = 65535 * 1024 + over, .x_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16};
        assert_int_equal(rdi_act_mul_sm90a_geometry(&act, NULL, &h200, out), !over);
    }
    assert_string_equal(rd_error_text(), "act_mul: k=67107841, a launch on this card takes up to 67107840");
    rdi_gemm_args wide = gemm_args(1 << 28, 1 << 28, 1 << 28, RD_DTYPE_E4M3, RD_DTYPE_E4M3);
    assert_int_equal(rdi_gemm_chunk_sm90a_geometry(&wide, NULL, &h200, out), 0);
    assert_non_null(strstr(rd_error_text(), "gemm: c: tiles="));
}

static void test_both_outcomes_were_seen(void **state) {
    (void)state;
    if (!rdi_code_object_find("sm90a_gemm_step")) skip(); // built without nvcc: no rows
    assert_true(taken > 10000 && refused > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemms),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_small_ops),
        cmocka_unit_test(test_columns_beyond_a_grid),
        cmocka_unit_test(test_rows_beyond_a_grid),
        cmocka_unit_test(test_words_of_a_refusal),
        cmocka_unit_test(test_both_outcomes_were_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
