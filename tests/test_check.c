// SPDX-License-Identifier: Apache-2.0
// radiance check: its comparison must find what is wrong, and the command must pass over the rows that are cheap to run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../src/cli/check_case.c"
#include "../src/cli/check_numbers.c"

rd_status cli_error(rd_status status, const char *format, ...) {
    (void)format;
    return status;
}
bool cli_interrupted(void) {
    return false;
}

static check_output output_of(check_judge judge, double limit, double least, float *got, float *want,
                              int64_t count) {
    return (check_output){
        .judge = judge, .limit = limit, .least = least, .count = count, .got = got, .want = want};
}

static void test_check_judges(void **state) {
    (void)state;
    float want[4] = {1, -2, 4, 1}, same[4] = {1, -2, 4, 1}, off[4] = {1, -2, 4.5f, 1},
          bad[4] = {1, -2, NAN, 1};
    float inf[4] = {1, -2, INFINITY, 1};
    check_output o = output_of(CHECK_MEAN, 1e-3, 0, same, want, 4);
    assert_true(judged_error(&o) == 0);
    o.got = off;
    assert_true(fabs(judged_error(&o) - 0.5 / 8 / 1e-3) < 1e-9);
    o.got = bad;
    assert_true(isinf(judged_error(&o)));
    o = output_of(CHECK_CLOSE, 0.1, 0.2, off, want, 4);
    assert_true(fabs(judged_error(&o) - 0.5 / 0.6) < 1e-9);
    o.got = inf;
    assert_true(judged_error(&o) > 1);
    o.want = inf;
    assert_true(judged_error(&o) == 0);
    o = output_of(CHECK_CODES, 0.25, 0, off, want, 4);
    assert_true(judged_error(&o) == 1); // one of four, by less than a step
    off[0] = 3;
    assert_true(isinf(judged_error(&o)));
    o = output_of(CHECK_SHARE, 0, 1, off, want, 4);
    assert_true(judged_error(&o) == 2);
    o = output_of(CHECK_SHARE, 0, 0, off, want, 4);
    assert_true(isinf(judged_error(&o)));
}

static void test_check_order_classes(void **state) {
    (void)state;
    float got[2] = {1, NAN}, first[2];
    check_output o = {.count = 2, .got = got, .first = first};
    assert_int_equal(class_difference(&o, "cpu"), -1);
    assert_int_equal(class_difference(&o, "cpu"), -1);
    got[0] = 1 + 0x1p-23f;
    assert_int_equal(class_difference(&o, "cpu"), 0);
    assert_int_equal(class_difference(&o, "other"), -1);
}

// A seed's numbers are the same whatever number of threads draws them: here against one after the other.
static void test_check_numbers(void **state) {
    (void)state;
    const int64_t count = 5 * least_elems_of_a_thread + 13;
    uint64_t all = 7, one = 7;
    float *values = check_values(&all, RD_DTYPE_F32, count, 2);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        if (values[i] != 2 * check_normal(&one)) fail_msg("value %lld", (long long)i);
    assert_int_equal(all, one);
    free(values);
    uint8_t *codes = check_codes(&all, count);
    assert_non_null(codes);
    for (int64_t i = 0; i < count; i += 8) {
        const uint64_t eight = check_random(&one);
        for (int c = 0; c < 8 && i + c < count; c++) {
            uint8_t want = (uint8_t)(eight >> 8 * c);
            if ((want & 0x7f) == 0x7f) want--; // NaN
            if (codes[i + c] != want) fail_msg("code %lld", (long long)(i + c));
        }
    }
    assert_int_equal(all, one);
    free(codes);
}

static void test_check_command(void **state) {
    (void)state;
    char line[512];
    FILE *out = popen(RD_CLI " check --op kv_write --threads 2 --seed 7", "r");
    bool rows = false, summary = false;
    assert_non_null(out);
    while (fgets(line, sizeof line, out)) {
        rows |= strstr(line, "kv_write_cpu_portable") && strstr(line, " ok, 40 cases");
        summary |= strstr(line, " 0 failed, seed 7") != NULL;
    }
    assert_int_equal(pclose(out), 0);
    assert_true(rows && summary);
    assert_int_equal(system(RD_CLI " check --op nonsense 2>/dev/null") >> 8, RD_E_INVALID);
    assert_int_equal(system(RD_CLI " check --op kv_write --device h200-sm90a 2>/dev/null") >> 8,
                     RD_E_NO_DEVICE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_judges),
        cmocka_unit_test(test_check_order_classes),
        cmocka_unit_test(test_check_numbers),
        cmocka_unit_test(test_check_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
