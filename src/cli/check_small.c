// SPDX-License-Identifier: Apache-2.0
// radiance check: rmsnorm, rope, act_mul, kv_write, embed and sample, over ragged sizes and those of real models. A 16-bit
// output may be one step (2^-7) off where the unrounded values straddle a boundary; f32 outputs within 2e-5.
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rd_dtype types[] = {RD_DTYPE_BF16, RD_DTYPE_F32};

// One op call whose written tensors are copies, compared afterwards: at most three of them.
typedef struct small_data {
    union {
        rd_rmsnorm_args rmsnorm;
        rd_rope_args rope;
        rd_act_mul_args act_mul;
        rd_kv_write_args kv_write;
        rd_embed_args embed;
        rd_sample_args sample;
        check_rope_kv_write_args rope_kv_write;
    } args;
    rd_tensor *written[CHECK_OUTPUTS]; // in args; data as before the call, or NULL: poison
    rd_tensor *consumed;               // NULL, or in args: the op may change it, nothing is promised of it
    const rd_tensor
        *derived; // NULL, or a written one whose codes are of computed values: they may be a step off
    const check_op *op;
} small_data;

static int64_t elems_of(const rd_tensor *t) {
    int64_t elems = 1;
    for (int32_t axis = 0; axis < t->rank; axis++) elems *= t->shape[axis];
    return elems;
}

static float value_at(const rd_tensor *t, int64_t at) {
    return t->dtype == RD_DTYPE_I32 ? (float)((const int32_t *)t->data)[at]
                                    : check_read(t->data, t->dtype, at);
}

// A copy for the op to write to; *before: what it stands for.
static rd_status lend_copy(rd_tensor *t, void **before) {
    size_t bytes = (size_t)elems_of(t) * rd_dtype_bytes(t->dtype);
    void *copy = malloc(bytes + 1);
    *before = t->data;
    if (copy && *before)
        memcpy(copy, *before, bytes);
    else if (copy)
        memset(copy, 0xff, bytes);
    t->data = copy;
    return copy ? RD_OK : RD_E_NOMEM;
}
static void take_copy(rd_tensor *t, void *before) {
    free(t->data);
    t->data = before;
}

static rd_status execute(check_case *c, const rd_plan *plan, const rd_kernel_info *kernel) {
    small_data *d = c->data;
    void *before[CHECK_OUTPUTS] = {0}, *consumed = NULL;
    rd_status status = d->consumed ? lend_copy(d->consumed, &consumed) : RD_OK;
    (void)kernel;
    for (int i = 0; i < c->output_count; i++) {
        rd_status lent = lend_copy(d->written[i], &before[i]);
        if (lent != RD_OK) status = lent;
    }
    if (status == RD_OK) status = check_call(c->ctx, d->op, plan, &d->args);
    for (int i = 0; i < c->output_count; i++) {
        for (int64_t at = 0; at < c->outputs[i].count && status == RD_OK; at++)
            c->outputs[i].got[at] = value_at(d->written[i], at);
        take_copy(d->written[i], before[i]);
    }
    if (d->consumed) take_copy(d->consumed, consumed);
    return status;
}

// least: the error allowed at 0, for values that come out of cancellation.
static void run_case(check_run *run, small_data *d, check_judge judge, double least, const char *name,
                     int64_t at, const rd_param *params, int param_count) {
    check_case c = {.params = params, .param_count = param_count, .at = at, .execute = execute, .data = d};
    rd_status status = RD_OK;
    for (; c.output_count < CHECK_OUTPUTS && d->written[c.output_count] && status == RD_OK;
         c.output_count++) {
        const rd_tensor *t = d->written[c.output_count];
        bool code = t->dtype == RD_DTYPE_E4M3, step = code && t == d->derived;
        double limit = t->dtype == RD_DTYPE_F32 ? 2e-5 : step ? 0x1p-3 : code ? 1e-12 : 0x1p-7;
        status = check_output_new(&c.outputs[c.output_count], judge, judge == CHECK_SHARE ? 1e-3 : limit,
                                  step ? 0x1p-9 : least, elems_of(t));
    }
    snprintf(c.name, sizeof c.name, "%s", name);
    if (status == RD_OK)
        check_case_run(run, &c);
    else
        run->status = cli_error(status, "out of memory at %s", name);
    for (int i = 0; i < c.output_count; i++) check_output_free(&c.outputs[i]);
}

