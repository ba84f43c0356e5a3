// SPDX-License-Identifier: Apache-2.0
// Sessions: one token timeline each, kept in step with the paged cache. All state was allocated with the engine.
//
// Invariant: the cache holds keys and values of exactly the session's tokens, and `logits` (when has_logits) belong to the
// last of them. A pass that fails or is cancelled leaves the tokens of the passes before it.
#include "engine/engine.h"

#include <string.h>

rd_status rd_session_create(rd_engine *engine, rd_session **out) {
    if (!engine || !out) return rdi_fail(RD_E_INVALID, "session: %s is NULL", engine ? "out" : "engine");
    *out = NULL;
    pthread_mutex_lock(&engine->lock);
    for (int32_t i = 0; i < engine->geometry.max_sessions && !*out; i++)
        if (!engine->session[i].open) *out = &engine->session[i];
    if (*out) (*out)->open = true;
    pthread_mutex_unlock(&engine->lock);
    if (*out) return RD_OK;
    return rdi_fail(RD_E_LIMIT, "session: max_sessions=%d are open, free one or create the engine with more",
                    engine->geometry.max_sessions);
}

static void drop_blocks_beyond(rd_session *session, int64_t tokens) { // lock held
    int32_t keep = (int32_t)rdi_ceil_div(tokens, RDI_BLOCK_TOKENS);
    if (keep >= session->blocks) return;
    rdi_pool_drop(&session->engine->pool, session->block_table + keep, session->blocks - keep);
    session->blocks = keep;
}

static void truncate_locked(rd_session *session, int64_t tokens) {
    if (tokens == session->tokens) return;
    session->tokens = (int32_t)tokens;
    session->has_logits = false;
    drop_blocks_beyond(session, tokens);
}

void rd_session_free(rd_session *session) {
    if (!session) return;
    pthread_mutex_lock(&session->engine->lock);
    truncate_locked(session, 0);
    session->open = false;
    pthread_mutex_unlock(&session->engine->lock);
}

int64_t rd_session_tokens(const rd_session *session) {
    return session ? session->tokens : 0;
}
int64_t rd_session_room(const rd_session *session) {
    return session ? session->engine->geometry.context_tokens - session->tokens : 0;
}
// A card's logits come to the host when somebody looks; what fails there is told by the next call.
const float *rd_session_logits(const rd_session *session) {
    if (!session || !session->has_logits) return NULL;
    if (!session->engine->geometry.on_card) return session->logits;
    rd_session *mine = &session->engine->session[session - session->engine->session];
    const int64_t bytes = session->engine->geometry.vocab * (int64_t)sizeof(float);
    pthread_mutex_lock(&mine->engine->lock);
    if (!mine->host_fresh)
        mine->host_fresh =
            rdi_memory_read(&mine->engine->memory, mine->host_logits, mine->logits, bytes) == RD_OK;
    pthread_mutex_unlock(&mine->engine->lock);
    return mine->host_fresh ? mine->host_logits : NULL;
}

// A handle outlives rd_session_free until its engine goes: use after it is told, not run.
static rd_status check_open(const char *what, const rd_session *session) {
    if (!session) return rdi_fail(RD_E_INVALID, "%s: session is NULL", what);
    if (session->open) return RD_OK;
    return rdi_fail(RD_E_STATE, "%s: the session was freed, needs an open one", what);
}

rd_status rd_session_truncate(rd_session *session, int64_t tokens) {
    RDI_TRY(check_open("truncate", session));
    if (tokens < 0 || tokens > session->tokens)
        return rdi_fail(RD_E_INVALID, "truncate: tokens=%lld, the timeline has %d", (long long)tokens,
                        session->tokens);
    pthread_mutex_lock(&session->engine->lock);
    truncate_locked(session, tokens);
    pthread_mutex_unlock(&session->engine->lock);
    return RD_OK;
}

rd_status rdi_session_hold(rd_session *session, int64_t tokens) {
    int32_t needed = (int32_t)rdi_ceil_div(tokens, RDI_BLOCK_TOKENS);
    if (needed <= session->blocks) return RD_OK;
    RDI_TRY(rdi_pool_take(&session->engine->pool, needed - session->blocks,
                          session->block_table + session->blocks));
    session->blocks = needed;
    return RD_OK;
}

rd_status rdi_check_ids(const char *what, const rd_engine *engine, const int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= engine->geometry.vocab)
            return rdi_fail(RD_E_INVALID, "%s: ids[%lld]=%d, needs 0 to %d", what, (long long)i, ids[i],
                            engine->geometry.vocab - 1);
    return RD_OK;
}

// ---- batches -----------------------------------------------------------------------------------------------------------
void rdi_batch_begin(rd_engine *engine, rdi_pass_class pass) {
    engine->passes[pass]++;
    engine->batch.pass = pass;
    engine->batch.rows = engine->batch.seqs = engine->batch.first_out = 0;
    engine->batch.longest = engine->batch.keys = 0;
    engine->batch.q_starts[0] = 0;
}

