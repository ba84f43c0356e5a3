// SPDX-License-Identifier: Apache-2.0
// Geometry of sm_90a rows, without a card. GEMMs with 16-bit arithmetic: which kernel, how many blocks, which share of the units;
// that the cut of K does not know the number of tokens; where the parts of f16 and f32 activations lie. And the small ops.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/code_objects.h"
#include "kernels/common/sm90a_skinny.h"
#include "kernels/elementwise/args.h"
#include "kernels/elementwise/sm90a_args.h"
#include "kernels/quant_fp8/args.h"
#include "kernels/rows.h"
#include "support/gemm_args.h"

static const rd_device_info h200 = {.compute_units = 132}, h100_pcie = {.compute_units = 114};

static rdk_skinny_args last_args(const rdi_launch *launch) {
    rdk_skinny_args args;
    assert_int_equal(launch->args_bytes, sizeof args);
    memcpy(&args, launch->args, sizeof args);
    return args;
}

// 49152 x 576: 384 tiles of 128 rows are two for each of 132 blocks and 120 left: almost even, so no tile is cut.
static void test_bf16_step(void **state) {
    (void)state;
    static const struct {
        int64_t m;
        const char *kernel;
    } cases[] = {{1, "rdk_gemm_bf16_step_sm90a_c8_r128"},   {8, "rdk_gemm_bf16_step_sm90a_c8_r128"},
                 {9, "rdk_gemm_bf16_step_sm90a_c16_r128"},  {32, "rdk_gemm_bf16_step_sm90a_c32_r128"},
                 {33, "rdk_gemm_bf16_step_sm90a_c64_held"}, {128, "rdk_gemm_bf16_step_sm90a_c128_r128"}};
    rdi_launch out[RDI_MAX_LAUNCHES];
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        rdi_gemm_args a = gemm_args(cases[i].m, 49152, 576, RD_DTYPE_BF16, RD_DTYPE_BF16);
        assert_int_equal(rdi_gemm_bf16_step_sm90a(&a, (void *)64, &h200, out), 1);
        assert_string_equal(out[0].kernel, cases[i].kernel);
        assert_int_equal(out[0].grid[0], 1);
        assert_int_equal(out[0].grid[1], 132);
        assert_int_equal(out[0].block[0], 320); // two groups of four warps and two that bring data
        assert_true(out[0].dependent && out[0].shared_bytes <= 227 * 1024);
        assert_int_equal(out[0].map_count, 2);
        assert_int_equal(out[0].map[0].elem_bytes, 2);
        assert_int_equal(out[0].map[0].box[0], 64);
        assert_int_equal(out[0].map[0].box[1], 128);
        assert_int_equal(out[0].map[1].dim[1], cases[i].m);
        rdk_skinny_args args = last_args(out);
        assert_int_equal(args.k_blocks, 9);
        assert_int_equal(args.share_units, 9);
        assert_int_equal(args.range_shares, 2);
        assert_int_equal(args.range_rest, 120);
        assert_int_equal(args.parts, 1);
        assert_int_equal(rdi_gemm_bf16_step_sm90a_ws(&a, 132), 0);
    }
    // Nothing is held of a tenth k block, nor of rows that the copy engine cannot address.
    rdi_gemm_args longer = gemm_args(64, 49152, 577, RD_DTYPE_BF16, RD_DTYPE_BF16);
    assert_int_equal(rdi_gemm_bf16_step_sm90a(&longer, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_bf16_step_sm90a_c64_r128");
    rdi_gemm_args odd = gemm_args(64, 49152, 575, RD_DTYPE_BF16, RD_DTYPE_BF16);
    assert_int_equal(rdi_gemm_bf16_step_sm90a(&odd, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_bf16_step_sm90a_c64_r128");
}

// 5120 x 6144: 80 tiles of 64 rows, 96 k blocks: 7680 units over 132 blocks are 58 each and 24 left, whatever the tokens.
static void test_bf16_cut_of_k(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    for (int64_t m = 1; m <= 128; m++) {
        rdi_gemm_args a = gemm_args(m, 5120, 6144, RD_DTYPE_BF16, RD_DTYPE_BF16);
        assert_int_equal(rdi_gemm_bf16_step_sm90a(&a, NULL, &h200, out), 1);
        rdk_skinny_args args = last_args(out);
        assert_int_equal(args.k_blocks, 96);
        assert_int_equal(args.share_units, 1);
        assert_int_equal(args.range_shares, 58);
        assert_int_equal(args.range_rest, 24);
    }
    rdi_gemm_args a = gemm_args(16, 5120, 6144, RD_DTYPE_BF16, RD_DTYPE_BF16);
    assert_int_equal(rdi_gemm_bf16_step_sm90a_ws(&a, 132), 132 * 64 * 16 * 8);
    assert_int_equal(rdi_gemm_bf16_step_sm90a(&a, NULL, &h100_pcie, out), 1);
    assert_int_equal(out[0].grid[1], 114);
}

// A router is two tiles of 64 rows: eight blocks a tile, not 66; 128 tokens are eight slices, so that 128 blocks work.
static void test_bf16_router(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_gemm_args a = gemm_args(1, 128, 5120, RD_DTYPE_BF16, RD_DTYPE_BF16);
    assert_int_equal(rdi_gemm_bf16_step_sm90a(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_bf16_step_sm90a_c8_r64");
    assert_int_equal(out[0].grid[1], 16);
    assert_int_equal(last_args(out).range_shares, 10);
    a = gemm_args(128, 128, 5120, RD_DTYPE_BF16, RD_DTYPE_BF16);
    assert_int_equal(rdi_gemm_bf16_step_sm90a(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_bf16_step_sm90a_c16_r64");
    assert_int_equal(out[0].grid[0], 8);
    assert_int_equal(last_args(out).range_shares, 10);
    a = gemm_args(1, 1, 7, RD_DTYPE_BF16, RD_DTYPE_BF16); // fewer units than blocks: the others have none
    assert_int_equal(rdi_gemm_bf16_step_sm90a(&a, NULL, &h200, out), 1);
    rdk_skinny_args args = last_args(out);
    assert_int_equal(args.ranges * args.range_shares + args.range_rest, 1);
    a = gemm_args(3, 576, 3884, RD_DTYPE_BF16,
                  RD_DTYPE_BF16); // rows of 7768 bytes are no multiple of 16: no tensor copies
    assert_int_equal(rdi_gemm_bf16_step_sm90a(&a, NULL, &h200, out), 1);
    assert_int_equal(out[0].map_count, 0);
    assert_int_equal(last_args(out).w_maps + last_args(out).a_maps, 0);
}

// f16 is two columns a token, f32 four: made by a launch before, behind the partial sums in the workspace.
static void test_bf16_parts(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    static const rd_dtype types[] = {RD_DTYPE_F16, RD_DTYPE_F32};
    for (int i = 0; i < 2; i++) {
        int32_t parts = i ? 4 : 2;
        rdi_gemm_args a = gemm_args(100, 5120, 100, types[i], RD_DTYPE_BF16);
        assert_int_equal(rdi_gemm_bf16_step_sm90a(&a, (void *)(1 << 20), &h200, out), 2);
        assert_string_equal(out[0].kernel, "rdk_gemm_bf16_step_sm90a_split");
        assert_int_equal(out[0].grid[0], 100);
        rdk_skinny_split_args split;
        memcpy(&split, out[0].args, sizeof split);
        assert_int_equal(split.parts, parts);
        assert_int_equal(split.to_stride, 104); // rows of 16-byte pieces
        rdk_skinny_args args = last_args(&out[1]);
        assert_int_equal(args.columns, 100 * parts);
        assert_int_equal(out[1].grid[0], parts); // slices of 128 columns: 200 in two, 400 in four
        int64_t partials = (int64_t)args.ranges * 64 * 128 * 8 * out[1].grid[0];
        assert_int_equal(args.a, (1 << 20) + partials);
        assert_int_equal(split.to, args.a);
        assert_int_equal(rdi_gemm_bf16_step_sm90a_ws(&a, 132), partials + 100 * parts * 104 * 2);
        assert_true(args.a_maps && !args.w_maps); // rows of 200 bytes are no multiple of 16
    }
}

// Class chunk: a block a tile, so every range is exactly a tile's k blocks and nothing travels between blocks.
static void test_bf16_chunk(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_gemm_args a = gemm_args(300, 1000, 576, RD_DTYPE_BF16, RD_DTYPE_BF16);
    assert_int_equal(rdi_gemm_bf16_chunk_sm90a(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_bf16_chunk_sm90a_c128_r256");
    assert_int_equal(out[0].grid[0], 3);
    assert_int_equal(out[0].grid[1], 4);
    rdk_skinny_args args = last_args(out);
    assert_int_equal(args.share_units, args.k_blocks);
    assert_int_equal(args.range_shares, 1);
    assert_int_equal(args.range_rest, 0);
    assert_int_equal(rdi_gemm_bf16_chunk_sm90a_ws(&a, 132), 0);
    a.a_dtype = RD_DTYPE_F32;
    assert_int_equal(rdi_gemm_bf16_chunk_sm90a(&a, NULL, &h200, out), 2);
    assert_int_equal(rdi_gemm_bf16_chunk_sm90a_ws(&a, 132), 300 * 4 * 576 * 2);
}

// 14336 x 5120 in e4m3: 112 tiles of 128 rows, 40 k blocks of 128. More than 32 columns are slices that read the weights again.
static void test_w8a16(void **state) {
    (void)state;
    static const struct {
        int64_t m;
        rd_dtype type;
        const char *kernel;
        uint32_t slices;
    } cases[] = {{1, RD_DTYPE_BF16, "rdk_gemm_fp8block_w8a16_step_sm90a_bf16_c8", 1},
                 {16, RD_DTYPE_F16, "rdk_gemm_fp8block_w8a16_step_sm90a_f16_c16", 1},
                 {17, RD_DTYPE_BF16, "rdk_gemm_fp8block_w8a16_step_sm90a_bf16_c32", 1},
                 {128, RD_DTYPE_F16, "rdk_gemm_fp8block_w8a16_step_sm90a_f16_c32", 4}};
    rdi_launch out[RDI_MAX_LAUNCHES];
    for (size_t i = 0; i < RDI_COUNT(cases); i++) {
        rdi_gemm_args a = gemm_args(cases[i].m, 14336, 5120, cases[i].type, RD_DTYPE_E4M3);
        assert_int_equal(rdi_gemm_w8a16_step_sm90a(&a, NULL, &h200, out), 1);
        assert_string_equal(out[0].kernel, cases[i].kernel);
        assert_int_equal(out[0].grid[0], cases[i].slices);
        assert_int_equal(out[0].grid[1], 132);
        assert_true(out[0].shared_bytes <= 227 * 1024);
        assert_int_equal(out[0].map[0].elem_bytes, 1);
        assert_int_equal(out[0].map[0].box[0], 128);
        assert_int_equal(out[0].map[1].elem_bytes, 2);
        assert_int_equal(out[0].map[1].box[0], 64);
        rdk_skinny_args args = last_args(out);
        assert_int_equal(args.k_blocks, 40);
        assert_int_equal(args.range_shares * 132 + args.range_rest, 112 * 40);
        assert_int_equal(args.w_once,
                         cases[i].slices == 1); // what is read again stays in the second-level cache
    }
    rdi_gemm_args a = gemm_args(10, 14336, 5120, RD_DTYPE_F32, RD_DTYPE_E4M3); // f32: forty columns
    assert_int_equal(rdi_gemm_w8a16_step_sm90a(&a, NULL, &h200, out), 2);
    assert_string_equal(out[1].kernel, "rdk_gemm_fp8block_w8a16_step_sm90a_bf16_c32");
    assert_int_equal(out[1].grid[0], 2);
    assert_int_equal(rdi_gemm_w8a16_step_sm90a_ws(&a, 132), 2ll * 132 * 128 * 32 * 8 + 40 * 5120 * 2);
    a = gemm_args(1000, 14336, 5120, RD_DTYPE_F16, RD_DTYPE_E4M3);
    assert_int_equal(rdi_gemm_w8a16_chunk_sm90a(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_gemm_fp8block_w8a16_chunk_sm90a_f16_c128_r128");
    assert_int_equal(out[0].grid[0], 8);
    assert_int_equal(out[0].grid[1], 112);
    assert_int_equal(rdi_gemm_w8a16_chunk_sm90a_ws(&a, 132), 0);
}

// A row a block, sixteen elements a thread; one 16-bit type and whole 16-byte pieces take the quick kernels, and few rows of these
// four blocks each, eight elements a thread.
static void test_norms(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_rmsnorm_args norm = {.m = 70000,
                             .k = 5120,
                             .x = (void *)4096,
                             .weight = (void *)8192,
                             .y = (void *)16384,
                             .x_stride = 5120,
                             .y_stride = 5120,
                             .x_dtype = RD_DTYPE_BF16,
                             .weight_dtype = RD_DTYPE_BF16,
                             .y_dtype = RD_DTYPE_BF16};
    assert_int_equal(rdi_rmsnorm_sm90a_geometry(&norm, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rmsnorm_sm90a_bf16");
    assert_int_equal(out[0].grid[0], 70000);
    assert_int_equal(out[0].block[0], 320);
    norm.m = 33; // 132 multiprocessors
    assert_int_equal(rdi_rmsnorm_sm90a_geometry(&norm, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rmsnorm_sm90a_bf16_cluster");
    assert_int_equal(out[0].grid[0], 33 * 4);
    assert_int_equal(out[0].block[0], 160); // 4 x 160 x 8 = 5120
    norm.m = 34;
    assert_int_equal(rdi_rmsnorm_sm90a_geometry(&norm, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rmsnorm_sm90a_bf16");
    norm.y_dtype = RD_DTYPE_F32;
    assert_int_equal(rdi_rmsnorm_sm90a_geometry(&norm, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rmsnorm_sm90a_any");
    norm.y_dtype = RD_DTYPE_BF16;
    norm.k = 16384; // more than 512 threads
    assert_int_equal(rdi_rmsnorm_sm90a_geometry(&norm, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rmsnorm_sm90a_any");
    assert_int_equal(out[0].block[0], 1024);
    rdi_quant_args quant = {
        .m = 16, .k = 5121, .x_stride = 5121, .x_dtype = RD_DTYPE_F16, .fuse = RDI_FUSE_NONE};
    assert_int_equal(rdi_quant_sm90a_geometry(&quant, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_quant_fp8_sm90a_one");
    assert_int_equal(out[0].grid[0], 16);
    assert_int_equal(out[0].grid[1], 6); // 1024 columns each, the last one a single column
    quant.m = 133;
    assert_int_equal(rdi_quant_sm90a_geometry(&quant, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_quant_fp8_sm90a_many");
    assert_int_equal(out[0].grid[0], 67); // two rows a block, the last one alone
    const rdi_quant_args fused = {.m = 1,
                                  .k = 5128,
                                  .x = (void *)4096,
                                  .norm_weight = (void *)8192,
                                  .residual = (void *)16384,
                                  .x_stride = 5128,
                                  .residual_stride = 5128,
                                  .x_dtype = RD_DTYPE_F16,
                                  .norm_dtype = RD_DTYPE_F16,
                                  .residual_dtype = RD_DTYPE_F16,
                                  .fuse = RDI_FUSE_ADD_RMSNORM};
    assert_int_equal(rdi_quant_norm_sm90a_geometry(&fused, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_quant_fp8_norm_sm90a_f16_add_cluster");
    assert_int_equal(out[0].grid[0], 4);
    assert_int_equal(out[0].block[0], 192); // six warps of 256 elements
}

// A warp a head; with many tokens four heads of a token a warp.
static void test_heads(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_rope_kv_write_args a = {
        .rope = {.tokens = 3,
                 .q_heads = 42,
                 .k_heads = 8,
                 .head_dim = 128,
                 .rotary_dim = 128,
                 .q_stride_head = 128,
                 .k_stride_head = 128,
                 .q_dtype = RD_DTYPE_BF16,
                 .k_dtype = RD_DTYPE_BF16},
        .kv = {.tokens = 3, .kv_heads = 8, .head_dim = 128, .block_tokens = 16, .blocks = 100}};
    assert_int_equal(rdi_rope_kv_write_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rope_kv_write_sm90a_bf16_d128");
    assert_int_equal(out[0].grid[0], 44); // 3 * 58 warps, four a block
    a.rope.tokens = a.kv.tokens = 4001;
    assert_int_equal(rdi_rope_kv_write_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rope_kv_write_sm90a_bf16_d128_many");
    assert_int_equal(out[0].grid[0],
                     (4001 * (11 + 2 + 2) + 3) / 4); // the eleventh warp of a token's q has two heads
    a.rope.head_dim = a.kv.head_dim = 256;           // two heads a warp
    assert_int_equal(rdi_rope_kv_write_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rope_kv_write_sm90a_bf16_d256_many");
    assert_int_equal(out[0].grid[0], (4001 * (21 + 4 + 4) + 3) / 4);
    a.rope.head_dim = a.kv.head_dim = 128;
    a.rope.norm_dtype = RD_DTYPE_BF16;
    a.rope.q_norm = a.rope.k_norm = (void *)4098; // weights are read two at a time
    assert_int_equal(rdi_rope_kv_write_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rope_kv_write_sm90a_any");
    a.rope.q_norm = a.rope.k_norm = NULL;
    a.rope.k_dtype = RD_DTYPE_F16; // two types, odd halves or odd strides: element by element
    assert_int_equal(rdi_rope_kv_write_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rope_kv_write_sm90a_any");
    a.rope.k_dtype = RD_DTYPE_BF16, a.rope.rotary_dim = 90;
    assert_int_equal(rdi_rope_kv_write_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rope_kv_write_sm90a_any");
    a.rope.rotary_dim = 64, a.rope.q_stride_token = 5377;
    assert_int_equal(rdi_rope_kv_write_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rope_kv_write_sm90a_any");
    a.rope.head_dim = 257;
    assert_int_equal(rdi_rope_sm90a_geometry(&a.rope, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_rope_sm90a_d512");
    assert_int_equal(out[0].grid[0], (4001 * 50 + 3) / 4);
}

// A slot's block by one multiplication, exactly, for every slot of 32 bits: the last slots of blocks and the first ones, the ends.
static void test_block_of_slot(void **state) {
    (void)state;
    static const int64_t tokens[] = {2, 3, 16, 17, 48, 64, 100, 128, 1000003};
    for (size_t i = 0; i < RDI_COUNT(tokens); i++) {
        rdi_launch out[RDI_MAX_LAUNCHES];
        rdi_kv_write_args a = {
            .tokens = 1, .kv_heads = 1, .head_dim = 8, .block_tokens = tokens[i], .blocks = 7};
        assert_int_equal(rdi_kv_write_sm90a_geometry(&a, NULL, &h200, out), 1);
        rdk_kv_write_sm90a_args args;
        memcpy(&args, out[0].args, sizeof args);
        const uint64_t end = UINT64_C(1) << 32, step = end / 10007;
        for (uint64_t at = 0; at < end; at += step) {
            uint64_t edge = at / (uint64_t)tokens[i] * (uint64_t)tokens[i];
            const uint64_t slots[] = {at, edge, edge ? edge - 1 : 0, end - 1 - at};
            for (size_t s = 0; s < RDI_COUNT(slots); s++) {
                uint64_t low = (slots[s] * (args.block_inverse & UINT32_MAX)) >> 32;
                assert_int_equal((slots[s] * (args.block_inverse >> 32) + low) >> 32,
                                 slots[s] / (uint64_t)tokens[i]);
            }
        }
    }
}

// A cluster of eight blocks a row, each with an eighth of it in shared memory, as much as fits.
static void test_sample(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_sample_args a = {.rows = 5, .vocab = 151936, .logits_stride = 151936};
    assert_int_equal(rdi_sample_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_string_equal(out[0].kernel, "rdk_sample_sm90a");
    assert_int_equal(out[0].grid[0], 40);
    assert_int_equal(out[0].block[0], 1024);
    assert_int_equal(out[0].shared_bytes, 77824 + 151936 / 8 * 4);
    a.vocab = 524288;
    assert_int_equal(rdi_sample_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_in_range(out[0].shared_bytes, 200000, 227 * 1024);
    a.vocab = 1; // vectors of four
    assert_int_equal(rdi_sample_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_int_equal(out[0].shared_bytes, 77824 + 16);
}

// The hot kernels keep everything in registers (ptxas's own report, embedded by the build).
static void test_no_spills(void **state) {
    (void)state;
    int seen = 0;
    for (int32_t i = 0; i < rdi_code_object_count; i++) {
        const rdi_code_object *object = &rdi_code_objects[i];
        bool hot =
            !strncmp(object->image, "sm90a_gemm_bf16", 15) || !strncmp(object->image, "sm90a_w8a16", 11);
        for (int32_t k = 0; hot && k < object->kernel_count; k++, seen++)
            if (object->kernels[k].spills)
                fail_msg("%s spills %d bytes", object->kernels[k].symbol, object->kernels[k].spills);
    }
    if (!seen) skip(); // built without nvcc
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_step),     cmocka_unit_test(test_bf16_cut_of_k),
        cmocka_unit_test(test_bf16_router),   cmocka_unit_test(test_bf16_parts),
        cmocka_unit_test(test_bf16_chunk),    cmocka_unit_test(test_w8a16),
        cmocka_unit_test(test_norms),         cmocka_unit_test(test_heads),
        cmocka_unit_test(test_block_of_slot), cmocka_unit_test(test_sample),
        cmocka_unit_test(test_no_spills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
