// SPDX-License-Identifier: Apache-2.0
// Geometry of attn_prefill_sm90a: which kernel, how many blocks, how the copy engine sees a cache, and the words for operands it
// cannot take. No card is needed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/backend.h"
#include "kernels/attn/args.h"
#include "kernels/attn/sm90a_prefill_args.h"
#include "kernels/rows.h"

#include <string.h>

static const rd_device_info h200 = {.compute_units = 132};

// One sequence of 8192 tokens over a cache of [blocks, 64, kv_heads, dims].
static rdi_attn_args call(int64_t dims, int64_t q_heads, int64_t kv_heads, rd_dtype kv_dtype) {
    return (rdi_attn_args){.seqs = 1,
                           .tokens = 8192,
                           .q_heads = q_heads,
                           .kv_heads = kv_heads,
                           .head_dim = dims,
                           .block_tokens = 64,
                           .max_blocks = 512,
                           .blocks = 1000,
                           .q = (void *)4096,
                           .out = (void *)8192,
                           .k_cache = (void *)65536,
                           .v_cache = (void *)131072,
                           .q_stride_token = q_heads * dims,
                           .q_stride_head = dims,
                           .out_stride_token = q_heads * dims,
                           .out_stride_head = dims,
                           .k_interleave = 1,
                           .k_stride_block = 64 * kv_heads * dims,
                           .k_stride_token = kv_heads * dims,
                           .k_stride_head = dims,
                           .k_stride_dim = 1,
                           .v_stride_block = 64 * kv_heads * dims,
                           .v_stride_token = kv_heads * dims,
                           .v_stride_head = dims,
                           .v_stride_dim = 1,
                           .q_dtype = RD_DTYPE_BF16,
                           .kv_dtype = kv_dtype,
                           .out_dtype = RD_DTYPE_BF16,
                           .scale = 0.0625f,
                           .max_q_len = 8192,
                           .max_kv_len = 32768};
}
static rdk_attn_prefill_sm90a_args args_of(const rdi_launch *launch) {
    rdk_attn_prefill_sm90a_args args;
    assert_int_equal(launch->args_bytes, sizeof args);
    memcpy(&args, launch->args, sizeof args);
    return args;
}

static void test_shapes(void **state) {
    (void)state;
    static const int dims[] = {64, 128, 256, 512};
    for (int i = 0; i < 4; i++)
        for (int fp8 = 0; fp8 < 2; fp8++) {
            int keys = rdk_prefill_keys(dims[i]), key_slots = rdk_prefill_key_slots(dims[i], fp8),
                value_slots = rdk_prefill_value_slots(dims[i], fp8);
            assert_true(keys % 16 == 0 && keys * 128 % 1024 == 0); // depth of a product; swizzle atoms
            assert_true(key_slots >= 2 && key_slots <= RDK_PREFILL_SLOTS_MAX); // one in use, one on its way
            assert_true(value_slots >= 2 && value_slots <= RDK_PREFILL_SLOTS_MAX);
            assert_true(rdk_prefill_shared_bytes(dims[i], fp8) <= 227 * 1024);
        }
    assert_true(sizeof(rdk_attn_prefill_sm90a_args) <= RDI_LAUNCH_ARG_BYTES);
}

