// SPDX-License-Identifier: Apache-2.0
// Speculative greedy must be plain greedy, on any device.
#ifndef RADIANCE_TESTS_SPECULATION_H
#define RADIANCE_TESTS_SPECULATION_H

#include "support/session_rig.h"

static inline int32_t top_of(const float *logits, int vocab) {
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

// A drafter that is right about half of the time, at widths that change: accepted tokens must be those of plain greedy.
static inline void check_speculation(const tiny_spec *spec_of_model, rig_options o) {
    enum { LENGTH = 96, PROMPT = 7 };
    tiny_model m;
    rig r;
    int32_t plain[LENGTH], spec[LENGTH + RD_MAX_VERIFY_WIDTH];
    tiny_make(&m, spec_of_model, ++seed);
    rig_open(&r, &m, o);
    random_ids(&m, plain, PROMPT);
    memcpy(spec, plain, sizeof plain);
    const rd_generate_options options = {
        .struct_size = sizeof options, .max_tokens = LENGTH - PROMPT, .ignore_end = 1};
    rd_generate_result result = {.struct_size = sizeof result};
    ok(rd_generate(r.session, plain, PROMPT, &options, plain + PROMPT, &result));
    assert_int_equal(result.generated, LENGTH - PROMPT);
    float *logits = malloc(sizeof(float) * RD_MAX_VERIFY_WIDTH * (size_t)m.spec.vocab);
    ok(rd_session_truncate(r.session, 0));
    ok(rd_session_sync(r.session, spec, PROMPT, NULL, NULL));
    int known = PROMPT;
    int32_t next = top_of(rd_session_logits(r.session), m.spec.vocab);
    while (known < LENGTH) {
        const int width = 1 + (int)(tiny_uniform(&m) * RD_MAX_VERIFY_WIDTH);
        int32_t draft[RD_MAX_VERIFY_WIDTH] = {next};
        for (int i = 1; i < width; i++)
            draft[i] = known + i < LENGTH && tiny_uniform(&m) < 0.8
                           ? plain[known + i]
                           : (int32_t)(tiny_uniform(&m) * m.spec.vocab);
        const rd_step_item item = {r.session, draft, width, logits};
        ok(rd_engine_step(r.engine, &item, 1));
        int accepted = 0;
        do {
            spec[known + accepted] = draft[accepted];
            next = top_of(logits + accepted * m.spec.vocab, m.spec.vocab);
            accepted++;
        } while (accepted < width && draft[accepted] == next);
        known += accepted;
        ok(rd_session_truncate(r.session, known));
    }
    assert_memory_equal(spec, plain, sizeof plain);
    free(logits);
    rig_close(&r);
    tiny_free(&m);
}

#endif
