// SPDX-License-Identifier: Apache-2.0
// The NVIDIA backend's host logic over a driver with nothing behind it: contexts are pushed and popped around every call, each
// call's failure is named and leaves nothing open, tensor maps land in the arguments; and the words for a missing, old or other
// card. Then the geometry of the sm_90a rows: which kernel, how many blocks, which share of the units.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/backend.h"
#include "kernels/attn/args.h"
#include "kernels/attn/sm90a_args.h"
#include "kernels/rows.h"

#include "support/fake_cuda.h"

#include <stdio.h>

static fake_cuda fake;
static int load_fake(void **state) {
    (void)state;
    return fake_cuda_load(RD_FAKE_CUDA, &fake);
}

static const rdi_driver *nv(void) {
    return &rdi_nvidia_driver;
}

static rd_status open_card(rd_device_info *info, rdi_card **card) {
    uint32_t isa = 0;
    memset(info, 0, sizeof *info);
    *card = NULL;
    rd_status status = nv()->open(RD_FAKE_CUDA, 0, info, &isa, card);
    if (status == RD_OK) snprintf((*card)->name, sizeof(*card)->name, "gpu:0");
    return status;
}

static void test_probe(void **state) {
    (void)state;
    rd_device_info info;
    rdi_card *card;
    fake.reset(9, 13000, 1);
    assert_int_equal(open_card(&info, &card), RD_OK);
    assert_string_equal(info.backend, "nvidia");
    assert_string_equal(info.arch, "sm_90a");
    assert_string_equal(info.isa, "sm_90a");
    assert_string_equal(info.model, "NVIDIA Fake");
    assert_int_equal(info.compute_units, 132);
    assert_int_equal(info.lds_bytes, 227 * 1024);
    assert_string_equal(nv()->version(card), "CUDA driver 13.0");
    nv()->close(card);
    assert_int_equal(fake.open(), 0);
    fake.reset(8, 13000, 1); // an older architecture is opened, so that it can be named, and has no rows
    assert_int_equal(open_card(&info, &card), RD_OK);
    assert_string_equal(info.arch, "sm_80");
    assert_string_equal(info.isa, "");
    nv()->close(card);
    assert_int_equal(fake.open(), 0);
}

// The context of a host program that is current already is used and neither retained nor released.
static void test_current_context_is_used(void **state) {
    (void)state;
    rd_device_info info;
    rdi_card *card;
    fake.reset(9, 13000, 1);
    fake.set_current((void *)(uintptr_t)4242);
    assert_int_equal(open_card(&info, &card), RD_OK);
    for (int i = 0; i < fake.calls(); i++) assert_string_not_equal(fake.call(i), "cuDevicePrimaryCtxRetain");
    nv()->close(card);
    for (int i = 0; i < fake.calls(); i++)
        assert_string_not_equal(fake.call(i), "cuDevicePrimaryCtxRelease_v2");
}

// The last block of an axis is launched, the first beyond it is named and never reaches the driver.
static void test_grids_beyond_an_axis(void **state) {
    (void)state;
    static const uint32_t most[3] = {INT32_MAX, 65535, 65535};
    static const char *const words[3] = {"rdk_test: grid[0]=2147483648, needs 1 to 2147483647",
                                         "rdk_test: grid[1]=65536, needs 1 to 65535",
                                         "rdk_test: grid[2]=65536, needs 1 to 65535"};
    rd_device_info info;
    rdi_card *card;
    fake.reset(9, 13000, 1);
    assert_int_equal(open_card(&info, &card), RD_OK);
    void *module, *kernel;
    assert_int_equal(nv()->module_load(card, "", 1, &module), RD_OK);
    assert_int_equal(nv()->module_kernel(card, module, "rdk_test", &kernel), RD_OK);
    for (int axis = 0; axis < 3; axis++)
        for (int way = 0; way < 3; way++) { // fits, one too many, none
            uint32_t grid[3] = {1, 1, 1}, word = 0;
            grid[axis] = way == 2 ? 0 : most[axis] + (uint32_t)way;
            rdi_launch launch;
            rdi_launch_fill(&launch, "rdk_test", grid, 32, &word, sizeof word);
            launch.shared_bytes = launch.map_count = 0;
            const int before = fake.calls();
            const rd_status status = nv()->launch(card, kernel, &launch, NULL);
            assert_int_equal(status, way ? RD_E_INTERNAL : RD_OK);
            assert_true(way ? fake.calls() == before : fake.calls() > before);
            if (way == 1) assert_non_null(strstr(rd_error_text(), words[axis]));
        }
    nv()->module_free(card, module);
    nv()->close(card);
}

