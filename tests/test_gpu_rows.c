// SPDX-License-Identifier: Apache-2.0
// GPU rows without a card: each has its code object, its kernels and their resources; a geometry is plain arithmetic.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/code_objects.h"
#include "kernels/elementwise/args.h"
#include "kernels/elementwise/gfx1201_args.h"
#include "kernels/gemm_fp8block/args.h"
#include "kernels/quant_fp8/args.h"
#include "kernels/rows.h"

static void test_each_row_has_its_kernels(void **state) {
    (void)state;
    for (int32_t i = 0; i < rdi_row_count; i++) {
        const rdi_row *row = &rdi_rows[i];
        rd_kernel_resources r = {.struct_size = sizeof r};
        if (!row->geometry) {
            assert_int_equal(rd_kernel_resources_at(&row->info, 0, &r), RD_E_LIMIT);
            continue;
        }
        const rdi_code_object *object = rdi_code_object_find(row->image);
        if (!object) fail_msg("%s: code object %s is not in the build", row->info.name, row->image);
        assert_int_equal(object->backend, row->backend);
        // An ELF file for AMD; a fat binary, magic word 0xba55ed50, for NVIDIA.
        const char *magic = row->backend == RDI_BACKEND_AMD ? "\x7f\x45\x4c\x46" : "\x50\xed\x55\xba";
        assert_true(object->end > object->begin && !memcmp(object->begin, magic, 4));
        int count = 0;
        for (; rd_kernel_resources_at(&row->info, count, &r) == RD_OK; count++) {
            assert_true(r.vector_registers > 0 && r.vector_registers <= 256);
            if (row->backend == RDI_BACKEND_AMD) {
                assert_int_equal(r.spills, 0);
                assert_int_equal(r.scratch_bytes, 0);
                assert_true(r.shared_bytes <= 65536 && r.code_bytes > 0);
                assert_true(r.waves_per_simd >= 1 && r.waves_per_simd <= 16);
            }
        }
        if (!count)
            fail_msg("%s: no kernel in %s has a symbol that begins with rdk_%s", row->info.name, row->image,
                     row->info.name);
    }
}

static void test_resources_refuse_bad_calls(void **state) {
    (void)state;
    rd_kernel_resources r = {.struct_size = 4};
    rd_kernel_info unknown = {.name = "x"};
    assert_int_equal(rd_kernel_resources_at(rd_kernel_at(0), 0, &r), RD_E_INVALID);
    assert_int_equal(rd_kernel_resources_at(rd_kernel_at(0), 0, NULL), RD_E_INVALID);
    r.struct_size = sizeof r;
    assert_int_equal(rd_kernel_resources_at(&unknown, 0, &r), RD_E_INVALID);
    assert_int_equal(rd_kernel_resources_at(NULL, 0, &r), RD_E_INVALID);
    assert_null(rdi_code_object_find("gfx1201_nonsense"));
}

// Three rows of 5000 elements, 2048 to a work-group: 3 x 3 groups; odd strides of bf16 are not whole 16-byte pieces.
static void test_act_mul_geometry(void **state) {
    (void)state;
    const rdi_act_mul_args args = {.m = 3,
                                   .k = 5000,
                                   .gate = (void *)4096,
                                   .up = (void *)8192,
                                   .y = (void *)16384,
                                   .gate_stride = 5000,
                                   .up_stride = 5000,
                                   .y_stride = 5000,
                                   .x_dtype = RD_DTYPE_BF16,
                                   .y_dtype = RD_DTYPE_F16,
                                   .act = RDI_ACT_GELU_TANH};
    rdi_launch out[RDI_MAX_LAUNCHES];
    assert_int_equal(rdi_act_mul_gfx1201_geometry(&args, NULL, NULL, out), 1);
    assert_string_equal(out[0].kernel, "rdk_act_mul_gfx1201");
    assert_int_equal(out[0].grid[0], 3);
    assert_int_equal(out[0].grid[1], 3);
    assert_int_equal(out[0].grid[2], 1);
    assert_int_equal(out[0].block[0] * out[0].block[1] * out[0].block[2], 256);
    rdk_act_mul_gfx1201_args kernel;
    assert_int_equal(out[0].args_bytes, sizeof kernel);
    memcpy(&kernel, out[0].args, sizeof kernel);
    assert_int_equal(kernel.gate, 4096);
    assert_int_equal(kernel.y, 16384);
    assert_int_equal(kernel.k, 5000);
    assert_int_equal(kernel.gelu, 1);
    assert_int_equal(kernel.wide, 1);
    rdi_act_mul_args odd = args;
    odd.up_stride = 5001;
    rdi_act_mul_gfx1201_geometry(&odd, NULL, NULL, out);
    memcpy(&kernel, out[0].args, sizeof kernel);
    assert_int_equal(kernel.wide, 0);
    odd = args;
    odd.y = (void *)16386;
    rdi_act_mul_gfx1201_geometry(&odd, NULL, NULL, out);
    memcpy(&kernel, out[0].args, sizeof kernel);
    assert_int_equal(kernel.wide, 0);
}