static bool have(check_run *run, const void *a, const void *b, const void *c, const void *d) {
    if (a && b && c && d) return run->status == RD_OK;
    run->status = cli_error(RD_E_NOMEM, "out of memory");
    return false;
}

// ---- rmsnorm, act_mul, embed ------------------------------------------------------------------------------------------

static const int64_t widths[] = {1, 15, 16, 17, 127, 576, 1536, 2048, 3884, 5120};

typedef struct norm_case {
    int64_t m, k;
    rd_dtype x, y, other; // other: of residual and weight
    bool residual, unit_offset;
} norm_case;

static void rmsnorm_case(check_run *run, const norm_case *c, uint64_t *state) {
    const int64_t m = c->m, k = c->k;
    void *xs = check_values(state, c->x, m * k, 3), *rs = check_values(state, c->other, m * k, 1),
         *ws = check_values(state, c->other, k, 1);
    if (have(run, xs, rs, ws, ws)) {
        small_data d = {.args.rmsnorm = {.struct_size = sizeof(rd_rmsnorm_args),
                                         .x = rd_tensor_2d(xs, c->x, m, k),
                                         .weight = rd_tensor_1d(ws, c->other, k),
                                         .y = rd_tensor_2d(NULL, c->y, m, k),
                                         .eps = 1e-6f,
                                         .unit_offset = c->unit_offset},
                        .op = &check_op_rmsnorm};
        d.written[0] = &d.args.rmsnorm.y;
        if (c->residual)
            d.args.rmsnorm.residual = rd_tensor_2d(rs, c->other, m, k),
            d.written[1] = &d.args.rmsnorm.residual;
        const rd_param params[] = {
            RD_INT("k", k), RD_WORD("x_dtype", rd_dtype_name(c->x)), RD_WORD("y_dtype", rd_dtype_name(c->y)),
            RD_WORD("weight_dtype", rd_dtype_name(c->other)), RD_INT("residual", c->residual)};
        char name[96];
        snprintf(name, sizeof name, "m=%lld k=%lld %s to %s%s", (long long)m, (long long)k,
                 rd_dtype_name(c->x), rd_dtype_name(c->y), c->residual ? ", residual" : "");
        run_case(run, &d, CHECK_CLOSE, 1e-30, name, m, params, CLI_COUNT(params));
    }
    free(xs), free(rs), free(ws);
}

void check_rmsnorm(check_run *run) {
    uint64_t state = run->seed;
    for (int i = 0; i < CLI_COUNT(widths) * 4; i++) {
        const norm_case c = {i & 1 ? 83 : 7, widths[i / 4], types[i & 1], types[i >> 1 & 1],
                             RD_DTYPE_BF16,  i % 3 == 0,    i / 2 & 1};
        rmsnorm_case(run, &c, &state);
    }
    // Few rows and many of one 16-bit type have kernels of their own.
    for (int i = 0; i < 8; i++) {
        const rd_dtype type = i & 1 ? RD_DTYPE_F16 : RD_DTYPE_BF16;
        const norm_case c = {i & 2 ? 83 : 7, 576, type, type, type, i & 4, i & 1};
        rmsnorm_case(run, &c, &state);
    }
}

void check_act_mul(check_run *run) {
    uint64_t state = run->seed;
    for (int i = 0; i < CLI_COUNT(widths) * 4; i++) {
        int64_t k = widths[i / 4], m = i & 1 ? 83 : 7;
        rd_dtype x = types[i >> 1 & 1], y = types[i & 1];
        const char *act = i % 3 ? "silu" : "gelu_tanh";
        void *gate = check_values(&state, x, m * k, 3), *up = check_values(&state, x, m * k, 1);
        if (have(run, gate, up, gate, up)) {
            small_data d = {.args.act_mul = {sizeof(rd_act_mul_args), rd_tensor_2d(gate, x, m, k),
                                             rd_tensor_2d(up, x, m, k), rd_tensor_2d(NULL, y, m, k)},
                            .op = &check_op_act_mul};
            d.written[0] = &d.args.act_mul.y;
            const rd_param params[] = {RD_INT("k", k), RD_WORD("act", act),
                                       RD_WORD("x_dtype", rd_dtype_name(x)),
                                       RD_WORD("y_dtype", rd_dtype_name(y))};
            char name[96];
            snprintf(name, sizeof name, "m=%lld k=%lld %s, %s to %s", (long long)m, (long long)k, act,
                     rd_dtype_name(x), rd_dtype_name(y));
            run_case(run, &d, CHECK_CLOSE, 1e-30, name, m, params, CLI_COUNT(params));
        }
        free(gate), free(up);
    }
}

