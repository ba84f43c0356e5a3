// SPDX-License-Identifier: Apache-2.0
// bench/fit_sm90a_route.py on files that are no sweep: each is refused with the line or the argument and what is needed, none with a
// stack trace, and none is passed over. Skipped without python3.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/base.h"
#include "run_cli.h"
#include "support/files.h"

static scratch folder;
static cli_result result;

static void fit(const char *csv, const char *more) {
    char command[1024], out[192], in[192];
    snprintf(out, sizeof out, "%s", scratch_path(&folder, "out.txt"));
    snprintf(in, sizeof in, "%s", scratch_path(&folder, "sweep.csv"));
    file_write(in, csv, strlen(csv));
    snprintf(command, sizeof command, "timeout 60 python3 '%s/../bench/fit_sm90a_route.py' '%s' %s > %s 2>&1",
             RD_TEST_DIR, in, more, out);
    const int status = system(command);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    cli_read_file(out, result.out, sizeof result.out);
}

#define HEAD              "kernel,m,n,k,us\n"
#define BOTH(n_, k_, us_) "x_step_y,32," #n_ "," #k_ "," #us_ "\nx_chunk_y,32," #n_ "," #k_ ",9\n"

static void test_refusals(void **state) {
    (void)state;
    if (system("command -v python3 > /dev/null")) skip();
    static const struct {
        const char *csv, *more, *words;
    } cases[] = {
        {"", "", "no row count from 32 on"},
        {HEAD, "", "no row count from 32 on"},
        {"m,n\n1,2\n", "", "line 2: KeyError('k'), needs columns kernel, m, n, k and us"},
        {HEAD "x_step_y,32\n", "", "line 2: "},
        {HEAD "x_step_y,32,64,128,nan\n", "", "us=nan, needs numbers above 0"},
        {HEAD "x_step_y,32,64,0,1\n", "", "k=0 us=1.0, needs numbers above 0"},
        {HEAD "x_step_y,32,64,128,1\n", "", "m=32, 64x128: class step alone, needs step and chunk"},
        {HEAD BOTH(64, 128, 1) BOTH(64, 256, 2), "", "m=32: 2 shapes, needs three of different sizes"},
        {HEAD BOTH(64, 256, 1) BOTH(128, 128, 2) BOTH(256, 128, 2), "", "m=32: 3 shapes, needs three of"},
        {HEAD, "132 1980",
         "usage: fit_sm90a_route.py SWEEP.csv [SMS CLOCK_MHZ MEMORY_GBS]"}, // not the default
        {HEAD, "0 1980 4917", "needs numbers above 0"},
        {HEAD, "132 x 4917", "needs numbers: SMS CLOCK_MHZ MEMORY_GBS"},
    };
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        fit(cases[i].csv, cases[i].more);
        if (result.code != 1 || !strstr(result.out, cases[i].words) || strstr(result.out, "Traceback"))
            fail_msg("case %zu: exit code %d, needs 1 and \"%s\":\n%s", i, result.code, cases[i].words,
                     result.out);
    }
}

// Times of four depths of one width, made by the rule's own form: 2 us, and 1 us for each unit of a multiprocessor. The share of
// the merge cannot be told there from what every call takes, and the fit must find these two.
static void test_one_width(void **state) {
    (void)state;
    if (system("command -v python3 > /dev/null")) skip();
    fit(HEAD BOTH(8448, 128, 3) BOTH(8448, 256, 4) BOTH(8448, 512, 6) BOTH(8448, 1024, 10), "132 1000 1e6");
    if (result.code || !strstr(result.out, "{OP, 32, 2.000, 1000.0, 0.000, "))
        fail_msg("exit code %d:\n%s", result.code, result.out);
}

static int make_folder(void **state) {
    (void)state;
    folder = scratch_make();
    return 0;
}
static int remove_folder(void **state) {
    (void)state;
    scratch_remove(&folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_one_width)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
