// SPDX-License-Identifier: Apache-2.0
// labels: slow
// Every gfx1201 row against its reference on the simulator, as `radiance check` does it: small shapes, or the whole grid with
// RADIANCE_TEST_FULL=1.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "radiance.h"
#include "run_cli.h"

static int32_t rows_of(const char *backend) {
    const rd_kernel_info *kernel;
    int32_t rows = 0;
    for (int32_t i = 0; (kernel = rd_kernel_at(i)) != NULL; i++) rows += !strcmp(kernel->backend, backend);
    return rows;
}

static void test_every_row_passes(void **state) {
    (void)state;
    static cli_result result;
    bool full = getenv("RADIANCE_TEST_FULL") != NULL;
    char summary[64];
    cli_run("", full ? "check --device sim:gfx1201 --full" : "check --device sim:gfx1201", &result);
    if (result.code == RD_E_NO_DEVICE || !rows_of("amd")) {
        print_message("%s", rows_of("amd") ? result.err : "built without the gfx1201 kernels\n");
        skip();
    }
    if (result.code) fail_msg("exit code %d\n%s%s", result.code, result.out, result.err);
    // No row may be left out by a question that none of its cases asks.
    snprintf(summary, sizeof summary, "\n%d rows, ", rows_of("amd"));
    if (strstr(result.out, "not run") || !strstr(result.out, summary)) fail_msg("%s", result.out);
    assert_non_null(strstr(result.out, " 0 failed, seed "));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_row_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