void rdi_batch_append(rd_engine *engine, const rd_session *session, const int32_t *ids, int32_t count) {
    rdi_batch *batch = &engine->batch;
    for (int32_t i = 0; i < count; i++) {
        const int32_t row = batch->rows + i, position = session->tokens + i;
        batch->ids[row] = ids[i];
        batch->positions[row] = position;
        batch->slots[row] = (int64_t)session->block_table[position / RDI_BLOCK_TOKENS] * RDI_BLOCK_TOKENS +
                            position % RDI_BLOCK_TOKENS;
    }
    memcpy(batch->block_table + (int64_t)batch->seqs * engine->geometry.max_blocks, session->block_table,
           (size_t)session->blocks * sizeof(int32_t));
    batch->kv_lens[batch->seqs++] = session->tokens + count;
    batch->longest = (int32_t)rdi_max(batch->longest, count);
    batch->keys = (int32_t)rdi_max(batch->keys, session->tokens + count);
    batch->rows += count;
    batch->q_starts[batch->seqs] = batch->rows;
}

void rdi_batch_pad(rd_engine *engine, int32_t count) {
    rdi_batch *batch = &engine->batch;
    const int32_t seq = batch->seqs - 1, first = batch->kv_lens[seq];
    for (int32_t i = 0; i < count; i++, batch->rows++) {
        batch->ids[batch->rows] = 0;
        batch->positions[batch->rows] = first + i;
        batch->slots[batch->rows] = -1;
    }
    batch->kv_lens[seq] += count;
    batch->q_starts[batch->seqs] = batch->rows;
    batch->longest = (int32_t)rdi_max(batch->longest, batch->rows - batch->q_starts[seq]);
    batch->keys = (int32_t)rdi_max(batch->keys, batch->kv_lens[seq]);
}

// ---- sync --------------------------------------------------------------------------------------------------------------
int64_t rdi_session_reusable(const rd_session *session, const int32_t *ids, int64_t count) {
    int64_t shared = 0, most = rdi_min(count, session->tokens);
    while (shared < most && session->ids[shared] == ids[shared]) shared++;
    // The last position's logits are asked for: unless they are here, its token runs again.
    const bool ready = shared == session->tokens && session->has_logits;
    return shared == count && count > 0 && !ready ? count - 1 : shared;
}

static rd_status prefill_chunk(rd_session *session, const int32_t *ids, int32_t count, bool last) {
    rd_engine *engine = session->engine;
    pthread_mutex_lock(&engine->lock);
    rd_status status = rdi_session_hold(session, (int64_t)session->tokens + count);
    if (status == RD_OK) {
        status = rdi_memory_settle(&engine->memory); // a card may still be reading the last chunk's batch
    }
    if (status == RD_OK) {
        rdi_batch_begin(engine, RDI_PASS_PREFILL);
        rdi_batch_append(engine, session, ids, count);
        engine->batch.first_out = last ? count - 1 : count;
        session->has_logits = session->host_fresh = false; // from here on they may be half written
        status = rdi_forward(engine);
    }
    if (status == RD_OK && last) status = rdi_forward_head(engine, count - 1, 1, session->logits);
    if (status == RD_OK) {
        memcpy(session->ids + session->tokens, ids, (size_t)count * sizeof *ids);
        session->tokens += count;
        session->has_logits = last;
    } else {
        drop_blocks_beyond(session, session->tokens);
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

// Under the lock: another session's work may be on the stream, and `busy` is the engine's.
static rd_status settle(rd_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    const rd_status status = rdi_memory_settle(&engine->memory);
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static rd_status check_sync(const rd_session *session, const int32_t *ids, int64_t count) {
    RDI_TRY(check_open("sync", session));
    if (count <= 0 || !ids) return rdi_fail(RD_E_INVALID, "the prompt is empty, needs at least one token");
    const int64_t context = session->engine->geometry.context_tokens;
    if (count > context)
        return rdi_fail(RD_E_LIMIT, "sync: %lld tokens, %lld fit (%lld are in the timeline, %lld more fit)",
                        (long long)count, (long long)context, (long long)session->tokens,
                        (long long)rd_session_room(session));
    return rdi_check_ids("sync", session->engine, ids, count);
}

rd_status rd_session_sync(rd_session *session, const int32_t *ids, int64_t count, rd_progress_fn progress,
                          void *progress_state) {
    RDI_TRY(check_sync(session, ids, count));
    const int64_t shared = rdi_session_reusable(session, ids, count);
    if (shared == count && session->tokens == count) return RD_OK;
    RDI_TRY(rd_session_truncate(session, shared));
    const int64_t fresh = count - shared;
    for (int64_t done = 0; done < fresh;) {
        if (progress && progress(progress_state, "prefill", done, fresh))
            return rdi_fail(RD_E_CANCELLED, "sync: stopped after %lld of %lld new tokens", (long long)done,
                            (long long)fresh);
        int32_t chunk = (int32_t)rdi_min(session->engine->geometry.chunk_rows, fresh - done);
        RDI_TRY(prefill_chunk(session, ids + shared + done, chunk, done + chunk == fresh));
        done += chunk;
    }
    if (progress) (void)progress(progress_state, "prefill", fresh, fresh); // nothing is left to stop
    return settle(session->engine); // a card's fault is this call's error
}
