// SPDX-License-Identifier: Apache-2.0
// Conversions against formulas written from the formats' definitions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/convert.h"

static void test_convert_e4m3_values(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++) {
        int exponent = (code >> 3) & 15, mantissa = code & 7;
        double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
        float value = rdi_f32_from_e4m3((uint8_t)code);
        if ((code & 0x7f) == 0x7f) {
            assert_true(isnan(value));
            continue;
        }
        assert_true((double)value == (code & 0x80 ? -magnitude : magnitude));
        assert_int_equal(rdi_e4m3_from_f32(value), code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_convert_e4m3_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