static void test_launch(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_attn_args a = call(256, 24, 4, RD_DTYPE_BF16);
    uint32_t counter;
    assert_int_equal(rdi_attn_prefill_sm90a_ws(&a, 132), 256); // the counter alone
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, &counter, &h200, out), 2);
    assert_string_equal(out[0].kernel,
                        "rdk_attn_prefill_sm90a_begin"); // 1536 units: the counter starts at zero
    assert_int_equal(args_of(&out[0]).taken, (uint64_t)(uintptr_t)&counter);
    assert_string_equal(out[1].kernel, "rdk_attn_prefill_sm90a_bf16_d256");
    assert_int_equal(out[1].grid[0], 132);
    assert_int_equal(out[1].block[0], 384);
    assert_int_equal(out[1].shared_bytes, rdk_prefill_shared_bytes(256, 0));
    rdk_attn_prefill_sm90a_args args = args_of(&out[1]);
    assert_int_equal(args.taken, (uint64_t)(uintptr_t)&counter);
    assert_int_equal(args.group, 6);
    for (uint32_t row = 0; row < 128 + 5; row++) // 2 x * magic fits 64 bits
        assert_int_equal((uint64_t)(2 * row) * args.group_magic >> 32, row / 6);
    assert_int_equal(args.box_rows * args.boxes, rdk_prefill_keys(256));
    assert_int_equal(64 % args.box_rows, 0);  // a box lies in one block
    assert_int_equal(args.heads_together, 1); // 32 K keys x 256 x 2 x 2 bytes are 32 MB
    a.max_kv_len = 512;
    a.tokens = 100; // 600 rows: five tiles of each KV head
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, &counter, &h200, out), 1);
    assert_int_equal(out->grid[0], 20); // one a block at the most: no counter
    assert_int_equal(args_of(out).taken, 0);
    assert_int_equal(args_of(out).heads_together, 4);
    a = call(512, 8, 8, RD_DTYPE_E4M3);
    a.tokens = 64;
    a.max_kv_len = 500;
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, &counter, &h200, out), 1);
    assert_int_equal(out->grid[0], 8); // 64 rows are one tile
    assert_int_equal(out->block[0], 512);
    assert_string_equal(out->kernel, "rdk_attn_prefill_sm90a_fp8_d512");
    assert_int_equal(args_of(out).group, 1);
    for (uint32_t row = 0; row < 129; row++)
        assert_int_equal((uint64_t)(2 * row) * args_of(out).group_magic >> 32, row);
}

// A short chunk over many keys: every chunk of keys of every row tile is a unit, and their results meet in one more launch.
static void test_cut(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_attn_args a = call(128, 32, 8, RD_DTYPE_E4M3);
    unsigned char ws[256];
    a.tokens =
        64; // 256 rows of each KV head: two tiles, and one more that 64 tokens of one sequence cannot fill
    a.max_q_len = 64;
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, ws, &h200, out), 3);
    rdk_attn_prefill_sm90a_args args = args_of(&out[1]);
    assert_int_equal(args.chunk_keys,
                     4096); // of 32768: eight parts of 16 units fill 132 multiprocessors once
    assert_int_equal(args.chunks, 8);
    assert_int_equal(out[1].grid[0], 128);
    assert_int_equal(args.taken, (uint64_t)(uintptr_t)ws);
    assert_int_equal(args.sums, (uint64_t)(uintptr_t)ws + 256);
    int64_t rows = 8 * 256; // of all KV heads
    assert_int_equal(args.tops, args.sums + rows * 8 * 128 * 4);
    int64_t bytes = 256 + rows * 32 * 130 * 4; // room for the most chunks: fewer keys never need more
    assert_int_equal(rdi_attn_prefill_sm90a_ws(&a, 132), bytes);
    for (int64_t keys = 32768; keys > 512; keys -= 509) {
        a.max_kv_len = keys;
        assert_int_equal(rdi_attn_prefill_sm90a_ws(&a, 132), bytes);
        assert_true(rdi_attn_prefill_sm90a_geometry(&a, ws, &h200, out) == 3);
        args = args_of(&out[1]);
        assert_true(args.chunks >= 2 && args.chunks <= 32);
        assert_true((int64_t)args.chunks * args.chunk_keys >= keys);
        assert_true((int64_t)(args.chunks - 1) * args.chunk_keys < keys);
    }
    a.max_kv_len = 32768;
    assert_string_equal(out[2].kernel, "rdk_attn_prefill_sm90a_merge");
    assert_int_equal(out[2].grid[0], 64);
    assert_int_equal(out[2].grid[1], 8);
    a.max_kv_len = 500; // nothing to cut
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, ws, &h200, out), 1);
    assert_int_equal(args_of(out).chunks, 1);
    a.max_kv_len = 0; // the block table's 32768 keys bound it
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, ws, &h200, out), 3);
    assert_int_equal(args_of(out).chunks, 8);
    a.seqs = 2; // 64 tokens of two sequences may take three tiles
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, ws, &h200, out), 3);
    assert_int_equal(args_of(out).chunk_keys, 6656); // a fifth of 32768, in 512s
    assert_int_equal(args_of(out).chunks, 5);
    a.seqs = 1;
    a.tokens = 512; // 128 units: nothing to gain
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, ws, &h200, out), 1);
    assert_int_equal(args_of(out).chunks, 1);
    a = call(128, 32, 1, RD_DTYPE_E4M3);
    a.tokens = 1; // never more parts than a warp has lanes
    a.max_blocks = 1 << 14;
    a.max_kv_len = 0;
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, ws, &h200, out), 3);
    assert_int_equal(args_of(out).chunks, 32);
    assert_int_equal(args_of(out).chunk_keys, 32768);
    static const int dims[] = {64, 128, 256, 512};
    for (int i = 0; i < 4; i++) // a chunk is whole tiles
        assert_int_equal(RDK_PREFILL_CHUNK_KEYS_MIN % rdk_prefill_keys(dims[i]), 0);
}

