// SPDX-License-Identifier: Apache-2.0
// Golden routes: tests/golden/<fixture>.txt holds the kernel of every question of questions.txt, so that a routing change is
// a reviewed diff. After an intended change: `build/test_golden update`, and commit the files with the bench that
// justifies them.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "radiance.h"

enum { MOST_KEYS = 24, ROUTES_BYTES = 1 << 16 };

static void golden_path(const char *name, char *path, size_t bytes) {
    snprintf(path, bytes, "%s/golden/%s.txt", RD_TEST_DIR, name);
}

// Splits "op key=value key=lo..hi" in place.
typedef struct question {
    const char *op;
    rd_param params[MOST_KEYS];
    int32_t count;
    int64_t lo, hi;
} question;

static question read_question(char *line) {
    question q = {.op = strtok(line, " \n")};
    for (char *word = strtok(NULL, " \n"); word; word = strtok(NULL, " \n")) {
        char *value = strchr(word, '='), *end;
        assert_true(value != NULL && q.count < MOST_KEYS);
        *value++ = 0;
        long long number = strtoll(value, &end, 10);
        if (end != value && !strncmp(end, "..", 2)) {
            q.lo = number;
            q.hi = strtoll(end + 2, NULL, 10);
        } else {
            bool is_number = end != value && !*end;
            q.params[q.count++] = (rd_param){word, is_number ? RD_PARAM_INT : RD_PARAM_WORD,
                                             is_number ? number : 0, is_number ? NULL : value};
        }
    }
    return q;
}

static void ask_all(rd_ctx *ctx) {
    char path[4096], line[1024];
    golden_path("questions", path, sizeof path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#' || line[0] == '\n') continue;
        question q = read_question(line);
        rd_plan *plan = NULL;
        rd_status status = rd_plan_create(ctx, q.op, q.params, q.count, q.lo, q.hi, &plan);
        if (status != RD_OK && status != RD_E_UNSUPPORTED) fail_msg("%s: %s", q.op, rd_error_text());
        rd_plan_free(plan);
    }
    fclose(file);
}

// One line a question and sub-interval: "op query -> kernel", "-> kernel (slow): why" or "-> none: why".
static void write_routes(const char *fixture, char *text) {
    rd_ctx_options options = {.struct_size = sizeof options, .device = fixture};
    rd_ctx *ctx = NULL;
    assert_int_equal(rd_ctx_create(&options, &ctx), RD_OK);
    ask_all(ctx);
    rd_selection s;
    size_t used = 0;
    text[0] = 0;
    for (int32_t i = 0; rd_selection_at(ctx, i, &s) == RD_OK; i++) {
        bool slow = s.kernel && !strncmp(s.reason, "slow: ", 6);
        used += (size_t)snprintf(text + used, ROUTES_BYTES - used, "%s %s -> %s%s%s\n", s.op, s.query,
                                 s.kernel ? s.kernel : "none: ", slow ? " (slow): " : "",
                                 slow       ? s.reason + 6
                                 : s.kernel ? ""
                                            : s.reason);
        assert_true(used < ROUTES_BYTES);
    }
    rd_ctx_free(ctx);
}

static void check_fixture(const char *fixture) {
    static char routes[ROUTES_BYTES], pinned[ROUTES_BYTES];
    char path[4096];
    write_routes(fixture, routes);
    if (strstr(routes, "(built without")) { // the compiler of this card's kernels: nothing to route
        print_message("%s: no kernels in this build\n", fixture);
        skip();
    }
    golden_path(fixture, path, sizeof path);
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s is missing: run `build/test_golden update`", path);
    size_t length = fread(pinned, 1, sizeof pinned - 1, file);
    pinned[length] = 0;
    fclose(file);
    if (!strcmp(routes, pinned)) return;
    const char *now = routes, *then = pinned;
    while (*now && *now == *then) now++, then++;
    while (now > routes && now[-1] != '\n') now--, then--;
    fail_msg("routes of %s changed; if that is meant, run `build/test_golden update` and commit.\n  pinned: "
             "%.*s\n  "
             "now:    %.*s",
             fixture, (int)strcspn(then, "\n"), then, (int)strcspn(now, "\n"), now);
}

static void test_golden_r9700_gfx1201(void **state) {
    (void)state, check_fixture("r9700-gfx1201");
}
static void test_golden_h200_sm90a(void **state) {
    (void)state, check_fixture("h200-sm90a");
}
static void test_golden_h100_pcie_sm90a(void **state) {
    (void)state, check_fixture("h100-pcie-sm90a");
}
static void test_golden_x86_avx512(void **state) {
    (void)state, check_fixture("x86-avx512");
}
static void test_golden_x86_avx2(void **state) {
    (void)state, check_fixture("x86-avx2");
}

static int update(void) {
    static char routes[ROUTES_BYTES];
    const char *fixture;
    for (int32_t i = 0; (fixture = rd_device_fixture_at(i)) != NULL; i++) {
        char path[4096];
        write_routes(fixture, routes);
        golden_path(fixture, path, sizeof path);
        FILE *file = fopen(path, "w");
        if (!file || fputs(routes, file) < 0 || fclose(file)) return 1;
        printf("%s\n", path);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "update")) return update();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_r9700_gfx1201),   cmocka_unit_test(test_golden_h200_sm90a),
        cmocka_unit_test(test_golden_h100_pcie_sm90a), cmocka_unit_test(test_golden_x86_avx512),
        cmocka_unit_test(test_golden_x86_avx2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
