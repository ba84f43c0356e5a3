// SPDX-License-Identifier: Apache-2.0
// Decode and verify steps over several sessions in one pass. Every check comes before the first change.
#include "engine/engine.h"

#include <string.h>

static rd_status check_item(const rd_engine *engine, const rd_step_item *items, int32_t index) {
    const rd_step_item *item = &items[index];
    const rd_session *session = item->session;
    if (!session || !session->open || session->engine != engine)
        return rdi_fail(RD_E_INVALID, "step: items[%d]: the session is not an open one of this engine",
                        index);
    for (int32_t i = 0; i < index; i++)
        if (items[i].session == session)
            return rdi_fail(RD_E_INVALID, "step: items[%d] and items[%d] are the same session", i, index);
    if (item->count < 1 || item->count > RD_MAX_VERIFY_WIDTH || !item->ids)
        return rdi_fail(RD_E_INVALID, "step: items[%d]: count=%d, needs 1 to %d ids", index, item->count,
                        RD_MAX_VERIFY_WIDTH);
    if (session->tokens == 0)
        return rdi_fail(RD_E_STATE, "step: items[%d]: the timeline is empty, sync a prompt first", index);
    if (item->count > rd_session_room(session))
        return rdi_fail(RD_E_LIMIT, "step: items[%d]: %d tokens, %lld more fit (context of %d)", index,
                        item->count, (long long)rd_session_room(session), engine->geometry.context_tokens);
    if (rdi_check_ids("step", engine, item->ids, item->count) != RD_OK)
        return rdi_fail_prefix(RD_E_INVALID, "items[%d]", index);
    return RD_OK;
}

static rd_status hold_all(const rd_step_item *items, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        RDI_TRY(rdi_session_hold(items[i].session, (int64_t)items[i].session->tokens + items[i].count));
    return RD_OK;
}

// One item: its rows go straight to where they are wanted.
static rd_status head_of_one(rd_engine *engine, const rd_step_item *item) {
    const size_t row_bytes = (size_t)engine->geometry.vocab * sizeof(float);
    if (!item->logits) return rdi_forward_head(engine, item->count - 1, 1, item->session->logits);
    RDI_TRY(rdi_forward_head(engine, 0, item->count, item->logits));
    memcpy(item->session->logits, item->logits + (int64_t)(item->count - 1) * engine->geometry.vocab,
           row_bytes);
    return RD_OK;
}

// Rows [first, first + rows) of the batch, whose logits lie in scratch: to the callers that want them, the last of each item
// to its session. What goes to host memory is there after the next settle. Rows that only fill the batch are nobody's.
static rd_status hand_out_rows(rd_engine *engine, const rd_step_item *items, int32_t count, int32_t first,
                               int32_t rows) {
    const int64_t vocab = engine->geometry.vocab, bytes = vocab * (int64_t)sizeof(float);
    for (int32_t i = 0; i < count; i++)
        for (int32_t at = 0; at < items[i].count; at++) {
            const int32_t row = engine->batch.q_starts[i] + at - first;
            if (row < 0 || row >= rows) continue;
            const float *logits = engine->scratch.logits + row * vocab;
            if (items[i].logits)
                RDI_TRY(rdi_memory_fetch(&engine->memory, items[i].logits + at * vocab, logits, bytes));
            if (at + 1 == items[i].count)
                RDI_TRY(rdi_memory_move(&engine->memory, items[i].session->logits, logits, bytes));
        }
    return RD_OK;
}

static rd_status head_of_all(rd_engine *engine, const rd_step_item *items, int32_t count) {
    const rdi_geometry *g = &engine->geometry;
    for (int32_t row = 0; row < engine->batch.rows; row += g->logit_rows) {
        int32_t rows = (int32_t)rdi_min(g->logit_rows, engine->batch.rows - row);
        RDI_TRY(rdi_forward_head(engine, row, rows, engine->scratch.logits));
        RDI_TRY(hand_out_rows(engine, items, count, row, rows));
    }
    return RD_OK;
}

