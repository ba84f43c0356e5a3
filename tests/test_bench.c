// SPDX-License-Identifier: Apache-2.0
// Every bench of `radiance bench` on a tiny shape: it checks its rows, times them and reports whole numbers. No time is judged.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "run_cli.h"
#include "support/files.h"
#include "support/tiny_model.h"

#include "radiance.h"

#include <cJSON.h>
#include <math.h>

#define TINY RD_TEST_DIR "/../bench/shapes/tiny.json"

static cli_result result;
static scratch s;
static char model[128];

static const char *shape_of(const char *op) {
    static const struct {
        const char *start, *shape;
    } shapes[] = {{"generate", "AT=3"},
                  {"gemm", "M=2,N=256,K=256"},
                  {"attn_decode", "Q_LEN=3,KV=100"},
                  {"attn_prefill", "Q_LEN=20,KV=90"},
                  {"rope", "M=3,HEADS=2"},
                  {"kv_write", "M=35,HEADS=2"},
                  {"rope_kv_write", "M=5,HEADS=2"},
                  {"sample", "VOCAB=1000"},
                  {"", "M=3,K=200"}};
    for (size_t i = 0;; i++)
        if (!strncmp(op, shapes[i].start, strlen(shapes[i].start))) return shapes[i].shape;
}

static double number_of(const cJSON *row, const char *name) {
    const cJSON *value = cJSON_GetObjectItem(row, name);
    if (!cJSON_IsNumber(value)) fail_msg("%s is missing", name);
    return value->valuedouble;
}

static void check_row(const char *op, const cJSON *row) {
    const char *kernel = cJSON_GetStringValue(cJSON_GetObjectItem(row, "kernel"));
    assert_non_null(kernel);
    if (strcmp(op, "generate") != 0 && strcmp(op, "step") != 0) { // whole passes
        const rd_kernel_info *info = rd_kernel_find(kernel);
        if (!info) fail_msg("%s: no kernel %s", op, kernel);
        assert_string_equal(info->op, op);
        assert_false(info->is_reference); // a bench times what would run
    }
    const char *state = cJSON_GetStringValue(cJSON_GetObjectItem(row, "state"));
    if (!strcmp(state, "in pass")) return; // a difference of two times
    assert_true(number_of(row, "us_min") > 0 && number_of(row, "us_median") >= number_of(row, "us_min"));
    assert_true(number_of(row, "read_gbs") > 0 && isfinite(number_of(row, "roofline_pct")));
    assert_true(number_of(row, "check_error") <= 1);
}

static void check_bench(const char *op) {
    char command[512], csv[160], own[256];
    snprintf(csv, sizeof csv, "%s/%s.csv", s.folder, op);
    if (!strcmp(op, "step"))
        snprintf(own, sizeof own, "--model %s --batch 1,3 --context 40 --prefill 20", model);
    else if (!strcmp(op, "generate"))
        snprintf(own, sizeof own, "--model %s --shape %s", model, shape_of(op));
    else
        snprintf(own, sizeof own, "--shape %s", shape_of(op));
    snprintf(command, sizeof command, "bench %s --threads 1 --seconds 0.001 --json --csv %s %s", op, csv,
             own);
    cli_run("", command, &result);
    if (result.code) fail_msg("%s: exit code %d, %s", command, result.code, result.err);
    cJSON *rows = cJSON_Parse(result.out), *row;
    assert_true(cJSON_GetArraySize(rows) > 0);
    cJSON_ArrayForEach(row, rows) check_row(op, row);
    size_t bytes = 0, lines = 0;
    char *text = (char *)file_read(csv, &bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    assert_int_equal(lines, 1 + cJSON_GetArraySize(rows)); // a header, then a line a row
    free(text);
    cJSON_Delete(rows);
}

static void test_bench_every_op(void **state) {
    (void)state;
    cli_run("", "bench --json", &result);
    assert_int_equal(result.code, 0);
    cJSON *list = cJSON_Parse(result.out), *entry;
    assert_true(cJSON_GetArraySize(list) > 10);
    cJSON_ArrayForEach(entry, list) {
        const char *op = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "op"));
        if (strcmp(op, "ceilings") != 0) check_bench(op);
    }
    cJSON_Delete(list);
    cli_run("", "bench ceilings --threads 1 --seconds 0.01", &result);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "GB/s"));
}

// An op of the registry that has CPU rows and no bench would be a kernel that nobody times.
static void test_bench_covers_every_op(void **state) {
    (void)state;
    const rd_op_info *op;
    cli_run("", "bench", &result);
    for (int32_t i = 0; (op = rd_op_at(i)); i++) {
        bool has_row = false;
        const rd_kernel_info *kernel;
        for (int32_t k = 0; (kernel = rd_kernel_at(k)); k++)
            has_row |=
                !strcmp(kernel->op, op->name) && !strcmp(kernel->backend, "cpu") && !kernel->is_reference;
        char line[64];
        snprintf(line, sizeof line, "%-20s ", op->name);
        if (has_row && !strstr(result.out, line)) fail_msg("op %s has no bench", op->name);
    }
}

