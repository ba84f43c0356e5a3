// SPDX-License-Identifier: Apache-2.0
// rmsnorm, rope, kv_write and embed of gfx1201, executed in the simulator with all its checks on, against the references;
// one row at a time gives the bits of all rows at once. And their geometry, which needs no card.
#include "elementwise.h"

#include "gfx1201_sim.h"
#include "kernels/elementwise/gfx1201_args.h"
#include "kernels/rows.h"

// ---- rmsnorm ----------------------------------------------------------------------------------------------------------
typedef struct norm_case {
    int64_t m, k, pad; // pad: elements between rows, 0 = every row on 16 bytes
    rd_dtype x, residual, weight, y;
    float size;
    int unit_offset;
} norm_case;
typedef struct norm_data {
    guarded x, residual, weight, y;
    rdi_rmsnorm_args args;
} norm_data;

static norm_data norm_new(const norm_case *c, uint64_t seed) {
    uint64_t state = seed;
    int64_t stride = c->k + c->pad, elems = c->m * stride;
    rd_dtype residual = c->residual ? c->residual : RD_DTYPE_F32;
    norm_data d = {guarded_new(elems, c->x),
                   guarded_new(elems, residual),
                   guarded_new(c->k, c->weight),
                   guarded_new(elems, c->y),
                   {0}};
    for (int64_t at = 0; at < elems; at++)
        if (at % stride < c->k) {
            rdi_store_f32(d.x.data, c->x, at, c->size * random_normal(&state));
            rdi_store_f32(d.residual.data, residual, at, c->size * random_normal(&state));
        }
    fill(d.weight.data, c->weight, c->k, &state, 1);
    d.args = (rdi_rmsnorm_args){.m = c->m,
                                .k = c->k,
                                .x = d.x.data,
                                .residual = c->residual ? d.residual.data : NULL,
                                .weight = d.weight.data,
                                .y = d.y.data,
                                .x_stride = stride,
                                .residual_stride = stride,
                                .y_stride = stride,
                                .x_dtype = c->x,
                                .residual_dtype = c->residual,
                                .weight_dtype = c->weight,
                                .y_dtype = c->y,
                                .eps = 1e-5f,
                                .unit_offset = c->unit_offset};
    return d;
}
// Rows first .. first + count - 1.
static void norm_run(const norm_data *d, int64_t first, int64_t count) {
    rdi_rmsnorm_args a = d->args;
    size_t x = (size_t)(first * a.x_stride) * rd_dtype_bytes(a.x_dtype),
           residual = (size_t)(first * a.residual_stride) * rd_dtype_bytes(a.residual_dtype),
           y = (size_t)(first * a.y_stride) * rd_dtype_bytes(a.y_dtype);
    a.m = count, a.x = (const char *)a.x + x, a.y = (char *)a.y + y;
    if (a.residual) a.residual = (char *)a.residual + residual;
    SIM_RUN(gpu_row("rmsnorm_gfx1201"), a, SIM_BUFFER(a, x, d->x.bytes - x),
            SIM_BUFFER(a, residual, d->residual.bytes - residual), SIM_BUFFER(a, weight, d->weight.bytes),
            SIM_BUFFER(a, y, d->y.bytes - y));
}
static void norm_free(norm_data *d) {
    guarded_free(&d->x), guarded_free(&d->residual), guarded_free(&d->weight), guarded_free(&d->y);
}

