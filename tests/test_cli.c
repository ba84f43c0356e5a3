// SPDX-License-Identifier: Apache-2.0
// The command forms that scripts rely on: exit codes, where text goes, JSON that parses, errors that name what is wrong.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cJSON.h>

#include "radiance.h"
#include "run_cli.h"

static cli_result result;
#define COUNT(array_) (sizeof(array_) / sizeof((array_)[0]))

static void run(const char *arguments, int code) {
    cli_run("", arguments, &result);
    if (result.code != code)
        fail_msg("radiance %s: exit %d, needs %d: %s", arguments, result.code, code, result.err);
}

// The caller deletes what comes back.
static cJSON *run_json(const char *arguments) {
    run(arguments, 0);
    cJSON *json = cJSON_Parse(result.out);
    if (!json) fail_msg("radiance %s: not JSON: %s", arguments, result.out);
    return json;
}

static const char *text_of(const cJSON *object, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
}

static void test_cli_help(void **state) {
    (void)state;
    run("help", 0);
    const char *const names[] = {"devices", "kernels", "constraints", "select", "explain",
                                 "plan",    "policy",  "env",         "version"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char line[64];
        snprintf(line, sizeof line, "\n  %s ", names[i]);
        run("--help", 0);
        assert_non_null(strstr(result.out, line));
    }
    run("", RD_E_INVALID);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, "usage: radiance COMMAND"));
}

// Every command that is built, whoever wrote it.
static void test_cli_help_of_every_command(void **state) {
    (void)state;
    const char *const names[] = {
#define CLI_COMMAND(name_, about_) #name_,
#include "cli/commands.def"
#undef CLI_COMMAND
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        char arguments[64], usage[64], error[64];
        snprintf(arguments, sizeof arguments, "help %s", names[i]);
        snprintf(usage, sizeof usage, "usage: radiance %s", names[i]);
        run(arguments, 0);
        if (strncmp(result.out, usage, strlen(usage))) fail_msg("%s: %s", arguments, result.out);
        snprintf(arguments, sizeof arguments, "%s --no-such-option", names[i]);
        snprintf(error, sizeof error, "unknown option --no-such-option");
        run(arguments, RD_E_INVALID);
        if (!strstr(result.err, error)) fail_msg("%s: %s", arguments, result.err);
        assert_string_equal(result.out, "");
    }
}

