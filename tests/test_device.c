// SPDX-License-Identifier: Apache-2.0
// Devices: the fixtures, the running machine, hybrid and SMT machines laid out as folders, the bandwidth cache.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkdtemp, setenv
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "device/device.h"
#include "run_cli.h"

static char folder[] = "test_device_XXXXXX";
static char cache_folder[4096];

static void put(const char *path, const char *text) {
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", folder, path);
    for (char *at = full + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        mkdir(full, 0700);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static rd_device_info info_of(const char *name) {
    rd_device *device = NULL;
    rd_device_info info = {.struct_size = sizeof info};
    assert_int_equal(rd_device_open(name, &device), RD_OK);
    assert_int_equal(rd_device_get_info(device, &info), RD_OK);
    rd_device_close(device);
    return info;
}

// Figures from the vendors' data sheets, as the fixtures' comment names them.
static void test_fixtures(void **state) {
    (void)state;
    const struct {
        const char *name, *backend, *arch;
        int32_t units;
        int64_t lds_bytes;
    } expected[] = {{"r9700-gfx1201", "amd", "gfx1201", 64, 65536},
                    {"h200-sm90a", "nvidia", "sm_90a", 132, 232448},
                    {"h100-pcie-sm90a", "nvidia", "sm_90a", 114, 232448},
                    {"x86-avx512", "cpu", "x86-64", 2, 0},
                    {"x86-avx2", "cpu", "x86-64", 8, 0}};
    for (size_t i = 0; i < RDI_COUNT(expected); i++) {
        rd_device *device = NULL;
        rd_device_info info = {.struct_size = sizeof info};
        assert_string_equal(rd_device_fixture_at((int32_t)i), expected[i].name);
        assert_int_equal(rd_device_open(expected[i].name, &device), RD_OK);
        assert_int_equal(rd_device_get_info(device, &info), RD_OK);
        assert_string_equal(info.name, expected[i].name);
        assert_string_equal(info.backend, expected[i].backend);
        assert_string_equal(info.arch, expected[i].arch);
        assert_int_equal(info.compute_units, expected[i].units);
        assert_int_equal(info.lds_bytes, expected[i].lds_bytes);
        assert_int_equal(info.is_fixture, 1);
        assert_true(info.read_gbs > 0 && info.memory_bytes > 0);
        double gbs;
        assert_int_equal(rd_device_measure(device, 1, 1, &gbs), RD_E_NO_DEVICE);
        rd_device_close(device);
    }
    assert_null(rd_device_fixture_at((int32_t)RDI_COUNT(expected)));
    assert_null(rd_device_fixture_at(-1));
}

static void test_running_machine(void **state) {
    (void)state;
    rd_device_info cpu = info_of("cpu"), ref = info_of("cpu:ref");
    assert_string_equal(cpu.backend, "cpu");
    assert_int_equal(cpu.is_fixture, 0);
    assert_true(cpu.compute_units >= 1 && cpu.performance_cores >= 1 &&
                cpu.performance_cores <= cpu.compute_units);
    assert_true(cpu.memory_bytes > 1 << 20);
    assert_string_equal(ref.isa, "");
    // What the kernel of the operating system reports, read another way.
    char flags[8192] = "";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(flags, sizeof flags, file) && strncmp(flags, "flags", 5)) {
    }
    if (file) fclose(file);
#if defined(__x86_64__)
    assert_int_equal(strstr(cpu.isa, "avx2") != NULL,
                     strstr(flags, " avx2 ") && strstr(flags, " fma ") && strstr(flags, " f16c "));
    assert_int_equal(strstr(cpu.isa, "avx512vbmi") != NULL,
                     strstr(flags, " avx512vbmi ") && strstr(flags, " avx512bw "));
    assert_int_equal(strstr(cpu.isa, "avx512bf16") != NULL,
                     strstr(flags, " avx512_bf16 ") && strstr(flags, " avx512bw "));
    assert_int_equal(strstr(cpu.isa, "avx512vnni") != NULL,
                     strstr(flags, " avx512_vnni ") && strstr(flags, " avx512bw "));
    if (strstr(cpu.isa, "avx2")) assert_string_equal(info_of("cpu:avx2").isa, "avx2");
    if (strstr(cpu.isa, "avx512")) assert_string_equal(info_of("cpu:avx512").isa, "avx2 avx512");
#endif
}

static void test_open_names_the_known_devices(void **state) {
    (void)state;
    const char *const bad[] = {"cpu:sse", "gpu", "", "CPU", "cpux", "cpu:"};
    for (size_t i = 0; i < RDI_COUNT(bad); i++) {
        rd_device *device = (rd_device *)1;
        assert_int_equal(rd_device_open(bad[i], &device), RD_E_NO_DEVICE);
        assert_null(device);
        assert_non_null(strstr(
            rd_error_text(),
            "needs one of: cpu cpu:double cpu:ref cpu:avx2 cpu:avx512 gpu:0 sim:gfx1201 r9700-gfx1201"));
    }
    assert_int_equal(rd_device_open("cpu", NULL), RD_E_INVALID);
    rd_device *device = NULL;
    assert_int_equal(rd_device_open(NULL, &device), RD_OK); // the default is "cpu"
    rd_device_info info = {.struct_size = 4};
    assert_int_equal(rd_device_get_info(device, &info), RD_E_INVALID);
    assert_non_null(strstr(rd_error_text(), "struct_size=4"));
    rd_device_close(device);
    rd_device_close(NULL);
}

// ---- cores and caches from laid-out folders ------------------------------------------------------------------------------------
static void lay_core(const char *machine, int cpu, const char *siblings, const char *speed_file,
                     const char *speed) {
    char path[256];
    snprintf(path, sizeof path, "%s/system/cpu/cpu%d/topology/thread_siblings_list", machine, cpu);
    put(path, siblings);
    if (!speed_file) return;
    snprintf(path, sizeof path, "%s/system/cpu/cpu%d/%s", machine, cpu, speed_file);
    put(path, speed);
}

static rdi_cores probe(const char *machine, const char *allowed_bits) {
    char root[4096];
    unsigned char allowed[32] = {0};
    snprintf(root, sizeof root, "%s/%s", folder, machine);
    int32_t cpus = (int32_t)strlen(allowed_bits);
    for (int32_t i = 0; i < cpus; i++) allowed[i] = allowed_bits[i] == '1';
    return rdi_cores_probe(root, allowed, cpus);
}

static void check_cores(rdi_cores cores, int32_t physical, int32_t performance) {
    assert_int_equal(cores.physical, physical);
    assert_int_equal(cores.performance, performance);
}

static void test_cores_of_an_smt_machine(void **state) {
    (void)state;
    for (int cpu = 0; cpu < 8; cpu++) {
        char siblings[16];
        snprintf(siblings, sizeof siblings, "%d,%d", cpu % 4, cpu % 4 + 4);
        lay_core("smt", cpu, siblings, NULL, NULL);
    }
    check_cores(probe("smt", "11111111"), 4, 4);
    check_cores(probe("smt", "00001111"), 4, 4); // the second threads alone
    check_cores(probe("smt", "10001000"), 1, 1);
    check_cores(probe("smt", "01100001"), 3, 3);
}

static void test_cores_of_an_intel_hybrid(void **state) {
    (void)state; // 2 fast cores with two threads, 4 slow ones with one
    put("intel/cpu_core/cpus", "0-3");
    put("intel/cpu_atom/cpus", "4-7");
    for (int cpu = 0; cpu < 4; cpu++) lay_core("intel", cpu, cpu < 2 ? "0-1" : "2-3", NULL, NULL);
    const char *const alone[] = {"4", "5", "6", "7"};
    for (int cpu = 4; cpu < 8; cpu++) lay_core("intel", cpu, alone[cpu - 4], NULL, NULL);
    check_cores(probe("intel", "11111111"), 6, 2);
    check_cores(probe("intel", "00011110"), 4, 1);
    check_cores(probe("intel", "00001111"), 4, 4); // only slow cores are ours
}

static void test_cores_of_a_big_little_machine(void **state) {
    (void)state;
    const char *const capacity[] = {"446", "446", "446", "1024", "1024", "871"};
    for (int cpu = 0; cpu < 6; cpu++) {
        char siblings[12];
        snprintf(siblings, sizeof siblings, "%d", cpu);
        lay_core("arm", cpu, siblings, "cpu_capacity", capacity[cpu]);
        lay_core("clock", cpu, siblings, "cpufreq/cpuinfo_max_freq",
                 cpu < 2   ? "3600000"
                 : cpu < 4 ? "3500000"
                           : "2200000");
    }
    check_cores(probe("arm", "111111"), 6, 3);
    check_cores(probe("clock", "111111"), 6, 4); // a favoured core's few percent make no second kind
    check_cores(probe("nowhere", "11"), 2, 2);   // no sysfs: every CPU is a core
    check_cores(probe("nowhere", "00"), 1, 1);
}

static void test_caches(void **state) {
    (void)state;
    const char *const levels[] = {"1", "1", "2", "3"}, *const types[] = {"Data", "Instruction", "Unified",
                                                                         "Unified"};
    const char *const sizes[] = {"48K", "64K", "1024K", "32M"};
    for (int i = 0; i < 4; i++) {
        char path[128];
        snprintf(path, sizeof path, "cache/system/cpu/cpu0/cache/index%d/level", i);
        put(path, levels[i]);
        snprintf(path, sizeof path, "cache/system/cpu/cpu0/cache/index%d/type", i);
        put(path, types[i]);
        snprintf(path, sizeof path, "cache/system/cpu/cpu0/cache/index%d/size", i);
        put(path, sizes[i]);
    }
    char root[4096];
    snprintf(root, sizeof root, "%s/cache", folder);
    rdi_caches caches = rdi_caches_probe(root);
    assert_int_equal(caches.l1_bytes, 48 << 10);
    assert_int_equal(caches.l2_bytes, 1 << 20);
    assert_int_equal(caches.l3_bytes, 32 << 20);
    snprintf(root, sizeof root, "%s/nowhere", folder);
    assert_int_equal(rdi_caches_probe(root).l1_bytes, 0);
}

// ---- bandwidth cache -------------------------------------------------------------------------------------------------------------
static int warnings;
static char last_line[4096];
static void keep_line(void *state, rd_log_level level, const char *text) {
    (void)state;
    warnings += level == RD_LOG_WARN;
    snprintf(last_line, sizeof last_line, "%s", text);
}

static double measure(int32_t use_cache) {
    rd_device *device = NULL;
    double gbs = 0;
    assert_int_equal(rd_device_open("cpu", &device), RD_OK);
    rd_device_set_log(device, keep_line, NULL);
    assert_int_equal(rd_device_measure(device, 1, use_cache, &gbs), RD_OK);
    rd_device_info info = {.struct_size = sizeof info};
    rd_device_get_info(device, &info);
    assert_true(info.read_gbs == gbs && gbs > 0);
    rd_device_close(device);
    return gbs;
}

// The path of the only file in the cache folder.
static void cache_file(char *path, size_t bytes) {
    char command[8192];
    snprintf(command, sizeof command, "ls %s/radiance/*", cache_folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(fgets(path, (int)bytes, pipe));
    path[strcspn(path, "\n")] = 0;
    char more[64];
    assert_null(fgets(more, sizeof more, pipe)); // no temporary file stays
    pclose(pipe);
}

static void test_bandwidth_is_cached(void **state) {
    (void)state;
    warnings = 0;
    double first = measure(1);
    char path[4096], text[64];
    cache_file(path, sizeof path);
    FILE *file = fopen(path, "r");
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_true(strtod(text, NULL) > first * 0.99 && strtod(text, NULL) < first * 1.01);
    file = fopen(path, "w"); // the file is believed...
    fputs("123.500\n", file);
    fclose(file);
    assert_true(measure(1) == 123.5);
    assert_true(measure(0) != 123.5); // ...unless asked not to, and then replaced
    assert_true(measure(1) != 123.5);
    const char *const damaged[] = {"", "abc\n", "12", "-5\n", "1e300\n", "nan\n", "12 GB/s\n"};
    for (size_t i = 0; i < RDI_COUNT(damaged); i++) {
        file = fopen(path, "w");
        fputs(damaged[i], file);
        fclose(file);
        double gbs = measure(1);
        assert_true(gbs > 0.01 && gbs < 1e5);
    }
    assert_int_equal(warnings, 0);
}

static void test_unwritable_cache_is_a_log_line(void **state) {
    (void)state;
    // A file where the folder should be: no permission can make this one writable, not even for root.
    char command[16384];
    snprintf(command, sizeof command, "rm -r %s/radiance && touch %s/radiance", cache_folder, cache_folder);
    assert_int_equal(system(command), 0);
    warnings = 0;
    assert_true(measure(1) > 0);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_line, "bandwidth cache "));
    assert_non_null(strstr(last_line, " cannot be written: "));
    static cli_result result;
    cli_run("XDG_CACHE_HOME= HOME=", "devices --device cpu --threads 1 --json", &result);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.err, "neither XDG_CACHE_HOME nor HOME names a folder"));
    assert_non_null(strstr(result.out, "\"read_gbs\""));
}

