// SPDX-License-Identifier: Apache-2.0
// Text on top of a session: sync to the prompt, then sample, hand out, step.
//
// A draw is a function of (seed, position in the timeline), so that a cut-off answer that is continued draws the same tokens.
#include "engine/engine.h"

#include <time.h>

static double now_seconds(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static rd_status check_generate(const rd_session *session, const rd_generate_options *options,
                                const int32_t *ids_out, const rd_generate_result *result) {
    if (!session || !options || !result)
        return rdi_fail(RD_E_INVALID, "generate: %s is NULL",
                        !session   ? "session"
                        : !options ? "options"
                                   : "result");
    if (options->struct_size < sizeof *options || result->struct_size < sizeof *result)
        return rdi_fail(RD_E_INVALID, "generate: struct_size=%u and %u, needs %zu and %zu",
                        options->struct_size, result->struct_size, sizeof *options, sizeof *result);
    if (options->max_tokens < 0)
        return rdi_fail(RD_E_INVALID, "generate: max_tokens=%d, needs >= 0", options->max_tokens);
    if (options->max_tokens > 0 && !ids_out) return rdi_fail(RD_E_INVALID, "generate: ids_out is NULL");
    return RD_OK;
}

static rd_status sample_next(rd_session *session, const rd_sample_row *sampling, int32_t *id) {
    rd_engine *engine = session->engine;
    const rdi_scratch *s = &engine->scratch;
    rdi_batch *batch = &engine->batch;
    rd_tensor logits = rd_tensor_2d(session->logits, RD_DTYPE_F32, 1, engine->geometry.vocab);
    rd_sample_args args = {.struct_size = sizeof args,
                           .logits = rdi_here(engine, logits),
                           .rows = s->sampling,
                           .ids = rdi_here(engine, rd_tensor_1d(s->sampled, RD_DTYPE_I32, 1))};
    pthread_mutex_lock(&engine->lock); // the workspace and the batch are shared
    *batch->sampling = *sampling;
    batch->sampling->counter = (uint64_t)session->tokens;
    rd_status status =
        rdi_memory_write(&engine->memory, s->sampling, batch->sampling, (int64_t)sizeof *batch->sampling);
    size_t ws_bytes = (size_t)engine->workspace.bytes;
    if (status == RD_OK)
        status = rd_sample_run(engine->plan[RDI_PLAN_SAMPLE], &args, engine->workspace.base, &ws_bytes,
                               engine->memory.stream);
    // The one wait of a step on a card: the token itself.
    if (status == RD_OK)
        status = rdi_memory_read(&engine->memory, batch->sampled, s->sampled, (int64_t)sizeof *id);
    *id = *batch->sampled;
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static rd_status hand_out(const rd_tokenizer *tokenizer, const rd_generate_options *options, int32_t id) {
    if (!options->on_token) return RD_OK;
    const char *bytes = "";
    size_t byte_count = 0;
    // A vocabulary may be padded beyond the tokenizer's: such an id has no text.
    if (tokenizer && id < rd_tokenizer_vocab(tokenizer))
        RDI_TRY(rd_token_bytes(tokenizer, id, 0, &bytes, &byte_count));
    if (options->on_token(options->on_token_state, id, bytes, byte_count))
        return rdi_fail(RD_E_CANCELLED, "generate: stopped by on_token");
    return RD_OK;
}

static rd_status decode(rd_session *session, const rd_generate_options *options, int32_t *ids_out,
                        rd_generate_result *result) {
    const rd_tokenizer *tokenizer = rd_model_tokenizer(session->engine->model);
    while (result->generated < options->max_tokens) {
        int32_t id;
        RDI_TRY(sample_next(session, &options->sampling, &id));
        if (tokenizer && rd_token_is_end(tokenizer, id) && !options->ignore_end) {
            result->hit_end = 1;
            return RD_OK;
        }
        ids_out[result->generated++] = id;
        RDI_TRY(hand_out(tokenizer, options, id));
        if (result->generated == options->max_tokens) return RD_OK; // nobody needs what would follow
        if (rd_session_room(session) == 0) {
            result->hit_limit = 1;
            return RD_OK;
        }
        const rd_step_item item = {.session = session, .ids = &id, .count = 1};
        RDI_TRY(rd_engine_step(session->engine, &item, 1));
    }
    return RD_OK;
}

rd_status rd_generate(rd_session *session, const int32_t *prompt, int64_t prompt_count,
                      const rd_generate_options *options, int32_t *ids_out, rd_generate_result *result) {
    RDI_TRY(check_generate(session, options, ids_out, result));
    *result = (rd_generate_result){.struct_size = result->struct_size};
    const double start = now_seconds();
    const int64_t reused = prompt ? rdi_session_reusable(session, prompt, prompt_count) : 0;
    RDI_TRY(rd_session_sync(session, prompt, prompt_count, NULL, NULL));
    result->prefilled_tokens = prompt_count - reused;
    const double prefilled = now_seconds();
    result->prefill_seconds = prefilled - start;
    rd_status status = decode(session, options, ids_out, result);
    result->decode_seconds = now_seconds() - prefilled;
    return status;
}