static void norm_check(const norm_case *c, uint64_t seed) {
    norm_data want = norm_new(c, seed), got = norm_new(c, seed), single = norm_new(c, seed);
    reference_of("rmsnorm")->run(&want.args, NULL, NULL);
    norm_run(&got, 0, c->m);
    int64_t stride = c->k + c->pad;
    for (int64_t at = 0; at < c->m * stride; at++) {
        if (at % stride >= c->k) {
            assert_true(isnan(rdi_load_f32(got.y.data, c->y, at)));
            continue;
        }
        double g = rdi_load_f32(got.y.data, c->y, at), w = rdi_load_f32(want.y.data, c->y, at);
        // A chain of k/256 squares a lane, 13 sums across the group, halved by the root; six more roundings.
        if (!(fabs(g - w) <= bound(c->y, w, (double)c->k / 512 + 16)))
            fail_msg("m=%lld k=%lld: element %lld: %g, needs %g", (long long)c->m, (long long)c->k,
                     (long long)at, g, w);
        if (c->residual) assert_true(same_bits(c->residual, got.residual.data, want.residual.data, at));
    }
    for (int64_t m = 0; m < c->m; m++) norm_run(&single, m, 1);
    assert_memory_equal(single.y.data, got.y.data, got.y.bytes);
    norm_free(&want), norm_free(&got), norm_free(&single);
}

static void test_rmsnorm(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t state = fresh_seed("rmsnorm_gfx1201");
    static const int64_t widths[] = {1, 2, 7, 8, 9, 31, 64, 255, 257, 300, 576, 2049, 3884};
    for (size_t i = 0; i < RDI_COUNT(widths); i++)
        for (size_t t = 0; t < 3; t++)
            norm_check(&(norm_case){3, widths[i], widths[i] & 1 ? 3 : (int64_t)(i & 2),
                                    float_types[t], // rows on dwords: the race check's grain
                                    t == 1 ? RD_DTYPE_NONE : float_types[(t + 1) % 3], float_types[i % 3],
                                    float_types[(t + 2) % 3], 1, (int)(i & 1)},
                       random_next(&state));
    norm_check(&(norm_case){2, 5120, 0, RD_DTYPE_BF16, RD_DTYPE_BF16, RD_DTYPE_BF16, RD_DTYPE_BF16, 30, 0},
               random_next(&state));
    norm_check(&(norm_case){2, 17408, 8, RD_DTYPE_F32, RD_DTYPE_NONE, RD_DTYPE_BF16, RD_DTYPE_F32, 1e-3f, 1},
               random_next(&state));
}

// ---- embed ------------------------------------------------------------------------------------------------------------
static void test_embed(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t state = fresh_seed("embed_gfx1201");
    static const int64_t widths[] = {1, 8, 13, 300, 2056};
    for (size_t i = 0; i < RDI_COUNT(widths); i++)
        for (size_t t = 0; t < 9; t++) {
            rd_dtype table_type = float_types[t / 3], y_type = float_types[t % 3];
            int64_t k = widths[i], pad = t & 1 ? 8 : 1, stride = k + pad;
            int32_t ids[6] = {0, 6, 3, 7, 1, -1}; // two of them outside the table
            guarded table = guarded_new(7 * stride, table_type), y = guarded_new(6 * stride, y_type);
            fill(table.data, table_type, 7 * stride, &state, 1);
            rdi_embed_args a = {.tokens = 6,
                                .vocab = 7,
                                .k = k,
                                .table = table.data,
                                .table_stride = stride,
                                .ids = ids,
                                .y = y.data,
                                .y_stride = stride,
                                .table_dtype = table_type,
                                .y_dtype = y_type,
                                .scale = t & 1 ? 1.0f : 24.0f};
            SIM_RUN(gpu_row("embed_gfx1201"), a, SIM_BUFFER(a, table, table.bytes),
                    SIM_BUFFER(a, ids, sizeof ids), SIM_BUFFER(a, y, y.bytes));
            for (int64_t at = 0; at < 6 * stride; at++) {
                int64_t d = at % stride, id = ids[at / stride];
                float got = rdi_load_f32(y.data, y_type, at), want[1] = {0};
                if (d >= k || id < 0 || id >= 7) {
                    assert_true(isnan(got)); // pads keep their poison; a row of no token is NaN
                    continue;
                }
                rdi_store_f32(want, y_type, 0,
                              rdi_load_f32(table.data, table_type, id * stride + d) * a.scale);
                assert_true(got == rdi_load_f32(want, y_type, 0));
            }
            guarded_free(&table), guarded_free(&y);
        }
}