void check_embed(check_run *run) {
    enum { VOCAB = 300, TOKENS = 83 };
    uint64_t state = run->seed;
    for (int i = 0; i < CLI_COUNT(widths) * 4; i++) {
        int64_t k = widths[i / 4];
        rd_dtype x = types[i & 1], y = types[i >> 1 & 1];
        int32_t ids[TOKENS];
        for (int t = 0; t < TOKENS; t++) ids[t] = (int32_t)(check_random(&state) % VOCAB);
        void *table = check_values(&state, x, VOCAB * k, 1);
        if (have(run, table, table, table, table)) {
            small_data d = {.args.embed = {sizeof(rd_embed_args), rd_tensor_2d(table, x, VOCAB, k),
                                           rd_tensor_1d(ids, RD_DTYPE_I32, TOKENS),
                                           rd_tensor_2d(NULL, y, TOKENS, k), i % 3 ? 1.0f : 24.0f},
                            .op = &check_op_embed};
            d.written[0] = &d.args.embed.y;
            const rd_param params[] = {RD_INT("k", k), RD_WORD("table_dtype", rd_dtype_name(x)),
                                       RD_WORD("y_dtype", rd_dtype_name(y))};
            char name[96];
            snprintf(name, sizeof name, "k=%lld %s to %s", (long long)k, rd_dtype_name(x), rd_dtype_name(y));
            run_case(run, &d, CHECK_CLOSE, 0, name, 0, params, CLI_COUNT(params));
        }
        free(table);
    }
}

// ---- rope ---------------------------------------------------------------------------------------------------------------

void check_rope(check_run *run) {
    enum { TOKENS = 17, Q_HEADS = 4, K_HEADS = 2 };
    static const int64_t dims[][2] = {{64, 64}, {128, 128}, {256, 64}, {80, 40}, {2, 2}, {512, 512}};
    uint64_t state = run->seed;
    for (int i = 0; i < CLI_COUNT(dims) * 8; i++) {
        int64_t head_dim = dims[i / 8][0], rotary = dims[i / 8][1];
        rd_dtype x = types[i & 1];
        bool interleaved = i >> 1 & 1, norm = i >> 2 & 1;
        int32_t positions[TOKENS];
        float inv_freq[256];
        for (int t = 0; t < TOKENS; t++) positions[t] = (int32_t)(check_random(&state) % 131072);
        rd_rope_frequencies(&(rd_rope_scaling){.theta = 10000}, (int32_t)rotary, inv_freq);
        void *q = check_values(&state, x, TOKENS * Q_HEADS * head_dim, 1),
             *k = check_values(&state, x, TOKENS * K_HEADS * head_dim, 1);
        void *weight = check_values(&state, RD_DTYPE_BF16, head_dim, 1);
        if (have(run, q, k, weight, q)) {
            small_data d = {.args.rope = {.struct_size = sizeof(rd_rope_args),
                                          .q = rd_tensor_3d(q, x, TOKENS, Q_HEADS, head_dim),
                                          .k = rd_tensor_3d(k, x, TOKENS, K_HEADS, head_dim),
                                          .positions = rd_tensor_1d(positions, RD_DTYPE_I32, TOKENS),
                                          .inv_freq = rd_tensor_1d(inv_freq, RD_DTYPE_F32, rotary / 2),
                                          .eps = 1e-6f},
                            .op = &check_op_rope};
            if (norm) d.args.rope.q_norm = d.args.rope.k_norm = rd_tensor_1d(weight, RD_DTYPE_BF16, head_dim);
            d.written[0] = &d.args.rope.q, d.written[1] = &d.args.rope.k;
            const rd_param params[] = {RD_INT("head_dim", head_dim), RD_INT("rotary_dim", rotary),
                                       RD_WORD("style", interleaved ? "interleaved" : "neox"),
                                       RD_WORD("x_dtype", rd_dtype_name(x)), RD_INT("qk_norm", norm)};
            char name[96];
            snprintf(name, sizeof name, "head_dim=%lld rotary_dim=%lld %s %s%s", (long long)head_dim,
                     (long long)rotary, interleaved ? "interleaved" : "neox", rd_dtype_name(x),
                     norm ? ", qk-norm" : "");
            run_case(run, &d, CHECK_CLOSE, 2e-5, name, 0, params, CLI_COUNT(params));
        }
        free(q), free(k), free(weight);
    }
}

