// SPDX-License-Identifier: Apache-2.0
// Sound code objects v5 and v6: relocations, hidden arguments, the dispatch packet. Hostile code objects: every truncation, and seeded mutations of a sound one (bytes, whole words of sizes and offsets, cut
// and shifted ranges), must load or be refused with a message; run under ASan+UBSan this is the loader's fuzzer.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "snippet.h"

enum { MUTATIONS = 4000 };

static uint64_t state_bits;
static uint64_t draw(uint64_t below) {
    state_bits ^= state_bits << 13, state_bits ^= state_bits >> 7, state_bits ^= state_bits << 17;
    return state_bits % below;
}

static uint8_t *sound_object(size_t *bytes) {
    const kernel_text kernels[] = {{"first", "v_mov_b32 v1, 0\ns_endpgm", 16, 64, 0, 32},
                                   {"second", "s_endpgm", 8, 0, 16, 64}};
    return assemble_kernels(kernels, 2, bytes);
}

static void load_and_forget(gs_mem *mem, const uint8_t *image, size_t bytes) {
    gs_module *module = NULL;
    gs_error error = {0};
    if (gs_module_load(mem, image, bytes, &module, &error) == GS_OK) {
        for (size_t i = 0; i < gs_module_kernel_count(module); i++)
            assert_non_null(gs_kernel_describe(gs_module_kernel_at(module, i))->name);
        gs_module_free(module);
    } else {
        assert_true(error.message[0] != 0);
    }
}

static void test_loader_truncated(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *image = sound_object(&bytes);
    gs_mem *mem;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    for (size_t keep = 0; keep < bytes; keep += 7) {
        uint8_t *part = malloc(keep ? keep : 1); // its own block: ASan sees a read past the end
        memcpy(part, image, keep);
        load_and_forget(mem, part, keep);
        free(part);
    }
    gs_mem_destroy(mem);
    free(image);
}

static void mutate(uint8_t *image, size_t bytes) {
    static const uint64_t words[] = {
        0, 1, 7, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff};
    for (uint64_t n = 1 + draw(4); n > 0; n--) {
        size_t at = draw(draw(2) ? bytes : bytes < 1024 ? bytes : 1024); // headers and notes stand first
        switch (draw(3)) {
        case 0:
            image[at] = (uint8_t)draw(256);
            break;
        case 1:
            image[at] ^= (uint8_t)(1u << draw(8));
            break;
        default: {
            uint64_t word = words[draw(sizeof words / sizeof *words)];
            size_t width = draw(2) ? 4 : 8;
            if (at + width <= bytes) memcpy(image + at, &word, width);
        }
        }
    }
}

static void test_loader_mutated(void **state) {
    (void)state;
    size_t bytes;
    uint8_t *image = sound_object(&bytes), *copy = malloc(bytes);
    gs_mem *mem;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    const char *given = getenv("RADIANCE_TEST_SEED");
    state_bits = given ? strtoull(given, NULL, 10) | 1 : 0x9e3779b97f4a7c15u;
    printf("seed %llu, %d mutations of %zu bytes\n", (unsigned long long)state_bits, MUTATIONS, bytes);
    for (int i = 0; i < MUTATIONS; i++) {
        memcpy(copy, image, bytes);
        mutate(copy, bytes);
        load_and_forget(mem, copy, bytes);
    }
    gs_mem_destroy(mem);
    free(copy);
    free(image);
}

// ---- sound objects: code object v5 and v6 ----------------------------------------------------------------------
static gs_module *open_object(gs_mem *mem, const char *path) {
    static uint8_t image[1 << 20];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t bytes = fread(image, 1, sizeof image, f);
    fclose(f);
    gs_module *module = NULL;
    gs_error e;
    if (gs_module_load(mem, image, bytes, &module, &e)) fail_msg("%s: %s", path, e.message);
    return module;
}

static void launch_or_fail(gs_mem *mem, const gs_launch *l) {
    gs_error e;
    char text[1024];
    if (!gs_launch_run(mem, l, &e)) return;
    gs_error_format(&e, text, sizeof text);
    fail_msg("%s", text);
}

static void check_relocated(const char *path) {
    gs_mem *mem;
    void *out, *address;
    size_t bytes;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, 4096, &out), GS_OK);
    gs_module *m = open_object(mem, path);
    gs_launch l;
    gs_launch_init(&l, gs_module_kernel(m, "relocated"));
    l.kernarg = &out, l.kernarg_bytes = sizeof out;
    launch_or_fail(mem, &l);
    for (int i = 0; i < 4; i++) assert_int_equal(((int32_t *)out)[i], 10 * (i + 1) + 107);
    assert_int_equal(gs_module_symbol(m, "exported", &address, &bytes), GS_OK); // hipModuleGetGlobal's way
    assert_int_equal(bytes, 4);
    assert_int_equal(*(int32_t *)address, 101);
    gs_module_free(m);
    gs_mem_destroy(mem);
}

static void check_hidden(const char *path) {
    static const int32_t want[19] = {5, 3, 1, 16, 4, 1, 0, 0, 0, 0, 0, 0, 16, 4, 1, 80, 12, 1, 2};
    gs_mem *mem;
    void *out;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, 4096, &out), GS_OK);
    gs_module *m = open_object(mem, path);
    gs_launch l;
    gs_launch_init(&l, gs_module_kernel(m, "hidden"));
    l.grid[0] = 5, l.grid[1] = 3, l.block[0] = 16, l.block[1] = 4;
    l.kernarg = &out, l.kernarg_bytes = sizeof out, l.threads = 1;
    launch_or_fail(mem, &l);
    for (int i = 0; i < 19; i++)
        if (((int32_t *)out)[i] != want[i])
            fail_msg("%s: value %d is %d, want %d", path, i, ((int32_t *)out)[i], want[i]);
    gs_module_free(m);
    gs_mem_destroy(mem);
}

static void test_relocations(void **state) {
    (void)state;
    check_relocated(LOADER_V5_OBJECT);
    check_relocated(LOADER_V6_OBJECT);
}
static void test_hidden_arguments(void **state) {
    (void)state;
    check_hidden(LOADER_V5_OBJECT);
    check_hidden(LOADER_V6_OBJECT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loader_truncated), cmocka_unit_test(test_loader_mutated),
        cmocka_unit_test(test_relocations), cmocka_unit_test(test_hidden_arguments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