// ---- rope -------------------------------------------------------------------------------------------------------------
typedef struct rope_case {
    int64_t tokens, q_heads, k_heads, head_dim, rotary_dim;
    rd_dtype x, norm; // NONE: no qk-norm
    int interleaved, unit_offset, far_positions;
} rope_case;

static void rope_compare(const rope_case *c, const guarded *got, const guarded *want, const guarded *before,
                         int64_t elems) {
    int64_t stride = c->head_dim + 2;
    for (int64_t at = 0; at < elems; at++) {
        int64_t d = at % stride, head = at - d;
        double w = rdi_load_f32(want->data, c->x, at), g = rdi_load_f32(got->data, c->x, at);
        if (d >= c->head_dim || (d >= c->rotary_dim && !c->norm)) {
            assert_true(same_bits(c->x, got->data, before->data, at));
            continue;
        }
        // A pair's length times the error of sine and cosine (2^-22) and the norm's roundings.
        int64_t half = c->rotary_dim / 2, other = c->interleaved ? (d ^ 1) : (d + half) % (2 * half);
        double partner = d < c->rotary_dim ? fabs((double)rdi_load_f32(want->data, c->x, head + other)) : 0;
        double length = (fabs(w) + partner + ulp_of(c->x, partner)) * 1.5;
        double allowed =
            bound(c->x, w, 4) + length * (0x1p-22 + (c->norm ? (double)c->head_dim / 32 + 12 : 0) * 0x1p-24);
        if (!(fabs(g - w) <= allowed)) fail_msg("element %lld: %a, needs %a", (long long)at, g, w);
    }
}

static void rope_check(const rope_case *c, uint64_t seed) {
    int64_t stride = c->head_dim + 2, q_elems = c->tokens * c->q_heads * stride,
            k_elems = c->tokens * c->k_heads * stride;
    uint64_t state = seed;
    int32_t positions[64];
    float inv_freq[256], q_norm[512], k_norm[512];
    for (int64_t t = 0; t < c->tokens; t++)
        positions[t] = (int32_t)(random_next(&state) % (c->far_positions ? 4194305 : 2048));
    if (c->far_positions) positions[0] = 4194304;
    for (int64_t i = 0; i < c->rotary_dim / 2; i++)
        inv_freq[i] = (float)pow(10000, -2.0 * (double)i / (double)c->rotary_dim);
    for (int64_t d = 0; d < c->head_dim; d++) {
        rdi_store_f32(q_norm, c->norm ? c->norm : RD_DTYPE_F32, d, random_normal(&state));
        rdi_store_f32(k_norm, c->norm ? c->norm : RD_DTYPE_F32, d, random_normal(&state));
    }
    guarded q[3], k[3]; // before, reference, row
    for (int i = 0; i < 3; i++) {
        q[i] = guarded_new(q_elems, c->x), k[i] = guarded_new(k_elems, c->x);
        if (!i) fill(q[0].data, c->x, q_elems, &state, 1), fill(k[0].data, c->x, k_elems, &state, 1);
        memcpy(q[i].data, q[0].data, q[0].bytes), memcpy(k[i].data, k[0].data, k[0].bytes);
    }
    rdi_rope_args a = {.tokens = c->tokens,
                       .q_heads = c->q_heads,
                       .k_heads = c->k_heads,
                       .head_dim = c->head_dim,
                       .rotary_dim = c->rotary_dim,
                       .q = q[1].data,
                       .k = k[1].data,
                       .q_stride_head = stride,
                       .q_stride_token = c->q_heads * stride,
                       .k_stride_head = stride,
                       .k_stride_token = c->k_heads * stride,
                       .positions = positions,
                       .inv_freq = inv_freq,
                       .q_norm = c->norm ? q_norm : NULL,
                       .k_norm = c->norm ? k_norm : NULL,
                       .q_dtype = c->x,
                       .k_dtype = c->x,
                       .norm_dtype = c->norm,
                       .eps = 1e-6f,
                       .unit_offset = c->unit_offset,
                       .interleaved = c->interleaved};
    reference_of("rope")->run(&a, NULL, NULL);
    a.q = q[2].data, a.k = k[2].data;
    SIM_RUN(gpu_row("rope_gfx1201"), a, SIM_BUFFER(a, q, q[2].bytes), SIM_BUFFER(a, k, k[2].bytes),
            SIM_BUFFER(a, positions, (size_t)c->tokens * sizeof *positions),
            SIM_BUFFER(a, inv_freq, (size_t)c->rotary_dim / 2 * sizeof *inv_freq),
            SIM_BUFFER(a, q_norm, (size_t)c->head_dim * rd_dtype_bytes(c->norm)),
            SIM_BUFFER(a, k_norm, (size_t)c->head_dim * rd_dtype_bytes(c->norm)));
    rope_compare(c, &q[2], &q[1], &q[0], q_elems);
    rope_compare(c, &k[2], &k[1], &k[0], k_elems);
    for (int i = 0; i < 3; i++) guarded_free(&q[i]), guarded_free(&k[i]);
}

