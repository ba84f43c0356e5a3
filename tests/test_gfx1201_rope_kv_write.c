// SPDX-License-Identifier: Apache-2.0
// rope_kv_write of gfx1201 in the simulator with all its checks on: one launch leaves the bits in q and in the caches that
// rope_gfx1201 and then kv_write_gfx1201 leave (which their own tests judge by the references), and does not write k.
#include "rope_kv_write.h"

#include "gfx1201_sim.h"
#include "kernels/elementwise/gfx1201_args.h"
#include "kernels/rows.h"

static void run_rope(const both_case *c, both_data *d) {
    SIM_RUN(gpu_row("rope_gfx1201"), d->args.rope, SIM_BUFFER(d->args.rope, q, d->q.bytes),
            SIM_BUFFER(d->args.rope, k, d->k.bytes), SIM_BUFFER(d->args.rope, positions, sizeof positions),
            SIM_BUFFER(d->args.rope, inv_freq, (size_t)c->rotary_dim / 2 * sizeof(float)),
            SIM_BUFFER(d->args.rope, q_norm, sizeof norms[0]),
            SIM_BUFFER(d->args.rope, k_norm, sizeof norms[1]));
}
static void run_kv_write(both_data *d) {
    SIM_RUN(gpu_row("kv_write_gfx1201"), d->args.kv, SIM_BUFFER(d->args.kv, k, d->k.bytes),
            SIM_BUFFER(d->args.kv, v, d->v.bytes), SIM_BUFFER(d->args.kv, k_cache, d->k_cache.bytes),
            SIM_BUFFER(d->args.kv, v_cache, d->v_cache.bytes),
            SIM_BUFFER(d->args.kv, k_scale, sizeof scales[0]),
            SIM_BUFFER(d->args.kv, v_scale, sizeof scales[1]), SIM_BUFFER(d->args.kv, slots, sizeof slots));
}
static void run_both(const both_case *c, both_data *d) {
    d->args.kv.k = NULL; // the row reads rope.k
    SIM_RUN(
        gpu_row("rope_kv_write_gfx1201"), d->args, SIM_BUFFER(d->args, rope.q, d->q.bytes),
        SIM_BUFFER(d->args, rope.k, d->k.bytes), SIM_BUFFER(d->args, rope.positions, sizeof positions),
        SIM_BUFFER(d->args, rope.inv_freq, (size_t)c->rotary_dim / 2 * sizeof(float)),
        SIM_BUFFER(d->args, rope.q_norm, sizeof norms[0]), SIM_BUFFER(d->args, rope.k_norm, sizeof norms[1]),
        SIM_BUFFER(d->args, kv.v, d->v.bytes), SIM_BUFFER(d->args, kv.k_cache, d->k_cache.bytes),
        SIM_BUFFER(d->args, kv.v_cache, d->v_cache.bytes), SIM_BUFFER(d->args, kv.k_scale, sizeof scales[0]),
        SIM_BUFFER(d->args, kv.v_scale, sizeof scales[1]), SIM_BUFFER(d->args, kv.slots, sizeof slots));
}

static void both_check(const both_case *c, uint64_t seed) {
    uint64_t state = seed ^ 1;
    fill_tables(c, &state);
    slots[20] = -7;                    // no slot twice: a card's lanes have no order
    slots[19] = BLOCKS * BLOCK_TOKENS; // outside of the cache, which the host cannot see there
    both_data want = both_new(c, seed), got = both_new(c, seed), before = both_new(c, seed);
    run_rope(c, &want);
    run_kv_write(&want);
    run_both(c, &got);
    assert_memory_equal(got.q.data, want.q.data, want.q.bytes);
    assert_memory_equal(got.k.data, before.k.data, before.k.bytes);
    assert_memory_equal(got.v.data, before.v.data, before.v.bytes);
    assert_memory_equal(got.k_cache.data, want.k_cache.data, want.k_cache.bytes);
    assert_memory_equal(got.v_cache.data, want.v_cache.data, want.v_cache.bytes);
    both_free(&want), both_free(&got), both_free(&before);
}

static void test_equals_the_two_launches(void **unused) {
    (void)unused;
    NEED_SIM();
    static const int64_t dims[][2] = {{64, 64}, {128, 32}, {72, 40}, {256, 256}, {2, 2}, {18, 6}};
    static const rd_dtype caches[] = {RD_DTYPE_E4M3, RD_DTYPE_BF16, RD_DTYPE_F16, RD_DTYPE_F32};
    uint64_t state = fresh_seed("rope_kv_write_gfx1201");
    for (int i = 0; i < 48; i++)
        both_check(&(both_case){dims[i / 8][0], dims[i / 8][1], float_types[i % 3], caches[(i + i / 8) % 4],
                                i % 5 < 3 ? RD_DTYPE_NONE : float_types[i / 3 % 3], i >> 2 & 1, i >> 1 & 1},
                   random_next(&state));
    both_check(&(both_case){512, 512, RD_DTYPE_BF16, RD_DTYPE_E4M3, RD_DTYPE_BF16, 0, 0},
               random_next(&state));
}

static void test_geometry(void **unused) {
    (void)unused;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_rope_kv_write_args a = {
        .rope = {.tokens = 5, .q_heads = 24, .k_heads = 3, .head_dim = 128, .rotary_dim = 128},
        .kv = {.tokens = 5,
               .kv_heads = 3,
               .head_dim = 128,
               .block_tokens = 16,
               .blocks = 4,
               .kc_stride_dim = 1}};
    assert_int_equal(rdi_rope_kv_write_gfx1201_geometry(&a, NULL, NULL, out), 1);
    assert_int_equal(out[0].grid[0], 5);
    assert_int_equal(out[0].grid[1], 8); // 30 heads of q, k and v, four waves
    assert_int_equal(out[0].block[0], 128);
    assert_int_equal(out[0].args_bytes, sizeof(rdk_rope_kv_write_gfx1201_args));
    float norm[1] = {1};
    a.rope.q_norm = norm, a.rope.norm_dtype = RD_DTYPE_E4M3;
    assert_int_equal(rdi_rope_kv_write_gfx1201_geometry(&a, NULL, NULL, out), 0);
    assert_non_null(strstr(rd_error_text(), "rope_kv_write: q_norm: dtype=fp8_e4m3"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_two_launches),
        cmocka_unit_test(test_geometry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
