// SPDX-License-Identifier: Apache-2.0
// The command under full devices and signals: an error and its exit code, what was printed stays printed, JSON stays JSON.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "run_cli.h"
#include "support/files.h"
#include "support/tiny_model.h"

#include "radiance.h"

#include <cJSON.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

static scratch s;
static char model[128];
static cli_result result;

static void test_cli_full_device_is_an_error(void **state) {
    (void)state;
    char generate[256], tokens[256], convert[400];
    snprintf(tokens, sizeof tokens, "tokenize %s --jsonl %s/text.jsonl", model, s.folder);
    snprintf(generate, sizeof generate, "generate %s --raw --prompt hi --max-tokens 3 --threads 1", model);
    snprintf(convert, sizeof convert, "convert %s %s/full --verify", model, s.folder);
    file_write(scratch_path(&s, "text.jsonl"), "{\"text\": \"a\"}\n", 14);
    const char *const lines[] = {"version",
                                 "kernels --json",
                                 "policy",
                                 "env",
                                 "help",
                                 "check --help",
                                 "bench --json",
                                 "explain sample vocab=9",
                                 "select sample vocab=9 --json",
                                 tokens,
                                 generate,
                                 convert};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char command[1024]; // cli_run redirects the last command of the line
        snprintf(command, sizeof command, "%s >/dev/full 2>%s/err; sh -c \"cat %s/err >&2; exit $?\"",
                 lines[i], s.folder, s.folder);
        cli_run("", command, &result);
        if (result.code != RD_E_IO || !strstr(result.err, "standard output could not be written"))
            fail_msg("%s: exit code %d, \"%s\"", lines[i], result.code, result.err);
    }
}

static void test_cli_bench_csv_on_a_full_device(void **state) {
    (void)state;
    cli_run("", "bench gemm_fp8block --shape M=1,N=128,K=128 --threads 1 --seconds 0.01 --csv /dev/full",
            &result);
    assert_int_equal(result.code, RD_E_IO);
    assert_non_null(strstr(result.err, "/dev/full: No space left on device"));
    cli_run("",
            "bench gemm_fp8block --shape M=1,N=128,K=128 --threads 1 --seconds 0.01 --csv /nonexistent/x.csv",
            &result);
    assert_int_equal(result.code, RD_E_IO);
    assert_non_null(strstr(result.err, "/nonexistent/x.csv: "));
}

// Starts the command with stdout in a pipe, waits for `bytes` of it (or `microseconds` when 0), sends the signal and reads on.
static int run_and_signal(char *const *arguments, int number, size_t bytes, int microseconds, char *out,
                          size_t capacity) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]), close(ends[1]);
        if (!freopen("/dev/null", "w", stderr)) _exit(99);
        execv(RD_CLI, arguments);
        _exit(99);
    }
    close(ends[1]);
    size_t have = 0;
    ssize_t got = 1;
    while (have < bytes && (got = read(ends[0], out + have, capacity - 1 - have)) > 0) have += (size_t)got;
    if (!bytes) usleep((useconds_t)microseconds);
    kill(child, number);
    while (have + 1 < capacity && (got = read(ends[0], out + have, capacity - 1 - have)) > 0)
        have += (size_t)got;
    out[have] = 0;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
static char out[1 << 20];

static void test_cli_generate_stops_with_what_it_said(void **state) {
    (void)state;
    char *const text[] = {"radiance",     "generate", model,          "--raw",     "--prompt", "go on",
                          "--max-tokens", "60000",    "--ignore-end", "--threads", "1",        NULL};
    char *const json[] = {"radiance", "generate",     model,   "--raw",        "--prompt",
                          "go on",    "--max-tokens", "60000", "--ignore-end", "--threads",
                          "1",        "--json",       NULL};
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        assert_int_equal(run_and_signal(text, stops[i], 1, 0, out, sizeof out), 0);
        assert_int_equal(out[strlen(out) - 1], '\n');
        // Before, while or after the model loads: nothing at all and "cancelled", or the answer so far.
        int code = run_and_signal(json, stops[i], 0, 150000, out, sizeof out);
        cJSON *root = cJSON_Parse(out);
        if (code == 0) {
            assert_true(cJSON_IsTrue(cJSON_GetObjectItem(root, "interrupted")));
            assert_false(cJSON_IsTrue(cJSON_GetObjectItem(root, "hit_end")));
        } else {
            assert_true(code == RD_E_CANCELLED ||
                        code == 128 + stops[i]); // 128 + n: before the handler stood
            assert_string_equal(out, "");
        }
        cJSON_Delete(root);
    }
}

static void test_cli_check_and_bench_stop_cleanly(void **state) {
    (void)state;
    char *const check[] = {"radiance", "check", "--threads", "1", "--json", NULL};
    char *const bench[] = {"radiance",  "bench", "gemm_fp8block", "--shape", "M=1,N=512,K=512",
                           "--threads", "1",     "--seconds",     "5",       "--json",
                           NULL};
    for (size_t i = 0; i < 2 * sizeof stops / sizeof stops[0]; i++) {
        int number = stops[i / 2];
        int code = run_and_signal(i % 2 ? bench : check, number, 0, 100000, out, sizeof out);
        if (code == 128 + number) continue; // before the handler stood
        assert_int_equal(code, RD_E_CANCELLED);
        cJSON *root = cJSON_Parse(out);
        assert_true(
            cJSON_IsArray(i % 2 ? root : cJSON_GetObjectItem(root, "rows"))); // what was done so far, whole
        cJSON_Delete(root);
    }
}

// At a random moment of a conversion: no folder and "cancelled", or it was done; never a part.
static void test_cli_convert_stops_without_a_trace(void **state) {
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    printf("seed %u\n", seed);
    srand(seed);
    scratch_path(&s, "cut");
    char *const convert[] = {"radiance", "convert", model, s.path, "--force", NULL};
    for (int i = 0; i < 12; i++) {
        int before = scratch_entries(s.folder), number = stops[i % 3];
        int code = run_and_signal(convert, number, 0, rand() % 30000, out, sizeof out);
        bool there = scratch_entries(s.path) > 0;
        assert_true(code == 0 || code == RD_E_CANCELLED || code == 128 + number);
        if (code == 0) assert_true(there);
        if (code != 128 + number) assert_int_equal(scratch_entries(s.folder), before + there);
        char command[256];
        snprintf(command, sizeof command, "rm -rf '%s'*", s.path);
        assert_int_equal(system(command), 0);
    }
}

static int make_model(void **state) {
    (void)state;
    s = scratch_make();
    snprintf(model, sizeof model, "%s/model", s.folder);
    return tiny_model_write(model, &(tiny_model_options){.context = 65536, .seed = 3});
}
static int remove_model(void **state) {
    (void)state;
    scratch_remove(&s);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli_full_device_is_an_error),
        cmocka_unit_test(test_cli_bench_csv_on_a_full_device),
        cmocka_unit_test(test_cli_generate_stops_with_what_it_said),
        cmocka_unit_test(test_cli_check_and_bench_stop_cleanly),
        cmocka_unit_test(test_cli_convert_stops_without_a_trace),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