// ---- kv_write -----------------------------------------------------------------------------------------------------------

void check_kv_write(check_run *run) {
    enum { TOKENS = 19, HEADS = 3, BLOCKS = 5, BLOCK_TOKENS = 32 };
    static const int64_t dims[] = {64, 72, 128, 256, 1};
    uint64_t state = run->seed;
    for (int i = 0; i < CLI_COUNT(dims) * 8; i++) {
        int64_t head_dim = dims[i / 8];
        rd_dtype x = types[i & 1], kv = i >> 1 & 1 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
        bool token_order = i >> 2 & 1;
        int64_t slots[TOKENS];
        for (int t = 0; t < TOKENS; t++)
            slots[t] = i % 3 == 2 ? t : t % 6 == 5 ? -1 : (t * 7 + 3) % (BLOCKS * BLOCK_TOKENS); // distinct
        float scale[HEADS] = {0.02f, 1.0f, 0.5f};
        void *k = check_values(&state, x, TOKENS * HEADS * head_dim, 2),
             *v = check_values(&state, x, TOKENS * HEADS * head_dim, 2);
        if (have(run, k, v, k, v)) {
            small_data d = {
                .args.kv_write = {.struct_size = sizeof(rd_kv_write_args),
                                  .k = rd_tensor_3d(k, x, TOKENS, HEADS, head_dim),
                                  .v = rd_tensor_3d(v, x, TOKENS, HEADS, head_dim),
                                  .k_cache = rd_tensor_4d(NULL, kv, BLOCKS, BLOCK_TOKENS, HEADS, head_dim),
                                  .v_cache = rd_tensor_4d(NULL, kv, BLOCKS, BLOCK_TOKENS, HEADS, head_dim),
                                  .slots = rd_tensor_1d(slots, RD_DTYPE_I64, TOKENS)},
                .op = &check_op_kv_write};
            rd_kv_write_args *a = &d.args.kv_write;
            if (kv == RD_DTYPE_E4M3) a->k_scale = a->v_scale = rd_tensor_1d(scale, RD_DTYPE_F32, HEADS);
            if (token_order)
                a->k_cache.stride[1] = 1, a->k_cache.stride[2] = BLOCK_TOKENS * head_dim,
                a->k_cache.stride[3] = 16;
            d.written[0] = &a->k_cache, d.written[1] = &a->v_cache;
            const rd_param params[] = {RD_INT("head_dim", head_dim), RD_INT("block_tokens", BLOCK_TOKENS),
                                       RD_WORD("x_dtype", rd_dtype_name(x)),
                                       RD_WORD("kv_dtype", rd_dtype_name(kv)),
                                       RD_WORD("k_order", token_order ? "token" : "dim")};
            char name[96];
            snprintf(name, sizeof name, "head_dim=%lld %s to %s, K by %s", (long long)head_dim,
                     rd_dtype_name(x), rd_dtype_name(kv), token_order ? "token" : "dim");
            run_case(run, &d, CHECK_CLOSE, 1e-12, name, 0, params, CLI_COUNT(params));
        }
        free(k), free(v);
    }
}

// ---- rope_kv_write: few shapes, because the halves have their own ----------------------------------------------------------

