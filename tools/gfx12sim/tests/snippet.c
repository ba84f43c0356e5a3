// SPDX-License-Identifier: Apache-2.0
// See snippet.h: building, assembling and running the one-instruction kernels.
#include "snippet.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t random_state;
static uint32_t random32(void) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (uint32_t)(random_state * 0x2545f4914f6cdd1dull >> 32);
}

static const uint32_t f32_edges[] = {
    0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff,
    0x00800000, 0x80800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc01234,
    0x7f800001, 0xffa00000, 0x3f000000, 0xbf000000, 0x3fc00000, 0x40200000, 0xc0200000, 0x4b000001,
    0x4b800000, 0x4f000000, 0xcf000000, 0x4f800000, 0x477fe000, 0x477fefff, 0x477ff000, 0x43e00000,
    0x43e80000, 0x43e80001, 0x33000000, 0x33000001, 0x38800000, 0x387fc000, 0x3e99999a, 0x40490fdb,
    0x42fe0000, 0xc2fc0000, 0x43000000, 0xc3160000, 0x3b000000, 0x3a800000, 0x477fff00, 0x46fffe00,
    0xc7000000, 0x3effffff, 0x3f7fffff};
static const uint32_t f16_edges[] = {0x0000, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x8001, 0x03ff, 0x83ff,
                                     0x0400, 0x8400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01,
                                     0x7c01, 0xfd00, 0x3800, 0x3e00, 0x4100, 0xc100, 0x3555, 0x4248,
                                     0x6400, 0x6401, 0x7800, 0x2e66, 0x5bff, 0x1400};
static const uint64_t f64_edges[] = {
    0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000, 0x0000000000000001,
    0x800fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000,
    0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001, 0x3fe0000000000000, 0x4004000000000000,
    0xc004000000000000, 0x41dfffffffc00000, 0xc1e0000000000000, 0x41efffffffe00000, 0x47efffffe0000000,
    0x36a0000000000000, 0x3ca0000000000000, 0x43e0000000000000, 0x7fe0000000000000, 0x0020000000000000,
    0x3fb999999999999a};
static const uint32_t int_edges[] = {0,          1,          2,          3,          7,          8,
                                     15,         16,         31,         32,         33,         0x7f,
                                     0x80,       0xff,       0x100,      0x7fff,     0x8000,     0xffff,
                                     0x10000,    0x7fffff,   0x800000,   0xffffff,   0x7fffffff, 0x80000000,
                                     0x80000001, 0xfffffffe, 0xffffffff, 0x00ff00ff, 0x7f80ff00};
#define PICK(list) list[random32() % (sizeof list / sizeof *list)]

static uint32_t word_of(uint32_t kind) {
    switch (kind % 6) {
    case 0:
        return random32();
    case 1:
        return PICK(f32_edges);
    case 2:
        return PICK(f16_edges) | PICK(f16_edges) << 16;
    case 3:
        return (random32() & 0x807fffff) | (96 + random32() % 64) << 23; // moderate floats
    case 4:
        return PICK(int_edges);
    default:
        return (random32() & 0x83ff83ff) | (8 + random32() % 16) << 10 |
               (8 + random32() % 16) << 26; // moderate halves
    }
}

void snippet_fill(snippet_inputs *inputs, uint64_t seed) {
    random_state = seed | 1;
    for (uint32_t lane = 0; lane < SNIPPET_WAVES * 32; lane++) {
        uint32_t kind = lane / 64, *in = inputs->in[lane];
        for (int i = 0; i < SNIPPET_WORDS; i++) in[i] = word_of(kind);
        for (int i = 4; i < 10; i += 2) { // doubles
            uint64_t d = kind % 2 ? PICK(f64_edges)
                                  : random32() | (uint64_t)(random32() & 0x800fffff) << 32 |
                                        (uint64_t)(1023 - 40 + random32() % 80) << 52;
            if (kind % 6 == 4) d = random32() | (uint64_t)random32() << 32;
            in[i] = (uint32_t)d, in[i + 1] = (uint32_t)(d >> 32);
        }
    }
    for (uint32_t wave = 0; wave < SNIPPET_WAVES; wave++) {
        for (int i = 0; i < 16; i++) inputs->sc[wave][i] = word_of(wave / 2);
        inputs->sc[wave][13] = wave & 1 ? random32() | 1u << (wave & 31) : ~0u;
        inputs->sc[wave][14] = random32();
        inputs->sc[wave][15] = random32() & 1;
        for (int i = 4; i < 8; i += 2)
            if (wave % 3 == 0) inputs->sc[wave][i] = random32(), inputs->sc[wave][i + 1] = random32();
    }
}

static void *read_whole(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    void *p = malloc((size_t)n + 1);
    *bytes = fread(p, 1, (size_t)n, f);
    fclose(f);
    return p;
}