// width: of a step that a graph runs, else 0.
static rd_status run_step(rd_engine *engine, const rd_step_item *items, int32_t count, int32_t width) {
    if (width) {
        RDI_TRY(rdi_step_replay(engine));
        return hand_out_rows(engine, items, count, 0, engine->batch.rows);
    }
    RDI_TRY(rdi_forward(engine));
    const bool alone = count == 1 && !(engine->geometry.on_card && items[0].logits); // host memory
    return alone ? head_of_one(engine, items) : head_of_all(engine, items, count);
}

// Callers of verify steps find their logits in their own memory; without those nothing is waited for.
static rd_status settle_logits(rd_engine *engine, const rd_step_item *items, int32_t count) {
    bool wanted = false;
    for (int32_t i = 0; i < count; i++) wanted |= items[i].logits != NULL;
    return wanted ? rdi_memory_settle(&engine->memory) : RD_OK;
}

static rd_status run_items(rd_engine *engine, const rd_step_item *items, int32_t count) {
    RDI_TRY(hold_all(items, count));
    RDI_TRY(rdi_memory_settle(
        &engine->memory)); // a card may be reading the batch; idle when the last token was read
    const int32_t width = rdi_step_width(engine, items, count);
    rdi_batch_begin(engine, RDI_PASS_STEP);
    for (int32_t i = 0; i < count; i++) {
        rdi_batch_append(engine, items[i].session, items[i].ids, items[i].count);
        items[i].session->has_logits = items[i].session->host_fresh = false;
        if (width > items[i].count) rdi_batch_pad(engine, width - items[i].count);
    }
    if (width) rdi_step_fill(engine, width);
    if (!width && count == 1 && !items[0].logits) engine->batch.first_out = engine->batch.rows - 1;
    RDI_TRY(run_step(engine, items, count, width));
    RDI_TRY(settle_logits(engine, items, count));
    for (int32_t i = 0; i < count; i++) {
        rd_session *session = items[i].session;
        memcpy(session->ids + session->tokens, items[i].ids, (size_t)items[i].count * sizeof(int32_t));
        session->tokens += items[i].count;
        session->has_logits = true;
    }
    return RD_OK;
}

// As many items as fit a pass: which ones share it does not show in any row.
static int32_t pass_items(const rd_engine *engine, const rd_step_item *items, int32_t count) {
    int32_t taken = 0;
    for (int32_t rows = 0; taken < count; taken++) {
        rows += items[taken].count;
        if (rows > engine->geometry.step_rows) break;
    }
    return taken;
}

// A card's items by their number of rows, so that attention finds those of one number together (forward.c). Nor does this show.
static rd_status run_sorted(rd_engine *engine, const rd_step_item *items, int32_t count) {
    rd_step_item sorted[RDI_CARD_STEP_ROWS];
    if (!engine->geometry.on_card) return run_items(engine, items, count);
    int32_t placed = 0;
    for (int32_t rows = 1; rows <= RD_MAX_VERIFY_WIDTH; rows++)
        for (int32_t i = 0; i < count; i++)
            if (items[i].count == rows) sorted[placed++] = items[i];
    return run_items(engine, sorted, count);
}

rd_status rd_engine_step(rd_engine *engine, const rd_step_item *items, int32_t count) {
    if (!engine || !items || count < 1)
        return rdi_fail(RD_E_INVALID, "step: count=%d, needs an engine and at least one item", count);
    for (int32_t i = 0; i < count; i++) RDI_TRY(check_item(engine, items, i));
    pthread_mutex_lock(&engine->lock);
    rd_status status = RD_OK;
    for (int32_t begin = 0; begin < count && status == RD_OK;) {
        const int32_t end = begin + pass_items(engine, items + begin, count - begin);
        status = run_sorted(engine, items + begin, end - begin);
        begin = end;
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}