// One of everything, in order; stops at the first failure and frees what it has.
static rd_status exercise(rdi_card *card) {
    void *memory = NULL, *pinned = NULL, *stream = NULL, *event = NULL, *module = NULL, *kernel = NULL,
         *graph = NULL;
    uint32_t grid[3] = {1, 1, 1};
    struct {
        _Alignas(64) unsigned char map[128];
        uint64_t word;
    } args = {.word = 99};
    double us = 0;
    rdi_launch launch;
    rdi_launch_fill(&launch, "rdk_test", grid, 32, &args, sizeof args);
    launch.shared_bytes = 4096;
    launch.dependent = true;
    launch.map_count = 1;
    launch.map[0] = (rdi_tensor_map){0, (void *)(uintptr_t)4096, 1, 2, {64, 8}, {1, 64}, {128, 8}, 128};
    rd_status s = nv()->alloc(card, 64, &memory);
    if (s == RD_OK) s = nv()->host_alloc(card, 64, &pinned);
    if (s == RD_OK) s = nv()->stream_create(card, &stream);
    if (s == RD_OK) s = nv()->event_create(card, &event);
    if (s == RD_OK) s = nv()->set(card, memory, 7, 64, stream);
    if (s == RD_OK) s = nv()->copy(card, pinned, memory, 64, RDI_COPY_TO_HOST, stream);
    if (s == RD_OK) s = nv()->module_load(card, "", 1, &module);
    if (s == RD_OK) s = nv()->module_kernel(card, module, "rdk_test", &kernel);
    if (s == RD_OK) s = nv()->graph_begin(card, stream);
    if (s == RD_OK) s = nv()->launch(card, kernel, &launch, stream);
    if (s == RD_OK) s = nv()->graph_end(card, stream, &graph);
    if (s == RD_OK) s = nv()->graph_launch(card, graph, stream);
    if (s == RD_OK) s = nv()->event_record(card, event, stream);
    if (s == RD_OK) s = nv()->event_wait(card, event, stream);
    if (s == RD_OK) s = nv()->event_elapsed(card, event, event, &us);
    if (s == RD_OK) s = nv()->event_sync(card, event);
    if (s == RD_OK) s = nv()->stream_sync(card, stream);
    if (s == RD_OK) {
        assert_int_equal(((unsigned char *)pinned)[63], 7);
        assert_true(us == 250.0);
        assert_int_equal(fake.last_shared(), 4096);
        assert_true(fake.last_dependent());
        uint64_t base, word;
        memcpy(&base, fake.last_args(), 8);
        memcpy(&word, fake.last_args() + 128, 8);
        assert_int_equal(base, 4096);
        assert_int_equal(word, 99);
    }
    fake.fail_at(0, 0);
    if (graph) nv()->graph_free(card, graph);
    if (module) nv()->module_free(card, module);
    if (event) nv()->event_free(card, event);
    if (stream) nv()->stream_free(card, stream);
    if (pinned) nv()->host_free(card, pinned);
    if (memory) nv()->free(card, memory);
    return s;
}

// Each driver call in turn fails: the status is an error that names a call of the driver, and nothing stays open.
static void test_every_call_may_fail(void **state) {
    (void)state;
    rd_device_info info;
    rdi_card *card;
    fake.reset(9, 13000, 1);
    assert_int_equal(open_card(&info, &card), RD_OK);
    int before = fake.open(), first = fake.calls();
    assert_int_equal(exercise(card), RD_OK);
    assert_int_equal(fake.open(), before);
    int calls = fake.calls() - first, failures = 0;
    for (int nth = 1; nth <= calls; nth++) {
        fake.reset(9, 13000, 1); // what is open (the context) is counted anew
        fake.fail_at(nth, 700);
        rd_status status = exercise(card);
        if (status == RD_OK) continue; // one of the frees
        failures++;
        assert_int_equal(status, RD_E_DEVICE);
        if (!strstr(rd_error_text(), "gpu:0: ") || !strstr(rd_error_text(), "CUDA_ERROR_ILLEGAL_ADDRESS"))
            fail_msg("call %d: %s", nth, rd_error_text());
        assert_int_equal(fake.open(), 0);
    }
    assert_true(failures >= 30);
    nv()->close(card);
}

static void test_open_may_fail(void **state) {
    (void)state;
    rd_device_info info;
    rdi_card *card;
    fake.reset(9, 13000, 1);
    assert_int_equal(open_card(&info, &card), RD_OK);
    int calls = fake.calls();
    nv()->close(card);
    for (int nth = 1; nth <= calls; nth++) {
        fake.reset(9, 13000, 1);
        fake.fail_at(nth, 999);
        rd_status status = open_card(&info, &card);
        if (status == RD_OK)
            nv()->close(card); // a failing look at the current context leads to the primary one
        assert_int_equal(fake.open(), 0);
    }
}

