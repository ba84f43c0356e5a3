// SPDX-License-Identifier: Apache-2.0
// GGUF files made here byte by byte: values, tensors, block types against their formulas, and hostile counts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/convert.h"
#include "model/files.h"
#include "support/gguf_writer.h"

static rd_status parse(gguf_writer *w, rdi_arena *arena, rdi_gguf *out) {
    uint8_t *exact = malloc(w->count ? w->count : 1); // exact block: ASan sees reads past the end
    memcpy(exact, w->bytes, w->count);
    free(w->bytes);
    w->bytes = exact;
    return rdi_gguf_parse(arena, "file", exact, w->count, out);
}

static void expect_refused(gguf_writer *w, const char *text) {
    rdi_arena arena = {0};
    rdi_gguf gguf;
    rd_status status = parse(w, &arena, &gguf);
    if (status != RD_E_FORMAT && status != RD_E_UNSUPPORTED)
        fail_msg("\"%s\": status %d, needs a refusal", text, status);
    if (!strstr(rd_error_text(), text)) fail_msg("\"%s\", needs \"%s\" in it", rd_error_text(), text);
    rdi_arena_free(&arena);
    free(w->bytes);
    *w = (gguf_writer){0};
}

static void test_gguf_reads_values(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_writer w = {0};
        rdi_arena arena = {0};
        rdi_gguf gguf;
        int64_t i;
        double real;
        const char *text;
        bool flag;
        gguf_begin(&w, version, 0, 5);
        gguf_kv_u32(&w, "n", 7);
        gguf_kv_f32(&w, "x", 1.5f);
        gguf_kv_text(&w, "t", "text");
        gguf_string(&w, "flag");
        gguf_u32(&w, 7);
        gguf_put(&w, "\1", 1);
        gguf_string(&w, "list");
        gguf_u32(&w, 9);
        gguf_u32(&w, 5); // i32
        gguf_u64(&w, 2);
        gguf_u32(&w, 3);
        gguf_u32(&w, (uint32_t)-4);
        assert_int_equal(parse(&w, &arena, &gguf), RD_OK);
        assert_int_equal(rdi_gguf_int(&gguf, "n", 0, 10, RDI_REQUIRED, &i), RD_OK);
        assert_int_equal(i, 7);
        assert_int_equal(rdi_gguf_int(&gguf, "n", 0, 6, RDI_REQUIRED, &i), RD_E_FORMAT);
        assert_int_equal(rdi_gguf_int(&gguf, "absent", 0, 6, 5, &i), RD_OK);
        assert_int_equal(i, 5);
        assert_int_equal(rdi_gguf_int(&gguf, "absent", 0, 6, RDI_REQUIRED, &i), RD_E_FORMAT);
        assert_int_equal(rdi_gguf_int(&gguf, "t", 0, 6, 5, &i), RD_E_FORMAT);
        assert_int_equal(rdi_gguf_real(&gguf, "x", 0, &real), RD_OK);
        assert_true(real == 1.5);
        assert_int_equal(rdi_gguf_text(&arena, &gguf, "t", NULL, &text), RD_OK);
        assert_string_equal(text, "text");
        assert_int_equal(rdi_gguf_bool(&gguf, "flag", false, &flag), RD_OK);
        assert_true(flag);
        const rdi_gguf_value *list = rdi_gguf_find(&gguf, "list");
        assert_int_equal(list->count, 2);
        assert_int_equal(rdi_gguf_array_int(list, 1), -4);
        rdi_arena_free(&arena);
        free(w.bytes);
    }
}

