// SPDX-License-Identifier: Apache-2.0
// tools/test_device.sh and tools/sanitize_device.sh without a card: exit codes, over a driver with nothing behind it and a
// compute-sanitizer that says what a case asks it to. A card that cannot be used, a tool that did not attach and a race that is only
// warned of must not pass.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/code_objects.h"
#include "base/base.h"
#include "run_cli.h"
#include "support/files.h"

#include <sys/stat.h>

static scratch folder;
static cli_result result;

// A tool of NVIDIA's name: `says` is what it does with $* for its arguments.
static void make_sanitizer(const char *says) {
    char text[512];
    const int length = snprintf(text, sizeof text, "#!/bin/sh\n%s\n", says);
    file_write(scratch_path(&folder, "compute-sanitizer"), text, (size_t)length);
    assert_int_equal(chmod(scratch_path(&folder, "compute-sanitizer"), 0755), 0);
}

static void run_tool(const char *environment, const char *tool, const char *build) {
    char command[8192], out[192];
    snprintf(out, sizeof out, "%s", scratch_path(&folder, "out.txt"));
    const int length =
        snprintf(command, sizeof command,
                 "%s PATH='%s':\"$PATH\" RADIANCE_TRUST=1 RADIANCE_HIP_LIBRARY=none "
                 "RADIANCE_CUDA_LIBRARY='%s' '%s/../tools/%s' '%s' > %s 2>&1",
                 environment, scratch_path(&folder, ""), RD_FAKE_CUDA, RD_TEST_DIR, tool, build, out);
    assert_true(length > 0 && length < (int)sizeof command);
    const int status = system(command);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    cli_read_file(out, result.out, sizeof result.out);
}

static const char *build_folder(void) {
    static char text[sizeof RD_CLI];
    snprintf(text, sizeof text, "%.*s", (int)(strrchr(RD_CLI, '/') - RD_CLI), RD_CLI);
    return text;
}

static void need(bool passed, const char *words) {
    if ((result.code == 0) != passed || !strstr(result.out, words))
        fail_msg("exit code %d, needs %s0 and \"%s\":\n%s", result.code, passed ? "" : "not ", words,
                 result.out);
}

#define CLEAN                                                                                                \
    "case \"$*\" in *racecheck*) echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 "       \
    "warnings)';; "                                                                                          \
    "*) echo '========= ERROR SUMMARY: 0 errors';; esac"

static void test_checkers(void **state) {
    (void)state;
    static const char few[] = "FAKE_CUDA=small SANITIZE_OPS='embed rope'";
    if (!rdi_code_object_find("sm90a_gemm_step")) skip(); // built without nvcc
    static const struct {
        const char *says, *words;
        bool passed;
    } cases[] = {
        {CLEAN, "synccheck rope: clean", true},
        {"exit 0", "memcheck embed: FAILED (exit code 0)", false}, // it did not attach
        {"echo '========= RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)'",
         "racecheck embed: FAILED", false},
        {"echo '========= ERROR SUMMARY: 1 error'; exit 9", "initcheck rope: FAILED (exit code 9)", false},
        {CLEAN "; exit 10", "memcheck rope: FAILED (exit code 10)",
         false}, // radiance check found a wrong result
        {"sleep 5", "embed: FAILED (exit code 124)", false},
    };
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        char environment[128];
        make_sanitizer(cases[i].says);
        snprintf(environment, sizeof environment, "%s %s", few,
                 strstr(cases[i].says, "sleep") ? "SANITIZE_SECONDS=1" : "");
        run_tool(environment, "sanitize_device.sh", build_folder());
        need(cases[i].passed, cases[i].words);
    }
    run_tool("FAKE_CUDA=sm80", "sanitize_device.sh", build_folder());
    need(true, "skipped: gpu:0 is no card of sm_90a");
}

// What cannot be looked at is not what lacks a card.
static void test_checkers_of_nothing(void **state) {
    (void)state;
    make_sanitizer(CLEAN);
    run_tool("", "sanitize_device.sh", "no-such-build");
    need(false, "FAILED: radiance devices, exit code 127");
    run_tool("FAKE_CUDA=idle", "sanitize_device.sh", build_folder());
    need(false, "compute_units=0");
    const bool card = access("/dev/nvidia0", F_OK) == 0;
    run_tool("FAKE_CUDA=none", "sanitize_device.sh", build_folder());
    need(!card, card ? "FAILED: radiance devices" : "skipped: no card");
}

static void test_the_whole(void **state) {
    (void)state;
    make_sanitizer(CLEAN);
    const bool card = access("/dev/nvidia0", F_OK) == 0;
    run_tool("FAKE_CUDA=none", "test_device.sh", build_folder());
    need(!card, card ? "cannot be used" : "skipped: no card");
    run_tool("FAKE_CUDA=idle", "test_device.sh", build_folder());
    need(false, "compute_units=0");
    run_tool("", "test_device.sh", "no-such-build");
    need(false, "FAILED: radiance devices");
    // Nothing is behind this card, so every part fails, and each is named at the end; what a part skips is too.
    if (!rdi_code_object_find("sm90a_gemm_step")) skip();
    make_sanitizer("exit 1");
    run_tool("FAKE_CUDA=small PART_SECONDS=2 SANITIZE_OPS=embed SANITIZE_TOOLS=memcheck", "test_device.sh",
             build_folder());
    const char *end = strstr(result.out, "\nFAILED:");
    if (result.code == 0 || !end || !strstr(end, "radiance check") || !strstr(end, "sanitize_device.sh"))
        fail_msg("exit code %d\n%s", result.code, result.out);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_checkers),
                                       cmocka_unit_test(test_checkers_of_nothing),
                                       cmocka_unit_test(test_the_whole)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