static void test_memory_that_is_full(void **state) {
    (void)state;
    rd_device_info info;
    rdi_card *card;
    void *memory;
    fake.reset(9, 13000, 1);
    assert_int_equal(open_card(&info, &card), RD_OK);
    fake.set_memory(1000, 2000);
    fake.fail_at(2, 2); // the push, then the allocation
    assert_int_equal(nv()->alloc(card, 4096, &memory), RD_E_NOMEM);
    assert_string_equal(rd_error_text(), "gpu:0: out of memory: 4096 bytes asked, 1000 of 2000 free");
    assert_null(memory);
    nv()->close(card);
}

static void test_no_library(void **state) {
    (void)state;
    char why[512] = "";
    assert_int_equal(nv()->count("no_such_library.so", why, sizeof why), 0);
    assert_non_null(strstr(why, "no_such_library.so"));
}

// ---- geometry -------------------------------------------------------------------------------------------------------
static const rd_device_info h200 = {.compute_units = 132};

// Chunks are cut at positions: they tile the line of keys without gap, and a count finds the chunk of the last key.
static void test_attention_partition(void **state) {
    (void)state;
    for (int32_t c = 0; c < 900; c++) {
        int32_t begin = rdk_attn_chunk_begin(c), end = rdk_attn_chunk_begin(c + 1);
        assert_true(end > begin && begin % RDK_ATTN_STEP_KEYS == 0);
        assert_int_equal(rdk_attn_chunk_count(begin + 1), c + 1);
        assert_int_equal(rdk_attn_chunk_count(end), c + 1);
    }
    assert_int_equal(rdk_attn_chunk_count(0), 0);
    assert_int_equal(rdk_attn_chunk_count(32768), 80);
    assert_int_equal(rdk_attn_chunk_count(131072), 32 + 48 + 32 + 32);
    // The sizes partition the chunks: none is cut by the border of a size.
    for (int32_t size = 1; size < RDK_ATTN_SIZES; size++) {
        int32_t chunk = rdk_attn_chunk_count(rdk_attn_size_begin(size));
        assert_int_equal(rdk_attn_chunk_begin(chunk), rdk_attn_size_begin(size));
        assert_int_equal(rdk_attn_chunk_begin(chunk + 1) - rdk_attn_chunk_begin(chunk), 256 << size);
    }
}