static void test_cli_names_what_is_wrong(void **state) {
    (void)state;
    const struct {
        const char *arguments;
        int code;
        const char *text;
    } cases[] = {
        {"explian", RD_E_INVALID, "unknown command explian, `radiance help` lists them"},
        {"help explian", RD_E_INVALID, "unknown command explian"},
        {"explain", RD_E_INVALID, "usage: radiance explain OP key=value..."},
        {"explain gemm_fp8block m", RD_E_INVALID, "argument m, needs the form key=value"},
        {"explain gemm_fp8block =3", RD_E_INVALID, "argument =3, needs the form key=value"},
        {"explain gemm_fp8block m=8x", RD_E_INVALID, "m=\"8x\" is text, needs a whole number"},
        {"explain gemm_fp8block m=2.5", RD_E_INVALID, "m=\"2.5\" is text, needs a whole number"},
        {"explain gemm_fp8block m=99999999999999999999", RD_E_INVALID,
         "m=99999999999999999999, needs a whole number of at most 64 bits"},
        {"policy split_count tile=-99999999999999999999", RD_E_INVALID,
         "tile=-99999999999999999999, needs a whole number of at most 64 bits"},
        {"devices --threads 99999999999999999999", RD_E_INVALID,
         "--threads=99999999999999999999, needs 1 to 4096"},
        {"plan gemm_fp8block m=1..99999999999999999999", RD_E_INVALID, "m=1..99999999999999999999, needs "},
        {"bench gemm_fp8block --shape M=99999999999999999999", RD_E_INVALID, "numbers up to 1073741824"},
        {"bench gemm_fp8block --shape M", RD_E_INVALID, "shape=M, needs key=number pairs"},
        {"bench gemm_fp8block --shape M=1,N=", RD_E_INVALID, "shape=M=1,N=, needs key=number pairs"},
        {"explain gemm_fp8block m=0", RD_E_INVALID, "m=0, needs 1 to 2147483647"},
        {"explain gemm_fp8block mm=1", RD_E_INVALID, "unknown key mm, the op has: m n k"},
        {"explain nothing", RD_E_INVALID, "unknown op nothing, known: gemm_fp8block"},
        {"explain gemm_fp8block --device r9701", RD_E_NO_DEVICE,
         "device=r9701 is not known, needs one of: cpu"},
        {"explain gemm_fp8block --device", RD_E_INVALID, "--device needs NAME"},
        {"explain gemm_fp8block --json=1", RD_E_INVALID, "--json takes no value, got 1"},
        {"constraints nothing", RD_E_INVALID, "unknown kernel nothing"},
        {"kernels --op nothing", RD_E_INVALID, "unknown op nothing"},
        {"kernels extra", RD_E_INVALID, "unexpected argument extra; usage: radiance kernels"},
        {"devices --threads 0", RD_E_INVALID, "--threads=0, needs 1 to 4096"},
        {"devices --threads=two", RD_E_INVALID, "--threads=two, needs a whole number"},
        {"plan gemm_fp8block n=1", RD_E_INVALID, "m not given, needs the form m=LO..HI"},
        {"plan gemm_fp8block m=1..x", RD_E_INVALID, "m=1..x, needs the form m=LO..HI"},
        {"plan gemm_fp8block m=9..1", RD_E_INVALID, "m=9..1, needs 1 <= lo <= hi"},
        {"policy nothing", RD_E_INVALID, "unknown rule nothing"},
        {"policy split_count --csv no_such_file", RD_E_IO, "no_such_file cannot be read"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        run(cases[i].arguments, cases[i].code);
        if (!strstr(result.err, cases[i].text)) fail_msg("radiance %s: %s", cases[i].arguments, result.err);
        assert_memory_equal(result.err, "radiance: ", 10);
        assert_string_equal(result.out, "");
    }
}

static void test_cli_version(void **state) {
    (void)state;
    run("version", 0);
    char expected[128];
    snprintf(expected, sizeof expected, "radiance %s (%s)\n", rd_version(), rd_build_id());
    assert_string_equal(result.out, expected);
    run("--version", 0);
    assert_string_equal(result.out, expected);
    cJSON *json = run_json("version --json");
    assert_string_equal(text_of(json, "version"), rd_version());
    assert_string_equal(text_of(json, "build_id"), rd_build_id());
    cJSON_Delete(json);
}

static void test_cli_kernels_and_constraints(void **state) {
    (void)state;
    cJSON *json = run_json("kernels --json");
    int count = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, json) {
        const rd_kernel_info *kernel = rd_kernel_at(count++);
        assert_non_null(kernel);
        assert_string_equal(text_of(row, "name"), kernel->name);
        assert_string_equal(text_of(row, "op"), kernel->op);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(row, "constraints")),
                         kernel->constraint_count);
    }
    assert_null(rd_kernel_at(count));
    cJSON_Delete(json);
    char arguments[256];
    const rd_kernel_info *first = rd_kernel_at(0);
    snprintf(arguments, sizeof arguments, "constraints %s --json", first->name);
    json = run_json(arguments);
    assert_int_equal(cJSON_GetArraySize(json), first->constraint_count);
    assert_string_equal(text_of(cJSON_GetArrayItem(json, 0), "key"), first->constraints[0].key);
    cJSON_Delete(json);
    snprintf(arguments, sizeof arguments, "constraints %s", first->name);
    run(arguments, 0);
    assert_non_null(strstr(result.out, first->constraints[0].text));
}

#define QUESTION                                                                                             \
    "gemm_fp8block m=1 n=7168 k=2048 a_dtype=torch.float8_e4m3fn w_scale_dtype=fp32 c_dtype=bf16 "           \
    "layout=row bias=0"
static void test_cli_explain_and_select_agree(void **state) {
    (void)state;
    const char *const devices[] = {"cpu", "cpu:ref", "x86-avx512", "x86-avx2"};
    for (size_t i = 0; i < COUNT(devices); i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "explain " QUESTION " --json --device %s", devices[i]);
        cJSON *verdicts = run_json(arguments);
        const char *chosen = NULL;
        const cJSON *verdict;
        cJSON_ArrayForEach(verdict, verdicts) {
            if (!cJSON_IsTrue(cJSON_GetObjectItem(verdict, "chosen"))) continue;
            assert_null(chosen);
            chosen = text_of(verdict, "kernel");
            assert_string_equal(text_of(verdict, "reason"), "ok");
        }
        assert_non_null(chosen);
        snprintf(arguments, sizeof arguments, "select --json --device=%s " QUESTION, devices[i]);
        cJSON *selection = run_json(arguments);
        assert_string_equal(text_of(selection, "kernel"), chosen);
        assert_string_equal(text_of(selection, "query"),
                            "m=1 n=7168 k=2048 a_dtype=fp8_e4m3 w_scale_dtype=fp32 "
                            "c_dtype=bf16 layout=row bias=0");
        cJSON_Delete(selection);
        cJSON_Delete(verdicts);
    }
    run("explain " QUESTION " --device cpu:ref", 0);
    assert_non_null(strstr(result.out, "-> gemm_fp8block_any_cpu_generic "));
    run("select gemm_fp8block m=1 --device h200-sm90a", RD_E_UNSUPPORTED);
    assert_non_null(strstr(result.err, "no kernel takes it: "));
}