static void test_rope(void **unused) {
    (void)unused;
    NEED_SIM();
    uint64_t state = fresh_seed("rope_gfx1201");
    for (int i = 0; i < 24; i++) {
        int64_t head_dim = 2 + 2 * (int64_t)(random_next(&state) % 140),
                rotary = 2 + 2 * (int64_t)(random_next(&state) % (uint64_t)(head_dim / 2));
        rope_check(&(rope_case){1 + i % 3, 1 + i % 5, i % 3, head_dim, rotary, float_types[i % 3],
                                i & 1 ? float_types[(i / 2) % 3] : RD_DTYPE_NONE, i % 4 == 3, i % 8 == 1,
                                i % 6 == 5},
                   random_next(&state));
    }
    rope_check(&(rope_case){2, 24, 4, 256, 64, RD_DTYPE_BF16, RD_DTYPE_BF16, 0, 1, 0}, random_next(&state));
    rope_check(&(rope_case){1, 3, 1, 512, 512, RD_DTYPE_F32, RD_DTYPE_F32, 0, 0, 1}, random_next(&state));
}

// ---- kv_write ---------------------------------------------------------------------------------------------------------
typedef struct kv_case {
    int64_t heads, head_dim, block_tokens, pad;
    rd_dtype x, kv;
    int token_order, scaled;
} kv_case;