static void test_attention_geometry(void **state) {
    (void)state;
    rdi_attn_args a = {.seqs = 2,
                       .tokens = 18,
                       .q_heads = 24,
                       .kv_heads = 4,
                       .head_dim = 256,
                       .block_tokens = 64,
                       .max_blocks = 512,
                       .blocks = 1024,
                       .k_stride_token = 1024,
                       .k_stride_head = 256,
                       .k_stride_block = 65536,
                       .v_stride_token = 1024,
                       .v_stride_head = 256,
                       .v_stride_block = 65536,
                       .q_dtype = RD_DTYPE_BF16,
                       .kv_dtype = RD_DTYPE_E4M3,
                       .out_dtype = RD_DTYPE_BF16,
                       .max_q_len = 9,
                       .max_kv_len = 0};
    rdi_launch out[RDI_MAX_LAUNCHES];
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&a, NULL, &h200, out), 2);
    assert_string_equal(out[0].kernel, "rdk_attn_decode_sm90a_fp8_d256_r56"); // 9 tokens of 6 heads: 54 rows
    assert_int_equal(out[0].grid[0], 132);
    assert_int_equal(out[0].grid[1], 1);
    assert_int_equal(out[0].block[0], 384); // loading warps and two teams
    assert_true(out[0].shared_bytes <= 227 * 1024);
    assert_int_equal(out[0].map_count, 2);
    const rdi_tensor_map *map = &out[0].map[1];
    assert_int_equal(map->rank, 4);
    const uint64_t dims[4] = {256, 4, 64, 1024}, strides[4] = {1, 256, 1024, 65536};
    const uint32_t box[4] = {128, 1, 64, 1};
    assert_memory_equal(map->dim, dims, sizeof dims);
    assert_memory_equal(map->stride_bytes, strides, sizeof strides);
    assert_memory_equal(map->box, box, sizeof box);
    assert_string_equal(out[1].kernel, "rdk_attn_decode_sm90a_merge_fp8");
    assert_int_equal(out[1].grid[0], 24 * 2); // 128 dims a block
    assert_int_equal(out[1].grid[1], 9);
    assert_int_equal(out[1].grid[2], 2);
    // 32768 keys: 80 chunks
    assert_int_equal(rdi_attn_decode_sm90a_ws(&a, 132), 2ll * 4 * 80 * 54 * (256 * 2 + 8)); // f16 averages
    a.max_q_len = 1; // 6 rows: three teams
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&a, NULL, &h200, out), 2);
    assert_string_equal(out[0].kernel, "rdk_attn_decode_sm90a_fp8_d256_r8");
    assert_int_equal(out[0].block[0], 512);
    a.out_dtype = RD_DTYPE_E4M3;
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&a, NULL, &h200, out), 2);
    assert_string_equal(out[1].kernel, "rdk_attn_decode_codes_sm90a_merge");
    a.out_dtype = RD_DTYPE_BF16;
    a.v_stride_token = 1020; // copies of 16 bytes do not reach the rows
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&a, NULL, &h200, out), 2);
    assert_int_equal(out[0].map_count, 0);
    a.v_stride_token = 1024;
    a.block_tokens = 48; // a box of 16 keys divides the page
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&a, NULL, &h200, out), 2);
    assert_int_equal(out[0].map[0].box[2], 16);
    a.block_tokens = 64;
    a.tables_settled = 1;
    a.head_dim = 512, a.max_q_len = 17; // 102 rows: five blocks of 24
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&a, NULL, &h200, out), 2);
    assert_string_equal(out[0].kernel, "rdk_attn_decode_sm90a_fp8_d512_r24");
    rdk_attn_sm90a_args kernel;
    memcpy(&kernel, out[0].args, sizeof kernel);
    assert_int_equal(kernel.row_blocks, 5);
    assert_int_equal(kernel.tables_settled, 1);
    // A step costs four and a chunk six more, at most a chunk a step, counted in 31 bits: 65535 sequences of 8 KV heads have 409 steps.
    rdi_attn_args many = a;
    many.seqs = 65535, many.kv_heads = 8, many.max_q_len = 1, many.max_blocks = 512;
    many.max_kv_len = 409 * 64;
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&many, NULL, &h200, out), 2);
    memcpy(&kernel, out[0].args, sizeof kernel);
    assert_true(65535ll * 8 * 409 * (RDK_ATTN_COST_STEP + kernel.chunk_cost) < INT32_MAX);
    many.max_kv_len += 1;
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&many, NULL, &h200, out), 0);
    assert_non_null(strstr(rd_error_text(), "max_kv_len"));
    const rd_device_info wide = {.compute_units = 1000}; // a warp works out the shares of 160 blocks
    assert_int_equal(rdi_attn_decode_sm90a_geometry(&a, NULL, &wide, out), 2);
    assert_int_equal(out[0].grid[0], 32 * RDK_ATTN_LANE_BLOCKS);
    // Every shape: a kernel that is there, a ring that moves, memory that a block can have.
    for (int32_t dim = 16; dim <= 512; dim += 16)
        for (int32_t rows = 1; rows <= 17 * 8; rows++)
            for (int fp8 = 0; fp8 < 2; fp8++) {
                a.head_dim = dim, a.q_heads = 4 * rows, a.max_q_len = 1;
                a.kv_dtype = fp8 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
                assert_int_equal(rdi_attn_decode_sm90a_geometry(&a, NULL, &h200, out), 2);
                memcpy(&kernel, out[0].args, sizeof kernel);
                assert_non_null(out[0].kernel);
                assert_true(kernel.key_slots >= 1 && kernel.value_slots >= 1 &&
                            out[0].shared_bytes <= 227 * 1024);
            }
}

// The hot kernels keep everything in registers (ptxas's own report, embedded by the build).
static void test_no_spills(void **state) {
    (void)state;
    int seen = 0;
    for (int32_t i = 0; i < rdi_code_object_count; i++) {
        const rdi_code_object *object = &rdi_code_objects[i];
        bool hot = !strcmp(object->image, "sm90a_gemm_step") || !strcmp(object->image, "sm90a_attn_decode");
        for (int32_t k = 0; hot && k < object->kernel_count; k++, seen++)
            if (object->kernels[k].spills > 16)
                fail_msg("%s spills %d bytes", object->kernels[k].symbol, object->kernels[k].spills);
    }
    if (!seen) skip(); // built without nvcc
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids_beyond_an_axis),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_current_context_is_used),
        cmocka_unit_test(test_every_call_may_fail),
        cmocka_unit_test(test_open_may_fail),
        cmocka_unit_test(test_memory_that_is_full),
        cmocka_unit_test(test_no_library),
        cmocka_unit_test(test_attention_partition),
        cmocka_unit_test(test_attention_geometry),
        cmocka_unit_test(test_no_spills),
    };
    return cmocka_run_group_tests(tests, load_fake, NULL);
}
