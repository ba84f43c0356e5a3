// SPDX-License-Identifier: Apache-2.0
// Only functions that ROCm 6, 7 and 10 export are looked up in libamdhip64: each has its line in tests/data/hip_functions.txt,
// which says in which versions it was seen, none is younger than hip_6.0, and our simulator exports them all.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/amd/hip_api.h"

enum { MOST = 128 };
typedef struct function {
    char name[64];
    double since; // 4.2 of hip_4.2
    bool bound;
} function;

static int read_functions(function list[MOST]) {
    char line[512];
    int count = 0;
    FILE *file = fopen(RD_TEST_DIR "/data/hip_functions.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (*line == '#') continue;
        assert_true(count < MOST);
        list[count] = (function){0};
        if (sscanf(line, "%63s hip_%lf", list[count].name, &list[count].since) != 2) fail_msg("%s", line);
        count++;
    }
    fclose(file);
    return count;
}

// Those of the list of hip_api.h, and those that library.c looks up one by one.
static int read_bound(char names[MOST][64]) {
    int count = 0;
#define NAME(name_, params_) snprintf(names[count++], 64, "%s", #name_);
    HIP_FUNCTIONS(NAME)
#undef NAME
    static char source[1 << 16];
    FILE *file = fopen(RD_TEST_DIR "/../src/backend/amd/library.c", "r");
    assert_non_null(file);
    source[fread(source, 1, sizeof source - 1, file)] = 0;
    fclose(file);
    static const char call[] = "dlsym(hip->handle, \"";
    for (char *at = source; (at = strstr(at, call)); count++) {
        assert_true(count < MOST);
        at += sizeof call - 1;
        snprintf(names[count], 64, "%.*s", (int)strcspn(at, "\""), at);
    }
    return count;
}

static void test_only_published_functions_are_bound(void **state) {
    (void)state;
    static function list[MOST];
    static char names[MOST][64];
    const int count = read_functions(list), bound = read_bound(names);
    assert_true(bound > 30);
    for (int i = 0; i < bound; i++) {
        if (!strncmp(names[i], "gfx12sim_", 9)) continue; // our simulator's own, and optional
        int at = 0;
        while (at < count && strcmp(list[at].name, names[i]) != 0) at++;
        if (at == count)
            fail_msg("%s has no line in tests/data/hip_functions.txt: which ROCm exports it?", names[i]);
        if (list[at].since > 6.0)
            fail_msg("%s is of hip_%g, ROCm 6.0 does not export it", names[i], list[at].since);
        list[at].bound = true;
    }
    for (int i = 0; i < count; i++)
        if (!list[i].bound) fail_msg("%s is not bound any more: its line goes", list[i].name);
}

static void test_the_simulator_exports_them(void **state) {
    (void)state;
    static char names[MOST][64];
    void *library = dlopen(RD_SIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) skip(); // built without it
    const int bound = read_bound(names);
    for (int i = 0; i < bound; i++)
        if (!dlsym(library, names[i])) fail_msg("%s: no %s", RD_SIM_LIBRARY, names[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_published_functions_are_bound),
        cmocka_unit_test(test_the_simulator_exports_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