static void kv_check(const kv_case *c, uint64_t seed) {
    enum { TOKENS = 8, BLOCKS = 3 };
    uint64_t state = seed;
    int64_t capacity = BLOCKS * c->block_tokens, head = c->head_dim + c->pad,
            elems = capacity * c->heads * head, x_elems = TOKENS * c->heads * head;
    // Skipped: negative, and past the cache, which the host cannot see here.
    int64_t slots[TOKENS] = {0,        capacity - 1,    -1,       c->block_tokens + 1, 2,
                             capacity, c->block_tokens, INT64_MAX};
    float scales[2][8];
    guarded k = guarded_new(x_elems, c->x), v = guarded_new(x_elems, c->x), cache[4];
    fill(k.data, c->x, x_elems, &state, 30), fill(v.data, c->x, x_elems, &state, 30);
    rdi_store_f32(k.data, c->x, 0, NAN), rdi_store_f32(v.data, c->x, 1, -1e30f),
        rdi_store_f32(v.data, c->x, 2, INFINITY);
    for (int h = 0; h < 8; h++) scales[0][h] = 0.01f + 0.1f * (float)h, scales[1][h] = 1.5f;
    bool order = c->token_order;
    rdi_kv_write_args a = {.tokens = TOKENS,
                           .kv_heads = c->heads,
                           .head_dim = c->head_dim,
                           .block_tokens = c->block_tokens,
                           .blocks = BLOCKS,
                           .k = k.data,
                           .v = v.data,
                           .k_stride_head = head,
                           .k_stride_token = c->heads * head,
                           .v_stride_head = head,
                           .v_stride_token = c->heads * head,
                           .kc_stride_block = c->block_tokens * c->heads * head,
                           .kc_stride_token = order ? 1 : c->heads * head,
                           .kc_stride_head = order ? c->block_tokens * head : head,
                           .kc_stride_dim = order ? 16 : 1,
                           .vc_stride_block = c->block_tokens * c->heads * head,
                           .vc_stride_token = c->heads * head,
                           .vc_stride_head = head,
                           .vc_stride_dim = 1,
                           .k_scale = c->scaled ? scales[0] : NULL,
                           .v_scale = c->scaled ? scales[1] : NULL,
                           .slots = slots,
                           .x_dtype = c->x,
                           .kv_dtype = c->kv};
    for (int i = 0; i < 4; i++) cache[i] = guarded_new(elems, c->kv);
    a.k_cache = cache[2].data, a.v_cache = cache[3].data;
    SIM_RUN(gpu_row("kv_write_gfx1201"), a, SIM_BUFFER(a, k, k.bytes), SIM_BUFFER(a, v, v.bytes),
            SIM_BUFFER(a, k_cache, cache[2].bytes), SIM_BUFFER(a, v_cache, cache[3].bytes),
            SIM_BUFFER(a, k_scale, (size_t)c->heads * sizeof(float)),
            SIM_BUFFER(a, v_scale, (size_t)c->heads * sizeof(float)), SIM_BUFFER(a, slots, sizeof slots));
    slots[5] = slots[7] = -1;
    a.k_cache = cache[0].data, a.v_cache = cache[1].data;
    reference_of("kv_write")->run(&a, NULL, NULL);
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; at < elems; at++)
            if (!same_bits(c->kv, cache[2 + i].data, cache[i].data, at))
                fail_msg("%c cache, element %lld: %g, needs %g", i ? 'v' : 'k', (long long)at,
                         (double)rdi_load_f32(cache[2 + i].data, c->kv, at),
                         (double)rdi_load_f32(cache[i].data, c->kv, at));
    for (int i = 0; i < 4; i++) guarded_free(&cache[i]);
    guarded_free(&k), guarded_free(&v);
}

static void test_kv_write(void **unused) {
    (void)unused;
    NEED_SIM();
    static const rd_dtype caches[] = {RD_DTYPE_E4M3, RD_DTYPE_BF16, RD_DTYPE_F16, RD_DTYPE_F32};
    uint64_t state = fresh_seed("kv_write_gfx1201");
    for (int i = 0; i < 48; i++) {
        rd_dtype kv = caches[i % 4];
        kv_check(&(kv_case){1 + i % 3, i & 1 ? 64 : 1 + (int64_t)(random_next(&state) % 70), i & 2 ? 16 : 48,
                            i % 3 ? 0 : 3, float_types[i / 4 % 3], kv, i & 4,
                            kv == RD_DTYPE_E4M3 && !(i & 8)},
                 random_next(&state));
    }
    kv_check(&(kv_case){4, 256, 16, 0, RD_DTYPE_BF16, RD_DTYPE_E4M3, 0, 1}, random_next(&state));
}

