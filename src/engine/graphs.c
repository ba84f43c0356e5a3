// SPDX-License-Identifier: Apache-2.0
// Decode and verify steps on a card as graphs: one for each (bucket of sequences, rows of each, bound of their lengths),
// recorded when such a step comes for the second time, so that a launch a kernel becomes a launch a step. What changes from
// step to step (ids, positions, slots, lengths, block tables) lies in page-locked host memory that the graph's own copies read.
//
// Buckets are powers of two. A sequence of fewer tokens than the widest is filled up behind its own rows, which cannot see
// that far; missing sequences read block 0. A row's bits depend on nothing of this (order class "step").
#include "engine/engine.h"

enum { LEAST_KEYS = 256 };

static int32_t bucket_of(const rd_engine *engine, int32_t seqs, int32_t width) {
    const rdi_geometry *g = &engine->geometry;
    int32_t bucket = 1;
    while (bucket < seqs) bucket *= 2;
    return bucket <= g->max_sessions && bucket * width <= rdi_min(g->step_rows, g->logit_rows) ? bucket
                                                                                               : seqs;
}

int32_t rdi_step_width(const rd_engine *engine, const rd_step_item *items, int32_t count) {
    const rdi_geometry *g = &engine->geometry;
    int32_t width = 1;
    for (int32_t i = 0; i < count; i++) width = (int32_t)rdi_max(width, items[i].count);
    bool fits = g->on_card && (int64_t)count * width <= rdi_min(g->step_rows, g->logit_rows);
    for (int32_t i = 0; i < count && fits; i++) fits = items[i].session->tokens + width <= g->context_tokens;
    return fits ? width : 0;
}

void rdi_step_fill(rd_engine *engine, int32_t width) {
    rdi_batch *batch = &engine->batch;
    const int32_t bucket = bucket_of(engine, batch->seqs, width);
    while (batch->seqs < bucket) {
        batch->block_table[(int64_t)batch->seqs * engine->geometry.max_blocks] = 0; // all that it reads
        batch->kv_lens[batch->seqs++] = 0;
        rdi_batch_pad(engine, width);
    }
}

// Lengths up to a power of two share a graph: grids are made for the bound, results do not depend on it.
int32_t rdi_step_keys(const rd_engine *engine) {
    int64_t bound = LEAST_KEYS;
    while (bound < engine->batch.keys) bound *= 2;
    return (int32_t)rdi_min(bound, engine->geometry.context_tokens);
}

static rd_status run_pass(rd_engine *engine) {
    RDI_TRY(rdi_forward(engine));
    return rdi_forward_head(engine, 0, engine->batch.rows, engine->scratch.logits);
}

static rdi_step_graph *find_graph(rd_engine *engine) {
    for (int32_t i = 0; i < engine->graph_count; i++)
        if (engine->graph[i].seqs == engine->batch.seqs && engine->graph[i].width == engine->batch.longest &&
            engine->graph[i].keys == engine->batch.keys)
            return &engine->graph[i];
    return NULL;
}

// A place for a new kind of step: a free one, else that of the kind which has not come for the longest time.
static rdi_step_graph *new_graph(rd_engine *engine) {
    rdi_step_graph *oldest = &engine->graph[0];
    if (engine->graph_count < RDI_MAX_GRAPHS) {
        oldest = &engine->graph[engine->graph_count++];
    } else {
        for (int32_t i = 1; i < RDI_MAX_GRAPHS; i++)
            if (engine->graph[i].used < oldest->used) oldest = &engine->graph[i];
        rd_graph_free(oldest->graph); // not running: run_items settled
    }
    *oldest = (rdi_step_graph){
        .seqs = engine->batch.seqs, .width = engine->batch.longest, .keys = engine->batch.keys};
    return oldest;
}

// Recording runs nothing; whatever fails in between, it must end.
rd_status rdi_pass_record(rd_engine *engine, rd_status (*run)(rd_engine *engine), rd_graph **out) {
    RDI_TRY(rd_graph_begin(engine->ctx, engine->memory.stream));
    rd_status status = run(engine);
    rd_status ended = rd_graph_end(engine->ctx, engine->memory.stream, out);
    if (status == RD_OK) return ended;
    if (ended == RD_OK) rd_graph_free(*out);
    *out = NULL;
    return status;
}

rd_status rdi_step_replay(rd_engine *engine) {
    engine->batch.first_out = 0;
    engine->batch.keys = rdi_step_keys(engine);
    rdi_step_graph *known = find_graph(engine);
    const bool fresh = !known;
    if (fresh) known = new_graph(engine);
    known->used = engine->passes[RDI_PASS_STEP];
    if (fresh) return run_pass(engine); // the first of its kind runs as it is: many are asked for once
    if (!known->graph) RDI_TRY(rdi_pass_record(engine, run_pass, &known->graph));
    engine->replayed++;
    engine->memory.busy = true;
    return rd_graph_launch(known->graph, engine->memory.stream);
}

void rdi_step_graphs_free(rd_engine *engine) {
    for (int32_t i = 0; i < engine->graph_count; i++) rd_graph_free(engine->graph[i].graph);
    engine->graph_count = 0;
}