void *assemble_text(const char *text, size_t *bytes) {
    char source[] = "/tmp/gfx12sim-XXXXXX.s", object[64], command[512];
    int fd = mkstemps(source, 2);
    assert_true(fd >= 0);
    size_t n = strlen(text);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
    snprintf(object, sizeof object, "%s.hsaco", source);
    snprintf(command, sizeof command,
             "llvm-mc-22 -triple=amdgcn-amd-amdhsa -mcpu=gfx1201 -mattr=+real-true16 -filetype=obj %s -o "
             "%s.o && ld.lld-22 -shared %s.o -o %s && rm %s.o",
             source, source, source, object, source);
    int code = system(command);
    void *image = code == 0 ? read_whole(object, bytes) : NULL;
    if (code == 0) unlink(source), unlink(object);
    assert_int_equal(code, 0);
    assert_non_null(image);
    return image;
}

typedef struct buffer {
    char *text;
    size_t used, room;
} buffer;
static void append(buffer *b, const char *format, ...) {
    va_list args;
    for (;;) {
        va_start(args, format);
        int n = vsnprintf(b->text + b->used, b->room - b->used, format, args);
        va_end(args);
        if (b->used + (size_t)n < b->room) {
            b->used += (size_t)n;
            return;
        }
        b->room = 2 * b->room + (size_t)n + 1;
        b->text = realloc(b->text, b->room);
        assert_non_null(b->text);
    }
}

static void append_kernel(buffer *b, const kernel_text *k) {
    append(b, ".text\n.p2align 8\n.globl %s\n.type %s,@function\n%s:\n%s\n.L%s_end:\n.size %s,.L%s_end-%s\n",
           k->name, k->name, k->name, k->body, k->name, k->name, k->name, k->name);
    append(b,
           ".rodata\n.p2align 6\n.amdhsa_kernel %s\n.amdhsa_user_sgpr_kernarg_segment_ptr "
           "1\n.amdhsa_kernarg_size %u\n.amdhsa_group_segment_fixed_size "
           "%u\n.amdhsa_private_segment_fixed_size %u\n"
           ".amdhsa_system_vgpr_workitem_id 2\n.amdhsa_next_free_vgpr 128\n.amdhsa_next_free_sgpr "
           "100\n.amdhsa_wavefront_size32 1\n.amdhsa_float_denorm_mode_32 3\n.end_amdhsa_kernel\n",
           k->name, k->kernarg_bytes, k->lds_bytes, k->scratch_bytes);
}
static void append_metadata(buffer *b, const kernel_text *k) {
    append(b,
           "  - .name: %s\n    .symbol: %s.kd\n    .kernarg_segment_size: %u\n    .kernarg_segment_align: "
           "8\n    .group_segment_fixed_size: %u\n    .private_segment_fixed_size: %u\n    .wavefront_size: "
           "32\n    .sgpr_count: 100\n    .vgpr_count: 128\n    .max_flat_workgroup_size: 1024\n    .args:\n",
           k->name, k->name, k->kernarg_bytes, k->lds_bytes, k->scratch_bytes);
    for (uint32_t i = 0; i < k->kernarg_bytes; i += 8)
        append(b, "      - {.offset: %u, .size: 8, .value_kind: global_buffer, .address_space: global}\n", i);
}

void *assemble_kernels(const kernel_text *kernels, size_t count, size_t *bytes) {
    buffer b = {calloc(1, 1 << 16), 0, 1 << 16};
    append(&b, ".amdgcn_target \"amdgcn-amd-amdhsa--gfx1201\"\n.amdhsa_code_object_version 5\n");
    for (size_t i = 0; i < count; i++) append_kernel(&b, &kernels[i]);
    append(&b, ".amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n");
    for (size_t i = 0; i < count; i++) append_metadata(&b, &kernels[i]);
    append(&b, "...\n.end_amdgpu_metadata\n");
    void *image = assemble_text(b.text, bytes);
    free(b.text);
    return image;
}

static const char before[] =
    "s_load_b128 s[4:7], s[0:1], 0x0\ns_load_b64 s[8:9], s[0:1], 0x10\ns_wait_kmcnt 0\ns_lshl_b32 s10, "
    "ttmp9, 5\nv_add_nc_u32 v0, s10, v0\nv_lshlrev_b32 v1, 6, v0\n"
    "global_load_b128 v[10:13], v1, s[4:5]\nglobal_load_b128 v[14:17], v1, s[4:5] "
    "offset:16\nglobal_load_b128 v[18:21], v1, s[4:5] offset:32\nglobal_load_b128 v[22:25], v1, s[4:5] "
    "offset:48\n"
    "s_lshl_b32 s10, ttmp9, 6\ns_load_b512 s[16:31], s[8:9], s10\ns_wait_loadcnt 0\ns_wait_kmcnt 0\n"
    "v_and_b32 v50, 0x7c0, v1\nv_add_co_u32 v54, s62, s6, v1\nv_add_co_ci_u32 v55, null, s7, 0, "
    "s62\ns_mov_b32 s36, s6\ns_and_b32 s37, s7, 0xffff\ns_mov_b32 s38, 0x3ffffffe\ns_mov_b32 s39, "
    "0x30000000\n"
    "v_mov_b32 v40, v22\nv_mov_b32 v41, v23\nv_mov_b32 v42, v24\nv_mov_b32 v43, v25\nv_mov_b32 v44, "
    "0\nv_mov_b32 v45, 0\nv_mov_b32 v46, 0\nv_mov_b32 v47, 0\n"
    "s_mov_b32 s60, s26\ns_mov_b32 s61, s27\ns_mov_b32 vcc_lo, s30\ns_cmp_lg_u32 s31, 0\ns_mov_b32 exec_lo, "
    "s29\n";