static void rope_kv_write_case(check_run *run, uint64_t *state, int64_t head_dim, int64_t rotary, rd_dtype x,
                               int i, int32_t tokens) {
    enum { MOST_TOKENS = 1500, Q_HEADS = 6, HEADS = 3, BLOCK_TOKENS = 32 };
    const int64_t blocks = tokens / BLOCK_TOKENS + 5;
    const rd_dtype kv = i >> 1 & 1 ? RD_DTYPE_E4M3 : RD_DTYPE_BF16;
    const rd_dtype weight_dtype = i >> 1 & 1 ? x : RD_DTYPE_BF16;
    const bool token_order = i >> 2 & 1, norm = i % 3 == 1, interleaved = i % 5 == 2;
    int32_t positions[MOST_TOKENS];
    int64_t slots[MOST_TOKENS];
    float inv_freq[256], scale[HEADS] = {0.02f, 1.0f, 0.5f};
    for (int t = 0; t < tokens; t++) {
        positions[t] = (int32_t)(check_random(state) % 131072);
        slots[t] = t % 6 == 5 ? -1 : (t * 7 + 3) % (blocks * BLOCK_TOKENS); // distinct
    }
    rd_rope_frequencies(&(rd_rope_scaling){.theta = 10000}, (int32_t)rotary, inv_freq);
    void *q = check_values(state, x, tokens * Q_HEADS * head_dim, 1),
         *k = check_values(state, x, tokens * HEADS * head_dim, 1),
         *v = check_values(state, x, tokens * HEADS * head_dim, 1),
         *weight = check_values(state, weight_dtype, head_dim, 1);
    if (have(run, q, k, v, weight)) {
        small_data d = {
            .args.rope_kv_write = {{.struct_size = sizeof(rd_rope_args),
                                    .q = rd_tensor_3d(q, x, tokens, Q_HEADS, head_dim),
                                    .k = rd_tensor_3d(k, x, tokens, HEADS, head_dim),
                                    .positions = rd_tensor_1d(positions, RD_DTYPE_I32, tokens),
                                    .inv_freq = rd_tensor_1d(inv_freq, RD_DTYPE_F32, rotary / 2),
                                    .eps = 1e-6f},
                                   {.struct_size = sizeof(rd_kv_write_args),
                                    .v = rd_tensor_3d(v, x, tokens, HEADS, head_dim),
                                    .k_cache = rd_tensor_4d(NULL, kv, blocks, BLOCK_TOKENS, HEADS, head_dim),
                                    .v_cache = rd_tensor_4d(NULL, kv, blocks, BLOCK_TOKENS, HEADS, head_dim),
                                    .slots = rd_tensor_1d(slots, RD_DTYPE_I64, tokens)}},
            .op = &check_op_rope_kv_write};
        check_rope_kv_write_args *a = &d.args.rope_kv_write;
        if (norm) a->rope.q_norm = a->rope.k_norm = rd_tensor_1d(weight, weight_dtype, head_dim);
        if (kv == RD_DTYPE_E4M3) a->kv.k_scale = a->kv.v_scale = rd_tensor_1d(scale, RD_DTYPE_F32, HEADS);
        if (token_order)
            a->kv.k_cache.stride[1] = 1, a->kv.k_cache.stride[2] = BLOCK_TOKENS * head_dim,
            a->kv.k_cache.stride[3] = 16;
        d.written[0] = &a->rope.q, d.written[1] = &a->kv.k_cache, d.written[2] = &a->kv.v_cache;
        d.consumed = &a->rope.k, d.derived = &a->kv.k_cache;
        const rd_param params[] = {RD_INT("head_dim", head_dim),
                                   RD_INT("rotary_dim", rotary),
                                   RD_WORD("style", interleaved ? "interleaved" : "neox"),
                                   RD_WORD("x_dtype", rd_dtype_name(x)),
                                   RD_INT("qk_norm", norm),
                                   RD_INT("block_tokens", BLOCK_TOKENS),
                                   RD_WORD("kv_dtype", rd_dtype_name(kv)),
                                   RD_WORD("k_order", token_order ? "token" : "dim")};
        char name[96];
        snprintf(name, sizeof name, "head_dim=%lld rotary_dim=%lld %s to %s, K by %s%s", (long long)head_dim,
                 (long long)rotary, rd_dtype_name(x), rd_dtype_name(kv), token_order ? "token" : "dim",
                 norm ? ", qk-norm" : "");
        run_case(run, &d, CHECK_CLOSE, 2e-5, name, 0, params, CLI_COUNT(params));
    }
    free(q), free(k), free(v), free(weight);
}

