// SPDX-License-Identifier: Apache-2.0
// Conversions against formulas written from the formats' definitions, in double: every code of every storage type, every
// rounding tie and its two neighbours, and random values.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "base/convert.h"
#include "base/dtype.h"

// A binary float format: sign, `exponent_bits`, `mantissa_bits`; the largest finite code without its sign, what lies above.
typedef struct format {
    const char *name;
    int exponent_bits, mantissa_bits, bias;
    uint32_t top;   // largest finite code
    uint32_t above; // code that values beyond it become: top = saturates, top + 1 = infinity
    float (*widen)(uint32_t code);
    uint32_t (*narrow)(float value);
} format;

static float widen_e4m3(uint32_t code) {
    return rdi_f32_from_e4m3((uint8_t)code);
}
static float widen_e5m2(uint32_t code) {
    return rdi_f32_from_e5m2((uint8_t)code);
}
static float widen_f16(uint32_t code) {
    return rdi_f32_from_f16((uint16_t)code);
}
static float widen_bf16(uint32_t code) {
    return rdi_f32_from_bf16((uint16_t)code);
}
static uint32_t narrow_e4m3(float value) {
    return rdi_e4m3_from_f32(value);
}
static uint32_t narrow_e5m2(float value) {
    return rdi_e5m2_from_f32(value);
}
static uint32_t narrow_f16(float value) {
    return rdi_f16_from_f32(value);
}
static uint32_t narrow_bf16(float value) {
    return rdi_bf16_from_f32(value);
}

static const format formats[] = {
    {"e4m3", 4, 3, 7, 0x7e, 0x7e, widen_e4m3, narrow_e4m3},
    {"e5m2", 5, 2, 15, 0x7b, 0x7c, widen_e5m2, narrow_e5m2},
    {"f16", 5, 10, 15, 0x7bff, 0x7c00, widen_f16, narrow_f16},
    {"bf16", 8, 7, 127, 0x7f7f, 0x7f80, widen_bf16, narrow_bf16},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static uint32_t sign_bit(const format *f) {
    return 1u << (f->exponent_bits + f->mantissa_bits);
}

// Value of a finite code without sign, also of top + 1 as if the exponent went on: the definition, in double.
static double magnitude_of(const format *f, uint32_t code) {
    uint32_t exponent = code >> f->mantissa_bits, mantissa = code & ((1u << f->mantissa_bits) - 1);
    if (!exponent) return ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
    return ldexp((1u << f->mantissa_bits) + mantissa, (int)exponent - f->bias - f->mantissa_bits);
}

static void test_convert_every_code(void **state) {
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (uint32_t code = 0; code < 2 * sign_bit(f); code++) {
            uint32_t bare = code & (sign_bit(f) - 1);
            float value = f->widen(code);
            if (bare > f->top) {
                bool infinite = f->above > f->top && bare == f->above;
                assert_true(infinite ? isinf(value) : isnan(value));
                assert_int_equal(signbit(value) != 0, code >= sign_bit(f));
                // A NaN stays a NaN of the same sign; an infinity stays one.
                uint32_t back = f->narrow(value);
                assert_true(infinite ? back == code
                                     : isnan(f->widen(back)) && (back & sign_bit(f)) == (code & sign_bit(f)));
                continue;
            }
            double magnitude = magnitude_of(f, bare);
            assert_true((double)value == (code >= sign_bit(f) ? -magnitude : magnitude));
            assert_int_equal(signbit(value) != 0, code >= sign_bit(f)); // -0 too
            assert_int_equal(f->narrow(value), code);
        }
    }
}

static void check_narrow(const format *f, float value, uint32_t expected) {
    if (f->narrow(value) == expected && f->narrow(-value) == (expected | sign_bit(f))) return;
    fail_msg("%s: %a became %#x, needs %#x", f->name, (double)value, f->narrow(value), expected);
}

static void test_convert_every_tie(void **state) {
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (uint32_t code = 0; code <= f->top; code++) {
            double low = magnitude_of(f, code), high = magnitude_of(f, code + 1);
            float tie = (float)((low + high) / 2);
            assert_true((double)tie == (low + high) / 2); // exact: a float has bits to spare
            uint32_t above = code == f->top ? f->above : code + 1, even = code % 2 ? above : code;
            check_narrow(f, nextafterf(tie, 0.0f), code);
            check_narrow(f, tie, even);
            check_narrow(f, nextafterf(tie, INFINITY), above);
        }
        check_narrow(f, INFINITY, f->above);
        check_narrow(f, 0x1.fffffep127f, f->above);
        check_narrow(f, 0x1p-149f, 0);
    }
}