static void test_bench_refuses_by_name(void **state) {
    (void)state;
    static const struct {
        const char *arguments;
        int code;
        const char *text;
    } cases[] = {
        {"bench nothing", RD_E_INVALID, "op=nothing has no bench"},
        {"bench generate", RD_E_INVALID, "needs --model"},
        {"bench step", RD_E_INVALID, "needs one of --config"},
        {"bench step --model x --config y", RD_E_INVALID, "needs one of --config"},
        {"bench step --config y --batch 1,", RD_E_INVALID, "--batch=1,, needs up to 16 numbers"},
        {"bench step --config y --batch 0", RD_E_INVALID, "--batch=0, needs up to 16 numbers"},
        {"bench step --context 512 --config " TINY, RD_E_INVALID, "--context=512, needs 1 to 511"},
        {"bench step --prefill 513 --config " TINY, RD_E_INVALID, "--prefill=513, needs 1 to"},
        {"bench step --config y --layout row", RD_E_INVALID, "bench step does not use --layout"},
        {"bench step --config y --shape M=1", RD_E_INVALID, "bench step does not use --shape"},
        {"bench step --config y --kernel z", RD_E_INVALID, "bench step does not use --kernel"},
        {"bench step --config y --all", RD_E_INVALID, "bench step does not use --all"},
        {"bench step --config y --rival z", RD_E_INVALID, "bench step does not use --rival"},
        {"bench step --config y --cpu-time --threads 1", RD_E_INVALID,
         "bench step does not use --cpu-time, needs options of its own: model config batch context"},
        {"bench generate --model x --batch 1", RD_E_INVALID, "bench generate does not use --batch"},
        {"bench rmsnorm --context 7", RD_E_INVALID, "bench rmsnorm does not use --context"},
        {"bench rmsnorm --w8a8", RD_E_INVALID, "bench rmsnorm does not use --w8a8"},
        {"bench ceilings --csv x.csv", RD_E_INVALID, "bench ceilings does not use --csv"},
        {"bench rmsnorm --shape M=1,N=64", RD_E_INVALID, "bench rmsnorm has no key N, needs: shape=M,K"},
        {"bench rmsnorm --shape shape=1", RD_E_INVALID, "bench rmsnorm has no key shape"},
        {"bench attn_decode --shape Q=1", RD_E_INVALID, "bench attn_decode has no key Q,"},
        {"bench sample --shape VOCAB=64,vocab=32", RD_E_INVALID, "vocab is there twice"},
        {"check --small --full", RD_E_INVALID, "--small and --full exclude each other"},
        {"bench step --config no_such_file", RD_E_IO, "no_such_file: No such file"},
        {"bench attn_decode --shape Q_HEADS=5,KV_HEADS=2", RD_E_INVALID, "needs a whole ratio"},
        {"bench attn_decode --shape KV=2,Q_LEN=3", RD_E_INVALID, "KV >= Q_LEN"},
        {"bench rmsnorm --device h200-sm90a", RD_E_NO_DEVICE, "fixture"},
        {"bench rmsnorm --seconds 0", RD_E_INVALID, "seconds=0"},
        {"bench rmsnorm --kernel nothing", RD_E_UNSUPPORTED, "no such row takes"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_run("", cases[i].arguments, &result);
        if (result.code != cases[i].code || !strstr(result.err, cases[i].text))
            fail_msg("%s: exit code %d, %s", cases[i].arguments, result.code, result.err);
    }
}

// On the simulated card every op's rows run from copies in its memory, by graph, and are judged; no figure of time is given.
static void test_bench_on_a_card(void **state) {
    (void)state;
    const rd_op_info *op;
    const rd_kernel_info *kernel;
    for (int32_t i = 0; (op = rd_op_at(i)); i++) {
        bool has_row = false;
        for (int32_t k = 0; (kernel = rd_kernel_at(k)); k++)
            has_row |= !strcmp(kernel->op, op->name) && !strcmp(kernel->backend, "amd");
        if (!has_row) continue;
        char command[512];
        const bool attn = !strncmp(op->name, "attn_", 5); // the defaults' heads, fewer keys
        snprintf(command, sizeof command, "bench %s --shape %s --device sim:gfx1201 --json", op->name,
                 attn ? "KV=100" : shape_of(op->name));
        cli_run("", command, &result);
        if (result.code == RD_E_NO_DEVICE) skip(); // no simulator
        if (result.code) fail_msg("%s: exit code %d, %s", command, result.code, result.err);
        cJSON *rows = cJSON_Parse(result.out), *row;
        assert_true(cJSON_GetArraySize(rows) > 0);
        cJSON_ArrayForEach(row, rows) {
            kernel = rd_kernel_find(cJSON_GetStringValue(cJSON_GetObjectItem(row, "kernel")));
            assert_non_null(kernel);
            assert_string_equal(kernel->backend, "amd");
            assert_true(cJSON_IsFalse(cJSON_GetObjectItem(row, "timed")));
            assert_true(number_of(row, "check_error") <= 1);
            assert_null(cJSON_GetObjectItem(row, "us_min"));
        }
        cJSON_Delete(rows);
    }
    cli_run("", "bench ceilings --device sim:gfx1201", &result);
    if (result.code == RD_E_NO_DEVICE) skip();
    assert_int_equal(result.code, RD_E_UNSUPPORTED);
    assert_non_null(strstr(result.err, "sim:gfx1201 has no time"));
}

static int make_model(void **state) {
    (void)state;
    s = scratch_make();
    snprintf(model, sizeof model, "%s/model", s.folder);
    return tiny_model_write(model, &(tiny_model_options){.layers = 1, .seed = 3});
}
static int remove_model(void **state) {
    (void)state;
    scratch_remove(&s);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_every_op),
        cmocka_unit_test(test_bench_covers_every_op),
        cmocka_unit_test(test_bench_refuses_by_name),
        cmocka_unit_test(test_bench_on_a_card),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