void check_rope_kv_write(check_run *run) {
    static const int64_t dims[][2] = {{64, 64}, {128, 128}, {256, 64}, {80, 40}, {2, 2}, {512, 512}};
    uint64_t state = run->seed;
    for (int i = 0; i < CLI_COUNT(dims) * 8; i++)
        rope_kv_write_case(run, &state, dims[i / 8][0], dims[i / 8][1], types[i & 1], i, 19);
    for (int i = 0; i < 16 && !run->small; i++) // enough for several heads a warp
        rope_kv_write_case(run, &state, i < 8 ? 128 : 256, 64, types[i & 1], i, 1500);
    // Each type that a card has kernels for, by head size, with few tokens and many; neox, K by dim.
    static const rd_dtype all[] = {RD_DTYPE_BF16, RD_DTYPE_F16, RD_DTYPE_F32};
    for (int i = 0; i < 2 * 2 * CLI_COUNT(all) && (run->on_card || run->full); i++)
        rope_kv_write_case(run, &state, i & 1 ? 256 : 128, 64, all[i / 4], i & 1 ? 1 : 3, i & 2 ? 1500 : 19);
}

// ---- sample: the same token but where the draw falls within f32 rounding of a boundary -------------------------------------

// Every mix of the settings comes around in 32 rows. equal: 0, or logits are 0 and +-2 but for a few and so many neighbours share one, so
// that draws and the bound of a small top_k fall among many equal tokens.
static void sample_case(check_run *run, uint64_t *state, int64_t vocab, int64_t rows, int64_t equal) {
    float *logits = check_values(state, RD_DTYPE_F32, rows * vocab, equal ? 1 : 3);
    rd_sample_row *settings = calloc((size_t)rows, sizeof *settings);
    if (have(run, logits, settings, logits, settings)) {
        for (int64_t i = 0; i < rows * vocab && equal; i++)
            logits[i] = 2 * roundf(logits[i - i % vocab % equal] / 2);
        for (int64_t r = 0; r < rows; r++) {
            const int64_t mix = r * 11 + 3; // few rows differ much
            settings[r] = (rd_sample_row){.temperature = (float)(mix % 4) * 0.5f,
                                          .top_p = mix & 4 ? 0.9f : 1,
                                          .min_p = mix & 8 ? 0.05f : 0,
                                          .top_k = mix & 16 ? 40 : 0,
                                          .seed = check_random(state),
                                          .counter = (uint64_t)r};
        }
        small_data d = {.args.sample = {sizeof(rd_sample_args),
                                        rd_tensor_2d(logits, RD_DTYPE_F32, rows, vocab), settings,
                                        rd_tensor_1d(NULL, RD_DTYPE_I32, rows)},
                        .op = &check_op_sample};
        d.written[0] = &d.args.sample.ids;
        const rd_param params[] = {RD_INT("vocab", vocab)};
        char name[96];
        snprintf(name, sizeof name, "vocab=%lld rows=%lld%s", (long long)vocab, (long long)rows,
                 equal ? ", ties" : "");
        run_case(run, &d, CHECK_SHARE, 1, name, 0, params, CLI_COUNT(params));
    }
    free(logits), free(settings);
}

typedef struct sample_grid { // a vocabulary of 0 ends it
    int64_t vocab, rows, equal;
} sample_grid;

void check_sample(check_run *run) {
    static const sample_grid whole[] = {
        {1, 1000, 0}, {17, 1000, 0}, {1000, 1000, 0}, {49152, 40, 0}, {1000, 1000, 1}, {49152, 40, 1}, {0}};
    static const sample_grid small[] = {
        {1, 2, 0}, {17, 8, 0}, {1000, 16, 0}, {20000, 8, 0}, {1000, 8, 32}, {16384, 4, 32}, {0}};
    // A checker of a card's races takes seconds for a launch, however few its rows.
    static const sample_grid followed[] = {{1001, 16, 0}, {1000, 8, 32}, {2560, 1, 2560}, {0}};
    const sample_grid *grid = !run->small || run->full ? whole : run->simulated ? small : followed;
    uint64_t state = run->seed;
    for (; grid->vocab; grid++) sample_case(run, &state, grid->vocab, grid->rows, grid->equal);
}