static void test_cli_plan(void **state) {
    (void)state;
    const char *plan =
        "plan gemm_fp8block m=1..4096 n=7168 k=2048 a_dtype=fp8 w_scale_dtype=fp32 c_dtype=bf16 layout=row "
        "--device x86-avx512";
    run(plan, 0);
    assert_memory_equal(result.out, "gemm_fp8block m=1..", 19);
    char arguments[512];
    snprintf(arguments, sizeof arguments, "%s --json", plan);
    cJSON *ranges = run_json(arguments);
    assert_true(cJSON_GetArraySize(ranges) >= 1);
    assert_string_equal(text_of(cJSON_GetArrayItem(ranges, 0), "op"), "gemm_fp8block");
    cJSON_Delete(ranges);
    run("plan rope head_dim=64 rotary_dim=64 style=neox x_dtype=bf16 qk_norm=0", 0); // no interval key
}

static void test_cli_policy(void **state) {
    (void)state;
    run("policy sm90a_route M=96 N=14336 K=5120", 0); // on the card of the rule
    run("policy split_count max_seqlen_k=32768 tile=16 programs=8", 0);
    assert_string_equal(result.out, "splits=64\nrule: split_count: 16 * cbrt(tiles / programs)\n");
    cJSON *json = run_json("policy split_count max_seqlen_k=32768 tile=16 programs=8 --json");
    assert_string_equal(text_of(cJSON_GetObjectItem(json, "outputs"), "splits"), "64");
    cJSON_Delete(json);
    json = run_json("policy --json");
    int count = 0;
    const cJSON *rule;
    cJSON_ArrayForEach(rule, json) {
        assert_string_equal(text_of(rule, "rule"), rd_policy_at(count)->name);
        count++;
    }
    assert_null(rd_policy_at(count));
    assert_true(count >= 12);
    cJSON_Delete(json);
    run("policy", 0);
    assert_non_null(strstr(result.out, "split_count"));
    assert_non_null(strstr(result.out, "inputs:  max_seqlen_k tile programs"));
}

static void test_cli_env_and_devices(void **state) {
    (void)state;
    cli_run("RADIANCE_THREADS=3", "env --json", &result);
    cJSON *json = cJSON_Parse(result.out);
    assert_non_null(json);
    bool seen = false;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, json) {
        if (strcmp(text_of(entry, "name"), "RADIANCE_THREADS")) continue;
        seen = !strcmp(text_of(entry, "value"), "3") && !strcmp(text_of(entry, "default"), "0");
    }
    assert_true(seen);
    cJSON_Delete(json);
    json = run_json("devices --device r9700-gfx1201 --json");
    assert_string_equal(text_of(cJSON_GetArrayItem(json, 0), "arch"), "gfx1201");
    cJSON_Delete(json);
}

static void test_cli_environment_values_are_checked(void **state) {
    (void)state;
    cli_run("RADIANCE_ISA=ref", "explain " QUESTION, &result);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "-> gemm_fp8block_any_cpu_generic "));
    cli_run("RADIANCE_ISA=sse", "explain " QUESTION, &result);
    assert_int_equal(result.code, RD_E_INVALID);
    assert_string_equal(result.err, "radiance: RADIANCE_ISA=sse, needs one of: ref avx2 avx512\n");
    cli_run("RADIANCE_TRUST=2", "check --op rmsnorm", &result);
    assert_int_equal(result.code, RD_E_INVALID);
    assert_string_equal(result.err, "radiance: RADIANCE_TRUST=2, needs a whole number from 0 to 1\n");
    cli_run("RADIANCE_LOG=loud", "select " QUESTION, &result);
    assert_int_equal(result.code, RD_E_INVALID);
    assert_string_equal(result.err, "radiance: RADIANCE_LOG=loud, needs one of: error warn info debug\n");
}

static void test_cli_full_output_is_an_error(void **state) {
    (void)state;
    if (access("/dev/full", W_OK)) skip();
    char command[4096];
    snprintf(command, sizeof command, "'%s' kernels >/dev/full 2>/dev/null", RD_CLI);
    int status = system(command);
    assert_int_equal(WEXITSTATUS(status), RD_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cli_help),
        cmocka_unit_test(test_cli_help_of_every_command),
        cmocka_unit_test(test_cli_names_what_is_wrong),
        cmocka_unit_test(test_cli_version),
        cmocka_unit_test(test_cli_kernels_and_constraints),
        cmocka_unit_test(test_cli_explain_and_select_agree),
        cmocka_unit_test(test_cli_plan),
        cmocka_unit_test(test_cli_policy),
        cmocka_unit_test(test_cli_env_and_devices),
        cmocka_unit_test(test_cli_environment_values_are_checked),
        cmocka_unit_test(test_cli_full_output_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
