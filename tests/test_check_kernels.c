// SPDX-License-Identifier: Apache-2.0
// `radiance check --small` on an NVIDIA card, and `radiance devices` for the kernel that measures reading, launch every kernel of every
// code object: what compute-sanitizer is shown by tools/sanitize_device.sh leaves no kernel out, and the check without --small has
// the same cases besides its grid. Over a driver with nothing behind it, so every case fails; the names of what was launched count.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/code_objects.h"
#include "run_cli.h"
#include "support/files.h"

enum { NAMES = 1024, NAME_BYTES = 96 };
static scratch folder;
static char launched[NAMES][NAME_BYTES];
static int launched_count;

static void read_names(const char *path) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (launched_count < NAMES && fgets(launched[launched_count], NAME_BYTES, file)) {
        launched[launched_count][strcspn(launched[launched_count], "\n")] = 0;
        launched_count++;
    }
    fclose(file);
}

static bool was_launched(const char *symbol) {
    for (int i = 0; i < launched_count; i++)
        if (!strcmp(launched[i], symbol)) return true;
    return false;
}

static void test_every_kernel_is_launched(void **state) {
    (void)state;
    static const char *const commands[] = {"check --device gpu:0 --small --seed 1", "devices"};
    static cli_result result;
    char environment[4200];
    const char *path = scratch_path(&folder, "launched.txt");
    if (!rdi_code_object_find("sm90a_gemm_step")) skip(); // built without nvcc
    for (size_t i = 0; i < RDI_COUNT(commands); i++) {
        snprintf(
            environment, sizeof environment,
            "%s RADIANCE_TRUST=1 RADIANCE_HIP_LIBRARY=none RADIANCE_CUDA_LIBRARY='%s' FAKE_CUDA_LAUNCHED=%s",
            i ? "FAKE_CUDA=small" : "", RD_FAKE_CUDA, path);
        cli_run(environment, commands[i], &result);
        if (result.code != (i ? 0 : RD_E_INTERNAL))
            fail_msg("%s: exit code %d\n%s%s", commands[i], result.code, result.out, result.err);
        if (!i && strstr(result.out, "not run")) fail_msg("%s", result.out);
    }
    read_names(path);
    int missing = 0, kernels = 0;
    for (int32_t i = 0; i < rdi_code_object_count; i++) {
        if (rdi_code_objects[i].backend != RDI_BACKEND_NVIDIA) continue;
        for (int32_t k = 0; k < rdi_code_objects[i].kernel_count; k++, kernels++) {
            if (was_launched(rdi_code_objects[i].kernels[k].symbol)) continue;
            print_error("%s: no case of radiance check --small launches %s\n", rdi_code_objects[i].image,
                        rdi_code_objects[i].kernels[k].symbol);
            missing++;
        }
    }
    if (missing)
        fail_msg("%d of %d kernels: give each a case that its geometry chooses it for (src/cli/check_*.c)",
                 missing, kernels);
    assert_true(kernels > 0);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kernel_is_launched)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