// Every f32 that rounds to an e4m3 code or lies beside one: the hardware's conversion against ours.
static void test_kv_write_every_code(void **unused) {
    (void)unused;
    NEED_SIM();
    enum { HEAD = 512, TOKENS = 4 };
    static float k[TOKENS * HEAD], v[TOKENS * HEAD];
    static uint8_t got[2][16 * HEAD];
    int64_t slots[TOKENS] = {0, 1, 2, 3};
    for (int i = 0; i < TOKENS * HEAD; i++) { // a code, and the middles and neighbours around it
        float x = rdi_f32_from_e4m3((uint8_t)(i / 8)), next = rdi_f32_from_e4m3((uint8_t)(i / 8 + 1));
        float middle = (x + next) / 2, choices[8] = {x,
                                                     middle,
                                                     nextafterf(middle, 0),
                                                     nextafterf(middle, 1e9f),
                                                     nextafterf(x, 0),
                                                     nextafterf(x, 1e9f),
                                                     x * 1.03f,
                                                     -x};
        k[i] = choices[i % 8], v[i] = -k[i];
    }
    rdi_kv_write_args a = {.tokens = TOKENS,
                           .kv_heads = 1,
                           .head_dim = HEAD,
                           .block_tokens = 16,
                           .blocks = 1,
                           .k = k,
                           .v = v,
                           .k_stride_head = HEAD,
                           .k_stride_token = HEAD,
                           .v_stride_head = HEAD,
                           .v_stride_token = HEAD,
                           .k_cache = got[0],
                           .v_cache = got[1],
                           .kc_stride_block = 16 * HEAD,
                           .kc_stride_token = HEAD,
                           .kc_stride_head = HEAD,
                           .kc_stride_dim = 1,
                           .vc_stride_block = 16 * HEAD,
                           .vc_stride_token = HEAD,
                           .vc_stride_head = HEAD,
                           .vc_stride_dim = 1,
                           .slots = slots,
                           .x_dtype = RD_DTYPE_F32,
                           .kv_dtype = RD_DTYPE_E4M3};
    SIM_RUN(gpu_row("kv_write_gfx1201"), a, SIM_BUFFER(a, k, sizeof k), SIM_BUFFER(a, v, sizeof v),
            SIM_BUFFER(a, k_cache, sizeof got[0]), SIM_BUFFER(a, v_cache, sizeof got[1]),
            SIM_BUFFER(a, slots, sizeof slots));
    for (int i = 0; i < TOKENS * HEAD; i++) {
        uint8_t want_k = rdi_e4m3_from_f32(k[i]), want_v = rdi_e4m3_from_f32(v[i]);
        if (got[0][i] != want_k || got[1][i] != want_v)
            fail_msg("%a: codes %02x %02x, need %02x %02x", (double)k[i], got[0][i], got[1][i], want_k,
                     want_v);
    }
}

// ---- geometry ---------------------------------------------------------------------------------------------------------
static void test_geometry(void **unused) {
    (void)unused;
    rdi_launch out[RDI_MAX_LAUNCHES];
    rdi_rope_args rope = {.tokens = 5, .q_heads = 24, .k_heads = 3, .head_dim = 128, .rotary_dim = 128};
    assert_int_equal(rdi_rope_gfx1201_geometry(&rope, NULL, NULL, out), 1);
    assert_int_equal(out[0].grid[0], 5);
    assert_int_equal(out[0].grid[1], 7); // 27 heads, four waves
    rdi_kv_write_args kv = {.tokens = 3,
                            .kv_heads = 4,
                            .head_dim = 300,
                            .block_tokens = 16,
                            .blocks = 1 << 30,
                            .kc_stride_dim = 16,
                            .vc_stride_dim = 1,
                            .kv_dtype = RD_DTYPE_E4M3,
                            .x_dtype = RD_DTYPE_BF16};
    assert_int_equal(rdi_kv_write_gfx1201_geometry(&kv, NULL, NULL, out), 1);
    assert_int_equal(out[0].grid[1], 2); // 4 x 38 groups of eight, 128 lanes
    assert_int_equal(out[0].grid[2], 2); // K and V
    rdk_kv_write_gfx1201_args args;
    memcpy(&args, out[0].args, sizeof args);
    assert_int_equal(args.capacity, INT32_MAX);
    assert_int_equal(args.side[0].stride_group, 16 * 300);
    assert_int_equal(args.side[0].wide_out, 0); // 16 bytes apart
    rdi_embed_args embed = {
        .tokens = 70000, .k = 2049, .table_dtype = RD_DTYPE_BF16, .y_dtype = RD_DTYPE_BF16};
    assert_int_equal(rdi_embed_gfx1201_geometry(&embed, NULL, NULL, out), 1);
    assert_int_equal(out[0].grid[0], 70000);
    assert_int_equal(out[0].grid[1], 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm),  cmocka_unit_test(test_embed),
        cmocka_unit_test(test_rope),     cmocka_unit_test(test_kv_write),
        cmocka_unit_test(test_geometry), cmocka_unit_test(test_kv_write_every_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