static const char after[] =
    "\ns_cselect_b32 s62, 1, 0\ns_mov_b32 s63, exec_lo\ns_mov_b32 exec_lo, -1\ns_wait_idle\n"
    "v_mov_b32 v48, s60\nv_mov_b32 v49, s61\nv_mov_b32 v50, vcc_lo\nv_mov_b32 v51, s62\nv_mov_b32 v52, "
    "s63\nv_mov_b32 v53, v10\n"
    "global_store_b128 v1, v[40:43], s[6:7]\nglobal_store_b128 v1, v[44:47], s[6:7] "
    "offset:16\nglobal_store_b128 v1, v[48:51], s[6:7] offset:32\nglobal_store_b64 v1, v[52:53], s[6:7] "
    "offset:48\ns_endpgm\n";

gs_module *snippet_module(gs_mem *mem, const char *const *lines, size_t count) {
    kernel_text *kernels = calloc(count, sizeof *kernels);
    char(*names)[24] = calloc(count, sizeof *names);
    for (size_t i = 0; i < count; i++) {
        char *body = malloc(sizeof before + sizeof after + strlen(lines[i]) + 1);
        sprintf(body, "%s%s%s", before, lines[i], after);
        snprintf(names[i], sizeof names[i], "t%zu", i);
        kernels[i] = (kernel_text){names[i], body, 24, 4096, 64, 32};
    }
    size_t bytes;
    void *image = assemble_kernels(kernels, count, &bytes);
    gs_module *module = NULL;
    gs_error error;
    if (gs_module_load(mem, image, bytes, &module, &error)) fail_msg("%s", error.message);
    for (size_t i = 0; i < count; i++) free((void *)(uintptr_t)kernels[i].body);
    free(kernels);
    free(names);
    free(image);
    return module;
}

static uint32_t lines_of(const char *text) {
    uint32_t count = 0;
    for (; *text; text++) count += *text == '\n' && text[1] && text[1] != '\n';
    return count;
}
void snippet_frame(uint32_t *instructions_before, uint32_t *instructions_after) {
    *instructions_before = lines_of(before) + 1; // begins with an instruction
    *instructions_after = lines_of(after);       // begins with a new line
}

gs_status snippet_try(gs_mem *mem, gs_module *module, size_t index, const snippet_inputs *inputs,
                      snippet_out *out, gs_error *error) {
    const void *kernarg[3] = {inputs->in, out, inputs->sc};
    gs_launch l;
    gs_launch_init(&l, gs_module_kernel_at(module, index));
    l.grid[0] = SNIPPET_WAVES;
    l.kernarg = kernarg;
    l.kernarg_bytes = sizeof kernarg;
    l.checks = GS_CHECKS_NONE;
    l.threads = 1;
    l.max_wave_steps = 10000;
    return gs_launch_run(mem, &l, error);
}

void snippet_run(gs_mem *mem, gs_module *module, size_t index, const snippet_inputs *inputs,
                 snippet_out *out) {
    gs_error error;
    if (snippet_try(mem, module, index, inputs, out, &error)) {
        char text[1024];
        gs_error_format(&error, text, sizeof text);
        fail_msg("%s", text);
    }
}

double half_value(uint32_t h) {
    int e = h >> 10 & 31;
    double m = (double)(h & 1023), v = e == 31 ? (m != 0 ? NAN : INFINITY)
                                       : e     ? ldexp(1024 + m, e - 25)
                                               : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}
double fp8_value(uint32_t c) {
    int e = c >> 3 & 15;
    double m = (double)(c & 7), v = (c & 127) == 127 ? NAN : e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return c & 128 ? -v : v;
}
double bf8_value(uint32_t c) {
    return half_value((c & 255) << 8);
}

// Largest half not above |x|, then the nearer of it and its successor; ties to even.
uint32_t nearest_half(__float128 x) {
    if (x != x) return 0x7e00;
    uint32_t sign = 0;
    double probe = (double)x;
    if (signbit(probe)) sign = 0x8000, x = -x;
    if (x >= 65520.0) return sign | 0x7c00;
    uint32_t lo = 0, hi = 0x7c00;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if ((__float128)half_value(mid) <= x)
            lo = mid;
        else
            hi = mid;
    }
    if (lo == 0x7bff) return sign | (x - 65504.0 < 65536.0 - x ? lo : 0x7c00);
    __float128 below = x - (__float128)half_value(lo), above = (__float128)half_value(lo + 1) - x;
    if (below < above) return sign | lo;
    if (above < below) return sign | (lo + 1);
    return sign | (lo & 1 ? lo + 1 : lo);
}
