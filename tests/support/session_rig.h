// SPDX-License-Identifier: Apache-2.0
// A context, a tiny random model, its engine and one session, opened and closed together, for the tests of sessions.
#ifndef RADIANCE_TESTS_SESSION_RIG_H
#define RADIANCE_TESTS_SESSION_RIG_H

#include "support/tiny_forward.h"

#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

static uint64_t seed;

typedef struct rig {
    rd_ctx *ctx;
    rd_model *model;
    rd_engine *engine;
    rd_session *session;
} rig;

typedef struct rig_options {
    const char *device;
    int threads, sessions, rows, context;
    rd_dtype kv;
    int w8a8;
} rig_options;

static inline void ok(rd_status status) {
    if (status != RD_OK) print_error("%s\n", rd_error_text());
    assert_int_equal(status, RD_OK);
}

static inline void rig_open(rig *r, const tiny_model *m, rig_options o) {
    *r = (rig){0};
    const rd_ctx_options ctx = {.struct_size = sizeof ctx,
                                .device = o.device ? o.device : "cpu",
                                .threads = o.threads ? o.threads : 1};
    const rd_engine_options engine = {.struct_size = sizeof engine,
                                      .context_tokens = o.context,
                                      .max_sessions = o.sessions,
                                      .max_batch_rows = o.rows,
                                      .kv_dtype = o.kv,
                                      .activation = o.w8a8 ? RD_ACT_W8A8 : RD_ACT_W8A16};
    ok(rd_ctx_create(&ctx, &r->ctx));
    ok(rd_model_open(m->folder, &r->model));
    ok(rd_engine_create(r->ctx, r->model, &engine, &r->engine));
    ok(rd_session_create(r->engine, &r->session));
}

static inline void rig_close(rig *r) {
    rd_session_free(r->session);
    rd_engine_free(r->engine);
    rd_model_close(r->model);
    rd_ctx_free(r->ctx);
}

static inline void random_ids(tiny_model *m, int32_t *ids, int count) {
    for (int i = 0; i < count; i++) ids[i] = (int32_t)(tiny_uniform(m) * m->spec.vocab);
}

typedef struct small_rig {
    tiny_model m;
    rig r;
    int32_t ids[128];
} small_rig;

static inline void small_open(small_rig *s, rig_options o) {
    tiny_make(&s->m, &tiny_bf16, ++seed);
    rig_open(&s->r, &s->m, o);
    random_ids(&s->m, s->ids, 128);
}
static inline void small_close(small_rig *s) {
    rig_close(&s->r);
    tiny_free(&s->m);
}

#endif
