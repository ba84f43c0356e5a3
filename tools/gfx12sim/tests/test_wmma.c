// SPDX-License-Identifier: Apache-2.0
// Matrix instructions against double precision. Layout used here, written from the published maps: element e of
// lane l of A (row l&15) or B (column l&15) is k = 8*(e>>2) + 4*(l>>4) + (e&3); C and D hold row 8*(l>>4)+j,
// column l&15 in element j. Sparse A keeps two of every four neighbours of B's element list in the same lane half.
#include "snippet.h"
#include "mutants.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint32_t u32;
typedef uint64_t u64;
extern bool gs_use_avx512;
enum { F16, BF16, FP8, BF8, U8, I8, U4, I4 };
enum { F32, OF16, OBF16, I32 };
enum { NEG_MIX = 1, C_ONE = 2, CLAMP = 4, KEY1 = 8 };
static const struct {
    const char *text;
    int a, b, out, k, sparse, mods;
} cases[] = {
#define WMMA(...) {__VA_ARGS__},
#include "wmma.def"
};
enum { CASES = sizeof cases / sizeof *cases, WORDS = 32, WAVES = 24 };

static u64 state;
static u32 random32(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (u32)(state * 0x2545f4914f6cdd1dull >> 32);
}
static float f32(u32 u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static u32 bits_of(int format) {
    return format <= BF16 ? 16 : format <= I8 ? 8 : 4;
}

// in[lane][word]: words 0..3 A, 4..11 B, 14..21 C, 22 index
static double element(const u32 (*in)[WORDS], u32 lane, u32 word, int format, u32 e) {
    u32 bits = bits_of(format),
        raw = in[lane][word + e * bits / 32] >> (e * bits % 32) & (u32)((1ull << bits) - 1);
    switch (format) {
    case F16:
        return half_value(raw);
    case BF16:
        return f32(raw << 16);
    case FP8:
        return fp8_value(raw);
    case BF8:
        return bf8_value(raw);
    case I8:
        return (int8_t)raw;
    case I4:
        return raw >= 8 ? (int)raw - 16 : (int)raw;
    default:
        return raw;
    }
}

static u32 random_element(int format, int wave) {
    if (format == F16)
        return wave % 3 == 2 ? random32() & 0xffff : (random32() & 0x83ff) | (10 + random32() % 10) << 10;
    if (format == BF16) return (random32() & 0x807f) | (118 + random32() % 18) << 7;
    if (format == BF8)
        return wave % 3 == 2 ? random32() & 255 : (random32() & 0x83) | (10 + random32() % 10) << 2;
    return random32(); // all 256 codes of fp8, NaN among them in a third of the waves
}
static void fill(u32 (*in)[WORDS], int c, int wave) {
    for (u32 lane = 0; lane < 32; lane++) {
        memset(in[lane], 0, sizeof in[lane]);
        for (int part = 0; part < 2; part++) {
            int format = part ? cases[c].b : cases[c].a;
            u32 bits = bits_of(format), base = part ? 4 : 0, words = part ? 8 : 4;
            for (u32 e = 0; e < words * 32 / bits; e++) {
                u32 raw = random_element(format, wave) & (u32)((1ull << bits) - 1);
                if (format == FP8 && wave % 3 != 2 && (raw & 127) == 127) raw ^= 1;
                in[lane][base + e * bits / 32] |= raw << (e * bits % 32);
            }
        }
        for (int j = 0; j < 8; j++) {
            if (cases[c].out == I32)
                in[lane][14 + j] = wave % 2 ? random32() : 0x7ffffff0 + random32() % 64;
            else if (cases[c].out == F32)
                in[lane][14 + j] = (random32() & 0x807fffff) | (120 + random32() % 12) << 23;
            else if (cases[c].out == OF16)
                in[lane][14 + j] = (random32() & 0x83ff83ff) | 14u << 10 | 15u << 26;
            else
                in[lane][14 + j] = (random32() & 0x807f807f) | 125u << 7 | 126u << 23;
        }
        for (int i = 0; i < 16; i++) { // two different positions of four, ascending, per pair
            static const u32 pairs[6] = {4, 8, 12, 9, 13, 14};
            in[lane][22] |= i % 2 ? 0 : pairs[random32() % 6] << 2 * i;
        }
    }
}

// Double-precision dot product of row and column, the sum of magnitudes beside it.
static double product(const u32 (*in)[WORDS], int c, u32 row, u32 col, double *magnitude) {
    u32 stored = cases[c].sparse ? cases[c].k / 2 / 2 : cases[c].k / 2; // elements per lane of A
    double sum = 0;
    for (u32 h = 0; h < 2; h++)
        for (u32 e = 0; e < stored; e++) {
            u32 f = e;
            if (cases[c].sparse)
                f = 4 * (e / 2) + (in[row + 16 * h][22] >> (cases[c].mods & KEY1 ? 16 : 0) >> 2 * e & 3);
            double a = element(in, row + 16 * h, 0, cases[c].a, e),
                   b = element(in, col + 16 * h, 4, cases[c].b, f);
            if (cases[c].mods & NEG_MIX) { // A: even elements negated; B: odd elements
                if (e % 2 == 0) a = -a;
                if (f % 2 == 1) b = -b;
            }
            sum += a * b;
            *magnitude += fabs(a * b);
        }
    return sum;
}

static double accumulator(const u32 (*in)[WORDS], int c, u32 row, u32 col) {
    u32 lane = col + 16 * (row / 8), j = row % 8;
    double v = cases[c].out == F32    ? f32(in[lane][14 + j])
               : cases[c].out == I32  ? (int)in[lane][14 + j]
               : cases[c].out == OF16 ? half_value(in[lane][14 + j / 2] >> 16 * (j & 1) & 0xffff)
                                      : f32(in[lane][14 + j / 2] >> 16 * (j & 1) << 16);
    if (cases[c].mods & C_ONE) return 1;
    return cases[c].mods & NEG_MIX ? -fabs(v) : v;
}

static bool right(const u32 (*in)[WORDS], const u32 (*out)[8], int c, u32 row, u32 col, double *got,
                  double *want) {
    u32 lane = col + 16 * (row / 8), j = row % 8;
    double magnitude = 0, sum = product(in, c, row, col, &magnitude) + accumulator(in, c, row, col);
    magnitude += fabs(accumulator(in, c, row, col));
    *want = sum;
    if (cases[c].out == I32) {
        if (cases[c].mods & CLAMP) *want = sum = fmin(fmax(sum, INT32_MIN), INT32_MAX);
        *got = (int)out[lane][j];
        return out[lane][j] == (u32)(int64_t)sum;
    }
    u32 half = out[lane][j / 2] >> 16 * (j & 1) & 0xffff;
    *got = cases[c].out == F32    ? f32(out[lane][j])
           : cases[c].out == OF16 ? half_value(half)
                                  : f32(half << 16);
    if (sum != sum || isinf(sum) || magnitude != magnitude)
        return (*got != *got) == (sum != sum) && (sum != sum || *got == sum);
    // 17 roundings of float, and one of the 16-bit result.
    double unit = cases[c].out == F32 ? 0 : cases[c].out == OF16 ? 0x1p-11 : 0x1p-8;
    double bound =
        18 * 0x1p-24 * magnitude + unit * fabs(sum) * (1 + 0x1p-10) + (cases[c].out == OF16 ? 0x1p-25 : 0);
    if (cases[c].out == OF16 && fabs(sum) > 65504 - 32) return true;
    return fabs(*got - sum) <= bound;
}

static char *body_of(const char *instruction) {
    static const char head[] =
        "s_load_b128 s[4:7], s[0:1], 0x0\ns_wait_kmcnt 0\ns_lshl_b32 s10, ttmp9, 5\nv_add_nc_u32 v0, s10, "
        "v0\nv_lshlrev_b32 v1, 7, v0\nv_lshlrev_b32 v2, 5, v0\n";
    char *body = malloc(8192), *p = body + sprintf(body, "%s", head);
    for (int i = 0; i < 6; i++)
        p += sprintf(p, "global_load_b128 v[%d:%d], v1, s[4:5] offset:%d\n", 10 + 4 * i, 13 + 4 * i, 16 * i);
    p += sprintf(p, "s_wait_loadcnt 0\n");
    for (int i = 0; i < 8; i++) p += sprintf(p, "v_mov_b32 v%d, v%d\n", 40 + i, 24 + i);
    sprintf(p,
            "%s\nglobal_store_b128 v2, v[40:43], s[6:7]\nglobal_store_b128 v2, v[44:47], s[6:7] "
            "offset:16\ns_endpgm\n",
            instruction);
    return body;
}

static void run_all(bool avx512) {
    gs_use_avx512 = avx512;
    kernel_text kernels[CASES];
    char names[CASES][24];
    for (int c = 0; c < CASES; c++) {
        snprintf(names[c], sizeof names[c], "w%d", c);
        kernels[c] = (kernel_text){names[c], body_of(cases[c].text), 16, 0, 0, 32};
    }
    size_t bytes;
    void *image = assemble_kernels(kernels, CASES, &bytes), *in, *out;
    gs_mem *mem;
    gs_module *module;
    gs_error error;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    if (gs_module_load(mem, image, bytes, &module, &error)) fail_msg("%s", error.message);
    assert_int_equal(gs_mem_alloc(mem, WAVES * 32 * WORDS * 4, &in), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, WAVES * 32 * 32, &out), GS_OK);
    state = (u64)time(NULL) | 1;
    print_message("%d matrix cases, %s, seed %llu\n", CASES, avx512 ? "AVX-512" : "AVX2",
                  (unsigned long long)state);
    int failed = 0;
    for (int c = 0; c < CASES; c++) {
        u32(*lanes)[WORDS] = in, (*results)[8] = out;
        for (int w = 0; w < WAVES; w++) fill(lanes + 32 * w, c, w);
        const void *kernarg[2] = {in, out};
        gs_launch l;
        gs_launch_init(&l, gs_module_kernel(module, names[c]));
        l.grid[0] = WAVES, l.kernarg = kernarg, l.kernarg_bytes = sizeof kernarg;
        if (gs_launch_run(mem, &l, &error)) fail_msg("%s: %s", cases[c].text, error.message);
        int bad = 0;
        for (int i = 0; i < WAVES * 256; i++) {
            double got, want;
            int w = i / 256;
            if (right((const u32(*)[WORDS])(lanes + 32 * w), (const u32(*)[8])(results + 32 * w), c,
                      i / 16 % 16, i % 16, &got, &want))
                continue;
            if (bad++ == 0)
                print_error("%s\n  wave %d row %d column %d: got %.9g want %.9g\n", cases[c].text, w,
                            i / 16 % 16, i % 16, got, want);
        }
        failed += bad > 0;
        free((void *)(uintptr_t)kernels[c].body);
    }
    free(image);
    gs_module_free(module);
    gs_mem_destroy(mem);
    gs_use_avx512 = true;
    assert_int_equal(failed, 0);
}
// ---- every matrix instruction's test can fail -----------------------------------------------------------------
static int wrong(gs_mem *mem, gs_module *module, int c, const char *name, void *in, void *out) {
    const void *kernarg[2] = {in, out};
    gs_launch l;
    gs_error error;
    gs_launch_init(&l, gs_module_kernel(module, name));
    l.grid[0] = WAVES, l.kernarg = kernarg, l.kernarg_bytes = sizeof kernarg, l.threads = 1;
    if (gs_launch_run(mem, &l, &error)) return 1;
    int bad = 0;
    u32(*lanes)[WORDS] = in, (*results)[8] = out;
    for (int i = 0; i < WAVES * 256; i++) {
        double got, want;
        int w = i / 256;
        bad += !right((const u32(*)[WORDS])(lanes + 32 * w), (const u32(*)[8])(results + 32 * w), c,
                      i / 16 % 16, i % 16, &got, &want);
    }
    return bad;
}

