// SPDX-License-Identifier: Apache-2.0
// safetensors files made here byte by byte: what is accepted, and each lie that must be refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "model/files.h"

// Parses header + data_bytes zero bytes from an exact heap block, so that ASan sees a read past the end.
static rd_status parse_raw(uint64_t header_length, const char *header, size_t data_bytes, rdi_arena *arena,
                           rdi_entries *out, uint8_t **block) {
    size_t bytes = 8 + strlen(header) + data_bytes;
    *block = calloc(1, bytes);
    for (int i = 0; i < 8; i++) (*block)[i] = (uint8_t)(header_length >> (8 * i));
    memcpy(*block + 8, header, strlen(header));
    return rdi_safetensors_parse(arena, "file", *block, bytes, out);
}

static void expect_refused(const char *header, size_t data_bytes, const char *text) {
    rdi_arena arena = {0};
    rdi_entries entries;
    uint8_t *block;
    rd_status status = parse_raw(strlen(header), header, data_bytes, &arena, &entries, &block);
    if (status != RD_E_FORMAT) fail_msg("%s: status %d, needs a format error", header, status);
    if (!strstr(rd_error_text(), text))
        fail_msg("%s: \"%s\", needs \"%s\" in it", header, rd_error_text(), text);
    rdi_arena_free(&arena);
    free(block);
}

static void test_safetensors_reads_entries(void **state) {
    (void)state;
    rdi_arena arena = {0};
    rdi_entries entries;
    uint8_t *block;
    const char *header =
        "{\"b\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[16,28]},\"__metadata__\":{\"x\":\"y\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}  ";
    assert_int_equal(parse_raw(strlen(header), header, 28, &arena, &entries, &block), RD_OK);
    assert_int_equal(entries.count, 2);
    const rdi_entry *b = rdi_entries_find(&entries, "b");
    assert_non_null(b);
    assert_int_equal(b->type, RDI_W_BF16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 3);
    assert_int_equal(b->shape[1], 2);
    assert_ptr_equal(b->data, block + 8 + strlen(header) + 16);
    assert_null(rdi_entries_find(&entries, "c"));
    rdi_arena_free(&arena);
    free(block);
}

static void test_safetensors_every_dtype(void **state) {
    (void)state;
    static const struct {
        const char *name;
        rdi_wtype type;
        int bytes;
    } rows[] = {{"F32", RDI_W_F32, 4},      {"F16", RDI_W_F16, 2},      {"BF16", RDI_W_BF16, 2},
                {"F8_E4M3", RDI_W_E4M3, 1}, {"F8_E8M0", RDI_W_E8M0, 1}, {"I32", RDI_W_I32, 4},
                {"I64", RDI_W_I64, 8},      {"U8", RDI_W_U8, 1}};
    for (size_t i = 0; i < RDI_COUNT(rows); i++) {
        char header[128];
        rdi_arena arena = {0};
        rdi_entries entries;
        uint8_t *block;
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[5],\"data_offsets\":[0,%d]}}",
                 rows[i].name, 5 * rows[i].bytes);
        assert_int_equal(
            parse_raw(strlen(header), header, 5 * (size_t)rows[i].bytes, &arena, &entries, &block), RD_OK);
        assert_int_equal(entries.entry[0].type, rows[i].type);
        rdi_arena_free(&arena);
        free(block);
    }
}

#define ONE(dtype_, shape_, begin_, end_)                                                                    \
    "{\"t\":{\"dtype\":\"" dtype_ "\",\"shape\":" shape_ ",\"data_offsets\":[" begin_ "," end_ "]}}"

static void test_safetensors_refuses_lies(void **state) {
    (void)state;
    expect_refused(ONE("F32", "[4]", "0", "16"), 15, "end within the 15 bytes");
    expect_refused(ONE("F32", "[4]", "0", "12"), 12, "shape x dtype");
    expect_refused(ONE("F32", "[3,4294967296,4294967296]", "0", "12"), 12, "shape x dtype");
    expect_refused(ONE("F32", "[-1]", "0", "4"), 4, "shape[0]");
    expect_refused(ONE("F32", "[1.5]", "0", "4"), 4, "shape[0]");
    expect_refused(ONE("F32", "[1,1,1,1,1]", "0", "4"), 4, "at most 4");
    expect_refused(ONE("F32", "[1]", "4", "0"), 4, "data_offsets");
    expect_refused(ONE("F32", "[1]", "9223372036854775807", "9223372036854775811"), 4, "data_offsets");
    expect_refused(ONE("F8_E4M3FNUZ", "[1]", "0", "1"), 1, "dtype=F8_E4M3FNUZ");
    expect_refused(ONE("F64", "[1]", "0", "8"), 8, "needs one of F32");
    expect_refused(ONE("F32", "[1]", "0", "4"), 8, "cover 4 bytes"); // bytes that no tensor owns
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\","
                   "\"shape\":[4],"
                   "\"data_offsets\":[2,6]}}",
                   6, "b begins at byte 2 inside tensor a");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\","
                   "\"shape\":[1],"
                   "\"data_offsets\":[1,2]}}",
                   2, "a appears twice");
    expect_refused("{\"a\":7}", 0, "is an integer");
    expect_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype=");
    expect_refused("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "name of 0 bytes");
    expect_refused("[]", 0, "needs an object");
    expect_refused("{\"a\":", 0, "JSON");
    expect_refused("{\"\xff\":1}", 0, "UTF-8");
}

static void test_safetensors_refuses_header_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3, 1000, 100000001, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < RDI_COUNT(lengths); i++) {
        rdi_arena arena = {0};
        rdi_entries entries;
        uint8_t *block;
        assert_int_equal(parse_raw(lengths[i], "{}", 0, &arena, &entries, &block), RD_E_FORMAT);
        assert_non_null(strstr(rd_error_text(), "header length="));
        rdi_arena_free(&arena);
        free(block);
    }
    rdi_arena arena = {0};
    rdi_entries entries;
    assert_int_equal(rdi_safetensors_parse(&arena, "file", (const uint8_t *)"1234567", 7, &entries),
                     RD_E_FORMAT);
    rdi_arena_free(&arena);
}

static void test_safetensors_every_truncation(void **state) {
    (void)state;
    const char *header = ONE("F32", "[2]", "0", "8");
    size_t bytes = 8 + strlen(header) + 8;
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *block = calloc(1, cut ? cut : 1);
        uint8_t whole[256] = {(uint8_t)strlen(header)};
        memcpy(whole + 8, header, strlen(header));
        memcpy(block, whole, cut);
        rdi_arena arena = {0};
        rdi_entries entries;
        assert_int_equal(rdi_safetensors_parse(&arena, "file", block, cut, &entries), RD_E_FORMAT);
        rdi_arena_free(&arena);
        free(block);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors_reads_entries),
        cmocka_unit_test(test_safetensors_every_dtype),
        cmocka_unit_test(test_safetensors_refuses_lies),
        cmocka_unit_test(test_safetensors_refuses_header_lengths),
        cmocka_unit_test(test_safetensors_every_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