static void test_gguf_refuses_hostile_counts(void **state) {
    (void)state;
    gguf_writer w = {0};
    gguf_put(&w, "GGUX", 4);
    gguf_put(&w, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
    expect_refused(&w, "magic=");
    gguf_begin(&w, 1, 0, 0);
    expect_refused(&w, "version=1");
    gguf_begin(&w, 0x03000000, 0, 0);
    expect_refused(&w, "big-endian");
    gguf_begin(&w, 3, UINT64_MAX, 0);
    expect_refused(&w, "counts of");
    gguf_begin(&w, 3, 0, (uint64_t)1 << 60);
    expect_refused(&w, "counts of");
    gguf_begin(&w, 3, 0, 1); // a string longer than the file
    gguf_string(&w, "key");
    gguf_u32(&w, 8);
    gguf_u64(&w, UINT64_MAX);
    expect_refused(&w, "length=");
    gguf_begin(&w, 3, 0, 1); // an array longer than the file
    gguf_string(&w, "key");
    gguf_u32(&w, 9);
    gguf_u32(&w, 10);
    gguf_u64(&w, (uint64_t)1 << 61);
    expect_refused(&w, "array count=");
    gguf_begin(&w, 3, 0, 1); // arrays of arrays
    gguf_string(&w, "key");
    gguf_u32(&w, 9);
    gguf_u32(&w, 9);
    gguf_u64(&w, 1);
    expect_refused(&w, "array element type=9");
    gguf_begin(&w, 3, 0, 1);
    gguf_string(&w, "key");
    gguf_u32(&w, 13);
    gguf_u64(&w, 0);
    expect_refused(&w, "type=13");
    gguf_begin(&w, 3, 0, 2);
    gguf_kv_u32(&w, "key", 1);
    gguf_kv_u32(&w, "key", 2);
    expect_refused(&w, "key appears twice");
}

static void one_tensor(gguf_writer *w, uint32_t type, uint64_t rows, uint64_t cols, uint64_t offset,
                       size_t data_bytes) {
    gguf_begin(w, 3, 1, 0);
    gguf_tensor(w, "t", rows, cols, type, offset);
    gguf_pad(w, 32);
    for (size_t i = 0; i < data_bytes; i++) gguf_put(w, "", 1);
}

static void test_gguf_refuses_lying_tensors(void **state) {
    (void)state;
    gguf_writer w = {0};
    one_tensor(&w, 0, 0, 8, 0, 31);
    expect_refused(&w, "within the 31 bytes");
    one_tensor(&w, 0, 0, 8, 16, 64);
    expect_refused(&w, "multiple of general.alignment=32");
    one_tensor(&w, 0, 0, 8, (uint64_t)1 << 63, 64);
    expect_refused(&w, "offset=");
    one_tensor(&w, 3, 2, 33, 0, 64);
    expect_refused(&w, "multiple of 32");
    one_tensor(&w, 0, (uint64_t)1 << 40, (uint64_t)1 << 40, 0, 64);
    expect_refused(&w, "do not make a size");
    one_tensor(&w, 12, 0, 256, 0, 144);
    expect_refused(&w, "type=12 (Q4_K), needs one of");
    one_tensor(&w, 99, 0, 256, 0, 144);
    expect_refused(&w, "type=99 (unknown)");
    gguf_begin(&w, 3, 2, 0);
    gguf_tensor(&w, "a", 0, 16, 0, 0);
    gguf_tensor(&w, "b", 0, 16, 0, 32);
    gguf_pad(&w, 32);
    gguf_put(&w, (uint8_t[96]){0}, 96);
    expect_refused(&w, "b begins at byte 32 inside tensor a");
    gguf_begin(&w, 3, 2, 0);
    gguf_tensor(&w, "a", 0, 8, 0, 0);
    gguf_tensor(&w, "a", 0, 8, 0, 32);
    gguf_pad(&w, 32);
    gguf_put(&w, (uint8_t[64]){0}, 64);
    expect_refused(&w, "a appears twice");
}

// One row of two blocks with every nibble or byte value, against the formulas of the types.
static void test_gguf_block_types(void **state) {
    (void)state;
    static const struct {
        uint32_t ggml;
        rdi_wtype type;
        int bytes;
    } rows[] = {{2, RDI_W_Q4_0, 18}, {3, RDI_W_Q4_1, 20}, {8, RDI_W_Q8_0, 34}};
    for (size_t t = 0; t < RDI_COUNT(rows); t++) {
        uint8_t data[68];
        float want[64], got[64];
        for (int block = 0; block < 2; block++) {
            uint8_t *at = data + block * rows[t].bytes;
            double d = block ? -0.375 : 0.0078125, m = block ? 2.5 : -0.0625;
            uint16_t d16 = rdi_f16_from_f32((float)d), m16 = rdi_f16_from_f32((float)m);
            memcpy(at, &d16, 2);
            if (rows[t].type == RDI_W_Q4_1) memcpy(at + 2, &m16, 2);
            for (int i = 0; i < 32; i++) {
                int code = (i * 7 + block * 3) % 16;
                if (rows[t].type == RDI_W_Q8_0) {
                    int8_t byte = (int8_t)(i * 8 - 128 + block);
                    at[2 + i] = (uint8_t)byte;
                    want[block * 32 + i] = (float)(d * byte);
                    continue;
                }
                uint8_t *nibbles = at + (rows[t].type == RDI_W_Q4_1 ? 4 : 2);
                if (i < 16)
                    nibbles[i] = (uint8_t)code; // low nibbles hold the first half
                else
                    nibbles[i - 16] |= (uint8_t)(code << 4);
                want[block * 32 + i] = (float)(rows[t].type == RDI_W_Q4_1 ? d * code + m : d * (code - 8));
            }
        }
        rdi_weight weight = {.data = data,
                             .type = rows[t].type,
                             .rank = 2,
                             .rows = 1,
                             .cols = 64,
                             .row_bytes = 2 * rows[t].bytes};
        rdi_weight_rows_f32(&weight, 0, 1, got);
        for (int i = 0; i < 64; i++) assert_true(got[i] == want[i]);
    }
}

// llama-type files store each head's rows as (pair, half): from the converter's reshape(heads, 2, dim/2).swapaxes(1, 2).
static void test_gguf_rope_permutation_undone(void **state) {
    (void)state;
    enum { HEADS = 3, DIM = 8 };
    float stored[HEADS * DIM], row[1];
    for (int head = 0; head < HEADS; head++)
        for (int half = 0; half < 2; half++)
            for (int pair = 0; pair < DIM / 2; pair++)
                stored[head * DIM + pair * 2 + half] =
                    (float)(head * DIM + half * (DIM / 2) + pair); // holds its logical row
    rdi_weight weight = {.data = stored,
                         .type = RDI_W_F32,
                         .rank = 2,
                         .rows = HEADS * DIM,
                         .cols = 1,
                         .row_bytes = 4,
                         .permuted_head_dim = DIM};
    for (int i = 0; i < HEADS * DIM; i++) {
        rdi_weight_rows_f32(&weight, i, 1, row);
        assert_true(row[0] == (float)i);
    }
    assert_null(
        rdi_weight_tensor(&weight).data); // kernels must not take the stored order for the logical one
}

static void test_weight_block_fp8_scales(void **state) {
    (void)state;
    enum { ROWS = 130, COLS = 200 };
    static uint8_t codes[ROWS * COLS];
    static float row[COLS];
    const float f32_scales[4] = {0.5f, 2.0f, 0.25f, 8.0f};
    const uint8_t e8m0_scales[4] = {126, 128, 125, 130};
    uint16_t bf16_scales[4];
    for (int i = 0; i < 4; i++) bf16_scales[i] = rdi_bf16_from_f32(f32_scales[i]);
    for (int i = 0; i < ROWS * COLS; i++) codes[i] = (uint8_t)(i % 127); // no NaN
    const void *scales[] = {f32_scales, e8m0_scales, bf16_scales};
    const rdi_wtype types[] = {RDI_W_F32, RDI_W_E8M0, RDI_W_BF16};
    for (int t = 0; t < 3; t++) {
        rdi_weight w = {.data = codes,
                        .type = RDI_W_E4M3,
                        .rank = 2,
                        .rows = ROWS,
                        .cols = COLS,
                        .row_bytes = COLS,
                        .scale = scales[t],
                        .scale_type = types[t]};
        float widened[4];
        rdi_weight_scales_f32(&w, widened);
        assert_memory_equal(widened, f32_scales, sizeof widened);
        for (int r = 0; r < ROWS; r += 129) {
            rdi_weight_rows_f32(&w, r, 1, row);
            for (int k = 0; k < COLS; k++)
                assert_true(row[k] ==
                            rdi_f32_from_e4m3(codes[r * COLS + k]) * f32_scales[r / 128 * 2 + k / 128]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_reads_values),
        cmocka_unit_test(test_gguf_refuses_hostile_counts),
        cmocka_unit_test(test_gguf_refuses_lying_tensors),
        cmocka_unit_test(test_gguf_block_types),
        cmocka_unit_test(test_gguf_rope_permutation_undone),
        cmocka_unit_test(test_weight_block_fp8_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