// Operands that no key of the question names may have any floating type on a CPU. A card's kernels load three.
static void test_unnamed_operands_are_refused(void **state) {
    (void)state;
    const rd_dtype refused[] = {RD_DTYPE_E4M3, RD_DTYPE_E8M0},
                   taken[] = {RD_DTYPE_F32, RD_DTYPE_BF16, RD_DTYPE_F16};
    const rd_device_info h200 = {.compute_units = 132};
    static char operand[4096];
    rdi_launch out[RDI_MAX_LAUNCHES];
    for (size_t i = 0; i < RDI_COUNT(refused) + RDI_COUNT(taken); i++) {
        rd_dtype type = i < RDI_COUNT(refused) ? refused[i] : taken[i - RDI_COUNT(refused)];
        int32_t needed = i >= RDI_COUNT(refused);
        rdi_rmsnorm_args norm = {.m = 1, .k = 64, .residual = operand, .residual_dtype = type};
        rdi_rope_args rope = {.tokens = 1, .q_heads = 1, .head_dim = 64, .rotary_dim = 64};
        rope.q_norm = operand, rope.norm_dtype = type;
        assert_int_equal(rdi_rmsnorm_gfx1201_geometry(&norm, NULL, NULL, out), needed);
        if (!needed) assert_non_null(strstr(rd_error_text(), "rmsnorm: residual: dtype="));
        assert_int_equal(rdi_rope_gfx1201_geometry(&rope, NULL, NULL, out), needed);
        assert_int_equal(rdi_rmsnorm_sm90a_geometry(&norm, NULL, &h200, out), needed);
        assert_int_equal(rdi_rope_sm90a_geometry(&rope, NULL, &h200, out), needed);
        for (rdi_quant_fuse fuse = RDI_FUSE_RMSNORM; fuse <= RDI_FUSE_GELU_MUL; fuse++) {
            rdi_quant_args quant = {.m = 1, .k = 128, .fuse = fuse, .x_dtype = RD_DTYPE_BF16};
            quant.up_dtype = quant.residual_dtype = quant.norm_dtype = type;
            assert_int_equal(rdi_quant_fp8_gfx1201_geometry(&quant, NULL, NULL, out), needed);
            if (fuse == RDI_FUSE_GELU_MUL) continue; // no row of sm_90a takes it
            rdi_geometry_fn on_h200 =
                fuse == RDI_FUSE_SILU_MUL ? rdi_quant_sm90a_geometry : rdi_quant_norm_sm90a_geometry;
            assert_int_equal(on_h200(&quant, NULL, &h200, out), needed);
        }
        norm.residual = NULL, rope.q_norm = NULL; // not given: their types mean nothing
        assert_int_equal(rdi_rmsnorm_gfx1201_geometry(&norm, NULL, NULL, out), 1);
        assert_int_equal(rdi_rope_gfx1201_geometry(&rope, NULL, NULL, out), 1);
    }
}

// Rows of one tile are reached by 32-bit offsets.
static void test_rows_too_far_apart_are_refused(void **state) {
    (void)state;
    const rd_device_info device = {.compute_units = 64};
    static char operand[64];
    rdi_launch out[RDI_MAX_LAUNCHES];
    const rdi_gemm_args near = {.m = 200,
                                .n = 256,
                                .k = 256,
                                .a = operand,
                                .a_stride = 256,
                                .w = operand,
                                .w_stride = 256,
                                .a_scale = (float *)operand,
                                .a_scale_stride_m = 2,
                                .a_scale_stride_k = 1,
                                .c = operand,
                                .c_stride = 256,
                                .a_dtype = RD_DTYPE_E4M3,
                                .w_dtype = RD_DTYPE_E4M3,
                                .c_dtype = RD_DTYPE_BF16};
    rdi_gemm_args far[3] = {near, near, near};
    far[0].a_stride = far[1].w_stride = INT32_MAX / 127 + 1;
    far[2].a_scale_stride_k = INT32_MAX / 4;
    const char *fields[] = {"gemm: a:", "gemm: w:", "gemm: a_scale:"};
    assert_int_equal(rdi_gemm_fp8block_chunk_gfx1201(&near, NULL, &device, out), 1);
    assert_int_equal(rdi_gemm_fp8block_step_gfx1201(&near, NULL, &device, out), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rdi_gemm_fp8block_chunk_gfx1201(&far[i], NULL, &device, out), 0);
        assert_non_null(strstr(rd_error_text(), fields[i]));
        assert_int_equal(rdi_gemm_fp8block_step_gfx1201(&far[i], NULL, &device, out), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_has_its_kernels),
        cmocka_unit_test(test_resources_refuse_bad_calls),
        cmocka_unit_test(test_act_mul_geometry),
        cmocka_unit_test(test_unnamed_operands_are_refused),
        cmocka_unit_test(test_rows_too_far_apart_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