// Nearest code by bisection over the definition, ties to the even one.
static uint32_t nearest(const format *f, double magnitude) {
    uint32_t low = 0, high = f->top + 1; // value(low) <= magnitude < value(high), unless beyond all
    if (magnitude >= magnitude_of(f, high)) return f->above;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (magnitude_of(f, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double below = magnitude - magnitude_of(f, low), over = magnitude_of(f, high) - magnitude;
    uint32_t up = high > f->top ? f->above : high;
    return below < over ? low : below > over ? up : low % 2 ? up : low;
}

static void test_convert_random_values(void **state) {
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int n = 0; n < 200000; n++) {
        uint32_t bits = ((uint32_t)rand() << 16 ^ (uint32_t)rand()) & 0x7fffffffu;
        float value = rdi_f32_from_bits(bits);
        if (isnan(value) || isinf(value)) continue;
        for (int i = 0; i < FORMATS; i++)
            check_narrow(&formats[i], value, nearest(&formats[i], (double)value));
    }
}

static void test_convert_e8m0(void **state) {
    (void)state;
    for (int code = 0; code < 255; code++) {
        float value = rdi_f32_from_e8m0((uint8_t)code);
        assert_true((double)value == ldexp(1, code - 127));
        assert_int_equal(rdi_e8m0_from_f32(value), code);
        // Not a power of two: the next one up, so that a scale never lets a quotient grow past its type's largest value.
        assert_int_equal(rdi_e8m0_from_f32(nextafterf(value, INFINITY)), code < 254 ? code + 1 : 254);
    }
    assert_true(isnan(rdi_f32_from_e8m0(0xff)));
    assert_int_equal(rdi_e8m0_from_f32(NAN), 0xff);
    assert_int_equal(rdi_e8m0_from_f32(-1.0f), 0xff);
    assert_int_equal(rdi_e8m0_from_f32(0.0f), 0xff);
    assert_int_equal(rdi_e8m0_from_f32(INFINITY), 0xff);
    assert_int_equal(rdi_e8m0_from_f32(0x1p-149f), 0);
}

static void test_convert_load_and_store(void **state) {
    (void)state;
    const rd_dtype types[] = {RD_DTYPE_F32,  RD_DTYPE_BF16, RD_DTYPE_F16,
                              RD_DTYPE_E4M3, RD_DTYPE_E5M2, RD_DTYPE_E8M0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        uint32_t buffer[4] = {0xa5a5a5a5u, 0xa5a5a5a5u, 0xa5a5a5a5u, 0xa5a5a5a5u};
        rdi_store_f32(buffer, types[i], 1, 0.25f); // a power of two: every type has it
        assert_true(rdi_load_f32(buffer, types[i], 1) == 0.25f);
        const unsigned char *bytes = (const unsigned char *)buffer;
        size_t size = rd_dtype_bytes(types[i]);
        for (size_t at = 0; at < sizeof buffer; at++)
            if (at < size || at >= 2 * size) assert_int_equal(bytes[at], 0xa5);
    }
}

static void test_dtype_aliases_fold(void **state) {
    (void)state;
    const struct {
        const char *text;
        rd_dtype dtype;
    } cases[] = {{"torch.bfloat16", RD_DTYPE_BF16}, {"bfloat16", RD_DTYPE_BF16},
                 {"bf16", RD_DTYPE_BF16},           {"fp8", RD_DTYPE_E4M3},
                 {"float8_e4m3fn", RD_DTYPE_E4M3},  {"torch.float8_e4m3fn", RD_DTYPE_E4M3},
                 {"fp8_e4m3", RD_DTYPE_E4M3},       {"half", RD_DTYPE_F16},
                 {"torch.float16", RD_DTYPE_F16},   {"float", RD_DTYPE_F32},
                 {"float32", RD_DTYPE_F32},         {"float8_e8m0fnu", RD_DTYPE_E8M0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rd_dtype dtype = RD_DTYPE_NONE;
        assert_int_equal(rdi_dtype_parse("a_dtype", cases[i].text, &dtype), RD_OK);
        assert_int_equal(dtype, cases[i].dtype);
    }
}

static void test_dtype_refuses_look_alikes_by_name(void **state) {
    (void)state;
    const char *const texts[] = {"e4m3fnuz", "float8_e4m3fnuz", "torch.float8_e4m3fnuz", "fp8_e5m2fnuz"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        rd_dtype dtype = RD_DTYPE_NONE;
        assert_int_equal(rdi_dtype_parse("a_dtype", texts[i], &dtype), RD_E_INVALID);
        assert_int_equal(dtype, RD_DTYPE_NONE);
        assert_non_null(strstr(rd_error_text(), texts[i]));
        assert_non_null(strstr(rd_error_text(), "different type"));
    }
    rd_dtype dtype;
    assert_int_equal(rdi_dtype_parse("a_dtype", "fp64", &dtype), RD_E_INVALID);
    assert_string_equal(rd_error_text(),
                        "a_dtype=fp64, needs one of: fp32 bf16 fp16 fp8_e4m3 fp8_e5m2 e8m0 i32 i64 u8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert_every_code),
        cmocka_unit_test(test_convert_every_tie),
        cmocka_unit_test(test_convert_random_values),
        cmocka_unit_test(test_convert_e8m0),
        cmocka_unit_test(test_convert_load_and_store),
        cmocka_unit_test(test_dtype_aliases_fold),
        cmocka_unit_test(test_dtype_refuses_look_alikes_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