static void test_every_matrix_instruction_can_fail(void **s) {
    (void)s;
    gs_mem *mem;
    gs_error error;
    void *in, *out;
    assert_int_equal(gs_mem_create(&mem), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, WAVES * 32 * WORDS * 4, &in), GS_OK);
    assert_int_equal(gs_mem_alloc(mem, WAVES * 32 * 32, &out), GS_OK);
    state = (u64)time(NULL) | 1;
    bool *killed = calloc(gs_row_count(), sizeof *killed);
    assert_non_null(killed);
    for (int c = 0; c < CASES; c++) {
        kernel_text text = {"w", body_of(cases[c].text), 16, 0, 0, 32};
        size_t bytes;
        void *image = assemble_kernels(&text, 1, &bytes);
        gs_module *module;
        if (gs_module_load(mem, image, bytes, &module, &error)) fail_msg("%s", error.message);
        for (int w = 0; w < WAVES; w++) fill((u32(*)[WORDS])in + 32 * w, c, w);
        for (size_t row = 0; row < gs_row_count(); row++) {
            const char *name = gs_row_mnemonic(row);
            if (gs_row_class(row) != GS_CLASS_WMMA ||
                !mutants_set(module, 0, module->op_count, name, FLIP_MANY))
                continue;
            killed[row] |= wrong(mem, module, c, "w", in, out) > 0;
            mutants_clear(module, 0, module->op_count);
            assert_int_equal(wrong(mem, module, c, "w", in, out), 0);
        }
        gs_module_free(module);
        free(image);
        free((void *)(uintptr_t)text.body);
    }
    int failed = 0;
    for (size_t row = 0; row < gs_row_count(); row++)
        if (gs_row_class(row) == GS_CLASS_WMMA && !killed[row])
            failed++, print_error("%s: no test notices a false result\n", gs_row_mnemonic(row));
    free(killed);
    gs_mem_destroy(mem);
    assert_int_equal(failed, 0);
}

static void test_wmma_avx512(void **s) {
    (void)s;
    run_all(true);
}
static void test_wmma_avx2(void **s) {
    (void)s;
    run_all(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wmma_avx512), cmocka_unit_test(test_wmma_avx2),
                                       cmocka_unit_test(test_every_matrix_instruction_can_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