static void test_measure_refuses_bad_threads(void **state) {
    (void)state;
    rd_device *device = NULL;
    double gbs;
    assert_int_equal(rd_device_open("cpu", &device), RD_OK);
    assert_int_equal(rd_device_measure(device, 0, 1, &gbs), RD_E_INVALID);
    assert_string_equal(rd_error_text(), "threads=0, needs 1 to 4096");
    assert_int_equal(rd_device_measure(device, 1, 1, NULL), RD_E_INVALID);
    assert_int_equal(rd_device_measure(NULL, 1, 1, &gbs), RD_E_INVALID);
    rd_device_close(device);
}

static int lay_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}
static int remove_folder(void **state) {
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    char here[2048];
    if (!getcwd(here, sizeof here)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures),
        cmocka_unit_test(test_running_machine),
        cmocka_unit_test(test_open_names_the_known_devices),
        cmocka_unit_test(test_cores_of_an_smt_machine),
        cmocka_unit_test(test_cores_of_an_intel_hybrid),
        cmocka_unit_test(test_cores_of_a_big_little_machine),
        cmocka_unit_test(test_caches),
        cmocka_unit_test(test_bandwidth_is_cached),
        cmocka_unit_test(test_unwritable_cache_is_a_log_line),
        cmocka_unit_test(test_measure_refuses_bad_threads),
    };
    // Before the first question to the environment, which is read once.
    if (lay_folder(NULL)) return 1;
    snprintf(cache_folder, sizeof cache_folder, "%s/%s/xdg", here, folder);
    setenv("XDG_CACHE_HOME", cache_folder, 1);
    unsetenv("RADIANCE_ISA");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(NULL);
    return failed;
}