static void test_maps(void **state) {
    (void)state;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_attn_args a = call(256, 24, 4, RD_DTYPE_BF16);
    a.tokens = 8;
    a.max_kv_len = 512;
    a.v_stride_block *= 2; // K and V of a block side by side
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_int_equal(out->map_count, 2);
    const rdi_tensor_map *k = &out->map[0], *v = &out->map[1];
    assert_int_equal(k->arg_offset, offsetof(rdk_attn_prefill_sm90a_args, k_map));
    assert_ptr_equal(k->base, a.k_cache);
    assert_ptr_equal(v->base, a.v_cache);
    assert_int_equal(k->rank, 3);
    assert_int_equal(k->dim[0], 256);
    assert_int_equal(k->dim[1], 4);
    assert_int_equal(k->dim[2], 64 * 1000);
    assert_int_equal(v->dim[2], 128 * 999 + 64); // the last block ends the tensor
    assert_int_equal(k->stride_bytes[1], 512);
    assert_int_equal(k->stride_bytes[2], 2048);
    assert_int_equal(k->box[0] * k->elem_bytes, 128);
    assert_int_equal(k->swizzle_bytes, 128);
    assert_int_equal(args_of(out).k_block_rows, 64);
    assert_int_equal(args_of(out).v_block_rows, 128);
    a = call(64, 8, 1, RD_DTYPE_E4M3);
    a.tokens = 8;
    a.max_kv_len = 512;
    a.k_stride_head = 7; // of the only head: not used
    a.block_tokens = 48;
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(&a, NULL, &h200, out), 1);
    assert_int_equal(out->map[0].box[0], 64); // a whole row, under the swizzle of its size
    assert_int_equal(out->map[0].swizzle_bytes, 64);
    assert_int_equal(out->map[0].box[2], 16); // divides 48 and the tile
}

static void refused(const rdi_attn_args *a, const char *why) {
    rdi_launch out[RDI_MAX_LAUNCHES];
    assert_int_equal(rdi_attn_prefill_sm90a_geometry(a, NULL, &h200, out), 0);
    if (!strstr(rd_error_text(), why)) fail_msg("'%s' says nothing of '%s'", rd_error_text(), why);
}
static void test_refusals(void **state) {
    (void)state;
    rdi_attn_args a = call(128, 32, 8, RD_DTYPE_BF16);
    a.q = (void *)4100;
    refused(&a, "q: data=0x1004, needs a multiple of 16");
    a = call(128, 32, 8, RD_DTYPE_BF16);
    a.out_stride_head = 129;
    refused(&a, "out: head stride of 258 bytes, needs a multiple of 16");
    a = call(128, 32, 8, RD_DTYPE_E4M3);
    a.k_stride_dim = 16;
    refused(&a, "k_cache: stride[3]=16, needs 1");
    a = call(128, 32, 8, RD_DTYPE_E4M3);
    a.v_stride_block += 16;
    refused(&a, "v_cache: block stride 65552, needs a multiple of the token stride 1024");
    a = call(128, 32, 8, RD_DTYPE_E4M3);
    a.k_stride_token = 0;
    refused(&a, "needs a multiple of the token stride 0");
    a = call(128, 32, 8, RD_DTYPE_E4M3);
    a.blocks = 1 << 26;
    refused(&a, "k_cache: 4294967296 rows");
}

// Everything stays in registers (ptxas's own report, embedded by the build).
static void test_no_spills(void **state) {
    (void)state;
    int seen = 0;
    for (int32_t i = 0; i < rdi_code_object_count; i++) {
        const rdi_code_object *object = &rdi_code_objects[i];
        for (int32_t k = 0; !strcmp(object->image, "sm90a_attn_prefill") && k < object->kernel_count;
             k++, seen++)
            if (object->kernels[k].spills)
                fail_msg("%s spills %d bytes", object->kernels[k].symbol, object->kernels[k].spills);
    }
    if (!seen) skip(); // built without nvcc
    assert_int_equal(seen, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_launch),   cmocka_unit_test(test_cut),
        cmocka_unit_test(test_maps),   cmocka_unit_test(test_refusals), cmocka_unit_test(test_no_spills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
